//! Consumers through the C interface: commits, assignments and subscriptions that differ from what the cluster has.

#![allow(unsafe_code, reason = "C's functions")]
#![allow(clippy::disallowed_methods, reason = "a test is a shell: it may use threads and time")]
#![allow(clippy::undocumented_unsafe_blocks, reason = "a test calls as C does")]
#![allow(
    clippy::wildcard_imports,
    clippy::unwrap_used,
    reason = "C's names, and a test that stops where it must"
)]

use std::ffi::{CStr, c_char, c_void};
use std::ptr::null_mut;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ottla_broker::{ApiKey, Broker, BrokerThread, ErrorCode, Fault};
use rdkafka::client::handle::*;
use rdkafka::client::topic_handle::*;
use rdkafka::conf::*;
use rdkafka::consume::group_consumer::*;
use rdkafka::consume::leave_group::*;
use rdkafka::consume::offsets::*;
use rdkafka::consume::rebalance_protocol::*;
use rdkafka::errors::error_object::*;
use rdkafka::ffi::*;
use rdkafka::messages::message::*;
use rdkafka::messages::partition_list::*;
use rdkafka::produce::flush::*;
use rdkafka::queue::poll::*;
use rdkafka::queue::queue_handle::*;
use rdkafka::queue::queue_poll::*;

use crate::common;
use crate::common::{PATIENCE, conf, list, new, produce, read, subscribe, until};

const OK: rd_kafka_resp_err_t = RD_KAFKA_RESP_ERR_NO_ERROR;

fn broker() -> BrokerThread {
    Broker::builder().memory().topic("orders", 2).topic("more", 1).spawn().unwrap()
}

/// The results that callbacks saw; it is the opaque of the clients.
#[derive(Default)]
struct Seen {
    commits: Mutex<Vec<(rd_kafka_resp_err_t, i32)>>,
    protocols: Mutex<Vec<String>>,
    reports: AtomicUsize,
}

impl Seen {
    fn opaque(&self) -> *mut c_void {
        std::ptr::from_ref(self).cast_mut().cast()
    }
}

fn consumer(broker: &BrokerThread, seen: &Seen, more: &[(&str, &str)]) -> *mut rd_kafka_t {
    let servers = broker.bootstrap_servers();
    let mut properties =
        vec![("bootstrap.servers", servers.as_str()), ("group.id", "g"), ("auto.offset.reset", "earliest")];
    properties.extend(more);
    let conf = conf(&properties);
    unsafe {
        rd_kafka_conf_set_opaque(conf, seen.opaque());
        rd_kafka_conf_set_offset_commit_cb(conf, Some(on_commit));
    }
    new(RD_KAFKA_CONSUMER, conf)
}

unsafe extern "C" fn on_commit(
    _: *mut rd_kafka_t,
    err: rd_kafka_resp_err_t,
    offsets: *mut rd_kafka_topic_partition_list_t,
    opaque: *mut c_void,
) {
    let seen = unsafe { &*opaque.cast::<Seen>() };
    let count = if offsets.is_null() { 0 } else { unsafe { (*offsets).cnt } };
    seen.commits.lock().unwrap().push((err, count));
}

fn fill(broker: &BrokerThread, topic: &CStr, partition: i32, count: usize) {
    let servers = broker.bootstrap_servers();
    let rk = new(RD_KAFKA_PRODUCER, conf(&[("bootstrap.servers", servers.as_str())]));
    for value in 0..count {
        produce(rk, topic, partition, &value.to_string(), null_mut());
    }
    assert_eq!(unsafe { rd_kafka_flush(rk, 60_000) }, OK);
    unsafe { rd_kafka_destroy(rk) };
}

