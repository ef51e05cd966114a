//! A work item: records that one worker handles one by one, or as one batch.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicI64, Ordering};

use super::breaker::FailureRuns;

/// The offsets of a work item's records.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Offsets {
    /// All offsets from the first up to, but not including, the second.
    Range(i64, i64),
    /// These offsets, in increasing order.
    Each(Vec<i64>),
}

impl Offsets {
    /// The first offset; the largest integer if there is none.
    pub(crate) fn first(&self) -> i64 {
        match self {
            Self::Range(from, _) => *from,
            Self::Each(offsets) => offsets.first().copied().unwrap_or(i64::MAX),
        }
    }

    /// All offsets.
    pub(crate) fn each(&self) -> impl Iterator<Item = i64> + '_ {
        let (range, each) = match self {
            Self::Range(from, next) => (*from..*next, &[][..]),
            Self::Each(offsets) => (0..0, &offsets[..]),
        };
        range.chain(each.iter().copied())
    }
}

/// A work item.
#[derive(Debug)]
pub(crate) struct Work<P> {
    pub(crate) assignment: AssignmentId,
    /// Unique number that increases with time; see [`Core::age`](super::Core::age).
    pub(crate) age: u64,
    /// The lane whose order it keeps, if any.
    pub(crate) lane: Option<u32>,
    pub(crate) offsets: Offsets,
    pub(crate) size: Size,
    /// Failures of its first record, or of the whole item if it is a batch.
    pub(crate) failures: u32,
    pub(crate) payload: P,
}

/// A partition in one of its assignments.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct AssignmentId {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

/// The offset from which a partition's records are not started.
#[derive(Debug)]
pub(crate) struct StopOffset(AtomicI64);

impl StopOffset {
    /// All records may be started.
    pub(crate) const fn unlimited() -> Self {
        Self(AtomicI64::new(i64::MAX))
    }

    pub(crate) fn set(&self, offset: i64) {
        self.0.store(offset, Ordering::Release);
    }

    /// `true` if the record at `offset` must not be started.
    pub(crate) fn stops(&self, offset: i64) -> bool {
        offset >= self.0.load(Ordering::Acquire)
    }
}

/// The amounts that count against the limits.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Size {
    pub(crate) records: usize,
    pub(crate) bytes: usize,
}

impl Size {
    /// An estimate for some of these records, which assumes records of equal size.
    pub(crate) fn part(self, records: usize) -> Self {
        Self { records, bytes: self.bytes / self.records.max(1) * records }
    }

    /// The size of `done` records: all that the other parts of their work item leave of its size. Estimates of these parts are
    /// lowered where they exceed it, so that each record and each byte is removed from the limits once.
    pub(crate) fn without<'a, P: 'a>(
        self,
        done: usize,
        parts: impl Iterator<Item = &'a mut Work<P>>,
    ) -> Self {
        let mut left = self;
        for part in parts {
            part.size.records = part.size.records.min(left.records.saturating_sub(done));
            part.size.bytes = part.size.bytes.min(left.bytes);
            left -= part.size;
        }
        left
    }
}

impl std::ops::AddAssign for Size {
    fn add_assign(&mut self, other: Self) {
        self.records += other.records;
        self.bytes += other.bytes;
    }
}

impl std::ops::SubAssign for Size {
    fn sub_assign(&mut self, other: Self) {
        self.records = self.records.saturating_sub(other.records);
        self.bytes = self.bytes.saturating_sub(other.bytes);
    }
}

/// The result of a work item.
#[derive(Debug)]
pub(crate) struct Outcome<P> {
    pub(crate) assignment: AssignmentId,
    /// The number of the work item.
    pub(crate) age: u64,
    pub(crate) lane: Option<u32>,
    pub(crate) offsets: Offsets,
    /// The records from this offset were not handled.
    pub(crate) until: i64,
    /// Offsets of all records that are not done, in increasing order: those of `failed`, `held` and `rest`. They are finished
    /// separately. All other offsets of a range that is not done have no record.
    pub(crate) open: Vec<i64>,
    /// The records that are done.
    pub(crate) done: Size,
    pub(crate) runs: FailureRuns,
    /// `true` if the done records count only after their outputs are written: see
    /// [`Core::settle`](super::Core::settle).
    pub(crate) deferred: bool,
    /// Failed work, each with one more failure, for which no lane waits.
    pub(crate) failed: Vec<Work<P>>,
    /// A failed record, with one more failure, for which its lane waits.
    pub(crate) held: Option<Work<P>>,
    /// Records that were not handled.
    pub(crate) rest: Option<Work<P>>,
    /// The total handling time.
    pub(crate) took: std::time::Duration,
}

#[cfg(test)]
impl<P> Outcome<P> {
    /// The report of a work item whose records were all handled.
    pub(crate) fn handled(work: Work<P>) -> Self {
        let Work { assignment, age, lane, offsets, size, .. } = work;
        Self {
            assignment,
            age,
            lane,
            offsets,
            until: i64::MAX,
            open: Vec::new(),
            done: size,
            runs: FailureRuns::default(),
            deferred: false,
            failed: Vec::new(),
            held: None,
            rest: None,
            took: std::time::Duration::ZERO,
        }
    }
}

/// Records whose handlers have succeeded and that are done once a write is acknowledged.
#[derive(Debug)]
pub(crate) struct PendingRecords {
    pub(crate) assignment: AssignmentId,
    pub(crate) offsets: Offsets,
    pub(crate) until: i64,
    pub(crate) except: Vec<i64>,
    pub(crate) size: Size,
    /// `true` if the records are given up and kept nowhere: a share group rejects them.
    pub(crate) rejected: bool,
}

impl PendingRecords {
    /// The offsets of the records, in ranges.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = RangeInclusive<i64>> + '_ {
        let whole = match &self.offsets {
            Offsets::Range(from, next) if self.except.is_empty() => Some(*from..=self.until.min(*next) - 1),
            _ => None,
        };
        let is_whole = whole.is_some();
        let is_done = move |offset: &i64| {
            !is_whole && *offset < self.until && self.except.binary_search(offset).is_err()
        };
        let each = self.offsets.each().filter(is_done).map(|offset| offset..=offset);
        whole.into_iter().filter(|range| !range.is_empty()).chain(each)
    }
}
