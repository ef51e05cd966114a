//! What each answer, error and deadline means for a batch: settled, sent again, or failed.

use std::rc::Rc;

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::produce::{PartitionProduceResponse, ProduceResponse};
use ottla_wire::Seal;
use rustc_hash::FxHashMap;
use tokio::time::Instant;

use super::batch::{Batch, Closing, Refused};
use super::compressor::ClosedBatch;
use super::delivery::Outcome;
use super::queue::Queue;
use super::sender::{InFlight, Sender};
use super::{Concluded, Kept, Produce};
use crate::config::Acks;
use crate::error::{Error, Persisted, ProduceErrorKind};
use crate::log::Context;
use crate::net::connection::Connection;
use crate::transaction::machine::Machine;

impl Sender {
    pub(super) fn on_answer(
        &mut self,
        request: u64,
        result: Result<ProduceResponse, Error>,
        connection: Option<Rc<Connection>>,
        sent: bool,
    ) {
        let Some(InFlight { node, batches }) = self.requests.remove(&request) else { return };
        let leader = self.leaders.entry(node).or_default();
        leader.in_flight -= 1;
        leader.pacing.answered();
        if connection.is_some() {
            leader.connection = connection;
        }
        let now = Instant::now();
        let mut answers: FxHashMap<(&str, i32), &PartitionProduceResponse> = FxHashMap::default();
        let answered = batches.iter().any(|(at, _)| self.partitions[*at].queue.config.acks != Acks::None);
        if let Ok(response) = &result {
            // Without acknowledgements nothing was answered.
            if answered {
                self.produce.observer.throttled(node, response.throttle_time_ms);
            }
            for node in &response.node_endpoints {
                self.cluster.brokers.learn(node.node_id, &node.host, node.port as u16);
            }
            for topic in &response.responses {
                for partition in &topic.partition_responses {
                    answers.insert((topic.name.as_str(), partition.index), partition);
                }
            }
        }
        let unsupported = !sent && matches!(result, Err(Error::Unsupported { .. }));
        // Those that share a request with batches in zstd may go without them.
        let zstd = unsupported && batches.iter().any(|(_, batch)| batch.as_ref().is_some_and(Batch::is_zstd));
        for (at, batch) in batches {
            self.partitions[at].in_flight -= 1;
            // Purged meanwhile: its fate was told.
            let Some(batch) = batch else { continue };
            let queue = self.partitions[at].queue.clone();
            match (&result, answers.get(&(&*queue.topic, queue.partition))) {
                (Ok(_), Some(answer)) => self.on_partition_answer(at, batch, request, node, answer, now),
                (Ok(_), None) if queue.config.acks == Acks::None => {
                    self.settle(at, batch, Outcome::Written { base_offset: -1 });
                }
                (Ok(_), None) => {
                    let error = Error::Protocol {
                        address: format!("node {node}"),
                        reason: "the answer to a produce request leaves a partition out".into(),
                    };
                    self.on_trouble(at, batch, ProduceErrorKind::Request(Box::new(error)), true, now);
                }
                // The broker will not take it later either.
                (Err(error), _) if unsupported && zstd == batch.is_zstd() => {
                    self.fail(at, batch, ProduceErrorKind::Request(Box::new(error.clone())));
                }
                (Err(error), _) => {
                    self.cluster.refresh();
                    // What never left is no attempt (the introduction's "timed out in transmission queue"); whatever
                    // was sent and not answered may have been written.
                    let mut batch = batch;
                    batch.attempts -= u32::from(!sent);
                    let kind = ProduceErrorKind::Request(Box::new(error.clone()));
                    self.on_trouble(at, batch, kind, sent, now);
                }
            }
        }
    }

