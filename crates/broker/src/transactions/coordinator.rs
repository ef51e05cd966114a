//! Requests of transactional producers: decides, stores the decision, answers, and has the markers written.
//!
//! A change of an id that was decided is finished by a task of its own, whatever becomes of the client's connection.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ottla_protocol::ErrorCode;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::metadata::{ProducerIdentity, TopicPartition, TransactionMetadata, TransactionVersion};
use super::records::{self, StateRecord};
use super::state::TransactionState;
use super::table::{Decision, NewRecord, Stored, TransactionDescription, TransactionLimits, Transactions};
use crate::clock::Clock;
use crate::cluster::{Cluster, lock};
use crate::config::{BrokerConfig, Durability};
use crate::internal_topics::{InternalRecord, InternalTopic, Replayed, Written};
use crate::memory::KeptMemory;
use crate::panics;
use crate::partition::Partition;
use crate::state_marks::Mark;

/// The pause before the end of a change that has panicked is tried again.
const RESUME_PAUSE: Duration = Duration::from_secs(5);

/// The ids of a partition, while they are read.
pub(crate) type LoadedIds = BTreeMap<Arc<str>, TransactionMetadata>;

/// The coordinator of all transactional ids: the nodes of one process share it.
#[derive(Debug)]
pub(crate) struct TransactionCoordinator {
    table: Mutex<Transactions>,
    /// Notified when a change of an id has ended.
    settled: Notify,
    /// The changes that are being stored, and the markers that are being written.
    tasks: Mutex<JoinSet<()>>,
    clock: Clock,
    began: Instant,
}

impl TransactionCoordinator {
    /// A coordinator without ids. `memory` bounds them.
    pub(crate) fn new(config: &BrokerConfig, memory: KeptMemory, clock: Clock) -> Self {
        let limits = TransactionLimits {
            timeout_ms_max: i32::try_from(config.transaction_timeout_max.as_millis()).unwrap_or(i32::MAX),
            id_expiration_ms: i64::try_from(config.transactional_id_expiration.as_millis())
                .unwrap_or(i64::MAX),
        };
        Self {
            table: Mutex::new(Transactions::new(limits, memory)),
            settled: Notify::new(),
            tasks: Mutex::default(),
            clock,
            began: Instant::now(),
        }
    }

    /// Takes the ids of one partition of `__transaction_state`.
    pub(crate) fn load(&self, ids: LoadedIds) {
        let now_ms = self.clock.now_ms();
        self.with_table(|table| {
            for (id, metadata) in ids {
                table.load(id, Some(metadata), now_ms);
            }
        });
    }

    /// See [`Transactions::renew_producers_below`].
    pub(crate) fn renew_producers_below(&self, producer_id: i64) {
        self.with_table(|table| table.renew_producers_below(producer_id));
    }

    /// Returns an id's state.
    pub(crate) fn describe(&self, id: &str) -> Option<TransactionMetadata> {
        lock(&self.table).describe(id)
    }

    /// Returns `true` if an id has begun a state since a time.
    pub(crate) fn has_been(&self, id: &str, state: TransactionState, since: Mark) -> bool {
        lock(&self.table).has_been(id, state, since)
    }

    /// Returns up to `max` ids after `after`, without their partitions.
    pub(crate) fn list(&self, after: Option<&str>, max: usize) -> Vec<TransactionDescription> {
        lock(&self.table).list(after, max)
    }

    /// Returns `Ok` if the partition belongs to the producer's ongoing transaction.
    pub(crate) fn verify(
        &self,
        id: &str,
        producer: ProducerIdentity,
        partition: &TopicPartition,
    ) -> Result<(), ErrorCode> {
        lock(&self.table).verify(id, producer, partition)
    }

    /// Stops storing and writing. The next start continues.
    pub(crate) async fn stop(&self) {
        let mut tasks = std::mem::take(&mut *self.tasks());
        tasks.shutdown().await;
    }

    /// [`TransactionCoordinator::stop`] without the wait.
    pub(crate) fn abort(&self) {
        self.tasks().abort_all();
    }

    pub(super) fn with_table<T>(&self, act: impl FnOnce(&mut Transactions) -> T) -> T {
        let mut table = lock(&self.table);
        table.set_clocks(self.clock.now_ms(), self.began.elapsed().as_millis() as i64);
        act(&mut table)
    }

    pub(super) fn notify_settled(&self) {
        self.settled.notify_waiters();
    }

    /// Runs a task until it ends or the broker stops.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.tasks();
        // Tasks that have ended leave the set here: it stays as small as the number of changes under way.
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }

    fn tasks(&self) -> std::sync::MutexGuard<'_, JoinSet<()>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Applies one entry of a partition of `__transaction_state`.
