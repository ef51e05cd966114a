//! The join phase of a classic group: members join until all have, or until the time is over, and then the group forms.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ottla_protocol::ErrorCode;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::{Group, Join, JoinAnswer, JoinWait, Joined, RebalanceWaits, SESSION_MARGIN, State};
use crate::coordinator::classic_member::{Member, known_to_all, preferred, shared};
use crate::coordinator::shared_names::SharedNames;
use crate::memory::Kept;

/// The least time between two attempts to form a group of which no member has joined: their rebalance timeouts may be zero.
const POSTPONED_MIN: Duration = Duration::from_secs(1);

impl Group {
    /// Handles a member that may join: see [`Group::check_join`]. The response is sent when the group has formed.
    pub(in crate::coordinator) fn join(
        &mut self,
        now: Instant,
        (join, kept): (Join, Kept),
        answer: oneshot::Sender<JoinAnswer>,
        waits: RebalanceWaits,
        names: &SharedNames,
    ) {
        self.waits = waits;
        let Join {
            member_id,
            instance_id,
            client_id,
            client_host,
            protocol_type,
            protocols,
            session_timeout,
            rebalance_timeout,
            knows_skip_assignment,
        } = join;
        let (member_id, protocols) = (Arc::<str>::from(member_id), shared(protocols, names));
        let was_empty = self.members.is_empty();
        let (replaced, assignment) = self.replace_instance(instance_id.as_deref(), &member_id).unzip();
        self.pending.remove(&*member_id);
        self.protocol_type = names.get(&protocol_type);
        let known = self.members.get_mut(&member_id);
        let unchanged = known.as_ref().is_some_and(|member| member.protocols == protocols);
        let leads_stable = self.state == State::Stable && self.leader.as_deref() == Some(&member_id);
        if let Some(member) = known {
            if !unchanged {
                member.protocols = protocols;
                self.stored.is_whole &= member.is_new;
            }
            member.kept = kept;
            member.heard_at = now;
            member.session_timeout = session_timeout;
            member.rebalance_timeout = rebalance_timeout;
            member.await_group(answer);
        } else {
            let member = Member {
                instance_id,
                client_id: names.get(&client_id),
                client_host: names.get(&client_host),
                protocols,
                kept,
                session_timeout,
                rebalance_timeout,
                heard_at: now,
                number: 0,
                assignment: assignment.unwrap_or_default(),
                is_new: true,
                joining: Some(answer),
                must_sync: false,
                syncing: None,
            };
            self.add(member_id.clone(), member);
            if replaced.is_none() {
                self.note_new_member();
            }
        }
        match self.state {
            State::Joining { .. } => {}
            // A member that joins again with the same subscription receives the current generation: it may have missed the response
            // before. The leader of a stable group is the exception: it joins again because the topics have changed.
            State::Syncing | State::Stable if unchanged && !leads_stable => {
                let joined = self.joined(&member_id);
                self.answer_join(&member_id, Ok(joined));
                return;
            }
            State::Stable if replaced.is_some() && self.preferred_protocol() == self.protocol => {
                let joined = self.joined_instead(replaced.as_deref(), &member_id, knows_skip_assignment);
                self.note_formed(&member_id);
                self.stored.is_stale = true;
                self.answer_join(&member_id, Ok(joined));
                return;
            }
            State::Empty | State::Syncing | State::Stable => self.begin_joining(now, was_empty),
        }
        self.form_if_complete(now);
    }

    /// Removes the member that has the same instance under another id: the old incarnation is fenced, and the new one gets its
    /// assignment (KIP-345). Returns the old id and the assignment.
    fn replace_instance(&mut self, instance_id: Option<&str>, member_id: &str) -> Option<(Arc<str>, Bytes)> {
        let old = self.member_of_instance(instance_id?).filter(|old| &**old != member_id)?;
        let assignment = self.members.get(&old).map(|old| old.assignment.clone()).unwrap_or_default();
        self.remove(&old, ErrorCode::FencedInstanceId);
        Some((old, assignment))
    }

