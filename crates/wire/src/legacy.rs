//! Message formats v0 and v1, as brokers before 0.11 wrote them: read by turning them into a v2 batch.
//!
//! ```text
//! offset i64 | size i32 | crc u32 | magic i8 | attributes i8 | [timestamp i64, v1] | key bytes | value bytes
//! ```
//! The CRC is the IEEE one and covers everything from the magic on. A compressed message's value is a set of
//! messages; their offsets are absolute in v0, and relative to the wrapper's last one in v1 (KIP-31).

use bytes::Bytes;

use crate::batch::{self, Compression, LOG_OVERHEAD_BYTES, MAGIC_AT, MAGIC_V2};
use crate::builder::BatchBuilder;
use crate::compress::{self, CompressError};
use crate::seal::Seal;

const CODEC_MASK: u8 = 0x07;
const LOG_APPEND_TIME: u8 = 0x08;
/// Offset, size, crc, magic, attributes, two lengths.
const MESSAGE_BYTES_MIN: usize = 26;
const NO_TIMESTAMP: i64 = -1;

/// An error in a message of format v0 or v1.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum LegacyError {
    /// A length contradicts the bytes there are, or another length.
    #[error("message at offset {offset}: {what} of {length} bytes where {left} are left")]
    Length {
        /// The message's offset.
        offset: i64,
        /// Which length.
        what: &'static str,
        /// The length claimed.
        length: i64,
        /// The bytes there are.
        left: usize,
    },
    /// The checksum does not fit.
    #[error("message at offset {offset}: CRC {computed:#010x} computed, {stored:#010x} stored")]
    Crc {
        /// The message's offset.
        offset: i64,
        /// The checksum stored.
        stored: u32,
        /// The checksum computed.
        computed: u32,
    },
    /// A format other than v0 and v1, or a compressed message inside a compressed message.
    #[error(
        "message at offset {offset}: format v{magic}, attributes {attributes:#04x} are not expected here"
    )]
    Format {
        /// The message's offset.
        offset: i64,
        /// The format claimed.
        magic: u8,
        /// The attributes.
        attributes: u8,
    },
    /// The codec returned an error.
    #[error("message at offset {offset}: {source}")]
    Compress {
        /// The message's offset.
        offset: i64,
        /// The codec's error.
        source: CompressError,
    },
}

/// `true` if a message of an old format starts at the front of `bytes`.
pub fn is_legacy(bytes: &[u8]) -> bool {
    bytes.get(MAGIC_AT).is_some_and(|&magic| magic < MAGIC_V2 as u8)
}

/// Converts the message at the front of `bytes` to a v2 batch with the same offsets and timestamps.
///
/// Returns the batch and the number of bytes consumed, or `None` if the message is truncated, as at the end of any
/// fetch response.
pub fn to_v2(bytes: &[u8], cap: usize) -> Result<Option<(Bytes, usize)>, LegacyError> {
    let Some((message, consumed)) = Message::parse(bytes)? else { return Ok(None) };
    let mut inner = Vec::new();
    let codec = message.codec()?;
    let decompressed;
    if codec == Compression::None {
        inner.push(message);
    } else {
        let value = message.value.unwrap_or_default();
        decompressed = if codec == Compression::Lz4 && message.magic == 0 {
            compress::decompress_lz4_v0(value, cap)
        } else {
            compress::decompress(codec, value, cap)
        }
        .map_err(|source| LegacyError::Compress { offset: message.offset, source })?;
        let mut rest = &decompressed[..];
        while let Some((entry, n)) = Message::parse(rest)? {
            if entry.codec()? != Compression::None {
                let Message { offset, magic, attributes, .. } = entry;
                return Err(LegacyError::Format { offset, magic, attributes });
            }
            inner.push(entry);
            rest = &rest[n..];
        }
        // In v1 the inner offsets start at 0; the wrapper has the offset of the last message.
        if message.magic == 1
            && let Some(last) = inner.last()
        {
            let base = message.offset.checked_sub(last.offset);
            for entry in &mut inner {
                let offset = base.and_then(|base| entry.offset.checked_add(base));
                entry.offset = offset.ok_or_else(|| offset_distance(message.offset, entry.offset))?;
            }
        }
    }
    let base_offset = inner.first().map_or(message.offset, |entry| entry.offset);
    let mut builder = BatchBuilder::new();
    let mut last_delta = -1;
    let stamped = message.attributes & LOG_APPEND_TIME != 0 && message.magic == 1;
    for entry in &inner {
        let delta = entry.offset.checked_sub(base_offset).and_then(|delta| i32::try_from(delta).ok());
        let delta = delta.filter(|delta| *delta > last_delta && entry.offset < i64::MAX);
        let Some(delta) = delta else { return Err(offset_distance(entry.offset, base_offset)) };
        last_delta = delta;
        let timestamp = if stamped { message.timestamp } else { entry.timestamp };
        builder.push_at(delta, timestamp, entry.key, entry.value, &[]);
    }
    if base_offset == i64::MAX {
        return Err(offset_distance(base_offset, 0));
    }
    let sealed = builder
        .seal(&Seal::default())
        .map_err(|source| LegacyError::Compress { offset: message.offset, source })?;
    let mut bytes = sealed.to_bytes().to_vec();
    batch::set_base_offset(&mut bytes, base_offset);
    if stamped {
        batch::set_log_append_time(&mut bytes, message.timestamp);
    }
    Ok(Some((bytes.into(), consumed)))
}

