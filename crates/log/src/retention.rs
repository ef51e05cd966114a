//! Retention: deletes old records by size, by age, or on request.

use std::io;
use std::sync::Arc;

use crate::bad_range::BadRange;
use crate::checkpoint;
use crate::error::LogError;
use crate::log::{Log, remove_segment};
use crate::scan::walk;
use crate::segment::{NewestOf, Segment};
use crate::segment_name::{SNAPSHOT_SUFFIX, file_name};
use crate::storage::{File, Open, Storage};
use crate::synced::SyncedFile;
use crate::verified::Verified;

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

/// The age of a segment's records.
enum Age {
    /// All of them are older than `retention.ms`.
    Expired,
    /// One of them is not.
    Young,
    /// The time index says that they are older; the batches were not read yet.
    Unread(TimestampRead),
}

impl Drop for PendingDelete {
    fn drop(&mut self) {
        if let Err(error) = self.remove() {
            tracing::warn!(dir = &*self.dir, %error, "cannot remove deleted segments");
        }
    }
}

/// The next step of retention: see [`Log::plan_retention`].
#[derive(Debug)]
#[must_use = "retention has further steps"]
pub enum RetentionStep {
    /// The timestamps of a segment have to be read. Report them with [`Log::note_newest`], and plan again.
    ReadTimestamps(TimestampRead),
    /// A start offset has to be stored. Report it with [`Log::finish_deletion`].
    StoreStart(PendingStart),
    /// Nothing is to be deleted.
    Done,
}

/// The newest timestamp of a segment, which is read from the headers of its batches. It needs no lock.
#[derive(Debug)]
pub struct TimestampRead {
    dir: Arc<str>,
    segment: i64,
    file: Arc<dyn File>,
    size: u64,
    bad: Vec<BadRange>,
    /// The file before a compaction replaces it.
    identity: Arc<Verified>,
    /// The log before it is truncated.
    generation: u64,
}

/// The result of a [`TimestampRead`].
#[derive(Debug)]
#[must_use = "report it with `Log::note_newest`"]
pub struct NewestTimestamp {
    segment: i64,
    size: u64,
    newest: io::Result<Option<i64>>,
    identity: Arc<Verified>,
    generation: u64,
}

impl NewestTimestamp {
    /// The segment that was read.
    pub(crate) fn segment(&self) -> i64 {
        self.segment
    }
}

impl TimestampRead {
    /// Reads. Blocks until the disk has read the segment.
    pub fn run(self) -> NewestTimestamp {
        let Self { dir, segment, file, size, bad, identity, generation } = self;
        let mut newest = None;
        let walked = walk(&*file, 0, size, &bad, |header, _| {
            let has_time = header.max_timestamp >= 0 && header.record_count > 0;
            newest = newest.max(Some(header.max_timestamp).filter(|_| has_time));
        });
        if let Ok(Err(position)) = walked {
            tracing::warn!(dir = &*dir, segment, position, "a segment is damaged");
        }
        NewestTimestamp { segment, size, newest: walked.map(|_| newest), identity, generation }
    }
}

/// A start offset that must be durable before the records below it are deleted. It needs no lock; one runs at a time.
#[derive(Debug)]
#[must_use = "nothing is deleted before it has run and been reported"]
pub struct PendingStart {
    storage: Arc<dyn Storage>,
    dir: Arc<str>,
    synced: Option<Arc<SyncedFile>>,
    offset: i64,
    is_stored: bool,
    /// Paths of the snapshots that have producers whose batches go: no other file has these afterwards.
    snapshots: Vec<String>,
}

/// The result of a [`PendingStart`].
#[derive(Debug)]
#[must_use = "report it with `Log::finish_deletion`"]
pub struct StoredStart {
    offset: i64,
    result: io::Result<()>,
    /// Only `synced` has it, which a sync may overwrite with the start offset of before.
    only_synced: bool,
}

impl PendingStart {
    /// Stores the start offset durably: in `synced`, whose bytes are overwritten in place so that it works on a full disk,
    /// and in `log-start-offset`, in case the first is lost. One of the two is enough. Syncs the snapshots of the producers before.
    pub fn run(self) -> StoredStart {
        let Self { storage, dir, synced, offset, is_stored, snapshots } = self;
        for path in snapshots {
            let sync = storage.open(&path, Open::Existing).and_then(|file| file.sync_data());
            if let Err(error) = sync {
                // The deletion continues: a full disk gets its room back. Without the snapshot a repeated batch is no duplicate.
                tracing::warn!(path, %error, "cannot sync a snapshot of the producers");
            }
        }
        if is_stored {
            return StoredStart { offset, result: Ok(()), only_synced: false };
        }
        let noted = synced.is_some_and(|synced| match synced.store_start(offset) {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(dir = &*dir, %error, "cannot write the start offset to `synced`");
                false
            }
        });
        match checkpoint::store(&*storage, &dir, checkpoint::START_OFFSET, &checkpoint::body(&[offset])) {
            Ok(()) => StoredStart { offset, result: Ok(()), only_synced: false },
            Err(error) if noted => {
                tracing::warn!(dir = &*dir, %error, "cannot store the start offset");
                StoredStart { offset, result: Ok(()), only_synced: true }
            }
            Err(error) => StoredStart { offset, result: Err(error), only_synced: false },
        }
    }
}

