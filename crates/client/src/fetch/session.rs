//! What one broker remembers of what is fetched from it (KIP-227), and what must be said so that it stays true.
//!
//! The first request of a session names everything, the following only what has changed. Nothing talks here: the
//! fetcher puts in wishes, takes out requests and shows the answers.

use std::collections::BTreeSet;
use std::sync::Arc;

use ottla_protocol::messages::fetch::{FetchPartition, FetchTopic, ForgottenTopic};
use ottla_protocol::{ErrorCode, Uuid};
use rustc_hash::{FxHashMap, FxHashSet};

use super::cursors::Slot;
use super::place::Place;
use crate::consumer::TopicPartition;

/// From this version on requests name topics by id; below, by name.
const FETCH_VERSION_IDS: i16 = 17;
const FETCH_VERSION_NAMES: i16 = 12;
/// The epoch of a request that begins no session.
const NO_SESSION: i32 = -1;

/// What is to be fetched of a partition.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Wish {
    pub(crate) offset: i64,
    /// The leader's epoch as far as we know it (KIP-320); -1 where we do not.
    pub(crate) leader_epoch: i32,
}

#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) place: Arc<Place>,
    pub(crate) wish: Wish,
    id: Uuid,
}

/// One broker's session. At epoch 0 the next request begins a new one.
#[derive(Debug, Default)]
pub(crate) struct Session {
    id: i32,
    epoch: i32,
    members: FxHashMap<Slot, Member>,
    /// The partitions' slots, by topic.
    index: FxHashMap<Arc<str>, FxHashMap<i32, Slot>>,
    names: FxHashMap<Uuid, Arc<str>>,
    /// Members that the broker does not know as they are.
    changed: Vec<Slot>,
    /// What the broker knows and should not.
    gone: BTreeSet<(TopicPartition, Uuid)>,
    /// Members without a topic id.
    without_id: usize,
    /// Whether the session names topics by id.
    by_id: bool,
}

/// A request's part that is about the session.
#[derive(Debug)]
pub(crate) struct Asking {
    pub(crate) id: i32,
    pub(crate) epoch: i32,
    pub(crate) version_max: i16,
    pub(crate) topics: Vec<FetchTopic>,
    pub(crate) forgotten: Vec<ForgottenTopic>,
}

impl Session {
    /// How many partitions are fetched.
    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    /// Fetches a partition from now on, or in another way than before.
    pub(crate) fn want(&mut self, slot: Slot, place: &Arc<Place>, id: Uuid, wish: Wish) {
        if let Some(member) = self.members.get_mut(&slot) {
            if Arc::ptr_eq(&member.place, place) && member.id == id {
                if member.wish != wish {
                    member.wish = wish;
                    self.changed.push(slot);
                }
                return;
            }
            self.forget(slot);
        }
        self.gone.remove(&(place.at.clone(), id));
        self.index.entry(place.at.topic.clone()).or_default().insert(place.at.partition, slot);
        if id.is_zero() {
            self.without_id += 1;
        } else {
            self.names.insert(id, place.at.topic.clone());
        }
        self.members.insert(slot, Member { place: place.clone(), wish, id });
        self.changed.push(slot);
    }

    /// Fetches a partition no more; what is still said of it means nothing.
    pub(crate) fn forget(&mut self, slot: Slot) {
        let Some(Member { place, id, .. }) = self.members.remove(&slot) else { return };
        if let Some(partitions) = self.index.get_mut(&place.at.topic) {
            partitions.remove(&place.at.partition);
            if partitions.is_empty() {
                self.index.remove(&place.at.topic);
                self.names.remove(&id);
            }
        }
        self.without_id -= usize::from(id.is_zero());
        self.gone.insert((place.at.clone(), id));
    }

