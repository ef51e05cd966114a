//! Moves of partitions between members, so that no two members swap partitions of one topic.

use std::collections::{BTreeMap, BTreeSet};

use super::plan::{Plan, Slot};

#[derive(Debug, Default)]
pub(super) struct Movements {
    /// Topic, from, to.
    by_pair: BTreeMap<(usize, usize, usize), BTreeSet<Slot>>,
    of: BTreeMap<Slot, (usize, usize)>,
}

impl Movements {
    /// The partitions that have moved, each with its first and its last owner. Two states with the same ones decide alike.
    pub(super) fn moved(&self) -> &BTreeMap<Slot, (usize, usize)> {
        &self.of
    }

    /// The partition to move instead of `slot`: if one of the same topic moved in the opposite direction, it moves
    /// back.
    pub(super) fn instead_of(&self, plan: &Plan<'_>, slot: Slot, from: usize, to: usize) -> Slot {
        let from = self.of.get(&slot).map_or(from, |(origin, _)| *origin);
        let back = self.by_pair.get(&(plan.topic_of(slot), to, from));
        back.and_then(|slots| slots.first().copied()).unwrap_or(slot)
    }

    pub(super) fn record(&mut self, plan: &Plan<'_>, slot: Slot, from: usize, to: usize) {
        let topic = plan.topic_of(slot);
        let mut origin = from;
        if let Some((first, last)) = self.of.remove(&slot) {
            origin = first;
            if let Some(slots) = self.by_pair.get_mut(&(topic, first, last)) {
                slots.remove(&slot);
            }
        }
        if origin != to {
            self.of.insert(slot, (origin, to));
            self.by_pair.entry((topic, origin, to)).or_default().insert(slot);
        }
    }
}
