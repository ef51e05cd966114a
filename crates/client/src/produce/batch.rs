//! A sealed batch until its outcome is known, and the partition it belongs to, as the core keeps them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use ottla_wire::{Compression, Seal, Sealed};
use tokio::time::Instant;

use super::compressor::ClosedBatch;
use super::delivery::Outcome;
use super::idempotence::Numbering;
use super::queue::DeliveryTargets;
use crate::config::{Acks, Config};
use crate::error::{Persisted, ProduceError, ProduceErrorKind};
use crate::types::producer_id::ProducerId;

/// The problem of a batch without an attempt.
pub(super) const NEVER_SENT: &str = "it was never sent";

/// A sealed batch until its outcome is known.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) sealed: Sealed,
    pub(super) targets: DeliveryTargets,
    pub(super) created: Instant,
    /// Bytes that the batch has booked.
    pub(super) memory: usize,
    /// The batch's number within its partition: later batches have higher ones.
    pub(super) order: u64,
    pub(super) attempts: u32,
    /// The node of the last attempt.
    pub(super) node: Option<i32>,
    /// `true` if the batch may be in the log although no response confirmed it.
    pub(super) possibly_written: bool,
    /// `true` if the batch is in the log although no response confirmed it, because the broker acknowledged a later
    /// one. A broker that knows the producer never appends a batch without the ones before it.
    pub(super) is_proven_written: bool,
    pub(super) last_problem: String,
}

/// The acknowledgement settings of a Produce request, shared by all of its batches.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct AckSettings {
    pub(super) acks: Acks,
    /// The time that the broker may wait for replicas.
    pub(super) ack_timeout: Duration,
}

impl AckSettings {
    /// The settings of a topic.
    pub(super) fn of(config: &Config) -> Self {
        Self { acks: config.acks, ack_timeout: config.request_timeout.unwrap_or(config.socket_timeout) }
    }
}

impl Batch {
    /// `true` if the batch is compressed with zstd, which brokers before 2.1 refuse.
    pub(super) fn is_zstd(&self) -> bool {
        matches!(self.sealed.header.compression(), Ok(Compression::Zstd))
    }
}

/// A batch between its queue and its sealing.
#[derive(Debug)]
pub(super) enum Compressing {
    /// The worker compresses it under this slot number.
    InWorker(u64),
    /// It is compressed and may be sent.
    Ready(Box<ClosedBatch>),
}

impl Compressing {
    /// `true` if the batch is compressed and older than `timeout`.
    pub(super) fn is_older(&self, now: Instant, timeout: Duration) -> bool {
        matches!(self, Self::Ready(batch) if now >= batch.created + timeout)
    }
}

/// The last batch that a broker refused as out of order, while a later batch can still prove whether it was written.
///
/// Several responses may be lost together. A restarted broker may then know only the last of those batches, because
/// Apache Kafka's producer snapshots hold no more. It refuses the earlier ones as out of order although its log has
/// them. With new sequence numbers they would be written twice. But a broker that knows the producer never appends a batch
/// without the ones before it. The first batch that it acknowledges, as a duplicate or as new, therefore proves that all earlier ones
/// are written. If it acknowledges none, none is written.
#[derive(Clone, Copy, Debug)]
pub(super) struct OutOfOrder {
    /// The node that refused the batch. The log of another node may differ.
    pub(super) node: i32,
    /// [`Batch::order`] of the last batch that was refused.
    pub(super) order: u64,
}

/// A partition with records to send, now or earlier.
#[derive(Debug)]
pub(super) struct Partition {
    pub(super) topic: Arc<str>,
    /// The partition's number; -1 for records whose partition is not chosen yet.
    pub(super) number: i32,
    /// The client's configuration with the topic's own settings over it.
    pub(super) config: Arc<Config>,
    /// Batches between the queue and their sealing, in the order in which they were filled.
    pub(super) compressing: VecDeque<Compressing>,
    pub(super) next_slot: u64,
    /// Batches of slots below this one fail for this reason when the worker returns them.
    pub(super) failed_below: Option<(u64, ProduceErrorKind)>,
    /// Sealed batches that must be sent again, in order, before any new batch.
    pub(super) retry: VecDeque<Batch>,
    pub(super) out_of_order: Option<OutOfOrder>,
    pub(super) in_flight: usize,
    /// The node that the batches in flight were sent to.
    pub(super) sent_to: i32,
    pub(super) next_order: u64,
    pub(super) numbering: Numbering,
    /// `true` if the epochs of the producer id are used up: the waiting batches need the next one.
    pub(super) needs_id: bool,
    pub(super) blocked_until: Option<Instant>,
    /// Requests below this number went to a deleted topic of the same name.
    pub(super) since_request: u64,
    /// The time since which the leader answers that it does not know the partition.
    pub(super) unknown_since: Option<Instant>,
    /// The time since which the metadata does not have the partition, also while no record waits for it.
    pub(super) missing_since: Option<Instant>,
    /// The time since which the waiting records miss the partition, and the number of responses about its topic by then.
    pub(super) missed_since: Option<(Instant, u64)>,
    /// `true` if the topic was created again without this partition. Other missing partitions may be in later metadata.
    pub(super) is_gone: bool,
    /// `true` if the partition is in the core's list of active ones.
    pub(super) is_active: bool,
}

