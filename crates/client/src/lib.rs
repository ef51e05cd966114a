//! A client of Kafka clusters: producer, consumer and admin on one engine thread.
//!
//! ```text
//!   your threads                     the engine's thread                      the network
//!   Producer::send --- records ----> produce::sender ----> net::connection ~~> brokers
//!                      (queues)                                  |
//!   Consumer::poll <-- responses --- fetch::fetcher <------------+
//!                      (inbox)
//!   Admin, commit ---- commands ---> group, cluster
//! ```
//!
//! Records are encoded in the thread that sends them and decoded in the thread that polls them; the engine moves
//! finished batches only. It needs no runtime from the application: every call exists for async code, which may run
//! on any executor that polls futures, and for plain threads.

mod admin;
mod alarm;
mod blocking;
mod client;
mod clock;
mod cluster;
mod config;
mod consumer;
mod ear;
mod engine;
mod error;
mod fetch;
mod group;
mod log;
mod metadata;
mod net;
mod notices;
pub mod probe;
mod produce;
mod producer;
mod record;
mod security;
mod stats;
mod timer;
mod topic_name;
mod transaction;
mod watchdog;

pub use admin::{
    Acl, AclFilter, AclOperation, AclPermission, Admin, Change, ClusterDescription, ConfigChange,
    ConfigEntry, ConfigResource, ConfigResourceType, ConfigSource, ConfigSynonym, CreatedTopic, DeleteBefore,
    Describe, DescribeConfigs, Each, Election, FoundOffset, GroupDescription, GroupFilter, GroupListing,
    GroupListings, MemberDescription, NewPartitions, NewTopic, Node, OffsetAt, PartitionDescription,
    PatternType, ResourceType, ScramChange, ScramCredential, ScramMechanism, Timeouts, TopicDescription,
    TopicDescriptions, TopicListing,
};
pub use client::Client;
pub use clock::Clock;
pub use config::properties;
pub use config::{Acks, Config, GroupProtocol, Isolation, OffsetReset, Rebalance, TopicConfig};
pub use consumer::{
    Asked, Batch, BatchIter, Committing, Consumer, ConsumerControl, CorruptBatch, Cut, Event, Next,
    OffsetAndMetadata, PartitionQueue, Polled, Position, RecordView, StartAt, Taken, TopicPartition,
    Watermarks,
};
pub use engine::Engine;
pub use error::{Error, Persisted, ProduceError, ProduceErrorKind};
pub use log::{Context, LogCallback, LogLine};
pub use metadata::{Metadata, PartitionMetadata, TopicMetadata};
pub use net::connector::{Connecting, Connector, Io, TcpConnector};
pub use net::settings::{AddressFamily, NetSettings};
pub use net::versions::BrokerVersion;
pub use notices::Notices;
pub use ottla_protocol::{ErrorCode, Uuid};
pub use ottla_wire::{BatchHeader, HeadersRef, Records};
pub use produce::answers::Purge;
pub use produce::delivery::Delivery;
pub use produce::partitioner::{Choice, ChoosePartition, Partitioner};
pub use produce::reports::{Report, Reported, Reports};
pub use producer::{Flushing, NotSent, Producer, TopicProducer};
pub use record::{OwnedRecord, Record, RecordMetadata};
#[cfg(feature = "prometheus")]
pub use stats::endpoint::PrometheusEndpoint;
pub use stats::wanted::{AutoCommitted, BrokerState, Exchanged, Throttled};
pub use watchdog::cause::Cause;
pub use watchdog::{Stall, StallReport};

/// How a group's partitions are shared out among its members.
pub mod assignor {
    pub use crate::group::assignor::{
        Assignment, Assignor, CooperativeSticky, Held, Member, Range, RoundRobin, Sticky, Topics,
    };
}

/// Statistics as values: what their JSON has, with librdkafka's keys.
pub mod statistics {
    pub use crate::stats::snapshot::{Broker, Eos, Group, Partition, Snapshot, Topic, Toppar, Window};
}
pub use security::{
    CertificateJudge, CertificateProblem, Keystore, Mechanism, OauthBearer, OauthMethod, Presented, Protocol,
    SaslSettings, Secret, Security, TlsSettings, Token, TokenCallback, TokenFuture, TokenProvider,
    open_keystore,
};
pub use topic_name::check_topic_name;
pub use transaction::GroupMetadata;
pub use transaction::error::{TransactionError, TransactionErrorKind};

/// The examples of the documents are tests.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../../../docs/MIGRATE.md")]
    mod migrate {}
}
