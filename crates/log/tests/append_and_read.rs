//! Appended records can be read: offsets, limits, segments, timestamps, deletion.

use bytes::BytesMut;
use ottla_log::storage::mem::MemStorage;
use ottla_log::{
    AppendError, AppendOptions, Check, LeftOut, LogConfig, LogError, Origin, ReadError, ReadPlan,
    RetentionStep, TimestampOffset, Visible,
};
use ottla_wire::{Batches, Compression, Piece, Seal, TimestampType};

use crate::common;
use crate::common::{
    DIR, NOW, append, batch, compressed, open, produced, records, records_by, sealed, small, sync, values,
};

fn numbered(n: i64) -> Vec<u8> {
    format!("value {n}").into_bytes()
}

#[test]
fn records_come_back_in_order_from_memory_and_from_files() {
    for cache in [0, 700, 1 << 20] {
        let disk = MemStorage::new();
        let config = LogConfig { tail_cache_bytes: cache, ..small() };
        let (mut log, report) = open(&disk, &config);
        assert!(report.clean, "a new log");
        for n in 0..100 {
            assert_eq!(append(&mut log, &numbered(n)).expect("appended").base_offset, n);
        }
        let expected: Vec<_> = (0..100).map(|n| (n, numbered(n))).collect();
        assert!(log.segment_count() > 5 && log.cache_bytes() <= cache);
        for max_bytes in [1, 80, 300, 1 << 20] {
            assert_eq!(
                records_by(&mut log, max_bytes),
                expected,
                "{max_bytes} bytes at a time, cache {cache}"
            );
        }
        log.close().expect("closed");
        let (mut log, report) = open(&disk, &config);
        assert!(report.clean && report.scanned_segments == 0);
        assert_eq!(records(&mut log), expected);
        assert_eq!((log.start_offset(), log.end_offset(), log.synced_offset()), (0, 100, 100));
    }
}

#[test]
fn several_batches_in_one_buffer_get_consecutive_offsets() {
    let (mut log, _) = open(&MemStorage::new(), &LogConfig::default());
    let mut buffer = batch(NOW, &[b"a", b"b"]);
    buffer.extend_from_slice(&compressed(NOW, &[&[b'c'; 500], &[b'd'; 500]], Compression::Zstd));
    buffer.extend_from_slice(&batch(NOW, &[b"e"]));
    let options = AppendOptions { leader_epoch: 7, ..AppendOptions::default() };
    let appended = log.append(NOW, buffer, options).expect("appended");
    assert_eq!((appended.base_offset, appended.last_offset, appended.records), (0, 4, 5));
    assert_eq!(values(&mut log), [&b"a"[..], b"b", &[b'c'; 500], &[b'd'; 500], b"e"]);
    let bytes = log.read(0, 1 << 20, i64::MAX, true).expect("read").chain.to_bytes().expect("bytes");
    let epochs: Vec<_> = Batches::new(&bytes).map(|b| b.expect("whole").0.partition_leader_epoch).collect();
    assert_eq!(epochs, [7, 7, 7]);
}

#[test]
fn a_reader_at_the_tail_touches_no_file() {
    let disk = MemStorage::new();
    let (mut log, _) = open(&disk, &LogConfig::default());
    for n in 0..1000 {
        append(&mut log, &numbered(n)).expect("appended");
    }
    disk.inject(|op| panic!("{op:?}"));
    for n in 0..1000 {
        let ReadPlan::Ready(read) = log.plan_read(n, 100, i64::MAX, true).expect("in range") else {
            panic!("offset {n} is in memory");
        };
        assert!(read.chain.as_single().is_some() && read.next_offset > Some(n));
    }
    disk.heal();
    assert_eq!(log.trim_cache(0), 0);
    assert!(matches!(log.plan_read(5, 100, i64::MAX, true), Ok(ReadPlan::Cold(_))));
}

