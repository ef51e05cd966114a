//! Transactions in a log: markers, the last stable offset, the transaction index, and the guard of the first batch.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::BytesMut;
use ottla_log::storage::mem::{Fault, MemStorage, OpKind};
use ottla_log::{
    AbortedTransaction, AppendError, AppendOptions, CommittedRead, EndMarker, FirstBatch, GuardsFull, Log,
    LogConfig, ProducerTotal, TransactionOutcome, Transactional,
};
use ottla_wire::{BatchBuilder, BatchHeader, Batches, Seal};

use crate::common;
use crate::common::{DIR, NOW};

fn open(disk: &MemStorage, config: &LogConfig) -> Log {
    Log::open(Arc::new(disk.clone()), DIR, config.clone(), NOW).expect("opened").0
}

fn fresh() -> Log {
    open(&MemStorage::new(), &LogConfig::default())
}

fn data(producer_id: i64, producer_epoch: i16, base_sequence: i32, transactional: bool) -> BytesMut {
    let mut builder = BatchBuilder::new();
    builder.push(NOW, Some(b"key"), Some(b"value"), &[]);
    let seal = Seal { producer_id, producer_epoch, base_sequence, transactional, ..Seal::default() };
    BytesMut::from(&builder.seal(&seal).expect("sealed").to_bytes()[..])
}

fn options(transactional: Transactional) -> AppendOptions {
    AppendOptions { transactional, ..AppendOptions::default() }
}

/// Appends a transactional batch and returns its offset.
fn send(log: &mut Log, producer_id: i64, epoch: i16, sequence: i32) -> i64 {
    let batch = data(producer_id, epoch, sequence, true);
    log.append(NOW, batch, options(Transactional::Accepted)).expect("appended").base_offset
}

fn plain(log: &mut Log) -> i64 {
    log.append(NOW, common::batch(NOW, &[b"x"]), AppendOptions::default()).expect("appended").base_offset
}

fn ended(producer_id: i64, producer_epoch: i16, outcome: TransactionOutcome) -> EndMarker {
    EndMarker { producer_id, producer_epoch, coordinator_epoch: 3, outcome, transaction_version: 1 }
}

fn commit(log: &mut Log, producer_id: i64, epoch: i16) -> i64 {
    let marker = ended(producer_id, epoch, TransactionOutcome::Commit);
    log.append_marker(marker, 0, NOW).expect("appended").base_offset
}

fn abort(log: &mut Log, producer_id: i64, epoch: i16) -> i64 {
    let marker = ended(producer_id, epoch, TransactionOutcome::Abort);
    log.append_marker(marker, 0, NOW).expect("appended").base_offset
}

fn stable(log: &Log) -> i64 {
    log.last_stable_offset(log.end_offset())
}

fn aborted(log: &Log) -> Vec<AbortedTransaction> {
    log.aborted_transactions(log.start_offset(), log.end_offset()).expect("read")
}

#[test]
fn a_transactional_batch_is_refused_unless_the_caller_accepts_it() {
    let mut log = fresh();
    let refused = log.append(NOW, data(7, 0, 0, true), AppendOptions::default()).expect_err("refused");
    assert!(matches!(refused, AppendError::NotAllowed { .. }), "{refused}");
    assert_eq!(send(&mut log, 7, 0, 0), 0);
}

#[test]
fn the_last_stable_offset_is_the_first_offset_of_the_first_open_transaction() {
    let mut log = fresh();
    plain(&mut log);
    assert_eq!(stable(&log), 1);
    assert_eq!(send(&mut log, 7, 0, 0), 1);
    assert_eq!(send(&mut log, 9, 0, 0), 2);
    assert_eq!(stable(&log), 1);
    commit(&mut log, 7, 0);
    assert_eq!(log.last_stable_offset(log.end_offset()), 2, "9 is open");
    assert_eq!(log.last_stable_offset(3), 1, "the marker of 7 is above the high watermark");
    abort(&mut log, 9, 0);
    assert_eq!(stable(&log), 5);
    assert_eq!(log.last_stable_offset(4), 2, "the marker of 9 is above the high watermark");
    assert_eq!(log.last_stable_offset(1), 1, "never above the high watermark");
}

