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
//! Records are encoded in the thread that sends them and decoded in the thread that polls them. The engine moves
//! batches; one more thread compresses large ones, once there are any. The application needs no runtime: async calls run
//! on any executor that polls futures. The calls that send, flush, poll, commit and end transactions also exist for plain
//! threads, with names that end with `_blocking`. Those of [`Admin`] do not.

// ARCHITECTURE.md, "The layers of each crate", lists the layers.
mod admin;
pub mod assignor;
mod blocking;
mod client;
mod clock;
mod cluster;
mod collector;
mod config;
mod consumer;
mod engine;
mod error;
mod fetch;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod group;
#[cfg(feature = "prometheus")]
#[doc(hidden)]
pub mod http_endpoint;
mod log;
mod loop_timer;
mod metadata;
mod net;
mod notification_queue;
mod panics;
pub mod probe;
mod produce;
mod producer;
mod record;
mod security;
mod share;
mod share_consumer;
mod stats;
mod telemetry;
mod timer;
mod transaction;
mod types;
mod wake_callback;
mod watchdog;

pub use admin::{
    Acl, AclFilter, AclOperation, AclPermission, ActiveProducer, Admin, AlterOptions, ClusterDescription,
    ConfigChange, ConfigEntry, ConfigResource, ConfigResourceType, ConfigSource, ConfigSynonym, CreatedTopic,
    DeleteBefore, DescribeConfigs, DescribeOptions, Election, FeatureDescription, FoundOffset,
    GroupDescription, GroupFilter, GroupListing, GroupListings, HangingTransaction, KeyedResults,
    LogDirDescription, LogDirReplica, MemberDescription, NewPartitions, NewTopic, Node, OffsetAt,
    PartitionDescription, PatternType, QuorumDescription, QuorumReplica, QuotaAlteration, QuotaEntity,
    QuotaMatch, QuotaValues, ResourceType, ScramChange, ScramCredential, ScramMechanism,
    ShareGroupDescription, ShareGroupOffset, ShareMemberDescription, Timeouts, TopicDescription,
    TopicDescriptions, TopicListing, TransactionDescription, TransactionFilter, TransactionListing,
    TransactionListings,
};
pub use client::Client;
pub use clock::Clock;
pub use config::net_settings::{AddressFamily, NetSettings};
pub use config::properties;
pub use config::{
    Acks, Config, GroupHabits, GroupProtocol, Isolation, OffsetReset, Rebalance, ShareAcknowledgementMode,
    ShareAcquireMode, TopicConfig,
};
pub use consumer::{
    Batch, BatchIter, BatchPosition, BatchViews, Consumer, ConsumerControl, CorruptBatch, EngineReply, Event,
    HeldRecords, OffsetAndMetadata, PartitionQueue, PendingCommit, Polled, PolledHeld, PolledRecord,
    PolledRecords, RecordView, SplitBatch, StartAt, TopicPartition, Watermarks,
};
#[cfg(feature = "connector")]
pub use engine::Engine;
pub use error::named_attempt::NamedAttempt;
pub use error::{
    Error, HostLookupFailure, InvalidRecords, PartitionRequest, Persisted, ProduceError, ProduceErrorKind,
};
pub use log::{Context, LogCallback, LogLine};
pub use metadata::{Metadata, PartitionMetadata, TopicMetadata};
#[cfg(feature = "connector")]
pub use net::connector::{Connecting, Connector, Io, TcpConnector};
pub use notification_queue::NotificationQueue;
pub use ottla_protocol::{ErrorCode, Uuid};
pub use ottla_wire::{BatchHeader, HeadersRef, RecordRef, Records};
pub use produce::Purge;
pub use produce::delivery::Delivery;
pub use produce::reports::{Report, Reported, Reports};
pub use producer::{Flushing, Producer, TopicProducer};
pub use record::{OwnedRecord, Record, RecordMetadata, Tag};
pub use share_consumer::{ShareBatch, ShareConsumer, ShareRecord, ShareRecords};
#[cfg(feature = "prometheus")]
pub use stats::endpoint::PrometheusEndpoint;
pub use stats::events::{AutoCommitEvent, BrokerStateEvent, RequestEvent, ThrottleEvent};
pub use stats::share::ShareStatistics;
pub use types::broker_version::BrokerVersion;
pub use types::partitioner::{Choice, ChoosePartition, Partitioner};
pub use types::produce_hook::{ProduceEnd, ProduceHook, ReplacedEnd};
pub use watchdog::cause::Cause;
pub use watchdog::{Stall, StallReport};

/// Statistics as values: what their JSON has, with librdkafka's keys.
pub mod statistics {
    pub use crate::stats::snapshot::{
        Broker, Eos, Fatal, Group, Partition, Share, Snapshot, Topic, Toppar, Window,
    };
}
pub use error::transaction::{TransactionError, TransactionErrorKind};
pub use security::{
    AssertionAlgorithm, Assertions, CertificateProblem, CertificateVerifier, Kerberos, Keystore, Mechanism,
    OauthBearer, OauthCloud, OauthGrant, OauthMethod, PresentedCertificate, SaslSettings, Secret, Security,
    SecurityProtocol, TlsSettings, Token, TokenCallback, TokenFuture, TokenProvider, check_certificate_chain,
    open_keystore,
};
pub use types::pattern_matches;
pub use types::topic_name::check_topic_name;
pub use types::{AcknowledgeType, AcknowledgementResult, GroupMetadata};

/// The examples of the documents are tests.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../../../docs/MIGRATE.md")]
    mod migrate {}
}
