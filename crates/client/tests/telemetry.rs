//! Metrics for brokers that subscribe to them (KIP-714), against the embedded broker.

#![allow(clippy::disallowed_methods, reason = "a test is a shell: it may use threads")]

use std::time::{Duration, Instant};

use ottla_broker::{Broker, BrokerThread, Fault, MockSubscription};
use ottla_client::{
    Admin, AlterOptions, Client, Config, ConfigChange, ConfigResource, ConfigResourceType, Consumer, Error,
    ErrorCode, Producer, Record, Uuid,
};
use ottla_protocol::ApiKey;
use serde_json::Value;

/// The time limit of what is waited for.
const PATIENCE: Duration = Duration::from_secs(60);
const FAST: (&str, &str) = ("interval.ms", "100");
/// An interval that does not pass during a test.
const SLOW: (&str, &str) = ("interval.ms", "3600000");

fn broker(nodes: i32) -> BrokerThread {
    Broker::builder().memory().nodes(nodes).spawn().expect("a broker in memory")
}

fn subscribe(broker: &BrokerThread, settings: &[(&str, &str)]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let admin = Admin::new(config(broker, "admin")).expect("an admin");
        let resource = ConfigResource::new(ConfigResourceType::ClientMetrics, "all");
        let changes =
            settings.iter().map(|(name, value)| ((*name).to_owned(), ConfigChange::Set((*value).to_owned())));
        let answers =
            admin.incremental_alter_configs(&[(resource, changes.collect())], AlterOptions::default()).await;
        answers.expect("an answer").into_iter().for_each(|(_, answer)| answer.expect("subscribed"));
    });
}

fn config(broker: &BrokerThread, client_id: &str) -> Config {
    let mut config = Config::new(broker.bootstrap_servers());
    config.set("client.id", client_id).expect("a name");
    config
}

fn producer(broker: &BrokerThread, client_id: &str) -> Producer {
    Producer::new(config(broker, client_id)).expect("a producer")
}

fn send(producer: &Producer, count: usize) {
    for _ in 0..count {
        producer.send_blocking(Record::to("orders").value("paid")).expect("acknowledged");
    }
}

/// The clients in the broker's list with this `client.id`.
fn clients(broker: &BrokerThread, client_id: &str) -> Vec<Value> {
    let answer = broker.control("GET", "/clients", b"");
    let all = answer.body["clients"].as_array().expect("a list").clone();
    all.into_iter().filter(|client| client["client_id"] == client_id).collect()
}

