//! The order of the syncs of one log: one after the other, and none after one that has failed.

use std::io;
use std::sync::{Mutex, PoisonError};

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
    pub(crate) fn run(&self, sync: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        if *failed {
            return Err(io::Error::other("an earlier sync of the log has failed"));
        }
        let result = sync();
        *failed = result.is_err();
        result
    }
}
