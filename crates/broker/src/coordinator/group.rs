//! A consumer group of the classic protocol: a state machine without clock, lock or socket.
//!
//! ```text
//!   Empty --join--> Joining --all joined, or time over--> Syncing --leader's assignment--> Stable
//!                      ^                                     |                               |
//!                      +------------ join, leave, a session that runs out ------------------+
//! ```

mod join_phase;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ottla_protocol::ErrorCode;
use ottla_protocol::messages::consumer_protocol::ConsumerProtocolSubscription;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::by_name::ByName;
use super::classic_member::Member;
use super::deadlines::Deadline;
use super::group_log::StoredGroup;
use super::small_map::SmallMap;
use super::subscribed::Subscribed;
use crate::memory::Kept;
use crate::state_marks::{Beginnings, Mark};

/// The protocol type of groups whose members say which topics they subscribe to.
pub(crate) const CONSUMER: &str = "consumer";

/// The answer to JoinGroup, sent when the group has formed.
pub(crate) type JoinAnswer = Result<Joined, ErrorCode>;
/// The answer to SyncGroup, sent when the leader has assigned the partitions.
pub(crate) type SyncAnswer = Result<Synced, ErrorCode>;

/// The answer to a join.
#[derive(Clone, Debug)]
pub(crate) struct Joined {
    pub(crate) generation: i32,
    pub(crate) protocol_type: Arc<str>,
    pub(crate) protocol: Arc<str>,
    pub(crate) leader: Arc<str>,
    pub(crate) member_id: Arc<str>,
    /// Id, instance id and subscription of every member: for the leader only.
    pub(crate) members: Vec<(Arc<str>, Option<String>, Bytes)>,
    /// The leader receives the members but must not assign: the generation has its assignment (KIP-814).
    pub(crate) skip_assignment: bool,
}

/// The answer to a sync.
#[derive(Clone, Debug)]
pub(crate) struct Synced {
    pub(crate) protocol_type: Arc<str>,
    pub(crate) protocol: Arc<str>,
    pub(crate) assignment: Bytes,
}

/// A request to join from a member with an id.
#[derive(Debug)]
pub(crate) struct Join {
    pub(crate) member_id: String,
    pub(crate) instance_id: Option<String>,
    pub(crate) client_id: Arc<str>,
    pub(crate) client_host: Arc<str>,
    pub(crate) protocol_type: String,
    /// Name and subscription, in order of preference.
    pub(crate) protocols: Vec<(String, Bytes)>,
    pub(crate) session_timeout: Duration,
    pub(crate) rebalance_timeout: Duration,
    /// The member's version of JoinGroup has `skip_assignment`.
    pub(crate) knows_skip_assignment: bool,
}

/// The state of a group.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum State {
    /// No members.
    Empty,
    /// Members join. Dynamic members that have not joined by this time are removed.
    Joining { until: Instant, wait: JoinWait },
    /// The group waits for the leader's assignment.
    Syncing,
    /// Every member has an assignment.
    Stable,
}

impl State {
    /// Kafka's names, by [`State::index`].
    const NAMES: [&'static str; 4] = ["Empty", "PreparingRebalance", "CompletingRebalance", "Stable"];

    const fn index(self) -> usize {
        match self {
            Self::Empty => 0,
            Self::Joining { .. } => 1,
            Self::Syncing => 2,
            Self::Stable => 3,
        }
    }

    /// Kafka's name for it.
    pub(crate) const fn name(self) -> &'static str {
        Self::NAMES[self.index()]
    }
}

/// The condition under which members that join form a group before the time is over.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum JoinWait {
    /// Every member has joined.
    ForMembers,
    /// None: the group takes the whole time.
    ForTime,
    /// None, as the group was empty. After a time with new members it waits again, up to the rebalance timeout of the first one
    /// (KIP-134).
    Initial { at_most_until: Instant, has_new_members: bool },
}

/// The times that groups wait for members.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RebalanceWaits {
    /// The time that the first members of an empty group wait for others (`group.initial.rebalance.delay.ms`).
    pub(crate) initial: Duration,
    /// A later rebalance takes the session timeout less [`SESSION_MARGIN`], even if every member has joined. New members do not
    /// prolong the first one. librdkafka's mock cluster does both.
    pub(crate) full: bool,
}

/// The time that a full wait leaves to members: their sessions must not run out while they wait.
const SESSION_MARGIN: Duration = Duration::from_secs(1);

