//! The effects of new metadata on the sender: partitions that appear or disappear, and topics that were created again.

use std::time::Duration;

use ottla_protocol::ErrorCode;

use super::core::Scope;
use super::queue::Queue;
use super::sender::Sender;
use super::topics::Topic;
use crate::error::ProduceErrorKind;
use crate::log::Context;

/// The pause before metadata is requested for a topic that a broker has forbidden, as long as librdkafka's at most.
const FORBIDDEN_FOR: Duration = Duration::from_secs(1);

impl Sender {
    /// Applies new metadata: topics may have grown, partitions may have a leader, and a name may belong to another topic
    /// than before.
    pub(super) fn on_metadata(&mut self) {
        self.looks_again = false;
        let brokers = &self.cluster.brokers;
        self.connections.retain(|node, connection| brokers.is_at(*node, connection));
        for topic in self.produce.topics.all() {
            if let Some(layout) = self.cluster.topic(&topic.name) {
                let before = self.topic_ids.insert(topic.name.clone(), layout.id);
                if before.is_some_and(|before| before != layout.id && !before.is_zero()) {
                    self.on_topic_recreated(&topic, layout.partitions.len());
                }
                topic.set_forbidden(layout.error == ErrorCode::TopicAuthorizationFailed);
                topic.grow(layout.partitions.len(), &self.produce);
                topic.note_leaders(|partition| layout.leader(partition).is_some());
            }
        }
    }

    /// A broker has forbidden a topic: new metadata may allow it again.
    pub(super) fn look_again_at_forbidden(&mut self) {
        if std::mem::replace(&mut self.looks_again, true) {
            return;
        }
        let cluster = self.cluster.clone();
        self.tasks.spawn_local(async move {
            tokio::time::sleep(FORBIDDEN_FOR).await;
            cluster.refresh();
        });
    }

    fn on_topic_recreated(&mut self, topic: &Topic, partitions: usize) {
        self.produce.observer.log.debug(Context::Topic, "TOPICID", || {
            format!("{}: created again, with {partitions} partition(s)", topic.name)
        });
        topic.shrink(partitions);
        self.core.on_topic_recreated(&topic.name, partitions);
    }

    /// Moves records that were produced before their topic was known to their partitions, once it is known. Records for
    /// a topic that may not be used fail.
    pub(super) fn assign_partitions(&mut self, scope: Scope) {
        for index in self.core.examined(scope) {
            let queue = &self.queues[*index];
            if queue.partition >= 0 {
                continue;
            }
            let Some(topic) = self.produce.topics.known(&queue.topic) else { continue };
            if let Some(layout) = self.cluster.topic(&queue.topic) {
                topic.grow(layout.partitions.len(), &self.produce);
                self.fail_forbidden(queue, layout.error);
            }
        }
        // Records may have moved to queues that were empty.
        self.list_ready();
    }

    /// Fails the records of a topic whose error does not go away by waiting.
    fn fail_forbidden(&self, queue: &Queue, code: ErrorCode) {
        if matches!(code, ErrorCode::TopicAuthorizationFailed | ErrorCode::InvalidTopicException) {
            while let Some(open) = queue.take() {
                let kind = ProduceErrorKind::Broker { code, detail: String::new() };
                self.produce.fail_unsent(queue, open, kind);
            }
        }
    }
}
