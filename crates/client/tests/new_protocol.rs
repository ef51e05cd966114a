//! Stories of members of the KIP-848 protocol: responses that are lost, and members that are fenced.

#![allow(clippy::disallowed_methods, reason = "a test is a shell: it may use threads")]

use std::time::Duration;

use ottla_broker::{ApiKey, Broker, BrokerThread, Fault};
use ottla_client::{Config, Event};

use crate::seats::Seats;

/// A broker whose group members send a heartbeat every 100 ms, and that assigns partitions at once.
fn broker() -> BrokerThread {
    let builder = Broker::builder().memory().topic("orders", 2).topic("invoices", 2).configure(|config| {
        for name in ["min.heartbeat.interval.ms", "heartbeat.interval.ms"] {
            config.set(&format!("group.consumer.{name}"), "100").expect("a property");
        }
        config.set("group.consumer.assignment.interval.ms", "0").expect("a property");
    });
    builder.spawn().expect("a broker in memory")
}

fn member(broker: &BrokerThread) -> Config {
    let mut config = Config::new(broker.bootstrap_servers());
    let properties = [
        ("group.id", "billing"),
        ("group.protocol", "consumer"),
        ("auto.offset.reset", "earliest"),
        ("reconnect.backoff.ms", "10"),
        ("reconnect.backoff.max.ms", "50"),
    ];
    config.set_all(properties).expect("known properties");
    config
}

/// The heartbeat after a lost response did not name the owned partitions, so the coordinator did not repeat its assignment. A
/// partition had no reader for good, or the member was fenced.
#[test]
fn a_member_of_the_new_protocol_whose_heartbeat_response_is_lost_keeps_or_gets_its_partitions() {
    for lost in 1..=12 {
        let broker = broker();
        let cluster = broker.cluster();
        let mut seats = Seats::default();
        seats.join("a", member(&broker), &["orders"]);
        seats.settle("one has both", 2);
        let before = cluster.requests(ApiKey::ConsumerGroupHeartbeat);
        cluster.intercept(ApiKey::ConsumerGroupHeartbeat, None, lost - 1, Fault::Delay(Duration::ZERO));
        cluster.intercept(ApiKey::ConsumerGroupHeartbeat, None, 1, Fault::CutAfter);
        seats.join("b", member(&broker), &["orders"]);
        let enough = before + u64::from(lost) + 8;
        seats.drive("the response is lost", |_| cluster.requests(ApiKey::ConsumerGroupHeartbeat) >= enough);
        seats.settle(&format!("two share, response {lost} is lost"), 2);
        for seat in &seats.list {
            let is_lost = seat.events.iter().any(|event| matches!(event, Event::Lost(_)));
            assert!(
                !is_lost && seat.errors.is_empty(),
                "response {lost}: {:?} {:?}",
                seat.events,
                seat.errors
            );
        }
    }
}
