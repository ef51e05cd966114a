//! A broker to embed: builder, start, stop.

mod builder;
mod control;
mod current_cluster;
mod listening;
mod periodic;
mod secure;
mod snapshot;
mod thread;

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ottla_log::storage::fs::LockError;
use tokio::io::DuplexStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

pub use self::builder::BrokerBuilder;
pub use self::control::{Control, ControlAnswer};
pub use self::snapshot::{Snapshot, SnapshotError};
pub use self::thread::BrokerThread;
use crate::cluster::nodes::Node;
use crate::cluster::{AddNodeError, Cluster, OpenError};
use crate::config::Listener;
use crate::connection::serve;
use crate::port::Port;
use crate::security::active_listener::ActiveListener;
use control::Ask;
use current_cluster::CurrentCluster;
use listening::{Advertised, advertise_host, bootstrap_servers_of};

/// Bytes each direction of an in-memory connection holds.
const MEMORY_PIPE_BYTES: usize = 1 << 20;

/// The longest wait for the listeners of a node that opens again: another process can have taken its address.
const LISTEN_WITHIN: Duration = Duration::from_secs(5);

/// The reasons why a broker does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The data directory cannot be used.
    #[error("data directory {dir}: {source}")]
    DataDir {
        /// The directory.
        dir: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// Another process uses the data directory.
    #[error(transparent)]
    Locked(#[from] LockError),
    /// The data cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The data in a directory cannot be opened.
    #[error("data directory {}: {source}", dir.display())]
    Data {
        /// The directory.
        dir: PathBuf,
        /// Why.
        source: OpenError,
    },
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The security of a listener cannot be used.
    #[error("listener {name}: {reason}")]
    Listener {
        /// Its name.
        name: String,
        /// Why.
        reason: String,
    },
    /// A property cannot be used, or contradicts a call of the builder.
    #[error("{0}")]
    Property(String),
    /// The directory of [`BrokerBuilder::secure`] cannot be used.
    #[error("secure directory: {0}")]
    Secure(String),
    /// A topic that was asked for cannot be created.
    #[error("topic `{name}`: {reason}")]
    Topic {
        /// Its name.
        name: String,
        /// Why.
        reason: String,
    },
    /// `advertise` is not `host` or `host:port`.
    #[error("advertise `{0}`: expected host or host:port")]
    Advertise(String),
    /// No thread or runtime can be made.
    #[error("no thread for the broker: {0}")]
    Thread(io::Error),
}

/// An address that was bound, with its node and listener.
#[derive(Clone, Debug)]
pub(crate) struct Bound {
    pub(crate) node: i32,
    pub(crate) listener: Arc<ActiveListener>,
    /// Held while nothing listens, too: during a restore.
    port: Arc<Port>,
}

impl Bound {
    pub(crate) fn address(&self) -> SocketAddr {
        self.port.address()
    }
}

/// A running broker: one or several nodes in this process.
///
/// [`Broker::stop`] closes the logs. A dropped broker ends without that, and the next start recovers them: its data directory is free when
/// the compactions, syncs and changes of topics that run have ended.
///
/// ```
/// use ottla_broker::Broker;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let broker = Broker::builder().memory().topic("orders", 3).start().await?;
/// println!("bootstrap.servers={}", broker.bootstrap_servers());
/// broker.stop().await;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Broker {
    current: CurrentCluster,
    /// The addresses of the first listener.
    addresses: Vec<SocketAddr>,
    listeners: Vec<(Listener, Arc<ActiveListener>)>,
    bound: Vec<Bound>,
    tasks: JoinSet<()>,
    /// The listeners with their connections.
    servers: JoinSet<()>,
    control: Control,
    /// The nodes and the restores that requests of [`Control`] ask for.
    asks: mpsc::UnboundedReceiver<Ask>,
    /// The lock on the directory of [`BrokerBuilder::secure`].
    _secure_lock: Option<Arc<File>>,
}

impl Broker {
    /// Returns a builder. By default the broker is in memory, with one node on an ephemeral loopback port.
    pub fn builder() -> BrokerBuilder {
        BrokerBuilder::default()
    }

    /// The value of `bootstrap.servers` for clients: every node's advertised address.
    pub fn bootstrap_servers(&self) -> String {
        bootstrap_servers(&self.cluster())
    }

    /// The value of `bootstrap.servers` for clients of this listener. `None` if there is no such listener.
    pub fn bootstrap_servers_of(&self, listener: &str) -> Option<String> {
        let names = self.listeners.iter().map(|(settings, _)| settings.name.as_str());
        bootstrap_servers_of(&self.cluster(), names, listener)
    }