    /// The table of what each error means (the introduction's "temporary", "stale metadata" and "permanent").
    fn on_partition_answer(
        &mut self,
        at: usize,
        batch: Batch,
        request: u64,
        node: i32,
        answer: &PartitionProduceResponse,
        now: Instant,
    ) {
        let code = answer.error_code;
        let of_old_topic = request < self.partitions[at].since_request;
        match code {
            // A duplicate was written by an earlier attempt whose answer was lost.
            ErrorCode::None | ErrorCode::DuplicateSequenceNumber => {
                if !of_old_topic {
                    self.partitions[at].numbering.acknowledged();
                    self.partitions[at].unknown_since = None;
                    self.settle_refused(at, &batch);
                }
                self.settle(at, batch, Outcome::Written { base_offset: answer.base_offset });
            }
            ErrorCode::OutOfOrderSequenceNumber | ErrorCode::UnknownProducerId => {
                self.on_out_of_order(at, batch, node, answer, now);
            }
            // A topic that is new, or moves, is not known everywhere at once.
            ErrorCode::UnknownTopicOrPartition => {
                let since = *self.partitions[at].unknown_since.get_or_insert(now);
                self.forget_leader(at);
                if now < since + self.produce.config.metadata_propagation {
                    self.on_trouble(at, batch, broker_error(answer), false, now);
                } else {
                    self.fail(at, batch, broker_error(answer));
                }
            }
            // The same bytes would be as corrupt again.
            ErrorCode::CorruptMessage => self.fail(at, batch, broker_error(answer)),
            code if code.is_retriable() => {
                let mut knows_better = false;
                if code.needs_metadata_refresh() && !of_old_topic {
                    let queue = &self.partitions[at].queue;
                    let hint = &answer.current_leader;
                    knows_better = self.cluster.learn_leader(
                        &queue.topic,
                        queue.partition,
                        node,
                        hint.leader_id,
                        hint.leader_epoch,
                    );
                    if !knows_better {
                        self.forget_leader(at);
                    }
                }
                // These come before anything is appended; all others, a disk that failed among them, may come after
                // it. A leader that moved may have appended before it moved.
                let not_written = matches!(
                    code,
                    ErrorCode::NotEnoughReplicas
                        | ErrorCode::LeaderNotAvailable
                        | ErrorCode::ConcurrentTransactions
                        | ErrorCode::ThrottlingQuotaExceeded
                );
                self.on_trouble(at, batch, broker_error(answer), !not_written, now);
                if knows_better {
                    // The new leader may be asked at once (KIP-951).
                    self.partitions[at].blocked_until = None;
                }
            }
            _ => self.fail(at, batch, broker_error(answer)),
        }
    }

    /// Our own numbering is at fault, not the record: this is no attempt of its.
    fn on_out_of_order(
        &mut self,
        at: usize,
        mut batch: Batch,
        node: i32,
        answer: &PartitionProduceResponse,
        now: Instant,
    ) {
        let partition = &self.partitions[at];
        let order = batch.order;
        let is_first = partition.retry.front().is_none_or(|first| order < first.order);
        if partition.in_flight == 0 && (is_first || partition.refused.is_some()) {
            let refused = Refused { node, order };
            if partition.witness(refused).is_none() {
                if self.produce.transactions.id.is_some() {
                    // Epochs are the coordinator's: the abort brings the next one.
                    self.fail(at, batch, broker_error(answer));
                    return;
                }
                batch.attempts -= 1;
                self.on_trouble(at, batch, broker_error(answer), false, now);
                // The broker has lost what it knew of us, or what came before was given up (KIP-360).
                self.renumber(at);
                return;
            }
            batch.attempts -= 1;
            self.on_trouble(at, batch, broker_error(answer), false, now);
            let partition = &mut self.partitions[at];
            (partition.refused, partition.blocked_until) = (Some(refused), None);
            return;
        }
        batch.attempts -= 1;
        self.on_trouble(at, batch, broker_error(answer), false, now);
    }

    /// The broker has this batch, and so it has those before it.
    fn settle_refused(&mut self, at: usize, batch: &Batch) {
        if self.partitions[at].refused.take().is_none() {
            return;
        }
        while self.partitions[at].retry.front().is_some_and(|earlier| earlier.order < batch.order) {
            if let Some(earlier) = self.partitions[at].retry.pop_front() {
                self.settle(at, earlier, Outcome::Written { base_offset: -1 });
            }
        }
    }

    fn forget_leader(&self, at: usize) {
        let queue = &self.partitions[at].queue;
        self.cluster.forget_leader(&queue.topic, queue.partition);
    }

    /// The batch goes again, unless its time is over.
    fn on_trouble(
        &mut self,
        at: usize,
        mut batch: Batch,
        problem: ProduceErrorKind,
        possibly_written: bool,
        now: Instant,
    ) {
        self.produce.observer.log.debug(Context::Msg, "RETRY", || {
            let Queue { topic, partition, .. } = &*self.partitions[at].queue;
            let (records, attempts) = (batch.sealed.header.record_count, batch.attempts);
            format!("{topic} [{partition}]: MessageSet with {records} message(s) goes again after {attempts} attempt(s): {problem}")
        });
        batch.possibly_written |= possibly_written;
        batch.last_problem = problem.to_string();
        let config = &self.produce.config;
        if now >= batch.created + self.partitions[at].queue.config.delivery_timeout {
            self.time_out(at, batch);
            return;
        }
        if batch.attempts > config.retries_max {
            self.fail(at, batch, problem);
            return;
        }
        let doubled = config.retry_backoff.saturating_mul(1 << batch.attempts.saturating_sub(1).min(16));
        let pause = doubled.min(config.retry_backoff_max).mul_f64(0.8 + 0.4 * self.produce.random());
        self.activate(at);
        let partition = &mut self.partitions[at];
        partition.refused = None;
        partition.blocked_until = Some(now + pause);
        let place = partition.retry.partition_point(|other| other.order < batch.order);
        partition.retry.insert(place, batch);
    }

