//! Functions of a consumer for partitions that are not assigned.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::{Duration, Instant};

use ottla_broker::{Broker, BrokerThread};
use rdkafka::client::client_interceptors::*;
use rdkafka::client::handle::*;
use rdkafka::client::topic_handle::*;
use rdkafka::conf::conf_interceptors::*;
use rdkafka::consume::group_consumer::*;
use rdkafka::consume::leave_group::*;
use rdkafka::consume::offsets::*;
use rdkafka::consume::rebalance_protocol::*;
use rdkafka::consume::simple_consumer::*;
use rdkafka::errors::error_object::*;
use rdkafka::ffi::*;
use rdkafka::messages::message::*;
use rdkafka::messages::partition_list::*;
use rdkafka::produce::flush::*;
use rdkafka::queue::poll::*;
use rdkafka::queue::queue_handle::*;

use crate::common::{conf, list, new, produce, read, until};

const OK: rd_kafka_resp_err_t = RD_KAFKA_RESP_ERR_NO_ERROR;
const UNKNOWN: rd_kafka_resp_err_t = RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION;
const INVALID: rd_kafka_resp_err_t = RD_KAFKA_RESP_ERR__INVALID_ARG;

/// A broker, a consumer, and the consumer's handle of the topic `orders`.
struct Stage {
    _broker: BrokerThread,
    rk: *mut rd_kafka_t,
    orders: *mut rd_kafka_topic_t,
}

impl Stage {
    fn new() -> Self {
        let broker = Broker::builder().memory().topic("orders", 2).topic("more", 1).spawn().unwrap();
        let servers = broker.bootstrap_servers();
        let rk = new(RD_KAFKA_CONSUMER, conf(&[("bootstrap.servers", servers.as_str()), ("group.id", "g")]));
        let orders = unsafe { rd_kafka_topic_new(rk, c"orders".as_ptr(), null_mut()) };
        Self { _broker: broker, rk, orders }
    }

