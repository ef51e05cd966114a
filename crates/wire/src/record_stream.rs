//! Reads the records of a compressed batch in parts, in bounded memory, whatever the batch inflates to.
//!
//! ```text
//!   decoder --64 KiB at a time--> window --whole records--> RecordIter
//!                                   |
//!                                   +--records above 64 KiB--> LargeRecord, which skips keys and values
//! ```

use std::fmt;
use std::io::Read;

use bytes::Bytes;

use crate::batch::{BatchHeader, Compression, HEADER_BYTES};
use crate::compress::{self, CompressError};
use crate::reader::{RecordError, RecordIter};
use crate::varint::{VARLONG_BYTES_MAX, VarintError, read_i32, read_i64};

/// The decompressed bytes of one part.
const PART_BYTES: usize = 64 << 10;
/// Records up to this size are read whole.
const WHOLE_RECORD_BYTES_MAX: usize = 64 << 10;

/// The records of a compressed batch, read in parts by [`RecordStream::read_part`].
///
/// It checks what [`RecordIter`] checks, and that nothing follows the last record.
pub struct RecordStream {
    decoder: Box<dyn Read + Send>,
    codec: Compression,
    compressed_bytes: usize,
    bytes_max: usize,
    bytes: usize,
    is_ended: bool,
    /// Decompressed bytes; those before `at` have been read.
    window: Vec<u8>,
    at: usize,
    header: BatchHeader,
    /// The number of records that have been read.
    index: u32,
    /// The least offset that the next record can have, relative to the batch's.
    offset_delta_min: u32,
    large: Option<LargeRecord>,
}

impl fmt::Debug for RecordStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordStream")
            .field("header", &self.header)
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

/// The offset and the timestamp of a record, and whether it has a key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RecordPosition {
    /// Its offset.
    pub offset: i64,
    /// Its timestamp in milliseconds.
    pub timestamp: i64,
    /// `false` if its key is null.
    pub has_key: bool,
}

impl RecordStream {
    /// Prepares to read the records of a whole batch with this `header`. More than `bytes_max` decompressed bytes are an
    /// error.
    pub fn new(header: &BatchHeader, batch: Bytes, bytes_max: usize) -> Result<Self, RecordError> {
        let codec = header.compression()?;
        let compressed = batch.slice(HEADER_BYTES.min(batch.len())..);
        let compressed_bytes = compressed.len();
        let decoder = compress::decoder(codec, compressed, bytes_max)
            .map_err(|source| RecordError::Compress { base_offset: header.base_offset, source })?;
        Ok(Self {
            decoder,
            codec,
            compressed_bytes,
            bytes_max,
            bytes: 0,
            is_ended: false,
            window: Vec::new(),
            at: 0,
            header: *header,
            index: 0,
            offset_delta_min: 0,
            large: None,
        })
    }

    /// The memory that reading this batch needs, in bytes.
    pub fn memory_bytes(header: &BatchHeader, batch: &[u8], bytes_max: usize) -> usize {
        let compressed = batch.get(HEADER_BYTES..).unwrap_or_default();
        let decoder =
            header.compression().map_or(0, |codec| compress::decoder_bytes(codec, compressed, bytes_max));
        decoder + WHOLE_RECORD_BYTES_MAX + 2 * PART_BYTES
    }

    /// The number of decompressed bytes so far.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Decompresses a part of at most 64 KiB, and passes the records that end in it to `on_record`. Returns `false` after
    /// the last part.
    pub fn read_part(&mut self, mut on_record: impl FnMut(RecordPosition)) -> Result<bool, RecordError> {
        self.fill()?;
        while self.index < self.header.record_count.max(0) as u32 {
            match self.next_record()? {
                Some(position) => on_record(position),
                None => return Ok(true),
            }
        }
        if self.at < self.window.len() {
            return Err(RecordError::Count {
                base_offset: self.header.base_offset,
                claimed: self.header.record_count,
                found: self.index,
            });
        }
        Ok(!self.is_ended)
    }

