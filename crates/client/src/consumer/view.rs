//! Access to single records.

use std::time::Duration;

use bytes::Bytes;
use ottla_wire::{BatchHeader, HeadersRef, RecordRef, Records, TimestampType};

use super::batch::own;
use super::held::HeldRecords;
use super::open_chunk::{OpenChunk, corrupt};
use super::reader::{NextChunk, Reader};
use super::{Consumer, Event, PartitionQueue, TopicPartition};
use crate::blocking;
use crate::error::Error;
use crate::fetch::inbox::Chunk;
use crate::record::OwnedRecord;
use crate::timer;

/// The result of [`Consumer::next_record`].
#[derive(Debug)]
#[non_exhaustive]
pub enum PolledRecord<'a> {
    /// The next record.
    Record(RecordView<'a>),
    /// A change of the assignment, or the end of a partition.
    Event(Event),
}

/// A record in place, borrowed until the next call.
#[derive(Clone, Copy, Debug)]
pub struct RecordView<'a> {
    at: &'a TopicPartition,
    record: RecordRef<'a>,
    block: &'a Bytes,
    header: &'a BatchHeader,
    node: i32,
}

impl<'a> RecordView<'a> {
    #[inline]
    pub(crate) fn new(at: &'a TopicPartition, record: RecordRef<'a>, of: &'a Records, node: i32) -> Self {
        Self { at, record, block: of.block(), header: of.header(), node }
    }

    /// The topic.
    pub fn topic(&self) -> &'a str {
        &self.at.topic
    }

    /// The partition.
    pub fn partition(&self) -> i32 {
        self.at.partition
    }

    /// The topic and the partition.
    pub fn at(&self) -> &'a TopicPartition {
        self.at
    }

    /// The record, as in [`Batch::iter`](super::Batch::iter).
    pub fn record(&self) -> RecordRef<'a> {
        self.record
    }

    /// The offset.
    pub fn offset(&self) -> i64 {
        self.record.offset
    }

    /// The timestamp in milliseconds since 1970; -1 if the record has none.
    pub fn timestamp_ms(&self) -> i64 {
        self.record.timestamp
    }

    /// The key; `None` is null.
    pub fn key(&self) -> Option<&'a [u8]> {
        self.record.key
    }

    /// The value; `None` is null, a tombstone in a compacted topic.
    pub fn value(&self) -> Option<&'a [u8]> {
        self.record.value
    }

    /// Returns `true` if the broker set the timestamp when it appended the record
    /// (`message.timestamp.type=LogAppendTime`).
    pub fn is_timestamp_of_append(&self) -> bool {
        self.header.timestamp_type() == TimestampType::LogAppendTime
    }

    /// The epoch of the leader that appended the record; -1 if the broker did not report it.
    pub fn leader_epoch(&self) -> i32 {
        self.header.partition_leader_epoch
    }

    /// The id of the node that the record was fetched from.
    pub fn node(&self) -> i32 {
        self.node
    }

    /// The memory of the record: a clone of it keeps key, value and headers valid.
    pub fn memory(&self) -> &'a Bytes {
        self.block
    }

    /// The encoded headers.
    pub fn raw_headers(&self) -> HeadersRef<'a> {
        self.record.headers
    }

    /// Names and values of the headers, in order.
    pub fn headers(&self) -> impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)> + use<'a> {
        self.record.headers.iter()
    }

    /// Returns a record that shares the memory of the response and keeps it alive: see [`OwnedRecord::compact`].
    pub fn to_owned(&self) -> OwnedRecord {
        own(&self.record, self.block)
    }
}

/// The result of [`Consumer::try_next_records`].
#[derive(Debug)]
#[non_exhaustive]
pub enum PolledRecords {
    /// The number of records, at least one.
    Records(usize),
    /// A change of the assignment, or the end of a partition.
    Event(Event),
}

/// The result of [`Consumer::try_hold_records`].
#[derive(Debug)]
#[non_exhaustive]
pub enum PolledHeld {
    /// The records that were passed, at least one.
    Records(HeldRecords),
    /// A change of the assignment, or the end of a partition.
    Event(Event),
}

