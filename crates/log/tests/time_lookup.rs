//! The first lookups after a start: the indexes of all segments are unread. Each step reads those of one segment, so that others use
//! the log between two steps.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use ottla_log::storage::Storage;
use ottla_log::storage::mem::{MemStorage, OpKind};
use ottla_log::{AppendOptions, Log, LogConfig, ReadError, TimeLookupStep, find_by_time};
use ottla_wire::Compression;

use crate::common::{DIR, NOW, batch, compressed, count_segment_reads, log_files, open, small};
use crate::keyed::{append, compact, record};

const RECORDS: i64 = 60;

/// The segments of which files were read since the last call.
#[derive(Clone, Default)]
struct Reads(Arc<Mutex<BTreeSet<String>>>);

impl Reads {
    fn of(disk: &MemStorage) -> Self {
        let reads = Self::default();
        let seen = reads.clone();
        disk.inject(move |op| {
            if op.kind == OpKind::Read {
                let name = op.path.split('.').next().unwrap_or_default().to_owned();
                seen.0.lock().expect("no panic").insert(name);
            }
            None
        });
        reads
    }

    fn take(&self) -> usize {
        std::mem::take(&mut *self.0.lock().expect("no panic")).len()
    }
}

/// A log of several segments that was opened a moment ago, whose records have one timestamp after another.
fn started(config: &LogConfig) -> (Log, Reads, usize) {
    let disk = MemStorage::new();
    let (mut log, _) = open(&disk, config);
    for n in 0..RECORDS {
        let bytes = batch(NOW + n, &[format!("value {n:02}").as_bytes()]);
        log.append(NOW, bytes, AppendOptions::default()).expect("appended");
    }
    log.close().expect("closed");
    let segments = log_files(&disk).len();
    assert!(segments > 3, "several segments");
    let (log, report) = open(&disk, config);
    assert!(report.clean);
    (log, Reads::of(&disk), segments)
}

#[test]
fn a_step_of_a_lookup_by_time_reads_one_segment() {
    let (mut log, reads, segments) = started(&small());
    let (mut searched, mut passed) = (0, 0);
    let last = loop {
        let step = log.plan_time_lookup(NOW + RECORDS - 1, searched).expect("read");
        assert!(reads.take() <= 1, "from {searched} on");
        match step {
            TimeLookupStep::Search(lookup) => break lookup.run().expect("read").expect("found"),
            TimeLookupStep::Passed(end_offset) => searched = end_offset,
            TimeLookupStep::Read(_) => panic!("the time indexes have entries"),
            TimeLookupStep::Done => panic!("the last record has this timestamp"),
        }
        passed += 1;
    };
    assert_eq!((last.offset, passed), (RECORDS - 1, segments - 1));
    reads.take();
    // All are known now.
    let step = log.plan_time_lookup(NOW + RECORDS, 0).expect("known");
    assert!(matches!(step, TimeLookupStep::Done) && reads.take() == 0);
    assert_eq!(log.offset_for_timestamp(NOW + 7).expect("read").expect("found").offset, 7);
}

#[test]
fn the_newest_timestamp_is_found_one_segment_at_a_time() {
    let (mut log, reads, segments) = started(&small());
    let mut steps = 0;
    while matches!(log.load_next_timestamps().expect("read"), TimeLookupStep::Passed(_)) {
        assert!(reads.take() <= 1);
        steps += 1;
    }
    assert_eq!(steps, segments);
    assert_eq!((log.newest_timestamp().expect("known"), reads.take()), (Some(NOW + RECORDS - 1), 0));
}

#[test]
fn the_ages_of_dirty_segments_are_loaded_one_at_a_time() {
    let config = LogConfig { min_compaction_lag_ms: 1000, ..small() };
    let (mut log, reads, segments) = started(&config);
    let mut steps = 0;
    while log.load_next_dirty(1).expect("read") {
        assert!(reads.take() <= 1);
        steps += 1;
    }
    assert_eq!(steps, segments - 1, "all closed ones");
    log.cleanable(1, i64::MAX, NOW + 10_000).expect("looked");
    assert_eq!(reads.take(), 0);
    assert!(!log.load_next_dirty(RECORDS).expect("nothing is dirty"));
}

/// The merged segment has the base offset of one that was searched: it was skipped with all its other records.
#[test]
fn a_compaction_between_two_steps_hides_no_record() {
    let config = LogConfig { compact: true, ..LogConfig::default() };
    let disk = MemStorage::new();
    let (mut log, _) = open(&disk, &config);
    for n in 0..6 {
        append(&mut log, &[record(1, "x").timed(NOW + n)]);
        log.roll(NOW).expect("rolled");
    }
    append(&mut log, &[record(2, "active")]);
    log.close().expect("closed");
    let (log, _) = open(&disk, &config);
    let (log, mut steps) = (RefCell::new(log), 0);
    let found = find_by_time(NOW + 5, || {
        let mut log = log.borrow_mut();
        steps += 1;
        if steps == 3 {
            compact(&mut log, 0);
            assert_eq!(log.segment_count(), 2, "one has all that were closed");
        }
        log
    });
    assert_eq!(found.expect("read").map(|found| found.offset), Some(5));
    assert_eq!(steps, 3, "two segments were passed before");
}

