//! The frames of lz4: their headers, their blocks, and a reader.
//!
//! A header declares the size of the largest block, and Go's clients declare 4 MiB for every batch. `lz4_flex`'s reader takes two buffers
//! of that size for each frame and clears one of them, which costs milliseconds for a batch of one record. The memory of this reader
//! grows with the contents of a block. Blocks are decompressed by `lz4_flex`.

use std::hash::Hasher;
use std::io::{self, Read};

use bytes::{Buf, Bytes};
use lz4_flex::block::{DecompressError, decompress_into, decompress_into_with_dict};
use twox_hash::XxHash32;

use super::{CompressError, corrupt, too_large};
use crate::batch::Compression;

pub(super) const MAGIC: u32 = 0x184d_2204;
/// The largest block size that a frame can declare.
pub(super) const BLOCK_BYTES_MAX: usize = 4 << 20;
/// The bytes before a block that it may refer to.
pub(super) const WINDOW_BYTES: usize = 64 << 10;
/// The bytes before a block that a reader keeps at most. It moves the last of them to the front when there are more.
pub(super) const KEPT_BYTES_MAX: usize = 4 * WINDOW_BYTES;
/// A byte of a block is at most this many bytes of its contents.
const RATIO_MAX: usize = 255;
/// The first guess of the size of a block's contents: its compressed size times this, and at least what Java's blocks have.
const EXPECTED_RATIO: usize = 4;
const EXPECTED_BYTES_MIN: usize = 64 << 10;

/// The flags of a header.
const VERSION_MASK: u8 = 0xc0;
const VERSION: u8 = 0x40;
const INDEPENDENT_BLOCKS: u8 = 0x20;
const BLOCK_CHECKSUMS: u8 = 0x10;
const CONTENT_SIZE: u8 = 0x08;
const CONTENT_CHECKSUM: u8 = 0x04;
const RESERVED: u8 = 0x02;
const DICTIONARY: u8 = 0x01;
/// The bits of the byte of the block size that have no meaning.
const SIZE_RESERVED: u8 = 0x8f;

fn bad(reason: &str) -> CompressError {
    corrupt(Compression::Lz4, reason)
}

/// A frame whose blocks are walked.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    flags: u8,
    /// The declared size of the largest block.
    block_bytes_max: usize,
    content_size: Option<u64>,
    /// The bytes of the header.
    pub(super) header_bytes: usize,
}

pub(super) struct Block<'a> {
    pub(super) is_compressed: bool,
    pub(super) bytes: &'a [u8],
    /// The checksum behind the bytes, if the frame has checksums of its blocks and does not end before it.
    checksum: Option<&'a [u8; 4]>,
    /// The bytes of the block with its length and checksum.
    pub(super) length: usize,
}

impl Frame {
    /// Reads a header, without a check of its checksum and of what it declares.
    pub(super) fn parse(input: &[u8]) -> Result<Self, CompressError> {
        let truncated = || bad("the frame is truncated");
        let (magic, rest) = input.split_first_chunk::<4>().ok_or_else(truncated)?;
        if u32::from_le_bytes(*magic) != MAGIC {
            return Err(bad("no frame magic"));
        }
        let &[flags, sizes] = rest.first_chunk::<2>().ok_or_else(truncated)?;
        let has_size = flags & CONTENT_SIZE != 0;
        let header_bytes = 7 + if has_size { 8 } else { 0 };
        let header = input.get(..header_bytes).ok_or_else(truncated)?;
        let content_size = header[6..].first_chunk::<8>().filter(|_| has_size).copied();
        let block_bytes_max = declared_block_bytes(sizes).unwrap_or(BLOCK_BYTES_MAX);
        Ok(Self { flags, block_bytes_max, content_size: content_size.map(u64::from_le_bytes), header_bytes })
    }

    /// Checks the header behind which this frame's blocks start.
    fn check(&self, input: &[u8]) -> Result<(), CompressError> {
        let header = input.get(..self.header_bytes).ok_or_else(|| bad("the frame is truncated"))?;
        let sizes = header[5];
        if self.flags & VERSION_MASK != VERSION {
            return Err(bad("a frame of an unknown version"));
        }
        if self.flags & DICTIONARY != 0 {
            return Err(bad("a frame with a dictionary"));
        }
        if self.flags & RESERVED != 0 || sizes & SIZE_RESERVED != 0 {
            return Err(bad("a frame with reserved bits"));
        }
        if declared_block_bytes(sizes).is_none() {
            return Err(bad("an unknown block size"));
        }
        let (described, checksum) = (&header[4..self.header_bytes - 1], header[self.header_bytes - 1]);
        if XxHash32::oneshot(0, described).to_le_bytes()[1] != checksum {
            return Err(bad("the checksum of the header is wrong"));
        }
        Ok(())
    }

