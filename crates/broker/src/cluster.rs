//! The cluster: topics, partitions, groups and leaders, shared by the nodes of one process.
//!
//! Nothing is replicated. Several nodes over one set of logs exist so that clients meet what they meet in a real
//! cluster: leaders on several brokers, leaders that move, coordinators that move, brokers that are down.

mod acls;
mod background;
#[cfg(target_os = "linux")]
mod background_priority;
pub(crate) mod client_addresses;
mod client_quotas;
pub(crate) mod features;
mod files;
mod leadership;
mod listener_certificates;
mod live_config;
pub(crate) mod nodes;
mod placement;
mod reassignment;
pub(crate) mod scram_credentials;
mod throttled_reassignments;
mod topic_store;
mod turns;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};

use bytes::Bytes;
use ottla_log::storage::Storage;
use ottla_log::storage::faulty::{DiskFaults, FaultyStorage};
use ottla_log::{CacheTotal, Journal, JournalConfig, JournalError, LogError, PendingSync, ProducerTotal};
use ottla_protocol::{ErrorCode, Uuid};
use tokio::task::JoinSet;
use tokio::time::Instant;

use self::background::BackgroundThreads;
use self::features::Features;
use self::files::Walk;
pub(crate) use self::leadership::Election;
pub(crate) use self::leadership::LEADER_EPOCH_KEY;
use self::leadership::LeaderEpochs;
pub use self::nodes::AddNodeError;
use self::nodes::{Node, Nodes};
pub(crate) use self::reassignment::Reassignment;
use self::throttled_reassignments::ThrottledReassignments;
use self::topic_store::TopicStore;
use self::turns::Turns;
use crate::cleaner_points::CleanerPoints;
use crate::client_metrics::ClientMetrics;
use crate::clock::Clock;
use crate::compactions::Compactions;
use crate::config::live::LiveConfig;
use crate::config::{BrokerConfig, Durability};
use crate::coordinator::consumer_group::registry::ConsumerGroups;
use crate::coordinator::groups::Groups;
use crate::coordinator::offsets::Offsets;
use crate::coordinator::share_group::registry::ShareGroups;
use crate::coordinator::share_partition::leader::ShareLeader;
use crate::coordinator::share_state::ShareStates;
use crate::data_dir::{Format, FormatError, META_DIR, check_format, write_format};
use crate::data_lock::DataLock;
use crate::deletion_clock::DeletionClock;
use crate::fetch_sessions::{FetchSessions, SessionLimits};
use crate::intercept::Intercepts;
use crate::memory::{KeptMemory, MemoryBudget, Parts, share_records_max};
use crate::metrics::BrokerMetrics;
use crate::partition::{Partition, Syncer};
use crate::peer::Warnings;
use crate::quotas::{ClientQuotas, QuotaUse};
use crate::request_memory::Shares;
use crate::security::Authorizer;
use crate::security::active_listener::ActiveListener;
use crate::security::scram_credentials::ScramCredentials;
use crate::switch::Switch;
use crate::test_overrides::TestOverrides;
use crate::transactions::coordinator::TransactionCoordinator;

const CLUSTER_ID_KEY: &[u8] = b"cluster";
pub(crate) const PRODUCER_IDS_KEY: &[u8] = b"producer-ids";
/// Producer ids taken from the journal at a time: a crash wastes at most so many.
const PRODUCER_ID_BLOCK: i64 = 1000;
/// The part of `memory.max.bytes` that producers may use beside the budget: the numbers of their last batches, for each partition.
const PRODUCERS_PART: usize = 16;
/// The part of `memory.max.bytes` that the tail caches of all logs have, beside it.
const CACHES_PART: usize = 8;

/// The replaceable parts of a cluster: storage, clock, syncs and random numbers.
#[derive(Clone, Debug)]
pub struct Seams {
    /// The storage of logs and journals.
    pub storage: Arc<dyn Storage>,
    /// The wall clock.
    pub clock: Clock,
    /// The executor of syncs.
    pub syncer: Syncer,
    /// Seed of every random choice.
    pub seed: u64,
}

