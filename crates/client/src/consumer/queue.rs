//! Queues beside the consumer's own: of one partition, for another thread, or for a foreign event loop.

use std::fs::File;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use super::control::{Asked, Own};
use super::offsets::not_assigned;
use super::reader::Reader;
use super::view::Next;
use super::{Consumer, ConsumerControl, Control, Polled, StartAt, TopicPartition};
use crate::config::TopicConfig;
use crate::error::Error;
use crate::fetch::queue::{Bell, Queue};
use crate::record::OwnedRecord;

/// What comes of one partition, apart from the consumer's other partitions: for a thread of its own.
///
/// The group's events still come from the consumer, which must be polled for them. When the partition is taken back,
/// nothing more comes from here. Dropping it sends what comes next to the consumer's own queue again.
#[derive(Debug)]
pub struct PartitionQueue {
    pub(super) at: TopicPartition,
    pub(super) reader: Reader,
}

impl PartitionQueue {
    /// Which partition.
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

    /// Sends all that would come from here to another queue of the same consumer, from now on; `None` ends that.
    ///
    /// # Errors
    /// [`Error::Config`] if that would be a circle, or if the queues are of different consumers.
    pub fn forward_to(&mut self, other: Option<&Self>) -> Result<(), Error> {
        forward(&self.reader.queue, other.map(|other| &other.reader.queue))
    }

    /// Calls `wake` whenever something comes while there was nothing, from the engine's thread: it must not block.
    pub fn on_filled(&self, wake: impl Fn() + Send + Sync + 'static) {
        self.reader.queue.bell().listen(Some(Arc::new(wake)));
    }

    /// Writes `payload` whenever something comes while there was nothing: to a pipe or socket at whose other end an event
    /// loop waits. It must not block; what it does not take is left out, for then the loop has enough to read.
    pub fn write_when_filled(&self, to: File, payload: &[u8]) {
        write_when_filled(&self.reader.queue.bell(), to, payload);
    }

    /// Appends up to `max` records to `out` and says how many: those that there are, or, if there are none, the first
    /// that come within `timeout`. What is appended counts as done when more is asked for.
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
                Some(Next::Record(record)) => out.push(record.to_owned()),
                Some(Next::Event(_)) => {}
                None => break,
            }
            wait = Duration::ZERO;
        }
        Ok(out.len() - before)
    }

    /// Calls `each` with up to `max` records, and says with how many. If that is 0, `consume.callback.max.messages` is the
    /// limit, or, if that is 0 too, all that there are. Waits for the first for `timeout` at most.
    pub fn consume_each(
        &mut self,
        timeout: Duration,
        max: usize,
        mut each: impl FnMut(super::RecordView<'_>),
    ) -> Result<usize, Error> {
        let max = if max == 0 { self.reader.reading.config.callback_records_max } else { max };
        let (mut count, mut wait) = (0, timeout);
        while max == 0 || count < max {
            match self.next_record_blocking(wait)? {
                Some(Next::Record(record)) => {
                    each(record);
                    count += 1;
                }
                Some(Next::Event(_)) => {}
                None => break,
            }
            wait = Duration::ZERO;
        }
        Ok(count)
    }
}

impl ConsumerControl {
    /// A queue for this partition alone, with what was fetched of it and not polled yet.
    ///
    /// # Errors
    /// [`Error::NotAssigned`].
    pub fn split(&self, partition: &TopicPartition) -> Result<PartitionQueue, Error> {
        let ring = self.inbox.split(partition).ok_or_else(|| not_assigned(partition))?;
        let queue = Queue::of(&self.inbox, ring);
        Ok(PartitionQueue { at: partition.clone(), reader: Reader::new(queue, self.reading(), None) })
    }

    /// Consumes one more partition, from where it says; what is consumed of others goes on. Its records come from the
    /// consumer's own queue, or from one of their own after [`ConsumerControl::split`].
    ///
    /// # Errors
    /// [`Error::Config`] while a group assigns the partitions.
    pub fn start(&self, partition: &TopicPartition, from: StartAt) -> Asked<()> {
        self.start_with(partition, from, &TopicConfig::default())
    }

    /// [`ConsumerControl::start`], with commits and `auto.offset.reset` as this topic's settings have them; the others are the
    /// client's.
    ///
    /// # Errors
    /// As of [`ConsumerControl::start`].
    pub fn start_with(&self, partition: &TopicPartition, from: StartAt, settings: &TopicConfig) -> Asked<()> {
        let own = settings.over(&self.config);
        let own = Own {
            commits: own.started_auto_commit().then(|| own.started_commit_interval()),
            reset: own.offset_reset,
        };
        self.ask(|answer| Control::Start(partition.clone(), from, own, answer))
    }

    /// Consumes a partition no more; what was fetched of it and not polled is thrown away. If its commits are automatic,
    /// what is done of it is committed first.
    ///
    /// # Errors
    /// As of [`ConsumerControl::start`], and [`Error::NotAssigned`].
    pub fn stop(&self, partition: &TopicPartition) -> Asked<()> {
        self.ask(|answer| Control::Stop(partition.clone(), answer))
    }
}

impl Consumer {
    /// Sends all that would come from this consumer's own queue, events included, to one of its partition queues, from
    /// now on; `None` ends that.
    ///
    /// # Errors
    /// As of [`PartitionQueue::forward_to`].
    pub fn forward_to(&mut self, other: Option<&PartitionQueue>) -> Result<(), Error> {
        forward(&self.reader.queue, other.map(|other| &other.reader.queue))
    }

    /// Calls `wake` whenever something comes while there was nothing, from the engine's thread: it must not block.
    pub fn on_filled(&self, wake: impl Fn() + Send + Sync + 'static) {
        self.reader.queue.bell().listen(Some(Arc::new(wake)));
    }

    /// [`PartitionQueue::write_when_filled`], of the consumer's own queue.
    pub fn write_when_filled(&self, to: File, payload: &[u8]) {
        write_when_filled(&self.reader.queue.bell(), to, payload);
    }

    /// Consumes a partition no more; what was fetched of it and not polled is thrown away.
    ///
    /// # Errors
    /// As of [`ConsumerControl::start`], and [`Error::NotAssigned`].
    pub async fn stop(&mut self, partition: &TopicPartition) -> Result<(), Error> {
        self.reader.forget_handed_out(Some(partition));
        self.control.stop(partition).await
    }
}

fn forward(from: &Queue, to: Option<&Queue>) -> Result<(), Error> {
    if to.is_some_and(|to| !Arc::ptr_eq(from.inbox(), to.inbox())) {
        return Err(Error::Config("forward: the queues are of two consumers".into()));
    }
    if from.inbox().forward(from.ring(), to.map(Queue::ring)) {
        Ok(())
    } else {
        Err(Error::Config("forward: the other queue is forwarded to this one".into()))
    }
}

fn write_when_filled(bell: &Bell, to: File, payload: &[u8]) {
    let payload = payload.to_vec();
    bell.listen(Some(Arc::new(move || {
        let _ = (&to).write(&payload);
    })));
}
