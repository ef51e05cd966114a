//! The settings of a broker and its topics, by Apache Kafka's names.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::time::Duration;

use ottla_log::{LogConfig, Visible};
use ottla_wire::TimestampType;

use crate::internal_topics::SEGMENT_BYTES;

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

/// Settings of a broker process.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BrokerConfig {
    /// The meaning of an acknowledgement. On disk by default.
    pub durability: Durability,
    /// `auto.create.topics.enable`: a Metadata request for an unknown topic creates it. On by default.
    pub auto_create_topics: bool,
    /// `num.partitions`: the partitions of a topic that is created without a number. 1 by default.
    pub partitions_default: i32,
    /// `socket.request.max.bytes`: a larger frame closes its connection. 100 MiB by default.
    pub request_bytes_max: usize,
    /// `max.connections` of one listener; further connections are closed at once. 10,000 by default.
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
    /// `group.initial.rebalance.delay.ms`: time that the first members of a group wait for others. 0 by default.
    pub group_initial_delay: Duration,
    /// `group.min.session.timeout.ms`. 10 ms by default, so that tests need not wait.
    pub session_timeout_min: Duration,
    /// `group.max.session.timeout.ms`. 30 minutes by default.
    pub session_timeout_max: Duration,
    /// `group.max.size`: members of one group. 10,000 by default.
    pub group_members_max: usize,
    /// `log.retention.check.interval.ms`. 5 minutes by default.
    pub retention_check: Duration,
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
    /// `offsets.topic.segment.bytes`. 100 MiB by default; later changes have no effect.
    pub offsets_topic_segment_bytes: u32,
    /// `offsets.retention.minutes`: offsets of groups without members expire after this time. 7 days by default.
    pub offsets_retention: Duration,
    /// `offsets.retention.check.interval.ms`. 10 minutes by default.
    pub offsets_retention_check: Duration,
    /// `transaction.state.log.num.partitions` of `__transaction_state`, which is created when a client first looks for a
    /// transaction coordinator. 50 by default; later changes have no effect.
    pub transaction_log_partitions: i32,
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
    /// Defaults of the topic settings.
    pub topic_defaults: TopicConfig,
}

impl Default for BrokerConfig {
    fn default() -> Self {
        Self {
            durability: Durability::Disk,
            auto_create_topics: true,
            partitions_default: 1,
            request_bytes_max: 100 << 20,
            connections_max: 10_000,
            connection_idle_max: Duration::from_secs(600),
            frame_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(60),
            memory_bytes_max: 256 << 20,
            group_initial_delay: Duration::ZERO,
            session_timeout_min: Duration::from_millis(10),
            session_timeout_max: Duration::from_secs(1800),
            group_members_max: 10_000,
            retention_check: Duration::from_secs(300),
            scrub_bytes_per_second: Some(8 << 20),
            cleaner_enabled: true,
            cleaner_backoff: Duration::from_secs(15),
            cleaner_map_bytes_max: 64 << 20,
            fetch_bytes_max: 55 << 20,
            fetch_sessions_max: 1_000,
            topic_partitions_max: 10_000,
            partitions_total_max: 20_000,
            offsets_topic_partitions: 50,
            offsets_topic_segment_bytes: SEGMENT_BYTES,
            offsets_retention: Duration::from_secs(7 * 24 * 3600),
            offsets_retention_check: Duration::from_secs(600),
            transaction_log_partitions: 50,
            transaction_log_segment_bytes: SEGMENT_BYTES,
            transaction_timeout_max: Duration::from_secs(15 * 60),
            transaction_timeout_check: Duration::from_secs(10),
            transactional_id_expiration: Duration::from_secs(7 * 24 * 3600),
            transactional_id_expiration_check: Duration::from_secs(3600),
            transaction_wait_max: Duration::from_millis(100),
            topic_defaults: TopicConfig::default(),
        }
    }
}

