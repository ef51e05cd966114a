//! The metrics of a client by the names of KIP-714 and of Java's client, from the values of the statistics.
//!
//! docs/CLIENT_METRICS.md lists them.

use std::time::Duration;

use super::machine::Detail;
use crate::stats::pushed::{PushedValues, Sums, TopicTotals};

const MICROS_PER_MS: f64 = 1000.0;

/// The begin of each name.
const PREFIX: &str = "org.apache.kafka.";

/// A metric with its values at one time.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Measured {
    pub(super) name: String,
    pub(super) description: &'static str,
    pub(super) unit: &'static str,
    pub(super) points: Vec<Point>,
}

/// A value with its labels.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Point {
    pub(super) labels: Vec<(&'static str, String)>,
    pub(super) value: Value,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value {
    Gauge(f64),
    /// Grows from the start of counting.
    Total(u64),
}

/// Facts that the values do not contain.
#[derive(Clone, Copy, Debug)]
pub(super) struct PushFacts {
    /// The time since the last push, or since the subscription.
    pub(super) elapsed: Duration,
    /// Connections that were opened since then.
    pub(super) opened: u64,
    pub(super) buffer_used: usize,
    pub(super) buffer_max: usize,
}

/// Returns the metrics of a client. A client with neither a producer nor a consumer is an admin.
pub(super) fn measured(values: &PushedValues, facts: PushFacts, detail: Detail) -> Vec<Measured> {
    let mut all = Vec::new();
    if values.is_producer {
        let mut metrics = Metrics { kind: "producer", all: &mut all };
        metrics.connections(values, facts, detail);
        metrics.producer(values, facts, detail);
    }
    if values.is_consumer {
        let mut metrics = Metrics { kind: "consumer", all: &mut all };
        metrics.connections(values, facts, detail);
        metrics.consumer(values, facts, detail);
    }
    if !values.is_producer && !values.is_consumer {
        Metrics { kind: "admin.client", all: &mut all }.connections(values, facts, detail);
    }
    all
}

/// The metrics of one kind of client.
struct Metrics<'a> {
    kind: &'static str,
    all: &'a mut Vec<Measured>,
}

