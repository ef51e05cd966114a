//! The four codecs of record batches. Decompression never exceeds a cap.

mod gzip;
mod lz4;
mod lz4_frame;
mod snappy;
mod zstd;

pub use lz4::decompress_ignoring_checksums as decompress_lz4_v0;

use std::cell::RefCell;
use std::io::Read;

use bytes::{Buf, Bytes};

use crate::batch::Compression;

/// Maximum scratch memory that a thread keeps. Codecs need room for their worst case.
const SCRATCH_BYTES_MAX: usize = 4 << 20;

thread_local! {
    /// Reused scratch memory: the output is then allocated at its exact size.
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Default cap on the decompressed size of a batch: 64 MiB (FAULTS C16).
pub const DECOMPRESSED_BYTES_MAX: usize = 64 << 20;

/// An error of a codec.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum CompressError {
    /// The bytes are not what the codec expects.
    #[error("{codec}: {reason}", codec = codec.name())]
    Corrupt {
        /// The codec.
        codec: Compression,
        /// The codec's own message.
        reason: String,
    },
    /// The decompressed bytes exceed the cap. Nothing beyond the cap was allocated.
    #[error("{codec}: {compressed} bytes inflate to more than the cap of {cap}", codec = codec.name())]
    TooLarge {
        /// The codec.
        codec: Compression,
        /// Size of the compressed input in bytes.
        compressed: usize,
        /// The cap.
        cap: usize,
    },
    /// A level the codec does not have.
    #[error("{codec}: level {level} is outside {min}..={max}", codec = codec.name())]
    Level {
        /// The codec.
        codec: Compression,
        /// The requested level.
        level: i32,
        /// The lowest level.
        min: i32,
        /// The highest level.
        max: i32,
    },
}

/// The levels of a codec: lowest, default, highest. Snappy has none; lz4 frames are written at one speed.
pub const fn levels(codec: Compression) -> Option<(i32, i32, i32)> {
    match codec {
        Compression::Gzip => Some((1, 6, 9)),
        Compression::Lz4 => Some((1, 1, 12)),
        Compression::Zstd => Some((1, 3, 22)),
        Compression::None | Compression::Snappy => None,
    }
}

/// Compresses `input` and appends the result to `out`.
///
/// A `level` of `None` or -1 is the codec's default. A level outside the codec's range is an error. Codecs without
/// levels ignore it.
pub fn compress(
    codec: Compression,
    level: Option<i32>,
    input: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), CompressError> {
    let level = match (levels(codec), level) {
        (None, _) => 0,
        (Some((_, default, _)), None | Some(-1)) => default,
        (Some((min, _, max)), Some(level)) if (min..=max).contains(&level) => level,
        (Some((min, _, max)), Some(level)) => return Err(CompressError::Level { codec, level, min, max }),
    };
    SCRATCH.with_borrow_mut(|scratch| {
        scratch.clear();
        match codec {
            Compression::None => scratch.extend_from_slice(input),
            Compression::Gzip => gzip::compress(input, level, scratch)?,
            Compression::Snappy => snappy::compress(input, scratch)?,
            Compression::Lz4 => lz4::compress(input, level, scratch)?,
            Compression::Zstd => zstd::compress(input, level, scratch)?,
        }
        out.reserve_exact(scratch.len());
        out.extend_from_slice(scratch);
        if scratch.capacity() > SCRATCH_BYTES_MAX {
            *scratch = Vec::new();
        }
        Ok(())
    })
}

/// Decompresses `input`. Output above `cap` bytes is an error, which is detected before the bytes are allocated.
pub fn decompress(codec: Compression, input: &[u8], cap: usize) -> Result<Vec<u8>, CompressError> {
    match codec {
        Compression::None if input.len() > cap => Err(too_large(codec, input, cap)),
        Compression::None => Ok(input.to_vec()),
        Compression::Gzip => gzip::decompress(input, cap),
        Compression::Snappy => snappy::decompress(input, cap),
        Compression::Lz4 => lz4::decompress(input, cap),
        Compression::Zstd => zstd::decompress(input, cap),
    }
}

/// Checks that Java's clients can read compressed bytes that [`decompress`] accepts. Their reader of lz4 accepts fewer frames.
pub fn check_for_java(codec: Compression, input: &[u8]) -> Result<(), CompressError> {
    match codec {
        Compression::Lz4 => lz4::check_for_java(input),
        Compression::None | Compression::Gzip | Compression::Snappy | Compression::Zstd => Ok(()),
    }
}

