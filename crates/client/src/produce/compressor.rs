//! Compression off the engine thread: one worker thread, started by the first large batch.
//!
//! The core keeps a slot for each batch in the worker, so that batches are sent in the order in which they were filled.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;

use ottla_wire::{BatchBuilder, Closed, CompressError, Compression};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::Instant;

use super::queue::{DeliveryTargets, OpenBatch};
use crate::config::Config;
use crate::panics::contained;

/// Smaller batches are compressed at once: two thread switches would take longer.
const WORKER_BYTES_MIN: usize = 16 << 10;

/// `true` if a batch of this size should be compressed by the worker.
pub(super) fn is_worth_worker(bytes: usize, config: &Config) -> bool {
    bytes >= WORKER_BYTES_MIN && config.compression_codec != Compression::None
}

/// A batch that takes no more records and lacks only its sequence numbers.
#[derive(Debug)]
pub(super) struct ClosedBatch {
    pub(super) closed: Closed,
    pub(super) targets: DeliveryTargets,
    pub(super) created: Instant,
    /// Bytes that the batch has booked.
    pub(super) memory: usize,
}

/// Closes and compresses a batch as its topic's configuration requires.
///
/// The error is a compression level that the codec does not have, which the configuration's validation excludes, or a panic of
/// the codec.
pub(super) fn close(open: OpenBatch, config: &Config) -> Result<ClosedBatch, Uncompressed> {
    close_with(open, config, config.compression_codec, config.compression_level)
}

fn close_with(
    open: OpenBatch,
    config: &Config,
    codec: Compression,
    level: Option<i32>,
) -> Result<ClosedBatch, Uncompressed> {
    let keep_records = config.delivery_reports && config.delivery_report_records;
    close_by(open, codec, |builder| builder.close(codec, level, keep_records))
}

/// Closes a batch with `compress`. A panic must not take the batch with it: the batches of its partition wait for it.
fn close_by(
    open: OpenBatch,
    codec: Compression,
    compress: impl FnOnce(BatchBuilder) -> Result<Closed, CompressError>,
) -> Result<ClosedBatch, Uncompressed> {
    let (memory, count) = (open.memory(), open.builder.count());
    let OpenBatch { builder, targets, created } = open;
    let panicked = || Err(CompressError::Corrupt { codec, reason: "the codec has panicked".into() });
    match contained(|| compress(builder)).unwrap_or_else(panicked) {
        Ok(closed) => Ok(ClosedBatch { closed, targets, created, memory }),
        Err(error) => Err(Uncompressed { error, targets, memory, count }),
    }
}

/// The bookkeeping of a batch that could not be compressed.
#[derive(Debug)]
pub(super) struct Uncompressed {
    pub(super) error: CompressError,
    pub(super) targets: DeliveryTargets,
    pub(super) memory: usize,
    pub(super) count: u32,
}

/// A batch for the worker.
#[derive(Debug)]
struct Job {
    index: usize,
    slot: u64,
    open: OpenBatch,
    config: Arc<Config>,
}

/// A batch from the worker.
#[derive(Debug)]
pub(super) struct Compressed {
    pub(super) index: usize,
    pub(super) slot: u64,
    pub(super) batch: Result<ClosedBatch, Uncompressed>,
}

/// The worker thread and the channels to and from it.
#[derive(Debug)]
pub(super) struct Compressor {
    done: UnboundedSender<Compressed>,
    jobs: Option<mpsc::Sender<Job>>,
    worker: Option<JoinHandle<()>>,
    /// `true` if nothing is sent any more: batches only need their outcome.
    is_ending: Arc<AtomicBool>,
}

impl Compressor {
    /// A compressor, and the channel that returns its batches.
    pub(super) fn new() -> (Self, UnboundedReceiver<Compressed>) {
        let (done, received) = unbounded_channel();
        (Self { done, jobs: None, worker: None, is_ending: Arc::default() }, received)
    }

    /// Compresses the batch in the worker, or at once if there is no worker. The channel returns the batch in both cases;
    /// `false` if no worker can be started.
    pub(super) fn compress(
        &mut self,
        index: usize,
        slot: u64,
        open: OpenBatch,
        config: &Arc<Config>,
    ) -> bool {
        if self.jobs.is_none() {
            self.jobs = self.start();
        }
        let job = Job { index, slot, open, config: config.clone() };
        let unsent = match &self.jobs {
            Some(jobs) => jobs.send(job).err().map(|mpsc::SendError(job)| job),
            None => Some(job),
        };
        let has_worker = unsent.is_none();
        if let Some(Job { index, slot, open, config }) = unsent {
            let _ = self.done.send(Compressed { index, slot, batch: close(open, &config) });
        }
        has_worker
    }

    /// Ends the worker, and returns the batches that it had. Waits for the one that is being compressed; the others are not compressed.
    pub(super) fn finish(&mut self, compressed: &mut UnboundedReceiver<Compressed>) -> Vec<Compressed> {
        self.is_ending.store(true, Ordering::Relaxed);
        self.jobs = None;
        if let Some(worker) = self.worker.take()
            && worker.join().is_err()
        {
            tracing::error!("the compression thread has panicked");
        }
        std::iter::from_fn(|| compressed.try_recv().ok()).collect()
    }

    fn start(&mut self) -> Option<mpsc::Sender<Job>> {
        let (jobs, received) = mpsc::channel::<Job>();
        let (done, is_ending) = (self.done.clone(), self.is_ending.clone());
        let work = move || {
            for Job { index, slot, open, config } in received {
                let batch = if is_ending.load(Ordering::Relaxed) {
                    close_with(open, &config, Compression::None, None)
                } else {
                    close(open, &config)
                };
                if done.send(Compressed { index, slot, batch }).is_err() {
                    return;
                }
            }
        };
        let started = std::thread::Builder::new().name("ottla-compress".into()).spawn(work);
        match started {
            Ok(worker) => {
                self.worker = Some(worker);
                Some(jobs)
            }
            Err(error) => {
                tracing::warn!(%error, "cannot start the compression thread: the engine compresses batches itself");
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The batch was lost, and the records behind it waited for ever.
    #[test]
    fn a_batch_whose_compression_panics_keeps_its_receivers_and_fails() {
        let mut builder = BatchBuilder::new();
        builder.push(0, None, Some(b"paid"), &[]);
        let targets = DeliveryTargets { tags: vec![7], ..DeliveryTargets::default() };
        let open = OpenBatch { builder, targets, created: Instant::now() };
        let memory = open.memory();
        let failed = close_by(open, Compression::Lz4, |_| panic!("a defect")).expect_err("no batch");
        assert_eq!((failed.count, failed.memory, failed.targets.tags), (1, memory, vec![7]));
        assert_eq!(failed.error.to_string(), "lz4: the codec has panicked");
    }
}
