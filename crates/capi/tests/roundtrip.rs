//! Producing and consuming through the C interface, against the embedded broker.

#![allow(unsafe_code, reason = "C's functions")]
#![allow(clippy::disallowed_methods, reason = "a test is a shell: it may use threads")]
#![allow(clippy::undocumented_unsafe_blocks, reason = "a test calls as C does")]
#![allow(
    clippy::wildcard_imports,
    clippy::unwrap_used,
    reason = "C's names, and a test that stops where it must"
)]

use std::ffi::{CStr, CString, c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use ottla_broker::{Broker, BrokerThread};
use rdkafka::client::handle::*;
use rdkafka::client::metadata::*;
use rdkafka::client::topic_handle::*;
use rdkafka::conf::callbacks::*;
use rdkafka::conf::functions::*;
use rdkafka::consume::group_consumer::*;
use rdkafka::consume::leave_group::*;
use rdkafka::consume::offsets::*;
use rdkafka::consume::rebalance_protocol::*;
use rdkafka::consume::simple_consumer::*;
use rdkafka::ffi::memory::*;
use rdkafka::ffi::*;
use rdkafka::messages::headers::*;
use rdkafka::messages::message::*;
use rdkafka::messages::partition_list::*;
use rdkafka::produce::flush::*;
use rdkafka::produce::producer::*;
use rdkafka::queue::event::*;
use rdkafka::queue::poll::*;
use rdkafka::queue::queue_handle::*;
use rdkafka::queue::queue_poll::*;

const PATIENCE: Duration = Duration::from_secs(60);

fn broker(partitions: i32) -> BrokerThread {
    Broker::builder().memory().topic("orders", partitions).spawn().expect("a broker in memory")
}

fn conf(broker: &BrokerThread, properties: &[(&str, &str)]) -> *mut rd_kafka_conf_t {
    let conf = rd_kafka_conf_new();
    let servers = broker.bootstrap_servers();
    let all =
        [("bootstrap.servers", servers.as_str()), ("group.id", "billing"), ("auto.offset.reset", "earliest")];
    for (name, value) in all.iter().chain(properties) {
        let (name, value) = (CString::new(*name).unwrap(), CString::new(*value).unwrap());
        let mut text = [0; 256];
        let set =
            unsafe { rd_kafka_conf_set(conf, name.as_ptr(), value.as_ptr(), text.as_mut_ptr(), text.len()) };
        assert_eq!(set, RD_KAFKA_CONF_OK, "{:?}", unsafe { CStr::from_ptr(text.as_ptr()) });
    }
    conf
}

fn new(kind: rd_kafka_type_t, conf: *mut rd_kafka_conf_t) -> *mut rd_kafka_t {
    let mut text = [0; 512];
    let rk = unsafe { rd_kafka_new(kind, conf, text.as_mut_ptr(), text.len()) };
    assert!(!rk.is_null(), "{:?}", unsafe { CStr::from_ptr(text.as_ptr()) });
    rk
}

fn topics(names: &[&str]) -> *mut rd_kafka_topic_partition_list_t {
    let list = rd_kafka_topic_partition_list_new(1);
    for name in names {
        let name = CString::new(*name).unwrap();
        unsafe { rd_kafka_topic_partition_list_add(list, name.as_ptr(), -1) };
    }
    list
}

/// Fills a topic with numbered records.
fn fill(broker: &BrokerThread, count: usize, partitions: i32) {
    let rk = new(RD_KAFKA_PRODUCER, conf(broker, &[]));
    let rkt = unsafe { rd_kafka_topic_new(rk, c"orders".as_ptr(), null_mut()) };
    for number in 0..count {
        let value = number.to_string();
        let partition = number as i32 % partitions;
        let taken = unsafe {
            let (value, len) = (value.as_ptr().cast_mut().cast(), value.len());
            rd_kafka_produce(
                rkt,
                partition,
                RD_KAFKA_MSG_F_COPY,
                value,
                len,
                c"k".as_ptr().cast(),
                1,
                null_mut(),
            )
        };
        assert_eq!(taken, 0);
    }
    unsafe {
        assert_eq!(rd_kafka_flush(rk, 60_000), RD_KAFKA_RESP_ERR_NO_ERROR);
        rd_kafka_topic_destroy(rkt);
        rd_kafka_destroy(rk);
    }
}

unsafe fn text_of(message: *const rd_kafka_message_t) -> String {
    let message = unsafe { &*message };
    let bytes = unsafe { std::slice::from_raw_parts(message.payload.cast::<u8>(), message.len) };
    String::from_utf8_lossy(bytes).into_owned()
}

type Reported = (rd_kafka_resp_err_t, i64, usize, String, usize, i32, i64);

/// Records a delivery report in the opaque of the configuration.
unsafe extern "C" fn note_report(
    _rk: *mut rd_kafka_t,
    message: *const rd_kafka_message_t,
    opaque: *mut c_void,
) {
    let (seen, message) = unsafe { (&*opaque.cast::<Mutex<Vec<Reported>>>(), &*message) };
    let text = unsafe { text_of(message) };
    let status = unsafe { rd_kafka_message_status(message) };
    let latency_us = unsafe { rd_kafka_message_latency(message) };
    let (payload, opaque) = (message.payload.addr(), message._private.addr());
    let at = (message.err, message.offset, opaque, text, payload, status, latency_us);
    seen.lock().unwrap().push(at);
}

#[test]
fn a_report_returns_the_tag_of_each_record() {
    let broker = broker(1);
    let seen: Mutex<Vec<Reported>> = Mutex::default();
    let conf = conf(&broker, &[]);
    unsafe {
        rd_kafka_conf_set_dr_msg_cb(conf, Some(note_report));
        rd_kafka_conf_set_opaque(conf, (&raw const seen).cast_mut().cast());
    }
    let rk = new(RD_KAFKA_PRODUCER, conf);
    let own = *b"mine";
    unsafe {
        let rkt = rd_kafka_topic_new(rk, c"orders".as_ptr(), null_mut());
        let copied = c"copied".as_ptr().cast_mut().cast();
        assert_eq!(rd_kafka_produce(rkt, 0, RD_KAFKA_MSG_F_COPY, copied, 6, null(), 0, 17 as *mut c_void), 0);
        // The application keeps the pointer, and the report contains it.
        let pointer = own.as_ptr().cast_mut().cast();
        assert_eq!(rd_kafka_produce(rkt, 0, 0, pointer, 4, null(), 0, 18 as *mut c_void), 0);
        // This one is handed over, and freed after its report.
        let handed = libc::strdup(c"handed".as_ptr());
        assert_eq!(rd_kafka_produce(rkt, 0, RD_KAFKA_MSG_F_FREE, handed.cast(), 6, null(), 0, null_mut()), 0);
        // An unknown partition is refused at once: its topic is known by now or soon.
        while rd_kafka_outq_len(rk) > 0 {
            rd_kafka_poll(rk, 100);
        }
        let refused = rd_kafka_produce(rkt, 9, RD_KAFKA_MSG_F_COPY, copied, 6, null(), 0, null_mut());
        assert_eq!(
            (refused, rdkafka::errors::error_object::rd_kafka_last_error()),
            (-1, RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION)
        );
        rd_kafka_topic_destroy(rkt);
        rd_kafka_destroy(rk);
    }
    let seen = seen.into_inner().unwrap();
    let told: Vec<_> = seen.iter().map(|one| (one.0, one.1, one.2, one.3.as_str(), one.5)).collect();
    let persisted = RD_KAFKA_MSG_STATUS_PERSISTED;
    assert_eq!(
        told,
        [(0, 0, 17, "copied", persisted), (0, 1, 18, "mine", persisted), (0, 2, 0, "handed", persisted)]
    );
    assert_eq!(seen[1].4, own.as_ptr().addr(), "the application's own pointer");
    assert!(seen.iter().all(|one| (1..60_000_000).contains(&one.6)), "microseconds until then: {seen:?}");
}

#[test]
fn a_consumer_reads_what_was_produced_and_commits_it() {
    let broker = broker(2);
    fill(&broker, 1000, 2);
    let rk = new(RD_KAFKA_CONSUMER, conf(&broker, &[("enable.partition.eof", "true")]));
    let mut values = Vec::new();
    let mut ends = 0;
    unsafe {
        let list = topics(&["orders"]);
        assert_eq!(rd_kafka_subscribe(rk, list), RD_KAFKA_RESP_ERR_NO_ERROR);
        rd_kafka_topic_partition_list_destroy(list);
        let deadline = Instant::now() + PATIENCE;
        while (values.len() < 1000 || ends < 2) && Instant::now() < deadline {
            let message = rd_kafka_consumer_poll(rk, 100);
            if message.is_null() {
                continue;
            }
            match (*message).err {
                RD_KAFKA_RESP_ERR_NO_ERROR => {
                    assert_eq!(CStr::from_ptr(rd_kafka_topic_name((*message).rkt)), c"orders");
                    assert_eq!((*message).key_len, 1);
                    values.push(text_of(message).parse::<u32>().unwrap());
                }
                RD_KAFKA_RESP_ERR__PARTITION_EOF => {
                    assert_eq!(rd_kafka_message_broker_id(message), 1);
                    ends += 1;
                }
                other => panic!("{other}: {:?}", CStr::from_ptr(rd_kafka_message_errstr(message))),
            }
            rd_kafka_message_destroy(message);
        }
        assert_eq!(ends, 2);
        assert_eq!(rd_kafka_commit(rk, null(), 0), RD_KAFKA_RESP_ERR_NO_ERROR);
        let mut assigned = null_mut();
        assert_eq!(rd_kafka_assignment(rk, &raw mut assigned), RD_KAFKA_RESP_ERR_NO_ERROR);
        assert_eq!(rd_kafka_committed(rk, assigned, 10_000), RD_KAFKA_RESP_ERR_NO_ERROR);
        assert_eq!((*assigned).elems().iter().map(|entry| entry.offset).collect::<Vec<_>>(), [500, 500]);
        assert_eq!(rd_kafka_position(rk, assigned), RD_KAFKA_RESP_ERR_NO_ERROR);
        assert_eq!((*assigned).elems()[1].offset, 500);
        rd_kafka_topic_partition_list_destroy(assigned);
        let (mut low, mut high) = (-1, -1);
        let asked =
            rd_kafka_query_watermark_offsets(rk, c"orders".as_ptr(), 1, &raw mut low, &raw mut high, 10_000);
        assert_eq!((asked, low, high), (RD_KAFKA_RESP_ERR_NO_ERROR, 0, 500));
        assert_eq!(rd_kafka_consumer_close(rk), RD_KAFKA_RESP_ERR_NO_ERROR);
        rd_kafka_destroy(rk);
    }
    values.sort_unstable();
    assert!(values.iter().copied().eq(0..1000), "each record once");
}

/// The calls of the rebalance callback.
static REBALANCES: Mutex<Vec<(rd_kafka_resp_err_t, c_int)>> = Mutex::new(Vec::new());

unsafe extern "C" fn on_rebalance(
    rk: *mut rd_kafka_t,
    err: rd_kafka_resp_err_t,
    partitions: *mut rd_kafka_topic_partition_list_t,
    _opaque: *mut c_void,
) {
    REBALANCES.lock().unwrap().push((err, unsafe { (*partitions).cnt }));
    unsafe {
        if err == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS {
            // From the middle, whatever was committed.
            for entry in (*partitions).elems_mut() {
                entry.offset = 40;
            }
            assert_eq!(rd_kafka_assign(rk, partitions), RD_KAFKA_RESP_ERR_NO_ERROR);
        } else {
            assert_eq!(rd_kafka_assign(rk, null()), RD_KAFKA_RESP_ERR_NO_ERROR);
        }
    }
}

#[test]
fn an_application_with_a_rebalance_callback_says_itself_what_is_read() {
    let broker = broker(2);
    fill(&broker, 100, 2);
    let conf = conf(&broker, &[]);
    unsafe { rd_kafka_conf_set_rebalance_cb(conf, Some(on_rebalance)) };
    let rk = new(RD_KAFKA_CONSUMER, conf);
    unsafe {
        assert_eq!(rd_kafka_poll_set_consumer(rk), RD_KAFKA_RESP_ERR_NO_ERROR);
        let list = topics(&["orders"]);
        assert_eq!(rd_kafka_subscribe(rk, list), RD_KAFKA_RESP_ERR_NO_ERROR);
        rd_kafka_topic_partition_list_destroy(list);
        let mut count = 0;
        let deadline = Instant::now() + PATIENCE;
        while count < 20 && Instant::now() < deadline {
            let message = rd_kafka_consumer_poll(rk, 100);
            if !message.is_null() {
                assert!((*message).err == 0 && (*message).offset >= 40);
                count += 1;
                rd_kafka_message_destroy(message);
            }
        }
        assert_eq!(count, 20);
        assert_eq!(CStr::from_ptr(rd_kafka_rebalance_protocol(rk)), c"EAGER");
        rd_kafka_destroy(rk);
    }
    let rebalances = REBALANCES.lock().unwrap().clone();
    assert_eq!(
        rebalances,
        [(RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS, 2), (RD_KAFKA_RESP_ERR__REVOKE_PARTITIONS, 2)],
        "given once, and taken back by the close"
    );
}

#[test]
fn partitions_with_queues_of_their_own_and_the_simple_consumer() {
    let broker = broker(2);
    fill(&broker, 100, 2);
    let rk = new(RD_KAFKA_CONSUMER, conf(&broker, &[]));
    unsafe {
        let rkt = rd_kafka_topic_new(rk, c"orders".as_ptr(), null_mut());
        assert_eq!(rd_kafka_consume_start(rkt, 0, RD_KAFKA_OFFSET_BEGINNING), 0);
        let mut messages = [null_mut(); 64];
        let count = rd_kafka_consume_batch(rkt, 0, 10_000, messages.as_mut_ptr(), 50);
        assert_eq!(count, 50);
        assert_eq!(text_of(messages[49]), "98");
        // Destroyed in any order.
        messages[..50].iter().rev().for_each(|message| rd_kafka_message_destroy(*message));
        assert_eq!(rd_kafka_consume_stop(rkt, 0), 0);

        let queue = rd_kafka_queue_new(rk);
        assert_eq!(rd_kafka_consume_start_queue(rkt, 1, RD_KAFKA_OFFSET_TAIL_BASE - 3, queue), 0);
        let mut seen = Vec::new();
        let deadline = Instant::now() + PATIENCE;
        while seen.len() < 3 && Instant::now() < deadline {
            let message = rd_kafka_consume_queue(queue, 100);
            if !message.is_null() {
                seen.push((*message).offset);
                rd_kafka_message_destroy(message);
            }
        }
        assert_eq!(seen, [47, 48, 49], "the last three");
        assert_eq!(rd_kafka_consume_stop(rkt, 1), 0);
        assert!(rd_kafka_consume_start(rkt, -5, 0) == -1);
        rd_kafka_queue_destroy(queue);
        rd_kafka_topic_destroy(rkt);
        rd_kafka_destroy(rk);
    }
}

/// The id and the name of the broker that a description of the cluster is from.
unsafe fn responder_of(metadata: *const rd_kafka_metadata_t) -> (i32, String) {
    unsafe {
        let name = CStr::from_ptr((*metadata).orig_broker_name).to_str().unwrap();
        ((*metadata).orig_broker_id, name.to_owned())
    }
}

/// The text of the end of a partition with one record.
const END_OF_PARTITION: &CStr = c"Fetch from broker 1 reached end of partition at offset 1 (HighwaterMark 1)";

#[test]
fn events_carry_reports_records_and_headers() {
    let broker = broker(1);
    // As `rd_kafka_conf_set_events` would have it.
    let rk = new(RD_KAFKA_PRODUCER, conf(&broker, &[("enabled_events", "0x1")]));
    unsafe {
        let headers = rd_kafka_headers_new(2);
        rd_kafka_header_add(headers, c"trace".as_ptr(), -1, c"abc".as_ptr().cast(), -1);
        let vu = |vtype, u| rd_kafka_vu_t { vtype, u };
        let parts = [
            vu(RD_KAFKA_VTYPE_TOPIC, rd_kafka_vu_value_t { cstr: c"orders".as_ptr() }),
            vu(
                RD_KAFKA_VTYPE_VALUE,
                rd_kafka_vu_value_t {
                    mem: rd_kafka_vu_mem_t { ptr: c"paid".as_ptr().cast_mut().cast(), size: 4 },
                },
            ),
            vu(RD_KAFKA_VTYPE_MSGFLAGS, rd_kafka_vu_value_t { i: RD_KAFKA_MSG_F_COPY }),
            vu(RD_KAFKA_VTYPE_HEADERS, rd_kafka_vu_value_t { headers }),
            vu(RD_KAFKA_VTYPE_OPAQUE, rd_kafka_vu_value_t { ptr: 5 as *mut c_void }),
            vu(RD_KAFKA_VTYPE_TIMESTAMP, rd_kafka_vu_value_t { i64: 1_700_000_000_000 }),
        ];
        assert!(rd_kafka_produceva(rk, parts.as_ptr(), parts.len()).is_null());
        let queue = rd_kafka_queue_get_main(rk);
        let event = rd_kafka_queue_poll(queue, 10_000);
        assert_eq!(rd_kafka_event_type(event), RD_KAFKA_EVENT_DR);
        assert_eq!(rd_kafka_event_message_count(event), 1);
        let message = rd_kafka_event_message_next(event);
        assert_eq!(((*message).err, (*message).offset, (*message)._private.addr()), (0, 0, 5));
        assert!(rd_kafka_event_message_next(event).is_null());
        rd_kafka_event_destroy(event);
        rd_kafka_queue_destroy(queue);
        rd_kafka_destroy(rk);
    }
    let rk = new(RD_KAFKA_CONSUMER, conf(&broker, &[("enable.partition.eof", "true")]));
    unsafe {
        let list = rd_kafka_topic_partition_list_new(1);
        rd_kafka_topic_partition_list_add(list, c"orders".as_ptr(), 0);
        assert_eq!(rd_kafka_assign(rk, list), RD_KAFKA_RESP_ERR_NO_ERROR);
        rd_kafka_topic_partition_list_destroy(list);
        let queue = rd_kafka_queue_get_consumer(rk);
        let event = rd_kafka_queue_poll(queue, 10_000);
        assert_eq!(rd_kafka_event_type(event), RD_KAFKA_EVENT_FETCH);
        let message = rd_kafka_event_message_next(event);
        let mut kind = 0;
        assert_eq!(rd_kafka_message_timestamp(message, &raw mut kind), 1_700_000_000_000);
        assert_eq!(kind, RD_KAFKA_TIMESTAMP_CREATE_TIME);
        let mut headers = null_mut();
        assert_eq!(rd_kafka_message_headers(message, &raw mut headers), RD_KAFKA_RESP_ERR_NO_ERROR);
        let (mut value, mut size) = (null(), 0);
        let found = rd_kafka_header_get_last(headers, c"trace".as_ptr(), &raw mut value, &raw mut size);
        assert_eq!((found, size), (RD_KAFKA_RESP_ERR_NO_ERROR, 3));
        rd_kafka_event_destroy(event);
        // The end is no message: an error, of a partition.
        let event = rd_kafka_queue_poll(queue, 10_000);
        assert_eq!(rd_kafka_event_type(event), RD_KAFKA_EVENT_ERROR);
        assert_eq!(rd_kafka_event_error(event), RD_KAFKA_RESP_ERR__PARTITION_EOF);
        assert!(rd_kafka_event_message_next(event).is_null() && rd_kafka_event_message_count(event) == 0);
        assert_eq!(CStr::from_ptr(rd_kafka_event_error_string(event)), END_OF_PARTITION);
        let at = rd_kafka_event_topic_partition(event);
        assert_eq!((CStr::from_ptr((*at).topic), (*at).partition, (*at).offset), (c"orders", 0, 1));
        rd_kafka_topic_partition_destroy(at);
        rd_kafka_event_destroy(event);
        let mut metadata = null();
        assert_eq!(
            rd_kafka_metadata(rk, 1, null_mut(), &raw mut metadata, 10_000),
            RD_KAFKA_RESP_ERR_NO_ERROR
        );
        // The group's topic, `__consumer_offsets`, is among all topics, as in Apache Kafka.
        assert_eq!(((*metadata).broker_cnt, (*metadata).topic_cnt), (1, 2));
        assert_eq!(responder_of(metadata), (1, format!("{}/1", broker.bootstrap_servers())));
        // Known by now, and no broker need be asked.
        let cluster_id = rd_kafka_clusterid(rk, 0);
        assert!(!cluster_id.is_null());
        rd_kafka_mem_free(rk, cluster_id.cast());
        assert_eq!(CStr::from_ptr((*(*metadata).topics.add(1)).topic), c"orders");
        rd_kafka_metadata_destroy(metadata);
        rd_kafka_queue_destroy(queue);
        rd_kafka_destroy(rk);
    }
}

/// The names came with replacement characters in place of their bytes.
#[test]
fn names_of_headers_that_are_not_utf8_arrive_as_they_were_sent() {
    const NAME: &CStr = c"caf\xe9";
    let broker = broker(1);
    let rk = new(RD_KAFKA_PRODUCER, conf(&broker, &[]));
    unsafe {
        let headers = rd_kafka_headers_new(1);
        rd_kafka_header_add(headers, NAME.as_ptr(), -1, c"noir".as_ptr().cast(), -1);
        let header = rd_kafka_vu_header_t { name: NAME.as_ptr(), val: c"noir".as_ptr().cast(), size: -1 };
        for part in [
            rd_kafka_vu_t { vtype: RD_KAFKA_VTYPE_HEADERS, u: rd_kafka_vu_value_t { headers } },
            rd_kafka_vu_t { vtype: RD_KAFKA_VTYPE_HEADER, u: rd_kafka_vu_value_t { header } },
        ] {
            let topic = rd_kafka_vu_value_t { cstr: c"orders".as_ptr() };
            let parts = [rd_kafka_vu_t { vtype: RD_KAFKA_VTYPE_TOPIC, u: topic }, part];
            assert!(rd_kafka_produceva(rk, parts.as_ptr(), parts.len()).is_null());
        }
        assert_eq!(rd_kafka_flush(rk, 60_000), RD_KAFKA_RESP_ERR_NO_ERROR);
        rd_kafka_destroy(rk);

        let rk = new(RD_KAFKA_CONSUMER, conf(&broker, &[]));
        let list = rd_kafka_topic_partition_list_new(1);
        rd_kafka_topic_partition_list_add(list, c"orders".as_ptr(), 0);
        assert_eq!(rd_kafka_assign(rk, list), RD_KAFKA_RESP_ERR_NO_ERROR);
        rd_kafka_topic_partition_list_destroy(list);
        for _ in 0..2 {
            let message = rd_kafka_consumer_poll(rk, 60_000);
            assert_eq!((*message).err, RD_KAFKA_RESP_ERR_NO_ERROR);
            let mut headers = null_mut();
            assert_eq!(rd_kafka_message_headers(message, &raw mut headers), RD_KAFKA_RESP_ERR_NO_ERROR);
            assert_eq!((*headers).iter().collect::<Vec<_>>(), [(NAME, Some(&b"noir"[..]))]);
            rd_kafka_message_destroy(message);
        }
        rd_kafka_destroy(rk);
    }
}

/// They came back with the next question: a program that had taken them over got them twice.
#[test]
fn detached_headers_of_a_report_do_not_come_back() {
    let broker = broker(1);
    let rk = new(RD_KAFKA_PRODUCER, conf(&broker, &[("enabled_events", "0x1")]));
    unsafe {
        let headers = rd_kafka_headers_new(1);
        rd_kafka_header_add(headers, c"trace".as_ptr(), -1, c"abc".as_ptr().cast(), -1);
        let topic = rd_kafka_vu_value_t { cstr: c"orders".as_ptr() };
        let parts = [
            rd_kafka_vu_t { vtype: RD_KAFKA_VTYPE_TOPIC, u: topic },
            rd_kafka_vu_t { vtype: RD_KAFKA_VTYPE_HEADERS, u: rd_kafka_vu_value_t { headers } },
        ];
        assert!(rd_kafka_produceva(rk, parts.as_ptr(), parts.len()).is_null());
        let queue = rd_kafka_queue_get_main(rk);
        let event = rd_kafka_queue_poll(queue, 60_000);
        let message = rd_kafka_event_message_next(event).cast_mut();
        let (mut detached, mut others) = (null_mut(), null_mut());
        assert_eq!(rd_kafka_message_detach_headers(message, &raw mut detached), RD_KAFKA_RESP_ERR_NO_ERROR);
        assert_eq!((*detached).iter().count(), 1);
        assert_eq!(rd_kafka_message_headers(message, &raw mut others), RD_KAFKA_RESP_ERR__NOENT);
        rd_kafka_headers_destroy(detached);
        rd_kafka_event_destroy(event);
        rd_kafka_queue_destroy(queue);
        rd_kafka_destroy(rk);
    }
}
