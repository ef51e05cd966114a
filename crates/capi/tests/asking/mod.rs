//! Asking through the admin interface as C does, one event for each answer.

use std::ffi::{CStr, CString, c_char, c_int};
use std::ptr::null_mut;

use rdkafka::client::handle::*;
use rdkafka::conf::functions::*;
use rdkafka::ffi::*;
use rdkafka::queue::event::*;
use rdkafka::queue::queue_handle::*;
use rdkafka::queue::queue_poll::*;

pub(crate) const PATIENCE_MS: c_int = 60_000;

/// A client, and the queue its answers come to.
pub(crate) struct Asking {
    pub(crate) rk: *mut rd_kafka_t,
    pub(crate) queue: *mut rd_kafka_queue_t,
}

impl Asking {
    pub(crate) fn new(servers: &str, kind: rd_kafka_type_t, properties: &[(&CStr, &CStr)]) -> Self {
        let servers = CString::new(servers).expect("no NUL");
        unsafe {
            let conf = rd_kafka_conf_new();
            for (name, value) in [(c"bootstrap.servers", &*servers)].iter().chain(properties) {
                let set = rd_kafka_conf_set(conf, name.as_ptr(), value.as_ptr(), null_mut(), 0);
                assert_eq!(set, RD_KAFKA_CONF_OK);
            }
            let rk = rd_kafka_new(kind, conf, null_mut(), 0);
            assert!(!rk.is_null());
            Self { rk, queue: rd_kafka_queue_new(rk) }
        }
    }

    /// Returns the result event of the last request.
    pub(crate) fn answer(&self, kind: rd_kafka_event_type_t) -> Answer {
        let event = unsafe { rd_kafka_queue_poll(self.queue, PATIENCE_MS) };
        assert_eq!(unsafe { rd_kafka_event_type(event) }, kind);
        Answer(event)
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        unsafe {
            rd_kafka_queue_destroy(self.queue);
            rd_kafka_destroy(self.rk);
        }
    }
}

pub(crate) struct Answer(pub(crate) *mut rd_kafka_event_t);

impl Answer {
    pub(crate) fn error(&self) -> (rd_kafka_resp_err_t, String) {
        unsafe { (rd_kafka_event_error(self.0), text(rd_kafka_event_error_string(self.0))) }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        unsafe { rd_kafka_event_destroy(self.0) };
    }
}

pub(crate) fn text(pointer: *const c_char) -> String {
    if pointer.is_null() {
        return String::new();
    }
    unsafe { CStr::from_ptr(pointer) }.to_str().expect("UTF-8").to_owned()
}

/// The array that a function of an event returns.
pub(crate) fn array<'a, T>(
    read: unsafe extern "C" fn(*const rd_kafka_event_t, *mut usize) -> *mut *const T,
    event: *const rd_kafka_event_t,
) -> Vec<&'a T> {
    let mut count = 99;
    let array = unsafe { read(event, &raw mut count) };
    (0..count).map(|index| unsafe { &**array.add(index) }).collect()
}
