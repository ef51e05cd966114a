//! The partitions that one consumer fetches: each in a slot, found without a search.

use std::cell::{Cell, RefCell, RefMut};
use std::sync::Arc;

use rustc_hash::FxHashMap;
use tokio::sync::Notify;

use super::cursor::{Cursor, StartAt};
use super::place::Place;
use crate::consumer::TopicPartition;
use crate::watchdog::consumer::PartitionFacts;

/// Where an assigned partition is kept. Free ones are used again.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) struct Slot(u32);

impl Slot {
    #[cfg(test)]
    pub(super) const fn new(index: u32) -> Self {
        Self(index)
    }

    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Shared by the fetcher and by whoever changes the assignment.
#[derive(Debug, Default)]
pub(crate) struct Cursors {
    table: RefCell<Table>,
    /// Told when a cursor has changed.
    pub(crate) changed: Notify,
    pub(crate) survey: SurveyWish,
}

/// What the watchdog asks the fetcher.
#[derive(Debug, Default)]
pub(crate) struct SurveyWish {
    pub(crate) wanted: Cell<bool>,
    /// Brokers with which to begin a new session.
    pub(crate) restart: RefCell<Vec<i32>>,
    pub(crate) found: RefCell<Vec<PartitionFacts>>,
    pub(crate) answered: Notify,
}

#[derive(Debug, Default)]
pub(crate) struct Table {
    slots: Vec<Option<Cursor>>,
    free: Vec<Slot>,
    index: FxHashMap<TopicPartition, Slot>,
    /// Brokers whose sessions had partitions that were removed.
    left: Vec<(i32, Slot)>,
    /// What the fetcher has to look at: each of them may want something else than before.
    touched: Vec<Slot>,
}

impl Cursors {
    pub(crate) fn table(&self) -> RefMut<'_, Table> {
        self.table.borrow_mut()
    }

    /// Runs `change` on one partition's cursor, if it is assigned, and tells the fetcher.
    pub(crate) fn update<T>(&self, at: &TopicPartition, change: impl FnOnce(&mut Cursor) -> T) -> Option<T> {
        let mut table = self.table();
        let slot = table.slot(at)?;
        let result = table.get_mut(slot).map(change);
        table.touch(slot);
        self.changed.notify_one();
        result
    }
}

impl Table {
    /// Adds a partition that is not there.
    pub(crate) fn add(&mut self, place: Arc<Place>, start: StartAt) -> Slot {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            Slot(self.slots.len() as u32 - 1)
        });
        self.index.insert(place.at.clone(), slot);
        self.slots[slot.index()] = Some(Cursor::new(slot, place, start));
        self.touch(slot);
        slot
    }

    pub(crate) fn remove(&mut self, slot: Slot) {
        if let Some(cursor) = self.slots.get_mut(slot.index()).and_then(Option::take) {
            self.index.remove(&cursor.place.at);
            self.left.extend(cursor.session_at.map(|node| (node, slot)));
            self.free.push(slot);
        }
    }

    pub(crate) fn slot(&self, at: &TopicPartition) -> Option<Slot> {
        self.index.get(at).copied()
    }

    pub(crate) fn get_mut(&mut self, slot: Slot) -> Option<&mut Cursor> {
        self.slots.get_mut(slot.index())?.as_mut()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.index.len()
    }

    /// Every slot in use, in order.
    pub(crate) fn all(&self) -> Vec<Slot> {
        let used = |(i, cursor): (usize, &Option<Cursor>)| cursor.as_ref().map(|_| Slot(i as u32));
        self.slots.iter().enumerate().filter_map(used).collect()
    }

    /// The fetcher shall look at this cursor.
    pub(crate) fn touch(&mut self, slot: Slot) {
        let Some(cursor) = self.get_mut(slot) else { return };
        if !cursor.touched {
            cursor.touched = true;
            self.touched.push(slot);
        }
    }

    pub(crate) fn touch_all(&mut self) {
        for slot in self.all() {
            self.touch(slot);
        }
    }

    /// Removed partitions that were in a session, since the last call.
    pub(crate) fn take_left(&mut self) -> Vec<(i32, Slot)> {
        std::mem::take(&mut self.left)
    }

    /// What was touched since the last call.
    pub(crate) fn take_touched(&mut self) -> Vec<Slot> {
        let touched = std::mem::take(&mut self.touched);
        for slot in &touched {
            if let Some(cursor) = self.get_mut(*slot) {
                cursor.touched = false;
            }
        }
        touched
    }
}
