//! How many threads of this library run, which programs ask for to see that all handles are gone.

use std::ffi::c_int;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Instant;

use crate::errors::error_object::set_last_error_and_errno;
use crate::ffi::RD_KAFKA_RESP_ERR__TIMED_OUT;
use crate::ffi::panic::on_panic;
use crate::queue::op_queue::timeout_of;

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

#[on_panic(0)]
#[unsafe(no_mangle)]
pub extern "C" fn rd_kafka_thread_cnt() -> c_int {
    RUNNING.load(Ordering::Relaxed)
}

/// 0: nothing failed. The tests are not inside the library.
#[on_panic(1)]
#[unsafe(no_mangle)]
pub extern "C" fn rd_kafka_unittest() -> c_int {
    0
}

/// Counts the client that holds it, from its making until everything of it is gone.
pub(crate) struct LivingClient(());

static LIVING: Mutex<usize> = Mutex::new(0);
static GONE: Condvar = Condvar::new();

impl LivingClient {
    pub(crate) fn new() -> Self {
        *LIVING.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        Self(())
    }
}

impl Drop for LivingClient {
    fn drop(&mut self) {
        *LIVING.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        GONE.notify_all();
    }
}

#[on_panic(-1)]
#[unsafe(no_mangle)]
pub extern "C" fn rd_kafka_wait_destroyed(timeout_ms: c_int) -> c_int {
    let deadline = timeout_of(timeout_ms).and_then(|timeout| Instant::now().checked_add(timeout));
    let mut living = LIVING.lock().unwrap_or_else(PoisonError::into_inner);
    while *living > 0 {
        let Some(deadline) = deadline else {
            living = GONE.wait(living).unwrap_or_else(PoisonError::into_inner);
            continue;
        };
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            set_last_error_and_errno(RD_KAFKA_RESP_ERR__TIMED_OUT, libc::ETIMEDOUT);
            return -1;
        }
        living = GONE.wait_timeout(living, left).unwrap_or_else(PoisonError::into_inner).0;
    }
    0
}
