//! ShareGroupHeartbeat and ShareGroupDescribe: share groups (KIP-932).

use std::collections::{BTreeMap, BTreeSet};

use ottla_protocol::messages::share_group_describe::{
    Assignment as DescribedAssignment, DescribedGroup, Member as DescribedMember, ShareGroupDescribeRequest,
    ShareGroupDescribeResponse, TopicPartitions as DescribedPartitions,
};
use ottla_protocol::messages::share_group_heartbeat::{
    Assignment, ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse, TopicPartitions,
};
use ottla_protocol::{ErrorCode, Uuid};

use super::authorized_operations::{OF_GROUP, if_requested};
use super::groups::{HAS_HIDDEN_TOPICS, check_coordinator_of_named, coordinate, why_not_described};
use super::repeats::without_repeats;
use super::share_sessions::is_member_id;
use super::{Api, RequestContext};
use crate::cluster::Cluster;
use crate::coordinator::consumer_group::group::Refusal;
use crate::coordinator::consumer_group::records::by_topic;
use crate::coordinator::share_group::group::{ShareBeat, ShareGroup, ShareMember};
use crate::security::acl::{Operation, ResourceType};

/// Kafka's name of the only assignor.
const ASSIGNOR: &str = "simple";
/// The epoch with which a member leaves.
const LEAVES: i32 = -1;

impl Api for ShareGroupHeartbeatRequest {
    async fn handle(self, context: RequestContext) -> ShareGroupHeartbeatResponse {
        if !context.cluster().has_share_groups() {
            return self.refuse(&context, ErrorCode::UnsupportedVersion);
        }
        let group_id = self.group_id.clone();
        let answer = async {
            check(&self)?;
            let refuse = |code| Refusal::new(code, format!("group `{group_id}`: {code}"));
            coordinate(&context, &group_id).await.map_err(refuse)?;
            let beat = ShareBeat {
                member_id: self.member_id,
                epoch: self.member_epoch,
                rack_id: self.rack_id,
                client_id: context.client_id.to_string(),
                client_host: context.connection.peer.host().to_string(),
                names: self.subscribed_topic_names.map(|names| names.into_iter().collect()),
            };
            let cluster = context.cluster();
            cluster.share_groups.heartbeat(cluster, &group_id, beat).await
        };
        match answer.await {
            Ok((answer, interval)) => ShareGroupHeartbeatResponse {
                member_id: Some(answer.member_id),
                member_epoch: answer.epoch,
                heartbeat_interval_ms: i32::try_from(interval.as_millis()).unwrap_or(i32::MAX),
                assignment: answer.assignment.map(|places| Assignment {
                    topic_partitions: by_topic(places.into_iter())
                        .into_iter()
                        .map(|(topic_id, partitions)| TopicPartitions { topic_id, partitions })
                        .collect(),
                }),
                ..Default::default()
            },
            Err(Refusal { code, message }) => ShareGroupHeartbeatResponse {
                error_code: code,
                error_message: Some(message),
                ..Default::default()
            },
        }
    }

    fn refuse(self, _context: &RequestContext, code: ErrorCode) -> ShareGroupHeartbeatResponse {
        ShareGroupHeartbeatResponse { error_code: code, ..Default::default() }
    }
}

/// Checks a request as Kafka's `GroupCoordinatorService` does.
fn check(request: &ShareGroupHeartbeatRequest) -> Result<(), Refusal> {
    let epoch = request.member_epoch;
    let reason = if request.member_id.trim().is_empty() {
        "the member has no id"
    } else if !is_member_id(&request.member_id) {
        "the member id has more than 36 characters"
    } else if request.group_id.trim().is_empty() {
        "the group has no name"
    } else if request.rack_id.as_ref().is_some_and(|rack| rack.trim().is_empty()) {
        "the rack is empty"
    } else if epoch == 0 && request.subscribed_topic_names.as_ref().is_none_or(Vec::is_empty) {
        "a member that joins needs a subscription"
    } else if epoch < LEAVES {
        "the member epoch is below -1"
    } else {
        return Ok(());
    };
    Err(Refusal::new(ErrorCode::InvalidRequest, reason.to_owned()))
}

