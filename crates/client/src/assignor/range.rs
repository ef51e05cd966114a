//! Range assignment: contiguous ranges of partitions per topic.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::order::{in_order, subscribers};
use super::{Assignment, Assignor, Member, Topics, racks};
use crate::types::TopicPartition;

/// Assigns a contiguous range of each topic's partitions to each member, in the order of members; the first members
/// get one partition more. Topics with the same members and number of partitions are therefore co-partitioned.
///
/// Members with a `client.rack` prefer partitions with a replica in that rack, as far as balance and co-partitioning
/// permit (KIP-881). Compatible with Java's `RangeAssignor`, partition by partition.
#[derive(Clone, Copy, Debug, Default)]
pub struct Range;

impl Assignor for Range {
    fn name(&self) -> &'static str {
        "range"
    }

    fn assign(&self, topics: &Topics, members: &BTreeMap<String, Member>) -> Assignment {
        let mut subscribers = subscribers(&in_order(members), members);
        let mut shares: Vec<Share<'_>> = topics
            .iter()
            .filter_map(|(topic, partitions)| {
                Share::new(topic, partitions, subscribers.remove(topic)?, members)
            })
            .collect();
        if shares.iter().any(|share| share.racks_matter) {
            match_racks(&mut shares);
        }
        for share in &mut shares {
            share.deal_runs(|_, _| true);
        }
        let mut assignment: Assignment = members.keys().map(|id| (id.clone(), Vec::new())).collect();
        for share in &shares {
            for (partition, owner) in share.owners.iter().enumerate() {
                let Some(owner) = owner else { continue };
                let at = TopicPartition { topic: share.topic.clone(), partition: partition as i32 };
                assignment.entry(share.members[*owner].clone()).or_default().push(at);
            }
        }
        assignment
    }
}

/// The partitions of one topic and its subscribers.
struct Share<'a> {
    topic: &'a Arc<str>,
    partitions: &'a [BTreeSet<Arc<str>>],
    /// The subscribed members, in order.
    members: Vec<&'a String>,
    racks: Vec<Option<&'a Arc<str>>>,
    racks_matter: bool,
    /// The owner of each partition, as an index into `members`.
    owners: Vec<Option<usize>>,
    counts: Vec<usize>,
    each: usize,
    /// The number of members that may still get one partition more than `each`.
    extra: usize,
}

impl<'a> Share<'a> {
    fn new(
        topic: &'a Arc<str>,
        partitions: &'a [BTreeSet<Arc<str>>],
        members: Vec<&'a String>,
        all: &'a BTreeMap<String, Member>,
    ) -> Option<Self> {
        if partitions.is_empty() {
            return None;
        }
        let racks: Vec<_> =
            members.iter().map(|id| all[*id].rack.as_ref().filter(|rack| !rack.is_empty())).collect();
        let racks_matter =
            racks::matter(&racks.iter().copied().flatten().collect(), &partitions.iter().collect::<Vec<_>>());
        Some(Self {
            topic,
            partitions,
            racks,
            racks_matter,
            owners: vec![None; partitions.len()],
            counts: vec![0; members.len()],
            each: partitions.len() / members.len(),
            extra: partitions.len() % members.len(),
            members,
        })
    }

    /// A member without a rack matches every rack.
    fn racks_match(&self, member: usize, partition: usize) -> bool {
        self.racks[member].is_none_or(|rack| self.partitions[partition].contains(rack))
    }

    /// The number of partitions that this member may still get.
    fn room(&self, member: usize) -> usize {
        (self.each + usize::from(self.extra > 0)).saturating_sub(self.counts[member])
    }

    fn give(&mut self, member: usize, partitions: &[usize]) {
        for partition in partitions {
            self.owners[*partition] = Some(member);
        }
        self.counts[member] += partitions.len();
        if self.counts[member] > self.each {
            self.extra = self.extra.saturating_sub(1);
        }
    }

    /// Assigns to each member in turn the partitions that it may get of those that are left.
    fn deal_runs(&mut self, may: impl Fn(&Self, (usize, usize)) -> bool) {
        for member in 0..self.members.len() {
            let left = (0..self.owners.len()).filter(|partition| self.owners[*partition].is_none());
            let run: Vec<usize> =
                left.filter(|partition| may(self, (member, *partition))).take(self.room(member)).collect();
            if !run.is_empty() {
                self.give(member, &run);
            }
        }
    }
}

