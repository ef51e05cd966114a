//! The functions with variable arguments. What is exported here only jumps to `varargs.c`, which reads the arguments into
//! arrays and comes back to the functions below: rustc exports no symbol that comes from C.

use std::arch::{global_asm, naked_asm};
use std::ffi::{c_char, c_int};

use crate::error::{rd_kafka_error_code, rd_kafka_error_destroy};
use crate::ffi::*;
use crate::panic::on_panic;
use crate::text::text;

/// `rd_kafka_NAME(...)` jumps to the function in C.
macro_rules! jumps {
    ($($exported:ident $in_c:ident,)*) => {
        unsafe extern "C" {
            $(fn $in_c();)*
        }
        $(
            #[unsafe(naked)]
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $exported() {
                #[cfg(target_arch = "x86_64")]
                naked_asm!("jmp {}", sym $in_c);
                #[cfg(target_arch = "aarch64")]
                naked_asm!("b {}", sym $in_c);
            }
        )*
    };
}

jumps! {
    rd_kafka_producev ottla_producev_varargs,
    rd_kafka_error_new ottla_error_new_varargs,
    rd_kafka_mock_push_request_errors ottla_mock_errors_varargs,
    rd_kafka_mock_partition_push_request_errors ottla_mock_partition_errors_varargs,
    rd_kafka_mock_broker_push_request_error_rtts ottla_mock_broker_errors_varargs,
}

/// A hidden symbol under which C finds a function of Rust, so that the library exports no names of its own.
macro_rules! hidden {
    ($($name:literal $function:ident,)*) => {
        $(
            #[cfg(target_arch = "x86_64")]
            global_asm!(
                concat!(".globl ", $name),
                concat!(".hidden ", $name),
                concat!(".type ", $name, ",@function"),
                concat!($name, ":"),
                "jmp {}",
                sym $function
            );
            #[cfg(target_arch = "aarch64")]
            global_asm!(
                concat!(".globl ", $name),
                concat!(".hidden ", $name),
                concat!(".type ", $name, ",%function"),
                concat!($name, ":"),
                "b {}",
                sym $function
            );
        )*
    };
}

hidden! {
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
        let code = rd_kafka_error_code(error);
        rd_kafka_error_destroy(error);
        code
    }
}

#[on_panic(crate::error::panicked())]
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
    _mcluster: *mut rd_kafka_mock_cluster_t,
    _topic: *const c_char,
    _partition: i32,
    _api_key: i16,
    _cnt: usize,
    _errors: *const rd_kafka_resp_err_t,
) -> rd_kafka_resp_err_t {
    RD_KAFKA_RESP_ERR__NOT_IMPLEMENTED
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
