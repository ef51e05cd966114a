//! The last small batches of a shared log, apart from the log's own lock.
//!
//! Appending holds the log's lock for a write into the page cache, and a writer that goes on at once takes it again:
//! a reader at the tail would wait for it, and sleep. Here the lock is held for a few instructions by either side.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

/// Batches kept: what a reader may be behind before it has to go through the log.
const BATCHES_MAX: usize = 64;
/// Larger batches are not copied in here; they are worth the log's lock.
const BATCH_BYTES_MAX: usize = 4096;

/// Batches without gaps between them, the newest last.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    batches: Mutex<VecDeque<Recent>>,
}

#[derive(Debug)]
struct Recent {
    base_offset: i64,
    end_offset: i64,
    bytes: Bytes,
}

impl Ring {
    /// Adds the batches of one append, before they become visible.
    pub(crate) fn push(&self, base_offset: i64, end_offset: i64, bytes: &[u8]) {
        if bytes.len() > BATCH_BYTES_MAX {
            self.clear();
            return;
        }
        let bytes = Bytes::copy_from_slice(bytes);
        let mut batches = self.lock();
        let oldest = if batches.len() == BATCHES_MAX { batches.pop_front() } else { None };
        batches.push_back(Recent { base_offset, end_offset, bytes });
        drop(batches);
        // Freed outside of the lock.
        drop(oldest);
    }

    /// Appends to `into` what there is from the batch that holds `offset` on, below `visible`; whether there was any.
    pub(crate) fn read(&self, offset: i64, visible: i64, into: &mut VecDeque<Bytes>) -> bool {
        let batches = self.lock();
        let first = batches.partition_point(|batch| batch.end_offset <= offset);
        if batches.get(first).is_none_or(|batch| batch.base_offset > offset || batch.end_offset > visible) {
            return false;
        }
        into.extend(
            batches
                .range(first..)
                .take_while(|batch| batch.end_offset <= visible)
                .map(|batch| batch.bytes.clone()),
        );
        true
    }

    /// Forgets everything: the log was cut, or goes on with what is not kept here.
    pub(crate) fn clear(&self) {
        let gone = std::mem::take(&mut *self.lock());
        drop(gone);
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Recent>> {
        self.batches.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_has_no_gaps_and_is_visible() {
        let ring = Ring::default();
        for offset in 0..100 {
            ring.push(offset * 2, offset * 2 + 2, &[offset as u8]);
        }
        let read = |offset, visible| {
            let mut out = VecDeque::new();
            ring.read(offset, visible, &mut out).then(|| out.iter().map(|bytes| bytes[0]).collect::<Vec<_>>())
        };
        assert_eq!(read(195, 200), Some(vec![97, 98, 99]), "from the batch that holds the offset");
        assert_eq!(read(195, 198), Some(vec![97, 98]));
        assert_eq!(read(195, 195), None, "not visible");
        assert_eq!(read(71, 200), None, "too old");
        assert_eq!(read(200, 200), None, "not there yet");
        ring.push(200, 300, &[0; 5000]);
        assert_eq!(read(195, 300), None, "what came before a large batch goes with it");
    }
}
