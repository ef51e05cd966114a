//! Retention: deletes old records by size, by age, or on request.

use std::io;
use std::sync::Arc;

use crate::bad_range::BadRange;
use crate::checkpoint;
use crate::error::LogError;
use crate::log::{Log, remove_segment};
use crate::scan::walk;
use crate::storage::Storage;
use crate::synced::Note;

/// The segments that [`Log::enforce_retention`] removed.
#[derive(Debug)]
pub struct Retention {
    /// Segments deleted.
    pub segments: usize,
    /// The size of the deleted segments in bytes.
    pub bytes: u64,
    /// The new log start offset.
    pub start_offset: i64,
    /// The files of the segments, which are not yet removed.
    pub files: PendingDelete,
}

/// Files the log has let go of. Removing them can take long, and needs no lock: [`PendingDelete::run`], or drop it.
#[derive(Debug)]
pub struct PendingDelete {
    storage: Arc<dyn Storage>,
    dir: Arc<str>,
    segments: Vec<i64>,
}

impl PendingDelete {
    /// Removes the files, the oldest first, and makes the removal durable. If that fails or does not happen, the next
    /// opening of the log finds the segments again, and they are deleted again.
    pub fn run(mut self) -> io::Result<()> {
        self.remove()
    }

    /// Returns `true` if there are no files to remove.
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    fn remove(&mut self) -> io::Result<()> {
        let segments = std::mem::take(&mut self.segments);
        if segments.is_empty() {
            return Ok(());
        }
        for base_offset in segments {
            remove_segment(&*self.storage, &self.dir, base_offset)?;
        }
        self.storage.sync_dir(&self.dir)
    }
}

impl Drop for PendingDelete {
    fn drop(&mut self) {
        if let Err(error) = self.remove() {
            tracing::warn!(dir = &*self.dir, %error, "cannot remove deleted segments");
        }
    }
}

impl Log {
    /// Deletes old segments according to `retention.bytes` and `retention.ms`.
    ///
    /// The active segment is deleted only if all its records are too old. In that case a new segment is created first.
    pub fn enforce_retention(&mut self, now_ms: i64) -> Result<Retention, LogError> {
        self.check_online()?;
        self.producers.expire(now_ms, self.config.producer_expiration_ms);
        if self.active().size > 0 && self.is_expired(self.segments.len() - 1, now_ms)? {
            self.roll(now_ms)?;
        }
        let mut left = self.size_bytes();
        let mut count = 0;
        while count + 1 < self.segments.len() {
            let size = self.segments[count].size;
            let too_much = self.config.retention_bytes.is_some_and(|max| left - size >= max);
            let below_start = self.segments[count + 1].base_offset <= self.start_offset;
            if !too_much && !below_start && !self.is_expired(count, now_ms)? {
                break;
            }
            left -= size;
            count += 1;
        }
        if count > 0 && self.segments[count].base_offset > self.start_offset {
            // Before the first file goes: segments that are missing without it are a loss.
            self.store_start_offset(self.segments[count].base_offset)?;
        }
        Ok(self.let_go(count))
    }

    /// Moves the start offset, durably: in `synced`, whose bytes are overwritten in place so that it works on a full
    /// disk, and in `log-start-offset`, in case the first is lost. One of the two is enough.
    fn store_start_offset(&mut self, offset: i64) -> Result<(), LogError> {
        let note = Note { start: offset, ..self.promise() };
        let noted = self.sync.note.as_ref().is_some_and(|synced| match synced.store(note) {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(dir = &*self.dir, %error, "cannot write the start offset to `synced`");
                false
            }
        });
        let body = checkpoint::body(&[offset]);
        match checkpoint::store(&*self.storage, &self.dir, checkpoint::START_OFFSET, &body) {
            Err(source) if !noted => return Err(self.failed("store the start offset", source)),
            Err(error) => tracing::warn!(dir = &*self.dir, %error, "cannot store the start offset"),
            Ok(()) => {}
        }
        self.start_offset = offset;
        Ok(())
    }

    /// Deletes the records below `offset`. They cannot be read afterwards, not even after a crash.
    ///
    /// Blocks for a sync. Segments that end below `offset` are deleted at once; the other bytes are deleted with their
    /// segment.
    pub fn delete_records_before(&mut self, offset: i64) -> Result<Retention, LogError> {
        self.check_online()?;
        let (start, end) = (self.start_offset, self.end_offset());
        if offset > end {
            return Err(LogError::OutOfRange { dir: self.dir.to_string(), offset, start, end });
        }
        if offset > start {
            self.store_start_offset(offset)?;
        }
        let next_bases = self.segments.iter().skip(1).map(|segment| segment.base_offset);
        let count = next_bases.take_while(|base| *base <= self.start_offset).count();
        Ok(self.let_go(count))
    }

    /// Returns `true` if all records of a segment are older than `retention.ms`.
    fn is_expired(&mut self, number: usize, now_ms: i64) -> Result<bool, LogError> {
        let Some(max) = self.config.retention_ms else { return Ok(false) };
        if self.segments[number].largest.is_none() {
            self.open_segment(number)
                .map_err(|(source, file)| self.failed(&format!("open {file}"), source))?;
        }
        let segment = &self.segments[number];
        // Records without timestamps are as old as their segment.
        let newest = segment.largest.map(|largest| largest.timestamp).filter(|timestamp| *timestamp >= 0);
        let created = segment.created_ms;
        if now_ms.saturating_sub(newest.unwrap_or(created)) <= max {
            return Ok(false);
        }
        // No checksum covers the time index: the batches decide before they are deleted.
        let newest = self
            .newest_timestamp(number)
            .map_err(|source| self.failed("read the timestamps of a segment", source))?;
        Ok(now_ms.saturating_sub(newest.unwrap_or(created)) > max)
    }

    /// The newest timestamp that the headers of a segment's batches have.
    fn newest_timestamp(&mut self, number: usize) -> io::Result<Option<i64>> {
        self.open_segment(number).map_err(|(error, _)| error)?;
        let segment = &self.segments[number];
        let bad: Vec<BadRange> =
            self.bad.iter().filter(|bad| bad.segment == segment.base_offset).copied().collect();
        let mut newest = None;
        let walked = walk(&**segment.log(), 0, segment.size, &bad, |header, _| {
            newest = newest.max(Some(header.max_timestamp).filter(|timestamp| *timestamp >= 0));
        })?;
        if let Err(position) = walked {
            tracing::warn!(dir = &*self.dir, segment = segment.base_offset, position, "a segment is damaged");
        }
        Ok(newest)
    }

    fn let_go(&mut self, count: usize) -> Retention {
        let gone: Vec<_> = self.segments.drain(..count).collect();
        let bases: Vec<i64> = gone.iter().map(|segment| segment.base_offset).collect();
        if count > 0 {
            let first = self.segments[0].base_offset;
            self.start_offset = self.start_offset.max(first);
            self.sync.older.retain(|older| older.segment >= first);
            self.bad.retain(|bad| bad.segment >= first);
            self.gaps.retain(|gap| gap.segment >= first);
        }
        self.cache.drop_before(self.start_offset);
        self.clear_ring();
        self.epochs.forget_before(self.start_offset);
        Retention {
            segments: count,
            bytes: gone.iter().map(|segment| segment.size).sum(),
            start_offset: self.start_offset,
            files: PendingDelete { storage: self.storage.clone(), dir: self.dir.clone(), segments: bases },
        }
    }
}
