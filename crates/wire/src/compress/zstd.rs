//! zstd frames (KIP-110).

use std::cell::RefCell;

use ::zstd::bulk::Compressor;
use ::zstd::stream::read::Decoder;
use ::zstd::zstd_safe::{compress_bound, find_frame_compressed_size};
use bytes::buf::Reader;
use bytes::{Buf, Bytes};

use super::{CompressError, corrupt, read_capped};
use crate::batch::Compression;

/// Maximum window of a frame: 128 MiB, the default of libzstd and so that of Kafka's other readers. Java declares it in each frame of
/// level 22. The decoder allocates the window before it decodes, and touches the part that the content fills.
const WINDOW_LOG_MAX: u32 = 27;
/// The least maximum that a decoder accepts: 1 KiB.
const WINDOW_LOG_MIN: u32 = 10;
/// The memory of a decoder besides its window.
const DECODER_BYTES: usize = 512 << 10;
/// The maximum content of a block: a decoder writes one block beyond the cap at most.
const BLOCK_BYTES_MAX: usize = 128 << 10;
/// The first bytes of a frame: RFC 8878, 3.1.1.
const FRAME_MAGIC: [u8; 4] = 0xfd2f_b528_u32.to_le_bytes();

thread_local! {
    /// Creating a context costs more than compressing a small batch: each compressing thread keeps one.
    static COMPRESSOR: RefCell<Option<(i32, Compressor<'static>)>> = const { RefCell::new(None) };
}

pub(super) fn compress(input: &[u8], level: i32, out: &mut Vec<u8>) -> Result<(), CompressError> {
    COMPRESSOR.with_borrow_mut(|slot| {
        let compressor = match slot {
            Some((at, compressor)) if *at == level => compressor,
            _ => {
                let made = Compressor::new(level).map_err(|error| corrupt(Compression::Zstd, error))?;
                &mut slot.insert((level, made)).1
            }
        };
        let front = out.len();
        out.resize(front + compress_bound(input.len()), 0);
        let written = compressor
            .compress_to_buffer(input, &mut out[front..])
            .map_err(|error| corrupt(Compression::Zstd, error))?;
        out.truncate(front + written);
        Ok(())
    })
}

pub(super) fn decompress(input: &[u8], cap: usize) -> Result<Vec<u8>, CompressError> {
    let error = |error| corrupt(Compression::Zstd, error);
    let mut decoder = Decoder::new(input).map_err(error)?;
    decoder.window_log_max(WINDOW_LOG_MAX).map_err(error)?;
    read_capped(Compression::Zstd, input, cap, decoder)
}

pub(super) fn decoder(input: Bytes) -> Result<Decoder<'static, Reader<Bytes>>, CompressError> {
    let error = |error| corrupt(Compression::Zstd, error);
    let window_log = window_bytes(&input).next_power_of_two().ilog2().clamp(WINDOW_LOG_MIN, WINDOW_LOG_MAX);
    let mut decoder = Decoder::with_buffer(input.reader()).map_err(error)?;
    // No frame gets a larger window than the one that is charged.
    decoder.window_log_max(window_log).map_err(error)?;
    Ok(decoder)
}

/// The memory of a decoder for these frames, which is read up to `cap` bytes.
pub(super) fn decoder_bytes(input: &[u8], cap: usize) -> usize {
    DECODER_BYTES + window_bytes(input).min(cap.saturating_add(BLOCK_BYTES_MAX))
}

/// The largest window that a frame declares, within the maximum. A decoder of several frames has that of the largest one.
fn window_bytes(input: &[u8]) -> usize {
    let (mut rest, mut most) = (input, 0);
    loop {
        most = most.max(window_of_first(rest));
        match find_frame_compressed_size(rest) {
            Ok(frame) if (1..rest.len()).contains(&frame) => rest = &rest[frame..],
            // The last one, or one behind which nothing is decoded.
            _ => return most,
        }
    }
}

