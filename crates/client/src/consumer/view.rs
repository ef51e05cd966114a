//! Records one at a time.

use std::time::Duration;

use bytes::Bytes;
use ottla_wire::{BatchHeader, HeadersRef, RecordRef, Records, TimestampType};

use super::batch::own;
use super::opened::corrupt;
use super::reader::{Found, Reader};
use super::{Consumer, Event, PartitionQueue, TopicPartition};
use crate::blocking;
use crate::error::Error;
use crate::record::OwnedRecord;
use crate::timer;

/// What [`Consumer::next_record`] returns.
#[derive(Debug)]
#[non_exhaustive]
pub enum Next<'a> {
    /// The next record.
    Record(RecordView<'a>),
    /// A change of the assignment, or the end of a partition.
    Event(Event),
}

/// One record where it lies, until the next one is asked for.
#[derive(Clone, Copy, Debug)]
pub struct RecordView<'a> {
    at: &'a TopicPartition,
    record: RecordRef<'a>,
    block: &'a Bytes,
    header: &'a BatchHeader,
}

impl<'a> RecordView<'a> {
    #[inline]
    pub(super) fn new(at: &'a TopicPartition, record: RecordRef<'a>, of: &'a Records) -> Self {
        Self { at, record, block: of.block(), header: of.header() }
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

    /// The record as [`Batch::iter`](super::Batch::iter) gives it.
    pub fn record(&self) -> RecordRef<'a> {
        self.record
    }

    /// The offset.
    pub fn offset(&self) -> i64 {
        self.record.offset
    }

    /// Milliseconds since 1970; -1 if it has none.
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

    /// Whether the timestamp is the broker's, of when it appended the record (`message.timestamp.type=LogAppendTime`), and
    /// not the producer's.
    pub fn is_timestamp_of_append(&self) -> bool {
        self.header.timestamp_type() == TimestampType::LogAppendTime
    }

    /// The epoch of the leader that appended it; -1 from a broker that does not say.
    pub fn leader_epoch(&self) -> i32 {
        self.header.partition_leader_epoch
    }

    /// What the record lies in: whoever holds a clone of it may go on reading key, value and headers where they are.
    pub fn memory(&self) -> &'a Bytes {
        self.block
    }

    /// The headers as they lie there.
    pub fn raw_headers(&self) -> HeadersRef<'a> {
        self.record.headers
    }

    /// Names and values of the headers, in order.
    pub fn headers(&self) -> impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)> + use<'a> {
        self.record.headers.iter()
    }

    /// The record with a share of the response it lies in, which stays in memory as long as the record does: see
    /// [`OwnedRecord::compact`].
    pub fn to_owned(&self) -> OwnedRecord {
        own(&self.record, self.block)
    }
}

/// What [`Consumer::try_next_records`] found.
#[derive(Debug)]
#[non_exhaustive]
pub enum Taken {
    /// So many records were given, at least one.
    Records(usize),
    /// A change of the assignment, or the end of a partition.
    Event(Event),
}

/// What one look has found.
enum Step {
    Record,
    Event(Event),
    Nothing,
}

impl Consumer {
    /// The next record, or the next change of the assignment; `None` when `timeout` passes first.
    ///
    /// Asking for the next record says that the one before is done (unless `enable.auto.offset.store` is off): it may be
    /// committed from now on. Nothing is copied, allocated or locked for a record; `poll` and this can be mixed.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ottla_client::{Config, Consumer, Next, Producer, Record, StartAt, TopicPartition};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), ottla_client::Error> {
    /// # let broker = ottla_broker::Broker::builder().memory().topic("orders", 1).spawn().expect("a broker in memory");
    /// let producer = Producer::new(Config::new(broker.bootstrap_servers()))?;
    /// producer.send(Record::to("orders").value("paid")).await?;
    ///
    /// let mut consumer = Consumer::new(Config::new(broker.bootstrap_servers()))?;
    /// consumer.assign(&[(TopicPartition::new("orders", 0), StartAt::Beginning)]).await?;
    /// if let Some(Next::Record(record)) = consumer.next_record(Duration::from_secs(10)).await? {
    ///     assert_eq!((record.offset(), record.value()), (0, Some(&b"paid"[..])));
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As of [`Consumer::poll`]. Cancel safe.
    #[inline]
    pub async fn next_record(&mut self, timeout: Duration) -> Result<Option<Next<'_>>, Error> {
        self.begin_poll();
        let step = self.reader.step_within(timeout).await?;
        if let Step::Event(event) = &step {
            self.note_event(event);
        }
        self.reader.show(step)
    }

    /// [`Consumer::next_record`] without waiting.
    #[inline]
    pub fn try_next_record(&mut self) -> Result<Option<Next<'_>>, Error> {
        self.begin_poll();
        let step = self.reader.step()?;
        if let Step::Event(event) = &step {
            self.note_event(event);
        }
        self.reader.show(step)
    }

    /// Gives `take` up to `max` of the next records, without waiting; all of one batch of the broker's, so that one call
    /// may give fewer than there are. `None` when there is nothing now.
    ///
    /// All records of a call are done together: when the next is made, as those of [`Consumer::next_record`] are. The
    /// borrowed views end with each call of `take`.
    ///
    /// # Errors
    /// As of [`Consumer::poll`]; records before an unreadable one are given first.
    #[inline]
    pub fn try_next_records(
        &mut self,
        max: usize,
        take: impl FnMut(RecordView<'_>),
    ) -> Result<Option<Taken>, Error> {
        self.begin_poll();
        let step = self.reader.step()?;
        if let Step::Event(event) = &step {
            self.note_event(event);
        }
        self.reader.show_many(step, max, take)
    }

    /// [`Consumer::next_record`] for threads without a runtime.
    #[inline]
    pub fn next_record_blocking(&mut self, timeout: Duration) -> Result<Option<Next<'_>>, Error> {
        self.begin_poll();
        let step = self.reader.step_blocking(timeout)?;
        if let Step::Event(event) = &step {
            self.note_event(event);
        }
        self.reader.show(step)
    }
}

