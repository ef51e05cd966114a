//! Snappy, in the framing of Java's snappy library (xerial) or as one raw block.
//!
//! ```text
//! 82 'SNAPPY' 00 | version i32 | compatible version i32 | (block length i32 | raw block)*
//! ```
//! Java clients read and write the framed form; librdkafka and others read both. We write the framed form.

use std::cell::RefCell;
use std::io::{self, Read};
use std::ops::Range;

use bytes::Bytes;
use snap::raw::{Decoder, Encoder, decompress_len, max_compress_len};

use super::{CompressError, corrupt, too_large};
use crate::batch::Compression;

const MAGIC: [u8; 8] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];
const HEADER_BYTES: usize = 16;
/// Input bytes per block, as Java's writer uses.
const BLOCK_BYTES: usize = 32 << 10;

thread_local! {
    /// An encoder's table is as large as a small batch: each compressing thread keeps one.
    static ENCODER: RefCell<Encoder> = RefCell::new(Encoder::new());
}

pub(super) fn compress(input: &[u8], out: &mut Vec<u8>) -> Result<(), CompressError> {
    out.extend(MAGIC);
    out.extend(1_i32.to_be_bytes());
    out.extend(1_i32.to_be_bytes());
    ENCODER.with_borrow_mut(|encoder| blocks(encoder, input, out))
}

fn blocks(encoder: &mut Encoder, input: &[u8], out: &mut Vec<u8>) -> Result<(), CompressError> {
    for block in input.chunks(BLOCK_BYTES) {
        let front = out.len();
        out.resize(front + 4 + max_compress_len(block.len()), 0);
        let written = encoder
            .compress(block, &mut out[front + 4..])
            .map_err(|error| corrupt(Compression::Snappy, error))?;
        out[front..front + 4].copy_from_slice(&(written as i32).to_be_bytes());
        out.truncate(front + 4 + written);
    }
    Ok(())
}

pub(super) fn decompress(input: &[u8], cap: usize) -> Result<Vec<u8>, CompressError> {
    let mut out = Vec::new();
    let mut blocks = Blocks::new(input);
    while let Some(block) = blocks.next(input)? {
        inflate(input, &input[block], cap, &mut out)?;
    }
    Ok(out)
}

/// The largest number of bytes that one block can yield.
pub(super) fn block_bytes_max(input: &[u8]) -> usize {
    let mut blocks = Blocks::new(input);
    let mut max = 0;
    while let Ok(Some(block)) = blocks.next(input) {
        max = decompress_len(&input[block]).unwrap_or(0).max(max);
    }
    max
}

/// The raw blocks of an input.
struct Blocks {
    /// `None` for an input that is one block.
    at: Option<usize>,
    is_ended: bool,
}

impl Blocks {
    fn new(input: &[u8]) -> Self {
        let is_framed = input.starts_with(&MAGIC) && input.len() >= HEADER_BYTES;
        Self { at: is_framed.then_some(HEADER_BYTES), is_ended: false }
    }

    /// The position of the next block in the input.
    fn next(&mut self, input: &[u8]) -> Result<Option<Range<usize>>, CompressError> {
        let Some(at) = self.at else {
            let is_first = !std::mem::replace(&mut self.is_ended, true);
            return Ok(is_first.then_some(0..input.len()));
        };
        let rest = input.get(at..).unwrap_or_default();
        if rest.is_empty() {
            return Ok(None);
        }
        let Some((length, after)) = rest.split_first_chunk::<4>() else {
            return Err(corrupt(Compression::Snappy, "a block's length is truncated"));
        };
        let length = i32::from_be_bytes(*length);
        let Some(length) = usize::try_from(length).ok().filter(|length| *length <= after.len()) else {
            let reason = format!("a block declares {length} bytes, {} remain", after.len());
            return Err(corrupt(Compression::Snappy, reason));
        };
        let begin = at + 4;
        self.at = Some(begin + length);
        Ok(Some(begin..begin + length))
    }
}

/// Decompresses block by block.
pub(super) struct SnappyReader {
    input: Bytes,
    cap: usize,
    blocks: Blocks,
    block: Vec<u8>,
    at: usize,
}

impl SnappyReader {
    pub(super) fn new(input: Bytes, cap: usize) -> Self {
        let blocks = Blocks::new(&input);
        Self { input, cap, blocks, block: Vec::new(), at: 0 }
    }
}

impl Read for SnappyReader {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.at == self.block.len() {
            let Some(block) = self.blocks.next(&self.input).map_err(io::Error::other)? else { return Ok(0) };
            self.block.clear();
            self.at = 0;
            inflate(&self.input, &self.input[block], self.cap, &mut self.block).map_err(io::Error::other)?;
        }
        let count = out.len().min(self.block.len() - self.at);
        out[..count].copy_from_slice(&self.block[self.at..self.at + count]);
        self.at += count;
        Ok(count)
    }
}

/// Decompresses one raw block and appends it. The declared length is checked against the cap and against the most
/// that its bytes can hold.
fn inflate(input: &[u8], block: &[u8], cap: usize, out: &mut Vec<u8>) -> Result<(), CompressError> {
    let length = decompress_len(block).map_err(|error| corrupt(Compression::Snappy, error))?;
    if length > cap.saturating_sub(out.len()) {
        return Err(too_large(Compression::Snappy, input, cap));
    }
    // A copy element of 3 bytes yields at most 64: a block cannot hold more than 22 times its own length.
    if length > block.len().saturating_mul(22) + 64 {
        let reason = format!("a block of {} bytes declares {length}", block.len());
        return Err(corrupt(Compression::Snappy, reason));
    }
    let front = out.len();
    out.resize(front + length, 0);
    let written = Decoder::new()
        .decompress(block, &mut out[front..])
        .map_err(|error| corrupt(Compression::Snappy, error))?;
    out.truncate(front + written);
    Ok(())
}