#[test]
fn reads_respect_the_high_watermark_and_the_byte_limit() {
    for cache in [0, 1 << 20] {
        let config = LogConfig { tail_cache_bytes: cache, ..LogConfig::default() };
        let (mut log, _) = open(&MemStorage::new(), &config);
        for n in 0..50 {
            let values: Vec<_> = (0..4).map(|k| numbered(n * 4 + k)).collect();
            let values: Vec<&[u8]> = values.iter().map(Vec::as_slice).collect();
            log.append(NOW, batch(NOW, &values), AppendOptions::default()).expect("appended");
        }
        let read = |log: &mut ottla_log::Log, from, bytes, to, one| {
            let read = log.read(from, bytes, to, one).expect("in range");
            let bytes = read.chain.to_bytes().expect("bytes");
            Batches::new(&bytes).map(|b| b.expect("a batch").0.base_offset).collect::<Vec<_>>()
        };
        assert_eq!(read(&mut log, 8, 1 << 20, 20, true), [8, 12, 16]);
        assert_eq!(read(&mut log, 10, 1 << 20, 19, true), [8, 12], "batch 16..=19 reaches the limit");
        assert_eq!(read(&mut log, 10, 1 << 20, 11, true), [0; 0]);
        assert_eq!(read(&mut log, 8, 1, 200, true), [8], "one batch at least");
        assert_eq!(read(&mut log, 8, 1, 200, false), [0; 0]);
        assert_eq!(read(&mut log, 8, 1 << 20, 8, true), [0; 0]);
        assert_eq!(read(&mut log, 200, 1 << 20, 200, true), [0; 0], "at the end");
        assert_eq!(read(&mut log, 196, 1 << 20, i64::MAX, true), [196]);
        let error = log.read(201, 1, i64::MAX, true).expect_err("beyond the end");
        assert!(matches!(error, ReadError::OutOfRange { offset: 201, start: 0, end: 200, .. }), "{error}");
        assert!(log.read(-1, 1, i64::MAX, true).is_err());
    }
}

#[test]
fn an_old_read_is_one_range_of_a_file_that_outlives_its_segment() {
    let disk = MemStorage::new();
    let (mut log, _) = open(&disk, &LogConfig { tail_cache_bytes: 0, ..small() });
    for n in 0..100 {
        append(&mut log, &numbered(n)).expect("appended");
    }
    let chain = log.read(3, 20_000, i64::MAX, true).expect("read").chain;
    assert!(matches!(chain.pieces(), [Piece::File(slice)] if slice.len > 400));
    let small = log.read(3, 400, i64::MAX, true).expect("read").chain;
    assert!(
        matches!(small.pieces(), [Piece::Memory(bytes)] if bytes.len() == 400),
        "the lookup has read them"
    );
    assert_eq!(small.to_bytes().expect("bytes")[..], chain.to_bytes().expect("bytes")[..400]);
    log.delete_records_before(50).expect("deleted").files.run().expect("removed");
    assert!(disk.contents("orders-0/00000000000000000000.log").is_none());
    let bytes = chain.to_bytes().expect("the slice keeps the file");
    assert_eq!(Batches::new(&bytes).next().expect("one").expect("whole").0.base_offset, 3);
    assert!(matches!(log.read(3, 400, i64::MAX, true), Err(ReadError::OutOfRange { start: 50, .. })));
}

