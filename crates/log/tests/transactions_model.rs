//! Random histories of transactions, crashes, truncations, deletions and compactions, and a story that is cut short at
//! every call to the disk. The naive model reads all batches of the log and follows the markers in them.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::BytesMut;
use fastrand::Rng;
use ottla_log::storage::Storage;
use ottla_log::storage::mem::{Fault, MemStorage};
use ottla_log::{
    AbortedTransaction, AppendError, AppendOptions, CompactionError, CompactionOptions, CompactionReport,
    EndMarker, Log, LogConfig, LogError, TransactionOutcome, Transactional, Visible,
};
use ottla_wire::{BatchBuilder, BatchHeader, Batches, Seal};

use crate::common::{DIR, NOW};

const PRODUCERS: i64 = 3;

/// The transactions of a log, from its batches.
#[derive(Debug, Default)]
struct Naive {
    /// The first offset of each open transaction, by producer.
    open: BTreeMap<i64, i64>,
    /// The entries of the transaction indexes, in the order of the markers.
    aborted: Vec<AbortedTransaction>,
    /// Batches of ended transactions: offset, producer, and whether it was aborted.
    ended: Vec<(i64, i64, bool)>,
    /// The epoch and the next sequence of each producer.
    next: BTreeMap<i64, (i16, i32)>,
}

impl Naive {
    fn of(log: &mut Log) -> Self {
        let mut naive = Self::default();
        let mut data: Vec<(i64, i64)> = Vec::new();
        let mut from = log.start_offset();
        while from < log.end_offset() {
            let read = log.read(from, 1 << 20, i64::MAX, true).expect("read");
            let bytes = read.chain.to_bytes().expect("bytes");
            for found in Batches::new(&bytes) {
                let (header, range) = found.expect("a batch");
                from = header.next_offset();
                if header.has_producer_id() && header.base_offset >= log.start_offset() {
                    naive.batch(&header, &bytes[range], &mut data);
                }
            }
            from = from.max(read.next_offset.unwrap_or(from));
        }
        naive
    }

    fn batch(&mut self, header: &BatchHeader, bytes: &[u8], data: &mut Vec<(i64, i64)>) {
        let id = header.producer_id;
        if header.is_control() && header.record_count == 0 {
            return;
        }
        if !header.is_control() {
            self.open.entry(id).or_insert(header.base_offset);
            self.next.insert(id, (header.producer_epoch, header.base_sequence + 1));
            data.push((header.base_offset, id));
            return;
        }
        // After the length, attributes, timestamp and offset deltas and the length of the key: its version and type.
        let is_abort = bytes[61 + 5..61 + 9] == [0, 0, 0, 0];
        self.next.insert(id, (header.producer_epoch, 0));
        let first = self.open.remove(&id);
        if let Some(first_offset) = first.filter(|_| is_abort) {
            let stable = self.open.values().min().copied().unwrap_or(header.base_offset + 1);
            self.aborted.push(AbortedTransaction {
                producer_id: id,
                first_offset,
                last_offset: header.base_offset,
                last_stable_offset: stable,
            });
        }
        let of_it = data.extract_if(.., |(_, other)| *other == id);
        self.ended.extend(of_it.map(|(offset, id)| (offset, id, is_abort)));
    }
}

/// The log knows the open transactions, and its indexes hide the aborted data and nothing else.
fn check(log: &mut Log, context: &str) -> Naive {
    let naive = Naive::of(log);
    let (start, end) = (log.start_offset(), log.end_offset());
    let stable = log.last_stable_offset(end);
    let first_open = naive.open.values().min().copied().unwrap_or(end);
    assert!((start..=first_open).contains(&stable), "{context}: {stable}, {naive:?}");
    let aborted = log.aborted_transactions(start, end).expect("read");
    assert!(aborted.is_sorted_by_key(|one| one.first_offset), "{context}");
    for (offset, id, is_aborted) in &naive.ended {
        let hides = |one: &AbortedTransaction| {
            one.producer_id == *id && (one.first_offset..one.last_offset).contains(offset)
        };
        assert_eq!(aborted.iter().any(hides), *is_aborted, "{context}: {offset} of {id}, {aborted:?}");
    }
    let known = log.producers();
    for (id, first) in &naive.open {
        let producer = known.iter().find(|producer| producer.producer_id == *id).expect("it is known");
        let at = producer.transaction_first_offset.expect("its transaction is open");
        assert!(at == *first || (at < start && start > 0), "{context}: producer {id}: {at}, {first}");
    }
    // Where records were deleted, transactions may have begun before, and ended producers may be known.
    if start == 0 {
        assert_eq!(stable, first_open, "{context}: {naive:?}");
        let open = known.iter().filter(|producer| producer.transaction_first_offset.is_some());
        assert_eq!(open.count(), naive.open.len(), "{context}");
        let mut expected = naive.aborted.clone();
        expected.sort_by_key(|one| one.first_offset);
        assert_eq!(aborted, expected, "{context}");
        for from in (0..end).step_by(3) {
            let to = end.min(from + 7);
            let overlaps = |one: &&AbortedTransaction| one.last_offset >= from && one.first_offset < to;
            let part: Vec<_> = expected.iter().filter(overlaps).copied().collect();
            // Beyond the last stable offset a search may end early: no consumer reads there.
            if to <= stable {
                assert_eq!(
                    log.aborted_transactions(from, to).expect("read"),
                    part,
                    "{context}: {from}..{to}"
                );
            }
        }
    }
    naive
}

