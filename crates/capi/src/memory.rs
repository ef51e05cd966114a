//! Memory that crosses the boundary is C's.

use std::ffi::c_void;

use crate::ffi::rd_kafka_t;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_mem_malloc(_rk: *mut rd_kafka_t, size: usize) -> *mut c_void {
    // SAFETY: plain malloc.
    unsafe { libc::malloc(size) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_mem_calloc(_rk: *mut rd_kafka_t, num: usize, size: usize) -> *mut c_void {
    // SAFETY: plain calloc.
    unsafe { libc::calloc(num, size) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_mem_free(_rk: *mut rd_kafka_t, ptr: *mut c_void) {
    // SAFETY: NULL or memory that this library gave away, by contract.
    unsafe { libc::free(ptr) };
}
