//! Share groups (KIP-932): descriptions with members.

use std::rc::Rc;

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::share_group_describe::{DescribedGroup, Member, ShareGroupDescribeRequest};

use super::group_descriptions::sorted;
use super::operation::{Operation, each, wrong_coordinator};
use super::{AclOperation, Admin, DescribeOptions, KeyedResults, Node, owned, plain, refused};
use crate::cluster::Cluster;
use crate::error::Error;
use crate::types::TopicPartition;

/// Version 0 was only in early access (Kafka 4.0).
const SHARE_GROUP_DESCRIBE_VERSION: i16 = 1;

/// A share group with its members.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct ShareGroupDescription {
    /// Its id.
    pub group: String,
    /// `Stable`, `Empty` or `Dead`.
    pub state: String,
    /// The assignor of the group coordinator.
    pub assignor: String,
    /// The epoch of the group, which rises with each change of members or topics.
    pub epoch: i32,
    /// The group's epoch for which the assignment was made.
    pub assignment_epoch: i32,
    /// The node id of its coordinator.
    pub coordinator: i32,
    /// Its coordinator with the address.
    pub coordinator_node: Node,
    /// The members, by member id.
    pub members: Vec<ShareMemberDescription>,
    /// The operations that the client is authorized for, if requested and reported.
    pub authorized_operations: Option<Vec<AclOperation>>,
}

/// A member of a share group.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct ShareMemberDescription {
    /// The member id.
    pub member: String,
    /// The epoch of its assignment.
    pub epoch: i32,
    /// Its `client.rack`, if it has one.
    pub rack: Option<String>,
    /// Its `client.id`.
    pub client_id: String,
    /// The host that the member connects from.
    pub host: String,
    /// The topics that the member subscribes to.
    pub subscribed_topics: Vec<String>,
    /// The partitions assigned to the member. Other members may have them as well.
    pub assignment: Vec<TopicPartition>,
}

impl Admin {
    /// Describes share groups, in the order of the request.
    ///
    /// # Errors
    /// [`Error::Broker`] with [`ErrorCode::GroupIdNotFound`] for the first group that does not exist or is not a share group.
    pub async fn describe_share_groups(&self, groups: &[&str]) -> Result<Vec<ShareGroupDescription>, Error> {
        let groups = owned(groups);
        let work = |cluster: Rc<Cluster>| async move {
            let operation = Operation::hasty(cluster, "describe_share_groups");
            let described = describe(operation, groups, false).await;
            described.into_iter().map(|(_, group)| group.map_err(plain)).collect()
        };
        self.ask("describe_share_groups", work).await
    }

    /// Describes share groups. Returns a result per group, in the order of the request. A group that does not exist or is
    /// not a share group is [`ErrorCode::GroupIdNotFound`].
    ///
    /// # Errors
    /// [`Error::Closed`]; all other errors are results of single groups.
    pub async fn describe_share_groups_with(
        &self,
        groups: &[&str],
        what: DescribeOptions,
    ) -> Result<KeyedResults<String, ShareGroupDescription>, Error> {
        let groups = owned(groups);
        let work = move |cluster: Rc<Cluster>| async move {
            let operation = Operation::new(cluster, "describe_share_groups", what.timeouts);
            Ok(describe(operation, groups, what.authorized_operations).await)
        };
        self.ask("describe_share_groups", work).await
    }
}

async fn describe(
    operation: Operation,
    groups: Vec<String>,
    authorized: bool,
) -> KeyedResults<String, ShareGroupDescription> {
    let operation = &operation;
    let described = each(&groups, |group| describe_one(operation, group.clone(), authorized)).await;
    groups.into_iter().zip(described).collect()
}

async fn describe_one(
    operation: &Operation,
    group: String,
    authorized: bool,
) -> Result<ShareGroupDescription, Error> {
    let make = |_version: i16| ShareGroupDescribeRequest {
        group_ids: vec![group.clone()],
        include_authorized_operations: authorized,
    };
    let versions = SHARE_GROUP_DESCRIBE_VERSION..=SHARE_GROUP_DESCRIBE_VERSION;
    let (node, response) = operation
        .call_coordinator(&group, versions, make, |response| {
            wrong_coordinator(response.groups.iter().map(|group| group.error_code))
        })
        .await?;
    let absent =
        || Error::Broker { what: format!("share group `{group}`"), code: ErrorCode::GroupIdNotFound };
    let found = response.groups.into_iter().next().ok_or_else(absent)?;
    if found.error_code == ErrorCode::UnsupportedVersion {
        // A broker that has share groups disabled has none.
        return Err(absent());
    }
    refused(&format!("share group `{group}`"), found.error_code, found.error_message.as_deref())?;
    Ok(described(found, node))
}

fn described(group: DescribedGroup, node: Node) -> ShareGroupDescription {
    let member = |member: Member| ShareMemberDescription {
        assignment: sorted(member.assignment.topic_partitions.iter().flat_map(|topic| {
            topic.partitions.iter().map(|partition| TopicPartition::new(&topic.topic_name, *partition))
        })),
        member: member.member_id,
        epoch: member.member_epoch,
        rack: member.rack_id,
        client_id: member.client_id,
        host: member.client_host.trim_start_matches('/').to_owned(),
        subscribed_topics: member.subscribed_topic_names,
    };
    let mut members: Vec<ShareMemberDescription> = group.members.into_iter().map(member).collect();
    members.sort_by(|a, b| a.member.cmp(&b.member));
    ShareGroupDescription {
        group: group.group_id,
        state: group.group_state,
        assignor: group.assignor_name,
        epoch: group.group_epoch,
        assignment_epoch: group.assignment_epoch,
        coordinator: node.id,
        coordinator_node: node,
        members,
        authorized_operations: AclOperation::authorized(group.authorized_operations),
    }
}
