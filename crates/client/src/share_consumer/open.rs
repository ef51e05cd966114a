//! Opens acquired chunks in the polling thread: verifies and decompresses their batches, and sorts the acquired offsets.

use bytes::{Buf, Bytes};
use ottla_wire::{BatchHeader, Records};

use super::batch::ShareBatch;
use crate::consumer::open_chunk::ReadContext;
use crate::share::acknowledgements::{AckRange, GAP};
use crate::share::queue::{AcquiredChunk, AcquiredRange};
use crate::types::AcknowledgeType;

/// The contents of a chunk.
pub(super) struct OpenedChunk {
    /// The acquired records; `None` if there are none.
    pub(super) batch: Option<ShareBatch>,
    /// The acknowledgements of acquired offsets that have no readable record.
    pub(super) unreadable: Vec<AckRange>,
    /// The number of acquired offsets in batches that cannot be decoded.
    pub(super) corrupt: u64,
}

/// Consecutive offsets that the fetched batches cover.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Span {
    first: i64,
    last: i64,
    is_corrupt: bool,
}

/// The offsets of a chunk, in order.
#[derive(Debug, Default)]
struct Spans {
    spans: Vec<Span>,
    /// The offset after the last batch.
    next: i64,
}

impl Spans {
    fn add(&mut self, first: i64, last: i64, is_corrupt: bool) {
        if first > last {
            return;
        }
        match self.spans.last_mut() {
            Some(span) if span.is_corrupt == is_corrupt && span.last + 1 == first => span.last = last,
            _ => self.spans.push(Span { first, last, is_corrupt }),
        }
    }
}

/// Opens a chunk.
pub(super) fn open(chunk: AcquiredChunk, reading: &ReadContext) -> OpenedChunk {
    let AcquiredChunk { key, at, node, mut records, acquired, .. } = chunk;
    let (mut sets, mut spans) = (Vec::new(), Spans::default());
    let bytes = records.len();
    while !records.is_empty() {
        let Ok(header) = BatchHeader::parse(&records) else {
            // Nothing behind a header that cannot be read is reachable.
            let last = acquired.last().map_or(spans.next, |range| range.last);
            spans.add(spans.next, last, true);
            spans.next = last.saturating_add(1);
            break;
        };
        if records.len() < header.total_bytes() || header.base_offset < spans.next {
            break;
        }
        let batch = records.slice(..header.total_bytes());
        records.advance(batch.len());
        let next = header.next_offset().max(header.base_offset);
        match set_of(&header, &batch, reading, &mut spans) {
            Ok(set) => sets.extend(set),
            Err(error) => {
                tracing::warn!(%at, offset = header.base_offset, %error, "rejecting a corrupt batch of a share group");
                spans.add(header.base_offset, next - 1, true);
            }
        }
        spans.next = next;
    }
    let mut opened = sort(&acquired, &spans);
    let runs = std::mem::take(&mut opened.runs);
    let count: u64 = runs.iter().map(|run| (run.last - run.first + 1) as u64).sum();
    let next = runs.last().map_or(spans.next, |run| run.last + 1);
    let (topic_id, sets, acquired) = (key.topic_id, sets.into(), runs.into());
    let batch = ShareBatch { at: at.clone(), topic_id, node, sets, acquired };
    if count > 0 {
        reading.observer.consumed(&at.topic, at.partition, count, bytes as u64, next);
    }
    OpenedChunk {
        batch: (count > 0).then_some(batch),
        unreadable: opened.unreadable,
        corrupt: opened.corrupt,
    }
}

/// Verifies, decompresses and reads a batch once. A batch without records for applications is `None`.
fn set_of(
    header: &BatchHeader,
    batch: &Bytes,
    reading: &ReadContext,
    spans: &mut Spans,
) -> Result<Option<Records>, String> {
    let config = &reading.config;
    if config.check_crcs {
        header.verify_crc(batch).map_err(|error| error.to_string())?;
    }
    if header.is_control() || header.record_count == 0 {
        return Ok(None);
    }
    let keep = |block| reading.budget.hold(block);
    let set = Records::of_batch_in(batch, config.decompressed_max_bytes, keep)
        .map_err(|error| error.to_string())?;
    let mut runs = Spans::default();
    let mut next = header.base_offset;
    for record in &set {
        let offset = record.map_err(|error| error.to_string())?.offset;
        if offset < next || offset > header.last_offset() {
            return Err(format!("offset {offset} in a batch up to {}", header.last_offset()));
        }
        next = offset + 1;
        runs.add(offset, offset, false);
    }
    for run in runs.spans {
        spans.add(run.first, run.last, false);
    }
    Ok(Some(set))
}

