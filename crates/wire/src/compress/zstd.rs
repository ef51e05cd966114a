//! zstd frames (KIP-110).

use std::cell::RefCell;

use ::zstd::bulk::Compressor;
use ::zstd::stream::read::Decoder;
use ::zstd::zstd_safe::compress_bound;

use super::{CompressError, corrupt, read_capped};
use crate::batch::Compression;

/// Maximum window of a frame: 64 MiB, the default cap. The decoder allocates the window before it decodes.
const WINDOW_LOG_MAX: u32 = 26;

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
