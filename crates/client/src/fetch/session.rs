//! The client's half of a fetch session (KIP-227): the broker remembers the partitions that are fetched.
//!
//! The first request of a session names all partitions, each later one only what has changed. Sync: the core adds and
//! removes partitions, takes requests, and reports responses.

use std::collections::BTreeSet;
use std::sync::Arc;

use ottla_protocol::messages::fetch::{FetchPartition, FetchTopic, ForgottenTopic};
use ottla_protocol::{ErrorCode, Uuid};
use rustc_hash::{FxHashMap, FxHashSet};

use super::cursors::Slot;
use super::progress::PartitionProgress;
use crate::types::TopicPartition;

/// The highest version; requests from version 13 on name topics by id.
const FETCH_VERSION_IDS: i16 = 17;
/// The highest version in which requests name topics by name.
const FETCH_VERSION_NAMES: i16 = 12;
/// The epoch of a request outside any session.
const NO_SESSION: i32 = -1;

/// A partition's fields in a request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct RequestedPartition {
    pub(crate) offset: i64,
    /// The epoch of the leader in our metadata (KIP-320); -1 if unknown.
    pub(crate) leader_epoch: i32,
}

/// A partition of a session.
#[derive(Debug)]
pub(crate) struct SessionPartition {
    pub(crate) progress: Arc<PartitionProgress>,
    pub(crate) requested: RequestedPartition,
    id: Uuid,
}

/// The session with one broker. At epoch 0 the next request begins a new session.
#[derive(Debug, Default)]
pub(crate) struct Session {
    id: i32,
    epoch: i32,
    partitions: FxHashMap<Slot, SessionPartition>,
    /// The partitions' slots, by topic.
    index: FxHashMap<Arc<str>, FxHashMap<i32, Slot>>,
    names: FxHashMap<Uuid, Arc<str>>,
    /// Partitions that the next request must name.
    changed: Vec<Slot>,
    /// Partitions that the next request must remove.
    removed: BTreeSet<(TopicPartition, Uuid)>,
    /// The number of partitions without a topic id.
    without_id: usize,
    /// `true` if the session identifies topics by id.
    by_id: bool,
}

/// The session's part of a Fetch request.
#[derive(Debug)]
pub(crate) struct SessionRequest {
    pub(crate) id: i32,
    pub(crate) epoch: i32,
    pub(crate) version_max: i16,
    pub(crate) topics: Vec<FetchTopic>,
    pub(crate) forgotten: Vec<ForgottenTopic>,
}

impl Session {
    /// The number of partitions.
    pub(crate) fn len(&self) -> usize {
        self.partitions.len()
    }

    /// Adds a partition, or changes what is requested of it.
    pub(crate) fn want(
        &mut self,
        slot: Slot,
        progress: &Arc<PartitionProgress>,
        id: Uuid,
        requested: RequestedPartition,
    ) {
        if let Some(member) = self.partitions.get_mut(&slot) {
            if Arc::ptr_eq(&member.progress, progress) && member.id == id {
                if member.requested != requested {
                    member.requested = requested;
                    self.changed.push(slot);
                }
                return;
            }
            self.forget(slot);
        }
        self.removed.remove(&(progress.at.clone(), id));
        self.index.entry(progress.at.topic.clone()).or_default().insert(progress.at.partition, slot);
        if id.is_zero() {
            self.without_id += 1;
        } else {
            self.names.insert(id, progress.at.topic.clone());
        }
        self.partitions.insert(slot, SessionPartition { progress: progress.clone(), requested, id });
        self.changed.push(slot);
    }

    /// Removes a partition. Later answers for it are dropped.
    pub(crate) fn forget(&mut self, slot: Slot) {
        let Some(SessionPartition { progress, id, .. }) = self.partitions.remove(&slot) else { return };
        if let Some(partitions) = self.index.get_mut(&progress.at.topic) {
            partitions.remove(&progress.at.partition);
            if partitions.is_empty() {
                self.index.remove(&progress.at.topic);
                self.names.remove(&id);
            }
        }
        self.without_id -= usize::from(id.is_zero());
        self.removed.insert((progress.at.clone(), id));
    }

