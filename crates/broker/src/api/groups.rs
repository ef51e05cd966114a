//! JoinGroup, SyncGroup, Heartbeat, LeaveGroup; DescribeGroups, DeleteGroups.

use std::sync::Arc;
use std::time::Duration;

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::delete_groups::{
    DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse,
};
use ottla_protocol::messages::describe_groups::{
    DescribeGroupsRequest, DescribeGroupsResponse, DescribedGroup, DescribedGroupMember,
};
use ottla_protocol::messages::heartbeat::{HeartbeatRequest, HeartbeatResponse};
use ottla_protocol::messages::join_group::{JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember};
use ottla_protocol::messages::leave_group::{
    LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse,
};
use ottla_protocol::messages::sync_group::{SyncGroupRequest, SyncGroupResponse};

use super::authorized_operations::{OF_GROUP, if_requested};
use super::pace::Pace;
use super::repeats::without_repeats;
use super::{Api, RequestContext};
use crate::cluster::Cluster;
use crate::coordinator::consumer_group::classic::ClassicRequest;
use crate::coordinator::group::{Join, Joined, Synced};
use crate::coordinator::groups::{Description, Joining};
use crate::coordinator::offsets::is_group_name;
use crate::internal_topics::InternalTopic;
use crate::partition::Partition;
use crate::security::acl::ResourceType;

/// Kafka's text for a group that the client may describe, and whose assigned topics it may not.
pub(super) const HAS_HIDDEN_TOPICS: &str =
    "The group has described topic(s) that the client is not authorized to describe.";

const DEAD: &str = "Dead";
/// From this version on, a group that does not exist is an error of DescribeGroups.
const MISSING_IS_ERROR_FROM: i16 = 6;
/// From this version on, SyncGroup has a protocol type and a protocol, which must not be null (KIP-559).
const PROTOCOL_FROM: i16 = 5;

/// Refuses a request for a group that another node coordinates.
pub(super) fn check_coordinator(context: &RequestContext, group: &str) -> Result<(), ErrorCode> {
    if !is_group_name(group) {
        return Err(ErrorCode::InvalidGroupId);
    }
    if context.cluster().coordinator(group) == context.node() {
        Ok(())
    } else {
        Err(ErrorCode::NotCoordinator)
    }
}

/// [`check_coordinator`] for requests that Kafka refuses for the group without a name: it can have offsets, and no members.
pub(super) fn check_coordinator_of_named(context: &RequestContext, group: &str) -> Result<(), ErrorCode> {
    if group.is_empty() {
        return Err(ErrorCode::InvalidGroupId);
    }
    check_coordinator(context, group)
}

/// [`check_coordinator`] for requests that write: returns the partition of `__consumer_offsets` that has the group's
/// records. It is created if it does not exist.
pub(super) async fn coordinate(context: &RequestContext, group: &str) -> Result<Arc<Partition>, ErrorCode> {
    check_coordinator(context, group)?;
    context.cluster().coordinator_partition(InternalTopic::ConsumerOffsets, group).await
}

