//! The producer.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::blocking;
use crate::client::Client;
use crate::config::{Config, TopicConfig};
use crate::error::{Error, ProduceError, ProduceErrorKind};
use crate::produce::answers::Purge;
use crate::produce::delivery::Delivery;
use crate::produce::queue::{Content, Push, Refused};
use crate::produce::reports::Reports;
use crate::produce::topics::{NotTaken, Topic};
use crate::record::{Record, RecordMetadata};
use crate::timer;
use crate::topic_name::check_topic_name;

/// Sends records and tells what became of each.
///
/// Records are encoded in the calling thread, straight into the batch that goes over the wire; the engine sends them.
/// Cheap to clone and usable from any thread.
///
/// ```
/// use ottla_client::{Config, Producer, Record};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), ottla_client::Error> {
/// # let broker = ottla_broker::Broker::builder().memory().spawn().expect("a broker in memory");
/// let producer = Producer::new(Config::new(broker.bootstrap_servers()))?;
/// let written = producer.send(Record::to("orders").key("17").value("paid")).await?;
/// assert_eq!(written.offset, 0);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Producer {
    client: Client,
}

impl Producer {
    /// A producer with a client, and so an engine thread, of its own.
    pub fn new(config: Config) -> Result<Self, Error> {
        Ok(Self::of(&Client::new(config)?))
    }