/// The offsets of a set do not rise, or a batch cannot have them.
#[cold]
fn offset_distance(offset: i64, base_offset: i64) -> LegacyError {
    LegacyError::Length {
        offset,
        what: "offset distance",
        length: offset.saturating_sub(base_offset),
        left: 0,
    }
}

#[derive(Clone, Copy)]
struct Message<'a> {
    offset: i64,
    magic: u8,
    attributes: u8,
    timestamp: i64,
    key: Option<&'a [u8]>,
    value: Option<&'a [u8]>,
}

impl<'a> Message<'a> {
    fn parse(bytes: &'a [u8]) -> Result<Option<(Self, usize)>, LegacyError> {
        let (Some(offset), Some(size)) = (bytes.first_chunk::<8>(), bytes.get(8..LOG_OVERHEAD_BYTES)) else {
            return Ok(None);
        };
        let offset = i64::from_be_bytes(*offset);
        let size = i32::from_be_bytes([size[0], size[1], size[2], size[3]]);
        let left = bytes.len() - LOG_OVERHEAD_BYTES;
        if size < (MESSAGE_BYTES_MIN - LOG_OVERHEAD_BYTES) as i32 {
            return Err(LegacyError::Length { offset, what: "message", length: size.into(), left });
        }
        let Some(body) = bytes.get(LOG_OVERHEAD_BYTES..LOG_OVERHEAD_BYTES + size as usize) else {
            return Ok(None);
        };
        let stored = u32::from_be_bytes([body[0], body[1], body[2], body[3]]);
        let computed = crc_fast::crc32_iso_hdlc(&body[4..]);
        if stored != computed {
            return Err(LegacyError::Crc { offset, stored, computed });
        }
        let (magic, attributes) = (body[4], body[5]);
        let (timestamp, rest) = match magic {
            0 => (NO_TIMESTAMP, &body[6..]),
            1 => match body[6..].split_first_chunk::<8>() {
                Some((timestamp, rest)) => (i64::from_be_bytes(*timestamp), rest),
                None => {
                    return Err(LegacyError::Length {
                        offset,
                        what: "timestamp",
                        length: 8,
                        left: body.len() - 6,
                    });
                }
            },
            _ => return Err(LegacyError::Format { offset, magic, attributes }),
        };
        let (key, rest) = field(offset, "key", rest)?;
        let (value, rest) = field(offset, "value", rest)?;
        if !rest.is_empty() {
            return Err(LegacyError::Length {
                offset,
                what: "message",
                length: size.into(),
                left: body.len() - rest.len(),
            });
        }
        let message = Self { offset, magic, attributes, timestamp, key, value };
        Ok(Some((message, LOG_OVERHEAD_BYTES + size as usize)))
    }

    fn codec(&self) -> Result<Compression, LegacyError> {
        let Self { offset, magic, attributes, .. } = *self;
        Compression::from_attributes(i16::from(attributes & CODEC_MASK)).map_err(|_| LegacyError::Format {
            offset,
            magic,
            attributes,
        })
    }
}

