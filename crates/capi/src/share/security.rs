//! Functions of the client behind a share consumer: log lines, and SASL.

use std::ffi::c_char;
use std::ptr::null_mut;

use crate::client::control::rd_kafka_sasl_set_credentials;
use crate::client::oauth_tokens::{
    rd_kafka_oauthbearer_set_token, rd_kafka_oauthbearer_set_token_failure,
    rd_kafka_sasl_background_callbacks_enable,
};
use crate::errors::error_object::rd_kafka_error_t;
use crate::ffi::panic::on_panic;
use crate::ffi::*;
use crate::handles::slot_table::InUse;
use crate::queue::queue_handle::{rd_kafka_queue_get_sasl, rd_kafka_set_log_queue};
use crate::share::share_handle::Share;

/// Runs `body` with the client of a share consumer. These functions may be called from any thread at any time.
fn with_client<T>(
    rkshare: *mut rd_kafka_share_t,
    function: &str,
    body: impl FnOnce(*mut rd_kafka_t) -> T,
) -> Option<T> {
    let share: Option<InUse<Share>> = Share::of(rkshare, function);
    share.map(|share| body(share.client.raw()))
}

fn refused() -> *mut rd_kafka_error_t {
    rd_kafka_error_t::new(RD_KAFKA_RESP_ERR__INVALID_ARG, "the share consumer is NULL or destroyed")
        .into_raw()
}

#[on_panic(crate::errors::error_object::panicked())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_share_set_log_queue(
    rkshare: *mut rd_kafka_share_t,
    rkqu: *mut rd_kafka_queue_t,
) -> *mut rd_kafka_error_t {
    let code = with_client(rkshare, FUNCTION, |rk| {
        // SAFETY: the client exists; `rkqu` is NULL or a queue of this library (rdkafka.h, `rd_kafka_share_set_log_queue`).
        unsafe { rd_kafka_set_log_queue(rk, rkqu) }
    });
    match code {
        Some(RD_KAFKA_RESP_ERR_NO_ERROR) => null_mut(),
        Some(code) => rd_kafka_error_t::new(code, "").into_raw(),
        None => refused(),
    }
}

#[on_panic(null_mut())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_share_queue_get_sasl(
    rkshare: *mut rd_kafka_share_t,
) -> *mut rd_kafka_queue_t {
    // SAFETY: the client exists (rdkafka.h, `rd_kafka_share_queue_get_sasl`).
    with_client(rkshare, FUNCTION, |rk| unsafe { rd_kafka_queue_get_sasl(rk) }).unwrap_or(null_mut())
}

#[on_panic(crate::errors::error_object::panicked())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_share_sasl_background_callbacks_enable(
    rkshare: *mut rd_kafka_share_t,
) -> *mut rd_kafka_error_t {
    // SAFETY: the client exists (rdkafka.h, `rd_kafka_share_sasl_background_callbacks_enable`).
    let enabled =
        with_client(rkshare, FUNCTION, |rk| unsafe { rd_kafka_sasl_background_callbacks_enable(rk) });
    enabled.unwrap_or_else(refused)
}

#[on_panic(crate::errors::error_object::panicked())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_share_sasl_set_credentials(
    rkshare: *mut rd_kafka_share_t,
    username: *const c_char,
    password: *const c_char,
) -> *mut rd_kafka_error_t {
    let set = with_client(rkshare, FUNCTION, |rk| {
        // SAFETY: the client exists; the texts are each NULL or a C string (rdkafka.h,
        // `rd_kafka_share_sasl_set_credentials`).
        unsafe { rd_kafka_sasl_set_credentials(rk, username, password) }
    });
    set.unwrap_or_else(refused)
}

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_share_oauthbearer_set_token(
    rkshare: *mut rd_kafka_share_t,
    token_value: *const c_char,
    md_lifetime_ms: i64,
    md_principal_name: *const c_char,
    extensions: *mut *const c_char,
    extension_size: usize,
    errstr: *mut c_char,
    errstr_size: usize,
) -> rd_kafka_resp_err_t {
    let set = with_client(rkshare, FUNCTION, |rk| {
        // SAFETY: the client exists; the other arguments are those of `rd_kafka_oauthbearer_set_token` (rdkafka.h,
        // `rd_kafka_share_oauthbearer_set_token`).
        unsafe {
            rd_kafka_oauthbearer_set_token(
                rk,
                token_value,
                md_lifetime_ms,
                md_principal_name,
                extensions,
                extension_size,
                errstr,
                errstr_size,
            )
        }
    });
    set.unwrap_or(RD_KAFKA_RESP_ERR__INVALID_ARG)
}

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_share_oauthbearer_set_token_failure(
    rkshare: *mut rd_kafka_share_t,
    errstr: *const c_char,
) -> rd_kafka_resp_err_t {
    let set = with_client(rkshare, FUNCTION, |rk| {
        // SAFETY: the client exists; `errstr` is NULL or a C string (rdkafka.h,
        // `rd_kafka_share_oauthbearer_set_token_failure`).
        unsafe { rd_kafka_oauthbearer_set_token_failure(rk, errstr) }
    });
    set.unwrap_or(RD_KAFKA_RESP_ERR__INVALID_ARG)
}
