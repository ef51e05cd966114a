//! Reassignments that a replication throttle makes last. The nodes share one log, so that a copy is a matter of time only: the bytes of the
//! log, at the rate of the throttle. The journal has the new replicas from the beginning, so that a restart completes a reassignment.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::cluster::{Cluster, lock};
use crate::config::live::{BROKER, FOLLOWER_RATE, LEADER_RATE};
use crate::config::{FOLLOWER_REPLICAS, LEADER_REPLICAS, ReplicaList};
use crate::partition::{NO_LEADER, Partition};
use crate::topics::{AddedReplica, OngoingReassignment, Topic};

/// Time between two looks at the reassignments in progress.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// The topics that have reassignments in progress.
#[derive(Debug, Default)]
pub(crate) struct ThrottledReassignments {
    /// Topics that have had one at the last look; a topic may have been deleted.
    topics: Mutex<BTreeSet<Arc<str>>>,
    begun: Notify,
}

/// The replicas of a topic that the throttles of their brokers apply to.
#[derive(Debug)]
pub(crate) struct ThrottledReplicas {
    followers: ReplicaList,
    leaders: ReplicaList,
}

impl ThrottledReplicas {
    pub(crate) fn of(topic: &Topic) -> Self {
        let list = |setting| topic.config.replica_list(setting);
        Self { followers: list(FOLLOWER_REPLICAS), leaders: list(LEADER_REPLICAS) }
    }
}

impl ThrottledReassignments {
    /// Notes that a topic has a reassignment in progress.
    pub(crate) fn begin(&self, topic: &Arc<str>) {
        lock(&self.topics).insert(topic.clone());
        self.begun.notify_one();
    }

    fn names(&self) -> Vec<Arc<str>> {
        lock(&self.topics).iter().cloned().collect()
    }
}

impl Cluster {
    /// Ends the reassignments in progress, each when its added replicas have caught up.
    pub(crate) async fn keep_reassigning(self: &Arc<Self>) {
        loop {
            while self.throttled_reassignments.names().is_empty() {
                self.throttled_reassignments.begun.notified().await;
            }
            tokio::time::sleep(CHECK_INTERVAL).await;
            let settle = |cluster: &Self| {
                let _change = lock(&cluster.topic_changes);
                cluster.settle_reassignments(Instant::now());
            };
            self.change_topics(settle).await;
        }
    }

    /// The topics with reassignments in progress, in order of name.
    pub(crate) fn reassigning_topics(&self) -> Vec<Arc<Topic>> {
        let topics = self.throttled_reassignments.names().into_iter().filter_map(|name| self.topic(&name));
        topics.filter(|topic| !topic.reassignments.is_empty()).collect()
    }

    /// Notes what was copied until now, and ends the reassignments whose added replicas have caught up. A change of throttles of brokers
    /// calls it before and after. The caller holds `topic_changes`. Can block for a sync.
    pub(crate) fn settle_reassignments(&self, now: Instant) {
        for name in self.throttled_reassignments.names() {
            self.settle_reassignments_of(&name, now);
        }
    }

    /// The same for one topic: a change of many topics, one after the other, must not look at all of them each time.
    pub(crate) fn settle_reassignments_of(&self, name: &str, now: Instant) {
        let topics = &self.throttled_reassignments.topics;
        if !lock(topics).contains(name) {
            return;
        }
        let is_reassigning = self.topic(name).is_some_and(|topic| self.settle_topic(&topic, now));
        if !is_reassigning {
            lock(topics).remove(name);
        }
    }

