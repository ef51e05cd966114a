//! One partition: a lock around its log, who leads it, and the sync that makes appends durable.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ottla_log::{Log, PendingSync, Synced, Tail};
use ottla_protocol::{ErrorCode, Uuid};
use tokio::task::JoinSet;

use crate::config::Durability;

/// No node leads the partition.
pub(crate) const NO_LEADER: i32 = -1;

/// A partition of a topic.
#[derive(Debug)]
pub(crate) struct Partition {
    pub(crate) topic: Arc<str>,
    pub(crate) topic_id: Uuid,
    pub(crate) index: i32,
    log: Mutex<Log>,
    tail: Tail,
    leader: AtomicI32,
    leader_epoch: AtomicI32,
    /// True if a sync is under way or about to be.
    syncing: AtomicBool,
    /// True after the deletion of its topic: requests that still hold it fail.
    deleted: AtomicBool,
    /// The reason why its log was not opened, if so: it has no leader then, and requests fail.
    unavailable: Option<String>,
    /// The node that would lead it.
    home: i32,
    /// No record has had an offset at or above it: see [`crate::offset_floors`].
    floor: AtomicI64,
    /// The journal offset that must be synced for the floor to be durable; 0 once it is.
    floor_record: AtomicI64,
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
            topic,
            topic_id,
            index,
            tail: log.tail().clone(),
            log: Mutex::new(log),
            leader: AtomicI32::new(leader),
            leader_epoch: AtomicI32::new(epoch),
            syncing: AtomicBool::new(false),
            deleted: AtomicBool::new(false),
            unavailable,
            home,
            floor: AtomicI64::new(floor),
            floor_record: AtomicI64::new(0),
        })
    }

    /// The reason why its log was not opened at the start, if so.
    pub(crate) fn unavailable(&self) -> Option<&str> {
        self.unavailable.as_deref()
    }

    /// The replicas that cannot be used.
    pub(crate) fn offline_replicas(&self) -> Vec<i32> {
        self.unavailable.as_ref().map(|_| self.home).into_iter().collect()
    }

    pub(crate) fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// The nodes in the replica list of metadata: the leader alone.
    pub(crate) fn replicas(&self) -> Vec<i32> {
        if self.unavailable.is_some() {
            return vec![self.home];
        }
        Some(self.leader()).filter(|leader| *leader != NO_LEADER).into_iter().collect()
    }

    pub(crate) fn leader_epoch(&self) -> i32 {
        self.leader_epoch.load(Ordering::Acquire)
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
        if self.leader.swap(node, Ordering::AcqRel) != node {
            self.leader_epoch.fetch_add(i32::from(new_epoch), Ordering::AcqRel);
            self.tail.wake_all();
        }
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

    /// Starts making what was appended durable, unless that is under way. Many appends share one sync. With
    /// durability `os` these are the closed segments, if there are such: after a crash only the active one is scanned.
    ///
    /// The task that syncs belongs to `tasks`.
    pub(crate) fn start_sync(
        self: &Arc<Self>,
        durability: Durability,
        has_closed: bool,
        syncer: Syncer,
        tasks: &Mutex<JoinSet<()>>,
    ) {
        let scope = match durability {
            Durability::Disk => SyncScope::All,
            Durability::Os if has_closed => SyncScope::ClosedSegments,
            Durability::Os | Durability::Memory => return,
        };
        if self.syncing.swap(true, Ordering::AcqRel) {
            return;
        }
        let partition = self.clone();
        let mut tasks = tasks.lock().unwrap_or_else(PoisonError::into_inner);
        // Tasks that have ended leave the set here: it stays as small as the number of syncs under way.
        while tasks.try_join_next().is_some() {}
        match syncer {
            Syncer::Thread => {
                tasks.spawn_blocking(move || while partition.sync_once(scope) {});
            }
            Syncer::Inline(delay) => {
                tasks.spawn(async move {
                    loop {
                        tokio::time::sleep(delay).await;
                        if !partition.sync_once(scope) {
                            return;
                        }
                    }
                });
            }
        }
    }

    /// One sync; `true` if something came in meanwhile.
    fn sync_once(&self, scope: SyncScope) -> bool {
        let pending = scope.pending(&self.log());
        if let Some(pending) = pending {
            let synced = pending.run();
            if self.is_deleted() {
                // Its directory is gone, or goes: nothing that the sync says matters.
                return false;
            }
            if let Err(error) = self.log().sync_done(synced) {
                tracing::error!(%error, topic = %self.topic, partition = self.index, "a sync failed");
                self.tail.wake_all();
            }
        }
        self.syncing.store(false, Ordering::Release);
        // An append between the sync and the store above found `syncing` set and left the work to us.
        scope.is_pending(&self.log()) && !self.syncing.swap(true, Ordering::AcqRel)
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

/// The executor of syncs.
#[derive(Clone, Copy, Debug)]
pub enum Syncer {
    /// On the runtime's threads for blocking work.
    Thread,
    /// In the caller's thread after a virtual delay: for simulations.
    Inline(Duration),
}

impl Syncer {
    /// Runs one sync and waits for it.
    pub(crate) async fn run(self, pending: PendingSync) -> Synced {
        match self {
            Self::Thread => {
                #[expect(clippy::disallowed_methods, reason = "a sync blocks; only production uses this one")]
                let running = tokio::task::spawn_blocking(move || pending.run());
                match running.await {
                    Ok(synced) => synced,
                    // The runtime is shutting down: no client waits for the answer.
                    Err(_) => std::future::pending().await,
                }
            }
            Self::Inline(delay) => {
                tokio::time::sleep(delay).await;
                pending.run()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use ottla_log::storage::mem::MemStorage;
    use ottla_log::{AppendOptions, LogConfig};
    use ottla_wire::{BatchBuilder, Seal};

    use super::*;

    #[test]
    fn a_sync_of_a_deleted_partition_ends_quietly() {
        let storage = Arc::new(MemStorage::new());
        let (mut log, _) = Log::open(storage.clone(), "orders-0", LogConfig::default(), 0).expect("opened");
        let mut batch = BatchBuilder::new();
        batch.push(0, None, Some(b"x"), &[]);
        let bytes = batch.seal(&Seal::default()).expect("sealed").to_bytes();
        log.append(0, bytes[..].into(), AppendOptions::default()).expect("appended");
        // The next sync fails, as one does whose directory is gone.
        storage.fail_nth(0, ottla_log::storage::mem::Fault::Io, false);
        let identity =
            PartitionIdentity { topic: "orders".into(), topic_id: Uuid([1; 16]), index: 0, floor: 0 };
        let partition = Partition::new(identity, log, 1, 0);
        partition.delete();
        assert!(!partition.sync_once(SyncScope::All));
        assert_eq!(partition.log().offline_reason(), None);
    }

    /// With durability `os` nothing was ever synced: a killed broker scanned every segment at its next start.
    #[test]
    fn a_sync_of_closed_segments_leaves_one_segment_to_scan() {
        let storage = Arc::new(MemStorage::new());
        let config = LogConfig { segment_bytes: 1, ..LogConfig::default() };
        let (mut log, _) = Log::open(storage.clone(), "orders-0", config.clone(), 0).expect("opened");
        for _ in 0..4 {
            let mut batch = BatchBuilder::new();
            batch.push(0, None, Some(b"x"), &[]);
            let bytes = batch.seal(&Seal::default()).expect("sealed").to_bytes();
            log.append(0, bytes[..].into(), AppendOptions::default()).expect("appended");
        }
        let identity =
            PartitionIdentity { topic: "orders".into(), topic_id: Uuid([1; 16]), index: 0, floor: 0 };
        let partition = Partition::new(identity, log, 1, 0);
        assert!(partition.log().has_unsynced_segments());
        assert!(!partition.sync_once(SyncScope::ClosedSegments), "nothing came in meanwhile");
        assert!(!partition.log().has_unsynced_segments());
        drop(partition);
        let (log, report) = Log::open(storage, "orders-0", config, 0).expect("opened again");
        assert_eq!((log.end_offset(), report.scanned_segments), (4, 1));
    }
}
