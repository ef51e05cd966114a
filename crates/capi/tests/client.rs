//! The properties of a running client: functions that read and change them.

#![cfg(feature = "mock")]
#![allow(unsafe_code, reason = "C's functions")]
#![allow(clippy::disallowed_methods, reason = "a test is a shell: it may use threads")]
#![allow(clippy::undocumented_unsafe_blocks, reason = "a test calls as C does")]
#![allow(
    clippy::wildcard_imports,
    clippy::unwrap_used,
    reason = "C's names, and a test that stops where it must"
)]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io::Read;
use std::ptr::{null, null_mut};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ottla_broker::{Broker, BrokerThread};
use rdkafka::client::control::*;
use rdkafka::client::handle::*;
use rdkafka::client::list_groups::*;
use rdkafka::client::metadata::*;
use rdkafka::client::topic_handle::*;
use rdkafka::conf::callbacks::*;
use rdkafka::conf::topic_conf::*;
use rdkafka::consume::group_consumer::*;
use rdkafka::consume::leave_group::*;
use rdkafka::errors::error_object::*;
use rdkafka::ffi::memory::rd_kafka_mem_free;
use rdkafka::ffi::*;
use rdkafka::messages::partition_list::*;
use rdkafka::produce::flush::*;
use rdkafka::queue::event::*;
use rdkafka::queue::poll::*;
use rdkafka::queue::queue_handle::*;
use rdkafka::queue::queue_poll::*;

use crate::common::*;

const OK: rd_kafka_resp_err_t = RD_KAFKA_RESP_ERR_NO_ERROR;

fn broker(nodes: i32) -> BrokerThread {
    Broker::builder().memory().nodes(nodes).topic("orders", 1).spawn().expect("a broker in memory")
}

#[test]
fn brokers_can_be_added_to_a_client_that_was_made_without_any() {
    let broker = broker(3);
    unsafe {
        let rk = new(RD_KAFKA_PRODUCER, conf(&[]));
        produce(rk, c"orders", 0, "early", null_mut());
        assert_eq!(rd_kafka_flush(rk, 200), RD_KAFKA_RESP_ERR__TIMED_OUT, "there is nobody to send it to");
        let mut count = 9;
        assert!(rd_kafka_brokers_learned_ids(rk, &raw mut count).is_null());
        assert_eq!(count, 0);
        let first = broker.addresses()[0].to_string();
        let servers = CString::new(format!("{first},:no address,{first}")).unwrap();
        assert_eq!(rd_kafka_brokers_add(rk, servers.as_ptr()), 2);
        assert_eq!(rd_kafka_brokers_add(rk, null()), 0);
        assert_eq!(rd_kafka_flush(rk, 60_000), OK);
        let ids = rd_kafka_brokers_learned_ids(rk, &raw mut count);
        assert_eq!(std::slice::from_raw_parts(ids, count), [1, 2, 3]);
        rd_kafka_mem_free(rk, ids.cast());
        rd_kafka_destroy(rk);
    }
    assert_eq!(broker.cluster().offsets_of("orders", 0), Some((0, 1)));
}

