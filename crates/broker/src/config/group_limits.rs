//! The limits that a broker sets for the settings of groups.

use std::time::Duration;

use super::BrokerConfig;
use super::live::Values;
use super::settings::{Scope, find};

/// The setting of streams groups that has an upper limit only.
const STANDBY_REPLICAS: &str = "streams.num.standby.replicas";

/// The settings of groups that the broker limits.
const LIMITED: [&str; 13] = [
    "consumer.heartbeat.interval.ms",
    "consumer.session.timeout.ms",
    "consumer.assignment.interval.ms",
    "share.heartbeat.interval.ms",
    "share.session.timeout.ms",
    "share.assignment.interval.ms",
    "share.record.lock.duration.ms",
    "share.delivery.count.limit",
    "share.partition.max.record.locks",
    "streams.heartbeat.interval.ms",
    "streams.session.timeout.ms",
    "streams.assignment.interval.ms",
    STANDBY_REPLICAS,
];

/// Checks the settings of a group against the broker's `group.*.min.*` and `group.*.max.*`, and its session timeouts against its heartbeat
/// intervals. Values that were stored before the limits changed count as the limit.
pub(super) fn check_limits(values: &Values, broker: &BrokerConfig) -> Result<(), String> {
    for (name, value) in values {
        let (Some((min, max)), Ok(number)) = (limits(name, broker), value.trim().parse::<i64>()) else {
            continue;
        };
        if !(min..=max).contains(&number) {
            let (bound, property) = if number < min {
                ("greater", limit_property(name, "min"))
            } else {
                ("less", limit_property(name, "max"))
            };
            // It begins with Kafka's text.
            return Err(format!(
                "{name} must be {bound} than or equal to {property}: it is `{value}`, and this broker allows {min} to {max}"
            ));
        }
    }
    let BrokerConfig { consumer_groups: consumers, share_groups: shares, .. } = broker;
    check_session(values, "consumer", consumers.session_timeout, consumers.heartbeat_interval)?;
    check_session(values, "share", shares.session_timeout, shares.heartbeat_interval)?;
    let of_streams = |rest: &str| streams_time(broker, rest);
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
    let (session_ms, heartbeat_ms) = (session.1.as_millis(), heartbeat.1.as_millis());
    // It begins with Kafka's text.
    Err(format!(
        "{} must be greater than {}: they are `{session_ms}` and `{heartbeat_ms}`",
        session.0, heartbeat.0
    ))
}

impl BrokerConfig {
    /// Checks the settings of groups against their limits and against each other, as Kafka does at the start.
    pub(crate) fn check_groups(&self) -> Result<(), String> {
        for name in LIMITED {
            let Some((value, (min, max))) = value_and_limits(name, self) else { continue };
            if !(min..=max).contains(&value) {
                let properties = properties_of_limits(name);
                return Err(format!("group.{name}=`{value}`: it must be from {min} to {max} ({properties})"));
            }
        }
        let Self { consumer_groups: consumers, share_groups: shares, share_partitions: leaders, .. } = self;
        let of_streams = |rest: &str| streams_time(self, rest);
        for (kind, session_timeout, heartbeat_interval) in [
            ("consumer", consumers.session_timeout, consumers.heartbeat_interval),
            ("share", shares.session_timeout, shares.heartbeat_interval),
            ("streams", of_streams("session.timeout.ms"), of_streams("heartbeat.interval.ms")),
        ] {
            check_exceeds(
                (&format!("group.{kind}.session.timeout.ms"), session_timeout),
                (&format!("group.{kind}.heartbeat.interval.ms"), heartbeat_interval),
            )?;
        }
        let (sessions, members) = (leaders.sessions_max, shares.members_max);
        if sessions < members {
            return Err(format!(
                "group.share.max.share.sessions=`{sessions}`: it must not be less than group.share.max.size=`{members}`"
            ));
        }
        Ok(())
    }
}

/// The properties that limit a setting of a group.
fn properties_of_limits(name: &str) -> String {
    let largest = limit_property(name, "max");
    if name == STANDBY_REPLICAS { largest } else { format!("{}, {largest}", limit_property(name, "min")) }
}

/// The property with the `min` or the `max` of a setting of a group.
fn limit_property(name: &str, end: &str) -> String {
    let (kind, rest) = name.split_once('.').unwrap_or((name, ""));
    let rest = rest.strip_prefix("num.").unwrap_or(rest);
    format!("group.{kind}.{end}.{rest}")
}

/// A number that the broker's property `group.streams.*` has. The broker stores settings of streams groups, which have no other effect.
fn streams_property(broker: &BrokerConfig, rest: &str) -> Option<i64> {
    let name = format!("group.streams.{rest}");
    let given = broker.given.get(&name).map(String::as_str);
    given.or_else(|| find(Scope::Broker, &name)?.default)?.trim().parse().ok()
}

/// The same of a time.
fn streams_time(broker: &BrokerConfig, rest: &str) -> Duration {
    let ms = streams_property(broker, rest).and_then(|ms| u64::try_from(ms).ok());
    Duration::from_millis(ms.unwrap_or_default())
}

/// The least and the largest value of a setting.
fn limits(name: &str, broker: &BrokerConfig) -> Option<(i64, i64)> {
    value_and_limits(name, broker).map(|(_, limits)| limits)
}

/// The broker's own value of a setting, and the least and the largest value.
fn value_and_limits(name: &str, broker: &BrokerConfig) -> Option<(i64, (i64, i64))> {
    let BrokerConfig { consumer_groups: consumers, share_groups: shares, share_partitions: leaders, .. } =
        broker;
    let ms = |time: Duration, (min, max): (Duration, Duration)| {
        let ms = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        (ms(time), (ms(min), ms(max)))
    };
    let count = |value: u32, (min, max): (u32, u32)| (i64::from(value), (i64::from(min), i64::from(max)));
    let of_streams = |rest: &str| {
        let limit = |end: &str| streams_property(broker, &format!("{end}.{rest}"));
        Some((streams_property(broker, rest)?, (limit("min")?, limit("max")?)))
    };
    Some(match name {
        "consumer.session.timeout.ms" => ms(consumers.session_timeout, consumers.session_timeout_range),
        "consumer.heartbeat.interval.ms" => {
            ms(consumers.heartbeat_interval, consumers.heartbeat_interval_range)
        }
        "consumer.assignment.interval.ms" => {
            ms(consumers.assignment_interval, consumers.assignment_interval_range)
        }
        "share.session.timeout.ms" => ms(shares.session_timeout, shares.session_timeout_range),
        "share.heartbeat.interval.ms" => ms(shares.heartbeat_interval, shares.heartbeat_interval_range),
        "share.assignment.interval.ms" => ms(shares.assignment_interval, shares.assignment_interval_range),
        "share.record.lock.duration.ms" => ms(leaders.lock_duration, leaders.lock_duration_range),
        "share.delivery.count.limit" => {
            count(leaders.delivery_count_limit, leaders.delivery_count_limit_range)
        }
        "share.partition.max.record.locks" => count(leaders.locks_max, leaders.locks_max_range),
        "streams.session.timeout.ms" => of_streams("session.timeout.ms")?,
        "streams.heartbeat.interval.ms" => of_streams("heartbeat.interval.ms")?,
        "streams.assignment.interval.ms" => of_streams("assignment.interval.ms")?,
        STANDBY_REPLICAS => {
            let property = |rest: &str| streams_property(broker, rest);
            (property("num.standby.replicas")?, (0, property("max.standby.replicas")?))
        }
        _ => return None,
    })
}
