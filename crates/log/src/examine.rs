//! Examines the files of a log without changing them: it finds sound, torn and lost records.
//!
//! [`crate::recovery`] executes the [`Plan`] that is made here. Only a salvage executes a plan with losses, so a log
//! that has lost records stays unchanged.

use std::io;
use std::sync::Arc;

use crate::bad_range::BadRange;
use crate::checkpoint::{self, Checkpoint, CleanMark};
use crate::config::Visible;
use crate::error::{LogError, Loss};
use crate::index::{Index, Loaded, OffsetEntry};
use crate::log::Log;
use crate::recovery::{How, RecoveryReport};
use crate::scan::{LOOKUP_CHUNK_BYTES, Scanned, Window, scan};
use crate::segment::{IndexBuilder, Segment};
use crate::segment_name::{
    INDEX_SUFFIX, LOG_SUFFIX, SNAPSHOT_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX, file_name, parse_name,
};
use crate::storage::{Entry, FRESH_SUFFIX, Storage};
use crate::swap::{self, SettledView};
use crate::synced::{self, Found};
use crate::txn_index::TxnIndex;

/// The content of a log directory.
#[derive(Default)]
pub(crate) struct Directory {
    pub(crate) exists: bool,
    /// Base offsets and sizes of the segments, in order.
    pub(crate) segments: Vec<(i64, u64)>,
    /// Base offsets and sizes of the transaction indexes, in order.
    pub(crate) aborted: Vec<(i64, u64)>,
    /// Unneeded files: incomplete replacements, and indexes without a segment.
    pub(crate) leftovers: Vec<String>,
    /// Directories that have the name of one of the log's files.
    pub(crate) not_files: Vec<String>,
}

pub(crate) fn look(storage: &dyn Storage, dir: &str) -> io::Result<Directory> {
    let (exists, entries): (bool, Vec<Entry>) = match storage.list(dir) {
        Ok(entries) => (true, entries),
        Err(error) if error.kind() == io::ErrorKind::NotFound => (false, Vec::new()),
        Err(error) => return Err(error),
    };
    let of_suffix = |wanted: &'static str| {
        entries
            .iter()
            .filter(|entry| !entry.is_dir)
            .filter_map(|entry| parse_name(&entry.name))
            .filter(move |(_, suffix)| *suffix == wanted)
            .map(|(offset, _)| offset)
    };
    let sized = |suffix: &'static str, base: i64| -> io::Result<(i64, u64)> {
        Ok((base, storage.file_len(&format!("{dir}/{}", file_name(base, suffix)))?))
    };
    let segments = of_suffix(LOG_SUFFIX).map(|base| sized(LOG_SUFFIX, base));
    let mut segments: Vec<(i64, u64)> = segments.collect::<io::Result<_>>()?;
    segments.sort_unstable();
    let has_log = |base: i64| segments.binary_search_by_key(&base, |(base, _)| *base).is_ok();
    let mut leftovers = Vec::new();
    for suffix in [INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX] {
        let orphans = of_suffix(suffix).filter(|base| !has_log(*base));
        leftovers.extend(orphans.map(|base| file_name(base, suffix)));
    }
    let fresh = entries.iter().filter(|entry| entry.name.ends_with(FRESH_SUFFIX) && !entry.is_dir);
    leftovers.extend(fresh.map(|entry| entry.name.clone()));
    for suffix in swap::LEFTOVERS {
        leftovers.extend(of_suffix(suffix).map(|base| file_name(base, suffix)));
    }
    let not_files = entries.iter().filter(|entry| entry.is_dir && is_file_of_a_log(&entry.name));
    let not_files = not_files.map(|entry| entry.name.clone()).collect();
    let aborted = of_suffix(TXN_INDEX_SUFFIX).filter(|base| has_log(*base));
    let aborted = aborted.map(|base| sized(TXN_INDEX_SUFFIX, base)).collect::<io::Result<_>>()?;
    Ok(Directory { exists, segments, aborted, leftovers, not_files })
}

