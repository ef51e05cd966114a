//! Listening: accepts connections for a node and serves each in a task of its own.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::cluster::Cluster;
use crate::connection::serve;

/// Pause after an accept that failed for want of file descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A listener of one node.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    cluster: Arc<Cluster>,
    node: i32,
}

impl Server {
    /// Binds `address` for node `node` and tells clients to connect to `advertise`, or to the address itself.
    pub async fn bind(
        cluster: Arc<Cluster>,
        node: i32,
        address: SocketAddr,
        advertise: Option<(&str, u16)>,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let local = listener.local_addr()?;
        if let Some(node) = cluster.node(node) {
            match advertise {
                // Port 0 stands for the one that was bound.
                Some((host, 0)) => node.advertise(host, local.port()),
                Some((host, port)) => node.advertise(host, port),
                None => node.advertise(&local.ip().to_string(), local.port()),
            }
        }
        Ok(Self { listener, cluster, node })
    }

    /// The address that was bound.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Accepts and serves until it is dropped, and its connections with it.
    pub async fn run(self) {
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                biased;
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, _)) => {
                        if let Err(error) = stream.set_nodelay(true) {
                            tracing::debug!(%error, "TCP_NODELAY");
                        }
                        connections.spawn(serve(stream, self.cluster.clone(), self.node));
                    }
                    Err(error) => {
                        tracing::warn!(%error, "accept");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
                Some(_) = connections.join_next() => {}
            }
        }
    }
}
