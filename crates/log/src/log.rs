//! The log of one partition: what it is made of, and the calls that concern it as a whole.
//!
//! Appending is in [`crate::append`], reading in [`crate::read`], syncing in [`crate::sync`], opening in
//! [`crate::recovery`], deleting in [`crate::retention`].

use std::io;
use std::sync::Arc;

use crate::cache::TailCache;
use crate::checkpoint::{self, CleanMark};
use crate::config::{LogConfig, Visible};
use crate::epochs::Epochs;
use crate::error::LogError;
use crate::examine::{Checkpoints, Directory};
use crate::producers::{ProducerState, Producers};
use crate::recovery::{self, How, RecoveryReport};
use crate::ring::Ring;
use crate::segment::{BadRange, LOG_SUFFIX, SNAPSHOT_SUFFIX, Segment, file_name, parse_name};
use crate::storage::{File, Open, Storage};
use crate::synced::{Note, SyncedFile};
use crate::tail::Tail;

/// Files of old segments that stay open for readers of the past. The active segment is always open.
const OLD_SEGMENTS_OPEN_MAX: usize = 4;
/// Snapshots of producers kept: the newest, and one more in case it is damaged.
const SNAPSHOTS_KEPT: usize = 2;

/// A durable sequence of record batches in one directory, in Apache Kafka's on-disk format.
///
/// One owner calls it; all calls are synchronous and none asks for the time. `now_ms` is milliseconds since 1970.
/// Wrap it in a lock, or use [`SharedLog`](crate::SharedLog), to share it.
#[derive(Debug)]
pub struct Log {
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) dir: Arc<str>,
    pub(crate) config: LogConfig,
    /// By base offset; never empty, and the last one is written to.
    pub(crate) segments: Vec<Segment>,
    pub(crate) start_offset: i64,
    pub(crate) producers: Producers,
    pub(crate) epochs: Epochs,
    pub(crate) cache: TailCache,
    pub(crate) tail: Tail,
    pub(crate) bad: Vec<BadRange>,
    /// Offsets whose loss was accepted: readers continue behind them.
    pub(crate) gaps: Vec<BadRange>,
    pub(crate) sync: SyncState,
    /// Why nothing is read or written any more.
    pub(crate) offline: Option<String>,
    /// Whether the mark of a clean shutdown is still there.
    pub(crate) marked_clean: bool,
    pub(crate) uses: u64,
    /// The newest batches once more, for the readers of a shared log.
    pub(crate) ring: Option<Arc<Ring>>,
}

/// What is known about the durability of a log.
#[derive(Debug, Default)]
pub(crate) struct SyncState {
    /// All below is durable.
    pub(crate) synced_offset: i64,
    /// Files of closed segments that are not durable yet.
    pub(crate) older: Vec<Unsynced>,
    /// Changes of names in the directory, and how many of them are durable.
    pub(crate) dir_changes: u64,
    pub(crate) dir_synced: u64,
    /// Rises when the log is cut: a sync begun before says nothing about what came after.
    pub(crate) generation: u64,
    /// The segment that `recovery-point` names.
    pub(crate) recovery_point: i64,
    /// The file from which the next opening learns what was synced; `None` only while the log is opened.
    pub(crate) note: Option<Arc<SyncedFile>>,
    /// When the last append came.
    pub(crate) now_ms: i64,
}

#[derive(Clone, Debug)]
pub(crate) struct Unsynced {
    pub(crate) segment: i64,
    /// `dir_changes` when the segment was closed.
    pub(crate) change: u64,
    pub(crate) file: Arc<dyn File>,
}

impl Log {
    /// Opens the log in `dir`, creating it if there is none, and repairs what a crash has left.
    ///
    /// After a clean [`Log::close`] nothing is scanned. Otherwise the segments that might not be durable are, and
    /// everything found is made durable before this returns. See the report for what was cut off or set aside.
    ///
    /// Fails with [`LogError::Lost`], and changes nothing, when records are gone that had been synced.
    pub fn open(
        storage: Arc<dyn Storage>,
        dir: &str,
        config: LogConfig,
        now_ms: i64,
    ) -> Result<(Self, RecoveryReport), LogError> {
        recovery::open(storage, dir, config.bounded(), now_ms, &How::default())
    }