    /// Returns `true` if no block refers to earlier ones.
    pub(super) fn has_independent_blocks(&self) -> bool {
        self.flags & INDEPENDENT_BLOCKS != 0
    }

    /// The block at the start of `rest`; `None` at the end mark.
    pub(super) fn block<'a>(&self, rest: &'a [u8]) -> Result<Option<Block<'a>>, CompressError> {
        let (word, after) =
            rest.split_first_chunk::<4>().ok_or_else(|| bad("a block's length is truncated"))?;
        let word = u32::from_le_bytes(*word);
        let length = (word & 0x7fff_ffff) as usize;
        if length == 0 {
            return Ok(None);
        }
        let (bytes, after) = after.split_at_checked(length).ok_or_else(|| bad("a block is truncated"))?;
        let has_checksum = self.flags & BLOCK_CHECKSUMS != 0;
        let checksum = after.first_chunk::<4>().filter(|_| has_checksum);
        let behind = if has_checksum { after.get(4..).unwrap_or_default() } else { after };
        let length = rest.len() - behind.len();
        Ok(Some(Block { is_compressed: word & 0x8000_0000 == 0, bytes, checksum, length }))
    }

    /// Appends the contents of a block to those of the blocks before it. `None` if they do not fit into `room`.
    pub(super) fn append(
        &self,
        block: &Block<'_>,
        room: usize,
        out: &mut Contents,
    ) -> Result<Option<()>, CompressError> {
        if !block.is_compressed {
            if block.bytes.len() > room {
                return Ok(None);
            }
            let (_, space) = out.space(block.bytes.len());
            space.copy_from_slice(block.bytes);
            out.end += block.bytes.len();
            return Ok(Some(()));
        }
        let most = self.block_bytes_max.min(room);
        let bound = block.bytes.len().saturating_mul(RATIO_MAX).min(most);
        let mut size = block.bytes.len().saturating_mul(EXPECTED_RATIO).max(EXPECTED_BYTES_MIN).min(bound);
        loop {
            let (before, space) = out.space(size);
            let window = &before[before.len().saturating_sub(WINDOW_BYTES)..];
            let written = if self.has_independent_blocks() || window.is_empty() {
                decompress_into(block.bytes, space)
            } else {
                decompress_into_with_dict(block.bytes, space, window)
            };
            match written {
                Ok(written) => {
                    out.end += written;
                    return Ok(Some(()));
                }
                Err(DecompressError::OutputTooSmall { .. }) if size < bound => {
                    size = size.saturating_mul(EXPECTED_RATIO).min(bound);
                }
                Err(DecompressError::OutputTooSmall { .. }) if size == room => return Ok(None),
                Err(error) => return Err(corrupt(Compression::Lz4, error)),
            }
        }
    }
}

/// The contents of blocks. The memory behind them is used again: it is set to zero once and not for each block.
#[derive(Default)]
pub(super) struct Contents {
    bytes: Vec<u8>,
    /// The end of the contents.
    end: usize,
    /// The bytes that there can be at most, with those of a block that is being read.
    limit: usize,
}

impl Contents {
    /// Memory for contents of about `expected` bytes, which grows to `limit`.
    pub(super) fn new(expected: usize, limit: usize) -> Self {
        Self { bytes: Vec::with_capacity(expected.min(limit)), end: 0, limit }
    }

    pub(super) fn len(&self) -> usize {
        self.end
    }

    pub(super) fn into_bytes(mut self) -> Vec<u8> {
        self.bytes.truncate(self.end);
        self.bytes
    }

    /// The contents, and `size` bytes behind them.
    fn space(&mut self, size: usize) -> (&[u8], &mut [u8]) {
        let end = self.end + size;
        if end > self.bytes.len() {
            let capacity = self.bytes.capacity();
            if end > capacity {
                // Doubled, or a frame of many small blocks would be copied for each.
                let wanted = capacity.saturating_mul(2).min(self.limit).max(end);
                self.bytes.reserve_exact(wanted - self.bytes.len());
            }
            self.bytes.resize(end, 0);
        }
        let (before, space) = self.bytes.split_at_mut(self.end);
        (before, &mut space[..size])
    }

