//! Locks of group names: two groups of different types are not created under one name at once.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The parts of the names that have a lock of their own. A group that computes a target assignment delays few others.
pub(super) const PARTS: usize = 256;

/// A lock for each part of the names. It is taken before all other locks of groups.
#[derive(Debug)]
pub(super) struct NameLocks([Mutex<()>; PARTS]);

impl Default for NameLocks {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Mutex::default()))
    }
}

impl NameLocks {
    pub(super) fn lock(&self, name: &str) -> MutexGuard<'_, ()> {
        self.0[part_of(name)].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The part of a name: FNV-1a, the same in each run, so that the order of the groups is, too.
pub(super) fn part_of(name: &str) -> usize {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    hash as usize % PARTS
}
