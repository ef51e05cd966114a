//! The processor through `ottla.h`, against the embedded broker, called as C calls it.

#![allow(unsafe_code, reason = "C's functions")]
#![allow(clippy::disallowed_methods, reason = "a test is a shell: it may use threads")]
#![allow(clippy::undocumented_unsafe_blocks, reason = "a test calls as C does")]
#![allow(
    clippy::wildcard_imports,
    clippy::unwrap_used,
    reason = "C's names, and a test that stops where it must"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use ottla_broker::{Broker, BrokerThread};
use ottla_client::{Config, Consumer, OwnedRecord, Producer, Record};
use rdkafka::client::topic_handle::*;
use rdkafka::conf::callbacks::*;
use rdkafka::errors::error_object::*;
use rdkafka::ffi::memory::*;
use rdkafka::ffi::*;
use rdkafka::messages::message::*;
use rdkafka::processor::*;

use crate::common::{PATIENCE, conf};

const PARTITIONS: i32 = 3;

fn broker() -> BrokerThread {
    let broker = Broker::builder().memory().topic("orders", PARTITIONS).topic("out", 1).topic("dead", 1);
    broker.spawn().expect("a broker in memory")
}

/// Records 0 to `count`, with a key out of five each.
fn fill(broker: &BrokerThread, count: usize) {
    let producer = Producer::new(Config::new(broker.bootstrap_servers())).unwrap();
    for number in 0..count {
        let (key, value) = (format!("key {}", number % 5), number.to_string());
        let _reported = producer
            .enqueue_blocking(Record::to("orders").key(&key).value(&value).header("n", &value))
            .unwrap();
    }
    producer.flush_blocking(PATIENCE).unwrap();
}

/// The first `count` records of a topic.
fn read(broker: &BrokerThread, topic: &str, count: usize) -> Vec<OwnedRecord> {
    let mut config = Config::new(broker.bootstrap_servers());
    config
        .set_all([
            ("group.id", "look"),
            ("auto.offset.reset", "earliest"),
            ("isolation.level", "read_committed"),
        ])
        .unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut consumer = Consumer::new(config).unwrap();
    let mut records = Vec::new();
    let reading = async {
        consumer.subscribe(&[topic]).await.unwrap();
        while records.len() < count {
            if let Some(ottla_client::PolledRecord::Record(record)) =
                consumer.next_record(PATIENCE).await.unwrap()
            {
                records.push(record.to_owned());
            }
        }
    };
    let read = runtime.block_on(async { tokio::time::timeout(PATIENCE, reading).await });
    assert!(read.is_ok(), "{} of {count} records in {topic}", records.len());
    records
}

fn settings(of: &[(&str, &str)]) -> *mut ottla_processor_settings_t {
    let settings = ottla_processor_settings_new();
    for (name, value) in of {
        let mut text = [0; 512];
        assert_eq!(set(settings, name, value, &mut text), RD_KAFKA_CONF_OK, "{:?}", unsafe {
            CStr::from_ptr(text.as_ptr())
        });
    }
    settings
}

fn set(
    settings: *mut ottla_processor_settings_t,
    name: &str,
    value: &str,
    text: &mut [i8],
) -> rd_kafka_conf_res_t {
    let (name, value) = (CString::new(name).unwrap(), CString::new(value).unwrap());
    unsafe {
        ottla_processor_settings_set(settings, name.as_ptr(), value.as_ptr(), text.as_mut_ptr(), text.len())
    }
}

fn group(broker: &BrokerThread) -> *mut rd_kafka_conf_t {
    conf(&[
        ("bootstrap.servers", &broker.bootstrap_servers()),
        ("group.id", "billing"),
        ("auto.offset.reset", "earliest"),
        ("auto.commit.interval.ms", "100"),
    ])
}

fn start(conf: *mut rd_kafka_conf_t, settings: *mut ottla_processor_settings_t) -> *mut ottla_processor_t {
    let mut text = [0; 512];
    let processor = unsafe { ottla_processor_start(conf, settings, text.as_mut_ptr(), text.len()) };
    assert!(!processor.is_null(), "{:?}", unsafe { CStr::from_ptr(text.as_ptr()) });
    processor
}

