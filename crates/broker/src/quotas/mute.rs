//! The pause of a connection whose client was throttled (KIP-219).

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::time::Instant;

use super::lock;

/// The time until which no request of a connection is read.
#[derive(Debug, Default)]
pub(crate) struct Mute {
    /// False as long as the client was never throttled: others do not pay for the lock.
    was_set: AtomicBool,
    until: Mutex<Option<Instant>>,
}

impl Mute {
    pub(crate) fn extend(&self, until: Instant) {
        let mut known = lock(&self.until);
        *known = Some(known.map_or(until, |known| known.max(until)));
        self.was_set.store(true, Ordering::Release);
    }

    /// The end of the pause; `None` if there is none, or if it is over.
    pub(crate) fn until(&self) -> Option<Instant> {
        if !self.was_set.load(Ordering::Acquire) {
            return None;
        }
        let mut until = lock(&self.until);
        *until = until.filter(|until| Instant::now() < *until);
        *until
    }
}