/// The result of a check of the queue for the next record.
enum ReadStep {
    Record,
    Event(Event),
    Nothing,
}

impl Consumer {
    /// Returns the next record, or the next change of the assignment; `None` after `timeout`.
    ///
    /// The call marks the previous record as processed (unless `enable.auto.offset.store` is off), so that it can be
    /// committed. It copies, allocates and locks nothing per record, and can be mixed with `poll`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ottla_client::{Config, Consumer, PolledRecord, Producer, Record, StartAt, TopicPartition};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), ottla_client::Error> {
    /// # let broker = ottla_broker::Broker::builder().memory().topic("orders", 1).spawn().expect("a broker in memory");
    /// let producer = Producer::new(Config::new(broker.bootstrap_servers()))?;
    /// producer.send(Record::to("orders").value("paid")).await?;
    ///
    /// let mut consumer = Consumer::new(Config::new(broker.bootstrap_servers()))?;
    /// consumer.assign(&[(TopicPartition::new("orders", 0), StartAt::Beginning)]).await?;
    /// if let Some(PolledRecord::Record(record)) = consumer.next_record(Duration::from_secs(10)).await? {
    ///     assert_eq!((record.offset(), record.value()), (0, Some(&b"paid"[..])));
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The errors of [`Consumer::poll`]. Cancel safe.
    #[inline]
    pub async fn next_record(&mut self, timeout: Duration) -> Result<Option<PolledRecord<'_>>, Error> {
        self.reader.begin();
        let step = self.reader.step_within(timeout).await?;
        self.note_step(&step);
        self.reader.show(step)
    }

    /// [`Consumer::next_record`] without waiting.
    #[inline]
    pub fn try_next_record(&mut self) -> Result<Option<PolledRecord<'_>>, Error> {
        self.reader.begin();
        let step = self.reader.step()?;
        self.note_step(&step);
        self.reader.show(step)
    }

    /// Passes up to `max` of the next records to `take`, without waiting. All are of one record batch, so a call may pass
    /// fewer than are available. Returns `None` when there are none.
    ///
    /// The next call marks all records of this one as processed. The borrowed views end with each call of `take`.
    ///
    /// # Errors
    /// The errors of [`Consumer::poll`]; records before an unreadable one are passed first.
    #[inline]
    pub fn try_next_records(
        &mut self,
        max: usize,
        take: impl FnMut(RecordView<'_>),
    ) -> Result<Option<PolledRecords>, Error> {
        self.reader.begin();
        let step = self.reader.step()?;
        self.note_step(&step);
        self.reader.show_many(step, max, take)
    }

    /// [`Consumer::try_next_records`] for records that count as processed when [`HeldRecords::finish`] is called, and not
    /// by the next call.
    ///
    /// # Errors
    /// Those of [`Consumer::try_next_records`].
    pub fn try_hold_records(
        &mut self,
        max: usize,
        take: impl FnMut(RecordView<'_>),
    ) -> Result<Option<PolledHeld>, Error> {
        self.reader.begin();
        let step = self.reader.step()?;
        self.note_step(&step);
        self.reader.hold_many(step, max, take)
    }

    /// [`Consumer::next_record`] for threads without a runtime.
    #[inline]
    pub fn next_record_blocking(&mut self, timeout: Duration) -> Result<Option<PolledRecord<'_>>, Error> {
        self.reader.begin();
        let step = self.reader.step_blocking(timeout)?;
        self.note_step(&step);
        self.reader.show(step)
    }

    /// Passes an event to the application's listener.
    #[inline]
    fn note_step(&mut self, step: &ReadStep) {
        if let ReadStep::Event(event) = step {
            self.note_event(event);
        }
    }
}

