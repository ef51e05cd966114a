//! Compactions that are cut short at every call to the disk, and compactions in which every call fails once.

use std::collections::BTreeMap;
use std::sync::Arc;

use ottla_log::storage::mem::{Fault, MemStorage};
use ottla_log::{CompactionOptions, Log, LogConfig, LogError};

use crate::common::{DIR, NOW};
use crate::keyed::{Keyed, append, contents, options, record, tombstone};

fn config() -> LogConfig {
    LogConfig {
        compact: true,
        delete: false,
        index_interval_bytes: 64,
        segment_bytes: 900,
        ..LogConfig::default()
    }
}

fn open(disk: &MemStorage) -> Result<Log, LogError> {
    Log::open(Arc::new(disk.clone()), DIR, config(), NOW).map(|(log, _)| log)
}

/// A durable log of several segments with superseded records and tombstones, after one pass.
fn begin() -> (MemStorage, Vec<Keyed>, Vec<Keyed>) {
    let disk = MemStorage::forgetful();
    let mut log = open(&disk).expect("a new log");
    for n in 0..60 {
        let keyed = if n % 9 == 8 { tombstone(n % 5) } else { record(n % 7, &format!("value {n}")) };
        append(&mut log, &[keyed, record(n % 11 + 100, "of the same batch")]);
    }
    log.compact(options(0, NOW)).expect("compacted");
    for n in 0..40 {
        append(&mut log, &[record(n % 5 + 3, &format!("later {n}"))]);
    }
    log.roll(NOW).expect("rolled");
    log.sync_now().expect("synced");
    let before = contents(&mut log);
    drop(log);
    let after = disk.fork();
    let mut log = open(&after).expect("opened");
    pass(&mut log).expect("compacted");
    assert!(log.segment_count() > 2, "groups of several segments: {}", log.segment_count());
    (disk, before, contents(&mut log))
}

/// A pass that removes tombstones. Each cleaned group is split in two.
fn pass(log: &mut Log) -> Result<ottla_log::CompactionReport, ottla_log::CompactionError> {
    let later = NOW + 2 * 24 * 3_600_000;
    log.compact(CompactionOptions { segment_bytes_max: Some(450), ..options(0, later) })
}

/// Each record is one of the log before the pass, nothing is missing that the pass keeps, and the newest value of a key
/// is what it was.
fn check(log: &mut Log, before: &[Keyed], after: &[Keyed], context: &str) {
    let found = contents(log);
    assert!(found.windows(2).all(|pair| pair[0].offset < pair[1].offset), "{context}");
    assert!(found.iter().all(|keyed| before.contains(keyed)), "{context}");
    assert!(after.iter().all(|keyed| found.contains(keyed)), "{context}: {found:?} instead of {after:?}");
    let newest = |records: &[Keyed]| -> BTreeMap<Vec<u8>, Vec<u8>> {
        let mut map = BTreeMap::new();
        for keyed in records {
            let key = keyed.key.clone().expect("a key");
            match &keyed.value {
                Some(value) => drop(map.insert(key, value.clone())),
                None => drop(map.remove(&key)),
            }
        }
        map
    };
    assert_eq!(newest(&found), newest(before), "{context}");
    assert!(log.quarantined().is_empty(), "{context}");
}

fn leftovers(disk: &MemStorage) -> Vec<String> {
    let is_leftover =
        |path: &String| [".cleaned", ".swap", ".deleted"].iter().any(|suffix| path.ends_with(suffix));
    disk.paths().into_iter().filter(is_leftover).collect()
}

/// The number of changing calls of a pass on an open log.
fn calls(disk: &MemStorage) -> u64 {
    let disk = disk.fork();
    let mut log = open(&disk).expect("opened");
    let before = disk.ops();
    pass(&mut log).expect("compacted");
    disk.ops() - before
}

#[test]
fn a_power_cut_at_any_call_leaves_the_old_or_the_new_records() {
    let (disk, before, after) = begin();
    let calls = calls(&disk);
    assert!(calls > 50, "{calls}");
    for cut in 0..calls {
        for seed in 0..6 {
            let disk = disk.fork();
            let mut log = open(&disk).expect("opened");
            disk.fail_nth(cut, Fault::PowerCut, false);
            assert!(pass(&mut log).is_err() || cut + 2 >= calls, "call {cut}");
            let context = format!("power cut at call {cut} of {calls}, seed {seed}");
            disk.crash(&mut fastrand::Rng::with_seed(seed));
            drop(log);
            let mut log = open(&disk).unwrap_or_else(|error| panic!("{context}: {error}"));
            check(&mut log, &before, &after, &context);
            assert!(leftovers(&disk).is_empty(), "{context}: {:?}", leftovers(&disk));
            // The next pass completes it.
            pass(&mut log).unwrap_or_else(|error| panic!("{context}: {error}"));
            assert_eq!(contents(&mut log), after, "{context}");
        }
    }
}

