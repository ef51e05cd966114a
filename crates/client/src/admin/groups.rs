//! Groups: listed, described, their offsets read and set, deleted.

use std::collections::BTreeMap;
use std::rc::Rc;

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::consumer_group_describe::{
    ConsumerGroupDescribeRequest, DescribedGroup as DescribedConsumerGroup,
};
use ottla_protocol::messages::consumer_protocol::ConsumerProtocolAssignment;
use ottla_protocol::messages::delete_groups::DeleteGroupsRequest;
use ottla_protocol::messages::describe_groups::{
    DescribeGroupsRequest, DescribedGroup, DescribedGroupMember,
};
use ottla_protocol::messages::list_groups::ListGroupsRequest;
use tokio::time::Instant;

use super::{GroupDescription, GroupListing, MemberDescription, refused, topics};
use crate::cluster::Cluster;
use crate::cluster::brokers::Lane;
use crate::config::Isolation;
use crate::consumer::TopicPartition;
use crate::error::Error;
use crate::group::commit::{commit_offsets, fetch_committed};
use crate::group::coordinator::Coordinator;

const LIST_GROUPS_VERSION_MAX: i16 = 5;
const DESCRIBE_GROUPS_VERSION_MAX: i16 = 6;
const CONSUMER_GROUP_DESCRIBE_VERSION_MAX: i16 = 1;
const DELETE_GROUPS_VERSION_MAX: i16 = 2;

/// The state that brokers before 4.0 give a group that does not exist.
const DEAD: &str = "Dead";
/// The protocol type of groups whose assignments are ours to read.
const CONSUMER: &str = "consumer";

pub(super) async fn list(cluster: &Rc<Cluster>) -> Result<Vec<GroupListing>, Error> {
    let mut groups = Vec::new();
    for node in topics::describe_cluster(cluster).await?.brokers {
        groups.extend(list_at(cluster, node.id).await?);
    }
    groups.sort_by(|a, b| a.group.cmp(&b.group));
    // A group that moved between two questions is told twice.
    groups.dedup_by(|a, b| a.group == b.group);
    Ok(groups)
}

/// The groups of one broker, asked again while it loads them.
async fn list_at(cluster: &Rc<Cluster>, node: i32) -> Result<Vec<GroupListing>, Error> {
    let deadline = Instant::now() + cluster.config.request_timeout;
    loop {
        let connection = cluster.brokers.connection(node, Lane::Control).await?;
        let response = connection
            .call(LIST_GROUPS_VERSION_MAX, cluster.config.request_timeout, |_| ListGroupsRequest::default())
            .await?;
        let pause = cluster.config.retry_backoff;
        if response.error_code.is_retriable() && Instant::now() + pause < deadline {
            tokio::time::sleep(pause).await;
            continue;
        }
        refused(&format!("groups of node {node}"), response.error_code, None)?;
        return Ok(response
            .groups
            .into_iter()
            .map(|group| GroupListing {
                group: group.group_id,
                protocol_type: group.protocol_type,
                state: group.group_state,
                kind: group.group_type.to_lowercase(),
                coordinator: node,
            })
            .collect());
    }
}

pub(super) async fn describe(
    cluster: &Rc<Cluster>,
    groups: &[String],
) -> Result<Vec<GroupDescription>, Error> {
    let mut described = Vec::new();
    for group in groups {
        described.push(describe_one(cluster, group).await?);
    }
    Ok(described)
}

async fn describe_one(cluster: &Rc<Cluster>, group: &str) -> Result<GroupDescription, Error> {
    let coordinator = Coordinator::new(cluster.clone(), group.to_owned());
    let make = |_version: i16| DescribeGroupsRequest { groups: vec![group.to_owned()], ..Default::default() };
    let response = coordinator
        .call("DescribeGroups", DESCRIBE_GROUPS_VERSION_MAX, make, |response| {
            response.groups.first().map(|group| group.error_code).filter(|code| code.is_retriable())
        })
        .await?;
    let node = coordinator.find().await?;
    let absent = || Error::Broker { what: format!("group `{group}`"), code: ErrorCode::GroupIdNotFound };
    let classic = response.groups.into_iter().next().ok_or_else(absent)?;
    if classic.error_code == ErrorCode::GroupIdNotFound || classic.group_state == DEAD {
        // It may be one of the protocol of KIP-848, which has a request of its own.
        return match describe_consumer_group(&coordinator, group).await {
            Ok(Some(found)) => Ok(of_consumer_group(found, node)),
            Ok(None) | Err(Error::Unsupported { .. }) => Err(absent()),
            Err(error) => Err(error),
        };
    }
    refused(&format!("group `{group}`"), classic.error_code, classic.error_message.as_deref())?;
    Ok(of_classic(classic, node))
}

