//! Writes a v2 record batch. Each record is copied once, into the batch's own buffer, with no allocation per record.

use bytes::Bytes;

use crate::batch::{Compression, HEADER_BYTES, LOG_OVERHEAD_BYTES};
use crate::buffer::Buffer;
use crate::compress::{self, CompressError};
use crate::prefetch;
use crate::seal::{Body, Closed, Seal, Sealed, Summed, splice, splice_frozen};
use crate::varint::{signed_len, unsigned_len, write_signed, zigzag};

/// A record header: a name and an optional value. Names need not be unique. They are UTF-8 by the protocol, but brokers and
/// librdkafka pass any bytes on.
pub type HeaderRef<'a> = (&'a [u8], Option<&'a [u8]>);

/// Size of a batch's first buffer; it doubles as records are added.
const CAPACITY_MIN: usize = 1024;

/// A batch that accepts records.
///
/// The first 61 bytes of the buffer are reserved for the header, which is written when the batch is sealed. Payloads
/// added with [`BatchBuilder::push_shared`] are not copied: they become pieces of the batch's chain.
///
/// ```
/// use ottla_wire::{BatchBuilder, Records, Seal};
///
/// let mut batch = BatchBuilder::new();
/// batch.push(1_700_000_000_000, Some(b"key"), Some(b"value"), &[(b"trace", Some(b"1"))]);
/// batch.push(1_700_000_000_001, None, None, &[]);
/// let sealed = batch.seal(&Seal::default()).expect("no codec, no error");
///
/// let bytes = sealed.to_bytes();
/// let block = Records::of_batch(&bytes, 1 << 20)?;
/// let records: Vec<_> = block.iter().collect::<Result<_, _>>()?;
/// assert_eq!(records[0].value, Some(&b"value"[..]));
/// assert_eq!(records[1].offset, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct BatchBuilder {
    buffer: Buffer,
    at: usize,
    /// Payloads that are not copied, each with its position in the buffer.
    shared: Vec<(usize, Bytes)>,
    shared_bytes: usize,
    count: u32,
    last_offset_delta: i32,
    base_timestamp: i64,
    max_timestamp: i64,
    summed: Summed,
}

impl BatchBuilder {
    /// An empty batch without an allocation. Its buffer doubles as records are added.
    pub fn new() -> Self {
        Self::in_buffer(Buffer::default())
    }

    /// An empty batch that uses the whole of `buffer`.
    pub fn in_buffer(buffer: Buffer) -> Self {
        Self {
            buffer,
            at: HEADER_BYTES,
            shared: Vec::new(),
            shared_bytes: 0,
            count: 0,
            last_offset_delta: -1,
            base_timestamp: -1,
            max_timestamp: -1,
            summed: Summed::new(false),
        }
    }

    /// Computes the checksum while records are added and still in the CPU cache. Use it for a batch that is not
    /// compressed.
    #[must_use]
    pub fn summing(mut self) -> Self {
        self.summed = Summed::new(true);
        self
    }

    /// Moves the written bytes to a larger buffer; the old one returns to its home.
    ///
    /// # Panics
    /// If `buffer` is too small for the written bytes.
    pub fn move_to(&mut self, mut buffer: Buffer) {
        let written = self.at.min(self.buffer.bytes.len());
        buffer.bytes[..written].copy_from_slice(&self.buffer.bytes[..written]);
        self.buffer = buffer;
    }

    /// `true` if a record of at most `record_bytes` fits without more memory.
    #[inline]
    pub fn has_room(&self, record_bytes: usize) -> bool {
        self.at + record_bytes <= self.buffer.bytes.len()
    }

    /// Records in the batch.
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// `true` if the batch holds no records.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Uncompressed size of the batch, header included.
    pub const fn len(&self) -> usize {
        self.at + self.shared_bytes
    }

    /// Memory that the batch holds: its buffer's capacity and the payloads added without a copy.
    pub fn memory(&self) -> usize {
        self.buffer.bytes.len() + self.shared_bytes
    }

    /// Timestamp of the first record, or -1.
    pub const fn base_timestamp(&self) -> i64 {
        self.base_timestamp
    }

