//! What each answer, error and deadline means for a batch: settled, sent again, or failed.

use std::rc::Rc;
use std::sync::Arc;

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::produce::{PartitionProduceResponse, ProduceResponse};
use rustc_hash::FxHashMap;
use tokio::time::Instant;

use super::batch::Batch;
use super::delivery::Outcome;
use super::queue::{OpenBatch, Queue};
use super::sender::{InFlight, Sender};
use crate::config::Acks;
use crate::error::{Error, Persisted, ProduceError, ProduceErrorKind};
use crate::net::connection::Connection;

impl Sender {
    pub(super) fn on_answer(
        &mut self,
        request: u64,
        result: Result<ProduceResponse, Error>,
        connection: Option<Rc<Connection>>,
    ) {
        let Some(InFlight { node, batches }) = self.requests.remove(&request) else { return };
        let leader = self.leaders.entry(node).or_default();
        leader.in_flight -= 1;
        if connection.is_some() {
            leader.connection = connection;
        }
        let now = Instant::now();
        let mut answers: FxHashMap<(&str, i32), &PartitionProduceResponse> = FxHashMap::default();
        if let Ok(response) = &result {
            for topic in &response.responses {
                for partition in &topic.partition_responses {
                    answers.insert((topic.name.as_str(), partition.index), partition);
                }
            }
        }
        for (at, batch) in batches {
            self.partitions[at].in_flight -= 1;
            let queue = self.partitions[at].queue.clone();
            match (&result, answers.get(&(&*queue.topic, queue.partition))) {
                (Ok(_), Some(answer)) => self.on_partition_answer(at, batch, answer, now),
                (Ok(_), None) if self.produce.config.acks == Acks::None => {
                    self.settle(batch, Outcome::Written { base_offset: -1 });
                }
                (Ok(_), None) => {
                    self.on_trouble(
                        at,
                        batch,
                        "the broker's answer leaves this partition out".into(),
                        true,
                        now,
                    );
                }
                (Err(error), _) => {
                    // Whatever was sent and not answered may have been written.
                    let sent = !matches!(error, Error::Unreachable { .. });
                    self.cluster.refresh();
                    self.on_trouble(at, batch, error.to_string(), sent, now);
                }
            }
        }
    }

    /// The table of what each error means (the introduction's "temporary", "stale metadata" and "permanent").
    fn on_partition_answer(
        &mut self,
        at: usize,
        batch: Batch,
        answer: &PartitionProduceResponse,
        now: Instant,
    ) {
        let code = answer.error_code;
        match code {
            // A duplicate was written by an earlier attempt whose answer was lost.
            ErrorCode::None | ErrorCode::DuplicateSequenceNumber => {
                self.partitions[at].numbering.acknowledged();
                self.settle(batch, Outcome::Written { base_offset: answer.base_offset });
            }
            ErrorCode::OutOfOrderSequenceNumber | ErrorCode::UnknownProducerId => {
                let behind_another =
                    self.partitions[at].retry.front().is_some_and(|earlier| earlier.order < batch.order);
                if !behind_another && self.partitions[at].in_flight == 0 {
                    // The first in line is out of order: the broker has lost what it knew of us (KIP-360).
                    self.renumber(at);
                }
                self.on_trouble(at, batch, code.to_string(), false, now);
            }
            code if code.is_retriable() => {
                if code.needs_metadata_refresh() {
                    let queue = &self.partitions[at].queue;
                    self.cluster.forget_leader(&queue.topic, queue.partition);
                }
                // These come before anything is appended; all others, a leader that moved or a disk that failed
                // among them, may come after it.
                let not_written = matches!(
                    code,
                    ErrorCode::UnknownTopicOrPartition
                        | ErrorCode::CorruptMessage
                        | ErrorCode::NotEnoughReplicas
                );
                self.on_trouble(at, batch, code.to_string(), !not_written, now);
            }
            code => {
                let detail =
                    answer.error_message.as_ref().map(|text| format!(": {text}")).unwrap_or_default();
                self.fail(at, batch, ProduceErrorKind::Broker { code, detail });
            }
        }
    }

