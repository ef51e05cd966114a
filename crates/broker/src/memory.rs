//! The memory that clients can make the broker use: large requests that are received or answered, and parts of files
//! that are sent.
//!
//! A connection that needs more waits: it is not read, and its response not sent, until others have returned theirs. Each
//! holder has a deadline, which is short while others wait for it: see [`Charge::is_wanted`] and [`Sending::is_wanted`].

use std::future::poll_fn;
use std::pin::pin;
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
    /// Three quarters, which large requests share. A claim for much memory needs eight bytes only.
    large: Arc<Pool>,
    /// The rest, in which large requests have no place: small ones never wait behind them.
    small: Arc<Pool>,
    max: u32,
    unsent: Arc<Unsent>,
    unsent_max: usize,
}

/// A part of the budget.
#[derive(Debug)]
struct Pool {
    units: Arc<Semaphore>,
    /// The requests that wait for it.
    waiting: AtomicUsize,
}

/// The bytes of responses that are built and not sent.
#[derive(Debug, Default)]
struct Unsent {
    bytes: AtomicUsize,
    /// Woken when bytes were sent.
    sent: Notify,
    /// The requests that wait for this.
    waiting: AtomicUsize,
}

/// A response that is not sent yet, which is counted until this is dropped.
#[derive(Debug)]
pub(crate) struct Sending {
    unsent: Arc<Unsent>,
    bytes: usize,
}

impl Sending {
    /// Returns `true` while a request waits until responses are sent.
    pub(crate) fn is_wanted(&self) -> bool {
        self.unsent.waiting.load(Ordering::Relaxed) > 0
    }
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

/// Memory of the budget, which is returned when this is dropped.
#[derive(Debug)]
#[must_use = "the memory is returned when this is dropped"]
pub(crate) struct Charge {
    _units: OwnedSemaphorePermit,
    pool: Arc<Pool>,
}

impl Charge {
    /// Returns `true` while a request waits for the part of the budget that this is of. Others that wait cannot use it.
    pub(crate) fn is_wanted(&self) -> bool {
        self.pool.waiting.load(Ordering::Relaxed) > 0
    }
}

impl Pool {
    fn new(units: u32) -> Arc<Self> {
        Arc::new(Self { units: Arc::new(Semaphore::new(units as usize)), waiting: AtomicUsize::new(0) })
    }

    fn try_take(self: &Arc<Self>, units: u32) -> Option<Charge> {
        let units = self.units.clone().try_acquire_many_owned(units).ok()?;
        Some(Charge { _units: units, pool: self.clone() })
    }

    async fn take(self: &Arc<Self>, units: u32) -> Charge {
        match self.units.clone().acquire_many_owned(units).await {
            Ok(units) => Charge { _units: units, pool: self.clone() },
            // The semaphore is never closed.
            Err(_) => std::future::pending().await,
        }
    }

    fn free(&self) -> usize {
        self.units.available_permits()
    }
}

impl MemoryBudget {
    /// A budget of so many bytes, and so many more for responses that are not sent yet.
    pub(crate) fn new(bytes: usize, unsent_max: usize) -> Self {
        let max = u32::try_from(bytes / UNIT).unwrap_or(u32::MAX).max(1);
        Self {
            large: Pool::new(large_max(max)),
            small: Pool::new(max - large_max(max)),
            max,
            unsent: Arc::default(),
            unsent_max,
        }
    }

    /// Takes this much memory if it is free and no connection waits for it.
    pub(crate) fn try_charge(&self, bytes: usize) -> Option<Charge> {
        let units = self.units_of(bytes);
        let small = if self.is_large(units) { None } else { self.small.try_take(units) };
        small.or_else(|| self.large.try_take(units))
    }

