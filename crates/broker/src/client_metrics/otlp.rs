//! The values in a push: OpenTelemetry's `MetricsData`, as far as clients of Kafka use it.
//!
//! Numbers of fields are those of `opentelemetry/proto/metrics/v1/metrics.proto`. Fields that are not declared here are skipped.

use std::collections::BTreeMap;

use prost::{Message, Oneof};

/// The values of one push that are kept.
pub(super) const SAMPLES_MAX: usize = 10_000;
/// The bytes of the values of one push that are kept. Each value has a copy of the labels of its resource, which can be as long as the
/// push.
pub(super) const PUSH_BYTES_MAX: usize = 4 << 20;
/// The labels of one value that are kept.
const LABELS_MAX: usize = 32;

/// Names and values. A slice: the nodes of a map would take five times the memory of the text.
pub(crate) type Labels = Box<[(Box<str>, Box<str>)]>;

/// A value of a metric.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sample {
    /// The client's name of the metric, such as `org.apache.kafka.consumer.poll.idle.ratio.avg`.
    pub(crate) name: Box<str>,
    /// Its labels, with those of the client's resource, by name.
    pub(crate) labels: Labels,
    /// The value; of a sum, since the client's start.
    pub(crate) value: f64,
    /// `true` for a sum that only grows.
    pub(crate) is_counter: bool,
}

impl Sample {
    /// The memory that it takes.
    pub(super) fn bytes(&self) -> usize {
        // The allocator rounds up, and needs memory itself.
        const ALLOCATION: usize = 24;
        const LABEL: usize = size_of::<(Box<str>, Box<str>)>() + 2 * ALLOCATION;
        let labels = self.labels.iter().map(|(key, value)| key.len() + value.len() + LABEL);
        size_of::<Self>() + self.name.len() + 2 * ALLOCATION + labels.sum::<usize>()
    }
}

/// The values in a push; `None` if its bytes are no `MetricsData`.
pub(super) fn samples(bytes: &[u8]) -> Option<Vec<Sample>> {
    let data = MetricsData::decode(bytes).ok()?;
    let mut samples: Vec<Sample> = Vec::new();
    let mut kept_bytes = 0;
    for of_resource in data.resource_metrics {
        let resource = of_resource.resource.unwrap_or_default().attributes;
        for metric in of_resource.scope_metrics.into_iter().flat_map(|scope| scope.metrics) {
            let (points, is_counter) = match metric.data {
                Some(Data::Gauge(gauge)) => (gauge.data_points, false),
                Some(Data::Sum(sum)) => (sum.data_points, sum.is_monotonic),
                // Clients of Kafka push no histograms.
                None => continue,
            };
            for point in points {
                if samples.len() == SAMPLES_MAX || kept_bytes >= PUSH_BYTES_MAX {
                    return Some(samples);
                }
                let value = match point.value {
                    Some(Number::Double(value)) => value,
                    Some(Number::Int(value)) => value as f64,
                    None => continue,
                };
                let labels = resource.iter().chain(&point.attributes).take(LABELS_MAX);
                let labels = labels_of(labels);
                let sample = Sample { name: metric.name.as_str().into(), labels, value, is_counter };
                kept_bytes += sample.bytes();
                samples.push(sample);
            }
        }
    }
    Some(samples)
}

/// Labels by name. The last one of a name counts; the others are not copied.
fn labels_of<'a>(labels: impl Iterator<Item = &'a KeyValue>) -> Labels {
    let by_name: BTreeMap<&str, &KeyValue> = labels.map(|label| (label.key.as_str(), label)).collect();
    by_name.into_iter().map(|(name, label)| (name.into(), label.text().into_boxed_str())).collect()
}

#[derive(Clone, PartialEq, Message)]
struct MetricsData {
    #[prost(message, repeated, tag = "1")]
    resource_metrics: Vec<ResourceMetrics>,
}

#[derive(Clone, PartialEq, Message)]
struct ResourceMetrics {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    scope_metrics: Vec<ScopeMetrics>,
}

#[derive(Clone, PartialEq, Message)]
struct Resource {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct ScopeMetrics {
    #[prost(message, repeated, tag = "2")]
    metrics: Vec<Metric>,
}

#[derive(Clone, PartialEq, Message)]
struct Metric {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(oneof = "Data", tags = "5, 7")]
    data: Option<Data>,
}

#[derive(Clone, PartialEq, Oneof)]
enum Data {
    #[prost(message, tag = "5")]
    Gauge(Gauge),
    #[prost(message, tag = "7")]
    Sum(Sum),
}

#[derive(Clone, PartialEq, Message)]
struct Gauge {
    #[prost(message, repeated, tag = "1")]
    data_points: Vec<NumberDataPoint>,
}

#[derive(Clone, PartialEq, Message)]
struct Sum {
    #[prost(message, repeated, tag = "1")]
    data_points: Vec<NumberDataPoint>,
    #[prost(bool, tag = "3")]
    is_monotonic: bool,
}

