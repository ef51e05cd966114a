//! The callbacks of an application are called for their events.

#![allow(unsafe_code, reason = "C's functions")]
#![allow(clippy::disallowed_methods, reason = "a test is a shell: it may use threads and time")]
#![allow(clippy::undocumented_unsafe_blocks, reason = "a test calls as C does")]
#![allow(
    clippy::wildcard_imports,
    clippy::unwrap_used,
    reason = "C's names, and a test that stops where it must"
)]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ottla_broker::{Broker, BrokerThread};
use rdkafka::admin::*;
use rdkafka::client::handle::*;
use rdkafka::client::oauth_tokens::*;
use rdkafka::client::topic_handle::*;
use rdkafka::conf::topic_conf::*;
use rdkafka::conf::*;
use rdkafka::consume::leave_group::*;
use rdkafka::consume::offsets::*;
use rdkafka::ffi::memory::*;
use rdkafka::ffi::*;
use rdkafka::messages::message::*;
use rdkafka::messages::partition_list::*;
use rdkafka::produce::flush::*;
use rdkafka::produce::producer::*;
use rdkafka::queue::event::*;
use rdkafka::queue::poll::*;
use rdkafka::queue::queue_handle::*;
use rdkafka::queue::queue_poll::*;

const PATIENCE: Duration = Duration::from_secs(60);

/// The calls of the callbacks, as text; it is the opaque of every test.
#[derive(Default)]
struct Seen {
    lines: Mutex<Vec<String>>,
    keep_stats: AtomicBool,
    kept: Mutex<usize>,
}

impl Seen {
    fn note(&self, line: String) {
        self.lines.lock().unwrap().push(line);
    }

    fn has(&self, start: &str) -> bool {
        self.lines.lock().unwrap().iter().any(|line| line.starts_with(start))
    }

    fn has_part(&self, part: &str) -> bool {
        self.lines.lock().unwrap().iter().any(|line| line.contains(part))
    }

    /// Polls until there is a line that begins with this text.
    fn wait(&self, start: &str, poll: impl FnMut() -> c_int) {
        self.wait_until(start, |seen| seen.has(start), poll);
    }

    /// Polls until there is a line with this text in it.
    fn wait_for_part(&self, part: &str, poll: impl FnMut() -> c_int) {
        self.wait_until(part, |seen| seen.has_part(part), poll);
    }

    fn wait_until(&self, what: &str, is_there: impl Fn(&Self) -> bool, mut poll: impl FnMut() -> c_int) {
        let begun = Instant::now();
        while !is_there(self) {
            assert!(begun.elapsed() < PATIENCE, "no {what} among {:?}", self.lines.lock().unwrap());
            poll();
        }
    }

    fn opaque(&self) -> *mut c_void {
        std::ptr::from_ref(self).cast_mut().cast()
    }
}

unsafe fn seen<'a>(opaque: *mut c_void) -> &'a Seen {
    unsafe { &*opaque.cast::<Seen>() }
}

unsafe fn text<'a>(pointer: *const c_char) -> &'a str {
    unsafe { CStr::from_ptr(pointer) }.to_str().unwrap()
}

fn broker() -> BrokerThread {
    Broker::builder().memory().topic("orders", 2).spawn().expect("a broker in memory")
}

fn conf(seen: &Seen, properties: &[(&str, &str)]) -> *mut rd_kafka_conf_t {
    let conf = rd_kafka_conf_new();
    for (name, value) in properties {
        let (name, value) = (CString::new(*name).unwrap(), CString::new(*value).unwrap());
        let mut errstr = [0; 256];
        let set = unsafe {
            rd_kafka_conf_set(conf, name.as_ptr(), value.as_ptr(), errstr.as_mut_ptr(), errstr.len())
        };
        assert_eq!(set, RD_KAFKA_CONF_OK, "{:?}", unsafe { CStr::from_ptr(errstr.as_ptr()) });
    }
    unsafe { rd_kafka_conf_set_opaque(conf, seen.opaque()) };
    conf
}

