//! Reports of fatal errors.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::Mutex;
use std::time::Duration;

use ottla_broker::{ApiKey, Broker, BrokerThread, ErrorCode, Fault};
use rdkafka::client::handle::*;
use rdkafka::client::topic_handle::*;
use rdkafka::conf::callbacks::*;
use rdkafka::conf::*;
use rdkafka::consume::group_consumer::*;
use rdkafka::consume::leave_group::*;
use rdkafka::consume::offsets::*;
use rdkafka::errors::error_object::*;
use rdkafka::ffi::*;
use rdkafka::messages::message::*;
use rdkafka::messages::partition_list::*;
use rdkafka::produce::flush::*;
use rdkafka::produce::producer::*;
use rdkafka::produce::transactions::*;
use rdkafka::queue::event::*;
use rdkafka::queue::poll::*;
use rdkafka::queue::queue_handle::*;
use rdkafka::queue::queue_poll::*;

use crate::common::{conf, list, new, produce, subscribe, until};

const CAUSE: rd_kafka_resp_err_t = RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER;

/// The texts that the error function got; it is the opaque of the client.
type Seen = Mutex<Vec<(c_int, String)>>;

unsafe extern "C" fn on_error(_: *mut rd_kafka_t, err: c_int, reason: *const c_char, opaque: *mut c_void) {
    let text = unsafe { CStr::from_ptr(reason) }.to_string_lossy().into_owned();
    unsafe { &*opaque.cast::<Seen>() }.lock().unwrap().push((err, text));
}

/// A client that has a fatal error.
unsafe fn failed(kind: rd_kafka_type_t, conf: *mut rd_kafka_conf_t) -> *mut rd_kafka_t {
    let rk = new(kind, conf);
    assert_eq!(unsafe { rd_kafka_test_fatal_error(rk, CAUSE, c"a test".as_ptr()) }, 0);
    rk
}

fn text() -> String {
    let cause = unsafe { CStr::from_ptr(rd_kafka_err2str(CAUSE)) };
    format!("Fatal error: {}: test_fatal_error: a test", cause.to_string_lossy())
}

#[test]
fn a_fatal_error_is_a_message_of_a_group_member_and_an_error_of_other_clients() {
    for (kind, group) in
        [(RD_KAFKA_PRODUCER, None), (RD_KAFKA_CONSUMER, None), (RD_KAFKA_CONSUMER, Some(("group.id", "g")))]
    {
        let seen = Seen::default();
        let conf = conf(&group.into_iter().collect::<Vec<_>>());
        unsafe {
            rd_kafka_conf_set_opaque(conf, std::ptr::from_ref(&seen).cast_mut().cast());
            rd_kafka_conf_set_error_cb(conf, Some(on_error));
            let rk = failed(kind, conf);
            rd_kafka_poll(rk, 100);
            let mut texts = seen.lock().unwrap().clone();
            if group.is_some() {
                assert!(texts.is_empty(), "{texts:?}");
                let message = rd_kafka_consumer_poll(rk, 10_000);
                let text = CStr::from_ptr(rd_kafka_message_errstr(message)).to_string_lossy().into_owned();
                texts.push(((*message).err, text));
                rd_kafka_message_destroy(message);
                assert!(rd_kafka_consumer_poll(rk, 10).is_null());
            }
            assert_eq!(texts, [(RD_KAFKA_RESP_ERR__FATAL, text())]);
            rd_kafka_destroy(rk);
        }
    }
}

#[test]
fn the_event_of_a_fatal_error_has_its_cause() {
    for (kind, group) in [(RD_KAFKA_PRODUCER, None), (RD_KAFKA_CONSUMER, Some(("group.id", "g")))] {
        let conf = conf(&group.into_iter().collect::<Vec<_>>());
        unsafe {
            rd_kafka_conf_set_events(conf, RD_KAFKA_EVENT_ERROR);
            let rk = failed(kind, conf);
            let queue =
                if group.is_some() { rd_kafka_queue_get_consumer(rk) } else { rd_kafka_queue_get_main(rk) };
            let event = rd_kafka_queue_poll(queue, 10_000);
            assert_eq!(rd_kafka_event_type(event), RD_KAFKA_EVENT_ERROR);
            assert_eq!((rd_kafka_event_error(event), rd_kafka_event_error_is_fatal(event)), (CAUSE, 1));
            let reason = CStr::from_ptr(rd_kafka_event_error_string(event));
            assert_eq!(reason, c"test_fatal_error: a test");
            assert_eq!(rd_kafka_event_topic_partition(event), null_mut());
            rd_kafka_event_destroy(event);
            rd_kafka_queue_destroy(queue);
            rd_kafka_destroy(rk);
        }
    }
}