impl Metrics<'_> {
    fn add(&mut self, name: &str, unit: &'static str, description: &'static str, points: Vec<Point>) {
        if !points.is_empty() {
            let name = format!("{PREFIX}{}.{name}", self.kind);
            self.all.push(Measured { name, description, unit, points });
        }
    }

    fn total(&mut self, name: &str, unit: &'static str, description: &'static str, value: u64) {
        self.add(name, unit, description, vec![Point { labels: Vec::new(), value: Value::Total(value) }]);
    }

    fn gauge(&mut self, name: &str, unit: &'static str, description: &'static str, value: f64) {
        self.add(name, unit, description, vec![Point { labels: Vec::new(), value: Value::Gauge(value) }]);
    }

    /// The average and the maximum since the last push; absent without a value.
    fn window(&mut self, name: &str, unit: &'static str, texts: [&'static str; 2], sums: Sums, scale: f64) {
        if sums.count > 0 {
            self.gauge(&format!("{name}.avg"), unit, texts[0], sums.average() / scale);
            self.gauge(&format!("{name}.max"), unit, texts[1], sums.max as f64 / scale);
        }
    }

    fn connections(&mut self, values: &PushedValues, facts: PushFacts, detail: Detail) {
        let seconds = facts.elapsed.as_secs_f64();
        let rate = if seconds > 0.0 { facts.opened as f64 / seconds } else { 0.0 };
        self.gauge(
            "connection.creation.rate",
            "1",
            "Connections opened per second since the last push.",
            rate,
        );
        self.total("connection.creation.total", "1", "Connections opened.", values.opened);
        self.gauge("connection.count", "1", "Open connections.", values.open as f64);
        self.total("request.total", "1", "Requests sent.", values.tx);
        self.total("response.total", "1", "Responses received.", values.rx);
        self.total("outgoing.byte.total", "By", "Bytes sent.", values.tx_bytes);
        self.total("incoming.byte.total", "By", "Bytes received.", values.rx_bytes);
        if detail == Detail::Client {
            return;
        }
        let points = |value: fn(Sums) -> f64| -> Vec<Point> {
            let nodes = values.nodes.iter();
            let point = nodes.map(|(node, sums)| Point {
                labels: vec![("node_id", node.to_string())],
                value: Value::Gauge(value(*sums) / MICROS_PER_MS),
            });
            point.collect()
        };
        let (average, maximum) = (points(Sums::average), points(|sums| sums.max as f64));
        self.add(
            "node.request.latency.avg",
            "ms",
            "Average time from a request to its response, by node.",
            average,
        );
        self.add(
            "node.request.latency.max",
            "ms",
            "Longest time from a request to its response, by node.",
            maximum,
        );
    }

    fn producer(&mut self, values: &PushedValues, facts: PushFacts, detail: Detail) {
        let throttle = ["Average throttle time of brokers.", "Longest throttle time of brokers."];
        self.window("produce.throttle.time", "ms", throttle, values.throttle_ms, 1.0);
        let queue = ["Average time of records in the buffer.", "Longest time of records in the buffer."];
        self.window("record.queue.time", "ms", queue, values.queue_time_us, MICROS_PER_MS);
        let latency = ["Average latency of Produce requests.", "Longest latency of Produce requests."];
        self.window("request.latency", "ms", latency, values.produce_us, MICROS_PER_MS);
        let batch = ["Average size of batches.", "Largest size of batches."];
        self.window("batch.size", "By", batch, values.batch_bytes, 1.0);
        self.gauge("requests.in.flight", "1", "Requests without a response so far.", values.in_flight as f64);
        self.gauge(
            "buffer.total.bytes",
            "By",
            "The size of the buffer, buffer.memory.",
            facts.buffer_max as f64,
        );
        let free = facts.buffer_max.saturating_sub(facts.buffer_used);
        self.gauge("buffer.available.bytes", "By", "Free bytes of the buffer.", free as f64);
        let sent = values.totals.tx_records;
        self.total("record.send.total", "1", "Records sent, repeated ones not counted.", sent);
        if detail > Detail::Client {
            let records = by_topic(values, |topic| topic.tx_records);
            self.add("topic.record.send.total", "1", "Records sent, by topic.", records);
            let bytes = by_topic(values, |topic| topic.tx_bytes);
            self.add("topic.byte.total", "By", "Bytes of the records sent, by topic.", bytes);
        }
    }

    fn consumer(&mut self, values: &PushedValues, facts: PushFacts, detail: Detail) {
        let seconds = facts.elapsed.as_secs_f64();
        if seconds > 0.0 {
            let ratio = (values.poll_wait.as_secs_f64() / seconds).min(1.0);
            self.gauge(
                "poll.idle.ratio.avg",
                "1",
                "The part of the time in which polls waited for records.",
                ratio,
            );
        }
        let commit =
            ["Average latency of OffsetCommit requests.", "Longest latency of OffsetCommit requests."];
        self.window("coordinator.commit.latency", "ms", commit, values.commit_us, MICROS_PER_MS);
        let assigned = values.assigned_partitions as f64;
        self.gauge("coordinator.assigned.partitions", "1", "Assigned partitions.", assigned);
        let rebalance = ["Average duration of rebalances.", "Longest duration of rebalances."];
        self.window("coordinator.rebalance.latency", "ms", rebalance, values.rebalance_ms, 1.0);
        let total = values.rebalance_total_ms;
        self.total("coordinator.rebalance.latency.total", "ms", "The duration of all rebalances.", total);
        self.total("coordinator.rebalance.total", "1", "Rebalances.", values.rebalances);
        let fetch = ["Average latency of Fetch requests.", "Longest latency of Fetch requests."];
        self.window("fetch.manager.fetch.latency", "ms", fetch, values.fetch_us, MICROS_PER_MS);
        // The totals of all topics have no label; Java has both series under one name, too.
        let mut records = vec![without_label(values.totals.rx_records)];
        let mut bytes = vec![without_label(values.totals.rx_bytes)];
        if detail > Detail::Client {
            records.extend(by_topic(values, |topic| topic.rx_records));
            bytes.extend(by_topic(values, |topic| topic.rx_bytes));
        }
        self.add("fetch.manager.records.consumed.total", "1", "Records that polls returned.", records);
        self.add(
            "fetch.manager.bytes.consumed.total",
            "By",
            "Bytes of the records that polls returned.",
            bytes,
        );
        if let Some(most) = values.lag_max {
            self.gauge("fetch.manager.records.lag.max", "1", "The largest lag of a partition.", most as f64);
        }
        if detail == Detail::Partitions {
            let lags = values.lags.iter().map(|((topic, partition), lag)| Point {
                labels: vec![("topic", topic.to_string()), ("partition", partition.to_string())],
                value: Value::Gauge(*lag as f64),
            });
            let text = "Records between the position and the end, by partition.";
            self.add("fetch.manager.records.lag", "1", text, lags.collect());
        }
    }
}

