//! The partitions of topics and their leaders. Plain values, merged from metadata responses.

use std::collections::BTreeSet;
use std::sync::Arc;

use ottla_protocol::messages::metadata::{
    MetadataResponse, MetadataResponsePartition, MetadataResponseTopic,
};
use ottla_protocol::{ErrorCode, Uuid};
use rustc_hash::{FxHashMap, FxHashSet};

/// More partitions than a topic can have: metadata has a place for each, also for those that a response does not list.
const PARTITIONS_MAX: i32 = 1 << 20;

/// The number of responses in a row with another id that replace a topic in use. One broker with old metadata may answer several of them,
/// because clients prefer open connections.
const RESPONSES_TO_REPLACE: u32 = 10;
/// The same for a topic whose leader has refused requests: it is more likely to be another one.
const RESPONSES_TO_REPLACE_REFUSED: u32 = 2;
/// The number of responses in a row with the id of a replaced topic after which it returns although the current one seems to exist.
const RESPONSES_TO_RETURN: u32 = 30;

/// The most ids of replaced topics that a topic of their name remembers.
const REPLACED_MAX: usize = 8;

/// The cluster metadata, merged from the latest responses.
#[derive(Debug, Default)]
pub(crate) struct Layout {
    pub(crate) topics: FxHashMap<Arc<str>, TopicLayout>,
    pub(crate) controller: Option<i32>,
    /// The racks of nodes. A node that is down is in no response and keeps its rack.
    racks: FxHashMap<i32, Arc<str>>,
}

/// The racks that have a replica of each partition, by partition number.
pub(crate) type PartitionRacks = Vec<BTreeSet<Arc<str>>>;

/// The partitions of a topic, or the error that replaces them.
#[derive(Clone, Debug)]
pub(crate) struct TopicLayout {
    pub(crate) error: ErrorCode,
    /// Zero if the brokers do not report it.
    pub(crate) id: Uuid,
    /// The number of responses about the topic that were applied.
    pub(crate) responses: u64,
    /// The number of last responses in a row that had another id, and were not applied.
    other_ids: u32,
    /// The ids of the topics of this name that were replaced, the latest last.
    replaced: Vec<Uuid>,
    /// The number of last responses in a row that had one of these ids.
    replaced_ids: u32,
    /// Those of them that came while this topic seemed to be gone.
    replaced_ids_while_gone: u32,
    /// `true` for internal topics, such as committed offsets.
    internal: bool,
    /// By partition number.
    pub(crate) partitions: Arc<Vec<PartitionLayout>>,
    /// `None` if no node has a rack.
    pub(crate) racks: Option<Arc<PartitionRacks>>,
}

/// One partition's leader.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PartitionLayout {
    pub(crate) leader: Option<i32>,
    pub(crate) leader_epoch: i32,
    /// The last known leader, also after [`TopicLayout::forget_leader`].
    last_leader: Option<i32>,
}

impl PartitionLayout {
    const UNKNOWN: Self = Self { leader: None, leader_epoch: -1, last_leader: None };

    fn led_by(leader: i32, leader_epoch: i32) -> Self {
        let leader = (leader >= 0).then_some(leader);
        Self { leader, leader_epoch, last_leader: leader }
    }
}

/// The metadata of the wanted topics, which decides when it is requested again.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum LayoutState {
    /// A topic is unknown, in error, or has partitions without a leader.
    Incomplete,
    /// A topic has a temporary error, and its leaders are known from an earlier response.
    Doubtful,
    Complete,
}

