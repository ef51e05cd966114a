//! The settings of a processor.

use std::time::Duration;

use ottla_client::Config;

use crate::core::breaker::BreakerSettings;
use crate::error::Error;
use crate::retry::Retry;

/// Default interval of commits, which bounds the records that are repeated after a crash. It is Sarama's.
const COMMIT_INTERVAL: Duration = Duration::from_secs(1);

/// The way in which records are passed to handlers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mode {
    /// Single records, each partition in order, one worker.
    Sync,
    /// Batches, one worker. A batch is complete when it is full, when a worker is idle or when its wait is over.
    Batch,
    /// Single records, several workers.
    MultiAsync,
    /// Batches, several workers.
    MultiBatch,
}

impl Mode {
    /// All modes.
    pub const ALL: [Self; 4] = [Self::Sync, Self::Batch, Self::MultiAsync, Self::MultiBatch];

    /// The name: `sync`, `batch`, `multi-async`, `multi-batch`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sync => "sync",
            Self::Batch => "batch",
            Self::MultiAsync => "multi-async",
            Self::MultiBatch => "multi-batch",
        }
    }

    pub(crate) const fn is_batch(self) -> bool {
        matches!(self, Self::Batch | Self::MultiBatch)
    }

    pub(crate) const fn is_multi(self) -> bool {
        matches!(self, Self::MultiAsync | Self::MultiBatch)
    }
}

/// The order in which records are handled.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Order {
    /// No order: any worker handles any record.
    None,
    /// The order of each partition. No more workers are active than there are partitions.
    Partition,
    /// The order of each key. No more workers are active than there are keys. Records without a key have no order.
    Key,
}

/// The action for a record that is given up or cannot be decoded.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum GiveUp {
    /// Stop with [`Error::Record`], or with [`Error::Client`] for records that cannot be decoded. The record is not
    /// committed.
    Stop,
    /// Write the record to this topic, with headers for the reason and its origin. The record is done when the write
    /// is acknowledged.
    DeadLetter(String),
    /// Count the record as done and log a warning.
    Skip,
}

/// The settings of a processor, from [`Processor::builder`](crate::Processor::builder).
#[derive(Clone, Debug)]
pub struct Builder {
    pub(crate) config: Config,
    pub(crate) topics: Vec<String>,
    pub(crate) mode: Mode,
    pub(crate) order: Option<Order>,
    pub(crate) workers: usize,
    pub(crate) queue: usize,
    pub(crate) batch: usize,
    pub(crate) batch_wait: Duration,
    pub(crate) records_in_flight: usize,
    pub(crate) bytes_in_flight: usize,
    pub(crate) commit_interval: Option<Duration>,
    pub(crate) drain: Duration,
    pub(crate) retry: Retry,
    pub(crate) give_up: GiveUp,
    pub(crate) breaker: Option<BreakerSettings>,
    pub(crate) exactly_once: Option<String>,
    pub(crate) transaction: Duration,
    pub(crate) tracked: bool,
}

impl Builder {
    pub(crate) fn new(config: Config, mode: Mode) -> Self {
        Self {
            config,
            topics: Vec::new(),
            mode,
            order: None,
            workers: 8,
            queue: 1000,
            batch: 1000,
            batch_wait: Duration::from_secs(1),
            records_in_flight: 100_000,
            bytes_in_flight: 64 << 20,
            commit_interval: None,
            drain: Duration::from_secs(10),
            retry: Retry::default(),
            give_up: GiveUp::Stop,
            breaker: None,
            exactly_once: None,
            transaction: Duration::from_millis(100),
            tracked: true,
        }
    }

    /// Sets the topics, as in [`Consumer::subscribe`](ottla_client::Consumer::subscribe).
    #[must_use]
    pub fn topics<T: Into<String>>(mut self, topics: impl IntoIterator<Item = T>) -> Self {
        self.topics = topics.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the order. The default is [`Order::Partition`] with one worker and [`Order::None`] with several: there, a
    /// failed record is retried while the records after it are handled. [`Order::Key`] costs two to three times the
    /// processor's own CPU time per record, which is why it is not the default.
    #[must_use]
    pub fn order(mut self, order: Order) -> Self {
        self.order = Some(order);
        self
    }

    /// Sets the number of concurrent handlers in the `Multi` modes; the default is 8. They are threads, or futures if
    /// the handler is async.
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = workers;
        self
    }

    /// Sets the maximum number of work items that wait for a worker; the default is 1000. A work item is a batch, or
    /// one record. Several records that are handled quickly form one item.
    #[must_use]
    pub fn queue(mut self, pieces: usize) -> Self {
        self.queue = pieces;
        self
    }

    /// Sets the maximum number of records in a batch; the default is 1000.
    #[must_use]
    pub fn batch(mut self, records: usize) -> Self {
        self.batch = records;
        self
    }

