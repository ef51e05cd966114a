//! loom's types under the names of the standard library.

/// In place of `std::sync`.
pub mod sync {
    pub use loom::sync::{Condvar, Mutex, MutexGuard};
    pub use std::sync::{Arc, OnceLock, PoisonError};

    /// In place of `std::sync::atomic`.
    pub mod atomic {
        pub use loom::sync::atomic::{
            AtomicBool, AtomicI64, AtomicPtr, AtomicU64, AtomicUsize, Ordering, fence,
        };

        /// The barrier of a thread that `membarrier` interrupts.
        pub fn compiler_fence(order: Ordering) {
            fence(order);
        }
    }
}

/// In place of the system call that runs a barrier in all threads.
///
/// C++ has no such barrier. It is modelled as usual: by a fence here, and one in each thread where its compiler fence is.
pub mod membarrier {
    /// The system has the barrier.
    pub fn register() -> bool {
        true
    }

    /// Runs the barrier.
    pub fn run() -> bool {
        loom::sync::atomic::fence(loom::sync::atomic::Ordering::SeqCst);
        true
    }
}
