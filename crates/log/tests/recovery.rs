//! Opening a log after it was not closed: torn tails, damage, lost files.

use ottla_log::storage::mem::MemStorage;
use ottla_log::{AppendError, AppendOptions, Log, LogConfig, LogError, ReadError, Visible};

use crate::common::{DIR, NOW, append, batch, log_files, open, produced, records, small, sync, values};

const ONE_SEGMENT: &str = "orders-0/00000000000000000000.log";

fn numbered(n: usize) -> Vec<u8> {
    format!("value {n}").into_bytes()
}

fn filled(disk: &MemStorage, config: &LogConfig, count: usize) -> Log {
    let (mut log, _) = open(disk, config);
    for n in 0..count {
        append(&mut log, &numbered(n)).expect("appended");
    }
    log
}

#[test]
fn a_killed_process_loses_nothing_it_appended() {
    for config in [LogConfig::default(), small()] {
        let disk = MemStorage::new();
        drop(filled(&disk, &config, 100));
        let (mut log, report) = open(&disk, &config);
        assert!(!report.clean && report.scanned_segments == log.segment_count());
        assert_eq!((report.truncated_bytes, log.synced_offset()), (0, 100));
        assert_eq!(values(&mut log), (0..100).map(numbered).collect::<Vec<_>>());
        log.close().expect("closed");
        let (log, report) = open(&disk, &config);
        assert!(report.clean && report.scanned_bytes == 0);
        // Opened and not touched, it is still closed cleanly.
        drop(log);
        let (mut log, report) = open(&disk, &config);
        assert!(report.clean);
        append(&mut log, b"one more").expect("appended");
        drop(log);
        let (log, report) = open(&disk, &config);
        assert_eq!((report.clean, log.end_offset()), (false, 101));
    }
}

#[test]
fn only_what_may_not_be_durable_is_scanned() {
    let disk = MemStorage::new();
    let mut log = filled(&disk, &small(), 100);
    sync(&mut log);
    append(&mut log, b"x").expect("appended");
    let segments = log.segment_count();
    drop(log);
    let (log, report) = open(&disk, &small());
    assert!(segments > 5 && report.scanned_segments <= 2, "{report:?}");
    assert_eq!(log.end_offset(), 101);
}

#[test]
fn the_last_write_torn_at_any_byte_is_cut_off_whole() {
    let disk = MemStorage::new();
    let mut log = filled(&disk, &LogConfig::default(), 3);
    sync(&mut log);
    let before = log.size_bytes() as usize;
    let mut buffer = batch(NOW, &[b"first of the last write"]);
    let first = buffer.len();
    buffer.extend_from_slice(&batch(NOW, &[b"second", b"third"]));
    log.append(NOW, buffer, AppendOptions::default()).expect("appended");
    drop(log);
    let whole = disk.contents(ONE_SEGMENT).expect("there");
    for len in before..whole.len() {
        for filler in [0, 0, 0xff] {
            let disk = disk.fork();
            let mut torn = whole[..len].to_vec();
            // As it was, or with a tail of zeros or garbage, as some file systems leave it.
            torn.resize(if filler == 0 { len } else { len + 700 }, filler);
            disk.set_contents(ONE_SEGMENT, &torn);
            let (mut log, report) = open(&disk, &LogConfig::default());
            let survived = if len < before + first { 3 } else { 4 };
            assert_eq!(log.end_offset(), survived, "torn at byte {len}");
            assert!(report.quarantined.is_empty());
            assert_eq!(values(&mut log).len() as i64, survived);
            assert_eq!(append(&mut log, b"on").expect("appended").base_offset, survived);
            drop(log);
            let (log, report) = open(&disk, &LogConfig::default());
            assert_eq!((report.truncated_bytes, log.end_offset()), (0, survived + 1));
        }
    }
}

#[test]
fn damage_behind_what_was_synced_is_a_torn_tail_even_with_sound_batches_behind_it() {
    let config = LogConfig { visible: Visible::Synced, ..LogConfig::default() };
    let disk = MemStorage::new();
    let mut log = filled(&disk, &config, 5);
    sync(&mut log);
    for n in 5..10 {
        append(&mut log, &numbered(n)).expect("appended");
    }
    drop(log);
    let whole = disk.contents(ONE_SEGMENT).expect("there");
    let one = whole.len() / 10;
    let damage = |batch: usize| {
        let mut bad = whole.clone();
        bad[batch * one + 65] ^= 0xa5;
        disk.set_contents(ONE_SEGMENT, &bad);
    };
    // One synced batch is damaged. That is no torn write, and the records after it were acknowledged.
    damage(2);
    let before = disk.fork();
    let (log, report) = open(&before, &config);
    assert_eq!((log.end_offset(), report.quarantined.len(), report.truncated_bytes), (10, 1, 0));
    // A power cut kept a later sector of the tail and lost an earlier one (simulation seed 1942).
    damage(7);
    let (mut log, report) = open(&disk, &config);
    assert_eq!((log.end_offset(), report.quarantined.len()), (7, 0));
    assert_eq!(report.truncated_bytes, 3 * one as u64);
    assert_eq!(values(&mut log), (0..7).map(numbered).collect::<Vec<_>>());
}

