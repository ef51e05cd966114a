//! The producer's decisions: which batches are sent, to which broker, and what each response means for them.
//!
//! The core is synchronous. It takes the time and an RNG as arguments, asks its [`Environment`] for facts, and returns
//! [`Action`]s. It contains no channel, lock, `Rc`, runtime or clock, so that any thread can drive it and tests need no
//! runtime. [`Sender`](super::sender::Sender) is the shell that drives it.

mod action;
mod answers;
#[cfg(test)]
mod connecting;
mod drain;
mod expiry;
#[cfg(test)]
mod forgotten;
#[cfg(test)]
mod harness;
#[cfg(test)]
mod missing;
#[cfg(test)]
mod model;
#[cfg(test)]
mod paused;
mod replaced;
#[cfg(test)]
mod tests;
mod transaction;

use std::sync::Arc;

use rustc_hash::FxHashMap;
use tokio::time::Instant;

pub(super) use self::action::{Action, Environment, LinkState, OutgoingRequest, RequestOutcome, TopicState};
pub(super) use self::expiry::EXPIRY_SPANS;
pub(super) use self::transaction::{OpenTransaction, Permission};
use super::batch::{Batch, Compressing, Partition};
use super::compressor::{ClosedBatch, Compressed, Uncompressed};
use super::pacing::Pacing;
use crate::config::Config;
use crate::error::{Error, ProduceErrorKind};
use crate::types::producer_id::ProducerId;

/// The requests that one leader has not answered.
#[derive(Debug, Default)]
struct Leader {
    in_flight: usize,
    pacing: Pacing,
}

/// A request without a response.
#[derive(Debug)]
struct InFlight {
    node: i32,
    /// `false` while the request waits for a connection: no broker can get it yet.
    has_left: bool,
    /// The batches with their partitions; `None` for a batch that was purged or has expired.
    batches: Vec<(usize, Option<Batch>)>,
}

/// The partitions that a poll examines. With very many of them, examining all for each that gets a record would cost the
/// square of their number.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Scope {
    /// Every partition with unsent or unacknowledged records.
    All,
    /// The partitions that [`ProduceCore::on_records`] named since the last poll.
    Fresh,
}

/// The state machine of a producer.
///
/// The methods are called in this order:
/// 1. [`register`](Self::register) once for each partition, [`on_records`](Self::on_records) whenever its queue is listed;
/// 2. any of [`on_connected`](Self::on_connected), [`on_response`](Self::on_response), [`on_compressed`](Self::on_compressed),
///    [`on_producer_id`](Self::on_producer_id), [`on_partitions_added`](Self::on_partitions_added),
///    [`on_topic_recreated`](Self::on_topic_recreated) and [`on_new_leader`](Self::on_new_leader), as the events happen;
/// 3. [`purge`](Self::purge) if the application asked for it, then [`expire`](Self::expire), then [`poll`](Self::poll).
///
/// After each of them the caller performs the actions that it appended, in their order. `poll` returns the time of the
/// next poll if nothing happens before. [`close`](Self::close) fails everything that is left; nothing follows it.
#[derive(Debug)]
pub(super) struct ProduceCore {
    config: Arc<Config>,
    pub(super) partitions: Vec<Partition>,
    index: FxHashMap<(Arc<str>, i32), usize>,
    /// Partitions with records that are unsent or in flight.
    active: Vec<usize>,
    /// Partitions with new records since the last poll.
    fresh: Vec<usize>,
    leaders: FxHashMap<i32, Leader>,
    requests: FxHashMap<u64, InFlight>,
    next_request: u64,
    producer_id: Option<ProducerId>,
    producer_id_requested: bool,
    /// The cluster's refusal of a producer id: the records that are queued fail with it.
    producer_id_refused: Option<ProduceErrorKind>,
    /// The earliest time of the next InitProducerId request.
    producer_id_not_before: Option<Instant>,
    transaction: transaction::Participation,
    /// `true` if a worker thread compresses large batches.
    has_worker: bool,
    wake_at: Option<Instant>,
    expire_at: Instant,
}

impl ProduceCore {
    pub(super) fn new(config: Arc<Config>, has_worker: bool, now: Instant) -> Self {
        Self {
            config,
            partitions: Vec::new(),
            index: FxHashMap::default(),
            active: Vec::new(),
            fresh: Vec::new(),
            leaders: FxHashMap::default(),
            requests: FxHashMap::default(),
            next_request: 0,
            producer_id: None,
            producer_id_requested: false,
            producer_id_refused: None,
            producer_id_not_before: None,
            transaction: transaction::Participation::default(),
            has_worker,
            wake_at: None,
            expire_at: now,
        }
    }