/// librdkafka's test 0030: the commit took 30 s and succeeded. Later, it wrote into the caller's list.
#[test]
fn a_commit_of_a_topic_that_does_not_exist_fails_at_once() {
    let broker = broker();
    let seen = Seen::default();
    let rk = consumer(&broker, &seen, &[]);
    let begun = Instant::now();
    unsafe {
        let offsets = list(&[(c"nowhere", 0), (c"nowhere", 1)]);
        for entry in std::slice::from_raw_parts_mut((*offsets).elems, 2) {
            entry.offset = 123;
        }
        assert_eq!(rd_kafka_commit(rk, offsets, 0), RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART);
        for entry in std::slice::from_raw_parts((*offsets).elems, 2) {
            assert_eq!((entry.offset, entry.err), (123, OK), "the list is the caller's");
        }
        let queued = rd_kafka_commit_queue(rk, offsets, null_mut(), Some(on_commit), seen.opaque());
        assert_eq!(queued, RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART);
        assert_eq!(*seen.commits.lock().unwrap(), [(RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART, 2)]);
        rd_kafka_topic_partition_list_destroy(offsets);
        rd_kafka_destroy(rk);
    }
    assert!(begun.elapsed() < Duration::from_secs(10), "after {:?}", begun.elapsed());
}

/// librdkafka's test 0099 hung.
#[test]
fn the_commit_function_gets_the_result_of_a_synchronous_commit() {
    let broker = broker();
    let seen = Seen::default();
    let rk = consumer(&broker, &seen, &[]);
    unsafe {
        let offsets = list(&[(c"orders", 0)]);
        // The result is in the main queue, which the consumer's queue serves from then on.
        for polls_consumer in [false, true] {
            if polls_consumer {
                assert_eq!(rd_kafka_poll_set_consumer(rk), OK);
            }
            (*(*offsets).elems).offset = 7 + i64::from(polls_consumer);
            assert_eq!(rd_kafka_commit(rk, offsets, 0), OK);
            until("the commit is reported", || {
                if polls_consumer {
                    assert!(rd_kafka_consumer_poll(rk, 10).is_null());
                } else {
                    rd_kafka_poll(rk, 10);
                }
                !seen.commits.lock().unwrap().is_empty()
            });
            assert_eq!(std::mem::take(&mut *seen.commits.lock().unwrap()), [(OK, 1)]);
        }
        rd_kafka_topic_partition_list_destroy(offsets);
        rd_kafka_destroy(rk);
    }
}

/// librdkafka's test 0051 read 66 records twice.
#[test]
fn partitions_that_stay_assigned_keep_their_positions() {
    let broker = broker();
    for (topic, partition) in [(c"orders", 0), (c"orders", 1), (c"more", 0)] {
        fill(&broker, topic, partition, 100);
    }
    for auto_commit in ["true", "false"] {
        let seen = Seen::default();
        let group = format!("kept-{auto_commit}");
        let rk = consumer(&broker, &seen, &[("group.id", &group), ("enable.auto.commit", auto_commit)]);
        let mut values = Vec::new();
        let all = [(c"orders", 0), (c"orders", 1), (c"more", 0)];
        for count in 1..=all.len() {
            unsafe {
                let partitions = list(&all[..count]);
                assert_eq!(rd_kafka_assign(rk, partitions), OK);
                rd_kafka_topic_partition_list_destroy(partitions);
            }
            values.extend(read(rk, 40));
        }
        values.extend(read(rk, 300 - 120));
        let mut expected: Vec<String> = (0..300).map(|value| (value % 100).to_string()).collect();
        expected.sort();
        values.sort();
        assert_eq!(values, expected, "enable.auto.commit={auto_commit}");
        unsafe {
            let end = rd_kafka_consumer_poll(rk, 300);
            assert!(end.is_null(), "{:?}", common::text_of(end));
            rd_kafka_destroy(rk);
        }
    }
}

fn next_error(rk: *mut rd_kafka_t, wait: Duration) -> Option<(rd_kafka_resp_err_t, String, String)> {
    let deadline = Instant::now() + wait;
    while Instant::now() < deadline {
        unsafe {
            let message = rd_kafka_consumer_poll(rk, 100);
            if message.is_null() {
                continue;
            }
            let text = |text: *const c_char| {
                if text.is_null() { String::new() } else { CStr::from_ptr(text).to_str().unwrap().to_owned() }
            };
            let found = (
                (*message).err,
                text(rd_kafka_topic_name((*message).rkt)),
                text(rd_kafka_message_errstr(message)),
            );
            rd_kafka_message_destroy(message);
            if found.0 != OK {
                return Some(found);
            }
        }
    }
    None
}

