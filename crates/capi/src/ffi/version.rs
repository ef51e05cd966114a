//! The version of librdkafka whose interface this library has.

use std::ffi::{c_char, c_int};
use std::ptr::null;

use crate::ffi::RD_KAFKA_VERSION;
use crate::ffi::panic::on_panic;

/// The version whose interface this is; bindings refuse one that is older than the header they were built with.
#[on_panic(0)]
#[unsafe(no_mangle)]
pub extern "C" fn rd_kafka_version() -> c_int {
    RD_KAFKA_VERSION
}

#[on_panic(null())]
#[unsafe(no_mangle)]
pub extern "C" fn rd_kafka_version_str() -> *const c_char {
    c"2.16.0".as_ptr()
}
