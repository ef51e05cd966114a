//! The files of a partition, and the checks of batches that are appended.

use bytes::BytesMut;
use ottla_log::fuzzing;
use ottla_log::storage::mem::MemStorage;
use ottla_log::{AppendOptions, BatchesCheck, CompactionOptions, Log, LogConfig, check_batches, check_log};
use ottla_wire::{BatchHeader, Compression};

use crate::disk::{Image, contents, repair_checkpoint, repair_slots, seed_of, storage};
use crate::input::Input;
use crate::memory::peak_of;
use crate::wire::{DECOMPRESSED_BYTES_MAX, batch_seeds, batches_of, sealed};

const DIR: &str = "orders-0";
const NOW_MS: i64 = 1_700_000_000_000;
/// The decompressed bytes between two steps of a check.
const STEP_BYTES: usize = 10_000;
/// The memory of an error, and of the list of timestamps that are wrong.
const ERROR_BYTES_MAX: usize = 64 << 10;

fn config() -> LogConfig {
    LogConfig {
        decompressed_bytes_max: DECOMPRESSED_BYTES_MAX,
        tail_cache_bytes: 64 << 10,
        ..LogConfig::default()
    }
}

/// Batches of a producer: the checks as a whole and in steps agree.
pub(crate) fn batch_check(input: &[u8]) {
    let bytes = BytesMut::from(&batches_of(input)[..]);
    let mut whole = bytes.clone();
    let options = AppendOptions::default();
    let checked = check_batches(DIR, &config(), NOW_MS, &mut whole, options);
    let mut check = BatchesCheck::new(DIR, config(), NOW_MS, bytes, options);
    let declared = check.memory_bytes();
    let mut in_steps = Ok(true);
    let taken = peak_of(|| {
        while matches!(in_steps, Ok(true)) {
            in_steps = check.step(STEP_BYTES);
        }
    });
    assert!(taken <= declared + ERROR_BYTES_MAX, "the steps took {taken} bytes of memory, not {declared}");
    assert_eq!(checked.is_ok(), in_steps.is_ok(), "{checked:?}, in steps {in_steps:?}");
    if checked.is_ok() {
        assert!(check.finish() == whole, "both put the same timestamps right");
        append(&whole);
    }
}

/// Appends batches that passed the checks, and reads them again.
fn append(batches: &[u8]) {
    let disk = MemStorage::new();
    let (mut log, _) = Log::open(storage(&disk), DIR, config(), NOW_MS).expect("a new log");
    // Sequences of producers are checked against the log, so the batches may still be refused.
    if log.append(NOW_MS, BytesMut::from(batches), AppendOptions::default()).is_err() {
        return;
    }
    let end = log.end_offset();
    read_all(&mut log);
    drop(log);
    let (mut log, report) = Log::open(storage(&disk), DIR, config(), NOW_MS).expect("a sound log");
    assert_eq!((log.end_offset(), report.truncated_bytes, report.quarantined.len()), (end, 0, 0));
    read_all(&mut log);
}

/// Any files of a log: it opens with sound batches of its files, or it is refused without a change.
pub(crate) fn segment(input: &[u8]) {
    let image = Image::read(input);
    let disk = image.disk(DIR);
    let before = contents(&disk);
    let _ = check_log(&storage(&disk), DIR);
    assert_eq!(contents(&disk), before, "a check changes nothing");
    let Ok((mut log, _)) = Log::open(storage(&disk), DIR, config(), NOW_MS) else {
        let before = contents(&disk);
        assert!(Log::open(storage(&disk), DIR, config(), NOW_MS).is_err(), "a refused log stays refused");
        assert_eq!(contents(&disk), before);
        if let Ok((mut log, _)) = Log::salvage(storage(&disk), DIR, config(), NOW_MS, 0) {
            read_all(&mut log);
        }
        return;
    };
    read_all(&mut log);
    let _ = log.max_timestamp();
    let _ = log.offset_for_timestamp(NOW_MS);
    let (start, end) = (log.start_offset(), log.end_offset());
    drop(log);
    let (mut log, _) =
        Log::open(storage(&disk), DIR, config(), NOW_MS).expect("a log that was opened before");
    assert_eq!((log.start_offset(), log.end_offset()), (start, end), "a second start finds the same");
    if let Ok(appended) =
        log.append(NOW_MS, BytesMut::from(&sealed(Compression::None, 2)[..]), AppendOptions::default())
    {
        assert_eq!(appended.base_offset, end);
        read_all(&mut log);
    }
    compact(log, &disk);
}