/// A reader of the decompressed bytes, in parts. Snappy's blocks are decompressed one by one, up to `cap` bytes.
pub(crate) fn decoder(
    codec: Compression,
    input: Bytes,
    cap: usize,
) -> Result<Box<dyn Read + Send>, CompressError> {
    Ok(match codec {
        Compression::None => Box::new(input.reader()),
        Compression::Gzip => Box::new(gzip::decoder(input)),
        Compression::Snappy => Box::new(snappy::SnappyReader::new(input, cap)),
        Compression::Lz4 => lz4::decoder(input)?,
        Compression::Zstd => Box::new(zstd::decoder(input)?),
    })
}

/// The memory that [`decoder`] needs for this input.
pub(crate) fn decoder_bytes(codec: Compression, input: &[u8], cap: usize) -> usize {
    match codec {
        Compression::None => 0,
        Compression::Gzip => gzip::DECODER_BYTES,
        Compression::Snappy => snappy::block_bytes_max(input).min(cap),
        Compression::Lz4 => lz4::decoder_bytes(input),
        Compression::Zstd => zstd::decoder_bytes(input, cap),
    }
}

/// The error of a [`decoder`].
pub(crate) fn error_of(codec: Compression, error: &std::io::Error) -> CompressError {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<CompressError>());
    inner.cloned().unwrap_or_else(|| corrupt(codec, error))
}

fn corrupt(codec: Compression, reason: impl ToString) -> CompressError {
    CompressError::Corrupt { codec, reason: reason.to_string() }
}

fn too_large(codec: Compression, input: &[u8], cap: usize) -> CompressError {
    CompressError::TooLarge { codec, compressed: input.len(), cap }
}

/// Reads a decoder to its end. Memory grows with the actual output and never exceeds the cap.
fn read_capped(
    codec: Compression,
    input: &[u8],
    cap: usize,
    decoder: impl Read,
) -> Result<Vec<u8>, CompressError> {
    // Records compress three to eight times: most batches need one allocation, and a small bomb costs little.
    let mut out = Vec::with_capacity(input.len().saturating_mul(4).min(cap));
    decoder.take(cap as u64 + 1).read_to_end(&mut out).map_err(|error| corrupt(codec, error))?;
    if out.len() > cap { Err(too_large(codec, input, cap)) } else { Ok(out) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text() -> Vec<u8> {
        (0..20_000_u32)
            .flat_map(|i| format!("{{\"id\":{},\"name\":\"n{}\"}}\n", i, i % 97).into_bytes())
            .collect()
    }

    #[test]
    fn every_codec_and_level_round_trips() {
        for codec in Compression::ALL {
            let (min, _, max) = levels(codec).unwrap_or((0, 0, 0));
            for level in [min, max] {
                for input in [text(), b"x".to_vec(), Vec::new()] {
                    let mut out = b"in front".to_vec();
                    compress(codec, Some(level), &input, &mut out).expect("compressed");
                    assert_eq!(&out[..8], b"in front");
                    assert_eq!(
                        decompress(codec, &out[8..], 1 << 20).as_deref(),
                        Ok(&input[..]),
                        "{codec:?} {level}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_decompression_bomb_stops_at_the_cap() {
        let zeros = vec![0_u8; 32 << 20];
        for codec in &Compression::ALL[1..] {
            let mut bomb = Vec::new();
            compress(*codec, None, &zeros, &mut bomb).expect("compressed");
            let error = decompress(*codec, &bomb, 1 << 20).expect_err("above the cap");
            assert!(matches!(error, CompressError::TooLarge { cap: 1_048_576, .. }), "{error}");
        }
    }

    #[test]
    fn damaged_or_truncated_input_never_panics() {
        let input = text();
        for codec in &Compression::ALL[1..] {
            let mut good = Vec::new();
            compress(*codec, None, &input, &mut good).expect("compressed");
            for cut in (0..good.len()).step_by(good.len() / 40) {
                assert_ne!(
                    decompress(*codec, &good[..cut], 1 << 20),
                    Ok(input.clone()),
                    "{codec:?} cut at {cut}"
                );
            }
            for at in 0..good.len().min(300) {
                let mut bad = good.clone();
                bad[at] ^= 0x41;
                let _ = decompress(*codec, &bad, 1 << 20);
            }
        }
    }

    #[test]
    fn an_unknown_level_is_reported_with_the_range() {
        let error = compress(Compression::Gzip, Some(10), b"", &mut Vec::new()).expect_err("1 to 9");
        assert_eq!(error.to_string(), "gzip: level 10 is outside 1..=9");
    }
}
