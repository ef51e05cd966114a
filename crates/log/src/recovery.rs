//! Opening a log: it examines the files, repairs them after a crash, and makes the result durable before a reader sees
//! it.
//!
//! Every step can be interrupted and repeated: bytes are examined before they are truncated, and a second run starts
//! from the result of the first.

use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::bad_range::BadRange;
use crate::cache::TailCache;
use crate::checkpoint::{self, Checkpoint};
use crate::config::LogConfig;
use crate::epochs::{self, Epochs};
use crate::error::{LogError, Loss, is_no_space};
use crate::examine::{Checkpoints, Directory, Plan, examine, load_checkpoints, look, segments_of};
use crate::log::{Log, SyncState, remove_segment};
use crate::producer_total::ProducerCount;
use crate::producers::Producers;
use crate::scan::{SCAN_CHUNK_BYTES, Scanned};
use crate::segment::Segment;
use crate::storage::{File, Storage};
use crate::swap;
use crate::synced::{Found, SyncedFile};
use crate::tail::Tail;
use crate::verification::Verifications;

/// The result of opening a log.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecoveryReport {
    /// The log was closed cleanly, or is new: nothing was scanned.
    pub clean: bool,
    /// Segments whose batches were checked one by one.
    pub scanned_segments: usize,
    /// Bytes checked.
    pub scanned_bytes: u64,
    /// Bytes truncated from the end because no sound batch followed them.
    pub truncated_bytes: u64,
    /// Damaged ranges that stay in place because sound batches follow them.
    pub quarantined: Vec<BadRange>,
    /// Producers whose sequences are known.
    pub producers: usize,
    /// Losses that were accepted: see [`Log::salvage`](crate::Log::salvage).
    pub losses: Vec<Loss>,
}

/// The options of opening a log.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct How {
    /// The log is known to exist: without its directory it is lost.
    pub(crate) must_exist: bool,
    /// A single damaged batch is a loss.
    pub(crate) strict: bool,
    /// Every batch is checked, even if the log was closed cleanly.
    pub(crate) full: bool,
    /// Losses are accepted.
    pub(crate) salvage: bool,
    /// Every lower offset may have been used. Without `synced`, a log that ends below this offset has lost records.
    pub(crate) next_offset_min: i64,
}

pub(crate) fn open(
    storage: Arc<dyn Storage>,
    dir: &str,
    config: LogConfig,
    now_ms: i64,
    how: &How,
) -> Result<(Log, RecoveryReport), LogError> {
    let failed = |doing: &str, source| LogError::Io { dir: dir.to_owned(), doing: doing.to_owned(), source };
    let is_undone =
        swap::settle(&*storage, dir).map_err(|source| failed("settle a replacement of segments", source))?;
    let directory = look(&*storage, dir).map_err(|source| failed("open", source))?;
    let data_dir = storage.root().map(Path::to_path_buf);
    let lost = |losses| LogError::Lost { dir: dir.to_owned(), losses, data_dir };
    if !directory.not_files.is_empty() {
        return Err(lost(directory.not_files.into_iter().map(|file| Loss::NotAFile { file }).collect()));
    }
    if how.must_exist && !directory.exists && !how.salvage {
        return Err(lost(vec![Loss::Directory]));
    }
    let found = load_checkpoints(&*storage, dir)?;
    let mut log = unopened(storage, dir, config, &directory, &found, now_ms);
    let restored = log.take_restored();
    let mut report = RecoveryReport::default();
    let plan = examine(&mut log, &found, how, &mut report).map_err(|source| failed("examine", source))?;
    if !plan.losses.is_empty() && !how.salvage {
        return Err(lost(plan.losses));
    }
    // The steps below change files.
    report.losses.clone_from(&plan.losses);
    let had_segments = !log.segments.is_empty();
    let recovered = recover(&mut log, &directory, &found, plan, how, &mut report, now_ms);
    let recovered = recovered.and_then(|()| {
        let all: Vec<i64> = log.segments.iter().map(|segment| segment.base_offset).collect();
        if is_undone { log.rebuild_transaction_indexes(&all) } else { Ok(()) }
    });
    let recovered = recovered.and_then(|()| log.serve_restored(restored, now_ms));
    recovered.map_err(|source| {
        log.note_sync_failed();
        failed("recover", source)
    })?;
    if had_segments && found.synced.synced().is_none() {
        tracing::warn!(
            dir,
            end = log.end_offset(),
            "`synced` is missing or damaged; every batch found is sound"
        );
    }
    report.quarantined.clone_from(&log.bad);
    report.producers = log.producers.len();
    let end = log.end_offset();
    log.tail = Tail::new(end, end);
    tracing::debug!(
        dir,
        clean = report.clean,
        scanned_segments = report.scanned_segments,
        scanned_bytes = report.scanned_bytes,
        truncated_bytes = report.truncated_bytes,
        producers = report.producers,
        "log opened"
    );
    Ok((log, report))
}

