//! The consumer.

mod batch;
mod control;
pub(crate) mod offsets;
mod opened;
mod queue;
mod reader;
mod stream;
mod view;

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

pub use self::batch::{Batch, BatchIter, CorruptBatch, Cut, Position};
pub use self::control::{Asked, Committing, ConsumerControl};
pub(crate) use self::control::{Change, Control, Own};
pub use self::offsets::OffsetAndMetadata;
pub use self::queue::PartitionQueue;
use self::reader::Reader;
pub use self::view::{Next, RecordView, Taken};
use crate::blocking;
use crate::client::Client;
use crate::cluster::Cluster;
use crate::config::Config;
use crate::error::Error;
pub use crate::fetch::cursor::StartAt;
use crate::fetch::inbox::{Enough, Inbox};
use crate::fetch::queue::Queue;
use crate::group::polls::Polls;
use crate::timer;
use crate::topic_name::check_all;

/// A batch that is given to the application is closed when it has decompressed so much: the rest of the response waits
/// compressed.
const DECOMPRESSED_BYTES_ENOUGH: usize = 1 << 20;

/// A topic and one of its partitions.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct TopicPartition {
    /// Topic.
    pub topic: Arc<str>,
    /// Partition.
    pub partition: i32,
}

impl TopicPartition {
    /// Partition `partition` of `topic`.
    pub fn new(topic: &str, partition: i32) -> Self {
        Self { topic: topic.into(), partition }
    }
}

impl std::fmt::Display for TopicPartition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.topic, self.partition)
    }
}

/// What happened to the assignment.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// The group gave these partitions to this member.
    Assigned(Vec<TopicPartition>),
    /// The group takes these partitions back; what was processed of them is committed first.
    Revoked(Vec<TopicPartition>),
    /// The partitions are already somebody else's: this member was out of the group for too long.
    Lost(Vec<TopicPartition>),
    /// Everything that is in this partition was given (`enable.partition.eof`); it is told again after each time that
    /// more has come.
    EndOfPartition {
        /// Which partition.
        at: TopicPartition,
        /// The offset of the next record, once there is one.
        offset: i64,
    },
}

/// What a poll returns.
#[derive(Debug)]
#[non_exhaustive]
pub enum Polled {
    /// Records of one partition, in order.
    Records(Batch),
    /// A change of the assignment.
    Event(Event),
    /// A batch that cannot be decoded, if [`Config::corrupt_handed_out`](crate::Config::corrupt_handed_out) asks for such.
    Corrupt(CorruptBatch),
}

/// The offsets between which a partition can be read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Watermarks {
    /// The oldest record's.
    pub low: i64,
    /// The one after the newest record that is replicated: the high watermark.
    pub high: i64,
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
/// What needs no `&mut self` stands in [`ConsumerControl`], which other threads can have a clone of.
#[derive(Debug)]
pub struct Consumer {
    control: ConsumerControl,
    reader: Reader,
    /// The last poll returned a revocation: the next one says that it has been dealt with.
    revoked: bool,
    listener: Option<Listener>,
}

/// What [`Consumer::on_rebalance`] was given.
struct Listener(Box<dyn FnMut(&Event) + Send>);

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Listener")
    }
}

impl Consumer {
    /// A consumer with a client, and so an engine thread, of its own.
    pub fn new(config: Config) -> Result<Self, Error> {
        Ok(Self::of(&Client::new(config)?))
    }

    /// A consumer on a client that exists.
    pub fn of(client: &Client) -> Self {
        let config = client.config().clone();
        // Who says how many records are to wait gets them, whatever they weigh.
        let bytes = if config.is_set("queued.min.messages") { usize::MAX } else { Enough::BYTES };
        let enough = Enough { records: config.queued_records_enough, bytes };
        let inbox = Inbox::new(config.queued_bytes_max, enough);
        let (control, receiver) = mpsc::unbounded_channel();
        let polls = Arc::<Polls>::default();
        let (at_engine, of_engine) = (inbox.clone(), polls.clone());
        client.start(|cluster: Rc<Cluster>| crate::group::run(cluster, at_engine, of_engine, receiver));
        let control = ConsumerControl { client: client.clone(), config, inbox, sender: control };
        let reader = Reader::new(Queue::main(&control.inbox), control.reading(), Some(polls));
        Self { control, reader, revoked: false, listener: None }
    }

    /// Consumes these partitions, each from where it says, instead of whatever was assigned before. No group takes
    /// part, but with a `group.id` positions can be committed.
    pub async fn assign(&mut self, partitions: &[(TopicPartition, StartAt)]) -> Result<(), Error> {
        check_all(partitions.iter().map(|(at, _)| &*at.topic))?;
        self.reader.forget_handed_out(None);
        self.control.assign(partitions).await
    }

