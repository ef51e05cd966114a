//! Records that are produced through the C interface: their sizes, their topics and their timeouts.

#![allow(unsafe_code, reason = "C's functions")]
#![allow(clippy::disallowed_methods, reason = "a test is a shell: it may use threads and time")]
#![allow(clippy::undocumented_unsafe_blocks, reason = "a test calls as C does")]
#![allow(
    clippy::wildcard_imports,
    clippy::unwrap_used,
    reason = "C's names, and a test that stops where it must"
)]

use std::ffi::{c_char, c_void};
use std::ptr::{null, null_mut};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use ottla_broker::{ApiKey, Broker, ErrorCode, Fault};
use rdkafka::client::handle::*;
use rdkafka::client::metadata::*;
use rdkafka::client::topic_handle::*;
use rdkafka::conf::topic_conf::*;
use rdkafka::conf::*;
use rdkafka::consume::group_consumer::*;
use rdkafka::consume::group_metadata::*;
use rdkafka::consume::offsets::*;
use rdkafka::errors::error_object::*;
use rdkafka::ffi::*;
use rdkafka::messages::message::*;
use rdkafka::messages::partition_list::*;
use rdkafka::produce::flush::*;
use rdkafka::produce::producer::*;
use rdkafka::produce::transactions::*;
use rdkafka::queue::poll::*;
use rdkafka::queue::queue_handle::*;

use crate::common::{PATIENCE, conf, list, new, produce, until};

/// The errors of delivery reports; it is the opaque of the client.
type Reports = Mutex<Vec<(rd_kafka_resp_err_t, rd_kafka_msg_status_t)>>;

unsafe extern "C" fn on_report(_: *mut rd_kafka_t, message: *const rd_kafka_message_t, opaque: *mut c_void) {
    let reports = unsafe { &*opaque.cast::<Reports>() };
    let report = unsafe { ((*message).err, rd_kafka_message_status(message)) };
    reports.lock().unwrap().push(report);
}

fn producer(reports: &Reports, properties: &[(&str, &str)]) -> *mut rd_kafka_t {
    let conf = conf(properties);
    unsafe {
        rd_kafka_conf_set_opaque(conf, std::ptr::from_ref(reports).cast_mut().cast());
        rd_kafka_conf_set_dr_msg_cb(conf, Some(on_report));
    }
    new(RD_KAFKA_PRODUCER, conf)
}

/// librdkafka's test 0003.
#[test]
fn message_max_bytes_counts_the_frame_of_a_record_and_not_that_of_its_batch() {
    let broker = Broker::builder().memory().topic("orders", 1).spawn().unwrap();
    let reports = Reports::default();
    let servers = broker.bootstrap_servers();
    let properties = [("bootstrap.servers", servers.as_str()), ("message.max.bytes", "100000")];
    let rk = producer(&reports, &properties);
    let bytes = vec![b'x'; 101_000];
    let too_large = RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE;
    let mut taken = 0;
    for (key, value, expected) in [
        (None, Some(5000), RD_KAFKA_RESP_ERR_NO_ERROR),
        (Some(0), Some(99_900), RD_KAFKA_RESP_ERR_NO_ERROR),
        (None, Some(99_964), RD_KAFKA_RESP_ERR_NO_ERROR),
        (None, Some(99_965), too_large),
        (Some(0), Some(100_000), too_large),
        (Some(100_000), Some(0), too_large),
        (Some(1000), Some(100_000), too_large),
        (Some(0), Some(101_000), too_large),
        (Some(99_000), None, RD_KAFKA_RESP_ERR_NO_ERROR),
    ] {
        let part =
            |len: Option<usize>| (len.map_or(null(), |_| bytes.as_ptr().cast::<c_void>()), len.unwrap_or(0));
        let ((key, key_len), (value, len)) = (part(key), part(value));
        unsafe {
            let rkt = rd_kafka_topic_new(rk, c"orders".as_ptr(), null_mut());
            let done = rd_kafka_produce(
                rkt,
                0,
                RD_KAFKA_MSG_F_COPY,
                value.cast_mut(),
                len,
                key,
                key_len,
                null_mut(),
            );
            let code = if done == 0 { RD_KAFKA_RESP_ERR_NO_ERROR } else { rd_kafka_last_error() };
            assert_eq!(code, expected, "key {key_len}, value {len}");
            taken += usize::from(done == 0);
            rd_kafka_topic_destroy(rkt);
        }
    }
    unsafe {
        assert_eq!(rd_kafka_flush(rk, 60_000), RD_KAFKA_RESP_ERR_NO_ERROR);
        rd_kafka_destroy(rk);
    }
    let reports = reports.into_inner().unwrap();
    assert_eq!(reports, vec![(RD_KAFKA_RESP_ERR_NO_ERROR, RD_KAFKA_MSG_STATUS_PERSISTED); taken]);
}