#[test]
fn groups_are_listed_with_what_their_members_said() {
    let broker = broker(2);
    let servers = broker.bootstrap_servers();
    unsafe {
        let properties =
            [("bootstrap.servers", servers.as_str()), ("group.id", "billing"), ("client.id", "till")];
        let rk = new(RD_KAFKA_CONSUMER, conf(&properties));
        subscribe(rk, c"orders");
        let listed = || {
            let mut told = null();
            assert_eq!(rd_kafka_list_groups(rk, null(), &raw mut told, 30_000), OK);
            told
        };
        until("the member has its partition", || {
            rd_kafka_consumer_poll(rk, 50);
            let told = listed();
            let groups = std::slice::from_raw_parts((*told).groups, (*told).group_cnt as usize);
            let stable = groups.len() == 1 && CStr::from_ptr(groups[0].state) == c"Stable";
            rd_kafka_group_list_destroy(told);
            stable
        });
        let told = listed();
        let group = &*(*told).groups;
        assert_eq!(CStr::from_ptr(group.group), c"billing");
        assert_eq!(CStr::from_ptr(group.protocol_type), c"consumer");
        assert_eq!(CStr::from_ptr(group.protocol), c"range");
        assert_eq!((group.err, group.member_cnt), (OK, 1));
        assert!(group.broker.id > 0 && group.broker.port > 0);
        let member = &*group.members;
        assert_eq!(CStr::from_ptr(member.client_id), c"till");
        let assignment = std::slice::from_raw_parts(
            member.member_assignment.cast::<u8>(),
            member.member_assignment_size as usize,
        );
        assert!(assignment.windows(6).any(|part| part == b"orders"), "{assignment:?}");
        assert!(member.member_metadata_size > 0);
        rd_kafka_group_list_destroy(told);
        // A missing group is not listed, and it is no error.
        let mut told = null();
        assert_eq!(rd_kafka_list_groups(rk, c"nobody".as_ptr(), &raw mut told, 30_000), OK);
        assert_eq!((*told).group_cnt, 0);
        rd_kafka_group_list_destroy(told);
        assert_eq!(rd_kafka_list_groups(rk, c"billing".as_ptr(), &raw mut told, 30_000), OK);
        assert_eq!((*told).group_cnt, 1);
        rd_kafka_group_list_destroy(told);
        rd_kafka_group_list_destroy(null());
        assert_eq!(rd_kafka_consumer_close(rk), OK);
        let topics = list(&[(c"orders", 0)]);
        // An application that serves rebalances until the end answers one late: Go's binding would wait for ever on an error.
        assert_eq!(rd_kafka_assign(rk, null()), OK);
        assert_eq!(rd_kafka_assign(rk, topics), OK);
        assert!(rd_kafka_incremental_assign(rk, topics).is_null());
        assert!(rd_kafka_incremental_unassign(rk, topics).is_null());
        assert_eq!(rd_kafka_subscribe(rk, topics), RD_KAFKA_RESP_ERR__DESTROY, "this one comes too late");
        rd_kafka_topic_partition_list_destroy(topics);
        rd_kafka_destroy(rk);
    }
}

/// A received log line.
struct Line {
    client: String,
    facility: String,
    text: String,
}

static LINES: Mutex<Vec<Line>> = Mutex::new(Vec::new());

unsafe extern "C" fn on_line(
    rk: *const rd_kafka_t,
    _level: c_int,
    facility: *const c_char,
    text: *const c_char,
) {
    let owned = |text: *const c_char| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
    let client = owned(unsafe { rd_kafka_name(rk) });
    LINES.lock().unwrap().push(Line { client, facility: owned(facility), text: owned(text) });
}

fn facilities_of(client: &str) -> Vec<String> {
    let lines = LINES.lock().unwrap();
    lines.iter().filter(|line| line.client.starts_with(client)).map(|line| line.facility.clone()).collect()
}

/// Returns `true` if a line of the client mentions the topic.
fn mentions(client: &str, topic: &str) -> bool {
    let lines = LINES.lock().unwrap();
    lines.iter().any(|line| line.client.starts_with(client) && line.text.contains(topic))
}

#[test]
fn log_lines_from_before_the_client_was_made_come_too_and_a_level_keeps_them_out() {
    let broker = broker(1);
    let servers = broker.bootstrap_servers();
    unsafe {
        let properties =
            [("bootstrap.servers", servers.as_str()), ("debug", "generic,msg"), ("client.id", "loud")];
        let conf = conf(&properties);
        rd_kafka_conf_set_log_cb(conf, Some(on_line));
        let rk = new(RD_KAFKA_PRODUCER, conf);
        assert!(facilities_of("loud").contains(&"INIT".to_owned()), "{:?}", facilities_of("loud"));
        // Lines of messages have level 7.
        for (level, topic) in [(7, c"heard-before"), (3, c"unheard"), (7, c"heard-after")] {
            rd_kafka_set_log_level(rk, level);
            produce(rk, topic, 0, "one", null_mut());
            assert_eq!(rd_kafka_flush(rk, 60_000), OK);
            if level == 7 {
                let topic = topic.to_str().unwrap();
                until("the line of the message", || mentions("loud", topic));
            }
        }
        assert!(!mentions("loud", "unheard"));
        rd_kafka_destroy(rk);
    }
}