#[test]
fn produceva_returns_the_cause_of_a_fatal_error() {
    unsafe {
        let rk = failed(RD_KAFKA_PRODUCER, conf(&[]));
        let parts = [rd_kafka_vu_t {
            vtype: RD_KAFKA_VTYPE_TOPIC,
            u: rd_kafka_vu_value_t { cstr: c"orders".as_ptr() },
        }];
        let error = rd_kafka_produceva(rk, parts.as_ptr(), parts.len());
        assert_eq!((rd_kafka_error_code(error), rd_kafka_error_is_fatal(error)), (CAUSE, 1));
        let text = CStr::from_ptr(rd_kafka_error_string(error)).to_str().unwrap();
        assert_eq!(
            text,
            "Producing not allowed since a previous fatal error was raised: test_fatal_error: a test"
        );
        rd_kafka_error_destroy(error);
        rd_kafka_destroy(rk);
    }
}

/// The code was `_FATAL`, which does not say what has happened. A close without a queue has only a code.
#[test]
fn a_close_of_a_failed_consumer_returns_the_cause_of_its_fatal_error() {
    unsafe {
        let rk = failed(RD_KAFKA_CONSUMER, conf(&[("group.id", "g")]));
        let queue = rd_kafka_queue_new(rk);
        let error = rd_kafka_consumer_close_queue(rk, queue);
        assert_eq!((rd_kafka_error_code(error), rd_kafka_error_is_fatal(error)), (CAUSE, 1));
        assert_eq!(CStr::from_ptr(rd_kafka_error_string(error)), c"test_fatal_error: a test");
        rd_kafka_error_destroy(error);
        assert_eq!(rd_kafka_consumer_close(rk), RD_KAFKA_RESP_ERR__FATAL);
        rd_kafka_queue_destroy(queue);
        rd_kafka_destroy(rk);
    }
}

/// It read the partitions, which other members may own.
#[test]
fn an_assignment_of_a_failed_consumer_gives_its_partitions_up() {
    let rk = new(RD_KAFKA_CONSUMER, conf(&[("group.id", "g"), ("group.instance.id", "one")]));
    let partitions = list(&[(c"orders", 0)]);
    unsafe {
        let count = || {
            let mut assigned = null_mut();
            assert_eq!(rd_kafka_assignment(rk, &raw mut assigned), RD_KAFKA_RESP_ERR_NO_ERROR);
            let count = (*assigned).cnt;
            rd_kafka_topic_partition_list_destroy(assigned);
            count
        };
        assert_eq!((rd_kafka_assign(rk, partitions), count()), (RD_KAFKA_RESP_ERR_NO_ERROR, 1));
        assert_eq!(rd_kafka_test_fatal_error(rk, CAUSE, c"a test".as_ptr()), 0);
        assert_eq!((rd_kafka_assign(rk, partitions), count()), (RD_KAFKA_RESP_ERR_NO_ERROR, 0));
        assert!(rd_kafka_incremental_assign(rk, partitions).is_null());
        assert_eq!(count(), 0);
        rd_kafka_topic_partition_list_destroy(partitions);
        rd_kafka_destroy(rk);
    }
}