    /// A producer on a client that exists.
    pub fn of(client: &Client) -> Self {
        Self { client: client.clone() }
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Sends a record and waits for its acknowledgement.
    ///
    /// Waits for room when the buffer is full. Dropping the future after its first poll may or may not have sent the
    /// record.
    pub async fn send(&self, record: Record<'_>) -> Result<RecordMetadata, ProduceError> {
        self.enqueue(record).await?.await
    }

    /// Hands a record over, waiting for room when the buffer is full; the [`Delivery`] tells its fate.
    ///
    /// Cancel safe: a record is either taken, or not.
    pub async fn enqueue(&self, record: Record<'_>) -> Result<Delivery, ProduceError> {
        let topic = self.topic(record.topic);
        topic.enqueue(&record).await
    }

    /// [`Producer::enqueue`] for threads without a runtime: blocks while the buffer is full.
    pub fn enqueue_blocking(&self, record: Record<'_>) -> Result<Delivery, ProduceError> {
        let topic = self.topic(record.topic);
        topic.enqueue_blocking(&record)
    }

    /// Hands a record over without ever waiting.
    ///
    /// # Errors
    /// [`ProduceErrorKind::QueueFull`] when the buffer has no room; the record was not taken and comes back.
    #[expect(clippy::result_large_err, reason = "the record that was not taken comes back")]
    pub fn try_send<'a>(&self, record: Record<'a>) -> Result<Delivery, NotSent<'a>> {
        self.topic(record.topic).try_send(&record).map_err(|error| NotSent { record, error })
    }

    /// Hands a record over without a future for its fate, waiting for room when the buffer is full: what became of it
    /// is in the reports, if they are on, and otherwise nobody is told.
    ///
    /// Cancel safe: a record is either taken, or not.
    pub async fn post(&self, record: Record<'_>) -> Result<(), ProduceError> {
        self.topic(record.topic).post(&record).await
    }

    /// The queue of delivery reports: the fate of every record, batch by batch, much cheaper than a future per record.
    ///
    /// Clones read the same queue. The reports of records that nobody reads count against
    /// `queue.buffering.max.messages`.
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
    ///     orders.post_blocking(&Record::to("orders").value("paid").tag(order))?;
    /// }
    /// let mut reported = Vec::new();
    /// while reported.len() < 3 {
    ///     let report = producer.reports()?.next_blocking(Duration::from_secs(10)).expect("a report in time");
    ///     reported.extend(report.iter().map(|record| (record.tag, record.offset)));
    /// }
    /// assert_eq!(reported, [(1, 0), (2, 1), (3, 2)]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Config`] when `Config::delivery_reports` is off: the queue would stay empty.
    pub fn reports(&self) -> Result<Reports, Error> {
        if !self.client.config().delivery_reports {
            return Err(Error::Config("delivery reports are off: set Config::delivery_reports".into()));
        }
        Ok(Reports { produce: self.client.produce().clone() })
    }

    /// Fails records that are not acknowledged yet, as [`ProduceErrorKind::Purged`], without waiting for the broker.
    ///
    /// Returns at once; [`Producer::flush`] waits until each has its outcome. A record that was in flight may be in the
    /// log: its error says so.
    pub fn purge(&self, purge: Purge) {
        self.client.produce().purge(purge);
    }

    /// A handle for many records of one topic: saves looking its name up each time.
    pub fn topic(&self, name: &str) -> TopicProducer {
        let (topic, new) = self.client.produce().topics.get(name);
        if new {
            self.want(&topic);
        }
        TopicProducer { client: self.client.clone(), topic }
    }

    /// A handle for a topic that has settings of its own: `acks`, timeouts, partitioner, codec and level. They hold for
    /// every record that this client sends to it, through whichever handle.
    ///
    /// To be called before anything else names the topic.
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
    /// orders.enqueue_blocking(&Record::to("orders").value("paid"))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Config`] when the settings contradict the client's, as `acks=1` does idempotence, or when the topic is in
    /// use already: records may be under way with the settings that it has.
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

    /// Has the engine ask for the topic's partitions before its first record comes.
    fn want(&self, topic: &Topic) {
        let wanted = topic.name.clone();
        self.client.start(|cluster| async move { cluster.want(&wanted) });
    }

    /// Waits until everything handed over so far is acknowledged or has failed, sending without lingering.
    ///
    /// # Errors
    /// [`Error::TimedOut`] when that takes longer than `timeout`; the records are still under way then.
    pub async fn flush(&self, timeout: Duration) -> Result<(), Error> {
        let queues = &self.client.produce().queues;
        queues.flushing.fetch_add(1, Ordering::Relaxed);
        queues.wake.notify_one();
        let all_settled = async {
            loop {
                let mut settled = pin!(queues.settled.notified());
                settled.as_mut().enable();
                if queues.unsettled() == 0 {
                    return;
                }
                settled.await;
            }
        };
        let result = timer::timeout(timeout, all_settled).await;
        queues.flushing.fetch_sub(1, Ordering::Relaxed);
        result.ok_or_else(|| Error::TimedOut {
            what: format!("flush: {} batches are not acknowledged", queues.unsettled()),
            waited_ms: timeout.as_millis(),
        })
    }

    /// [`Producer::flush`] for threads without a runtime.
    pub fn flush_blocking(&self, timeout: Duration) -> Result<(), Error> {
        let queues = &self.client.produce().queues;
        queues.flushing.fetch_add(1, Ordering::Relaxed);
        queues.wake.notify_one();
        let done = blocking::wait_until(timeout, &queues.settled, || queues.unsettled() == 0);
        queues.flushing.fetch_sub(1, Ordering::Relaxed);
        if done {
            return Ok(());
        }
        let what = format!("flush: {} batches are not acknowledged", queues.unsettled());
        Err(Error::TimedOut { what, waited_ms: timeout.as_millis() })
    }

    /// Calls `wake` whenever the last record that had no outcome yet has one, from the thread that found out: it must not
    /// block.
    pub fn on_settled(&self, wake: impl Fn() + Send + Sync + 'static) {
        self.client.produce().queues.ear.listen(Some(Arc::new(wake)));
    }

    /// Until the guard is dropped nothing lingers, as in a flush: for who waits for records in a way of their own.
    pub fn flushing(&self) -> Flushing {
        let queues = &self.client.produce().queues;
        queues.flushing.fetch_add(1, Ordering::Relaxed);
        queues.wake.notify_one();
        Flushing(self.client.clone())
    }

    /// Why this producer is of no more use, if it is: fenced, or with a gap where `enable.gapless.guarantee` allows none.
    /// What is sent after that is refused with the same error; only another producer helps.
    pub fn fatal_error(&self) -> Option<ProduceErrorKind> {
        self.client.produce().transactions.fatal()
    }

    /// Records that have no outcome yet, or whose outcome was not taken from the reports; batches, where
    /// `queue.buffering.max.messages` is 0 and so nobody counts.
    pub fn unsettled_records(&self) -> usize {
        let produce = self.client.produce();
        let (queues, reported) = (&produce.queues, produce.reports.records());
        match queues.unsettled() {
            0 => reported,
            // Records are booked by the dozen.
            batches if queues.memory.records_max() > 0 => {
                let booked_ahead: usize = produce.topics.all().iter().map(|topic| topic.booked_ahead()).sum();
                queues.memory.records().saturating_sub(booked_ahead).max(batches)
            }
            batches => batches + reported,
        }
    }

    /// Bytes of memory that unacknowledged records take at this moment.
    pub fn buffered_bytes(&self) -> usize {
        self.client.produce().queues.memory.used()
    }
}

/// See [`Producer::flushing`].
#[derive(Debug)]
pub struct Flushing(Client);

