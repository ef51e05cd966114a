//! Requests of groups and their offsets.

use ottla_protocol::messages as m;
use ottla_protocol::messages::alter_share_group_offsets::{
    AlterShareGroupOffsetsRequest, AlterShareGroupOffsetsResponse,
};
use ottla_protocol::messages::delete_share_group_offsets::{
    DeleteShareGroupOffsetsRequest, DeleteShareGroupOffsetsResponse,
};
use ottla_protocol::messages::offset_delete::{
    OffsetDeleteRequest, OffsetDeleteResponse, OffsetDeleteResponsePartition, OffsetDeleteResponseTopic,
};
use ottla_protocol::{ErrorCode, Uuid};

use super::super::Api;
use super::super::find_coordinator::{GROUP, SHARE, TRANSACTION};
use super::super::offsets;
use super::super::share_group_offsets::{altered, deleted};
use super::{Access, Authorize, Verdict, items, open, take_denied, verdict, whole};
use crate::security::acl::Operation;

open! {
    // Filtered.
    m::list_groups::ListGroupsRequest,
    // Each group, and each topic of it.
    m::offset_fetch::OffsetFetchRequest,
}

whole!(m::join_group::JoinGroupRequest, |access, request| access
    .need_group(Operation::Read, &request.group_id));
whole!(m::sync_group::SyncGroupRequest, |access, request| access
    .need_group(Operation::Read, &request.group_id));
whole!(m::heartbeat::HeartbeatRequest, |access, request| access
    .need_group(Operation::Read, &request.group_id));
whole!(m::leave_group::LeaveGroupRequest, |access, request| access
    .need_group(Operation::Read, &request.group_id));
// Each topic is checked, too.
whole!(m::share_fetch::ShareFetchRequest, |access, request| access
    .need_group(Operation::Read, request.group_id.as_deref().unwrap_or_default()));
whole!(m::share_acknowledge::ShareAcknowledgeRequest, |access, request| access
    .need_group(Operation::Read, request.group_id.as_deref().unwrap_or_default()));
// The topics of a pattern are filtered.
whole!(m::consumer_group_heartbeat::ConsumerGroupHeartbeatRequest, |access, request| {
    let mut names = request.subscribed_topic_names.iter().flatten();
    access.need_group(Operation::Read, &request.group_id).and_then(|()| {
        let may_see_all = names.all(|name| access.topic(Operation::Describe, name));
        if may_see_all { Ok(()) } else { Err(ErrorCode::TopicAuthorizationFailed) }
    })
});
items!(
    m::describe_groups::DescribeGroupsRequest,
    groups to groups,
    |access, group| access.need_group(Operation::Describe, group).is_ok(),
    ErrorCode::GroupAuthorizationFailed
);
items!(
    m::consumer_group_describe::ConsumerGroupDescribeRequest,
    group_ids to groups,
    |access, group| access.need_group(Operation::Describe, group).is_ok(),
    ErrorCode::GroupAuthorizationFailed
);
whole!(m::share_group_heartbeat::ShareGroupHeartbeatRequest, |access, request| {
    let mut names = request.subscribed_topic_names.iter().flatten();
    access.need_group(Operation::Read, &request.group_id).and_then(|()| {
        let may_see_all = names.all(|name| access.topic(Operation::Describe, name));
        if may_see_all { Ok(()) } else { Err(ErrorCode::TopicAuthorizationFailed) }
    })
});
items!(
    m::share_group_describe::ShareGroupDescribeRequest,
    group_ids to groups,
    |access, group| access.need_group(Operation::Describe, group).is_ok(),
    ErrorCode::GroupAuthorizationFailed
);
// The handler checks the topics.
items!(
    m::describe_share_group_offsets::DescribeShareGroupOffsetsRequest,
    groups to groups,
    |access, group| access.need_group(Operation::Describe, &group.group_id).is_ok(),
    ErrorCode::GroupAuthorizationFailed
);
items!(
    m::delete_groups::DeleteGroupsRequest,
    groups_names to results,
    |access, group| access.need_group(Operation::Delete, group).is_ok(),
    ErrorCode::GroupAuthorizationFailed
);