/// Returns `true` if a log has files with that name.
fn is_file_of_a_log(name: &str) -> bool {
    let is_segments = |suffix| {
        [LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX, SNAPSHOT_SUFFIX].contains(&suffix)
    };
    parse_name(name).is_some_and(|(_, suffix)| is_segments(suffix))
        || name == crate::epochs::FILE_NAME
        || checkpoint::ALL.contains(&name)
}

/// The small files of a log.
#[derive(Default)]
pub(crate) struct Checkpoints {
    /// `log-start-offset`, if the file exists.
    pub(crate) start: Option<i64>,
    pub(crate) recovery_point: i64,
    pub(crate) mark: Option<CleanMark>,
    pub(crate) bad: Vec<BadRange>,
    pub(crate) gaps: Vec<BadRange>,
    pub(crate) synced: Found,
}

pub(crate) fn load_checkpoints(storage: &dyn Storage, dir: &str) -> Result<Checkpoints, LogError> {
    let newer = |name: &str, version, known| LogError::NewerFormat {
        dir: dir.to_owned(),
        file: name.to_owned(),
        version,
        known,
    };
    let failed =
        |name: &str, source| LogError::Io { dir: dir.to_owned(), doing: format!("read {name}"), source };
    let load = |name: &str| -> Result<Option<Vec<u8>>, LogError> {
        match checkpoint::load(storage, dir, name).map_err(|source| failed(name, source))? {
            Checkpoint::Body(body) => Ok(Some(body)),
            Checkpoint::Unknown => Ok(None),
            Checkpoint::Newer(version) => Err(newer(name, version, checkpoint::version())),
        }
    };
    let one = |body: Option<Vec<u8>>| body.and_then(|body| checkpoint::numbers::<1>(&body)).map(|[n]| n);
    let synced = synced::load(storage, dir).map_err(|source| failed(checkpoint::SYNCED, source))?;
    if let Found::Newer(version) = synced {
        return Err(newer(checkpoint::SYNCED, version, synced::version()));
    }
    let (gaps, bad) = load(checkpoint::QUARANTINE)?
        .map_or_else(Vec::new, |body| checkpoint::decode_bad(&body))
        .into_iter()
        .partition(BadRange::is_accepted_gap);
    Ok(Checkpoints {
        start: one(load(checkpoint::START_OFFSET)?),
        recovery_point: one(load(checkpoint::RECOVERY_POINT)?).unwrap_or(0),
        mark: load(checkpoint::CLEAN_SHUTDOWN)?.and_then(|body| CleanMark::decode(&body)),
        bad,
        gaps,
        synced,
    })
}

/// Returns the segments from their file names. Each ends at the next one's start; the end of the last is unknown.
pub(crate) fn segments_of(sizes: &[(i64, u64)], aborted: &[(i64, u64)], now_ms: i64) -> Vec<Segment> {
    let ends = sizes.iter().skip(1).map(|(base, _)| *base).chain(sizes.last().map(|(base, _)| *base));
    let segment = |((base, size), end): (&(i64, u64), i64)| {
        let mut segment = Segment::existing(*base, end, *size, now_ms);
        let index = aborted.iter().find(|(other, _)| other == base);
        segment.aborted = TxnIndex::of_len(index.map_or(0, |(_, bytes)| *bytes));
        segment
    };
    sizes.iter().zip(ends).map(segment).collect()
}

/// The steps that open a log.
#[derive(Default)]
pub(crate) struct Plan {
    /// The log was closed cleanly and ends here.
    pub(crate) clean_end: Option<i64>,
    /// The first segment that was scanned.
    pub(crate) first: usize,
    /// The results of the scans, segment by segment; segments after the last one are removed.
    pub(crate) scans: Vec<(Scanned, IndexBuilder)>,
    /// The number of segments that stay.
    pub(crate) keep: usize,
    /// The missing records.
    pub(crate) losses: Vec<Loss>,
    /// The damage at which a log of synced records ends, because none of the records from there on was synced.
    pub(crate) torn: Option<BadRange>,
}

