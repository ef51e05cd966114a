//! lz4 frames with independent blocks of 64 KiB, the only kind that Java's reader accepts.

use std::io::{Read, Write};

use bytes::{Buf, Bytes};
use lz4_flex::frame::{BlockMode, BlockSize, FrameDecoder, FrameEncoder, FrameInfo};

use super::lz4_frame::{self, Contents, Frame, FrameReader};
use super::{CompressError, corrupt, read_capped, too_large};
use crate::batch::Compression;

/// Starts a frame of the format before frames had a header. `lz4_flex` reads those: few clients write them.
const LEGACY_MAGIC: u32 = 0x184c_2102;
const LEGACY_BLOCK_BYTES: usize = 8 << 20;
/// The memory of a decoder beside its blocks.
const DECODER_BYTES: usize = 1 << 10;

/// The memory of a decoder for this frame: a block after decompression, and what it may refer to. Frames of the old format take a block
/// before decompression, too.
pub(super) fn decoder_bytes(input: &[u8]) -> usize {
    if is_legacy(input) {
        return 2 * LEGACY_BLOCK_BYTES + DECODER_BYTES;
    }
    // Other input is refused before memory is taken.
    Frame::parse(input).map_or(0, |frame| lz4_frame::reader_bytes(input, &frame)) + DECODER_BYTES
}

fn is_legacy(input: &[u8]) -> bool {
    input.starts_with(&LEGACY_MAGIC.to_le_bytes())
}

pub(super) fn compress(input: &[u8], _level: i32, out: &mut Vec<u8>) -> Result<(), CompressError> {
    let info = FrameInfo::new().block_mode(BlockMode::Independent).block_size(BlockSize::Max64KB);
    let mut encoder = FrameEncoder::with_frame_info(info, out);
    encoder.write_all(input).map_err(|error| corrupt(Compression::Lz4, error))?;
    encoder.finish().map_err(|error| corrupt(Compression::Lz4, error))?;
    Ok(())
}

pub(super) fn decompress(input: &[u8], cap: usize) -> Result<Vec<u8>, CompressError> {
    if is_legacy(input) {
        return read_capped(Compression::Lz4, input, cap, FrameDecoder::new(input));
    }
    lz4_frame::read_all(input, cap)
}

pub(super) fn decoder(input: Bytes) -> Result<Box<dyn Read + Send>, CompressError> {
    if is_legacy(&input) {
        return Ok(Box::new(FrameDecoder::new(input.reader())));
    }
    Ok(Box::new(FrameReader::new(input)?))
}

/// Checks what Java's reader requires of a frame beyond [`decompress`] (`Lz4BlockInputStream`): the magic of the current format, blocks
/// that do not refer to earlier ones, and an end mark.
pub(super) fn check_for_java(input: &[u8]) -> Result<(), CompressError> {
    let frame = Frame::parse(input)?;
    if !frame.has_independent_blocks() {
        return Err(corrupt(Compression::Lz4, "a frame of linked blocks, which Java's clients cannot read"));
    }
    let mut rest = &input[frame.header_bytes..];
    while let Some(block) = frame.block(rest)? {
        rest = &rest[block.length..];
    }
    Ok(())
}

/// Decompresses a frame of message format v0, whose header checksum Java computed wrongly (KAFKA-3160). It walks the
/// blocks and ignores every checksum; the message's own CRC covers the bytes.
pub fn decompress_ignoring_checksums(input: &[u8], cap: usize) -> Result<Vec<u8>, CompressError> {
    let frame = Frame::parse(input)?;
    let mut rest = &input[frame.header_bytes..];
    let mut out = Contents::new(0, cap);
    while let Some(block) = frame.block(rest)? {
        if frame.append(&block, cap - out.len(), &mut out)?.is_none() {
            return Err(too_large(Compression::Lz4, input, cap));
        }
        rest = &rest[block.length..];
    }
    Ok(out.into_bytes())
}

#[cfg(test)]
mod tests {
    use super::super::lz4_frame::BLOCK_BYTES_MAX;
    use super::super::lz4_frame::tests::encoded;
    use super::*;

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
    fn the_memory_of_a_decoder_depends_on_the_declared_blocks_and_on_the_input() {
        let frame = |mode, size| encoded(FrameInfo::new().block_mode(mode).block_size(size), b"text");
        let of = |mode, size| decoder_bytes(&frame(mode, size));
        let small = of(BlockMode::Independent, BlockSize::Max64KB);
        assert!((1 << 10..80 << 10).contains(&small), "{small}");
        assert_eq!(of(BlockMode::Linked, BlockSize::Max4MB), small, "the contents are small");
        let long = FrameInfo::new().block_mode(BlockMode::Independent).block_size(BlockSize::Max4MB);
        let mut rng = fastrand::Rng::with_seed(1);
        let noise: Vec<u8> = (0..100_000).map(|_| rng.u8(..)).collect();
        let long = decoder_bytes(&encoded(long, &noise));
        assert!((BLOCK_BYTES_MAX..BLOCK_BYTES_MAX + (64 << 10)).contains(&long), "{long}");
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
