//! The settings of a broker and its topics, by Apache Kafka's names.
//!
//! - `settings`: the table of Kafka's settings: names, types, defaults, allowed values.
//! - `topic_config`: the settings of a topic.
//! - `connections_per_ip`: the most connections of one address.
//! - `consumer_groups`: the settings of groups of the new protocol.
//! - `share_groups`: the settings of share groups and their coordinators.
//! - `share_partitions`: the settings of leaders of share partitions.
//! - `dead_letter_queues`: the settings of dead-letter queues of share groups.
//! - `listener`: the settings of a listener: its address, TLS and SASL; `password` and `principal_rules` are parts of it.
//! - `oauth`: the checks of OAUTHBEARER tokens.
//! - `listener_properties`: listeners under Kafka's property names; `jaas` reads the options of login modules.
//! - `racks`: the racks of nodes, and the replica that consumers read from.
//! - `feature_settings`: the feature levels of a new cluster.
//! - `live`: settings that change at run time, of brokers, groups and client metrics.

mod connections_per_ip;
mod consumer_groups;
pub(crate) mod dead_letter_queues;
mod feature_settings;
mod group_limits;
mod jaas;
mod listener;
mod listener_changes;
mod listener_properties;
pub(crate) mod live;
pub(crate) mod metric_subscriptions;
mod oauth;
mod password;
mod principal_rules;
mod racks;
mod settings;
mod share_groups;
pub(crate) mod share_partitions;
mod topic_config;

pub use consumer_groups::{ConsumerGroupConfig, MigrationPolicy};
pub use dead_letter_queues::DeadLetterConfig;
pub use listener::{ClientAuth, Listener, Pem, SaslMechanism, SaslSettings, TlsSettings, TlsVersion};
pub(crate) use listener_changes::{changed_tls, changes_certificates, setting_of_listener};
pub use oauth::{KeyEndpointSettings, KeySource, OauthSettings};
pub use password::Password;
pub use principal_rules::PrincipalRules;
pub use racks::ReplicaSelector;
pub(crate) use settings::topic_setting_name;
pub use settings::{Kind, Mode, Scope, Setting, all as settings, broker_effect, find as find_setting};
pub use share_groups::{ShareCoordinatorConfig, ShareGroupConfig};
pub use share_partitions::SharePartitionConfig;
pub use topic_config::TopicConfig;
pub(crate) use topic_config::{ACCEPTS_DEAD_LETTERS, FOLLOWER_REPLICAS, LEADER_REPLICAS, ReplicaList};

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use connections_per_ip::ConnectionsPerIp;
use feature_settings::NewClusterFeatures;
use listener_properties::{SecurityProperties, is_of_listener};

use crate::internal_topics::SEGMENT_BYTES;
use crate::kafka_level::KafkaLevel;

/// The authorizer whose rules this broker has.
pub(crate) const STANDARD_AUTHORIZER: &str = "org.apache.kafka.metadata.authorizer.StandardAuthorizer";

/// The meaning of an acknowledgement.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Durability {
    /// `acks=all` is acknowledged when the data is on disk, so that it survives a power cut.
    #[default]
    Disk,
    /// Acknowledged when the data is in the page cache, as in Apache Kafka: it survives the end of the process.
    Os,
    /// Nothing is written to disk.
    Memory,
}

impl FromStr for Durability {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "disk" => Ok(Self::Disk),
            "os" => Ok(Self::Os),
            "memory" => Ok(Self::Memory),
            _ => Err(format!("unknown durability `{text}`: use disk, os or memory")),
        }
    }
}

/// The id of the first node without `node.id`.
pub(crate) const FIRST_NODE_ID: i32 = 1;

/// The longest time that is added to the time of a clock. No clock counts up to `Duration::MAX`.
pub(crate) const TIME_MAX: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// The value of a secret where properties are shown.
const HIDDEN: &str = "[hidden]";

