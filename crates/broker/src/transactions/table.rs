//! The transactional ids of a cluster: decides about requests, without clock, lock or I/O.
//!
//! ```text
//!   request --> a decision --> the record is stored --> Transactions::stored --> the answer
//!                                                              |
//!                                             markers to write +--> Transactions::markers_written --> a decision ..
//! ```
//!
//! A change is pending from its decision until its record is stored. Requests that meet it get CONCURRENT_TRANSACTIONS.

use ottla_log::deliberate::{DeliberateFault, has_deliberate_fault};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use ottla_protocol::ErrorCode;

use super::metadata::{
    NO_PRODUCER_EPOCH, ProducerIdentity, TopicPartition, TransactionMetadata, TransactionVersion,
};
use super::records;
use super::state::TransactionState;
use crate::memory::{Kept, KeptMemory};
use crate::state_marks::{Beginnings, Mark};

/// Memory of an id besides its name, and of a partition besides its topic's name: maps, counters, allocations.
const ID_BYTES: usize = 512;
const PARTITION_BYTES: usize = 96;
/// The record of a transaction with so many partitions of long names still fits `max.message.bytes`: each name is stored
/// once.
const PARTITIONS_MAX: usize = 100_000;
/// The longest string of Kafka's records.
const ID_BYTES_MAX: usize = i16::MAX as usize;

/// The limits of transactions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TransactionLimits {
    /// `transaction.max.timeout.ms`.
    pub(crate) timeout_ms_max: i32,
    /// `transactional.id.expiration.ms`.
    pub(crate) id_expiration_ms: i64,
}

/// The step after a request.
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum Decision {
    /// The request is answered with this producer; nothing changes.
    Answer(ProducerIdentity),
    /// The request needs a producer id that was never used: decide again with one.
    NeedsProducerId,
    /// This record is stored, then [`Transactions::stored`] is called and the request answered.
    Store(NewRecord),
    /// The same, but the client repeats its request: an older transaction ends first.
    StoreAndRetry(NewRecord),
}

/// A record to be stored in the id's partition of `__transaction_state`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct NewRecord {
    pub(crate) id: Arc<str>,
    pub(crate) key: Bytes,
    /// `None` removes the id.
    pub(crate) value: Option<Bytes>,
}

/// A change that was stored.
#[derive(Debug, Eq, PartialEq)]
pub(crate) struct Stored {
    /// The producer that continues.
    pub(crate) identity: ProducerIdentity,
    /// The markers that end the transaction, if it was prepared.
    pub(crate) markers: Option<Markers>,
}

/// The markers of a prepared transaction.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Markers {
    pub(crate) id: Arc<str>,
    pub(crate) producer: ProducerIdentity,
    pub(crate) committed: bool,
    pub(crate) version: TransactionVersion,
    pub(crate) partitions: Vec<TopicPartition>,
}

/// A transactional id.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) current: TransactionMetadata,
    pub(super) pending: Option<Pending>,
    begun: Beginnings<{ TransactionState::COUNT }>,
    /// The deadline of the ongoing transaction on the steady clock, in milliseconds.
    pub(super) deadline_ms: Option<i64>,
    _memory: Kept,
    /// The memory of the partitions of `current` and `pending`.
    partitions_memory: Option<Kept>,
}

/// A change under way.
#[derive(Debug)]
pub(super) enum Pending {
    /// The record of this state is being stored.
    Change(TransactionMetadata),
    /// The tombstone is being stored.
    Removal,
    /// Markers are being written; then the completion is stored.
    Markers,
}

/// The transactional ids.
#[derive(Debug)]
pub(crate) struct Transactions {
    pub(super) by_id: BTreeMap<Arc<str>, Entry>,
    /// The deadlines of ongoing transactions on the steady clock.
    pub(super) deadlines: BTreeSet<(i64, Arc<str>)>,
    /// The wall clock less the steady one. A jump of the wall clock ends no transaction early or late.
    skew_ms: i64,
    /// A producer gets another producer id in place of one below this, instead of its next epoch.
    pub(super) renewed_below: i64,
    pub(super) limits: TransactionLimits,
    memory: KeptMemory,
}

