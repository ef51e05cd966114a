//! Queues of single partitions beside the consumer's own, and the forwarding of one queue to another.

use super::{Inbox, QueueId, QueueState, notify};
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

    /// Removes a queue. Its partitions return to the consumer's own queue, and forwarded items to the queues that they come from.
    pub(crate) fn rejoin(&self, gone: QueueId) {
        let mut state = self.lock();
        let target = state.target(gone);
        for queue in &mut state.queues {
            queue.forward.take_if(|to| *to == gone);
        }
        state.kept_queues.retain(|_, kept| *kept != gone);
        for partition in state.partitions.iter_mut().flatten().filter(|partition| partition.queue == gone) {
            partition.queue = QueueId::MAIN;
        }
        state.mark_main();
        let mut signals = state.relist(gone);
        if target != gone {
            signals.extend(state.relist(target));
        }
        state.queues[gone.0] = QueueState::default();
        state.free_queues.push(gone);
        drop(state);
        notify(signals);
    }
}
