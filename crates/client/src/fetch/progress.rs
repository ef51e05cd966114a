//! The fetched, read and committed offsets of an assigned partition. The polling thread and the engine share them.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::config::{GroupHabits, OffsetReset};
use crate::stats::topics::{AssignedOffsets, OffsetSource};
use crate::types::{OffsetAndMetadata, TopicPartition};

/// The value of an unknown offset.
const NONE: i64 = -1;
/// The value of an unknown leader epoch.
const NO_EPOCH: i32 = -1;

/// The progress of one partition within one assignment. A partition that is revoked and assigned again gets a new one,
/// and writes to the old one have no effect.
#[derive(Debug)]
pub(crate) struct PartitionProgress {
    pub(crate) at: TopicPartition,
    position: AtomicI64,
    /// The position before the first record for the application.
    start: AtomicI64,
    done: AtomicI64,
    /// The first generation whose records can count as processed.
    done_from: AtomicU64,
    /// The offset that the application stored with metadata; valid while `done` is the same offset.
    stored: Mutex<Option<OffsetAndMetadata>>,
    /// The epoch of the leader that wrote the last records given to the application.
    epoch: AtomicI32,
    /// The committed offset, until the application stores another one.
    committed: AtomicI64,
    last_committed: AtomicI64,
    /// The leader epoch of the last committed offset.
    committed_epoch: AtomicI32,
    log_start: AtomicI64,
    last_stable: AtomicI64,
    high_watermark: AtomicI64,
    end_reached: AtomicI64,
    generation: AtomicU64,
    /// The generation that a record which cannot be read has ended.
    stopped: AtomicU64,
    /// The last offsets without records for the application, after records that were not processed yet: from and to.
    skipped: (AtomicI64, AtomicI64),
    paused: AtomicBool,
    /// `auto.offset.reset` of this partition, if it differs from the client's.
    reset: OnceLock<OffsetReset>,
}

/// The bounds of a partition in the last fetch response; -1 if unknown.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Ends {
    pub(crate) log_start: i64,
    pub(crate) last_stable: i64,
    pub(crate) high_watermark: i64,
}

impl PartitionProgress {
    pub(crate) fn new(at: TopicPartition) -> Self {
        let none = || AtomicI64::new(NONE);
        Self {
            at,
            position: none(),
            start: none(),
            done: none(),
            done_from: AtomicU64::new(0),
            stored: Mutex::default(),
            epoch: AtomicI32::new(NO_EPOCH),
            committed: none(),
            last_committed: none(),
            committed_epoch: AtomicI32::new(NO_EPOCH),
            log_start: none(),
            last_stable: none(),
            high_watermark: none(),
            end_reached: none(),
            generation: AtomicU64::new(0),
            stopped: AtomicU64::new(u64::MAX),
            skipped: (none(), none()),
            paused: AtomicBool::new(false),
            reset: OnceLock::new(),
        }
    }

    /// The reset for a position that does not exist: this partition's, or the client's.
    pub(crate) fn reset(&self, default: OffsetReset) -> OffsetReset {
        self.reset.get().copied().unwrap_or(default)
    }

    /// Replaces the client's `auto.offset.reset` for this partition.
    pub(crate) fn set_reset(&self, reset: OffsetReset) {
        let _ = self.reset.set(reset);
    }

    /// The next offset for the application, if it is known.
    pub(crate) fn position(&self) -> Option<i64> {
        known(&self.position)
    }

    /// The same, if the application has got a record since the start or the last seek.
    pub(crate) fn consumed_position(&self) -> Option<i64> {
        self.position().filter(|position| *position != self.start.load(Ordering::Relaxed))
    }

    /// The application's first record is at `offset` or after it.
    pub(crate) fn begin_at(&self, offset: i64) {
        self.start.store(offset, Ordering::Relaxed);
        self.set_position(offset);
    }

    /// Records that the application got everything before `next`.
    #[inline]
    pub(crate) fn set_position(&self, next: i64) {
        self.position.store(next, Ordering::Relaxed);
    }

    /// The same, unless the position was moved after this generation: a poll may run during a seek.
    #[inline]
    pub(crate) fn set_position_in(&self, generation: u64, next: i64) {
        if generation == self.generation() {
            self.set_position(next);
        }
    }

