//! Checks of batches that need no log.

use std::ops::RangeInclusive;

use bytes::{Bytes, BytesMut};
use ottla_wire::batch::{BatchError, BatchHeader, CRC_FROM, Compression, HEADER_BYTES, has_right_crc};
use ottla_wire::compress::check_for_java;
use ottla_wire::reader::{RecordError, RecordIter};
use ottla_wire::{RecordStream, TimestampType};

use crate::append_options::{AppendOptions, Check, Origin, Transactional};
use crate::config::LogConfig;
use crate::error::AppendError;

/// Records that a refusal names, so that its response is small. The whole batch is refused.
const REFUSED_RECORDS_MAX: usize = 1000;

/// Checks batches as [`Log::append`](crate::Log::append) would, but without the log: outside of its lock.
///
/// Batches that pass can be appended with [`Check::Trusted`]. A largest timestamp that is wrong is put right in place.
pub fn check_batches(
    dir: &str,
    config: &LogConfig,
    now_ms: i64,
    batches: &mut [u8],
    options: AppendOptions,
) -> Result<(), AppendError> {
    let checker = Checker { dir, config, now_ms, options };
    let mut rest = batches;
    while !rest.is_empty() {
        let (header, _) = checker.next(rest)?;
        rest = &mut rest[header.total_bytes()..];
    }
    Ok(())
}

pub(crate) struct Checker<'a> {
    pub(crate) dir: &'a str,
    pub(crate) config: &'a LogConfig,
    pub(crate) now_ms: i64,
    pub(crate) options: AppendOptions,
}

