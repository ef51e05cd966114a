//! Settings for what matters, with what they cost.

use std::time::Duration;

use ottla_client::Config;
use serde_json::{Value, json};

use super::Seen;
use super::report::millis;
use crate::failure::Failure;

/// What matters.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
pub(super) enum Goal {
    /// Each record as soon as possible
    Latency,
    /// As many records as possible
    Throughput,
}

/// A property, and why.
#[derive(Debug)]
pub(super) struct Suggestion {
    property: &'static str,
    value: String,
    why: String,
    /// Whether the configuration has it already.
    set: bool,
}

impl Suggestion {
    pub(super) fn line(&self) -> String {
        let set = if self.set { " (as it is)" } else { "" };
        format!("  -X {:<44} # {}{set}\n", format!("{}={}", self.property, self.value), self.why)
    }

    pub(super) fn to_json(&self) -> Value {
        json!({ "property": self.property, "value": self.value, "why": self.why, "as_it_is": self.set })
    }
}

/// What a link of so many bytes per second carries during a round trip is what must be on its way to fill it.
const LINK_BYTES_PER_SECOND: f64 = 125_000_000.0;

const BUFFER_BYTES_MIN: u64 = 64 << 20;

const BUFFER_BYTES_MAX: u64 = 1 << 30;

pub(super) fn suggestions(goal: Goal, seen: &Seen, config: &Config) -> Result<Vec<Suggestion>, Failure> {
    let list = match goal {
        Goal::Latency => latency(seen),
        Goal::Throughput => throughput(seen),
    };
    let suggest = |(property, value, why): (&'static str, String, String)| {
        // What we suggest, the client must take.
        config.clone().set(property, &value)?;
        let set = config.get(property)? == value;
        Ok(Suggestion { property, value, why, set })
    };
    list.into_iter().map(suggest).collect()
}

type Setting = (&'static str, String, String);

fn latency(seen: &Seen) -> Vec<Setting> {
    let trip = seen.acknowledgement.or(seen.round_trip).unwrap_or_default();
    vec![
        (
            "acks",
            "all".into(),
            format!(
                "an acknowledgement takes {}; acks=1 saves only what replicas take, and loses records with their leader",
                millis(trip)
            ),
        ),
        ("compression.codec", "none".into(), "small batches gain nothing by it".into()),
        ("fetch.min.bytes", "1".into(), "the broker answers with the first record".into()),
        (
            "socket.nagle.disable",
            "true".into(),
            "always so in Ottla, to be set with librdkafka: else 40 ms may come on top".into(),
        ),
    ]
}

fn throughput(seen: &Seen) -> Vec<Setting> {
    let trip = seen.acknowledgement.or(seen.round_trip).unwrap_or(Duration::from_millis(1));
    let on_its_way = (LINK_BYTES_PER_SECOND * trip.as_secs_f64()) as u64;
    // Twice what is on its way, so that the next is ready when an answer comes.
    let buffer = (2 * on_its_way).clamp(BUFFER_BYTES_MIN, BUFFER_BYTES_MAX);
    vec![
        (
            "compression.codec",
            "lz4".into(),
            "fewer bytes for little time; zstd where the network is what limits".into(),
        ),
        (
            "buffer.memory",
            buffer.to_string(),
            format!("what fills 1 Gbit/s for acknowledgements of {}, and twice that", millis(trip)),
        ),
        (
            "batch.size",
            "1000000".into(),
            "batches grow by themselves while requests are under way: linger.ms stays unset".into(),
        ),
        (
            "fetch.min.bytes",
            "100000".into(),
            "fewer, larger answers; a record waits for fetch.wait.max.ms at most".into(),
        ),
        (
            "max.partition.fetch.bytes",
            "10485760".into(),
            "a reader that is behind catches up in fewer round trips".into(),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_client_takes_what_is_suggested() {
        let seen = Seen { acknowledgement: Some(Duration::from_millis(800)), ..Seen::default() };
        for goal in [Goal::Latency, Goal::Throughput] {
            let suggestions = suggestions(goal, &seen, &Config::default()).expect("known properties");
            assert!(
                suggestions.iter().any(|suggestion| suggestion.set),
                "{goal:?}: the defaults are not all wrong"
            );
        }
        let long_way = suggestions(Goal::Throughput, &seen, &Config::default()).expect("known properties");
        let buffer = long_way.iter().find(|suggestion| suggestion.property == "buffer.memory");
        assert_eq!(buffer.map(|buffer| buffer.value.as_str()), Some("200000000"));
    }
}
