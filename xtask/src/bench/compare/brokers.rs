//! The clusters of the measurements: Apache Kafka with one or two nodes, or our broker.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use ottla_interop::{Failure, KafkaCluster, KafkaOptions, Peer};

use super::super::machine::log_bytes;
use super::super::ottla::{Broker, Ottla};
use super::peers::Peers;

/// A thousand partitions are as many directories and several times as many files, which a busy disk takes its time for.
const PATIENT: [&str; 2] = ["-X", "request.timeout.ms=300000"];

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    Kafka,
    Ottla,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kafka => "kafka",
            Self::Ottla => "ottla",
        })
    }
}

/// The release of Apache Kafka.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Version {
    /// The one that the other figures were measured with.
    Usual,
    /// The newest: share groups need it.
    Newest,
}

enum Running {
    Kafka(KafkaCluster),
    Ottla(Broker),
}

pub(super) struct Brokers {
    pub(super) name: String,
    running: Running,
    nodes: usize,
    data: PathBuf,
}

impl Brokers {
    /// `None` where there is no Apache Kafka, which is said.
    pub(super) fn start(
        kind: Kind,
        version: Version,
        nodes: usize,
        peers: &Peers,
        data: &Path,
    ) -> Result<Option<Self>, Failure> {
        let name = format!("{kind}-{nodes}");
        let running = match kind {
            Kind::Ottla => Running::Ottla(peers.ottla.broker(data, "os")?),
            Kind::Kafka => {
                if let Err(missing) = Peer::Java.require() {
                    println!("{name}: skipped: {missing}");
                    return Ok(None);
                }
                // Deleted topics shall not fill the disk for a minute each, as they do by default.
                let properties = &[("log.segment.delete.delay.ms", "1000")];
                Running::Kafka(KafkaCluster::start_with(
                    nodes,
                    &KafkaOptions {
                        properties,
                        warm: true,
                        newest: version == Version::Newest,
                        ..KafkaOptions::default()
                    },
                )?)
            }
        };
        let data = match &running {
            Running::Ottla(_) => data.to_owned(),
            Running::Kafka(kafka) => {
                let first = kafka.log_dir(1);
                first.ancestors().nth(2).unwrap_or(&first).to_owned()
            }
        };
        Ok(Some(Self { name, running, nodes, data }))
    }

    pub(super) fn bootstrap(&self) -> String {
        match &self.running {
            Running::Kafka(kafka) => kafka.bootstrap(),
            Running::Ottla(broker) => broker.bootstrap(),
        }
    }

    pub(super) fn process_ids(&self) -> Vec<u32> {
        match &self.running {
            Running::Kafka(kafka) => (1..=self.nodes).filter_map(|node| kafka.process_id(node)).collect(),
            Running::Ottla(broker) => vec![broker.process_id()],
        }
    }

    /// The directory of all nodes' logs.
    pub(super) fn data(&self) -> &Path {
        &self.data
    }

    /// Bytes of a topic's segments on all nodes.
    pub(super) fn topic_bytes(&self, topic: &str) -> u64 {
        partition_dirs(&self.data, topic).iter().map(|dir| log_bytes(dir)).sum()
    }

    /// Runs `work` on a new topic, which is deleted afterwards.
    pub(super) fn with_topic<T>(
        &self,
        ottla: &Ottla,
        topic: &str,
        partitions: u32,
        work: impl FnOnce() -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        self.create_topic(ottla, topic, partitions)?;
        let result = work();
        self.delete_topic(ottla, topic)?;
        result
    }

    /// Its name must not have been used before: brokers take their time to forget one.
    pub(super) fn create_topic(&self, ottla: &Ottla, topic: &str, partitions: u32) -> Result<(), Failure> {
        let (bootstrap, partitions) = (self.bootstrap(), partitions.to_string());
        let args = ["topics", "create", topic, "--partitions", &partitions, "--brokers", &bootstrap];
        ottla.command(&[&args[..], &PATIENT].concat()).map(drop)
    }

    pub(super) fn delete_topic(&self, ottla: &Ottla, topic: &str) -> Result<(), Failure> {
        let bootstrap = self.bootstrap();
        let args = ["topics", "delete", topic, "--brokers", &bootstrap];
        ottla.command(&[&args[..], &PATIENT].concat()).map(drop)
    }

    pub(super) fn stop(self) -> Result<(), Failure> {
        match self.running {
            Running::Kafka(kafka) => {
                drop(kafka);
                Ok(())
            }
            Running::Ottla(broker) => {
                broker.stop()?;
                fs::remove_dir_all(&self.data)
                    .map_err(|error| Failure::new(format!("{}: {error}", self.data.display())))
            }
        }
    }
}

/// `TOPIC-NUMBER`, at whatever depth.
fn partition_dirs(dir: &Path, topic: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten().filter(|entry| entry.path().is_dir()) {
        let name = entry.file_name();
        let partition = name.to_str().and_then(|name| name.strip_prefix(topic)?.strip_prefix('-'));
        if partition.is_some_and(|number| number.parse::<u32>().is_ok()) {
            found.push(entry.path());
        } else {
            found.extend(partition_dirs(&entry.path(), topic));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_topics_own_partitions_are_counted() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["node-1/data/events-0", "node-2/data/events-12", "events-x-0", "events-0.1f-delete"] {
            fs::create_dir_all(dir.path().join(name)).unwrap();
        }
        let mut found = partition_dirs(dir.path(), "events");
        found.sort();
        let expected = ["node-1/data/events-0", "node-2/data/events-12"].map(|name| dir.path().join(name));
        assert_eq!(found, expected);
    }
}
