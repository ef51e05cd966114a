//! The encoder: small values go into one buffer, large payloads become pieces of a chain.

use bytes::{BufMut, Bytes, BytesMut};
use ottla_wire::chain::{Chain, FileSlice, Piece};
use ottla_wire::varint::{VARINT_BYTES_MAX, unsigned_len, write_unsigned};

use crate::error::{EncodeError, EncodeFault};
use crate::error_code::ErrorCode;
use crate::error_tally::ErrorTally;

/// Payloads of at least this size are linked, smaller ones are copied. Below it a copy costs less than another entry
/// in the vectored write.
pub const SPLICE_BYTES_MIN: usize = 1024;

/// Maximum length of a string in bytes: Kafka's limit, also in flexible versions.
pub const STRING_BYTES_MAX: usize = i16::MAX as usize;

/// The destination of encoded messages.
///
/// All inline bytes share one buffer, so that a length can be filled in later. Linked payloads are stored with their
/// position in the buffer and become pieces of the chain in [`Encoder::finish`].
#[derive(Debug, Default)]
pub struct Encoder {
    inline: BytesMut,
    /// Linked pieces in order of position; a piece precedes the inline byte at its index.
    spliced: Vec<(usize, Piece)>,
    spliced_bytes: usize,
    errors: ErrorTally,
}

/// A position in an [`Encoder`].
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    inline: usize,
    spliced: usize,
    len: usize,
}

impl Encoder {
    /// An empty encoder.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty encoder with an initial capacity of `inline_bytes`.
    pub fn with_capacity(inline_bytes: usize) -> Self {
        Self { inline: BytesMut::with_capacity(inline_bytes), ..Self::default() }
    }

    /// The number of bytes written so far, including linked payloads.
    #[inline]
    pub fn len(&self) -> usize {
        self.inline.len() + self.spliced_bytes
    }

    /// `true` if nothing was written.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes an error code, and counts it unless it is `None`.
    #[inline]
    pub fn put_error_code(&mut self, code: ErrorCode) {
        if code != ErrorCode::None {
            self.errors.add(code);
        }
        self.put_i16(code.code());
    }

    /// The error codes that were written.
    pub const fn errors(&self) -> &ErrorTally {
        &self.errors
    }

    /// Writes one byte: 0 or 1.
    #[inline]
    pub fn put_bool(&mut self, value: bool) {
        self.inline.put_u8(u8::from(value));
    }

    /// Writes one byte.
    #[inline]
    pub fn put_i8(&mut self, value: i8) {
        self.inline.put_i8(value);
    }

    /// Writes two bytes.
    #[inline]
    pub fn put_i16(&mut self, value: i16) {
        self.inline.put_i16(value);
    }

    /// Writes two bytes.
    #[inline]
    pub fn put_u16(&mut self, value: u16) {
        self.inline.put_u16(value);
    }

    /// Writes four bytes.
    #[inline]
    pub fn put_i32(&mut self, value: i32) {
        self.inline.put_i32(value);
    }

    /// Writes four bytes.
    #[inline]
    pub fn put_u32(&mut self, value: u32) {
        self.inline.put_u32(value);
    }

    /// Writes eight bytes.
    #[inline]
    pub fn put_i64(&mut self, value: i64) {
        self.inline.put_i64(value);
    }

    /// Writes eight bytes.
    #[inline]
    pub fn put_f64(&mut self, value: f64) {
        self.inline.put_f64(value);
    }

    /// Writes an unsigned varint.
    #[inline]
    pub fn put_unsigned_varint(&mut self, value: u32) {
        let mut buf = [0; VARINT_BYTES_MAX];
        let n = write_unsigned(&mut buf, u64::from(value));
        self.inline.extend_from_slice(&buf[..n]);
    }

    /// Copies `bytes` without a length.
    #[inline]
    pub fn put_slice(&mut self, bytes: &[u8]) {
        self.inline.extend_from_slice(bytes);
    }

    /// Adds `bytes` without a length: linked if large, copied if small.
    pub fn put_bytes(&mut self, bytes: &Bytes) {
        if bytes.len() < SPLICE_BYTES_MIN {
            self.put_slice(bytes);
        } else {
            self.splice(Piece::Memory(bytes.clone()));
        }
    }

    /// Adds the pieces of `chain`: memory like [`Encoder::put_bytes`]; files are always linked.
    pub fn put_chain(&mut self, chain: &Chain) {
        for piece in chain.pieces() {
            match piece {
                Piece::Memory(bytes) => self.put_bytes(bytes),
                Piece::File(slice) => self.put_file(slice.clone()),
            }
        }
    }

