//! The settings of a processor.

use std::time::Duration;

use ottla_client::{Config, Rebalance};

use crate::core::breaker::BreakerSettings;
use crate::error::Error;
use crate::retry::Retry;

/// Default interval of commits, which bounds the records that are repeated after a crash. It is Sarama's.
const COMMIT_INTERVAL: Duration = Duration::from_secs(1);

/// Default of the maximum pause of the circuit breaker, as a multiple of the first: an outage of hours is probed every few minutes.
const BREAKER_PAUSE_GROWTH: u32 = 10;

/// Maximum wait of a fetch in a share group. A leader gets one request at a time, so acknowledgements and renewals of locks wait for
/// the end of a fetch.
const SHARE_FETCH_WAIT_MAX: Duration = Duration::from_millis(100);

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
    /// committed. A share group delivers it to another member.
    Stop,
    /// Write the record to this topic, with headers for the reason and its origin. The record is done when the write
    /// is acknowledged. The reason is cut off at 4 KiB. A dead letter above `message.max.bytes` loses the record's value, then
    /// its headers, then its key; the header `ottla.error.bytes` is the size of these three. If the write fails, the processor stops
    /// with [`Error::Output`].
    DeadLetter(String),
    /// Count the record as done and log a warning. In a share group, it is rejected.
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
    give_up: Option<GiveUp>,
    breaker: Option<(u32, Duration)>,
    breaker_pause_max: Option<Duration>,
    pub(crate) share: bool,
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
            give_up: None,
            breaker: None,
            breaker_pause_max: None,
            share: false,
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
    /// one record. Several records that are handled quickly form one item. Items that wait for an earlier one of their key do
    /// not count. With [`Order::Partition`], all partitions share the number equally, but each has up to 8 items.
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
    /// partition at its limit is paused. Records that are finished after an unfinished one do not count, but a crash repeats them:
    /// up to a million offsets of each partition.
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
    /// In this time, running handlers end, their outputs are written, and the records before the last finished one are handled.
    /// Those that wait for a retry are tried once, at once; one that fails again is left to the partition's next owner, and so are all
    /// of them while the circuit breaker is open.
    /// Later results are dropped, and the partition's next owner handles the records again.
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

    /// Sets the action for records whose retries are used up; the default is [`GiveUp::Stop`], and [`GiveUp::Skip`] in a
    /// share group.
    #[must_use]
    pub fn give_up(mut self, give_up: GiveUp) -> Self {
        self.give_up = Some(give_up);
        self
    }

    /// Reads the topics in the share group `group.id` (KIP-932) instead of a consumer group. The brokers deliver each
    /// record to one member, also of one partition, so there may be more processors than partitions.
    ///
    /// A record whose handler succeeds is accepted. A record that is given up is accepted once its dead letter is
    /// written, and rejected with [`GiveUp::Skip`]. Records that were not started are released when the processor stops
    /// or its circuit breaker opens. A record that the processor holds for longer than half of its acquisition lock is
    /// renewed, so that no other member gets it. A stuck handler therefore keeps its record until the process ends.
    ///
    /// The order is [`Order::None`] in all modes; others are refused, as are regular expressions for topics and
    /// [`Builder::exactly_once`]. [`Builder::commit_interval`] has no effect. The processor sets
    /// `share.acknowledgement.mode`, and lowers `fetch.wait.max.ms` to 100 ms. The group begins at its
    /// `share.auto.offset.reset`, which is `latest` by default. It archives a record after `share.delivery.count.limit`
    /// deliveries, each release counted.
    #[must_use]
    pub fn share_group(mut self) -> Self {
        self.share = true;
        self
    }

    /// Stops starting records after this many consecutive failures that a retry may resolve, for `pause`. One trial then
    /// decides whether handling resumes; after each trial that fails, the pause doubles, up to
    /// [`Builder::circuit_breaker_pause_max`]. A trial ends at the first failure. Without this setting there is no breaker. In a
    /// share group, records that were not started are released for other members meanwhile, and none are fetched; those that wait
    /// for a retry stay.
    #[must_use]
    pub fn circuit_breaker(mut self, failures: u32, pause: Duration) -> Self {
        self.breaker = Some((failures, pause));
        self
    }

    /// Sets the maximum pause of the circuit breaker; the default is ten times its first pause.
    #[must_use]
    pub fn circuit_breaker_pause_max(mut self, pause: Duration) -> Self {
        self.breaker_pause_max = Some(pause);
        self
    }

    /// Commits the outputs of handlers ([`Message::send`](crate::Message::send)) and the offsets of their input
    /// records in one transaction. The id must be unique to this process.
    ///
    /// A transaction whose records are not done after two thirds of `transaction.timeout.ms` is aborted, and its records are handled
    /// again, with their first attempt. Set this property to more than a record takes with all its retries.
    #[must_use]
    pub fn exactly_once(mut self, transactional_id: &str) -> Self {
        self.exactly_once = Some(transactional_id.to_owned());
        self
    }

    /// Sets how long a transaction accepts new records; the default is 100 ms, and the maximum a third of
    /// `transaction.timeout.ms`. It is committed when these are done.
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
        let has_order = !self.share && !self.mode.is_multi();
        self.order.unwrap_or(if has_order { Order::Partition } else { Order::None })
    }

    pub(crate) fn gives_up(&self) -> GiveUp {
        self.give_up.clone().unwrap_or(if self.share { GiveUp::Skip } else { GiveUp::Stop })
    }

    pub(crate) fn breaker_settings(&self) -> Option<BreakerSettings> {
        let (failures, pause) = self.breaker?;
        let pause_max = self.breaker_pause_max.unwrap_or(pause.saturating_mul(BREAKER_PAUSE_GROWTH));
        Some(BreakerSettings { failures, pause, pause_max })
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
        // Records of a partition follow the event that assigns it, and its revocation waits for the drain.
        self.config.rebalance = Rebalance::Polled;
        if self.share {
            self.config.set("share.acknowledgement.mode", "explicit")?;
            self.config.fetch_wait_max = self.config.fetch_wait_max.min(SHARE_FETCH_WAIT_MAX);
        }
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
        if let Some((0, _)) = self.breaker {
            return refuse("the circuit breaker needs at least one failure");
        }
        if let (Some((_, pause)), Some(pause_max)) = (self.breaker, self.breaker_pause_max)
            && pause_max < pause
        {
            return refuse("the maximum pause of the circuit breaker is shorter than its first pause");
        }
        if self.share { self.check_share() } else { Ok(()) }
    }

    fn check_share(&self) -> Result<(), Error> {
        if let Some(order) = self.order.filter(|order| *order != Order::None) {
            return Err(Error::Config(format!(
                "a share group has no order: Order::{order:?} is not possible, only Order::None"
            )));
        }
        if self.exactly_once.is_some() {
            return Err(Error::Config(
                "a share group commits no offsets: exactly_once needs a consumer group".into(),
            ));
        }
        if let Some(topic) = self.topics.iter().find(|topic| topic.starts_with('^')) {
            return Err(Error::Config(format!(
                "a share group takes names of topics, not the regular expression `{topic}`"
            )));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without events, an exactly-once processor dropped all records. With [`Rebalance::Application`], none had partitions.
    #[test]
    fn a_processor_takes_its_assignment_at_polls_whatever_is_configured() {
        for rebalance in [Rebalance::Silent, Rebalance::Application] {
            let mut config = Config::new("localhost:9092");
            config.rebalance = rebalance;
            let mut builder = Builder::new(config, Mode::Sync);
            builder.set_properties().expect("valid properties");
            assert_eq!(builder.config.rebalance, Rebalance::Polled);
        }
    }
}
