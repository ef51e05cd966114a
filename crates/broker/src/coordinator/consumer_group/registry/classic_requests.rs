//! Requests of the classic protocol: for the group of the new protocol that a member belongs to, or for the classic group.

use std::sync::Arc;

use ottla_protocol::ErrorCode;
use tokio::time::Instant;

use super::{ConsumerGroups, State};
use crate::cluster::Cluster;
use crate::coordinator::consumer_group::classic::{ClassicJoined, ClassicRequest};
use crate::coordinator::consumer_group::group::{ConsumerGroup, GroupSettings};
use crate::coordinator::group::{Join, Synced};
use crate::coordinator::groups::Joining;

impl ConsumerGroups {
    /// Handles JoinGroup for a group of either protocol. An empty group of the new protocol becomes a classic one.
    pub(crate) fn join(
        &self,
        cluster: &Arc<Cluster>,
        group_id: &str,
        mut join: Join,
        must_come_back: bool,
    ) -> Joining {
        let mut state = self.lock(group_id);
        let Some(entry) = state.by_id.get(group_id) else {
            return cluster.groups.join(group_id, join, must_come_back);
        };
        if let Err(code) = cluster.groups.check_timeout(&join).and_then(|()| join.check_protocols()) {
            return Joining::Refused(code);
        }
        if entry.group.members.is_empty() {
            // A request that is refused leaves the group as it is.
            if let Err(code) = entry.group.check_protocols(&join) {
                return Joining::Refused(code);
            }
            if !join.member_id.is_empty() {
                return Joining::Refused(ErrorCode::UnknownMemberId);
            }
            return match super::delete(&mut state, cluster, group_id) {
                Ok(_) => cluster.groups.join(group_id, join, must_come_back),
                Err(code) => Joining::Refused(code),
            };
        }
        if !cluster.live.broker().consumer_groups.migration_policy.permits_classic_members() {
            return Joining::Refused(ErrorCode::InconsistentGroupProtocol);
        }
        let is_new = join.member_id.is_empty();
        if is_new {
            join.member_id = cluster.groups.new_member_id(&join);
            if must_come_back && join.instance_id.is_none() {
                let members_max = cluster.live.broker().consumer_groups.members_max;
                let has_room = entry.group.check_size(&join.member_id, members_max);
                let has_room = has_room.map_err(|refusal| refusal.code);
                return match has_room.and_then(|()| entry.group.check_protocols(&join)) {
                    // The member is not kept: it joins as a new one.
                    Ok(_) => Joining::ComeBackAs(join.member_id),
                    Err(code) => Joining::Refused(code),
                };
            }
        }
        match self.join_members(&mut state, cluster, group_id, (join, is_new)) {
            Ok(answer) => Joining::Joined(answer.joined),
            Err(code) => Joining::Refused(code),
        }
    }

    fn join_members(
        &self,
        state: &mut State,
        cluster: &Arc<Cluster>,
        group_id: &str,
        (join, is_new): (Join, bool),
    ) -> Result<ClassicJoined, ErrorCode> {
        let (now, now_ms) = (Instant::now(), cluster.clock.now_ms());
        let State { by_id, deadlines, .. } = &mut *state;
        let entry = by_id.get_mut(group_id).ok_or(ErrorCode::UnknownMemberId)?;
        let settings = entry.settings(cluster, group_id);
        let is_static = join.instance_id.is_some();
        let answer = entry.group.join_classic(now, now_ms, (join, is_new), &settings, &**cluster);
        entry.save(cluster, group_id);
        let answer = answer?;
        self.watch(entry, deadlines, group_id, &answer.joined.member_id, &settings);
        if is_static {
            // It may have replaced the last member of the new protocol. The members of the classic group have what they own: one
            // that still waits for a partition joins again for it.
            let rebalances = answer.has_new_subscription || !entry.group.is_settled();
            Self::downgrade(state, cluster, group_id, rebalances);
        }
        Ok(answer)
    }

    /// Handles SyncGroup. `None` if the group has no members of the new protocol's coordinator.
    pub(crate) fn sync(
        &self,
        cluster: &Arc<Cluster>,
        group_id: &str,
        request: ClassicRequest<'_>,
        protocol: (Option<&str>, Option<&str>),
    ) -> Option<Result<Synced, ErrorCode>> {
        self.with_members(cluster, group_id, request.member_id, |group, settings| {
            let (now, now_ms) = (Instant::now(), cluster.clock.now_ms());
            group.sync_classic(now, now_ms, request, protocol, settings, &**cluster)
        })
    }

    /// Handles Heartbeat. `None` if the group has no members of the new protocol's coordinator.
    pub(crate) fn heartbeat_classic(
        &self,
        cluster: &Arc<Cluster>,
        group_id: &str,
        request: ClassicRequest<'_>,
    ) -> Option<Result<(), ErrorCode>> {
        self.with_members(cluster, group_id, request.member_id, |group, settings| {
            group.heartbeat_classic(Instant::now(), cluster.clock.now_ms(), request, settings)
        })
    }

    /// Handles LeaveGroup for one member. `None` if the group has no members of the new protocol's coordinator.
    pub(crate) fn leave_classic(
        &self,
        cluster: &Arc<Cluster>,
        group_id: &str,
        member_id: &str,
        instance_id: Option<&str>,
    ) -> Option<Result<(), ErrorCode>> {
        let mut state = self.lock(group_id);
        let entry = state.by_id.get_mut(group_id).filter(|entry| !entry.group.members.is_empty())?;
        let left = entry.group.leave_classic(member_id, instance_id);
        entry.save(cluster, group_id);
        Self::downgrade(&mut state, cluster, group_id, true);
        Some(left)
    }

    /// Runs `act` on a group with members, and wakes it up at the deadline of one of them.
    fn with_members<T>(
        &self,
        cluster: &Arc<Cluster>,
        group_id: &str,
        member_id: &str,
        act: impl FnOnce(&mut ConsumerGroup, &GroupSettings) -> T,
    ) -> Option<T> {
        let mut state = self.lock(group_id);
        let State { by_id, deadlines, .. } = &mut *state;
        let entry = by_id.get_mut(group_id).filter(|entry| !entry.group.members.is_empty())?;
        let settings = entry.settings(cluster, group_id);
        let result = act(&mut entry.group, &settings);
        self.watch(entry, deadlines, group_id, member_id, &settings);
        Some(result)
    }
}
