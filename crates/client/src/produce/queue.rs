//! The queue of one partition: producing threads push records, the engine takes batches.
//!
//! A push encodes the record into the partition's open batch under that partition's lock and no other. The engine is
//! notified once per partition with records (`listed`), not once per record.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use ottla_wire::batch::HEADER_BYTES;
use ottla_wire::{BatchBuilder, Compression};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::delivery::{Completion, Delivery};
use super::memory::Memory;
use super::unsettled::Unsettled;
use crate::clock::{Clock, Stamper};
use crate::config::Config;
use crate::record::Record;
use crate::wake_callback::WakeCallback;

/// A batch that takes records, or is full and waits for its request.
#[derive(Debug)]
pub(crate) struct OpenBatch {
    pub(crate) builder: BatchBuilder,
    pub(crate) targets: DeliveryTargets,
    pub(crate) created: Instant,
}

/// The receivers of a batch's outcome, and the application's data about its records.
#[derive(Debug, Default)]
pub(crate) struct DeliveryTargets {
    /// Shared with the [`Delivery`] futures of the records, if there are any.
    pub(crate) completion: Option<Arc<Completion>>,
    /// The records' tags, if any has one. Shorter than the batch when the last records have none.
    pub(crate) tags: Vec<u128>,
    /// The partition that each record of the unassigned queue requests, or -1. Shorter than the batch when the last
    /// records request none.
    pub(crate) partitions: Vec<i32>,
}

impl OpenBatch {
    /// `true` if `batch.size` and `batch.num.messages` allow one more record of `bytes` bytes.
    #[inline]
    fn may_take(&self, bytes: usize, queues: &Queues) -> bool {
        self.builder.len() + bytes <= queues.batch_bytes_max
            && self.builder.count() < queues.batch_records_max
    }

    /// Bytes that the batch has booked.
    pub(crate) fn memory(&self) -> usize {
        self.builder.memory() + self.targets.memory()
    }
}

impl DeliveryTargets {
    pub(crate) fn memory(&self) -> usize {
        self.tags.capacity() * size_of::<u128>() + self.partitions.capacity() * size_of::<i32>()
    }
}

/// The state that all partition queues of one client share.
#[derive(Debug)]
pub(crate) struct Queues {
    pub(crate) memory: Arc<Memory>,
    /// The smaller of `batch.size` and `message.max.bytes`. A batch of one record may exceed it by its header.
    batch_bytes_max: usize,
    batch_records_max: u32,
    record_bytes_max: usize,
    copy_bytes_max: usize,
    pub(super) clock: Clock,
    /// The time for which records without a key stay with a partition; `None` means for one batch.
    pub(super) sticky_linger: Option<Duration>,
    ready: Mutex<Vec<Arc<Queue>>>,
    /// Wakes the engine's sender.
    pub(crate) wake: Arc<Notify>,
    pub(crate) unsettled: Unsettled,
    /// Called when no batch is unsettled any more.
    pub(crate) wake_callback: WakeCallback,
    /// Waiting callers of `flush`. While there are any, nothing lingers.
    pub(crate) flushing: AtomicUsize,
}

impl Queues {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            memory: Memory::new(config.buffer_memory, config.queue_buffering_max_messages, config.batch_size),
            batch_bytes_max: config.batch_size.min(config.message_max_bytes),
            batch_records_max: u32::try_from(config.batch_num_messages).unwrap_or(u32::MAX),
            record_bytes_max: config.message_max_bytes,
            copy_bytes_max: config.message_copy_max_bytes,
            clock: config.clock.clone(),
            sticky_linger: config.sticky_partitioning_linger,
            ready: Mutex::default(),
            wake: Arc::default(),
            unsettled: Unsettled::new(),
            wake_callback: WakeCallback::default(),
            flushing: AtomicUsize::new(0),
        }
    }

    /// The largest size of a record in bytes, without its batch's header.
    pub(crate) fn record_bytes_max(&self) -> usize {
        self.record_bytes_max
    }

    /// Moves the queues that were listed, or filled a batch, since the last call to `into`.
    pub(crate) fn take_ready(&self, into: &mut Vec<Arc<Queue>>) {
        into.append(&mut lock(&self.ready));
    }

    /// Releases the memory and records of a batch that is acknowledged or failed. The outcome must be reported before.
    pub(crate) fn settle(&self, memory: usize, records: u32) {
        self.memory.release(memory, records as usize);
        if self.unsettled.end() {
            self.wake_callback.notify();
        }
    }
}

