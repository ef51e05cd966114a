//! Functions that intercept configurations, and the properties that only they know.

#![allow(unsafe_code, reason = "C's functions")]
#![allow(clippy::disallowed_methods, reason = "a test is a shell")]
#![allow(clippy::undocumented_unsafe_blocks, reason = "a test calls as C does")]
#![allow(
    clippy::wildcard_imports,
    clippy::unwrap_used,
    reason = "C's names, and a test that stops where it must"
)]

use std::ffi::{CStr, c_char, c_void};
use std::ptr::null_mut;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use rdkafka::conf::conf_interceptors::*;
use rdkafka::conf::*;
use rdkafka::ffi::*;

use crate::common::conf;

static MADE: AtomicUsize = AtomicUsize::new(0);
static FREED: AtomicUsize = AtomicUsize::new(0);

/// The properties that an interceptor of one configuration saw.
#[derive(Default)]
struct Instance {
    seen: Mutex<Vec<String>>,
}

unsafe extern "C" fn on_set(
    _: *mut rd_kafka_conf_t,
    name: *const c_char,
    value: *const c_char,
    _: *mut c_char,
    _: usize,
    opaque: *mut c_void,
) -> rd_kafka_conf_res_t {
    let instance = unsafe { &*opaque.cast::<Instance>() };
    let name = unsafe { CStr::from_ptr(name) }.to_str().unwrap();
    let value = (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) }.to_str().unwrap());
    instance.seen.lock().unwrap().push(format!("{name}={}", value.unwrap_or("NULL")));
    match name {
        "mine.wrong" => RD_KAFKA_CONF_INVALID,
        name if name.starts_with("mine.") => RD_KAFKA_CONF_OK,
        _ => RD_KAFKA_CONF_UNKNOWN,
    }
}

unsafe extern "C" fn on_dup(
    new: *mut rd_kafka_conf_t,
    _: *const rd_kafka_conf_t,
    _: usize,
    _: *mut *const c_char,
    _: *mut c_void,
) -> rd_kafka_resp_err_t {
    intercept(new);
    RD_KAFKA_RESP_ERR_NO_ERROR
}

unsafe extern "C" fn on_destroy(opaque: *mut c_void) -> rd_kafka_resp_err_t {
    FREED.fetch_add(1, Ordering::SeqCst);
    LAST.lock()
        .unwrap()
        .clone_from(&unsafe { Box::from_raw(opaque.cast::<Instance>()) }.seen.lock().unwrap());
    RD_KAFKA_RESP_ERR_NO_ERROR
}

/// The properties of the instance that was freed last.
static LAST: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Adds an interceptor with an instance of its own, and returns the results.
fn intercept(conf: *mut rd_kafka_conf_t) -> [rd_kafka_resp_err_t; 3] {
    MADE.fetch_add(1, Ordering::SeqCst);
    let own: *mut c_void = Box::into_raw(Box::<Instance>::default()).cast();
    let name = c"interceptor".as_ptr();
    unsafe {
        [
            rd_kafka_conf_interceptor_add_on_conf_set(conf, name, Some(on_set), own),
            rd_kafka_conf_interceptor_add_on_conf_dup(conf, name, Some(on_dup), own),
            rd_kafka_conf_interceptor_add_on_conf_destroy(conf, name, Some(on_destroy), own),
        ]
    }
}

fn set(conf: *mut rd_kafka_conf_t, name: &CStr, value: Option<&CStr>) -> rd_kafka_conf_res_t {
    let value = value.map_or(std::ptr::null(), CStr::as_ptr);
    unsafe { rd_kafka_conf_set(conf, name.as_ptr(), value, null_mut(), 0) }
}

/// librdkafka's test 0066 lost `interceptor_test.config1` this way.
#[test]
fn a_copy_has_the_properties_that_interceptors_handled() {
    let one = conf(&[("session.timeout.ms", "6000")]);
    assert_eq!(intercept(one), [RD_KAFKA_RESP_ERR_NO_ERROR; 3]);
    assert_eq!(set(one, c"mine.first", Some(c"one")), RD_KAFKA_CONF_OK);
    assert_eq!(set(one, c"mine.second", None), RD_KAFKA_CONF_OK);
    assert_eq!(set(one, c"mine.wrong", Some(c"x")), RD_KAFKA_CONF_INVALID);
    assert_eq!(set(one, c"socket.timeout.ms", Some(c"1200")), RD_KAFKA_CONF_OK);

    let copy = unsafe { rd_kafka_conf_dup(one) };
    let filter = [c"mine.f".as_ptr(), c"socket.".as_ptr()];
    let filtered = unsafe { rd_kafka_conf_dup_filter(one, filter.len(), filter.as_ptr().cast_mut()) };
    let of_copy = unsafe { rd_kafka_conf_dup(copy) };
    for (name, conf, expected) in [
        (
            "copy",
            copy,
            &["socket.timeout.ms=1200", "session.timeout.ms=6000", "mine.first=one", "mine.second=NULL"][..],
        ),
        ("filtered", filtered, &["session.timeout.ms=6000", "mine.second=NULL"]),
        (
            "copy of the copy",
            of_copy,
            &["socket.timeout.ms=1200", "session.timeout.ms=6000", "mine.first=one", "mine.second=NULL"],
        ),
    ] {
        unsafe { rd_kafka_conf_destroy(conf) };
        let mut seen = LAST.lock().unwrap().clone();
        seen.sort_by_key(|line| line.starts_with("mine"));
        let mut expected: Vec<String> = expected.iter().map(|&line| line.to_owned()).collect();
        expected.sort_by_key(|line| line.starts_with("mine"));
        assert_eq!(seen, expected, "{name}");
    }

    // The same function again conflicts. The function of the destruction is added again: each instance is freed.
    let [again_set, again_dup, again_destroy] = intercept(one);
    assert_eq!([again_set, again_dup], [RD_KAFKA_RESP_ERR__CONFLICT; 2]);
    assert_eq!(again_destroy, RD_KAFKA_RESP_ERR_NO_ERROR);
    unsafe { rd_kafka_conf_destroy(one) };
    assert_eq!(FREED.load(Ordering::SeqCst), MADE.load(Ordering::SeqCst));
}
