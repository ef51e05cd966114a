//! Cooperative sticky assignment (KIP-429).

use std::collections::{BTreeMap, BTreeSet};

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::sticky::{self, Variant};
use super::{Assignment, Assignor, Member, OwnedPartitions, Topics};
use crate::types::TopicPartition;

/// Sticky assignment whose members keep their partitions while they rejoin. A partition that moves is revoked by its
/// owner first, and assigned to its new owner in a second rebalance.
///
/// Compatible with Java's `CooperativeStickyAssignor`, including its user data.
#[derive(Clone, Copy, Debug, Default)]
pub struct CooperativeSticky;

impl Assignor for CooperativeSticky {
    fn name(&self) -> &'static str {
        "cooperative-sticky"
    }

    fn is_cooperative(&self) -> bool {
        true
    }

    /// The generation, for members whose subscription does not contain it.
    fn user_data(&self, held: &OwnedPartitions) -> Option<Bytes> {
        let mut out = BytesMut::with_capacity(4);
        out.put_i32(held.generation.unwrap_or(-1));
        Some(out.freeze())
    }

    fn assign(&self, topics: &Topics, members: &BTreeMap<String, Member>) -> Assignment {
        assign(topics, members, Variant::Java)
    }
}

/// The same with the results of librdkafka.
#[derive(Clone, Copy, Debug)]
pub(super) struct LibrdkafkaCooperativeSticky;

impl Assignor for LibrdkafkaCooperativeSticky {
    fn name(&self) -> &str {
        CooperativeSticky.name()
    }

    fn is_cooperative(&self) -> bool {
        CooperativeSticky.is_cooperative()
    }

    fn user_data(&self, held: &OwnedPartitions) -> Option<Bytes> {
        CooperativeSticky.user_data(held)
    }

    fn assign(&self, topics: &Topics, members: &BTreeMap<String, Member>) -> Assignment {
        assign(topics, members, Variant::Librdkafka)
    }
}

fn assign(topics: &Topics, members: &BTreeMap<String, Member>, variant: Variant) -> Assignment {
    let (mut assignment, moved) = sticky::assign(topics, members, &had, variant);
    let mut moved_to: BTreeMap<String, BTreeSet<TopicPartition>> = BTreeMap::new();
    for (member, partition) in moved {
        moved_to.entry(member).or_default().insert(partition);
    }
    for (member, moved) in moved_to {
        if let Some(partitions) = assignment.get_mut(&member) {
            partitions.retain(|at| !moved.contains(at));
        }
    }
    assignment
}

fn had(member: &Member) -> OwnedPartitions {
    let said = || member.user_data.clone().map(|mut data| data.try_get_i32().unwrap_or(-1));
    OwnedPartitions::new(member.owned.clone(), member.generation.or_else(said))
}

#[cfg(test)]
mod tests {
    use super::super::Sticky;
    use super::*;

    /// librdkafka's test 0045: two nodes exchange their racks. The leader has no rack.
    #[test]
    fn a_member_without_a_rack_exchanges_its_partition_where_librdkafka_leads() {
        let topics = |racks: [&str; 2]| {
            let partitions = racks.map(|rack| BTreeSet::from([rack.into()]));
            Topics::from([("t".into(), partitions.to_vec())])
        };
        let owns = |partition, rack: Option<&str>| Member {
            owned: vec![TopicPartition::new("t", partition)],
            generation: Some(1),
            rack: rack.map(Into::into),
            ..Member::of(&["t"])
        };
        let mut members =
            BTreeMap::from([("a".to_owned(), owns(1, None)), ("b".to_owned(), owns(0, Some("east")))]);
        let settled = topics(["east", "west"]);
        let exchanged = topics(["west", "east"]);
        let stays = |assignment: &Assignment| assignment["a"] == [TopicPartition::new("t", 1)];
        assert!(stays(&CooperativeSticky.assign(&exchanged, &members)));
        assert!(stays(&LibrdkafkaCooperativeSticky.assign(&settled, &members)));
        let first = LibrdkafkaCooperativeSticky.assign(&exchanged, &members);
        assert!(first.values().all(Vec::is_empty), "each waits for the other: {first:?}");
        for member in members.values_mut() {
            member.owned.clear();
        }
        let second = LibrdkafkaCooperativeSticky.assign(&exchanged, &members);
        assert_eq!(second["b"], [TopicPartition::new("t", 1)]);
        assert_eq!(second["a"], [TopicPartition::new("t", 0)]);
    }

