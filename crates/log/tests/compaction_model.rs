//! Random histories of appends, transactions, deletions, crashes and compactions, compared with a naive model.
//!
//! The model keeps every record that was ever appended. It knows which ones a compaction must keep, which ones it may
//! keep, and which ones must be gone after a pass over the whole log.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fastrand::Rng;
use ottla_log::storage::mem::MemStorage;
use ottla_log::{AbortedTransaction, CompactionError, CompactionOptions, Log, LogConfig};
use ottla_wire::{Compression, Seal};

use crate::common::{DIR, NOW};
use crate::keyed::{
    Keyed, appended, batch, batches, commit_marker, contents, marker, record, tombstone, transactional,
};

/// Keys of a history: few, so that records are superseded.
const KEYS: i32 = 12;
const RETENTION_MS: i64 = 1000;

/// A record that was appended.
#[derive(Clone, Debug)]
struct Appended {
    keyed: Keyed,
    is_aborted: bool,
}

#[derive(Default)]
struct Model {
    /// By offset.
    records: BTreeMap<i64, Appended>,
    /// Base offset, producer, epoch and sequence of the last data batch of each producer.
    producers: BTreeMap<i64, (i64, i32)>,
    /// Tombstones that a pass has seen, and the time of the first one that did.
    seen: BTreeMap<i64, i64>,
    first_dirty: i64,
    /// No pass, complete or stopped, has read further.
    read_end: i64,
    start: i64,
    now: i64,
}

impl Model {
    fn add(&mut self, base: i64, records: &[Keyed], is_aborted: bool) {
        for (keyed, offset) in records.iter().zip(base..) {
            self.records.insert(offset, Appended { keyed: keyed.clone().at(offset), is_aborted });
        }
    }

    /// The newest committed record of each key below `end`.
    fn newest(&self, end: i64) -> BTreeMap<Vec<u8>, i64> {
        let live = self.records.range(..end).filter(|(_, record)| !record.is_aborted);
        live.map(|(offset, record)| (record.keyed.key.clone().expect("a key"), *offset)).collect()
    }

    /// Checks the log: each record is one of the model's, and those that no pass may remove are there.
    fn check(&self, log: &mut Log, context: &str) {
        let found: BTreeMap<i64, Keyed> =
            contents(log).into_iter().map(|keyed| (keyed.offset, keyed)).collect();
        for (offset, keyed) in &found {
            assert_eq!(
                Some(keyed),
                self.records.get(offset).map(|record| &record.keyed),
                "{context}: {offset}"
            );
        }
        let newest: BTreeSet<i64> = self.newest(self.read_end).into_values().collect();
        for (offset, record) in self.records.range(self.start..) {
            let may_expire = record.keyed.value.is_none()
                && self.seen.get(offset).is_some_and(|seen| self.now >= seen + RETENTION_MS);
            let must_stay = *offset >= self.read_end || (newest.contains(offset) && !may_expire);
            if must_stay && !record.is_aborted {
                assert!(found.contains_key(offset), "{context}: {offset} is gone: {record:?}");
            }
        }
    }

    /// The transaction indexes hide the aborted data that is left, and nothing else.
    fn check_committed(&self, log: &mut Log, context: &str) {
        let aborted = log.aborted_transactions(log.start_offset(), log.end_offset()).expect("read");
        for header in batches(log).iter().filter(|header| !header.is_control() && header.record_count > 0) {
            let Some(record) = self.records.get(&header.base_offset) else { continue };
            let hides = |one: &AbortedTransaction| {
                one.producer_id == header.producer_id
                    && (one.first_offset..one.last_offset).contains(&header.base_offset)
            };
            let is_hidden = header.is_transactional() && aborted.iter().any(hides);
            assert_eq!(is_hidden, record.is_aborted, "{context}: {header:?}, {aborted:?}");
        }
    }