/// The log did not say why there was no topic, and the last two were made.
#[test]
fn a_topic_that_contradicts_its_producer_is_refused_with_a_line_in_the_log() {
    let idempotent = ("enable.idempotence", "true");
    let all = "`acks` must be set to `all` when `enable.idempotence` is true";
    let in_order = "`queuing.strategy` must be set to `fifo` when `enable.idempotence` is true";
    for (own, name, value, reason) in [
        (idempotent, c"acks", c"1", all),
        (idempotent, c"queuing.strategy", c"lifo", in_order),
        (
            ("transactional.id", "payments"),
            c"message.timeout.ms",
            c"60001",
            "`message.timeout.ms` must be set <= `transaction.timeout.ms`",
        ),
        (
            ("linger.ms", "1000"),
            c"message.timeout.ms",
            c"1000",
            "`message.timeout.ms` must be greater than `linger.ms`",
        ),
    ] {
        let conf = conf(&[own, ("client.id", "contradicted")]);
        unsafe {
            rd_kafka_conf_set_log_cb(conf, Some(on_line));
            let rk = new(RD_KAFKA_PRODUCER, conf);
            let topic = rd_kafka_topic_conf_new();
            let set = rd_kafka_topic_conf_set(topic, name.as_ptr(), value.as_ptr(), null_mut(), 0);
            assert_eq!(set, RD_KAFKA_CONF_OK, "{name:?}");
            assert!(rd_kafka_topic_new(rk, c"orders".as_ptr(), topic).is_null(), "{reason}");
            let code = (rd_kafka_last_error(), rd_kafka_errno());
            assert_eq!(code, (RD_KAFKA_RESP_ERR__INVALID_ARG, libc::EINVAL), "{reason}");
            let line = format!("Incompatible configuration settings for topic \"orders\": {reason}");
            until("the line", || mentions("contradicted", &line));
            rd_kafka_destroy(rk);
        }
    }
}

/// The log function below blocks while the first is set, and sets the second.
static BLOCKS: AtomicBool = AtomicBool::new(true);
static CALLED: AtomicBool = AtomicBool::new(false);

unsafe extern "C" fn on_line_blocking(
    _rk: *const rd_kafka_t,
    _level: c_int,
    _facility: *const c_char,
    text: *const c_char,
) {
    if unsafe { CStr::from_ptr(text) }.to_string_lossy().contains("MessageSet with 1 message(s)") {
        CALLED.store(true, Ordering::Release);
        until("the test is done", || !BLOCKS.load(Ordering::Acquire));
    }
}

/// librdkafka's test 0151.
#[test]
fn a_log_function_that_blocks_does_not_block_the_client() {
    let broker = broker(1);
    let servers = broker.bootstrap_servers();
    unsafe {
        let conf = conf(&[("bootstrap.servers", servers.as_str()), ("debug", "msg,topic,broker")]);
        rd_kafka_conf_set_log_cb(conf, Some(on_line_blocking));
        let rk = new(RD_KAFKA_PRODUCER, conf);
        for value in ["one", "two", "three"] {
            produce(rk, c"orders", 0, value, null_mut());
            assert_eq!(rd_kafka_flush(rk, 30_000), OK, "{value}");
        }
        assert!(CALLED.load(Ordering::Acquire));
        BLOCKS.store(false, Ordering::Release);
        rd_kafka_destroy(rk);
    }
}

