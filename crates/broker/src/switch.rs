//! A switch that says whether a node is up, and wakes tasks when it changes.
//!
//! Not `tokio::sync::watch`: that wakes its receivers in random order, and a simulated run could not be repeated.

use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

/// On or off. Begins on.
#[derive(Debug, Default)]
pub(crate) struct Switch {
    /// Even: on.
    flips: AtomicU64,
    flipped: Notify,
}

impl Switch {
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
        loop {
            let mut turned = pin!(self.flipped.notified());
            turned.as_mut().enable();
            if self.flips() != flips {
                return;
            }
            turned.await;
        }
    }
}
