//! Members of groups in the classic protocol that cannot look up their committed offsets, because a transaction is open.

#![allow(clippy::disallowed_methods, reason = "a test is a shell: it waits")]

use std::collections::BTreeMap;

use ottla_broker::{ApiKey, Broker, BrokerThread, Fault, FaultRule};
use ottla_client::assignor::{Assignment, Assignor, Member, Topics};
use ottla_client::{Admin, Config, ErrorCode, TopicPartition};

use crate::seats::{Seats, block_on};

const UNSTABLE: Fault = Fault::Fail(ErrorCode::UnstableOffsetCommit);

/// A member that repeats a lookup for longer than a test waits.
fn member(broker: &BrokerThread, properties: &[(&str, &str)]) -> Config {
    let mut config = Config::new(broker.bootstrap_servers());
    let common = [
        ("group.id", "billing"),
        ("auto.offset.reset", "earliest"),
        ("heartbeat.interval.ms", "50"),
        ("metadata.max.age.ms", "200"),
        ("socket.timeout.ms", "120000"),
    ];
    config.set_all(common).expect("known properties");
    config.set_all(properties.iter().copied()).expect("known properties");
    config
}

/// Assigns `orders` to a member that reads only `orders`, and `more` to one that reads both. Alone, the latter gets `orders`.
#[derive(Debug)]
struct Exchange;

impl Assignor for Exchange {
    fn name(&self) -> &'static str {
        "exchange"
    }

    fn is_cooperative(&self) -> bool {
        true
    }

    fn assign(&self, _: &Topics, members: &BTreeMap<String, Member>) -> Assignment {
        let [orders, more] = ["orders", "more"].map(|topic| TopicPartition::new(topic, 0));
        let is_owned = members.values().any(|member| member.owned.contains(&orders));
        let of_member = |member: &Member| match (member.topics.len(), members.len()) {
            (2, 1) => vec![orders.clone()],
            (2, _) => vec![more.clone()],
            _ if is_owned => Vec::new(),
            _ => vec![orders.clone()],
        };
        members.iter().map(|(id, member)| (id.clone(), of_member(member))).collect()
    }
}

/// The partition had no owner until the lookup of the offsets of the other one had failed.
#[test]
fn a_revoked_partition_does_not_wait_for_the_offsets_of_the_one_that_comes_with_its_revocation() {
    let broker = Broker::builder().memory().topic("orders", 1).topic("more", 1).spawn().expect("a broker");
    let config = |name| {
        let own = [("client.id", name), ("partition.assignment.strategy", "exchange")];
        let mut config = member(&broker, &own);
        config.assignor(Exchange);
        config
    };
    let mut seats = Seats::default();
    seats.join("a", config("a"), &["orders", "more"]);
    seats.drive("alone", |seats| seats.owned_by("a").len() == 1);
    let rule = FaultRule::new(ApiKey::OffsetFetch, UNSTABLE).client_id("a").topic("more").times(u32::MAX);
    broker.cluster().add_fault(rule).expect("a sound rule");
    seats.join("b", config("b"), &["orders"]);
    seats.drive("the revoked partition has its next owner", |seats| seats.owned_by("b").len() == 1);
    assert!(seats.owned_by("a").is_empty(), "its offsets are unstable");
    broker.cluster().clear_intercepts();
    seats.settle("the other partition follows", 2);
}

/// The generation of the first member; -1 while it is in none.
fn generation(seats: &Seats) -> i32 {
    let consumer = seats.list[0].consumer.as_ref().expect("a consumer");
    block_on(consumer.group_metadata()).expect("a consumer of a group").generation
}

/// The group noticed the partitions only after the lookup. The long timeout keeps one lookup going, the short one ends each of them.
#[test]
fn new_partitions_do_not_wait_for_the_offsets_of_the_others() {
    for socket_timeout in ["120000", "1000"] {
        let broker = Broker::builder().memory().topic("orders", 2).spawn().expect("a broker");
        broker.cluster().intercept(ApiKey::OffsetFetch, None, u32::MAX, UNSTABLE);
        let admin = Admin::new(member(&broker, &[])).expect("an admin");
        let mut seats = Seats::default();
        seats.join("a", member(&broker, &[("socket.timeout.ms", socket_timeout)]), &["orders"]);
        seats.drive("it has joined", |seats| generation(seats) > 0);
        let first = generation(&seats);
        block_on(admin.create_partitions("orders", 4)).expect("created");
        seats.drive("it has joined again", |seats| generation(seats) > first);
        assert!(seats.owned_by("a").is_empty(), "the offsets are unstable");
        broker.cluster().clear_intercepts();
        seats.settle("it owns all", 4);
    }
}