#[test]
fn a_client_that_was_made_silent_is_heard_when_its_level_is_raised() {
    let broker = broker(1);
    let servers = broker.bootstrap_servers();
    unsafe {
        let properties = [
            ("bootstrap.servers", servers.as_str()),
            ("debug", "msg"),
            ("log_level", "3"),
            ("client.id", "silent"),
        ];
        let conf = conf(&properties);
        rd_kafka_conf_set_log_cb(conf, Some(on_line));
        let rk = new(RD_KAFKA_PRODUCER, conf);
        produce(rk, c"orders", 0, "one", null_mut());
        assert_eq!(rd_kafka_flush(rk, 60_000), OK);
        assert_eq!(facilities_of("silent"), [""; 0]);
        rd_kafka_set_log_level(rk, 7);
        produce(rk, c"orders", 0, "two", null_mut());
        assert_eq!(rd_kafka_flush(rk, 60_000), OK);
        assert!(facilities_of("silent").contains(&"MSGSET".to_owned()), "{:?}", facilities_of("silent"));
        rd_kafka_destroy(rk);
    }
}

/// A test of confluent-kafka-python (`test_log.py`) reads `INIT` with the context `msg` or `admin`, and one of rdkafka-ruby
/// (`librdkafka_consumer_features_spec.rb`) reads the features of the library in its text. Only `generic` enabled the line.
#[test]
fn any_context_of_debug_enables_the_line_with_the_features_of_the_library() {
    for debug in ["msg", "admin", "all"] {
        let name = format!("init-{debug}");
        unsafe {
            let conf = conf(&[("debug", debug), ("client.id", name.as_str())]);
            rd_kafka_conf_set_log_cb(conf, Some(on_line));
            let rk = new(RD_KAFKA_PRODUCER, conf);
            let lines = LINES.lock().unwrap();
            let first = lines.iter().find(|line| line.client.starts_with(&name)).expect("a line");
            assert_eq!(first.facility, "INIT", "{debug}");
            let (_, features) = first.text.split_once("initialized (builtin.features ").expect("features");
            let features: Vec<&str> = features.split(',').take_while(|word| !word.starts_with(' ')).collect();
            assert!(features.contains(&"gzip") && features.contains(&"sasl_oauthbearer"), "{features:?}");
            drop(lines);
            rd_kafka_destroy(rk);
        }
    }
}

/// There were none. The names are librdkafka's own, also of properties that have several.
#[test]
fn warnings_about_the_configuration_have_the_texts_of_librdkafka() {
    let servers = ("bootstrap.servers", "127.0.0.1:1");
    let ignored = |name, other, own| {
        format!(
            "Configuration property {name} is a {other} property and will be ignored by this {own} instance"
        )
    };
    let (producer, consumer) = (RD_KAFKA_PRODUCER, RD_KAFKA_CONSUMER);
    let cases = [
        (
            producer,
            vec![],
            "No `bootstrap.servers` configured: client will not be able to connect to Kafka cluster".to_owned(),
        ),
        (producer, vec![servers, ("group.id", "g")], ignored("group.id", "consumer", "producer")),
        (
            producer,
            vec![servers, ("topic.auto.offset.reset", "earliest")],
            ignored("auto.offset.reset", "consumer", "producer"),
        ),
        (
            consumer,
            vec![servers, ("linger.ms", "5")],
            ignored("queue.buffering.max.ms", "producer", "consumer"),
        ),
        (
            producer,
            vec![servers, ("retry.backoff.ms", "20000")],
            "Configuration `retry.backoff.ms` with value 20000 is greater than configuration `retry.backoff.max.ms` with \
             value 1000. A static backoff with value `retry.backoff.max.ms` will be applied."
                .to_owned(),
        ),
        (
            consumer,
            vec![servers, ("fetch.wait.max.ms", "59500")],
            "Configuration property `fetch.wait.max.ms` (59500) should be set lower than `socket.timeout.ms` (60000) by \
             at least 1000ms to avoid blocking and timing out sub-sequent requests"
                .to_owned(),
        ),
        (
            producer,
            vec![servers, ("sasl.mechanism", "PLAIN")],
            "Configuration property `sasl.mechanism` set to `PLAIN` but `security.protocol` is not configured for SASL: \
             recommend setting `security.protocol` to SASL_SSL or SASL_PLAINTEXT"
                .to_owned(),
        ),
        (
            producer,
            vec![servers, ("sasl.username", "ann")],
            "Configuration property `sasl.username` only applies when `sasl.mechanism` is set to PLAIN or SCRAM-SHA-.."
                .to_owned(),
        ),
    ];
    for (index, (kind, mut properties, expected)) in cases.into_iter().enumerate() {
        let name = format!("warned-{index}");
        properties.push(("client.id", name.as_str()));
        unsafe {
            let conf = conf(&properties);
            rd_kafka_conf_set_log_cb(conf, Some(on_line));
            let rk = new(kind, conf);
            let lines = LINES.lock().unwrap();
            let warnings = lines.iter().filter(|line| line.client.starts_with(&name));
            let warnings = warnings.filter(|line| line.facility == "CONFWARN");
            let texts: Vec<&str> = warnings.map(|line| line.text.as_str()).collect();
            assert_eq!(texts, [format!("[thrd:app]: {expected}")]);
            drop(lines);
            rd_kafka_destroy(rk);
        }
    }
}

