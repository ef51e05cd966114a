//! The limits for the number of connections: `max.connections`, and `max.connections.per.ip` for each address.
//!
//! As in Kafka's `ConnectionQuotas`, a connection counts from its accept on: a TLS handshake costs as much as many requests.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::Transport;
use crate::cluster::Cluster;
use crate::cluster::client_addresses::AddressPlace;
use crate::cluster::nodes::Node;
use crate::peer::Peer;

const MAX: &str = "max.connections";
const MAX_PER_IP: &str = "max.connections.per.ip";

/// A connection within the limits. It is one of its node and of its address until this is dropped: also if the connection ends with a
/// panic, or its future is dropped.
pub(crate) struct Admitted<'a> {
    _open: Open<'a>,
    /// `None` for an in-process client, which has no address.
    _place: Option<AddressPlace<'a>>,
}

/// Counts a connection of a node until it is dropped.
struct Open<'a>(&'a AtomicUsize);

impl<'a> Open<'a> {
    /// Returns the number of those that were open before, too.
    fn enter(count: &'a AtomicUsize) -> (Self, usize) {
        let before = count.fetch_add(1, Ordering::Relaxed);
        (Self(count), before)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Takes a new connection in. `None` if a limit is reached: that is reported. As in Kafka, a lower limit closes no open connection.
pub(crate) fn admit<'a, T: Transport>(io: &T, cluster: &Cluster, node: &'a Node) -> Option<Admitted<'a>> {
    let config = cluster.live.broker();
    let (open, before) = Open::enter(&node.connections);
    if before >= config.connections_max {
        report_full(io, cluster, MAX, config.connections_max);
        return None;
    }
    let Some(address) = io.peer_address().map(|address| address.ip()) else {
        return Some(Admitted { _open: open, _place: None });
    };
    let max = config.connections_per_ip.max_of(address);
    let place = node.client_addresses.enter(address, max);
    if place.is_none() {
        report_full(io, cluster, MAX_PER_IP, max);
    }
    place.map(|place| Admitted { _open: open, _place: Some(place) })
}

fn report_full<T: Transport>(io: &T, cluster: &Cluster, limit: &str, max: usize) {
    cluster.metrics.connections_refused.fetch_add(1, Ordering::Relaxed);
    cluster.warnings.warn_full(&Peer::new(io.peer_address()), limit, max);
}
