//! The groups of the cluster, and the task that handles their deadlines.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::consumer_offsets::GroupMetadataValue;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::by_name::ByName;
use super::classic_member::Member;
use super::consumer_group::classic::ClassicRequest;
use super::consumer_group::member::Protocols;
use super::deadlines::keep_time;
use super::group::{Group, Join, JoinAnswer, Joined, RebalanceWaits, State, SyncAnswer};
use super::group_table::Table;
use super::offsets::MembersForExpiry;
use super::shared_names::SharedNames;
use super::subscribed::Subscribed;
use crate::cluster::Cluster;
use crate::config::BrokerConfig;
use crate::internal_topics::Written;
use crate::memory::{Kept, KeptMemory, Parts};
use crate::state_marks::Mark;

/// The groups.
#[derive(Debug)]
pub(crate) struct Groups {
    table: Mutex<Table>,
    rng: Mutex<fastrand::Rng>,
    /// Notified when the next deadline may be earlier.
    changed: Notify,
    waits: Mutex<RebalanceWaits>,
    session_timeouts: (Duration, Duration),
    members_max: usize,
    /// The memory of the members' subscriptions and assignments.
    memory: KeptMemory,
    names: SharedNames,
}

/// A group in answers to DescribeGroups.
#[derive(Clone, Debug)]
pub(crate) struct Description {
    pub(crate) state: &'static str,
    pub(crate) protocol_type: String,
    pub(crate) protocol: String,
    pub(crate) members: Vec<MemberDescription>,
}

/// An empty group without a type: one that has offsets and never had members.
impl Default for Description {
    fn default() -> Self {
        Self {
            state: State::Empty.name(),
            protocol_type: String::new(),
            protocol: String::new(),
            members: Vec::new(),
        }
    }
}

/// The bytes of a client's or an instance's name that begin a member's id.
const ID_NAME_BYTES_MAX: usize = 1000;

/// A member in answers to DescribeGroups.
#[derive(Clone, Debug)]
pub(crate) struct MemberDescription {
    pub(crate) id: String,
    pub(crate) instance_id: Option<String>,
    pub(crate) client_id: String,
    pub(crate) client_host: String,
    pub(crate) metadata: bytes::Bytes,
    pub(crate) assignment: bytes::Bytes,
}

/// The immediate result of a JoinGroup request.
pub(crate) enum Joining {
    /// The response follows when the group has formed.
    Wait(oneshot::Receiver<JoinAnswer>),
    /// The member must join again with this id.
    ComeBackAs(String),
    /// The member has joined. The response may be sent when
    /// [`ConsumerGroups::await_stored`](super::consumer_group::registry::ConsumerGroups::await_stored) has returned.
    Joined(Joined),
    /// The request is rejected.
    Refused(ErrorCode),
}

impl Groups {
    pub(crate) fn new(config: &BrokerConfig, rng: fastrand::Rng) -> Self {
        Self {
            table: Mutex::default(),
            rng: Mutex::new(rng),
            changed: Notify::new(),
            waits: Mutex::new(RebalanceWaits { initial: config.group_initial_delay, full: false }),
            session_timeouts: (config.session_timeout_min, config.session_timeout_max),
            members_max: config.group_members_max,
            memory: KeptMemory::new(Parts::of(config.memory_bytes_max).groups),
            names: SharedNames::default(),
        }
    }

    /// The memory of what clients leave at the coordinators.
    pub(crate) fn memory(&self) -> &KeptMemory {
        &self.memory
    }

