//! The settings of share groups and of their coordinators: `group.share.*` and `share.coordinator.*`.

use std::time::Duration;

use super::number;
use crate::internal_topics::SEGMENT_BYTES;

/// Settings of share groups and their members (KIP-932).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ShareGroupConfig {
    /// `group.share.session.timeout.ms`. 45 seconds by default.
    pub session_timeout: Duration,
    /// `group.share.min.session.timeout.ms` and `group.share.max.session.timeout.ms`. 45 and 60 seconds by default.
    pub session_timeout_range: (Duration, Duration),
    /// `group.share.heartbeat.interval.ms`. 5 seconds by default.
    pub heartbeat_interval: Duration,
    /// `group.share.min.heartbeat.interval.ms` and `group.share.max.heartbeat.interval.ms`. 5 and 15 seconds by default.
    pub heartbeat_interval_range: (Duration, Duration),
    /// `group.share.assignment.interval.ms`: the least time between two target assignments of a group. 1 second by default.
    pub assignment_interval: Duration,
    /// `group.share.min.assignment.interval.ms` and `group.share.max.assignment.interval.ms`. 0 and 15 seconds by default.
    pub assignment_interval_range: (Duration, Duration),
    /// `group.share.max.size`: members of one group. 200 by default.
    pub members_max: usize,
}

/// Settings of the share coordinator, which keeps the state of share-partitions in `__share_group_state`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ShareCoordinatorConfig {
    /// `share.coordinator.state.topic.num.partitions` of `__share_group_state`, which is created for the first share group.
    /// 50 by default; later changes have no effect.
    pub state_topic_partitions: i32,
    /// `share.coordinator.state.topic.replication.factor`: at most the number of nodes. 3 by default; an existing topic gets more at a
    /// start with a higher number.
    pub state_topic_replication: i32,
    /// `share.coordinator.state.topic.segment.bytes`. 100 MiB by default; later changes have no effect.
    pub state_topic_segment_bytes: u32,
    /// `share.coordinator.snapshot.update.records.per.snapshot`: the changes of a state after which the whole state is
    /// written. 500 by default.
    pub updates_per_snapshot: u32,
    /// The time between two deletions of records that no state needs: Kafka's internal
    /// `share.coordinator.state.topic.prune.interval.ms`. 5 minutes by default.
    pub prune_interval: Duration,
    /// The time after which a state that did not change is written again: Kafka's internal
    /// `share.coordinator.cold.partition.snapshot.interval.ms`. 5 minutes by default.
    pub cold_snapshot_interval: Duration,
}

impl Default for ShareGroupConfig {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            session_timeout: seconds(45),
            session_timeout_range: (seconds(45), seconds(60)),
            heartbeat_interval: seconds(5),
            heartbeat_interval_range: (seconds(5), seconds(15)),
            assignment_interval: seconds(1),
            assignment_interval_range: (Duration::ZERO, seconds(15)),
            members_max: 200,
        }
    }
}

impl Default for ShareCoordinatorConfig {
    fn default() -> Self {
        Self {
            state_topic_partitions: 50,
            state_topic_replication: 3,
            state_topic_segment_bytes: SEGMENT_BYTES,
            updates_per_snapshot: 500,
            prune_interval: Duration::from_secs(300),
            cold_snapshot_interval: Duration::from_secs(300),
        }
    }
}

impl ShareGroupConfig {
    /// Applies a property, or returns `false` if it is none of these settings.
    pub(super) fn apply(&mut self, name: &str, value: &str) -> Result<bool, String> {
        let ms = |min: i64| {
            number(name, value, min, i64::from(i32::MAX)).map(|ms| Duration::from_millis(ms as u64))
        };
        match name {
            "group.share.session.timeout.ms" => self.session_timeout = ms(1)?,
            "group.share.min.session.timeout.ms" => self.session_timeout_range.0 = ms(1)?,
            "group.share.max.session.timeout.ms" => self.session_timeout_range.1 = ms(1)?,
            "group.share.heartbeat.interval.ms" => self.heartbeat_interval = ms(1)?,
            "group.share.min.heartbeat.interval.ms" => self.heartbeat_interval_range.0 = ms(1)?,
            "group.share.max.heartbeat.interval.ms" => self.heartbeat_interval_range.1 = ms(1)?,
            "group.share.assignment.interval.ms" => self.assignment_interval = ms(0)?,
            "group.share.min.assignment.interval.ms" => self.assignment_interval_range.0 = ms(0)?,
            "group.share.max.assignment.interval.ms" => self.assignment_interval_range.1 = ms(0)?,
            "group.share.max.size" => self.members_max = number(name, value, 1, 1000)? as usize,
            _ => return Ok(false),
        }
        Ok(true)
    }
}

impl ShareCoordinatorConfig {
    /// Applies a property, or returns `false` if it is none of these settings.
    pub(super) fn apply(&mut self, name: &str, value: &str) -> Result<bool, String> {
        match name {
            "share.coordinator.state.topic.num.partitions" => {
                self.state_topic_partitions = number(name, value, 1, 10_000)? as i32;
            }
            "share.coordinator.state.topic.replication.factor" => {
                self.state_topic_replication = number(name, value, 1, i64::from(i16::MAX))? as i32;
            }
            "share.coordinator.state.topic.segment.bytes" => {
                self.state_topic_segment_bytes = number(name, value, 1024, i64::from(i32::MAX))? as u32;
            }
            "share.coordinator.snapshot.update.records.per.snapshot" => {
                self.updates_per_snapshot = number(name, value, 0, 500)? as u32;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}