    /// Returns `true` if the group has room for this member, as Kafka's `acceptJoiningMember` decides: while members join, those
    /// that have not joined yet do not count.
    pub(in crate::coordinator) fn has_room_for(&self, member_id: &str, members_max: usize) -> bool {
        let has_joined = |member: &Member| member.joining.is_some();
        match self.state {
            State::Empty => true,
            State::Joining { .. } => {
                let joined = self.members.values().filter(|member| has_joined(member)).count();
                joined < members_max || self.members.get(member_id).is_some_and(|member| has_joined(member))
            }
            State::Syncing | State::Stable => {
                self.members.len() < members_max || self.members.contains_key(member_id)
            }
        }
    }

    /// Returns whether the protocols of a member that joins suit the other members.
    pub(in crate::coordinator) fn check_join(&self, join: &Join) -> Result<(), ErrorCode> {
        let others =
            || self.members.iter().filter(|(id, _)| ***id != *join.member_id).map(|(_, member)| &**member);
        let names = || join.protocols.iter().map(|(name, _)| &**name);
        let has_common = || !known_to_all(names(), others()).is_empty();
        if others().next().is_some() && (*self.protocol_type != *join.protocol_type || !has_common()) {
            return Err(ErrorCode::InconsistentGroupProtocol);
        }
        Ok(())
    }

    /// Forgets the id of a member whose join is refused: the group would wait for it until the id expires.
    pub(in crate::coordinator) fn forget_expected(&mut self, now: Instant, member_id: &str) {
        if self.pending.remove(member_id).is_some() {
            self.form_if_complete(now);
        }
    }

    /// Removes a member for which the group has no room.
    pub(in crate::coordinator) fn expel(&mut self, now: Instant, member_id: &str) {
        self.remove(member_id, ErrorCode::GroupMaxSizeReached);
        self.form_if_complete(now);
    }

    fn rebalance_timeout(&self) -> Duration {
        self.members.values().map(|member| member.rebalance_timeout).max().unwrap_or_default()
    }

    fn session_timeout(&self) -> Duration {
        self.members.values().map(|member| member.session_timeout).max().unwrap_or_default()
    }

    pub(super) fn begin_joining(&mut self, now: Instant, was_empty: bool) {
        let (limit, wait) = match self.waits {
            RebalanceWaits { initial, .. } if was_empty && initial.is_zero() => {
                (initial, JoinWait::ForMembers)
            }
            RebalanceWaits { initial, full: true } if was_empty => (initial, JoinWait::ForTime),
            RebalanceWaits { initial, full: false } if was_empty => {
                let at_most_until = now + self.rebalance_timeout();
                (initial, JoinWait::Initial { at_most_until, has_new_members: false })
            }
            RebalanceWaits { full: false, .. } => (self.rebalance_timeout(), JoinWait::ForMembers),
            RebalanceWaits { full: true, .. } => {
                let session = self.session_timeout();
                let shorter = session.saturating_sub(SESSION_MARGIN);
                (if shorter.is_zero() { session } else { shorter }, JoinWait::ForTime)
            }
        };
        self.begin(State::Joining { until: now + limit, wait });
        self.sync_by = None;
        for member in self.members.values_mut() {
            if let Some(syncing) = member.syncing.take() {
                let _ = syncing.send(Err(ErrorCode::RebalanceInProgress));
            }
        }
    }

    /// Notes that a member has joined after the first one of a group that was empty: there may be more to come.
    fn note_new_member(&mut self) {
        if let State::Joining { wait: JoinWait::Initial { has_new_members, .. }, .. } = &mut self.state {
            *has_new_members = true;
        }
    }

    /// Handles the end of the time that members have to join. The initial delay of an empty group begins again if members were
    /// new in it, as in Kafka's `tryCompleteInitialRebalanceElseSchedule`: many members that start together join one generation.
    pub(super) fn end_join_phase(&mut self, now: Instant) {
        if let State::Joining { wait: JoinWait::Initial { at_most_until, has_new_members: true }, .. } =
            self.state
            && now < at_most_until
        {
            let until = (now + self.waits.initial).min(at_most_until);
            let wait = JoinWait::Initial { at_most_until, has_new_members: false };
            self.state = State::Joining { until, wait };
        } else {
            self.form(now);
        }
    }

    /// Forms the group when every member has joined. A group without members does not wait.
    pub(super) fn form_if_complete(&mut self, now: Instant) {
        let State::Joining { wait, .. } = self.state else { return };
        let complete =
            self.members.values().all(|member| member.joining.is_some()) && self.pending.is_empty();
        if complete && (wait == JoinWait::ForMembers || self.members.is_empty()) {
            self.form(now);
        }
    }