/// The active segment was searched again and again if it had grown since.
#[test]
fn a_lookup_by_time_ends_while_records_are_appended() {
    let (mut log, _) = open(&MemStorage::new(), &LogConfig::default());
    append(&mut log, &[record(1, "deleted").timed(NOW + 1)]);
    append(&mut log, &[record(1, "older").timed(NOW)]);
    drop(log.delete_records_before(1).expect("deleted"));
    let (log, mut steps) = (RefCell::new(log), 0);
    let found = find_by_time(NOW + 1, || {
        let mut log = log.borrow_mut();
        append(&mut log, &[record(1, "older").timed(NOW)]);
        steps += 1;
        assert!(steps < 5, "the lookup does not end");
        log
    });
    assert_eq!((found.expect("read"), steps), (None, 2));
}

/// Lookups by time opened the files of a log that was offline. They found records that reads refused, or a missing file.
#[test]
fn lookups_by_time_in_a_log_that_is_offline_fail_with_its_reason() {
    let (mut closed, reads, _) = started(&small());
    closed.shut().expect("closed");
    reads.take();
    let disk = Arc::new(MemStorage::new());
    let unavailable = Log::unavailable(disk, DIR, small(), "it was lost".into());
    for mut log in [closed, unavailable] {
        let planned = log.plan_time_lookup(NOW, 0).map(drop);
        let loaded = log.load_next_timestamps().map(drop);
        let newest = log.newest_timestamp().map(drop);
        for result in [planned, loaded, newest, log.max_timestamp().map(drop)] {
            assert!(matches!(result, Err(ReadError::Offline { .. })), "{result:?}");
        }
        assert_eq!(reads.take(), 0);
    }
}

/// The first lookup after each start read these segments whole while it had the log's lock: their time index may have lost its entries.
#[test]
fn segments_without_timestamps_are_read_without_the_log() {
    let disk = MemStorage::new();
    let (mut log, _) = open(&disk, &small());
    for n in 0..RECORDS {
        let bytes = batch(-1, &[format!("value {n:02}").as_bytes()]);
        log.append(NOW, bytes, AppendOptions::default()).expect("appended");
    }
    // The first lookup writes the missing time indexes. They are empty.
    for _ in 0..2 {
        log.close().expect("closed");
        log = open(&disk, &small()).0;
        assert_eq!(log.offset_for_timestamp(0).expect("read"), None);
    }
    log.close().expect("closed");
    for newest in [false, true] {
        let disk = disk.fork();
        let (mut log, _) = open(&disk, &small());
        // The active segment is confirmed when it is opened.
        log.append(NOW, batch(-1, &[b"last"]), AppendOptions::default()).expect("appended");
        let reads = count_segment_reads(&disk);
        let (mut searched, mut segments) = (0, 0);
        loop {
            let step = if newest { log.load_next_timestamps() } else { log.plan_time_lookup(0, searched) };
            assert_eq!(reads.swap(0, Ordering::Relaxed), 0, "from {searched} on");
            match step.expect("planned") {
                TimeLookupStep::Read(read) => {
                    segments += 1;
                    log.note_newest(read.run()).expect("read");
                    assert!(reads.swap(0, Ordering::Relaxed) > 0);
                }
                TimeLookupStep::Passed(end_offset) => searched = end_offset,
                TimeLookupStep::Search(_) => panic!("no record has a timestamp"),
                TimeLookupStep::Done => break,
            }
        }
        assert_eq!(segments, log.segment_count() - 1, "all closed ones");
        assert_eq!(log.max_timestamp().expect("known"), None);
        assert_eq!(reads.load(Ordering::Relaxed), 0);
    }
}

/// The lookup searched for the newest timestamp of all records, also of those that DeleteRecords had removed: it found no record.
#[test]
fn the_newest_record_is_one_that_is_not_deleted() {
    for batch_records in [1, 3] {
        let (mut log, _) = open(&MemStorage::new(), &LogConfig::default());
        let records = [100, 50, 60].map(|timestamp| record(1, "x").timed(timestamp));
        for records in records.chunks(batch_records) {
            append(&mut log, records);
        }
        for (start, newest) in [(0, Some((100, 0))), (1, Some((60, 2))), (3, None)] {
            drop(log.delete_records_before(start).expect("deleted"));
            let found = log.max_timestamp().expect("read").map(|found| (found.timestamp, found.offset));
            assert_eq!(found, newest, "from {start}, {batch_records} records in a batch");
        }
    }
}

