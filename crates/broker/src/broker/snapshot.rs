//! Snapshots of a broker in memory: copies that share their bytes with it, and the brokers that continue from them.

use std::net::SocketAddr;
use std::sync::Arc;

use ottla_log::storage::mem::MemStorage;

use super::current_cluster::Source;
use super::listening::{Advertised, advertised_host, prepare_listeners};
use super::{Bound, Broker, BrokerBuilder, StartError};
use crate::cluster::{Cluster, Seams, lock};

/// Everything that a broker in memory would have after a restart, at one instant: topics and their records, groups with their
/// offsets, transactions, configurations, users and ACLs.
///
/// It shares its bytes with the broker until one of both changes them. It is without connections, faults, moved leaders and
/// other things that tests arrange.
///
/// ```
/// use ottla_broker::Broker;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut broker = Broker::builder().memory().topic("orders", 3).start().await?;
/// let prepared = broker.snapshot()?;
/// // Another broker with the same data, on ports of its own:
/// let fork = broker.fork().await?;
/// fork.cluster().add_topic("scratch", 1)?;
/// assert_eq!(broker.cluster().partitions_of("scratch"), None);
/// // The same broker with the data that it had, at the same addresses:
/// broker.cluster().remove_topic("orders")?;
/// broker.restore(&prepared).await?;
/// assert_eq!(broker.cluster().partitions_of("orders"), Some(3));
/// # fork.stop().await;
/// # broker.stop().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Snapshot {
    disk: Arc<MemStorage>,
    nodes: Vec<i32>,
    settings: BrokerBuilder,
}

/// The reasons why a snapshot cannot be taken or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// The data is in a directory, or in a storage that the builder was given.
    #[error("only a broker in memory has snapshots: start this one without a data directory")]
    NotInMemory,
    /// The broker cannot start with the data of the snapshot.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The broker has stopped.
    #[error("the broker has stopped")]
    Stopped,
}

impl Snapshot {
    pub(super) fn new(disk: MemStorage, nodes: Vec<i32>, settings: BrokerBuilder) -> Self {
        Self { disk: Arc::new(disk), nodes, settings }
    }

    /// A builder of another broker with this data: with the settings of the broker that it was taken of, on ephemeral ports
    /// of the same hosts.
    /// The snapshot does not change, however many brokers start from it.
    pub fn builder(&self) -> BrokerBuilder {
        let mut builder = self.settings.clone();
        for listener in &mut builder.listeners {
            listener.address.set_port(0);
            listener.advertise = listener.advertise.as_deref().and_then(advertised_host);
        }
        builder.copy = Some((Arc::new(self.disk.fork()), self.nodes.clone()));
        builder
    }
}

impl Broker {
    /// Copies the data of a broker in memory, in about a millisecond. Requests go on meanwhile: what is answered before the
    /// call is in the copy, and what is sent after it is not.
    ///
    /// # Errors
    /// [`SnapshotError::NotInMemory`].
    pub fn snapshot(&self) -> Result<Snapshot, SnapshotError> {
        self.current.snapshot()
    }

    /// Starts another broker with a copy of the data as it is now, on ephemeral ports. Faults stay with this one.
    ///
    /// # Errors
    /// See [`SnapshotError`].
    pub async fn fork(&self) -> Result<Self, SnapshotError> {
        Ok(self.snapshot()?.builder().start().await?)
    }

    /// Replaces the data by that of a snapshot. The addresses stay, all connections are cut, and every arrangement of tests is
    /// gone, but for observers and counts of requests. The ids of later faults are new.
    ///
    /// Clients connect again, and meet a broker that has lost what came after the snapshot: leader epochs and producer ids are
    /// higher than any that were used before. The next producer of a transactional id gets a new producer id, too, which fences those
    /// of before. [`Broker::cluster`] returns another cluster afterwards.
    ///
    /// Cancel safe: after a drop or an error the broker serves nothing until the next restore.
    ///
    /// # Errors
    /// See [`SnapshotError`].
    pub async fn restore(&mut self, snapshot: &Snapshot) -> Result<(), SnapshotError> {
        let mut settings = self.current.settings().ok_or(SnapshotError::NotInMemory)?;
        self.end_work().await;
        let before = self.cluster();
        settings.config = snapshot.settings.config.clone();
        let disk = Arc::new(snapshot.disk.fork());
        let seams = Seams {
            storage: disk.clone(),
            clock: settings.clock.clone(),
            syncer: settings.syncer,
            seed: lock(&before.rng).u64(..),
        };
        let (config, nodes) = (settings.config.clone(), settings.nodes);
        let floors = before.id_floors();
        let cluster = Cluster::open_above(config, nodes, seams, floors).map_err(StartError::from)?;
        cluster.transactions.renew_producers_below(floors.producer_id);
        prepare_listeners(&cluster, &self.listeners)?;
        cluster.set_nodes(&snapshot.nodes);
        cluster.intercepts.continue_counts(&before.intercepts);
        cluster.disk_faults.continue_ids(&before.disk_faults);
        cluster.overrides.arrange(|state| state.observers = before.overrides.observers().unwrap_or_default());
        // The snapshot may be of a broker with another `node.id`: its first node gets the address of the first one here.
        let shift = cluster.nodes.first_id() - before.nodes.first_id();
        for bound in &mut self.bound {
            bound.node = bound.node.wrapping_add(shift);
        }
        self.current.replace(cluster, Source { disk, settings });
        let (bound, addresses) = (self.bound.clone(), self.addresses.len());
        let address_of = |first: SocketAddr, node, index| {
            let same = bound.iter().rev().find(|bound| (bound.node, bound.listener.index) == (node, index));
            same.map_or(SocketAddr::new(first.ip(), 0), Bound::address)
        };
        let ids = self.cluster().config.node_ids(nodes);
        let advertised = |node| if ids.contains(&node) { Advertised::HostAndPort } else { Advertised::Host };
        let served = self.serve_all(address_of, advertised).await;
        if served.is_err() {
            self.servers.shutdown().await;
            self.bound.truncate(bound.len());
            self.addresses.truncate(addresses);
        } else {
            self.addresses.drain(..addresses);
            // The ports of nodes that this snapshot does not have are those of the next one that has them.
            let mut others: Vec<Bound> = self.bound.drain(..bound.len()).collect();
            let is_served = |other: &Bound| {
                let mut served = self.bound.iter().map(|bound| (bound.node, bound.listener.index));
                served.any(|served| served == (other.node, other.listener.index))
            };
            others.retain(|other| !is_served(other));
            others.append(&mut self.bound);
            self.bound = others;
        }
        served?;
        Ok(())
    }
}
