//! Records that the caller counts as processed: those of an array that is filled in several steps.

use std::sync::Arc;

use super::TopicPartition;
use crate::fetch::progress::PartitionProgress;

/// Records of one partition from [`Consumer::try_hold_records`](super::Consumer::try_hold_records): adjacent ones that no
/// seek, revocation or new assignment separates.
///
/// They do not count as processed until [`HeldRecords::finish`]. Dropping it leaves the position after the records, but
/// the next commit does not contain them.
#[derive(Debug)]
pub struct HeldRecords {
    progress: Arc<PartitionProgress>,
    generation: u64,
    first: i64,
    next: i64,
    count: usize,
    stores: bool,
}

impl HeldRecords {
    pub(super) fn new(
        (progress, generation): (&Arc<PartitionProgress>, u64),
        (first, next): (i64, i64),
        count: usize,
        stores: bool,
    ) -> Self {
        Self { progress: progress.clone(), generation, first, next, count, stores }
    }

    /// The partition.
    pub fn at(&self) -> &TopicPartition {
        &self.progress.at
    }

    /// The offset of the first record.
    pub fn first_offset(&self) -> i64 {
        self.first
    }

    /// Returns how many records are held.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns `false` if the partition was revoked or assigned again since, or if the application moved its position.
    /// Then the records are void: they are read again by the partition's owner, or the application does not want them.
    pub fn is_current(&self) -> bool {
        self.progress.is_generation(self.generation)
    }

    /// Returns `true` if the partition is paused.
    pub fn is_paused(&self) -> bool {
        self.progress.is_paused()
    }

    /// Adds records that follow these. Returns `false` if they do not.
    pub fn extend(&mut self, later: &Self) -> bool {
        let follows = Arc::ptr_eq(&self.progress, &later.progress) && self.generation == later.generation;
        if follows {
            self.next = later.next;
            self.count += later.count;
        }
        follows
    }

    /// Counts the records as processed, unless `enable.auto.offset.store` is off or they are void.
    pub fn finish(&self) {
        if self.stores && self.is_current() {
            self.progress.set_done(self.progress.after_skipped(self.next));
        }
    }
}