#[test]
fn damage_in_the_middle_is_set_aside_and_the_rest_stays() {
    let disk = MemStorage::new();
    drop(filled(&disk, &LogConfig::default(), 10));
    let whole = disk.contents(ONE_SEGMENT).expect("there");
    let one = whole.len() / 10;
    let position = one * 4;
    // One byte, one batch, and one batch with parts of its neighbours.
    for (from, to, lost) in [
        (position + 65, position + 66, 4..5),
        (position, position + one, 4..5),
        (position - 3, position + one + 3, 3..6),
    ] {
        let mut bad = whole.clone();
        bad[from..to].iter_mut().for_each(|byte| *byte ^= 0xa5);
        let disk = disk.fork();
        disk.set_contents(ONE_SEGMENT, &bad);
        let (mut log, report) = open(&disk, &LogConfig::default());
        let [range] = report.quarantined[..] else { panic!("{report:?}") };
        assert_eq!(
            (range.offset..range.next_offset, range.position),
            (lost.clone(), lost.start as u64 * one as u64)
        );
        assert_eq!((log.end_offset(), report.truncated_bytes), (10, 0));
        for offset in lost.clone() {
            let error = log.read(offset, 1 << 20, i64::MAX, true).expect_err("damaged");
            let text = error.to_string();
            assert!(matches!(error, ReadError::Corrupt { next, .. } if next == lost.end), "{text}");
            assert!(text.contains(DIR) && text.contains(&offset.to_string()), "{text}");
            assert!(text.contains(&range.position.to_string()) && text.contains("000.log"), "{text}");
        }
        let expected: Vec<_> =
            (0..10).filter(|n| !lost.contains(n)).map(|n| (n, numbered(n as usize))).collect();
        assert_eq!(records(&mut log), expected);
        append(&mut log, b"on").expect("appended");
        // The quarantine is stored, so the damage is known with and without a scan.
        for clean in [false, true] {
            if clean {
                log.close().expect("closed");
            } else {
                drop(log);
            }
            let (again, report) = open(&disk, &LogConfig::default());
            log = again;
            assert_eq!((report.clean, &report.quarantined[..]), (clean, &[range][..]));
            assert_eq!(records(&mut log).len(), expected.len() + 1);
        }
    }
}

#[test]
fn damage_that_comes_later_is_found_by_the_first_reader() {
    let disk = MemStorage::new();
    let config = LogConfig { tail_cache_bytes: 0, index_interval_bytes: 1, ..LogConfig::default() };
    let mut log = filled(&disk, &config, 10);
    log.close().expect("closed");
    let mut bad = disk.contents(ONE_SEGMENT).expect("there");
    let one = bad.len() / 10;
    bad[one * 4 + 8] ^= 0x40; // its length
    disk.set_contents(ONE_SEGMENT, &bad);
    let report;
    (log, report) = open(&disk, &config);
    assert!(report.clean && report.quarantined.is_empty());
    assert_eq!(records(&mut log).len(), 9, "all but one");
    assert_eq!(log.quarantined().len(), 1);
    drop(log);
    assert_eq!(open(&disk, &config).1.quarantined.len(), 1);
}

#[test]
fn segments_whose_tail_is_lost_between_others_leave_a_gap() {
    let reference = MemStorage::new();
    drop(filled(&reference, &small(), 60));
    let files = log_files(&reference);
    let disk = reference.fork();
    let second = disk.contents(&files[1]).expect("there");
    let one = second.len() / 13;
    disk.set_contents(&files[1], &second[..second.len() - one - 5]);
    let (mut log, report) = open(&disk, &small());
    let [range] = report.quarantined[..] else { panic!("{report:?}") };
    assert_eq!((range.next_offset - range.offset, log.end_offset()), (2, 60));
    assert!(matches!(log.read(range.offset, 1, i64::MAX, true), Err(ReadError::Corrupt { .. })));
    assert_eq!(records(&mut log).len(), 58);

    // No sound batch follows: the damage is a torn tail, and the log continues from there.
    let disk = reference.fork();
    for file in &files[2..] {
        disk.set_contents(file, &[0; 300]);
    }
    disk.set_contents(&files[1], &second[..second.len() - 5]);
    let (mut log, report) = open(&disk, &small());
    assert!(report.quarantined.is_empty() && report.truncated_bytes > 600);
    let end = log.end_offset();
    assert_eq!((records(&mut log).len() as i64, log_files(&disk).len()), (end, 2));
    assert_eq!(append(&mut log, b"on").expect("appended").base_offset, end);
}

