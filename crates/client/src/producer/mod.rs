//! The producer.

mod transactions;

use std::borrow::Borrow;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ottla_protocol::Uuid;

use crate::blocking;
use crate::client::Client;
use crate::config::{Config, TopicConfig};
use crate::error::{Error, Persisted, ProduceError, ProduceErrorKind};
use crate::panics::guarded;
use crate::produce::Purge;
use crate::produce::delivery::Delivery;
use crate::produce::queue::{Push, PushRefused};
use crate::produce::reports::Reports;
use crate::produce::topics::{RecordRefused, Topic};
use crate::record::{Record, RecordMetadata};
use crate::stats::pushed::Role;
use crate::timer;
use crate::types::TopicPartition;
use crate::types::topic_name::check_topic_name;

/// The longest single wait of a blocking send; it waits again until the record has its outcome.
const WAIT_MAX: Duration = Duration::from_secs(3600);

/// Sends records and reports the outcome of each.
///
/// Records are encoded in the calling thread, straight into the batch that goes over the wire; the engine sends them.
/// Cheap to clone and usable from any thread.
///
/// The methods that send differ in what they return and in how they wait for room in the buffer:
///
/// | Returns | `async`, waits for room | Blocks for room | Never waits for room |
/// |---|---|---|---|
/// | [`RecordMetadata`], after the acknowledgement | [`send`](Self::send) | [`send_blocking`](Self::send_blocking) | [`try_send`](Self::try_send), `async` |
/// | [`Delivery`], a future of the same | [`enqueue`](Self::enqueue) | [`enqueue_blocking`](Self::enqueue_blocking) | [`try_enqueue`](Self::try_enqueue) |
/// | `()`, the outcome is only in the [reports](Self::reports) | [`send_unobserved`](Self::send_unobserved) | [`send_unobserved_blocking`](Self::send_unobserved_blocking) | [`try_send_unobserved`](Self::try_send_unobserved) |
///
/// All of them take a [`Record`] by value or by reference, exist on [`TopicProducer`] too, and fail with a
/// [`ProduceError`].
///
/// ```
/// use ottla_client::{Config, Producer, Record};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), ottla_client::Error> {
/// # let broker = ottla_broker::Broker::builder().memory().spawn().expect("a broker in memory");
/// let producer = Producer::new(Config::new(broker.bootstrap_servers()))?;
/// let written = producer.send(Record::to("orders").key("17").value("paid")).await?;
/// assert_eq!(written.offset, Some(0));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Producer {
    client: Client,
}

impl Client {
    /// Creates a producer that shares this client's engine thread and connections.
    pub fn producer(&self) -> Producer {
        self.produce().observer.has_role(Role::Producer);
        Producer { client: self.clone() }
    }
}

impl Producer {
    /// Creates a producer with its own client and engine thread.
    pub fn new(config: Config) -> Result<Self, Error> {
        Ok(Client::new(config)?.producer())
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Sends a record and waits for its acknowledgement. Waits for room when the buffer is full.
    ///
    /// Dropping the future after its first poll may or may not have sent the record.
    ///
    /// # Errors
    /// The error of the record; see [`ProduceError`].
    pub async fn send<'a>(&self, record: impl Borrow<Record<'a>>) -> Result<RecordMetadata, ProduceError> {
        self.enqueue(record).await?.await
    }