#[test]
fn batches_that_are_not_right_are_refused_and_leave_nothing() {
    let disk = MemStorage::new();
    let config = LogConfig { message_bytes_max: 1000, ..LogConfig::default() };
    let (mut log, _) = open(&disk, &config);
    let mut refuse = |bytes: BytesMut, options: AppendOptions| {
        let error = log.append(NOW, bytes, options).expect_err("refused");
        assert!(error.to_string().contains(DIR), "{error}");
        assert_eq!((log.end_offset(), log.size_bytes()), (0, 0));
        error
    };
    let client = AppendOptions::default();
    let good = batch(NOW, &[b"a", b"b"]);
    let flipped = |at: usize, bit: u8| {
        let mut bytes = good.clone();
        bytes[at] ^= bit;
        bytes
    };
    // The checksum is corrected, so that the next check must detect the error.
    let patched = |at: usize, value: &[u8]| {
        let mut bytes = good.clone();
        bytes[at..at + value.len()].copy_from_slice(value);
        let crc = ottla_wire::crc::crc32c(&bytes[21..]).to_be_bytes();
        bytes[17..21].copy_from_slice(&crc);
        bytes
    };
    assert!(matches!(refuse(BytesMut::new(), client), AppendError::NotAllowed { .. }));
    for at in [8, 16, 17, 40, 61, good.len() - 1] {
        assert!(matches!(refuse(flipped(at, 4), client), AppendError::Corrupt { .. }), "byte {at}");
    }
    for len in 1..good.len() {
        assert!(matches!(refuse(BytesMut::from(&good[..len]), client), AppendError::Corrupt { .. }));
    }
    let mut two = good.clone();
    two.extend_from_slice(&good[..good.len() - 1]);
    assert!(matches!(refuse(two, client), AppendError::Corrupt { .. }), "the second of two is cut off");
    for (at, value) in [(57, 1_i32), (57, -1), (57, 9), (23, -1)] {
        let refused = refuse(patched(at, &value.to_be_bytes()), client);
        assert!(matches!(refused, AppendError::InvalidBatch { .. }), "{value} at {at}: {refused}");
    }
    for magic in [0, 1] {
        let refused = refuse(flipped(16, 2 ^ magic), client);
        assert!(matches!(refused, AppendError::InvalidBatch { .. }), "an old format");
    }
    for at in [23, 57] {
        assert!(matches!(refuse(flipped(at, 0x80), client), AppendError::Corrupt { .. }), "damaged at {at}");
    }
    assert!(matches!(refuse(patched(61, &[0x7e]), client), AppendError::InvalidRecords { .. }));
    let offset_delta = 61 + 3;
    assert!(matches!(refuse(patched(offset_delta, &[2]), client), AppendError::InvalidRecords { .. }));
    assert!(matches!(refuse(patched(22, &[0x20]), client), AppendError::NotAllowed { .. }), "control");
    assert!(matches!(refuse(patched(22, &[0x10]), client), AppendError::NotAllowed { .. }), "transactional");
    assert!(matches!(refuse(patched(22, &[0x08]), client), AppendError::NotAllowed { .. }), "append time");
    assert!(matches!(refuse(patched(22, &[0x05]), client), AppendError::InvalidBatch { .. }), "codec 5");
    assert!(matches!(refuse(flipped(22, 0x05), client), AppendError::Corrupt { .. }), "a damaged codec");
    assert!(matches!(refuse(patched(22, &[0x04]), client), AppendError::InvalidRecords { .. }), "not zstd");
    assert!(matches!(refuse(patched(43, &9_i64.to_be_bytes()), client), AppendError::NotAllowed { .. }));
    assert!(matches!(refuse(batch(NOW, &[&[0; 1000]]), client), AppendError::TooLarge { max: 1000, .. }));
    let bomb = compressed(NOW, &[&vec![0; 65 << 20]], Compression::Zstd);
    assert!(bomb.len() < 64 << 10);
    let config = LogConfig { message_bytes_max: 1 << 20, ..LogConfig::default() };
    let (mut log, _) = open(&disk, &config);
    let error = log.append(NOW, bomb, client).expect_err("above the cap");
    assert!(matches!(error, AppendError::InvalidRecords { .. }), "{error}");
    let marker = patched(22, &[0x30]);
    let coordinator = AppendOptions { origin: Origin::Coordinator, check: Check::Checksum, ..client };
    assert_eq!(log.append(NOW, marker, coordinator).expect("a coordinator may").base_offset, 0);
}

#[test]
fn timestamps_are_checked_put_right_or_replaced() {
    let config = LogConfig { timestamp_before_max_ms: 1000, ..LogConfig::default() };
    let (mut log, _) = open(&MemStorage::new(), &config);
    let options = AppendOptions::default();
    for (timestamp, ok) in
        [(NOW - 1000, true), (NOW - 1001, false), (NOW + 3_600_000, true), (NOW + 3_600_001, false)]
    {
        let appended = log.append(NOW, batch(timestamp, &[b"x"]), options);
        assert_eq!(appended.is_ok(), ok, "{appended:?}");
    }
    log.append(NOW, batch(-1, &[b"no timestamp"]), options).expect("appended");
    // A producer that forgot to set the largest timestamp.
    let mut wrong = batch(NOW, &[b"x"]);
    wrong[35..43].copy_from_slice(&(NOW - 5).to_be_bytes());
    let crc = ottla_wire::crc::crc32c(&wrong[21..]).to_be_bytes();
    wrong[17..21].copy_from_slice(&crc);
    let at = log.append(NOW, wrong, options).expect("appended").base_offset;
    let bytes = log.read(at, 1000, i64::MAX, true).expect("read").chain.to_bytes().expect("bytes");
    let (header, range) = Batches::new(&bytes).next().expect("one").expect("whole");
    header.verify_crc(&bytes[range]).expect("computed anew");
    assert_eq!(header.max_timestamp, NOW);

    let config = LogConfig { timestamp_type: TimestampType::LogAppendTime, ..LogConfig::default() };
    let (mut log, _) = open(&MemStorage::new(), &config);
    let appended = log.append(NOW + 9, batch(5, &[b"x"]), options).expect("appended");
    assert_eq!(appended.log_append_time, Some(NOW + 9));
    let found = log.max_timestamp().expect("read").expect("one");
    assert_eq!((found.timestamp, found.offset), (NOW + 9, 0));
    assert_eq!(values(&mut log), [b"x"]);
}