/// A group.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) state: State,
    begun: Beginnings<4>,
    pub(crate) generation: i32,
    pub(crate) protocol_type: Arc<str>,
    pub(crate) protocol: Arc<str>,
    pub(super) leader: Option<Arc<str>>,
    /// Boxed: an insertion moves those after it.
    pub(crate) members: SmallMap<Arc<str>, Box<Member>>,
    /// The members with an instance id, by that id.
    instances: SmallMap<Box<str>, Arc<str>>,
    /// The number of members that have joined so far.
    joined: u64,
    /// Ids assigned to members that have not joined with them yet, and their expiry times.
    pending: BTreeMap<String, ExpectedMember>,
    /// Members that have not sent SyncGroup by this time are removed. `None` if all have.
    sync_by: Option<Instant>,
    /// The memory of the assignments.
    pub(super) assignments: Option<Kept>,
    /// The group's record in `__consumer_offsets`.
    pub(super) stored: StoredGroup,
    /// The waits that applied to the last join.
    waits: RebalanceWaits,
    /// The time of the group's next tick in the table of groups.
    pub(super) deadline: Option<Deadline>,
    /// The memory of the group itself.
    _kept: Kept,
}

/// A member that has an id and has not joined with it yet.
#[derive(Debug)]
struct ExpectedMember {
    /// The id expires at this time.
    until: Instant,
    _kept: Kept,
}

impl Group {
    /// A group without members; `kept` is its memory: see [`Group::bytes`].
    pub(crate) fn new(kept: Kept) -> Self {
        Self {
            _kept: kept,
            state: State::Empty,
            begun: Beginnings::default(),
            generation: 0,
            protocol_type: Arc::default(),
            protocol: Arc::default(),
            leader: None,
            members: SmallMap::default(),
            instances: SmallMap::default(),
            joined: 0,
            pending: BTreeMap::new(),
            sync_by: None,
            assignments: None,
            stored: StoredGroup::default(),
            waits: RebalanceWaits::default(),
            deadline: None,
        }
    }

    fn begin(&mut self, state: State) {
        self.begun.note(state.index());
        self.state = state;
    }

    /// Returns `true` if a state of this name, in upper or lower case, has begun since a time. It may be over.
    pub(crate) fn has_been(&self, state: &str, since: Mark) -> bool {
        let index = State::NAMES.iter().position(|name| name.eq_ignore_ascii_case(state));
        index.is_some_and(|index| self.begun.has_begun_since(index, since))
    }

    /// The memory of a group with this name, and of its deadline, in a set whose nodes can be half empty.
    pub(crate) const fn bytes(name: &str) -> usize {
        size_of::<Self>() + ByName::<Self>::ENTRY_BYTES + 2 * size_of::<Deadline>() + 2 * name.len()
    }

    /// The memory of a member that is expected under this id: a map of one entry has a node for eleven.
    pub(crate) const fn expected_bytes(member_id: &str) -> usize {
        11 * size_of::<(String, ExpectedMember)>() + member_id.len()
    }

    /// Assigns an id to a member that must join again with it (KIP-394). `kept` is its memory.
    pub(crate) fn expect(&mut self, now: Instant, member_id: String, session_timeout: Duration, kept: Kept) {
        self.pending.insert(member_id, ExpectedMember { until: now + session_timeout, _kept: kept });
    }

    /// Returns `true` if a member with that id may join.
    pub(crate) fn knows(&self, member_id: &str) -> bool {
        self.members.contains_key(member_id) || self.pending.contains_key(member_id)
    }

    /// The member that has this instance id.
    pub(crate) fn member_of_instance(&self, instance_id: &str) -> Option<Arc<str>> {
        self.instances.get(instance_id).cloned()
    }

    /// Refuses an instance id that no member has, and one that another member has taken over.
    pub(crate) fn check_instance(&self, instance_id: Option<&str>, member_id: &str) -> Result<(), ErrorCode> {
        match instance_id.map(|instance_id| self.instances.get(instance_id)) {
            Some(None) => Err(ErrorCode::UnknownMemberId),
            Some(Some(holder)) if **holder != *member_id => Err(ErrorCode::FencedInstanceId),
            Some(Some(_)) | None => Ok(()),
        }
    }

    /// The topics that members subscribe to, whose offsets are in use. A group that is not of consumers has no topics.
    pub(crate) fn subscribed(&self) -> Result<Subscribed, ErrorCode> {
        if self.members.is_empty() {
            return Ok(Subscribed::To(BTreeSet::new()));
        }
        if &*self.protocol_type != CONSUMER {
            return Err(ErrorCode::NonEmptyGroup);
        }
        let mut topics = BTreeSet::new();
        for member in self.members.values() {
            match ConsumerProtocolSubscription::from_bytes(member.metadata(&self.protocol)) {
                Ok(subscription) => topics.extend(subscription.topics),
                Err(_) => return Ok(Subscribed::Unclear),
            }
        }
        Ok(Subscribed::To(topics))
    }

