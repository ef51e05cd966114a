//! Fetched records and events that wait for the application to poll them.
//!
//! Each partition has a buffer, and each queue lists the partitions whose buffers are not empty. A poll takes one chunk
//! from the first partition and moves the partition to the end of the queue. The engine adds slices of responses; the
//! polling thread removes them, checks them and decodes them. A paused partition keeps its buffer and is in no queue.

mod pauses;
mod queues;
mod waiting;
mod watermarks;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::Notify;

use super::aborted::AbortedTransactions;
use super::budget::Budget;
use super::cursors::Slot;
use super::progress::PartitionProgress;
use super::queue::QueueSignal;
use crate::error::Error;
use crate::types::{Event, TopicPartition, Watermarks};
use crate::watchdog::consumer::QueueFacts;

/// One partition's part of a fetch response.
#[derive(Debug)]
pub(crate) struct Chunk {
    pub(crate) progress: Arc<PartitionProgress>,
    /// The generation of the progress in which it was fetched. A chunk of an older generation is dropped.
    pub(crate) generation: u64,
    /// The first offset for the application; the first batch may begin before it.
    pub(crate) from: i64,
    /// The offset after the last record.
    pub(crate) next: i64,
    pub(crate) high_watermark: i64,
    /// The id of the node that it was fetched from.
    pub(crate) node: i32,
    /// Complete batches, one after the other.
    pub(crate) records: Bytes,
    /// The number of records, according to the headers of the batches.
    pub(crate) count: u64,
    pub(crate) aborted: AbortedTransactions,
}

impl Chunk {
    /// Returns `true` if the position was not moved since the fetch.
    #[inline]
    pub(crate) fn is_current(&self) -> bool {
        self.generation == self.progress.generation()
    }

    /// Checks that `later` continues after this chunk: the offsets of a partition rise.
    fn assert_precedes(&self, later: &Self) {
        assert!(
            self.generation != later.generation || self.next <= later.from,
            "{}: records from {} behind records up to {}",
            self.progress.at,
            later.from,
            self.next
        );
    }

    /// Returns `true` if the application may get its records: it is current, and its partition is not paused.
    #[inline]
    pub(crate) fn is_readable(&self) -> bool {
        self.is_current() && !self.progress.is_paused()
    }
}

/// A result of a poll.
#[derive(Debug)]
pub(crate) enum Item {
    Chunk(Chunk),
    Event(Event),
    Error(Error),
}

/// The buffers and queues of one consumer.
#[derive(Debug)]
pub(crate) struct Inbox {
    state: Mutex<State>,
    /// Notified when an item is removed or memory is released. The fetcher waits here for room.
    pub(crate) emptied: Arc<Notify>,
    pub(crate) budget: Arc<Budget>,
    limit: PrefetchLimit,
    /// The queue that returned a revocation which no later poll has answered, counted from 1; 0 without one.
    revoked_by: AtomicUsize,
}

/// The limit up to which one partition is fetched ahead.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PrefetchLimit {
    pub(crate) records: u64,
    /// The initial limit: records that are polled soon are still in the processor's caches. The limit doubles when a
    /// partition is emptied before more records arrive.
    pub(crate) bytes: usize,
}

impl PrefetchLimit {
    /// The default for `bytes`, less than a usual response for one partition: one is polled while another is fetched.
    pub(crate) const BYTES: usize = 512 << 10;
}

#[derive(Debug, Default)]
struct State {
    partitions: Vec<Option<PartitionBuffer>>,
    index: BTreeMap<TopicPartition, Slot>,
    /// The consumer's own queue, and one for each partition queue.
    queues: Vec<QueueState>,
    /// Entries of `queues` that are not in use.
    free_queues: Vec<QueueId>,
    /// The queues of partitions that have one in each assignment.
    kept_queues: BTreeMap<TopicPartition, QueueId>,
    /// The partitions that are paused in each assignment.
    kept_pauses: BTreeSet<TopicPartition>,
    /// The watermarks of partitions whose assignment has ended.
    kept_watermarks: BTreeMap<TopicPartition, Watermarks>,
    /// Partitions that were full and are not any more.
    drained: Vec<Slot>,
    /// The number of partitions and events in all queues.
    waiting: usize,
    /// The number of partitions that were drained and have got no records since.
    refilling: usize,
    bytes: usize,
}

