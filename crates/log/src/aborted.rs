//! The aborted transactions among the records of a read, in a list of limited length.
//!
//! A file of records needs no memory, but a read of it can have records of very many aborted transactions. A read whose list would be too
//! long ends earlier, and the next one continues:
//!
//! ```text
//! one after the other     data 1  marker 1  data 2  marker 2 ...  data n | the first transaction that has no room in the list
//! very many at a time     marker of 1  marker of 2  marker of 3 ...      | few batches, and the transactions of their producers
//! ```

use crate::error::ReadError;
use crate::log::Log;
use crate::producer_map::ProducerSet;
use crate::read::{ReadResult, lookup_failed};
use crate::segment::{LookupError, SegmentView};
use crate::txn_index::{AbortedTransaction, Search};

/// The most batches of a read at whose offset more transactions are open than the list may have.
const BATCHES_MAX: usize = 500;

/// A read for a consumer with `isolation.level=read_committed`.
#[derive(Debug)]
pub struct CommittedRead {
    /// The batches.
    pub read: ReadResult,
    /// The aborted transactions with records among them, by their first offset.
    pub aborted: Vec<AbortedTransaction>,
}

impl Log {
    /// Adds the aborted transactions to the result of a read at `offset` below the last stable offset `stable`.
    ///
    /// The list has at most `entries_max` transactions. The read becomes shorter if there are more; it keeps one batch at least, or
    /// becomes empty without `min_one_batch`.
    pub fn aborted_in(
        &mut self,
        offset: i64,
        read: ReadResult,
        stable: i64,
        entries_max: usize,
        min_one_batch: bool,
    ) -> Result<CommittedRead, ReadError> {
        if read.chain.is_empty() || !self.has_aborted_transactions() {
            return Ok(CommittedRead { read, aborted: Vec::new() });
        }
        let end = self.end_of_read(offset, &read)?.map_or(stable, |end| end.min(stable));
        // One more shows where the list has to end.
        let mut search = Search::first_of(offset, end, entries_max.saturating_add(1));
        self.search_aborted(&mut search)?;
        let mut aborted = search.into_sorted();
        let Some(left_out) = aborted.get(entries_max).map(|transaction| transaction.first_offset) else {
            return Ok(CommittedRead { read, aborted });
        };
        let bytes_max = read.chain.len();
        if left_out > offset {
            let shorter = self.read(offset, bytes_max, left_out, true)?;
            if !shorter.chain.is_empty() {
                aborted.truncate(entries_max);
                return Ok(CommittedRead { read: shorter, aborted });
            }
        }
        if !min_one_batch {
            let read = ReadResult { next_offset: Some(offset), ..ReadResult::default() };
            return Ok(CommittedRead { read, aborted: Vec::new() });
        }
        let (end, producers) = self.few_batches(offset, stable, (entries_max / 2).clamp(1, BATCHES_MAX))?;
        let mut search = Search::of_producers(offset, end, &producers);
        self.search_aborted(&mut search)?;
        let aborted = search.into_sorted();
        Ok(CommittedRead { read: self.read(offset, bytes_max, end, true)?, aborted })
    }

    /// Returns an offset above those of the whole batches of a read; `None` if it ends with the readable part of the log.
    fn end_of_read(&mut self, offset: i64, read: &ReadResult) -> Result<Option<i64>, ReadError> {
        match (read.next_offset, read.file_end) {
            (Some(next_offset), _) => Ok(Some(next_offset)),
            (None, Some((segment, position))) => {
                let number = self.segment_of(segment);
                self.open_segment(number).map_err(|(source, _)| self.read_failed(offset, source))?;
                let end = self.segments[number].view(&self.bad).offset_at(position);
                end.map(Some).map_err(|source| self.read_failed(offset, source))
            }
            (None, None) => Ok(None),
        }
    }

    /// Returns the end of at most `max` batches from the one with `offset` on, and their producers. These have at most twice as many
    /// transactions there: a batch has records of one, or ends one.
    fn few_batches(&mut self, offset: i64, stable: i64, max: usize) -> Result<(i64, ProducerSet), ReadError> {
        let mut from = offset;
        loop {
            let number = self.segment_of(from);
            self.open_segment(number).map_err(|(source, _)| self.read_failed(offset, source))?;
            let view = self.segments[number].view(&self.bad);
            let found = batches_from(&view, from, stable, max)
                .map_err(|error| lookup_failed(&self.dir, &view, offset, error))?;
            if let Some(found) = found {
                return Ok(found);
            }
            // A gap at the end of a segment.
            let Some(next) = self.segments.get(number + 1) else {
                return Ok((offset, ProducerSet::default()));
            };
            from = next.base_offset;
        }
    }
}

/// The end of at most `max` batches of a segment from `from` on, and their producers; `None` if there is no batch.
fn batches_from(
    view: &SegmentView,
    from: i64,
    stable: i64,
    max: usize,
) -> Result<Option<(i64, ProducerSet)>, LookupError> {
    let mut window = view.window();
    let Some((mut position, mut header)) = view.locate_in(&mut window, from)? else { return Ok(None) };
    let sound_until = view.sound_until(position);
    let mut producers = ProducerSet::default();
    let mut end = from;
    for _ in 0..max {
        producers.insert(header.producer_id);
        end = header.next_offset();
        position += header.total_bytes() as u64;
        if position >= sound_until {
            break;
        }
        // Damage ends the read.
        let Ok(next) = window.header(position)? else { break };
        if next.next_offset() > stable {
            break;
        }
        header = next;
    }
    Ok(Some((end, producers)))
}
