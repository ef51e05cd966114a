//! What news of topics mean for the sender: partitions that are there now, or no more, and names that stand for another
//! topic.

use ottla_protocol::ErrorCode;

use super::queue::Queue;
use super::sender::Sender;
use super::topics::Topic;
use crate::error::ProduceErrorKind;
use crate::log::Context;

impl Sender {
    /// Metadata has come: topics may have grown, partitions may have found a leader, and a name may stand for another
    /// topic than before.
    pub(super) fn on_layout(&mut self) {
        for (node, leader) in &mut self.leaders {
            leader.connection.take_if(|connection| !self.cluster.brokers.is_at(*node, connection));
        }
        for topic in self.produce.topics.all() {
            if let Some(layout) = self.cluster.topic(&topic.name) {
                let before = self.topic_ids.insert(topic.name.clone(), layout.id);
                if before.is_some_and(|before| before != layout.id && !before.is_zero()) {
                    self.begin_anew(&topic, layout.partitions.len());
                }
                topic.grow(layout.partitions.len(), &self.produce);
                topic.note_leaders(|partition| layout.leader(partition).is_some());
            }
        }
    }

    /// The topic was deleted, and one of the same name created: what waits goes there.
    fn begin_anew(&mut self, topic: &Topic, partitions: usize) {
        self.produce.observer.log.debug(Context::Topic, "TOPICID", || {
            format!("{}: created anew, with {partitions} partition(s)", topic.name)
        });
        topic.shrink(partitions);
        for partition in self.partitions.iter_mut().filter(|partition| partition.queue.topic == topic.name) {
            partition.begin_anew(self.next_request);
        }
    }

    /// Records that were pushed before their topic was known move to their partitions when it is; those of a topic
    /// that may not be used fail.
    pub(super) fn forward_unassigned(&mut self, candidates: &[usize]) {
        for at in candidates.iter().copied() {
            let partition = &mut self.partitions[at];
            if partition.queue.partition >= 0 {
                continue;
            }
            let queue = partition.queue.clone();
            let Some(topic) = self.produce.topics.known(&queue.topic) else { continue };
            if let Some(layout) = self.cluster.topic(&queue.topic) {
                topic.grow(layout.partitions.len(), &self.produce);
                self.fail_forbidden(&queue, layout.error);
            }
        }
        // Forwarding may have filled queues that were empty.
        self.list_ready();
    }

    /// Errors of a topic that waiting does not mend.
    fn fail_forbidden(&self, queue: &Queue, code: ErrorCode) {
        if matches!(code, ErrorCode::TopicAuthorizationFailed | ErrorCode::InvalidTopicException) {
            while let Some(open) = queue.take(true) {
                self.produce.fail_unsent(
                    queue,
                    open,
                    ProduceErrorKind::Broker { code, detail: String::new() },
                );
            }
        }
    }
}
