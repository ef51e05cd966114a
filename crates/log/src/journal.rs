//! A map that is stored as a log, for the state that a broker stores in addition to the records.
//!
//! Each change is a record. A change of several entries is one batch, which is atomic. When the log is much larger than
//! the map, the map is written to a new segment, and the older segments are deleted when that segment is durable. A
//! crash between two of these steps loses nothing, because an entry that is written twice has the same value twice.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use ottla_wire::reader::{RecordError, Records};
use ottla_wire::{BatchBuilder, BatchHeader, Seal};

use crate::append_options::{AppendOptions, Check, Origin};
use crate::checkpoint;
use crate::config::{LogConfig, Visible};
use crate::error::{AppendError, LogError, Loss, ReadError, repair_step};
use crate::examine::{LogCheck, check_log, look};
use crate::log::Log;
use crate::recovery::{self, How, RecoveryReport};
use crate::retention::{PendingDelete, PendingStart, StoredStart};
use crate::scan::{SCAN_CHUNK_BYTES, Window, scan};
use crate::segment_name::{LOG_SUFFIX, file_name};
use crate::storage::{Open, Storage};
use crate::sync::{PendingSync, Synced};

/// The leader epoch of every batch. No checksum covers it, so any other one is damage.
const LEADER_EPOCH: i32 = 0;
/// A record's share of what a batch says about it, roughly: lengths, deltas, the header.
const ENTRY_OVERHEAD_BYTES: u64 = 16;
/// The file that is there during a salvage: its first steps can leave a journal that looks sound and has lost entries.
const UNFINISHED: &str = "salvage-unfinished";

/// Settings of a journal.
#[derive(Clone, Debug, PartialEq)]
pub struct JournalConfig {
    /// The log is not compacted while it is smaller than this. Default 1 MiB.
    pub rewrite_bytes_min: u64,
    /// A compaction writes batches of about this size. Default 256 KiB.
    pub batch_bytes: usize,
    /// A segment is closed before it grows beyond this. Default 64 MiB.
    pub segment_bytes: u32,
}

impl Default for JournalConfig {
    fn default() -> Self {
        Self { rewrite_bytes_min: 1 << 20, batch_bytes: 256 << 10, segment_bytes: 64 << 20 }
    }
}

/// The reasons why a journal cannot be opened or changed.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The log cannot be opened or maintained.
    #[error(transparent)]
    Log(#[from] LogError),
    /// A change cannot be appended, and the map is unchanged.
    #[error(transparent)]
    Append(#[from] AppendError),
    /// The log cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A batch is damaged. No entry was dropped.
    #[error(
        "journal {dir}: {file} is damaged at position {position}, where offset {offset} should be: {what}"
    )]
    Damaged {
        /// The journal's directory.
        dir: String,
        /// The segment's file.
        file: String,
        /// The position in the file at which the damage starts.
        position: u64,
        /// The offset expected there.
        offset: i64,
        /// The problem, and the step that solves it.
        what: String,
    },
    /// A batch with a valid checksum does not contain entries: another program wrote it.
    #[error("journal {dir}: {source}")]
    Foreign {
        /// The journal's directory.
        dir: String,
        /// The problem.
        source: RecordError,
    },
    /// The file cannot be read.
    #[error("journal {dir}: cannot read: {source}")]
    Io {
        /// The journal's directory.
        dir: String,
        /// The error of the storage.
        source: io::Error,
    },
}