fn new(kind: rd_kafka_type_t, conf: *mut rd_kafka_conf_t) -> *mut rd_kafka_t {
    let mut errstr = [0; 512];
    let rk = unsafe { rd_kafka_new(kind, conf, errstr.as_mut_ptr(), errstr.len()) };
    assert!(!rk.is_null(), "{:?}", unsafe { CStr::from_ptr(errstr.as_ptr()) });
    rk
}

fn produce(rk: *mut rd_kafka_t, partition: i32, key: Option<&CStr>, conf: *mut rd_kafka_topic_conf_t) {
    let (key, key_len) = key.map_or((null(), 0), |key| (key.as_ptr().cast(), key.count_bytes()));
    unsafe {
        let rkt = rd_kafka_topic_new(rk, c"orders".as_ptr(), conf);
        let value = c"value".as_ptr().cast_mut().cast();
        let taken =
            rd_kafka_produce(rkt, partition, RD_KAFKA_MSG_F_COPY, value, 5, key, key_len, 7 as *mut c_void);
        assert_eq!(taken, 0);
        assert_eq!(rd_kafka_flush(rk, 60_000), RD_KAFKA_RESP_ERR_NO_ERROR);
        rd_kafka_topic_destroy(rkt);
    }
}

/// A consumer that reads the topic from the beginning.
fn subscribed(conf: *mut rd_kafka_conf_t) -> *mut rd_kafka_t {
    let rk = new(RD_KAFKA_CONSUMER, conf);
    let list = rd_kafka_topic_partition_list_new(1);
    unsafe {
        rd_kafka_topic_partition_list_add(list, c"orders".as_ptr(), -1);
        assert_eq!(rd_kafka_subscribe(rk, list), RD_KAFKA_RESP_ERR_NO_ERROR);
        rd_kafka_topic_partition_list_destroy(list);
    }
    rk
}

unsafe extern "C" fn on_stats(
    _: *mut rd_kafka_t,
    json: *mut c_char,
    len: usize,
    opaque: *mut c_void,
) -> c_int {
    let seen = unsafe { seen(opaque) };
    let words = unsafe { text(json) };
    assert_eq!(words.len(), len);
    seen.note(format!("stats {words}"));
    if seen.keep_stats.load(Ordering::Relaxed) {
        *seen.kept.lock().unwrap() = json.addr();
        return 1;
    }
    0
}

#[test]
fn statistics_come_at_their_interval_and_may_be_kept() {
    let (broker, seen) = (broker(), Seen::default());
    let servers = broker.bootstrap_servers();
    let conf = conf(&seen, &[("bootstrap.servers", &servers), ("statistics.interval.ms", "20")]);
    unsafe { rd_kafka_conf_set_stats_cb(conf, Some(on_stats)) };
    seen.keep_stats.store(true, Ordering::Relaxed);
    let rk = new(RD_KAFKA_PRODUCER, conf);
    unsafe {
        assert_eq!(rd_kafka_opaque(rk), seen.opaque());
        seen.wait("stats {", || rd_kafka_poll(rk, 100));
        let name = text(rd_kafka_name(rk)).to_owned();
        assert!(seen.lines.lock().unwrap()[0].contains(&name), "the statistics name {name}");
        let kept: *mut c_char = std::ptr::with_exposed_provenance_mut(*seen.kept.lock().unwrap());
        assert!(text(kept).starts_with('{'));
        rd_kafka_mem_free(rk, kept.cast());
        // Statistics from now on are freed with the client; none are leaked or freed twice.
        seen.keep_stats.store(false, Ordering::Relaxed);
        rd_kafka_destroy(rk);
    }
}