fn without_label(total: u64) -> Point {
    Point { labels: Vec::new(), value: Value::Total(total) }
}

fn by_topic(values: &PushedValues, total: fn(&TopicTotals) -> u64) -> Vec<Point> {
    let used = values.topics.iter().map(|(name, topic)| (name, total(topic))).filter(|(_, total)| *total > 0);
    let point = |(name, total): (&std::sync::Arc<str>, u64)| Point {
        labels: vec![("topic", name.to_string())],
        value: Value::Total(total),
    };
    used.map(point).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::stats::pushed::sample;

    const DOCUMENT: &str = include_str!("../../../../docs/CLIENT_METRICS.md");
    const FACTS: PushFacts =
        PushFacts { elapsed: Duration::from_secs(10), opened: 5, buffer_used: 1, buffer_max: 3 };

    fn names(values: &PushedValues, detail: Detail) -> BTreeSet<String> {
        measured(values, FACTS, detail).into_iter().map(|metric| metric.name).collect()
    }

    #[test]
    fn the_document_lists_the_metrics_with_their_kinds_and_labels() {
        let rows = DOCUMENT.lines().filter(|line| line.starts_with("| `org.apache.kafka."));
        let documented: BTreeSet<String> = rows.map(|row| row.replace("none, and ", "")).collect();
        let clients = [(true, true), (false, false)].map(|(is_producer, is_consumer)| PushedValues {
            is_producer,
            is_consumer,
            ..sample()
        });
        let all = clients.iter().flat_map(|values| measured(values, FACTS, Detail::Partitions));
        let row = |metric: Measured| {
            let point = metric.points.last().expect("a value");
            let kind = if matches!(point.value, Value::Total(_)) { "sum" } else { "gauge" };
            let labels: Vec<String> = point.labels.iter().map(|(key, _)| format!("`{key}`")).collect();
            let labels = labels.join(", ");
            let end = if labels.is_empty() { " |".to_owned() } else { format!(" {labels} |") };
            format!("| `{}` | {kind} |{end}", metric.name)
        };
        assert_eq!(documented, all.map(row).collect());
    }

    #[test]
    fn smaller_pushes_lack_partitions_then_topics_and_nodes() {
        let values = PushedValues { is_producer: true, is_consumer: true, ..sample() };
        let lag = "org.apache.kafka.consumer.fetch.manager.records.lag";
        let topic = "org.apache.kafka.producer.topic.record.send.total";
        let node = "org.apache.kafka.producer.node.request.latency.avg";
        let [all, topics, client] =
            [Detail::Partitions, Detail::Topics, Detail::Client].map(|detail| names(&values, detail));
        assert!(all.contains(lag) && all.contains(topic) && all.contains(node));
        assert!(!topics.contains(lag) && topics.contains(topic) && topics.contains(node));
        assert!(!client.contains(topic) && !client.contains(node) && client.len() > 20);
    }

    #[test]
    fn values_are_converted_to_the_units_of_their_names() {
        let values = PushedValues { is_producer: true, ..sample() };
        let all = measured(&values, FACTS, Detail::Partitions);
        let value = |name: &str| {
            let name = format!("org.apache.kafka.producer.{name}");
            all.iter().find(|metric| metric.name == name).map(|metric| metric.points[0].value)
        };
        assert_eq!(value("connection.creation.rate"), Some(Value::Gauge(0.5)));
        assert_eq!(value("record.queue.time.max"), Some(Value::Gauge(2.0)), "milliseconds");
        assert_eq!(value("buffer.available.bytes"), Some(Value::Gauge(2.0)));
    }

    #[test]
    fn a_window_without_values_is_absent() {
        let values = PushedValues { is_producer: true, ..PushedValues::default() };
        assert!(names(&values, Detail::Partitions).iter().all(|name| name.strip_suffix(".max").is_none()));
    }
}