/// Checks every batch of the journal in `dir` and changes nothing: see [`check_log`].
pub fn check_journal(storage: &Arc<dyn Storage>, dir: &str) -> Result<LogCheck, LogError> {
    let mut check = check_log(storage, dir)?;
    let failed = |source| LogError::Io { dir: dir.to_owned(), doing: "examine".into(), source };
    if is_unfinished(&**storage, dir).map_err(failed)? {
        check.losses.push(Loss::Unfinished);
    }
    if !check.losses.is_empty() {
        return Ok(check);
    }
    for (base, size) in look(&**storage, dir).map_err(failed)?.segments {
        let file = file_name(base, LOG_SUFFIX);
        let bytes = storage.open(&format!("{dir}/{file}"), Open::Existing).map_err(failed)?;
        let wrong_epoch = |header: &BatchHeader, position| {
            if header.partition_leader_epoch != LEADER_EPOCH {
                check.losses.push(Loss::Damaged {
                    file: file.clone(),
                    position,
                    bytes: header.total_bytes() as u64,
                    offset: header.base_offset,
                    next: header.next_offset(),
                });
            }
        };
        scan(&*bytes, base, size, wrong_epoch).map_err(failed)?;
    }
    Ok(check)
}

/// Returns whether a salvage of the journal was interrupted.
fn is_unfinished(storage: &dyn Storage, dir: &str) -> io::Result<bool> {
    match storage.file_len(&format!("{dir}/{UNFINISHED}")) {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// A durable map.
///
/// ```
/// use std::sync::Arc;
/// use bytes::Bytes;
/// use ottla_log::{Journal, JournalConfig, storage::mem::MemStorage};
///
/// let disk = Arc::new(MemStorage::new());
/// let (mut journal, _) = Journal::open(disk.clone(), "__meta", JournalConfig::default(), 0)?;
/// journal.put(0, "topic/orders".into(), Some("12 partitions".into()))?;
/// if let Some(pending) = journal.pending_sync() {
///     journal.sync_done(pending.run())?; // now it survives a power cut
/// }
/// drop(journal);
///
/// let (journal, _) = Journal::open(disk, "__meta", JournalConfig::default(), 0)?;
/// assert_eq!(journal.get(b"topic/orders"), Some(&Bytes::from("12 partitions")));
/// # Ok::<(), ottla_log::JournalError>(())
/// ```
#[derive(Debug)]
pub struct Journal {
    log: Log,
    config: JournalConfig,
    live: BTreeMap<Bytes, Bytes>,
    live_bytes: u64,
    rewrite: Option<Rewrite>,
    /// After a rewrite that failed: the size of the log at which the next one is tried.
    retry_above: u64,
}

/// The offsets of a map that was written again.
#[derive(Clone, Copy, Debug)]
struct Rewritten {
    start: i64,
    end: i64,
}

/// The next step of a compaction that has written the map.
#[derive(Clone, Copy, Debug)]
enum Rewrite {
    /// A sync makes the map durable.
    AwaitsSync(Rewritten),
    /// The entries below `start` are deleted.
    AwaitsDeletion { start: i64 },
    /// The deletion ends.
    Deleting,
}

impl Journal {
    /// Opens the journal in `dir`, creating it if there is none, and reads the map.
    ///
    /// Every batch is checked, however the journal was closed. Damage below what was synced is an error that names it,
    /// and nothing is changed: half a map would look like one from which entries were removed. A write that a crash has
    /// torn is cut off.
    pub fn open(
        storage: Arc<dyn Storage>,
        dir: &str,
        config: JournalConfig,
        now_ms: i64,
    ) -> Result<(Self, RecoveryReport), JournalError> {
        Self::open_how(storage, dir, config, now_ms, &How { strict: true, ..How::default() })
    }

    /// [`Journal::open`] for a journal that is known to exist: a missing directory is an error.
    pub fn open_existing(
        storage: Arc<dyn Storage>,
        dir: &str,
        config: JournalConfig,
        now_ms: i64,
    ) -> Result<(Self, RecoveryReport), JournalError> {
        let how = How { strict: true, must_exist: true, ..How::default() };
        Self::open_how(storage, dir, config, now_ms, &how)
    }

    fn open_how(
        storage: Arc<dyn Storage>,
        dir: &str,
        config: JournalConfig,
        now_ms: i64,
        how: &How,
    ) -> Result<(Self, RecoveryReport), JournalError> {
        let io = |source| JournalError::Io { dir: dir.to_owned(), source };
        if !how.salvage && is_unfinished(&*storage, dir).map_err(io)? {
            let data_dir = storage.root().map(Path::to_path_buf);
            let losses = vec![Loss::Unfinished];
            return Err(LogError::Lost { dir: dir.to_owned(), losses, data_dir }.into());
        }
        let log_config = LogConfig {
            segment_bytes: config.segment_bytes,
            segment_ms: i64::MAX,
            retention_ms: None,
            retention_bytes: None,
            message_bytes_max: i32::MAX as u32,
            // The map is in memory already.
            tail_cache_bytes: 0,
            // Unsynced records are truncated at the first torn one, so that the map has the state of one moment.
            visible: Visible::Synced,
            ..LogConfig::default()
        };
        let (log, report) = recovery::open(storage, dir, log_config.bounded(), now_ms, how)?;
        let mut journal =
            Self { log, config, live: BTreeMap::new(), live_bytes: 0, rewrite: None, retry_above: 0 };
        journal.replay(how.salvage)?;
        Ok((journal, report))
    }

    /// Opens a damaged journal with its sound entries, writes them to a new segment, and deletes the older segments.
    /// The report lists the losses. Entries that were only in damaged batches are lost.
    pub fn salvage(
        storage: Arc<dyn Storage>,
        dir: &str,
        config: JournalConfig,
        now_ms: i64,
    ) -> Result<(Self, RecoveryReport), JournalError> {
        Self::salvage_with(storage, dir, config, now_ms, &[])
    }

    /// [`Journal::salvage`] that also sets and removes entries. All changes are durable before an older segment is deleted.
    ///
    /// A salvage that is interrupted leaves a journal that does not open: only another salvage does.
    pub fn salvage_with(
        storage: Arc<dyn Storage>,
        dir: &str,
        config: JournalConfig,
        now_ms: i64,
        changes: &[(Bytes, Option<Bytes>)],
    ) -> Result<(Self, RecoveryReport), JournalError> {
        let io = |source| JournalError::Io { dir: dir.to_owned(), source };
        // A journal that cannot be opened at all gets no mark.
        let check = check_log(&storage, dir)?;
        if !check.losses.iter().any(|loss| matches!(loss, Loss::NotAFile { .. })) {
            recovery::create_dir(&*storage, dir).map_err(io)?;
            checkpoint::store(&*storage, dir, UNFINISHED, &[]).map_err(io)?;
        }
        let how = How { full: true, salvage: true, ..How::default() };
        let (mut journal, report) = Self::open_how(storage.clone(), dir, config, now_ms, &how)?;
        journal.change(now_ms, changes)?;
        let rewrite = journal.write_anew(now_ms)?;
        journal.log.sync_now()?;
        let gone = journal.log.delete_records_before(rewrite.start)?;
        gone.files.run().map_err(io)?;
        journal.log.store_quarantine().map_err(io)?;
        storage.remove(&format!("{dir}/{UNFINISHED}")).map_err(io)?;
        storage.sync_dir(dir).map_err(io)?;
        Ok((journal, report))
    }

    /// Returns the value of a key.
    pub fn get(&self, key: &[u8]) -> Option<&Bytes> {
        self.live.get(key)
    }

    /// Returns all entries, sorted by key.
    pub fn iter(&self) -> impl Iterator<Item = (&Bytes, &Bytes)> {
        self.live.iter()
    }

    /// Returns the entries whose keys start with `prefix`, sorted by key.
    pub fn iter_prefix<'a>(&'a self, prefix: &'a [u8]) -> impl Iterator<Item = (&'a Bytes, &'a Bytes)> {
        self.live
            .range::<[u8], _>((std::ops::Bound::Included(prefix), std::ops::Bound::Unbounded))
            .take_while(move |(key, _)| key.starts_with(prefix))
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.live.len()
    }

    /// Returns `true` if the journal is empty.
    pub fn is_empty(&self) -> bool {
        self.live.is_empty()
    }

    /// Returns the log that stores the map.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// Sets or removes an entry. Returns the offset that [`Journal::synced_offset`] must reach for it to be durable.
    pub fn put(&mut self, now_ms: i64, key: Bytes, value: Option<Bytes>) -> Result<i64, JournalError> {
        self.put_all(now_ms, &[(key, value)])
    }

    /// Sets or removes several entries atomically: a crash keeps all of the changes or none. Otherwise the same as
    /// [`Journal::put`].
    pub fn put_all(&mut self, now_ms: i64, entries: &[(Bytes, Option<Bytes>)]) -> Result<i64, JournalError> {
        if entries.is_empty() {
            return Ok(self.log.end_offset());
        }
        self.change(now_ms, entries)?;
        let end = self.log.end_offset();
        self.rewrite_if_grown(now_ms);
        Ok(end)
    }

    /// Returns the offset after the last change.
    pub fn end_offset(&self) -> i64 {
        self.log.end_offset()
    }

    /// Returns the synced offset. All changes below it survive a power cut.
    pub fn synced_offset(&self) -> i64 {
        self.log.synced_offset()
    }

    /// Returns the reason why the journal is offline, if it is.
    pub fn offline_reason(&self) -> Option<&str> {
        self.log.offline_reason()
    }

    /// Returns the sync that makes all changes durable: see [`Log::pending_sync`].
    ///
    /// A broker that need not survive power cuts must still sync from time to time. The log is bounded because segments
    /// before a rewrite are deleted, and the deletion waits for a sync.
    pub fn pending_sync(&self) -> Option<PendingSync> {
        self.log.pending_sync()
    }

    /// Returns `true` if the deletion of old entries waits for a sync.
    pub fn wants_sync(&self) -> bool {
        matches!(self.rewrite, Some(Rewrite::AwaitsSync(_)))
    }

    /// Applies the result of a sync and returns the synced offset.
    ///
    /// It deletes nothing: see [`Journal::wants_deletion`].
    pub fn sync_done(&mut self, synced: Synced) -> Result<i64, JournalError> {
        let offset = self.log.sync_done(synced)?;
        if let Some(Rewrite::AwaitsSync(map)) = self.rewrite
            && offset >= map.end
        {
            self.rewrite = Some(Rewrite::AwaitsDeletion { start: map.start });
        }
        Ok(offset)
    }

    /// Returns `true` if old entries can be deleted: see [`Journal::begin_deletion`].
    pub fn wants_deletion(&self) -> bool {
        matches!(self.rewrite, Some(Rewrite::AwaitsDeletion { .. }))
    }

    /// Begins to delete the entries before a compaction that is durable; `None` if there are none, or their deletion is under way.
    ///
    /// Run it, which needs no lock, and report it with [`Journal::finish_deletion`]. The journal is not compacted again before that.
    pub fn begin_deletion(&mut self) -> Option<PendingStart> {
        let Some(Rewrite::AwaitsDeletion { start }) = self.rewrite else { return None };
        self.rewrite = Some(Rewrite::Deleting);
        match self.log.begin_deletion(start) {
            Ok(pending) => Some(pending),
            Err(error) => {
                self.deletion_failed(&error);
                None
            }
        }
    }

    /// Ends a deletion and returns the files to remove, which needs no lock. After an error the old entries stay, and the next
    /// compaction deletes them.
    pub fn finish_deletion(&mut self, stored: StoredStart) -> Option<PendingDelete> {
        match self.log.finish_deletion(stored) {
            Ok(gone) => {
                self.rewrite = None;
                Some(gone.files)
            }
            Err(error) => {
                self.deletion_failed(&error);
                None
            }
        }
    }

    fn deletion_failed(&mut self, error: &LogError) {
        tracing::warn!(dir = self.log.dir(), %error, "cannot delete old entries");
        self.rewrite = None;
        self.retry_above = self.log.size_bytes() + self.config.rewrite_bytes_min;
    }

    /// Syncs and deletes inline: for callers that may block.
    pub fn sync_now(&mut self) -> Result<i64, JournalError> {
        let Some(pending) = self.pending_sync() else { return Ok(self.log.sync_now()?) };
        let offset = self.sync_done(pending.run())?;
        if let Some(pending) = self.begin_deletion() {
            // Dropping the files removes them, and logs an error.
            drop(self.finish_deletion(pending.run()));
        }
        Ok(offset)
    }

    /// Closes the journal cleanly, so that opening it need not scan.
    pub fn close(mut self) -> Result<(), JournalError> {
        self.shut()
    }

    /// [`Journal::close`] for a journal that has other owners.
    pub fn shut(&mut self) -> Result<(), JournalError> {
        Ok(self.log.shut()?)
    }

    /// Appends the changes of entries as one batch and applies them.
    fn change(&mut self, now_ms: i64, entries: &[(Bytes, Option<Bytes>)]) -> Result<(), AppendError> {
        if entries.is_empty() {
            return Ok(());
        }
        let mut batch = BatchBuilder::new();
        for (key, value) in entries {
            batch.push(now_ms, Some(key), value.as_deref(), &[]);
        }
        self.append(now_ms, batch)?;
        for (key, value) in entries {
            self.apply(key, value.as_deref());
        }
        Ok(())
    }

    fn append(&mut self, now_ms: i64, batch: BatchBuilder) -> Result<(), AppendError> {
        let sealed = batch.seal(&Seal::default()).expect("without a codec nothing can fail");
        let bytes = sealed.to_bytes();
        drop(sealed);
        let bytes = bytes.try_into_mut().unwrap_or_else(|shared| BytesMut::from(&shared[..]));
        let options = AppendOptions {
            leader_epoch: LEADER_EPOCH,
            origin: Origin::Coordinator,
            check: Check::Trusted,
            ..AppendOptions::default()
        };
        self.log.append(now_ms, bytes, options).map(drop)
    }

    fn apply(&mut self, key: &[u8], value: Option<&[u8]>) {
        let bytes = |key: &[u8], value: &[u8]| (key.len() + value.len()) as u64 + ENTRY_OVERHEAD_BYTES;
        // Copied: a slice would pin the whole buffer it came in.
        let old = match value {
            Some(value) => {
                self.live_bytes += bytes(key, value);
                self.live.insert(Bytes::copy_from_slice(key), Bytes::copy_from_slice(value))
            }
            None => self.live.remove(key),
        };
        if let Some(old) = old {
            self.live_bytes -= bytes(key, &old);
        }
    }

    /// Reads the map and checks every batch: only a checksum distinguishes a changed entry from a true one, and only
    /// the neighbours reveal a changed offset.
    fn replay(&mut self, lenient: bool) -> Result<(), JournalError> {
        let dir = self.log.dir().to_owned();
        let (storage, start) = (self.log.storage.clone(), self.log.start_offset());
        let next_step = format!("no entry was dropped; {}", repair_step(storage.root()));
        let io = |source| JournalError::Io { dir: dir.clone(), source };
        let segments: Vec<(i64, u64, i64)> =
            self.log.segments.iter().map(|s| (s.base_offset, s.size, s.end_offset)).collect();
        // A segment with bytes and without offsets contradicts itself.
        let is_read = |(base, size, end): &(i64, u64, i64)| *end > start || (base == end && *size > 0);
        for (base, size, end) in segments.into_iter().filter(is_read) {
            let file = file_name(base, LOG_SUFFIX);
            let bytes = storage.open(&format!("{dir}/{file}"), Open::Existing).map_err(io)?;
            let mut window = Window::new(&*bytes, size, SCAN_CHUNK_BYTES);
            let (mut at, mut expected) = (0, base);
            while at < size {
                let known = self.log.bad.iter().find(|bad| bad.segment == base && bad.position == at);
                if let Some(bad) = known.filter(|_| lenient) {
                    (at, expected) = (at + bad.bytes, bad.next_offset);
                    continue;
                }
                let damaged = |what: String| JournalError::Damaged {
                    dir: dir.clone(),
                    file: file.clone(),
                    position: at,
                    offset: expected,
                    what: format!("{what}; {next_step}"),
                };
                let header = window.header(at).map_err(io)?.map_err(|error| damaged(error.to_string()))?;
                let batch = window.bytes(at, header.total_bytes()).map_err(io)?;
                header.verify_crc(batch).map_err(|error| damaged(error.to_string()))?;
                if header.base_offset != expected {
                    return Err(damaged(format!("the batch has base offset {}", header.base_offset)));
                }
                if header.partition_leader_epoch != LEADER_EPOCH && !lenient {
                    let epoch = header.partition_leader_epoch;
                    return Err(damaged(format!("leader epoch {epoch} instead of {LEADER_EPOCH}")));
                }
                let batch = Bytes::copy_from_slice(batch);
                let foreign = |source| JournalError::Foreign { dir: dir.clone(), source };
                let records = Records::of_batch(&batch, 0).map_err(foreign)?;
                let entries: Vec<_> = records.iter().collect::<Result<_, _>>().map_err(foreign)?;
                for entry in entries.into_iter().filter(|entry| entry.offset >= start) {
                    self.apply(entry.key.unwrap_or_default(), entry.value);
                }
                at += header.total_bytes() as u64;
                expected = header.next_offset();
            }
            if expected != end && !lenient {
                let what =
                    format!("the segment ends there, the next one starts at offset {end}; {next_step}");
                return Err(JournalError::Damaged { dir, file, position: at, offset: expected, what });
            }
        }
        Ok(())
    }

    fn rewrite_if_grown(&mut self, now_ms: i64) {
        let size = self.log.size_bytes();
        let grown = size > self.config.rewrite_bytes_min.max(2 * self.live_bytes).max(self.retry_above);
        if !grown || self.rewrite.is_some() {
            return;
        }
        match self.write_anew(now_ms) {
            Ok(map) => {
                self.rewrite = Some(Rewrite::AwaitsSync(map));
                self.retry_above = 0;
            }
            // Nothing is lost but space: what was written says again what is there already.
            Err(error) => {
                tracing::warn!(dir = self.log.dir(), %error, "cannot compact the journal");
                self.retry_above = self.log.size_bytes() + self.config.rewrite_bytes_min;
            }
        }
    }

    fn write_anew(&mut self, now_ms: i64) -> Result<Rewritten, JournalError> {
        self.log.roll(now_ms)?;
        let start = self.log.end_offset();
        let mut batch = BatchBuilder::new();
        let entries: Vec<(Bytes, Bytes)> = self.live.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
        for (key, value) in entries {
            batch.push(now_ms, Some(&key), Some(&value), &[]);
            if batch.len() >= self.config.batch_bytes {
                self.append(now_ms, std::mem::take(&mut batch))?;
            }
        }
        if !batch.is_empty() {
            self.append(now_ms, batch)?;
        }
        Ok(Rewritten { start, end: self.log.end_offset() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::CleanMark;
    use crate::storage::mem::MemStorage;

    /// Found by the fuzz target `journal`: it opened without its entries, and the next start refused it.
    #[test]
    fn a_mark_that_ends_before_its_segment_is_damage() {
        let disk = Arc::new(MemStorage::new());
        let (mut journal, _) =
            Journal::open(disk.clone(), "d", JournalConfig::default(), 0).expect("a new journal");
        journal.put(0, "key".into(), Some("value".into())).expect("appended");
        journal.close().expect("closed");
        let size = disk.contents("d/00000000000000000000.log").expect("there").len() as u64;
        let mark = CleanMark { segments: vec![(0, size)], end: 0 };
        disk.set_contents("d/synced", &[]);
        checkpoint::store(&*disk, "d", checkpoint::CLEAN_SHUTDOWN, &mark.encode()).expect("stored");
        let refused = Journal::open(disk, "d", JournalConfig::default(), 0).expect_err("damaged");
        assert!(refused.to_string().contains("damaged at position"), "{refused}");
    }
}