impl Partition {
    pub(super) fn new(topic: Arc<str>, number: i32, config: Arc<Config>) -> Self {
        Self {
            topic,
            number,
            config,
            compressing: VecDeque::new(),
            next_slot: 0,
            failed_below: None,
            retry: VecDeque::new(),
            out_of_order: None,
            in_flight: 0,
            sent_to: -1,
            next_order: 0,
            numbering: Numbering::default(),
            needs_id: false,
            blocked_until: None,
            since_request: 0,
            unknown_since: None,
            missing_since: None,
            missed_since: None,
            is_gone: false,
            is_active: false,
        }
    }

    /// The topic was deleted and created again, so its broker has no state of this producer. Responses to requests below
    /// `next_request` concern the old topic.
    ///
    /// Batches keep their sequence numbers: the new topic must recognise those that it has already, and a broker
    /// without state of a producer accepts any number.
    pub(super) fn on_recreated(&mut self, next_request: u64, partitions: usize) {
        self.is_gone =
            partitions > 0 && usize::try_from(self.number).is_ok_and(|number| number >= partitions);
        self.numbering.forgotten();
        self.since_request = next_request;
        (self.unknown_since, self.blocked_until) = (None, None);
        (self.missing_since, self.missed_since) = (None, None);
    }

    /// `true` if a batch may be sent to `node` behind the batches in flight. Those must have the same leader and, with
    /// idempotence, the broker must be able to detect a wrong order.
    pub(super) fn may_follow(&self, node: i32, is_idempotent: bool, now: Instant) -> bool {
        let keeps_order = self.sent_to == node && (self.numbering.is_known(now) || !is_idempotent);
        self.in_flight == 0 || keeps_order
    }

    /// The position in `retry` of the batch that goes to `node` next: the first one, or the one that can prove whether
    /// the first was written.
    pub(super) fn next_retry(&mut self, node: i32) -> usize {
        self.out_of_order = self.out_of_order.filter(|refused| refused.node == node);
        let witness = self.out_of_order.and_then(|refused| self.witness(refused));
        if witness.is_none() {
            self.out_of_order = None;
        }
        witness.unwrap_or(0)
    }

    /// The position in `retry` of the first batch behind the refused one that may be in the log.
    pub(super) fn witness(&self, refused: OutOfOrder) -> Option<usize> {
        self.retry.iter().position(|batch| batch.order > refused.order && batch.possibly_written)
    }

    /// The broker acknowledged `batch`: earlier batches of the same producer id and epoch are in the log too. An earlier
    /// batch that was refused each time is not: the broker has forgotten the producer, and accepted `batch` without it.
    pub(super) fn prove_earlier(&mut self, batch: &Batch) {
        let sequence_of =
            |batch: &Batch| (batch.sealed.header.producer_id, batch.sealed.header.producer_epoch);
        let (order, sequence) = (batch.order, sequence_of(batch));
        for earlier in &mut self.retry {
            let is_followed = earlier.order < order && sequence.0 >= 0 && sequence_of(earlier) == sequence;
            earlier.is_proven_written |= is_followed && earlier.possibly_written;
        }
    }

    /// `true` if no record of the partition is outside its queue.
    pub(super) fn is_idle(&self) -> bool {
        self.retry.is_empty() && self.in_flight == 0 && self.compressing.is_empty()
    }

    /// Gives the waiting batches new sequence numbers, in order.
    pub(super) fn renumber_waiting(&mut self) {
        for batch in &mut self.retry {
            let count = batch.sealed.header.record_count;
            let (id, epoch, sequence) = self.numbering.take(count);
            batch.sealed = batch.sealed.reseal(id, epoch, sequence);
        }
    }

    /// Begins the sequence again under the producer id that follows the used up one, for the waiting batches too.
    pub(super) fn take_next_id(&mut self, id: ProducerId) {
        if std::mem::take(&mut self.needs_id) {
            self.numbering.adopt(id);
            self.renumber_waiting();
        }
    }

    /// The outcome of a batch that failed.
    pub(super) fn failure(&self, kind: ProduceErrorKind, persisted: Persisted) -> Outcome {
        let (topic, partition) = (self.topic.clone(), self.number);
        Outcome::Failed(Arc::new(ProduceError { topic, partition, kind, persisted }))
    }

    /// Gives a batch its sequence numbers, its header and its checksum.
    pub(super) fn seal(
        &mut self,
        batch: ClosedBatch,
        producer_id: Option<ProducerId>,
        transactional: bool,
    ) -> Batch {
        let ClosedBatch { closed, targets, created, memory } = batch;
        let mut seal = Seal { transactional, ..Seal::default() };
        if let Some(id) = producer_id {
            if transactional {
                self.numbering.follow(id);
            } else {
                self.numbering.adopt(id);
            }
            (seal.producer_id, seal.producer_epoch, seal.base_sequence) =
                self.numbering.take(closed.count() as i32);
        }
        let order = self.next_order;
        self.next_order += 1;
        Batch {
            sealed: closed.seal(&seal),
            targets,
            created,
            memory,
            order,
            attempts: 0,
            node: None,
            possibly_written: false,
            is_proven_written: false,
            last_problem: NEVER_SENT.into(),
        }
    }
}
