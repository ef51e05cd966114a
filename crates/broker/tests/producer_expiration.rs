//! Partitions forget idle producers after `producer.id.expiration.ms`, which can change while the broker runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Instant;

use ottla_broker::{Broker, Clock};
use ottla_protocol::ErrorCode;
use ottla_protocol::messages::describe_producers::{DescribeProducersRequest, TopicRequest};
use ottla_protocol::messages::incremental_alter_configs::{
    AlterConfigsResource, AlterableConfig, IncrementalAlterConfigsRequest,
};
use ottla_wire::Seal;

use crate::common::{PATIENCE, Raw, batch, numbered, produce_request};

const NOW_MS: i64 = 1_700_000_000_000;
/// The type of a resource in requests about configurations.
const BROKER: i8 = 4;

fn send(connection: &mut Raw, producer_id: i64) {
    let answer = connection.produce("orders", -1, &numbered((producer_id, 0), 0, &[b"x"]));
    assert_eq!(answer.error_code, ErrorCode::None);
}

/// Sends the first record of a transaction.
fn send_in_transaction(connection: &mut Raw, producer_id: i64) {
    let seal =
        Seal { producer_id, producer_epoch: 0, base_sequence: 0, transactional: true, ..Seal::default() };
    let mut request = produce_request("orders", -1, &batch(&[b"x"], &seal));
    request.transactional_id = Some("t".into());
    let answer = connection.ask(11, &request).expect("an answer");
    assert_eq!(answer.responses[0].partition_responses[0].error_code, ErrorCode::None);
}

fn producers(connection: &mut Raw) -> Vec<i64> {
    let topics = vec![TopicRequest { name: "orders".into(), partition_indexes: vec![0] }];
    let answer = connection.ask(0, &DescribeProducersRequest { topics }).expect("an answer");
    answer.topics[0].partitions[0].active_producers.iter().map(|state| state.producer_id).collect()
}

/// Waits until the partition has these producers and no others.
fn await_producers(connection: &mut Raw, expected: &[i64]) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let found = producers(connection);
        if found == expected {
            return;
        }
        assert!(Instant::now() < deadline, "{found:?} are known, not {expected:?}");
        std::thread::yield_now();
    }
}

/// Changes the expiration of all brokers.
fn set_expiration(connection: &mut Raw, ms: &str) {
    let config = AlterableConfig {
        name: "producer.id.expiration.ms".into(),
        config_operation: 0,
        value: Some(ms.into()),
    };
    let resource =
        AlterConfigsResource { resource_type: BROKER, resource_name: String::new(), configs: vec![config] };
    let request = IncrementalAlterConfigsRequest { resources: vec![resource], validate_only: false };
    let answer = connection.ask(1, &request).expect("an answer");
    assert_eq!(answer.responses[0].error_code, ErrorCode::None);
}

/// The settings had no effect: producers stayed for a day.
#[test]
fn idle_producers_are_forgotten_after_the_time_that_is_set_at_the_start_or_later() {
    let clock = Arc::new(AtomicI64::new(NOW_MS));
    let builder = Broker::builder().memory().topic("orders", 1).clock(Clock::Fixed(clock.clone()));
    let builder = builder.configure(|config| {
        config.set("producer.id.expiration.ms", "10000").expect("a property");
        config.set("producer.id.expiration.check.interval.ms", "5").expect("a property");
    });
    let broker = builder.spawn().expect("a broker in memory");
    broker.cluster().set_transactions_approved(true);
    let mut connection = Raw::connect(broker.addresses()[0]);
    let set_clock = |after_ms: i64| clock.store(NOW_MS + after_ms, Ordering::Relaxed);

    send_in_transaction(&mut connection, 5);
    send(&mut connection, 7);
    set_clock(6000);
    send(&mut connection, 8);
    assert_eq!(producers(&mut connection), [5, 7, 8]);
    set_clock(10_000);
    await_producers(&mut connection, &[5, 8]);

    set_expiration(&mut connection, "100000");
    set_clock(60_000);
    send(&mut connection, 9);
    assert_eq!(producers(&mut connection), [5, 8, 9]);
    set_clock(106_000);
    // The check that forgets producer 8 sees producer 9 idle for 46 seconds.
    await_producers(&mut connection, &[5, 9]);

    set_expiration(&mut connection, "100");
    // Producer 5 has an open transaction.
    await_producers(&mut connection, &[5]);
    broker.stop();
}