/// The window of the first frame: RFC 8878, 3.1.1.1.
fn window_of_first(input: &[u8]) -> usize {
    const MAX: u64 = 1 << WINDOW_LOG_MAX;
    let Some(([descriptor, next], rest)) =
        input.strip_prefix(&FRAME_MAGIC).and_then(|rest| rest.split_first_chunk::<2>())
    else {
        return 1 << WINDOW_LOG_MAX;
    };
    let is_single_segment = descriptor & 0x20 != 0;
    let window = if is_single_segment {
        // The window is the content, whose size follows the dictionary's id.
        let id_bytes = [0, 1, 2, 4][usize::from(descriptor & 3)];
        let size_bytes = [1, 2, 4, 8][usize::from(descriptor >> 6)];
        let field: Vec<u8> =
            std::iter::once(*next).chain(rest.iter().copied()).skip(id_bytes).take(size_bytes).collect();
        let size = field.iter().rev().fold(0_u64, |size, byte| size << 8 | u64::from(*byte));
        if size_bytes == 2 { size + 256 } else { size }
    } else {
        let base = 1_u64 << (10 + (next >> 3));
        base + base / 8 * u64::from(next & 7)
    };
    window.min(MAX) as usize
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn the_declared_window_of_a_frame_is_read() {
        let mut small = Vec::new();
        compress(&[7; 1000], 3, &mut small).expect("compressed");
        assert_eq!(window_bytes(&small), 1000, "a single segment is its own window");
        let mut encoder = ::zstd::stream::Encoder::new(Vec::new(), 3).expect("an encoder");
        encoder.window_log(20).expect("a window");
        std::io::Write::write_all(&mut encoder, &vec![7; 3 << 20]).expect("in memory");
        assert_eq!(window_bytes(&encoder.finish().expect("a frame")), 1 << 20);
        assert_eq!(window_bytes(b"nothing"), 1 << WINDOW_LOG_MAX);
    }

    /// A window above 64 MiB was refused. Java declares 128 MiB at level 22, whatever the size of the content.
    #[test]
    fn a_frame_of_javas_highest_level_is_read() {
        // No content size, a window of 2^27 bytes, and one raw block of five bytes, which is the last.
        let header = [&FRAME_MAGIC[..], &[0, 0x88, 0x29, 0, 0]].concat();
        let frame = [&header[..], b"small"].concat();
        assert_eq!(window_bytes(&frame), 1 << 27);
        assert_eq!(decompress(&frame, 1 << 20).as_deref(), Ok(&b"small"[..]));
        let mut content = Vec::new();
        let read = decoder(Bytes::from(frame.clone())).map(|mut it| it.read_to_end(&mut content));
        assert!(matches!(read, Ok(Ok(5))), "{read:?}");
        assert_eq!(content, b"small");
        assert_eq!(decoder_bytes(&frame, 1 << 20), DECODER_BYTES + (1 << 20) + BLOCK_BYTES_MAX);
        let mut larger = frame;
        larger[5] += 1;
        assert!(decompress(&larger, 1 << 20).is_err(), "Apache Kafka does not read it either");
    }

    /// Only the first frame was looked at: a request of a few kilobytes took 64 MiB that were not counted.
    #[test]
    fn the_largest_window_of_several_frames_counts() {
        let frame = |window_log, len| {
            let mut encoder = ::zstd::stream::Encoder::new(Vec::new(), 3).expect("an encoder");
            encoder.window_log(window_log).expect("a window");
            std::io::Write::write_all(&mut encoder, &vec![7; len]).expect("in memory");
            encoder.finish().expect("a frame")
        };
        let frames = [frame(10, 100), frame(22, 5 << 20), frame(12, 100)];
        assert_eq!(window_bytes(&frames.concat()), 1 << 22);
        let mut content = Vec::new();
        let read = decoder(Bytes::from(frames.concat())).map(|mut it| it.read_to_end(&mut content));
        assert!(matches!(read, Ok(Ok(_))), "{read:?}");
        assert_eq!(content.len(), 200 + (5 << 20));
    }
}
