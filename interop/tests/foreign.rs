//! Clients that others wrote: transactions of each, and a group whose members are on different ones.
//!
//! In the transactions, franz-go, Sarama, kafka-python and aiokafka, which share no code with Java's or librdkafka, move ten
//! records of a group in three transactions and abort the second one. `cargo xtask soak foreign` runs all tests with Apache
//! Kafka 4.3 as well.

#![allow(clippy::disallowed_methods, reason = "a test is a shell")]

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use ottla_client::{Admin, Config, OffsetAt, Producer, Record, TopicPartition};
use ottla_interop::{
    Cluster, Failure, Peer, foreign_go, foreign_python, on_application_brokers, require, run,
};

/// The programs end their waits after 60 seconds.
const STORY_WITHIN: Duration = Duration::from_secs(90);

type Program = fn() -> Result<Command, Failure>;

const CLIENTS: [(&str, Program); 4] = [
    ("franz-go", foreign_go),
    ("sarama", foreign_go),
    ("kafka-python", foreign_python),
    ("aiokafka", foreign_python),
];

#[test]
fn consumers_see_exactly_the_committed_transactions() -> Result<(), Failure> {
    require!(Peer::Go);
    require!(Peer::Python);
    on_application_brokers(stories)
}

fn stories(cluster: &dyn Cluster) -> Result<(), Failure> {
    for (client, program) in CLIENTS {
        let [source, sink] = ["source", "sink"].map(|end| format!("{client}-{end}"));
        cluster.create_topic(&source, 1)?;
        cluster.create_topic(&sink, 1)?;
        in_runtime(fill(&cluster.bootstrap(), &source));
        let mut story = program()?;
        story.args([client, &cluster.bootstrap(), &source, &sink]);
        let printed = run(client, &mut story, b"", STORY_WITHIN)?.succeeded()?;
        assert_eq!(printed.lines(), ["up to 4", "up to 10"], "{client}");
        // Three records and three markers: the aborted record is in the log.
        assert_eq!(in_runtime(end_offset(&cluster.bootstrap(), &sink)), 6, "{client}");
        assert_eq!(in_runtime(committed(&cluster.bootstrap(), client, &source)), Some(10), "{client}");
    }
    Ok(())
}

pub(crate) fn in_runtime<T>(story: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(story)
}

async fn fill(bootstrap: &str, topic: &str) {
    let producer = Producer::new(Config::new(bootstrap)).expect("a producer");
    for number in 0..10 {
        producer.send(Record::to(topic).value(&format!("r{number}"))).await.expect("acknowledged");
    }
}

async fn end_offset(bootstrap: &str, topic: &str) -> i64 {
    let admin = Admin::new(Config::new(bootstrap)).expect("an admin");
    let at = TopicPartition::new(topic, 0);
    let ends: BTreeMap<TopicPartition, i64> =
        admin.list_offsets(&[(at.clone(), OffsetAt::Latest)]).await.expect("listed");
    ends[&at]
}

async fn committed(bootstrap: &str, client: &str, topic: &str) -> Option<i64> {
    let admin = Admin::new(Config::new(bootstrap)).expect("an admin");
    let at = TopicPartition::new(topic, 0);
    let group = format!("movers-{client}");
    let offsets = admin.group_offsets(&group, Some(std::slice::from_ref(&at))).await.expect("described");
    offsets.get(&at).copied()
}
