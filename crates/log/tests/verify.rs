//! Batches that another process wrote are checked before they are served, and again by the scrub.

use std::sync::Arc;

use ottla_log::storage::Storage;
use ottla_log::storage::mem::MemStorage;
use ottla_log::{Log, LogConfig, ReadPlan, ScrubCursor, check_log};

use crate::common::{DIR, NOW, append, log_files, open, records, small, sync};

const RECORDS: usize = 40;

fn value(n: usize) -> Vec<u8> {
    format!("value {n:02}").into_bytes()
}

/// A log of several segments that was closed cleanly: nothing of it is scanned when it is opened.
fn closed() -> MemStorage {
    let disk = MemStorage::new();
    let (mut log, _) = open(&disk, &small());
    for n in 0..RECORDS {
        append(&mut log, &value(n)).expect("appended");
    }
    log.close().expect("closed");
    assert!(log_files(&disk).len() > 3, "several segments");
    disk
}

fn flip(disk: &MemStorage, path: &str, at: usize) {
    let mut bytes = disk.contents(path).expect("there");
    bytes[at] ^= 0x10;
    disk.set_contents(path, &bytes);
}

fn batch_bytes(disk: &MemStorage) -> usize {
    let bytes = disk.contents(&log_files(disk)[0]).expect("there");
    12 + i32::from_be_bytes(bytes[8..12].try_into().expect("four bytes")) as usize
}

/// Scrubs all there is; returns in how many parts.
fn scrub(log: &mut Log, bytes: u64) -> usize {
    let (mut cursor, mut parts) = (ScrubCursor::default(), 0);
    while let Some(task) = log.scrub(cursor.clone(), bytes).expect("readable") {
        parts += 1;
        assert!(parts < 1000, "no progress at {cursor:?}");
        cursor = log.scrubbed(task.run().expect("memory does not fail")).expect("noted");
    }
    parts
}

#[test]
fn a_flipped_byte_is_found_before_it_is_served_and_costs_one_batch() {
    let sound = closed();
    let all: Vec<_> = (0..RECORDS).map(|n| (n as i64, value(n))).collect();
    let one = batch_bytes(&sound);
    for path in log_files(&sound) {
        for at in 0..sound.contents(&path).expect("there").len() {
            let disk = sound.fork();
            flip(&disk, &path, at);
            let (mut log, report) = open(&disk, &small());
            assert!(report.clean, "nothing is scanned");
            let read = records(&mut log);
            // No checksum covers the leader epoch; it changes no record.
            let lost = usize::from(!(12..16).contains(&(at % one)));
            assert!(read.iter().all(|record| all.contains(record)), "{path} {at}: {read:?}");
            let bad = log.quarantined();
            assert_eq!((read.len(), bad.len()), (RECORDS - lost, lost), "{path} {at}: {bad:?}");
        }
    }
}

#[test]
fn a_read_of_many_batches_ends_before_the_damaged_one() {
    let disk = closed();
    let path = &log_files(&disk)[1];
    let one = batch_bytes(&disk);
    flip(&disk, path, 2 * one + one - 3);
    let (mut log, _) = open(&disk, &small());
    let base: i64 = path.rsplit('/').next().and_then(|name| name[..20].parse().ok()).expect("an offset");
    let read = log.read(base, 1 << 20, i64::MAX, true).expect("two sound batches");
    assert_eq!(read.chain.len(), 2 * one);
    let error = log.read(base + 2, 1 << 20, i64::MAX, true).expect_err("the third is damaged");
    assert!(error.to_string().contains(".log"), "{error}");
    assert!(!log.read(base + 3, 1 << 20, i64::MAX, true).expect("the fourth").chain.is_empty());
}

