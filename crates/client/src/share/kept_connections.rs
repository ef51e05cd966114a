//! The connections to the leaders that have a session of a share consumer. One that is closed, for example because it was idle,
//! is opened again at once, so that the next poll need not wait for it.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use tokio::task::JoinSet;

use crate::cluster::Cluster;
use crate::cluster::brokers::Lane;

/// The shortest pause before a connection is opened again, also with `reconnect.backoff.ms=0`.
const PAUSE_MIN: Duration = Duration::from_millis(10);

/// Dropping it keeps nothing open any more; open connections stay.
pub(super) struct KeptConnections {
    cluster: Rc<Cluster>,
    by_node: BTreeMap<i32, JoinSet<()>>,
}

impl KeptConnections {
    pub(super) fn new(cluster: Rc<Cluster>) -> Self {
        Self { cluster, by_node: BTreeMap::new() }
    }

    /// Keeps connections to exactly these nodes, which are in ascending order.
    pub(super) fn keep(&mut self, nodes: impl Iterator<Item = i32> + Clone) {
        if nodes.clone().eq(self.by_node.keys().copied()) {
            return;
        }
        self.by_node.retain(|node, _| nodes.clone().any(|kept| kept == *node));
        for node in nodes {
            self.by_node.entry(node).or_insert_with(|| {
                let mut task = JoinSet::new();
                task.spawn_local(keep_open(self.cluster.clone(), node));
                task
            });
        }
    }
}

async fn keep_open(cluster: Rc<Cluster>, node: i32) {
    // A broker may close each connection as soon as it is open.
    let pause = cluster.config.reconnect_backoff.max(PAUSE_MIN);
    loop {
        if let Ok(connection) = cluster.brokers.connection(node, Lane::Share).await {
            connection.closed().await;
        }
        tokio::time::sleep(pause).await;
    }
}