    /// Both rebalances of a cooperative group in which these members have these partitions of `t`.
    fn settled(assignor: &dyn Assignor, owned: &[(&str, &[i32])]) -> Vec<Vec<i32>> {
        let topics = Topics::from([("t".into(), vec![BTreeSet::default(); 6])]);
        let mut members = BTreeMap::new();
        for (id, partitions) in owned {
            let owned = partitions.iter().map(|partition| TopicPartition::new("t", *partition)).collect();
            let member = Member { owned, generation: Some(1), ..Member::of(&["t"]) };
            members.insert((*id).to_owned(), member);
        }
        for generation in 2..=3 {
            let assignment = assignor.assign(&topics, &members);
            for (id, member) in &mut members {
                (member.owned, member.generation) = (assignment[id].clone(), Some(generation));
            }
        }
        let numbers = |member: &Member| {
            let mut numbers: Vec<i32> = member.owned.iter().map(|at| at.partition).collect();
            numbers.sort_unstable();
            numbers
        };
        members.values().map(numbers).collect()
    }

    /// librdkafka's test 0113 (`x_incremental_rebalances`).
    #[test]
    fn an_owner_gives_up_its_first_partitions_as_in_librdkafka_or_its_last_as_in_java() {
        let one: &[(&str, &[i32])] = &[("a", &[0, 1, 2, 3, 4, 5]), ("b", &[])];
        assert_eq!(settled(&LibrdkafkaCooperativeSticky, one), [[3, 4, 5], [0, 1, 2]]);
        assert_eq!(settled(&CooperativeSticky, one), [[0, 1, 2], [3, 4, 5]]);
        let two: &[(&str, &[i32])] = &[("a", &[3, 4, 5]), ("b", &[0, 1, 2]), ("c", &[])];
        assert_eq!(settled(&LibrdkafkaCooperativeSticky, two), [[4, 5], [1, 2], [0, 3]]);
    }

    /// A partition moved back instead of another one, from the lighter member, and the next one undid it: the passes over the
    /// partitions repeated for ever, in the client's engine thread.
    #[test]
    fn a_balance_whose_moves_undo_each_other_ends() {
        type Owned<'a> = &'a [(&'a str, &'a [i32])];
        let counts = [("s", 4), ("t", 2), ("v", 6), ("z1", 5), ("z2", 4), ("z3", 3), ("z5", 20)];
        let topics: Topics =
            counts.into_iter().map(|(name, count)| (name.into(), vec![BTreeSet::default(); count])).collect();
        let last: Vec<i32> = (0..20).collect();
        let group: [(&str, &[&str], Owned<'_>); 5] = [
            ("m1", &["t", "z1"], &[("t", &[1]), ("z1", &[0, 1, 2, 3, 4])]),
            ("m2", &["t", "z2"], &[("t", &[0]), ("z2", &[0, 1, 2, 3])]),
            ("m3", &["s", "t", "z3"], &[("z3", &[0, 1, 2])]),
            ("m4", &["s", "v"], &[("s", &[0, 1, 2, 3])]),
            ("m5", &["v", "z5"], &[("v", &[0, 1, 2, 3, 4, 5]), ("z5", last.as_slice())]),
        ];
        let mut members = BTreeMap::new();
        for (id, subscribed, owned) in group {
            let partitions = |(topic, numbers): &(&str, &[i32])| {
                numbers.iter().map(|number| TopicPartition::new(topic, *number)).collect::<Vec<_>>()
            };
            let owned: Vec<TopicPartition> = owned.iter().flat_map(partitions).collect();
            let member = Member { owned, generation: Some(1), ..Member::of(subscribed) };
            members.insert(id.to_owned(), member);
        }
        let sizes = |dealt: &Assignment| dealt.values().map(Vec::len).collect::<Vec<_>>();
        let without_moved = [5, 4, 3, 1, 20];
        assert_eq!(sizes(&CooperativeSticky.assign(&topics, &members)), without_moved);
        assert_eq!(sizes(&LibrdkafkaCooperativeSticky.assign(&topics, &members)), without_moved);
        for member in members.values_mut() {
            let held = OwnedPartitions::new(std::mem::take(&mut member.owned), member.generation);
            member.user_data = Sticky.user_data(&held);
        }
        assert_eq!(sizes(&Sticky.assign(&topics, &members)), [5, 5, 7, 7, 20]);
    }

    #[test]
    fn what_moves_is_given_to_nobody_until_its_owner_let_go() {
        let topics = Topics::from([("t".into(), vec![BTreeSet::default(); 4])]);
        let owner = Member {
            owned: (0..4).map(|partition| TopicPartition::new("t", partition)).collect(),
            generation: Some(1),
            ..Member::of(&["t"])
        };
        let mut members = BTreeMap::from([("a".to_owned(), owner), ("b".to_owned(), Member::of(&["t"]))]);
        let first = CooperativeSticky.assign(&topics, &members);
        assert_eq!((first["a"].len(), first["b"].len()), (2, 0));
        for (id, member) in &mut members {
            member.owned.clone_from(&first[id]);
            member.generation = Some(2);
        }
        let second = CooperativeSticky.assign(&topics, &members);
        assert_eq!(second["a"], first["a"]);
        assert_eq!(second["b"].len(), 2);
    }
}
