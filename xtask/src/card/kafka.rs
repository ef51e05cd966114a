//! The cluster of the suites: Apache Kafka with three nodes, and its tools under the names of their scripts.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use ottla_interop::{Failure, KafkaCluster, KafkaOptions, console, java_command};

use super::suite::ONE_PARTITION;

const NODES: usize = 3;

/// The broker version for `TEST_KAFKA_VERSION`.
const VERSION: &str = "4.1.0";

/// A running cluster with the environment that librdkafka's tests read.
pub(super) struct Kafka {
    cluster: KafkaCluster,
    /// A directory with `bin/kafka-topics.sh` and others.
    tools: PathBuf,
}

impl Kafka {
    /// Starts the cluster that a scenario of the tests needs; `dir` holds its tools.
    pub(super) fn start(scenario: &str, dir: &Path) -> Result<Self, Failure> {
        let creates_topics = if scenario == "noautocreate" { "false" } else { "true" };
        let partitions = if scenario == ONE_PARTITION { "1" } else { "4" };
        let of_scenario = [("auto.create.topics.enable", creates_topics), ("num.partitions", partitions)];
        let properties = [&of_scenario, PROPERTIES].concat();
        let racks = [[("broker.rack", "RACK1")], [("broker.rack", "RACK2")], [("broker.rack", "RACK3")]];
        let options = KafkaOptions {
            properties: &properties,
            node_properties: &[&racks[0], &racks[1], &racks[2]],
            warm: true,
            ..KafkaOptions::default()
        };
        let tools = dir.join("kafka");
        write_tools(&tools)?;
        Ok(Self { cluster: KafkaCluster::start_with(NODES, &options)?, tools })
    }

    pub(super) fn bootstrap(&self) -> String {
        self.cluster.bootstrap()
    }

    /// Sets the variables that the tests' own launcher sets.
    pub(super) fn describe_to(&self, command: &mut Command) {
        command.env("TEST_KAFKA_VERSION", VERSION).env("KAFKA_PATH", &self.tools);
        command.env("BROKERS", self.bootstrap());
        for (address, id) in self.cluster.addresses().iter().zip(1..) {
            command.env(format!("BROKER_ADDRESS_{id}"), address.to_string());
        }
    }
}

/// As the tests' own clusters: replicated, access lists, fetches from followers, short sessions.
const PROPERTIES: &[(&str, &str)] = &[
    ("default.replication.factor", "3"),
    ("offsets.topic.replication.factor", "3"),
    ("transaction.state.log.replication.factor", "3"),
    ("replica.selector.class", "org.apache.kafka.common.replica.RackAwareReplicaSelector"),
    ("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
    ("allow.everyone.if.no.acl.found", "true"),
    ("connections.max.reauth.ms", "10000"),
    ("log.retention.bytes", "1000000000"),
];

const TOOLS: &[(&str, &str)] = &[
    ("kafka-topics.sh", console::TOPICS),
    ("kafka-configs.sh", console::CONFIGS),
    ("kafka-acls.sh", "org.apache.kafka.tools.AclCommand"),
];

/// The jars from Maven come without scripts.
fn write_tools(tools: &Path) -> Result<(), Failure> {
    let bin = tools.join("bin");
    fs::create_dir_all(&bin).map_err(|error| Failure::new(format!("{}: {error}", bin.display())))?;
    for (script, class) in TOOLS {
        let java = java_command(class, &[])?;
        let words: Vec<String> = java.get_args().map(|word| quoted(&word.to_string_lossy())).collect();
        let text = format!("#!/bin/sh\nexec java {} \"$@\"\n", words.join(" "));
        let path = bin.join(script);
        let write = fs::write(&path, text)
            .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(0o755)));
        write.map_err(|error| Failure::new(format!("{}: {error}", path.display())))?;
    }
    Ok(())
}

fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_script_are_quoted() {
        assert_eq!(quoted("/a dir/*"), "'/a dir/*'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }
}
