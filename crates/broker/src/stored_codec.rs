//! The codec in which a partition stores batches, and the batches that have another.

use std::sync::atomic::{AtomicU8, Ordering};

use ottla_log::LogConfig;
use ottla_wire::batch::BatchHeader;

/// The number for `compression.type=producer`. No codec has it.
const AS_PRODUCED: u8 = u8::MAX;

/// The codec of a partition, read by each append without its lock.
#[derive(Debug)]
pub(crate) struct StoredCodec(AtomicU8);

impl StoredCodec {
    pub(crate) fn new(config: &LogConfig) -> Self {
        let codec = Self(AtomicU8::new(AS_PRODUCED));
        codec.set(config);
        codec
    }

    pub(crate) fn set(&self, config: &LogConfig) {
        self.0.store(config.compression.map_or(AS_PRODUCED, |codec| codec as u8), Ordering::Relaxed);
    }

    /// Returns whether one of the batches has another codec.
    #[inline]
    pub(crate) fn differs_from(&self, batches: &[u8]) -> bool {
        let number = self.0.load(Ordering::Relaxed);
        number != AS_PRODUCED && has_other(number, batches)
    }
}

#[cold]
fn has_other(codec: u8, batches: &[u8]) -> bool {
    let mut at = 0;
    while at < batches.len() {
        // The append reports what is wrong.
        let Ok(header) = BatchHeader::parse(&batches[at..]) else { return false };
        if header.compression().is_ok_and(|found| found as u8 != codec) {
            return true;
        }
        at += header.total_bytes();
    }
    false
}
