//! Fetching from the nearest replica (KIP-392), on Apache Kafka with two racks.

#![allow(clippy::disallowed_methods, reason = "a test is a shell: it may use real time")]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ottla_client::{
    Admin, Client, Config, Consumer, NewTopic, PolledRecord, Producer, Record, StartAt, TopicPartition,
};
use ottla_interop::{Failure, KafkaCluster, KafkaOptions, Peer, require};

/// Timeout of each wait for records, statistics and leaders.
const PATIENCE: Duration = Duration::from_secs(60);

const RACKS: [&str; 2] = ["attic", "cellar"];

fn run<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(work)
}

fn produce(bootstrap: &str, count: usize) {
    let producer = Producer::new(Config::new(bootstrap)).expect("a producer");
    for _ in 0..count {
        run(producer.send(Record::to("orders").partition(0).value("v"))).expect("written");
    }
}

/// Consumes one record and returns its offset.
fn next(consumer: &mut Consumer) -> i64 {
    match consumer.next_record_blocking(PATIENCE).expect("no error") {
        Some(PolledRecord::Record(record)) => record.offset(),
        other => panic!("{other:?}"),
    }
}

/// The number of fetches to each node so far.
fn fetches(client: &Client) -> BTreeMap<i32, u64> {
    let statistics = client.statistics();
    while statistics.try_next().is_some() {}
    let snapshot = statistics.next_blocking(PATIENCE).expect("statistics in time");
    let snapshot: serde_json::Value = serde_json::from_str(&snapshot.to_json()).expect("JSON");
    let brokers = snapshot["brokers"].as_object().expect("brokers").values();
    let of = |broker: &serde_json::Value| {
        Some((broker["nodeid"].as_i64()? as i32, broker["req"]["Fetch"].as_u64().unwrap_or(0)))
    };
    brokers.filter_map(of).collect()
}

/// Consumes until the node receives most of the fetches.
fn wait_for_source(consumer: &mut Consumer, bootstrap: &str, node: i32) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let before = fetches(consumer.client());
        produce(bootstrap, 5);
        for _ in 0..5 {
            next(consumer);
        }
        let after = fetches(consumer.client());
        // A node that metadata does not list any more is not in the statistics either.
        let grown = |of: i32| after.get(&of).unwrap_or(&0).saturating_sub(*before.get(&of).unwrap_or(&0));
        if grown(node) > 0 && grown(3 - node) == 0 {
            return;
        }
        assert!(Instant::now() < deadline, "node {node} is not what is fetched from: {before:?} {after:?}");
    }
}

#[test]
fn a_consumer_fetches_from_the_replica_in_its_rack_and_from_the_leader_when_that_is_gone()
-> Result<(), Failure> {
    require!(Peer::Java);
    let racks = RACKS.map(|rack| [("broker.rack", rack)]);
    let selector = "org.apache.kafka.common.replica.RackAwareReplicaSelector";
    let options = KafkaOptions {
        properties: &[("replica.selector.class", selector), ("broker.session.timeout.ms", "3000")],
        node_properties: &[&racks[0], &racks[1]],
        ..KafkaOptions::default()
    };
    let mut kafka = KafkaCluster::start_with(2, &options)?;
    let bootstrap = kafka.bootstrap();
    let admin = Admin::new(Config::new(&*bootstrap)).expect("an admin");
    let topic = NewTopic::new("orders").partitions(1).replication(2);
    run(admin.create_topics(&[topic])).expect("created");
    run(admin.await_topic("orders", PATIENCE)).expect("known");
    let described = run(admin.describe_topics(&["orders"])).expect("described");
    let leader = described[0].partitions[0].leader.expect("a leader");
    // Node 1 is also the controller and keeps running: node 2 is stopped, as leader or as replica.
    let follower = 3 - leader;
    produce(&bootstrap, 3);

    let read_from = |node: i32| {
        let mut config = Config::new(&*bootstrap);
        config.set("client.rack", RACKS[node as usize - 1]).expect("known");
        config.set("statistics.interval.ms", "200").expect("known");
        config.set("metadata.max.age.ms", "2000").expect("known");
        let mut consumer = Consumer::new(config).expect("a consumer");
        let first = (TopicPartition::new("orders", 0), StartAt::Beginning);
        run(consumer.assign(&[first])).expect("assigned");
        assert_eq!([0; 3].map(|_| next(&mut consumer)), [0, 1, 2]);
        wait_for_source(&mut consumer, &bootstrap, node);
        consumer
    };
    drop(read_from(leader));
    let mut nearby = read_from(follower);
    let position = nearby.position(&TopicPartition::new("orders", 0)).expect("assigned");

    kafka.kill_node(2)?;
    wait_until_led_by(&admin, 1);
    produce(&bootstrap, 3);
    assert_eq!([0; 3].map(|_| next(&mut nearby)), [0, 1, 2].map(|n| position + n));
    wait_for_source(&mut nearby, &bootstrap, 1);
    Ok(())
}

fn wait_until_led_by(admin: &Admin, node: i32) {
    let deadline = Instant::now() + PATIENCE;
    while !run(admin.describe_topics(&["orders"]))
        .is_ok_and(|topics| topics[0].partitions[0].leader == Some(node))
    {
        assert!(Instant::now() < deadline, "node {node} does not lead");
        std::thread::sleep(Duration::from_millis(100));
    }
}
