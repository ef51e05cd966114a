//! The times at which the locks of share partitions end. A share partition without locks has no entry, and costs nothing.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::cluster::lock;

/// The owners of locks by the time at which their first lock ends, or an earlier time.
#[derive(Debug)]
pub(super) struct LockEnds<T> {
    entries: Mutex<BTreeMap<(Instant, u64), Weak<T>>>,
    numbers: AtomicU64,
    /// Notified when an entry has become the first one.
    pub(super) changed: Notify,
}

/// The entry of one owner. It leaves the table when this is dropped.
#[derive(Debug)]
pub(super) struct LockEnd<T> {
    table: Arc<LockEnds<T>>,
    number: u64,
    at: Option<Instant>,
}

impl<T> LockEnds<T> {
    pub(super) fn new() -> Self {
        Self { entries: Mutex::default(), numbers: AtomicU64::new(0), changed: Notify::new() }
    }

    /// Removes the first entry whose time has come, and returns its owner.
    pub(super) fn take_ended(&self, now: Instant) -> Option<Arc<T>> {
        let mut entries = lock(&self.entries);
        while let Some(first) = entries.first_entry() {
            if first.key().0 > now {
                return None;
            }
            if let Some(owner) = first.remove().upgrade() {
                return Some(owner);
            }
        }
        None
    }

    /// The time of the first entry.
    pub(super) fn first(&self) -> Option<Instant> {
        lock(&self.entries).first_key_value().map(|((at, _), _)| *at)
    }
}

impl<T> LockEnd<T> {
    /// No entry yet.
    pub(super) fn new(table: &Arc<LockEnds<T>>) -> Self {
        Self { table: table.clone(), number: table.numbers.fetch_add(1, Ordering::Relaxed), at: None }
    }

    /// Moves the entry. A time that is the same costs a comparison.
    pub(super) fn set(&mut self, at: Option<Instant>, owner: impl FnOnce() -> Weak<T>) {
        if at == self.at {
            return;
        }
        self.remove();
        let Some(at) = at else { return };
        let key = (at, self.number);
        let is_first = {
            let mut entries = lock(&self.table.entries);
            entries.insert(key, owner());
            entries.first_key_value().is_some_and(|(first, _)| *first == key)
        };
        self.at = Some(at);
        if is_first {
            self.table.changed.notify_one();
        }
    }

    /// Removes the entry, if there is one.
    pub(super) fn remove(&mut self) {
        if let Some(at) = self.at.take() {
            lock(&self.table.entries).remove(&(at, self.number));
        }
    }
}

impl<T> Drop for LockEnd<T> {
    fn drop(&mut self) {
        self.remove();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn owners_come_in_the_order_of_their_times_and_leave_with_their_entries() {
        let (table, now) = (Arc::new(LockEnds::<&str>::new()), Instant::now());
        let (a, b) = (Arc::new("a"), Arc::new("b"));
        let at = |seconds| Some(now + Duration::from_secs(seconds));
        let (mut of_a, mut of_b) = (LockEnd::new(&table), LockEnd::new(&table));
        of_a.set(at(30), || Arc::downgrade(&a));
        of_b.set(at(30), || Arc::downgrade(&b));
        of_a.set(at(60), || Arc::downgrade(&a));
        assert_eq!(table.first(), at(30));
        assert_eq!(table.take_ended(now), None);
        let later = now + Duration::from_secs(60);
        assert_eq!([table.take_ended(later), table.take_ended(later)], [Some(b.clone()), Some(a.clone())]);
        assert_eq!((table.take_ended(later), table.first()), (None, None));
        // The entry was taken: it is set again after its removal.
        of_b.remove();
        of_b.set(at(30), || Arc::downgrade(&b));
        assert_eq!(table.first(), at(30));
        drop(of_b);
        assert_eq!(table.first(), None);
        of_a.remove();
        of_a.set(at(30), || Arc::downgrade(&a));
        drop(a);
        assert_eq!(table.take_ended(later), None, "the owner does not exist any more");
    }
}
