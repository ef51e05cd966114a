//! The creation of internal topics: when the first client needs a coordinator.

use std::sync::Arc;

use ottla_protocol::ErrorCode;

use super::{InternalTopic, partition_of};
use crate::cluster::Cluster;
use crate::partition::Partition;
use crate::topics::{Assignments, NewTopic, Topic};

impl Cluster {
    /// Returns the partition that has the records of a group or of a transactional id, if the topic exists.
    pub(crate) fn internal_partition(&self, topic: InternalTopic, key: &str) -> Option<Arc<Partition>> {
        let topic = self.topic(topic.name())?;
        let index = partition_of(key, topic.partitions.len() as i32);
        topic.partitions.get(index as usize).cloned()
    }

    /// Returns the partition that has the records of a group or of a transactional id. Creates the topic if it does not
    /// exist, and waits until it is durable. Requests that come meanwhile wait for the same creation.
    pub(crate) async fn coordinator_partition(
        self: &Arc<Self>,
        topic: InternalTopic,
        key: &str,
    ) -> Result<Arc<Partition>, ErrorCode> {
        if let Some(partition) = self.internal_partition(topic, key) {
            return Ok(partition);
        }
        self.change_topics(move |cluster| cluster.create_internal(topic)).await?;
        self.internal_partition(topic, key).ok_or(ErrorCode::CoordinatorNotAvailable)
    }

    /// Creates an internal topic unless it exists. Blocks for syncs.
    pub(crate) fn create_internal(&self, topic: InternalTopic) -> Result<Arc<Topic>, ErrorCode> {
        if let Some(topic) = self.topic(topic.name()) {
            return Ok(topic);
        }
        let replication = self.internal_replication(topic);
        let new = NewTopic {
            name: topic.name().to_owned(),
            partitions: topic.partitions(&self.config),
            config: topic.settings(&self.config),
            replication,
            assignments: Assignments::new(),
        };
        self.create_topic(new, false).map_err(|(_, reason)| {
            tracing::error!(topic = topic.name(), reason, "cannot create the topic of the coordinator");
            ErrorCode::CoordinatorNotAvailable
        })
    }

    /// The number of replicas that an internal topic is created with: at most the number of nodes, as for
    /// `default.replication.factor`.
    pub(crate) fn internal_replication(&self, topic: InternalTopic) -> i32 {
        let nodes = self.node_ids().count() as i32;
        topic.replication(&self.config).min(nodes).max(1)
    }

    /// The number of replicas of a topic whose record has this one. Earlier versions wrote 1 for internal topics, whatever the
    /// configuration was.
    pub(crate) fn loaded_replication(&self, topic: &str, recorded: i32) -> i32 {
        match InternalTopic::of_name(topic) {
            Some(topic) => recorded.max(self.internal_replication(topic)),
            None => recorded,
        }
    }
}
