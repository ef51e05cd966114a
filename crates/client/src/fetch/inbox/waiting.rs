//! The items that wait for the polls of a queue.

use super::{Inbox, Item, QueueId, QueueState, State};
use crate::types::{Event, TopicPartition};

impl Inbox {
    /// The events, errors and records that wait in the consumer's own queue, or in the kept queue of a partition.
    pub(crate) fn waiting_items(&self, of: Option<&TopicPartition>) -> usize {
        let state = self.lock();
        let Some(queue) = state.queue_of(of) else { return 0 };
        let listed = queue.ready.iter().filter_map(|slot| state.partitions[slot.index()].as_ref());
        let items = listed.filter(|partition| !partition.paused).flat_map(|partition| &partition.items);
        let results = |item: &Item| match item {
            Item::Chunk(chunk) if chunk.is_current() => chunk.count as usize,
            Item::Chunk(_) => 0,
            Item::Event(_) | Item::Error(_) => 1,
        };
        queue.events.len() + items.map(results).sum::<usize>()
    }

    /// Returns `true` if a poll of the queue has something to do: nothing more is signalled before it. A chunk may have no records.
    pub(crate) fn has_waiting_items(&self, of: Option<&TopicPartition>) -> bool {
        self.lock().queue_of(of).is_some_and(|queue| !queue.is_empty())
    }

    /// The partitions whose revocation waits for a poll.
    pub(crate) fn unseen_revocations(&self) -> Vec<TopicPartition> {
        let state = self.lock();
        let events = state.queues.iter().flat_map(|queue| &queue.events);
        let revoked = events.filter_map(|item| match item {
            Item::Event(Event::Revoked(partitions)) => Some(partitions),
            _ => None,
        });
        revoked.flatten().cloned().collect()
    }

    /// Returns `true` if the loss of any partition waits for a poll.
    pub(crate) fn has_unseen_losses(&self) -> bool {
        let is_loss = |item: &Item| matches!(item, Item::Event(Event::Lost(_)));
        self.lock().queues.iter().any(|queue| queue.events.iter().any(is_loss))
    }

    /// Returns `true` if the loss of this partition waits for a poll: the application acts as its owner still.
    pub(crate) fn has_unseen_loss(&self, at: &TopicPartition) -> bool {
        let is_loss = |item: &Item| matches!(item, Item::Event(Event::Lost(lost)) if lost.contains(at));
        self.lock().queues.iter().any(|queue| queue.events.iter().any(is_loss))
    }
}

impl State {
    fn queue_of(&self, partition: Option<&TopicPartition>) -> Option<&QueueState> {
        let id = partition.map_or(Some(QueueId::MAIN), |at| self.kept_queues.get(at).copied());
        id.map(|id| &self.queues[id.0])
    }
}
