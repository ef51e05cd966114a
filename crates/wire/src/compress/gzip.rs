//! gzip, RFC 1952.

use std::io::Write;

use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;

use super::{CompressError, corrupt, read_capped};
use crate::batch::Compression;

pub(super) fn compress(input: &[u8], level: i32, out: &mut Vec<u8>) -> Result<(), CompressError> {
    let mut encoder = GzEncoder::new(out, flate2::Compression::new(level as u32));
    encoder
        .write_all(input)
        .and_then(|()| encoder.finish())
        .map_err(|error| corrupt(Compression::Gzip, error))?;
    Ok(())
}

pub(super) fn decompress(input: &[u8], cap: usize) -> Result<Vec<u8>, CompressError> {
    read_capped(Compression::Gzip, input, cap, MultiGzDecoder::new(input))
}
