//! The effects of the core's actions: requests, reports, metadata and log lines.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::init_producer_id::InitProducerIdRequest;
use ottla_protocol::messages::produce::ProduceResponse;
use ottla_wire::Seal;

use super::{Event, Sender};
use crate::cluster::brokers::Lane;
use crate::config::Acks;
use crate::error::transaction::TransactionErrorKind;
use crate::error::{Error, Persisted, ProduceErrorKind};
use crate::log::Context;
use crate::net::connection::Connection;
use crate::produce::batch::Batch;
use crate::produce::compressor::{ClosedBatch, Uncompressed};
use crate::produce::core::{Action, OutgoingRequest, RequestOutcome};
use crate::produce::delivery::Outcome;
use crate::produce::{Produce, RetainedRecords, SettledBatch};
use crate::stats::Sent;
use crate::transaction::machine::Machine;
use crate::transaction::prepare;
use crate::types::producer_id::ProducerId;

const INIT_PRODUCER_ID_VERSION_MAX: i16 = 5;

impl Sender {
    /// Performs the core's actions in their order.
    pub(super) fn perform(&mut self) {
        let mut actions = std::mem::take(&mut self.actions);
        for action in actions.drain(..) {
            self.perform_one(action);
        }
        self.actions = actions;
    }

    fn perform_one(&mut self, action: Action) {
        match action {
            Action::Send(request) => self.send(request),
            Action::Compress { index, slot, open } => {
                if !self.compressor.compress(index, slot, open, &self.queues[index].config) {
                    self.core.on_worker_missing();
                }
            }
            Action::Settle { index, batch, outcome } => self.settle(index, batch, outcome),
            Action::FailClosed { index, batch, kind } => self.fail_closed(index, batch, kind),
            Action::FailOpen { index, open, kind } => {
                self.produce.fail_unsent(&self.queues[index], open, kind);
            }
            Action::FailUncompressed { index, batch } => self.fail_uncompressed(index, batch),
            Action::ReleaseMemory(bytes) => self.produce.queues.memory.release(bytes, 0),
            Action::RequestProducerId => self.request_producer_id(),
            Action::PrepareTransaction { partitions } => self.prepare_transaction(partitions),
            Action::RefreshMetadata => self.cluster.refresh(),
            Action::ForgetLeader { index } => self.forget_leader(index),
            Action::LearnLeader { index, named_by, leader, leader_epoch } => {
                let queue = &self.queues[index];
                let (topic, partition) = (&queue.topic, queue.partition);
                if self.cluster.learn_leader(topic, partition, named_by, leader, leader_epoch) {
                    self.core.on_new_leader(index);
                } else {
                    self.forget_leader(index);
                }
            }
            Action::LogRetry { index, records, attempts, problem } => {
                self.produce.observer.log.debug(Context::Msg, "RETRY", || {
                    let (topic, partition) = (&self.queues[index].topic, self.queues[index].partition);
                    format!("{topic} [{partition}]: MessageSet with {records} message(s) goes again after {attempts} attempt(s): {problem}")
                });
            }
            Action::EpochRaised { index, epoch } => {
                let queue = &self.queues[index];
                self.produce.observer.epoch_raised(&queue.topic, queue.partition, epoch);
            }
        }
    }

    fn send(&mut self, outgoing: OutgoingRequest) {
        let (id, node) = (outgoing.id, outgoing.node);
        if self.produce.transactions.id.is_some() {
            self.produce.transactions.update(Machine::touch_with_batch);
        }
        for (partition, batch) in self.core.batches_of(id) {
            self.produce.observer.batch_sent(Sent {
                node,
                topic: &partition.topic,
                partition: partition.number,
                order: batch.order,
                records: batch.sealed.header.record_count as u64,
                bytes: batch.sealed.len() as u64,
                created: batch.created,
            });
        }
        if let Some(connection) =
            self.connections.get(&node).cloned().filter(|connection| connection.is_open())
        {
            return self.begin(&connection, outgoing);
        }
        let cluster = self.cluster.clone();
        self.pending.push(Box::pin(async move {
            match cluster.brokers.connection(node, Lane::Produce).await {
                Ok(connection) => Event::Connected { connection, request: outgoing },
                Err(error) => {
                    let outcome = RequestOutcome::NotSent(error);
                    Event::Response { request: id, node, outcome }
                }
            }
        }));
    }

    /// Puts a request in the outbox of its connection: requests to a leader leave in the order in which they were made.
    pub(super) fn begin(&mut self, connection: &Rc<Connection>, outgoing: OutgoingRequest) {
        if outgoing.acks == Acks::None {
            return self.send_without_response(connection, outgoing);
        }
        let OutgoingRequest { id, node, has_zstd, version_max, request, .. } = outgoing;
        let timeout = self.produce.config.socket_timeout;
        let produce = self.produce.clone();
        let refused = if has_zstd { connection.refuses_zstd() } else { None };
        let begun = refused.map_or_else(|| connection.begin(version_max, |_| request), Err);
        self.pending.push(Box::pin(async move {
            let outcome = match begun {
                Ok(pending) => match pending.answer(timeout).await {
                    Ok(response) => {
                        produce.observer.throttled(node, response.throttle_time_ms);
                        RequestOutcome::Answered(response)
                    }
                    Err(error) => RequestOutcome::Lost(error),
                },
                Err(error) => RequestOutcome::NotSent(error),
            };
            Event::Response { request: id, node, outcome }
        }));
    }