/// Compacts whatever the log has. Its offsets stay, and the next start finds no damage.
fn compact(mut log: Log, disk: &MemStorage) {
    if log.roll(NOW_MS).is_err() {
        return;
    }
    let (start, end) = (log.start_offset(), log.end_offset());
    let options = CompactionOptions {
        now_ms: NOW_MS,
        age_ms: NOW_MS,
        first_dirty: 0,
        stable_end: i64::MAX,
        map_bytes_max: 0,
        secret: [1, 2],
        aborted: Vec::new(),
        segment_bytes_max: Some(500),
    };
    let compacted = log.compact(options).is_ok();
    assert_eq!((log.start_offset(), log.end_offset()), (start, end), "compaction moves no offset");
    read_all(&mut log);
    drop(log);
    let opened = Log::open(storage(disk), DIR, config(), NOW_MS);
    assert!(!compacted || opened.is_ok_and(|(log, _)| log.end_offset() == end), "a compacted log opens");
}

/// Reads from start to end. Every batch is sound and its offsets rise. A batch that was forged together with its checksum may
/// claim offsets of the next segment.
fn read_all(log: &mut Log) {
    let mut offset = log.start_offset();
    let end = log.end_offset();
    while offset < end {
        let Ok(read) = log.read(offset, 1 << 20, i64::MAX, true) else { break };
        let bytes = read.chain.to_bytes().expect("a disk in memory");
        let before = offset;
        let mut at = 0;
        while let Ok(header) = BatchHeader::parse(&bytes[at..]) {
            let Some(batch) = bytes.get(at..at + header.total_bytes()) else { break };
            header.verify_crc(batch).expect("what is served is sound");
            assert!(header.last_offset() >= offset, "offsets rise");
            offset = header.next_offset();
            at += header.total_bytes();
        }
        offset = offset.max(read.next_offset.unwrap_or(offset));
        if offset == before {
            break;
        }
    }
}

pub(crate) fn segment_seeds() -> Vec<Vec<u8>> {
    let disk = MemStorage::new();
    // Three batches of two records roll the segment at offset 3 only if the sizes fit: small indexes do the rest.
    let config = LogConfig { segment_bytes: 200, index_interval_bytes: 1, ..config() };
    let (mut log, _) = Log::open(storage(&disk), DIR, config, NOW_MS).expect("a new log");
    let mut seeds = Vec::new();
    for codec in [Compression::None, Compression::Lz4, Compression::Zstd] {
        let mut batch = BytesMut::from(&sealed(codec, 3)[..]);
        // Without a producer: its sequences would have to rise.
        batch[43..57].fill(0xff);
        crate::wire::repair_checksums(&mut batch);
        log.append(NOW_MS, batch, AppendOptions::default()).expect("a sound batch");
        seeds.push(seed_of(&disk));
        log.sync_now().expect("a disk in memory");
        seeds.push(seed_of(&disk));
    }
    log.close().expect("a disk in memory");
    seeds.push(seed_of(&disk));
    seeds
}

pub(crate) fn batch_check_seeds() -> Vec<Vec<u8>> {
    batch_seeds()
}

pub(crate) fn offset_index(input: &[u8]) {
    let mut input = Input::new(input);
    let wanted = input.i64();
    fuzzing::offset_index(input.rest(), wanted);
}

pub(crate) fn offset_index_seeds() -> Vec<Vec<u8>> {
    index_seeds(fuzzing::seeds::offset_index, &[0, 15, 1000, -1])
}

pub(crate) fn time_index(input: &[u8]) {
    let mut input = Input::new(input);
    let wanted = input.i64();
    fuzzing::time_index(input.rest(), wanted);
}

