//! The members of a group: they join, return, take the place of others, and leave.

use ottla_protocol::ErrorCode;
use tokio::time::Instant;

use super::{Beat, BeatAnswer, Change, ConsumerGroup, GroupSettings, Refusal, no_room};
use crate::coordinator::consumer_group::member::{LEFT, LEFT_FOR_NOW, Member, Profile};

impl ConsumerGroup {
    /// Finds the member or creates it.
    pub(super) fn admit(
        &mut self,
        now: Instant,
        beat: &Beat,
        settings: &GroupSettings,
    ) -> Result<(), Refusal> {
        let id = &beat.member_id;
        self.check_size(id, settings.members_max)?;
        if beat.epoch > 0 {
            self.check_instance_of(beat)?;
            let Some(member) = self.members.get(id) else {
                let message = format!("the group has no member `{id}`");
                return Err(Refusal::new(ErrorCode::UnknownMemberId, message));
            };
            return check_epoch(id, member, beat);
        }
        self.enter(now, beat)
    }

    /// Refuses a member that a full group does not have. As in Kafka, that precedes all other checks: a static member that returns
    /// under another id is refused as well.
    pub(in crate::coordinator::consumer_group) fn check_size(
        &self,
        id: &str,
        members_max: usize,
    ) -> Result<(), Refusal> {
        if self.members.len() < members_max || self.members.contains_key(id) {
            return Ok(());
        }
        let message =
            format!("the group has {members_max} members, the most that group.consumer.max.size allows");
        Err(Refusal::new(ErrorCode::GroupMaxSizeReached, message))
    }

    /// Refuses a static member whose instance id no member has, or another one. As in Kafka, the instance id precedes the member id: the
    /// member that another one has replaced is not a member any more, and learns that it is fenced.
    fn check_instance_of(&self, beat: &Beat) -> Result<(), Refusal> {
        let Some(instance) = &beat.instance_id else { return Ok(()) };
        let id = &beat.member_id;
        match self.instances.get(instance) {
            None => {
                let message = format!("no member has the instance `{instance}`");
                Err(Refusal::new(ErrorCode::UnknownMemberId, message))
            }
            Some(holder) if holder != id => {
                let message = format!("instance `{instance}` belongs to member `{holder}`, not to `{id}`");
                Err(Refusal::new(ErrorCode::FencedInstanceId, message))
            }
            Some(_) => Ok(()),
        }
    }

    /// Finds the member that joins, or creates it. A member that has left for a while is replaced by one with the same
    /// instance id, and so is one of another protocol. A member that has not left keeps its instance.
    pub(in crate::coordinator::consumer_group) fn enter(
        &mut self,
        now: Instant,
        beat: &Beat,
    ) -> Result<(), Refusal> {
        let id = &beat.member_id;
        let refuse = |code, message| Err(Refusal::new(code, message));
        let holder = beat.instance_id.as_ref().and_then(|instance| self.instances.get(instance)).cloned();
        if let (Some(instance), Some(holder)) = (&beat.instance_id, holder) {
            let is_in_use = |member: &Member| {
                member.epoch != LEFT_FOR_NOW && !member.is_classic() && beat.classic.is_none()
            };
            // As in Kafka, also if the member itself joins again: two processes may have the same ids.
            if self.members.get(&holder).is_some_and(is_in_use) {
                return refuse(
                    ErrorCode::UnreleasedInstanceId,
                    format!("instance `{instance}` belongs to member `{holder}`, which has not left"),
                );
            }
            if holder != *id {
                self.replace(&holder, id);
                return Ok(());
            }
        }
        if let Some(member) = self.members.get_mut(id) {
            // A static member returns under its old id.
            if member.epoch == LEFT_FOR_NOW {
                (member.epoch, member.previous_epoch) = (0, 0);
            }
            return Ok(());
        }
        let Some(kept) = self.memory.keep(Member::bytes(id, &Profile::default())) else {
            return refuse(ErrorCode::GroupMaxSizeReached, no_room());
        };
        let profile = Profile { rebalance_timeout_ms: -1, ..Profile::default() };
        self.members.insert(id.clone(), Member::new(id, profile, now, kept));
        Ok(())
    }

