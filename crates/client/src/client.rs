//! The handle that producers, consumers and admins of one cluster share.

use std::future::Future;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use tokio::sync::{mpsc, oneshot};

use crate::cluster::Cluster;
use crate::cluster::brokers::parse_addresses;
use crate::config::Config;
use crate::engine::{Command, Engine};
use crate::error::Error;
use crate::log::LogLine;
use crate::net::Network;
use crate::net::connector::{Connector, TcpConnector};
use crate::notices::Notices;
use crate::produce::Produce;
use crate::security::{Mechanism, Secret};
use crate::stats::snapshot::Snapshot;
use crate::stats::wanted::{AutoCommitted, BrokerState, Exchanged, Throttled};
use crate::stats::{Observer, prometheus};
use crate::watchdog::StallReport;

/// A client of one cluster: one engine thread, shared by every producer, consumer and admin made from it.
///
/// Cheap to clone. The engine stops when the last handle is gone; what is then still queued is reported as failed,
/// so [`Producer::flush`](crate::Producer::flush) first.
#[derive(Clone, Debug)]
pub struct Client {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    config: Arc<Config>,
    produce: Arc<Produce>,
    commands: Mutex<Option<mpsc::UnboundedSender<Command>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Client {
    /// A client with a thread of its own, over TCP.
    ///
    /// Connects when there is something to do: an unreachable broker shows in the first call, not here.
    ///
    /// # Errors
    /// [`Error::Config`] for contradictions and bad addresses, or when the system gives no thread.
    pub fn new(config: Config) -> Result<Self, Error> {
        let connector = TcpConnector::new(&config);
        Self::with_connector(config, Arc::new(connector))
    }

    /// A client with a thread of its own, over connections of the caller's making.
    pub fn with_connector(config: Config, connector: Arc<dyn Connector>) -> Result<Self, Error> {
        let (client, mut engine) = Self::with_engine(config, connector, fastrand::Rng::new().u64(..))?;
        engine.threads = true;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| Error::Config(format!("no runtime for the engine: {error}")))?;
        let run = move || {
            if let Err(error) = runtime.block_on(engine.run()) {
                tracing::error!(%error, "the engine stopped");
            }
        };
        let thread = std::thread::Builder::new()
            .name("ottla-engine".into())
            .spawn(run)
            .map_err(|error| Error::Config(format!("no thread for the engine: {error}")))?;
        *client.shared.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
        Ok(client)
    }

    /// A client whose engine the caller runs: the seam of tests and simulation. `seed` decides every random choice.
    pub fn with_engine(
        config: Config,
        connector: Arc<dyn Connector>,
        seed: u64,
    ) -> Result<(Self, Engine), Error> {
        let config = Arc::new(config.settled()?);
        let mut rng = fastrand::Rng::with_seed(seed);
        let observer = Observer::new(&config, seed);
        let produce = Produce::new(config.clone(), observer.clone(), rng.fork());
        let (commands, receiver) = mpsc::unbounded_channel();
        let network = Network::new(&config, connector, observer)?;
        let engine = Engine::new(config.clone(), network, produce.clone(), receiver, rng);
        // Addresses are checked now, not in a thread that nobody listens to.
        crate::cluster::brokers::check_addresses(&config.bootstrap_servers)?;
        let shared =
            Shared { config, produce, commands: Mutex::new(Some(commands)), thread: Mutex::new(None) };
        Ok((Self { shared: Arc::new(shared) }, engine))
    }

    /// The configuration it was made with.
    pub fn config(&self) -> &Arc<Config> {
        &self.shared.config
    }

    /// The statistics of each interval of `statistics.interval.ms`, newest last; nothing while that is 0.
    ///
    /// ```
    /// use ottla_client::{Client, Config};
    ///
    /// let mut config = Config::new("127.0.0.1:9092");
    /// config.set("statistics.interval.ms", "1000")?;
    /// let client = Client::new(config)?;
    /// if let Some(snapshot) = client.statistics().try_next() {
    ///     println!("{}", snapshot.to_json());
    /// }
    /// # Ok::<(), ottla_client::Error>(())
    /// ```
    pub fn statistics(&self) -> Notices<Arc<Snapshot>> {
        self.shared.produce.observer.statistics.clone()
    }

