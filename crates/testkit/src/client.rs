//! A client whose engine is a task of the test's thread.

use std::ops::Deref;
use std::sync::Arc;

use ottla_client::{Client, Config, Error};
use tokio::task::JoinSet;

use crate::network::Network;

/// A client on virtual time; see [`VirtualTime::client`](crate::VirtualTime::client). It dereferences to
/// [`Client`], which creates producers, consumers and admins.
///
/// A drop is a crash: connections are cut, queued records are lost, and members do not leave their groups. For an orderly end,
/// call [`Producer::flush`](ottla_client::Producer::flush) or [`Consumer::close`](ottla_client::Consumer::close) before.
#[derive(Debug)]
pub struct VirtualClient {
    client: Client,
    engine: JoinSet<()>,
}

impl VirtualClient {
    pub(crate) fn start(config: Config, network: &Network, seed: u64) -> Result<Self, Error> {
        let (client, engine) = Client::with_engine(config, Arc::new(network.clone()), seed)?;
        let mut tasks = JoinSet::new();
        tasks.spawn_local(async move {
            if let Err(error) = engine.run().await {
                tracing::error!(%error, "the engine stopped");
            }
        });
        Ok(Self { client, engine: tasks })
    }

    /// Ends the client as a kill of its process does, at the current instant. Drop its producers and consumers as well:
    /// deliveries do not complete any more, polls return no records, and calls that need the engine return
    /// [`Error::Closed`].
    pub async fn crash(mut self) {
        self.engine.shutdown().await;
    }
}

impl Deref for VirtualClient {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}
