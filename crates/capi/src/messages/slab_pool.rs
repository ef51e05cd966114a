//! Memory that is never returned to the allocator: pieces that the application can still have pointers to.
//!
//! A piece has a mark that says whether its object is alive. The mark can be read after the object is destroyed, because
//! the memory stays a piece of the same type. A piece is reused only after a number of others, so that a second destruction
//! usually finds the mark of the first.

use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

/// Free pieces of memory, the oldest first.
pub(crate) struct SlabPool<T> {
    free: Mutex<VecDeque<FreePiece<T>>>,
    /// The number of pieces that stay unused.
    delay: usize,
}

struct FreePiece<T>(NonNull<T>);

// SAFETY: a free piece has no object, and the pool is its only user.
unsafe impl<T> Send for FreePiece<T> {}

impl<T> SlabPool<T> {
    pub(crate) const fn new(delay: usize) -> Self {
        Self { free: Mutex::new(VecDeque::new()), delay }
    }

    /// Returns a piece that was free for long, or a new one from `allocate`.
    pub(crate) fn take(&self, allocate: impl FnOnce() -> NonNull<T>) -> NonNull<T> {
        let oldest = {
            let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
            if free.len() > self.delay { free.pop_front() } else { None }
        };
        oldest.map_or_else(allocate, |piece| piece.0)
    }

    /// Returns a piece to the pool. It has no object and its mark is cleared.
    pub(crate) fn give(&self, piece: NonNull<T>) {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).push_back(FreePiece(piece));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_is_reused_after_others() {
        let pool: SlabPool<u64> = SlabPool::new(2);
        let new = || NonNull::from(Box::leak(Box::new(0_u64)));
        let first = pool.take(new);
        pool.give(first);
        let others = [pool.take(new), pool.take(new)];
        assert!(!others.contains(&first), "two pieces stay unused");
        for other in others {
            pool.give(other);
        }
        assert_eq!(pool.take(|| unreachable!("three pieces are free")), first);
    }
}
