//! Idempotent delivery with faults: connections are cut at random bytes, leaders move, brokers restart. Every record
//! is written once and in order.

#![allow(clippy::disallowed_methods, reason = "a test is a shell: it may use threads and real time")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ottla_broker::Broker;
use ottla_client::{
    Admin, Client, Config, Consumer, NewTopic, Polled, Producer, Record, StartAt, TopicPartition,
};
use ottla_interop::{Failure, KafkaCluster, KafkaOptions, Peer, probe, require};

use crate::cutting::Cutting;

/// Delivery timeout; it covers all faults of a test.
const PATIENCE: Duration = Duration::from_secs(180);

const PARTITIONS: i32 = 4;

/// Sends `count` records through connections that are cut, and calls `trouble` after each tenth of them. Checks that
/// each partition has its records once and in order.
fn deliver(
    bootstrap: &str,
    topic: &str,
    count: u64,
    seed: u64,
    mut trouble: impl FnMut(u64) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let connector = Arc::new(Cutting::new(seed, 512 << 10));
    let mut config = Config::new(bootstrap);
    config.batch_size = 64 << 10;
    config.retry_backoff = Duration::from_millis(10);
    config.reconnect_backoff = Duration::from_millis(5);
    config.reconnect_backoff_max = Duration::from_millis(200);
    config.delivery_timeout = PATIENCE;
    config.delivery_reports = true;
    let failed = |error: &dyn std::fmt::Display| Failure::new(format!("seed {seed}: {error}"));
    let client = Client::with_connector(config, connector.clone()).map_err(|error| failed(&error))?;
    let producer = client.producer();
    let reports = producer.reports().map_err(|error| failed(&error))?;
    let records = producer.topic(topic);
    let mut acknowledged = 0;
    for number in 0..count {
        if number % (count / 10) == 0 {
            trouble(number / (count / 10))?;
        }
        let value = format!("{number:020}");
        let partition = (number % PARTITIONS as u64) as i32;
        let record = Record::to(topic).partition(partition).value(&value);
        records.send_unobserved_blocking(&record).map_err(|error| failed(&error))?;
        while let Some(report) = reports.try_next() {
            report.result().map_err(|error| failed(&error))?;
            acknowledged += report.len() as u64;
        }
    }
    producer.flush_blocking(PATIENCE).map_err(|error| failed(&error))?;
    while let Some(report) = reports.try_next() {
        report.result().map_err(|error| failed(&error))?;
        acknowledged += report.len() as u64;
    }
    assert_eq!(acknowledged, count, "seed {seed}: every record was acknowledged");
    assert!(connector.cuts() > 0, "seed {seed}: connections were cut");
    check(bootstrap, topic, count, seed).map_err(|error| failed(&error))
}

fn check(bootstrap: &str, topic: &str, count: u64, seed: u64) -> Result<(), ottla_client::Error> {
    let mut consumer = Consumer::new(Config::new(bootstrap))?;
    let all: Vec<_> = (0..PARTITIONS)
        .map(|partition| (TopicPartition::new(topic, partition), StartAt::Beginning))
        .collect();
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(consumer.assign(&all))?;
    let mut next: Vec<u64> = (0..PARTITIONS as u64).collect();
    let mut seen = 0;
    while seen < count {
        match consumer.poll_blocking(PATIENCE)? {
            Some(Polled::Records(batch)) => {
                for record in &batch {
                    let value = record?.value.unwrap_or_default().to_vec();
                    let next = &mut next[batch.partition() as usize];
                    assert_eq!(
                        value,
                        format!("{next:020}").into_bytes(),
                        "seed {seed}: lost, doubled or moved"
                    );
                    *next += PARTITIONS as u64;
                    seen += 1;
                }
            }
            Some(_) => {}
            None => panic!("seed {seed}: {seen} of {count} records after {PATIENCE:?}"),
        }
    }
    Ok(())
}

#[test]
fn a_million_records_survive_cuts_moving_leaders_and_restarts_of_our_broker() -> Result<(), Failure> {
    let data = tempfile::tempdir().expect("a directory");
    let start = |port: u16| {
        let builder = Broker::builder().data_dir(data.path()).nodes(2).topic("orders", PARTITIONS);
        builder.listen(([127, 0, 0, 1], port).into()).spawn()
    };
    // The second node's port follows the first one's, and may be in use.
    let (port, first) = (0..100)
        .find_map(|_| {
            let port = probe::free_ports(1).ok()?[0];
            Some((port, start(port).ok()?))
        })
        .expect("two ports in a row");
    let bootstrap = first.bootstrap_servers();
    let mut broker = Some(first);
    deliver(&bootstrap, "orders", 1_000_000, 17, |tenth| {
        if tenth == 5 {
            broker.take().expect("it runs").stop();
            broker = start(port).ok();
            assert!(broker.is_some(), "it starts again on its data");
        } else if let Some(broker) = &broker {
            let partition = tenth as i32 % PARTITIONS;
            broker.cluster().set_leader("orders", partition, 1 + tenth as i32 % 2);
        }
        Ok(())
    })
}

