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

/// The memory of a decoder for this frame: a block before decompression, and one after it; two if blocks refer to earlier ones.
pub(super) fn decoder_bytes(input: &[u8]) -> usize {
    const INDEPENDENT: u8 = 0x20;
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
    let decompressed = if flags & INDEPENDENT != 0 { block } else { 2 * block + WINDOW_BYTES };
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

/// Decompresses a frame of message format v0, whose header checksum Java computed wrongly (KAFKA-3160). It walks the
/// blocks and ignores every checksum; the message's own CRC covers the bytes.
pub fn decompress_ignoring_checksums(input: &[u8], cap: usize) -> Result<Vec<u8>, CompressError> {
    let bad = |reason: &str| corrupt(Compression::Lz4, reason);
    let (magic, rest) = input.split_first_chunk::<4>().ok_or_else(|| bad("the frame is truncated"))?;
    if u32::from_le_bytes(*magic) != FRAME_MAGIC {
        return Err(bad("no frame magic"));
    }
    let flags = *rest.first().ok_or_else(|| bad("the frame is truncated"))?;
    let block_checksums = flags & 0x10 != 0;
    let content_size = flags & 0x08 != 0;
    let header = 3 + if content_size { 8 } else { 0 };
    let mut rest = rest.get(header..).ok_or_else(|| bad("the frame is truncated"))?;
    let mut out = Vec::new();
    loop {
        let (word, after) =
            rest.split_first_chunk::<4>().ok_or_else(|| bad("a block's length is truncated"))?;
        let word = u32::from_le_bytes(*word);
        if word == 0 {
            return Ok(out);
        }
        let length = (word & 0x7fff_ffff) as usize;
        let (block, after) = after.split_at_checked(length).ok_or_else(|| bad("a block is truncated"))?;
        if word & 0x8000_0000 == 0 {
            let room = cap.saturating_sub(out.len());
            let mut block_out = vec![0; room.min(BLOCK_BYTES_MAX).min(length.saturating_mul(255))];
            let written = lz4_flex::block::decompress_into(block, &mut block_out).map_err(|error| {
                if room < BLOCK_BYTES_MAX {
                    too_large(Compression::Lz4, input, cap)
                } else {
                    corrupt(Compression::Lz4, error)
                }
            })?;
            out.extend_from_slice(&block_out[..written]);
        } else {
            out.extend_from_slice(block);
        }
        if out.len() > cap {
            return Err(too_large(Compression::Lz4, input, cap));
        }
        rest = if block_checksums { after.get(4..).unwrap_or_default() } else { after };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every frame counted 8 MiB, and one of the old format took 16.
    #[test]
    fn the_memory_of_a_decoder_depends_on_the_declared_blocks() {
        let frame = |mode, size| {
            let info = FrameInfo::new().block_mode(mode).block_size(size);
            let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
            encoder.write_all(b"text").expect("compressed");
            encoder.finish().expect("compressed")
        };
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
