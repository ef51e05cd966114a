//! Records with keys, and logs of them.
#![allow(dead_code, unreachable_pub, reason = "each test file uses a part of it")]

use bytes::{Bytes, BytesMut};
use ottla_log::{AppendOptions, CompactionOptions, CompactionReport, Log, Origin};
use ottla_wire::batch::{CRC_FROM, HEADER_BYTES};
use ottla_wire::{BatchBuilder, BatchHeader, Batches, Records, Seal};

use super::common::NOW;

/// The attribute of control batches.
const CONTROL: i16 = 0x20;

/// A record.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Keyed {
    pub offset: i64,
    pub timestamp: i64,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
}

impl Keyed {
    pub fn at(mut self, offset: i64) -> Self {
        self.offset = offset;
        self
    }

    pub fn timed(mut self, timestamp: i64) -> Self {
        self.timestamp = timestamp;
        self
    }
}

pub fn record(key: i32, value: &str) -> Keyed {
    let (key, value) = (Some(key.to_be_bytes().to_vec()), Some(value.as_bytes().to_vec()));
    Keyed { offset: -1, timestamp: NOW, key, value }
}

pub fn tombstone(key: i32) -> Keyed {
    Keyed { value: None, ..record(key, "") }
}

pub fn batch(records: &[Keyed], _now: i64, seal: &Seal) -> BytesMut {
    let mut builder = BatchBuilder::new();
    for keyed in records {
        builder.push(keyed.timestamp, keyed.key.as_deref(), keyed.value.as_deref(), &[(b"h", Some(b"x"))]);
    }
    BytesMut::from(&builder.seal(seal).expect("sealed").to_bytes()[..])
}

/// Appends and returns the offset.
pub fn appended(log: &mut Log, bytes: BytesMut, leader_epoch: i32) -> i64 {
    let options = AppendOptions { leader_epoch, origin: Origin::Coordinator, ..AppendOptions::default() };
    log.append(NOW, bytes, options).expect("appended").base_offset
}

pub fn append(log: &mut Log, records: &[Keyed]) -> i64 {
    appended(log, batch(records, NOW, &Seal::default()), 0)
}

pub fn transactional(log: &mut Log, producer_id: i64, base_sequence: i32, records: &[Keyed]) -> i64 {
    let seal = Seal { producer_id, producer_epoch: 0, base_sequence, transactional: true, ..Seal::default() };
    appended(log, batch(records, NOW, &seal), 0)
}

/// An abort marker.
pub fn marker(log: &mut Log, producer_id: i64, producer_epoch: i16) -> i64 {
    appended(log, control(producer_id, producer_epoch, 0), 0)
}

pub fn commit_marker(log: &mut Log, producer_id: i64) -> i64 {
    appended(log, control(producer_id, 0, 1), 0)
}

fn control(producer_id: i64, producer_epoch: i16, kind: i16) -> BytesMut {
    let mut builder = BatchBuilder::new();
    let key = [0_i16.to_be_bytes(), kind.to_be_bytes()].concat();
    builder.push(NOW, Some(&key), Some(&[0; 6]), &[]);
    let seal = Seal { producer_id, producer_epoch, transactional: true, ..Seal::default() };
    let mut bytes = BytesMut::from(&builder.seal(&seal).expect("sealed").to_bytes()[..]);
    let mut header = BatchHeader::parse(&bytes).expect("a header");
    header.attributes |= CONTROL;
    header.write(bytes.first_chunk_mut::<HEADER_BYTES>().expect("a header"));
    let crc = ottla_wire::crc::crc32c(&bytes[CRC_FROM..]);
    bytes[17..21].copy_from_slice(&crc.to_be_bytes());
    bytes
}

pub fn options(first_dirty: i64, now_ms: i64) -> CompactionOptions {
    CompactionOptions {
        now_ms,
        age_ms: now_ms,
        first_dirty,
        stable_end: i64::MAX,
        map_bytes_max: 1 << 20,
        secret: [1, 2],
        aborted: Vec::new(),
        segment_bytes_max: None,
    }
}

pub fn compact(log: &mut Log, first_dirty: i64) -> CompactionReport {
    compact_at(log, first_dirty, NOW)
}

pub fn compact_at(log: &mut Log, first_dirty: i64, now_ms: i64) -> CompactionReport {
    log.compact(options(first_dirty, now_ms)).expect("compacted")
}

/// The records of whole batches, without those of control batches.
pub fn records_of(bytes: &Bytes) -> Vec<Keyed> {
    let mut all = Vec::new();
    for found in Batches::new(bytes) {
        let (header, range) = found.expect("a batch");
        header.verify_crc(&bytes[range.clone()]).expect("the checksum is right");
        if header.is_control() {
            continue;
        }
        let block = Records::of_batch(&bytes.slice(range), 1 << 24).expect("records");
        for record in &block {
            let record = record.expect("a record");
            assert_eq!(record.headers.len(), usize::from(record.key.is_some()), "headers survive");
            all.push(Keyed {
                offset: record.offset,
                timestamp: record.timestamp,
                key: record.key.map(<[u8]>::to_vec),
                value: record.value.map(<[u8]>::to_vec),
            });
        }
    }
    all
}

/// All bytes of the log, whose batches have no gaps.
fn all_bytes(log: &mut Log) -> Vec<Bytes> {
    let mut all = Vec::new();
    let mut from = log.start_offset();
    let mut expected = None;
    while from < log.end_offset() {
        let read = log.read(from, 1 << 20, i64::MAX, true).expect("read");
        let bytes = read.chain.to_bytes().expect("bytes");
        let before = from;
        for found in Batches::new(&bytes) {
            let (header, _) = found.expect("a batch");
            assert!(expected.is_none_or(|expected| header.base_offset == expected), "no gaps");
            expected = Some(header.next_offset());
            from = header.next_offset();
        }
        from = from.max(read.next_offset.unwrap_or(from));
        assert!(from > before, "no progress at {from}");
        all.push(bytes);
    }
    all
}

pub fn contents(log: &mut Log) -> Vec<Keyed> {
    let start = log.start_offset();
    let all = all_bytes(log);
    all.iter().flat_map(records_of).filter(|keyed| keyed.offset >= start).collect()
}

pub fn offsets(log: &mut Log) -> Vec<i64> {
    contents(log).iter().map(|keyed| keyed.offset).collect()
}

pub fn batches(log: &mut Log) -> Vec<BatchHeader> {
    let all = all_bytes(log);
    all.iter().flat_map(|bytes| Batches::new(bytes).map(|found| found.expect("a batch").0)).collect()
}