/// One queue: the consumer's own, or one that was split off.
#[derive(Debug, Default)]
struct QueueState {
    /// Partitions with items, the next one first.
    ready: VecDeque<Slot>,
    /// Events, and errors that concern no single partition: they come before all records.
    events: VecDeque<Item>,
    signal: Arc<QueueSignal>,
    /// The queue that gets this queue's items.
    forward: Option<QueueId>,
    /// The number of polls.
    polls: u64,
}

/// The index of a queue in its inbox.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct QueueId(usize);

impl QueueId {
    /// The consumer's own queue.
    pub(crate) const MAIN: Self = Self(0);
}

/// The items of one partition, in order.
#[derive(Debug)]
struct PartitionBuffer {
    progress: Arc<PartitionProgress>,
    items: VecDeque<Item>,
    records: u64,
    bytes: usize,
    limit: PrefetchLimit,
    /// `true` if the fetcher has seen it full.
    full: bool,
    /// `true` if it was drained after that, and has received no records since.
    refilling: bool,
    queue: QueueId,
    paused: bool,
    /// `true` if the queue lists it.
    is_queued: bool,
}

impl Inbox {
    pub(crate) fn new(bytes_max: usize, limit: PrefetchLimit) -> Arc<Self> {
        let emptied = Arc::<Notify>::default();
        let budget = Budget::new(bytes_max, emptied.clone());
        let state = State { queues: vec![QueueState::default()], ..State::default() };
        state.mark_main();
        Arc::new(Self { state: Mutex::new(state), emptied, budget, limit, revoked_by: AtomicUsize::new(0) })
    }

    /// Adds a buffer for a partition. Returns `true` if it is paused, as it was in an earlier assignment.
    pub(crate) fn open(&self, slot: Slot, progress: Arc<PartitionProgress>) -> bool {
        let mut state = self.lock();
        if state.partitions.len() <= slot.index() {
            state.partitions.resize_with(slot.index() + 1, || None);
        }
        state.index.insert(progress.at.clone(), slot);
        let queue = state.kept_queues.get(&progress.at).copied().unwrap_or(QueueId::MAIN);
        let paused = state.kept_pauses.contains(&progress.at);
        progress.set_paused(paused);
        let buffer = PartitionBuffer { paused, ..PartitionBuffer::new(progress, self.limit, queue) };
        state.partitions[slot.index()] = Some(buffer);
        paused
    }

    /// Removes a partition with its items.
    pub(crate) fn close(&self, slot: Slot) {
        self.purge(slot);
        let mut state = self.lock();
        if let Some(partition) = state.partitions.get_mut(slot.index()).and_then(Option::take) {
            partition.progress.next_generation();
            state.keep_watermarks(&partition.progress);
            state.refilling -= usize::from(partition.refilling);
            state.index.remove(&partition.progress.at);
            if partition.is_queued {
                let queue = state.target(partition.queue);
                state.queues[queue.0].ready.retain(|queued| *queued != slot);
                state.waiting -= 1;
            }
        }
    }

    /// Removes the items of one partition.
    pub(crate) fn purge(&self, slot: Slot) {
        self.purge_locked(self.lock(), slot);
    }

    /// The same for an assigned partition, in the polling thread. Does nothing if this assignment has ended.
    pub(crate) fn purge_of(&self, progress: &Arc<PartitionProgress>) {
        let mut state = self.lock();
        let Some(slot) = state.index.get(&progress.at).copied() else { return };
        if state.partition(slot).is_some_and(|partition| Arc::ptr_eq(&partition.progress, progress)) {
            self.purge_locked(state, slot);
        }
    }

