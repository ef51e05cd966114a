//! Segments that are put back from a backup: what was made without their damaged batches is made again.

use std::sync::Arc;

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
