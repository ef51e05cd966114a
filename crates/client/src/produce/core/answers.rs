//! The meaning of each response and error for a batch: acknowledged, sent again, or failed.

use std::collections::VecDeque;

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::produce::{PartitionProduceResponse, ProduceResponse};
use rustc_hash::FxHashMap;
use tokio::time::Instant;

use super::super::batch::{Batch, OutOfOrder};
use super::super::delivery::Outcome;
use super::{Action, InFlight, ProduceCore, RequestOutcome};
use crate::config::Acks;
use crate::error::{Error, InvalidRecords, Persisted, ProduceErrorKind};

/// The arguments of [`ProduceCore::on_response`] that every partition's response needs.
pub(super) struct Response<'a> {
    id: u64,
    node: i32,
    now: Instant,
    rng: &'a mut fastrand::Rng,
    actions: &'a mut Vec<Action>,
}

impl ProduceCore {
    /// The end of a [`Action::Send`].
    pub(in crate::produce) fn on_response(
        &mut self,
        request: u64,
        outcome: &RequestOutcome,
        now: Instant,
        rng: &mut fastrand::Rng,
        actions: &mut Vec<Action>,
    ) {
        let Some(InFlight { node, batches, .. }) = self.requests.remove(&request) else { return };
        let leader = self.leaders.entry(node).or_default();
        leader.in_flight -= 1;
        leader.pacing.answered();
        let mut response = Response { id: request, node, now, rng, actions };
        match outcome {
            RequestOutcome::Answered(answer) => self.on_answer(batches, answer, &mut response),
            RequestOutcome::NotSent(error) => self.on_not_sent(batches, error, &mut response),
            RequestOutcome::Lost(error) => {
                for (index, batch) in batches {
                    self.partitions[index].in_flight -= 1;
                    if let Some(batch) = batch {
                        response.actions.push(Action::RefreshMetadata);
                        let kind = ProduceErrorKind::Request(Box::new(error.clone()));
                        self.retry(index, batch, kind, true, &mut response);
                    }
                }
            }
        }
    }

    fn on_answer(
        &mut self,
        batches: Vec<(usize, Option<Batch>)>,
        answer: &ProduceResponse,
        response: &mut Response<'_>,
    ) {
        let mut by_partition: FxHashMap<(&str, i32), &PartitionProduceResponse> = FxHashMap::default();
        for topic in &answer.responses {
            for partition in &topic.partition_responses {
                by_partition.insert((topic.name.as_str(), partition.index), partition);
            }
        }
        for (index, batch) in batches {
            let partition = &mut self.partitions[index];
            partition.in_flight -= 1;
            // A purged batch was reported when it was purged.
            let Some(batch) = batch else { continue };
            let (topic, acks) = (partition.topic.clone(), partition.config.acks);
            let answer = by_partition.get(&(&*topic, partition.number)).copied();
            match answer {
                Some(answer) => self.on_partition_answer(index, batch, answer, response),
                None if acks == Acks::None => {
                    let outcome = Outcome::Written { base_offset: -1, append_time_ms: -1 };
                    response.actions.push(Action::Settle { index, batch, outcome });
                }
                None => {
                    let error = Error::Protocol {
                        address: format!("node {}", response.node),
                        reason: "the answer to a produce request leaves a partition out".into(),
                    };
                    let kind = ProduceErrorKind::Request(Box::new(error));
                    self.retry(index, batch, kind, true, response);
                }
            }
        }
    }

    fn on_not_sent(
        &mut self,
        batches: Vec<(usize, Option<Batch>)>,
        error: &Error,
        response: &mut Response<'_>,
    ) {
        let is_unsupported = matches!(error, Error::Unsupported { .. });
        // Batches that share a request with a zstd batch may be sent without it.
        let has_zstd =
            is_unsupported && batches.iter().any(|(_, batch)| batch.as_ref().is_some_and(Batch::is_zstd));
        for (index, batch) in batches {
            self.partitions[index].in_flight -= 1;
            let Some(mut batch) = batch else { continue };
            let kind = ProduceErrorKind::Request(Box::new(error.clone()));
            if is_unsupported && has_zstd == batch.is_zstd() {
                // The broker will refuse it later too.
                self.fail(index, batch, kind, response.actions);
                continue;
            }
            response.actions.push(Action::RefreshMetadata);
            // A request that never left is no attempt.
            batch.attempts -= 1;
            self.retry(index, batch, kind, false, response);
        }
    }

