//! Batches of records, as returned by a poll.

use std::sync::Arc;

use bytes::Bytes;
use ottla_wire::{BatchHeader, Mark, RecordError, RecordIter, RecordRef, Records};

use super::TopicPartition;
use super::view::RecordView;
use crate::error::Error;
use crate::record::OwnedRecord;

/// Records of one partition, fetched together. It owns its bytes, so it can move to another thread and outlive the
/// consumer.
///
/// While it or a record that shares its bytes exists, they count against `queued.max.messages.kbytes`.
#[derive(Clone, Debug)]
pub struct Batch {
    pub(super) at: TopicPartition,
    pub(super) from: i64,
    pub(super) next: i64,
    pub(super) high_watermark: i64,
    pub(super) node: i32,
    pub(super) sets: Vec<Records>,
    /// The position in the first set at which the records begin.
    pub(super) start: Mark,
    /// The delivery count, in a share group.
    pub(super) delivery_count: Option<i16>,
}

/// A batch that cannot be decoded, or its part after the decodable records: checksum, codec, size limit or format.
#[derive(Clone, Debug)]
pub struct CorruptBatch {
    pub(super) at: TopicPartition,
    pub(super) from: i64,
    pub(super) next: i64,
    pub(super) bytes: Bytes,
    pub(super) error: Error,
}

impl CorruptBatch {
    /// The topic and the partition.
    pub fn at(&self) -> &TopicPartition {
        &self.at
    }

    /// The offset of the first record that was not returned.
    pub fn first_offset(&self) -> i64 {
        self.from
    }

    /// Skips the records before `from`, which were already returned.
    #[must_use]
    pub fn behind(mut self, from: i64) -> Self {
        self.from = self.from.max(from);
        self
    }

    /// The offset after the batch.
    pub fn next_offset(&self) -> i64 {
        self.next
    }

    /// The fetched bytes of the batch; only its decompressed records if the error is in these.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The reason: [`Error::Corrupt`].
    pub fn error(&self) -> &Error {
        &self.error
    }
}

/// The result of [`Batch::split_to`].
#[derive(Clone, Debug)]
pub struct SplitBatch {
    /// The records.
    pub batch: Batch,
    /// The number of records.
    pub records: usize,
    /// Their size in memory, decompressed.
    pub bytes: usize,
}

/// The result of [`Batch::cut_set`].
struct SetSplit {
    /// The position of the first record.
    begin: Mark,
    records: usize,
    bytes: usize,
    /// The position of the rest of the set, and its offset.
    rest: Option<(Mark, i64)>,
}

/// The position of a record in its [`Batch`]; initially, before the first record.
#[derive(Clone, Copy, Debug, Default)]
pub struct BatchPosition {
    set: u32,
    mark: Mark,
    /// The offset after the previous record.
    next: i64,
}

impl Batch {
    /// The topic.
    pub fn topic(&self) -> &Arc<str> {
        &self.at.topic
    }

    /// The partition.
    pub fn partition(&self) -> i32 {
        self.at.partition
    }

    /// The topic and the partition.
    pub fn at(&self) -> &TopicPartition {
        &self.at
    }

    /// The first offset that this batch covers. It has all records of the partition from there up to
    /// [`Batch::next_offset`], which may be none.
    pub fn first_offset(&self) -> i64 {
        self.from
    }

    /// The offset after the last record, to commit once all records are processed.
    pub fn next_offset(&self) -> i64 {
        self.next
    }

    /// The partition's high watermark at the fetch; the difference to [`Batch::next_offset`] is the lag.
    pub fn high_watermark(&self) -> i64 {
        self.high_watermark
    }

    /// The epoch of the leader that wrote the last record, if reported, for
    /// [`OffsetAndMetadata::leader_epoch`](super::OffsetAndMetadata::leader_epoch).
    pub fn leader_epoch(&self) -> Option<i32> {
        self.sets.last().map(|set| set.header().partition_leader_epoch).filter(|epoch| *epoch >= 0)
    }

    /// Records of a share group: those at consecutive offsets of verified sets, which may have more.
    pub(crate) fn delivered(
        at: TopicPartition,
        (from, next): (i64, i64),
        delivery_count: i16,
        node: i32,
        sets: Vec<Records>,
    ) -> Self {
        let (start, delivery_count) = (Mark::default(), Some(delivery_count));
        Self { at, from, next, high_watermark: -1, node, sets, start, delivery_count }
    }