    /// Assigns partition 1 of `orders` from its beginning on.
    fn assign(&self) {
        let partitions = list(&[(c"orders", 1)]);
        unsafe {
            (*(*partitions).elems).offset = RD_KAFKA_OFFSET_BEGINNING;
            assert_eq!(rd_kafka_assign(self.rk, partitions), OK);
            rd_kafka_topic_partition_list_destroy(partitions);
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        unsafe {
            rd_kafka_topic_destroy(self.orders);
            rd_kafka_destroy(self.rk);
        }
    }
}

/// Calls a function with a partition. Returns the error and the offset of the entry.
fn entry_of(
    topic: &CStr,
    offset: i64,
    call: impl FnOnce(*mut rd_kafka_topic_partition_list_t),
) -> (rd_kafka_resp_err_t, i64) {
    let partitions = list(&[(topic, 0)]);
    unsafe {
        (*(*partitions).elems).offset = offset;
        call(partitions);
        let entry = &*(*partitions).elems;
        let result = (entry.err, entry.offset);
        rd_kafka_topic_partition_list_destroy(partitions);
        result
    }
}

#[test]
fn a_known_partition_that_is_not_assigned_is_not_unknown() {
    let stage = Stage::new();
    let rk = stage.rk;
    let seek = |topic| {
        entry_of(topic, 0, |partitions| unsafe {
            assert!(rd_kafka_seek_partitions(rk, partitions, -1).is_null());
        })
    };
    assert_eq!((seek(c"orders").0, seek(c"more").0), (RD_KAFKA_RESP_ERR__STATE, UNKNOWN));
    assert_eq!(unsafe { rd_kafka_seek(stage.orders, 0, 0, 1000) }, RD_KAFKA_RESP_ERR__STATE);
    for (topic, expected) in [(c"orders", OK), (c"more", UNKNOWN)] {
        let paused = entry_of(topic, 0, |partitions| unsafe {
            assert_eq!(rd_kafka_pause_partitions(rk, partitions), OK);
        });
        let resumed = entry_of(topic, 0, |partitions| unsafe {
            assert_eq!(rd_kafka_resume_partitions(rk, partitions), OK);
        });
        assert_eq!((paused.0, resumed.0), (expected, expected), "{topic:?}");
    }
    let position = entry_of(c"more", 5, |partitions| unsafe {
        assert_eq!(rd_kafka_position(rk, partitions), OK);
    });
    assert_eq!(position, (OK, RD_KAFKA_OFFSET_INVALID));
    let (mut low, mut high) = (0, 0);
    let known =
        unsafe { rd_kafka_get_watermark_offsets(rk, c"orders".as_ptr(), 0, &raw mut low, &raw mut high) };
    assert_eq!((known, low, high), (OK, RD_KAFKA_OFFSET_INVALID, RD_KAFKA_OFFSET_INVALID));
}

/// The call failed with an invalid argument, and the offsets kept what the application had in them.
#[test]
fn a_producer_knows_no_watermarks_and_the_call_succeeds() {
    let rk = new(RD_KAFKA_PRODUCER, conf(&[]));
    let (mut low, mut high) = (0, 0);
    let code =
        unsafe { rd_kafka_get_watermark_offsets(rk, c"orders".as_ptr(), 0, &raw mut low, &raw mut high) };
    assert_eq!((code, low, high), (OK, RD_KAFKA_OFFSET_INVALID, RD_KAFKA_OFFSET_INVALID));
    unsafe { rd_kafka_destroy(rk) };
}

/// A partition was unknown after its assignment, unless the application had received a message of its topic.
#[test]
fn a_partition_that_was_assigned_is_known() {
    let rk = new(RD_KAFKA_CONSUMER, conf(&[("group.id", "g"), ("enable.auto.offset.store", "false")]));
    for topic in [c"orders", c"more"] {
        let partitions = list(&[(topic, 0)]);
        unsafe {
            (*(*partitions).elems).offset = 3;
            assert_eq!(rd_kafka_pause_partitions(rk, partitions), OK);
            assert_eq!((*(*partitions).elems).err, UNKNOWN);
            if topic == c"orders" {
                assert_eq!(rd_kafka_assign(rk, partitions), OK);
                assert_eq!(rd_kafka_assign(rk, null()), OK);
            } else {
                assert!(rd_kafka_incremental_assign(rk, partitions).is_null());
                assert!(rd_kafka_incremental_unassign(rk, partitions).is_null());
            }
            assert_eq!(rd_kafka_offsets_store(rk, partitions), RD_KAFKA_RESP_ERR__STATE);
            assert_eq!(rd_kafka_pause_partitions(rk, partitions), OK);
            assert_eq!((*(*partitions).elems).err, OK);
            rd_kafka_topic_partition_list_destroy(partitions);
        }
    }
    unsafe { rd_kafka_destroy(rk) };
}

/// An offset below -1 was an invalid argument, and a partition that the topic does not have was like one that is not assigned.
#[test]
fn a_stored_offset_below_0_is_removed_and_a_missing_partition_is_unknown() {
    let stage = Stage::new();
    stage.assign();
    let store = |partition, offset| unsafe { rd_kafka_offset_store(stage.orders, partition, offset) };
    until("the metadata has come", || store(9, 3) == UNKNOWN);
    for (partition, offset, expected) in [
        (9, -5, UNKNOWN),
        (0, 3, RD_KAFKA_RESP_ERR__STATE),
        (0, -1, RD_KAFKA_RESP_ERR__STATE),
        (0, -5, OK),
        (RD_KAFKA_PARTITION_UA, 3, RD_KAFKA_RESP_ERR__STATE),
        (1, 3, OK),
        (1, -5, OK),
    ] {
        assert_eq!(store(partition, offset), expected, "{partition} {offset}");
    }
    unsafe {
        assert_eq!(rd_kafka_commit(stage.rk, null(), 0), RD_KAFKA_RESP_ERR__NO_OFFSET);
        assert_eq!(rd_kafka_seek(stage.orders, 9, 0, 1000), UNKNOWN);
        assert_eq!(rd_kafka_seek(stage.orders, 0, 0, 1000), RD_KAFKA_RESP_ERR__STATE);
    }
}

/// The topic that an interceptor uses, and the last results of its calls.
#[derive(Default)]
struct Intercepted {
    topic: AtomicPtr<c_void>,
    results: Mutex<[rd_kafka_resp_err_t; 2]>,
}

unsafe extern "C" fn on_request_sent(
    _rk: *mut rd_kafka_t,
    _sockfd: c_int,
    _broker: *const c_char,
    _node: i32,
    _api_key: i16,
    _version: i16,
    _correlation_id: i32,
    _size: usize,
    opaque: *mut c_void,
) -> rd_kafka_resp_err_t {
    let seen = unsafe { &*opaque.cast::<Intercepted>() };
    let topic: *mut rd_kafka_topic_t = seen.topic.load(Ordering::SeqCst).cast();
    if !topic.is_null() {
        let results = unsafe { [rd_kafka_offset_store(topic, 9, 3), rd_kafka_seek(topic, 9, 0, 0)] };
        *seen.results.lock().unwrap() = results;
    }
    OK
}

unsafe extern "C" fn on_new(
    rk: *mut rd_kafka_t,
    _conf: *const rd_kafka_conf_t,
    opaque: *mut c_void,
    _errstr: *mut c_char,
    _size: usize,
) -> rd_kafka_resp_err_t {
    unsafe { rd_kafka_interceptor_add_on_request_sent(rk, c"test".as_ptr(), Some(on_request_sent), opaque) }
}

/// Both functions waited for the engine, whose thread calls the interceptor, for ever.
#[test]
fn an_interceptor_may_store_and_seek_a_partition_that_is_missing() {
    let broker = Broker::builder().memory().topic("orders", 2).spawn().unwrap();
    let servers = broker.bootstrap_servers();
    let seen = Intercepted::default();
    let conf = conf(&[("bootstrap.servers", servers.as_str()), ("group.id", "g")]);
    unsafe {
        let opaque = (&raw const seen).cast_mut().cast();
        assert_eq!(rd_kafka_conf_interceptor_add_on_new(conf, c"test".as_ptr(), Some(on_new), opaque), OK);
        let rk = new(RD_KAFKA_CONSUMER, conf);
        let orders = rd_kafka_topic_new(rk, c"orders".as_ptr(), null_mut());
        seen.topic.store(orders.cast(), Ordering::SeqCst);
        let partitions = list(&[(c"orders", 1)]);
        assert_eq!(rd_kafka_assign(rk, partitions), OK);
        rd_kafka_topic_partition_list_destroy(partitions);
        until("both calls have returned", || *seen.results.lock().unwrap() == [UNKNOWN; 2]);
        seen.topic.store(null_mut(), Ordering::SeqCst);
        rd_kafka_topic_destroy(orders);
        rd_kafka_destroy(rk);
    }
}

/// It was refused.
#[test]
fn an_offset_below_0_of_a_partition_that_is_not_assigned_is_no_error() {
    let rk = new(RD_KAFKA_CONSUMER, conf(&[("group.id", "g"), ("enable.auto.offset.store", "false")]));
    let orders = unsafe { rd_kafka_topic_new(rk, c"orders".as_ptr(), null_mut()) };
    for (topic, expected) in [(c"orders", OK), (c"more", UNKNOWN)] {
        let stored = entry_of(topic, -5, |partitions| unsafe {
            assert_eq!(rd_kafka_offsets_store(rk, partitions), expected, "{topic:?}");
        });
        assert_eq!(stored, (expected, -5), "{topic:?}");
    }
    unsafe {
        rd_kafka_topic_destroy(orders);
        rd_kafka_destroy(rk);
    }
}

/// It had an empty assignment, and no positions. A simple consumer has positions in librdkafka as well.
#[test]
fn a_consumer_without_a_group_has_positions_and_no_assignment() {
    let rk = new(RD_KAFKA_CONSUMER, conf(&[]));
    let mut assigned = null_mut();
    assert_eq!(unsafe { rd_kafka_assignment(rk, &raw mut assigned) }, RD_KAFKA_RESP_ERR__UNKNOWN_GROUP);
    assert!(assigned.is_null());
    let position = entry_of(c"orders", 5, |partitions| unsafe {
        assert_eq!(rd_kafka_position(rk, partitions), OK);
    });
    assert_eq!(position, (OK, RD_KAFKA_OFFSET_INVALID));
    unsafe { rd_kafka_destroy(rk) };
}

/// It polled until the timeout, had a queue, took assignments and closed.
#[test]
fn the_functions_of_groups_refuse_a_consumer_without_a_group() {
    let rk = new(RD_KAFKA_CONSUMER, conf(&[]));
    let unknown = RD_KAFKA_RESP_ERR__UNKNOWN_GROUP;
    let refused = |error: *mut rd_kafka_error_t, text: &CStr| unsafe {
        assert_eq!(rd_kafka_error_code(error), unknown);
        assert_eq!(CStr::from_ptr(rd_kafka_error_string(error)), text);
        rd_kafka_error_destroy(error);
    };
    unsafe {
        let begun = Instant::now();
        let message = rd_kafka_consumer_poll(rk, 60_000);
        assert!(begun.elapsed() < Duration::from_secs(30));
        assert_eq!((*message).err, unknown);
        rd_kafka_message_destroy(message);

        let partitions = list(&[(c"orders", 0)]);
        let mut topics = null_mut();
        let codes = [
            rd_kafka_poll_set_consumer(rk),
            rd_kafka_subscription(rk, &raw mut topics),
            rd_kafka_subscribe(rk, partitions),
            rd_kafka_unsubscribe(rk),
            rd_kafka_assign(rk, partitions),
            rd_kafka_assign(rk, null()),
            rd_kafka_committed(rk, partitions, 100),
            rd_kafka_commit(rk, partitions, 0),
            rd_kafka_commit_queue(rk, partitions, null_mut(), None, null_mut()),
            rd_kafka_consumer_close(rk),
        ];
        assert_eq!(codes, [unknown; 10]);
        assert!(topics.is_null());
        assert!(rd_kafka_queue_get_consumer(rk).is_null());
        assert!(rd_kafka_rebalance_protocol(rk).is_null());
        let no_group = c"Requires a consumer with group.id configured";
        refused(rd_kafka_incremental_assign(rk, partitions), no_group);
        refused(rd_kafka_incremental_unassign(rk, partitions), no_group);
        let queue = rd_kafka_queue_new(rk);
        refused(rd_kafka_consumer_close_queue(rk, queue), c"Consume close called on non-group consumer");
        assert_eq!(rd_kafka_consumer_closed(rk), 0);
        rd_kafka_queue_destroy(queue);
        rd_kafka_topic_partition_list_destroy(partitions);
        rd_kafka_destroy(rk);
    }
}

/// It was an unknown group, and the texts were our own.
#[test]
fn a_seek_of_a_producer_or_of_no_partition_is_an_invalid_argument() {
    let stage = Stage::new();
    let rk = new(RD_KAFKA_PRODUCER, conf(&[]));
    let (one, none) = (list(&[(c"orders", 0)]), list(&[]));
    let refused = |rk, partitions, text: &CStr| unsafe {
        let error = rd_kafka_seek_partitions(rk, partitions, 0);
        assert_eq!(rd_kafka_error_code(error), INVALID);
        assert_eq!(CStr::from_ptr(rd_kafka_error_string(error)), text);
        rd_kafka_error_destroy(error);
    };
    for partitions in [one, none] {
        refused(rk, partitions, c"Must only be used on consumer instance");
    }
    for partitions in [none, null_mut()] {
        refused(stage.rk, partitions, c"partitions must be specified");
    }
    unsafe {
        for partitions in [one, none] {
            rd_kafka_topic_partition_list_destroy(partitions);
        }
        rd_kafka_destroy(rk);
    }
}

/// The calls for lists failed with `_DESTROY`, and the entries had no errors.
#[test]
fn the_partitions_of_a_closed_consumer_are_not_assigned() {
    let stage = Stage::new();
    stage.assign();
    let rk = stage.rk;
    assert_eq!(unsafe { rd_kafka_consumer_close(rk) }, OK);
    assert_eq!(unsafe { rd_kafka_seek(stage.orders, 1, 0, 60_000) }, RD_KAFKA_RESP_ERR__STATE);
    for (topic, paused, sought) in [(c"orders", OK, RD_KAFKA_RESP_ERR__STATE), (c"more", UNKNOWN, UNKNOWN)] {
        let seek = entry_of(topic, 0, |partitions| unsafe {
            assert!(rd_kafka_seek_partitions(rk, partitions, 60_000).is_null());
        });
        assert_eq!(seek.0, sought, "{topic:?}");
        for call in [rd_kafka_pause_partitions, rd_kafka_resume_partitions] {
            let entry = entry_of(topic, 0, |partitions| assert_eq!(unsafe { call(rk, partitions) }, OK));
            assert_eq!(entry.0, paused, "{topic:?}");
        }
    }
}

#[test]
fn a_seek_refuses_the_stored_offset_and_no_partition() {
    let stage = Stage::new();
    stage.assign();
    unsafe {
        assert_eq!(rd_kafka_seek(stage.orders, RD_KAFKA_PARTITION_UA, 0, 1000), INVALID);
        assert_eq!(rd_kafka_seek(stage.orders, 1, RD_KAFKA_OFFSET_STORED, 1000), INVALID);
        assert_eq!(rd_kafka_seek(stage.orders, 1, 0, 60_000), OK);
    }
}

/// It was allowed at once. librdkafka looks up the committed offset first, and bindings test that.
#[test]
fn a_seek_is_refused_until_the_committed_offset_is_known() {
    let stage = Stage::new();
    let nowhere = [("bootstrap.servers", "127.0.0.1:1"), ("group.id", "g")];
    let unreachable = new(RD_KAFKA_CONSUMER, conf(&nowhere));
    let state = RD_KAFKA_RESP_ERR__STATE;
    unsafe {
        let seek = |rk, partitions: *mut rd_kafka_topic_partition_list_t| {
            let count = usize::try_from((*partitions).cnt).unwrap();
            for place in 0..count {
                (*(*partitions).elems.add(place)).offset = 1;
            }
            assert!(rd_kafka_seek_partitions(rk, partitions, 60_000).is_null());
            (0..count).map(|place| (*(*partitions).elems.add(place)).err).collect::<Vec<_>>()
        };
        let partitions = list(&[(c"orders", 0), (c"orders", 1), (c"orders", 2)]);
        (*(*partitions).elems.add(1)).offset = 5;
        (*(*partitions).elems.add(2)).offset = RD_KAFKA_OFFSET_BEGINNING;
        assert_eq!(rd_kafka_assign(unreachable, partitions), OK);
        assert_eq!(seek(unreachable, partitions), [state, OK, OK]);
        // A pause does not start it.
        assert_eq!(rd_kafka_pause_partitions(unreachable, partitions), OK);
        assert_eq!(seek(unreachable, partitions), [state, OK, OK]);
        rd_kafka_topic_partition_list_destroy(partitions);
        rd_kafka_destroy(unreachable);

        let partition = list(&[(c"orders", 0)]);
        assert_eq!(rd_kafka_assign(stage.rk, partition), OK);
        until("the partition has started", || seek(stage.rk, partition) == [OK]);
        rd_kafka_topic_partition_list_destroy(partition);
    }
}

#[test]
fn a_seek_without_a_timeout_does_not_wait_for_its_result() {
    let stage = Stage::new();
    let seek = |topic| {
        entry_of(topic, 0, |partitions| unsafe {
            assert!(rd_kafka_seek_partitions(stage.rk, partitions, 0).is_null());
        })
    };
    assert_eq!((seek(c"orders").0, seek(c"more").0), (RD_KAFKA_RESP_ERR__IN_PROGRESS, UNKNOWN));
    assert_eq!(unsafe { rd_kafka_seek(stage.orders, 0, 0, 0) }, OK);
}

/// librdkafka keeps them with the topic. They were -1001 until the partition was fetched again.
#[test]
fn the_watermarks_of_a_partition_outlast_its_assignment() {
    let broker = Broker::builder().memory().topic("orders", 1).spawn().unwrap();
    let servers = broker.bootstrap_servers();
    let properties = [("bootstrap.servers", servers.as_str()), ("group.id", "g")];
    let producer = new(RD_KAFKA_PRODUCER, conf(&properties[..1]));
    produce(producer, c"orders", 0, "paid", null_mut());
    let rk = new(RD_KAFKA_CONSUMER, conf(&properties));
    let partitions = list(&[(c"orders", 0)]);
    unsafe {
        assert_eq!(rd_kafka_flush(producer, 60_000), OK);
        (*(*partitions).elems).offset = RD_KAFKA_OFFSET_BEGINNING;
        assert_eq!(rd_kafka_assign(rk, partitions), OK);
        assert_eq!(read(rk, 1), ["paid"]);
        let known = || {
            let (mut low, mut high) = (-1, -1);
            let topic = c"orders".as_ptr();
            let code = rd_kafka_get_watermark_offsets(rk, topic, 0, &raw mut low, &raw mut high);
            (code, low, high)
        };
        assert_eq!(known(), (OK, 0, 1));
        assert_eq!(rd_kafka_assign(rk, null()), OK);
        assert_eq!(known(), (OK, 0, 1));
        rd_kafka_topic_partition_list_destroy(partitions);
        rd_kafka_destroy(rk);
        rd_kafka_destroy(producer);
    }
}