impl Api for JoinGroupRequest {
    async fn handle(self, context: RequestContext) -> JoinGroupResponse {
        if let Err(code) = coordinate(&context, &self.group_id).await {
            return self.refuse(&context, code);
        }
        let Self { group_id, session_timeout_ms, rebalance_timeout_ms, member_id, group_instance_id, .. } =
            self;
        let ms = |ms: i32| Duration::from_millis(ms.max(0) as u64);
        let session_timeout = ms(session_timeout_ms);
        let join = Join {
            member_id: member_id.clone(),
            instance_id: group_instance_id,
            client_id: context.client_id.clone(),
            client_host: context.connection.peer.host().clone(),
            protocol_type: self.protocol_type,
            // Copied: slices would keep the request's frame in memory as long as the member lives.
            protocols: self
                .protocols
                .into_iter()
                .map(|protocol| (protocol.name, bytes::Bytes::copy_from_slice(&protocol.metadata)))
                .collect(),
            session_timeout,
            // Version 0 has none: the session timeout replaces it.
            rebalance_timeout: if rebalance_timeout_ms < 0 {
                session_timeout
            } else {
                ms(rebalance_timeout_ms)
            },
            knows_skip_assignment: context.version >= 9,
        };
        let (cluster, is_static) = (context.cluster(), join.instance_id.is_some());
        let join = || cluster.consumer_groups.join(cluster, &group_id, join, context.version >= 4);
        let Some(joining) = cluster.share_groups.unless_share_group(cluster, &group_id, join) else {
            return refused_join(member_id, ErrorCode::InconsistentGroupProtocol, context.version);
        };
        match joining {
            Joining::Joined(joined) => match cluster.consumer_groups.await_stored(cluster, &group_id).await {
                Ok(()) => joined_response(joined, context.version),
                Err(code) => refused_join(member_id, code, context.version),
            },
            Joining::ComeBackAs(member_id) => {
                refused_join(member_id, ErrorCode::MemberIdRequired, context.version)
            }
            Joining::Refused(code) => refused_join(member_id, code, context.version),
            Joining::Wait(answer) => match answer.await {
                // It may have taken the place of its instance in a stable group. After a crash it must still be the member.
                Ok(Ok(joined)) if is_static => {
                    cluster.groups.store(cluster, &group_id);
                    match cluster.groups.await_stored(cluster, &group_id).await {
                        Ok(()) => joined_response(joined, context.version),
                        Err(code) => refused_join(member_id, code, context.version),
                    }
                }
                Ok(Ok(joined)) => joined_response(joined, context.version),
                Ok(Err(code)) => refused_join(member_id, code, context.version),
                // The group was unloaded: its coordinator is another node now.
                Err(_) => refused_join(member_id, ErrorCode::NotCoordinator, context.version),
            },
        }
    }

    fn refuse(self, context: &RequestContext, code: ErrorCode) -> JoinGroupResponse {
        refused_join(self.member_id, code, context.version)
    }
}

fn joined_response(joined: Joined, version: i16) -> JoinGroupResponse {
    let Joined { generation, protocol_type, protocol, leader, member_id, members, skip_assignment } = joined;
    let members =
        members.into_iter().map(|(member_id, group_instance_id, metadata)| JoinGroupResponseMember {
            member_id: member_id.to_string(),
            group_instance_id: group_instance_id.filter(|_| version >= 5),
            metadata,
        });
    JoinGroupResponse {
        generation_id: generation,
        protocol_type: (version >= 7).then(|| protocol_type.to_string()),
        protocol_name: Some(protocol.to_string()),
        leader: leader.to_string(),
        member_id: member_id.to_string(),
        members: members.collect(),
        skip_assignment,
        ..Default::default()
    }
}

fn refused_join(member_id: String, error_code: ErrorCode, version: i16) -> JoinGroupResponse {
    JoinGroupResponse {
        error_code,
        generation_id: -1,
        protocol_name: (version < 7).then(String::new),
        member_id,
        ..Default::default()
    }
}

impl Api for SyncGroupRequest {
    async fn handle(self, context: RequestContext) -> SyncGroupResponse {
        let has_protocol = self.protocol_type.is_some() && self.protocol_name.is_some();
        if context.version >= PROTOCOL_FROM && !has_protocol {
            return self.refuse(&context, ErrorCode::InconsistentGroupProtocol);
        }
        if let Err(code) = check_coordinator_of_named(&context, &self.group_id) {
            return self.refuse(&context, code);
        }
        match sync(self, &context).await {
            Ok(synced) => SyncGroupResponse {
                protocol_type: (context.version >= PROTOCOL_FROM).then(|| synced.protocol_type.to_string()),
                protocol_name: (context.version >= PROTOCOL_FROM).then(|| synced.protocol.to_string()),
                assignment: synced.assignment,
                ..Default::default()
            },
            Err(error_code) => SyncGroupResponse { error_code, ..Default::default() },
        }
    }

    fn refuse(self, _context: &RequestContext, code: ErrorCode) -> SyncGroupResponse {
        SyncGroupResponse { error_code: code, ..Default::default() }
    }
}