    /// Links a file range.
    pub fn put_file(&mut self, slice: FileSlice) {
        if slice.len > 0 {
            self.splice(Piece::File(slice));
        }
    }

    fn splice(&mut self, piece: Piece) {
        self.spliced_bytes += piece.len();
        self.spliced.push((self.inline.len(), piece));
    }

    /// Writes the length of a string, bytes or array: `None` is null.
    ///
    /// Compact lengths are varints of one more than the length; the others are four bytes, or two for strings.
    pub fn put_length(&mut self, len: Option<usize>, kind: LengthKind) -> Result<(), EncodeError> {
        let max = kind.max();
        let len = match len {
            Some(len) if len > max => return Err(EncodeFault::TooLong { len, max }.into()),
            len => len.map(|len| len as i32),
        };
        match kind {
            LengthKind::Compact | LengthKind::CompactString => {
                self.put_unsigned_varint(len.map_or(0, |len| len as u32 + 1));
            }
            LengthKind::Int16 => self.put_i16(len.unwrap_or(-1) as i16),
            LengthKind::Int32 => self.put_i32(len.unwrap_or(-1)),
        }
        Ok(())
    }

    /// The current position, for [`Encoder::prefix_with_size`].
    #[inline]
    pub fn mark(&self) -> Mark {
        Mark { inline: self.inline.len(), spliced: self.spliced.len(), len: self.len() }
    }

    /// Inserts, at `start`, a varint with the number of bytes written since.
    ///
    /// It moves these inline bytes: use it for tagged fields, which are few and short.
    pub fn prefix_with_size(&mut self, start: Mark) {
        let size = self.len() - start.len;
        let shift = unsigned_len(size as u64);
        let end = self.inline.len();
        self.inline.resize(end + shift, 0);
        self.inline.copy_within(start.inline..end, start.inline + shift);
        write_unsigned(&mut self.inline[start.inline..start.inline + shift], size as u64);
        for (at, _) in &mut self.spliced[start.spliced..] {
            *at += shift;
        }
    }

    /// Overwrites the first four inline bytes, which must have been written.
    pub(crate) fn set_i32_at_front(&mut self, value: i32) {
        self.inline[..4].copy_from_slice(&value.to_be_bytes());
    }

    /// The encoded bytes, in order.
    pub fn finish(self) -> Chain {
        let inline = self.inline.freeze();
        let mut chain = Chain::new();
        let mut from = 0;
        for (at, piece) in self.spliced {
            chain.push_bytes(inline.slice(from..at));
            from = at;
            match piece {
                Piece::Memory(bytes) => chain.push_bytes(bytes),
                Piece::File(slice) => chain.push_file(slice),
            }
        }
        chain.push_bytes(inline.slice(from..));
        chain
    }
}

/// The encoding of a length.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LengthKind {
    /// Varint of the length plus one; 0 is null.
    Compact,
    /// Like `Compact`, with the limit of strings.
    CompactString,
    /// Two bytes; -1 is null.
    Int16,
    /// Four bytes; -1 is null.
    Int32,
}

impl LengthKind {
    const fn max(self) -> usize {
        match self {
            Self::Int16 | Self::CompactString => STRING_BYTES_MAX,
            // Compact lengths could be larger by one, but no frame can hold that.
            Self::Int32 | Self::Compact => i32::MAX as usize,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_payloads_are_linked_and_small_ones_copied() {
        let large = Bytes::from(vec![7; SPLICE_BYTES_MIN]);
        let mut out = Encoder::new();
        out.put_i32(1);
        out.put_bytes(&large);
        out.put_bytes(&Bytes::from_static(b"small"));
        assert_eq!(out.len(), 4 + SPLICE_BYTES_MIN + 5);
        let chain = out.finish();
        let [Piece::Memory(head), Piece::Memory(linked), Piece::Memory(tail)] = chain.pieces() else {
            panic!("{chain:?}");
        };
        assert_eq!((&head[..], &tail[..]), (&[0, 0, 0, 1][..], &b"small"[..]));
        assert_eq!(linked.as_ptr(), large.as_ptr(), "the payload was copied");
    }

    #[test]
    fn a_size_can_be_inserted_before_linked_payloads() {
        let large = Bytes::from(vec![7; SPLICE_BYTES_MIN]);
        let mut out = Encoder::new();
        out.put_i8(1);
        let start = out.mark();
        out.put_i8(2);
        out.put_bytes(&large);
        out.put_i8(3);
        out.prefix_with_size(start);
        let bytes = out.finish().to_bytes().unwrap();
        // 1026 as a varint: 0x82 0x08.
        assert_eq!(bytes[..5], [1, 0x82, 0x08, 2, 7]);
        assert_eq!(bytes[bytes.len() - 2..], [7, 3]);
    }
}
