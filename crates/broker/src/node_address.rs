//! The addresses of nodes, as scripts and supervisors of a broker need them.

use std::net::SocketAddr;

use crate::broker::{Bound, Broker};

/// A node and its addresses at one listener.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct NodeAddress {
    /// The node id.
    pub id: i32,
    /// The name of the listener.
    pub listener: String,
    /// The address that the node listens on.
    pub listen: SocketAddr,
    /// The address that clients connect to, as `host:port`.
    pub advertised: String,
}

impl Broker {
    /// Returns the nodes with their addresses, one entry per listener.
    pub fn node_addresses(&self) -> Vec<NodeAddress> {
        let cluster = self.cluster();
        let bound = self.bound().iter().filter_map(|bound| {
            let Bound { node: id, listener, .. } = bound;
            let advertised = cluster.node(*id)?.advertised_at(listener.index);
            Some(NodeAddress {
                id: *id,
                listener: listener.name.clone(),
                listen: bound.address(),
                advertised,
            })
        });
        bound.collect()
    }
}
