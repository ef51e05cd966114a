//! Shared helpers of the tests.

#![allow(dead_code, clippy::disallowed_methods, reason = "a test is a shell; each uses some of this")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ottla_broker::{Broker, BrokerThread};
use ottla_client::{Client, Config, Consumer, Polled, Producer, Record, StartAt, TopicPartition};
use ottla_parallel::{Builder, Failure, Mode, Order, Processor};

/// Timeout of each wait; only a defect exhausts it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn broker(topic: &str, partitions: i32) -> BrokerThread {
    let _already =
        tracing_subscriber::fmt().with_env_filter("ottla_parallel=info").with_test_writer().try_init();
    Broker::builder().memory().topic(topic, partitions).spawn().expect("a broker in memory")
}

pub(crate) fn member(bootstrap_servers: String, group: &str) -> Config {
    let mut config = Config::new(bootstrap_servers);
    let quick = [
        ("group.id", group),
        ("auto.offset.reset", "earliest"),
        ("heartbeat.interval.ms", "50"),
        ("session.timeout.ms", "1500"),
        ("auto.commit.interval.ms", "20"),
        ("partition.assignment.strategy", "cooperative-sticky"),
    ];
    config.set_all(quick).expect("known properties");
    config
}

/// See [`produce_from`].
pub(crate) fn produce(servers: String, topic: &str, keys: usize, count: usize) {
    produce_from(servers, topic, keys, 0, count);
}

/// Produces `count` records. Record `n` has the key `n % keys` and the value `n / keys`; with `keys` 0 it has no key.
pub(crate) fn produce_from(servers: String, topic: &str, keys: usize, from: usize, count: usize) {
    let producer = Producer::new(Config::new(servers)).expect("a producer");
    let topic_producer = producer.topic(topic);
    for number in from..from + count {
        let (key, value) = (format!("k{}", number % keys.max(1)), (number / keys.max(1)).to_string());
        let record = Record::to(topic).value(&value);
        let record = if keys > 0 { record.key(&key) } else { record };
        let _unawaited = topic_producer.enqueue_blocking(&record).expect("taken");
    }
    producer.flush_blocking(PATIENCE).expect("written");
}

pub(crate) fn await_that(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "after {PATIENCE:?}: not {what}");
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

/// Key, partition, offset and value of a record.
pub(crate) type Handled = (String, i32, i64, usize);

/// The records that handlers have received.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen(Arc<Mutex<Vec<Handled>>>);

impl Seen {
    pub(crate) fn note(&self, key: Option<&[u8]>, partition: i32, offset: i64, value: Option<&[u8]>) {
        let key = String::from_utf8_lossy(key.unwrap_or_default()).into_owned();
        let value = String::from_utf8_lossy(value.unwrap_or_default()).parse().expect("a number");
        self.0.lock().expect("no panic").push((key, partition, offset, value));
    }

    pub(crate) fn all(&self) -> Vec<Handled> {
        self.0.lock().expect("no panic").clone()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock().expect("no panic").len()
    }

    /// The number of different records.
    pub(crate) fn distinct(&self) -> usize {
        let places: std::collections::BTreeSet<_> =
            self.all().into_iter().map(|(_, partition, offset, _)| (partition, offset)).collect();
        places.len()
    }

    /// The largest number of times that one record was handled.
    pub(crate) fn most_often(&self) -> usize {
        let mut times: BTreeMap<(i32, i64), usize> = BTreeMap::new();
        self.all().into_iter().for_each(|(_, partition, offset, _)| {
            *times.entry((partition, offset)).or_default() += 1;
        });
        times.into_values().max().unwrap_or_default()
    }

    /// Asserts that each key's records were first handled in the order in which they were produced.
    pub(crate) fn assert_key_order(&self) {
        let mut next: BTreeMap<String, usize> = BTreeMap::new();
        for (key, _, _, value) in self.all() {
            let next = next.entry(key.clone()).or_default();
            assert!(value <= *next, "{key}: {value} before {next}");
            *next = (*next).max(value + 1);
        }
    }
}

/// Starts a processor of any mode whose handler calls `each` with every record.
pub(crate) fn start(
    builder: Builder,
    mode: Mode,
    each: impl Fn(&ottla_client::RecordView<'_>) -> Result<(), Failure> + Clone + Send + 'static,
) -> Processor {
    match mode {
        Mode::Sync | Mode::MultiAsync => builder.start_each(move |message| each(message)),
        Mode::Batch | Mode::MultiBatch => builder.start_batches(move |messages| {
            messages.iter().try_for_each(|record| each(&record))?;
            Ok(())
        }),
    }
    .expect("a processor")
}

pub(crate) fn builder(broker: &BrokerThread, mode: Mode, order: Order) -> Builder {
    Processor::builder(member(broker.bootstrap_servers(), "workers"), mode)
        .topics(["orders"])
        .order(order)
        .batch_wait(Duration::from_millis(5))
}

/// The sum of the group's committed offsets over all partitions.
pub(crate) fn committed(config: Config, topic: &str, partitions: i32) -> i64 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let consumer = Consumer::new(config).expect("a consumer");
    let partitions: Vec<_> = (0..partitions).map(|index| TopicPartition::new(topic, index)).collect();
    runtime.block_on(consumer.committed(&partitions)).expect("an answer").values().sum()
}

/// The group's committed offset of one partition; 0 without a commit.
pub(crate) fn committed_of(config: Config, topic: &str, partition: i32) -> i64 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let consumer = Consumer::new(config).expect("a consumer");
    let at = TopicPartition::new(topic, partition);
    let committed = runtime.block_on(consumer.committed(&[at])).expect("an answer");
    committed.values().copied().next().unwrap_or(0).max(0)
}

/// All records of a topic: partition, offset, key, value and headers.
pub(crate) fn read_all(
    mut config: Config,
    topic: &str,
    partitions: i32,
) -> Vec<(i32, ottla_client::OwnedRecord)> {
    config.set("isolation.level", "read_committed").expect("a property");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let client = Client::new(config).expect("a client");
    let mut consumer = client.consumer();
    let starts: Vec<_> =
        (0..partitions).map(|index| (TopicPartition::new(topic, index), StartAt::Beginning)).collect();
    let all: Vec<_> = starts.iter().map(|(at, _)| (at.clone(), ottla_client::OffsetAt::Latest)).collect();
    let ends = runtime.block_on(client.admin().list_offsets(&all)).expect("ends");
    runtime.block_on(consumer.assign(&starts)).expect("assigned");
    let mut records = Vec::new();
    let deadline = Instant::now() + PATIENCE;
    let through = |consumer: &Consumer| {
        ends.iter()
            .all(|(at, end)| *end == 0 || consumer.position(at).is_some_and(|position| position >= *end))
    };
    while !through(&consumer) {
        assert!(Instant::now() < deadline, "{} records of {topic}, and no end", records.len());
        if let Some(Polled::Records(batch)) =
            consumer.poll_blocking(Duration::from_millis(50)).expect("polled")
        {
            let partition = batch.partition();
            records.extend(
                batch.to_owned_records().expect("sound").into_iter().map(|record| (partition, record)),
            );
        }
    }
    records
}
