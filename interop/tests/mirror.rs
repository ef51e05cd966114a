//! MirrorMaker 2 of Kafka 4.3 in both directions: records, settings of topics, and offsets of groups.
//!
//! It copies between two Ottla brokers. `cargo xtask soak mirror` copies between Apache Kafka 4.3 and Ottla as well, and
//! stops MirrorMaker in between.

#![allow(clippy::disallowed_methods, reason = "a test is a shell, in real time")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Duration;

use ottla_client::{Admin, Config, NewTopic, OwnedRecord, Producer, Record, TopicPartition};
use ottla_interop::{
    Cluster, Failure, Peer, Process, application_jars, application_kills, kafka_for_applications,
    ottla_for_applications, require, wait_until,
};

use crate::applications::{committed, in_runtime};

const SOON: Duration = Duration::from_secs(60);

const PARTITIONS: i32 = 3;
const RECORDS: usize = 300;

#[test]
fn topics_and_offsets_are_copied_in_both_directions() -> Result<(), Failure> {
    require!(Peer::Applications);
    if application_kills().is_some() {
        let (kafka, ottla) = (kafka_for_applications()?, ottla_for_applications()?);
        story(&kafka, &ottla)?;
        println!("Apache Kafka 4.3 and Ottla: passed");
    }
    story(&ottla_for_applications()?, &ottla_for_applications()?)
}

/// `orders` is copied from the left to the right, and `payments` from the right to the left.
fn story(left: &dyn Cluster, right: &dyn Cluster) -> Result<(), Failure> {
    let scratch = tempfile::tempdir().map_err(|error| Failure::new(format!("a directory: {error}")))?;
    let mut sent = Vec::new();
    for (broker, topic) in [(left, "orders"), (right, "payments")] {
        in_runtime(prepare(broker, topic));
        sent.push(in_runtime(produce(broker, topic, 0)));
    }
    let mirror = MirrorMaker::start(scratch.path(), left, right)?;
    same(&sent[0], &committed(right, "left.orders", PARTITIONS, RECORDS), "orders");
    same(&sent[1], &committed(left, "right.payments", PARTITIONS, RECORDS), "payments");
    for (broker, topic) in [(right, "left.orders"), (left, "right.payments")] {
        assert_eq!(in_runtime(setting(broker, topic, "retention.ms")), "86400000", "{topic}");
    }

    // A group that has read all of the source continues at the same place of the copy.
    let ends: BTreeMap<i32, i64> = sent[0].iter().map(|(at, records)| (*at, records.len() as i64)).collect();
    in_runtime(commit(left, "billing", "orders", &ends));
    let copied = || in_runtime(group_offsets(right, "billing", "left.orders"));
    wait_until("the copy of the group's offsets", SOON, || (copied() == ends).then_some(()))
        .map_err(|failure| Failure::new(format!("{failure}: {:?} instead of {ends:?}", copied())))
        .map_err(|failure| mirror.0.quoted(&failure))?;
    assert!(!committed(right, "left.checkpoints.internal", 1, 1).is_empty(), "no checkpoint");

    mirror.stop()?;
    if application_kills().is_none() {
        return Ok(());
    }
    // A MirrorMaker that was stopped continues where it was.
    for ((broker, topic), sent) in [(left, "orders"), (right, "payments")].into_iter().zip(&mut sent) {
        for (partition, records) in in_runtime(produce(broker, topic, RECORDS)) {
            sent.entry(partition).or_default().extend(records);
        }
    }
    let mirror = MirrorMaker::start(scratch.path(), left, right)?;
    same(&sent[0], &committed(right, "left.orders", PARTITIONS, 2 * RECORDS), "orders after a restart");
    same(&sent[1], &committed(left, "right.payments", PARTITIONS, 2 * RECORDS), "payments after a restart");
    mirror.stop()
}

struct MirrorMaker(Process);

