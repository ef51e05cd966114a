//! SipHash-2-4 with 128 bits of output: the hash of a key in the offset map.
//!
//! Two keys with the same hash would lose the records of one of them. Apache Kafka uses MD5, whose collisions can be
//! computed. This hash depends on a secret of the pass, so that no client can compute a collision. By chance one occurs
//! among n keys with a probability below n² / 2^129: 2^-84 for the six million keys of a map of 128 MiB.

/// A hash of a key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct KeyHash(pub(crate) [u64; 2]);

/// The hash function of one pass.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyHasher {
    secret: [u64; 2],
}

impl KeyHasher {
    pub(crate) fn new(secret: [u64; 2]) -> Self {
        Self { secret }
    }

    /// Returns the hash of `key`.
    #[inline]
    pub(crate) fn hash(&self, key: &[u8]) -> KeyHash {
        let [k0, k1] = self.secret;
        let mut state = State {
            v0: k0 ^ 0x736f_6d65_7073_6575,
            v1: k1 ^ 0x646f_7261_6e64_6f6d ^ 0xee,
            v2: k0 ^ 0x6c79_6765_6e65_7261,
            v3: k1 ^ 0x7465_6462_7974_6573,
        };
        let (words, rest) = key.as_chunks::<8>();
        for word in words {
            state.absorb(u64::from_le_bytes(*word));
        }
        let mut last = (key.len() as u64) << 56;
        for (at, byte) in rest.iter().enumerate() {
            last |= u64::from(*byte) << (8 * at);
        }
        state.absorb(last);
        state.v2 ^= 0xee;
        let first = state.squeeze();
        state.v1 ^= 0xdd;
        KeyHash([first, state.squeeze()])
    }
}

struct State {
    v0: u64,
    v1: u64,
    v2: u64,
    v3: u64,
}

impl State {
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "the four words stay in registers: 20 ns for each key otherwise")]
    fn round(&mut self) {
        self.v0 = self.v0.wrapping_add(self.v1);
        self.v1 = self.v1.rotate_left(13) ^ self.v0;
        self.v0 = self.v0.rotate_left(32);
        self.v2 = self.v2.wrapping_add(self.v3);
        self.v3 = self.v3.rotate_left(16) ^ self.v2;
        self.v0 = self.v0.wrapping_add(self.v3);
        self.v3 = self.v3.rotate_left(21) ^ self.v0;
        self.v2 = self.v2.wrapping_add(self.v1);
        self.v1 = self.v1.rotate_left(17) ^ self.v2;
        self.v2 = self.v2.rotate_left(32);
    }

    #[inline]
    fn absorb(&mut self, word: u64) {
        self.v3 ^= word;
        self.round();
        self.round();
        self.v0 ^= word;
    }

    #[inline]
    fn squeeze(&mut self) -> u64 {
        for _ in 0..4 {
            self.round();
        }
        self.v0 ^ self.v1 ^ self.v2 ^ self.v3
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Vectors of the reference implementation: the key 00 01 .. 0f, the inputs 00 01 .. of each length.
    #[test]
    fn hashes_are_those_of_the_reference() {
        let hasher = KeyHasher::new([0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908]);
        let hex = |len: u8| {
            let input: Vec<u8> = (0..len).collect();
            let KeyHash(words) = hasher.hash(&input);
            // Each word is written with its lowest byte first.
            format!("{:016x}{:016x}", words[0].swap_bytes(), words[1].swap_bytes())
        };
        assert_eq!(hex(0), "a3817f04ba25a8e66df67214c7550293");
        assert_eq!(hex(1), "da87c1d86b99af44347659119b22fc45");
    }

    #[test]
    fn every_byte_and_the_secret_count() {
        let hasher = KeyHasher::new([1, 2]);
        let key = b"a key of more than sixteen bytes";
        for len in 0..key.len() {
            assert_ne!(hasher.hash(&key[..len]), hasher.hash(&key[..=len]));
            let mut other = *key;
            other[len] ^= 1;
            assert_ne!(hasher.hash(key), hasher.hash(&other), "byte {len}");
        }
        assert_ne!(hasher.hash(key), KeyHasher::new([1, 3]).hash(key));
    }
}
