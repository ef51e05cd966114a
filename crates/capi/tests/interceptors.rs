//! Interceptors, as a tracing library uses them: they see every record, may add headers, and hear of the client's life.

#![cfg(feature = "mock")]
#![allow(unsafe_code, reason = "C's functions")]
#![allow(clippy::disallowed_methods, reason = "a test is a shell: it may use threads")]
#![allow(clippy::undocumented_unsafe_blocks, reason = "a test calls as C does")]
#![allow(
    clippy::wildcard_imports,
    clippy::unwrap_used,
    reason = "C's names, and a test that stops where it must"
)]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::Mutex;

use rdkafka::client::client_interceptors::*;
use rdkafka::conf::conf_interceptors::*;
use rdkafka::consume::leave_group::*;
use rdkafka::consume::offsets::*;
use rdkafka::messages::headers::*;
use rdkafka::messages::message::*;
use rdkafka::mock::requests::*;
use rdkafka::mock::*;
use rdkafka::produce::flush::*;
use rdkafka::produce::producer::*;
use rdkafka::queue::event::*;
use rdkafka::queue::poll::*;
use rdkafka::queue::queue_handle::*;
use rdkafka::queue::queue_poll::*;
use rdkafka::{client::handle::*, errors::error_object::*, ffi::*};

use crate::common::*;

const OK: rd_kafka_resp_err_t = RD_KAFKA_RESP_ERR_NO_ERROR;

/// The calls in order; it is the opaque of the interceptors.
type Seen = Mutex<Vec<String>>;

fn note(opaque: *mut c_void, what: String) -> rd_kafka_resp_err_t {
    unsafe { &*opaque.cast::<Seen>() }.lock().unwrap().push(what);
    OK
}

unsafe extern "C" fn on_send(
    _rk: *mut rd_kafka_t,
    message: *mut rd_kafka_message_t,
    opaque: *mut c_void,
) -> rd_kafka_resp_err_t {
    let mut headers = null_mut();
    unsafe {
        // A record without headers has no list of them, as in the original.
        let none = rd_kafka_message_headers(message, &raw mut headers);
        assert_eq!(none, RD_KAFKA_RESP_ERR__NOENT);
        headers = rd_kafka_headers_new(1);
        rd_kafka_message_set_headers(message, headers);
        assert_eq!(rd_kafka_header_add(headers, c"trace".as_ptr(), -1, c"1-2-3".as_ptr().cast(), -1), OK);
        let topic = CStr::from_ptr(rdkafka::client::topic_handle::rd_kafka_topic_name((*message).rkt));
        note(opaque, format!("send {} {topic:?} {}", text_of(message), (*message)._private.addr()))
    }
}

unsafe extern "C" fn on_acknowledgement(
    _rk: *mut rd_kafka_t,
    message: *mut rd_kafka_message_t,
    opaque: *mut c_void,
) -> rd_kafka_resp_err_t {
    let err = unsafe { (*message).err };
    note(opaque, format!("acknowledgement {} {err}", text_of(message)))
}

unsafe extern "C" fn on_consume(
    _rk: *mut rd_kafka_t,
    message: *mut rd_kafka_message_t,
    opaque: *mut c_void,
) -> rd_kafka_resp_err_t {
    let mut headers = null_mut();
    let (mut value, mut size) = (null(), 0);
    let traced = unsafe {
        rd_kafka_message_headers(message, &raw mut headers) == OK
            && rd_kafka_header_get_last(headers, c"trace".as_ptr(), &raw mut value, &raw mut size) == OK
    };
    note(opaque, format!("consume {} {traced}", text_of(message)))
}

unsafe extern "C" fn on_commit(
    _rk: *mut rd_kafka_t,
    offsets: *const rd_kafka_topic_partition_list_t,
    err: rd_kafka_resp_err_t,
    opaque: *mut c_void,
) -> rd_kafka_resp_err_t {
    let offset = unsafe { (&*offsets).elems()[0].offset };
    note(opaque, format!("commit {offset} {err}"))
}

