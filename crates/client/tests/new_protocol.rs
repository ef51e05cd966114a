//! Stories of members of the KIP-848 protocol: responses that are lost, and members that are fenced.

#![allow(clippy::disallowed_methods, reason = "a test is a shell: it may use threads")]

use std::time::Duration;

use ottla_broker::{ApiKey, Broker, BrokerThread, ErrorCode, Fault, FaultRule};
use ottla_client::{Client, Config, Event, LogLine, Record};

use crate::seats::{Seats, block_on};

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

/// The member joined again before it had released its partitions, and took the new ones of the target from before.
#[test]
fn a_member_of_the_new_protocol_that_is_fenced_during_a_revocation_takes_nothing_of_its_old_target() {
    let broker = broker();
    let cluster = broker.cluster();
    let by_range = [("group.remote.assignor", "range")];
    let mut config = member(&broker);
    config.set_all(by_range).expect("known properties");
    let own = [("client.id", "a"), ("socket.timeout.ms", "1000"), ("debug", "cgrp"), ("log.queue", "true")];
    let mut seats = Seats { forgetful: true, ..Seats::default() };
    let mut first = config.clone();
    first.set_all(own).expect("known properties");
    seats.join("a", first, &["orders"]);
    seats.settle("one has a topic", 2);

    // It cannot begin with the second topic, until it must give up a partition of the first one.
    let refused = Fault::Fail(ErrorCode::CoordinatorLoadInProgress);
    let rule = FaultRule::new(ApiKey::OffsetFetch, refused).client_id("a").times(u32::MAX);
    cluster.add_fault(rule).expect("a sound rule");
    let consumer = seats.seat("a").consumer.as_mut().expect("a consumer");
    let (control, log) = (consumer.control().clone(), consumer.client().log_lines());
    let asked = cluster.requests(ApiKey::OffsetFetch);
    block_on(consumer.subscribe(&["orders", "invoices"])).expect("subscribed");
    seats.drive("it has both topics", |_| cluster.requests(ApiKey::OffsetFetch) > asked);
    seats.seat("a").stalls = true;
    seats.join("b", config, &["orders", "invoices"]);
    seats.drive("a partition is to be given up", |_| !control.unseen_revocations().is_empty());
    cluster.clear_intercepts_of(ApiKey::OffsetFetch);
    let fenced = Fault::Fail(ErrorCode::FencedMemberEpoch);
    let rule = FaultRule::new(ApiKey::ConsumerGroupHeartbeat, fenced).client_id("a");
    cluster.add_fault(rule).expect("a sound rule");
    let is_fenced = |line: LogLine| line.text.to_lowercase().contains("fenced");
    seats.drive("it is fenced", |_| std::iter::from_fn(|| log.try_next()).any(is_fenced));

    seats.seat("a").stalls = false;
    let is_revocation = |event: &Event| matches!(event, Event::Revoked(_));
    let after = |seats: &Seats| {
        let events = &seats.list[0].events;
        events.iter().position(is_revocation).and_then(|at| events.get(at + 1)).cloned()
    };
    seats.drive("it has lost the others", |seats| after(seats).is_some());
    let next = after(&seats);
    assert!(matches!(&next, Some(Event::Lost(lost)) if lost.len() == 1), "{next:?}");
    seats.settle("two share both topics", 4);
}

/// The whole assignment waited for the name of each topic, and a name that was not found was looked up ten times a second.
#[test]
fn a_topic_without_a_name_keeps_no_other_topic_from_a_member_of_the_new_protocol() {
    let broker = broker();
    let cluster = broker.cluster();
    let client = Client::new(member(&broker)).expect("a client");
    // The client knows the name of this topic. A pattern makes it look up the other one by its id.
    client.producer().send_blocking(Record::to("orders").value("paid")).expect("acknowledged");
    let unknown = Fault::Fail(ErrorCode::UnknownTopicId);
    let rule = FaultRule::new(ApiKey::Metadata, unknown).topic("invoices").times(u32::MAX);
    cluster.add_fault(rule).expect("a sound rule");
    let mut seats = Seats::default();
    seats.join_with("a", client.consumer(), &["^(orders|invoices)$"]);
    seats.settle("it has the topic with a name", 2);
    let lookups = cluster.requests(ApiKey::Metadata);
    seats.drive_for(Duration::from_secs(2));
    let lookups = cluster.requests(ApiKey::Metadata) - lookups;
    assert!((1..12).contains(&lookups), "{lookups} lookups");

    cluster.clear_intercepts_of(ApiKey::Metadata);
    seats.settle("it has both topics", 4);
    let seat = seats.seat("a");
    let is_taken = |event: &Event| matches!(event, Event::Revoked(_) | Event::Lost(_));
    assert!(
        seat.errors.is_empty() && !seat.events.iter().any(is_taken),
        "{:?} {:?}",
        seat.errors,
        seat.events
    );
}

/// The names of topics were a part of the member's own work: topics with known names waited for those of others, and a member that was
/// fenced meanwhile kept its partitions for up to `socket.timeout.ms`.
#[test]
fn a_lookup_of_a_name_that_takes_long_delays_no_other_topic_and_no_member_that_is_fenced() {
    let broker = broker();
    let cluster = broker.cluster();
    let mut config = member(&broker);
    // Longer than the patience of the test.
    config.set("socket.timeout.ms", "120000").expect("a known property");
    let client = Client::new(config).expect("a client");
    client.producer().send_blocking(Record::to("orders").value("paid")).expect("acknowledged");
    let rule = FaultRule::new(ApiKey::Metadata, Fault::Hang).topic("invoices").times(u32::MAX);
    cluster.add_fault(rule).expect("a sound rule");
    let mut seats = Seats::default();
    seats.join_with("a", client.consumer(), &["^(orders|invoices)$"]);
    seats.settle("it has the topic with a known name", 2);

    cluster.intercept(ApiKey::ConsumerGroupHeartbeat, None, 1, Fault::Fail(ErrorCode::FencedMemberEpoch));
    let is_lost = |event: &Event| matches!(event, Event::Lost(_));
    seats.drive("it gives its partitions up", |seats| seats.list[0].events.iter().any(is_lost));
    seats.settle("it has joined again", 2);
}

/// The offsets were looked up again and again for up to `socket.timeout.ms` before the member noticed that it was fenced.
#[test]
fn a_member_of_the_new_protocol_that_is_fenced_while_it_looks_up_offsets_joins_again_at_once() {
    let broker = broker();
    let cluster = broker.cluster();
    let mut config = member(&broker);
    config.set("socket.timeout.ms", "120000").expect("a known property");
    let loading = Fault::Fail(ErrorCode::CoordinatorLoadInProgress);
    cluster.intercept(ApiKey::OffsetFetch, None, u32::MAX, loading);
    cluster.requests(ApiKey::OffsetFetch);
    let mut seats = Seats::default();
    seats.join("a", config, &["orders"]);
    seats.drive("it looks offsets up", |_| cluster.requests(ApiKey::OffsetFetch) > 0);

    let beats = cluster.requests(ApiKey::ConsumerGroupHeartbeat);
    cluster.intercept(ApiKey::ConsumerGroupHeartbeat, None, 1, Fault::Fail(ErrorCode::FencedMemberEpoch));
    // No heartbeat follows the refused one before the member has noticed it.
    seats.drive("it joins again", |_| cluster.requests(ApiKey::ConsumerGroupHeartbeat) >= beats + 3);
    cluster.clear_intercepts_of(ApiKey::OffsetFetch);
    seats.settle("it has its partitions", 2);
}
