//! The producer's memory: the budget of unacknowledged records, and the buffers of their batches.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ottla_wire::{Buffer, BufferHome};
use tokio::sync::Notify;

use super::queue::{Push, PushRefused};

/// The smallest buffer. A lone small record in each of very many partitions must not cost more.
const BUFFER_BYTES_MIN: usize = 1024;
/// The ratio of each buffer size to the next smaller one. The largest size is that of the largest batch.
const GROWTH: usize = 8;

/// Records are booked in chunks: the remaining records divided by this number. The limit is met exactly, and chunks are
/// small enough for thousands of partitions to have one each.
const CHUNKS: usize = 16_384;

/// The first limit of a producer that outruns the brokers: small enough to stay in the processor's caches.
const PACE_BYTES_MIN: usize = 2 << 20;
/// The same limit in largest batches: one that is filled, one that is full, and those in flight.
const PACE_BATCHES_MIN: usize = 4;

/// The budget of bytes and records that wait for an acknowledgement. Bytes are the capacity of buffers.
#[derive(Debug)]
pub(crate) struct Memory {
    used: AtomicUsize,
    max: usize,
    pace: Pace,
    records: AtomicUsize,
    /// 0 means no limit.
    records_max: usize,
    shelves: Mutex<Shelves>,
    /// `true` if a push was refused since the engine's last look; nothing lingers then.
    pressed: AtomicBool,
    /// Queues may have booked records that they do not hold.
    has_credit: AtomicBool,
    /// Notified when memory is released.
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
            has_credit: AtomicBool::new(false),
            freed: Notify::new(),
        })
    }

    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    pub(crate) fn max(&self) -> usize {
        self.max
    }

    /// `true` if the budget is all but used up.
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

    /// `true` if a push was refused since the last call.
    pub(crate) fn take_pressed(&self) -> bool {
        self.pressed.load(Ordering::Relaxed) && self.pressed.swap(false, Ordering::Relaxed)
    }

    /// A buffer of at least `need` bytes, booked by its size.
    pub(crate) fn buffer(self: &Arc<Self>, need: usize, how: Push) -> Result<Buffer, PushRefused> {
        let Some((size, kept)) = self.shelves().take(need) else {
            self.reserve(need, how)?;
            return Ok(Buffer::of_bytes(need));
        };
        // A large buffer for a batch that may stay small is a luxury. With half of the memory in use, the batch gets the
        // size that it needs.
        let size = if self.used() + size > self.max / 2 && kept.is_none() {
            need.next_power_of_two().clamp(BUFFER_BYTES_MIN, size)
        } else {
            size
        };
        self.reserve(size, how)?;
        let bytes = kept.unwrap_or_else(|| vec![0; size]);
        Ok(Buffer::with_home(bytes, self.clone()))
    }

    /// Books `bytes` if the budget allows it.
    pub(crate) fn reserve(&self, bytes: usize, how: Push) -> Result<(), PushRefused> {
        if bytes == 0 {
            return Ok(());
        }
        let max = if how == Push::Patient { self.pace.limit().unwrap_or(self.max) } else { self.max };
        let booked = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            // A single batch is always allowed, however small the budget.
            let fits = used == 0 || used + bytes <= max || how == Push::Forced;
            fits.then_some(used + bytes)
        });
        let Ok(before) = booked else {
            if how == Push::Patient {
                self.pace.begin();
            }
            self.pressed.store(true, Ordering::Relaxed);
            return Err(PushRefused::Full);
        };
        // Memory in use and buffers kept for later batches stay below the budget together.
        self.shelves().shrink(self.max.saturating_sub(before + bytes));
        Ok(())
    }

    /// Books a chunk of records, at least one. The caller uses them up before the next call.
    pub(crate) fn reserve_records(&self, how: Push) -> Result<u32, PushRefused> {
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
            return Err(PushRefused::Full);
        }
        if chunk > 1 {
            self.note_credit();
        }
        Ok(chunk as u32)
    }

    /// A queue has booked records that it may not get.
    pub(crate) fn note_credit(&self) {
        self.has_credit.store(true, Ordering::Relaxed);
    }

    /// `true` after [`note_credit`](Self::note_credit), once.
    pub(crate) fn take_has_credit(&self) -> bool {
        self.has_credit.load(Ordering::Relaxed) && self.has_credit.swap(false, Ordering::Relaxed)
    }

    /// Books one record beyond any limit.
    pub(crate) fn reserve_record(&self) {
        if self.records_max > 0 {
            self.records.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Releases memory and records that a batch has booked.
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

    /// Marks the caller as waiting for memory until the result is dropped.
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

/// Holds back callers that wait for room, so that they write into memory that is in the processor's caches.
///
/// If the brokers are slower than the application, every batch would use memory that was not touched for a long time.
/// Filling the whole budget again and again has this cost and no benefit. So callers that can wait do so earlier. The
/// limit doubles whenever all of it was sent before they return, and disappears when no caller waits.
#[derive(Debug)]
struct Pace {
    /// 0 means no limit.
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

    /// `true` if waiting callers may continue with `used` bytes in use. Only the engine releases bytes, so no other thread
    /// changes the limit meanwhile, except to begin it.
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
    /// Memory that was touched once is kept: returning it to the system would cost page faults later.
    fn take_back(&self, bytes: Vec<u8>) {
        self.shelves().keep(bytes, self.max.saturating_sub(self.used()));
    }
}

/// Buffers for later batches, by size.
#[derive(Debug)]
struct Shelves {
    /// The sizes and the buffers of each, the smallest first.
    sizes: Vec<(usize, Vec<Vec<u8>>)>,
    bytes: usize,
}

impl Shelves {
    fn new(largest: usize) -> Self {
        let smaller = std::iter::successors(Some(BUFFER_BYTES_MIN), |size| Some(size * GROWTH));
        // The second largest size must be worth having.
        let smaller = smaller.take_while(|size| size * 2 <= largest);
        Self { sizes: smaller.chain([largest]).map(|size| (size, Vec::new())).collect(), bytes: 0 }
    }

    /// The size for `need` bytes with a kept buffer of it; `None` above the largest size.
    fn take(&mut self, need: usize) -> Option<(usize, Option<Vec<u8>>)> {
        let (size, kept) = self.sizes.iter_mut().find(|(size, _)| *size >= need)?;
        let buffer = kept.pop();
        self.bytes -= buffer.as_ref().map_or(0, Vec::len);
        Some((*size, buffer))
    }

    /// Keeps a buffer if all kept buffers stay within `max`.
    fn keep(&mut self, buffer: Vec<u8>, max: usize) {
        if self.bytes + buffer.len() > max {
            return;
        }
        if let Some((_, kept)) = self.sizes.iter_mut().find(|(size, _)| *size == buffer.len()) {
            self.bytes += buffer.len();
            kept.push(buffer);
        }
    }

    /// Drops buffers until the kept ones are within `max`.
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
        assert_eq!(memory.reserve(1, Push::Normal), Err(PushRefused::Full));
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
