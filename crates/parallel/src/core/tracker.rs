//! Tracks the in-flight offsets of a partition, and the offset up to which all are done.

use std::collections::VecDeque;

use crate::deliberate::commits_highest;

/// Maximum distance between the first unfinished offset and the last one taken. It bounds the memory, at one bit per
/// offset.
pub(crate) const OFFSETS_MAX: i64 = 1 << 20;

const WORDS_MIN: usize = 16;

/// Maximum number of leader epochs between the first unfinished record and the last. The oldest are dropped first.
const EPOCHS_MAX: usize = 16;

/// An offset to commit with its leader epoch.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Committable {
    pub(crate) offset: i64,
    /// The epoch of the leader that wrote the record before this offset.
    pub(crate) leader_epoch: Option<i32>,
}

/// A ring of bits, one for each offset from the first unfinished one. A bit is set while its record is in flight.
/// Offsets without a record (compaction, transaction markers) are set only in ranges that were taken with them.
#[derive(Debug)]
pub(crate) struct Tracker {
    /// Everything before this offset is done.
    finished: i64,
    /// The offset after the last one taken.
    taken: i64,
    /// The offset after the last finished one.
    finished_end: i64,
    words: Vec<u64>,
    /// First offset and leader epoch, in order.
    epochs: VecDeque<(i64, i32)>,
}

impl Tracker {
    /// Starts with nothing in flight and everything before `start` done.
    pub(crate) fn new(start: i64) -> Self {
        Self {
            finished: start,
            taken: start,
            finished_end: start,
            words: vec![0; WORDS_MIN],
            epochs: VecDeque::new(),
        }
    }

    pub(crate) const fn is_idle(&self) -> bool {
        self.finished == self.taken
    }

    /// The offset that holds back the commit.
    pub(crate) fn blocking(&self) -> Option<i64> {
        (!self.is_idle()).then_some(self.finished)
    }

    /// The offset after the last finished one. Unfinished offsets before it are gaps.
    pub(crate) const fn finished_end(&self) -> i64 {
        self.finished_end
    }

    /// `true` if the offsets `from..next` fit into the window now.
    pub(crate) const fn has_room(&self, from: i64, next: i64) -> bool {
        let first = if self.is_idle() { from } else { self.finished };
        next - first <= OFFSETS_MAX - 64
    }

    /// Marks the offsets `from..next` as in flight. There are no records between the last one taken and `from`.
    ///
    /// A range without offsets has no records either: a damaged offset can make one, with `check.crcs=false`.
    pub(crate) fn take_range(&mut self, from: i64, next: i64) {
        if next <= from {
            return;
        }
        self.make_room(from, next);
        self.in_words(from, next, |word, mask| *word |= mask);
    }

    /// Marks one offset as in flight.
    #[inline]
    pub(crate) fn take(&mut self, offset: i64) {
        self.make_room(offset, offset + 1);
        let (word, bit) = self.place(offset);
        self.words[word] |= bit;
    }

    /// Advances over the offsets before `next`, which have no records.
    pub(crate) fn pass(&mut self, next: i64) {
        if self.is_idle() {
            self.finished = self.finished.max(next);
        }
        self.taken = self.taken.max(next);
    }

    /// Records the epoch of the leader that wrote the records from `from`.
    pub(crate) fn note_epoch(&mut self, from: i64, epoch: Option<i32>) {
        let Some(epoch) = epoch else { return };
        if self.epochs.back().is_none_or(|(_, last)| *last != epoch) {
            self.epochs.push_back((from, epoch));
            if self.epochs.len() > EPOCHS_MAX {
                self.epochs.pop_front();
            }
        }
    }

    /// Finishes a range of offsets. Returns `true` if the finished prefix has grown.
    pub(crate) fn finish_range(&mut self, from: i64, next: i64) -> bool {
        let last = next.min(self.taken);
        if from.max(self.finished) < last {
            self.finished_end = self.finished_end.max(last);
        }
        self.clear_range(from, next)
    }

    /// Removes taken offsets that turned out to have no records. Returns `true` if the finished prefix has grown.
    pub(crate) fn clear_range(&mut self, from: i64, next: i64) -> bool {
        let (from, next) = (from.max(self.finished), next.min(self.taken));
        if from >= next {
            return false;
        }
        self.in_words(from, next, |word, mask| *word &= !mask);
        from == self.finished && self.advance()
    }

    /// Finishes one offset. Returns `true` if the finished prefix has grown.
    #[inline]
    pub(crate) fn finish(&mut self, offset: i64) -> bool {
        if offset < self.finished || offset >= self.taken {
            return false;
        }
        let (word, bit) = self.place(offset);
        self.words[word] &= !bit;
        self.finished_end = self.finished_end.max(offset + 1);
        offset == self.finished && self.advance()
    }

    /// The end of the contiguous finished prefix and its leader epoch.
    pub(crate) fn committable(&mut self) -> Committable {
        let offset = if commits_highest() { self.finished_end } else { self.finished };
        while self.epochs.get(1).is_some_and(|(from, _)| *from < offset) {
            self.epochs.pop_front();
        }
        let before = self.epochs.front().filter(|(from, _)| *from < offset);
        Committable { offset, leader_epoch: before.map(|(_, epoch)| *epoch) }
    }

    fn make_room(&mut self, from: i64, next: i64) {
        assert!(from >= self.taken && next > from, "taken up to {}, now {from} to {next}", self.taken);
        assert!(self.has_room(from, next), "{next} is too far from {}", self.finished);
        if self.is_idle() {
            self.finished = from;
        }
        self.taken = next;
        let span = (next - (self.finished & !63)) as usize;
        if span > self.words.len() * 64 {
            self.grow(span);
        }
    }