/// The shared state of all nodes of one process.
#[derive(Debug)]
pub struct Cluster {
    /// The configuration at the start.
    pub(crate) config: BrokerConfig,
    /// The configuration with the changes of the run.
    pub(crate) live: LiveConfig,
    pub(crate) clock: Clock,
    /// The time of periodic deletions.
    pub(crate) deletion_clock: DeletionClock,
    pub(crate) syncer: Syncer,
    pub(crate) intercepts: Intercepts,
    pub(crate) disk_faults: Arc<DiskFaults>,
    pub(crate) overrides: TestOverrides,
    pub(crate) warnings: Warnings,
    pub(crate) groups: Groups,
    pub(crate) consumer_groups: ConsumerGroups,
    pub(crate) offsets: Offsets,
    pub(crate) share_groups: ShareGroups,
    pub(crate) share_states: ShareStates,
    pub(crate) transactions: TransactionCoordinator,
    pub(crate) share_leader: ShareLeader,
    id: String,
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) rng: Mutex<fastrand::Rng>,
    /// The seed of `segment.jitter.ms`.
    pub(crate) jitter_seed: u64,
    pub(crate) nodes: Nodes,
    /// The listeners of the nodes; none before the broker has opened them.
    listeners: OnceLock<Vec<Arc<ActiveListener>>>,
    pub(crate) metrics: Arc<BrokerMetrics>,
    /// On until the broker ends in an orderly way: requests that arrive later are not read.
    pub(crate) serving: Switch,
    pub(crate) state: RwLock<TopicStore>,
    pub(crate) journal: Arc<Mutex<Journal>>,
    /// Held during a change of topics, which can take long.
    pub(crate) topic_changes: Mutex<()>,
    /// Held while a node starts or stops, and while a leader is chosen: a node that was seen up must not stop before it leads.
    pub(crate) leader_changes: Mutex<()>,
    throttled_reassignments: ThrottledReassignments,
    turns: Turns,
    background: BackgroundThreads,
    pub(crate) data_lock: DataLock,
    file_walk: Mutex<Walk>,
    cache_walk: Mutex<Walk>,
    producer_ids: Mutex<ProducerIds>,
    /// Leaders that move without anything being appended leave no trace in the logs; a client that has seen their
    /// epochs would take the leaders after a restart for older ones, and never follow.
    pub(crate) leader_epochs: LeaderEpochs,
    /// The memory for requests and responses.
    pub(crate) memory: MemoryBudget,
    /// The part of it in which batches are decompressed. It is separate because requests that have memory wait for it.
    pub(crate) decoder_memory: MemoryBudget,
    /// The memory of connections that is not charged.
    pub(crate) shares: Shares,
    pub(crate) compactions: Compactions,
    pub(crate) cleaner_points: CleanerPoints,
    pub(crate) client_metrics: ClientMetrics,
    pub(crate) client_quotas: ClientQuotas,
    pub(crate) quota_use: QuotaUse,
    /// The producers that all logs remember together.
    pub(crate) producer_total: ProducerTotal,
    pub(crate) cache_total: CacheTotal,
    pub(crate) scram_credentials: ScramCredentials,
    /// The super users and the ACLs; `None` if every client may do everything.
    pub(crate) authorizer: Option<Authorizer>,
    pub(crate) features: Features,
    /// The syncs of partitions that are under way.
    pub(crate) syncs: Mutex<JoinSet<()>>,
    /// Coordinators that a test has moved, by group.
    pub(crate) coordinators: Mutex<BTreeMap<String, i32>>,
    /// The same, by transactional id.
    pub(crate) transaction_coordinators: Mutex<BTreeMap<String, i32>>,
}

#[derive(Debug)]
struct ProducerIds {
    next: i64,
    block_end: i64,
    /// The journal offset that must be durable before ids of the block are used.
    record: i64,
}

