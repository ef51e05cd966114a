//! Acknowledgements of acquired records, as ranges of offsets.

use ottla_protocol::Uuid;
use tokio::time::Instant;

use crate::types::{AcknowledgeType, TopicPartition};

/// The code of an offset that has no record: compaction removed it, or it is a transaction marker.
pub(crate) const GAP: i8 = 0;

/// A partition in the requests of share groups.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) struct TopicIdPartition {
    pub(crate) topic_id: Uuid,
    pub(crate) partition: i32,
}

/// Consecutive offsets that are acknowledged.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct AckRange {
    pub(crate) first: i64,
    pub(crate) last: i64,
    /// One code for all offsets, or one per offset.
    pub(crate) types: Vec<i8>,
}

impl AckRange {
    /// A range whose offsets have the same code.
    pub(crate) fn uniform(first: i64, last: i64, code: i8) -> Self {
        Self { first, last, types: vec![code] }
    }

    /// A range from `first` on with one code per offset; `codes` is not empty.
    pub(crate) fn of_codes(first: i64, codes: &[i8]) -> Self {
        let last = first + codes.len() as i64 - 1;
        let is_uniform = codes.iter().all(|code| Some(code) == codes.first());
        let types = if is_uniform { codes[..1].to_vec() } else { codes.to_vec() };
        Self { first, last, types }
    }

    /// The number of offsets.
    pub(crate) fn len(&self) -> u64 {
        self.last.abs_diff(self.first).saturating_add(1)
    }

    /// The part of these offsets, which are some of this range's.
    pub(crate) fn part(&self, first: i64, last: i64) -> Self {
        match &self.types[..] {
            [code] => Self::uniform(first, last, *code),
            codes => {
                Self::of_codes(first, &codes[(first - self.first) as usize..=(last - self.first) as usize])
            }
        }
    }

    /// Appends `next` if it continues this range with the same code. Returns whether it did.
    fn extend(&mut self, next: &Self) -> bool {
        let continues = self.last + 1 == next.first && self.types.len() == 1 && self.types == next.types;
        if continues {
            self.last = next.last;
        }
        continues
    }

    fn renews(&self) -> bool {
        self.types.contains(&AcknowledgeType::Renew.code())
    }
}

/// The acknowledgements of one delivered batch, for the broker that it came from.
#[derive(Clone, Debug)]
pub(crate) struct PartitionAcks {
    /// Identifies them in the result; rises with each one of a consumer.
    pub(crate) id: u64,
    pub(crate) key: TopicIdPartition,
    pub(crate) at: TopicPartition,
    pub(crate) node: i32,
    pub(crate) ranges: Vec<AckRange>,
    /// Responses that refused them with an error that may pass.
    pub(crate) attempts: u32,
    /// The end of the pause after such a response.
    pub(crate) retry_at: Option<Instant>,
    /// The time from which they are not sent again: the locks of their records have ended. `None` while it is not known.
    pub(crate) give_up_at: Option<Instant>,
}

impl PartitionAcks {
    /// Returns `true` if they wait for the end of no pause.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.retry_at.is_none_or(|at| at <= now)
    }

    /// Returns `true` if an offset is renewed.
    pub(crate) fn renews(&self) -> bool {
        self.ranges.iter().any(AckRange::renews)
    }

    /// Splits them into the renewals and the others. Both keep the id.
    pub(crate) fn split_renewals(mut self) -> (Option<Self>, Option<Self>) {
        if !self.renews() {
            return (None, Some(self));
        }
        let is_renewal = |code: &i8| *code == AcknowledgeType::Renew.code();
        let (mut renewals, mut others) = (Vec::new(), Vec::new());
        for range in std::mem::take(&mut self.ranges) {
            if range.types.iter().all(is_renewal) {
                renewals.push(range);
            } else if !range.renews() {
                others.push(range);
            } else {
                let mut first = range.first;
                for codes in range.types.chunk_by(|one, other| is_renewal(one) == is_renewal(other)) {
                    let ranges = if is_renewal(&codes[0]) { &mut renewals } else { &mut others };
                    ranges.push(AckRange::of_codes(first, codes));
                    first += codes.len() as i64;
                }
            }
        }
        let with = |ranges: Vec<AckRange>| (!ranges.is_empty()).then(|| Self { ranges, ..self.clone() });
        (with(renewals), with(others))
    }
}