    /// Changes the times that groups wait for members, as they apply to the next joins.
    pub(crate) fn change_waits(&self, change: impl FnOnce(&mut RebalanceWaits)) {
        change(&mut self.waits.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn waits(&self) -> RebalanceWaits {
        *self.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Handles the deadlines of sessions and rebalances. Runs until the future is dropped.
    pub(crate) async fn keep_time(&self, cluster: &Arc<Cluster>) {
        keep_time(&self.changed, |now| self.tick(cluster, now)).await;
    }

    pub(super) fn tick(&self, cluster: &Arc<Cluster>, now: Instant) -> Option<Instant> {
        self.lock().tick(cluster, now)
    }

    /// Handles JoinGroup. `must_come_back` is `true` for versions 4 and later, which assign an id first.
    pub(crate) fn join(&self, group_id: &str, join: Join, must_come_back: bool) -> Joining {
        if group_id.is_empty() {
            return Joining::Refused(ErrorCode::InvalidGroupId);
        }
        if let Err(code) = self.check_timeout(&join) {
            return Joining::Refused(code);
        }
        let now = Instant::now();
        let mut table = self.lock();
        let member_id = join.member_id.clone();
        let joining = self.join_checked(&mut table, now, (group_id, join), must_come_back);
        let joining = joining.unwrap_or_else(|code| {
            if let Some(group) = table.by_id.get_mut(group_id) {
                group.forget_expected(now, &member_id);
            }
            Joining::Refused(code)
        });
        self.schedule(&mut table, group_id, now);
        joining
    }

    fn join_checked(
        &self,
        table: &mut Table,
        now: Instant,
        (group_id, mut join): (&str, Join),
        must_come_back: bool,
    ) -> Result<Joining, ErrorCode> {
        // A request that is refused creates no group, and a member gets its id when these checks are over.
        if let Some(group) = table.by_id.get_mut(group_id)
            && !group.has_room_for(&join.member_id, self.members_max)
        {
            group.expel(now, &join.member_id);
            return Err(ErrorCode::GroupMaxSizeReached);
        }
        join.check_protocols()?;
        if let Some(group) = table.by_id.get(group_id) {
            group.check_join(&join)?;
        }
        if join.member_id.is_empty() {
            join.member_id = self.new_member_id(&join);
            if must_come_back && join.instance_id.is_none() {
                let kept = self.keep(group_id, &join, Group::expected_bytes(&join.member_id))?;
                let group = self.group(&mut table.by_id, group_id, &join)?;
                group.expect(now, join.member_id.clone(), join.session_timeout, kept);
                return Ok(Joining::ComeBackAs(join.member_id));
            }
        } else {
            let group = table.by_id.get(group_id).ok_or(ErrorCode::UnknownMemberId)?;
            group.check_instance(join.instance_id.as_deref(), &join.member_id)?;
            if !group.knows(&join.member_id) {
                return Err(ErrorCode::UnknownMemberId);
            }
        }
        let kept = self.keep(group_id, &join, join.member_bytes())?;
        let group = self.group(&mut table.by_id, group_id, &join)?;
        let (answer, receiver) = oneshot::channel();
        group.join(now, (join, kept), answer, self.waits(), &self.names);
        Ok(Joining::Wait(receiver))
    }

    /// Refuses a session timeout outside the broker's limits.
    pub(super) fn check_timeout(&self, join: &Join) -> Result<(), ErrorCode> {
        let (min, max) = self.session_timeouts;
        let is_allowed = (min..=max).contains(&join.session_timeout);
        if is_allowed { Ok(()) } else { Err(ErrorCode::InvalidSessionTimeout) }
    }

    /// The number of members that a group may have.
    pub(super) fn members_max(&self) -> usize {
        self.members_max
    }

    /// Counts memory for a member that joins; an error if there is no room.
    fn keep(&self, group_id: &str, join: &Join, bytes: usize) -> Result<Kept, ErrorCode> {
        self.memory.keep(bytes).ok_or_else(|| {
            tracing::warn!(
                group_id,
                client_id = &*join.client_id,
                bytes,
                "a member is refused: memory.max.bytes has no room for its group, its id or its subscription"
            );
            ErrorCode::GroupMaxSizeReached
        })
    }

    /// The group that a member joins. An error if it is new and there is no room for it.
    fn group<'a>(
        &self,
        groups: &'a mut ByName<Group>,
        group_id: &str,
        join: &Join,
    ) -> Result<&'a mut Group, ErrorCode> {
        if !groups.contains(group_id) {
            let kept = self.keep(group_id, join, Group::bytes(group_id))?;
            groups.insert(group_id, Group::new(kept));
        }
        groups.get_mut(group_id).ok_or(ErrorCode::UnknownServerError)
    }

    /// Makes an id. A name that is too long for one gives its beginning: the id must fit the keys of records.
    pub(super) fn new_member_id(&self, join: &Join) -> String {
        let name = join.instance_id.as_deref().unwrap_or(&join.client_id);
        let name = &name[..name.floor_char_boundary(ID_NAME_BYTES_MAX)];
        let random = self.rng.lock().unwrap_or_else(PoisonError::into_inner).u128(..);
        format!("{name}-{random:032x}")
    }

    /// Handles SyncGroup. `protocol` is the protocol type and the protocol that it names. The answer may be sent when
    /// [`Groups::await_stored`] has returned.
    pub(crate) fn sync(
        &self,
        cluster: &Arc<Cluster>,
        group_id: &str,
        ClassicRequest { member_id, instance_id, generation }: ClassicRequest<'_>,
        protocol: (Option<&str>, Option<&str>),
        assignments: Vec<(String, bytes::Bytes)>,
    ) -> Result<oneshot::Receiver<SyncAnswer>, ErrorCode> {
        let bytes = assignments.iter().map(|(_, assignment)| assignment.len()).sum();
        let receiver = self.with(group_id, |group| {
            group.check(member_id, instance_id, generation)?;
            group.check_protocol(protocol)?;
            let Some(kept) = self.memory.keep(bytes) else {
                tracing::warn!(
                    group_id,
                    member_id,
                    bytes,
                    "assignments are refused: memory.max.bytes has no room for them"
                );
                return Err(ErrorCode::UnknownServerError);
            };
            let (answer, receiver) = oneshot::channel();
            group.sync(Instant::now(), member_id, (assignments, kept), answer);
            group.save(cluster, group_id);
            Ok(receiver)
        })?;
        self.schedule(&mut self.lock(), group_id, Instant::now());
        Ok(receiver)
    }

    /// Writes the group's record if it has changed.
    pub(crate) fn store(&self, cluster: &Arc<Cluster>, group_id: &str) {
        if let Some(group) = self.lock().by_id.get_mut(group_id) {
            group.save(cluster, group_id);
        }
    }

    /// Waits until the group's record is durable: a member that has its assignment must be a member after a crash, too.
    pub(crate) async fn await_stored(&self, cluster: &Arc<Cluster>, group_id: &str) -> Result<(), ErrorCode> {
        let written = self.lock().by_id.get(group_id).and_then(|group| group.stored.written.clone());
        match written {
            None => Ok(()),
            Some(written) => cluster.await_written(&written?).await,
        }
    }

    /// Handles Heartbeat.
    pub(crate) fn heartbeat(
        &self,
        group_id: &str,
        member_id: &str,
        instance_id: Option<&str>,
        generation: i32,
    ) -> Result<(), ErrorCode> {
        self.with(group_id, |group| {
            group.check(member_id, instance_id, generation)?;
            group.heartbeat(Instant::now(), member_id)
        })
    }

    /// Handles a member that leaves, by id or by instance id.
    pub(crate) fn leave(
        &self,
        cluster: &Arc<Cluster>,
        group_id: &str,
        member_id: &str,
        instance_id: Option<&str>,
    ) -> Result<(), ErrorCode> {
        let result = self.with(group_id, |group| {
            let member_id = match instance_id {
                Some(instance_id) => {
                    let current = group.member_of_instance(instance_id).ok_or(ErrorCode::UnknownMemberId)?;
                    if !member_id.is_empty() && member_id != &*current {
                        return Err(ErrorCode::FencedInstanceId);
                    }
                    current
                }
                None => Arc::from(member_id),
            };
            let left = group.leave(Instant::now(), &member_id);
            group.save(cluster, group_id);
            left
        });
        if result.is_ok() {
            self.schedule(&mut self.lock(), group_id, Instant::now());
        }
        result
    }

    /// Returns whether offsets may be committed by this member under this generation; below 0, by any client while the
    /// group is empty. `absent` is the answer if there is no such group.
    pub(crate) fn check_commit(
        &self,
        group_id: &str,
        member_id: &str,
        instance_id: Option<&str>,
        generation: i32,
        absent: ErrorCode,
    ) -> Result<(), ErrorCode> {
        let mut table = self.lock();
        let Some(group) = table.by_id.get_mut(group_id) else {
            return if generation < 0 { Ok(()) } else { Err(absent) };
        };
        if group.members.is_empty() && generation < 0 {
            return Ok(());
        }
        if generation < 0 && member_id.is_empty() && instance_id.is_none() {
            return Err(ErrorCode::UnknownMemberId);
        }
        group.check(member_id, instance_id, generation)?;
        group.hear(Instant::now(), member_id);
        match group.state {
            State::Syncing => Err(ErrorCode::RebalanceInProgress),
            State::Empty | State::Joining { .. } | State::Stable => Ok(()),
        }
    }

    /// [`Groups::check_commit`] for an offset of a transaction: a producer need not name a member (before KIP-447), and may
    /// commit during a rebalance.
    pub(crate) fn check_commit_in_transaction(
        &self,
        group_id: &str,
        member_id: &str,
        instance_id: Option<&str>,
        generation: i32,
        absent: ErrorCode,
    ) -> Result<(), ErrorCode> {
        if generation < 0 && member_id.is_empty() && instance_id.is_none() {
            return Ok(());
        }
        let mut table = self.lock();
        let Some(group) = table.by_id.get_mut(group_id) else {
            return if generation < 0 { Ok(()) } else { Err(absent) };
        };
        if group.members.is_empty() && generation < 0 {
            return Ok(());
        }
        group.check(member_id, instance_id, generation)?;
        group.hear(Instant::now(), member_id);
        Ok(())
    }

    /// Returns the topics that its members subscribe to, if the group has, or had, members.
    pub(crate) fn subscribed(&self, group_id: &str) -> Option<Result<Subscribed, ErrorCode>> {
        self.lock().by_id.get(group_id).map(Group::subscribed)
    }

    /// Returns `true` if a group has begun a state of this name since a time.
    pub(crate) fn has_been(&self, group_id: &str, state: &str, since: Mark) -> bool {
        self.lock().by_id.get(group_id).is_some_and(|group| group.has_been(state, since))
    }

    /// Describes a group that has, or had, members.
    pub(crate) fn describe(&self, group_id: &str) -> Option<Description> {
        self.lock().by_id.get(group_id).map(describe)
    }

    /// The state and the protocol type of a group that has, or had, members.
    pub(crate) fn state_and_type(&self, group_id: &str) -> Option<(&'static str, String)> {
        self.lock().by_id.get(group_id).map(|group| (group.state.name(), group.protocol_type.to_string()))
    }

    /// The names of the groups that have, or had, members.
    pub(crate) fn names(&self) -> Vec<String> {
        self.lock().by_id.iter().map(|(id, _)| id.to_string()).collect()
    }

    /// Calls `look` with the state and the number of members of up to `max` groups, by name from the one after `after` on.
    /// Returns the last name; `None` without a group.
    pub(crate) fn look_at_page(
        &self,
        after: Option<&str>,
        max: usize,
        mut look: impl FnMut(&'static str, usize),
    ) -> Option<String> {
        let table = self.lock();
        let page = table.by_id.after(after).take(max);
        page.inspect(|(_, group)| look(group.state.name(), group.members.len()))
            .last()
            .map(|(id, _)| id.to_string())
    }

    /// Returns `true` if a group has, or had, members.
    pub(crate) fn is_known(&self, group_id: &str) -> bool {
        self.lock().by_id.contains(group_id)
    }

    /// Removes a group without members, and its record. Returns what must be durable; `None` if there is no such group.
    pub(crate) fn delete(
        &self,
        cluster: &Arc<Cluster>,
        group_id: &str,
    ) -> Result<Option<Written>, ErrorCode> {
        let mut table = self.lock();
        match table.by_id.get(group_id) {
            Some(group) if !group.members.is_empty() => Err(ErrorCode::NonEmptyGroup),
            Some(_) => {
                let written = cluster.remove_group_record(group_id)?;
                table.remove(group_id);
                Ok(Some(written))
            }
            None => Ok(None),
        }
    }

    /// The number of members of a group that has, or had, members.
    pub(super) fn member_count(&self, group_id: &str) -> Option<usize> {
        self.lock().by_id.get(group_id).map(|group| group.members.len())
    }

    /// Forgets a group without members: a group of the new protocol replaces it, and removes its record.
    pub(super) fn forget_empty(&self, group_id: &str) {
        let mut table = self.lock();
        if table.by_id.get(group_id).is_some_and(|group| group.members.is_empty()) {
            table.remove(group_id);
        }
    }

    /// Converts a group with members to the new protocol, and asks waiting members to join again. `None` if there is no such
    /// group.
    pub(super) fn upgrade<T, E>(
        &self,
        group_id: &str,
        convert: impl FnOnce(&Group) -> Result<T, E>,
    ) -> Option<Result<T, E>> {
        let mut table = self.lock();
        let converted = convert(table.by_id.get(group_id)?);
        if converted.is_ok()
            && let Some(mut group) = table.remove(group_id)
        {
            group.interrupt();
        }
        Some(converted)
    }

    /// Takes a group that had the new protocol, whose record was written. `protocols` are those of its members.
    pub(super) fn adopt(
        &self,
        group_id: &str,
        value: GroupMetadataValue,
        protocols: Vec<(String, Protocols)>,
        written: Written,
        rebalances: bool,
    ) {
        let now = Instant::now();
        let mut group = Group::from_record(group_id, value, now, &self.memory, &self.names);
        for (id, protocols) in protocols {
            group.put_protocols(&id, protocols, &self.memory, &self.names);
        }
        group.stored.written = Some(Ok(written));
        if rebalances {
            group.rebalance(now);
        }
        self.lock().insert(group_id, group, now);
        self.changed.notify_one();
    }

    /// Takes a group from its record at the start. Sessions of its members begin again with the first tick.
    pub(crate) fn load(&self, group_id: String, value: GroupMetadataValue) {
        let now = Instant::now();
        let group = Group::from_record(&group_id, value, now, &self.memory, &self.names);
        self.lock().insert(&group_id, group, now);
        self.changed.notify_one();
    }

    /// The members of a group, as far as they matter for the expiry of its offsets.
    pub(crate) fn members_for_expiry(&self, group_id: &str) -> MembersForExpiry {
        let table = self.lock();
        let Some(group) = table.by_id.get(group_id) else { return MembersForExpiry::Never };
        match (group.subscribed(), group.state) {
            (_, State::Empty) => MembersForExpiry::LeftAt(group.stored.state_since_ms),
            (Ok(subscribed), State::Stable) => MembersForExpiry::SubscribedTo(subscribed),
            _ => MembersForExpiry::Unknown,
        }
    }

    /// Returns whether a group has neither members nor any that are about to join.
    pub(crate) fn is_idle(&self, group_id: &str) -> bool {
        self.lock().by_id.get(group_id).is_some_and(Group::is_forgettable)
    }

    /// The groups without members, by name.
    pub(crate) fn empty(&self) -> Vec<String> {
        let table = self.lock();
        let empty =
            table.by_id.iter().filter(|(_, group)| group.state == State::Empty && group.is_forgettable());
        empty.map(|(id, _)| id.to_string()).collect()
    }

    /// Removes a group's members, as after a move of its coordinator. The members find the new one and join again.
    pub(crate) fn unload(&self, group_id: &str) {
        self.lock().remove(group_id);
    }

    fn with<T>(
        &self,
        group_id: &str,
        act: impl FnOnce(&mut Group) -> Result<T, ErrorCode>,
    ) -> Result<T, ErrorCode> {
        act(self.lock().by_id.get_mut(group_id).ok_or(ErrorCode::UnknownMemberId)?)
    }

    /// Sees to the next tick of a group that a request may have changed.
    fn schedule(&self, table: &mut Table, group_id: &str, now: Instant) {
        if table.schedule(group_id, now) {
            self.changed.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn describe(group: &Group) -> Description {
    let stable = group.state == State::Stable;
    let describe = |id: &Arc<str>, member: &Member| MemberDescription {
        id: id.to_string(),
        instance_id: member.instance_id.clone(),
        client_id: member.client_id.to_string(),
        client_host: member.client_host.to_string(),
        metadata: if stable { member.metadata(&group.protocol) } else { bytes::Bytes::new() },
        assignment: if stable { member.assignment.clone() } else { bytes::Bytes::new() },
    };
    Description {
        state: group.state.name(),
        protocol_type: group.protocol_type.to_string(),
        protocol: if stable { group.protocol.to_string() } else { String::new() },
        members: group.members.iter().map(|(id, member)| describe(id, member)).collect(),
    }
}