    /// Removes all but the last bytes.
    fn keep_last(&mut self, bytes: usize) {
        let first = self.end.saturating_sub(bytes);
        self.bytes.copy_within(first..self.end, 0);
        self.end -= first;
    }
}

fn declared_block_bytes(sizes: u8) -> Option<usize> {
    match sizes >> 4 & 7 {
        4 => Some(64 << 10),
        5 => Some(256 << 10),
        6 => Some(1 << 20),
        7 => Some(BLOCK_BYTES_MAX),
        _ => None,
    }
}

/// The most contents that a reader of this frame keeps.
fn contents_max(frame: &Frame) -> usize {
    let before = if frame.has_independent_blocks() { 0 } else { KEPT_BYTES_MAX };
    before + frame.block_bytes_max
}

/// The memory of a reader of this frame.
pub(super) fn reader_bytes(input: &[u8], frame: &Frame) -> usize {
    // Twice: the memory of the contents doubles.
    let contents = input.len().saturating_mul(2 * RATIO_MAX);
    size_of::<FrameReader>() + contents.min(contents_max(frame))
}

/// The steps through a frame that is checked.
struct Walk {
    frame: Frame,
    content_bytes: u64,
    content_hash: XxHash32,
}

impl Walk {
    fn begin(input: &[u8]) -> Result<Self, CompressError> {
        let frame = Frame::parse(input)?;
        frame.check(input)?;
        Ok(Self { frame, content_bytes: 0, content_hash: XxHash32::with_seed(0) })
    }

    /// Appends the next block of `rest` and returns its length there. `None` at the end of the frame.
    ///
    /// # Errors
    /// `Ok(Err(()))` if the contents do not fit into `room`.
    fn step(
        &mut self,
        rest: &[u8],
        room: usize,
        out: &mut Contents,
    ) -> Result<Result<Option<usize>, ()>, CompressError> {
        // Writers that stop without an end mark are read, as by the reader of `lz4_flex`.
        if rest.len() < 4 {
            return Ok(Ok(None));
        }
        let Some(block) = self.frame.block(rest)? else {
            self.end(&rest[4..])?;
            return Ok(Ok(None));
        };
        if block.bytes.len() > self.frame.block_bytes_max {
            return Err(bad("a block is larger than the frame declares"));
        }
        if self.frame.flags & BLOCK_CHECKSUMS != 0 {
            let checksum = block.checksum.ok_or_else(|| bad("the checksum of a block is truncated"))?;
            if XxHash32::oneshot(0, block.bytes) != u32::from_le_bytes(*checksum) {
                return Err(bad("the checksum of a block is wrong"));
            }
        }
        let begin = out.end;
        if self.frame.append(&block, room, out)?.is_none() {
            return Ok(Err(()));
        }
        let contents = &out.bytes[begin..out.end];
        // No writer makes these, and a frame of them would be read without an end.
        if contents.is_empty() {
            return Err(bad("an empty block"));
        }
        self.content_bytes += contents.len() as u64;
        if self.frame.flags & CONTENT_CHECKSUM != 0 {
            self.content_hash.write(contents);
        }
        Ok(Ok(Some(block.length)))
    }

    /// Checks the contents against the size of the header and the checksum behind the end mark.
    fn end(&self, behind: &[u8]) -> Result<(), CompressError> {
        if self.frame.content_size.is_some_and(|size| size != self.content_bytes) {
            return Err(bad("the contents have another size than the frame declares"));
        }
        if self.frame.flags & CONTENT_CHECKSUM != 0 {
            let checksum = behind.first_chunk().ok_or_else(|| bad("the checksum is truncated"))?;
            if self.content_hash.finish_32() != u32::from_le_bytes(*checksum) {
                return Err(bad("the checksum is wrong"));
            }
        }
        Ok(())
    }
}

/// The contents of a frame, of at most `cap` bytes.
pub(super) fn read_all(input: &[u8], cap: usize) -> Result<Vec<u8>, CompressError> {
    let mut walk = Walk::begin(input)?;
    let mut rest = &input[walk.frame.header_bytes..];
    // Records compress three to eight times: most batches need one allocation, and a small bomb costs little.
    let mut out = Contents::new(input.len().saturating_mul(EXPECTED_RATIO), cap);
    loop {
        match walk.step(rest, cap - out.len(), &mut out)? {
            Ok(Some(length)) => rest = &rest[length..],
            Ok(None) => return Ok(out.into_bytes()),
            Err(()) => return Err(too_large(Compression::Lz4, input, cap)),
        }
    }
}

