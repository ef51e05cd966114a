//! The partitions of topics and their leaders. Plain values, merged from metadata responses.

use std::collections::BTreeSet;
use std::sync::Arc;

use ottla_protocol::messages::metadata::MetadataResponse;
use ottla_protocol::{ErrorCode, Uuid};
use rustc_hash::FxHashMap;

/// The cluster metadata, merged from the latest responses.
#[derive(Debug, Default)]
pub(crate) struct Layout {
    pub(crate) topics: FxHashMap<Arc<str>, TopicLayout>,
    pub(crate) controller: Option<i32>,
}

/// The partitions of a topic, or the error that replaces them.
#[derive(Clone, Debug)]
pub(crate) struct TopicLayout {
    pub(crate) error: ErrorCode,
    /// Zero if the brokers do not report it.
    pub(crate) id: Uuid,
    /// `true` for internal topics, such as committed offsets.
    internal: bool,
    /// By partition number.
    pub(crate) partitions: Arc<Vec<PartitionLayout>>,
}

/// One partition's leader.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PartitionLayout {
    pub(crate) leader: Option<i32>,
    pub(crate) leader_epoch: i32,
}

impl Layout {
    pub(crate) fn merge(&mut self, response: MetadataResponse) {
        self.controller = (response.controller_id >= 0).then_some(response.controller_id);
        for topic in response.topics {
            let Some(name) = topic.name else { continue };
            // A topic that was recreated under the same name shares no state with the old one.
            let old = self.topics.get(name.as_str());
            let old =
                old.filter(|old| old.id == topic.topic_id || old.id.is_zero() || topic.topic_id.is_zero());
            // While the topic is missing, its id is kept to recognize it when it returns.
            let id = match old {
                Some(old) if topic.topic_id.is_zero() => old.id,
                _ => topic.topic_id,
            };
            let count =
                topic.partitions.iter().map(|p| p.partition_index + 1).max().unwrap_or(0).max(0) as usize;
            let mut partitions = vec![PartitionLayout { leader: None, leader_epoch: -1 }; count];
            for partition in &topic.partitions {
                let Some(slot) = partitions.get_mut(partition.partition_index as usize) else { continue };
                *slot = PartitionLayout {
                    leader: (partition.leader_id >= 0).then_some(partition.leader_id),
                    leader_epoch: partition.leader_epoch,
                };
                // The response of a broker with older metadata must not restore an older leader (KIP-320).
                let known = old.and_then(|old| old.partitions.get(partition.partition_index as usize));
                if let Some(known) = known
                    && partition.leader_epoch >= 0
                    && known.leader_epoch > partition.leader_epoch
                {
                    *slot = *known;
                }
            }
            // A topic that disappears briefly keeps its partitions, and producers continue with them (KAFKA C7).
            if topic.error_code != ErrorCode::None
                && partitions.is_empty()
                && let Some(old) = old
            {
                partitions.clone_from(&old.partitions);
                for partition in &mut partitions {
                    partition.leader = None;
                    if id.is_zero() {
                        // Brokers before 2.8 return no topic ids, so the topic may be a new one whose epochs start
                        // again.
                        partition.leader_epoch = -1;
                    }
                }
            }
            let layout = TopicLayout {
                error: topic.error_code,
                id,
                internal: topic.is_internal,
                partitions: Arc::new(partitions),
            };
            self.topics.insert(name.into(), layout);
        }
    }

    /// Returns `true` if a wanted topic is unknown, in error, or has partitions without a leader.
    pub(crate) fn is_unsettled(&self, wanted: &BTreeSet<Arc<str>>) -> bool {
        wanted.iter().any(|topic| {
            self.topics.get(topic).is_none_or(|layout| {
                layout.error != ErrorCode::None
                    || layout.partitions.iter().any(|partition| partition.leader.is_none())
            })
        })
    }
}

impl TopicLayout {
    /// Returns `true` if the topic exists and has partitions.
    pub(crate) fn is_whole(&self) -> bool {
        self.error == ErrorCode::None && !self.partitions.is_empty()
    }