    fn purge_locked(&self, mut state: MutexGuard<'_, State>, slot: Slot) {
        let Some(partition) = state.partition(slot) else { return };
        let purged = std::mem::take(&mut partition.items);
        partition.records = 0;
        let bytes = std::mem::take(&mut partition.bytes);
        state.bytes -= bytes;
        state.refill(slot);
        state.unlist(slot);
        drop(state);
        // Freed outside the lock: a large response may be unmapped here.
        drop(purged);
        self.emptied.notify_one();
    }

    /// Pauses or resumes a partition; its items stay.
    pub(crate) fn pause(&self, at: &TopicPartition, paused: bool) {
        let mut state = self.lock();
        let Some(slot) = state.index.get(at).copied() else { return };
        if let Some(partition) = state.partition(slot) {
            partition.paused = paused;
            partition.progress.set_paused(paused);
        }
        // No poll takes it from its queue, which the application may not poll any more.
        if paused {
            state.unlist(slot);
        }
        let signal = state.list(slot);
        drop(state);
        notify(signal);
    }

    /// Adds an event, or an error that concerns no single partition.
    pub(crate) fn push(&self, item: Item) {
        let mut state = self.lock();
        let target = state.target(QueueId::MAIN);
        let target = &mut state.queues[target.0];
        let signal = target.is_empty().then(|| target.signal.clone());
        target.events.push_back(item);
        target.signal.has_events.store(true, Ordering::Relaxed);
        state.waiting += 1;
        drop(state);
        notify(signal);
    }

    /// Adds an item at the end of a partition's buffer. A chunk of an older generation is dropped.
    pub(crate) fn push_to(&self, slot: Slot, item: Item) {
        self.push_in(slot, None, item);
    }

    /// The same for an item that is dropped if the partition has another generation than this one.
    pub(crate) fn push_in(&self, slot: Slot, generation: Option<u64>, item: Item) {
        let mut state = self.lock();
        let Some(partition) = state.partition(slot) else { return };
        let now = partition.progress.generation();
        if generation.is_some_and(|generation| generation != now) {
            return;
        }
        if let Item::Chunk(chunk) = &item
            && (!Arc::ptr_eq(&chunk.progress, &partition.progress) || chunk.generation != now)
        {
            return;
        }
        if let (Some(Item::Chunk(last)), Item::Chunk(chunk)) = (partition.items.back(), &item) {
            last.assert_precedes(chunk);
        }
        let (bytes, records) = item.size();
        partition.items.push_back(item);
        partition.records += records;
        partition.bytes += bytes;
        let came = std::mem::take(&mut partition.refilling);
        state.refilling -= usize::from(came);
        state.bytes += bytes;
        let signal = state.list(slot);
        drop(state);
        notify(signal);
    }

    /// Puts back the rest of a chunk whose partition was paused meanwhile.
    pub(crate) fn put_back(&self, chunk: Chunk) {
        let mut state = self.lock();
        let Some(slot) = state.index.get(&chunk.progress.at).copied() else { return };
        let Some(partition) = state.partition(slot) else { return };
        if !Arc::ptr_eq(&chunk.progress, &partition.progress) || !chunk.is_current() {
            return;
        }
        if let Some(Item::Chunk(next)) = partition.items.front() {
            chunk.assert_precedes(next);
        }
        let item = Item::Chunk(chunk);
        let (bytes, records) = item.size();
        partition.items.push_front(item);
        partition.records += records;
        partition.bytes += bytes;
        state.bytes += bytes;
        state.list(slot);
        drop(state);
        // The fetcher can drop the records of a paused partition for others.
        self.emptied.notify_one();
    }

    /// Returns `true` if a partition has reached its limit. If so, [`Inbox::take_drained`] returns it once it has
    /// room again.
    pub(crate) fn is_full(&self, slot: Slot) -> bool {
        let mut state = self.lock();
        let Some(partition) = state.partition(slot) else { return false };
        partition.full = partition.is_at_limit();
        partition.full
    }

    /// Partitions that [`Inbox::is_full`] has reported and that are below their limit again.
    pub(crate) fn take_drained(&self) -> Vec<Slot> {
        std::mem::take(&mut self.lock().drained)
    }