/// The acquired offsets by what the batches have for them.
#[derive(Debug, Default)]
struct Sorted {
    /// Offsets with records.
    runs: Vec<AcquiredRange>,
    unreadable: Vec<AckRange>,
    corrupt: u64,
}

/// Sorts the acquired offsets: those with records, those of corrupt batches (rejected), those between records (gaps), and those
/// behind the fetched batches (released).
fn sort(acquired: &[AcquiredRange], spans: &Spans) -> Sorted {
    let mut sorted = Sorted::default();
    let mut left = &spans.spans[..];
    for range in acquired {
        let mut next = range.first;
        while left.first().is_some_and(|span| span.last < next) {
            left = &left[1..];
        }
        for span in left.iter().take_while(|span| span.first <= range.last) {
            let (first, last) = (span.first.max(range.first), span.last.min(range.last));
            sorted.add_missing(next, first - 1, spans.next);
            if span.is_corrupt {
                let rejected = AckRange::uniform(first, last, AcknowledgeType::Reject.code());
                sorted.corrupt += rejected.len();
                sorted.unreadable.push(rejected);
            } else {
                sorted.runs.push(AcquiredRange { first, last, ..*range });
            }
            next = last + 1;
        }
        sorted.add_missing(next, range.last, spans.next);
    }
    sorted
}

impl Sorted {
    /// Adds acquired offsets without a record: gaps, and from `end` on offsets that the response has nothing of.
    fn add_missing(&mut self, first: i64, last: i64, end: i64) {
        if first <= last.min(end - 1) {
            self.unreadable.push(AckRange::uniform(first, last.min(end - 1), GAP));
        }
        if first.max(end) <= last {
            let released = AckRange::uniform(first.max(end), last, AcknowledgeType::Release.code());
            self.unreadable.push(released);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acquired(first: i64, last: i64) -> AcquiredRange {
        AcquiredRange { first, last, delivery_count: 1 }
    }

    fn spans(spans: &[(i64, i64, bool)], next: i64) -> Spans {
        let span = |(first, last, is_corrupt): &(i64, i64, bool)| Span {
            first: *first,
            last: *last,
            is_corrupt: *is_corrupt,
        };
        Spans { spans: spans.iter().map(span).collect(), next }
    }

    #[test]
    fn only_acquired_offsets_with_records_are_delivered() {
        let sorted = sort(&[acquired(2, 4), acquired(8, 9)], &spans(&[(0, 9, false)], 10));
        assert_eq!(sorted.runs, [acquired(2, 4), acquired(8, 9)]);
        assert!(sorted.unreadable.is_empty() && sorted.corrupt == 0);
    }

    #[test]
    fn what_compaction_removed_is_a_gap_and_what_the_response_lacks_is_released() {
        let sorted = sort(&[acquired(0, 12)], &spans(&[(2, 3, false), (6, 6, false)], 10));
        assert_eq!(sorted.runs, [acquired(2, 3), acquired(6, 6)]);
        let expected = [
            AckRange::uniform(0, 1, GAP),
            AckRange::uniform(4, 5, GAP),
            AckRange::uniform(7, 9, GAP),
            AckRange::uniform(10, 12, AcknowledgeType::Release.code()),
        ];
        assert_eq!(sorted.unreadable, expected);
    }

    #[test]
    fn the_acquired_offsets_of_a_corrupt_batch_are_rejected() {
        let batches = spans(&[(0, 4, false), (5, 9, true), (10, 14, false)], 15);
        let sorted = sort(&[acquired(3, 6), acquired(9, 11)], &batches);
        assert_eq!(sorted.runs, [acquired(3, 4), acquired(10, 11)]);
        let reject = AcknowledgeType::Reject.code();
        assert_eq!(sorted.unreadable, [AckRange::uniform(5, 6, reject), AckRange::uniform(9, 9, reject)]);
        assert_eq!(sorted.corrupt, 3);
    }
}
