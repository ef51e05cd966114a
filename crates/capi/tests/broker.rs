//! The embedded broker through `ottla.h`, called as C calls it.

#![cfg(feature = "mock")]
#![allow(unsafe_code, reason = "C's functions")]
#![allow(clippy::disallowed_methods, reason = "a test is a shell: it may use threads")]
#![allow(clippy::undocumented_unsafe_blocks, reason = "a test calls as C does")]
#![allow(clippy::unwrap_used, reason = "a test stops where it must")]

use std::ffi::{CStr, CString, c_char, c_int};
use std::ptr::{null, null_mut};
use std::time::Duration;

use ottla_client::{Config, Producer, Record};
use rdkafka::broker::*;
use rdkafka::ffi::memory::rd_kafka_mem_free;
use rdkafka::ffi::{RD_KAFKA_RESP_ERR__INVALID_ARG, RD_KAFKA_RESP_ERR_NO_ERROR};

const PATIENCE: Duration = Duration::from_secs(60);

fn start(settings: &str) -> Result<*mut ottla_broker_t, String> {
    let settings = CString::new(settings).unwrap();
    let mut errstr = [0 as c_char; 256];
    let broker = unsafe { ottla_broker_start(settings.as_ptr(), errstr.as_mut_ptr(), errstr.len()) };
    if broker.is_null() {
        return Err(unsafe { CStr::from_ptr(errstr.as_ptr()) }.to_str().unwrap().to_owned());
    }
    Ok(broker)
}

/// Takes over a text of the library.
fn taken(text: *mut c_char) -> String {
    let copy = unsafe { CStr::from_ptr(text) }.to_str().unwrap().to_owned();
    unsafe { rd_kafka_mem_free(null_mut(), text.cast()) };
    copy
}

fn control(broker: *mut ottla_broker_t, method: &str, path: &str, body: &str) -> (c_int, String) {
    let [method, path, body] = [method, path, body].map(|text| CString::new(text).unwrap());
    let mut answer = null_mut();
    let status = unsafe {
        ottla_broker_control(broker, method.as_ptr(), path.as_ptr(), body.as_ptr(), &raw mut answer)
    };
    (status, taken(answer))
}

