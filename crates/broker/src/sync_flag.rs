//! The right to sync a partition: one task has it at a time, and one has it while an append waits for a sync.

use std::sync::atomic::{AtomicBool, Ordering};

/// The state of a partition's sync.
#[derive(Debug, Default)]
pub(crate) struct SyncFlag {
    /// True while a task syncs, or is about to.
    is_taken: AtomicBool,
    /// True after a sync could not open a file, also not when it was tried again.
    is_given_up: AtomicBool,
}

impl SyncFlag {
    /// Called after an append. Returns `true` if the caller must see to the sync; otherwise the task that has the flag does.
    pub(crate) fn begin(&self) -> bool {
        !self.is_taken.swap(true, Ordering::AcqRel)
    }

    /// Called after a sync. Returns `true` if the caller must sync again.
    ///
    /// `is_pending` looks for an append that waits, under the lock that appends take.
    pub(crate) fn end(&self, is_pending: impl FnOnce() -> bool) -> bool {
        self.is_taken.store(false, Ordering::Release);
        // An append between the sync and the store found the flag set and left its sync to this task.
        is_pending() && self.begin()
    }

    /// Called after [`SyncFlag::end`] by a task that has given up.
    pub(crate) fn give_up(&self) {
        self.is_given_up.store(true, Ordering::Release);
    }

    /// Returns `true` once after a task has given up: the caller must see to another sync.
    pub(crate) fn take_given_up(&self) -> bool {
        self.is_given_up.load(Ordering::Acquire) && self.is_given_up.swap(false, Ordering::AcqRel)
    }
}
