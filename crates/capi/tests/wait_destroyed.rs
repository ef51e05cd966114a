//! Waiting until all clients are gone: alone in its process, where no other test has one.

#![allow(unsafe_code, reason = "C's functions")]
#![allow(clippy::disallowed_methods, reason = "a test is a shell: it may use threads")]
#![allow(clippy::undocumented_unsafe_blocks, reason = "a test calls as C does")]
#![allow(
    clippy::wildcard_imports,
    clippy::unwrap_used,
    reason = "C's names, and a test that stops where it must"
)]

mod common;

use common::*;
use rdkafka::client::handle::*;
use rdkafka::client::thread_count::*;
use rdkafka::errors::error_object::rd_kafka_last_error;
use rdkafka::ffi::*;

#[test]
fn a_program_can_wait_until_its_clients_are_gone() {
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
