//! Waiting until all clients are gone: alone in its process, where no test of another file has one.

#![allow(unsafe_code, reason = "C's functions")]
#![allow(clippy::disallowed_methods, reason = "a test is a shell: it may use threads")]
#![allow(clippy::undocumented_unsafe_blocks, reason = "a test calls as C does")]
#![allow(
    clippy::wildcard_imports,
    clippy::unwrap_used,
    reason = "C's names, and a test that stops where it must"
)]

mod common;

use std::ffi::c_void;
use std::ptr::null;
use std::sync::Mutex;
use std::time::Duration;

use common::{conf, new};
use rdkafka::admin::*;
use rdkafka::client::handle::*;
use rdkafka::client::thread_count::*;
use rdkafka::conf::*;
use rdkafka::errors::error_object::rd_kafka_last_error;
use rdkafka::ffi::*;
use rdkafka::queue::event::*;
use rdkafka::queue::queue_handle::*;

/// The tests of this file count the clients of the process: one runs at a time.
static ONE: Mutex<()> = Mutex::new(());

#[test]
fn a_program_can_wait_until_its_clients_are_gone() {
    let _one = ONE.lock().unwrap();
    assert_eq!(rd_kafka_wait_destroyed(0), 0, "there is none yet");
    let rk = new(RD_KAFKA_PRODUCER, conf(&[]));
    assert_eq!(rd_kafka_wait_destroyed(50), -1);
    assert_eq!(rd_kafka_last_error(), RD_KAFKA_RESP_ERR__TIMED_OUT);
    let address = rk.addr();
    let destroying = std::thread::spawn(move || unsafe {
        rd_kafka_destroy(std::ptr::without_provenance_mut(address));
    });
    assert_eq!(rd_kafka_wait_destroyed(60_000), 0);
    destroying.join().unwrap();
}

/// Asks for the background queue while the end of the client waits for this call.
unsafe extern "C" fn in_background(rk: *mut rd_kafka_t, event: *mut rd_kafka_event_t, _: *mut c_void) {
    unsafe { rd_kafka_event_destroy(event) };
    // Long enough for the end to begin. If it begins later, the test still passes.
    for _ in 0..100 {
        std::thread::sleep(Duration::from_millis(1));
        unsafe { rd_kafka_queue_destroy(rd_kafka_queue_get_background(rk)) };
    }
}

/// The request for the queue started a second thread, which never ended and kept the client.
#[test]
fn the_background_queue_of_a_client_that_ends_gets_no_second_thread() {
    let _one = ONE.lock().unwrap();
    // No broker listens on this port, so the request stays pending until its client ends.
    let conf = conf(&[("bootstrap.servers", "127.0.0.1:1"), ("log_level", "0")]);
    unsafe {
        rd_kafka_conf_set_background_event_cb(conf, Some(in_background));
        let rk = new(RD_KAFKA_PRODUCER, conf);
        let background = rd_kafka_queue_get_background(rk);
        rd_kafka_ListConsumerGroups(rk, null(), background);
        rd_kafka_queue_destroy(background);
        rd_kafka_destroy(rk);
    }
    assert_eq!(rd_kafka_wait_destroyed(60_000), 0);
}