#[test]
fn aborted_transactions_are_indexed_and_empty_ones_are_not() {
    let mut log = fresh();
    send(&mut log, 7, 0, 0);
    send(&mut log, 9, 0, 0);
    abort(&mut log, 9, 0);
    abort(&mut log, 7, 0);
    abort(&mut log, 7, 0);
    abort(&mut log, 11, 0);
    let expected = [
        AbortedTransaction { producer_id: 7, first_offset: 0, last_offset: 3, last_stable_offset: 4 },
        AbortedTransaction { producer_id: 9, first_offset: 1, last_offset: 2, last_stable_offset: 0 },
    ];
    assert_eq!(aborted(&log), expected, "by first offset");
    assert_eq!(log.aborted_transactions(3, 4).expect("read"), expected[..1], "9 has ended before");
    assert_eq!(log.aborted_transactions(0, 1).expect("read"), expected[..1], "9 begins behind");
}

#[test]
fn a_transaction_is_indexed_in_the_segment_of_its_marker() {
    let disk = MemStorage::new();
    let mut log = open(&disk, &LogConfig::default());
    send(&mut log, 7, 0, 0);
    log.roll(NOW).expect("rolled");
    plain(&mut log);
    log.roll(NOW).expect("rolled");
    abort(&mut log, 7, 0);
    let name = |base: i64| format!("{DIR}/{base:020}.txnindex");
    assert_eq!(disk.contents(&name(0)), None);
    assert_eq!(disk.contents(&name(2)).map(|bytes| bytes.len()), Some(34));
    assert_eq!(log.aborted_transactions(0, 1).expect("read").len(), 1);
}

#[test]
fn a_batch_outside_of_an_open_transaction_is_refused_with_any_epoch() {
    let mut log = fresh();
    send(&mut log, 7, 4, 0);
    for (epoch, sequence) in [(4, 1), (5, 0), (i16::MAX, 0)] {
        let batch = data(7, epoch, sequence, false);
        let refused = log.append(NOW, batch, AppendOptions::default()).expect_err("refused");
        assert!(matches!(refused, AppendError::InvalidTransaction { .. }), "{epoch}: {refused}");
    }
    commit(&mut log, 7, 4);
    assert_eq!(stable(&log), 2);
}

#[test]
fn a_marker_with_an_old_epoch_is_refused() {
    let mut log = fresh();
    send(&mut log, 7, 4, 0);
    let old = log.append_marker(ended(7, 3, TransactionOutcome::Commit), 0, NOW).expect_err("refused");
    assert!(matches!(old, AppendError::InvalidProducerEpoch { current: 4, found: 3, .. }), "{old}");
    let marker = EndMarker { transaction_version: 2, ..ended(7, 4, TransactionOutcome::Commit) };
    let late = log.append_marker(marker, 0, NOW).expect_err("refused");
    assert!(matches!(late, AppendError::InvalidProducerEpoch { current: 4, found: 4, .. }), "{late}");
    let bumped = EndMarker { producer_epoch: 5, ..marker };
    log.append_marker(bumped, 0, NOW).expect("above the epoch of the data");
    log.append_marker(bumped, 0, NOW).expect("a repeated marker");
    assert_eq!(stable(&log), 3);
}

/// It was refused, and its coordinator took it for one that is not needed any more: the transaction never ended.
#[test]
fn a_marker_with_the_highest_epoch_ends_a_transaction_of_any_epoch() {
    for epoch in [i16::MAX - 1, i16::MAX] {
        for transaction_version in 0..=2 {
            let mut log = fresh();
            send(&mut log, 7, epoch, 0);
            let marker = ended(7, i16::MAX, TransactionOutcome::Abort);
            let marker = EndMarker { transaction_version, ..marker };
            log.append_marker(marker, 0, NOW).expect("no epoch is above it");
            log.append_marker(marker, 0, NOW).expect("a repeated marker");
            assert_eq!((stable(&log), aborted(&log).len()), (3, 1), "{epoch}, version {transaction_version}");
        }
    }
}