async fn describe_consumer_group(
    coordinator: &Coordinator,
    group: &str,
) -> Result<Option<DescribedConsumerGroup>, Error> {
    let make = |_version: i16| ConsumerGroupDescribeRequest {
        group_ids: vec![group.to_owned()],
        ..Default::default()
    };
    let response = coordinator
        .call("ConsumerGroupDescribe", CONSUMER_GROUP_DESCRIBE_VERSION_MAX, make, |response| {
            response.groups.first().map(|group| group.error_code).filter(|code| code.is_retriable())
        })
        .await?;
    let Some(found) = response.groups.into_iter().next() else { return Ok(None) };
    if found.error_code == ErrorCode::GroupIdNotFound {
        return Ok(None);
    }
    refused(&format!("group `{group}`"), found.error_code, found.error_message.as_deref())?;
    Ok(Some(found))
}

fn of_classic(group: DescribedGroup, coordinator: i32) -> GroupDescription {
    let consumers = group.protocol_type == CONSUMER;
    let member = |member: DescribedGroupMember| MemberDescription {
        assignment: if consumers { assignment(&member) } else { Vec::new() },
        member: member.member_id,
        instance: member.group_instance_id,
        client_id: member.client_id,
        host: member.client_host.trim_start_matches('/').to_owned(),
    };
    let mut members: Vec<MemberDescription> = group.members.into_iter().map(member).collect();
    members.sort_by(|a, b| a.member.cmp(&b.member));
    GroupDescription {
        group: group.group_id,
        state: group.group_state,
        protocol_type: group.protocol_type,
        protocol: group.protocol_data,
        coordinator,
        members,
    }
}

/// What a member was assigned; what cannot be read counts as nothing, because members may write what they like.
fn assignment(member: &DescribedGroupMember) -> Vec<TopicPartition> {
    let Ok(assignment) = ConsumerProtocolAssignment::from_bytes(member.member_assignment.clone()) else {
        return Vec::new();
    };
    let topics = assignment.assigned_partitions.iter();
    sorted(topics.flat_map(|topic| {
        topic.partitions.iter().map(|partition| TopicPartition::new(&topic.topic, *partition))
    }))
}

fn of_consumer_group(group: DescribedConsumerGroup, coordinator: i32) -> GroupDescription {
    let members = group.members.into_iter().map(|member| MemberDescription {
        assignment: sorted(member.assignment.topic_partitions.iter().flat_map(|topic| {
            topic.partitions.iter().map(|partition| TopicPartition::new(&topic.topic_name, *partition))
        })),
        member: member.member_id,
        instance: member.instance_id,
        client_id: member.client_id,
        host: member.client_host.trim_start_matches('/').to_owned(),
    });
    GroupDescription {
        group: group.group_id,
        state: group.group_state,
        protocol_type: CONSUMER.into(),
        protocol: group.assignor_name,
        coordinator,
        members: members.collect(),
    }
}

fn sorted(partitions: impl Iterator<Item = TopicPartition>) -> Vec<TopicPartition> {
    let mut partitions: Vec<TopicPartition> = partitions.collect();
    partitions.sort();
    partitions
}

pub(super) async fn offsets(
    cluster: &Rc<Cluster>,
    group: String,
    partitions: Option<&[TopicPartition]>,
) -> Result<BTreeMap<TopicPartition, i64>, Error> {
    // An open transaction must not keep anybody from looking.
    let isolation = Isolation::ReadUncommitted;
    let committed = fetch_committed(&Coordinator::new(cluster.clone(), group), partitions, isolation).await?;
    Ok(committed.into_iter().map(|(at, found)| (at, found.offset)).collect())
}

pub(super) async fn alter(
    cluster: &Rc<Cluster>,
    group: String,
    offsets: &BTreeMap<TopicPartition, i64>,
) -> Result<(), Error> {
    let offsets = offsets.iter().map(|(at, offset)| (at.clone(), (*offset).into())).collect();
    commit_offsets(&Coordinator::new(cluster.clone(), group), &offsets, None).await
}

pub(super) async fn delete(cluster: &Rc<Cluster>, groups: &[String]) -> Result<(), Error> {
    let mut first = Ok(());
    for group in groups {
        let deleted = delete_one(cluster, group).await;
        first = first.and(deleted);
    }
    first
}

async fn delete_one(cluster: &Rc<Cluster>, group: &str) -> Result<(), Error> {
    let coordinator = Coordinator::new(cluster.clone(), group.to_owned());
    let make = |_version: i16| DeleteGroupsRequest { groups_names: vec![group.to_owned()] };
    let deleted = coordinator
        .call("DeleteGroups", DELETE_GROUPS_VERSION_MAX, make, |response| {
            response.results.iter().map(|result| result.error_code).find(|code| *code != ErrorCode::None)
        })
        .await;
    deleted.map(|_| ())
}
