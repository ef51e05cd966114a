//! Reads records from a v2 batch without copying them.

use std::cmp::Ordering;

use bytes::Bytes;

use crate::batch::{BatchError, BatchHeader, Compression, HEADER_BYTES, TimestampType};
use crate::compress::{self, CompressError};
use crate::varint::{VarintError, read_i32, read_i64};

/// An error in the records of a batch.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum RecordError {
    /// The batch header is invalid.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// The codec returned an error, or the decompressed size exceeds the cap.
    #[error("batch at offset {base_offset}: {source}")]
    Compress {
        /// The base offset of the compressed batch.
        base_offset: i64,
        /// The codec's error.
        source: CompressError,
    },
    /// A number inside a record is not a varint.
    #[error("batch at offset {base_offset}, record {index}: {source}")]
    Varint {
        /// The base offset of the record's batch.
        base_offset: i64,
        /// Index of the record, from 0.
        index: u32,
        /// The varint's error.
        source: VarintError,
    },
    /// A length inside a record contradicts the bytes around it.
    #[error("batch at offset {base_offset}, record {index}: {what} of {length} bytes where {left} are left")]
    Length {
        /// The base offset of the record's batch.
        base_offset: i64,
        /// Index of the record, from 0.
        index: u32,
        /// Name of the length field.
        what: &'static str,
        /// The declared length.
        length: i64,
        /// Bytes remaining.
        left: usize,
    },
    /// The record count or the offsets in the header do not match the records.
    #[error("batch at offset {base_offset}: header says {claimed} records, {found} found")]
    Count {
        /// The base offset in the header.
        base_offset: i64,
        /// Record count in the header.
        claimed: i32,
        /// Records found.
        found: u32,
    },
    /// The offset of a record is outside of the batch, not after that of the record before it, or behind a gap that a producer's
    /// batch must not have.
    #[error(
        "batch at offset {base_offset}, record {index}: offset delta {delta}, expected {}",
        deltas(*min, *max)
    )]
    OffsetDelta {
        /// The base offset of the record's batch.
        base_offset: i64,
        /// Index of the record, from 0.
        index: u32,
        /// The record's offset, relative to the batch's.
        delta: i32,
        /// The least one that it can have.
        min: u32,
        /// The largest one that it can have.
        max: u32,
    },
}

fn deltas(min: u32, max: u32) -> String {
    match min.cmp(&max) {
        Ordering::Less => format!("{min} to {max}"),
        Ordering::Equal => format!("{min}"),
        Ordering::Greater => format!("none after {max}, the header's last one"),
    }
}

/// One record, borrowed from its batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RecordRef<'a> {
    /// The record's offset in the partition.
    pub offset: i64,
    /// Milliseconds since 1970; -1 if the record has no timestamp.
    pub timestamp: i64,
    /// The key; `None` is null.
    pub key: Option<&'a [u8]>,
    /// The value; `None` is null, a tombstone in a compacted topic.
    pub value: Option<&'a [u8]>,
    /// The headers, decoded on iteration.
    pub headers: HeadersRef<'a>,
}

/// The headers of a record, in order.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HeadersRef<'a> {
    count: u32,
    bytes: &'a [u8],
}

impl<'a> HeadersRef<'a> {
    /// The number of headers.
    pub const fn len(&self) -> usize {
        self.count as usize
    }

    /// `true` if the record has no headers.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The size of the encoded headers in bytes.
    pub const fn encoded_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Iterates over names and values. Their lengths were checked when the record was read.
    pub fn iter(&self) -> impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)> + use<'a> {
        let mut rest = self.bytes;
        (0..self.count).map_while(move |_| {
            let name = take_field(&mut rest)??;
            let value = take_field(&mut rest)?;
            Some((name, value))
        })
    }
}

/// The records of one batch, decompressed if necessary: an owned, shareable block.
#[derive(Clone, Debug)]
pub struct Records {
    header: BatchHeader,
    block: Bytes,
}

impl Records {
    /// Reads the records of the whole batch at the front of `batch`.
    ///
    /// Uncompressed records remain slices of `batch`; others are decompressed, up to `cap` bytes. The caller verifies
    /// the checksum, because another layer may have done it already.
    pub fn of_batch(batch: &Bytes, cap: usize) -> Result<Self, RecordError> {
        Self::of_batch_in(batch, cap, Bytes::from)
    }

