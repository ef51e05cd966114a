//! One partition: a lock around its log, who leads it, and the sync that makes appends durable.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ottla_log::{
    CompactionError, CompactionOptions, CompactionReport, Log, LogConfig, LogError, PendingSync,
    RetentionStep, Synced, Tail,
};
use ottla_protocol::{ErrorCode, Uuid};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::config::Durability;
use crate::data_lock::DataLock;
use crate::internal_topics::is_internal;
use crate::metrics::{BrokerMetrics, Syncs};
use crate::stored_codec::StoredCodec;
use crate::sync_flag::SyncFlag;

/// Offsets reserved at a time: a partition with a million records per second writes one journal record per second. A
/// partition that is rebuilt after a kill skips at most so many offsets.
pub(crate) const FLOOR_STEP: i64 = 1 << 20;

/// Threads that open, create or close logs at a time. They wait for the disk most of the time.
const THREADS_MAX: usize = 8;
/// Fewer logs than twice this number are opened, created or closed by one thread.
const ITEMS_PER_THREAD_MIN: usize = 8;

/// The pause after a sync that could not open a file.
const SYNC_RETRY_PAUSE: Duration = Duration::from_millis(100);
/// Such a sync is tried so often. The next append starts another one, and so does [`crate::cluster::Cluster::keep_syncing`].
const SYNC_TRIES_MAX: u32 = 30;

/// No node leads the partition.
pub(crate) const NO_LEADER: i32 = -1;

/// A partition of a topic.
#[derive(Debug)]
pub(crate) struct Partition {
    pub(crate) topic: Arc<str>,
    pub(crate) topic_id: Uuid,
    pub(crate) index: i32,
    /// True if it belongs to a topic of the coordinators, which no producer writes.
    pub(crate) is_internal: bool,
    /// The codec of `compression.type`.
    pub(crate) stored_codec: StoredCodec,
    log: Mutex<Log>,
    tail: Tail,
    leader: AtomicI32,
    leader_epoch: AtomicI32,
    pub(crate) sync_flag: SyncFlag,
    /// True after the deletion of its topic: requests that still hold it fail.
    deleted: AtomicBool,
    /// The reason why its log was not opened, if so: it has no leader then, and requests fail.
    unavailable: Option<String>,
    /// The node that led it last, or that would lead it.
    home: AtomicI32,
    /// No record has had an offset at or above it: see [`crate::offset_floors`].
    floor: AtomicI64,
    /// The journal offset that must be synced for the floor to be durable; 0 once it is.
    floor_record: AtomicI64,
    /// Held while records are deleted: the log itself is free during the sync.
    deletion: Mutex<()>,
    /// Held during a compaction: its directory must not go meanwhile.
    compaction: Mutex<()>,
    /// True if its files were used since [`Partition::close_idle_files`] last looked.
    used: AtomicBool,
    /// True if its records were read or written since [`Partition::empty_idle_cache`] last looked.
    used_lately: AtomicBool,
}

/// A partition's topic, number and offset floor.
#[derive(Clone, Debug)]
pub(crate) struct PartitionIdentity {
    pub(crate) topic: Arc<str>,
    pub(crate) topic_id: Uuid,
    pub(crate) index: i32,
    pub(crate) floor: i64,
}

impl Partition {
    pub(crate) fn new(identity: PartitionIdentity, log: Log, home: i32, epoch_min: i32) -> Arc<Self> {
        let PartitionIdentity { topic, topic_id, index, floor } = identity;
        let epoch = log.latest_epoch().map_or(0, |epoch| epoch.saturating_add(1)).max(epoch_min);
        let unavailable = log.offline_reason().map(ToOwned::to_owned);
        let leader = if unavailable.is_some() { NO_LEADER } else { home };
        Arc::new(Self {
            is_internal: is_internal(&topic),
            topic,
            topic_id,
            index,
            tail: log.tail().clone(),
            stored_codec: StoredCodec::new(log.config()),
            log: Mutex::new(log),
            leader: AtomicI32::new(leader),
            leader_epoch: AtomicI32::new(epoch),
            sync_flag: SyncFlag::default(),
            deleted: AtomicBool::new(false),
            unavailable,
            home: AtomicI32::new(home),
            floor: AtomicI64::new(floor),
            floor_record: AtomicI64::new(0),
            deletion: Mutex::new(()),
            compaction: Mutex::new(()),
            used: AtomicBool::new(false),
            used_lately: AtomicBool::new(false),
        })
    }

