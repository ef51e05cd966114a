//! Our share consumer on Apache Kafka 4.3 and on the Ottla broker: acknowledgements of each kind, members beside Java's, restarts.

#![allow(clippy::disallowed_methods, reason = "a test is a shell")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ottla_client::{
    AcknowledgeType, AlterOptions, Client, Config, ConfigChange, ConfigResource, Error, NewTopic, Producer,
    Record, ShareBatch, ShareConsumer, TopicPartition,
};
use ottla_interop::{Failure, KafkaCluster, KafkaOptions, OttlaBroker, Peer, Process, newest_jars, require};
use ottla_parallel::{GiveUp, Mode, Processor, Retry};

use crate::both_brokers::{Kind, SharedBrokers, on_both};
use crate::mixed_share_group::{PATIENCE, commit, each_record_comes_once, franz_go, produce, values};

/// Long enough for records that must not come.
const A_WHILE: Duration = Duration::from_secs(2);

/// Locks and sessions of seconds.
const QUICK: &[(&str, &str)] = &[
    ("group.share.min.record.lock.duration.ms", "1000"),
    ("group.share.record.lock.duration.ms", "5000"),
    ("group.share.min.heartbeat.interval.ms", "200"),
    ("group.share.heartbeat.interval.ms", "500"),
    ("group.share.min.session.timeout.ms", "2000"),
    ("group.share.session.timeout.ms", "6000"),
    ("share.coordinator.state.topic.replication.factor", "1"),
    ("share.coordinator.state.topic.min.isr", "1"),
];

on_both! {
    implicit_acknowledgement_accepts_each_record_once,
    explicit_acknowledgements_release_reject_and_redeliver,
    a_renewed_record_stays_with_its_consumer_beyond_its_lock,
    ours_javas_and_franz_gos_share_a_group_and_each_record_comes_once,
    closing_releases_what_is_not_acknowledged_and_sends_what_is,
    a_record_limit_holds_and_transaction_markers_are_no_records,
    two_processors_share_a_group_with_retries_renewals_and_dead_letters,
    a_restarted_broker_is_consumed_from_again,
}

/// A broker of one node.
enum Broker {
    Kafka(KafkaCluster),
    /// `None` while it is down.
    Ottla {
        broker: Option<OttlaBroker>,
        address: String,
        data: tempfile::TempDir,
    },
}

impl Broker {
    fn start(kind: Kind) -> Result<Self, Failure> {
        if let Kind::Kafka = kind {
            let options = KafkaOptions { properties: QUICK, newest: true, ..KafkaOptions::default() };
            return KafkaCluster::start_with(1, &options).map(Self::Kafka);
        }
        let data = tempfile::tempdir().map_err(|error| Failure::new(format!("a data directory: {error}")))?;
        let broker = ottla(data.path(), "127.0.0.1:0")?;
        let address = broker.bootstrap();
        Ok(Self::Ottla { broker: Some(broker), address, data })
    }

    fn bootstrap(&self) -> String {
        match self {
            Self::Kafka(cluster) => cluster.bootstrap(),
            Self::Ottla { address, .. } => address.clone(),
        }
    }

    fn kill(&mut self) -> Result<(), Failure> {
        match self {
            Self::Kafka(cluster) => cluster.kill_node(1),
            Self::Ottla { broker, .. } => broker.take().map_or(Ok(()), OttlaBroker::kill),
        }
    }

    fn restart(&mut self) -> Result<(), Failure> {
        match self {
            Self::Kafka(cluster) => cluster.start_node(1),
            Self::Ottla { broker, address, data } => {
                *broker = Some(ottla(data.path(), address)?);
                Ok(())
            }
        }
    }
}

fn ottla(data: &Path, address: &str) -> Result<OttlaBroker, Failure> {
    let properties: Vec<String> = QUICK.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let mut args = vec!["--listen", address];
    args.extend(properties.iter().flat_map(|property| ["-X", property]));
    OttlaBroker::start_on(data, &args)
}

