//! Segments that are put back from a backup: what was made without their damaged batches is made again.

use std::sync::Arc;

use ottla_log::storage::Storage;
use ottla_log::storage::mem::{Fault, MemStorage, OpKind};
use ottla_log::{AppendOptions, EndMarker, Log, LogConfig, TransactionOutcome, Transactional};
use ottla_wire::{BatchHeader, Seal};

use crate::common;
use crate::common::{DIR, NOW};

fn open(disk: &MemStorage) -> Log {
    common::open(disk, &LogConfig::default()).0
}

/// Appends the first record of a producer's transaction.
fn begin(log: &mut Log, producer_id: i64) {
    let seal =
        Seal { producer_id, producer_epoch: 0, base_sequence: 0, transactional: true, ..Seal::default() };
    let options = AppendOptions { transactional: Transactional::Accepted, ..AppendOptions::default() };
    log.append(NOW, common::sealed(NOW, &[b"record"], &seal), options).expect("appended");
}

fn end(log: &mut Log, producer_id: i64, outcome: TransactionOutcome) {
    let marker =
        EndMarker { producer_id, producer_epoch: 0, coordinator_epoch: 3, outcome, transaction_version: 1 };
    log.append_marker(marker, 0, NOW).expect("appended");
}

fn plain(log: &mut Log) {
    common::append(log, b"plain").expect("appended");
}

/// The file of the segment of this number, and its bytes.
fn segment(disk: &MemStorage, number: usize) -> (String, Vec<u8>) {
    let file = common::log_files(disk)[number].clone();
    let bytes = disk.contents(&file).expect("there");
    (file, bytes)
}

/// Damages the batch of this number in a segment. Returns the file, and the bytes of its backup.
fn damage(disk: &MemStorage, number: usize, batch: usize) -> (String, Vec<u8>) {
    let (file, sound) = segment(disk, number);
    let after = |at: usize| at + BatchHeader::parse(&sound[at..]).expect("a header").total_bytes();
    let at = (0..batch).fold(0, |at, _| after(at));
    let mut bytes = sound.clone();
    bytes[at + 62] ^= 0x10;
    disk.set_contents(&file, &bytes);
    (file, sound)
}

/// The last stable offset, and the numbers of aborted transactions and of quarantined ranges.
fn state(log: &Log) -> (i64, usize, usize) {
    let (start, end) = (log.start_offset(), log.end_offset());
    let aborted = log.aborted_transactions(start, end).expect("read").len();
    (log.last_stable_offset(end), aborted, log.quarantined().len())
}

/// The quarantine was stored with the other damage, and without the restored range, before the producers and the transaction index were
/// made again. The next opening did not do it: the transaction stayed open, and its records were not delivered.
#[test]
fn an_opening_that_fails_behind_other_damage_does_not_forget_what_it_has_to_make_again() {
    let disk = MemStorage::new();
    let mut log = open(&disk);
    begin(&mut log, 7);
    end(&mut log, 7, TransactionOutcome::Abort);
    plain(&mut log);
    common::sync(&mut log);
    drop(log);
    let (first, marker) = damage(&disk, 0, 1);
    let mut log = open(&disk);
    assert_eq!(state(&log), (0, 0, 1));
    log.roll(NOW).expect("rolled");
    plain(&mut log);
    plain(&mut log);
    log.close().expect("closed");
    let mut log = open(&disk);
    plain(&mut log);
    common::sync(&mut log);
    drop(log);

    disk.set_contents(&first, &marker);
    let (second, records) = damage(&disk, 1, 0);
    disk.inject(|op| (op.kind == OpKind::Write && op.path.contains("recovery-point")).then_some(Fault::Io));
    let failed = Log::open(Arc::new(disk.clone()), DIR, LogConfig::default(), NOW);
    assert!(failed.is_err(), "the disk fails behind the quarantine");
    disk.heal();
    disk.set_contents(&second, &records);
    assert_eq!(state(&open(&disk)), (6, 1, 0));
}

/// Only the index of the restored segment was made again: the aborted record was delivered as a committed one.
#[test]
fn restored_records_of_a_transaction_that_ends_in_a_later_segment_stay_aborted() {
    let disk = MemStorage::new();
    let mut log = open(&disk);
    begin(&mut log, 7);
    plain(&mut log);
    log.roll(NOW).expect("rolled");
    end(&mut log, 7, TransactionOutcome::Abort);
    // Two snapshots of the producers are kept: none from before the marker.
    for _ in 0..3 {
        log.roll(NOW).expect("rolled");
        plain(&mut log);
    }
    drop(log);
    let (file, sound) = damage(&disk, 0, 0);
    let log = open(&disk);
    assert_eq!(state(&log), (6, 0, 1));
    log.close().expect("closed");
    disk.set_contents(&file, &sound);
    // The second start finds it in the files.
    for _ in 0..2 {
        let log = open(&disk);
        assert_eq!(state(&log), (6, 1, 0));
        log.close().expect("closed");
    }
}