    /// Joins the group `group.id` for these topics; the assignment comes as [`Event::Assigned`] from a later poll.
    ///
    /// A topic that begins with `^` is a regular expression: it stands for all topics in whose name it finds a match,
    /// also for those that come later. A consumer that is in the group already stays in it and changes its topics.
    ///
    /// # Errors
    /// [`Error::Config`] without a `group.id`, for what is no regular expression, and for a name that no topic can have. What goes wrong with the group
    /// later comes from [`Consumer::poll`].
    pub async fn subscribe(&mut self, topics: &[&str]) -> Result<(), Error> {
        check_all(topics.iter().copied().filter(|topic| !topic.starts_with('^')))?;
        self.control.subscribe(topics).await
    }

    /// Commits what is done if `enable.auto.commit` is on, gives all partitions up and leaves the group, all within
    /// `timeout`. A static member (`group.instance.id`) does not leave: it keeps its place until its session runs out.
    ///
    /// # Errors
    /// What the commit met with; the partitions are given up all the same.
    pub async fn unsubscribe(&mut self, timeout: Duration) -> Result<(), Error> {
        self.reader.finish_handed_out();
        let leaving = self.control.unsubscribe(timeout);
        timer::timeout(timeout, leaving).await.unwrap_or_else(|| {
            Err(Error::TimedOut { what: "leaving the group".into(), waited_ms: timeout.as_millis() })
        })
    }

    /// Calls `listener` with each change of the assignment, in the thread that polls and before that poll returns the
    /// same as a value.
    pub fn on_rebalance(&mut self, listener: impl FnMut(&Event) + Send + 'static) {
        self.listener = Some(Listener(Box::new(listener)));
    }

    /// The next records or the next change of the assignment; `None` when `timeout` passes first.
    ///
    /// Asking for more says that what was returned before is done: it may be committed from now on.
    ///
    /// # Errors
    /// What stops a partition (its cursor stays where it is) or the group. Cancel safe: nothing is lost when the
    /// future is dropped.
    pub async fn poll(&mut self, timeout: Duration) -> Result<Option<Polled>, Error> {
        self.begin_poll();
        let polled = self.reader.poll(timeout).await;
        self.note(&polled);
        polled
    }

    /// [`Consumer::poll`] for threads without a runtime.
    pub fn poll_blocking(&mut self, timeout: Duration) -> Result<Option<Polled>, Error> {
        self.begin_poll();
        let polled = self.reader.poll_blocking(timeout);
        self.note(&polled);
        polled
    }

    /// Whoever asks for more is there, and done with what was returned before, be it a revocation.
    #[inline]
    fn begin_poll(&mut self) {
        self.reader.begin();
        if std::mem::take(&mut self.revoked) {
            let _ = self.control.sender.send(Control::RevokeSeen);
        }
    }

    fn note(&mut self, polled: &Result<Option<Polled>, Error>) {
        if let Ok(Some(Polled::Event(event))) = polled {
            self.note_event(event);
        }
    }

    fn note_event(&mut self, event: &Event) {
        self.revoked = matches!(event, Event::Revoked(_));
        if let Some(Listener(listener)) = &mut self.listener {
            listener(event);
        }
    }

    /// Commits the offsets of everything that is done: all that polls returned before the last one, and that one too.
    ///
    /// # Errors
    /// The broker's refusal, for one when the partitions are no longer this member's.
    pub async fn commit(&mut self) -> Result<(), Error> {
        self.reader.finish_handed_out();
        self.control.begin_commit(None).await
    }

    /// Goes on elsewhere in a partition; what was fetched of it is thrown away.
    pub async fn seek(&mut self, partition: &TopicPartition, to: StartAt) -> Result<(), Error> {
        self.reader.forget_handed_out(Some(partition));
        self.control.seek(partition, to).await
    }

    /// Says that everything before `next` is done, instead of all that the last poll returned: for those who stop in
    /// the middle of a batch.
    pub fn done_until(&mut self, partition: &TopicPartition, next: i64) {
        self.reader.forget_handed_out(Some(partition));
        if let Some(place) = self.control.inbox.place(partition) {
            place.finish(next);
        }
    }

    /// Commits what is done if `enable.auto.commit` is on, leaves the group, and stops; all within `timeout`.
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
    /// A handle for other threads.
    pub fn control(&self) -> &ConsumerControl {
        &self.control
    }
}

impl std::ops::Deref for Consumer {
    type Target = ConsumerControl;

    fn deref(&self) -> &ConsumerControl {
        &self.control
    }
}
