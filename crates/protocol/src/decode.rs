//! The decoder: a cursor over one frame.

use bytes::Bytes;
use ottla_wire::varint::read_u32;

use crate::encode::{LengthKind, STRING_BYTES_MAX};
use crate::error::{DecodeError, DecodeFault};

/// A cursor over the bytes of one frame.
///
/// Lengths are checked against the remaining bytes before memory is allocated. [`Bytes`] values share the frame's
/// memory.
#[derive(Clone, Debug)]
pub struct Decoder {
    frame: Bytes,
    at: usize,
    memory_left: usize,
    /// The memory that counts for each element of an array besides its own, and for each byte of a string.
    per_element: usize,
    per_string_byte: usize,
}

macro_rules! fixed {
    ($(#[$doc:meta] $name:ident -> $type:ty;)*) => {
        $(
            #[$doc]
            #[inline]
            pub fn $name(&mut self) -> Result<$type, DecodeError> {
                self.array().map(<$type>::from_be_bytes)
            }
        )*
    };
}

impl Decoder {
    /// A cursor at the start of `frame`.
    pub fn new(frame: Bytes) -> Self {
        Self::with_memory_max(frame, usize::MAX)
    }

    /// A cursor that takes at most `memory_max` bytes for the elements of arrays.
    ///
    /// Some structs are thirty times larger in memory than on the wire. A reader of large frames from untrusted peers
    /// should set a limit. Strings and payloads are never larger than the frame and do not count by default, except for bytes that were replaced.
    pub fn with_memory_max(frame: Bytes, memory_max: usize) -> Self {
        Self { frame, at: 0, memory_left: memory_max, per_element: 0, per_string_byte: 0 }
    }

    /// Counts also the memory of what the reader makes of the message: so many bytes for each element of an array, and for each byte
    /// of a string. Elements of one byte have no memory but their own.
    #[must_use]
    pub fn with_derived_memory(mut self, per_element: usize, per_string_byte: usize) -> Self {
        (self.per_element, self.per_string_byte) = (per_element, per_string_byte);
        self
    }

    /// The cursor's position.
    #[inline]
    pub fn position(&self) -> usize {
        self.at
    }

    /// The number of remaining bytes.
    #[inline]
    pub fn remaining(&self) -> usize {
        self.frame.len() - self.at
    }

    /// Finishes decoding; remaining bytes are an error.
    pub fn finish(self) -> Result<(), DecodeError> {
        match self.remaining() {
            0 => Ok(()),
            remaining => Err(DecodeFault::TrailingBytes { at: self.at, remaining }.into()),
        }
    }

    fixed! {
        /// Reads one byte.
        i8 -> i8;
        /// Reads two bytes.
        i16 -> i16;
        /// Reads two bytes.
        u16 -> u16;
        /// Reads four bytes.
        i32 -> i32;
        /// Reads four bytes.
        u32 -> u32;
        /// Reads eight bytes.
        i64 -> i64;
        /// Reads eight bytes.
        f64 -> f64;
    }

    /// Reads one byte: every value except 0 is true.
    #[inline]
    pub fn bool(&mut self) -> Result<bool, DecodeError> {
        Ok(self.i8()? != 0)
    }

    /// Reads `N` bytes.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        match self.frame[self.at..].first_chunk() {
            Some(bytes) => {
                self.at += N;
                Ok(*bytes)
            }
            None => Err(self.truncated(N)),
        }
    }

    /// Reads an unsigned varint.
    #[inline]
    pub fn unsigned_varint(&mut self) -> Result<u32, DecodeError> {
        match read_u32(&self.frame[self.at..]) {
            Ok((value, n)) => {
                self.at += n;
                Ok(value)
            }
            Err(source) => Err(DecodeFault::Varint { at: self.at, source }.into()),
        }
    }

    /// Takes the next `n` bytes without copying them.
    #[inline]
    pub fn take(&mut self, n: usize) -> Result<Bytes, DecodeError> {
        self.need(n)?;
        let bytes = self.frame.slice(self.at..self.at + n);
        self.at += n;
        Ok(bytes)
    }

    /// Skips the next `n` bytes.
    #[inline]
    pub fn skip(&mut self, n: usize) -> Result<(), DecodeError> {
        self.need(n)?;
        self.at += n;
        Ok(())
    }

    /// Copies the next `n` bytes into a string. Bytes that are not UTF-8 become U+FFFD, as in Kafka: clients in C send the bytes that
    /// they have.
    pub fn string(&mut self, n: usize) -> Result<String, DecodeError> {
        if n > STRING_BYTES_MAX {
            return Err(DecodeFault::StringTooLong { len: n, max: STRING_BYTES_MAX }.into());
        }
        self.need(n)?;
        self.charge(n * self.per_string_byte)?;
        let bytes = &self.frame[self.at..self.at + n];
        let text = if let Ok(text) = std::str::from_utf8(bytes) {
            text.to_owned()
        } else {
            let text = replaced(bytes);
            self.charge(text.len().saturating_sub(n) * self.per_string_byte.max(1))?;
            text
        };
        self.at += n;
        Ok(text)
    }

    /// Reads the length of a string, bytes or array; `None` is null.
    #[inline]
    pub fn length(&mut self, kind: LengthKind) -> Result<Option<usize>, DecodeError> {
        let length = match kind {
            LengthKind::Compact | LengthKind::CompactString => i64::from(self.unsigned_varint()?) - 1,
            LengthKind::Int16 => i64::from(self.i16()?),
            LengthKind::Int32 => i64::from(self.i32()?),
        };
        match length {
            -1 => Ok(None),
            0.. => Ok(Some(length as usize)),
            _ => Err(DecodeFault::NegativeLength { at: self.at, length }.into()),
        }
    }

    /// Reads the length of an array whose elements take at least `element_bytes_min` bytes each.
    #[inline]
    pub fn array_length(
        &mut self,
        kind: LengthKind,
        element_bytes_min: usize,
    ) -> Result<Option<usize>, DecodeError> {
        let count = self.length(kind)?;
        match count {
            Some(count) if count > self.remaining() / element_bytes_min.max(1) => {
                Err(DecodeFault::ArrayTooLong { at: self.at, count, remaining: self.remaining() }.into())
            }
            count => Ok(count),
        }
    }

    /// Subtracts `bytes` from the memory limit.
    #[inline]
    pub fn charge(&mut self, bytes: usize) -> Result<(), DecodeError> {
        match self.memory_left.checked_sub(bytes) {
            Some(left) => {
                self.memory_left = left;
                Ok(())
            }
            None => Err(DecodeFault::Memory { at: self.at, bytes, left: self.memory_left }.into()),
        }
    }

    /// Subtracts the memory of an array's elements from the limit.
    #[inline]
    pub(crate) fn charge_elements<T>(&mut self, count: usize) -> Result<(), DecodeError> {
        let derived = if size_of::<T>() > 1 { self.per_element } else { 0 };
        self.charge(count.saturating_mul(size_of::<T>() + derived))
    }

    /// Reads the tag and size of a tagged field. The size is at most the number of remaining bytes.
    pub fn tag(&mut self) -> Result<(u32, usize), DecodeError> {
        let tag = self.unsigned_varint()?;
        let size = self.unsigned_varint()? as usize;
        self.need(size)?;
        Ok((tag, size))
    }

    /// Checks that a tagged field that started at `start` has the declared size.
    #[inline]
    pub fn end_tag(&self, tag: u32, start: usize, size: usize) -> Result<(), DecodeError> {
        match self.at - start {
            read if read == size => Ok(()),
            read => Err(DecodeFault::TagSize { tag, size, read }.into()),
        }
    }

    /// Skips all tagged fields of a struct that defines none.
    #[inline]
    pub fn skip_tags(&mut self) -> Result<(), DecodeError> {
        for _ in 0..self.unsigned_varint()? {
            let (_, size) = self.tag()?;
            self.skip(size)?;
        }
        Ok(())
    }

    /// The error for a null that was just read.
    #[cold]
    pub fn null(&self) -> DecodeError {
        DecodeFault::Null { at: self.at }.into()
    }

    #[inline]
    fn need(&self, n: usize) -> Result<(), DecodeError> {
        if n <= self.remaining() { Ok(()) } else { Err(self.truncated(n)) }
    }

    #[cold]
    fn truncated(&self, needed: usize) -> DecodeError {
        DecodeFault::Truncated { at: self.at, needed, remaining: self.remaining() }.into()
    }
}