    /// Returns `true` if nothing waits for a poll.
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().waiting == 0
    }

    /// Drops chunks of paused partitions, the newest of each first, until the budget has this much room. Returns the
    /// offset from which each partition must be fetched again.
    pub(crate) fn drop_parked(&self, room: usize) -> Vec<(Slot, i64)> {
        let mut state = self.lock();
        let paused =
            |slot: &Slot| state.partitions[slot.index()].as_ref().is_some_and(|partition| partition.paused);
        let parked: Vec<Slot> = state.index.values().copied().filter(paused).collect();
        let mut rewound = Vec::new();
        for slot in parked.into_iter().rev() {
            let mut from = None;
            while self.budget.room() < room {
                let Some(partition) = state.partition(slot) else { break };
                if !matches!(partition.items.back(), Some(Item::Chunk(_))) {
                    break;
                }
                let Some(Item::Chunk(chunk)) = partition.items.pop_back() else { break };
                from = Some(chunk.from);
                let chunk = Item::Chunk(chunk);
                partition.remove_size(&chunk);
                state.bytes -= chunk.size().0;
            }
            rewound.extend(from.map(|from| (slot, from)));
        }
        rewound
    }

    /// The next item of a queue: events first, then, unless `events_only`, the partitions in turn.
    pub(crate) fn pop(&self, from: QueueId, events_only: bool) -> Option<Item> {
        let mut state = self.lock();
        let queue = &mut state.queues[from.0];
        queue.polls += 1;
        let events = queue.events.pop_front();
        queue.signal.has_events.store(!queue.events.is_empty(), Ordering::Relaxed);
        state.waiting -= usize::from(events.is_some());
        if events.is_some() || events_only {
            let is_last = events.is_some() && state.waiting == 0;
            drop(state);
            // The fetcher drops records of paused partitions once nothing waits.
            if is_last {
                self.emptied.notify_one();
            }
            return events;
        }
        loop {
            let Some(slot) = state.queues[from.0].ready.pop_front() else {
                state.raise_limits();
                return None;
            };
            state.waiting -= 1;
            let Some(partition) = state.partition(slot) else { continue };
            partition.is_queued = false;
            if partition.paused {
                continue;
            }
            let Some(item) = partition.items.pop_front() else { continue };
            if let (Item::Chunk(chunk), Some(Item::Chunk(next))) = (&item, partition.items.front()) {
                chunk.assert_precedes(next);
            }
            partition.remove_size(&item);
            state.bytes -= item.size().0;
            state.list(slot);
            if matches!(&item, Item::Chunk(chunk) if !chunk.is_current()) {
                continue;
            }
            let drained = state.refill(slot);
            let empty = state.waiting == 0;
            drop(state);
            // The memory is released when the last slice of the response is dropped; the budget notifies then.
            if drained || empty {
                self.emptied.notify_one();
            }
            return Some(item);
        }
    }

    /// Bytes of all buffered records.
    pub(crate) fn bytes(&self) -> usize {
        self.lock().bytes
    }

    /// The state of each partition's buffer and queue, for the watchdog.
    pub(crate) fn waiting(&self) -> BTreeMap<Slot, QueueFacts> {
        let state = self.lock();
        let facts = |slot: &Slot| {
            let partition = state.partitions[slot.index()].as_ref()?;
            let QueueId(id) = state.target(partition.queue);
            let (polls, waits) = (state.queues[id].polls, !partition.items.is_empty());
            Some((*slot, QueueFacts { id, looks: polls, records: partition.records, waits }))
        };
        state.index.values().filter_map(facts).collect()
    }

    /// The progress of an assigned partition.
    pub(crate) fn progress(&self, at: &TopicPartition) -> Option<Arc<PartitionProgress>> {
        let mut state = self.lock();
        let slot = state.index.get(at).copied()?;
        state.partition(slot).map(|partition| partition.progress.clone())
    }

    /// The progress of all assigned partitions, in order.
    pub(crate) fn all_progress(&self) -> Vec<Arc<PartitionProgress>> {
        let state = self.lock();
        let partitions = state.index.values().filter_map(|slot| state.partitions[slot.index()].as_ref());
        partitions.map(|partition| partition.progress.clone()).collect()
    }

    /// The signal for threads and tasks that wait at a queue.
    pub(crate) fn signal(&self, of: QueueId) -> Arc<QueueSignal> {
        self.lock().queues[of.0].signal.clone()
    }

    /// Removes a queue. Its partitions return to the consumer's own queue, and forwarded items to the queues that they come from.
    pub(crate) fn rejoin(&self, gone: QueueId) {
        let mut state = self.lock();
        let target = state.target(gone);
        for queue in &mut state.queues {
            queue.forward.take_if(|to| *to == gone);
        }
        state.kept_queues.retain(|_, kept| *kept != gone);
        for partition in state.partitions.iter_mut().flatten().filter(|partition| partition.queue == gone) {
            partition.queue = QueueId::MAIN;
        }
        state.mark_main();
        let mut signals = state.relist(gone);
        if target != gone {
            signals.extend(state.relist(target));
        }
        state.queues[gone.0] = QueueState::default();
        state.free_queues.push(gone);
        drop(state);
        notify(signals);
    }

    /// Records that this queue has returned a revocation.
    pub(super) fn note_revocation(&self, by: QueueId) {
        self.revoked_by.store(by.0 + 1, Ordering::Release);
    }

    /// Returns `true` once after a revocation, at the next poll of the queue that returned it, or of the main one.
    #[inline]
    pub(super) fn answers_revocation(&self, at: QueueId, is_main: impl Fn() -> bool) -> bool {
        let by = self.revoked_by.load(Ordering::Relaxed);
        by != 0
            && (by == at.0 + 1 || is_main())
            && self.revoked_by.compare_exchange(by, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn partition(&mut self, slot: Slot) -> Option<&mut PartitionBuffer> {
        self.partitions.get_mut(slot.index())?.as_mut()
    }

    fn new_queue(&mut self) -> QueueId {
        self.free_queues.pop().unwrap_or_else(|| {
            self.queues.push(QueueState::default());
            QueueId(self.queues.len() - 1)
        })
    }

    /// The queue that gets the items of `queue`, with forwarding applied.
    fn target(&self, mut queue: QueueId) -> QueueId {
        while let Some(next) = self.queues[queue.0].forward {
            queue = next;
        }
        queue
    }

    /// Marks the queue that gets the items of the consumer's own.
    fn mark_main(&self) {
        let main = self.target(QueueId::MAIN);
        for (index, queue) in self.queues.iter().enumerate() {
            queue.signal.is_main.store(index == main.0, Ordering::Relaxed);
        }
    }

    /// Returns `true` if the forwarding of a queue passes another one, or if it is the other one.
    fn leads(&self, mut queue: QueueId, to: QueueId) -> bool {
        while queue != to {
            let Some(next) = self.queues[queue.0].forward else { return false };
            queue = next;
        }
        true
    }

    /// Moves a partition to another queue.
    fn route(&mut self, slot: Slot, to: QueueId) -> Option<Arc<QueueSignal>> {
        let partition = self.partition(slot)?;
        let from = std::mem::replace(&mut partition.queue, to);
        let was_queued = std::mem::take(&mut partition.is_queued);
        self.waiting -= usize::from(was_queued);
        let from = self.target(from);
        self.queues[from.0].ready.retain(|queued| *queued != slot);
        self.list(slot)
    }

    /// Moves the items of a queue to the queues that get them now, after a change of queues or of their forwarding. Returns the
    /// signals of other queues that were empty.
    fn relist(&mut self, from: QueueId) -> Vec<Arc<QueueSignal>> {
        let ready = std::mem::take(&mut self.queues[from.0].ready);
        let events = std::mem::take(&mut self.queues[from.0].events);
        let mut signals = Vec::new();
        let of_events = self.target(QueueId::MAIN);
        if !events.is_empty() {
            let target = &mut self.queues[of_events.0];
            signals.extend(target.is_empty().then(|| target.signal.clone()));
            target.events.extend(events);
        }
        self.waiting -= ready.len();
        for slot in ready {
            if let Some(partition) = self.partition(slot) {
                partition.is_queued = false;
            }
            signals.extend(self.list(slot));
        }
        for queue in [from, of_events] {
            let queue = &self.queues[queue.0];
            queue.signal.has_events.store(!queue.events.is_empty(), Ordering::Relaxed);
        }
        let own = &self.queues[from.0].signal;
        signals.retain(|signal| !Arc::ptr_eq(signal, own));
        signals
    }

    /// Records that a full partition is below its limit again, if it is. Returns whether it is.
    fn refill(&mut self, slot: Slot) -> bool {
        let Some(partition) = self.partition(slot) else { return false };
        let drained = partition.full && !partition.is_at_limit();
        if drained {
            partition.full = false;
            let first = !std::mem::replace(&mut partition.refilling, true);
            self.refilling += usize::from(first);
            self.drained.push(slot);
        }
        drained
    }

    /// Doubles the limits of partitions that are empty after they were full: a poll found no records.
    fn raise_limits(&mut self) {
        if self.refilling == 0 {
            return;
        }
        for partition in self.partitions.iter_mut().flatten() {
            if partition.items.is_empty() && std::mem::take(&mut partition.refilling) {
                self.refilling -= 1;
                partition.limit.bytes = partition.limit.bytes.saturating_mul(2);
            }
        }
    }

    /// Adds a partition to its queue, unless it is empty, paused or in the queue. Returns the signal if the queue was
    /// empty: a poll empties its queue before it waits, so only the first partition must wake it.
    fn list(&mut self, slot: Slot) -> Option<Arc<QueueSignal>> {
        let partition = self.partition(slot)?;
        if partition.paused || partition.items.is_empty() || partition.is_queued {
            return None;
        }
        partition.is_queued = true;
        let queue = partition.queue;
        let target = self.target(queue);
        let target = &mut self.queues[target.0];
        let first = target.is_empty();
        target.ready.push_back(slot);
        self.waiting += 1;
        first.then(|| target.signal.clone())
    }

    /// Removes a partition from its queue. While it is listed, it counts as one that waits for a poll, and no records of paused
    /// partitions are dropped for others.
    fn unlist(&mut self, slot: Slot) {
        let Some(partition) = self.partition(slot) else { return };
        let queue = partition.queue;
        if std::mem::take(&mut partition.is_queued) {
            let queue = self.target(queue);
            self.queues[queue.0].ready.retain(|queued| *queued != slot);
            self.waiting -= 1;
        }
    }
}

impl QueueState {
    fn is_empty(&self) -> bool {
        self.events.is_empty() && self.ready.is_empty()
    }
}

fn notify(signals: impl IntoIterator<Item = Arc<QueueSignal>>) {
    for signal in signals {
        signal.notify();
    }
}

impl PartitionBuffer {
    fn new(progress: Arc<PartitionProgress>, limit: PrefetchLimit, queue: QueueId) -> Self {
        Self {
            progress,
            items: VecDeque::new(),
            records: 0,
            bytes: 0,
            limit,
            full: false,
            refilling: false,
            queue,
            paused: false,
            is_queued: false,
        }
    }

    /// Subtracts an item that was removed. A buffer without items has no records and no bytes.
    fn remove_size(&mut self, removed: &Item) {
        let (bytes, records) = removed.size();
        self.records -= records;
        self.bytes -= bytes;
        let is_consistent = !self.items.is_empty() || (self.records, self.bytes) == (0, 0);
        let (at, records, bytes) = (&self.progress.at, self.records, self.bytes);
        assert!(is_consistent, "{at}: {records} records and {bytes} bytes in an empty buffer");
    }

    fn is_at_limit(&self) -> bool {
        self.records >= self.limit.records || self.bytes >= self.limit.bytes
    }
}

impl Item {
    /// The bytes and records of an item.
    fn size(&self) -> (usize, u64) {
        if let Self::Chunk(chunk) = self { (chunk.records.len(), chunk.count) } else { (0, 0) }
    }
}

#[cfg(test)]
mod tests;
