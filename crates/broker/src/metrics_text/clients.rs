//! The metrics that clients push (KIP-714), under their own names.

use std::collections::BTreeMap;

use super::Text;
use crate::client_metrics::PushedClient;
use crate::cluster::Cluster;
use crate::metrics::table as metric;

/// Begins every name: a client may choose any, also one of the broker's.
const PREFIX: &str = "kafka_client_";
/// Kafka's clients begin theirs so.
const KAFKAS_PREFIX: &str = "org.apache.kafka.";

/// The samples of a metric: labels and value.
type Samples<'a> = Vec<(Vec<(String, &'a str)>, f64)>;
/// The labels of the client itself; a client's own of the same name do not count.
const OWN_LABELS: [&str; 4] =
    ["client_instance_id", "client_id", "client_software_name", "client_software_version"];

impl Cluster {
    pub(super) fn clients_text(&self, text: &mut Text) {
        let clients = self.pushed_clients();
        text.single(metric::CLIENT_INSTANCES, clients.len());
        text.single(metric::CLIENT_PUSHES, self.client_metrics.pushes());
        let mut left_out = 0;
        for ((name, is_counter), samples) in by_name(&clients) {
            let kind = if is_counter { "counter" } else { "gauge" };
            text.line(format_args!("# TYPE {name} {kind}"));
            for (at, (labels, value)) in samples.iter().enumerate() {
                if at >= text.series_max {
                    left_out += 1;
                    continue;
                }
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

/// The samples of all clients by metric, each with the labels of its client before its own.
fn by_name(clients: &[PushedClient]) -> BTreeMap<(String, bool), Samples<'_>> {
    let mut families: BTreeMap<(String, bool), Samples<'_>> = BTreeMap::new();
    for PushedClient { id_text, client, samples, .. } in clients {
        let own = [id_text, &client.client_id, &client.software_name, &client.software_version];
        for sample in samples.iter() {
            let mut labels: Vec<(String, &str)> = OWN_LABELS
                .iter()
                .zip(own)
                .map(|(name, value)| ((*name).to_owned(), value.as_str()))
                .collect();
            for (name, value) in &sample.labels {
                let name = plain(name);
                if labels.iter().all(|(other, _)| *other != name) {
                    labels.push((name, value));
                }
            }
            let family = families.entry((name_of(&sample.name), sample.is_counter)).or_default();
            family.push((labels, sample.value));
        }
    }
    families
}

/// A client's name in Prometheus' characters.
fn name_of(name: &str) -> String {
    format!("{PREFIX}{}", plain(name.strip_prefix(KAFKAS_PREFIX).unwrap_or(name)))
}

fn plain(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' }).collect()
}
