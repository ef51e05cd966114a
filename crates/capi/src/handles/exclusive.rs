//! Objects that one call at a time uses: configurations.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use crate::handles::slot_table::InUse;

/// An object and the thread whose call uses it.
pub(crate) struct Exclusive<T> {
    user: Mutex<Option<ThreadId>>,
    unused: Condvar,
    object: UnsafeCell<T>,
}

// SAFETY: only the thread in `user` has a reference to the object.
unsafe impl<T: Send> Sync for Exclusive<T> {}

/// The use of an exclusive object by a call.
pub(crate) struct ExclusiveUse<T: 'static>(InUse<Exclusive<T>>);

impl<T> Exclusive<T> {
    pub(crate) fn new(object: T) -> Self {
        Self { user: Mutex::new(None), unused: Condvar::new(), object: UnsafeCell::new(object) }
    }

    fn user(&self) -> MutexGuard<'_, Option<ThreadId>> {
        self.user.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> ExclusiveUse<T> {
    /// Waits for the calls of other threads. Returns `None` if a call of this thread uses the object.
    pub(crate) fn of(object: InUse<Exclusive<T>>) -> Option<Self> {
        let own = thread::current().id();
        {
            let mut user = object.user();
            while let Some(other) = *user {
                if other == own {
                    return None;
                }
                user = object.unused.wait(user).unwrap_or_else(PoisonError::into_inner);
            }
            *user = Some(own);
        }
        Some(Self(object))
    }
}

impl<T> Deref for ExclusiveUse<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: this is the only use, by `ExclusiveUse::of`.
        unsafe { &*self.0.object.get() }
    }
}

impl<T> DerefMut for ExclusiveUse<T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above.
        unsafe { &mut *self.0.object.get() }
    }
}

impl<T> Drop for ExclusiveUse<T> {
    fn drop(&mut self) {
        *self.0.user() = None;
        self.0.unused.notify_one();
    }
}