unsafe extern "C" fn on_thread_start(
    _rk: *mut rd_kafka_t,
    kind: rd_kafka_thread_type_t,
    name: *const c_char,
    opaque: *mut c_void,
) -> rd_kafka_resp_err_t {
    let name = unsafe { CStr::from_ptr(name) };
    assert_ne!(std::thread::current().name(), Some("test"), "in the thread itself");
    note(opaque, format!("start {kind} {name:?}"))
}

unsafe extern "C" fn on_thread_exit(
    _rk: *mut rd_kafka_t,
    kind: rd_kafka_thread_type_t,
    name: *const c_char,
    opaque: *mut c_void,
) -> rd_kafka_resp_err_t {
    let name = unsafe { CStr::from_ptr(name) };
    note(opaque, format!("exit {kind} {name:?}"))
}

unsafe extern "C" fn on_request_sent(
    _rk: *mut rd_kafka_t,
    _sockfd: c_int,
    broker: *const c_char,
    node: i32,
    api_key: i16,
    version: i16,
    correlation_id: i32,
    size: usize,
    opaque: *mut c_void,
) -> rd_kafka_resp_err_t {
    let broker = unsafe { CStr::from_ptr(broker) }.to_str().unwrap();
    assert!(broker.starts_with("127.0.0.1:") && size > 0 && version >= 0, "{broker} {size} {version}");
    assert!(node != -1 || broker.ends_with("/bootstrap"), "{broker} {node}");
    note(opaque, format!("sent {api_key} {correlation_id} {broker}"))
}

unsafe extern "C" fn on_response_received(
    _rk: *mut rd_kafka_t,
    _sockfd: c_int,
    broker: *const c_char,
    _node: i32,
    api_key: i16,
    _version: i16,
    correlation_id: i32,
    size: usize,
    rtt: i64,
    err: rd_kafka_resp_err_t,
    opaque: *mut c_void,
) -> rd_kafka_resp_err_t {
    let broker = unsafe { CStr::from_ptr(broker) }.to_str().unwrap();
    assert!(size > 0 && rtt >= 0 && err == OK, "{size} bytes after {rtt} us: {err}");
    note(opaque, format!("received {api_key} {correlation_id} {broker}"))
}

unsafe extern "C" fn on_broker_state_change(
    _rk: *mut rd_kafka_t,
    _node: i32,
    protocol: *const c_char,
    name: *const c_char,
    port: c_int,
    state: *const c_char,
    opaque: *mut c_void,
) -> rd_kafka_resp_err_t {
    let [protocol, name, state] =
        [protocol, name, state].map(|it| unsafe { CStr::from_ptr(it) }.to_str().unwrap());
    assert!(port > 0);
    note(opaque, format!("broker {protocol} {name} {state}"))
}

unsafe extern "C" fn on_new_of_requests(
    rk: *mut rd_kafka_t,
    _conf: *const rd_kafka_conf_t,
    opaque: *mut c_void,
    _errstr: *mut c_char,
    _size: usize,
) -> rd_kafka_resp_err_t {
    let name = c"tracer".as_ptr();
    unsafe {
        assert_eq!(rd_kafka_interceptor_add_on_request_sent(rk, name, Some(on_request_sent), opaque), OK);
        let add = rd_kafka_interceptor_add_on_response_received;
        assert_eq!(add(rk, name, Some(on_response_received), opaque), OK);
        let add = rd_kafka_interceptor_add_on_broker_state_change;
        assert_eq!(add(rk, name, Some(on_broker_state_change), opaque), OK);
    }
    OK
}

