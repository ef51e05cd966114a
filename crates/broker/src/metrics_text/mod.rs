//! The metrics of a broker in Prometheus' text format: its counters, and gauges that are read when a text is made.
//!
//! A text is made on the caller's thread, which must not be one that serves clients. It takes each lock for a page of the groups
//! or for one partition at a time.

mod census;
mod clients;

use std::borrow::Cow;
use std::fmt::{Display, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ottla_protocol::{ApiKey, ErrorCode};
use tokio::time::Instant;

use self::census::Census;
use crate::api::space;
use crate::cluster::Cluster;
use crate::memory::{MemoryBudget, Parts};
use crate::metrics::table::{self as metric, Metric};
use crate::metrics::{ApiMetrics, Cumulative, Syncs};
use crate::partition::NO_LEADER;
use crate::quotas::QUOTAS;

/// A counter of an API, and of syncs.
type OfApi = fn(&ApiMetrics) -> &AtomicU64;
type OfSyncs = fn(&Syncs) -> &AtomicU64;

impl Cluster {
    /// Returns the broker's metrics in Prometheus' text format. docs/METRICS.md lists them; [`metrics`](fn@crate::metrics) too.
    ///
    /// Metrics by partition and by group have at most `series_max` series each, the first ones by name.
    /// `ottla_series_left_out` has the number of the others. The lag is computed for at most `series_max` groups. Share groups get the
    /// places that other groups leave.
    ///
    /// The call takes locks that requests need, each for a moment, and its time grows with the number of partitions and
    /// of groups. Call it on a thread that serves no clients.
    pub fn metrics_text(&self, series_max: usize) -> String {
        let began = Instant::now();
        let mut text = Text::new(series_max);
        text.family(metric::BUILD_INFO).sample(&[&env!("CARGO_PKG_VERSION")], 1);
        text.family(metric::UPTIME).sample(&[], self.metrics.opened.elapsed().as_secs_f64());
        self.requests_text(&mut text);
        self.connections_text(&mut text);
        self.records_text(&mut text);
        self.memory_text(&mut text);
        self.logs_text(&mut text);
        self.groups_text(&mut text);
        self.share_text(&mut text);
        self.clients_text(&mut text);
        text.finish(began)
    }

    fn requests_text(&self, text: &mut Text) {
        let of = |api: &ApiKey| self.metrics.of(*api).map(|counters| (api.name(), counters));
        let used = |(_, counters): &(&str, &ApiMetrics)| counters.requests.load(Ordering::Relaxed) > 0;
        let apis: Vec<(&str, &ApiMetrics)> = ApiKey::KNOWN.iter().filter_map(of).filter(used).collect();
        for (metric, value) in [
            (metric::REQUESTS, (|api| &api.requests) as OfApi),
            (metric::REQUEST_BYTES, |api| &api.request_bytes),
            (metric::RESPONSE_BYTES, |api| &api.response_bytes),
        ] {
            text.family(metric);
            for (name, api) in &apis {
                text.sample(&[name], value(api).load(Ordering::Relaxed));
            }
        }
        text.family(metric::REQUEST_ERRORS);
        for (name, api) in &apis {
            for (count, code) in api.errors.get().into_iter().flat_map(|counts| counts.iter()).zip(-1..) {
                let count = count.load(Ordering::Relaxed);
                if count > 0 {
                    text.sample(&[name, &ErrorCode::from_i16(code).name()], count);
                }
            }
        }
        text.family(metric::REQUEST_SECONDS);
        for (name, api) in &apis {
            text.histogram(name, &api.latencies());
        }
    }

    fn connections_text(&self, text: &mut Text) {
        text.family(metric::CONNECTIONS);
        for node in self.nodes.iter() {
            text.sample(&[&node.id], node.connections.load(Ordering::Relaxed));
        }
        let metrics = &self.metrics;
        text.single(metric::CONNECTIONS_ACCEPTED, metrics.connections_accepted.load(Ordering::Relaxed));
        text.single(metric::CONNECTIONS_REFUSED, metrics.connections_refused.load(Ordering::Relaxed));
        text.family(metric::LOGINS);
        for (result, count) in [("success", &metrics.logins_succeeded), ("failure", &metrics.logins_failed)] {
            text.sample(&[&result], count.load(Ordering::Relaxed));
        }
        text.single(metric::HANDSHAKES_FAILED, metrics.handshakes_failed.load(Ordering::Relaxed));
        let throttled = || QUOTAS.iter().map(|quota| quota.name()).zip(&self.quota_use.counters);
        text.family(metric::THROTTLED);
        for (quota, counters) in throttled() {
            text.sample(&[&quota], counters.requests.load(Ordering::Relaxed));
        }
        text.family(metric::THROTTLE_SECONDS);
        for (quota, counters) in throttled() {
            text.sample(&[&quota], counters.micros.load(Ordering::Relaxed) as f64 / 1e6);
        }
    }

    fn records_text(&self, text: &mut Text) {
        let metrics = &self.metrics;
        text.single(metric::APPENDED_RECORDS, metrics.appended_records.load(Ordering::Relaxed));
        text.single(metric::APPENDED_BYTES, metrics.appended_bytes.load(Ordering::Relaxed));
        text.single(metric::FETCHED_BYTES, metrics.fetched_bytes.load(Ordering::Relaxed));
        let syncs = [(&"logs", &metrics.log_syncs), (&"journal", &metrics.journal_syncs)];
        for (metric, value) in [
            (metric::SYNCS, (|syncs| &syncs.count) as OfSyncs),
            (metric::SYNC_FAILURES, |syncs| &syncs.failed),
        ] {
            text.family(metric);
            for (files, syncs) in syncs {
                text.sample(&[files], value(syncs).load(Ordering::Relaxed));
            }
        }
        text.family(metric::SYNC_SECONDS);
        for (files, syncs) in syncs {
            text.sample(&[files], syncs.micros.load(Ordering::Relaxed) as f64 / 1e6);
        }
    }

    fn memory_text(&self, text: &mut Text) {
        let limits = Parts::of(self.config.memory_bytes_max);
        let nodes = self.nodes.iter();
        let sessions = nodes.fold((0, 0), |(used, limit), node| {
            (used + node.sessions.memory_bytes(), limit + limits.fetch_sessions)
        });
        let parts = [
            ("requests", self.memory.used_bytes(), limits.requests),
            ("responses", self.memory.unsent_bytes(), limits.responses),
            ("decoders", self.decoder_memory.used_bytes(), limits.decoders),
            ("fetch_sessions", sessions.0, sessions.1),
            ("groups", self.groups.memory().used_bytes(), limits.groups),
            ("tail_caches", self.cache_total.bytes(), self.cache_total.max()),
        ];
        text.family(metric::MEMORY_USED);
        for (part, used, _) in &parts {
            text.sample(&[part], used);
        }
        text.family(metric::MEMORY_LIMIT);
        for (part, _, limit) in &parts {
            text.sample(&[part], limit);
        }
        text.family(metric::MEMORY_WAITING);
        let waiting = |budget: &MemoryBudget| budget.waiting();
        text.sample(&[&"requests"], waiting(&self.memory));
        text.sample(&[&"decoders"], waiting(&self.decoder_memory));
    }

    fn logs_text(&self, text: &mut Text) {
        let (size, free) = space(self);
        for (metric, bytes) in [(metric::DISK_BYTES, size), (metric::DISK_FREE_BYTES, free)] {
            text.family(metric);
            // A broker in memory has no volume.
            if bytes >= 0 {
                text.sample(&[], bytes);
            }
        }
        let topics = self.topics();
        let (mut partitions, mut offline, mut bytes) = (0_u64, 0_u64, 0);
        let mut rows: Vec<PartitionRow> = Vec::new();
        for partition in topics.iter().flat_map(|topic| &topic.partitions) {
            let (log_bytes, start, log_offline) = {
                let log = partition.log();
                (log.size_bytes(), log.start_offset(), log.offline_reason().is_some())
            };
            partitions += 1;
            offline += u64::from(log_offline || partition.leader() == NO_LEADER);
            bytes += log_bytes;
            if rows.len() < text.series_max {
                let high_watermark = partition.high_watermark();
                let (topic, index) = (partition.topic.clone(), partition.index);
                rows.push(PartitionRow { topic, index, log_bytes, start, high_watermark });
            }
        }
        text.single(metric::TOPICS, topics.len());
        text.single(metric::PARTITIONS, partitions);
        text.single(metric::OFFLINE_PARTITIONS, offline);
        text.single(metric::LOG_BYTES, bytes);
        let left_out = partitions - rows.len() as u64;
        for (metric, value) in [
            (metric::PARTITION_LOG_BYTES, PartitionRow::bytes as fn(&PartitionRow) -> i64),
            (metric::PARTITION_START_OFFSET, |row| row.start),
            (metric::PARTITION_HIGH_WATERMARK, |row| row.high_watermark),
        ] {
            text.family(metric);
            for row in &rows {
                text.sample(&[&row.topic, &row.index], value(row));
            }
            text.leave_out(metric, left_out);
        }
    }

    fn groups_text(&self, text: &mut Text) {
        let census = Census::of(self, text.series_max);
        text.family(metric::GROUPS);
        for ((protocol, state), count) in &census.groups {
            text.sample(&[protocol, state], count);
        }
        text.family(metric::GROUP_MEMBERS);
        for (protocol, count) in &census.members {
            text.sample(&[protocol], count);
        }
        text.family(metric::GROUP_LAG);
        for lag in &census.lags {
            text.sample(&[&lag.group, &lag.topic, &lag.partition], lag.records);
        }
        text.leave_out(metric::GROUP_LAG, census.lags_left_out);
        text.family(metric::GROUP_LAG_SUM);
        for (group, sum) in &census.sums {
            text.sample(&[group], sum);
        }
        text.leave_out(metric::GROUP_LAG_SUM, census.sums_left_out);
    }

    fn share_text(&self, text: &mut Text) {
        text.family(metric::SHARE_IN_FLIGHT);
        let (mut rows, series_max) = (0, text.series_max);
        self.share_leader.look_at_in_flight(|key, records| {
            // A deleted topic has no name.
            let Some(topic) = self.topic_by_id(key.topic) else { return };
            rows += 1;
            if rows <= series_max {
                text.sample(&[&key.group, &topic.name, &key.partition], records);
            }
        });
        text.leave_out(metric::SHARE_IN_FLIGHT, rows.saturating_sub(series_max) as u64);
        let share = &self.metrics.share;
        text.family(metric::SHARE_ACKNOWLEDGED);
        for (kind, records) in share.acknowledged() {
            text.sample(&[&kind], records.load(Ordering::Relaxed));
        }
        text.single(metric::SHARE_LOCK_TIMEOUTS, share.lock_timeouts.load(Ordering::Relaxed));
        text.single(metric::SHARE_OUT_OF_DELIVERIES, share.out_of_deliveries.load(Ordering::Relaxed));
        text.family(metric::SHARE_DEAD_LETTERS);
        text.sample(&[&"written"], share.dead_letters_written.load(Ordering::Relaxed));
        text.sample(&[&"given_up"], share.dead_letters_given_up.load(Ordering::Relaxed));
    }
}

/// The numbers of a partition.
struct PartitionRow {
    topic: Arc<str>,
    index: i32,
    log_bytes: u64,
    start: i64,
    high_watermark: i64,
}

impl PartitionRow {
    fn bytes(&self) -> i64 {
        i64::try_from(self.log_bytes).unwrap_or(i64::MAX)
    }
}

/// A text that is being written.
struct Text {
    out: String,
    /// The metric whose samples are written.
    metric: &'static Metric,
    series_max: usize,
    left_out: Vec<(&'static Metric, u64)>,
}

impl Text {
    fn new(series_max: usize) -> Self {
        Self { out: String::new(), metric: metric::BUILD_INFO, series_max, left_out: Vec::new() }
    }

    /// Begins a metric.
    fn family(&mut self, metric: &'static Metric) -> &mut Self {
        self.metric = metric;
        self.line(format_args!("# HELP {} {}", metric.name, metric.help));
        self.line(format_args!("# TYPE {} {}", metric.name, metric.kind.name()));
        self
    }

    /// Writes a metric without labels.
    fn single(&mut self, metric: &'static Metric, value: impl Display) {
        self.family(metric).sample(&[], value);
    }

    /// Writes a value of the metric. It has a value for each label.
    fn sample(&mut self, labels: &[&dyn Display], value: impl Display) {
        debug_assert_eq!(labels.len(), self.metric.labels.len(), "{}", self.metric.name);
        self.out.push_str(self.metric.name);
        self.labels(labels, None);
        self.line(format_args!(" {value}"));
    }

    fn histogram(&mut self, label: &dyn Display, read: &Cumulative) {
        let name = self.metric.name;
        let unbounded = (f64::INFINITY, read.count);
        for (bound, count) in read.buckets.iter().chain([&unbounded]) {
            let bound = if bound.is_finite() { bound.to_string() } else { "+Inf".to_owned() };
            self.append(format_args!("{name}_bucket"));
            self.labels(&[label], Some(&bound));
            self.line(format_args!(" {count}"));
        }
        self.append(format_args!("{name}_sum"));
        self.labels(&[label], None);
        self.line(format_args!(" {}", read.sum_seconds));
        self.append(format_args!("{name}_count"));
        self.labels(&[label], None);
        self.line(format_args!(" {}", read.count));
    }

    fn labels(&mut self, values: &[&dyn Display], bound: Option<&str>) {
        let names = self.metric.labels.iter().copied();
        let labels = names.zip(values.iter().map(|value| escaped(&value.to_string())));
        let labels = labels.chain(bound.map(|bound| ("le", bound.to_owned())));
        for (at, (name, value)) in labels.enumerate() {
            self.append(format_args!("{}{name}=\"{value}\"", if at == 0 { '{' } else { ',' }));
        }
        if !values.is_empty() {
            self.out.push('}');
        }
    }

    /// Writes labels that are no metric's of the broker.
    fn named_labels(&mut self, labels: &[(Cow<'static, str>, &str)]) {
        for (at, (name, value)) in labels.iter().enumerate() {
            let value = escaped(value);
            self.append(format_args!("{}{name}=\"{value}\"", if at == 0 { '{' } else { ',' }));
        }
        self.out.push('}');
    }

    fn leave_out(&mut self, metric: &'static Metric, count: u64) {
        self.left_out.push((metric, count));
    }

    fn finish(mut self, began: Instant) -> String {
        self.family(metric::LEFT_OUT);
        for (metric, count) in std::mem::take(&mut self.left_out) {
            self.sample(&[&metric.name], count);
        }
        self.family(metric::TEXT_SECONDS).sample(&[], began.elapsed().as_secs_f64());
        self.out
    }

    fn line(&mut self, text: std::fmt::Arguments<'_>) {
        self.append(text);
        self.out.push('\n');
    }

    fn append(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to a String cannot fail.
        let _ = self.out.write_fmt(text);
    }
}

fn escaped(label: &str) -> String {
    if !label.contains(['\\', '"', '\n']) {
        return label.to_owned();
    }
    label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped_and_histograms_end_with_all_values() {
        let mut text = Text::new(10);
        text.family(metric::GROUP_LAG_SUM).sample(&[&"a\"b\\c\nd"], 7);
        assert!(
            text.out.ends_with("ottla_group_lag_sum_records{group=\"a\\\"b\\\\c\\nd\"} 7\n"),
            "{}",
            text.out
        );
        let read = Cumulative { buckets: vec![(10.0, 0)], count: 1, sum_seconds: 20.0 };
        text.family(metric::REQUEST_SECONDS).histogram(&"Fetch", &read);
        let expected = "ottla_request_seconds_bucket{api=\"Fetch\",le=\"10\"} 0\n\
                        ottla_request_seconds_bucket{api=\"Fetch\",le=\"+Inf\"} 1\n\
                        ottla_request_seconds_sum{api=\"Fetch\"} 20\n\
                        ottla_request_seconds_count{api=\"Fetch\"} 1\n";
        assert!(text.out.ends_with(expected), "{}", text.out);
    }
}
