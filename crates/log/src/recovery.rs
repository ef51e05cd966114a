//! Opening a log: finding out what is on disk, repairing what a crash has left, and making that durable before anyone
//! reads it.
//!
//! Every step can be interrupted and done again: nothing is cut off before it was looked at, and the second time finds
//! what the first time left.

use std::io;
use std::sync::Arc;

use crate::cache::TailCache;
use crate::checkpoint::{self, Checkpoint};
use crate::config::{LogConfig, Visible};
use crate::epochs::Epochs;
use crate::error::LogError;
use crate::log::{Log, SyncState, remove_segment};
use crate::producers::Producers;
use crate::scan::{LOOKUP_CHUNK_BYTES, SCAN_CHUNK_BYTES, Scanned, Window, scan, walk};
use crate::segment::{
    BadRange, INDEX_SUFFIX, IndexBuilder, LOG_SUFFIX, SNAPSHOT_SUFFIX, Segment, TIME_INDEX_SUFFIX, file_name,
    parse_name,
};
use crate::storage::{FRESH_SUFFIX, File, Storage, read_file};
use crate::tail::Tail;

/// Producers are capped, and so is what a snapshot of them may take.
const SNAPSHOT_BYTES_MAX: u64 = 1 << 30;

/// What opening a log found and did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecoveryReport {
    /// The log was closed cleanly, or is new: nothing was scanned.
    pub clean: bool,
    /// Segments whose batches were checked one by one.
    pub scanned_segments: usize,
    /// Bytes checked.
    pub scanned_bytes: u64,
    /// Bytes cut off the end because no sound batch followed them.
    pub truncated_bytes: u64,
    /// Damage that stays in place, because sound batches follow it.
    pub quarantined: Vec<BadRange>,
    /// Producers whose sequences are known.
    pub producers: usize,
}

pub(crate) fn open(
    storage: Arc<dyn Storage>,
    dir: &str,
    config: LogConfig,
    now_ms: i64,
) -> Result<(Log, RecoveryReport), LogError> {
    let failed = |doing: &str, source| LogError::Io { dir: dir.to_owned(), doing: doing.to_owned(), source };
    let found = look(&*storage, dir).map_err(|source| failed("open", source))?;
    let (checkpoint_start, recovery_point, mark, bad) = load_checkpoints(&*storage, dir)?;

    let sizes = found.segments;
    let mut log = Log {
        storage: storage.clone(),
        dir: dir.into(),
        cache: TailCache::new(config.tail_cache_bytes),
        config,
        segments: segments_of(&sizes, now_ms),
        start_offset: checkpoint_start.max(sizes.first().map_or(0, |(base, _)| *base)),
        producers: Producers::default(),
        epochs: Epochs::default(),
        tail: Tail::new(0, 0),
        bad,
        sync: SyncState { recovery_point, ..SyncState::default() },
        offline: None,
        marked_clean: false,
        uses: 0,
    };
    let mut report = RecoveryReport::default();
    recover(&mut log, mark, &mut report, now_ms).map_err(|source| {
        log.note_sync_failed();
        failed("recover", source)
    })?;
    report.quarantined.clone_from(&log.bad);
    report.producers = log.producers.len();
    let end = log.end_offset();
    log.sync.synced_offset = end;
    if log.config.visible == Visible::Synced
        && let Err(error) = log.note_synced()
    {
        tracing::debug!(dir = &*log.dir, %error, "cannot note what is synced");
    }
    log.tail = Tail::new(end, end);
    tracing::debug!(dir, ?report, "log opened");
    Ok((log, report))
}

/// What a directory holds, swept of what nobody needs.
struct Found {
    /// Base offsets and sizes, rising.
    segments: Vec<(i64, u64)>,
}

fn look(storage: &dyn Storage, dir: &str) -> io::Result<Found> {
    storage.create_dir(dir)?;
    let entries = storage.list(dir)?;
    let of_suffix = |wanted: &'static str| {
        entries
            .iter()
            .filter_map(move |entry| Some((parse_name(&entry.name)?, entry.len)))
            .filter(move |((_, suffix), _)| *suffix == wanted)
            .map(|((offset, _), len)| (offset, len))
    };
    let mut segments: Vec<(i64, u64)> = of_suffix(LOG_SUFFIX).collect();
    segments.sort_unstable();
    if segments.is_empty() {
        // The directory may be as new as its log.
        let mut path = dir;
        loop {
            path = path.rfind('/').map_or("", |at| &path[..at]);
            storage.sync_dir(path)?;
            if path.is_empty() {
                break;
            }
        }
    }
    let has_log = |base: i64| segments.binary_search_by_key(&base, |(base, _)| *base).is_ok();
    for suffix in [INDEX_SUFFIX, TIME_INDEX_SUFFIX] {
        for (base, _) in of_suffix(suffix).filter(|(base, _)| !has_log(*base)) {
            storage.remove(&format!("{dir}/{}", file_name(base, suffix)))?;
        }
    }
    for entry in entries.iter().filter(|entry| entry.name.ends_with(FRESH_SUFFIX)) {
        storage.remove(&format!("{dir}/{}", entry.name))?;
    }
    Ok(Found { segments })
}

