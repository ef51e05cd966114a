//! What the nodes of one process share: topics, partitions, groups, and who leads what.
//!
//! Nothing is replicated. Several nodes over one set of logs exist so that clients meet what they meet in a real
//! cluster: leaders on several brokers, leaders that move, coordinators that move, brokers that are down.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use bytes::Bytes;
use ottla_log::storage::Storage;
use ottla_log::{Journal, JournalConfig, JournalError, LogError};
use ottla_protocol::{ErrorCode, Uuid};
use rustc_hash::FxHashMap;

use crate::api::fetch_sessions::FetchSessions;
use crate::clock::Clock;
use crate::config::{BrokerConfig, Durability};
use crate::coordinator::groups::Groups;
use crate::coordinator::offsets::Offsets;
use crate::data_dir::{Format, FormatError, META_DIR, OFFSETS_DIR, check_format, write_format};
use crate::intercept::Intercepts;
use crate::partition::{NO_LEADER, Partition, Syncer};
use crate::peer::Warnings;
use crate::staged::Staged;
use crate::switch::Switch;
use crate::topics::Topic;

const CLUSTER_ID_KEY: &[u8] = b"cluster";
const PRODUCER_IDS_KEY: &[u8] = b"producer-ids";
/// An epoch above every one that clients were told of after a leader had moved.
const LEADER_EPOCH_KEY: &[u8] = b"leader-epoch";
/// Producer ids taken from the journal at a time: a crash wastes at most so many.
const PRODUCER_ID_BLOCK: i64 = 1000;
/// Leader epochs reserved in the journal at a time.
const LEADER_EPOCH_BLOCK: i32 = 100;

/// The seams a cluster stands on.
#[derive(Clone, Debug)]
pub struct Seams {
    /// Where everything durable goes.
    pub storage: Arc<dyn Storage>,
    /// The wall clock.
    pub clock: Clock,
    /// Where syncs run.
    pub syncer: Syncer,
    /// Seed of every random choice.
    pub seed: u64,
}

/// The shared state of all nodes of one process.
#[derive(Debug)]
pub struct Cluster {
    pub(crate) config: BrokerConfig,
    pub(crate) clock: Clock,
    pub(crate) syncer: Syncer,
    pub(crate) intercepts: Intercepts,
    pub(crate) staged: Staged,
    pub(crate) warnings: Warnings,
    pub(crate) groups: Groups,
    pub(crate) offsets: Offsets,
    id: String,
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) rng: Mutex<fastrand::Rng>,
    nodes: Vec<Node>,
    pub(crate) state: RwLock<State>,
    pub(crate) journal: Mutex<Journal>,
    producer_ids: Mutex<ProducerIds>,
    /// Leaders that move without anything being appended leave no trace in the logs; a client that has seen their
    /// epochs would take the leaders after a restart for older ones, and never follow.
    pub(crate) leader_epochs: LeaderEpochs,
    /// Coordinators that were moved by hand, by group.
    coordinators: Mutex<BTreeMap<String, i32>>,
}

/// One broker of the cluster.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) id: i32,
    /// What clients are told.
    address: Mutex<(String, u16)>,
    pub(crate) up: Switch,
    /// Whether it can be connected to; what it leads stays its own.
    pub(crate) reachable: Switch,
    pub(crate) sessions: FetchSessions,
    pub(crate) connections: AtomicUsize,
    has_address: AtomicBool,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) topics: BTreeMap<Arc<str>, Arc<Topic>>,
    pub(crate) by_id: FxHashMap<Uuid, Arc<str>>,
}

#[derive(Debug)]
struct ProducerIds {
    next: i64,
    block_end: i64,
}

#[derive(Debug)]
pub(crate) struct LeaderEpochs {
    /// Partitions begin with it.
    pub(crate) first: i32,
    /// No partition gets there before more are reserved.
    end: Mutex<i32>,
}

