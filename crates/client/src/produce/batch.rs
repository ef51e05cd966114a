//! A batch from its sealing to its end, and the partition it belongs to, as the sender sees them.

use std::collections::VecDeque;
use std::sync::Arc;

use ottla_wire::{Compression, Seal, Sealed};
use tokio::time::Instant;

use super::Produce;
use super::delivery::{Completion, Outcome};
use super::idempotence::{Numbering, ProducerId};
use super::queue::{OpenBatch, Queue};
use crate::error::{Persisted, ProduceError, ProduceErrorKind};

/// A sealed batch until it is settled.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) sealed: Sealed,
    pub(super) completion: Arc<Completion>,
    pub(super) created: Instant,
    pub(super) memory: usize,
    /// Its place among the partition's batches.
    pub(super) order: u64,
    pub(super) attempts: u32,
    /// Whether it may be in the log although nothing says so.
    pub(super) possibly_written: bool,
    pub(super) last_problem: String,
}

/// A partition that has, or had, something to send.
#[derive(Debug)]
pub(super) struct Partition {
    pub(super) queue: Arc<Queue>,
    /// Sealed batches that must go again, in order, before anything new.
    pub(super) retry: VecDeque<Batch>,
    pub(super) in_flight: usize,
    /// The node that has what is in flight.
    pub(super) sent_to: i32,
    pub(super) next_order: u64,
    pub(super) numbering: Numbering,
    pub(super) blocked_until: Option<Instant>,
    pub(super) active: bool,
}
/// Closes a batch: its number in the partition's sequence, codec, checksum.
pub(super) fn seal(
    partition: &mut Partition,
    open: OpenBatch,
    config: &crate::config::Config,
    producer_id: Option<ProducerId>,
    produce: &Produce,
) -> Option<Batch> {
    let OpenBatch { builder, completion, created } = open;
    let memory = builder.memory();
    let mut seal =
        Seal { compression: config.compression, level: config.compression_level, ..Seal::default() };
    if let Some(id) = producer_id {
        partition.numbering.adopt(id);
        (seal.producer_id, seal.producer_epoch, seal.base_sequence) =
            partition.numbering.take(builder.count() as i32);
    }
    let sealed = match builder.seal(&seal) {
        Ok(sealed) => sealed,
        Err(error) => {
            // Only a level outside the codec's range comes here, and the configuration was checked.
            let queue = &partition.queue;
            let kind = ProduceErrorKind::Compress(error.to_string());
            let persisted = Persisted::NotWritten;
            let error =
                ProduceError { topic: queue.topic.clone(), partition: queue.partition, kind, persisted };
            completion.complete(Outcome::Failed(Arc::new(error)));
            produce.queues.settle(memory, None);
            return None;
        }
    };
    debug_assert!(
        sealed.header.compression() == Ok(config.compression) || config.compression != Compression::None
    );
    let order = partition.next_order;
    partition.next_order += 1;
    Some(Batch {
        sealed,
        completion,
        created,
        memory,
        order,
        attempts: 0,
        possibly_written: false,
        last_problem: "it was never sent".into(),
    })
}
