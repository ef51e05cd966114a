//! Partitions of a producer, and of a consumer, that the application pauses.

use std::ffi::{CStr, c_void};
use std::ptr::{null, null_mut};

use ottla_broker::{ApiKey, Broker};
use rdkafka::client::handle::*;
use rdkafka::client::topic_handle::*;
use rdkafka::conf::topic_conf::*;
use rdkafka::conf::*;
use rdkafka::consume::group_consumer::*;
use rdkafka::consume::offsets::*;
use rdkafka::ffi::*;
use rdkafka::messages::message::*;
use rdkafka::messages::partition_list::*;
use rdkafka::produce::flush::*;
use rdkafka::produce::producer::*;

use crate::common::{conf, list, new, produce, read};

const OK: rd_kafka_resp_err_t = RD_KAFKA_RESP_ERR_NO_ERROR;

type SetPaused =
    unsafe extern "C" fn(*mut rd_kafka_t, *mut rd_kafka_topic_partition_list_t) -> rd_kafka_resp_err_t;

/// Pauses or resumes the first partition of these topics; the errors of the entries.
fn set_paused(rk: *mut rd_kafka_t, set: SetPaused, topics: [&CStr; 2]) -> Vec<rd_kafka_resp_err_t> {
    let entries = list(&topics.map(|topic| (topic, 0)));
    unsafe {
        assert_eq!(set(rk, entries), OK);
        let errors = (*entries).elems().iter().map(|entry| entry.err).collect();
        rd_kafka_topic_partition_list_destroy(entries);
        errors
    }
}

fn end_of(rk: *mut rd_kafka_t, partition: i32) -> i64 {
    let (mut low, mut high) = (-1, -1);
    let topic = c"orders".as_ptr();
    let asked = unsafe {
        rd_kafka_query_watermark_offsets(rk, topic, partition, &raw mut low, &raw mut high, 60_000)
    };
    assert_eq!((asked, low), (OK, 0));
    high
}

/// It returned `_UNKNOWN_GROUP`, and the records were sent.
#[test]
fn a_producer_sends_nothing_to_a_paused_partition() {
    let broker = Broker::builder().memory().topic("orders", 2).spawn().unwrap();
    let servers = broker.bootstrap_servers();
    let rk = new(RD_KAFKA_PRODUCER, conf(&[("bootstrap.servers", servers.as_str())]));
    let unknown = RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION;
    assert_eq!(set_paused(rk, rd_kafka_pause_partitions, [c"orders", c"other"]), [unknown; 2]);
    unsafe {
        let orders = rd_kafka_topic_new(rk, c"orders".as_ptr(), null_mut());
        assert_eq!(set_paused(rk, rd_kafka_pause_partitions, [c"orders", c"other"]), [OK, unknown]);
        for value in ["first", "second"] {
            produce(rk, c"orders", 0, value, null_mut());
        }
        produce(rk, c"orders", 1, "paid", null_mut());
        assert_eq!(rd_kafka_flush(rk, 1000), RD_KAFKA_RESP_ERR__TIMED_OUT);
        assert_eq!((end_of(rk, 0), end_of(rk, 1)), (0, 1));
        assert_eq!(set_paused(rk, rd_kafka_resume_partitions, [c"orders", c"other"]), [OK, unknown]);
        assert_eq!(rd_kafka_flush(rk, 60_000), OK);
        assert_eq!((end_of(rk, 0), end_of(rk, 1)), (2, 1));
        assert_eq!(rd_kafka_pause_partitions(rk, null_mut()), RD_KAFKA_RESP_ERR__INVALID_ARG);
        rd_kafka_topic_destroy(orders);
        rd_kafka_destroy(rk);
    }
}

/// The delivery reports; it is the opaque of the client.
type Reports = Vec<(rd_kafka_resp_err_t, rd_kafka_msg_status_t)>;

unsafe extern "C" fn on_report(_: *mut rd_kafka_t, message: *const rd_kafka_message_t, opaque: *mut c_void) {
    let report = unsafe { ((*message).err, rd_kafka_message_status(message)) };
    unsafe { &mut *opaque.cast::<Reports>() }.push(report);
}

