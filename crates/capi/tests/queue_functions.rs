//! The length of a queue, and the functions and descriptors of the application that learn of its events.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use ottla_broker::Broker;
use rdkafka::client::handle::*;
use rdkafka::consume::group_consumer::*;
use rdkafka::ffi::*;
use rdkafka::messages::message::*;
use rdkafka::messages::partition_list::*;
use rdkafka::produce::flush::*;
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