impl Checker<'_> {
    /// Checks the batch at the front of `bytes` and returns it, with its header after the checks.
    pub(crate) fn next<'b>(&self, bytes: &'b mut [u8]) -> Result<(BatchHeader, &'b mut [u8]), AppendError> {
        let header = BatchHeader::parse(bytes).map_err(|source| self.malformed(source, bytes))?;
        let (have, need) = (bytes.len(), header.total_bytes());
        let batch =
            bytes.get_mut(..need).ok_or_else(|| self.corrupt(BatchError::Truncated { have, need }))?;
        let header = self.batch(header, batch)?;
        Ok((header, batch))
    }

    fn batch(&self, mut header: BatchHeader, batch: &mut [u8]) -> Result<BatchHeader, AppendError> {
        self.before_records(&header, batch)?;
        let latest = if self.options.check == Check::Records {
            let max = self.options.decompressed_bytes_max.unwrap_or(self.config.decompressed_bytes_max);
            let found = Found::new(self.refused_records());
            let found = check_records(&header, batch, max, found).map_err(|source| self.invalid(source))?;
            self.after_records(&header, found)?
        } else {
            // The records of trusted batches were looked at, and a header can have a base timestamp that no record has.
            if self.options.check == Check::Checksum {
                self.header_times(&header)?;
            }
            None
        };
        if let Some(latest) = latest {
            header.max_timestamp = latest;
            set_max_timestamp(batch, latest);
        }
        Ok(header)
    }

    /// The checks of a batch that need no record.
    fn before_records(&self, header: &BatchHeader, batch: &[u8]) -> Result<(), AppendError> {
        let client = self.options.origin == Origin::Client;
        let max = self.config.message_bytes_max as usize;
        if client && batch.len() > max {
            let (dir, bytes) = (self.dir.to_owned(), batch.len());
            return Err(AppendError::TooLarge { dir, what: "a batch", bytes, max });
        }
        if self.options.check != Check::Trusted {
            header.verify_crc(batch).map_err(|source| self.corrupt(source))?;
        }
        let codec = header.compression().map_err(|source| self.invalid_batch(source))?;
        if client {
            self.client_batch(header)?;
        }
        if client && self.options.check == Check::Records {
            let base_offset = header.base_offset;
            check_for_java(codec, &batch[HEADER_BYTES..])
                .map_err(|source| self.invalid(RecordError::Compress { base_offset, source }))?;
        }
        Ok(())
    }

    /// The refusal of a batch for its records. Returns their largest timestamp if the header has another: lookups by time rely on it,
    /// so it is put right as Kafka does.
    fn after_records(&self, header: &BatchHeader, found: Found) -> Result<Option<i64>, AppendError> {
        let RefusedRecords { times, keyless, untimely, .. } = found.refused;
        if let Some((_, timestamp)) = untimely.first() {
            return Err(self.untimely(*timestamp, times, untimely, keyless));
        }
        if !keyless.is_empty() {
            return Err(AppendError::MissingKey { dir: self.dir.to_owned(), records: keyless });
        }
        let is_wrong =
            self.config.timestamp_type == TimestampType::CreateTime && found.latest != header.max_timestamp;
        Ok(is_wrong.then_some(found.latest))
    }

    /// The timestamps of a batch whose records are not read.
    fn header_times(&self, header: &BatchHeader) -> Result<(), AppendError> {
        let times = self.times();
        for timestamp in [header.base_timestamp, header.max_timestamp] {
            if is_untimely(&times, timestamp) {
                return Err(self.untimely(timestamp, times, Vec::new(), Vec::new()));
            }
        }
        Ok(())
    }

    #[cold]
    fn untimely(
        &self,
        timestamp: i64,
        times: RangeInclusive<i64>,
        records: Vec<(u32, i64)>,
        keyless: Vec<u32>,
    ) -> AppendError {
        let (earliest, latest) = times.into_inner();
        AppendError::InvalidTimestamp {
            dir: self.dir.to_owned(),
            timestamp,
            earliest,
            latest,
            records,
            keyless,
        }
    }

    /// The records that are refused.
    fn refused_records(&self) -> RefusedRecords {
        RefusedRecords {
            // Compaction could not tell records without keys apart, and would remove all of them.
            needs_keys: self.config.compact && self.options.origin == Origin::Client,
            times: self.times(),
            keyless: Vec::new(),
            untimely: Vec::new(),
        }
    }

    /// The timestamps that records may have.
    fn times(&self) -> RangeInclusive<i64> {
        if self.options.origin != Origin::Client || self.config.timestamp_type != TimestampType::CreateTime {
            return i64::MIN..=i64::MAX;
        }
        let earliest = self.now_ms.saturating_sub(self.config.timestamp_before_max_ms);
        earliest..=self.now_ms.saturating_add(self.config.timestamp_after_max_ms)
    }

    #[cold]
    pub(crate) fn invalid(&self, source: RecordError) -> AppendError {
        AppendError::InvalidRecords { dir: self.dir.to_owned(), source }
    }

    fn client_batch(&self, header: &BatchHeader) -> Result<(), AppendError> {
        if header.is_control() {
            return Err(self.not_allowed("a control batch from a client"));
        }
        if header.is_transactional() && self.options.transactional == Transactional::Refused {
            return Err(self.not_allowed("a transactional batch from a client"));
        }
        if header.timestamp_type() == TimestampType::LogAppendTime {
            return Err(self.not_allowed("a batch from a client with the broker's timestamp type"));
        }
        if header.record_count == 0 || header.record_count - 1 != header.last_offset_delta {
            return Err(self.invalid_batch(BatchError::Counts {
                base_offset: header.base_offset,
                count: header.record_count,
                last_offset_delta: header.last_offset_delta,
            }));
        }
        if header.has_producer_id() && (header.base_sequence < 0 || header.producer_epoch < 0) {
            return Err(self.not_allowed("a producer id without epoch or sequence"));
        }
        if header.is_transactional() && !header.has_producer_id() {
            return Err(self.not_allowed("a transactional batch without a producer id"));
        }
        Ok(())
    }

    #[cold]
    pub(crate) fn not_allowed(&self, what: &'static str) -> AppendError {
        AppendError::NotAllowed { dir: self.dir.to_owned(), what }
    }

    /// The refusal of bytes without a header. Producers send damaged bytes again, so only a right checksum, or an old format, shows
    /// that they made the mistake.
    #[cold]
    fn malformed(&self, source: BatchError, bytes: &[u8]) -> AppendError {
        match source {
            BatchError::Magic { magic: 0 | 1, .. } => self.invalid_batch(source),
            BatchError::Counts { .. } if has_right_crc(bytes) => self.invalid_batch(source),
            _ => self.corrupt(source),
        }
    }

    #[cold]
    fn invalid_batch(&self, source: BatchError) -> AppendError {
        AppendError::InvalidBatch { dir: self.dir.to_owned(), source }
    }

    #[cold]
    fn corrupt(&self, source: BatchError) -> AppendError {
        AppendError::Corrupt { dir: self.dir.to_owned(), source }
    }
}

