//! The settings of consumer groups of the new protocol: `group.consumer.*`.

use std::time::Duration;

use super::number;

/// Settings of the groups of the new protocol (KIP-848).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ConsumerGroupConfig {
    /// `group.coordinator.rebalance.protocols` has `consumer`: requests of the new protocol are served. Enabled by default.
    pub enabled: bool,
    /// `group.consumer.session.timeout.ms`. 45 seconds by default.
    pub session_timeout: Duration,
    /// `group.consumer.min.session.timeout.ms` and `group.consumer.max.session.timeout.ms`. 45 and 60 seconds by default.
    pub session_timeout_range: (Duration, Duration),
    /// `group.consumer.heartbeat.interval.ms`. 5 seconds by default.
    pub heartbeat_interval: Duration,
    /// `group.consumer.min.heartbeat.interval.ms` and `group.consumer.max.heartbeat.interval.ms`. 5 and 15 seconds by default.
    pub heartbeat_interval_range: (Duration, Duration),
    /// `group.consumer.rebalance.heartbeat.interval.ms`: the heartbeat interval, if it is less, while a group changes: of members
    /// that are not in the last assignment yet, and of all until each can have learned of it. So a rebalance ends in seconds. 1
    /// second by default.
    pub rebalance_heartbeat_interval: Duration,
    /// `group.consumer.assignment.interval.ms`: the least time between two target assignments of a group. 1 second by
    /// default.
    pub assignment_interval: Duration,
    /// `group.consumer.min.assignment.interval.ms` and `group.consumer.max.assignment.interval.ms`. 0 and 15 seconds by
    /// default.
    pub assignment_interval_range: (Duration, Duration),
    /// `group.consumer.max.size`: members of one group. 10,000 by default.
    pub members_max: usize,
    /// `group.consumer.assignors`: the first one is the default. `uniform` and `range` by default.
    pub assignors: Vec<String>,
    /// `group.consumer.migration.policy`: the online conversions of groups between the protocols. Both by default.
    pub migration_policy: MigrationPolicy,
}

/// The online conversions of groups between the classic protocol and the new one that a broker permits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum MigrationPolicy {
    /// None.
    Disabled,
    /// To the classic protocol, when the last member of the new one has gone.
    Downgrade,
    /// To the new protocol, when its first member joins.
    Upgrade,
    /// Both.
    Bidirectional,
}

impl MigrationPolicy {
    /// The policy of that name, in any case.
    fn of_name(name: &str) -> Option<Self> {
        let all = [
            ("disabled", Self::Disabled),
            ("downgrade", Self::Downgrade),
            ("upgrade", Self::Upgrade),
            ("bidirectional", Self::Bidirectional),
        ];
        all.into_iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, policy)| policy)
    }

    pub(crate) const fn permits_upgrade(self) -> bool {
        matches!(self, Self::Upgrade | Self::Bidirectional)
    }

    pub(crate) const fn permits_downgrade(self) -> bool {
        matches!(self, Self::Downgrade | Self::Bidirectional)
    }

    /// Returns whether members of the classic protocol may join a group of the new one, in either direction of a migration.
    pub(crate) const fn permits_classic_members(self) -> bool {
        !matches!(self, Self::Disabled)
    }
}

impl Default for ConsumerGroupConfig {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            enabled: true,
            session_timeout: seconds(45),
            session_timeout_range: (seconds(45), seconds(60)),
            heartbeat_interval: seconds(5),
            heartbeat_interval_range: (seconds(5), seconds(15)),
            rebalance_heartbeat_interval: seconds(1),
            assignment_interval: seconds(1),
            assignment_interval_range: (Duration::ZERO, seconds(15)),
            members_max: 10_000,
            assignors: vec!["uniform".into(), "range".into()],
            migration_policy: MigrationPolicy::Bidirectional,
        }
    }
}