#[test]
fn interceptors_hear_of_every_request_and_of_the_brokers_behind_them() {
    let seen = Seen::default();
    let opaque = (&raw const seen).cast_mut().cast();
    unsafe {
        let conf = conf(&[("test.mock.num.brokers", "1")]);
        let added =
            rd_kafka_conf_interceptor_add_on_new(conf, c"tracer".as_ptr(), Some(on_new_of_requests), opaque);
        assert_eq!(added, OK);
        let rk = new(RD_KAFKA_PRODUCER, conf);
        produce(rk, c"orders", 0, "one", null_mut());
        assert_eq!(rd_kafka_flush(rk, 60_000), OK);
        rd_kafka_destroy(rk);
    }
    for what in ["broker plaintext 127.0.0.1 CONNECT", "broker plaintext 127.0.0.1 UP"] {
        assert!(count(&seen, what) > 0, "no {what}: {seen:?}");
    }
    // ApiVersions (18), Metadata (3) and Produce (0) were sent, and each response came from the broker of its request.
    let told = seen.lock().unwrap();
    for api in ["18 ", "3 ", "0 "] {
        let sent =
            told.iter().filter_map(|line| line.strip_prefix("sent ")).find(|line| line.starts_with(api));
        let sent = sent.unwrap_or_else(|| panic!("no request {api}: {told:?}"));
        let answer = format!("received {}", sent.split('/').next().unwrap());
        assert!(told.iter().any(|line| line.starts_with(&answer)), "no {answer}: {told:?}");
    }
}

/// librdkafka's test 0105: its main thread handles the response to Metadata (3), but not to ApiVersions (18) and Produce.
#[test]
fn a_response_for_the_main_thread_is_reported_twice_as_by_the_original() {
    let seen = Seen::default();
    let opaque = (&raw const seen).cast_mut().cast();
    unsafe {
        let conf = conf(&[("test.mock.num.brokers", "1")]);
        let added =
            rd_kafka_conf_interceptor_add_on_new(conf, c"tracer".as_ptr(), Some(on_new_of_requests), opaque);
        assert_eq!(added, OK);
        let rk = new(RD_KAFKA_PRODUCER, conf);
        produce(rk, c"orders", 0, "one", null_mut());
        assert_eq!(rd_kafka_flush(rk, 60_000), OK);
        rd_kafka_destroy(rk);
    }
    let seen = seen.lock().unwrap();
    for (api, calls) in [("18 ", 1), ("3 ", 2), ("0 ", 1)] {
        let mut received = seen.iter().filter_map(|line| line.strip_prefix("received "));
        let first =
            received.find(|line| line.starts_with(api)).unwrap_or_else(|| panic!("no {api}: {seen:?}"));
        let same = seen.iter().filter(|line| line.strip_prefix("received ") == Some(first)).count();
        assert_eq!(same, calls, "{first}: {seen:?}");
    }
}

/// Closes the socket of the first Produce request.
unsafe extern "C" fn on_request_sent_closing(
    _rk: *mut rd_kafka_t,
    sockfd: c_int,
    _broker: *const c_char,
    _node: i32,
    api_key: i16,
    _version: i16,
    _correlation_id: i32,
    _size: usize,
    opaque: *mut c_void,
) -> rd_kafka_resp_err_t {
    let seen = unsafe { &*opaque.cast::<Seen>() };
    if api_key == 0 && count(seen, "closed") == 0 {
        assert_eq!(unsafe { libc::close(sockfd) }, 0, "it is a descriptor");
        note(opaque, "closed".into());
    }
    note(opaque, format!("sent {api_key}"))
}

unsafe extern "C" fn on_new_closing(
    rk: *mut rd_kafka_t,
    _conf: *const rd_kafka_conf_t,
    opaque: *mut c_void,
    _errstr: *mut c_char,
    _size: usize,
) -> rd_kafka_resp_err_t {
    let name = c"closing".as_ptr();
    unsafe { rd_kafka_interceptor_add_on_request_sent(rk, name, Some(on_request_sent_closing), opaque) }
}

unsafe extern "C" fn on_report(
    _rk: *mut rd_kafka_t,
    message: *const rd_kafka_message_t,
    opaque: *mut c_void,
) {
    let err = unsafe { (*message).err };
    note(opaque, format!("report {err}"));
}

