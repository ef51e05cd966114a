//! CRC-32C (Castagnoli), the checksum of record batches, with the CPU's own instructions where it has them.

/// The checksum of `bytes`.
#[inline]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// The CRC32 of zlib and gzip, which one of librdkafka's partitioners uses.
pub fn crc32(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iso_hdlc(bytes)
}

/// A checksum over bytes that come in several pieces.
#[derive(Debug)]
pub struct Crc32c {
    digest: crc_fast::Digest,
}

impl Crc32c {
    /// The checksum of nothing.
    pub fn new() -> Self {
        Self { digest: crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi) }
    }

    /// Continues with `bytes`.
    pub fn update(&mut self, bytes: &[u8]) {
        self.digest.update(bytes);
    }

    /// The checksum of all bytes seen.
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
    fn the_check_value_of_rfc_3720_comes_out_whole_and_in_pieces() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        let mut crc = Crc32c::new();
        crc.update(b"1234");
        crc.update(b"");
        crc.update(b"56789");
        assert_eq!(crc.finish(), 0xe306_9283);
    }
}