    /// The reason why its log was not opened at the start, if so.
    pub(crate) fn unavailable(&self) -> Option<&str> {
        self.unavailable.as_deref()
    }

    /// Returns whether its log cannot be used: it was not opened at the start, or an error of the disk took it offline.
    pub(crate) fn is_offline(&self) -> bool {
        self.unavailable.is_some() || self.tail.has_failed()
    }

    /// Returns the error of a request for an offline log. As in Kafka's `ReplicaManager.getPartitionOrError`, it comes before the
    /// errors of the leader and its epoch.
    pub(crate) fn check_online(&self) -> Result<(), ErrorCode> {
        if self.is_offline() && !self.is_deleted() { Err(ErrorCode::KafkaStorageError) } else { Ok(()) }
    }

    /// The leader for clients: none of an offline log, as in Kafka after the failure of a log directory.
    pub(crate) fn described_leader(&self) -> i32 {
        if self.is_offline() { NO_LEADER } else { self.leader() }
    }

    pub(crate) fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the settings of its log.
    pub(crate) fn update_config(&self, config: LogConfig) {
        self.stored_codec.set(&config);
        self.log().update_config(config);
    }

    /// The log. Its files stay open for a while.
    pub(crate) fn log_in_use(&self) -> MutexGuard<'_, Log> {
        self.used.store(true, Ordering::Relaxed);
        self.used_lately.store(true, Ordering::Relaxed);
        self.log()
    }

    /// Drops the recent batches that its log has in memory if it was not used since the last call.
    pub(crate) fn empty_idle_cache(&self) {
        if self.used_lately.swap(false, Ordering::Relaxed) {
            return;
        }
        // A log that is locked is in use.
        if let Ok(mut log) = self.log.try_lock() {
            log.trim_cache(0);
        }
    }

    /// Closes the files of its log if they were not used since the last call, and are synced if they have to be. Returns
    /// `true` if it closed any.
    pub(crate) fn close_idle_files(&self, durability: Durability) -> bool {
        if self.unavailable.is_some() || self.used.swap(false, Ordering::Relaxed) {
            return false;
        }
        // A log that is locked is in use.
        self.log.try_lock().is_ok_and(|mut log| log.close_idle_files(durability != Durability::Disk))
    }

    /// Grows with what consumers may see.
    pub(crate) fn tail(&self) -> &Tail {
        &self.tail
    }

    /// The offset up to which consumers may read.
    pub(crate) fn high_watermark(&self) -> i64 {
        self.tail.visible()
    }

    pub(crate) fn leader(&self) -> i32 {
        self.leader.load(Ordering::Acquire)
    }

    /// The leader; without one, the node that led last.
    pub(crate) fn last_leader(&self) -> i32 {
        match self.leader() {
            NO_LEADER => self.home.load(Ordering::Acquire),
            leader => leader,
        }
    }

    /// The replicas of a partition that has one, which no client has chosen: the node that leads, or led last.
    pub(crate) fn replicas(&self) -> Vec<i32> {
        Some(self.last_leader()).filter(|leader| *leader != NO_LEADER).into_iter().collect()
    }

    pub(crate) fn leader_epoch(&self) -> i32 {
        self.leader_epoch.load(Ordering::Acquire)
    }

    /// Returns the last epoch up to `epoch` and its end offset; `None` if `epoch` is above the leader's.
    ///
    /// A leader begins its epoch at the end of the log, also if it has not written yet.
    pub(crate) fn epoch_end(&self, log: &Log, epoch: i32) -> Option<(i32, i64)> {
        let of_unwritten = || {
            let latest =
                if epoch == self.leader_epoch() { epoch } else { log.latest_epoch().unwrap_or(epoch) };
            (epoch <= self.leader_epoch()).then_some((latest, log.end_offset()))
        };
        log.epoch_end(epoch).or_else(of_unwritten)
    }

    pub(crate) fn floor(&self) -> i64 {
        self.floor.load(Ordering::Acquire)
    }

    /// Takes a floor that the journal has up to its offset `record`.
    pub(crate) fn set_floor(&self, floor: i64, record: i64) {
        self.floor_record.store(record, Ordering::Release);
        self.floor.store(floor, Ordering::Release);
    }

    /// The journal offset that must be synced for the floor to be durable; 0 once it is.
    pub(crate) fn floor_record(&self) -> i64 {
        self.floor_record.load(Ordering::Acquire)
    }

    /// Notes that the journal is durable up to `record`.
    pub(crate) fn floor_is_durable(&self, record: i64) {
        // Fails when the floor was raised meanwhile: its record is a later one.
        let _ = self.floor_record.compare_exchange(record, 0, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Makes `node` the leader, in a new epoch if there is one, and wakes waiting fetches.
    pub(crate) fn lead(&self, node: i32, new_epoch: bool) {
        if self.unavailable.is_some() {
            return;
        }
        if node != NO_LEADER {
            self.home.store(node, Ordering::Release);
        }
        if self.leader.swap(node, Ordering::AcqRel) != node {
            self.leader_epoch.fetch_add(i32::from(new_epoch), Ordering::AcqRel);
            self.tail.wake_all();
        }
    }

    /// Begins the next epoch of the same leader, and wakes waiting fetches.
    pub(crate) fn lead_again(&self) {
        self.leader_epoch.fetch_add(1, Ordering::AcqRel);
        self.tail.wake_all();
    }

    /// Returns the error of a request for this partition at `node` under the client's `epoch` (-1: unknown), if there
    /// is one.
    pub(crate) fn check_leader(&self, node: i32, epoch: i32) -> Result<(), ErrorCode> {
        if self.deleted.load(Ordering::Acquire) {
            return Err(ErrorCode::UnknownTopicOrPartition);
        }
        if self.unavailable.is_some() {
            return Err(ErrorCode::KafkaStorageError);
        }
        if self.leader() != node {
            return Err(ErrorCode::NotLeaderOrFollower);
        }
        self.check_epoch(epoch)
    }

    /// Returns the error of a request under the client's `epoch` (-1: unknown), if there is one.
    pub(crate) fn check_epoch(&self, epoch: i32) -> Result<(), ErrorCode> {
        match epoch.cmp(&self.leader_epoch()) {
            _ if epoch < 0 => Ok(()),
            std::cmp::Ordering::Less => Err(ErrorCode::FencedLeaderEpoch),
            std::cmp::Ordering::Greater => Err(ErrorCode::UnknownLeaderEpoch),
            std::cmp::Ordering::Equal => Ok(()),
        }
    }

    pub(crate) fn delete(&self) {
        self.deleted.store(true, Ordering::Release);
        self.tail.close();
        self.tail.wake_all();
    }

    pub(crate) fn is_deleted(&self) -> bool {
        self.deleted.load(Ordering::Acquire)
    }

    /// Takes the log of a deleted partition offline, and waits for the end of a deletion of its records: no file of its directory
    /// changes after that, which may be the directory of a topic that is created again. Blocks.
    pub(crate) fn close_deleted_log(&self) {
        self.log().note_deleted();
        drop(self.deletion.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Deletes segments that are old at `age_ms`. Blocks; the log is free for others while segments are read and while the disk writes.
    pub(crate) fn enforce_retention(&self, now_ms: i64, age_ms: i64) -> Result<(), LogError> {
        let _deletion = self.deletion.lock().unwrap_or_else(PoisonError::into_inner);
        match self.enforce_retention_locked(now_ms, age_ms) {
            // The log went offline with its topic.
            Err(_) if self.is_deleted() => Ok(()),
            result => result,
        }
    }

    fn enforce_retention_locked(&self, now_ms: i64, age_ms: i64) -> Result<(), LogError> {
        loop {
            let step = self.log().plan_retention_at(now_ms, age_ms)?;
            if self.is_deleted() {
                return Ok(());
            }
            let stored = match step {
                RetentionStep::ReadTimestamps(read) => {
                    let newest = read.run();
                    self.log().note_newest(newest)?;
                    continue;
                }
                RetentionStep::StoreStart(pending) => pending.run(),
                RetentionStep::Done => return Ok(()),
            };
            let gone = self.log().finish_deletion(stored)?;
            tracing::info!(topic = %self.topic, partition = self.index, segments = gone.segments,
                bytes = gone.bytes, "removed old segments");
            return Ok(());
        }
    }

    /// Deletes the records below `offset`, and returns the new start offset. Blocks for a sync.
    pub(crate) fn delete_records_before(&self, offset: i64) -> Result<i64, LogError> {
        let _deletion = self.deletion.lock().unwrap_or_else(PoisonError::into_inner);
        let pending = self.log().begin_deletion(offset)?;
        let stored = pending.run();
        let gone = self.log().finish_deletion(stored)?;
        Ok(gone.start_offset)
    }

    /// Segments beyond this offset are not compacted: it is not known yet whether their data is aborted.
    pub(crate) fn stable_end(&self) -> i64 {
        self.last_stable_offset()
    }

    /// Compacts the log, without the data of the transactions that its indexes say are aborted. Blocks; the log is free for
    /// others except while segments are replaced. `settle` gets the figures, and the time that the removal of the replaced files took.
    /// A deletion waits for its end: it must not store a cleaner point after that.
    pub(crate) fn compact<V>(
        &self,
        options: CompactionOptions,
        should_stop: &dyn Fn() -> bool,
        settle: impl FnOnce(Result<(CompactionReport, Duration), CompactionError>) -> V,
    ) -> V {
        let _compaction = self.compaction.lock().unwrap_or_else(PoisonError::into_inner);
        settle(self.compact_locked(options, should_stop))
    }

    fn compact_locked(
        &self,
        mut options: CompactionOptions,
        should_stop: &dyn Fn() -> bool,
    ) -> Result<(CompactionReport, Duration), CompactionError> {
        if should_stop() {
            return Err(CompactionError::Stopped);
        }
        let mut compaction = {
            let mut log = self.log();
            options.aborted = log.all_aborted_transactions(options.stable_end)?;
            log.begin_compaction(options)?
        };
        // With durability `os` a power cut could lose the newest value of a key whose earlier one was removed.
        let pending = self.log().pending_closed_sync();
        if let Some(pending) = pending {
            let synced = pending.run();
            self.log().sync_done(synced).map_err(CompactionError::from)?;
        }
        let mut removal = Duration::ZERO;
        loop {
            let cleaned = compaction.clean_next(should_stop);
            if cleaned.is_err() {
                self.log().note_damage(&mut compaction);
            }
            let Some(group) = cleaned? else { break };
            let pending = self.log().begin_replacement(group)?;
            let pending = pending.run();
            let mut replaced = self.log().finish_replacement(pending)?;
            replaced.sync()?;
            let begun = Instant::now();
            replaced.run()?;
            removal += begun.elapsed();
        }
        Ok((compaction.report(), removal))
    }

    /// The sync that makes everything durable; `None` if it is durable.
    ///
    /// # Errors
    /// The reason why the log is offline, if records are not durable and no sync will make them so.
    pub(crate) fn pending_sync(&self) -> Result<Option<PendingSync>, String> {
        let log = self.log();
        match (log.pending_sync(), log.offline_reason()) {
            (None, Some(reason)) if log.synced_offset() < log.end_offset() => Err(reason.to_owned()),
            (pending, _) => Ok(pending),
        }
    }

    /// Waits for the end of a compaction, which a deletion stops.
    pub(crate) fn await_compaction(&self) {
        drop(self.compaction.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Starts making what was appended durable, unless that is under way. Many appends share one sync. With
    /// durability `os` these are the closed segments, if there are such: after a crash only the active one is scanned.
    ///
    /// The task that syncs belongs to `tasks`.
    pub(crate) fn start_sync(
        self: &Arc<Self>,
        durability: Durability,
        has_closed: bool,
        syncer: Syncer,
        metrics: &Arc<BrokerMetrics>,
        tasks: &Mutex<JoinSet<()>>,
        data_lock: &DataLock,
    ) {
        let scope = match durability {
            Durability::Disk => SyncScope::All,
            Durability::Os if has_closed => SyncScope::ClosedSegments,
            Durability::Os | Durability::Memory => return,
        };
        if !self.sync_flag.begin() {
            return;
        }
        let (partition, metrics, held) = (self.clone(), metrics.clone(), data_lock.share());
        let mut tasks = tasks.lock().unwrap_or_else(PoisonError::into_inner);
        // Tasks that have ended leave the set here: it stays as small as the number of syncs under way.
        while tasks.try_join_next().is_some() {}
        match syncer {
            Syncer::Thread => {
                tasks.spawn_blocking(move || {
                    let mut failures = 0;
                    while let Some(pause) = partition.sync_once(scope, &metrics.log_syncs, &mut failures) {
                        #[expect(
                            clippy::disallowed_methods,
                            reason = "a thread for blocking work; only production uses this one"
                        )]
                        std::thread::sleep(pause);
                    }
                    drop(held);
                });
            }
            Syncer::Inline(delay) => {
                tasks.spawn(async move {
                    let (mut failures, mut next) = (0, Some(Duration::ZERO));
                    while let Some(pause) = next {
                        tokio::time::sleep(delay + pause).await;
                        next = partition.sync_once(scope, &metrics.log_syncs, &mut failures);
                    }
                    drop(held);
                });
            }
        }
    }

    /// One sync. Returns the pause before the next one, if something came in meanwhile or this one could not open a file.
    /// `failures` counts those since a sync has ended.
    fn sync_once(&self, scope: SyncScope, syncs: &Syncs, failures: &mut u32) -> Option<Duration> {
        let mut pause = Duration::ZERO;
        let pending = scope.pending(&self.log());
        if let Some(pending) = pending {
            let synced = syncs.run(pending);
            if self.is_deleted() {
                // Its directory is gone, or goes: nothing that the sync says matters.
                return None;
            }
            let applied = self.log().sync_done(synced);
            if applied.is_ok() {
                *failures = 0;
            }
            if let Err(error) = applied {
                if self.is_deleted() {
                    return None;
                }
                if matches!(error, LogError::Io { .. }) {
                    // The log is online, and there may be a file descriptor later.
                    *failures += 1;
                    pause = SYNC_RETRY_PAUSE;
                }
                tracing::error!(%error, topic = %self.topic, partition = self.index, "a sync failed");
                self.tail.wake_all();
            }
        }
        let is_tried_again = *failures < SYNC_TRIES_MAX;
        let is_needed = self.sync_flag.end(|| is_tried_again && scope.is_pending(&self.log()));
        if !is_tried_again {
            self.sync_flag.give_up();
        }
        is_needed.then_some(pause)
    }
}

/// The part of a log that is made durable.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum SyncScope {
    All,
    ClosedSegments,
}

impl SyncScope {
    fn pending(self, log: &Log) -> Option<PendingSync> {
        match self {
            Self::All => log.pending_sync(),
            Self::ClosedSegments => log.pending_closed_sync(),
        }
    }

    fn is_pending(self, log: &Log) -> bool {
        match self {
            Self::All => log.pending_sync().is_some(),
            Self::ClosedSegments => log.offline_reason().is_none() && log.has_unsynced_segments(),
        }
    }
}

/// The executor of syncs and of other work that blocks.
#[derive(Clone, Copy, Debug)]
pub enum Syncer {
    /// On the runtime's threads for blocking work.
    Thread,
    /// In the caller's thread after a virtual delay: for simulations.
    Inline(Duration),
}

impl Syncer {
    /// Does work that may block for each item, on several threads: a disk makes several syncs durable together.
    pub(crate) fn map_all<T: Sync, V: Send>(self, items: &[T], work: impl Fn(&T) -> V + Sync) -> Vec<V> {
        let threads = match self {
            Self::Thread => (items.len() / ITEMS_PER_THREAD_MIN).min(THREADS_MAX),
            Self::Inline(_) => 1,
        };
        if threads <= 1 {
            return items.iter().map(work).collect();
        }
        let next = AtomicUsize::new(0);
        let work_off = || {
            let mut done = Vec::new();
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some(item) = items.get(at) else { return done };
                done.push((at, work(item)));
            }
        };
        let mut done: Vec<(usize, V)> = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work_off)).collect();
            let ended = workers.into_iter().map(std::thread::ScopedJoinHandle::join);
            ended.flat_map(|done| done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
        });
        done.sort_unstable_by_key(|(at, _)| *at);
        done.into_iter().map(|(_, value)| value).collect()
    }

    /// Runs one sync and waits for it.
    pub(crate) async fn run(self, pending: PendingSync) -> Synced {
        self.run_blocking(move || pending.run()).await
    }

    /// Runs work that may block, and waits for it.
    pub(crate) async fn run_blocking<V: Send + 'static>(
        self,
        work: impl FnOnce() -> V + Send + 'static,
    ) -> V {
        match self {
            Self::Thread =>
            {
                #[expect(
                    clippy::disallowed_methods,
                    reason = "the work blocks; only production uses this one"
                )]
                finished(tokio::task::spawn_blocking(work)).await
            }
            Self::Inline(delay) => {
                tokio::time::sleep(delay).await;
                work()
            }
        }
    }
}

/// Waits for work on a thread of a runtime.
pub(crate) async fn finished<V>(running: tokio::task::JoinHandle<V>) -> V {
    match running.await {
        Ok(done) => done,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        // The runtime is shutting down: no client waits for the answer.
        Err(_) => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
