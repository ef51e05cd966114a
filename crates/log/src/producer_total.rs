//! The number of producers, and of guards of transactions, that all logs of a broker remember together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The memory of one remembered producer, about: its last five batches, and its place in the table.
const PRODUCER_BYTES: usize = 256;
/// The producers that a log keeps also when all logs together have too many.
const KEPT_MIN: usize = 64;

/// A limit for the producers of several logs together: a client can make up as many ids as it likes.
///
/// A log that gets another producer while the total is reached forgets its own longest idle ones, down to 64. The guards of transactions
/// count like producers: a log that needs another one forgets its own oldest ones, down to 64, or refuses it if all of them are young.
/// The default has no limit.
#[derive(Clone, Debug)]
pub struct ProducerTotal {
    count: Arc<AtomicUsize>,
    max: usize,
}

impl ProducerTotal {
    /// A limit of this many bytes, at about 256 for each producer.
    pub fn of_bytes(bytes: usize) -> Self {
        Self { count: Arc::default(), max: bytes / PRODUCER_BYTES }
    }

    /// The producers and the guards of transactions that are remembered now.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }
}

impl Default for ProducerTotal {
    fn default() -> Self {
        Self { count: Arc::default(), max: usize::MAX }
    }
}

impl PartialEq for ProducerTotal {
    /// Two are equal if they count together.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.count, &other.count) || (self.max == usize::MAX && other.max == usize::MAX)
    }
}

/// The part of one log in the total: its producers, or its guards.
#[derive(Debug, Default)]
pub(crate) struct ProducerCount {
    total: ProducerTotal,
    own: usize,
}

impl ProducerCount {
    pub(crate) fn new(total: ProducerTotal) -> Self {
        Self { total, own: 0 }
    }

    /// The most that the log may have now, of at most `max`.
    #[inline]
    pub(crate) fn max(&self, max: usize) -> usize {
        if self.total.count() < self.total.max { max } else { max.min(self.own.max(KEPT_MIN)) }
    }

    /// Counts those that the log has now.
    #[inline]
    pub(crate) fn set(&mut self, own: usize) {
        if own > self.own {
            self.total.count.fetch_add(own - self.own, Ordering::Relaxed);
        } else if own < self.own {
            self.total.count.fetch_sub(self.own - own, Ordering::Relaxed);
        }
        self.own = own;
    }
}

impl Drop for ProducerCount {
    fn drop(&mut self) {
        self.set(0);
    }
}