    /// Like [`Records::of_batch`]; `keep` converts decompressed memory to `Bytes`, so that the caller can account for
    /// it.
    pub fn of_batch_in(
        batch: &Bytes,
        cap: usize,
        keep: impl FnOnce(Vec<u8>) -> Bytes,
    ) -> Result<Self, RecordError> {
        let header = BatchHeader::parse(batch)?;
        let total = header.total_bytes();
        if batch.len() < total {
            return Err(BatchError::Truncated { have: batch.len(), need: total }.into());
        }
        let compression = header.compression()?;
        let block = if compression == Compression::None {
            batch.slice(HEADER_BYTES..total)
        } else {
            compress::decompress(compression, &batch[HEADER_BYTES..total], cap)
                .map(keep)
                .map_err(|source| RecordError::Compress { base_offset: header.base_offset, source })?
        };
        Ok(Self { header, block })
    }

    /// The batch's header.
    pub const fn header(&self) -> &BatchHeader {
        &self.header
    }

    /// The decompressed records, into which [`RecordRef`]s point.
    pub const fn block(&self) -> &Bytes {
        &self.block
    }

    /// Iterates over the records. The iteration ends after an error.
    #[inline]
    pub fn iter(&self) -> RecordIter<'_> {
        RecordIter::new(&self.header, &self.block)
    }

    /// Reads the record at `mark` and advances the mark. Nothing stays borrowed between two records. After an error
    /// no record follows.
    #[inline]
    pub fn next_at(&self, mark: &mut Mark) -> Option<Result<RecordRef<'_>, RecordError>> {
        let mut iter = self.iter_from(mark);
        let record = iter.next();
        *mark = self.mark_of(&iter);
        if matches!(record, Some(Err(_))) {
            mark.index = u32::MAX;
        }
        record
    }

    /// Iterates over the records from `mark`.
    #[inline]
    pub fn iter_from(&self, mark: &Mark) -> RecordIter<'_> {
        let mut iter = RecordIter::new(&self.header, &self.block[mark.bytes..]);
        iter.index = mark.index;
        iter.offset_delta_min = mark.offset_delta_min;
        iter
    }

    /// The position of an iterator over this block, for [`Records::iter_from`].
    #[inline]
    pub fn mark_of(&self, iter: &RecordIter<'_>) -> Mark {
        let bytes = self.block.len() - iter.rest.len();
        Mark { bytes, index: iter.index, offset_delta_min: iter.offset_delta_min }
    }

    /// Advances `mark` by `count` records and reads only their lengths.
    pub fn skip_at(&self, mark: &mut Mark, count: u32) -> Result<(), RecordError> {
        let mut iter = self.iter_from(mark);
        for _ in 0..count.min(self.left(mark)) {
            iter.body()?;
            iter.index += 1;
            // Their offsets differ at least by one each.
            iter.offset_delta_min = iter.offset_delta_min.saturating_add(1);
        }
        *mark = self.mark_of(&iter);
        Ok(())
    }

    /// The number of records from `mark` to the end.
    pub const fn left(&self, mark: &Mark) -> u32 {
        (self.header.record_count as u32).saturating_sub(mark.index)
    }

    /// `true` if a record follows `mark`.
    #[inline]
    pub const fn has_more(&self, mark: &Mark) -> bool {
        self.header.record_count > 0 && mark.index < self.header.record_count as u32
    }

    /// Checks every record: its lengths, the count, and that offsets increase up to the last offset of the header.
    pub fn validate(&self) -> Result<(), RecordError> {
        validate_block(&self.header, &self.block)
    }
}

/// A position in [`Records`]; the default is the beginning.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mark {
    bytes: usize,
    index: u32,
    /// The least offset that the next record can have, relative to the batch's.
    offset_delta_min: u32,
}

impl Mark {
    /// The number of the block's bytes before the mark.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// `true` if this mark is further on than `other`.
    #[inline]
    pub const fn is_behind(&self, other: &Self) -> bool {
        self.index > other.index
    }
}

