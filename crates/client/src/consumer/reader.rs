//! The reading side of one queue: takes chunks out, hands records out, remembers what is done.

use std::sync::Arc;
use std::time::Duration;

use super::opened::{Opened, Reading};
use super::{Event, Polled, TopicPartition};
use crate::blocking;
use crate::error::Error;
use crate::fetch::inbox::Item;
use crate::fetch::place::Place;
use crate::fetch::queue::Queue;
use crate::group::polls::Polls;
use crate::timer;

/// Belongs to one thread at a time.
#[derive(Debug)]
pub(super) struct Reader {
    pub(super) queue: Queue,
    pub(super) reading: Reading,
    /// Where the consumer's own queue is read: whether the application is there.
    pub(super) polls: Option<Arc<Polls>>,
    /// The chunk that records come from.
    pub(super) opened: Option<Opened>,
    /// What the last poll returned: done when the next poll is made.
    handed_out: Option<(Arc<Place>, i64)>,
    /// The offset after the record that was given last, of the chunk that is open: done when the next is asked for.
    pub(super) in_hand: Option<i64>,
}

/// What a look into the queue has found.
pub(super) enum Found {
    /// There is a chunk to read from.
    Opened,
    Event(Event),
    Nothing,
}

impl Reader {
    pub(super) fn new(queue: Queue, reading: Reading, polls: Option<Arc<Polls>>) -> Self {
        Self { queue, reading, polls, opened: None, handed_out: None, in_hand: None }
    }

    /// Whoever asks for more is there, and done with what was returned before.
    #[inline]
    pub(super) fn begin(&mut self) {
        if let Some(polls) = &self.polls {
            polls.pass();
        }
        self.finish_handed_out();
    }

    /// The next of it, after [`Reader::begin`].
    pub(super) async fn poll(&mut self, timeout: Duration) -> Result<Option<Polled>, Error> {
        if let Some(polled) = self.take()? {
            return Ok(Some(polled));
        }
        let deadline = timer::deadline_after(timeout);
        let polls = self.polls.clone();
        let _waiting = polls.as_ref().map(|polls| polls.wait());
        loop {
            if let Some(polled) = self.take()? {
                return Ok(Some(polled));
            }
            let bell = self.queue.bell();
            if timer::timeout_at(deadline, bell.filled.notified()).await.is_none() {
                return self.take();
            }
        }
    }

    pub(super) fn poll_blocking(&mut self, timeout: Duration) -> Result<Option<Polled>, Error> {
        if let Some(polled) = self.take()? {
            return Ok(Some(polled));
        }
        let polls = self.polls.clone();
        let _waiting = polls.as_ref().map(|polls| polls.wait());
        let bell = self.queue.bell();
        let mut found = Ok(None);
        blocking::wait_until(timeout, &bell.filled, || {
            found = self.take();
            !matches!(found, Ok(None))
        });
        found
    }

    /// What was given last is done.
    #[inline]
    pub(super) fn finish_handed_out(&mut self) {
        let store = self.reading.config.auto_offset_store;
        if let Some(next) = self.in_hand.take()
            && let Some(opened) = self.opened.as_ref().filter(|_| store)
        {
            opened.place().finish(next);
        }
        if let Some((place, next)) = self.handed_out.take()
            && store
        {
            place.finish(next);
        }
    }

    /// What was given last, of this partition or of any, is not done by asking for more.
    pub(super) fn forget_handed_out(&mut self, of: Option<&TopicPartition>) {
        let is_meant = |at: &TopicPartition| of.is_none_or(|of| of == at);
        if self.handed_out.as_ref().is_some_and(|(place, _)| is_meant(&place.at)) {
            self.handed_out = None;
        }
        if self.opened.as_ref().is_some_and(|opened| is_meant(&opened.place().at)) {
            self.in_hand = None;
        }
    }

    pub(super) fn take(&mut self) -> Result<Option<Polled>, Error> {
        loop {
            match self.open()? {
                Found::Opened => {}
                Found::Event(event) => return Ok(Some(Polled::Event(event))),
                Found::Nothing => return Ok(None),
            }
            if let Some(polled) = self.next_batch()? {
                return Ok(Some(polled));
            }
        }
    }

    /// Sees to it that there is a chunk to read from, unless there is something else to tell.
    pub(super) fn open(&mut self) -> Result<Found, Error> {
        loop {
            if let Some(opened) = self.opened.take_if(|opened| !opened.is_readable()) {
                if opened.chunk.is_current() && opened.place().is_paused() {
                    self.queue.inbox().put_back(opened.into_rest());
                } else if opened.chunk.is_current() {
                    opened.skip_rest(self.reading.config.auto_offset_store);
                }
            }
            if self.opened.is_some() && !self.queue.has_news() {
                return Ok(Found::Opened);
            }
            match self.queue.pop(self.opened.is_some()) {
                Some(Item::Chunk(chunk)) => self.opened = Some(Opened::new(chunk)),
                Some(Item::Event(event)) => return Ok(Found::Event(event)),
                Some(Item::Error(error)) => return Err(error),
                None if self.opened.is_some() => {}
                None => return Ok(Found::Nothing),
            }
        }
    }

    /// Goes to the next batch of the open chunk.
    pub(super) fn next_set(&mut self) -> Result<bool, Error> {
        let Some(opened) = &mut self.opened else { return Ok(false) };
        opened.advance(&self.reading).map_err(|error| self.stop_opened(error))
    }

    /// Everything that the open chunk has, or enough of it.
    fn next_batch(&mut self) -> Result<Option<Polled>, Error> {
        let Some(opened) = &mut self.opened else { return Ok(None) };
        match opened.batch(&self.reading) {
            Ok(batch) => {
                let Some(batch) = batch else { return Ok(None) };
                self.handed_out = Some((opened.place().clone(), batch.next_offset()));
                if self.reading.config.done_when_handed_out {
                    self.finish_handed_out();
                }
                self.opened.take_if(|opened| opened.chunk.records.is_empty());
                Ok(Some(Polled::Records(batch)))
            }
            Err(error) => {
                let passed = self.reading.config.corrupt_handed_out.then(|| opened.pass_corrupt(&error));
                let Some(corrupt) = passed.flatten() else { return Err(self.stop_opened(error)) };
                self.handed_out = Some((opened.place().clone(), corrupt.next_offset()));
                Ok(Some(Polled::Corrupt(corrupt)))
            }
        }
    }

    /// Nothing more comes from the partition of the open chunk until somebody seeks past the error.
    pub(super) fn stop_opened(&mut self, error: Error) -> Error {
        if let Some(opened) = self.opened.take() {
            opened.place().next_turn();
        }
        error
    }
}
