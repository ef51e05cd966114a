//! lz4 frames with independent blocks of 64 KiB, the only kind that Java's reader accepts.

use std::io::Write;

use bytes::buf::Reader;
use bytes::{Buf, Bytes};
use lz4_flex::frame::{BlockMode, BlockSize, FrameDecoder, FrameEncoder, FrameInfo};

use super::{CompressError, corrupt, read_capped, too_large};
use crate::batch::Compression;

const FRAME_MAGIC: u32 = 0x184d_2204;
/// The largest block size that a frame can declare.
const BLOCK_BYTES_MAX: usize = 4 << 20;
/// Starts a frame of the format before frames had a header.
const LEGACY_MAGIC: u32 = 0x184c_2102;
const LEGACY_BLOCK_BYTES: usize = 8 << 20;
/// The bytes that a block may refer to in the blocks before it.
const WINDOW_BYTES: usize = 64 << 10;
/// The memory of a decoder beside its blocks.
const DECODER_BYTES: usize = 128 << 10;
/// The flags of a frame's header.
const INDEPENDENT_BLOCKS: u8 = 0x20;
const BLOCK_CHECKSUMS: u8 = 0x10;
const CONTENT_SIZE: u8 = 0x08;

/// The memory of a decoder for this frame: a block before decompression, and one after it; two if blocks refer to earlier ones.
pub(super) fn decoder_bytes(input: &[u8]) -> usize {
    let most = 2 * LEGACY_BLOCK_BYTES + DECODER_BYTES;
    let Some((magic, [flags, sizes, ..])) = input.split_first_chunk::<4>() else { return DECODER_BYTES };
    let block = match (u32::from_le_bytes(*magic), sizes >> 4 & 7) {
        (LEGACY_MAGIC, _) => return most,
        (FRAME_MAGIC, 4) => 64 << 10,
        (FRAME_MAGIC, 5) => 256 << 10,
        (FRAME_MAGIC, 6) => 1 << 20,
        (FRAME_MAGIC, 7) => BLOCK_BYTES_MAX,
        // The decoder refuses other sizes before it allocates.
        _ => return DECODER_BYTES,
    };
    let decompressed = if flags & INDEPENDENT_BLOCKS != 0 { block } else { 2 * block + WINDOW_BYTES };
    block + decompressed + DECODER_BYTES
}

pub(super) fn compress(input: &[u8], _level: i32, out: &mut Vec<u8>) -> Result<(), CompressError> {
    let info = FrameInfo::new().block_mode(BlockMode::Independent).block_size(BlockSize::Max64KB);
    let mut encoder = FrameEncoder::with_frame_info(info, out);
    encoder.write_all(input).map_err(|error| corrupt(Compression::Lz4, error))?;
    encoder.finish().map_err(|error| corrupt(Compression::Lz4, error))?;
    Ok(())
}

pub(super) fn decompress(input: &[u8], cap: usize) -> Result<Vec<u8>, CompressError> {
    if input.is_empty() {
        return Err(corrupt(Compression::Lz4, "no frame"));
    }
    read_capped(Compression::Lz4, input, cap, FrameDecoder::new(input))
}

pub(super) fn decoder(input: Bytes) -> Result<FrameDecoder<Reader<Bytes>>, CompressError> {
    if input.is_empty() {
        return Err(corrupt(Compression::Lz4, "no frame"));
    }
    Ok(FrameDecoder::new(input.reader()))
}

/// Checks what Java's reader requires of a frame beyond [`decompress`] (`Lz4BlockInputStream`): the magic of the current format, blocks
/// that do not refer to earlier ones, and an end mark.
pub(super) fn check_for_java(input: &[u8]) -> Result<(), CompressError> {
    let mut frame = Frame::parse(input)?;
    if frame.flags & INDEPENDENT_BLOCKS == 0 {
        return Err(corrupt(Compression::Lz4, "a frame of linked blocks, which Java's clients cannot read"));
    }
    while frame.next_block()?.is_some() {}
    Ok(())
}

/// Decompresses a frame of message format v0, whose header checksum Java computed wrongly (KAFKA-3160). It walks the
/// blocks and ignores every checksum; the message's own CRC covers the bytes.
pub fn decompress_ignoring_checksums(input: &[u8], cap: usize) -> Result<Vec<u8>, CompressError> {
    let mut frame = Frame::parse(input)?;
    let mut out = Vec::new();
    while let Some(block) = frame.next_block()? {
        if block.is_compressed {
            let room = cap.saturating_sub(out.len());
            let most = room.min(BLOCK_BYTES_MAX).min(block.bytes.len().saturating_mul(255));
            let mut block_out = vec![0; most];
            let written = lz4_flex::block::decompress_into(block.bytes, &mut block_out).map_err(|error| {
                if room < BLOCK_BYTES_MAX {
                    too_large(Compression::Lz4, input, cap)
                } else {
                    corrupt(Compression::Lz4, error)
                }
            })?;
            out.extend_from_slice(&block_out[..written]);
        } else {
            out.extend_from_slice(block.bytes);
        }
        if out.len() > cap {
            return Err(too_large(Compression::Lz4, input, cap));
        }
    }
    Ok(out)
}

