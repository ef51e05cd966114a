//! The segments that a compaction writes: how many, and how large.

use std::sync::Arc;

use ottla_log::storage::fs::FsStorage;
use ottla_log::storage::mem::MemStorage;
use ottla_log::{CompactionOptions, Log, LogConfig};

use crate::common;
use crate::common::{NOW, open, sync};
use crate::keyed::{append, compact, offsets, options, record, tombstone};

fn config() -> LogConfig {
    LogConfig { compact: true, index_interval_bytes: 100, ..LogConfig::default() }
}

fn roll(log: &mut Log) {
    log.roll(NOW).expect("rolled");
}

#[test]
fn small_segments_become_one_of_at_most_segment_bytes() {
    let disk = MemStorage::new();
    let config = LogConfig { segment_bytes: 2000, ..config() };
    let (mut log, _) = open(&disk, &config);
    for n in 0..40 {
        append(&mut log, &[record(n, &"x".repeat(100))]);
        roll(&mut log);
    }
    let before = log.segment_count();
    compact(&mut log, 0);
    let sizes: Vec<usize> =
        common::log_files(&disk).iter().map(|path| disk.contents(path).expect("there").len()).collect();
    assert!(log.segment_count() < before / 5 && sizes.iter().all(|size| *size <= 2000), "{sizes:?}");
    assert_eq!(offsets(&mut log), (0..40).collect::<Vec<_>>());
}

#[test]
fn what_is_left_of_large_segments_becomes_one() {
    let disk = MemStorage::new();
    let config = LogConfig { segment_bytes: 4000, ..config() };
    let (mut log, _) = open(&disk, &config);
    for n in 0..400 {
        append(&mut log, &[record(if n % 40 == 0 { n + 1000 } else { 1 }, &"x".repeat(100))]);
    }
    roll(&mut log);
    assert!(log.segment_count() > 15);
    let report = compact(&mut log, 0);
    assert_eq!((log.segment_count(), report.records_kept), (2, 11), "one, and the active segment");
    let expected: Vec<i64> = (0..400).filter(|offset| offset % 40 == 0 || *offset == 399).collect();
    assert_eq!(offsets(&mut log), expected);
}

#[test]
fn records_that_stay_and_are_larger_than_others_do_not_make_a_segment_too_large() {
    let disk = MemStorage::new();
    let config = LogConfig { segment_bytes: 4000, ..config() };
    let (mut log, _) = open(&disk, &config);
    for n in 0..200 {
        append(
            &mut log,
            &[record(1, "small"), record(1, "small"), record(1, "small"), record(n, &"x".repeat(300))],
        );
    }
    append(&mut log, &[record(1, "last")]);
    roll(&mut log);
    let report = compact(&mut log, 0);
    assert_eq!(report.records_kept, 200);
    let sizes: Vec<usize> =
        common::log_files(&disk).iter().map(|path| disk.contents(path).expect("there").len()).collect();
    assert!(sizes.iter().all(|size| *size <= 4000), "{sizes:?}");
}

/// Kafka 4.4: recompressed batches, or timestamps counted from a horizon, can need more bytes than a segment may have.
#[test]
fn a_segment_that_grows_too_large_is_split_at_a_batch() {
    let disk = MemStorage::forgetful();
    let (mut log, _) = open(&disk, &config());
    for n in 0..20 {
        append(&mut log, &[tombstone(n), tombstone(n + 100)]);
    }
    roll(&mut log);
    let small = CompactionOptions { segment_bytes_max: Some(400), ..options(0, NOW) };
    log.compact(small).expect("compacted");
    assert!(log.segment_count() > 4);
    sync(&mut log);
    drop(log);
    let (mut log, _) = open(&disk, &config());
    assert_eq!(offsets(&mut log), (0..40).collect::<Vec<_>>());
}

/// Another segment, which a compaction has written, had its base offset. It was taken for the one whose file is missing: the log went
/// offline.
#[test]
fn a_sync_of_a_segment_that_was_merged_with_others_and_split_again_meanwhile_succeeds() {
    let disk = MemStorage::new();
    let (mut log, _) = open(&disk, &config());
    append(&mut log, &[record(1, "first")]);
    roll(&mut log);
    append(&mut log, &[record(2, "second")]);
    assert!(log.close_idle_files(true));
    let pending = log.pending_sync().expect("something to sync");
    roll(&mut log);
    compact(&mut log, 0);
    assert_eq!(log.segment_count(), 2, "both are one");
    let synced = pending.run();
    let small = CompactionOptions { segment_bytes_max: Some(1), ..options(0, NOW) };
    log.compact(small).expect("compacted");
    assert_eq!(log.segment_count(), 3, "they are two again");
    assert_eq!(log.sync_done(synced).expect("both are durable"), 2);
    assert_eq!(log.offline_reason(), None);
    assert_eq!(offsets(&mut log), [0, 1]);
}

/// Freeing a segment of 1 GiB takes a third of a second, in which the lock of the log would keep all its clients waiting.
#[cfg(target_os = "linux")]
#[test]
fn the_bytes_of_a_segment_whose_name_is_taken_are_freed_when_its_replacement_is_run() {
    let dir = tempfile::tempdir().expect("a directory");
    let storage = Arc::new(FsStorage::new(dir.path()).expect("a storage"));
    let (mut log, _) = Log::open(storage, common::DIR, config(), NOW).expect("opened");
    for _ in 0..10 {
        append(&mut log, &[record(1, "x")]);
    }
    roll(&mut log);
    let freed_later = || {
        let open = std::fs::read_dir("/proc/self/fd").expect("open files");
        let open = open.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok());
        let of_log = |path: &std::path::PathBuf| path.starts_with(dir.path());
        open.filter(of_log).filter(|path| path.to_string_lossy().ends_with(".log (deleted)")).count()
    };
    let mut compaction = log.begin_compaction(options(0, NOW)).expect("begun");
    let group = compaction.clean_next(&|| false).expect("cleaned").expect("something changes");
    let pending = log.begin_replacement(group).expect("begun").run();
    let replaced = log.finish_replacement(pending).expect("replaced");
    assert_eq!(freed_later(), 1);
    replaced.run().expect("removed");
    assert_eq!(freed_later(), 0);
}
