//! Producing: records become batches in the application's threads, and batches become requests in the engine.

mod batch;
mod compressor;
mod core;
pub(crate) mod delivery;
pub(crate) mod idempotence;
mod layout;
pub(crate) mod memory;
mod pacing;
pub(crate) mod queue;
pub(crate) mod reports;
pub(crate) mod sender;
pub(crate) mod snapshot;
pub(crate) mod topics;
pub(crate) mod transactional_calls;
mod unsettled;

use std::sync::Arc;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

use bytes::Bytes;
use ottla_protocol::ErrorCode;
use ottla_wire::Sealed;
use tokio::sync::oneshot;
use tokio::time::Instant;

use self::delivery::Outcome;
use self::queue::{DeliveryTargets, OpenBatch, Queues};
use self::reports::{BookedMemory, Report, ReportQueue};
use self::topics::{RecordRefused, Topics};
use crate::config::Config;
use crate::error::{Error, Persisted, ProduceError, ProduceErrorKind};
use crate::log::Context;
use crate::stats::Observer;
use crate::transaction::Transactions;

/// The state that producing threads and the sender share.
#[derive(Debug)]
pub(crate) struct Produce {
    pub(crate) config: Arc<Config>,
    pub(crate) queues: Queues,
    pub(crate) topics: Topics,
    pub(crate) reports: ReportQueue,
    pub(crate) observer: Arc<Observer>,
    pub(crate) transactions: Transactions,
    /// The error that ended the producer was reported.
    has_reported_end: AtomicBool,
    purge: Mutex<PurgeRequest>,
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
            has_reported_end: AtomicBool::new(false),
            purge: Mutex::default(),
            rng: Mutex::new(rng),
            config,
        })
    }

    /// An RNG of the caller's own, seeded by the client's.
    fn fork_rng(&self) -> fastrand::Rng {
        self.rng.lock().unwrap_or_else(PoisonError::into_inner).fork()
    }

    /// Requests the sender to fail records that the application no longer wants sent.
    pub(crate) fn purge(&self, purge: Purge) {
        self.observer.log.debug(Context::Queue, "PURGE", || {
            let Purge { queued, in_flight } = purge;
            format!("the application purges: queued {queued}, in flight {in_flight}")
        });
        self.lock_purge().add(purge);
        self.queues.wake.notify_one();
    }

    /// The same; the receiver is notified when the outcomes of the purged records are known. Its channel closes when the client ends.
    pub(crate) fn purge_notified(&self, purge: Purge) -> oneshot::Receiver<()> {
        let (done, purged) = oneshot::channel();
        self.lock_purge().wait(done);
        self.purge(purge);
        purged
    }

    /// Nothing performs a purge any more: the callers that wait for one get an error.
    fn end_purges(&self) {
        *self.lock_purge() = PurgeRequest { has_ended: true, ..PurgeRequest::default() };
    }

    /// Ends the producer for this reason. Returns `false` if it had ended already.
    pub(crate) fn end(&self, reason: &str) -> bool {
        let is_first = self.transactions.end(ProduceErrorKind::Fatal(reason.to_owned()));
        self.queues.wake.notify_one();
        is_first
    }

    fn take_purge(&self) -> Option<PurgeRequest> {
        let mut request = self.lock_purge();
        request.purge.is_some().then(|| std::mem::take(&mut *request))
    }

    fn lock_purge(&self) -> MutexGuard<'_, PurgeRequest> {
        self.purge.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The error of a record that was not taken.
    pub(crate) fn refusal(&self, topic: &Arc<str>, refused: RecordRefused) -> ProduceError {
        let (partition, kind) = match refused {
            RecordRefused::NoTransaction => (-1, self.transactions.refuse_record()),
            RecordRefused::Forbidden => {
                let code = ErrorCode::TopicAuthorizationFailed;
                (-1, ProduceErrorKind::Broker { code, detail: String::new() })
            }
            RecordRefused::NoSuchPartition(partition, count) => {
                (partition, ProduceErrorKind::NoSuchPartition { count })
            }
            RecordRefused::Queue(partition, queue::PushRefused::TooLarge(bytes)) => {
                (partition, ProduceErrorKind::TooLarge { bytes, max: self.queues.record_bytes_max() })
            }
            RecordRefused::Queue(partition, queue::PushRefused::Full | queue::PushRefused::NewBatch) => {
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
            RecordRefused::Queue(partition, queue::PushRefused::Closed) => {
                (partition, ProduceErrorKind::Closed)
            }
        };
        ProduceError { topic: topic.clone(), partition, kind, persisted: Persisted::NotWritten }
    }

    /// Reports the outcome of a batch and releases its memory.
    pub(crate) fn settle_batch(&self, batch: SettledBatch<'_>, outcome: Outcome) {
        let SettledBatch { queue, partition, node, targets, created, count, mut memory, records } = batch;
        queue.backlog.fetch_sub(1, Ordering::Relaxed);
        let failed = if let Outcome::Failed(error) = &outcome {
            if let Some(fatal) = self.transactions.record_failed(error) {
                self.report_end((*fatal).clone().into());
            }
            self.note_gap(error);
            if error.is_forbidden()
                && let Some(topic) = self.topics.known(&queue.topic)
            {
                topic.set_forbidden(true);
            }
            true
        } else {
            false
        };
        let mut released = count;
        if self.config.delivery_reports && (failed || !self.config.delivery_report_only_error) {
            let result = match &outcome {
                Outcome::Written { base_offset, append_time_ms } => Some((Ok(*base_offset), *append_time_ms)),
                Outcome::Failed(error) => Some((Err(error.clone()), -1)),
                Outcome::Forwarded(_) => None,
            };
            if let Some((result, append_time_ms)) = result {
                let kept = records.as_ref().map_or(0, |records| records.memory) + targets.memory();
                let bytes = kept.min(memory);
                memory -= bytes;
                released = 0;
                let held = BookedMemory { memory: self.queues.memory.clone(), bytes, records: count };
                let (topic, tags) = (queue.topic.clone(), targets.tags);
                let records = records.map(|records| records.bytes);
                let latency = created.map(|created| queue::now().saturating_duration_since(created));
                self.reports.push(Report {
                    topic,
                    partition,
                    node,
                    result,
                    append_time_ms,
                    latency,
                    count,
                    tags,
                    records,
                    _held: held,
                });
            }
        }
        if let Some(completion) = targets.completion {
            completion.complete(outcome);
        }
        self.queues.settle(memory, released);
    }

    /// Ends a gapless producer because a record will not be written.
    fn note_gap(&self, error: &Arc<ProduceError>) {
        let is_gap = match &error.kind {
            // The application's own action, or a consequence of an earlier gap.
            ProduceErrorKind::Purged { .. }
            | ProduceErrorKind::Closed
            | ProduceErrorKind::Fatal(_)
            | ProduceErrorKind::NoSuchPartition { .. }
            | ProduceErrorKind::OtherTopic { .. }
            | ProduceErrorKind::Gapless(_)
            | ProduceErrorKind::Transaction(_) => false,
            ProduceErrorKind::TimedOut { .. }
            | ProduceErrorKind::Broker { .. }
            | ProduceErrorKind::InvalidRecords(_)
            | ProduceErrorKind::OtherRecordInvalid
            | ProduceErrorKind::TooLarge { .. }
            | ProduceErrorKind::QueueFull { .. }
            | ProduceErrorKind::Request(_)
            | ProduceErrorKind::Compress(_) => true,
        };
        let gapless = self.config.enable_gapless_guarantee && self.config.transactional_id.is_none();
        if !(gapless && is_gap) {
            return;
        }
        let kind = ProduceErrorKind::Gapless(error.clone());
        if self.transactions.end(kind.clone()) {
            let (topic, partition, persisted) = (error.topic.clone(), error.partition, error.persisted);
            self.report_end(ProduceError { topic, partition, kind, persisted }.into());
        }
    }

    /// Reports once an error that ends the producer and that no call returns.
    pub(crate) fn report_end(&self, error: Error) {
        if !self.has_reported_end.swap(true, Ordering::Relaxed) {
            self.observer.producer_ended(error);
        }
    }

    /// Fails a single record that is in no batch any more.
    pub(crate) fn fail_single(
        &self,
        queue: &queue::Queue,
        targets: DeliveryTargets,
        error: Arc<ProduceError>,
        records: Option<RetainedRecords>,
    ) {
        self.queues.unsettled.begin();
        queue.backlog.fetch_add(1, Ordering::Relaxed);
        let partition = error.partition;
        // It is booked while its report lives, like any other record.
        let memory = records.as_ref().map_or(0, |records| records.memory) + targets.memory();
        let _ = self.queues.memory.reserve(memory, queue::Push::Forced);
        self.queues.memory.reserve_record();
        let batch =
            SettledBatch { queue, partition, node: None, targets, created: None, count: 1, memory, records };
        self.settle_batch(batch, Outcome::Failed(error));
    }

    /// Fails a batch that was not sent.
    pub(crate) fn fail_unsent(&self, queue: &queue::Queue, open: OpenBatch, kind: ProduceErrorKind) {
        let (memory, count) = (open.memory(), open.builder.count());
        let records = (self.retains_records()).then(|| open.builder.seal(&ottla_wire::Seal::default()).ok());
        let batch = SettledBatch {
            queue,
            partition: queue.partition,
            node: None,
            targets: open.targets,
            created: Some(open.created),
            count,
            memory,
            records: records.flatten().and_then(|sealed| RetainedRecords::of(&sealed)),
        };
        self.settle_batch(batch, Self::failed(queue, kind, Persisted::NotWritten));
    }

    /// The outcome of a failure in a queue's partition.
    pub(crate) fn failed(queue: &queue::Queue, kind: ProduceErrorKind, persisted: Persisted) -> Outcome {
        let (topic, partition) = (queue.topic.clone(), queue.partition);
        Outcome::Failed(Arc::new(ProduceError { topic, partition, kind, persisted }))
    }

    /// `true` if reports carry the records.
    pub(crate) fn retains_records(&self) -> bool {
        self.config.delivery_reports && self.config.delivery_report_records
    }

    /// Closes the producer to records, fails those that no request carries, and wakes the callers that wait for memory
    /// or for a purge.
    pub(crate) fn close(&self) {
        for topic in self.topics.close() {
            for queue in topic.close() {
                for open in queue.close(&self.queues) {
                    self.fail_unsent(queue, open, ProduceErrorKind::Closed);
                }
            }
        }
        // Reports that the application has not read keep their memory: its release may never wake these callers.
        self.queues.memory.freed.notify_waiters();
        self.end_purges();
    }
}