#[test]
fn a_fault_of_the_control_address_meets_a_producer() {
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("trace");
    let settings =
        format!("topics = orders:3, clicks\nnum.partitions = 4\n# a comment\ntrace={}\n", trace.display());
    let broker = start(&settings).unwrap();
    let servers = taken(ottla_broker_bootstrap_servers(broker));
    assert_eq!(control(broker, "GET", "/requests", "").0, 200, "requests are counted from here on");
    let fault = r#"{ "api": "Produce", "action": "fail", "error": "NOT_ENOUGH_REPLICAS", "count": 2 }"#;
    assert_eq!(control(broker, "POST", "/faults", fault), (200, r#"{"id":1}"#.to_owned()));

    let producer = Producer::new(Config::new(servers)).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let sent =
        |record| runtime.block_on(async { tokio::time::timeout(PATIENCE, producer.send(record)).await });
    assert!(sent(Record::to("orders").partition(2).value("paid")).unwrap().is_ok());
    let last = Record::to("clicks").partition(3).value("one");
    assert!(sent(last).unwrap().is_ok(), "clicks has the four partitions of num.partitions");

    let (status, answer) = control(broker, "GET", "/requests", "");
    assert_eq!(status, 200);
    assert!(answer.contains(r#""Produce":4"#), "two failures and two successes: {answer}");
    let trace = std::fs::read_to_string(trace).unwrap();
    assert_eq!(trace.matches(r#""errors":["NOT_ENOUGH_REPLICAS"]"#).count(), 2, "{trace}");
    assert_eq!(ottla_broker_destroy(broker), RD_KAFKA_RESP_ERR_NO_ERROR);
}

#[test]
fn a_node_is_added_to_the_running_broker() {
    let broker = start("nodes=2").unwrap();
    assert_eq!(control(broker, "POST", "/nodes", r#"{ "id": 3 }"#).0, 200);
    let servers = taken(ottla_broker_bootstrap_servers(broker));
    assert_eq!(servers.split(',').count(), 3, "{servers}");
    assert_eq!(ottla_broker_destroy(broker), RD_KAFKA_RESP_ERR_NO_ERROR);
}

#[test]
fn a_node_is_paused_and_resumed() {
    let broker = start("topics=orders:1").unwrap();
    let producer = Producer::new(Config::new(taken(ottla_broker_bootstrap_servers(broker)))).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let written = |within| {
        let record = Record::to("orders").value("paid");
        runtime.block_on(async { tokio::time::timeout(within, producer.send(record)).await })
    };
    assert!(written(PATIENCE).unwrap().is_ok());
    assert_eq!(control(broker, "POST", "/nodes/1", r#"{ "paused": true }"#).0, 200);
    assert!(written(Duration::from_millis(300)).is_err(), "it does not answer");
    let (_, overview) = control(broker, "GET", "/", "");
    assert!(overview.contains(r#""paused":true"#), "{overview}");
    assert_eq!(control(broker, "POST", "/nodes/1", r#"{ "paused": false }"#).0, 200);
    assert!(written(PATIENCE).unwrap().is_ok());
    assert_eq!(control(broker, "POST", "/nodes/1", r#"{ "paused": true }"#).0, 200);
    assert_eq!(ottla_broker_destroy(broker), RD_KAFKA_RESP_ERR_NO_ERROR, "it ends");
}

/// `sendfile` to a client that has left raises SIGPIPE, which ends programs that do not ignore it.
#[cfg(target_os = "linux")]
#[test]
fn the_threads_of_a_broker_block_sigpipe_and_those_of_the_program_do_not() {
    let blocks_sigpipe = |thread: &std::path::Path| {
        let status = std::fs::read_to_string(thread.join("status")).unwrap_or_default();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:"));
        let mask = mask.map_or(0, |mask| u64::from_str_radix(mask.trim(), 16).expect("a mask"));
        mask >> (libc::SIGPIPE - 1) & 1 == 1
    };
    let broker = start("").expect("a broker");
    let threads = std::fs::read_dir("/proc/self/task").expect("threads");
    assert!(threads.filter_map(Result::ok).any(|thread| blocks_sigpipe(&thread.path())));
    assert!(!blocks_sigpipe("/proc/thread-self".as_ref()));
    assert_eq!(ottla_broker_destroy(broker), RD_KAFKA_RESP_ERR_NO_ERROR);
}

#[test]
fn data_of_a_directory_outlives_the_broker() {
    let dir = tempfile::tempdir().unwrap();
    let settings = format!("data.dir={}\ntopics=kept:2", dir.path().display());
    let broker = start(&settings).unwrap();
    assert!(start(&settings).unwrap_err().contains("is in use"));
    assert_eq!(ottla_broker_destroy(broker), RD_KAFKA_RESP_ERR_NO_ERROR);
    let again = start(&settings.replace("kept:2", "other")).unwrap();
    let wait = r#"{ "action": "roll", "topic": "kept" }"#;
    assert_eq!(control(again, "POST", "/now", wait).0, 200, "the topic is still there");
    assert_eq!(ottla_broker_destroy(again), RD_KAFKA_RESP_ERR_NO_ERROR);
}

/// They were accepted, and the broker listened without a login, with its data in memory.
#[test]
fn listeners_and_log_dirs_have_the_effect_that_they_have_in_server_properties() {
    let dir = tempfile::tempdir().unwrap();
    let settings = format!(
        "listeners=SASL_PLAINTEXT://127.0.0.1:0\nsasl.enabled.mechanisms=PLAIN\n\
         listener.name.sasl_plaintext.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule \
         required user_till=\"secret\";\nlog.dirs={}\ntopics=orders:1\n",
        dir.path().display()
    );
    let broker = start(&settings).unwrap();
    let servers = taken(ottla_broker_bootstrap_servers(broker));
    let write = |login: &[(&str, &str)]| {
        let mut config = Config::new(servers.clone());
        config.set_all([("message.timeout.ms", "5000")]).unwrap();
        config.set_all(login.iter().copied()).unwrap();
        let producer = Producer::new(config).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(producer.send(Record::to("orders").value("paid"))).is_ok()
    };
    assert!(!write(&[]), "without a login");
    assert!(write(&[
        ("security.protocol", "SASL_PLAINTEXT"),
        ("sasl.mechanism", "PLAIN"),
        ("sasl.username", "till"),
        ("sasl.password", "secret"),
    ]));
    assert!(dir.path().join("orders-0").is_dir(), "the data is in the directory");
    assert_eq!(ottla_broker_destroy(broker), RD_KAFKA_RESP_ERR_NO_ERROR);
}

#[test]
fn wrong_settings_are_explained() {
    for (settings, reason) in [
        ("nodes=0", "`nodes` is a number from 1 to 100, not `0`"),
        ("listen=here", "`listen` is an address"),
        ("trace=/nowhere/trace", "`trace`: /nowhere/trace"),
        ("topics=a:0", "topic `a:0`"),
        ("topics=a b", "topic `a b`"),
        ("num.partitons=3", "did you mean `num.partitions`?"),
        ("log.dirs=/a,/b", "`log.dirs` is one directory"),
        ("listeners=SASL_SSL://127.0.0.1:0", "listener SASL_SSL: "),
        (
            "listeners=PLAINTEXT://127.0.0.1:0\nlisten=127.0.0.1:0",
            "`listeners` and `listen` exclude each other",
        ),
        (
            "advertised.listeners=PLAINTEXT://kafka:9092",
            "`advertised.listeners` has no effect without `listeners`",
        ),
        ("sasl.enabled.mechanisms=PLAIN", "`sasl.enabled.mechanisms` has no effect without `listeners`"),
        ("num.partitions", "expected name=value"),
    ] {
        let error = start(settings).unwrap_err();
        assert!(error.contains(reason), "{settings}: {error}");
    }
}

#[test]
fn a_stale_handle_and_missing_arguments_are_refused() {
    let broker = start("").unwrap();
    assert_eq!(control(broker, "GET", "/nothing", "").0, 404);
    assert_eq!(control(broker, "POST", "/faults", "{").0, 400);
    assert_eq!(unsafe { ottla_broker_control(broker, null(), null(), null(), null_mut()) }, 0);
    assert_eq!(ottla_broker_destroy(broker), RD_KAFKA_RESP_ERR_NO_ERROR);
    assert_eq!(ottla_broker_destroy(broker), RD_KAFKA_RESP_ERR__INVALID_ARG);
    assert_eq!(ottla_broker_destroy(null_mut()), RD_KAFKA_RESP_ERR__INVALID_ARG);
    assert!(ottla_broker_bootstrap_servers(broker).is_null());
    let path = c"/".as_ptr();
    assert_eq!(unsafe { ottla_broker_control(broker, path, path, null(), null_mut()) }, 0);
}
