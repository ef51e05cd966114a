//! The limits that a broker sets for the settings of groups.

use std::time::Duration;

use super::BrokerConfig;
use super::live::Values;
use super::settings::{Scope, find};

/// The setting of streams groups that has an upper limit only.
const STANDBY_REPLICAS: &str = "streams.num.standby.replicas";

/// Checks the settings of a group against the broker's `group.*.min.*` and `group.*.max.*`, and its session timeouts against its heartbeat
/// intervals. Values that were stored before the limits changed count as the limit.
pub(super) fn check_limits(values: &Values, broker: &BrokerConfig) -> Result<(), String> {
    for (name, value) in values {
        let (Some((min, max)), Ok(number)) = (limits(name, broker), value.trim().parse::<i64>()) else {
            continue;
        };
        if !(min..=max).contains(&number) {
            let (kind, rest) = name.split_once('.').unwrap_or((name, ""));
            let properties = if name == STANDBY_REPLICAS {
                "group.streams.max.standby.replicas".to_owned()
            } else {
                format!("group.{kind}.min.{rest}, group.{kind}.max.{rest}")
            };
            return Err(format!("{name}=`{value}`: this broker allows {min} to {max} ({properties})"));
        }
    }
    let BrokerConfig { consumer_groups: consumers, share_groups: shares, .. } = broker;
    check_session(values, "consumer", consumers.session_timeout, consumers.heartbeat_interval)?;
    check_session(values, "share", shares.session_timeout, shares.heartbeat_interval)?;
    let of_streams = |rest: &str| {
        let ms = streams_property(broker, rest).and_then(|ms| u64::try_from(ms).ok());
        Duration::from_millis(ms.unwrap_or_default())
    };
    check_session(values, "streams", of_streams("session.timeout.ms"), of_streams("heartbeat.interval.ms"))
}

/// Checks that the session timeout exceeds the heartbeat interval, as Kafka's `GroupConfig` does. The broker's values are those that the
/// group does not have.
fn check_session(
    values: &Values,
    kind: &str,
    session_timeout: Duration,
    heartbeat_interval: Duration,
) -> Result<(), String> {
    let (session_name, heartbeat_name) =
        (format!("{kind}.session.timeout.ms"), format!("{kind}.heartbeat.interval.ms"));
    let own = |name: &str| values.get(name)?.trim().parse::<u64>().ok().map(Duration::from_millis);
    let (own_session, own_heartbeat) = (own(&session_name), own(&heartbeat_name));
    if own_session.is_none() && own_heartbeat.is_none() {
        return Ok(());
    }
    check_exceeds(
        (session_name.as_str(), own_session.unwrap_or(session_timeout)),
        (heartbeat_name.as_str(), own_heartbeat.unwrap_or(heartbeat_interval)),
    )
}

/// Checks one session timeout against the heartbeat interval; both have their names.
fn check_exceeds(session: (&str, Duration), heartbeat: (&str, Duration)) -> Result<(), String> {
    if session.1 > heartbeat.1 {
        return Ok(());
    }
    let text = |(name, time): (&str, Duration)| format!("{name}=`{}`", time.as_millis());
    Err(format!("{}: it must be greater than {}", text(session), text(heartbeat)))
}

impl BrokerConfig {
    /// Checks that the session timeouts of groups exceed their heartbeat intervals, as Kafka does at the start.
    pub(crate) fn check_group_sessions(&self) -> Result<(), String> {
        let Self { consumer_groups: consumers, share_groups: shares, .. } = self;
        check_exceeds(
            ("group.consumer.session.timeout.ms", consumers.session_timeout),
            ("group.consumer.heartbeat.interval.ms", consumers.heartbeat_interval),
        )?;
        check_exceeds(
            ("group.share.session.timeout.ms", shares.session_timeout),
            ("group.share.heartbeat.interval.ms", shares.heartbeat_interval),
        )
    }
}

/// A number that the broker's property `group.streams.*` has. The broker stores settings of streams groups, which have no other effect.
fn streams_property(broker: &BrokerConfig, rest: &str) -> Option<i64> {
    let name = format!("group.streams.{rest}");
    let given = broker.given.get(&name).map(String::as_str);
    given.or_else(|| find(Scope::Broker, &name)?.default)?.trim().parse().ok()
}

/// The least and the largest value of a setting.
fn limits(name: &str, broker: &BrokerConfig) -> Option<(i64, i64)> {
    let BrokerConfig { consumer_groups: consumers, share_groups: shares, share_partitions: leaders, .. } =
        broker;
    let ms = |(min, max): (Duration, Duration)| {
        let ms = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        (ms(min), ms(max))
    };
    let count = |(min, max): (u32, u32)| (i64::from(min), i64::from(max));
    let of_streams = |rest: &str| {
        let limit = |end: &str| streams_property(broker, &format!("{end}.{rest}"));
        Some((limit("min")?, limit("max")?))
    };
    Some(match name {
        "consumer.session.timeout.ms" => ms(consumers.session_timeout_range),
        "consumer.heartbeat.interval.ms" => ms(consumers.heartbeat_interval_range),
        "consumer.assignment.interval.ms" => ms(consumers.assignment_interval_range),
        "share.session.timeout.ms" => ms(shares.session_timeout_range),
        "share.heartbeat.interval.ms" => ms(shares.heartbeat_interval_range),
        "share.assignment.interval.ms" => ms(shares.assignment_interval_range),
        "share.record.lock.duration.ms" => ms(leaders.lock_duration_range),
        "share.delivery.count.limit" => count(leaders.delivery_count_limit_range),
        "share.partition.max.record.locks" => count(leaders.locks_max_range),
        "streams.session.timeout.ms" => of_streams("session.timeout.ms")?,
        "streams.heartbeat.interval.ms" => of_streams("heartbeat.interval.ms")?,
        "streams.assignment.interval.ms" => of_streams("assignment.interval.ms")?,
        STANDBY_REPLICAS => (0, streams_property(broker, "max.standby.replicas")?),
        _ => return None,
    })
}