/// The log as its files' names and its small files describe it.
pub(crate) fn unopened(
    storage: Arc<dyn Storage>,
    dir: &str,
    config: LogConfig,
    directory: &Directory,
    found: &Checkpoints,
    now_ms: i64,
) -> Log {
    let promised = found.start.into_iter().chain(found.synced.start()).max();
    let first = directory.segments.first().map_or(0, |(base, _)| *base);
    // Only `synced` knows of segments that retention has deleted.
    let start_offset = match found.synced.start() {
        Some(_) => promised.unwrap_or(0),
        None => promised.unwrap_or(0).max(first),
    };
    Log {
        storage,
        dir: dir.into(),
        cache: TailCache::new(config.tail_cache_bytes, config.cache_total.clone()),
        producer_count: ProducerCount::new(config.producer_total.clone()),
        verifications: Verifications::new(config.producer_total.clone()),
        config,
        segments: segments_of(&directory.segments, &directory.aborted, now_ms),
        start_offset,
        producers: Producers::default(),
        completed: Vec::new(),
        epochs: Epochs::default(),
        tail: Tail::new(0, 0),
        bad: found.bad.clone(),
        gaps: found.gaps.clone(),
        restored: Vec::new(),
        snapshots: None,
        replacing: Vec::new(),
        sync: SyncState { recovery_point: found.recovery_point, ..SyncState::default() },
        offline: None,
        marked_clean: false,
        uses: 0,
        headers: Vec::new(),
        ring: None,
    }
}

fn recover(
    log: &mut Log,
    directory: &Directory,
    found: &Checkpoints,
    plan: Plan,
    how: &How,
    report: &mut RecoveryReport,
    now_ms: i64,
) -> io::Result<()> {
    let storage = log.storage.clone();
    if log.segments.is_empty() {
        create_dir(&*storage, &log.dir)?;
    }
    for name in &directory.leftovers {
        storage.remove(&log.path(name))?;
    }
    if how.salvage {
        let first = log.segments.first().map_or(0, |first| first.base_offset);
        log.start_offset = log.start_offset.max(first);
    }
    if let Some(end) = plan.clean_end {
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
            keep_what_is_sound(log, plan, how, report)?;
        }
    }
    let synced = found.synced.synced();
    let next_offset_min = synced.unwrap_or(if how.salvage { how.next_offset_min } else { 0 });
    if log.segments.is_empty() || log.active().end_offset < log.start_offset {
        if how.salvage {
            log.start_offset = log.start_offset.max(next_offset_min);
            checkpoint::store(
                &*storage,
                &log.dir,
                checkpoint::START_OFFSET,
                &checkpoint::body(&[log.start_offset]),
            )?;
        }
        // No segments are left, or only deleted records: the log continues at the start offset.
        log.start_anew(now_ms)?;
    }
    let last = log.segments.len() - 1;
    if !log.marked_clean || log.segments[last].is_open() {
        log.open_active()?;
    }
    load_epochs(log)?;
    log.load_producers(now_ms)?;
    log.repair_transaction_indexes()?;
    log.fill_gaps_at_end()?;
    if how.salvage {
        log.skip_to(next_offset_min, now_ms)?;
    }
    log.sync.synced_offset = log.end_offset();
    let fresh = !matches!(found.synced, Found::Slot { .. });
    let note = SyncedFile::open(&storage, &log.dir, &found.synced, log.marked_clean, now_ms)?;
    if how.salvage {
        note.replace(log.promise())?;
    } else {
        note.store(log.promise())?;
    }
    if fresh {
        storage.sync_dir(&log.dir)?;
    }
    log.sync.note = Some(Arc::new(note));
    log.pause_files();
    Ok(())
}

/// Creates the directory of a log; its name is durable when this returns.
pub(crate) fn create_dir(storage: &dyn Storage, dir: &str) -> io::Result<()> {
    storage.create_dir(dir)?;
    let mut path = dir;
    loop {
        path = path.rfind('/').map_or("", |at| &path[..at]);
        storage.sync_dir(path)?;
        if path.is_empty() {
            return Ok(());
        }
    }
}