/// A transactional id in answers to ListTransactions and DescribeTransactions.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct TransactionDescription {
    pub(crate) id: Arc<str>,
    pub(crate) metadata: TransactionMetadata,
}

impl Transactions {
    /// No ids yet.
    pub(crate) fn new(limits: TransactionLimits, memory: KeptMemory) -> Self {
        Self {
            by_id: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            skew_ms: 0,
            renewed_below: 0,
            limits,
            memory,
        }
    }

    /// Gives the next producers of known ids, those that continue, and those that end a transaction with a new epoch, another producer
    /// id in place of one below `producer_id`: the broker has lost states of these producers, and the epochs that follow here may belong
    /// to clients that are still there.
    pub(crate) fn renew_producers_below(&mut self, producer_id: i64) {
        self.renewed_below = producer_id;
    }

    /// Sets the clocks: the wall clock, whose times are stored and given as `now_ms`, and a steady one.
    pub(crate) fn set_clocks(&mut self, now_ms: i64, steady_ms: i64) {
        self.skew_ms = now_ms.saturating_sub(steady_ms);
    }

    /// The time of the steady clock when the wall clock has `wall_ms`.
    pub(super) fn steady_ms(&self, wall_ms: i64) -> i64 {
        wall_ms.saturating_sub(self.skew_ms)
    }

    /// InitProducerId. `expected` is the producer that continues after an error; `fresh` an unused producer id, if a first
    /// call asked for one.
    pub(crate) fn init_producer_id(
        &mut self,
        now_ms: i64,
        id: &str,
        timeout_ms: i32,
        expected: Option<ProducerIdentity>,
        fresh: Option<i64>,
    ) -> Result<Decision, ErrorCode> {
        if id.is_empty() || id.len() > ID_BYTES_MAX {
            return Err(ErrorCode::InvalidRequest);
        }
        if timeout_ms <= 0 || timeout_ms > self.limits.timeout_ms_max {
            return Err(ErrorCode::InvalidTransactionTimeout);
        }
        if !self.by_id.contains_key(id) {
            let Some(fresh) = fresh else { return Ok(Decision::NeedsProducerId) };
            self.add_id(id.into(), TransactionMetadata::new(fresh, timeout_ms, now_ms))?;
        }
        let entry = self.by_id.get(id).ok_or(ErrorCode::UnknownServerError)?;
        if entry.pending.is_some() {
            return Err(ErrorCode::ConcurrentTransactions);
        }
        let current = &entry.current;
        if expected.is_some_and(|expected| !current.may_continue(expected)) {
            return Err(ErrorCode::ProducerFenced);
        }
        match current.state {
            TransactionState::PrepareCommit | TransactionState::PrepareAbort => {
                Err(ErrorCode::ConcurrentTransactions)
            }
            TransactionState::Ongoing => self.fence(now_ms, id, fresh).map(|decision| match decision {
                Decision::Store(record) => Decision::StoreAndRetry(record),
                other => other,
            }),
            TransactionState::Empty | TransactionState::CompleteCommit | TransactionState::CompleteAbort => {
                let expected_epoch = expected.map(|expected| expected.epoch);
                let matches = expected_epoch.is_none_or(|epoch| epoch == current.producer_epoch);
                // Also after the abort of its transaction, which took the next epoch.
                let is_last = expected_epoch == Some(current.last_producer_epoch).filter(|last| *last >= 0);
                let is_renewed = current.producer_id < self.renewed_below && (matches || is_last);
                let next = if is_renewed || (matches && current.is_epoch_exhausted()) {
                    let Some(fresh) = fresh else { return Ok(Decision::NeedsProducerId) };
                    current.rotated(fresh, timeout_ms, expected_epoch, now_ms)
                } else {
                    current.initialized(timeout_ms, expected_epoch, now_ms)?
                };
                self.change(id, next)
            }
        }
    }

