//! Topics that do not exist and are created because a client uses them (`auto.create.topics.enable`).

#![allow(clippy::disallowed_methods, reason = "a test is a shell: it may use threads")]

use std::time::{Duration, Instant};

use ottla_broker::{Broker, BrokerThread};
use ottla_client::{Client, Config, OffsetAt, Record, TopicPartition};

/// The deadline of each wait; only a defect exhausts it.
const PATIENCE: Duration = Duration::from_secs(30);

fn broker() -> BrokerThread {
    Broker::builder().memory().topic("orders", 1).spawn().expect("a broker in memory")
}

fn client(broker: &BrokerThread, properties: &[(&str, &str)]) -> Client {
    let mut config = Config::new(broker.bootstrap_servers());
    config.set_all(properties.iter().copied()).expect("known properties");
    Client::new(config).expect("a client")
}

fn await_topic(client: &Client, topic: &str) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let known = client.metadata_blocking(None, PATIENCE).expect("an answer");
        if known.topics.iter().any(|known| known.name == topic && !known.partitions.is_empty()) {
            return;
        }
        assert!(Instant::now() < deadline, "{topic} is not there after {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn produce_one(client: &Client, topic: &str) {
    let delivery = client.producer().enqueue_blocking(Record::to(topic).value("one")).expect("taken");
    delivery.wait(PATIENCE).expect("in time").expect("written");
}

#[test]
fn metadata_creates_a_topic_only_if_it_is_asked_to() {
    let broker = broker();
    let client = client(&broker, &[]);
    let known = client.metadata_blocking(Some(&["payments"]), PATIENCE).expect("an answer");
    assert!(known.topics[0].partitions.is_empty());
    assert_eq!(client.metadata_blocking(None, PATIENCE).expect("an answer").topics.len(), 1);
    client.metadata_creating_blocking(&["payments"], PATIENCE).expect("an answer");
    await_topic(&client, "payments");
}

/// The answer to the look-up became part of the client's metadata, and the producer took the topic for known.
#[test]
fn a_topic_whose_offsets_were_asked_for_in_vain_is_created_by_a_record() {
    let broker = broker();
    let client = client(&broker, &[]);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let unknown = TopicPartition::new("payments", 0);
    let admin = client.admin();
    let offsets = runtime.block_on(async {
        tokio::time::timeout(PATIENCE, admin.list_offsets(&[(unknown, OffsetAt::Latest)]))
            .await
            .expect("in time")
    });
    assert!(offsets.is_err(), "{offsets:?}");
    produce_one(&client, "payments");
}

/// librdkafka's test 0184: the producer waited for the next refresh to learn of partitions that its own application had read.
#[test]
fn partitions_that_the_application_has_read_can_be_produced_to() {
    let broker = broker();
    let (producing, other) = (client(&broker, &[]), client(&broker, &[]));
    produce_one(&producing, "orders");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async { other.admin().create_partitions("orders", 3).await }).expect("created");
    let described = producing.metadata_blocking(Some(&["orders"]), PATIENCE).expect("an answer");
    assert_eq!(described.topics[0].partitions.len(), 3);
    let record = Record::to("orders").partition(2).value("one");
    let delivery = producing.producer().enqueue_blocking(record).expect("taken");
    assert_eq!(delivery.wait(PATIENCE).expect("in time").expect("written").partition, 2);
}

#[test]
fn a_record_creates_its_topic_while_all_topics_are_requested() {
    let broker = broker();
    let client = client(&broker, &[("topic.metadata.refresh.sparse", "false")]);
    produce_one(&client, "orders");
    produce_one(&client, "payments");
}

#[test]
fn a_record_creates_its_topic_beside_a_subscription_to_a_pattern() {
    let broker = broker();
    let client = client(&broker, &[("group.id", "readers")]);
    let mut consumer = client.consumer();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(consumer.subscribe(&["^ord.*"])).expect("subscribed");
    consumer.poll_blocking(Duration::from_millis(100)).expect("no error");
    produce_one(&client, "payments");
}