/// librdkafka's test 0054 hung.
#[test]
fn a_topic_that_was_asked_for_before_it_exists_is_created_by_a_record() {
    let broker = Broker::builder().memory().spawn().unwrap();
    let reports = Reports::default();
    let rk = producer(&reports, &[("bootstrap.servers", broker.bootstrap_servers().as_str())]);
    unsafe {
        let (mut low, mut high) = (0, 0);
        let watermarks =
            rd_kafka_query_watermark_offsets(rk, c"new".as_ptr(), 0, &raw mut low, &raw mut high, 5000);
        assert_ne!(watermarks, RD_KAFKA_RESP_ERR_NO_ERROR);
        let times = list(&[(c"new", 97)]);
        assert_ne!(rd_kafka_offsets_for_times(rk, times, 5000), RD_KAFKA_RESP_ERR_NO_ERROR);
        rd_kafka_topic_partition_list_destroy(times);
        produce(rk, c"new", -1, "first", null_mut());
        assert_eq!(rd_kafka_flush(rk, 20_000), RD_KAFKA_RESP_ERR_NO_ERROR);
        rd_kafka_destroy(rk);
    }
    assert_eq!(reports.into_inner().unwrap(), [(RD_KAFKA_RESP_ERR_NO_ERROR, RD_KAFKA_MSG_STATUS_PERSISTED)]);
}

/// Tests and programs create a topic by its handle, and wait until its metadata is complete.
#[test]
fn a_topic_s_handle_and_a_request_for_its_metadata_create_it() {
    let broker = Broker::builder().memory().spawn().unwrap();
    let rk = new(RD_KAFKA_PRODUCER, conf(&[("bootstrap.servers", broker.bootstrap_servers().as_str())]));
    let other = new(RD_KAFKA_CONSUMER, conf(&[("bootstrap.servers", broker.bootstrap_servers().as_str())]));
    let partitions = |rk, only: *mut rd_kafka_topic_t, name: &str| {
        let mut metadata: *const rd_kafka_metadata_t = null();
        unsafe {
            let all = i32::from(only.is_null());
            let code = rd_kafka_metadata(rk, all, only, &raw mut metadata, 5000);
            assert_eq!(code, RD_KAFKA_RESP_ERR_NO_ERROR);
            let topics = (0..(*metadata).topic_cnt as usize).map(|at| &*(*metadata).topics.add(at));
            let found = topics.filter(|topic| std::ffi::CStr::from_ptr(topic.topic).to_str() == Ok(name));
            let count = found.map(|topic| topic.partition_cnt).sum::<i32>();
            rd_kafka_metadata_destroy(metadata);
            count
        }
    };
    unsafe {
        let by_handle = rd_kafka_topic_new(rk, c"by-handle".as_ptr(), null_mut());
        until("the topic of the handle exists", || partitions(other, null_mut(), "by-handle") > 0);
        let named = rd_kafka_topic_new(other, c"by-request".as_ptr(), null_mut());
        assert_eq!(partitions(other, named, "by-request"), 0, "a consumer creates no topic");
        assert_eq!(partitions(rk, null_mut(), "by-request"), 0);
        let creating = rd_kafka_topic_new(rk, c"by-request".as_ptr(), null_mut());
        until("the requested topic exists", || partitions(rk, creating, "by-request") > 0);
        for rkt in [by_handle, named, creating] {
            rd_kafka_topic_destroy(rkt);
        }
        rd_kafka_destroy(rk);
        rd_kafka_destroy(other);
    }
}

#[test]
fn message_timeout_ends_records_in_flight_and_a_late_answer_is_no_success() {
    let broker = Broker::builder().memory().topic("orders", 1).spawn().unwrap();
    let reports = Reports::default();
    let servers = broker.bootstrap_servers();
    let properties = [("bootstrap.servers", servers.as_str()), ("message.timeout.ms", "1000")];
    let rk = producer(&reports, &properties);
    produce(rk, c"orders", 0, "before", null_mut());
    assert_eq!(unsafe { rd_kafka_flush(rk, 60_000) }, RD_KAFKA_RESP_ERR_NO_ERROR);
    broker.cluster().intercept(ApiKey::Produce, None, 1, Fault::Delay(Duration::from_secs(4)));
    let begun = Instant::now();
    produce(rk, c"orders", 0, "late", null_mut());
    while reports.lock().unwrap().len() < 2 {
        assert!(begun.elapsed() < PATIENCE, "no report");
        unsafe { rd_kafka_poll(rk, 100) };
    }
    assert!(begun.elapsed() < Duration::from_secs(3), "after {:?}", begun.elapsed());
    let expected = (RD_KAFKA_RESP_ERR__MSG_TIMED_OUT, RD_KAFKA_MSG_STATUS_POSSIBLY_PERSISTED);
    assert_eq!(reports.lock().unwrap()[1], expected);
    // The answer arrives, and nothing more is reported.
    while begun.elapsed() < Duration::from_secs(5) {
        unsafe { rd_kafka_poll(rk, 100) };
    }
    assert_eq!(reports.lock().unwrap().len(), 2);
    unsafe { rd_kafka_destroy(rk) };
}

