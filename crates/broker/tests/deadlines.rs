//! Connections that only take up room are closed, and idle ones are not.

#![allow(clippy::disallowed_methods, reason = "a test is a shell")]

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use ottla_broker::{Broker, BrokerThread};
use ottla_client::{Config, Producer, Record};
use ottla_protocol::messages::fetch::{FetchPartition, FetchRequest, FetchTopic};
use ottla_protocol::messages::metadata::MetadataRequest;

use crate::common::{Heard, PATIENCE, Raw, framed};

/// The deadline of frames and of writes in these tests.
const SHORT: Duration = Duration::from_millis(300);

fn broker() -> BrokerThread {
    let broker = Broker::builder().memory().topic("orders", 1);
    let short = broker.configure(|config| (config.frame_timeout, config.write_timeout) = (SHORT, SHORT));
    short.spawn().expect("a broker in memory")
}

#[test]
fn a_connection_without_a_first_request_is_closed() {
    let broker = broker();
    assert!(matches!(Raw::connect(broker.addresses()[0]).hear(), Heard::Closed));
}

/// A connection between two requests was closed after the time for a frame, although nothing was unfinished.
#[test]
fn an_idle_connection_outlives_the_deadline_of_a_frame() {
    let broker = broker();
    let mut connection = Raw::connect(broker.addresses()[0]);
    assert!(connection.is_served());
    std::thread::park_timeout(SHORT * 3);
    assert!(connection.is_served());
}

/// With `Duration::MAX` for a time, each connection panicked and was closed.
#[test]
fn the_times_of_a_connection_may_have_no_limit() {
    let broker = Broker::builder().memory().configure(|config| {
        (config.frame_timeout, config.write_timeout) = (Duration::MAX, Duration::MAX);
        (config.connection_idle_max, config.group_initial_delay) = (Duration::MAX, Duration::MAX);
    });
    let broker = broker.spawn().expect("a broker in memory");
    let mut connection = Raw::connect(broker.addresses()[0]);
    assert!(connection.is_served(), "the time for a first request");
    assert!(connection.is_served(), "the time for the next one");
}

#[test]
fn one_byte_now_and_then_does_not_keep_a_frame_open() {
    let broker = broker();
    let request = framed(9, &MetadataRequest::default());
    let mut stream = TcpStream::connect(broker.addresses()[0]).expect("the broker listens");
    let began = Instant::now();
    // The last byte is never sent.
    for byte in request[..request.len() - 1].iter().cycle() {
        if stream.write_all(&[*byte]).is_err() {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "still open");
        std::thread::park_timeout(SHORT / 10);
    }
}

#[test]
fn a_reader_that_never_reads_is_closed() {
    let broker = broker();
    let producer = Producer::new(Config::new(broker.bootstrap_servers())).expect("a producer");
    let value = vec![b'x'; 100_000];
    for _ in 0..300 {
        producer.send_unobserved_blocking(Record::to("orders").value(&value)).expect("taken");
    }
    producer.flush_blocking(PATIENCE).expect("written");
    let partition =
        FetchPartition { partition_max_bytes: i32::MAX, current_leader_epoch: -1, ..Default::default() };
    let topic = FetchTopic { topic: "orders".into(), partitions: vec![partition], ..Default::default() };
    let request = FetchRequest { max_bytes: i32::MAX, topics: vec![topic], ..Default::default() };
    let mut stream = TcpStream::connect(broker.addresses()[0]).expect("the broker listens");
    stream.write_all(&framed(12, &request)).expect("sent");
    let began = Instant::now();
    // The broker does not read while it writes; once it has closed the connection, a write fails.
    while stream.write_all(&[0]).is_ok() {
        assert!(began.elapsed() < PATIENCE, "still open");
        std::thread::park_timeout(SHORT / 10);
    }
}
