//! Reading records out of a v2 batch without copying them.

use bytes::Bytes;

use crate::batch::{BatchError, BatchHeader, Compression, HEADER_BYTES, TimestampType};
use crate::compress::{self, CompressError};
use crate::varint::{VarintError, read_i32, read_i64};

/// Why the records of a batch cannot be read.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum RecordError {
    /// The batch around the records is not one.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// The codec refused, or the cap was passed.
    #[error("batch at offset {base_offset}: {source}")]
    Compress {
        /// The batch's base offset.
        base_offset: i64,
        /// What the codec said.
        source: CompressError,
    },
    /// A number inside a record is not a varint.
    #[error("batch at offset {base_offset}, record {index}: {source}")]
    Varint {
        /// The batch's base offset.
        base_offset: i64,
        /// Which record, from 0.
        index: u32,
        /// What is wrong with it.
        source: VarintError,
    },
    /// A length inside a record contradicts the bytes around it.
    #[error("batch at offset {base_offset}, record {index}: {what} of {length} bytes where {left} are left")]
    Length {
        /// The batch's base offset.
        base_offset: i64,
        /// Which record, from 0.
        index: u32,
        /// Which length.
        what: &'static str,
        /// The length claimed.
        length: i64,
        /// The bytes there are.
        left: usize,
    },
    /// The header promises another number of records than there are, or offsets that are not those of the records.
    #[error("batch at offset {base_offset}: header says {claimed} records, {found} found")]
    Count {
        /// The batch's base offset.
        base_offset: i64,
        /// Records claimed.
        claimed: i32,
        /// Records found.
        found: u32,
    },
}

/// One record, borrowed from its batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RecordRef<'a> {
    /// Its offset in the partition.
    pub offset: i64,
    /// Milliseconds since 1970; -1 if it has none.
    pub timestamp: i64,
    /// The key; `None` is null.
    pub key: Option<&'a [u8]>,
    /// The value; `None` is null, a tombstone in a compacted topic.
    pub value: Option<&'a [u8]>,
    /// The headers, decoded when walked.
    pub headers: HeadersRef<'a>,
}

/// The headers of a record, in order.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HeadersRef<'a> {
    count: u32,
    bytes: &'a [u8],
}

impl<'a> HeadersRef<'a> {
    /// How many there are.
    pub const fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The same without the first one.
    pub fn after_first(self) -> Self {
        let mut rest = self.bytes;
        let first = take_field(&mut rest).and_then(|_| take_field(&mut rest));
        first.map_or_else(Self::default, |_| Self { count: self.count.saturating_sub(1), bytes: rest })
    }

    /// Walks names and values; their lengths were checked when the record was read.
    pub fn iter(&self) -> impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)> + use<'a> {
        let mut rest = self.bytes;
        (0..self.count).map_while(move |_| {
            let name = take_field(&mut rest)??;
            let value = take_field(&mut rest)?;
            Some((name, value))
        })
    }
}

/// The records of one batch, decompressed if they had to be: an owned, shareable block.
#[derive(Clone, Debug)]
pub struct Records {
    header: BatchHeader,
    block: Bytes,
}

impl Records {
    /// The records of the whole batch at the front of `batch`.
    ///
    /// Uncompressed records stay slices of `batch`; others are decompressed up to `cap` bytes. The checksum is the
    /// caller's to verify: it may have been, at another layer.
    pub fn of_batch(batch: &Bytes, cap: usize) -> Result<Self, RecordError> {
        Self::of_batch_in(batch, cap, Bytes::from)
    }

    /// The same for who keeps account of what is decompressed: `keep` makes bytes of it.
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

    /// The decompressed records: what [`RecordRef`]s point into.
    pub const fn block(&self) -> &Bytes {
        &self.block
    }

    /// Walks the records. After an error the walk ends.
    #[inline]
    pub fn iter(&self) -> RecordIter<'_> {
        RecordIter::new(&self.header, &self.block)
    }

    /// The record at `mark`, which moves behind it: a walk that borrows nothing between two records. After an error
    /// the walk ends.
    #[inline]
    pub fn next_at(&self, mark: &mut Mark) -> Option<Result<RecordRef<'_>, RecordError>> {
        let mut iter = RecordIter::new(&self.header, &self.block[mark.bytes..]);
        iter.index = mark.index;
        let record = iter.next();
        mark.bytes = self.block.len() - iter.rest.len();
        mark.index = if matches!(record, Some(Err(_))) { u32::MAX } else { iter.index };
        record
    }

    /// Walks from a mark on.
    #[inline]
    pub fn iter_from(&self, mark: &Mark) -> RecordIter<'_> {
        let mut iter = RecordIter::new(&self.header, &self.block[mark.bytes..]);
        iter.index = mark.index;
        iter
    }

    /// Where a walk over this block is: what [`Records::iter_from`] goes on from.
    #[inline]
    pub fn mark_of(&self, iter: &RecordIter<'_>) -> Mark {
        Mark { bytes: self.block.len() - iter.rest.len(), index: iter.index }
    }

    /// Moves `mark` over `count` records, of which only the lengths are read.
    pub fn skip_at(&self, mark: &mut Mark, count: u32) -> Result<(), RecordError> {
        let mut iter = self.iter_from(mark);
        for _ in 0..count.min(self.left(mark)) {
            iter.body()?;
            iter.index += 1;
        }
        *mark = self.mark_of(&iter);
        Ok(())
    }

    /// How many records the walk with this mark has still to come.
    pub const fn left(&self, mark: &Mark) -> u32 {
        (self.header.record_count as u32).saturating_sub(mark.index)
    }

    /// Whether the walk with this mark has more to come.
    #[inline]
    pub const fn has_more(&self, mark: &Mark) -> bool {
        self.header.record_count > 0 && mark.index < self.header.record_count as u32
    }

    /// Checks every record: lengths, count, and that offsets rise up to the header's last one.
    pub fn validate(&self) -> Result<(), RecordError> {
        validate_block(&self.header, &self.block)
    }
}

