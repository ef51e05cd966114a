//! The choice of a partition for a record.

use std::fmt;
use std::sync::Arc;

use crate::panics::contained;
use crate::record::Tag;

/// The strategy that chooses a partition for records that request none.
///
/// Every hash yields the partitions of librdkafka's partitioner of the same name; `Murmur2Random` yields Java's.
#[derive(Clone, Default)]
#[non_exhaustive]
pub enum Partitioner {
    /// Any partition for every record with a key, also an empty one; records without a key go to the sticky partition, as in librdkafka.
    Random,
    /// CRC32 of the key; a null key counts as an empty one.
    Consistent,
    /// CRC32 of the key; records with an empty or null key go to the sticky partition.
    ConsistentRandom,
    /// Java's hash of the key; a null key counts as an empty one.
    Murmur2,
    /// Java's default: its hash of the key; records without a key go to the sticky partition (KIP-480, KIP-794).
    #[default]
    Murmur2Random,
    /// 32-bit FNV-1a of the key as in Sarama; a null key counts as an empty one.
    Fnv1a,
    /// 32-bit FNV-1a of the key; records without a key go to the sticky partition.
    Fnv1aRandom,
    /// The application's own partitioner.
    Custom(ChoosePartition),
    /// The same for records with a key; those without one stay with one partition for a while.
    CustomForKeys(ChoosePartition),
}

/// An application's partitioner: returns the partition of a record, or `None`, which fails the record. So does a panic.
///
/// Several threads may call it at once, and more than once for a record: again when the topic's partitions become known.
/// It must be quick and must not call the producer.
pub type ChoosePartition = Arc<dyn Fn(&Choice<'_>) -> Option<u32> + Send + Sync>;

/// The arguments of an application's partitioner.
#[derive(Clone, Copy, Debug)]
pub struct Choice<'a> {
    /// The topic.
    pub topic: &'a str,
    /// The record's key; `None` is null.
    pub key: Option<&'a [u8]>,
    /// The topic's number of partitions; the choice is below it.
    pub partitions: u32,
    /// The record's tag.
    pub tag: Tag,
    availability: &'a dyn Availability,
}

impl<'a> Choice<'a> {
    pub(crate) fn new(
        topic: &'a str,
        key: Option<&'a [u8]>,
        tag: u128,
        partitions: u32,
        availability: &'a dyn Availability,
    ) -> Self {
        Self { topic, key, partitions, tag: tag.into(), availability }
    }

    /// `true` if the partition has a leader, according to the latest metadata.
    pub fn is_available(&self, partition: u32) -> bool {
        self.availability.has_leader(partition)
    }
}

/// The partitions' leaders, for [`Choice::is_available`].
pub(crate) trait Availability: fmt::Debug {
    fn has_leader(&self, partition: u32) -> bool;
}

/// Without metadata, no partition has a leader.
#[derive(Debug)]
struct Unknown;

impl Availability for Unknown {
    fn has_leader(&self, _partition: u32) -> bool {
        false
    }
}

/// The result of a partitioner.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Chosen {
    Partition(u32),
    /// The sticky partition.
    Sticky,
    /// Any partition.
    Random,
    Declined,
}

impl Partitioner {
    /// The partition out of `partitions` that the key decides; `None` without a key, with an application's partitioner, or
    /// without partitions.
    ///
    /// ```
    /// use ottla_client::Partitioner;
    ///
    /// assert_eq!(Partitioner::Consistent.of_key(Some(b"abc"), 10), Some(8));
    /// assert_eq!(Partitioner::ConsistentRandom.of_key(None, 10), None);
    /// ```
    pub fn of_key(&self, key: Option<&[u8]>, partitions: u32) -> Option<u32> {
        if partitions == 0 || matches!(self, Self::Custom(_) | Self::CustomForKeys(_)) {
            return None;
        }
        match self.choose(&Choice { topic: "", key, partitions, tag: Tag::default(), availability: &Unknown })
        {
            Chosen::Partition(partition) => Some(partition),
            Chosen::Sticky | Chosen::Random | Chosen::Declined => None,
        }
    }

    #[inline]
    pub(crate) fn choose(&self, choice: &Choice<'_>) -> Chosen {
        let modulo = |hash: u32| Chosen::Partition(hash % choice.partitions);
        match (self, choice.key) {
            (Self::ConsistentRandom, None | Some([]))
            | (Self::Random | Self::Murmur2Random | Self::Fnv1aRandom | Self::CustomForKeys(_), None) => {
                Chosen::Sticky
            }
            (Self::Consistent | Self::ConsistentRandom, key) => {
                modulo(ottla_wire::crc::crc32(key.unwrap_or_default()))
            }
            (Self::Murmur2 | Self::Murmur2Random, key) => {
                modulo(murmur2(key.unwrap_or_default()) & 0x7fff_ffff)
            }
            (Self::Fnv1a | Self::Fnv1aRandom, key) => modulo(fnv1a(key.unwrap_or_default())),
            (Self::Random, _) => Chosen::Random,
            // The engine's sender calls it for records that waited for the partitions: a panic must not end the task.
            (Self::Custom(choose) | Self::CustomForKeys(choose), _) => {
                match contained(|| choose(choice)).flatten() {
                    Some(partition) => Chosen::Partition(partition),
                    None => Chosen::Declined,
                }
            }
        }
    }
}

