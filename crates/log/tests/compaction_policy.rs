//! Compaction and its neighbours: retention, and the check of a log that is not open.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ottla_log::storage::mem::MemStorage;
use ottla_log::{CompactionError, Log, LogConfig, ScrubCursor};
use ottla_wire::batch::HEADER_BYTES;
use ottla_wire::{Compression, Seal};

use crate::common::{DIR, NOW, count_segment_reads, log_files, open, sync};
use crate::keyed::{
    append, appended, batch, compact, compact_at, contents, offsets, options, record, tombstone,
};

/// One day: the default of `delete.retention.ms`.
const DAY: i64 = 24 * 3_600_000;

fn config() -> LogConfig {
    LogConfig { compact: true, index_interval_bytes: 100, ..LogConfig::default() }
}

fn new_log() -> (MemStorage, Log) {
    let disk = MemStorage::forgetful();
    let (log, _) = open(&disk, &config());
    (disk, log)
}

fn roll(log: &mut Log) {
    log.roll(NOW).expect("rolled");
}

#[test]
fn the_policy_decides_what_retention_deletes() {
    let (disk, _) = new_log();
    let small = LogConfig { retention_ms: Some(1000), retention_bytes: Some(1), ..config() };
    for (delete, left) in [(false, 4), (true, 1)] {
        let disk = disk.fork();
        let (mut log, _) = open(&disk, &LogConfig { delete, ..small.clone() });
        for n in 0..3 {
            append(&mut log, &[record(n, "x")]);
            roll(&mut log);
        }
        append(&mut log, &[record(9, "x").timed(NOW + 10_000)]);
        drop(log.enforce_retention(NOW + 10_000).expect("enforced"));
        assert_eq!(log.segment_count(), left, "delete: {delete}");
    }
    let (mut log, _) = open(&disk, &LogConfig { delete: false, ..small });
    append(&mut log, &[record(1, "x")]);
    roll(&mut log);
    append(&mut log, &[record(1, "y")]);
    drop(log.delete_records_before(1).expect("deleted"));
    assert_eq!((log.start_offset(), log.segment_count()), (1, 1), "DeleteRecords needs no policy");
}

#[test]
fn check_log_shows_an_interrupted_replacement_as_complete() {
    let (disk, mut log) = new_log();
    for n in 0..6 {
        append(&mut log, &[record(n % 2, "x")]);
        roll(&mut log);
    }
    sync(&mut log);
    let mut compaction = log.begin_compaction(options(0, NOW)).expect("begun");
    let group = compaction.clean_next(&|| false).expect("cleaned").expect("something changes");
    let pending = log.begin_replacement(group).expect("begun").run();
    let disk = disk.fork();
    drop(pending);
    let storage: Arc<dyn ottla_log::storage::Storage> = Arc::new(disk.clone());
    let before = disk.paths();
    let check = ottla_log::check_log(&storage, DIR).expect("checked");
    assert!(check.losses.is_empty() && check.end_offset == 6, "{check:?}");
    assert_eq!((disk.paths(), check.segments), (before, 2), "it changes nothing");
    let (mut log, _) = open(&disk, &config());
    assert_eq!((offsets(&mut log), log.segment_count()), (vec![4, 5], 2));
}

/// Records without timestamps are as old as their segment, for compaction as for retention.
#[test]
fn records_without_timestamps_wait_for_the_minimum_lag() {
    let (disk, _) = new_log();
    let (mut log, _) = open(&disk, &LogConfig { min_compaction_lag_ms: 1000, ..config() });
    for _ in 0..3 {
        append(&mut log, &[record(1, "x").timed(-1)]);
        roll(&mut log);
    }
    assert_eq!(log.cleanable(0, i64::MAX, NOW + 999).expect("looked").end, 0);
    assert_eq!(log.cleanable(0, i64::MAX, NOW + 1000).expect("looked").end, 3);
}

