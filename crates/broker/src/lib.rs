//! A broker that speaks the Kafka protocol, made to be embedded.
//!
//! ```text
//!   serve(io) --frames--> connection --> api/<request> --> cluster, partition --> ottla-log --> storage
//!                                             |
//!                                             +--> coordinator: groups, offsets
//!                                             |
//!                                             +--> transactions
//! ```
//!
//! It replicates nothing. One process can show several nodes over one set of logs, with leaders and coordinators that
//! move, so that clients meet what they meet in a real cluster; to use more machines, change
//! `bootstrap.servers` to an Apache Kafka cluster.
//!
//! [`Broker::builder`] starts one; [`serve`] is the same thing without a listener, over any byte stream. The crate
//! `ottla-testkit` runs a broker and its clients on virtual time, for tests.

mod api;
mod batch_checks;
mod broker;
mod cleaner_points;
mod client_metrics;
mod clock;
mod cluster;
mod compactions;
mod compactor;
mod config;
mod connection;
mod coordinator;
mod data_dir;
mod data_lock;
mod deletion_clock;
mod disk_faults;
mod drain;
mod durable_append;
mod feature_levels;
mod fetch_sessions;
mod flush;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod intercept;
mod internal_topics;
mod kafka_import;
mod kafka_level;
mod keyed_map;
mod lifecycle;
mod memory;
mod metadata_version;
mod metrics;
mod metrics_text;
mod node_address;
mod offset_floors;
mod own_batches;
mod panics;
mod partition;
mod partition_transactions;
mod peer;
mod places;
mod port;
mod quotas;
mod recompression;
mod repair;
mod request_memory;
mod request_observer;
mod request_trace;
mod scrub;
mod security;
mod server;
mod skip;
mod state_marks;
mod stored_codec;
mod switch;
mod sync_flag;
mod test_actions;
mod test_control;
mod test_groups;
mod test_overrides;
mod topic_loading;
mod topics;
mod transaction_approval;
mod transactions;

pub use api::advertised_apis;
pub use broker::{
    Broker, BrokerBuilder, BrokerThread, Control, ControlAnswer, Snapshot, SnapshotError, StartError,
};
pub use clock::Clock;
pub use cluster::{AddNodeError, Cluster, OpenError, Seams};
pub use config::{
    BrokerConfig, ClientAuth, ConsumerGroupConfig, DeadLetterConfig, Durability, KeyEndpointSettings,
    KeySource, Kind, Listener, MigrationPolicy, Mode, OauthSettings, Password, Pem, PrincipalRules,
    ReplicaSelector, SaslMechanism, SaslSettings, Scope, Setting, ShareCoordinatorConfig, ShareGroupConfig,
    SharePartitionConfig, TlsSettings, TlsVersion, TopicConfig, broker_effect, find_setting, settings,
};
pub use connection::{Transport, serve};
pub use data_dir::FormatError;
pub use intercept::{Fault, FaultRule, FaultRuleError};
pub use kafka_import::{ImportError, ImportOptions, ImportReport, ImportedTopicReport, import_kafka};
pub use kafka_level::KafkaLevel;
pub use metrics::{Metric, MetricKind, metrics};
pub use node_address::NodeAddress;
pub use ottla_log::storage::faulty::{DiskCall, DiskEffect, DiskFiles, DiskRule};
pub use ottla_protocol::{ApiKey, ErrorCode};
pub use partition::Syncer;
pub use repair::{Damage, RepairError, RepairReport, repair};
pub use request_observer::{AnsweredRequest, RequestObserver, ShareEvent, ShareEventKind};
pub use request_trace::RequestTrace;
pub use server::Server;
pub use skip::skip_damage;
pub use test_actions::WaitError;
pub use test_groups::MemberPartitions;
pub use test_overrides::{MockSubscription, TrackedRequest};
