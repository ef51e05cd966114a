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
mod newest;
mod offset_map;
mod output;
mod range;
mod replace;
mod runs;
mod transactions;

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use ottla_wire::BatchHeader;
use ottla_wire::reader::{RecordError, RecordIter};

use self::filter::{Fate, Filter, LOOKUPS, Rules, all_read, block_of};
use self::key_hash::{KeyHash, KeyHasher};
use self::output::Output;
pub use self::range::Cleanable;
pub use self::replace::{CleanedGroup, PendingReplacement, ReplacedFiles};
use self::runs::{Run, Runs};
use self::transactions::Transactions;
use crate::error::LogError;
use crate::log::Log;
use crate::marker::Control;
use crate::scan::Window;
use crate::segment::Segment;
use crate::segment_name::{LOG_SUFFIX, file_name};
use crate::storage::{File, Open, Storage};
use crate::txn_index::AbortedTransaction;
use crate::verified::{Unsound, Verified};

/// A read of a segment, which the processor's cache holds until its records are read.
const READ_BYTES: usize = 256 << 10;
/// The bytes after which a pass asks whether it should stop.
const ASK_BYTES: u64 = 1 << 20;
/// The most segments that are replaced together: a compaction that is stopped has lost the work on one group.
const GROUP_SEGMENTS_MAX: usize = 64;
/// The size of records that stay, in parts of the average.
const SIZE_MARGIN: f64 = 1.25;
/// Positions in an index have 31 bits.
const SEGMENT_BYTES_MAX: u64 = i32::MAX as u64;

/// The settings of a compaction that are not the log's.
#[derive(Clone, Debug)]
pub struct CompactionOptions {
    /// The wall clock, in milliseconds since 1970. A delete horizon begins there.
    pub now_ms: i64,
    /// The time that delete horizons and the ages of records are compared with. It may be before `now_ms`: the caller does not trust a
    /// wall clock that has jumped ahead.
    pub age_ms: i64,
    /// The cleaner point: batches below it were cleaned before.
    pub first_dirty: i64,
    /// Segments that reach beyond this offset are left alone: the last stable offset, or the high watermark.
    pub stable_end: i64,
    /// The most bytes of the map of keys, each of which takes 30, and of a bit for each dirty offset. Both are as large as
    /// the keys and offsets need.
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
    /// A batch is damaged. Until its partition is repaired or its records are deleted, the log can be compacted up to its segment, or not at
    /// all if the segment was cleaned before.
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
    runs: Runs,
    is_mapped: bool,
    filter: Filter,
    scratch: Vec<u8>,
    /// `segment.bytes`: a group of segments becomes one if what is left of it is not larger.
    group_bytes_max: u64,
    segment_bytes_max: u64,
    index_interval: u32,
    report: CompactionReport,
    /// The damage at which a pass has ended.
    damage: Option<FoundDamage>,
}

/// Damage that a pass has found.
#[derive(Debug)]
struct FoundDamage {
    segment: i64,
    identity: Arc<Verified>,
    unsound: Unsound,
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
        if let Some(pending) = self.pending_closed_sync() {
            self.sync_done(pending.run())?;
        }
        loop {
            let cleaned = compaction.clean_next(&|| false);
            if cleaned.is_err() {
                self.note_damage(&mut compaction);
            }
            let Some(group) = cleaned? else { break };
            let pending = self.begin_replacement(group)?;
            self.finish_replacement(pending.run())?.run()?;
        }
        Ok(compaction.report())
    }

    /// Sets aside the damage at which a compaction has ended, if there is any. Call it after [`Compaction::clean_next`] has failed: the
    /// next compaction ends at the damage before it reads anything.
    pub fn note_damage(&mut self, compaction: &mut Compaction) {
        let Some(FoundDamage { segment, identity, unsound }) = compaction.damage.take() else { return };
        let is_same =
            |found: &Segment| found.base_offset == segment && Arc::ptr_eq(&found.verified, &identity);
        // A log that is closed may have another one in its directory.
        let number = self.segments.iter().position(is_same).filter(|_| self.offline.is_none());
        let Some(number) = number else { return };
        if let Err(error) = self.confirm_damage(number, unsound) {
            tracing::warn!(dir = &*self.dir, %error, "cannot set the damage that a compaction has found aside");
        }
    }

    fn confirm_damage(&mut self, number: usize, unsound: Unsound) -> io::Result<()> {
        self.open_segment(number).map_err(|(source, _)| source)?;
        let view = self.segments[number].view(&self.bad);
        let Unsound { position, expected } = unsound;
        // The log may have been truncated while the compaction read.
        let (_, found, _) = view.verify(position, position + 1, Some(expected))?;
        if let Some(found) = found {
            self.set_unsound_aside(number, found)?;
        }
        Ok(())
    }
}