    /// The batch goes again, unless its time is over.
    fn on_trouble(
        &mut self,
        at: usize,
        mut batch: Batch,
        problem: String,
        possibly_written: bool,
        now: Instant,
    ) {
        tracing::debug!(topic = %self.partitions[at].queue.topic, partition = self.partitions[at].queue.partition,
            problem, attempts = batch.attempts, "batch goes again");
        batch.possibly_written |= possibly_written;
        batch.last_problem = problem;
        if now >= batch.created + self.produce.config.delivery_timeout {
            self.time_out(at, batch);
            return;
        }
        let config = &self.produce.config;
        let doubled = config.retry_backoff.saturating_mul(1 << (batch.attempts - 1).min(16));
        let pause = doubled.min(config.retry_backoff_max).mul_f64(0.8 + 0.4 * self.produce.random());
        let partition = &mut self.partitions[at];
        partition.blocked_until = Some(now + pause);
        partition.active = true;
        let place = partition.retry.partition_point(|other| other.order < batch.order);
        partition.retry.insert(place, batch);
    }

    fn time_out(&mut self, at: usize, batch: Batch) {
        let kind = ProduceErrorKind::TimedOut {
            timeout_ms: self.produce.config.delivery_timeout.as_millis() as u64,
            last: batch.last_problem.clone(),
        };
        self.fail(at, batch, kind);
    }

    /// Reports a batch as failed. Those behind it keep their numbers: they may be written as well, and under others
    /// the broker would write them twice. If this one is missing there, the next is refused as out of order; that
    /// it is not written is then certain, and the sequence starts anew.
    fn fail(&mut self, at: usize, batch: Batch, kind: ProduceErrorKind) {
        let persisted =
            if batch.possibly_written { Persisted::PossiblyWritten } else { Persisted::NotWritten };
        let queue = &self.partitions[at].queue;
        let error = ProduceError { topic: queue.topic.clone(), partition: queue.partition, kind, persisted };
        tracing::debug!(%error, records = batch.sealed.header.record_count, "batch failed");
        self.settle(batch, Outcome::Failed(Arc::new(error)));
    }

    /// Starts the partition's sequence anew under a higher epoch, the batches that wait included.
    fn renumber(&mut self, at: usize) {
        if self.producer_id.is_none() {
            return;
        }
        let partition = &mut self.partitions[at];
        if partition.numbering.bump().is_err() {
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

    fn settle(&mut self, batch: Batch, outcome: Outcome) {
        batch.completion.complete(outcome);
        self.produce.queues.settle(batch.memory, batch.sealed.reclaim());
    }

    /// Fails what has waited too long, sent or not. Batches in flight are left to their answer or its timeout.
    pub(super) fn expire(&mut self, now: Instant) {
        let timeout = self.produce.config.delivery_timeout;
        for at in 0..self.partitions.len() {
            if !self.partitions[at].active {
                continue;
            }
            while self.partitions[at].retry.front().is_some_and(|batch| now >= batch.created + timeout) {
                if let Some(batch) = self.partitions[at].retry.pop_front() {
                    self.time_out(at, batch);
                }
            }
            let queue = self.partitions[at].queue.clone();
            while queue.waiting().is_some_and(|waiting| waiting.age(now) >= timeout) {
                let Some(open) = queue.take(true) else { break };
                let known = self.cluster.topic(&queue.topic);
                let last = match known.map(|layout| layout.error) {
                    Some(code) if code != ErrorCode::None => code.to_string(),
                    Some(_) => "the partition has no leader that can be reached".to_owned(),
                    None => self.cluster.brokers.unreachable(timeout).to_string(),
                };
                let kind = ProduceErrorKind::TimedOut { timeout_ms: timeout.as_millis() as u64, last };
                self.fail_unsent(&queue, open, kind);
            }
        }
    }

    pub(super) fn fail_unsent(&self, queue: &Queue, open: OpenBatch, kind: ProduceErrorKind) {
        let persisted = Persisted::NotWritten;
        let error = ProduceError { topic: queue.topic.clone(), partition: queue.partition, kind, persisted };
        open.completion.complete(Outcome::Failed(Arc::new(error)));
        self.produce.queues.settle(open.builder.memory(), None);
    }
}