    /// Returns the error of a member's request under a generation, if there is one.
    pub(crate) fn check(
        &self,
        member_id: &str,
        instance_id: Option<&str>,
        generation: i32,
    ) -> Result<(), ErrorCode> {
        self.check_instance(instance_id, member_id)?;
        if !self.members.contains_key(member_id) {
            return Err(ErrorCode::UnknownMemberId);
        }
        if generation != self.generation {
            return Err(ErrorCode::IllegalGeneration);
        }
        Ok(())
    }

    /// Refuses a protocol type and a protocol that are not the group's, as far as the request and the group have them.
    pub(super) fn check_protocol(
        &self,
        (protocol_type, protocol): (Option<&str>, Option<&str>),
    ) -> Result<(), ErrorCode> {
        let is_other =
            |named: Option<&str>, own: &str| !own.is_empty() && named.is_some_and(|named| named != own);
        if is_other(protocol_type, &self.protocol_type) || is_other(protocol, &self.protocol) {
            return Err(ErrorCode::InconsistentGroupProtocol);
        }
        Ok(())
    }

    /// Handles a member that requests its assignment. The leader's request contains all assignments.
    pub(crate) fn sync(
        &mut self,
        now: Instant,
        member_id: &str,
        (assignments, kept): (Vec<(String, Bytes)>, Kept),
        answer: oneshot::Sender<SyncAnswer>,
    ) {
        match self.state {
            State::Empty => drop(answer.send(Err(ErrorCode::UnknownMemberId))),
            State::Joining { .. } => drop(answer.send(Err(ErrorCode::RebalanceInProgress))),
            State::Stable => {
                self.note_sync(member_id);
                let synced = self.synced(member_id);
                let _ = answer.send(Ok(synced));
            }
            State::Syncing => {
                if let Some(member) = self.members.get_mut(member_id) {
                    member.heard_at = now;
                    member.syncing = Some(answer);
                }
                self.note_sync(member_id);
                if self.leader.as_deref() == Some(member_id) {
                    self.assign(now, assignments, kept);
                }
            }
        }
    }

    /// Notes that a member has sent SyncGroup in this generation.
    fn note_sync(&mut self, member_id: &str) {
        if let Some(member) = self.members.get_mut(member_id) {
            member.must_sync = false;
        }
        if self.sync_by.is_some() && !self.members.values().any(|member| member.must_sync) {
            self.sync_by = None;
        }
    }

    fn assign(&mut self, now: Instant, assignments: Vec<(String, Bytes)>, kept: Kept) {
        self.assignments = Some(kept);
        for (member_id, assignment) in assignments {
            if let Some(member) = self.members.get_mut(&*member_id) {
                // Copied: a slice would keep the leader's whole request in memory.
                member.assignment = Bytes::copy_from_slice(&assignment);
            }
        }
        self.begin(State::Stable);
        (self.stored.is_stale, self.stored.is_whole) = (true, true);
        let ids: Vec<Arc<str>> = self.members.keys().cloned().collect();
        for member_id in ids {
            let synced = self.synced(&member_id);
            if let Some(member) = self.members.get_mut(&member_id)
                && let Some(syncing) = member.syncing.take()
            {
                member.heard_at = now;
                let _ = syncing.send(Ok(synced));
            }
        }
    }

    fn synced(&self, member_id: &str) -> Synced {
        let member = self.members.get(member_id);
        Synced {
            protocol_type: self.protocol_type.clone(),
            protocol: self.protocol.clone(),
            assignment: member.map(|member| member.assignment.clone()).unwrap_or_default(),
        }
    }

    /// Records a heartbeat whose member and generation were checked.
    pub(crate) fn heartbeat(&mut self, now: Instant, member_id: &str) -> Result<(), ErrorCode> {
        self.hear(now, member_id);
        match self.state {
            State::Joining { .. } => Err(ErrorCode::RebalanceInProgress),
            State::Empty => Err(ErrorCode::UnknownMemberId),
            State::Syncing | State::Stable => Ok(()),
        }
    }

    /// Renews the session: every request of a member counts as a heartbeat.
    pub(crate) fn hear(&mut self, now: Instant, member_id: &str) {
        if let Some(member) = self.members.get_mut(member_id) {
            member.heard_at = now;
        }
    }

    /// Begins the sessions of the members that were loaded. If there are more than `members_max`, they join again: those that find no
    /// room then can commit their offsets before, as in Kafka.
    pub(super) fn begin_sessions(&mut self, now: Instant, members_max: usize) {
        for member in self.members.values_mut() {
            member.heard_at = now;
        }
        if self.members.len() > members_max {
            self.rebalance(now);
        }
    }