    /// Notes that a member has become static, or has another instance id than before.
    pub(super) fn note_instance(&mut self, id: &str, before: Option<String>) {
        let Some(member) = self.members.get(id) else { return };
        let instance = &member.profile.instance_id;
        if *instance == before {
            return;
        }
        if let Some(before) = before {
            self.instances.remove(&before);
        }
        if let Some(instance) = instance {
            self.instances.insert(instance.clone(), id.to_owned());
        }
    }

    /// A static member returns under another id: it has the target of the old one. A member of that id gives up what it has.
    fn replace(&mut self, old: &str, id: &str) {
        if self.members.contains_key(id) {
            self.remove(id);
            self.bump();
        }
        let Some(mut member) = self.members.remove(old) else { return };
        if let Some(target) = self.targets.remove(old) {
            self.targets.insert(id.to_owned(), target);
        }
        member.id = id.into();
        (member.epoch, member.previous_epoch) = (0, 0);
        (member.join_by, member.sync_by) = (None, None);
        for place in member.assigned.keys().chain(member.revoking.keys()) {
            self.owners.insert(*place, member.id.clone());
        }
        if let Some(instance) = &member.profile.instance_id {
            self.instances.insert(instance.clone(), id.to_owned());
        }
        self.members.insert(id.to_owned(), member);
        for id in [old, id] {
            self.note_member(id);
        }
    }

    /// Renews the session of a member that has sent a heartbeat in this epoch, which is handled later.
    pub(in crate::coordinator::consumer_group) fn renew_session(
        &mut self,
        now: Instant,
        id: &str,
        epoch: i32,
    ) {
        if let Some(member) = self.members.get_mut(id)
            && epoch > 0
            && [member.epoch, member.previous_epoch].contains(&epoch)
        {
            member.heard_at = now;
        }
    }

    /// Handles a member that leaves, for good or for a while.
    pub(super) fn leave(&mut self, beat: &Beat) -> Result<BeatAnswer, Refusal> {
        let id = &beat.member_id;
        self.check_instance_of(beat)?;
        let Some(member) = self.members.get_mut(id) else {
            let message = format!("the group has no member `{id}`");
            return Err(Refusal::new(ErrorCode::UnknownMemberId, message));
        };
        if beat.epoch == LEFT_FOR_NOW {
            // As in Kafka, it keeps its previous epoch and its state, and must return before its session is over.
            member.epoch = LEFT_FOR_NOW;
            member.revoke_by = None;
            for since in member.assigned.values_mut() {
                *since = 0;
            }
            for place in std::mem::take(&mut member.revoking).keys() {
                self.owners.remove(place);
            }
            self.changed.insert(Change::Current(id.clone()));
        } else {
            self.dismiss(std::slice::from_ref(id));
        }
        let epoch = if beat.epoch == LEFT_FOR_NOW { LEFT_FOR_NOW } else { LEFT };
        Ok(BeatAnswer { member_id: id.clone(), epoch, assignment: None, is_rebalancing: false })
    }
}

/// An older epoch is good if the answer with the newer one was lost.
fn check_epoch(id: &str, member: &Member, beat: &Beat) -> Result<(), Refusal> {
    let owns_no_other = || {
        let owned = beat.owned.as_ref();
        owned.is_some_and(|owned| owned.iter().all(|place| member.assigned.contains_key(place)))
    };
    let (current, previous) = (member.epoch, member.previous_epoch);
    if beat.epoch == current || beat.epoch < current && beat.epoch == previous && owns_no_other() {
        return Ok(());
    }
    let message =
        format!("member `{id}` sent epoch {}; its epoch is {current}, and was {previous} before", beat.epoch);
    Err(Refusal::new(ErrorCode::FencedMemberEpoch, message))
}
