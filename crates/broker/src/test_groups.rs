//! Calls that set what members of groups have, and the settings of all groups, for tests.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::cluster::Cluster;
use crate::config::{ConsumerGroupConfig, ShareGroupConfig, SharePartitionConfig};
use crate::coordinator::consumer_group::member::Place;

/// The partitions of members, by their ids: each partition by its topic's name and its index.
pub type MemberPartitions = BTreeMap<String, Vec<(String, i32)>>;

impl Cluster {
    /// Changes the settings of all groups of the consumer protocol (KIP-848), as if the broker had been started with the change.
    /// Groups that exist follow.
    pub fn change_consumer_group_settings(&self, change: impl FnOnce(&mut ConsumerGroupConfig)) {
        self.live.change_start(|config| change(&mut config.consumer_groups));
    }

    /// Changes the settings of all share groups (KIP-932) and of their partitions, as if the broker had been started with the change.
    /// Groups that exist follow.
    pub fn change_share_settings(
        &self,
        change: impl FnOnce(&mut ShareGroupConfig, &mut SharePartitionConfig),
    ) {
        self.live.change_start(|config| change(&mut config.share_groups, &mut config.share_partitions));
    }

    /// Returns the ids of a share group's members; `None` if there is no such group.
    pub fn share_group_members(&self, group: &str) -> Option<Vec<String>> {
        self.share_groups.look(group, |group| group.members.keys().cloned().collect())
    }

    /// Assigns partitions to members of a share group. Other members keep theirs, and from now on only this function changes an
    /// assignment of the group. Members and topics that do not exist are ignored. Returns `false` if there is no such group.
    pub fn assign_share_group(self: &Arc<Self>, group: &str, partitions: &MemberPartitions) -> bool {
        self.share_groups.fix_targets(self, group, self.places_of(partitions))
    }

    /// Assigns partitions to members of a group of the consumer protocol, as [`Self::assign_share_group`] does; with `None`, the
    /// group's assignor assigns them again.
    pub fn assign_consumer_group(
        self: &Arc<Self>,
        group: &str,
        partitions: Option<&MemberPartitions>,
    ) -> bool {
        let targets = partitions.map(|partitions| self.places_of(partitions));
        self.consumer_groups.fix_targets(self, group, targets)
    }

    fn places_of(&self, partitions: &MemberPartitions) -> BTreeMap<String, BTreeSet<Place>> {
        let place = |(topic, partition): &(String, i32)| Some((self.topic(topic)?.id, *partition));
        let of_member = |(member, partitions): (&String, &Vec<(String, i32)>)| {
            (member.clone(), partitions.iter().filter_map(place).collect())
        };
        partitions.iter().map(of_member).collect()
    }
}