impl Api for ShareGroupDescribeRequest {
    async fn handle(self, context: RequestContext) -> ShareGroupDescribeResponse {
        if !context.cluster().has_share_groups() {
            return self.refuse(&context, ErrorCode::UnsupportedVersion);
        }
        let is_requested = self.include_authorized_operations;
        let groups = without_repeats(self.group_ids, String::clone).into_iter().map(|group_id| {
            if let Err(code) = check_coordinator_of_named(&context, &group_id) {
                return refused(group_id, code, None);
            }
            let cluster = context.cluster();
            let describe = |group: &ShareGroup| DescribedGroup {
                authorized_operations: if_requested(
                    is_requested,
                    &context,
                    (ResourceType::Group, &group_id),
                    OF_GROUP,
                ),
                ..described(cluster, &group_id, group)
            };
            let found = cluster.share_groups.look(&group_id, describe);
            if found.as_ref().is_some_and(|group| !may_see_topics(&context, group)) {
                let message = Some(HAS_HIDDEN_TOPICS.to_owned());
                return refused(group_id, ErrorCode::TopicAuthorizationFailed, message);
            }
            found.unwrap_or_else(|| {
                let message = why_not_described(cluster, &group_id, "share");
                refused(group_id, ErrorCode::GroupIdNotFound, Some(message))
            })
        });
        ShareGroupDescribeResponse { groups: groups.collect(), ..Default::default() }
    }

    fn refuse(self, _context: &RequestContext, code: ErrorCode) -> ShareGroupDescribeResponse {
        let groups = self.group_ids.into_iter().map(|group_id| refused(group_id, code, None));
        ShareGroupDescribeResponse { groups: groups.collect(), ..Default::default() }
    }
}

/// Returns `true` if the client may see each topic that is assigned to a member. As in Kafka, the names of subscriptions are no secret.
fn may_see_topics(context: &RequestContext, group: &DescribedGroup) -> bool {
    if context.cluster().authorizer.is_none() {
        return true;
    }
    let assigned = group.members.iter().flat_map(|member| &member.assignment.topic_partitions);
    let names: BTreeSet<&str> = assigned.map(|topic| &*topic.topic_name).collect();
    names.iter().all(|name| context.may(Operation::Describe, ResourceType::Topic, name))
}

fn refused(group_id: String, error_code: ErrorCode, error_message: Option<String>) -> DescribedGroup {
    DescribedGroup { error_code, error_message, group_id, ..Default::default() }
}

fn described(cluster: &Cluster, group_id: &str, group: &ShareGroup) -> DescribedGroup {
    let member = |(id, member): (&String, &ShareMember)| DescribedMember {
        member_id: id.clone(),
        rack_id: member.profile.rack_id.clone(),
        member_epoch: member.epoch,
        client_id: member.profile.client_id.clone(),
        client_host: member.profile.client_host.clone(),
        subscribed_topic_names: member.profile.names.iter().cloned().collect(),
        assignment: named(cluster, by_topic(member.assigned.iter().copied())),
    };
    DescribedGroup {
        group_id: group_id.to_owned(),
        group_state: group.state().to_owned(),
        group_epoch: group.epoch,
        assignment_epoch: group.assignment_epoch,
        assignor_name: ASSIGNOR.to_owned(),
        members: group.members.iter().map(member).collect(),
        ..Default::default()
    }
}

/// Topics that were deleted have no name: they are left out, as in Kafka.
fn named(cluster: &Cluster, topics: BTreeMap<Uuid, Vec<i32>>) -> DescribedAssignment {
    let topics = topics.into_iter().filter_map(|(topic_id, partitions)| {
        let topic_name = cluster.topic_by_id(topic_id)?.name.to_string();
        Some(DescribedPartitions { topic_id, topic_name, partitions })
    });
    DescribedAssignment { topic_partitions: topics.collect() }
}