    /// The index of a partition, if it is registered.
    pub(super) fn find(&self, topic: &Arc<str>, partition: i32) -> Option<usize> {
        self.index.get(&(topic.clone(), partition)).copied()
    }

    /// Adds a partition and returns its index: 0 for the first, one more for each that follows. Partition -1 stands for
    /// records whose partition is not chosen yet; they are never sent.
    pub(super) fn register(&mut self, topic: Arc<str>, partition: i32, config: Arc<Config>) -> usize {
        let index = self.partitions.len();
        self.index.insert((topic.clone(), partition), index);
        self.partitions.push(Partition::new(topic, partition, config));
        index
    }

    /// The partition's queue has its first record, or one more full batch.
    pub(super) fn on_records(&mut self, index: usize) {
        self.activate(index);
        // A partition that fills batch after batch is named several times, and may be in a request only once.
        self.fresh.push(index);
    }

    /// The partitions that a poll with this scope examines.
    pub(super) fn examined(&self, scope: Scope) -> &[usize] {
        match scope {
            Scope::All => &self.active,
            Scope::Fresh => &self.fresh,
        }
    }

    /// The compressed batch of a [`Action::Compress`].
    pub(super) fn on_compressed(&mut self, compressed: Compressed, actions: &mut Vec<Action>) {
        let Compressed { index, slot, batch } = compressed;
        let batch = accept_closed(index, batch, actions);
        let partition = &mut self.partitions[index];
        let in_worker = |entry: &Compressing| matches!(entry, Compressing::InWorker(it) if *it == slot);
        let Some(place) = partition.compressing.iter().position(in_worker) else { return };
        let failed = partition.failed_below.as_ref().filter(|(below, _)| slot < *below);
        match (batch, failed.map(|(_, reason)| reason.clone())) {
            (Some(batch), None) => partition.compressing[place] = Compressing::Ready(Box::new(batch)),
            (Some(batch), Some(kind)) => {
                partition.compressing.remove(place);
                actions.push(Action::FailClosed { index, batch, kind });
            }
            (None, _) => drop(partition.compressing.remove(place)),
        }
    }

    /// No worker thread can be started: batches are compressed by the caller from now on.
    pub(super) fn on_worker_missing(&mut self) {
        self.has_worker = false;
    }

    /// The response to a [`Action::RequestProducerId`].
    pub(super) fn on_producer_id(&mut self, result: Result<ProducerId, Error>) {
        self.producer_id_requested = false;
        match result {
            Ok(id) => self.producer_id = Some(id),
            Err(error @ Error::NoProducerId(_)) => {
                self.producer_id_refused = Some(ProduceErrorKind::Request(Box::new(error)));
            }
            // The request is repeated.
            Err(_) => {}
        }
    }

    /// The topic was deleted and a topic of the same name was created, with so many partitions: what waits goes to the new
    /// one, and fails if its partition is not there any more.
    pub(super) fn on_topic_recreated(&mut self, topic: &str, partitions: usize) {
        for partition in self.partitions.iter_mut().filter(|partition| *partition.topic == *topic) {
            partition.on_recreated(self.next_request, partitions);
        }
    }

    /// The partition's new leader is known: retries need not wait for their back-off (KIP-951).
    pub(super) fn on_new_leader(&mut self, index: usize) {
        self.partitions[index].blocked_until = None;
    }

