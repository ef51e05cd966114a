//! `rd_kafka_error_t`, the names of error codes, and the thread's last error.

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, CString, c_char, c_int};
use std::ptr::null;

use crate::errors::error_table::{COUNT, DESCRIPTIONS, named};
use crate::ffi::c_strings::c_string;
use crate::ffi::panic::on_panic;
use crate::ffi::*;

/// An error with its words and with what the application can still do.
pub struct rd_kafka_error_t {
    code: rd_kafka_resp_err_t,
    text: Option<CString>,
    fatal: bool,
    retriable: bool,
    requires_abort: bool,
}

impl rd_kafka_error_t {
    /// With `text`; without any, the error says what its code says.
    pub fn new(code: rd_kafka_resp_err_t, text: &str) -> Box<Self> {
        let text = (!text.is_empty()).then(|| c_string(text));
        Box::new(Self { code, text, fatal: false, retriable: false, requires_abort: false })
    }

    pub fn fatal(mut self: Box<Self>, fatal: bool) -> Box<Self> {
        self.fatal = fatal;
        self
    }

    pub fn retriable(mut self: Box<Self>, retriable: bool) -> Box<Self> {
        self.retriable = retriable;
        self
    }

    pub fn requires_abort(mut self: Box<Self>, requires_abort: bool) -> Box<Self> {
        self.requires_abort = requires_abort;
        self
    }

    /// To C, which frees it with `rd_kafka_error_destroy`.
    pub fn into_raw(self: Box<Self>) -> *mut Self {
        Box::into_raw(self)
    }

    pub fn code(&self) -> rd_kafka_resp_err_t {
        self.code
    }

    pub fn text(&self) -> &CStr {
        match &self.text {
            Some(text) => text,
            None => description(self.code),
        }
    }
}

/// The error that a function returns after a panic inside it: NULL would report success.
pub(crate) fn panicked() -> *mut rd_kafka_error_t {
    rd_kafka_error_t::new(RD_KAFKA_RESP_ERR__FAIL, "Internal error: the call panicked").into_raw()
}

/// Sets the value of `rd_kafka_last_error` for this thread.
pub fn set_last_error(code: rd_kafka_resp_err_t) {
    LAST.set(code);
}

/// The same, and C's `errno`.
pub fn set_last_error_and_errno(code: rd_kafka_resp_err_t, errno: c_int) {
    LAST.set(code);
    // SAFETY: the address of this thread's errno is always valid.
    unsafe { *libc::__errno_location() = errno };
}

thread_local! {
    static LAST: Cell<rd_kafka_resp_err_t> = const { Cell::new(RD_KAFKA_RESP_ERR_NO_ERROR) };
    static UNKNOWN: RefCell<Unknown> = const { RefCell::new(Unknown { texts: [const { None }; UNKNOWN_KEPT], next: 0 }) };
}

/// Texts of unknown codes; a pointer is valid until the thread has requested as many others.
struct Unknown {
    texts: [Option<CString>; UNKNOWN_KEPT],
    next: usize,
}

/// Enough for one call of printf.
const UNKNOWN_KEPT: usize = 8;

/// The description of a code.
pub fn description(code: rd_kafka_resp_err_t) -> &'static CStr {
    named(code).map_or_else(|| unknown(format!("Err-{code}?")), |(_, text)| text)
}

fn name(code: rd_kafka_resp_err_t) -> &'static CStr {
    named(code).map_or_else(|| unknown(format!("ERR_{code}?")), |(name, _)| name)
}

fn unknown(text: String) -> &'static CStr {
    UNKNOWN.with_borrow_mut(|unknown| {
        let at = unknown.next;
        unknown.next = (at + 1) % UNKNOWN_KEPT;
        let text = unknown.texts[at].insert(c_string(&text));
        // SAFETY: `Unknown` documents how long the text lives; no Rust caller keeps it.
        unsafe { CStr::from_ptr(text.as_ptr()) }
    })
}

#[on_panic(null())]
#[unsafe(no_mangle)]
pub extern "C" fn rd_kafka_err2str(err: rd_kafka_resp_err_t) -> *const c_char {
    description(err).as_ptr()
}

#[on_panic(null())]
#[unsafe(no_mangle)]
pub extern "C" fn rd_kafka_err2name(err: rd_kafka_resp_err_t) -> *const c_char {
    name(err).as_ptr()
}