/// One broker of each kind for the tests of this file that run at the same time.
fn shared(kind: Kind) -> Result<Arc<Broker>, Failure> {
    static SHARED: SharedBrokers<Broker> = SharedBrokers::new();
    SHARED.of(kind, Broker::start)
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(future)
}

/// A topic, and a group of the same name that starts at its beginning.
fn prepare(cluster: &Broker, name: &str, partitions: i32) -> Client {
    let client = Client::new(Config::new(cluster.bootstrap())).expect("a client");
    let admin = client.admin();
    block_on(async {
        admin.create_topics(&[NewTopic::new(name).partitions(partitions)]).await.expect("created");
        let earliest = ("share.auto.offset.reset".to_owned(), ConfigChange::Set("earliest".into()));
        let changes = [(ConfigResource::group(name), vec![earliest])];
        let results =
            admin.incremental_alter_configs(&changes, AlterOptions::default()).await.expect("answered");
        for (_, result) in results {
            result.expect("changed");
        }
    });
    client
}

fn member(cluster: &Broker, name: &str, properties: &[(&str, &str)]) -> ShareConsumer {
    let mut config = Config::new(cluster.bootstrap());
    config.set("group.id", name).expect("known");
    config.set_all(properties.iter().copied()).expect("known properties");
    let mut consumer = ShareConsumer::new(config).expect("a consumer");
    block_on(consumer.subscribe(&[name])).expect("subscribed");
    consumer
}

const EXPLICIT: (&str, &str) = ("share.acknowledgement.mode", "explicit");

/// Polls until a batch comes.
fn next(consumer: &mut ShareConsumer, what: &str) -> ShareBatch {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        if let Some(batch) = consumer.poll_blocking(Duration::from_millis(500)).expect(what) {
            return batch;
        }
    }
    panic!("{what}: nothing; {:?}", consumer.statistics());
}

fn implicit_acknowledgement_accepts_each_record_once(kind: Kind) -> Result<(), Failure> {
    require!(Peer::NewestJava);
    let cluster = shared(kind)?;
    let client = prepare(&cluster, "implicit", 3);
    produce(&client, "implicit", 0..1000);
    let mut consumer = member(&cluster, "implicit", &[]);
    let mut seen: BTreeMap<usize, usize> = BTreeMap::new();
    while seen.len() < 1000 {
        let batch = next(&mut consumer, "records");
        assert_eq!(values(&batch).len(), batch.len());
        assert!(batch.iter().all(|record| record.delivery_count() == 1));
        for value in values(&batch) {
            *seen.entry(value).or_default() += 1;
        }
    }
    assert!(seen.values().all(|count| *count == 1));
    let error = consumer.acknowledge_rest(AcknowledgeType::Accept).expect_err("implicit");
    assert!(matches!(error, Error::IllegalState(_)), "{error}");
    commit(&mut consumer);
    assert_eq!(block_on(consumer.assignment()).expect("an assignment").len(), 3);
    let statistics = consumer.statistics();
    assert_eq!((statistics.records, statistics.acknowledged, statistics.failed), (1000, 1000, 0));
    consumer.close_blocking(PATIENCE).expect("closed");

    let mut later = member(&cluster, "implicit", &[]);
    assert!(later.poll_blocking(A_WHILE).expect("no error").is_none(), "all are accepted");
    produce(&client, "implicit", 1000..1001);
    assert_eq!(values(&next(&mut later, "a new record")), [1000]);
    later.close_blocking(PATIENCE).expect("closed");
    Ok(())
}