    /// [`Log::open`] for a log that is known to exist: a missing directory is a loss.
    pub fn open_existing(
        storage: Arc<dyn Storage>,
        dir: &str,
        config: LogConfig,
        now_ms: i64,
    ) -> Result<(Self, RecoveryReport), LogError> {
        recovery::open(storage, dir, config.bounded(), now_ms, &How { must_exist: true, ..How::default() })
    }

    /// Opens a log that has lost records, and accepts that: damaged batches are set aside, a damaged end is cut off,
    /// and offsets that are gone are skipped by readers and never used again.
    ///
    /// A log without a directory starts at `start_offset`, empty. The report names the losses.
    pub fn salvage(
        storage: Arc<dyn Storage>,
        dir: &str,
        config: LogConfig,
        now_ms: i64,
        start_offset: i64,
    ) -> Result<(Self, RecoveryReport), LogError> {
        let how = How { full: true, salvage: true, start_offset, ..How::default() };
        recovery::open(storage, dir, config.bounded(), now_ms, &how)
    }

    /// A log that cannot be used, in place of one that cannot be opened: it has no records, and every call fails with
    /// `reason`. Touches no file.
    pub fn unavailable(storage: Arc<dyn Storage>, dir: &str, config: LogConfig, reason: String) -> Self {
        let directory = Directory { exists: false, segments: vec![(0, 0)], leftovers: Vec::new() };
        let mut log =
            recovery::unopened(storage, dir, config.bounded(), &directory, &Checkpoints::default(), 0);
        log.offline = Some(reason);
        log
    }

    /// The directory, which is how errors name the log.
    pub fn dir(&self) -> &str {
        &self.dir
    }

    /// The settings in force.
    pub fn config(&self) -> &LogConfig {
        &self.config
    }

    /// Takes new settings; those for segments hold from the next append on.
    pub fn update_config(&mut self, config: LogConfig) {
        self.config = config.bounded();
        self.cache.set_budget(self.config.tail_cache_bytes);
        if self.config.visible == Visible::End {
            self.tail.advance_visible(self.end_offset());
        }
    }

    /// The first offset there is.
    pub fn start_offset(&self) -> i64 {
        self.start_offset
    }

    /// The offset the next record will have.
    #[inline]
    pub fn end_offset(&self) -> i64 {
        self.active().end_offset
    }

    /// Everything below survives a power cut.
    pub fn synced_offset(&self) -> i64 {
        self.sync.synced_offset
    }

    /// The end of the log for those who wait for it to grow; outlives the log.
    pub fn tail(&self) -> &Tail {
        &self.tail
    }

