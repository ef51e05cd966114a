//! The length of a queue, and the functions and descriptors of the application that learn of its events.

use std::ffi::{CStr, c_void};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use ottla_broker::Broker;
use rdkafka::admin::*;
use rdkafka::client::handle::*;
use rdkafka::conf::callbacks::*;
use rdkafka::consume::group_consumer::*;
use rdkafka::errors::error_object::*;
use rdkafka::ffi::*;
use rdkafka::messages::message::*;
use rdkafka::messages::partition_list::*;
use rdkafka::produce::flush::*;
use rdkafka::produce::producer::*;
use rdkafka::queue::event::*;
use rdkafka::queue::queue_handle::*;
use rdkafka::queue::queue_poll::*;

use crate::common::{PATIENCE, conf, list, new, produce, until};

/// Queues that the function uses.
struct Stage {
    rk: *mut rd_kafka_t,
    /// The queues of another client.
    others: [*mut rd_kafka_queue_t; 2],
    calls: AtomicUsize,
}

unsafe extern "C" fn use_queues(_: *mut rd_kafka_t, opaque: *mut c_void) {
    let stage = unsafe { &*opaque.cast::<Stage>() };
    stage.calls.fetch_add(1, Ordering::Relaxed);
    unsafe {
        rd_kafka_queue_forward(stage.others[0], stage.others[1]);
        rd_kafka_queue_forward(stage.others[0], null_mut());
        rd_kafka_queue_destroy(rd_kafka_queue_get_partition(stage.rk, c"orders".as_ptr(), 1));
    }
}

/// The function was called under a lock that all clients share, and never returned.
#[test]
fn a_queue_function_may_forward_queues_of_another_client() {
    let (done, finished) = mpsc::channel();
    // A thread that is blocked for good does not end the test.
    std::thread::spawn(move || unsafe {
        let clients = ["a", "b"].map(|group| new(RD_KAFKA_CONSUMER, conf(&[("group.id", group)])));
        let [rk, other] = clients;
        let others = [rd_kafka_queue_get_main(other), rd_kafka_queue_new(other)];
        let stage = Stage { rk, others, calls: AtomicUsize::new(0) };
        let application = rd_kafka_queue_new(rk);
        let opaque = std::ptr::from_ref(&stage).cast_mut().cast();
        rd_kafka_queue_cb_event_enable(application, Some(use_queues), opaque);
        let own = [rd_kafka_queue_get_main(rk), rd_kafka_queue_get_partition(rk, c"orders".as_ptr(), 0)];
        for queue in own {
            // An event that the forwarding moves.
            rd_kafka_queue_forward(queue, null_mut());
            rd_kafka_CreateTopics(rk, null_mut(), 1, null(), queue);
            until("the refusal", || rd_kafka_queue_length(queue) > 0);
            // The function is called once until the next poll.
            rd_kafka_event_destroy(rd_kafka_queue_poll(application, 0));
            let before = stage.calls.load(Ordering::Relaxed);
            rd_kafka_queue_forward(queue, application);
            assert!(stage.calls.load(Ordering::Relaxed) > before, "the function is called");
        }
        rd_kafka_queue_cb_event_enable(application, None, null_mut());
        for queue in own.into_iter().chain(others).chain([application]) {
            rd_kafka_queue_destroy(queue);
        }
        for rk in clients {
            rd_kafka_destroy(rk);
        }
        done.send(()).unwrap();
    });
    finished.recv_timeout(PATIENCE).expect("the functions return");
}