/// Compares the files with the log's durable offsets.
pub(crate) fn examine(
    log: &mut Log,
    found: &Checkpoints,
    how: &How,
    report: &mut RecoveryReport,
) -> io::Result<Plan> {
    let mut plan = Plan::default();
    // Without the start offset of `synced`, segments at the front may have been deleted by retention.
    if let (Some(_), Some(first)) = (found.synced.start(), log.segments.first())
        && first.base_offset > log.start_offset
    {
        let (offset, next) = (log.start_offset, first.base_offset);
        plan.losses.push(Loss::Gap { file: file_name(offset, LOG_SUFFIX), position: 0, offset, next });
    }
    if let Some(mark) = &found.mark {
        plan.clean_end = check_mark(log, mark, &mut plan.losses);
    }
    if how.full {
        plan.clean_end = None;
    }
    let synced = found.synced.synced();
    let end = if let Some(end) = plan.clean_end {
        plan.keep = log.segments.len();
        report.clean = true;
        end
    } else if log.segments.is_empty() {
        report.clean = plan.losses.is_empty();
        log.start_offset
    } else {
        scan_tail(log, synced, how, &mut plan, report)?
    };
    if let Some(synced) = synced.filter(|synced| end.max(log.start_offset) < *synced) {
        let last = log.segments.get(plan.keep.saturating_sub(1));
        let scanned = plan.scans.get((plan.keep.max(1) - 1).saturating_sub(plan.first));
        let position = scanned.map_or(0, |(scanned, _)| scanned.end);
        plan.losses.push(Loss::End {
            file: file_name(last.map_or(log.start_offset, |segment| segment.base_offset), LOG_SUFFIX),
            position,
            bytes: last.map_or(0, |segment| segment.size).saturating_sub(position),
            end,
            synced,
        });
    }
    if synced.is_none() && end.max(log.start_offset) < how.next_offset_min && plan.losses.is_empty() {
        plan.losses.push(Loss::BelowFloor { end: end.max(log.start_offset), floor: how.next_offset_min });
    }
    remove_repeats(&mut plan.losses);
    Ok(plan)
}

/// Keeps one loss for each range of offsets, because the mark of a clean close, the scan and `synced` each report the
/// same missing records.
fn remove_repeats(losses: &mut Vec<Loss>) {
    let range = |loss: &Loss| match loss {
        Loss::Gap { offset, next, .. } => Some((*offset, *next)),
        Loss::End { end, synced, .. } => Some((*end, *synced)),
        _ => None,
    };
    let mut seen: Vec<(i64, i64)> = Vec::new();
    losses.retain(|loss| {
        let Some((first, next)) = range(loss) else { return true };
        let is_repeat = seen.iter().any(|(from, to)| *from <= first && next <= *to);
        seen.push((first, next));
        !is_repeat
    });
}

/// Returns the end of the log if the mark of a clean close matches. Missing and smaller segments are losses.
fn check_mark(log: &Log, mark: &CleanMark, losses: &mut Vec<Loss>) -> Option<i64> {
    let newest = log.segments.last().map(|segment| segment.base_offset);
    let last = mark.segments.last().map(|(base, _)| *base);
    // No batch is written after a valid mark. After a power cut a stale mark can reappear.
    let mut fits = newest == last;
    for (number, (base, was)) in mark.segments.iter().enumerate() {
        let next = mark.segments.get(number + 1).map_or(mark.end, |(base, _)| *base);
        if next <= log.start_offset && Some(*base) != last {
            continue;
        }
        let Some(segment) = log.segments.iter().find(|segment| segment.base_offset == *base) else {
            fits = false;
            let offset = log.start_offset.max(*base);
            if offset < next {
                losses.push(Loss::Gap { file: file_name(*base, LOG_SUFFIX), position: 0, offset, next });
            }
            continue;
        };
        if segment.size < *was {
            let file = file_name(*base, LOG_SUFFIX);
            losses.push(Loss::Shrunk { file, bytes: segment.size, was: *was });
        }
        fits &= segment.size == *was;
    }
    fits.then_some(mark.end)
}

