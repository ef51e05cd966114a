//! Filters the records of aborted transactions (`isolation.level=read_committed`).

use std::collections::BTreeSet;

use bytes::Bytes;
use ottla_wire::{BatchHeader, Records};

/// The type of a control record that aborts a transaction; 1 is commit.
const ABORT: i16 = 0;

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
    pub(crate) fn covers(&mut self, header: &BatchHeader, batch: &Bytes) -> bool {
        while let Some((first_offset, producer_id)) = self.next
            && first_offset <= header.last_offset()
        {
            self.open.insert(producer_id);
            self.next = self.ahead.next();
        }
        if header.is_control() {
            if marker(batch) == Some(ABORT) {
                self.open.remove(&header.producer_id);
            }
            return false;
        }
        header.is_transactional() && self.open.contains(&header.producer_id)
    }
}

/// The type of a control batch's only record. Its key is a version and a type, both i16.
fn marker(batch: &Bytes) -> Option<i16> {
    let records = Records::of_batch(batch, 1 << 10).ok()?;
    let key = records.iter().next()?.ok()?.key?;
    Some(i16::from_be_bytes(*key.get(2..)?.first_chunk::<2>()?))
}