impl PartitionQueue {
    /// [`Consumer::next_record`], of this queue.
    #[inline]
    pub async fn next_record(&mut self, timeout: Duration) -> Result<Option<PolledRecord<'_>>, Error> {
        self.reader.begin();
        let step = self.reader.step_within(timeout).await?;
        self.reader.show(step)
    }

    /// [`PartitionQueue::next_record`] without waiting.
    #[inline]
    pub fn try_next_record(&mut self) -> Result<Option<PolledRecord<'_>>, Error> {
        self.reader.begin();
        let step = self.reader.step()?;
        self.reader.show(step)
    }

    /// [`Consumer::try_next_records`], of this queue.
    #[inline]
    pub fn try_next_records(
        &mut self,
        max: usize,
        take: impl FnMut(RecordView<'_>),
    ) -> Result<Option<PolledRecords>, Error> {
        self.reader.begin();
        let step = self.reader.step()?;
        self.reader.show_many(step, max, take)
    }

    /// [`Consumer::try_hold_records`], of this queue.
    pub fn try_hold_records(
        &mut self,
        max: usize,
        take: impl FnMut(RecordView<'_>),
    ) -> Result<Option<PolledHeld>, Error> {
        self.reader.begin();
        let step = self.reader.step()?;
        self.reader.hold_many(step, max, take)
    }

    /// [`PartitionQueue::next_record`] for threads without a runtime.
    #[inline]
    pub fn next_record_blocking(&mut self, timeout: Duration) -> Result<Option<PolledRecord<'_>>, Error> {
        self.reader.begin();
        let step = self.reader.step_blocking(timeout)?;
        self.reader.show(step)
    }
}

impl Reader {
    #[inline]
    async fn step_within(&mut self, timeout: Duration) -> Result<ReadStep, Error> {
        let mut step = self.step()?;
        if matches!(step, ReadStep::Nothing) {
            let polls = self.counted_polls();
            let _waiting = polls.as_ref().map(|polls| polls.wait());
            let deadline = timer::deadline_after(timeout);
            while matches!(step, ReadStep::Nothing) {
                let signal = self.queue.signal();
                let in_time = timer::timeout_at(deadline, signal.filled.notified()).await.is_some();
                step = self.step()?;
                if !in_time {
                    break;
                }
            }
        }
        Ok(step)
    }

    #[inline]
    fn step_blocking(&mut self, timeout: Duration) -> Result<ReadStep, Error> {
        let mut step = self.step();
        if matches!(step, Ok(ReadStep::Nothing)) {
            let polls = self.counted_polls();
            let _waiting = polls.as_ref().map(|polls| polls.wait());
            let signal = self.queue.signal();
            blocking::wait_until(timeout, &signal.filled, || {
                step = self.step();
                !matches!(step, Ok(ReadStep::Nothing))
            });
        }
        step
    }

    /// Moves to the next record, if there is one, without reading it. Events come before the rest of the open batch: an
    /// application that polls slowly must not delay a rebalance by a batch (librdkafka's test 0113).
    #[inline]
    fn step(&mut self) -> Result<ReadStep, Error> {
        if self.has_record() && !self.queue.has_events() { Ok(ReadStep::Record) } else { self.step_far() }
    }

    /// Returns `true` if the open batch has another record.
    #[inline]
    fn has_record(&self) -> bool {
        self.opened.as_ref().is_some_and(|opened| {
            opened.chunk.is_readable() && opened.set.as_ref().is_some_and(|(set, mark)| set.has_more(mark))
        })
    }

    /// Moves to the next batch or chunk.
    fn step_far(&mut self) -> Result<ReadStep, Error> {
        loop {
            match self.open()? {
                NextChunk::Opened => {}
                NextChunk::Event(event) => return Ok(ReadStep::Event(event)),
                NextChunk::Nothing => return Ok(ReadStep::Nothing),
            }
            // The event before this one may have arrived in the middle of a batch.
            if self.has_record() || (self.next_set()? && self.has_record()) {
                return Ok(ReadStep::Record);
            }
        }
    }

