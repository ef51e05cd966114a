//! The third door: what the engine fetched, waiting for the application to poll it.
//!
//! A lane per partition, and a ring of those that have something: a poll takes one chunk from the first and puts the
//! lane behind the others. The engine puts in slices of responses; the polling thread takes them out, checks and
//! decodes them there. A paused lane keeps what it has and is not in the ring.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::Notify;

use super::aborted::Aborted;
use super::budget::Budget;
use super::cursors::Slot;
use super::place::Place;
use super::queue::Bell;
use crate::consumer::{Event, TopicPartition};
use crate::error::Error;
use crate::watchdog::consumer::QueueFacts;

/// One partition's part of a fetch response.
#[derive(Debug)]
pub(crate) struct Chunk {
    pub(crate) place: Arc<Place>,
    /// The place's turn it was fetched in; one of an older turn is thrown away.
    pub(crate) turn: u64,
    /// The first offset the application wants; the first batch may begin before it.
    pub(crate) from: i64,
    /// The offset after the last record.
    pub(crate) next: i64,
    pub(crate) high_watermark: i64,
    /// Whole batches, one behind the other.
    pub(crate) records: Bytes,
    /// How many records that is, as the batches' headers say.
    pub(crate) count: u64,
    pub(crate) aborted: Aborted,
}

impl Chunk {
    /// Whether nothing has happened since it was fetched that makes it void.
    #[inline]
    pub(crate) fn is_current(&self) -> bool {
        self.turn == self.place.turn()
    }

    /// Whether its records may be handed out: it is not void, and its partition not paused.
    #[inline]
    pub(crate) fn is_readable(&self) -> bool {
        self.is_current() && !self.place.is_paused()
    }
}

/// What a poll can find.
#[derive(Debug)]
pub(crate) enum Item {
    Chunk(Chunk),
    Event(Event),
    Error(Error),
}

/// One consumer's queue.
#[derive(Debug)]
pub(crate) struct Inbox {
    state: Mutex<State>,
    /// Told when something is taken out or given back; the engine waits for room here.
    pub(crate) emptied: Arc<Notify>,
    pub(crate) budget: Arc<Budget>,
    enough: Enough,
}

/// How much of one partition is fetched ahead.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Enough {
    /// So many records are enough.
    pub(crate) records: u64,
    /// And so many bytes, at first: what is polled soon is still in the processor's caches then. A lane that was emptied
    /// before more came gets twice as much from then on.
    pub(crate) bytes: usize,
}

impl Enough {
    /// A response for one partition of the usual size is more, so that one is fetched while another is polled.
    pub(crate) const BYTES: usize = 512 << 10;
}

#[derive(Debug, Default)]
struct State {
    lanes: Vec<Option<Lane>>,
    index: BTreeMap<TopicPartition, Slot>,
    /// The main queue's first; then one for each partition queue.
    rings: Vec<Ring>,
    /// Those whose queues are gone.
    free_rings: Vec<RingId>,
    /// Lanes that were full and are not any more.
    drained: Vec<Slot>,
    /// How many lanes and news wait in all rings.
    waiting: usize,
    /// How many lanes wait for what they are to be filled with again.
    refilling: usize,
    bytes: usize,
}

/// What one queue gives: the consumer's own, or one that was split off.
#[derive(Debug, Default)]
struct Ring {
    /// Lanes to take from, the next one first.
    ready: VecDeque<Slot>,
    /// Events, and errors that are no partition's: they come before all records.
    news: VecDeque<Item>,
    bell: Arc<Bell>,
    /// The ring that gets what would come into this one.
    forward: Option<RingId>,
    /// How often somebody has looked into it.
    looks: u64,
}

/// Which ring of an inbox.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct RingId(usize);

impl RingId {
    /// The consumer's own queue.
    pub(crate) const MAIN: Self = Self(0);
}

/// What waits of one partition, in order.
#[derive(Debug)]
struct Lane {
    place: Arc<Place>,
    items: VecDeque<Item>,
    records: u64,
    bytes: usize,
    enough: Enough,
    /// Whether the engine was told that there is enough in it.
    full: bool,
    /// Whether the engine was told that there is not any more, and nothing has come since.
    refilling: bool,
    ring: RingId,
    paused: bool,
    /// Whether it is in the ring.
    listed: bool,
}

impl Inbox {
    pub(crate) fn new(bytes_max: usize, enough: Enough) -> Arc<Self> {
        let emptied = Arc::<Notify>::default();
        let budget = Budget::new(bytes_max, emptied.clone());
        let state = Mutex::new(State { rings: vec![Ring::default()], ..State::default() });
        Arc::new(Self { state, emptied, budget, enough })
    }

