//! Which librdkafka this stands in for.

use std::ffi::{c_char, c_int};

use crate::ffi::RD_KAFKA_VERSION;

/// The version whose interface this is; bindings refuse one that is older than the header they were built with.
#[unsafe(no_mangle)]
pub extern "C" fn rd_kafka_version() -> c_int {
    RD_KAFKA_VERSION
}

#[unsafe(no_mangle)]
pub extern "C" fn rd_kafka_version_str() -> *const c_char {
    c"2.16.0".as_ptr()
}
