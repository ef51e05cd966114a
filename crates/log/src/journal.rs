//! A map kept as a log: what a broker has to remember beside the records.
//!
//! Each change is a record; a change of several entries is one batch, and happens as a whole or not at all. When the
//! log has grown far beyond the map, the map is written anew into a fresh segment, and once that is durable everything
//! before it is deleted. A crash between any two of these steps loses nothing: entries written twice say the same twice.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use ottla_wire::reader::{RecordError, Records};
use ottla_wire::{BatchBuilder, Batches, Seal};

use crate::append::{AppendOptions, Check, Origin};
use crate::config::LogConfig;
use crate::error::{AppendError, LogError, ReadError};
use crate::log::Log;
use crate::recovery::RecoveryReport;
use crate::segment::BadRange;
use crate::storage::Storage;
use crate::sync::{PendingSync, Synced};

/// How much is read at a time when a journal is opened.
const READ_BYTES: usize = 1 << 20;
/// A record's share of what a batch says about it, roughly: lengths, deltas, the header.
const ENTRY_OVERHEAD_BYTES: u64 = 16;

/// Settings of a journal.
#[derive(Clone, Debug, PartialEq)]
pub struct JournalConfig {
    /// The map is not written anew while the log is smaller than this. Default 1 MiB.
    pub rewrite_bytes_min: u64,
    /// Entries written anew go into batches of about this size. Default 256 KiB.
    pub batch_bytes: usize,
    /// A segment is closed before it grows beyond this. Default 64 MiB.
    pub segment_bytes: u32,
}

impl Default for JournalConfig {
    fn default() -> Self {
        Self { rewrite_bytes_min: 1 << 20, batch_bytes: 256 << 10, segment_bytes: 64 << 20 }
    }
}

