//! The partitions of a share group whose state the share coordinator initializes, has, or deletes.
//!
//! The group notes a partition before its state is initialized and again afterwards. After a crash in between, it
//! initializes the state again.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ottla_protocol::{ErrorCode, Uuid};
use tokio::time::Instant;

use super::group::{Change, ShareGroup};
use crate::coordinator::consumer_group::group::TopicLookup;
use crate::coordinator::consumer_group::member::Place;

/// An initialization without a result is tried again after this time: Kafka's
/// `group.share.initialize.retry.interval.ms`, which is internal there.
const INITIALIZE_RETRY: Duration = Duration::from_secs(30);

/// The memory of a topic, of the number of a partition, and of an initialization: the nodes of their trees are at least five
/// elevenths full.
const TOPIC_BYTES: usize = 3 * size_of::<(Uuid, TopicPartitions)>();
const INDEX_BYTES: usize = 3 * size_of::<i32>();
const UNDER_WAY_BYTES: usize = 3 * size_of::<(Place, Instant)>();

/// The partitions of a topic.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct TopicPartitions {
    pub(super) name: String,
    pub(super) partitions: BTreeSet<i32>,
}

/// The partitions of a group, by the step of their state.
#[derive(Debug, Default)]
pub(super) struct StatePartitions {
    pub(super) initializing: BTreeMap<Uuid, TopicPartitions>,
    pub(super) initialized: BTreeMap<Uuid, TopicPartitions>,
    pub(super) deleting: BTreeMap<Uuid, String>,
    /// The time at which each initialization that is under way or has failed is tried again.
    under_way: BTreeMap<Place, Instant>,
    /// Present since the last look at all subscribed topics.
    pause: Option<Pause>,
    /// The bytes of the group's memory that are counted for all this.
    counted_bytes: usize,
    /// Partitions were initialized since the last target assignment.
    pub(super) has_news: bool,
}

/// The time for which no partition is to be initialized, unless a subscription or the topics change.
#[derive(Clone, Copy, Debug)]
struct Pause {
    /// The version of the topics.
    topics: u64,
    /// An initialization without a result is tried again at this time; `None` if there is none.
    until: Option<Instant>,
}

impl StatePartitions {
    /// A subscription has changed, or a partition has no state any more: the next heartbeat looks at all subscribed topics.
    pub(super) fn end_pause(&mut self) {
        self.pause = None;
    }

    fn is_paused(&self, now: Instant, topics: u64) -> bool {
        let holds = |pause: Pause| pause.topics == topics && pause.until.is_none_or(|until| now < until);
        self.pause.is_some_and(holds)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.initializing.is_empty() && self.initialized.is_empty() && self.deleting.is_empty()
    }

    fn bytes(&self) -> usize {
        let topics = self.initializing.values().chain(self.initialized.values());
        let topic =
            |topic: &TopicPartitions| TOPIC_BYTES + topic.name.len() + topic.partitions.len() * INDEX_BYTES;
        let deleting = self.deleting.values().map(|name| TOPIC_BYTES + name.len());
        topics.map(topic).chain(deleting).sum::<usize>() + self.under_way.len() * UNDER_WAY_BYTES
    }

    /// Every partition that may have a state.
    pub(super) fn all(&self) -> BTreeSet<Place> {
        let topics = self.initializing.iter().chain(&self.initialized);
        topics.flat_map(|(id, topic)| topic.partitions.iter().map(move |index| (*id, *index))).collect()
    }

    /// Returns `true` if the group waits for the state of this partition.
    pub(super) fn is_initializing(&self, place: Place) -> bool {
        self.initializing.get(&place.0).is_some_and(|topic| topic.partitions.contains(&place.1))
    }

    fn remove_initializing(&mut self, place: Place) -> Option<String> {
        self.under_way.remove(&place);
        let topic = self.initializing.get_mut(&place.0)?;
        let name = topic.partitions.remove(&place.1).then(|| topic.name.clone());
        if topic.partitions.is_empty() {
            self.initializing.remove(&place.0);
        }
        name
    }
}

