//! Requests of groups and their offsets.

use ottla_protocol::ErrorCode;
use ottla_protocol::messages as m;
use ottla_protocol::messages::offset_delete::{
    OffsetDeleteRequest, OffsetDeleteResponse, OffsetDeleteResponsePartition, OffsetDeleteResponseTopic,
};

use super::super::Api;
use super::super::find_coordinator::TRANSACTION;
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
            _ => access.need_group(Operation::Describe, key),
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
    |access, topic| access.topic_or_id(Operation::Read, &topic.name, topic.topic_id),
    ErrorCode::TopicAuthorizationFailed
);

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
