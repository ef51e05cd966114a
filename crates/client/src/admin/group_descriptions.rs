//! Descriptions of groups with their members, of the classic and the KIP-848 protocol.

use std::rc::Rc;

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::consumer_group_describe::{
    Assignment, ConsumerGroupDescribeRequest, DescribedGroup as DescribedConsumerGroup, Member,
};
use ottla_protocol::messages::consumer_protocol::ConsumerProtocolAssignment;
use ottla_protocol::messages::describe_groups::{
    DescribeGroupsRequest, DescribedGroup, DescribedGroupMember,
};

use super::groups::CONSUMER;
use super::operation::{Operation, Repeat, Target, each, wrong_coordinator};
use super::{AclOperation, Admin, DescribeOptions, KeyedResults, Node, owned, plain, refused};
use crate::cluster::Cluster;
use crate::error::Error;
use crate::types::TopicPartition;

const DESCRIBE_GROUPS_VERSION_MAX: i16 = 6;
/// The first version of DescribeGroups with the authorized operations.
const AUTHORIZED_SINCE: i16 = 3;
const CONSUMER_GROUP_DESCRIBE_VERSION_MAX: i16 = 1;

/// The state that brokers before 4.0 report for a group that does not exist (KIP-1043).
const DEAD: &str = "Dead";

/// A group with its members.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct GroupDescription {
    /// Its id.
    pub group: String,
    /// `Stable`, `Empty`, `PreparingRebalance` and so on.
    pub state: String,
    /// `classic` or `consumer`.
    pub kind: String,
    /// The protocol type: `consumer` for consumer groups; empty if the group has only committed offsets.
    pub protocol_type: String,
    /// The selected assignor.
    pub protocol: String,
    /// The node id of its coordinator.
    pub coordinator: i32,
    /// Its coordinator with the address.
    pub coordinator_node: Node,
    /// The members, by member id.
    pub members: Vec<MemberDescription>,
    /// The operations that the client is authorized for, if requested and reported.
    pub authorized_operations: Option<Vec<AclOperation>>,
}

/// A member of a group.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct MemberDescription {
    /// The member id.
    pub member: String,
    /// Its `group.instance.id`, if it is a static member.
    pub instance: Option<String>,
    /// Its `client.id`.
    pub client_id: String,
    /// The host that the member connects from.
    pub host: String,
    /// The partitions assigned to the member; empty if the group is not a consumer group.
    pub assignment: Vec<TopicPartition>,
    /// The partitions that the member owns once the rebalance completes; `None` in classic groups.
    pub target: Option<Vec<TopicPartition>>,
    /// The member's metadata in a classic group, in the assignor's format.
    pub metadata: bytes::Bytes,
    /// The encoded assignment, in a classic group.
    pub assignment_bytes: bytes::Bytes,
}

impl Admin {
    /// Describes groups of the classic and the KIP-848 protocol, in the order of the request.
    ///
    /// # Errors
    /// [`Error::Broker`] with [`ErrorCode::GroupIdNotFound`] for the first group that does not exist.
    pub async fn describe_groups(&self, groups: &[&str]) -> Result<Vec<GroupDescription>, Error> {
        let groups = owned(groups);
        let work = |cluster: Rc<Cluster>| async move {
            let operation = Operation::hasty(cluster, "describe_groups");
            let described = describe(operation, groups, false).await;
            described.into_iter().map(|(_, group)| group.map_err(plain)).collect()
        };
        self.ask("describe_groups", work).await
    }

    /// Describes groups of the classic and the KIP-848 protocol. Returns a result per group, in the order of the
    /// request. A group that does not exist is [`ErrorCode::GroupIdNotFound`] with every broker release (KIP-1043).
    ///
    /// # Errors
    /// [`Error::Closed`]; all other errors are results of single groups.
    pub async fn describe_groups_with(
        &self,
        groups: &[&str],
        what: DescribeOptions,
    ) -> Result<KeyedResults<String, GroupDescription>, Error> {
        let groups = owned(groups);
        let work = move |cluster: Rc<Cluster>| async move {
            let operation = Operation::new(cluster, "describe_groups", what.timeouts);
            Ok(describe(operation, groups, what.authorized_operations).await)
        };
        self.ask("describe_groups", work).await
    }
}

async fn describe(
    operation: Operation,
    groups: Vec<String>,
    authorized: bool,
) -> KeyedResults<String, GroupDescription> {
    let operation = &operation;
    let described = each(&groups, |group| describe_one(operation, group.clone(), authorized)).await;
    groups.into_iter().zip(described).collect()
}

