//! Makes a log durable without holding its lock: take a [`PendingSync`], run it on any thread, and report its result.

use std::sync::Arc;

use crate::config::Visible;
use crate::error::LogError;
use crate::log::Log;
use crate::segment::FileToSync;
use crate::storage::{File, Storage};
use crate::sync_turn::{SyncError, SyncTurn};
use crate::synced::SlotSync;
use crate::verified::Verified;

/// A sync that makes the log durable up to [`PendingSync::target`]. It owns its state.
#[derive(Debug)]
#[must_use = "nothing is durable before it has run and been reported"]
pub struct PendingSync {
    older: Vec<Arc<dyn File>>,
    /// The active segment's identity and file, unless only closed segments are synced.
    active: Option<(Arc<Verified>, FileToSync)>,
    names: Option<(Arc<dyn Storage>, Arc<str>)>,
    turn: Arc<SyncTurn>,
    /// The `synced` file, now and then: it says what the sync before this one made durable.
    note: Option<SlotSync>,
    target: i64,
    dir_changes: u64,
    generation: u64,
}

/// The result of a [`PendingSync`], for [`Log::sync_done`].
#[derive(Debug)]
#[must_use = "report it with `Log::sync_done`"]
pub struct Synced {
    target: i64,
    dir_changes: u64,
    generation: u64,
    /// The segment whose file is missing, if one is.
    result: Result<Option<Arc<Verified>>, SyncError>,
}

impl PendingSync {
    /// Returns the log end offset at the creation of this sync. It makes all records below that offset durable.
    pub fn target(&self) -> i64 {
        self.target
    }

    /// Syncs. Blocks until the disk has written the data; needs no lock of the log. Syncs of one log run one after the other, and
    /// fail after one that has failed.
    pub fn run(mut self) -> Synced {
        let result = self.turn.run(|| self.sync());
        if let Some(note) = self.note.take().filter(|_| result.is_ok()) {
            note.run();
        }
        Synced { target: self.target, dir_changes: self.dir_changes, generation: self.generation, result }
    }

    /// Returns the segment that was active if its file is missing.
    fn sync(&self) -> Result<Option<Arc<Verified>>, SyncError> {
        let (mut active, mut missing) = (None, None);
        if let Some((segment, file)) = &self.active {
            active = file.open().map_err(SyncError::NotOpened)?;
            missing = active.is_none().then(|| segment.clone());
        }
        for file in self.older.iter().chain(&active) {
            file.sync_data().map_err(SyncError::Failed)?;
        }
        if let Some((storage, dir)) = &self.names {
            storage.sync_dir(dir).map_err(SyncError::of_directory)?;
        }
        Ok(missing)
    }
}

impl Synced {
    /// Returns `true` if all records below the target are durable.
    pub fn is_ok(&self) -> bool {
        self.result.is_ok()
    }

    /// The target of the [`PendingSync`].
    pub fn target(&self) -> i64 {
        self.target
    }
}

impl Log {
    /// Returns the sync that makes all appended records durable; `None` if they are durable.
    ///
    /// Several syncs may be under way at the same time, and their results may be reported in any order.
    pub fn pending_sync(&self) -> Option<PendingSync> {
        let names = self.sync.dir_changes > self.sync.dir_synced;
        let data = self.sync.synced_offset < self.end_offset() || !self.sync.older.is_empty();
        if self.offline.is_some() || !(data || names) {
            return None;
        }
        let active = self.active();
        let file = active.file_to_sync(&self.storage, &self.dir);
        Some(self.sync_to(self.end_offset(), Some((active.verified.clone(), file))))
    }

    /// Returns the sync that makes the closed segments durable; `None` if they are durable.
    ///
    /// For a log whose appends are not synced one by one: run it after the log has started a segment. Opening the log
    /// again after a crash then scans one segment instead of all, and the files of the closed ones can be closed.
    pub fn pending_closed_sync(&self) -> Option<PendingSync> {
        let pending = self.has_unsynced_segments().then(|| self.sync_to(self.active().base_offset, None));
        pending.filter(|_| self.offline.is_none())
    }

    /// Returns `true` if closed segments are not durable yet.
    pub fn has_unsynced_segments(&self) -> bool {
        !self.sync.older.is_empty()
    }

