//! Queues of single partitions beside the consumer's own, and the forwarding of one queue to another.

use super::{Inbox, QueueId, notify};
use crate::types::TopicPartition;

impl Inbox {
    /// Moves a partition with its items to a queue of its own.
    pub(crate) fn split(&self, at: &TopicPartition) -> Option<QueueId> {
        let mut state = self.lock();
        let slot = state.index.get(at).copied()?;
        let id = state.new_queue();
        state.route(slot, id);
        Some(id)
    }

    /// The same in each assignment of the partition, until the queue is removed.
    pub(crate) fn split_kept(&self, at: &TopicPartition) -> QueueId {
        let mut state = self.lock();
        let id = state.new_queue();
        state.kept_queues.insert(at.clone(), id);
        if let Some(slot) = state.index.get(at).copied() {
            state.route(slot, id);
        }
        id
    }

    /// Forwards the items of one queue, present and future, to another; `None` ends that. Returns `false` if it would be a cycle.
    pub(crate) fn forward(&self, from: QueueId, to: Option<QueueId>) -> bool {
        let mut state = self.lock();
        if to.is_some_and(|to| state.leads(to, from)) {
            return false;
        }
        let before = state.target(from);
        state.queues[from.0].forward = to;
        state.mark_main();
        let signals = state.relist(before);
        drop(state);
        notify(signals);
        true
    }
}
