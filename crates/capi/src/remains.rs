//! What is left of objects that the application destroyed: their memory, for a while, so that who uses one of them again is
//! told so instead of reading somebody else's.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

/// So many of a kind are kept: a mistake shows soon after the destroy, and a program that makes clients all day does not grow.
const KEPT: usize = 64;

/// The last of a kind.
pub(crate) struct Remains<T>(Mutex<VecDeque<T>>);

impl<T> Remains<T> {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(VecDeque::new()))
    }

    /// Keeps it, and lets go of the oldest.
    pub(crate) fn keep(&self, remains: T) {
        let oldest = {
            let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            kept.push_back(remains);
            if kept.len() > KEPT { kept.pop_front() } else { None }
        };
        drop(oldest);
    }
}