    /// AddPartitionsToTxn, and AddOffsetsToTxn with the partition of the group's offsets.
    pub(crate) fn add_partitions(
        &mut self,
        now_ms: i64,
        id: &str,
        producer: ProducerIdentity,
        partitions: &[TopicPartition],
        version: TransactionVersion,
    ) -> Result<Decision, ErrorCode> {
        if id.is_empty() {
            return Err(ErrorCode::InvalidRequest);
        }
        let entry = self.by_id.get(id).ok_or(ErrorCode::InvalidProducerIdMapping)?;
        let current = &entry.current;
        // First what is under way: the producer may already have the id and the epoch that it ends with (KAFKA-18660).
        if entry.pending.is_some() || current.state.is_prepared() {
            return Err(ErrorCode::ConcurrentTransactions);
        }
        check_producer(current, producer)?;
        let is_known = |partition| current.partitions.contains(partition);
        if current.state == TransactionState::Ongoing && partitions.iter().all(is_known) {
            return Ok(Decision::Answer(current.identity()));
        }
        let next = current.with_partitions(partitions.iter().cloned(), version, now_ms);
        if next.partitions.len() > PARTITIONS_MAX {
            tracing::warn!(
                id,
                partitions = next.partitions.len(),
                max = PARTITIONS_MAX,
                "a transaction is refused more partitions: commit more often"
            );
            return Err(ErrorCode::TransactionAbortable);
        }
        self.change(id, next)
    }

    /// Returns `Ok` if this partition belongs to the ongoing transaction (KIP-890). Changes under way do not matter: the
    /// append checks again.
    pub(crate) fn verify(
        &self,
        id: &str,
        producer: ProducerIdentity,
        partition: &TopicPartition,
    ) -> Result<(), ErrorCode> {
        if id.is_empty() {
            return Err(ErrorCode::InvalidRequest);
        }
        let current = &self.by_id.get(id).ok_or(ErrorCode::InvalidProducerIdMapping)?.current;
        check_producer(current, producer)?;
        if current.state.is_prepared() {
            return Err(ErrorCode::ConcurrentTransactions);
        }
        if current.partitions.contains(partition) { Ok(()) } else { Err(ErrorCode::TransactionAbortable) }
    }

    /// Applies the pending change of an id, whose record is stored.
    pub(crate) fn stored(&mut self, id: &str) -> Stored {
        let Some(entry) = self.by_id.get_mut(id) else {
            return Stored { identity: ProducerIdentity::NONE, markers: None };
        };
        match entry.pending.take() {
            Some(Pending::Change(next)) => {
                let continues = next.state == TransactionState::Ongoing && entry.deadline_ms.is_some();
                if !continues {
                    if let Some(old) = entry.deadline_ms.take() {
                        self.deadlines.remove(&(old, id.into()));
                    }
                    if next.state == TransactionState::Ongoing {
                        let deadline_ms = next.deadline_ms().saturating_sub(self.skew_ms);
                        entry.deadline_ms = Some(deadline_ms);
                        self.deadlines.insert((deadline_ms, id.into()));
                    }
                }
                if next.partitions.is_empty() {
                    entry.partitions_memory = None;
                }
                entry.begun.note(next.state.index());
                entry.current = next;
            }
            Some(Pending::Removal) => {
                let identity = entry.current.identity();
                self.by_id.remove(id);
                return Stored { identity, markers: None };
            }
            waiting @ (None | Some(Pending::Markers)) => entry.pending = waiting,
        }
        let current = &entry.current;
        if !current.state.is_prepared() {
            return Stored { identity: current.identity(), markers: None };
        }
        entry.pending = Some(Pending::Markers);
        // The producer gets what it has after the completion: it may use it at once.
        let identity = current.completed(current.updated_ms).identity();
        Stored { identity, markers: Some(markers(id, current)) }
    }

    /// Drops the pending change of an id, whose record could not be stored. Returns `true` if its markers are written, and
    /// the completion must be tried again.
    pub(crate) fn not_stored(&mut self, id: &str) -> bool {
        let Some(entry) = self.by_id.get_mut(id) else { return false };
        if entry.current.state.is_prepared() {
            entry.pending = Some(Pending::Markers);
            return true;
        }
        entry.pending = None;
        // The partitions that it would have had were counted.
        entry.partitions_memory = None;
        let bytes = partitions_bytes(entry.current.partitions.iter());
        entry.partitions_memory = (bytes > 0).then(|| self.memory.keep_known(bytes));
        if entry.current.producer_epoch == NO_PRODUCER_EPOCH {
            self.by_id.remove(id);
        }
        false
    }

