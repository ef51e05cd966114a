//! The functions with variable arguments. The exported functions only jump to `varargs.c`, because rustc exports no
//! symbols from C. `varargs.c` reads the arguments into arrays and calls the functions below.

use std::ffi::{c_char, c_int};

use crate::errors::error_object::{rd_kafka_error_code, rd_kafka_error_destroy, rd_kafka_error_is_fatal};
use crate::ffi::c_strings::text;
use crate::ffi::exported_from_c::{called_from_c, exported_from_c};
use crate::ffi::panic::on_panic;
use crate::ffi::*;

exported_from_c! {
    fn rd_kafka_producev() = ottla_producev_varargs;
    fn rd_kafka_error_new() = ottla_error_new_varargs;
    fn rd_kafka_mock_push_request_errors() = ottla_mock_errors_varargs;
    fn rd_kafka_mock_partition_push_request_errors() = ottla_mock_partition_errors_varargs;
    fn rd_kafka_mock_broker_push_request_error_rtts() = ottla_mock_broker_errors_varargs;
}

called_from_c! {
    "ottla_produce_fields" produce_fields,
    "ottla_error" error,
    "ottla_mock_errors" mock_errors,
    "ottla_mock_partition_errors" mock_partition_errors,
    "ottla_mock_broker_errors" mock_broker_errors,
}

#[allow(improper_ctypes, reason = "C sees no inside of the types that are ours")]
unsafe extern "C" {
    fn rd_kafka_produceva(
        rk: *mut rd_kafka_t,
        vus: *const rd_kafka_vu_t,
        cnt: usize,
    ) -> *mut rd_kafka_error_t;
}

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
unsafe extern "C" fn produce_fields(
    rk: *mut rd_kafka_t,
    vus: *const rd_kafka_vu_t,
    cnt: usize,
) -> rd_kafka_resp_err_t {
    // SAFETY: the application's handle and our array; the error is ours.
    unsafe {
        let error = rd_kafka_produceva(rk, vus, cnt);
        let is_fatal = rd_kafka_error_is_fatal(error) != 0;
        let code = if is_fatal { RD_KAFKA_RESP_ERR__FATAL } else { rd_kafka_error_code(error) };
        rd_kafka_error_destroy(error);
        code
    }
}

#[on_panic(crate::errors::error_object::panicked())]
unsafe extern "C" fn error(code: rd_kafka_resp_err_t, words: *const c_char) -> *mut rd_kafka_error_t {
    // SAFETY: a C string of `varargs.c`.
    let words = unsafe { text(words) };
    rd_kafka_error_t::new(code, &words.unwrap_or_default()).into_raw()
}

unsafe extern "C" {
    fn rd_kafka_mock_push_request_errors_array(
        mcluster: *mut rd_kafka_mock_cluster_t,
        api_key: i16,
        cnt: usize,
        errors: *const rd_kafka_resp_err_t,
    );
}

#[on_panic(())]
unsafe extern "C" fn mock_errors(
    mcluster: *mut rd_kafka_mock_cluster_t,
    api_key: i16,
    cnt: usize,
    errors: *const rd_kafka_resp_err_t,
) {
    // SAFETY: the application's cluster and our array.
    unsafe { rd_kafka_mock_push_request_errors_array(mcluster, api_key, cnt, errors) };
}

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
unsafe extern "C" fn mock_partition_errors(
    mcluster: *mut rd_kafka_mock_cluster_t,
    topic: *const c_char,
    partition: i32,
    api_key: i16,
    cnt: usize,
    errors: *const rd_kafka_resp_err_t,
) -> rd_kafka_resp_err_t {
    #[cfg(feature = "mock")]
    // SAFETY: the application's cluster and text, and our array.
    return unsafe {
        crate::mock::requests::push_at_partition(mcluster, topic, partition, api_key, cnt, errors)
    };
    #[cfg(not(feature = "mock"))]
    {
        let _ = (mcluster, topic, partition, api_key, cnt, errors);
        RD_KAFKA_RESP_ERR__NOT_IMPLEMENTED
    }
}

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
unsafe extern "C" fn mock_broker_errors(
    mcluster: *mut rd_kafka_mock_cluster_t,
    broker_id: i32,
    api_key: i16,
    cnt: usize,
    errors: *const rd_kafka_resp_err_t,
    rtts_ms: *const c_int,
) -> rd_kafka_resp_err_t {
    #[cfg(feature = "mock")]
    // SAFETY: the application's cluster and our arrays.
    return unsafe {
        crate::mock::requests::push_at_broker(mcluster, broker_id, api_key, cnt, errors, rtts_ms)
    };
    #[cfg(not(feature = "mock"))]
    {
        let _ = (mcluster, broker_id, api_key, cnt, errors, rtts_ms);
        RD_KAFKA_RESP_ERR__NOT_IMPLEMENTED
    }
}
