//! Functions of the application that a queue calls when it gets something (`rd_kafka_queue_cb_event_enable`).

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use rdkafka::client::handle::*;
use rdkafka::ffi::*;
use rdkafka::queue::queue_handle::*;

use crate::common::{PATIENCE, conf, new};

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