pub(crate) fn load_entry(ids: &mut LoadedIds, entry: Replayed) -> Result<(), String> {
    let Replayed::Record { key, value, .. } = entry else { return Ok(()) };
    match records::read(key, value).map_err(|error| error.to_string())? {
        StateRecord::State(id, metadata) => drop(ids.insert(id, metadata)),
        StateRecord::Removed(id) => drop(ids.remove(&id)),
        StateRecord::Unknown => tracing::debug!("a record of an unknown type or version is ignored"),
    }
    Ok(())
}

impl Cluster {
    /// InitProducerId with a transactional id. An older transaction is aborted first.
    pub(crate) async fn init_transactional_producer(
        self: &Arc<Self>,
        id: &str,
        timeout_ms: i32,
        expected: Option<ProducerIdentity>,
    ) -> Result<ProducerIdentity, ErrorCode> {
        self.change_when_settled(id, |table, now_ms, fresh| {
            table.init_producer_id(now_ms, id, timeout_ms, expected, fresh)
        })
        .await
    }

    /// Adds partitions to the producer's transaction, and waits until that is stored.
    pub(crate) async fn add_to_transaction(
        self: &Arc<Self>,
        id: &str,
        producer: ProducerIdentity,
        partitions: &[TopicPartition],
        version: TransactionVersion,
    ) -> Result<(), ErrorCode> {
        let add = |table: &mut Transactions, now_ms, _| {
            table.add_partitions(now_ms, id, producer, partitions, version)
        };
        self.change_when_settled(id, add).await.map(drop)
    }

    /// EndTxn. Returns when the decision is stored; the markers follow.
    pub(crate) async fn end_transaction_of(
        self: &Arc<Self>,
        id: &str,
        producer: ProducerIdentity,
        committed: bool,
        version: TransactionVersion,
    ) -> Result<ProducerIdentity, ErrorCode> {
        self.change_transaction(id, |table, now_ms, fresh| {
            table.end(now_ms, id, producer, committed, version, fresh)
        })
        .await
    }

    /// [`Cluster::change_transaction`], which is tried again while another change of the id is under way, up to
    /// `add.partitions.to.txn.retry.backoff.max.ms`.
    async fn change_when_settled(
        self: &Arc<Self>,
        id: &str,
        mut decide: impl FnMut(&mut Transactions, i64, Option<i64>) -> Result<Decision, ErrorCode>,
    ) -> Result<ProducerIdentity, ErrorCode> {
        let deadline = Instant::now() + self.config.transaction_wait_max;
        loop {
            let mut settled = std::pin::pin!(self.transactions.settled.notified());
            // Changes that end from here on are noticed.
            settled.as_mut().enable();
            match self.change_transaction(id, &mut decide).await {
                Err(ErrorCode::ConcurrentTransactions) => {}
                result => return result,
            }
            if tokio::time::timeout_at(deadline, settled).await.is_err() {
                return Err(ErrorCode::ConcurrentTransactions);
            }
        }
    }

    /// Decides about an id, and stores the decision.
    pub(super) async fn change_transaction(
        self: &Arc<Self>,
        id: &str,
        mut decide: impl FnMut(&mut Transactions, i64, Option<i64>) -> Result<Decision, ErrorCode>,
    ) -> Result<ProducerIdentity, ErrorCode> {
        let partition = self.coordinator_partition(InternalTopic::TransactionState, id).await?;
        if partition.unavailable().is_some() {
            return Err(ErrorCode::CoordinatorNotAvailable);
        }
        let mut fresh = None;
        loop {
            let now_ms = self.clock.now_ms();
            match self.transactions.with_table(|table| decide(table, now_ms, fresh))? {
                Decision::Answer(identity) => return Ok(identity),
                Decision::NeedsProducerId => {
                    let next = self.next_producer_id().await.map_err(|error| {
                        tracing::error!(%error, "cannot reserve producer ids");
                        ErrorCode::CoordinatorNotAvailable
                    })?;
                    fresh = Some(next);
                }
                Decision::Store(record) => return self.store_change(&partition, record).await,
                Decision::StoreAndRetry(record) => {
                    self.store_change(&partition, record).await?;
                    return Err(ErrorCode::ConcurrentTransactions);
                }
            }
        }
    }

    /// Stores a change. It is finished even if the returned future is dropped.
    pub(super) fn store_change(
        self: &Arc<Self>,
        partition: &Arc<Partition>,
        record: NewRecord,
    ) -> impl Future<Output = Result<ProducerIdentity, ErrorCode>> + use<> {
        let undecided = UndecidedChange::new(self, &record.id);
        self.store_undecided(partition, record, undecided)
    }

