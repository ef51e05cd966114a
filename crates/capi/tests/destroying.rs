//! After `rd_kafka_destroy` has begun, no function of the application starts; before it returns, all have returned.

#![allow(unsafe_code, reason = "C's functions")]
#![allow(clippy::disallowed_methods, reason = "a test is a shell: it may use threads and time")]
#![allow(clippy::undocumented_unsafe_blocks, reason = "a test calls as C does")]
#![allow(
    clippy::wildcard_imports,
    clippy::unwrap_used,
    reason = "C's names, and a test that stops where it must"
)]

use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use ottla_broker::{Broker, BrokerThread};
use rdkafka::client::handle::*;
use rdkafka::conf::*;
use rdkafka::ffi::*;
use rdkafka::messages::partition_list::*;
use rdkafka::queue::poll::*;
use rdkafka::queue::queue_handle::*;

use crate::common::{conf, list, new, produce, subscribe, until};

fn broker() -> BrokerThread {
    Broker::builder().memory().topic("orders", 2).spawn().expect("a broker in memory")
}

/// The calls of one client's functions.
#[derive(Default)]
struct Calls {
    begun: AtomicUsize,
    running: AtomicUsize,
    without_opaque: AtomicUsize,
    /// The application is about to call `rd_kafka_destroy`.
    destroying: AtomicBool,
    /// A call waits for `destroying`.
    slow: AtomicBool,
    destroyed: AtomicBool,
    after_destroy: AtomicUsize,
}

impl Calls {
    fn opaque(&self) -> *mut c_void {
        std::ptr::from_ref(self).cast_mut().cast()
    }

    unsafe fn of<'a>(opaque: *mut c_void) -> &'a Self {
        unsafe { &*opaque.cast::<Self>() }
    }

    fn call(&self, check: impl Fn()) {
        self.begun.fetch_add(1, Ordering::SeqCst);
        self.running.fetch_add(1, Ordering::SeqCst);
        if self.destroyed.load(Ordering::SeqCst) {
            self.after_destroy.fetch_add(1, Ordering::SeqCst);
        }
        check();
        if self.slow.load(Ordering::SeqCst) {
            until("the client is destroyed", || self.destroying.load(Ordering::SeqCst));
            // Long enough for a destroy that does not wait; one that waits makes no difference.
            for _ in 0..100 {
                std::thread::sleep(std::time::Duration::from_millis(1));
                check();
            }
        }
        self.running.fetch_sub(1, Ordering::SeqCst);
    }

    fn destroy(&self, rk: *mut rd_kafka_t) {
        self.destroying.store(true, Ordering::SeqCst);
        unsafe { rd_kafka_destroy(rk) };
        self.destroyed.store(true, Ordering::SeqCst);
    }
}

/// The calls of the only client that logs at the moment: a line has no other argument than the client.
static LOGGING: std::sync::Mutex<()> = std::sync::Mutex::new(());
static CALLS: std::sync::atomic::AtomicPtr<Calls> = std::sync::atomic::AtomicPtr::new(std::ptr::null_mut());

unsafe extern "C" fn on_log(rk: *const rd_kafka_t, _: c_int, _: *const c_char, _: *const c_char) {
    let calls = unsafe { &*CALLS.load(Ordering::SeqCst) };
    calls.call(|| {
        let opaque = unsafe { rd_kafka_opaque(rk) };
        if opaque.is_null() {
            calls.without_opaque.fetch_add(1, Ordering::SeqCst);
        }
    });
}

fn logging(kind: rd_kafka_type_t, address: &str, calls: &Calls) -> *mut rd_kafka_t {
    CALLS.store(std::ptr::from_ref(calls).cast_mut(), Ordering::SeqCst);
    let properties = [("bootstrap.servers", address), ("debug", "all"), ("group.id", "g")];
    let conf = conf(&properties[..if kind == RD_KAFKA_CONSUMER { 3 } else { 2 }]);
    unsafe {
        rd_kafka_conf_set_opaque(conf, calls.opaque());
        rd_kafka_conf_set_log_cb(conf, Some(on_log));
    }
    new(kind, conf)
}

#[test]
fn the_log_function_runs_neither_after_destroy_nor_without_its_opaque() {
    let _one = LOGGING.lock().unwrap();
    let broker = broker();
    let address = broker.bootstrap_servers();
    let all: Vec<Calls> = (0..60).map(|_| Calls::default()).collect();
    for (index, calls) in all.iter().enumerate() {
        let kind = if index % 2 == 0 { RD_KAFKA_PRODUCER } else { RD_KAFKA_CONSUMER };
        let rk = logging(kind, &address, calls);
        if kind == RD_KAFKA_PRODUCER {
            produce(rk, c"orders", 0, "value", std::ptr::null_mut());
        } else {
            subscribe(rk, c"orders");
        }
        until("a line", || calls.begun.load(Ordering::SeqCst) > index % 7);
        calls.destroy(rk);
        assert_eq!(calls.running.load(Ordering::SeqCst), 0, "client {index}");
    }
    std::thread::sleep(std::time::Duration::from_millis(200));
    for (index, calls) in all.iter().enumerate() {
        assert_eq!(calls.without_opaque.load(Ordering::SeqCst), 0, "client {index}");
        assert_eq!(calls.after_destroy.load(Ordering::SeqCst), 0, "client {index}");
    }
}

