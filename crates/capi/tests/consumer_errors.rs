//! The errors of consumers as messages. Programs log their texts, topics and partitions, and search for them.

use std::ffi::CStr;
use std::ptr::null_mut;
use std::time::Instant;

use ottla_broker::{ApiKey, Broker, BrokerThread, ErrorCode, Fault};
use rdkafka::client::handle::*;
use rdkafka::client::topic_handle::*;
use rdkafka::consume::group_consumer::*;
use rdkafka::ffi::*;
use rdkafka::messages::message::*;
use rdkafka::messages::partition_list::*;
use rdkafka::produce::flush::*;
use rdkafka::queue::poll::*;

use crate::common::{Lines, PATIENCE, conf, list, log_to, new, produce, read, subscribe, until};

/// The code, text, topic, partition and offset of an error.
type Reported = (rd_kafka_resp_err_t, String, Option<String>, i32, i64);

fn consumer(broker: &BrokerThread) -> *mut rd_kafka_t {
    let servers = broker.bootstrap_servers();
    let properties =
        [("bootstrap.servers", servers.as_str()), ("group.id", "billing"), ("auto.offset.reset", "earliest")];
    new(RD_KAFKA_CONSUMER, conf(&properties))
}

/// Polls until an error comes.
fn next_error(rk: *mut rd_kafka_t) -> Reported {
    let deadline = Instant::now() + PATIENCE;
    let text = |text| unsafe { CStr::from_ptr(text) }.to_str().unwrap().to_owned();
    loop {
        assert!(Instant::now() < deadline, "no error came");
        unsafe {
            let message = rd_kafka_consumer_poll(rk, 100);
            if message.is_null() || (*message).err == RD_KAFKA_RESP_ERR_NO_ERROR {
                rd_kafka_message_destroy(message);
                continue;
            }
            let rkt = (*message).rkt;
            let topic = (!rkt.is_null()).then(|| text(rd_kafka_topic_name(rkt)));
            let reason = text(rd_kafka_message_errstr(message));
            let reported = ((*message).err, reason, topic, (*message).partition, (*message).offset);
            rd_kafka_message_destroy(message);
            return reported;
        }
    }
}

/// They named no topic and no partition, and their texts had Kafka's name of the error.
#[test]
fn a_refused_request_about_a_partition_names_it_with_the_text_of_librdkafka() {
    let broker = Broker::builder().memory().topic("orders", 2).spawn().unwrap();
    let (forbidden, unreadable) =
        (ErrorCode::TopicAuthorizationFailed, ErrorCode::UnsupportedCompressionType);
    for (api, code, offset, expected, text, reported_offset) in [
        (
            ApiKey::Fetch,
            forbidden,
            0,
            RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED,
            "Fetch from broker 1 failed: Broker: Topic authorization failed",
            0,
        ),
        (
            ApiKey::Fetch,
            unreadable,
            0,
            RD_KAFKA_RESP_ERR_UNSUPPORTED_COMPRESSION_TYPE,
            "Fetch from broker 1 failed at offset 0 (leader epoch -1): Broker: Unsupported compression type",
            0,
        ),
        (
            ApiKey::ListOffsets,
            forbidden,
            RD_KAFKA_OFFSET_BEGINNING,
            RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED,
            "Failed to query logical offset BEGINNING: Broker: Topic authorization failed",
            RD_KAFKA_OFFSET_BEGINNING,
        ),
    ] {
        broker.cluster().intercept(api, None, 1, Fault::Fail(code));
        let rk = consumer(&broker);
        let partitions = list(&[(c"orders", 1)]);
        unsafe {
            (*(*partitions).elems).offset = offset;
            assert_eq!(rd_kafka_assign(rk, partitions), RD_KAFKA_RESP_ERR_NO_ERROR);
            rd_kafka_topic_partition_list_destroy(partitions);
        }
        let orders = Some("orders".to_owned());
        assert_eq!(next_error(rk), (expected, text.to_owned(), orders, 1, reported_offset));
        unsafe { rd_kafka_destroy(rk) };
    }
}