type Checkpoints = (i64, i64, Option<[i64; 3]>, Vec<BadRange>);

fn load_checkpoints(storage: &dyn Storage, dir: &str) -> Result<Checkpoints, LogError> {
    let load = |name: &str| -> Result<Option<Vec<u8>>, LogError> {
        match checkpoint::load(storage, dir, name) {
            Ok(Checkpoint::Body(body)) => Ok(Some(body)),
            Ok(Checkpoint::Unknown) => Ok(None),
            Ok(Checkpoint::Newer(version)) => Err(LogError::NewerFormat {
                dir: dir.to_owned(),
                file: name.to_owned(),
                version,
                known: checkpoint::version(),
            }),
            Err(source) => Err(LogError::Io { dir: dir.to_owned(), doing: format!("read {name}"), source }),
        }
    };
    let one =
        |body: Option<Vec<u8>>| body.and_then(|body| checkpoint::numbers::<1>(&body)).map_or(0, |[n]| n);
    Ok((
        one(load(checkpoint::START_OFFSET)?),
        one(load(checkpoint::RECOVERY_POINT)?),
        load(checkpoint::CLEAN_SHUTDOWN)?.and_then(|body| checkpoint::numbers::<3>(&body)),
        load(checkpoint::QUARANTINE)?.map_or_else(Vec::new, |body| checkpoint::decode_bad(&body)),
    ))
}

/// Segments as the names say: each ends where the next one starts, the last one where nobody knows yet.
fn segments_of(sizes: &[(i64, u64)], now_ms: i64) -> Vec<Segment> {
    let ends = sizes.iter().skip(1).map(|(base, _)| *base).chain(sizes.last().map(|(base, _)| *base));
    sizes.iter().zip(ends).map(|((base, size), end)| Segment::existing(*base, end, *size, now_ms)).collect()
}

