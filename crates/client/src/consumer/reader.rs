//! The reading side of one queue: takes chunks from it, returns records and tracks processed offsets.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::open_chunk::{OpenChunk, ReadContext};
use super::{ConsumerCommand, ConsumerControl, Event, Polled, TopicPartition};
use crate::blocking;
use crate::config::Isolation;
use crate::error::Error;
use crate::fetch::inbox::Item;
use crate::fetch::progress::PartitionProgress;
use crate::fetch::queue::Queue;
use crate::group::poll_activity::PollActivity;
use crate::timer;

/// Used by one thread at a time.
#[derive(Debug)]
pub(super) struct Reader {
    pub(super) queue: Queue,
    pub(super) reading: ReadContext,
    /// The poll activity of the application.
    polls: Arc<PollActivity>,
    /// The way to the consumer's tasks, which end when the consumer is dropped: a queue does not keep them alive.
    sender: mpsc::WeakUnboundedSender<ConsumerCommand>,
    /// The chunk that is being read.
    pub(super) opened: Option<OpenChunk>,
    /// The generation of the last poll's records and the offset after them; they count as processed at the next poll.
    handed_out: Option<(Arc<PartitionProgress>, u64, i64)>,
    /// The offset after the last record returned from the open chunk; that record counts as processed at the next
    /// call.
    pub(super) in_hand: Option<i64>,
}

/// The result of a check of the queue.
pub(super) enum NextChunk {
    /// A chunk is open.
    Opened,
    Event(Event),
    Nothing,
}

impl Reader {
    pub(super) fn new(queue: Queue, control: &ConsumerControl) -> Self {
        let (polls, sender) = (control.polls.clone(), control.sender.downgrade());
        Self {
            queue,
            reading: control.reading(),
            polls,
            sender,
            opened: None,
            handed_out: None,
            in_hand: None,
        }
    }

    /// Registers the application's poll: it is alive, and has processed the previous result. These are records, which are marked
    /// as processed, or a revocation, which is answered.
    #[inline]
    pub(super) fn begin(&mut self) {
        if self.queue.counts_as_consumer() {
            self.polls.pass();
        }
        self.finish_handed_out();
        if self.queue.answers_revocation()
            && let Some(sender) = self.sender.upgrade()
        {
            let _ = sender.send(ConsumerCommand::RevokeSeen);
        }
    }

    /// The poll activity, if a poll of this queue counts there.
    pub(super) fn counted_polls(&self) -> Option<Arc<PollActivity>> {
        self.queue.counts_as_consumer().then(|| self.polls.clone())
    }

    /// Polls without marking records as processed; the caller calls [`Reader::begin`] first.
    pub(super) async fn poll(&mut self, timeout: Duration) -> Result<Option<Polled>, Error> {
        if let Some(polled) = self.take()? {
            return Ok(Some(polled));
        }
        let deadline = timer::deadline_after(timeout);
        let polls = self.counted_polls();
        let _waiting = polls.as_ref().map(|polls| polls.wait());
        loop {
            if let Some(polled) = self.take()? {
                return Ok(Some(polled));
            }
            let signal = self.queue.signal();
            if timer::timeout_at(deadline, signal.filled.notified()).await.is_none() {
                return self.take();
            }
        }
    }

    pub(super) fn poll_blocking(&mut self, timeout: Duration) -> Result<Option<Polled>, Error> {
        if let Some(polled) = self.take()? {
            return Ok(Some(polled));
        }
        let polls = self.counted_polls();
        let _waiting = polls.as_ref().map(|polls| polls.wait());
        let signal = self.queue.signal();
        let mut found = Ok(None);
        blocking::wait_until(timeout, &signal.filled, || {
            found = self.take();
            !matches!(found, Ok(None))
        });
        found
    }

    /// Marks the records that were returned last as processed.
    #[inline]
    pub(super) fn finish_handed_out(&mut self) {
        let store = self.reading.config.enable_auto_offset_store;
        if let Some(next) = self.in_hand.take()
            && let Some(opened) = self.opened.as_ref().filter(|_| store)
        {
            opened.progress().set_done_in(opened.chunk.generation, next);
        }
        if let Some((progress, generation, next)) = self.handed_out.take()
            && store
        {
            progress.set_done_in(generation, next);
        }
    }

    /// The records returned last, of this partition or of all, no longer count as processed at the next poll.
    pub(super) fn forget_handed_out(&mut self, of: Option<&TopicPartition>) {
        let is_meant = |at: &TopicPartition| of.is_none_or(|of| of == at);
        if self.handed_out.as_ref().is_some_and(|(progress, ..)| is_meant(&progress.at)) {
            self.handed_out = None;
        }
        if self.opened.as_ref().is_some_and(|opened| is_meant(&opened.progress().at)) {
            self.in_hand = None;
        }
    }

