//! The case of equal subscriptions: each member keeps its partitions up to a quota, and gets others up to the quota.

use std::collections::{BTreeMap, VecDeque};

use super::claims::Claims;
use super::plan::{Plan, Slot};

/// The slots of each member, and the new owners of slots that belonged to another member.
pub(super) fn assign(plan: &Plan<'_>, claims: &Claims) -> (Vec<Vec<Slot>>, Vec<(usize, Slot)>) {
    let members = plan.ids.len();
    if members == 0 {
        return (Vec::new(), Vec::new());
    }
    let mut fill = Fill {
        plan,
        claims,
        low: plan.slot_count() / members,
        high: plan.slot_count().div_ceil(members),
        over_expected: plan.slot_count() % members,
        over: 0,
        below: Vec::new(),
        at_low: VecDeque::new(),
        assigned: vec![Vec::new(); members],
        let_go: BTreeMap::new(),
        moved: Vec::new(),
    };
    fill.keep_owned();
    let mut taken = vec![false; plan.slot_count()];
    fill.assigned.iter().flatten().for_each(|slot| taken[*slot] = true);
    let mut left: Vec<Slot> = (0..plan.slot_count()).filter(|slot| !taken[*slot]).collect();
    fill.at_low.make_contiguous().sort_unstable();
    plan.sort_by_neighbours(&mut left);
    if plan.has_racks() {
        fill.deal_within_racks(&mut left);
    }
    fill.deal(&left);
    (fill.assigned, fill.moved)
}

struct Fill<'a> {
    plan: &'a Plan<'a>,
    claims: &'a Claims,
    low: usize,
    high: usize,
    /// The number of members that get more than `low`, and of those that already have it.
    over_expected: usize,
    over: usize,
    /// Members with less than `low`.
    below: Vec<usize>,
    /// Members with exactly `low`, as long as one of them may get one more.
    at_low: VecDeque<usize>,
    assigned: Vec<Vec<Slot>>,
    /// The partitions that their owner could not keep, with that owner.
    let_go: BTreeMap<Slot, usize>,
    moved: Vec<(usize, Slot)>,
}

impl Fill<'_> {
    fn keep_owned(&mut self) {
        for member in 0..self.assigned.len() {
            let (far, mut owned): (Vec<Slot>, Vec<Slot>) =
                self.claims.owned[member].iter().partition(|slot| self.plan.racks_mismatch(member, **slot));
            self.let_go.extend(far.into_iter().map(|slot| (slot, member)));
            owned.retain(|slot| !self.claims.disputed.contains(slot));
            // Sorted by partition number, so that the released partitions are spread over the topics.
            owned.sort_unstable_by_key(|slot| (self.plan.number(*slot), *slot));
            let keep = if owned.len() < self.low {
                self.below.push(member);
                owned.len()
            } else if owned.len() >= self.high && self.over < self.over_expected {
                self.over += 1;
                if self.over == self.over_expected {
                    self.at_low.clear();
                }
                self.high
            } else {
                if self.over < self.over_expected {
                    self.at_low.push_back(member);
                }
                self.low
            };
            self.let_go.extend(owned.split_off(keep).into_iter().map(|slot| (slot, member)));
            self.assigned[member] = owned;
        }
    }

    /// Round robin among the members in a matching rack; a partition without such a member stays in `left`.
    fn deal_within_racks(&mut self, left: &mut Vec<Slot>) {
        let mut next = 0;
        left.retain(|slot| {
            let near = |member: &usize| self.plan.racks_match(*member, *slot);
            let turn = (0..self.below.len()).map(|at| (next + at) % self.below.len());
            if let Some(mut at) = turn.clone().find(|at| near(&self.below[*at])) {
                let member = self.below[at];
                let count = self.assigned[member].len() + 1;
                if count >= self.low {
                    self.below.remove(at);
                    if count < self.high && self.over < self.over_expected {
                        self.at_low.push_back(member);
                    }
                } else {
                    at += 1;
                }
                next = if self.below.is_empty() { 0 } else { at % self.below.len() };
                self.give(member, *slot);
                return false;
            }
            let Some(at) = self.at_low.iter().position(near) else { return true };
            let member = self.at_low[at];
            if self.assigned[member].len() + 1 == self.high {
                self.at_low.remove(at);
                self.over += 1;
                if self.over == self.over_expected {
                    self.at_low.clear();
                }
            }
            self.give(member, *slot);
            false
        });
    }

    /// Round robin up to `low`, then one more for the members in `at_low`.
    fn deal(&mut self, left: &[Slot]) {
        let mut next = 0;
        for slot in left {
            if self.below.is_empty() {
                let least = || (0..self.assigned.len()).min_by_key(|member| self.assigned[*member].len());
                let Some(member) = self.at_low.pop_front().or_else(least) else { return };
                self.give(member, *slot);
                continue;
            }
            next = if next < self.below.len() { next } else { 0 };
            let member = self.below[next];
            self.give(member, *slot);
            if self.assigned[member].len() < self.low {
                next += 1;
            } else {
                self.below.remove(next);
                self.at_low.push_back(member);
            }
        }
    }

    fn give(&mut self, member: usize, slot: Slot) {
        self.assigned[member].push(slot);
        let was_anothers = self.let_go.get(&slot).is_some_and(|owner| *owner != member);
        if was_anothers || self.claims.disputed.contains(&slot) {
            self.moved.push((member, slot));
        }
    }
}