/// The text of bytes that are not UTF-8, cut so that it can be encoded again.
#[cold]
fn replaced(bytes: &[u8]) -> String {
    let mut text = String::from_utf8_lossy(bytes).into_owned();
    if text.len() > STRING_BYTES_MAX {
        let end = (0..=STRING_BYTES_MAX).rev().find(|end| text.is_char_boundary(*end));
        text.truncate(end.unwrap_or(0));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_checked_against_the_bytes_that_are_there() {
        let mut input = Decoder::new(Bytes::from_static(&[0x7f, 0xff, 0xff, 0xff, 1, 2, 3]));
        let error = input.array_length(LengthKind::Int32, 1).unwrap_err();
        assert_eq!(*error.fault(), DecodeFault::ArrayTooLong { at: 4, count: 0x7fff_ffff, remaining: 3 });

        let mut input = Decoder::new(Bytes::from_static(&[3, 1, 2, 3]));
        let error = input.array_length(LengthKind::Compact, 2).unwrap_err();
        assert_eq!(*error.fault(), DecodeFault::ArrayTooLong { at: 1, count: 2, remaining: 3 });
        assert_eq!(input.take(4).unwrap_err().to_string(), "needs 4 bytes at byte 1, but 3 remain");
    }

    #[test]
    fn what_is_taken_shares_the_frame() {
        let frame = Bytes::from(vec![1, 2, 3, 4]);
        let mut input = Decoder::new(frame.clone());
        input.skip(1).unwrap();
        assert_eq!(input.take(2).unwrap().as_ptr(), frame[1..].as_ptr());
        let error = input.finish().unwrap_err();
        assert_eq!(*error.fault(), DecodeFault::TrailingBytes { at: 3, remaining: 1 });
    }

    /// A client id in Latin-1 closed each connection, and a commit with metadata of other bytes closed that of its coordinator.
    #[test]
    fn bytes_that_are_not_utf_8_are_replaced_as_in_kafka() {
        let mut input = Decoder::new(Bytes::from_static(b"M\xfcller, \x80\xff"));
        assert_eq!(input.string(6).unwrap(), "M\u{fffd}ller");
        assert_eq!(input.string(4).unwrap(), ", \u{fffd}\u{fffd}");
        input.finish().unwrap();
        let mut input = Decoder::new(Bytes::from(vec![0xff; STRING_BYTES_MAX]));
        let text = input.string(STRING_BYTES_MAX).unwrap();
        assert_eq!(text.len(), STRING_BYTES_MAX / 3 * 3, "it can be encoded again");
        let mut input = Decoder::with_memory_max(Bytes::from_static(&[0xff; 100]), 150);
        assert!(input.string(100).is_err(), "the replaced bytes are charged");
    }
}
