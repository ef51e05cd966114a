//! The exchange between the polling thread of a share consumer and the engine: acquired records in one direction,
//! acknowledgements and the demand for records in the other.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::acknowledgements::{AckRange, PartitionAcks, TopicIdPartition};
use crate::error::Error;
use crate::fetch::budget::Budget;
use crate::types::TopicPartition;
use crate::wake_callback::WakeCallback;

/// Consecutive offsets that the broker acquired for this member.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct AcquiredRange {
    pub(crate) first: i64,
    pub(crate) last: i64,
    pub(crate) delivery_count: i16,
}

/// One partition's part of a ShareFetch response.
#[derive(Debug)]
pub(crate) struct AcquiredChunk {
    pub(crate) key: TopicIdPartition,
    pub(crate) at: TopicPartition,
    /// The leader that the records were acquired from.
    pub(crate) node: i32,
    /// Complete batches. They may have records that are not acquired.
    pub(crate) records: Bytes,
    /// The acquired offsets, in order.
    pub(crate) acquired: Vec<AcquiredRange>,
    /// The end of the acquisition lock: the broker has released the records by then.
    pub(crate) locked_until: Option<Instant>,
}

impl AcquiredChunk {
    /// The number of acquired offsets.
    pub(crate) fn offsets(&self) -> u64 {
        let len = |range: &AcquiredRange| range.last.abs_diff(range.first).saturating_add(1);
        self.acquired.iter().map(len).fold(0, u64::saturating_add)
    }
}

/// The result of acknowledgements.
#[derive(Clone, Debug)]
pub(crate) struct AckOutcome {
    pub(crate) id: u64,
    pub(crate) at: TopicPartition,
    pub(crate) ranges: Vec<AckRange>,
    pub(crate) result: Result<(), Error>,
}

/// An item for the polling thread.
#[derive(Debug)]
pub(crate) enum ShareItem {
    Chunk(AcquiredChunk),
    /// The result of acknowledgements that renew records.
    Renewed(AckOutcome),
    Error(Error),
    /// The group refuses the member with the subscription of this number.
    Refused(Error, u64),
}

/// The polling thread's part of the exchange since the engine's last look.
#[derive(Debug, Default)]
pub(super) struct Demand {
    pub(super) acks: Vec<PartitionAcks>,
    /// `true` if a poll waits for records.
    pub(super) is_waiting: bool,
    /// `true` if no fetch goes ahead of a poll.
    pub(super) polls_only: bool,
    /// The number of chunks that wait for a poll, by leader.
    pub(super) queued: BTreeMap<i32, usize>,
}

/// The queue of one share consumer.
#[derive(Debug)]
pub(crate) struct ShareQueue {
    state: Mutex<State>,
    /// Notified when the queue gets an item.
    pub(crate) filled: Notify,
    /// Notified when the engine must look at the demand, and when memory is released.
    pub(crate) demand: Arc<Notify>,
    pub(crate) budget: Arc<Budget>,
    wake_callback: WakeCallback,
}

#[derive(Debug, Default)]
struct State {
    items: VecDeque<ShareItem>,
    acks: Vec<PartitionAcks>,
    is_waiting: bool,
    polls_only: bool,
}

impl ShareQueue {
    pub(crate) fn new(bytes_max: usize) -> Arc<Self> {
        let demand = Arc::<Notify>::default();
        let budget = Budget::new(bytes_max, demand.clone());
        let (state, filled, wake_callback) = (Mutex::default(), Notify::new(), WakeCallback::default());
        Arc::new(Self { state, filled, demand, budget, wake_callback })
    }

    /// Passes acknowledgements to the engine and takes the next item. Without an item, the engine fetches as long as the poll
    /// waits.
    pub(crate) fn exchange(&self, acks: Vec<PartitionAcks>) -> Option<ShareItem> {
        let mut state = self.lock();
        let has_acks = !acks.is_empty();
        state.acks.extend(acks);
        let item = state.items.pop_front();
        let begins_to_wait = item.is_none() && !std::mem::replace(&mut state.is_waiting, item.is_none());
        drop(state);
        if has_acks || item.is_some() || begins_to_wait {
            self.demand.notify_one();
        }
        item
    }

    /// Takes the next item, if there is one and it is not of another leader than this one. The engine does not fetch for it.
    pub(crate) fn take_arrived(&self, leader: Option<i32>) -> Option<ShareItem> {
        let is_of = |item: &mut ShareItem| match item {
            ShareItem::Chunk(chunk) => leader.is_none_or(|leader| chunk.node == leader),
            _ => true,
        };
        let item = self.lock().items.pop_front_if(is_of);
        if item.is_some() {
            self.demand.notify_one();
        }
        item
    }

