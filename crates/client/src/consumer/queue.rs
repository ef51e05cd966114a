//! Queues of single partitions, and wake-ups for event loops.

use std::fs::File;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use super::EngineReply;
use super::reader::Reader;
use super::view::PolledRecord;
use super::{Consumer, ConsumerCommand, ConsumerControl, Polled, StartAt, TopicPartition};
use crate::config::TopicConfig;
use crate::error::Error;
use crate::fetch::offset_files::OffsetFileSettings;
use crate::fetch::queue::{Queue, QueueSignal};
use crate::group::commands::StartOptions;
use crate::panics::guarded;
use crate::record::OwnedRecord;

/// A queue with the records of one partition, for another thread.
///
/// The consumer still returns the group's events, and must be polled for them, unless it is forwarded to a queue
/// ([`Consumer::forward_to`]): that one is polled in its place. The queue returns nothing after the
/// partition is revoked, unless it is kept ([`ConsumerControl::split_kept`]): it returns the records of the next assignment, then.
/// Dropping it returns later records to the consumer's own queue.
#[derive(Debug)]
pub struct PartitionQueue {
    pub(super) at: TopicPartition,
    pub(super) reader: Reader,
}

impl Drop for PartitionQueue {
    /// The records that were not returned go back to the consumer.
    fn drop(&mut self) {
        self.reader.put_back_rest();
    }
}

impl PartitionQueue {
    /// Returns the partition.
    pub fn at(&self) -> &TopicPartition {
        &self.at
    }

    /// [`Consumer::poll`], of this queue.
    pub async fn poll(&mut self, timeout: Duration) -> Result<Option<Polled>, Error> {
        self.reader.begin();
        self.reader.poll(timeout).await
    }

    /// [`PartitionQueue::poll`] for threads without a runtime.
    pub fn poll_blocking(&mut self, timeout: Duration) -> Result<Option<Polled>, Error> {
        self.reader.begin();
        self.reader.poll_blocking(timeout)
    }

    /// Forwards the items of this queue to another queue of the same consumer; `None` ends forwarding.
    ///
    /// # Errors
    /// [`Error::Config`] if forwarding would form a cycle, or the queues belong to different consumers.
    pub fn forward_to(&mut self, other: Option<&Self>) -> Result<(), Error> {
        forward(&self.reader.queue, other.map(|other| &other.reader.queue))
    }

    /// [`Consumer::unread_records`], of this queue.
    pub fn unread_records(&self) -> usize {
        self.reader.unread_records()
    }

    /// Calls `wake` whenever the empty queue gets an item, in the engine's thread. `wake` must not block.
    pub fn on_filled(&self, wake: impl Fn() + Send + Sync + 'static) {
        self.reader.queue.signal().listen(Some(Arc::new(guarded(wake))));
    }

    /// Writes `payload` to a pipe or socket whenever the empty queue gets an item, to wake an event loop at its other end.
    /// The file must not block; a write that it does not accept is skipped, because the loop then has input already.
    pub fn write_when_filled(&self, to: File, payload: &[u8]) {
        write_when_filled(&self.reader.queue.signal(), to, payload);
    }

    /// Appends up to `max` records to `out` and returns their number. An empty queue waits up to `timeout` for the first.
    /// The next call marks these records as processed.
    pub fn consume_batch(
        &mut self,
        timeout: Duration,
        max: usize,
        out: &mut Vec<OwnedRecord>,
    ) -> Result<usize, Error> {
        let before = out.len();
        let mut wait = timeout;
        while out.len() - before < max {
            match self.next_record_blocking(wait)? {
                Some(PolledRecord::Record(record)) => out.push(record.to_owned()),
                Some(PolledRecord::Event(_)) => {}
                None => break,
            }
            wait = Duration::ZERO;
        }
        Ok(out.len() - before)
    }

    /// Calls `each` with up to `max` records and returns their number. With 0, `consume.callback.max.messages` is the limit;
    /// 0 there means no limit. Waits up to `timeout` for the first record.
    pub fn consume_each(
        &mut self,
        timeout: Duration,
        max: usize,
        mut each: impl FnMut(super::RecordView<'_>),
    ) -> Result<usize, Error> {
        let max = if max == 0 { self.reader.reading.config.consume_callback_max_messages } else { max };
        let (mut count, mut wait) = (0, timeout);
        while max == 0 || count < max {
            match self.next_record_blocking(wait)? {
                Some(PolledRecord::Record(record)) => {
                    each(record);
                    count += 1;
                }
                Some(PolledRecord::Event(_)) => {}
                None => break,
            }
            wait = Duration::ZERO;
        }
        Ok(count)
    }
}

impl ConsumerControl {
    /// Creates a queue for this partition alone, with its fetched records.
    ///
    /// # Errors
    /// [`Error::NotAssigned`].
    pub fn split(&self, partition: &TopicPartition) -> Result<PartitionQueue, Error> {
        let ring = self.inbox.split(partition).ok_or_else(|| partition.not_assigned())?;
        let queue = Queue::of(&self.inbox, ring);
        Ok(PartitionQueue { at: partition.clone(), reader: Reader::new(queue, self) })
    }