async fn sync(request: SyncGroupRequest, context: &RequestContext) -> Result<Synced, ErrorCode> {
    let SyncGroupRequest { group_id, generation_id, member_id, group_instance_id, .. } = request;
    let cluster = context.cluster();
    let (groups, instance_id) = (&cluster.groups, group_instance_id.as_deref());
    let classic = ClassicRequest { member_id: &member_id, instance_id, generation: generation_id };
    let protocol = (request.protocol_type.as_deref(), request.protocol_name.as_deref());
    if let Some(synced) = cluster.consumer_groups.sync(cluster, &group_id, classic, protocol) {
        let synced = synced?;
        cluster.consumer_groups.await_stored(cluster, &group_id).await?;
        return Ok(synced);
    }
    let assignments = request.assignments.into_iter().map(|entry| (entry.member_id, entry.assignment));
    let assignments = assignments.collect();
    let waiting = groups.sync(cluster, &group_id, classic, protocol, assignments)?;
    let synced = waiting.await.unwrap_or(Err(ErrorCode::NotCoordinator))?;
    groups.await_stored(cluster, &group_id).await?;
    Ok(synced)
}

impl Api for HeartbeatRequest {
    async fn handle(self, context: RequestContext) -> HeartbeatResponse {
        let Self { group_id, generation_id, member_id, group_instance_id } = self;
        let result = check_coordinator_of_named(&context, &group_id).and_then(|()| {
            let cluster = context.cluster();
            let instance_id = group_instance_id.as_deref();
            let classic = ClassicRequest { member_id: &member_id, instance_id, generation: generation_id };
            let answer = cluster.consumer_groups.heartbeat_classic(cluster, &group_id, classic);
            answer.unwrap_or_else(|| {
                cluster.groups.heartbeat(&group_id, &member_id, instance_id, generation_id)
            })
        });
        HeartbeatResponse { error_code: result.err().unwrap_or(ErrorCode::None), ..Default::default() }
    }

    fn refuse(self, _context: &RequestContext, code: ErrorCode) -> HeartbeatResponse {
        HeartbeatResponse { error_code: code, ..Default::default() }
    }
}

impl Api for LeaveGroupRequest {
    async fn handle(self, context: RequestContext) -> LeaveGroupResponse {
        if let Err(code) = check_coordinator_of_named(&context, &self.group_id) {
            return self.refuse(&context, code);
        }
        let cluster = context.cluster();
        let leave = |member_id: &str, instance_id: Option<&str>| {
            let left = cluster.consumer_groups.leave_classic(cluster, &self.group_id, member_id, instance_id);
            left.unwrap_or_else(|| cluster.groups.leave(cluster, &self.group_id, member_id, instance_id))
        };
        if context.version < 3 {
            let left = leave(&self.member_id, None);
            return LeaveGroupResponse {
                error_code: left.err().unwrap_or(ErrorCode::None),
                ..Default::default()
            };
        }
        let (mut members, mut pace) = (Vec::with_capacity(self.members.len()), Pace::default());
        for MemberIdentity { member_id, group_instance_id, .. } in self.members {
            let left = leave(&member_id, group_instance_id.as_deref());
            if left.is_ok() {
                // The others of the group were looked at.
                tokio::task::yield_now().await;
            }
            let error_code = left.err().unwrap_or(ErrorCode::None);
            members.push(MemberResponse { member_id, group_instance_id, error_code });
            pace.step().await;
        }
        LeaveGroupResponse { members, ..Default::default() }
    }

    fn refuse(self, _context: &RequestContext, code: ErrorCode) -> LeaveGroupResponse {
        LeaveGroupResponse { error_code: code, ..Default::default() }
    }
}

/// A classic group, or one of which only offsets are left. Groups of newer protocols are described by requests of their own.
fn describe(cluster: &Cluster, group: &str) -> Option<Description> {
    if cluster.share_groups.contains(group) || cluster.consumer_groups.contains(group) {
        return None;
    }
    let of_offsets = || cluster.offsets.has_offsets(group).then(Description::default);
    cluster.groups.describe(group).or_else(of_offsets)
}

