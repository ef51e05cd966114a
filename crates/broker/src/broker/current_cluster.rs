//! The cluster that a broker serves now: a restored snapshot takes its place.

use std::sync::{Arc, PoisonError, RwLock};

use ottla_log::storage::mem::MemStorage;

use super::BrokerBuilder;
use super::snapshot::{Snapshot, SnapshotError};
use crate::cluster::Cluster;

/// Shared by the broker, its handles and its control address.
#[derive(Clone, Debug)]
pub(crate) struct CurrentCluster(Arc<RwLock<Served>>);

#[derive(Debug)]
struct Served {
    cluster: Arc<Cluster>,
    /// The source of snapshots; a broker with a data directory has none.
    source: Option<Source>,
}

/// The disk of a broker in memory, and the settings of brokers that start from copies of it.
#[derive(Clone, Debug)]
pub(super) struct Source {
    pub(super) disk: Arc<MemStorage>,
    pub(super) settings: BrokerBuilder,
}

impl CurrentCluster {
    pub(super) fn new(cluster: Arc<Cluster>, source: Option<Source>) -> Self {
        Self(Arc::new(RwLock::new(Served { cluster, source })))
    }

    pub(crate) fn get(&self) -> Arc<Cluster> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).cluster.clone()
    }

    pub(crate) fn snapshot(&self) -> Result<Snapshot, SnapshotError> {
        let served = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let source = served.source.as_ref().ok_or(SnapshotError::NotInMemory)?;
        let (disk, nodes) = (source.disk.fork(), served.cluster.node_ids().collect());
        Ok(Snapshot::new(disk, nodes, source.settings.clone()))
    }

    pub(super) fn settings(&self) -> Option<BrokerBuilder> {
        let served = self.0.read().unwrap_or_else(PoisonError::into_inner);
        served.source.as_ref().map(|source| source.settings.clone())
    }

    pub(super) fn replace(&self, cluster: Arc<Cluster>, source: Source) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Served { cluster, source: Some(source) };
    }
}