    fn fill(&mut self) -> Result<(), RecordError> {
        self.window.drain(..self.at);
        self.at = 0;
        let front = self.window.len();
        self.window.resize(front + PART_BYTES, 0);
        let mut end = front;
        while end < self.window.len() && !self.is_ended {
            let read = self.decoder.read(&mut self.window[end..]);
            let read = read.map_err(|error| self.failed(compress::error_of(self.codec, &error)))?;
            self.is_ended = read == 0;
            end += read;
        }
        self.window.truncate(end);
        self.bytes += end - front;
        if self.bytes > self.bytes_max {
            let (codec, compressed, cap) = (self.codec, self.compressed_bytes, self.bytes_max);
            return Err(self.failed(CompressError::TooLarge { codec, compressed, cap }));
        }
        Ok(())
    }

    #[cold]
    fn failed(&self, source: CompressError) -> RecordError {
        RecordError::Compress { base_offset: self.header.base_offset, source }
    }

    /// Reads the next record. `None` if it does not end in the window.
    fn next_record(&mut self) -> Result<Option<RecordPosition>, RecordError> {
        let rest = &self.window[self.at..];
        if self.large.is_none() {
            let length = match read_i32(rest) {
                Err(VarintError::Truncated) if !self.is_ended => return Ok(None),
                // The iterator below reports what is wrong.
                Err(_) => None,
                Ok((length, n)) => usize::try_from(length).ok().map(|length| (length, n)),
            };
            match length {
                Some((length, n)) if length > WHOLE_RECORD_BYTES_MAX => {
                    if length > self.bytes_max {
                        return Err(self.length("record", length as i64, rest.len() - n));
                    }
                    self.at += n;
                    self.large = Some(LargeRecord::new(length));
                }
                Some((length, n)) if n + length > rest.len() && !self.is_ended => return Ok(None),
                _ => {
                    let mut records =
                        RecordIter::new(&self.header, rest).skip_to(self.index, self.offset_delta_min);
                    let record = records.next().transpose()?;
                    self.at = self.window.len() - records.rest().len();
                    self.index += 1;
                    self.offset_delta_min = records.offset_delta_min();
                    return Ok(record.map(|record| RecordPosition {
                        offset: record.offset,
                        timestamp: record.timestamp,
                        has_key: record.key.is_some(),
                    }));
                }
            }
        }
        let Some(mut large) = self.large.take() else { return Ok(None) };
        let (read, is_complete) =
            large.read(&self.window[self.at..], self.is_ended).map_err(|error| match error {
                LargeError::Varint(source) => {
                    RecordError::Varint { base_offset: self.header.base_offset, index: self.index, source }
                }
                LargeError::Length { what, length, left } => self.length(what, length, left),
            })?;
        self.at += read;
        if !is_complete {
            self.large = Some(large);
            return Ok(None);
        }
        let records = RecordIter::new(&self.header, &[]).skip_to(self.index, self.offset_delta_min);
        let offset_delta = large.offset_delta as u32;
        if offset_delta < self.offset_delta_min || offset_delta > self.header.last_offset_delta as u32 {
            return Err(records.outside(large.offset_delta));
        }
        self.index += 1;
        self.offset_delta_min = offset_delta + 1;
        Ok(Some(RecordPosition {
            offset: self.header.base_offset + i64::from(large.offset_delta),
            timestamp: records.timestamp_of(large.timestamp_delta),
            has_key: large.has_key,
        }))
    }

    #[cold]
    fn length(&self, what: &'static str, length: i64, left: usize) -> RecordError {
        RecordError::Length { base_offset: self.header.base_offset, index: self.index, what, length, left }
    }
}

/// A record that is read field by field.
#[derive(Debug)]
struct LargeRecord {
    /// The bytes of the record that were not read yet.
    left: usize,
    /// The bytes of a key or value that are to be skipped.
    skip: usize,
    field: Field,
    headers_left: i32,
    timestamp_delta: i64,
    offset_delta: i32,
    has_key: bool,
}

/// The next field of a record.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Field {
    Attributes,
    Timestamp,
    Offset,
    Key,
    Value,
    HeaderCount,
    HeaderName,
    HeaderValue,
    End,
}

