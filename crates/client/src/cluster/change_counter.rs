//! A counter that tasks of the engine wait for.
//!
//! `tokio::sync::watch` wakes its receivers in random order, so a simulated run would not be reproducible.

use std::cell::Cell;
use std::rc::Rc;

use tokio::sync::Notify;

/// The side that counts changes.
#[derive(Debug, Default)]
pub(crate) struct ChangeCounter {
    shared: Rc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    count: Cell<u64>,
    raised: Notify,
}

/// The side that waits for changes since its last return.
#[derive(Debug)]
pub(crate) struct ChangeWaiter {
    shared: Rc<Shared>,
    seen: u64,
}

impl ChangeCounter {
    /// Counts a change, and wakes the waiters in order.
    pub(crate) fn raise(&self) {
        self.shared.count.set(self.shared.count.get() + 1);
        self.shared.raised.notify_waiters();
    }

    /// Returns a waiter for changes from now on.
    pub(crate) fn changes(&self) -> ChangeWaiter {
        ChangeWaiter { shared: self.shared.clone(), seen: self.shared.count.get() }
    }
}

impl ChangeWaiter {
    /// Waits for a change. Cancel safe.
    pub(crate) async fn changed(&mut self) {
        // One thread: no change can come between the check and the wait.
        while self.shared.count.get() == self.seen {
            self.shared.raised.notified().await;
        }
        self.seen = self.shared.count.get();
    }
}