/// Truncates a torn tail, quarantines damaged ranges, and makes the rest durable.
fn keep_what_is_sound(log: &mut Log, plan: Plan, how: &How, report: &mut RecoveryReport) -> io::Result<()> {
    let storage = log.storage.clone();
    let Plan { first, scans, keep, .. } = plan;
    let write_again =
        !matches!(checkpoint::load(&*storage, &log.dir, checkpoint::SYNC_FAILED)?, Checkpoint::Unknown);
    for segment in log.segments.split_off(keep).iter().rev() {
        report.truncated_bytes += segment.size;
        remove_segment(&*storage, &log.dir, segment.base_offset)?;
    }
    let mut bad: Vec<BadRange> =
        log.bad.iter().filter(|bad| bad.segment < log.segments[first].base_offset).copied().collect();
    let gaps = log.gaps.clone();
    // By segment: whether it or one behind it has bytes.
    let mut has_records: Vec<bool> = log.segments.iter().map(|segment| segment.size > 0).collect();
    for number in (1..has_records.len()).rev() {
        has_records[number - 1] |= has_records[number];
    }
    let mut with_control = Vec::new();
    for (number, (scanned, built)) in (first..keep).zip(scans) {
        let next_base = log.segments.get(number + 1).map(|next| next.base_offset);
        let segment = &mut log.segments[number];
        let is_tail = number + 1 < keep && !has_records[number + 1];
        let accept = how.salvage.then_some(if is_tail { Accept::Damage } else { Accept::Gap });
        settle(segment, next_base, scanned, accept, &mut bad, &mut log.gaps, report)?;
        if built.has_control {
            with_control.push(segment.base_offset);
        } else {
            segment.aborted.replace(&*storage, &log.dir, segment.base_offset, &[])?;
        }
        segment.install(&*storage, &log.dir, built);
        segment.verified.add(0, segment.size);
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
    // Ranges that the operator has accepted stay accepted.
    let is_skipped = |it: &BadRange| log.bad.contains(&BadRange { skipped: true, ..*it });
    for range in &mut bad {
        range.skipped = is_skipped(range);
    }
    if bad != log.bad || log.gaps != gaps {
        log.bad = bad;
        log.store_quarantine()?;
    }
    for bad in log.bad.iter().filter(|bad| !bad.skipped) {
        tracing::error!(dir = &*log.dir, "{bad} are damaged: fetches of these offsets fail");
    }
    if report.truncated_bytes > 0 {
        tracing::warn!(
            dir = &*log.dir,
            bytes = report.truncated_bytes,
            "removed a torn write from the end of the log"
        );
    }
    // Before the recovery point passes them: no later opening scans these segments.
    log.rebuild_transaction_indexes(&with_control)?;
    log.store_recovery_point(log.active().base_offset, false)
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

/// The losses that a salvage accepts at the end of a segment.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Accept {
    /// Offsets that are missing.
    Gap,
    /// Damaged bytes too, because no batch follows them.
    Damage,
}

/// Decides how the end of a scanned segment is repaired.
fn settle(
    segment: &mut Segment,
    next_base: Option<i64>,
    scanned: Scanned,
    accept: Option<Accept>,
    bad: &mut Vec<BadRange>,
    gaps: &mut Vec<BadRange>,
    report: &mut RecoveryReport,
) -> io::Result<()> {
    bad.extend(scanned.bad);
    let tail = segment.size - scanned.end;
    let missing = next_base.filter(|next| *next > scanned.next_offset);
    let (offset, base) = (scanned.next_offset, segment.base_offset);
    let is_this =
        |gap: &BadRange| (gap.segment, gap.offset, Some(gap.next_offset)) == (base, offset, missing);
    let accepted = gaps.iter().any(is_this);
    let is_accepted = (tail == 0 && (accepted || accept.is_some())) || accept == Some(Accept::Damage);
    if let Some(next_offset) = missing.filter(|_| is_accepted) {
        if tail > 0 {
            segment.log().set_len(scanned.end)?;
            segment.size = scanned.end;
            report.truncated_bytes += tail;
        }
        if !accepted {
            gaps.push(BadRange::accepted_gap(base, offset, next_offset));
        }
        segment.end_offset = next_offset;
        return Ok(());
    }
    if let Some(next_offset) = missing {
        // Sound segments follow: whatever is here instead of the missing batches stays.
        bad.push(BadRange {
            segment: segment.base_offset,
            position: scanned.end,
            bytes: tail,
            offset: scanned.next_offset,
            next_offset,
            skipped: false,
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

/// Loads the epochs from their file, or from the batches if the file is missing, damaged or outdated.
fn load_epochs(log: &mut Log) -> io::Result<()> {
    let (storage, end) = (log.storage.clone(), log.end_offset());
    let stored = Epochs::load(&*storage, &log.dir);
    let from = if stored.is_some() { log.segment_of(log.sync.recovery_point) } else { 0 };
    let mut found = stored.clone().unwrap_or_default();
    found.truncate(end);
    if !log.marked_clean || stored.is_none() {
        for number in from..log.segments.len() {
            log.walk_segment(number, 0, |_, header, _| {
                found.note(header.partition_leader_epoch, header.base_offset);
                Ok(())
            })?;
        }
    }
    if let Some(latest) = stored.as_ref().and_then(Epochs::latest) {
        found.note_used(latest, end);
    }
    found.forget_before(log.start_offset);
    if stored.as_ref() != Some(&found) && found != Epochs::default() {
        match found.replace(&*storage, &log.dir) {
            Err(error) if is_no_space(&error) => {
                tracing::warn!(dir = &*log.dir, %error, "cannot write the leader epochs");
                // The recovery point has passed batches whose epochs the old file does not have: without it, all batches are read.
                if stored.as_ref().is_some_and(|stored| stored.latest() < found.latest()) {
                    storage.remove(&log.path(epochs::FILE_NAME))?;
                    storage.sync_dir(&log.dir)?;
                }
            }
            replaced => replaced?,
        }
    }
    log.epochs = found;
    Ok(())
}