    /// [`Producer::send`] for threads without a runtime: blocks until the acknowledgement.
    ///
    /// # Errors
    /// The error of the record; see [`ProduceError`].
    pub fn send_blocking<'a>(&self, record: impl Borrow<Record<'a>>) -> Result<RecordMetadata, ProduceError> {
        let record: &Record<'_> = record.borrow();
        self.topic(record.topic).send_blocking(record)
    }

    /// Sends a record if the buffer has room, and waits for its acknowledgement.
    ///
    /// # Errors
    /// [`ProduceErrorKind::QueueFull`] when the buffer has no room: the record was not taken. Otherwise the error of the
    /// record.
    pub async fn try_send<'a>(
        &self,
        record: impl Borrow<Record<'a>>,
    ) -> Result<RecordMetadata, ProduceError> {
        self.try_enqueue(record)?.await
    }

    /// Puts a record into the buffer, waiting for room; the [`Delivery`] resolves to the record's outcome.
    ///
    /// Cancel safe: a dropped future has either taken the record or not.
    ///
    /// # Errors
    /// The reason why the record was not taken.
    pub async fn enqueue<'a>(&self, record: impl Borrow<Record<'a>>) -> Result<Delivery, ProduceError> {
        let record: &Record<'_> = record.borrow();
        self.topic(record.topic).enqueue(record).await
    }

    /// [`Producer::enqueue`] for threads without a runtime: blocks while the buffer is full.
    ///
    /// # Errors
    /// The reason why the record was not taken.
    pub fn enqueue_blocking<'a>(&self, record: impl Borrow<Record<'a>>) -> Result<Delivery, ProduceError> {
        let record: &Record<'_> = record.borrow();
        self.topic(record.topic).enqueue_blocking(record)
    }

    /// Puts a record into the buffer if there is room, without waiting.
    ///
    /// # Errors
    /// [`ProduceErrorKind::QueueFull`] when the buffer has no room: the record was not taken. Pass the record by reference
    /// to keep it for another attempt.
    pub fn try_enqueue<'a>(&self, record: impl Borrow<Record<'a>>) -> Result<Delivery, ProduceError> {
        let record: &Record<'_> = record.borrow();
        self.topic(record.topic).try_enqueue(record)
    }

    /// Puts a record into the buffer, waiting for room, without a future for its outcome. The outcome is in the
    /// [reports](Producer::reports), if they are on.
    ///
    /// Cancel safe: a dropped future has either taken the record or not.
    ///
    /// # Errors
    /// The reason why the record was not taken.
    pub async fn send_unobserved<'a>(&self, record: impl Borrow<Record<'a>>) -> Result<(), ProduceError> {
        let record: &Record<'_> = record.borrow();
        self.topic(record.topic).send_unobserved(record).await
    }

    /// [`Producer::send_unobserved`] for threads without a runtime: blocks while the buffer is full.
    ///
    /// # Errors
    /// The reason why the record was not taken.
    pub fn send_unobserved_blocking<'a>(&self, record: impl Borrow<Record<'a>>) -> Result<(), ProduceError> {
        let record: &Record<'_> = record.borrow();
        self.topic(record.topic).send_unobserved_blocking(record)
    }

    /// [`Producer::send_unobserved`] without waiting.
    ///
    /// # Errors
    /// [`ProduceErrorKind::QueueFull`] when the buffer has no room: the record was not taken.
    pub fn try_send_unobserved<'a>(&self, record: impl Borrow<Record<'a>>) -> Result<(), ProduceError> {
        let record: &Record<'_> = record.borrow();
        self.topic(record.topic).try_send_unobserved(record)
    }

    /// Returns the queue of delivery reports: the outcome of every record, batch by batch, at a much lower cost than a future
    /// per record.
    ///
    /// Clones share the queue. The records of unread reports count against `queue.buffering.max.messages`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ottla_client::{Config, Producer, Record};
    ///
    /// # let broker = ottla_broker::Broker::builder().memory().spawn()?;
    /// let mut config = Config::new(broker.bootstrap_servers());
    /// config.delivery_reports = true;
    /// let producer = Producer::new(config)?;
    /// let orders = producer.topic("orders");
    /// for order in 1..=3 {
    ///     orders.send_unobserved_blocking(Record::to("orders").value("paid").tag(order))?;
    /// }
    /// let mut reported = Vec::new();
    /// while reported.len() < 3 {
    ///     let report = producer.reports()?.next_blocking(Duration::from_secs(10)).expect("a report in time");
    ///     reported.extend(report.iter().map(|record| (record.tag.get(), record.offset)));
    /// }
    /// assert_eq!(reported, [(1, 0), (2, 1), (3, 2)]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Config`] when `Config::delivery_reports` is off.
    pub fn reports(&self) -> Result<Reports, Error> {
        if !self.client.config().delivery_reports {
            return Err(Error::Config("delivery reports are off: set Config::delivery_reports".into()));
        }
        Ok(Reports { produce: self.client.produce().clone() })
    }

    /// Calls [`Client::client_instance_id`].
    ///
    /// # Errors
    /// The errors of [`Client::client_instance_id`].
    pub async fn client_instance_id(&self, timeout: Duration) -> Result<Uuid, Error> {
        self.client.client_instance_id(timeout).await
    }

    /// Fails unacknowledged records with [`ProduceErrorKind::Purged`], without waiting for the broker.
    ///
    /// Returns at once; [`Producer::flush`] waits until each record has its outcome. A record that was in flight may be in
    /// the log: [`ProduceError::persisted`] reports it.
    pub fn purge(&self, purge: Purge) {
        self.client.produce().purge(purge);
    }

    /// [`Producer::purge`], and waits until the purged records have their outcomes and reports.
    ///
    /// # Errors
    /// [`Error::TimedOut`] after `timeout`; [`Error::Closed`] if the engine has stopped.
    pub fn purge_blocking(&self, purge: Purge, timeout: Duration) -> Result<(), Error> {
        let purged = self.client.produce().purge_notified(purge);
        let waited_ms = timeout.as_millis();
        blocking::block_on(timeout, purged)
            .ok_or_else(|| Error::TimedOut { what: "purge".into(), waited_ms })?
            .map_err(|_| Error::Closed)
    }

    /// Stops sending records to these partitions. Requests that are in flight continue.
    ///
    /// Records of a paused partition are taken as before. They wait in the buffer until [`Producer::resume`], and fail after
    /// `delivery.timeout.ms`. A flush waits for them too. The topic may be unknown, and the partition may appear later.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ottla_client::{Config, Producer, Record, TopicPartition};
    ///
    /// # let broker = ottla_broker::Broker::builder().memory().topic("orders", 1).spawn()?;
    /// let producer = Producer::new(Config::new(broker.bootstrap_servers()))?;
    /// let partitions = [TopicPartition::new("orders", 0)];
    /// producer.pause(&partitions);
    /// producer.send_unobserved_blocking(Record::to("orders").value("paid"))?;
    /// assert!(producer.flush_blocking(Duration::from_millis(100)).is_err());
    /// producer.resume(&partitions);
    /// producer.flush_blocking(Duration::from_secs(30))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn pause(&self, partitions: &[TopicPartition]) {
        for at in partitions {
            self.topic(&at.topic).pause(at.partition);
        }
    }

    /// Sends records to these partitions again, first those that waited. Partitions that are not paused stay as they are.
    pub fn resume(&self, partitions: &[TopicPartition]) {
        for at in partitions {
            self.topic(&at.topic).resume(at.partition);
        }
    }

    /// Returns a handle for one topic, which saves the lookup of its name per record.
    pub fn topic(&self, name: &str) -> TopicProducer {
        let (topic, new) = self.client.produce().topics.get(name);
        if new {
            self.want(&topic);
        }
        TopicProducer { client: self.client.clone(), topic }
    }

    /// Returns a handle for a topic with its own settings: `acks`, timeouts, partitioner, codec and level. They apply to
    /// every record that this client sends to the topic, through any handle.
    ///
    /// Call it before any other use of the topic.
    ///
    /// ```
    /// use ottla_client::{Config, Producer, Record, TopicConfig};
    ///
    /// # let broker = ottla_broker::Broker::builder().memory().spawn()?;
    /// let producer = Producer::new(Config::new(broker.bootstrap_servers()))?;
    /// let mut settings = TopicConfig::default();
    /// settings.set("compression.codec", "zstd")?;
    /// settings.set("message.timeout.ms", "5000")?;
    /// let orders = producer.topic_with("orders", &settings)?;
    /// orders.enqueue_blocking(Record::to("orders").value("paid"))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Config`] when the settings contradict the client's, as `acks=1` contradicts idempotence, or when the topic is
    /// in use already.
    pub fn topic_with(&self, name: &str, settings: &TopicConfig) -> Result<TopicProducer, Error> {
        check_topic_name(name)?;
        let of_topic = |reason: String| Error::Config(format!("topic `{name}`: {reason}"));
        let own = settings.over(self.client.config());
        own.check().map_err(of_topic)?;
        let (topic, new) = self.client.produce().topics.get_with(name, Arc::new(own));
        if !new {
            return Err(of_topic("it is in use, and its settings must be given before that".into()));
        }
        self.want(&topic);
        Ok(TopicProducer { client: self.client.clone(), topic })
    }

    /// Makes the engine request the topic's metadata before the first record.
    fn want(&self, topic: &Topic) {
        let wanted = topic.name.clone();
        self.client.start(|cluster| async move { cluster.want(&wanted) });
    }

    /// Waits until all buffered records are acknowledged or have failed. Batches do not linger meanwhile.
    ///
    /// # Errors
    /// [`Error::TimedOut`] after `timeout`; the remaining records stay in the buffer.
    pub async fn flush(&self, timeout: Duration) -> Result<(), Error> {
        let queues = &self.client.produce().queues;
        // The application may drop the future.
        let _flushing = self.flushing();
        let result = timer::timeout(timeout, queues.unsettled.settled()).await;
        result.ok_or_else(|| Error::TimedOut {
            what: format!("flush: {} batches are not acknowledged", queues.unsettled.batches()),
            waited_ms: timeout.as_millis(),
        })
    }

    /// [`Producer::flush`] for threads without a runtime.
    pub fn flush_blocking(&self, timeout: Duration) -> Result<(), Error> {
        let queues = &self.client.produce().queues;
        let _flushing = self.flushing();
        if queues.unsettled.wait_settled(timeout) {
            return Ok(());
        }
        let what = format!("flush: {} batches are not acknowledged", queues.unsettled.batches());
        Err(Error::TimedOut { what, waited_ms: timeout.as_millis() })
    }

    /// Calls `wake` whenever no record is without an outcome any more, in the thread that settled the last one. `wake` must not
    /// block.
    pub fn on_settled(&self, wake: impl Fn() + Send + Sync + 'static) {
        self.client.produce().queues.wake_callback.set(Some(Arc::new(guarded(wake))));
    }

    /// Disables lingering, as a flush does, until the guard is dropped: for applications that wait in their own way.
    pub fn flushing(&self) -> Flushing {
        let queues = &self.client.produce().queues;
        queues.flushing.fetch_add(1, Ordering::Relaxed);
        queues.wake.notify_one();
        Flushing(self.client.clone())
    }

    /// Ends the producer as a fatal error does, for this reason. Returns `false` if it has ended already.
    ///
    /// Records that no request carries fail with [`ProduceErrorKind::Fatal`], and later ones are refused with it. The response to a request
    /// in flight decides about its records, but no request is repeated. Transactional calls fail, except the repeated call for a commit
    /// that was sent. Returns at once; [`Producer::flush`] waits until each record has its outcome.
    pub fn end(&self, reason: &str) -> bool {
        self.client.produce().end(reason)
    }

    /// Returns the fatal error of this producer, if it has one: it is fenced, has a gap under `enable.gapless.guarantee`, or was
    /// [ended](Self::end). Later records fail with the same error; only another producer helps.
    pub fn fatal_error(&self) -> Option<ProduceErrorKind> {
        self.client.produce().transactions.fatal()
    }

    /// Returns the number of records without an outcome, or with an unread report. It counts batches if
    /// `queue.buffering.max.messages` is 0.
    pub fn unsettled_records(&self) -> usize {
        let produce = self.client.produce();
        let (queues, reported) = (&produce.queues, produce.reports.records());
        match queues.unsettled.batches() {
            0 => reported,
            // Topics reserve records in groups.
            batches if queues.memory.records_max() > 0 => {
                let booked_ahead: usize = produce.topics.all().iter().map(|topic| topic.booked_ahead()).sum();
                queues.memory.records().saturating_sub(booked_ahead).max(batches)
            }
            batches => batches + reported,
        }
    }

    /// Returns the bytes of memory that unacknowledged records take.
    pub fn buffered_bytes(&self) -> usize {
        self.client.produce().queues.memory.used()
    }
}

