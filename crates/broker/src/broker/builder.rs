//! The settings of a broker, and its start.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use ottla_log::storage::Storage;
use ottla_log::storage::fs::{DirLock, FsStorage, lock};
use ottla_log::storage::mem::MemStorage;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::control::Control;
use super::current_cluster::{CurrentCluster, Source};
use super::listening::{Advertised, nth_address, prepare_listeners};
use super::{Broker, StartError, secure};
use crate::clock::Clock;
use crate::cluster::{Cluster, IdFloors, OpenError, Seams};
use crate::config::{BrokerConfig, Durability, Listener, TopicConfig};
use crate::partition::Syncer;
use crate::places::UNAUTHENTICATED_MAX;
use crate::topics::NewTopic;

/// The settings of a broker before it starts; see [`Broker::builder`].
#[derive(Clone, Debug)]
pub struct BrokerBuilder {
    pub(super) data_dir: Option<PathBuf>,
    pub(super) storage: Option<Arc<dyn Storage>>,
    /// The disk and the nodes, if they are a copy of another broker's.
    pub(super) copy: Option<(Arc<MemStorage>, Vec<i32>)>,
    pub(super) nodes: i32,
    pub(super) listen: Option<SocketAddr>,
    /// `true` if [`BrokerBuilder::listen`] was called.
    pub(super) is_listen_set: bool,
    pub(super) advertise: Option<String>,
    pub(super) listeners: Vec<Listener>,
    pub(super) secure: Option<PathBuf>,
    pub(super) config: BrokerConfig,
    pub(super) topics: Vec<NewTopic>,
    pub(super) clock: Clock,
    pub(super) syncer: Syncer,
    pub(super) seed: Option<u64>,
}

impl Default for BrokerBuilder {
    fn default() -> Self {
        Self {
            data_dir: None,
            storage: None,
            copy: None,
            nodes: 1,
            listen: Some(SocketAddr::from(([127, 0, 0, 1], 0))),
            is_listen_set: false,
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

    /// The id of the first node, as the property `node.id`; further nodes have the ids after it. 1 by default.
    ///
    /// Stored facts about nodes, such as the replicas of partitions, belong to the same nodes after a start with another id.
    ///
    /// ```
    /// use ottla_broker::Broker;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let broker = Broker::builder().memory().node_id(0).nodes(3).start().await?;
    /// assert_eq!(broker.cluster().nodes(), [0, 1, 2]);
    /// # broker.stop().await;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn node_id(mut self, id: i32) -> Self {
        self.config.node_id = id;
        self
    }

    /// The racks of the nodes, as the property `broker.rack`: one for all nodes, or one for each. No racks by default.
    ///
    /// ```
    /// use ottla_broker::{Broker, ReplicaSelector};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let broker = Broker::builder()
    ///     .memory()
    ///     .nodes(2)
    ///     .racks(["east", "west"])
    ///     // Consumers with `client.rack` read from a replica in their rack.
    ///     .configure(|config| config.replica_selector = ReplicaSelector::RackAware)
    ///     .start()
    ///     .await?;
    /// # broker.stop().await;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn racks<R: Into<String>>(mut self, racks: impl IntoIterator<Item = R>) -> Self {
        self.config.racks = racks.into_iter().map(Into::into).collect();
        self
    }