/// The limits that a push respects.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Push {
    /// Into the open batch or a new one, within the budget.
    Normal,
    /// The same, for a caller that waits for room.
    Patient,
    /// Into the open batch only: the sticky partitioner changes the partition where a new batch would begin.
    IntoOpenBatch,
    /// Beyond the budget if necessary: the record was accepted before and only moves.
    Forced,
}

/// The reason why a push did not take a record.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum PushRefused {
    /// The budget is used up.
    Full,
    /// The push was limited to the open batch, and the record needs a new one.
    NewBatch,
    /// The record is larger than any batch may be.
    TooLarge(usize),
    /// The queue is closed.
    Closed,
}

/// The records of one partition that the engine has not taken. Partition -1 holds records without a partition.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) topic: Arc<str>,
    pub(crate) partition: i32,
    /// The client's configuration with the topic's own settings over it.
    pub(super) config: Arc<Config>,
    /// Batches that are neither acknowledged nor failed.
    pub(super) backlog: AtomicU32,
    available: AtomicBool,
    /// `true` if the application has paused the partition. It changes under the lock of `state`.
    paused: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    open: Option<OpenBatch>,
    full: VecDeque<OpenBatch>,
    /// `true` if the engine knows that the queue has records.
    listed: bool,
    /// `true` if the queue refuses records.
    closed: bool,
    stamper: Stamper,
    /// Size of the previous batch in bytes, an estimate for the next.
    expected_bytes: usize,
    /// Records that are booked and not pushed yet.
    credit: u32,
}

impl State {
    /// Moves the open batch, if there is one, to the full ones.
    fn retire(&mut self, queues: &Queues) {
        let Some(open) = self.open.take() else { return };
        self.expected_bytes = open.builder.len();
        self.full.push_back(open);
        // A full batch need not wait for the response that the engine may be waiting for.
        queues.wake.notify_one();
    }

    /// Releases the records that are booked and may not come.
    fn return_credit(&mut self, queues: &Queues) {
        queues.memory.release(0, std::mem::take(&mut self.credit) as usize);
    }
}

impl Queue {
    pub(crate) fn new(topic: Arc<str>, partition: i32, config: Arc<Config>) -> Arc<Self> {
        Arc::new(Self {
            topic,
            partition,
            config,
            backlog: AtomicU32::new(0),
            available: AtomicBool::new(true),
            paused: AtomicBool::new(false),
            state: Mutex::default(),
        })
    }

    /// `true` if the partition has a leader, according to the latest metadata.
    pub(crate) fn is_available(&self) -> bool {
        self.available.load(Ordering::Relaxed)
    }

    pub(crate) fn set_available(&self, available: bool) {
        self.available.store(available, Ordering::Relaxed);
    }

    /// `true` if the application has paused the partition: nothing is sent to it.
    pub(crate) fn is_paused(&self) -> bool {
        self.paused.load(Ordering::Relaxed)
    }

    /// Pauses or resumes the partition. No request takes a record that is pushed after a pause.
    pub(crate) fn set_paused(self: &Arc<Self>, paused: bool, queues: &Queues) {
        let state = lock(&self.state);
        self.paused.store(paused, Ordering::Relaxed);
        drop(state);
        if !paused {
            // The queue may be listed already; the engine examines it again only after this.
            self.notify_engine(queues);
        }
    }