#[test]
fn a_refused_incremental_assignment_names_the_partition() {
    let rk = new(RD_KAFKA_CONSUMER, conf(&[("group.id", "g")]));
    let text_of = |error: *mut rd_kafka_error_t| unsafe {
        let text = CStr::from_ptr(rd_kafka_error_string(error)).to_str().unwrap().to_owned();
        rd_kafka_error_destroy(error);
        text
    };
    unsafe {
        let (first, second) = (list(&[(c"orders", 0)]), list(&[(c"orders", 1)]));
        let empty = "Can't subtract from empty assignment";
        assert_eq!(text_of(rd_kafka_incremental_unassign(rk, first)), empty);
        assert!(rd_kafka_incremental_assign(rk, first).is_null());
        let twice = "orders [0] is already part of the current assignment";
        assert_eq!(text_of(rd_kafka_incremental_assign(rk, first)), twice);
        let other = "orders [1] can't be unassigned since it is not in the current assignment";
        assert_eq!(text_of(rd_kafka_incremental_unassign(rk, second)), other);
        for change in [rd_kafka_incremental_assign, rd_kafka_incremental_unassign] {
            assert_eq!(text_of(change(rk, null())), "partitions must not be NULL");
        }
        for list in [first, second] {
            rd_kafka_topic_partition_list_destroy(list);
        }
        rd_kafka_destroy(rk);
    }
}

#[test]
fn a_commit_whose_outcome_is_unknown_is_a_fatal_error() {
    let broker = Broker::builder().memory().topic("orders", 1).spawn().unwrap();
    let servers = broker.bootstrap_servers();
    let properties = [("bootstrap.servers", servers.as_str()), ("transactional.id", "billing")];
    unsafe {
        let rk = new(RD_KAFKA_PRODUCER, conf(&properties));
        assert!(rd_kafka_init_transactions(rk, 60_000).is_null());
        assert!(rd_kafka_begin_transaction(rk).is_null());
        produce(rk, c"orders", 0, "paid", null_mut());
        // A code without a meaning: the marker may have been written.
        broker.cluster().intercept(ApiKey::EndTxn, None, 1, Fault::Fail(ErrorCode::Unknown(9999)));
        let error = rd_kafka_commit_transaction(rk, 60_000);
        let flags = (rd_kafka_error_is_fatal(error), rd_kafka_error_txn_requires_abort(error));
        assert_eq!(flags, (1, 0), "{:?}", CStr::from_ptr(rd_kafka_error_string(error)));
        rd_kafka_error_destroy(error);
        assert_ne!(rd_kafka_fatal_error(rk, null_mut(), 0), RD_KAFKA_RESP_ERR_NO_ERROR);
        rd_kafka_destroy(rk);
    }
}

unsafe extern "C" fn on_commit(
    _: *mut rd_kafka_t,
    err: rd_kafka_resp_err_t,
    offsets: *mut rd_kafka_topic_partition_list_t,
    opaque: *mut c_void,
) {
    let count = unsafe { offsets.as_ref() }.map_or(0, |offsets| offsets.elems().len());
    let text = format!("{count} offset(s)");
    unsafe { &*opaque.cast::<Seen>() }.lock().unwrap().push((err, text));
}