#[test]
fn destroy_waits_for_the_log_function_and_keeps_the_opaque_until_then() {
    let _one = LOGGING.lock().unwrap();
    let broker = broker();
    let calls = Calls::default();
    let rk = logging(RD_KAFKA_PRODUCER, &broker.bootstrap_servers(), &calls);
    // The first lines come while the client is created, in this thread.
    calls.slow.store(true, Ordering::SeqCst);
    produce(rk, c"orders", 0, "value", std::ptr::null_mut());
    until("a line", || calls.running.load(Ordering::SeqCst) > 0);
    calls.destroy(rk);
    assert_eq!(calls.running.load(Ordering::SeqCst), 0);
    assert_eq!(calls.without_opaque.load(Ordering::SeqCst), 0);
    assert_eq!(calls.after_destroy.load(Ordering::SeqCst), 0);
}

unsafe extern "C" fn on_event(_: *mut rd_kafka_t, opaque: *mut c_void) {
    unsafe { Calls::of(opaque) }.call(|| {});
}

#[test]
fn the_function_of_a_queue_does_not_run_after_destroy() {
    let broker = broker();
    let address = broker.bootstrap_servers();
    let all: Vec<Calls> = (0..20).map(|_| Calls::default()).collect();
    let mut queues = Vec::new();
    for calls in &all {
        let rk = new(RD_KAFKA_CONSUMER, conf(&[("bootstrap.servers", &address), ("group.id", "g")]));
        unsafe {
            let queue = rd_kafka_queue_get_consumer(rk);
            rd_kafka_queue_cb_event_enable(queue, Some(on_event), calls.opaque());
            let partitions = list(&[(c"orders", 0), (c"orders", 1)]);
            rdkafka::consume::group_consumer::rd_kafka_assign(rk, partitions);
            rd_kafka_topic_partition_list_destroy(partitions);
            assert!(rd_kafka_consumer_poll(rk, 0).is_null());
            calls.destroy(rk);
            queues.push(queue);
        }
    }
    std::thread::sleep(std::time::Duration::from_millis(200));
    for calls in &all {
        assert_eq!(calls.after_destroy.load(Ordering::SeqCst), 0);
        assert_eq!(calls.running.load(Ordering::SeqCst), 0);
    }
    for queue in queues {
        unsafe { rd_kafka_queue_destroy(queue) };
    }
}

/// A thread of the client was in the function while the application freed what its opaque points to.
#[test]
fn the_function_of_a_queue_has_returned_once_it_is_disabled() {
    let broker = broker();
    let calls = Calls::default();
    calls.slow.store(true, Ordering::SeqCst);
    let conf = conf(&[("bootstrap.servers", &broker.bootstrap_servers())]);
    unsafe { rd_kafka_conf_set_events(conf, RD_KAFKA_EVENT_DR) };
    let rk = new(RD_KAFKA_PRODUCER, conf);
    unsafe {
        let queue = rd_kafka_queue_get_main(rk);
        rd_kafka_queue_cb_event_enable(queue, Some(on_event), calls.opaque());
        produce(rk, c"orders", 0, "value", std::ptr::null_mut());
        until("a call", || calls.running.load(Ordering::SeqCst) > 0);
        calls.destroying.store(true, Ordering::SeqCst);
        rd_kafka_queue_cb_event_enable(queue, None, std::ptr::null_mut());
        assert_eq!(calls.running.load(Ordering::SeqCst), 0);
        rd_kafka_queue_destroy(queue);
        rd_kafka_destroy(rk);
    }
}

/// The queue was closed where the last use of its handle ended: here, after the function of another thread had returned.
#[test]
fn the_function_of_a_queue_has_returned_once_the_queue_is_destroyed() {
    let calls = Calls::default();
    calls.slow.store(true, Ordering::SeqCst);
    let rk = new(RD_KAFKA_PRODUCER, conf(&[("bootstrap.servers", "127.0.0.1:1"), ("log_level", "0")]));
    unsafe {
        let queue = rd_kafka_queue_new(rk);
        rd_kafka_queue_cb_event_enable(queue, Some(on_event), calls.opaque());
        let address = queue.addr();
        let yielding = std::thread::spawn(move || {
            rd_kafka_queue_yield(std::ptr::without_provenance_mut(address));
        });
        until("a call", || calls.running.load(Ordering::SeqCst) > 0);
        calls.destroying.store(true, Ordering::SeqCst);
        rd_kafka_queue_destroy(queue);
        assert_eq!(calls.running.load(Ordering::SeqCst), 0);
        yielding.join().unwrap();
        rd_kafka_destroy(rk);
    }
}

unsafe extern "C" fn count(_: *mut rd_kafka_t, opaque: *mut c_void) {
    // SAFETY: the counter of the test.
    unsafe { &*opaque.cast::<AtomicUsize>() }.fetch_add(1, Ordering::SeqCst);
}

/// The queue lived on as the target of the other one, with the function and an object that the application had freed.
#[test]
fn the_function_of_a_queue_does_not_run_after_the_queue_is_destroyed() {
    let broker = broker();
    let calls = AtomicUsize::new(0);
    let rk = new(RD_KAFKA_PRODUCER, conf(&[("bootstrap.servers", &broker.bootstrap_servers())]));
    unsafe {
        let queue = rd_kafka_queue_new(rk);
        rd_kafka_queue_cb_event_enable(queue, Some(count), (&raw const calls).cast_mut().cast());
        let main = rd_kafka_queue_get_main(rk);
        rd_kafka_queue_forward(main, queue);
        rd_kafka_yield(rk);
        until("a call", || calls.load(Ordering::SeqCst) > 0);
        rd_kafka_queue_destroy(queue);
        let before = calls.load(Ordering::SeqCst);
        rd_kafka_yield(rk);
        assert_eq!(calls.load(Ordering::SeqCst), before);
        rd_kafka_queue_destroy(main);
        rd_kafka_destroy(rk);
    }
}