    /// The error codes of Produce: temporary, stale metadata, or permanent.
    fn on_partition_answer(
        &mut self,
        index: usize,
        mut batch: Batch,
        answer: &PartitionProduceResponse,
        response: &mut Response<'_>,
    ) {
        let is_of_old_topic = response.id < self.partitions[index].since_request;
        if answer.error_code != ErrorCode::UnknownTopicOrPartition && !is_of_old_topic {
            self.partitions[index].unknown_since = None;
        }
        match answer.error_code {
            // No attempt can have written it: the broker has forgotten the producer, and accepted a later batch without it.
            ErrorCode::DuplicateSequenceNumber if !batch.possibly_written => {
                self.on_out_of_order(index, batch, answer, response);
            }
            // A duplicate was written by an earlier attempt whose response was lost.
            ErrorCode::None | ErrorCode::DuplicateSequenceNumber => {
                if !is_of_old_topic {
                    self.on_acknowledged(index, &batch, answer, response);
                }
                let (base_offset, append_time_ms) = (answer.base_offset, answer.log_append_time_ms);
                let outcome = Outcome::Written { base_offset, append_time_ms };
                response.actions.push(Action::Settle { index, batch, outcome });
            }
            ErrorCode::OutOfOrderSequenceNumber | ErrorCode::UnknownProducerId => {
                self.on_out_of_order(index, batch, answer, response);
            }
            // A topic that is new or moves is not known to every broker at the same time.
            ErrorCode::UnknownTopicOrPartition => {
                let since = *self.partitions[index].unknown_since.get_or_insert(response.now);
                response.actions.push(Action::ForgetLeader { index });
                if response.now < since + self.config.topic_metadata_propagation_max {
                    batch.attempts -= 1;
                    self.retry(index, batch, broker_error(answer), false, response);
                } else {
                    self.fail(index, batch, broker_error(answer), response.actions);
                }
            }
            code if code.is_retriable() => {
                if is_of_stale_metadata(code) {
                    batch.attempts -= 1;
                }
                self.retry(index, batch, broker_error(answer), may_be_written(code), response);
                if code.needs_metadata_refresh() && !is_of_old_topic {
                    let leader = &answer.current_leader;
                    response.actions.push(Action::LearnLeader {
                        index,
                        named_by: response.node,
                        leader: leader.leader_id,
                        leader_epoch: leader.leader_epoch,
                    });
                }
            }
            _ => {
                let partition = &self.partitions[index];
                let kind = InvalidRecords::of(&partition.topic, partition.number, answer).map_or_else(
                    || broker_error(answer),
                    |records| ProduceErrorKind::InvalidRecords(records.into()),
                );
                self.fail(index, batch, kind, response.actions);
            }
        }
    }

    /// The log has the batch. That shows which earlier batches it has, unless the broker may have forgotten the producer.
    fn on_acknowledged(
        &mut self,
        index: usize,
        batch: &Batch,
        answer: &PartitionProduceResponse,
        response: &mut Response<'_>,
    ) {
        let partition = &mut self.partitions[index];
        if partition.numbering.is_continued(answer.base_offset, answer.log_start_offset) {
            partition.prove_earlier(batch);
        }
        let records = i64::from(batch.sealed.header.record_count);
        let base_offset = Some(answer.base_offset).filter(|offset| *offset >= 0);
        let last_offset = base_offset.map(|offset| offset.saturating_add(records - 1));
        partition.numbering.acknowledged(response.now, last_offset);
        self.settle_out_of_order(index, batch, response.actions);
    }

    /// The broker refuses the sequence number. The record is not at fault, so this is no attempt.
    fn on_out_of_order(
        &mut self,
        index: usize,
        mut batch: Batch,
        answer: &PartitionProduceResponse,
        response: &mut Response<'_>,
    ) {
        if batch.is_proven_written {
            // The broker no longer recognises the batch, because it was restarted since.
            response.actions.push(written_somewhere(index, batch));
            return;
        }
        let partition = &self.partitions[index];
        let refused = OutOfOrder { node: response.node, order: batch.order };
        let is_first = partition.retry.front().is_none_or(|first| batch.order < first.order);
        let is_transactional = self.config.transactional_id.is_some();
        let is_judged = partition.in_flight == 0 && (is_first || partition.out_of_order.is_some());
        // A broker that does not know the producer may accept a later batch without the earlier ones.
        let is_unknown = answer.error_code == ErrorCode::UnknownProducerId;
        let has_witness = !is_unknown && partition.witness(refused).is_some();
        let is_lost = is_judged && !has_witness;
        if is_transactional && (is_lost || self.aborts_out_of_order()) {
            // The coordinator owns the epoch of a transaction: the abort brings the next one.
            self.fail(index, batch, broker_error(answer), response.actions);
            return;
        }
        batch.attempts -= 1;
        self.retry(index, batch, broker_error(answer), false, response);
        if !is_judged {
            return;
        }
        if has_witness {
            let partition = &mut self.partitions[index];
            (partition.out_of_order, partition.blocked_until) = (Some(refused), None);
        } else {
            // The broker has lost this producer's state, or an earlier batch was given up (KIP-360).
            if is_unknown {
                self.partitions[index].numbering.forgotten();
            }
            self.renumber(index, response.actions);
        }
    }

    /// Reports the batches before this one that are proven to be in the log.
    fn settle_out_of_order(&mut self, index: usize, batch: &Batch, actions: &mut Vec<Action>) {
        let partition = &mut self.partitions[index];
        if partition.out_of_order.take().is_none() {
            return;
        }
        let (written, waiting): (VecDeque<_>, _) = std::mem::take(&mut partition.retry)
            .into_iter()
            .partition(|earlier| earlier.order < batch.order && earlier.is_proven_written);
        partition.retry = waiting;
        actions.extend(written.into_iter().map(|batch| written_somewhere(index, batch)));
    }