/// A consumer that another one had fenced joined the group again, and committed the offsets of partitions that it had lost.
#[test]
fn a_consumer_with_a_fatal_error_neither_subscribes_nor_commits() {
    let broker = Broker::builder().memory().topic("orders", 1).spawn().unwrap();
    let servers = broker.bootstrap_servers();
    let seen = Seen::default();
    let conf = conf(&[("bootstrap.servers", servers.as_str()), ("group.id", "g")]);
    unsafe {
        rd_kafka_conf_set_opaque(conf, std::ptr::from_ref(&seen).cast_mut().cast());
        rd_kafka_conf_set_offset_commit_cb(conf, Some(on_commit));
        let rk = new(RD_KAFKA_CONSUMER, conf);
        let names = || {
            let mut topics = null_mut();
            assert_eq!(rd_kafka_subscription(rk, &raw mut topics), RD_KAFKA_RESP_ERR_NO_ERROR);
            let count = (*topics).elems().len();
            rd_kafka_topic_partition_list_destroy(topics);
            count
        };
        subscribe(rk, c"orders");
        assert_eq!(names(), 1);
        assert_eq!(rd_kafka_test_fatal_error(rk, CAUSE, c"a test".as_ptr()), 0);

        let fatal = RD_KAFKA_RESP_ERR__FATAL;
        let entries = list(&[(c"orders", 0)]);
        assert_eq!((rd_kafka_subscribe(rk, entries), names()), (fatal, 0), "the subscription has ended");
        assert_eq!(rd_kafka_unsubscribe(rk), fatal);
        (*(*entries).elems).offset = 7;
        assert_eq!(rd_kafka_commit(rk, entries, 0), fatal);
        assert_eq!(rd_kafka_commit(rk, entries, 1), RD_KAFKA_RESP_ERR_NO_ERROR);
        until("two results", || {
            rd_kafka_poll(rk, 10);
            seen.lock().unwrap().len() == 2
        });
        let queue_opaque = std::ptr::from_ref(&seen).cast_mut().cast();
        assert_eq!(rd_kafka_commit_queue(rk, entries, null_mut(), Some(on_commit), queue_opaque), fatal);
        assert_eq!(rd_kafka_commit(rk, null_mut(), 0), fatal);
        until("the last result", || {
            rd_kafka_poll(rk, 10);
            seen.lock().unwrap().len() == 4
        });
        let seen = seen.lock().unwrap().clone();
        assert_eq!(seen[..3], [0; 3].map(|_| (fatal, "1 offset(s)".to_owned())));
        assert_eq!(seen[3].0, fatal, "the result for the whole assignment");
        assert_eq!(rd_kafka_committed(rk, entries, 60_000), RD_KAFKA_RESP_ERR_NO_ERROR);
        assert_eq!((*(*entries).elems).offset, RD_KAFKA_OFFSET_INVALID, "nothing is committed");
        rd_kafka_topic_partition_list_destroy(entries);
        rd_kafka_destroy(rk);
    }
}

/// A producer whose error function fills `seen`.
unsafe fn seen_by(seen: &Seen, properties: &[(&str, &str)]) -> *mut rd_kafka_t {
    let conf = conf(properties);
    unsafe {
        rd_kafka_conf_set_opaque(conf, std::ptr::from_ref(seen).cast_mut().cast());
        rd_kafka_conf_set_error_cb(conf, Some(on_error));
    }
    new(RD_KAFKA_PRODUCER, conf)
}

/// Asserts that the error function gets this fatal error, and that the producer then takes no record.
unsafe fn is_reported(rk: *mut rd_kafka_t, seen: &Seen, cause: rd_kafka_resp_err_t) {
    unsafe {
        until("the fatal error", || {
            rd_kafka_poll(rk, 10);
            !seen.lock().unwrap().is_empty()
        });
        let seen = seen.lock().unwrap().clone();
        let description = CStr::from_ptr(rd_kafka_err2str(cause)).to_string_lossy();
        let start = format!("Fatal error: {description}: ");
        let is_expected = |(code, text): &(c_int, String)| {
            *code == RD_KAFKA_RESP_ERR__FATAL && text.starts_with(&start) && text.len() > start.len()
        };
        assert!(seen.len() == 1 && is_expected(&seen[0]), "{start}{seen:?}");
        assert_eq!(rd_kafka_fatal_error(rk, null_mut(), 0), cause);
        let orders = rd_kafka_topic_new(rk, c"orders".as_ptr(), null_mut());
        let refused = rd_kafka_produce(orders, 0, 0, null_mut(), 0, null(), 0, null_mut());
        let reason = (rd_kafka_last_error(), rd_kafka_errno());
        assert_eq!((refused, reason), (-1, (RD_KAFKA_RESP_ERR__FATAL, libc::ECANCELED)));
        rd_kafka_topic_destroy(orders);
    }
}