    /// Creates a queue for this partition alone, in its current assignment and in all later ones, until the queue is dropped. The
    /// partition need not be assigned yet. A second queue for the partition takes the place of the first one.
    pub fn split_kept(&self, partition: &TopicPartition) -> PartitionQueue {
        let queue = Queue::of(&self.inbox, self.inbox.split_kept(partition));
        PartitionQueue { at: partition.clone(), reader: Reader::new(queue, self) }
    }

    /// Starts to consume one more partition from a position. Its records are in the consumer's own queue, or in the
    /// partition's queue after [`ConsumerControl::split`]. A committed offset is looked up later, with retries.
    /// A partition that was started before continues at the new position, with its earlier settings.
    ///
    /// # Errors
    /// [`Error::Config`] while a group assigns the partitions, and for a committed offset with neither `group.id` nor offset files.
    pub fn start(&self, partition: &TopicPartition, from: StartAt) -> EngineReply<()> {
        self.start_with(partition, from, &TopicConfig::default())
    }

    /// [`ConsumerControl::start`] with this topic's settings for commits, offset files and `auto.offset.reset`; other
    /// settings are the client's.
    ///
    /// # Errors
    /// The errors of [`ConsumerControl::start`].
    pub fn start_with(
        &self,
        partition: &TopicPartition,
        from: StartAt,
        settings: &TopicConfig,
    ) -> EngineReply<()> {
        let config = settings.over(&self.config);
        let options = StartOptions {
            commits: config.topic_auto_commit_enable().then(|| config.topic_auto_commit_interval()),
            reset: config.auto_offset_reset,
            files: OffsetFileSettings::of(&config),
        };
        self.ask(|answer| ConsumerCommand::Start(partition.clone(), from, options, answer))
    }

    /// Stops consuming a partition and drops its fetched records. With automatic commits, its processed offset is committed
    /// first.
    ///
    /// # Errors
    /// The errors of [`ConsumerControl::start`], and [`Error::NotAssigned`].
    pub fn stop(&self, partition: &TopicPartition) -> EngineReply<()> {
        self.ask(|answer| ConsumerCommand::Stop(partition.clone(), answer))
    }
}

impl Consumer {
    /// Forwards the items of this consumer's own queue, including events, to one of its partition queues; `None` ends
    /// forwarding.
    ///
    /// # Errors
    /// The errors of [`PartitionQueue::forward_to`].
    pub fn forward_to(&mut self, other: Option<&PartitionQueue>) -> Result<(), Error> {
        forward(&self.reader.queue, other.map(|other| &other.reader.queue))
    }

    /// Returns the number of records that were fetched together with the last returned one and are still to be returned.
    pub fn unread_records(&self) -> usize {
        self.reader.unread_records()
    }

    /// Calls `wake` whenever the empty queue gets an item, in the engine's thread. `wake` must not block.
    pub fn on_filled(&self, wake: impl Fn() + Send + Sync + 'static) {
        self.reader.queue.signal().listen(Some(Arc::new(guarded(wake))));
    }

    /// [`PartitionQueue::write_when_filled`], of the consumer's own queue.
    pub fn write_when_filled(&self, to: File, payload: &[u8]) {
        write_when_filled(&self.reader.queue.signal(), to, payload);
    }

    /// Stops consuming a partition and drops its fetched records.
    ///
    /// # Errors
    /// The errors of [`ConsumerControl::start`], and [`Error::NotAssigned`].
    pub async fn stop(&mut self, partition: &TopicPartition) -> Result<(), Error> {
        self.reader.forget_handed_out(Some(partition));
        self.control.stop(partition).await
    }
}

fn forward(from: &Queue, to: Option<&Queue>) -> Result<(), Error> {
    if to.is_some_and(|to| !Arc::ptr_eq(from.inbox(), to.inbox())) {
        return Err(Error::Config("forward: the queues are of two consumers".into()));
    }
    if from.inbox().forward(from.id(), to.map(Queue::id)) {
        Ok(())
    } else {
        Err(Error::Config("forward: the other queue is forwarded to this one".into()))
    }
}

fn write_when_filled(signal: &QueueSignal, to: File, payload: &[u8]) {
    let payload = payload.to_vec();
    signal.listen(Some(Arc::new(move || {
        let _ = (&to).write(&payload);
    })));
}