    /// The next request. `turn` says who comes first in one that names everything: the first are served first.
    pub(crate) fn request(&mut self, turn: usize, partition_max_bytes: i32) -> Asking {
        let by_id = self.without_id == 0;
        if by_id != self.by_id {
            // A session names topics one way or the other (KIP-516).
            self.restart();
            self.by_id = by_id;
        }
        let mut slots = std::mem::take(&mut self.changed);
        let mut gone = std::mem::take(&mut self.gone);
        if self.epoch == 0 {
            slots = self.members.keys().copied().collect();
            slots.sort_unstable();
            if !slots.is_empty() {
                let first = turn % slots.len();
                slots.rotate_left(first);
            }
            gone.clear();
        }
        let mut named = FxHashSet::default();
        slots.retain(|slot| named.insert(*slot));
        let members = slots.iter().filter_map(|slot| self.members.get(slot));
        Asking {
            id: self.id,
            epoch: self.epoch,
            version_max: if by_id { FETCH_VERSION_IDS } else { FETCH_VERSION_NAMES },
            topics: topics_of(members, partition_max_bytes),
            forgotten: forgotten_of(gone),
        }
    }

    /// The same for a broker that is to remember nothing of it.
    pub(crate) fn request_without_session(&mut self, partition_max_bytes: i32) -> Asking {
        let asking = self.request(0, partition_max_bytes);
        Asking { id: 0, epoch: NO_SESSION, ..asking }
    }

    /// Whether this partition is fetched.
    pub(crate) fn has(&self, slot: Slot, place: &Arc<Place>) -> bool {
        self.members.get(&slot).is_some_and(|member| Arc::ptr_eq(&member.place, place))
    }

    /// Whether what was asked for last has this partition from this offset.
    pub(crate) fn asks(&self, slot: Slot, place: &Arc<Place>, offset: i64) -> bool {
        let member = self.members.get(&slot);
        member.is_some_and(|member| Arc::ptr_eq(&member.place, place) && member.wish.offset == offset)
    }

    /// The answer's head has come. `false` if the session does not go on: the next request names everything again.
    pub(crate) fn on_answer(&mut self, error: ErrorCode, id: i32) -> bool {
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

    /// Which partition an answer is about, unless it is fetched no more.
    pub(crate) fn find(&self, id: Uuid, topic: &str, partition: i32) -> Option<(Slot, &Member)> {
        let topic = if id.is_zero() { topic } else { self.names.get(&id)? };
        let slot = *self.index.get(topic)?.get(&partition)?;
        let member = self.members.get(&slot).filter(|member| id.is_zero() || member.id == id)?;
        Some((slot, member))
    }

    /// Whether the broker may still send this partition: it was removed here after the last request was written.
    pub(crate) fn is_leaving(&self, id: Uuid, topic: &str, partition: i32) -> bool {
        let is_it = |(at, its_id): &(TopicPartition, Uuid)| {
            at.partition == partition && if id.is_zero() { *at.topic == *topic } else { *its_id == id }
        };
        self.gone.iter().any(is_it)
    }

    /// Every member's slot, in order.
    pub(crate) fn slots(&self) -> Vec<Slot> {
        let mut slots: Vec<_> = self.members.keys().copied().collect();
        slots.sort_unstable();
        slots
    }
}

/// Names and ids both: the version that is spoken chooses.
fn topics_of<'a>(members: impl Iterator<Item = &'a Member>, partition_max_bytes: i32) -> Vec<FetchTopic> {
    let mut topics: Vec<FetchTopic> = Vec::new();
    let mut index: FxHashMap<&str, usize> = FxHashMap::default();
    for Member { place, wish, id } in members {
        let TopicPartition { topic, partition } = &place.at;
        let at = *index.entry(topic).or_insert_with(|| {
            topics.push(FetchTopic { topic: topic.to_string(), topic_id: *id, ..Default::default() });
            topics.len() - 1
        });
        topics[at].partitions.push(FetchPartition {
            partition: *partition,
            current_leader_epoch: wish.leader_epoch,
            fetch_offset: wish.offset,
            partition_max_bytes,
            ..Default::default()
        });
    }
    topics
}

