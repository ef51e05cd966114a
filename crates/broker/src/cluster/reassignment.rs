//! The replicas that clients choose for partitions. The nodes share one copy of the data, so that a change is complete at once unless a
//! replication throttle makes it last.

use std::collections::BTreeSet;
use std::sync::Arc;

use ottla_protocol::ErrorCode;
use tokio::time::Instant;

use crate::cluster::throttled_reassignments::ThrottledReplicas;
use crate::cluster::{Cluster, Refusal, json, lock};
use crate::topics::{Assignments, Topic, record_of, topic_key};

/// A change of the replicas of one partition.
#[derive(Clone, Debug)]
pub(crate) struct Reassignment {
    pub(crate) partition: i32,
    /// The replicas, the preferred leader first; `None` cancels the change in progress.
    pub(crate) replicas: Option<Vec<i32>>,
}

impl Cluster {
    /// Changes the replicas of a topic's partitions, or cancels such changes: all valid changes with one record, which is durable when this
    /// returns. A partition whose leader is no longer a replica gets another leader. Waits for a sync.
    pub(crate) fn reassign(
        &self,
        topic: &str,
        changes: &[Reassignment],
        may_change_count: bool,
    ) -> Vec<Result<(), Refusal>> {
        let _change = lock(&self.topic_changes);
        let now = Instant::now();
        self.settle_reassignments_of(topic, now);
        let Some(topic) = self.topic(topic) else {
            let refusal = (ErrorCode::UnknownTopicOrPartition, format!("topic `{topic}` does not exist"));
            return changes.iter().map(|_| Err(refusal.clone())).collect();
        };
        let checked = changes.iter().map(|change| self.check_reassignment(&topic, change, may_change_count));
        let checked: Vec<Result<Vec<i32>, Refusal>> = checked.collect();
        let (throttled, mut changed) = (ThrottledReplicas::of(&topic), Topic::clone(&topic));
        for (change, replicas) in changes.iter().zip(&checked) {
            let Ok(replicas) = replicas else { continue };
            let index = change.partition;
            // The same replicas again leave a reassignment to them in progress.
            if changed.assignments.get(&index) == Some(replicas) {
                continue;
            }
            changed.assignments.insert(index, replicas.clone());
            match self.begin_reassignment(&topic, &throttled, index, replicas, now) {
                Some(ongoing) => changed.reassignments.insert(index, Arc::new(ongoing)),
                None => changed.reassignments.remove(&index),
            };
        }
        let is_changed = changed.assignments != topic.assignments;
        let stored = if is_changed { self.assign(&changed) } else { Ok(()) };
        checked.into_iter().map(|checked| checked.and(stored.clone())).collect()
    }

    /// Stores the replicas and moves the leaders that are no replicas any more.
    fn assign(&self, topic: &Topic) -> Result<(), Refusal> {
        let partitions = topic.partitions.len() as i32;
        let replicas = self.stored_assignments(&topic.assignments);
        let record = record_of(topic.id, partitions, &topic.config, topic.replication, replicas);
        self.put_durably(&[(topic_key(&topic.name), Some(json(&record)?))])?;
        let _leaders = lock(&self.leader_changes);
        self.replace(topic.clone());
        if !topic.reassignments.is_empty() {
            self.throttled_reassignments.begin(&topic.name);
        }
        for partition in &topic.partitions {
            self.lead_by_replica(topic, partition);
        }
        Ok(())
    }

