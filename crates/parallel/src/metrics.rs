//! The metrics of a processor.

use std::fmt::Write;
use std::time::Duration;

use ottla_client::TopicPartition;
use tokio::time::Instant;

use crate::exchange::{Exchange, ShareMetrics};

/// A snapshot of a processor's metrics.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Metrics {
    /// Records whose handler succeeded.
    pub handled: u64,
    /// Failed handler calls.
    pub failures: u64,
    /// Failed handler calls after which a retry was scheduled.
    pub retries: u64,
    /// Records written to the dead-letter topic. In exactly-once mode, they and the skipped ones count once their transaction is
    /// committed.
    pub dead_letters: u64,
    /// Records given up and skipped.
    pub skipped: u64,
    /// Results that arrived after the partition was revoked, and were dropped.
    pub late: u64,
    /// Records that wait for a worker.
    pub queued: usize,
    /// Moving average of the handling time of a record.
    pub record_time: Duration,
    /// `true` if the circuit breaker is closed.
    pub breaker_closed: bool,
    /// Number of times that the circuit breaker has opened.
    pub breaker_opened: u64,
    /// The acknowledgements, if the records come from a share group.
    pub share: Option<ShareMetrics>,
    /// The assigned partitions; in a share group, those of which records were delivered.
    pub partitions: Vec<PartitionMetrics>,
}

/// A partition of [`Metrics`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PartitionMetrics {
    /// The partition.
    pub at: TopicPartition,
    /// The offset that this process has last committed.
    pub committed: Option<i64>,
    /// All records before this offset are done. `None` in a share group.
    pub finished: Option<i64>,
    /// The offset that holds back the commit, and for how long. A growing duration indicates a stuck handler. `None` in a
    /// share group.
    pub blocking: Option<(i64, Duration)>,
    /// Records in flight.
    pub in_flight: usize,
    /// Memory of the records in flight, in bytes.
    pub in_flight_bytes: usize,
    /// `true` if the partition is paused because its limits are reached.
    pub paused: bool,
}

impl Metrics {
    pub(crate) fn of(exchange: &Exchange) -> Self {
        let now = Instant::now();
        let mut inner = exchange.lock();
        let known: Vec<_> = inner.partitions.iter().map(|(at, known)| (at.clone(), known.clone())).collect();
        let is_share = inner.share.is_some();
        let partition = |(at, known): (TopicPartition, crate::exchange::PartitionStatus)| {
            let progress = known.assignment.and_then(|assignment| inner.core.progress(assignment));
            let tracked = progress.filter(|_| !is_share);
            let blocking = tracked.and_then(|progress| progress.blocking);
            PartitionMetrics {
                at,
                committed: known.committed,
                finished: tracked.map(|progress| progress.committable.offset),
                blocking: blocking.map(|(offset, since)| (offset, now.saturating_duration_since(since))),
                in_flight: progress.map_or(0, |progress| progress.in_flight.records),
                in_flight_bytes: progress.map_or(0, |progress| progress.in_flight.bytes),
                paused: known.paused,
            }
        };
        let partitions = known.into_iter().map(partition).collect();
        let counts = inner.core.counts;
        Self {
            handled: counts.handled,
            failures: counts.failures,
            retries: counts.retries,
            dead_letters: inner.given_up_counts.dead_letters,
            skipped: inner.given_up_counts.skipped,
            late: counts.late,
            queued: inner.core.lanes().queued_records(),
            record_time: inner.core.record_time(),
            breaker_closed: inner.core.breaker().is_closed(),
            breaker_opened: inner.core.breaker().opened(),
            share: inner.share.as_ref().map(|share| share.counts),
            partitions,
        }
    }

    /// The metrics in Prometheus' text format, for the response of an exporter.
    pub fn prometheus_text(&self) -> String {
        let mut text = String::new();
        let totals = [
            ("handled_total", "counter", "Records whose handler succeeded.", self.handled),
            ("failures_total", "counter", "Failed handler calls.", self.failures),
            (
                "retries_total",
                "counter",
                "Failed handler calls after which a retry was scheduled.",
                self.retries,
            ),
            ("dead_letters_total", "counter", "Records written to the dead-letter topic.", self.dead_letters),
            ("skipped_total", "counter", "Records given up and skipped.", self.skipped),
            ("late_total", "counter", "Results dropped because their partition was revoked.", self.late),
            ("queued_records", "gauge", "Records that wait for a worker.", self.queued as u64),
            (
                "breaker_open",
                "gauge",
                "1 if the circuit breaker is open, else 0.",
                u64::from(!self.breaker_closed),
            ),
            (
                "breaker_opened_total",
                "counter",
                "Number of times that the circuit breaker has opened.",
                self.breaker_opened,
            ),
        ];
        let share = self.share.map(ShareMetrics::totals);
        for (name, kind, help, value) in totals.into_iter().chain(share.into_iter().flatten()) {
            let name = format!("ottla_processor_{name}");
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}");
        }
        type Value = fn(&PartitionMetrics) -> Option<f64>;
        let gauges: [(&str, &str, Value); 5] = [
            ("committed_offset", "The last committed offset.", |it| it.committed.map(|offset| offset as f64)),
            ("finished_offset", "All records before this offset are done.", |it| {
                it.finished.map(|offset| offset as f64)
            }),
            ("blocking_offset", "The offset that holds back the commit.", |it| {
                it.blocking.map(|(offset, _)| offset as f64)
            }),
            ("blocking_seconds", "The time for which the blocking offset has held back the commit.", |it| {
                it.blocking.map(|(_, age)| age.as_secs_f64())
            }),
            ("in_flight_records", "Records in flight.", |it| Some(it.in_flight as f64)),
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

impl ShareMetrics {
    fn totals(self) -> [(&'static str, &'static str, &'static str, u64); 5] {
        [
            ("share_accepted_total", "counter", "Records accepted in the share group.", self.accepted),
            ("share_released_total", "counter", "Records released for another delivery.", self.released),
            ("share_rejected_total", "counter", "Records rejected in the share group.", self.rejected),
            ("share_renewed_total", "counter", "Renewals of acquisition locks.", self.renewed),
            ("share_lost_total", "counter", "Records whose acknowledgement came too late.", self.lost),
        ]
    }
}