    /// Bytes of all segments.
    pub fn size_bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.size).sum()
    }

    /// How many segments there are.
    pub fn segment_count(&self) -> usize {
        self.segments.len()
    }

    /// Bytes of memory held for readers at the tail.
    pub fn cache_bytes(&self) -> usize {
        self.cache.bytes()
    }

    /// Drops cached batches, the oldest first, until at most `bytes` are held; returns how many are held then.
    pub fn trim_cache(&mut self, bytes: usize) -> usize {
        self.cache.evict(bytes)
    }

    /// Idempotent producers remembered, by id.
    pub fn producers(&self) -> Vec<ProducerState> {
        self.producers.describe()
    }

    /// Forgets producers that were idle for `producer.id.expiration.ms`.
    pub fn expire_producers(&mut self, now_ms: i64) {
        self.producers.expire(now_ms, self.config.producer_expiration_ms);
    }

    /// The leader epoch of the last batch that had one.
    pub fn latest_epoch(&self) -> Option<i32> {
        self.epochs.latest()
    }

    /// The last epoch up to `epoch` and the offset at which it ended; `None` when `epoch` is above the latest, or
    /// none is known. What a broker answers to `OffsetForLeaderEpoch`.
    pub fn epoch_end(&self, epoch: i32) -> Option<(i32, i64)> {
        self.epochs.end_of(epoch, self.end_offset())
    }

    /// Damaged ranges that recovery or a reader found; reads of them fail.
    pub fn quarantined(&self) -> &[BadRange] {
        &self.bad
    }

    /// Why the log does nothing any more, if so.
    pub fn offline_reason(&self) -> Option<&str> {
        self.offline.as_deref()
    }

    /// Closes the active segment and starts another, unless it is empty.
    pub fn roll(&mut self, now_ms: i64) -> Result<(), LogError> {
        self.check_online()?;
        if self.active().size > 0 {
            self.roll_now(now_ms).map_err(|source| self.failed("start a segment", source))?;
        }
        Ok(())
    }

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
        if let Err(error) = self.truncate_files(offset, now_ms) {
            // Half of the files may be gone: only recovery can tell what is left.
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
        let known = self.bad.len() + self.gaps.len();
        let stays = |bad: &BadRange| bad.next_offset <= offset && bad.offset < offset;
        self.bad.retain(stays);
        self.gaps.retain(stays);
        self.open_segment(number).map_err(|(error, _)| error)?;
        let Ok(position) = self.segments[number].view(&self.bad).locate(offset) else {
            return Err(io::Error::other("the segment is damaged"));
        };
        if position.is_some_and(|(_, header)| header.base_offset < self.start_offset) {
            self.start_anew(now_ms)?;
            number = 0;
        } else if let Some((position, header)) = position {
            self.sync.older.retain(|older| older.segment != self.segments[number].base_offset);
            // What was the end of a segment is its middle again, so that its largest timestamp must be found anew.
            self.segments[number].truncate(position, header.base_offset)?;
            self.segments[number].rebuild(
                &*self.storage,
                &self.dir,
                self.config.index_interval_bytes,
                &self.bad,
            )?;
        }
        if self.bad.len() + self.gaps.len() < known {
            // The positions will hold other batches: these must not be taken for damaged.
            self.store_quarantine()?;
        }
        self.segments[number].log().sync_data()?;
        self.segments[number].created_ms = now_ms;
        let end = self.end_offset();
        self.epochs.truncate(end);
        self.epochs.store(&*self.storage, &self.dir)?.sync_data()?;
        for offset in self.snapshots()? {
            if offset > end {
                self.storage.remove(&self.path(&file_name(offset, SNAPSHOT_SUFFIX)))?;
            }
        }
        self.storage.sync_dir(&self.dir)?;
        recovery::load_producers(self, now_ms)
    }

    pub(crate) fn clear_ring(&self) {
        if let Some(ring) = &self.ring {
            ring.clear();
        }
    }

    /// Makes everything durable and marks the log as closed cleanly, so that opening it need not scan.
    pub fn close(mut self) -> Result<(), LogError> {
        self.shut()
    }

    /// [`Log::close`] for a log that others still hold: later calls are told that it is closed.
    pub fn shut(&mut self) -> Result<(), LogError> {
        self.check_online()?;
        self.tail.close();
        if !self.marked_clean {
            self.close_files().map_err(|source| {
                self.note_sync_failed();
                self.failed("close", source)
            })?;
        }
        self.offline = Some("it was closed".into());
        Ok(())
    }

    fn close_files(&mut self) -> io::Result<()> {
        let storage = self.storage.clone();
        for older in &self.sync.older {
            older.file.sync_data()?;
        }
        let last = self.segments.len() - 1;
        self.segments[last].finish(&*storage)?;
        for file in self.segments[last].open_files() {
            file.sync_data()?;
        }
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

    /// Removes all segments and goes on at the start offset with an empty one.
    pub(crate) fn start_anew(&mut self, now_ms: i64) -> io::Result<()> {
        for segment in std::mem::take(&mut self.segments) {
            remove_segment(&*self.storage, &self.dir, segment.base_offset)?;
        }
        self.bad.clear();
        self.gaps.clear();
        self.sync.older.clear();
        self.segments.push(Segment::create(&*self.storage, &self.dir, self.start_offset, now_ms)?);
        self.active().log().sync_data()?;
        self.storage.sync_dir(&self.dir)
    }

    /// Goes on at `offset`, above the end: the records between are lost, and that is accepted.
    pub(crate) fn skip_to(&mut self, offset: i64, now_ms: i64) -> io::Result<()> {
        let storage = self.storage.clone();
        let next = Segment::create(&*storage, &self.dir, offset, now_ms)?;
        next.log().sync_data()?;
        let old = self.active_mut();
        let gap = BadRange::accepted_gap(old.base_offset, old.end_offset, offset);
        old.end_offset = offset;
        self.segments.push(next);
        self.gaps.push(gap);
        storage.sync_dir(&self.dir)?;
        self.store_quarantine()
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

    // What follows serves the other modules.

    /// What the next opening may rely on.
    pub(crate) fn promise(&self) -> Note {
        Note { synced: self.sync.synced_offset, start: self.start_offset }
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

    pub(crate) fn store_quarantine(&self) -> io::Result<()> {
        let all: Vec<BadRange> = self.bad.iter().chain(&self.gaps).copied().collect();
        let body = checkpoint::encode_bad(&all);
        checkpoint::store(&*self.storage, &self.dir, checkpoint::QUARANTINE, &body)
    }

    #[inline]
    pub(crate) fn active(&self) -> &Segment {
        self.segments.last().expect("a log has a segment from the moment it is open")
    }

    #[inline]
    pub(crate) fn active_mut(&mut self) -> &mut Segment {
        self.segments.last_mut().expect("a log has a segment from the moment it is open")
    }

    /// The segment that holds `offset`, which is not below the start.
    pub(crate) fn segment_of(&self, offset: i64) -> usize {
        self.segments.partition_point(|segment| segment.base_offset <= offset).saturating_sub(1)
    }

    pub(crate) fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.dir)
    }

    pub(crate) fn check_online(&self) -> Result<(), LogError> {
        match &self.offline {
            None => Ok(()),
            Some(reason) => Err(LogError::Offline { dir: self.dir.to_string(), reason: reason.clone() }),
        }
    }

    pub(crate) fn go_offline(&mut self, reason: String) -> LogError {
        tracing::error!(dir = &*self.dir, reason, "the log goes offline");
        self.cache.clear();
        self.clear_ring();
        self.note_sync_failed();
        self.offline = Some(reason.clone());
        LogError::Offline { dir: self.dir.to_string(), reason }
    }

    /// Leaves word for the next opening that bytes read from the files may not be on the disk.
    pub(crate) fn note_sync_failed(&self) {
        if let Err(error) = checkpoint::store_loosely(&*self.storage, &self.dir, checkpoint::SYNC_FAILED, &[])
        {
            tracing::error!(dir = &*self.dir, %error, "cannot note that a sync failed");
        }
    }

    pub(crate) fn failed(&self, doing: &str, source: io::Error) -> LogError {
        LogError::Io { dir: self.dir.to_string(), doing: doing.to_owned(), source }
    }

    /// Opens the files of a segment, and closes those of another when too many are open. An error names the segment's
    /// file.
    pub(crate) fn open_segment(&mut self, number: usize) -> Result<(), (io::Error, String)> {
        let last = self.segments.len() - 1;
        self.uses += 1;
        let (storage, interval) = (self.storage.clone(), self.config.index_interval_bytes);
        let segment = &mut self.segments[number];
        segment.used = self.uses;
        let fresh = !segment.is_open();
        segment
            .open(&*storage, &self.dir, interval, &self.bad)
            .map_err(|error| (error, file_name(segment.base_offset, LOG_SUFFIX)))?;
        if fresh {
            let old = &mut self.segments[..last];
            let open = old.iter().filter(|segment| segment.is_open()).count();
            if open > OLD_SEGMENTS_OPEN_MAX
                && let Some(idle) = old.iter_mut().filter(|s| s.is_open()).min_by_key(|s| s.used)
            {
                idle.close();
            }
        }
        Ok(())
    }

    /// Starts a segment at the end of the log. After an error the log is as before.
    pub(crate) fn roll_now(&mut self, now_ms: i64) -> io::Result<()> {
        let storage = self.storage.clone();
        let end = self.end_offset();
        self.drop_clean_mark(false)?;
        let next = Segment::create(&*storage, &self.dir, end, now_ms)?;
        self.sync.dir_changes += 1;
        let uses = self.uses;
        let dir = self.dir.clone();
        let old = self.active_mut();
        old.used = uses;
        let base_offset = old.base_offset;
        if let Err(error) = old.finish(&*storage) {
            // Without its last entry the time index would lie; without the file it is rebuilt.
            tracing::warn!(dir = &*dir, segment = base_offset, %error, "cannot finish the time index");
            let _ = storage.remove(&Segment::paths(&dir, base_offset)[2]);
            old.close_indexes();
        }
        let files = old.open_files();
        let change = self.sync.dir_changes;
        let unsynced = |file| Unsynced { segment: base_offset, change, file };
        self.sync.older.extend(files.into_iter().map(unsynced));
        self.segments.push(next);
        if let Some(note) = &self.sync.note {
            note.set_due();
        }
        self.producers.expire(now_ms, self.config.producer_expiration_ms);
        if let Err(error) = self.write_snapshot(end, false) {
            // An older snapshot and the batches since say the same.
            tracing::warn!(dir = &*self.dir, %error, "cannot write a snapshot of the producers");
        }
        Ok(())
    }

    /// Writes the producers as they are at `end`, and removes snapshots that are no longer needed.
    pub(crate) fn write_snapshot(&mut self, end: i64, durably: bool) -> io::Result<()> {
        let path = self.path(&file_name(end, SNAPSHOT_SUFFIX));
        let file = self.storage.open(&path, Open::Empty)?;
        file.write_at(&self.producers.encode(), 0)?;
        if durably {
            file.sync_data()?;
        }
        let mut kept = self.snapshots()?;
        kept.retain(|offset| *offset != end);
        while kept.len() >= SNAPSHOTS_KEPT {
            let oldest = kept.remove(0);
            self.storage.remove(&self.path(&file_name(oldest, SNAPSHOT_SUFFIX)))?;
        }
        Ok(())
    }

    /// Offsets of the snapshots on disk, rising.
    pub(crate) fn snapshots(&self) -> io::Result<Vec<i64>> {
        let mut offsets: Vec<i64> = self
            .storage
            .list(&self.dir)?
            .iter()
            .filter_map(|entry| parse_name(&entry.name))
            .filter(|(_, suffix)| *suffix == SNAPSHOT_SUFFIX)
            .map(|(offset, _)| offset)
            .collect();
        offsets.sort_unstable();
        Ok(offsets)
    }

    /// Notes that all segments below `offset` are durable.
    pub(crate) fn store_recovery_point(&mut self, offset: i64, durably: bool) -> io::Result<()> {
        let body = checkpoint::body(&[offset]);
        if durably {
            checkpoint::store(&*self.storage, &self.dir, checkpoint::RECOVERY_POINT, &body)?;
        } else {
            checkpoint::store_loosely(&*self.storage, &self.dir, checkpoint::RECOVERY_POINT, &body)?;
        }
        self.sync.recovery_point = offset;
        Ok(())
    }

    /// The log is about to change: it is not cleanly closed any more.
    ///
    /// Plain appends need no sync here: a mark that comes back after a power cut does not fit the longer file.
    pub(crate) fn drop_clean_mark(&mut self, durably: bool) -> io::Result<()> {
        if self.marked_clean {
            self.storage.remove(&self.path(checkpoint::CLEAN_SHUTDOWN))?;
            if durably {
                self.storage.sync_dir(&self.dir)?;
            }
            self.marked_clean = false;
        }
        Ok(())
    }
}

/// Removes the files of a segment; those that are not there are fine.
pub(crate) fn remove_segment(storage: &dyn Storage, dir: &str, base_offset: i64) -> io::Result<()> {
    for path in Segment::paths(dir, base_offset) {
        match storage.remove(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}