fn recover(
    log: &mut Log,
    mark: Option<[i64; 3]>,
    report: &mut RecoveryReport,
    now_ms: i64,
) -> io::Result<()> {
    let storage = log.storage.clone();
    let newest = log.segments.last().map(|segment| [segment.base_offset, segment.size as i64]);
    // A mark counts only if nothing was written after it: then the last segment is exactly as it was.
    let clean_end = mark.filter(|[base, size, _]| newest == Some([*base, *size])).map(|[.., end]| end);
    report.clean = clean_end.is_some() || log.segments.is_empty();
    if let Some(end) = clean_end {
        log.active_mut().end_offset = end;
        log.marked_clean = true;
    } else {
        // A mark of another time must not fit by chance what the file grows to.
        match storage.remove(&log.path(checkpoint::CLEAN_SHUTDOWN)) {
            Ok(()) => storage.sync_dir(&log.dir)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        if !log.segments.is_empty() {
            scan_tail(log, report)?;
        }
    }
    if log.segments.is_empty() || log.active().end_offset < log.start_offset {
        // Nothing, or nothing that has not been deleted: the log goes on where it has to.
        log.start_anew(now_ms)?;
    }
    let last = log.segments.len() - 1;
    let interval = log.config.index_interval_bytes;
    log.segments[last].open(&*storage, &log.dir, interval, &log.bad)?;
    read_first_timestamp(&mut log.segments[last])?;
    load_epochs(log)?;
    load_producers(log, now_ms)
}

fn read_first_timestamp(segment: &mut Segment) -> io::Result<()> {
    if segment.first_timestamp.is_none() && segment.size > 0 {
        let log = segment.log().clone();
        if let Ok(header) = Window::new(&*log, segment.size, LOOKUP_CHUNK_BYTES).header(0)? {
            segment.first_timestamp = (header.max_timestamp >= 0).then_some(header.max_timestamp);
        }
    }
    Ok(())
}

/// Checks all batches of the segments that may not be durable, cuts off a torn tail, and makes the rest durable.
fn scan_tail(log: &mut Log, report: &mut RecoveryReport) -> io::Result<()> {
    let storage = log.storage.clone();
    let first = log.segment_of(log.sync.recovery_point);
    let interval = log.config.index_interval_bytes;
    let write_again =
        !matches!(checkpoint::load(&*storage, &log.dir, checkpoint::SYNC_FAILED)?, Checkpoint::Unknown);
    let synced = synced_before(log)?;
    let bases: Vec<i64> = log.segments[first..].iter().map(|segment| segment.base_offset).collect();
    let mut cut = false;
    let mut scans = Vec::new();
    for segment in &mut log.segments[first..] {
        segment.open_log(&*storage, &log.dir)?;
        let mut built = IndexBuilder::new(segment.base_offset, interval);
        let file = segment.log().clone();
        let base = segment.base_offset;
        let mut scanned = scan(&*file, base, segment.size, |header, at| built.note(header, at))?;
        report.scanned_segments += 1;
        report.scanned_bytes += segment.size;
        let torn = scanned.bad.iter().find(|bad| synced.is_some_and(|synced| bad.offset >= synced)).copied();
        if let Some(torn) = torn {
            built = IndexBuilder::new(base, interval);
            scanned = scan(&*file, base, torn.position, |header, at| built.note(header, at))?;
        }
        let next_offset = scanned.next_offset;
        scans.push((scanned, built));
        let gap = synced.is_some_and(|synced| next_offset >= synced)
            && bases.get(scans.len()).is_some_and(|base| *base > next_offset);
        if torn.is_some() || gap {
            cut = true;
            break;
        }
    }
    // What follows the last segment with a sound batch is not worth keeping.
    let live = scans.iter().rposition(|(scanned, _)| scanned.end > 0 || !scanned.bad.is_empty());
    let mut keep = first + live.unwrap_or(0) + 1;
    let end = scans[keep - 1 - first].0.next_offset;
    if !cut && log.segments.get(keep).is_some_and(|next| next.base_offset == end) {
        // An empty segment that was just started.
        keep += 1;
    }
    for segment in log.segments.split_off(keep).iter().rev() {
        report.truncated_bytes += segment.size;
        remove_segment(&*storage, &log.dir, segment.base_offset)?;
    }
    let mut bad: Vec<BadRange> =
        log.bad.iter().filter(|bad| bad.segment < log.segments[first].base_offset).copied().collect();
    for (number, (scanned, built)) in (first..keep).zip(scans) {
        let next_base = log.segments.get(number + 1).map(|next| next.base_offset);
        let segment = &mut log.segments[number];
        settle(segment, next_base, scanned, &mut bad, report)?;
        segment.install(&*storage, &log.dir, built);
        if write_again {
            write_once_more(&**segment.log(), segment.size)?;
        }
        for file in segment.open_files() {
            file.sync_data()?;
        }
        if number + 1 < keep {
            segment.close();
        }
    }
    if write_again {
        storage.remove(&log.path(checkpoint::SYNC_FAILED))?;
    }
    storage.sync_dir(&log.dir)?;
    if bad != log.bad {
        checkpoint::store(&*storage, &log.dir, checkpoint::QUARANTINE, &checkpoint::encode_bad(&bad))?;
        log.bad = bad;
    }
    for bad in &log.bad {
        tracing::error!(dir = &*log.dir, ?bad, "damaged batches are set aside");
    }
    if report.truncated_bytes > 0 {
        tracing::warn!(dir = &*log.dir, bytes = report.truncated_bytes, "a torn tail was cut off");
    }
    log.store_recovery_point(log.active().base_offset, false)
}

/// From where on damage is a torn tail and not worth setting anything aside: what stands behind it was promised to
/// nobody. `None` for logs that show what is not synced.
fn synced_before(log: &Log) -> io::Result<Option<i64>> {
    if log.config.visible != Visible::Synced {
        return Ok(None);
    }
    Ok(match checkpoint::load(&*log.storage, &log.dir, checkpoint::SYNCED)? {
        Checkpoint::Body(body) => Some(checkpoint::numbers::<1>(&body).map_or(0, |[synced]| synced)),
        Checkpoint::Unknown => Some(0),
        Checkpoint::Newer(_) => None,
    })
}

/// Writes a file's own bytes over it, so that the next sync has something to write.
fn write_once_more(file: &dyn File, size: u64) -> io::Result<()> {
    let mut buf = vec![0; SCAN_CHUNK_BYTES.min(size as usize)];
    let mut at = 0;
    while at < size {
        let n = buf.len().min((size - at) as usize);
        file.read_exact_at(&mut buf[..n], at)?;
        file.write_at(&buf[..n], at)?;
        at += n as u64;
    }
    Ok(())
}

/// Decides what becomes of the end of a scanned segment.
fn settle(
    segment: &mut Segment,
    next_base: Option<i64>,
    scanned: Scanned,
    bad: &mut Vec<BadRange>,
    report: &mut RecoveryReport,
) -> io::Result<()> {
    bad.extend(scanned.bad);
    let tail = segment.size - scanned.end;
    let missing = next_base.filter(|next| *next > scanned.next_offset);
    if let Some(next_offset) = missing {
        // Sound segments follow: whatever is here instead of the missing batches stays.
        bad.push(BadRange {
            segment: segment.base_offset,
            position: scanned.end,
            bytes: tail,
            offset: scanned.next_offset,
            next_offset,
        });
        segment.end_offset = next_offset;
        return Ok(());
    }
    if tail > 0 {
        segment.log().set_len(scanned.end)?;
        segment.size = scanned.end;
        report.truncated_bytes += tail;
    }
    segment.end_offset = scanned.next_offset;
    Ok(())
}

/// The epochs from their file, or from the batches if it is missing, damaged or behind.
fn load_epochs(log: &mut Log) -> io::Result<()> {
    let (storage, end) = (log.storage.clone(), log.end_offset());
    let stored = Epochs::load(&*storage, &log.dir);
    let from = if stored.is_some() { log.segment_of(log.sync.recovery_point) } else { 0 };
    let mut epochs = stored.clone().unwrap_or_default();
    epochs.truncate(end);
    if !log.marked_clean || stored.is_none() {
        for number in from..log.segments.len() {
            log.walk_segment(number, 0, |header| {
                epochs.note(header.partition_leader_epoch, header.base_offset);
            })?;
        }
    }
    epochs.forget_before(log.start_offset);
    if stored.as_ref() != Some(&epochs) && epochs != Epochs::default() {
        epochs.store(&*storage, &log.dir)?.sync_data()?;
        storage.sync_dir(&log.dir)?;
    }
    log.epochs = epochs;
    Ok(())
}

/// The producers from the newest sound snapshot and the batches after it.
pub(crate) fn load_producers(log: &mut Log, now_ms: i64) -> io::Result<()> {
    let (storage, end) = (log.storage.clone(), log.end_offset());
    let mut from = log.segments[0].base_offset;
    let mut producers = Producers::default();
    let mut removed = false;
    for offset in log.snapshots()?.into_iter().rev() {
        let path = log.path(&file_name(offset, SNAPSHOT_SUFFIX));
        let read = if offset <= end { read_snapshot(&*storage, &path)? } else { None };
        if let Some(read) = read {
            (producers, from) = (read, offset);
            break;
        }
        storage.remove(&path)?;
        removed = true;
    }
    if removed {
        // One that came back later would speak of batches that never were.
        storage.sync_dir(&log.dir)?;
    }
    let max = log.config.producers_max;
    for number in log.segment_of(from)..log.segments.len() {
        log.walk_segment(number, from, |header| {
            if header.base_offset >= from {
                producers.note(header, header.base_offset, now_ms, max);
            }
        })?;
    }
    producers.expire(now_ms, log.config.producer_expiration_ms);
    log.producers = producers;
    Ok(())
}

fn read_snapshot(storage: &dyn Storage, path: &str) -> io::Result<Option<Producers>> {
    match read_file(storage, path, SNAPSHOT_BYTES_MAX) {
        Ok(bytes) => Ok(Producers::decode(&bytes)),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::InvalidData) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

impl Log {
    /// Calls `on_batch` for the batches of a segment from the one that holds `from` on.
    fn walk_segment(
        &mut self,
        number: usize,
        from: i64,
        on_batch: impl FnMut(&ottla_wire::BatchHeader),
    ) -> io::Result<()> {
        let mut on_batch = on_batch;
        if from >= self.segments[number].end_offset {
            return Ok(());
        }
        self.open_segment(number).map_err(|(error, _)| error)?;
        let segment = &self.segments[number];
        let start = match segment.view(&self.bad).locate(from) {
            Ok(Some((position, _))) => position,
            _ => 0,
        };
        let bad: Vec<BadRange> =
            self.bad.iter().filter(|bad| bad.segment == segment.base_offset).copied().collect();
        let walked = walk(&**segment.log(), start, segment.size, &bad, |header, _| on_batch(header))?;
        if let Err(position) = walked {
            // Damage in a segment that was sound when it was closed: readers will meet it and set it aside.
            tracing::warn!(dir = &*self.dir, segment = segment.base_offset, position, "damage found");
        }
        Ok(())
    }
}
