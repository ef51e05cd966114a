//! A switch that says whether a node is up, and wakes tasks when it changes.
//!
//! Not `tokio::sync::watch`: that wakes its receivers in random order, and a simulated run could not be repeated.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// On or off. Begins on.
#[derive(Debug, Default)]
pub(crate) struct Switch {
    /// Even: on.
    flips: AtomicU64,
    /// The switches of a node share it: a task awaits a change of any of them.
    flipped: Arc<Notify>,
}

impl Switch {
    /// Another switch, whose changes also wake the tasks of [`Switch::until`].
    pub(crate) fn beside(&self) -> Self {
        Self { flips: AtomicU64::new(0), flipped: self.flipped.clone() }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.flips.load(Ordering::Acquire).is_multiple_of(2)
    }

    /// Turns it on or off; `false` if it was so before.
    pub(crate) fn turn(&self, on: bool) -> bool {
        let turned = self.flips.fetch_update(Ordering::AcqRel, Ordering::Acquire, |flips| {
            (flips.is_multiple_of(2) != on).then_some(flips + 1)
        });
        if turned.is_ok() {
            self.flipped.notify_waiters();
        }
        turned.is_ok()
    }

    /// Returns the number of changes so far, for [`Switch::turned_since`].
    pub(crate) fn flips(&self) -> u64 {
        self.flips.load(Ordering::Acquire)
    }

    /// Waits until it is not what it was at `flips` any more, even if it is so again. Cancel safe.
    pub(crate) async fn turned_since(&self, flips: u64) {
        self.until(|| self.flips() != flips).await;
    }

    /// Waits until `is_so` returns `true`. It is called after each change of this switch and of those beside it. Cancel safe.
    pub(crate) async fn until(&self, is_so: impl Fn() -> bool) {
        loop {
            let mut turned = pin!(self.flipped.notified());
            turned.as_mut().enable();
            if is_so() {
                return;
            }
            turned.await;
        }
    }
}

/// The listeners of a node, and the number of changes of its [`Switch`] that each has followed.
#[derive(Debug, Default)]
pub(crate) struct Followers {
    followed: Mutex<BTreeMap<usize, u64>>,
    changed: Notify,
}

impl Followers {
    /// Listener `listener` is open or closed as the switch was after so many changes.
    pub(crate) fn set(&self, listener: usize, flips: u64) {
        let before = self.lock().insert(listener, flips);
        if before != Some(flips) {
            self.changed.notify_waiters();
        }
    }

    /// The listener has ended.
    pub(crate) fn remove(&self, listener: usize) {
        self.lock().remove(&listener);
        self.changed.notify_waiters();
    }

    /// Waits until all listeners have followed so many changes. Cancel safe.
    pub(crate) async fn reached(&self, flips: u64) {
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            if self.lock().values().all(|followed| *followed >= flips) {
                return;
            }
            changed.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<usize, u64>> {
        self.followed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