#[test]
fn what_was_checked_is_not_checked_again() {
    let disk = closed();
    let (mut log, _) = open(&disk, &small());
    let is_unchecked = |log: &mut Log| match log.plan_read(0, 1 << 20, i64::MAX, true).expect("in range") {
        ReadPlan::Cold(read) => read.is_unchecked(),
        ReadPlan::Ready(_) => panic!("nothing is in memory"),
    };
    assert!(is_unchecked(&mut log));
    records(&mut log);
    assert!(!is_unchecked(&mut log));
}

#[test]
fn the_scrub_finds_damage_that_nobody_reads() {
    let sound = closed();
    let one = batch_bytes(&sound);
    let files = log_files(&sound);
    for chunk in [1, 100, 1 << 20] {
        let disk = sound.fork();
        let (mut log, _) = open(&disk, &small());
        assert!(scrub(&mut log, chunk) >= files.len() - 1, "each closed segment is read");
        assert!(log.quarantined().is_empty());
        drop(log);
        flip(&disk, &files[0], one + 70);
        flip(&disk, &files[2], 3);
        let (mut log, _) = open(&disk, &small());
        scrub(&mut log, chunk);
        assert_eq!(log.quarantined().len(), 2, "in chunks of {chunk}: {:?}", log.quarantined());
        assert_eq!(records(&mut log).len(), RECORDS - 2);
    }
}

/// The files of a segment may be closed while a scrub reads it without the lock: damage was a panic then.
#[test]
fn damage_is_set_aside_although_the_files_were_closed_meanwhile() {
    let disk = MemStorage::new();
    let (mut log, _) = open(&disk, &LogConfig { tail_cache_bytes: 0, ..small() });
    for n in 0..RECORDS {
        append(&mut log, &value(n)).expect("appended");
    }
    sync(&mut log);
    let task = log.scrub(ScrubCursor::default(), u64::MAX).expect("readable").expect("a closed segment");
    flip(&disk, &log_files(&disk)[0], batch_bytes(&disk) + 70);
    assert!(log.close_idle_files(true));
    log.scrubbed(task.run().expect("memory does not fail")).expect("noted");
    let bad: Vec<_> = log.quarantined().iter().map(|bad| (bad.offset, bad.next_offset)).collect();
    assert_eq!(bad, [(1, 2)]);
    assert_eq!(records(&mut log).len(), RECORDS - 1);
}

/// The directory of a deleted log may be that of another log by then.
#[test]
fn damage_that_a_scrub_finds_in_a_deleted_log_is_not_noted() {
    let disk = closed();
    flip(&disk, &log_files(&disk)[0], batch_bytes(&disk) + 70);
    let (mut log, _) = open(&disk, &small());
    let task = log.scrub(ScrubCursor::default(), u64::MAX).expect("readable").expect("a closed segment");
    log.note_deleted();
    let before = disk.paths();
    let cursor = log.scrubbed(task.run().expect("memory does not fail")).expect("nothing is noted");
    assert!(log.quarantined().is_empty() && log.scrub(cursor, u64::MAX).expect("offline").is_none());
    assert_eq!(disk.paths(), before);
}

/// It was set aside again: it was logged twice, and readers did not pass it any more.
#[test]
fn damage_that_is_found_twice_stays_skipped() {
    let disk = closed();
    flip(&disk, &log_files(&disk)[0], batch_bytes(&disk) + 70);
    let (mut log, _) = open(&disk, &small());
    let task = |log: &mut Log| {
        let task = log.scrub(ScrubCursor::default(), u64::MAX).expect("readable").expect("a closed segment");
        task.run().expect("memory does not fail")
    };
    let (first, second) = (task(&mut log), task(&mut log));
    log.scrubbed(first).expect("noted");
    let skipped = log.skip_damage(1).expect("stored").expect("1 is damaged");
    log.scrubbed(second).expect("noted");
    assert_eq!(log.quarantined(), [skipped]);
    assert_eq!(records(&mut log).len(), RECORDS - 1);
}