/// It was only logged, and `rd_kafka_produce` failed with `_GAPLESS_GUARANTEE`.
#[test]
fn a_gap_where_none_may_be_is_reported_when_it_happens() {
    let broker = Broker::builder().memory().topic("orders", 1).spawn().unwrap();
    let servers = broker.bootstrap_servers();
    let seen = Seen::default();
    let properties = [
        ("bootstrap.servers", servers.as_str()),
        ("enable.idempotence", "true"),
        ("enable.gapless.guarantee", "true"),
    ];
    unsafe {
        let rk = seen_by(&seen, &properties);
        produce(rk, c"orders", 0, "first", null_mut());
        assert_eq!(rd_kafka_flush(rk, 60_000), RD_KAFKA_RESP_ERR_NO_ERROR);
        broker.cluster().intercept(ApiKey::Produce, None, 1, Fault::Fail(ErrorCode::MessageTooLarge));
        produce(rk, c"orders", 0, "lost", null_mut());
        is_reported(rk, &seen, RD_KAFKA_RESP_ERR__GAPLESS_GUARANTEE);
        rd_kafka_destroy(rk);
    }
}

/// Nothing was reported before the application called a transactional function.
#[test]
fn a_producer_that_is_fenced_by_the_answer_to_its_records_reports_it_at_once() {
    let broker = Broker::builder().memory().topic("orders", 1).spawn().unwrap();
    let servers = broker.bootstrap_servers();
    let seen = Seen::default();
    unsafe {
        let rk = seen_by(&seen, &[("bootstrap.servers", &servers), ("transactional.id", "billing")]);
        assert!(rd_kafka_init_transactions(rk, 60_000).is_null());
        assert!(rd_kafka_begin_transaction(rk).is_null());
        broker.cluster().intercept(ApiKey::Produce, None, 1, Fault::Fail(ErrorCode::InvalidProducerEpoch));
        produce(rk, c"orders", 0, "paid", null_mut());
        is_reported(rk, &seen, RD_KAFKA_RESP_ERR__FENCED);
        rd_kafka_destroy(rk);
    }
}

unsafe extern "C" fn on_report(_: *mut rd_kafka_t, message: *const rd_kafka_message_t, opaque: *mut c_void) {
    let (err, status) = unsafe { ((*message).err, rd_kafka_message_status(message)) };
    let text = if status == RD_KAFKA_MSG_STATUS_PERSISTED { "written" } else { "not written" };
    unsafe { &*opaque.cast::<Seen>() }.lock().unwrap().push((err, text.to_owned()));
}

/// A producer whose delivery reports fill `seen`. It has one message in flight, and the first requests have this fault.
unsafe fn with_one_in_flight(
    broker: &BrokerThread,
    seen: &Seen,
    properties: &[(&str, &str)],
    (fault, requests): (Fault, u32),
) -> *mut rd_kafka_t {
    let servers = broker.bootstrap_servers();
    let mut all =
        vec![("bootstrap.servers", servers.as_str()), ("max.in.flight.requests.per.connection", "1")];
    all.extend(properties);
    let conf = conf(&all);
    unsafe {
        rd_kafka_conf_set_opaque(conf, std::ptr::from_ref(seen).cast_mut().cast());
        rd_kafka_conf_set_dr_msg_cb(conf, Some(on_report));
    }
    let rk = new(RD_KAFKA_PRODUCER, conf);
    let cluster = broker.cluster();
    assert_eq!(cluster.requests(ApiKey::Produce), 0);
    cluster.intercept(ApiKey::Produce, None, requests, fault);
    produce(rk, c"orders", 0, "in flight", null_mut());
    until("a request", || cluster.requests(ApiKey::Produce) > 0);
    rk
}

/// A response that takes long.
const LATE: (Fault, u32) = (Fault::Delay(Duration::from_secs(2)), 1);

/// They were sent after the application had got the error.
#[test]
fn a_fatal_error_purges_the_queued_messages_and_not_those_in_flight() {
    let broker = Broker::builder().memory().topic("orders", 1).spawn().unwrap();
    let seen = Seen::default();
    unsafe {
        let rk = with_one_in_flight(&broker, &seen, &[], LATE);
        produce(rk, c"orders", 0, "queued", null_mut());
        assert_eq!(rd_kafka_test_fatal_error(rk, CAUSE, c"a test".as_ptr()), 0);
        assert_eq!(rd_kafka_flush(rk, 60_000), RD_KAFKA_RESP_ERR_NO_ERROR);
        rd_kafka_destroy(rk);
    }
    let seen = seen.into_inner().unwrap();
    let purged = (RD_KAFKA_RESP_ERR__PURGE_QUEUE, "not written".to_owned());
    assert_eq!(seen, [purged, (RD_KAFKA_RESP_ERR_NO_ERROR, "written".to_owned())]);
}

