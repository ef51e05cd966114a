//! Checks of batches that need no log.

use bytes::{Bytes, BytesMut};
use ottla_wire::batch::{BatchError, BatchHeader, CRC_FROM, Compression, HEADER_BYTES};
use ottla_wire::reader::{RecordError, RecordIter};
use ottla_wire::{RecordStream, TimestampType};

use crate::append_options::{AppendOptions, Check, Origin, Transactional};
use crate::config::LogConfig;
use crate::error::AppendError;

/// Records without keys that a refusal names, so that its response is small. They are all refused.
const MISSING_KEYS_MAX: usize = 1000;

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
        let header = BatchHeader::parse(bytes).map_err(|source| self.corrupt(source))?;
        let (have, need) = (bytes.len(), header.total_bytes());
        let batch =
            bytes.get_mut(..need).ok_or_else(|| self.corrupt(BatchError::Truncated { have, need }))?;
        let header = self.batch(header, batch)?;
        Ok((header, batch))
    }

    fn batch(&self, mut header: BatchHeader, batch: &mut [u8]) -> Result<BatchHeader, AppendError> {
        self.before_records(&header, batch)?;
        let mut times = Times { earliest: header.base_timestamp, latest: header.max_timestamp };
        if self.options.check == Check::Records {
            let max = self.options.decompressed_bytes_max.unwrap_or(self.config.decompressed_bytes_max);
            let keyless = self.keyless();
            let records =
                check_records(&header, batch, max, keyless).map_err(|source| self.invalid(source))?;
            times = records.times;
            self.keys(records.keyless)?;
        }
        if let Some(latest) = self.after_records(&header, &times)? {
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
        header.compression().map_err(|source| self.corrupt(source))?;
        if client {
            self.client_batch(header)?;
        }
        if self.options.check != Check::Trusted {
            header.verify_crc(batch).map_err(|source| self.corrupt(source))?;
        }
        Ok(())
    }

    /// The checks of the records' timestamps. Returns the largest one if the header has another: lookups by time rely on it,
    /// so it is put right as Kafka does.
    fn after_records(&self, header: &BatchHeader, times: &Times) -> Result<Option<i64>, AppendError> {
        if self.config.timestamp_type != TimestampType::CreateTime {
            return Ok(None);
        }
        if self.options.origin == Origin::Client {
            self.time(times.earliest)?;
            self.time(times.latest)?;
        }
        Ok((times.latest != header.max_timestamp).then_some(times.latest))
    }

    /// Compaction could not tell records without keys apart, and would remove all of them.
    fn keyless(&self) -> Keyless {
        Keyless {
            is_wanted: self.config.compact && self.options.origin == Origin::Client,
            records: Vec::new(),
        }
    }

    fn keys(&self, keyless: Keyless) -> Result<(), AppendError> {
        if keyless.records.is_empty() {
            return Ok(());
        }
        Err(AppendError::MissingKey { dir: self.dir.to_owned(), records: keyless.records })
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
            return Err(self.corrupt(BatchError::Counts {
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

    fn time(&self, timestamp: i64) -> Result<(), AppendError> {
        let earliest = self.now_ms.saturating_sub(self.config.timestamp_before_max_ms);
        let latest = self.now_ms.saturating_add(self.config.timestamp_after_max_ms);
        // -1 is "no timestamp".
        if timestamp == -1 || (earliest..=latest).contains(&timestamp) {
            return Ok(());
        }
        Err(AppendError::InvalidTimestamp { dir: self.dir.to_owned(), timestamp, earliest, latest })
    }

    #[cold]
    pub(crate) fn not_allowed(&self, what: &'static str) -> AppendError {
        AppendError::NotAllowed { dir: self.dir.to_owned(), what }
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
    times: Times,
    keyless: Keyless,
    found: u32,
    is_dense: bool,
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
                let records = reading.finish().map_err(|source| checker.invalid(source))?;
                self.records_bytes_max = self.records_bytes_max.max(bytes);
                self.end_batch(&header, records)?;
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
        let header = BatchHeader::parse(rest).map_err(|source| checker.corrupt(source))?;
        let (have, need) = (rest.len(), header.total_bytes());
        if have < need {
            return Err(checker.corrupt(BatchError::Truncated { have, need }));
        }
        let batch = self.batches.slice(self.at..self.at + need);
        checker.before_records(&header, &batch)?;
        if header.compression().is_ok_and(|codec| codec == Compression::None) {
            let keyless = checker.keyless();
            let records =
                check_records(&header, &batch, 0, keyless).map_err(|source| checker.invalid(source))?;
            self.records_bytes_max = self.records_bytes_max.max(need);
            self.end_batch(&header, records)?;
        } else {
            let records = RecordStream::new(&header, batch, self.config.decompressed_bytes_max)
                .map_err(|source| checker.invalid(source))?;
            let times = Times::none();
            let keyless = checker.keyless();
            self.reading = Some(Reading { header, records, times, keyless, found: 0, is_dense: true });
        }
        Ok(need)
    }

    fn end_batch(&mut self, header: &BatchHeader, records: CheckedRecords) -> Result<(), AppendError> {
        self.checker().keys(records.keyless)?;
        if let Some(latest) = self.checker().after_records(header, &records.times)? {
            self.wrong_timestamps.push((self.at, latest));
        }
        self.at += header.total_bytes();
        Ok(())
    }
}

impl Reading {
    fn read_part(&mut self) -> Result<bool, RecordError> {
        let Self { header, records, times, keyless, found, is_dense } = self;
        records.read_part(|record| {
            *is_dense &= record.offset == header.base_offset.wrapping_add(i64::from(*found));
            times.note(record.timestamp);
            if !record.has_key {
                keyless.note(*found);
            }
            *found += 1;
        })
    }

    fn finish(self) -> Result<CheckedRecords, RecordError> {
        if self.is_dense && self.found == self.header.record_count as u32 {
            return Ok(CheckedRecords { times: self.times, keyless: self.keyless });
        }
        let (base_offset, claimed) = (self.header.base_offset, self.header.record_count);
        Err(RecordError::Count { base_offset, claimed, found: self.found })
    }
}

/// The range of timestamps in a batch.
#[derive(Clone, Copy, Debug)]
struct Times {
    earliest: i64,
    latest: i64,
}

impl Times {
    const fn none() -> Self {
        Self { earliest: i64::MAX, latest: -1 }
    }

    fn note(&mut self, timestamp: i64) {
        self.earliest = self.earliest.min(timestamp);
        self.latest = self.latest.max(timestamp);
    }
}

/// Records without keys, by their numbers in the batch.
#[derive(Debug)]
struct Keyless {
    /// They are refused, and so are kept.
    is_wanted: bool,
    records: Vec<u32>,
}

impl Keyless {
    #[inline]
    fn note(&mut self, record: u32) {
        if self.is_wanted && self.records.len() < MISSING_KEYS_MAX {
            self.records.push(record);
        }
    }
}

/// The records of a batch that passed the checks.
#[derive(Debug)]
struct CheckedRecords {
    times: Times,
    keyless: Keyless,
}

/// Checks that the records are as many and as dense as the header says, and nothing else is in the batch.
fn check_records(
    header: &BatchHeader,
    batch: &[u8],
    cap: usize,
    mut keyless: Keyless,
) -> Result<CheckedRecords, RecordError> {
    let decompressed;
    let block = match header.compression()? {
        Compression::None => &batch[HEADER_BYTES..],
        codec => {
            decompressed = ottla_wire::compress::decompress(codec, &batch[HEADER_BYTES..], cap)
                .map_err(|source| RecordError::Compress { base_offset: header.base_offset, source })?;
            &decompressed[..]
        }
    };
    let mut times = Times::none();
    let mut found = 0;
    let mut records = RecordIter::new(header, block);
    for record in &mut records {
        let record = record?;
        times.note(record.timestamp);
        if record.key.is_none() {
            keyless.note(found);
        }
        found += 1;
    }
    // The offsets rise. So they are dense if the last one is the number of records before it.
    let is_dense = records.offset_delta_min() == found;
    if !is_dense || found != header.record_count as u32 || !records.rest().is_empty() {
        let (base_offset, claimed) = (header.base_offset, header.record_count);
        return Err(RecordError::Count { base_offset, claimed, found });
    }
    Ok(CheckedRecords { times, keyless })
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

    fn checked(offset_deltas: &[i32]) -> Result<CheckedRecords, RecordError> {
        let mut builder = BatchBuilder::new();
        for delta in offset_deltas {
            builder.push_at(*delta, 5, Some(b"key"), Some(b"value"), &[]);
        }
        let batch = builder.seal(&Seal::default()).expect("a batch").to_bytes();
        let keyless = Keyless { is_wanted: false, records: Vec::new() };
        check_records(&BatchHeader::parse(&batch).expect("a header"), &batch, 0, keyless)
    }

    #[test]
    fn records_are_refused_with_a_gap_between_their_offsets_or_before_them() {
        assert!(checked(&[0, 1, 2]).is_ok());
        for gaps in [&[0, 2][..], &[1, 2], &[0, 1, 3]] {
            assert!(matches!(checked(gaps), Err(RecordError::Count { .. })), "{gaps:?}");
        }
    }
}