/// A purge that the sender has not performed, and the callers that wait for it.
#[derive(Debug, Default)]
struct PurgeRequest {
    purge: Option<Purge>,
    waiting: Vec<oneshot::Sender<()>>,
    /// `true` if the client has ended. There are no purge and no callers then.
    has_ended: bool,
}

impl PurgeRequest {
    fn wait(&mut self, done: oneshot::Sender<()>) {
        if !self.has_ended {
            self.waiting.push(done);
        }
    }

    fn add(&mut self, purge: Purge) {
        if self.has_ended {
            return;
        }
        let before = self.purge.unwrap_or_default();
        self.purge = Some(Purge {
            queued: before.queued || purge.queued,
            in_flight: before.in_flight || purge.in_flight,
        });
    }

    /// The purged records have their outcomes.
    fn done(self) {
        for waiting in self.waiting {
            // A caller that gave up needs no answer.
            let _ = waiting.send(());
        }
    }
}

/// The records to purge.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Purge {
    /// Records that no request carries, or whose request waits for a connection.
    pub queued: bool,
    /// Records in requests without a response. The broker may still write them.
    pub in_flight: bool,
}

/// A batch whose outcome is known.
#[derive(Debug)]
pub(crate) struct SettledBatch<'a> {
    /// The queue that the batch came from.
    pub(crate) queue: &'a queue::Queue,
    /// The partition that the batch was for.
    pub(crate) partition: i32,
    /// The node that the batch was sent to last.
    pub(crate) node: Option<i32>,
    pub(crate) targets: DeliveryTargets,
    /// The time when the first record was taken; `None` for a record that was in no batch.
    pub(crate) created: Option<Instant>,
    pub(crate) count: u32,
    /// Bytes that the batch has booked.
    pub(crate) memory: usize,
    /// The records before compression, if reports carry them.
    pub(crate) records: Option<RetainedRecords>,
}

/// The records that a report carries.
#[derive(Debug)]
pub(crate) struct RetainedRecords {
    pub(crate) bytes: Bytes,
    /// The bytes that they retain: the whole buffer that contains them.
    pub(crate) memory: usize,
}

impl RetainedRecords {
    pub(crate) fn of(sealed: &Sealed) -> Option<Self> {
        Some(Self { bytes: sealed.records()?, memory: sealed.records_memory() })
    }
}
