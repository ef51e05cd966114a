//! A batch from its sealing to its end, and the partition it belongs to, as the sender sees them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use ottla_wire::{Compression, Seal, Sealed};
use tokio::time::Instant;

use super::compressor::ClosedBatch;
use super::idempotence::{Numbering, ProducerId};
use super::queue::{Queue, Told};
use crate::config::{Acks, Config};

/// A sealed batch until it is settled.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) sealed: Sealed,
    pub(super) told: Told,
    pub(super) created: Instant,
    pub(super) memory: usize,
    /// Its place among the partition's batches.
    pub(super) order: u64,
    pub(super) attempts: u32,
    /// Whether it may be in the log although nothing says so.
    pub(super) possibly_written: bool,
    pub(super) last_problem: String,
}

/// What one produce request asks for all of its batches.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Terms {
    pub(super) acks: Acks,
    /// How long the broker may wait for replicas.
    pub(super) ack_timeout: Duration,
}

impl Terms {
    /// Those of a topic.
    pub(super) fn of(config: &Config) -> Self {
        Self { acks: config.acks, ack_timeout: config.ack_timeout.unwrap_or(config.request_timeout) }
    }
}

impl Batch {
    /// Whether it is compressed as brokers before 2.1 do not know.
    pub(super) fn is_zstd(&self) -> bool {
        matches!(self.sealed.header.compression(), Ok(Compression::Zstd))
    }
}

/// A full batch on its way through compression.
#[derive(Debug)]
pub(super) enum Closing {
    /// The worker has it.
    Away(u64),
    /// It may be sent.
    Ready(Box<ClosedBatch>),
}

impl Closing {
    /// Whether it may be sent, and its time is over.
    pub(super) fn is_older(&self, now: Instant, timeout: Duration) -> bool {
        matches!(self, Self::Ready(batch) if now >= batch.created + timeout)
    }
}

/// Batches that wait to go again, up to one that a broker refused as out of order.
///
/// Of several batches whose answers were lost, a broker that was restarted may know the last one only (Apache Kafka's
/// snapshots of producers hold no more), and calls those before it out of order although they are in its log. Numbered anew
/// they would be written twice. But it has never taken a batch without those before it: the first that it acknowledges, as
/// a duplicate or as new, says that all before are written, and if it acknowledges none, none is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refused {
    /// The node that refused them: another one's log may be another.
    pub(super) node: i32,
    /// The last batch that was refused.
    pub(super) order: u64,
}

/// A partition that has, or had, something to send.
#[derive(Debug)]
pub(super) struct Partition {
    pub(super) queue: Arc<Queue>,
    /// Full batches that are being compressed, or are, in the order in which they were filled.
    pub(super) closing: VecDeque<Closing>,
    pub(super) next_slot: u64,
    /// Batches of slots below it are purged when they come back.
    pub(super) purged_below: u64,
    /// Sealed batches that must go again, in order, before anything new.
    pub(super) retry: VecDeque<Batch>,
    /// What of `retry` was refused as out of order, while one behind it can still tell whether it is written.
    pub(super) refused: Option<Refused>,
    pub(super) in_flight: usize,
    /// The node that has what is in flight.
    pub(super) sent_to: i32,
    pub(super) next_order: u64,
    pub(super) numbering: Numbering,
    pub(super) blocked_until: Option<Instant>,
    /// Requests below this number were for a topic of the same name that is deleted.
    pub(super) since_request: u64,
    /// Since when its leader says that it does not know it.
    pub(super) unknown_since: Option<Instant>,
    /// Whether it is among the sender's active ones.
    pub(super) active: bool,
}

impl Partition {
    pub(super) fn new(queue: Arc<Queue>) -> Self {
        Self {
            queue,
            closing: VecDeque::new(),
            next_slot: 0,
            purged_below: 0,
            retry: VecDeque::new(),
            refused: None,
            in_flight: 0,
            sent_to: -1,
            next_order: 0,
            numbering: Numbering::default(),
            blocked_until: None,
            since_request: 0,
            unknown_since: None,
            active: false,
        }
    }

    /// Its topic was deleted and created anew: what its broker knew of us is gone, and whatever requests below
    /// `next_request` bring is news of the old one. Batches keep their numbers: those that the new one has got already
    /// must be recognised, and a broker that knows nothing of a producer takes any number.
    pub(super) fn begin_anew(&mut self, next_request: u64) {
        self.numbering.forgotten();
        self.since_request = next_request;
        (self.unknown_since, self.blocked_until) = (None, None);
    }

    /// Which of the batches that must go again goes next to this node: the first, or, while the first is in doubt, the one
    /// that can tell.
    pub(super) fn next_retry(&mut self, node: i32) -> usize {
        self.refused = self.refused.filter(|refused| refused.node == node);
        let witness = self.refused.and_then(|refused| self.witness(refused));
        if witness.is_none() {
            self.refused = None;
        }
        witness.unwrap_or(0)
    }

    /// The next batch behind the refused ones that may be in the log.
    pub(super) fn witness(&self, refused: Refused) -> Option<usize> {
        self.retry.iter().position(|batch| batch.order > refused.order && batch.possibly_written)
    }

    /// Whether nothing of it is outside its queue.
    pub(super) fn is_idle(&self) -> bool {
        self.retry.is_empty() && self.in_flight == 0 && self.closing.is_empty()
    }

    /// Gives a batch its number in the partition's sequence, its header and its checksum.
    pub(super) fn seal(
        &mut self,
        batch: ClosedBatch,
        producer_id: Option<ProducerId>,
        transactional: bool,
    ) -> Batch {
        let ClosedBatch { closed, told, created, memory } = batch;
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
            told,
            created,
            memory,
            order,
            attempts: 0,
            possibly_written: false,
            last_problem: "it was never sent".into(),
        }
    }
}