/// The lowest ids that may be given out, whatever the data says.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct IdFloors {
    pub(crate) producer_id: i64,
    pub(crate) leader_epoch: i32,
}

/// The reasons why the data of a cluster cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// A partition's log.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The journal of topics.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// An entry of a journal, whose checksum is right, cannot be read.
    #[error("journal {journal}: the entry `{key}`: {reason}")]
    Record {
        /// The journal.
        journal: &'static str,
        /// Its key.
        key: String,
        /// The problem.
        reason: String,
    },
    /// The data is not Ottla's.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The feature levels of a new cluster.
    #[error("features: {0}")]
    Features(String),
}

/// The reason why a topic could not be created or changed.
pub(crate) type Refusal = (ErrorCode, String);

impl Cluster {
    /// Opens the data in `seams.storage`, or begins a new cluster there, with this number of nodes. Blocks while logs are recovered.
    pub fn open(config: BrokerConfig, nodes: i32, seams: Seams) -> Result<Arc<Self>, OpenError> {
        Self::open_above(config, nodes, seams, IdFloors::default())
    }

    /// [`Cluster::open`], with ids that clients have not seen from another cluster.
    pub(crate) fn open_above(
        config: BrokerConfig,
        nodes: i32,
        seams: Seams,
        floors: IdFloors,
    ) -> Result<Arc<Self>, OpenError> {
        let Seams { storage, clock, syncer, seed } = seams;
        let config = config.with_countable_times();
        let disk_faults = Arc::new(DiskFaults::default());
        let storage: Arc<dyn Storage> = Arc::new(FaultyStorage::new(storage, disk_faults.clone()));
        let (mut rng, now_ms) = (fastrand::Rng::with_seed(seed), clock.now_ms());
        let format = check_format(&*storage)?;
        let mut journal = open_journal(storage.clone(), format, now_ms)?;
        features::record_initial(&mut journal, &config, now_ms)?;
        let id = cluster_id(&mut journal, &mut rng, now_ms)?;
        let next = next_producer_id_of(&journal).max(floors.producer_id);
        let first_epoch = first_leader_epoch(&mut journal, floors.leader_epoch, now_ms)?;
        let (parts, session_limits) = (Parts::of(config.memory_bytes_max), SessionLimits::of(&config));
        let new_node = |id| Node::new(id, FetchSessions::new(session_limits, rng.fork()));
        let nodes = config.node_ids(nodes).map(new_node).collect();
        let groups = Groups::new(&config, rng.fork());
        let share_records = KeptMemory::new(share_records_max(config.memory_bytes_max));
        let cluster = Self {
            transactions: TransactionCoordinator::new(&config, groups.memory().clone(), clock.clone()),
            consumer_groups: ConsumerGroups::new(groups.memory().clone()),
            share_groups: ShareGroups::new(groups.memory().clone()),
            share_states: ShareStates::new(groups.memory().clone(), share_records.clone()),
            share_leader: ShareLeader::new(share_records),
            offsets: Offsets::new(groups.memory().clone()),
            groups,
            memory: MemoryBudget::new(parts.requests, parts.responses),
            decoder_memory: MemoryBudget::new(parts.decoders, 0),
            shares: Shares::of(config.memory_bytes_max),
            live: LiveConfig::new(&config),
            authorizer: Authorizer::of(&config),
            quota_use: QuotaUse::of(&config),
            client_metrics: ClientMetrics::new(config.memory_bytes_max),
            producer_total: ProducerTotal::of_bytes(config.memory_bytes_max / PRODUCERS_PART),
            cache_total: CacheTotal::of_bytes(config.memory_bytes_max / CACHES_PART),
            deletion_clock: DeletionClock::new(clock.clone(), config.clock_jump_wait),
            config,
            clock,
            syncer,
            intercepts: Intercepts::default(),
            disk_faults,
            overrides: TestOverrides::default(),
            warnings: Warnings::default(),
            id,
            cleaner_points: CleanerPoints::load(storage.clone()),
            storage,
            rng: Mutex::new(rng),
            jitter_seed: seed,
            nodes: Nodes::new(nodes),
            listeners: OnceLock::new(),
            metrics: Arc::default(),
            serving: Switch::default(),
            state: RwLock::default(),
            journal: Arc::new(Mutex::new(journal)),
            topic_changes: Mutex::new(()),
            leader_changes: Mutex::new(()),
            throttled_reassignments: ThrottledReassignments::default(),
            turns: Turns::default(),
            background: BackgroundThreads::default(),
            data_lock: DataLock::default(),
            file_walk: Mutex::default(),
            cache_walk: Mutex::default(),
            producer_ids: Mutex::new(ProducerIds { next, block_end: next, record: 0 }),
            leader_epochs: LeaderEpochs::new(first_epoch),
            compactions: Compactions::default(),
            client_quotas: ClientQuotas::default(),
            scram_credentials: ScramCredentials::default(),
            features: Features::default(),
            syncs: Mutex::default(),
            coordinators: Mutex::default(),
            transaction_coordinators: Mutex::default(),
        };
        cluster.load(format)?;
        Ok(Arc::new(cluster))
    }