    /// Notes that a partition has its marker.
    pub(crate) fn marker_written(&mut self, id: &str, partition: &TopicPartition) {
        if let Some(entry) = self.by_id.get_mut(id).filter(|entry| entry.current.state.is_prepared()) {
            entry.current.partitions.remove(partition);
        }
    }

    /// Returns the markers that are not written yet, for another attempt at the end of a transaction. `None` if it is not prepared.
    pub(crate) fn markers_left(&mut self, id: &str, is_completion_in_log: bool) -> Option<Markers> {
        let entry = self.by_id.get_mut(id).filter(|entry| entry.current.state.is_prepared())?;
        // A completion that is pending, and not in the log, is decided again.
        if !is_completion_in_log {
            entry.pending = Some(Pending::Markers);
        }
        Some(markers(id, &entry.current))
    }

    /// Completes a transaction after its last marker.
    ///
    /// # Errors
    /// The transaction is not prepared, or its completion is under way.
    pub(crate) fn markers_written(&mut self, now_ms: i64, id: &str) -> Result<Decision, ErrorCode> {
        let entry = self.by_id.get_mut(id).ok_or(ErrorCode::InvalidTxnState)?;
        if !entry.current.state.is_prepared() || !matches!(entry.pending, Some(Pending::Markers)) {
            return Err(ErrorCode::InvalidTxnState);
        }
        entry.pending = None;
        let next = entry.current.completed(now_ms);
        self.change(id, next)
    }

    /// Takes a state from the log: the last one of an id counts. A transaction that the wall clock has not seen begin gets its
    /// whole timeout again: the clock has gone back.
    pub(crate) fn load(&mut self, id: Arc<str>, metadata: Option<TransactionMetadata>, now_ms: i64) {
        if let Some(deadline_ms) = self.by_id.remove(&id).and_then(|old| old.deadline_ms) {
            self.deadlines.remove(&(deadline_ms, id.clone()));
        }
        let Some(metadata) = metadata else { return };
        let deadline_ms = (metadata.state == TransactionState::Ongoing).then(|| {
            let latest = now_ms.saturating_add(i64::from(metadata.timeout_ms));
            self.steady_ms(metadata.deadline_ms().min(latest))
        });
        self.deadlines.extend(deadline_ms.map(|deadline_ms| (deadline_ms, id.clone())));
        // Stored ids are loaded even beyond the limit. New ids and partitions are refused then.
        let memory = self.memory.keep_known(id_bytes(&id));
        let partitions_memory = Some(self.memory.keep_known(partitions_bytes(metadata.partitions.iter())));
        let entry = Entry {
            current: metadata,
            pending: None,
            begun: Beginnings::default(),
            deadline_ms,
            _memory: memory,
            partitions_memory,
        };
        self.by_id.insert(id, entry);
    }

    /// Returns the markers of prepared transactions whose ids were loaded.
    pub(crate) fn resume(&mut self) -> Vec<Markers> {
        let mut all = Vec::new();
        for (id, entry) in &mut self.by_id {
            if entry.current.state.is_prepared() && entry.pending.is_none() {
                entry.pending = Some(Pending::Markers);
                all.push(markers(id, &entry.current));
            }
        }
        all
    }

    /// Returns an id's state.
    pub(crate) fn describe(&self, id: &str) -> Option<TransactionMetadata> {
        let entry = self.by_id.get(id)?;
        (entry.current.producer_epoch != NO_PRODUCER_EPOCH
            && !matches!(entry.pending, Some(Pending::Removal)))
        .then(|| entry.current.clone())
    }

