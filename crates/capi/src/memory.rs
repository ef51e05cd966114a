//! Memory that crosses the boundary is C's.

use std::ffi::c_void;
use std::ptr::null_mut;

use crate::ffi::rd_kafka_t;
use crate::panic::on_panic;

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