    /// The next request. A request that names all partitions begins with another one for each `rotation`: brokers fill
    /// responses in this order.
    pub(crate) fn request(&mut self, rotation: usize, partition_max_bytes: i32) -> SessionRequest {
        let by_id = self.without_id == 0;
        if by_id != self.by_id {
            // A session names all topics by id, or all by name (KIP-516).
            self.restart();
            self.by_id = by_id;
        }
        let mut slots = std::mem::take(&mut self.changed);
        let mut removed = std::mem::take(&mut self.removed);
        if self.epoch == 0 {
            slots = self.partitions.keys().copied().collect();
            slots.sort_unstable();
            if !slots.is_empty() {
                let first = rotation % slots.len();
                slots.rotate_left(first);
            }
            removed.clear();
        }
        let mut named = FxHashSet::default();
        slots.retain(|slot| named.insert(*slot));
        let members = slots.iter().filter_map(|slot| self.partitions.get(slot));
        SessionRequest {
            id: self.id,
            epoch: self.epoch,
            version_max: if by_id { FETCH_VERSION_IDS } else { FETCH_VERSION_NAMES },
            topics: topics_of(members, partition_max_bytes),
            forgotten: forgotten_of(removed),
        }
    }

    /// A request outside any session, with all partitions.
    pub(crate) fn request_without_session(&mut self, partition_max_bytes: i32) -> SessionRequest {
        let asking = self.request(0, partition_max_bytes);
        SessionRequest { id: 0, epoch: NO_SESSION, ..asking }
    }

    /// Returns `true` if the session has this partition.
    pub(crate) fn has(&self, slot: Slot, progress: &Arc<PartitionProgress>) -> bool {
        self.partitions.get(&slot).is_some_and(|member| Arc::ptr_eq(&member.progress, progress))
    }

    /// Returns `true` if this partition is requested from this offset.
    pub(crate) fn requests(&self, slot: Slot, progress: &Arc<PartitionProgress>, offset: i64) -> bool {
        let member = self.partitions.get(&slot);
        member.is_some_and(|member| {
            Arc::ptr_eq(&member.progress, progress) && member.requested.offset == offset
        })
    }

    /// Processes the session fields of a response. Returns whether the session continues; if not, the next request names
    /// all partitions.
    pub(crate) fn on_response(&mut self, error: ErrorCode, id: i32) -> bool {
        if error != ErrorCode::None || id == 0 {
            self.restart();
            return false;
        }
        self.id = id;
        self.epoch = if self.epoch == i32::MAX { 1 } else { self.epoch + 1 };
        true
    }

    /// The next request begins a new session.
    pub(crate) fn restart(&mut self) {
        (self.id, self.epoch) = (0, 0);
    }

    /// The partition that an answer is about, unless it was removed.
    pub(crate) fn find(&self, id: Uuid, topic: &str, partition: i32) -> Option<(Slot, &SessionPartition)> {
        let topic = if id.is_zero() { topic } else { self.names.get(&id)? };
        let slot = *self.index.get(topic)?.get(&partition)?;
        let member = self.partitions.get(&slot).filter(|member| id.is_zero() || member.id == id)?;
        Some((slot, member))
    }

    /// Returns `true` if the broker may still send this partition, because it was removed after the last request.
    pub(crate) fn is_leaving(&self, id: Uuid, topic: &str, partition: i32) -> bool {
        let is_it = |(at, its_id): &(TopicPartition, Uuid)| {
            at.partition == partition && if id.is_zero() { *at.topic == *topic } else { *its_id == id }
        };
        self.removed.iter().any(is_it)
    }

    /// The slots of all partitions, in order.
    pub(crate) fn slots(&self) -> Vec<Slot> {
        let mut slots: Vec<_> = self.partitions.keys().copied().collect();
        slots.sort_unstable();
        slots
    }
}

/// The topics of a request with names and ids; the version determines which one is sent.
fn topics_of<'a>(
    members: impl Iterator<Item = &'a SessionPartition>,
    partition_max_bytes: i32,
) -> Vec<FetchTopic> {
    let mut topics: Vec<FetchTopic> = Vec::new();
    let mut index: FxHashMap<&str, usize> = FxHashMap::default();
    for SessionPartition { progress, requested, id } in members {
        let TopicPartition { topic, partition } = &progress.at;
        let at = *index.entry(topic).or_insert_with(|| {
            topics.push(FetchTopic { topic: topic.to_string(), topic_id: *id, ..Default::default() });
            topics.len() - 1
        });
        topics[at].partitions.push(FetchPartition {
            partition: *partition,
            current_leader_epoch: requested.leader_epoch,
            fetch_offset: requested.offset,
            partition_max_bytes,
            ..Default::default()
        });
    }
    topics
}

