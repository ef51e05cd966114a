//! Syncs, retention and closed logs of one partition.

use ottla_log::storage::fs::FsStorage;
use ottla_log::storage::mem::MemStorage;
use ottla_log::storage::{Open, Storage};
use ottla_log::{AppendOptions, LogConfig};
use ottla_wire::{BatchBuilder, Seal};

use super::*;

/// Room for one batch of `append`, and not for two.
const BATCH_BYTES: u32 = 100;

fn append(log: &mut Log) {
    let mut batch = BatchBuilder::new();
    batch.push(0, None, Some(b"x"), &[]);
    let bytes = batch.seal(&Seal::default()).expect("sealed").to_bytes();
    log.append(0, bytes[..].into(), AppendOptions::default()).expect("appended");
}

#[test]
fn a_sync_of_a_deleted_partition_ends_quietly() {
    let storage = Arc::new(MemStorage::new());
    let (mut log, _) = Log::open(storage.clone(), "orders-0", LogConfig::default(), 0).expect("opened");
    append(&mut log);
    // The next sync fails, as one does whose directory is gone.
    storage.fail_nth(0, ottla_log::storage::mem::Fault::Io, false);
    let identity = PartitionIdentity { topic: "orders".into(), topic_id: Uuid([1; 16]), index: 0, floor: 0 };
    let partition = Partition::new(identity, log, 1, 0);
    partition.delete();
    assert_eq!(partition.sync_once(SyncScope::All, &Syncs::default(), &mut 0), None);
    assert_eq!(partition.log().offline_reason(), None);
}

/// A partition with three old segments and an active one.
fn partition_of_old_segments(storage: &MemStorage) -> Arc<Partition> {
    let config = LogConfig { segment_bytes: BATCH_BYTES, retention_ms: Some(1000), ..LogConfig::default() };
    let opened = Log::open(Arc::new(storage.clone()), "orders-0", config, 0);
    let (mut log, _) = opened.expect("opened");
    for _ in 0..4 {
        append(&mut log);
    }
    let identity = PartitionIdentity { topic: "orders".into(), topic_id: Uuid([1; 16]), index: 0, floor: 0 };
    Partition::new(identity, log, 1, 0)
}

/// A pass that was under way when its topic was deleted changed the files of the topic that was created again.
#[test]
fn retention_that_is_under_way_leaves_the_directory_of_a_deleted_partition_alone() {
    let storage = MemStorage::new();
    let partition = partition_of_old_segments(&storage);
    let before = storage.paths();
    let deleted = partition.clone();
    storage.inject(move |op| {
        if op.kind == ottla_log::storage::mem::OpKind::Read {
            deleted.delete();
        }
        None
    });
    partition.enforce_retention(2000, 2000).expect("it ends quietly");
    storage.heal();
    assert!(partition.is_deleted(), "its timestamps were read");
    assert_eq!(storage.paths(), before);
}

#[test]
fn a_closed_log_of_a_deleted_partition_changes_no_file() {
    let storage = MemStorage::new();
    let partition = partition_of_old_segments(&storage);
    let pending = partition.log().begin_deletion(2).expect("begun");
    let stored = pending.run();
    partition.delete();
    partition.close_deleted_log();
    let before = (storage.paths(), storage.ops());
    assert!(partition.log().finish_deletion(stored).is_err());
    assert!(partition.delete_records_before(3).is_err());
    partition.enforce_retention(2000, 2000).expect("nothing to do");
    assert_eq!((storage.paths(), storage.ops()), before);
}

/// A sync for which no file descriptor was left took the partition offline until a restart.
#[test]
fn a_sync_that_cannot_open_a_file_is_tried_again_after_a_pause() {
    let tmp = tempfile::tempdir().expect("a scratch directory");
    let storage = Arc::new(FsStorage::new(tmp.path()).expect("a storage").with_files_max(16));
    let (mut log, _) = Log::open(storage.clone(), "orders-0", LogConfig::default(), 0).expect("opened");
    append(&mut log);
    assert!(log.close_idle_files(true));
    let identity = PartitionIdentity { topic: "orders".into(), topic_id: Uuid([1; 16]), index: 0, floor: 0 };
    let partition = Partition::new(identity, log, 1, 0);
    let mut others = Vec::new();
    while storage.files_left() > 0 {
        others.push(storage.open(&format!("other-{}", others.len()), Open::Create).expect("opened"));
    }
    let (syncs, mut failures) = (Syncs::default(), 0);
    assert!(partition.sync_flag.begin());
    for _ in 1..SYNC_TRIES_MAX {
        let next = partition.sync_once(SyncScope::All, &syncs, &mut failures);
        assert_eq!(next, Some(SYNC_RETRY_PAUSE));
    }
    let next = partition.sync_once(SyncScope::All, &syncs, &mut failures);
    assert_eq!(next, None, "it ends, so that the broker can");
    assert!(partition.sync_flag.take_given_up() && !partition.sync_flag.take_given_up());
    assert!(partition.log().offline_reason().is_none() && partition.sync_flag.begin());
    drop(others);
    assert_eq!(partition.sync_once(SyncScope::All, &syncs, &mut failures), None);
    assert_eq!(partition.log().synced_offset(), 1);
}

/// With durability `os` nothing was ever synced: a killed broker scanned every segment at its next start.
#[test]
fn a_sync_of_closed_segments_leaves_one_segment_to_scan() {
    let storage = Arc::new(MemStorage::new());
    let config = LogConfig { segment_bytes: BATCH_BYTES, ..LogConfig::default() };
    let (mut log, _) = Log::open(storage.clone(), "orders-0", config.clone(), 0).expect("opened");
    for _ in 0..4 {
        append(&mut log);
    }
    let identity = PartitionIdentity { topic: "orders".into(), topic_id: Uuid([1; 16]), index: 0, floor: 0 };
    let partition = Partition::new(identity, log, 1, 0);
    assert!(partition.log().has_unsynced_segments());
    let next = partition.sync_once(SyncScope::ClosedSegments, &Syncs::default(), &mut 0);
    assert_eq!(next, None, "nothing came in meanwhile");
    assert!(!partition.log().has_unsynced_segments());
    drop(partition);
    let (log, report) = Log::open(storage, "orders-0", config, 0).expect("opened again");
    assert_eq!((log.end_offset(), report.scanned_segments), (4, 1));
}