/// The instructions for the handlers, and the records that they received; it is the application's pointer.
#[derive(Default)]
struct Desk {
    seen: Mutex<BTreeMap<usize, Vec<u32>>>,
    threads: Mutex<BTreeSet<String>>,
    /// Answers these records so, as long as they were tried less often.
    answers: Mutex<BTreeMap<usize, (ottla_processor_verdict_t, u32)>>,
    /// Handlers of these wait until it is open.
    stuck: Mutex<BTreeSet<usize>>,
    opened: Condvar,
    out: AtomicBool,
    batches: AtomicUsize,
    processor: AtomicPtr<ottla_processor_t>,
}

impl Desk {
    fn opaque(&self) -> *mut c_void {
        std::ptr::from_ref(self).cast_mut().cast()
    }

    /// One record, as a handler sees it.
    unsafe fn see(
        &self,
        call: *mut ottla_processor_call_t,
        message: *const rd_kafka_message_t,
    ) -> ottla_processor_verdict_t {
        let (value, topic, headers) = unsafe {
            let message = &*message;
            let mut headers = null_mut();
            assert_eq!(rd_kafka_message_headers(message, &raw mut headers), RD_KAFKA_RESP_ERR_NO_ERROR);
            let value = std::slice::from_raw_parts(message.payload.cast::<u8>(), message.len);
            (value, CStr::from_ptr(rd_kafka_topic_name(message.rkt)), &*headers)
        };
        assert_eq!(topic, c"orders");
        assert_eq!(headers.iter().collect::<Vec<_>>(), [(c"n", Some(value))]);
        let number: usize = std::str::from_utf8(value).unwrap().parse().unwrap();
        let attempt = unsafe { ottla_processor_attempt(call) };
        self.seen.lock().unwrap().entry(number).or_default().push(attempt);
        self.threads.lock().unwrap().insert(std::thread::current().name().unwrap_or_default().to_owned());
        // The handler is slow: each record is a separate work item.
        std::thread::sleep(Duration::from_millis(1));
        let stuck = self.stuck.lock().unwrap();
        drop(self.opened.wait_while(stuck, |stuck| stuck.contains(&number)).unwrap());
        if self.out.load(Ordering::Relaxed) {
            let (key, value) = unsafe { (&*message, value) };
            let sent = unsafe {
                let value = value.as_ptr().cast();
                ottla_processor_send(call, c"out".as_ptr(), -1, key.key, key.key_len, value, key.len, null())
            };
            assert_eq!(sent, RD_KAFKA_RESP_ERR_NO_ERROR);
        }
        let answers = self.answers.lock().unwrap();
        answers.get(&number).filter(|(_, times)| attempt <= *times).map_or(OTTLA_PROCESSOR_DONE, |it| it.0)
    }

