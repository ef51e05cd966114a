//! The case of different subscriptions, and librdkafka's for all: partitions move one by one while a move improves the
//! balance.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::claims::Claims;
use super::movements::Movements;
use super::plan::{Plan, Slot};

/// The slots of each member.
pub(super) fn assign(plan: &Plan<'_>, claims: &Claims) -> Vec<Vec<Slot>> {
    let mut wanting = vec![Vec::new(); plan.topic_count()];
    for (member, topics) in plan.subscribed.iter().enumerate() {
        for topic in topics {
            wanting[*topic].push(member);
        }
    }
    let mut shares = Shares {
        plan,
        claims,
        wanting,
        assigned: vec![Vec::new(); plan.ids.len()],
        owner: vec![None; plan.slot_count()],
        by_load: BTreeSet::new(),
        movements: Movements::default(),
    };
    let revoked = shares.keep_owned();
    shares.by_load = (0..plan.ids.len()).map(|member| (shares.assigned[member].len(), member)).collect();
    shares.balance(revoked);
    shares.assigned
}

struct Shares<'a> {
    plan: &'a Plan<'a>,
    claims: &'a Claims,
    /// The subscribers of each topic.
    wanting: Vec<Vec<usize>>,
    assigned: Vec<Vec<Slot>>,
    owner: Vec<Option<usize>>,
    /// The members whose share may change, the least loaded first.
    by_load: BTreeSet<(usize, usize)>,
    movements: Movements,
}

/// The owners of partitions and their movements: a pass over the same partitions does the same with equal ones.
type PassState = (Vec<Option<usize>>, BTreeMap<Slot, (usize, usize)>);