    /// The last interval's statistics in Prometheus' text format: an exporter's whole answer. Empty before the first
    /// interval of `statistics.interval.ms` has passed.
    ///
    /// Counters count from the client's beginning; the quantiles are those of the last interval.
    pub fn prometheus_text(&self) -> String {
        self.shared.produce.observer.last().map(|snapshot| prometheus::text(&snapshot)).unwrap_or_default()
    }

    /// Serves [`prometheus_text`](Self::prometheus_text) over HTTP, at `/metrics` of `listener`, on a thread of its own,
    /// until the endpoint is dropped.
    ///
    /// ```
    /// use std::net::TcpListener;
    /// use ottla_client::{Client, Config};
    ///
    /// let mut config = Config::new("127.0.0.1:9092");
    /// config.set("statistics.interval.ms", "1000")?;
    /// let client = Client::new(config)?;
    /// let endpoint = client.serve_prometheus(TcpListener::bind("127.0.0.1:0")?)?;
    /// println!("http://{}/metrics", endpoint.address());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Config`] when `statistics.interval.ms` is 0, or the system gives no thread.
    #[cfg(feature = "prometheus")]
    pub fn serve_prometheus(
        &self,
        listener: std::net::TcpListener,
    ) -> Result<crate::stats::endpoint::PrometheusEndpoint, Error> {
        self.serve_prometheus_and(listener, String::new)
    }

    /// The same, and behind it in the same answer what `more` says, in Prometheus' text format.
    ///
    /// # Errors
    /// As of [`serve_prometheus`](Self::serve_prometheus).
    #[cfg(feature = "prometheus")]
    pub fn serve_prometheus_and(
        &self,
        listener: std::net::TcpListener,
        more: impl Fn() -> String + Send + Sync + 'static,
    ) -> Result<crate::stats::endpoint::PrometheusEndpoint, Error> {
        let client = self.clone();
        let text = Arc::new(move || client.prometheus_text() + &more());
        crate::stats::endpoint::PrometheusEndpoint::start(self, listener, text)
    }

    /// What is stuck, and what is no longer: see [`Config::stall_after`](crate::Config::stall_after).
    pub fn stalls(&self) -> Notices<StallReport> {
        self.shared.produce.observer.stalls.clone()
    }

    /// The log lines, if `log.queue` is on and there is no callback.
    pub fn log_lines(&self) -> Notices<LogLine> {
        self.shared.produce.observer.log.queue.clone()
    }

    /// What goes wrong with connections, as it happens: the last hundred of it. [`Error::Unreachable`] says that no broker is
    /// connected any more. Nothing needs to be done: the client tries again by itself.
    pub fn errors(&self) -> Notices<Error> {
        self.shared.produce.observer.errors.clone()
    }

    /// Brokers that ask to be left alone, from the first call of this on: the last hundred of such answers, and the first
    /// one after them that does not. The client heeds them by itself.
    pub fn throttles(&self) -> Notices<Throttled> {
        self.shared.produce.observer.throttles.want()
    }

    /// What became of commits that `enable.auto.commit` made, from the first call of this on: the last hundred of them.
    pub fn auto_commits(&self) -> Notices<AutoCommitted> {
        self.shared.produce.observer.auto_commits.want()
    }

    /// Gives log lines up to this severity from now on, as if it were `log_level`: 0 is the gravest, 7 lets through what
    /// `debug` names.
    pub fn set_log_level(&self, level: u8) {
        self.shared.produce.observer.log.set_level(level);
    }

    /// Every request that is written and every answer that comes, from the first call of this on: the last hundred of them.
    pub fn exchanges(&self) -> Notices<Exchanged> {
        self.shared.produce.observer.exchanges.want()
    }

