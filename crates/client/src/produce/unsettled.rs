//! The batches that are neither acknowledged nor failed, and the callers of `flush` that wait for them.

use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use crate::blocking;

/// The number of batches that are neither acknowledged nor failed.
#[derive(Debug)]
pub(crate) struct Unsettled {
    batches: AtomicUsize,
    /// Notified when no batch is left.
    settled: Notify,
}

impl Unsettled {
    pub(crate) fn new() -> Self {
        Self { batches: AtomicUsize::new(0), settled: Notify::new() }
    }

    pub(crate) fn batches(&self) -> usize {
        self.batches.load(Ordering::Acquire)
    }

    /// Counts one more batch.
    pub(crate) fn begin(&self) {
        self.batches.fetch_add(1, Ordering::AcqRel);
    }

    /// Counts one batch less. Returns `true` if none is left, and wakes all who wait for that.
    pub(crate) fn end(&self) -> bool {
        let is_last = self.batches.fetch_sub(1, Ordering::AcqRel) == 1;
        if is_last {
            self.settled.notify_waiters();
        }
        is_last
    }

    /// Waits until no batch is left. Cancel safe.
    pub(crate) async fn settled(&self) {
        loop {
            // Registered before the check, so that the end of a batch between check and wait is not lost.
            let mut settled = pin!(self.settled.notified());
            settled.as_mut().enable();
            if self.batches() == 0 {
                return;
            }
            settled.await;
        }
    }

    /// [`Unsettled::settled`] for threads without a runtime. Returns `false` after `timeout`.
    pub(crate) fn wait_settled(&self, timeout: Duration) -> bool {
        blocking::wait_until(timeout, &self.settled, || self.batches() == 0)
    }
}
