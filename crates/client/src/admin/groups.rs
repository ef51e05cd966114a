//! Groups: listing and deletion.

use std::collections::BTreeMap;
use std::rc::Rc;

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::delete_groups::DeleteGroupsRequest;
use ottla_protocol::messages::list_groups::{ListGroupsRequest, ListGroupsResponse};

use super::operation::{Operation, Repeat, Target, each, wrong_coordinator};
use super::{Admin, KeyedResults, Timeouts, first_error, owned, refused};
use crate::cluster::Cluster;
use crate::error::Error;

const LIST_GROUPS_VERSION_MAX: i16 = 5;
/// The first versions of ListGroups that filter by state (KIP-518) and by type (KIP-848).
const STATES_SINCE: i16 = 4;
const TYPES_SINCE: i16 = 5;
const DELETE_GROUPS_VERSION_MAX: i16 = 2;

/// The protocol type of consumer groups.
pub(super) const CONSUMER: &str = "consumer";

/// A group in a listing.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct GroupListing {
    /// Its id.
    pub group: String,
    /// The protocol type: `consumer` for consumer groups; empty if the group has only committed offsets.
    pub protocol_type: String,
    /// `Stable`, `Empty` and so on; empty on brokers before 2.6.
    pub state: String,
    /// `classic`, `consumer` or `share`; empty on brokers before 3.7.
    pub kind: String,
    /// The node id of its coordinator.
    pub coordinator: i32,
}

/// A filter for groups.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct GroupFilter {
    /// The states to list, by Kafka's names (`Stable`, `Empty`); empty lists all states. Supported by brokers from
    /// 2.6 on.
    pub states: Vec<String>,
    /// The types to list (`classic`, `consumer`, `share`); empty lists all types. Supported by brokers from 3.8 on.
    pub kinds: Vec<String>,
}

/// The groups of all brokers that responded.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct GroupListings {
    /// The groups, by id.
    pub groups: Vec<GroupListing>,
    /// The errors of brokers that did not respond, by node id. Their groups are missing.
    pub errors: Vec<(i32, Error)>,
}

impl Admin {
    /// Lists the groups of all brokers, by id.
    pub async fn list_groups(&self) -> Result<Vec<GroupListing>, Error> {
        let work = |cluster: Rc<Cluster>| async move {
            let operation = Operation::hasty(cluster, "list_groups");
            let mut listed = list(operation, GroupFilter::default()).await?;
            if listed.errors.is_empty() { Ok(listed.groups) } else { Err(listed.errors.remove(0).1) }
        };
        self.ask("list_groups", work).await
    }

    /// Lists the groups that a filter selects, of all brokers. A broker that does not respond hides only its own
    /// groups.
    ///
    /// # Errors
    /// The whole call fails if no broker returns the list of brokers in time.
    pub async fn list_groups_with(
        &self,
        filter: GroupFilter,
        timeouts: Timeouts,
    ) -> Result<GroupListings, Error> {
        let work = move |cluster: Rc<Cluster>| async move {
            list(Operation::new(cluster, "list_groups", timeouts), filter).await
        };
        self.ask("list_groups", work).await
    }

    /// Lists consumer groups, and groups that have only committed offsets.
    ///
    /// # Errors
    /// The whole call fails if no broker returns the list of brokers in time.
    pub async fn list_consumer_groups(
        &self,
        filter: GroupFilter,
        timeouts: Timeouts,
    ) -> Result<GroupListings, Error> {
        let mut listed = self.list_groups_with(filter, timeouts).await?;
        listed.groups.retain(|group| group.protocol_type.is_empty() || group.protocol_type == CONSUMER);
        Ok(listed)
    }