/// A compressed batch was refused for a base timestamp that none of its records has, although its records had been looked at.
#[test]
fn the_base_timestamp_of_a_checked_batch_is_no_time_of_a_record() {
    let config = LogConfig { timestamp_before_max_ms: 1000, ..LogConfig::default() };
    let (mut log, _) = open(&MemStorage::new(), &config);
    let mut checked = batch(NOW, &[b"x"]);
    checked[27..35].copy_from_slice(&0_i64.to_be_bytes());
    let options = AppendOptions { check: Check::Trusted, ..AppendOptions::default() };
    log.append(NOW, checked, options).expect("appended");
}

#[test]
fn offsets_are_found_by_time() {
    for reopen in [false, true] {
        let disk = MemStorage::new();
        let (mut log, _) = open(&disk, &small());
        assert_eq!(log.max_timestamp().expect("read"), None);
        // Times rise by ten, but every seventh batch is late by 35.
        let time = |n: i64| NOW + n * 10 - if n % 7 == 6 { 35 } else { 0 };
        for n in 0..100 {
            let seal = Seal::default();
            let options = AppendOptions { leader_epoch: 3, ..AppendOptions::default() };
            log.append(NOW, sealed(time(n), &[b"a", b"b"], &seal), options).expect("appended");
        }
        if reopen {
            log.close().expect("closed");
            (log, _) = open(&disk, &small());
        }
        for wanted in (NOW - 20..NOW + 1010).step_by(3) {
            let expected = (0..100).find(|n| time(*n) >= wanted).map(|n| TimestampOffset {
                timestamp: time(n),
                offset: n * 2,
                leader_epoch: 3,
            });
            assert_eq!(log.offset_for_timestamp(wanted).expect("read"), expected, "{wanted}");
        }
        let newest = log.max_timestamp().expect("read").expect("one");
        assert_eq!((newest.timestamp, newest.offset), (NOW + 990, 198));
        // Deleted records are not found.
        let _ = log.delete_records_before(101).expect("deleted");
        assert_eq!(log.offset_for_timestamp(NOW).expect("read").expect("one").offset, 101);
    }
}

/// Apache Kafka refuses them too. They were written, and made a segment that was larger than its setting.
#[test]
fn the_batches_of_a_client_that_no_segment_has_room_for_are_refused() {
    let (mut log, _) = open(&MemStorage::new(), &LogConfig { segment_bytes: 400, ..LogConfig::default() });
    let one = batch(NOW, &[&[b'x'; 100]]);
    let many = |count: usize| BytesMut::from(&one.repeat(count)[..]);
    let max = 400 / one.len();
    assert_eq!(max, 2);
    let client = AppendOptions::default();
    append(&mut log, b"before").expect("appended");
    for bytes in [many(max + 1), batch(NOW, &[&[b'x'; 400]])] {
        let refused = log.append(NOW, bytes.clone(), client).expect_err("too large");
        assert!(matches!(refused, AppendError::ListTooLarge { max: 400, .. }), "{refused}");
        assert!(refused.to_string().contains(&format!("{} bytes", bytes.len())), "{refused}");
        assert!(refused.to_string().contains("`segment.bytes`") && !refused.is_retriable(), "{refused}");
        assert_eq!(log.end_offset(), 1);
    }
    log.append(NOW, many(max), client).expect("a segment has room for two");
    // A coordinator has no smaller batches to send.
    let coordinator = AppendOptions { origin: Origin::Coordinator, ..client };
    log.append(NOW, many(max + 1), coordinator).expect("appended");
    assert_eq!((log.end_offset(), values(&mut log).len()), (6, 6));
}

/// The producer gets the offset of the batch, also if the setting was lowered after the first append.
#[test]
fn a_duplicate_is_no_append_that_needs_room() {
    let (mut log, _) = open(&MemStorage::new(), &LogConfig::default());
    let sent = || produced(7, 0, 0, 50);
    log.append(NOW, sent(), AppendOptions::default()).expect("appended");
    log.update_config(LogConfig { segment_bytes: 200, ..LogConfig::default() });
    let again = log.append(NOW, sent(), AppendOptions::default()).expect("in the log");
    assert!(again.duplicate && again.base_offset == 0);
}

