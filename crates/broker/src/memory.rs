//! The memory that clients can make the broker use: large requests that are received or answered, and parts of files
//! that are sent.
//!
//! A connection that needs more waits: it is not read, and its response not sent, until others have returned theirs. Each
//! holder has a deadline, which is short while others wait: see [`MemoryBudget::is_contended`].

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// The unit of the budget.
const UNIT: usize = 1 << 10;

/// The division of `memory.max.bytes`, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parts {
    /// Large requests, and parts of files that are read for responses.
    pub(crate) requests: usize,
    /// Responses that are not sent yet.
    pub(crate) responses: usize,
    /// Batches that are decompressed to check them.
    pub(crate) decoders: usize,
    /// Data of fetch sessions.
    pub(crate) fetch_sessions: usize,
    /// Groups, their members and committed offsets, and transactional ids.
    pub(crate) groups: usize,
}

impl Parts {
    pub(crate) const fn of(memory_max: usize) -> Self {
        let eighth = memory_max / 8;
        Self {
            requests: 3 * eighth,
            responses: eighth,
            decoders: 2 * eighth,
            fetch_sessions: eighth,
            groups: eighth,
        }
    }
}

/// The memory for requests and responses of one cluster.
#[derive(Debug)]
pub(crate) struct MemoryBudget {
    units: Arc<Semaphore>,
    max: u32,
    /// The part of them that large requests share. The rest is left to others: a claim for much memory needs eight bytes only.
    large_units: Arc<Semaphore>,
    waiting: AtomicUsize,
    unsent: Arc<Unsent>,
    unsent_max: usize,
}

/// The bytes of responses that are built and not sent.
#[derive(Debug, Default)]
struct Unsent {
    bytes: AtomicUsize,
    /// Woken when bytes were sent.
    sent: Notify,
}

/// A response that is not sent yet, which is counted until this is dropped.
#[derive(Debug)]
pub(crate) struct Sending {
    unsent: Arc<Unsent>,
    bytes: usize,
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.unsent.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        self.unsent.sent.notify_waiters();
    }
}

/// Counts a waiter until it is dropped.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A part of the budget, which is returned when this is dropped.
#[derive(Debug)]
#[must_use = "the memory is returned when this is dropped"]
pub(crate) struct Charge {
    _units: OwnedSemaphorePermit,
    _large: Option<OwnedSemaphorePermit>,
}

impl MemoryBudget {
    /// A budget of so many bytes, and so many more for responses that are not sent yet.
    pub(crate) fn new(bytes: usize, unsent_max: usize) -> Self {
        let max = u32::try_from(bytes / UNIT).unwrap_or(u32::MAX).max(1);
        Self {
            units: Arc::new(Semaphore::new(max as usize)),
            max,
            large_units: Arc::new(Semaphore::new(large_max(max) as usize)),
            waiting: AtomicUsize::new(0),
            unsent: Arc::default(),
            unsent_max,
        }
    }

    /// Takes this much memory if it is free and no connection waits for some.
    pub(crate) fn try_charge(&self, bytes: usize) -> Option<Charge> {
        let units = self.units_of(bytes);
        let large = self.is_large(units).then(|| self.large_units.clone().try_acquire_many_owned(units));
        let large = large.transpose().ok()?;
        let units = self.units.clone().try_acquire_many_owned(units).ok()?;
        Some(Charge { _units: units, _large: large })
    }

    /// Waits until there is room for one more response. A request whose response may be large is not started before.
    ///
    /// The response's size is not known before it is built, so each request that starts at the limit exceeds it by one response.
    pub(crate) async fn room_for_response(&self) {
        while self.unsent.bytes.load(Ordering::Relaxed) > self.unsent_max {
            let _waiting = Waiting::new(&self.waiting);
            let sent = self.unsent.sent.notified();
            if self.unsent.bytes.load(Ordering::Relaxed) > self.unsent_max {
                sent.await;
            }
        }
    }

    /// Counts a response until it is sent.
    pub(crate) fn send(&self, bytes: usize) -> Sending {
        self.unsent.bytes.fetch_add(bytes, Ordering::Relaxed);
        Sending { unsent: self.unsent.clone(), bytes }
    }

    fn units_of(&self, bytes: usize) -> u32 {
        u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX).clamp(1, large_max(self.max))
    }

    /// Returns `true` for more than a sixteenth of the budget.
    const fn is_large(&self, units: u32) -> bool {
        units > self.max / 16
    }

    /// Waits for this much memory, in the order of the calls; small requests do not wait for large ones that wait. A request above
    /// three quarters of the budget gets those.
    ///
    /// Dropping the future gives up the place in the queue.
    pub(crate) async fn charge(&self, bytes: usize) -> Charge {
        if let Some(charge) = self.try_charge(bytes) {
            return charge;
        }
        let _waiting = Waiting::new(&self.waiting);
        let units = self.units_of(bytes);
        let large = if self.is_large(units) { Some(take(&self.large_units, units).await) } else { None };
        Charge { _units: take(&self.units, units).await, _large: large }
    }

    /// Returns `true` while a connection waits for memory.
    pub(crate) fn is_contended(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// The bytes of requests and parts of files that hold memory.
    pub(crate) fn used_bytes(&self) -> usize {
        (self.max as usize).saturating_sub(self.units.available_permits()) * UNIT
    }

    /// The bytes of responses that are not sent yet.
    pub(crate) fn unsent_bytes(&self) -> usize {
        self.unsent.bytes.load(Ordering::Relaxed)
    }

    /// The number of requests and responses that wait for memory.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    #[cfg(test)]
    fn free(&self) -> usize {
        self.units.available_permits() * UNIT
    }
}

