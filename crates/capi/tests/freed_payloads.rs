//! Payloads that the library frees: `RD_KAFKA_MSG_F_FREE`.

use std::ffi::{CStr, c_void};
use std::ptr::{null, null_mut};
use std::sync::Mutex;

use ottla_broker::Broker;
use rdkafka::client::handle::*;
use rdkafka::client::topic_handle::*;
use rdkafka::conf::*;
use rdkafka::ffi::*;
use rdkafka::produce::flush::*;
use rdkafka::produce::producer::*;

use crate::common::{conf, new, text_of};

const OK: rd_kafka_resp_err_t = RD_KAFKA_RESP_ERR_NO_ERROR;

/// The payloads of the reports; it is the opaque of the client.
type Reports = Mutex<Vec<String>>;

unsafe extern "C" fn on_report(_: *mut rd_kafka_t, message: *const rd_kafka_message_t, opaque: *mut c_void) {
    let reports = unsafe { &*opaque.cast::<Reports>() };
    assert_ne!(unsafe { (*message).err }, OK);
    reports.lock().unwrap().push(text_of(message));
}

/// If only errors are reported, a payload is freed before its record has an outcome.
#[test]
fn the_report_of_a_failure_has_the_payload_that_is_freed() {
    let broker = Broker::builder().memory().topic("orders", 1).spawn().unwrap();
    let servers = broker.bootstrap_servers();
    let reports = Reports::default();
    let conf = conf(&[("bootstrap.servers", servers.as_str()), ("delivery.report.only.error", "true")]);
    unsafe {
        rd_kafka_conf_set_opaque(conf, std::ptr::from_ref(&reports).cast_mut().cast());
        rd_kafka_conf_set_dr_msg_cb(conf, Some(on_report));
        let rk = new(RD_KAFKA_PRODUCER, conf);
        let orders = rd_kafka_topic_new(rk, c"orders".as_ptr(), null_mut());
        let send = |value: &CStr| {
            let (payload, len) = (libc::strdup(value.as_ptr()).cast(), value.to_bytes().len());
            let done = rd_kafka_produce(orders, 0, RD_KAFKA_MSG_F_FREE, payload, len, null(), 0, null_mut());
            assert_eq!(done, 0);
        };
        send(c"paid");
        assert_eq!(rd_kafka_flush(rk, 60_000), OK);
        assert!(broker.cluster().set_leader("orders", 0, -1), "its records are not sent");
        send(c"refunded");
        let all = RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT;
        assert_eq!(rd_kafka_purge(rk, all), OK);
        assert_eq!(rd_kafka_flush(rk, 60_000), OK);
        assert_eq!(*reports.lock().unwrap(), ["refunded"]);
        rd_kafka_topic_destroy(orders);
        rd_kafka_destroy(rk);
    }
}
