//! A day in the life of a log and of a journal, cut short at every call to the disk, and with every call failing.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use ottla_log::storage::mem::{Fault, MemStorage, OpKind};
use ottla_log::{AppendOptions, Journal, JournalConfig, Log, LogConfig};

use crate::common;
use crate::common::{DIR, NOW, produced, records};

const STEPS: usize = 75;

fn config() -> LogConfig {
    LogConfig {
        segment_bytes: 700,
        index_interval_bytes: 100,
        retention_bytes: Some(1800),
        tail_cache_bytes: 400,
        ..LogConfig::default()
    }
}

/// The guarantees of the log after any fault of the disk.
#[derive(Clone, Debug, Default)]
struct Promise {
    /// The value of the last attempt to append at each offset.
    tried: BTreeMap<i64, Vec<u8>>,
    /// The leader epoch of that attempt.
    epochs: BTreeMap<i64, i32>,
    /// All records below this offset were appended: the log returned success.
    appended: i64,
    /// All records below this offset are durable: the sync returned success.
    synced: i64,
    /// All records below this offset were deleted: the log returned success.
    deleted: i64,
    /// The first offset that can be missing at the front.
    start_max: i64,
}

impl Promise {
    /// After a power cut the log contains all synced records, and any other records in it were appended once.
    fn check(&self, log: &mut Log, context: &str) {
        self.check_floor(log, self.synced, context);
    }

    /// After a kill, all that was appended is there.
    fn check_all(&self, log: &mut Log, context: &str) {
        self.check_floor(log, self.appended, context);
    }

    /// The leader epochs are those of the batches; where those are durable, since no checksum covers the epoch.
    fn check_epochs(&self, log: &Log, context: &str) {
        let durable = log.start_offset()..self.synced;
        let mut ends: Vec<(i32, i64)> = Vec::new();
        for (offset, epoch) in self.epochs.iter().filter(|(offset, _)| durable.contains(offset)) {
            match ends.last_mut() {
                Some(last) if last.0 == *epoch => last.1 = *offset + 1,
                _ => ends.push((*epoch, *offset + 1)),
            }
        }
        ends.pop(); // where this one ends may not be durable
        for (epoch, end) in ends {
            assert_eq!(log.epoch_end(epoch), Some((epoch, end)), "{context}");
        }
    }

    fn check_floor(&self, log: &mut Log, floor: i64, context: &str) {
        let (start, end) = (log.start_offset(), log.end_offset());
        assert!(end >= floor, "{context}: end {end}, promised {floor}");
        assert!((self.deleted..=self.start_max).contains(&start), "{context}: start {start}, {self:?}");
        assert_eq!(log.synced_offset(), end, "{context}: served only what is durable");
        let found = records(log);
        for (offset, value) in &found {
            assert_eq!(self.tried.get(offset), Some(value), "{context}: offset {offset}");
        }
        let expected: Vec<i64> = (start..floor).collect();
        let below: Vec<i64> = found.iter().map(|(offset, _)| *offset).filter(|o| *o < floor).collect();
        assert_eq!(below, expected, "{context}");
        assert!(log.quarantined().iter().all(|bad| bad.offset >= floor), "{context}");
    }
}