    /// Describes the changes since `before`, in words that follow the topic's name.
    pub(crate) fn changes_since(&self, before: Option<&Self>) -> Vec<String> {
        let mut news = Vec::new();
        let count = self.partitions.len();
        if before.is_none_or(|it| (it.error, it.id, it.partitions.len()) != (self.error, self.id, count)) {
            news.push(match self.error {
                ErrorCode::None => format!(": {count} partition(s), topic id {}", self.id),
                error => format!(": {error}"),
            });
        }
        for (number, partition) in self.partitions.iter().enumerate() {
            let known = before.and_then(|it| it.partitions.get(number)).and_then(|it| it.leader);
            if partition.leader != known {
                let epoch = partition.leader_epoch;
                news.push(match partition.leader {
                    Some(node) => format!(" [{number}]: led by node {node}, leader epoch {epoch}"),
                    None => format!(" [{number}]: without a leader"),
                });
            }
        }
        news
    }

    /// Returns `true` if a subscription pattern may match the topic.
    pub(crate) fn is_visible(&self) -> bool {
        self.error == ErrorCode::None && !self.internal && !self.partitions.is_empty()
    }

    pub(crate) fn leader(&self, partition: i32) -> Option<i32> {
        self.partitions.get(usize::try_from(partition).ok()?)?.leader
    }

    pub(crate) fn leader_epoch(&self, partition: i32) -> Option<i32> {
        Some(self.partitions.get(usize::try_from(partition).ok()?)?.leader_epoch)
    }

    /// Applies the leader that a broker reported. Returns `true` if it is the current leader, so that it can be
    /// called at once. An epoch has one leader: only a newer epoch changes it.
    pub(crate) fn learn_leader(&mut self, partition: i32, leader: i32, epoch: i32) -> bool {
        let at = usize::try_from(partition).ok();
        let Some(known) = at.and_then(|at| Arc::make_mut(&mut self.partitions).get_mut(at)) else {
            return false;
        };
        let is_same_epoch = epoch == known.leader_epoch;
        if epoch > known.leader_epoch || is_same_epoch && known.leader.is_none() {
            *known = PartitionLayout { leader: Some(leader), leader_epoch: epoch };
            return true;
        }
        is_same_epoch && known.leader == Some(leader)
    }

    pub(crate) fn forget_leader(&mut self, partition: i32) {
        let slot =
            usize::try_from(partition).ok().and_then(|at| Arc::make_mut(&mut self.partitions).get_mut(at));
        if let Some(slot) = slot {
            slot.leader = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use ottla_protocol::messages::metadata::{MetadataResponsePartition, MetadataResponseTopic};

    use super::*;

    const OLD: Uuid = Uuid(1_u128.to_be_bytes());
    const NEW: Uuid = Uuid(2_u128.to_be_bytes());

    fn says(layout: &mut Layout, id: Uuid, leader_id: i32, leader_epoch: i32) -> TopicLayout {
        let partition = MetadataResponsePartition { leader_id, leader_epoch, ..Default::default() };
        merged(layout, id, ErrorCode::None, vec![partition])
    }

    fn is_gone(layout: &mut Layout) -> TopicLayout {
        merged(layout, Uuid::ZERO, ErrorCode::UnknownTopicOrPartition, Vec::new())
    }

    fn merged(
        layout: &mut Layout,
        topic_id: Uuid,
        error_code: ErrorCode,
        partitions: Vec<MetadataResponsePartition>,
    ) -> TopicLayout {
        let name = Some("orders".to_owned());
        let topic = MetadataResponseTopic { error_code, name, topic_id, partitions, ..Default::default() };
        layout.merge(MetadataResponse { topics: vec![topic], ..Default::default() });
        layout.topics["orders"].clone()
    }

    #[test]
    fn an_older_leader_does_not_come_back_within_one_topic() {
        let mut layout = Layout::default();
        says(&mut layout, OLD, 1, 5);
        assert_eq!(says(&mut layout, OLD, 2, 4).leader(0), Some(1), "a broker that lags behind");
        assert_eq!(is_gone(&mut layout).leader(0), None);
        assert_eq!(says(&mut layout, OLD, 2, 6).leader(0), Some(2));
    }

    #[test]
    fn a_topic_created_anew_begins_with_its_own_epochs() {
        let mut layout = Layout::default();
        says(&mut layout, OLD, 1, 5);
        assert_eq!(says(&mut layout, NEW, 2, 0).leader(0), Some(2));
        // The same when it was seen to be gone in between, with ids and without.
        for (before, after) in [(NEW, OLD), (Uuid::ZERO, Uuid::ZERO)] {
            says(&mut layout, before, 1, 7);
            is_gone(&mut layout);
            let topic = says(&mut layout, after, 2, 0);
            assert_eq!((topic.id, topic.leader(0), topic.leader_epoch(0)), (after, Some(2), Some(0)));
            layout = Layout::default();
        }
    }
}