/// A frame whose blocks are walked without a check of its checksums.
struct Frame<'a> {
    flags: u8,
    /// The bytes behind the last block that was returned.
    rest: &'a [u8],
}

struct Block<'a> {
    is_compressed: bool,
    bytes: &'a [u8],
}

impl<'a> Frame<'a> {
    fn parse(input: &'a [u8]) -> Result<Self, CompressError> {
        let bad = |reason: &str| corrupt(Compression::Lz4, reason);
        let (magic, rest) = input.split_first_chunk::<4>().ok_or_else(|| bad("the frame is truncated"))?;
        if u32::from_le_bytes(*magic) != FRAME_MAGIC {
            return Err(bad("no frame magic"));
        }
        let flags = *rest.first().ok_or_else(|| bad("the frame is truncated"))?;
        let header = 3 + if flags & CONTENT_SIZE != 0 { 8 } else { 0 };
        let rest = rest.get(header..).ok_or_else(|| bad("the frame is truncated"))?;
        Ok(Self { flags, rest })
    }

    /// The next block; `None` at the end mark.
    fn next_block(&mut self) -> Result<Option<Block<'a>>, CompressError> {
        let bad = |reason: &str| corrupt(Compression::Lz4, reason);
        let (word, after) =
            self.rest.split_first_chunk::<4>().ok_or_else(|| bad("a block's length is truncated"))?;
        let word = u32::from_le_bytes(*word);
        let length = (word & 0x7fff_ffff) as usize;
        if length == 0 {
            return Ok(None);
        }
        let (bytes, after) = after.split_at_checked(length).ok_or_else(|| bad("a block is truncated"))?;
        let has_checksum = self.flags & BLOCK_CHECKSUMS != 0;
        self.rest = if has_checksum { after.get(4..).unwrap_or_default() } else { after };
        Ok(Some(Block { is_compressed: word & 0x8000_0000 == 0, bytes }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(info: FrameInfo, input: &[u8]) -> Vec<u8> {
        let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
        encoder.write_all(input).expect("compressed");
        encoder.finish().expect("compressed")
    }

    #[test]
    fn a_frame_that_java_cannot_read_is_an_error_of_its_check() {
        let input = b"0123456789".repeat(20_000);
        let info = || FrameInfo::new().block_size(BlockSize::Max64KB);
        let sound = encoded(info().block_mode(BlockMode::Independent), &input);
        let checksums = info().block_checksums(true).content_checksum(true);
        let sized = checksums.content_size(Some(input.len() as u64));
        for sound in [&sound, &encoded(sized, &input), &encoded(info(), b"")] {
            assert_eq!(check_for_java(sound), Ok(()));
        }
        let torn = sound[..sound.len() - 4].to_vec();
        let linked = encoded(info().block_mode(BlockMode::Linked), &input);
        let legacy = [&LEGACY_MAGIC.to_le_bytes()[..], &sound[4..]].concat();
        for refused in [torn, linked, legacy] {
            assert!(check_for_java(&refused).is_err(), "{:x?}", &refused[..7]);
        }
    }

    /// Every frame counted 8 MiB, and one of the old format took 16.
    #[test]
    fn the_memory_of_a_decoder_depends_on_the_declared_blocks() {
        let frame = |mode, size| encoded(FrameInfo::new().block_mode(mode).block_size(size), b"text");
        let small = decoder_bytes(&frame(BlockMode::Independent, BlockSize::Max64KB));
        assert_eq!(small, 2 * (64 << 10) + DECODER_BYTES);
        let large = decoder_bytes(&frame(BlockMode::Linked, BlockSize::Max4MB));
        assert_eq!(large, 3 * BLOCK_BYTES_MAX + WINDOW_BYTES + DECODER_BYTES);
        let legacy = decoder_bytes(&[&LEGACY_MAGIC.to_le_bytes()[..], &[0; 8]].concat());
        assert_eq!(legacy, 2 * LEGACY_BLOCK_BYTES + DECODER_BYTES);
        assert_eq!(decoder_bytes(b"lz4?"), DECODER_BYTES);
    }

    #[test]
    fn a_frame_with_a_wrong_header_checksum_is_read_by_the_lenient_reader_only() {
        let input = b"0123456789".repeat(20_000);
        let mut frame = Vec::new();
        compress(&input, 1, &mut frame).expect("compressed");
        frame[6] ^= 0xff;
        assert!(decompress(&frame, 1 << 20).is_err());
        assert_eq!(decompress_ignoring_checksums(&frame, 1 << 20), Ok(input));
        assert!(decompress_ignoring_checksums(&frame, 1000).is_err());
        for cut in 0..40 {
            assert!(decompress_ignoring_checksums(&frame[..cut], 1 << 20).is_err());
        }
    }
}
