//! Members that leave their group before the coordinator has answered that they are members. Sessions last longer than the
//! tests, so that a member that stays would be noticed.

#![allow(clippy::disallowed_methods, reason = "a test is a shell: it may use threads")]

use std::time::{Duration, Instant};

use ottla_broker::{ApiKey, Broker, BrokerThread, Fault};
use ottla_client::{Admin, Client, Config, Consumer, Event, Polled};

use crate::seats::{PATIENCE, block_on};

const LATE: Duration = Duration::from_millis(500);

fn member(broker: &BrokerThread, protocol: &str) -> Config {
    let mut config = Config::new(broker.bootstrap_servers());
    config.set_all([("group.id", "billing"), ("group.protocol", protocol)]).expect("known properties");
    if protocol == "classic" {
        let lasting = [("session.timeout.ms", "600000"), ("max.poll.interval.ms", "600000")];
        config.set_all(lasting).expect("known properties");
    }
    config
}

/// A broker that answers the first request of this kind late.
fn broker(late: ApiKey) -> BrokerThread {
    let broker = Broker::builder()
        .memory()
        .topic("orders", 2)
        .topic("refunds", 1)
        .spawn()
        .expect("a broker in memory");
    broker.cluster().intercept(late, None, 1, Fault::AnswerAfter(LATE));
    broker
}

/// Waits for a request that the broker answers late.
fn wait_for_request(broker: &BrokerThread, api: ApiKey) {
    let deadline = Instant::now() + PATIENCE;
    while broker.cluster().requests(api) == 0 {
        assert!(Instant::now() < deadline, "{api:?} is sent");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn wait_for_partitions(consumer: &mut Consumer, wanted: usize) {
    let mut owned = 0;
    poll_until(consumer, &format!("the member owns {wanted} partitions"), |event| {
        match event {
            Event::Assigned(partitions) => owned += partitions.len(),
            Event::Revoked(partitions) => owned -= partitions.len(),
            _ => {}
        }
        owned == wanted
    });
}

/// Waits until a member that has subscribed to `refunds` owns its partition.
fn wait_for_rebalance(consumer: &mut Consumer) {
    poll_until(
        consumer,
        "the member owns the partition of refunds",
        |event| matches!(event, Event::Assigned(partitions) if partitions.iter().any(|at| &*at.topic == "refunds")),
    );
}

fn poll_until(consumer: &mut Consumer, what: &str, mut is_seen: impl FnMut(&Event) -> bool) {
    let deadline = Instant::now() + PATIENCE / 2;
    loop {
        assert!(Instant::now() < deadline, "in time: {what}");
        let polled = consumer.poll_blocking(Duration::from_millis(100)).expect("no error");
        if matches!(&polled, Some(Polled::Event(event)) if is_seen(event)) {
            return;
        }
    }
}

/// librdkafka's test 0045 (`do_test_subscribe_many_updates`) on a busy machine: the coordinator had named a member that never
/// joined, and the next rebalance waited for it until its session timed out.
#[test]
fn a_subscription_that_ends_before_the_coordinator_names_the_member_delays_no_rebalance() {
    let broker = broker(ApiKey::JoinGroup);
    let mut consumer = Consumer::new(member(&broker, "classic")).expect("a consumer");
    let control = consumer.control().clone();
    control.subscribe(&["orders"]).wait(PATIENCE).expect("subscribed");
    wait_for_request(&broker, ApiKey::JoinGroup);
    control.unsubscribe(PATIENCE).wait(PATIENCE).expect("unsubscribed");
    control.subscribe(&["orders"]).wait(PATIENCE).expect("subscribed");
    wait_for_partitions(&mut consumer, 2);
    control.subscribe(&["refunds"]).wait(PATIENCE).expect("subscribed");
    wait_for_rebalance(&mut consumer);
}

/// The consumer stayed in its group, as a member without topics.
#[test]
fn a_subscription_without_topics_leaves_the_group() {
    let broker = Broker::builder().memory().topic("orders", 2).spawn().expect("a broker in memory");
    let mut consumer = Consumer::new(member(&broker, "classic")).expect("a consumer");
    block_on(consumer.subscribe(&["orders"])).expect("subscribed");
    wait_for_partitions(&mut consumer, 2);
    assert_eq!(broker.cluster().requests(ApiKey::LeaveGroup), 0);
    block_on(consumer.subscribe(&[])).expect("unsubscribed");
    assert_eq!(broker.cluster().requests(ApiKey::LeaveGroup), 1);
    assert!(consumer.positions().is_empty(), "{:?}", consumer.positions());
}

#[test]
fn a_consumer_that_closes_before_it_is_a_member_leaves_no_member() {
    for (protocol, api) in [("classic", ApiKey::JoinGroup), ("consumer", ApiKey::ConsumerGroupHeartbeat)] {
        let broker = broker(api);
        let closed = Consumer::new(member(&broker, protocol)).expect("a consumer");
        closed.control().subscribe(&["orders"]).wait(PATIENCE).expect("subscribed");
        wait_for_request(&broker, api);
        closed.close_blocking(PATIENCE).expect("closed");

        let mut next = Consumer::new(member(&broker, protocol)).expect("a consumer");
        next.control().subscribe(&["orders"]).wait(PATIENCE).expect("subscribed");
        wait_for_partitions(&mut next, 2);
        next.control().subscribe(&["refunds"]).wait(PATIENCE).expect("subscribed");
        wait_for_rebalance(&mut next);
    }
}

#[test]
fn a_share_consumer_that_closes_before_it_is_a_member_leaves_no_member() {
    let broker = broker(ApiKey::ShareGroupHeartbeat);
    let mut config = Config::new(broker.bootstrap_servers());
    config.set("group.id", "workers").expect("a known property");
    let mut consumer =
        Client::new(config.clone()).expect("a client").share_consumer().expect("a share consumer");
    consumer.subscribe_blocking(&["orders"], PATIENCE).expect("subscribed");
    wait_for_request(&broker, ApiKey::ShareGroupHeartbeat);
    consumer.close_blocking(PATIENCE).expect("closed");

    let admin = Admin::new(config).expect("an admin");
    let group = block_on(admin.describe_share_groups(&["workers"])).expect("described");
    assert!(group[0].members.is_empty(), "{group:?}");
}