    /// Returns the replicas after a change, or after a cancellation.
    fn check_reassignment(
        &self,
        topic: &Topic,
        change: &Reassignment,
        may_change_count: bool,
    ) -> Result<Vec<i32>, Refusal> {
        let name = &topic.name;
        let Reassignment { partition: index, replicas } = change;
        let partition = usize::try_from(*index).ok().and_then(|index| topic.partitions.get(index));
        let partition = partition.ok_or_else(|| {
            let reason =
                format!("topic `{name}` has partitions 0 to {}, not {index}", topic.partitions.len() - 1);
            (ErrorCode::UnknownTopicOrPartition, reason)
        })?;
        let ongoing = topic.reassignments.get(index).zip(topic.assignments.get(index));
        let Some(replicas) = replicas else {
            let (ongoing, target) = ongoing.ok_or_else(|| {
                let reason = format!(
                    "topic `{name}` partition {index}: its replicas do not change, nothing to cancel"
                );
                (ErrorCode::NoReassignmentInProgress, reason)
            })?;
            let original = ongoing.cancelled(target);
            self.check_one_is_up(name, *index, &original)?;
            return Ok(original);
        };
        self.check_replicas(name, replicas)?;
        self.check_one_is_up(name, *index, replicas)?;
        // As in Kafka, a reassignment in progress counts as complete.
        let count =
            ongoing.map_or_else(|| self.replicas(topic, partition).all.len(), |(_, target)| target.len());
        if !may_change_count && replicas.len() != count {
            // Kafka's text: its tool shows it behind the partition.
            let reason = format!("The replication factor is changed from {count} to {}", replicas.len());
            return Err((ErrorCode::InvalidReplicationFactor, reason));
        }
        Ok(replicas.clone())
    }

    /// Refuses replicas of which none is up: none of them could lead the partition.
    pub(crate) fn check_one_is_up(&self, topic: &str, index: i32, replicas: &[i32]) -> Result<(), Refusal> {
        if replicas.iter().any(|id| self.is_node_up(*id)) {
            return Ok(());
        }
        let reason = format!("topic `{topic}` partition {index}: none of the nodes {replicas:?} is up");
        Err((ErrorCode::InvalidReplicaAssignment, reason))
    }

    /// Refuses replicas that are no nodes, and nodes that are listed twice.
    fn check_replicas(&self, topic: &str, replicas: &[i32]) -> Result<(), Refusal> {
        let mut seen = BTreeSet::new();
        let reason = if replicas.is_empty() {
            "it has no replica".to_owned()
        } else if let Some(id) = replicas.iter().find(|id| self.node(**id).is_none()) {
            format!("there is no node {id}; the nodes are {:?}", self.node_ids().collect::<Vec<_>>())
        } else if let Some(id) = replicas.iter().find(|id| !seen.insert(**id)) {
            format!("node {id} is listed twice")
        } else {
            return Ok(());
        };
        let reason = format!("topic `{topic}`: the assignment {replicas:?} is not valid: {reason}");
        Err((ErrorCode::InvalidReplicaAssignment, reason))
    }

    /// The replicas of a topic's partitions after `more` were added, with these replicas if the client chooses them. As in Kafka, the
    /// new partitions have as many as partition 0.
    pub(crate) fn grown_assignments(
        &self,
        topic: &Topic,
        more: i32,
        chosen: Option<Vec<Vec<i32>>>,
    ) -> Result<Assignments, Refusal> {
        let mut assignments = topic.assignments.clone();
        let have = topic.partitions.len() as i32;
        let count = topic.partitions.first().map_or(1, |first| self.replicas(topic, first).all.len().max(1));
        let Some(chosen) = chosen else {
            self.check_replication(&topic.name, count as i32)?;
            assignments.extend(self.place(have..have + more, count, topic.replication));
            return Ok(assignments);
        };
        let refuse = |reason: String| {
            Err((ErrorCode::InvalidReplicaAssignment, format!("topic `{}`: {reason}", topic.name)))
        };
        if chosen.len() != more as usize {
            return refuse(format!(
                "the request adds {more} partitions and has replicas for {}",
                chosen.len()
            ));
        }
        for (index, replicas) in (have..).zip(chosen) {
            self.check_replicas(&topic.name, &replicas)?;
            if replicas.len() != count {
                return refuse(format!(
                    "partition {index} gets {} replicas, the others have {count}",
                    replicas.len()
                ));
            }
            self.check_one_is_up(&topic.name, index, &replicas)?;
            assignments.insert(index, replicas);
        }
        Ok(assignments)
    }
}
