//! `flush.messages` and `flush.ms` with the durability `os`: what a power cut leaves.

#![allow(clippy::disallowed_methods, reason = "a test waits")]

use std::sync::Arc;
use std::time::Duration;

use ottla_broker::{Broker, BrokerThread, Durability, TopicConfig};
use ottla_log::storage::mem::MemStorage;
use ottla_log::{Log, LogConfig};
use ottla_protocol::ErrorCode;
use ottla_wire::Seal;

use crate::common::{Raw, batch};

fn start(disk: &MemStorage, durability: Durability, setting: (&str, &str)) -> (BrokerThread, Raw) {
    let mut topic = TopicConfig::default();
    topic.set(setting.0, setting.1).expect("a setting");
    let builder = Broker::builder()
        .configure(|config| config.durability = durability)
        .storage(Arc::new(disk.clone()))
        .topic_with("orders", 1, topic);
    let broker = builder.spawn().expect("a broker");
    let connection = Raw::connect(broker.addresses()[0]);
    (broker, connection)
}

fn produce(connection: &mut Raw, count: usize) {
    for _ in 0..count {
        let response = connection.produce("orders", 1, &batch(&[b"x"], &Seal::default()));
        assert_eq!(response.error_code, ErrorCode::None, "{:?}", response.error_message);
    }
}

/// The end of the log after `count` records and a power cut. A power cut may keep unsynced writes: the least of many counts.
fn end_after_power_cut(setting: (&str, &str), count: usize, pause: Duration) -> i64 {
    let end = |seed| {
        let disk = MemStorage::forgetful();
        let (_broker, mut connection) = start(&disk, Durability::Os, setting);
        produce(&mut connection, count);
        std::thread::sleep(pause);
        disk.crash(&mut fastrand::Rng::with_seed(seed));
        Log::open(Arc::new(disk), "orders-0", LogConfig::default(), 0).map_or(0, |(log, _)| log.end_offset())
    };
    (0..5).map(end).min().unwrap_or(0)
}

#[test]
fn a_produce_request_that_reaches_flush_messages_waits_for_the_disk() {
    for (count, expected) in [(2, 0), (3, 3), (5, 3), (6, 6)] {
        let end = end_after_power_cut(("flush.messages", "3"), count, Duration::ZERO);
        assert_eq!(end, expected, "{count} records");
    }
}

/// The broker looks twice a second.
#[test]
fn records_are_on_disk_after_flush_ms() {
    let pause = |ms| Duration::from_millis(ms);
    assert_eq!(end_after_power_cut(("flush.ms", "100"), 2, pause(1500)), 2);
    assert_eq!(end_after_power_cut(("flush.ms", "9223372036854775807"), 2, pause(700)), 0);
}