/// librdkafka's test 0068: the first request to a leader opens the connection, and counts as in flight from then on.
#[test]
fn message_timeout_ends_the_first_record_in_flight() {
    let broker = Broker::builder().memory().topic("orders", 1).spawn().unwrap();
    broker.cluster().intercept(ApiKey::Produce, None, 1, Fault::Delay(Duration::from_secs(4)));
    let reports = Reports::default();
    let servers = broker.bootstrap_servers();
    let rk = producer(&reports, &[("bootstrap.servers", servers.as_str()), ("message.timeout.ms", "1000")]);
    produce(rk, c"orders", 0, "late", null_mut());
    assert_eq!(unsafe { rd_kafka_flush(rk, 60_000) }, RD_KAFKA_RESP_ERR_NO_ERROR);
    unsafe { rd_kafka_destroy(rk) };
    let expected = (RD_KAFKA_RESP_ERR__MSG_TIMED_OUT, RD_KAFKA_MSG_STATUS_POSSIBLY_PERSISTED);
    assert_eq!(reports.into_inner().unwrap(), [expected]);
}

/// librdkafka's test 0115.
#[test]
fn a_forbidden_topic_is_refused_at_once_until_metadata_allows_it() {
    let broker = Broker::builder().memory().topic("orders", 1).spawn().unwrap();
    let forbidden = ErrorCode::TopicAuthorizationFailed;
    broker.cluster().set_topic_error("orders", forbidden);
    broker.cluster().intercept(ApiKey::Produce, None, 1, Fault::Fail(forbidden));
    let reports = Reports::default();
    let servers = broker.bootstrap_servers();
    let properties = [("bootstrap.servers", servers.as_str()), ("topic.metadata.refresh.interval.ms", "100")];
    let rk = producer(&reports, &properties);
    produce(rk, c"orders", 0, "reported", null_mut());
    unsafe {
        assert_eq!(rd_kafka_flush(rk, 60_000), RD_KAFKA_RESP_ERR_NO_ERROR);
        assert_eq!(reports.lock().unwrap()[0].0, RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED);
        let rkt = rd_kafka_topic_new(rk, c"orders".as_ptr(), null_mut());
        let again = || {
            let value = c"x".as_ptr().cast_mut().cast();
            rd_kafka_produce(rkt, 0, RD_KAFKA_MSG_F_COPY, value, 1, null(), 0, null_mut())
        };
        assert_eq!(again(), -1);
        assert_eq!(rd_kafka_last_error(), RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED);
        broker.cluster().set_topic_error("orders", ErrorCode::None);
        broker.cluster().clear_intercepts();
        until("the topic is allowed again", || again() == 0);
        assert_eq!(rd_kafka_flush(rk, 60_000), RD_KAFKA_RESP_ERR_NO_ERROR);
        rd_kafka_topic_destroy(rkt);
        rd_kafka_destroy(rk);
    }
    assert_eq!(reports.into_inner().unwrap()[1].0, RD_KAFKA_RESP_ERR_NO_ERROR);
}

/// librdkafka's test 0105.
#[test]
fn metadata_is_requested_soon_for_a_topic_that_a_broker_has_forbidden() {
    let broker = Broker::builder().memory().topic("orders", 1).spawn().unwrap();
    broker.cluster().intercept(ApiKey::Produce, None, 1, Fault::Fail(ErrorCode::TopicAuthorizationFailed));
    let reports = Reports::default();
    let servers = broker.bootstrap_servers();
    let rk = producer(&reports, &[("bootstrap.servers", servers.as_str())]);
    produce(rk, c"orders", 0, "reported", null_mut());
    unsafe {
        assert_eq!(rd_kafka_flush(rk, 60_000), RD_KAFKA_RESP_ERR_NO_ERROR);
        let rkt = rd_kafka_topic_new(rk, c"orders".as_ptr(), null_mut());
        until("the topic is allowed again", || {
            let value = c"x".as_ptr().cast_mut().cast();
            rd_kafka_produce(rkt, 0, RD_KAFKA_MSG_F_COPY, value, 1, null(), 0, null_mut()) == 0
        });
        assert_eq!(rd_kafka_flush(rk, 60_000), RD_KAFKA_RESP_ERR_NO_ERROR);
        rd_kafka_topic_destroy(rkt);
        rd_kafka_destroy(rk);
    }
    let codes: Vec<_> = reports.into_inner().unwrap().into_iter().map(|report| report.0).collect();
    assert_eq!(codes, [RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED, RD_KAFKA_RESP_ERR_NO_ERROR]);
}

