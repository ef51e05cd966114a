//! Cooperative sticky assignment (KIP-429).

use std::collections::BTreeMap;

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::{Assignment, Assignor, Member, OwnedPartitions, Topics, sticky};

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
        let (mut assignment, moved) = sticky::assign(topics, members, &had);
        for (member, partition) in moved {
            if let Some(partitions) = assignment.get_mut(&member) {
                partitions.retain(|at| *at != partition);
            }
        }
        assignment
    }
}

fn had(member: &Member) -> OwnedPartitions {
    let said = || member.user_data.clone().map(|mut data| data.try_get_i32().unwrap_or(-1));
    OwnedPartitions::new(member.owned.clone(), member.generation.or_else(said))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::types::TopicPartition;

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
