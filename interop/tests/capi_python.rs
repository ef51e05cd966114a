//! confluent-kafka for Python: its wheel on the original, and its sources built against our headers on our library.

#![allow(clippy::disallowed_methods, reason = "a test is a shell")]

use std::process::Command;

use ottla_interop::{
    Failure, KafkaCluster, KafkaOptions, Librdkafka, Peer, python_package, require, stories_of_a_binding,
    tell_story, workspace_root,
};

stories_of_a_binding! { Python;
    everywhere: produce_and_consume batches commits eager_group cooperative_group statistics_and_logs misuse
        transactions admin_topics admin_settings admin_groups_and_offsets;
    on_kafka: next_generation_group admin_credentials_and_elections
}

/// A cluster with an authorizer. The other clusters reject these calls.
#[test]
fn rights_on_a_cluster_that_asks_for_them() -> Result<(), Failure> {
    require!(Peer::Python);
    require!(Peer::Librdkafka);
    require!(Peer::Java);
    let kafka = KafkaCluster::start_with(
        1,
        &KafkaOptions {
            properties: &[
                ("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
                ("super.users", "User:ANONYMOUS"),
            ],
            ..KafkaOptions::default()
        },
    )?;
    for library in [Librdkafka::ours()?, Librdkafka::reference()?] {
        tell_story(stories(&library)?, "admin_rights", &library, &kafka)?;
    }
    Ok(())
}

fn stories(library: &Librdkafka) -> Result<Command, Failure> {
    let mut python = Command::new("python3");
    python.arg(workspace_root().join("interop/python/stories.py"));
    python.env("PYTHONPATH", python_package(library)?).env("PYTHONDONTWRITEBYTECODE", "1");
    Ok(python)
}