    /// Deletes groups with their offsets.
    ///
    /// # Errors
    /// The error of the first group that failed, after an attempt for each group; [`ErrorCode::NonEmptyGroup`] for a
    /// group that has members.
    pub async fn delete_groups(&self, groups: &[&str]) -> Result<(), Error> {
        let groups = owned(groups);
        let work = |cluster: Rc<Cluster>| async move {
            first_error(delete(Operation::hasty(cluster, "delete_groups"), groups).await)
        };
        self.ask("delete_groups", work).await
    }

    /// Deletes groups with their offsets. Returns a result per group, in the order of the request.
    ///
    /// # Errors
    /// [`Error::Closed`]; all other errors are results of single groups.
    pub async fn delete_groups_with(
        &self,
        groups: &[&str],
        timeouts: Timeouts,
    ) -> Result<KeyedResults<String, ()>, Error> {
        let groups = owned(groups);
        let work = move |cluster: Rc<Cluster>| async move {
            Ok(delete(Operation::new(cluster, "delete_groups", timeouts), groups).await)
        };
        self.ask("delete_groups", work).await
    }
}

async fn list(operation: Operation, filter: GroupFilter) -> Result<GroupListings, Error> {
    let list_at = |node| list_at(&operation, node, &filter);
    let (mut groups, errors) = operation.list_at_all(list_at).await?;
    groups.sort_by(|a: &GroupListing, b| a.group.cmp(&b.group));
    // A group that moved between two requests is listed twice.
    groups.dedup_by(|a, b| a.group == b.group);
    Ok(GroupListings { groups, errors })
}

/// Lists the groups of one broker; retries while it loads them.
async fn list_at(operation: &Operation, node: i32, filter: &GroupFilter) -> Result<Vec<GroupListing>, Error> {
    let needed = match (filter.kinds.is_empty(), filter.states.is_empty()) {
        (false, _) => TYPES_SINCE,
        (true, false) => STATES_SINCE,
        (true, true) => 0,
    };
    let make = |_version: i16| ListGroupsRequest {
        states_filter: filter.states.clone(),
        types_filter: filter.kinds.clone(),
    };
    let versions = needed..=LIST_GROUPS_VERSION_MAX;
    let again = |response: &ListGroupsResponse| Some(response.error_code).filter(|code| code.is_retriable());
    let response = operation.call(Target::Node(node), versions, Repeat::Yes, make, again).await?;
    refused(&format!("groups of node {node}"), response.error_code, None)?;
    let listing = |group: ottla_protocol::messages::list_groups::ListedGroup| GroupListing {
        group: group.group_id,
        protocol_type: group.protocol_type,
        state: group.group_state,
        kind: group.group_type.to_lowercase(),
        coordinator: node,
    };
    Ok(response.groups.into_iter().map(listing).collect())
}

async fn delete(operation: Operation, groups: Vec<String>) -> KeyedResults<String, ()> {
    let operation = &operation;
    let deleted = each(&groups, |group| delete_one(operation, group.clone())).await;
    groups.into_iter().zip(deleted).collect()
}

async fn delete_one(operation: &Operation, group: String) -> Result<(), Error> {
    let make = |_version: i16| DeleteGroupsRequest { groups_names: vec![group.clone()] };
    let versions = 0..=DELETE_GROUPS_VERSION_MAX;
    let response = operation
        .call(Target::Group(&group), versions, Repeat::Yes, make, |response| {
            wrong_coordinator(response.results.iter().map(|result| result.error_code))
        })
        .await?;
    let code = response.results.first().map_or(ErrorCode::UnknownServerError, |result| result.error_code);
    refused(&format!("deleting group `{group}`"), code, None)
}

/// The partitions of a request, by topic.
pub(super) fn by_topic<'a, V: 'a>(
    partitions: impl IntoIterator<Item = (&'a crate::types::TopicPartition, V)>,
) -> BTreeMap<String, Vec<(i32, V)>> {
    let mut by_topic: BTreeMap<String, Vec<(i32, V)>> = BTreeMap::new();
    for (at, value) in partitions {
        by_topic.entry(at.topic.to_string()).or_default().push((at.partition, value));
    }
    by_topic
}
