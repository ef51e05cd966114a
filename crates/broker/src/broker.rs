//! A broker to embed: builder, start, stop.

mod listening;
mod secure;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use ottla_log::storage::Storage;
use ottla_log::storage::fs::{DirLock, FsStorage, LockError, lock};
use ottla_log::storage::mem::MemStorage;
use tokio::io::DuplexStream;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::clock::Clock;
use crate::cluster::nodes::Node;
use crate::cluster::{AddNodeError, Cluster, OpenError, Seams};
use crate::config::{BrokerConfig, Durability, Listener, TopicConfig};
use crate::connection::serve;
use crate::control::{Control, ControlAnswer, NewNode};
use crate::partition::Syncer;
use crate::security::active_listener::ActiveListener;
use crate::topics::NewTopic;
use listening::{bootstrap_servers_of, nth_address};

/// Bytes each direction of an in-memory connection holds.
const MEMORY_PIPE_BYTES: usize = 1 << 20;

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

/// The settings of a broker before it starts; see [`Broker::builder`].
#[derive(Debug)]
pub struct BrokerBuilder {
    data_dir: Option<PathBuf>,
    storage: Option<Arc<dyn Storage>>,
    nodes: i32,
    listen: Option<SocketAddr>,
    advertise: Option<String>,
    listeners: Vec<Listener>,
    secure: Option<PathBuf>,
    config: BrokerConfig,
    topics: Vec<NewTopic>,
    clock: Clock,
    syncer: Syncer,
    seed: Option<u64>,
}

/// A running broker: one or several nodes in this process.
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
    cluster: Arc<Cluster>,
    /// The addresses of the first listener.
    addresses: Vec<SocketAddr>,
    listeners: Vec<(Listener, Arc<ActiveListener>)>,
    bound: Vec<(i32, Arc<ActiveListener>, SocketAddr)>,
    tasks: JoinSet<()>,
    /// The listeners with their connections.
    servers: JoinSet<()>,
    control: Control,
    /// The nodes that requests of [`Control`] add.
    new_nodes: mpsc::UnboundedReceiver<NewNode>,
    _lock: Option<DirLock>,
}

/// A broker with a thread and a runtime of its own, for programs and tests that have none. Stops when dropped.
#[derive(Debug)]
pub struct BrokerThread {
    cluster: Arc<Cluster>,
    addresses: Vec<SocketAddr>,
    /// The names of the listeners.
    listeners: Vec<String>,
    stop: watch::Sender<bool>,
    control: Control,
    runtime: tokio::runtime::Handle,
    thread: Option<std::thread::JoinHandle<()>>,
}

/// The parts of a broker that has started in its thread.
struct Started {
    cluster: Arc<Cluster>,
    addresses: Vec<SocketAddr>,
    listeners: Vec<String>,
    control: Control,
}

impl Broker {
    /// Returns a builder. By default the broker is in memory, with one node on an ephemeral loopback port.
    pub fn builder() -> BrokerBuilder {
        BrokerBuilder {
            data_dir: None,
            storage: None,
            nodes: 1,
            listen: Some(SocketAddr::from(([127, 0, 0, 1], 0))),
            advertise: None,
            listeners: Vec::new(),
            secure: None,
            config: BrokerConfig::default(),
            topics: Vec::new(),
            clock: Clock::System,
            syncer: Syncer::Thread,
            seed: None,
        }
    }

    /// The value of `bootstrap.servers` for clients: every node's advertised address.
    pub fn bootstrap_servers(&self) -> String {
        bootstrap_servers(&self.cluster)
    }

    /// The value of `bootstrap.servers` for clients of this listener. `None` if there is no such listener.
    pub fn bootstrap_servers_of(&self, listener: &str) -> Option<String> {
        let names = self.listeners.iter().map(|(settings, _)| settings.name.as_str());
        bootstrap_servers_of(&self.cluster, names, listener)
    }

    /// Each address that was bound, with its node and listener.
    pub(crate) fn bound(&self) -> &[(i32, Arc<ActiveListener>, SocketAddr)] {
        &self.bound
    }