/// How far a walk by [`Records::next_at`] is: at first, at the beginning.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mark {
    bytes: usize,
    index: u32,
}

impl Mark {
    /// How many of the block's bytes lie before it.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether the walk with this mark is further than the one with the other.
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

/// [`Records::validate`] for records that lie uncompressed in borrowed memory.
pub fn validate_block(header: &BatchHeader, block: &[u8]) -> Result<(), RecordError> {
    let mut iter = RecordIter::new(header, block);
    let mut found = 0;
    let mut last = -1;
    for record in &mut iter {
        let delta = record?.offset - header.base_offset;
        // A producer's batch is dense; gaps appear only when a log is compacted.
        if delta != last + 1 {
            return Err(RecordError::Count {
                base_offset: header.base_offset,
                claimed: header.record_count,
                found,
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

/// Walks the records of a block. Made by [`Records::iter`], or over a block held elsewhere.
#[derive(Clone, Debug)]
pub struct RecordIter<'a> {
    rest: &'a [u8],
    base_offset: i64,
    base_timestamp: i64,
    /// With the broker's clock all records have the batch's time.
    append_time: Option<i64>,
    count: u32,
    index: u32,
}

impl<'a> RecordIter<'a> {
    /// Walks `block`, the decompressed records of the batch with this `header`.
    pub fn new(header: &BatchHeader, block: &'a [u8]) -> Self {
        Self {
            rest: block,
            base_offset: header.base_offset,
            base_timestamp: header.base_timestamp,
            append_time: (header.timestamp_type() == TimestampType::LogAppendTime)
                .then_some(header.max_timestamp),
            count: header.record_count.max(0) as u32,
            index: 0,
        }
    }

    /// Records not walked yet.
    pub const fn remaining(&self) -> u32 {
        self.count - self.index
    }

    /// Bytes not walked yet; after the last record of a sound batch there are none.
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    #[inline]
    fn read(&mut self) -> Result<RecordRef<'a>, RecordError> {
        let body = self.body()?;
        // Nearly every record has one-byte deltas and lengths: `read_*` take that branch first.
        let (_attributes, rest) = body.split_first().ok_or_else(|| self.length("record", 0, 0))?;
        let (timestamp_delta, n) = read_i64(rest).map_err(|source| self.varint(source))?;
        let rest = &rest[n..];
        let (offset_delta, n) = read_i32(rest).map_err(|source| self.varint(source))?;
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
            timestamp: self.append_time.unwrap_or_else(|| self.base_timestamp.wrapping_add(timestamp_delta)),
            key,
            value,
            headers,
        })
    }

    /// Cuts the next record's bytes off the block.
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
        // Each header takes two bytes at least: a larger count cannot be true, and is not looped over.
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
    reason = "the outer one says whether there was a field, the inner one is Kafka's null"
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
        batch.push(10, Some(b"k"), Some(b"v"), &[("a", Some(b"1")), ("b", None)]);
        batch.push(5, None, Some(&[0; 300]), &[]);
        batch.push(11, Some(b""), None, &[]);
        batch.seal(&Seal::default()).expect("sealed").to_bytes()
    }

    #[test]
    fn keys_headers_and_timestamps_come_back() {
        let records = Records::of_batch(&sample(), 0).expect("a batch");
        let all: Vec<_> = records.iter().collect::<Result<_, _>>().expect("records");
        let headers: Vec<_> = all[0].headers.iter().collect();
        assert_eq!(headers, [(&b"a"[..], Some(&b"1"[..])), (&b"b"[..], None)]);
        assert_eq!(all.iter().map(|r| r.timestamp).collect::<Vec<_>>(), [10, 5, 11]);
        assert_eq!((all[2].key, all[2].value), (Some(&b""[..]), None));
        records.validate().expect("a batch we made is valid");
    }

    #[test]
    fn a_byte_changed_anywhere_never_panics_and_wrong_counts_are_found() {
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

    #[test]
    fn a_claimed_header_count_is_not_looped_over() {
        let mut block = vec![0_u8, 0, 0, 1, 1]; // attributes, deltas, null key, null value
        crate::varint::put_signed(&mut block, i64::from(i32::MAX));
        let mut record = Vec::new();
        crate::varint::put_signed(&mut record, block.len() as i64);
        record.extend(&block);
        let header = *Records::of_batch(&sample(), 0).expect("a batch").header();
        let error = RecordIter::new(&header, &record).next().expect("one").expect_err("no such headers");
        assert!(matches!(error, RecordError::Length { what: "headers", .. }));
    }
}
