//! The metrics that clients push (KIP-714), under their own names.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::Text;
use crate::client_metrics::PushedClient;
use crate::cluster::Cluster;
use crate::metrics::table as metric;

/// Begins every name: a client may choose any, also one of the broker's.
const PREFIX: &str = "kafka_client_";
/// Kafka's clients begin theirs so.
const KAFKAS_PREFIX: &str = "org.apache.kafka.";

/// Series of all clients together: each has its share, and what others do not use of theirs. A scrape stays below some 20 MB, whatever
/// names clients choose.
const SERIES_MAX: usize = 50_000;
/// Prometheus keeps label names with this prefix for itself.
const RESERVED_PREFIX: &str = "__";

/// The labels of a series, by name.
type SeriesLabels<'a> = Vec<(Cow<'static, str>, &'a str)>;

/// A metric. Clients may push the same name with different types.
#[derive(Debug, Default)]
struct Family<'a> {
    has_counters: bool,
    has_gauges: bool,
    /// The first value of each series.
    series: BTreeMap<SeriesLabels<'a>, f64>,
}

/// The labels of the client itself; a client's own of the same name do not count.
const OWN_LABELS: [&str; 4] =
    ["client_instance_id", "client_id", "client_software_name", "client_software_version"];

impl Cluster {
    pub(super) fn clients_text(&self, text: &mut Text) {
        let clients = self.pushed_clients();
        text.single(metric::CLIENT_INSTANCES, clients.len());
        text.single(metric::CLIENT_PUSHES, self.client_metrics.pushes());
        let counts: Vec<usize> = clients.iter().map(|client| client.samples.len()).collect();
        let shares = shares(&counts, SERIES_MAX);
        let mut left_out = (counts.iter().sum::<usize>() - shares.iter().sum::<usize>()) as u64;
        for (name, Family { has_counters, has_gauges, series }) in by_name(&clients, &shares) {
            let count = series.len().min(text.series_max);
            left_out += (series.len() - count) as u64;
            if count == 0 {
                continue;
            }
            let kind = match (has_counters, has_gauges) {
                (true, true) => "untyped",
                (true, false) => "counter",
                (false, _) => "gauge",
            };
            text.line(format_args!("# TYPE {name} {kind}"));
            for (labels, value) in series.iter().take(count) {
                text.append(format_args!("{name}"));
                text.named_labels(labels);
                text.line(format_args!(" {value}"));
            }
        }
        if left_out > 0 {
            text.leave_out(metric::CLIENT_INSTANCES, left_out);
        }
    }
}

/// The numbers of series that clients with so many each may have, `max` together: those with few have all of them.
fn shares(counts: &[usize], max: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..counts.len()).collect();
    order.sort_by_key(|at| counts[*at]);
    let mut shares = vec![0; counts.len()];
    let mut left = max;
    for (done, at) in order.into_iter().enumerate() {
        shares[at] = counts[at].min(left / (counts.len() - done));
        left -= shares[at];
    }
    shares
}

/// The first metrics of all clients, so many of each. Each series has the labels of its client before its own.
fn by_name<'a>(clients: &'a [PushedClient], shares: &[usize]) -> BTreeMap<String, Family<'a>> {
    let mut families: BTreeMap<String, Family<'_>> = BTreeMap::new();
    for (PushedClient { id_text, client, samples, .. }, share) in clients.iter().zip(shares) {
        let own = [id_text, &client.client_id, &client.software_name, &client.software_version];
        for sample in samples.iter().take(*share) {
            let mut labels: SeriesLabels<'_> = OWN_LABELS
                .iter()
                .zip(own)
                .map(|(name, value)| (Cow::Borrowed(*name), value.as_str()))
                .collect();
            for (name, value) in &sample.labels {
                let Some(name) = label_name(name) else { continue };
                if labels.iter().all(|(other, _)| *other != name) {
                    labels.push((Cow::Owned(name), value));
                }
            }
            let family = families.entry(name_of(&sample.name)).or_default();
            family.has_counters |= sample.is_counter;
            family.has_gauges |= !sample.is_counter;
            family.series.entry(labels).or_insert(sample.value);
        }
    }
    families
}

/// A client's name in Prometheus' characters.
fn name_of(name: &str) -> String {
    format!("{PREFIX}{}", plain(name.strip_prefix(KAFKAS_PREFIX).unwrap_or(name)))
}

/// A client's label name in Prometheus' characters. `None` for names that Prometheus refuses or keeps for itself.
fn label_name(name: &str) -> Option<String> {
    let plain = plain(name);
    if plain.is_empty() || plain.starts_with(RESERVED_PREFIX) {
        return None;
    }
    let has_digit_first = plain.starts_with(|first: char| first.is_ascii_digit());
    Some(if has_digit_first { format!("_{plain}") } else { plain })
}

fn plain(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names that came first in the alphabet had the whole limit: one client hid the metrics of all others.
    #[test]
    fn clients_with_many_series_leave_others_theirs() {
        assert_eq!(shares(&[10_000; 5], 50_000), [10_000; 5]);
        assert_eq!(shares(&[90_000, 30, 70_000, 20], 50_000), [24_975, 30, 24_975, 20]);
        assert_eq!(shares(&[5, 5, 5], 7), [2, 2, 3]);
        assert!(shares(&[], 7).is_empty());
    }

    #[test]
    fn label_names_are_those_that_prometheus_accepts() {
        for (name, expected) in [
            ("topic", Some("topic")),
            ("node.id", Some("node_id")),
            ("_x", Some("_x")),
            ("2xx", Some("_2xx")),
            ("é", Some("_")),
            ("", None),
            ("__name__", None),
            ("..a", None),
        ] {
            assert_eq!(label_name(name).as_deref(), expected, "{name}");
        }
    }
}
