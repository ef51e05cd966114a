//! Real peers for the interoperability tests: Apache Kafka 4.3 and 4.1 and their tools, Apache Kafka 0.11, kcat, and the
//! `ottla` binary.
//!
//! A test first requires its peer, and returns if the machine does not have it:
//!
//! ```no_run
//! use ottla_interop::{OttlaBroker, Peer, kcat, require};
//! # fn test() -> Result<(), ottla_interop::Failure> {
//! require!(Peer::Kcat);
//! let broker = OttlaBroker::start(&["--topic", "orders:2"])?;
//! let listing = kcat(&["-b", &broker.bootstrap(), "-L"], b"")?.succeeded()?;
//! assert!(listing.stdout_text().contains("topic \"orders\" with 2 partitions"));
//! # Ok(())
//! # }
//! # test().unwrap();
//! ```
//!
//! Every wait has a deadline, and every port is a free loopback port. Dropping a handle stops its process by
//! its own process id. A [`Failure`] contains the end of the process's output.

#![allow(clippy::disallowed_methods, reason = "the harness runs real processes and polls in real time")]

mod applications;
mod bindings;
mod cluster;
mod failure;
mod foreign;
mod jars;
mod javascript;
mod kafka;
mod kerberos;
mod librdkafka;
mod old_kafka;
mod ottla;
mod peer;
mod process;
mod tools;
mod workspace;

pub mod probe;

pub use applications::{
    application_arguments, application_kills, java_application, kafka_for_applications,
    on_application_brokers, ottla_for_applications,
};
pub use bindings::{build_stories, tell_story};
pub use cluster::Cluster;
pub use failure::{Failure, wait_until};
pub use foreign::{
    GroupMember, build_foreign_go, foreign_go, foreign_node, foreign_python, foreign_python_packages,
};
pub use jars::{
    KafkaJars, application_jars, cluster_test_jars, flink_jars, jars, java_client, newest_jars, old_jars,
    spring_jars,
};
pub use javascript::javascript_package;
pub use kafka::{KafkaCluster, KafkaOptions};
pub use kerberos::Kdc;
pub use librdkafka::{CONFLUENT_KAFKA, Debian, Librdkafka, compile, our_prefix, python_package, wheel};
pub use old_kafka::OldKafka;
pub use ottla::{OttlaBroker, ottla, ottla_binary, ottla_command};
pub use peer::{Missing, Peer, QUICK, SKIPPED_FILE, Skipped, apt_install, in_ci};
pub use process::{Output, Process, run};
pub use tools::{console, java_command, java_tool, kcat, kcat_on};
pub use workspace::{cache_dir, target_dir, workspace_root};

/// Returns from the calling test if `peer` is not available, after a message.
///
/// With `CI=true` a missing peer is installed, and the test fails if that is not possible.
#[macro_export]
macro_rules! require {
    ($peer:expr) => {
        if let Err(missing) = $peer.require() {
            missing.skip();
            return $crate::Skipped::skipped();
        }
    };
}
