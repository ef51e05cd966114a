//! The producer's memory: what unacknowledged records may take, and the buffers they take it in.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ottla_wire::{Buffer, BufferHome};
use tokio::sync::Notify;

use super::queue::{Push, Refused};

/// The smallest buffer: a lone small record in each of very many partitions must not cost more.
const BUFFER_BYTES_MIN: usize = 1024;
/// Each size of buffer is so many times the one below; the largest is that of the largest batch.
const GROWTH: usize = 8;

/// Records are booked in chunks: one of this many parts of what is left, so that the limit is met exactly, and
/// small enough for thousands of partitions to hold one each.
const CHUNKS: usize = 16_384;

/// What senders that outrun the brokers may fill at first: little enough to stay in the processor's caches.
const PACE_BYTES_MIN: usize = 2 << 20;
/// And so many of the largest batches: one that is filled, one that is full, those that are on their way.
const PACE_BATCHES_MIN: usize = 4;

/// The bounds on bytes and records that wait for an acknowledgement. Bytes are capacity, not just what is written.
#[derive(Debug)]
pub(crate) struct Memory {
    used: AtomicUsize,
    max: usize,
    pace: Pace,
    records: AtomicUsize,
    /// 0 is no limit.
    records_max: usize,
    shelves: Mutex<Shelves>,
    /// Somebody was refused since the engine last looked: nothing lingers then.
    pressed: AtomicBool,
    /// Told when room comes back.
    pub(crate) freed: Notify,
}

impl Memory {
    pub(crate) fn new(max: usize, records_max: usize, batch_bytes_max: usize) -> Arc<Self> {
        Arc::new(Self {
            used: AtomicUsize::new(0),
            max,
            pace: Pace::new(max, batch_bytes_max),
            records: AtomicUsize::new(0),
            records_max,
            shelves: Mutex::new(Shelves::new(batch_bytes_max)),
            pressed: AtomicBool::new(false),
            freed: Notify::new(),
        })
    }

    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    pub(crate) fn max(&self) -> usize {
        self.max
    }

    /// Whether hardly anything more is taken.
    pub(crate) fn is_full(&self) -> bool {
        let bytes = self.used() + BUFFER_BYTES_MIN > self.max;
        bytes || (self.records_max > 0 && self.records() >= self.records_max)
    }

    pub(crate) fn records(&self) -> usize {
        self.records.load(Ordering::Relaxed)
    }

    pub(crate) fn records_max(&self) -> usize {
        self.records_max
    }

    /// Whether somebody was refused since the last call.
    pub(crate) fn take_pressed(&self) -> bool {
        self.pressed.load(Ordering::Relaxed) && self.pressed.swap(false, Ordering::Relaxed)
    }

    /// A buffer of at least `need` bytes, booked by its size.
    pub(crate) fn buffer(self: &Arc<Self>, need: usize, how: Push) -> Result<Buffer, Refused> {
        let Some((size, kept)) = self.shelves().take(need) else {
            self.reserve(need, how)?;
            return Ok(Buffer::of_bytes(need));
        };
        // A large one for a batch that may stay smaller is a luxury: with half of the memory in use, it gets what it
        // needs.
        let size = if self.used() + size > self.max / 2 && kept.is_none() {
            need.next_power_of_two().clamp(BUFFER_BYTES_MIN, size)
        } else {
            size
        };
        self.reserve(size, how)?;
        let bytes = kept.unwrap_or_else(|| vec![0; size]);
        Ok(Buffer::with_home(bytes, self.clone()))
    }