impl Layout {
    /// Applies a response. A `protected` topic is replaced by another one of its name only if several responses agree: a broker with old
    /// metadata may still report a topic that was deleted. One that was replaced does not return. Returns `true` if more responses are
    /// needed.
    pub(crate) fn merge(&mut self, response: MetadataResponse, protected: &BTreeSet<Arc<str>>) -> bool {
        let mut needs_more = false;
        self.controller = (response.controller_id >= 0).then_some(response.controller_id);
        for broker in &response.brokers {
            match &broker.rack {
                Some(rack) => self.racks.insert(broker.node_id, rack.as_str().into()),
                None => self.racks.remove(&broker.node_id),
            };
        }
        for mut topic in response.topics {
            let Some(name) = topic.name else { continue };
            let mut known = self.topics.get_mut(name.as_str());
            if known.as_mut().is_some_and(|known| known.refuses(topic.topic_id)) {
                tracing::debug!(topic = %name, id = %topic.topic_id, "the id of a deleted topic, from old metadata");
                continue;
            }
            let known = known.filter(|_| protected.contains(name.as_str()));
            if known.is_some_and(|known| known.doubts(topic.topic_id)) {
                tracing::debug!(topic = %name, id = %topic.topic_id, "another topic id, perhaps from old metadata");
                needs_more = true;
                continue;
            }
            topic.partitions.retain(|partition| (0..PARTITIONS_MAX).contains(&partition.partition_index));
            let before = self.topics.get(name.as_str());
            let responses = before.map_or(0, |before| before.responses) + 1;
            // A topic that was recreated under the same name shares no state with the old one.
            let old =
                before.filter(|old| old.id == topic.topic_id || old.id.is_zero() || topic.topic_id.is_zero());
            // While the topic is missing, its id is kept to recognize it when it returns.
            let id = match old {
                Some(old) if topic.topic_id.is_zero() => old.id,
                _ => topic.topic_id,
            };
            let count = topic.partitions.iter().map(|p| p.partition_index as usize + 1).max().unwrap_or(0);
            let mut partitions = vec![PartitionLayout::UNKNOWN; count];
            for partition in &topic.partitions {
                let Some(slot) = partitions.get_mut(partition.partition_index as usize) else { continue };
                *slot = PartitionLayout::led_by(partition.leader_id, partition.leader_epoch);
                // The response of a broker with older metadata must not restore an older leader (KIP-320).
                let known = old.and_then(|old| old.partitions.get(partition.partition_index as usize));
                if let Some(known) = known
                    && partition.leader_epoch >= 0
                    && known.leader_epoch > partition.leader_epoch
                {
                    *slot = *known;
                }
            }
            let mut racks = self.racks_of(&topic.partitions, count);
            // A topic that disappears briefly keeps its partitions, and producers continue with them (KAFKA C7).
            if topic.error_code != ErrorCode::None
                && partitions.is_empty()
                && let Some(old) = old
            {
                racks.clone_from(&old.racks);
                partitions = old.partitions_in_error(topic.error_code, !id.is_zero());
            } else if let Some(old) = old
                && old.id == topic.topic_id
                && !old.id.is_zero()
            {
                keep_tail(old, &mut partitions, &mut racks);
            }
            let layout = TopicLayout {
                error: topic.error_code,
                id,
                responses,
                other_ids: 0,
                replaced: before.map(|before| before.replaced_by(id)).unwrap_or_default(),
                replaced_ids: 0,
                replaced_ids_while_gone: 0,
                internal: topic.is_internal,
                partitions: Arc::new(partitions),
                racks,
            };
            self.topics.insert(name.into(), layout);
        }
        needs_more
    }

    /// Accepts the topic ids of a response although topics with other ids have replaced them: they were requested by id, and the
    /// coordinator that assigns these topics knows the ids, too.
    pub(crate) fn accept_ids(&mut self, response: &MetadataResponse) {
        for topic in &response.topics {
            if let Some(known) = topic.name.as_deref().and_then(|name| self.topics.get_mut(name)) {
                known.replaced.retain(|id| *id != topic.topic_id);
            }
        }
    }

    /// `true` if the last response had another id for the topic, and was not applied.
    pub(crate) fn is_in_doubt(&self, topic: &str) -> bool {
        self.topics.get(topic).is_some_and(|known| known.other_ids > 0)
    }

    /// Removes the topics that a response with all topics does not list. A wanted one stays: the response then reports it
    /// as unknown, as a response to its name does.
    pub(crate) fn mark_unlisted(&mut self, wanted: &BTreeSet<Arc<str>>, all: &mut MetadataResponse) {
        let names: FxHashSet<&str> = all.topics.iter().filter_map(|topic| topic.name.as_deref()).collect();
        let mut unknown = Vec::new();
        self.topics.retain(|topic, _| {
            if names.contains(&**topic) {
                return true;
            }
            let is_wanted = wanted.contains(topic);
            unknown.extend(is_wanted.then(|| MetadataResponseTopic {
                error_code: ErrorCode::UnknownTopicOrPartition,
                name: Some(topic.to_string()),
                ..Default::default()
            }));
            is_wanted
        });
        all.topics.extend(unknown);
    }