/// With a wrong bit in its time index, a segment was compacted too early, or never, with all behind it.
#[test]
fn a_damaged_time_index_does_not_decide_on_the_minimum_lag() {
    let lag = LogConfig { min_compaction_lag_ms: 1000, ..config() };
    let reference = MemStorage::new();
    let (mut log, _) = open(&reference, &lag);
    for _ in 0..3 {
        append(&mut log, &[record(1, "x")]);
        roll(&mut log);
    }
    log.close().expect("closed");
    let is_time_index = |path: &String| path.rsplit('.').next() == Some("timeindex");
    let indexes: Vec<String> = reference.paths().into_iter().filter(is_time_index).collect();
    assert_eq!(indexes.len(), 3);
    for path in &indexes {
        for bit in 0..64 {
            let disk = reference.fork();
            let mut bytes = disk.contents(path).expect("there");
            bytes[bit / 8] ^= 0x80 >> (bit % 8);
            disk.set_contents(path, &bytes);
            for loads in [false, true] {
                let (mut log, _) = open(&disk.fork(), &lag);
                while loads && log.load_next_dirty(0).expect("loaded") {}
                let end_after = |age: i64| log.cleanable(0, i64::MAX, NOW + age).expect("looked").end;
                assert_eq!([999, 1000].map(end_after), [0, 3], "{path}, bit {bit}, {loads}");
            }
        }
    }
}

/// Only the first batch of the first dirty segment counted: one that was ahead of the clock, or without a timestamp, delayed all others.
#[test]
fn the_oldest_of_the_dirty_segments_decides_whether_they_are_overdue() {
    let lag = LogConfig { max_compaction_lag_ms: 5000, ..config() };
    for first in [NOW + 3_000_000, -1] {
        let disk = MemStorage::new();
        let (mut log, _) = open(&disk, &lag);
        for timestamp in [first, NOW] {
            append(&mut log, &[record(1, "x").timed(timestamp)]);
            roll(&mut log);
        }
        assert_eq!(overdue(&mut log), [false, true]);
        log.close().expect("closed");
        let (mut log, _) = open(&disk, &lag);
        assert_eq!(overdue(&mut log), [false, true], "after a restart");
        while log.load_next_dirty(0).expect("loaded") {}
        assert_eq!(overdue(&mut log), [false, true], "from memory");
    }
}

/// After a restart, a segment whose first batch has no timestamp had none.
#[test]
fn a_batch_without_a_timestamp_does_not_hide_that_of_the_next() {
    let lag = LogConfig { max_compaction_lag_ms: 5000, ..config() };
    let disk = MemStorage::new();
    let (mut log, _) = open(&disk, &lag);
    for timestamp in [-1, NOW] {
        append(&mut log, &[record(1, "x").timed(timestamp)]);
    }
    roll(&mut log);
    log.close().expect("closed");
    let (mut log, _) = open(&disk, &lag);
    while log.load_next_dirty(0).expect("loaded") {}
    assert_eq!(overdue(&mut log), [false, true]);
}

/// Returns `true` for each of 5,000 and 5,001 ms after the records if the log is overdue then.
fn overdue(log: &mut Log) -> [bool; 2] {
    [5000, 5001].map(|after| log.cleanable(0, i64::MAX, NOW + after).expect("looked").is_overdue)
}

/// Such a batch ended each compaction of its log as damage, with more and more segments behind it.
#[test]
fn a_batch_that_is_too_large_to_be_decompressed_stays() {
    for first_dirty in [0, 2] {
        let (_, mut log) = new_log();
        let large = "x".repeat(5000);
        append(&mut log, &[record(1, "older")]);
        let zstd = Seal { compression: Compression::Zstd, ..Seal::default() };
        appended(&mut log, batch(&[record(1, &large), record(2, &large)], NOW, &zstd), 0);
        append(&mut log, &[record(1, "newer")]);
        append(&mut log, &[record(3, "older")]);
        append(&mut log, &[tombstone(2)]);
        append(&mut log, &[record(3, "newer")]);
        roll(&mut log);
        log.update_config(LogConfig { decompressed_bytes_max: 1000, ..config() });
        let report = compact(&mut log, first_dirty);
        let expected = [
            record(1, &large).at(1),
            record(2, &large).at(2),
            record(1, "newer").at(3),
            tombstone(2).at(5),
            record(3, "newer").at(6),
        ];
        assert_eq!((report.first_dirty, contents(&mut log)), (7, expected.to_vec()), "from {first_dirty}");
        // Without the tombstone the record before it would be the newest again.
        compact_at(&mut log, first_dirty, NOW + 2 * DAY);
        assert_eq!(offsets(&mut log), [1, 2, 3, 5, 6], "from {first_dirty}");
    }
}

