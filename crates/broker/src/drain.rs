//! The orderly end of a broker: no new connections, responses to the requests that have arrived, and then the end of each
//! connection.
//!
//! A connection ends when its requests are answered. JoinGroup and SyncGroup are the exception: they wait for requests of
//! other members, which are not read any more. Their members find the group again when the broker is back. The connections of a node that a
//! test has paused end without responses.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::broker::Broker;
use crate::cluster::Cluster;

/// Interval at which waiting fetches are woken. One that began to wait in between would delay the end.
const WAKE_INTERVAL: Duration = Duration::from_millis(50);

impl Broker {
    /// Closes the listeners, answers the requests that have arrived, and ends each connection after its last response.
    /// Returns the number of connections that have not ended within `limit`; [`Broker::stop`] cuts them.
    ///
    /// A fetch that waits for records is answered without them. A client that waits for other members of its group
    /// receives no response.
    ///
    /// Cancel safe: the listeners stay closed, and another call continues.
    pub async fn drain(&mut self, limit: Duration) -> usize {
        let cluster = self.cluster();
        cluster.serving.turn(false);
        let servers = self.servers();
        let ended = async { while servers.join_next().await.is_some() {} };
        let wakes = async {
            loop {
                cluster.wake_fetches();
                tokio::time::sleep(WAKE_INTERVAL).await;
            }
        };
        tokio::select! {
            biased;
            () = ended => {}
            () = wakes => {}
            () = tokio::time::sleep(limit) => {}
        }
        cluster.connections_open()
    }
}

impl Cluster {
    /// Returns `true` after the start of [`Broker::drain`].
    pub fn is_draining(&self) -> bool {
        !self.serving.is_on()
    }

    /// Returns the number of open connections of all nodes.
    pub fn connections_open(&self) -> usize {
        self.nodes.iter().map(|node| node.connections.load(Ordering::Relaxed)).sum()
    }

    fn wake_fetches(self: &Arc<Self>) {
        for topic in self.topics() {
            topic.partitions.iter().for_each(|partition| partition.tail().wake_all());
        }
    }
}