/// librdkafka's tests 0022 and 0109, and `kcat -G`, waited for ever.
#[test]
fn a_subscribed_topic_that_does_not_exist_is_reported_once() {
    let broker = broker();
    let seen = Seen::default();
    let rk = consumer(&broker, &seen, &[]);
    subscribe(rk, c"missing");
    let (code, topic, text) = next_error(rk, PATIENCE).unwrap();
    assert_eq!((code, topic.as_str()), (RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART, "missing"));
    assert!(text.starts_with("Subscribed topic not available: missing: "), "{text}");
    assert_eq!(next_error(rk, Duration::from_millis(1500)), None);
    fill(&broker, c"missing", 0, 1);
    assert_eq!(read(rk, 1), ["0"], "it is read once it exists");
    unsafe { rd_kafka_destroy(rk) };
}

/// The errors that polls return before the first record.
fn errors_before_record(rk: *mut rd_kafka_t) -> Vec<rd_kafka_resp_err_t> {
    let mut errors = Vec::new();
    let deadline = Instant::now() + PATIENCE;
    loop {
        assert!(Instant::now() < deadline, "no record came: {errors:?}");
        unsafe {
            let message = rd_kafka_consumer_poll(rk, 100);
            if message.is_null() {
                continue;
            }
            let code = (*message).err;
            rd_kafka_message_destroy(message);
            if code == OK {
                return errors;
            }
            errors.push(code);
        }
    }
}

/// The request was repeated, and the application could not learn why no record came.
#[test]
fn an_unknown_error_of_the_broker_is_reported_once_while_the_request_is_repeated() {
    for api in [ApiKey::Fetch, ApiKey::ListOffsets] {
        let broker = broker();
        fill(&broker, c"orders", 0, 1);
        let (cluster, code) = (broker.cluster(), ErrorCode::UnknownServerError);
        if api == ApiKey::Fetch {
            for _ in 0..2 {
                cluster.add_partition_error(api, "orders", 0, code);
            }
        } else {
            cluster.intercept(api, None, 2, Fault::Fail(code));
        }
        let seen = Seen::default();
        let rk = consumer(&broker, &seen, &[]);
        unsafe {
            let partitions = list(&[(c"orders", 0)]);
            assert_eq!(rd_kafka_assign(rk, partitions), OK);
            rd_kafka_topic_partition_list_destroy(partitions);
            assert_eq!(errors_before_record(rk), [RD_KAFKA_RESP_ERR_UNKNOWN], "{api:?}");
            rd_kafka_destroy(rk);
        }
    }
}

unsafe extern "C" fn on_rebalance(
    rk: *mut rd_kafka_t,
    err: rd_kafka_resp_err_t,
    partitions: *mut rd_kafka_topic_partition_list_t,
    opaque: *mut c_void,
) {
    let seen = unsafe { &*opaque.cast::<Seen>() };
    unsafe {
        let protocol = CStr::from_ptr(rd_kafka_rebalance_protocol(rk)).to_str().unwrap();
        seen.protocols.lock().unwrap().push(format!("{err} {protocol}"));
        let assigns = err == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS;
        rd_kafka_assign(rk, if assigns { partitions } else { null_mut() });
    }
}

/// librdkafka's tests 0018, 0033 and 0056.
#[test]
fn the_rebalance_protocol_is_known_in_the_last_revocation() {
    let broker = broker();
    fill(&broker, c"orders", 0, 1);
    for ends in ["unsubscribe", "close", "destroy"] {
        let seen = Seen::default();
        let servers = broker.bootstrap_servers();
        let properties =
            [("bootstrap.servers", servers.as_str()), ("group.id", ends), ("auto.offset.reset", "earliest")];
        let conf = conf(&properties);
        unsafe {
            rd_kafka_conf_set_opaque(conf, seen.opaque());
            rd_kafka_conf_set_rebalance_cb(conf, Some(on_rebalance));
            let rk = new(RD_KAFKA_CONSUMER, conf);
            subscribe(rk, c"orders");
            read(rk, 1);
            match ends {
                "unsubscribe" => {
                    assert_eq!(rd_kafka_unsubscribe(rk), OK);
                    poll_until(rk, || seen.protocols.lock().unwrap().len() == 2);
                    assert_eq!(CStr::from_ptr(rd_kafka_rebalance_protocol(rk)), c"NONE");
                }
                "close" => {
                    assert_eq!(rd_kafka_consumer_close(rk), OK);
                    assert!(rd_kafka_rebalance_protocol(rk).is_null(), "it was NONE");
                }
                _ => {}
            }
            rd_kafka_destroy(rk);
        }
        let assign = format!("{RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS} EAGER");
        let revoke = format!("{RD_KAFKA_RESP_ERR__REVOKE_PARTITIONS} EAGER");
        assert_eq!(*seen.protocols.lock().unwrap(), [assign, revoke], "{ends}");
    }
}

