//! gzip, RFC 1952.

use std::cell::RefCell;

use bytes::buf::Reader;
use bytes::{Buf, Bytes};
use flate2::bufread::MultiGzDecoder;
use libdeflater::{CompressionLvl, Compressor};

use super::{CompressError, corrupt, read_capped};
use crate::batch::Compression;

/// The memory of a decoder: its window and its tables.
pub(super) const DECODER_BYTES: usize = 128 << 10;

thread_local! {
    /// A compressor's tables are larger than most batches: each compressing thread keeps one.
    static COMPRESSOR: RefCell<Option<(i32, Compressor)>> = const { RefCell::new(None) };
}

pub(super) fn compress(input: &[u8], level: i32, out: &mut Vec<u8>) -> Result<(), CompressError> {
    COMPRESSOR.with_borrow_mut(|slot| {
        let compressor = match slot {
            Some((at, compressor)) if *at == level => compressor,
            _ => {
                let level_of = CompressionLvl::new(level)
                    .map_err(|_| corrupt(Compression::Gzip, format!("unsupported level {level}")))?;
                &mut slot.insert((level, Compressor::new(level_of))).1
            }
        };
        let front = out.len();
        out.resize(front + compressor.gzip_compress_bound(input.len()), 0);
        let written = compressor
            .gzip_compress(input, &mut out[front..])
            .map_err(|error| corrupt(Compression::Gzip, error))?;
        out.truncate(front + written);
        Ok(())
    })
}

pub(super) fn decompress(input: &[u8], cap: usize) -> Result<Vec<u8>, CompressError> {
    read_capped(Compression::Gzip, input, cap, MultiGzDecoder::new(input))
}

pub(super) fn decoder(input: Bytes) -> MultiGzDecoder<Reader<Bytes>> {
    MultiGzDecoder::new(input.reader())
}
