//! Tests of rust-rdkafka: `stories STORY BOOTSTRAP NAME`. A failed test panics.
//! Its topics and groups begin with NAME.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rdkafka::admin::{
    AdminClient, AdminOptions, AlterConfig, NewPartitions, NewTopic, OwnedResourceSpecifier,
    ResourceSpecifier, TopicReplication,
};
use rdkafka::client::{ClientContext, DefaultClientContext};
use rdkafka::config::{ClientConfig, FromClientConfig, FromClientConfigAndContext, RDKafkaLogLevel};
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext, Rebalance, StreamConsumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Header, Headers, Message, OwnedHeaders, Timestamp};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{
    BaseProducer, BaseRecord, DefaultProducerContext, FutureProducer, FutureRecord, Producer,
    ThreadedProducer,
};
use rdkafka::statistics::Statistics;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

/// Timeout of each Kafka operation; only a defect exhausts it.
const PATIENCE: Duration = Duration::from_secs(30);

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, story, bootstrap, _] = &arguments[..] else { panic!("usage: stories STORY BOOTSTRAP NAME") };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        match story.as_str() {
            "produce_and_consume" => produce_and_consume(bootstrap).await,
            "streams" => streams(bootstrap).await,
            "groups" => groups(bootstrap, "classic").await,
            "next_generation" => groups(bootstrap, "consumer").await,
            "statistics_and_logs" => statistics_and_logs(bootstrap).await,
            "admin" => admin(bootstrap).await,
            "transactions" => transactions(bootstrap).await,
            "mock" => mock().await,
            "failures" => failures(),
            other => panic!("no story {other}"),
        }
    });
}

/// A unique name in the cluster.
fn own(name: &str) -> String {
    format!("{}-rs-{name}", std::env::args().nth(3).expect("a name"))
}

/// Creates a topic and waits until the brokers have it.
async fn topic(bootstrap: &str, name: &str, partitions: i32) -> String {
    let name = own(name);
    let admin: AdminClient<DefaultClientContext> = client(bootstrap, &[]);
    let topic = NewTopic::new(&name, partitions, TopicReplication::Fixed(1));
    let made = admin.create_topics([&topic], &AdminOptions::new()).await.unwrap();
    assert_eq!(made, [Ok(name.clone())]);
    eventually("the new topic", || {
        let metadata = admin.inner().fetch_metadata(Some(&name), PATIENCE).unwrap();
        (metadata.topics()[0].partitions().len() == partitions as usize).then_some(())
    });
    name
}

fn client<T: FromClientConfig>(bootstrap: &str, properties: &[(&str, &str)]) -> T {
    config(bootstrap, properties).create().expect("a client")
}

fn config(bootstrap: &str, properties: &[(&str, &str)]) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", bootstrap);
    for (name, value) in properties {
        config.set(*name, *value);
    }
    config
}

fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
    }
}

async fn fill(bootstrap: &str, topic: &str, count: usize) {
    let producer: FutureProducer = client(bootstrap, &[("linger.ms", "5"), ("compression.type", "snappy")]);
    let sent = (0..count).map(|n| {
        let (producer, key, value) = (producer.clone(), format!("key {n}"), format!("value {n}"));
        async move {
            producer
                .send(FutureRecord::to(topic).key(&key).payload(&value), PATIENCE)
                .await
                .expect("delivered")
        }
    });
    for delivery in sent {
        delivery.await;
    }
}

