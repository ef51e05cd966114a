//! Queues of notifications from the engine to the application: statistics, stalls, log lines.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::blocking;
use crate::panics::contained;
use crate::wake_callback::WakeCallback;

/// A bounded queue of notifications. A full queue drops its oldest item for a new one.
///
/// Clones share the queue; each item is returned once.
#[derive(Debug)]
pub struct NotificationQueue<T> {
    shared: Arc<Shared<T>>,
}

#[derive(Debug)]
struct Shared<T> {
    items: Mutex<VecDeque<T>>,
    filled: Notify,
    wake_callback: WakeCallback,
    max: usize,
}

impl<T> Clone for NotificationQueue<T> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<T> NotificationQueue<T> {
    /// Creates a queue that keeps the last `max` items.
    pub(crate) fn keeping(max: usize) -> Self {
        Self {
            shared: Arc::new(Shared {
                items: Mutex::default(),
                filled: Notify::new(),
                wake_callback: WakeCallback::default(),
                max,
            }),
        }
    }

    pub(crate) fn push(&self, item: T) {
        let mut items = self.items();
        if items.len() == self.shared.max {
            items.pop_front();
        }
        items.push_back(item);
        drop(items);
        self.shared.filled.notify_waiters();
        self.shared.wake_callback.notify();
    }

    pub(crate) fn len(&self) -> usize {
        self.items().len()
    }

    /// Returns the next item, if there is one.
    pub fn try_next(&self) -> Option<T> {
        self.items().pop_front()
    }

    /// Waits for the next item. Cancel safe: an item is returned or stays in the queue.
    pub async fn next(&self) -> T {
        loop {
            let mut filled = std::pin::pin!(self.shared.filled.notified());
            filled.as_mut().enable();
            if let Some(item) = self.try_next() {
                return item;
            }
            filled.await;
        }
    }

    /// Blocks the calling thread until there is an item, at most for `timeout`.
    pub fn next_blocking(&self, timeout: Duration) -> Option<T> {
        let mut next = None;
        blocking::wait_until(timeout, &self.shared.filled, || {
            next = self.try_next();
            next.is_some()
        });
        next
    }

    /// Calls `wake` for each new item, in the thread that pushes the item. `wake` must not block. A panic ends only the call.
    pub fn on_filled(&self, wake: impl Fn() + Send + Sync + 'static) {
        self.shared.wake_callback.set(Some(Arc::new(move || {
            let _ = contained(&wake);
        })));
    }

    /// Passes each new item to `take`, in the thread that pushes the item. `take` must not block. A panic ends only the call.
    ///
    /// The callback does not keep the queue alive; a clone of the queue inside [`on_filled`](Self::on_filled) would.
    pub fn on_each(&self, take: impl Fn(T) + Send + Sync + 'static)
    where
        T: Send + 'static,
    {
        let shared = Arc::downgrade(&self.shared);
        self.on_filled(move || {
            let Some(shared) = shared.upgrade() else { return };
            let queue = Self { shared };
            while let Some(item) = queue.try_next() {
                // The items behind it are passed even if it panics.
                let _ = contained(|| take(item));
            }
        });
    }

    fn items(&self) -> MutexGuard<'_, VecDeque<T>> {
        self.shared.items.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_items_make_room_for_the_newest() {
        let queue = NotificationQueue::keeping(2);
        (1..=3).for_each(|n| queue.push(n));
        assert_eq!((queue.try_next(), queue.try_next(), queue.try_next()), (Some(2), Some(3), None));
        assert_eq!(queue.next_blocking(Duration::from_millis(1)), None);
    }

    /// The panic ended the engine's task that pushed the item.
    #[test]
    fn a_callback_that_panics_does_not_reach_the_thread_that_pushes() {
        let (queue, taken) = (NotificationQueue::keeping(2), Arc::new(Mutex::new(Vec::new())));
        let into = taken.clone();
        queue.on_each(move |n| {
            assert_ne!(n, 1, "the application's panic");
            into.lock().expect("no panic while pushing").push(n);
        });
        (1..=3).for_each(|n| queue.push(n));
        assert_eq!(*taken.lock().expect("no panic while pushing"), [2, 3]);
    }
}