#[test]
fn refusals_for_the_leader_are_no_retries() {
    for code in
        [ErrorCode::LeaderNotAvailable, ErrorCode::NotLeaderOrFollower, ErrorCode::UnknownTopicOrPartition]
    {
        let broker = Broker::builder().memory().topic("orders", 1).spawn().unwrap();
        let reports = Reports::default();
        let rk = producer(
            &reports,
            &[("bootstrap.servers", broker.bootstrap_servers().as_str()), ("retries", "2")],
        );
        broker.cluster().intercept(ApiKey::Produce, None, 6, Fault::Fail(code));
        produce(rk, c"orders", 0, "x", null_mut());
        assert_eq!(unsafe { rd_kafka_flush(rk, 60_000) }, RD_KAFKA_RESP_ERR_NO_ERROR);
        unsafe { rd_kafka_destroy(rk) };
        let expected = (RD_KAFKA_RESP_ERR_NO_ERROR, RD_KAFKA_MSG_STATUS_PERSISTED);
        assert_eq!(reports.into_inner().unwrap(), [expected], "{code:?}");
    }
}

unsafe extern "C" fn note_broker(
    _: *mut rd_kafka_t,
    message: *const rd_kafka_message_t,
    opaque: *mut c_void,
) {
    let brokers = unsafe { &*opaque.cast::<Mutex<Vec<i32>>>() };
    brokers.lock().unwrap().push(unsafe { rd_kafka_message_broker_id(message) });
}

/// librdkafka's test 0039.
#[test]
fn a_report_names_the_broker_that_got_the_record() {
    let broker = Broker::builder().memory().nodes(2).topic("orders", 1).spawn().unwrap();
    assert!(broker.cluster().set_leader("orders", 0, 2));
    let brokers: Mutex<Vec<i32>> = Mutex::default();
    let conf = conf(&[("bootstrap.servers", broker.bootstrap_servers().as_str())]);
    unsafe {
        rd_kafka_conf_set_opaque(conf, (&raw const brokers).cast_mut().cast());
        rd_kafka_conf_set_dr_msg_cb(conf, Some(note_broker));
        let rk = new(RD_KAFKA_PRODUCER, conf);
        produce(rk, c"orders", 0, "sent", null_mut());
        assert_eq!(rd_kafka_flush(rk, 60_000), RD_KAFKA_RESP_ERR_NO_ERROR);
        rd_kafka_destroy(rk);
    }
    assert_eq!(*brokers.lock().unwrap(), [2]);
}

/// librdkafka's test 0103.
#[test]
fn a_transactional_call_that_timed_out_has_to_be_repeated_before_another() {
    // A port that was free a moment ago, without a listener.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let servers = format!("127.0.0.1:{port}");
    let rk = new(
        RD_KAFKA_PRODUCER,
        conf(&[("bootstrap.servers", servers.as_str()), ("transactional.id", "payments")]),
    );
    let outcome = |error: *mut rd_kafka_error_t| unsafe {
        let outcome = (rd_kafka_error_code(error), rd_kafka_error_is_retriable(error) != 0);
        rd_kafka_error_destroy(error);
        outcome
    };
    unsafe {
        let before = outcome(rd_kafka_begin_transaction(rk));
        assert_eq!(before, (RD_KAFKA_RESP_ERR__STATE, false), "no call has timed out yet");
        assert_eq!(outcome(rd_kafka_init_transactions(rk, 1)), (RD_KAFKA_RESP_ERR__TIMED_OUT, true));
        assert_eq!(outcome(rd_kafka_begin_transaction(rk)), (RD_KAFKA_RESP_ERR__CONFLICT, true));
        assert_eq!(outcome(rd_kafka_init_transactions(rk, 1)), (RD_KAFKA_RESP_ERR__TIMED_OUT, true));
        rd_kafka_destroy(rk);
    }
}

/// librdkafka's test 0105 (`do_test_txn_resumable_init`): the second call ended with the time of the first.
#[test]
fn a_repeated_initialization_has_the_time_of_its_own_call() {
    let reports = Reports::default();
    let timeout = ("transaction.timeout.ms", "4000");
    let rk = producer(&reports, &[("bootstrap.servers", ""), ("transactional.id", "till"), timeout]);
    for (timeout_ms, least_ms) in [(1000, 900), (-1, 7500)] {
        let begun = Instant::now();
        let error = unsafe { rd_kafka_init_transactions(rk, timeout_ms) };
        assert_eq!(unsafe { rd_kafka_error_code(error) }, RD_KAFKA_RESP_ERR__TIMED_OUT);
        let waited = begun.elapsed();
        assert!(waited >= Duration::from_millis(least_ms), "{timeout_ms}: {waited:?}");
        unsafe { rd_kafka_error_destroy(error) };
    }
    unsafe { rd_kafka_destroy(rk) };
}