/// The partitions of a topic to initialize.
struct OpenTopic {
    id: Uuid,
    name: String,
    partitions: Vec<i32>,
}

impl ShareGroup {
    /// Notes the subscribed partitions whose state is to be initialized now, and returns them.
    pub(super) fn begin_initializing(&mut self, now: Instant, lookup: &dyn TopicLookup) -> Vec<Place> {
        let version = lookup.version();
        if self.state_partitions.is_paused(now, version) {
            return Vec::new();
        }
        let (open, mut until) = self.open_partitions(now, lookup);
        if !open.is_empty() {
            // Those that began before have the earlier time.
            until = until.or(Some(now + INITIALIZE_RETRY));
        }
        let mut begun = Vec::new();
        for OpenTopic { id, name, partitions } in open {
            if !self.reserve_states(&name, partitions.len()) {
                tracing::warn!(
                    topic = name,
                    "memory.max.bytes has no room for the partitions of a share group"
                );
                continue;
            }
            begun.extend(partitions.iter().map(|index| (id, *index)));
            self.note_initializing(now, (id, &name), partitions);
        }
        self.count_states();
        self.state_partitions.pause = Some(Pause { topics: version, until });
        begun
    }

    /// The subscribed partitions whose state is neither initialized nor being initialized, and the time at which the first
    /// initialization that is under way is tried again.
    fn open_partitions(&self, now: Instant, lookup: &dyn TopicLookup) -> (Vec<OpenTopic>, Option<Instant>) {
        let states = &self.state_partitions;
        let (mut open, mut first_retry) = (Vec::new(), None::<Instant>);
        for name in self.subscribed_names() {
            let Some((id, count)) = lookup.by_name(name) else { continue };
            let done = states.initialized.get(&id).map(|topic| &topic.partitions);
            if done.is_some_and(|done| done.len() >= count.max(0) as usize) {
                continue;
            }
            let mut partitions = Vec::new();
            for index in (0..count).filter(|index| done.is_none_or(|done| !done.contains(index))) {
                match states.under_way.get(&(id, index)).copied() {
                    Some(retry) if now < retry => {
                        first_retry = Some(first_retry.map_or(retry, |first| first.min(retry)));
                    }
                    _ => partitions.push(index),
                }
            }
            if !partitions.is_empty() {
                open.push(OpenTopic { id, name: name.to_owned(), partitions });
            }
        }
        (open, first_retry)
    }

    /// Counts the memory for so many partitions of a topic until [`ShareGroup::count_states`] has the exact number. Returns `false`,
    /// and counts nothing, if it does not fit.
    pub(super) fn reserve_states(&mut self, topic: &str, partitions: usize) -> bool {
        let bytes = TOPIC_BYTES + topic.len() + partitions * (INDEX_BYTES + UNDER_WAY_BYTES);
        let fits = self.kept.grow(bytes);
        if fits {
            self.state_partitions.counted_bytes += bytes;
        }
        fits
    }

    /// Counts the memory of the partitions as they are.
    pub(super) fn count_states(&mut self) {
        let after = self.state_partitions.bytes();
        let before = std::mem::replace(&mut self.state_partitions.counted_bytes, after);
        self.kept.add(after.saturating_sub(before));
        self.kept.release(before.saturating_sub(after));
    }

    /// Notes that the states of these partitions of a topic are being initialized. Their memory is reserved.
    pub(super) fn note_initializing(
        &mut self,
        now: Instant,
        (id, name): (Uuid, &str),
        partitions: impl IntoIterator<Item = i32>,
    ) {
        for index in partitions {
            let topic = self.state_partitions.initializing.entry(id).or_default();
            name.clone_into(&mut topic.name);
            if topic.partitions.insert(index) {
                self.changed.insert(Change::StatePartitions);
            }
            self.state_partitions.under_way.insert((id, index), now + INITIALIZE_RETRY);
        }
    }

