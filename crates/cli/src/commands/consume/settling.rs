//! The end of a rebalance that takes and assigns partitions one by one.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use ottla_client::{
    Admin, Config, Consumer, GroupDescription, GroupProtocol, MemberDescription, TopicPartition,
};

/// The assignor that takes only the partitions that move.
const COOPERATIVE: &str = "cooperative-sticky";

/// Time limit of a wait: several heartbeats. A member that holds up the rebalance may take much longer.
const SETTLE_WITHIN: Duration = Duration::from_secs(30);

/// A rebalance that may assign further partitions to this member, after those that it has taken or assigned.
#[derive(Debug)]
pub(super) struct Settling {
    /// The generation that took partitions. The next one has the assignment without them.
    taken_in: Option<i32>,
    until: Instant,
}

impl Settling {
    /// The rebalance whose revocation or assignment the last poll returned.
    pub(super) async fn begin(consumer: &Consumer, takes: bool) -> Self {
        let taken_in =
            if takes { consumer.group_metadata().await.ok().map(|me| me.generation) } else { None };
        Self { taken_in, until: Instant::now() + SETTLE_WITHIN }
    }

    /// Returns `true` if the group assigns this member no partitions but these.
    pub(super) async fn is_over(
        &self,
        consumer: &Consumer,
        admin: &Admin,
        assigned: &BTreeSet<TopicPartition>,
    ) -> bool {
        if Instant::now() >= self.until {
            return true;
        }
        let Ok(me) = consumer.group_metadata().await else { return false };
        if self.taken_in == Some(me.generation) {
            return false;
        }
        match admin.describe_groups(&[&me.group_id]).await {
            Ok(groups) => groups.first().is_some_and(|group| has_settled(group, &me.member_id, assigned)),
            // A member may lack the right to describe all topics of its group.
            Err(error) => !error.is_retriable(),
        }
    }
}

fn has_settled(group: &GroupDescription, member: &str, assigned: &BTreeSet<TopicPartition>) -> bool {
    let Some(member) = group.members.iter().find(|it| it.member == member) else { return false };
    let MemberDescription { assignment, target, .. } = member;
    let (partitions, is_decided) = match target {
        // With KIP-848, other members may still own partitions of the target.
        Some(target) => (target, group.state != "Assigning"),
        None => (assignment, group.state == "Stable"),
    };
    is_decided && partitions.iter().collect::<BTreeSet<_>>() == assigned.iter().collect()
}

/// Returns `true` if a rebalance takes only the partitions that move: with the KIP-848 protocol, and with cooperative assignors.
pub(super) fn is_incremental(config: &Config) -> bool {
    let mut assignors = config.partition_assignment_strategy.iter();
    config.group_protocol == GroupProtocol::Consumer || assignors.all(|name| name == COOPERATIVE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rebalance_is_incremental_with_cooperative_assignors_only() {
        let with = |key: &str, value: &str| {
            let mut config = Config::new("localhost:9092");
            config.set(key, value).expect("valid");
            is_incremental(&config)
        };
        for (strategy, expected) in
            [("cooperative-sticky", true), ("range", false), ("range,cooperative-sticky", false)]
        {
            assert_eq!(with("partition.assignment.strategy", strategy), expected, "{strategy}");
        }
        assert!(with("group.protocol", "consumer"));
    }
}