#[test]
fn a_marker_of_an_old_coordinator_is_refused() {
    let mut log = fresh();
    send(&mut log, 7, 0, 0);
    commit(&mut log, 7, 0);
    send(&mut log, 7, 0, 1);
    let zombie = EndMarker { coordinator_epoch: 2, ..ended(7, 0, TransactionOutcome::Abort) };
    let refused = log.append_marker(zombie, 0, NOW).expect_err("refused");
    assert!(matches!(refused, AppendError::CoordinatorFenced { current: 3, found: 2, .. }), "{refused}");
    assert_eq!(stable(&log), 2);
}

#[test]
fn sequences_continue_after_a_marker_of_the_same_epoch_and_begin_again_after_another() {
    let mut log = fresh();
    send(&mut log, 7, 0, 0);
    commit(&mut log, 7, 0);
    send(&mut log, 7, 0, 1);
    let bumped = EndMarker { transaction_version: 2, ..ended(7, 1, TransactionOutcome::Commit) };
    log.append_marker(bumped, 0, NOW).expect("appended");
    let gap = log.append(NOW, data(7, 1, 2, true), options(Transactional::Accepted)).expect_err("refused");
    assert!(matches!(gap, AppendError::OutOfOrderSequence { found: 2, .. }), "{gap}");
    let old = log.append(NOW, data(7, 0, 2, true), options(Transactional::Accepted)).expect_err("refused");
    assert!(matches!(old, AppendError::InvalidProducerEpoch { current: 1, .. }), "{old}");
    send(&mut log, 7, 1, 0);
}

#[test]
fn a_batch_outside_of_the_open_transaction_is_refused() {
    let mut log = fresh();
    send(&mut log, 7, 0, 0);
    let refused = log.append(NOW, data(7, 0, 1, false), AppendOptions::default()).expect_err("refused");
    assert!(matches!(refused, AppendError::InvalidTransaction { .. }), "{refused}");
    commit(&mut log, 7, 0);
    log.append(NOW, data(7, 0, 1, false), AppendOptions::default()).expect("no transaction is open");
}

fn guard_of(log: &mut Log, base_sequence: i32, supports_epoch_bump: bool) -> Transactional {
    let first = FirstBatch { producer_id: 7, producer_epoch: 0, base_sequence, supports_epoch_bump };
    Transactional::Verified(log.verification_guard(first, NOW).expect("few guards"))
}

#[test]
fn the_first_batch_of_a_transaction_needs_a_guard_that_no_marker_has_ended() {
    let mut log = fresh();
    let unknown = log.append(NOW, data(7, 0, 0, true), options(Transactional::Verified(None)));
    assert!(matches!(unknown, Err(AppendError::InvalidTransaction { .. })), "{unknown:?}");
    let guard = guard_of(&mut log, 0, false);
    assert_eq!(guard, guard_of(&mut log, 0, false), "one guard for all requests");
    let Transactional::Verified(Some(taken)) = guard else { panic!("{guard:?}") };
    assert!(log.is_verification_guard_current(7, taken) && !log.is_verification_guard_current(8, taken));
    // The coordinator answers yes, and its marker overtakes the append.
    abort(&mut log, 7, 0);
    assert!(!log.is_verification_guard_current(7, taken));
    let late = log.append(NOW, data(7, 0, 0, true), options(guard)).expect_err("refused");
    assert!(matches!(late, AppendError::InvalidTransaction { .. }), "{late}");

    let guard = guard_of(&mut log, 0, false);
    log.append(NOW, data(7, 0, 0, true), options(guard)).expect("appended");
    assert_eq!(guard_of(&mut log, 1, false), Transactional::Verified(None), "it is open");
    log.append(NOW, data(7, 0, 1, true), options(Transactional::Verified(None))).expect("appended");
    commit(&mut log, 7, 0);
    let stale = log.append(NOW, data(7, 0, 2, true), options(guard)).expect_err("refused");
    assert!(matches!(stale, AppendError::InvalidTransaction { .. }), "a guard is used once: {stale}");
}

