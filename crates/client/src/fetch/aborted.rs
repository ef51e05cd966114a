//! Filters the records of aborted transactions (`isolation.level=read_committed`).

use std::collections::BTreeSet;

use ottla_wire::BatchHeader;

/// The producers whose transactions are aborted at the offset that was reached.
#[derive(Debug)]
pub(crate) struct AbortedTransactions {
    /// First offset and producer id of the aborted transactions that begin later.
    ahead: std::vec::IntoIter<(i64, i64)>,
    next: Option<(i64, i64)>,
    open: BTreeSet<i64>,
}

impl AbortedTransactions {
    /// A filter for a response's list of aborted transactions, sorted by offset.
    pub(crate) fn new(list: Vec<(i64, i64)>) -> Self {
        let mut ahead = list.into_iter();
        let next = ahead.next();
        Self { ahead, next, open: BTreeSet::new() }
    }

    /// Returns `true` if the records of this batch belong to an aborted transaction. Called with each batch in order.
    ///
    /// A marker ends the transaction of its producer. It is not read: with `check.crcs=false` it may be damaged, and the producer's next
    /// records, which are committed, would be left out.
    pub(crate) fn covers(&mut self, header: &BatchHeader) -> bool {
        while let Some((first_offset, producer_id)) = self.next
            && first_offset <= header.last_offset()
        {
            self.open.insert(producer_id);
            self.next = self.ahead.next();
        }
        if header.is_control() {
            self.open.remove(&header.producer_id);
            return false;
        }
        header.is_transactional() && self.open.contains(&header.producer_id)
    }
}