/// librdkafka's test 0105: a commit without a timeout ended after the transaction timeout.
#[test]
fn a_commit_without_a_timeout_waits_longer_than_the_transaction_timeout() {
    let broker = Broker::builder().memory().topic("orders", 1).spawn().unwrap();
    let servers = broker.bootstrap_servers();
    let properties = [
        ("bootstrap.servers", servers.as_str()),
        ("transactional.id", "payments"),
        ("transaction.timeout.ms", "1000"),
    ];
    let rk = new(RD_KAFKA_PRODUCER, conf(&properties));
    unsafe {
        assert!(rd_kafka_init_transactions(rk, -1).is_null());
        assert!(rd_kafka_begin_transaction(rk).is_null());
        produce(rk, c"orders", 0, "paid", null_mut());
        assert_eq!(rd_kafka_flush(rk, 60_000), RD_KAFKA_RESP_ERR_NO_ERROR);
        broker.cluster().intercept(ApiKey::EndTxn, None, 1, Fault::Delay(Duration::from_millis(2_500)));
        let error = rd_kafka_commit_transaction(rk, -1);
        assert!(error.is_null(), "{:?}", rd_kafka_error_code(error));
        rd_kafka_destroy(rk);
    }
}

/// librdkafka's test 0105 (`do_test_out_of_order_seq`): the code was that of the record that failed.
#[test]
fn outside_a_sound_transaction_a_record_is_refused_because_of_the_state() {
    let broker = Broker::builder().memory().topic("orders", 1).spawn().unwrap();
    let servers = broker.bootstrap_servers();
    let reports = Reports::default();
    let rk = producer(&reports, &[("bootstrap.servers", &servers), ("transactional.id", "till")]);
    let send = || unsafe {
        let rkt = rd_kafka_topic_new(rk, c"orders".as_ptr(), null_mut());
        let (value, len) = (c"paid".as_ptr().cast_mut().cast(), 4);
        let done = rd_kafka_produce(rkt, 0, RD_KAFKA_MSG_F_COPY, value, len, null(), 0, null_mut());
        let code = if done == 0 { RD_KAFKA_RESP_ERR_NO_ERROR } else { rd_kafka_last_error() };
        rd_kafka_topic_destroy(rkt);
        code
    };
    unsafe {
        assert_eq!(send(), RD_KAFKA_RESP_ERR__STATE, "before it is initialized");
        assert!(rd_kafka_init_transactions(rk, 60_000).is_null());
        assert_eq!(send(), RD_KAFKA_RESP_ERR__STATE, "between transactions");
        assert!(rd_kafka_begin_transaction(rk).is_null());
        let refused = Fault::Fail(ErrorCode::OutOfOrderSequenceNumber);
        broker.cluster().intercept(ApiKey::Produce, None, 1, refused);
        assert_eq!(send(), RD_KAFKA_RESP_ERR_NO_ERROR);
        assert_eq!(rd_kafka_flush(rk, 60_000), RD_KAFKA_RESP_ERR_NO_ERROR);
        assert_eq!(send(), RD_KAFKA_RESP_ERR__STATE, "it has to be aborted");
        assert!(rd_kafka_abort_transaction(rk, 60_000).is_null());
        assert_eq!(send(), RD_KAFKA_RESP_ERR__STATE, "it is aborted");
        assert!(rd_kafka_begin_transaction(rk).is_null());
        let fenced = Fault::Fail(ErrorCode::InvalidProducerEpoch);
        broker.cluster().intercept(ApiKey::Produce, None, 1, fenced);
        assert_eq!(send(), RD_KAFKA_RESP_ERR_NO_ERROR);
        assert_eq!(rd_kafka_flush(rk, 60_000), RD_KAFKA_RESP_ERR_NO_ERROR);
        assert_eq!(send(), RD_KAFKA_RESP_ERR__FATAL, "another producer has its id");
        rd_kafka_destroy(rk);
    }
}

