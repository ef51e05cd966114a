//! The first of the three doors: producing threads push records in here, the engine takes batches out.
//!
//! A push encodes the record into the partition's open batch under that partition's lock and no other. The engine is
//! told once that a partition has something (`listed`), not once per record.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use ottla_wire::batch::HEADER_BYTES;
use ottla_wire::{BatchBuilder, Compression, HeaderRef};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::delivery::{Completion, Delivery};
use super::memory::Memory;
use crate::clock::{Clock, Stamper};
use crate::config::Config;
use crate::ear::Ear;

/// A batch that takes records, or is full and waits to be sealed.
#[derive(Debug)]
pub(crate) struct OpenBatch {
    pub(crate) builder: BatchBuilder,
    pub(crate) told: Told,
    pub(crate) created: Instant,
}

/// Who is told of a batch's fate.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// The futures of its records, if anybody asked for one.
    pub(crate) completion: Option<Arc<Completion>>,
    /// The records' tags, if any has one: shorter than the batch when the last ones have none.
    pub(crate) tags: Vec<u128>,
}

impl OpenBatch {
    /// Whether `batch.size` and `batch.num.messages` allow it one more record of so many bytes.
    #[inline]
    fn may_take(&self, bytes: usize, queues: &Queues) -> bool {
        self.builder.len() + bytes <= queues.batch_bytes_max
            && self.builder.count() < queues.batch_records_max
    }

    /// Bytes it has booked.
    pub(crate) fn memory(&self) -> usize {
        self.builder.memory() + self.told.memory()
    }
}

impl Told {
    pub(crate) fn memory(&self) -> usize {
        self.tags.capacity() * size_of::<u128>()
    }
}

/// What all partitions' queues of one client share.
#[derive(Debug)]
pub(crate) struct Queues {
    pub(crate) memory: Arc<Memory>,
    batch_bytes_max: usize,
    batch_records_max: u32,
    record_bytes_max: usize,
    copy_bytes_max: usize,
    pub(super) clock: Clock,
    /// How long keyless records stay with a partition; `None` is for a batch.
    pub(super) sticky_linger: Option<Duration>,
    ready: Mutex<Vec<Arc<Queue>>>,
    /// Wakes the engine's sender.
    pub(crate) wake: Arc<Notify>,
    /// Batches opened and not settled.
    unsettled: AtomicUsize,
    /// Told the same as `settled`.
    pub(crate) ear: Ear,
    /// Told when no batch is unsettled.
    pub(crate) settled: Notify,
    /// Callers of `flush` that wait: while there are any, nothing lingers.
    pub(crate) flushing: AtomicUsize,
}

impl Queues {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            memory: Memory::new(config.buffer_bytes_max, config.buffer_records_max, config.batch_bytes_max),
            batch_bytes_max: config.batch_bytes_max,
            batch_records_max: u32::try_from(config.batch_records_max).unwrap_or(u32::MAX),
            record_bytes_max: config.message_bytes_max,
            copy_bytes_max: config.copy_bytes_max,
            clock: config.clock.clone(),
            sticky_linger: config.sticky_linger,
            ready: Mutex::default(),
            wake: Arc::default(),
            unsettled: AtomicUsize::new(0),
            ear: Ear::default(),
            settled: Notify::new(),
            flushing: AtomicUsize::new(0),
        }
    }

    /// Batches that are neither acknowledged nor failed.
    pub(crate) fn unsettled(&self) -> usize {
        self.unsettled.load(Ordering::Acquire)
    }

    /// Bytes that one record may take, its batch's header included.
    pub(crate) fn record_bytes_max(&self) -> usize {
        self.record_bytes_max
    }

    /// The partitions that got their first record, or another full batch, since the last call.
    pub(crate) fn take_ready(&self, into: &mut Vec<Arc<Queue>>) {
        into.append(&mut lock(&self.ready));
    }

    /// One batch more that is neither acknowledged nor failed.
    pub(crate) fn begin_unsettled(&self) {
        self.unsettled.fetch_add(1, Ordering::AcqRel);
    }

    /// Takes back what a batch that is acknowledged or failed had booked.
    ///
    /// Its records' outcome must have been set before.
    pub(crate) fn settle(&self, memory: usize, records: u32) {
        self.memory.release(memory, records as usize);
        if self.unsettled.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.settled.notify_waiters();
            self.ear.tell();
        }
    }
}