/// Polls without a message until `done`.
fn poll_until(rk: *mut rd_kafka_t, done: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < deadline, "not done within {PATIENCE:?}");
        assert!(unsafe { rd_kafka_consumer_poll(rk, 10) }.is_null());
    }
}

/// librdkafka's tests 0033, 0084 and 0102.
#[test]
fn a_poll_or_a_close_after_an_unsubscribe_returns_its_revocation() {
    let broker = broker();
    fill(&broker, c"orders", 0, 1);
    for ends in ["poll", "close", "destroy"] {
        let seen = Seen::default();
        let servers = broker.bootstrap_servers();
        let conf = conf(&[
            ("bootstrap.servers", servers.as_str()),
            ("group.id", &format!("revoked-in-{ends}")),
            ("auto.offset.reset", "earliest"),
        ]);
        unsafe {
            rd_kafka_conf_set_opaque(conf, seen.opaque());
            rd_kafka_conf_set_rebalance_cb(conf, Some(on_rebalance));
            let rk = new(RD_KAFKA_CONSUMER, conf);
            subscribe(rk, c"orders");
            read(rk, 1);
            assert_eq!(rd_kafka_unsubscribe(rk), OK);
            assert_eq!(
                seen.protocols.lock().unwrap().len(),
                1,
                "{ends}: the unsubscribe itself calls nothing"
            );
            match ends {
                "poll" => poll_until(rk, || seen.protocols.lock().unwrap().len() == 2),
                "close" => assert_eq!(rd_kafka_consumer_close(rk), OK),
                _ => {}
            }
            rd_kafka_destroy(rk);
        }
        assert_eq!(seen.protocols.lock().unwrap().len(), 2, "{ends}: one assignment and one revocation");
    }
}

/// librdkafka's test 0106: a program that waits for the loss does not poll.
#[test]
fn a_lost_assignment_is_known_before_a_poll_returns_the_loss() {
    let broker = broker();
    fill(&broker, c"orders", 0, 1);
    let seen = Seen::default();
    let rk = unsafe {
        let servers = broker.bootstrap_servers();
        let conf = conf(&[
            ("bootstrap.servers", servers.as_str()),
            ("group.id", "lost"),
            ("auto.offset.reset", "earliest"),
            ("heartbeat.interval.ms", "100"),
        ]);
        rd_kafka_conf_set_opaque(conf, seen.opaque());
        rd_kafka_conf_set_rebalance_cb(conf, Some(on_rebalance));
        new(RD_KAFKA_CONSUMER, conf)
    };
    subscribe(rk, c"orders");
    read(rk, 1);
    unsafe {
        assert_eq!(rd_kafka_assignment_lost(rk), 0);
        broker.cluster().intercept(ApiKey::Heartbeat, None, 1, Fault::Fail(ErrorCode::UnknownMemberId));
        until("the assignment is lost", || rd_kafka_assignment_lost(rk) == 1);
        assert_eq!(seen.protocols.lock().unwrap().len(), 1, "nothing was polled");
        assert_eq!(rd_kafka_commit(rk, null_mut(), 0), RD_KAFKA_RESP_ERR__ASSIGNMENT_LOST);
        until("the loss is returned", || {
            let message = rd_kafka_consumer_poll(rk, 10);
            if !message.is_null() {
                rd_kafka_message_destroy(message);
            }
            seen.protocols.lock().unwrap().len() == 2
        });
        rd_kafka_destroy(rk);
    }
}