/// librdkafka's test 0105: records of a topic with a configuration of its own held up the commit for five minutes.
#[test]
fn a_topic_configuration_does_not_outlast_the_transaction() {
    let broker = Broker::builder().memory().topic("orders", 1).spawn().unwrap();
    let servers = broker.bootstrap_servers();
    let properties = [
        ("bootstrap.servers", servers.as_str()),
        ("transactional.id", "payments"),
        ("transaction.timeout.ms", "1000"),
    ];
    let rk = new(RD_KAFKA_PRODUCER, conf(&properties));
    unsafe {
        assert!(rd_kafka_init_transactions(rk, -1).is_null());
        assert!(rd_kafka_begin_transaction(rk).is_null());
        assert!(broker.cluster().set_leader("orders", 0, -1), "its records are not sent");
        let topic = rd_kafka_topic_new(rk, c"orders".as_ptr(), rd_kafka_topic_conf_new());
        assert_eq!(rd_kafka_produce(topic, 0, 0, null_mut(), 0, null(), 0, null_mut()), 0);
        let begun = Instant::now();
        let error = rd_kafka_commit_transaction(rk, 60_000);
        assert!(rd_kafka_error_txn_requires_abort(error) != 0 && begun.elapsed() < Duration::from_secs(30));
        rd_kafka_error_destroy(error);
        rd_kafka_topic_destroy(topic);
        rd_kafka_destroy(rk);
    }
}

/// confluent-kafka-go passes NULL for `nil` offsets, and an empty list for none.
#[test]
fn a_transaction_needs_a_list_of_offsets_but_the_list_may_be_empty() {
    let rk = new(RD_KAFKA_PRODUCER, conf(&[("transactional.id", "payments")]));
    let code = |error: *mut rd_kafka_error_t| unsafe {
        let code = rd_kafka_error_code(error);
        rd_kafka_error_destroy(error);
        code
    };
    unsafe {
        let group = rd_kafka_consumer_group_metadata_new(c"billing".as_ptr());
        let offsets = rd_kafka_topic_partition_list_new(0);
        let send = |offsets: *const _, group: *const _| {
            code(rd_kafka_send_offsets_to_transaction(rk, offsets, group, 1_000))
        };
        assert_eq!(send(null(), group), RD_KAFKA_RESP_ERR__INVALID_ARG);
        assert_eq!(send(offsets, null()), RD_KAFKA_RESP_ERR__INVALID_ARG);
        assert_eq!(send(offsets, group), RD_KAFKA_RESP_ERR_NO_ERROR, "there is nothing to send");
        rd_kafka_topic_partition_list_add(offsets, c"orders".as_ptr(), 0);
        (*(*offsets).elems).offset = 5;
        assert_eq!(send(offsets, group), RD_KAFKA_RESP_ERR__STATE, "before init_transactions");
        rd_kafka_topic_partition_list_destroy(offsets);
        rd_kafka_consumer_group_metadata_destroy(group);
        rd_kafka_destroy(rk);
    }
}

#[test]
fn the_offsets_of_a_transaction_have_metadata_and_a_leader_epoch() {
    let broker = Broker::builder().memory().topic("orders", 1).spawn().unwrap();
    let servers = broker.bootstrap_servers();
    let properties = [("bootstrap.servers", servers.as_str()), ("transactional.id", "payments")];
    let rk = new(RD_KAFKA_PRODUCER, conf(&properties));
    let consumer = new(RD_KAFKA_CONSUMER, conf(&[properties[0], ("group.id", "billing")]));
    unsafe {
        assert!(rd_kafka_init_transactions(rk, 60_000).is_null());
        assert!(rd_kafka_begin_transaction(rk).is_null());
        let group = rd_kafka_consumer_group_metadata_new(c"billing".as_ptr());
        let offsets = rd_kafka_topic_partition_list_new(1);
        let entry = rd_kafka_topic_partition_list_add(offsets, c"orders".as_ptr(), 0);
        (*entry).offset = 5;
        (*entry).metadata = libc::strdup(c"shift".as_ptr()).cast();
        (*entry).metadata_size = 5;
        rd_kafka_topic_partition_set_leader_epoch(entry, 0);
        assert!(rd_kafka_send_offsets_to_transaction(rk, offsets, group, 60_000).is_null());
        assert!(rd_kafka_commit_transaction(rk, 60_000).is_null());
        rd_kafka_topic_partition_list_destroy(offsets);

        let committed = list(&[(c"orders", 0)]);
        assert_eq!(rd_kafka_committed(consumer, committed, 60_000), RD_KAFKA_RESP_ERR_NO_ERROR);
        let found = (*committed).elems;
        let metadata = std::slice::from_raw_parts((*found).metadata.cast::<u8>(), (*found).metadata_size);
        let epoch = rd_kafka_topic_partition_get_leader_epoch(found);
        assert_eq!(((*found).offset, metadata, epoch), (5, b"shift".as_slice(), 0));
        rd_kafka_topic_partition_list_destroy(committed);
        rd_kafka_consumer_group_metadata_destroy(group);
        rd_kafka_destroy(consumer);
        rd_kafka_destroy(rk);
    }
}