#[derive(Clone, PartialEq, Message)]
struct NumberDataPoint {
    #[prost(message, repeated, tag = "7")]
    attributes: Vec<KeyValue>,
    #[prost(oneof = "Number", tags = "4, 6")]
    value: Option<Number>,
}

#[derive(Clone, Copy, PartialEq, Oneof)]
enum Number {
    #[prost(double, tag = "4")]
    Double(f64),
    #[prost(sfixed64, tag = "6")]
    Int(i64),
}

#[derive(Clone, PartialEq, Message)]
struct KeyValue {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<AnyValue>,
}

impl KeyValue {
    fn text(&self) -> String {
        match self.value.as_ref().and_then(|value| value.value.as_ref()) {
            Some(Any::Text(text)) => text.clone(),
            Some(Any::Bool(value)) => value.to_string(),
            Some(Any::Int(value)) => value.to_string(),
            Some(Any::Double(value)) => value.to_string(),
            None => String::new(),
        }
    }
}

#[derive(Clone, PartialEq, Message)]
struct AnyValue {
    #[prost(oneof = "Any", tags = "1, 2, 3, 4")]
    value: Option<Any>,
}

#[derive(Clone, PartialEq, Oneof)]
enum Any {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(bool, tag = "2")]
    Bool(bool),
    #[prost(int64, tag = "3")]
    Int(i64),
    #[prost(double, tag = "4")]
    Double(f64),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label(key: &str, text: &str) -> KeyValue {
        KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(Any::Text(text.to_owned())) }) }
    }

    #[test]
    fn gauges_and_sums_are_read_with_the_labels_of_their_resource() {
        let point =
            |value| NumberDataPoint { attributes: vec![label("topic", "orders")], value: Some(value) };
        let gauge = Gauge { data_points: vec![point(Number::Double(0.5))] };
        let sum = Sum { data_points: vec![point(Number::Int(7))], is_monotonic: true };
        let metric = |name: &str, data| Metric { name: name.to_owned(), data: Some(data) };
        let metrics = vec![metric("lag", Data::Gauge(gauge)), metric("records", Data::Sum(sum))];
        let data = MetricsData {
            resource_metrics: vec![ResourceMetrics {
                resource: Some(Resource { attributes: vec![label("group_id", "billing")] }),
                scope_metrics: vec![ScopeMetrics { metrics }],
            }],
        };
        let read = samples(&data.encode_to_vec()).expect("sound");
        let labels = [("group_id", "billing"), ("topic", "orders")];
        let labels: Labels = labels.into_iter().map(|(key, value)| (key.into(), value.into())).collect();
        let expected = [("lag", 0.5, false), ("records", 7.0, true)].map(|(name, value, is_counter)| {
            Sample { name: name.into(), labels: labels.clone(), value, is_counter }
        });
        assert_eq!(read, expected);
    }

    #[test]
    fn long_labels_of_a_resource_are_not_copied_for_very_many_values() {
        let point = NumberDataPoint { attributes: Vec::new(), value: Some(Number::Int(1)) };
        let gauge = Gauge { data_points: vec![point; 10_000] };
        let metrics = vec![Metric { name: "lag".to_owned(), data: Some(Data::Gauge(gauge)) }];
        let data = MetricsData {
            resource_metrics: vec![ResourceMetrics {
                resource: Some(Resource { attributes: vec![label("group_id", &"x".repeat(500_000))] }),
                scope_metrics: vec![ScopeMetrics { metrics }],
            }],
        };
        let read = samples(&data.encode_to_vec()).expect("sound");
        let bytes: usize = read.iter().map(Sample::bytes).sum();
        assert!(!read.is_empty() && bytes <= PUSH_BYTES_MAX + (1 << 20), "{bytes} bytes");
    }

    /// The texts of all labels with one name were copied for each value, and then all but the last were dropped. The result was the same
    /// after 9 GB of copies, which only the time of this test shows.
    #[test]
    fn the_last_label_of_a_name_counts() {
        let point = NumberDataPoint { attributes: vec![label("k", "last")], value: Some(Number::Int(1)) };
        let gauge = Gauge { data_points: vec![point; SAMPLES_MAX] };
        let metrics = vec![Metric { name: "lag".to_owned(), data: Some(Data::Gauge(gauge)) }];
        let data = MetricsData {
            resource_metrics: vec![ResourceMetrics {
                resource: Some(Resource {
                    attributes: vec![label("k", &"x".repeat(29_000)); LABELS_MAX - 1],
                }),
                scope_metrics: vec![ScopeMetrics { metrics }],
            }],
        };
        let read = samples(&data.encode_to_vec()).expect("sound");
        let last: Labels = [("k".into(), "last".into())].into();
        assert_eq!(read.len(), SAMPLES_MAX);
        assert!(read.iter().all(|sample| sample.labels == last));
    }

    #[test]
    fn bytes_that_are_no_metrics_are_refused() {
        assert_eq!(samples(&[0x0a, 0x7f, 1]), None);
        assert_eq!(samples(&[]), Some(Vec::new()));
    }
}
