//! What a processor says of itself.

use std::fmt::Write;
use std::time::Duration;

use ottla_client::TopicPartition;
use tokio::time::Instant;

use crate::exchange::Exchange;

/// A look at a processor.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Metrics {
    /// Records whose handler succeeded.
    pub handled: u64,
    /// Failures of handlers.
    pub failures: u64,
    /// Failures after which the record was to be tried again.
    pub retries: u64,
    /// Records written to the dead-letter topic.
    pub dead_letters: u64,
    /// Records given up and skipped.
    pub skipped: u64,
    /// Results that came when the partition was already somebody else's, and were dropped.
    pub late: u64,
    /// Records that wait for a worker.
    pub queued: usize,
    /// How long a record takes, of late.
    pub record_time: Duration,
    /// Whether the circuit breaker lets work through.
    pub breaker_closed: bool,
    /// How often it has opened.
    pub breaker_opened: u64,
    /// Each partition.
    pub partitions: Vec<PartitionMetrics>,
}

/// A partition of [`Metrics`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PartitionMetrics {
    /// Which one.
    pub at: TopicPartition,
    /// What this process has committed last.
    pub committed: Option<i64>,
    /// Everything before it is done.
    pub finished: Option<i64>,
    /// The offset that keeps the commit where it is, and for how long it has: what grows here is stuck.
    pub blocking: Option<(i64, Duration)>,
    /// Records under way.
    pub in_flight: usize,
    /// The memory that they take.
    pub in_flight_bytes: usize,
    /// Whether it is paused because it has as much under way as it may.
    pub paused: bool,
}

impl Metrics {
    pub(crate) fn of(exchange: &Exchange) -> Self {
        let now = Instant::now();
        let mut inner = exchange.lock();
        let known: Vec<_> = inner.partitions.iter().map(|(at, known)| (at.clone(), known.clone())).collect();
        let partition = |(at, known): (TopicPartition, crate::exchange::Known)| {
            let standing = known.of.and_then(|of| inner.core.standing(of));
            let blocking = standing.and_then(|standing| standing.blocking);
            PartitionMetrics {
                at,
                committed: known.committed,
                finished: standing.map(|standing| standing.committable.offset),
                blocking: blocking.map(|(offset, since)| (offset, now.saturating_duration_since(since))),
                in_flight: standing.map_or(0, |standing| standing.in_flight.records),
                in_flight_bytes: standing.map_or(0, |standing| standing.in_flight.bytes),
                paused: known.paused,
            }
        };
        let partitions = known.into_iter().map(partition).collect();
        let counts = inner.core.counts;
        Self {
            handled: counts.handled,
            failures: counts.failures,
            retries: counts.retries,
            dead_letters: inner.dead_letters,
            skipped: inner.skipped,
            late: counts.late,
            queued: inner.core.lanes().queued_records(),
            record_time: inner.core.record_time(),
            breaker_closed: inner.core.breaker().is_closed(),
            breaker_opened: inner.core.breaker().opened(),
            partitions,
        }
    }

    /// The same in Prometheus' text format: to be appended to what an exporter answers.
    pub fn prometheus_text(&self) -> String {
        let mut text = String::new();
        let totals = [
            ("handled_total", "counter", "Records whose handler succeeded.", self.handled),
            ("failures_total", "counter", "Failures of handlers.", self.failures),
            (
                "retries_total",
                "counter",
                "Failures after which the record was to be tried again.",
                self.retries,
            ),
            ("dead_letters_total", "counter", "Records written to the dead-letter topic.", self.dead_letters),
            ("skipped_total", "counter", "Records given up and skipped.", self.skipped),
            ("late_total", "counter", "Results dropped, their partition being somebody else's.", self.late),
            ("queued_records", "gauge", "Records that wait for a worker.", self.queued as u64),
            (
                "breaker_open",
                "gauge",
                "Whether the circuit breaker is open.",
                u64::from(!self.breaker_closed),
            ),
        ];
        for (name, kind, help, value) in totals {
            let name = format!("ottla_processor_{name}");
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}");
        }
        type Value = fn(&PartitionMetrics) -> Option<f64>;
        let gauges: [(&str, &str, Value); 5] = [
            ("committed_offset", "What was committed last.", |it| it.committed.map(|offset| offset as f64)),
            ("finished_offset", "Everything before it is done.", |it| {
                it.finished.map(|offset| offset as f64)
            }),
            ("blocking_offset", "What keeps the commit where it is.", |it| {
                it.blocking.map(|(offset, _)| offset as f64)
            }),
            ("blocking_seconds", "For how long it has.", |it| it.blocking.map(|(_, age)| age.as_secs_f64())),
            ("in_flight_records", "Records under way.", |it| Some(it.in_flight as f64)),
        ];
        for (name, help, value) in gauges {
            let name = format!("ottla_processor_{name}");
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge");
            for partition in &self.partitions {
                if let Some(value) = value(partition) {
                    let (topic, index) = (&partition.at.topic, partition.at.partition);
                    let _ = writeln!(text, "{name}{{topic=\"{topic}\",partition=\"{index}\"}} {value}");
                }
            }
        }
        text
    }
}