/// Fetched records were not counted: a program that waited until its queue had some waited for good.
#[test]
fn the_length_of_a_queue_counts_fetched_records() {
    let broker = Broker::builder().memory().topic("orders", 2).spawn().unwrap();
    let servers = broker.bootstrap_servers();
    let producer = new(RD_KAFKA_PRODUCER, conf(&[("bootstrap.servers", &servers)]));
    for number in 0..20 {
        produce(producer, c"orders", number % 2, "paid", null_mut());
    }
    unsafe {
        assert_eq!(rd_kafka_flush(producer, 60_000), RD_KAFKA_RESP_ERR_NO_ERROR);
        rd_kafka_destroy(producer);
    }
    let rk = new(RD_KAFKA_CONSUMER, conf(&[("bootstrap.servers", &servers), ("group.id", "g")]));
    unsafe {
        let (own, apart) =
            (rd_kafka_queue_get_consumer(rk), rd_kafka_queue_get_partition(rk, c"orders".as_ptr(), 1));
        rd_kafka_queue_forward(apart, null_mut());
        let partitions = list(&[(c"orders", 0), (c"orders", 1)]);
        for entry in std::slice::from_raw_parts_mut((*partitions).elems, 2) {
            entry.offset = 0;
        }
        assert_eq!(rd_kafka_assign(rk, partitions), RD_KAFKA_RESP_ERR_NO_ERROR);
        rd_kafka_topic_partition_list_destroy(partitions);
        for queue in [own, apart] {
            until("its records are fetched", || rd_kafka_queue_length(queue) >= 10);
            let message = rd_kafka_consume_queue(queue, 60_000);
            assert_eq!((*message).err, RD_KAFKA_RESP_ERR_NO_ERROR);
            rd_kafka_message_destroy(message);
            assert_eq!(rd_kafka_queue_length(queue), 9, "those that were fetched with it are counted");
            rd_kafka_queue_destroy(queue);
        }
        rd_kafka_destroy(rk);
    }
}

unsafe extern "C" fn count_message(_: *mut rd_kafka_message_t, opaque: *mut c_void) {
    unsafe { &*opaque.cast::<AtomicUsize>() }.fetch_add(1, Ordering::Relaxed);
}

/// The limit of the client's topics applied to the call: it returned while the queue had messages.
#[test]
fn one_call_consumes_all_messages_of_a_queue_whatever_the_limit_of_topics() {
    let broker = Broker::builder().memory().topic("orders", 1).spawn().unwrap();
    let servers = broker.bootstrap_servers();
    let producer = new(RD_KAFKA_PRODUCER, conf(&[("bootstrap.servers", &servers)]));
    for _ in 0..5 {
        produce(producer, c"orders", 0, "paid", null_mut());
    }
    unsafe {
        assert_eq!(rd_kafka_flush(producer, 60_000), RD_KAFKA_RESP_ERR_NO_ERROR);
        rd_kafka_destroy(producer);
    }
    let limit = ("consume.callback.max.messages", "2");
    let rk = new(RD_KAFKA_CONSUMER, conf(&[("bootstrap.servers", &servers), ("group.id", "g"), limit]));
    unsafe {
        let queue = rd_kafka_queue_get_partition(rk, c"orders".as_ptr(), 0);
        rd_kafka_queue_forward(queue, null_mut());
        let partitions = list(&[(c"orders", 0)]);
        (*(*partitions).elems).offset = 0;
        assert_eq!(rd_kafka_assign(rk, partitions), RD_KAFKA_RESP_ERR_NO_ERROR);
        rd_kafka_topic_partition_list_destroy(partitions);
        until("its messages are fetched", || rd_kafka_queue_length(queue) >= 5);
        let seen = AtomicUsize::new(0);
        let opaque: *mut c_void = std::ptr::from_ref(&seen).cast_mut().cast();
        let count = rd_kafka_consume_callback_queue(queue, 60_000, Some(count_message), opaque);
        assert_eq!((count, seen.load(Ordering::Relaxed)), (5, 5));
        rd_kafka_queue_destroy(queue);
        rd_kafka_destroy(rk);
    }
}

