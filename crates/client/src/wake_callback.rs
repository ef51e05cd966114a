//! A callback that a queue calls when it gets an item, so that it can wake a thread or an event loop.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// The callback of one queue, if one is set.
#[derive(Default)]
pub(crate) struct WakeCallback(Mutex<Option<Arc<dyn Fn() + Send + Sync>>>);

impl fmt::Debug for WakeCallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WakeCallback")
    }
}

impl WakeCallback {
    /// Replaces the callback; `None` removes it.
    pub(crate) fn set(&self, callback: Option<Arc<dyn Fn() + Send + Sync>>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = callback;
    }

    /// Calls the callback.
    pub(crate) fn notify(&self) {
        // Called without the lock: the callback may set another one.
        let callback = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(callback) = callback {
            callback();
        }
    }
}