#[test]
fn statistics_have_the_type_of_the_client_and_its_fatal_error() {
    let (broker, seen) = (broker(), Seen::default());
    let servers = broker.bootstrap_servers();
    for (kind, name) in [(RD_KAFKA_CONSUMER, "consumer"), (RD_KAFKA_PRODUCER, "producer")] {
        let conf = conf(&seen, &[("bootstrap.servers", &servers), ("statistics.interval.ms", "20")]);
        unsafe { rd_kafka_conf_set_stats_cb(conf, Some(on_stats)) };
        let rk = new(kind, conf);
        seen.wait_for_part(&format!("\"type\":\"{name}\""), || unsafe { rd_kafka_poll(rk, 100) });
        assert!(!seen.has_part("\"fatal\""));
        unsafe {
            let code = RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER;
            rd_kafka_test_fatal_error(rk, code, c"a test".as_ptr());
            seen.wait_for_part("\"reason\":\"test_fatal_error: a test\"", || rd_kafka_poll(rk, 100));
            rd_kafka_destroy(rk);
        }
        seen.lines.lock().unwrap().clear();
    }
}

/// Programs look for the broker of this name.
#[test]
fn a_member_of_a_group_has_its_coordinator_among_the_brokers_of_its_statistics() {
    let (broker, seen) = (broker(), Seen::default());
    let servers = broker.bootstrap_servers();
    let logical = "\"GroupCoordinator\":{\"name\":\"GroupCoordinator\",\"nodeid\":1,";
    for group in [Some(("group.id", "billing")), None] {
        let mut properties = vec![("bootstrap.servers", &*servers), ("statistics.interval.ms", "20")];
        properties.extend(group);
        let conf = conf(&seen, &properties);
        unsafe { rd_kafka_conf_set_stats_cb(conf, Some(on_stats)) };
        let rk = new(RD_KAFKA_CONSUMER, conf);
        let expected = if group.is_some() { logical } else { "\"type\":\"consumer\"" };
        seen.wait_for_part(expected, || unsafe { rd_kafka_poll(rk, 100) });
        assert_eq!(seen.has_part("GroupCoordinator"), group.is_some());
        unsafe { rd_kafka_destroy(rk) };
        seen.lines.lock().unwrap().clear();
    }
}

/// It was there only while records waited for the topic's metadata.
#[test]
fn each_topic_in_the_statistics_has_the_partition_of_records_without_one() {
    let (broker, seen) = (broker(), Seen::default());
    let servers = broker.bootstrap_servers();
    let conf = conf(&seen, &[("bootstrap.servers", &servers), ("statistics.interval.ms", "20")]);
    unsafe { rd_kafka_conf_set_stats_cb(conf, Some(on_stats)) };
    let rk = new(RD_KAFKA_PRODUCER, conf);
    unsafe {
        let rkt = rd_kafka_topic_new(rk, c"orders".as_ptr(), null_mut());
        let value = c"value".as_ptr().cast_mut().cast();
        assert_eq!(rd_kafka_produce(rkt, 0, RD_KAFKA_MSG_F_COPY, value, 5, null(), 0, null_mut()), 0);
        assert_eq!(rd_kafka_flush(rk, 60_000), RD_KAFKA_RESP_ERR_NO_ERROR);
        // The metadata has named partition 0, and nothing waits any more: the next statistics count.
        for _ in 0..2 {
            seen.lines.lock().unwrap().clear();
            seen.wait_for_part("\"0\":{\"partition\":0,\"broker\":1,", || rd_kafka_poll(rk, 100));
        }
        let unassigned = "\"partitions\":{\"-1\":{\"partition\":-1,\"broker\":-1,\"leader\":-1,";
        assert!(seen.has_part(unassigned), "{:?}", seen.lines.lock().unwrap());
        rd_kafka_topic_destroy(rkt);
        rd_kafka_destroy(rk);
    }
}

unsafe extern "C" fn on_error(_: *mut rd_kafka_t, err: c_int, reason: *const c_char, opaque: *mut c_void) {
    unsafe { seen(opaque).note(format!("error {err} {}", text(reason))) };
}

