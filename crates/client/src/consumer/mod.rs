//! The consumer.

mod batch;
mod control;
mod delegates;
mod held;
pub(crate) mod offsets;
pub(crate) mod open_chunk;
mod queue;
mod reader;
mod stream;
mod view;

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

pub use self::batch::{Batch, BatchIter, BatchPosition, BatchViews, CorruptBatch, SplitBatch};
pub use self::control::{ConsumerControl, EngineReply, PendingCommit};
pub use self::held::HeldRecords;
pub use self::queue::PartitionQueue;
use self::reader::Reader;
pub use self::view::{PolledHeld, PolledRecord, PolledRecords, RecordView};
use crate::blocking;
use crate::client::Client;
use crate::cluster::Cluster;
use crate::config::Config;
use crate::error::Error;
use crate::fetch::inbox::{Inbox, PrefetchLimit};
use crate::fetch::queue::Queue;
use crate::group::commands::ConsumerCommand;
use crate::group::poll_activity::PollActivity;
use crate::stats::polls::PollTimes;
use crate::stats::pushed::Role;
use crate::timer;
use crate::types::topic_name::check_all;
pub use crate::types::{Event, OffsetAndMetadata, StartAt, TopicPartition, Watermarks};

/// A batch for the application ends after this many decompressed bytes; the rest of the response waits compressed.
const DECOMPRESSED_BYTES_ENOUGH: usize = 1 << 20;

/// The result of a poll.
#[derive(Debug)]
#[non_exhaustive]
pub enum Polled {
    /// Records of one partition, in order.
    Records(Batch),
    /// A change of the assignment.
    Event(Event),
    /// A batch that cannot be decoded, if [`Config::corrupt_returned`](crate::Config::corrupt_returned) is set.
    Corrupt(CorruptBatch),
}

/// Reads records, alone or in a group.
///
/// ```
/// use std::time::Duration;
/// use ottla_client::{Config, Consumer, Polled, Producer, Record};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), ottla_client::Error> {
/// # let broker = ottla_broker::Broker::builder().memory().spawn().expect("a broker in memory");
/// let mut config = Config::new(broker.bootstrap_servers());
/// config.set("group.id", "billing")?;
/// config.set("auto.offset.reset", "earliest")?;
/// let producer = Producer::new(config.clone())?;
/// producer.send(Record::to("orders").value("paid")).await?;
///
/// let mut consumer = Consumer::new(config)?;
/// consumer.subscribe(&["orders"]).await?;
/// let value = loop {
///     if let Some(Polled::Records(batch)) = consumer.poll(Duration::from_secs(10)).await? {
///         break batch.to_owned_records()?[0].value.clone();
///     }
/// };
/// assert_eq!(value.as_deref(), Some(&b"paid"[..]));
/// consumer.commit().await?;
/// consumer.close(Duration::from_secs(5)).await?;
/// # Ok(())
/// # }
/// ```
///
/// Other threads use a clone of its [`ConsumerControl`], which has the methods that need no `&mut self`.
#[derive(Debug)]
pub struct Consumer {
    control: ConsumerControl,
    reader: Reader,
    listener: Option<Listener>,
}

/// The callback of [`Consumer::on_rebalance`].
struct Listener(Box<dyn FnMut(&Event) + Send>);

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Listener")
    }
}

impl Client {
    /// Creates a consumer that shares this client's engine thread and connections.
    pub fn consumer(&self) -> Consumer {
        let config = self.config().clone();
        // An explicit number of records to fetch ahead applies without a limit in bytes.
        let bytes = if config.is_set("queued.min.messages") { usize::MAX } else { PrefetchLimit::BYTES };
        let limit = PrefetchLimit { records: config.queued_min_messages, bytes };
        let inbox = Inbox::new(config.queued_max_messages_bytes, limit);
        let (control, receiver) = mpsc::unbounded_channel();
        let polls = Arc::new(PollActivity::new(Instant::now()));
        let observer = &self.produce().observer;
        observer.has_role(Role::Consumer);
        let watched: Arc<dyn PollTimes> = polls.clone();
        observer.follow_polls(Arc::downgrade(&watched));
        let (at_engine, of_engine) = (inbox.clone(), polls.clone());
        self.start(|cluster: Rc<Cluster>| {
            let observer = cluster.observer.clone();
            observer.watched("consumer", crate::group::run(cluster, at_engine, of_engine, receiver))
        });
        let control = ConsumerControl { client: self.clone(), config, inbox, polls, sender: control };
        let reader = Reader::new(Queue::main(&control.inbox), &control);
        Consumer { control, reader, listener: None }
    }
}

impl Consumer {
    /// Creates a consumer with its own client and engine thread.
    pub fn new(config: Config) -> Result<Self, Error> {
        Ok(Client::new(config)?.consumer())
    }

    /// Replaces the assignment with these partitions, each from its position. The consumer joins no group, but with a
    /// `group.id` it can commit offsets. A member of a group finishes the commits that were begun before, and leaves the group.
    pub async fn assign(&mut self, partitions: &[(TopicPartition, StartAt)]) -> Result<(), Error> {
        check_all(partitions.iter().map(|(at, _)| &*at.topic))?;
        self.reader.forget_handed_out(None);
        self.control.assign(partitions).await
    }

