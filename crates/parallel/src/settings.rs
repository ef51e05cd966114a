//! How a processor works.

use std::time::Duration;

use ottla_client::Config;

use crate::core::breaker::BreakerSettings;
use crate::error::Error;
use crate::retry::Retry;

/// One of the four ways to consume.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mode {
    /// One by one, each partition in order, by one worker.
    Sync,
    /// In batches, by one worker: when so many records are there, or when the first has waited for so long.
    Batch,
    /// One by one, fanned out to several workers.
    MultiAsync,
    /// In batches, fanned out to several workers.
    MultiBatch,
}

impl Mode {
    /// All four.
    pub const ALL: [Self; 4] = [Self::Sync, Self::Batch, Self::MultiAsync, Self::MultiBatch];

    /// Its name: `sync`, `batch`, `multi-async`, `multi-batch`.
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

/// What is handled in the order in which it was written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Order {
    /// Nothing: any record goes to any worker.
    None,
    /// The records of each partition: never more workers at once than partitions.
    Partition,
    /// The records of each key: as many workers as there are keys. Records without a key go to any worker.
    Key,
}

/// What becomes of a record that is given up, and of a batch that cannot be decoded.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum GiveUp {
    /// The processor stops with [`Error::Record`], or with [`Error::Client`] if it is no record; it is not committed.
    Stop,
    /// It is written to this topic, with headers that say why and from where, and is done when that is acknowledged.
    DeadLetter(String),
    /// It counts as done, and a line in the log says so.
    Skip,
}

/// What a processor is built of; see [`Processor::builder`](crate::Processor::builder).
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
            drain: Duration::from_secs(10),
            retry: Retry::default(),
            give_up: GiveUp::Stop,
            breaker: None,
            exactly_once: None,
            transaction: Duration::from_millis(100),
            tracked: true,
        }
    }

    /// The topics, as for [`Consumer::subscribe`](ottla_client::Consumer::subscribe).
    #[must_use]
    pub fn topics<T: Into<String>>(mut self, topics: impl IntoIterator<Item = T>) -> Self {
        self.topics = topics.into_iter().map(Into::into).collect();
        self
    }

    /// What is handled in order. Without it [`Order::Partition`] with one worker, [`Order::None`] with several.
    #[must_use]
    pub fn order(mut self, order: Order) -> Self {
        self.order = Some(order);
        self
    }

    /// How many handlers run at once in the modes that fan out, by default 8: threads, or futures if the handler is async.
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = workers;
        self
    }

    /// How many pieces of work wait for a worker at most, by default 1000. A piece is a batch, or one record as long as
    /// records take long; of records that are handled in no time one piece has many.
    #[must_use]
    pub fn queue(mut self, pieces: usize) -> Self {
        self.queue = pieces;
        self
    }

    /// How many records a batch has at most, by default 1000.
    #[must_use]
    pub fn batch(mut self, records: usize) -> Self {
        self.batch = records;
        self
    }

    /// How long a batch waits for more records, by default 1 s.
    #[must_use]
    pub fn batch_wait(mut self, wait: Duration) -> Self {
        self.batch_wait = wait;
        self
    }

    /// How many records are under way at most, by default 100,000, shared out evenly among the partitions: one that is at
    /// its limit is paused. What a process that dies has to be handled again is less than that.
    #[must_use]
    pub fn records_in_flight(mut self, records: usize) -> Self {
        self.records_in_flight = records;
        self
    }

    /// How much memory records under way take at most, by default 64 MiB, shared out in the same way. Beside it the client
    /// keeps what it has fetched ahead (`queued.max.messages.kbytes`).
    #[must_use]
    pub fn bytes_in_flight(mut self, bytes: usize) -> Self {
        self.bytes_in_flight = bytes;
        self
    }

    /// How long records that are being handled have when their partition is taken back or the processor stops, by default
    /// 10 s. What comes later is dropped, and handled again by who has the partition then.
    #[must_use]
    pub fn drain(mut self, deadline: Duration) -> Self {
        self.drain = deadline;
        self
    }

    /// What becomes of records whose handler failed.
    #[must_use]
    pub fn retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }

    /// What becomes of records that have failed too often. Without it the processor stops.
    #[must_use]
    pub fn give_up(mut self, give_up: GiveUp) -> Self {
        self.give_up = give_up;
        self
    }

    /// After so many failures in a row nothing is handled for `pause`; then one record is tried, and its outcome decides.
    #[must_use]
    pub fn circuit_breaker(mut self, failures: u32, pause: Duration) -> Self {
        self.breaker = Some(BreakerSettings { failures, pause });
        self
    }

    /// What handlers [send](crate::Message::send) and the offsets of what they handled are committed in one transaction,
    /// or not at all. The id must be this process's alone.
    #[must_use]
    pub fn exactly_once(mut self, transactional_id: &str) -> Self {
        self.exactly_once = Some(transactional_id.to_owned());
        self
    }

    /// How long a transaction takes in new records, by default 100 ms; then it ends as soon as they are done.
    #[must_use]
    pub fn transaction(mut self, interval: Duration) -> Self {
        self.transaction = interval;
        self
    }

    /// Nothing is tracked and nothing is committed: what tracking costs is the difference to this.
    #[doc(hidden)]
    #[must_use]
    pub fn untracked(mut self) -> Self {
        self.tracked = false;
        self
    }

    pub(crate) fn ordered(&self) -> Order {
        self.order.unwrap_or(if self.mode.is_multi() { Order::None } else { Order::Partition })
    }

    pub(crate) fn workers_count(&self) -> usize {
        if self.mode.is_multi() { self.workers } else { 1 }
    }

    pub(crate) fn check(&self, batches: bool) -> Result<(), Error> {
        let refuse = |text: &str| Err(Error::Config(text.into()));
        if self.topics.is_empty() {
            return refuse("no topic is named");
        }
        if self.config.group_id.is_none() {
            return refuse("group.id is not set");
        }
        if self.mode.is_batch() != batches {
            let (takes, given) =
                if batches { ("records one by one", "batches") } else { ("batches", "records") };
            return Err(Error::Config(format!(
                "mode {} hands out {takes}, the handler takes {given}",
                self.mode.name()
            )));
        }
        if [self.workers, self.queue, self.batch, self.records_in_flight, self.bytes_in_flight].contains(&0) {
            return refuse("workers, queue, batch and the limits of what is in flight must be above 0");
        }
        Ok(())
    }
}