/// The checks of batches with compressed records, in steps: a batch of 64 KiB can inflate to 64 MiB.
///
/// Each step needs the memory of the codec and of a part of the records, whatever the batches inflate to.
#[derive(Debug)]
pub struct BatchesCheck {
    dir: String,
    config: LogConfig,
    now_ms: i64,
    options: AppendOptions,
    batches: Bytes,
    at: usize,
    reading: Option<Reading>,
    records_bytes_max: usize,
    /// Positions of batches, and their largest timestamps.
    wrong_timestamps: Vec<(usize, i64)>,
}

/// A batch whose records are read.
#[derive(Debug)]
struct Reading {
    header: BatchHeader,
    records: RecordStream,
    found: Found,
    /// The first record whose offset delta is not its number, with the delta.
    wrong_delta: Option<(u32, i32)>,
}

impl BatchesCheck {
    /// Prepares the checks that [`check_batches`] makes.
    pub fn new(
        dir: impl Into<String>,
        config: LogConfig,
        now_ms: i64,
        batches: BytesMut,
        options: AppendOptions,
    ) -> Self {
        Self {
            dir: dir.into(),
            config,
            now_ms,
            options,
            batches: batches.freeze(),
            at: 0,
            reading: None,
            records_bytes_max: 0,
            wrong_timestamps: Vec::new(),
        }
    }

    /// The memory that the checks need besides that of the batches, in bytes.
    pub fn memory_bytes(&self) -> usize {
        let (mut at, mut max) = (0, 0);
        while let Ok(header) = BatchHeader::parse(&self.batches[at..]) {
            let end = self.batches.len().min(at + header.total_bytes());
            let batch = &self.batches[at..end];
            max = max.max(RecordStream::memory_bytes(&header, batch, self.config.decompressed_bytes_max));
            at = end;
        }
        max
    }

    /// The largest number of bytes that the records of one of the checked batches have without compression.
    pub fn records_bytes_max(&self) -> usize {
        self.records_bytes_max
    }

    /// Checks until about `bytes_max` bytes were decompressed. Returns `false` after the last step.
    pub fn step(&mut self, bytes_max: usize) -> Result<bool, AppendError> {
        let mut left = bytes_max;
        while left > 0 {
            let Some(mut reading) = self.reading.take() else {
                if self.at == self.batches.len() {
                    return Ok(false);
                }
                left = left.saturating_sub(self.begin_batch()?);
                continue;
            };
            let checker = self.checker();
            let before = reading.records.bytes();
            let has_more = reading.read_part().map_err(|source| checker.invalid(source))?;
            left = left.saturating_sub((reading.records.bytes() - before).max(1));
            if has_more {
                self.reading = Some(reading);
            } else {
                let (header, bytes) = (reading.header, reading.records.bytes());
                let found = reading.finish().map_err(|source| checker.invalid(source))?;
                self.records_bytes_max = self.records_bytes_max.max(bytes);
                self.end_batch(&header, found)?;
            }
        }
        Ok(self.reading.is_some() || self.at < self.batches.len())
    }

    /// The batches, after the last step. Those that pass can be appended with [`Check::Trusted`].
    pub fn finish(self) -> BytesMut {
        let Self { batches, wrong_timestamps, reading, .. } = self;
        drop(reading);
        let mut batches = batches.try_into_mut().unwrap_or_else(|shared| BytesMut::from(&shared[..]));
        for (at, latest) in wrong_timestamps {
            let size = BatchHeader::parse(&batches[at..]).map_or(0, |header| header.total_bytes());
            set_max_timestamp(&mut batches[at..at + size], latest);
        }
        batches
    }