    fn send_without_response(&mut self, connection: &Rc<Connection>, outgoing: OutgoingRequest) {
        let OutgoingRequest { id, node, has_zstd, version_max, request, .. } = outgoing;
        let (connection, timeout) = (connection.clone(), self.produce.config.socket_timeout);
        self.pending.push(Box::pin(async move {
            let report = |outcome| Event::Response { request: id, node, outcome };
            if let Some(error) = connection.refuses_zstd().filter(|_| has_zstd) {
                return report(RequestOutcome::NotSent(error));
            }
            let written = connection.send_without_response(version_max, timeout, |_| request).await;
            let outcome = match written {
                Ok(()) => RequestOutcome::Answered(ProduceResponse::default()),
                Err(error) => RequestOutcome::Lost(error),
            };
            report(outcome)
        }));
    }

    /// Reports the outcome of a sealed batch.
    fn settle(&mut self, index: usize, batch: Batch, outcome: Outcome) {
        let queue = &self.queues[index];
        let count = batch.sealed.header.record_count;
        let observer = &self.produce.observer;
        let mut is_forbidden = false;
        match &outcome {
            Outcome::Written { .. } => {
                observer.delivered(&queue.topic, queue.partition, count, batch.sealed.len());
            }
            Outcome::Failed(error) => {
                is_forbidden = error.is_forbidden();
                if self.produce.transactions.id.is_some() {
                    self.produce.transactions.update(Machine::sequence_broken);
                }
                observer.log.debug(Context::Msg, "MSGSET", || {
                    format!("MessageSet with {count} message(s) failed: {error}")
                });
            }
            Outcome::Forwarded(_) => {}
        }
        let retains = self.produce.retains_records();
        let settled = SettledBatch {
            queue,
            partition: queue.partition,
            node: batch.node,
            targets: batch.targets,
            created: Some(batch.created),
            count: count as u32,
            memory: batch.memory,
            records: if retains { RetainedRecords::of(&batch.sealed) } else { None },
        };
        self.produce.settle_batch(settled, outcome);
        if is_forbidden && self.produce.config.refuse_forbidden_topics {
            self.look_again_at_forbidden();
        }
    }

    fn fail_closed(&self, index: usize, batch: ClosedBatch, kind: ProduceErrorKind) {
        let queue = &self.queues[index];
        let ClosedBatch { closed, targets, created, memory } = batch;
        let count = closed.count();
        let retains = self.produce.retains_records();
        let records = if retains { RetainedRecords::of(&closed.seal(&Seal::default())) } else { None };
        let (partition, created) = (queue.partition, Some(created));
        let settled = SettledBatch { queue, partition, node: None, targets, created, count, memory, records };
        self.produce.settle_batch(settled, Produce::failed(queue, kind, Persisted::NotWritten));
    }

    fn fail_uncompressed(&self, index: usize, batch: Uncompressed) {
        let queue = &self.queues[index];
        let Uncompressed { error, targets, memory, count } = batch;
        let kind = ProduceErrorKind::Compress(error.to_string());
        let partition = queue.partition;
        let settled = SettledBatch {
            queue,
            partition,
            node: None,
            targets,
            created: None,
            count,
            memory,
            records: None,
        };
        self.produce.settle_batch(settled, Produce::failed(queue, kind, Persisted::NotWritten));
    }

    fn forget_leader(&self, index: usize) {
        let queue = &self.queues[index];
        self.cluster.forget_leader(&queue.topic, queue.partition);
    }

    fn request_producer_id(&mut self) {
        let (cluster, events) = (self.cluster.clone(), self.events.clone());
        self.tasks.spawn_local(async move {
            let request = |_| InitProducerIdRequest {
                transactional_id: None,
                transaction_timeout_ms: i32::MAX,
                producer_id: -1,
                producer_epoch: -1,
                ..Default::default()
            };
            let result = cluster.call_any(INIT_PRODUCER_ID_VERSION_MAX, request).await.and_then(|response| {
                match response.error_code {
                    ErrorCode::None => {
                        Ok(ProducerId { id: response.producer_id, epoch: response.producer_epoch })
                    }
                    code => Err(Error::Broker { what: "InitProducerId".into(), code }),
                }
            });
            let result = result
                .map_err(|error| if is_final(&error) { Error::NoProducerId(Box::new(error)) } else { error });
            let _ = events.send(Event::ProducerId(result));
        });
    }

    fn prepare_transaction(&mut self, partitions: Vec<usize>) {
        let mut by_topic: BTreeMap<Arc<str>, Vec<i32>> = BTreeMap::new();
        for index in &partitions {
            let queue = &self.queues[*index];
            by_topic.entry(queue.topic.clone()).or_default().push(queue.partition);
        }
        let (cluster, produce, events) = (self.cluster.clone(), self.produce.clone(), self.events.clone());
        self.tasks.spawn_local(async move {
            let prepared = prepare(&cluster, &produce.transactions, by_topic).await;
            if let Err(error) = &prepared {
                tracing::debug!(%error, "cannot prepare the transaction");
                // The end of the client is no error of the producer, and the application knows that it has ended it.
                let is_known =
                    matches!(error.kind, TransactionErrorKind::Closed | TransactionErrorKind::Ended(_));
                if error.is_fatal() && !is_known {
                    produce.report_end(error.clone().into());
                }
            }
            let added = if prepared.is_ok() { partitions } else { Vec::new() };
            let _ = events.send(Event::PartitionsAdded(added));
        });
    }
}

/// Returns `true` if the same InitProducerId request can only fail again. Attempts after a failure of TLS or SASL may succeed.
fn is_final(error: &Error) -> bool {
    matches!(error, Error::Unsupported { .. }) || error.broker_code().is_some_and(|code| !code.is_retriable())
}
