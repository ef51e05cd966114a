//! The log functions of librdkafka: stderr and syslog.

use std::ffi::{CStr, c_char, c_int};
use std::io::Write;

use crate::ffi::c_strings::text;
use crate::ffi::panic::on_panic;
use crate::ffi::rd_kafka_t;

unsafe extern "C" {
    /// In `handle.rs`.
    fn rd_kafka_name(rk: *const rd_kafka_t) -> *const c_char;
}

/// Prints `%LEVEL|SECONDS|FACILITY|CLIENT| TEXT` to stderr, the format that people grep.
///
/// # Safety
/// `rk` is NULL or a handle, the others are NULL or C strings.
#[on_panic(())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_log_print(
    rk: *const rd_kafka_t,
    level: c_int,
    fac: *const c_char,
    buf: *const c_char,
) {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid place for the time; NULL or C strings (rdkafka.h, `rd_kafka_log_print`).
    let (name, fac, buf) = unsafe {
        libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut now);
        (text(name_of(rk)), text(fac), text(buf))
    };
    let (name, fac, buf) = (name.unwrap_or_default(), fac.unwrap_or_default(), buf.unwrap_or_default());
    let line = format!("%{level}|{}.{:03}|{fac}|{name}| {buf}\n", now.tv_sec as u32, now.tv_nsec / 1_000_000);
    // One write keeps the line whole; a closed stderr is no error.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// Hands the line to syslog.
///
/// # Safety
/// As [`rd_kafka_log_print`].
#[on_panic(())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_log_syslog(
    rk: *const rd_kafka_t,
    level: c_int,
    fac: *const c_char,
    buf: *const c_char,
) {
    // SAFETY: the arguments fit the format; `or_empty` gives C strings.
    unsafe { libc::syslog(level, c"%s: %s: %s".as_ptr(), or_empty(fac), name_of(rk), or_empty(buf)) };
}

unsafe fn name_of(rk: *const rd_kafka_t) -> *const c_char {
    if rk.is_null() {
        return c"".as_ptr();
    }
    // SAFETY: `rk` is NULL or a handle from `rd_kafka_new`, not yet destroyed (required by the C functions that call
    // this).
    or_empty(unsafe { rd_kafka_name(rk) })
}

fn or_empty(text: *const c_char) -> *const c_char {
    const EMPTY: &CStr = c"";
    if text.is_null() { EMPTY.as_ptr() } else { text }
}
