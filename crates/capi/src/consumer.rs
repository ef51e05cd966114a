//! What a consumer reads, and how: the state behind the functions of `KafkaConsumer`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use ottla_client::{
    Client, Consumer, ConsumerControl, Error, Event, GroupMetadata, Next, PartitionQueue, RecordView, Taken,
    TopicPartition,
};

use crate::codes::of as code_of;
use crate::ffi::*;
use crate::handle::{CLOSE_TIMEOUT, Handle};
use crate::hooks::Hooks;
use crate::message::{Filler, Owned};
use crate::op::Op;
use crate::queue::{Queue, Source};
use crate::topic::Topic;

/// How long the engine may take to answer what it does by itself.
pub(crate) const ENGINE_TIMEOUT: Duration = Duration::from_secs(30);

/// A consumer: what it reads, and the queues where that arrives.
pub(crate) struct Consuming {
    pub(crate) control: ConsumerControl,
    /// `rd_kafka_queue_get_consumer`: records, rebalances, errors of the group.
    pub(crate) queue: Arc<Queue>,
    /// Partitions with a queue of their own.
    queues: Mutex<BTreeMap<TopicPartition, Arc<OwnQueue>>>,
    subscribed: Mutex<Vec<String>>,
    joined: AtomicBool,
    /// The assignment was lost, not revoked: until the next one.
    pub(crate) lost: AtomicBool,
    closed: AtomicBool,
    closing: AtomicBool,
}

/// A partition's queue. It draws for itself as soon as it is forwarded elsewhere than to the consumer's.
struct OwnQueue {
    queue: Arc<Queue>,
    apart: AtomicBool,
}

/// What the application reads, one thread at a time.
struct Reading<R> {
    reader: R,
    filler: Filler,
    /// The topic of the last record, and the client's name for it.
    topic: Option<(Arc<str>, Arc<Topic>)>,
    handle: Weak<Handle>,
    hooks: Option<Arc<Hooks>>,
    /// What came behind messages that were drawn together.
    pending: Option<Op>,
    /// Whether the polling thread has the application bring the assignment in line.
    tells: bool,
}

/// Records of the whole consumer as a source.
struct All(Mutex<Reading<Consumer>>);

/// Records of one partition as a source.
struct One(Mutex<Reading<PartitionQueue>>);

