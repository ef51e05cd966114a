//! The decision about each batch and each record of a log, and the batch that is left.
//!
//! A batch keeps its base offset, last offset, producer, sequence and leader epoch, whatever records it loses. The bytes
//! of a record stay as they are, unless the batch gets a delete horizon: that takes the place of the base timestamp, from
//! which the timestamps of the records are counted.

use std::borrow::Cow;
use std::ops::Range;

use ottla_wire::TimestampType;
use ottla_wire::batch::{
    BatchHeader, CRC_FROM, Compression, DELETE_HORIZON, HEADER_BYTES, LOG_OVERHEAD_BYTES, NONE,
};
use ottla_wire::compress::{CompressError, compress, decompress};
use ottla_wire::crc::crc32c;
use ottla_wire::reader::{RecordError, RecordIter};
use ottla_wire::varint::{put_signed, read_i32, signed_len};

use super::key_hash::KeyHash;
use super::newest::NewestOffsets;
use super::offset_map::OffsetMap;
use super::transactions::Transactions;
use crate::deliberate::{DeliberateFault, has_deliberate_fault};
use crate::marker::Control;
use crate::producer_map::ProducerMap;
use crate::producers::LastBatch;

/// Records whose keys are looked up together: the processor then waits for several entries of the map at a time.
pub(super) const LOOKUPS: usize = 128;

/// The bytes by which a horizon can make a record longer: 9 of its timestamp, and one of its length. A record has 7 at least, so that
/// a batch does not grow to more than three times its size.
const HORIZON_BYTES_MAX: usize = 10;

/// The rules of a pass.
#[derive(Debug)]
pub(crate) struct Rules {
    pub(crate) map: OffsetMap,
    /// The newest records up to `latest`, as far as there is memory for their bits.
    pub(crate) newest: NewestOffsets,
    /// Records without a key in batches that `newest` covers: the second pass does not count them.
    pub(crate) without_key: u64,
    /// The last offset whose key is in the map. Later records stay.
    pub(crate) latest: i64,
    pub(crate) now_ms: i64,
    /// The time that delete horizons are compared with.
    pub(crate) age_ms: i64,
    pub(crate) delete_retention_ms: i64,
    /// The last batch of each active producer.
    pub(crate) producers: ProducerMap<LastBatch>,
    /// The offsets of these batches' last records, in their order.
    pub(crate) last_offsets: Vec<i64>,
    pub(crate) decompressed_bytes_max: usize,
}

/// The fate of a batch.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Fate {
    /// It stays as it is.
    Unchanged,
    /// It was rewritten; this is its new header.
    Rewritten(BatchHeader),
    /// It goes.
    Removed,
}

/// The records that a pass has read and kept.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Counts {
    pub(crate) records_read: u64,
    pub(crate) records_kept: u64,
    /// Records without a key, which an earlier version or another policy has let in. Those of [`Rules::without_key`] are not
    /// counted here.
    pub(crate) without_key: u64,
}

/// Decides about one batch after another. Its buffers are used again for each batch.
#[derive(Debug, Default)]
pub(crate) struct Filter {
    parsed: Vec<Parsed>,
    /// The ranges of the block that stay; neighbours are one range.
    kept: Vec<Range<usize>>,
    block: Vec<u8>,
    /// `true` behind a batch that is too large to be decompressed. It may have values of any key: tombstones behind it stay.
    has_unread: bool,
    pub(crate) counts: Counts,
}

/// A record of a block, before its key is looked up.
#[derive(Clone, Copy, Debug)]
struct Parsed {
    start: usize,
    end: usize,
    offset: i64,
    timestamp: i64,
    key: Option<KeyHash>,
    has_value: bool,
}

/// The records of a batch that stay.
struct Kept {
    records: u32,
    max_timestamp: i64,
    has_tombstone: bool,
}

impl Rules {
    /// Returns `true` if the last batch of a producer may end at one of these offsets.
    pub(crate) fn has_last_batch(&self, first: i64, last: i64) -> bool {
        let next = self.last_offsets.partition_point(|offset| *offset < first);
        self.last_offsets.get(next).is_some_and(|offset| *offset <= last)
    }
}

