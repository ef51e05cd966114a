//! The third door: what the engine fetched, waiting for the application to poll it.
//!
//! A lane per partition, and a ring of those that have something: a poll takes one chunk from the first and puts the
//! lane behind the others. The engine puts in slices of responses; the polling thread takes them out, checks and
//! decodes them there. A paused lane keeps what it has and is not in the ring.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::Notify;

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
    /// Producers whose transactions were aborted, with the first offset of each, in order of offset.
    pub(crate) aborted: Vec<(i64, i64)>,
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
    /// Told when something is taken out; the engine waits for room here.
    pub(crate) emptied: Notify,
}

#[derive(Debug, Default)]
struct State {
    lanes: Vec<Option<Lane>>,
    index: BTreeMap<TopicPartition, Slot>,
    /// Lanes to take from, the next one first.
    ready: VecDeque<Slot>,
    /// Events, and errors that are no partition's: they come before all records.
    news: VecDeque<Item>,
    bytes: usize,
}

/// What waits of one partition, in order.
#[derive(Debug)]
struct Lane {
    place: Arc<Place>,
    items: VecDeque<Item>,
    paused: bool,
    /// Whether it is in the ring.
    listed: bool,
}

impl Inbox {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), filled: Notify::new(), emptied: Notify::new() })
    }

    /// Opens a lane for a partition.
    pub(crate) fn open(&self, slot: Slot, place: Arc<Place>) {
        let mut state = self.lock();
        if state.lanes.len() <= slot.index() {
            state.lanes.resize_with(slot.index() + 1, || None);
        }
        state.index.insert(place.at.clone(), slot);
        state.lanes[slot.index()] =
            Some(Lane { place, items: VecDeque::new(), paused: false, listed: false });
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
        let purged = state.lane(slot).map(|lane| std::mem::take(&mut lane.items)).unwrap_or_default();
        state.bytes -= purged.iter().map(Item::bytes).sum::<usize>();
        drop(state);
        self.emptied.notify_one();
    }

    /// Parks a partition's lane or takes it up again; what is in it stays.
    pub(crate) fn pause(&self, at: &TopicPartition, paused: bool) {
        let mut state = self.lock();
        let Some(slot) = state.index.get(at).copied() else { return };
        if let Some(lane) = state.lane(slot) {
            lane.paused = paused;
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
        let bytes = item.bytes();
        lane.items.push_back(item);
        state.bytes += bytes;
        let woken = state.list(slot);
        drop(state);
        self.tell(woken && was_empty);
    }

    /// The next item, if there is one: news first, then each lane in turn.
    pub(crate) fn pop(&self) -> Option<Item> {
        let mut state = self.lock();
        if let Some(item) = state.news.pop_front() {
            return Some(item);
        }
        loop {
            let slot = state.ready.pop_front()?;
            let Some(lane) = state.lane(slot) else { continue };
            lane.listed = false;
            if lane.paused {
                continue;
            }
            let Some(item) = lane.items.pop_front() else { continue };
            state.bytes -= item.bytes();
            state.list(slot);
            drop(state);
            self.emptied.notify_one();
            return Some(item);
        }
    }

    /// Bytes of records that wait.
    pub(crate) fn bytes(&self) -> usize {
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

impl Item {
    fn bytes(&self) -> usize {
        if let Self::Chunk(chunk) = self { chunk.records.len() } else { 0 }
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
            aborted: Vec::new(),
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
        std::iter::from_fn(|| inbox.pop())
            .map(|item| match item {
                Item::Chunk(chunk) => (chunk.place.at.partition, chunk.from),
                _ => (-1, -1),
            })
            .collect()
    }

    #[test]
    fn lanes_take_turns_and_news_come_first() {
        let inbox = Inbox::new();
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
    fn a_paused_lane_keeps_what_it_has_and_a_purged_one_drops_late_answers() {
        let inbox = Inbox::new();
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