#[test]
fn queued_log_lines_wait_for_their_queue_and_a_logger_can_be_changed() {
    let broker = broker(1);
    let servers = broker.bootstrap_servers();
    unsafe {
        let queued = [("bootstrap.servers", servers.as_str()), ("debug", "generic"), ("log.queue", "true")];
        let rk = new(RD_KAFKA_PRODUCER, conf(&queued));
        let queue = rd_kafka_queue_new(rk);
        assert_eq!(rd_kafka_set_log_queue(rk, queue), OK);
        let event = rd_kafka_queue_poll(queue, 30_000);
        assert_eq!(rd_kafka_event_type(event), RD_KAFKA_EVENT_LOG);
        let (mut facility, mut text, mut level) = (null(), null(), 0);
        assert_eq!(rd_kafka_event_log(event, &raw mut facility, &raw mut text, &raw mut level), 0);
        assert_eq!((CStr::from_ptr(facility), level), (c"INIT", 7), "the first line of all");
        rd_kafka_event_destroy(event);
        rd_kafka_queue_destroy(queue);
        rd_kafka_destroy(rk);

        let quiet = [("bootstrap.servers", servers.as_str()), ("debug", "broker"), ("client.id", "quiet")];
        let conf = conf(&quiet);
        rd_kafka_conf_set_log_cb(conf, None);
        let rk = new(RD_KAFKA_PRODUCER, conf);
        rd_kafka_set_logger(rk, Some(on_line));
        produce(rk, c"orders", 0, "one", null_mut());
        assert_eq!(rd_kafka_flush(rk, 60_000), OK);
        assert!(!facilities_of("quiet").is_empty());
        rd_kafka_destroy(rk);
    }
}

/// The throttle times that the callback received, in milliseconds.
static THROTTLES: Mutex<Vec<c_int>> = Mutex::new(Vec::new());

unsafe extern "C" fn on_throttle(
    _rk: *mut rd_kafka_t,
    broker: *const c_char,
    broker_id: i32,
    throttle_time_ms: c_int,
    _opaque: *mut c_void,
) {
    let broker = unsafe { CStr::from_ptr(broker) }.to_string_lossy();
    assert!(broker.starts_with("127.0.0.1:") && !broker.contains('/'), "{broker}");
    assert_eq!(broker_id, 1);
    THROTTLES.lock().unwrap().push(throttle_time_ms);
}

#[test]
fn an_application_hears_when_a_broker_throttles_it_and_when_that_is_over() {
    let broker = broker(1);
    let servers = broker.bootstrap_servers();
    unsafe {
        let conf = conf(&[("bootstrap.servers", servers.as_str())]);
        rd_kafka_conf_set_throttle_cb(conf, Some(on_throttle));
        let rk = new(RD_KAFKA_PRODUCER, conf);
        for (throttle_ms, told) in [(0, &[][..]), (30, &[30]), (0, &[30, 0]), (0, &[30, 0])] {
            broker.cluster().set_throttle(Duration::from_millis(throttle_ms));
            produce(rk, c"orders", 0, "one", null_mut());
            assert_eq!(rd_kafka_flush(rk, 60_000), OK);
            rd_kafka_poll(rk, 0);
            assert_eq!(*THROTTLES.lock().unwrap(), told);
        }
        rd_kafka_destroy(rk);
    }
}