    /// The addresses of the first listener, by node.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The shared state of the nodes.
    pub fn cluster(&self) -> &Arc<Cluster> {
        &self.cluster
    }

    /// The listeners with their connections.
    pub(crate) fn servers(&mut self) -> &mut JoinSet<()> {
        &mut self.servers
    }

    /// A connection to node `node` (1 and up) in memory.
    pub fn connect(&mut self, node: i32) -> DuplexStream {
        let (client, server) = tokio::io::duplex(MEMORY_PIPE_BYTES);
        self.tasks.spawn(serve(server, self.cluster.clone(), node));
        client
    }

    /// Adds a node to the running cluster, on an ephemeral port beside the first node, or a removed one again.
    pub async fn add_node(&mut self, id: i32) -> Result<(), AddNodeError> {
        if self.listeners.is_empty() {
            return Err(AddNodeError::NoListener(id));
        }
        if self.cluster.add_node(id)?.has_address() {
            return Ok(());
        }
        self.listen(id, |first| SocketAddr::new(first.ip(), 0), false).await.map_err(|error| {
            tracing::warn!(%error, node = id, "an added node cannot listen");
            self.cluster.remove_node(id);
            AddNodeError::NoListener(id)
        })
    }

    /// The requests of a control address. Nodes are added while [`serve_control`](Self::serve_control) runs.
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    /// Adds the nodes that requests of [`control`](Self::control) ask for. Never ends; may be dropped at any time.
    pub async fn serve_control(&mut self) -> std::convert::Infallible {
        loop {
            match self.new_nodes.recv().await {
                // The client may be gone.
                Some(NewNode { id, done }) => drop(done.send(self.add_node(id).await)),
                None => std::future::pending().await,
            }
        }
    }

    /// Cuts every connection and closes the logs, so that the next start need not recover anything.
    pub async fn stop(mut self) {
        self.cluster.compactions.stop();
        self.servers.shutdown().await;
        self.tasks.shutdown().await;
        self.cluster.compactions.stopped().await;
        self.cluster.share_leader.stop().await;
        self.cluster.transactions.stop().await;
        self.cluster.finish_syncs().await;
        self.cluster.close();
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.cluster.compactions.stop();
        self.cluster.share_leader.abort();
        self.cluster.transactions.abort();
        self.servers.abort_all();
        self.tasks.abort_all();
    }
}