/// It was sent again.
#[test]
fn after_a_fatal_error_a_message_in_flight_that_fails_is_purged() {
    let broker = Broker::builder().memory().topic("orders", 1).spawn().unwrap();
    let seen = Seen::default();
    let fault = Fault::FailAfter(ErrorCode::NotEnoughReplicas, Duration::from_millis(300));
    unsafe {
        let rk = with_one_in_flight(&broker, &seen, &[], (fault, u32::MAX));
        assert_eq!(rd_kafka_test_fatal_error(rk, CAUSE, c"a test".as_ptr()), 0);
        assert_eq!(rd_kafka_flush(rk, 60_000), RD_KAFKA_RESP_ERR_NO_ERROR);
        rd_kafka_destroy(rk);
    }
    let purged = (RD_KAFKA_RESP_ERR__PURGE_QUEUE, "not written".to_owned());
    assert_eq!(seen.into_inner().unwrap(), [purged]);
}

unsafe extern "C" fn on_purged(_: *mut rd_kafka_t, message: *const rd_kafka_message_t, opaque: *mut c_void) {
    let text = unsafe { CStr::from_ptr(rd_kafka_message_errstr(message)) }.to_string_lossy().into_owned();
    unsafe { &*opaque.cast::<Seen>() }.lock().unwrap().push((unsafe { (*message).err }, text));
}

/// It said that the application had purged the message.
#[test]
fn the_report_of_a_purged_message_says_why_it_was_purged_or_has_the_text_of_its_code() {
    for (is_fatal, text) in [(false, "Local: Purged in queue"), (true, "fatal: test_fatal_error: a test")] {
        let seen = Seen::default();
        let conf = conf(&[]);
        unsafe {
            rd_kafka_conf_set_opaque(conf, std::ptr::from_ref(&seen).cast_mut().cast());
            rd_kafka_conf_set_dr_msg_cb(conf, Some(on_purged));
            let rk = new(RD_KAFKA_PRODUCER, conf);
            produce(rk, c"orders", 0, "queued", null_mut());
            if is_fatal {
                assert_eq!(rd_kafka_test_fatal_error(rk, CAUSE, c"a test".as_ptr()), 0);
            } else {
                assert_eq!(rd_kafka_purge(rk, RD_KAFKA_PURGE_F_QUEUE), RD_KAFKA_RESP_ERR_NO_ERROR);
            }
            assert_eq!(rd_kafka_flush(rk, 60_000), RD_KAFKA_RESP_ERR_NO_ERROR);
            rd_kafka_destroy(rk);
        }
        assert_eq!(seen.into_inner().unwrap(), [(RD_KAFKA_RESP_ERR__PURGE_QUEUE, text.to_owned())]);
    }
}

/// They had the code of the fatal error.
#[test]
fn the_messages_behind_a_gap_are_purged() {
    let broker = Broker::builder().memory().topic("orders", 1).spawn().unwrap();
    let seen = Seen::default();
    let properties =
        [("enable.idempotence", "true"), ("enable.gapless.guarantee", "true"), ("batch.num.messages", "1")];
    unsafe {
        let rk = with_one_in_flight(&broker, &seen, &properties, LATE);
        broker.cluster().intercept(ApiKey::Produce, None, 1, Fault::Fail(ErrorCode::MessageTooLarge));
        for value in ["lost", "behind"] {
            produce(rk, c"orders", 0, value, null_mut());
        }
        assert_eq!(rd_kafka_flush(rk, 60_000), RD_KAFKA_RESP_ERR_NO_ERROR);
        rd_kafka_destroy(rk);
    }
    let codes: Vec<_> = seen.into_inner().unwrap().into_iter().map(|(code, _)| code).collect();
    let expected =
        [RD_KAFKA_RESP_ERR_NO_ERROR, RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE, RD_KAFKA_RESP_ERR__PURGE_QUEUE];
    assert_eq!(codes, expected);
}
