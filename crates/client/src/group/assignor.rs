//! Who gets which partitions. Sync; the group's leader runs it.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::consumer::TopicPartition;

/// The name of range assignment in JoinGroup.
pub(crate) const RANGE: &str = "range";

/// Range assignment: per topic, members in order of their id get equal runs of partitions, the first ones one more.
///
/// As Java's `RangeAssignor`, so that the two can share a group.
pub(crate) fn range(
    subscriptions: &BTreeMap<String, Vec<String>>,
    partition_counts: &BTreeMap<String, usize>,
) -> BTreeMap<String, Vec<TopicPartition>> {
    let mut assignment: BTreeMap<String, Vec<TopicPartition>> =
        subscriptions.keys().map(|member| (member.clone(), Vec::new())).collect();
    for (topic, count) in partition_counts {
        let name: Arc<str> = topic.as_str().into();
        let members: Vec<&String> = subscriptions
            .iter()
            .filter(|(_, topics)| topics.contains(topic))
            .map(|(member, _)| member)
            .collect();
        if members.is_empty() {
            continue;
        }
        let (each, extra) = (count / members.len(), count % members.len());
        let mut next = 0;
        for (at, member) in members.into_iter().enumerate() {
            let share = each + usize::from(at < extra);
            let partitions = (next..next + share)
                .map(|partition| TopicPartition { topic: name.clone(), partition: partition as i32 });
            assignment.entry(member.clone()).or_default().extend(partitions);
            next += share;
        }
    }
    assignment
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_dealt_in_runs_and_the_first_members_get_one_more() {
        let subscriptions: BTreeMap<_, _> =
            ["c", "a", "b"].iter().map(|member| ((*member).to_owned(), vec!["t".to_owned()])).collect();
        let counts = BTreeMap::from([("t".to_owned(), 8)]);
        let dealt = range(&subscriptions, &counts);
        let numbers = |member: &str| dealt[member].iter().map(|at| at.partition).collect::<Vec<_>>();
        assert_eq!((numbers("a"), numbers("b"), numbers("c")), (vec![0, 1, 2], vec![3, 4, 5], vec![6, 7]));
    }

    #[test]
    fn a_topic_goes_only_to_those_who_asked_for_it() {
        let subscriptions = BTreeMap::from([
            ("a".to_owned(), vec!["t".to_owned(), "u".to_owned()]),
            ("b".to_owned(), vec!["u".to_owned()]),
        ]);
        let dealt = range(&subscriptions, &BTreeMap::from([("t".to_owned(), 3), ("u".to_owned(), 1)]));
        assert_eq!(dealt["a"].len(), 4);
        assert_eq!(dealt["b"], []);
    }
}