/// Programs search for the texts. The addresses stood behind the first, and the second had neither them nor the time.
#[test]
fn a_cluster_that_is_not_there_is_an_error_of_the_client() {
    let seen = Seen::default();
    let conf = conf(&seen, &[("bootstrap.servers", "127.0.0.1:1"), ("reconnect.backoff.ms", "10")]);
    unsafe { rd_kafka_conf_set_error_cb(conf, Some(on_error)) };
    let rk = new(RD_KAFKA_PRODUCER, conf);
    let all_down = format!("error {RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN} 1/1 brokers are down");
    let refused = format!(
        "error {RD_KAFKA_RESP_ERR__TRANSPORT} 127.0.0.1:1/bootstrap: Connect to ipv4#127.0.0.1:1 failed: Connection refused (after "
    );
    unsafe {
        // A record to send makes the client connect to its brokers.
        let rkt = rd_kafka_topic_new(rk, c"orders".as_ptr(), null_mut());
        let value = c"value".as_ptr().cast_mut().cast();
        assert_eq!(rd_kafka_produce(rkt, 0, RD_KAFKA_MSG_F_COPY, value, 5, null(), 0, null_mut()), 0);
        seen.wait_until(
            &all_down,
            |seen| seen.lines.lock().unwrap().contains(&all_down),
            || rd_kafka_poll(rk, 100),
        );
        seen.wait(&refused, || rd_kafka_poll(rk, 100));
        assert!(seen.has_part("ms in state CONNECT)"));
        rd_kafka_topic_destroy(rkt);
        rd_kafka_destroy(rk);
    }
}

#[test]
fn a_list_of_servers_without_a_server_is_an_error_of_the_client() {
    let seen = Seen::default();
    let conf = conf(&seen, &[("bootstrap.servers", " ,")]);
    unsafe { rd_kafka_conf_set_error_cb(conf, Some(on_error)) };
    let rk = new(RD_KAFKA_PRODUCER, conf);
    let none = format!("error {RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN} No brokers configured");
    seen.wait(&none, || unsafe { rd_kafka_poll(rk, 100) });
    unsafe { rd_kafka_destroy(rk) };
}

static LOGGED: Mutex<Vec<String>> = Mutex::new(Vec::new());

unsafe extern "C" fn on_log(_: *const rd_kafka_t, level: c_int, fac: *const c_char, buf: *const c_char) {
    LOGGED.lock().unwrap().push(unsafe { format!("{level} {} {}", text(fac), text(buf)) });
}

#[test]
fn log_lines_go_to_the_applications_function() {
    let (broker, seen) = (broker(), Seen::default());
    let servers = broker.bootstrap_servers();
    let conf = conf(&seen, &[("bootstrap.servers", &servers), ("debug", "all")]);
    unsafe { rd_kafka_conf_set_log_cb(conf, Some(on_log)) };
    let rk = new(RD_KAFKA_PRODUCER, conf);
    produce(rk, 0, None, null_mut());
    unsafe { rd_kafka_destroy(rk) };
    let lines = LOGGED.lock().unwrap();
    assert!(lines.iter().any(|line| line.starts_with("7 SEND ")), "{lines:?}");
}

unsafe extern "C" fn on_dr(
    _: *mut rd_kafka_t,
    _: *mut c_void,
    len: usize,
    err: rd_kafka_resp_err_t,
    opaque: *mut c_void,
    msg_opaque: *mut c_void,
) {
    unsafe { seen(opaque).note(format!("dr {err} {len} {}", msg_opaque.addr())) };
}

#[test]
fn the_older_delivery_reports_come_too() {
    let (broker, seen) = (broker(), Seen::default());
    let servers = broker.bootstrap_servers();
    let conf = conf(&seen, &[("bootstrap.servers", &servers)]);
    unsafe { rd_kafka_conf_set_dr_cb(conf, Some(on_dr)) };
    let rk = new(RD_KAFKA_PRODUCER, conf);
    produce(rk, 0, None, null_mut());
    assert!(seen.has("dr 0 5 7"), "{:?}", seen.lines.lock().unwrap());
    unsafe { rd_kafka_destroy(rk) };
}

