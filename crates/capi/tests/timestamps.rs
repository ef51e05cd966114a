//! Timestamps that the application gives its records.

use std::ptr::null;

use ottla_broker::Broker;
use rdkafka::client::handle::*;
use rdkafka::conf::callbacks::*;
use rdkafka::consume::group_consumer::*;
use rdkafka::ffi::*;
use rdkafka::messages::message::*;
use rdkafka::messages::partition_list::*;
use rdkafka::produce::producer::*;
use rdkafka::queue::event::*;
use rdkafka::queue::poll::*;
use rdkafka::queue::queue_handle::*;
use rdkafka::queue::queue_poll::*;

use crate::common::{conf, list, new, until};

const OK: rd_kafka_resp_err_t = RD_KAFKA_RESP_ERR_NO_ERROR;
/// A day before 1970, and one millisecond after it.
const GIVEN: [i64; 2] = [-86_400_000, 1];

/// Returns the timestamp of a message, which the application gave.
unsafe fn given_time(message: *const rd_kafka_message_t) -> i64 {
    let mut kind = RD_KAFKA_TIMESTAMP_NOT_AVAILABLE;
    let time = unsafe { rd_kafka_message_timestamp(message, &raw mut kind) };
    assert_eq!(kind, RD_KAFKA_TIMESTAMP_CREATE_TIME, "{time}");
    time
}

/// The time before 1970 was replaced by the current time, and a fetched record with it had no timestamp.
#[test]
fn a_time_before_1970_is_kept() {
    let broker = Broker::builder().memory().topic("orders", 1).spawn().unwrap();
    let servers = broker.bootstrap_servers();
    let conf_of_producer = conf(&[("bootstrap.servers", servers.as_str())]);
    unsafe {
        rd_kafka_conf_set_events(conf_of_producer, RD_KAFKA_EVENT_DR);
        let rk = new(RD_KAFKA_PRODUCER, conf_of_producer);
        let queue = rd_kafka_queue_get_main(rk);
        for time in GIVEN {
            let vu = |vtype, u| rd_kafka_vu_t { vtype, u };
            let parts = [
                vu(RD_KAFKA_VTYPE_TOPIC, rd_kafka_vu_value_t { cstr: c"orders".as_ptr() }),
                vu(RD_KAFKA_VTYPE_TIMESTAMP, rd_kafka_vu_value_t { i64: time }),
            ];
            assert!(rd_kafka_produceva(rk, parts.as_ptr(), parts.len()).is_null());
            let event = rd_kafka_queue_poll(queue, 60_000);
            assert_eq!(rd_kafka_event_type(event), RD_KAFKA_EVENT_DR);
            assert_eq!(given_time(rd_kafka_event_message_next(event)), time);
            rd_kafka_event_destroy(event);
        }
        rd_kafka_queue_destroy(queue);
        rd_kafka_destroy(rk);

        let rk =
            new(RD_KAFKA_CONSUMER, conf(&[("bootstrap.servers", servers.as_str()), ("group.id", "billing")]));
        let partitions = list(&[(c"orders", 0)]);
        (*(*partitions).elems).offset = RD_KAFKA_OFFSET_BEGINNING;
        assert_eq!(rd_kafka_assign(rk, partitions), OK);
        rd_kafka_topic_partition_list_destroy(partitions);
        let mut times = Vec::new();
        until("both records have come", || {
            let message = rd_kafka_consumer_poll(rk, 100);
            if message.is_null() {
                return false;
            }
            if (*message).err == OK {
                times.push(given_time(message));
            }
            rd_kafka_message_destroy(message);
            times.len() == GIVEN.len()
        });
        assert_eq!(times, GIVEN);
        assert_eq!(rd_kafka_assign(rk, null()), OK);
        rd_kafka_destroy(rk);
    }
}
