//! Leaders and coordinators: the node that leads a partition, and the one that coordinates a group.

use std::sync::Mutex;

use bytes::Bytes;
use ottla_protocol::ErrorCode;

use crate::cluster::nodes::Node;
use crate::cluster::{Cluster, lock};
use crate::internal_topics::{InternalTopic, partition_of};
use crate::partition::{NO_LEADER, Partition};
use crate::topics::{Assignments, Topic};

/// The key of the end of the reserved leader epochs: clients have seen lower ones only.
pub(crate) const LEADER_EPOCH_KEY: &[u8] = b"leader-epoch";
/// Leader epochs reserved in the journal at a time.
const LEADER_EPOCH_BLOCK: i32 = 100;

/// The leader epochs that the journal has reserved.
#[derive(Debug)]
pub(crate) struct LeaderEpochs {
    /// Partitions begin with it.
    pub(crate) first: i32,
    /// No partition gets there before more are reserved.
    end: Mutex<i32>,
}

impl LeaderEpochs {
    /// Partitions begin with `first`; the next change of a leader reserves more.
    pub(crate) fn new(first: i32) -> Self {
        Self { first, end: Mutex::new(first) }
    }

    /// The first epoch that is not reserved.
    pub(crate) fn end(&self) -> i32 {
        *lock(&self.end)
    }
}

/// The replicas of a partition in metadata.
#[derive(Debug)]
pub(crate) struct Replicas {
    pub(crate) all: Vec<i32>,
    pub(crate) in_sync: Vec<i32>,
    pub(crate) offline: Vec<i32>,
}

/// The kinds of election that a client can ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Election {
    /// Gives a partition back to its preferred leader.
    Preferred,
    /// Gives a leader to a partition that has none, if one of its replicas is up. The nodes share one log: nothing is lost.
    Unclean,
}

impl Cluster {
    /// Returns the node that leads a new or an opened partition: the first of its replicas that can lead. A single replica that no client
    /// has chosen is on the next node that is up.
    pub(crate) fn first_leader(&self, assignments: &Assignments, replication: i32, index: i32) -> i32 {
        match assignments.get(&index) {
            Some(assigned) => self.leader_among(assigned, index),
            None if replication <= 1 => self.next_node(index),
            None => self.leader_among(&self.spread(index, replication), index),
        }
    }

    /// Returns the node that leads a partition with these replicas: the first one that is up and not hidden by a test, or [`NO_LEADER`]
    /// while they are down. The next node that is up takes the place of replicas that were removed from the cluster, or hidden.
    pub(crate) fn leader_among(&self, replicas: &[i32], index: i32) -> i32 {
        let can_lead = |id: &&i32| self.is_node_up(**id) && !self.overrides.is_hidden(**id);
        if let Some(id) = replicas.iter().find(can_lead) {
            return *id;
        }
        let is_listed = |id: &i32| self.node(*id).is_some() && !self.overrides.is_hidden(*id);
        let returns = !replicas.is_empty() && replicas.iter().all(is_listed);
        if returns { NO_LEADER } else { self.next_node(index) }
    }

    /// Returns the first node that is up and not hidden by a test, beginning with the one of a partition's number.
    fn next_node(&self, index: i32) -> i32 {
        let count = self.nodes.len();
        let mut nodes = (0..count).map(|step| &self.nodes[(index as usize + step) % count]);
        let can_lead = |node: &&Node| node.is_up() && !self.overrides.is_hidden(node.id);
        nodes.find(can_lead).map_or(NO_LEADER, |node| node.id)
    }

    /// The replicas of a partition that were chosen or placed, the preferred leader first, wherever tests have moved its leader.
    fn placed_replicas(&self, topic: &Topic, index: i32) -> Vec<i32> {
        topic.assigned(index).unwrap_or_else(|| self.spread(index, topic.replication))
    }

    /// The replicas that can lead a partition without a loss: not those that a reassignment in progress adds.
    fn candidates(&self, topic: &Topic, partition: &Partition) -> Vec<i32> {
        let mut replicas = self.replicas(topic, partition).all;
        replicas.retain(|id| !topic.is_lagging(partition.index, *id));
        replicas
    }

