//! Offsets that are not stored, not committed or not found. Bindings show the texts and compare the codes.

use std::ffi::CStr;
use std::ptr::{null, null_mut};

use ottla_broker::{Broker, BrokerThread};
use rdkafka::client::handle::*;
use rdkafka::client::topic_handle::*;
use rdkafka::consume::group_consumer::*;
use rdkafka::consume::offsets::*;
use rdkafka::errors::error_object::*;
use rdkafka::ffi::*;
use rdkafka::messages::message::*;
use rdkafka::messages::partition_list::*;
use rdkafka::produce::flush::*;
use rdkafka::queue::poll::*;

use crate::common::{conf, list, new, produce, until};

const OK: rd_kafka_resp_err_t = RD_KAFKA_RESP_ERR_NO_ERROR;

/// A broker with a record in partition 0 of `orders`.
fn broker() -> BrokerThread {
    let broker = Broker::builder().memory().topic("orders", 2).spawn().unwrap();
    let servers = broker.bootstrap_servers();
    let rk = new(RD_KAFKA_PRODUCER, conf(&[("bootstrap.servers", servers.as_str())]));
    produce(rk, c"orders", 0, "paid", null_mut());
    assert_eq!(unsafe { rd_kafka_flush(rk, 60_000) }, OK);
    unsafe { rd_kafka_destroy(rk) };
    broker
}

fn consumer(broker: &BrokerThread) -> *mut rd_kafka_t {
    let servers = broker.bootstrap_servers();
    new(RD_KAFKA_CONSUMER, conf(&[("bootstrap.servers", servers.as_str()), ("group.id", "billing")]))
}

/// Stores the offset of a message. Returns the code and the text of the refusal.
unsafe fn store(message: *mut rd_kafka_message_t) -> (rd_kafka_resp_err_t, String) {
    unsafe {
        let error = rd_kafka_offset_store_message(message);
        let text = CStr::from_ptr(rd_kafka_error_string(error)).to_str().unwrap().to_owned();
        let refused = (rd_kafka_error_code(error), text);
        rd_kafka_error_destroy(error);
        refused
    }
}

/// The texts were our own.
#[test]
fn a_message_that_was_not_consumed_has_no_offset_to_store() {
    let rk = new(RD_KAFKA_PRODUCER, conf(&[]));
    let not_consumed = "Invalid message object, not a consumed message";
    unsafe {
        let rkt = rd_kafka_topic_new(rk, c"orders".as_ptr(), null_mut());
        for (rkt, err, text) in [
            (rkt, OK, not_consumed),
            (null_mut(), OK, not_consumed),
            (rkt, RD_KAFKA_RESP_ERR__PARTITION_EOF, "Message object must not have an error set"),
        ] {
            let mut message = rd_kafka_message_t {
                err,
                rkt,
                partition: 0,
                payload: null_mut(),
                len: 0,
                key: null_mut(),
                key_len: 0,
                offset: 0,
                _private: null_mut(),
            };
            assert_eq!(store(&raw mut message), (RD_KAFKA_RESP_ERR__INVALID_ARG, text.to_owned()));
        }
        rd_kafka_topic_destroy(rkt);
        rd_kafka_destroy(rk);
    }
}

#[test]
fn an_offset_of_a_partition_that_was_given_up_is_not_stored() {
    let broker = broker();
    let rk = consumer(&broker);
    let partitions = list(&[(c"orders", 0)]);
    unsafe {
        (*(*partitions).elems).offset = 0;
        assert_eq!(rd_kafka_assign(rk, partitions), OK);
        let mut message = null_mut();
        until("the record", || {
            message = rd_kafka_consumer_poll(rk, 100);
            !message.is_null()
        });
        assert_eq!((*message).err, OK);
        assert_eq!(store(message).0, OK);
        assert_eq!(rd_kafka_assign(rk, null()), OK);
        let refused = (RD_KAFKA_RESP_ERR__STATE, "Partition is not assigned".to_owned());
        assert_eq!(store(message), refused);
        rd_kafka_message_destroy(message);
        rd_kafka_topic_partition_list_destroy(partitions);
        rd_kafka_destroy(rk);
    }
}

/// The code was that of a broken connection.
#[test]
fn a_commit_without_a_broker_waits_for_the_coordinator() {
    let properties =
        [("bootstrap.servers", "127.0.0.1:1"), ("group.id", "billing"), ("socket.timeout.ms", "2000")];
    let rk = new(RD_KAFKA_CONSUMER, conf(&properties));
    let offsets = list(&[(c"orders", 0)]);
    unsafe {
        (*(*offsets).elems).offset = 7;
        assert_eq!(rd_kafka_commit(rk, offsets, 0), RD_KAFKA_RESP_ERR__WAIT_COORD);
        rd_kafka_topic_partition_list_destroy(offsets);
        rd_kafka_destroy(rk);
    }
}

/// The entry kept the offset of the caller, as if it were committed.
#[test]
fn a_lookup_of_committed_offsets_that_fails_leaves_no_offset() {
    let rk = new(RD_KAFKA_CONSUMER, conf(&[("bootstrap.servers", "127.0.0.1:1"), ("group.id", "billing")]));
    let entries = list(&[(c"orders", 0)]);
    unsafe {
        (*(*entries).elems).offset = 7;
        assert_eq!(rd_kafka_committed(rk, entries, 300), RD_KAFKA_RESP_ERR__TIMED_OUT);
        assert_eq!((*(*entries).elems).offset, RD_KAFKA_OFFSET_INVALID);
        rd_kafka_topic_partition_list_destroy(entries);
        rd_kafka_destroy(rk);
    }
}

/// A missing topic and a missing partition had the same code.
#[test]
fn offsets_for_times_say_which_topic_and_which_partition_is_missing() {
    let broker = broker();
    let rk = consumer(&broker);
    let (unknown_topic, unknown_partition) =
        (RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART, RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION);
    for (partitions, code, errors) in [
        (
            &[(c"orders", 0), (c"absent", 0), (c"orders", 9)][..],
            OK,
            &[OK, unknown_topic, unknown_partition][..],
        ),
        (&[(c"absent", 0)], unknown_partition, &[unknown_topic]),
        (&[(c"orders", 9)], unknown_partition, &[unknown_partition]),
    ] {
        let times = list(partitions);
        unsafe {
            for entry in std::slice::from_raw_parts_mut((*times).elems, partitions.len()) {
                entry.offset = 0;
            }
            assert_eq!(rd_kafka_offsets_for_times(rk, times, 60_000), code, "{partitions:?}");
            let found: Vec<_> = (*times).elems().iter().map(|entry| entry.err).collect();
            assert_eq!(found, errors, "{partitions:?}");
            rd_kafka_topic_partition_list_destroy(times);
        }
    }
    unsafe { rd_kafka_destroy(rk) };
}