    /// Sets the maximum time that a batch waits for more records while all workers are busy; the default is 1 s. An
    /// idle worker takes an incomplete batch at once.
    #[must_use]
    pub fn batch_wait(mut self, wait: Duration) -> Self {
        self.batch_wait = wait;
        self
    }

    /// Sets the maximum number of records in flight; the default is 100,000. All partitions share it equally, and a
    /// partition at its limit is paused. After a crash, fewer records than this are handled again.
    #[must_use]
    pub fn records_in_flight(mut self, records: usize) -> Self {
        self.records_in_flight = records;
        self
    }

    /// Sets the maximum memory of records in flight; the default is 64 MiB. All partitions share it equally. The
    /// client's prefetched records (`queued.max.messages.kbytes`) come on top.
    #[must_use]
    pub fn bytes_in_flight(mut self, bytes: usize) -> Self {
        self.bytes_in_flight = bytes;
        self
    }

    /// Sets how often finished records are committed. The default is 1 s, or `auto.commit.interval.ms` if that is
    /// shorter. When at least 1,000 records are finished, a commit follows 100 ms after the last one. After a crash,
    /// the records that were finished since the last commit are handled again.
    #[must_use]
    pub fn commit_interval(mut self, interval: Duration) -> Self {
        self.commit_interval = Some(interval);
        self
    }

    /// Sets how long handlers may take after their partition is revoked or the processor stops; the default is 10 s.
    /// In this time, running handlers end and the records before the last finished one are handled. Later results are
    /// dropped, and the partition's next owner handles the records again.
    #[must_use]
    pub fn drain(mut self, deadline: Duration) -> Self {
        self.drain = deadline;
        self
    }

    /// Sets the retries of failed records.
    #[must_use]
    pub fn retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }

    /// Sets the action for records whose retries are used up; the default is [`GiveUp::Stop`].
    #[must_use]
    pub fn give_up(mut self, give_up: GiveUp) -> Self {
        self.give_up = give_up;
        self
    }

    /// Pauses all handling for `pause` after this many consecutive failures. One trial then decides whether handling
    /// resumes.
    #[must_use]
    pub fn circuit_breaker(mut self, failures: u32, pause: Duration) -> Self {
        self.breaker = Some(BreakerSettings { failures, pause });
        self
    }

    /// Commits the outputs of handlers ([`Message::send`](crate::Message::send)) and the offsets of their input
    /// records in one transaction. The id must be unique to this process.
    #[must_use]
    pub fn exactly_once(mut self, transactional_id: &str) -> Self {
        self.exactly_once = Some(transactional_id.to_owned());
        self
    }

    /// Sets how long a transaction accepts new records; the default is 100 ms. It is committed when these are done.
    #[must_use]
    pub fn transaction(mut self, interval: Duration) -> Self {
        self.transaction = interval;
        self
    }

    /// Turns off tracking and commits, to measure their cost.
    #[doc(hidden)]
    #[must_use]
    pub fn untracked(mut self) -> Self {
        self.tracked = false;
        self
    }

    pub(crate) fn ordered(&self) -> Order {
        self.order.unwrap_or(if self.mode.is_multi() { Order::None } else { Order::Partition })
    }

    /// The longest time between commits of finished records.
    pub(crate) fn commits_every(&self) -> Duration {
        let default = self.config.auto_commit_interval.min(COMMIT_INTERVAL);
        self.commit_interval.unwrap_or(default)
    }

    pub(crate) fn workers_count(&self) -> usize {
        if self.mode.is_multi() { self.workers } else { 1 }
    }

    /// Sets the client properties that a processor needs.
    pub(crate) fn set_properties(&mut self) -> Result<(), Error> {
        self.config.set_all([("enable.auto.commit", "false"), ("enable.auto.offset.store", "false")])?;
        self.config.corrupt_returned = true;
        if let Some(id) = self.exactly_once.clone() {
            self.config.set_all([("transactional.id", &*id), ("isolation.level", "read_committed")])?;
        }
        Ok(())
    }

    pub(crate) fn check(&self, batches: bool) -> Result<(), Error> {
        let refuse = |text: &str| Err(Error::Config(text.into()));
        if self.topics.is_empty() {
            return refuse("no topic is configured");
        }
        if self.config.group_id.is_none() {
            return refuse("group.id is not set");
        }
        if self.mode.is_batch() != batches {
            let (takes, given) =
                if batches { ("single records", "batches") } else { ("batches", "single records") };
            return Err(Error::Config(format!(
                "mode {} delivers {takes}, the handler takes {given}",
                self.mode.name()
            )));
        }
        if [self.workers, self.queue, self.batch, self.records_in_flight, self.bytes_in_flight].contains(&0) {
            return refuse("workers, queue, batch and the in-flight limits must be above 0");
        }
        Ok(())
    }
}