    #[cold]
    fn grow(&mut self, span: usize) {
        let words = span.div_ceil(64).next_power_of_two();
        let mut grown = vec![0; words];
        let first = self.finished >> 6;
        for word in first..first + self.words.len() as i64 {
            grown[word as usize & (words - 1)] = self.words[word as usize & (self.words.len() - 1)];
        }
        self.words = grown;
    }

    /// Advances the prefix over everything that is done.
    fn advance(&mut self) -> bool {
        let before = self.finished;
        while self.finished < self.taken {
            let (word, bit) = self.place(self.finished);
            let pending = self.words[word] & !(bit - 1);
            if pending != 0 {
                self.finished = (self.finished & !63) + i64::from(pending.trailing_zeros());
                break;
            }
            self.finished = ((self.finished & !63) + 64).min(self.taken);
        }
        self.finished > before
    }

    #[inline]
    fn place(&self, offset: i64) -> (usize, u64) {
        ((offset >> 6) as usize & (self.words.len() - 1), 1 << (offset & 63))
    }

    fn in_words(&mut self, from: i64, next: i64, mut change: impl FnMut(&mut u64, u64)) {
        let mut at = from;
        while at < next {
            let end = ((at & !63) + 64).min(next);
            let (word, _) = self.place(at);
            let mask = (u64::MAX << (at & 63)) & (u64::MAX >> (63 - ((end - 1) & 63)));
            change(&mut self.words[word], mask);
            at = end;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_prefix_ends_before_the_first_unfinished_record() {
        let mut tracker = Tracker::new(10);
        tracker.take_range(10, 20);
        assert!(!tracker.finish_range(12, 20));
        assert_eq!((tracker.committable().offset, tracker.blocking()), (10, Some(10)));
        assert!(tracker.finish(10));
        assert_eq!(tracker.committable().offset, 11);
        assert!(tracker.finish(11));
        assert_eq!((tracker.committable().offset, tracker.blocking()), (20, None));
    }

    /// Damaged offsets ended the processor by a panic.
    #[test]
    fn a_range_without_offsets_leaves_nothing_in_flight() {
        let mut tracker = Tracker::new(10);
        tracker.take_range(10, 20);
        tracker.take_range(20, 20);
        assert!(!tracker.finish_range(20, 20));
        assert!(tracker.finish_range(10, 20));
        assert_eq!((tracker.committable().offset, tracker.blocking()), (20, None));
    }

    #[test]
    fn cleared_offsets_end_no_prefix_and_count_as_no_finished_record() {
        let mut tracker = Tracker::new(0);
        tracker.take_range(0, 10);
        assert!(!tracker.clear_range(5, 10));
        assert_eq!(tracker.finished_end(), 0, "no record is finished");
        assert!(tracker.finish_range(0, 5));
        assert_eq!((tracker.committable().offset, tracker.finished_end()), (10, 5));
    }

    #[test]
    fn gaps_are_finished_with_the_records_before_them() {
        let mut tracker = Tracker::new(0);
        for offset in [3, 7, 500_000] {
            tracker.take(offset);
        }
        tracker.pass(500_010);
        assert!(!tracker.finish(7));
        assert_eq!(tracker.committable().offset, 3, "3 is in flight, and no record precedes it");
        assert!(!tracker.has_room(500_010, 3 + OFFSETS_MAX));
        assert!(tracker.finish(3));
        assert_eq!(tracker.committable().offset, 500_000);
        assert!(tracker.finish(500_000));
        assert_eq!(tracker.committable().offset, 500_010);
        tracker.take(1 << 40);
        assert_eq!(tracker.blocking(), Some(1 << 40), "however far away the next record is");
    }

    #[test]
    fn an_offset_has_the_epoch_of_the_record_before_it() {
        let mut tracker = Tracker::new(0);
        for (from, epoch) in [(0, 4), (10, 4), (20, 7)] {
            tracker.note_epoch(from, Some(epoch));
            tracker.take_range(from, from + 10);
        }
        let at = |offset, leader_epoch| Committable { offset, leader_epoch };
        assert_eq!(tracker.committable(), at(0, None));
        tracker.finish_range(0, 20);
        assert_eq!(tracker.committable(), at(20, Some(4)));
        tracker.finish(20);
        assert_eq!(tracker.committable(), at(21, Some(7)));
    }

    #[test]
    fn the_tracker_agrees_with_a_set_of_offsets() {
        let mut rng = fastrand::Rng::with_seed(7);
        let mut tracker = Tracker::new(0);
        let (mut pending, mut next) = (BTreeSet::new(), 0);
        for _ in 0..200_000 {
            if rng.u8(..3) == 0 && pending.len() < 3000 {
                next += if rng.u8(..20) == 0 { rng.i64(0..5000) } else { 0 };
                let count = rng.i64(1..200);
                if tracker.has_room(next, next + count) {
                    tracker.take_range(next, next + count);
                    pending.extend(next..next + count);
                    next += count;
                }
            } else if let Some(first) = pending.first().copied() {
                let from = first + rng.i64(0..400);
                let until = from + rng.i64(1..100);
                if rng.bool() {
                    tracker.finish_range(from, until);
                    pending.retain(|offset| !(from..until).contains(offset));
                } else {
                    tracker.finish(first);
                    pending.remove(&first);
                }
            }
            let first = pending.first().copied();
            assert_eq!(tracker.committable().offset, first.unwrap_or(tracker.taken));
        }
        assert!(tracker.words.len() as i64 * 64 <= OFFSETS_MAX);
    }
}