#[test]
fn segments_roll_by_size_by_time_and_when_an_index_is_full() {
    let starts = |disk: &MemStorage| -> Vec<String> { common::log_files(disk) };
    let (disk, config) = (MemStorage::new(), LogConfig { segment_bytes: 200, ..LogConfig::default() });
    let (mut log, _) = open(&disk, &config);
    for n in 0..6 {
        append(&mut log, &numbered(n)).expect("appended");
    }
    assert_eq!(starts(&disk).len(), 3, "two of 76 bytes fit into 200");

    let (disk, config) = (MemStorage::new(), LogConfig { segment_ms: 100, ..LogConfig::default() });
    let (mut log, _) = open(&disk, &config);
    for (n, time) in [0, 50, 100, 101, 150, 202].into_iter().enumerate() {
        log.append(NOW, batch(NOW + time, &[b"x"]), AppendOptions::default()).expect("appended");
        assert_eq!(log.end_offset(), n as i64 + 1);
    }
    assert_eq!(starts(&disk).len(), 3, "{:?}", starts(&disk));

    let config = LogConfig { segment_index_bytes: 48, index_interval_bytes: 1, ..LogConfig::default() };
    let disk = MemStorage::new();
    let (mut log, _) = open(&disk, &config);
    for n in 0..20 {
        log.append(NOW, batch(NOW + n, &[b"x"]), AppendOptions::default()).expect("appended");
    }
    assert!(starts(&disk).len() > 4);
    for path in disk.paths().iter().filter(|path| path.ends_with("index")) {
        assert!(disk.contents(path).expect("there").len() <= 48, "{path}");
    }
    assert_eq!(values(&mut log).len(), 20);
    // No segment is created without need.
    log.roll(NOW).expect("rolled");
    let count = log.segment_count();
    log.roll(NOW).expect("nothing to do");
    assert_eq!(log.segment_count(), count);
}

#[test]
fn retention_lets_whole_segments_go() {
    let disk = MemStorage::new();
    let config = LogConfig { retention_bytes: Some(2000), retention_ms: None, ..small() };
    let (mut log, _) = open(&disk, &config);
    for n in 0..100 {
        append(&mut log, &numbered(n)).expect("appended");
    }
    let before = log.size_bytes();
    let gone = log.enforce_retention(NOW).expect("enforced");
    assert!(gone.segments > 3 && log.size_bytes() >= 2000 && log.size_bytes() < 3000);
    assert_eq!((gone.bytes, gone.start_offset), (before - log.size_bytes(), log.start_offset()));
    drop(gone);
    assert_eq!(common::log_files(&disk).len(), log.segment_count(), "the files are gone");
    let start = log.start_offset();
    assert_eq!(records(&mut log)[0].0, start);

    log.update_config(LogConfig { retention_ms: Some(1000), retention_bytes: None, ..small() });
    assert_eq!(log.enforce_retention(NOW + 1000).expect("enforced").segments, 0);
    let gone = log.enforce_retention(NOW + 1001).expect("enforced");
    assert_eq!((gone.start_offset, log.size_bytes(), log.end_offset()), (100, 0, 100), "all are too old");
    drop(gone);
    drop(log);
    let (mut log, _) = open(&disk, &config);
    assert_eq!((log.start_offset(), log.end_offset()), (100, 100));
    assert_eq!(append(&mut log, b"on").expect("appended").base_offset, 100);
}

/// The log began above the high watermark, and consumers at its end were out of range.
#[test]
fn retention_keeps_records_above_the_high_watermark() {
    let visible = Visible::Synced;
    for (retention_bytes, retention_ms) in [(Some(0), None), (None, Some(1000))] {
        let config = LogConfig { retention_bytes, retention_ms, visible, ..small() };
        let (mut log, _) = open(&MemStorage::new(), &config);
        for n in 0..100 {
            append(&mut log, &numbered(n)).expect("appended");
            if n == 49 {
                sync(&mut log);
            }
        }
        let gone = log.enforce_retention(NOW + 2000).expect("enforced");
        assert!(gone.segments > 0 && gone.start_offset <= 50, "{gone:?}");
        drop(gone);
        sync(&mut log);
        let count = log.segment_count();
        assert_eq!(log.enforce_retention(NOW + 2000).expect("enforced").segments, count);
    }
}