    /// After a whole pass up to `end`: nothing that was superseded below is left, and no aborted data.
    fn check_clean(&self, log: &mut Log, end: i64, expired: &BTreeSet<i64>, context: &str) {
        let newest: BTreeSet<i64> = self.newest(end).into_values().collect();
        for keyed in contents(log).iter().filter(|keyed| keyed.offset < end) {
            let record = &self.records[&keyed.offset];
            assert!(!record.is_aborted, "{context}: aborted data at {}", keyed.offset);
            assert!(newest.contains(&keyed.offset), "{context}: {} is superseded", keyed.offset);
            assert!(!expired.contains(&keyed.offset), "{context}: tombstone {} has expired", keyed.offset);
        }
    }
}

fn config(rng: &mut Rng) -> LogConfig {
    LogConfig {
        compact: true,
        delete: false,
        delete_retention_ms: RETENTION_MS,
        segment_bytes: rng.u32(500..4000),
        index_interval_bytes: rng.u32(0..500),
        tail_cache_bytes: *rng.choice([0, 300, 5000, 1 << 20].iter()).expect("not empty"),
        ..LogConfig::default()
    }
}

fn random_records(rng: &mut Rng, now: i64) -> Vec<Keyed> {
    let record = |rng: &mut Rng| {
        let key = rng.i32(0..KEYS);
        let value: String = (0..rng.usize(0..60)).map(|_| rng.alphanumeric()).collect();
        let keyed = if rng.u8(0..5) == 0 { tombstone(key) } else { record(key, &value) };
        keyed.timed(now - rng.i64(0..500))
    };
    (0..rng.usize(1..6)).map(|_| record(rng)).collect()
}

fn append(log: &mut Log, model: &mut Model, rng: &mut Rng) {
    let records = random_records(rng, model.now);
    let compression = *rng.choice(Compression::ALL.iter()).expect("not empty");
    let mut seal = Seal { compression, ..Seal::default() };
    let mut producer = None;
    if rng.bool() {
        let id = rng.i64(100..103);
        let sequence = model.producers.get(&id).map_or(0, |(_, next)| *next);
        producer = Some((id, sequence + records.len() as i32));
        seal = Seal { producer_id: id, producer_epoch: 0, base_sequence: sequence, ..seal };
    }
    let base = appended(log, batch(&records, NOW, &seal), 0);
    if let Some((id, next)) = producer {
        model.producers.insert(id, (base, next));
    }
    model.add(base, &records, false);
}

/// A whole transaction of one or two batches, with other records between them.
fn transaction(log: &mut Log, model: &mut Model, rng: &mut Rng) {
    let id = rng.i64(200..202);
    let is_aborted = rng.bool();
    for _ in 0..rng.usize(1..3) {
        let records = random_records(rng, model.now);
        let sequence = model.producers.get(&id).map_or(0, |(_, next)| *next);
        let base = transactional(log, id, sequence, &records);
        model.producers.insert(id, (base, sequence + records.len() as i32));
        model.add(base, &records, is_aborted);
        if rng.bool() {
            append(log, model, rng);
        }
    }
    if is_aborted {
        marker(log, id, 0);
    } else {
        commit_marker(log, id);
    }
}

fn options(model: &Model, log: &Log, rng: &mut Rng) -> CompactionOptions {
    CompactionOptions {
        now_ms: model.now,
        age_ms: model.now,
        first_dirty: model.first_dirty,
        stable_end: log.last_stable_offset(log.end_offset()),
        map_bytes_max: if rng.u8(0..4) == 0 { 0 } else { 1 << 20 },
        secret: [rng.u64(..), rng.u64(..)],
        aborted: log.all_aborted_transactions(log.end_offset()).expect("read"),
        segment_bytes_max: rng.bool().then(|| rng.u32(300..3000)),
    }
}