/// librdkafka's test 0076.
#[test]
fn an_interceptor_may_close_the_socket_of_a_request() {
    for (retries, outcome) in [("0", RD_KAFKA_RESP_ERR__TRANSPORT), ("1", OK)] {
        let seen = Seen::default();
        let opaque = (&raw const seen).cast_mut().cast();
        unsafe {
            let conf = conf(&[("test.mock.num.brokers", "1"), ("retries", retries)]);
            let name = c"closing".as_ptr();
            assert_eq!(rd_kafka_conf_interceptor_add_on_new(conf, name, Some(on_new_closing), opaque), OK);
            rdkafka::conf::callbacks::rd_kafka_conf_set_dr_msg_cb(conf, Some(on_report));
            rdkafka::conf::rd_kafka_conf_set_opaque(conf, opaque);
            let rk = new(RD_KAFKA_PRODUCER, conf);
            produce(rk, c"orders", 0, "one", null_mut());
            assert_eq!(rd_kafka_flush(rk, 60_000), OK);
            rd_kafka_destroy(rk);
        }
        assert_eq!(count(&seen, &format!("report {outcome}")), 1, "retries={retries}: {seen:?}");
        assert_eq!(count(&seen, "sent 0"), if retries == "0" { 1 } else { 2 }, "{seen:?}");
    }
}

unsafe extern "C" fn on_destroy(rk: *mut rd_kafka_t, opaque: *mut c_void) -> rd_kafka_resp_err_t {
    let name = unsafe { CStr::from_ptr(rd_kafka_name(rk)) };
    note(opaque, format!("destroy {}", name.to_str().unwrap().split('#').next().unwrap()))
}

unsafe extern "C" fn on_new(
    rk: *mut rd_kafka_t,
    _conf: *const rd_kafka_conf_t,
    opaque: *mut c_void,
    _errstr: *mut c_char,
    _size: usize,
) -> rd_kafka_resp_err_t {
    let name = c"tracer".as_ptr();
    unsafe {
        assert_eq!(rd_kafka_interceptor_add_on_send(rk, name, Some(on_send), opaque), OK);
        assert_eq!(
            rd_kafka_interceptor_add_on_acknowledgement(rk, name, Some(on_acknowledgement), opaque),
            OK
        );
        assert_eq!(rd_kafka_interceptor_add_on_consume(rk, name, Some(on_consume), opaque), OK);
        assert_eq!(rd_kafka_interceptor_add_on_commit(rk, name, Some(on_commit), opaque), OK);
        assert_eq!(rd_kafka_interceptor_add_on_thread_start(rk, name, Some(on_thread_start), opaque), OK);
        assert_eq!(rd_kafka_interceptor_add_on_thread_exit(rk, name, Some(on_thread_exit), opaque), OK);
        assert_eq!(rd_kafka_interceptor_add_on_destroy(rk, name, Some(on_destroy), opaque), OK);
        let twice = rd_kafka_interceptor_add_on_destroy(rk, name, Some(on_destroy), opaque);
        assert_eq!(twice, RD_KAFKA_RESP_ERR__CONFLICT);
    }
    note(opaque, "new".into())
}

fn traced(seen: &Seen, properties: &[(&str, &str)]) -> *mut rd_kafka_conf_t {
    let conf = conf(properties);
    let opaque = (&raw const *seen).cast_mut().cast();
    let added =
        unsafe { rd_kafka_conf_interceptor_add_on_new(conf, c"tracer".as_ptr(), Some(on_new), opaque) };
    assert_eq!(added, OK);
    conf
}

fn count(seen: &Seen, what: &str) -> usize {
    seen.lock().unwrap().iter().filter(|entry| entry.starts_with(what)).count()
}