/// A reader of the contents of a frame, block by block.
pub(super) struct FrameReader {
    walk: Walk,
    /// The part of the frame behind the last block.
    rest: Bytes,
    /// The contents of the last block, behind those that the next one may refer to.
    out: Contents,
    /// The start of the bytes that are not read yet.
    unread: usize,
    has_ended: bool,
}

impl FrameReader {
    pub(super) fn new(mut input: Bytes) -> Result<Self, CompressError> {
        let walk = Walk::begin(&input)?;
        input.advance(walk.frame.header_bytes);
        let out = Contents::new(0, contents_max(&walk.frame));
        Ok(Self { walk, rest: input, out, unread: 0, has_ended: false })
    }

    /// Reads the next block. All bytes of those before it have been read.
    fn next_block(&mut self) -> Result<(), CompressError> {
        if self.walk.frame.has_independent_blocks() {
            self.out.end = 0;
        } else if self.out.end > KEPT_BYTES_MAX - WINDOW_BYTES {
            self.out.keep_last(WINDOW_BYTES);
        }
        self.unread = self.out.end;
        match self.walk.step(&self.rest, usize::MAX, &mut self.out)? {
            Ok(Some(length)) => self.rest.advance(length),
            Ok(None) => self.has_ended = true,
            Err(()) => return Err(bad("a block without room")),
        }
        Ok(())
    }
}

impl Read for FrameReader {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while self.unread == self.out.end && !self.has_ended {
            if let Err(error) = self.next_block() {
                self.has_ended = true;
                return Err(io::Error::other(error));
            }
        }
        let read = buf.len().min(self.out.end - self.unread);
        buf[..read].copy_from_slice(&self.out.bytes[self.unread..self.unread + read]);
        self.unread += read;
        Ok(read)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::io::Write;

    use lz4_flex::frame::{BlockMode, BlockSize, FrameDecoder, FrameEncoder, FrameInfo};

    use super::*;

    pub(in crate::compress) fn encoded(info: FrameInfo, input: &[u8]) -> Vec<u8> {
        let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
        encoder.write_all(input).expect("compressed");
        encoder.finish().expect("compressed")
    }