#[test]
fn a_refused_member_has_the_text_of_librdkafka() {
    for (api, text) in [
        (ApiKey::FindCoordinator, "FindCoordinator response error: Broker: Group authorization failed"),
        (ApiKey::JoinGroup, "JoinGroup failed: Broker: Group authorization failed"),
    ] {
        let broker = Broker::builder().memory().topic("orders", 1).spawn().unwrap();
        let refused = Fault::Fail(ErrorCode::GroupAuthorizationFailed);
        broker.cluster().intercept(api, None, 1, refused);
        let rk = consumer(&broker);
        subscribe(rk, c"orders");
        let code = RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED;
        let none = RD_KAFKA_OFFSET_INVALID;
        assert_eq!(next_error(rk), (code, text.to_owned(), None, 0, none));
        unsafe { rd_kafka_destroy(rk) };
    }
}

/// The log had nothing about it, and an application that hangs makes no poll that could return the error.
#[test]
fn the_log_has_a_late_poll_at_once_and_the_next_poll_returns_it() {
    let broker = Broker::builder().memory().topic("orders", 1).spawn().unwrap();
    let servers = broker.bootstrap_servers();
    let lines = Lines::default();
    let late = "4 MAXPOLL [thrd:main]: Application maximum poll interval (1000ms) exceeded: ";
    let count = || lines.lock().unwrap().iter().filter(|line| line.starts_with(late)).count();
    let properties = [
        ("bootstrap.servers", servers.as_str()),
        ("group.id", "billing"),
        ("auto.offset.reset", "earliest"),
        ("heartbeat.interval.ms", "100"),
        ("session.timeout.ms", "1000"),
        ("max.poll.interval.ms", "1000"),
    ];
    unsafe {
        let producer = new(RD_KAFKA_PRODUCER, conf(&[("bootstrap.servers", servers.as_str())]));
        produce(producer, c"orders", 0, "paid", null_mut());
        assert_eq!(rd_kafka_flush(producer, 60_000), RD_KAFKA_RESP_ERR_NO_ERROR);
        rd_kafka_destroy(producer);

        let conf = conf(&properties);
        log_to(conf, &lines);
        let rk = new(RD_KAFKA_CONSUMER, conf);
        subscribe(rk, c"orders");
        assert_eq!(read(rk, 1), ["paid"]);
        // A machine that pauses may have made an earlier poll late.
        let before = count();
        until("the line", || count() > before);
        let text = "Application maximum poll interval (1000ms) exceeded".to_owned();
        let none = RD_KAFKA_OFFSET_INVALID;
        assert_eq!(next_error(rk), (RD_KAFKA_RESP_ERR__MAX_POLL_EXCEEDED, text, None, 0, none));
        rd_kafka_destroy(rk);
    }
}

/// The log had nothing about it: the partitions were lost, and no line said why.
#[test]
fn the_log_has_a_session_that_ends_without_an_answer_to_heartbeats() {
    let broker = Broker::builder().memory().topic("orders", 1).spawn().unwrap();
    let servers = broker.bootstrap_servers();
    let lines = Lines::default();
    let line = "4 SESSTMOUT [thrd:main]: Consumer group session timed out after 1000 ms ";
    let properties = [
        ("bootstrap.servers", servers.as_str()),
        ("group.id", "billing"),
        ("heartbeat.interval.ms", "100"),
        ("session.timeout.ms", "1000"),
    ];
    unsafe {
        let conf = conf(&properties);
        log_to(conf, &lines);
        let rk = new(RD_KAFKA_CONSUMER, conf);
        let refusal = Fault::Fail(ErrorCode::CoordinatorLoadInProgress);
        broker.cluster().intercept(ApiKey::Heartbeat, None, 1_000_000, refusal);
        subscribe(rk, c"orders");
        until("the line", || {
            let message = rd_kafka_consumer_poll(rk, 10);
            if !message.is_null() {
                rd_kafka_message_destroy(message);
            }
            lines.lock().unwrap().iter().any(|of_log| of_log.starts_with(line))
        });
        rd_kafka_destroy(rk);
    }
}
