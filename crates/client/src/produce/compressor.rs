//! Compression off the engine thread: full batches go to one worker, started when the first of them comes.
//!
//! The sender keeps a slot per batch that is away, so that batches are sent in the order in which they were filled.

use std::sync::Arc;
use std::sync::mpsc;

use ottla_wire::{Closed, CompressError, Compression};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::Instant;

use super::queue::{OpenBatch, Told};
use crate::config::Config;

/// Below this size a batch is compressed at once: a hop to another thread and back would take longer.
pub(super) const WORTH_A_HOP_BYTES: usize = 16 << 10;

/// A batch that takes no more records and lacks only its numbers.
#[derive(Debug)]
pub(super) struct ClosedBatch {
    pub(super) closed: Closed,
    pub(super) told: Told,
    pub(super) created: Instant,
    /// Bytes it has booked.
    pub(super) memory: usize,
}

/// Closes a batch as its topic's configuration says, here and now. The error is a level that the codec does not have, which the configuration's check
/// excludes; the batch's bookkeeping comes back with it.
pub(super) fn close(open: OpenBatch, config: &Config) -> Result<ClosedBatch, Uncompressed> {
    let (memory, count) = (open.memory(), open.builder.count());
    let OpenBatch { builder, told, created } = open;
    let keep_records = config.delivery_reports && config.delivery_report_records;
    match builder.close(config.compression, config.compression_level, keep_records) {
        Ok(closed) => Ok(ClosedBatch { closed, told, created, memory }),
        Err(error) => Err(Uncompressed { error, told, memory, count }),
    }
}

/// What is left of a batch that could not be compressed.
#[derive(Debug)]
pub(super) struct Uncompressed {
    pub(super) error: CompressError,
    pub(super) told: Told,
    pub(super) memory: usize,
    pub(super) count: u32,
}

/// A batch on its way to the worker.
#[derive(Debug)]
struct Job {
    at: usize,
    slot: u64,
    open: OpenBatch,
    config: Arc<Config>,
}

/// A batch on its way back.
#[derive(Debug)]
pub(super) struct Compressed {
    pub(super) at: usize,
    pub(super) slot: u64,
    pub(super) batch: Result<ClosedBatch, Uncompressed>,
}

/// Hands batches to the worker.
#[derive(Debug)]
pub(super) struct Compressor {
    done: UnboundedSender<Compressed>,
    jobs: Option<mpsc::Sender<Job>>,
    /// In simulation every thread is the runtime's: batches are compressed where they are.
    threads: bool,
}

impl Compressor {
    /// A compressor, and where its batches come back.
    pub(super) fn new(threads: bool) -> (Self, UnboundedReceiver<Compressed>) {
        let (done, received) = unbounded_channel();
        (Self { done, jobs: None, threads }, received)
    }

    /// Whether batches of this size and topic should be handed over.
    pub(super) fn wants(&self, bytes: usize, config: &Config) -> bool {
        self.threads && bytes >= WORTH_A_HOP_BYTES && config.compression != Compression::None
    }

    #[expect(clippy::result_large_err, reason = "the batch that was not taken comes back")]
    /// Compresses the batch in the worker; it comes back through the channel. `Err` gives it back when there is no worker.
    pub(super) fn hand_over(
        &mut self,
        at: usize,
        slot: u64,
        open: OpenBatch,
        config: &Arc<Config>,
    ) -> Result<(), OpenBatch> {
        if self.jobs.is_none() {
            self.jobs = self.start();
        }
        let Some(jobs) = &self.jobs else { return Err(open) };
        let config = config.clone();
        jobs.send(Job { at, slot, open, config }).map_err(|mpsc::SendError(job)| job.open)
    }

    fn start(&mut self) -> Option<mpsc::Sender<Job>> {
        let (jobs, received) = mpsc::channel::<Job>();
        let done = self.done.clone();
        let work = move || {
            for Job { at, slot, open, config } in received {
                let batch = close(open, &config);
                if done.send(Compressed { at, slot, batch }).is_err() {
                    return;
                }
            }
        };
        let started = std::thread::Builder::new().name("ottla-compress".into()).spawn(work);
        if let Err(error) = started {
            tracing::warn!(%error, "no thread for compression: batches are compressed in the engine");
            self.threads = false;
            return None;
        }
        Some(jobs)
    }
}
