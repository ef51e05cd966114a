//! The memory that clients can make the broker use: large requests that are received or answered, and parts of files
//! that are sent.
//!
//! A connection that needs more waits: it is not read, and its response not sent, until others have returned theirs. The client
//! that has the least of it is the next one, so that no number of connections of one client keeps others waiting. Each holder has
//! a deadline, which is short while others wait for it: see [`Charge::is_wanted`] and [`Sending::is_wanted`].

mod line;
mod pool;
mod room;

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

pub(crate) use line::ClientHost;
pub(crate) use pool::Charge;
use pool::Pool;
use room::Room;
pub(crate) use room::{Admission, Sending};

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

/// The memory of the states of records in flight in share partitions, loaded and stored. It is beside the parts: one share group could
/// take all that other groups need.
pub(crate) const fn share_records_max(memory_max: usize) -> usize {
    memory_max / 16
}

/// The memory for requests and responses of one cluster.
#[derive(Debug)]
pub(crate) struct MemoryBudget {
    /// Three quarters, which large requests share. A claim for much memory needs eight bytes only.
    large: Arc<Pool>,
    /// The rest, in which large requests have no place: small ones never wait behind them.
    small: Arc<Pool>,
    max: usize,
    room: Arc<Room>,
}

impl MemoryBudget {
    /// A budget of so many bytes, and so many more for responses that are not sent yet.
    pub(crate) fn new(bytes: usize, unsent_max: usize) -> Self {
        let max = (bytes / UNIT).max(1);
        let large = large_max(max);
        Self { large: Pool::new(large), small: Pool::new(max - large), max, room: Room::new(unsent_max) }
    }

    /// Takes this much memory if it is free and no connection waits for it that is before this one.
    pub(crate) fn try_charge(&self, client: ClientHost, bytes: usize) -> Option<Charge> {
        let units = self.units_of(bytes);
        let small = if self.is_large(units) { None } else { self.small.try_take(client, units) };
        small.or_else(|| self.large.try_take(client, units))
    }

    /// Waits until there is room for one more response. A request whose response may be large is not started before, and keeps the
    /// admission until its response is counted, or until others are awaited for it.
    ///
    /// The response's size is not known before it is built, so the limit is exceeded by one response, and by those whose requests
    /// wait for others.
    pub(crate) async fn room_for_response(&self, client: ClientHost) -> Admission {
        self.room.enter(client).await
    }

    /// Returns `true` if one more response may be built now.
    pub(crate) fn has_room_for_response(&self) -> bool {
        self.room.has_room()
    }

    /// Counts a response until it is sent.
    pub(crate) fn send(&self, client: ClientHost, bytes: usize) -> Sending {
        self.room.send(client, bytes)
    }

    fn units_of(&self, bytes: usize) -> usize {
        bytes.div_ceil(UNIT).clamp(1, large_max(self.max))
    }

    /// Returns `true` for more than a sixteenth of the budget.
    const fn is_large(&self, units: usize) -> bool {
        units > self.max / 16
    }

    /// Waits for this much memory, until this is the first one in the line; small requests do not wait for large ones that wait. A
    /// request above three quarters of the budget gets those.
    ///
    /// Dropping the future gives up the place in the line.
    pub(crate) async fn charge(&self, client: ClientHost, bytes: usize) -> Charge {
        if let Some(charge) = self.try_charge(client, bytes) {
            return charge;
        }
        let units = self.units_of(bytes);
        if self.is_large(units) {
            return self.large.take(client, units).await;
        }
        let (mut small, mut large) =
            (pin!(self.small.take(client, units)), pin!(self.large.take(client, units)));
        poll_fn(|cx| {
            let small = small.as_mut().poll(cx);
            if small.is_ready() { small } else { large.as_mut().poll(cx) }
        })
        .await
    }

    /// The bytes of requests and parts of files that hold memory.
    pub(crate) fn used_bytes(&self) -> usize {
        self.max.saturating_sub(self.free_units()) * UNIT
    }

    /// The bytes of responses that are not sent yet.
    pub(crate) fn unsent_bytes(&self) -> usize {
        self.room.bytes()
    }

    /// The number of requests and responses that wait for memory.
    pub(crate) fn waiting(&self) -> usize {
        // Those that wait for the small pool wait for the large one as well.
        self.large.waiting() + self.room.waiting()
    }

    fn free_units(&self) -> usize {
        self.large.free() + self.small.free()
    }

    #[cfg(test)]
    fn free(&self) -> usize {
        self.free_units() * UNIT
    }
}