fn data(producer_id: i64, producer_epoch: i16, base_sequence: i32) -> BytesMut {
    let mut builder = BatchBuilder::new();
    builder.push(NOW, Some(b"key"), Some(b"value"), &[]);
    let seal = Seal { producer_id, producer_epoch, base_sequence, transactional: true, ..Seal::default() };
    BytesMut::from(&builder.seal(&seal).expect("sealed").to_bytes()[..])
}

fn send(log: &mut Log, naive: &Naive, id: i64) -> Result<(), AppendError> {
    let (epoch, sequence) = naive.next.get(&id).copied().unwrap_or_else(|| {
        let known = log.producers().into_iter().find(|producer| producer.producer_id == id);
        known.map_or((0, 0), |known| (known.epoch, known.last_sequence + 1))
    });
    let options = AppendOptions { transactional: Transactional::Accepted, ..AppendOptions::default() };
    log.append(NOW, data(id, epoch, sequence), options).map(drop)
}

/// Ends a transaction as transaction version 2 does: with the next epoch.
fn end(log: &mut Log, id: i64, outcome: TransactionOutcome) -> Result<(), AppendError> {
    let known = log.producers().into_iter().find(|producer| producer.producer_id == id);
    let epoch = known.map_or(0, |known| known.epoch);
    let marker = EndMarker {
        producer_id: id,
        producer_epoch: epoch + 1,
        coordinator_epoch: 0,
        outcome,
        transaction_version: 2,
    };
    log.append_marker(marker, 0, NOW).map(drop)
}

fn config(rng: &mut Rng) -> LogConfig {
    LogConfig {
        visible: Visible::Synced,
        segment_bytes: rng.u32(150..1500),
        index_interval_bytes: rng.u32(0..300),
        tail_cache_bytes: *rng.choice([0, 300, 1 << 20].iter()).expect("not empty"),
        ..LogConfig::default()
    }
}

/// Unsynced batches that a crash has torn are cut off, not set aside.
fn synced() -> LogConfig {
    LogConfig { visible: Visible::Synced, ..LogConfig::default() }
}

fn open(disk: &MemStorage, config: &LogConfig) -> Result<Log, LogError> {
    Log::open(Arc::new(disk.clone()), DIR, config.clone(), NOW).map(|(log, _)| log)
}

fn outcome(rng: &mut Rng) -> TransactionOutcome {
    if rng.bool() { TransactionOutcome::Abort } else { TransactionOutcome::Commit }
}