    /// Books `bytes`, if there is room.
    pub(crate) fn reserve(&self, bytes: usize, how: Push) -> Result<(), Refused> {
        if bytes == 0 {
            return Ok(());
        }
        let max = if how == Push::Patient { self.pace.limit().unwrap_or(self.max) } else { self.max };
        let booked = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            // A single batch may always exist, however small the budget.
            let fits = used == 0 || used + bytes <= max || how == Push::Forced;
            fits.then_some(used + bytes)
        });
        let Ok(before) = booked else {
            if how == Push::Patient {
                self.pace.begin();
            }
            self.pressed.store(true, Ordering::Relaxed);
            return Err(Refused::Full);
        };
        // What is in use and what is kept for the next batches stay below the bound together.
        self.shelves().shrink(self.max.saturating_sub(before + bytes));
        Ok(())
    }

    /// Books some records, at least one; a caller uses them up before it asks again.
    pub(crate) fn reserve_records(&self, how: Push) -> Result<u32, Refused> {
        if self.records_max == 0 {
            return Ok(u32::MAX);
        }
        let mut chunk = 1;
        let booked = self.records.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |records| {
            let left = self.records_max.saturating_sub(records);
            chunk = (left / CHUNKS).max(1);
            (left > 0 || how == Push::Forced).then_some(records + chunk)
        });
        if booked.is_err() {
            self.pressed.store(true, Ordering::Relaxed);
            return Err(Refused::Full);
        }
        Ok(chunk as u32)
    }

    /// Books one record, whatever the limit.
    pub(crate) fn reserve_record(&self) {
        if self.records_max > 0 {
            self.records.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Gives back what a batch had booked.
    pub(crate) fn release(&self, bytes: usize, records: usize) {
        let records = if self.records_max > 0 { records } else { 0 };
        if bytes > 0 || records > 0 {
            let used = self.used.fetch_sub(bytes, Ordering::Relaxed) - bytes;
            self.records.fetch_sub(records, Ordering::Relaxed);
            if self.pace.lets_go(used) {
                self.freed.notify_waiters();
            }
        }
    }

    /// A sender waits for room until what it gets is dropped.
    pub(crate) fn wait(&self) -> impl Drop {
        self.pace.waiting.fetch_add(1, Ordering::Relaxed);
        Waiting(&self.pace.waiting)
    }

    fn shelves(&self) -> MutexGuard<'_, Shelves> {
        self.shelves.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Holds back those that wait for room anyway, so that they go on writing into memory that is in the caches.
///
/// Once the buffer is full of what the brokers are too slow for, filling it to the brim again and again gains nothing
/// and costs much: every batch would be written to, and sent from, memory that was not touched for a long time. So
/// senders that can wait do it earlier. The limit doubles whenever all of it was sent before they came back, and is gone
/// when nobody waits any more.
#[derive(Debug)]
struct Pace {
    /// 0 is none.
    limit: AtomicUsize,
    first: usize,
    max: usize,
    waiting: AtomicUsize,
}

impl Pace {
    fn new(max: usize, batch_bytes_max: usize) -> Self {
        let first = PACE_BYTES_MIN.max(batch_bytes_max.saturating_mul(PACE_BATCHES_MIN)).min(max);
        Self { limit: AtomicUsize::new(0), first, max, waiting: AtomicUsize::new(0) }
    }

    fn limit(&self) -> Option<usize> {
        Some(self.limit.load(Ordering::Relaxed)).filter(|limit| *limit > 0)
    }

    fn begin(&self) {
        if self.limit.load(Ordering::Relaxed) == 0 {
            self.limit.store(self.first, Ordering::Relaxed);
        }
    }

    /// Whether those that wait may go on, now that so many bytes are in use. Only the engine gives bytes back, so
    /// nobody else changes the limit meanwhile but to begin it.
    fn lets_go(&self, used: usize) -> bool {
        let Some(limit) = self.limit() else { return true };
        if used <= limit / 8 {
            let starved = self.waiting.load(Ordering::Relaxed) > 0;
            let next = if starved { (limit * 2).min(self.max) } else { 0 };
            self.limit.store(next, Ordering::Relaxed);
        }
        used <= limit / 4 * 3
    }
}

impl BufferHome for Memory {
    /// Memory that was touched once is not given back to the system only to be faulted in again.
    fn take_back(&self, bytes: Vec<u8>) {
        self.shelves().keep(bytes, self.max.saturating_sub(self.used()));
    }
}

/// Buffers for the next batches, by size.
#[derive(Debug)]
struct Shelves {
    /// Sizes and what is kept of each, the smallest first.
    sizes: Vec<(usize, Vec<Vec<u8>>)>,
    bytes: usize,
}

impl Shelves {
    fn new(largest: usize) -> Self {
        let smaller = std::iter::successors(Some(BUFFER_BYTES_MIN), |size| Some(size * GROWTH));
        // The largest but one must be worth having.
        let smaller = smaller.take_while(|size| size * 2 <= largest);
        Self { sizes: smaller.chain([largest]).map(|size| (size, Vec::new())).collect(), bytes: 0 }
    }

    /// The size for `need` bytes and a kept buffer of it; nothing when it is above the largest.
    fn take(&mut self, need: usize) -> Option<(usize, Option<Vec<u8>>)> {
        let (size, kept) = self.sizes.iter_mut().find(|(size, _)| *size >= need)?;
        let buffer = kept.pop();
        self.bytes -= buffer.as_ref().map_or(0, Vec::len);
        Some((*size, buffer))
    }

    /// Keeps a buffer if all that is kept then stays within `max`.
    fn keep(&mut self, buffer: Vec<u8>, max: usize) {
        if self.bytes + buffer.len() > max {
            return;
        }
        if let Some((_, kept)) = self.sizes.iter_mut().find(|(size, _)| *size == buffer.len()) {
            self.bytes += buffer.len();
            kept.push(buffer);
        }
    }

    /// Drops buffers until what is kept is at most `max`.
    fn shrink(&mut self, max: usize) {
        while self.bytes > max {
            let Some(buffer) = self.sizes.iter_mut().rev().find_map(|(_, kept)| kept.pop()) else { return };
            self.bytes -= buffer.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_kept_within_the_bound_and_used_again() {
        let memory = Memory::new(4 << 20, 0, 1 << 20);
        let buffer = memory.buffer(600_000, Push::Normal).expect("room");
        assert_eq!((buffer.len(), memory.used()), (1 << 20, 1 << 20), "a large batch gets a whole buffer");
        memory.release(buffer.len(), 0);
        drop(buffer);
        assert_eq!(memory.shelves().bytes, 1 << 20);
        assert_eq!(memory.buffer(100, Push::Normal).expect("room").len(), BUFFER_BYTES_MIN);
        memory.reserve((4 << 20) - BUFFER_BYTES_MIN, Push::Normal).expect("just enough");
        assert_eq!(memory.shelves().bytes, 0, "what is kept makes room for what is needed");
        assert_eq!(memory.reserve(1, Push::Normal), Err(Refused::Full));
        assert!(memory.take_pressed());
        assert!(!memory.take_pressed());
    }

    #[test]
    fn who_waits_is_held_back_until_the_broker_has_caught_up() {
        let memory = Memory::new(32 << 20, 0, 1 << 18);
        let fill = |how| {
            let mut bytes = 0;
            while memory.reserve(1 << 18, how).is_ok() {
                bytes += 1 << 18;
            }
            bytes
        };
        assert_eq!(fill(Push::Patient), 32 << 20, "a burst gets all there is");
        let waiting = memory.wait();
        memory.release(31 << 20, 0);
        assert_eq!(fill(Push::Patient), 1 << 20, "then two MiB in all");
        assert_eq!(fill(Push::Normal), 30 << 20, "who does not wait may use the rest");
        memory.release(32 << 20, 0);
        assert_eq!(fill(Push::Patient), 4 << 20, "all was sent before more came: twice as much");
        drop(waiting);
        memory.release(4 << 20, 0);
        assert_eq!(fill(Push::Patient), 32 << 20, "nobody waited any more");
    }

    #[test]
    fn the_limit_of_records_is_met_exactly() {
        let memory = Memory::new(1 << 20, 50_000, 1 << 10);
        let mut booked = 0;
        while let Ok(chunk) = memory.reserve_records(Push::Normal) {
            booked += chunk;
        }
        assert_eq!(booked, 50_000);
        memory.release(0, 1);
        assert_eq!(memory.reserve_records(Push::Normal), Ok(1));
    }
}
