//! What a story needs of a cluster, so that the same story runs against Ottla's broker and against Apache Kafka.

use std::time::Duration;

use crate::failure::{Failure, wait_until};
use crate::kafka::KafkaCluster;
use crate::ottla::{OttlaBroker, ottla};
use crate::tools::{console, java_tool};

/// A running cluster, whoever built it.
pub trait Cluster {
    /// What clients take as `bootstrap.servers`.
    fn bootstrap(&self) -> String;

    /// Creates a topic with this cluster's own command-line tool.
    fn create_topic(&self, name: &str, partitions: u32) -> Result<(), Failure>;

    /// The same with our own tool, for stories that need many topics: it starts no JVM.
    fn create_topic_quickly(&self, name: &str, partitions: u32) -> Result<(), Failure> {
        let (bootstrap, count) = (self.bootstrap(), partitions.to_string());
        let create = ["topics", "create", name, "--partitions", &count, "--brokers", &bootstrap];
        ottla(&create, b"")?.succeeded()?;
        // Apache Kafka answers before its brokers know of the topic.
        wait_until(&format!("topic {name}"), KNOWN_WITHIN, || {
            let described = ottla(&["topics", "describe", name, "--brokers", &bootstrap], b"");
            described.is_ok_and(|output| output.status.success()).then_some(())
        })
    }
}

/// Milliseconds, and more on a loaded machine.
const KNOWN_WITHIN: Duration = Duration::from_secs(60);

impl Cluster for KafkaCluster {
    fn bootstrap(&self) -> String {
        self.bootstrap()
    }

    fn create_topic(&self, name: &str, partitions: u32) -> Result<(), Failure> {
        let (bootstrap, partitions) = (self.bootstrap(), partitions.to_string());
        let create =
            ["--bootstrap-server", &bootstrap, "--create", "--topic", name, "--partitions", &partitions];
        java_tool(console::TOPICS, &create, b"")?.succeeded().map(|_| ())
    }
}

impl Cluster for OttlaBroker {
    fn bootstrap(&self) -> String {
        self.bootstrap()
    }

    fn create_topic(&self, name: &str, partitions: u32) -> Result<(), Failure> {
        let (bootstrap, partitions) = (self.bootstrap(), partitions.to_string());
        let create = ["topics", "create", name, "--partitions", &partitions, "--brokers", &bootstrap];
        ottla(&create, b"")?.succeeded().map(|_| ())
    }
}

/// Makes two test modules from a list of story functions `fn(&dyn Cluster) -> Result<(), Failure>`: `ottla` runs each
/// against an Ottla broker of its own, `kafka` against the shared Apache Kafka. What Kafka itself does not pass is no
/// demand on Ottla.
#[macro_export]
macro_rules! against_ottla_and_kafka {
    ($peer:ident; $($story:ident)+) => {
        mod ottla {
            $(#[test]
            fn $story() -> Result<(), $crate::Failure> {
                $crate::require!($crate::Peer::$peer);
                super::$story(&$crate::OttlaBroker::start(&[])?)
            })+
        }

        mod kafka {
            $(#[test]
            fn $story() -> Result<(), $crate::Failure> {
                $crate::require!($crate::Peer::$peer);
                $crate::require!($crate::Peer::Java);
                super::$story(&*$crate::KafkaCluster::shared()?)
            })+
        }
    };
}

/// Makes four test modules from a list of story functions `fn(&Librdkafka, &dyn Cluster) -> Result<(), Failure>`: the
/// original library and ours, each against an Ottla broker of its own and against the shared Apache Kafka. What the
/// original does not pass is no demand on ours.
#[macro_export]
macro_rules! on_both_libraries {
    ($peer:ident; $($story:ident)+) => {
        mod ours_on_ottla {
            $(#[test]
            fn $story() -> Result<(), $crate::Failure> {
                $crate::require!($crate::Peer::$peer);
                $crate::require!($crate::Peer::Librdkafka);
                super::$story(&$crate::Librdkafka::ours()?, &$crate::OttlaBroker::start(&[])?)
            })+
        }

        mod ours_on_kafka {
            $(#[test]
            fn $story() -> Result<(), $crate::Failure> {
                $crate::require!($crate::Peer::$peer);
                $crate::require!($crate::Peer::Librdkafka);
                $crate::require!($crate::Peer::Java);
                super::$story(&$crate::Librdkafka::ours()?, &*$crate::KafkaCluster::shared()?)
            })+
        }

        mod reference_on_ottla {
            $(#[test]
            fn $story() -> Result<(), $crate::Failure> {
                $crate::require!($crate::Peer::$peer);
                $crate::require!($crate::Peer::Librdkafka);
                super::$story(&$crate::Librdkafka::reference()?, &$crate::OttlaBroker::start(&[])?)
            })+
        }

        mod reference_on_kafka {
            $(#[test]
            fn $story() -> Result<(), $crate::Failure> {
                $crate::require!($crate::Peer::$peer);
                $crate::require!($crate::Peer::Librdkafka);
                $crate::require!($crate::Peer::Java);
                super::$story(&$crate::Librdkafka::reference()?, &*$crate::KafkaCluster::shared()?)
            })+
        }
    };
}
