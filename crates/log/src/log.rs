//! The log of one partition: its state, and the functions for the log as a whole.
//!
//! Appending is in [`crate::append`], reading in [`crate::read`], syncing in [`crate::sync`], opening in
//! [`crate::recovery`], deleting old records in [`crate::retention`], removing the end in [`crate::truncate`], starting
//! segments in [`crate::roll`], closing in [`crate::close`].

use std::io;
use std::sync::Arc;

use ottla_wire::BatchHeader;

use crate::bad_range::BadRange;
use crate::cache::TailCache;
use crate::checkpoint;
use crate::config::{LogConfig, Visible};
use crate::epochs::Epochs;
use crate::error::LogError;
use crate::examine::{Checkpoints, Directory};
use crate::marker::Completed;
use crate::producer_total::ProducerCount;
use crate::producers::{ProducerState, Producers};
use crate::recovery::{self, How, RecoveryReport};
use crate::ring::Ring;
use crate::segment::Segment;
use crate::storage::{File, Storage};
use crate::sync_turn::SyncTurn;
use crate::synced::{Note, SyncedFile};
use crate::tail::Tail;
use crate::verification::Verifications;

/// A durable sequence of record batches in one directory, in Apache Kafka's on-disk format.
///
/// A log has one owner. All calls are synchronous, and the time is an argument: `now_ms` is milliseconds since 1970.
/// To share a log, wrap it in a lock or use [`SharedLog`](crate::SharedLog).
#[derive(Debug)]
pub struct Log {
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) dir: Arc<str>,
    pub(crate) config: LogConfig,
    /// The segments by base offset, at least one. Appends write to the last.
    pub(crate) segments: Vec<Segment>,
    pub(crate) start_offset: i64,
    pub(crate) producers: Producers,
    pub(crate) producer_count: ProducerCount,
    /// Ended transactions whose markers may be above the high watermark.
    pub(crate) completed: Vec<Completed>,
    /// The guards of transactions whose coordinators are being asked, by producer.
    pub(crate) verifications: Verifications,
    pub(crate) epochs: Epochs,
    pub(crate) cache: TailCache,
    pub(crate) tail: Tail,
    pub(crate) bad: Vec<BadRange>,
    /// Offsets whose loss was accepted: readers continue behind them.
    pub(crate) gaps: Vec<BadRange>,
    /// Ranges of restored segments. The file `quarantine` keeps them until what was made without their batches is made again.
    pub(crate) restored: Vec<BadRange>,
    pub(crate) sync: SyncState,
    /// The offsets of the snapshots of producers on disk, rising; `None` before the directory is listed, and after an error.
    pub(crate) snapshots: Option<Vec<i64>>,
    /// Base offsets of the `.swap` files of a replacement that is under way.
    pub(crate) replacing: Vec<i64>,
    /// The reason why the log is offline, if it is.
    pub(crate) offline: Option<String>,
    /// True if the mark of a clean shutdown is still there.
    pub(crate) marked_clean: bool,
    pub(crate) uses: u64,
    /// The memory of the last append's headers, for the next one.
    pub(crate) headers: Vec<BatchHeader>,
    /// Copies of the newest batches for the readers of a shared log.
    pub(crate) ring: Option<Arc<Ring>>,
}

/// The durability of a log.
#[derive(Debug, Default)]
pub(crate) struct SyncState {
    /// All records below this offset are durable.
    pub(crate) synced_offset: i64,
    /// Files of closed segments that are not durable yet.
    pub(crate) older: Vec<Unsynced>,
    /// Changes of names in the directory, and how many of them are durable.
    pub(crate) dir_changes: u64,
    pub(crate) dir_synced: u64,
    /// Rises when the log is truncated: a sync that began earlier does not cover later records.
    pub(crate) generation: u64,
    /// Shared with the syncs that are under way.
    pub(crate) turn: Arc<SyncTurn>,
    /// The segment that `recovery-point` names.
    pub(crate) recovery_point: i64,
    /// The file from which the next opening reads the synced offset; `None` only while the log is opened.
    pub(crate) note: Option<Arc<SyncedFile>>,
    /// The time of the last append.
    pub(crate) now_ms: i64,
    /// The time of the first append that is not durable.
    pub(crate) unsynced_since_ms: i64,
}

