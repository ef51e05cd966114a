//! kcat (librdkafka), Kafka's console producer and our producer send the same key to the same partition.

#![allow(clippy::disallowed_methods, reason = "a test is a shell")]

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use ottla_client::{Config, Producer, Record};
use ottla_interop::{Cluster, Failure, OttlaBroker, Peer, console, java_tool, kcat, require};

const PARTITIONS: u32 = 17;
const KEYS: usize = 500;
const PATIENCE: Duration = Duration::from_secs(30);

#[test]
fn partitioners_agree_with_librdkafka_and_java() -> Result<(), Failure> {
    require!(Peer::Kcat);
    let broker = OttlaBroker::start(&[])?;
    let input = lines();
    for name in ["consistent", "consistent_random", "murmur2", "murmur2_random", "fnv1a", "fnv1a_random"] {
        let (theirs, ours) = (format!("kcat-{name}"), format!("ottla-{name}"));
        broker.create_topic(&theirs, PARTITIONS)?;
        broker.create_topic(&ours, PARTITIONS)?;
        let partitioner = format!("partitioner={name}");
        let produce = ["-b", &broker.bootstrap(), "-P", "-K", ":", "-t", &theirs, "-X", &partitioner];
        kcat(&produce, input.as_bytes())?.succeeded()?;
        produce_ourselves(&broker, &ours, name);
        let theirs = partitions(&broker, &theirs)?;
        assert_eq!(theirs.len(), KEYS);
        assert_eq!(partitions(&broker, &ours)?, theirs, "{name}");
    }
    require!(Peer::Java);
    broker.create_topic("java", PARTITIONS)?;
    let console = ["--bootstrap-server", &broker.bootstrap(), "--topic", "java"];
    let keyed = ["--property", "parse.key=true", "--property", "key.separator=:"];
    java_tool(console::PRODUCER, &[&console[..], &keyed].concat(), input.as_bytes())?.succeeded()?;
    assert_eq!(partitions(&broker, "java")?, partitions(&broker, "ottla-murmur2_random")?, "Java's default");
    Ok(())
}

/// Keys of every length up to 40 bytes, some with non-ASCII characters.
fn key(n: usize) -> String {
    let key = format!("{n}-order-\u{e9}-{}", "x".repeat(n % 30));
    key.chars().rev().collect()
}

fn lines() -> String {
    (0..KEYS).fold(String::new(), |mut lines, n| {
        let _ = writeln!(lines, "{}:value {n}", key(n));
        lines
    })
}

fn produce_ourselves(broker: &OttlaBroker, topic: &str, partitioner: &str) {
    let mut config = Config::new(broker.bootstrap());
    config.set("partitioner", partitioner).expect("known");
    let producer = Producer::new(config).expect("a client");
    let mut deliveries = Vec::new();
    for n in 0..KEYS {
        let (key, value) = (key(n), format!("value {n}"));
        let record = Record::to(topic).key(&key).value(&value);
        deliveries.push(producer.try_enqueue(record).expect("taken"));
    }
    for delivery in deliveries {
        delivery.wait(PATIENCE).expect("in time").expect("written");
    }
}

/// The partition of each key.
fn partitions(broker: &OttlaBroker, topic: &str) -> Result<BTreeMap<String, u32>, Failure> {
    let consume = ["-b", &broker.bootstrap(), "-C", "-t", topic, "-e", "-q", "-f", "%p %k\n"];
    let listing = kcat(&consume, b"")?.succeeded()?.stdout_text();
    Ok(listing
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(partition, key)| (key.to_owned(), partition.parse().expect("a number")))
        .collect())
}