enum LargeError {
    Varint(VarintError),
    Length { what: &'static str, length: i64, left: usize },
}

impl LargeRecord {
    fn new(length: usize) -> Self {
        Self {
            left: length,
            skip: 0,
            field: Field::Attributes,
            headers_left: 0,
            timestamp_delta: 0,
            offset_delta: 0,
            has_key: false,
        }
    }

    /// Reads from the front of `window`. Returns the number of bytes read, and whether the record is complete.
    fn read(&mut self, window: &[u8], is_ended: bool) -> Result<(usize, bool), LargeError> {
        let mut at = 0;
        loop {
            let skipped = self.skip.min(window.len() - at);
            at += skipped;
            self.skip -= skipped;
            self.left -= skipped;
            if self.field == Field::End && self.skip == 0 {
                if self.left > 0 {
                    let length = self.left as i64;
                    return Err(LargeError::Length { what: "record", length, left: window.len() - at });
                }
                return Ok((at, true));
            }
            let rest = &window[at..window.len().min(at + self.left)];
            let is_whole = rest.len() == self.left;
            if self.skip > 0 || (rest.len() < VARLONG_BYTES_MAX && !is_whole) {
                if is_ended {
                    let (length, left) = (self.left as i64, rest.len());
                    return Err(LargeError::Length { what: "record", length, left });
                }
                return Ok((at, false));
            }
            let read = self.read_field(rest)?;
            at += read;
            self.left -= read;
        }
    }

    fn read_field(&mut self, rest: &[u8]) -> Result<usize, LargeError> {
        if self.field == Field::Attributes {
            if rest.is_empty() {
                return Err(LargeError::Length { what: "record", length: 0, left: 0 });
            }
            self.field = Field::Timestamp;
            return Ok(1);
        }
        if self.field == Field::Timestamp {
            let (delta, read) = read_i64(rest).map_err(LargeError::Varint)?;
            self.timestamp_delta = delta;
            self.field = Field::Offset;
            return Ok(read);
        }
        let (number, read) = read_i32(rest).map_err(LargeError::Varint)?;
        let left = self.left - read;
        match self.field {
            Field::Offset => {
                self.offset_delta = number;
                self.field = Field::Key;
            }
            Field::Key => {
                self.has_key = number >= 0;
                self.skip_field("key", number, left)?;
                self.field = Field::Value;
            }
            Field::Value => {
                self.skip_field("value", number, left)?;
                self.field = Field::HeaderCount;
            }
            Field::HeaderCount => {
                if number < 0 || number as usize > left / 2 {
                    return Err(LargeError::Length { what: "headers", length: i64::from(number), left });
                }
                self.headers_left = number;
                self.field = if number == 0 { Field::End } else { Field::HeaderName };
            }
            Field::HeaderName => {
                if number < 0 {
                    return Err(LargeError::Length { what: "header name", length: i64::from(number), left });
                }
                self.skip_field("header name", number, left)?;
                self.field = Field::HeaderValue;
            }
            Field::HeaderValue => {
                self.skip_field("header value", number, left)?;
                self.headers_left -= 1;
                self.field = if self.headers_left == 0 { Field::End } else { Field::HeaderName };
            }
            Field::Attributes | Field::Timestamp | Field::End => {}
        }
        Ok(read)
    }