/// Disables lingering until it is dropped; see [`Producer::flushing`].
#[derive(Debug)]
pub struct Flushing(Client);

impl Drop for Flushing {
    fn drop(&mut self) {
        self.0.produce().queues.flushing.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Sends records of one topic; see [`Producer::topic`].
///
/// It has the methods of [`Producer`] that send, with the same errors. A record may name this topic or, as
/// `Record::default()` does, none.
#[derive(Clone, Debug)]
pub struct TopicProducer {
    client: Client,
    topic: Arc<Topic>,
}

impl TopicProducer {
    /// [`Producer::send`] to this topic.
    ///
    /// # Errors
    /// [`ProduceErrorKind::OtherTopic`] for a record that names another topic; otherwise as [`Producer::send`].
    pub async fn send<'a>(&self, record: impl Borrow<Record<'a>>) -> Result<RecordMetadata, ProduceError> {
        self.enqueue(record).await?.await
    }

    /// [`Producer::send_blocking`] to this topic.
    ///
    /// # Errors
    /// [`ProduceErrorKind::OtherTopic`] for a record that names another topic; otherwise as [`Producer::send_blocking`].
    pub fn send_blocking<'a>(&self, record: impl Borrow<Record<'a>>) -> Result<RecordMetadata, ProduceError> {
        let delivery = self.enqueue_blocking(record)?;
        loop {
            // The engine gives each record an outcome; the limit only bounds a single wait.
            if let Some(result) = delivery.wait(WAIT_MAX) {
                return result;
            }
        }
    }

