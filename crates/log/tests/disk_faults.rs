//! Faults of the disk that a log survives, and its state afterwards.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ottla_log::storage::fs::FsStorage;
use ottla_log::storage::mem::{Fault, MemStorage, OpKind};
use ottla_log::storage::{Open, Storage};
use ottla_log::{AppendOptions, Log, LogConfig, LogError};

use crate::common::{DIR, NOW, append, batch, log_files, open, produced, small, sync};

/// The first entries of a time index that could not be written as a whole stayed in its file. They were taken for all of them, and
/// lookups by time did not find the newest records of the segment.
#[test]
fn a_part_of_a_time_index_is_not_believed() {
    let config = LogConfig { segment_bytes: 1 << 20, ..small() };
    // One of these counts leaves whole entries in the file.
    for count in 6..14 {
        let disk = MemStorage::new();
        let (mut log, _) = open(&disk, &config);
        for n in 0..count {
            log.append(NOW, batch(NOW + n, &[b"value"]), AppendOptions::default()).expect("appended");
        }
        log.roll(NOW).expect("rolled");
        log.append(NOW, batch(NOW, &[b"value"]), AppendOptions::default()).expect("appended");
        drop(log);
        disk.inject(|op| {
            (op.kind == OpKind::Write && op.path.ends_with("timeindex")).then_some(Fault::ShortWrite)
        });
        let (mut log, _) = open(&disk, &config);
        disk.heal();
        let newest = NOW + count - 1;
        for _ in 0..2 {
            let found = log.offset_for_timestamp(newest).expect("read").expect("found");
            assert_eq!(found.offset, count - 1, "{count} batches");
        }
        log.close().expect("closed");
        let (mut log, _) = open(&disk, &config);
        let found = log.offset_for_timestamp(newest).expect("read").expect("found");
        assert_eq!(found.offset, count - 1, "{count} batches, after a restart");
        assert_eq!(log.newest_timestamp().expect("read"), Some(newest));
    }
}

/// The start offset was stored with the durable offset of when the deletion began. A sync that ended meanwhile was taken back, and the
/// loss of its records went unnoticed.
#[test]
fn a_deletion_does_not_take_back_a_sync_that_ended_meanwhile() {
    let disk = MemStorage::new();
    let (mut log, _) = open(&disk, &LogConfig::default());
    append(&mut log, b"deleted").expect("appended");
    append(&mut log, b"kept").expect("appended");
    sync(&mut log);
    let pending = log.begin_deletion(1).expect("begun");
    append(&mut log, b"synced meanwhile").expect("appended");
    sync(&mut log);
    let retention = log.finish_deletion(pending.run()).expect("deleted");
    assert_eq!(retention.start_offset, 1);
    drop(log);
    let path = &log_files(&disk)[0];
    let bytes = disk.contents(path).expect("there");
    disk.set_contents(path, &bytes[..bytes.len() - 1]);
    let opened = Log::open(Arc::new(disk.clone()), DIR, LogConfig::default(), NOW);
    assert!(matches!(opened, Err(LogError::Lost { .. })), "the last record was durable");
}

/// A log that could not be closed stayed online, and its appends returned success although its waiters were sent away.
#[test]
fn a_log_that_could_not_be_closed_takes_no_appends() {
    let disk = MemStorage::new();
    let (mut log, _) = open(&disk, &LogConfig::default());
    append(&mut log, b"kept").expect("appended");
    disk.fail_nth(0, Fault::NoSpace, true);
    assert!(matches!(log.shut(), Err(LogError::Io { .. })));
    disk.heal();
    assert!(log.offline_reason().expect("offline").contains("closing it failed"));
    assert!(append(&mut log, b"refused").is_err() && log.shut().is_err());
    drop(log);
    let (log, _) = open(&disk, &LogConfig::default());
    assert_eq!(log.end_offset(), 1);
}

/// A log that was not closed did not open on a full disk if its leader epochs had to be written again.
#[test]
fn a_log_opens_on_a_full_disk_without_writing_its_leader_epochs() {
    let disk = MemStorage::new();
    let (mut log, _) = open(&disk, &LogConfig::default());
    for leader_epoch in [3, 3, 5, 5] {
        let options = AppendOptions { leader_epoch, ..AppendOptions::default() };
        log.append(NOW, batch(NOW, &[b"value"]), options).expect("appended");
    }
    sync(&mut log);
    log.delete_records_before(3).expect("deleted");
    drop(log);
    let path = format!("{DIR}/leader-epoch-checkpoint");
    let before = disk.contents(&path).expect("there");
    disk.inject(|op| {
        let takes_room = matches!(op.kind, OpKind::Create | OpKind::Write | OpKind::SetLen);
        (takes_room && op.path.contains("leader-epoch-checkpoint")).then_some(Fault::NoSpace)
    });
    let (log, _) = open(&disk, &LogConfig::default());
    assert_eq!((log.latest_epoch(), log.start_epoch()), (Some(5), Some(5)));
    assert_eq!(disk.contents(&path), Some(before), "the file is whole");
    drop(log);
    disk.heal();
    let (log, _) = open(&disk, &LogConfig::default());
    assert_eq!((log.latest_epoch(), log.start_epoch()), (Some(5), Some(5)));
}

