//! Members, topics and partitions by index, so that shares are vectors instead of maps.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use super::super::{Member, Topics, racks};
use crate::types::TopicPartition;

/// The index of a partition: topics in the order of their names, each with its partitions in a row.
pub(super) type Slot = usize;

pub(super) struct Plan<'a> {
    /// Member ids in order; other structures use the index in this list.
    pub(super) ids: Vec<&'a String>,
    topics: Vec<&'a Arc<str>>,
    /// For each topic, its first slot; one more at the end.
    first: Vec<Slot>,
    topic_of: Vec<usize>,
    racks_of: Vec<&'a BTreeSet<Arc<str>>>,
    /// For each member, the existing topics that it subscribes to.
    pub(super) subscribed: Vec<BTreeSet<usize>>,
    equal: bool,
    /// The rack of each member; all `None` if racks do not matter.
    rack: Vec<Option<&'a Arc<str>>>,
    /// For each slot, the number of members in a rack with a replica; empty if no member has a rack.
    neighbours: Vec<usize>,
}

impl<'a> Plan<'a> {
    pub(super) fn new(topics: &'a Topics, members: &'a BTreeMap<String, Member>) -> Self {
        let wanted: BTreeSet<&Arc<str>> = members.values().flat_map(|member| &member.topics).collect();
        let mut plan = Self {
            ids: members.keys().collect(),
            topics: Vec::new(),
            first: vec![0],
            topic_of: Vec::new(),
            racks_of: Vec::new(),
            subscribed: Vec::new(),
            equal: true,
            rack: members
                .values()
                .map(|member| member.rack.as_ref().filter(|rack| !rack.is_empty()))
                .collect(),
            neighbours: Vec::new(),
        };
        for (topic, partitions) in topics.iter().filter(|(topic, _)| wanted.contains(topic)) {
            plan.topic_of.extend(std::iter::repeat_n(plan.topics.len(), partitions.len()));
            plan.racks_of.extend(partitions);
            plan.topics.push(topic);
            plan.first.push(plan.topic_of.len());
        }
        let mut asked = members.values().map(|member| member.topics.iter().collect::<BTreeSet<_>>());
        let first = asked.next();
        plan.equal = asked.all(|topics| Some(topics) == first);
        let number = |topic: &Arc<str>| plan.topics.binary_search(&topic).ok();
        plan.subscribed =
            members.values().map(|member| member.topics.iter().filter_map(number).collect()).collect();
        plan.consider_racks();
        plan
    }

    fn consider_racks(&mut self) {
        let mut members: BTreeMap<&Arc<str>, usize> = BTreeMap::new();
        for rack in self.rack.iter().copied().flatten() {
            *members.entry(rack).or_default() += 1;
        }
        if members.is_empty() {
            return;
        }
        let near = |racks: &&BTreeSet<Arc<str>>| racks.iter().filter_map(|rack| members.get(rack)).sum();
        self.neighbours = self.racks_of.iter().map(near).collect();
        if !racks::matter(&members.keys().copied().collect(), &self.racks_of) {
            self.rack.fill(None);
        }
    }

    /// Returns `true` if all members subscribe to the same topics.
    pub(super) fn subscriptions_are_equal(&self) -> bool {
        self.equal
    }

    pub(super) fn topic_count(&self) -> usize {
        self.topics.len()
    }

    /// The slots of a topic.
    pub(super) fn slots(&self, topic: usize) -> Range<Slot> {
        self.first[topic]..self.first[topic + 1]
    }

    pub(super) fn slot_count(&self) -> usize {
        self.topic_of.len()
    }

    pub(super) fn topic_of(&self, slot: Slot) -> usize {
        self.topic_of[slot]
    }

    /// The partition's number within its topic.
    pub(super) fn number(&self, slot: Slot) -> usize {
        slot - self.first[self.topic_of[slot]]
    }

    /// The slot of a partition, if it exists.
    pub(super) fn slot(&self, at: &TopicPartition) -> Option<Slot> {
        let topic = self.topics.binary_search(&&at.topic).ok()?;
        let slot = self.first[topic] + usize::try_from(at.partition).ok()?;
        (slot < self.first[topic + 1]).then_some(slot)
    }

    pub(super) fn partition(&self, slot: Slot) -> TopicPartition {
        TopicPartition {
            topic: self.topics[self.topic_of[slot]].clone(),
            partition: self.number(slot) as i32,
        }
    }

    /// Returns `true` if racks must be matched.
    pub(super) fn has_racks(&self) -> bool {
        self.rack.iter().any(Option::is_some)
    }

    /// Returns `true` if the member has a rack and the partition has no replica in it.
    pub(super) fn racks_mismatch(&self, member: usize, slot: Slot) -> bool {
        self.rack[member].is_some_and(|rack| !self.racks_of[slot].contains(rack))
    }

    /// Returns `true` if the member has a rack and the partition has a replica in it.
    pub(super) fn racks_match(&self, member: usize, slot: Slot) -> bool {
        self.rack[member].is_some_and(|rack| self.racks_of[slot].contains(rack))
    }

    /// Sorts slots by the number of members in a rack with a replica, fewest first.
    pub(super) fn sort_by_neighbours(&self, slots: &mut [Slot]) {
        if !self.neighbours.is_empty() {
            slots.sort_by_key(|slot| self.neighbours[*slot]);
        }
    }

    /// The partitions that move from one member to another, according to the partitions that the members claim to
    /// own.
    pub(super) fn moved(
        &self,
        members: &BTreeMap<String, Member>,
        assigned: &[Vec<Slot>],
    ) -> Vec<(usize, Slot)> {
        let owned: Vec<BTreeSet<Slot>> = members
            .values()
            .map(|member| member.owned.iter().filter_map(|at| self.slot(at)).collect())
            .collect();
        let mut given_up: BTreeSet<Slot> = BTreeSet::new();
        for (owned, assigned) in owned.iter().zip(assigned) {
            let kept: BTreeSet<Slot> = assigned.iter().copied().collect();
            given_up.extend(owned.difference(&kept));
        }
        let mut moved = Vec::new();
        for (member, assigned) in assigned.iter().enumerate() {
            let new = assigned.iter().filter(|slot| !owned[member].contains(slot) && given_up.contains(slot));
            moved.extend(new.map(|slot| (member, *slot)));
        }
        moved
    }
}