#[derive(Clone, Debug)]
pub(crate) struct Unsynced {
    pub(crate) segment: i64,
    /// `dir_changes` when the segment was closed.
    pub(crate) change: u64,
    pub(crate) file: Arc<dyn File>,
}

impl Log {
    /// Opens the log in `dir` and recovers it after a crash. Creates the log if it is missing.
    ///
    /// After a clean [`Log::close`] nothing is scanned. Otherwise the segments that may not be durable are scanned, and
    /// all sound records are made durable before this returns. The report lists truncated and quarantined bytes.
    ///
    /// Fails with [`LogError::Lost`] if synced records are missing. In that case no file is changed.
    pub fn open(
        storage: Arc<dyn Storage>,
        dir: &str,
        config: LogConfig,
        now_ms: i64,
    ) -> Result<(Self, RecoveryReport), LogError> {
        recovery::open(storage, dir, config.bounded(), now_ms, &How::default())
    }

    /// [`Log::open`] for a log that is known to exist: a missing directory is a loss.
    ///
    /// Every offset below `next_offset_min` may have been used. Without the `synced` file, a log that ends below it has
    /// lost records.
    pub fn open_existing(
        storage: Arc<dyn Storage>,
        dir: &str,
        config: LogConfig,
        now_ms: i64,
        next_offset_min: i64,
    ) -> Result<(Self, RecoveryReport), LogError> {
        let how = How { must_exist: true, next_offset_min, ..How::default() };
        recovery::open(storage, dir, config.bounded(), now_ms, &how)
    }

    /// Opens a log that has lost records and accepts the loss. Damaged batches are quarantined, a damaged end is
    /// truncated, and readers skip the missing offsets, which are not used again.
    ///
    /// Without the `synced` file the directory does not show which offsets were used. The next record then has
    /// `next_offset_min` or a higher offset. The report lists the losses.
    pub fn salvage(
        storage: Arc<dyn Storage>,
        dir: &str,
        config: LogConfig,
        now_ms: i64,
        next_offset_min: i64,
    ) -> Result<(Self, RecoveryReport), LogError> {
        let how = How { full: true, salvage: true, next_offset_min, ..How::default() };
        recovery::open(storage, dir, config.bounded(), now_ms, &how)
    }

    /// Returns a log without records that replaces one that cannot be opened. Every call fails with `reason`, and no
    /// file is accessed.
    pub fn unavailable(storage: Arc<dyn Storage>, dir: &str, config: LogConfig, reason: String) -> Self {
        let directory = Directory { segments: vec![(0, 0)], ..Directory::default() };
        let mut log =
            recovery::unopened(storage, dir, config.bounded(), &directory, &Checkpoints::default(), 0);
        log.offline = Some(reason);
        log
    }

    /// Returns the directory, which is the name of the log in errors.
    pub fn dir(&self) -> &str {
        &self.dir
    }

    /// Returns the current settings.
    pub fn config(&self) -> &LogConfig {
        &self.config
    }

    /// Changes the settings. Settings of segments apply from the next append on.
    pub fn update_config(&mut self, config: LogConfig) {
        self.config = config.bounded();
        self.cache.set_budget(self.config.tail_cache_bytes);
        if self.config.visible == Visible::End {
            self.tail.advance_visible(self.end_offset());
        }
    }

    /// Returns the log start offset.
    pub fn start_offset(&self) -> i64 {
        self.start_offset
    }

    /// Returns the log end offset: the offset of the next record.
    #[inline]
    pub fn end_offset(&self) -> i64 {
        self.active().end_offset
    }

    /// Returns the synced offset. All records below it survive a power cut.
    pub fn synced_offset(&self) -> i64 {
        self.sync.synced_offset
    }

    /// Returns the end of the log, for waiters; it outlives the log.
    pub fn tail(&self) -> &Tail {
        &self.tail
    }

