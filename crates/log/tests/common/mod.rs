//! Functions that the tests share: they build batches and read the contents of a log.
#![allow(dead_code, unreachable_pub, reason = "each test file uses a part of it")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::BytesMut;
use ottla_log::storage::mem::{MemStorage, OpKind};
use ottla_log::{AppendError, AppendOptions, Appended, Log, LogConfig, RecoveryReport};
use ottla_wire::{BatchBuilder, Batches, Compression, Records, Seal};

/// The directory of every log here.
pub const DIR: &str = "orders-0";
/// A time to start from.
pub const NOW: i64 = 1_700_000_000_000;

/// A batch of values at `timestamp`.
pub fn batch(timestamp: i64, values: &[&[u8]]) -> BytesMut {
    sealed(timestamp, values, &Seal::default())
}

/// A batch of `records` records from a producer.
pub fn produced(producer_id: i64, epoch: i16, base_sequence: i32, records: usize) -> BytesMut {
    let values: Vec<Vec<u8>> = (0..records).map(|n| format!("{producer_id}/{n}").into_bytes()).collect();
    let values: Vec<&[u8]> = values.iter().map(Vec::as_slice).collect();
    let seal = Seal { producer_id, producer_epoch: epoch, base_sequence, ..Seal::default() };
    sealed(NOW, &values, &seal)
}

pub fn compressed(timestamp: i64, values: &[&[u8]], compression: Compression) -> BytesMut {
    sealed(timestamp, values, &Seal { compression, ..Seal::default() })
}

pub fn sealed(timestamp: i64, values: &[&[u8]], seal: &Seal) -> BytesMut {
    let mut builder = BatchBuilder::new();
    for value in values {
        builder.push(timestamp, None, Some(value), &[]);
    }
    BytesMut::from(&builder.seal(seal).expect("sealed").to_bytes()[..])
}

pub fn open(disk: &MemStorage, config: &LogConfig) -> (Log, RecoveryReport) {
    Log::open(Arc::new(disk.clone()), DIR, config.clone(), NOW).expect("opened")
}

pub fn append(log: &mut Log, value: &[u8]) -> Result<Appended, AppendError> {
    log.append(NOW, batch(NOW, &[value]), AppendOptions::default())
}

pub fn sync(log: &mut Log) {
    log.sync_now().expect("synced");
}

/// Reads all records as (offset, value), past damage, through reads of at most `max_bytes`.
pub fn records_by(log: &mut Log, max_bytes: usize) -> Vec<(i64, Vec<u8>)> {
    let mut all = Vec::new();
    let mut from = log.start_offset();
    while from < log.end_offset() {
        let read = match log.read(from, max_bytes, i64::MAX, true) {
            Ok(read) => read,
            Err(ottla_log::ReadError::Corrupt { next, .. }) => {
                assert!(next > from);
                from = next;
                continue;
            }
            Err(error) => panic!("{error}"),
        };
        let bytes = read.chain.to_bytes().expect("read");
        let before = from;
        for found in Batches::new(&bytes) {
            let (header, range) = found.expect("a batch");
            header.verify_crc(&bytes[range.clone()]).expect("the checksum is right");
            let block = Records::of_batch(&bytes.slice(range), 1 << 24).expect("records");
            for record in &block {
                let record = record.expect("a record");
                if record.offset >= before {
                    all.push((record.offset, record.value.unwrap_or_default().to_vec()));
                }
            }
            from = header.next_offset();
        }
        from = from.max(read.next_offset.unwrap_or(from));
        assert!(from > before, "no progress at {from}");
    }
    all
}

pub fn records(log: &mut Log) -> Vec<(i64, Vec<u8>)> {
    records_by(log, 1 << 20)
}

pub fn values(log: &mut Log) -> Vec<Vec<u8>> {
    records(log).into_iter().map(|(_, value)| value).collect()
}

/// Small segments and a dense index, so that short stories reach every corner.
pub fn small() -> LogConfig {
    LogConfig { segment_bytes: 1000, index_interval_bytes: 100, ..LogConfig::default() }
}

/// Paths of the segments' log files, by offset.
pub fn log_files(disk: &MemStorage) -> Vec<String> {
    disk.paths().into_iter().filter(|path| path.rsplit('.').next() == Some("log")).collect()
}

/// Counts the reads of segments from now on.
pub fn count_segment_reads(disk: &MemStorage) -> Arc<AtomicUsize> {
    let reads = Arc::new(AtomicUsize::new(0));
    let seen = reads.clone();
    disk.inject(move |op| {
        let is_read = op.kind == OpKind::Read && op.path.rsplit('.').next() == Some("log");
        seen.fetch_add(usize::from(is_read), Ordering::Relaxed);
        None
    });
    reads
}