    /// Encodes a record into the open batch. Returns a [`Delivery`] if the caller watches it.
    #[inline]
    pub(crate) fn push(
        self: &Arc<Self>,
        queues: &Queues,
        how: Push,
        record: &Record<'_>,
        watched: bool,
    ) -> Result<Option<Delivery>, PushRefused> {
        let Record { key, value, ref headers, .. } = *record;
        let shared = record.shared.filter(|value| value.len() > queues.copy_bytes_max);
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
            return Err(PushRefused::Closed);
        };
        *credit -= 1;
        let timestamp_ms = record.timestamp_ms.unwrap_or_else(|| stamper.stamp(&queues.clock));
        let index = open.builder.count();
        match shared {
            None => open.builder.push(timestamp_ms, key, value, headers),
            Some(value) => open.builder.push_shared(timestamp_ms, key, value.clone(), headers),
        }
        if !record.tag.is_none() {
            note(&mut open.targets.tags, index, record.tag.get(), 0, &queues.memory);
        }
        if self.partition < 0
            && let Some(partition) = record.partition
        {
            note(&mut open.targets.partitions, index, partition, -1, &queues.memory);
        }
        let delivery = watched.then(|| {
            let completion = open
                .targets
                .completion
                .get_or_insert_with(|| Completion::new(self.topic.clone(), self.partition));
            Delivery::new(completion.clone(), index)
        });
        if !state.listed {
            state.listed = true;
            drop(state);
            self.notify_engine(queues);
        }
        Ok(delivery)
    }

    /// Makes room for a record of this size: gives the open batch a larger buffer, or opens another batch.
    #[cold]
    #[inline(never)]
    fn make_fit(
        self: &Arc<Self>,
        state: &mut MutexGuard<'_, State>,
        queues: &Queues,
        how: Push,
        bytes_max: usize,
        shared_bytes: usize,
    ) -> Result<(), PushRefused> {
        if state.closed {
            return Err(PushRefused::Closed);
        }
        // As in librdkafka, the header of the batch does not count.
        let record_bytes = bytes_max + shared_bytes;
        if record_bytes > queues.record_bytes_max {
            return Err(PushRefused::TooLarge(record_bytes));
        }
        let memory = &queues.memory;
        let result = memory.reserve(shared_bytes, how).and_then(|()| {
            let fit = self.fit(state, queues, how, bytes_max, shared_bytes);
            fit.inspect_err(|_| memory.release(shared_bytes, 0))
        });
        if result == Err(PushRefused::Full) {
            if state.credit > 0 {
                memory.note_credit();
            }
            // Records must not linger while producers wait for memory. The size of such a batch is no estimate for the next.
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
    ) -> Result<(), PushRefused> {
        let memory = &queues.memory;
        let takes_more =
            state.open.as_ref().is_some_and(|open| open.may_take(bytes_max + shared_bytes, queues));
        // Nothing is booked here for a record that goes to another partition.
        if !takes_more && how == Push::IntoOpenBatch {
            return Err(PushRefused::NewBatch);
        }
        if state.credit == 0 {
            state.credit = memory.reserve_records(how)?;
        }
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
        // The size of the previous batch, at once: growing to it would copy twice the bytes.
        let expected = state.open.as_ref().map_or(state.expected_bytes, |open| open.builder.len());
        let least = HEADER_BYTES + bytes_max;
        let buffer = match memory.buffer(least.max(expected.min(queues.batch_bytes_max)), how) {
            // Without a batch that will return its buffer soon, a smaller buffer will do.
            Err(PushRefused::Full) if state.full.is_empty() && state.open.is_none() => {
                memory.buffer(least, how)?
            }
            result => result?,
        };
        if state.open.is_some() {
            state.retire(queues);
            // The engine examines the listed partitions, not all of them.
            lock(&queues.ready).push(self.clone());
        }
        queues.unsettled.begin();
        self.backlog.fetch_add(1, Ordering::Relaxed);
        let mut builder = BatchBuilder::in_buffer(buffer);
        // An uncompressed batch is sent as it is written: the checksum is computed while it grows.
        if self.config.compression_codec == Compression::None {
            builder = builder.summing();
        }
        state.open = Some(OpenBatch { builder, targets: DeliveryTargets::default(), created: now() });
        Ok(())
    }

    /// Moves the open batch to the full ones if it was opened before `then`, so that later records do not expire with
    /// its first one.
    pub(crate) fn retire_older(&self, then: Instant, queues: &Queues) {
        let mut state = lock(&self.state);
        if state.open.as_ref().is_some_and(|open| open.created < then) {
            state.retire(queues);
        }
    }

    /// Gives batches that were opened after `created` this time: their records were taken before they moved here.
    pub(crate) fn backdate(&self, created: Instant) {
        if self.backlog.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut state = lock(&self.state);
        let State { open, full, .. } = &mut *state;
        for batch in full.iter_mut().chain(open) {
            batch.created = batch.created.min(created);
        }
    }

    fn notify_engine(self: &Arc<Self>, queues: &Queues) {
        lock(&queues.ready).push(self.clone());
        queues.wake.notify_one();
    }

    /// Removes the oldest batch, full or open, if `accepts` agrees. The queue stays listed.
    pub(crate) fn take_if(&self, accepts: &mut dyn FnMut(&Waiting) -> bool) -> Option<OpenBatch> {
        let mut state = lock(&self.state);
        let oldest = state.full.front().or(state.open.as_ref())?;
        let full = !state.full.is_empty();
        let paused = self.is_paused();
        if !accepts(&Waiting { full, paused, since: oldest.created, bytes: oldest.builder.len() }) {
            return None;
        }
        if full {
            return state.full.pop_front();
        }
        let open = state.open.take()?;
        state.expected_bytes = open.builder.len();
        Some(open)
    }

    /// Removes the oldest batch, full or open. The queue stays listed.
    pub(crate) fn take(&self) -> Option<OpenBatch> {
        self.take_if(&mut |_| true)
    }

    /// Records that are booked for this partition and not pushed yet.
    pub(crate) fn booked_ahead(&self) -> usize {
        lock(&self.state).credit as usize
    }

    /// Records and bytes in this queue.
    pub(crate) fn buffered(&self) -> (u64, u64) {
        let state = lock(&self.state);
        let batches = state.full.iter().chain(&state.open);
        batches.fold((0, 0), |(records, bytes), batch| {
            (records + u64::from(batch.builder.count()), bytes + batch.builder.len() as u64)
        })
    }

    /// Unlists an empty queue, so that its next record notifies the engine; `false` if the queue has records.
    pub(crate) fn unlist_if_empty(&self, queues: &Queues) -> bool {
        let mut state = lock(&self.state);
        let empty = state.full.is_empty() && state.open.is_none();
        if empty {
            state.listed = false;
            state.return_credit(queues);
        }
        empty
    }

    /// Releases the records that are booked and that no push has brought.
    pub(crate) fn return_credit(&self, queues: &Queues) {
        lock(&self.state).return_credit(queues);
    }

    /// Closes an empty queue to records; `false` if the queue has records.
    pub(crate) fn close_if_empty(&self, queues: &Queues) -> bool {
        let mut state = lock(&self.state);
        let empty = state.full.is_empty() && state.open.is_none();
        if empty {
            state.closed = true;
            state.return_credit(queues);
        }
        empty
    }

    /// Closes a queue that has not taken any record.
    pub(crate) fn close_new(&self) {
        lock(&self.state).closed = true;
    }

    /// Closes the queue to records and returns its batches.
    pub(crate) fn close(&self, queues: &Queues) -> Vec<OpenBatch> {
        let mut state = lock(&self.state);
        state.closed = true;
        state.return_credit(queues);
        let open = state.open.take();
        state.full.drain(..).chain(open).collect()
    }
}

/// The oldest batch of a queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    /// `true` if the batch takes no more records.
    pub(crate) full: bool,
    /// `true` if the application has paused the partition.
    pub(crate) paused: bool,
    /// The time when the batch was opened.
    pub(crate) since: Instant,
    /// The uncompressed size of the batch in bytes.
    pub(crate) bytes: usize,
}

impl Waiting {
    pub(crate) fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.since)
    }
}

/// Sets the entry of one record, with `default` for the records before it that have none.
fn note<T: Clone>(entries: &mut Vec<T>, index: u32, entry: T, default: T, memory: &Memory) {
    let before = entries.capacity();
    entries.resize(index as usize, default);
    entries.push(entry);
    if entries.capacity() > before {
        // A forced reservation cannot be refused: the record is in the batch already.
        let _ = memory.reserve((entries.capacity() - before) * size_of::<T>(), Push::Forced);
    }
}

/// The clock of batch ages: virtual in simulation, where every thread belongs to the runtime.
pub(super) fn now() -> Instant {
    Instant::now()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