/// The part of the budget that large requests share.
const fn large_max(max: u32) -> u32 {
    let quarter = max / 4;
    max - quarter
}

async fn take(semaphore: &Arc<Semaphore>, units: u32) -> OwnedSemaphorePermit {
    match semaphore.clone().acquire_many_owned(units).await {
        Ok(permit) => permit,
        // The semaphore is never closed.
        Err(_) => std::future::pending().await,
    }
}

/// The memory of data that clients leave at the broker until they leave themselves. More than the maximum is refused.
#[derive(Clone, Debug)]
pub(crate) struct KeptMemory(Arc<KeptTotal>);

#[derive(Debug)]
struct KeptTotal {
    used: AtomicUsize,
    max: usize,
}

/// Kept data, which is counted until this is dropped.
#[derive(Debug)]
pub(crate) struct Kept {
    memory: KeptMemory,
    bytes: usize,
}

impl KeptMemory {
    pub(crate) fn new(max: usize) -> Self {
        Self(Arc::new(KeptTotal { used: AtomicUsize::new(0), max }))
    }

    /// The bytes that are counted.
    pub(crate) fn used_bytes(&self) -> usize {
        self.0.used.load(Ordering::Relaxed)
    }

    /// Counts so many bytes; `None` if they do not fit.
    pub(crate) fn keep(&self, bytes: usize) -> Option<Kept> {
        let fits = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= self.0.max);
        self.0.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).ok()?;
        Some(Kept { memory: self.clone(), bytes })
    }
}

impl Kept {
    /// Counts so many bytes more; returns `false`, and counts nothing, if they do not fit.
    pub(crate) fn grow(&mut self, bytes: usize) -> bool {
        let Some(mut more) = self.memory.keep(bytes) else { return false };
        self.bytes += std::mem::take(&mut more.bytes);
        true
    }

    /// Counts so many bytes more, even if they do not fit: they were reserved, or kept before.
    pub(crate) fn add(&mut self, bytes: usize) {
        self.memory.0.used.fetch_add(bytes, Ordering::Relaxed);
        self.bytes += bytes;
    }

    /// Returns so many of the bytes.
    pub(crate) fn release(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.bytes, "{bytes} bytes of {} are released", self.bytes);
        let bytes = bytes.min(self.bytes);
        self.memory.0.used.fetch_sub(bytes, Ordering::Relaxed);
        self.bytes -= bytes;
    }

    #[cfg(test)]
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }
}

impl KeptMemory {
    /// Counts so many bytes of data that was kept before: it may exceed the maximum, if that was lowered.
    pub(crate) fn keep_known(&self, bytes: usize) -> Kept {
        self.0.used.fetch_add(bytes, Ordering::Relaxed);
        Kept { memory: self.clone(), bytes }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.memory.0.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use super::*;

    #[tokio::test]
    async fn a_charge_waits_until_others_return_theirs() {
        let budget = MemoryBudget::new(100 * UNIT, 0);
        let first = budget.charge(60 * UNIT).await;
        let mut second = std::pin::pin!(budget.charge(50 * UNIT));
        let waits = std::future::poll_fn(|cx| Poll::Ready(second.as_mut().poll(cx).is_pending())).await;
        assert!(waits && budget.is_contended());
        drop(first);
        let second = second.await;
        assert_eq!((budget.free(), budget.is_contended()), (50 * UNIT, false));
        drop(second);
        // More than there is: three quarters of it.
        let _most = budget.charge(1_000 * UNIT).await;
        assert_eq!(budget.free(), 25 * UNIT);
    }

    /// Each had claimed all memory with the first eight bytes of a request, and every request of others waited behind them.
    #[tokio::test]
    async fn large_requests_that_wait_do_not_stop_small_ones() {
        let budget = MemoryBudget::new(160 * UNIT, 0);
        let _claims = budget.charge(1_000 * UNIT).await;
        let mut waits = std::pin::pin!(budget.charge(1_000 * UNIT));
        let is_waiting = std::future::poll_fn(|cx| Poll::Ready(waits.as_mut().poll(cx).is_pending())).await;
        assert!(is_waiting && budget.is_contended());
        assert!(budget.try_charge(11 * UNIT).is_none(), "more than a sixteenth waits with the large ones");
        let small: Vec<_> = (0..4).map(|_| budget.try_charge(10 * UNIT)).collect();
        assert!(small.iter().all(Option::is_some));
        assert!(budget.try_charge(UNIT).is_none());
    }

    #[tokio::test]
    async fn the_next_large_response_waits_until_others_are_sent() {
        let budget = MemoryBudget::new(UNIT, 100);
        let first = budget.send(100);
        budget.room_for_response().await;
        let second = budget.send(1);
        let mut third = std::pin::pin!(budget.room_for_response());
        let waits = std::future::poll_fn(|cx| Poll::Ready(third.as_mut().poll(cx).is_pending())).await;
        assert!(waits && budget.is_contended());
        drop(second);
        third.await;
        assert!(!budget.is_contended());
        drop(first);
    }

    #[test]
    fn kept_data_is_counted_until_it_is_dropped() {
        let memory = KeptMemory::new(100);
        let first = memory.keep(60).expect("it fits");
        assert!(memory.keep(41).is_none() && memory.keep(40).is_some());
        drop(first);
        assert!(memory.keep(100).is_some() && memory.keep(usize::MAX).is_none());
    }
}