async fn produce_and_consume(bootstrap: &str) {
    let topic = &*topic(bootstrap, "parts", 2).await;
    let producer: FutureProducer = client(bootstrap, &[]);
    let headers = OwnedHeaders::new()
        .insert(Header { key: "origin", value: Some("rust") })
        .insert(Header { key: "none", value: None::<&str> });
    let record = FutureRecord::to(topic)
        .partition(1)
        .key("k")
        .payload("v")
        .timestamp(1_234_567_890_123)
        .headers(headers);
    let delivery = producer.send(record, PATIENCE).await.expect("delivered");
    assert_eq!((delivery.partition, delivery.offset), (1, 0));
    let tombstone: FutureRecord<'_, str, str> = FutureRecord::to(topic).partition(1).key("tombstone");
    producer.send(tombstone, PATIENCE).await.expect("delivered");
    producer.flush(PATIENCE).expect("flushed");

    let consumer: BaseConsumer = client(bootstrap, &[("group.id", topic), ("enable.partition.eof", "true")]);
    let mut partitions = TopicPartitionList::new();
    partitions.add_partition_offset(topic, 1, Offset::Beginning).unwrap();
    consumer.assign(&partitions).unwrap();
    let first = next(&consumer).expect("a message");
    assert_eq!((first.key(), first.payload()), (Some(&b"k"[..]), Some(&b"v"[..])));
    assert_eq!(first.timestamp(), Timestamp::CreateTime(1_234_567_890_123));
    let headers = first.headers().expect("headers");
    assert_eq!(headers.get(0), Header { key: "origin", value: Some(&b"rust"[..]) });
    assert_eq!(headers.get(1), Header { key: "none", value: None });
    assert_eq!(next(&consumer).expect("a tombstone").payload(), None);
    assert!(matches!(next(&consumer), Err(KafkaError::PartitionEOF(1))));
    assert_eq!(consumer.fetch_watermarks(topic, 1, PATIENCE).unwrap(), (0, 2));
    consumer.seek(topic, 1, Offset::Offset(1), PATIENCE).unwrap();
    assert_eq!(next(&consumer).expect("a message").offset(), 1);
    let mut times = TopicPartitionList::new();
    times.add_partition_offset(topic, 1, Offset::Offset(1_234_567_890_124)).unwrap();
    let found = consumer.offsets_for_times(times, PATIENCE).unwrap();
    assert_eq!(found.find_partition(topic, 1).unwrap().offset(), Offset::Offset(1));
    let metadata = consumer.fetch_metadata(Some(topic), PATIENCE).unwrap();
    assert_eq!(metadata.topics()[0].partitions().len(), 2);
    assert!(consumer.client().fetch_cluster_id(PATIENCE).is_some());
}

fn next(consumer: &BaseConsumer) -> Result<rdkafka::message::BorrowedMessage<'_>, KafkaError> {
    eventually("a message or an error", || consumer.poll(Duration::from_millis(200)))
}

async fn streams(bootstrap: &str) {
    let topic = &*topic(bootstrap, "streams", 3).await;
    fill(bootstrap, topic, 50).await;
    let consumer: StreamConsumer = client(
        bootstrap,
        &[("group.id", topic), ("auto.offset.reset", "earliest"), ("enable.auto.commit", "false")],
    );
    consumer.subscribe(&[topic]).unwrap();
    for _ in 0..50 {
        let message =
            tokio::time::timeout(PATIENCE, consumer.recv()).await.expect("in time").expect("a message");
        consumer.commit_message(&message, CommitMode::Sync).unwrap();
    }
    let committed = consumer.committed(PATIENCE).unwrap();
    let sum: i64 =
        committed.elements().iter().filter_map(|one| one.offset().to_raw()).filter(|&raw| raw > 0).sum();
    assert_eq!(sum, 50);
}

/// Counts the events of the library.
#[derive(Default)]
struct EventCounts {
    assigned: AtomicUsize,
    revoked: AtomicUsize,
    statistics: AtomicUsize,
    logs: AtomicUsize,
}

impl ClientContext for EventCounts {
    fn log(&self, _: RDKafkaLogLevel, _: &str, _: &str) {
        self.logs.fetch_add(1, Ordering::Relaxed);
    }

    fn stats(&self, statistics: Statistics) {
        assert_eq!(statistics.client_type, "producer");
        self.statistics.fetch_add(usize::from(statistics.txmsgs > 0), Ordering::Relaxed);
    }
}

impl ConsumerContext for EventCounts {
    fn post_rebalance(&self, _: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        match rebalance {
            Rebalance::Assign(_) => self.assigned.fetch_add(1, Ordering::Relaxed),
            Rebalance::Revoke(_) => self.revoked.fetch_add(1, Ordering::Relaxed),
            Rebalance::Error(error) => panic!("{error}"),
        };
    }
}

