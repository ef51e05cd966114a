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
                "address": socket_address(&client.address, client.port),
                "interval_ms": interval_ms,
                "pushes": pushes,
                "pushed_at_ms": pushed_at_ms,
                "metrics": metrics.collect::<Vec<_>>(),
            })
        };
        clients.into_iter().map(client).collect()
    }
}

/// An address as programs read it: an IPv6 address has brackets.
fn socket_address(ip: &str, port: u16) -> String {
    if ip.contains(':') { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv6Addr, SocketAddr};

    use super::*;

    /// It was `0:0:0:0:0:0:0:1:54321`.
    #[test]
    fn the_address_of_a_client_can_be_read() {
        assert_eq!(socket_address("127.0.0.1", 54_321), "127.0.0.1:54321");
        let address = socket_address("0:0:0:0:0:0:0:1", 54_321);
        let local = SocketAddr::from((Ipv6Addr::LOCALHOST, 54_321));
        assert_eq!(address.parse::<SocketAddr>(), Ok(local));
    }
}