#[test]
fn a_consumer_that_subscribes_before_its_last_revocation_is_polled_joins_again() {
    let broker = broker();
    for topic in [c"orders", c"more"] {
        fill(&broker, topic, 0, 1);
    }
    let seen = Seen::default();
    let servers = broker.bootstrap_servers();
    let properties =
        [("bootstrap.servers", servers.as_str()), ("group.id", "again"), ("auto.offset.reset", "earliest")];
    let conf = conf(&properties);
    unsafe {
        rd_kafka_conf_set_opaque(conf, seen.opaque());
        rd_kafka_conf_set_rebalance_cb(conf, Some(on_rebalance));
        let rk = new(RD_KAFKA_CONSUMER, conf);
        subscribe(rk, c"orders");
        read(rk, 1);
        assert_eq!(rd_kafka_unsubscribe(rk), OK);
        subscribe(rk, c"more");
        read(rk, 1);
        rd_kafka_destroy(rk);
    }
    let codes: Vec<_> = seen
        .protocols
        .lock()
        .unwrap()
        .iter()
        .map(|line| line.split(' ').next().unwrap().to_owned())
        .collect();
    let (assign, revoke) =
        (RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS.to_string(), RD_KAFKA_RESP_ERR__REVOKE_PARTITIONS.to_string());
    assert_eq!(codes, [assign.clone(), revoke.clone(), assign, revoke]);
}

/// librdkafka's test 0116: the poll of another thread ends with the close, however long its timeout is.
#[test]
fn a_close_with_a_queue_ends_the_poll_that_waits_and_a_second_one_fails() {
    let broker = broker();
    let seen = Seen::default();
    let rk = consumer(&broker, &seen, &[]);
    unsafe {
        let queue = rd_kafka_queue_get_consumer(rk);
        let address = queue as usize;
        let polling = std::thread::spawn(move || {
            let begun = Instant::now();
            assert!(rd_kafka_consume_queue(address as *mut rd_kafka_queue_t, 600_000).is_null());
            begun.elapsed()
        });
        assert!(rd_kafka_consumer_close_queue(rk, queue).is_null());
        until("the consumer is closed", || rd_kafka_consumer_closed(rk) == 1);
        assert!(polling.join().unwrap() < PATIENCE);
        let refused = rd_kafka_consumer_close_queue(rk, queue);
        assert_eq!(rd_kafka_error_code(refused), RD_KAFKA_RESP_ERR__DESTROY);
        rd_kafka_error_destroy(refused);
        rd_kafka_queue_destroy(queue);
        rd_kafka_destroy(rk);
    }
}

/// librdkafka's test 0102.
#[test]
fn a_static_member_that_is_replaced_has_a_fatal_error() {
    let broker = broker();
    let seen = Seen::default();
    let own = [("group.instance.id", "one"), ("heartbeat.interval.ms", "100")];
    let first = consumer(&broker, &seen, &own);
    let second = consumer(&broker, &seen, &own);
    unsafe {
        subscribe(first, c"orders");
        until("the first is a member", || {
            rd_kafka_consumer_poll(first, 10);
            let mut assigned = null_mut();
            assert_eq!(rd_kafka_assignment(first, &raw mut assigned), OK);
            let count = (*assigned).cnt;
            rd_kafka_topic_partition_list_destroy(assigned);
            count > 0
        });
        subscribe(second, c"orders");
        let deadline = Instant::now() + PATIENCE;
        loop {
            assert!(Instant::now() < deadline, "the first one is not told");
            rd_kafka_consumer_poll(second, 10);
            let message = rd_kafka_consumer_poll(first, 10);
            if !message.is_null() {
                assert_eq!((*message).err, RD_KAFKA_RESP_ERR__FATAL);
                rd_kafka_message_destroy(message);
                break;
            }
        }
        assert_eq!(rd_kafka_fatal_error(first, null_mut(), 0), RD_KAFKA_RESP_ERR_FENCED_INSTANCE_ID);
        assert_eq!(rd_kafka_consumer_close(first), RD_KAFKA_RESP_ERR__FATAL);
        rd_kafka_destroy(first);
        rd_kafka_destroy(second);
    }
}

unsafe extern "C" fn on_report(rk: *mut rd_kafka_t, _: *const rd_kafka_message_t, opaque: *mut c_void) {
    unsafe { &*opaque.cast::<Seen>() }.reports.fetch_add(1, Ordering::Relaxed);
    unsafe { rd_kafka_yield(rk) };
}