async fn groups(bootstrap: &str, protocol: &str) {
    let topic = &*topic(bootstrap, protocol, 4).await;
    let member = || {
        let mut properties =
            vec![("group.id", topic), ("auto.offset.reset", "earliest"), ("group.protocol", protocol)];
        if protocol == "classic" {
            // A member learns of a rebalance with its next heartbeat.
            properties.push(("heartbeat.interval.ms", "200"));
        }
        let consumer: BaseConsumer<EventCounts> =
            BaseConsumer::from_config_and_context(&config(bootstrap, &properties), EventCounts::default())
                .unwrap();
        consumer.subscribe(&[topic]).unwrap();
        consumer
    };
    let held = |consumer: &BaseConsumer<EventCounts>| {
        consumer.poll(Duration::from_millis(50));
        consumer.assignment().unwrap().elements().iter().map(|one| one.partition()).collect::<BTreeSet<_>>()
    };
    let a = member();
    eventually("a has all", || (held(&a).len() == 4).then_some(()));
    let b = member();
    eventually("both have two", || {
        let (a, b) = (held(&a), held(&b));
        (a.len() == 2 && b.len() == 2 && a.is_disjoint(&b)).then_some(())
    });
    drop(b);
    eventually("a has all again", || (held(&a).len() == 4).then_some(()));
    // In the newer protocol, partitions that stay with a member are neither revoked nor assigned again.
    let (assigned, revoked) = if protocol == "classic" { (3, 2) } else { (2, 1) };
    let value = |count: &AtomicUsize| count.load(Ordering::Relaxed);
    assert!(value(&a.context().assigned) >= assigned && value(&a.context().revoked) >= revoked);
    if protocol == "classic" {
        let groups = a.fetch_group_list(Some(topic), PATIENCE).unwrap();
        assert_eq!(groups.groups()[0].members().len(), 1);
    }
}

async fn statistics_and_logs(bootstrap: &str) {
    let topic = topic(bootstrap, "statistics", 1).await;
    let mut properties = config(bootstrap, &[("statistics.interval.ms", "100"), ("debug", "broker,msg")]);
    properties.set_log_level(RDKafkaLogLevel::Debug);
    let producer: BaseProducer<CountingProducer> =
        BaseProducer::from_config_and_context(&properties, CountingProducer::default()).unwrap();
    producer.send(BaseRecord::<(), str>::to(&topic).payload("counted")).map_err(|(error, _)| error).unwrap();
    producer.flush(PATIENCE).unwrap();
    let counts = &producer.context().0;
    eventually("statistics", || {
        producer.poll(Duration::from_millis(100));
        (counts.statistics.load(Ordering::Relaxed) > 0).then_some(())
    });
    assert!(counts.logs.load(Ordering::Relaxed) > 0);
}

#[derive(Default)]
struct CountingProducer(EventCounts);

impl ClientContext for CountingProducer {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        self.0.log(level, facility, message);
    }

    fn stats(&self, statistics: Statistics) {
        self.0.stats(statistics);
    }
}

impl rdkafka::producer::ProducerContext for CountingProducer {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &rdkafka::producer::DeliveryResult<'_>, _: ()) {
        result.as_ref().map_err(|(error, _)| error).expect("delivered");
    }
}

async fn admin(bootstrap: &str) {
    let admin: AdminClient<DefaultClientContext> = client(bootstrap, &[]);
    let options = AdminOptions::new().operation_timeout(Some(PATIENCE)).request_timeout(Some(PATIENCE));
    let (name, group) = (&*own("admin"), &*own("admin-readers"));
    let topic = NewTopic::new(name, 1, TopicReplication::Fixed(1)).set("retention.ms", "60000");
    assert_eq!(admin.create_topics([&topic], &options).await.unwrap(), [Ok(name.to_owned())]);
    let again = admin.create_topics([&topic], &options).await.unwrap();
    assert_eq!(again, [Err((name.to_owned(), RDKafkaErrorCode::TopicAlreadyExists))]);
    let grown = admin.create_partitions([&NewPartitions::new(name, 3)], &options).await.unwrap();
    assert_eq!(grown, [Ok(name.to_owned())]);
    let described = admin.describe_configs([&ResourceSpecifier::Topic(name)], &options).await.unwrap();
    let resource = described[0].as_ref().unwrap();
    assert_eq!(resource.specifier, OwnedResourceSpecifier::Topic(name.to_owned()));
    assert_eq!(resource.get("retention.ms").unwrap().value.as_deref(), Some("60000"));
    let change = AlterConfig::new(ResourceSpecifier::Topic(name)).set("retention.ms", "120000");
    admin.alter_configs([&change], &options).await.unwrap()[0].as_ref().expect("altered");
    assert_eq!(admin.delete_topics(&[name], &options).await.unwrap(), [Ok(name.to_owned())]);
    let groups = admin.delete_groups(&[group], &options).await.unwrap();
    assert!(groups[0].is_err(), "{groups:?}");
}