    pub(super) fn take(&mut self) -> Result<Option<Polled>, Error> {
        loop {
            match self.open()? {
                NextChunk::Opened => {}
                NextChunk::Event(event) => return Ok(Some(Polled::Event(event))),
                NextChunk::Nothing => return Ok(None),
            }
            if let Some(polled) = self.next_batch()? {
                return Ok(Some(polled));
            }
        }
    }

    /// The records of the open chunk that were not returned.
    pub(super) fn unread_records(&self) -> usize {
        self.opened.as_ref().map_or(0, OpenChunk::unread)
    }

    /// Puts the records of the open chunk that were not returned back into the queue.
    pub(super) fn put_back_rest(&mut self) {
        if let Some(opened) = self.opened.take()
            && opened.chunk.is_current()
        {
            self.queue.inbox().put_back(opened.into_rest());
        }
    }

    /// Opens a chunk, unless there is an event or nothing to return.
    pub(super) fn open(&mut self) -> Result<NextChunk, Error> {
        loop {
            if let Some(opened) = self.opened.take_if(|opened| !opened.is_readable()) {
                if opened.chunk.is_current() && opened.progress().is_paused() {
                    self.queue.inbox().put_back(opened.into_rest());
                } else if opened.chunk.is_current() {
                    opened.skip_rest(self.reading.config.enable_auto_offset_store);
                }
            }
            if self.opened.is_some() && !self.queue.has_events() {
                return Ok(NextChunk::Opened);
            }
            match self.queue.pop(self.opened.is_some()) {
                Some(Item::Chunk(chunk)) => self.opened = Some(OpenChunk::new(chunk)),
                Some(Item::Event(event)) => {
                    if matches!(event, Event::Revoked(_)) {
                        self.queue.note_revocation();
                    }
                    return Ok(NextChunk::Event(event));
                }
                Some(Item::Error(error)) => return Err(error),
                None if self.opened.is_some() => {}
                None => return Ok(NextChunk::Nothing),
            }
        }
    }

    /// Moves to the next batch of the open chunk.
    pub(super) fn next_set(&mut self) -> Result<bool, Error> {
        let Some(opened) = &mut self.opened else { return Ok(false) };
        opened.advance(&self.reading).map_err(|error| self.stop_opened(error))
    }

    /// The rest of the open chunk, up to a size limit.
    fn next_batch(&mut self) -> Result<Option<Polled>, Error> {
        let Some(opened) = &mut self.opened else { return Ok(None) };
        match opened.batch(&self.reading) {
            Ok(batch) => {
                let Some(batch) = batch else { return Ok(None) };
                let generation = opened.chunk.generation;
                self.handed_out = Some((opened.progress().clone(), generation, batch.next_offset()));
                if self.reading.config.done_when_returned {
                    self.finish_handed_out();
                }
                self.opened.take_if(|opened| opened.chunk.records.is_empty());
                Ok(Some(Polled::Records(batch)))
            }
            Err(error) => {
                let passed = self.reading.config.corrupt_returned.then(|| opened.pass_corrupt(&error));
                let Some(corrupt) = passed.flatten() else { return Err(self.stop_opened(error)) };
                let generation = opened.chunk.generation;
                self.handed_out = Some((opened.progress().clone(), generation, corrupt.next_offset()));
                self.refetch_after(corrupt.next_offset());
                Ok(Some(Polled::Corrupt(corrupt)))
            }
        }
    }

    /// Drops the rest of the open chunk after a corrupt batch, and has it fetched again, if records of aborted transactions are
    /// filtered. The batch may have been the marker that ends an aborted transaction: its producer's next records are not aborted.
    /// Only a new response has the transactions that are aborted from `next` on.
    fn refetch_after(&mut self, next: i64) {
        if self.reading.config.isolation_level != Isolation::ReadCommitted {
            return;
        }
        let Some(opened) = self.opened.take_if(|opened| !opened.chunk.records.is_empty()) else { return };
        let progress = opened.progress().clone();
        let Some(generation) = progress.refetch_from(opened.chunk.generation, next) else { return };
        // At once: the end of the partition, or an error, may wait behind the records that are fetched again.
        self.queue.inbox().purge_of(&progress);
        if let Some(sender) = self.sender.upgrade() {
            let _ = sender.send(ConsumerCommand::Refetch(progress, generation, next));
        }
    }

    /// The partition of the open chunk returns no more records until the application seeks past the error.
    pub(super) fn stop_opened(&mut self, error: Error) -> Error {
        if let Some(opened) = self.opened.take() {
            opened.progress().stop();
        }
        error
    }
}