/// Scans the segments that may not be durable and checks the ends of the others. Returns the end of the log.
fn scan_tail(
    log: &mut Log,
    synced: Option<i64>,
    how: &How,
    plan: &mut Plan,
    report: &mut RecoveryReport,
) -> io::Result<i64> {
    let mut first = if how.full { 0 } else { log.segment_of(log.sync.recovery_point) };
    for number in 0..first {
        // There are bytes after its last batch: a scan truncates them.
        if !check_end(log, number, &mut plan.losses)? {
            first = number;
            break;
        }
    }
    plan.first = first;
    // Damage from there on is a torn write, whatever follows: no client has received an acknowledgement for it.
    let torn_from = synced.filter(|_| log.config.visible == Visible::Synced && !how.salvage);
    let storage = log.storage.clone();
    let interval = log.config.index_interval_bytes;
    let bases: Vec<i64> = log.segments[first..].iter().map(|segment| segment.base_offset).collect();
    let mut cut = false;
    for segment in &mut log.segments[first..] {
        segment.open_log(&*storage, &log.dir)?;
        let mut built = IndexBuilder::new(segment.base_offset, interval);
        let file = segment.log().clone();
        let base = segment.base_offset;
        let mut scanned = scan(&*file, base, segment.size, |header, at| built.note(header, at))?;
        report.scanned_segments += 1;
        report.scanned_bytes += segment.size;
        let torn = scanned.bad.iter().find(|bad| torn_from.is_some_and(|from| bad.offset >= from)).copied();
        if let Some(torn) = torn {
            plan.torn = Some(torn);
            built = IndexBuilder::new(base, interval);
            scanned = scan(&*file, base, torn.position, |header, at| built.note(header, at))?;
        }
        let next_offset = scanned.next_offset;
        plan.scans.push((scanned, built));
        let gap = torn_from.is_some_and(|from| next_offset >= from)
            && bases.get(plan.scans.len()).is_some_and(|base| *base > next_offset);
        if torn.is_some() || gap {
            cut = true;
            break;
        }
    }
    // Segments after the last one with a sound or damaged batch have no data.
    let live = plan.scans.iter().rposition(|(scanned, _)| scanned.end > 0 || !scanned.bad.is_empty());
    let mut keep = first + live.unwrap_or(0) + 1;
    let mut end = plan.scans[keep - 1 - first].0.next_offset;
    let empty_follows = |segment: &Segment, end: i64| {
        // Empty segments: one that was just started, or damaged in full; one that a salvage has started behind it.
        segment.base_offset == end || log.gaps.iter().any(|gap| gap.next_offset == segment.base_offset)
    };
    while !cut && log.segments.get(keep).is_some_and(|segment| empty_follows(segment, end)) {
        end = log.segments[keep].base_offset;
        keep += 1;
    }
    plan.keep = keep;
    find_losses(log, synced, how, plan);
    Ok(end)
}

