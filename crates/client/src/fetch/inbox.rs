//! The third door: what the engine fetched, waiting for the application to poll it.
//!
//! The engine puts in slices of responses; the polling thread takes them out, checks and decodes them there. All bytes
//! that wait here count against `queued.max.messages.kbytes`, and the engine fetches no further while they pass it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::Notify;

use crate::consumer::Event;
use crate::error::Error;

/// One partition's part of a fetch response.
#[derive(Debug)]
pub(crate) struct Chunk {
    pub(crate) topic: Arc<str>,
    pub(crate) partition: i32,
    /// Which assignment it was fetched under; one of an older assignment is thrown away.
    pub(crate) generation: u64,
    /// The first offset the application wants; the first batch may begin before it.
    pub(crate) from: i64,
    /// The offset after the last record.
    pub(crate) next: i64,
    pub(crate) high_watermark: i64,
    /// Whole batches, one behind the other.
    pub(crate) records: Bytes,
    /// Producers whose transactions were aborted, with the first offset of each, in order of offset.
    pub(crate) aborted: Vec<(i64, i64)>,
}

/// What a poll can find.
#[derive(Debug)]
pub(crate) enum Item {
    Chunk(Chunk),
    Event(Event),
    Error(Error),
}

/// One consumer's queue.
#[derive(Debug)]
pub(crate) struct Inbox {
    state: Mutex<State>,
    /// Told when something comes in.
    pub(crate) filled: Notify,
    /// Told when something is taken out; the engine waits for room here.
    pub(crate) emptied: Notify,
}

#[derive(Debug, Default)]
struct State {
    items: VecDeque<Item>,
    bytes: usize,
    generation: u64,
}

impl Inbox {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), filled: Notify::new(), emptied: Notify::new() })
    }

    /// Adds an item; a chunk of an older assignment is dropped.
    pub(crate) fn push(&self, item: Item) {
        let mut state = self.lock();
        if let Item::Chunk(chunk) = &item {
            if chunk.generation != state.generation {
                return;
            }
            state.bytes += chunk.records.len();
        }
        let was_empty = state.items.is_empty();
        state.items.push_back(item);
        drop(state);
        // Whoever polls empties the queue before waiting: only the first item needs to wake.
        if was_empty {
            self.filled.notify_one();
        }
    }

    /// The next item, if there is one.
    pub(crate) fn pop(&self) -> Option<Item> {
        let mut state = self.lock();
        let item = state.items.pop_front()?;
        if let Item::Chunk(chunk) = &item {
            state.bytes -= chunk.records.len();
        }
        drop(state);
        self.emptied.notify_one();
        Some(item)
    }

    /// Bytes of records that wait.
    pub(crate) fn bytes(&self) -> usize {
        self.lock().bytes
    }

    /// The assignment that chunks must belong to.
    pub(crate) fn generation(&self) -> u64 {
        self.lock().generation
    }

    /// Begins a new assignment: what was fetched under the old one is thrown away.
    pub(crate) fn begin_generation(&self) -> u64 {
        let mut state = self.lock();
        state.generation += 1;
        state.items.retain(|item| !matches!(item, Item::Chunk(_)));
        state.bytes = 0;
        let generation = state.generation;
        drop(state);
        self.emptied.notify_one();
        generation
    }

    /// Throws away what was fetched of one partition.
    pub(crate) fn discard(&self, topic: &str, partition: i32) {
        let mut state = self.lock();
        let mut freed = 0;
        state.items.retain(|item| match item {
            Item::Chunk(chunk) if chunk.partition == partition && *chunk.topic == *topic => {
                freed += chunk.records.len();
                false
            }
            _ => true,
        });
        state.bytes -= freed;
        drop(state);
        self.emptied.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
