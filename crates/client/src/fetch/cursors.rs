//! The cursors of one consumer, found by slot without a search.

use std::cell::{Cell, RefCell, RefMut};
use std::sync::Arc;

use rustc_hash::FxHashMap;
use tokio::sync::Notify;

use super::cursor::Cursor;
use super::progress::PartitionProgress;
use crate::types::StartAt;
use crate::types::TopicPartition;
use crate::watchdog::consumer::PartitionFacts;

/// The index of an assigned partition. Free slots are used again.
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

/// The table of cursors, shared by the fetcher and the group's tasks.
#[derive(Debug, Default)]
pub(crate) struct Cursors {
    table: RefCell<Table>,
    /// Notified when a cursor has changed.
    pub(crate) changed: Notify,
    pub(crate) snapshot: SnapshotRequest,
}

/// The watchdog's request for a snapshot, and the fetcher's answer.
#[derive(Debug, Default)]
pub(crate) struct SnapshotRequest {
    pub(crate) wanted: Cell<bool>,
    /// Brokers with which the fetcher must begin a new session.
    pub(crate) restart: RefCell<Vec<i32>>,
    pub(crate) found: RefCell<Vec<PartitionFacts>>,
    pub(crate) answered: Notify,
}

#[derive(Debug, Default)]
pub(crate) struct Table {
    slots: Vec<Option<Cursor>>,
    free: Vec<Slot>,
    index: FxHashMap<TopicPartition, Slot>,
    /// Removed partitions that were in a session, with its broker.
    removed: Vec<(i32, Slot)>,
    /// Cursors that changed since the fetcher's last round.
    touched: Vec<Slot>,
}

impl Cursors {
    pub(crate) fn table(&self) -> RefMut<'_, Table> {
        self.table.borrow_mut()
    }

    /// Runs `change` on a partition's cursor, if it is assigned, and notifies the fetcher.
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
    /// Adds a partition that is not in the table.
    pub(crate) fn add(&mut self, progress: Arc<PartitionProgress>, start: StartAt) -> Slot {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            Slot(self.slots.len() as u32 - 1)
        });
        self.index.insert(progress.at.clone(), slot);
        self.slots[slot.index()] = Some(Cursor::new(slot, progress, start));
        self.touch(slot);
        slot
    }

    pub(crate) fn remove(&mut self, slot: Slot) {
        if let Some(cursor) = self.slots.get_mut(slot.index()).and_then(Option::take) {
            self.index.remove(&cursor.progress.at);
            self.removed.extend(cursor.session_at.map(|node| (node, slot)));
            self.free.push(slot);
        }
    }

    pub(crate) fn slot(&self, at: &TopicPartition) -> Option<Slot> {
        self.index.get(at).copied()
    }

    pub(crate) fn get_mut(&mut self, slot: Slot) -> Option<&mut Cursor> {
        self.slots.get_mut(slot.index())?.as_mut()
    }

    /// The number of partitions.
    pub(crate) fn len(&self) -> usize {
        self.index.len()
    }

    /// The slots in use, in order.
    pub(crate) fn all(&self) -> Vec<Slot> {
        let used = |(i, cursor): (usize, &Option<Cursor>)| cursor.as_ref().map(|_| Slot(i as u32));
        self.slots.iter().enumerate().filter_map(used).collect()
    }

    /// Marks a cursor as changed.
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

    /// Partitions that were in a session and were removed since the last call.
    pub(crate) fn take_removed(&mut self) -> Vec<(i32, Slot)> {
        std::mem::take(&mut self.removed)
    }

    /// Cursors that changed since the last call.
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