    fn await_seen(&self, count: usize) {
        let deadline = Instant::now() + PATIENCE;
        while self.seen.lock().unwrap().len() < count {
            assert!(Instant::now() < deadline, "{} of {count} records", self.seen.lock().unwrap().len());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn free(&self) {
        self.stuck.lock().unwrap().clear();
        self.opened.notify_all();
    }
}

unsafe extern "C" fn each(
    call: *mut ottla_processor_call_t,
    message: *const rd_kafka_message_t,
    opaque: *mut c_void,
) -> ottla_processor_verdict_t {
    let verdict = unsafe { (*opaque.cast::<Desk>()).see(call, message) };
    unsafe { ottla_processor_set_reason(call, c"the desk said so".as_ptr()) };
    verdict
}

unsafe extern "C" fn batch(
    call: *mut ottla_processor_call_t,
    messages: *const *const rd_kafka_message_t,
    count: usize,
    opaque: *mut c_void,
) -> ottla_processor_verdict_t {
    let desk = unsafe { &*opaque.cast::<Desk>() };
    desk.batches.fetch_add(1, Ordering::Relaxed);
    for (index, message) in unsafe { std::slice::from_raw_parts(messages, count) }.iter().enumerate() {
        let verdict = unsafe { desk.see(call, *message) };
        if verdict != OTTLA_PROCESSOR_DONE {
            let failed = unsafe { ottla_processor_fail(call, index, verdict, c"one of many".as_ptr()) };
            assert_eq!(failed, RD_KAFKA_RESP_ERR_NO_ERROR);
        }
    }
    let beyond = unsafe { ottla_processor_fail(call, count, OTTLA_PROCESSOR_FAILED, null()) };
    assert_eq!(beyond, RD_KAFKA_RESP_ERR__INVALID_ARG);
    OTTLA_PROCESSOR_DONE
}

/// Waits until `look` returns `true` for the processor's statistics.
fn await_stats(processor: *mut ottla_processor_t, look: impl Fn(&ottla_processor_stats_t) -> bool) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let stats = ottla_processor_stats(processor);
        let found = look(unsafe { &*stats });
        unsafe { ottla_processor_stats_destroy(stats) };
        if found {
            return;
        }
        assert!(Instant::now() < deadline, "the statistics never said so");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn partitions(stats: &ottla_processor_stats_t) -> Vec<&ottla_processor_partition_t> {
    (0..stats.partition_cnt).map(|index| unsafe { &**stats.partitions.add(index) }).collect()
}

#[test]
fn every_mode_handles_every_record_and_commits_it() {
    for mode in ["sync", "batch", "multi-async", "multi-batch"] {
        let (broker, desk) = (broker(), Desk::default());
        fill(&broker, 300);
        let settings = settings(&[("mode", mode), ("topics", "orders"), ("order", "key"), ("batch", "20")]);
        set(settings, "workers", "4", &mut [0; 64]);
        set(settings, "batch.wait.ms", "50", &mut [0; 64]);
        ottla_processor_settings_set_handler(settings, Some(each), desk.opaque());
        ottla_processor_settings_set_batch_handler(settings, Some(batch), desk.opaque());
        let processor = start(group(&broker), settings);
        desk.await_seen(300);
        await_stats(processor, |stats| {
            partitions(stats).iter().map(|it| it.committed.max(0)).sum::<i64>() == 300
        });
        assert_eq!(ottla_processor_is_stopped(processor), 0);
        assert_eq!(ottla_processor_destroy(processor), RD_KAFKA_RESP_ERR_NO_ERROR);
        assert!(desk.seen.lock().unwrap().values().all(|attempts| *attempts == [1]), "{mode}");
        let (threads, batches) = (desk.threads.lock().unwrap().len(), desk.batches.load(Ordering::Relaxed));
        assert_eq!(threads == 1, !mode.starts_with("multi"), "{mode}: {threads} threads");
        assert_eq!(batches >= 300 / 20, mode.ends_with("batch"), "{mode}: {batches} batches");
    }
}

#[test]
fn a_batch_names_the_records_that_failed_and_only_they_come_back() {
    let (broker, desk) = (broker(), Desk::default());
    fill(&broker, 100);
    desk.answers.lock().unwrap().extend([(7, (OTTLA_PROCESSOR_FAILED, 2)), (50, (17, 1))]);
    let settings = settings(&[("mode", "multi-batch"), ("topics", "orders"), ("retry.delay.ms", "10")]);
    set(settings, "batch.wait.ms", "20", &mut [0; 64]);
    ottla_processor_settings_set_batch_handler(settings, Some(batch), desk.opaque());
    let processor = start(group(&broker), settings);
    await_stats(processor, |stats| stats.handled == 100 && stats.failures == stats.retries);
    assert_eq!(ottla_processor_destroy(processor), RD_KAFKA_RESP_ERR_NO_ERROR);
    let seen = desk.seen.lock().unwrap();
    let again: Vec<_> = seen.iter().filter(|(_, attempts)| attempts.len() > 1).collect();
    assert_eq!(again, [(&7, &vec![1, 2, 3]), (&50, &vec![1, 2])]);
}

#[test]
fn what_is_given_up_is_a_dead_letter_with_the_handlers_reason_or_stops_the_processor() {
    let (broker, desk) = (broker(), Desk::default());
    fill(&broker, 20);
    let answers = [
        (3, (OTTLA_PROCESSOR_REFUSED, 9)),
        (4, (OTTLA_PROCESSOR_UNDECODABLE, 9)),
        (5, (OTTLA_PROCESSOR_FAILED, 9)),
    ];
    desk.answers.lock().unwrap().extend(answers);
    let letters = settings(&[
        ("topics", "orders"),
        ("retries", "1"),
        ("retry.delay.ms", "1"),
        ("on.failure", "dead-letter"),
    ]);
    set(letters, "dead.letter.topic", "dead", &mut [0; 64]);
    ottla_processor_settings_set_handler(letters, Some(each), desk.opaque());
    let processor = start(group(&broker), letters);
    await_stats(processor, |stats| stats.dead_letters == 3 && stats.handled == 17);
    assert_eq!(ottla_processor_destroy(processor), RD_KAFKA_RESP_ERR_NO_ERROR);
    let mut told: Vec<_> = read(&broker, "dead", 3).iter().map(of_letter).collect();
    told.sort();
    let letter = |number: &str, kind: &str, attempts: &str| {
        [number, kind, attempts, "the desk said so"].map(str::to_owned)
    };
    let expected = [letter("3", "refused", "1"), letter("4", "undecodable", "1"), letter("5", "failed", "2")];
    assert_eq!(told, expected);

    // A second group on the same records stops at the first record that it gives up.
    let stops = settings(&[("mode", "sync"), ("topics", "orders")]);
    ottla_processor_settings_set_handler(stops, Some(each), desk.opaque());
    let other = group(&broker);
    unsafe {
        rdkafka::conf::functions::rd_kafka_conf_set(
            other,
            c"group.id".as_ptr(),
            c"other".as_ptr(),
            null_mut(),
            0,
        );
    }
    let processor = start(other, stops);
    let why = ottla_processor_wait(processor, -1);
    let text = unsafe { CStr::from_ptr(rd_kafka_error_string(why)) }.to_str().unwrap().to_owned();
    assert_eq!(unsafe { rd_kafka_error_code(why) }, RD_KAFKA_RESP_ERR__APPLICATION, "{text}");
    assert!(
        text.starts_with("orders-") && text.contains(" offset ") && text.ends_with("the desk said so"),
        "{text}"
    );
    unsafe { rd_kafka_error_destroy(why) };
    assert_eq!(ottla_processor_is_stopped(processor), 1);
    assert_eq!(ottla_processor_destroy(processor), RD_KAFKA_RESP_ERR_NO_ERROR);
}

fn of_letter(letter: &OwnedRecord) -> [String; 4] {
    let text = |bytes: Option<&[u8]>| String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned();
    let header = |name: &str| {
        let found = letter.headers.iter().find(|(known, _)| known == name);
        text(found.and_then(|(_, value)| value.as_deref()))
    };
    [
        text(letter.value.as_deref()),
        header("ottla.error.kind"),
        header("ottla.error.attempts"),
        header("ottla.error.reason"),
    ]
}

#[test]
fn what_a_handler_sends_is_written_when_it_succeeds_and_only_then() {
    let (broker, desk) = (broker(), Desk::default());
    fill(&broker, 200);
    desk.out.store(true, Ordering::Relaxed);
    desk.answers
        .lock()
        .unwrap()
        .extend([(11, (OTTLA_PROCESSOR_FAILED, 1)), (12, (OTTLA_PROCESSOR_FAILED, 2))]);
    let settings = settings(&[("topics", "orders"), ("retry.delay.ms", "10")]);
    ottla_processor_settings_set_handler(settings, Some(each), desk.opaque());
    let processor = start(group(&broker), settings);
    let mut values: Vec<usize> = read(&broker, "out", 200)
        .iter()
        .map(|record| String::from_utf8_lossy(record.value.as_deref().unwrap()).parse().unwrap())
        .collect();
    values.sort_unstable();
    assert_eq!(values, (0..200).collect::<Vec<_>>());
    assert_eq!(ottla_processor_destroy(processor), RD_KAFKA_RESP_ERR_NO_ERROR);
}

#[test]
fn a_stuck_handler_shows_in_the_statistics_and_is_waited_for() {
    let (broker, desk) = (broker(), Desk::default());
    fill(&broker, 50);
    desk.stuck.lock().unwrap().insert(20);
    let settings = settings(&[("topics", "orders"), ("drain.ms", "200"), ("workers", "3")]);
    ottla_processor_settings_set_handler(settings, Some(each), desk.opaque());
    let processor = start(group(&broker), settings);
    await_stats(processor, |stats| {
        let blocking: Vec<_> = partitions(stats).into_iter().filter(|it| it.blocking >= 0).collect();
        stats.handled == 49
            && blocking.len() == 1
            && blocking[0].blocking_ms > 50
            && blocking[0].in_flight >= 1
    });
    let text = ottla_processor_metrics(processor);
    let metrics = unsafe { CStr::from_ptr(text) }.to_str().unwrap().to_owned();
    unsafe { rd_kafka_mem_free(null_mut(), text.cast()) };
    assert!(metrics.contains("ottla_processor_blocking_seconds{topic=\"orders\""), "{metrics}");
    let why = ottla_processor_wait(processor, 1);
    assert_eq!(unsafe { rd_kafka_error_code(why) }, RD_KAFKA_RESP_ERR__TIMED_OUT);
    unsafe { rd_kafka_error_destroy(why) };
    // The handler exceeds its deadline: the result shows that it is still running.
    assert_eq!(ottla_processor_destroy(processor), RD_KAFKA_RESP_ERR__IN_PROGRESS);
    desk.free();
    assert_eq!(ottla_processor_destroy(processor), RD_KAFKA_RESP_ERR_NO_ERROR);
}

unsafe extern "C" fn destroys(
    _: *mut ottla_processor_call_t,
    _: *const rd_kafka_message_t,
    opaque: *mut c_void,
) -> ottla_processor_verdict_t {
    let desk = unsafe { &*opaque.cast::<Desk>() };
    let deadline = Instant::now() + PATIENCE;
    while desk.processor.load(Ordering::Acquire).is_null() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
    let own = desk.processor.load(Ordering::Acquire);
    assert_eq!(ottla_processor_destroy(own), RD_KAFKA_RESP_ERR__STATE);
    let why = ottla_processor_wait(own, 1000);
    assert_eq!(unsafe { rd_kafka_error_code(why) }, RD_KAFKA_RESP_ERR__STATE);
    unsafe { rd_kafka_error_destroy(why) };
    assert_eq!(ottla_processor_stop(own), RD_KAFKA_RESP_ERR_NO_ERROR);
    desk.batches.fetch_add(1, Ordering::Release);
    OTTLA_PROCESSOR_DONE
}

#[test]
fn a_handler_can_stop_its_processor_and_not_destroy_it() {
    let (broker, desk) = (broker(), Desk::default());
    fill(&broker, 1);
    let settings = settings(&[("mode", "sync"), ("topics", "orders")]);
    ottla_processor_settings_set_handler(settings, Some(destroys), desk.opaque());
    let processor = start(group(&broker), settings);
    desk.processor.store(processor, Ordering::Release);
    assert!(ottla_processor_wait(processor, -1).is_null());
    assert_eq!(desk.batches.load(Ordering::Acquire), 1, "the handler came to its end");
    assert_eq!(ottla_processor_destroy(processor), RD_KAFKA_RESP_ERR_NO_ERROR);
}

unsafe extern "C" fn destroys_another(
    _: *mut ottla_processor_call_t,
    _: *const rd_kafka_message_t,
    opaque: *mut c_void,
) -> ottla_processor_verdict_t {
    let desk = unsafe { &*opaque.cast::<Desk>() };
    let another = desk.processor.load(Ordering::Acquire);
    let why = ottla_processor_wait(another, 1);
    assert_eq!(unsafe { rd_kafka_error_code(why) }, RD_KAFKA_RESP_ERR__TIMED_OUT);
    unsafe { rd_kafka_error_destroy(why) };
    assert_eq!(ottla_processor_destroy(another), RD_KAFKA_RESP_ERR_NO_ERROR);
    desk.batches.fetch_add(1, Ordering::Release);
    OTTLA_PROCESSOR_DONE
}

/// The calls panicked in a handler's thread, which runs in a runtime, and returned `RD_KAFKA_RESP_ERR__FAIL`.
#[test]
fn a_handler_can_wait_for_another_processor_and_destroy_it() {
    let (broker, desk, idle) = (broker(), Desk::default(), Desk::default());
    fill(&broker, 1);
    let of_another = settings(&[("topics", "dead")]);
    ottla_processor_settings_set_handler(of_another, Some(each), idle.opaque());
    let servers = broker.bootstrap_servers();
    let another = start(conf(&[("bootstrap.servers", &servers), ("group.id", "another")]), of_another);
    desk.processor.store(another, Ordering::Release);
    let settings = settings(&[("mode", "sync"), ("topics", "orders")]);
    ottla_processor_settings_set_handler(settings, Some(destroys_another), desk.opaque());
    let processor = start(group(&broker), settings);
    let deadline = Instant::now() + PATIENCE;
    while desk.batches.load(Ordering::Acquire) == 0 {
        assert!(Instant::now() < deadline, "the handler came to its end");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(ottla_processor_stop(another), RD_KAFKA_RESP_ERR__INVALID_ARG, "it is destroyed");
    assert_eq!(ottla_processor_destroy(processor), RD_KAFKA_RESP_ERR_NO_ERROR);
}

/// The threads that called the log function.
static LOGGING: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

unsafe extern "C" fn notes_its_thread(rk: *const rd_kafka_t, _: c_int, _: *const c_char, _: *const c_char) {
    assert!(rk.is_null());
    let name = std::thread::current().name().unwrap_or_default().to_owned();
    LOGGING.lock().unwrap().insert(name);
}

/// The engine's thread called it: a function that blocked held up all connections of the processor.
#[test]
fn the_log_function_of_a_processor_runs_in_a_thread_of_its_own() {
    let (broker, desk) = (broker(), Desk::default());
    fill(&broker, 1);
    let settings = settings(&[("mode", "sync"), ("topics", "orders")]);
    ottla_processor_settings_set_handler(settings, Some(each), desk.opaque());
    let conf = conf(&[
        ("bootstrap.servers", &broker.bootstrap_servers()),
        ("group.id", "logging"),
        ("debug", "all"),
    ]);
    unsafe { rd_kafka_conf_set_log_cb(conf, Some(notes_its_thread)) };
    let processor = start(conf, settings);
    let deadline = Instant::now() + PATIENCE;
    while LOGGING.lock().unwrap().is_empty() {
        assert!(Instant::now() < deadline, "a line came");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(ottla_processor_destroy(processor), RD_KAFKA_RESP_ERR_NO_ERROR);
    assert_eq!(*LOGGING.lock().unwrap(), BTreeSet::from(["rdk:log".to_owned()]));
}

/// It was not called, and every certificate that a known authority had signed was accepted.
unsafe extern "C" fn judge(
    _client: *mut rd_kafka_t,
    _broker_name: *const c_char,
    _broker_id: i32,
    _x509_error: *mut c_int,
    _depth: c_int,
    _certificate: *const c_char,
    _size: usize,
    _errstr: *mut c_char,
    _errstr_size: usize,
    _opaque: *mut c_void,
) -> c_int {
    0
}

#[test]
fn misuse_is_answered_and_never_followed() {
    let (broker, desk) = (broker(), Desk::default());
    let mut text = [0_i8; 512];
    let explained = |text: &[i8]| unsafe { CStr::from_ptr(text.as_ptr()) }.to_str().unwrap().to_owned();
    let settings = settings(&[("topics", "orders")]);
    assert_eq!(set(settings, "worker", "3", &mut text), RD_KAFKA_CONF_UNKNOWN);
    assert!(explained(&text).contains("no setting \"worker\"") && explained(&text).contains("workers"));
    for (name, value) in [("workers", "0"), ("workers", "x"), ("mode", "Sync"), ("retries", "-2")] {
        assert_eq!(set(settings, name, value, &mut text), RD_KAFKA_CONF_INVALID, "{name}={value}");
        assert!(explained(&text).contains(name), "{}", explained(&text));
    }
    let mut refused = |conf, settings, why: &str| {
        let started = unsafe { ottla_processor_start(conf, settings, text.as_mut_ptr(), text.len()) };
        assert!(started.is_null());
        assert!(explained(&text).contains(why), "{}", explained(&text));
    };
    let own = group(&broker);
    refused(null_mut(), settings, "no configuration");
    refused(own, null_mut(), "no such settings");
    refused(own, settings, "ottla_processor_settings_set_handler()");
    ottla_processor_settings_set_handler(settings, Some(each), desk.opaque());
    set(settings, "on.failure", "dead-letter", &mut [0; 64]);
    refused(own, settings, "dead.letter.topic");
    set(settings, "on.failure", "stop", &mut [0; 64]);
    let without_group = conf(&[("bootstrap.servers", &broker.bootstrap_servers())]);
    refused(without_group, settings, "group.id");
    unsafe { rdkafka::conf::functions::rd_kafka_conf_destroy(without_group) };

    let pinned = group(&broker);
    unsafe {
        assert_eq!(rd_kafka_conf_set_ssl_cert_verify_cb(pinned, Some(judge)), RD_KAFKA_CONF_OK);
        refused(pinned, settings, "ssl.certificate.verify_cb");
        rdkafka::conf::functions::rd_kafka_conf_destroy(pinned);
    }

    let processor = start(own, settings);
    assert_eq!(ottla_processor_settings_destroy(settings), RD_KAFKA_RESP_ERR__INVALID_ARG, "taken over");
    assert_eq!(ottla_processor_destroy(processor), RD_KAFKA_RESP_ERR_NO_ERROR);
    for gone in [processor, null_mut(), std::ptr::without_provenance_mut(7)] {
        assert_eq!(ottla_processor_stop(gone), RD_KAFKA_RESP_ERR__INVALID_ARG);
        assert_eq!(ottla_processor_destroy(gone), RD_KAFKA_RESP_ERR__INVALID_ARG);
        assert_eq!(ottla_processor_is_stopped(gone), 0);
        assert!(ottla_processor_stats(gone).is_null());
        assert!(ottla_processor_metrics(gone).is_null());
        let why = ottla_processor_wait(gone, 0);
        assert_eq!(unsafe { rd_kafka_error_code(why) }, RD_KAFKA_RESP_ERR__INVALID_ARG);
        unsafe { rd_kafka_error_destroy(why) };
    }
    unsafe {
        ottla_processor_stats_destroy(null());
        ottla_processor_set_reason(null_mut(), c"x".as_ptr());
        assert_eq!(ottla_processor_attempt(null()), 0);
        let sent = ottla_processor_send(null_mut(), c"out".as_ptr(), 0, null(), 0, null(), 0, null());
        assert_eq!(sent, RD_KAFKA_RESP_ERR__INVALID_ARG);
    }
    let fresh = ottla_processor_settings_new();
    assert_eq!(ottla_processor_settings_destroy(fresh), RD_KAFKA_RESP_ERR_NO_ERROR);
    assert_eq!(ottla_processor_settings_destroy(fresh), RD_KAFKA_RESP_ERR__INVALID_ARG);
}
