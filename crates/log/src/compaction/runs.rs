//! Runs of batches that the first pass has read: the second pass does not read those of which nothing stays.

use std::collections::VecDeque;
use std::ops::Range;

use ottla_wire::BatchHeader;

use super::filter::Rules;

/// A run ends with the first batch behind so many intervals of the index: 64 KiB with the default of 4 KiB.
const RUN_INTERVALS: u64 = 16;

/// Neighbouring batches of one segment.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Run {
    pub(crate) position: u64,
    pub(crate) end: u64,
    pub(crate) base_offset: i64,
    pub(crate) next_offset: i64,
    /// The leader epoch of all of them.
    pub(crate) epoch: i32,
    pub(crate) records: u64,
    /// `true` if only their records decide about them: no control batch, no transaction, one leader epoch.
    is_plain: bool,
}

impl Run {
    fn of(header: &BatchHeader, position: u64) -> Self {
        Self {
            position,
            end: position + header.total_bytes() as u64,
            base_offset: header.base_offset,
            next_offset: header.next_offset(),
            epoch: header.partition_leader_epoch,
            records: header.record_count.max(0) as u64,
            is_plain: !header.is_control() && !header.is_transactional(),
        }
    }

    fn add(&mut self, next: &Self) {
        self.end = next.end;
        self.next_offset = next.next_offset;
        self.records += next.records;
        self.is_plain &= next.is_plain && self.epoch == next.epoch;
    }
}

/// The runs in the order of their offsets, as many as fit into the memory for them.
#[derive(Debug)]
pub(crate) struct Runs {
    queue: VecDeque<Run>,
    count_max: usize,
    run_bytes: u64,
}

impl Runs {
    pub(crate) fn new(bytes_max: usize, index_interval: u32) -> Self {
        // A queue that grows can have room for twice as many.
        Self {
            queue: VecDeque::new(),
            count_max: bytes_max / 2 / size_of::<Run>(),
            run_bytes: u64::from(index_interval) * RUN_INTERVALS,
        }
    }

    /// Returns the memory in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.queue.capacity() * size_of::<Run>()
    }

    /// Adds a batch at a position of its segment.
    pub(crate) fn add(&mut self, header: &BatchHeader, position: u64) {
        let batch = Run::of(header, position);
        let has_room = self.queue.len() < self.count_max;
        let run_bytes = self.run_bytes;
        let goes_on = |run: &Run| {
            run.end == position && run.next_offset <= batch.base_offset && run.end - run.position < run_bytes
        };
        match self.queue.back_mut() {
            Some(run) if goes_on(run) => run.add(&batch),
            _ if has_room => self.queue.push_back(batch),
            _ => {}
        }
    }

    /// Returns the run at a position of a segment, if nothing of it stays. Its offsets are in the given range. Forgets the runs
    /// before.
    pub(crate) fn superseded(&mut self, rules: &Rules, offsets: Range<i64>, position: u64) -> Option<Run> {
        while self.queue.front().is_some_and(|run| run.base_offset < offsets.start) {
            self.queue.pop_front();
        }
        let run = *self.queue.front()?;
        let last = run.next_offset - 1;
        let nothing_stays = run.position == position
            && run.next_offset <= offsets.end
            && run.is_plain
            && last <= rules.latest
            && rules.newest.covers(run.base_offset, last)
            && !rules.newest.has_any(run.base_offset, last)
            && !rules.has_last_batch(run.base_offset, last);
        nothing_stays.then_some(run)
    }
}

#[cfg(test)]
mod tests {
    use ottla_wire::{BatchBuilder, Seal};

    use super::*;
    use crate::compaction::key_hash::KeyHasher;
    use crate::compaction::newest::NewestOffsets;
    use crate::compaction::offset_map::OffsetMap;
    use crate::producer_map::ProducerMap;

    fn header(base_offset: i64, epoch: i32) -> BatchHeader {
        let mut batch = BatchBuilder::new();
        batch.push(0, Some(b"key"), Some(b"value"), &[]);
        let bytes = batch.seal(&Seal::default()).expect("sealed").to_bytes();
        let header = BatchHeader::parse(&bytes).expect("a batch");
        BatchHeader { base_offset, partition_leader_epoch: epoch, ..header }
    }

    fn rules(last_offsets: Vec<i64>) -> Rules {
        Rules {
            map: OffsetMap::new(10, 0, KeyHasher::new([1, 2])),
            newest: NewestOffsets::new(0, 1000, 1 << 10),
            without_key: 0,
            latest: 999,
            now_ms: 0,
            age_ms: 0,
            delete_retention_ms: 0,
            producers: ProducerMap::default(),
            last_offsets,
            decompressed_bytes_max: 0,
        }
    }

    /// Ten batches of one record each, of which two are a run.
    fn runs() -> (Runs, u64) {
        let mut runs = Runs::new(1 << 10, 5);
        let bytes = header(0, 0).total_bytes() as u64;
        for offset in 0..10 {
            let epoch = i32::from(offset == 5);
            runs.add(&header(offset, epoch), offset as u64 * bytes);
        }
        (runs, bytes)
    }

    #[test]
    fn a_run_is_superseded_if_none_of_its_records_is_the_newest() {
        let mut rules = rules(vec![7]);
        rules.newest.replace(None, 3);
        let (mut runs, bytes) = runs();
        let mut superseded = Vec::new();
        for offset in 0..10 {
            let run = runs.superseded(&rules, offset..10, offset as u64 * bytes);
            superseded.extend(run.map(|run| (run.base_offset, run.next_offset, run.records)));
        }
        // 2 and 3: a newest record. 4 and 5: two leader epochs. 6 and 7: the last batch of a producer.
        assert_eq!(superseded, [(0, 2, 2), (8, 10, 2)]);
    }

    #[test]
    fn a_run_beyond_the_map_or_the_segment_is_read() {
        let (mut runs, bytes) = runs();
        let mut rules = rules(Vec::new());
        assert_eq!(runs.superseded(&rules, 0..1, 0), None, "it reaches beyond the segment");
        assert_eq!(runs.superseded(&rules, 0..10, bytes), None, "another position");
        rules.latest = 0;
        assert_eq!(runs.superseded(&rules, 0..10, 0), None, "its last key is not in the map");
        rules.latest = 1;
        assert_eq!(runs.superseded(&rules, 0..10, 0).map(|run| run.end), Some(2 * bytes));
    }

    #[test]
    fn runs_beyond_their_memory_are_not_kept() {
        let mut runs = Runs::new(2 * 2 * size_of::<Run>(), 0);
        let bytes = header(0, 0).total_bytes() as u64;
        for offset in 0..10 {
            runs.add(&header(offset, 0), offset as u64 * bytes);
        }
        assert!(runs.bytes() <= 4 * size_of::<Run>(), "{}", runs.bytes());
        let rules = rules(Vec::new());
        assert_eq!(runs.superseded(&rules, 0..10, 0).map(|run| run.next_offset), Some(1));
        assert_eq!(runs.superseded(&rules, 2..10, 2 * bytes), None);
    }
}