#[test]
fn an_old_epoch_is_reported_before_the_missing_guard() {
    let mut log = fresh();
    send(&mut log, 7, 1, 0);
    let old = log.append(NOW, data(7, 0, 0, true), options(Transactional::Verified(None)));
    assert!(matches!(old, Err(AppendError::InvalidProducerEpoch { .. })), "{old:?}");
}

#[test]
fn batches_that_overtake_the_first_one_are_out_of_order() {
    let mut log = fresh();
    let guard = guard_of(&mut log, 0, false);
    assert_eq!(guard_of(&mut log, 1, false), guard);
    let early = log.append(NOW, data(7, 0, 1, true), options(guard)).expect_err("refused");
    assert!(matches!(early, AppendError::OutOfOrderSequence { found: 1, .. }), "{early}");
    log.append(NOW, data(7, 0, 0, true), options(guard)).expect("appended");

    let mut log = fresh();
    let guard = guard_of(&mut log, 5, true);
    let unknown = log.append(NOW, data(7, 0, 5, true), options(guard)).expect_err("refused");
    assert!(matches!(unknown, AppendError::OutOfOrderSequence { found: 5, .. }), "{unknown}");
}

#[test]
fn a_marker_has_kafkas_bytes() {
    let mut log = fresh();
    send(&mut log, 7, 0, 0);
    abort(&mut log, 7, 0);
    let bytes = log.read(1, 1 << 20, i64::MAX, true).expect("read").chain.to_bytes().expect("bytes");
    let header = BatchHeader::parse(&bytes).expect("a batch");
    header.verify_crc(&bytes).expect("sound");
    assert!(header.is_control() && header.is_transactional());
    assert_eq!((header.base_sequence, header.producer_id, header.record_count), (-1, 7, 1));
    let record = &bytes[61..];
    // Length, attributes, timestamp and offset delta, key: version 0, type 0; value: version 0, coordinator epoch 3.
    assert_eq!(record, [32, 0, 0, 0, 8, 0, 0, 0, 0, 12, 0, 0, 0, 0, 0, 3, 0]);
}

#[test]
fn transactions_survive_a_close_and_a_crash() {
    let disk = MemStorage::forgetful();
    let config = LogConfig::default();
    let mut log = open(&disk, &config);
    send(&mut log, 7, 0, 0);
    send(&mut log, 9, 0, 0);
    abort(&mut log, 9, 0);
    log.roll(NOW).expect("rolled");
    send(&mut log, 9, 0, 1);
    abort(&mut log, 9, 0);
    let (before, entries) = (log.producers(), aborted(&log));
    assert_eq!(entries.len(), 2);
    log.close().expect("closed");
    let mut log = open(&disk, &config);
    assert_eq!((log.producers(), aborted(&log), stable(&log)), (before.clone(), entries.clone(), 0));
    plain(&mut log);
    log.sync_now().expect("synced");
    disk.crash(&mut fastrand::Rng::with_seed(1));
    drop(log);
    let mut log = open(&disk, &config);
    assert_eq!((log.producers(), aborted(&log), stable(&log)), (before, entries, 0));
    abort(&mut log, 7, 0);
    assert_eq!(stable(&log), log.end_offset());
    assert_eq!(aborted(&log).len(), 3);
}

#[test]
fn a_truncation_opens_the_transactions_whose_markers_it_removes() {
    let mut log = fresh();
    send(&mut log, 7, 0, 0);
    abort(&mut log, 7, 0);
    send(&mut log, 7, 0, 1);
    let marker = abort(&mut log, 7, 0);
    assert_eq!(aborted(&log).len(), 2);
    log.truncate_to(marker, NOW).expect("truncated");
    assert_eq!((aborted(&log).len(), stable(&log)), (1, 2));
    log.truncate_to(1, NOW).expect("truncated");
    assert_eq!((aborted(&log).len(), stable(&log)), (0, 0));
}