/// Work that is done for few requests at a time. Of the clients with the fewest turns now, the one that has waited longest since its
/// last turn is the next one.
#[derive(Debug)]
pub(crate) struct FairTurns(Arc<Pool>);

impl FairTurns {
    /// Work of this kind is done for `max` requests at a time.
    pub(crate) fn new(max: usize) -> Self {
        Self(Pool::new(max))
    }

    /// Waits for the turn, which ends when the result is dropped.
    pub(crate) async fn take(&self, client: ClientHost) -> Charge {
        match self.0.try_take(client, 1) {
            Some(turn) => turn,
            None => self.0.take(client, 1).await,
        }
    }
}

/// The part of the budget that large requests share.
const fn large_max(max: usize) -> usize {
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

    /// Returns `true` if no byte fits.
    pub(crate) fn is_full(&self) -> bool {
        self.used_bytes() >= self.0.max
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

    const ANNA: ClientHost = ClientHost::LOCAL;

    async fn is_pending<F: Future>(future: std::pin::Pin<&mut F>) -> bool {
        let mut future = future;
        poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_pending())).await
    }

    #[tokio::test]
    async fn a_charge_waits_until_others_return_theirs() {
        let budget = MemoryBudget::new(100 * UNIT, 0);
        let first = budget.charge(ANNA, 60 * UNIT).await;
        let mut second = pin!(budget.charge(ANNA, 50 * UNIT));
        assert!(is_pending(second.as_mut()).await && first.is_wanted() && budget.waiting() == 1);
        drop(first);
        let second = second.await;
        assert_eq!((budget.free(), budget.waiting()), (50 * UNIT, 0));
        drop(second);
        // More than there is: three quarters of it.
        let _most = budget.charge(ANNA, 1_000 * UNIT).await;
        assert_eq!(budget.free(), 25 * UNIT);
    }

    /// Each had claimed all memory with the first eight bytes of a request, and every request of others waited behind them.
    #[tokio::test]
    async fn large_requests_that_wait_do_not_stop_small_ones() {
        let budget = MemoryBudget::new(160 * UNIT, 0);
        let _claims = budget.charge(ANNA, 1_000 * UNIT).await;
        let mut waits = pin!(budget.charge(ANNA, 1_000 * UNIT));
        assert!(is_pending(waits.as_mut()).await);
        assert!(
            budget.try_charge(ANNA, 11 * UNIT).is_none(),
            "more than a sixteenth waits with the large ones"
        );
        let small: Vec<_> = (0..4).map(|_| budget.try_charge(ANNA, 10 * UNIT)).collect();
        assert!(small.iter().all(Option::is_some));
        assert!(budget.try_charge(ANNA, UNIT).is_none());
    }

    /// It had its turn among large ones, and waited for what small ones held, first of all that came after it.
    #[tokio::test]
    async fn a_large_request_that_waits_for_small_ones_does_not_stop_others() {
        let budget = MemoryBudget::new(160 * UNIT, 0);
        let small: Vec<_> = (0..5).map(|_| budget.try_charge(ANNA, 10 * UNIT).expect("free")).collect();
        let mut large = pin!(budget.charge(ANNA, 1_000 * UNIT));
        assert!(is_pending(large.as_mut()).await);
        assert!(!small[0].is_wanted() && small[4].is_wanted(), "the fifth is in the large one's part");
        let mut waits = pin!(budget.charge(ANNA, UNIT));
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
        let _small: Vec<_> = (0..4).map(|_| budget.try_charge(ANNA, 10 * UNIT).expect("free")).collect();
        let large = budget.charge(ANNA, 1_000 * UNIT).await;
        let mut waits = pin!(budget.charge(ANNA, UNIT));
        assert!(is_pending(waits.as_mut()).await && large.is_wanted());
        drop(large);
        drop(waits.await);
        assert_eq!((budget.free(), budget.waiting()), (120 * UNIT, 0));
    }

    /// Slow clients lost their requests because others waited for memory of another kind.
    #[tokio::test]
    async fn memory_is_wanted_only_by_those_that_could_use_it() {
        let budget = MemoryBudget::new(160 * UNIT, 0);
        let small = budget.charge(ANNA, UNIT).await;
        let large = budget.charge(ANNA, 1_000 * UNIT).await;
        let response = budget.send(ANNA, 1);
        let mut waits = pin!(budget.charge(ANNA, 1_000 * UNIT));
        assert!(is_pending(waits.as_mut()).await);
        assert!(large.is_wanted() && !small.is_wanted() && !response.is_wanted());
        let mut next = pin!(budget.room_for_response(ANNA));
        assert!(is_pending(next.as_mut()).await && response.is_wanted() && !small.is_wanted());
        assert_eq!(budget.waiting(), 2);
    }

    #[tokio::test]
    async fn the_next_large_response_waits_until_others_are_sent() {
        let budget = MemoryBudget::new(UNIT, 100);
        let first = budget.send(ANNA, 100);
        drop(budget.room_for_response(ANNA).await);
        let second = budget.send(ANNA, 1);
        let mut third = pin!(budget.room_for_response(ANNA));
        assert!(is_pending(third.as_mut()).await && first.is_wanted());
        drop(second);
        drop(third.await);
        assert_eq!(budget.waiting(), 0);
        drop(first);
    }

    /// Ten thousand connections of one client made others wait for minutes.
    #[tokio::test]
    async fn many_connections_of_one_client_do_not_keep_others_waiting() {
        let bert = ClientHost::new(Some(std::net::IpAddr::from([10, 0, 0, 2])));
        let budget = MemoryBudget::new(160 * UNIT, 0);
        let mut held: Vec<_> = (0..4).map(|_| budget.try_charge(ANNA, 30 * UNIT).expect("free")).collect();
        let mut waits: Vec<_> = (0..100).map(|_| Box::pin(budget.charge(ANNA, 30 * UNIT))).collect();
        for waits in &mut waits {
            assert!(is_pending(waits.as_mut()).await);
        }
        let mut late = pin!(budget.charge(bert, 30 * UNIT));
        assert!(is_pending(late.as_mut()).await && budget.waiting() == 101);
        drop(held.pop());
        let late = late.await;
        assert!(!late.is_wanted() && held[0].is_wanted(), "the others have more than he has");
        drop((held, late));
        assert_eq!(budget.free(), 40 * UNIT, "four of the others have theirs");
    }

    /// A request that waited at the head of the line left it, and the next ones waited for ever.
    #[tokio::test]
    async fn those_behind_a_request_that_leaves_the_line_have_its_place() {
        let budget = MemoryBudget::new(160 * UNIT, 0);
        let _held = budget.charge(ANNA, 60 * UNIT).await;
        let mut first = Box::pin(budget.charge(ANNA, 100 * UNIT));
        let mut second = pin!(budget.charge(ANNA, 30 * UNIT));
        assert!(is_pending(first.as_mut()).await && is_pending(second.as_mut()).await);
        drop(first);
        drop(second.await);
        assert_eq!((budget.free(), budget.waiting()), (100 * UNIT, 0));
    }

    /// All that waited started at once, and exceeded the limit by the responses of all of them.
    #[tokio::test]
    async fn requests_that_wait_for_room_start_one_after_another() {
        let budget = MemoryBudget::new(UNIT, 100);
        let sent = budget.send(ANNA, 101);
        let mut first = Box::pin(budget.room_for_response(ANNA));
        let mut second = Box::pin(budget.room_for_response(ANNA));
        let mut third = Box::pin(budget.room_for_response(ANNA));
        for waits in [&mut first, &mut second, &mut third] {
            assert!(is_pending(waits.as_mut()).await);
        }
        drop(sent);
        let admission = first.await;
        assert!(is_pending(second.as_mut()).await, "the first one builds its response");
        let sent = budget.send(ANNA, 101);
        drop(admission);
        assert!(is_pending(second.as_mut()).await, "there is no room");
        drop(sent);
        // One that is admitted and leaves lets the next one start.
        drop(second);
        drop(third.await);
        assert_eq!((budget.unsent_bytes(), budget.waiting()), (0, 0));
    }

    /// The requests of one client that had come first were all before those of others.
    #[tokio::test]
    async fn clients_take_turns() {
        let bert = ClientHost::new(Some(std::net::IpAddr::from([10, 0, 0, 2])));
        let turns = FairTurns::new(1);
        let turn = turns.take(ANNA).await;
        let mut annas: Vec<_> = (0..3).map(|_| Box::pin(turns.take(ANNA))).collect();
        for waits in &mut annas {
            assert!(is_pending(waits.as_mut()).await);
        }
        let mut berts = Box::pin(turns.take(bert));
        assert!(is_pending(berts.as_mut()).await);
        drop(turn);
        let turn = annas.remove(0).await;
        assert!(is_pending(annas[0].as_mut()).await && is_pending(berts.as_mut()).await);
        drop(turn);
        assert!(is_pending(annas[0].as_mut()).await, "it is the other client's turn");
        drop(berts.await);
        drop(annas.remove(0).await);
        drop(annas.remove(0).await);
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
