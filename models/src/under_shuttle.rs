//! shuttle's types under the names of the standard library and of Tokio.

pub mod tokio_sync;

/// In place of `std::thread`. No wait ends by its time-out.
pub use shuttle::thread;

/// In place of `tokio::task`.
pub mod tokio_task {
    /// In place of `tokio::task::coop`.
    pub mod coop {
        /// A model has no budgets.
        pub fn unconstrained<F>(future: F) -> F {
            future
        }
    }
}

/// In place of `std::sync`.
pub mod sync {
    pub use shuttle::sync::{Condvar, Mutex, MutexGuard};
    pub use std::sync::{Arc, PoisonError, Weak};

    /// In place of `std::sync::OnceLock`, of which shuttle has none. Another thread may run before each look at it.
    #[derive(Debug, Default)]
    pub struct OnceLock<T>(std::sync::OnceLock<T>);

    impl<T> OnceLock<T> {
        /// A lock without a value.
        pub const fn new() -> Self {
            Self(std::sync::OnceLock::new())
        }

        /// The value, if there is one.
        pub fn get(&self) -> Option<&T> {
            others_may_run();
            self.0.get()
        }

        /// Sets the value, if there is none.
        pub fn set(&self, value: T) -> Result<(), T> {
            others_may_run();
            self.0.set(value)
        }

        /// The value, which is made if there is none. `make` must not wait for another thread.
        pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
            others_may_run();
            self.0.get_or_init(make)
        }
    }

    fn others_may_run() {
        atomic::AtomicBool::new(false).load(atomic::Ordering::SeqCst);
    }

    /// In place of `std::sync::atomic`.
    pub mod atomic {
        pub use shuttle::sync::atomic::{
            AtomicBool, AtomicI64, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering,
        };

        /// All memory is sequentially consistent.
        pub fn compiler_fence(_: Ordering) {}
    }
}

/// In place of the system call that runs a barrier in all threads.
pub mod membarrier {
    /// The system has the barrier.
    pub fn register() -> bool {
        true
    }

    /// All memory is sequentially consistent.
    pub fn run() -> bool {
        true
    }
}