impl PartitionQueue {
    /// [`Consumer::next_record`], of this queue.
    #[inline]
    pub async fn next_record(&mut self, timeout: Duration) -> Result<Option<Next<'_>>, Error> {
        self.reader.begin();
        let step = self.reader.step_within(timeout).await?;
        self.reader.show(step)
    }

    /// [`PartitionQueue::next_record`] without waiting.
    #[inline]
    pub fn try_next_record(&mut self) -> Result<Option<Next<'_>>, Error> {
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
    ) -> Result<Option<Taken>, Error> {
        self.reader.begin();
        let step = self.reader.step()?;
        self.reader.show_many(step, max, take)
    }

    /// [`PartitionQueue::next_record`] for threads without a runtime.
    #[inline]
    pub fn next_record_blocking(&mut self, timeout: Duration) -> Result<Option<Next<'_>>, Error> {
        self.reader.begin();
        let step = self.reader.step_blocking(timeout)?;
        self.reader.show(step)
    }
}

impl Reader {
    #[inline]
    async fn step_within(&mut self, timeout: Duration) -> Result<Step, Error> {
        let mut step = self.step()?;
        if matches!(step, Step::Nothing) {
            let polls = self.polls.clone();
            let _waiting = polls.as_ref().map(|polls| polls.wait());
            let deadline = timer::deadline_after(timeout);
            while matches!(step, Step::Nothing) {
                let bell = self.queue.bell();
                let in_time = timer::timeout_at(deadline, bell.filled.notified()).await.is_some();
                step = self.step()?;
                if !in_time {
                    break;
                }
            }
        }
        Ok(step)
    }

    #[inline]
    fn step_blocking(&mut self, timeout: Duration) -> Result<Step, Error> {
        let mut step = self.step();
        if matches!(step, Ok(Step::Nothing)) {
            let polls = self.polls.clone();
            let _waiting = polls.as_ref().map(|polls| polls.wait());
            let bell = self.queue.bell();
            blocking::wait_until(timeout, &bell.filled, || {
                step = self.step();
                !matches!(step, Ok(Step::Nothing))
            });
        }
        step
    }

    /// Goes to the next record, if there is one, without reading it.
    #[inline]
    fn step(&mut self) -> Result<Step, Error> {
        if self.has_record() { Ok(Step::Record) } else { self.step_far() }
    }

    /// Whether the batch at hand has another record.
    #[inline]
    fn has_record(&self) -> bool {
        self.opened.as_ref().is_some_and(|opened| {
            opened.chunk.is_readable() && opened.set.as_ref().is_some_and(|(set, mark)| set.has_more(mark))
        })
    }

    /// Goes to the next batch or chunk.
    fn step_far(&mut self) -> Result<Step, Error> {
        loop {
            match self.open()? {
                Found::Opened => {}
                Found::Event(event) => return Ok(Step::Event(event)),
                Found::Nothing => return Ok(Step::Nothing),
            }
            // News may have come in the middle of a batch.
            if self.has_record() || (self.next_set()? && self.has_record()) {
                return Ok(Step::Record);
            }
        }
    }

    #[inline]
    fn show(&mut self, step: Step) -> Result<Option<Next<'_>>, Error> {
        match step {
            Step::Record => {}
            Step::Event(event) => return Ok(Some(Next::Event(event))),
            Step::Nothing => return Ok(None),
        }
        let Some(opened) = &mut self.opened else { return Ok(None) };
        let place = &opened.chunk.place;
        let Some((set, mark)) = &mut opened.set else { return Ok(None) };
        match set.next_at(mark) {
            Some(Ok(record)) => {
                self.in_hand = self.reading.give(place, record.offset + 1);
                Ok(Some(Next::Record(RecordView::new(&place.at, record, set))))
            }
            Some(Err(error)) => {
                let error = corrupt(&place.at, set.header().base_offset, &error);
                place.next_turn();
                Err(error)
            }
            None => Ok(None),
        }
    }

    /// Shows records of one set until it ends.
    #[inline]
    fn show_many(
        &mut self,
        step: Step,
        max: usize,
        mut take: impl FnMut(RecordView<'_>),
    ) -> Result<Option<Taken>, Error> {
        match step {
            Step::Record => {}
            Step::Event(event) => return Ok(Some(Taken::Event(event))),
            Step::Nothing => return Ok(None),
        }
        let Some(opened) = &mut self.opened else { return Ok(None) };
        let place = &opened.chunk.place;
        let Some((set, mark)) = &mut opened.set else { return Ok(None) };
        let (mut count, mut next) = (0, None);
        let mut walk = set.iter_from(mark);
        let unreadable = loop {
            if count == max {
                break None;
            }
            match walk.next() {
                Some(Ok(record)) => {
                    next = Some(record.offset + 1);
                    take(RecordView::new(&place.at, record, set));
                    count += 1;
                }
                Some(Err(error)) => break Some(error),
                None => break None,
            }
        };
        match unreadable {
            None => *mark = set.mark_of(&walk),
            // It is found again, and told, by the next call.
            Some(_) if count > 0 && set.skip_at(mark, count as u32).is_ok() => {}
            Some(error) => {
                let error = corrupt(&place.at, set.header().base_offset, &error);
                place.next_turn();
                return Err(error);
            }
        }
        let Some(next) = next else { return Ok(None) };
        self.in_hand = self.reading.give(place, next);
        Ok(Some(Taken::Records(count)))
    }
}