/// What has a next record.
trait Reader {
    fn next(&mut self) -> Result<Option<Next<'_>>, Error>;
    fn next_ones(&mut self, max: usize, take: impl FnMut(RecordView<'_>)) -> Result<Option<Taken>, Error>;
}

impl Reader for Consumer {
    #[inline]
    fn next(&mut self) -> Result<Option<Next<'_>>, Error> {
        self.try_next_record()
    }

    #[inline]
    fn next_ones(&mut self, max: usize, take: impl FnMut(RecordView<'_>)) -> Result<Option<Taken>, Error> {
        self.try_next_records(max, take)
    }
}

impl Reader for PartitionQueue {
    #[inline]
    fn next(&mut self) -> Result<Option<Next<'_>>, Error> {
        self.try_next_record()
    }

    #[inline]
    fn next_ones(&mut self, max: usize, take: impl FnMut(RecordView<'_>)) -> Result<Option<Taken>, Error> {
        self.try_next_records(max, take)
    }
}

impl<R: Reader> Reading<R> {
    fn new(reader: R, handle: &Arc<Handle>) -> Self {
        let tells = handle.config.rebalance == ottla_client::Rebalance::Application;
        Self {
            reader,
            filler: Filler::default(),
            topic: None,
            handle: Arc::downgrade(handle),
            hooks: handle.hooking.get().cloned(),
            pending: None,
            tells,
        }
    }

    #[inline]
    fn draw(&mut self) -> Option<Op> {
        if self.pending.is_some() {
            return self.pending.take();
        }
        loop {
            let event = match self.reader.next() {
                Ok(Some(Next::Record(record))) => {
                    let topic = topic_of(&mut self.topic, &self.handle, &record)?;
                    let message = self.filler.message(topic, &record);
                    if let Some(hooks) = &self.hooks
                        && let Some(handle) = self.handle.upgrade()
                    {
                        hooks.on_consume(&handle, message.as_raw());
                    }
                    return Some(Op::Message(message));
                }
                Ok(Some(Next::Event(event))) => event,
                Ok(Some(_)) => continue,
                Ok(None) => {
                    self.filler.release();
                    return None;
                }
                Err(error) => return Some(Op::Message(error_message(&self.handle, &error))),
            };
            if let Some(op) = self.tell(event) {
                return Some(op);
            }
        }
    }

    fn fill(&mut self, out: &mut [*mut rd_kafka_message_t]) -> usize {
        let mut count = 0;
        // Interceptors want to see one after the other.
        while count < out.len() && self.hooks.is_none() && self.pending.is_none() {
            match self.fill_from_batch(&mut out[count..]) {
                Ok(Some(Taken::Records(more))) => count += more,
                Ok(Some(Taken::Event(event))) => self.pending = self.tell(event),
                Ok(Some(_)) => {}
                Ok(None) => {
                    self.filler.release();
                    return count;
                }
                Err(error) => self.pending = Some(Op::Message(error_message(&self.handle, &error))),
            }
        }
        for place in &mut out[count..] {
            match self.draw() {
                Some(Op::Message(message)) => *place = message.into_raw(),
                other => {
                    self.pending = other;
                    break;
                }
            }
            count += 1;
        }
        count
    }

    /// Messages of as many records as one of the broker's batches has left.
    fn fill_from_batch(&mut self, out: &mut [*mut rd_kafka_message_t]) -> Result<Option<Taken>, Error> {
        let Self { reader, filler, topic, handle, .. } = self;
        let mut written = 0;
        let taken = reader.next_ones(out.len(), |record| {
            // All of them are of one partition. Without a handle there is nobody to give them to.
            if let Some(topic) = topic_of(topic, handle, &record) {
                out[written] = filler.message(topic, &record).into_raw();
                written += 1;
            }
        })?;
        Ok(match taken {
            Some(Taken::Records(_)) => (written > 0).then_some(Taken::Records(written)),
            other => other,
        })
    }

    fn tell(&self, event: Event) -> Option<Op> {
        let handle = self.handle.upgrade()?;
        let consuming = handle.consuming()?;
        match event {
            Event::EndOfPartition { at, offset } => {
                let (code, topic) = (RD_KAFKA_RESP_ERR__PARTITION_EOF, handle.topic(&at.topic));
                let text = "Broker: No more messages";
                Some(Op::Message(Owned::error(code, text, Some(topic), at.partition, offset)))
            }
            Event::Assigned(partitions) => {
                consuming.lost.store(false, Ordering::Relaxed);
                let err = RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS;
                self.tells.then_some(Op::Rebalance { err, partitions, lost: false })
            }
            Event::Revoked(partitions) => {
                let err = RD_KAFKA_RESP_ERR__REVOKE_PARTITIONS;
                self.tells.then_some(Op::Rebalance { err, partitions, lost: false })
            }
            Event::Lost(partitions) => {
                consuming.lost.store(true, Ordering::Relaxed);
                let err = RD_KAFKA_RESP_ERR__REVOKE_PARTITIONS;
                self.tells.then_some(Op::Rebalance { err, partitions, lost: true })
            }
            _ => None,
        }
    }
}

/// The topic of a record, kept for the next one.
#[inline]
fn topic_of<'a>(
    kept: &'a mut Option<(Arc<str>, Arc<Topic>)>,
    handle: &Weak<Handle>,
    record: &RecordView<'_>,
) -> Option<&'a Arc<Topic>> {
    let name = &record.at().topic;
    if !kept.as_ref().is_some_and(|(known, _)| Arc::ptr_eq(known, name)) {
        *kept = Some((name.clone(), handle.upgrade()?.topic(name)));
    }
    kept.as_ref().map(|(_, topic)| topic)
}

/// An error of the consumer as the message that carries it.
fn error_message(handle: &Weak<Handle>, error: &Error) -> Owned {
    let (topic, partition, offset) = match error {
        Error::Corrupt { topic, partition, offset, .. }
        | Error::OffsetOutOfRange { topic, partition, offset }
        | Error::LogTruncated { topic, partition, offset, .. } => (Some(topic), *partition, *offset),
        Error::NotAssigned { topic, partition } => (Some(topic), *partition, RD_KAFKA_OFFSET_INVALID),
        _ => (None, RD_KAFKA_PARTITION_UA, RD_KAFKA_OFFSET_INVALID),
    };
    let topic = topic.and_then(|name| Some(handle.upgrade()?.topic(name)));
    let code = match error {
        Error::OffsetOutOfRange { .. } => RD_KAFKA_RESP_ERR__AUTO_OFFSET_RESET,
        error => code_of(error),
    };
    Owned::error(code, &error.to_string(), topic, partition, offset)
}

impl Source for All {
    #[inline]
    fn draw(&self) -> Option<Op> {
        lock(&self.0).draw()
    }

    fn fill(&self, out: &mut [*mut rd_kafka_message_t]) -> usize {
        lock(&self.0).fill(out)
    }

    fn len(&self) -> usize {
        0
    }
}

impl Source for One {
    #[inline]
    fn draw(&self) -> Option<Op> {
        lock(&self.0).draw()
    }

    fn fill(&self, out: &mut [*mut rd_kafka_message_t]) -> usize {
        lock(&self.0).fill(out)
    }

    fn len(&self) -> usize {
        0
    }
}

impl Consuming {
    pub(crate) fn new(handle: &Arc<Handle>, client: &Client) -> Arc<Self> {
        let consumer = Consumer::of(client);
        let control = consumer.control().clone();
        let queue = Queue::new();
        let rings = Arc::downgrade(&queue);
        consumer.on_filled(move || {
            if let Some(queue) = rings.upgrade() {
                queue.ring();
            }
        });
        queue.set_source(Some(Arc::new(All(Mutex::new(Reading::new(consumer, handle))))));
        Arc::new(Self {
            control,
            queue,
            queues: Mutex::default(),
            subscribed: Mutex::default(),
            joined: AtomicBool::new(false),
            lost: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            closing: AtomicBool::new(false),
        })
    }

