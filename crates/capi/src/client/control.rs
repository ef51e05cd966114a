//! Functions that describe a running client or change its settings.

use std::ffi::{c_char, c_int};
use std::fmt::Write;
use std::ptr::null_mut;

use ottla_client::Error;

use crate::client::handle::Handle;
use crate::errors::error_mapping::of as code_of;
use crate::errors::error_object::{rd_kafka_error_t, set_last_error};
use crate::ffi::c_strings::text;
use crate::ffi::panic::on_panic;
use crate::ffi::*;

#[on_panic(0)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_brokers_add(rk: *mut rd_kafka_t, brokerlist: *const c_char) -> c_int {
    // SAFETY: `rk` is NULL or a handle from `rd_kafka_new`, not yet destroyed; `brokerlist` is NULL or a C string
    // (rdkafka.h, `rd_kafka_brokers_add`).
    let (handle, servers) = unsafe { (Handle::of(rk, FUNCTION), text(brokerlist)) };
    let (Some(client), Some(servers)) = (handle.as_deref().and_then(Handle::client), servers) else {
        return 0;
    };
    // One that is no address does not keep the others out.
    let added = servers.split(',').filter_map(|server| client.add_bootstrap_servers(server).ok());
    c_int::try_from(added.sum::<usize>()).unwrap_or(c_int::MAX)
}

#[on_panic(null_mut())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_brokers_learned_ids(rk: *mut rd_kafka_t, cntp: *mut usize) -> *mut i32 {
    // SAFETY: `rk` is NULL or a handle from `rd_kafka_new`, not yet destroyed; `cntp` is NULL or writable (rdkafka.h,
    // `rd_kafka_brokers_learned_ids`).
    let (handle, count) = unsafe { (Handle::of(rk, FUNCTION), cntp.as_mut()) };
    let (Some(client), Some(count)) = (handle.as_deref().and_then(Handle::client), count) else {
        return null_mut();
    };
    let ids = client.known_brokers();
    *count = 0;
    if ids.is_empty() {
        return null_mut();
    }
    // SAFETY: plain memory for so many, which C frees.
    unsafe {
        let array: *mut i32 = libc::calloc(ids.len(), size_of::<i32>()).cast();
        if !array.is_null() {
            array.copy_from_nonoverlapping(ids.as_ptr(), ids.len());
            *count = ids.len();
        }
        array
    }
}

#[on_panic(null_mut())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_default_topic_conf_dup(rk: *mut rd_kafka_t) -> *mut rd_kafka_topic_conf_t {
    let Some(handle) = Handle::of(rk, FUNCTION) else {
        set_last_error(RD_KAFKA_RESP_ERR__INVALID_ARG);
        return null_mut();
    };
    let copy = handle.conf().default_topic().map(|topic| topic.dup(&|_| true));
    copy.unwrap_or_default().into_handle()
}

#[on_panic(())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_set_log_level(rk: *mut rd_kafka_t, level: c_int) {
    if let Some(handle) = Handle::of(rk, FUNCTION) {
        handle.logs.set_level(level);
        if let Some(client) = handle.client() {
            client.set_log_level(u8::try_from(level.max(0)).unwrap_or(u8::MAX));
        }
    }
}

#[on_panic(())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_set_logger(rk: *mut rd_kafka_t, func: rd_kafka_log_cb_t) {
    if let Some(handle) = Handle::of(rk, FUNCTION) {
        handle.logs.set_function(func);
    }
}

#[on_panic(crate::errors::error_object::panicked())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_sasl_set_credentials(
    rk: *mut rd_kafka_t,
    username: *const c_char,
    password: *const c_char,
) -> *mut rd_kafka_error_t {
    // SAFETY: `rk` is NULL or a handle from `rd_kafka_new`, not yet destroyed; `username` and `password` are each
    // NULL or a C string (rdkafka.h, `rd_kafka_sasl_set_credentials`).
    let (handle, username, password) = unsafe { (Handle::of(rk, FUNCTION), text(username), text(password)) };
    let (Some(username), Some(password)) = (username, password) else {
        let why = "Username and password are required";
        return rd_kafka_error_t::new(RD_KAFKA_RESP_ERR__INVALID_ARG, why).into_raw();
    };
    let Some(client) = handle.as_deref().and_then(Handle::client) else {
        return rd_kafka_error_t::new(RD_KAFKA_RESP_ERR__INVALID_ARG, "no client").into_raw();
    };
    match client.set_sasl_credentials(&username, password.into_owned().into()) {
        // As in the original, they are set even if no connection will use them.
        Ok(()) | Err(Error::Config(_)) => null_mut(),
        Err(error) => rd_kafka_error_t::new(code_of(&error), &error.to_string()).into_raw(),
    }
}

#[on_panic(())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_dump(fp: *mut libc::FILE, rk: *mut rd_kafka_t) {
    let Some(handle) = Handle::of(rk, FUNCTION).filter(|_| !fp.is_null()) else { return };
    let text = described(&handle);
    // SAFETY: a stream of C's that is open (rdkafka.h, `rd_kafka_dump`).
    unsafe { libc::fwrite(text.as_ptr().cast(), 1, text.len(), fp) };
}

/// A client's state, for people.
fn described(handle: &Handle) -> String {
    let mut text = format!("rd_kafka_t {:p}: {}\n", handle.raw(), handle.name.to_string_lossy());
    let mut line = |name: &str, value: String| {
        // Text takes everything.
        let _ = writeln!(text, "  {name}: {value}");
    };
    line("bootstrap.servers", handle.config.bootstrap_servers.clone());
    if let Some(client) = handle.client() {
        line("known brokers", format!("{:?}", client.known_brokers()));
    }
    line("topics", handle.topics().names().join(", "));
    line("operations in the main queue", handle.main.len().to_string());
    if let Some(producer) = handle.producer() {
        line("records without outcome", producer.unsettled_records().to_string());
    }
    if let Some(consuming) = handle.consumer_state() {
        let assigned = consuming.control.assignment();
        let assigned: Vec<String> = assigned.iter().map(ToString::to_string).collect();
        line("subscription", consuming.subscription().join(", "));
        line("assignment", assigned.join(", "));
    }
    text
}
