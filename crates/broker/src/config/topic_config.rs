//! The settings of topics: Kafka's names, and those that have an effect here.

use std::collections::BTreeMap;

use ottla_log::{LogConfig, Visible};
use ottla_wire::{Compression, TimestampType};

use super::settings::{Scope, check_length, find};
use super::{Durability, number};

const SEGMENT_BYTES: &str = "segment.bytes";
const INTERNAL_SEGMENT_BYTES: &str = "internal.segment.bytes";
pub(crate) const ACCEPTS_DEAD_LETTERS: &str = "errors.deadletterqueue.group.enable";
const REMOTE_STORAGE: &str = "remote.storage.enable";
const MIN_INSYNC: &str = "min.insync.replicas";

/// The settings that have an effect, and the effect.
pub(super) const EFFECTS: &[(&str, &str)] = &[
    (
        "cleanup.policy",
        "The clean-up of old records: `delete` by age and size, `compact` all but the newest of each key, or both.",
    ),
    ("compression.gzip.level", "The level for `compression.type=gzip`; -1 is level 6."),
    (
        "compression.type",
        "The codec of stored batches. `producer` keeps that of the producer; batches of another codec are recompressed.",
    ),
    ("compression.zstd.level", "The level for `compression.type=zstd`. Levels below 1 count as 1, 0 as 3."),
    ("delete.retention.ms", "The time for which a tombstone stays after the first compaction of it."),
    (ACCEPTS_DEAD_LETTERS, "Apache Kafka 4.4: share groups may name the topic as their dead-letter queue."),
    (
        "flush.messages",
        "With --durability os, a produce request waits for a sync when so many records of the partition are not on disk. With \
         disk, each request with acks=all waits.",
    ),
    (
        "flush.ms",
        "With --durability os, records are synced after this time; it is checked twice a second. With disk, they are synced at once.",
    ),
    (
        FOLLOWER_REPLICAS,
        "The new replicas, as PARTITION:BROKER or `*`, whose reassignment lasts: `follower.replication.throttled.rate` is that of the \
         broker.",
    ),
    ("index.interval.bytes", "Bytes of log per index entry."),
    (
        INTERNAL_SEGMENT_BYTES,
        "For tests, as in Apache Kafka: it wins over `segment.bytes` and can be smaller.",
    ),
    (
        LEADER_REPLICAS,
        "The leaders, as PARTITION:BROKER or `*`, from which a reassignment lasts: `leader.replication.throttled.rate` is that of the \
         broker.",
    ),
    ("max.compaction.lag.ms", "Records are compacted after this time, however few of them are dirty."),
    ("max.message.bytes", "The largest batch."),
    (
        "message.timestamp.after.max.ms",
        "The maximum time by which a producer's timestamps may be in the future.",
    ),
    (
        "message.timestamp.before.max.ms",
        "The maximum time by which a producer's timestamps may be in the past.",
    ),
    (
        "message.timestamp.type",
        "The clock of the timestamps: CreateTime is the producer's, LogAppendTime the broker's.",
    ),
    (
        "min.cleanable.dirty.ratio",
        "A partition is compacted when more of its bytes than this part were not cleaned yet.",
    ),
    ("min.compaction.lag.ms", "Records are not compacted before this time."),
    (
        MIN_INSYNC,
        "Writes with acks=all are refused while fewer replicas are up. All replicas share one copy of the data.",
    ),
    (
        "retention.bytes",
        "Old segments are deleted while the others have at least so many bytes; -1 keeps all.",
    ),
    ("retention.ms", "Segments are deleted when their newest record is older; -1 keeps all."),
    (
        SEGMENT_BYTES,
        "A segment is closed before it grows beyond this, and larger batches are refused. Kafka's smallest value is 1 MiB, this \
         broker's 1 KiB.",
    ),
    ("segment.index.bytes", "A segment is closed when one of its indexes has so many bytes."),
    (
        "segment.jitter.ms",
        "A segment is closed earlier than after `segment.ms`, by a random part of this time.",
    ),
    ("segment.ms", "A segment is closed after this time."),
];

/// The new replicas that `follower.replication.throttled.rate` applies to.
pub(crate) const FOLLOWER_REPLICAS: &str = "follower.replication.throttled.replicas";
/// The leaders that `leader.replication.throttled.rate` applies to.
pub(crate) const LEADER_REPLICAS: &str = "leader.replication.throttled.replicas";
/// The settings with an item for each replica, such as `17:2`.
const BY_REPLICA: [&str; 2] = [FOLLOWER_REPLICAS, LEADER_REPLICAS];
/// Bytes of such a list for each partition: a reassignment names up to ten old and new replicas.
const REPLICAS_BYTES_MAX: usize = 128;

