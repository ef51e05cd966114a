//! The simple consumer with topics that have their own configurations.

#![cfg(feature = "mock")]
#![allow(unsafe_code, reason = "C's functions")]
#![allow(clippy::disallowed_methods, reason = "a test is a shell: it may use time")]
#![allow(clippy::undocumented_unsafe_blocks, reason = "a test calls as C does")]
#![allow(
    clippy::wildcard_imports,
    clippy::unwrap_used,
    reason = "C's names, and a test that stops where it must"
)]

use std::ffi::{CStr, CString, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};

use rdkafka::client::handle::*;
use rdkafka::client::topic_handle::*;
use rdkafka::conf::topic_conf::*;
use rdkafka::consume::simple_consumer::*;
use rdkafka::errors::error_object::*;
use rdkafka::ffi::*;
use rdkafka::messages::message::*;
use rdkafka::mock::topics::*;
use rdkafka::mock::*;
use rdkafka::produce::flush::*;

use crate::common::*;

/// Returns offset and error of the first message from partition 0 of a topic with this configuration.
fn first(servers: &CStr, reset: &str, from: i64) -> Option<(i64, rd_kafka_resp_err_t)> {
    let properties = [("bootstrap.servers", servers.to_str().unwrap()), ("auto.offset.reset", "latest")];
    let reset = CString::new(reset).unwrap();
    unsafe {
        let rk = new(RD_KAFKA_CONSUMER, conf(&properties));
        let topic = rd_kafka_topic_conf_new();
        let name = c"auto.offset.reset".as_ptr();
        assert_eq!(rd_kafka_topic_conf_set(topic, name, reset.as_ptr(), null_mut(), 0), RD_KAFKA_CONF_OK);
        let rkt = rd_kafka_topic_new(rk, c"orders".as_ptr(), topic);
        assert_eq!(rd_kafka_consume_start(rkt, 0, from), 0);
        let wait_ms = if reset.as_c_str() == c"largest" { 500 } else { 60_000 };
        let message = rd_kafka_consume(rkt, 0, wait_ms);
        let told = message.as_ref().map(|message| (message.offset, message.err));
        if !message.is_null() {
            rd_kafka_message_destroy(message);
        }
        assert_eq!(rd_kafka_consume_stop(rkt, 0), 0);
        rd_kafka_topic_destroy(rkt);
        rd_kafka_destroy(rk);
        told
    }
}

#[test]
fn a_topic_of_its_own_says_where_its_partitions_begin() {
    let rk = new(RD_KAFKA_PRODUCER, conf(&[("test.mock.num.brokers", "1")]));
    unsafe {
        for value in ["one", "two", "three"] {
            produce(rk, c"orders", 0, value, null_mut());
        }
        assert_eq!(rd_kafka_flush(rk, 60_000), RD_KAFKA_RESP_ERR_NO_ERROR);
        let servers = CStr::from_ptr(rd_kafka_mock_cluster_bootstraps(rd_kafka_handle_mock_cluster(rk)));
        // No such offset: the topic decides, and not the client, which would begin with the latest.
        assert_eq!(first(servers, "smallest", 1000), Some((0, RD_KAFKA_RESP_ERR_NO_ERROR)));
        assert_eq!(first(servers, "largest", 1000), None);
        let (_, err) = first(servers, "error", 1000).unwrap();
        assert_eq!(err, RD_KAFKA_RESP_ERR__AUTO_OFFSET_RESET);
        assert_eq!(first(servers, "error", 2), Some((2, RD_KAFKA_RESP_ERR_NO_ERROR)));
        rd_kafka_destroy(rk);
    }
}

