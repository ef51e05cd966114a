//! Retention that deletes all records.

use ottla_log::storage::mem::MemStorage;
use ottla_log::{AppendOptions, LogConfig};

use crate::common;
use crate::common::{NOW, append, open, produced, small, sync};

/// The active segment stayed: a topic with `retention.bytes=0` kept its last records for ever.
#[test]
fn a_retention_of_0_bytes_deletes_the_active_segment_too() {
    let disk = MemStorage::new();
    let config = LogConfig { retention_bytes: Some(0), retention_ms: None, ..small() };
    let (mut log, _) = open(&disk, &config);
    assert_eq!(log.enforce_retention(NOW).expect("enforced").segments, 0, "it is empty");
    for n in 0..100 {
        append(&mut log, b"a record").expect("appended");
        if n == 0 {
            // One record, in the only segment.
            let gone = log.enforce_retention(NOW).expect("enforced");
            assert_eq!((gone.segments, gone.start_offset), (1, 1));
        }
    }
    let count = log.segment_count();
    let gone = log.enforce_retention(NOW).expect("enforced");
    assert_eq!((gone.segments, gone.start_offset), (count, 100));
    drop(gone);
    assert_eq!((log.size_bytes(), log.segment_count(), common::log_files(&disk).len()), (0, 1, 1));
    assert_eq!(log.enforce_retention(NOW).expect("enforced").segments, 0, "an empty segment is not replaced");
    log.update_config(LogConfig { delete: false, ..config });
    append(&mut log, b"a record").expect("appended");
    assert_eq!(log.enforce_retention(NOW).expect("enforced").segments, 0, "the policy has no deletion");
}

/// A `retention.ms` of 0 deletes records that are a millisecond old, also those of the active segment.
#[test]
fn a_retention_of_0_milliseconds_deletes_the_active_segment_too() {
    let config = LogConfig { retention_ms: Some(0), ..small() };
    let (mut log, _) = open(&MemStorage::new(), &config);
    append(&mut log, b"a record").expect("appended");
    assert_eq!(log.enforce_retention(NOW).expect("enforced").segments, 0, "as in Kafka, they are not older");
    let gone = log.enforce_retention(NOW + 1).expect("enforced");
    assert_eq!((gone.segments, gone.start_offset), (1, 1));
}

/// Only a snapshot that was not synced had them: a batch that its producer sent again was no duplicate.
#[test]
fn producers_survive_a_power_cut_after_the_deletion_of_their_records() {
    for seed in 0..20 {
        let disk = MemStorage::forgetful();
        let config = LogConfig { retention_bytes: Some(0), retention_ms: None, ..small() };
        let (mut log, _) = open(&disk, &config);
        log.append(NOW, produced(7, 3, 0, 5), AppendOptions::default()).expect("appended");
        sync(&mut log);
        let gone = log.enforce_retention(NOW).expect("enforced");
        assert_eq!((gone.segments, gone.start_offset), (1, 5));
        drop(gone);
        disk.crash(&mut fastrand::Rng::with_seed(seed));
        let (log, _) = open(&disk, &config);
        let producers = log.producers();
        let found: Vec<_> = producers.iter().map(|it| (it.producer_id, it.epoch, it.last_sequence)).collect();
        assert_eq!((log.start_offset(), found), (5, vec![(7, 3, 4)]), "seed {seed}");
    }
}