/// Why a journal cannot be opened or changed.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The log cannot be opened or kept.
    #[error(transparent)]
    Log(#[from] LogError),
    /// A change cannot be appended; it has not happened.
    #[error(transparent)]
    Append(#[from] AppendError),
    /// The log cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A batch whose checksum is right holds no entries: something else wrote it.
    #[error("journal {dir}: {source}")]
    Foreign {
        /// The journal's directory.
        dir: String,
        /// What is wrong with the batch.
        source: RecordError,
    },
    /// The file cannot be read.
    #[error("journal {dir}: cannot read: {source}")]
    Io {
        /// The journal's directory.
        dir: String,
        /// What the storage said.
        source: io::Error,
    },
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

/// The map was written anew, and waits to be durable.
#[derive(Clone, Copy, Debug)]
struct Rewrite {
    start: i64,
    end: i64,
}

impl Journal {
    /// Opens the journal in `dir`, creating it if there is none, and reads the map.
    ///
    /// Entries in damaged batches are missing: see [`RecoveryReport::quarantined`] and [`Journal::damaged`].
    pub fn open(
        storage: Arc<dyn Storage>,
        dir: &str,
        config: JournalConfig,
        now_ms: i64,
    ) -> Result<(Self, RecoveryReport), JournalError> {
        let log_config = LogConfig {
            segment_bytes: config.segment_bytes,
            segment_ms: i64::MAX,
            retention_ms: None,
            retention_bytes: None,
            message_bytes_max: i32::MAX as u32,
            // The map is in memory already.
            tail_cache_bytes: 0,
            ..LogConfig::default()
        };
        let (log, report) = Log::open(storage, dir, log_config, now_ms)?;
        let mut journal =
            Self { log, config, live: BTreeMap::new(), live_bytes: 0, rewrite: None, retry_above: 0 };
        journal.replay()?;
        Ok((journal, report))
    }

    /// The value of a key.
    pub fn get(&self, key: &[u8]) -> Option<&Bytes> {
        self.live.get(key)
    }

    /// All entries, by key.
    pub fn iter(&self) -> impl Iterator<Item = (&Bytes, &Bytes)> {
        self.live.iter()
    }

    /// Entries whose keys start with `prefix`, by key.
    pub fn iter_prefix<'a>(&'a self, prefix: &'a [u8]) -> impl Iterator<Item = (&'a Bytes, &'a Bytes)> {
        self.live
            .range::<[u8], _>((std::ops::Bound::Included(prefix), std::ops::Bound::Unbounded))
            .take_while(move |(key, _)| key.starts_with(prefix))
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.live.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.live.is_empty()
    }

    /// The log underneath.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// Damage whose entries are missing.
    pub fn damaged(&self) -> &[BadRange] {
        self.log.quarantined()
    }

    /// Sets or removes an entry. Returns the offset that [`Journal::synced_offset`] must reach for it to be durable.
    pub fn put(&mut self, now_ms: i64, key: Bytes, value: Option<Bytes>) -> Result<i64, JournalError> {
        self.put_all(now_ms, &[(key, value)])
    }

    /// Sets or removes several entries at once: after a crash all of them are there or none. Otherwise as
    /// [`Journal::put`].
    pub fn put_all(&mut self, now_ms: i64, entries: &[(Bytes, Option<Bytes>)]) -> Result<i64, JournalError> {
        if entries.is_empty() {
            return Ok(self.log.end_offset());
        }
        let mut batch = BatchBuilder::new();
        for (key, value) in entries {
            batch.push(now_ms, Some(key), value.as_deref(), &[]);
        }
        self.append(now_ms, batch)?;
        for (key, value) in entries {
            self.apply(key, value.as_deref());
        }
        let end = self.log.end_offset();
        self.rewrite_if_grown(now_ms);
        Ok(end)
    }

    /// Everything put before this offset survives a power cut.
    pub fn synced_offset(&self) -> i64 {
        self.log.synced_offset()
    }

    /// What has to be synced for all changes to be durable: see [`Log::pending_sync`].
    ///
    /// A broker that does not care for power cuts still has to do this now and then: the log is bounded only because
    /// what precedes a rewrite is deleted, and that waits for a sync.
    pub fn pending_sync(&self) -> Option<PendingSync> {
        self.log.pending_sync()
    }

    /// Whether deleting old entries waits for a sync.
    pub fn wants_sync(&self) -> bool {
        self.rewrite.is_some()
    }

    /// Takes the result of a sync; returns the synced offset.
    pub fn sync_done(&mut self, synced: Synced) -> Result<i64, JournalError> {
        let offset = self.log.sync_done(synced)?;
        if let Some(rewrite) = self.rewrite
            && offset >= rewrite.end
        {
            self.rewrite = None;
            // If this fails the old entries stay, and the next rewrite takes them along.
            match self.log.delete_records_before(rewrite.start) {
                Ok(gone) => drop(gone.files),
                Err(error) => {
                    tracing::warn!(dir = self.log.dir(), %error, "cannot delete old entries");
                    self.retry_above = self.log.size_bytes() + self.config.rewrite_bytes_min;
                }
            }
        }
        Ok(offset)
    }

    /// Syncs inline: for callers that may block.
    pub fn sync_now(&mut self) -> Result<i64, JournalError> {
        match self.pending_sync() {
            Some(pending) => self.sync_done(pending.run()),
            None => Ok(self.log.sync_now()?),
        }
    }

    /// Closes the journal cleanly, so that opening it need not scan.
    pub fn close(mut self) -> Result<(), JournalError> {
        self.shut()
    }

    /// [`Journal::close`] for a journal that others still hold.
    pub fn shut(&mut self) -> Result<(), JournalError> {
        Ok(self.log.shut()?)
    }

    fn append(&mut self, now_ms: i64, batch: BatchBuilder) -> Result<(), AppendError> {
        let sealed = batch.seal(&Seal::default()).expect("without a codec nothing can fail");
        let bytes = sealed.to_bytes();
        drop(sealed);
        let bytes = bytes.try_into_mut().unwrap_or_else(|shared| BytesMut::from(&shared[..]));
        let options = AppendOptions { leader_epoch: 0, origin: Origin::Coordinator, check: Check::Trusted };
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

    fn replay(&mut self) -> Result<(), JournalError> {
        let dir = self.log.dir().to_owned();
        let foreign = |source| JournalError::Foreign { dir: dir.clone(), source };
        let mut from = self.log.start_offset();
        while from < self.log.end_offset() {
            let read = match self.log.read(from, READ_BYTES, i64::MAX, true) {
                Ok(read) => read,
                Err(ReadError::Corrupt { next, .. }) if next > from => {
                    from = next;
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            let bytes =
                read.chain.to_bytes().map_err(|source| JournalError::Io { dir: dir.clone(), source })?;
            let before = from;
            for batch in Batches::new(&bytes) {
                let (header, range) = batch.map_err(|error| foreign(error.into()))?;
                let records = Records::of_batch(&bytes.slice(range), 0).map_err(foreign)?;
                let entries: Vec<_> = records.iter().collect::<Result<_, _>>().map_err(foreign)?;
                for entry in entries.into_iter().filter(|entry| entry.offset >= from) {
                    self.apply(entry.key.unwrap_or_default(), entry.value);
                }
                from = header.next_offset();
            }
            from = from.max(read.next_offset.unwrap_or(from));
            if from == before {
                // Never while reads keep their word: at least one batch, whole.
                return Err(JournalError::Io { dir: dir.clone(), source: io::ErrorKind::InvalidData.into() });
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
            Ok(rewrite) => {
                self.rewrite = Some(rewrite);
                self.retry_above = 0;
            }
            // Nothing is lost but space: what was written says again what is there already.
            Err(error) => {
                tracing::warn!(dir = self.log.dir(), %error, "cannot write the journal anew");
                self.retry_above = self.log.size_bytes() + self.config.rewrite_bytes_min;
            }
        }
    }

    fn write_anew(&mut self, now_ms: i64) -> Result<Rewrite, JournalError> {
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
        Ok(Rewrite { start, end: self.log.end_offset() })
    }
}