impl BrokerBuilder {
    /// Keeps the data in this directory, which one process may use at a time.
    #[must_use]
    pub fn data_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.data_dir = Some(dir.into());
        self
    }

    /// Keeps the data in memory: gone with the broker. The default.
    #[must_use]
    pub fn memory(mut self) -> Self {
        self.data_dir = None;
        self.config.durability = Durability::Memory;
        self
    }

    /// Keeps the data in this storage: the seam of simulations.
    #[must_use]
    pub fn storage(mut self, storage: Arc<dyn Storage>) -> Self {
        self.storage = Some(storage);
        self
    }

    /// The number of brokers that clients see. 1 by default.
    #[must_use]
    pub fn nodes(mut self, nodes: i32) -> Self {
        self.nodes = nodes.max(1);
        self
    }

    /// The first node's address; each further node listens on the next port, or on one of its own if this one is 0.
    #[must_use]
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.listen = Some(address);
        self
    }

    /// Adds a listener of every node, in place of [`BrokerBuilder::listen`] and [`BrokerBuilder::advertise`].
    #[must_use]
    pub fn listener(mut self, listener: Listener) -> Self {
        self.listeners.push(listener);
        self
    }

    /// Listens with TLS and SCRAM only. The directory has everything that is needed for it, and is created if it is missing:
    ///
    /// - `ca.pem` and `ca-key.pem`: an authority, valid for ten years. Keep the key.
    /// - `server.pem`: the server's certificate and key, made at each start and valid for two years.
    /// - `passwords`: a super user `admin` and a user `client`. They are stored with the broker's data when the directory is
    ///   created, and later if the data has no such user. Other users need ACLs: the authorizer is switched on.
    /// - `client.properties`, `client-java.properties`, `client_franz.go` and the same for `admin`: configurations of clients with
    ///   the addresses of this start.
    ///
    /// Only the owner can read the files.
    ///
    /// ```
    /// use ottla_broker::Broker;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let dir = tempfile::tempdir()?;
    /// let broker = Broker::builder().memory().secure(dir.path()).start().await?;
    /// let properties = std::fs::read_to_string(dir.path().join("client.properties"))?;
    /// assert!(properties.contains(&broker.bootstrap_servers()));
    /// # broker.stop().await;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn secure(mut self, dir: impl Into<PathBuf>) -> Self {
        self.secure = Some(dir.into());
        self
    }

    /// Listens nowhere: connections come from [`Broker::connect`] or [`serve`].
    #[must_use]
    pub fn no_listener(mut self) -> Self {
        self.listen = None;
        self.listeners.clear();
        self
    }

    /// The address that clients receive instead of the listener's: `host` or `host:port`.
    #[must_use]
    pub fn advertise(mut self, address: impl Into<String>) -> Self {
        self.advertise = Some(address.into());
        self
    }

    /// Other settings than the defaults.
    #[must_use]
    pub fn config(mut self, config: BrokerConfig) -> Self {
        self.config = config;
        self
    }

    /// Changes one of the settings.
    #[must_use]
    pub fn configure(mut self, change: impl FnOnce(&mut BrokerConfig)) -> Self {
        change(&mut self.config);
        self
    }

    /// Creates a topic at the start if there is none of that name; -1 partitions are the default number.
    #[must_use]
    pub fn topic(mut self, name: impl Into<String>, partitions: i32) -> Self {
        self.topics.push(NewTopic::new(name, partitions));
        self
    }

    /// Creates a topic with settings at the start if there is none of that name; -1 partitions are the default number.
    ///
    /// ```
    /// use ottla_broker::{Broker, TopicConfig};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let mut compacted = TopicConfig::default();
    /// compacted.set("cleanup.policy", "compact")?;
    /// let broker = Broker::builder().memory().topic_with("balances", 3, compacted).start().await?;
    /// # broker.stop().await;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn topic_with(mut self, name: impl Into<String>, partitions: i32, config: TopicConfig) -> Self {
        self.topics.push(NewTopic { config, ..NewTopic::new(name, partitions) });
        self
    }

    /// Another wall clock: the seam of simulations.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// The executor of syncs: the seam of simulations.
    #[must_use]
    pub fn syncer(mut self, syncer: Syncer) -> Self {
        self.syncer = syncer;
        self
    }

    /// The seed of every random choice.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Opens the data and listens. Runs on the caller's tokio runtime.
    pub async fn start(self) -> Result<Broker, StartError> {
        let secure = self.secure_dir()?;
        let listeners = self.active_listeners(secure.as_ref())?;
        let Self { data_dir, storage, nodes, mut config, topics, clock, syncer, seed, .. } = self;
        if secure.is_some() {
            secure::configure(&mut config)?;
        }
        let mut dir_lock = None;
        let mut root = None;
        let storage: Arc<dyn Storage> = match (storage, data_dir) {
            (Some(storage), _) => storage,
            (None, Some(dir)) if config.durability != Durability::Memory => {
                let opened = FsStorage::new(&dir)
                    .map_err(|source| StartError::DataDir { dir: dir.clone(), source })?;
                let files = FileLimits::of_process(config.connections_max);
                config.connections_max = files.connections_max;
                dir_lock = Some(lock(&dir)?);
                root = Some(dir);
                Arc::new(opened.with_files_max(files.files_max))
            }
            (None, _) => {
                config.durability = Durability::Memory;
                // This disk never crashes: it need not remember which bytes a crash would lose.
                Arc::new(MemStorage::new())
            }
        };
        #[expect(clippy::disallowed_methods, reason = "without a seed, chance decides: production")]
        let seed = seed.unwrap_or_else(|| fastrand::u64(..));
        let opened = Cluster::open(config, nodes, Seams { storage, clock, syncer, seed });
        let cluster = opened.map_err(|source| match root {
            Some(dir) => StartError::Data { dir, source },
            None => source.into(),
        })?;
        for topic in topics {
            if cluster.topic(&topic.name).is_none() {
                let name = topic.name.clone();
                cluster
                    .create_topic(topic, false)
                    .map_err(|(_, reason)| StartError::Topic { name, reason })?;
            }
        }
        for (settings, _) in &listeners {
            let failed = |reason| StartError::Listener { name: settings.name.clone(), reason };
            settings.sasl.as_ref().map_or(Ok(()), |_| cluster.prepare_scram()).map_err(failed)?;
        }
        if let Some(secure) = &secure {
            secure::store(&cluster, secure)?;
        }
        let (asked, new_nodes) = mpsc::unbounded_channel();
        let mut broker = Broker {
            cluster: cluster.clone(),
            addresses: Vec::new(),
            listeners,
            bound: Vec::new(),
            tasks: JoinSet::new(),
            servers: JoinSet::new(),
            control: Control::new(cluster.clone(), asked),
            new_nodes,
            _lock: dir_lock,
        };
        for node in cluster.node_ids() {
            broker.listen(node, |first| nth_address(first, node), true).await?;
            if let Some(node) = cluster.node(node).filter(|_| broker.listeners.is_empty()) {
                node.advertise(&format!("node-{}", node.id), 9092);
            }
        }
        if let Some(secure) = &secure {
            secure.write_clients(&broker.bootstrap_servers()).map_err(StartError::Secure)?;
        }
        broker.tasks.spawn(keep(cluster));
        Ok(broker)
    }

    /// Starts the broker in a thread with a runtime of its own.
    pub fn spawn(self) -> Result<BrokerThread, StartError> {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(StartError::Thread)?;
        let handle = runtime.handle().clone();
        let (started, starting) = std::sync::mpsc::channel();
        let (stop, mut stopping) = watch::channel(false);
        let run = move || {
            runtime.block_on(async move {
                match self.start().await {
                    Ok(mut broker) => {
                        let listeners = broker.listeners.iter().map(|(settings, _)| settings.name.clone());
                        let _ = started.send(Ok(Started {
                            cluster: broker.cluster.clone(),
                            addresses: broker.addresses.clone(),
                            listeners: listeners.collect(),
                            control: broker.control(),
                        }));
                        tokio::select! {
                            biased;
                            // An error means that the handle was dropped, which stops the broker as well.
                            _ = stopping.wait_for(|stop| *stop) => {}
                            _ = broker.serve_control() => {}
                        }
                        broker.stop().await;
                    }
                    Err(error) => drop(started.send(Err(error))),
                }
            });
        };
        let thread =
            std::thread::Builder::new().name("ottla-broker".into()).spawn(run).map_err(StartError::Thread)?;
        match starting.recv() {
            Ok(Ok(Started { cluster, addresses, listeners, control })) => {
                let (runtime, thread) = (handle, Some(thread));
                Ok(BrokerThread { cluster, addresses, listeners, stop, control, runtime, thread })
            }
            Ok(Err(error)) => Err(error),
            Err(_) => Err(StartError::Thread(io::Error::other("it ended at once"))),
        }
    }
}

