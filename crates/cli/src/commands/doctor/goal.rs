//! Settings for a goal, with their costs.

use std::time::Duration;

use ottla_client::Config;
use serde_json::{Value, json};

use super::Measurements;
use super::report::millis;
use crate::failure::Failure;

/// The goal to optimise for.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
pub(super) enum Goal {
    /// Low latency of each record
    Latency,
    /// High throughput
    Throughput,
}

/// A property with its value and the reason for it.
#[derive(Debug)]
pub(super) struct Suggestion {
    property: &'static str,
    value: String,
    why: String,
    /// `true` if the configuration already has the value.
    set: bool,
}

impl Suggestion {
    pub(super) fn line(&self) -> String {
        let set = if self.set { " (already set)" } else { "" };
        format!("  -X {:<44} # {}{set}\n", format!("{}={}", self.property, self.value), self.why)
    }

    pub(super) fn to_json(&self) -> Value {
        json!({ "property": self.property, "value": self.value, "why": self.why, "as_it_is": self.set })
    }
}

/// Assumed bandwidth of the link. Its product with the round trip is the amount of data in flight that fills it.
const LINK_BYTES_PER_SECOND: f64 = 125_000_000.0;

const BUFFER_BYTES_MIN: u64 = 64 << 20;

const BUFFER_BYTES_MAX: u64 = 1 << 30;

pub(super) fn suggestions(
    goal: Goal,
    measurements: &Measurements,
    config: &Config,
) -> Result<Vec<Suggestion>, Failure> {
    let list = match goal {
        Goal::Latency => latency(measurements),
        Goal::Throughput => throughput(measurements),
    };
    let suggest = |(property, value, why): (&'static str, String, String)| {
        // The client must accept every suggested value.
        config.clone().set(property, &value)?;
        let set = config.get(property)? == value;
        Ok(Suggestion { property, value, why, set })
    };
    list.into_iter().map(suggest).collect()
}

type Setting = (&'static str, String, String);

fn latency(measurements: &Measurements) -> Vec<Setting> {
    let trip = measurements.acknowledgement.or(measurements.round_trip).unwrap_or_default();
    vec![
        (
            "acks",
            "all".into(),
            format!(
                "an acknowledgement takes {}; acks=1 saves only the replication time, and loses records when their leader fails",
                millis(trip)
            ),
        ),
        ("compression.codec", "none".into(), "compression does not help small batches".into()),
        ("fetch.min.bytes", "1".into(), "the broker answers with the first record".into()),
        (
            "linger.ms",
            "0".into(),
            "for librdkafka, whose default is 5 ms; Ottla does not wait while it is quiet, also when it is unset".into(),
        ),
        (
            "socket.nagle.disable",
            "true".into(),
            "the default of Ottla and of librdkafka 2.16; with false, as in librdkafka 2.0, 40 ms may be added".into(),
        ),
    ]
}

fn throughput(measurements: &Measurements) -> Vec<Setting> {
    let trip = measurements.acknowledgement.or(measurements.round_trip).unwrap_or(Duration::from_millis(1));
    let on_its_way = (LINK_BYTES_PER_SECOND * trip.as_secs_f64()) as u64;
    // Twice the data in flight, so that the next batches are ready when a response arrives.
    let buffer = (2 * on_its_way).clamp(BUFFER_BYTES_MIN, BUFFER_BYTES_MAX);
    vec![
        (
            "compression.codec",
            "lz4".into(),
            "fewer bytes at a low CPU cost; zstd if the network is the bottleneck".into(),
        ),
        (
            "buffer.memory",
            buffer.to_string(),
            format!("twice the data that fills 1 Gbit/s with acknowledgements of {}", millis(trip)),
        ),
        (
            "batch.size",
            "1000000".into(),
            "batches grow while requests are in flight: leave linger.ms unset".into(),
        ),
        (
            "fetch.min.bytes",
            "100000".into(),
            "fewer and larger responses; a record waits at most fetch.wait.max.ms".into(),
        ),
        (
            "max.partition.fetch.bytes",
            "10485760".into(),
            "a lagging consumer catches up in fewer round trips".into(),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_client_accepts_the_suggestions() {
        let measurements =
            Measurements { acknowledgement: Some(Duration::from_millis(800)), ..Measurements::default() };
        for goal in [Goal::Latency, Goal::Throughput] {
            let suggestions = suggestions(goal, &measurements, &Config::default()).expect("known properties");
            assert!(suggestions.iter().any(|suggestion| suggestion.set), "{goal:?}: some defaults remain");
        }
        let long_way =
            suggestions(Goal::Throughput, &measurements, &Config::default()).expect("known properties");
        let buffer = long_way.iter().find(|suggestion| suggestion.property == "buffer.memory");
        assert_eq!(buffer.map(|buffer| buffer.value.as_str()), Some("200000000"));
    }
}