/// Waits until the client of this name satisfies `is_right`.
fn await_client(broker: &BrokerThread, client_id: &str, is_right: impl Fn(&Value) -> bool) -> Value {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let clients = clients(broker, client_id);
        if let Some(right) = clients.iter().find(|client| is_right(client)) {
            return right.clone();
        }
        assert!(Instant::now() < deadline, "not in time: {clients:#?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The values of a metric by its name without Kafka's prefix, with their labels.
fn values(client: &Value, name: &str) -> Vec<(Value, f64)> {
    let metrics = client["metrics"].as_array().expect("a list");
    let found = metrics.iter().filter(|metric| metric["name"] == format!("org.apache.kafka.{name}"));
    found.map(|metric| (metric["labels"].clone(), metric["value"].as_f64().expect("a number"))).collect()
}

fn value(client: &Value, name: &str) -> Option<f64> {
    values(client, name).first().map(|(_, value)| *value)
}

fn pushes(client: &Value) -> u64 {
    client["pushes"].as_u64().expect("a number")
}

#[test]
fn metrics_arrive_at_a_broker_that_subscribes_to_them_unless_the_push_is_off() {
    let broker = broker(1);
    subscribe(&broker, &[("metrics", "*"), FAST]);
    let mut off = config(&broker, "silent");
    off.set("enable.metrics.push", "false").expect("a flag");
    let silent = Producer::new(off).expect("a producer");
    send(&silent, 1);
    let producer = producer(&broker, "till");
    // A client connects when it has something to send.
    send(&producer, 1);
    await_client(&broker, "till", |client| pushes(client) > 0);
    // Records are counted from the first subscription on.
    send(&producer, 3);
    let client =
        await_client(&broker, "till", |client| value(client, "producer.record.send.total") >= Some(3.0));
    assert!(value(&client, "producer.connection.creation.total") >= Some(1.0), "{client:#}");
    assert!(value(&client, "producer.buffer.total.bytes") > Some(0.0), "{client:#}");
    let by_topic = values(&client, "producer.topic.record.send.total");
    assert_eq!(by_topic[0].0["topic"], "orders", "{client:#}");
    await_client(&broker, "till", |client| pushes(client) > 5);
    assert!(clients(&broker, "silent").is_empty());
    let refused = instance_id(&silent);
    assert!(matches!(refused, Err(Error::IllegalState(_))), "{refused:?}");
}

/// The client instance id, from a thread without a runtime.
fn instance_id(producer: &Producer) -> Result<Uuid, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(producer.client_instance_id(PATIENCE))
}

#[test]
fn a_consumer_pushes_its_group_its_records_and_its_lag() {
    let broker = broker(1);
    subscribe(&broker, &[("metrics", "org.apache.kafka.consumer."), FAST]);
    let source = producer(&broker, "source");
    send(&source, 5);
    let mut config = config(&broker, "reader");
    for (name, value) in [("group.id", "billing"), ("auto.offset.reset", "earliest"), ("client.rack", "a")] {
        config.set(name, value).expect("valid");
    }
    let mut consumer = Consumer::new(config).expect("a consumer");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(consumer.subscribe(&["orders"])).expect("subscribed");
    let deadline = Instant::now() + PATIENCE;
    let is_right = |client: &Value| {
        value(client, "consumer.fetch.manager.records.consumed.total") >= Some(1.0)
            && value(client, "consumer.poll.idle.ratio.avg") > Some(0.1)
            && value(client, "consumer.fetch.manager.records.lag") == Some(0.0)
    };
    let client = loop {
        assert!(Instant::now() < deadline, "{:#?}", clients(&broker, "reader"));
        let polled = consumer.poll_blocking(Duration::from_millis(50)).expect("no error");
        drop(polled);
        if let Some(right) = clients(&broker, "reader").into_iter().find(is_right) {
            break right;
        }
        send(&source, 1);
        while let Some(polled) = consumer.poll_blocking(Duration::from_millis(100)).expect("no error") {
            drop(polled);
        }
    };
    let (labels, assigned) = values(&client, "consumer.coordinator.assigned.partitions")[0].clone();
    assert!(assigned >= 1.0, "{client:#}");
    assert_eq!((&labels["group_id"], &labels["client_rack"]), (&"billing".into(), &"a".into()), "{client:#}");
    assert!(labels["group_member_id"].is_string(), "{client:#}");
    assert!(value(&client, "consumer.coordinator.rebalance.total") >= Some(1.0), "{client:#}");
    assert!(clients(&broker, "source")[0]["metrics"].as_array().expect("a list").is_empty(), "no consumer");
}

#[test]
fn a_changed_subscription_changes_the_next_pushes_and_keeps_the_id() {
    let broker = broker(1);
    subscribe(&broker, &[("metrics", "*"), FAST]);
    let producer = producer(&broker, "till");
    send(&producer, 1);
    let before = await_client(&broker, "till", |client| pushes(client) > 1);
    subscribe(&broker, &[("metrics", "org.apache.kafka.producer.connection.")]);
    let is_right = |client: &Value| {
        let metrics = client["metrics"].as_array().expect("a list");
        let names = metrics.iter().map(|metric| metric["name"].as_str().expect("a name"));
        !metrics.is_empty()
            && names.into_iter().all(|name| name.starts_with("org.apache.kafka.producer.connection."))
    };
    let after = await_client(&broker, "till", is_right);
    assert_eq!(before["client_instance_id"], after["client_instance_id"]);
}

#[test]
fn the_end_of_a_client_pushes_at_once() {
    let broker = broker(1);
    subscribe(&broker, &[("metrics", "*"), SLOW]);
    let producer = producer(&broker, "till");
    send(&producer, 1);
    let id = instance_id(&producer).expect("an id");
    send(&producer, 4);
    assert_eq!(pushes(&clients(&broker, "till")[0]), 0, "the interval is an hour");
    drop(producer);
    let client = &clients(&broker, "till")[0];
    assert_eq!(
        (pushes(client), value(client, "producer.record.send.total") >= Some(4.0)),
        (1, true),
        "{client:#}"
    );
    assert_eq!(client["client_instance_id"], id.to_string());
}

/// The last push had the deltas of the push under way once more.
#[test]
fn the_last_push_has_only_the_deltas_since_a_push_that_is_under_way() {
    let broker = broker(1);
    let wanted = "org.apache.kafka.producer.record.send.";
    let subscription =
        MockSubscription { metrics: vec![wanted.to_owned()], interval: Duration::from_secs(2) };
    broker.cluster().set_mock_subscription(subscription);
    let slow = Fault::AnswerAfter(Duration::from_millis(300));
    broker.cluster().intercept(ApiKey::PushTelemetry, None, 1, slow);
    let producer = producer(&broker, "till");
    send(&producer, 1);
    instance_id(&producer).expect("an id");
    send(&producer, 4);
    let first = await_client(&broker, "till", |client| pushes(client) > 0);
    assert_eq!(pushes(&first), 1, "its response is under way");
    drop(producer);
    let last = &clients(&broker, "till")[0];
    assert_eq!(pushes(last), 2, "{last:#}");
    let sum = value(&first, "producer.record.send.total").zip(value(last, "producer.record.send.total"));
    let sum = sum.map(|(first, last)| first + last);
    // Records are counted from the first subscription on.
    assert!(sum == Some(4.0) || sum == Some(5.0), "{first:#} {last:#}");
}

#[test]
fn another_broker_gets_the_metrics_when_one_goes_away_and_the_id_stays() {
    let broker = broker(2);
    subscribe(&broker, &[("metrics", "*"), FAST]);
    let producer = producer(&broker, "till");
    send(&producer, 1);
    let before = await_client(&broker, "till", |client| pushes(client) > 1);
    let cluster = broker.cluster();
    let nodes = || {
        let tracked = cluster.tracked_requests();
        tracked.into_iter().filter(|it| it.api == ApiKey::PushTelemetry).map(|it| it.node).collect::<Vec<_>>()
    };
    cluster.track_requests(true);
    let deadline = Instant::now() + PATIENCE;
    while nodes().len() < 3 {
        assert!(Instant::now() < deadline, "{:?}", nodes());
        std::thread::sleep(Duration::from_millis(20));
    }
    let (first, before_loss) = (nodes()[0], nodes());
    assert!(before_loss.iter().all(|node| *node == first), "one broker at a time: {before_loss:?}");
    cluster.take_down(first);
    while !nodes().iter().any(|node| *node != first) {
        assert!(Instant::now() < deadline, "{:?}", nodes());
        std::thread::sleep(Duration::from_millis(20));
    }
    let all = clients(&broker, "till");
    assert_eq!(all.len(), 1, "{all:#?}");
    assert_eq!(all[0]["client_instance_id"], before["client_instance_id"]);
}

#[test]
fn a_broker_that_does_not_list_the_requests_is_left_alone() {
    let broker = broker(1);
    let cluster = broker.cluster();
    assert_eq!(cluster.requests(ApiKey::GetTelemetrySubscriptions), 0);
    let producer = producer(&broker, "till");
    send(&producer, 3);
    let client: Client = Client::new(config(&broker, "other")).expect("a client");
    let unknown = client.client_instance_id_blocking(Duration::from_millis(300));
    assert!(matches!(unknown, Err(Error::TimedOut { .. })), "{unknown:?}");
    assert_eq!(cluster.requests(ApiKey::GetTelemetrySubscriptions), 0);
}

#[test]
fn the_handles_of_a_client_share_its_instance_id_and_it_connects_for_it() {
    let broker = broker(1);
    subscribe(&broker, &[("metrics", "*"), SLOW]);
    let client = Client::new(config(&broker, "till")).expect("a client");
    let id = client.client_instance_id_blocking(PATIENCE).expect("an id");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let of_handles = runtime.block_on(async {
        let (producer, admin, consumer) = (client.producer(), client.admin(), client.consumer());
        let ids = [
            producer.client_instance_id(Duration::ZERO).await,
            admin.client_instance_id(Duration::ZERO).await,
            consumer.client_instance_id(Duration::ZERO).await,
        ];
        ids.map(|id| id.expect("known"))
    });
    assert_eq!(of_handles, [id; 3]);
    assert_eq!(clients(&broker, "till")[0]["client_instance_id"], id.to_string());
}

#[test]
fn a_refused_codec_is_replaced_and_a_refused_record_ends_the_pushes() {
    let broker = broker(1);
    subscribe(&broker, &[("metrics", "*"), FAST]);
    let cluster = broker.cluster();
    let refuse = |code| cluster.intercept(ApiKey::PushTelemetry, None, 1, Fault::Fail(code));
    assert_eq!(cluster.requests(ApiKey::PushTelemetry), 0);
    refuse(ErrorCode::UnsupportedCompressionType);
    let producer = producer(&broker, "till");
    send(&producer, 1);
    await_client(&broker, "till", |client| pushes(client) > 2);
    refuse(ErrorCode::InvalidRecord);
    let deadline = Instant::now() + PATIENCE;
    let mut last = (u64::MAX, Instant::now());
    // Ten intervals without a push.
    while last.1.elapsed() < Duration::from_secs(1) {
        let now = cluster.requests(ApiKey::PushTelemetry);
        if now != last.0 {
            last = (now, Instant::now());
        }
        assert!(Instant::now() < deadline, "it still pushes");
        std::thread::sleep(Duration::from_millis(20));
    }
    send(&producer, 1);
}
