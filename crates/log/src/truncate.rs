//! Truncation: removing the end of a log.

use std::io;

use crate::bad_range::BadRange;
use crate::error::LogError;
use crate::log::{Log, remove_segment};
use crate::synced::Note;

impl Log {
    /// Removes all batches that reach `offset` or above, and durably so.
    pub fn truncate_to(&mut self, offset: i64, now_ms: i64) -> Result<(), LogError> {
        self.check_online()?;
        let (start, end) = (self.start_offset, self.end_offset());
        if offset < start || offset > end {
            return Err(LogError::OutOfRange { dir: self.dir.to_string(), offset, start, end });
        }
        if offset == end {
            return Ok(());
        }
        self.cache.clear();
        self.clear_ring();
        self.sync.generation += 1;
        if let Err(error) = self.promise_less(offset) {
            return Err(self.failed("take back what was synced", error));
        }
        if let Err(error) = self.cancel_replacement().and_then(|()| self.truncate_files(offset, now_ms)) {
            // Half of the files may be gone: only recovery can find out what is left.
            return Err(self.go_offline(format!("a truncation failed half-way: {error}")));
        }
        self.sync.synced_offset = self.sync.synced_offset.min(self.end_offset());
        self.tail.cut(self.end_offset());
        Ok(())
    }

    fn truncate_files(&mut self, offset: i64, now_ms: i64) -> io::Result<()> {
        self.drop_clean_mark(true)?;
        let mut number = self.segment_of(offset);
        if self.sync.recovery_point > self.segments[number].base_offset {
            self.store_recovery_point(self.segments[number].base_offset, true)?;
        }
        let goes = self.segments.split_off(number + 1);
        for segment in goes.iter().rev() {
            self.sync.older.retain(|older| older.segment != segment.base_offset);
            remove_segment(&*self.storage, &self.dir, segment.base_offset)?;
        }
        let count = |log: &Self| log.bad.len() + log.gaps.len() + log.restored.len();
        let known = count(self);
        let stays = |bad: &BadRange| bad.next_offset <= offset && bad.offset < offset;
        self.bad.retain(stays);
        self.gaps.retain(stays);
        self.restored.retain(stays);
        self.open_segment(number).map_err(|(error, _)| error)?;
        let Ok(position) = self.segments[number].view(&self.bad).locate(offset) else {
            return Err(io::Error::other("the segment is damaged"));
        };
        if position.is_some_and(|(_, header)| header.base_offset < self.start_offset) {
            self.start_anew(now_ms)?;
            number = 0;
        } else if let Some((position, header)) = position {
            self.sync.older.retain(|older| older.segment != self.segments[number].base_offset);
            // The segment may end earlier now: its largest timestamp must be found again.
            self.segments[number].truncate(position, header.base_offset)?;
            self.segments[number].rebuild(
                &*self.storage,
                &self.dir,
                self.config.index_interval_bytes,
                &self.bad,
            )?;
        }
        self.truncate_transaction_index(number)?;
        if count(self) < known {
            // The positions will hold other batches: these must not be taken for damaged.
            self.store_quarantine()?;
        }
        self.segments[number].log().sync_data()?;
        self.segments[number].created_ms = now_ms;
        let end = self.end_offset();
        self.completed.retain(|completed| completed.last_offset < end);
        self.epochs.truncate(end);
        self.epochs.store(&*self.storage, &self.dir)?.sync_data()?;
        self.remove_snapshots_above(end)?;
        self.storage.sync_dir(&self.dir)?;
        self.load_producers(now_ms)
    }

    /// Removes the entries whose markers were cut off.
    fn truncate_transaction_index(&mut self, number: usize) -> io::Result<()> {
        let (storage, dir) = (self.storage.clone(), self.dir.clone());
        let segment = &mut self.segments[number];
        if segment.aborted.is_empty() {
            return Ok(());
        }
        let offsets = segment.base_offset..i64::MAX;
        let Some(mut entries) = segment.aborted.load(&*storage, &dir, offsets)? else {
            return Err(io::Error::other("the transaction index is damaged"));
        };
        entries.retain(|entry| entry.last_offset < segment.end_offset);
        match segment.aborted.replace(&*storage, &dir, segment.base_offset, &entries)? {
            Some(file) => file.sync_data(),
            None => Ok(()),
        }
    }

    /// Durably takes back what was synced from `offset` on, before it is cut off.
    fn promise_less(&mut self, offset: i64) -> io::Result<()> {
        let number = self.segment_of(offset);
        // The batch that holds the offset goes as a whole.
        self.open_segment(number).map_err(|(error, _)| error)?;
        let found = self.segments[number].view(&self.bad).locate(offset);
        let end = found.ok().flatten().map_or(offset, |(_, header)| header.base_offset.min(offset));
        let synced = self.sync.synced_offset.min(end);
        match &self.sync.note {
            Some(note) => note.replace(Note { synced, start: self.start_offset }),
            None => Ok(()),
        }
    }
}