/// The new segment was created first: on a full disk, retention deleted nothing.
#[test]
fn retention_deletes_closed_segments_also_if_no_segment_can_be_created() {
    use ottla_log::storage::mem::{Fault, OpKind};
    let disk = MemStorage::new();
    let (mut log, _) = open(&disk, &LogConfig { retention_ms: Some(1000), ..small() });
    for n in 0..100 {
        append(&mut log, &numbered(n)).expect("appended");
    }
    let count = log.segment_count();
    disk.inject(|op| {
        let is_segment = op.path.rsplit('.').next() == Some("log");
        (op.kind == OpKind::Create && is_segment).then_some(Fault::NoSpace)
    });
    assert_eq!(log.enforce_retention(NOW + 2000).expect("enforced").segments, count - 1);
    assert_eq!((log.segment_count(), log.end_offset()), (1, 100));
    disk.heal();
    assert_eq!(log.enforce_retention(NOW + 2000).expect("enforced").segments, 1);
}

/// A pass read the active segment again after each append, and other topics waited for its end.
#[test]
fn retention_ends_although_old_records_are_appended_meanwhile() {
    let disk = MemStorage::new();
    let config = LogConfig { retention_ms: Some(1000), ..LogConfig::default() };
    let (mut log, _) = open(&disk, &config);
    append(&mut log, b"old").expect("appended");
    let mut reads = 0;
    let pending = loop {
        match log.plan_retention(NOW + 2000).expect("planned") {
            RetentionStep::ReadTimestamps(read) => {
                reads += 1;
                assert!(reads <= 2, "the segment is read again");
                let newest = read.run();
                append(&mut log, b"old, too").expect("appended");
                log.note_newest(newest).expect("noted");
            }
            RetentionStep::StoreStart(pending) => break pending,
            RetentionStep::Done => panic!("all records are old"),
        }
    };
    let gone = log.finish_deletion(pending.run()).expect("finished");
    assert_eq!((gone.segments, gone.start_offset), (1, log.end_offset()));
}

#[test]
fn retention_keeps_young_records_that_are_appended_while_it_reads() {
    let disk = MemStorage::new();
    let config = LogConfig { retention_ms: Some(1000), ..LogConfig::default() };
    let (mut log, _) = open(&disk, &config);
    append(&mut log, b"old").expect("appended");
    let RetentionStep::ReadTimestamps(read) = log.plan_retention(NOW + 2000).expect("planned") else {
        panic!("the batches decide");
    };
    let newest = read.run();
    let young = batch(NOW + 2000, &[b"young"]);
    log.append(NOW + 2000, young, AppendOptions::default()).expect("appended");
    log.note_newest(newest).expect("noted");
    assert!(matches!(log.plan_retention(NOW + 2000), Ok(RetentionStep::Done)));
    assert_eq!(values(&mut log), [&b"old"[..], b"young"]);
}

#[test]
fn deleted_records_stay_deleted() {
    let disk = MemStorage::forgetful();
    let (mut log, _) = open(&disk, &small());
    for n in 0..30 {
        append(&mut log, &numbered(n)).expect("appended");
    }
    sync(&mut log);
    assert_eq!(log.delete_records_before(17).expect("deleted").start_offset, 17);
    assert!(matches!(log.delete_records_before(31), Err(LogError::OutOfRange { offset: 31, end: 30, .. })));
    assert_eq!(log.delete_records_before(5).expect("nothing to do").start_offset, 17);
    disk.crash(&mut fastrand::Rng::with_seed(3));
    let (mut log, _) = open(&disk, &small());
    assert_eq!((log.start_offset(), log.end_offset()), (17, 30));
    assert_eq!(records(&mut log)[0], (17, numbered(17)));
    drop(log.delete_records_before(30).expect("all of them"));
    assert_eq!(values(&mut log).len(), 0);
}

#[test]
fn a_truncated_log_goes_on_where_it_was_cut() {
    for (at, expected) in [(0, 0), (1, 0), (20, 20), (21, 20), (59, 58), (60, 60)] {
        let disk = MemStorage::forgetful();
        let (mut log, _) = open(&disk, &small());
        for n in 0..30 {
            let options = AppendOptions { leader_epoch: n / 10, ..AppendOptions::default() };
            log.append(NOW, batch(NOW + i64::from(n), &[b"a", b"b"]), options).expect("appended");
        }
        log.append(NOW, produced(5, 0, 0, 1), AppendOptions::default()).expect("appended");
        sync(&mut log);
        log.truncate_to(at, NOW).expect("cut");
        assert_eq!(
            (log.end_offset(), log.tail().end(), log.tail().visible()),
            (expected, expected, expected)
        );
        assert_eq!(log.synced_offset(), expected);
        assert_eq!(values(&mut log).len() as i64, expected);
        let newest = log.max_timestamp().expect("read").map(|found| found.timestamp);
        assert_eq!(newest, (expected > 0).then_some(NOW + expected / 2 - 1));
        assert!(log.producers().is_empty(), "its batch is gone");
        append(&mut log, b"on").expect("appended");
        sync(&mut log);
        disk.crash(&mut fastrand::Rng::with_seed(at as u64));
        let (mut log, _) = open(&disk, &small());
        assert_eq!(log.end_offset(), expected + 1);
        assert_eq!(values(&mut log).pop().expect("one"), b"on");
        assert_eq!(log.latest_epoch(), Some(((expected - 1) / 20).max(0) as i32));
    }
}

