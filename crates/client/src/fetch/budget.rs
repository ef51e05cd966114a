//! The one hard limit on a consumer's memory, `queued.max.messages.kbytes`, and the buffers that responses are read into.
//!
//! Three things count: what fetches under way may bring, responses that somebody still holds a slice of, and batches
//! that were decompressed and not dropped yet. A buffer comes back when its last slice is dropped, and is used again:
//! memory that is warm in the cache costs a fraction of fresh pages.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bytes::Bytes;
use ottla_wire::{Buffer, BufferHome};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::net::Room;

/// Responses up to this size get memory of just their size; it is not worth keeping.
const EXACT_BYTES_MAX: usize = 64 << 10;

/// What one consumer may have in memory.
#[derive(Debug)]
pub(crate) struct Budget {
    max: usize,
    used: AtomicUsize,
    /// How many buffers and decompressed batches there are.
    held: AtomicUsize,
    shelf: Mutex<Shelf>,
    /// Told when something comes back.
    pub(crate) freed: Arc<Notify>,
}

impl Budget {
    pub(crate) fn new(max: usize, freed: Arc<Notify>) -> Arc<Self> {
        let (used, held) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Arc::new(Self { max, used, held, shelf: Mutex::default(), freed })
    }

    pub(crate) fn max(&self) -> usize {
        self.max
    }

    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// What is left.
    pub(crate) fn room(&self) -> usize {
        self.max.saturating_sub(self.used())
    }

    /// How many responses and decompressed batches are in memory.
    pub(crate) fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// Sets aside what a fetch may bring; the fetcher knows that there is room, or that it must go on without.
    pub(crate) fn reserve(self: &Arc<Self>, bytes: usize) -> Reservation {
        let used = self.used.fetch_add(bytes, Ordering::Relaxed) + bytes;
        // What is in use and what is kept for the next responses stay below the bound together.
        self.shelf().shrink(self.max.saturating_sub(used));
        Reservation { budget: self.clone(), left: AtomicUsize::new(bytes), begun_at: OnceLock::new() }
    }

    /// Counts what the polling thread has decompressed, until it is dropped.
    pub(crate) fn hold(self: &Arc<Self>, bytes: Vec<u8>) -> Bytes {
        let used = self.used.fetch_add(bytes.capacity(), Ordering::Relaxed) + bytes.capacity();
        self.held.fetch_add(1, Ordering::Relaxed);
        self.shelf().shrink(self.max.saturating_sub(used));
        Bytes::from_owner(Held { bytes, budget: self.clone() })
    }