impl BrokerConfig {
    /// Sets a property by its name in Apache Kafka's `server.properties`.
    ///
    /// # Errors
    /// A sentence that names the property, the value and the allowed values.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let ms = |value: &str| number(name, value, 0, i64::MAX).map(|ms| Duration::from_millis(ms as u64));
        match name {
            "auto.create.topics.enable" => self.auto_create_topics = boolean(name, value)?,
            "num.partitions" => self.partitions_default = number(name, value, 1, 10_000)? as i32,
            "socket.request.max.bytes" => {
                self.request_bytes_max = number(name, value, 1024, i64::from(i32::MAX))? as usize;
            }
            "max.connections" => self.connections_max = number(name, value, 1, 1_000_000)? as usize,
            "connections.max.idle.ms" => self.connection_idle_max = ms(value)?,
            "group.initial.rebalance.delay.ms" => self.group_initial_delay = ms(value)?,
            "group.min.session.timeout.ms" => self.session_timeout_min = ms(value)?,
            "group.max.session.timeout.ms" => self.session_timeout_max = ms(value)?,
            "group.max.size" => self.group_members_max = number(name, value, 1, 1_000_000)? as usize,
            "log.retention.check.interval.ms" => {
                self.retention_check = ms(value)?.max(Duration::from_millis(1));
            }
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
            "log.cleanup.policy" => self.topic_defaults.set("cleanup.policy", value)?,
            "log.cleaner.delete.retention.ms" => self.topic_defaults.set("delete.retention.ms", value)?,
            "log.cleaner.min.cleanable.ratio" => {
                self.topic_defaults.set("min.cleanable.dirty.ratio", value)?;
            }
            "log.cleaner.min.compaction.lag.ms" => {
                self.topic_defaults.set("min.compaction.lag.ms", value)?;
            }
            "log.cleaner.max.compaction.lag.ms" => {
                self.topic_defaults.set("max.compaction.lag.ms", value)?;
            }
            "log.retention.ms" => self.topic_defaults.set("retention.ms", value)?,
            "log.retention.bytes" => self.topic_defaults.set("retention.bytes", value)?,
            "log.segment.bytes" => self.topic_defaults.set("segment.bytes", value)?,
            "log.roll.ms" => self.topic_defaults.set("segment.ms", value)?,
            "message.max.bytes" => self.topic_defaults.set("max.message.bytes", value)?,
            "log.message.timestamp.type" => self.topic_defaults.set("message.timestamp.type", value)?,
            _ => return self.set_of_coordinators(name, value),
        }
        Ok(())
    }

    /// Sets a property of the coordinators and their topics.
    fn set_of_coordinators(&mut self, name: &str, value: &str) -> Result<(), String> {
        let ms = |value: &str| number(name, value, 0, i64::MAX).map(|ms| Duration::from_millis(ms as u64));
        match name {
            "offsets.topic.num.partitions" => {
                self.offsets_topic_partitions = number(name, value, 1, 10_000)? as i32;
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
            _ => return Err(format!("no broker property is called `{name}`")),
        }
        Ok(())
    }
}

/// One setting of a topic.
#[derive(Clone, Copy, Debug)]
pub struct TopicSetting {
    /// Kafka's name.
    pub name: &'static str,
    /// Kafka's type number in DescribeConfigs: 1 boolean, 2 string, 3 int, 5 long, 6 double, 7 list.
    pub kind: i8,
    /// Its effect.
    pub text: &'static str,
}

/// The supported topic settings. Others are rejected, because they would have no effect.
pub const TOPIC_SETTINGS: &[TopicSetting] = &[
    TopicSetting {
        name: "cleanup.policy",
        kind: 7,
        text: "The clean-up of old records: `delete` by age and size, `compact` all but the newest of each key, or both.",
    },
    TopicSetting {
        name: "compression.type",
        kind: 2,
        text: "Only `producer`: batches are kept as they come.",
    },
    TopicSetting {
        name: "delete.retention.ms",
        kind: 5,
        text: "The time for which a tombstone stays after the first compaction of it.",
    },
    TopicSetting { name: "index.interval.bytes", kind: 3, text: "Bytes of log per index entry." },
    TopicSetting {
        name: "max.compaction.lag.ms",
        kind: 5,
        text: "Records are compacted after this time, however few of them are dirty.",
    },
    TopicSetting { name: "max.message.bytes", kind: 3, text: "The largest batch." },
    TopicSetting {
        name: "message.timestamp.after.max.ms",
        kind: 5,
        text: "The maximum time by which a producer's timestamps may be in the future.",
    },
    TopicSetting {
        name: "message.timestamp.before.max.ms",
        kind: 5,
        text: "The maximum time by which a producer's timestamps may be in the past.",
    },
    TopicSetting { name: "message.timestamp.type", kind: 2, text: "CreateTime or LogAppendTime." },
    TopicSetting {
        name: "min.cleanable.dirty.ratio",
        kind: 6,
        text: "A partition is compacted when more of its bytes than this part were not cleaned yet.",
    },
    TopicSetting {
        name: "min.compaction.lag.ms",
        kind: 5,
        text: "Records are not compacted before this time.",
    },
    TopicSetting { name: "min.insync.replicas", kind: 3, text: "Only 1: nothing is replicated." },
    TopicSetting { name: "retention.bytes", kind: 5, text: "Old segments go beyond so much; -1 keeps all." },
    TopicSetting { name: "retention.ms", kind: 5, text: "Segments go when they are so old; -1 keeps all." },
    TopicSetting { name: "segment.bytes", kind: 3, text: "A segment is closed before it grows beyond this." },
    TopicSetting { name: "segment.ms", kind: 5, text: "A segment is closed after this time." },
];

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
        let mut scratch = LogConfig::default();
        apply(&mut scratch, name, value)?;
        self.values.insert(name.to_owned(), value.to_owned());
        Ok(())
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
        config
    }

    /// Returns the effective value and its source: the topic, the broker, or the default.
    pub(crate) fn effective(&self, name: &str, defaults: &Self) -> (String, ConfigSource) {
        if let Some(value) = self.values.get(name) {
            return (value.clone(), ConfigSource::Topic);
        }
        if let Some(value) = defaults.values.get(name) {
            return (value.clone(), ConfigSource::Broker);
        }
        (default_text(name), ConfigSource::Default)
    }
}