    /// Schedules the batch to be sent again, unless its time or its retries are used up.
    fn retry(
        &mut self,
        index: usize,
        mut batch: Batch,
        problem: ProduceErrorKind,
        possibly_written: bool,
        response: &mut Response<'_>,
    ) {
        batch.possibly_written |= possibly_written;
        batch.last_problem = problem.to_string();
        response.actions.push(Action::LogRetry {
            index,
            records: batch.sealed.header.record_count,
            attempts: batch.attempts,
            problem: batch.last_problem.clone(),
        });
        if response.now >= batch.created + self.partitions[index].config.delivery_timeout {
            self.time_out(index, batch, response.actions);
            return;
        }
        if batch.attempts > self.config.retries {
            self.fail(index, batch, problem, response.actions);
            return;
        }
        let doubled = self.config.retry_backoff.saturating_mul(1 << batch.attempts.saturating_sub(1).min(16));
        let pause = doubled.min(self.config.retry_backoff_max).mul_f64(0.8 + 0.4 * response.rng.f64());
        self.activate(index);
        let partition = &mut self.partitions[index];
        partition.out_of_order = None;
        partition.blocked_until = Some(response.now + pause);
        let place = partition.retry.partition_point(|other| other.order < batch.order);
        partition.retry.insert(place, batch);
    }

    pub(super) fn time_out(&mut self, index: usize, batch: Batch, actions: &mut Vec<Action>) {
        let kind = ProduceErrorKind::TimedOut {
            timeout_ms: self.partitions[index].config.delivery_timeout.as_millis() as u64,
            last: batch.last_problem.clone(),
        };
        self.fail(index, batch, kind, actions);
    }

    /// Reports a batch as failed.
    ///
    /// The batches behind it keep their sequence numbers: they may be in the log already, and under other numbers the
    /// broker would write them twice. If the failed batch is missing in the log, the broker refuses the next as out of
    /// order. That proves that it was not written, and the sequence begins again.
    pub(super) fn fail(
        &mut self,
        index: usize,
        batch: Batch,
        kind: ProduceErrorKind,
        actions: &mut Vec<Action>,
    ) {
        if batch.is_proven_written {
            actions.push(written_somewhere(index, batch));
            return;
        }
        let persisted =
            if batch.possibly_written { Persisted::PossiblyWritten } else { Persisted::NotWritten };
        let outcome = self.partitions[index].failure(kind, persisted);
        actions.push(Action::Settle { index, batch, outcome });
    }

    /// Begins the partition's sequence again under a higher epoch, for the waiting batches too.
    fn renumber(&mut self, index: usize, actions: &mut Vec<Action>) {
        if self.producer_id.is_none() {
            return;
        }
        let partition = &mut self.partitions[index];
        let bumped = partition.numbering.bump();
        if let Some(epoch) = partition.numbering.epoch() {
            actions.push(Action::EpochRaised { index, epoch });
        }
        let (written, unwritten): (VecDeque<_>, _) =
            std::mem::take(&mut partition.retry).into_iter().partition(|batch| batch.is_proven_written);
        partition.retry = unwritten;
        actions.extend(written.into_iter().map(|batch| written_somewhere(index, batch)));
        if bumped.is_err() {
            // 32767 epochs are used up: a fresh producer id begins at 0.
            partition.needs_id = true;
            self.producer_id = None;
            return;
        }
        partition.renumber_waiting();
    }
}

/// Reports a batch that is in the log at an unknown offset.
fn written_somewhere(index: usize, batch: Batch) -> Action {
    Action::Settle { index, batch, outcome: Outcome::Written { base_offset: -1, append_time_ms: -1 } }
}

/// `false` for errors that brokers return before they append. After all others the batch may be in the log: a disk may
/// have failed after the append, and a leader may have appended before it moved.
fn may_be_written(code: ErrorCode) -> bool {
    !matches!(
        code,
        ErrorCode::NotEnoughReplicas
            | ErrorCode::LeaderNotAvailable
            | ErrorCode::CorruptMessage
            | ErrorCode::ConcurrentTransactions
            | ErrorCode::ThrottlingQuotaExceeded
    )
}

/// `true` if the broker refused the batch because another one leads the partition, or none does. This is no attempt of
/// `retries`: the batch is sent until its timeout. A broken disk and a lost connection count.
fn is_of_stale_metadata(code: ErrorCode) -> bool {
    code.needs_metadata_refresh()
        && !matches!(code, ErrorCode::KafkaStorageError | ErrorCode::NetworkException)
}

fn broker_error(answer: &PartitionProduceResponse) -> ProduceErrorKind {
    let detail = answer.error_message.as_ref().map(|text| format!(": {text}")).unwrap_or_default();
    ProduceErrorKind::Broker { code: answer.error_code, detail }
}
