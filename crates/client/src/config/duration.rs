//! ISO 8601 durations as Java writes them: `P2DT3H4M5.5S`.

use std::time::Duration;

/// Parses an ISO 8601 duration; days have 24 hours.
pub(super) fn parse(text: &str) -> Option<Duration> {
    let rest = text.strip_prefix(['P', 'p'])?;
    let (days, time) = match rest.split_once(['T', 't']) {
        Some((days, time)) if !time.is_empty() => (days, time),
        Some(_) => return None,
        None => (rest, ""),
    };
    if days.is_empty() && time.is_empty() {
        return None;
    }
    let mut seconds = part(days, &[('D', 86_400.0)])?;
    seconds += part(time, &[('H', 3_600.0), ('M', 60.0), ('S', 1.0)])?;
    Duration::try_from_secs_f64(seconds).ok()
}

/// Numbers, each before its unit, in the order of `units`.
fn part(mut text: &str, units: &[(char, f64)]) -> Option<f64> {
    let mut units = units.iter();
    let mut sum = 0.0;
    while !text.is_empty() {
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, rest) = text.split_at(end);
        let unit = rest.chars().next()?.to_ascii_uppercase();
        let (_, seconds) = units.find(|(name, _)| *name == unit)?;
        // Only seconds have fractions.
        if number.contains('.') && unit != 'S' {
            return None;
        }
        sum += number.parse::<f64>().ok()? * seconds;
        text = &rest[1..];
    }
    Some(sum)
}

/// The same duration in seconds.
pub(super) fn write(duration: Duration) -> String {
    format!("PT{}S", duration.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_java_reads_them() {
        for (text, seconds) in [
            ("P1D", 86_400.0),
            ("PT36H", 129_600.0),
            ("P2DT3H4M5.5S", 183_845.5),
            ("pt15m", 900.0),
            ("PT0S", 0.0),
        ] {
            let duration = parse(text).expect(text);
            assert_eq!(duration, Duration::from_secs_f64(seconds), "{text}");
            assert_eq!(parse(&write(duration)), Some(duration), "{text}");
        }
        for text in ["", "P", "PT", "1D", "P1H", "PT1D", "PT5M1H", "P1.5D", "PT-5S", "PT5", "P1DT"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
