//! Compaction: keeps the newest record of each key in the closed segments of a log.
//!
//! ```text
//!   pass 1  the dirty segments           key -> newest offset, until the map is full
//!   pass 2  all segments up to there     batches without superseded records   --> .cleaned --> .swap --> segments
//! ```
//!
//! [`Log::cleanable`] says how much there is to clean, and [`Log::begin_compaction`] begins. The passes need no lock. They
//! read closed segments, whose files do not change. The log is locked for the replacement of each group of segments: see
//! [`crate::swap`]. The rules are those of Kafka's `Cleaner`.

mod filter;
mod key_hash;
mod offset_map;
mod output;
mod range;
mod replace;
mod transactions;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use ottla_wire::BatchHeader;
use ottla_wire::batch::{Compression, HEADER_BYTES};
use ottla_wire::compress::decompress;
use ottla_wire::reader::{RecordError, RecordIter};

use self::filter::{Fate, Filter, LOOKUPS, Rules};
use self::key_hash::{KeyHash, KeyHasher};
use self::output::Output;
pub use self::range::Cleanable;
pub use self::replace::{CleanedGroup, PendingReplacement, ReplacedFiles};
use self::transactions::Transactions;
use crate::error::LogError;
use crate::log::Log;
use crate::marker::Control;
use crate::scan::{SCAN_CHUNK_BYTES, Window};
use crate::segment_name::{LOG_SUFFIX, file_name};
use crate::storage::{File, Open, Storage};
use crate::txn_index::AbortedTransaction;
use crate::verified::Verified;

/// Positions in an index have 31 bits.
const SEGMENT_BYTES_MAX: u64 = i32::MAX as u64;

/// The settings of a compaction that are not the log's.
#[derive(Clone, Debug)]
pub struct CompactionOptions {
    /// The wall clock, in milliseconds since 1970.
    pub now_ms: i64,
    /// The cleaner point: batches below it were cleaned before.
    pub first_dirty: i64,
    /// Segments that reach beyond this offset are left alone: the last stable offset, or the high watermark.
    pub stable_end: i64,
    /// The most bytes of the map of keys; each key takes 30. The map is as large as the keys need.
    pub map_bytes_max: usize,
    /// A secret for the hashes of keys. A new one for each compaction.
    pub secret: [u64; 2],
    /// The aborted transactions of the log. Their data goes.
    pub aborted: Vec<AbortedTransaction>,
    /// The largest segment that is written. `None` for the largest one possible.
    pub segment_bytes_max: Option<u32>,
}

/// The reasons why a compaction ends early. Segments that it has replaced until then stay replaced.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompactionError {
    /// The caller has stopped it.
    #[error("the compaction was stopped")]
    Stopped,
    /// Retention, a deletion or a truncation has removed segments that were read.
    #[error("log {dir}: segments were removed during the compaction")]
    Changed {
        /// The directory of the log.
        dir: String,
    },
    /// A batch is damaged. The log cannot be compacted until its partition is repaired or its records are deleted.
    #[error("log {dir}: cannot be compacted: {file} is damaged at position {position}: {reason}")]
    Damaged {
        /// The directory of the log that has the damage.
        dir: String,
        /// The segment's file.
        file: String,
        /// The position of the batch.
        position: u64,
        /// The damage.
        reason: String,
    },
    /// The storage failed, or the log is offline.
    #[error(transparent)]
    Log(#[from] LogError),
}

/// The figures of a compaction.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct CompactionReport {
    /// The next cleaner point.
    pub first_dirty: i64,
    /// Bytes read for the map of keys.
    pub map_bytes_read: u64,
    /// Keys in the map.
    pub keys: u64,
    /// The memory of the map in bytes.
    pub map_bytes: usize,
    /// Bytes of the segments that were cleaned.
    pub bytes_before: u64,
    /// Bytes of the segments in their place.
    pub bytes_after: u64,
    /// Records read by the second pass.
    pub records_read: u64,
    /// Records that stayed.
    pub records_kept: u64,
    /// Records without a key, which were removed.
    pub records_without_key: u64,
    /// Segments that were replaced.
    pub segments_replaced: usize,
}

/// A compaction that is under way. It owns its state and needs no lock.
#[derive(Debug)]
pub struct Compaction {
    storage: Arc<dyn Storage>,
    dir: Arc<str>,
    /// The segments that are left to clean.
    sources: VecDeque<Source>,
    first_dirty: i64,
    aborted: Vec<AbortedTransaction>,
    transactions: Transactions,
    rules: Rules,
    is_mapped: bool,
    filter: Filter,
    scratch: Vec<u8>,
    /// `segment.bytes`: a group of segments becomes one if it is not larger.
    group_bytes_max: u64,
    segment_bytes_max: u64,
    index_interval: u32,
    report: CompactionReport,
}

/// A closed segment that is cleaned.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) base_offset: i64,
    pub(crate) end_offset: i64,
    pub(crate) size: u64,
    pub(crate) created_ms: i64,
    /// It has a transaction index.
    pub(crate) has_aborted: bool,
    /// Identifies the segment: another one with the same base offset has another.
    pub(crate) identity: Arc<Verified>,
}

