//! Faults of the disk that a log survives, and its state afterwards.

use ottla_log::AppendOptions;
use ottla_log::storage::mem::{Fault, MemStorage, OpKind};

use crate::common::{NOW, batch, open, small};

/// The first entries of a time index that could not be written as a whole stayed in its file. They were taken for all of them, and
/// lookups by time did not find the newest records of the segment.
#[test]
fn a_part_of_a_time_index_is_not_believed() {
    let config = ottla_log::LogConfig { segment_bytes: 1 << 20, ..small() };
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