/// The replicas of a setting such as `17:2,18:3`, parsed once for all partitions of a topic: such a list can have megabytes.
#[derive(Debug)]
pub(crate) enum ReplicaList {
    All,
    /// The number of the partition and the node of each, in order.
    These(Vec<(i32, i32)>),
}

impl Default for ReplicaList {
    fn default() -> Self {
        Self::These(Vec::new())
    }
}

impl ReplicaList {
    fn parse(list: &str) -> Self {
        if list == "*" {
            return Self::All;
        }
        let replica = |item: &str| -> Option<(i32, i32)> {
            let (partition, node) = item.trim().split_once(':')?;
            Some((partition.parse().ok()?, node.parse().ok()?))
        };
        let mut replicas: Vec<(i32, i32)> = list.split(',').filter_map(replica).collect();
        replicas.sort_unstable();
        Self::These(replicas)
    }

    /// Returns whether it has the replica of a partition at `node`.
    pub(crate) fn contains(&self, partition: i32, node: i32) -> bool {
        match self {
            Self::All => true,
            Self::These(replicas) => replicas.binary_search(&(partition, node)).is_ok(),
        }
    }
}

/// The settings that were set on a topic. The broker's defaults apply to all others.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct TopicConfig {
    values: BTreeMap<String, String>,
}

impl TopicConfig {
    /// Sets a setting by Kafka's name.
    ///
    /// # Errors
    /// A sentence that names the setting, the value and the allowed values.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let Some(setting) = find(Scope::Topic, name) else {
            return Err(format!("no topic setting is called `{name}`"));
        };
        if !BY_REPLICA.contains(&name) {
            check_length(name, value)?;
        }
        // Its smallest value is above, for tests.
        if name != SEGMENT_BYTES {
            setting.check(value)?;
        }
        apply(&mut LogConfig::default(), name, value)?;
        self.values.insert(name.to_owned(), value.trim().to_owned());
        Ok(())
    }

    /// Checks the settings that depend on others, with `defaults` for those that are not set.
    pub(crate) fn check_together(&self, defaults: &Self) -> Result<(), String> {
        if self.values.get(REMOTE_STORAGE).is_some_and(|value| value.eq_ignore_ascii_case("true")) {
            return Err(format!("{REMOTE_STORAGE}=`true`: this broker has no tiered storage"));
        }
        let LogConfig { min_compaction_lag_ms: min, max_compaction_lag_ms: max, .. } =
            self.log_config(defaults, Durability::Os);
        if min > max {
            return Err(format!("min.compaction.lag.ms={min} is above max.compaction.lag.ms={max}"));
        }
        Ok(())
    }

    /// Checks the settings that have an item for each replica of a topic with so many partitions.
    ///
    /// # Errors
    /// A sentence that names the setting and the lengths.
    pub(crate) fn check_replica_lists(&self, partitions: usize) -> Result<(), String> {
        let max = REPLICAS_BYTES_MAX * (partitions + 1);
        for name in BY_REPLICA {
            let bytes = self.values.get(name).map_or(0, String::len);
            if bytes > max {
                return Err(format!("{name}: the value has {bytes} bytes, at most {max} are allowed"));
            }
        }
        Ok(())
    }

    /// The replicas of a setting with an item for each of them.
    pub(crate) fn replica_list(&self, setting: &str) -> ReplicaList {
        self.values.get(setting).map_or_else(ReplicaList::default, |list| ReplicaList::parse(list))
    }

    /// Returns `true` if share groups may name the topic as their dead-letter queue.
    pub(crate) fn accepts_dead_letters(&self) -> bool {
        self.values.get(ACCEPTS_DEAD_LETTERS).is_some_and(|value| value.eq_ignore_ascii_case("true"))
    }

    /// The number of replicas that must be up for `acks=all`.
    pub(crate) fn insync_replicas_min(&self, defaults: &Self) -> usize {
        let value = self.values.get(MIN_INSYNC).or_else(|| defaults.values.get(MIN_INSYNC));
        value.and_then(|value| value.parse().ok()).unwrap_or(1)
    }

    /// Values that were checked when they were set.
    pub(crate) fn from_values(values: BTreeMap<String, String>) -> Self {
        Self { values }
    }

    /// The values that were set.
    pub fn values(&self) -> &BTreeMap<String, String> {
        &self.values
    }

    /// Returns the log's settings: these, and `defaults` for all others.
    pub(crate) fn log_config(&self, defaults: &Self, durability: Durability) -> LogConfig {
        let mut config = LogConfig {
            visible: if durability == Durability::Disk { Visible::Synced } else { Visible::End },
            ..LogConfig::default()
        };
        for (name, value) in defaults.values.iter().chain(&self.values) {
            // Checked when it was set.
            let _ = apply(&mut config, name, value);
        }
        // Whatever `segment.bytes` is.
        if let Some(value) = self.values.get(INTERNAL_SEGMENT_BYTES) {
            let _ = apply(&mut config, INTERNAL_SEGMENT_BYTES, value);
        }
        // A batch that is accepted without a codec is accepted with one.
        let message_bytes_max = config.message_bytes_max as usize;
        config.decompressed_bytes_max = config.decompressed_bytes_max.max(message_bytes_max);
        config
    }
}