#[test]
fn lost_and_damaged_helpers_are_made_anew() {
    let config = LogConfig { tail_cache_bytes: 0, ..small() };
    let reference = MemStorage::new();
    let mut log = filled(&reference, &config, 60);
    log.append(NOW, produced(3, 0, 0, 2), AppendOptions::default()).expect("appended");
    log.close().expect("closed");
    let helpers: Vec<String> =
        reference.paths().into_iter().filter(|path| path.rsplit('.').next() != Some("log")).collect();
    assert!(helpers.len() > 10, "{helpers:?}");
    type Harm = fn(&mut Vec<u8>);
    let harm: [(&str, Harm); 6] = [
        ("gone", Vec::clear),
        ("emptied", Vec::clear),
        ("cut", |bytes| bytes.truncate(bytes.len() / 2)),
        ("zeroed", |bytes| bytes.fill(0)),
        ("flipped", |bytes| bytes.iter_mut().for_each(|byte| *byte ^= 0x55)),
        ("one bit", |bytes| {
            let at = bytes.len() / 2;
            bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 0x10);
        }),
    ];
    for path in &helpers {
        for (name, harm) in harm {
            for (wipe_mark, what) in [(true, "after a crash"), (false, "after a clean close")] {
                let disk = reference.fork();
                let mut bytes = disk.contents(path).expect("there");
                harm(&mut bytes);
                if name == "gone" {
                    ottla_log::storage::Storage::remove(&disk, path).expect("removed");
                } else {
                    disk.set_contents(path, &bytes);
                }
                if wipe_mark {
                    disk.set_contents("orders-0/clean-shutdown", b"");
                }
                let (mut log, _) = open(&disk, &config);
                let context = format!("{path} {name} {what}");
                assert_eq!((log.start_offset(), log.end_offset()), (0, 62), "{context}");
                assert_eq!(records(&mut log).len(), 62, "{context}");
                for offset in 0..60 {
                    let read = log.read(offset, 1, i64::MAX, true).expect("in range").chain;
                    let bytes = read.to_bytes().expect("bytes");
                    let header = ottla_wire::BatchHeader::parse(&bytes).expect("a batch");
                    assert_eq!(header.base_offset, offset, "{context}");
                }
                let again = log.append(NOW, produced(3, 0, 0, 2), AppendOptions::default()).expect("known");
                assert!(again.duplicate && again.base_offset == 60, "{context}");
                assert_eq!(log.latest_epoch(), Some(0), "{context}");
                log.close().expect("closed");
                assert_eq!(records(&mut open(&disk, &config).0).len(), 62, "{context}");
            }
        }
    }
}

#[test]
fn producers_are_known_after_a_restart_of_any_kind() {
    for way in ["killed", "closed", "killed without snapshots"] {
        let disk = MemStorage::new();
        let (mut log, _) = open(&disk, &small());
        let options = AppendOptions::default();
        let start = i32::MAX - 15; // the sequences wrap in the middle
        let sequence = |n: i32| if n * 4 <= 15 { start + n * 4 } else { n * 4 - 16 };
        for n in 0..8 {
            log.append(NOW, produced(7, 1, sequence(n), 4), options).expect("in sequence");
            append(&mut log, &[0; 200]).expect("appended, so that segments roll");
        }
        let offsets: Vec<i64> = (0..8).map(|n| n * 5).collect();
        match way {
            "closed" => log.close().expect("closed"),
            "killed" => drop(log),
            _ => {
                drop(log);
                for path in disk.paths().iter().filter(|path| path.rsplit('.').next() == Some("snapshot")) {
                    ottla_log::storage::Storage::remove(&disk, path).expect("removed");
                }
            }
        }
        let (mut log, report) = open(&disk, &small());
        assert_eq!(report.producers, 1);
        for n in 3..8 {
            let again = log.append(NOW, produced(7, 1, sequence(n), 4), options).expect("a duplicate");
            assert!(again.duplicate && again.base_offset == offsets[n as usize], "{way}: batch {n}");
            assert_eq!(again.last_offset, again.base_offset + 3);
        }
        let last = sequence(7) + 3;
        let error = log.append(NOW, produced(7, 1, sequence(2), 4), options).expect_err("too old");
        assert!(
            matches!(error, AppendError::OutOfOrderSequence { last: Some(l), .. } if l == last),
            "{error}"
        );
        assert!(error.to_string().contains("from producer 7/1"), "{error}");
        let error = log.append(NOW, produced(7, 0, 0, 1), options).expect_err("fenced");
        assert!(matches!(error, AppendError::InvalidProducerEpoch { current: 1, found: 0, .. }), "{error}");
        log.append(NOW, produced(7, 1, last + 1, 1), options).expect("the next one");
        assert!(log.append(NOW, produced(7, 2, 5, 1), options).is_err(), "a new epoch starts at 0");
        log.append(NOW, produced(7, 2, 0, 1), options).expect("a new epoch");
        log.append(NOW, produced(99, 0, 1234, 1), options).expect("nothing is known of it");
        log.expire_producers(NOW + 24 * 3_600_000);
        assert!(!log.producers().is_empty(), "a jump of the clock is not the passing of time");
        for hour in 25..=48 {
            log.expire_producers(NOW + hour * 3_600_000);
        }
        assert!(log.producers().is_empty());
    }
}