/// librdkafka's `rd_kafka_idemp_check_error`.
#[test]
fn a_refused_producer_id_is_a_fatal_error() {
    let broker = Broker::builder().memory().topic("orders", 1).spawn().unwrap();
    let refused = Fault::Fail(ErrorCode::ClusterAuthorizationFailed);
    broker.cluster().intercept(ApiKey::InitProducerId, None, u32::MAX, refused);
    let reports = Reports::default();
    let servers = broker.bootstrap_servers();
    let properties = [("bootstrap.servers", servers.as_str()), ("enable.idempotence", "true")];
    let rk = producer(&reports, &properties);
    unsafe {
        let topic = rd_kafka_topic_new(rk, c"orders".as_ptr(), null_mut());
        assert_eq!(rd_kafka_produce(topic, 0, 0, null_mut(), 0, null(), 0, null_mut()), 0);
        assert_eq!(rd_kafka_flush(rk, 60_000), RD_KAFKA_RESP_ERR_NO_ERROR);
        let errors: Vec<_> = reports.lock().unwrap().iter().map(|(err, _)| *err).collect();
        assert_eq!(errors, [RD_KAFKA_RESP_ERR__PURGE_QUEUE]);
        let code = rd_kafka_fatal_error(rk, null_mut(), 0);
        assert_eq!(code, RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED);
        assert_eq!(rd_kafka_produce(topic, 0, 0, null_mut(), 0, null(), 0, null_mut()), -1);
        rd_kafka_topic_destroy(topic);
        rd_kafka_destroy(rk);
    }
}

#[test]
fn a_seek_of_no_partitions_is_refused() {
    let rk = new(RD_KAFKA_CONSUMER, conf(&[("group.id", "billing")]));
    unsafe {
        let nowhere = rd_kafka_topic_partition_list_new(0);
        for partitions in [nowhere, null_mut()] {
            let refused = rd_kafka_seek_partitions(rk, partitions, 0);
            assert_eq!(rd_kafka_error_code(refused), RD_KAFKA_RESP_ERR__INVALID_ARG);
            rd_kafka_error_destroy(refused);
        }
        rd_kafka_topic_partition_list_destroy(nowhere);
        rd_kafka_destroy(rk);
    }
}

/// The calls of [`lose_the_first`]: client, broker, message and error.
static ENDS: Mutex<Vec<(usize, i32, u64, rd_kafka_resp_err_t)>> = Mutex::new(Vec::new());

/// The value of `ut_handle_ProduceResponse` as in librdkafka's test 0090: the first response counts as lost.
unsafe extern "C" fn lose_the_first(
    rk: *mut rd_kafka_t,
    broker: i32,
    message: u64,
    err: rd_kafka_resp_err_t,
) -> rd_kafka_resp_err_t {
    let mut ends = ENDS.lock().unwrap();
    ends.push((rk.addr(), broker, message, err));
    if ends.len() == 1 { RD_KAFKA_RESP_ERR__TIMED_OUT } else { err }
}

/// librdkafka's test 0090.
#[test]
fn a_function_in_a_hidden_property_replaces_the_end_of_a_produce_request() {
    let broker = Broker::builder().memory().topic("orders", 1).spawn().unwrap();
    let servers = broker.bootstrap_servers();
    let conf =
        conf(&[("bootstrap.servers", &servers), ("enable.idempotence", "true"), ("retry.backoff.ms", "10")]);
    let function: unsafe extern "C" fn(_, _, _, _) -> _ = lose_the_first;
    let name = c"ut_handle_ProduceResponse".as_ptr();
    let set = unsafe { rd_kafka_conf_set(conf, name, function as *const c_char, null_mut(), 0) };
    assert_eq!(set, RD_KAFKA_CONF_OK);
    let rk = new(RD_KAFKA_PRODUCER, conf);
    produce(rk, c"orders", 0, "paid", null_mut());
    assert_eq!(unsafe { rd_kafka_flush(rk, 60_000) }, RD_KAFKA_RESP_ERR_NO_ERROR);
    let ends = ENDS.lock().unwrap().clone();
    let first = (rk.addr(), ends[0].1, 1, RD_KAFKA_RESP_ERR_NO_ERROR);
    assert_eq!(ends, [first, first], "the response that was lost and that of the retry, both of message 1");
    let (mut low, mut high) = (0, 0);
    unsafe {
        let topic = c"orders".as_ptr();
        let asked = rd_kafka_query_watermark_offsets(rk, topic, 0, &raw mut low, &raw mut high, 60_000);
        assert_eq!(asked, RD_KAFKA_RESP_ERR_NO_ERROR);
        rd_kafka_destroy(rk);
    }
    assert_eq!((low, high), (0, 1), "the broker recognises the retry");
}