#[test]
fn a_log_knows_its_transactions_whatever_happens_to_it() {
    let seeds: u64 = std::env::var("OTTLA_TXN_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(120);
    for seed in 0..seeds {
        let rng = &mut Rng::with_seed(seed);
        let disk = MemStorage::forgetful();
        let settings = config(rng);
        let mut log = open(&disk, &settings).expect("a new log");
        let deletes = seed % 2 == 1;
        for step in 0..150 {
            let context = format!("seed {seed}, step {step}");
            let naive = check(&mut log, &context);
            let id = rng.i64(0..PRODUCERS);
            match rng.u8(0..100) {
                0..50 => send(&mut log, &naive, id).unwrap_or_else(|error| panic!("{context}: {error}")),
                50..75 => {
                    end(&mut log, id, outcome(rng)).unwrap_or_else(|error| panic!("{context}: {error}"));
                }
                75..80 => log.roll(NOW).expect("rolled"),
                80..85 => drop(log.sync_now().expect("synced")),
                85..88 => {
                    let at = rng.i64(log.start_offset()..=log.end_offset());
                    log.truncate_to(at, NOW).expect("truncated");
                }
                88..90 if deletes => {
                    let at = rng.i64(log.start_offset()..=log.end_offset());
                    drop(log.delete_records_before(at).expect("deleted"));
                }
                90..93 => {
                    log.close().expect("closed");
                    log = open(&disk, &settings).expect("opened");
                }
                93..96 => {
                    drop(log);
                    log = open(&disk, &settings).expect("opened after a kill");
                }
                96..100 => {
                    disk.crash(rng);
                    drop(log);
                    log = open(&disk, &settings).unwrap_or_else(|error| panic!("{context}: {error}"));
                }
                _ => {}
            }
        }
    }
}

/// The story: every call may fail, and the log may go offline.
fn live(disk: &MemStorage) {
    let settings = LogConfig {
        visible: Visible::Synced,
        segment_bytes: 600,
        index_interval_bytes: 100,
        retention_bytes: Some(3000),
        ..LogConfig::default()
    };
    let rng = &mut Rng::with_seed(11);
    let mut log: Option<Log> = None;
    for step in 0..70 {
        if log.as_ref().is_none_or(|log| log.offline_reason().is_some()) {
            drop(log.take());
            let Ok(opened) = open(disk, &settings) else { continue };
            log = Some(opened);
        }
        let Some(open_log) = log.as_mut() else { continue };
        match step {
            20 | 50 => {
                let _ = open_log.truncate_to((open_log.end_offset() - 3).max(open_log.start_offset()), NOW);
            }
            33 => drop(log.take().map(Log::close)),
            41 => drop(log.take()),
            60 => drop(open_log.enforce_retention(NOW)),
            _ if step % 9 == 8 => drop(open_log.sync_now()),
            _ if step % 3 == 2 => drop(end(open_log, rng.i64(0..PRODUCERS), outcome(rng))),
            _ => {
                let id = rng.i64(0..PRODUCERS);
                let known = open_log.producers().into_iter().find(|producer| producer.producer_id == id);
                let next = known.map_or((0, 0), |known| (known.epoch, known.last_sequence + 1));
                let naive = Naive { next: BTreeMap::from([(id, next)]), ..Naive::default() };
                drop(send(open_log, &naive, id));
            }
        }
    }
}

#[test]
fn a_power_cut_at_any_call_leaves_the_transactions_that_the_batches_tell() {
    let whole = MemStorage::forgetful();
    live(&whole);
    let calls = whole.ops();
    assert!(calls > 150, "{calls}");
    for cut in 0..calls {
        for seed in 0..3 {
            let disk = MemStorage::forgetful();
            disk.fail_nth(cut, Fault::PowerCut, false);
            live(&disk);
            disk.crash(&mut Rng::with_seed(seed));
            let context = format!("power cut at call {cut} of {calls}, seed {seed}");
            let mut log = open(&disk, &synced()).unwrap_or_else(|error| panic!("{context}: {error}"));
            check(&mut log, &context);
        }
    }
}

#[test]
fn a_failed_call_leaves_the_transactions_that_the_batches_tell() {
    let whole = MemStorage::forgetful();
    live(&whole);
    for fault in [Fault::Io, Fault::NoSpace, Fault::ShortWrite] {
        for nth in 0..whole.ops() {
            let disk = MemStorage::forgetful();
            disk.fail_nth(nth, fault, false);
            live(&disk);
            disk.heal();
            let context = format!("{fault:?} at call {nth}");
            let mut log = open(&disk, &synced()).unwrap_or_else(|error| panic!("{context}: {error}"));
            check(&mut log, &context);
        }
    }
}

/// A lost or damaged index is collected from the log again.
#[test]
fn a_damaged_transaction_index_is_rebuilt() {
    let disk = MemStorage::new();
    let settings = LogConfig { segment_bytes: 600, ..LogConfig::default() };
    let mut log = open(&disk, &settings).expect("a new log");
    let rng = &mut Rng::with_seed(5);
    for _ in 0..60 {
        let naive = Naive::of(&mut log);
        let id = rng.i64(0..PRODUCERS);
        send(&mut log, &naive, id).expect("appended");
        if rng.bool() {
            end(&mut log, rng.i64(0..PRODUCERS), TransactionOutcome::Abort).expect("appended");
        }
    }
    log.close().expect("closed");
    let indexes: Vec<String> = disk.paths().into_iter().filter(|path| path.ends_with(".txnindex")).collect();
    assert!(indexes.len() > 3, "{indexes:?}");
    for path in &indexes {
        let sound = disk.contents(path).expect("there");
        let mut flipped = sound.clone();
        flipped[2] ^= 0x80;
        for bad in [&[][..], &sound[..sound.len() - 1], &flipped[..], &[&sound[..], &[0; 34]].concat()] {
            let disk = disk.fork();
            disk.set_contents(path, bad);
            if bad.is_empty() {
                disk.remove(path).expect("removed");
            }
            let mut log = open(&disk, &settings).expect("opened");
            check(&mut log, &format!("{path}: {} bytes", bad.len()));
            drop(log);
            assert_eq!(disk.contents(path).expect("there"), sound);
            disk.set_contents(path, bad);
            let salvaged = Log::salvage(Arc::new(disk.clone()), DIR, settings.clone(), NOW, 0);
            check(&mut salvaged.expect("salvaged").0, path);
        }
    }
}

fn compacted() -> LogConfig {
    LogConfig { compact: true, delete: false, segment_bytes: 700, index_interval_bytes: 64, ..synced() }
}

/// A pass that removes aborted data, and later the markers without data.
fn pass(log: &mut Log, now_ms: i64) -> Result<CompactionReport, CompactionError> {
    let end = log.end_offset();
    let options = CompactionOptions {
        now_ms,
        age_ms: now_ms,
        first_dirty: 0,
        stable_end: log.last_stable_offset(end),
        map_bytes_max: 1 << 20,
        secret: [1, 2],
        aborted: log.all_aborted_transactions(end)?,
        segment_bytes_max: Some(500),
    };
    log.compact(options)
}

/// A durable log of several segments with aborted and committed transactions, some of which a pass has cleaned.
fn dirty() -> MemStorage {
    let disk = MemStorage::forgetful();
    let mut log = open(&disk, &compacted()).expect("a new log");
    let rng = &mut Rng::with_seed(3);
    for step in 0..90 {
        let naive = Naive::of(&mut log);
        send(&mut log, &naive, rng.i64(0..PRODUCERS)).expect("appended");
        if rng.bool() {
            end(&mut log, rng.i64(0..PRODUCERS), outcome(rng)).expect("appended");
        }
        if step == 45 {
            pass(&mut log, NOW).expect("compacted");
        }
    }
    for id in 0..PRODUCERS {
        end(&mut log, id, TransactionOutcome::Abort).expect("appended");
    }
    log.roll(NOW).expect("rolled");
    log.sync_now().expect("synced");
    disk
}

/// The aborted batches that are left are hidden, and no others are.
fn check_hidden(log: &mut Log, context: &str) {
    let naive = Naive::of(log);
    let aborted = log.aborted_transactions(0, log.end_offset()).expect("read");
    for (offset, id, is_aborted) in &naive.ended {
        let hides = |one: &AbortedTransaction| {
            one.producer_id == *id && (one.first_offset..one.last_offset).contains(offset)
        };
        assert_eq!(aborted.iter().any(hides), *is_aborted, "{context}: {offset} of {id}, {aborted:?}");
    }
    assert_eq!(log.last_stable_offset(log.end_offset()), log.end_offset(), "{context}");
}

#[test]
fn a_power_cut_in_a_compaction_leaves_aborted_data_hidden() {
    let disk = dirty();
    let whole = disk.fork();
    let mut log = open(&whole, &compacted()).expect("opened");
    assert!(log.has_aborted_transactions());
    let before = whole.ops();
    pass(&mut log, NOW + 1).expect("compacted");
    let calls = whole.ops() - before;
    assert!(calls > 50, "{calls}");
    let later = NOW + 2 * 24 * 3_600_000;
    pass(&mut log, later).expect("compacted");
    pass(&mut log, later).expect("compacted");
    check_hidden(&mut log, "compacted");
    assert!(!log.has_aborted_transactions(), "no data of an aborted transaction is left");
    for cut in 0..calls {
        for seed in 0..4 {
            let disk = disk.fork();
            let mut log = open(&disk, &compacted()).expect("opened");
            disk.fail_nth(cut, Fault::PowerCut, false);
            let _ = pass(&mut log, NOW + 1);
            disk.crash(&mut Rng::with_seed(seed));
            drop(log);
            let context = format!("power cut at call {cut} of {calls}, seed {seed}");
            let mut log = open(&disk, &compacted()).unwrap_or_else(|error| panic!("{context}: {error}"));
            check_hidden(&mut log, &context);
            pass(&mut log, NOW + 1).unwrap_or_else(|error| panic!("{context}: {error}"));
            check_hidden(&mut log, &context);
        }
    }
}