    /// Returns `true` if an id has begun a state since a time. It may be over.
    pub(crate) fn has_been(&self, id: &str, state: TransactionState, since: Mark) -> bool {
        self.by_id.get(id).is_some_and(|entry| entry.begun.has_begun_since(state.index(), since))
    }

    /// Returns up to `max` ids after `after`, in order, without their partitions.
    pub(crate) fn list(&self, after: Option<&str>, max: usize) -> Vec<TransactionDescription> {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let entries = self.by_id.range::<str, _>((start, Bound::Unbounded)).take(max);
        let describe = |(id, entry): (&Arc<str>, &Entry)| {
            let metadata = TransactionMetadata { partitions: BTreeSet::new(), ..entry.current };
            TransactionDescription { id: id.clone(), metadata }
        };
        entries.map(describe).collect()
    }

    /// Makes a change pending.
    pub(super) fn change(&mut self, id: &str, next: TransactionMetadata) -> Result<Decision, ErrorCode> {
        let (id, entry) = self
            .by_id
            .get_key_value(id)
            .map(|(id, _)| id.clone())
            .and_then(|id| self.by_id.get_mut(&id).map(|entry| (id, entry)))
            .ok_or(ErrorCode::UnknownServerError)?;
        let current = &entry.current;
        if !next.state.may_follow(current.state) {
            tracing::error!(%id, from = current.state.name(), to = next.state.name(),
                "an illegal change of a transaction: please report this");
            return Err(ErrorCode::UnknownServerError);
        }
        let (Ok(key), Ok(value)) = (records::key(&id), records::value(&next)) else {
            tracing::warn!(%id, "the state of a transaction has names too long for a record");
            return Err(ErrorCode::InvalidRequest);
        };
        if next.partitions.len() > current.partitions.len() {
            let added = next.partitions.iter().filter(|partition| !current.partitions.contains(partition));
            let bytes = partitions_bytes(added);
            let fits = match &mut entry.partitions_memory {
                Some(kept) => kept.grow(bytes),
                none => {
                    *none = self.memory.keep(bytes);
                    none.is_some()
                }
            };
            if !fits {
                tracing::warn!(%id, bytes, "a transaction is refused: memory.max.bytes has no room for its partitions");
                return Err(ErrorCode::TransactionAbortable);
            }
        }
        entry.pending = Some(Pending::Change(next));
        Ok(Decision::Store(NewRecord { id, key, value: Some(value) }))
    }

    fn add_id(&mut self, id: Arc<str>, metadata: TransactionMetadata) -> Result<(), ErrorCode> {
        let bytes = id_bytes(&id);
        let Some(memory) = self.memory.keep(bytes) else {
            tracing::warn!(%id, bytes, "a transactional.id is refused: memory.max.bytes has no room for it");
            return Err(ErrorCode::PolicyViolation);
        };
        let entry = Entry {
            current: metadata,
            pending: None,
            begun: Beginnings::default(),
            deadline_ms: None,
            _memory: memory,
            partitions_memory: None,
        };
        self.by_id.insert(id, entry);
        Ok(())
    }
}

/// Checks the producer of a request: first its id, then its epoch.
fn check_producer(current: &TransactionMetadata, producer: ProducerIdentity) -> Result<(), ErrorCode> {
    if current.producer_id != producer.id {
        Err(ErrorCode::InvalidProducerIdMapping)
    } else if current.producer_epoch != producer.epoch
        && !has_deliberate_fault(DeliberateFault::NoProducerEpochs)
    {
        Err(ErrorCode::ProducerFenced)
    } else {
        Ok(())
    }
}

fn markers(id: &str, prepared: &TransactionMetadata) -> Markers {
    Markers {
        id: id.into(),
        producer: prepared.identity(),
        committed: prepared.state == TransactionState::PrepareCommit,
        version: prepared.client_version,
        partitions: prepared.partitions.iter().cloned().collect(),
    }
}

fn id_bytes(id: &str) -> usize {
    ID_BYTES + id.len()
}

fn partitions_bytes<'a>(partitions: impl Iterator<Item = &'a TopicPartition>) -> usize {
    partitions.map(|partition| PARTITION_BYTES + partition.topic.len()).sum()
}