impl Log {
    /// Deletes old segments according to `retention.bytes` and `retention.ms`. Blocks for reads and syncs; with
    /// [`Log::plan_retention`] other callers use the log meanwhile.
    pub fn enforce_retention(&mut self, now_ms: i64) -> Result<Retention, LogError> {
        loop {
            match self.plan_retention(now_ms)? {
                RetentionStep::ReadTimestamps(read) => self.note_newest(read.run())?,
                RetentionStep::StoreStart(pending) => return self.finish_deletion(pending.run()),
                RetentionStep::Done => return Ok(self.let_go(0)),
            }
        }
    }

    /// Returns the next step of deleting old segments according to `retention.bytes` and `retention.ms`. Records above the high watermark
    /// stay.
    ///
    /// The active segment is deleted only if it has records, all other segments go, and all its records are too old or
    /// `retention.bytes` is 0. In that case a new segment is created first; if that fails, the others still go.
    pub fn plan_retention(&mut self, now_ms: i64) -> Result<RetentionStep, LogError> {
        self.plan_retention_at(now_ms, now_ms)
    }

    /// [`Log::plan_retention`] with the ages of records at `age_ms`, which may be before `now_ms`: the caller does not trust a wall clock
    /// that has jumped ahead.
    pub fn plan_retention_at(&mut self, now_ms: i64, age_ms: i64) -> Result<RetentionStep, LogError> {
        self.check_online()?;
        self.expire_producers(now_ms);
        // As in Kafka, records above it stay: the log would begin above what consumers may read.
        let high_watermark = self.tail.visible();
        let last = self.segments.len() - 1;
        let mut left = self.size_bytes();
        let mut count = 0;
        while count < last {
            let size = self.segments[count].size;
            if self.segments[count + 1].base_offset > high_watermark {
                break;
            }
            let too_much =
                self.config.delete && self.config.retention_bytes.is_some_and(|max| left - size >= max);
            let below_start = self.segments[count + 1].base_offset <= self.start_offset;
            if !too_much && !below_start {
                match self.age(count, age_ms)? {
                    Age::Unread(read) => return Ok(RetentionStep::ReadTimestamps(read)),
                    Age::Expired => {}
                    Age::Young => break,
                }
            }
            left -= size;
            count += 1;
        }
        let is_readable = self.end_offset() <= high_watermark;
        if count == last && self.active().size > 0 && self.config.delete && is_readable {
            // As in Kafka's `deleteRetentionSizeBreachedSegments`: no bytes would be left, which is at least the limit.
            let too_much = self.config.retention_bytes == Some(0);
            let age = if too_much { Age::Expired } else { self.age(last, age_ms)? };
            match age {
                Age::Unread(read) => return Ok(RetentionStep::ReadTimestamps(read)),
                Age::Expired => match self.roll(now_ms) {
                    Ok(()) => count += 1,
                    Err(error) if count == 0 => return Err(error),
                    // A full disk has no room for another segment until the closed ones are gone.
                    Err(error) => tracing::warn!(%error, "only closed segments are deleted"),
                },
                Age::Young => {}
            }
        }
        if count == 0 {
            return Ok(RetentionStep::Done);
        }
        // Before the first file goes: segments that are missing without it are a loss.
        let offset = self.segments[count].base_offset.max(self.start_offset);
        Ok(RetentionStep::StoreStart(self.pending_start(offset)))
    }

    /// Returns the start offset that must be stored before the records below `offset` are deleted.
    pub fn begin_deletion(&self, offset: i64) -> Result<PendingStart, LogError> {
        self.check_online()?;
        let (start, end) = (self.start_offset, self.end_offset());
        if offset > end {
            return Err(LogError::OutOfRange { dir: self.dir.to_string(), offset, start, end });
        }
        Ok(self.pending_start(offset.max(start)))
    }

    fn pending_start(&self, offset: i64) -> PendingStart {
        let deletes_segments = self.segments.get(1).is_some_and(|next| next.base_offset <= offset);
        let needs_snapshots = deletes_segments && self.producers.len() > 0;
        let known = self.snapshots.iter().flatten().filter(|_| needs_snapshots);
        PendingStart {
            snapshots: known.map(|at| self.path(&file_name(*at, SNAPSHOT_SUFFIX))).collect(),
            storage: self.storage.clone(),
            dir: self.dir.clone(),
            synced: self.sync.note.clone(),
            offset,
            is_stored: offset <= self.start_offset,
        }
    }