impl<'a> IntoIterator for &'a Records {
    type Item = Result<RecordRef<'a>, RecordError>;
    type IntoIter = RecordIter<'a>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// [`Records::validate`] for uncompressed records in borrowed memory.
pub fn validate_block(header: &BatchHeader, block: &[u8]) -> Result<(), RecordError> {
    let mut iter = RecordIter::new(header, block);
    let mut found = 0;
    let mut last = -1;
    for record in &mut iter {
        let delta = record?.offset - header.base_offset;
        // A producer's batch has no gaps; only compaction creates them.
        if delta != last + 1 {
            return Err(RecordError::OffsetDelta {
                base_offset: header.base_offset,
                index: found,
                delta: delta as i32,
                min: found,
                max: found,
            });
        }
        last = delta;
        found += 1;
    }
    if i64::from(header.last_offset_delta) != last || !iter.rest.is_empty() {
        return Err(RecordError::Count {
            base_offset: header.base_offset,
            claimed: header.record_count,
            found,
        });
    }
    Ok(())
}

/// Iterator over the records of a block, from [`Records::iter`] or [`RecordIter::new`].
#[derive(Clone, Debug)]
pub struct RecordIter<'a> {
    rest: &'a [u8],
    base_offset: i64,
    base_timestamp: i64,
    /// The batch's timestamp, which all records have with `LogAppendTime`.
    append_time: Option<i64>,
    /// The least offset that the next record can have, relative to the batch's.
    offset_delta_min: u32,
    last_offset_delta: u32,
    count: u32,
    index: u32,
}

impl<'a> RecordIter<'a> {
    /// Iterates over `block`, the decompressed records of the batch with this `header`.
    pub fn new(header: &BatchHeader, block: &'a [u8]) -> Self {
        Self {
            rest: block,
            base_offset: header.base_offset,
            base_timestamp: header.base_timestamp,
            append_time: (header.timestamp_type() == TimestampType::LogAppendTime)
                .then_some(header.max_timestamp),
            offset_delta_min: 0,
            last_offset_delta: header.last_offset_delta as u32,
            count: header.record_count.max(0) as u32,
            index: 0,
        }
    }

    /// The iterator for a block that begins with record `index` of the batch.
    pub(crate) const fn skip_to(mut self, index: u32, offset_delta_min: u32) -> Self {
        self.index = index;
        self.offset_delta_min = offset_delta_min;
        self
    }

    /// The timestamp of a record with this delta.
    #[inline]
    pub(crate) fn timestamp_of(&self, delta: i64) -> i64 {
        self.append_time.unwrap_or_else(|| self.base_timestamp.wrapping_add(delta))
    }

    /// Records not yet read.
    pub const fn remaining(&self) -> u32 {
        self.count - self.index
    }

    /// The least offset that the next record can have, relative to the batch's.
    pub const fn offset_delta_min(&self) -> u32 {
        self.offset_delta_min
    }

