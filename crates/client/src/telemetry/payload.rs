//! The bytes of a push: metrics as OpenTelemetry's messages, with sums since the client's start or since the last push.

use std::collections::BTreeMap;

use prost::Message;

use super::machine::Subscription;
use super::metrics::{Measured, Point, Value};
use super::otlp::{
    CUMULATIVE, DELTA, Data, Gauge, InstrumentationScope, KeyValue, Metric, MetricsData, Number,
    NumberDataPoint, Resource, ResourceMetrics, ScopeMetrics, Sum,
};
use crate::config::Config;

const NANOS_PER_MS: u64 = 1_000_000;
/// The name of the library in a push, as in ApiVersions.
const SCOPE: &str = "ottla";

/// The state that sums need between two pushes.
#[derive(Debug)]
pub(super) struct Payload {
    /// The time of the client's start and of the last accepted push, in milliseconds since 1970.
    started_ms: i64,
    pushed_ms: i64,
    /// The time of the last push after which series of topics were dropped: one of them may return. The client's start before.
    dropped_ms: i64,
    /// The last accepted total of each series. A push has not all of them: the subscription changes, and a push may be too large.
    totals: BTreeMap<SeriesKey, AcceptedTotal>,
}

/// A total, and the time of its push.
#[derive(Clone, Copy, Debug)]
struct AcceptedTotal {
    total: u64,
    pushed_ms: i64,
}