/// A sync for which no file descriptor was left took the log offline, although it had not begun and nothing was lost.
#[test]
fn a_sync_that_cannot_open_a_file_leaves_the_log_online() {
    let tmp = tempfile::tempdir().expect("a scratch directory");
    let storage = Arc::new(FsStorage::new(tmp.path()).expect("a storage").with_files_max(16));
    let (mut log, _) = Log::open(storage.clone(), DIR, LogConfig::default(), NOW).expect("opened");
    append(&mut log, b"one").expect("appended");
    assert!(log.close_idle_files(true));
    let pending = log.pending_sync().expect("something to sync");
    let mut others = Vec::new();
    while storage.files_left() > 0 {
        others.push(storage.open(&format!("other-{}", others.len()), Open::Create).expect("opened"));
    }
    let synced = pending.run();
    assert!(!synced.is_ok() && matches!(log.sync_done(synced), Err(LogError::Io { .. })));
    assert_eq!((log.offline_reason(), log.synced_offset()), (None, 0));
    drop(others);
    append(&mut log, b"two").expect("appended");
    sync(&mut log);
    assert_eq!(log.synced_offset(), 2);
}

/// A sync took the log offline if the file of its segment had been deleted with its records since the sync was taken.
#[test]
fn a_sync_of_a_segment_that_was_deleted_meanwhile_succeeds() {
    let disk = MemStorage::new();
    let (mut log, _) = open(&disk, &LogConfig::default());
    append(&mut log, b"deleted").expect("appended");
    assert!(log.close_idle_files(true));
    let pending = log.pending_sync().expect("something to sync");
    log.roll(NOW).expect("rolled");
    append(&mut log, b"kept").expect("appended");
    let retention = log.delete_records_before(1).expect("deleted");
    assert_eq!(retention.segments, 1);
    retention.files.run().expect("removed");
    assert_eq!(log.sync_done(pending.run()).expect("nothing is left to sync"), 1);

    assert!(log.close_idle_files(true));
    let pending = log.pending_sync().expect("something to sync");
    disk.remove(&log_files(&disk)[0]).expect("removed");
    assert!(log.sync_done(pending.run()).is_err());
    assert!(log.offline_reason().expect("offline").contains("missing"));
}

/// The snapshot of a log that was closed cleanly was emptied before it was written again: a full disk left no producers.
#[test]
fn a_snapshot_that_cannot_be_renewed_stays() {
    let disk = MemStorage::new();
    let after = |hours: i64| NOW + hours * 3_600_000;
    let open_at = |now_ms| {
        let opened = Log::open(Arc::new(disk.clone()), DIR, LogConfig::default(), now_ms);
        opened.expect("opened").0
    };
    let mut log = open_at(NOW);
    log.append(NOW, produced(7, 0, 0, 1), AppendOptions::default()).expect("appended");
    log.roll(NOW).expect("rolled");
    drop(log.delete_records_before(1).expect("deleted"));
    log.close().expect("closed");
    let mut log = open_at(after(1));
    log.expire_producers(after(6));
    disk.inject(|op| (op.kind == OpKind::Write && op.path.contains(".snapshot")).then_some(Fault::NoSpace));
    log.close().expect("closed, but for the snapshot");
    disk.heal();
    let log = open_at(after(7));
    assert_eq!((log.start_offset(), log.end_offset()), (1, 1), "no batch has a producer");
    assert_eq!(log.producers().len(), 1);
}

/// A segment that began where the log was closed before emptied the snapshot there and wrote it again: a full disk, or the end of the
/// process in between, left no producers.
#[test]
fn a_snapshot_that_a_new_segment_cannot_replace_stays() {
    let disk = MemStorage::new();
    let (mut log, _) = open(&disk, &LogConfig::default());
    log.append(NOW, produced(7, 0, 0, 1), AppendOptions::default()).expect("appended");
    log.close().expect("closed");
    let (mut log, _) = open(&disk, &LogConfig::default());
    disk.inject(|op| (op.kind == OpKind::Write && op.path.contains(".snapshot")).then_some(Fault::NoSpace));
    log.roll(NOW).expect("rolled, but for the snapshot");
    drop(log.delete_records_before(1).expect("deleted"));
    sync(&mut log);
    drop(log);
    disk.heal();
    let (log, _) = open(&disk, &LogConfig::default());
    assert_eq!((log.start_offset(), log.end_offset()), (1, 1), "no batch has a producer");
    assert_eq!(log.producers().len(), 1);
}

/// It took two: a broker with thousands of idle partitions stopped so much later.
#[test]
fn a_snapshot_is_renewed_with_one_sync() {
    for seed in 0..20 {
        let disk = MemStorage::forgetful();
        let after = |hours: i64| NOW + hours * 3_600_000;
        let open_at = |now_ms| {
            let opened = Log::open(Arc::new(disk.clone()), DIR, LogConfig::default(), now_ms);
            opened.expect("opened").0
        };
        let mut log = open_at(NOW);
        log.append(NOW, produced(7, 0, 0, 1), AppendOptions::default()).expect("appended");
        log.close().expect("closed");
        let mut log = open_at(after(1));
        log.expire_producers(after(6));
        let syncs = Arc::new(AtomicUsize::new(0));
        let seen = syncs.clone();
        disk.inject(move |op| {
            let is_sync = matches!(op.kind, OpKind::SyncData | OpKind::SyncDir);
            seen.fetch_add(usize::from(is_sync), Ordering::Relaxed);
            None
        });
        log.close().expect("closed");
        assert_eq!(syncs.load(Ordering::Relaxed), 1);
        // One of the two snapshots is there after a power cut.
        disk.crash(&mut fastrand::Rng::with_seed(seed));
        let log = open_at(after(7));
        assert_eq!((log.end_offset(), log.producers().len()), (1, 1), "seed {seed}");
    }
}