/// The opening that settles a replacement is cut short as well.
#[test]
fn a_second_power_cut_while_the_log_is_opened_changes_nothing() {
    let (disk, before, after) = begin();
    let calls = calls(&disk);
    for cut in 0..calls {
        let disk = disk.fork();
        let mut log = open(&disk).expect("opened");
        disk.fail_nth(cut, Fault::PowerCut, false);
        let _ = pass(&mut log);
        disk.crash(&mut fastrand::Rng::with_seed(cut));
        drop(log);
        for again in 0..40 {
            let disk = disk.fork();
            disk.fail_nth(again, Fault::PowerCut, false);
            let opened = open(&disk);
            disk.crash(&mut fastrand::Rng::with_seed(again));
            drop(opened);
            let context = format!("power cuts at call {cut} and at call {again} of the opening");
            let mut log = open(&disk).unwrap_or_else(|error| panic!("{context}: {error}"));
            check(&mut log, &before, &after, &context);
        }
    }
}

#[test]
fn a_failed_call_costs_nothing_but_the_pass() {
    let (disk, before, after) = begin();
    let calls = calls(&disk);
    for fault in [Fault::Io, Fault::NoSpace, Fault::ShortWrite] {
        for nth in 0..calls {
            let disk = disk.fork();
            let mut log = open(&disk).expect("opened");
            disk.fail_nth(nth, fault, false);
            let result = pass(&mut log);
            disk.heal();
            let context = format!("{fault:?} at call {nth}: {:?}", result.map(drop));
            if log.offline_reason().is_some() {
                drop(log);
                log = open(&disk).unwrap_or_else(|error| panic!("{context}: {error}"));
            }
            check(&mut log, &before, &after, &context);
            pass(&mut log).unwrap_or_else(|error| panic!("{context}: {error}"));
            assert_eq!(contents(&mut log), after, "{context}");
            log.sync_now().expect("synced");
            drop(log);
            let mut log = open(&disk).unwrap_or_else(|error| panic!("{context}: {error}"));
            assert_eq!(contents(&mut log), after, "{context}");
        }
    }
}

/// A `.swap` file that the disk has changed is not put in the place of sound segments.
#[test]
fn a_damaged_swap_file_is_dropped_while_the_old_segments_are_there() {
    let (disk, before, after) = begin();
    let mut log = open(&disk).expect("opened");
    let mut compaction = log.begin_compaction(options(0, NOW)).expect("begun");
    let group = compaction.clean_next(&|| false).expect("cleaned").expect("something changes");
    let pending = log.begin_replacement(group).expect("begun").run();
    let disk = disk.fork();
    drop(pending);
    let swap = leftovers(&disk).into_iter().find(|path| path.contains(".log.swap")).expect("there");
    let mut bytes = disk.contents(&swap).expect("there");
    bytes.truncate(bytes.len() - 3);
    disk.set_contents(&swap, &bytes);
    let mut log = open(&disk).expect("opened");
    assert_eq!(contents(&mut log), before);
    check(&mut log, &before, &after, "damaged");
    assert!(leftovers(&disk).is_empty());
}

/// The old value went durably while the segment with the new one was in the page cache only.
#[test]
fn a_power_cut_after_a_compaction_leaves_a_value_of_each_key() {
    for seed in 0..50 {
        let disk = MemStorage::forgetful();
        let mut log = open(&disk).expect("a new log");
        append(&mut log, &[record(1, "old"), record(2, "other")]);
        log.roll(NOW).expect("rolled");
        log.sync_now().expect("synced");
        append(&mut log, &[record(1, "new")]);
        log.roll(NOW).expect("rolled");
        log.compact(options(0, NOW)).expect("compacted");
        drop(log);
        disk.crash(&mut fastrand::Rng::with_seed(seed));
        let found = contents(&mut open(&disk).expect("opened"));
        let keys: Vec<_> = found.iter().map(|keyed| keyed.key.clone()).collect();
        assert!(keys.contains(&record(1, "").key), "seed {seed}: {found:?}");
    }
}