/// Runs the story and updates `promise`. Errors end it only when the disk is dead.
fn live(disk: &MemStorage, promise: &mut Promise) {
    let open = |disk: &MemStorage| Log::open(Arc::new(disk.clone()), DIR, config(), NOW).map(|(log, _)| log);
    let mut log: Option<Log> = None;
    for step in 0..STEPS {
        if log.as_ref().is_none_or(|log| log.offline_reason().is_some()) {
            log = None;
            match open(disk) {
                Ok(opened) => {
                    promise.start_max = promise.start_max.max(opened.start_offset());
                    log = Some(opened);
                }
                Err(_) => continue,
            }
        }
        let Some(open_log) = log.as_mut() else { continue };
        match step {
            30 => {
                let floor = open_log.end_offset() - 2;
                let before = (promise.appended, promise.synced);
                promise.appended = promise.appended.min(floor);
                promise.synced = promise.synced.min(floor);
                if floor < open_log.start_offset() {
                    (promise.appended, promise.synced) = before;
                } else if open_log.truncate_to(floor, NOW).is_ok() {
                    promise.tried.retain(|offset, _| *offset < floor);
                }
            }
            41 => drop(log.take().expect("open").close()),
            58 => drop(log.take()),
            _ if step % 7 == 6 => {
                let target = open_log.end_offset();
                if open_log.sync_now().is_ok() {
                    promise.synced = promise.synced.max(target);
                }
            }
            _ if step % 16 == 12 => {
                let before = open_log.end_offset() - 6;
                if before > open_log.start_offset() {
                    promise.start_max = promise.start_max.max(before);
                    if open_log.delete_records_before(before).is_ok() {
                        promise.deleted = before;
                    }
                }
            }
            _ if step % 19 == 17 => drop(open_log.roll(NOW)),
            _ if step % 10 == 8 => {
                if let Ok(gone) = open_log.enforce_retention(NOW) {
                    promise.start_max = promise.start_max.max(gone.start_offset);
                }
            }
            _ => {
                let offset = open_log.end_offset();
                let value = format!("1/{}", 0).into_bytes();
                let producer = step as i64;
                let mut batch = produced(producer, 0, 0, 1);
                let own = [value, format!(" of step {step}").into_bytes()].concat();
                if step % 3 == 0 {
                    batch = common::batch(NOW, &[&own]);
                } else {
                    promise.tried.insert(offset, format!("{producer}/0").into_bytes());
                }
                if step % 3 == 0 {
                    promise.tried.insert(offset, own);
                }
                let options = AppendOptions { leader_epoch: step as i32 / 5, ..AppendOptions::default() };
                promise.epochs.insert(offset, options.leader_epoch);
                match open_log.append(NOW, batch, options) {
                    Ok(appended) => {
                        assert_eq!(appended.base_offset, offset);
                        promise.appended = offset + 1;
                    }
                    Err(error) => assert!(error.is_retriable(), "{error}"),
                }
            }
        }
    }
}

/// The number of disk calls of the story without faults.
fn calls() -> u64 {
    let disk = MemStorage::forgetful();
    let mut promise = Promise::default();
    live(&disk, &mut promise);
    let (mut log, _) = Log::open(Arc::new(disk.clone()), DIR, config(), NOW).expect("opened");
    promise.check_all(&mut log, "without faults");
    assert!(log.end_offset() > 40 && log.start_offset() > 10 && log.segment_count() > 2);
    disk.ops()
}

#[test]
fn a_power_cut_at_any_call_loses_nothing_that_was_synced() {
    for cut in 0..calls() {
        for seed in 0..6 {
            let disk = MemStorage::forgetful();
            disk.fail_nth(cut, Fault::PowerCut, true);
            let mut promise = Promise::default();
            live(&disk, &mut promise);
            let rng = &mut fastrand::Rng::with_seed(cut * 100 + seed);
            disk.crash(rng);
            let context = format!("cut at {cut}, seed {seed}");
            let image = disk.fork();
            let before = image.ops();
            let (mut log, _) = Log::open(Arc::new(image.clone()), DIR, config(), NOW).expect(&context);
            let recovery_calls = image.ops() - before;
            promise.check(&mut log, &context);
            let found = records(&mut log);
            let producers = log.producers();
            promise.check_epochs(&log, &context);

            // Recovery shows only records that survive another power cut.
            drop(log);
            image.crash(rng);
            let (mut again, report) = Log::open(Arc::new(image.clone()), DIR, config(), NOW).expect(&context);
            assert_eq!(records(&mut again), found, "{context}: recovered twice");
            assert_eq!(again.producers(), producers, "{context}: recovered twice");
            assert_eq!(report.truncated_bytes, 0, "{context}: recovered twice");
            drop(again);

            // A power cut during recovery is a power cut like any other.
            if seed < 2 {
                for second in 0..recovery_calls {
                    let image = disk.fork();
                    image.fail_nth(second, Fault::PowerCut, true);
                    let context = format!("{context}, and at {second} of recovery");
                    assert!(Log::open(Arc::new(image.clone()), DIR, config(), NOW).is_err(), "{context}");
                    image.crash(rng);
                    let (mut log, _) = Log::open(Arc::new(image), DIR, config(), NOW).expect(&context);
                    promise.check(&mut log, &context);
                }
            }
        }
    }
}