    /// The number of deliveries of these records to members of their share group, including this one; `None` in a consumer group.
    pub fn delivery_count(&self) -> Option<i16> {
        self.delivery_count
    }

    /// Removes up to `max` records from the front and returns them as a batch. Copies nothing and does not decode the
    /// records that it skips.
    ///
    /// # Errors
    /// The errors of [`Batch::iter`], if the first records are corrupt; then [`Batch::split_corrupt`] can remove
    /// them. A later corrupt record ends the split before it.
    pub fn split_to(&mut self, max: usize) -> Result<SplitBatch, Error> {
        let mut front = Self { at: self.at.clone(), sets: Vec::new(), ..*self };
        // The last set may have records behind this batch.
        let max = max.min(usize::try_from(self.next - self.from).unwrap_or_default());
        let (mut count, mut bytes, mut sets) = (0, 0, 0);
        let mut mark = self.start;
        for set in &self.sets {
            let cut = match self.cut_set(set, mark, max - count) {
                Ok(cut) => cut,
                Err(error) if sets == 0 => return Err(error),
                // The records before the error are returned first.
                Err(_) => {
                    front.next = set.header().base_offset.max(self.from);
                    break;
                }
            };
            if sets == 0 {
                front.start = cut.begin;
            }
            (count, bytes) = (count + cut.records, bytes + cut.bytes);
            if cut.records > 0 || cut.rest.is_none() {
                front.sets.push(set.clone());
            }
            if let Some((rest, next)) = cut.rest {
                // The offsets up to the next record of the set are no part of a batch that ends before it.
                (mark, front.next) = (rest, next.min(self.next));
                break;
            }
            sets += 1;
            mark = Mark::default();
        }
        self.sets.drain(..sets);
        self.start = mark;
        self.from = front.next;
        Ok(SplitBatch { batch: front, records: count, bytes })
    }

    /// Finds up to `max` records of a set, starting at a mark.
    fn cut_set(&self, set: &Records, mut mark: Mark, max: usize) -> Result<SetSplit, Error> {
        let corrupt = |error: RecordError| self.corrupt(set.header(), &error);
        // A fetch from the middle of a batch returns the whole batch.
        let mut begin = mark;
        while set.header().base_offset < self.from
            && let Some(record) = set.next_at(&mut mark)
            && record.map_err(corrupt)?.offset < self.from
        {
            begin = mark;
        }
        mark = begin;
        let left = set.left(&mark) as usize;
        if left <= max {
            return Ok(SetSplit {
                begin,
                records: left,
                bytes: set.block().len() - begin.bytes(),
                rest: None,
            });
        }
        let skipped = set.skip_at(&mut mark, max as u32);
        let next = skipped.and_then(|()| set.next_at(&mut mark.clone()).transpose());
        let (records, next) = match next {
            Ok(next) => (max, next.map_or(set.header().next_offset(), |record| record.offset)),
            // The records before the error are returned first.
            Err(error) => {
                let (mut sound, mut records, mut next) = (begin, 0, self.from);
                while records < max
                    && let Some(Ok(record)) = set.next_at(&mut sound)
                {
                    (mark, records, next) = (sound, records + 1, record.offset + 1);
                }
                if records == 0 {
                    return Err(corrupt(error));
                }
                (records, next)
            }
        };
        Ok(SetSplit { begin, records, bytes: mark.bytes() - begin.bytes(), rest: Some((mark, next)) })
    }

    /// Removes the part for which [`Batch::split_to`] returned `error`.
    pub fn split_corrupt(&mut self, error: &Error) -> CorruptBatch {
        let corrupt = self.corrupt_at(&BatchPosition::default(), error);
        self.sets.drain(..self.sets.len().min(1));
        (self.start, self.from) = (Mark::default(), corrupt.next);
        corrupt
    }

    /// The part of the batch for which [`Batch::next_at`] has just returned `error`. The next call continues after
    /// it.
    pub fn corrupt_at(&self, at: &BatchPosition, error: &Error) -> CorruptBatch {
        let (at_partition, error) = (self.at.clone(), error.clone());
        let Some(set) = self.sets.get(at.set as usize) else {
            return CorruptBatch {
                at: at_partition,
                from: self.from,
                next: self.next,
                bytes: Bytes::new(),
                error,
            };
        };
        let behind = self.sets.get(at.set as usize + 1);
        let next = behind.map_or(self.next, |behind| behind.header().base_offset).max(self.from);
        let from = set.header().base_offset.max(self.from).min(next);
        CorruptBatch { at: at_partition, from, next, bytes: set.block().clone(), error }
    }