#[test]
fn interceptors_see_a_record_from_its_sending_to_its_commit() {
    let (of_producer, of_consumer) = (Seen::default(), Seen::default());
    unsafe {
        // The interceptors receive the outcome even without delivery reports and without a poll.
        let rk = new(RD_KAFKA_PRODUCER, traced(&of_producer, &[("test.mock.num.brokers", "1")]));
        let late = rd_kafka_interceptor_add_on_send(rk, c"late".as_ptr(), Some(on_send), null_mut());
        assert_eq!(late, RD_KAFKA_RESP_ERR__STATE, "only on_new adds");
        produce(rk, c"orders", 0, "one", 7 as *mut c_void);
        produce(rk, c"orders", 0, "two", null_mut());
        until("both acknowledgements", || count(&of_producer, "acknowledgement") == 2);
        assert_eq!(rd_kafka_flush(rk, 60_000), OK);
        // For a rejected record they are called at once.
        let rkt = rdkafka::client::topic_handle::rd_kafka_topic_new(rk, c"orders".as_ptr(), null_mut());
        let value = c"no".as_ptr().cast_mut().cast();
        let taken = rd_kafka_produce(rkt, 99, RD_KAFKA_MSG_F_COPY, value, 2, null(), 0, null_mut());
        assert_eq!((taken, rd_kafka_last_error()), (-1, RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION));
        rdkafka::client::topic_handle::rd_kafka_topic_destroy(rkt);

        let cluster = rd_kafka_handle_mock_cluster(rk);
        let servers = CStr::from_ptr(rd_kafka_mock_cluster_bootstraps(cluster)).to_str().unwrap();
        let properties = [
            ("bootstrap.servers", servers),
            ("group.id", "g"),
            ("auto.offset.reset", "earliest"),
            ("enable.auto.commit", "false"),
        ];
        let consumer = new(RD_KAFKA_CONSUMER, traced(&of_consumer, &properties));
        subscribe(consumer, c"orders");
        assert_eq!(read(consumer, 2), ["one", "two"]);
        assert_eq!(rd_kafka_commit(consumer, null(), 0), OK);
        assert_eq!(rd_kafka_consumer_close(consumer), OK);
        rd_kafka_destroy(consumer);
        rd_kafka_destroy(rk);
    }
    let told = of_producer.into_inner().unwrap();
    let unknown = RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION;
    let expected = [
        "new".to_owned(),
        "send one \"orders\" 7".into(),
        "send two \"orders\" 0".into(),
        "acknowledgement one 0".into(),
        "acknowledgement two 0".into(),
        "send no \"orders\" 0".into(),
        format!("acknowledgement no {unknown}"),
        "exit 0 \"main\"".into(),
        "destroy rdkafka".into(),
    ];
    // The start of the thread and the outcomes have no fixed order.
    assert!(told.contains(&"start 0 \"main\"".to_owned()), "{told:?}");
    let mut sorted = (told.clone(), expected.to_vec());
    sorted.0.retain(|entry| !entry.starts_with("start"));
    sorted.0.sort_unstable();
    sorted.1.sort_unstable();
    assert_eq!(sorted.0, sorted.1);
    assert_eq!(told.first().map(String::as_str), Some("new"));
    assert!(told.ends_with(&expected[7..]), "{told:?}");
    let told = of_consumer.into_inner().unwrap();
    let rest: Vec<_> = told.iter().filter(|entry| !entry.starts_with("start")).map(String::as_str).collect();
    let end = ["commit 2 0", "exit 0 \"main\"", "destroy rdkafka"];
    assert_eq!(rest, [&["new", "consume one true", "consume two true"][..], &end].concat());
}

#[test]
fn reports_and_automatic_commits_pass_interceptors_on_their_way_to_the_application() {
    unsafe extern "C" fn on_report(
        _rk: *mut rd_kafka_t,
        _message: *const rd_kafka_message_t,
        opaque: *mut c_void,
    ) {
        note(opaque, "report".into());
    }
    unsafe extern "C" fn on_offset_commit(
        _rk: *mut rd_kafka_t,
        err: rd_kafka_resp_err_t,
        offsets: *mut rd_kafka_topic_partition_list_t,
        opaque: *mut c_void,
    ) {
        let offset = unsafe { (*offsets).elems()[0].offset };
        note(opaque, format!("told commit {offset} {err}"));
    }
    let seen = Seen::default();
    let opaque: *mut c_void = (&raw const seen).cast_mut().cast();
    unsafe {
        let conf = traced(&seen, &[("test.mock.num.brokers", "1")]);
        rdkafka::conf::callbacks::rd_kafka_conf_set_dr_msg_cb(conf, Some(on_report));
        rdkafka::conf::callbacks::rd_kafka_conf_set_opaque(conf, opaque);
        let rk = new(RD_KAFKA_PRODUCER, conf);
        produce(rk, c"orders", 0, "one", null_mut());
        while count(&seen, "report") == 0 {
            rd_kafka_poll(rk, 100);
        }
        assert_eq!(count(&seen, "acknowledgement one 0"), 1);

        let cluster = rd_kafka_handle_mock_cluster(rk);
        let servers = CStr::from_ptr(rd_kafka_mock_cluster_bootstraps(cluster)).to_str().unwrap();
        let properties = [
            ("bootstrap.servers", servers),
            ("group.id", "g"),
            ("auto.offset.reset", "earliest"),
            ("auto.commit.interval.ms", "50"),
        ];
        let conf = traced(&seen, &properties);
        rdkafka::conf::callbacks::rd_kafka_conf_set_offset_commit_cb(conf, Some(on_offset_commit));
        rdkafka::conf::callbacks::rd_kafka_conf_set_opaque(conf, opaque);
        let consumer = new(RD_KAFKA_CONSUMER, conf);
        subscribe(consumer, c"orders");
        assert_eq!(read(consumer, 1), ["one"]);
        until("the automatic commit", || {
            rd_kafka_poll(consumer, 10);
            count(&seen, "told commit 1 0") == 1
        });
        assert_eq!(count(&seen, "commit 1 0"), 1);
        rd_kafka_destroy(consumer);
        rd_kafka_destroy(rk);
    }
}