impl Kept {
    const NONE: Self = Self { records: 0, max_timestamp: NONE, has_tombstone: false };

    /// Adds a record, and its place in the block to the ranges that stay.
    #[inline]
    fn add(&mut self, ranges: &mut Vec<Range<usize>>, place: Range<usize>, timestamp: i64, has_value: bool) {
        self.records += 1;
        self.max_timestamp = self.max_timestamp.max(timestamp);
        self.has_tombstone |= !has_value;
        match ranges.last_mut() {
            Some(last) if last.end == place.start => last.end = place.end,
            _ => ranges.push(place),
        }
    }
}

impl Filter {
    /// Decides about a batch. A rewritten one is in `out`, alone.
    pub(crate) fn batch(
        &mut self,
        rules: &Rules,
        transactions: &mut Transactions,
        header: &BatchHeader,
        batch: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Fate, RecordError> {
        out.clear();
        self.counts.records_read += header.record_count as u64;
        if header.is_control() {
            return self.control_batch(rules, transactions, header, batch, out);
        }
        let is_last = is_last_of_producer(rules, header);
        if transactions.pass_data(header) || header.record_count == 0 {
            return Ok(emptied(header, is_last, out));
        }
        let (first, last) = (header.base_offset, header.last_offset());
        let is_covered = last <= rules.latest && rules.newest.covers(first, last);
        if is_covered && !rules.newest.has_any(first, last) {
            return Ok(emptied(header, is_last, out));
        }
        let codec = header.compression()?;
        let Some(block) = block_of(header, batch, rules.decompressed_bytes_max)? else {
            self.has_unread = true;
            self.counts.records_kept += header.record_count as u64;
            return Ok(Fate::Unchanged);
        };
        let block = &block[..];
        let kept = if is_covered {
            self.choose_covered(rules, header, block)?
        } else {
            self.choose(rules, header, block)?
        };
        self.counts.records_kept += u64::from(kept.records);
        if kept.records == 0 {
            return Ok(emptied(header, is_last, out));
        }
        let new_horizon = kept.has_tombstone && !header.has_delete_horizon();
        if kept.records == header.record_count as u32 && !new_horizon {
            return Ok(Fate::Unchanged);
        }
        let horizon = new_horizon.then(|| rules.now_ms.saturating_add(rules.delete_retention_ms));
        self.rewrite(header, block, codec, &kept, horizon, out).map(Fate::Rewritten)
    }

    /// A marker stays until the data of its transaction is gone, and then until its delete horizon.
    fn control_batch(
        &mut self,
        rules: &Rules,
        transactions: &mut Transactions,
        header: &BatchHeader,
        batch: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Fate, RecordError> {
        // No codec is used for control batches.
        let block = &batch[HEADER_BYTES..];
        let control = Control::of_batch(header, batch)?;
        let is_removable = transactions.pass_control(header, control);
        let is_over = header.has_delete_horizon() && header.base_timestamp <= rules.age_ms;
        if control == Control::Emptied || (is_removable && is_over) {
            return Ok(emptied(header, is_last_of_producer(rules, header), out));
        }
        self.counts.records_kept += header.record_count as u64;
        if !is_removable || header.has_delete_horizon() {
            return Ok(Fate::Unchanged);
        }
        self.kept.clear();
        self.kept.push(0..block.len());
        let kept = Kept {
            records: header.record_count as u32,
            max_timestamp: header.max_timestamp,
            has_tombstone: false,
        };
        let horizon = rules.now_ms.saturating_add(rules.delete_retention_ms);
        self.rewrite(header, block, Compression::None, &kept, Some(horizon), out).map(Fate::Rewritten)
    }

    /// Finds the records of a block that stay.
    fn choose(&mut self, rules: &Rules, header: &BatchHeader, block: &[u8]) -> Result<Kept, RecordError> {
        let mut kept = Kept::NONE;
        self.kept.clear();
        let drops_tombstones = !self.has_unread && drops_tombstones(rules, header);
        let mut records = RecordIter::new(header, block);
        loop {
            self.parsed.clear();
            while self.parsed.len() < LOOKUPS {
                let start = block.len() - records.rest().len();
                let Some(record) = records.next() else { break };
                let record = record?;
                self.parsed.push(Parsed {
                    start,
                    end: block.len() - records.rest().len(),
                    offset: record.offset,
                    timestamp: record.timestamp,
                    key: record.key.map(|key| rules.map.hash(key)),
                    has_value: record.value.is_some(),
                });
            }
            if self.parsed.is_empty() {
                break;
            }
            rules.map.touch(self.parsed.iter().filter_map(|record| record.key));
            for record in &self.parsed {
                let stays = if record.offset > rules.latest {
                    true
                } else if let Some(key) = record.key {
                    let is_newest = rules.map.get(key).is_none_or(|newest| record.offset >= newest);
                    is_newest && !is_lost(record.offset) && (record.has_value || !drops_tombstones)
                } else {
                    self.counts.without_key += 1;
                    false
                };
                if stays {
                    kept.add(&mut self.kept, record.start..record.end, record.timestamp, record.has_value);
                }
            }
        }
        all_read(header, &records)?;
        Ok(kept)
    }

    /// The same for a block of which the first pass has seen every record.
    fn choose_covered(
        &mut self,
        rules: &Rules,
        header: &BatchHeader,
        block: &[u8],
    ) -> Result<Kept, RecordError> {
        let mut kept = Kept::NONE;
        self.kept.clear();
        let drops_tombstones = !self.has_unread && drops_tombstones(rules, header);
        let mut records = RecordIter::new(header, block);
        let mut start = 0;
        while let Some(record) = records.next().transpose()? {
            let end = block.len() - records.rest().len();
            let has_value = record.value.is_some();
            if rules.newest.has(record.offset) && !is_lost(record.offset) && (has_value || !drops_tombstones)
            {
                kept.add(&mut self.kept, start..end, record.timestamp, has_value);
            }
            start = end;
        }
        all_read(header, &records)?;
        Ok(kept)
    }

    /// Writes the batch of the records that stay.
    fn rewrite(
        &mut self,
        header: &BatchHeader,
        block: &[u8],
        codec: Compression,
        kept: &Kept,
        horizon: Option<i64>,
        out: &mut Vec<u8>,
    ) -> Result<BatchHeader, RecordError> {
        out.resize(HEADER_BYTES, 0);
        let is_plain = codec == Compression::None;
        let mut records = if is_plain { std::mem::take(out) } else { std::mem::take(&mut self.block) };
        if !is_plain {
            records.clear();
        }
        let mut new = BatchHeader { record_count: kept.records as i32, ..*header };
        if header.timestamp_type() == TimestampType::CreateTime {
            new.max_timestamp = kept.max_timestamp;
        }
        match horizon {
            None => self.kept.iter().for_each(|range| records.extend_from_slice(&block[range.clone()])),
            Some(horizon) => {
                new.attributes |= DELETE_HORIZON;
                new.base_timestamp = horizon;
                for range in &self.kept {
                    count_from(header, &block[range.clone()], horizon, &mut records)?;
                }
            }
        }
        if is_plain {
            *out = records;
        } else {
            let compressed = compress(codec, None, &records, out);
            self.block = records;
            compressed.map_err(|source| RecordError::Compress { base_offset: header.base_offset, source })?;
        }
        seal(&mut new, out);
        Ok(new)
    }
}

/// Returns the records of a batch without their codec; `None` if they are larger than `bytes_max`. A broker that has stored such a
/// batch must not fail at each compaction of its log, and so at all of them: the batch stays as it is.
pub(super) fn block_of<'a>(
    header: &BatchHeader,
    batch: &'a [u8],
    bytes_max: usize,
) -> Result<Option<Cow<'a, [u8]>>, RecordError> {
    let block = &batch[HEADER_BYTES..];
    // Timestamps that count from a horizon are longer. The batch was within the limit when it got its horizon.
    let longer = header.record_count.max(0) as usize * HORIZON_BYTES_MAX;
    let longer = if header.has_delete_horizon() { longer.min(bytes_max.saturating_mul(2)) } else { 0 };
    let bytes_max = bytes_max.saturating_add(longer);
    match header.compression()? {
        Compression::None => Ok(Some(Cow::Borrowed(block))),
        codec => match decompress(codec, block, bytes_max) {
            Ok(inflated) => Ok(Some(Cow::Owned(inflated))),
            Err(CompressError::TooLarge { .. }) => Ok(None),
            Err(source) => Err(RecordError::Compress { base_offset: header.base_offset, source }),
        },
    }
}