    /// Waits until there is room for one more response. A request whose response may be large is not started before.
    ///
    /// The response's size is not known before it is built, so each request that starts at the limit exceeds it by one response.
    pub(crate) async fn room_for_response(&self) {
        while self.unsent.bytes.load(Ordering::Relaxed) > self.unsent_max {
            let _waiting = Waiting::new(&self.unsent.waiting);
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
        let units = self.units_of(bytes);
        let _waiting = Waiting::new(&self.large.waiting);
        if self.is_large(units) {
            return self.large.take(units).await;
        }
        let _waiting_for_small = Waiting::new(&self.small.waiting);
        let (mut small, mut large) = (pin!(self.small.take(units)), pin!(self.large.take(units)));
        poll_fn(|cx| {
            let small = small.as_mut().poll(cx);
            if small.is_ready() { small } else { large.as_mut().poll(cx) }
        })
        .await
    }

    /// The bytes of requests and parts of files that hold memory.
    pub(crate) fn used_bytes(&self) -> usize {
        (self.max as usize).saturating_sub(self.free_units()) * UNIT
    }

    /// The bytes of responses that are not sent yet.
    pub(crate) fn unsent_bytes(&self) -> usize {
        self.unsent.bytes.load(Ordering::Relaxed)
    }

    /// The number of requests and responses that wait for memory.
    pub(crate) fn waiting(&self) -> usize {
        // Those that wait for the small pool wait for the large one as well.
        self.large.waiting.load(Ordering::Relaxed) + self.unsent.waiting.load(Ordering::Relaxed)
    }

    fn free_units(&self) -> usize {
        self.large.free() + self.small.free()
    }

    #[cfg(test)]
    fn free(&self) -> usize {
        self.free_units() * UNIT
    }
}

/// The part of the budget that large requests share.
const fn large_max(max: u32) -> u32 {
    let quarter = max / 4;
    max - quarter
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

    async fn is_pending<F: Future>(future: std::pin::Pin<&mut F>) -> bool {
        let mut future = future;
        poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_pending())).await
    }

    #[tokio::test]
    async fn a_charge_waits_until_others_return_theirs() {
        let budget = MemoryBudget::new(100 * UNIT, 0);
        let first = budget.charge(60 * UNIT).await;
        let mut second = pin!(budget.charge(50 * UNIT));
        assert!(is_pending(second.as_mut()).await && first.is_wanted() && budget.waiting() == 1);
        drop(first);
        let second = second.await;
        assert_eq!((budget.free(), budget.waiting()), (50 * UNIT, 0));
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
        let mut waits = pin!(budget.charge(1_000 * UNIT));
        assert!(is_pending(waits.as_mut()).await);
        assert!(budget.try_charge(11 * UNIT).is_none(), "more than a sixteenth waits with the large ones");
        let small: Vec<_> = (0..4).map(|_| budget.try_charge(10 * UNIT)).collect();
        assert!(small.iter().all(Option::is_some));
        assert!(budget.try_charge(UNIT).is_none());
    }

    /// It had its turn among large ones, and waited for what small ones held, first of all that came after it.
    #[tokio::test]
    async fn a_large_request_that_waits_for_small_ones_does_not_stop_others() {
        let budget = MemoryBudget::new(160 * UNIT, 0);
        let small: Vec<_> = (0..5).map(|_| budget.try_charge(10 * UNIT).expect("free")).collect();
        let mut large = pin!(budget.charge(1_000 * UNIT));
        assert!(is_pending(large.as_mut()).await);
        assert!(!small[0].is_wanted() && small[4].is_wanted(), "the fifth is in the large one's part");
        let mut waits = pin!(budget.charge(UNIT));
        assert!(is_pending(waits.as_mut()).await && small[0].is_wanted());
        let mut small = small.into_iter();
        drop(small.next());
        drop(waits.await);
        drop(small.next_back());
        drop(large.await);
    }

    #[tokio::test]
    async fn a_small_request_takes_memory_that_a_large_one_returns() {
        let budget = MemoryBudget::new(160 * UNIT, 0);
        let _small: Vec<_> = (0..4).map(|_| budget.try_charge(10 * UNIT).expect("free")).collect();
        let large = budget.charge(1_000 * UNIT).await;
        let mut waits = pin!(budget.charge(UNIT));
        assert!(is_pending(waits.as_mut()).await && large.is_wanted());
        drop(large);
        drop(waits.await);
        assert_eq!((budget.free(), budget.waiting()), (120 * UNIT, 0));
    }

    /// Slow clients lost their requests because others waited for memory of another kind.
    #[tokio::test]
    async fn memory_is_wanted_only_by_those_that_could_use_it() {
        let budget = MemoryBudget::new(160 * UNIT, 0);
        let small = budget.charge(UNIT).await;
        let large = budget.charge(1_000 * UNIT).await;
        let response = budget.send(1);
        let mut waits = pin!(budget.charge(1_000 * UNIT));
        assert!(is_pending(waits.as_mut()).await);
        assert!(large.is_wanted() && !small.is_wanted() && !response.is_wanted());
        let mut next = pin!(budget.room_for_response());
        assert!(is_pending(next.as_mut()).await && response.is_wanted() && !small.is_wanted());
        assert_eq!(budget.waiting(), 2);
    }

    #[tokio::test]
    async fn the_next_large_response_waits_until_others_are_sent() {
        let budget = MemoryBudget::new(UNIT, 100);
        let first = budget.send(100);
        budget.room_for_response().await;
        let second = budget.send(1);
        let mut third = pin!(budget.room_for_response());
        assert!(is_pending(third.as_mut()).await && first.is_wanted());
        drop(second);
        third.await;
        assert_eq!(budget.waiting(), 0);
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
