//! A broker whose listeners are hosts of the simulated network.

use std::collections::BTreeMap;
use std::sync::Arc;

use ottla_broker::{AddNodeError, Broker, Cluster, Snapshot, SnapshotError};
use tokio::task::JoinSet;

use crate::network::{Network, host_of};

/// A broker on virtual time; see [`VirtualTime::start_broker`](crate::VirtualTime::start_broker). A drop cuts its
/// connections and ends it.
#[derive(Debug)]
pub struct VirtualBroker {
    broker: Broker,
    hosts: Hosts,
    servers: JoinSet<()>,
}

/// The hosts of a broker. A drop closes them at once: the tasks of the broker end later.
#[derive(Debug)]
struct Hosts {
    network: Network,
    /// The last listener of each host. Those of the next broker of the network stay.
    listeners: BTreeMap<String, u64>,
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for (host, listener) in &self.listeners {
            self.network.close(host, *listener);
        }
    }
}

impl VirtualBroker {
    pub(crate) fn serve(broker: Broker, network: Network) -> Self {
        let hosts = Hosts { network, listeners: BTreeMap::new() };
        let mut serving = Self { broker, hosts, servers: JoinSet::new() };
        serving.listen();
        serving
    }

    fn listen(&mut self) {
        for node in self.broker.cluster().nodes() {
            self.serve_node(node);
        }
    }

    fn serve_node(&mut self, node: i32) {
        let (listener, serving) = self.hosts.network.serve_numbered(self.broker.cluster(), node);
        self.hosts.listeners.insert(host_of(node), listener);
        self.servers.spawn(serving);
    }

    /// The value of `bootstrap.servers` for clients: `node-1:9092`, and so on for each node.
    pub fn bootstrap_servers(&self) -> String {
        self.broker.bootstrap_servers()
    }

    /// Returns the state of the nodes, with the calls that arrange faults. [`restore`](Self::restore) replaces it.
    pub fn cluster(&self) -> Arc<Cluster> {
        self.broker.cluster()
    }

    /// Adds a node to the running cluster as the host `node-N`, or a removed one again: [`Broker::add_node`].
    ///
    /// # Errors
    /// See [`AddNodeError`].
    pub async fn add_node(&mut self, id: i32) -> Result<(), AddNodeError> {
        self.broker.add_node(id).await?;
        self.serve_node(id);
        Ok(())
    }

    /// Copies the data as it is now: [`Broker::snapshot`].
    ///
    /// # Errors
    /// [`SnapshotError::NotInMemory`] if the builder was given a directory or a storage.
    pub fn snapshot(&self) -> Result<Snapshot, SnapshotError> {
        self.broker.snapshot()
    }

    /// Cuts all connections and replaces the data by that of a snapshot: [`Broker::restore`]. The hosts stay.
    ///
    /// Cancel safe: after a drop or an error the broker serves nothing until the next restore.
    ///
    /// # Errors
    /// See [`SnapshotError`].
    pub async fn restore(&mut self, snapshot: &Snapshot) -> Result<(), SnapshotError> {
        self.servers.shutdown().await;
        self.broker.restore(snapshot).await?;
        self.listen();
        Ok(())
    }

    /// Cuts all connections and stops the broker: [`Broker::stop`].
    pub async fn stop(mut self) {
        self.servers.shutdown().await;
        self.broker.stop().await;
    }
}
