//! The settings of leaders of share partitions: `group.share.*` of records, locks and sessions.

use std::time::Duration;

use super::number;

/// Settings of leaders of share partitions (KIP-932). A group's own settings count within their ranges.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SharePartitionConfig {
    /// `group.share.delivery.count.limit`: a record that was delivered so often is archived. 5 by default.
    pub delivery_count_limit: u32,
    /// `group.share.min.delivery.count.limit` and `group.share.max.delivery.count.limit`. 2 and 10 by default.
    pub delivery_count_limit_range: (u32, u32),
    /// `group.share.record.lock.duration.ms`: a record that is not acknowledged in this time is available again. 30 seconds
    /// by default.
    pub lock_duration: Duration,
    /// `group.share.min.record.lock.duration.ms` and `group.share.max.record.lock.duration.ms`. 15 and 60 seconds by default.
    pub lock_duration_range: (Duration, Duration),
    /// `group.share.partition.max.record.locks`: the records of a partition that a group may have in flight. 2,000 by
    /// default.
    pub locks_max: u32,
    /// `group.share.min.partition.max.record.locks` and `group.share.max.partition.max.record.locks`. 100 and 4,000 by
    /// default.
    pub locks_max_range: (u32, u32),
    /// `group.share.max.share.sessions` of a broker. 2,000 by default.
    pub sessions_max: usize,
    /// If `true`, groups without `share.auto.offset.reset` begin at the first record. Kafka has no such setting, and its groups
    /// begin at the end.
    pub begins_at_start: bool,
    /// If `true`, groups without `share.isolation.level` read committed records only. Kafka has no such setting, and its groups read
    /// all.
    pub reads_committed: bool,
    /// If `true`, members get a part of a batch where a limit of records is within it. Kafka has no such setting: its members get
    /// whole batches, unless they ask for a limit of records (KIP-1206).
    pub splits_batches: bool,
}

impl Default for SharePartitionConfig {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            delivery_count_limit: 5,
            delivery_count_limit_range: (2, 10),
            lock_duration: seconds(30),
            lock_duration_range: (seconds(15), seconds(60)),
            locks_max: 2000,
            locks_max_range: (100, 4000),
            sessions_max: 2000,
            begins_at_start: false,
            reads_committed: false,
            splits_batches: false,
        }
    }
}

impl SharePartitionConfig {
    /// Applies a property. Returns `false` if none has this name.
    pub(super) fn apply(&mut self, name: &str, value: &str) -> Result<bool, String> {
        let count = |min: i64, max: i64| number(name, value, min, max).map(|count| count as u32);
        let ms = |min: i64, max: i64| {
            number(name, value, min, max).map(|ms| Duration::from_millis(ms.unsigned_abs()))
        };
        match name {
            "group.share.delivery.count.limit" => self.delivery_count_limit = count(2, 10)?,
            "group.share.min.delivery.count.limit" => self.delivery_count_limit_range.0 = count(2, 5)?,
            "group.share.max.delivery.count.limit" => self.delivery_count_limit_range.1 = count(5, 25)?,
            "group.share.record.lock.duration.ms" => self.lock_duration = ms(1000, 3_600_000)?,
            "group.share.min.record.lock.duration.ms" => self.lock_duration_range.0 = ms(1000, 30_000)?,
            "group.share.max.record.lock.duration.ms" => {
                self.lock_duration_range.1 = ms(30_000, 3_600_000)?;
            }
            "group.share.partition.max.record.locks" => self.locks_max = count(100, 10_000)?,
            "group.share.min.partition.max.record.locks" => self.locks_max_range.0 = count(100, 2000)?,
            "group.share.max.partition.max.record.locks" => self.locks_max_range.1 = count(2000, 10_000)?,
            "group.share.max.share.sessions" => {
                self.sessions_max = number(name, value, 1, i64::from(i32::MAX))? as usize;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// Checks `share.auto.offset.reset`.
pub(crate) fn check_reset(value: &str) -> Result<(), String> {
    let is_duration =
        || value.strip_prefix("by_duration:").is_some_and(|duration| duration_of(duration).is_some());
    if matches!(value, "latest" | "earliest") || is_duration() {
        return Ok(());
    }
    Err(format!(
        "share.auto.offset.reset=`{value}`: use earliest, latest or by_duration:<duration>, as in by_duration:PT1H30M"
    ))
}

/// A duration of ISO 8601 with days, hours, minutes and seconds.
pub(crate) fn duration_of(text: &str) -> Option<Duration> {
    let rest = text.strip_prefix(['P', 'p'])?;
    let (days, time) = rest.split_once(['T', 't']).map_or((rest, None), |(days, time)| (days, Some(time)));
    if days.is_empty() && time.is_none() || time == Some("") {
        return None;
    }
    let mut total = Duration::ZERO;
    for (part, units) in
        [(days, &[('D', 86_400)][..]), (time.unwrap_or(""), &[('H', 3600), ('M', 60), ('S', 1)])]
    {
        let (mut part, mut units) = (part, units);
        while !part.is_empty() {
            let end = part.find(|c: char| c.is_ascii_alphabetic())?;
            let unit = part[end..].chars().next()?.to_ascii_uppercase();
            let at = units.iter().position(|(name, _)| *name == unit)?;
            let amount: f64 = part[..end].parse().ok()?;
            let is_whole = part[..end].bytes().all(|byte| byte.is_ascii_digit());
            if !is_whole && unit != 'S' {
                return None;
            }
            total = total.checked_add(Duration::try_from_secs_f64(amount * f64::from(units[at].1)).ok()?)?;
            (part, units) = (&part[end + 1..], &units[at + 1..]);
        }
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_those_of_iso_8601() {
        let seconds = |text| duration_of(text).map(|duration| duration.as_secs_f64());
        assert_eq!(seconds("PT1H30M"), Some(5400.0));
        assert_eq!(seconds("P2DT3S"), Some(172_803.0));
        assert_eq!(seconds("PT0.5S"), Some(0.5));
        for bad in ["", "P", "PT", "1H", "PT1M1H", "PT-1H", "PT1X", "P1H", "PTH", "PT1.5H"] {
            assert_eq!(duration_of(bad), None, "{bad}");
        }
        assert!(check_reset("by_duration:PT1H").is_ok() && check_reset("none").is_err());
    }
}