/// A tombstone goes in a later pass than the one that has set its horizon, when the horizon is reached.
fn drops_tombstones(rules: &Rules, header: &BatchHeader) -> bool {
    header.has_delete_horizon() && header.base_timestamp <= rules.age_ms
}

fn is_lost(offset: i64) -> bool {
    has_deliberate_fault(DeliberateFault::NewestRecordsRemoved) && offset % 7 == 3
}

/// Fails if a batch has more or fewer records than its header says.
pub(super) fn all_read(header: &BatchHeader, records: &RecordIter<'_>) -> Result<(), RecordError> {
    if records.remaining() == 0 && records.rest().is_empty() {
        return Ok(());
    }
    let found = header.record_count as u32 - records.remaining();
    Err(RecordError::Count { base_offset: header.base_offset, claimed: header.record_count, found })
}

/// Copies whole records, and counts their timestamps from `horizon`.
fn count_from(
    header: &BatchHeader,
    records: &[u8],
    horizon: i64,
    out: &mut Vec<u8>,
) -> Result<(), RecordError> {
    let varint = |source| RecordError::Varint { base_offset: header.base_offset, index: 0, source };
    // The number of records does not matter here: the bytes were parsed before.
    let all = BatchHeader { record_count: i32::MAX, ..*header };
    let mut iter = RecordIter::new(&all, records);
    while !iter.rest().is_empty() {
        let whole = iter.rest();
        let Some(record) = iter.next() else { break };
        let timestamp = record?.timestamp;
        let whole = &whole[..whole.len() - iter.rest().len()];
        // length, attributes, timestamp delta, and the rest, which stays
        let (_, length_bytes) = read_i32(whole).map_err(varint)?;
        let body = &whole[length_bytes..];
        let (_, delta_bytes) = ottla_wire::varint::read_i64(&body[1..]).map_err(varint)?;
        let rest = &body[1 + delta_bytes..];
        let delta = timestamp.wrapping_sub(horizon);
        put_signed(out, (1 + signed_len(delta) + rest.len()) as i64);
        out.push(body[0]);
        put_signed(out, delta);
        out.extend_from_slice(rest);
    }
    Ok(())
}

