//! Round-robin assignment over the partitions of all topics, as one list.

use std::collections::{BTreeMap, BTreeSet};

use super::order::{in_order, subscribers};
use super::{Assignment, Assignor, Member, Topics};
use crate::types::TopicPartition;

/// Assigns all partitions, topic by topic, to the members in turn, and skips members that do not subscribe to the
/// topic.
///
/// Compatible with Java's `RoundRobinAssignor`, partition by partition.
#[derive(Clone, Copy, Debug, Default)]
pub struct RoundRobin;

impl Assignor for RoundRobin {
    fn name(&self) -> &'static str {
        "roundrobin"
    }

    fn assign(&self, topics: &Topics, members: &BTreeMap<String, Member>) -> Assignment {
        let mut assignment: Assignment = members.keys().map(|id| (id.clone(), Vec::new())).collect();
        let order = in_order(members);
        let subscribers = subscribers(&order, members);
        let mut turns = order.into_iter().cycle();
        for (topic, partitions) in topics {
            let Some(subscribed) = subscribers.get(topic) else { continue };
            let subscribed: BTreeSet<&String> = subscribed.iter().copied().collect();
            for partition in 0..partitions.len() {
                let Some(id) = turns.find(|id| subscribed.contains(*id)) else { continue };
                let at = TopicPartition { topic: topic.clone(), partition: partition as i32 };
                assignment.entry(id.clone()).or_default().push(at);
            }
        }
        assignment
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_go_round_and_those_who_did_not_ask_are_passed_over() {
        let members = BTreeMap::from([
            ("a".to_owned(), Member::of(&["t", "u"])),
            ("b".to_owned(), Member::of(&["t"])),
            ("c".to_owned(), Member::of(&["t", "u"])),
        ]);
        let topics = Topics::from([
            ("t".into(), vec![BTreeSet::default(); 4]),
            ("u".into(), vec![BTreeSet::default(); 2]),
        ]);
        let dealt = RoundRobin.assign(&topics, &members);
        let names = |id: &str| dealt[id].iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(names("a"), ["t-0", "t-3", "u-1"]);
        assert_eq!(names("b"), ["t-1"]);
        assert_eq!(names("c"), ["t-2", "u-0"]);
    }
}