#[test]
fn any_call_that_fails_costs_at_most_that_call() {
    for (fault, forever) in [
        (Fault::NoSpace, false),
        (Fault::Io, false),
        (Fault::ShortWrite, false),
        (Fault::NoSpace, true),
        (Fault::Io, true),
        (Fault::ShortWrite, true),
    ] {
        for nth in 0..calls() {
            let disk = MemStorage::forgetful();
            disk.fail_nth(nth, fault, forever);
            let mut promise = Promise::default();
            live(&disk, &mut promise);
            disk.heal();
            let context = format!("{fault:?} at {nth}, forever: {forever}");
            let killed = disk.fork();
            let (mut log, _) = Log::open(Arc::new(killed), DIR, config(), NOW).expect(&context);
            promise.check_all(&mut log, &context);
            disk.crash(&mut fastrand::Rng::with_seed(nth));
            let (mut log, _) = Log::open(Arc::new(disk), DIR, config(), NOW).expect(&context);
            promise.check(&mut log, &context);
        }
    }
}

#[test]
fn a_full_disk_refuses_appends_until_there_is_space() {
    let disk = MemStorage::new();
    let (mut log, _) = Log::open(Arc::new(disk.clone()), DIR, config(), NOW).expect("opened");
    for _ in 0..40 {
        common::append(&mut log, b"before").expect("appended");
    }
    disk.inject(|op| {
        use ottla_log::storage::mem::OpKind::{Create, Write};
        // `synced` is overwritten in place, in a block that it has already.
        (matches!(op.kind, Create | Write) && op.path != "orders-0/synced").then_some(Fault::ShortWrite)
    });
    for _ in 0..20 {
        let error = common::append(&mut log, b"refused").expect_err("the disk is full");
        assert!(error.is_no_space() && error.is_retriable(), "{error}");
        assert!(error.to_string().contains("orders-0") && error.to_string().contains("offset 40"), "{error}");
    }
    assert_eq!(log.end_offset(), 40);
    assert_eq!(common::values(&mut log).len(), 40, "reads go on");
    assert!(log.enforce_retention(NOW).expect("retention goes on").segments > 0);
    disk.heal();
    assert_eq!(common::append(&mut log, b"again").expect("space").base_offset, 40);
    sync_and_check(log, &disk);
}

fn sync_and_check(mut log: Log, disk: &MemStorage) {
    common::sync(&mut log);
    drop(log);
    let (mut log, report) = Log::open(Arc::new(disk.clone()), DIR, config(), NOW).expect("opened");
    assert_eq!(report.truncated_bytes, 0);
    assert_eq!(common::values(&mut log).pop().expect("one"), b"again");
}