#[test]
fn a_marker_that_cannot_be_written_leaves_no_entry_and_can_be_sent_again() {
    for nth in 0.. {
        let disk = MemStorage::new();
        let config = LogConfig::default();
        let mut log = open(&disk, &config);
        send(&mut log, 7, 0, 0);
        disk.fail_nth(nth, Fault::Io, false);
        let failed = log.append_marker(ended(7, 0, TransactionOutcome::Abort), 0, NOW).is_err();
        disk.heal();
        if !failed {
            assert!(nth > 1, "the index and the log are written");
            return;
        }
        assert_eq!((stable(&log), aborted(&log).len()), (0, 0), "call {nth}");
        abort(&mut log, 7, 0);
        log.close().expect("closed");
        let log = open(&disk, &config);
        assert_eq!((stable(&log), aborted(&log).len()), (2, 1), "call {nth}");
    }
}

#[test]
fn deleted_records_of_an_open_transaction_do_not_hold_the_last_stable_offset_below_the_start() {
    let mut log = fresh();
    send(&mut log, 7, 0, 0);
    plain(&mut log);
    plain(&mut log);
    drop(log.delete_records_before(2).expect("deleted"));
    assert_eq!(stable(&log), 2);
}

#[test]
fn a_producer_with_an_open_transaction_does_not_expire() {
    let config = LogConfig { producer_expiration_ms: 1000, ..LogConfig::default() };
    let mut log = open(&MemStorage::new(), &config);
    send(&mut log, 7, 0, 0);
    for step in 1..20 {
        log.expire_producers(NOW + step * 400);
    }
    assert_eq!((log.producers().len(), stable(&log)), (1, 0));
    commit(&mut log, 7, 0);
    for step in 20..50 {
        log.expire_producers(NOW + step * 400);
    }
    assert_eq!(log.producers().len(), 0);
}

/// A client that makes up producer ids filled the memory of the broker, with 100,000 for each partition.
#[test]
fn logs_with_a_total_remember_no_more_producers_together() {
    let total = ProducerTotal::of_bytes(200 * 256);
    let config = LogConfig { producer_total: total.clone(), ..LogConfig::default() };
    let mut logs: Vec<Log> = (0..3).map(|_| open(&MemStorage::new(), &config)).collect();
    for producer in 0..1000 {
        let log = &mut logs[producer % 3];
        log.append(NOW + producer as i64, data(producer as i64, 0, 0, false), AppendOptions::default())
            .expect("appended");
        assert!(total.count() <= 200 + 3, "{} after {producer}", total.count());
    }
    for log in &logs {
        assert!(
            log.producers().len() >= 32 && log.producers().iter().any(|producer| producer.producer_id >= 997)
        );
    }
    drop(logs);
    assert_eq!(total.count(), 0, "a closed log remembers none");
}

fn first_of(producer_id: i64) -> FirstBatch {
    FirstBatch { producer_id, producer_epoch: 0, base_sequence: 0, supports_epoch_bump: false }
}

/// Guards had no common limit: a client that made up producer ids filled the memory of the broker, with 100,000 for each partition.
#[test]
fn logs_with_a_total_keep_no_more_guards_together() {
    let total = ProducerTotal::of_bytes(200 * 256);
    let config = LogConfig { producer_total: total.clone(), ..LogConfig::default() };
    let mut logs: Vec<Log> = (0..3).map(|_| open(&MemStorage::new(), &config)).collect();
    for producer in 0..1000 {
        let log = &mut logs[producer % 3];
        // A guard of the last minute is not forgotten.
        let now = NOW + producer as i64 * 60_000;
        log.verification_guard(first_of(producer as i64), now).expect("the earlier ones are old");
        assert!(total.count() <= 200 + 3, "{} after {producer}", total.count());
    }
    // The newest are kept.
    let guard = logs[0].verification_guard(first_of(999), NOW).expect("it is kept");
    let batch = data(999, 0, 0, true);
    logs[0].append(NOW, batch, options(Transactional::Verified(guard))).expect("appended");
    drop(logs);
    assert_eq!(total.count(), 0, "a closed log keeps none");
}