/// The four properties of librdkafka's introductions, given to the topic.
#[test]
fn a_topic_s_offset_file_outlives_its_consumer_without_a_group() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_str().unwrap();
    let rk = new(RD_KAFKA_PRODUCER, conf(&[("test.mock.num.brokers", "1")]));
    unsafe {
        for value in 0..20 {
            produce(rk, c"orders", 0, &value.to_string(), null_mut());
        }
        assert_eq!(rd_kafka_flush(rk, 60_000), RD_KAFKA_RESP_ERR_NO_ERROR);
        let servers = CStr::from_ptr(rd_kafka_mock_cluster_bootstraps(rd_kafka_handle_mock_cluster(rk)));
        let properties = [("bootstrap.servers", servers.to_str().unwrap())];
        let own = [
            ("offset.store.method", "file"),
            ("offset.store.path", path),
            ("offset.store.sync.interval.ms", "0"),
            ("auto.commit.enable", "true"),
            ("auto.commit.interval.ms", "50"),
            ("auto.offset.reset", "earliest"),
        ];
        for life in 0..2 {
            let rk = new(RD_KAFKA_CONSUMER, conf(&properties));
            let topic = rd_kafka_topic_conf_new();
            for (name, value) in own {
                let (name, value) = (CString::new(name).unwrap(), CString::new(value).unwrap());
                let set = rd_kafka_topic_conf_set(topic, name.as_ptr(), value.as_ptr(), null_mut(), 0);
                assert_eq!(set, RD_KAFKA_CONF_OK);
            }
            let rkt = rd_kafka_topic_new(rk, c"orders".as_ptr(), topic);
            let other = rd_kafka_topic_new(rk, c"other".as_ptr(), null_mut());
            assert_eq!(rd_kafka_consume_start(other, 0, RD_KAFKA_OFFSET_STORED), -1);
            assert_eq!(rd_kafka_last_error(), RD_KAFKA_RESP_ERR__INVALID_ARG, "neither group nor file");
            assert_eq!(rd_kafka_consume_start(rkt, 0, RD_KAFKA_OFFSET_STORED), 0);
            for value in life * 10..life * 10 + 10 {
                let message = rd_kafka_consume(rkt, 0, 60_000);
                assert_eq!(text_of(message), value.to_string());
                rd_kafka_message_destroy(message);
            }
            let file = directory.path().join("orders-0.offset");
            let stored = || std::fs::read_to_string(&file).unwrap_or_default();
            let expected = format!("{}\n", life * 10 + 10);
            if life == 0 {
                // Without a stop, by the interval.
                until("the offset is in the file", || stored() == expected);
            }
            assert_eq!(rd_kafka_consume_stop(rkt, 0), 0);
            assert_eq!(stored(), expected);
            rd_kafka_topic_destroy(other);
            rd_kafka_topic_destroy(rkt);
            rd_kafka_destroy(rk);
        }
        rd_kafka_destroy(rk);
    }
}

/// librdkafka leaves an empty file behind for a partition without a commit: neither it nor nonsense let its partition start.
#[test]
fn a_file_without_an_offset_starts_its_partition_by_the_reset() {
    let directory = tempfile::tempdir().unwrap();
    for (partition, text) in [(0, ""), (1, "seven"), (2, "1\n")] {
        std::fs::write(directory.path().join(format!("orders-{partition}.offset")), text).unwrap();
    }
    let rk = new(RD_KAFKA_PRODUCER, conf(&[("test.mock.num.brokers", "1")]));
    unsafe {
        let cluster = rd_kafka_handle_mock_cluster(rk);
        let created = rd_kafka_mock_topic_create(cluster, c"orders".as_ptr(), 3, 1);
        assert_eq!(created, RD_KAFKA_RESP_ERR_NO_ERROR);
        for partition in 0..3 {
            produce(rk, c"orders", partition, "zero", null_mut());
            produce(rk, c"orders", partition, "one", null_mut());
        }
        assert_eq!(rd_kafka_flush(rk, 60_000), RD_KAFKA_RESP_ERR_NO_ERROR);
        let servers = CStr::from_ptr(rd_kafka_mock_cluster_bootstraps(cluster)).to_str().unwrap();
        let consumer = new(RD_KAFKA_CONSUMER, conf(&[("bootstrap.servers", servers)]));
        let topic = rd_kafka_topic_conf_new();
        for (name, value) in [
            ("offset.store.method", "file"),
            ("offset.store.path", directory.path().to_str().unwrap()),
            ("auto.offset.reset", "earliest"),
        ] {
            let (name, value) = (CString::new(name).unwrap(), CString::new(value).unwrap());
            let set = rd_kafka_topic_conf_set(topic, name.as_ptr(), value.as_ptr(), null_mut(), 0);
            assert_eq!(set, RD_KAFKA_CONF_OK);
        }
        let rkt = rd_kafka_topic_new(consumer, c"orders".as_ptr(), topic);
        for (partition, value) in [(0, "zero"), (1, "zero"), (2, "one")] {
            assert_eq!(rd_kafka_consume_start(rkt, partition, RD_KAFKA_OFFSET_STORED), 0, "{partition}");
            let message = rd_kafka_consume(rkt, partition, 60_000);
            assert!(!message.is_null(), "{partition}");
            assert_eq!(text_of(message), value, "{partition}");
            rd_kafka_message_destroy(message);
            assert_eq!(rd_kafka_consume_stop(rkt, partition), 0);
        }
        rd_kafka_topic_destroy(rkt);
        rd_kafka_destroy(consumer);
        rd_kafka_destroy(rk);
    }
}