fn explicit_acknowledgements_release_reject_and_redeliver(kind: Kind) -> Result<(), Failure> {
    require!(Peer::NewestJava);
    let cluster = shared(kind)?;
    let client = prepare(&cluster, "explicit", 1);
    produce(&client, "explicit", 0..10);
    let mut consumer = member(&cluster, "explicit", &[EXPLICIT]);
    let results = consumer.acknowledgement_results();
    let (mut first, mut again) = (BTreeSet::new(), BTreeSet::new());
    while first.len() < 10 {
        let batch = next(&mut consumer, "records");
        let error = consumer.poll_blocking(Duration::ZERO).expect_err("not acknowledged");
        assert!(matches!(error, Error::IllegalState(_)), "{error}");
        for record in &batch {
            let offset = record.offset();
            let outcome = match (offset, record.delivery_count()) {
                (_, 2..) => AcknowledgeType::Accept,
                (1, _) => AcknowledgeType::Reject,
                (offset, _) if offset % 2 == 0 => AcknowledgeType::Release,
                (_, _) => AcknowledgeType::Accept,
            };
            consumer.acknowledge(&record, outcome).expect("delivered");
            let new = if record.delivery_count() == 1 { first.insert(offset) } else { again.insert(offset) };
            assert!(new, "{offset} was delivered twice with one count");
        }
    }
    commit(&mut consumer);
    let error = consumer.acknowledge_offset(&TopicPartition::new("explicit", 0), 3, AcknowledgeType::Accept);
    assert!(matches!(error, Err(Error::IllegalState(_))), "{error:?}");
    while again.len() < 5 {
        let batch = next(&mut consumer, "released records");
        for record in &batch {
            assert_eq!(record.delivery_count(), 2);
            assert!(again.insert(record.offset()));
            consumer.acknowledge(&record, AcknowledgeType::Accept).expect("delivered");
        }
    }
    assert_eq!(again.into_iter().collect::<Vec<_>>(), [0, 2, 4, 6, 8]);
    commit(&mut consumer);
    assert!(
        consumer.poll_blocking(A_WHILE).expect("no error").is_none(),
        "the rejected one does not come again"
    );
    let mut acknowledged = 0;
    while let Some(result) = results.try_next() {
        result.result.expect("accepted by the broker");
        acknowledged += result.ranges.iter().map(|range| range.end() - range.start() + 1).sum::<i64>();
    }
    assert_eq!(acknowledged, 15);
    consumer.close_blocking(PATIENCE).expect("closed");
    Ok(())
}

fn a_renewed_record_stays_with_its_consumer_beyond_its_lock(kind: Kind) -> Result<(), Failure> {
    require!(Peer::NewestJava);
    let cluster = shared(kind)?;
    let client = prepare(&cluster, "renew", 1);
    produce(&client, "renew", 0..2);
    let mut consumer = member(&cluster, "renew", &[EXPLICIT, ("share.acquire.mode", "record_limit")]);
    let mut other = member(&cluster, "renew", &[EXPLICIT]);
    let mut batch = next(&mut consumer, "records");
    while batch.len() < 2 {
        // The records may be in two batches; both are needed in one.
        consumer.acknowledge_rest(AcknowledgeType::Release).expect("explicit");
        batch = next(&mut consumer, "both records");
    }
    let lock = consumer.acquisition_lock_timeout().expect("reported");
    assert_eq!(lock, Duration::from_secs(5));
    let counts: Vec<i16> = batch.iter().map(|record| record.delivery_count()).collect();
    let begin = Instant::now();
    while begin.elapsed() < lock + Duration::from_secs(3) {
        consumer.acknowledge_rest(AcknowledgeType::Renew).expect("explicit");
        let again = next(&mut consumer, "renewed records");
        assert_eq!(values(&again), [0, 1]);
        assert_eq!(again.iter().map(|record| record.delivery_count()).collect::<Vec<_>>(), counts);
        assert!(other.poll_blocking(Duration::from_secs(1)).expect("no error").is_none(), "still locked");
    }
    consumer.acknowledge_rest(AcknowledgeType::Accept).expect("explicit");
    commit(&mut consumer);
    assert_eq!(consumer.statistics().failed, 0);
    assert!(other.poll_blocking(A_WHILE).expect("no error").is_none());
    consumer.close_blocking(PATIENCE).expect("closed");
    other.close_blocking(PATIENCE).expect("closed");
    Ok(())
}