#[on_panic(())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_get_err_descs(errdescs: *mut *const rd_kafka_err_desc, cntp: *mut usize) {
    // SAFETY: `errdescs` and `cntp` are each NULL or writable (rdkafka.h, `rd_kafka_get_err_descs`).
    unsafe {
        if let Some(table) = errdescs.as_mut() {
            *table = DESCRIPTIONS.0.as_ptr();
        }
        if let Some(count) = cntp.as_mut() {
            *count = COUNT;
        }
    }
}

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
#[unsafe(no_mangle)]
pub extern "C" fn rd_kafka_last_error() -> rd_kafka_resp_err_t {
    LAST.get()
}

#[on_panic(0)]
#[unsafe(no_mangle)]
pub extern "C" fn rd_kafka_errno() -> c_int {
    // SAFETY: the address of this thread's errno is always valid.
    unsafe { *libc::__errno_location() }
}

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
#[unsafe(no_mangle)]
pub extern "C" fn rd_kafka_errno2err(errnox: c_int) -> rd_kafka_resp_err_t {
    match errnox {
        libc::EINVAL => RD_KAFKA_RESP_ERR__INVALID_ARG,
        libc::EBUSY => RD_KAFKA_RESP_ERR__CONFLICT,
        libc::ENOENT => RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC,
        libc::ESRCH => RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION,
        libc::ETIMEDOUT => RD_KAFKA_RESP_ERR__TIMED_OUT,
        libc::EMSGSIZE => RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE,
        libc::ENOBUFS => RD_KAFKA_RESP_ERR__QUEUE_FULL,
        libc::ECANCELED => RD_KAFKA_RESP_ERR__FATAL,
        _ => RD_KAFKA_RESP_ERR__FAIL,
    }
}

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_error_code(error: *const rd_kafka_error_t) -> rd_kafka_resp_err_t {
    // SAFETY: `error` is NULL or an error object of this library, not yet destroyed (rdkafka.h,
    // `rd_kafka_error_code`).
    unsafe { error.as_ref() }.map_or(RD_KAFKA_RESP_ERR_NO_ERROR, rd_kafka_error_t::code)
}

#[on_panic(null())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_error_name(error: *const rd_kafka_error_t) -> *const c_char {
    // SAFETY: `error` is NULL or an error object of this library, not yet destroyed (rdkafka.h,
    // `rd_kafka_error_name`).
    let error = unsafe { error.as_ref() };
    error.map_or(c"", |error| name(error.code)).as_ptr()
}

#[on_panic(null())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_error_string(error: *const rd_kafka_error_t) -> *const c_char {
    // SAFETY: `error` is NULL or an error object of this library, not yet destroyed (rdkafka.h,
    // `rd_kafka_error_string`).
    let error = unsafe { error.as_ref() };
    error.map_or(c"", rd_kafka_error_t::text).as_ptr()
}

#[on_panic(0)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_error_is_fatal(error: *const rd_kafka_error_t) -> c_int {
    // SAFETY: `error` is NULL or an error object of this library, not yet destroyed (rdkafka.h,
    // `rd_kafka_error_is_fatal`).
    unsafe { error.as_ref() }.is_some_and(|error| error.fatal).into()
}

#[on_panic(0)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_error_is_retriable(error: *const rd_kafka_error_t) -> c_int {
    // SAFETY: `error` is NULL or an error object of this library, not yet destroyed (rdkafka.h,
    // `rd_kafka_error_is_retriable`).
    unsafe { error.as_ref() }.is_some_and(|error| error.retriable).into()
}

#[on_panic(0)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_error_txn_requires_abort(error: *const rd_kafka_error_t) -> c_int {
    // SAFETY: `error` is NULL or an error object of this library, not yet destroyed (rdkafka.h,
    // `rd_kafka_error_txn_requires_abort`).
    unsafe { error.as_ref() }.is_some_and(|error| error.requires_abort).into()
}

#[on_panic(())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_error_destroy(error: *mut rd_kafka_error_t) {
    if !error.is_null() {
        // SAFETY: made by `into_raw`, and given back once (rdkafka.h, `rd_kafka_error_destroy`).
        drop(unsafe { Box::from_raw(error) });
    }
}