    /// The nodes that metadata lists as replicas of a partition, the preferred leader first. They share one copy of the data.
    pub(crate) fn replicas(&self, topic: &Topic, partition: &Partition) -> Replicas {
        let last_leader = partition.last_leader();
        let mut all = match topic.assigned(partition.index) {
            Some(assigned) => assigned,
            None if topic.replication <= 1 => partition.replicas(),
            None => self.spread(partition.index, topic.replication),
        };
        // A test has moved the leader to a node that is no replica.
        if !all.contains(&last_leader) && self.node(last_leader).is_some() {
            all.pop();
            all.insert(0, last_leader);
        }
        let is_available = partition.unavailable().is_none();
        let is_online = |id: &i32| is_available && self.is_node_up(*id);
        let (mut in_sync, offline): (Vec<i32>, Vec<i32>) = all.iter().copied().partition(is_online);
        let lags = |id: &i32| *id != last_leader && topic.is_lagging(partition.index, *id);
        in_sync.retain(|id| !lags(id));
        // As in Kafka, the last replica in sync stays one while it is down.
        if in_sync.is_empty() && is_available {
            let first = || all.iter().find(|id| !lags(id));
            let last = if all.contains(&last_leader) { Some(&last_leader) } else { first() };
            in_sync.extend(last);
        }
        Replicas { all, in_sync, offline }
    }

    /// The replicas for clients: those of an offline log are offline. The nodes share the log, so all of them are.
    pub(crate) fn described_replicas(&self, topic: &Topic, partition: &Partition) -> Replicas {
        let replicas = self.replicas(topic, partition);
        if !partition.is_offline() {
            return replicas;
        }
        Replicas { offline: replicas.all.clone(), in_sync: Vec::new(), all: replicas.all }
    }

    /// The replicas of a partition whose topic stores none, if there is more than one.
    pub(crate) fn spread(&self, index: i32, replication: i32) -> Vec<i32> {
        let nodes = self.nodes.len();
        let count = usize::try_from(replication).map_or(1, |count| count.min(nodes));
        (0..count).map(|step| self.nodes[(index as usize + step) % nodes].id).collect()
    }

    /// Returns the error of a request for the partition's leader at `node` under the client's `epoch` (-1: unknown), if there is one.
    ///
    /// As in Kafka, a replica compares the epochs before it refuses because it does not lead. librdkafka's mock cluster does not.
    pub(crate) fn check_leader(&self, partition: &Partition, node: i32, epoch: i32) -> Result<(), ErrorCode> {
        partition.check_online()?;
        let checked = partition.check_leader(node, epoch);
        if checked == Err(ErrorCode::NotLeaderOrFollower)
            && !self.overrides.mock_fetches()
            && self.is_replica(partition, node)
        {
            partition.check_epoch(epoch)?;
        }
        checked
    }

    /// Returns the error of a request that every replica answers, at `node` under the client's `epoch` (-1: unknown), if there is one.
    pub(crate) fn check_replica(
        &self,
        partition: &Partition,
        node: i32,
        epoch: i32,
    ) -> Result<(), ErrorCode> {
        partition.check_online()?;
        match partition.check_leader(node, epoch) {
            Err(ErrorCode::NotLeaderOrFollower) if self.is_replica(partition, node) => {
                partition.check_epoch(epoch)
            }
            checked => checked,
        }
    }

    /// Returns the replica that a consumer reads from if these nodes are those of its rack, and it is not to read from the leader.
    ///
    /// The rules are those of Kafka's `RackAwareReplicaSelector`, for replicas that never lag, because they share the log: the leader comes
    /// before the others, and then the replica in sync with the highest id.
    pub(crate) fn replica_among(&self, partition: &Partition, nodes: &[i32]) -> Option<i32> {
        if nodes.is_empty() || nodes.contains(&partition.leader()) {
            return None;
        }
        let topic = self.topic(&partition.topic)?;
        let in_sync = self.replicas(&topic, partition).in_sync;
        in_sync.into_iter().filter(|id| nodes.contains(id)).max()
    }