#[test]
fn what_is_visible_is_what_was_configured() {
    let config = |visible| LogConfig { visible, ..LogConfig::default() };
    let (mut log, _) = open(&MemStorage::new(), &config(Visible::Synced));
    append(&mut log, b"x").expect("appended");
    assert_eq!((log.tail().end(), log.tail().visible()), (1, 0));
    let pending = log.pending_sync().expect("something to sync");
    append(&mut log, b"y").expect("appended while it runs");
    assert_eq!(log.sync_done(pending.run()).expect("synced"), 1);
    assert_eq!((log.tail().visible(), log.synced_offset()), (1, 1));
    sync(&mut log);
    assert!(log.pending_sync().is_none());
    assert_eq!(log.tail().visible(), 2);

    let (mut log, _) = open(&MemStorage::new(), &config(Visible::Manual));
    append(&mut log, b"x").expect("appended");
    sync(&mut log);
    assert_eq!(log.tail().visible(), 0);
    log.update_config(config(Visible::End));
    assert_eq!(log.tail().visible(), 1);
}

#[test]
fn leader_epochs_are_remembered() {
    let disk = MemStorage::new();
    let (mut log, _) = open(&disk, &small());
    for epoch in [2, 2, 4, 4, 4] {
        let options = AppendOptions { leader_epoch: epoch, ..AppendOptions::default() };
        log.append(NOW, batch(NOW, &[b"x"]), options).expect("appended");
    }
    let check = |log: &ottla_log::Log| {
        assert_eq!(log.latest_epoch(), Some(4));
        assert_eq!(
            [1, 2, 3, 4, 5].map(|e| log.epoch_end(e)),
            [Some((1, 0)), Some((2, 2)), Some((2, 2)), Some((4, 5)), None]
        );
    };
    check(&log);
    drop(log);
    check(&open(&disk, &small()).0);
    disk.set_contents("orders-0/leader-epoch-checkpoint", b"0\n1\n9");
    check(&open(&disk, &small()).0);
    open(&disk, &small()).0.close().expect("closed");
    disk.set_contents("orders-0/leader-epoch-checkpoint", b"");
    check(&open(&disk, &small()).0);
}

/// A leader after a power cut began with the epoch of the lost records: a consumer that had read them skipped those that took their place.
#[test]
fn the_epoch_of_lost_records_is_not_used_again() {
    let disk = MemStorage::new();
    let (mut log, _) = open(&disk, &LogConfig::default());
    for epoch in [1, 1, 2] {
        let options = AppendOptions { leader_epoch: epoch, ..AppendOptions::default() };
        log.append(NOW, batch(NOW, &[b"x"]), options).expect("appended");
    }
    drop(log);
    // The power cut leaves the file of the epochs, and not the record of the last one.
    let path = "orders-0/00000000000000000000.log";
    let bytes = disk.contents(path).expect("there");
    disk.set_contents(path, &bytes[..bytes.len() / 3 * 2]);
    for context in ["after the power cut", "and after another start"] {
        let (log, _) = open(&disk, &LogConfig::default());
        assert_eq!((log.end_offset(), log.latest_epoch()), (2, Some(2)), "{context}");
        assert_eq!(log.epoch_end(2), Some((2, 2)), "{context}");
    }
    let (mut log, _) = open(&disk, &LogConfig::default());
    let options = AppendOptions { leader_epoch: 3, ..AppendOptions::default() };
    log.append(NOW, batch(NOW, &[b"y"]), options).expect("appended");
    assert_eq!((log.epoch_end(2), log.epoch_end(3)), (Some((1, 2)), Some((3, 3))));
    log.close().expect("closed");
    assert_eq!(open(&disk, &LogConfig::default()).0.latest_epoch(), Some(3));
}