    fn give_back(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
        self.freed.notify_one();
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BufferHome for Budget {
    fn take_back(&self, bytes: Vec<u8>) {
        let size = bytes.len();
        let used = self.used.fetch_sub(size, Ordering::Relaxed) - size;
        self.held.fetch_sub(1, Ordering::Relaxed);
        if size > EXACT_BYTES_MAX {
            self.shelf().keep(bytes, self.max.saturating_sub(used));
        }
        self.freed.notify_one();
    }
}

/// What a fetch under way may bring. What it did not bring is given back when this is dropped.
#[derive(Debug)]
pub(crate) struct Reservation {
    budget: Arc<Budget>,
    left: AtomicUsize,
    begun_at: OnceLock<Instant>,
}

impl Reservation {
    /// Whether the answer has begun to come.
    pub(crate) fn is_begun(&self) -> bool {
        self.begun_at.get().is_some()
    }

    /// When the answer began to come.
    pub(crate) fn begun_at(&self) -> Option<Instant> {
        self.begun_at.get().copied()
    }
}

impl Room for Reservation {
    fn buffer(&self, bytes: usize) -> Buffer {
        self.begun_at.get_or_init(Instant::now);
        let left = self.left.swap(0, Ordering::Relaxed);
        // Somewhat larger than needed if that was set aside anyway: responses differ, and the next may use it too.
        let roomy = if bytes > EXACT_BYTES_MAX { bytes.next_multiple_of(EXACT_BYTES_MAX) } else { bytes };
        let size = roomy.min(left).max(bytes);
        let kept = if bytes > EXACT_BYTES_MAX {
            self.budget.shelf().take(bytes, (bytes + bytes / 2).min(left).max(bytes))
        } else {
            None
        };
        let buffer = kept.unwrap_or_else(|| vec![0; size]);
        let size = buffer.len();
        let (more, less) = (size.saturating_sub(left), left.saturating_sub(size));
        self.budget.used.fetch_add(more, Ordering::Relaxed);
        self.budget.held.fetch_add(1, Ordering::Relaxed);
        if less > 0 {
            self.budget.give_back(less);
        }
        Buffer::with_home(buffer, self.budget.clone())
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let left = std::mem::take(self.left.get_mut());
        if left > 0 {
            self.budget.give_back(left);
        }
    }
}

/// Decompressed records that somebody holds.
struct Held {
    bytes: Vec<u8>,
    budget: Arc<Budget>,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.budget.held.fetch_sub(1, Ordering::Relaxed);
        self.budget.give_back(self.bytes.capacity());
    }
}

/// Buffers for the next responses, by size; of one size the last that came back is used first.
#[derive(Debug, Default)]
struct Shelf {
    sizes: BTreeMap<usize, Vec<Vec<u8>>>,
    bytes: usize,
}

impl Shelf {
    fn take(&mut self, least: usize, most: usize) -> Option<Vec<u8>> {
        let size = *self.sizes.range(least..=most).next()?.0;
        let kept = self.sizes.get_mut(&size)?;
        let buffer = kept.pop();
        if kept.is_empty() {
            self.sizes.remove(&size);
        }
        self.bytes -= buffer.as_ref().map_or(0, Vec::len);
        buffer
    }

    /// Keeps a buffer, and as many others as then fit into `max`.
    fn keep(&mut self, buffer: Vec<u8>, max: usize) {
        self.bytes += buffer.len();
        self.sizes.entry(buffer.len()).or_default().push(buffer);
        self.shrink(max);
    }

    /// Drops buffers, the largest first, until what is kept is at most `max`.
    fn shrink(&mut self, max: usize) {
        while self.bytes > max {
            let Some(mut largest) = self.sizes.last_entry() else { return };
            self.bytes -= largest.get_mut().pop().map_or(0, |buffer| buffer.len());
            if largest.get().is_empty() {
                largest.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reservation_becomes_a_buffer_and_the_rest_comes_back() {
        let budget = Budget::new(4 << 20, Arc::default());
        let reserved = budget.reserve(1 << 20);
        assert_eq!(budget.used(), 1 << 20);
        let answer = reserved.buffer(100_000).freeze(100_000);
        drop(reserved);
        assert_eq!((budget.used(), budget.held()), (128 << 10, 1), "what came, rounded");
        let slice = answer.slice(..10);
        drop(answer);
        assert_eq!(budget.held(), 1, "a slice holds it all");
        drop(slice);
        assert_eq!((budget.used(), budget.held(), budget.shelf().bytes), (0, 0, 128 << 10));
        let reserved = budget.reserve(1 << 20);
        assert_eq!(reserved.buffer(90_000).len(), 128 << 10, "the same buffer again");
        drop(reserved);
        let all = budget.reserve(4 << 20);
        assert_eq!((budget.room(), budget.shelf().bytes), (0, 0), "what is kept makes room");
        assert_eq!(all.buffer(5 << 20).len(), 5 << 20, "a batch that is too large still comes");
    }

    #[test]
    fn what_was_decompressed_counts_until_it_is_dropped() {
        let budget = Budget::new(1 << 20, Arc::default());
        let bytes = budget.hold(vec![0; 2 << 20]);
        assert_eq!((budget.used(), budget.room()), (2 << 20, 0));
        drop(bytes);
        assert_eq!((budget.used(), budget.held()), (0, 0));
    }
}