impl Log {
    /// Compacts the log. Blocks until it is done; with [`Log::begin_compaction`] others use the log meanwhile.
    pub fn compact(&mut self, options: CompactionOptions) -> Result<CompactionReport, CompactionError> {
        let mut compaction = self.begin_compaction(options)?;
        while let Some(group) = compaction.clean_next(&|| false)? {
            let pending = self.begin_replacement(group)?;
            self.finish_replacement(pending.run())?.run()?;
        }
        Ok(compaction.report())
    }
}

impl Compaction {
    /// Returns what was done so far. The cleaner point is valid once [`Compaction::clean_next`] has returned `None`.
    pub fn report(&self) -> CompactionReport {
        let counts = self.filter.counts;
        CompactionReport {
            records_read: counts.records_read,
            records_kept: counts.records_kept,
            records_without_key: counts.without_key,
            ..self.report
        }
    }

    /// Cleans the next group of segments; `None` after the last one.
    ///
    /// The first call builds the map of keys. `should_stop` is called about once for each MiB.
    pub fn clean_next(
        &mut self,
        should_stop: &dyn Fn() -> bool,
    ) -> Result<Option<CleanedGroup>, CompactionError> {
        if !self.is_mapped {
            self.build_map(should_stop)?;
            self.is_mapped = true;
        }
        while let Some(group) = self.next_group() {
            let size: u64 = group.iter().map(|source| source.size).sum();
            self.report.bytes_before += size;
            match self.clean(&group, should_stop)? {
                None => self.report.bytes_after += size,
                Some(cleaned) => {
                    self.report.bytes_after += cleaned.bytes();
                    self.report.segments_replaced += group.len();
                    return Ok(Some(cleaned));
                }
            }
        }
        Ok(None)
    }

    /// Takes the next segments that fit together into one.
    fn next_group(&mut self) -> Option<Vec<Source>> {
        let first = self.sources.pop_front()?;
        let (base_offset, mut bytes) = (first.base_offset, first.size);
        let mut group = vec![first];
        while let Some(next) = self.sources.front() {
            let is_in_reach = i32::try_from(next.end_offset - 1 - base_offset).is_ok();
            if bytes + next.size > self.group_bytes_max || !is_in_reach {
                break;
            }
            bytes += next.size;
            group.extend(self.sources.pop_front());
        }
        Some(group)
    }

    /// Pass 1: the newest offset of each key in the dirty segments, until the map is full.
    fn build_map(&mut self, should_stop: &dyn Fn() -> bool) -> Result<(), CompactionError> {
        let mut transactions = Transactions::new(self.aborted.clone());
        let dirty: Vec<Source> =
            self.sources.iter().filter(|source| source.end_offset > self.first_dirty).cloned().collect();
        let mut is_full = false;
        for source in dirty {
            let file = self.open(&source)?;
            let (rules, first_dirty) = (&mut self.rules, self.first_dirty);
            self.report.map_bytes_read += walk(&self.dir, &file, &source, should_stop, |header, batch| {
                is_full = !map_batch(rules, &mut transactions, first_dirty, header, batch)?;
                Ok(!is_full)
            })?;
            if is_full {
                break;
            }
            self.rules.latest = source.end_offset - 1;
        }
        let latest = self.rules.latest;
        self.sources.retain(|source| source.base_offset <= latest);
        self.report.first_dirty = latest + 1;
        self.report.keys = self.rules.map.len() as u64;
        self.report.map_bytes = self.rules.map.bytes();
        Ok(())
    }

    /// Pass 2 for a group. `None` if its only segment stays as it is.
    fn clean(
        &mut self,
        group: &[Source],
        should_stop: &dyn Fn() -> bool,
    ) -> Result<Option<CleanedGroup>, CompactionError> {
        let base_offset = group[0].base_offset;
        let only = if let [only] = group { Some(self.open(only)?) } else { None };
        let dir = self.dir.clone();
        let failed = |source| failed(&dir, "write a cleaned segment", source);
        let (interval, bytes_max) = (self.index_interval, self.segment_bytes_max);
        let mut output =
            Output::new(self.storage.clone(), self.dir.clone(), base_offset, interval, bytes_max, only);
        let mut written = Ok(());
        for source in group {
            let file = self.open(source)?;
            let Self { rules, filter, scratch, transactions, .. } = self;
            let mut epoch = None;
            walk(&dir, &file, source, should_stop, |header, batch| {
                // Offsets that an operator has given up.
                let before = epoch.unwrap_or(header.partition_leader_epoch);
                epoch = Some(header.partition_leader_epoch);
                let fate = filter.batch(rules, transactions, header, batch, scratch)?;
                written = output.gap_to(header.base_offset, before, false).and_then(|()| match fate {
                    Fate::Unchanged => output.keep(header, batch),
                    Fate::Rewritten(header) => output.rewritten(&header, scratch),
                    Fate::Removed => output.remove(header),
                });
                Ok(written.is_ok())
            })?;
            std::mem::replace(&mut written, Ok(())).map_err(failed)?;
            output.gap_to(source.end_offset, epoch.unwrap_or(-1), false).map_err(failed)?;
        }
        let aborted = self.transactions.take_retained();
        let Some(outputs) = output.finish().map_err(failed)? else { return Ok(None) };
        let (storage, sources) = (self.storage.clone(), group.to_vec());
        let mut cleaned = CleanedGroup::new(storage, self.dir.clone(), sources, outputs, aborted);
        if group.iter().any(|source| source.has_aborted) {
            cleaned.write_transaction_indexes().map_err(failed)?;
        }
        Ok(Some(cleaned))
    }