/// Settings of a broker process.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BrokerConfig {
    /// The meaning of an acknowledgement. On disk by default.
    pub durability: Durability,
    /// `node.id`: the id of the first node. Further nodes of the process have the ids after it. 1 by default.
    pub node_id: i32,
    /// `broker.rack`: one rack for all nodes, or one for each, from the first node on. No rack by default.
    pub racks: Vec<String>,
    /// `replica.selector.class`: the replica that consumers read from. The leader by default.
    pub replica_selector: ReplicaSelector,
    /// `auto.create.topics.enable`: a Metadata request for an unknown topic creates it, as by default.
    pub auto_create_topics: bool,
    /// `delete.topic.enable`: clients may delete topics, as by default.
    pub delete_topics: bool,
    /// `num.partitions`: the partitions of a topic that is created without a number. 1 by default.
    pub partitions_default: i32,
    /// `default.replication.factor`: the replicas of a topic that is created without a number. At most the number of nodes, unlike in
    /// Kafka, which then creates no topic without a number. 1 by default.
    pub replication_default: i32,
    /// `auto.leader.rebalance.enable`: a node that starts leads its preferred partitions again, at once. Without that, it leads only those
    /// without a leader, until an election. `true` by default.
    pub rebalances_leaders: bool,
    /// `socket.request.max.bytes`: a larger frame closes its connection. 100 MiB by default.
    pub request_bytes_max: usize,
    /// `max.connections` of one node, through all its listeners; further connections are closed at once. 10,000 by default, and less
    /// if the process may have few open files.
    pub connections_max: usize,
    /// `connections.max.idle.ms`: a connection without requests is closed. 10 minutes by default.
    pub connection_idle_max: Duration,
    /// Time limit for the first request of a connection, and for the rest of a request after its first byte. A large
    /// request has one second more for each 128 KiB. 30 seconds by default.
    pub frame_timeout: Duration,
    /// A connection is closed when it accepts no byte of a response for this time. 60 seconds by default.
    pub write_timeout: Duration,
    /// `memory.max.bytes`: three eighths are for large requests and for parts of files that are read for responses, two for batches
    /// that are decompressed, and one each for responses that are not sent, for fetch sessions, and for groups, their members
    /// and their offsets. Requests wait while their part is used up. 256 MiB by default.
    pub memory_bytes_max: usize,
    /// `group.initial.rebalance.delay.ms`: time that the first members of a group wait for others. 0 by default. It begins again after
    /// a time with new members, up to the rebalance timeout of the first one (KIP-134). The first member of a new share group waits,
    /// too, up to its heartbeat interval: in Kafka it has no partitions before its second heartbeat.
    pub group_initial_delay: Duration,
    /// `group.min.session.timeout.ms`. 10 ms by default, so that tests need not wait.
    pub session_timeout_min: Duration,
    /// `group.max.session.timeout.ms`. 30 minutes by default.
    pub session_timeout_max: Duration,
    /// `group.max.size`: members of one group. 10,000 by default.
    pub group_members_max: usize,
    /// `group.consumer.*`: groups of the new protocol (KIP-848).
    pub consumer_groups: ConsumerGroupConfig,
    /// `group.share.*`: share groups (KIP-932).
    pub share_groups: ShareGroupConfig,
    /// `share.coordinator.*`: the state of share-partitions.
    pub share_coordinator: ShareCoordinatorConfig,
    /// `group.share.*` of records, locks and sessions (KIP-932).
    pub share_partitions: SharePartitionConfig,
    /// `errors.deadletterqueue.*`: the dead-letter queues of share groups (KIP-1191), of Apache Kafka 4.4.
    pub dead_letters: DeadLetterConfig,
    /// `log.retention.check.interval.ms`. 5 minutes by default.
    pub retention_check: Duration,
    /// `producer.id.expiration.ms`: partitions forget producers that were idle for this time, unless they have an open transaction. One day
    /// by default.
    pub producer_expiration: Duration,
    /// `producer.id.expiration.check.interval.ms`. 10 minutes by default.
    pub producer_expiration_check: Duration,
    /// The time for which a jump of the wall clock ahead, by 10 minutes or more, deletes no segments, tombstones, offsets and transactional
    /// ids. One hour by default. Not a property.
    pub clock_jump_wait: Duration,
    /// `log.scrub.bytes.per.second`: rate at which closed segments are periodically read and checked. `None` (`0`)
    /// disables the check. 8 MiB by default: a terabyte takes a day and a half.
    pub scrub_bytes_per_second: Option<u64>,
    /// `log.cleaner.enable`: topics whose `cleanup.policy` has `compact` are compacted. Enabled by default.
    pub cleaner_enabled: bool,
    /// `log.cleaner.backoff.ms`: the pause after which the cleaner looks for dirty partitions again. 15 seconds by default.
    pub cleaner_backoff: Duration,
    /// `log.cleaner.dedupe.buffer.size`: the most memory for the keys of a compaction, of which each takes 30 bytes. A partition
    /// with more keys is cleaned in several passes. The memory is used during a compaction only. 64 MiB by default, half
    /// of Kafka's: 2.2 million keys.
    pub cleaner_map_bytes_max: usize,
    /// `fetch.max.bytes`: the records of one fetch response, whatever the request allows, except for a first batch that
    /// is larger. 55 MiB by default.
    pub fetch_bytes_max: usize,
    /// `max.incremental.fetch.session.cache.slots`: fetch sessions of one node; further fetches are answered without a
    /// session. 1,000 by default.
    pub fetch_sessions_max: usize,
    /// `partitions.max` of one topic. 10,000 by default.
    pub topic_partitions_max: i32,
    /// `partitions.total.max`: partitions of all topics together. Each needs two open files and some kilobytes of
    /// memory. 20,000 by default.
    pub partitions_total_max: usize,
    /// `offsets.topic.num.partitions` of `__consumer_offsets`, which is created when a client first looks for a group's
    /// coordinator. 50 by default; later changes have no effect.
    pub offsets_topic_partitions: i32,
    /// `offsets.topic.replication.factor`: at most the number of nodes. 3 by default; an existing topic gets more at a start with
    /// a higher number.
    pub offsets_topic_replication: i32,
    /// `offsets.topic.segment.bytes`. 100 MiB by default; later changes have no effect.
    pub offsets_topic_segment_bytes: u32,
    /// `offsets.retention.minutes`: offsets of groups without members expire after this time. 7 days by default.
    pub offsets_retention: Duration,
    /// `offsets.retention.check.interval.ms`. 10 minutes by default.
    pub offsets_retention_check: Duration,
    /// `transaction.state.log.num.partitions` of `__transaction_state`, which is created when a client first looks for a
    /// transaction coordinator. 50 by default; later changes have no effect.
    pub transaction_log_partitions: i32,
    /// `transaction.state.log.replication.factor`: at most the number of nodes. 3 by default; an existing topic gets more at a start with
    /// a higher number.
    pub transaction_log_replication: i32,
    /// `transaction.state.log.segment.bytes`. 100 MiB by default; later changes have no effect.
    pub transaction_log_segment_bytes: u32,
    /// `transaction.max.timeout.ms`: the longest `transaction.timeout.ms` of a producer. 15 minutes by default.
    pub transaction_timeout_max: Duration,
    /// `transaction.abort.timed.out.transaction.cleanup.interval.ms`. 10 seconds by default.
    pub transaction_timeout_check: Duration,
    /// `transactional.id.expiration.ms`: ids without a transaction are forgotten after this time. 7 days by default.
    pub transactional_id_expiration: Duration,
    /// `transaction.remove.expired.transaction.cleanup.interval.ms`. One hour by default.
    pub transactional_id_expiration_check: Duration,
    /// `add.partitions.to.txn.retry.backoff.max.ms`: a request that meets a change of its transaction waits up to this time
    /// for its end. 100 ms by default.
    pub transaction_wait_max: Duration,
    /// `authorizer.class.name`: clients need ACLs. No authorizer by default: every client may do everything.
    pub has_authorizer: bool,
    /// `super.users`: principals (`User:admin`) that may do everything. None by default.
    pub super_users: Vec<String>,
    /// `allow.everyone.if.no.acl.found`: everyone may use a resource that has no ACLs. False by default.
    pub allow_everyone_without_acls: bool,
    /// `quota.window.num`: the windows over which the rates of quotas are measured. 11 by default.
    pub quota_windows: u32,
    /// `quota.window.size.seconds`. One second by default.
    pub quota_window: Duration,
    /// `controller.quota.window.num`: with the size, the burst of `controller_mutation_rate`. 11 by default.
    pub controller_quota_windows: u32,
    /// `controller.quota.window.size.seconds`. One second by default.
    pub controller_quota_window: Duration,
    /// The properties that were set, by name; DescribeConfigs reports them, with those that have no effect.
    pub given: BTreeMap<String, String>,
    /// The release of Apache Kafka whose API versions are the highest that are answered. 4.3 by default.
    pub as_version: KafkaLevel,
    /// The feature levels of a new cluster.
    pub(crate) new_cluster_features: NewClusterFeatures,
    /// `unstable.feature.versions.enable`: one value for all nodes, or one for each. None is `false`.
    pub(crate) unstable_features: Vec<bool>,
    /// Defaults of the topic settings.
    pub topic_defaults: TopicConfig,
    /// The most that `max.connections` can be: file descriptors are left for others.
    pub(crate) connections_possible: usize,
    /// `max.connections.per.ip` and `max.connections.per.ip.overrides`.
    pub(crate) connections_per_ip: ConnectionsPerIp,
    /// The properties of listeners.
    security: SecurityProperties,
}

