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
                let keeping = keep_open(self.cluster.clone(), node);
                task.spawn_local(self.cluster.observer.clone().watched("kept connections", keeping));
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::task::LocalSet;

    use super::*;
    use crate::config::Config;
    use crate::net::Network;
    use crate::net::connector::TcpConnector;
    use crate::stats::Observer;

    /// The panic was dropped with the task: no poll learned of it, and the connection stayed closed.
    #[tokio::test(start_paused = true)]
    async fn a_panic_while_a_connection_is_kept_open_ends_the_client() {
        let config = Arc::new(Config::new("b"));
        let observer = Observer::new(&config, 1);
        let connector = Arc::new(TcpConnector::default());
        let network = Network { connector, authenticator: None, observer: observer.clone() };
        let cluster = Cluster::new(config, network, fastrand::Rng::with_seed(1)).expect("an address");
        let keeping = async {
            let mut connections = KeptConnections::new(cluster.clone());
            cluster.brokers.break_down();
            connections.keep(std::iter::once(1));
            let failed = observer.failure.wait();
            tokio::time::timeout(Duration::from_secs(30), failed).await.expect("it has failed");
        };
        LocalSet::new().run_until(keeping).await;
    }
}