    fn is_replica(&self, partition: &Partition, node: i32) -> bool {
        let topic = self.topic(&partition.topic);
        topic.is_some_and(|topic| self.replicas(&topic, partition).all.contains(&node))
    }

    /// Returns whether as many replicas are up as `min.insync.replicas` demands. It demands at most the replication factor.
    pub(crate) fn has_enough_replicas(&self, topic: &Topic, partition: &Partition) -> bool {
        let replicas = self.replicas(topic, partition);
        let enough = || topic.config.insync_replicas_min(&self.topic_defaults()).min(replicas.all.len());
        replicas.in_sync.len() == replicas.all.len() || replicas.in_sync.len() >= enough()
    }

    /// Moves a partition's leadership to another node of this process, or takes it from all ([`NO_LEADER`]). Returns `false` for a
    /// partition that is offline.
    pub(crate) fn move_leader(&self, topic: &str, index: i32, node: i32) -> bool {
        let partition = self.partition(topic, index).filter(|partition| partition.unavailable().is_none());
        let _leaders = lock(&self.leader_changes);
        match (partition, self.node(node)) {
            (Some(partition), Some(node)) if node.is_up() => {
                self.lead(&partition, node.id);
                true
            }
            (Some(partition), None) if node == NO_LEADER => {
                self.lead(&partition, NO_LEADER);
                true
            }
            _ => false,
        }
    }

    /// Holds an election in one partition. The error is Kafka's for a partition whose leader does not change.
    pub(crate) fn elect_leader(&self, topic: &str, index: i32, election: Election) -> Result<(), ErrorCode> {
        let topic = self.topic(topic).ok_or(ErrorCode::UnknownTopicOrPartition)?;
        let partition = usize::try_from(index).ok().and_then(|index| topic.partitions.get(index));
        let partition = partition.ok_or(ErrorCode::UnknownTopicOrPartition)?;
        let _leaders = lock(&self.leader_changes);
        let leader = partition.leader();
        let (is_needed, node, refusal) = match election {
            Election::Preferred => {
                let replicas = match leader {
                    NO_LEADER => self.replicas(&topic, partition).all,
                    _ => self.placed_replicas(&topic, index),
                };
                let first = replicas.first().copied().unwrap_or(NO_LEADER);
                let can_lead = self.is_node_up(first) && !topic.is_lagging(index, first);
                let node = if can_lead { first } else { NO_LEADER };
                let is_needed = leader == NO_LEADER || leader != first;
                (is_needed, node, ErrorCode::PreferredLeaderNotAvailable)
            }
            Election::Unclean => {
                let node = match self.leader_among(&self.candidates(&topic, partition), index) {
                    NO_LEADER => self.leader_among(&self.replicas(&topic, partition).all, index),
                    node => node,
                };
                (leader == NO_LEADER, node, ErrorCode::EligibleLeadersNotAvailable)
            }
        };
        if !is_needed {
            return Err(ErrorCode::ElectionNotNeeded);
        }
        if node == NO_LEADER || partition.unavailable().is_some() {
            return Err(refusal);
        }
        self.lead(partition, node);
        Ok(())
    }

    /// Makes a node the leader. The caller holds the lock of `leader_changes`.
    pub(crate) fn lead(&self, partition: &Partition, node: i32) {
        if partition.unavailable().is_none() && partition.leader() != node {
            partition.lead(node, self.reserve_epoch(partition));
        }
    }

    /// Gives another leader to a partition whose leader is no replica any more. The caller holds the lock of `leader_changes`.
    pub(crate) fn lead_by_replica(&self, topic: &Topic, partition: &Partition) {
        let assigned = topic.assigned(partition.index);
        let Some(mut replicas) = assigned.filter(|assigned| !assigned.contains(&partition.leader())) else {
            return;
        };
        replicas.retain(|id| !topic.is_lagging(partition.index, *id));
        let leader = self.leader_among(&replicas, partition.index);
        // A test may have moved the leader while the replicas are down.
        if leader != NO_LEADER {
            self.lead(partition, leader);
        }
    }

