//! The limits for the number of connections: `max.connections`, and `max.connections.per.ip` for each address.

use std::sync::atomic::Ordering;

use super::Transport;
use crate::cluster::Cluster;
use crate::cluster::client_addresses::AddressPlace;
use crate::cluster::nodes::Node;
use crate::peer::Peer;

const MAX: &str = "max.connections";
const MAX_PER_IP: &str = "max.connections.per.ip";

/// A connection within the limits. It is one of its address until this is dropped.
pub(super) struct Admitted<'a> {
    /// `None` for an in-process client, which has no address.
    _place: Option<AddressPlace<'a>>,
}

/// Takes a new connection in; `before` others of the node are open. `None` if a limit is reached: that is reported. As in Kafka, a lower
/// limit closes no open connection.
pub(super) fn admit<'a, T: Transport>(
    io: &T,
    cluster: &Cluster,
    node: &'a Node,
    before: usize,
) -> Option<Admitted<'a>> {
    let config = cluster.live.broker();
    if before >= config.connections_max {
        report_full(io, cluster, MAX, config.connections_max);
        return None;
    }
    let Some(address) = io.peer_address().map(|address| address.ip()) else {
        return Some(Admitted { _place: None });
    };
    let max = config.connections_per_ip.max_of(address);
    let place = node.client_addresses.enter(address, max);
    if place.is_none() {
        report_full(io, cluster, MAX_PER_IP, max);
    }
    place.map(|place| Admitted { _place: Some(place) })
}

/// Returns `true`, and reports it, if the address of a client has as many connections as it may have: a TLS handshake costs as much as
/// many requests.
pub(crate) fn is_address_full<T: Transport>(io: &T, cluster: &Cluster, node: i32) -> bool {
    let address = io.peer_address().map(|address| address.ip());
    let (Some(address), Some(node)) = (address, cluster.node(node)) else { return false };
    let max = cluster.live.broker().connections_per_ip.max_of(address);
    if node.client_addresses.has_room(address, max) {
        return false;
    }
    report_full(io, cluster, MAX_PER_IP, max);
    true
}

fn report_full<T: Transport>(io: &T, cluster: &Cluster, limit: &str, max: usize) {
    cluster.metrics.connections_refused.fetch_add(1, Ordering::Relaxed);
    cluster.warnings.warn_full(&Peer::new(io.peer_address()), limit, max);
}
