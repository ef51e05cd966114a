//! Functions with variable arguments, called as C calls them.

#![allow(unsafe_code, reason = "C's functions")]

use std::ffi::{CStr, c_char, c_int};

use rdkafka::errors::error_object::{rd_kafka_error_code, rd_kafka_error_destroy, rd_kafka_error_string};
use rdkafka::ffi::{RD_KAFKA_RESP_ERR__TIMED_OUT, rd_kafka_error_t};

#[allow(improper_ctypes, reason = "the inside of an error is not looked at")]
unsafe extern "C" {
    fn rd_kafka_error_new(code: c_int, fmt: *const c_char, ...) -> *mut rd_kafka_error_t;
}

#[test]
fn an_error_is_made_of_a_format_and_its_arguments() {
    // SAFETY: the arguments fit the format, and the error is freed once.
    unsafe {
        let format = c"%s %d %lld %.1f %s";
        let error = rd_kafka_error_new(
            RD_KAFKA_RESP_ERR__TIMED_OUT,
            format.as_ptr(),
            c"topic".as_ptr(),
            7 as c_int,
            1_i64 << 40,
            2.5_f64,
            c"end".as_ptr(),
        );
        assert_eq!(rd_kafka_error_code(error), RD_KAFKA_RESP_ERR__TIMED_OUT);
        assert_eq!(CStr::from_ptr(rd_kafka_error_string(error)), c"topic 7 1099511627776 2.5 end");
        rd_kafka_error_destroy(error);
        let plain = rd_kafka_error_new(RD_KAFKA_RESP_ERR__TIMED_OUT, std::ptr::null());
        assert_eq!(CStr::from_ptr(rd_kafka_error_string(plain)), c"Local: Timed out");
        rd_kafka_error_destroy(plain);
    }
}
