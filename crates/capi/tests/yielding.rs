//! `rd_kafka_yield` in a function for delivery reports. Bindings call it when the function has thrown an exception.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};

use rdkafka::client::handle::*;
use rdkafka::conf::callbacks::*;
use rdkafka::ffi::*;
use rdkafka::produce::flush::*;
use rdkafka::produce::producer::*;
use rdkafka::queue::poll::*;

use crate::common::{conf, new, produce};

const OK: rd_kafka_resp_err_t = RD_KAFKA_RESP_ERR_NO_ERROR;

/// Counts a report, and ends the function that calls this one.
unsafe extern "C" fn count_and_yield(
    rk: *mut rd_kafka_t,
    _message: *const rd_kafka_message_t,
    opaque: *mut c_void,
) {
    let count = unsafe { &*opaque.cast::<AtomicUsize>() };
    count.fetch_add(1, Ordering::SeqCst);
    unsafe { rd_kafka_yield(rk) };
}

/// The flush continued until all records were reported.
#[test]
fn a_flush_ends_when_a_function_for_reports_yields() {
    let count = AtomicUsize::new(0);
    let conf = conf(&[("bootstrap.servers", "127.0.0.1:1")]);
    unsafe {
        rd_kafka_conf_set_opaque(conf, (&raw const count).cast_mut().cast());
        rd_kafka_conf_set_dr_msg_cb(conf, Some(count_and_yield));
        let rk = new(RD_KAFKA_PRODUCER, conf);
        for _ in 0..3 {
            produce(rk, c"orders", 0, "paid", null_mut());
        }
        assert_eq!(rd_kafka_purge(rk, RD_KAFKA_PURGE_F_QUEUE), OK);
        for (reports, expected) in
            [(1, RD_KAFKA_RESP_ERR__TIMED_OUT), (2, RD_KAFKA_RESP_ERR__TIMED_OUT), (3, OK), (3, OK)]
        {
            assert_eq!(rd_kafka_flush(rk, 60_000), expected, "{reports}");
            assert_eq!(count.load(Ordering::SeqCst), reports);
        }
        rd_kafka_destroy(rk);
    }
}