    /// Forms the group of the members that have joined, and of the static ones that have not: those return under their instance
    /// ids.
    pub(super) fn form(&mut self, now: Instant) {
        let is_gone = |member: &Member| member.joining.is_none() && member.instance_id.is_none();
        let gone: Vec<Arc<str>> =
            self.members.iter().filter(|(_, member)| is_gone(member)).map(|(id, _)| id.clone()).collect();
        for member_id in gone {
            self.remove(&member_id, ErrorCode::UnknownMemberId);
        }
        if !self.elect_leader() && !self.members.is_empty() {
            // The group waits until a static member has joined, or until their sessions are over.
            let until = now + self.rebalance_timeout().max(POSTPONED_MIN);
            self.state = State::Joining { until, wait: JoinWait::ForMembers };
            return;
        }
        self.generation += 1;
        self.stored.is_whole = false;
        if self.members.is_empty() {
            self.begin(State::Empty);
            self.leader = None;
            self.stored.is_stale = true;
            return;
        }
        self.stored.forget_failure();
        self.protocol = self.preferred_protocol();
        self.begin(State::Syncing);
        self.sync_by = Some(now + self.rebalance_timeout());
        self.assignments = None;
        let ids: Vec<Arc<str>> = self.members.keys().cloned().collect();
        for member_id in ids {
            let joined = self.joined(&member_id);
            if let Some(member) = self.members.get_mut(&member_id) {
                member.heard_at = now;
                member.must_sync = true;
                member.is_new = false;
                member.assignment = Bytes::new();
            }
            self.answer_join(&member_id, Ok(joined));
        }
    }

    /// Notes that a member has the place of another one in the stable generation.
    fn note_formed(&mut self, member_id: &str) {
        if let Some(member) = self.members.get_mut(member_id) {
            member.is_new = false;
        }
        self.stored.is_whole = true;
    }

    /// Makes a member that has joined the leader, unless the leader has joined. Returns `false` if no member has.
    fn elect_leader(&mut self) -> bool {
        let joined = self.members.iter().filter(|(_, member)| member.joining.is_some());
        let leader = joined.min_by_key(|(id, member)| (self.leader.as_ref() != Some(*id), member.number));
        let Some(leader) = leader.map(|(id, _)| id.clone()) else { return false };
        self.leader = Some(leader);
        true
    }

    fn preferred_protocol(&self) -> Arc<str> {
        preferred(&self.members).cloned().unwrap_or_default()
    }

    fn joined(&self, member_id: &Arc<str>) -> Joined {
        let leader = self.leader.clone().unwrap_or_default();
        let members = if leader == *member_id {
            let of = |id: &Arc<str>, member: &Member| {
                (id.clone(), member.instance_id.clone(), member.metadata(&self.protocol))
            };
            self.members.iter().map(|(id, member)| of(id, member)).collect()
        } else {
            Vec::new()
        };
        Joined {
            generation: self.generation,
            protocol_type: self.protocol_type.clone(),
            protocol: self.protocol.clone(),
            leader,
            member_id: member_id.clone(),
            members,
            skip_assignment: false,
        }
    }

    /// The answer to an instance that joins under a new id: the generation and its assignment stay.
    ///
    /// A leader must not assign again: the response has the flag for it, or in old versions the leader's old id.
    fn joined_instead(
        &mut self,
        old_id: Option<&str>,
        member_id: &Arc<str>,
        knows_skip_assignment: bool,
    ) -> Joined {
        let old_leader = self.leader.clone().filter(|leader| Some(&**leader) == old_id);
        if old_leader.is_some() {
            self.leader = Some(member_id.clone());
        }
        let joined = self.joined(member_id);
        match old_leader {
            None => joined,
            Some(_) if knows_skip_assignment => Joined { skip_assignment: true, ..joined },
            Some(leader) => Joined { leader, members: Vec::new(), ..joined },
        }
    }

    fn answer_join(&mut self, member_id: &str, answer: JoinAnswer) {
        if let Some(joining) = self.members.get_mut(member_id).and_then(|member| member.joining.take()) {
            let _ = joining.send(answer);
        }
    }
}