/// The source of a topic's setting.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum ConfigSource {
    Topic,
    Broker,
    Default,
}

impl ConfigSource {
    /// The number in DescribeConfigs.
    pub(crate) const fn code(self) -> i8 {
        match self {
            Self::Topic => 1,
            Self::Broker => 4,
            Self::Default => 5,
        }
    }
}

fn default_text(name: &str) -> String {
    let config = LogConfig::default();
    match name {
        "cleanup.policy" => "delete".into(),
        "compression.type" => "producer".into(),
        "delete.retention.ms" => config.delete_retention_ms.to_string(),
        "index.interval.bytes" => config.index_interval_bytes.to_string(),
        "max.compaction.lag.ms" => config.max_compaction_lag_ms.to_string(),
        "max.message.bytes" => config.message_bytes_max.to_string(),
        "message.timestamp.after.max.ms" => config.timestamp_after_max_ms.to_string(),
        "message.timestamp.before.max.ms" => config.timestamp_before_max_ms.to_string(),
        "message.timestamp.type" => "CreateTime".into(),
        "min.cleanable.dirty.ratio" => config.dirty_ratio_min.to_string(),
        "min.compaction.lag.ms" => config.min_compaction_lag_ms.to_string(),
        "min.insync.replicas" => "1".into(),
        "retention.bytes" => config.retention_bytes.map_or_else(|| "-1".into(), |bytes| bytes.to_string()),
        "retention.ms" => config.retention_ms.map_or_else(|| "-1".into(), |ms| ms.to_string()),
        "segment.bytes" => config.segment_bytes.to_string(),
        "segment.ms" => config.segment_ms.to_string(),
        _ => String::new(),
    }
}

/// Writes one setting into a log's configuration.
fn apply(config: &mut LogConfig, name: &str, value: &str) -> Result<(), String> {
    let only = |allowed: &str| {
        if value == allowed { Ok(()) } else { Err(format!("{name}=`{value}`: only `{allowed}` exists here")) }
    };
    match name {
        "cleanup.policy" => (config.delete, config.compact) = cleanup_policy(value)?,
        "compression.type" => only("producer")?,
        "min.insync.replicas" => only("1")?,
        "delete.retention.ms" => config.delete_retention_ms = number(name, value, 0, i64::MAX)?,
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
            config.retention_bytes = u64::try_from(number(name, value, -1, i64::MAX)?).ok();
        }
        "retention.ms" => {
            config.retention_ms = Some(number(name, value, -1, i64::MAX)?).filter(|ms| *ms >= 0);
        }
        "segment.bytes" => config.segment_bytes = number(name, value, 1024, i64::from(i32::MAX))? as u32,
        "segment.ms" => config.segment_ms = number(name, value, 1, i64::MAX)?,
        _ => return Err(format!("`{name}` is not a topic setting that has an effect here")),
    }
    Ok(())
}

/// Returns whether the policy has `delete`, and whether it has `compact`.
fn cleanup_policy(value: &str) -> Result<(bool, bool), String> {
    let (mut delete, mut compact) = (false, false);
    for policy in value.split(',').map(str::trim) {
        match policy {
            "delete" => delete = true,
            "compact" => compact = true,
            _ => return Err(format!("cleanup.policy=`{value}`: use delete, compact, or delete,compact")),
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

fn number(name: &str, value: &str, min: i64, max: i64) -> Result<i64, String> {
    match value.trim().parse::<i64>() {
        Ok(number) if (min..=max).contains(&number) => Ok(number),
        _ => Err(format!("{name}=`{value}`: not a whole number from {min} to {max}")),
    }
}

fn boolean(name: &str, value: &str) -> Result<bool, String> {
    match value.trim() {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => Err(format!("{name}=`{value}`: neither true nor false")),
    }
}