async fn describe_one(
    operation: &Operation,
    group: String,
    authorized: bool,
) -> Result<GroupDescription, Error> {
    let make = |_version: i16| DescribeGroupsRequest {
        groups: vec![group.clone()],
        include_authorized_operations: authorized,
    };
    let versions = if authorized { AUTHORIZED_SINCE } else { 0 }..=DESCRIBE_GROUPS_VERSION_MAX;
    let (node, response) = operation
        .call_coordinator(&group, versions, make, |response| {
            wrong_coordinator(response.groups.iter().map(|group| group.error_code))
        })
        .await?;
    let absent = || Error::Broker { what: format!("group `{group}`"), code: ErrorCode::GroupIdNotFound };
    let classic = response.groups.into_iter().next().ok_or_else(absent)?;
    if classic.error_code == ErrorCode::GroupIdNotFound || classic.group_state == DEAD {
        // It may be a group of the KIP-848 protocol, which has its own request.
        return match describe_consumer_group(operation, &group, authorized).await {
            Ok(Some(found)) => Ok(of_consumer_group(found, node)),
            Ok(None) | Err(Error::Unsupported { .. }) => Err(absent()),
            Err(error) => Err(error),
        };
    }
    refused(&format!("group `{group}`"), classic.error_code, classic.error_message.as_deref())?;
    Ok(of_classic(classic, node))
}

async fn describe_consumer_group(
    operation: &Operation,
    group: &str,
    authorized: bool,
) -> Result<Option<DescribedConsumerGroup>, Error> {
    let make = |_version: i16| ConsumerGroupDescribeRequest {
        group_ids: vec![group.to_owned()],
        include_authorized_operations: authorized,
    };
    let versions = 0..=CONSUMER_GROUP_DESCRIBE_VERSION_MAX;
    let response = operation
        .call(Target::Group(group), versions, Repeat::Yes, make, |response| {
            wrong_coordinator(response.groups.iter().map(|group| group.error_code))
        })
        .await?;
    let Some(found) = response.groups.into_iter().next() else { return Ok(None) };
    // A broker that knows the request, but has the protocol disabled, answers UNSUPPORTED_VERSION for each group.
    if matches!(found.error_code, ErrorCode::GroupIdNotFound | ErrorCode::UnsupportedVersion) {
        return Ok(None);
    }
    refused(&format!("group `{group}`"), found.error_code, found.error_message.as_deref())?;
    Ok(Some(found))
}

fn of_classic(group: DescribedGroup, node: Node) -> GroupDescription {
    let consumers = group.protocol_type == CONSUMER;
    let member = |member: DescribedGroupMember| MemberDescription {
        assignment: if consumers { assignment(&member) } else { Vec::new() },
        target: None,
        member: member.member_id,
        instance: member.group_instance_id,
        client_id: member.client_id,
        host: member.client_host.trim_start_matches('/').to_owned(),
        metadata: member.member_metadata,
        assignment_bytes: member.member_assignment,
    };
    let mut members: Vec<MemberDescription> = group.members.into_iter().map(member).collect();
    members.sort_by(|a, b| a.member.cmp(&b.member));
    GroupDescription {
        group: group.group_id,
        state: group.group_state,
        kind: "classic".into(),
        protocol_type: group.protocol_type,
        protocol: group.protocol_data,
        coordinator: node.id,
        coordinator_node: node,
        members,
        authorized_operations: AclOperation::authorized(group.authorized_operations),
    }
}

/// The partitions assigned to a member. Members may write any bytes, so a malformed assignment counts as empty.
fn assignment(member: &DescribedGroupMember) -> Vec<TopicPartition> {
    let Ok(assignment) = ConsumerProtocolAssignment::from_bytes(member.member_assignment.clone()) else {
        return Vec::new();
    };
    let topics = assignment.assigned_partitions.iter();
    sorted(topics.flat_map(|topic| {
        topic.partitions.iter().map(|partition| TopicPartition::new(&topic.topic, *partition))
    }))
}

fn of_consumer_group(group: DescribedConsumerGroup, node: Node) -> GroupDescription {
    let partitions = |assignment: &Assignment| {
        sorted(assignment.topic_partitions.iter().flat_map(|topic| {
            topic.partitions.iter().map(|partition| TopicPartition::new(&topic.topic_name, *partition))
        }))
    };
    let member = |member: Member| MemberDescription {
        assignment: partitions(&member.assignment),
        target: Some(partitions(&member.target_assignment)),
        member: member.member_id,
        instance: member.instance_id,
        client_id: member.client_id,
        host: member.client_host.trim_start_matches('/').to_owned(),
        metadata: bytes::Bytes::new(),
        assignment_bytes: bytes::Bytes::new(),
    };
    let mut members: Vec<MemberDescription> = group.members.into_iter().map(member).collect();
    members.sort_by(|a, b| a.member.cmp(&b.member));
    GroupDescription {
        group: group.group_id,
        state: group.group_state,
        kind: CONSUMER.into(),
        protocol_type: CONSUMER.into(),
        protocol: group.assignor_name,
        coordinator: node.id,
        coordinator_node: node,
        members,
        authorized_operations: AclOperation::authorized(group.authorized_operations),
    }
}

pub(super) fn sorted(partitions: impl Iterator<Item = TopicPartition>) -> Vec<TopicPartition> {
    let mut partitions: Vec<TopicPartition> = partitions.collect();
    partitions.sort();
    partitions
}