    /// Bytes not yet read; empty after the last record of a valid batch.
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    #[expect(
        clippy::inline_always,
        reason = "a call writes the record to memory: 30 instructions, a seventh of a read"
    )]
    #[inline(always)]
    fn read(&mut self) -> Result<RecordRef<'a>, RecordError> {
        let body = self.body()?;
        // Nearly every record has one-byte deltas and lengths: `read_*` take that branch first.
        let (_attributes, rest) = body.split_first().ok_or_else(|| self.length("record", 0, 0))?;
        let (timestamp_delta, n) = read_i64(rest).map_err(|source| self.varint(source))?;
        let rest = &rest[n..];
        let (offset_delta, n) = read_i32(rest).map_err(|source| self.varint(source))?;
        // The next offset of a batch is in range, and with this check that of each record. Offsets that do not rise would
        // be returned twice.
        let offset_delta = offset_delta as u32;
        if offset_delta < self.offset_delta_min || offset_delta > self.last_offset_delta {
            return Err(self.outside(offset_delta as i32));
        }
        self.offset_delta_min = offset_delta + 1;
        let rest = &rest[n..];
        let (key, rest) = self.field("key", rest)?;
        let (value, rest) = self.field("value", rest)?;
        let (count, n) = read_i32(rest).map_err(|source| self.varint(source))?;
        let rest = &rest[n..];
        let headers =
            if count == 0 && rest.is_empty() { HeadersRef::default() } else { self.headers(count, rest)? };
        self.index += 1;
        Ok(RecordRef {
            offset: self.base_offset + i64::from(offset_delta),
            timestamp: self.timestamp_of(timestamp_delta),
            key,
            value,
            headers,
        })
    }

    /// Removes the next record's bytes from the front of the block.
    #[inline]
    fn body(&mut self) -> Result<&'a [u8], RecordError> {
        crate::prefetch::to_read(self.rest);
        let (length, n) = read_i32(self.rest).map_err(|source| self.varint(source))?;
        let rest = &self.rest[n..];
        if length < 0 || length as usize > rest.len() {
            return Err(self.length("record", i64::from(length), rest.len()));
        }
        let (body, rest) = rest.split_at(length as usize);
        self.rest = rest;
        Ok(body)
    }

    #[inline]
    fn field(
        &self,
        what: &'static str,
        bytes: &'a [u8],
    ) -> Result<(Option<&'a [u8]>, &'a [u8]), RecordError> {
        let (length, n) = read_i32(bytes).map_err(|source| self.varint(source))?;
        let rest = &bytes[n..];
        if length < 0 {
            return Ok((None, rest));
        }
        if length as usize > rest.len() {
            return Err(self.length(what, i64::from(length), rest.len()));
        }
        let (field, rest) = rest.split_at(length as usize);
        Ok((Some(field), rest))
    }

    fn headers(&self, count: i32, bytes: &'a [u8]) -> Result<HeadersRef<'a>, RecordError> {
        // Each header takes at least two bytes: a larger count is invalid, and is not looped over.
        if count < 0 || count as usize > bytes.len() / 2 {
            return Err(self.length("headers", i64::from(count), bytes.len()));
        }
        let mut rest = bytes;
        for _ in 0..count {
            let (name, after) = self.field("header name", rest)?;
            if name.is_none() {
                return Err(self.length("header name", -1, after.len()));
            }
            (_, rest) = self.field("header value", after)?;
        }
        if !rest.is_empty() {
            return Err(self.length("record", bytes.len() as i64, bytes.len() - rest.len()));
        }
        Ok(HeadersRef { count: count as u32, bytes })
    }

    /// The record's offset is outside of the batch, or not after that of the record before it.
    #[cold]
    pub(crate) fn outside(&self, delta: i32) -> RecordError {
        let (min, max) = (self.offset_delta_min, self.last_offset_delta);
        RecordError::OffsetDelta { base_offset: self.base_offset, index: self.index, delta, min, max }
    }

    #[cold]
    fn varint(&self, source: VarintError) -> RecordError {
        RecordError::Varint { base_offset: self.base_offset, index: self.index, source }
    }

    #[cold]
    fn length(&self, what: &'static str, length: i64, left: usize) -> RecordError {
        RecordError::Length { base_offset: self.base_offset, index: self.index, what, length, left }
    }
}

impl<'a> Iterator for RecordIter<'a> {
    type Item = Result<RecordRef<'a>, RecordError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.index >= self.count {
            return None;
        }
        let record = self.read();
        if record.is_err() {
            self.count = self.index;
        }
        Some(record)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some(self.remaining() as usize))
    }
}

