//! How many threads of this library run, which programs ask for to see that all handles are gone.

use std::ffi::c_int;
use std::sync::atomic::{AtomicI32, Ordering};

static RUNNING: AtomicI32 = AtomicI32::new(0);

/// Counts the thread that holds it.
pub struct Counted(());

impl Counted {
    pub fn new() -> Self {
        RUNNING.fetch_add(1, Ordering::Relaxed);
        Self(())
    }
}

impl Default for Counted {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        RUNNING.fetch_sub(1, Ordering::Relaxed);
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn rd_kafka_thread_cnt() -> c_int {
    RUNNING.load(Ordering::Relaxed)
}

/// 0: nothing failed. The tests are not inside the library.
#[unsafe(no_mangle)]
pub extern "C" fn rd_kafka_unittest() -> c_int {
    0
}