/// Timestamps that count from a horizon are longer. With them the batch was too large to be decompressed: its tombstones stayed for good.
#[test]
fn a_batch_that_its_horizon_makes_larger_than_the_limit_is_cleaned_again() {
    let (_, mut log) = new_log();
    let records = [tombstone(1), tombstone(2), record(3, "x")];
    let block_bytes = batch(&records, NOW, &Seal::default()).len() - HEADER_BYTES;
    log.update_config(LogConfig { decompressed_bytes_max: block_bytes, ..config() });
    let zstd = Seal { compression: Compression::Zstd, ..Seal::default() };
    appended(&mut log, batch(&records, NOW, &zstd), 0);
    roll(&mut log);
    compact(&mut log, 0);
    assert_eq!(offsets(&mut log), [0, 1, 2]);
    compact_at(&mut log, 0, NOW + 2 * DAY);
    assert_eq!(offsets(&mut log), [2]);
}

/// A log of five closed segments with the same key, of which the one at this number is damaged and quarantined.
fn quarantined(number: usize) -> Log {
    let disk = MemStorage::new();
    let (mut log, _) = open(&disk, &config());
    for _ in 0..5 {
        append(&mut log, &[record(1, "x"), record(1, "x")]);
        roll(&mut log);
    }
    log.close().expect("closed");
    let path = &log_files(&disk)[number];
    let mut bytes = disk.contents(path).expect("there");
    bytes[HEADER_BYTES + 5] ^= 1;
    disk.set_contents(path, &bytes);
    let (mut log, _) = open(&disk, &config());
    let mut cursor = ScrubCursor::default();
    while let Some(task) = log.scrub(cursor.clone(), 1 << 20).expect("readable") {
        cursor = log.scrubbed(task.run().expect("read")).expect("noted");
    }
    assert_eq!(log.quarantined().len(), 1);
    log
}

/// Damage in one segment ended each compaction before its first step, also if segments without damage were before it.
#[test]
fn the_segments_before_a_quarantined_one_are_compacted() {
    let mut log = quarantined(3);
    let report = compact(&mut log, 0);
    assert_eq!((report.first_dirty, report.segments_replaced, log.segment_count()), (6, 3, 4));
    for (number, first_dirty) in [(3, 6), (1, 4), (0, 0)] {
        let error = quarantined(number).compact(options(first_dirty, NOW)).expect_err("nothing is left");
        assert!(matches!(error, CompactionError::Damaged { .. }), "{number}: {error}");
    }
}

/// Each attempt read the segments up to the damage again, every ten minutes.
#[test]
fn damage_that_a_compaction_finds_ends_the_next_one_before_it_reads() {
    let (disk, mut log) = new_log();
    for n in 0..6 {
        append(&mut log, &[record(n % 2, "x")]);
    }
    roll(&mut log);
    sync(&mut log);
    let path = &log_files(&disk)[0];
    let mut bytes = disk.contents(path).expect("there");
    let at = bytes.len() - 1;
    bytes[at] ^= 1;
    disk.set_contents(path, &bytes);
    let reads = count_segment_reads(&disk);
    for is_first in [true, false] {
        let error = log.compact(options(0, NOW)).expect_err("damaged");
        assert!(matches!(error, CompactionError::Damaged { .. }), "{error}");
        assert_eq!(reads.swap(0, Ordering::Relaxed) > 0, is_first);
        let quarantined: Vec<_> = log.quarantined().iter().map(|bad| (bad.offset, bad.next_offset)).collect();
        assert_eq!(quarantined, [(5, 6)], "the last batch alone");
    }
}
