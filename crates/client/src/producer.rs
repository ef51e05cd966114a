//! The producer.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::blocking;
use crate::client::Client;
use crate::config::Config;
use crate::error::{Error, Persisted, ProduceError, ProduceErrorKind};
use crate::produce::delivery::Delivery;
use crate::produce::queue::{Push, Refused};
use crate::produce::topics::{NotTaken, Parts, Topic};
use crate::record::{Record, RecordMetadata};

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
    /// [`ProduceErrorKind::QueueFull`] when the buffer has no room; the record was not taken.
    pub fn try_send(&self, record: Record<'_>) -> Result<Delivery, ProduceError> {
        self.topic(record.topic).try_send(&record)
    }

    /// A handle for many records of one topic: saves looking its name up each time.
    pub fn topic(&self, name: &str) -> TopicProducer {
        let (topic, new) = self.client.produce().topics.get(name);
        if new {
            let wanted = topic.name.clone();
            // Partitions are asked for now: the first record need not wait for them to be asked for.
            self.client.start(|cluster| async move { cluster.want(&wanted) });
        }
        TopicProducer { client: self.client.clone(), topic }
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
        let result = tokio::time::timeout(timeout, all_settled).await;
        queues.flushing.fetch_sub(1, Ordering::Relaxed);
        result.map_err(|_| Error::TimedOut {
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

    /// Bytes of memory that unacknowledged records take at this moment.
    pub fn buffered_bytes(&self) -> usize {
        self.client.produce().queues.budget().used()
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
        self.push(record).map_err(|refused| self.refusal(refused))
    }

    /// As [`Producer::enqueue`]; the record's own topic is ignored.
    pub async fn enqueue(&self, record: &Record<'_>) -> Result<Delivery, ProduceError> {
        let freed = &self.client.produce().queues.budget().freed;
        let give_up = tokio::time::sleep(self.client.config().delivery_timeout);
        let mut give_up = pin!(give_up);
        loop {
            let mut room = pin!(freed.notified());
            room.as_mut().enable();
            match self.push(record) {
                Ok(delivery) => return Ok(delivery),
                Err(refused) if is_full(refused) => tokio::select! {
                    biased;
                    () = room => {}
                    () = &mut give_up => return Err(self.refusal(refused)),
                },
                Err(refused) => return Err(self.refusal(refused)),
            }
        }
    }

    /// As [`Producer::enqueue_blocking`]; the record's own topic is ignored.
    #[inline]
    pub fn enqueue_blocking(&self, record: &Record<'_>) -> Result<Delivery, ProduceError> {
        match self.push(record) {
            Ok(delivery) => Ok(delivery),
            Err(refused) if is_full(refused) => self.enqueue_when_room(record),
            Err(refused) => Err(self.refusal(refused)),
        }
    }

    #[cold]
    fn enqueue_when_room(&self, record: &Record<'_>) -> Result<Delivery, ProduceError> {
        let queues = &self.client.produce().queues;
        let mut last = None;
        blocking::wait_until(self.client.config().delivery_timeout, &queues.budget().freed, || {
            let result = self.push(record);
            let full = matches!(result, Err(refused) if is_full(refused));
            last = Some(result);
            !full
        });
        match last {
            Some(result) => result.map_err(|refused| self.refusal(refused)),
            None => Err(ProduceError {
                topic: self.topic.name.clone(),
                partition: -1,
                kind: ProduceErrorKind::Closed,
                persisted: Persisted::NotWritten,
            }),
        }
    }

    #[inline]
    fn push(&self, record: &Record<'_>) -> Result<Delivery, NotTaken> {
        let produce = self.client.produce();
        let parts = Parts {
            partition: record.partition,
            timestamp_ms: record.timestamp_ms,
            key: record.key,
            value: record.value,
            headers: &record.headers,
        };
        self.topic.push(&produce.queues, &produce.config.partitioner, &parts, Push::Normal)
    }

    #[cold]
    fn refusal(&self, refused: NotTaken) -> ProduceError {
        self.client.produce().refusal(&self.topic.name, refused)
    }
}

fn is_full(refused: NotTaken) -> bool {
    matches!(refused, NotTaken::Refused(_, Refused::Full))
}