impl Drop for Flushing {
    fn drop(&mut self) {
        self.0.produce().queues.flushing.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Sends records of one topic; see [`Producer::topic`].
#[derive(Clone, Debug)]
pub struct TopicProducer {
    client: Client,
    topic: Arc<Topic>,
}

impl TopicProducer {
    /// As [`Producer::try_send`]; the record's own topic is ignored.
    #[inline]
    pub fn try_send(&self, record: &Record<'_>) -> Result<Delivery, ProduceError> {
        self.push(record, true, Push::Normal).and_then(watched).map_err(|refused| self.refusal(refused))
    }

    /// As [`Producer::enqueue`]; the record's own topic is ignored.
    pub async fn enqueue(&self, record: &Record<'_>) -> Result<Delivery, ProduceError> {
        let taken = self.push_when_room(record, true).await;
        taken.and_then(watched).map_err(|refused| self.refusal(refused))
    }

    /// As [`Producer::enqueue_blocking`]; the record's own topic is ignored.
    #[inline]
    pub fn enqueue_blocking(&self, record: &Record<'_>) -> Result<Delivery, ProduceError> {
        let taken = self.push_blocking(record, true);
        taken.and_then(watched).map_err(|refused| self.refusal(refused))
    }

    /// As [`TopicProducer::try_send`], without a future for the record's fate: see [`Producer::post`].
    #[inline]
    pub fn try_post(&self, record: &Record<'_>) -> Result<(), ProduceError> {
        self.push(record, false, Push::Normal).map(drop).map_err(|refused| self.refusal(refused))
    }

    /// As [`Producer::post`]; the record's own topic is ignored.
    pub async fn post(&self, record: &Record<'_>) -> Result<(), ProduceError> {
        let taken = self.push_when_room(record, false).await;
        taken.map(drop).map_err(|refused| self.refusal(refused))
    }

    /// [`TopicProducer::post`] for threads without a runtime: blocks while the buffer is full.
    #[inline]
    pub fn post_blocking(&self, record: &Record<'_>) -> Result<(), ProduceError> {
        self.push_blocking(record, false).map(drop).map_err(|refused| self.refusal(refused))
    }

    /// Whether the partition has a leader at this moment, as far as is known.
    pub fn is_available(&self, partition: u32) -> bool {
        self.topic.is_available(partition)
    }

    async fn push_when_room(&self, record: &Record<'_>, watched: bool) -> Result<Option<Delivery>, NotTaken> {
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
    fn push_blocking(&self, record: &Record<'_>, watched: bool) -> Result<Option<Delivery>, NotTaken> {
        match self.push(record, watched, Push::Patient) {
            Err(refused) if is_full(refused) => self.block_until_room(record, watched),
            result => result,
        }
    }

    #[cold]
    fn block_until_room(&self, record: &Record<'_>, watched: bool) -> Result<Option<Delivery>, NotTaken> {
        let queues = &self.client.produce().queues;
        let _waiting = queues.memory.wait();
        let mut last = Err(NotTaken::Refused(-1, Refused::Full));
        blocking::wait_until(self.topic.config.delivery_timeout, &queues.memory.freed, || {
            last = self.push(record, watched, Push::Patient);
            !matches!(last, Err(refused) if is_full(refused))
        });
        last
    }

    #[inline]
    fn push(&self, record: &Record<'_>, watched: bool, how: Push) -> Result<Option<Delivery>, NotTaken> {
        let produce = self.client.produce();
        if !produce.transactions.takes_records() {
            return Err(NotTaken::NoTransaction);
        }
        let content = Content {
            timestamp_ms: record.timestamp_ms,
            key: record.key,
            value: record.value,
            shared: record.shared,
            headers: &record.headers,
            tag: record.tag,
            watched,
        };
        self.topic.push(&produce.queues, record.partition, &content, how)
    }

    #[cold]
    fn refusal(&self, refused: NotTaken) -> ProduceError {
        self.client.produce().refusal(&self.topic.name, refused)
    }
}

/// A record that was not taken, and why.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{error}")]
pub struct NotSent<'a> {
    /// The record, as it was handed in.
    pub record: Record<'a>,
    /// Why it was not taken.
    pub error: ProduceError,
}

/// A watched record that was taken has its future.
#[inline]
fn watched(delivery: Option<Delivery>) -> Result<Delivery, NotTaken> {
    delivery.ok_or(NotTaken::Refused(-1, Refused::Closed))
}

fn is_full(refused: NotTaken) -> bool {
    matches!(refused, NotTaken::Refused(_, Refused::Full))
}