/// How far a push may go.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Push {
    /// Into the open batch or a new one.
    Normal,
    /// The same for somebody who will wait for room if there is none.
    Patient,
    /// Only into a batch that is open: the sticky partitioner changes partitions where a new one would begin.
    IntoOpenBatch,
    /// Beyond the budget if need be: the record was admitted before and only moves.
    Forced,
}

/// Why a push did not take the record.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Refused {
    /// The budget is used up.
    Full,
    /// A new batch would have to be opened, and the caller would rather choose another partition first.
    NewBatch,
    /// The record is larger than any batch may be.
    TooLarge(usize),
    /// The queue is closed.
    Closed,
}

/// One partition's records that the engine has not taken yet. Partition -1 holds those that have no partition yet.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) topic: Arc<str>,
    pub(crate) partition: i32,
    /// What holds for the topic.
    pub(super) config: Arc<Config>,
    /// Batches that are neither acknowledged nor failed.
    pub(super) backlog: AtomicU32,
    available: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    open: Option<OpenBatch>,
    full: VecDeque<OpenBatch>,
    /// Whether the engine knows that there is something here.
    listed: bool,
    /// Refuses records.
    closed: bool,
    stamper: Stamper,
    /// Bytes of the batch before: what the next one will probably need.
    expected_bytes: usize,
    /// Records that are booked and have not come yet.
    credit: u32,
}

impl State {
    /// Puts the open batch, if there is one, to the full ones.
    fn retire(&mut self, queues: &Queues) {
        let Some(open) = self.open.take() else { return };
        self.expected_bytes = open.builder.len();
        self.full.push_back(open);
        // The engine may be waiting for an answer with nothing full in hand: a full batch need not wait for it.
        queues.wake.notify_one();
    }

    /// Gives back what is booked for records that may not come.
    fn return_credit(&mut self, queues: &Queues) {
        queues.memory.release(0, std::mem::take(&mut self.credit) as usize);
    }
}

/// A record's contents, and what its sender wants to be told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Content<'a> {
    pub(crate) timestamp_ms: Option<i64>,
    pub(crate) key: Option<&'a [u8]>,
    pub(crate) value: Option<&'a [u8]>,
    /// The value, if it may be shared instead of copied.
    pub(crate) shared: Option<&'a Bytes>,
    pub(crate) headers: &'a [HeaderRef<'a>],
    /// Comes back in the record's report.
    pub(crate) tag: u128,
    /// Whether a [`Delivery`] is wanted.
    pub(crate) watched: bool,
}

impl Queue {
    pub(crate) fn new(topic: Arc<str>, partition: i32, config: Arc<Config>) -> Arc<Self> {
        Arc::new(Self {
            topic,
            partition,
            config,
            backlog: AtomicU32::new(0),
            available: AtomicBool::new(true),
            state: Mutex::default(),
        })
    }

    /// Whether the partition has a leader, as far as is known.
    pub(crate) fn is_available(&self) -> bool {
        self.available.load(Ordering::Relaxed)
    }

    pub(crate) fn set_available(&self, available: bool) {
        self.available.store(available, Ordering::Relaxed);
    }