impl Default for BrokerConfig {
    fn default() -> Self {
        Self {
            durability: Durability::Disk,
            node_id: FIRST_NODE_ID,
            racks: Vec::new(),
            replica_selector: ReplicaSelector::default(),
            auto_create_topics: true,
            delete_topics: true,
            partitions_default: 1,
            replication_default: 1,
            rebalances_leaders: true,
            request_bytes_max: 100 << 20,
            connections_max: 10_000,
            connections_possible: usize::MAX,
            connection_idle_max: Duration::from_secs(600),
            frame_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(60),
            memory_bytes_max: 256 << 20,
            group_initial_delay: Duration::ZERO,
            session_timeout_min: Duration::from_millis(10),
            session_timeout_max: Duration::from_secs(1800),
            group_members_max: 10_000,
            consumer_groups: ConsumerGroupConfig::default(),
            share_groups: ShareGroupConfig::default(),
            share_coordinator: ShareCoordinatorConfig::default(),
            share_partitions: SharePartitionConfig::default(),
            dead_letters: DeadLetterConfig::default(),
            retention_check: Duration::from_secs(300),
            producer_expiration: Duration::from_secs(24 * 3600),
            producer_expiration_check: Duration::from_secs(600),
            clock_jump_wait: Duration::from_secs(3600),
            scrub_bytes_per_second: Some(8 << 20),
            cleaner_enabled: true,
            cleaner_backoff: Duration::from_secs(15),
            cleaner_map_bytes_max: 64 << 20,
            fetch_bytes_max: 55 << 20,
            fetch_sessions_max: 1_000,
            topic_partitions_max: 10_000,
            partitions_total_max: 20_000,
            offsets_topic_partitions: 50,
            offsets_topic_replication: 3,
            offsets_topic_segment_bytes: SEGMENT_BYTES,
            offsets_retention: Duration::from_secs(7 * 24 * 3600),
            offsets_retention_check: Duration::from_secs(600),
            transaction_log_partitions: 50,
            transaction_log_replication: 3,
            transaction_log_segment_bytes: SEGMENT_BYTES,
            transaction_timeout_max: Duration::from_secs(15 * 60),
            transaction_timeout_check: Duration::from_secs(10),
            transactional_id_expiration: Duration::from_secs(7 * 24 * 3600),
            transactional_id_expiration_check: Duration::from_secs(3600),
            transaction_wait_max: Duration::from_millis(100),
            quota_windows: 11,
            quota_window: Duration::from_secs(1),
            controller_quota_windows: 11,
            controller_quota_window: Duration::from_secs(1),
            has_authorizer: false,
            super_users: Vec::new(),
            allow_everyone_without_acls: false,
            as_version: KafkaLevel::default(),
            new_cluster_features: NewClusterFeatures::default(),
            unstable_features: Vec::new(),
            given: BTreeMap::new(),
            topic_defaults: TopicConfig::default(),
            connections_per_ip: ConnectionsPerIp::default(),
            security: SecurityProperties::default(),
        }
    }
}

