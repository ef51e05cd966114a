//! Sequence numbers, by which a broker recognises a batch that it has already written (KIP-98).

use std::time::Duration;

use tokio::time::Instant;

use crate::types::producer_id::ProducerId;

/// The time after an acknowledgement for which the broker is expected to know the producer. A broker forgets producers that are
/// idle: Apache Kafka after `producer.id.expiration.ms`, a day by default; ours earlier if it has too many of them.
const KNOWN_FOR: Duration = Duration::from_secs(60);

/// The sequence of one partition. Epochs count per partition, because a broker knows a producer per partition only.
#[derive(Debug, Default)]
pub(crate) struct Numbering {
    id: Option<ProducerId>,
    next_sequence: i32,
    /// The last acknowledgement of a batch of this producer id. A broker that does not know the producer accepts any
    /// sequence number, and batches that overtake one another would stay in the wrong order.
    acknowledged: Option<Acknowledgement>,
}

/// The broker's acknowledgement of a batch.
#[derive(Clone, Copy, Debug)]
struct Acknowledgement {
    at: Instant,
    /// The offset of the batch's last record, if the broker named it.
    last_offset: Option<i64>,
}

/// The highest epoch is in use.
#[derive(Debug)]
pub(crate) struct Exhausted;

impl Numbering {
    /// Begins at 0 under a new producer id.
    pub(crate) fn adopt(&mut self, id: ProducerId) {
        if self.id.is_none_or(|known| known.id != id.id) {
            *self = Self { id: Some(id), ..Self::default() };
        }
    }

    /// Begins at 0 under a new producer id or epoch: in transactions the coordinator raises epochs for all partitions. A
    /// broker that knows the id detects a wrong order under a new epoch too.
    pub(crate) fn follow(&mut self, id: ProducerId) {
        if self.id != Some(id) {
            let is_same = self.id.is_some_and(|known| known.id == id.id);
            let acknowledged = self.acknowledged.filter(|_| is_same);
            *self = Self { id: Some(id), next_sequence: 0, acknowledged };
        }
    }

    /// Reserves the numbers of a batch of `count` records: producer id, epoch, first sequence.
    pub(crate) fn take(&mut self, count: i32) -> (i64, i16, i32) {
        let Some(ProducerId { id, epoch }) = self.id else { return (-1, -1, -1) };
        let first = self.next_sequence;
        self.next_sequence = advance(first, count);
        (id, epoch, first)
    }

    /// The broker acknowledged a batch that ends at this offset.
    pub(crate) fn acknowledged(&mut self, now: Instant, last_offset: Option<i64>) {
        self.acknowledged = Some(Acknowledgement { at: now, last_offset });
    }

    /// The broker has no state of this producer: the partition is a new one, or the broker has forgotten the producer.
    pub(crate) fn forgotten(&mut self) {
        self.acknowledged = None;
    }

    /// `true` if the broker detects batches that are out of order.
    pub(crate) fn is_known(&self, now: Instant) -> bool {
        self.acknowledged.is_some_and(|last| now < last.at + KNOWN_FOR)
    }

    /// `true` if a log with this start, in which a batch has this offset, still has the batch that was acknowledged last.
    /// Without it the broker may have no state of this producer any more, as in Java's `TransactionManager`. Negative
    /// offsets are unknown.
    pub(crate) fn is_continued(&self, base_offset: i64, log_start_offset: i64) -> bool {
        let Some(last) = self.acknowledged.and_then(|last| last.last_offset) else { return true };
        let is_truncated = base_offset >= 0 && base_offset < last;
        !is_truncated && log_start_offset <= last
    }

    /// The epoch of the next batches.
    pub(crate) fn epoch(&self) -> Option<i16> {
        self.id.map(|id| id.epoch)
    }

    /// Begins at 0 under the next epoch (KIP-360).
    pub(crate) fn bump(&mut self) -> Result<(), Exhausted> {
        if let Some(id) = &mut self.id {
            id.epoch = id.epoch.checked_add(1).ok_or(Exhausted)?;
            self.next_sequence = 0;
        }
        Ok(())
    }
}

/// The sequence after `count` records: `i32::MAX` is followed by 0.
fn advance(sequence: i32, count: i32) -> i32 {
    ((i64::from(sequence) + i64::from(count)) % (i64::from(i32::MAX) + 1)) as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_follow_one_another_and_wrap_to_zero() {
        let mut numbering = Numbering::default();
        numbering.adopt(ProducerId { id: 7, epoch: 0 });
        assert_eq!(numbering.take(10), (7, 0, 0));
        numbering.adopt(ProducerId { id: 7, epoch: 0 });
        assert_eq!(numbering.take(1), (7, 0, 10));
        numbering.next_sequence = i32::MAX;
        assert_eq!(numbering.take(2), (7, 0, i32::MAX));
        assert_eq!(numbering.take(1), (7, 0, 1));
        numbering.bump().expect("epochs are left");
        assert_eq!(numbering.take(1), (7, 1, 0));
    }

    #[test]
    fn in_transactions_a_new_epoch_starts_at_zero_and_the_broker_stays_known() {
        let mut numbering = Numbering::default();
        numbering.follow(ProducerId { id: 7, epoch: 0 });
        assert_eq!(numbering.take(10), (7, 0, 0));
        let now = Instant::now();
        numbering.acknowledged(now, None);
        numbering.follow(ProducerId { id: 7, epoch: 0 });
        assert_eq!(numbering.take(1), (7, 0, 10));
        numbering.follow(ProducerId { id: 7, epoch: 1 });
        assert!(numbering.is_known(now));
        assert_eq!(numbering.take(1), (7, 1, 0));
        numbering.follow(ProducerId { id: 8, epoch: 0 });
        assert!(!numbering.is_known(now));
        assert_eq!(numbering.take(1), (8, 0, 0));
    }

    #[test]
    fn a_log_without_the_last_acknowledged_batch_does_not_continue() {
        let mut numbering = Numbering::default();
        assert!(numbering.is_continued(5, 3), "nothing was acknowledged");
        numbering.acknowledged(Instant::now(), Some(10));
        for (base_offset, log_start_offset, is_continued) in
            [(11, 0, true), (11, 10, true), (11, 11, false), (3, 0, false), (-1, -1, true), (-1, 11, false)]
        {
            let found = numbering.is_continued(base_offset, log_start_offset);
            assert_eq!(found, is_continued, "offset {base_offset}, start {log_start_offset}");
        }
        numbering.forgotten();
        assert!(numbering.is_continued(3, 11), "nothing was acknowledged");
    }
}