    fn checker(&self) -> Checker<'_> {
        Checker { dir: &self.dir, config: &self.config, now_ms: self.now_ms, options: self.options }
    }

    /// Begins with the next batch, or checks it if it is not compressed. Returns the number of bytes that it has read.
    fn begin_batch(&mut self) -> Result<usize, AppendError> {
        let checker = self.checker();
        let rest = &self.batches[self.at..];
        let header = BatchHeader::parse(rest).map_err(|source| checker.malformed(source, rest))?;
        let (have, need) = (rest.len(), header.total_bytes());
        if have < need {
            return Err(checker.corrupt(BatchError::Truncated { have, need }));
        }
        let batch = self.batches.slice(self.at..self.at + need);
        checker.before_records(&header, &batch)?;
        if header.compression().is_ok_and(|codec| codec == Compression::None) {
            let found = Found::new(checker.refused_records());
            let found = check_records(&header, &batch, 0, found).map_err(|source| checker.invalid(source))?;
            self.records_bytes_max = self.records_bytes_max.max(need);
            self.end_batch(&header, found)?;
        } else {
            let records = RecordStream::new(&header, batch, self.config.decompressed_bytes_max)
                .map_err(|source| checker.invalid(source))?;
            let found = Found::new(checker.refused_records());
            self.reading = Some(Reading { header, records, found, wrong_delta: None });
        }
        Ok(need)
    }

    fn end_batch(&mut self, header: &BatchHeader, found: Found) -> Result<(), AppendError> {
        if let Some(latest) = self.checker().after_records(header, found)? {
            self.wrong_timestamps.push((self.at, latest));
        }
        self.at += header.total_bytes();
        Ok(())
    }
}

impl Reading {
    fn read_part(&mut self) -> Result<bool, RecordError> {
        let Self { header, records, found, wrong_delta } = self;
        records.read_part(|record| {
            let delta = record.offset.wrapping_sub(header.base_offset);
            if delta != i64::from(found.count) && wrong_delta.is_none() {
                *wrong_delta = Some((found.count, delta as i32));
            }
            found.note(record.timestamp, record.has_key);
        })
    }

    fn finish(self) -> Result<Found, RecordError> {
        let (base_offset, claimed) = (self.header.base_offset, self.header.record_count);
        match self.wrong_delta {
            _ if self.found.count != claimed as u32 => {
                Err(RecordError::Count { base_offset, claimed, found: self.found.count })
            }
            Some((index, delta)) => Err(gap(base_offset, index, delta)),
            None => Ok(self.found),
        }
    }
}

/// The records that were read of a batch.
#[derive(Debug)]
struct Found {
    count: u32,
    /// The largest timestamp, or -1.
    latest: i64,
    refused: RefusedRecords,
}

impl Found {
    const fn new(refused: RefusedRecords) -> Self {
        Self { count: 0, latest: -1, refused }
    }

    #[inline]
    fn note(&mut self, timestamp: i64, has_key: bool) {
        self.latest = self.latest.max(timestamp);
        let is_in_time = self.refused.times.contains(&timestamp);
        if !is_in_time || (!has_key && self.refused.needs_keys) {
            self.refused.note(self.count, timestamp, has_key);
        }
        self.count += 1;
    }
}

/// Records that a log refuses, by their numbers in the batch.
#[derive(Debug)]
struct RefusedRecords {
    needs_keys: bool,
    times: RangeInclusive<i64>,
    keyless: Vec<u32>,
    untimely: Vec<(u32, i64)>,
}

impl RefusedRecords {
    /// As in Kafka, a record has one error: that of the key comes first.
    #[cold]
    fn note(&mut self, record: u32, timestamp: i64, has_key: bool) {
        if !has_key && self.needs_keys {
            if self.keyless.len() < REFUSED_RECORDS_MAX {
                self.keyless.push(record);
            }
        } else if is_untimely(&self.times, timestamp) && self.untimely.len() < REFUSED_RECORDS_MAX {
            self.untimely.push((record, timestamp));
        }
    }
}