/// Each event wrote a payload, whatever waited already.
#[test]
fn a_descriptor_learns_of_the_first_event_after_a_poll() {
    let rk = new(RD_KAFKA_PRODUCER, conf(&[]));
    let mut ends = [0; 2];
    unsafe {
        assert_eq!(libc::pipe2(ends.as_mut_ptr(), libc::O_NONBLOCK), 0);
        let queue = rd_kafka_queue_new(rk);
        rd_kafka_queue_io_event_enable(queue, ends[1], c"1".as_ptr().cast(), 1);
        // A request whose array is not there is refused before it returns.
        for requests in [3, 1] {
            for _ in 0..requests {
                rd_kafka_CreateTopics(rk, null_mut(), 1, null(), queue);
            }
            let mut bytes = [0_u8; 8];
            assert_eq!(libc::read(ends[0], bytes.as_mut_ptr().cast(), bytes.len()), 1);
            for _ in 0..requests {
                let event = rd_kafka_queue_poll(queue, 0);
                assert!(!event.is_null());
                rd_kafka_event_destroy(event);
            }
        }
        rd_kafka_queue_io_event_enable(queue, -1, null(), 0);
        rd_kafka_queue_destroy(queue);
        rd_kafka_destroy(rk);
        for end in ends {
            assert_eq!(libc::close(end), 0);
        }
    }
}

/// It had no error, although each of its messages had one.
#[test]
fn an_event_of_delivery_reports_has_the_error_of_its_batch() {
    let conf = conf(&[("bootstrap.servers", "127.0.0.1:1")]);
    unsafe {
        rd_kafka_conf_set_events(conf, RD_KAFKA_EVENT_DR);
        let rk = new(RD_KAFKA_PRODUCER, conf);
        let queue = rd_kafka_queue_get_main(rk);
        produce(rk, c"orders", 0, "paid", null_mut());
        assert_eq!(rd_kafka_purge(rk, RD_KAFKA_PURGE_F_QUEUE), RD_KAFKA_RESP_ERR_NO_ERROR);
        let event = rd_kafka_queue_poll(queue, 60_000);
        assert_eq!(rd_kafka_event_type(event), RD_KAFKA_EVENT_DR);
        assert_eq!(rd_kafka_event_error(event), RD_KAFKA_RESP_ERR__PURGE_QUEUE);
        let text = CStr::from_ptr(rd_kafka_event_error_string(event));
        assert_eq!(text, CStr::from_ptr(rd_kafka_err2str(RD_KAFKA_RESP_ERR__PURGE_QUEUE)));
        assert_eq!((*rd_kafka_event_message_next(event)).err, RD_KAFKA_RESP_ERR__PURGE_QUEUE);
        rd_kafka_event_destroy(event);
        rd_kafka_queue_destroy(queue);
        rd_kafka_destroy(rk);
    }
}

/// The number was that of all messages: a program that took messages until none remained did not end.
#[test]
fn an_event_counts_the_messages_that_remain() {
    let conf = conf(&[("bootstrap.servers", "127.0.0.1:1")]);
    unsafe {
        rd_kafka_conf_set_events(conf, RD_KAFKA_EVENT_DR);
        let rk = new(RD_KAFKA_PRODUCER, conf);
        let queue = rd_kafka_queue_get_main(rk);
        for _ in 0..3 {
            produce(rk, c"orders", 0, "paid", null_mut());
        }
        assert_eq!(rd_kafka_purge(rk, RD_KAFKA_PURGE_F_QUEUE), RD_KAFKA_RESP_ERR_NO_ERROR);
        let mut seen = 0;
        while seen < 3 {
            let event = rd_kafka_queue_poll(queue, 60_000);
            assert!(!event.is_null());
            for remaining in (1..=rd_kafka_event_message_count(event)).rev() {
                assert_eq!(rd_kafka_event_message_count(event), remaining);
                assert!(!rd_kafka_event_message_next(event).is_null());
                seen += 1;
            }
            assert_eq!(rd_kafka_event_message_count(event), 0);
            assert!(rd_kafka_event_message_next(event).is_null());
            rd_kafka_event_destroy(event);
        }
        rd_kafka_queue_destroy(queue);
        rd_kafka_destroy(rk);
    }
}