/// With many producers in the partitions together, the 65th guard of one pushed out the eight oldest, whose batches were about to be
/// approved. They were refused with INVALID_TXN_STATE, which ends a producer.
#[test]
fn a_young_guard_is_not_forgotten_for_another() {
    let config = LogConfig { producer_total: ProducerTotal::of_bytes(0), ..LogConfig::default() };
    let mut log = open(&MemStorage::new(), &config);
    let first = log.verification_guard(first_of(1), NOW).expect("the first");
    for producer in 2..=64 {
        log.verification_guard(first_of(producer), NOW + producer).expect("64 have room");
    }
    for now in [NOW + 65, NOW + 2000, NOW + 59_999] {
        assert_eq!(log.verification_guard(first_of(65), now), Err(GuardsFull));
    }
    log.append(NOW, data(1, 0, 0, true), options(Transactional::Verified(first))).expect("appended");
    let last = log.verification_guard(first_of(65), NOW + 65).expect("one has left");
    assert!(last.is_some());
    log.verification_guard(first_of(66), NOW + 70_000).expect("the others are old");
}

/// Each repetition of a batch made its guard young again. Other producers got none while 64 of one partition were denied and repeated.
#[test]
fn a_guard_of_a_batch_that_is_repeated_is_forgotten_in_the_end() {
    let config = LogConfig { producer_total: ProducerTotal::of_bytes(0), ..LogConfig::default() };
    let mut log = open(&MemStorage::new(), &config);
    for round in 0..20 {
        let now = NOW + round * 30_000;
        for producer in 1..=64 {
            log.verification_guard(first_of(producer), now).expect("64 have room");
        }
        if round < 10 {
            assert_eq!(log.verification_guard(first_of(65), now), Err(GuardsFull), "all are young");
        }
    }
    log.verification_guard(first_of(65), NOW + 600_000).expect("the others are old");
}

/// The guard of a denied batch was kept until its producer appended a batch.
#[test]
fn a_guard_that_is_discarded_is_not_kept() {
    let total = ProducerTotal::of_bytes(1 << 20);
    let config = LogConfig { producer_total: total.clone(), ..LogConfig::default() };
    let mut log = open(&MemStorage::new(), &config);
    for producer in 0..1000 {
        let guard = log.verification_guard(first_of(producer), NOW).expect("few guards");
        let guard = guard.expect("no transaction is open");
        assert_eq!(total.count(), 1);
        log.discard_verification_guard(first_of(producer), guard);
        assert_eq!(total.count(), 0);
    }
    let old = log.verification_guard(first_of(7), NOW).expect("few guards");
    let old = old.expect("no transaction is open");
    let later = FirstBatch { producer_epoch: 1, ..first_of(7) };
    let guard = log.verification_guard(later, NOW).expect("few guards");
    log.discard_verification_guard(first_of(7), old);
    log.append(NOW, data(7, 1, 0, true), options(Transactional::Verified(guard)))
        .expect("the denied batch had an older epoch");
}

/// Guards whose requests had ended were kept without a limit of time.
#[test]
fn guards_expire_like_producers() {
    let total = ProducerTotal::of_bytes(1 << 20);
    let config =
        LogConfig { producer_total: total.clone(), producer_expiration_ms: 100_000, ..LogConfig::default() };
    let mut log = open(&MemStorage::new(), &config);
    log.verification_guard(first_of(7), NOW).expect("few guards");
    log.verification_guard(first_of(8), NOW + 60_000).expect("few guards");
    let _ = log.plan_retention(NOW + 110_000).expect("planned");
    assert_eq!(total.count(), 1);
    log.expire_producers(NOW + 160_000);
    assert_eq!(total.count(), 0);
}

