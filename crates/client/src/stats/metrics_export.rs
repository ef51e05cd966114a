//! The statistics through the `metrics` facade, once per interval.

use metrics::{Label, counter, gauge};

use super::prometheus::{BROKER, BROKER_WINDOWS, CLIENT, Kind, PARTITION, QUANTILES, SHARE, TOPIC_WINDOWS};
use super::snapshot::{Snapshot, Window};

/// Passes the values of a snapshot to the program's installed recorder.
pub(super) fn publish(snapshot: &Snapshot) {
    let client = [Label::new("client", snapshot.name.clone())];
    for (name, _, kind, value) in CLIENT {
        number(name, *kind, &client, value(snapshot));
    }
    if let Some(share) = &snapshot.share {
        for (name, _, kind, value) in SHARE {
            number(name, *kind, &client, value(share));
        }
    }
    for broker in snapshot.brokers.values() {
        let labels = with(&client, "broker", &broker.name);
        for (name, _, kind, value) in BROKER {
            number(name, *kind, &labels, value(broker));
        }
        for (name, _, of) in BROKER_WINDOWS {
            window(name, &labels, of(broker));
        }
    }
    for topic in snapshot.topics.values() {
        let labels = with(&client, "topic", &topic.topic);
        for (name, _, of) in TOPIC_WINDOWS {
            window(name, &labels, of(topic));
        }
        for partition in topic.partitions.values() {
            let labels = with(&labels, "partition", &partition.partition.to_string());
            for (name, _, kind, value) in PARTITION {
                number(name, *kind, &labels, value(partition));
            }
        }
    }
}

fn with(labels: &[Label], name: &'static str, value: &str) -> Vec<Label> {
    labels.iter().cloned().chain([Label::new(name, value.to_owned())]).collect()
}

fn number(name: &str, kind: Kind, labels: &[Label], value: u64) {
    let name = format!("ottla_{name}");
    match kind {
        Kind::Counter => counter!(name, labels.iter()).absolute(value),
        Kind::Gauge => gauge!(name, labels.iter()).set(value as f64),
    }
}

fn window(name: &str, labels: &[Label], window: &Window) {
    for (quantile, value) in QUANTILES {
        let labels = with(labels, "quantile", quantile);
        gauge!(format!("ottla_{name}"), labels.iter()).set(value(window) as f64);
    }
    counter!(format!("ottla_{name}_count"), labels.iter()).absolute(window.total_cnt);
    counter!(format!("ottla_{name}_sum"), labels.iter()).absolute(window.total_sum);
}