fn ours_javas_and_franz_gos_share_a_group_and_each_record_comes_once(kind: Kind) -> Result<(), Failure> {
    require!(Peer::NewestJava);
    require!(Peer::Go);
    let cluster = shared(kind)?;
    let client = prepare(&cluster, "mixed", 4);
    let ours = vec![member(&cluster, "mixed", &[]), member(&cluster, "mixed", &[])];
    let mut java = newest_jars()?.java(256);
    java.arg("org.apache.kafka.tools.consumer.ConsoleShareConsumer");
    java.args(["--bootstrap-server", &cluster.bootstrap(), "--topic", "mixed", "--group", "mixed"]);
    let scratch = tempfile::tempdir().map_err(|error| Failure::new(format!("a directory: {error}")))?;
    let mut go = Command::new(franz_go(scratch.path())?);
    go.args([&cluster.bootstrap(), "mixed", "mixed"]);
    let others =
        vec![Process::spawn("console share consumer", &mut java)?, Process::spawn("franz-go", &mut go)?];
    each_record_comes_once(&client, "mixed", ours, others)
}

fn closing_releases_what_is_not_acknowledged_and_sends_what_is(kind: Kind) -> Result<(), Failure> {
    require!(Peer::NewestJava);
    let cluster = shared(kind)?;
    let client = prepare(&cluster, "closing", 1);
    produce(&client, "closing", 0..4);
    let mut first = member(&cluster, "closing", &[EXPLICIT]);
    let mut taken = 0;
    while taken < 4 {
        let batch = next(&mut first, "records");
        taken += batch.len();
        if taken < 4 {
            first.acknowledge_rest(AcknowledgeType::Accept).expect("explicit");
        }
    }
    first
        .acknowledge_offset(&TopicPartition::new("closing", 0), 3, AcknowledgeType::Accept)
        .expect("delivered");
    let left: usize = taken - 1;
    first.close_blocking(PATIENCE).expect("closed");
    let begin = Instant::now();
    let mut second = member(&cluster, "closing", &[]);
    let mut again = Vec::new();
    while again.is_empty() || again.len() < left && begin.elapsed() < Duration::from_secs(4) {
        let batch = next(&mut second, "released records");
        assert!(batch.iter().all(|record| record.delivery_count() == 2));
        again.extend(values(&batch));
    }
    assert!(begin.elapsed() < Duration::from_secs(4), "sooner than the lock ends: {:?}", begin.elapsed());
    assert!(!again.contains(&3), "{again:?}");
    second.close_blocking(PATIENCE).expect("closed");
    Ok(())
}

fn a_record_limit_holds_and_transaction_markers_are_no_records(kind: Kind) -> Result<(), Failure> {
    require!(Peer::NewestJava);
    let cluster = shared(kind)?;
    let client = prepare(&cluster, "limit", 1);
    produce(&client, "limit", 0..10);
    let mut config = Config::new(cluster.bootstrap());
    config.set("transactional.id", "limit").expect("known");
    let producer = Producer::new(config).expect("a producer");
    block_on(async {
        producer.init_transactions(PATIENCE).await.expect("initialised");
        for value in 10..14 {
            producer.begin_transaction().expect("begun");
            producer.send(Record::to("limit").value(&value.to_string())).await.expect("written");
            producer.commit_transaction(PATIENCE).await.expect("committed");
        }
    });
    let mut consumer =
        member(&cluster, "limit", &[("share.acquire.mode", "record_limit"), ("max.poll.records", "3")]);
    let mut seen = Vec::new();
    while seen.len() < 14 {
        let batch = next(&mut consumer, "records");
        assert!(batch.len() <= 3, "{}", batch.len());
        seen.extend(values(&batch));
    }
    assert_eq!(seen, (0..14).collect::<Vec<_>>());
    commit(&mut consumer);
    std::thread::sleep(Duration::from_secs(6));
    assert!(consumer.poll_blocking(A_WHILE).expect("no error").is_none(), "nothing stays acquired");
    assert_eq!(consumer.statistics().failed, 0);
    consumer.close_blocking(PATIENCE).expect("closed");
    Ok(())
}

