//! Who had what before: the members' words, where they contradict each other the younger one.

use std::collections::{BTreeMap, BTreeSet};

use super::super::{Held, Member};
use super::plan::{Plan, Slot};

/// A member that names no generation is older than every one that does.
const NO_GENERATION: i32 = -1;

pub(super) struct Claims {
    /// Of each member, what it had.
    pub(super) owned: Vec<Vec<Slot>>,
    /// What two members of one generation claim.
    pub(super) disputed: BTreeSet<Slot>,
    /// Who had a partition in an older generation than the youngest.
    pub(super) before: BTreeMap<Slot, usize>,
}

impl Claims {
    pub(super) fn new(plan: &Plan<'_>, members: &BTreeMap<String, Member>, held: &[Held]) -> Self {
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

fn before(plan: &Plan<'_>, held: &[Held], generations: &[i32]) -> BTreeMap<Slot, usize> {
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
