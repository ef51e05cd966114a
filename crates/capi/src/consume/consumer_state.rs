//! The state of a consumer: its control, its queues and its subscription.

mod closing;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::time::Duration;

use ottla_client::{
    Client, Consumer, ConsumerControl, EngineReply, Error, Event, GroupMetadata, PartitionQueue, PolledHeld,
    PolledRecord, PolledRecords, RecordView, TopicPartition,
};

use crate::client::client_interceptors::ClientInterceptors;
use crate::client::handle::{CLOSE_TIMEOUT, Handle};
use crate::client::topic_handle::Topic;
use crate::consume::consumer_errors::{NO_PARTITION, error_message};
use crate::errors::error_mapping::of_protocol as code_of_broker;
use crate::errors::error_object::description;
use crate::ffi::*;
use crate::messages::message::OwnedMessage;
use crate::messages::message_slab::MessageFiller;
use crate::queue::message_array::MessageArray;
use crate::queue::op::Op;
use crate::queue::op_queue::{OpQueue, OpSource, QueueChange};

/// Time limit for the engine's answer to an operation.
pub(crate) const ENGINE_TIMEOUT: Duration = Duration::from_secs(30);

/// Time limit of a call whose caller sets none.
pub(crate) const CALL_TIMEOUT_MAX: Duration = Duration::from_secs(3600);

/// A consumer: its partitions, and the queues that receive its records.
pub(crate) struct ConsumerState {
    pub(crate) control: ConsumerControl,
    /// `rd_kafka_queue_get_consumer`: records, rebalances, errors of the group.
    pub(crate) queue: Arc<OpQueue>,
    /// Partitions with their own queue.
    queues: Mutex<BTreeMap<TopicPartition, PartitionQueueState>>,
    subscribed: Mutex<Vec<String>>,
    /// The offsets that the application passed with its assignment.
    passed_offsets: Mutex<BTreeMap<TopicPartition, i64>>,
    /// Partitions of the simple consumer that were stopped.
    stopped: Mutex<BTreeSet<TopicPartition>>,
    /// Partitions that the group has revoked by an operation of a queue, until they are assigned again.
    received_revocations: Mutex<BTreeSet<TopicPartition>>,
    /// The number of commits whose results are not in their queues yet.
    unreported_commits: Arc<AtomicUsize>,
    joined: AtomicBool,
    /// The consumer has a subscription, or is giving up its assignment since the subscription ended.
    has_protocol: AtomicBool,
    /// The group has assigned partitions, or none, since the subscription began.
    assigned_by_group: AtomicBool,
    /// The application closes the consumer through a queue.
    ending: AtomicBool,
    /// `true` from the loss of an assignment until the next one.
    pub(crate) lost: AtomicBool,
    closed: AtomicBool,
    closing: AtomicBool,
}

/// A partition's queue. It has its own source while it is not forwarded to the consumer's queue: in the current assignment of the
/// partition, and in later ones.
struct PartitionQueueState {
    queue: Arc<OpQueue>,
    apart: bool,
}

/// Reads records for the application, one thread at a time.
struct RecordReader<R> {
    reader: R,
    filler: MessageFiller,
    /// The topic of the last record, and the client's name for it.
    topic: Option<(Arc<str>, Arc<Topic>)>,
    handle: Weak<Handle>,
    interceptors: Option<Arc<ClientInterceptors>>,
    /// The operation that followed a batch of messages.
    pending: Option<Op>,
    /// The application applies assignments in its rebalance callback.
    tells: bool,
}

/// Records of the whole consumer as a source.
struct ConsumerSource {
    reader: Mutex<RecordReader<Consumer>>,
    control: ConsumerControl,
}

/// Records of one partition as a source.
struct PartitionSource {
    reader: Mutex<RecordReader<PartitionQueue>>,
    control: ConsumerControl,
    at: TopicPartition,
}