unsafe extern "C" fn to_the_second(
    rkt: *const rd_kafka_topic_t,
    key: *const c_void,
    key_len: usize,
    count: i32,
    rkt_opaque: *mut c_void,
    _: *mut c_void,
) -> i32 {
    let key = unsafe { std::slice::from_raw_parts(key.cast::<u8>(), key_len) };
    unsafe {
        assert_eq!(text(rd_kafka_topic_name(rkt)), "orders");
        seen(rkt_opaque).note(format!("partitioner {} of {count}", String::from_utf8_lossy(key)));
    }
    1
}

#[test]
fn the_applications_partitioner_decides_with_its_topics_opaque() {
    let (broker, seen) = (broker(), Seen::default());
    let servers = broker.bootstrap_servers();
    let conf = conf(&seen, &[("bootstrap.servers", &servers)]);
    let rk = new(RD_KAFKA_PRODUCER, conf);
    unsafe {
        let topic = rd_kafka_topic_conf_new();
        rd_kafka_topic_conf_set_partitioner_cb(topic, Some(to_the_second));
        rd_kafka_topic_conf_set_opaque(topic, seen.opaque());
        produce(rk, RD_KAFKA_PARTITION_UA, Some(c"key"), topic);
        rd_kafka_destroy(rk);
    }
    assert!(seen.has("partitioner key of 2"), "{:?}", seen.lines.lock().unwrap());
    assert_eq!(broker.cluster().offsets_of("orders", 1), Some((0, 1)));
}

#[test]
fn a_default_topic_configuration_is_that_of_topics_without_one() {
    let (broker, seen) = (broker(), Seen::default());
    let servers = broker.bootstrap_servers();
    let conf = conf(&seen, &[("bootstrap.servers", &servers)]);
    unsafe {
        let topic = rd_kafka_topic_conf_new();
        rd_kafka_topic_conf_set_partitioner_cb(topic, Some(to_the_second));
        rd_kafka_topic_conf_set_opaque(topic, seen.opaque());
        rd_kafka_conf_set_default_topic_conf(conf, topic);
    }
    let rk = new(RD_KAFKA_PRODUCER, conf);
    produce(rk, RD_KAFKA_PARTITION_UA, Some(c"key"), null_mut());
    unsafe { rd_kafka_destroy(rk) };
    assert_eq!(broker.cluster().offsets_of("orders", 1), Some((0, 1)));
}

#[test]
fn a_default_topic_configurations_opaque_comes_with_what_is_read() {
    let (broker, seen) = (broker(), Seen::default());
    let servers = broker.bootstrap_servers();
    let producer = new(RD_KAFKA_PRODUCER, conf(&seen, &[("bootstrap.servers", &servers)]));
    produce(producer, 0, None, null_mut());
    unsafe { rd_kafka_destroy(producer) };
    let conf = conf(&seen, &[("bootstrap.servers", &servers), ("group.id", "billing")]);
    unsafe {
        let topic = rd_kafka_topic_conf_new();
        rd_kafka_topic_conf_set_opaque(topic, seen.opaque());
        let (name, value) = (c"auto.offset.reset", c"earliest");
        let set = rd_kafka_topic_conf_set(topic, name.as_ptr(), value.as_ptr(), null_mut(), 0);
        assert_eq!(set, RD_KAFKA_CONF_OK);
        rd_kafka_conf_set_default_topic_conf(conf, topic);
        let rk = subscribed(conf);
        let message = rd_kafka_consumer_poll(rk, 60_000);
        assert_eq!((*message).err, RD_KAFKA_RESP_ERR_NO_ERROR);
        assert_eq!(rd_kafka_topic_opaque((*message).rkt), seen.opaque());
        rd_kafka_message_destroy(message);
        rd_kafka_destroy(rk);
    }
}

unsafe extern "C" fn on_consume(message: *mut rd_kafka_message_t, opaque: *mut c_void) {
    let message = unsafe { &*message };
    unsafe { seen(opaque).note(format!("consumed {} {}", message.err, message.len)) };
}