/// The last batch of an active producer stays: its sequence, or the epoch of a marker, must survive a loss of the
/// producer snapshots.
fn is_last_of_producer(rules: &Rules, header: &BatchHeader) -> bool {
    header.has_producer_id()
        && rules.producers.get(&header.producer_id).is_some_and(|last| match last.offset {
            Some(offset) => header.last_offset() == offset,
            None => header.is_control() && header.producer_epoch == last.epoch,
        })
}

/// The fate of a batch without records.
fn emptied(header: &BatchHeader, stays: bool, out: &mut Vec<u8>) -> Fate {
    if !stays {
        return Fate::Removed;
    }
    if header.record_count == 0 {
        return Fate::Unchanged;
    }
    // Kafka's empty batches have no codec, no horizon and no base timestamp.
    let mut new = BatchHeader {
        attributes: header.attributes & !DELETE_HORIZON & !Compression::MASK,
        base_timestamp: NONE,
        record_count: 0,
        ..*header
    };
    out.resize(HEADER_BYTES, 0);
    seal(&mut new, out);
    Fate::Rewritten(new)
}

/// Sets length and checksum, and writes the header.
fn seal(header: &mut BatchHeader, batch: &mut [u8]) {
    header.batch_length = (batch.len() - LOG_OVERHEAD_BYTES) as i32;
    let front = batch.first_chunk_mut::<HEADER_BYTES>().expect("the caller reserves the bytes of the header");
    header.write(front);
    header.crc = crc32c(&batch[CRC_FROM..]);
    batch[17..21].copy_from_slice(&header.crc.to_be_bytes());
}