/// A start without an offset began where the group had left off, and a stop of no partition was one of an unknown partition.
#[test]
fn a_start_without_an_offset_and_a_stop_without_a_partition_are_refused() {
    let rk = new(RD_KAFKA_CONSUMER, conf(&[("group.id", "billing")]));
    unsafe {
        let rkt = rd_kafka_topic_new(rk, c"orders".as_ptr(), null_mut());
        let invalid = (RD_KAFKA_RESP_ERR__INVALID_ARG, libc::EINVAL);
        let unknown = (RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION, libc::ESRCH);
        for offset in [RD_KAFKA_OFFSET_INVALID, -7] {
            assert_eq!(rd_kafka_consume_start(rkt, 0, offset), -1, "{offset}");
            assert_eq!((rd_kafka_last_error(), rd_kafka_errno()), invalid, "{offset}");
        }
        assert_eq!(rd_kafka_consume_start(rkt, RD_KAFKA_PARTITION_UA, 0), -1);
        assert_eq!((rd_kafka_last_error(), rd_kafka_errno()), unknown);
        for (partition, expected) in [(RD_KAFKA_PARTITION_UA, invalid), (-2, unknown)] {
            assert_eq!(rd_kafka_consume_stop(rkt, partition), -1, "{partition}");
            assert_eq!((rd_kafka_last_error(), rd_kafka_errno()), expected, "{partition}");
        }
        rd_kafka_topic_destroy(rkt);
        rd_kafka_destroy(rk);
    }
}

unsafe extern "C" fn count_message(_: *mut rd_kafka_message_t, opaque: *mut c_void) {
    unsafe { &*opaque.cast::<AtomicUsize>() }.fetch_add(1, Ordering::Relaxed);
}

/// A limit of the topic's own configuration had no effect: a call consumed all messages that were there.
#[test]
fn a_topic_of_its_own_limits_the_messages_of_one_call() {
    let rk = new(RD_KAFKA_PRODUCER, conf(&[("test.mock.num.brokers", "1")]));
    unsafe {
        for value in ["one", "two", "three", "four", "five"] {
            produce(rk, c"orders", 0, value, null_mut());
        }
        assert_eq!(rd_kafka_flush(rk, 60_000), RD_KAFKA_RESP_ERR_NO_ERROR);
        let servers = CStr::from_ptr(rd_kafka_mock_cluster_bootstraps(rd_kafka_handle_mock_cluster(rk)));
        let consumer = new(RD_KAFKA_CONSUMER, conf(&[("bootstrap.servers", servers.to_str().unwrap())]));
        let topic = rd_kafka_topic_conf_new();
        let (name, limit) = (c"consume.callback.max.messages".as_ptr(), c"2".as_ptr());
        assert_eq!(rd_kafka_topic_conf_set(topic, name, limit, null_mut(), 0), RD_KAFKA_CONF_OK);
        let rkt = rd_kafka_topic_new(consumer, c"orders".as_ptr(), topic);
        assert_eq!(rd_kafka_consume_start(rkt, 0, RD_KAFKA_OFFSET_BEGINNING), 0);
        let seen = AtomicUsize::new(0);
        let opaque: *mut c_void = std::ptr::from_ref(&seen).cast_mut().cast();
        while seen.load(Ordering::Relaxed) < 5 {
            let count = rd_kafka_consume_callback(rkt, 0, 60_000, Some(count_message), opaque);
            assert!((1..=2).contains(&count), "{count} messages in one call");
        }
        assert_eq!(rd_kafka_consume_stop(rkt, 0), 0);
        rd_kafka_topic_destroy(rkt);
        rd_kafka_destroy(consumer);
        rd_kafka_destroy(rk);
    }
}
