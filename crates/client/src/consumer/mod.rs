//! The consumer.

mod batch;
pub(crate) mod offsets;
mod opened;
mod queue;
mod reader;
mod stream;
mod view;

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

pub use self::batch::{Batch, BatchIter, Cut, Position};
pub use self::offsets::{Committing, OffsetAndMetadata};
use self::opened::Reading;
pub use self::queue::PartitionQueue;
use self::reader::Reader;
pub use self::view::{Next, RecordView};
use crate::blocking;
use crate::client::Client;
use crate::cluster::Cluster;
use crate::config::{Config, Isolation};
use crate::error::Error;
pub use crate::fetch::cursor::StartAt;
use crate::fetch::inbox::{Enough, Inbox};
use crate::fetch::queue::Queue;
use crate::group::polls::Polls;
use crate::group::subscription::Subscription;
use crate::transaction::GroupMetadata;

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
#[derive(Debug)]
pub struct Consumer {
    client: Client,
    config: Arc<Config>,
    inbox: Arc<Inbox>,
    control: mpsc::UnboundedSender<Control>,
    reader: Reader,
    /// The last poll returned a revocation: the next one says that it has been dealt with.
    revoked: bool,
    listener: Option<Listener>,
}

/// What the application asks of the consumer's tasks in the engine.
pub(crate) enum Control {
    Assign(Vec<(TopicPartition, StartAt)>, oneshot::Sender<Result<(), Error>>),
    Subscribe(Subscription, oneshot::Sender<Result<(), Error>>),
    Unsubscribe(Duration, oneshot::Sender<Result<(), Error>>),
    Start(TopicPartition, StartAt, oneshot::Sender<Result<(), Error>>),
    Stop(TopicPartition, oneshot::Sender<Result<(), Error>>),
    Seek(TopicPartition, StartAt, oneshot::Sender<Result<(), Error>>),
    Pause(Vec<TopicPartition>, bool),
    Commit(oneshot::Sender<Result<(), Error>>),
    CommitOffsets(BTreeMap<TopicPartition, OffsetAndMetadata>, oneshot::Sender<Result<(), Error>>),
    GroupMetadata(oneshot::Sender<Result<GroupMetadata, Error>>),
    Committed(Vec<TopicPartition>, oneshot::Sender<Result<BTreeMap<TopicPartition, i64>, Error>>),
    /// The application came back after a revocation: what it had in hand is done.
    RevokeSeen,
    Close(Duration, oneshot::Sender<Result<(), Error>>),
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
        let reading = Reading {
            config: config.clone(),
            budget: inbox.budget.clone(),
            observer: client.produce().observer.clone(),
        };
        let reader = Reader::new(Queue::main(&inbox), reading, Some(polls));
        Self { client: client.clone(), config, inbox, control, reader, revoked: false, listener: None }
    }

    /// Consumes these partitions, each from where it says, instead of whatever was assigned before. No group takes
    /// part, but with a `group.id` positions can be committed.
    pub async fn assign(&mut self, partitions: &[(TopicPartition, StartAt)]) -> Result<(), Error> {
        self.reader.forget_handed_out(None);
        self.ask(|answer| Control::Assign(partitions.to_vec(), answer)).await
    }

    /// Joins the group `group.id` for these topics; the assignment comes as [`Event::Assigned`] from a later poll.
    ///
    /// A topic that begins with `^` is a regular expression: it stands for all topics in whose name it finds a match,
    /// also for those that come later. A consumer that is in the group already stays in it and changes its topics.
    ///
    /// # Errors
    /// [`Error::Config`] without a `group.id`, and for what is no regular expression. What goes wrong with the group
    /// later comes from [`Consumer::poll`].
    pub async fn subscribe(&mut self, topics: &[&str]) -> Result<(), Error> {
        if self.config.group_id.is_none() {
            return Err(Error::Config("subscribe needs group.id".into()));
        }
        let subscription = Subscription::parse(topics)?;
        self.ask(|answer| Control::Subscribe(subscription, answer)).await
    }

    /// Commits what is done if `enable.auto.commit` is on, gives all partitions up and leaves the group, all within
    /// `timeout`. A static member (`group.instance.id`) does not leave: it keeps its place until its session runs out.
    ///
    /// # Errors
    /// What the commit met with; the partitions are given up all the same.
    pub async fn unsubscribe(&mut self, timeout: Duration) -> Result<(), Error> {
        self.reader.finish_handed_out();
        let leaving = self.ask(|answer| Control::Unsubscribe(timeout, answer));
        tokio::time::timeout(timeout, leaving).await.unwrap_or_else(|_| {
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
            let _ = self.control.send(Control::RevokeSeen);
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
        self.ask(Control::Commit).await
    }

    /// The group's committed offsets of these partitions; those without one are missing in the answer.
    pub async fn committed(
        &self,
        partitions: &[TopicPartition],
    ) -> Result<BTreeMap<TopicPartition, i64>, Error> {
        self.ask(|answer| Control::Committed(partitions.to_vec(), answer)).await
    }

    /// What this consumer is in its group at this moment, for [`Producer::send_offsets_to_transaction`].
    ///
    /// # Errors
    /// [`Error::Config`] without a `group.id`.
    ///
    /// [`Producer::send_offsets_to_transaction`]: crate::Producer::send_offsets_to_transaction
    pub async fn group_metadata(&self) -> Result<GroupMetadata, Error> {
        self.ask(Control::GroupMetadata).await
    }

    /// Goes on elsewhere in a partition; what was fetched of it is thrown away.
    pub async fn seek(&mut self, partition: &TopicPartition, to: StartAt) -> Result<(), Error> {
        self.reader.forget_handed_out(Some(partition));
        self.ask(|answer| Control::Seek(partition.clone(), to, answer)).await
    }

    /// Says that everything before `next` is done, instead of all that the last poll returned: for those who stop in
    /// the middle of a batch.
    pub fn done_until(&mut self, partition: &TopicPartition, next: i64) {
        self.reader.forget_handed_out(Some(partition));
        if let Some(place) = self.inbox.place(partition) {
            place.finish(next);
        }
    }

    /// Stops fetching these partitions, and gives nothing more of them: what was fetched before is kept for
    /// [`Consumer::resume`].
    pub fn pause(&self, partitions: &[TopicPartition]) {
        self.set_paused(partitions, true);
    }

    /// Goes on with these partitions, first with what was fetched before they were paused.
    pub fn resume(&self, partitions: &[TopicPartition]) {
        self.set_paused(partitions, false);
    }

    fn set_paused(&self, partitions: &[TopicPartition], paused: bool) {
        for at in partitions {
            self.inbox.pause(at, paused);
        }
        let _ = self.control.send(Control::Pause(partitions.to_vec(), paused));
    }

    /// The offset after the last record that is done, by partition.
    pub fn positions(&self) -> BTreeMap<TopicPartition, i64> {
        let places = self.inbox.places();
        places.iter().filter_map(|place| Some((place.at.clone(), place.done()?))).collect()
    }

    /// The offset of the next record that a poll gives of this partition; `None` if it is not assigned, or if that is
    /// still being found out.
    pub fn position(&self, partition: &TopicPartition) -> Option<i64> {
        self.inbox.place(partition)?.position()
    }

    /// Where this partition begins and ends, as the last fetch said it; `None` before the first.
    pub fn watermarks(&self, partition: &TopicPartition) -> Option<Watermarks> {
        let ends = self.inbox.place(partition)?.ends();
        (ends.high_watermark >= 0).then_some(Watermarks { low: ends.log_start, high: ends.high_watermark })
    }

    /// How many offsets lie between what was handed out and the partition's end, as far as it is known.
    pub fn lag(&self, partition: &TopicPartition) -> Option<i64> {
        let place = self.inbox.place(partition)?;
        let ends = place.ends();
        let end = match self.config.isolation {
            Isolation::ReadCommitted => ends.last_stable,
            Isolation::ReadUncommitted => ends.high_watermark,
        };
        (end >= 0).then_some((end - place.position()?).max(0))
    }

    /// Commits what is done if `enable.auto.commit` is on, leaves the group, and stops; all within `timeout`.
    pub async fn close(mut self, timeout: Duration) -> Result<(), Error> {
        self.reader.finish_handed_out();
        let closing = self.ask(|answer| Control::Close(timeout, answer));
        tokio::time::timeout(timeout, closing).await.unwrap_or_else(|_| {
            Err(Error::TimedOut { what: "closing the consumer".into(), waited_ms: timeout.as_millis() })
        })
    }

    /// [`Consumer::close`] for threads without a runtime.
    pub fn close_blocking(mut self, timeout: Duration) -> Result<(), Error> {
        self.reader.finish_handed_out();
        let closing = self.ask(|answer| Control::Close(timeout, answer));
        blocking::block_on(timeout, closing).unwrap_or_else(|| {
            Err(Error::TimedOut { what: "closing the consumer".into(), waited_ms: timeout.as_millis() })
        })
    }

    /// The client this consumer runs on.
    pub fn client(&self) -> &Client {
        &self.client
    }

    async fn ask<T>(
        &self,
        make: impl FnOnce(oneshot::Sender<Result<T, Error>>) -> Control,
    ) -> Result<T, Error> {
        let (answer, received) = oneshot::channel();
        self.control.send(make(answer)).map_err(|_| Error::Closed)?;
        received.await.unwrap_or(Err(Error::Closed))
    }
}