    fn time_out(&mut self, at: usize, batch: Batch) {
        let kind = ProduceErrorKind::TimedOut {
            timeout_ms: self.partitions[at].queue.config.delivery_timeout.as_millis() as u64,
            last: batch.last_problem.clone(),
        };
        self.fail(at, batch, kind);
    }

    /// Reports a batch as failed. Those behind it keep their numbers: they may be written as well, and under others
    /// the broker would write them twice. If this one is missing there, the next is refused as out of order; that
    /// it is not written is then certain, and the sequence starts anew.
    pub(super) fn fail(&mut self, at: usize, batch: Batch, kind: ProduceErrorKind) {
        let persisted =
            if batch.possibly_written { Persisted::PossiblyWritten } else { Persisted::NotWritten };
        if self.produce.transactions.id.is_some() {
            self.produce.transactions.update(Machine::sequence_broken);
        }
        let outcome = Produce::failed(&self.partitions[at].queue, kind, persisted);
        if let Outcome::Failed(error) = &outcome {
            self.produce.observer.log.debug(Context::Msg, "MSGSET", || {
                format!("MessageSet with {} message(s) failed: {error}", batch.sealed.header.record_count)
            });
        }
        self.settle(at, batch, outcome);
    }

    /// Starts the partition's sequence anew under a higher epoch, the batches that wait included.
    fn renumber(&mut self, at: usize) {
        if self.producer_id.is_none() {
            return;
        }
        let partition = &mut self.partitions[at];
        let bumped = partition.numbering.bump();
        if let Some(epoch) = partition.numbering.epoch() {
            self.produce.observer.epoch_raised(&partition.queue.topic, partition.queue.partition, epoch);
        }
        if bumped.is_err() {
            // 32767 epochs are used up: a fresh producer id starts at 0 again.
            self.producer_id = None;
            return;
        }
        for batch in &mut partition.retry {
            let count = batch.sealed.header.record_count;
            let (id, epoch, sequence) = partition.numbering.take(count);
            batch.sealed = batch.sealed.reseal(id, epoch, sequence);
        }
    }

    pub(super) fn settle(&mut self, at: usize, batch: Batch, outcome: Outcome) {
        let queue = &self.partitions[at].queue;
        if matches!(outcome, Outcome::Written { .. }) {
            let count = batch.sealed.header.record_count;
            self.produce.observer.delivered(&queue.topic, queue.partition, count, batch.sealed.len());
        }
        let records = if self.produce.keeps_records() { Kept::of(&batch.sealed) } else { None };
        let concluded = Concluded {
            queue,
            partition: queue.partition,
            told: batch.told,
            created: Some(batch.created),
            count: batch.sealed.header.record_count as u32,
            memory: batch.memory,
            records,
        };
        self.produce.conclude(concluded, outcome);
    }

    /// Fails what has waited too long, sent or not. Batches in flight are left to their answer or its timeout.
    pub(super) fn expire(&mut self, now: Instant) {
        for at in self.active.clone() {
            let timeout = self.partitions[at].queue.config.delivery_timeout;
            while self.partitions[at].retry.front().is_some_and(|batch| now >= batch.created + timeout) {
                if let Some(batch) = self.partitions[at].retry.pop_front() {
                    self.time_out(at, batch);
                }
            }
            while self.partitions[at].closing.front().is_some_and(|closing| closing.is_older(now, timeout)) {
                if let Some(Closing::Ready(batch)) = self.partitions[at].closing.pop_front() {
                    self.fail_closed(at, *batch, self.overdue(at));
                }
            }
            let queue = self.partitions[at].queue.clone();
            while queue.waiting().is_some_and(|waiting| waiting.age(now) >= timeout) {
                let Some(open) = queue.take(true) else { break };
                self.produce.fail_unsent(&queue, open, self.overdue(at));
            }
            self.expire_unknown(at, now);
            if let Some(then) = now.checked_sub(timeout / EXPIRY_SPANS) {
                queue.retire_older(then, &self.produce.queues);
            }
        }
    }

