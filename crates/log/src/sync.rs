//! Making a log durable without holding its lock: take a [`PendingSync`], run it anywhere, report what it said.

use std::io;
use std::sync::Arc;

use crate::config::Visible;
use crate::error::LogError;
use crate::log::Log;
use crate::storage::{File, Storage};
use crate::synced::SlotSync;

/// What has to be synced for the log to be durable up to [`PendingSync::target`]. Owns all it needs.
#[derive(Debug)]
#[must_use = "nothing is durable before it has run and been reported"]
pub struct PendingSync {
    older: Vec<Arc<dyn File>>,
    active: Arc<dyn File>,
    names: Option<(Arc<dyn Storage>, Arc<str>)>,
    /// The `synced` file, now and then: it says what the sync before this one made durable.
    note: Option<SlotSync>,
    target: i64,
    dir_changes: u64,
    generation: u64,
}

/// The result of a [`PendingSync`], for [`Log::sync_done`].
#[derive(Debug)]
#[must_use = "the log has to be told"]
pub struct Synced {
    target: i64,
    dir_changes: u64,
    generation: u64,
    result: io::Result<()>,
}

impl PendingSync {
    /// The end of the log when this was taken: everything below will be durable.
    pub fn target(&self) -> i64 {
        self.target
    }

    /// Syncs. Blocks for as long as the disk takes; needs no lock.
    pub fn run(mut self) -> Synced {
        let result = self.sync();
        if let Some(note) = self.note.take().filter(|_| result.is_ok()) {
            note.run();
        }
        Synced { target: self.target, dir_changes: self.dir_changes, generation: self.generation, result }
    }

    fn sync(&self) -> io::Result<()> {
        for file in &self.older {
            file.sync_data()?;
        }
        self.active.sync_data()?;
        if let Some((storage, dir)) = &self.names {
            storage.sync_dir(dir)?;
        }
        Ok(())
    }
}

impl Synced {
    /// Whether everything below the target is durable.
    pub fn is_ok(&self) -> bool {
        self.result.is_ok()
    }

    /// What [`PendingSync::target`] said.
    pub fn target(&self) -> i64 {
        self.target
    }
}

impl Log {
    /// What has to be synced so that all that was appended so far is durable; `None` when it is.
    ///
    /// Several may be under way at once, and they may be reported in any order.
    pub fn pending_sync(&self) -> Option<PendingSync> {
        let names = self.sync.dir_changes > self.sync.dir_synced;
        let data = self.sync.synced_offset < self.end_offset() || !self.sync.older.is_empty();
        if self.offline.is_some() || !(data || names) {
            return None;
        }
        Some(PendingSync {
            older: self.sync.older.iter().map(|older| older.file.clone()).collect(),
            active: self.active().log().clone(),
            names: names.then(|| (self.storage.clone(), self.dir.clone())),
            note: self.sync.note.as_ref().and_then(|note| note.begin_sync(self.sync.now_ms)),
            target: self.end_offset(),
            dir_changes: self.sync.dir_changes,
            generation: self.sync.generation,
        })
    }

    /// Takes the result of a sync; returns the synced offset.
    ///
    /// A sync that failed takes the log offline: the kernel may have dropped what it could not write, and no later sync
    /// would tell. Opening the log anew finds out what is left.
    pub fn sync_done(&mut self, synced: Synced) -> Result<i64, LogError> {
        self.check_online()?;
        if let Err(error) = synced.result {
            return Err(self.go_offline(format!("a sync failed: {error}")));
        }
        if synced.generation != self.sync.generation {
            return Ok(self.sync.synced_offset);
        }
        self.sync.synced_offset = self.sync.synced_offset.max(synced.target);
        self.sync.dir_synced = self.sync.dir_synced.max(synced.dir_changes);
        self.sync.older.retain(|older| older.change > synced.dir_changes);
        // Before anyone is told: a loss of these records must not go unnoticed.
        if let Some(Err(error)) = self.sync.note.as_ref().map(|note| note.write(self.promise())) {
            tracing::warn!(dir = &*self.dir, %error, "cannot note what is synced");
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
                tracing::warn!(dir = &*self.dir, %error, "cannot note the recovery point");
            }
        }
    }
}