fn forgotten_of(gone: BTreeSet<(TopicPartition, Uuid)>) -> Vec<ForgottenTopic> {
    let mut topics: Vec<ForgottenTopic> = Vec::new();
    for (at, id) in gone {
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

    fn place(partition: i32) -> Arc<Place> {
        Arc::new(Place::new(TopicPartition::new("orders", partition)))
    }

    const fn wish(offset: i64) -> Wish {
        Wish { offset, leader_epoch: 3 }
    }

    const ID: Uuid = Uuid::ONE;

    /// Partitions and offsets that a request names.
    fn named(asking: &Asking) -> Vec<(i32, i64)> {
        let partitions = asking.topics.iter().flat_map(|topic| &topic.partitions);
        partitions.map(|partition| (partition.partition, partition.fetch_offset)).collect()
    }

    #[test]
    fn a_session_names_everything_once_and_then_only_what_changes() {
        let mut session = Session::default();
        let places: Vec<_> = (0..3).map(place).collect();
        for (i, place) in places.iter().enumerate() {
            session.want(Slot::new(i as u32), place, ID, wish(10));
        }
        let first = session.request(1, 100);
        assert_eq!((first.id, first.epoch, first.version_max), (0, 0, FETCH_VERSION_IDS));
        assert_eq!(named(&first), [(1, 10), (2, 10), (0, 10)]);
        assert!(session.on_answer(ErrorCode::None, 77));

        session.want(Slot::new(0), &places[0], ID, wish(10));
        session.want(Slot::new(1), &places[1], ID, wish(15));
        session.forget(Slot::new(2));
        let second = session.request(0, 100);
        assert_eq!((second.id, second.epoch), (77, 1));
        assert_eq!(named(&second), [(1, 15)]);
        assert_eq!(second.forgotten[0].partitions, [2]);
        assert!(session.find(ID, "", 2).is_none(), "late answers are nobody's");
        assert_eq!(session.find(ID, "", 1).expect("wanted").1.wish.offset, 15);

        assert!(!session.on_answer(ErrorCode::FetchSessionIdNotFound, 0));
        let again = session.request(0, 100);
        assert_eq!((again.epoch, named(&again)), (0, vec![(0, 10), (1, 15)]));
    }

    #[test]
    fn a_removed_partition_is_leaving_until_the_next_request_and_a_foreign_one_never_was() {
        let mut session = Session::default();
        session.want(Slot::new(0), &place(0), ID, wish(1));
        session.request(0, 100);
        session.forget(Slot::new(0));
        assert!(session.is_leaving(ID, "", 0) && session.is_leaving(Uuid::ZERO, "orders", 0));
        assert!(!session.is_leaving(ID, "", 1), "never requested");
        session.request(0, 100);
        assert!(!session.is_leaving(ID, "", 0), "the broker was asked to remove it");
    }

    #[test]
    fn what_goes_and_comes_back_between_two_requests_is_not_forgotten() {
        let mut session = Session::default();
        let place = place(0);
        session.want(Slot::new(0), &place, ID, wish(1));
        session.request(0, 100);
        session.on_answer(ErrorCode::None, 5);
        session.forget(Slot::new(0));
        session.want(Slot::new(0), &place, ID, wish(1));
        let request = session.request(0, 100);
        assert_eq!((named(&request), request.forgotten.len()), (vec![(0, 1)], 0));
    }

    #[test]
    fn a_topic_without_an_id_is_named_and_so_are_all() {
        let mut session = Session::default();
        session.want(Slot::new(0), &place(0), ID, wish(1));
        session.request(0, 100);
        session.on_answer(ErrorCode::None, 5);
        let other = Arc::new(Place::new(TopicPartition::new("old", 0)));
        session.want(Slot::new(1), &other, Uuid::ZERO, wish(2));
        let request = session.request(0, 100);
        assert_eq!((request.epoch, request.version_max), (0, FETCH_VERSION_NAMES));
        assert_eq!(request.topics.len(), 2);
        assert!(
            session.find(Uuid::ZERO, "old", 0).is_some() && session.find(Uuid::ZERO, "orders", 0).is_some()
        );
    }
}
