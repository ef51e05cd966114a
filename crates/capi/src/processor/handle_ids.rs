//! Ids that C holds in place of addresses.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Ids differ by this much: they look like addresses of something, and none is NULL.
const STEP: usize = 16;

/// Things by name. A name is given out once, and means something in the process that gave it.
pub(super) struct HandleIds<T> {
    given: AtomicUsize,
    things: Mutex<BTreeMap<usize, (u32, Arc<T>)>>,
}

/// A name's number, counted from 1.
pub(super) const fn number(name: usize) -> usize {
    name / STEP
}

impl<T> HandleIds<T> {
    pub(super) const fn new() -> Self {
        Self { given: AtomicUsize::new(0), things: Mutex::new(BTreeMap::new()) }
    }

    pub(super) fn next(&self) -> usize {
        (self.given.fetch_add(1, Ordering::Relaxed) + 1) * STEP
    }

    pub(super) fn insert(&self, name: usize, thing: T) {
        self.lock().insert(name, (std::process::id(), Arc::new(thing)));
    }

    pub(super) fn get(&self, name: usize) -> Option<Arc<T>> {
        let things = self.lock();
        let (process, thing) = things.get(&name)?;
        (*process == std::process::id()).then(|| thing.clone())
    }

    pub(super) fn remove(&self, name: usize) -> Option<Arc<T>> {
        self.lock().remove(&name).map(|(_, thing)| thing)
    }

    /// Changes an object that no other call uses.
    pub(super) fn change<R>(&self, name: usize, change: impl FnOnce(&mut T) -> R) -> Option<R>
    where
        T: Clone,
    {
        let mut things = self.lock();
        let (_, thing) = things.get_mut(&name)?;
        Some(change(Arc::make_mut(thing)))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<usize, (u32, Arc<T>)>> {
        self.things.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
