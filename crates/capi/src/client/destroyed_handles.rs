//! The memory of objects that the application destroyed. It stays for a while, so that a later use of such a handle is an
//! error instead of a read of other memory.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

/// The number of handles of one kind that are kept: mistakes happen soon after the destroy, and the memory is bounded.
const KEPT: usize = 64;

/// The last destroyed handles of one kind.
pub(crate) struct DestroyedHandles<T>(Mutex<VecDeque<T>>);

impl<T> DestroyedHandles<T> {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(VecDeque::new()))
    }

    /// Keeps a handle and frees the oldest.
    pub(crate) fn keep(&self, remains: T) {
        let oldest = {
            let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            kept.push_back(remains);
            if kept.len() > KEPT { kept.pop_front() } else { None }
        };
        drop(oldest);
    }
}