    /// The most bytes a record with these parts can take in a batch of any size.
    pub fn record_bytes_max(key: Option<&[u8]>, value: Option<&[u8]>, headers: &[HeaderRef<'_>]) -> usize {
        let parts = key.map_or(0, <[u8]>::len) + value.map_or(0, <[u8]>::len);
        // length 5, attributes 1, timestamp delta 10, offset delta 5, two lengths of 5, header count 5
        36 + parts
            + headers
                .iter()
                .map(|(name, value)| 10 + name.len() + value.map_or(0, <[u8]>::len))
                .sum::<usize>()
    }

    /// Appends a record at the next offset; key and value are copied into the batch.
    #[inline]
    pub fn push(
        &mut self,
        timestamp_ms: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[HeaderRef<'_>],
    ) {
        self.push_at(self.last_offset_delta + 1, timestamp_ms, key, value, headers);
    }

    /// Appends a record at `offset_delta`, which must be greater than all before it.
    #[inline]
    pub fn push_at(
        &mut self,
        offset_delta: i32,
        timestamp_ms: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[HeaderRef<'_>],
    ) {
        let delta = self.note(offset_delta, timestamp_ms);
        let body = record_body_bytes(delta, offset_delta, key, value, headers);
        let total = unsigned_len(zigzag(body as i64)) + body;
        self.reserve(total);
        prefetch::ahead_of(&self.buffer.bytes, self.at);
        let mut out = Cursor { buf: &mut self.buffer.bytes[self.at..self.at + total], at: 0 };
        out.varint(body as i64);
        out.byte(0);
        out.varint(delta);
        out.varint(i64::from(offset_delta));
        out.field(key);
        out.field(value);
        out.headers(headers);
        debug_assert_eq!(out.at, total, "a record takes the bytes that were computed for it");
        self.at += total;
        if self.at >= self.summed.next {
            self.summed.go_on(&self.buffer.bytes[..self.at]);
        }
    }

    /// Appends a record without copying its value: the value becomes a piece of the batch's chain.
    ///
    /// It pays off from a few KiB: below that, a copy costs less than another segment of the vectored write.
    pub fn push_shared(
        &mut self,
        timestamp_ms: i64,
        key: Option<&[u8]>,
        value: Bytes,
        headers: &[HeaderRef<'_>],
    ) {
        let offset_delta = self.last_offset_delta + 1;
        let delta = self.note(offset_delta, timestamp_ms);
        let body = record_body_bytes(delta, offset_delta, key, Some(&value), headers);
        let inline = unsigned_len(zigzag(body as i64)) + body - value.len();
        self.reserve(inline);
        let mut out = Cursor { buf: &mut self.buffer.bytes[self.at..self.at + inline], at: 0 };
        out.varint(body as i64);
        out.byte(0);
        out.varint(delta);
        out.varint(i64::from(offset_delta));
        out.field(key);
        out.varint(value.len() as i64);
        let splice = self.at + out.at;
        out.headers(headers);
        self.at += inline;
        self.shared_bytes += value.len();
        self.shared.push((splice, value));
        // The records are no longer contiguous: `seal` computes the checksum.
        self.summed = Summed::new(false);
    }

    /// Closes the batch and writes header and checksum: [`BatchBuilder::close`], then [`Closed::seal`].
    ///
    /// # Errors
    /// [`CompressError::Level`] for a level that the codec does not have.
    pub fn seal(self, seal: &Seal) -> Result<Sealed, CompressError> {
        Ok(self.close(seal.compression, seal.level, false)?.seal(seal))
    }

    /// Closes the batch and compresses it. A batch that does not shrink stays uncompressed.
    ///
    /// With `keep_records` the uncompressed records stay available from [`Sealed::records`].
    ///
    /// # Errors
    /// [`CompressError::Level`] for a level that the codec does not have.
    pub fn close(
        mut self,
        compression: Compression,
        level: Option<i32>,
        keep_records: bool,
    ) -> Result<Closed, CompressError> {
        self.reserve(0);
        let mut closed = Closed {
            body: Body::Compressed(Vec::new()),
            compression: Compression::None,
            uncompressed_bytes: self.len() - HEADER_BYTES,
            records: None,
            records_memory: 0,
            count: self.count,
            last_offset_delta: self.last_offset_delta.max(0),
            base_timestamp: self.base_timestamp,
            max_timestamp: self.max_timestamp,
        };
        let Self { mut buffer, at, shared, summed, .. } = self;
        if compression != Compression::None {
            let whole;
            let records = if shared.is_empty() {
                &buffer.bytes[HEADER_BYTES..at]
            } else {
                whole = splice(&buffer.bytes[..at], &shared).to_bytes().unwrap_or_default();
                &whole[HEADER_BYTES..]
            };
            let records_bytes = records.len();
            let mut out = vec![0; HEADER_BYTES];
            compress::compress(compression, level, records, &mut out)?;
            if out.len() < HEADER_BYTES + records_bytes {
                if keep_records {
                    let mut header = closed.header(&Seal::default(), Compression::None);
                    header.batch_length = (HEADER_BYTES + records_bytes - LOG_OVERHEAD_BYTES) as i32;
                    if let Some(front) = buffer.bytes.first_chunk_mut::<HEADER_BYTES>() {
                        header.write(front);
                    }
                    // A slice keeps its whole buffer alive; shared payloads are copied into one contiguous piece.
                    closed.records_memory =
                        if shared.is_empty() { buffer.bytes.len() } else { HEADER_BYTES + records_bytes };
                    let kept = splice_frozen(buffer.freeze(at), shared);
                    closed.records = Some(kept.to_bytes().unwrap_or_default());
                }
                closed.body = Body::Compressed(out);
                closed.compression = compression;
                return Ok(closed);
            }
        }
        closed.body = Body::Plain { buffer, at, shared, summed };
        Ok(closed)
    }

    /// Counts a record and returns its timestamp delta.
    #[inline]
    fn note(&mut self, offset_delta: i32, timestamp_ms: i64) -> i64 {
        debug_assert!(offset_delta > self.last_offset_delta, "offsets rise");
        if self.count == 0 {
            self.base_timestamp = timestamp_ms;
            self.max_timestamp = timestamp_ms;
        } else if timestamp_ms > self.max_timestamp {
            self.max_timestamp = timestamp_ms;
        }
        self.count += 1;
        self.last_offset_delta = offset_delta;
        timestamp_ms.wrapping_sub(self.base_timestamp)
    }

    #[inline]
    fn reserve(&mut self, more: usize) {
        if !self.has_room(more) {
            self.grow(self.at + more);
        }
    }

    #[cold]
    fn grow(&mut self, need: usize) {
        self.move_to(Buffer::of_bytes(need.max(self.buffer.bytes.len() * 2).max(CAPACITY_MIN)));
    }
}

impl Default for BatchBuilder {
    fn default() -> Self {
        Self::new()
    }
}

/// Bytes of a record after its length field.
#[inline]
fn record_body_bytes(
    timestamp_delta: i64,
    offset_delta: i32,
    key: Option<&[u8]>,
    value: Option<&[u8]>,
    headers: &[HeaderRef<'_>],
) -> usize {
    let field = |bytes: Option<&[u8]>| bytes.map_or(1, |bytes| signed_len(bytes.len() as i64) + bytes.len());
    let mut body = 1
        + signed_len(timestamp_delta)
        + signed_len(i64::from(offset_delta))
        + field(key)
        + field(value)
        + signed_len(headers.len() as i64);
    for (name, value) in headers {
        body += field(Some(name)) + field(*value);
    }
    body
}

/// Writes into a slice of exactly the required length.
struct Cursor<'a> {
    buf: &'a mut [u8],
    at: usize,
}

impl Cursor<'_> {
    #[inline]
    fn byte(&mut self, byte: u8) {
        self.buf[self.at] = byte;
        self.at += 1;
    }

    #[expect(clippy::inline_always, reason = "a record has seven: the calls cost a seventh of its encoding")]
    #[inline(always)]
    fn varint(&mut self, value: i64) {
        let folded = zigzag(value);
        if folded < 0x80 {
            self.byte(folded as u8);
        } else if folded < 0x4000 {
            self.bytes(&[folded as u8 | 0x80, (folded >> 7) as u8]);
        } else {
            self.long_varint(value);
        }
    }

    #[cold]
    fn long_varint(&mut self, value: i64) {
        self.at += write_signed(&mut self.buf[self.at..], value);
    }

    #[inline]
    fn bytes(&mut self, bytes: &[u8]) {
        self.buf[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }

    #[inline]
    fn field(&mut self, bytes: Option<&[u8]>) {
        match bytes {
            Some(bytes) => {
                self.varint(bytes.len() as i64);
                self.bytes(bytes);
            }
            None => self.byte(1), // zigzag(-1)
        }
    }

    #[inline]
    fn headers(&mut self, headers: &[HeaderRef<'_>]) {
        self.varint(headers.len() as i64);
        for (name, value) in headers {
            self.field(Some(name));
            self.field(*value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::BatchHeader;
    use crate::reader::Records;

    fn values(bytes: &Bytes) -> Vec<Option<Vec<u8>>> {
        Records::of_batch(bytes, 1 << 26)
            .expect("a batch we sealed")
            .iter()
            .map(|record| record.expect("a record we wrote").value.map(<[u8]>::to_vec))
            .collect()
    }

    #[test]
    fn every_codec_returns_the_pushed_records() {
        for codec in Compression::ALL {
            let mut batch = BatchBuilder::new();
            let mut expected = Vec::new();
            for i in 0..5_000_u32 {
                let value = format!("value {i} {}", "x".repeat(i as usize % 300)).into_bytes();
                let key = i.to_be_bytes();
                batch.push(
                    1000 + i64::from(i) - 7,
                    (i % 3 == 0).then_some(&key[..]),
                    Some(&value),
                    &[(&b"h"[..], None)],
                );
                expected.push(Some(value));
            }
            let sealed = batch.seal(&Seal { compression: codec, ..Seal::default() }).expect("sealed");
            let bytes = sealed.to_bytes();
            assert_eq!(sealed.len(), bytes.len());
            let header = BatchHeader::parse(&bytes).expect("a header");
            assert_eq!(header, sealed.header);
            header.verify_crc(&bytes).expect("the checksum fits");
            assert_eq!(header.compression(), Ok(codec));
            assert_eq!((header.base_timestamp, header.max_timestamp), (993, 5992));
            assert_eq!(values(&bytes), expected, "{codec:?}");
        }
    }

    #[test]
    fn a_shared_payload_is_not_copied() {
        let payload = Bytes::from(vec![7_u8; 100_000]);
        let mut batch = BatchBuilder::new();
        batch.push(1, None, Some(b"before"), &[]);
        batch.push_shared(1, Some(b"k"), payload.clone(), &[(b"a", Some(b"b"))]);
        batch.push(1, None, None, &[]);
        let sealed = batch.seal(&Seal::default()).expect("sealed");
        let linked = sealed.chain().pieces().iter().any(
            |piece| matches!(piece, crate::chain::Piece::Memory(bytes) if bytes.as_ptr() == payload.as_ptr()),
        );
        assert!(linked, "the payload itself is a piece of the chain");
        let bytes = sealed.to_bytes();
        sealed.header.verify_crc(&bytes).expect("the checksum spans the pieces");
        assert_eq!(values(&bytes), [Some(b"before".to_vec()), Some(payload.to_vec()), None]);
    }

    #[test]
    fn a_resealed_batch_differs_only_in_its_producer() {
        let mut batch = BatchBuilder::new();
        batch.push(1, None, Some(b"v"), &[]);
        let sealed =
            batch.seal(&Seal { producer_id: 9, producer_epoch: 1, base_sequence: 40, ..Seal::default() });
        let again = sealed.expect("sealed").reseal(9, 2, 0);
        let bytes = again.to_bytes();
        let header = BatchHeader::parse(&bytes).expect("a header");
        assert_eq!((header.producer_id, header.producer_epoch, header.base_sequence), (9, 2, 0));
        header.verify_crc(&bytes).expect("the checksum was recomputed");
        assert_eq!(values(&bytes), [Some(b"v".to_vec())]);
    }

    #[test]
    fn uncompressed_records_are_kept_on_request() {
        let mut batch = BatchBuilder::new();
        for _ in 0..1000 {
            batch.push(1, None, Some(b"again and again"), &[]);
        }
        batch.push_shared(1, None, Bytes::from_static(b"elsewhere"), &[]);
        let closed = batch.close(Compression::Lz4, None, true).expect("closed");
        let sealed = closed.seal(&Seal::default());
        assert_eq!(sealed.header.compression(), Ok(Compression::Lz4));
        let kept = values(&sealed.records().expect("kept"));
        assert_eq!(kept, values(&sealed.to_bytes()));
        assert_eq!(kept[1000].as_deref(), Some(&b"elsewhere"[..]));
    }

    #[test]
    fn kept_records_account_for_their_whole_buffer() {
        for codec in [Compression::None, Compression::Zstd] {
            let mut batch = BatchBuilder::in_buffer(Buffer::of_bytes(4096));
            batch.push(0, None, Some(&[b'v'; 500]), &[]);
            let sealed = batch.close(codec, None, true).expect("closed").seal(&Seal::default());
            assert_eq!(sealed.header.compression(), Ok(codec));
            assert!(sealed.records().expect("kept").len() < 700);
            assert_eq!(sealed.records_memory(), 4096, "{codec:?}");
        }
    }
}