    /// Reads the data of the directory, which then has this version's format.
    fn load(&self, format: Format) -> Result<(), OpenError> {
        let record = lock(&self.journal).end_offset();
        self.sync_journal(record)?;
        self.load_settings()?;
        self.load_topics(format)?;
        self.forget_cleaner_points();
        if format != Format::Marked {
            write_format(&*self.storage)?;
        }
        Ok(())
    }

    /// Reads what clients have set, from the journal.
    fn load_settings(&self) -> Result<(), OpenError> {
        self.load_live_config()?;
        self.load_client_quotas()?;
        self.load_scram_credentials()?;
        self.load_acls()?;
        self.load_features()
    }

    /// The cluster's id, the same for as long as its data lives.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The first producer id and leader epoch above all that clients have seen.
    pub(crate) fn id_floors(&self) -> IdFloors {
        let topics = self.topics();
        let partitions = topics.iter().flat_map(|topic| &topic.partitions);
        let epochs = partitions.map(|partition| partition.leader_epoch().saturating_add(1));
        let leader_epoch = epochs.max().unwrap_or(0).max(self.leader_epochs.end());
        IdFloors { producer_id: lock(&self.producer_ids).next, leader_epoch }
    }

    /// Returns a producer id that was never used before.
    pub(crate) async fn next_producer_id(&self) -> Result<i64, JournalError> {
        let (id, record) = self.take_producer_id()?;
        self.await_journal(record).await?;
        Ok(id)
    }

    /// Takes a producer id, and returns the journal offset that must be durable before a client receives it.
    fn take_producer_id(&self) -> Result<(i64, i64), JournalError> {
        let mut ids = lock(&self.producer_ids);
        if ids.next >= ids.block_end {
            let block_end = ids.next + PRODUCER_ID_BLOCK;
            let value = Bytes::copy_from_slice(&block_end.to_be_bytes());
            let mut journal = lock(&self.journal);
            ids.record =
                journal.put(self.clock.now_ms(), Bytes::from_static(PRODUCER_IDS_KEY), Some(value))?;
            ids.block_end = block_end;
        }
        let id = ids.next;
        ids.next += 1;
        Ok((id, ids.record))
    }

    /// Waits until the journal is durable up to its offset `record`. The sync and the deletion of old entries run in the [`Syncer`].
    pub(crate) async fn await_journal(&self, record: i64) -> Result<(), JournalError> {
        while let Some(pending) = self.next_journal_sync(record)? {
            let began = Instant::now();
            let synced = self.run_blocking(move || pending.run()).await;
            self.metrics.journal_syncs.add(began.elapsed(), synced.is_ok());
            let wants_deletion = {
                let mut journal = lock(&self.journal);
                journal.sync_done(synced)?;
                journal.wants_deletion()
            };
            if wants_deletion {
                // It ends even if the caller goes away: the journal is not compacted again before.
                let journal = self.journal.clone();
                self.run_blocking(move || delete_old_entries(&journal)).await;
            }
        }
        Ok(())
    }