#[test]
fn a_million_records_survive_cuts_and_a_restart_of_apache_kafka() -> Result<(), Failure> {
    require!(Peer::Java);
    let mut kafka = KafkaCluster::start(1)?;
    ottla_interop::Cluster::create_topic(&kafka, "orders", PARTITIONS as u32)?;
    let bootstrap = kafka.bootstrap();
    deliver(&bootstrap, "orders", 1_000_000, 23, |tenth| {
        if tenth == 5 {
            kafka.kill_node(1)?;
            kafka.start_node(1)?;
        }
        Ok(())
    })
}

#[test]
fn a_million_records_survive_the_loss_of_a_leader_of_apache_kafka() -> Result<(), Failure> {
    require!(Peer::Java);
    let options =
        KafkaOptions { properties: &[("default.replication.factor", "2")], ..KafkaOptions::default() };
    let mut kafka = KafkaCluster::start_with(2, &options)?;
    ottla_interop::Cluster::create_topic(&kafka, "orders", PARTITIONS as u32)?;
    let bootstrap = kafka.bootstrap();
    deliver(&bootstrap, "orders", 1_000_000, 29, |tenth| {
        match tenth {
            3 => kafka.stop_node(2)?,
            6 => kafka.start_node(2)?,
            _ => {}
        }
        Ok(())
    })
}

/// Deletes and recreates a topic under a running producer. Later records are in the new topic, once and in order,
/// although leader epochs and producer state start again.
async fn topic_created_anew(bootstrap: &str) {
    let mut config = Config::new(bootstrap);
    config.allow_auto_create_topics = false;
    config.retry_backoff = Duration::from_millis(10);
    config.retry_backoff_max = Duration::from_millis(50);
    config.delivery_timeout = PATIENCE;
    let admin = Admin::new(config.clone()).expect("an admin");
    let producer = Producer::new(config.clone()).expect("a producer");
    let new = [NewTopic::new("again").partitions(1)];
    let mut sent = 0;
    let mut first = 0;
    for round in 0..3 {
        admin.create_topics(&new).await.expect("created");
        admin.await_topic("again", PATIENCE).await.expect("known");
        first = sent;
        let mut deliveries = Vec::new();
        for _ in 0..20_000 {
            let value = format!("{sent:020}");
            let record = Record::to("again").partition(0).value(&value);
            deliveries.push(producer.enqueue(record).await.expect("taken"));
            sent += 1;
        }
        if round < 2 {
            // Some records are in flight; none may be lost without an error.
            admin.delete_topics(&["again"]).await.expect("deleted");
            // Repeats until the broker has released the name.
            while admin.describe_topics(&["again"]).await.is_ok() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        } else {
            for delivery in deliveries {
                delivery.await.expect("written");
            }
        }
    }
    producer.flush(PATIENCE).await.expect("every record has its fate");
    let mut consumer = Consumer::new(config).expect("a consumer");
    consumer.assign(&[(TopicPartition::new("again", 0), StartAt::Beginning)]).await.expect("assigned");
    let mut last: Option<u64> = None;
    let mut seen = BTreeSet::new();
    while last != Some(sent - 1) {
        match consumer.poll(PATIENCE).await.expect("a poll without error") {
            Some(Polled::Records(batch)) => {
                for record in &batch {
                    let value = record.expect("a sound record").value.unwrap_or_default();
                    let number = String::from_utf8_lossy(value).parse().expect("a number");
                    // Records in flight when the topic was recreated may have overtaken each other.
                    assert!(seen.insert(number), "{number} is there twice");
                    if number >= first {
                        assert!(last.is_none_or(|last| last < number), "{number} after {last:?}");
                        last = Some(number);
                    }
                }
            }
            Some(_) => {}
            None => panic!("nothing after {last:?}"),
        }
    }
    assert_eq!(seen.range(first..).count() as u64, sent - first, "all that was sent to this one");
}

#[test]
fn a_recreated_topic_of_apache_kafka_receives_later_records() -> Result<(), Failure> {
    require!(Peer::Java);
    let kafka = KafkaCluster::start(1)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(topic_created_anew(&kafka.bootstrap()));
    Ok(())
}
