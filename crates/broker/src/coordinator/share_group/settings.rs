//! The settings of a share group.

use std::time::Duration;

use super::group::ShareGroupSettings;
use crate::cluster::Cluster;
use crate::config::live::GROUP;

/// The settings of a group: its own, within the broker's limits, or the broker's.
pub(super) fn settings_of(cluster: &Cluster, group_id: &str) -> ShareGroupSettings {
    let broker = cluster.live.broker();
    let config = &broker.share_groups;
    let own = cluster.live.values(GROUP, group_id);
    let ms = |name: &str, default: Duration, (min, max): (Duration, Duration)| {
        let own = own.get(name).and_then(|value| value.trim().parse().ok()).map(Duration::from_millis);
        own.unwrap_or(default).max(min).min(max)
    };
    ShareGroupSettings {
        session_timeout: ms("share.session.timeout.ms", config.session_timeout, config.session_timeout_range),
        heartbeat_interval: ms(
            "share.heartbeat.interval.ms",
            config.heartbeat_interval,
            config.heartbeat_interval_range,
        ),
        assignment_interval: ms(
            "share.assignment.interval.ms",
            config.assignment_interval,
            config.assignment_interval_range,
        ),
        members_max: config.members_max,
    }
}