/// Topics with the same members and number of partitions are matched together; the others one by one.
fn match_racks(shares: &mut [Share<'_>]) {
    let mut together: BTreeMap<(Vec<&String>, usize), Vec<&mut Share<'_>>> = BTreeMap::new();
    for share in shares.iter_mut().filter(|share| share.racks.iter().any(Option::is_some)) {
        together.entry((share.members.clone(), share.partitions.len())).or_default().push(share);
    }
    for mut shares in together.into_values() {
        match shares.as_mut_slice() {
            [share] if share.racks_matter => {
                share.deal_runs(|share, (member, partition)| share.racks_match(member, partition));
            }
            [_] => {}
            several => match_racks_together(several),
        }
    }
}

fn match_racks_together(shares: &mut [&mut Share<'_>]) {
    let mut members: Vec<usize> = (0..shares[0].members.len()).collect();
    for partition in 0..shares[0].partitions.len() {
        let fits = |member: usize| {
            shares.iter().all(|share| share.racks_match(member, partition) && share.room(member) > 0)
        };
        let Some(at) = members.iter().position(|member| fits(*member)) else { continue };
        let member = members[at];
        for share in shares.iter_mut() {
            share.give(member, &[partition]);
        }
        if shares.iter().all(|share| share.room(member) == 0) {
            members.remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::RoundRobin;
    use super::*;

    fn numbers(dealt: &Assignment, id: &str) -> Vec<i32> {
        dealt[id].iter().map(|at| at.partition).collect()
    }

    #[test]
    fn partitions_are_dealt_in_runs_and_the_first_members_get_one_more() {
        let members = ["c", "a", "b"].map(|id| (id.to_owned(), Member::of(&["t"]))).into();
        let dealt = Range.assign(&Topics::from([("t".into(), vec![BTreeSet::new(); 8])]), &members);
        assert_eq!(["a", "b", "c"].map(|id| numbers(&dealt, id)), [vec![0, 1, 2], vec![3, 4, 5], vec![6, 7]]);
    }

    /// A large group whose members subscribe to the same topics; the results are those of a small one.
    #[test]
    fn a_large_group_gets_equal_shares_of_many_topics() {
        let topics: Topics =
            (0..3_000).map(|number| (format!("topic-{number}").into(), vec![BTreeSet::new(); 2])).collect();
        let all: Vec<&str> = topics.keys().map(|topic| &**topic).collect();
        let member = Member::of(&all);
        let members: BTreeMap<String, Member> =
            (0..300).map(|number| (format!("member-{number:03}"), member.clone())).collect();
        let ranges = Range.assign(&topics, &members);
        let sizes: Vec<usize> = ranges.values().map(Vec::len).collect();
        assert_eq!((sizes[0], sizes[1], sizes[2]), (3_000, 3_000, 0), "the first two have all");
        let turns = RoundRobin.assign(&topics, &members);
        assert!(turns.values().all(|partitions| partitions.len() == 20));
    }

    #[test]
    fn a_topic_goes_only_to_those_who_asked_for_it() {
        let members =
            BTreeMap::from([("a".into(), Member::of(&["t", "u"])), ("b".into(), Member::of(&["u"]))]);
        let topics =
            Topics::from([("t".into(), vec![BTreeSet::new(); 3]), ("u".into(), vec![BTreeSet::new()])]);
        let dealt = Range.assign(&topics, &members);
        assert_eq!(dealt["a"].len(), 4);
        assert_eq!(dealt["b"], []);
    }

    #[test]
    fn who_has_a_rack_reads_from_it() {
        let rack = |name: &str| BTreeSet::from([Arc::from(name)]);
        let member = |name: &str| Member { rack: Some(name.into()), ..Member::of(&["t"]) };
        let members = BTreeMap::from([("a".to_owned(), member("west")), ("b".to_owned(), member("east"))]);
        let topics = Topics::from([("t".into(), ["east", "west", "east", "west"].map(rack).to_vec())]);
        let dealt = Range.assign(&topics, &members);
        assert_eq!((numbers(&dealt, "a"), numbers(&dealt, "b")), (vec![1, 3], vec![0, 2]));
    }
}
