//! The settings of a group.

use std::time::Duration;

use super::assignor::Assignor;
use super::group::GroupSettings;
use crate::cluster::Cluster;
use crate::config::live::GROUP;

/// The settings of a group: its own, within the broker's limits, or the broker's.
pub(super) fn settings_of(cluster: &Cluster, group_id: &str) -> GroupSettings {
    let broker = cluster.live.broker();
    let config = &broker.consumer_groups;
    let own = cluster.live.values(GROUP, group_id);
    let ms = |name: &str, default: Duration, (min, max): (Duration, Duration)| {
        let own = own.get(name).and_then(|value| value.trim().parse().ok()).map(Duration::from_millis);
        own.unwrap_or(default).max(min).min(max)
    };
    let heartbeat_interval =
        ms("consumer.heartbeat.interval.ms", config.heartbeat_interval, config.heartbeat_interval_range);
    GroupSettings {
        session_timeout: ms(
            "consumer.session.timeout.ms",
            config.session_timeout,
            config.session_timeout_range,
        ),
        heartbeat_interval,
        rebalance_heartbeat_interval: heartbeat_interval.min(config.rebalance_heartbeat_interval),
        assignment_interval: ms(
            "consumer.assignment.interval.ms",
            config.assignment_interval,
            config.assignment_interval_range,
        ),
        members_max: config.members_max,
        assignors: config.assignors.iter().filter_map(|name| Assignor::of_name(name)).collect(),
    }
}
