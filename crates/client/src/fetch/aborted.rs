//! Leaving out the records of aborted transactions (`isolation.level=read_committed`).

use std::collections::BTreeSet;

use bytes::Bytes;
use ottla_wire::{BatchHeader, Records};

/// Control records whose key says "abort"; 1 is commit.
const ABORT: i16 = 0;

/// Which producers' records are aborted at the place reached so far.
#[derive(Debug)]
pub(crate) struct Aborted {
    /// First offset and producer id of aborted transactions, those to come.
    ahead: std::vec::IntoIter<(i64, i64)>,
    next: Option<(i64, i64)>,
    open: BTreeSet<i64>,
}

impl Aborted {
    /// From a response's list, sorted by offset.
    pub(crate) fn new(list: Vec<(i64, i64)>) -> Self {
        let mut ahead = list.into_iter();
        let next = ahead.next();
        Self { ahead, next, open: BTreeSet::new() }
    }

    /// Whether the records of this batch belong to an aborted transaction. Batches are shown in order.
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

/// The type in a control batch's only record: its key is a version and a type, both i16.
fn marker(batch: &Bytes) -> Option<i16> {
    let records = Records::of_batch(batch, 1 << 10).ok()?;
    let key = records.iter().next()?.ok()?.key?;
    Some(i16::from_be_bytes(*key.get(2..)?.first_chunk::<2>()?))
}
