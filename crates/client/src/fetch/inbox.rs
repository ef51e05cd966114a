//! The third door: what the engine fetched, waiting for the application to poll it.
//!
//! A lane per partition, and a ring of those that have something: a poll takes one chunk from the first and puts the
//! lane behind the others. The engine puts in slices of responses; the polling thread takes them out, checks and
//! decodes them there. A paused lane keeps what it has and is not in the ring.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::Notify;

use super::aborted::Aborted;
use super::budget::Budget;
use super::cursors::Slot;
use super::place::Place;
use crate::consumer::{Event, TopicPartition};
use crate::error::Error;

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
    /// Told when something comes in.
    pub(crate) filled: Notify,
    /// Told when something is taken out or given back; the engine waits for room here.
    pub(crate) emptied: Arc<Notify>,
    pub(crate) budget: Arc<Budget>,
    has_news: AtomicBool,
    /// So many records of one partition are enough.
    lane_records_enough: u64,
}

#[derive(Debug, Default)]
struct State {
    lanes: Vec<Option<Lane>>,
    index: BTreeMap<TopicPartition, Slot>,
    /// Lanes to take from, the next one first.
    ready: VecDeque<Slot>,
    /// Events, and errors that are no partition's: they come before all records.
    news: VecDeque<Item>,
    /// Lanes that were full and are not any more.
    drained: Vec<Slot>,
    bytes: usize,
}

/// What waits of one partition, in order.
#[derive(Debug)]
struct Lane {
    place: Arc<Place>,
    items: VecDeque<Item>,
    records: u64,
    /// Whether the engine was told that there is enough in it.
    full: bool,
    paused: bool,
    /// Whether it is in the ring.
    listed: bool,
}

impl Inbox {
    pub(crate) fn new(bytes_max: usize, lane_records_enough: u64) -> Arc<Self> {
        let emptied = Arc::<Notify>::default();
        let budget = Budget::new(bytes_max, emptied.clone());
        Arc::new(Self {
            state: Mutex::default(),
            filled: Notify::new(),
            emptied,
            budget,
            has_news: AtomicBool::new(false),
            lane_records_enough,
        })
    }

    /// Opens a lane for a partition.
    pub(crate) fn open(&self, slot: Slot, place: Arc<Place>) {
        let mut state = self.lock();
        if state.lanes.len() <= slot.index() {
            state.lanes.resize_with(slot.index() + 1, || None);
        }
        state.index.insert(place.at.clone(), slot);
        state.lanes[slot.index()] = Some(Lane::new(place));
    }

    /// Closes a lane; what is in it is thrown away.
    pub(crate) fn close(&self, slot: Slot) {
        self.purge(slot);
        let mut state = self.lock();
        if let Some(lane) = state.lanes.get_mut(slot.index()).and_then(Option::take) {
            lane.place.next_turn();
            state.index.remove(&lane.place.at);
            if lane.listed {
                state.ready.retain(|listed| *listed != slot);
            }
        }
    }

    /// Throws away what was fetched of one partition.
    pub(crate) fn purge(&self, slot: Slot) {
        let mut state = self.lock();
        let Some(lane) = state.lane(slot) else { return };
        let purged = std::mem::take(&mut lane.items);
        lane.records = 0;
        state.bytes -= purged.iter().map(Item::bytes).sum::<usize>();
        state.refill(slot, self.lane_records_enough);
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
        let woken = state.list(slot);
        drop(state);
        if woken {
            self.filled.notify_one();
        }
    }

    /// Adds an event, or an error that is no partition's.
    pub(crate) fn push(&self, item: Item) {
        let mut state = self.lock();
        let was_empty = state.is_empty();
        state.news.push_back(item);
        self.has_news.store(true, Ordering::Relaxed);
        drop(state);
        self.tell(was_empty);
    }

    /// Adds an item to a partition's lane, behind what is in it; a chunk of an older turn is dropped.
    pub(crate) fn push_to(&self, slot: Slot, item: Item) {
        let mut state = self.lock();
        let was_empty = state.is_empty();
        let Some(lane) = state.lane(slot) else { return };
        if let Item::Chunk(chunk) = &item
            && (!Arc::ptr_eq(&chunk.place, &lane.place) || chunk.turn != lane.place.turn())
        {
            return;
        }
        let (bytes, records) = item.size();
        lane.items.push_back(item);
        lane.records += records;
        state.bytes += bytes;
        let woken = state.list(slot);
        drop(state);
        self.tell(woken && was_empty);
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
        state.bytes += bytes;
        state.list(slot);
    }

