//! A function that is called when something has come: how queues wake those who wait elsewhere.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// Room for one such function.
#[derive(Default)]
pub(crate) struct Ear(Mutex<Option<Arc<dyn Fn() + Send + Sync>>>);

impl fmt::Debug for Ear {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ear")
    }
}

impl Ear {
    /// Calls `listener`, from now on, instead of whoever was called before.
    pub(crate) fn listen(&self, listener: Option<Arc<dyn Fn() + Send + Sync>>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = listener;
    }

    /// Something has come.
    pub(crate) fn tell(&self) {
        // Called without the lock: the listener may set another.
        let listener = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(listener) = listener {
            listener();
        }
    }
}