/// librdkafka calls them before it looks at the property. They received failures only.
#[test]
fn interceptors_see_successes_that_the_application_does_not_want() {
    let seen = Seen::default();
    let too_large = RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE;
    unsafe {
        let properties = [("test.mock.num.brokers", "1"), ("delivery.report.only.error", "true")];
        let conf = traced(&seen, &properties);
        rdkafka::conf::callbacks::rd_kafka_conf_set_dr_msg_cb(conf, Some(on_report));
        rdkafka::conf::callbacks::rd_kafka_conf_set_opaque(conf, (&raw const seen).cast_mut().cast());
        let rk = new(RD_KAFKA_PRODUCER, conf);
        produce(rk, c"orders", 0, "one", null_mut());
        assert_eq!(rd_kafka_flush(rk, 60_000), OK);
        assert_eq!((count(&seen, "acknowledgement one 0"), count(&seen, "report")), (1, 0), "{seen:?}");
        let cluster = rd_kafka_handle_mock_cluster(rk);
        rd_kafka_mock_push_request_errors_array(cluster, 0, 1, &raw const too_large);
        produce(rk, c"orders", 0, "two", null_mut());
        assert_eq!(rd_kafka_flush(rk, 60_000), OK);
        let failure = format!("acknowledgement two {too_large}");
        assert_eq!((count(&seen, &failure), count(&seen, "report")), (1, 1), "{seen:?}");
        rd_kafka_destroy(rk);
    }
}

/// An application that polls for events reads a failure later: it was not counted until then, and a flush ended before.
#[test]
fn a_failure_counts_until_the_application_has_read_it() {
    let seen = Seen::default();
    let too_large = RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE;
    unsafe {
        let properties = [("test.mock.num.brokers", "1"), ("delivery.report.only.error", "true")];
        let conf = traced(&seen, &properties);
        rdkafka::conf::callbacks::rd_kafka_conf_set_events(conf, RD_KAFKA_EVENT_DR);
        let rk = new(RD_KAFKA_PRODUCER, conf);
        let queue = rd_kafka_queue_get_main(rk);
        rd_kafka_mock_push_request_errors_array(rd_kafka_handle_mock_cluster(rk), 0, 1, &raw const too_large);
        produce(rk, c"orders", 0, "one", null_mut());
        until("the report", || rd_kafka_queue_length(queue) == 1);
        assert_eq!(rd_kafka_flush(rk, 200), RD_KAFKA_RESP_ERR__TIMED_OUT, "its report is not read");
        assert_eq!(rd_kafka_outq_len(rk), 1);
        let event = rd_kafka_queue_poll(queue, 0);
        assert_eq!(rd_kafka_event_type(event), RD_KAFKA_EVENT_DR);
        rd_kafka_event_destroy(event);
        assert_eq!(rd_kafka_flush(rk, 60_000), OK);
        assert_eq!(rd_kafka_outq_len(rk), 0);
        rd_kafka_queue_destroy(queue);
        rd_kafka_destroy(rk);
    }
}