/// Such a batch was damage for the lookups by time that came to it, and they failed for as long as it was in the log.
#[test]
fn a_batch_above_the_limit_of_today_is_found_by_the_time_of_its_header() {
    let large: &[u8] = &[b'x'; 5000];
    for codec in Compression::ALL.into_iter().filter(|codec| *codec != Compression::None) {
        let (mut log, _) = open(&MemStorage::new(), &LogConfig::default());
        for bytes in
            [batch(NOW, &[b"older"]), compressed(NOW + 2, &[large, large], codec), batch(NOW + 1, &[b"last"])]
        {
            log.append(NOW, bytes, AppendOptions::default()).expect("appended");
        }
        log.update_config(LogConfig { decompressed_bytes_max: 1000, ..LogConfig::default() });
        let newest = log.max_timestamp().expect("read").expect("found");
        assert_eq!((newest.timestamp, newest.offset), (NOW + 2, 1), "{codec:?}");
        drop(log.delete_records_before(2).expect("deleted"));
        let first = log.offset_for_timestamp(NOW).expect("read").expect("found");
        assert_eq!((first.timestamp, first.offset), (NOW + 2, 2), "{codec:?}");
    }
}

/// A segment whose indexes were built again lost the batches at the positions of another segment's damage. Its newest record was not found
/// by its time.
#[test]
fn damage_in_one_segment_hides_no_records_of_another() {
    let disk = MemStorage::new();
    let (mut log, _) = open(&disk, &small());
    for segment in 0..3 {
        for n in 0..3 {
            let later = if (segment, n) == (1, 0) { 5000 } else { n };
            let bytes = batch(NOW + later, &[b"value"]);
            log.append(NOW, bytes, AppendOptions::default()).expect("appended");
        }
        log.roll(NOW).expect("rolled");
    }
    log.close().expect("closed");
    let files = log_files(&disk);
    let mut bytes = disk.contents(&files[0]).expect("there");
    bytes[62] ^= 0x10;
    disk.set_contents(&files[0], &bytes);
    disk.remove(&files[1].replace(".log", ".timeindex")).expect("removed");
    let (mut log, report) = open(&disk, &small());
    assert!(report.clean);
    log.read(0, 1 << 20, i64::MAX, true).expect_err("damaged");
    let found = log.offset_for_timestamp(NOW + 4000).expect("read").expect("found");
    assert_eq!((found.timestamp, found.offset), (NOW + 5000, 3));
    let newest = log.max_timestamp().expect("read").expect("found");
    assert_eq!(newest, found);
}

/// The bytes of an entry of a time index: a timestamp and a relative offset.
const TIME_ENTRY_BYTES: usize = 12;

/// No checksum covers a time index. A lookup began behind the record that it should find, or passed the whole segment.
#[test]
fn a_time_entry_that_names_another_batch_hides_no_record() {
    let config = LogConfig { index_interval_bytes: 100, ..LogConfig::default() };
    let disk = MemStorage::new();
    let (mut log, _) = open(&disk, &config);
    for n in 0..RECORDS {
        log.append(NOW, batch(NOW + 1000 * n, &[b"value"]), AppendOptions::default()).expect("appended");
    }
    log.close().expect("closed");
    let path = log_files(&disk)[0].replace(".log", ".timeindex");
    let sound = disk.contents(&path).expect("there");
    let timestamp_of = |entry: usize| {
        let bytes = sound[entry * TIME_ENTRY_BYTES..].first_chunk().expect("an entry");
        i64::from_be_bytes(*bytes)
    };
    let entries = sound.len() / TIME_ENTRY_BYTES;
    assert!(entries > 10, "{entries} entries");
    for entry in 1..entries {
        let mut earlier = sound.clone();
        let at = entry * TIME_ENTRY_BYTES;
        earlier[at..at + 8].copy_from_slice(&(timestamp_of(entry - 1) + 1).to_be_bytes());
        let mut further = sound.clone();
        further[at + TIME_ENTRY_BYTES - 1] += 1;
        for damaged in [earlier, further] {
            let disk = disk.fork();
            disk.set_contents(&path, &damaged);
            let (mut log, report) = open(&disk, &config);
            assert!(report.clean);
            for n in 0..RECORDS {
                for timestamp in [NOW + 1000 * n - 500, NOW + 1000 * n] {
                    let found = log.offset_for_timestamp(timestamp).expect("read");
                    assert_eq!(found.map(|found| found.offset), Some(n), "entry {entry}, {timestamp}");
                }
            }
            let newest = log.max_timestamp().expect("read").expect("found");
            assert_eq!((newest.timestamp, newest.offset), (NOW + 1000 * (RECORDS - 1), RECORDS - 1));
        }
    }
}