    /// Begins another epoch of the same leader.
    pub(crate) fn lead_again(&self, partition: &Partition) {
        if partition.unavailable().is_none() && self.reserve_epoch(partition) {
            partition.lead_again();
        }
    }

    /// Returns `true` if the partition's next epoch is above every epoch that a restart would use again.
    fn reserve_epoch(&self, partition: &Partition) -> bool {
        let epoch = partition.leader_epoch() + 1;
        let mut end = lock(&self.leader_epochs.end);
        if epoch >= *end {
            let next = epoch + LEADER_EPOCH_BLOCK;
            let value = Bytes::copy_from_slice(&next.to_be_bytes());
            let key = Bytes::from_static(LEADER_EPOCH_KEY);
            let put = lock(&self.journal).put(self.clock.now_ms(), key, Some(value));
            if let Err(error) = put.and_then(|record| self.sync_journal(record)) {
                // The nodes share one log: a leader without an epoch of its own does no harm, one that is forgotten
                // at the next start does.
                tracing::warn!(%error, "the leader changes without a new epoch");
                return false;
            }
            *end = next;
        }
        true
    }

    /// The node that coordinates a group: the leader of its partition of `__consumer_offsets`, or the node that a test has set,
    /// also if there is no such node.
    pub(crate) fn coordinator(&self, group: &str) -> i32 {
        let moved = lock(&self.coordinators).get(group).copied();
        if let Some(node) = moved.filter(|id| !self.is_node_down(*id)) {
            return node;
        }
        match self.internal_partition(InternalTopic::ConsumerOffsets, group) {
            Some(partition) => partition.leader(),
            // The topic is created with the first request of a member.
            None => self.leader_to_be(InternalTopic::ConsumerOffsets, self.group_partition(group)),
        }
    }

    /// The node that coordinates a transactional id: the leader of its partition of `__transaction_state`, or the node that a
    /// test has set, also if there is no such node.
    pub(crate) fn transaction_coordinator(&self, id: &str) -> i32 {
        let moved = lock(&self.transaction_coordinators).get(id).copied();
        if let Some(node) = moved.filter(|id| !self.is_node_down(*id)) {
            return node;
        }
        let topic = InternalTopic::TransactionState;
        match self.internal_partition(topic, id) {
            Some(partition) => partition.leader(),
            // The topic is created with the first request of a producer.
            None => self.leader_to_be(topic, partition_of(id, topic.partitions(&self.config))),
        }
    }

    /// The node that coordinates a share-partition: the leader of its partition of `__share_group_state`.
    pub(crate) fn share_coordinator(&self, key: &str) -> i32 {
        let topic = InternalTopic::ShareGroupState;
        match self.internal_partition(topic, key) {
            Some(partition) => partition.leader(),
            // The topic is created with the first state.
            None => self.leader_to_be(topic, partition_of(key, topic.partitions(&self.config))),
        }
    }

    /// The node that would lead a partition of an internal topic if that was created now.
    fn leader_to_be(&self, topic: InternalTopic, index: i32) -> i32 {
        let (replication, end) = (self.internal_replication(topic), index + 1);
        let placed = self.place(index..end, replication as usize, replication);
        self.first_leader(&placed, replication, index)
    }

    /// Moves a group's coordinator, unless the node is down.
    pub(crate) fn move_coordinator(&self, group: &str, node: i32) -> bool {
        if self.is_node_down(node) {
            return false;
        }
        lock(&self.coordinators).insert(group.to_owned(), node);
        self.groups.unload(group);
        true
    }

    /// Moves a transactional id's coordinator, unless the node is down. Its state stays: the nodes share it.
    pub(crate) fn move_transaction_coordinator(&self, id: &str, node: i32) -> bool {
        if self.is_node_down(node) {
            return false;
        }
        lock(&self.transaction_coordinators).insert(id.to_owned(), node);
        true
    }

