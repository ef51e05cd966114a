//! Records that a poll returned and that are not acknowledged.

use std::ops::RangeInclusive;

use tokio::time::Instant;

use super::batch::ShareBatch;
use crate::share::acknowledgements::{AckRange, PartitionAcks, TopicIdPartition};
use crate::share::queue::AcquiredRange;
use crate::types::{AcknowledgeType, TopicPartition};

/// No acknowledgement so far.
const NONE: i8 = -1;
/// The acknowledgement was given to the engine.
const TAKEN: i8 = -2;

/// The acknowledgements of one delivered batch.
#[derive(Debug)]
pub(super) struct DeliveredBatch {
    pub(super) key: TopicIdPartition,
    at: TopicPartition,
    node: i32,
    runs: Vec<DeliveredRun>,
    /// The end of the records' locks, if it is known.
    locked_until: Option<Instant>,
    /// The batch, with explicit acknowledgement: a renewal returns its records again.
    batch: Option<ShareBatch>,
}

/// Consecutive records.
#[derive(Debug)]
struct DeliveredRun {
    first: i64,
    last: i64,
    /// A code per offset; empty while no offset has one.
    codes: Vec<i8>,
}

impl DeliveredRun {
    fn unacknowledged(&self) -> usize {
        if self.codes.is_empty() {
            return (self.last - self.first + 1) as usize;
        }
        self.codes.iter().filter(|code| **code == NONE).count()
    }
}

impl DeliveredBatch {
    pub(super) fn new(
        key: TopicIdPartition,
        batch: &ShareBatch,
        locked_until: Option<Instant>,
        keeps: bool,
    ) -> Self {
        let run =
            |range: &AcquiredRange| DeliveredRun { first: range.first, last: range.last, codes: Vec::new() };
        Self {
            key,
            at: batch.at.clone(),
            node: batch.node,
            runs: batch.acquired.iter().map(run).collect(),
            locked_until,
            batch: keeps.then(|| batch.clone()),
        }
    }

    /// The batch, if it is kept.
    pub(super) fn batch(&self) -> Option<&ShareBatch> {
        self.batch.as_ref()
    }

    /// The number of records without an acknowledgement.
    pub(super) fn unacknowledged(&self) -> usize {
        self.runs.iter().map(DeliveredRun::unacknowledged).sum()
    }

    /// Returns `true` if any record has no acknowledgement.
    pub(super) fn has_unacknowledged(&self) -> bool {
        self.runs.iter().any(|run| run.codes.is_empty() || run.codes.contains(&NONE))
    }

    /// Acknowledges consecutive records; a later acknowledgement replaces one that was not taken. Returns the number of
    /// acknowledged records: it ends before a record that is not among them, or whose acknowledgement was taken.
    pub(super) fn acknowledge(
        &mut self,
        at: &TopicPartition,
        offsets: RangeInclusive<i64>,
        code: i8,
    ) -> usize {
        let (first, last) = offsets.into_inner();
        if self.at != *at {
            return 0;
        }
        let found = self.runs.partition_point(|run| run.last < first);
        let Some(run) = self.runs.get_mut(found).filter(|run| run.first <= first) else { return 0 };
        if run.codes.is_empty() {
            run.codes = vec![NONE; (run.last - run.first + 1) as usize];
        }
        let codes = &mut run.codes[(first - run.first) as usize..=(last.min(run.last) - run.first) as usize];
        let open = codes.iter().take_while(|known| **known != TAKEN).count();
        codes[..open].fill(code);
        open
    }

    /// Forgets the records that were delivered again: the group gave up their earlier acquisition, so only the later delivery can
    /// be acknowledged. Returns `true` if there are such records.
    pub(super) fn forget(&mut self, again: &ShareBatch) -> bool {
        let mut forgotten = false;
        if self.at != again.at {
            return forgotten;
        }
        for range in again.acquired.iter() {
            let found = self.runs.partition_point(|run| run.last < range.first);
            for run in self.runs[found..].iter_mut().take_while(|run| run.first <= range.last) {
                if run.codes.is_empty() {
                    run.codes = vec![NONE; (run.last - run.first + 1) as usize];
                }
                let (first, last) = (range.first.max(run.first), range.last.min(run.last));
                let codes = &mut run.codes[(first - run.first) as usize..=(last - run.first) as usize];
                // An acknowledgement that was not sent is sent: the broker decides about it.
                codes.iter_mut().filter(|code| **code == NONE).for_each(|code| *code = TAKEN);
                forgotten = true;
            }
        }
        forgotten
    }

