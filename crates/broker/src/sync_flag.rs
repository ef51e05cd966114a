//! The right to sync a partition: one task has it at a time, and one has it while an append waits for a sync.

use std::sync::atomic::{AtomicBool, Ordering};

/// True while a task syncs, or is about to.
#[derive(Debug, Default)]
pub(crate) struct SyncFlag(AtomicBool);

impl SyncFlag {
    /// Called after an append. Returns `true` if the caller must see to the sync; otherwise the task that has the flag does.
    pub(crate) fn begin(&self) -> bool {
        !self.0.swap(true, Ordering::AcqRel)
    }

    /// Called after a sync. Returns `true` if the caller must sync again.
    ///
    /// `is_pending` looks for an append that waits, under the lock that appends take.
    pub(crate) fn end(&self, is_pending: impl FnOnce() -> bool) -> bool {
        self.0.store(false, Ordering::Release);
        // An append between the sync and the store found the flag set and left its sync to this task.
        is_pending() && self.begin()
    }
}