/// A source of records: the whole consumer or one partition.
trait NextRecord {
    fn next(&mut self) -> Result<Option<PolledRecord<'_>>, Error>;
    fn next_ones(
        &mut self,
        max: usize,
        take: impl FnMut(RecordView<'_>),
    ) -> Result<Option<PolledRecords>, Error>;
    fn hold_ones(
        &mut self,
        max: usize,
        take: impl FnMut(RecordView<'_>),
    ) -> Result<Option<PolledHeld>, Error>;
    /// The records that were fetched together with the last one and are left.
    fn unread(&self) -> usize;
}

impl NextRecord for Consumer {
    #[inline]
    fn next(&mut self) -> Result<Option<PolledRecord<'_>>, Error> {
        self.try_next_record()
    }

    #[inline]
    fn next_ones(
        &mut self,
        max: usize,
        take: impl FnMut(RecordView<'_>),
    ) -> Result<Option<PolledRecords>, Error> {
        self.try_next_records(max, take)
    }

    fn hold_ones(
        &mut self,
        max: usize,
        take: impl FnMut(RecordView<'_>),
    ) -> Result<Option<PolledHeld>, Error> {
        self.try_hold_records(max, take)
    }

    fn unread(&self) -> usize {
        self.unread_records()
    }
}

impl NextRecord for PartitionQueue {
    #[inline]
    fn next(&mut self) -> Result<Option<PolledRecord<'_>>, Error> {
        self.try_next_record()
    }

    #[inline]
    fn next_ones(
        &mut self,
        max: usize,
        take: impl FnMut(RecordView<'_>),
    ) -> Result<Option<PolledRecords>, Error> {
        self.try_next_records(max, take)
    }

    fn hold_ones(
        &mut self,
        max: usize,
        take: impl FnMut(RecordView<'_>),
    ) -> Result<Option<PolledHeld>, Error> {
        self.try_hold_records(max, take)
    }

    fn unread(&self) -> usize {
        self.unread_records()
    }
}

impl<R: NextRecord> RecordReader<R> {
    fn new(reader: R, handle: &Arc<Handle>) -> Self {
        let tells = handle.config.rebalance == ottla_client::Rebalance::Application;
        Self {
            reader,
            filler: MessageFiller::default(),
            topic: None,
            handle: Arc::downgrade(handle),
            interceptors: handle.client_interceptors.get().cloned(),
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
                Ok(Some(PolledRecord::Record(record))) => {
                    let topic = topic_of(&mut self.topic, &self.handle, &record)?;
                    let message = self.filler.message(topic, &record);
                    if let Some(interceptors) = &self.interceptors
                        && let Some(handle) = self.handle.upgrade()
                    {
                        interceptors.on_consume(&handle, message.as_raw());
                    }
                    return Some(Op::Message(message));
                }
                Ok(Some(PolledRecord::Event(event))) => event,
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
        // Interceptors see one message at a time.
        while count < out.len() && self.interceptors.is_none() && self.pending.is_none() {
            match self.fill_from_batch(&mut out[count..]) {
                Ok(Some(PolledRecords::Records(more))) => count += more,
                Ok(Some(PolledRecords::Event(event))) => self.pending = self.tell(event),
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

    /// Returns messages for the remaining records of one of the broker's batches.
    fn fill_from_batch(
        &mut self,
        out: &mut [*mut rd_kafka_message_t],
    ) -> Result<Option<PolledRecords>, Error> {
        let Self { reader, filler, topic, handle, .. } = self;
        let mut written = 0;
        let taken = reader.next_ones(out.len(), |record| {
            // All records of a batch belong to one partition. Without a handle no application reads them.
            if let Some(topic) = topic_of(topic, handle, &record) {
                out[written] = filler.message(topic, &record).into_raw();
                written += 1;
            }
        })?;
        Ok(match taken {
            Some(PolledRecords::Records(_)) => (written > 0).then_some(PolledRecords::Records(written)),
            other => other,
        })
    }

    /// Adds messages to an array until it is full, or until another operation precedes them, which then is returned.
    fn fill_array(&mut self, array: &mut MessageArray) -> Option<Op> {
        while array.has_room() {
            if let Some(op) = self.pending.take() {
                // An error, or the end of a partition, is a message.
                match array.take(op) {
                    Some(op) => return Some(op),
                    None => continue,
                }
            }
            let Self { reader, filler, topic, handle, interceptors, .. } = self;
            // Interceptors see one message at a time.
            let max = if interceptors.is_some() { 1 } else { array.room() };
            let taken = reader.hold_ones(max, |record| {
                // Without a handle no application reads the records.
                let Some(topic) = topic_of(topic, handle, &record) else { return };
                let message = filler.message(topic, &record);
                if let Some(interceptors) = interceptors
                    && let Some(handle) = handle.upgrade()
                {
                    interceptors.on_consume(&handle, message.as_raw());
                }
                array.push_held(message);
            });
            match taken {
                Ok(Some(PolledHeld::Records(held))) => array.hold(held),
                Ok(Some(PolledHeld::Event(event))) => self.pending = self.tell(event),
                Ok(Some(_)) => {}
                Ok(None) => {
                    self.filler.release();
                    return None;
                }
                Err(error) => self.pending = Some(Op::Message(error_message(&self.handle, &error))),
            }
        }
        None
    }

    /// The number of operations that it has taken from the client and not returned.
    fn len(&self) -> usize {
        usize::from(self.pending.is_some()) + self.reader.unread()
    }

    fn tell(&self, event: Event) -> Option<Op> {
        let handle = self.handle.upgrade()?;
        let consuming = handle.consumer_state()?;
        match event {
            Event::EndOfPartition { at, offset, node, high_watermark } => {
                let (code, topic) = (RD_KAFKA_RESP_ERR__PARTITION_EOF, handle.topic(&at.topic));
                let text = format!(
                    "Fetch from broker {node} reached end of partition at offset {offset} (HighwaterMark {high_watermark})"
                );
                let end = OwnedMessage::error(code, &text, Some(topic), at.partition, offset);
                Some(Op::Message(end.of_broker(node)))
            }
            Event::TopicUnavailable { topic, error } => {
                let code = code_of_broker(error);
                let reason = description(code).to_string_lossy();
                let text = format!("Subscribed topic not available: {topic}: {reason}");
                let (topic, none) = (handle.topic(&topic), NO_PARTITION);
                Some(Op::Message(OwnedMessage::error(
                    code,
                    &text,
                    Some(topic),
                    none,
                    RD_KAFKA_OFFSET_INVALID,
                )))
            }
            Event::Assigned(partitions) => {
                consuming.lost.store(false, Ordering::Relaxed);
                consuming.assigned_by_group.store(true, Ordering::Relaxed);
                lock(&consuming.received_revocations).retain(|at| !partitions.contains(at));
                let err = RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS;
                self.tells.then_some(Op::Rebalance { err, partitions, lost: false })
            }
            Event::Revoked(partitions) => {
                lock(&consuming.received_revocations).extend(partitions.iter().cloned());
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

/// The operations that a reader has taken and not returned. An interceptor of the thread that reads may ask: 0, then.
fn taken<R: NextRecord>(reader: &Mutex<RecordReader<R>>) -> usize {
    match reader.try_lock() {
        Ok(reader) => reader.len(),
        Err(TryLockError::Poisoned(reader)) => reader.into_inner().len(),
        Err(TryLockError::WouldBlock) => 0,
    }
}

impl OpSource for ConsumerSource {
    #[inline]
    fn draw(&self) -> Option<Op> {
        lock(&self.reader).draw()
    }

    fn fill(&self, out: &mut [*mut rd_kafka_message_t]) -> usize {
        lock(&self.reader).fill(out)
    }

    fn fill_array(&self, array: &mut MessageArray) -> Option<Op> {
        lock(&self.reader).fill_array(array)
    }

    fn len(&self) -> usize {
        self.control.waiting_items(None) + taken(&self.reader)
    }

    fn has_items(&self) -> bool {
        self.control.has_waiting_items(None) || taken(&self.reader) > 0
    }
}

impl OpSource for PartitionSource {
    #[inline]
    fn draw(&self) -> Option<Op> {
        lock(&self.reader).draw()
    }

    fn fill(&self, out: &mut [*mut rd_kafka_message_t]) -> usize {
        lock(&self.reader).fill(out)
    }

    fn fill_array(&self, array: &mut MessageArray) -> Option<Op> {
        lock(&self.reader).fill_array(array)
    }

    fn len(&self) -> usize {
        self.control.waiting_items(Some(&self.at)) + taken(&self.reader)
    }

    fn has_items(&self) -> bool {
        self.control.has_waiting_items(Some(&self.at)) || taken(&self.reader) > 0
    }
}

impl ConsumerState {
    pub(crate) fn new(handle: &Arc<Handle>, client: &Client) -> Arc<Self> {
        let consumer = client.consumer();
        let control = consumer.control().clone();
        let queue = OpQueue::new();
        let rings = Arc::downgrade(&queue);
        consumer.on_filled(move || {
            if let Some(queue) = rings.upgrade() {
                queue.ring();
            }
        });
        let reader = Mutex::new(RecordReader::new(consumer, handle));
        queue.set_source(Some(Arc::new(ConsumerSource { reader, control: control.clone() })));
        Arc::new(Self {
            control,
            queue,
            queues: Mutex::default(),
            subscribed: Mutex::default(),
            passed_offsets: Mutex::default(),
            stopped: Mutex::default(),
            received_revocations: Mutex::default(),
            unreported_commits: Arc::default(),
            joined: AtomicBool::new(false),
            has_protocol: AtomicBool::new(false),
            assigned_by_group: AtomicBool::new(false),
            ending: AtomicBool::new(false),
            lost: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            closing: AtomicBool::new(false),
        })
    }

    /// Returns the queue of one partition, and creates it on the first request. It is forwarded to the consumer's queue
    /// until the application changes that.
    pub(crate) fn queue_of(&self, at: &TopicPartition) -> Arc<OpQueue> {
        let (own, change) = {
            let mut queues = lock(&self.queues);
            if let Some(own) = queues.get(at) {
                return own.queue.clone();
            }
            let own = OpQueue::new();
            let change = own.change_forward(Some(&self.queue));
            let state = PartitionQueueState { queue: own.clone(), apart: false };
            queues.insert(at.clone(), state);
            (own, change)
        };
        change.into_iter().for_each(QueueChange::finish);
        own
    }

    /// Handles a change of forwarding: the records of a partition's queue go to the new target.
    pub(crate) fn forwarded(&self, handle: &Arc<Handle>, queue: &Arc<OpQueue>, to: Option<&Arc<OpQueue>>) {
        if let Some(change) = self.change_forwarded(handle, queue, to) {
            change.finish();
        }
    }

    fn change_forwarded(
        &self,
        handle: &Arc<Handle>,
        queue: &Arc<OpQueue>,
        to: Option<&Arc<OpQueue>>,
    ) -> Option<QueueChange> {
        let mut queues = lock(&self.queues);
        let (at, own) = queues.iter_mut().find(|(_, own)| Arc::ptr_eq(&own.queue, queue))?;
        let apart = to.is_none_or(|to| !Arc::ptr_eq(to, &self.queue));
        if std::mem::replace(&mut own.apart, apart) == apart {
            // The source goes along with the queue, with the records that it has.
            return None;
        }
        if !apart {
            return Some(own.queue.change_source(None));
        }
        let split = self.control.split_kept(at);
        let rings = Arc::downgrade(&own.queue);
        split.on_filled(move || {
            if let Some(queue) = rings.upgrade() {
                queue.ring();
            }
        });
        let reader = Mutex::new(RecordReader::new(split, handle));
        let source = PartitionSource { reader, control: self.control.clone(), at: at.clone() };
        Some(own.queue.change_source(Some(Arc::new(source))))
    }

    /// The application assigned these partitions, in place of all others if `replaces`.
    pub(crate) fn note_assigned(&self, partitions: Vec<(TopicPartition, i64)>, replaces: bool) {
        let mut passed = lock(&self.passed_offsets);
        if replaces {
            passed.clear();
        }
        passed.extend(partitions);
    }

    /// The assigned partitions with the offsets that the application passed.
    pub(crate) fn assigned_offsets(&self) -> Vec<(TopicPartition, i64)> {
        let passed = lock(&self.passed_offsets);
        let offset = |at: &TopicPartition| passed.get(at).copied().unwrap_or(RD_KAFKA_OFFSET_INVALID);
        self.control.assignment().into_iter().map(|at| (at.clone(), offset(&at))).collect()
    }

    pub(crate) fn note_stopped(&self, at: TopicPartition) {
        lock(&self.stopped).insert(at);
    }

    pub(crate) fn was_stopped(&self, at: &TopicPartition) -> bool {
        lock(&self.stopped).contains(at)
    }

    /// Ends the queue of a partition that is no longer consumed.
    pub(crate) fn forget_queue(&self, at: &TopicPartition) {
        let own = lock(&self.queues).remove(at);
        if let Some(own) = own {
            own.queue.close();
        }
    }

    /// Returns the member's identity. As in the original, a closed consumer has none.
    pub(crate) fn group_metadata(&self) -> Result<GroupMetadata, Error> {
        if self.is_closed() {
            return Err(Error::Closed);
        }
        self.control.group_metadata().wait(ENGINE_TIMEOUT)
    }

    pub(crate) fn subscribe(&self, topics: Vec<String>) -> Result<(), Error> {
        let names: Vec<&str> = topics.iter().map(String::as_str).collect();
        if !self.has_protocol() {
            self.assigned_by_group.store(false, Ordering::Relaxed);
        }
        self.control.subscribe(&names).wait(ENGINE_TIMEOUT)?;
        self.joined.store(true, Ordering::Relaxed);
        self.has_protocol.store(true, Ordering::Relaxed);
        *lock(&self.subscribed) = topics;
        Ok(())
    }

    /// Ends the subscription. If the application applies assignments itself, a later poll returns the revocation, and the
    /// consumer leaves the group when the application has given up its partitions.
    pub(crate) fn unsubscribe(&self, handle: &Handle) {
        self.give_up(handle, |control| control.unsubscribe(CLOSE_TIMEOUT));
    }

    /// The same before a close.
    pub(crate) fn unsubscribe_to_close(&self, handle: &Handle) {
        self.give_up(handle, |control| control.unsubscribe_to_close(CLOSE_TIMEOUT));
    }

    fn give_up(&self, handle: &Handle, leave: impl FnOnce(&ConsumerControl) -> EngineReply<()>) {
        lock(&self.subscribed).clear();
        if self.joined.swap(false, Ordering::Relaxed) {
            // The application does not wait: the engine leaves the group before it performs the next operation.
            drop(leave(&self.control));
            let applies = handle.config.rebalance == ottla_client::Rebalance::Application;
            let gives_up = applies && !self.control.assignment().is_empty();
            self.has_protocol.store(gives_up, Ordering::Relaxed);
        }
    }

    /// The application changed the assignment: a consumer without subscription and partitions has no protocol.
    pub(crate) fn note_given_up(&self) {
        if !self.is_member() && self.control.assignment().is_empty() {
            self.has_protocol.store(false, Ordering::Relaxed);
        }
    }

    /// Returns `true` while the group's protocol applies to the assignment: also in the rebalance callback of an
    /// unsubscribe or a close.
    pub(crate) fn has_protocol(&self) -> bool {
        self.has_protocol.load(Ordering::Relaxed)
    }

    /// Returns `true` if the group has decided on an assignment since the subscription began.
    pub(crate) fn was_assigned_by_group(&self) -> bool {
        self.assigned_by_group.load(Ordering::Relaxed)
    }

    /// The application begins to close the consumer through a queue.
    pub(crate) fn note_ending(&self) {
        self.ending.store(true, Ordering::Relaxed);
    }

    /// Returns `true` from the beginning of a close on.
    pub(crate) fn is_ending(&self) -> bool {
        self.is_closing() || self.ending.load(Ordering::Relaxed)
    }

    /// Returns `true` from the loss of the assignment until the next one, also before a poll has returned the loss.
    pub(crate) fn has_lost_assignment(&self) -> bool {
        self.lost.load(Ordering::Relaxed) || self.control.has_unseen_loss()
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

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// Lets go of everything.
    pub(crate) fn end(&self) {
        // After a destroy without a close, too, a close through a queue ends its wait.
        self.closing.store(true, Ordering::Release);
        let queues = std::mem::take(&mut *lock(&self.queues));
        for own in queues.into_values() {
            own.queue.close();
        }
        self.queue.close();
    }
}

fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