    /// Each address that was bound.
    pub(crate) fn bound(&self) -> &[Bound] {
        &self.bound
    }

    /// The addresses of the first listener, by node.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The shared state of the nodes. [`Broker::restore`] puts another in its place.
    pub fn cluster(&self) -> Arc<Cluster> {
        self.current.get()
    }

    /// The listeners with their connections.
    pub(crate) fn servers(&mut self) -> &mut JoinSet<()> {
        &mut self.servers
    }

    /// A connection to the node with the id `node` in memory. The first one has the id 1 unless `node.id` is set.
    pub fn connect(&mut self, node: i32) -> DuplexStream {
        // Connections that have ended leave the set here.
        while self.tasks.try_join_next().is_some() {}
        let (client, server) = tokio::io::duplex(MEMORY_PIPE_BYTES);
        self.tasks.spawn(serve(server, self.cluster(), node));
        client
    }

    /// Adds a node to the running cluster, on an ephemeral port beside the first node, or a removed one again. In a broker without
    /// listeners it has the address of a host `node-N`, as the others have.
    ///
    /// # Errors
    /// See [`AddNodeError`].
    pub async fn add_node(&mut self, id: i32) -> Result<(), AddNodeError> {
        let cluster = self.cluster();
        if self.listeners.is_empty() {
            advertise_host(cluster.add_node(id)?);
            return Ok(());
        }
        if cluster.add_node(id)?.has_address() {
            let opened = tokio::time::timeout(LISTEN_WITHIN, cluster.listeners_followed(id)).await;
            return opened.map_err(|_| {
                cluster.remove_node(id);
                AddNodeError::NoListener(id)
            });
        }
        self.listen(id, |first, _| SocketAddr::new(first.ip(), 0), Advertised::Host).await.map_err(|error| {
            tracing::warn!(%error, node = id, "an added node cannot listen");
            cluster.remove_node(id);
            AddNodeError::NoListener(id)
        })
    }

    /// The requests of a control address. Nodes are added and snapshots are restored while
    /// [`serve_control`](Self::serve_control) runs.
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    /// Adds the nodes and restores the snapshots that requests of [`control`](Self::control) ask for. Never ends; after a drop
    /// during a restore, the broker serves nothing until the next restore.
    pub async fn serve_control(&mut self) -> std::convert::Infallible {
        loop {
            // The client may be gone.
            match self.asks.recv().await {
                Some(Ask::AddNode { id, done }) => drop(done.send(self.add_node(id).await)),
                Some(Ask::Restore { snapshot, done }) => drop(done.send(self.restore(&snapshot).await)),
                None => std::future::pending().await,
            }
        }
    }

    /// Cuts every connection and closes the logs, so that the next start need not recover anything. Waits for the disk without a limit: a
    /// caller that has one drops the future, which drops the broker.
    pub async fn stop(mut self) {
        self.control.end_forks().await;
        self.end_work().await;
        let cluster = self.cluster();
        cluster.finish_syncs().await;
        cluster.close();
        cluster.data_lock.release();
    }

    /// Cuts every connection and ends the periodic work.
    async fn end_work(&mut self) {
        let cluster = self.cluster();
        cluster.compactions.stop();
        self.servers.shutdown().await;
        self.tasks.shutdown().await;
        cluster.compactions.stopped().await;
        cluster.share_groups.stop().await;
        cluster.share_leader.stop().await;
        cluster.transactions.stop().await;
        // The last: these tasks change topics, too.
        cluster.changes_ended().await;
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let cluster = self.cluster();
        cluster.compactions.stop();
        cluster.share_groups.abort();
        cluster.share_leader.abort();
        cluster.transactions.abort();
        self.servers.abort_all();
        self.tasks.abort_all();
        // Work on other threads keeps the directory until it ends.
        cluster.data_lock.leave();
    }
}

fn bootstrap_servers(cluster: &Cluster) -> String {
    cluster.nodes_up().map(Node::advertised).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Their tasks stayed until the end of the broker.
    #[tokio::test]
    async fn connections_in_memory_that_have_ended_are_forgotten() {
        let builder = Broker::builder().memory().no_listener();
        let mut broker = builder.start().await.expect("a broker in memory");
        for _ in 0..100 {
            drop(broker.connect(1));
        }
        let forgotten = async {
            loop {
                drop(broker.connect(1));
                if broker.tasks.len() < 10 {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), forgotten).await.expect("they have ended");
        broker.stop().await;
    }
}