    /// Encodes a record into the open batch; the [`Delivery`] is there if it was wanted.
    #[inline]
    pub(crate) fn push(
        self: &Arc<Self>,
        queues: &Queues,
        how: Push,
        content: &Content<'_>,
    ) -> Result<Option<Delivery>, Refused> {
        let Content { key, value, headers, .. } = *content;
        let shared = content.shared.filter(|value| value.len() > queues.copy_bytes_max);
        let inline_value = if shared.is_some() { None } else { value };
        let shared_bytes = shared.map_or(0, Bytes::len);
        let bytes_max = BatchBuilder::record_bytes_max(key, inline_value, headers);
        let mut state = lock(&self.state);
        let fits = state.credit > 0
            && state.open.as_ref().is_some_and(|open| {
                open.builder.has_room(bytes_max) && open.may_take(bytes_max + shared_bytes, queues)
            });
        if !fits || shared_bytes > 0 {
            self.make_fit(&mut state, queues, how, bytes_max, shared_bytes)?;
        }
        let State { open: Some(open), stamper, credit, .. } = &mut *state else {
            return Err(Refused::Closed);
        };
        *credit -= 1;
        let timestamp_ms = content.timestamp_ms.unwrap_or_else(|| stamper.stamp(&queues.clock));
        let index = open.builder.count();
        match shared {
            None => open.builder.push(timestamp_ms, key, value, headers),
            Some(value) => open.builder.push_shared(timestamp_ms, key, value.clone(), headers),
        }
        if content.tag != 0 {
            note_tag(&mut open.told.tags, index, content.tag, &queues.memory);
        }
        let delivery = content.watched.then(|| {
            let completion = open
                .told
                .completion
                .get_or_insert_with(|| Completion::new(self.topic.clone(), self.partition));
            Delivery::new(completion.clone(), index)
        });
        if !state.listed {
            state.listed = true;
            drop(state);
            self.tell_engine(queues);
        }
        Ok(delivery)
    }

    /// Sees to it that the open batch takes a record of this size: gives it a larger buffer, or begins another batch.
    #[cold]
    #[inline(never)]
    fn make_fit(
        self: &Arc<Self>,
        state: &mut MutexGuard<'_, State>,
        queues: &Queues,
        how: Push,
        bytes_max: usize,
        shared_bytes: usize,
    ) -> Result<(), Refused> {
        if state.closed {
            return Err(Refused::Closed);
        }
        let alone = HEADER_BYTES + bytes_max + shared_bytes;
        if alone > queues.record_bytes_max {
            return Err(Refused::TooLarge(alone));
        }
        let memory = &queues.memory;
        let result = memory.reserve(shared_bytes, how).and_then(|()| {
            let fit = self.fit(state, queues, how, bytes_max, shared_bytes);
            fit.inspect_err(|_| memory.release(shared_bytes, 0))
        });
        if result == Err(Refused::Full) {
            // What is here must not linger while others wait for its memory. Its size says nothing about the next.
            let expected_bytes = state.expected_bytes;
            state.retire(queues);
            state.expected_bytes = state.expected_bytes.max(expected_bytes);
        }
        result
    }

    fn fit(
        self: &Arc<Self>,
        state: &mut MutexGuard<'_, State>,
        queues: &Queues,
        how: Push,
        bytes_max: usize,
        shared_bytes: usize,
    ) -> Result<(), Refused> {
        let memory = &queues.memory;
        if state.credit == 0 {
            state.credit = memory.reserve_records(how)?;
        }
        let takes_more =
            state.open.as_ref().is_some_and(|open| open.may_take(bytes_max + shared_bytes, queues));
        if takes_more {
            if let Some(open) = state.open.as_mut().filter(|open| !open.builder.has_room(bytes_max)) {
                let before = open.memory();
                let buffer = memory.buffer(open.builder.len() + bytes_max, how)?;
                let moved_to = buffer.len();
                open.builder.move_to(buffer);
                memory.release(before + moved_to - open.memory(), 0);
            }
            return Ok(());
        }
        if how == Push::IntoOpenBatch {
            return Err(Refused::NewBatch);
        }
        // As large as the one before, at once: growing there would copy twice the bytes.
        let expected = state.open.as_ref().map_or(state.expected_bytes, |open| open.builder.len());
        let least = HEADER_BYTES + bytes_max;
        let buffer = match memory.buffer(least.max(expected.min(queues.batch_bytes_max)), how) {
            // With nothing here to wait for, a smaller one will do; else the batches that wait leave a large one soon.
            Err(Refused::Full) if state.full.is_empty() && state.open.is_none() => {
                memory.buffer(least, how)?
            }
            result => result?,
        };
        if state.open.is_some() {
            state.retire(queues);
            // The engine looks at the partitions it is told of, not at all of them.
            lock(&queues.ready).push(self.clone());
        }
        queues.begin_unsettled();
        self.backlog.fetch_add(1, Ordering::Relaxed);
        let mut builder = BatchBuilder::in_buffer(buffer);
        // It is sent as it is written: its checksum can be taken as it grows.
        if self.config.compression == Compression::None {
            builder = builder.summing();
        }
        state.open = Some(OpenBatch { builder, told: Told::default(), created: now() });
        Ok(())
    }

