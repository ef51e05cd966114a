//! The next step of a member towards its target assignment.
//!
//! ```text
//!            target without some of its partitions            given up
//!   Stable ----------------------------------------> Unrevoked --------> (next epoch)
//!     |  ^                                                                    |
//!     |  +------------------- all free ------------ Unreleased <---- partitions of others
//! ```
//!
//! A member gives up partitions in its old epoch and gets new ones in the next. So a partition never has two owners
//! (Kafka's `CurrentAssignmentBuilder`).

use std::collections::BTreeSet;
use std::time::Duration;

use ottla_protocol::ErrorCode;
use tokio::time::Instant;

use super::group::{Change, ConsumerGroup, Refusal, TopicLookup};
use super::member::{Assigned, Member, MemberState, Place};

/// A member's state after a step.
struct Step {
    state: MemberState,
    epoch: i32,
    assigned: Assigned,
    revoking: Assigned,
}

impl ConsumerGroup {
    /// Moves a member towards its target. `owned` are the partitions that it reports; `None` says that nothing changed.
    /// Returns whether the member has other partitions than before.
    pub(super) fn reconcile(
        &mut self,
        now: Instant,
        member_id: &str,
        owned: Option<&BTreeSet<Place>>,
        has_new_subscription: bool,
        lookup: &dyn TopicLookup,
    ) -> Result<bool, Refusal> {
        let Some(member) = self.members.get(member_id) else { return Ok(false) };
        let owns = |places: &Assigned| match owned {
            None => true,
            Some(owned) => places.keys().any(|place| owned.contains(place)),
        };
        let epoch = match member.state {
            MemberState::Stable if member.epoch != self.assignment_epoch => member.epoch,
            // If it has to give up others now, it keeps its epoch: should the answer be lost, its next heartbeat has that one.
            MemberState::UnrevokedPartitions if !owns(&member.revoking) => member.epoch,
            MemberState::Stable | MemberState::UnrevokedPartitions => {
                if !has_new_subscription {
                    return Ok(false);
                }
                let step = self.without_unsubscribed(member, &owns, lookup);
                return Ok(self.take(now, member_id, step));
            }
            MemberState::UnreleasedPartitions => member.epoch,
            MemberState::Unknown if owned.is_some_and(BTreeSet::is_empty) => self.assignment_epoch,
            MemberState::Unknown => {
                let message = format!("the state of member `{member_id}` is unknown: it must join again");
                return Err(Refusal::new(ErrorCode::FencedMemberEpoch, message));
            }
        };
        let step = self.next_step(member_id, member, epoch, &owns, lookup);
        Ok(self.take(now, member_id, step))
    }

    fn next_step(
        &self,
        member_id: &str,
        member: &Member,
        epoch: i32,
        owns: &dyn Fn(&Assigned) -> bool,
        lookup: &dyn TopicLookup,
    ) -> Step {
        let topics = self.subscribed_topics(&member.profile, lookup);
        let empty = BTreeSet::new();
        let target = self.targets.get(member_id).unwrap_or(&empty);
        let is_wanted = |place: &Place| topics.contains_key(&place.0) && target.contains(place);
        let (mut assigned, mut revoking) = (Assigned::new(), Assigned::new());
        for (place, since) in &member.assigned {
            let to = if is_wanted(place) { &mut assigned } else { &mut revoking };
            to.insert(*place, *since);
        }
        if !revoking.is_empty() && owns(&revoking) {
            return Step { state: MemberState::UnrevokedPartitions, epoch, assigned, revoking };
        }
        let mut is_withheld = false;
        for place in target.iter().filter(|place| topics.contains_key(&place.0)) {
            if assigned.contains_key(place) {
                continue;
            }
            // A partition that this member has just given up is free for it (KAFKA-16147).
            if self.owners.get(place).is_some_and(|owner| &**owner != member_id) {
                is_withheld = true;
            } else {
                assigned.insert(*place, self.assignment_epoch);
            }
        }
        let state = if is_withheld { MemberState::UnreleasedPartitions } else { MemberState::Stable };
        Step { state, epoch: self.assignment_epoch, assigned, revoking: Assigned::new() }
    }

    /// The partitions of topics to which the member does not subscribe any more are taken away at once.
    fn without_unsubscribed(
        &self,
        member: &Member,
        owns: &dyn Fn(&Assigned) -> bool,
        lookup: &dyn TopicLookup,
    ) -> Step {
        let topics = self.subscribed_topics(&member.profile, lookup);
        let (assigned, gone): (Assigned, Assigned) =
            member.assigned.iter().partition(|(place, _)| topics.contains_key(&place.0));
        let epoch = member.epoch;
        let mut revoking = member.revoking.clone();
        revoking.extend(&gone);
        if !gone.is_empty() && owns(&revoking) {
            return Step { state: MemberState::UnrevokedPartitions, epoch, assigned, revoking };
        }
        // A member that has given them up already reports nothing new: there is nothing to wait for.
        Step { state: member.state, epoch, assigned, revoking: member.revoking.clone() }
    }

    /// Applies a step. Returns whether it changes the member's partitions.
    fn take(&mut self, now: Instant, member_id: &str, step: Step) -> bool {
        let Some(member) = self.members.get_mut(member_id) else { return false };
        let Step { state, epoch, assigned, revoking } = step;
        let is_same = member.state == state
            && member.epoch == epoch
            && member.assigned == assigned
            && member.revoking == revoking;
        if is_same {
            return false;
        }
        let has_changed = !member.assigned.keys().eq(assigned.keys());
        let waits_longer = member.revoke_by.filter(|_| member.revoking == revoking);
        let until = now + Duration::from_millis(member.profile.rebalance_timeout_ms.max(0) as u64);
        // Classic members have the deadlines of their joins and syncs.
        let must_revoke = state == MemberState::UnrevokedPartitions && !member.is_classic();
        member.revoke_by = must_revoke.then_some(waits_longer.unwrap_or(until));
        let released = member.assigned.keys().chain(member.revoking.keys());
        for place in released.filter(|place| !assigned.contains_key(place) && !revoking.contains_key(place)) {
            self.owners.remove(place);
        }
        let id = member.id.clone();
        for place in assigned.keys().chain(revoking.keys()) {
            let before = self.owners.insert(*place, id.clone());
            debug_assert!(
                before.is_none_or(|before| before == id),
                "partition {} of topic {} has two owners",
                place.1,
                place.0
            );
        }
        member.previous_epoch = member.epoch;
        member.epoch = epoch;
        member.state = state;
        member.assigned = assigned;
        member.revoking = revoking;
        self.changed.insert(Change::Current(member_id.to_owned()));
        has_changed
    }
}
