//! A counter that tasks of the engine wait for.
//!
//! Not `tokio::sync::watch`: that wakes its receivers in random order, and a simulated run could not be repeated.

use std::cell::Cell;
use std::rc::Rc;

use tokio::sync::Notify;

/// The side that counts.
#[derive(Debug, Default)]
pub(crate) struct Counter {
    shared: Rc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    count: Cell<u64>,
    raised: Notify,
}

/// The side that waits: told of each count since the last time it was told.
#[derive(Debug)]
pub(crate) struct Changes {
    shared: Rc<Shared>,
    seen: u64,
}

impl Counter {
    /// Counts, and wakes everyone in the order in which they began to wait.
    pub(crate) fn raise(&self) {
        self.shared.count.set(self.shared.count.get() + 1);
        self.shared.raised.notify_waiters();
    }

    /// Waits for counts from now on.
    pub(crate) fn changes(&self) -> Changes {
        Changes { shared: self.shared.clone(), seen: self.shared.count.get() }
    }
}

impl Changes {
    /// Waits until it was counted. Cancel safe.
    pub(crate) async fn changed(&mut self) {
        // One thread: nothing can be counted between the look and the wait.
        while self.shared.count.get() == self.seen {
            self.shared.raised.notified().await;
        }
        self.seen = self.shared.count.get();
    }
}