impl Compaction {
    /// Returns what was done so far. The cleaner point is valid once [`Compaction::clean_next`] has returned `None`.
    pub fn report(&self) -> CompactionReport {
        let counts = self.filter.counts;
        CompactionReport {
            records_read: counts.records_read,
            records_kept: counts.records_kept,
            records_without_key: counts.without_key + self.rules.without_key,
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

    /// Takes the next segments of which what is left fits into one.
    fn next_group(&mut self) -> Option<Vec<Source>> {
        let first = self.sources.pop_front()?;
        let (base_offset, mut bytes) = (first.base_offset, self.bytes_left(&first));
        let mut group = vec![first];
        while let Some(next) = self.sources.front() {
            let is_in_reach = i32::try_from(next.end_offset - 1 - base_offset).is_ok();
            let bytes_left = self.bytes_left(next);
            if bytes + bytes_left > self.group_bytes_max || !is_in_reach || group.len() == GROUP_SEGMENTS_MAX
            {
                break;
            }
            bytes += bytes_left;
            group.extend(self.sources.pop_front());
        }
        Some(group)
    }

    /// The size that a segment will have, about: the records that stay are supposed to be as large as others.
    fn bytes_left(&self, source: &Source) -> u64 {
        let (first, last) = (source.base_offset, source.end_offset - 1);
        let is_known = last <= self.rules.latest && self.rules.newest.covers(first, last);
        let offsets = source.end_offset - first;
        if !is_known || offsets <= 0 {
            return source.size;
        }
        let part = self.rules.newest.count(first, last) as f64 / offsets as f64;
        ((source.size as f64 * part * SIZE_MARGIN) as u64).min(source.size)
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
            let (runs, damage) = (&mut self.runs, &mut self.damage);
            let walk = Walk { dir: &self.dir, file: &*file, source: &source, should_stop, damage };
            self.report.map_bytes_read += walk.run(
                |_, _| None,
                |step| {
                    let Step::Batch { header, batch, position } = step else { return Ok(true) };
                    is_full = !map_batch(rules, &mut transactions, first_dirty, header, batch)?;
                    if !is_full {
                        runs.add(header, position);
                    }
                    Ok(!is_full)
                },
            )?;
            if is_full {
                break;
            }
            self.rules.latest = source.end_offset - 1;
        }
        let latest = self.rules.latest;
        self.sources.retain(|source| source.base_offset <= latest);
        self.report.first_dirty = latest + 1;
        self.report.keys = self.rules.map.len() as u64;
        self.report.map_bytes = self.rules.map.bytes() + self.rules.newest.bytes() + self.runs.bytes();
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
        // The size of the rest is an estimate. A single segment may be larger than `segment.bytes`, if that was lowered.
        let size: u64 = group.iter().map(|source| source.size).sum();
        let is_estimated = size > self.group_bytes_max && group.len() > 1;
        let bytes_max = if is_estimated {
            self.segment_bytes_max.min(self.group_bytes_max)
        } else {
            self.segment_bytes_max
        };
        let interval = self.index_interval;
        let modified_ms = group.iter().filter_map(|source| self.modified_ms(source)).max();
        let (storage, dir_of) = (self.storage.clone(), self.dir.clone());
        let mut output = Output::new(storage, dir_of, base_offset, interval, bytes_max, modified_ms, only);
        let mut written = Ok(());
        for source in group {
            let file = self.open(source)?;
            let Self { rules, filter, scratch, transactions, runs, damage, .. } = self;
            let mut epoch = None;
            let superseded = |offsets, position| runs.superseded(rules, offsets, position);
            let walk = Walk { dir: &dir, file: &*file, source, should_stop, damage };
            walk.run(superseded, |step| {
                let (header, batch) = match step {
                    Step::Batch { header, batch, .. } => (header, batch),
                    Step::Superseded(run) => {
                        filter.counts.records_read += run.records;
                        let before = epoch.replace(run.epoch).unwrap_or(run.epoch);
                        written = output
                            .gap_to(run.base_offset, before, false)
                            .and_then(|()| output.gap_to(run.next_offset, run.epoch, false));
                        return Ok(written.is_ok());
                    }
                };
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

    /// Returns when the file of a source was last written, if the storage knows.
    fn modified_ms(&self, source: &Source) -> Option<i64> {
        let path = format!("{}/{}", self.dir, file_name(source.base_offset, LOG_SUFFIX));
        self.storage.modified_ms(&path).ok().flatten()
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

/// A pass over a segment.
struct Walk<'a> {
    dir: &'a str,
    file: &'a dyn File,
    source: &'a Source,
    should_stop: &'a dyn Fn() -> bool,
    damage: &'a mut Option<FoundDamage>,
}

/// A step of a pass.
enum Step<'a> {
    Batch {
        header: &'a BatchHeader,
        batch: &'a [u8],
        position: u64,
    },
    /// These batches were not read.
    Superseded(Run),
}

impl Walk<'_> {
    /// Calls `on_step` for each batch until it returns `false`. Returns the position after the last one.
    ///
    /// `superseded` gets the range of the offsets that are left, and the position where they begin. It returns batches that
    /// need not be read.
    fn run(
        self,
        mut superseded: impl FnMut(Range<i64>, u64) -> Option<Run>,
        mut on_step: impl FnMut(Step<'_>) -> Result<bool, RecordError>,
    ) -> Result<u64, CompactionError> {
        let Self { dir, file, source, should_stop, damage } = self;
        let damaged = |position, reason: String| CompactionError::Damaged {
            dir: dir.to_owned(),
            file: file_name(source.base_offset, LOG_SUFFIX),
            position,
            reason,
        };
        let failed = |error| failed(dir, "read a segment", error);
        let mut window = Window::new(file, source.size, READ_BYTES);
        let (mut at, mut asked_at, mut expected) = (0, 0, source.base_offset);
        if should_stop() {
            return Err(CompactionError::Stopped);
        }
        while at < source.size {
            if at - asked_at >= ASK_BYTES {
                asked_at = at;
                if should_stop() {
                    return Err(CompactionError::Stopped);
                }
            }
            let position = at;
            let goes_on = if let Some(run) = superseded(expected..source.end_offset, at) {
                (at, expected) = (run.end, run.next_offset);
                on_step(Step::Superseded(run))
            } else {
                let mut unsound = |at, reason: String| {
                    let unsound = Unsound { position: at, expected };
                    let (segment, identity) = (source.base_offset, source.identity.clone());
                    *damage = Some(FoundDamage { segment, identity, unsound });
                    damaged(at, reason)
                };
                let header = window.header(at).map_err(failed)?;
                let header = header.map_err(|error| unsound(at, error.to_string()))?;
                // The window has the whole batch after this call.
                let batch = window.bytes(at, header.total_bytes()).map_err(failed)?;
                header.verify_crc(batch).map_err(|error| unsound(at, error.to_string()))?;
                if header.base_offset < expected || header.next_offset() > source.end_offset {
                    let what = format!("offset {} where {expected} is expected", header.base_offset);
                    return Err(unsound(at, what));
                }
                (at, expected) = (at + header.total_bytes() as u64, header.next_offset());
                on_step(Step::Batch { header: &header, batch, position })
            };
            if !goes_on.map_err(|error| damaged(position, error.to_string()))? {
                break;
            }
        }
        Ok(at)
    }
}

/// Adds the keys of a batch to the map. Returns `false` if the map is full.
fn map_batch(
    rules: &mut Rules,
    transactions: &mut Transactions,
    first_dirty: i64,
    header: &BatchHeader,
    batch: &[u8],
) -> Result<bool, RecordError> {
    if header.is_control() {
        let control = Control::of_batch(header, batch)?;
        transactions.pass_control(header, control);
    } else if !transactions.pass_data(header) && header.last_offset() >= first_dirty {
        let Some(block) = block_of(header, batch, rules.decompressed_bytes_max)? else {
            // Its keys are not known: all of its records stay.
            rules.newest.keep_all(header.base_offset, header.last_offset());
            rules.latest = rules.latest.max(header.last_offset());
            return Ok(true);
        };
        let mut records = RecordIter::new(header, &block);
        let mut keys = [(KeyHash([0; 2]), 0); LOOKUPS];
        let mut without_key = 0;
        loop {
            let mut count = 0;
            while count < LOOKUPS {
                let Some(record) = records.next().transpose()? else { break };
                if record.offset < first_dirty {
                    continue;
                }
                if let Some(key) = record.key {
                    keys[count] = (rules.map.hash(key), record.offset);
                    count += 1;
                } else {
                    without_key += 1;
                }
            }
            if count == 0 {
                break;
            }
            rules.map.touch(keys[..count].iter().map(|(key, _)| *key));
            for (key, offset) in &keys[..count] {
                let Some(older) = rules.map.put(*key, *offset) else { return Ok(false) };
                rules.newest.replace(older, *offset);
                rules.latest = *offset;
            }
        }
        all_read(header, &records)?;
        if rules.newest.covers(header.base_offset, header.last_offset()) {
            rules.without_key += without_key;
        }
    }
    rules.latest = rules.latest.max(header.last_offset());
    Ok(true)
}