/// The batch was refused for good if its coordinator answered later than producers expire.
#[test]
fn a_guard_outlives_producers_that_expire_before_its_coordinator_answers() {
    let config = LogConfig { producer_expiration_ms: 100, ..LogConfig::default() };
    let mut log = open(&MemStorage::new(), &config);
    let guard = log.verification_guard(first_of(7), NOW).expect("few guards");
    log.expire_producers(NOW + 5000);
    let approved = log.append(NOW + 5000, data(7, 0, 0, true), options(Transactional::Verified(guard)));
    assert_eq!(approved.expect("appended").base_offset, 0);
}

#[test]
fn a_log_with_few_producers_keeps_them_when_others_have_too_many() {
    let config = LogConfig { producer_total: ProducerTotal::of_bytes(100 * 256), ..LogConfig::default() };
    let (mut quiet, mut loud) = (open(&MemStorage::new(), &config), open(&MemStorage::new(), &config));
    for producer in 0..10 {
        quiet.append(NOW, data(producer, 0, 0, false), AppendOptions::default()).expect("appended");
    }
    for producer in 100..1000 {
        loud.append(NOW + producer, data(producer, 0, 0, false), AppendOptions::default()).expect("appended");
    }
    quiet.append(NOW, data(10, 0, 0, false), AppendOptions::default()).expect("appended");
    assert_eq!(quiet.producers().len(), 11);
    assert!(loud.producers().len() < 100);
}

/// A start with the damage did not see the marker: the transaction stayed open, and its entry in the index was gone.
#[test]
fn a_damaged_marker_that_is_restored_ends_its_transaction() {
    let disk = MemStorage::new();
    let mut log = open(&disk, &LogConfig::default());
    send(&mut log, 7, 0, 0);
    abort(&mut log, 7, 0);
    plain(&mut log);
    common::sync(&mut log);
    drop(log);
    let file = common::log_files(&disk)[0].clone();
    let sound = disk.contents(&file).expect("there");
    let mut damaged = sound.clone();
    let first_bytes = BatchHeader::parse(&sound).expect("a header").total_bytes();
    damaged[first_bytes + 70] ^= 0x10;
    disk.set_contents(&file, &damaged);
    let state = |log: &Log| (stable(log), aborted(log).len(), log.quarantined().len());
    let log = open(&disk, &LogConfig::default());
    assert_eq!(state(&log), (0, 0, 1));
    log.close().expect("closed");
    disk.set_contents(&file, &sound);
    // The second start finds it in the files.
    for _ in 0..2 {
        let log = open(&disk, &LogConfig::default());
        assert_eq!(state(&log), (3, 1, 0));
        log.close().expect("closed");
    }
}

/// The transaction index was emptied and written again, and the log could not be opened.
#[test]
fn a_log_that_was_not_closed_opens_on_a_full_disk_without_writing_its_transaction_index() {
    let disk = MemStorage::new();
    let mut log = open(&disk, &LogConfig::default());
    for sequence in [0, 1] {
        send(&mut log, 7, 0, sequence);
        abort(&mut log, 7, 0);
    }
    let before = log.aborted_transactions(0, 100).expect("read");
    assert_eq!(before.len(), 2);
    drop(log);
    disk.inject(|op| {
        let takes_room = matches!(op.kind, OpKind::Create | OpKind::Write | OpKind::SetLen);
        (takes_room && op.path.ends_with("txnindex")).then_some(Fault::NoSpace)
    });
    for _ in 0..2 {
        let log = open(&disk, &LogConfig::default());
        assert_eq!(log.aborted_transactions(0, 100).expect("read"), before);
    }
}

