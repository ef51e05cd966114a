//! The memory of this library's messages, by its addresses.
//!
//! An application may ask for the error of a message that it allocated itself, such as one of `rd_kafka_produce_batch`. It has
//! nothing behind the fields that C sees, so the addresses say whether there is a slot.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The beginning and the end of each piece of memory.
static PIECES: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());

fn pieces() -> MutexGuard<'static, BTreeMap<usize, usize>> {
    PIECES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Adds a piece of memory that is never freed.
pub(super) fn add(start: usize, len: usize) {
    pieces().insert(start, start + len);
}

/// Returns `true` if a message of this library may be at `address`.
pub(super) fn contains(address: usize) -> bool {
    pieces().range(..=address).next_back().is_some_and(|(_, end)| address < *end)
}

/// The messages of a slice, for as long as this lives.
pub(crate) struct KnownMessages {
    start: usize,
}

impl KnownMessages {
    /// Drop it before the memory of `messages` is freed.
    pub(super) fn of<T>(messages: &[T]) -> Self {
        let start = messages.as_ptr().addr();
        add(start, size_of_val(messages));
        Self { start }
    }
}

impl Drop for KnownMessages {
    fn drop(&mut self) {
        pieces().remove(&self.start);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_known_while_its_slice_is() {
        let messages = [0_u64; 3];
        let last = messages.as_ptr().addr() + 16;
        let known = KnownMessages::of(&messages);
        assert!(contains(last) && !contains(last + 8));
        drop(known);
        assert!(!contains(last));
    }
}
