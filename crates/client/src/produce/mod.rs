//! Producing: records into batches in the caller's thread, batches into requests in the engine's.

pub(crate) mod answers;
mod batch;
mod compressor;
pub(crate) mod delivery;
pub(crate) mod idempotence;
mod layout;
pub(crate) mod memory;
mod pacing;
pub(crate) mod partitioner;
pub(crate) mod queue;
pub(crate) mod reports;
pub(crate) mod sender;
pub(crate) mod survey;
pub(crate) mod topics;
mod transactional;

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use ottla_wire::Sealed;
use tokio::time::Instant;

use self::answers::Purge;
use self::delivery::Outcome;
use self::queue::{OpenBatch, Queues, Told};
use self::reports::{Held, Report, ReportQueue};
use self::topics::{NotTaken, Topics};
use crate::config::Config;
use crate::error::{Persisted, ProduceError, ProduceErrorKind};
use crate::log::{Context, ERROR};
use crate::stats::Observer;
use crate::transaction::Transactions;

/// What producing threads and the sender share.
#[derive(Debug)]
pub(crate) struct Produce {
    pub(crate) config: Arc<Config>,
    pub(crate) queues: Queues,
    pub(crate) topics: Topics,
    pub(crate) reports: ReportQueue,
    pub(crate) observer: Arc<Observer>,
    pub(crate) transactions: Transactions,
    purge: Mutex<Option<Purge>>,
    rng: Mutex<fastrand::Rng>,
}

impl Produce {
    pub(crate) fn new(config: Arc<Config>, observer: Arc<Observer>, mut rng: fastrand::Rng) -> Arc<Self> {
        Arc::new(Self {
            queues: Queues::new(&config),
            topics: Topics::new(config.clone(), rng.u64(..)),
            reports: ReportQueue::default(),
            observer,
            transactions: Transactions::new(&config),
            purge: Mutex::default(),
            rng: Mutex::new(rng),
            config,
        })
    }

    pub(crate) fn random(&self) -> f64 {
        self.rng.lock().unwrap_or_else(PoisonError::into_inner).f64()
    }

    /// Has the sender fail what the application no longer wants sent.
    pub(crate) fn purge(&self, purge: Purge) {
        self.observer.log.debug(Context::Queue, "PURGE", || {
            let Purge { queued, in_flight } = purge;
            format!("the application purges: queued {queued}, in flight {in_flight}")
        });
        let mut wanted = self.purge.lock().unwrap_or_else(PoisonError::into_inner);
        let before = wanted.unwrap_or_default();
        *wanted = Some(Purge {
            queued: before.queued || purge.queued,
            in_flight: before.in_flight || purge.in_flight,
        });
        self.queues.wake.notify_one();
    }