/// Says why a group is not described as one of a type. The text about a missing group is Kafka's.
pub(super) fn why_not_described(cluster: &Cluster, group: &str, of_type: &str) -> String {
    let is_newer = cluster.share_groups.contains(group) || cluster.consumer_groups.contains(group);
    if is_newer || cluster.groups.is_known(group) || cluster.offsets.has_offsets(group) {
        format!("group `{group}` is not a {of_type} group")
    } else {
        format!("Group {group} not found.")
    }
}

impl Api for DescribeGroupsRequest {
    async fn handle(self, context: RequestContext) -> DescribeGroupsResponse {
        let groups = without_repeats(self.groups, String::clone).into_iter().map(|group_id| {
            if let Err(error_code) = check_coordinator(&context, &group_id) {
                return DescribedGroup { error_code, group_id, ..Default::default() };
            }
            let found = describe(context.cluster(), &group_id);
            // KIP-1043. Before, it was a dead group.
            if found.is_none() && context.version >= MISSING_IS_ERROR_FROM {
                return DescribedGroup {
                    error_code: ErrorCode::GroupIdNotFound,
                    error_message: Some(why_not_described(context.cluster(), &group_id, "classic")),
                    group_id,
                    group_state: DEAD.into(),
                    ..Default::default()
                };
            }
            let authorized_operations = if_requested(
                self.include_authorized_operations,
                &context,
                (ResourceType::Group, &group_id),
                OF_GROUP,
            );
            let group = match found {
                Some(description) => described(group_id, description, context.version),
                None => DescribedGroup { group_id, group_state: DEAD.into(), ..Default::default() },
            };
            DescribedGroup { authorized_operations, ..group }
        });
        DescribeGroupsResponse { groups: groups.collect(), ..Default::default() }
    }

    fn refuse(self, _context: &RequestContext, code: ErrorCode) -> DescribeGroupsResponse {
        let groups = self.groups.into_iter();
        let groups =
            groups.map(|group_id| DescribedGroup { error_code: code, group_id, ..Default::default() });
        DescribeGroupsResponse { groups: groups.collect(), ..Default::default() }
    }
}

fn described(group_id: String, description: Description, version: i16) -> DescribedGroup {
    let members = description.members.into_iter().map(|member| DescribedGroupMember {
        member_id: member.id,
        group_instance_id: member.instance_id.filter(|_| version >= 4),
        client_id: member.client_id,
        client_host: member.client_host,
        member_metadata: member.metadata,
        member_assignment: member.assignment,
    });
    DescribedGroup {
        group_id,
        group_state: description.state.into(),
        protocol_type: description.protocol_type,
        protocol_data: description.protocol,
        members: members.collect(),
        ..Default::default()
    }
}

impl Api for DeleteGroupsRequest {
    async fn handle(self, context: RequestContext) -> DeleteGroupsResponse {
        let names = without_repeats(self.groups_names, String::clone);
        let mut results = Vec::with_capacity(names.len());
        for group_id in names {
            let error_code = delete(&context, &group_id).await.err().unwrap_or(ErrorCode::None);
            results.push(DeletableGroupResult { group_id, error_code });
        }
        DeleteGroupsResponse { results, ..Default::default() }
    }

    fn refuse(self, _context: &RequestContext, code: ErrorCode) -> DeleteGroupsResponse {
        let results = self.groups_names.into_iter();
        let results = results.map(|group_id| DeletableGroupResult { group_id, error_code: code });
        DeleteGroupsResponse { results: results.collect(), ..Default::default() }
    }
}

async fn delete(context: &RequestContext, group: &str) -> Result<(), ErrorCode> {
    check_coordinator(context, group)?;
    let cluster = context.cluster();
    if cluster.share_groups.delete(cluster, group).await? {
        cluster.share_leader.forget_group(cluster, group);
        return Ok(());
    }
    let offsets = cluster.offsets.keys_of_group(group);
    let removed = match cluster.consumer_groups.delete(cluster, group)? {
        Some(removed) => Some(removed),
        None => cluster.groups.delete(cluster, group)?,
    };
    let Some(removed) = removed else {
        if offsets.is_empty() {
            return Err(ErrorCode::GroupIdNotFound);
        }
        return cluster.remove_offsets(group, &offsets).await;
    };
    cluster.remove_offsets(group, &offsets).await?;
    cluster.await_written(&removed).await
}
