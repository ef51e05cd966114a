//! The order of the syncs of one log: one after the other, and none after one that has failed.

use std::io;
use std::sync::{Mutex, PoisonError};

/// The reason why a sync made nothing durable.
#[derive(Debug)]
pub(crate) enum SyncError {
    /// A file or directory could not be opened, so that nothing is lost: another sync may succeed.
    NotOpened(io::Error),
    /// The kernel may have dropped the pages that it could not write.
    Failed(io::Error),
}

impl SyncError {
    /// The error of [`Storage::sync_dir`](crate::storage::Storage::sync_dir), which opens the directory: only that needs a file
    /// descriptor.
    pub(crate) fn of_directory(error: io::Error) -> Self {
        match rustix::io::Errno::from_io_error(&error) {
            Some(rustix::io::Errno::MFILE | rustix::io::Errno::NFILE) => Self::NotOpened(error),
            _ => Self::Failed(error),
        }
    }
}

/// Runs the syncs of one log one after the other.
///
/// Linux reports a failed write once for each open file. A second sync of the same file succeeds although its bytes are lost.
#[derive(Debug, Default)]
pub(crate) struct SyncTurn {
    /// `true` after a sync that has failed. Locked while files are synced.
    failed: Mutex<bool>,
}

impl SyncTurn {
    /// Syncs files. Blocks for the sync that is under way. Fails at once after one that has failed.
    pub(crate) fn run<T>(&self, sync: impl FnOnce() -> Result<T, SyncError>) -> Result<T, SyncError> {
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        if *failed {
            return Err(SyncError::Failed(io::Error::other("an earlier sync of the log has failed")));
        }
        let result = sync();
        *failed = matches!(result, Err(SyncError::Failed(_)));
        result
    }
}