    fn take_purge(&self) -> Option<Purge> {
        self.purge.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// The error for a record that was not taken.
    pub(crate) fn refusal(&self, topic: &Arc<str>, refused: NotTaken) -> ProduceError {
        let (partition, kind) = match refused {
            NotTaken::NoTransaction => (-1, self.transactions.refuse_record()),
            NotTaken::NoSuchPartition(partition, count) => {
                (partition, ProduceErrorKind::NoSuchPartition { count })
            }
            NotTaken::Refused(partition, queue::Refused::TooLarge(bytes)) => {
                (partition, ProduceErrorKind::TooLarge { bytes, max: self.queues.record_bytes_max() })
            }
            NotTaken::Refused(partition, queue::Refused::Full | queue::Refused::NewBatch) => {
                let memory = &self.queues.memory;
                let kind = ProduceErrorKind::QueueFull {
                    used: memory.used(),
                    max: memory.max(),
                    records: memory.records(),
                    records_max: memory.records_max(),
                };
                self.observer.log.debug(Context::Queue, "FULL", || {
                    format!("{topic} [{partition}]: a record is not taken: {kind}")
                });
                (partition, kind)
            }
            NotTaken::Refused(partition, queue::Refused::Closed) => (partition, ProduceErrorKind::Closed),
        };
        ProduceError { topic: topic.clone(), partition, kind, persisted: Persisted::NotWritten }
    }

    /// A batch has met its fate: tells whoever is to be told and gives back what it had booked.
    pub(crate) fn conclude(&self, batch: Concluded<'_>, outcome: Outcome) {
        let Concluded { queue, partition, told, created, count, mut memory, records } = batch;
        queue.backlog.fetch_sub(1, Ordering::Relaxed);
        let failed = if let Outcome::Failed(error) = &outcome {
            self.transactions.record_failed(error);
            self.note_gap(error);
            true
        } else {
            false
        };
        let mut released = count;
        if self.config.delivery_reports && (failed || !self.config.delivery_report_only_error) {
            let result = match &outcome {
                Outcome::Written { base_offset } => Some(Ok(*base_offset)),
                Outcome::Failed(error) => Some(Err(error.clone())),
                Outcome::Forwarded(_) => None,
            };
            if let Some(result) = result {
                let kept = records.as_ref().map_or(0, |records| records.memory) + told.memory();
                let bytes = kept.min(memory);
                memory -= bytes;
                released = 0;
                let held = Held { memory: self.queues.memory.clone(), bytes, records: count };
                let (topic, tags) = (queue.topic.clone(), told.tags);
                let records = records.map(|records| records.bytes);
                let latency = created.map(|created| queue::now().saturating_duration_since(created));
                self.reports.push(Report {
                    topic,
                    partition,
                    result,
                    latency,
                    count,
                    tags,
                    records,
                    _held: held,
                });
            }
        }
        if let Some(completion) = told.completion {
            completion.complete(outcome);
        }
        self.queues.settle(memory, released);
    }

    /// A record will not be written: what that means where no gap may be.
    fn note_gap(&self, error: &Arc<ProduceError>) {
        let is_gap = match &error.kind {
            // The application's own doing, or what follows from a gap.
            ProduceErrorKind::Purged { .. }
            | ProduceErrorKind::Closed
            | ProduceErrorKind::NoSuchPartition { .. }
            | ProduceErrorKind::Gapless(_)
            | ProduceErrorKind::Transaction(_) => false,
            ProduceErrorKind::TimedOut { .. }
            | ProduceErrorKind::Broker { .. }
            | ProduceErrorKind::TooLarge { .. }
            | ProduceErrorKind::QueueFull { .. }
            | ProduceErrorKind::Request(_)
            | ProduceErrorKind::NoMetadata
            | ProduceErrorKind::Compress(_)
            | ProduceErrorKind::Fatal(_) => true,
        };
        let gapless = self.config.gapless && self.config.transactional_id.is_none();
        if gapless && is_gap && self.transactions.end_at_gap(error) {
            let text = ProduceErrorKind::Gapless(error.clone()).to_string();
            self.observer.log.say(ERROR, "FATAL", text);
        }
    }

    /// A single record that no batch holds any more fails.
    pub(crate) fn conclude_alone(
        &self,
        queue: &queue::Queue,
        told: Told,
        error: Arc<ProduceError>,
        records: Option<Kept>,
    ) {
        self.queues.begin_unsettled();
        queue.backlog.fetch_add(1, Ordering::Relaxed);
        let partition = error.partition;
        // It is booked as long as its report lives, like any other.
        let memory = records.as_ref().map_or(0, |records| records.memory) + told.memory();
        let _ = self.queues.memory.reserve(memory, queue::Push::Forced);
        self.queues.memory.reserve_record();
        let batch = Concluded { queue, partition, told, created: None, count: 1, memory, records };
        self.conclude(batch, Outcome::Failed(error));
    }

    /// A batch that was not sent fails.
    pub(crate) fn fail_unsent(&self, queue: &queue::Queue, open: OpenBatch, kind: ProduceErrorKind) {
        let (memory, count) = (open.memory(), open.builder.count());
        let records = (self.keeps_records()).then(|| open.builder.seal(&ottla_wire::Seal::default()).ok());
        let batch = Concluded {
            queue,
            partition: queue.partition,
            told: open.told,
            created: Some(open.created),
            count,
            memory,
            records: records.flatten().and_then(|sealed| Kept::of(&sealed)),
        };
        self.conclude(batch, Self::failed(queue, kind, Persisted::NotWritten));
    }

    /// The outcome of a failure in a queue's partition.
    pub(crate) fn failed(queue: &queue::Queue, kind: ProduceErrorKind, persisted: Persisted) -> Outcome {
        let (topic, partition) = (queue.topic.clone(), queue.partition);
        Outcome::Failed(Arc::new(ProduceError { topic, partition, kind, persisted }))
    }

    /// Whether reports carry the records.
    pub(crate) fn keeps_records(&self) -> bool {
        self.config.delivery_reports && self.config.delivery_report_records
    }

    /// Refuses records from now on and fails those that no request carries.
    pub(crate) fn close(&self) {
        for topic in self.topics.all() {
            for queue in topic.close() {
                for open in queue.close(&self.queues) {
                    self.fail_unsent(queue, open, ProduceErrorKind::Closed);
                }
            }
        }
    }
}

/// A batch at its end.
#[derive(Debug)]
pub(crate) struct Concluded<'a> {
    /// Where it was queued.
    pub(crate) queue: &'a queue::Queue,
    /// The partition it was for.
    pub(crate) partition: i32,
    pub(crate) told: Told,
    /// When its first record was taken; nothing if it never waited in a batch.
    pub(crate) created: Option<Instant>,
    pub(crate) count: u32,
    /// Bytes it had booked.
    pub(crate) memory: usize,
    /// The records before compression, if reports carry them.
    pub(crate) records: Option<Kept>,
}

/// Records that a report carries.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) bytes: Bytes,
    /// What they keep: the whole buffer that they are in.
    pub(crate) memory: usize,
}

impl Kept {
    pub(crate) fn of(sealed: &Sealed) -> Option<Self> {
        Some(Self { bytes: sealed.records()?, memory: sealed.records_memory() })
    }
}
