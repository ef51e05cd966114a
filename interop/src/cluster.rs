//! The interface of a cluster, so that a test runs against Ottla's broker and against Apache Kafka.

use std::time::Duration;

use crate::failure::{Failure, wait_until};
use crate::kafka::KafkaCluster;
use crate::ottla::{OttlaBroker, ottla};
use crate::tools::{console, java_tool};

/// A running cluster of either kind.
pub trait Cluster {
    /// The value for `bootstrap.servers`.
    fn bootstrap(&self) -> String;

    /// Creates a topic with this cluster's own command-line tool.
    fn create_topic(&self, name: &str, partitions: u32) -> Result<(), Failure>;

    /// Creates a topic with our own tool, for tests with many topics: it starts no JVM.
    fn create_topic_quickly(&self, name: &str, partitions: u32) -> Result<(), Failure> {
        let (bootstrap, count) = (self.bootstrap(), partitions.to_string());
        let create = ["topics", "create", name, "--partitions", &count, "--brokers", &bootstrap];
        ottla(&create, b"")?.succeeded()?;
        // Apache Kafka answers before its brokers have the topic.
        wait_until(&format!("topic {name}"), KNOWN_WITHIN, || {
            let described = ottla(&["topics", "describe", name, "--brokers", &bootstrap], b"");
            described.is_ok_and(|output| output.status.success()).then_some(())
        })
    }
}

/// Usually milliseconds; longer on a loaded machine.
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

/// Generates two test modules from a list of functions `fn(&dyn Cluster) -> Result<(), Failure>`: `ottla` runs each
/// against its own Ottla broker, `kafka` against the shared Apache Kafka. A test that fails on Kafka is not required
/// of Ottla.
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

/// Generates four test modules from a list of functions `fn(&Librdkafka, &dyn Cluster) -> Result<(), Failure>`: the
/// original library and ours, each against its own Ottla broker and against the shared Apache Kafka. A test that
/// fails on the original is not required of ours.
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