/// librdkafka's test 0065.
#[test]
fn a_callback_that_yields_ends_its_poll() {
    let broker = broker();
    let seen = Seen::default();
    let servers = broker.bootstrap_servers();
    let conf = conf(&[("bootstrap.servers", servers.as_str()), ("linger.ms", "1000")]);
    unsafe {
        rd_kafka_conf_set_opaque(conf, seen.opaque());
        rd_kafka_conf_set_dr_msg_cb(conf, Some(on_report));
        let rk = new(RD_KAFKA_PRODUCER, conf);
        for value in 0..100 {
            produce(rk, c"orders", 0, &value.to_string(), null_mut());
        }
        let mut polls = 0;
        let deadline = Instant::now() + PATIENCE;
        while seen.reports.load(Ordering::Relaxed) < 100 {
            assert!(Instant::now() < deadline, "{polls} polls");
            let before = seen.reports.load(Ordering::Relaxed);
            let served = rd_kafka_poll(rk, 1000);
            let called = seen.reports.load(Ordering::Relaxed) - before;
            assert!(called <= 1 && served >= called as i32, "{called} reports in one poll, {served} counted");
            polls += called;
        }
        assert_eq!(polls, 100);
        // A batch is reported before it stops to count.
        while rd_kafka_outq_len(rk) > 0 {
            assert!(Instant::now() < deadline, "{} are left", rd_kafka_outq_len(rk));
        }
        rd_kafka_destroy(rk);
    }
}

/// librdkafka's tests 0034 and 0113, and those of confluent-kafka-python.
#[test]
fn assignments_without_a_subscription_keep_what_was_passed() {
    let broker = broker();
    fill(&broker, c"orders", 0, 20);
    let seen = Seen::default();
    let rk = consumer(&broker, &seen, &[]);
    unsafe {
        let first = list(&[(c"orders", 0)]);
        (*(*first).elems).offset = RD_KAFKA_OFFSET_TAIL_BASE - 5;
        assert_eq!(rd_kafka_assign(rk, first), OK);
        let mut assigned = null_mut();
        assert_eq!(rd_kafka_assignment(rk, &raw mut assigned), OK);
        assert_eq!((*(*assigned).elems).offset, RD_KAFKA_OFFSET_TAIL_BASE - 5);
        rd_kafka_topic_partition_list_destroy(assigned);
        assert_eq!(read(rk, 5), ["15", "16", "17", "18", "19"]);

        let code = |error: *mut rd_kafka_error_t| {
            let code = rd_kafka_error_code(error);
            rd_kafka_error_destroy(error);
            code
        };
        let second = list(&[(c"orders", 1)]);
        assert_eq!(code(rd_kafka_incremental_unassign(rk, second)), RD_KAFKA_RESP_ERR__INVALID_ARG);
        assert_eq!(code(rd_kafka_incremental_assign(rk, second)), OK);
        assert_eq!(code(rd_kafka_incremental_assign(rk, second)), RD_KAFKA_RESP_ERR__CONFLICT);
        assert_eq!(code(rd_kafka_incremental_unassign(rk, first)), OK);
        assert_eq!(rd_kafka_assignment(rk, &raw mut assigned), OK);
        assert_eq!(((*assigned).cnt, (*(*assigned).elems).partition), (1, 1));
        for partitions in [assigned, first, second] {
            rd_kafka_topic_partition_list_destroy(partitions);
        }
        rd_kafka_destroy(rk);
    }
}

/// The results of both kinds of changes in a rebalance function: of the wrong one, then of the right one.
unsafe extern "C" fn on_rebalance_both_ways(
    rk: *mut rd_kafka_t,
    err: rd_kafka_resp_err_t,
    partitions: *mut rd_kafka_topic_partition_list_t,
    opaque: *mut c_void,
) {
    let seen = unsafe { &*opaque.cast::<Seen>() };
    unsafe {
        let assigns = err == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS;
        let is_cooperative = CStr::from_ptr(rd_kafka_rebalance_protocol(rk)) == c"COOPERATIVE";
        let whole = || rd_kafka_assign(rk, if assigns { partitions } else { null_mut() });
        let incremental = || {
            let change = if assigns { rd_kafka_incremental_assign } else { rd_kafka_incremental_unassign };
            let error = change(rk, partitions);
            let code = rd_kafka_error_code(error);
            rd_kafka_error_destroy(error);
            code
        };
        let codes = if is_cooperative { [whole(), incremental()] } else { [incremental(), whole()] };
        seen.protocols.lock().unwrap().push(format!("{err}: {codes:?}"));
    }
}