    /// Passes acknowledgements to the engine, without a poll.
    pub(crate) fn acknowledge(&self, acks: Vec<PartitionAcks>) {
        if !acks.is_empty() {
            self.lock().acks.extend(acks);
            self.demand.notify_one();
        }
    }

    /// The poll no longer waits: the engine begins no further long poll.
    pub(crate) fn stop_waiting(&self) {
        self.lock().is_waiting = false;
    }

    /// The engine fetches only while a poll waits.
    pub(crate) fn fetch_for_polls_only(&self) {
        self.lock().polls_only = true;
    }

    /// Adds an item for the polling thread.
    pub(super) fn push(&self, item: ShareItem) {
        self.lock().items.push_back(item);
        self.filled.notify_one();
        self.wake_callback.notify();
    }

    /// Adds the chunks of one response at once, so that one poll can take all of them.
    pub(super) fn push_chunks(&self, chunks: Vec<AcquiredChunk>) {
        let mut state = self.lock();
        state.is_waiting = false;
        state.items.extend(chunks.into_iter().map(ShareItem::Chunk));
        drop(state);
        self.filled.notify_one();
        self.wake_callback.notify();
    }

    /// Removes the chunks of a leader that has released them, and returns the number of their acquired offsets.
    pub(super) fn drop_chunks_of(&self, node: i32) -> u64 {
        let mut state = self.lock();
        let is_of = |item: &ShareItem| matches!(item, ShareItem::Chunk(chunk) if chunk.node == node);
        let (gone, kept): (VecDeque<_>, VecDeque<_>) =
            std::mem::take(&mut state.items).into_iter().partition(is_of);
        state.items = kept;
        drop(state);
        // Freed outside the lock: a large response may be unmapped here.
        let offsets = |item: ShareItem| if let ShareItem::Chunk(chunk) = item { chunk.offsets() } else { 0 };
        gone.into_iter().map(offsets).sum()
    }

    /// Takes the acknowledgements, and reads the demand.
    pub(super) fn take_demand(&self) -> Demand {
        let mut state = self.lock();
        let mut queued: BTreeMap<i32, usize> = BTreeMap::new();
        for item in &state.items {
            if let ShareItem::Chunk(chunk) = item {
                *queued.entry(chunk.node).or_default() += 1;
            }
        }
        let (is_waiting, polls_only) = (state.is_waiting, state.polls_only);
        Demand { acks: std::mem::take(&mut state.acks), is_waiting, polls_only, queued }
    }

    /// The number of chunks and their bytes, by partition.
    pub(super) fn waiting(&self) -> BTreeMap<TopicIdPartition, (u64, usize)> {
        let mut waiting: BTreeMap<TopicIdPartition, (u64, usize)> = BTreeMap::new();
        for item in &self.lock().items {
            if let ShareItem::Chunk(chunk) = item {
                let entry = waiting.entry(chunk.key).or_default();
                *entry = (entry.0 + chunk.offsets(), entry.1 + chunk.records.len());
            }
        }
        waiting
    }

    /// Sets the function that is called with each new item, or removes it.
    pub(crate) fn listen(&self, listener: Option<Arc<dyn Fn() + Send + Sync>>) {
        self.wake_callback.set(listener);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use ottla_protocol::Uuid;

    use super::*;

    fn chunk(node: i32) -> AcquiredChunk {
        AcquiredChunk {
            key: TopicIdPartition { topic_id: Uuid::ONE, partition: node },
            at: TopicPartition::new("orders", node),
            node,
            records: Bytes::new(),
            acquired: Vec::new(),
            locked_until: None,
        }
    }

    /// librdkafka's test 0179: a poll returns the records of one response.
    #[test]
    fn more_records_are_those_of_the_same_leader() {
        let queue = ShareQueue::new(1 << 20);
        queue.push_chunks([1, 1, 2].map(chunk).into());
        let node = |item: Option<ShareItem>| match item {
            Some(ShareItem::Chunk(chunk)) => Some(chunk.node),
            _ => None,
        };
        assert_eq!(node(queue.exchange(Vec::new())), Some(1));
        assert_eq!(node(queue.take_arrived(Some(1))), Some(1));
        assert_eq!(node(queue.take_arrived(Some(1))), None);
        assert_eq!(node(queue.exchange(Vec::new())), Some(2), "the next poll");
    }
}
