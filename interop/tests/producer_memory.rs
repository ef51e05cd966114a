//! The producer's memory stays within its limit, whatever the broker does. A single test, because it measures the
//! process.

#![allow(clippy::disallowed_methods, reason = "a test is a shell: it may use threads and real time")]

use std::time::Duration;

use ottla_client::{Config, ProduceErrorKind, Producer, Purge, Record};
use ottla_interop::{Failure, OttlaBroker};
use rustix::process::Signal;

/// Timeout of each flush and each delivery.
const PATIENCE: Duration = Duration::from_secs(120);

const BUFFER_BYTES: usize = 16 << 20;
/// Memory in addition to the buffer: connections, requests, allocator.
const SLACK_BYTES: usize = 16 << 20;
const OFFERED: u64 = 10_000_000;
const PARTITIONS: i32 = 10_000;

#[test]
fn memory_stays_within_its_bound_while_the_broker_stands_still_and_with_very_many_partitions()
-> Result<(), Failure> {
    let many = format!("many:{PARTITIONS}");
    let mut broker =
        OttlaBroker::start(&["--durability", "memory", "--topic", "orders:1", "--topic", &many])?;
    a_stopped_broker(&mut broker);
    one_record_in_each_of_many_partitions(&broker);
    Ok(())
}

fn producer(broker: &OttlaBroker) -> Producer {
    let mut config = Config::new(broker.bootstrap());
    config.buffer_memory = BUFFER_BYTES;
    config.delivery_reports = true;
    Producer::new(config).expect("a producer")
}

fn a_stopped_broker(broker: &mut OttlaBroker) {
    let producer = producer(broker);
    let orders = producer.topic("orders");
    orders.send_unobserved_blocking(Record::to("orders").value("first")).expect("taken");
    producer.flush_blocking(PATIENCE).expect("acknowledged");
    let before = resident_bytes();
    broker.process().signal(Signal::STOP);
    let value = [b'x'; 100];
    let (mut taken, mut refused, mut used_max, mut resident_max) = (0_u64, 0_u64, 0, 0);
    for number in 0..OFFERED {
        match orders.try_send_unobserved(Record::to("orders").value(&value)) {
            Ok(()) => taken += 1,
            Err(error) => {
                assert!(matches!(error.kind, ProduceErrorKind::QueueFull { .. }), "{error}");
                refused += 1;
            }
        }
        if number % 50_000 == 0 {
            used_max = used_max.max(producer.buffered_bytes());
            resident_max = resident_max.max(resident_bytes());
        }
    }
    broker.process().signal(Signal::CONT);
    assert!(refused > OFFERED / 2 && taken > 100_000, "{taken} taken, {refused} refused");
    assert!(used_max <= BUFFER_BYTES, "{used_max} bytes of {BUFFER_BYTES}");
    let grown = resident_max.saturating_sub(before);
    assert!(grown <= BUFFER_BYTES + SLACK_BYTES, "the process grew by {grown} bytes");
    // The broker resumes, and every accepted record arrives.
    producer.flush_blocking(PATIENCE).expect("acknowledged");
    let reports = producer.reports().expect("they are on");
    let reported: u64 = std::iter::from_fn(|| reports.try_next())
        .map(|report| {
            report.result().expect("written");
            report.len() as u64
        })
        .sum();
    assert_eq!(reported, taken + 1);
}

fn one_record_in_each_of_many_partitions(broker: &OttlaBroker) {
    let mut config = Config::new(broker.bootstrap());
    config.buffer_memory = BUFFER_BYTES;
    // Nothing is sent before every partition has its record.
    config.linger = Some(PATIENCE / 2);
    let producer = Producer::new(config).expect("a producer");
    let many = producer.topic("many");
    let before = resident_bytes();
    let deliveries: Vec<_> = (0..PARTITIONS)
        .map(|partition| many.enqueue_blocking(Record::to("many").partition(partition).value("one")))
        .collect::<Result<_, _>>()
        .expect("every record finds room");
    assert!(producer.buffered_bytes() <= BUFFER_BYTES, "{}", producer.buffered_bytes());
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown <= BUFFER_BYTES + SLACK_BYTES, "the process grew by {grown} bytes");
    producer.flush_blocking(PATIENCE).expect("acknowledged");
    for delivery in deliveries {
        delivery.wait(PATIENCE).expect("in time").expect("written");
    }
    assert_eq!(producer.buffered_bytes(), 0);
    // Records that cannot be sent can be purged.
    drop(many.enqueue_blocking(Record::to("many").partition(0).value("late")));
    producer.purge(Purge { queued: true, in_flight: true });
    producer.flush_blocking(PATIENCE).expect("purged");
}

fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("a line about it");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<usize>().ok()).expect("a number") * 1024
}