    /// Puts the open batch to the full ones if it was begun before `then`: its first record must not have the others
    /// expire with it.
    pub(crate) fn retire_older(&self, then: Instant, queues: &Queues) {
        let mut state = lock(&self.state);
        if state.open.as_ref().is_some_and(|open| open.created < then) {
            state.retire(queues);
        }
    }

    fn tell_engine(self: &Arc<Self>, queues: &Queues) {
        lock(&queues.ready).push(self.clone());
        queues.wake.notify_one();
    }

    /// The next full batch, or else the open one if `open_too`. The partition stays listed.
    pub(crate) fn take(&self, open_too: bool) -> Option<OpenBatch> {
        let mut state = lock(&self.state);
        if let Some(full) = state.full.pop_front() {
            return Some(full);
        }
        if !open_too {
            return None;
        }
        let open = state.open.take()?;
        state.expected_bytes = open.builder.len();
        Some(open)
    }

    /// What waits here: whether a full batch does, and when the oldest batch was opened.
    pub(crate) fn waiting(&self) -> Option<Waiting> {
        let state = lock(&self.state);
        let oldest = state.full.front().or(state.open.as_ref())?;
        Some(Waiting { full: !state.full.is_empty(), since: oldest.created, bytes: oldest.builder.len() })
    }

    /// Records that are booked for this partition and not there yet.
    pub(crate) fn booked_ahead(&self) -> usize {
        lock(&self.state).credit as usize
    }

    /// Records and bytes that wait here.
    pub(crate) fn held(&self) -> (u64, u64) {
        let state = lock(&self.state);
        let batches = state.full.iter().chain(&state.open);
        batches.fold((0, 0), |(records, bytes), batch| {
            (records + u64::from(batch.builder.count()), bytes + batch.builder.len() as u64)
        })
    }

    /// The engine forgets this partition unless something waits here; the next push tells it again.
    pub(crate) fn unlist_if_empty(&self, queues: &Queues) -> bool {
        let mut state = lock(&self.state);
        let empty = state.full.is_empty() && state.open.is_none();
        if empty {
            state.listed = false;
            state.return_credit(queues);
        }
        empty
    }

    /// Refuses records from now on if nothing waits here; `false` if something does.
    pub(crate) fn close_if_empty(&self, queues: &Queues) -> bool {
        let mut state = lock(&self.state);
        let empty = state.full.is_empty() && state.open.is_none();
        if empty {
            state.closed = true;
            state.return_credit(queues);
        }
        empty
    }

    /// Refuses records from now on and gives back those that wait.
    pub(crate) fn close(&self, queues: &Queues) -> Vec<OpenBatch> {
        let mut state = lock(&self.state);
        state.closed = true;
        state.return_credit(queues);
        let open = state.open.take();
        state.full.drain(..).chain(open).collect()
    }
}

/// What waits in a queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    /// Whether a batch is full.
    pub(crate) full: bool,
    /// When the oldest batch was opened.
    pub(crate) since: Instant,
    /// Bytes of the oldest batch, uncompressed.
    pub(crate) bytes: usize,
}

impl Waiting {
    pub(crate) fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.since)
    }
}

fn note_tag(tags: &mut Vec<u128>, index: u32, tag: u128, memory: &Memory) {
    let before = tags.capacity();
    tags.resize(index as usize, 0);
    tags.push(tag);
    if tags.capacity() > before {
        // Forced cannot be refused: the record is in the batch already.
        let _ = memory.reserve((tags.capacity() - before) * size_of::<u128>(), Push::Forced);
    }
}

/// The clock that batches are aged by: virtual in simulation, where every thread is the runtime's.
pub(super) fn now() -> Instant {
    Instant::now()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
