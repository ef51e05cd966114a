//! The topics that the coordinators write: `__consumer_offsets`, `__transaction_state` and `__share_group_state`, in Kafka's
//! bytes.
//!
//! ```text
//! coordinator --append--> partition of the topic --sync--> acknowledged
//!      ^                          |
//!      +------ replay at the start+
//! ```
//!
//! - `create`: a topic is created when a client first needs a coordinator; an empty broker has none.
//! - `append`: a coordinator's records, and the wait until they are durable.
//! - `replay`: every record of a partition, in order.

mod append;
mod create;
mod replay;

pub(crate) use append::{InternalRecord, Producer, Written};
pub(crate) use replay::{ReplayError, Replayed, replay};

use ottla_log::LogConfig;

use crate::config::{BrokerConfig, TopicConfig};

/// The records of one segment are read at the start, and none of them is compacted: Kafka's `offsets.topic.segment.bytes`,
/// `transaction.state.log.segment.bytes` and `share.coordinator.state.topic.segment.bytes`.
pub(crate) const SEGMENT_BYTES: u32 = 100 << 20;
/// A group's members are one record. Those of Kafka's largest groups need more than its default of 1 MiB.
const MESSAGE_BYTES_MAX: u32 = 10 << 20;
/// Coordinators read no records while they run, and clients rarely do: there is no cache for them.
const TAIL_CACHE_BYTES: usize = 0;

/// A topic of a coordinator.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum InternalTopic {
    /// Committed offsets and groups.
    ConsumerOffsets,
    /// Transactions.
    TransactionState,
    /// The state of share-partitions.
    ShareGroupState,
}

impl InternalTopic {
    const ALL: [Self; 3] = [Self::ConsumerOffsets, Self::TransactionState, Self::ShareGroupState];

    /// The topic of that name.
    pub(crate) fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|topic| topic.name() == name)
    }

    /// Kafka's name.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::ConsumerOffsets => "__consumer_offsets",
            Self::TransactionState => "__transaction_state",
            Self::ShareGroupState => "__share_group_state",
        }
    }

    /// The number of partitions that the topic is created with.
    pub(crate) const fn partitions(self, config: &BrokerConfig) -> i32 {
        match self {
            Self::ConsumerOffsets => config.offsets_topic_partitions,
            Self::TransactionState => config.transaction_log_partitions,
            Self::ShareGroupState => config.share_coordinator.state_topic_partitions,
        }
    }

    /// The number of replicas that the topic is created with, if there are as many nodes.
    pub(crate) const fn replication(self, config: &BrokerConfig) -> i32 {
        match self {
            Self::ConsumerOffsets => config.offsets_topic_replication,
            Self::TransactionState => config.transaction_log_replication,
            Self::ShareGroupState => config.share_coordinator.state_topic_replication,
        }
    }

    /// The settings that the topic is created with.
    pub(crate) fn settings(self, config: &BrokerConfig) -> TopicConfig {
        let segment_bytes = match self {
            Self::ConsumerOffsets => config.offsets_topic_segment_bytes,
            Self::TransactionState => config.transaction_log_segment_bytes,
            Self::ShareGroupState => config.share_coordinator.state_topic_segment_bytes,
        };
        // Snapshots of the state of share groups replace earlier records, whose keys differ: see `share_state`.
        let cleanup = if self == Self::ShareGroupState { "delete" } else { "compact" };
        let compression = if self == Self::TransactionState { "uncompressed" } else { "producer" };
        let mut settings = TopicConfig::default();
        for (name, value) in [
            ("cleanup.policy", cleanup.to_owned()),
            ("compression.type", compression.to_owned()),
            ("max.message.bytes", MESSAGE_BYTES_MAX.to_string()),
            ("segment.bytes", segment_bytes.to_string()),
        ] {
            settings.set(name, &value).expect("the values are allowed: a test creates the topics");
        }
        if self == Self::TransactionState {
            let unclean = settings.set("unclean.leader.election.enable", "false");
            unclean.expect("the value is allowed: a test creates the topics");
        }
        add_missing_settings(self.name(), &mut settings);
        settings
    }
}

/// Returns whether a topic is one of the coordinators'.
pub(crate) fn is_internal(topic: &str) -> bool {
    InternalTopic::of_name(topic).is_some()
}