    /// Opens a lane for a partition.
    pub(crate) fn open(&self, slot: Slot, place: Arc<Place>) {
        let mut state = self.lock();
        if state.lanes.len() <= slot.index() {
            state.lanes.resize_with(slot.index() + 1, || None);
        }
        state.index.insert(place.at.clone(), slot);
        state.lanes[slot.index()] = Some(Lane::new(place, self.enough));
    }

    /// Closes a lane; what is in it is thrown away.
    pub(crate) fn close(&self, slot: Slot) {
        self.purge(slot);
        let mut state = self.lock();
        if let Some(lane) = state.lanes.get_mut(slot.index()).and_then(Option::take) {
            lane.place.next_turn();
            state.refilling -= usize::from(lane.refilling);
            state.index.remove(&lane.place.at);
            if lane.listed {
                let ring = state.target(lane.ring);
                state.rings[ring.0].ready.retain(|listed| *listed != slot);
                state.waiting -= 1;
            }
        }
    }

    /// Throws away what was fetched of one partition.
    pub(crate) fn purge(&self, slot: Slot) {
        let mut state = self.lock();
        let Some(lane) = state.lane(slot) else { return };
        let purged = std::mem::take(&mut lane.items);
        lane.records = 0;
        let bytes = std::mem::take(&mut lane.bytes);
        state.bytes -= bytes;
        state.refill(slot);
        drop(state);
        // Freed outside the lock: a large response may be unmapped here.
        drop(purged);
        self.emptied.notify_one();
    }

    /// Parks a partition's lane or takes it up again; what is in it stays.
    pub(crate) fn pause(&self, at: &TopicPartition, paused: bool) {
        let mut state = self.lock();
        let Some(slot) = state.index.get(at).copied() else { return };
        if let Some(lane) = state.lane(slot) {
            lane.paused = paused;
            lane.place.set_paused(paused);
        }
        let bell = state.list(slot);
        drop(state);
        ring(bell);
    }

    /// Adds an event, or an error that is no partition's.
    pub(crate) fn push(&self, item: Item) {
        let mut state = self.lock();
        let target = state.target(RingId::MAIN);
        let target = &mut state.rings[target.0];
        let bell = target.is_empty().then(|| target.bell.clone());
        target.news.push_back(item);
        target.bell.has_news.store(true, Ordering::Relaxed);
        state.waiting += 1;
        drop(state);
        ring(bell);
    }

    /// Adds an item to a partition's lane, behind what is in it; a chunk of an older turn is dropped.
    pub(crate) fn push_to(&self, slot: Slot, item: Item) {
        let mut state = self.lock();
        let Some(lane) = state.lane(slot) else { return };
        if let Item::Chunk(chunk) = &item
            && (!Arc::ptr_eq(&chunk.place, &lane.place) || chunk.turn != lane.place.turn())
        {
            return;
        }
        let (bytes, records) = item.size();
        lane.items.push_back(item);
        lane.records += records;
        lane.bytes += bytes;
        let came = std::mem::take(&mut lane.refilling);
        state.refilling -= usize::from(came);
        state.bytes += bytes;
        let bell = state.list(slot);
        drop(state);
        ring(bell);
    }

    /// Puts back what is left of a chunk that was taken out: its lane was paused meanwhile.
    pub(crate) fn put_back(&self, chunk: Chunk) {
        let mut state = self.lock();
        let Some(slot) = state.index.get(&chunk.place.at).copied() else { return };
        let Some(lane) = state.lane(slot) else { return };
        if !Arc::ptr_eq(&chunk.place, &lane.place) || !chunk.is_current() {
            return;
        }
        let item = Item::Chunk(chunk);
        let (bytes, records) = item.size();
        lane.items.push_front(item);
        lane.records += records;
        lane.bytes += bytes;
        state.bytes += bytes;
        state.list(slot);
    }

    /// Whether a partition has as much waiting as it needs. If so, [`Inbox::take_drained`] names it when that is over.
    pub(crate) fn is_full(&self, slot: Slot) -> bool {
        let mut state = self.lock();
        let Some(lane) = state.lane(slot) else { return false };
        lane.full = lane.has_enough();
        lane.full
    }

    /// Lanes that were full at the last look and are not any more.
    pub(crate) fn take_drained(&self) -> Vec<Slot> {
        std::mem::take(&mut self.lock().drained)
    }