    /// [`Producer::try_send`] to this topic.
    ///
    /// # Errors
    /// [`ProduceErrorKind::OtherTopic`] for a record that names another topic; otherwise as [`Producer::try_send`].
    pub async fn try_send<'a>(
        &self,
        record: impl Borrow<Record<'a>>,
    ) -> Result<RecordMetadata, ProduceError> {
        self.try_enqueue(record)?.await
    }

    /// [`Producer::enqueue`] to this topic.
    ///
    /// # Errors
    /// [`ProduceErrorKind::OtherTopic`] for a record that names another topic; otherwise as [`Producer::enqueue`].
    pub async fn enqueue<'a>(&self, record: impl Borrow<Record<'a>>) -> Result<Delivery, ProduceError> {
        let record: &Record<'_> = record.borrow();
        self.check_topic(record)?;
        let taken = self.push_when_room(record, true).await;
        taken.and_then(watched).map_err(|refused| self.refusal(refused))
    }

    /// [`Producer::enqueue_blocking`] to this topic.
    ///
    /// # Errors
    /// [`ProduceErrorKind::OtherTopic`] for a record that names another topic; otherwise as
    /// [`Producer::enqueue_blocking`].
    #[inline]
    pub fn enqueue_blocking<'a>(&self, record: impl Borrow<Record<'a>>) -> Result<Delivery, ProduceError> {
        let record: &Record<'_> = record.borrow();
        self.check_topic(record)?;
        let taken = self.push_blocking(record, true);
        taken.and_then(watched).map_err(|refused| self.refusal(refused))
    }

    /// [`Producer::try_enqueue`] to this topic.
    ///
    /// # Errors
    /// [`ProduceErrorKind::OtherTopic`] for a record that names another topic; otherwise as [`Producer::try_enqueue`].
    #[inline]
    pub fn try_enqueue<'a>(&self, record: impl Borrow<Record<'a>>) -> Result<Delivery, ProduceError> {
        let record: &Record<'_> = record.borrow();
        self.check_topic(record)?;
        self.push(record, true, Push::Normal).and_then(watched).map_err(|refused| self.refusal(refused))
    }

    /// [`Producer::send_unobserved`] to this topic.
    ///
    /// # Errors
    /// [`ProduceErrorKind::OtherTopic`] for a record that names another topic; otherwise as
    /// [`Producer::send_unobserved`].
    pub async fn send_unobserved<'a>(&self, record: impl Borrow<Record<'a>>) -> Result<(), ProduceError> {
        let record: &Record<'_> = record.borrow();
        self.check_topic(record)?;
        let taken = self.push_when_room(record, false).await;
        taken.map(drop).map_err(|refused| self.refusal(refused))
    }

    /// [`Producer::send_unobserved_blocking`] to this topic.
    ///
    /// # Errors
    /// [`ProduceErrorKind::OtherTopic`] for a record that names another topic; otherwise as
    /// [`Producer::send_unobserved_blocking`].
    #[inline]
    pub fn send_unobserved_blocking<'a>(&self, record: impl Borrow<Record<'a>>) -> Result<(), ProduceError> {
        let record: &Record<'_> = record.borrow();
        self.check_topic(record)?;
        self.push_blocking(record, false).map(drop).map_err(|refused| self.refusal(refused))
    }

    /// [`Producer::try_send_unobserved`] to this topic.
    ///
    /// # Errors
    /// [`ProduceErrorKind::OtherTopic`] for a record that names another topic; otherwise as
    /// [`Producer::try_send_unobserved`].
    #[inline]
    pub fn try_send_unobserved<'a>(&self, record: impl Borrow<Record<'a>>) -> Result<(), ProduceError> {
        let record: &Record<'_> = record.borrow();
        self.check_topic(record)?;
        self.push(record, false, Push::Normal).map(drop).map_err(|refused| self.refusal(refused))
    }

    /// Refuses a record that names another topic.
    #[inline]
    fn check_topic(&self, record: &Record<'_>) -> Result<(), ProduceError> {
        if record.topic.is_empty() || *record.topic == *self.topic.name {
            return Ok(());
        }
        Err(self.other_topic(record))
    }

    #[cold]
    fn other_topic(&self, record: &Record<'_>) -> ProduceError {
        ProduceError {
            topic: record.topic.into(),
            partition: record.partition.unwrap_or(-1),
            kind: ProduceErrorKind::OtherTopic { producer: self.topic.name.clone() },
            persisted: Persisted::NotWritten,
        }
    }

    /// [`Producer::pause`] for one partition of this topic.
    pub fn pause(&self, partition: i32) {
        self.topic.set_paused(partition, true, &self.client.produce().queues);
    }

    /// [`Producer::resume`] for one partition of this topic.
    pub fn resume(&self, partition: i32) {
        self.topic.set_paused(partition, false, &self.client.produce().queues);
    }

    /// Returns `true` if the partition has a leader, according to the latest metadata.
    pub fn is_available(&self, partition: u32) -> bool {
        self.topic.is_available(partition)
    }

    async fn push_when_room(
        &self,
        record: &Record<'_>,
        watched: bool,
    ) -> Result<Option<Delivery>, RecordRefused> {
        let memory = &self.client.produce().queues.memory;
        let mut waiting = None;
        let mut give_up_at = None;
        loop {
            let mut room = pin!(memory.freed.notified());
            room.as_mut().enable();
            match self.push(record, watched, Push::Patient) {
                Err(refused) if is_full(refused) => {
                    waiting.get_or_insert_with(|| memory.wait());
                    let give_up_at = *give_up_at
                        .get_or_insert_with(|| timer::deadline_after(self.topic.config.delivery_timeout));
                    if timer::timeout_at(give_up_at, room).await.is_none() {
                        return Err(refused);
                    }
                }
                result => return result,
            }
        }
    }

    #[inline]
    fn push_blocking(&self, record: &Record<'_>, watched: bool) -> Result<Option<Delivery>, RecordRefused> {
        // One variable, which becomes the result: `match` would copy it, and the copy waits for the stores of `push`.
        let mut pushed = self.push(record, watched, Push::Patient);
        if let Err(refused) = pushed
            && is_full(refused)
        {
            pushed = self.block_until_room(record, watched);
        }
        pushed
    }

    #[cold]
    fn block_until_room(
        &self,
        record: &Record<'_>,
        watched: bool,
    ) -> Result<Option<Delivery>, RecordRefused> {
        let queues = &self.client.produce().queues;
        let _waiting = queues.memory.wait();
        let mut last = Err(RecordRefused::Queue(-1, PushRefused::Full));
        blocking::wait_until(self.topic.config.delivery_timeout, &queues.memory.freed, || {
            last = self.push(record, watched, Push::Patient);
            !matches!(last, Err(refused) if is_full(refused))
        });
        last
    }

    #[inline]
    fn push(&self, record: &Record<'_>, watched: bool, how: Push) -> Result<Option<Delivery>, RecordRefused> {
        let produce = self.client.produce();
        // One variable, as in `push_blocking`.
        let mut pushed = if produce.transactions.takes_records() {
            self.topic.push(&produce.queues, record, watched, how)
        } else {
            Err(RecordRefused::NoTransaction)
        };
        if let Err(refused) = pushed
            && is_full(refused)
        {
            pushed = self.push_with_returned_credit(refused, record, watched, how);
        }
        pushed
    }

    /// Tries again a record that found the memory full, if other partitions return room they had booked.
    #[cold]
    fn push_with_returned_credit(
        &self,
        refused: RecordRefused,
        record: &Record<'_>,
        watched: bool,
        how: Push,
    ) -> Result<Option<Delivery>, RecordRefused> {
        let produce = self.client.produce();
        if !produce.topics.return_credit(&produce.queues) {
            return Err(refused);
        }
        self.topic.push(&produce.queues, record, watched, how)
    }

    #[cold]
    fn refusal(&self, refused: RecordRefused) -> ProduceError {
        self.client.produce().refusal(&self.topic.name, refused)
    }
}

/// Unwraps the future of a record that was pushed with one.
#[inline]
fn watched(delivery: Option<Delivery>) -> Result<Delivery, RecordRefused> {
    delivery.ok_or(RecordRefused::Queue(-1, PushRefused::Closed))
}

fn is_full(refused: RecordRefused) -> bool {
    matches!(refused, RecordRefused::Queue(_, PushRefused::Full))
}
