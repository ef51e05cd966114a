//! Queues on which the engine tells the application what it did not ask for: statistics, stalls, log lines.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::blocking;
use crate::ear::Ear;

/// A queue of notices. Whoever does not read it loses the oldest ones: it keeps a fixed number.
///
/// Clones read the same queue; each notice is given once.
#[derive(Debug)]
pub struct Notices<T> {
    shared: Arc<Shared<T>>,
}

#[derive(Debug)]
struct Shared<T> {
    items: Mutex<VecDeque<T>>,
    filled: Notify,
    ear: Ear,
    max: usize,
}

impl<T> Clone for Notices<T> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<T> Notices<T> {
    /// A queue that keeps the last `max` notices.
    pub(crate) fn keeping(max: usize) -> Self {
        Self {
            shared: Arc::new(Shared {
                items: Mutex::default(),
                filled: Notify::new(),
                ear: Ear::default(),
                max,
            }),
        }
    }

    pub(crate) fn push(&self, notice: T) {
        let mut items = self.items();
        if items.len() == self.shared.max {
            items.pop_front();
        }
        items.push_back(notice);
        drop(items);
        self.shared.filled.notify_waiters();
        self.shared.ear.tell();
    }

    pub(crate) fn len(&self) -> usize {
        self.items().len()
    }

    /// The next notice, if there is one.
    pub fn try_next(&self) -> Option<T> {
        self.items().pop_front()
    }

    /// Waits for the next notice. Cancel safe: a notice is returned or stays in the queue.
    pub async fn next(&self) -> T {
        loop {
            let mut filled = std::pin::pin!(self.shared.filled.notified());
            filled.as_mut().enable();
            if let Some(notice) = self.try_next() {
                return notice;
            }
            filled.await;
        }
    }

    /// Blocks the calling thread until there is a notice, at most for `timeout`.
    pub fn next_blocking(&self, timeout: Duration) -> Option<T> {
        let mut next = None;
        blocking::wait_until(timeout, &self.shared.filled, || {
            next = self.try_next();
            next.is_some()
        });
        next
    }

    /// Calls `wake` with every notice that comes, from the thread that gives it: it must not block.
    pub fn on_filled(&self, wake: impl Fn() + Send + Sync + 'static) {
        self.shared.ear.listen(Some(Arc::new(wake)));
    }

    /// Hands every notice that comes to `take`, in the thread that gives it: it must not block.
    ///
    /// The queue is not kept alive by this, as it would be by a clone of it in [`on_filled`](Self::on_filled).
    pub fn on_each(&self, take: impl Fn(T) + Send + Sync + 'static)
    where
        T: Send + 'static,
    {
        let shared = Arc::downgrade(&self.shared);
        self.on_filled(move || {
            let Some(shared) = shared.upgrade() else { return };
            let notices = Self { shared };
            while let Some(notice) = notices.try_next() {
                take(notice);
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
    fn the_oldest_notices_make_room_for_the_newest() {
        let notices = Notices::keeping(2);
        (1..=3).for_each(|n| notices.push(n));
        assert_eq!((notices.try_next(), notices.try_next(), notices.try_next()), (Some(2), Some(3), None));
        assert_eq!(notices.next_blocking(Duration::from_millis(1)), None);
    }
}
