//! Which partition a record goes to.

use std::fmt;
use std::sync::Arc;

/// How partitions are chosen for records that name none.
///
/// A partitioner may be called from any thread and several times for one record, and must be quick.
#[derive(Clone, Default)]
#[non_exhaustive]
pub enum Partitioner {
    /// Java's default: the murmur2 hash of the key; without a key, one partition until about a batch has gone
    /// there, then another (KIP-480, KIP-794).
    #[default]
    Murmur2Sticky,
    /// Any partition, per record.
    Random,
    /// The user's own: key and partition count in, partition out; `None` declines, and the record fails.
    Custom(ChoosePartition),
}

/// A partitioner of the user's own: key and partition count in, partition out.
pub type ChoosePartition = Arc<dyn Fn(Option<&[u8]>, u32) -> Option<u32> + Send + Sync>;

impl fmt::Debug for Partitioner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Murmur2Sticky => "Murmur2Sticky",
            Self::Random => "Random",
            Self::Custom(_) => "Custom",
        })
    }
}

/// Java's partition for a key: murmur2, sign bit cleared, modulo the count.
pub(crate) fn murmur2_partition(key: &[u8], partitions: u32) -> u32 {
    (murmur2(key) & 0x7fff_ffff) % partitions
}

/// Murmur2 with the seed of `org.apache.kafka.common.utils.Utils`.
pub(crate) fn murmur2(data: &[u8]) -> u32 {
    const SEED: u32 = 0x9747_b28c;
    const M: u32 = 0x5bd1_e995;
    const R: u32 = 24;
    let mut h = SEED ^ data.len() as u32;
    let (words, tail) = data.as_chunks::<4>();
    for word in words {
        let mut k = u32::from_le_bytes(*word).wrapping_mul(M);
        k = (k ^ (k >> R)).wrapping_mul(M);
        h = h.wrapping_mul(M) ^ k;
    }
    if !tail.is_empty() {
        for (at, byte) in tail.iter().enumerate() {
            h ^= u32::from(*byte) << (8 * at);
        }
        h = h.wrapping_mul(M);
    }
    h ^= h >> 13;
    h = h.wrapping_mul(M);
    h ^ (h >> 15)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn murmur2_gives_the_values_of_the_java_clients_own_test() {
        for (key, hash) in [
            ("21", -973_932_308_i32),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
            ("abc", 479_470_107),
        ] {
            assert_eq!(murmur2(key.as_bytes()) as i32, hash, "{key}");
        }
    }
}