#[test]
fn a_client_describes_itself_and_gives_its_defaults_for_topics() {
    let broker = broker(1);
    let servers = broker.bootstrap_servers();
    unsafe {
        let properties = [("bootstrap.servers", servers.as_str()), ("message.timeout.ms", "12345")];
        let rk = new(RD_KAFKA_PRODUCER, conf(&properties));
        let copy = rd_kafka_default_topic_conf_dup(rk);
        let mut value = [0; 32];
        let mut size = value.len();
        let name = c"message.timeout.ms".as_ptr();
        let got = rd_kafka_topic_conf_get(copy, name, value.as_mut_ptr(), &raw mut size);
        assert_eq!((got, CStr::from_ptr(value.as_ptr())), (RD_KAFKA_CONF_OK, c"12345"));
        rd_kafka_topic_conf_destroy(copy);
        produce(rk, c"orders", 0, "one", null_mut());
        assert_eq!(rd_kafka_flush(rk, 60_000), OK);

        let mut file = tempfile::NamedTempFile::new().unwrap();
        let path = CString::new(file.path().to_str().unwrap()).unwrap();
        let stream = libc::fopen(path.as_ptr(), c"w".as_ptr());
        rd_kafka_dump(stream, rk);
        libc::fclose(stream);
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        let name = CStr::from_ptr(rd_kafka_name(rk)).to_str().unwrap();
        for part in [name, servers.as_str(), "topics: orders", "known brokers: [1]"] {
            assert!(text.contains(part), "{part} in {text}");
        }
        rd_kafka_destroy(rk);
    }
}

#[test]
fn credentials_may_be_set_without_a_use_for_them() {
    unsafe {
        let rk = new(RD_KAFKA_PRODUCER, conf(&[]));
        let error = rd_kafka_sasl_set_credentials(rk, c"me".as_ptr(), null());
        assert_eq!(rd_kafka_error_code(error), RD_KAFKA_RESP_ERR__INVALID_ARG);
        rd_kafka_error_destroy(error);
        assert!(rd_kafka_sasl_set_credentials(rk, c"me".as_ptr(), c"secret".as_ptr()).is_null());
        rd_kafka_destroy(rk);
        let properties = [
            ("security.protocol", "sasl_plaintext"),
            ("sasl.mechanism", "SCRAM-SHA-256"),
            ("sasl.username", "me"),
            ("sasl.password", "old"),
        ];
        let rk = new(RD_KAFKA_PRODUCER, conf(&properties));
        assert!(rd_kafka_sasl_set_credentials(rk, c"me".as_ptr(), c"new".as_ptr()).is_null());
        rd_kafka_destroy(rk);
    }
}

#[test]
fn metadata_of_a_slow_broker_is_late_and_that_of_no_broker_is_a_transport_error() {
    let broker = broker(1);
    let slow = ottla_broker::Fault::Delay(Duration::from_secs(3));
    broker.cluster().intercept(ottla_broker::ApiKey::Metadata, None, 100, slow);
    let servers = broker.bootstrap_servers();
    for (servers, expected) in
        [(servers.as_str(), RD_KAFKA_RESP_ERR__TIMED_OUT), ("127.0.0.1:1", RD_KAFKA_RESP_ERR__TRANSPORT)]
    {
        let rk = new(RD_KAFKA_PRODUCER, conf(&[("bootstrap.servers", servers), ("log_level", "0")]));
        let mut metadata = null();
        unsafe {
            let code = rd_kafka_metadata(rk, 1, null_mut(), &raw mut metadata, 500);
            assert_eq!(code, expected, "{servers}");
            rd_kafka_destroy(rk);
        }
    }
}