    /// The queue of one partition, made at the first question for it: forwarded to the consumer's until the application
    /// says otherwise.
    pub(crate) fn queue_of(&self, at: &TopicPartition) -> Arc<Queue> {
        let mut queues = lock(&self.queues);
        let own = queues.entry(at.clone()).or_insert_with(|| {
            let queue = Queue::new();
            queue.forward_to(Some(&self.queue));
            Arc::new(OwnQueue { queue, apart: AtomicBool::new(false) })
        });
        own.queue.clone()
    }

    /// A queue is forwarded elsewhere: if it is a partition's, its records go there from now on.
    pub(crate) fn forwarded(&self, handle: &Arc<Handle>, queue: &Arc<Queue>, to: Option<&Arc<Queue>>) {
        let queues = lock(&self.queues);
        let Some((at, own)) = queues.iter().find(|(_, own)| Arc::ptr_eq(&own.queue, queue)) else { return };
        let apart = to.is_none_or(|to| !Arc::ptr_eq(to, &self.queue));
        own.apart.store(apart, Ordering::Relaxed);
        self.attach(handle, at, own);
    }

    /// Gives a partition's queue its source, or takes it away.
    fn attach(&self, handle: &Arc<Handle>, at: &TopicPartition, own: &OwnQueue) {
        own.queue.set_source(None);
        if own.apart.load(Ordering::Relaxed)
            && let Ok(split) = self.control.split(at)
        {
            let rings = Arc::downgrade(&own.queue);
            split.on_filled(move || {
                if let Some(queue) = rings.upgrade() {
                    queue.ring();
                }
            });
            own.queue.set_source(Some(Arc::new(One(Mutex::new(Reading::new(split, handle))))));
        }
    }

    /// The assignment is another one: partitions that have a queue of their own are read there again.
    pub(crate) fn reassigned(&self, handle: &Arc<Handle>) {
        let assigned = self.control.assignment();
        for (at, own) in lock(&self.queues).iter() {
            if own.apart.load(Ordering::Relaxed) && assigned.contains(at) {
                self.attach(handle, at, own);
            }
        }
    }

    /// A partition is consumed no more: its queue ends.
    pub(crate) fn forget_queue(&self, at: &TopicPartition) {
        if let Some(own) = lock(&self.queues).remove(at) {
            own.queue.close();
        }
    }

    pub(crate) fn group_metadata(&self) -> Result<GroupMetadata, Error> {
        self.control.group_metadata().wait(ENGINE_TIMEOUT)
    }

    pub(crate) fn subscribe(&self, topics: Vec<String>) -> Result<(), Error> {
        let names: Vec<&str> = topics.iter().map(String::as_str).collect();
        self.control.subscribe(&names).wait(ENGINE_TIMEOUT)?;
        self.joined.store(true, Ordering::Relaxed);
        *lock(&self.subscribed) = topics;
        Ok(())
    }

    pub(crate) fn unsubscribe(&self, handle: &Arc<Handle>) -> Result<(), Error> {
        lock(&self.subscribed).clear();
        if !self.joined.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        self.give_up(handle);
        self.control.unsubscribe(CLOSE_TIMEOUT).wait(CLOSE_TIMEOUT + Duration::from_secs(1))
    }

    pub(crate) fn subscription(&self) -> Vec<String> {
        lock(&self.subscribed).clone()
    }

    pub(crate) fn is_member(&self) -> bool {
        self.joined.load(Ordering::Relaxed)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Has the application give up what it has, where that is its own affair.
    fn give_up(&self, handle: &Arc<Handle>) {
        let assigned = self.control.assignment();
        if handle.config.rebalance == ottla_client::Rebalance::Application && !assigned.is_empty() {
            let err = RD_KAFKA_RESP_ERR__REVOKE_PARTITIONS;
            crate::poll::serve(handle, Op::Rebalance { err, partitions: assigned, lost: false });
        }
    }

    /// Leaves the group, gives everything up, and waits until that is done, or has somebody else wait (`told`).
    pub(crate) fn close(&self, handle: &Arc<Handle>, told: bool) -> rd_kafka_resp_err_t {
        if self.closing.swap(true, Ordering::AcqRel) {
            return RD_KAFKA_RESP_ERR_NO_ERROR;
        }
        if !told && self.is_member() {
            self.give_up(handle);
        }
        let closed = self.control.close(CLOSE_TIMEOUT).wait(CLOSE_TIMEOUT + Duration::from_secs(1));
        self.closed.store(true, Ordering::Release);
        self.queue.ring();
        closed.map_or_else(|error| code_of(&error), |()| RD_KAFKA_RESP_ERR_NO_ERROR)
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// Lets go of everything.
    pub(crate) fn end(&self) {
        for own in std::mem::take(&mut *lock(&self.queues)).into_values() {
            own.queue.close();
        }
        self.queue.close();
    }
}

fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