#[expect(
    clippy::option_option,
    reason = "the outer Option is the field's presence, the inner one is Kafka's null"
)]
fn take_field<'a>(rest: &mut &'a [u8]) -> Option<Option<&'a [u8]>> {
    let (length, n) = read_i32(rest).ok()?;
    *rest = &rest[n..];
    if length < 0 {
        return Some(None);
    }
    let (field, after) = rest.split_at_checked(length as usize)?;
    *rest = after;
    Some(Some(field))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builder::BatchBuilder;
    use crate::seal::Seal;

    fn sample() -> Bytes {
        let mut batch = BatchBuilder::new();
        batch.push(10, Some(b"k"), Some(b"v"), &[(b"a", Some(b"1")), (b"b", None)]);
        batch.push(5, None, Some(&[0; 300]), &[]);
        batch.push(11, Some(b""), None, &[]);
        batch.seal(&Seal::default()).expect("sealed").to_bytes()
    }

    #[test]
    fn keys_headers_and_timestamps_are_read() {
        let records = Records::of_batch(&sample(), 0).expect("a batch");
        let all: Vec<_> = records.iter().collect::<Result<_, _>>().expect("records");
        let headers: Vec<_> = all[0].headers.iter().collect();
        assert_eq!(headers, [(&b"a"[..], Some(&b"1"[..])), (&b"b"[..], None)]);
        assert_eq!(all.iter().map(|r| r.timestamp).collect::<Vec<_>>(), [10, 5, 11]);
        assert_eq!((all[2].key, all[2].value), (Some(&b""[..]), None));
        records.validate().expect("a batch we made is valid");
    }

    #[test]
    fn a_changed_byte_never_panics_and_wrong_counts_are_detected() {
        let good = sample();
        for at in 0..good.len() {
            for bit in 0..8 {
                let mut bytes = good.to_vec();
                bytes[at] ^= 1 << bit;
                if let Ok(records) = Records::of_batch(&Bytes::from(bytes), 1 << 16) {
                    for record in records.iter().flatten() {
                        let _ = record.headers.iter().count();
                    }
                    let _ = records.validate();
                }
            }
        }
        let mut bytes = good.to_vec();
        bytes[60] = 2; // record_count
        let records = Records::of_batch(&Bytes::from(bytes), 0).expect("the header is still plausible");
        assert!(matches!(records.validate(), Err(RecordError::Count { claimed: 2, .. })));
    }

    /// A batch with sound lengths whose second record has the first one's offset. The processor, which takes each offset
    /// once, ended with a panic.
    #[test]
    fn an_offset_that_goes_back_inside_a_batch_ends_the_iteration() {
        let mut batch = BatchBuilder::new();
        for value in [b"a", b"b", b"c"] {
            batch.push(10, None, Some(value), &[]);
        }
        let mut bytes = batch.seal(&Seal::default()).expect("sealed").to_bytes().to_vec();
        let third = bytes.len() - 8;
        assert_eq!(bytes[third + 3], 4, "the offset delta 2 of the last record");
        bytes[third + 3] = 2;
        let records = Records::of_batch(&bytes.into(), 0).expect("a batch");
        let offsets: Vec<_> = records.iter().map(|record| record.ok().map(|record| record.offset)).collect();
        assert_eq!(offsets, [Some(0), Some(1), None]);

        let mut mark = Mark::default();
        records.skip_at(&mut mark, 2).expect("two records");
        let error = records.next_at(&mut mark).expect("a record").expect_err("its offset is wrong");
        assert_eq!(error.to_string(), "batch at offset 0, record 2: offset delta 1, expected 2");
        assert!(records.next_at(&mut mark).is_none());
    }

    #[test]
    fn an_impossible_header_count_is_not_looped_over() {
        let mut block = vec![0_u8, 0, 0, 1, 1]; // attributes, deltas, null key, null value
        crate::varint::put_signed(&mut block, i64::from(i32::MAX));
        let mut record = Vec::new();
        crate::varint::put_signed(&mut record, block.len() as i64);
        record.extend(&block);
        let header = *Records::of_batch(&sample(), 0).expect("a batch").header();
        let error = RecordIter::new(&header, &record).next().expect("one").expect_err("no such headers");
        assert!(matches!(error, RecordError::Length { what: "headers", .. }));
    }

    /// Found by the fuzz target `batch`: the sum overflowed.
    #[test]
    fn a_record_past_the_last_possible_offset_is_not_valid() {
        let mut builder = BatchBuilder::new();
        builder.push(0, None, None, &[]);
        builder.push_at(100, 0, None, None, &[]);
        let bytes = builder.seal(&Seal::default()).expect("sealed").to_bytes();
        let mut header = BatchHeader::parse(&bytes).expect("a header");
        header.base_offset = i64::MAX - 2;
        header.last_offset_delta = 1;
        let block = &bytes[HEADER_BYTES..];
        assert_eq!(RecordIter::new(&header, block).flatten().count(), 1);
        assert!(validate_block(&header, block).is_err());
    }
}