/// Keeps the states of share groups whatever the broker's defaults are: a quiet state has no later record. Earlier versions created the
/// topic without some of these settings.
pub(crate) fn add_missing_settings(topic: &str, config: &mut TopicConfig) {
    if topic != InternalTopic::ShareGroupState.name() {
        return;
    }
    for name in ["retention.bytes", "retention.ms"] {
        if !config.values().contains_key(name) {
            config.set(name, "-1").expect("the value is allowed: a test creates the topic");
        }
    }
}

/// Limits the memory of an internal topic's logs: there are 50 of each.
pub(crate) fn limit_memory(topic: &str, config: &mut LogConfig) {
    if is_internal(topic) {
        config.tail_cache_bytes = TAIL_CACHE_BYTES;
    }
}

/// The partition of an internal topic that has the records of a group or of a transactional id.
pub(crate) fn partition_of(key: &str, partitions: i32) -> i32 {
    // `Utils.abs` of Kafka: the hash without an absolute value counts as 0.
    java_hash(key).checked_abs().unwrap_or(0) % partitions.max(1)
}

/// Java's `String.hashCode`, over UTF-16 units.
fn java_hash(text: &str) -> i32 {
    text.encode_utf16().fold(0, |hash: i32, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Durability;

    /// The hashes are from Java.
    #[test]
    fn keys_have_kafkas_partitions() {
        for (key, hash) in [("", 0), ("a", 97), ("orders", -1_008_770_331), ("ü😀", 2_015_071)] {
            assert_eq!(java_hash(key), hash, "{key}");
        }
        // The string whose hash is `Integer.MIN_VALUE`.
        assert_eq!(java_hash("polygenelubricants"), i32::MIN);
        assert_eq!(partition_of("polygenelubricants", 50), 0);
        assert_eq!(partition_of("orders", 50), 31);
    }

    #[test]
    fn the_topics_have_kafkas_settings() {
        let config = BrokerConfig::default();
        for topic in InternalTopic::ALL {
            assert_eq!(topic.partitions(&config), 50);
            let settings = topic.settings(&config);
            let is_compacted = topic != InternalTopic::ShareGroupState;
            let policy = if is_compacted { "compact" } else { "delete" };
            assert_eq!(settings.values()["cleanup.policy"], policy);
            for name in ["retention.bytes", "retention.ms"] {
                let retention = settings.values().get(name).map(String::as_str);
                assert_eq!(retention, (!is_compacted).then_some("-1"), "{name}");
            }
            assert_eq!(settings.values()["segment.bytes"], "104857600");
            let is_of_transactions = topic == InternalTopic::TransactionState;
            let compression = if is_of_transactions { "uncompressed" } else { "producer" };
            assert_eq!(settings.values()["compression.type"], compression);
            let unclean = settings.values().get("unclean.leader.election.enable").map(String::as_str);
            assert_eq!(unclean, is_of_transactions.then_some("false"));
            assert!(is_internal(topic.name()));
        }
        assert!(!is_internal("__consumer_offsets2") && !is_internal("orders"));
    }

    /// The topic had the broker's `log.retention.bytes`, and the states of quiet share-partitions were deleted.
    #[test]
    fn the_states_of_share_groups_are_kept_whatever_the_defaults_are() {
        let mut defaults = TopicConfig::default();
        for name in ["retention.bytes", "retention.ms"] {
            defaults.set(name, "1000").expect("allowed");
        }
        // Of an earlier version.
        let mut config = TopicConfig::default();
        config.set("retention.ms", "-1").expect("allowed");
        add_missing_settings("__share_group_state", &mut config);
        let log_config = config.log_config(&defaults, Durability::Disk);
        assert_eq!((log_config.retention_bytes, log_config.retention_ms), (None, None));
        // The choice of an administrator stays.
        config.set("retention.bytes", "5000").expect("allowed");
        add_missing_settings("__share_group_state", &mut config);
        assert_eq!(config.log_config(&defaults, Durability::Disk).retention_bytes, Some(5000));
        let mut other = TopicConfig::default();
        add_missing_settings("orders", &mut other);
        assert!(other.values().is_empty());
    }
}
