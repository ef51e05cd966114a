//! Sticky assignment: balanced, with as few moves as possible.
//!
//! [`claims`] finds the previous owners. If all members have equal subscriptions, [`constrained`] fills them up to
//! their quotas as in Java; otherwise, and always as in librdkafka, [`general`] moves partitions one by one until the
//! assignment is balanced (KIP-54).

mod claims;
mod constrained;
mod general;
mod movements;
mod plan;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes, BytesMut};

use self::claims::Claims;
use self::plan::Plan;
use super::{Assignment, Assignor, Member, OwnedPartitions, Topics};
use crate::types::TopicPartition;

/// Balanced assignment that changes little between generations. Members revoke all partitions before they rejoin.
///
/// Compatible with Java's `StickyAssignor`, including its user data: the last assignment of a member and its
/// generation.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sticky;

impl Assignor for Sticky {
    fn name(&self) -> &'static str {
        "sticky"
    }

    fn user_data(&self, held: &OwnedPartitions) -> Option<Bytes> {
        held.generation.map(|generation| encode(&held.partitions, generation))
    }

    fn assign(&self, topics: &Topics, members: &BTreeMap<String, Member>) -> Assignment {
        let had = |member: &Member| member.user_data.clone().and_then(decode).unwrap_or_default();
        assign(topics, members, &had, Variant::Java).0
    }
}

/// The client whose results are computed where they differ.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Variant {
    Java,
    /// Equal subscriptions are balanced partition by partition as well: an owner gives up its first partitions, and not its
    /// last. In a group with racks, a member without a rack may exchange its partition for one that another member cannot
    /// keep.
    Librdkafka,
}

/// Computes the assignment, and the partitions whose current owner must revoke them first with their new owners.
/// `had` reads the last assignment of a member.
pub(super) fn assign(
    topics: &Topics,
    members: &BTreeMap<String, Member>,
    had: &dyn Fn(&Member) -> OwnedPartitions,
    variant: Variant,
) -> (Assignment, Vec<(String, TopicPartition)>) {
    let plan = Plan::new(topics, members);
    let held: Vec<OwnedPartitions> = members.values().map(had).collect();
    let claims = Claims::new(&plan, members, &held);
    let (owned, moved) = if plan.subscriptions_are_equal() && variant == Variant::Java {
        constrained::assign(&plan, &claims)
    } else {
        let owned = general::assign(&plan, &claims);
        let moved = plan.moved(members, &owned);
        (owned, moved)
    };
    let moved =
        moved.into_iter().map(|(member, slot)| (plan.ids[member].clone(), plan.partition(slot))).collect();
    let assignment = plan.ids.iter().zip(owned).map(|(id, slots)| {
        let partitions = slots.into_iter().map(|slot| plan.partition(slot)).collect();
        ((*id).clone(), partitions)
    });
    (assignment.collect(), moved)
}

/// Java's `StickyAssignor` user data, version 1: an array of topics with arrays of partitions, and the generation.
fn encode(partitions: &[TopicPartition], generation: i32) -> Bytes {
    let mut by_topic: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
    for at in partitions {
        by_topic.entry(&at.topic).or_default().push(at.partition);
    }
    let mut out = BytesMut::new();
    out.put_i32(by_topic.len() as i32);
    for (topic, partitions) in by_topic {
        out.put_i16(topic.len() as i16);
        out.put_slice(topic.as_bytes());
        out.put_i32(partitions.len() as i32);
        for partition in partitions {
            out.put_i32(partition);
        }
    }
    out.put_i32(generation);
    out.freeze()
}

/// Decodes version 1, or version 0, which has no generation. Malformed user data counts as empty, as in Java.
fn decode(mut bytes: Bytes) -> Option<OwnedPartitions> {
    let mut partitions = Vec::new();
    for _ in 0..bytes.try_get_i32().ok()? {
        let length = usize::try_from(bytes.try_get_i16().ok()?).ok()?;
        if bytes.len() < length {
            return None;
        }
        let topic: Arc<str> = std::str::from_utf8(&bytes.split_to(length)).ok()?.into();
        for _ in 0..bytes.try_get_i32().ok()? {
            partitions.push(TopicPartition { topic: topic.clone(), partition: bytes.try_get_i32().ok()? });
        }
    }
    Some(OwnedPartitions::new(partitions, bytes.try_get_i32().ok()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn members(of: &[(&str, &[&str])]) -> BTreeMap<String, Member> {
        of.iter().map(|(id, topics)| ((*id).to_owned(), Member::of(topics))).collect()
    }

    /// Records the members' assignments and user data for their next join.
    fn remember(members: &mut BTreeMap<String, Member>, assignment: &Assignment, generation: i32) {
        for (id, member) in members {
            let had = assignment.get(id).cloned().unwrap_or_default();
            member.user_data = Sticky.user_data(&OwnedPartitions::new(had, Some(generation)));
        }
    }

    #[test]
    fn user_data_is_read_as_it_was_written() {
        let held =
            OwnedPartitions::new(vec![TopicPartition::new("t", 1), TopicPartition::new("u", 0)], Some(4));
        assert_eq!(decode(Sticky.user_data(&held).unwrap()), Some(held.clone()));
        let without_generation = encode(&held.partitions, 4).slice(..28);
        assert_eq!(decode(without_generation), Some(OwnedPartitions::new(held.partitions, None)));
        assert_eq!(decode(Bytes::from_static(b"nonsense")), None);
    }

    #[test]
    fn who_leaves_moves_only_its_own_partitions() {
        let mut group = members(&[("a", &["t"]), ("b", &["t"]), ("c", &["t"])]);
        let topics = Topics::from([("t".into(), vec![BTreeSet::default(); 9])]);
        let first = Sticky.assign(&topics, &group);
        assert!(first.values().all(|partitions| partitions.len() == 3));
        remember(&mut group, &first, 1);
        group.remove("b");
        let second = Sticky.assign(&topics, &group);
        for id in ["a", "c"] {
            assert!(first[id].iter().all(|at| second[id].contains(at)), "{id} keeps {:?}", first[id]);
        }
        assert_eq!(second.values().map(Vec::len).sum::<usize>(), 9);
    }

    #[test]
    fn unequal_subscriptions_are_evened_out_as_far_as_they_allow() {
        let group = members(&[("a", &["t"]), ("b", &["t", "u"]), ("c", &["t", "u"])]);
        let topics = Topics::from([
            ("t".into(), vec![BTreeSet::default(); 2]),
            ("u".into(), vec![BTreeSet::default(); 4]),
        ]);
        let dealt = Sticky.assign(&topics, &group);
        assert_eq!(dealt.values().map(Vec::len).collect::<Vec<_>>(), [2, 2, 2]);
        assert!(dealt["a"].iter().all(|at| &*at.topic == "t"));
    }

    #[test]
    fn the_younger_generation_is_believed() {
        let mut group = members(&[("a", &["t"]), ("b", &["t"])]);
        let topics = Topics::from([("t".into(), vec![BTreeSet::default(); 2])]);
        let both = vec![TopicPartition::new("t", 0), TopicPartition::new("t", 1)];
        let says = |partitions: &[TopicPartition], generation| {
            Sticky.user_data(&OwnedPartitions::new(partitions.to_vec(), Some(generation)))
        };
        for (id, generation) in [("a", 7), ("b", 8)] {
            let member = group.get_mut(id).unwrap();
            member.user_data = says(&both, generation);
            member.generation = Some(generation);
        }
        let dealt = Sticky.assign(&topics, &group);
        assert_eq!(dealt["b"], both[..1]);
        assert_eq!(dealt["a"], both[1..]);
    }
}
