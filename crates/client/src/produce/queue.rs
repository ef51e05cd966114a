//! The first of the three doors: producing threads push records in here, the engine takes batches out.
//!
//! A push encodes the record into the partition's open batch under that partition's lock and no other. The engine is
//! told once that a partition has something (`listed`), not once per record.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::BytesMut;
use ottla_wire::batch::HEADER_BYTES;
use ottla_wire::{BatchBuilder, HeaderRef};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::delivery::{Completion, Delivery};
use crate::clock::{Clock, Stamper};

/// Buffers smaller than this are not worth keeping.
const SPARE_BYTES_MIN: usize = 64 << 10;

/// A batch that takes records, or is full and waits to be sealed.
#[derive(Debug)]
pub(crate) struct OpenBatch {
    pub(crate) builder: BatchBuilder,
    pub(crate) completion: Arc<Completion>,
    pub(crate) created: Instant,
}

/// What all partitions' queues of one client share.
#[derive(Debug)]
pub(crate) struct Queues {
    budget: Budget,
    batch_bytes_max: usize,
    clock: Clock,
    spare: Mutex<Spare>,
    ready: Mutex<Vec<Arc<Queue>>>,
    /// Wakes the engine's sender.
    pub(crate) wake: Notify,
    /// Batches opened and not settled.
    unsettled: AtomicUsize,
    /// Told when no batch is unsettled.
    pub(crate) settled: Notify,
    /// Callers of `flush` that wait: while there are any, nothing lingers.
    pub(crate) flushing: AtomicUsize,
}

/// Buffers of finished batches, for the next ones.
#[derive(Debug, Default)]
struct Spare {
    buffers: Vec<BytesMut>,
    bytes: usize,
}

impl Queues {
    pub(crate) fn new(buffer_bytes_max: usize, batch_bytes_max: usize, clock: Clock) -> Self {
        Self {
            budget: Budget { used: AtomicUsize::new(0), max: buffer_bytes_max, freed: Notify::new() },
            batch_bytes_max,
            clock,
            spare: Mutex::default(),
            ready: Mutex::default(),
            wake: Notify::new(),
            unsettled: AtomicUsize::new(0),
            settled: Notify::new(),
            flushing: AtomicUsize::new(0),
        }
    }

    /// Batches that are neither acknowledged nor failed.
    pub(crate) fn unsettled(&self) -> usize {
        self.unsettled.load(Ordering::Acquire)
    }

    pub(crate) fn budget(&self) -> &Budget {
        &self.budget
    }

    pub(crate) fn batch_bytes_max(&self) -> usize {
        self.batch_bytes_max
    }

    /// The partitions that got their first record since the last call.
    pub(crate) fn take_ready(&self, into: &mut Vec<Arc<Queue>>) {
        into.append(&mut lock(&self.ready));
    }

    /// Takes back the memory of a batch that is acknowledged or failed.
    ///
    /// Its records' outcome must have been set before.
    pub(crate) fn settle(&self, memory: usize, buffer: Option<BytesMut>) {
        if let Some(buffer) = buffer.filter(|buffer| buffer.capacity() >= SPARE_BYTES_MIN) {
            let mut spare = lock(&self.spare);
            // What is in use and what is kept for the next batches stay below the budget together: memory that was
            // touched once is not given back to the system only to be faulted in again.
            if spare.bytes + self.budget.used() <= self.budget.max() {
                spare.bytes += buffer.capacity();
                spare.buffers.push(buffer);
            }
        }
        self.budget.release(memory);
        if self.unsettled.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.settled.notify_waiters();
        }
    }

    fn spare_buffer(&self) -> Option<BytesMut> {
        let mut spare = lock(&self.spare);
        let buffer = spare.buffers.pop()?;
        spare.bytes -= buffer.capacity();
        Some(buffer)
    }
}

/// The bound on bytes that wait for an acknowledgement: capacity of the batches, not just what is written in them.
#[derive(Debug)]
pub(crate) struct Budget {
    used: AtomicUsize,
    max: usize,
    /// Told when memory comes back.
    pub(crate) freed: Notify,
}

impl Budget {
    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    pub(crate) fn max(&self) -> usize {
        self.max
    }

    fn try_reserve(&self, bytes: usize, how: Push) -> bool {
        self.used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                // A single batch may always exist, however small the budget.
                let fits = used == 0 || used + bytes <= self.max || how == Push::Forced;
                fits.then_some(used + bytes)
            })
            .is_ok()
    }

    fn release(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
        self.freed.notify_waiters();
    }
}

/// How far a push may go.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Push {
    /// Into the open batch or a new one.
    Normal,
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
}

impl Queue {
    pub(crate) fn new(topic: Arc<str>, partition: i32) -> Arc<Self> {
        Arc::new(Self { topic, partition, state: Mutex::default() })
    }

