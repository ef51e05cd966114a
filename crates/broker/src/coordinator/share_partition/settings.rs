//! The settings of a share group that the leaders of its partitions need.

use std::time::Duration;

use super::reset::ResetPolicy;
use super::window::ShareLimits;
use crate::cluster::Cluster;
use crate::config::dead_letter_queues::TOPIC_NAME;
use crate::config::live::GROUP;

/// The settings of a share group: its own, within the broker's limits, or the broker's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShareSettings {
    pub(crate) limits: ShareLimits,
    /// `share.auto.offset.reset`.
    pub(crate) reset: ResetPolicy,
    /// `share.isolation.level` is `read_committed`.
    pub(crate) is_committed: bool,
}

/// Reads the settings of a group.
pub(crate) fn settings_of(cluster: &Cluster, group: &str) -> ShareSettings {
    let broker = cluster.live.broker();
    let config = &broker.share_partitions;
    let own = cluster.live.values(GROUP, group);
    let text = |name: &str| own.get(name).map(|value| value.trim());
    let number = |name: &str, default: u32, (min, max): (u32, u32)| {
        text(name).and_then(|value| value.parse().ok()).unwrap_or(default).max(min).min(max)
    };
    let ms = |time: Duration| u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
    let durations = (ms(config.lock_duration_range.0), ms(config.lock_duration_range.1));
    let lock_ms = number("share.record.lock.duration.ms", ms(config.lock_duration), durations);
    let deliveries =
        number("share.delivery.count.limit", config.delivery_count_limit, config.delivery_count_limit_range);
    let locks = number("share.partition.max.record.locks", config.locks_max, config.locks_max_range);
    let reset = if config.begins_at_start { ResetPolicy::Earliest } else { ResetPolicy::Latest };
    ShareSettings {
        limits: ShareLimits {
            lock_duration: Duration::from_millis(u64::from(lock_ms)),
            delivery_count_max: i16::try_from(deliveries).unwrap_or(i16::MAX),
            locks_max: i64::from(locks),
            splits_batches: config.splits_batches,
            has_dead_letters: text(TOPIC_NAME).is_some_and(|topic| !topic.is_empty()),
            renews: text("share.renew.acknowledge.enable") != Some("false"),
        },
        reset: text("share.auto.offset.reset").and_then(ResetPolicy::parse).unwrap_or(reset),
        is_committed: text("share.isolation.level")
            .map_or(config.reads_committed, |level| level == "read_committed"),
    }
}
