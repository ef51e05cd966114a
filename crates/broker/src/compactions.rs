//! The end of a compaction that runs on another thread: a broker that stops waits for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::{Mutex, OwnedMutexGuard};

/// The compaction that is under way, for those who wait for its end.
#[derive(Debug, Default)]
pub(crate) struct Compactions {
    is_stopping: AtomicBool,
    /// Held by the thread that compacts.
    running: Arc<Mutex<()>>,
}

impl Compactions {
    /// Waits for the end of the compaction before. The thread that compacts holds the guard.
    pub(crate) async fn begin(&self) -> OwnedMutexGuard<()> {
        self.running.clone().lock_owned().await
    }

    /// Returns `true` if compactions have to stop.
    pub(crate) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Acquire)
    }

    /// Stops the compaction that is under way, and all later ones.
    pub(crate) fn stop(&self) {
        self.is_stopping.store(true, Ordering::Release);
    }

    /// Waits for the end of a compaction that was stopped. After that no thread writes to the logs for it.
    pub(crate) async fn stopped(&self) {
        drop(self.running.lock().await);
    }
}