/// A pass, which may be stopped. Returns its end if it was completed.
fn compact(log: &mut Log, model: &mut Model, rng: &mut Rng, context: &str) {
    let expired: BTreeSet<i64> = model
        .seen
        .iter()
        .filter(|(_, seen)| model.now >= **seen + RETENTION_MS)
        .map(|(offset, _)| *offset)
        .collect();
    let stop_after = if rng.u8(0..4) == 0 { rng.usize(0..4) } else { usize::MAX };
    let options = options(model, log, rng);
    let cleanable = log.cleanable(options.first_dirty, options.stable_end, options.now_ms).expect("looked");
    model.read_end = model.read_end.max(cleanable.end);
    let mut compaction = log.begin_compaction(options).expect("begun");
    let calls = std::cell::Cell::new(0);
    let should_stop = || calls.replace(calls.get() + 1) >= stop_after;
    loop {
        match compaction.clean_next(&should_stop) {
            Ok(Some(group)) => {
                let pending = log.begin_replacement(group).expect("begun");
                log.finish_replacement(pending.run()).expect("replaced").run().expect("removed");
            }
            Ok(None) => break,
            Err(CompactionError::Stopped) => {
                // A part of the pass may have set horizons.
                note_tombstones(log, model);
                return;
            }
            Err(error) => panic!("{context}: {error}"),
        }
    }
    let end = compaction.report().first_dirty;
    assert!(end >= model.first_dirty, "{context}");
    model.first_dirty = end;
    // The whole log up to the end was read by this pass and by those before, so that no superseded record is left.
    model.check_clean(log, end, &expired, context);
    note_tombstones(log, model);
}

/// Notes the tombstones whose batches have a horizon.
fn note_tombstones(log: &mut Log, model: &mut Model) {
    let all = batches(log);
    let with_horizon = all.iter().filter(|header| header.has_delete_horizon() && !header.is_control());
    for header in with_horizon {
        for (offset, record) in model.records.range(header.base_offset..header.next_offset()) {
            if record.keyed.value.is_none() {
                model.seen.entry(*offset).or_insert(header.base_timestamp - RETENTION_MS);
            }
        }
    }
}

#[test]
fn a_compacted_log_has_the_newest_record_of_each_key_whatever_happens_to_it() {
    let seeds: u64 = std::env::var("OTTLA_COMPACTION_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(150);
    for seed in 0..seeds {
        let rng = &mut Rng::with_seed(seed);
        let disk = MemStorage::forgetful();
        let mut settings = config(rng);
        let open = |disk: &MemStorage, settings: &LogConfig| {
            Log::open(Arc::new(disk.clone()), DIR, settings.clone(), NOW).expect("opened").0
        };
        let mut log = open(&disk, &settings);
        let mut model = Model { now: NOW, ..Model::default() };
        for step in 0..120 {
            let context = format!("seed {seed}, step {step}");
            model.now += rng.i64(0..200);
            match rng.u8(0..100) {
                0..45 => append(&mut log, &mut model, rng),
                45..60 => transaction(&mut log, &mut model, rng),
                60..70 => log.roll(NOW).expect("rolled"),
                70..88 => compact(&mut log, &mut model, rng, &context),
                88..90 => {
                    let start = rng.i64(model.start..=log.end_offset());
                    drop(log.delete_records_before(start).expect("deleted"));
                    model.start = start;
                }
                90..92 => {
                    settings = config(rng);
                    log.update_config(settings.clone());
                }
                92..94 => {
                    log.close().expect("closed");
                    log = open(&disk, &settings);
                }
                94..96 => {
                    drop(log);
                    log = open(&disk, &settings);
                }
                96..98 => {
                    log.sync_now().expect("synced");
                    disk.crash(rng);
                    drop(log);
                    log = open(&disk, &settings);
                }
                _ => {
                    // The cleaner point is lost: everything is dirty.
                    model.first_dirty = model.start;
                }
            }
            model.check(&mut log, &context);
            model.check_committed(&mut log, &context);
            assert!(log.quarantined().is_empty(), "{context}");
            for state in log.producers() {
                let (base, next) = model.producers[&state.producer_id];
                if state.last_sequence == -1 {
                    // Only a marker is left: its data was deleted, and a crash has lost the snapshots.
                    assert!(base < model.start, "{context}: producer {}", state.producer_id);
                    continue;
                }
                assert_eq!(state.last_sequence + 1, next, "{context}: producer {}", state.producer_id);
            }
        }
    }
}