fn field<'a>(
    offset: i64,
    what: &'static str,
    bytes: &'a [u8],
) -> Result<(Option<&'a [u8]>, &'a [u8]), LegacyError> {
    let Some((length, rest)) = bytes.split_first_chunk::<4>() else {
        return Err(LegacyError::Length { offset, what, length: 4, left: bytes.len() });
    };
    let length = i32::from_be_bytes(*length);
    if length < 0 {
        return Ok((None, rest));
    }
    match rest.split_at_checked(length as usize) {
        Some((field, rest)) => Ok((Some(field), rest)),
        None => Err(LegacyError::Length { offset, what, length: length.into(), left: rest.len() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::TimestampType;
    use crate::reader::Records;

    fn message(magic: u8, attributes: u8, offset: i64, key: Option<&[u8]>, value: Option<&[u8]>) -> Vec<u8> {
        let mut body = vec![magic, attributes];
        if magic == 1 {
            body.extend(offset.wrapping_add(1000).to_be_bytes());
        }
        for part in [key, value] {
            body.extend(part.map_or(-1, |part| part.len() as i32).to_be_bytes());
            body.extend(part.unwrap_or_default());
        }
        let mut out = offset.to_be_bytes().to_vec();
        out.extend((body.len() as i32 + 4).to_be_bytes());
        out.extend(crc_fast::crc32_iso_hdlc(&body).to_be_bytes());
        out.extend(body);
        out
    }

    type Owned = (i64, i64, Option<Vec<u8>>, Option<Vec<u8>>);

    fn read(bytes: &[u8]) -> Vec<Owned> {
        let (batch, consumed) = to_v2(bytes, 1 << 20).expect("readable").expect("whole");
        assert_eq!(consumed, bytes.len());
        let records = Records::of_batch(&batch, 0).expect("a v2 batch");
        records.header().verify_crc(&batch).expect("a fitting checksum");
        let owned = |part: Option<&[u8]>| part.map(<[u8]>::to_vec);
        records.iter().flatten().map(|r| (r.offset, r.timestamp, owned(r.key), owned(r.value))).collect()
    }

    #[test]
    fn plain_messages_of_both_formats_keep_offset_timestamp_key_and_value() {
        let v0 = read(&message(0, 0, 41, Some(b"k"), Some(b"v")));
        assert_eq!(v0, [(41, -1, Some(b"k".to_vec()), Some(b"v".to_vec()))]);
        let v1 = read(&message(1, 0, 41, None, None));
        assert_eq!(v1, [(41, 1041, None, None)]);
    }

    #[test]
    fn compressed_sets_are_unwrapped_with_the_offsets_of_their_format() {
        for (codec, attribute) in [(Compression::Gzip, 1), (Compression::Snappy, 2), (Compression::Lz4, 3)] {
            for magic in [0, 1] {
                // Offset 1 is missing, as after compaction.
                let offsets = if magic == 0 { [100, 102] } else { [0, 2] };
                let set: Vec<u8> =
                    offsets.iter().flat_map(|at| message(magic, 0, *at, None, Some(b"inner"))).collect();
                let mut value = Vec::new();
                compress::compress(codec, None, &set, &mut value).expect("compressed");
                let got = read(&message(magic, attribute, 102, None, Some(&value)));
                assert_eq!(got.iter().map(|r| r.0).collect::<Vec<_>>(), [100, 102], "{codec:?} v{magic}");
            }
        }
    }

    /// The batches had the timestamp type CreateTime.
    #[test]
    fn messages_with_the_time_of_their_append_become_batches_with_it() {
        let set: Vec<u8> = [0, 1].iter().flat_map(|at| message(1, 0, *at, None, Some(b"inner"))).collect();
        let mut value = Vec::new();
        compress::compress(Compression::Gzip, None, &set, &mut value).expect("compressed");
        let plain = message(1, LOG_APPEND_TIME, 41, None, Some(b"v"));
        let wrapped = message(1, LOG_APPEND_TIME | Compression::Gzip as u8, 41, None, Some(&value));
        for (bytes, offsets) in [(plain, &[41][..]), (wrapped, &[40, 41])] {
            let got = read(&bytes);
            let expected: Vec<_> = offsets.iter().map(|offset| (*offset, 1041)).collect();
            assert_eq!(got.iter().map(|r| (r.0, r.1)).collect::<Vec<_>>(), expected);
            let (batch, _) = to_v2(&bytes, 1 << 20).expect("readable").expect("whole");
            let records = Records::of_batch(&batch, 0).expect("a v2 batch");
            assert_eq!(records.header().timestamp_type(), TimestampType::LogAppendTime);
            assert_eq!(records.header().max_timestamp, 1041);
        }
    }

    #[test]
    fn every_cut_and_every_flipped_bit_is_an_error_or_incomplete() {
        let good = message(1, 0, 7, Some(b"key"), Some(b"value"));
        for cut in 0..good.len() {
            assert_eq!(to_v2(&good[..cut], 1024), Ok(None));
        }
        for at in LOG_OVERHEAD_BYTES..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            assert!(to_v2(&bad, 1024).is_err(), "byte {at}");
        }
    }

    /// Found by the fuzz target `legacy_messages`: the builder panicked, and sums overflowed.
    #[test]
    fn offsets_that_do_not_rise_or_do_not_fit_are_errors() {
        let wrapped = |magic: u8, outer: i64, offsets: &[i64]| {
            let inner: Vec<u8> =
                offsets.iter().flat_map(|offset| message(magic, 0, *offset, None, Some(b"v"))).collect();
            let mut value = Vec::new();
            compress::compress(Compression::Gzip, None, &inner, &mut value).expect("compressed");
            message(magic, Compression::Gzip as u8, outer, None, Some(&value))
        };
        for (magic, outer, offsets) in [
            (0, 9, &[0, 100, 2][..]),
            (0, 9, &[5, 5]),
            (0, 9, &[i64::MIN, i64::MAX]),
            (0, 9, &[0, i64::from(i32::MAX) + 1]),
            (1, i64::MIN, &[0, 1]),
            (1, 9, &[i64::MIN, i64::MIN + 1]),
            (1, 9, &[i64::MAX, i64::MIN + 1]),
        ] {
            let refused = to_v2(&wrapped(magic, outer, offsets), 1 << 20).expect_err("refused");
            assert!(matches!(refused, LegacyError::Length { what: "offset distance", .. }), "{refused}");
        }
        let refused = to_v2(&message(1, 0, i64::MAX, None, None), 0).expect_err("no offset follows it");
        assert!(matches!(refused, LegacyError::Length { what: "offset distance", .. }), "{refused}");
    }
}
