//! confluent-kafka-javascript for Node, its addon built against our headers, on the original and on our library.
//!
//! The package has two interfaces: KafkaJS's, and node-rdkafka's in the stories whose names begin with `callback`.

#![allow(clippy::disallowed_methods, reason = "a test is a shell")]

use std::process::Command;

use ottla_interop::{Failure, Librdkafka, javascript_package, stories_of_a_binding, workspace_root};

stories_of_a_binding! { Javascript;
    everywhere: produce_and_consume batches commits seek_pause_resume eager_group cooperative_group
        next_generation_group slow_revocation transactions admin_topics admin_groups_and_offsets errors
        callback_producer callback_producer_errors callback_high_level_producer callback_flowing_consumer
        callback_non_flowing_consumer callback_slow_revocation callback_streams;
    on_kafka:
}

fn stories(_: &Librdkafka) -> Result<Command, Failure> {
    let mut node = Command::new("node");
    node.arg(workspace_root().join("interop/node/stories.js")).env("NODE_PATH", javascript_package()?);
    Ok(node)
}