    /// Deletes the records below a stored start offset. They cannot be read afterwards, not even after a crash.
    ///
    /// Segments that end below it are deleted at once; the other bytes are deleted with their segment.
    pub fn finish_deletion(&mut self, stored: StoredStart) -> Result<Retention, LogError> {
        self.check_online()?;
        let StoredStart { offset, result, only_synced } = stored;
        result.map_err(|source| self.failed("store the start offset", source))?;
        self.start_offset = self.start_offset.max(offset);
        if only_synced && let Some(synced) = &self.sync.note {
            let again = synced.store(self.promise());
            again.map_err(|source| self.failed("store the start offset", source))?;
        }
        let next_bases = self.segments.iter().skip(1).map(|segment| segment.base_offset);
        let count = next_bases.take_while(|base| *base <= self.start_offset).count();
        Ok(self.let_go(count))
    }

    /// Deletes the records below `offset`. Blocks for a sync; with [`Log::begin_deletion`] other callers use the log
    /// meanwhile.
    pub fn delete_records_before(&mut self, offset: i64) -> Result<Retention, LogError> {
        let pending = self.begin_deletion(offset)?;
        self.finish_deletion(pending.run())
    }

    /// Reports the newest timestamp of a segment, unless the bytes that were read are not there any more. The segment may have
    /// grown.
    pub fn note_newest(&mut self, read: NewestTimestamp) -> Result<(), LogError> {
        self.note_timestamps(read).map_err(|source| self.failed("read the timestamps of a segment", source))
    }

    /// [`Log::note_newest`] with the storage's error.
    pub(crate) fn note_timestamps(&mut self, read: NewestTimestamp) -> io::Result<()> {
        let timestamp = read.newest?;
        if read.generation != self.sync.generation {
            return Ok(());
        }
        let is_same = |segment: &&mut Segment| {
            segment.base_offset == read.segment && Arc::ptr_eq(&segment.verified, &read.identity)
        };
        if let Some(segment) = self.segments.iter_mut().find(is_same) {
            segment.note_newest(NewestOf { size: read.size, timestamp });
        }
        Ok(())
    }

    /// Compares the age of a segment's records with `retention.ms`.
    fn age(&mut self, number: usize, now_ms: i64) -> Result<Age, LogError> {
        // Compaction alone deletes nothing for its age.
        let Some(max) = self.config.retention_ms.filter(|_| self.config.delete) else {
            return Ok(Age::Young);
        };
        if self.segments[number].largest.is_none() {
            self.open_segment(number)
                .map_err(|(source, file)| self.failed(&format!("open {file}"), source))?;
        }
        // With a later timestamp than its batches have, the segment and all behind it would stay for ever.
        self.confirm_last_time(number)
            .map_err(|(source, file)| self.failed(&format!("read {file}"), source))?;
        self.segments[number].extend_newest();
        let segment = &self.segments[number];
        let newest = segment.largest.map(|largest| largest.timestamp).filter(|timestamp| *timestamp >= 0);
        let written = if newest.is_none() { self.written_ms(segment) } else { segment.created_ms };
        let is_old = |newest: Option<i64>| now_ms.saturating_sub(newest.unwrap_or(written)) > max;
        if !is_old(newest) {
            return Ok(Age::Young);
        }
        // No checksum covers the time index: the batches decide before they are deleted.
        if let Some(read) = segment.newest.filter(|read| read.size == segment.size) {
            return Ok(if is_old(read.timestamp) { Age::Expired } else { Age::Young });
        }
        self.open_segment(number).map_err(|(source, file)| self.failed(&format!("open {file}"), source))?;
        Ok(Age::Unread(self.timestamp_read(number)))
    }

    /// Returns the read of the newest timestamp of a segment whose files are open.
    pub(crate) fn timestamp_read(&self, number: usize) -> TimestampRead {
        let segment = &self.segments[number];
        TimestampRead {
            dir: self.dir.clone(),
            segment: segment.base_offset,
            file: segment.log().clone(),
            size: segment.size,
            bad: self.bad.iter().filter(|bad| bad.segment == segment.base_offset).copied().collect(),
            identity: segment.verified.clone(),
            generation: self.sync.generation,
        }
    }

    /// Returns when a segment was last written: the age of records without timestamps, as in Kafka's
    /// `LogSegment.largestTimestamp`. A storage that does not know has the time of its creation, or of the start.
    pub(crate) fn written_ms(&self, segment: &Segment) -> i64 {
        let [path, ..] = Segment::paths(&self.dir, segment.base_offset);
        self.storage.modified_ms(&path).ok().flatten().unwrap_or(segment.created_ms)
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
