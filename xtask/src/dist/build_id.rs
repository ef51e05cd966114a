//! Build ids that depend on the shipped bytes only. Linkers compute them with the debug information, whose directories differ
//! by machine; so they write a placeholder, and the digest of the stripped file replaces it.

use sha2::{Digest, Sha256};

/// As long as a build id usually is.
const PLACEHOLDER: &[u8; 20] = b"ottla-build-id-place";

/// The flag that makes a linker write the placeholder.
pub(crate) fn linker_flag() -> String {
    format!("-Wl,--build-id=0x{}", super::oci::hex(PLACEHOLDER))
}

/// The build id of a stripped file with the placeholder.
pub(crate) fn of(stripped: &[u8]) -> [u8; 20] {
    let mut id = [0; 20];
    id.copy_from_slice(&Sha256::digest(stripped)[..20]);
    id
}

/// Writes the build id over the placeholder; `false` unless it is there once.
pub(crate) fn write(bytes: &mut [u8], id: [u8; 20]) -> bool {
    let places: Vec<usize> = super::elf::places(bytes, PLACEHOLDER).take(2).collect();
    if let [place] = places[..] {
        bytes[place..place + id.len()].copy_from_slice(&id);
        return true;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_placeholder_is_replaced_once() {
        let mut bytes = [b"..".as_slice(), PLACEHOLDER, b".."].concat();
        let id = of(&bytes);
        assert!(write(&mut bytes, id));
        assert_eq!(&bytes[2..22], id);
        assert!(!write(&mut bytes, id), "it is gone");
    }
}