#[test]
fn a_failed_sync_or_an_unremovable_write_takes_the_log_offline() {
    let disk = MemStorage::forgetful();
    let (mut log, _) = Log::open(Arc::new(disk.clone()), DIR, config(), NOW).expect("opened");
    common::append(&mut log, b"x").expect("appended");
    let pending = log.pending_sync().expect("something to sync");
    disk.fail_nth(0, Fault::Io, false);
    let synced = pending.run();
    assert!(!synced.is_ok() && synced.target() == 1);
    assert!(log.sync_done(synced).is_err());
    assert!(log.pending_sync().is_none() && log.sync_now().is_err(), "never again on these files");
    assert!(common::append(&mut log, b"y").is_err() && log.read(0, 1, 1, true).is_err());
    assert!(log.offline_reason().expect("a reason").contains("sync"));
    drop(log);
    let (log, _) = Log::open(Arc::new(disk.clone()), DIR, config(), NOW).expect("opened anew");
    drop(log);

    let (mut log, _) = Log::open(Arc::new(disk.clone()), DIR, config(), NOW).expect("opened");
    let end = log.end_offset();
    disk.fail_nth(0, Fault::ShortWrite, true);
    assert!(common::append(&mut log, b"half of it stays").is_err());
    disk.heal();
    let error = common::append(&mut log, b"z").expect_err("offline");
    assert!(error.to_string().contains("could not be taken back"), "{error}");
    drop(log);
    let (log, report) = Log::open(Arc::new(disk), DIR, config(), NOW).expect("opened");
    assert!(log.end_offset() == end && report.truncated_bytes > 0);
}

fn journal_config() -> JournalConfig {
    JournalConfig { rewrite_bytes_min: 1500, batch_bytes: 200, segment_bytes: 1200 }
}

type Map = BTreeMap<Bytes, Bytes>;

