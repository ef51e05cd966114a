//! The transactions of a log while a pass walks over its batches: which data was aborted, and which markers can go.

use ottla_wire::BatchHeader;

use crate::marker::{Control, TransactionOutcome};
use crate::producer_map::{ProducerMap, ProducerSet};
use crate::txn_index::AbortedTransaction;

/// The transactions that are open at the position of a walk.
#[derive(Debug)]
pub(crate) struct Transactions {
    /// Aborted transactions that begin later, the next one last.
    later: Vec<AbortedTransaction>,
    /// By producer, and whether the walk has seen data of the transaction.
    aborted: ProducerMap<(AbortedTransaction, bool)>,
    /// Producers of which the walk has seen transactional data since the last marker.
    with_data: ProducerSet,
    /// Aborted transactions whose marker the walk has passed and whose data the log still has.
    retained: Vec<AbortedTransaction>,
}

impl Transactions {
    pub(crate) fn new(mut aborted: Vec<AbortedTransaction>) -> Self {
        aborted.sort_by_key(|transaction| std::cmp::Reverse(transaction.first_offset));
        Self {
            later: aborted,
            aborted: ProducerMap::default(),
            with_data: ProducerSet::default(),
            retained: Vec::new(),
        }
    }

    /// Passes a batch of data. Returns `true` if it was aborted.
    pub(crate) fn pass_data(&mut self, header: &BatchHeader) -> bool {
        self.begin_up_to(header.last_offset());
        if !header.is_transactional() {
            return false;
        }
        match self.aborted.get_mut(&header.producer_id) {
            Some((transaction, has_data)) if header.last_offset() < transaction.last_offset => {
                *has_data = true;
                return true;
            }
            // Its marker was removed: this is a later transaction.
            Some(_) => drop(self.aborted.remove(&header.producer_id)),
            None => {}
        }
        self.with_data.insert(header.producer_id);
        false
    }

    /// Passes a control batch. Returns `true` if no data of its transaction is left, so that the marker can go.
    pub(crate) fn pass_control(&mut self, header: &BatchHeader, control: Control) -> bool {
        self.begin_up_to(header.last_offset());
        match control {
            Control::Marker { outcome: TransactionOutcome::Abort, .. } => {
                match self.aborted.remove(&header.producer_id) {
                    Some((transaction, true)) if transaction.last_offset == header.base_offset => {
                        self.retained.push(transaction);
                        false
                    }
                    Some(_) | None => true,
                }
            }
            Control::Marker { outcome: TransactionOutcome::Commit, .. } => {
                !self.with_data.remove(&header.producer_id)
            }
            Control::Other => false,
            Control::Emptied => true,
        }
    }

    /// Returns the aborted transactions whose markers were passed since the last call and have to stay in the index.
    pub(crate) fn take_retained(&mut self) -> Vec<AbortedTransaction> {
        std::mem::take(&mut self.retained)
    }

    /// Begins the transactions up to `offset`. Those that ended before do not begin: a pass may start behind them, and an
    /// earlier pass may have removed their markers.
    fn begin_up_to(&mut self, offset: i64) {
        while let Some(next) = self.later.pop_if(|next| next.first_offset <= offset) {
            if next.last_offset >= offset {
                self.aborted.insert(next.producer_id, (next, false));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(offset: i64) -> BatchHeader {
        BatchHeader {
            base_offset: offset,
            batch_length: 100,
            partition_leader_epoch: 0,
            crc: 0,
            attributes: 0x10,
            last_offset_delta: 0,
            base_timestamp: 0,
            max_timestamp: 0,
            producer_id: 7,
            producer_epoch: 0,
            base_sequence: 0,
            record_count: 1,
        }
    }

    /// Found by the property test: data that was committed later was taken for aborted.
    #[test]
    fn a_transaction_whose_marker_the_walk_does_not_see_ends_at_its_last_offset() {
        let aborted =
            AbortedTransaction { producer_id: 7, first_offset: 3, last_offset: 6, last_stable_offset: 3 };
        let mut behind = Transactions::new(vec![aborted]);
        assert!(!behind.pass_data(&data(8)), "the walk starts behind it");
        let mut without_marker = Transactions::new(vec![aborted]);
        assert!(!without_marker.pass_data(&data(2)));
        assert!(without_marker.pass_data(&data(4)));
        assert!(!without_marker.pass_data(&data(8)), "the marker at offset 6 is gone");
    }
}
