//! The producer's memory: what unacknowledged records may take, and the buffers they take it in.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ottla_wire::{Buffer, BufferHome};
use tokio::sync::Notify;

use super::queue::{Push, Refused};

/// The first buffer of a batch: a lone small record in each of very many partitions must not cost more.
const BUFFER_BYTES_MIN: usize = 1024;
/// A batch that has outgrown this part of the largest size gets a buffer of the largest size at once.
const SMALL_PART: usize = 16;
/// Records are booked in chunks: one of this many parts of what is left, so that the limit is met exactly, and
/// small enough for thousands of partitions to hold one each.
const CHUNKS: usize = 16_384;

/// The bounds on bytes and records that wait for an acknowledgement. Bytes are capacity, not just what is written.
#[derive(Debug)]
pub(crate) struct Memory {
    used: AtomicUsize,
    max: usize,
    records: AtomicUsize,
    /// 0 is no limit.
    records_max: usize,
    /// Bytes of a buffer that holds the largest batch; only these are kept.
    buffer_bytes: usize,
    shelf: Mutex<Vec<Vec<u8>>>,
    /// Somebody was refused since the engine last looked: nothing lingers then.
    pressed: AtomicBool,
    /// Told when room comes back.
    pub(crate) freed: Notify,
}

impl Memory {
    pub(crate) fn new(max: usize, records_max: usize, buffer_bytes: usize) -> Arc<Self> {
        Arc::new(Self {
            used: AtomicUsize::new(0),
            max,
            records: AtomicUsize::new(0),
            records_max,
            buffer_bytes,
            shelf: Mutex::default(),
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
        let whole = self.buffer_bytes;
        if need > whole {
            self.reserve(need, how)?;
            return Ok(Buffer::of_bytes(need));
        }
        if need > whole / SMALL_PART {
            let shelved = if self.fits(whole) { self.shelf().pop() } else { None };
            let fresh = shelved.is_none() && self.used() + whole <= self.max / 2;
            if (shelved.is_some() || fresh) && self.reserve(whole, how).is_ok() {
                let bytes = shelved.unwrap_or_else(|| vec![0; whole]);
                return Ok(Buffer::with_home(bytes, self.clone()));
            }
        }
        let bytes = need.next_power_of_two().clamp(BUFFER_BYTES_MIN, whole.max(BUFFER_BYTES_MIN));
        self.reserve(bytes, how)?;
        Ok(Buffer::of_bytes(bytes))
    }

    /// Books `bytes`, if there is room.
    pub(crate) fn reserve(&self, bytes: usize, how: Push) -> Result<(), Refused> {
        if bytes == 0 {
            return Ok(());
        }
        let booked = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            // A single batch may always exist, however small the budget.
            let fits = used == 0 || used + bytes <= self.max || how == Push::Forced;
            fits.then_some(used + bytes)
        });
        let Ok(before) = booked else {
            self.pressed.store(true, Ordering::Relaxed);
            return Err(Refused::Full);
        };
        // What is in use and what is kept for the next batches stay below the bound together.
        let mut shelf = self.shelf();
        while before + bytes + shelf.len() * self.buffer_bytes > self.max && shelf.pop().is_some() {}
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
            self.used.fetch_sub(bytes, Ordering::Relaxed);
            self.records.fetch_sub(records, Ordering::Relaxed);
            self.freed.notify_waiters();
        }
    }

    fn fits(&self, bytes: usize) -> bool {
        self.used() + bytes <= self.max
    }

    fn shelf(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BufferHome for Memory {
    /// Memory that was touched once is not given back to the system only to be faulted in again.
    fn take_back(&self, bytes: Vec<u8>) {
        let mut shelf = self.shelf();
        if self.used() + (shelf.len() + 1) * self.buffer_bytes <= self.max {
            shelf.push(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_kept_within_the_bound_and_used_again() {
        let memory = Memory::new(4 << 20, 0, 1 << 20);
        let buffer = memory.buffer(1 << 19, Push::Normal).expect("room");
        assert_eq!((buffer.len(), memory.used()), (1 << 20, 1 << 20), "a large batch gets a whole buffer");
        memory.release(buffer.len(), 0);
        drop(buffer);
        assert_eq!(memory.shelf().len(), 1);
        assert_eq!(memory.buffer(100, Push::Normal).expect("room").len(), BUFFER_BYTES_MIN);
        memory.reserve((4 << 20) - BUFFER_BYTES_MIN, Push::Normal).expect("just enough");
        assert_eq!(memory.shelf().len(), 0, "what is kept makes room for what is needed");
        assert_eq!(memory.reserve(1, Push::Normal), Err(Refused::Full));
        assert!(memory.take_pressed());
        assert!(!memory.take_pressed());
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
