//! Functions that the tests of the C interface share: configurations, clients, producing and consuming.

#![allow(dead_code, unreachable_pub, reason = "not every test needs everything")]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rdkafka::client::handle::*;
use rdkafka::client::topic_handle::*;
use rdkafka::conf::callbacks::*;
use rdkafka::conf::functions::*;
use rdkafka::consume::leave_group::*;
use rdkafka::ffi::*;
use rdkafka::messages::message::*;
use rdkafka::messages::partition_list::*;
use rdkafka::produce::producer::*;
use rdkafka::queue::poll::*;

pub const PATIENCE: Duration = Duration::from_secs(60);

/// A configuration with these properties.
pub fn conf(properties: &[(&str, &str)]) -> *mut rd_kafka_conf_t {
    let conf = rd_kafka_conf_new();
    for (name, value) in properties {
        let (name, value) = (CString::new(*name).unwrap(), CString::new(*value).unwrap());
        let mut text = [0; 256];
        let set =
            unsafe { rd_kafka_conf_set(conf, name.as_ptr(), value.as_ptr(), text.as_mut_ptr(), text.len()) };
        assert_eq!(set, RD_KAFKA_CONF_OK, "{:?}", unsafe { CStr::from_ptr(text.as_ptr()) });
    }
    conf
}

/// The lines of a client's log: level, facility and text.
pub type Lines = Mutex<Vec<String>>;

/// Has `lines`, which outlive the client, get the lines of its log.
pub fn log_to(conf: *mut rd_kafka_conf_t, lines: &Lines) {
    unsafe {
        rd_kafka_conf_set_opaque(conf, std::ptr::from_ref(lines).cast_mut().cast());
        rd_kafka_conf_set_log_cb(conf, Some(on_line));
    }
}

unsafe extern "C" fn on_line(
    rk: *const rd_kafka_t,
    level: c_int,
    facility: *const c_char,
    text: *const c_char,
) {
    let (facility, text) = unsafe { (CStr::from_ptr(facility), CStr::from_ptr(text)) };
    let line = format!("{level} {} {}", facility.to_string_lossy(), text.to_string_lossy());
    if let Some(lines) = unsafe { rd_kafka_opaque(rk).cast::<Lines>().as_ref() } {
        lines.lock().unwrap().push(line);
    }
}

/// A client of a configuration.
pub fn new(kind: rd_kafka_type_t, conf: *mut rd_kafka_conf_t) -> *mut rd_kafka_t {
    let mut text = [0; 512];
    let rk = unsafe { rd_kafka_new(kind, conf, text.as_mut_ptr(), text.len()) };
    assert!(!rk.is_null(), "{:?}", unsafe { CStr::from_ptr(text.as_ptr()) });
    rk
}

/// Hands a record over, with this opaque.
pub fn produce(rk: *mut rd_kafka_t, topic: &CStr, partition: i32, value: &str, opaque: *mut c_void) {
    unsafe {
        let rkt = rd_kafka_topic_new(rk, topic.as_ptr(), null_mut());
        let (payload, len) = (value.as_ptr().cast_mut().cast(), value.len());
        let taken = rd_kafka_produce(rkt, partition, RD_KAFKA_MSG_F_COPY, payload, len, null(), 0, opaque);
        assert_eq!(taken, 0);
        rd_kafka_topic_destroy(rkt);
    }
}

/// A list of topics, or of partitions.
pub fn list(entries: &[(&CStr, i32)]) -> *mut rd_kafka_topic_partition_list_t {
    let list = rd_kafka_topic_partition_list_new(1);
    for (name, partition) in entries {
        unsafe { rd_kafka_topic_partition_list_add(list, name.as_ptr(), *partition) };
    }
    list
}

/// Subscribes to one topic.
pub fn subscribe(rk: *mut rd_kafka_t, topic: &CStr) {
    let topics = list(&[(topic, -1)]);
    assert_eq!(unsafe { rd_kafka_subscribe(rk, topics) }, RD_KAFKA_RESP_ERR_NO_ERROR);
    unsafe { rd_kafka_topic_partition_list_destroy(topics) };
}

/// Reads this number of records and ignores other messages.
pub fn read(rk: *mut rd_kafka_t, count: usize) -> Vec<String> {
    let mut values = Vec::new();
    let deadline = Instant::now() + PATIENCE;
    while values.len() < count {
        assert!(Instant::now() < deadline, "{} of {count} records came: {values:?}", values.len());
        unsafe {
            let message = rd_kafka_consumer_poll(rk, 100);
            if message.is_null() {
                continue;
            }
            if (*message).err == RD_KAFKA_RESP_ERR_NO_ERROR {
                values.push(text_of(message));
            }
            rd_kafka_message_destroy(message);
        }
    }
    values
}

/// The payload of a message.
pub fn text_of(message: *const rd_kafka_message_t) -> String {
    let message = unsafe { &*message };
    if message.payload.is_null() {
        return String::new();
    }
    let bytes = unsafe { std::slice::from_raw_parts(message.payload.cast::<u8>(), message.len) };
    String::from_utf8_lossy(bytes).into_owned()
}

/// Waits until something is so.
pub fn until(what: &str, mut so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !so() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