    /// Returns `true` if an acknowledgement was not taken.
    pub(super) fn has_unsent(&self) -> bool {
        self.runs.iter().any(|run| run.codes.iter().any(|code| *code >= 0))
    }

    /// The begin of the batch's next run after `offset`.
    pub(super) fn next_after(&self, at: &TopicPartition, offset: i64) -> Option<i64> {
        let found = self.runs.partition_point(|run| run.first <= offset);
        self.runs.get(found).filter(|_| self.at == *at).map(|run| run.first)
    }

    /// Acknowledges all records without an acknowledgement.
    pub(super) fn acknowledge_rest(&mut self, code: i8) {
        for run in &mut self.runs {
            if run.codes.is_empty() {
                run.codes = vec![code; (run.last - run.first + 1) as usize];
            } else {
                run.codes.iter_mut().filter(|known| **known == NONE).for_each(|known| *known = code);
            }
        }
    }

    /// Accepts all records at once: nothing is kept per record.
    pub(super) fn into_accepted(self, id: u64) -> PartitionAcks {
        let accept =
            |run: DeliveredRun| AckRange::uniform(run.first, run.last, AcknowledgeType::Accept.code());
        let ranges = self.runs.into_iter().map(accept).collect();
        PartitionAcks {
            id,
            key: self.key,
            at: self.at,
            node: self.node,
            ranges,
            attempts: 0,
            retry_at: None,
            give_up_at: self.locked_until,
        }
    }

    /// Takes the acknowledgements since the last call; `None` if there are none.
    pub(super) fn take(&mut self, id: u64) -> Option<PartitionAcks> {
        let mut ranges = Vec::new();
        for run in &mut self.runs {
            let mut from = 0;
            while from < run.codes.len() {
                let is_taken = |code: &i8| *code >= 0;
                let len = run.codes[from..].iter().take_while(|code| is_taken(code)).count();
                if len > 0 {
                    let codes = &mut run.codes[from..from + len];
                    ranges.push(AckRange::of_codes(run.first + from as i64, codes));
                    codes.fill(TAKEN);
                }
                from += len + 1;
            }
        }
        let (key, at, node) = (self.key, self.at.clone(), self.node);
        (!ranges.is_empty()).then_some(PartitionAcks {
            id,
            key,
            at,
            node,
            ranges,
            attempts: 0,
            retry_at: None,
            give_up_at: self.locked_until,
        })
    }
}