    /// Appends the actions that are possible now and returns the time of the next poll.
    ///
    /// `urgent` sends open batches at once: a caller flushes, or producing threads wait for memory.
    pub(super) fn poll(
        &mut self,
        now: Instant,
        scope: Scope,
        permission: Permission,
        urgent: bool,
        environment: &mut impl Environment,
        actions: &mut Vec<Action>,
    ) -> Option<Instant> {
        self.fresh.sort_unstable();
        self.fresh.dedup();
        let mut wake_at = self.wake_at.filter(|_| scope == Scope::Fresh);
        let mut poll = drain::Poll { now, urgent, environment, actions, wake_at: &mut wake_at };
        match permission {
            Permission::Denied(reason) => {
                self.fail_waiting(&reason, poll.actions);
                self.fail_queued(&reason, &mut poll);
            }
            Permission::Transaction(transaction) => self.poll_transaction(transaction, &mut poll),
            Permission::Unrestricted if self.config.enable_idempotence && self.producer_id.is_none() => {
                if let Some(reason) = self.producer_id_refused.take() {
                    self.fail_queued(&reason, &mut poll);
                }
                // Later records may be granted what these were not.
                self.request_producer_id(&mut poll);
            }
            Permission::Unrestricted if scope == Scope::Fresh => {
                let fresh = std::mem::take(&mut self.fresh);
                self.drain_partitions(&fresh, &mut poll);
                self.fresh = fresh;
            }
            Permission::Unrestricted => self.drain(&mut poll),
        }
        self.fresh.clear();
        if !self.active.is_empty() {
            earliest(&mut wake_at, self.expire_at);
        }
        self.wake_at = wake_at;
        wake_at
    }

    /// `true` if a producer id or epoch was requested and has not arrived.
    pub(super) fn awaits_producer_id(&self) -> bool {
        self.producer_id_requested || self.transaction.is_preparing()
    }

    pub(super) fn has_producer_id(&self) -> bool {
        self.producer_id.is_some()
    }

    /// `true` if any partition has records that are unsent or in flight.
    pub(super) fn is_active(&self) -> bool {
        !self.active.is_empty()
    }

    /// `true` if no request is without a response, neither to a leader nor to a coordinator.
    pub(super) fn is_quiet(&self) -> bool {
        self.requests.is_empty() && !self.transaction.is_preparing()
    }

    /// The batches of a request without a response: partition and batch.
    pub(super) fn batches_of(&self, request: u64) -> impl Iterator<Item = (&Partition, &Batch)> {
        let batches = self.requests.get(&request).into_iter().flat_map(|request| &request.batches);
        batches.filter_map(|(index, batch)| Some((&self.partitions[*index], batch.as_ref()?)))
    }

    /// The records in requests without a response: node, partition and number of records for each batch.
    pub(super) fn records_in_flight(&self) -> impl Iterator<Item = (i32, usize, u64)> {
        self.requests.values().flat_map(|request| {
            request.batches.iter().map(|(index, batch)| {
                let records = batch.as_ref().map_or(0, |batch| batch.sealed.header.record_count as u64);
                (request.node, *index, records)
            })
        })
    }

    fn activate(&mut self, index: usize) {
        if !self.partitions[index].is_active {
            self.partitions[index].is_active = true;
            self.active.push(index);
        }
    }

    /// Removes the partitions without unsent and unacknowledged records from the active ones.
    fn drop_idle(&mut self, environment: &mut impl Environment) {
        let mut active = std::mem::take(&mut self.active);
        active.retain(|index| {
            let partition = &mut self.partitions[*index];
            partition.is_active = !partition.is_idle() || !environment.unlist_if_empty(*index);
            if !partition.is_active {
                // The next record fails only after an answer or response that is newer than it.
                (partition.unknown_since, partition.missed_since) = (None, None);
            }
            partition.is_active
        });
        self.active = active;
    }

    fn request_producer_id(&mut self, poll: &mut drain::Poll<'_, impl Environment>) {
        if self.producer_id_requested || self.active.is_empty() {
            return;
        }
        if let Some(at) = self.producer_id_not_before.filter(|at| *at > poll.now) {
            earliest(poll.wake_at, at);
            return;
        }
        self.producer_id_requested = true;
        self.producer_id_not_before = Some(poll.now + self.config.retry_backoff);
        poll.actions.push(Action::RequestProducerId);
    }
}

/// Books a closed batch by its size after compression. A batch that could not be compressed fails.
fn accept_closed(
    index: usize,
    closed: Result<ClosedBatch, Uncompressed>,
    actions: &mut Vec<Action>,
) -> Option<ClosedBatch> {
    match closed {
        Ok(mut batch) => {
            let memory = batch.closed.memory() + batch.targets.memory();
            if memory < batch.memory {
                actions.push(Action::ReleaseMemory(batch.memory - memory));
                batch.memory = memory;
            }
            Some(batch)
        }
        Err(batch) => {
            actions.push(Action::FailUncompressed { index, batch });
            None
        }
    }
}

fn earliest(wake_at: &mut Option<Instant>, at: Instant) {
    *wake_at = Some(wake_at.map_or(at, |other| other.min(at)));
}
