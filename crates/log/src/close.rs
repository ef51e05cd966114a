//! Closing a log cleanly, and deleting one.

use std::io;

use crate::checkpoint::{self, CleanMark};
use crate::error::LogError;
use crate::log::Log;
use crate::storage::Storage;
use crate::sync_turn::SyncError;

impl Log {
    /// Makes everything durable and marks the log as closed cleanly, so that opening it need not scan.
    pub fn close(mut self) -> Result<(), LogError> {
        self.shut()
    }

    /// [`Log::close`] for a log that is still shared: later calls fail because it is closed, also after an error.
    pub fn shut(&mut self) -> Result<(), LogError> {
        self.check_online()?;
        self.tail.close();
        if self.marked_clean {
            self.renew_snapshot();
        } else if let Err(source) = self.close_files() {
            // Half of it was done, and readers were sent away: an append would have neither a sync nor a reader.
            let _ = self.go_offline(format!("closing it failed: {source}"));
            return Err(self.failed("close", source));
        }
        self.pause_files();
        self.offline = Some("it was closed".into());
        Ok(())
    }

    /// Writes the producers of a log without appends since its last close again, if they have aged: those that have expired must not come
    /// back, and the others must not be younger.
    fn renew_snapshot(&mut self) {
        if !self.producers.is_snapshot_stale(self.config.producer_expiration_ms) {
            return;
        }
        if let Err(error) = self.write_snapshot(self.end_offset(), true) {
            // The one that is there has the same producers, with other ages.
            tracing::warn!(dir = &*self.dir, %error, "cannot write a snapshot of the producers");
        }
    }

    fn close_files(&mut self) -> io::Result<()> {
        let storage = self.storage.clone();
        // The mark of a clean close has the segments as they are.
        self.cancel_replacement()?;
        self.open_active()?;
        let last = self.segments.len() - 1;
        self.segments[last].finish(&*storage)?;
        let active = self.active();
        if let Some(file) = active.aborted.finish(&*storage, &self.dir, active.base_offset)? {
            file.sync_data()?;
        }
        self.sync_everything()?;
        let end = self.end_offset();
        self.write_snapshot(end, true)?;
        self.epochs.store(&*storage, &self.dir)?.sync_data()?;
        storage.sync_dir(&self.dir)?;
        self.store_recovery_point(self.active().base_offset, false)?;
        self.sync.synced_offset = end;
        if let Some(note) = &self.sync.note {
            note.store(self.promise())?;
        }
        let segments = self.segments.iter().map(|segment| (segment.base_offset, segment.size)).collect();
        let mark = CleanMark { segments, end }.encode();
        checkpoint::store(&*storage, &self.dir, checkpoint::CLEAN_SHUTDOWN, &mark)
    }

    /// Syncs the files of all segments that may not be durable, and the directory. Fails after a sync that has failed, also if that
    /// was not reported yet.
    pub(crate) fn sync_everything(&self) -> io::Result<()> {
        let older = self.sync.older.iter().map(|older| older.file.clone());
        let files = older.chain(self.active().open_files());
        let synced = self.sync.turn.run(|| {
            for file in files {
                file.sync_data().map_err(SyncError::Failed)?;
            }
            self.storage.sync_dir(&self.dir).map_err(SyncError::of_directory)
        });
        synced.map_err(|error| match error {
            SyncError::NotOpened(error) | SyncError::Failed(error) => error,
        })
    }

    /// Takes a log offline whose directory is about to be removed while others still hold the log. No later call changes a file: the
    /// directory may be that of another log by then.
    pub fn note_deleted(&mut self) {
        self.leave("it was deleted");
    }

    /// Takes a log offline that the next start may delete: that was recorded, and the record may be lost. Its files stay.
    pub fn note_half_deleted(&mut self) {
        self.leave("its deletion failed: the next start deletes it, or serves it again");
    }

    fn leave(&mut self, reason: &str) {
        self.tail.close();
        self.cache.clear();
        self.clear_ring();
        self.offline = Some(reason.into());
    }

    /// Removes the log with all its files, and durably so. After an error some may be left: call
    /// [`Log::remove`] with the same directory.
    pub fn delete(self) -> Result<(), LogError> {
        self.tail.close();
        let (storage, dir) = (self.storage.clone(), self.dir.clone());
        drop(self);
        Self::remove(&*storage, &dir)
    }

    /// Removes whatever is left of a log that is not open.
    pub fn remove(storage: &dyn Storage, dir: &str) -> Result<(), LogError> {
        let remove = || -> io::Result<()> {
            let entries = match storage.list(dir) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                entries => entries?,
            };
            for entry in entries {
                storage.remove(&format!("{dir}/{}", entry.name))?;
            }
            storage.remove_dir(dir)?;
            storage.sync_dir(dir.rfind('/').map_or("", |at| &dir[..at]))
        };
        remove().map_err(|source| LogError::Io { dir: dir.to_owned(), doing: "remove it".to_owned(), source })
    }
}