    /// The racks of the replicas, for partitions from 0 to `count`.
    fn racks_of(
        &self,
        partitions: &[MetadataResponsePartition],
        count: usize,
    ) -> Option<Arc<PartitionRacks>> {
        if self.racks.is_empty() {
            return None;
        }
        let mut racks = vec![BTreeSet::new(); count];
        for partition in partitions {
            if let Some(of_partition) = racks.get_mut(partition.partition_index as usize) {
                let replicas = partition.replica_nodes.iter();
                of_partition.extend(replicas.filter_map(|node| self.racks.get(node).cloned()));
            }
        }
        Some(Arc::new(racks))
    }

    /// `true` if the topic exists and has partitions.
    pub(crate) fn is_whole(&self, topic: &str) -> bool {
        self.topics.get(topic).is_some_and(TopicLayout::is_whole)
    }

    pub(crate) fn state_of(&self, wanted: &BTreeSet<Arc<str>>) -> LayoutState {
        let mut state = LayoutState::Complete;
        for topic in wanted {
            match self.topics.get(topic) {
                Some(layout) if layout.partitions.iter().any(|partition| partition.leader.is_none()) => {
                    return LayoutState::Incomplete;
                }
                Some(layout) if layout.error == ErrorCode::None => {}
                Some(layout) if is_temporary(layout.error) && !layout.partitions.is_empty() => {
                    state = LayoutState::Doubtful;
                }
                Some(_) | None => return LayoutState::Incomplete,
            }
        }
        state
    }
}

/// Adds the known partitions behind the last one of a response. A topic has no fewer partitions than before: the broker lags behind.
fn keep_tail(
    known: &TopicLayout,
    partitions: &mut Vec<PartitionLayout>,
    racks: &mut Option<Arc<PartitionRacks>>,
) {
    partitions.extend_from_slice(known.partitions.get(partitions.len()..).unwrap_or_default());
    if let Some(racks) = racks {
        let racks = Arc::make_mut(racks);
        let known = known.racks.as_ref().and_then(|known| known.get(racks.len()..));
        racks.extend_from_slice(known.unwrap_or_default());
        racks.resize_with(partitions.len(), BTreeSet::new);
    }
}

/// `true` for a topic's errors that do not mean that the topic is missing or forbidden.
fn is_temporary(code: ErrorCode) -> bool {
    code.is_retriable() && !is_missing(code)
}

const fn is_missing(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::UnknownTopicOrPartition | ErrorCode::UnknownTopicId)
}

impl TopicLayout {
    /// Returns `true` if the topic exists and has partitions.
    pub(crate) fn is_whole(&self) -> bool {
        self.error == ErrorCode::None && !self.partitions.is_empty()
    }

    /// The number of partitions, which is 0 if the topic does not exist. `None` if another error replaces them.
    pub(crate) fn known_partitions(&self) -> Option<usize> {
        if is_missing(self.error) {
            return Some(0);
        }
        (!self.partitions.is_empty()).then_some(self.partitions.len())
    }

    /// The topic's error.
    pub(crate) fn error(&self) -> ErrorCode {
        self.error
    }