async fn transactions(bootstrap: &str) {
    let topic = &*topic(bootstrap, "transactions", 1).await;
    // A separate thread polls for reports: the original neither aborts nor commits before they are read.
    let producer: ThreadedProducer<DefaultProducerContext> =
        client(bootstrap, &[("transactional.id", topic)]);
    producer.init_transactions(PATIENCE).unwrap();
    let reading: BaseConsumer = client(bootstrap, &[("group.id", &own("transactions-in"))]);
    for (offset, outcome) in [(1, "abort"), (2, "commit")] {
        producer.begin_transaction().unwrap();
        let mut offsets = TopicPartitionList::new();
        offsets.add_partition_offset(topic, 0, Offset::Offset(offset)).unwrap();
        let metadata = reading.group_metadata().expect("a group");
        producer.send_offsets_to_transaction(&offsets, &metadata, PATIENCE).unwrap();
        producer.send(BaseRecord::<(), str>::to(topic).payload(outcome)).map_err(|(error, _)| error).unwrap();
        if outcome == "abort" {
            producer.abort_transaction(PATIENCE).unwrap();
        } else {
            producer.commit_transaction(PATIENCE).unwrap();
        }
    }
    let mut offsets = TopicPartitionList::new();
    offsets.add_partition(topic, 0);
    let committed = reading.committed_offsets(offsets, PATIENCE).unwrap();
    assert_eq!(committed.find_partition(topic, 0).unwrap().offset(), Offset::Offset(2));
    let properties =
        [("group.id", topic), ("isolation.level", "read_committed"), ("auto.offset.reset", "earliest")];
    let consumer: BaseConsumer = client(bootstrap, &properties);
    consumer.subscribe(&[topic]).unwrap();
    assert_eq!(next(&consumer).unwrap().payload(), Some(&b"commit"[..]));
    let Err(KafkaError::Transaction(error)) = producer.commit_transaction(PATIENCE) else {
        panic!("no transaction was begun")
    };
    assert_eq!(error.code(), RDKafkaErrorCode::State);
}

async fn mock() {
    let cluster = MockCluster::new(2).unwrap();
    cluster.create_topic("rs-mock", 2, 1).unwrap();
    cluster.partition_leader("rs-mock", 0, Some(2)).unwrap();
    let bootstrap = cluster.bootstrap_servers();
    fill(&bootstrap, "rs-mock", 20).await;
    let refused = [rdkafka::types::RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED];
    cluster.request_errors(rdkafka::types::RDKafkaApiKey::Produce, &refused);
    let producer: FutureProducer = client(&bootstrap, &[]);
    let record: FutureRecord<'_, str, str> = FutureRecord::to("rs-mock").payload("refused");
    let (error, _) = producer.send(record, PATIENCE).await.expect_err("refused by the mock");
    assert_eq!(error.rdkafka_error_code(), Some(RDKafkaErrorCode::TopicAuthorizationFailed));
    let consumer: BaseConsumer =
        client(&bootstrap, &[("group.id", "rs-mock"), ("auto.offset.reset", "earliest")]);
    consumer.subscribe(&["rs-mock"]).unwrap();
    for _ in 0..20 {
        next(&consumer).unwrap();
    }
}

fn failures() {
    let error =
        config("127.0.0.1:1", &[("no.such.property", "1")]).create::<BaseProducer>().err().expect("refused");
    assert!(error.to_string().contains("no.such.property"), "{error}");
    let properties =
        [("queue.buffering.max.messages", "1"), ("message.timeout.ms", "300"), ("log_level", "0")];
    let producer: BaseProducer = client("127.0.0.1:1", &properties);
    let send =
        || producer.send(BaseRecord::<(), str>::to("nowhere").payload("v")).map_err(|(error, _)| error);
    send().unwrap();
    assert_eq!(send().unwrap_err().rdkafka_error_code(), Some(RDKafkaErrorCode::QueueFull));
    // Broker events may count too.
    assert!(producer.in_flight_count() >= 1);
    producer.flush(PATIENCE).expect("the message failed in time");
    eventually("nothing left in flight", || {
        producer.poll(Duration::ZERO);
        (producer.in_flight_count() == 0).then_some(())
    });
}