    /// A member leaves.
    pub(crate) fn leave(&mut self, now: Instant, member_id: &str) -> Result<(), ErrorCode> {
        if self.pending.remove(member_id).is_some() {
            self.form_if_complete(now);
            return Ok(());
        }
        if !self.members.contains_key(member_id) {
            return Err(ErrorCode::UnknownMemberId);
        }
        self.remove(member_id, ErrorCode::UnknownMemberId);
        self.rebalance(now);
        Ok(())
    }

    /// Adds a member after those that have joined before.
    pub(super) fn add(&mut self, member_id: Arc<str>, mut member: Member) {
        member.number = self.joined;
        self.joined += 1;
        if let Some(instance_id) = &member.instance_id {
            self.instances.insert(instance_id.as_str().into(), member_id.clone());
        }
        self.members.insert(member_id, Box::new(member));
    }

    /// Removes a member and answers its pending requests with `code`.
    fn remove(&mut self, member_id: &str, code: ErrorCode) {
        if let Some(member) = self.members.remove(member_id) {
            self.stored.is_whole &= member.is_new;
            if let Some(instance_id) = member.instance_id.as_deref()
                && self.instances.get(instance_id).is_some_and(|holder| **holder == *member_id)
            {
                self.instances.remove(instance_id);
            }
            if let Some(joining) = member.joining {
                let _ = joining.send(Err(code));
            }
            if let Some(syncing) = member.syncing {
                let _ = syncing.send(Err(code));
            }
        }
    }

    /// Asks members that wait for an answer to join again.
    pub(super) fn interrupt(&mut self) {
        for member in self.members.values_mut() {
            if let Some(joining) = member.joining.take() {
                let _ = joining.send(Err(ErrorCode::RebalanceInProgress));
            }
            if let Some(syncing) = member.syncing.take() {
                let _ = syncing.send(Err(ErrorCode::RebalanceInProgress));
            }
        }
    }

    /// Starts a rebalance after a change of the members.
    pub(super) fn rebalance(&mut self, now: Instant) {
        match self.state {
            State::Empty => {}
            State::Joining { .. } => self.form_if_complete(now),
            State::Syncing | State::Stable => {
                self.begin_joining(now, false);
                if self.members.is_empty() {
                    self.form(now);
                }
            }
        }
    }

    /// Handles the deadlines that have passed and returns the next one.
    pub(crate) fn tick(&mut self, now: Instant) -> Option<Instant> {
        self.pending.retain(|_, expected| expected.until > now);
        // A member that waits for a response cannot send heartbeats.
        let silent: Vec<Arc<str>> = self
            .members
            .iter()
            .filter(|(_, member)| member.joining.is_none() && member.syncing.is_none())
            .filter(|(_, member)| member.heard_at + member.session_timeout <= now)
            .map(|(id, _)| id.clone())
            .collect();
        for member_id in &silent {
            tracing::debug!(member_id = &**member_id, "session ran out");
            self.remove(member_id, ErrorCode::UnknownMemberId);
        }
        if !silent.is_empty() {
            self.rebalance(now);
        }
        match self.state {
            State::Joining { until, .. } if until <= now => self.end_join_phase(now),
            State::Joining { .. } => self.form_if_complete(now),
            State::Syncing | State::Stable if self.sync_by.is_some_and(|at| at <= now) => {
                self.expire_syncs(now);
            }
            State::Empty | State::Syncing | State::Stable => {}
        }
        self.next_deadline()
    }

    /// Removes the members that have not sent SyncGroup in time, as Kafka's `expirePendingSync`: their heartbeats would keep
    /// their partitions for ever.
    fn expire_syncs(&mut self, now: Instant) {
        self.sync_by = None;
        let late = self.members.iter().filter(|(_, member)| member.must_sync);
        let late: Vec<Arc<str>> = late.map(|(id, _)| id.clone()).collect();
        for member_id in &late {
            tracing::info!(member_id = &**member_id, "a member is removed: it has sent no SyncGroup");
            self.remove(member_id, ErrorCode::UnknownMemberId);
        }
        if !late.is_empty() {
            self.rebalance(now);
        }
    }

    /// The time at which a session, an expected id or a phase of a rebalance ends.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let sessions = self
            .members
            .values()
            .filter(|member| member.joining.is_none() && member.syncing.is_none())
            .map(|member| member.heard_at + member.session_timeout);
        let state = match self.state {
            State::Joining { until, .. } => Some(until),
            State::Syncing | State::Stable => self.sync_by,
            State::Empty => None,
        };
        sessions.chain(self.pending.values().map(|expected| expected.until)).chain(state).min()
    }

    /// Returns `true` if no member has ever joined, and none is expected.
    pub(super) fn is_unused(&self) -> bool {
        self.is_forgettable() && self.generation == 0
    }

    /// Returns `true` if the group can be removed without losing state.
    pub(crate) fn is_forgettable(&self) -> bool {
        self.members.is_empty() && self.pending.is_empty()
    }
}
