//! Checks of batches that need no log.

use ottla_wire::TimestampType;
use ottla_wire::batch::{BatchError, BatchHeader, CRC_FROM, Compression, HEADER_BYTES};
use ottla_wire::reader::{RecordError, RecordIter};

use crate::append_options::{AppendOptions, Check, Origin};
use crate::config::LogConfig;
use crate::error::AppendError;

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
        let client = self.options.origin == Origin::Client;
        let max = self.config.message_bytes_max as usize;
        if client && batch.len() > max {
            let (dir, bytes) = (self.dir.to_owned(), batch.len());
            return Err(AppendError::TooLarge { dir, what: "a batch", bytes, max });
        }
        header.compression().map_err(|source| self.corrupt(source))?;
        if client {
            self.client_batch(&header)?;
        }
        if self.options.check != Check::Trusted {
            header.verify_crc(batch).map_err(|source| self.corrupt(source))?;
        }
        let create_time = self.config.timestamp_type == TimestampType::CreateTime;
        let mut earliest = header.base_timestamp;
        if self.options.check == Check::Records {
            let times = check_records(&header, batch, self.config.decompressed_bytes_max)
                .map_err(|source| AppendError::InvalidRecords { dir: self.dir.to_owned(), source })?;
            earliest = times.earliest;
            if times.latest != header.max_timestamp && create_time {
                // Lookups by time rely on it, so it is put right as Kafka does.
                header.max_timestamp = times.latest;
                set_max_timestamp(batch, times.latest);
            }
        }
        if create_time && client {
            self.time(earliest)?;
            self.time(header.max_timestamp)?;
        }
        Ok(header)
    }

    fn client_batch(&self, header: &BatchHeader) -> Result<(), AppendError> {
        if header.is_control() {
            return Err(self.not_allowed("a control batch from a client"));
        }
        if header.is_transactional() {
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

/// The range of timestamps in a batch.
struct Times {
    earliest: i64,
    latest: i64,
}

/// Checks that the records are as many and as dense as the header says, and nothing else is in the batch.
fn check_records(header: &BatchHeader, batch: &[u8], cap: usize) -> Result<Times, RecordError> {
    let decompressed;
    let block = match header.compression()? {
        Compression::None => &batch[HEADER_BYTES..],
        codec => {
            decompressed = ottla_wire::compress::decompress(codec, &batch[HEADER_BYTES..], cap)
                .map_err(|source| RecordError::Compress { base_offset: header.base_offset, source })?;
            &decompressed[..]
        }
    };
    let mut times = Times { earliest: i64::MAX, latest: -1 };
    let mut found = 0;
    let mut records = RecordIter::new(header, block);
    let wrong =
        |found| RecordError::Count { base_offset: header.base_offset, claimed: header.record_count, found };
    for record in &mut records {
        let record = record?;
        if record.offset != header.base_offset.wrapping_add(i64::from(found)) {
            return Err(wrong(found));
        }
        times.earliest = times.earliest.min(record.timestamp);
        times.latest = times.latest.max(record.timestamp);
        found += 1;
    }
    if found != header.record_count as u32 || !records.rest().is_empty() {
        return Err(wrong(found));
    }
    Ok(times)
}

/// Sets the largest timestamp of a whole batch and recomputes its checksum.
fn set_max_timestamp(batch: &mut [u8], timestamp: i64) {
    batch[35..43].copy_from_slice(&timestamp.to_be_bytes());
    let crc = ottla_wire::crc::crc32c(&batch[CRC_FROM..]);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
}