    /// The first node's address; each further node listens on the next port, or on one of its own if this one is 0.
    #[must_use]
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.listen = Some(address);
        self.is_listen_set = true;
        self
    }

    /// Adds a listener of every node, in place of [`BrokerBuilder::listen`], [`BrokerBuilder::advertise`] and the property
    /// `listeners`.
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
    /// Only the owner can read the files. One broker at a time uses the directory.
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

    /// Listens nowhere: connections come from [`Broker::connect`] or [`serve`](crate::serve).
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
    ///
    /// The property `listeners` has the place of [`BrokerBuilder::listen`], with the security that the properties of listeners
    /// describe. The data directory is [`BrokerBuilder::data_dir`], not `log.dirs`.
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

    /// Refuses settings that contradict each other.
    fn check_config(&self) -> Result<(), StartError> {
        self.check_log_dirs()?;
        let (config, nodes) = (&self.config, self.nodes);
        let checked = config.check_groups().and_then(|()| config.check_node_ids(nodes));
        let checked = checked.and_then(|()| config.check_racks(nodes));
        let checked = checked.and_then(|()| config.check_features(nodes));
        checked.and_then(|()| config.connections_per_ip.check()).map_err(StartError::Property)
    }

    /// Refuses a directory that would stay empty, because the data is in memory.
    fn check_log_dirs(&self) -> Result<(), StartError> {
        let has_place = self.data_dir.is_some() || self.storage.is_some() || self.copy.is_some();
        if has_place || self.config.durability == Durability::Memory {
            return Ok(());
        }
        match ["log.dirs", "log.dir"].into_iter().find(|name| self.config.has_value(name)) {
            Some(name) => {
                Err(StartError::Property(format!("`{name}` has no effect here: name the data directory")))
            }
            None => Ok(()),
        }
    }

    /// Takes the data directory; `None` if the data is elsewhere.
    fn own_data_dir(&self) -> Result<Option<OwnedDir>, StartError> {
        let is_elsewhere = self.storage.is_some() || self.config.durability == Durability::Memory;
        let Some(dir) = self.data_dir.as_ref().filter(|_| !is_elsewhere) else { return Ok(None) };
        let storage =
            FsStorage::new(dir).map_err(|source| StartError::DataDir { dir: dir.clone(), source })?;
        Ok(Some(OwnedDir { dir: dir.clone(), storage, lock: lock(dir)? }))
    }

    /// Opens the data and listens. Runs on the caller's tokio runtime.
    pub async fn start(self) -> Result<Broker, StartError> {
        self.check_config()?;
        // A start that cannot have the data must not replace the certificate of the broker that has it.
        let owned = self.secure.as_ref().map_or(Ok(None), |_| self.own_data_dir())?;
        let secure = self.secure_dir()?;
        let listeners = self.active_listeners(secure.as_ref())?;
        let owned = owned.map_or_else(|| self.own_data_dir(), |owned| Ok(Some(owned)))?;
        let Self { storage, copy, nodes, mut config, topics, clock, syncer, seed, .. } = self;
        if secure.is_some() {
            secure::configure(&mut config)?;
        }
        let (mut dir_lock, mut root, mut disk, mut waiting_max) = (None, None, None, None);
        let storage: Arc<dyn Storage> = match (storage, owned) {
            (Some(storage), _) => storage,
            (None, Some(owned)) => {
                let files = FileLimits::of_process(config.connections_max, nodes, listeners.len());
                config.connections_max = files.connections_max;
                config.connections_possible = files.connections_possible;
                for (_, listener) in &listeners {
                    listener.unauthenticated.limit_to(files.waiting_max);
                }
                waiting_max = Some(files.waiting_max);
                dir_lock = Some(owned.lock);
                root = Some(owned.dir);
                Arc::new(owned.storage.with_files_max(files.files_max))
            }
            (None, None) => {
                config.durability = Durability::Memory;
                // This disk never crashes: it need not remember which bytes a crash would lose.
                let copied = copy.as_ref().map(|(disk, _)| disk.clone());
                disk.insert(copied.unwrap_or_else(|| Arc::new(MemStorage::new()))).clone()
            }
        };
        let source = disk.map(|disk| {
            let listeners = listeners.iter().map(|(settings, _)| settings.clone()).collect();
            let (config, clock) = (config.clone(), clock.clone());
            let settings = Self { nodes, listen: None, listeners, config, clock, syncer, ..Self::default() };
            Source { disk, settings }
        });
        #[expect(clippy::disallowed_methods, reason = "without a seed, chance decides: production")]
        let seed = seed.unwrap_or_else(|| fastrand::u64(..));
        let seams = Seams { storage, clock, syncer, seed };
        let opened = Cluster::open_above(config, nodes, seams, IdFloors::default());
        let cluster = opened.map_err(|source| start_error(root, source))?;
        if let Some(locked) = dir_lock {
            cluster.data_lock.set(locked);
        }
        if let Some(max) = waiting_max {
            cluster.shares.refused.limit_to(max);
        }
        if let Some((_, node_ids)) = &copy {
            cluster.set_nodes(node_ids);
        }
        create_missing(&cluster, topics)?;
        prepare_listeners(&cluster, &listeners)?;
        if let Some(secure) = &secure {
            secure::store(&cluster, secure)?;
        }
        let (asked, asks) = mpsc::unbounded_channel();
        let current = CurrentCluster::new(cluster, source);
        let mut broker = Broker {
            control: Control::new(current.clone(), asked),
            current,
            addresses: Vec::new(),
            listeners,
            bound: Vec::new(),
            tasks: JoinSet::new(),
            servers: JoinSet::new(),
            asks,
            _secure_lock: secure.as_ref().map(|secure| secure.lock.clone()),
        };
        let first_id = broker.cluster().nodes.first_id();
        broker
            .serve_all(|first, node, _| nth_address(first, node - first_id), |_| Advertised::HostAndPort)
            .await?;
        if let Some(secure) = &secure {
            secure.write_clients(&broker.bootstrap_servers()).map_err(StartError::Secure)?;
        }
        Ok(broker)
    }
}