    /// Takes the initializations that succeeded.
    pub(super) fn finish_initializing(&mut self, initialized: &[Place]) {
        for place in initialized {
            // The topic may be deleted by now.
            let Some(name) = self.state_partitions.remove_initializing(*place) else { continue };
            let topic = self.state_partitions.initialized.entry(place.0).or_default();
            topic.name = name;
            topic.partitions.insert(place.1);
            self.state_partitions.has_news = true;
            self.changed.insert(Change::StatePartitions);
        }
        self.count_states();
    }

    /// Takes the initializations that failed. After a passing failure they are tried again with the first heartbeat that comes
    /// `heartbeat_interval` after their start, and else as those without a result: `memory.max.bytes` stays used up for long.
    pub(super) fn note_failed(&mut self, heartbeat_interval: Duration, failed: &BTreeMap<Place, ErrorCode>) {
        let states = &mut self.state_partitions;
        let sooner = INITIALIZE_RETRY.saturating_sub(heartbeat_interval);
        for (place, _) in failed.iter().filter(|(_, code)| code.is_retriable()) {
            let Some(retry_at) = states.under_way.get_mut(place) else { continue };
            *retry_at = retry_at.checked_sub(sooner).unwrap_or(*retry_at);
            if let Some(Pause { until: Some(until), .. }) = &mut states.pause {
                *until = (*until).min(*retry_at);
            }
        }
    }

    /// Moves initialized partitions without a state back: the next heartbeat initializes them. An import can leave out the topic of
    /// the states, and a repair can lose it.
    pub(super) fn initialize_again(&mut self, is_lost: impl Fn(Place) -> bool) {
        let states = &mut self.state_partitions;
        states.end_pause();
        for (id, topic) in &mut states.initialized {
            let lost = topic.partitions.iter().copied().filter(|index| is_lost((*id, *index)));
            let lost: BTreeSet<i32> = lost.collect();
            if lost.is_empty() {
                continue;
            }
            topic.partitions.retain(|index| !lost.contains(index));
            let open = states.initializing.entry(*id).or_default();
            open.name.clone_from(&topic.name);
            open.partitions.extend(lost);
            self.changed.insert(Change::StatePartitions);
        }
        states.initialized.retain(|_, topic| !topic.partitions.is_empty());
        self.count_states();
    }

    /// Notes that the state of a topic's partitions is deleted, and returns the partitions; `None` if there are none.
    pub(super) fn begin_deleting(&mut self, topic: Uuid) -> Option<Vec<Place>> {
        let mut places: Vec<Place> = Vec::new();
        let states = &mut self.state_partitions;
        let was_deleting = states.deleting.contains_key(&topic);
        for known in
            [states.initializing.remove(&topic), states.initialized.remove(&topic)].into_iter().flatten()
        {
            places.extend(known.partitions.iter().map(|index| (topic, *index)));
            states.deleting.insert(topic, known.name);
        }
        if places.is_empty() && !was_deleting {
            return None;
        }
        states.under_way.retain(|(id, _), _| *id != topic);
        states.end_pause();
        self.count_states();
        self.changed.insert(Change::StatePartitions);
        Some(places)
    }

    /// Notes that the state of a topic's partitions is gone. If a member has joined meanwhile, its next heartbeat initializes
    /// the partitions again: their states may have been deleted after they were initialized.
    pub(super) fn finish_deleting(&mut self, topic: Uuid) {
        self.forget_topic(topic);
    }

    /// Forgets a topic that was deleted. Returns whether the group knew it.
    pub(super) fn forget_topic(&mut self, topic: Uuid) -> bool {
        let states = &mut self.state_partitions;
        states.under_way.retain(|(id, _), _| *id != topic);
        states.end_pause();
        let known = [
            states.initializing.remove(&topic).is_some(),
            states.initialized.remove(&topic).is_some(),
            states.deleting.remove(&topic).is_some(),
        ];
        let is_known = known.contains(&true);
        if is_known {
            self.count_states();
            self.changed.insert(Change::StatePartitions);
        }
        is_known
    }
}