    /// [`Cluster::store_change`] of one of several changes that were decided together.
    pub(super) fn store_undecided(
        self: &Arc<Self>,
        partition: &Arc<Partition>,
        record: NewRecord,
        mut undecided: UndecidedChange,
    ) -> impl Future<Output = Result<ProducerIdentity, ErrorCode>> + use<> {
        let (answer, answered) = oneshot::channel();
        let id = record.id.clone();
        match self.append_change(partition, record, &mut undecided) {
            // Nothing to wait for.
            Ok(_) if self.config.durability != Durability::Disk => {
                let _ = answer.send(Ok(self.finish_change(partition, &id)));
            }
            Ok(written) => {
                let (cluster, partition) = (self.clone(), partition.clone());
                self.transactions.spawn(async move {
                    let _undecided = undecided;
                    let result = match cluster.await_written_for_long(&written).await {
                        Ok(()) => Ok(cluster.finish_change(&partition, &id)),
                        Err(code) => {
                            cluster.drop_change(&id);
                            Err(code)
                        }
                    };
                    let _ = answer.send(result);
                });
            }
            Err(code) => {
                self.drop_change(&id);
                let _ = answer.send(Err(code));
            }
        }
        // An error means that the broker stops.
        async { answered.await.unwrap_or(Err(ErrorCode::CoordinatorNotAvailable)) }
    }

    /// Appends the record of a change.
    fn append_change(
        self: &Arc<Self>,
        partition: &Arc<Partition>,
        record: NewRecord,
        undecided: &mut UndecidedChange,
    ) -> Result<Written, ErrorCode> {
        let NewRecord { key, value, .. } = record;
        let note = |offset: i64| undecided.in_log = Some((partition.clone(), offset + 1));
        let (written, ()) = self.write_internal(partition, &[InternalRecord { key, value }], None, note)?;
        Ok(written)
    }

    /// Ends a change after a panic behind the append of its record: what is in the log counts after the next start, so it counts now.
    fn resume_change(self: &Arc<Self>, partition: Arc<Partition>, end: i64, id: Arc<str>) {
        let cluster = self.clone();
        self.transactions.spawn(async move {
            loop {
                let ended = panics::caught(async {
                    let written = cluster.resume_write(&partition, end)?;
                    cluster.await_written_for_long(&written).await?;
                    cluster.finish_change(&partition, &id);
                    Ok::<(), ErrorCode>(())
                });
                match ended.await {
                    Ok(Ok(())) => return,
                    Ok(Err(code)) => {
                        tracing::warn!(%id, %code, "a change of a transactional.id cannot be stored");
                        cluster.drop_change(&id);
                        return;
                    }
                    Err(reason) => {
                        tracing::error!(%id, reason, "the end of a change of a transactional.id has panicked: it is tried again; please report this defect");
                        tokio::time::sleep(RESUME_PAUSE).await;
                    }
                }
            }
        });
    }

    /// Applies a change that is stored, and starts the markers that follow from it.
    pub(super) fn finish_change(self: &Arc<Self>, partition: &Arc<Partition>, id: &str) -> ProducerIdentity {
        let Stored { identity, markers } = self.transactions.with_table(|table| table.stored(id));
        match markers {
            Some(markers) => self.start_markers(partition, markers),
            None => self.transactions.notify_settled(),
        }
        identity
    }

    /// Forgets a change that cannot be stored.
    pub(super) fn drop_change(&self, id: &str) {
        self.transactions.with_table(|table| table.not_stored(id));
        self.transactions.notify_settled();
    }
}

/// A change between its decision and its end. A panic drops it, or ends it if its record is in the log: otherwise the id would get
/// CONCURRENT_TRANSACTIONS for ever.
///
/// Only one exists for each change: a second one could drop the next change of the id.
pub(super) struct UndecidedChange {
    cluster: Arc<Cluster>,
    id: Arc<str>,
    /// The partition that has its record, and the offset behind the record.
    in_log: Option<(Arc<Partition>, i64)>,
}

impl UndecidedChange {
    pub(super) fn new(cluster: &Arc<Cluster>, id: &Arc<str>) -> Self {
        Self { cluster: cluster.clone(), id: id.clone(), in_log: None }
    }
}

impl Drop for UndecidedChange {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        match self.in_log.take() {
            None => self.cluster.drop_change(&self.id),
            Some((partition, end)) => self.cluster.resume_change(partition, end, self.id.clone()),
        }
    }
}