    fn sync_to(&self, target: i64, active: Option<(Arc<Verified>, FileToSync)>) -> PendingSync {
        let names = self.sync.dir_changes > self.sync.dir_synced;
        PendingSync {
            older: self.sync.older.iter().map(|older| older.file.clone()).collect(),
            active,
            names: names.then(|| (self.storage.clone(), self.dir.clone())),
            turn: self.sync.turn.clone(),
            note: self.sync.note.as_ref().and_then(|note| note.begin_sync(self.sync.now_ms)),
            target,
            dir_changes: self.sync.dir_changes,
            generation: self.sync.generation,
        }
    }

    /// Returns `true` if `flush.messages` records or more are not durable. The caller syncs.
    #[inline]
    pub fn is_flush_due(&self) -> bool {
        self.end_offset() - self.sync.synced_offset >= self.config.flush_messages
    }

    /// Returns `true` if records have waited for a sync for `flush.ms` or more.
    pub fn is_flush_overdue(&self, now_ms: i64) -> bool {
        let flush_ms = self.config.flush_ms;
        // A wall clock that went back must not stop the flushes until it has caught up.
        let waited_ms = now_ms.saturating_sub(self.sync.unsynced_since_ms);
        self.sync.synced_offset < self.end_offset()
            && flush_ms != i64::MAX
            && !(0..flush_ms).contains(&waited_ms)
    }

    /// Applies the result of a sync and returns the synced offset.
    ///
    /// A failed sync takes the log offline: the kernel may have dropped the pages that it could not write, and no later
    /// sync would report that. Opening the log again determines which records are left.
    ///
    /// A sync that could not open a file is [`LogError::Io`]: nothing is lost and nothing more is durable, and the log stays online.
    /// Another sync may succeed.
    pub fn sync_done(&mut self, synced: Synced) -> Result<i64, LogError> {
        self.check_online()?;
        let missing = match synced.result {
            Ok(missing) => missing,
            Err(SyncError::NotOpened(source)) => return Err(self.failed("open a file for a sync", source)),
            Err(SyncError::Failed(error)) => {
                return Err(self.go_offline(format!("a sync failed: {error}")));
            }
        };
        if synced.generation != self.sync.generation {
            return Ok(self.sync.synced_offset);
        }
        // The file of a segment that was deleted or replaced meanwhile needs no sync. Another segment may have its base offset.
        let is_missing =
            |gone: &Arc<Verified>| self.segments.iter().any(|segment| Arc::ptr_eq(&segment.verified, gone));
        if missing.as_ref().is_some_and(is_missing) {
            return Err(self.go_offline("a sync failed: the file of a segment is missing".into()));
        }
        self.sync.synced_offset = self.sync.synced_offset.max(synced.target);
        // The records that came in during the sync are no older than that.
        self.sync.unsynced_since_ms = self.sync.now_ms;
        self.sync.dir_synced = self.sync.dir_synced.max(synced.dir_changes);
        self.sync.older.retain(|older| older.change > synced.dir_changes);
        // Before the records become visible: their loss must not go unnoticed.
        if let Some(Err(error)) = self.sync.note.as_ref().map(|note| note.write(self.promise())) {
            tracing::warn!(dir = &*self.dir, %error, "cannot write `synced`");
        }
        if self.config.visible == Visible::Synced {
            self.tail.advance_visible(self.sync.synced_offset);
        }
        self.advance_recovery_point();
        Ok(self.sync.synced_offset)
    }

    /// Syncs inline: for callers that may block.
    pub fn sync_now(&mut self) -> Result<i64, LogError> {
        self.check_online()?;
        match self.pending_sync() {
            Some(pending) => self.sync_done(pending.run()),
            None => Ok(self.sync.synced_offset),
        }
    }

    /// Once all closed segments are durable, recovery need not look at them.
    fn advance_recovery_point(&mut self) {
        let active = self.active().base_offset;
        if self.sync.recovery_point < active && self.sync.older.is_empty() {
            // If this is lost, recovery scans more; nothing else.
            if let Err(error) = self.store_recovery_point(active, false) {
                tracing::warn!(dir = &*self.dir, %error, "cannot write the recovery point");
            }
        }
    }
}