fn two_processors_share_a_group_with_retries_renewals_and_dead_letters(kind: Kind) -> Result<(), Failure> {
    const RECORDS: usize = 400;
    /// Its handler needs longer than the lock of 5 seconds.
    const SLOW: usize = 11;
    /// Its handler always fails.
    const DEAD: usize = 22;
    /// The handlers of each of these fail the first time.
    const EVERY: usize = 40;
    require!(Peer::NewestJava);
    let cluster = shared(kind)?;
    let client = prepare(&cluster, "worked", 1);
    let created = [NewTopic::new("worked-dead").partitions(1)];
    block_on(client.admin().create_topics(&created)).expect("created");
    produce(&client, "worked", 0..RECORDS);
    let handled: Arc<Mutex<BTreeMap<usize, usize>>> = Arc::default();
    let attempts: Arc<Mutex<BTreeMap<usize, usize>>> = Arc::default();
    let processors: Vec<Processor> = (0..2)
        .map(|_| {
            let mut config = Config::new(cluster.bootstrap());
            config.set_all([("group.id", "worked"), ("max.poll.records", "20")]).expect("known properties");
            let (handled, attempts) = (handled.clone(), attempts.clone());
            let builder = Processor::builder(config, Mode::MultiAsync).topics(["worked"]).share_group();
            let builder = builder.retry(Retry::times(2).delay(Duration::from_millis(20)));
            let builder = builder.give_up(GiveUp::DeadLetter("worked-dead".into()));
            let started = builder.start_each(move |record| {
                let value: usize = std::str::from_utf8(record.value().unwrap_or_default())?.parse()?;
                let attempt = {
                    let mut attempts = attempts.lock().expect("not poisoned");
                    let attempt = attempts.entry(value).or_default();
                    *attempt += 1;
                    *attempt
                };
                if value == DEAD || (value.is_multiple_of(EVERY) && attempt == 1) {
                    return Err(std::io::Error::other("refused").into());
                }
                if value == SLOW {
                    std::thread::park_timeout(Duration::from_secs(8));
                }
                *handled.lock().expect("not poisoned").entry(value).or_default() += 1;
                Ok(())
            });
            started.expect("a processor")
        })
        .collect();
    let accepted =
        || -> u64 { processors.iter().filter_map(|it| it.metrics().share).map(|share| share.accepted).sum() };
    let deadline = Instant::now() + PATIENCE;
    while accepted() < RECORDS as u64 {
        assert!(Instant::now() < deadline, "{} of {RECORDS} are accepted", accepted());
        std::thread::park_timeout(Duration::from_millis(20));
    }
    let dead: u64 = processors.iter().map(|it| it.metrics().dead_letters).sum();
    assert_eq!(dead, 1);
    for processor in processors {
        processor.stop();
        processor.join().expect("stopped");
    }
    let once: BTreeMap<usize, usize> =
        (0..RECORDS).filter(|value| *value != DEAD).map(|value| (value, 1)).collect();
    assert_eq!(*handled.lock().expect("not poisoned"), once);
    assert_eq!(attempts.lock().expect("not poisoned")[&DEAD], 3);
    // Nothing is left for another member.
    let mut later = member(&cluster, "worked", &[]);
    assert!(later.poll_blocking(A_WHILE).expect("no error").is_none(), "all are accepted");
    later.close_blocking(PATIENCE).expect("closed");
    Ok(())
}

fn a_restarted_broker_is_consumed_from_again(kind: Kind) -> Result<(), Failure> {
    require!(Peer::NewestJava);
    let mut cluster = Broker::start(kind)?;
    let client = prepare(&cluster, "restart", 2);
    produce(&client, "restart", 0..100);
    let mut consumer = member(&cluster, "restart", &[]);
    let mut seen = BTreeSet::new();
    while seen.len() < 100 {
        seen.extend(values(&next(&mut consumer, "records")));
    }
    commit(&mut consumer);
    cluster.kill()?;
    assert!(consumer.poll_blocking(Duration::from_secs(1)).is_ok_and(|polled| polled.is_none()));
    cluster.restart()?;
    produce(&client, "restart", 100..200);
    while seen.len() < 200 {
        seen.extend(values(&next(&mut consumer, "records after the restart")));
    }
    commit(&mut consumer);
    consumer.close_blocking(PATIENCE).expect("closed");
    Ok(())
}