    /// Whether a partition has as much waiting as it needs. If so, [`Inbox::take_drained`] names it when that is over.
    pub(crate) fn is_full(&self, slot: Slot) -> bool {
        let mut state = self.lock();
        let Some(lane) = state.lane(slot) else { return false };
        lane.full = lane.records >= self.lane_records_enough;
        lane.full
    }

    /// Lanes that were full at the last look and are not any more.
    pub(crate) fn take_drained(&self) -> Vec<Slot> {
        std::mem::take(&mut self.lock().drained)
    }

    /// Whether a poll would find nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty()
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
                from = Some(chunk.from);
                state.bytes -= chunk.records.len();
            }
            rewound.extend(from.map(|from| (slot, from)));
        }
        rewound
    }

    /// Whether there is something that comes before all records.
    #[inline]
    pub(crate) fn has_news(&self) -> bool {
        self.has_news.load(Ordering::Relaxed)
    }

    /// The next item, if there is one: news first, then, unless only they are wanted, each lane in turn.
    pub(crate) fn pop(&self, news_only: bool) -> Option<Item> {
        let mut state = self.lock();
        let news = state.news.pop_front();
        self.has_news.store(!state.news.is_empty(), Ordering::Relaxed);
        if news.is_some() || news_only {
            return news;
        }
        loop {
            let slot = state.ready.pop_front()?;
            let Some(lane) = state.lane(slot) else { continue };
            lane.listed = false;
            if lane.paused {
                continue;
            }
            let Some(item) = lane.items.pop_front() else { continue };
            let (bytes, records) = item.size();
            lane.records -= records;
            state.bytes -= bytes;
            state.list(slot);
            if matches!(&item, Item::Chunk(chunk) if !chunk.is_current()) {
                continue;
            }
            let drained = state.refill(slot, self.lane_records_enough);
            let empty = state.is_empty();
            drop(state);
            // Room comes back when the last slice of a response is dropped, and the budget says so.
            if drained || empty {
                self.emptied.notify_one();
            }
            return Some(item);
        }
    }

    /// Bytes of records that wait.
    #[cfg(test)]
    fn bytes(&self) -> usize {
        self.lock().bytes
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

    /// Whoever polls empties the queue before waiting: only the first item needs to wake.
    fn tell(&self, first: bool) {
        if first {
            self.filled.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn lane(&mut self, slot: Slot) -> Option<&mut Lane> {
        self.lanes.get_mut(slot.index())?.as_mut()
    }

    fn is_empty(&self) -> bool {
        self.news.is_empty() && self.ready.is_empty()
    }

    /// Notes that a full lane is full no more.
    fn refill(&mut self, slot: Slot, enough: u64) -> bool {
        let Some(lane) = self.lane(slot) else { return false };
        let drained = lane.full && lane.records < enough;
        if drained {
            lane.full = false;
            self.drained.push(slot);
        }
        drained
    }

    /// Puts a lane into the ring if it belongs there and is not in it.
    fn list(&mut self, slot: Slot) -> bool {
        let Some(lane) = self.lane(slot) else { return false };
        let belongs = !lane.paused && !lane.items.is_empty() && !lane.listed;
        if belongs {
            lane.listed = true;
            self.ready.push_back(slot);
        }
        belongs
    }
}

impl Lane {
    fn new(place: Arc<Place>) -> Self {
        Self { place, items: VecDeque::new(), records: 0, full: false, paused: false, listed: false }
    }
}

impl Item {
    fn bytes(&self) -> usize {
        self.size().0
    }

    /// Bytes and records.
    fn size(&self) -> (usize, u64) {
        if let Self::Chunk(chunk) = self { (chunk.records.len(), chunk.count) } else { (0, 0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(place: &Arc<Place>, from: i64, bytes: usize) -> Item {
        Item::Chunk(Chunk {
            place: place.clone(),
            turn: place.turn(),
            from,
            next: from + 1,
            high_watermark: 100,
            records: Bytes::from(vec![0; bytes]),
            count: 1,
            aborted: Aborted::new(Vec::new()),
        })
    }

    fn lanes(inbox: &Inbox, count: u32) -> Vec<(Slot, Arc<Place>)> {
        let place = |i| Arc::new(Place::new(TopicPartition::new("orders", i as i32)));
        let lanes: Vec<_> = (0..count).map(|i| (Slot::new(i), place(i))).collect();
        for (slot, place) in &lanes {
            inbox.open(*slot, place.clone());
        }
        lanes
    }

    /// Partition and offset of what is taken out, until nothing is left.
    fn drain(inbox: &Inbox) -> Vec<(i32, i64)> {
        std::iter::from_fn(|| inbox.pop(false))
            .map(|item| match item {
                Item::Chunk(chunk) => (chunk.place.at.partition, chunk.from),
                _ => (-1, -1),
            })
            .collect()
    }

    #[test]
    fn lanes_take_turns_and_news_come_first() {
        let inbox = Inbox::new(1 << 20, 2);
        let lanes = lanes(&inbox, 3);
        for from in 0..3 {
            inbox.push_to(lanes[0].0, chunk(&lanes[0].1, from, 10));
        }
        inbox.push_to(lanes[2].0, chunk(&lanes[2].1, 0, 10));
        inbox.push(Item::Event(Event::Assigned(Vec::new())));
        assert_eq!(inbox.bytes(), 40);
        assert_eq!(drain(&inbox), [(-1, -1), (0, 0), (2, 0), (0, 1), (0, 2)]);
        assert_eq!(inbox.bytes(), 0);
    }

    #[test]
    fn a_lane_with_enough_says_when_it_has_not() {
        let inbox = Inbox::new(1 << 20, 2);
        let lanes = lanes(&inbox, 1);
        for from in 0..3 {
            inbox.push_to(lanes[0].0, chunk(&lanes[0].1, from, 10));
        }
        assert!(inbox.is_full(lanes[0].0));
        inbox.pop(false);
        assert_eq!(inbox.take_drained(), [], "there is still enough");
        inbox.pop(false);
        assert_eq!(inbox.take_drained(), [lanes[0].0]);
        assert!(!inbox.is_full(lanes[0].0));
    }

    #[test]
    fn parked_chunks_make_room_the_newest_first() {
        let inbox = Inbox::new(1000, 2);
        let lanes = lanes(&inbox, 2);
        for from in 0..3 {
            let Item::Chunk(mut parked) = chunk(&lanes[1].1, from, 0) else { unreachable!() };
            parked.records = inbox.budget.hold(vec![0; 300]);
            inbox.push_to(lanes[1].0, Item::Chunk(parked));
        }
        inbox.pause(&lanes[1].1.at, true);
        assert_eq!(inbox.drop_parked(500), [(lanes[1].0, 1)]);
        assert_eq!((inbox.budget.room(), inbox.bytes()), (700, 300));
    }

    #[test]
    fn a_paused_lane_keeps_what_it_has_and_a_purged_one_drops_late_answers() {
        let inbox = Inbox::new(1 << 20, 2);
        let lanes = lanes(&inbox, 2);
        inbox.push_to(lanes[0].0, chunk(&lanes[0].1, 0, 10));
        inbox.push_to(lanes[1].0, chunk(&lanes[1].1, 0, 10));
        inbox.pause(&lanes[0].1.at, true);
        assert_eq!(drain(&inbox), [(1, 0)]);
        assert_eq!(inbox.bytes(), 10, "parked, not thrown away");
        inbox.pause(&lanes[0].1.at, false);
        assert_eq!(drain(&inbox), [(0, 0)]);

        let late = chunk(&lanes[0].1, 1, 10);
        lanes[0].1.next_turn();
        inbox.push_to(lanes[0].0, late);
        assert_eq!(drain(&inbox), []);

        inbox.close(lanes[1].0);
        inbox.push_to(lanes[1].0, chunk(&lanes[1].1, 1, 10));
        assert_eq!((drain(&inbox), inbox.bytes()), (vec![], 0));
        assert!(inbox.place(&lanes[1].1.at).is_none());
    }
}