    /// Encodes a record into the open batch.
    ///
    #[inline]
    pub(crate) fn push(
        self: &Arc<Self>,
        queues: &Queues,
        how: Push,
        timestamp_ms: Option<i64>,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[HeaderRef<'_>],
    ) -> Result<Delivery, Refused> {
        let bytes_max = BatchBuilder::record_bytes_max(key, value, headers);
        let mut state = lock(&self.state);
        if state.open.as_ref().is_none_or(|open| open.builder.len() + bytes_max > queues.batch_bytes_max) {
            self.open_batch(&mut state, queues, how, bytes_max)?;
        }
        let State { open: Some(open), stamper, .. } = &mut *state else { return Err(Refused::Closed) };
        let growth = open.builder.growth_for(bytes_max);
        if growth > 0 {
            if !queues.budget.try_reserve(growth, how) {
                return Err(Refused::Full);
            }
            open.builder.make_room(bytes_max);
        }
        let memory = open.builder.memory();
        let index = open.builder.count();
        let timestamp_ms = timestamp_ms.unwrap_or_else(|| stamper.stamp(&queues.clock));
        open.builder.push(timestamp_ms, key, value, headers);
        debug_assert_eq!(open.builder.memory(), memory, "the budget counts every byte");
        let delivery = Delivery::new(open.completion.clone(), index);
        if !state.listed {
            state.listed = true;
            drop(state);
            self.tell_engine(queues);
        }
        Ok(delivery)
    }

    /// Puts the open batch, if there is one, to the full ones and opens another.
    #[cold]
    fn open_batch(
        self: &Arc<Self>,
        state: &mut MutexGuard<'_, State>,
        queues: &Queues,
        how: Push,
        record_bytes: usize,
    ) -> Result<(), Refused> {
        if state.closed {
            return Err(Refused::Closed);
        }
        let batch_bytes = record_bytes + HEADER_BYTES;
        if batch_bytes > queues.batch_bytes_max {
            return Err(Refused::TooLarge(batch_bytes));
        }
        if how == Push::IntoOpenBatch {
            return Err(Refused::NewBatch);
        }
        if let Some(full) = state.open.take() {
            state.expected_bytes = full.builder.len();
            state.full.push_back(full);
            // The engine may be waiting for an answer with nothing full in hand: a full batch need not wait for it.
            queues.wake.notify_one();
        }
        let spare = if state.expected_bytes >= SPARE_BYTES_MIN { queues.spare_buffer() } else { None };
        let mut builder = match spare {
            Some(buffer) if queues.budget.try_reserve(buffer.capacity(), how) => {
                BatchBuilder::reusing(buffer)
            }
            Some(_) => return Err(Refused::Full),
            None => BatchBuilder::new(),
        };
        // The last record is booked by the most it can take, and that is what the buffer must have room for.
        builder.expect_at_most(queues.batch_bytes_max);
        if state.expected_bytes >= SPARE_BYTES_MIN {
            // As large as the one before, at once: growing there would copy and fault in twice the bytes.
            let expected =
                state.expected_bytes.next_power_of_two().min(queues.batch_bytes_max) - HEADER_BYTES;
            let growth = builder.growth_for(expected);
            if growth > 0 && queues.budget.try_reserve(growth, how) {
                builder.make_room(expected);
            }
        }
        let completion = Completion::new(self.topic.clone(), self.partition);
        queues.unsettled.fetch_add(1, Ordering::AcqRel);
        state.open = Some(OpenBatch { builder, completion, created: now() });
        Ok(())
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
        let open = state.open.take_if(|open| !open.builder.is_empty())?;
        state.expected_bytes = open.builder.len();
        Some(open)
    }

    /// What waits here: whether a full batch does, and when the oldest batch was opened.
    pub(crate) fn waiting(&self) -> Option<Waiting> {
        let state = lock(&self.state);
        let oldest = state.full.front().or(state.open.as_ref().filter(|open| !open.builder.is_empty()))?;
        Some(Waiting { full: !state.full.is_empty(), since: oldest.created, bytes: oldest.builder.len() })
    }

    /// The engine forgets this partition unless something waits here; the next push tells it again.
    pub(crate) fn unlist_if_empty(&self) -> bool {
        let mut state = lock(&self.state);
        let empty = state.full.is_empty() && state.open.as_ref().is_none_or(|open| open.builder.is_empty());
        if empty {
            state.listed = false;
        }
        empty
    }

    /// Refuses records from now on if nothing waits here; `false` if something does.
    pub(crate) fn close_if_empty(&self) -> bool {
        let mut state = lock(&self.state);
        let empty = state.full.is_empty() && state.open.as_ref().is_none_or(|open| open.builder.is_empty());
        if empty {
            // An open batch without records goes, too: its budget was reserved.
            state.closed = true;
        }
        empty
    }

    /// Refuses records from now on and gives back those that wait.
    pub(crate) fn close(&self) -> Vec<OpenBatch> {
        let mut state = lock(&self.state);
        state.closed = true;
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

/// The clock that batches are aged by: virtual in simulation, where every thread is the runtime's.
fn now() -> Instant {
    Instant::now()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