    #[inline]
    fn show(&mut self, step: ReadStep) -> Result<Option<PolledRecord<'_>>, Error> {
        match step {
            ReadStep::Record => {}
            ReadStep::Event(event) => return Ok(Some(PolledRecord::Event(event))),
            ReadStep::Nothing => return Ok(None),
        }
        let Some(opened) = &mut self.opened else { return Ok(None) };
        let Chunk { progress, generation, node, .. } = &opened.chunk;
        let Some((set, mark)) = &mut opened.set else { return Ok(None) };
        match set.next_at(mark) {
            Some(Ok(record)) => {
                opened.reached = record.offset + 1;
                self.in_hand = self.reading.give(progress, *generation, opened.reached);
                Ok(Some(PolledRecord::Record(RecordView::new(&progress.at, record, set, *node))))
            }
            Some(Err(error)) => {
                let error = corrupt(&progress.at, set.header().base_offset, &error);
                progress.stop();
                Err(error)
            }
            None => Ok(None),
        }
    }

    /// Passes records of one set until it ends.
    #[inline]
    fn show_many(
        &mut self,
        step: ReadStep,
        max: usize,
        take: impl FnMut(RecordView<'_>),
    ) -> Result<Option<PolledRecords>, Error> {
        match step {
            ReadStep::Record => {}
            ReadStep::Event(event) => return Ok(Some(PolledRecords::Event(event))),
            ReadStep::Nothing => return Ok(None),
        }
        let Some(opened) = &mut self.opened else { return Ok(None) };
        let Some(passed) = opened.pass_many(max, take)? else { return Ok(None) };
        opened.reached = passed.next;
        self.in_hand = self.reading.give(&opened.chunk.progress, opened.chunk.generation, passed.next);
        Ok(Some(PolledRecords::Records(passed.count)))
    }

    /// The same, for records that the caller holds.
    fn hold_many(
        &mut self,
        step: ReadStep,
        max: usize,
        take: impl FnMut(RecordView<'_>),
    ) -> Result<Option<PolledHeld>, Error> {
        match step {
            ReadStep::Record => {}
            ReadStep::Event(event) => return Ok(Some(PolledHeld::Event(event))),
            ReadStep::Nothing => return Ok(None),
        }
        let Some(opened) = &mut self.opened else { return Ok(None) };
        let Some(Passed { first, next, count }) = opened.pass_many(max, take)? else { return Ok(None) };
        opened.reached = next;
        let Chunk { progress, generation, .. } = &opened.chunk;
        progress.set_position_in(*generation, next);
        let stores = self.reading.config.enable_auto_offset_store;
        Ok(Some(PolledHeld::Records(HeldRecords::new((progress, *generation), (first, next), count, stores))))
    }
}

/// The records that were passed to the caller: the first offset, the one after the last, and their number.
struct Passed {
    first: i64,
    next: i64,
    count: usize,
}

impl OpenChunk {
    /// Passes records of the open batch until it ends.
    #[inline]
    fn pass_many(
        &mut self,
        max: usize,
        mut take: impl FnMut(RecordView<'_>),
    ) -> Result<Option<Passed>, Error> {
        let (progress, node) = (&self.chunk.progress, self.chunk.node);
        let Some((set, mark)) = &mut self.set else { return Ok(None) };
        let (mut count, mut first, mut next) = (0, 0, 0);
        let mut walk = set.iter_from(mark);
        let unreadable = loop {
            if count == max {
                break None;
            }
            match walk.next() {
                Some(Ok(record)) => {
                    if count == 0 {
                        first = record.offset;
                    }
                    next = record.offset + 1;
                    count += 1;
                    take(RecordView::new(&progress.at, record, set, node));
                }
                Some(Err(error)) => break Some(error),
                None => break None,
            }
        };
        match unreadable {
            None => *mark = set.mark_of(&walk),
            // The next call reaches and reports the error again.
            Some(_) if count > 0 && set.skip_at(mark, count as u32).is_ok() => {}
            Some(error) => {
                let error = corrupt(&progress.at, set.header().base_offset, &error);
                progress.stop();
                return Err(error);
            }
        }
        Ok((count > 0).then_some(Passed { first, next, count }))
    }
}
