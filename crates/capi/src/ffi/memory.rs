//! Memory that crosses the boundary is C's.

use std::ffi::c_void;
use std::ptr::null_mut;

use crate::ffi::panic::on_panic;
use crate::ffi::rd_kafka_t;

#[on_panic(null_mut())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_mem_malloc(_rk: *mut rd_kafka_t, size: usize) -> *mut c_void {
    // SAFETY: plain malloc.
    unsafe { libc::malloc(size) }
}

#[on_panic(null_mut())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_mem_calloc(_rk: *mut rd_kafka_t, num: usize, size: usize) -> *mut c_void {
    // SAFETY: plain calloc.
    unsafe { libc::calloc(num, size) }
}

#[on_panic(())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_mem_free(_rk: *mut rd_kafka_t, ptr: *mut c_void) {
    // SAFETY: `ptr` is NULL or memory that this library allocated for the application (rdkafka.h, `rd_kafka_mem_free`).
    unsafe { libc::free(ptr) };
}

/// Memory of malloc, or NULL; freed when it is dropped.
pub(crate) struct MallocedMemory(*mut c_void);

impl MallocedMemory {
    /// `pointer` is NULL or comes from malloc, and no one else frees it.
    pub(crate) fn new(pointer: *mut c_void) -> Self {
        Self(pointer)
    }

    pub(crate) fn as_ptr(&self) -> *mut c_void {
        self.0
    }

    /// The application frees it.
    pub(crate) fn forget(&mut self) {
        self.0 = null_mut();
    }

    /// As [`MallocedMemory::forget`], by value.
    pub(crate) fn leak(mut self) {
        self.forget();
    }
}

impl Drop for MallocedMemory {
    fn drop(&mut self) {
        // SAFETY: NULL or memory of malloc that this value owns.
        unsafe { libc::free(self.0) };
    }
}