impl MirrorMaker {
    fn start(dir: &Path, left: &dyn Cluster, right: &dyn Cluster) -> Result<Self, Failure> {
        let mut text = format!(
            "clusters=left,right\nleft.bootstrap.servers={}\nright.bootstrap.servers={}\n\
             left->right.enabled=true\nleft->right.topics=orders\n\
             right->left.enabled=true\nright->left.topics=payments\n",
            left.bootstrap(),
            right.bootstrap()
        );
        for topic in ["", "checkpoints.topic.", "heartbeats.topic.", "offset-syncs.topic."] {
            let _ = writeln!(text, "{topic}replication.factor=1");
        }
        for topic in ["config", "offset", "status"] {
            let _ = writeln!(text, "{topic}.storage.replication.factor=1");
        }
        text += "offset.storage.partitions=2\nstatus.storage.partitions=2\noffset.flush.interval.ms=200\n";
        text += "sync.group.offsets.enabled=true\nsync.group.offsets.interval.seconds=1\n";
        text += "emit.checkpoints.interval.seconds=1\nrefresh.topics.interval.seconds=1\n";
        text +=
            "refresh.groups.interval.seconds=1\nsync.topic.configs.interval.seconds=1\noffset.lag.max=0\n";
        text += "scheduled.rebalance.max.delay.ms=0\nplugin.discovery=service_load\n";
        let properties = dir.join("mirror.properties");
        fs::write(&properties, text).map_err(|error| Failure::new(format!("mirror.properties: {error}")))?;
        let mut java = application_jars()?.java(512);
        java.arg("org.apache.kafka.connect.mirror.MirrorMaker").arg(&properties).current_dir(dir);
        Process::spawn("MirrorMaker", &mut java).map(Self)
    }

    fn stop(mut self) -> Result<(), Failure> {
        self.0.stop().map(|_| ())
    }
}

/// Partition, key, value, headers and timestamps are those of the source.
fn same(sent: &BTreeMap<i32, Vec<OwnedRecord>>, found: &BTreeMap<i32, Vec<OwnedRecord>>, what: &str) {
    assert!(found.keys().eq(sent.keys()), "{what}: partitions {:?}", found.keys());
    for (partition, records) in found {
        let sent = &sent[partition];
        let wrong = records.iter().zip(sent).find(|(found, sent)| {
            (found.timestamp_ms, &found.key, &found.value, &found.headers)
                != (sent.timestamp_ms, &sent.key, &sent.value, &sent.headers)
        });
        assert!(wrong.is_none(), "{what}, partition {partition}: {wrong:?}");
        assert_eq!(records.len(), sent.len(), "{what}, partition {partition}");
    }
}

async fn prepare(broker: &dyn Cluster, topic: &str) {
    let admin = Admin::new(Config::new(broker.bootstrap())).expect("an admin");
    let topic = NewTopic::new(topic).partitions(PARTITIONS).config("retention.ms", "86400000");
    admin.create_topics(&[topic]).await.expect("created");
}

/// Produces records, and returns them as they are in the log.
async fn produce(broker: &dyn Cluster, topic: &str, first: usize) -> BTreeMap<i32, Vec<OwnedRecord>> {
    let producer = Producer::new(Config::new(broker.bootstrap())).expect("a producer");
    let mut sent: BTreeMap<i32, Vec<OwnedRecord>> = BTreeMap::new();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
    for number in first..first + RECORDS {
        let partition = number as i32 % PARTITIONS;
        let timestamp_ms = now.as_millis() as i64 - 100_000 + number as i64;
        let (key, value, header) =
            (format!("k{}", number % 7), format!("{topic} {number}"), number.to_string());
        let record = Record::to(topic).partition(partition).key(&key).value(&value);
        let record = record.header("number", &header).timestamp_ms(timestamp_ms);
        producer.send_unobserved(record).await.expect("taken");
        sent.entry(partition).or_default().push(OwnedRecord {
            offset: -1,
            timestamp_ms,
            key: Some(key.into()),
            value: Some(value.into()),
            headers: vec![("number".to_owned(), Some(header.into()))],
        });
    }
    producer.flush(SOON).await.expect("acknowledged");
    sent
}

async fn setting(broker: &dyn Cluster, topic: &str, name: &str) -> String {
    let admin = Admin::new(Config::new(broker.bootstrap())).expect("an admin");
    let all = admin.describe_topic_configs(topic).await.expect("described");
    all.into_iter().find(|entry| entry.name == name).and_then(|entry| entry.value).expect("a value")
}

async fn commit(broker: &dyn Cluster, group: &str, topic: &str, offsets: &BTreeMap<i32, i64>) {
    let admin = Admin::new(Config::new(broker.bootstrap())).expect("an admin");
    let offsets: BTreeMap<TopicPartition, i64> =
        offsets.iter().map(|(at, offset)| (TopicPartition::new(topic, *at), *offset)).collect();
    admin.alter_group_offsets(group, &offsets).await.expect("committed");
}

async fn group_offsets(broker: &dyn Cluster, group: &str, topic: &str) -> BTreeMap<i32, i64> {
    let admin = Admin::new(Config::new(broker.bootstrap())).expect("an admin");
    let found = admin.group_offsets(group, None).await.unwrap_or_default();
    found
        .into_iter()
        .filter(|(at, _)| &*at.topic == topic)
        .map(|(at, offset)| (at.partition, offset))
        .collect()
}