#[test]
fn a_deleted_log_leaves_nothing() {
    let disk = MemStorage::new();
    let (mut log, _) = open(&disk, &small());
    append(&mut log, b"x").expect("appended");
    let tail = log.tail().clone();
    log.delete().expect("deleted");
    assert!(disk.paths().is_empty() && tail.is_closed());
    ottla_log::Log::remove(&disk, DIR).expect("nothing to do");
    assert_eq!(open(&disk, &small()).0.end_offset(), 0);
}

#[test]
fn a_time_index_that_could_not_be_finished_is_not_believed() {
    use ottla_log::storage::mem::{Fault, OpKind};
    for reopened in [false, true] {
        let disk = MemStorage::new();
        let config = LogConfig { index_interval_bytes: 100, segment_bytes: 1 << 20, ..LogConfig::default() };
        let (mut log, _) = open(&disk, &config);
        for n in 0..9 {
            log.append(NOW, batch(NOW + n, &[b"x"]), AppendOptions::default()).expect("appended");
        }
        log.append(NOW, batch(NOW + 50, &[b"the newest"]), AppendOptions::default()).expect("appended");
        disk.inject(|op| (op.kind == OpKind::Write && op.path.contains("timeindex")).then_some(Fault::Io));
        log.roll(NOW).expect("rolled all the same");
        disk.heal();
        append(&mut log, b"x").expect("appended");
        if reopened {
            log.close().expect("closed");
            (log, _) = open(&disk, &config);
        }
        let found = log.offset_for_timestamp(NOW + 20).expect("read").expect("one");
        assert_eq!((found.offset, found.timestamp), (9, NOW + 50));
        assert_eq!(log.max_timestamp().expect("read"), Some(found));
    }
}

/// A read or a lookup that opened the active segment first left its first timestamp unread: `segment.ms` and `max.compaction.lag.ms`
/// counted from the first append after the start.
#[test]
fn the_age_of_the_active_segment_counts_from_before_a_clean_restart() {
    let config = LogConfig {
        segment_ms: 1000,
        max_compaction_lag_ms: 2000,
        tail_cache_bytes: 0,
        ..LogConfig::default()
    };
    let disk = MemStorage::new();
    let (mut log, _) = open(&disk, &config);
    append(&mut log, b"first").expect("appended");
    log.close().expect("closed");
    let (mut log, report) = open(&disk, &config);
    assert!(report.clean);
    log.read(0, 1000, i64::MAX, true).expect("read");
    for after in [500, 1200] {
        let bytes = batch(NOW + after, &[b"later"]);
        log.append(NOW + after, bytes, AppendOptions::default()).expect("appended");
    }
    assert_eq!((log.segment_count(), log.end_offset()), (2, 3));
    log.close().expect("closed");
    let (mut log, _) = open(&disk, &config);
    log.cleanable(0, i64::MAX, NOW + 1200 + 2001).expect("looked");
    assert_eq!(log.segment_count(), 3, "the records of the active segment are overdue");
}

/// After a jump of an hour, nothing was flushed for an hour.
#[test]
fn a_wall_clock_that_went_back_does_not_stop_the_flushes() {
    let config = LogConfig { flush_ms: 1000, ..LogConfig::default() };
    let (mut log, _) = open(&MemStorage::new(), &config);
    append(&mut log, b"x").expect("appended");
    assert!(!log.is_flush_overdue(NOW + 999) && log.is_flush_overdue(NOW + 1000));
    assert!(log.is_flush_overdue(NOW - 3_600_000));
    sync(&mut log);
    assert!(!log.is_flush_overdue(NOW - 3_600_000), "everything is durable");
    let (mut log, _) = open(&MemStorage::new(), &LogConfig::default());
    append(&mut log, b"x").expect("appended");
    assert!(!log.is_flush_overdue(NOW - 3_600_000), "no flush.ms is set");
}

/// A fetch of the last records did not wait for `fetch.min.bytes` while the active segment had none.
#[test]
fn a_segment_without_records_is_not_left_out() {
    let config = LogConfig { tail_cache_bytes: 0, ..LogConfig::default() };
    let (mut log, _) = open(&MemStorage::new(), &config);
    append(&mut log, b"first").expect("appended");
    log.roll(NOW).expect("rolled");
    let read = log.read(0, 1000, 1, true).expect("read");
    assert_eq!(log.left_out(0, &read, 1, true), LeftOut::Nothing);
    append(&mut log, b"second").expect("appended");
    assert_eq!(log.left_out(0, &read, 1, true), LeftOut::Nothing, "it is above the limit");
    let read = log.read(0, 1000, 2, true).expect("read");
    assert_eq!(log.left_out(0, &read, 2, true), LeftOut::LaterSegments);
}