fn map_of(journal: &Journal) -> Map {
    journal.iter().map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Puts, removes and syncs; returns the maps that were, and which of them was durable at last.
fn keep(disk: &MemStorage) -> (Vec<Map>, usize, usize) {
    let (mut maps, mut done, mut durable) = (vec![Map::new()], 0, 0);
    let mut journal: Option<Journal> = None;
    for step in 0..70_u32 {
        if journal.as_ref().is_none_or(|journal| journal.log().offline_reason().is_some()) {
            journal = None;
            match Journal::open(Arc::new(disk.clone()), "__meta", journal_config(), NOW) {
                Ok((opened, _)) => {
                    // Earlier failures may or may not have left their entry.
                    assert!(maps[done..].contains(&map_of(&opened)), "step {step}");
                    maps.push(map_of(&opened));
                    done = maps.len() - 1;
                    journal = Some(opened);
                }
                Err(_) => continue,
            }
        }
        let Some(open) = journal.as_mut() else { continue };
        match step {
            33 => {
                if journal.take().expect("open").close().is_ok() {
                    durable = done;
                }
            }
            47 => journal = None,
            _ if step % 6 == 5 => {
                if open.sync_now().is_ok() {
                    durable = done;
                }
            }
            _ => {
                // Two entries that change together, and one that is set and removed.
                let value = Bytes::from(format!("step {step}"));
                let entries = [
                    ("left".into(), Some(value.clone())),
                    ("right".into(), Some(value.clone())),
                    (Bytes::from(format!("key {}", step % 5)), (step % 4 != 0).then_some(value)),
                ];
                let mut next = maps[done].clone();
                for (key, value) in &entries {
                    match value {
                        Some(value) => drop(next.insert(key.clone(), value.clone())),
                        None => drop(next.remove(key)),
                    }
                }
                maps.push(next);
                if open.put_all(NOW, &entries).is_ok() {
                    done = maps.len() - 1;
                    assert_eq!(map_of(open), maps[done]);
                } else {
                    assert_eq!(map_of(open), maps[done], "a change that failed has not happened");
                }
            }
        }
    }
    (maps, done, durable)
}

#[test]
fn a_journal_is_bounded_and_remembers() {
    let disk = MemStorage::forgetful();
    let (maps, done, _) = keep(&disk);
    let (mut journal, _) =
        Journal::open(Arc::new(disk.clone()), "__meta", journal_config(), NOW).expect("opened");
    assert_eq!(map_of(&journal), maps[done]);
    assert!(journal.log().start_offset() > 100, "it was written anew");
    for n in 0..5000 {
        journal.put(NOW, "counter".into(), Some(n.to_string().into())).expect("put");
        if n % 10 == 0 {
            journal.sync_now().expect("synced");
        }
        assert!(journal.log().size_bytes() < 5000, "{}", journal.log().size_bytes());
    }
    assert_eq!(journal.get(b"counter"), Some(&Bytes::from("4999")));
    assert_eq!(journal.iter_prefix(b"key").count() + 3, journal.len());
    journal.put(NOW, "counter".into(), None).expect("removed");
    journal.close().expect("closed");
    let (journal, report) = Journal::open(Arc::new(disk), "__meta", journal_config(), NOW).expect("opened");
    assert!(report.clean && journal.get(b"counter").is_none() && !journal.is_empty());
}

#[test]
fn a_journal_cut_off_at_any_call_remembers_what_was_synced() {
    let calls = {
        let disk = MemStorage::forgetful();
        keep(&disk);
        disk.ops()
    };
    for cut in 0..calls {
        for seed in 0..6 {
            let disk = MemStorage::forgetful();
            disk.fail_nth(cut, Fault::PowerCut, true);
            let (maps, _, durable) = keep(&disk);
            disk.crash(&mut fastrand::Rng::with_seed(cut * 100 + seed));
            let context = format!("cut at {cut}, seed {seed}");
            let (journal, report) =
                Journal::open(Arc::new(disk.clone()), "__meta", journal_config(), NOW).expect(&context);
            let found = map_of(&journal);
            assert_eq!(found.get(&b"left"[..]), found.get(&b"right"[..]), "{context}: half a change");
            if report.quarantined.is_empty() {
                assert!(
                    maps[durable..].contains(&found),
                    "{context}: {found:?} is no state since the last sync"
                );
            } else {
                // Sectors were written out of order: each entry still has one of its values since the last sync.
                for key in maps.iter().flat_map(Map::keys) {
                    let values = maps[durable..].iter().map(|map| map.get(key));
                    assert!(values.into_iter().any(|value| value == found.get(key)), "{context}: {key:?}");
                }
            }
            drop(journal);
            disk.crash(&mut fastrand::Rng::with_seed(seed));
            let again = Journal::open(Arc::new(disk), "__meta", journal_config(), NOW).expect(&context).0;
            assert_eq!(map_of(&again), found, "{context}: recovered twice");
        }
    }
}

#[test]
fn a_journal_survives_every_failing_call() {
    let calls = {
        let disk = MemStorage::forgetful();
        keep(&disk);
        disk.ops()
    };
    for fault in [Fault::NoSpace, Fault::Io, Fault::ShortWrite] {
        for nth in 0..calls {
            for forever in [false, true] {
                let disk = MemStorage::forgetful();
                disk.fail_nth(nth, fault, forever);
                let (maps, done, durable) = keep(&disk);
                let context = format!("{fault:?} at {nth}, forever: {forever}");
                disk.heal();
                let open = |disk: &MemStorage| {
                    let opened = Journal::open(Arc::new(disk.clone()), "__meta", journal_config(), NOW);
                    map_of(&opened.expect(&context).0)
                };
                assert!(maps[done..].contains(&open(&disk.fork())), "{context}");
                disk.crash(&mut fastrand::Rng::with_seed(nth));
                let found = open(&disk);
                assert_eq!(found.get(&b"left"[..]), found.get(&b"right"[..]), "{context}: half a change");
                if durable == done {
                    assert!(maps[durable..].contains(&found), "{context}");
                }
            }
        }
    }
}

/// The disk reports lost bytes to one sync only. A second one beside it succeeded, and if it was reported first, the lost records
/// counted as durable.
#[test]
fn a_sync_beside_one_that_fails_makes_nothing_durable() {
    let disk = MemStorage::forgetful();
    let (mut log, _) = Log::open(Arc::new(disk.clone()), DIR, config(), NOW).expect("opened");
    common::append(&mut log, b"lost").expect("appended");
    let first = log.pending_sync().expect("something to sync");
    let second = log.pending_sync().expect("something to sync");
    let third = log.pending_sync().expect("something to sync");
    disk.fail_nth(0, Fault::Io, false);
    let (first, second) = (first.run(), second.run());
    assert!(!first.is_ok() && !second.is_ok());
    assert!(log.sync_done(second).is_err());
    assert!(log.offline_reason().expect("offline").contains("sync"));
    assert!(log.sync_done(first).is_err() && log.synced_offset() == 0);
    assert!(!third.run().is_ok(), "never again on these files");
}

/// A log that was closed between a sync that failed and its report counted as closed cleanly, with records that were lost.
#[test]
fn a_log_is_not_closed_cleanly_after_a_failed_sync_that_was_not_reported() {
    let disk = MemStorage::forgetful();
    let (mut log, _) = Log::open(Arc::new(disk.clone()), DIR, config(), NOW).expect("opened");
    common::append(&mut log, b"lost").expect("appended");
    let pending = log.pending_sync().expect("something to sync");
    disk.fail_nth(0, Fault::Io, false);
    let synced = pending.run();
    assert!(log.shut().is_err() && log.sync_done(synced).is_err());
    drop(log);
    let (_, report) = Log::open(Arc::new(disk.clone()), DIR, config(), NOW).expect("opened");
    assert!(!report.clean);
}

#[test]
fn a_sync_speaks_only_of_what_was_there_when_it_was_taken() {
    let mut lost = 0;
    for seed in 0..60 {
        let rng = &mut fastrand::Rng::with_seed(seed);
        let disk = MemStorage::forgetful();
        let (mut log, _) = Log::open(Arc::new(disk.clone()), DIR, config(), NOW).expect("opened");
        common::append(&mut log, b"synced").expect("appended");
        let pending = log.pending_sync().expect("something to sync").run();
        common::append(&mut log, b"not in it").expect("appended");
        log.roll(NOW).expect("rolled");
        common::append(&mut log, b"nor this").expect("appended");
        assert_eq!(log.sync_done(pending).expect("synced"), 1);
        let another = log.pending_sync().expect("there is more to sync");
        assert_eq!(another.target(), 3);
        disk.crash(rng);
        let (mut log, _) = Log::open(Arc::new(disk.clone()), DIR, config(), NOW).expect("opened");
        // A read checks every checksum, so recovery must have checked the unsynced records.
        let found = common::values(&mut log);
        assert_eq!(found[0], b"synced", "seed {seed}");
        let hole = found.len() == 2 && found[1] == b"nor this";
        assert_eq!(log.quarantined().is_empty(), !hole, "seed {seed}: {found:?}");
        lost += usize::from(found.len() == 1);
        drop(another);

        // A sync from before a truncation does not cover the records after it.
        let (end, synced) = (log.end_offset(), log.synced_offset());
        common::append(&mut log, b"cut off").expect("appended");
        let pending = log.pending_sync().expect("something to sync").run();
        log.truncate_to(end, NOW).expect("cut");
        common::append(&mut log, b"in its place").expect("appended");
        assert_eq!(log.sync_done(pending).expect("reported"), synced);
        common::sync(&mut log);
        assert_eq!(log.synced_offset(), end + 1);
    }
    assert!(lost > 5, "the power cuts were harmless");
}

#[test]
fn a_snapshot_of_batches_that_were_lost_does_not_come_back() {
    let roomy = LogConfig { segment_bytes: 1 << 20, ..config() };
    let options = AppendOptions::default();
    let mut ahead = 0;
    for seed in 0..200 {
        let rng = &mut fastrand::Rng::with_seed(seed);
        let disk = MemStorage::forgetful();
        let open = || Log::open(Arc::new(disk.clone()), DIR, roomy.clone(), NOW).expect("opened").0;
        let mut log = open();
        log.append(NOW, produced(1, 0, 0, 1), options).expect("appended");
        common::sync(&mut log);
        log.append(NOW, produced(1, 0, 1, 1), options).expect("appended");
        log.append(NOW, produced(2, 0, 0, 1), options).expect("appended");
        log.roll(NOW).expect("rolled, with a snapshot of both producers");
        disk.crash(rng);
        let has_snapshot = disk.paths().iter().any(|path| path.contains("03.snapshot"));
        let mut log = open();
        if log.end_offset() == 3 || !has_snapshot {
            continue;
        }
        ahead += 1;
        let known: Vec<_> = log.producers().iter().map(|p| (p.producer_id, p.last_sequence)).collect();
        assert_eq!(known, [(1, 0), (1, 1)][log.end_offset() as usize - 1..][..1], "seed {seed}");
        while log.end_offset() < 6 {
            common::append(&mut log, b"others").expect("appended");
        }
        common::sync(&mut log);
        let expected = log.producers();
        disk.crash(rng);
        assert_eq!(open().producers(), expected, "seed {seed}");
    }
    assert!(ahead > 3, "no snapshot was ever ahead of its log");
}

#[test]
fn a_journal_deletes_nothing_before_its_successor_is_durable() {
    let disk = MemStorage::forgetful();
    let open = || Journal::open(Arc::new(disk.clone()), "__meta", journal_config(), NOW).expect("opened").0;
    let mut journal = open();
    journal.put(NOW, "old".into(), Some("kept".into())).expect("put");
    let early = journal.pending_sync().expect("something to sync");
    for n in 0.. {
        journal.put(NOW, "counter".into(), Some(Bytes::from(vec![n; 50]))).expect("put");
        if journal.wants_sync() {
            break;
        }
    }
    journal.sync_done(early.run()).expect("synced");
    assert!(journal.wants_sync() && journal.log().start_offset() == 0);
    journal.sync_now().expect("synced");
    assert!(!journal.wants_sync() && journal.log().start_offset() > 0);
    disk.crash(&mut fastrand::Rng::with_seed(1));
    assert_eq!(open().get(b"old"), Some(&Bytes::from("kept")));
}

/// The report of a sync deleted the old entries under the lock of the journal: it synced files and directories and removed segments
/// while requests waited for that lock.
#[test]
fn the_report_of_a_sync_makes_a_journal_neither_sync_nor_remove_a_file() {
    let disk = MemStorage::forgetful();
    let open = || Journal::open(Arc::new(disk.clone()), "__meta", journal_config(), NOW).expect("opened").0;
    let mut journal = open();
    journal.put(NOW, "old".into(), Some("kept".into())).expect("put");
    let mut count = 0_u8;
    while !journal.wants_sync() {
        count += 1;
        journal.put(NOW, "counter".into(), Some(Bytes::from(vec![count; 50]))).expect("put");
    }
    let synced = journal.pending_sync().expect("something to sync").run();
    let calls = Arc::new(Mutex::new(Vec::new()));
    let noted = calls.clone();
    disk.inject(move |op| {
        if matches!(op.kind, OpKind::SyncData | OpKind::SyncDir | OpKind::Remove) {
            noted.lock().expect("no panic").push(format!("{:?} {}", op.kind, op.path));
        }
        None
    });
    journal.sync_done(synced).expect("synced");
    disk.heal();
    assert_eq!(*calls.lock().expect("no panic"), Vec::<String>::new());
    assert!(journal.wants_deletion() && !journal.wants_sync() && journal.log().start_offset() == 0);

    let pending = journal.begin_deletion().expect("the map is durable");
    assert!(journal.begin_deletion().is_none(), "one at a time");
    for n in 0..100_u8 {
        journal.put(NOW, "meanwhile".into(), Some(Bytes::from(vec![n; 50]))).expect("put");
    }
    assert!(!journal.wants_sync(), "it is not compacted meanwhile");
    let files = journal.finish_deletion(pending.run()).expect("deleted");
    assert!(journal.log().start_offset() > 0 && !files.is_empty());
    files.run().expect("removed");
    journal.sync_now().expect("synced");
    disk.crash(&mut fastrand::Rng::with_seed(1));
    let journal = open();
    assert_eq!(journal.get(b"old"), Some(&Bytes::from("kept")));
    assert_eq!(journal.get(b"counter"), Some(&Bytes::from(vec![count; 50])));
}