    /// Returns the size of all segments in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.size).sum()
    }

    /// Returns the number of segments.
    pub fn segment_count(&self) -> usize {
        self.segments.len()
    }

    /// Returns the size of the cached batches in bytes.
    pub fn cache_bytes(&self) -> usize {
        self.cache.bytes()
    }

    /// Drops cached batches, the oldest first, until at most `bytes` are left. Returns the remaining size.
    pub fn trim_cache(&mut self, bytes: usize) -> usize {
        self.cache.evict(bytes)
    }

    /// Returns the known idempotent producers by id.
    pub fn producers(&self) -> Vec<ProducerState> {
        self.producers.describe()
    }

    /// Forgets producers that were idle for `producer.id.expiration.ms`, and guards of transactions that are as old and older than a
    /// minute.
    pub fn expire_producers(&mut self, now_ms: i64) {
        let step_ms_max = self.config.producer_step_ms_max();
        self.producers.expire(now_ms, self.config.producer_expiration_ms, step_ms_max);
        self.producer_count.set(self.producers.len());
        self.verifications.expire(now_ms, self.config.producer_expiration_ms);
    }

    /// Returns the leader epoch of the last batch that has one.
    pub fn latest_epoch(&self) -> Option<i32> {
        self.epochs.latest()
    }

    /// Returns the leader epoch under which the first offset was written; `None` if it is not known, for example in
    /// an empty log.
    pub fn start_epoch(&self) -> Option<i32> {
        self.epochs.of(self.start_offset())
    }

    /// Returns the last epoch up to `epoch` and its end offset: the answer to `OffsetForLeaderEpoch`.
    ///
    /// Returns `None` if `epoch` is above the latest, or if no epoch is known.
    pub fn epoch_end(&self, epoch: i32) -> Option<(i32, i64)> {
        self.epochs.end_of(epoch, self.end_offset())
    }

    /// Returns the damaged ranges that recovery or a reader found. Reads of them fail.
    pub fn quarantined(&self) -> &[BadRange] {
        &self.bad
    }

    /// Returns the reason why the log is offline, if it is.
    pub fn offline_reason(&self) -> Option<&str> {
        self.offline.as_deref()
    }

    pub(crate) fn clear_ring(&self) {
        if let Some(ring) = &self.ring {
            ring.clear();
        }
    }

    /// Removes all segments and creates an empty one at the start offset.
    pub(crate) fn start_anew(&mut self, now_ms: i64) -> io::Result<()> {
        for segment in std::mem::take(&mut self.segments) {
            remove_segment(&*self.storage, &self.dir, segment.base_offset)?;
        }
        self.bad.clear();
        self.gaps.clear();
        self.restored.clear();
        self.sync.older.clear();
        self.segments.push(Segment::create(&*self.storage, &self.dir, self.start_offset, now_ms)?);
        self.active().log().sync_data()?;
        self.storage.sync_dir(&self.dir)
    }

    // The functions below are for the other modules.

    /// Returns the offsets that the next opening relies on.
    pub(crate) fn promise(&self) -> Note {
        Note { synced: self.sync.synced_offset, start: self.start_offset }
    }

    pub(crate) fn store_quarantine(&self) -> io::Result<()> {
        let all: Vec<BadRange> = self.bad.iter().chain(&self.restored).chain(&self.gaps).copied().collect();
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
        self.tail.note_failed();
        LogError::Offline { dir: self.dir.to_string(), reason }
    }

    /// Writes `sync-failed`: the next opening must not trust that bytes read from the files are on disk.
    pub(crate) fn note_sync_failed(&self) {
        if let Err(error) = checkpoint::store_loosely(&*self.storage, &self.dir, checkpoint::SYNC_FAILED, &[])
        {
            tracing::error!(dir = &*self.dir, %error, "cannot write `sync-failed`");
        }
    }

    pub(crate) fn failed(&self, doing: &str, source: io::Error) -> LogError {
        LogError::Io { dir: self.dir.to_string(), doing: doing.to_owned(), source }
    }

    /// Records that all segments below `offset` are durable.
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

/// Removes the files of a segment; missing files are no error.
pub(crate) fn remove_segment(storage: &dyn Storage, dir: &str, base_offset: i64) -> io::Result<()> {
    for path in Segment::paths(dir, base_offset) {
        match storage.remove(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}