    /// [`Cluster::await_journal`] for callers that may block.
    pub(crate) fn sync_journal(&self, record: i64) -> Result<(), JournalError> {
        while let Some(pending) = self.next_journal_sync(record)? {
            let synced = self.metrics.journal_syncs.run(pending);
            lock(&self.journal).sync_done(synced)?;
            delete_old_entries(&self.journal);
        }
        Ok(())
    }

    /// The sync that the journal needs to be durable up to its offset `record`. Which topics there are survives a power
    /// cut with `os`, too: their directories may.
    fn next_journal_sync(&self, record: i64) -> Result<Option<PendingSync>, JournalError> {
        let mut journal = lock(&self.journal);
        let is_durable = journal.synced_offset() >= record || self.config.durability == Durability::Memory;
        if is_durable && !journal.wants_sync() {
            return Ok(None);
        }
        match journal.pending_sync() {
            Some(pending) => Ok(Some(pending)),
            // Nothing to sync: a journal that is offline fails here.
            None => journal.sync_now().map(|_| None),
        }
    }

    /// Applies retention to every partition, and forgets idle producers. It reads and deletes on a thread that may block. The ages of
    /// records are those at `age_ms`.
    pub(crate) async fn enforce_retention(self: &Arc<Self>, age_ms: i64) {
        for topic in self.topics() {
            let (cluster, now_ms) = (self.clone(), self.clock.now_ms());
            let work = move || {
                let usable = |partition: &&Arc<Partition>| {
                    partition.unavailable().is_none() && !partition.is_deleted()
                };
                for partition in topic.partitions.iter().filter(usable) {
                    cluster.make_room_for_files();
                    match partition.enforce_retention(now_ms, age_ms) {
                        Ok(()) => {}
                        Err(error) => {
                            tracing::warn!(%error, topic = %topic.name, partition = partition.index, "cannot apply retention");
                        }
                    }
                }
            };
            self.run_blocking(work).await;
        }
    }

    /// Forgets the producers of all partitions that were idle for `producer.id.expiration.ms`. It looks at every producer: not in the
    /// thread that serves clients.
    pub(crate) async fn expire_producers(self: &Arc<Self>) {
        let cluster = self.clone();
        // One piece of work for all topics: most partitions have no producers, and take less time than a change of threads.
        let work = move || {
            for topic in cluster.topics() {
                let usable = topic.partitions.iter().filter(|partition| partition.unavailable().is_none());
                for partition in usable {
                    let mut log = partition.log();
                    // Read with the lock held, so that it is not before the time of the last batch.
                    log.expire_producers(cluster.clock.now_ms());
                }
            }
        };
        self.run_blocking(work).await;
    }

    /// Forgets the cleaner points of partitions that do not exist.
    pub(crate) fn forget_cleaner_points(&self) {
        let exists = |topic: &str, index: i32| self.partition(topic, index).is_some();
        if let Err(error) = self.cleaner_points.retain(exists) {
            tracing::warn!(%error, "cannot remove the cleaner points of deleted topics");
        }
    }

    /// Waits for the syncs that are under way.
    pub(crate) async fn finish_syncs(&self) {
        let mut syncs = std::mem::take(&mut *lock(&self.syncs));
        while let Some(ended) = syncs.join_next().await {
            if let Err(error) = ended {
                tracing::error!(%error, "a sync did not end");
            }
        }
    }

    /// Returns the reason why the broker cannot accept requests, if there is one: it is draining, or the journal of topics
    /// cannot be written.
    pub fn unready_reason(&self) -> Option<String> {
        if self.is_draining() {
            return Some("the broker ends".to_owned());
        }
        lock(&self.journal).offline_reason().map(|reason| format!("the journal of topics: {reason}"))
    }