unsafe extern "C" fn on_offset_commit(
    _: *mut rd_kafka_t,
    err: rd_kafka_resp_err_t,
    offsets: *mut rd_kafka_topic_partition_list_t,
    opaque: *mut c_void,
) {
    let offsets = unsafe { (*offsets).elems() };
    let next: Vec<i64> = offsets.iter().map(|element| element.offset).collect();
    unsafe { seen(opaque).note(format!("committed {err} {next:?}")) };
}

#[test]
fn records_and_commits_go_to_functions_when_the_queue_is_served_by_them() {
    let (broker, seen) = (broker(), Seen::default());
    let servers = broker.bootstrap_servers();
    let producer = new(RD_KAFKA_PRODUCER, conf(&seen, &[("bootstrap.servers", &servers)]));
    produce(producer, 0, None, null_mut());
    unsafe { rd_kafka_destroy(producer) };
    let properties = [
        ("bootstrap.servers", servers.as_str()),
        ("group.id", "billing"),
        ("auto.offset.reset", "earliest"),
        ("enable.auto.commit", "false"),
    ];
    let conf = conf(&seen, &properties);
    unsafe {
        rd_kafka_conf_set_consume_cb(conf, Some(on_consume));
        rd_kafka_conf_set_offset_commit_cb(conf, Some(on_offset_commit));
    }
    let rk = subscribed(conf);
    unsafe {
        rd_kafka_poll_set_consumer(rk);
        let queue = rd_kafka_queue_get_consumer(rk);
        let poll = || rd_kafka_queue_poll_callback(queue, 100);
        seen.wait("consumed 0 5", poll);
        let offsets = rd_kafka_topic_partition_list_new(1);
        (*rd_kafka_topic_partition_list_add(offsets, c"orders".as_ptr(), 0)).offset = 1;
        assert_eq!(rd_kafka_commit(rk, offsets, 1), RD_KAFKA_RESP_ERR_NO_ERROR);
        rd_kafka_topic_partition_list_destroy(offsets);
        seen.wait("committed 0 [1]", poll);
        rd_kafka_queue_destroy(queue);
        assert_eq!(rd_kafka_consumer_close(rk), RD_KAFKA_RESP_ERR_NO_ERROR);
        rd_kafka_destroy(rk);
    }
}

unsafe extern "C" fn in_background(_: *mut rd_kafka_t, event: *mut rd_kafka_event_t, opaque: *mut c_void) {
    unsafe {
        let line = format!(
            "background {} {}{}",
            text(rd_kafka_event_name(event)),
            rd_kafka_event_message_count(event),
            if rd_kafka_event_error(event) == RD_KAFKA_RESP_ERR__DESTROY { " _DESTROY" } else { "" }
        );
        seen(opaque).note(line);
        rd_kafka_event_destroy(event);
    }
}

#[test]
fn requests_that_end_with_their_client_are_answered_in_the_background() {
    let seen = Seen::default();
    // No broker listens on this port, so the request stays pending.
    let conf = conf(&seen, &[("bootstrap.servers", "127.0.0.1:1"), ("log_level", "0")]);
    unsafe {
        rd_kafka_conf_set_background_event_cb(conf, Some(in_background));
        let rk = new(RD_KAFKA_PRODUCER, conf);
        let background = rd_kafka_queue_get_background(rk);
        rd_kafka_ListConsumerGroups(rk, null(), background);
        rd_kafka_queue_destroy(background);
        rd_kafka_destroy(rk);
    }
    seen.wait("background ListConsumerGroupsResult 0 _DESTROY", || {
        panic!("all is told when the client is gone")
    });
}

unsafe extern "C" fn on_token_refresh(_: *mut rd_kafka_t, _: *const c_char, opaque: *mut c_void) {
    unsafe { seen(opaque) }.note("token".into());
}

