//! confluent-kafka for Python: its wheel on the original, and its sources built against our headers on our library.

#![allow(clippy::disallowed_methods, reason = "a test is a shell")]

use std::process::Command;
use std::time::Duration;

use ottla_interop::{
    Cluster, Failure, KafkaCluster, Librdkafka, Peer, on_both_libraries, python_package, require, run,
    workspace_root,
};

on_both_libraries! { Python;
    produce_and_consume
    batches
    commits
    eager_group
    cooperative_group
    statistics_and_logs
    misuse
    admin_topics
    admin_groups_and_offsets
}

/// What Ottla's broker does not do.
macro_rules! on_kafka_alone {
    ($($story:ident)+) => {
        mod ours_on_kafka_alone {
            $(#[test]
            fn $story() -> Result<(), super::Failure> {
                super::require!(super::Peer::Python);
                super::require!(super::Peer::Java);
                super::tell(stringify!($story), &super::Librdkafka::ours()?, &*super::KafkaCluster::shared()?)
            })+
        }

        mod reference_on_kafka_alone {
            $(#[test]
            fn $story() -> Result<(), super::Failure> {
                super::require!(super::Peer::Python);
                super::require!(super::Peer::Librdkafka);
                super::require!(super::Peer::Java);
                super::tell(stringify!($story), &super::Librdkafka::reference()?, &*super::KafkaCluster::shared()?)
            })+
        }
    };
}

on_kafka_alone! {
    next_generation_group
    transactions
    admin_security
}

macro_rules! told_in_python {
    ($($story:ident)+) => {
        $(fn $story(library: &Librdkafka, cluster: &dyn Cluster) -> Result<(), Failure> {
            tell(stringify!($story), library, cluster)
        })+
    };
}

told_in_python! {
    produce_and_consume
    batches
    commits
    eager_group
    cooperative_group
    statistics_and_logs
    misuse
    admin_topics
    admin_groups_and_offsets
}

/// The topics of each story, with their partitions; the others are made by the stories themselves.
const TOPICS: &[(&str, &str, u32)] = &[
    ("produce_and_consume", "py-parts", 2),
    ("batches", "py-batches", 3),
    ("commits", "py-commits", 1),
    ("eager_group", "py-eager", 4),
    ("cooperative_group", "py-cooperative", 4),
    ("next_generation_group", "py-next", 4),
    ("transactions", "py-source", 1),
    ("transactions", "py-sink", 1),
    ("statistics_and_logs", "py-statistics", 1),
    ("admin_groups_and_offsets", "py-offsets", 1),
    ("admin_security", "py-elections", 1),
];

/// Each wait inside a story has a deadline of 30 seconds; this one is for what hangs without one.
const STORY_WITHIN: Duration = Duration::from_secs(120);

fn tell(story: &str, library: &Librdkafka, cluster: &dyn Cluster) -> Result<(), Failure> {
    for &(_, topic, partitions) in TOPICS.iter().filter(|&&(owner, ..)| owner == story) {
        cluster.create_topic(topic, partitions)?;
    }
    let mut python = Command::new("python3");
    python.arg(workspace_root().join("interop/python/stories.py")).arg(story).arg(cluster.bootstrap());
    python.env("PYTHONPATH", python_package(library)?).env("PYTHONDONTWRITEBYTECODE", "1");
    run("python3", library.load(&mut python), b"", STORY_WITHIN)?.succeeded().map(|_| ())
}