impl BrokerThread {
    /// See [`Broker::bootstrap_servers`].
    pub fn bootstrap_servers(&self) -> String {
        bootstrap_servers(&self.cluster)
    }

    /// See [`Broker::bootstrap_servers_of`].
    pub fn bootstrap_servers_of(&self, listener: &str) -> Option<String> {
        bootstrap_servers_of(&self.cluster, self.listeners.iter().map(String::as_str), listener)
    }

    /// See [`Broker::addresses`].
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// See [`Broker::cluster`].
    pub fn cluster(&self) -> &Arc<Cluster> {
        &self.cluster
    }

    /// Adds a node to the running cluster, on an ephemeral port beside the first node, or a removed one again. Waits
    /// until it listens.
    ///
    /// # Errors
    /// See [`AddNodeError`].
    pub fn add_node(&self, id: i32) -> Result<(), AddNodeError> {
        let control = self.control.clone();
        self.block_on(|_| async move { control.add_node(id).await })
    }

    /// Carries out a request of a control address, and waits for its answer: see [`Control::answer`]. Must not be called
    /// from asynchronous code.
    pub fn control(&self, method: &str, path: &str, body: &[u8]) -> ControlAnswer {
        let (control, method, path) = (self.control.clone(), method.to_owned(), path.to_owned());
        let body = body.to_owned();
        self.block_on(|_| async move { control.answer(&method, &path, &body).await })
    }

