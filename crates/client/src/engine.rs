//! The engine: the thread behind a client, which owns every task.
//!
//! The application and the engine exchange data in three ways only: commands through a channel, records through
//! [`produce::queue`](crate::produce::queue), and fetched data through each consumer's queue.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::task::{JoinSet, LocalSet};

use crate::cluster::Cluster;
use crate::config::Config;
use crate::error::Error;
use crate::net::Network;
use crate::produce::Produce;
use crate::produce::sender::Sender;
use crate::telemetry::Telemetry;

/// Work for the engine, which runs it as a task with access to the cluster.
pub(crate) type Command = Box<dyn FnOnce(Rc<Cluster>) -> Pin<Box<dyn Future<Output = ()>>> + Send>;

/// Drives a client: connections, metadata, produce and fetch requests, groups.
///
/// `Send` until it runs. [`Client::new`](crate::Client::new) runs it on its own thread; tests and simulations get it
/// from [`Client::with_engine`](crate::Client::with_engine) and run it themselves.
#[must_use = "nothing happens until the engine runs"]
pub struct Engine {
    config: Arc<Config>,
    network: Network,
    produce: Arc<Produce>,
    commands: mpsc::UnboundedReceiver<Command>,
    rng: fastrand::Rng,
    /// `true` if the engine may start threads; `false` if the caller drives it.
    pub(crate) threads: bool,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("client_id", &self.config.client_id).finish_non_exhaustive()
    }
}

impl Engine {
    pub(crate) fn new(
        config: Arc<Config>,
        network: Network,
        produce: Arc<Produce>,
        commands: mpsc::UnboundedReceiver<Command>,
        rng: fastrand::Rng,
    ) -> Self {
        Self { config, network, produce, commands, rng, threads: false }
    }

    /// Runs until every handle of the client is dropped. Dropping the future acts as a crash: it cuts connections and loses
    /// queued records.
    ///
    /// # Errors
    /// [`Error::Config`] when the bootstrap servers cannot be parsed. [`Error::Closed`] when a task of the client has panicked;
    /// the log has the reason, and all calls and queued records get an error.
    pub async fn run(self) -> Result<(), Error> {
        let Self { config, network, produce, mut commands, rng, threads } = self;
        let cluster = Cluster::new(config, network, rng)?;
        let ended = cluster.observer.clone();
        let local = LocalSet::new();
        local
            .run_until(async move {
                let mut tasks = JoinSet::new();
                let observer = &cluster.observer;
                tasks.spawn_local(observer.clone().watched("metadata", cluster.clone().keep_fresh()));
                if cluster.config.connect_to_learned_broker {
                    let connections = cluster.clone().keep_learned_broker();
                    tasks.spawn_local(observer.clone().watched("connections", connections));
                }
                if let Some(authenticator) = cluster.brokers.authenticator().cloned() {
                    let log = observer.clone();
                    let renewal = async move {
                        authenticator.keep_fresh(|reason| log.no_ticket(&reason)).await;
                    };
                    tasks.spawn_local(observer.clone().watched("tickets", renewal));
                }
                let collector = crate::collector::run(cluster.clone(), produce.clone());
                tasks.spawn_local(observer.clone().watched("statistics", collector));
                let sender = Sender::run(cluster.clone(), produce.clone(), threads);
                tasks.spawn_local(observer.clone().watched("sender", sender));
                let telemetry = Telemetry::new(cluster.clone(), produce.clone());
                if let Some(telemetry) = telemetry.clone() {
                    tasks.spawn_local(observer.clone().watched("metrics", telemetry.run()));
                }
                loop {
                    tokio::select! {
                        biased;
                        () = observer.failure.wait() => break,
                        command = commands.recv() => match command {
                            Some(command) => {
                                tasks.spawn_local(command(cluster.clone()));
                            }
                            None => break,
                        },
                        Some(ended) = tasks.join_next() => {
                            // The caller of the command gets `Error::Closed`.
                            if let Err(error) = ended {
                                tracing::error!(%error, "a call has panicked in the engine");
                            }
                        }
                    }
                }
                produce.close();
                if let Some(telemetry) = telemetry.filter(|_| !observer.failure.is_set()) {
                    telemetry.finish().await;
                }
                produce.observer.ended();
            })
            .await;
        if ended.failure.is_set() { Err(Error::Closed) } else { Ok(()) }
    }
}