    /// Brokers that connections are made to, that are connected, and that are not any more, from the first call of this on:
    /// the last hundred of such changes.
    pub fn broker_states(&self) -> Notices<BrokerState> {
        self.shared.produce.observer.broker_states.want()
    }

    /// The numbers of the brokers that metadata named so far, in order.
    pub fn known_brokers(&self) -> Vec<i32> {
        self.shared.produce.observer.node_ids()
    }

    /// More brokers to begin with, beside `bootstrap.servers`: `host[:port]`, separated by commas. Gives how many they are.
    ///
    /// ```
    /// use ottla_client::{Client, Config};
    ///
    /// let mut config = Config::default();
    /// config.bootstrap_later = true;
    /// let client = Client::new(config)?;
    /// assert_eq!(client.add_bootstrap_servers("127.0.0.1:9092, 127.0.0.1:9093")?, 2);
    /// # Ok::<(), ottla_client::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Config`] when one of them is no address; none is added then.
    pub fn add_bootstrap_servers(&self, servers: &str) -> Result<usize, Error> {
        let servers = parse_addresses(servers)?;
        let count = servers.len();
        self.start(|cluster| async move { cluster.brokers.add_bootstrap(servers) });
        Ok(count)
    }

    /// Other credentials for SASL/PLAIN and SASL/SCRAM, from the next connection on, and when an open one proves itself
    /// again (KIP-368).
    ///
    /// # Errors
    /// [`Error::Config`] where `sasl.mechanism` is none of these, or `security.protocol` has no SASL.
    pub fn set_sasl_credentials(&self, username: &str, password: Secret) -> Result<(), Error> {
        let security = &self.shared.config.security;
        match security.sasl.mechanism.filter(|_| security.protocol.is_sasl()) {
            Some(Mechanism::Plain | Mechanism::ScramSha256 | Mechanism::ScramSha512) => {}
            mechanism => {
                let name = mechanism.map_or("none", Mechanism::name);
                return Err(Error::Config(format!(
                    "username and password are for sasl.mechanism PLAIN and SCRAM; this client's is {name}"
                )));
            }
        }
        let username = username.to_owned();
        self.start(|cluster| async move {
            if let Some(authenticator) = cluster.brokers.authenticator() {
                authenticator.set_credentials(username, password);
            }
        });
        Ok(())
    }

    /// Connects now, instead of when there is something to do: what goes wrong is in [`Client::errors`].
    pub fn connect(&self) {
        self.start(|cluster| async move {
            if let Err(error) = cluster.describe(Some(&[])).await {
                tracing::debug!(%error, "connecting before there is something to do");
            }
        });
    }

    /// Runs a future in the engine's thread. It must not block there.
    pub fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        self.start(|_| future);
    }

    pub(crate) fn produce(&self) -> &Arc<Produce> {
        &self.shared.produce
    }

    /// Runs `work` in the engine and waits for its result. Dropping the future lets the work run on.
    pub(crate) async fn run<T, F, W>(&self, work: W) -> Result<T, Error>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + 'static,
        W: FnOnce(Rc<Cluster>) -> F + Send + 'static,
    {
        let (answer, received) = oneshot::channel();
        self.start(|cluster| async move {
            let _ = answer.send(work(cluster).await);
        });
        received.await.unwrap_or(Err(Error::Closed))
    }

    /// Starts `work` in the engine and does not wait; it is dropped unrun when the engine has stopped.
    pub(crate) fn start<F, W>(&self, work: W)
    where
        F: Future<Output = ()> + 'static,
        W: FnOnce(Rc<Cluster>) -> F + Send + 'static,
    {
        let commands = self.shared.commands.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(commands) = &*commands {
            let _ = commands.send(Box::new(|cluster| Box::pin(work(cluster))));
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // Closing the channel ends the engine; its thread ends soon after, without being waited for by itself.
        self.commands.lock().unwrap_or_else(PoisonError::into_inner).take();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread.filter(|thread| thread.thread().id() != std::thread::current().id()) {
            let _ = thread.join();
        }
    }
}