/// The offsets that an outcome renews.
pub(super) fn renewed_offsets(ranges: &[AckRange]) -> Vec<(i64, i64)> {
    let renew = AcknowledgeType::Renew.code();
    let mut offsets: Vec<(i64, i64)> = Vec::new();
    for range in ranges {
        if range.types == [renew] {
            offsets.push((range.first, range.last));
            continue;
        }
        let renewed = range.types.iter().zip(range.first..).filter(|(code, _)| **code == renew);
        for (_, offset) in renewed {
            match offsets.last_mut() {
                Some((_, last)) if *last + 1 == offset => *last = offset,
                _ => offsets.push((offset, offset)),
            }
        }
    }
    offsets
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ottla_protocol::Uuid;

    use super::*;

    fn delivered(runs: &[(i64, i64)]) -> DeliveredBatch {
        let range =
            |(first, last): &(i64, i64)| AcquiredRange { first: *first, last: *last, delivery_count: 1 };
        let acquired: Arc<[AcquiredRange]> = runs.iter().map(range).collect();
        let (at, topic_id) = (TopicPartition::new("orders", 0), Uuid::ONE);
        let batch = ShareBatch { at, topic_id, node: 1, sets: Arc::new([]), acquired };
        DeliveredBatch::new(TopicIdPartition { topic_id: Uuid::ONE, partition: 0 }, &batch, None, true)
    }

    #[test]
    fn each_record_is_acknowledged_once_and_in_any_order() {
        let at = TopicPartition::new("orders", 0);
        let mut delivered = delivered(&[(0, 2), (5, 6)]);
        assert_eq!((delivered.acknowledge(&at, 6..=6, 2), delivered.acknowledge(&at, 0..=0, 3)), (1, 1));
        assert_eq!(delivered.acknowledge(&at, 0..=0, 1), 1, "not taken so far");
        assert_eq!(delivered.acknowledge(&at, 3..=3, 1), 0, "not delivered");
        assert_eq!(delivered.acknowledge(&TopicPartition::new("orders", 1), 0..=0, 1), 0);
        let ranges = delivered.take(1).expect("two records").ranges;
        assert_eq!(ranges, [AckRange::uniform(0, 0, 1), AckRange::uniform(6, 6, 2)]);
        assert_eq!(delivered.acknowledge(&at, 0..=0, 1), 0, "taken");
        assert!(delivered.has_unacknowledged() && delivered.take(2).is_none());
        assert_eq!(delivered.unacknowledged(), 3);
        delivered.acknowledge_rest(1);
        assert!(!delivered.has_unacknowledged());
        let ranges = delivered.take(3).expect("the rest").ranges;
        assert_eq!(ranges, [AckRange::uniform(1, 2, 1), AckRange::uniform(5, 5, 1)]);
    }

    /// Records that come again after a lost session kept their first delivery for good, which took memory until nothing was fetched.
    #[test]
    fn records_that_are_delivered_again_leave_their_earlier_batch() {
        let at = TopicPartition::new("orders", 0);
        let mut first = delivered(&[(0, 4), (7, 9)]);
        assert_eq!(first.acknowledge(&at, 1..=1, 1), 1);
        let again = |runs: &[(i64, i64)]| delivered(runs).batch.expect("kept");
        assert!(first.forget(&again(&[(0, 3), (8, 12)])));
        assert!(!first.forget(&again(&[(20, 30)])));
        assert_eq!(first.unacknowledged(), 2, "records 4 and 7");
        assert_eq!(first.acknowledge(&at, 0..=0, 1), 0, "of the later delivery");
        assert_eq!(first.take(1).expect("record 1").ranges, [AckRange::uniform(1, 1, 1)]);
        assert!(first.forget(&again(&[(4, 7)])));
        assert!(!first.has_unacknowledged() && !first.has_unsent());
    }

    #[test]
    fn consecutive_records_are_acknowledged_up_to_one_that_cannot_be() {
        let at = TopicPartition::new("orders", 0);
        let mut delivered = delivered(&[(0, 9), (10, 19)]);
        assert_eq!(delivered.acknowledge(&at, 4..=4, 1), 1);
        delivered.take(1).expect("record 4");
        assert_eq!(delivered.acknowledge(&at, 2..=7, 1), 2, "up to the one that was taken");
        assert_eq!(delivered.acknowledge(&at, 5..=12, 1), 5, "up to the end of its run");
        assert_eq!(delivered.acknowledge(&at, 10..=25, 2), 10, "up to the last record");
        assert_eq!((delivered.next_after(&at, 4), delivered.next_after(&at, 10)), (Some(10), None));
        let ranges = delivered.take(2).expect("the others").ranges;
        let expected = [AckRange::uniform(2, 3, 1), AckRange::uniform(5, 9, 1), AckRange::uniform(10, 19, 2)];
        assert_eq!(ranges, expected);
    }

    #[test]
    fn all_records_are_accepted_as_ranges() {
        let ranges = delivered(&[(0, 499), (600, 700)]).into_accepted(1).ranges;
        assert_eq!(ranges, [AckRange::uniform(0, 499, 1), AckRange::uniform(600, 700, 1)]);
    }

    #[test]
    fn only_renewed_offsets_come_again() {
        let ranges =
            [AckRange::uniform(0, 2, 4), AckRange::of_codes(5, &[1, 4, 4, 2]), AckRange::uniform(9, 9, 1)];
        assert_eq!(renewed_offsets(&ranges), [(0, 2), (6, 7)]);
    }
}
