//! CRC-32C (Castagnoli), the checksum of record batches, computed with CPU instructions where available.

use crc_fast::{CrcAlgorithm, Digest};

/// The checksum of `bytes`.
#[inline]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// Extends `before`, the checksum of preceding bytes, over `bytes`.
pub(crate) fn extend(before: u32, bytes: &[u8]) -> u32 {
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(!before));
    digest.update(bytes);
    digest.finalize() as u32
}

/// The checksum of two concatenated pieces, from the checksum of each; the second has `bytes` bytes.
/// | It takes half a microsecond. The library's own function takes 30, a large part of the cost of a batch.
pub(crate) fn combine(first: u32, second: u32, bytes: usize) -> u32 {
    // Appending a byte multiplies the preceding polynomial by x^8.
    let mut shift = 1 << 31;
    let mut left = bytes;
    for power in POWERS.iter().cycle().skip(3) {
        if left == 0 {
            break;
        }
        if left & 1 == 1 {
            shift = multiply(*power, shift);
        }
        left >>= 1;
    }
    multiply(shift, first) ^ second
}

/// Castagnoli's polynomial with its lowest power in the highest bit, the bit order of the checksum.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// x^(2^n) modulo the polynomial; the sequence repeats after 31.
const POWERS: [u32; 31] = {
    let mut powers = [1 << 30; 31];
    let mut n = 1;
    while n < 31 {
        powers[n] = multiply(powers[n - 1], powers[n - 1]);
        n += 1;
    }
    powers
};

/// The product of two polynomials modulo Castagnoli's polynomial.
const fn multiply(a: u32, mut b: u32) -> u32 {
    let mut product = 0;
    let mut bit = 1 << 31;
    while bit != 0 {
        if a & bit != 0 {
            product ^= b;
        }
        b = if b & 1 == 1 { (b >> 1) ^ POLYNOMIAL } else { b >> 1 };
        bit >>= 1;
    }
    product
}

/// The CRC-32 of zlib and gzip, which one of librdkafka's partitioners uses.
pub fn crc32(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iso_hdlc(bytes)
}

/// A checksum over bytes that arrive in several pieces.
#[derive(Debug)]
pub struct Crc32c {
    digest: Digest,
}

impl Crc32c {
    /// The checksum of no bytes.
    pub fn new() -> Self {
        Self { digest: Digest::new(CrcAlgorithm::Crc32Iscsi) }
    }

    /// Adds `bytes`.
    pub fn update(&mut self, bytes: &[u8]) {
        self.digest.update(bytes);
    }

    /// The checksum of all bytes added.
    pub fn finish(&self) -> u32 {
        self.digest.finalize() as u32
    }
}

impl Default for Crc32c {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_value_of_rfc_3720_is_computed_whole_and_in_pieces() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        let mut crc = Crc32c::new();
        crc.update(b"1234");
        crc.update(b"");
        crc.update(b"56789");
        assert_eq!(crc.finish(), 0xe306_9283);
    }

    #[test]
    fn pieces_are_extended_and_combined() {
        let bytes: Vec<u8> = (0..100_000_u32).map(|i| ((i * 7) >> 2) as u8).collect();
        for at in [0, 1, 40, 4096, 99_999, 100_000] {
            let (first, second) = bytes.split_at(at);
            assert_eq!(extend(crc32c(first), second), crc32c(&bytes), "extended at {at}");
            assert_eq!(combine(crc32c(first), crc32c(second), second.len()), crc32c(&bytes), "at {at}");
        }
    }
}