    /// Returns whether the topic has reassignments in progress after that.
    fn settle_topic(&self, topic: &Topic, now: Instant) -> bool {
        let throttled = ThrottledReplicas::of(topic);
        let mut completed = Vec::new();
        for (index, ongoing) in &topic.reassignments {
            let Some(partition) = topic.partitions.get(*index as usize) else { continue };
            for added in ongoing.added.iter().filter(|added| !added.is_in_sync()) {
                self.copy(&throttled, partition, added, now);
            }
            let target = topic.assignments.get(index);
            let is_one_up = target.is_some_and(|target| target.iter().any(|id| self.is_node_up(*id)));
            if ongoing.has_caught_up() && is_one_up {
                completed.push(partition);
            }
        }
        let is_reassigning = completed.len() < topic.reassignments.len();
        if !completed.is_empty() {
            let mut settled = topic.clone();
            for partition in &completed {
                settled.reassignments.remove(&partition.index);
            }
            let _leaders = lock(&self.leader_changes);
            // First the leaders: a client must not see one that is no replica.
            for partition in &completed {
                tracing::info!(topic = %topic.name, partition = partition.index, "the reassignment is complete");
                self.lead_by_replica(&settled, partition);
            }
            self.replace(settled);
        }
        is_reassigning
    }

    /// Begins a reassignment of a partition to the replicas `target`. `None` if it is complete at once: no throttle applies to its added
    /// replicas, or there are none. Replicas that an earlier reassignment was adding keep what they have.
    pub(crate) fn begin_reassignment(
        &self,
        topic: &Topic,
        throttled: &ThrottledReplicas,
        index: i32,
        target: &[i32],
        now: Instant,
    ) -> Option<OngoingReassignment> {
        let partition = topic.partitions.get(usize::try_from(index).ok()?)?;
        let earlier = topic.reassignments.get(&index);
        let original = match (earlier, topic.assignments.get(&index)) {
            (Some(earlier), _) => earlier.original.clone(),
            (None, Some(assigned)) => assigned.clone(),
            (None, None) => self.replicas(topic, partition).all,
        };
        let mut nodes = target.to_vec();
        nodes.retain(|id| !original.contains(id));
        nodes.sort_unstable();
        let added = nodes.into_iter().map(|node| {
            let begun = earlier.and_then(|earlier| earlier.added.iter().find(|added| added.node == node));
            begun.cloned().unwrap_or_else(|| {
                let added = AddedReplica::new(node, now);
                self.copy(throttled, partition, &added, now);
                Arc::new(added)
            })
        });
        let ongoing = OngoingReassignment { added: added.collect(), original };
        (!ongoing.has_caught_up()).then_some(ongoing)
    }

    fn copy(&self, throttled: &ThrottledReplicas, partition: &Partition, added: &AddedReplica, now: Instant) {
        let rate = self.copy_rate(throttled, partition, added.node);
        let log_bytes = partition.log().size_bytes();
        added.copy(now, rate, log_bytes);
    }

    /// The bytes per second that a new replica of a partition copies; `None` if no throttle applies. As in Kafka, there is one for the
    /// replica and one for the leader, each of the broker that it is on.
    fn copy_rate(&self, throttled: &ThrottledReplicas, partition: &Partition, node: i32) -> Option<u64> {
        let leader = partition.leader();
        if leader == node {
            // An unclean election, or a test.
            return None;
        }
        let ends = [(&throttled.followers, FOLLOWER_RATE, node), (&throttled.leaders, LEADER_RATE, leader)];
        let rates = ends.into_iter().filter_map(|(replicas, rate, node)| {
            let is_throttled = replicas.contains(partition.index, node);
            if is_throttled { self.replication_rate(rate, node) } else { None }
        });
        let rate = rates.min()?;
        let can_copy = leader != NO_LEADER && self.is_node_up(node);
        Some(if can_copy { rate } else { 0 })
    }

    /// The value of a node's limit of replication, if it is set.
    fn replication_rate(&self, name: &str, node: i32) -> Option<u64> {
        let value = |resource: &str| self.live.values(BROKER, resource).get(name).cloned();
        let value = value(&node.to_string()).or_else(|| value(""))?;
        value.trim().parse().ok()
    }
}