/// Returns `true` for a timestamp out of the range; -1 is no timestamp.
fn is_untimely(times: &RangeInclusive<i64>, timestamp: i64) -> bool {
    timestamp != -1 && !times.contains(&timestamp)
}

/// Checks that the records are as many and as dense as the header says, and nothing else is in the batch.
fn check_records(
    header: &BatchHeader,
    batch: &[u8],
    cap: usize,
    mut found: Found,
) -> Result<Found, RecordError> {
    let decompressed;
    let block = match header.compression()? {
        Compression::None => &batch[HEADER_BYTES..],
        codec => {
            decompressed = ottla_wire::compress::decompress(codec, &batch[HEADER_BYTES..], cap)
                .map_err(|source| RecordError::Compress { base_offset: header.base_offset, source })?;
            &decompressed[..]
        }
    };
    let mut records = RecordIter::new(header, block);
    for record in &mut records {
        let record = record?;
        found.note(record.timestamp, record.key.is_some());
    }
    // The offsets rise. So they are dense if the last one is the number of records before it.
    let is_dense = records.offset_delta_min() == found.count;
    let (base_offset, claimed) = (header.base_offset, header.record_count);
    if found.count != claimed as u32 || !records.rest().is_empty() {
        return Err(RecordError::Count { base_offset, claimed, found: found.count });
    }
    if !is_dense {
        return Err(first_gap(header, block));
    }
    Ok(found)
}

/// The error of a batch whose offsets rise, but not by one each.
#[cold]
fn first_gap(header: &BatchHeader, block: &[u8]) -> RecordError {
    let deltas = RecordIter::new(header, block).flatten().map(|record| record.offset - header.base_offset);
    let found = deltas.zip(0_u32..).find(|(delta, index)| *delta != i64::from(*index));
    let (delta, index) = found.unwrap_or_default();
    gap(header.base_offset, index, delta as i32)
}

/// The error of a record whose offset delta is not its number in the batch.
const fn gap(base_offset: i64, index: u32, delta: i32) -> RecordError {
    RecordError::OffsetDelta { base_offset, index, delta, min: index, max: index }
}

/// Sets the largest timestamp of a whole batch and recomputes its checksum.
fn set_max_timestamp(batch: &mut [u8], timestamp: i64) {
    batch[35..43].copy_from_slice(&timestamp.to_be_bytes());
    let crc = ottla_wire::crc::crc32c(&batch[CRC_FROM..]);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use ottla_wire::{BatchBuilder, Seal};

    use super::*;

    fn checked(offset_deltas: &[i32]) -> Result<Found, RecordError> {
        let mut builder = BatchBuilder::new();
        for delta in offset_deltas {
            builder.push_at(*delta, 5, Some(b"key"), Some(b"value"), &[]);
        }
        let batch = builder.seal(&Seal::default()).expect("a batch").to_bytes();
        let (dir, config, options) = ("orders-0", LogConfig::default(), AppendOptions::default());
        let checker = Checker { dir, config: &config, now_ms: 5, options };
        let found = Found::new(checker.refused_records());
        check_records(&BatchHeader::parse(&batch).expect("a header"), &batch, 0, found)
    }

    #[test]
    fn records_are_refused_with_a_gap_between_their_offsets_or_before_them() {
        assert!(checked(&[0, 1, 2]).is_ok());
        // The messages said that fewer records were found, or as many as the header says.
        for (gaps, message) in [
            (&[0, 2][..], "batch at offset 0, record 1: offset delta 2, expected 1"),
            (&[1, 2][..], "batch at offset 0, record 0: offset delta 1, expected 0"),
            (&[0, 1, 3][..], "batch at offset 0, record 2: offset delta 3, expected 2"),
        ] {
            assert_eq!(checked(gaps).expect_err("a gap").to_string(), message);
        }
    }
}