    /// Joins the group `group.id` for these topics; the assignment comes as [`Event::Assigned`] from a later poll.
    ///
    /// A topic that begins with `^` is a regular expression. It matches all topics whose name contains a match, including
    /// future ones. A consumer that is in the group already stays in it and changes its topics. Without topics, the call is
    /// [`Consumer::unsubscribe`] with a timeout of 60 seconds.
    ///
    /// # Errors
    /// [`Error::Config`] without a `group.id`, for an invalid regular expression, and for an invalid topic name.
    /// [`Consumer::poll`] returns later errors of the group.
    pub async fn subscribe(&mut self, topics: &[&str]) -> Result<(), Error> {
        check_all(topics.iter().copied().filter(|topic| !topic.starts_with('^')))?;
        if topics.is_empty() && self.control.config.group_id.is_some() {
            self.reader.finish_handed_out();
        }
        self.control.subscribe(topics).await
    }

    /// Finishes the commits that were begun before, commits processed offsets if `enable.auto.commit` is on, gives up all
    /// partitions and leaves the group, within `timeout`. A static member (`group.instance.id`) does not leave: it stays a member
    /// until its session times out. Under [`Rebalance::Application`](crate::Rebalance::Application), it returns at once: the
    /// application gives up its partitions after the next poll's [`Event::Revoked`].
    ///
    /// # Errors
    /// The error of the commit; the partitions are given up nevertheless.
    pub async fn unsubscribe(&mut self, timeout: Duration) -> Result<(), Error> {
        self.reader.finish_handed_out();
        let leaving = self.control.unsubscribe(timeout);
        timer::timeout(timeout, leaving).await.unwrap_or_else(|| {
            Err(Error::TimedOut { what: "leaving the group".into(), waited_ms: timeout.as_millis() })
        })
    }

    /// Calls `listener` with each change of the assignment, in the polling thread, before that poll returns the event.
    pub fn on_rebalance(&mut self, listener: impl FnMut(&Event) + Send + 'static) {
        self.listener = Some(Listener(Box::new(listener)));
    }

    /// Returns the next records or the next change of the assignment; `None` after `timeout`.
    ///
    /// A poll marks the records of the previous one as processed, so that they can be committed.
    ///
    /// # Errors
    /// The error that stops a partition, whose position stays, or the group. Cancel safe: a dropped future loses nothing.
    pub async fn poll(&mut self, timeout: Duration) -> Result<Option<Polled>, Error> {
        self.reader.begin();
        let polled = self.reader.poll(timeout).await;
        self.note(&polled);
        polled
    }

    /// [`Consumer::poll`] for threads without a runtime.
    pub fn poll_blocking(&mut self, timeout: Duration) -> Result<Option<Polled>, Error> {
        self.reader.begin();
        let polled = self.reader.poll_blocking(timeout);
        self.note(&polled);
        polled
    }

    fn note(&mut self, polled: &Result<Option<Polled>, Error>) {
        if let Ok(Some(Polled::Event(event))) = polled {
            self.note_event(event);
        }
    }

    fn note_event(&mut self, event: &Event) {
        if let Some(Listener(listener)) = &mut self.listener {
            listener(event);
        }
    }

    /// Commits the offsets of all records that polls have returned, including the last poll.
    ///
    /// # Errors
    /// The broker's error, for example when the partitions are no longer assigned to this member.
    pub async fn commit(&mut self) -> Result<(), Error> {
        self.reader.finish_handed_out();
        self.control.begin_commit(None).await
    }

    /// Continues a partition at another position, and drops its fetched records.
    ///
    /// # Errors
    /// [`Error::NotAssigned`], also for a partition that is being revoked, or whose loss no poll has returned yet.
    pub async fn seek(&mut self, partition: &TopicPartition, to: StartAt) -> Result<(), Error> {
        self.reader.forget_handed_out(Some(partition));
        self.control.seek(partition, to).await
    }

    /// Marks only the records before `next` as processed, instead of all that the last poll returned: for applications that
    /// stop in the middle of a batch. Has no effect on a partition whose loss no poll has returned yet.
    pub fn done_until(&mut self, partition: &TopicPartition, next: i64) {
        self.reader.forget_handed_out(Some(partition));
        if let Some(progress) = self.control.known_progress(partition) {
            progress.set_done(next);
        }
    }

    /// Finishes the commits that were begun before, commits processed offsets if `enable.auto.commit` is on, leaves the group, and
    /// stops, within `timeout`.
    pub async fn close(mut self, timeout: Duration) -> Result<(), Error> {
        self.reader.finish_handed_out();
        let closing = self.control.close(timeout);
        timer::timeout(timeout, closing).await.unwrap_or_else(|| {
            Err(Error::TimedOut { what: "closing the consumer".into(), waited_ms: timeout.as_millis() })
        })
    }

    /// [`Consumer::close`] for threads without a runtime.
    pub fn close_blocking(mut self, timeout: Duration) -> Result<(), Error> {
        self.reader.finish_handed_out();
        let closing = self.control.close(timeout);
        blocking::block_on(timeout, closing).unwrap_or_else(|| {
            Err(Error::TimedOut { what: "closing the consumer".into(), waited_ms: timeout.as_millis() })
        })
    }
}

impl Consumer {
    /// Returns the handle for other threads.
    pub fn control(&self) -> &ConsumerControl {
        &self.control
    }
}