    /// The offset after the last record that was processed.
    pub(crate) fn done(&self) -> Option<i64> {
        known(&self.done)
    }

    /// Records that everything before `next` was processed. A thread that reads it sees what the application did before.
    #[inline]
    pub(crate) fn set_done(&self, next: i64) {
        self.done.store(next, Ordering::Release);
    }

    /// The same, with the application's metadata for the commit. An offset below 0 stores nothing and removes what was stored, as
    /// in librdkafka: it is the position before the first record.
    pub(crate) fn store(&self, offset: OffsetAndMetadata) {
        let next = offset.offset;
        if next < 0 {
            *self.stored() = None;
            self.set_done(NONE);
            return;
        }
        *self.stored() = Some(offset);
        self.committed.store(NONE, Ordering::Relaxed);
        self.set_done(next);
    }

    /// Records that a record of this generation was processed, unless its offset has been forgotten.
    #[inline]
    pub(crate) fn set_done_in(&self, generation: u64, next: i64) {
        if generation >= self.done_from.load(Ordering::Acquire) {
            self.set_done(next);
        }
    }

    /// Forgets the processed and committed offsets, and the later ones of records that were read: they belong to other records
    /// now.
    pub(crate) fn forget_offsets(&self) {
        self.done_from.store(self.generation() + 1, Ordering::Release);
        *self.stored() = None;
        self.done.store(NONE, Ordering::Release);
        self.set_committed(NONE, None);
    }

    /// The offset to commit, if it is not committed yet. With librdkafka's habits, no offset before the committed one, which records
    /// have after a seek.
    pub(crate) fn uncommitted(&self, habits: GroupHabits) -> Option<OffsetAndMetadata> {
        let done = self.done()?;
        let stored = self.stored().clone().filter(|stored| stored.offset == done);
        let stored_epoch = stored.as_ref().and_then(|stored| stored.leader_epoch);
        let found = stored.unwrap_or_else(|| OffsetAndMetadata { leader_epoch: self.epoch(), ..done.into() });
        let committed_epoch = self.committed_epoch.load(Ordering::Relaxed);
        let is_due = match habits {
            // The application may have stored an offset of a leader before the one whose offset is committed.
            GroupHabits::Java => {
                done != self.committed.load(Ordering::Relaxed)
                    && stored_epoch.is_none_or(|epoch| epoch >= committed_epoch)
            }
            GroupHabits::Librdkafka => {
                let committed = self.last_committed.load(Ordering::Relaxed);
                // Without an epoch, the application stores an offset of the current leader.
                let epoch = found.leader_epoch.unwrap_or(committed_epoch);
                (epoch, done) > (committed_epoch, committed)
            }
        };
        is_due.then_some(found)
    }

    /// The epoch of the leader that wrote the last records given to the application, if it is known.
    pub(crate) fn epoch(&self) -> Option<i32> {
        Some(self.epoch.load(Ordering::Relaxed)).filter(|epoch| *epoch >= 0)
    }

    pub(crate) fn set_epoch(&self, epoch: i32) {
        self.epoch.store(epoch, Ordering::Relaxed);
    }

    fn stored(&self) -> MutexGuard<'_, Option<OffsetAndMetadata>> {
        self.stored.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the committed offset that was found at the start, unless a later commit is known: the lookup can end behind it.
    pub(crate) fn starts_at_committed(&self, offset: i64, leader_epoch: Option<i32>) {
        if self.last_committed.load(Ordering::Relaxed) == NONE {
            self.set_committed(offset, leader_epoch);
        }
    }

    pub(crate) fn set_committed(&self, offset: i64, leader_epoch: Option<i32>) {
        self.committed_epoch.store(leader_epoch.unwrap_or(NO_EPOCH), Ordering::Relaxed);
        self.last_committed.store(offset, Ordering::Relaxed);
        self.committed.store(offset, Ordering::Relaxed);
    }