    /// Returns the record at this position and advances the position. Several threads can read one batch this way,
    /// each with its own position.
    ///
    /// # Errors
    /// The errors of [`Batch::iter`].
    #[inline]
    pub fn next_at(&self, at: &mut BatchPosition) -> Option<Result<RecordView<'_>, Error>> {
        if at.set == 0 && self.start.is_behind(&at.mark) {
            at.mark = self.start;
        }
        // Records after the last one do not belong to this batch and may be unreadable.
        while at.next < self.next {
            let set = self.sets.get(at.set as usize)?;
            match set.next_at(&mut at.mark) {
                Some(Ok(record)) if record.offset < self.from => {}
                Some(Ok(record)) if record.offset >= self.next => return None,
                Some(Ok(record)) => {
                    at.next = record.offset + 1;
                    return Some(Ok(RecordView::new(&self.at, record, set, self.node)));
                }
                Some(Err(error)) => return Some(Err(self.corrupt(set.header(), &error))),
                None => *at = BatchPosition { set: at.set + 1, mark: Mark::default(), ..*at },
            }
        }
        None
    }

    /// Iterates over the records without copying them.
    ///
    /// # Errors
    /// A record that contradicts its batch; the records before it are valid.
    #[inline]
    pub fn iter(&self) -> BatchIter<'_> {
        BatchIter { batch: self, sets: self.sets.iter(), current: None, next: i64::MIN }
    }

    /// Iterates over the records like [`Batch::iter`], as [`RecordView`]s, which know their topic and partition.
    ///
    /// # Errors
    /// The errors of [`Batch::iter`].
    #[inline]
    pub fn views(&self) -> BatchViews<'_> {
        BatchViews(self.iter())
    }

    /// Returns the records, each owning slices of the response.
    pub fn to_owned_records(&self) -> Result<Vec<OwnedRecord>, Error> {
        let (mut out, mut at) = (Vec::new(), BatchPosition::default());
        while let Some(record) = self.next_at(&mut at) {
            out.push(record?.to_owned());
        }
        Ok(out)
    }

    fn corrupt(&self, header: &BatchHeader, error: &impl ToString) -> Error {
        Error::Corrupt {
            topic: self.at.topic.to_string(),
            partition: self.at.partition,
            offset: header.base_offset,
            reason: error.to_string(),
        }
    }
}

impl<'a> IntoIterator for &'a Batch {
    type Item = Result<RecordRef<'a>, Error>;
    type IntoIter = BatchIter<'a>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// An iterator over the records of a [`Batch`].
#[derive(Clone, Debug)]
pub struct BatchIter<'a> {
    batch: &'a Batch,
    sets: std::slice::Iter<'a, Records>,
    current: Option<(RecordIter<'a>, &'a Records)>,
    /// The offset after the previous record.
    next: i64,
}

impl<'a> BatchIter<'a> {
    /// The next record, and the records that it belongs to.
    #[expect(
        clippy::inline_always,
        reason = "a call copies the record once more: 8 % of a consumer's instructions"
    )]
    #[inline(always)]
    fn next_of(&mut self) -> Option<Result<(RecordRef<'a>, &'a Records), Error>> {
        // Records after the last one do not belong to this batch and may be unreadable.
        while self.next < self.batch.next {
            if let Some((records, set)) = &mut self.current {
                match records.next() {
                    // A fetch from the middle of a batch returns the whole batch.
                    Some(Ok(record)) if record.offset < self.batch.from => continue,
                    Some(Ok(record)) if record.offset >= self.batch.next => return None,
                    Some(Ok(record)) => {
                        self.next = record.offset + 1;
                        return Some(Ok((record, *set)));
                    }
                    Some(Err(error)) => return Some(Err(self.batch.corrupt(set.header(), &error))),
                    None => {}
                }
            }
            let first = self.sets.len() == self.batch.sets.len();
            let set = self.sets.next()?;
            let start = if first { self.batch.start } else { Mark::default() };
            self.current = Some((set.iter_from(&start), set));
        }
        None
    }
}