fn forgotten_of(removed: BTreeSet<(TopicPartition, Uuid)>) -> Vec<ForgottenTopic> {
    let mut topics: Vec<ForgottenTopic> = Vec::new();
    for (at, id) in removed {
        match topics.last_mut().filter(|last| last.topic == *at.topic && last.topic_id == id) {
            Some(last) => last.partitions.push(at.partition),
            None => topics.push(ForgottenTopic {
                topic: at.topic.to_string(),
                topic_id: id,
                partitions: vec![at.partition],
            }),
        }
    }
    topics
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(partition: i32) -> Arc<PartitionProgress> {
        Arc::new(PartitionProgress::new(TopicPartition::new("orders", partition)))
    }

    const fn requested(offset: i64) -> RequestedPartition {
        RequestedPartition { offset, leader_epoch: 3 }
    }

    const ID: Uuid = Uuid::ONE;

    /// Partitions and offsets that a request names.
    fn named(asking: &SessionRequest) -> Vec<(i32, i64)> {
        let partitions = asking.topics.iter().flat_map(|topic| &topic.partitions);
        partitions.map(|partition| (partition.partition, partition.fetch_offset)).collect()
    }

    #[test]
    fn a_session_names_all_partitions_once_and_then_only_changes() {
        let mut session = Session::default();
        let all_progress: Vec<_> = (0..3).map(progress).collect();
        for (i, progress) in all_progress.iter().enumerate() {
            session.want(Slot::new(i as u32), progress, ID, requested(10));
        }
        let first = session.request(1, 100);
        assert_eq!((first.id, first.epoch, first.version_max), (0, 0, FETCH_VERSION_IDS));
        assert_eq!(named(&first), [(1, 10), (2, 10), (0, 10)]);
        assert!(session.on_response(ErrorCode::None, 77));

        session.want(Slot::new(0), &all_progress[0], ID, requested(10));
        session.want(Slot::new(1), &all_progress[1], ID, requested(15));
        session.forget(Slot::new(2));
        let second = session.request(0, 100);
        assert_eq!((second.id, second.epoch), (77, 1));
        assert_eq!(named(&second), [(1, 15)]);
        assert_eq!(second.forgotten[0].partitions, [2]);
        assert!(session.find(ID, "", 2).is_none(), "late answers are dropped");
        assert_eq!(session.find(ID, "", 1).expect("wanted").1.requested.offset, 15);

        assert!(!session.on_response(ErrorCode::FetchSessionIdNotFound, 0));
        let again = session.request(0, 100);
        assert_eq!((again.epoch, named(&again)), (0, vec![(0, 10), (1, 15)]));
    }

    #[test]
    fn a_removed_partition_is_leaving_until_the_next_request_and_a_foreign_one_never_was() {
        let mut session = Session::default();
        session.want(Slot::new(0), &progress(0), ID, requested(1));
        session.request(0, 100);
        session.forget(Slot::new(0));
        assert!(session.is_leaving(ID, "", 0) && session.is_leaving(Uuid::ZERO, "orders", 0));
        assert!(!session.is_leaving(ID, "", 1), "never requested");
        session.request(0, 100);
        assert!(!session.is_leaving(ID, "", 0), "the broker has removed it");
    }

    #[test]
    fn a_partition_removed_and_added_between_two_requests_is_not_forgotten() {
        let mut session = Session::default();
        let progress = progress(0);
        session.want(Slot::new(0), &progress, ID, requested(1));
        session.request(0, 100);
        session.on_response(ErrorCode::None, 5);
        session.forget(Slot::new(0));
        session.want(Slot::new(0), &progress, ID, requested(1));
        let request = session.request(0, 100);
        assert_eq!((named(&request), request.forgotten.len()), (vec![(0, 1)], 0));
    }

    #[test]
    fn a_topic_without_an_id_makes_the_session_use_names() {
        let mut session = Session::default();
        session.want(Slot::new(0), &progress(0), ID, requested(1));
        session.request(0, 100);
        session.on_response(ErrorCode::None, 5);
        let other = Arc::new(PartitionProgress::new(TopicPartition::new("old", 0)));
        session.want(Slot::new(1), &other, Uuid::ZERO, requested(2));
        let request = session.request(0, 100);
        assert_eq!((request.epoch, request.version_max), (0, FETCH_VERSION_NAMES));
        assert_eq!(request.topics.len(), 2);
        assert!(
            session.find(Uuid::ZERO, "old", 0).is_some() && session.find(Uuid::ZERO, "orders", 0).is_some()
        );
    }
}