    fn read(frame: &[u8]) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        let streamed = FrameReader::new(Bytes::copy_from_slice(frame)).ok().and_then(|mut reader| {
            reader.read_to_end(&mut out).ok()?;
            Some(out)
        });
        assert_eq!(read_all(frame, 8 << 20).ok(), streamed);
        streamed
    }

    fn read_by_lz4_flex(frame: &[u8]) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        FrameDecoder::new(frame).read_to_end(&mut out).ok()?;
        Some(out)
    }

    /// Numbers in words: some of it compresses, and blocks refer to earlier ones.
    fn text(bytes: usize) -> Vec<u8> {
        let mut rng = fastrand::Rng::with_seed(7);
        let words: Vec<String> = (0..300).map(|_| format!("{:x} ", rng.u32(..))).collect();
        let text: String = (0..bytes).map(|_| rng.choice(&words).expect("a word").as_str()).collect();
        text.as_bytes()[..bytes].to_vec()
    }

    fn infos() -> Vec<FrameInfo> {
        let sizes = [BlockSize::Max64KB, BlockSize::Max256KB, BlockSize::Max1MB, BlockSize::Max4MB];
        let modes = [BlockMode::Independent, BlockMode::Linked];
        let of = |size, mode| FrameInfo::new().block_size(size).block_mode(mode);
        let plain = sizes.into_iter().flat_map(|size| modes.map(|mode| of(size, mode)));
        plain
            .flat_map(|info| {
                let checked = info.clone().block_checksums(true).content_checksum(true);
                [info, checked]
            })
            .collect()
    }

    #[test]
    fn frames_of_every_kind_have_their_contents() {
        for info in infos() {
            for input in [text(0), text(1), text(100), text(700_000), vec![7; 5 << 20]] {
                let sized = info.clone().content_size(Some(input.len() as u64));
                for info in [info.clone(), sized] {
                    assert!(read(&encoded(info, &input)).as_ref() == Some(&input), "{} bytes", input.len());
                }
            }
        }
    }

    #[test]
    fn damaged_frames_are_read_as_lz4_flex_reads_them() {
        for info in infos() {
            let sound = encoded(info.clone().content_size(Some(300)), &text(300));
            for at in 4..sound.len() {
                for flip in [1, 0x10, 0x80, 0xff] {
                    // An empty block that is not compressed: it ends the frame there, unless blocks have checksums.
                    if flip == 0x80 && at + 1 + if info.content_checksum { 4 } else { 0 } == sound.len() {
                        continue;
                    }
                    let mut frame = sound.clone();
                    frame[at] ^= flip;
                    assert_eq!(read(&frame), read_by_lz4_flex(&frame), "byte {at}, {flip:x}");
                }
                // A header that is cut is an error here, and nothing there.
                if at >= 15 {
                    assert_eq!(read(&sound[..at]), read_by_lz4_flex(&sound[..at]), "{at} bytes");
                }
            }
        }
    }

    #[test]
    fn linked_blocks_that_are_small_keep_their_window() {
        let mut encoder = FrameEncoder::with_frame_info(
            FrameInfo::new().block_mode(BlockMode::Linked).block_size(BlockSize::Max64KB),
            Vec::new(),
        );
        let input = text(900_000);
        for part in input.chunks(3000) {
            encoder.write_all(part).expect("compressed");
            encoder.flush().expect("compressed");
        }
        let frame = encoder.finish().expect("compressed");
        assert!(read(&frame) == Some(input));
    }

    /// The reader took twice the declared size: 8 MiB for each batch of Go's clients.
    #[test]
    fn the_memory_of_a_reader_grows_with_the_contents() {
        let info = FrameInfo::new().block_size(BlockSize::Max4MB).block_mode(BlockMode::Independent);
        let frame = encoded(info, &text(1000));
        assert!(memory_of(&frame) <= 64 << 10, "{}", memory_of(&frame));
        // A block that does not compress, and one for which the memory grows.
        let mut rng = fastrand::Rng::with_seed(3);
        let noise: Vec<u8> = (0..1 << 20).map(|_| rng.u8(..)).collect();
        for mode in [BlockMode::Independent, BlockMode::Linked] {
            let info = FrameInfo::new().block_size(BlockSize::Max4MB).block_mode(mode);
            let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
            for part in [&noise[1..], &vec![0; 4 << 20][..], &noise, &text(4 << 20)] {
                encoder.write_all(part).expect("compressed");
                encoder.flush().expect("compressed");
            }
            memory_of(&encoder.finish().expect("compressed"));
        }
    }

    /// The memory that a reader of the frame has at the end, at most what it is charged.
    fn memory_of(frame: &[u8]) -> usize {
        let mut reader = FrameReader::new(Bytes::copy_from_slice(frame)).expect("a header");
        io::copy(&mut reader, &mut io::sink()).expect("sound");
        let charged = reader_bytes(frame, &reader.walk.frame);
        let capacity = reader.out.bytes.capacity();
        assert!(charged >= capacity, "{charged} for {capacity}");
        capacity
    }

    #[test]
    fn a_block_without_contents_is_an_error() {
        let sound = encoded(FrameInfo::new(), b"");
        let (header, end) = sound.split_at(7);
        let compressed = [1, 0, 0, 0, 0];
        let frame = [header, &compressed, end].concat();
        assert_eq!(read(&frame), None);
        assert_eq!(read(&sound).as_deref(), Some(&b""[..]));
    }

    #[test]
    fn contents_above_the_cap_are_an_error_before_they_have_memory() {
        let info = FrameInfo::new().block_size(BlockSize::Max4MB);
        let frame = encoded(info.clone(), &vec![0; 4 << 20]);
        let Err(CompressError::TooLarge { cap, .. }) = read_all(&frame, 1000) else { panic!("no limit") };
        assert_eq!(cap, 1000);
        let text = text(1001);
        assert!(matches!(read_all(&encoded(info.clone(), &text), 1000), Err(CompressError::TooLarge { .. })));
        assert_eq!(read_all(&encoded(info, &text), 1001).expect("fits"), text);
        let mut rng = fastrand::Rng::with_seed(1);
        let noise: Vec<u8> = (0..2000).map(|_| rng.u8(..)).collect();
        let frame = encoded(FrameInfo::new(), &noise);
        assert!(matches!(read_all(&frame, 1999), Err(CompressError::TooLarge { .. })));
    }
}