/// Why the data of a cluster cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// A partition's log.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The journal of topics or of offsets.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// An entry of the journal of topics, whose checksum is right, cannot be read.
    #[error("journal {META_DIR}: the entry `{key}`: {reason}")]
    Record {
        /// Its key.
        key: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The data is not Ottla's.
    #[error(transparent)]
    Format(#[from] FormatError),
}

/// Why a topic could not be created or changed.
pub(crate) type Refusal = (ErrorCode, String);

impl Cluster {
    /// Opens the data in `seams.storage`, or begins a new cluster there. Blocks while logs are recovered.
    pub fn open(config: BrokerConfig, nodes: i32, seams: Seams) -> Result<Arc<Self>, OpenError> {
        let Seams { storage, clock, syncer, seed } = seams;
        let mut rng = fastrand::Rng::with_seed(seed);
        let now_ms = clock.now_ms();
        let format = check_format(&*storage)?;
        // A journal that is gone has taken with it what every topic is.
        let open = if format == Format::Marked { Journal::open_existing } else { Journal::open };
        let (mut journal, _) = open(storage.clone(), META_DIR, JournalConfig::default(), now_ms)?;
        let id = if let Some(id) = journal.get(CLUSTER_ID_KEY) {
            String::from_utf8_lossy(id).into_owned()
        } else {
            let id = random_uuid(&mut rng).to_string();
            journal.put(now_ms, Bytes::from_static(CLUSTER_ID_KEY), Some(id.clone().into()))?;
            id
        };
        let next = journal
            .get(PRODUCER_IDS_KEY)
            .and_then(|value| Some(i64::from_be_bytes(*value.first_chunk::<8>()?)))
            .unwrap_or(0);
        let first_epoch = journal
            .get(LEADER_EPOCH_KEY)
            .and_then(|value| Some(i32::from_be_bytes(*value.first_chunk::<4>()?)))
            .unwrap_or(0);
        let (offsets, _) = open(storage.clone(), OFFSETS_DIR, JournalConfig::default(), now_ms)?;
        let offsets = Offsets::new(offsets);
        offsets.rename_old_keys(now_ms)?;
        let nodes = (1..=nodes.max(1))
            .map(|id| Node {
                id,
                address: Mutex::new(("127.0.0.1".into(), 0)),
                up: Switch::default(),
                reachable: Switch::default(),
                sessions: FetchSessions::new(config.fetch_sessions_max, rng.fork()),
                connections: AtomicUsize::new(0),
                has_address: AtomicBool::new(false),
            })
            .collect();
        let cluster = Self {
            groups: Groups::new(&config, rng.fork()),
            offsets,
            config,
            clock,
            syncer,
            intercepts: Intercepts::default(),
            staged: Staged::default(),
            warnings: Warnings::default(),
            id,
            storage,
            rng: Mutex::new(rng),
            nodes,
            state: RwLock::default(),
            journal: Mutex::new(journal),
            producer_ids: Mutex::new(ProducerIds { next, block_end: next }),
            leader_epochs: LeaderEpochs { first: first_epoch, end: Mutex::new(first_epoch) },
            coordinators: Mutex::default(),
        };
        cluster.sync_journal()?;
        cluster.load_topics(format)?;
        if format != Format::Marked {
            write_format(&*cluster.storage)?;
        }
        Ok(Arc::new(cluster))
    }

    /// The cluster's id, the same for as long as its data lives.
    pub fn id(&self) -> &str {
        &self.id
    }

    pub(crate) fn replace(&self, topic: Topic) {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        state.topics.insert(topic.name.clone(), Arc::new(topic));
    }

    /// The topic of that name.
    pub(crate) fn topic(&self, name: &str) -> Option<Arc<Topic>> {
        self.state.read().unwrap_or_else(PoisonError::into_inner).topics.get(name).cloned()
    }

    /// The topic with that id.
    pub(crate) fn topic_by_id(&self, id: Uuid) -> Option<Arc<Topic>> {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        state.topics.get(state.by_id.get(&id)?).cloned()
    }

    /// Every topic, in order of name.
    pub(crate) fn topics(&self) -> Vec<Arc<Topic>> {
        self.state.read().unwrap_or_else(PoisonError::into_inner).topics.values().cloned().collect()
    }

    /// One partition.
    pub(crate) fn partition(&self, topic: &str, index: i32) -> Option<Arc<Partition>> {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        state.topics.get(topic)?.partitions.get(usize::try_from(index).ok()?).cloned()
    }

    /// A producer id that nobody had before.
    pub(crate) fn next_producer_id(&self) -> Result<i64, JournalError> {
        let mut ids = lock(&self.producer_ids);
        if ids.next >= ids.block_end {
            let block_end = ids.next + PRODUCER_ID_BLOCK;
            let mut journal = lock(&self.journal);
            let value = Bytes::copy_from_slice(&block_end.to_be_bytes());
            journal.put(self.clock.now_ms(), Bytes::from_static(PRODUCER_IDS_KEY), Some(value))?;
            self.make_durable(&mut journal)?;
            ids.block_end = block_end;
        }
        let id = ids.next;
        ids.next += 1;
        Ok(id)
    }

    pub(crate) fn make_durable(&self, journal: &mut Journal) -> Result<(), JournalError> {
        // Which topics there are survives a power cut with `os`, too: their directories may.
        if self.config.durability != Durability::Memory || journal.wants_sync() {
            journal.sync_now()?;
        }
        Ok(())
    }

    fn sync_journal(&self) -> Result<(), JournalError> {
        self.make_durable(&mut lock(&self.journal))
    }

    /// The node with that id.
    pub(crate) fn node(&self, id: i32) -> Option<&Node> {
        self.nodes.get(usize::try_from(id).ok()?.checked_sub(1)?)
    }

    /// The nodes that clients may be told of: up, with an address, and not hidden by a test.
    pub(crate) fn nodes_up(&self) -> impl Iterator<Item = &Node> {
        let hidden = self.staged.hidden();
        let known = |node: &&Node| node.is_up() && node.has_address.load(Ordering::Acquire);
        self.nodes.iter().filter(known).filter(move |node| !hidden.contains(&node.id))
    }

    /// Ids of all nodes, 1 and up.
    pub(crate) fn node_ids(&self) -> impl Iterator<Item = i32> + use<> {
        1..=self.nodes.len() as i32
    }

    /// The node that answers for the cluster's metadata.
    pub(crate) fn controller(&self) -> i32 {
        let first = self.nodes.iter().find(|node| node.is_up()).map_or(NO_LEADER, |node| node.id);
        self.staged.controller().filter(|id| self.is_node_up(*id)).unwrap_or(first)
    }

    /// Where a partition is led when all nodes are up; otherwise the next node that is.
    pub(crate) fn preferred_leader(&self, index: i32) -> i32 {
        let count = self.nodes.len();
        (0..count)
            .map(|step| &self.nodes[(index as usize + step) % count])
            .find(|node| node.is_up())
            .map_or(NO_LEADER, |node| node.id)
    }

    /// Moves a partition's leadership to another node of this process, or takes it from all ([`NO_LEADER`]).
    pub(crate) fn move_leader(&self, topic: &str, index: i32, node: i32) -> bool {
        match (self.partition(topic, index), self.node(node)) {
            (Some(partition), Some(node)) if node.is_up() => {
                self.lead(&partition, node.id);
                true
            }
            (Some(partition), None) if node == NO_LEADER => {
                self.lead(&partition, NO_LEADER);
                true
            }
            _ => false,
        }
    }

    fn lead(&self, partition: &Partition, node: i32) {
        if partition.unavailable().is_some() {
            return;
        }
        let epoch = partition.leader_epoch() + 1;
        let mut end = lock(&self.leader_epochs.end);
        if epoch >= *end {
            let next = epoch + LEADER_EPOCH_BLOCK;
            let mut journal = lock(&self.journal);
            let value = Bytes::copy_from_slice(&next.to_be_bytes());
            let put = journal.put(self.clock.now_ms(), Bytes::from_static(LEADER_EPOCH_KEY), Some(value));
            if let Err(error) = put.and_then(|_| self.make_durable(&mut journal)) {
                // The nodes share one log: a leader without an epoch of its own does no harm, one that is forgotten
                // at the next start does.
                tracing::warn!(%error, "the leader moves within its epoch");
                return partition.lead(node, false);
            }
            *end = next;
        }
        drop(end);
        partition.lead(node, true);
    }

    /// The node that coordinates a group.
    pub(crate) fn coordinator(&self, group: &str) -> i32 {
        if let Some(node) = lock(&self.coordinators).get(group).copied().filter(|id| self.is_node_up(*id)) {
            return node;
        }
        // Any fixed spread will do; this one is Java's string hash without its sign, as Kafka spreads groups.
        let hash =
            group.bytes().fold(0_i32, |hash, byte| hash.wrapping_mul(31).wrapping_add(i32::from(byte)));
        self.preferred_leader(hash & 0x7fff_ffff)
    }

    /// Moves a group's coordinator.
    pub(crate) fn move_coordinator(&self, group: &str, node: i32) -> bool {
        if !self.is_node_up(node) {
            return false;
        }
        lock(&self.coordinators).insert(group.to_owned(), node);
        self.groups.unload(group);
        true
    }

    fn is_node_up(&self, id: i32) -> bool {
        self.node(id).is_some_and(Node::is_up)
    }

    /// Takes a node down: its connections are cut, what it led is led by the next node that is up. Or takes it up.
    pub(crate) fn set_node_up(&self, id: i32, up: bool) -> bool {
        let Some(node) = self.node(id) else { return false };
        if !node.up.turn(up) {
            return true;
        }
        for topic in self.topics() {
            for partition in &topic.partitions {
                let leader = partition.leader();
                if (!up && leader == id)
                    || (up && (leader == NO_LEADER || self.preferred_leader(partition.index) == id))
                {
                    self.lead(partition, self.preferred_leader(partition.index));
                }
            }
        }
        true
    }

    /// Applies retention to every partition, and forgets idle producers.
    pub(crate) fn enforce_retention(&self) {
        let now_ms = self.clock.now_ms();
        for topic in self.topics() {
            let usable =
                |partition: &&Arc<Partition>| partition.unavailable().is_none() && !partition.is_deleted();
            for partition in topic.partitions.iter().filter(usable) {
                let result = partition.log().enforce_retention(now_ms);
                match result {
                    Ok(retention) if retention.segments > 0 => {
                        tracing::info!(topic = %topic.name, partition = partition.index, segments = retention.segments,
                            bytes = retention.bytes, "retention");
                    }
                    Ok(_) => {}
                    Err(error) => tracing::warn!(%error, "retention"),
                }
            }
        }
    }

    /// Closes every log, so that the next start need not recover anything. Requests that come after it fail.
    pub fn close(&self) {
        for topic in self.topics() {
            for partition in topic.partitions.iter().filter(|partition| partition.unavailable().is_none()) {
                if let Err(error) = partition.log().shut() {
                    tracing::warn!(%error, "log not closed cleanly");
                }
                partition.tail().close();
            }
        }
        for result in [lock(&self.journal).shut(), self.offsets.shut()] {
            if let Err(error) = result {
                tracing::warn!(%error, "journal not closed cleanly");
            }
        }
    }
}

impl Node {
    pub(crate) fn is_up(&self) -> bool {
        self.up.is_on()
    }

    /// What clients are told to connect to.
    pub(crate) fn address(&self) -> (String, u16) {
        lock(&self.address).clone()
    }

    /// Sets what clients are told to connect to.
    pub(crate) fn advertise(&self, host: &str, port: u16) {
        *lock(&self.address) = (host.to_owned(), port);
        self.has_address.store(true, Ordering::Release);
    }
}

/// A random id, not one of Kafka's reserved ones.
pub(crate) fn random_uuid(rng: &mut fastrand::Rng) -> Uuid {
    let mut bytes = [0; 16];
    rng.fill(&mut bytes);
    // Version 4, variant 1: as Java's random UUIDs, and never 0 or 1.
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    Uuid(bytes)
}

pub(crate) fn storage_refusal(error: &(impl std::fmt::Display + ?Sized)) -> Refusal {
    tracing::error!(%error, "storage");
    (ErrorCode::KafkaStorageError, error.to_string())
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
