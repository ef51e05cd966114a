//! The rules of compaction, each with its story. Vectors: Kafka's `LogCleanerTest` and the bugs that its tracker names.

use ottla_log::storage::mem::MemStorage;
use ottla_log::{AbortedTransaction, CompactionError, CompactionOptions, Log, LogConfig};
use ottla_wire::{Compression, Seal};

use crate::common;
use crate::common::{DIR, NOW, open, sync};
use crate::keyed;
use crate::keyed::{
    Keyed, append, appended, batches, commit_marker, compact, compact_at, contents, marker, offsets, options,
    record, tombstone, transactional,
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
fn the_newest_record_of_each_key_stays_at_its_offset() {
    let (disk, mut log) = new_log();
    for n in 0..30 {
        append(&mut log, &[record(n % 3, &format!("v{n}"))]);
        if n % 10 == 9 {
            roll(&mut log);
        }
    }
    let report = compact(&mut log, 0);
    assert_eq!((report.first_dirty, report.keys, report.records_kept), (30, 3, 3));
    let expected = vec![record(0, "v27").at(27), record(1, "v28").at(28), record(2, "v29").at(29)];
    assert_eq!(contents(&mut log), expected);
    assert_eq!((log.start_offset(), log.end_offset()), (0, 30));
    drop(log);
    let (mut log, report) = open(&disk, &config());
    assert!(report.quarantined.is_empty());
    assert_eq!(contents(&mut log), expected);
}

#[test]
fn the_active_segment_is_left_alone() {
    let (_, mut log) = new_log();
    append(&mut log, &[record(1, "old")]);
    roll(&mut log);
    append(&mut log, &[record(1, "new")]);
    let report = compact(&mut log, 0);
    assert_eq!((report.first_dirty, log.segment_count()), (1, 2));
    assert_eq!(offsets(&mut log), [0, 1], "the newer record is not in the map yet");
}

#[test]
fn a_segment_beyond_the_stable_offset_is_left_alone() {
    let (_, mut log) = new_log();
    for n in 0..4 {
        append(&mut log, &[record(1, &format!("v{n}")), record(1, "again")]);
        roll(&mut log);
    }
    let stable = CompactionOptions { stable_end: 5, ..options(0, NOW) };
    assert_eq!(log.compact(stable).expect("compacted").first_dirty, 4, "two whole segments are stable");
    assert_eq!(offsets(&mut log), [3, 4, 5, 6, 7]);
}

#[test]
fn batches_keep_their_offsets_producer_sequence_epoch_and_codec() {
    for compression in Compression::ALL {
        let (_, mut log) = new_log();
        let seal =
            Seal { producer_id: 7, producer_epoch: 3, base_sequence: 0, compression, ..Seal::default() };
        let records: Vec<Keyed> = (0..100).map(|n| record(n, &"value ".repeat(20))).collect();
        appended(&mut log, keyed::batch(&records, NOW, &seal), 4);
        append(&mut log, &records[..99]);
        roll(&mut log);
        let before = batches(&mut log)[0];
        compact(&mut log, 0);
        let after = batches(&mut log)[0];
        assert_eq!(after.record_count, 1, "{compression:?}");
        let same = |header: ottla_wire::BatchHeader| {
            (
                (header.base_offset, header.last_offset(), header.partition_leader_epoch),
                (header.producer_id, header.producer_epoch, header.base_sequence),
                (header.attributes, header.max_timestamp),
            )
        };
        assert_eq!(same(before), same(after), "{compression:?}");
        assert_eq!(contents(&mut log)[0], record(99, &"value ".repeat(20)).at(99));
    }
}

#[test]
fn a_batch_that_keeps_all_its_records_keeps_its_bytes() {
    let (disk, mut log) = new_log();
    let seal = Seal { compression: Compression::Zstd, ..Seal::default() };
    let records: Vec<Keyed> = (0..50).map(|n| record(n, "the same text again and again")).collect();
    appended(&mut log, keyed::batch(&records, NOW, &seal), 0);
    roll(&mut log);
    let file = &common::log_files(&disk)[0];
    let before = disk.contents(file).expect("there");
    let report = compact(&mut log, 0);
    assert_eq!(report.segments_replaced, 0, "nothing is written where nothing changes");
    assert_eq!(disk.contents(file).expect("there"), before);
}

#[test]
fn the_largest_timestamp_of_a_batch_is_that_of_the_records_that_stay() {
    let (_, mut log) = new_log();
    let early = record(1, "early").timed(NOW - 500);
    append(&mut log, &[early.clone(), record(2, "late").timed(NOW + 900)]);
    append(&mut log, &[record(2, "newer").timed(NOW)]);
    roll(&mut log);
    compact(&mut log, 0);
    assert_eq!(batches(&mut log)[0].max_timestamp, NOW - 500);
    assert_eq!(contents(&mut log)[0], early.at(0));
    let found = log.offset_for_timestamp(NOW - 100).expect("read").expect("found");
    assert_eq!((found.offset, found.timestamp), (2, NOW));
    assert_eq!(log.max_timestamp().expect("read").expect("found").offset, 2);
}

#[test]
fn a_tombstone_stays_until_its_horizon_in_a_later_pass() {
    let (_, mut log) = new_log();
    append(&mut log, &[record(1, "value"), record(2, "other")]);
    append(&mut log, &[tombstone(1)]);
    roll(&mut log);
    compact(&mut log, 0);
    assert_eq!(contents(&mut log), [record(2, "other").at(1), tombstone(1).at(2)]);
    let header = batches(&mut log)[1];
    assert!(header.has_delete_horizon());
    assert_eq!((header.base_timestamp, header.max_timestamp), (NOW + DAY, NOW), "KIP-534");

    // Another dirty segment, so that there is something to do.
    append(&mut log, &[record(3, "x")]);
    roll(&mut log);
    compact_at(&mut log, 0, NOW + DAY - 1);
    assert_eq!(offsets(&mut log), [1, 2, 3], "a millisecond early");
    assert_eq!(batches(&mut log)[1].base_timestamp, NOW + DAY, "the horizon is set once");
    compact_at(&mut log, 0, NOW + DAY);
    assert_eq!(offsets(&mut log), [1, 3]);
}

/// KAFKA-8522: a horizon for each segment moved with each pass, and tombstones never went.
#[test]
fn the_horizon_of_a_batch_does_not_move_when_its_segment_is_cleaned_again() {
    let (_, mut log) = new_log();
    append(&mut log, &[tombstone(1)]);
    roll(&mut log);
    for day in 0..3 {
        append(&mut log, &[record(50 + day, "x")]);
        roll(&mut log);
        compact_at(&mut log, 0, NOW + i64::from(day) * DAY / 4);
        assert_eq!(batches(&mut log)[0].base_timestamp, NOW + DAY, "pass {day}");
    }
}

#[test]
fn a_horizon_keeps_the_timestamps_of_the_records_with_every_codec() {
    for compression in Compression::ALL {
        let (_, mut log) = new_log();
        let records: Vec<Keyed> = (0..40)
            .map(|n| {
                let keyed = if n % 4 == 0 { tombstone(n) } else { record(n, &"text ".repeat(9)) };
                keyed.timed(if n == 17 { -1 } else { NOW + i64::from(n) * 1000 })
            })
            .collect();
        appended(&mut log, keyed::batch(&records, NOW, &Seal { compression, ..Seal::default() }), 0);
        roll(&mut log);
        compact(&mut log, 0);
        assert!(batches(&mut log)[0].has_delete_horizon());
        let expected: Vec<Keyed> = records.into_iter().zip(0..).map(|(keyed, n)| keyed.at(n)).collect();
        assert_eq!(contents(&mut log), expected, "{compression:?}");
    }
}

#[test]
fn a_tombstone_without_retention_stays_for_one_pass() {
    let (disk, _) = new_log();
    let (mut log, _) = open(&disk, &LogConfig { delete_retention_ms: 0, ..config() });
    append(&mut log, &[tombstone(1)]);
    roll(&mut log);
    compact(&mut log, 0);
    assert_eq!(offsets(&mut log), [0]);
    compact(&mut log, 0);
    assert!(offsets(&mut log).is_empty());
}

#[test]
fn a_client_cannot_append_a_record_without_a_key() {
    for compression in Compression::ALL {
        let (_, mut log) = new_log();
        let without = || Keyed { key: None, ..record(1, &"b".repeat(200)) };
        let records = [record(1, "a"), without(), record(2, "c"), without()];
        let bytes = keyed::batch(&records, NOW, &Seal { compression, ..Seal::default() });
        let refused =
            log.append(NOW, bytes.clone(), ottla_log::AppendOptions::default()).expect_err("no key");
        assert!(
            matches!(refused, ottla_log::AppendError::MissingKey { ref records, .. } if *records == [1, 3]),
            "{refused}"
        );
        let (options, dir) = (ottla_log::AppendOptions::default(), log.dir().to_owned());
        let mut check = ottla_log::BatchesCheck::new(dir, log.config().clone(), NOW, bytes.clone(), options);
        let mut result = check.step(1 << 20);
        while matches!(result, Ok(true)) {
            result = check.step(1 << 20);
        }
        assert!(
            matches!(result, Err(ottla_log::AppendError::MissingKey { ref records, .. }) if *records == [1, 3]),
            "{result:?}"
        );
        log.update_config(LogConfig { compact: false, ..config() });
        log.append(NOW, bytes, ottla_log::AppendOptions::default()).expect("not compacted");
    }
}

#[test]
fn a_record_without_a_key_is_removed() {
    let (_, mut log) = new_log();
    log.update_config(LogConfig { compact: false, ..config() });
    appended(&mut log, common::batch(NOW, &[b"from before the policy was changed"]), 0);
    append(&mut log, &[record(1, "x")]);
    roll(&mut log);
    let report = compact(&mut log, 0);
    assert_eq!((offsets(&mut log), report.records_without_key), (vec![1], 1));
}

#[test]
fn the_last_batch_of_an_active_producer_stays_without_records() {
    let (disk, mut log) = new_log();
    let seal =
        |sequence| Seal { producer_id: 9, producer_epoch: 2, base_sequence: sequence, ..Seal::default() };
    appended(&mut log, keyed::batch(&[record(1, "a"), record(1, "b")], NOW, &seal(0)), 0);
    appended(&mut log, keyed::batch(&[record(1, "c"), record(1, "d")], NOW, &seal(2)), 0);
    append(&mut log, &[record(1, "e")]);
    roll(&mut log);
    compact(&mut log, 0);
    let left = batches(&mut log);
    assert_eq!((left[1].base_offset, left[1].last_offset(), left[1].record_count), (2, 3, 0));
    assert_eq!((left[1].base_sequence, left[1].producer_epoch, left[1].max_timestamp), (2, 2, NOW));
    assert_eq!((left[0].producer_id, left[0].record_count), (-1, 0), "an earlier one goes");
    // Without snapshots the producers come from the batches.
    drop(log);
    for path in disk.paths().iter().filter(|path| path.ends_with(".snapshot")) {
        ottla_log::storage::Storage::remove(&disk, path).expect("removed");
    }
    let (mut log, _) = open(&disk, &config());
    let known = log.producers();
    assert_eq!((known[0].producer_id, known[0].epoch, known[0].last_sequence), (9, 2, 3));
    // When the producer has expired, its batch goes.
    for hours in (0..44).step_by(11) {
        log.expire_producers(NOW + hours * 3_600_000);
    }
    assert!(log.producers().is_empty());
    append(&mut log, &[record(2, "x")]);
    roll(&mut log);
    compact(&mut log, 0);
    assert!(batches(&mut log).iter().all(|header| header.producer_id == -1));
}

#[test]
fn the_last_batch_of_a_producer_stays_in_a_segment_without_other_records_that_stay() {
    let (_, mut log) = new_log();
    for sequence in [0, 2] {
        let seal = Seal { producer_id: 9, producer_epoch: 2, base_sequence: sequence, ..Seal::default() };
        appended(&mut log, keyed::batch(&[record(1, "a"), record(1, "b")], NOW, &seal), 0);
    }
    roll(&mut log);
    append(&mut log, &[record(1, "c")]);
    roll(&mut log);
    compact(&mut log, 0);
    let left: Vec<_> = batches(&mut log)
        .iter()
        .map(|header| (header.base_offset, header.producer_id, header.record_count))
        .collect();
    assert_eq!(left, [(0, -1, 0), (2, 9, 0), (4, -1, 1)]);
}

/// The first pass ends within a batch. It knows nothing of the later records of this batch.
#[test]
fn records_behind_the_end_of_a_full_map_stay() {
    let (_, mut log) = new_log();
    for n in 0..30 {
        let records: Vec<Keyed> = (0..7).map(|at| record(n * 7 + at, "x")).collect();
        append(&mut log, &records);
    }
    roll(&mut log);
    // Bits for all offsets, and a map for about a hundred keys.
    let small = CompactionOptions { map_bytes_max: 3000, ..options(0, NOW) };
    let report = log.compact(small).expect("compacted");
    assert!(report.keys < 128 && report.first_dirty % 7 != 0, "{report:?}");
    assert_eq!(offsets(&mut log), (0..210).collect::<Vec<_>>());
}

#[test]
fn the_first_and_the_last_offset_of_a_log_survive_the_removal_of_everything() {
    let (disk, mut log) = new_log();
    for _ in 0..3 {
        append(&mut log, &[record(1, "x")]);
        roll(&mut log);
    }
    append(&mut log, &[tombstone(1)]);
    roll(&mut log);
    compact(&mut log, 0);
    compact_at(&mut log, 0, NOW + DAY);
    assert!(contents(&mut log).is_empty());
    sync(&mut log);
    drop(log);
    let (mut log, _) = open(&disk, &config());
    assert_eq!((log.start_offset(), log.end_offset(), batches(&mut log).len()), (0, 4, 1));
    assert_eq!(append(&mut log, &[record(2, "y")]), 4);
    assert_eq!(offsets(&mut log), [4]);
}

#[test]
fn a_removed_run_of_batches_is_one_empty_batch_for_each_leader_epoch() {
    let (disk, mut log) = new_log();
    for epoch in [0, 0, 3, 3, 3, 7] {
        appended(&mut log, keyed::batch(&[record(1, "x")], NOW, &Seal::default()), epoch);
    }
    roll(&mut log);
    compact(&mut log, 0);
    let left: Vec<_> = batches(&mut log)
        .iter()
        .map(|header| (header.base_offset, header.next_offset(), header.partition_leader_epoch))
        .collect();
    assert_eq!(left, [(0, 2, 0), (2, 5, 3), (5, 6, 7)]);
    sync(&mut log);
    drop(log);
    disk.set_contents(&format!("{DIR}/leader-epoch-checkpoint"), b"damaged");
    let (log, _) = open(&disk, &config());
    assert_eq!((log.epoch_end(0), log.epoch_end(3)), (Some((0, 2)), Some((3, 5))), "OffsetForLeaderEpoch");
}

#[test]
fn reads_inside_a_removed_range_return_the_next_batch() {
    let (_, mut log) = new_log();
    for n in 0..20 {
        append(&mut log, &[record(if n == 12 { 12 } else { 1 }, "v")]);
    }
    roll(&mut log);
    compact(&mut log, 0);
    for from in 0..20 {
        let read = log.read(from, 1 << 20, i64::MAX, true).expect("read");
        let bytes = read.chain.to_bytes().expect("bytes");
        let found: Vec<i64> = keyed::records_of(&bytes).iter().map(|keyed| keyed.offset).collect();
        let expected: Vec<i64> = [12, 19].into_iter().filter(|offset| *offset >= from).collect();
        assert_eq!(
            found.into_iter().filter(|offset| *offset >= from).collect::<Vec<_>>(),
            expected,
            "{from}"
        );
    }
}

#[test]
fn a_full_map_cleans_a_part_and_the_next_pass_the_rest() {
    let (_, mut log) = new_log();
    for n in 0..1000 {
        append(&mut log, &[record(n % 400, &format!("v{n}"))]);
        if n % 100 == 99 {
            roll(&mut log);
        }
    }
    let mut points = vec![0];
    while *points.last().expect("one") < 1000 {
        let small = CompactionOptions { map_bytes_max: 0, ..options(*points.last().expect("one"), NOW) };
        let report = log.compact(small).expect("compacted");
        assert!(report.keys < 128, "{report:?}");
        points.push(report.first_dirty);
    }
    assert!(points.len() > 3, "{points:?}");
    let expected: Vec<Keyed> =
        (600..1000).map(|n| record(n % 400, &format!("v{n}")).at(i64::from(n))).collect();
    assert_eq!(contents(&mut log), expected);
}

#[test]
fn young_segments_wait_for_the_minimum_lag_and_old_ones_do_not_wait_for_the_ratio() {
    let (disk, _) = new_log();
    let lag = LogConfig { min_compaction_lag_ms: 1000, max_compaction_lag_ms: 5000, ..config() };
    let (mut log, _) = open(&disk, &lag);
    for n in 0..3 {
        append(&mut log, &[record(1, "x").timed(NOW + n * 1000)]);
        roll(&mut log);
    }
    append(&mut log, &[record(2, "active").timed(NOW + 3000)]);
    let at = |log: &mut Log, now| log.cleanable(0, i64::MAX, now).expect("looked");
    assert_eq!(at(&mut log, NOW + 999).end, 0);
    assert_eq!(at(&mut log, NOW + 1000).end, 1);
    assert_eq!(at(&mut log, NOW + 2500).end, 2);
    assert!(!at(&mut log, NOW + 5000).is_overdue && at(&mut log, NOW + 5001).is_overdue);
    assert_eq!(log.segment_count(), 4);
    assert_eq!(at(&mut log, NOW + 8001).end, 4, "the active segment is closed when it is overdue");
}

#[test]
fn a_cleaner_point_outside_of_the_log_counts_as_its_start() {
    let (_, mut log) = new_log();
    for _ in 0..3 {
        append(&mut log, &[record(1, "x")]);
        roll(&mut log);
    }
    drop(log.delete_records_before(1).expect("deleted"));
    for point in [0, 99, -1] {
        assert_eq!(log.cleanable(point, i64::MAX, NOW).expect("looked").first_dirty, 1, "{point}");
    }
    let partly = log.cleanable(2, i64::MAX, NOW).expect("looked");
    assert!((partly.dirty_ratio() - 0.5).abs() < 1e-9, "{partly:?}");
}

#[test]
fn aborted_data_goes_and_does_not_supersede_committed_data() {
    let (_, mut log) = new_log();
    append(&mut log, &[record(1, "committed")]);
    transactional(&mut log, 5, 0, &[record(1, "aborted"), record(2, "aborted")]);
    marker(&mut log, 5, 0);
    transactional(&mut log, 5, 2, &[record(2, "committed")]);
    commit_marker(&mut log, 5);
    append(&mut log, &[record(3, "x")]);
    roll(&mut log);
    let aborted =
        AbortedTransaction { producer_id: 5, first_offset: 1, last_offset: 3, last_stable_offset: 1 };
    let with = |now| CompactionOptions { aborted: vec![aborted], ..options(0, now) };
    log.compact(with(NOW)).expect("compacted");
    let data = [record(1, "committed").at(0), record(2, "committed").at(4), record(3, "x").at(6)];
    let markers = |log: &mut Log| batches(log).iter().filter(|header| header.is_control()).count();
    assert_eq!(
        (contents(&mut log), markers(&mut log)),
        (data.to_vec(), 2),
        "the marker stays for one more pass"
    );
    // Its data is gone: the abort marker gets its horizon in the second pass, and goes in a later one.
    log.compact(with(NOW)).expect("compacted");
    let horizon =
        |log: &mut Log| batches(log).iter().filter(|h| h.is_control() && h.has_delete_horizon()).count();
    assert_eq!((markers(&mut log), horizon(&mut log)), (2, 1));
    log.compact(with(NOW + DAY)).expect("compacted");
    assert_eq!((contents(&mut log), markers(&mut log)), (data.to_vec(), 1), "the commit marker has data");
}

#[test]
fn the_index_of_aborted_transactions_has_those_with_data() {
    let (_, mut log) = new_log();
    transactional(&mut log, 5, 0, &[record(1, "a")]);
    marker(&mut log, 5, 0);
    // The producer's last batch, so that the one above need not stay.
    transactional(&mut log, 5, 1, &[record(1, "b")]);
    commit_marker(&mut log, 5);
    roll(&mut log);
    let aborted =
        AbortedTransaction { producer_id: 5, first_offset: 0, last_offset: 1, last_stable_offset: 0 };
    let pass = |log: &mut Log| {
        let with = CompactionOptions { aborted: vec![aborted], ..options(0, NOW) };
        let mut compaction = log.begin_compaction(with).expect("begun");
        let group = compaction.clean_next(&|| false).expect("cleaned").expect("something changes");
        let retained = group.aborted().to_vec();
        let pending = log.begin_replacement(group).expect("begun");
        drop(log.finish_replacement(pending.run()).expect("replaced"));
        retained
    };
    assert_eq!(pass(&mut log), [aborted]);
    assert!(pass(&mut log).is_empty(), "its data is gone");
}

#[test]
fn a_commit_marker_goes_when_the_data_of_its_transaction_is_superseded() {
    let (_, mut log) = new_log();
    transactional(&mut log, 5, 0, &[record(1, "a")]);
    commit_marker(&mut log, 5);
    // A later transaction, so that the batches above are not the producer's last.
    transactional(&mut log, 5, 1, &[record(2, "b")]);
    commit_marker(&mut log, 5);
    append(&mut log, &[record(1, "c")]);
    roll(&mut log);
    let markers = |log: &mut Log| -> Vec<i64> {
        batches(log).iter().filter(|header| header.is_control()).map(|header| header.base_offset).collect()
    };
    compact(&mut log, 0);
    assert_eq!(markers(&mut log), [1, 3]);
    compact(&mut log, 0);
    assert!(batches(&mut log)[1].has_delete_horizon());
    compact_at(&mut log, 0, NOW + DAY);
    assert_eq!(markers(&mut log), [3]);
}

/// The marker has the producer's last epoch, which fences older producers.
#[test]
fn the_marker_of_a_producer_without_data_stays_empty() {
    let (_, mut log) = new_log();
    marker(&mut log, 5, 4);
    append(&mut log, &[record(1, "x")]);
    roll(&mut log);
    compact(&mut log, 0);
    compact_at(&mut log, 0, NOW + DAY);
    let left = batches(&mut log)[0];
    assert!(left.is_control() && left.record_count == 0);
    assert_eq!((left.producer_id, left.producer_epoch), (5, 4));
    compact_at(&mut log, 0, NOW + 2 * DAY);
    assert_eq!(batches(&mut log)[0], left);
}

#[test]
fn a_read_under_way_ends_in_the_old_files() {
    let (_, mut log) = new_log();
    let config = LogConfig { tail_cache_bytes: 0, ..config() };
    log.update_config(config);
    for n in 0..50 {
        append(&mut log, &[record(1, &format!("v{n}"))]);
    }
    roll(&mut log);
    let before = log.read(10, 1 << 20, i64::MAX, true).expect("read");
    let plan = log.plan_read(20, 1 << 20, i64::MAX, true).expect("planned");
    compact(&mut log, 0);
    assert_eq!(keyed::records_of(&before.chain.to_bytes().expect("bytes")).len(), 40);
    let ottla_log::ReadPlan::Cold(cold) = plan else { panic!("from a file") };
    let after = cold.run().expect("read");
    assert_eq!(keyed::records_of(&after.chain.to_bytes().expect("bytes")).len(), 30);
    assert_eq!(offsets(&mut log), [49]);
}

/// Positions in the old file say nothing about the new one: sound batches would be quarantined.
#[test]
fn damage_that_a_scrub_finds_in_the_old_file_is_not_noted_for_the_new_one() {
    let (disk, mut log) = new_log();
    for n in 0..50 {
        append(&mut log, &[record(n % 5, "x")]);
    }
    roll(&mut log);
    let task = log.scrub(ottla_log::ScrubCursor::default(), u64::MAX).expect("opened").expect("a part");
    let mut compaction = log.begin_compaction(options(0, NOW)).expect("begun");
    let group = compaction.clean_next(&|| false).expect("cleaned").expect("something changes");
    let file = &common::log_files(&disk)[0];
    let mut bytes = disk.contents(file).expect("there");
    bytes[100] ^= 1;
    disk.set_contents(file, &bytes);
    let scrubbed = task.run().expect("read");
    let pending = log.begin_replacement(group).expect("begun");
    drop(log.finish_replacement(pending.run()).expect("replaced"));
    log.scrubbed(scrubbed).expect("noted");
    assert!(log.quarantined().is_empty());
    assert_eq!(offsets(&mut log), (45..50).collect::<Vec<_>>());
}

/// A compaction joins segments: a scrub continued in the middle of the larger one, with the offset of the old one, and
/// quarantined sound batches. A coordinator could not be loaded then.
#[test]
fn a_scrub_does_not_continue_in_a_segment_that_replaces_its_own() {
    let (_, mut log) = new_log();
    for n in 0..6 {
        append(&mut log, &[record(n, "a longer value"), record(100 + n, "x")]);
        roll(&mut log);
    }
    append(&mut log, &[record(0, "x")]);
    roll(&mut log);
    let task = log.scrub(ottla_log::ScrubCursor::default(), u64::MAX).expect("opened").expect("a part");
    let cursor = log.scrubbed(task.run().expect("read")).expect("noted");
    compact(&mut log, 0);
    let before = offsets(&mut log);
    let mut cursor = cursor;
    while let Some(task) = log.scrub(cursor.clone(), u64::MAX).expect("opened") {
        cursor = log.scrubbed(task.run().expect("read")).expect("noted");
    }
    assert!(log.quarantined().is_empty(), "{:?}", log.quarantined());
    assert_eq!(offsets(&mut log), before);
}

#[test]
fn a_deletion_during_a_pass_ends_it_and_leaves_no_file() {
    let (disk, mut log) = new_log();
    for n in 0..6 {
        append(&mut log, &[record(n % 2, "x")]);
        roll(&mut log);
    }
    let small = LogConfig { segment_bytes: 100, ..config() };
    log.update_config(small);
    for late in [false, true] {
        let mut compaction = log.begin_compaction(options(0, NOW)).expect("begun");
        let group = compaction.clean_next(&|| false).expect("cleaned").expect("something changes");
        let error = if late {
            let pending = log.begin_replacement(group).expect("begun");
            drop(log.delete_records_before(2).expect("deleted"));
            log.finish_replacement(pending.run()).map(drop).expect_err("changed")
        } else {
            drop(log.delete_records_before(1).expect("deleted"));
            log.begin_replacement(group).map(drop).expect_err("changed")
        };
        assert!(matches!(error, CompactionError::Changed { .. }), "{error}");
        let others: Vec<String> = disk
            .paths()
            .into_iter()
            .filter(|path| path.contains("cleaned") || path.contains("swap"))
            .collect();
        assert!(others.is_empty(), "{others:?}");
    }
    compact(&mut log, 0);
    assert_eq!(offsets(&mut log), [4, 5]);
}

#[test]
fn a_truncation_during_a_replacement_takes_it_back() {
    let (disk, mut log) = new_log();
    for n in 0..6 {
        append(&mut log, &[record(n % 2, "x")]);
    }
    roll(&mut log);
    let mut compaction = log.begin_compaction(options(0, NOW)).expect("begun");
    let group = compaction.clean_next(&|| false).expect("cleaned").expect("something changes");
    let pending = log.begin_replacement(group).expect("begun");
    log.truncate_to(3, NOW).expect("truncated");
    let error = log.finish_replacement(pending.run()).map(drop).expect_err("changed");
    assert!(matches!(error, CompactionError::Changed { .. }), "{error}");
    sync(&mut log);
    drop(log);
    let (mut log, _) = open(&disk, &config());
    assert_eq!(offsets(&mut log), [0, 1, 2]);
}

#[test]
fn a_stopped_compaction_leaves_the_log_as_it_was() {
    let (disk, mut log) = new_log();
    for n in 0..6 {
        append(&mut log, &[record(n % 2, "x")]);
    }
    roll(&mut log);
    let before = disk.paths();
    let mut compaction = log.begin_compaction(options(0, NOW)).expect("begun");
    assert!(matches!(compaction.clean_next(&|| true), Err(CompactionError::Stopped)));
    assert_eq!((disk.paths(), offsets(&mut log)), (before, (0..6).collect::<Vec<_>>()));
}

#[test]
fn a_damaged_batch_is_not_compacted_away() {
    let (disk, mut log) = new_log();
    for n in 0..6 {
        append(&mut log, &[record(n % 2, "x")]);
    }
    roll(&mut log);
    sync(&mut log);
    let file = &common::log_files(&disk)[0];
    let mut bytes = disk.contents(file).expect("there");
    let at = bytes.len() / 2;
    bytes[at] ^= 1;
    disk.set_contents(file, &bytes);
    let error = log.compact(options(0, NOW)).expect_err("damaged");
    assert!(
        matches!(error, CompactionError::Damaged { .. }) && error.to_string().contains(".log"),
        "{error}"
    );
    assert_eq!(disk.contents(file).expect("there"), bytes, "the segment stays as it is");
}

/// The clean mark lists the segments: an old one would report the replaced ones as lost.
#[test]
fn a_log_that_was_closed_cleanly_can_be_compacted_and_closed_again() {
    let (disk, mut log) = new_log();
    for n in 0..6 {
        append(&mut log, &[record(n % 2, "x")]);
        roll(&mut log);
    }
    log.close().expect("closed");
    let (mut log, report) = open(&disk, &config());
    assert!(report.clean);
    compact(&mut log, 0);
    disk.crash(&mut fastrand::Rng::with_seed(1));
    drop(log);
    let (mut log, _) = open(&disk, &config());
    assert_eq!(offsets(&mut log), [4, 5]);
    log.close().expect("closed");
    let (mut log, report) = open(&disk, &config());
    assert!(report.clean);
    assert_eq!(offsets(&mut log), [4, 5]);
}
