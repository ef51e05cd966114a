//! Sequence numbers, by which a broker recognises a batch that it has already written (KIP-98).

use crate::types::producer_id::ProducerId;

/// The sequence of one partition. Epochs count per partition, because a broker knows a producer per partition only.
#[derive(Debug, Default)]
pub(crate) struct Numbering {
    id: Option<ProducerId>,
    next_sequence: i32,
    /// `true` if the broker has acknowledged a batch of this producer id. Until then it accepts any sequence number, and
    /// batches that overtake one another would stay in the wrong order.
    is_known: bool,
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
            let is_known = self.is_known && self.id.is_some_and(|known| known.id == id.id);
            *self = Self { id: Some(id), next_sequence: 0, is_known };
        }
    }

    /// Reserves the numbers of a batch of `count` records: producer id, epoch, first sequence.
    pub(crate) fn take(&mut self, count: i32) -> (i64, i16, i32) {
        let Some(ProducerId { id, epoch }) = self.id else { return (-1, -1, -1) };
        let first = self.next_sequence;
        self.next_sequence = advance(first, count);
        (id, epoch, first)
    }

    /// The broker acknowledged a batch.
    pub(crate) fn acknowledged(&mut self) {
        self.is_known = true;
    }

    /// The broker has no state of this producer, because the partition is a new one.
    pub(crate) fn forgotten(&mut self) {
        self.is_known = false;
    }

    /// `true` if the broker detects batches that are out of order.
    pub(crate) fn is_known(&self) -> bool {
        self.is_known
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
        numbering.acknowledged();
        numbering.follow(ProducerId { id: 7, epoch: 0 });
        assert_eq!(numbering.take(1), (7, 0, 10));
        numbering.follow(ProducerId { id: 7, epoch: 1 });
        assert!(numbering.is_known());
        assert_eq!(numbering.take(1), (7, 1, 0));
        numbering.follow(ProducerId { id: 8, epoch: 0 });
        assert!(!numbering.is_known());
        assert_eq!(numbering.take(1), (8, 0, 0));
    }
}