#[test]
fn the_messages_of_a_paused_partition_time_out() {
    let broker = Broker::builder().memory().topic("orders", 1).spawn().unwrap();
    assert_eq!(broker.cluster().requests(ApiKey::Produce), 0);
    let mut reports = Reports::new();
    let conf = conf(&[("bootstrap.servers", broker.bootstrap_servers().as_str())]);
    unsafe {
        rd_kafka_conf_set_opaque(conf, (&raw mut reports).cast());
        rd_kafka_conf_set_dr_msg_cb(conf, Some(on_report));
        let rk = new(RD_KAFKA_PRODUCER, conf);
        let topic = rd_kafka_topic_conf_new();
        let (name, value) = (c"message.timeout.ms".as_ptr(), c"300".as_ptr());
        assert_eq!(rd_kafka_topic_conf_set(topic, name, value, null_mut(), 0), RD_KAFKA_CONF_OK);
        let orders = rd_kafka_topic_new(rk, c"orders".as_ptr(), topic);
        assert_eq!(set_paused(rk, rd_kafka_pause_partitions, [c"orders"; 2]), [OK; 2]);
        assert_eq!(rd_kafka_produce(orders, 0, 0, null_mut(), 0, null(), 0, null_mut()), 0);
        assert_eq!(rd_kafka_flush(rk, 60_000), OK);
        rd_kafka_topic_destroy(orders);
        rd_kafka_destroy(rk);
    }
    assert_eq!(reports, [(RD_KAFKA_RESP_ERR__MSG_TIMED_OUT, RD_KAFKA_MSG_STATUS_NOT_PERSISTED)]);
    assert_eq!(broker.cluster().requests(ApiKey::Produce), 0, "nothing was sent");
}

/// The next assignment of the partition was not paused, and a pause of a partition that was not assigned had no effect.
#[test]
fn a_consumer_s_pause_lasts_until_the_partition_is_resumed() {
    let broker = Broker::builder().memory().topic("orders", 1).topic("more", 1).spawn().unwrap();
    let servers = broker.bootstrap_servers();
    let producer = new(RD_KAFKA_PRODUCER, conf(&[("bootstrap.servers", servers.as_str())]));
    let send = |topic, value| {
        produce(producer, topic, 0, value, null_mut());
        assert_eq!(unsafe { rd_kafka_flush(producer, 60_000) }, OK);
    };
    send(c"orders", "paused");
    send(c"more", "first");
    let rk =
        new(RD_KAFKA_CONSUMER, conf(&[("bootstrap.servers", servers.as_str()), ("group.id", "billing")]));
    let partitions = list(&[(c"orders", 0), (c"more", 0)]);
    unsafe {
        for entry in (*partitions).elems_mut() {
            entry.offset = RD_KAFKA_OFFSET_BEGINNING;
        }
        let assign = |partitions| assert_eq!(rd_kafka_assign(rk, partitions), OK);
        let unknown = RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION;
        let mut sent = vec!["first"];
        assign(partitions.cast_const());
        assert_eq!(read(rk, 2).len(), 2);
        for is_assigned in [true, false] {
            if !is_assigned {
                assign(null());
            }
            assert_eq!(set_paused(rk, rd_kafka_pause_partitions, [c"orders", c"other"]), [OK, unknown]);
            assign(null());
            assign(partitions.cast_const());
            // A fetch of both partitions returns the records of both.
            assert_eq!(read(rk, sent.len()), sent);
            for value in ["second", "third"] {
                send(c"more", value);
                sent.push(value);
                assert_eq!(read(rk, 1), [value]);
            }
            assert_eq!(set_paused(rk, rd_kafka_resume_partitions, [c"orders"; 2]), [OK; 2]);
            assert_eq!(read(rk, 1), ["paused"]);
        }
        rd_kafka_topic_partition_list_destroy(partitions);
        rd_kafka_destroy(rk);
        rd_kafka_destroy(producer);
    }
}