    /// Fails the records of a topic that no broker has known for too long, and those of a partition that it has no more.
    fn expire_unknown(&mut self, at: usize, now: Instant) {
        let queue = self.partitions[at].queue.clone();
        let Some(layout) = self.cluster.topic(&queue.topic) else { return };
        let unknown = match usize::try_from(queue.partition) {
            Err(_) => layout.error == ErrorCode::UnknownTopicOrPartition,
            Ok(number) => layout.error == ErrorCode::None && number >= layout.partitions.len(),
        };
        if !unknown {
            return;
        }
        let since = *self.partitions[at].unknown_since.get_or_insert(now);
        if now >= since + self.produce.config.metadata_propagation {
            let (code, detail) = (ErrorCode::UnknownTopicOrPartition, String::new());
            self.purge_queued(at, &ProduceErrorKind::Broker { code, detail });
        }
    }

    /// The error of what was never sent in its time.
    fn overdue(&self, at: usize) -> ProduceErrorKind {
        let timeout = self.partitions[at].queue.config.delivery_timeout;
        let last = match self.cluster.topic(&self.partitions[at].queue.topic).map(|layout| layout.error) {
            Some(code) if code != ErrorCode::None => code.to_string(),
            Some(_) => "the partition has no leader that can be reached".to_owned(),
            None => self.cluster.brokers.unreachable(timeout).to_string(),
        };
        ProduceErrorKind::TimedOut { timeout_ms: timeout.as_millis() as u64, last }
    }

    /// A batch that was closed and not sent fails.
    pub(super) fn fail_closed(&self, at: usize, batch: ClosedBatch, kind: ProduceErrorKind) {
        let queue = &self.partitions[at].queue;
        let ClosedBatch { closed, told, created, memory } = batch;
        let count = closed.count();
        let keeps = self.produce.keeps_records();
        let records = if keeps { Kept::of(&closed.seal(&Seal::default())) } else { None };
        let (partition, created) = (queue.partition, Some(created));
        let concluded = Concluded { queue, partition, told, created, count, memory, records };
        self.produce.conclude(concluded, Produce::failed(queue, kind, Persisted::NotWritten));
    }

    /// Fails what the application no longer wants sent.
    pub(super) fn purge(&mut self, purge: Purge) {
        if purge.queued {
            for at in 0..self.partitions.len() {
                self.purge_queued(at, &ProduceErrorKind::Purged { in_flight: false });
            }
        }
        if purge.in_flight {
            for request in self.requests.keys().copied().collect::<std::collections::BTreeSet<_>>() {
                let Some(in_flight) = self.requests.get_mut(&request) else { continue };
                let taken: Vec<_> = in_flight
                    .batches
                    .iter_mut()
                    .filter_map(|(at, batch)| Some((*at, batch.take()?)))
                    .collect();
                for (at, mut batch) in taken {
                    batch.possibly_written = true;
                    self.fail(at, batch, ProduceErrorKind::Purged { in_flight: true });
                }
            }
        }
    }

    pub(super) fn purge_queued(&mut self, at: usize, purged: &ProduceErrorKind) {
        while let Some(batch) = self.partitions[at].retry.pop_front() {
            self.fail(at, batch, purged.clone());
        }
        // What the worker has is purged when it comes back.
        self.partitions[at].purged_below = self.partitions[at].next_slot;
        for closing in std::mem::take(&mut self.partitions[at].closing) {
            match closing {
                Closing::Ready(batch) => self.fail_closed(at, *batch, purged.clone()),
                Closing::Away(slot) => self.partitions[at].closing.push_back(Closing::Away(slot)),
            }
        }
        let queue = self.partitions[at].queue.clone();
        while let Some(open) = queue.take(true) {
            self.produce.fail_unsent(&queue, open, purged.clone());
        }
    }
}

/// What to purge.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Purge {
    /// Records that no request carries.
    pub queued: bool,
    /// Records in requests that are not answered: they may be written all the same.
    pub in_flight: bool,
}

/// A batch takes records for at most this part of `delivery.timeout.ms`.
const EXPIRY_SPANS: u32 = 16;

fn broker_error(answer: &PartitionProduceResponse) -> ProduceErrorKind {
    let detail = answer.error_message.as_ref().map(|text| format!(": {text}")).unwrap_or_default();
    ProduceErrorKind::Broker { code: answer.error_code, detail }
}