/// librdkafka's test 0128: there is no function for events, and no broker.
#[test]
fn the_background_thread_calls_the_functions_of_an_application_without_one_for_events() {
    // Bindings get AWS's tokens in their own function.
    let aws =
        [("sasl.oauthbearer.method", "oidc"), ("sasl.oauthbearer.metadata.authentication.type", "aws_iam")];
    for method in [&[][..], &aws] {
        let seen = Seen::default();
        let sasl = [("security.protocol", "SASL_PLAINTEXT"), ("sasl.mechanism", "OAUTHBEARER")];
        let conf = conf(&seen, &[&sasl, method].concat());
        unsafe {
            rd_kafka_conf_set_oauthbearer_token_refresh_cb(conf, Some(on_token_refresh));
            rd_kafka_conf_enable_sasl_queue(conf, 1);
            let rk = new(RD_KAFKA_PRODUCER, conf);
            assert!(rd_kafka_sasl_background_callbacks_enable(rk).is_null());
            seen.wait("token", || {
                std::thread::sleep(Duration::from_millis(1));
                0
            });
            rd_kafka_destroy(rk);
        }
    }
}

/// The endpoint was asked, and the function was never called.
#[test]
fn the_token_function_takes_the_place_of_a_token_endpoint() {
    let seen = Seen::default();
    let properties = [
        ("security.protocol", "SASL_PLAINTEXT"),
        ("sasl.mechanism", "OAUTHBEARER"),
        ("sasl.oauthbearer.method", "oidc"),
        ("sasl.oauthbearer.client.id", "id"),
        ("sasl.oauthbearer.client.secret", "secret"),
        ("sasl.oauthbearer.token.endpoint.url", "https://127.0.0.1:1/token"),
    ];
    let conf = conf(&seen, &properties);
    unsafe {
        rd_kafka_conf_set_oauthbearer_token_refresh_cb(conf, Some(on_token_refresh));
        let rk = new(RD_KAFKA_PRODUCER, conf);
        seen.wait("token", || rd_kafka_poll(rk, 100));
        rd_kafka_destroy(rk);
    }
}

/// confluent-kafka-go asks for the event in every producer, and counts what is in its queue as undelivered.
#[test]
fn a_client_that_authenticates_without_tokens_asks_for_none() {
    let others: [&[(&str, &str)]; 3] = [
        &[],
        &[("sasl.mechanism", "OAUTHBEARER")],
        &[
            ("security.protocol", "SASL_PLAINTEXT"),
            ("sasl.mechanism", "PLAIN"),
            ("sasl.username", "u"),
            ("sasl.password", "p"),
        ],
    ];
    for properties in others {
        let seen = Seen::default();
        let conf = conf(&seen, properties);
        unsafe {
            rd_kafka_conf_set_events(conf, RD_KAFKA_EVENT_DR | RD_KAFKA_EVENT_OAUTHBEARER_TOKEN_REFRESH);
            let rk = new(RD_KAFKA_PRODUCER, conf);
            let main = rd_kafka_queue_get_main(rk);
            assert_eq!(rd_kafka_queue_length(main), 0, "{properties:?}");
            let refused = rd_kafka_oauthbearer_set_token(
                rk,
                c"token".as_ptr(),
                i64::MAX,
                c"principal".as_ptr(),
                null_mut(),
                0,
                null_mut(),
                0,
            );
            assert_eq!(refused, RD_KAFKA_RESP_ERR__STATE, "{properties:?}");
            rd_kafka_queue_destroy(main);
            rd_kafka_destroy(rk);
        }
    }
}

