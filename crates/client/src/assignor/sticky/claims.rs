//! The previous owners of partitions, as claimed by the members. Of two conflicting claims, the one of the later
//! generation wins.

use std::collections::{BTreeMap, BTreeSet};

use super::super::{Member, OwnedPartitions};
use super::plan::{Plan, Slot};

/// The generation of members that report none; it is older than any other.
const NO_GENERATION: i32 = -1;

pub(super) struct Claims {
    /// For each member, the partitions that it owned.
    pub(super) owned: Vec<Vec<Slot>>,
    /// The partitions that two members of the same generation claim.
    pub(super) disputed: BTreeSet<Slot>,
    /// The owners of partitions in the generations before the latest one.
    pub(super) before: BTreeMap<Slot, usize>,
}

impl Claims {
    pub(super) fn new(plan: &Plan<'_>, members: &BTreeMap<String, Member>, held: &[OwnedPartitions]) -> Self {
        let generations: Vec<i32> =
            held.iter().map(|held| held.generation.unwrap_or(NO_GENERATION)).collect();
        let mut owned: Vec<Vec<Slot>> = vec![Vec::new(); held.len()];
        let mut disputed = BTreeSet::new();
        let mut owners: BTreeMap<Slot, usize> = BTreeMap::new();
        let said: Vec<i32> =
            members.values().map(|member| member.generation.unwrap_or(NO_GENERATION)).collect();
        for (member, held) in held.iter().enumerate() {
            for slot in held.partitions.iter().filter_map(|at| plan.slot(at)) {
                let Some(other) = owners.get(&slot).copied() else {
                    owned[member].push(slot);
                    owners.insert(slot, member);
                    continue;
                };
                if generations[member] < said[other] {
                    continue;
                }
                owned[other].retain(|theirs| *theirs != slot);
                owners.insert(slot, member);
                if generations[member] == said[other] {
                    disputed.insert(slot);
                } else {
                    owned[member].push(slot);
                }
            }
        }
        Self { owned, disputed, before: before(plan, held, &generations) }
    }
}

fn before(plan: &Plan<'_>, held: &[OwnedPartitions], generations: &[i32]) -> BTreeMap<Slot, usize> {
    let youngest = generations.iter().copied().max().unwrap_or(NO_GENERATION);
    let mut before: BTreeMap<Slot, usize> = BTreeMap::new();
    for (member, held) in held.iter().enumerate().filter(|(member, _)| generations[*member] < youngest) {
        for slot in held.partitions.iter().filter_map(|at| plan.slot(at)) {
            let known = before.get(&slot).map(|other| generations[*other]);
            if known.is_none_or(|known| generations[member] > known) {
                before.insert(slot, member);
            }
        }
    }
    before
}