impl Authorize for m::find_coordinator::FindCoordinatorRequest {
    fn authorize(&mut self, access: &Access<'_>) -> Verdict<Self> {
        let key_type = self.key_type;
        let need = |key: &str| match key_type {
            TRANSACTION => access.need_transactional_id(Operation::Describe, key),
            SHARE => access.need_cluster(Operation::ClusterAction),
            GROUP => access.need_group(Operation::Describe, key),
            // The handler refuses it.
            _ => Ok(()),
        };
        if access.context.version < 4 {
            return verdict(need(&self.key));
        }
        let denied = take_denied(&mut self.coordinator_keys, |key| need(key).is_ok());
        if denied.is_empty() {
            return Verdict::Granted;
        }
        let code = match key_type {
            TRANSACTION => ErrorCode::TransactionalIdAuthorizationFailed,
            SHARE => ErrorCode::ClusterAuthorizationFailed,
            _ => ErrorCode::GroupAuthorizationFailed,
        };
        let denied = Self { key_type, coordinator_keys: denied, ..Default::default() };
        Verdict::Partly(denied.refuse(access.context, code))
    }

    fn merge(response: &mut Self::Response, denied: Self::Response) {
        response.coordinators.extend(denied.coordinators);
    }
}

items!(
    m::offset_commit::OffsetCommitRequest,
    |access, request| access.need_group(Operation::Read, &request.group_id),
    topics to topics,
    |access, topic| access.topic_or_id(Operation::Read, &topic.name, topic.topic_id, offsets::TOPIC_IDS_FROM),
    ErrorCode::TopicAuthorizationFailed
);

impl Authorize for AlterShareGroupOffsetsRequest {
    fn authorize(&mut self, access: &Access<'_>) -> Verdict<Self> {
        if let Err(code) = access.need_group(Operation::Read, &self.group_id) {
            return Verdict::Refused(code);
        }
        let denied = take_denied(&mut self.topics, |topic| access.topic(Operation::Read, &topic.topic_name));
        if denied.is_empty() {
            return Verdict::Granted;
        }
        let denied = denied.into_iter();
        let responses =
            denied.map(|topic| altered(topic, Uuid::ZERO, |_| ErrorCode::TopicAuthorizationFailed));
        Verdict::Partly(AlterShareGroupOffsetsResponse {
            responses: responses.collect(),
            ..Default::default()
        })
    }

    fn merge(response: &mut Self::Response, denied: Self::Response) {
        response.responses.extend(denied.responses);
    }
}

impl Authorize for DeleteShareGroupOffsetsRequest {
    fn authorize(&mut self, access: &Access<'_>) -> Verdict<Self> {
        if let Err(code) = access.need_group(Operation::Delete, &self.group_id) {
            return Verdict::Refused(code);
        }
        let denied = take_denied(&mut self.topics, |topic| access.topic(Operation::Read, &topic.topic_name));
        if denied.is_empty() {
            return Verdict::Granted;
        }
        let code = ErrorCode::TopicAuthorizationFailed;
        let responses = denied.into_iter().map(|topic| deleted(&topic.topic_name, Uuid::ZERO, code));
        Verdict::Partly(DeleteShareGroupOffsetsResponse {
            responses: responses.collect(),
            ..Default::default()
        })
    }

    fn merge(response: &mut Self::Response, denied: Self::Response) {
        response.responses.extend(denied.responses);
    }
}

impl Authorize for OffsetDeleteRequest {
    fn authorize(&mut self, access: &Access<'_>) -> Verdict<Self> {
        if let Err(code) = access.need_group(Operation::Delete, &self.group_id) {
            return Verdict::Refused(code);
        }
        let denied = take_denied(&mut self.topics, |topic| access.topic(Operation::Read, &topic.name));
        if denied.is_empty() {
            return Verdict::Granted;
        }
        let topics = denied.into_iter().map(|topic| {
            let partitions = topic.partitions.into_iter().map(|partition| OffsetDeleteResponsePartition {
                partition_index: partition.partition_index,
                error_code: ErrorCode::TopicAuthorizationFailed,
            });
            OffsetDeleteResponseTopic { name: topic.name, partitions: partitions.collect() }
        });
        Verdict::Partly(OffsetDeleteResponse { topics: topics.collect(), ..Default::default() })
    }

    fn merge(response: &mut Self::Response, denied: Self::Response) {
        response.topics.extend(denied.topics);
    }
}