impl BrokerConfig {
    /// The same settings, with times that can be added to the time of a clock: `Duration::MAX` is no limit.
    pub(crate) fn with_countable_times(mut self) -> Self {
        let times = [
            &mut self.connection_idle_max,
            &mut self.frame_timeout,
            &mut self.write_timeout,
            &mut self.group_initial_delay,
            &mut self.transaction_wait_max,
            &mut self.quota_window,
            &mut self.controller_quota_window,
        ];
        for time in times {
            *time = (*time).min(TIME_MAX);
        }
        self
    }

    /// Sets a property by its name in Apache Kafka's `server.properties`.
    ///
    /// # Errors
    /// A sentence that names the property, the value and the allowed values.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        self.security.set(name, value)?;
        if is_of_listener(name) {
            return Ok(());
        }
        let Some(setting) = find_setting(Scope::Broker, name) else {
            let hint = settings::nearest(Scope::Broker, name);
            let hint = hint.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
            return Err(format!("no broker property is called `{name}`{hint}"));
        };
        // Some ranges are wider than Kafka's.
        if !self.apply(name, value)? && settings::topic_setting_of(name).is_none() {
            setting.check(value)?;
        }
        // No log and no client sees a secret.
        let shown = if setting.is_sensitive() { HIDDEN } else { value.trim() };
        let before = self.given.insert(name.to_owned(), shown.to_owned());
        let applied = self.apply_topic_default(name);
        if applied.is_err() {
            match before {
                Some(before) => self.given.insert(name.to_owned(), before),
                None => self.given.remove(name),
            };
        }
        applied.map_err(|error| named(error, name))
    }

    /// The listeners that the properties describe, with their security: `listeners`, `advertised.listeners`, `ssl.*`, `sasl.*`
    /// and `listener.name.*`. `None` if `listeners` is not set.
    ///
    /// # Errors
    /// A sentence that names the listener and the property.
    pub fn listeners(&self) -> Result<Option<Vec<Listener>>, String> {
        self.security.listeners()
    }

    /// Checks the ids of this many nodes, as Kafka does at the start.
    pub(crate) fn check_node_ids(&self, nodes: i32) -> Result<(), String> {
        let given = |name: &str| self.given.get(name)?.trim().parse::<i32>().ok().filter(|id| *id >= 0);
        if let (Some(node), Some(broker)) = (given("node.id"), given("broker.id"))
            && node != broker
        {
            return Err(format!("node.id=`{node}`: it must be the same as broker.id=`{broker}`"));
        }
        let id = self.node_id;
        if id >= 0 && id.checked_add(nodes.max(1) - 1).is_some() {
            return Ok(());
        }
        let max = i32::MAX;
        Err(format!("node.id=`{id}`: the ids of {nodes} nodes from there on are not all from 0 to {max}"))
    }

    /// The ids of this many nodes, which [`Self::check_node_ids`] has checked.
    pub(crate) fn node_ids(&self, nodes: i32) -> RangeInclusive<i32> {
        self.node_id..=self.node_id.saturating_add(nodes.max(1) - 1)
    }

    /// The properties of single listeners, with their secrets.
    pub(crate) fn properties_of_listeners(&self) -> impl Iterator<Item = (&str, &str)> {
        self.security.of_listeners()
    }

    /// A property that has an effect on the listeners of `listeners` only, if there is one and `listeners` is not set.
    pub fn property_without_listeners(&self) -> Option<&str> {
        self.security.property_without_listeners()
    }

    /// Returns `true` if a property was set to a value that is not empty.
    pub(crate) fn has_value(&self, name: &str) -> bool {
        self.given.get(name).is_some_and(|value| !value.is_empty())
    }

    /// Returns whether a broker property has an effect here.
    pub fn has_effect(name: &str) -> bool {
        if is_of_listener(name) {
            return true;
        }
        let is_default = settings::topic_setting_of(name).is_some_and(|setting| setting.effect.is_some());
        is_default
            || find_setting(Scope::Broker, name).is_some_and(|setting| {
                setting.effect.is_some()
                    || Self::default()
                        .apply(name, setting.default.unwrap_or_default())
                        .is_ok_and(|applied| applied)
            })
    }

    /// Sets the topic setting whose default this property is. Of properties for one setting, such as
    /// `log.retention.ms` and `log.retention.hours`, the one with the finest unit counts.
    fn apply_topic_default(&mut self, name: &str) -> Result<(), String> {
        let Some(setting) = settings::topic_setting_of(name) else { return Ok(()) };
        for synonym in &setting.synonyms {
            let Some(value) = self.given.get(*synonym) else { continue };
            let unit = match synonym.rsplit('.').next() {
                Some("hours") => 3_600_000,
                Some("minutes") => 60_000,
                _ => return self.topic_defaults.set(setting.name, value),
            };
            let count = number(synonym, value, -1, i64::MAX)?;
            let ms = if count < 0 { -1 } else { count.saturating_mul(unit) };
            return self.topic_defaults.set(setting.name, &ms.to_string());
        }
        Ok(())
    }

    /// Applies a property of the broker itself. Returns `false` if none has this name.
    fn apply(&mut self, name: &str, value: &str) -> Result<bool, String> {
        let ms = |value: &str| number(name, value, 0, i64::MAX).map(|ms| Duration::from_millis(ms as u64));
        let positive_ms =
            || number(name, value, 1, i64::from(i32::MAX)).map(|ms| Duration::from_millis(ms as u64));
        match name {
            "node.id" => self.node_id = number(name, value, 0, i64::from(i32::MAX))? as i32,
            // -1 is none.
            "broker.id" => match number(name, value, -1, i64::from(i32::MAX))? as i32 {
                -1 => {}
                id => self.node_id = id,
            },
            "broker.rack" => self.racks = racks::racks_of(value)?,
            "replica.selector.class" => self.replica_selector = value.parse()?,
            "unstable.feature.versions.enable" => {
                self.unstable_features = feature_settings::unstable_features(name, value)?;
            }
            "auto.create.topics.enable" => self.auto_create_topics = boolean(name, value)?,
            "delete.topic.enable" => self.delete_topics = boolean(name, value)?,
            "num.partitions" => self.partitions_default = number(name, value, 1, 10_000)? as i32,
            "default.replication.factor" => {
                self.replication_default = number(name, value, 1, i64::from(i16::MAX))? as i32;
            }
            "auto.leader.rebalance.enable" => self.rebalances_leaders = boolean(name, value)?,
            "socket.request.max.bytes" => {
                self.request_bytes_max = number(name, value, 1024, i64::from(i32::MAX))? as usize;
            }
            "max.connections" => {
                self.connections_max = number(name, value, 1, i64::from(i32::MAX))? as usize;
            }
            "connections.max.idle.ms" => self.connection_idle_max = ms(value)?,
            "group.initial.rebalance.delay.ms" => self.group_initial_delay = ms(value)?,
            "group.min.session.timeout.ms" => self.session_timeout_min = ms(value)?,
            "group.max.session.timeout.ms" => self.session_timeout_max = ms(value)?,
            "group.max.size" => {
                self.group_members_max = number(name, value, 1, i64::from(i32::MAX))? as usize;
            }
            "log.retention.check.interval.ms" => {
                self.retention_check = ms(value)?.max(Duration::from_millis(1));
            }
            "producer.id.expiration.ms" => self.producer_expiration = positive_ms()?,
            "producer.id.expiration.check.interval.ms" => self.producer_expiration_check = positive_ms()?,
            "log.scrub.bytes.per.second" => {
                let bytes = number(name, value, 0, i64::MAX)? as u64;
                self.scrub_bytes_per_second = Some(bytes).filter(|bytes| *bytes > 0);
            }
            "log.cleaner.enable" => self.cleaner_enabled = boolean(name, value)?,
            "log.cleaner.backoff.ms" => self.cleaner_backoff = ms(value)?.max(Duration::from_millis(1)),
            "log.cleaner.dedupe.buffer.size" => {
                self.cleaner_map_bytes_max = number(name, value, 1 << 20, 1 << 40)? as usize;
            }
            "partitions.total.max" => {
                self.partitions_total_max = number(name, value, 1, 10_000_000)? as usize;
            }
            "memory.max.bytes" => {
                self.memory_bytes_max = number(name, value, 1 << 20, 1 << 40)? as usize;
            }
            "fetch.max.bytes" => {
                self.fetch_bytes_max = number(name, value, 1024, i64::from(i32::MAX))? as usize;
            }
            "max.incremental.fetch.session.cache.slots" => {
                self.fetch_sessions_max = number(name, value, 0, 1_000_000)? as usize;
            }
            _ => return self.apply_to_coordinators(name, value),
        }
        Ok(true)
    }

    /// Applies a property of the coordinators and their topics.
    fn apply_to_coordinators(&mut self, name: &str, value: &str) -> Result<bool, String> {
        let ms = |value: &str| number(name, value, 0, i64::MAX).map(|ms| Duration::from_millis(ms as u64));
        match name {
            "offsets.topic.num.partitions" => {
                self.offsets_topic_partitions = number(name, value, 1, 10_000)? as i32;
            }
            "offsets.topic.replication.factor" => {
                self.offsets_topic_replication = number(name, value, 1, i64::from(i16::MAX))? as i32;
            }
            "offsets.topic.segment.bytes" => {
                self.offsets_topic_segment_bytes = number(name, value, 1024, i64::from(i32::MAX))? as u32;
            }
            "offsets.retention.minutes" => {
                let minutes = number(name, value, 1, i64::from(i32::MAX))? as u64;
                self.offsets_retention = Duration::from_secs(minutes * 60);
            }
            "offsets.retention.check.interval.ms" => {
                self.offsets_retention_check = ms(value)?.max(Duration::from_millis(1));
            }
            "transaction.state.log.num.partitions" => {
                self.transaction_log_partitions = number(name, value, 1, 10_000)? as i32;
            }
            "transaction.state.log.replication.factor" => {
                self.transaction_log_replication = number(name, value, 1, i64::from(i16::MAX))? as i32;
            }
            "transaction.state.log.segment.bytes" => {
                self.transaction_log_segment_bytes = number(name, value, 1024, i64::from(i32::MAX))? as u32;
            }
            "transaction.max.timeout.ms" => {
                let timeout_ms = number(name, value, 1, i64::from(i32::MAX))? as u64;
                self.transaction_timeout_max = Duration::from_millis(timeout_ms);
            }
            "transaction.abort.timed.out.transaction.cleanup.interval.ms" => {
                self.transaction_timeout_check = ms(value)?.max(Duration::from_millis(1));
            }
            "transactional.id.expiration.ms" => {
                self.transactional_id_expiration = ms(value)?.max(Duration::from_millis(1));
            }
            "transaction.remove.expired.transaction.cleanup.interval.ms" => {
                self.transactional_id_expiration_check = ms(value)?.max(Duration::from_millis(1));
            }
            "add.partitions.to.txn.retry.backoff.max.ms" => self.transaction_wait_max = ms(value)?,
            _ => return self.apply_to_security(name, value),
        }
        Ok(true)
    }

    /// Applies a property of the authorizer, of quotas or of connections.
    fn apply_to_security(&mut self, name: &str, value: &str) -> Result<bool, String> {
        let windows = || number(name, value, 1, i64::from(i32::MAX)).map(|count| count as u32);
        let seconds = || windows().map(|count| Duration::from_secs(u64::from(count)));
        match name {
            "quota.window.num" => self.quota_windows = windows()?,
            "quota.window.size.seconds" => self.quota_window = seconds()?,
            "controller.quota.window.num" => self.controller_quota_windows = windows()?,
            "controller.quota.window.size.seconds" => self.controller_quota_window = seconds()?,
            "authorizer.class.name" => self.has_authorizer = is_authorizer(value)?,
            "super.users" => self.super_users = principals(value)?,
            "allow.everyone.if.no.acl.found" => self.allow_everyone_without_acls = boolean(name, value)?,
            _ => {
                return Ok(self.connections_per_ip.apply(name, value)? || self.apply_to_groups(name, value)?);
            }
        }
        Ok(true)
    }

    /// Applies a property of groups of the new protocols.
    fn apply_to_groups(&mut self, name: &str, value: &str) -> Result<bool, String> {
        Ok(self.consumer_groups.apply(name, value)?
            || self.share_groups.apply(name, value)?
            || self.share_partitions.apply(name, value)?
            || self.dead_letters.apply(name, value)?
            || self.share_coordinator.apply(name, value)?)
    }
}