    /// The topic's error, unless it is a temporary one of an existing topic.
    pub(crate) fn lasting_error(&self) -> Option<ErrorCode> {
        (self.error != ErrorCode::None && !is_temporary(self.error)).then_some(self.error)
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

    /// Returns `true` for a response with the id of a topic that was replaced: a deleted topic does not return. Enough such responses in a
    /// row show that the replacement was wrong. Fewer suffice if this topic seems to be gone.
    fn refuses(&mut self, id: Uuid) -> bool {
        if !self.replaced.contains(&id) {
            return false;
        }
        self.replaced_ids += 1;
        self.replaced_ids_while_gone += u32::from(self.has_refused() || is_missing(self.error));
        self.replaced_ids < RESPONSES_TO_RETURN && self.replaced_ids_while_gone < RESPONSES_TO_REPLACE
    }

    /// The ids of replaced topics in a layout of the topic with this id, which follows this layout.
    fn replaced_by(&self, id: Uuid) -> Vec<Uuid> {
        let mut replaced = self.replaced.clone();
        if self.id != id && !self.id.is_zero() && !id.is_zero() {
            replaced.retain(|earlier| *earlier != id);
            replaced.push(self.id);
            replaced.drain(..replaced.len().saturating_sub(REPLACED_MAX));
        }
        replaced
    }

    /// The partitions after a response that has an error in their place.
    fn partitions_in_error(&self, error: ErrorCode, has_id: bool) -> Vec<PartitionLayout> {
        let mut partitions = self.partitions.to_vec();
        for partition in &mut partitions {
            if is_temporary(error) {
                // The topic exists. Requests to its leaders show whether they still lead.
                partition.leader = partition.last_leader;
                continue;
            }
            (partition.leader, partition.last_leader) = (None, None);
            if !has_id {
                // Brokers before 2.8 return no topic ids, so the topic may be a new one whose epochs start again.
                partition.leader_epoch = -1;
            }
        }
        partitions
    }

    /// Returns `true` if a leader has refused a request, and no other one is known.
    fn has_refused(&self) -> bool {
        self.partitions.iter().any(|partition| partition.leader.is_none() && partition.last_leader.is_some())
    }

    /// Counts a response with this id. Returns `true` if it must not replace the topic yet. A topic that was seen to be missing may be
    /// replaced at once.
    fn doubts(&mut self, id: Uuid) -> bool {
        if id == self.id || id.is_zero() || self.id.is_zero() || is_missing(self.error) {
            return false;
        }
        self.other_ids += 1;
        let enough = if self.has_refused() { RESPONSES_TO_REPLACE_REFUSED } else { RESPONSES_TO_REPLACE };
        self.other_ids < enough
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
            *known = PartitionLayout::led_by(leader, epoch);
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
    use ottla_protocol::messages::metadata::MetadataResponseBroker;

    use super::*;

    const OLD: Uuid = Uuid(1_u128.to_be_bytes());
    const NEW: Uuid = Uuid(2_u128.to_be_bytes());
    const NEWER: Uuid = Uuid(3_u128.to_be_bytes());
    const NEWEST: Uuid = Uuid(4_u128.to_be_bytes());

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
        layout.merge(MetadataResponse { topics: vec![topic], ..Default::default() }, &BTreeSet::new());
        layout.topics["orders"].clone()
    }

    /// A response with so many partitions of a topic in use. Returns whether more responses are needed.
    fn reports(layout: &mut Layout, topic_id: Uuid, count: i32) -> bool {
        let partition = |partition_index| MetadataResponsePartition {
            partition_index,
            leader_id: 1,
            leader_epoch: 0,
            ..Default::default()
        };
        let partitions = (0..count).map(partition).collect();
        let topic =
            MetadataResponseTopic { name: Some("orders".into()), topic_id, partitions, ..Default::default() };
        let response = MetadataResponse { topics: vec![topic], ..Default::default() };
        layout.merge(response, &BTreeSet::from(["orders".into()]))
    }

    fn known(layout: &Layout) -> (Uuid, usize) {
        let topic = &layout.topics["orders"];
        (topic.id, topic.partitions.len())
    }

    #[test]
    fn an_older_leader_does_not_come_back_within_one_topic() {
        let mut layout = Layout::default();
        says(&mut layout, OLD, 1, 5);
        assert_eq!(says(&mut layout, OLD, 2, 4).leader(0), Some(1), "a broker that lags behind");
        assert_eq!(is_gone(&mut layout).leader(0), None);
        assert_eq!(says(&mut layout, OLD, 2, 6).leader(0), Some(2));
    }

    /// A response with such a number made the client allocate memory for all partitions below it, or overflowed.
    #[test]
    fn a_partition_number_that_no_topic_can_have_is_left_out() {
        let mut layout = Layout::default();
        let broker = MetadataResponseBroker { node_id: 1, rack: Some("a".into()), ..Default::default() };
        layout.merge(MetadataResponse { brokers: vec![broker], ..Default::default() }, &BTreeSet::new());
        let partition = |partition_index| MetadataResponsePartition {
            partition_index,
            leader_id: 1,
            replica_nodes: vec![1],
            ..Default::default()
        };
        let numbers = [1, i32::MAX, -1, 2_000_000_000, i32::MIN, 0].map(partition);
        let topic = merged(&mut layout, OLD, ErrorCode::None, numbers.to_vec());
        assert_eq!((topic.partitions.len(), topic.racks.as_ref().map(|racks| racks.len())), (2, Some(2)));
        assert_eq!((topic.leader(0), topic.leader(1)), (Some(1), Some(1)));
    }

    /// A response of a broker that lags behind took the newest partitions from their readers.
    #[test]
    fn a_topic_keeps_the_partitions_that_a_response_leaves_out() {
        let mut layout = Layout::default();
        let broker = MetadataResponseBroker { node_id: 1, rack: Some("a".into()), ..Default::default() };
        layout.merge(MetadataResponse { brokers: vec![broker], ..Default::default() }, &BTreeSet::new());
        let partitions = |count: i32, leader_epoch: i32| -> Vec<_> {
            let partition = |partition_index| MetadataResponsePartition {
                partition_index,
                leader_id: 1,
                leader_epoch,
                replica_nodes: vec![1],
                ..Default::default()
            };
            (0..count).map(partition).collect()
        };
        let whole = merged(&mut layout, OLD, ErrorCode::None, partitions(4, 5));
        for count in [2, 0] {
            let topic = merged(&mut layout, OLD, ErrorCode::None, partitions(count, 6));
            assert_eq!(
                (topic.partitions.len(), topic.leader(3), topic.leader_epoch(3)),
                (4, Some(1), Some(5))
            );
            assert_eq!(topic.racks, whole.racks, "{count} partitions");
        }
        assert_eq!(layout.topics["orders"].leader_epoch(1), Some(6));
        assert_eq!(merged(&mut layout, NEW, ErrorCode::None, partitions(2, 0)).partitions.len(), 2);
        // Without ids, the topic may be another one of the same name.
        let mut layout = Layout::default();
        for count in [4, 2] {
            let topic = merged(&mut layout, Uuid::ZERO, ErrorCode::None, partitions(count, 0));
            assert_eq!(topic.partitions.len(), count as usize);
        }
    }

    /// librdkafka's test 0146 waited for its delivery reports until `message.timeout.ms`.
    #[test]
    fn a_temporary_error_of_a_topic_keeps_its_leaders() {
        let mut layout = Layout::default();
        let wanted = BTreeSet::from(["orders".into()]);
        assert_eq!(layout.state_of(&wanted), LayoutState::Incomplete);
        says(&mut layout, OLD, 1, 5);
        assert_eq!(layout.state_of(&wanted), LayoutState::Complete);
        layout.topics.get_mut("orders").expect("it is known").forget_leader(0);
        assert_eq!(layout.state_of(&wanted), LayoutState::Incomplete);
        let topic = merged(&mut layout, OLD, ErrorCode::KafkaStorageError, Vec::new());
        assert_eq!((topic.leader(0), topic.leader_epoch(0)), (Some(1), Some(5)));
        assert_eq!(layout.state_of(&wanted), LayoutState::Doubtful);
        assert_eq!(is_gone(&mut layout).leader(0), None);
        assert_eq!(merged(&mut layout, OLD, ErrorCode::KafkaStorageError, Vec::new()).leader(0), None);
        assert_eq!(layout.state_of(&wanted), LayoutState::Incomplete);
    }

    #[test]
    fn a_topic_created_anew_begins_with_its_own_epochs() {
        let mut layout = Layout::default();
        says(&mut layout, OLD, 1, 5);
        assert_eq!(says(&mut layout, NEW, 2, 0).leader(0), Some(2));
        // The same when it was seen to be gone in between, with ids and without.
        for (before, after) in [(NEW, OLD), (Uuid::ZERO, Uuid::ZERO)] {
            let mut layout = Layout::default();
            says(&mut layout, before, 1, 7);
            is_gone(&mut layout);
            let topic = says(&mut layout, after, 2, 0);
            assert_eq!((topic.id, topic.leader(0), topic.leader_epoch(0)), (after, Some(2), Some(0)));
        }
    }

    /// One response of a broker with old metadata sent a consumer of the new topic to the start, and failed a producer's records for
    /// partitions that the old topic did not have.
    #[test]
    fn a_response_with_the_id_of_a_deleted_topic_does_not_replace_the_new_one() {
        let mut layout = Layout::default();
        assert!(!reports(&mut layout, NEW, 2));
        for _ in 0..2 * RESPONSES_TO_REPLACE {
            assert!(reports(&mut layout, OLD, 1));
            assert!(layout.is_in_doubt("orders"));
            assert_eq!(known(&layout), (NEW, 2));
            assert!(!reports(&mut layout, NEW, 2));
            assert!(!layout.is_in_doubt("orders"));
        }
        layout.topics.get_mut("orders").expect("it is known").forget_leader(0);
        assert!(reports(&mut layout, OLD, 1), "the leader may only have moved");
        assert_eq!(known(&layout), (NEW, 2));
    }

    #[test]
    fn a_topic_is_created_again_if_several_responses_agree() {
        let mut layout = Layout::default();
        reports(&mut layout, OLD, 1);
        for _ in 1..RESPONSES_TO_REPLACE {
            assert!(reports(&mut layout, NEW, 2));
            assert_eq!(known(&layout), (OLD, 1));
        }
        assert!(!reports(&mut layout, NEW, 2));
        assert_eq!(known(&layout), (NEW, 2));
        // Its leader does not know the topic.
        layout.topics.get_mut("orders").expect("it is known").forget_leader(1);
        assert!(reports(&mut layout, NEWER, 3));
        assert!(!reports(&mut layout, NEWER, 3));
        assert_eq!(known(&layout), (NEWER, 3));
        // It was seen to be missing.
        is_gone(&mut layout);
        assert!(!reports(&mut layout, NEWEST, 2));
        assert_eq!(known(&layout), (NEWEST, 2));
    }

    /// A broker with old metadata that answered the application's own request, or ten others, brought the deleted topic back, and a
    /// consumer of the new one read from the start.
    #[test]
    fn a_topic_that_was_replaced_does_not_return() {
        let mut layout = Layout::default();
        says(&mut layout, OLD, 1, 0);
        for _ in 0..RESPONSES_TO_REPLACE {
            reports(&mut layout, NEW, 2);
        }
        assert_eq!(known(&layout), (NEW, 2));
        assert_eq!(says(&mut layout, OLD, 1, 0).id, NEW, "a response that is not doubted");
        for _ in 0..2 * RESPONSES_TO_REPLACE {
            assert!(!reports(&mut layout, OLD, 1));
            assert!(!layout.is_in_doubt("orders"), "no second response is needed");
        }
        assert_eq!(known(&layout), (NEW, 2));
    }

    #[test]
    fn a_topic_that_was_replaced_by_a_deleted_one_returns_once_its_leader_refuses() {
        let mut layout = Layout::default();
        reports(&mut layout, NEW, 2);
        for _ in 0..RESPONSES_TO_REPLACE {
            reports(&mut layout, OLD, 1);
        }
        assert!(!reports(&mut layout, NEW, 2));
        assert_eq!(known(&layout), (OLD, 1));
        layout.topics.get_mut("orders").expect("it is known").forget_leader(0);
        for _ in 0..=RESPONSES_TO_REPLACE {
            assert_eq!(known(&layout), (OLD, 1));
            reports(&mut layout, NEW, 2);
        }
        assert_eq!(known(&layout), (NEW, 2));
    }

    /// One response of a broker with old metadata had brought a deleted topic back while the new one was not in use. The new one then
    /// stayed hidden for good.
    #[test]
    fn a_topic_that_was_replaced_by_a_deleted_one_returns_although_no_leader_refuses() {
        let mut layout = Layout::default();
        reports(&mut layout, NEW, 2);
        for _ in 0..2 {
            assert_eq!(says(&mut layout, OLD, 1, 0).id, OLD, "it is not in use, and the count begins again");
            for _ in 1..RESPONSES_TO_RETURN {
                assert_eq!(says(&mut layout, NEW, 1, 0).id, OLD);
            }
        }
        assert_eq!(says(&mut layout, NEW, 1, 0).id, NEW);
    }

    /// A member of a group with the new protocol refused the topic that its coordinator assigned, in the same case.
    #[test]
    fn a_topic_that_is_requested_by_its_id_returns_at_once() {
        let mut layout = Layout::default();
        reports(&mut layout, NEW, 2);
        assert_eq!(says(&mut layout, OLD, 1, 0).id, OLD);
        assert_eq!(says(&mut layout, NEW, 1, 0).id, OLD);
        let topic =
            MetadataResponseTopic { name: Some("orders".into()), topic_id: NEW, ..Default::default() };
        layout.accept_ids(&MetadataResponse { topics: vec![topic], ..Default::default() });
        assert_eq!(says(&mut layout, NEW, 1, 0).id, NEW);
        assert_eq!(says(&mut layout, OLD, 1, 0).id, NEW, "the deleted topic");
    }
}