/// A metric's name and its labels.
type SeriesKey = (String, Vec<(&'static str, String)>);

/// A push that is not accepted yet.
#[derive(Debug)]
pub(super) struct Encoded {
    pub(super) bytes: Vec<u8>,
    now_ms: i64,
    totals: BTreeMap<SeriesKey, AcceptedTotal>,
}

impl Payload {
    pub(super) fn new(now_ms: i64) -> Self {
        Self { started_ms: now_ms, pushed_ms: now_ms, dropped_ms: now_ms, totals: BTreeMap::new() }
    }

    /// Encodes the metrics that the subscription wants; without any, the push is empty.
    pub(super) fn encode(
        &self,
        subscription: &Subscription,
        measured: Vec<Measured>,
        resource: Resource,
        now_ms: i64,
    ) -> Encoded {
        let mut encoded = Encoded { bytes: Vec::new(), now_ms, totals: BTreeMap::new() };
        let wanted = measured.into_iter().filter(|metric| subscription.wants(&metric.name));
        let metrics: Vec<Metric> =
            wanted.map(|metric| self.metric(subscription.is_delta, metric, &mut encoded)).collect();
        if !metrics.is_empty() {
            let version = env!("CARGO_PKG_VERSION").to_owned();
            let scope = Some(InstrumentationScope { name: SCOPE.to_owned(), version });
            let scope_metrics = vec![ScopeMetrics { scope, metrics }];
            let of_client = ResourceMetrics { resource: Some(resource), scope_metrics };
            encoded.bytes = MetricsData { resource_metrics: vec![of_client] }.encode_to_vec();
        }
        encoded
    }

    /// Applies a push that a broker has accepted: later deltas start there. The series of topics that are not counted any more are dropped:
    /// if a topic returns, its counters start again.
    pub(super) fn accepted(&mut self, encoded: Encoded, is_counted: impl Fn(&str) -> bool) {
        self.pushed_ms = encoded.now_ms;
        self.totals.extend(encoded.totals);
        let known = self.totals.len();
        self.totals
            .retain(|(_, labels), _| labels.iter().all(|(key, topic)| *key != "topic" || is_counted(topic)));
        if self.totals.len() < known {
            self.dropped_ms = self.pushed_ms;
        }
    }

    fn metric(&self, is_delta: bool, measured: Measured, encoded: &mut Encoded) -> Metric {
        let Measured { name, description, unit, points } = measured;
        let is_sum = points.iter().any(|point| matches!(point.value, Value::Total(_)));
        let data_points =
            points.into_iter().map(|point| self.point(is_delta, &name, point, encoded)).collect();
        let data = if is_sum {
            let aggregation_temporality = if is_delta { DELTA } else { CUMULATIVE };
            Data::Sum(Sum { data_points, aggregation_temporality, is_monotonic: true })
        } else {
            Data::Gauge(Gauge { data_points })
        };
        Metric { name, description: description.to_owned(), unit: unit.to_owned(), data: Some(data) }
    }

    fn point(&self, is_delta: bool, name: &str, point: Point, encoded: &mut Encoded) -> NumberDataPoint {
        let attributes = point.labels.iter().map(|(key, value)| KeyValue::new(key, value.as_str())).collect();
        let (started_ms, value) = match point.value {
            Value::Gauge(value) => (self.pushed_ms, Number::Double(value)),
            Value::Total(total) => {
                let key = (name.to_owned(), point.labels);
                let before = self.totals.get(&key).copied();
                let started_ms = if is_delta { self.counted_from(&key, before) } else { self.started_ms };
                // A lower total is that of a topic which has left and returned since the last push.
                let before = before.map(|before| before.total).filter(|before| is_delta && *before <= total);
                encoded.totals.insert(key, AcceptedTotal { total, pushed_ms: encoded.now_ms });
                let value = total.saturating_sub(before.unwrap_or(0));
                (started_ms, Number::Int(i64::try_from(value).unwrap_or(i64::MAX)))
            }
        };
        NumberDataPoint {
            start_time_unix_nano: nanos(started_ms),
            time_unix_nano: nanos(encoded.now_ms),
            value: Some(value),
            attributes,
        }
    }

    /// The start of a delta: the last push that had the series. A new series begins with the client, or has returned with its topic.
    fn counted_from(&self, (_, labels): &SeriesKey, before: Option<AcceptedTotal>) -> i64 {
        let is_of_topic = labels.iter().any(|(key, _)| *key == "topic");
        let first_ms = if is_of_topic { self.dropped_ms } else { self.started_ms };
        before.map_or(first_ms, |before| before.pushed_ms)
    }
}

/// The labels of a client as a whole, by KIP-714.
pub(super) fn resource(config: &Config, member_id: Option<&str>) -> Resource {
    let rack = Some(config.client_rack.as_str()).filter(|rack| !rack.is_empty());
    let labels = [
        ("client_rack", rack),
        ("group_id", config.group_id.as_deref()),
        ("group_instance_id", config.group_instance_id.as_deref()),
        ("group_member_id", member_id),
        ("transactional_id", config.transactional_id.as_deref()),
    ];
    let attributes = labels.into_iter().filter_map(|(key, value)| Some(KeyValue::new(key, value?)));
    Resource { attributes: attributes.collect() }
}

fn nanos(ms: i64) -> u64 {
    u64::try_from(ms).unwrap_or_default().saturating_mul(NANOS_PER_MS)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ottla_protocol::messages::get_telemetry_subscriptions::GetTelemetrySubscriptionsResponse;
    use tokio::time::Instant;

    use super::super::machine::{Machine, State};
    use super::*;

    fn subscription(is_delta: bool, prefix: &str) -> Subscription {
        let response = GetTelemetrySubscriptionsResponse {
            delta_temporality: is_delta,
            requested_metrics: vec![prefix.to_owned()],
            push_interval_ms: 100,
            ..Default::default()
        };
        let mut machine = Machine::new(Instant::now(), 0.0);
        machine.on_subscription(Instant::now() + Duration::from_secs(1), 0.5, &response);
        let State::PushAt(_, subscription) = machine.state().clone() else { panic!("{machine:?}") };
        subscription
    }

    fn sent(total: u64) -> Vec<Measured> {
        let point = Point { labels: vec![("topic", "orders".to_owned())], value: Value::Total(total) };
        let name = "org.apache.kafka.producer.topic.record.send.total".to_owned();
        vec![Measured { name, description: "", unit: "1", points: vec![point] }]
    }

    fn values(encoded: &Encoded) -> Vec<(u64, Option<Number>)> {
        let data = MetricsData::decode(&*encoded.bytes).expect("sound");
        let metrics =
            data.resource_metrics.into_iter().flat_map(|of| of.scope_metrics).flat_map(|of| of.metrics);
        let points = metrics.flat_map(|metric| match metric.data {
            Some(Data::Sum(sum)) => sum.data_points,
            Some(Data::Gauge(gauge)) => gauge.data_points,
            None => Vec::new(),
        });
        points.map(|point| (point.start_time_unix_nano / NANOS_PER_MS, point.value)).collect()
    }

    #[test]
    fn a_delta_starts_at_the_last_accepted_push_and_a_sum_at_the_clients_start() {
        for (is_delta, expected) in
            [(true, [(10, 5), (10, 8), (30, 2)]), (false, [(10, 5), (10, 8), (10, 10)])]
        {
            let wanted = subscription(is_delta, "*");
            let mut payload = Payload::new(10);
            let mut seen = Vec::new();
            for (now_ms, total, is_accepted) in [(20, 5, false), (30, 8, true), (40, 10, true)] {
                let encoded = payload.encode(&wanted, sent(total), Resource::default(), now_ms);
                seen.extend(values(&encoded));
                if is_accepted {
                    payload.accepted(encoded, |_| true);
                }
            }
            assert_eq!(seen, expected.map(|(start, value)| (start, Some(Number::Int(value)))));
        }
    }

    /// The deltas were zero until the topic had more records than before it was forgotten.
    #[test]
    fn a_topic_that_returns_starts_again_at_zero() {
        let wanted = subscription(true, "*");
        for is_seen_gone in [true, false] {
            let mut payload = Payload::new(10);
            let encoded = payload.encode(&wanted, sent(8), Resource::default(), 20);
            payload.accepted(encoded, |_| true);
            if is_seen_gone {
                let encoded = payload.encode(&wanted, Vec::new(), Resource::default(), 30);
                payload.accepted(encoded, |topic| topic != "orders");
                assert!(payload.totals.is_empty());
            }
            let encoded = payload.encode(&wanted, sent(3), Resource::default(), 40);
            // It does not overlap with the deltas from before.
            let start: u64 = if is_seen_gone { 30 } else { 20 };
            assert_eq!(values(&encoded), [(start, Some(Number::Int(3)))]);
            payload.accepted(encoded, |_| true);
        }
    }

    /// The delta had the whole total, and claimed the time since the last push.
    #[test]
    fn the_delta_of_a_metric_that_is_wanted_again_starts_at_the_last_push_that_had_it() {
        let both = |total| {
            let name = "org.apache.kafka.consumer.coordinator.rebalance.total".to_owned();
            let points = vec![Point { labels: Vec::new(), value: Value::Total(total) }];
            let mut measured = sent(total);
            measured.push(Measured { name, description: "", unit: "1", points });
            measured
        };
        let mut payload = Payload::new(10);
        let mut seen = Vec::new();
        let (one, all) = (subscription(true, "org.apache.kafka.producer."), subscription(true, "*"));
        for (wanted, now_ms, total) in [(&one, 20, 5), (&all, 30, 6), (&one, 40, 7), (&all, 50, 9)] {
            let encoded = payload.encode(wanted, both(total), Resource::default(), now_ms);
            seen.push(values(&encoded));
            payload.accepted(encoded, |_| true);
        }
        let int = |(start, value): (u64, i64)| (start, Some(Number::Int(value)));
        let expected = [
            [(10, 5)].map(int).to_vec(),
            [(20, 1), (10, 6)].map(int).to_vec(),
            [(30, 1)].map(int).to_vec(),
            [(40, 2), (30, 3)].map(int).to_vec(),
        ];
        assert_eq!(seen, expected);
    }

    #[test]
    fn unwanted_metrics_make_an_empty_push() {
        let encoded =
            Payload::new(0).encode(&subscription(true, "non-existent"), sent(1), Resource::default(), 1);
        assert!(encoded.bytes.is_empty());
    }
}
