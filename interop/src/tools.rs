//! The peers' command-line tools, each with a deadline.

use std::process::Command;
use std::time::Duration;

use crate::failure::Failure;
use crate::jars::jars;
use crate::librdkafka::Librdkafka;
use crate::process::{Output, run};

/// A tool starts a JVM, connects and processes a few thousand records: seconds on an idle machine.
const TOOL_WITHIN: Duration = Duration::from_secs(60);

/// kcat is fast; only a broker that does not answer makes it slow.
const KCAT_WITHIN: Duration = Duration::from_secs(30);

/// The class names of the tools behind Kafka's shell scripts, for [`java_tool`].
pub mod console {
    /// `kafka-console-producer.sh`
    pub const PRODUCER: &str = "org.apache.kafka.tools.ConsoleProducer";
    /// `kafka-console-consumer.sh`
    pub const CONSUMER: &str = "org.apache.kafka.tools.consumer.ConsoleConsumer";
    /// `kafka-topics.sh`
    pub const TOPICS: &str = "org.apache.kafka.tools.TopicCommand";
    /// `kafka-consumer-groups.sh`
    pub const GROUPS: &str = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand";
    /// `kafka-configs.sh`
    pub const CONFIGS: &str = "kafka.admin.ConfigCommand";
    /// `kafka-producer-perf-test.sh`
    pub const PRODUCER_PERF: &str = "org.apache.kafka.tools.ProducerPerformance";
    /// `kafka-consumer-perf-test.sh`
    pub const CONSUMER_PERF: &str = "org.apache.kafka.tools.ConsumerPerformance";
    /// `kafka-dump-log.sh`
    pub const DUMP_LOG: &str = "kafka.tools.DumpLogSegments";
    /// `kafka-transactions.sh`
    pub const TRANSACTIONS: &str = "org.apache.kafka.tools.TransactionsCommand";
    /// `kafka-storage.sh`
    pub const STORAGE: &str = "kafka.tools.StorageTool";
}

/// A `java` command for one of Kafka's classes, for a test that needs its own [`Process`](crate::Process).
pub fn java_command(class: &str, args: &[&str]) -> Result<Command, Failure> {
    let mut java = jars()?.java(256);
    java.arg(class).args(args);
    Ok(java)
}

/// Runs one of Kafka's tools until it exits.
pub fn java_tool(class: &str, args: &[&str], stdin: &[u8]) -> Result<Output, Failure> {
    let name = class.rsplit('.').next().unwrap_or(class);
    run(name, &mut java_command(class, args)?, stdin, TOOL_WITHIN)
}

/// Runs kcat until it exits, on a library other than the system's.
pub fn kcat_on(library: &Librdkafka, args: &[&str], stdin: &[u8]) -> Result<Output, Failure> {
    run("kcat", library.load(Command::new("kcat").args(args)), stdin, KCAT_WITHIN)
}

/// Runs kcat until it exits.
pub fn kcat(args: &[&str], stdin: &[u8]) -> Result<Output, Failure> {
    run("kcat", Command::new("kcat").args(args), stdin, KCAT_WITHIN)
}