/// Writes one setting into a log's configuration.
fn apply(config: &mut LogConfig, name: &str, value: &str) -> Result<(), String> {
    let value = value.trim();
    match name {
        "cleanup.policy" => (config.delete, config.compact) = cleanup_policy(value)?,
        "compression.gzip.level" => {
            config.gzip_level = Some(number(name, value, -1, 9)? as i32).filter(|level| *level > 0);
        }
        "compression.type" => config.compression = compression_type(name, value)?,
        "compression.zstd.level" => {
            config.zstd_level = zstd_level(number(name, value, i64::from(i32::MIN), 22)?);
        }
        "delete.retention.ms" => config.delete_retention_ms = number(name, value, 0, i64::MAX)?,
        "flush.messages" => config.flush_messages = number(name, value, 1, i64::MAX)?,
        "flush.ms" => config.flush_ms = number(name, value, 0, i64::MAX)?,
        "max.compaction.lag.ms" => config.max_compaction_lag_ms = number(name, value, 1, i64::MAX)?,
        "min.cleanable.dirty.ratio" => config.dirty_ratio_min = ratio(name, value)?,
        "min.compaction.lag.ms" => config.min_compaction_lag_ms = number(name, value, 0, i64::MAX)?,
        "index.interval.bytes" => {
            config.index_interval_bytes = number(name, value, 0, i64::from(i32::MAX))? as u32;
        }
        "max.message.bytes" => config.message_bytes_max = number(name, value, 0, i64::from(i32::MAX))? as u32,
        "message.timestamp.after.max.ms" => config.timestamp_after_max_ms = number(name, value, 0, i64::MAX)?,
        "message.timestamp.before.max.ms" => {
            config.timestamp_before_max_ms = number(name, value, 0, i64::MAX)?;
        }
        "message.timestamp.type" => {
            config.timestamp_type = match value {
                "CreateTime" => TimestampType::CreateTime,
                "LogAppendTime" => TimestampType::LogAppendTime,
                _ => return Err(format!("{name}=`{value}`: use CreateTime or LogAppendTime")),
            };
        }
        "retention.bytes" => {
            config.retention_bytes = u64::try_from(number(name, value, i64::MIN, i64::MAX)?).ok();
        }
        "retention.ms" => {
            config.retention_ms = Some(number(name, value, -1, i64::MAX)?).filter(|ms| *ms >= 0);
        }
        SEGMENT_BYTES => config.segment_bytes = number(name, value, 1024, i64::from(i32::MAX))? as u32,
        INTERNAL_SEGMENT_BYTES => config.segment_bytes = number(name, value, 1, i64::from(i32::MAX))? as u32,
        "segment.jitter.ms" => config.segment_jitter_ms = number(name, value, 0, i64::MAX)?,
        "segment.ms" => config.segment_ms = number(name, value, 1, i64::MAX)?,
        "segment.index.bytes" => {
            config.segment_index_bytes = number(name, value, 4, i64::from(i32::MAX))? as u32;
        }
        // The others concern no log; `settings` has checked their values.
        _ => {}
    }
    Ok(())
}

/// The codec of stored batches; `None` is that of the producer.
fn compression_type(name: &str, value: &str) -> Result<Option<Compression>, String> {
    match value {
        "producer" => Ok(None),
        "uncompressed" => Ok(Some(Compression::None)),
        codec => {
            let found = codec.parse().ok().filter(|codec| *codec != Compression::None);
            found.map(Some).ok_or_else(|| {
                format!("{name}=`{value}`: use producer, uncompressed, gzip, snappy, lz4 or zstd")
            })
        }
    }
}