impl Shares<'_> {
    /// Returns `true` if a member lost a partition that it owned.
    fn keep_owned(&mut self) -> bool {
        let mut revoked = false;
        for (member, owned) in self.claims.owned.iter().enumerate() {
            for slot in owned {
                let wanted = self.plan.subscribed[member].contains(&self.plan.topic_of(*slot));
                if wanted && !self.plan.racks_mismatch(member, *slot) {
                    self.assigned[member].push(*slot);
                    self.owner[*slot] = Some(member);
                } else {
                    revoked = true;
                }
            }
        }
        revoked
    }

    fn balance(&mut self, revoked: bool) {
        let first_time = self.by_load.last().is_none_or(|(load, _)| *load == 0);
        let all = if first_time || !self.plan.subscriptions_are_equal() {
            // Topics with few subscribers come first.
            let mut topics: Vec<usize> = (0..self.plan.topic_count()).collect();
            topics.sort_by_key(|topic| self.wanting[*topic].len());
            topics.into_iter().flat_map(|topic| self.plan.slots(topic)).collect()
        } else {
            self.by_owner()
        };
        let new: Vec<Slot> = all.iter().copied().filter(|slot| self.owner[*slot].is_none()).collect();
        if self.plan.has_racks() {
            for slot in &new {
                self.give_to_least_loaded(*slot, true);
            }
        }
        for slot in &new {
            if self.owner[*slot].is_none() {
                self.give_to_least_loaded(*slot, false);
            }
        }
        let movable = |slot: &Slot| self.wanting[self.plan.topic_of(*slot)].len() >= 2;
        let (all, new): (Vec<_>, Vec<_>) =
            (all.iter().copied().filter(movable).collect(), new.iter().copied().filter(movable).collect());
        let fixed: Vec<_> =
            self.by_load.iter().copied().filter(|(_, member)| self.is_fixed(*member)).collect();
        for entry in &fixed {
            self.by_load.remove(entry);
        }
        let before = (self.assigned.clone(), self.score());
        // New partitions move first, unless old partitions must move anyway.
        if !revoked {
            self.reassign(&new);
        }
        let reassigned = self.reassign(&all);
        if !first_time && reassigned && self.score() >= before.1 {
            self.assigned = before.0;
        }
    }

    /// Takes one partition after the other from the previous owner that has most of them left; then the partitions
    /// without an owner.
    fn by_owner(&self) -> Vec<Slot> {
        let mut left: Vec<VecDeque<Slot>> = (self.claims.owned.iter())
            .map(|owned| owned.iter().copied().collect::<BTreeSet<_>>().into_iter().collect())
            .collect();
        let mut most: BTreeSet<(Reverse<usize>, usize)> =
            left.iter().enumerate().map(|(member, slots)| (Reverse(slots.len()), member)).collect();
        let (mut all, mut taken) = (Vec::new(), vec![false; self.plan.slot_count()]);
        while let Some((_, member)) = most.pop_first() {
            let Some(slot) = left[member].pop_front() else { continue };
            taken[slot] = true;
            all.push(slot);
            most.insert((Reverse(left[member].len()), member));
        }
        all.extend((0..self.plan.slot_count()).filter(|slot| !taken[*slot]));
        all
    }

    fn give_to_least_loaded(&mut self, slot: Slot, near: bool) {
        let topic = self.plan.topic_of(slot);
        let fits = |member: usize| {
            self.plan.subscribed[member].contains(&topic) && !(near && self.plan.racks_mismatch(member, slot))
        };
        if let Some((load, member)) = self.by_load.iter().copied().find(|(_, member)| fits(*member)) {
            self.by_load.remove(&(load, member));
            self.assigned[member].push(slot);
            self.owner[slot] = Some(member);
            self.by_load.insert((load + 1, member));
        }
    }

    /// Returns `true` if the member has all partitions that it can get, and no other member could get any of them.
    fn is_fixed(&self, member: usize) -> bool {
        self.assigned[member].len() >= self.most(member)
            && self.assigned[member].iter().all(|slot| self.wanting[self.plan.topic_of(*slot)].len() < 2)
    }

    fn most(&self, member: usize) -> usize {
        self.plan.subscribed[member].iter().map(|topic| self.plan.slots(*topic).len()).sum()
    }

    /// Moves partitions to members with at least two fewer, while there are such members.
    ///
    /// A partition that moves back instead of another one may leave a lighter member, so passes may repeat for ever. Java's
    /// do; these stop at a state that an earlier pass has left.
    fn reassign(&mut self, slots: &[Slot]) -> bool {
        let mut reassigned = false;
        // Replaced after 1, 2, 4, 8 and so on passes, so that one state is enough to find a cycle of any length.
        let mut seen: Option<PassState> = None;
        let (mut since, mut until) = (0_u64, 1_u64);
        // In balance no partition has a better owner; to look at all partitions once per pass is enough.
        while !self.is_balanced() {
            let mut modified = false;
            for slot in slots {
                if self.is_even() {
                    break;
                }
                if let Some(to) = self.better_owner(*slot) {
                    self.hand_over(*slot, to);
                    modified = true;
                }
            }
            if !modified {
                break;
            }
            reassigned = true;
            if seen
                .as_ref()
                .is_some_and(|(owner, moved)| *owner == self.owner && moved == self.movements.moved())
            {
                return true;
            }
            since += 1;
            if since == until {
                seen = Some((self.owner.clone(), self.movements.moved().clone()));
                (since, until) = (0, until.saturating_mul(2));
            }
        }
        reassigned
    }

    /// A better owner of the partition: its previous owner, if that balances the loads; otherwise the least loaded
    /// candidate, if its load is lower by at least two.
    fn better_owner(&self, slot: Slot) -> Option<usize> {
        let owner = self.owner[slot]?;
        let load = self.assigned[owner].len();
        let lighter = |member: usize| load > self.assigned[member].len() + 1;
        let topic = self.plan.topic_of(slot);
        if let Some(before) = self.claims.before.get(&slot).copied()
            && self.plan.subscribed[before].contains(&topic)
            && lighter(before)
        {
            return Some(before);
        }
        if !self.wanting[topic].iter().any(|member| lighter(*member)) {
            return None;
        }
        let takers = self.by_load.iter().map(|(_, member)| *member);
        takers.into_iter().find(|member| self.plan.subscribed[*member].contains(&topic))
    }

    fn hand_over(&mut self, slot: Slot, to: usize) {
        let Some(from) = self.owner[slot] else { return };
        let slot = self.movements.instead_of(self.plan, slot, from, to);
        let Some(from) = self.owner[slot] else { return };
        self.by_load.remove(&(self.assigned[from].len(), from));
        self.by_load.remove(&(self.assigned[to].len(), to));
        self.movements.record(self.plan, slot, from, to);
        self.assigned[from].retain(|theirs| *theirs != slot);
        self.assigned[to].push(slot);
        self.owner[slot] = Some(to);
        self.by_load.insert((self.assigned[from].len(), from));
        self.by_load.insert((self.assigned[to].len(), to));
    }

    /// Returns `true` if the loads differ by one at most.
    fn is_even(&self) -> bool {
        let (Some((least, _)), Some((most, _))) = (self.by_load.first(), self.by_load.last()) else {
            return true;
        };
        least + 1 >= *most
    }

    /// Returns `true` if no single move makes the loads more even.
    fn is_balanced(&self) -> bool {
        if self.is_even() {
            return true;
        }
        if self.plan.subscriptions_are_equal() {
            // The least loaded member can take any partition of the most loaded one.
            return false;
        }
        let mut heaviest = vec![0; self.plan.topic_count()];
        for (slot, owner) in self.owner.iter().enumerate() {
            let load = owner.map_or(0, |owner| self.assigned[owner].len());
            let heaviest = &mut heaviest[self.plan.topic_of(slot)];
            *heaviest = (*heaviest).max(load);
        }
        let could_take = |(load, member): &(usize, usize)| {
            self.plan.subscribed[*member].iter().any(|topic| load + 1 < heaviest[*topic])
        };
        !self.by_load.iter().any(could_take)
    }

    /// The sum of differences between members' loads.
    fn score(&self) -> usize {
        // In order of load, the member at position n has at least the load of n others.
        let mut sum = 0;
        let mut below = 0;
        for (at, (load, _)) in self.by_load.iter().enumerate() {
            sum += at * load - below;
            below += load;
        }
        sum
    }
}