    /// Whether a poll would find nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().waiting == 0
    }

    /// Throws away parked chunks, of each lane the newest first, until the budget has this much room. Gives the offset
    /// from which each partition must be fetched again.
    pub(crate) fn drop_parked(&self, room: usize) -> Vec<(Slot, i64)> {
        let mut state = self.lock();
        let paused = |slot: &Slot| state.lanes[slot.index()].as_ref().is_some_and(|lane| lane.paused);
        let parked: Vec<Slot> = state.index.values().copied().filter(paused).collect();
        let mut rewound = Vec::new();
        for slot in parked.into_iter().rev() {
            let mut from = None;
            while self.budget.room() < room {
                let Some(lane) = state.lane(slot) else { break };
                if !matches!(lane.items.back(), Some(Item::Chunk(_))) {
                    break;
                }
                let Some(Item::Chunk(chunk)) = lane.items.pop_back() else { break };
                lane.records -= chunk.count;
                lane.bytes -= chunk.records.len();
                from = Some(chunk.from);
                state.bytes -= chunk.records.len();
            }
            rewound.extend(from.map(|from| (slot, from)));
        }
        rewound
    }

    /// The next item of a queue, if there is one: news first, then, unless only they are wanted, each lane in turn.
    pub(crate) fn pop(&self, from: RingId, news_only: bool) -> Option<Item> {
        let mut state = self.lock();
        let ring = &mut state.rings[from.0];
        ring.looks += 1;
        let news = ring.news.pop_front();
        ring.bell.has_news.store(!ring.news.is_empty(), Ordering::Relaxed);
        state.waiting -= usize::from(news.is_some());
        if news.is_some() || news_only {
            return news;
        }
        loop {
            let Some(slot) = state.rings[from.0].ready.pop_front() else {
                state.starve();
                return None;
            };
            state.waiting -= 1;
            let Some(lane) = state.lane(slot) else { continue };
            lane.listed = false;
            if lane.paused {
                continue;
            }
            let Some(item) = lane.items.pop_front() else { continue };
            let (bytes, records) = item.size();
            lane.records -= records;
            lane.bytes -= bytes;
            state.bytes -= bytes;
            state.list(slot);
            if matches!(&item, Item::Chunk(chunk) if !chunk.is_current()) {
                continue;
            }
            let drained = state.refill(slot);
            let empty = state.waiting == 0;
            drop(state);
            // Room comes back when the last slice of a response is dropped, and the budget says so.
            if drained || empty {
                self.emptied.notify_one();
            }
            return Some(item);
        }
    }

    /// Bytes of records that wait.
    pub(crate) fn bytes(&self) -> usize {
        self.lock().bytes
    }

    /// What waits of each partition, and whether somebody looks.
    pub(crate) fn waiting(&self) -> BTreeMap<Slot, QueueFacts> {
        let state = self.lock();
        let facts = |slot: &Slot| {
            let lane = state.lanes[slot.index()].as_ref()?;
            let RingId(id) = state.target(lane.ring);
            let (looks, waits) = (state.rings[id].looks, !lane.items.is_empty());
            Some((*slot, QueueFacts { id, looks, records: lane.records, waits }))
        };
        state.index.values().filter_map(facts).collect()
    }

    /// The place of an assigned partition.
    pub(crate) fn place(&self, at: &TopicPartition) -> Option<Arc<Place>> {
        let mut state = self.lock();
        let slot = state.index.get(at).copied()?;
        state.lane(slot).map(|lane| lane.place.clone())
    }

    /// The places of all assigned partitions, in order.
    pub(crate) fn places(&self) -> Vec<Arc<Place>> {
        let state = self.lock();
        let lanes = state.index.values().filter_map(|slot| state.lanes[slot.index()].as_ref());
        lanes.map(|lane| lane.place.clone()).collect()
    }

    /// What wakes those who wait at a queue.
    pub(crate) fn bell(&self, of: RingId) -> Arc<Bell> {
        self.lock().rings[of.0].bell.clone()
    }

    /// Gives a partition a queue of its own, with what waits of it.
    pub(crate) fn split(&self, at: &TopicPartition) -> Option<RingId> {
        let mut state = self.lock();
        let slot = state.index.get(at).copied()?;
        let id = state.free_rings.pop().unwrap_or_else(|| {
            state.rings.push(Ring::default());
            RingId(state.rings.len() - 1)
        });
        state.route(slot, id);
        Some(id)
    }

    /// What comes into one queue, and what waits in it, goes to another from now on; `None` ends that. A circle is
    /// refused.
    pub(crate) fn forward(&self, from: RingId, to: Option<RingId>) -> bool {
        let mut state = self.lock();
        if to.is_some_and(|to| state.target(to) == from) {
            return false;
        }
        state.rings[from.0].forward = to;
        let target = state.target(from);
        if target == from {
            return true;
        }
        let (ready, news) = {
            let ring = &mut state.rings[from.0];
            ring.bell.has_news.store(false, Ordering::Relaxed);
            (std::mem::take(&mut ring.ready), std::mem::take(&mut ring.news))
        };
        let target = &mut state.rings[target.0];
        let came = !ready.is_empty() || !news.is_empty();
        target.bell.has_news.store(!target.news.is_empty() || !news.is_empty(), Ordering::Relaxed);
        target.ready.extend(ready);
        target.news.extend(news);
        let bell = came.then(|| target.bell.clone());
        drop(state);
        ring(bell);
        true
    }

    /// A queue is gone: its partitions' records come from the consumer's own again.
    pub(crate) fn rejoin(&self, gone: RingId) {
        let mut state = self.lock();
        let slots: Vec<Slot> = state.index.values().copied().collect();
        let mut bell = None;
        for slot in slots {
            if state.lane(slot).is_some_and(|lane| lane.ring == gone) {
                bell = state.route(slot, RingId::MAIN).or(bell);
            }
        }
        let left = std::mem::take(&mut state.rings[gone.0]);
        state.waiting -= left.news.len();
        for ring in &mut state.rings {
            ring.forward.take_if(|to| *to == gone);
        }
        state.free_rings.push(gone);
        drop(state);
        ring(bell);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn lane(&mut self, slot: Slot) -> Option<&mut Lane> {
        self.lanes.get_mut(slot.index())?.as_mut()
    }

    /// Where what is meant for a ring really goes.
    fn target(&self, mut ring: RingId) -> RingId {
        while let Some(next) = self.rings[ring.0].forward {
            ring = next;
        }
        ring
    }

    /// Moves a lane to another ring.
    fn route(&mut self, slot: Slot, to: RingId) -> Option<Arc<Bell>> {
        let lane = self.lane(slot)?;
        let from = std::mem::replace(&mut lane.ring, to);
        let was_listed = std::mem::take(&mut lane.listed);
        self.waiting -= usize::from(was_listed);
        let from = self.target(from);
        self.rings[from.0].ready.retain(|listed| *listed != slot);
        self.list(slot)
    }

    /// Notes that a full lane is full no more.
    fn refill(&mut self, slot: Slot) -> bool {
        let Some(lane) = self.lane(slot) else { return false };
        let drained = lane.full && !lane.has_enough();
        if drained {
            lane.full = false;
            let first = !std::mem::replace(&mut lane.refilling, true);
            self.refilling += usize::from(first);
            self.drained.push(slot);
        }
        drained
    }

    /// A poll found nothing: lanes that were held back, and are empty, were held back too much.
    fn starve(&mut self) {
        if self.refilling == 0 {
            return;
        }
        for lane in self.lanes.iter_mut().flatten() {
            if lane.items.is_empty() && std::mem::take(&mut lane.refilling) {
                self.refilling -= 1;
                lane.enough.bytes = lane.enough.bytes.saturating_mul(2);
            }
        }
    }

    /// Puts a lane into its ring if it belongs there and is not in it. Whoever polls empties the ring before waiting:
    /// only the first lane needs to wake.
    fn list(&mut self, slot: Slot) -> Option<Arc<Bell>> {
        let lane = self.lane(slot)?;
        if lane.paused || lane.items.is_empty() || lane.listed {
            return None;
        }
        lane.listed = true;
        let ring = lane.ring;
        let target = self.target(ring);
        let target = &mut self.rings[target.0];
        let first = target.is_empty();
        target.ready.push_back(slot);
        self.waiting += 1;
        first.then(|| target.bell.clone())
    }
}

impl Ring {
    fn is_empty(&self) -> bool {
        self.news.is_empty() && self.ready.is_empty()
    }
}

fn ring(bell: Option<Arc<Bell>>) {
    if let Some(bell) = bell {
        bell.ring();
    }
}

impl Lane {
    fn new(place: Arc<Place>, enough: Enough) -> Self {
        Self {
            place,
            items: VecDeque::new(),
            records: 0,
            bytes: 0,
            enough,
            full: false,
            refilling: false,
            ring: RingId::MAIN,
            paused: false,
            listed: false,
        }
    }

    fn has_enough(&self) -> bool {
        self.records >= self.enough.records || self.bytes >= self.enough.bytes
    }
}

impl Item {
    /// Bytes and records.
    fn size(&self) -> (usize, u64) {
        if let Self::Chunk(chunk) = self { (chunk.records.len(), chunk.count) } else { (0, 0) }
    }
}

#[cfg(test)]
mod tests;