    /// Undoes the moves of coordinators to a node.
    pub(crate) fn forget_moves_to(&self, node: i32) {
        lock(&self.coordinators).retain(|_, id| *id != node);
        lock(&self.transaction_coordinators).retain(|_, id| *id != node);
    }

    /// Takes a node down: its connections are cut, and the partitions that it led are led by another replica that is up, or by none. Or
    /// takes it up.
    pub(crate) fn set_node_up(&self, id: i32, up: bool) -> bool {
        let Some(node) = self.node(id) else { return false };
        let _leaders = lock(&self.leader_changes);
        if !node.turn(up) {
            return true;
        }
        if up {
            self.lead_preferred(id);
        } else {
            self.lead_where(|_, partition| partition.leader() == id);
        }
        true
    }

    /// Gives a leader to the partitions without one of which a replica is up, and makes a node the leader of its preferred partitions:
    /// those whose first replica it is. In Kafka the controller does the latter within five minutes, unless
    /// `auto.leader.rebalance.enable` is off. The caller holds the lock of `leader_changes`.
    pub(crate) fn lead_preferred(&self, id: i32) {
        self.lead_where(|_, partition| partition.leader() == NO_LEADER);
        if !self.config.rebalances_leaders {
            return;
        }
        for topic in self.topics() {
            for partition in topic.partitions.iter().filter(|partition| partition.leader() != NO_LEADER) {
                let mut replicas = self.placed_replicas(&topic, partition.index);
                // Kafka's rebalance moves no leadership between other replicas. A leader that is none has it for a removed or hidden node.
                if replicas.first() != Some(&id) && replicas.contains(&partition.leader()) {
                    continue;
                }
                replicas.retain(|id| !topic.is_lagging(partition.index, *id));
                if self.leader_among(&replicas, partition.index) == id {
                    self.lead(partition, id);
                }
            }
        }
    }

    /// Moves the partitions that a node leads to other nodes, except for those of the coordinators' topics.
    pub(crate) fn lead_elsewhere(&self, id: i32) {
        let _leaders = lock(&self.leader_changes);
        self.lead_where(|_, partition| partition.leader() == id && !partition.is_internal);
    }

    /// Gives other leaders to the partitions of a node that was removed, also to those that would wait for its return. The caller holds
    /// the lock of `leader_changes`.
    pub(crate) fn lead_without(&self, id: i32) {
        let is_affected = |topic: &Topic, partition: &Partition| {
            let leader = partition.leader();
            leader == id || (leader == NO_LEADER && self.replicas(topic, partition).all.contains(&id))
        };
        self.lead_where(is_affected);
    }

    /// Gives other leaders to the partitions of a topic, from this number on, whose nodes stopped while the partitions were created. The
    /// topic is in the table: a node that stops later finds them there.
    pub(crate) fn lead_created(&self, topic: &Topic, from: usize) {
        let _leaders = lock(&self.leader_changes);
        for partition in topic.partitions.iter().skip(from) {
            if !self.is_node_up(partition.leader()) {
                let replicas = self.replicas(topic, partition).all;
                self.lead(partition, self.leader_among(&replicas, partition.index));
            }
        }
    }

    /// Gives all partitions the leaders of a start with the nodes that there are now.
    pub(crate) fn lead_as_opened(&self) {
        let _leaders = lock(&self.leader_changes);
        for topic in self.topics() {
            for partition in &topic.partitions {
                let leader = self.first_leader(&topic.assignments, topic.replication, partition.index);
                self.lead(partition, leader);
            }
        }
    }

    fn lead_where(&self, is_affected: impl Fn(&Topic, &Partition) -> bool) {
        for topic in self.topics() {
            for partition in topic.partitions.iter().filter(|partition| is_affected(&topic, partition)) {
                let replicas = self.candidates(&topic, partition);
                self.lead(partition, self.leader_among(&replicas, partition.index));
            }
        }
    }
}