    fn skip_field(&mut self, what: &'static str, length: i32, left: usize) -> Result<(), LargeError> {
        // A negative length is Kafka's null.
        let skip = usize::try_from(length).unwrap_or(0);
        if skip > left {
            return Err(LargeError::Length { what, length: i64::from(length), left });
        }
        self.skip = skip;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builder::BatchBuilder;
    use crate::seal::Seal;

    const BYTES_MAX: usize = 64 << 20;

    fn batch(codec: Compression, values: &[Vec<u8>]) -> (BatchHeader, Bytes) {
        let mut builder = BatchBuilder::new();
        for (n, value) in values.iter().enumerate() {
            let headers: &[(&[u8], Option<&[u8]>)] =
                if n % 2 == 0 { &[] } else { &[(b"name", Some(b"value")), (b"null", None)] };
            builder.push(1000 + n as i64, (n % 3 == 0).then_some(&b"key"[..]), Some(value), headers);
        }
        let bytes = builder.seal(&Seal { compression: codec, ..Seal::default() }).expect("sealed").to_bytes();
        (BatchHeader::parse(&bytes).expect("a batch"), bytes)
    }

    fn read(header: &BatchHeader, bytes: &Bytes, max: usize) -> Result<Vec<RecordPosition>, RecordError> {
        let mut stream = RecordStream::new(header, bytes.clone(), max)?;
        let mut found = Vec::new();
        while stream.read_part(|position| found.push(position))? {}
        Ok(found)
    }

    fn codecs() -> impl Iterator<Item = Compression> {
        Compression::ALL.into_iter().filter(|codec| *codec != Compression::None)
    }

    #[test]
    fn a_stream_finds_what_the_whole_block_has() {
        let sizes = [0, 1, 100, 60_000, WHOLE_RECORD_BYTES_MAX - 20, WHOLE_RECORD_BYTES_MAX, 300_000, 5];
        for codec in codecs() {
            let values: Vec<Vec<u8>> = sizes.iter().map(|size| vec![b'x'; *size]).collect();
            let (header, bytes) = batch(codec, &values);
            assert_eq!(header.compression().expect("known"), codec);
            let records = crate::reader::Records::of_batch(&bytes, BYTES_MAX).expect("records");
            let expected = records.iter().map(|record| {
                let record = record.expect("sound");
                RecordPosition {
                    offset: record.offset,
                    timestamp: record.timestamp,
                    has_key: record.key.is_some(),
                }
            });
            assert_eq!(read(&header, &bytes, BYTES_MAX), Ok(expected.collect()), "{codec:?}");
        }
    }

    /// Every changed byte of the decompressed records gives the same verdict with both readers.
    #[test]
    fn a_stream_refuses_what_the_whole_block_refuses() {
        let (header, bytes) = batch(Compression::None, &[vec![b'a'; 70_000], vec![b'b'; 10], Vec::new()]);
        let sound = bytes[HEADER_BYTES..].to_vec();
        let ends = (0..40).chain(69_980..sound.len());
        let header = BatchHeader { attributes: header.attributes | 4, ..header };
        for (at, flip) in ends.flat_map(|at| [1, 0x80, 0xff].map(|flip| (at, flip))) {
            let mut block = sound.clone();
            block[at] ^= flip;
            let mut framed = vec![0; HEADER_BYTES];
            compress::compress(Compression::Zstd, None, &block, &mut framed).expect("compressed");
            let whole = {
                let mut records = RecordIter::new(&header, &block);
                let found: Result<Vec<_>, _> = records.by_ref().collect();
                found.is_ok_and(|found| found.len() == 3) && records.rest().is_empty()
            };
            let streamed = read(&header, &Bytes::from(framed), BYTES_MAX);
            assert_eq!(streamed.is_ok(), whole, "byte {at}, {flip:x}: {streamed:?}");
        }
    }

    #[test]
    fn a_bomb_and_a_torn_stream_are_errors() {
        for codec in codecs() {
            let (header, bytes) = batch(codec, &[vec![0; 2 << 20]]);
            let error = read(&header, &bytes, 1 << 20).expect_err("too large").to_string();
            assert!(error.contains("cap") || error.contains("left"), "{error}");
            for cut in [1, 5, bytes.len() - HEADER_BYTES] {
                let torn = bytes.slice(..bytes.len() - cut);
                // lz4's reader does not miss a part of the end mark.
                let is_sound = compress::decompress(codec, &torn[HEADER_BYTES..], BYTES_MAX).is_ok();
                assert!(cut == 1 || !is_sound, "{codec:?} without {cut}");
                assert_eq!(read(&header, &torn, BYTES_MAX).is_ok(), is_sound, "{codec:?} without {cut}");
            }
            assert!(RecordStream::memory_bytes(&header, &bytes, BYTES_MAX) < 16 << 20, "{codec:?}");
        }
    }
}