impl fmt::Debug for Partitioner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Random => "Random",
            Self::Consistent => "Consistent",
            Self::ConsistentRandom => "ConsistentRandom",
            Self::Murmur2 => "Murmur2",
            Self::Murmur2Random => "Murmur2Random",
            Self::Fnv1a => "Fnv1a",
            Self::Fnv1aRandom => "Fnv1aRandom",
            Self::Custom(_) => "Custom",
            Self::CustomForKeys(_) => "CustomForKeys",
        })
    }
}

/// Murmur2 with the seed of `org.apache.kafka.common.utils.Utils`.
fn murmur2(data: &[u8]) -> u32 {
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

/// 32-bit FNV-1a; Sarama, and so librdkafka, takes the absolute value of the signed result.
fn fnv1a(data: &[u8]) -> u32 {
    const PRIME: u32 = 0x0100_0193;
    const OFFSET: u32 = 0x811c_9dc5;
    let hash = data.iter().fold(OFFSET, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(PRIME));
    (hash as i32).unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNALIGNED: &str = "PreAmbleWillBeRemoved,ThePrePartThatIs";

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

    #[test]
    fn fnv1a_gives_the_values_of_saramas_and_librdkafkas_tests() {
        for (key, hash) in [
            ("kafka", 0x0d33_c4e1),
            ("giberish123456789", 0x77a5_8295),
            ("1234", 0x023b_dd03),
            ("234", 0x2dea_3cd2),
            ("34", 0x740f_a83e),
            ("4", 0x310c_a263),
            (UNALIGNED, 0x65cb_d69c),
            (&UNALIGNED[1..], 0x6e49_c79a),
            (&UNALIGNED[2..], 0x69ee_d356),
            (&UNALIGNED[3..], 0x6abc_c023),
            ("", 0x7ee3_623b),
        ] {
            assert_eq!(fnv1a(key.as_bytes()), hash, "{key:?} {:x}", fnv1a(key.as_bytes()));
        }
    }

    /// A topic with a leader for each of its 8 partitions.
    #[derive(Debug)]
    struct AllLed;

    impl Availability for AllLed {
        fn has_leader(&self, partition: u32) -> bool {
            partition < 8
        }
    }

    #[test]
    fn a_partitioner_for_keys_is_not_asked_about_records_without_one() {
        let partitioner =
            Partitioner::CustomForKeys(Arc::new(|choice| choice.key.map(|key| key.len() as u32)));
        let choose = |key| {
            partitioner.choose(&Choice {
                topic: "",
                key,
                partitions: 9,
                tag: Tag::default(),
                availability: &Unknown,
            })
        };
        assert!(matches!(choose(None), Chosen::Sticky));
        assert!(matches!(choose(Some(b"")), Chosen::Partition(0)));
        assert!(matches!(choose(Some(b"key")), Chosen::Partition(3)));
    }

    #[test]
    fn keys_that_are_null_or_empty_are_treated_as_librdkafka_treats_them() {
        let choose =
            |partitioner: &Partitioner, key| partitioner.choose(&Choice::new("t", key, 0, 8, &AllLed));
        for (partitioner, null, empty) in [
            (Partitioner::Consistent, Chosen::Partition(0), Chosen::Partition(0)),
            (Partitioner::ConsistentRandom, Chosen::Sticky, Chosen::Sticky),
            (Partitioner::Murmur2Random, Chosen::Sticky, Chosen::Partition(murmur2(b"") % 8)),
            (Partitioner::Random, Chosen::Sticky, Chosen::Random),
        ] {
            assert_eq!(choose(&partitioner, None), null, "{partitioner:?}");
            assert_eq!(choose(&partitioner, Some(b"")), empty, "{partitioner:?}");
        }
        assert_eq!(choose(&Partitioner::Murmur2, None), choose(&Partitioner::Murmur2, Some(b"")));
        assert_eq!(choose(&Partitioner::Fnv1a, None), choose(&Partitioner::Fnv1a, Some(b"")));
        let hash = Chosen::Partition(0xcbf4_3926 % 8);
        assert_eq!(choose(&Partitioner::Consistent, Some(b"123456789")), hash, "CRC32's check value");
        let declines = Partitioner::Custom(Arc::new(|choice| {
            assert!(choice.is_available(7) && !choice.is_available(8));
            None
        }));
        assert_eq!(choose(&declines, None), Chosen::Declined);
    }
}