pub(crate) fn time_index_seeds() -> Vec<Vec<u8>> {
    index_seeds(fuzzing::seeds::time_index, &[0, NOW_MS + 3, NOW_MS + 100, i64::MAX])
}

fn index_seeds(index: fn(i32) -> Vec<u8>, wanted: &[i64]) -> Vec<Vec<u8>> {
    let counts = [0, 1, 2, 30];
    wanted
        .iter()
        .zip(counts)
        .map(|(wanted, count)| [&wanted.to_be_bytes()[..], &index(count)].concat())
        .collect()
}

/// A snapshot of producers. The checksum is put right unless the first bit of the first byte is set.
pub(crate) fn producer_snapshot(input: &[u8]) {
    let (choices, bytes) = input.split_first().unwrap_or((&1, &[]));
    let mut bytes = bytes.to_vec();
    if choices & 1 == 0 {
        repair_checkpoint(&mut bytes);
    }
    fuzzing::producer_snapshot(&bytes);
}

pub(crate) fn producer_snapshot_seeds() -> Vec<Vec<u8>> {
    [0, 1, 3, 7].map(|count| [vec![0], fuzzing::seeds::producer_snapshot(count)].concat()).into()
}

pub(crate) fn checkpoints(input: &[u8]) {
    fuzzing::checkpoints(input);
}

pub(crate) fn checkpoints_seeds() -> Vec<Vec<u8>> {
    let range = [0_i64, 100, 61, 7, 9].map(i64::to_be_bytes).concat();
    let skipped = [0_i64, 100, !61, 7, 9].map(i64::to_be_bytes).concat();
    vec![fuzzing::seeds::clean_mark(), range.clone(), [range, skipped].concat()]
}

pub(crate) fn transaction_index(input: &[u8]) {
    let mut input = Input::new(input);
    let (from, to) = (input.i64(), input.i64());
    fuzzing::transaction_index(input.rest(), from, to);
}

pub(crate) fn transaction_index_seeds() -> Vec<Vec<u8>> {
    let seed = |from: i64, to: i64, count| {
        [&from.to_be_bytes()[..], &to.to_be_bytes(), &fuzzing::seeds::transaction_index(count)].concat()
    };
    vec![seed(0, 0, 0), seed(7, 30, 5), seed(90, 200, 20)]
}

pub(crate) fn leader_epochs(input: &[u8]) {
    let mut input = Input::new(input);
    let offset = input.i64();
    fuzzing::leader_epochs(input.rest(), offset);
}

pub(crate) fn leader_epochs_seeds() -> Vec<Vec<u8>> {
    [0_i64, 17, 20]
        .map(|offset| [&offset.to_be_bytes()[..], &fuzzing::seeds::leader_epochs()].concat())
        .into()
}

/// A `synced` file. The checksums are put right unless the first bit of the first byte is set.
pub(crate) fn synced(input: &[u8]) {
    let (choices, bytes) = input.split_first().unwrap_or((&1, &[]));
    let mut bytes = bytes.to_vec();
    if choices & 1 == 0 {
        repair_slots(&mut bytes);
    }
    let (synced, start) = fuzzing::synced(&bytes);
    let is_in = |number: i64| bytes.windows(8).any(|window| window == number.to_be_bytes());
    assert!(synced.into_iter().chain(start).all(is_in), "no number is invented");
}

pub(crate) fn synced_seeds() -> Vec<Vec<u8>> {
    let disk = MemStorage::new();
    let (mut log, _) = Log::open(storage(&disk), DIR, config(), NOW_MS).expect("a new log");
    let mut seeds = vec![vec![0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9]];
    for _ in 0..3 {
        let mut batch = BytesMut::from(&sealed(Compression::None, 1)[..]);
        batch[43..57].fill(0xff);
        crate::wire::repair_checksums(&mut batch);
        log.append(NOW_MS, batch, AppendOptions::default()).expect("a sound batch");
        log.sync_now().expect("a disk in memory");
        let file = disk.contents(&format!("{DIR}/synced")).expect("a synced log has one");
        seeds.push([vec![0], file].concat());
    }
    seeds
}