#[test]
fn a_file_of_a_later_version_is_refused() {
    let disk = MemStorage::new();
    drop(filled(&disk, &small(), 5));
    let mut newer = disk.contents("orders-0/recovery-point").unwrap_or_default();
    newer.resize(14, 0);
    newer[..2].copy_from_slice(&9_i16.to_be_bytes());
    newer[2..6].copy_from_slice(&ottla_wire::crc::crc32c(&[0; 8]).to_be_bytes());
    newer[6..].fill(0);
    disk.set_contents("orders-0/log-start-offset", &newer);
    let error = Log::open(std::sync::Arc::new(disk), DIR, small(), NOW).expect_err("newer");
    assert!(matches!(error, LogError::NewerFormat { version: 9, known: 1, .. }), "{error}");
}

#[test]
fn leftovers_are_swept_away() {
    let disk = MemStorage::new();
    drop(filled(&disk, &small(), 5));
    for name in ["00000000000000000999.index", "00000000000000000999.timeindex", "log-start-offset.tmp"] {
        disk.set_contents(&format!("orders-0/{name}"), b"left behind");
    }
    disk.set_contents("orders-0/partition.metadata", b"Kafka's");
    let (log, _) = open(&disk, &small());
    assert_eq!(log.end_offset(), 5);
    assert!(!disk.paths().iter().any(|path| path.contains("999") || path.contains("tmp")));
    assert!(disk.paths().iter().any(|path| path.contains("partition.metadata")));
}

/// Found by the property test of compaction: the producer's next batch was out of order.
#[test]
fn a_snapshot_from_before_the_deleted_records_is_not_used() {
    let disk = MemStorage::new();
    let config = LogConfig::default();
    let (mut log, _) = open(&disk, &config);
    for sequence in 0..3 {
        log.append(NOW, produced(7, 0, sequence, 1), AppendOptions::default()).expect("appended");
        log.roll(NOW).expect("rolled");
    }
    append(&mut log, b"x").expect("appended");
    drop(log.delete_records_before(3).expect("deleted"));
    drop(log);
    // A power cut has lost the newest snapshot. The other one is older than the first segment.
    let snapshots: Vec<String> =
        disk.paths().into_iter().filter(|path| path.rsplit('.').next() == Some("snapshot")).collect();
    assert_eq!(snapshots.len(), 2);
    disk.set_contents(&snapshots[1], b"torn");
    let (mut log, _) = open(&disk, &config);
    log.append(NOW, produced(7, 0, 3, 1), AppendOptions::default()).expect("it is the next one");
}

/// The time of the last batch was the last one that a start knew: with a broker that was stopped each night, producers never expired.
#[test]
fn producers_are_idle_across_restarts() {
    let (disk, config) = (MemStorage::new(), LogConfig::default());
    let at = |hour: i64| NOW + hour * 3_600_000;
    let open_at = |hour| {
        let opened = Log::open(std::sync::Arc::new(disk.clone()), DIR, config.clone(), at(hour));
        opened.expect("opened").0
    };
    let idle =
        |log: &mut Log, from: i64, to: i64| (from..=to).for_each(|hour| log.expire_producers(at(hour)));
    let mut log = open_at(0);
    log.append(NOW, produced(7, 0, 0, 1), AppendOptions::default()).expect("appended");
    idle(&mut log, 1, 20);
    log.close().expect("closed");
    let mut log = open_at(21);
    assert_eq!(log.producers().len(), 1);
    idle(&mut log, 22, 25);
    assert!(log.producers().is_empty());
    log.close().expect("closed");
    // Nothing was appended since the first close.
    assert!(open_at(40).producers().is_empty(), "it does not come back");
}