#[test]
fn readers_pass_damage_that_is_skipped_also_after_a_restart() {
    let disk = closed();
    let one = batch_bytes(&disk);
    flip(&disk, &log_files(&disk)[0], one + 70);
    let (mut log, _) = open(&disk, &small());
    log.read(1, 1 << 20, i64::MAX, true).expect_err("damaged");
    assert_eq!(log.skip_damage(5).expect("stored"), None, "5 is sound");
    let bad = log.skip_damage(1).expect("stored").expect("1 is damaged");
    assert_eq!((bad.offset, bad.next_offset), (1, 2));
    for clean in [true, false] {
        let read = log.read(1, 1 << 20, i64::MAX, true).expect("passed").chain.to_bytes().expect("bytes");
        assert_eq!(i64::from_be_bytes(read[..8].try_into().expect("an offset")), 2);
        assert_eq!(records(&mut log).len(), RECORDS - 1);
        if clean {
            log.close().expect("closed");
        } else {
            append(&mut log, b"more").expect("appended");
            drop(log);
        }
        let config = LogConfig { ..small() };
        log = Log::open(Arc::new(disk.clone()), DIR, config, NOW).expect("opened").0;
        assert!(log.quarantined().iter().all(|bad| bad.skipped), "{:?}", log.quarantined());
        if !clean {
            break;
        }
    }
}

/// New damage in the segment made readers fail again at the ranges that the operator had accepted.
#[test]
fn ranges_that_are_skipped_stay_skipped_when_other_damage_is_found() {
    let disk = closed();
    let (one, file) = (batch_bytes(&disk), log_files(&disk)[0].clone());
    flip(&disk, &file, one + 70);
    let (mut log, _) = open(&disk, &small());
    log.read(1, 1 << 20, i64::MAX, true).expect_err("damaged");
    log.skip_damage(1).expect("stored").expect("1 is damaged");
    // The format in the header of another batch.
    flip(&disk, &file, 5 * one + 16);
    log.read(5, 1 << 20, i64::MAX, true).expect_err("damaged, too");
    let ranges: Vec<_> = log.quarantined().iter().map(|bad| (bad.offset, bad.skipped)).collect();
    assert_eq!(ranges, [(1, true), (5, false)]);
    let read = log.read(1, 1 << 20, i64::MAX, true).expect("passed").chain.to_bytes().expect("bytes");
    assert_eq!(i64::from_be_bytes(read[..8].try_into().expect("an offset")), 2);
}

/// They stayed damaged for readers and for the cleaner, through all starts after a clean close.
#[test]
fn batches_whose_bytes_are_restored_are_served_after_the_next_start() {
    let disk = closed();
    let (one, file) = (batch_bytes(&disk), log_files(&disk)[0].clone());
    let sound = disk.contents(&file).expect("there");
    let damaged = [one + 70, 4 * one + 70];
    for at in damaged {
        flip(&disk, &file, at);
    }
    let (mut log, _) = open(&disk, &small());
    assert_eq!(records(&mut log).len(), RECORDS - damaged.len());
    assert_eq!(log.quarantined().len(), damaged.len());
    log.close().expect("closed");

    flip(&disk, &file, damaged[0]);
    let (log, _) = open(&disk, &small());
    assert_eq!(log.quarantined().len(), damaged.len(), "a segment is restored as a whole");
    log.close().expect("closed");

    disk.set_contents(&file, &sound);
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    let check = check_log(&storage, DIR).expect("checked");
    assert!(check.quarantined.is_empty() && check.losses.is_empty(), "{check:?}");
    // The second start finds it in the file.
    for _ in 0..2 {
        let (mut log, report) = open(&disk, &small());
        assert!(report.clean && report.quarantined.is_empty(), "{report:?}");
        assert_eq!(records(&mut log).len(), RECORDS);
        assert_eq!(log.offset_for_timestamp(NOW).expect("read").expect("found").offset, 0);
        log.close().expect("closed");
    }
}
