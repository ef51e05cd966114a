//! The hard limit on a consumer's memory, `queued.max.messages.kbytes`, and the buffers of its responses.
//!
//! Three things count: the reservations of fetches in flight, responses that have slices in use, and decompressed
//! batches that were not dropped yet. A buffer returns when its last slice is dropped, and is used again: memory that is
//! in the cache costs a fraction of fresh pages.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bytes::Bytes;
use ottla_wire::{Buffer, BufferHome};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::net::ResponseMemory;

/// Responses up to this size get a buffer of exactly their size, which is not kept for later ones.
const EXACT_BYTES_MAX: usize = 64 << 10;

/// The memory of one consumer.
#[derive(Debug)]
pub(crate) struct Budget {
    max: usize,
    used: AtomicUsize,
    /// The number of buffers and decompressed batches.
    held: AtomicUsize,
    pool: Mutex<BufferPool>,
    /// Notified when memory is released.
    pub(crate) freed: Arc<Notify>,
}

impl Budget {
    pub(crate) fn new(max: usize, freed: Arc<Notify>) -> Arc<Self> {
        let (used, held) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Arc::new(Self { max, used, held, pool: Mutex::default(), freed })
    }

    pub(crate) fn max(&self) -> usize {
        self.max
    }

    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// The bytes that are free.
    pub(crate) fn room(&self) -> usize {
        self.max.saturating_sub(self.used())
    }

    /// The number of responses and decompressed batches in memory.
    pub(crate) fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// Reserves the bytes of a response. The fetcher has checked that there is room, or needs the response anyway.
    pub(crate) fn reserve(self: &Arc<Self>, bytes: usize) -> Reservation {
        let used = self.used.fetch_add(bytes, Ordering::Relaxed) + bytes;
        // Used memory and kept buffers stay below the limit together.
        self.pool().shrink(self.max.saturating_sub(used));
        Reservation { budget: self.clone(), left: AtomicUsize::new(bytes), begun_at: OnceLock::new() }
    }

    /// Counts a decompressed batch of the polling thread until it is dropped.
    pub(crate) fn hold(self: &Arc<Self>, bytes: Vec<u8>) -> Bytes {
        let used = self.used.fetch_add(bytes.capacity(), Ordering::Relaxed) + bytes.capacity();
        self.held.fetch_add(1, Ordering::Relaxed);
        self.pool().shrink(self.max.saturating_sub(used));
        Bytes::from_owner(DecompressedBytes { bytes, budget: self.clone() })
    }

    fn release(&self, bytes: usize) {
        let used = self.used.fetch_sub(bytes, Ordering::Relaxed);
        assert!(used >= bytes, "{bytes} bytes released of {used} in use");
        self.freed.notify_one();
    }

    fn pool(&self) -> MutexGuard<'_, BufferPool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BufferHome for Budget {
    fn take_back(&self, bytes: Vec<u8>) {
        let size = bytes.len();
        let before = self.used.fetch_sub(size, Ordering::Relaxed);
        assert!(before >= size, "a buffer of {size} bytes returned of {before} in use");
        let used = before - size;
        self.held.fetch_sub(1, Ordering::Relaxed);
        if size > EXACT_BYTES_MAX {
            self.pool().keep(bytes, self.max.saturating_sub(used));
        }
        self.freed.notify_one();
    }
}

/// The memory for the response to a fetch in flight. Dropping it releases the unused rest.
#[derive(Debug)]
pub(crate) struct Reservation {
    budget: Arc<Budget>,
    left: AtomicUsize,
    begun_at: OnceLock<Instant>,
}

impl Reservation {
    /// Returns `true` if the first bytes of the response have arrived.
    pub(crate) fn is_begun(&self) -> bool {
        self.begun_at.get().is_some()
    }

    /// When the first bytes of the response arrived.
    pub(crate) fn begun_at(&self) -> Option<Instant> {
        self.begun_at.get().copied()
    }
}

impl ResponseMemory for Reservation {
    fn buffer(&self, bytes: usize) -> Buffer {
        self.begun_at.get_or_init(Instant::now);
        let left = self.left.swap(0, Ordering::Relaxed);
        // Rounded up within the reservation: the next response, which may be larger, can use the same buffer.
        let roomy = if bytes > EXACT_BYTES_MAX { bytes.next_multiple_of(EXACT_BYTES_MAX) } else { bytes };
        let size = roomy.min(left).max(bytes);
        let kept = if bytes > EXACT_BYTES_MAX {
            self.budget.pool().take(bytes, (bytes + bytes / 2).min(left).max(bytes))
        } else {
            None
        };
        let buffer = kept.unwrap_or_else(|| vec![0; size]);
        let size = buffer.len();
        let (more, less) = (size.saturating_sub(left), left.saturating_sub(size));
        self.budget.used.fetch_add(more, Ordering::Relaxed);
        self.budget.held.fetch_add(1, Ordering::Relaxed);
        if less > 0 {
            self.budget.release(less);
        }
        Buffer::with_home(buffer, self.budget.clone())
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let left = std::mem::take(self.left.get_mut());
        if left > 0 {
            self.budget.release(left);
        }
    }
}

/// Decompressed records in use.
struct DecompressedBytes {
    bytes: Vec<u8>,
    budget: Arc<Budget>,
}

impl AsRef<[u8]> for DecompressedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for DecompressedBytes {
    fn drop(&mut self) {
        self.budget.held.fetch_sub(1, Ordering::Relaxed);
        self.budget.release(self.bytes.capacity());
    }
}

/// Buffers for later responses, by size. Of one size, the last one that returned is used first.
#[derive(Debug, Default)]
struct BufferPool {
    sizes: BTreeMap<usize, Vec<Vec<u8>>>,
    bytes: usize,
}

impl BufferPool {
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

    /// Keeps a buffer, and drops others until all fit into `max`.
    fn keep(&mut self, buffer: Vec<u8>, max: usize) {
        self.bytes += buffer.len();
        self.sizes.entry(buffer.len()).or_default().push(buffer);
        self.shrink(max);
    }

    /// Drops buffers, the largest first, until the rest fits into `max`.
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
        assert_eq!((budget.used(), budget.held()), (128 << 10, 1), "the response's size, rounded");
        let slice = answer.slice(..10);
        drop(answer);
        assert_eq!(budget.held(), 1, "a slice keeps the whole buffer");
        drop(slice);
        assert_eq!((budget.used(), budget.held(), budget.pool().bytes), (0, 0, 128 << 10));
        let reserved = budget.reserve(1 << 20);
        assert_eq!(reserved.buffer(90_000).len(), 128 << 10, "the same buffer again");
        drop(reserved);
        let all = budget.reserve(4 << 20);
        assert_eq!((budget.room(), budget.pool().bytes), (0, 0), "kept buffers make room");
        assert_eq!(all.buffer(5 << 20).len(), 5 << 20, "a batch that is too large still comes");
    }

    #[test]
    fn decompressed_bytes_count_until_they_are_dropped() {
        let budget = Budget::new(1 << 20, Arc::default());
        let bytes = budget.hold(vec![0; 2 << 20]);
        assert_eq!((budget.used(), budget.room()), (2 << 20, 0));
        drop(bytes);
        assert_eq!((budget.used(), budget.held()), (0, 0));
    }
}