/// Returns whether the value names Kafka's authorizer, of which this broker has the rules.
fn is_authorizer(value: &str) -> Result<bool, String> {
    match value.trim() {
        "" => Ok(false),
        STANDARD_AUTHORIZER => Ok(true),
        other => Err(format!("authorizer.class.name=`{other}`: use {STANDARD_AUTHORIZER}, or nothing")),
    }
}

/// Principals, separated by semicolons.
fn principals(value: &str) -> Result<Vec<String>, String> {
    let names = value.split(';').map(str::trim).filter(|name| !name.is_empty());
    let checked = names.map(|name| match name.split_once(':') {
        Some((kind, _)) if !kind.is_empty() => Ok(name.to_owned()),
        Some(_) | None => Err(format!("super.users: `{name}` is no principal: use User:<name>")),
    });
    checked.collect()
}

/// An error about the topic setting whose default a property is, with the name of the property.
fn named(error: String, property: &str) -> String {
    let of_topic = topic_setting_name(property).and_then(|setting| error.strip_prefix(setting));
    match of_topic.filter(|rest| rest.starts_with(['=', ':'])) {
        Some(rest) => format!("{property}{rest}"),
        None => error,
    }
}

fn number(name: &str, value: &str, min: i64, max: i64) -> Result<i64, String> {
    settings::check_length_of_number(name, value)?;
    match value.trim().parse::<i64>() {
        Ok(number) if (min..=max).contains(&number) => Ok(number),
        _ => Err(format!("{name}=`{value}`: not a whole number from {min} to {max}")),
    }
}

fn boolean(name: &str, value: &str) -> Result<bool, String> {
    // As in Kafka, in any case.
    match value.trim().to_ascii_lowercase().as_str() {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(format!("{name}=`{value}`: neither true nor false")),
    }
}