/// librdkafka's test 0113.
#[test]
fn a_change_of_the_assignment_has_to_fit_the_protocol_of_the_group() {
    let broker = broker();
    fill(&broker, c"orders", 0, 1);
    let (assign, revoke) = (RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS, RD_KAFKA_RESP_ERR__REVOKE_PARTITIONS);
    let refused = [RD_KAFKA_RESP_ERR__STATE, OK];
    for strategy in ["range", "cooperative-sticky"] {
        for ends in ["unsubscribe", "close"] {
            let seen = Seen::default();
            let servers = broker.bootstrap_servers();
            let conf = conf(&[
                ("bootstrap.servers", servers.as_str()),
                ("group.id", &format!("{strategy}-{ends}")),
                ("partition.assignment.strategy", strategy),
                ("auto.offset.reset", "earliest"),
            ]);
            unsafe {
                rd_kafka_conf_set_opaque(conf, seen.opaque());
                rd_kafka_conf_set_rebalance_cb(conf, Some(on_rebalance_both_ways));
                let rk = new(RD_KAFKA_CONSUMER, conf);
                subscribe(rk, c"orders");
                assert_eq!(read(rk, 1), ["0"], "{strategy}");
                if ends == "unsubscribe" {
                    assert_eq!(rd_kafka_unsubscribe(rk), OK);
                    poll_until(rk, || seen.protocols.lock().unwrap().len() == 2);
                }
                assert_eq!(rd_kafka_consumer_close(rk), OK);
                rd_kafka_destroy(rk);
            }
            // While it closes, every change is one to no partitions.
            let last = if ends == "close" { [OK, OK] } else { refused };
            let wanted = [format!("{assign}: {refused:?}"), format!("{revoke}: {last:?}")];
            assert_eq!(*seen.protocols.lock().unwrap(), wanted, "{strategy}, {ends}");
        }
    }
}

/// A cooperative rebalance function, which notes the number of partitions of each call.
unsafe extern "C" fn on_cooperative_rebalance(
    rk: *mut rd_kafka_t,
    err: rd_kafka_resp_err_t,
    partitions: *mut rd_kafka_topic_partition_list_t,
    opaque: *mut c_void,
) {
    let seen = unsafe { &*opaque.cast::<Seen>() };
    let assigns = err == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS;
    let change = if assigns { rd_kafka_incremental_assign } else { rd_kafka_incremental_unassign };
    unsafe {
        assert!(change(rk, partitions).is_null());
        let what = if assigns { "assigned" } else { "revoked" };
        seen.protocols.lock().unwrap().push(format!("{what} {}", (*partitions).cnt));
    }
}

/// librdkafka's test 0113: the group revoked one of two partitions, and the application has not polled since.
#[test]
fn a_close_calls_the_rebalance_function_for_an_unseen_revocation_and_for_the_rest() {
    let broker = broker();
    let servers = broker.bootstrap_servers();
    let join = |seen: &Seen| {
        let conf = conf(&[
            ("bootstrap.servers", servers.as_str()),
            ("group.id", "g"),
            ("partition.assignment.strategy", "cooperative-sticky"),
            ("heartbeat.interval.ms", "100"),
        ]);
        unsafe {
            rd_kafka_conf_set_opaque(conf, seen.opaque());
            rd_kafka_conf_set_rebalance_cb(conf, Some(on_cooperative_rebalance));
        }
        let rk = new(RD_KAFKA_CONSUMER, conf);
        subscribe(rk, c"orders");
        rk
    };
    let calls = |seen: &Seen| seen.protocols.lock().unwrap().len();
    let (first_seen, second_seen) = (Seen::default(), Seen::default());
    let first = join(&first_seen);
    poll_until(first, || calls(&first_seen) == 1);
    let second = join(&second_seen);
    unsafe {
        let queue = rd_kafka_queue_get_consumer(first);
        poll_until(second, || rd_kafka_queue_length(queue) > 0);
        rd_kafka_queue_destroy(queue);
        assert_eq!(calls(&first_seen), 1, "the revocation waits for a poll");
        assert_eq!(rd_kafka_consumer_close(first), OK);
        assert_eq!(*first_seen.protocols.lock().unwrap(), ["assigned 2", "revoked 1", "revoked 1"]);
        rd_kafka_destroy(first);
        rd_kafka_destroy(second);
    }
}