impl<'a> Iterator for BatchIter<'a> {
    type Item = Result<RecordRef<'a>, Error>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        Some(self.next_of()?.map(|(record, _)| record))
    }
}

/// An iterator over the records of a [`Batch`], as views.
#[derive(Clone, Debug)]
pub struct BatchViews<'a>(BatchIter<'a>);

impl<'a> Iterator for BatchViews<'a> {
    type Item = Result<RecordView<'a>, Error>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let Self(records) = self;
        Some(
            records
                .next_of()?
                .map(|(record, of)| RecordView::new(&records.batch.at, record, of, records.batch.node)),
        )
    }
}

/// The record as slices of the block that contains it.
pub(super) fn own(record: &RecordRef<'_>, block: &Bytes) -> OwnedRecord {
    let slice = |part: &[u8]| if part.is_empty() { Bytes::new() } else { block.slice_ref(part) };
    OwnedRecord {
        offset: record.offset,
        timestamp_ms: record.timestamp,
        key: record.key.map(slice),
        value: record.value.map(slice),
        headers: record
            .headers
            .iter()
            .map(|(name, value)| (String::from_utf8_lossy(name).into_owned(), value.map(slice)))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use ottla_wire::{BatchBuilder, Seal};

    use super::*;

    /// Sets with the given numbers of records, read from offset `from` on; each record's value is its offset.
    fn batch(sets: &[usize], from: i64) -> Batch {
        damaged(sets, from, None)
    }

    fn damaged(sets: &[usize], from: i64, at: Option<i64>) -> Batch {
        let mut base_offset = 0;
        let mut out = Vec::new();
        for count in sets {
            let mut builder = BatchBuilder::new();
            for offset in base_offset..base_offset + *count as i64 {
                builder.push(0, None, Some(offset.to_string().as_bytes()), &[]);
            }
            let mut bytes = builder.seal(&Seal::default()).expect("sealed").to_bytes().to_vec();
            ottla_wire::batch::set_base_offset(&mut bytes, base_offset);
            if let Some(offset) = at {
                damage(&mut bytes, offset);
            }
            out.push(Records::of_batch(&Bytes::from(bytes), 0).expect("a set"));
            base_offset += *count as i64;
        }
        let (at, start, next) = (TopicPartition::new("orders", 0), Mark::default(), base_offset);
        Batch { at, from, next, high_watermark: next, node: 1, sets: out, start, delivery_count: None }
    }

    fn offsets(batch: &Batch) -> Vec<i64> {
        batch.iter().map(|record| record.expect("a sound record").offset).collect()
    }

    #[test]
    fn a_batch_comes_apart_anywhere_and_nothing_is_lost() {
        for from in [0, 1, 4] {
            for size in 1..=14 {
                let mut rest = batch(&[5, 1, 7], from);
                let all = offsets(&rest);
                let mut seen = Vec::new();
                while rest.first_offset() < rest.next_offset() {
                    let cut = rest.split_to(size).expect("sound records");
                    assert_eq!(offsets(&cut.batch).len(), cut.records);
                    assert_eq!(cut.batch.next_offset(), rest.first_offset());
                    assert!(cut.records == size || rest.sets.is_empty(), "{size}: {cut:?}");
                    let mut at = BatchPosition::default();
                    while let Some(record) = cut.batch.next_at(&mut at) {
                        let record = record.expect("a sound record");
                        assert_eq!(record.value(), Some(record.offset().to_string().as_bytes()));
                        seen.push(record.offset());
                    }
                    assert_eq!(seen[seen.len() - cut.records..], offsets(&cut.batch));
                    let views = cut.batch.views().map(|record| record.expect("a sound record").offset());
                    assert_eq!(views.collect::<Vec<_>>(), offsets(&cut.batch));
                }
                assert_eq!(seen, all, "from {from}, {size} at a time");
            }
        }
    }

    #[test]
    fn a_part_of_the_offsets_comes_apart_without_the_records_around_it() {
        for size in 1..=9 {
            let all = batch(&[5, 1, 7], 0);
            let mut rest = Batch::delivered(all.at.clone(), (2, 9), 3, 1, all.sets);
            let mut seen = Vec::new();
            while rest.first_offset() < rest.next_offset() {
                let cut = rest.split_to(size).expect("sound records");
                assert_eq!(offsets(&cut.batch).len(), cut.records, "{size}");
                assert_eq!(cut.batch.delivery_count(), Some(3));
                seen.extend(offsets(&cut.batch));
            }
            assert_eq!(seen, [2, 3, 4, 5, 6, 7, 8], "{size} at a time");
        }
    }

    /// The offsets behind the last record counted as records of the batch, which a share group had not delivered.
    #[test]
    fn a_part_of_the_offsets_ends_before_a_gap() {
        let mut builder = BatchBuilder::new();
        for value in ["0", "1", "2"] {
            builder.push(0, None, Some(value.as_bytes()), &[]);
        }
        let mut bytes = builder.seal(&Seal::default()).expect("sealed").to_bytes().to_vec();
        // The last record gets offset 7, in zigzag encoding, as if compaction had removed those before it. No key, one byte.
        let record = bytes.windows(3).position(|window| window == [1, 2, b'2']).expect("the last record");
        bytes[record - 1] = 14;
        bytes[23..27].copy_from_slice(&7_i32.to_be_bytes());
        let set = Records::of_batch(&Bytes::from(bytes), 0).expect("a set");
        for size in 1..=3 {
            let at = TopicPartition::new("orders", 0);
            let mut rest = Batch::delivered(at, (0, 2), 1, 1, vec![set.clone()]);
            let mut seen = Vec::new();
            while rest.first_offset() < rest.next_offset() {
                let cut = rest.split_to(size).expect("sound records");
                assert_eq!(offsets(&cut.batch).len(), cut.records, "{size}");
                assert!(cut.batch.next_offset() <= 2, "{size}: {}", cut.batch.next_offset());
                seen.extend(offsets(&cut.batch));
            }
            assert_eq!((seen, rest.first_offset()), (vec![0, 1], 2), "{size} at a time");
        }
    }

    /// Makes the value at this offset longer than its record.
    fn damage(bytes: &mut [u8], offset: i64) {
        let text = offset.to_string();
        // No key, the value's length, the value.
        let pattern = [&[1, 2 * text.len() as u8], text.as_bytes()].concat();
        if let Some(at) = bytes.windows(pattern.len()).position(|window| window == pattern) {
            bytes[at + 1] = 0x7e;
        }
    }

    #[test]
    fn what_is_behind_a_record_that_cannot_be_read_is_read_all_the_same() {
        let all = damaged(&[5, 3, 4], 0, Some(6));
        let (mut at, mut seen, mut corrupt) = (BatchPosition::default(), Vec::new(), Vec::new());
        while let Some(record) = all.next_at(&mut at) {
            match record {
                Ok(record) => seen.push(record.offset()),
                Err(error) => corrupt.push(all.corrupt_at(&at, &error).behind(seen.last().unwrap() + 1)),
            }
        }
        assert_eq!(seen, [0, 1, 2, 3, 4, 5, 8, 9, 10, 11]);
        let range = (corrupt[0].first_offset(), corrupt[0].next_offset());
        assert_eq!((corrupt.len(), range), (1, (6, 8)));
        let sound: Vec<i64> = all.views().map_while(|record| Some(record.ok()?.offset())).collect();
        assert_eq!(sound, [0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn a_cut_ends_before_what_cannot_be_read_and_that_comes_off_as_a_whole() {
        let mut rest = damaged(&[5, 3, 4], 0, Some(6));
        let cut = rest.split_to(6).expect("the first set and a record");
        assert_eq!((cut.records, cut.batch.next_offset(), rest.first_offset()), (6, 6, 6));
        assert_eq!(offsets(&cut.batch), [0, 1, 2, 3, 4, 5]);
        let (mut at, mut count) = (BatchPosition::default(), 0);
        while let Some(record) = cut.batch.next_at(&mut at) {
            assert_eq!(record.expect("sound").offset(), count);
            count += 1;
        }
        assert_eq!(count, 6);
        let error = rest.split_to(1).expect_err("the damage is at the front");
        let corrupt = rest.split_corrupt(&error);
        assert_eq!((corrupt.first_offset(), corrupt.next_offset()), (6, 8));
        assert_eq!(offsets(&rest.split_to(100).expect("the last set").batch), [8, 9, 10, 11]);
    }
}