/// Reads like a consumer with `isolation.level=read_committed`. Returns the offsets of the batches that it delivers, and the length of the
/// longest list of aborted transactions.
fn read_committed(log: &mut Log, bytes_max: usize, entries_max: usize) -> (Vec<i64>, usize) {
    let (mut delivered, mut longest) = (Vec::new(), 0);
    let stable = stable(log);
    let mut from = log.start_offset();
    while from < stable {
        let read = log.read(from, bytes_max, stable, true).expect("read");
        let listed = log.aborted_in(from, read, stable, entries_max, true).expect("listed");
        let CommittedRead { read, aborted } = listed;
        longest = longest.max(aborted.len());
        let mut later = aborted.into_iter().peekable();
        let mut open = BTreeSet::new();
        let bytes = read.chain.to_bytes().expect("bytes");
        let before = from;
        for batch in Batches::new(&bytes) {
            let (header, _) = batch.expect("a batch");
            while let Some(begun) = later.next_if(|begun| begun.first_offset <= header.last_offset()) {
                open.insert(begun.producer_id);
            }
            if header.is_control() {
                open.remove(&header.producer_id);
            } else if !(header.is_transactional() && open.contains(&header.producer_id)) {
                delivered.push(header.base_offset);
            }
            from = header.next_offset();
        }
        assert!(from > before, "no progress at {from}");
    }
    (delivered, longest)
}

/// Reads with all limits, from memory and from the files.
fn assert_delivered(disk: &MemStorage, mut log: Log, expected: &[i64]) {
    let (_, longest) = read_committed(&mut log, 1 << 20, usize::MAX);
    assert!(longest > 20, "a read without a limit has a long list");
    for from_files in [false, true] {
        if from_files {
            log.close().expect("closed");
            log = open(disk, &LogConfig { tail_cache_bytes: 0, ..LogConfig::default() });
        }
        for (bytes_max, entries_max) in [(1 << 20, 1), (1 << 20, 10), (1 << 20, 11), (1000, 10), (1, 10)] {
            let (delivered, longest) = read_committed(&mut log, bytes_max, entries_max);
            assert_eq!(delivered, expected, "{bytes_max} bytes, {entries_max} entries");
            assert!(longest <= entries_max, "{longest} entries instead of {entries_max}");
        }
    }
}

/// The list of a read of 45 MB had 300,000 transactions, which a request of 100 bytes made the broker keep in memory.
#[test]
fn a_read_with_many_aborted_transactions_ends_where_the_list_is_full() {
    let disk = MemStorage::new();
    let mut log = open(&disk, &LogConfig::default());
    let mut expected = Vec::new();
    for producer in 0..50 {
        send(&mut log, producer, 0, 0);
        send(&mut log, producer, 0, 1);
        abort(&mut log, producer, 0);
        expected.push(plain(&mut log));
        expected.push(send(&mut log, 1000, 0, i32::try_from(producer).expect("small")));
        commit(&mut log, 1000, 0);
    }
    assert_delivered(&disk, log, &expected);
}

/// The list had all transactions that were open at the offset, however short the read was.
#[test]
fn a_read_among_many_open_transactions_lists_those_of_its_own_batches() {
    let disk = MemStorage::new();
    let mut log = open(&disk, &LogConfig::default());
    let mut expected = Vec::new();
    for sequence in 0..2 {
        for producer in 0..50 {
            let offset = send(&mut log, producer, 0, sequence);
            if producer % 10 == 9 {
                expected.push(offset);
                expected.push(plain(&mut log));
            }
        }
    }
    log.roll(NOW).expect("rolled");
    for producer in 0..50 {
        if producer % 10 == 9 {
            commit(&mut log, producer, 0);
        } else {
            abort(&mut log, producer, 0);
        }
        expected.push(plain(&mut log));
    }
    assert_delivered(&disk, log, &expected);
}

/// Without room for a batch, the read of another partition in the same response becomes empty.
#[test]
fn a_read_that_may_be_empty_is_empty_without_room_in_the_list() {
    let mut log = fresh();
    send(&mut log, 7, 0, 0);
    abort(&mut log, 7, 0);
    let end = log.end_offset();
    for (min_one_batch, is_empty) in [(false, true), (true, false)] {
        let read = log.read(0, 1 << 20, end, true).expect("read");
        let listed = log.aborted_in(0, read, end, 0, min_one_batch).expect("listed");
        assert_eq!((listed.read.chain.is_empty(), listed.aborted.is_empty()), (is_empty, is_empty));
    }
}