    fn open(&self, source: &Source) -> Result<Arc<dyn File>, CompactionError> {
        let path = format!("{}/{}", self.dir, file_name(source.base_offset, LOG_SUFFIX));
        self.storage.open(&path, Open::Existing).map_err(|error| {
            // Retention removes the files of segments that the log has let go of.
            if error.kind() == io::ErrorKind::NotFound {
                return CompactionError::Changed { dir: self.dir.to_string() };
            }
            failed(&self.dir, "open a segment", error)
        })
    }
}

fn failed(dir: &str, doing: &str, source: io::Error) -> CompactionError {
    LogError::Io { dir: dir.to_owned(), doing: doing.to_owned(), source }.into()
}

/// Calls `on_batch` for each batch of a segment until it returns `false`. Returns the number of bytes read.
fn walk(
    dir: &str,
    file: &Arc<dyn File>,
    source: &Source,
    should_stop: &dyn Fn() -> bool,
    mut on_batch: impl FnMut(&BatchHeader, &[u8]) -> Result<bool, RecordError>,
) -> Result<u64, CompactionError> {
    let damaged = |position, reason: String| CompactionError::Damaged {
        dir: dir.to_owned(),
        file: file_name(source.base_offset, LOG_SUFFIX),
        position,
        reason,
    };
    let failed = |error| failed(dir, "read a segment", error);
    let mut window = Window::new(&**file, source.size, SCAN_CHUNK_BYTES);
    let (mut at, mut asked_at, mut expected) = (0, 0, source.base_offset);
    if should_stop() {
        return Err(CompactionError::Stopped);
    }
    while at < source.size {
        if at - asked_at >= SCAN_CHUNK_BYTES as u64 {
            asked_at = at;
            if should_stop() {
                return Err(CompactionError::Stopped);
            }
        }
        let header = window.header(at).map_err(failed)?;
        let header = header.map_err(|error| damaged(at, error.to_string()))?;
        // The window has the whole batch after this call.
        let batch = window.bytes(at, header.total_bytes()).map_err(failed)?;
        header.verify_crc(batch).map_err(|error| damaged(at, error.to_string()))?;
        if header.base_offset < expected || header.next_offset() > source.end_offset {
            let what = format!("offset {} where {expected} is expected", header.base_offset);
            return Err(damaged(at, what));
        }
        expected = header.next_offset();
        let goes_on = on_batch(&header, batch).map_err(|error| damaged(at, error.to_string()))?;
        at += header.total_bytes() as u64;
        if !goes_on {
            break;
        }
    }
    Ok(at)
}

/// Adds the keys of a batch to the map. Returns `false` if the map is full.
fn map_batch(
    rules: &mut Rules,
    transactions: &mut Transactions,
    first_dirty: i64,
    header: &BatchHeader,
    batch: &[u8],
) -> Result<bool, RecordError> {
    let codec = header.compression()?;
    if header.is_control() {
        let control = Control::of_batch(header, batch)?;
        transactions.pass_control(header, control);
    } else if !transactions.pass_data(header) && header.last_offset() >= first_dirty {
        let inflated;
        let block = if codec == Compression::None {
            &batch[HEADER_BYTES..]
        } else {
            inflated = decompress(codec, &batch[HEADER_BYTES..], rules.decompressed_bytes_max)
                .map_err(|source| RecordError::Compress { base_offset: header.base_offset, source })?;
            &inflated[..]
        };
        let mut records = RecordIter::new(header, block);
        let mut keys = [(KeyHash([0; 2]), 0); LOOKUPS];
        loop {
            let mut count = 0;
            while count < LOOKUPS {
                let Some(record) = records.next().transpose()? else { break };
                if let Some(key) = record.key.filter(|_| record.offset >= first_dirty) {
                    keys[count] = (rules.map.hash(key), record.offset);
                    count += 1;
                }
            }
            if count == 0 {
                break;
            }
            rules.map.touch(keys[..count].iter().map(|(key, _)| *key));
            for (key, offset) in &keys[..count] {
                if !rules.map.put(*key, *offset) {
                    return Ok(false);
                }
                rules.latest = *offset;
            }
        }
    }
    rules.latest = rules.latest.max(header.last_offset());
    Ok(true)
}