/// They were sent: what followed the separator became a field of the client's message.
#[test]
fn a_token_with_a_separator_and_a_reserved_extension_are_refused() {
    let seen = Seen::default();
    let conf = conf(&seen, &[("security.protocol", "SASL_PLAINTEXT"), ("sasl.mechanism", "OAUTHBEARER")]);
    unsafe {
        rd_kafka_conf_set_events(conf, RD_KAFKA_EVENT_OAUTHBEARER_TOKEN_REFRESH);
        let rk = new(RD_KAFKA_PRODUCER, conf);
        let set = |token: &CStr, extension: [&CStr; 2]| {
            let (mut pair, mut errstr) = (extension.map(CStr::as_ptr), [0; 256]);
            let code = rd_kafka_oauthbearer_set_token(
                rk,
                token.as_ptr(),
                i64::MAX,
                c"principal".as_ptr(),
                pair.as_mut_ptr(),
                pair.len(),
                errstr.as_mut_ptr(),
                errstr.len(),
            );
            (code, text(errstr.as_ptr()).to_owned())
        };
        let ok = (RD_KAFKA_RESP_ERR_NO_ERROR, String::new());
        assert_eq!(set(c"token", [c"traceId", c"18"]), ok);
        let (code, reason) = set(c"hunter2\x01admin=true", [c"traceId", c"18"]);
        assert_eq!(code, RD_KAFKA_RESP_ERR__INVALID_ARG);
        assert!(reason.contains("character") && !reason.contains("hunter2"), "{reason}");
        for extension in [[c"auth", c"x"], [c"trace-id", c"x"], [c"trace1", c"x"], [c"trace", c"x\x01y=z"]] {
            let (code, reason) = set(c"token", extension);
            assert_eq!(code, RD_KAFKA_RESP_ERR__INVALID_ARG, "{extension:?}");
            assert!(reason.contains(extension[0].to_str().unwrap()), "{reason}");
        }
        rd_kafka_destroy(rk);
    }
}

#[test]
fn a_thread_of_the_library_serves_the_background_queue() {
    let (broker, seen) = (broker(), Seen::default());
    let servers = broker.bootstrap_servers();
    let conf = conf(&seen, &[("bootstrap.servers", &servers)]);
    unsafe {
        rd_kafka_conf_set_background_event_cb(conf, Some(in_background));
        rd_kafka_conf_set_events(conf, RD_KAFKA_EVENT_DR);
        let rk = new(RD_KAFKA_PRODUCER, conf);
        let (main, background) = (rd_kafka_queue_get_main(rk), rd_kafka_queue_get_background(rk));
        rd_kafka_queue_forward(main, background);
        let rkt = rd_kafka_topic_new(rk, c"orders".as_ptr(), null_mut());
        let value = c"value".as_ptr().cast_mut().cast();
        assert_eq!(rd_kafka_produce(rkt, 0, RD_KAFKA_MSG_F_COPY, value, 5, null(), 0, null_mut()), 0);
        seen.wait("background DeliveryReport 1", || {
            std::thread::sleep(Duration::from_millis(1));
            0
        });
        rd_kafka_topic_destroy(rkt);
        rd_kafka_queue_destroy(main);
        rd_kafka_queue_destroy(background);
        rd_kafka_destroy(rk);
    }
}

/// confluent-kafka-javascript's producers poll in this way: they had no report.
#[test]
fn the_background_queue_exists_without_a_function_for_events() {
    let (broker, seen) = (broker(), Seen::default());
    let servers = broker.bootstrap_servers();
    let conf = conf(&seen, &[("bootstrap.servers", &servers)]);
    unsafe {
        rd_kafka_conf_set_dr_cb(conf, Some(on_dr));
        let rk = new(RD_KAFKA_PRODUCER, conf);
        let (main, background) = (rd_kafka_queue_get_main(rk), rd_kafka_queue_get_background(rk));
        assert!(!background.is_null());
        rd_kafka_queue_forward(main, background);
        let rkt = rd_kafka_topic_new(rk, c"orders".as_ptr(), null_mut());
        let value = c"value".as_ptr().cast_mut().cast();
        assert_eq!(rd_kafka_produce(rkt, 0, RD_KAFKA_MSG_F_COPY, value, 5, null(), 0, null_mut()), 0);
        seen.wait("dr 0 5 0", || {
            std::thread::sleep(Duration::from_millis(1));
            0
        });
        rd_kafka_topic_destroy(rkt);
        rd_kafka_queue_destroy(main);
        rd_kafka_queue_destroy(background);
        rd_kafka_destroy(rk);
    }
}