    /// Closes every log, so that the next start need not recover anything. Requests that come after it fail.
    pub fn close(&self) {
        if let Err(error) = self.settle_floors() {
            tracing::warn!(%error, "cannot write the offset floors");
        }
        let topics = self.topics();
        let partitions: Vec<&Arc<Partition>> = topics.iter().flat_map(|topic| &topic.partitions).collect();
        self.syncer.map_all(&partitions, |partition| {
            if partition.unavailable().is_some() {
                return;
            }
            if let Err(error) = self.log_with_files(partition).shut() {
                tracing::warn!(%error, "log not closed cleanly");
            }
            partition.tail().close();
        });
        if let Err(error) = lock(&self.journal).shut() {
            tracing::warn!(%error, "journal not closed cleanly");
        }
    }
}

/// Deletes the entries of a journal that a durable compaction has written again. Blocks for syncs and for the removal of files; the
/// journal is free for others meanwhile.
fn delete_old_entries(journal: &Mutex<Journal>) {
    let pending = lock(journal).begin_deletion();
    if let Some(pending) = pending {
        let stored = pending.run();
        let files = lock(journal).finish_deletion(stored);
        // Dropping the files removes them, and logs an error.
        drop(files);
    }
}

/// A journal that is gone has taken with it what every topic is: a directory with the mark of its format must have one.
fn open_journal(storage: Arc<dyn Storage>, format: Format, now_ms: i64) -> Result<Journal, JournalError> {
    let open = if format == Format::Marked { Journal::open_existing } else { Journal::open };
    let (journal, _) = open(storage, META_DIR, JournalConfig::default(), now_ms)?;
    Ok(journal)
}

/// The id of the cluster; a new one is recorded.
fn cluster_id(journal: &mut Journal, rng: &mut fastrand::Rng, now_ms: i64) -> Result<String, JournalError> {
    if let Some(id) = journal.get(CLUSTER_ID_KEY) {
        return Ok(String::from_utf8_lossy(id).into_owned());
    }
    let id = random_uuid(rng).to_string();
    journal.put(now_ms, Bytes::from_static(CLUSTER_ID_KEY), Some(id.clone().into()))?;
    Ok(id)
}

/// The leader epoch with which partitions begin; a floor is recorded, so that the next start is not below it.
fn first_leader_epoch(journal: &mut Journal, floor: i32, now_ms: i64) -> Result<i32, JournalError> {
    let first = next_leader_epoch_of(journal).max(floor);
    if floor > 0 {
        let value = Bytes::copy_from_slice(&first.to_be_bytes());
        journal.put(now_ms, Bytes::from_static(LEADER_EPOCH_KEY), Some(value))?;
    }
    Ok(first)
}

/// The end of the leader epochs that the journal has reserved.
pub(crate) fn next_leader_epoch_of(journal: &Journal) -> i32 {
    let reserved = journal.get(LEADER_EPOCH_KEY).and_then(|value| value.first_chunk::<4>().copied());
    reserved.map_or(0, i32::from_be_bytes)
}

/// The first producer id that no block of the journal has.
pub(crate) fn next_producer_id_of(journal: &Journal) -> i64 {
    let stored = journal.get(PRODUCER_IDS_KEY).and_then(|value| value.first_chunk::<8>());
    stored.map_or(0, |bytes| i64::from_be_bytes(*bytes))
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

/// A value of the journal, in JSON so that people can read the file.
pub(crate) fn json(record: &impl serde::Serialize) -> Result<Bytes, Refusal> {
    serde_json::to_vec(record)
        .map(Bytes::from)
        .map_err(|error| (ErrorCode::UnknownServerError, error.to_string()))
}

pub(crate) fn storage_refusal(error: &(impl std::fmt::Display + ?Sized)) -> Refusal {
    tracing::error!(%error, "the storage failed");
    (ErrorCode::KafkaStorageError, error.to_string())
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
