//! Brokers for programs on Kafka Streams, Connect and MirrorMaker, and the Java programs themselves.

use std::process::Command;

use crate::cluster::Cluster;
use crate::failure::Failure;
use crate::jars::application_jars;
use crate::kafka::{KafkaCluster, KafkaOptions};
use crate::ottla::OttlaBroker;
use crate::workspace::workspace_root;

/// Groups of both protocols with short sessions and without an initial delay, a cleaner that looks often, and transactions
/// that end in time.
const PROPERTIES: &[(&str, &str)] = &[
    ("group.initial.rebalance.delay.ms", "0"),
    ("group.min.session.timeout.ms", "500"),
    ("group.consumer.min.session.timeout.ms", "1000"),
    ("group.consumer.session.timeout.ms", "6000"),
    ("group.consumer.min.heartbeat.interval.ms", "100"),
    ("group.consumer.heartbeat.interval.ms", "300"),
    ("log.cleaner.backoff.ms", "100"),
    ("transaction.abort.timed.out.transaction.cleanup.interval.ms", "100"),
];

/// Set by a soak: the stories run against Apache Kafka 4.3, too, and its value is the number of kills in those with kills.
const SOAK: &str = "OTTLA_SOAK_APPLICATIONS";

/// The number of kills that a soak demands.
pub fn application_kills() -> Option<u32> {
    std::env::var(SOAK).ok().map(|count| count.parse().expect("a number of kills"))
}

/// Runs a story against an Ottla broker of its own, and in a soak against Apache Kafka 4.3 as well.
pub fn on_application_brokers(story: impl Fn(&dyn Cluster) -> Result<(), Failure>) -> Result<(), Failure> {
    if application_kills().is_some() {
        story(&kafka_for_applications()?)?;
        println!("Apache Kafka 4.3: passed");
    }
    let broker = ottla_for_applications()?;
    story(&broker)?;
    broker.stop()
}

/// An Ottla broker for these programs.
pub fn ottla_for_applications() -> Result<OttlaBroker, Failure> {
    let args = application_arguments();
    OttlaBroker::start(&args.iter().map(String::as_str).collect::<Vec<_>>())
}

/// The arguments of an Ottla broker for these programs.
pub fn application_arguments() -> Vec<String> {
    PROPERTIES.iter().flat_map(|(key, value)| ["-X".to_owned(), format!("{key}={value}")]).collect()
}

/// Apache Kafka 4.3 for these programs.
pub fn kafka_for_applications() -> Result<KafkaCluster, Failure> {
    KafkaCluster::start_with(
        1,
        &KafkaOptions { properties: PROPERTIES, newest: true, ..KafkaOptions::default() },
    )
}

/// A command that runs a Java program of `interop/java`. Its arguments follow.
pub fn java_application(program: &str) -> Result<Command, Failure> {
    let mut java = application_jars()?.java(512);
    java.arg(workspace_root().join("interop/java").join(program));
    Ok(java)
}