fn start_error(root: Option<PathBuf>, source: OpenError) -> StartError {
    match root {
        Some(dir) => StartError::Data { dir, source },
        None => source.into(),
    }
}

/// A data directory that no other process uses.
struct OwnedDir {
    dir: PathBuf,
    storage: FsStorage,
    lock: DirLock,
}

fn create_missing(cluster: &Cluster, topics: Vec<NewTopic>) -> Result<(), StartError> {
    for topic in topics.into_iter().filter(|topic| cluster.topic(&topic.name).is_none()) {
        let name = topic.name.clone();
        cluster.create_topic(topic, false).map_err(|(_, reason)| StartError::Topic { name, reason })?;
    }
    Ok(())
}

/// The parts of the process's file descriptors.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct FileLimits {
    /// For the connections of each node.
    connections_max: usize,
    /// The most that `max.connections` can become while the broker runs.
    connections_possible: usize,
    /// For the connections of each listener that have not logged in, and for all that pause.
    waiting_max: usize,
    /// For the files of logs.
    files_max: usize,
}

impl FileLimits {
    /// Neither part: listeners, the runtime, the journals' directories.
    const OTHERS: usize = 32;

    fn of_process(connections_max: usize, nodes: i32, listeners: usize) -> Self {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let limit = limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
        let nodes = usize::try_from(nodes).unwrap_or(1).max(1);
        let limits = Self::of(limit, connections_max, nodes, listeners);
        if limits.connections_max < connections_max {
            tracing::warn!(
                connections_max,
                limited = limits.connections_max,
                nodes,
                open_files_max = limit,
                "max.connections is limited by the number of open files: raise it (`ulimit -n`)"
            );
        }
        limits
    }

    /// The connections that are served get half of the file descriptors at most, and those that wait an eighth.
    fn of(limit: usize, connections_max: usize, nodes: usize, listeners: usize) -> Self {
        let half = limit / 2;
        // The connections that pause are a kind of their own.
        let kinds = listeners + 1;
        let waiting_max = (half / 4 / kinds).clamp(1, UNAUTHENTICATED_MAX);
        let waiting = waiting_max * kinds;
        let connections_possible = (half / nodes).max(1);
        let connections_max = connections_max.min(connections_possible);
        let others = connections_max.saturating_mul(nodes) + waiting + Self::OTHERS;
        Self {
            connections_max,
            connections_possible,
            waiting_max,
            files_max: limit.saturating_sub(others).max(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_descriptors_are_shared_by_connections_and_logs() {
        let of = |limit, connections, nodes| {
            let limits = FileLimits::of(limit, connections, nodes, 1);
            (limits.connections_max, limits.waiting_max, limits.files_max)
        };
        assert_eq!(of(1 << 20, 10_000, 1), (10_000, 1000, (1 << 20) - 12_032));
        assert_eq!(of(20_000, 10_000, 1), (10_000, 1000, 7_968));
        assert_eq!(of(1024, 10_000, 1), (512, 64, 352));
        assert_eq!(of(1024, 100, 1), (100, 64, 764));
        assert_eq!(of(1, 10_000, 1), (1, 1, 1));
    }

    /// Each node had half of the descriptors: with three, their clients took all, and no file could be opened any more.
    #[test]
    fn the_connections_of_all_nodes_leave_file_descriptors_for_logs() {
        for (nodes, listeners) in [(1, 1), (3, 1), (3, 4), (5, 2)] {
            let limits = FileLimits::of(1024, 10_000, nodes, listeners);
            let connections = limits.connections_max * nodes + limits.waiting_max * (listeners + 1);
            assert!(limits.connections_max * nodes <= 512, "{nodes} {listeners} {limits:?}");
            assert!(connections + limits.files_max <= 1024 - FileLimits::OTHERS, "{limits:?}");
            assert!(limits.files_max >= 352, "{nodes} {listeners} {limits:?}");
        }
    }
}
