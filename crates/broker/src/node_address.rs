//! The addresses of nodes, as scripts and supervisors of a broker need them.

use std::net::SocketAddr;

use crate::broker::Broker;

/// A node and its addresses.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct NodeAddress {
    /// The node id.
    pub id: i32,
    /// The address that the node listens on.
    pub listen: SocketAddr,
    /// The address that clients connect to, as `host:port`.
    pub advertised: String,
}

impl Broker {
    /// Returns the nodes that the broker was started with, and their addresses.
    pub fn node_addresses(&self) -> Vec<NodeAddress> {
        let nodes = self.cluster().nodes.iter().zip(self.addresses());
        nodes
            .map(|(node, listen)| NodeAddress { id: node.id, listen: *listen, advertised: node.advertised() })
            .collect()
    }
}