/// The codec has levels from 1 on; its level 0 is the default, and negative ones are faster than 1.
fn zstd_level(level: i64) -> Option<i32> {
    match level {
        0 => None,
        level => Some(level.max(1) as i32),
    }
}

/// Returns whether the policy has `delete`, and whether it has `compact`. With neither, every record is kept.
fn cleanup_policy(value: &str) -> Result<(bool, bool), String> {
    let (mut delete, mut compact) = (false, false);
    for policy in value.split(',').map(str::trim).filter(|policy| !policy.is_empty()) {
        let named = match policy {
            "delete" => &mut delete,
            "compact" => &mut compact,
            _ => return Err(format!("cleanup.policy=`{value}`: use delete, compact, or delete,compact")),
        };
        if std::mem::replace(named, true) {
            return Err(format!("cleanup.policy=`{value}`: `{policy}` is there twice"));
        }
    }
    Ok((delete, compact))
}

fn ratio(name: &str, value: &str) -> Result<f64, String> {
    match value.trim().parse::<f64>() {
        Ok(ratio) if (0.0..=1.0).contains(&ratio) => Ok(ratio),
        _ => Err(format!("{name}=`{value}`: not a number from 0 to 1")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::BrokerConfig;
    use super::*;

    /// Each partition of a reassignment in progress read both lists from their beginnings, ten times a second.
    #[test]
    fn a_list_of_replicas_is_read_once_for_all_partitions() {
        let mut topic = TopicConfig::default();
        topic.set(FOLLOWER_REPLICAS, "7:2,0:3,7:1").expect("a list");
        topic.set(LEADER_REPLICAS, "*").expect("all");
        let followers = topic.replica_list(FOLLOWER_REPLICAS);
        let listed =
            [(0, 3), (7, 1), (7, 2), (0, 1), (7, 3), (1, 2)].map(|(of, at)| followers.contains(of, at));
        assert_eq!(listed, [true, true, true, false, false, false]);
        assert!(topic.replica_list(LEADER_REPLICAS).contains(9, 9));
        assert!(!TopicConfig::default().replica_list(LEADER_REPLICAS).contains(0, 1));
    }

    /// No topic setting had this name.
    #[test]
    fn the_internal_size_of_segments_wins_and_can_be_smaller() {
        let size = |settings: &[(&str, &str)]| {
            let mut topic = TopicConfig::default();
            for (name, value) in settings {
                topic.set(name, value).expect("a setting");
            }
            topic.log_config(&TopicConfig::default(), Durability::Disk).segment_bytes
        };
        let (internal, documented) = (("internal.segment.bytes", "1000"), ("segment.bytes", "2097152"));
        assert_eq!((size(&[]), size(&[internal])), (1 << 30, 1000));
        assert_eq!((size(&[internal, documented]), size(&[documented, internal])), (1000, 1000));
        assert!(TopicConfig::default().set("internal.segment.bytes", "0").is_err());
    }

    /// They were stored, and had no effect.
    #[test]
    fn the_jitter_of_segments_comes_from_the_topic_or_the_broker() {
        let jitter_ms = |of_broker: &[(&str, &str)], of_topic: Option<&str>| {
            let (mut broker, mut topic) = (BrokerConfig::default(), TopicConfig::default());
            for (name, value) in of_broker {
                broker.set(name, value).expect("a setting");
            }
            if let Some(value) = of_topic {
                topic.set("segment.jitter.ms", value).expect("a setting");
            }
            topic.log_config(&broker.topic_defaults, Durability::Disk).segment_jitter_ms
        };
        let (hours, ms) = (("log.roll.jitter.hours", "2"), ("log.roll.jitter.ms", "30"));
        assert_eq!((jitter_ms(&[], None), jitter_ms(&[hours], None)), (0, 7_200_000));
        assert_eq!((jitter_ms(&[hours, ms], None), jitter_ms(&[hours, ms], Some("4"))), (30, 4));
        assert!(BrokerConfig::has_effect("log.roll.jitter.hours"));
    }

    /// A compressed batch of more than 64 MiB was refused although `max.message.bytes` was larger.
    #[test]
    fn a_batch_may_be_as_large_as_a_message_also_with_a_codec() {
        let bytes_of = |value: Option<&str>| {
            let mut config = TopicConfig::default();
            if let Some(value) = value {
                config.set("max.message.bytes", value).expect("a setting");
            }
            config.log_config(&TopicConfig::default(), Durability::Disk).decompressed_bytes_max
        };
        assert_eq!((bytes_of(None), bytes_of(Some("104857600"))), (64 << 20, 100 << 20));
    }
}