/// It waited until another thread had read the reports as events, and never returned.
#[test]
fn a_flush_calls_the_function_for_reports_although_events_are_enabled() {
    let broker = Broker::builder().memory().topic("orders", 1).spawn().unwrap();
    let reports = Reports::default();
    let conf = conf(&[("bootstrap.servers", broker.bootstrap_servers().as_str())]);
    unsafe {
        rd_kafka_conf_set_opaque(conf, (&raw const reports).cast_mut().cast());
        rd_kafka_conf_set_dr_msg_cb(conf, Some(on_report));
        rd_kafka_conf_set_events(conf, RD_KAFKA_EVENT_DR);
        let rk = new(RD_KAFKA_PRODUCER, conf);
        produce(rk, c"orders", 0, "paid", null_mut());
        assert_eq!(rd_kafka_flush(rk, 60_000), RD_KAFKA_RESP_ERR_NO_ERROR);
        rd_kafka_destroy(rk);
    }
    assert_eq!(reports.into_inner().unwrap(), [(RD_KAFKA_RESP_ERR_NO_ERROR, RD_KAFKA_MSG_STATUS_PERSISTED)]);
}

/// Memory that still belongs to the process and holds `byte`, without a fault if it does not.
fn holds(address: usize, byte: u8) -> bool {
    let mut found = [0_u8; 64];
    let local = libc::iovec { iov_base: found.as_mut_ptr().cast(), iov_len: found.len() };
    let remote = libc::iovec { iov_base: address as *mut c_void, iov_len: found.len() };
    let read =
        unsafe { libc::process_vm_readv(libc::getpid(), &raw const local, 1, &raw const remote, 1, 0) };
    read == 64 && found.iter().all(|it| *it == byte)
}

#[test]
fn payloads_that_were_handed_over_are_freed_with_a_client_that_never_polled() {
    /// More than malloc keeps for later: a freed payload leaves the process.
    const LEN: usize = 40 << 20;
    let broker = Broker::builder().memory().topic("orders", 1).spawn().unwrap();
    let written = broker.bootstrap_servers();
    // Of one client the record is written, and its report waits; of the other it is still in a queue.
    for servers in [written.as_str(), "127.0.0.1:1"] {
        let reports = Reports::default();
        let max = (2 * LEN).to_string();
        let properties =
            [("bootstrap.servers", servers), ("message.max.bytes", &*max), ("log.connection.close", "false")];
        let rk = producer(&reports, &properties);
        let payload = unsafe { libc::malloc(LEN) };
        unsafe {
            payload.cast::<u8>().write_bytes(0xA7, LEN);
            let rkt = rd_kafka_topic_new(rk, c"orders".as_ptr(), null_mut());
            let taken = rd_kafka_produce(rkt, 0, RD_KAFKA_MSG_F_FREE, payload, LEN, null(), 0, null_mut());
            assert_eq!(taken, 0);
            rd_kafka_topic_destroy(rkt);
            let queue = rd_kafka_queue_get_main(rk);
            if servers == written {
                until("the report waits", || rd_kafka_queue_length(queue) > 0);
            }
            rd_kafka_queue_destroy(queue);
            rd_kafka_destroy(rk);
        }
        assert!(reports.lock().unwrap().is_empty());
        assert!(!holds(payload.addr() + LEN / 2, 0xA7), "the payload is still there, with {servers}");
    }
}

/// It failed after `message.timeout.ms` of the topic.
#[test]
fn a_blocking_produce_waits_for_room_without_a_limit() {
    let broker = Broker::builder().memory().topic("orders", 1).topic("payments", 1).spawn().unwrap();
    let servers = broker.bootstrap_servers();
    let properties = [("bootstrap.servers", servers.as_str()), ("queue.buffering.max.messages", "1")];
    let rk = new(RD_KAFKA_PRODUCER, conf(&properties));
    broker.cluster().intercept(ApiKey::Produce, None, 1, Fault::Delay(Duration::from_secs(2)));
    produce(rk, c"orders", 0, "first", null_mut());
    unsafe {
        let topic = rd_kafka_topic_conf_new();
        let (name, value) = (c"message.timeout.ms".as_ptr(), c"200".as_ptr());
        assert_eq!(rd_kafka_topic_conf_set(topic, name, value, null_mut(), 0), RD_KAFKA_CONF_OK);
        let rkt = rd_kafka_topic_new(rk, c"payments".as_ptr(), topic);
        let flags = RD_KAFKA_MSG_F_COPY | RD_KAFKA_MSG_F_BLOCK;
        let value = c"second".as_ptr().cast_mut().cast();
        assert_eq!(rd_kafka_produce(rkt, 0, flags, value, 6, null(), 0, null_mut()), 0);
        assert_eq!(rd_kafka_flush(rk, 60_000), RD_KAFKA_RESP_ERR_NO_ERROR);
        rd_kafka_topic_destroy(rkt);
        rd_kafka_destroy(rk);
    }
}