    pub(crate) fn ends(&self) -> Ends {
        Ends {
            log_start: self.log_start.load(Ordering::Relaxed),
            last_stable: self.last_stable.load(Ordering::Relaxed),
            high_watermark: self.high_watermark.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn set_ends(&self, ends: Ends) {
        self.log_start.store(ends.log_start, Ordering::Relaxed);
        self.last_stable.store(ends.last_stable, Ordering::Relaxed);
        self.high_watermark.store(ends.high_watermark, Ordering::Relaxed);
    }

    /// Records that everything before `offset` was fetched, and that the partition ends there.
    pub(crate) fn set_end_reached(&self, offset: i64) {
        self.end_reached.store(offset, Ordering::Relaxed);
    }

    /// Rises with each seek, and at the end of the assignment: what was fetched before is void.
    #[inline]
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Returns `true` if no seek and no end of the assignment came after this generation. An unreadable record, which ends
    /// the reading, leaves the records before it valid.
    pub(crate) fn is_generation(&self, generation: u64) -> bool {
        let now = self.generation();
        now == generation
            || (now == generation.wrapping_add(1) && self.stopped.load(Ordering::Acquire) == generation)
    }

    /// Records that the offsets between two others have no records for the application.
    pub(crate) fn note_skipped(&self, from: i64, to: i64) {
        self.skipped.1.store(to, Ordering::Relaxed);
        self.skipped.0.store(from, Ordering::Release);
    }

    /// Returns the offset after the ones without records that begin at `next`, or `next`.
    pub(crate) fn after_skipped(&self, next: i64) -> i64 {
        let from = self.skipped.0.load(Ordering::Acquire);
        if from == next { self.skipped.1.load(Ordering::Relaxed).max(next) } else { next }
    }

    #[inline]
    pub(crate) fn is_paused(&self) -> bool {
        self.paused.load(Ordering::Relaxed)
    }

    pub(crate) fn set_paused(&self, paused: bool) {
        self.paused.store(paused, Ordering::Relaxed);
    }

    /// Begins a new generation: what was fetched before is void.
    pub(crate) fn next_generation(&self) -> u64 {
        self.position.store(NONE, Ordering::Relaxed);
        self.generation.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Ends a generation whose records from `next` on are fetched again. Records that were returned stay valid. Returns the new
    /// generation; `None` if the position was moved before.
    pub(crate) fn refetch_from(&self, generation: u64, next: i64) -> Option<u64> {
        let new = generation.wrapping_add(1);
        self.generation.compare_exchange(generation, new, Ordering::AcqRel, Ordering::Acquire).ok()?;
        self.stopped.store(generation, Ordering::Release);
        self.set_position_in(new, next);
        Some(new)
    }

    /// Ends the reading at a record that cannot be read: nothing follows until the application moves the position.
    pub(crate) fn stop(&self) {
        self.stopped.store(self.generation(), Ordering::Release);
        self.next_generation();
    }
}

impl OffsetSource for PartitionProgress {
    fn offsets(&self) -> AssignedOffsets {
        AssignedOffsets {
            position: self.position(),
            stored: self.done(),
            stored_leader_epoch: self.epoch.load(Ordering::Relaxed),
            committed: known(&self.committed),
            end_reached: known(&self.end_reached),
            last_stable: known(&self.last_stable),
        }
    }
}

fn known(offset: &AtomicI64) -> Option<i64> {
    Some(offset.load(Ordering::Acquire)).filter(|offset| *offset != NONE)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lookup at the start can end behind a commit: an offset of an earlier leader was due then.
    #[test]
    fn the_offset_found_at_the_start_does_not_replace_a_later_commit() {
        let progress = PartitionProgress::new(TopicPartition::new("orders", 0));
        let store = |offset: i64, epoch| {
            progress.store(OffsetAndMetadata { leader_epoch: Some(epoch), ..offset.into() });
            progress.uncommitted(GroupHabits::Librdkafka).map(|due| due.offset)
        };
        progress.starts_at_committed(3, Some(0));
        assert_eq!(store(2, 0), None, "it is before the start");
        assert_eq!(store(6, 1), Some(6));
        progress.set_committed(6, Some(1));
        progress.starts_at_committed(3, None);
        assert_eq!(store(7, 0), None, "epoch 0 came before epoch 1");
        assert_eq!(store(8, 1), Some(8));
    }
}