/// Checks the end of a segment that is not scanned: its last batch must lead to the next one. Returns `false` if it
/// does and does not end with the file.
fn check_end(log: &Log, number: usize, losses: &mut Vec<Loss>) -> io::Result<bool> {
    let segment = &log.segments[number];
    let next = log.segments[number + 1].base_offset;
    let known = log.bad.iter().chain(&log.gaps).filter(|bad| bad.segment == segment.base_offset);
    if next <= log.start_offset || known.into_iter().any(|bad| bad.next_offset == next) {
        return Ok(true);
    }
    let file = file_name(segment.base_offset, LOG_SUFFIX);
    let path = format!("{}/{file}", log.dir);
    let bytes = log.storage.open(&path, crate::storage::Open::Existing)?;
    let index = format!("{}/{}", log.dir, file_name(segment.base_offset, INDEX_SUFFIX));
    let indexed = match Index::<OffsetEntry>::load(&*log.storage, index)? {
        Loaded::Sound(index) => index.last(),
        Loaded::Missing | Loaded::Damaged => None,
    };
    let mut window = Window::new(&*bytes, segment.size, LOOKUP_CHUNK_BYTES);
    let (mut at, mut end) = (0, segment.base_offset);
    if let Some(entry) = indexed
        && let Ok(header) = window.header(u64::from(entry.position))?
        && header.last_offset() == segment.base_offset + i64::from(entry.relative_offset)
    {
        (at, end) = (u64::from(entry.position), header.base_offset);
    }
    while at < segment.size {
        if let Some(bad) = log.bad.iter().find(|bad| bad.segment == segment.base_offset && bad.position == at)
        {
            (at, end) = (at + bad.bytes.max(1), bad.next_offset);
            continue;
        }
        let Ok(header) = window.header(at)? else { break };
        (at, end) = (at + header.total_bytes() as u64, header.next_offset());
    }
    if end < next {
        losses.push(Loss::Gap { file, position: at, offset: end, next });
    }
    Ok(end < next || at == segment.size)
}

/// Finds the synced records that the scanned segments do not have.
fn find_losses(log: &Log, synced: Option<i64>, how: &How, plan: &mut Plan) {
    let Plan { first, scans, keep, losses, .. } = plan;
    let (first, keep) = (*first, *keep);
    let start = log.start_offset;
    let name = |number: usize| file_name(log.segments[number].base_offset, LOG_SUFFIX);
    for (number, (scanned, _)) in (first..keep).zip(scans.iter()) {
        for bad in &scanned.bad {
            // A mark that readers may pass it does not matter: that was decided after it was found.
            let is_same = |known: &BadRange| BadRange { skipped: bad.skipped, ..*known } == *bad;
            let known = log.bad.iter().any(is_same) || bad.next_offset <= start;
            if (how.strict || how.full) && !known {
                losses.push(Loss::Damaged {
                    file: name(number),
                    position: bad.position,
                    bytes: bad.bytes,
                    offset: bad.offset,
                    next: bad.next_offset,
                });
            }
        }
        let next = log.segments.get(number + 1).filter(|_| number + 1 < keep);
        if let Some(next) = next.map(|next| next.base_offset).filter(|next| *next > scanned.next_offset) {
            let offset = scanned.next_offset;
            let segment = log.segments[number].base_offset;
            let known = log
                .bad
                .iter()
                .chain(&log.gaps)
                .any(|bad| bad.segment == segment && bad.offset == offset && bad.next_offset == next);
            let promised = synced.is_none_or(|synced| offset < synced);
            if !known && next > start && promised {
                losses.push(Loss::Gap { file: name(number), position: scanned.end, offset, next });
            }
        }
    }
    if synced.is_none() {
        let (last, _) = &scans[keep.min(first + scans.len()) - 1 - first];
        let torn = log.segments[keep.min(first + scans.len()) - 1].size - last.end;
        let removed: u64 = log.segments[keep..].iter().map(|segment| segment.size).sum();
        if torn + removed > 0 {
            losses.push(Loss::Unknown {
                file: name(keep.min(first + scans.len()) - 1),
                position: last.end,
                bytes: torn + removed,
                offset: last.next_offset,
            });
        }
    }
}

/// The result of [`check_log`].
#[derive(Clone, Debug)]
pub struct LogCheck {
    /// The directory.
    pub dir: String,
    /// The log start offset.
    pub start_offset: i64,
    /// The offset after the last sound batch.
    pub end_offset: i64,
    /// All records below were synced, if that is known.
    pub synced_offset: Option<i64>,
    /// Segment files.
    pub segments: usize,
    /// The size of the segments in bytes.
    pub bytes: u64,
    /// The log was closed cleanly.
    pub is_clean: bool,
    /// Damaged ranges that were quarantined earlier, without those of segments that are sound again.
    pub quarantined: Vec<BadRange>,
    /// Damaged and missing records.
    pub losses: Vec<Loss>,
    /// The first damage at or behind `synced_offset`, if sound batches follow in its segment. A log that shows only synced records is
    /// truncated there, as after a torn write. Another log keeps the batches behind it and quarantines the damage.
    pub unsynced_damage: Option<BadRange>,
}

