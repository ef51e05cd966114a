//! Records without timestamps (-1): their segments have an empty time index, which is no damage.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ottla_log::storage::fs::FsStorage;
use ottla_log::storage::mem::MemStorage;
use ottla_log::{AppendOptions, Log, LogConfig};

use crate::common::{NOW, batch, log_files, open, records, small, sync};
use crate::keyed::{append, compact, record};

const RECORDS: usize = 60;
const NO_TIMESTAMP: i64 = -1;

fn config() -> LogConfig {
    LogConfig { tail_cache_bytes: 0, ..small() }
}

/// A log of many segments, each with index entries; more of them than stay open at a time.
fn appended(timestamp: i64) -> (MemStorage, Log) {
    let disk = MemStorage::new();
    let (mut log, _) = open(&disk, &config());
    for n in 0..RECORDS {
        let value = format!("value {n:02} {:50}", "");
        let bytes = batch(timestamp, &[value.as_bytes()]);
        log.append(NOW, bytes, AppendOptions::default()).expect("appended");
    }
    sync(&mut log);
    assert!(log_files(&disk).len() > 7, "seven closed segments");
    (disk, log)
}

/// Reads a record of each closed segment. Returns how many calls change the disk, as an index that is written again does.
fn read_each_segment(disk: &MemStorage, log: &mut Log) -> u64 {
    let bases: Vec<i64> = log_files(disk).iter().map(|path| base_offset(path)).collect();
    let before = disk.ops();
    for base in &bases[..bases.len() - 1] {
        let read = log.read(base + 1, 1, i64::MAX, true).expect("read");
        assert!(!read.chain.is_empty());
    }
    disk.ops() - before
}

fn base_offset(path: &str) -> i64 {
    path.rsplit('/').next().and_then(|name| name[..20].parse().ok()).expect("an offset")
}

/// Such a segment was read whole at every opening, and its indexes were written again, while the log was locked.
#[test]
fn their_segments_are_not_read_whole_when_they_are_opened_again() {
    let (disk, mut log) = appended(NO_TIMESTAMP);
    for _ in 0..2 {
        assert_eq!(read_each_segment(&disk, &mut log), 0);
    }
    log.close().expect("closed");
    // The first opening after a start writes the empty time indexes, which show the next ones that no entry is missing.
    let (mut log, _) = open(&disk, &config());
    assert!(read_each_segment(&disk, &mut log) > 0);
    assert_eq!(read_each_segment(&disk, &mut log), 0);
    log.close().expect("closed");
    let (mut log, _) = open(&disk, &config());
    for _ in 0..2 {
        assert_eq!(read_each_segment(&disk, &mut log), 0);
    }
    assert_eq!(records(&mut log).len(), RECORDS);
    assert_eq!(log.offset_for_timestamp(0).expect("read"), None);
    assert_eq!(log.max_timestamp().expect("read"), None);
}

/// A time index that lost its entries looks like one of records without timestamps: lookups by time read the batches.
#[test]
fn a_lookup_by_time_passes_no_segment_whose_time_index_is_emptied() {
    let (disk, log) = appended(NOW);
    log.close().expect("closed");
    for path in disk.paths().iter().filter(|path| path.ends_with(".timeindex")) {
        assert!(!disk.contents(path).expect("there").is_empty());
        disk.set_contents(path, &[]);
    }
    for by_offset_first in [false, true] {
        let disk = disk.fork();
        let (mut log, report) = open(&disk, &config());
        assert!(report.clean);
        if by_offset_first {
            assert_eq!(read_each_segment(&disk, &mut log), 0);
        }
        let found = log.offset_for_timestamp(NOW).expect("read").expect("found");
        assert_eq!((found.offset, found.timestamp), (0, NOW));
        let found = log.max_timestamp().expect("read").expect("found");
        assert_eq!((found.offset, found.timestamp), (0, NOW));
    }
}

/// An append after a start must not hide that the time index has lost its entries.
#[test]
fn an_emptied_time_index_of_the_active_segment_is_written_again() {
    let (disk, log) = appended(NOW);
    log.close().expect("closed");
    let active = base_offset(log_files(&disk).last().expect("a segment"));
    let index = disk.paths().into_iter().filter(|path| path.ends_with(".timeindex")).max().expect("there");
    assert_eq!(base_offset(&index), active);
    disk.set_contents(&index, &[]);
    let (mut log, _) = open(&disk, &config());
    log.append(NOW, batch(NOW - 1000, &[b"older"]), AppendOptions::default()).expect("appended");
    log.roll(NOW).expect("rolled");
    log.delete_records_before(active).expect("deleted").files.run().expect("removed");
    sync(&mut log);
    log.close().expect("closed");
    let (mut log, _) = open(&disk, &config());
    let found = log.offset_for_timestamp(NOW).expect("read").expect("found");
    assert_eq!((found.offset, found.timestamp), (active, NOW));
}

/// Sets the times of the files of a log in this directory back by an hour.
fn set_back(dir: &Path) {
    const OLD_MS: u64 = 3_600_000;
    for entry in fs::read_dir(dir.join("orders-0")).expect("a directory") {
        let path = entry.expect("a file").path();
        let written = SystemTime::UNIX_EPOCH + Duration::from_millis(NOW as u64 - OLD_MS);
        fs::File::options().write(true).open(path).expect("opened").set_modified(written).expect("set");
    }
}

/// They were as old as the process: a broker that restarted more often than `retention.ms` kept them without end.
#[test]
fn they_are_as_old_as_the_last_write_to_their_file_also_after_a_start() {
    let dir = tempfile::tempdir().expect("a directory");
    let open = || {
        let storage = FsStorage::new(dir.path()).expect("a directory");
        let config = LogConfig { retention_ms: Some(1_000_000), ..config() };
        Log::open(Arc::new(storage), "orders-0", config, NOW).expect("opened").0
    };
    let mut log = open();
    for _ in 0..RECORDS {
        log.append(NOW, batch(NO_TIMESTAMP, &[&[b'x'; 50]]), AppendOptions::default()).expect("appended");
    }
    sync(&mut log);
    log.close().expect("closed");
    set_back(dir.path());
    let mut log = open();
    assert!(log.segment_count() > 2);
    log.enforce_retention(NOW).expect("deleted");
    assert_eq!((log.segment_count(), log.start_offset()), (1, RECORDS as i64));
}

/// They were as old as the last compaction of their segment, whose file is a new one: frequent compactions kept them without end.
#[test]
fn they_are_as_old_as_before_when_their_segments_were_compacted() {
    let dir = tempfile::tempdir().expect("a directory");
    let storage = FsStorage::new(dir.path()).expect("a directory");
    let config = LogConfig { compact: true, retention_ms: Some(1_000_000), ..config() };
    let (mut log, _) = Log::open(Arc::new(storage), "orders-0", config, NOW).expect("opened");
    for _ in 0..3 {
        for _ in 0..2 {
            append(&mut log, &[record(1, "x").timed(NO_TIMESTAMP)]);
        }
        log.roll(NOW).expect("rolled");
    }
    append(&mut log, &[record(2, "x")]);
    sync(&mut log);
    set_back(dir.path());
    assert_eq!((compact(&mut log, 0).segments_replaced, log.segment_count()), (3, 2));
    log.enforce_retention(NOW).expect("deleted");
    assert_eq!((log.segment_count(), log.start_offset()), (1, 6));
}