/// The producers were made again around the damage that is left: the transaction of producer 7 was open, without an end.
#[test]
fn restored_batches_of_producers_wait_until_no_other_batch_is_damaged() {
    let disk = MemStorage::new();
    let mut log = open(&disk);
    for producer_id in [7, 9] {
        begin(&mut log, producer_id);
        end(&mut log, producer_id, TransactionOutcome::Commit);
        plain(&mut log);
        log.roll(NOW).expect("rolled");
    }
    plain(&mut log);
    log.close().expect("closed");
    let damaged = [0, 1].map(|number| damage(&disk, number, 1));
    let mut log = open(&disk);
    for marker in [1, 4] {
        log.read(marker, 1 << 20, i64::MAX, true).expect_err("damaged");
    }
    assert_eq!(state(&log), (7, 0, 2));
    log.close().expect("closed");
    for ((file, sound), left) in damaged.iter().rev().zip([2, 0]) {
        disk.set_contents(file, sound);
        let log = open(&disk);
        assert_eq!(state(&log), (7, 0, left));
        log.close().expect("closed");
    }
}

/// All producers were read again from the batches. Those whose batches are deleted were forgotten.
#[test]
fn producers_without_batches_stay_known_when_a_marker_is_restored() {
    let disk = MemStorage::new();
    let mut log = open(&disk);
    log.append(NOW, common::produced(5, 0, 0, 1), AppendOptions::default()).expect("appended");
    log.roll(NOW).expect("rolled");
    begin(&mut log, 7);
    end(&mut log, 7, TransactionOutcome::Commit);
    plain(&mut log);
    log.roll(NOW).expect("rolled");
    plain(&mut log);
    common::sync(&mut log);
    log.delete_records_before(1).expect("deleted").files.run().expect("removed");
    log.close().expect("closed");
    let (file, sound) = damage(&disk, 0, 1);
    let mut log = open(&disk);
    log.read(2, 1 << 20, i64::MAX, true).expect_err("damaged");
    log.close().expect("closed");
    disk.set_contents(&file, &sound);
    for _ in 0..2 {
        let log = open(&disk);
        let known: Vec<i64> = log.producers().iter().map(|producer| producer.producer_id).collect();
        assert_eq!((state(&log), known), ((5, 0, 0), vec![5, 7]));
        log.close().expect("closed");
    }
}

/// The opening failed, and the index was empty by then.
#[test]
fn restored_batches_stay_quarantined_while_the_disk_is_too_full_for_their_transaction_index() {
    let disk = MemStorage::new();
    let mut log = open(&disk);
    begin(&mut log, 7);
    plain(&mut log);
    begin(&mut log, 9);
    end(&mut log, 9, TransactionOutcome::Abort);
    end(&mut log, 7, TransactionOutcome::Abort);
    common::sync(&mut log);
    drop(log);
    let (file, sound) = damage(&disk, 0, 0);
    let log = open(&disk);
    assert_eq!(state(&log), (5, 1, 1));
    log.close().expect("closed");

    disk.set_contents(&file, &sound);
    disk.inject(|op| (op.kind == OpKind::Write && op.path.contains("txnindex")).then_some(Fault::NoSpace));
    let log = open(&disk);
    assert_eq!(state(&log), (5, 1, 1));
    log.close().expect("closed");
    disk.heal();
    for _ in 0..2 {
        let log = open(&disk);
        assert_eq!(state(&log), (5, 2, 0));
        log.close().expect("closed");
    }
}

/// The epoch began at its first batch that was sound when the file was made: the one before it seemed to end there.
#[test]
fn an_epoch_begins_with_its_restored_batch() {
    let disk = MemStorage::new();
    let mut log = open(&disk);
    for leader_epoch in [0, 0, 1, 1] {
        let options = AppendOptions { leader_epoch, ..AppendOptions::default() };
        log.append(NOW, common::sealed(NOW, &[b"record"], &Seal::default()), options).expect("appended");
    }
    log.close().expect("closed");
    let (file, sound) = damage(&disk, 0, 2);
    let mut log = open(&disk);
    log.read(2, 1 << 20, i64::MAX, true).expect_err("damaged");
    log.close().expect("closed");
    disk.remove(&format!("{DIR}/leader-epoch-checkpoint")).expect("removed");
    let log = open(&disk);
    assert_eq!(log.epoch_end(0), Some((0, 3)), "from the sound batches");
    log.close().expect("closed");
    disk.set_contents(&file, &sound);
    for _ in 0..2 {
        let log = open(&disk);
        assert_eq!((log.quarantined().len(), log.epoch_end(0)), (0, Some((0, 2))));
        log.close().expect("closed");
    }
}