impl ConsumerGroupConfig {
    /// Applies a property. Returns `false` if none has this name.
    pub(super) fn apply(&mut self, name: &str, value: &str) -> Result<bool, String> {
        let ms = |min: i64| {
            number(name, value, min, i64::from(i32::MAX)).map(|ms| Duration::from_millis(ms as u64))
        };
        match name {
            "group.coordinator.rebalance.protocols" => self.enabled = has_consumer_protocol(name, value)?,
            "group.consumer.session.timeout.ms" => self.session_timeout = ms(1)?,
            "group.consumer.min.session.timeout.ms" => self.session_timeout_range.0 = ms(1)?,
            "group.consumer.max.session.timeout.ms" => self.session_timeout_range.1 = ms(1)?,
            "group.consumer.heartbeat.interval.ms" => self.heartbeat_interval = ms(1)?,
            "group.consumer.min.heartbeat.interval.ms" => self.heartbeat_interval_range.0 = ms(1)?,
            "group.consumer.max.heartbeat.interval.ms" => self.heartbeat_interval_range.1 = ms(1)?,
            "group.consumer.rebalance.heartbeat.interval.ms" => self.rebalance_heartbeat_interval = ms(1)?,
            "group.consumer.assignment.interval.ms" => self.assignment_interval = ms(0)?,
            "group.consumer.min.assignment.interval.ms" => self.assignment_interval_range.0 = ms(0)?,
            "group.consumer.max.assignment.interval.ms" => self.assignment_interval_range.1 = ms(0)?,
            // Kafka's default is the largest number: groups have the members that memory.max.bytes has room for.
            "group.consumer.max.size" => {
                self.members_max = number(name, value, 1, i64::from(i32::MAX))? as usize;
            }
            "group.consumer.assignors" => {
                let names: Vec<String> = value.split(',').map(|name| name.trim().to_owned()).collect();
                if let Some(bad) = names.iter().find(|name| !matches!(name.as_str(), "uniform" | "range")) {
                    return Err(format!(
                        "{name}=`{value}`: no assignor is called `{bad}`: use uniform, range"
                    ));
                }
                if names.iter().enumerate().any(|(at, one)| names[..at].contains(one)) {
                    return Err(format!("{name}=`{value}`: an assignor is named twice"));
                }
                self.assignors = names;
            }
            "group.consumer.migration.policy" => {
                self.migration_policy = MigrationPolicy::of_name(value.trim()).ok_or_else(|| {
                    format!("{name}=`{value}`: use disabled, downgrade, upgrade or bidirectional")
                })?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// Returns whether a list of protocols has the new one. As Kafka's, it must have the classic protocol, and each protocol once.
fn has_consumer_protocol(name: &str, value: &str) -> Result<bool, String> {
    const CLASSIC: &str = "classic";
    const CONSUMER: &str = "consumer";
    let wrong = |reason: &str| Err(format!("{name}=`{value}`: {reason}"));
    let mut protocols: Vec<&str> = value.split(',').map(str::trim).filter(|item| !item.is_empty()).collect();
    let is_known = |item: &str| matches!(item, CLASSIC | CONSUMER | "share" | "streams");
    if let Some(bad) = protocols.iter().find(|item| !is_known(item)) {
        return wrong(&format!("no protocol is called `{bad}`: use classic, consumer, share, streams"));
    }
    if !protocols.contains(&CLASSIC) {
        return wrong("the protocol classic cannot be disabled");
    }
    let count = protocols.len();
    protocols.sort_unstable();
    protocols.dedup();
    if protocols.len() < count {
        return wrong("a protocol is named twice");
    }
    Ok(protocols.contains(&CONSUMER))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A list that named an assignor twice was taken.
    #[test]
    fn assignors_are_named_once() {
        let set = |value: &str| ConsumerGroupConfig::default().apply("group.consumer.assignors", value);
        assert_eq!(set("range, uniform"), Ok(true));
        assert_eq!(set("range"), Ok(true));
        for (value, reason) in [("uniform,range,uniform", "twice"), ("", "no assignor"), ("sticky", "sticky")]
        {
            let refused = set(value).expect_err("it is refused");
            assert!(refused.contains(reason), "{refused}");
        }
    }
}