/// The ranges of several batches of one partition in the order of their offsets; neighbours with one code are one range.
pub(crate) fn merged<'a>(acks: impl Iterator<Item = &'a PartitionAcks>) -> Vec<AckRange> {
    let mut all: Vec<AckRange> = acks.flat_map(|acks| acks.ranges.iter().cloned()).collect();
    all.sort_by_key(|range| range.first);
    let mut merged: Vec<AckRange> = Vec::with_capacity(all.len());
    for range in all {
        if !merged.last_mut().is_some_and(|last| last.extend(&range)) {
            merged.push(range);
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acks(ranges: Vec<AckRange>) -> PartitionAcks {
        let key = TopicIdPartition { topic_id: Uuid::ONE, partition: 0 };
        PartitionAcks {
            id: 1,
            key,
            at: TopicPartition::new("orders", 0),
            node: 1,
            ranges,
            attempts: 0,
            retry_at: None,
            give_up_at: None,
        }
    }

    #[test]
    fn equal_codes_are_one_number_and_mixed_ones_are_one_per_offset() {
        assert_eq!(AckRange::of_codes(5, &[1, 1, 1]), AckRange::uniform(5, 7, 1));
        let mixed = AckRange::of_codes(5, &[1, 0, 3]);
        assert_eq!((mixed.first, mixed.last, &mixed.types[..], mixed.len()), (5, 7, &[1, 0, 3][..], 3));
    }

    #[test]
    fn a_part_of_a_range_has_the_codes_of_its_offsets() {
        assert_eq!(AckRange::uniform(5, 9, 1).part(6, 7), AckRange::uniform(6, 7, 1));
        let mixed = AckRange::of_codes(5, &[1, 0, 3]);
        assert_eq!(mixed.part(6, 7), AckRange { first: 6, last: 7, types: vec![0, 3] });
        assert_eq!(mixed.part(7, 7), AckRange::uniform(7, 7, 3));
    }

    #[test]
    fn ranges_of_one_code_that_touch_are_sent_as_one() {
        let late = acks(vec![AckRange::uniform(10, 19, 1), AckRange::uniform(21, 22, 1)]);
        let early = acks(vec![AckRange::uniform(0, 9, 1), AckRange::of_codes(20, &[2])]);
        let merged = merged([&late, &early].into_iter());
        let expected =
            [AckRange::uniform(0, 19, 1), AckRange::uniform(20, 20, 2), AckRange::uniform(21, 22, 1)];
        assert_eq!(merged, expected);
    }

    #[test]
    fn renewals_are_split_from_the_others_of_their_batch() {
        let ranges = vec![
            AckRange::of_codes(0, &[1, 4, 4, 2]),
            AckRange::uniform(10, 19, 4),
            AckRange::uniform(20, 29, 1),
        ];
        let (renewals, others) = acks(ranges).split_renewals();
        let (renewals, others) = (renewals.expect("renewals"), others.expect("others"));
        assert_eq!(renewals.ranges, [AckRange::uniform(1, 2, 4), AckRange::uniform(10, 19, 4)]);
        let expected = [AckRange::uniform(0, 0, 1), AckRange::uniform(3, 3, 2), AckRange::uniform(20, 29, 1)];
        assert_eq!((others.id, others.ranges), (renewals.id, expected.to_vec()));
        let (none, all) = acks(vec![AckRange::uniform(0, 9, 1)]).split_renewals();
        assert!(none.is_none() && all.is_some());
    }

    #[test]
    fn only_the_code_of_renew_renews() {
        assert!(acks(vec![AckRange::of_codes(0, &[1, 4])]).renews());
        assert!(!acks(vec![AckRange::of_codes(0, &[0, 1, 2, 3])]).renews());
    }
}
