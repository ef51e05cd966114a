//! Times on the command line: RFC 3339, a date, or `@` and milliseconds since 1970.

use std::time::{SystemTime, UNIX_EPOCH};

const SECOND_MS: i64 = 1000;
const MINUTE_MS: i64 = 60 * SECOND_MS;
const HOUR_MS: i64 = 60 * MINUTE_MS;
const DAY_MS: i64 = 24 * HOUR_MS;

/// The current time in milliseconds since 1970.
pub(crate) fn now_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64)
}

/// Parses `2026-01-31T12:00:00Z`, `2026-01-31 12:00:00.250+02:00`, `2026-01-31` (midnight UTC) or `@1769860800000`.
/// A time before 1970 is 0: no record is that old, and ListOffsets has other meanings for negative timestamps.
pub(crate) fn parse_ms(text: &str) -> Result<i64, String> {
    let bad = || {
        format!(
            "`{text}` is not a time: use a time like 2026-01-31T12:00:00Z, or @ and milliseconds since 1970"
        )
    };
    if let Some(ms) = text.strip_prefix('@') {
        return ms.parse().ok().filter(|ms| *ms >= 0).ok_or_else(bad);
    }
    parse_date_time(text).map(|ms| ms.max(0)).ok_or_else(bad)
}

/// The time in UTC: `2026-01-31T12:00:00.250Z`.
pub(crate) fn format_ms(ms: i64) -> String {
    let (days, of_day) = (ms.div_euclid(DAY_MS), ms.rem_euclid(DAY_MS));
    let (year, month, day) = date_of_days(days);
    let (hour, minute) = (of_day / HOUR_MS, of_day % HOUR_MS / MINUTE_MS);
    let (second, ms) = (of_day % MINUTE_MS / SECOND_MS, of_day % SECOND_MS);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
}

/// `true` if a text looks like a time, so that a mistake in it is reported as one.
pub(crate) fn looks_like_time(text: &str) -> bool {
    text.starts_with('@') || (text.contains('-') && !text.starts_with('-')) || text.contains(':')
}

fn parse_date_time(text: &str) -> Option<i64> {
    let (date, time) = match text.split_once(['T', 't', ' ']) {
        Some((date, time)) => (date, time),
        None => (text, "00:00:00Z"),
    };
    let mut parts = date.split('-');
    let (year, month, day) =
        (digits(parts.next()?, 4)?, digits(parts.next()?, 2)?, digits(parts.next()?, 2)?);
    if parts.next().is_some() || !(1..=12).contains(&month) || !(1..=days_in(year, month)).contains(&day) {
        return None;
    }
    let (time, offset_ms) = split_zone(time)?;
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let mut parts = time.split(':');
    let (hour, minute) = (digits(parts.next()?, 2)?, digits(parts.next()?, 2)?);
    let second = parts.next().map_or(Some(0), |second| digits(second, 2))?;
    if parts.next().is_some() || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    if fraction.is_empty() || !fraction.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let ms: i64 = format!("{fraction:0<3}")[..3].parse().ok()?;
    let of_day = hour * HOUR_MS + minute * MINUTE_MS + second * SECOND_MS + ms;
    Some(days_of_date(year, month, day) * DAY_MS + of_day - offset_ms)
}

/// Splits off the time zone. Without one the time is UTC.
fn split_zone(time: &str) -> Option<(&str, i64)> {
    if let Some(time) = time.strip_suffix(['Z', 'z']) {
        return Some((time, 0));
    }
    let Some(at) = time.rfind(['+', '-']) else { return Some((time, 0)) };
    let (time, zone) = time.split_at(at);
    let sign = if zone.starts_with('-') { -1 } else { 1 };
    let (hours, minutes) = zone[1..].split_once(':')?;
    let (hours, minutes) = (digits(hours, 2)?, digits(minutes, 2)?);
    (hours <= 23 && minutes <= 59).then_some((time, sign * (hours * HOUR_MS + minutes * MINUTE_MS)))
}

fn digits(text: &str, count: usize) -> Option<i64> {
    (text.len() == count && text.bytes().all(|b| b.is_ascii_digit())).then(|| text.parse().ok())?
}

fn days_in(year: i64, month: i64) -> i64 {
    let next = if month == 12 { days_of_date(year + 1, 1, 1) } else { days_of_date(year, month + 1, 1) };
    next - days_of_date(year, month, 1)
}

/// Days since 1970-01-01 in the Gregorian calendar. Years begin in March here, so that leap days come last.
fn days_of_date(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// The inverse of [`days_of_date`]: year, month and day.
fn date_of_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (era * 400 + year + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_in_every_form() {
        for (text, ms) in [
            ("1970-01-01T00:00:00Z", 0),
            ("2026-01-31T12:00:00Z", 1_769_860_800_000),
            ("2026-01-31 12:00", 1_769_860_800_000),
            ("2026-01-31T14:00:00.25+02:00", 1_769_860_800_250),
            ("2026-01-31", 1_769_817_600_000),
            ("2024-02-29T23:59:59.999Z", 1_709_251_199_999),
            ("@17", 17),
        ] {
            assert_eq!(parse_ms(text), Ok(ms), "{text}");
        }
    }

    #[test]
    fn a_formatted_time_is_read_as_the_same_time() {
        assert_eq!(format_ms(1_769_860_800_250), "2026-01-31T12:00:00.250Z");
        for ms in [0, -1000, 951_782_399_999, 951_782_400_000, 1_709_251_199_999, 4_107_542_400_000] {
            assert_eq!(parse_date_time(&format_ms(ms)), Some(ms), "{}", format_ms(ms));
        }
    }

    /// `--to-time 1969-12-31T23:59:59.999Z` was -1, which is the end of the log for ListOffsets.
    #[test]
    fn a_time_before_1970_is_the_beginning_of_1970() {
        for text in ["1969-12-31T23:59:59.999Z", "1970-01-01T00:00:00+01:00", "0001-01-01"] {
            assert_eq!(parse_ms(text), Ok(0), "{text}");
        }
    }

    #[test]
    fn invalid_times_are_rejected() {
        for text in
            ["", "@", "@-1", "2025-02-29", "2026-13-01", "2026-01-31T24:00:00Z", "2026-01-31T1:2:3Z", "now"]
        {
            assert!(parse_ms(text).is_err(), "{text}");
        }
    }
}
