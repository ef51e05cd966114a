//! The clients that push their metrics, for requests.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::Control;
use crate::client_metrics::PushedClient;

impl Control {
    /// Each client with the values of its last push.
    pub(super) fn clients(&self) -> Vec<Value> {
        let clients = self.cluster().pushed_clients();
        let client = |pushed: PushedClient| {
            let PushedClient { id_text, client, interval_ms, pushes, pushed_at_ms, samples } = pushed;
            let metrics = samples.iter().map(|sample| {
                let labels = sample.labels.iter().map(|(name, value)| (&**name, &**value));
                let labels: BTreeMap<&str, &str> = labels.collect();
                json!({ "name": sample.name, "labels": labels, "value": sample.value })
            });
            json!({
                "client_instance_id": id_text,
                "client_id": client.client_id,
                "software": format!("{} {}", client.software_name, client.software_version),
                "address": format!("{}:{}", client.address, client.port),
                "interval_ms": interval_ms,
                "pushes": pushes,
                "pushed_at_ms": pushed_at_ms,
                "metrics": metrics.collect::<Vec<_>>(),
            })
        };
        clients.into_iter().map(client).collect()
    }
}