impl LogCheck {
    /// Returns the damaged ranges: those that were quarantined earlier and the others.
    pub fn damaged(&self) -> Vec<BadRange> {
        let mut all = self.quarantined.clone();
        for loss in &self.losses {
            let Loss::Damaged { file, position, bytes, offset, next } = loss else { continue };
            let Some((segment, _)) = parse_name(file) else { continue };
            let is_known = |known: &BadRange| {
                known.segment == segment
                    && (known.position..known.position + known.bytes.max(1)).contains(position)
            };
            if !self.quarantined.iter().any(is_known) {
                let (position, bytes, offset, next_offset) = (*position, *bytes, *offset, *next);
                all.push(BadRange { segment, position, bytes, offset, next_offset, skipped: false });
            }
        }
        all.sort_by_key(|bad| (bad.segment, bad.position));
        all
    }

    /// Adds the loss of a log without `synced` that ends below `next_offset_min`: see [`Log::open_existing`].
    pub fn require_end(&mut self, next_offset_min: i64) {
        let end = self.end_offset.max(self.start_offset);
        if self.losses.is_empty() && self.synced_offset.is_none() && end < next_offset_min {
            self.losses.push(Loss::BelowFloor { end, floor: next_offset_min });
        }
    }

    fn empty(dir: &str, losses: Vec<Loss>) -> Self {
        Self {
            dir: dir.to_owned(),
            start_offset: 0,
            end_offset: 0,
            synced_offset: None,
            segments: 0,
            bytes: 0,
            is_clean: false,
            quarantined: Vec::new(),
            losses,
            unsynced_damage: None,
        }
    }
}

/// Checks every batch of the log in `dir` and changes nothing.
pub fn check_log(storage: &Arc<dyn Storage>, dir: &str) -> Result<LogCheck, LogError> {
    let failed = |source| LogError::Io { dir: dir.to_owned(), doing: "examine".into(), source };
    let storage = &SettledView::of(storage, dir).map_err(failed)?;
    let directory = look(&**storage, dir).map_err(failed)?;
    if !directory.exists {
        return Ok(LogCheck::empty(dir, vec![Loss::Directory]));
    }
    if !directory.not_files.is_empty() {
        let losses = directory.not_files.into_iter().map(|file| Loss::NotAFile { file }).collect();
        return Ok(LogCheck::empty(dir, losses));
    }
    let found = load_checkpoints(&**storage, dir)?;
    let config = crate::LogConfig { visible: Visible::Synced, ..crate::LogConfig::default() };
    let mut log = crate::recovery::unopened(storage.clone(), dir, config, &directory, &found, 0);
    // The next opening serves them.
    log.take_restored();
    let is_clean = found.mark.as_ref().is_some_and(|mark| check_mark(&log, mark, &mut Vec::new()).is_some());
    let how = How { full: true, ..How::default() };
    let mut report = RecoveryReport::default();
    let plan = examine(&mut log, &found, &how, &mut report).map_err(failed)?;
    let end = plan.scans.get((plan.keep.max(1) - 1).saturating_sub(plan.first));
    let is_known = |torn: &BadRange| {
        let is_same = |bad: &BadRange| (bad.segment, bad.position) == (torn.segment, torn.position);
        log.bad.iter().any(is_same)
    };
    Ok(LogCheck {
        dir: dir.to_owned(),
        start_offset: log.start_offset,
        end_offset: end.map_or(log.start_offset, |(scanned, _)| scanned.next_offset),
        synced_offset: found.synced.synced(),
        segments: log.segments.len(),
        bytes: log.size_bytes(),
        is_clean,
        quarantined: log.bad.clone(),
        losses: plan.losses,
        unsynced_damage: plan.torn.filter(|torn| !is_known(torn)),
    })
}