    /// Runs a future on the broker's thread, and waits for its result: periodic work that a test wants now, or a wait.
    /// Must not be called from asynchronous code, which can await the same calls of [`Cluster`].
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use ottla_broker::{ApiKey, Broker};
    /// let broker = Broker::builder().memory().topic("orders", 1).spawn()?;
    /// let rolled = broker.block_on(|cluster| async move { cluster.roll_now("orders").await });
    /// assert_eq!(rolled, Ok(0), "there is nothing in it");
    /// let waited = broker.block_on(|cluster| async move {
    ///     cluster.wait_for_group("billing", "Stable", Duration::from_millis(20)).await
    /// });
    /// assert_eq!(waited.unwrap_err().found, "Dead");
    /// # Ok::<_, ottla_broker::StartError>(())
    /// ```
    pub fn block_on<T, F>(&self, work: impl FnOnce(Arc<Cluster>) -> F) -> T
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let (done, result) = std::sync::mpsc::channel();
        let work = work(self.cluster.clone());
        self.runtime.spawn(async move { done.send(work.await) });
        // The thread runs until this handle is dropped.
        result.recv().expect("the broker's thread runs as long as its handle lives")
    }

    /// Stops the broker and waits until its logs are closed.
    pub fn stop(mut self) {
        self.shut();
    }

    fn shut(&mut self) {
        let _ = self.stop.send(true);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for BrokerThread {
    fn drop(&mut self) {
        self.shut();
    }
}

/// The parts of the process's file descriptors.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct FileLimits {
    connections_max: usize,
    /// For the files of logs.
    files_max: usize,
}

impl FileLimits {
    /// Neither part: listeners, the runtime, the journals' directories.
    const OTHERS: usize = 32;

    fn of_process(connections_max: usize) -> Self {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let limit = limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
        let limits = Self::of(limit, connections_max);
        if limits.connections_max < connections_max {
            tracing::warn!(
                connections_max,
                limited = limits.connections_max,
                open_files_max = limit,
                "max.connections is limited by the number of open files: raise it (`ulimit -n`)"
            );
        }
        limits
    }

    /// Connections get half of the file descriptors at most.
    fn of(limit: usize, connections_max: usize) -> Self {
        let connections_max = connections_max.min((limit / 2).max(1));
        Self { connections_max, files_max: limit.saturating_sub(connections_max + Self::OTHERS).max(1) }
    }
}

/// Runs the periodic work: sessions, rebalances, retention, flushes, the scrub, compactions.
async fn keep(cluster: Arc<Cluster>) {
    let retention = async {
        loop {
            tokio::time::sleep(cluster.config.retention_check).await;
            cluster.enforce_retention().await;
        }
    };
    let (scrub, compactor) = (crate::scrub::run(cluster.clone()), crate::compactor::run(cluster.clone()));
    tokio::join!(
        retention,
        cluster.groups.keep_time(&cluster),
        cluster.consumer_groups.keep_time(&cluster),
        cluster.keep_offsets(),
        cluster.keep_transactions(),
        cluster.keep_share_groups(),
        cluster.keep_flushing(),
        scrub,
        compactor
    );
}

fn bootstrap_servers(cluster: &Cluster) -> String {
    cluster.nodes_up().map(Node::advertised).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_descriptors_are_shared_by_connections_and_logs() {
        let of = |limit, connections| {
            let limits = FileLimits::of(limit, connections);
            (limits.connections_max, limits.files_max)
        };
        assert_eq!(of(1 << 20, 10_000), (10_000, (1 << 20) - 10_032));
        assert_eq!(of(20_000, 10_000), (10_000, 9_968));
        assert_eq!(of(1024, 10_000), (512, 480));
        assert_eq!(of(1024, 100), (100, 892));
        assert_eq!(of(1, 10_000), (1, 1));
    }
}
