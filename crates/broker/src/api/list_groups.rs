//! ListGroups.

use std::collections::BTreeSet;

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::list_groups::{ListGroupsRequest, ListGroupsResponse, ListedGroup};

use super::groups::check_coordinator;
use super::pace::Pace;
use super::{Api, RequestContext};
use crate::cluster::Cluster;
use crate::coordinator::consumer_group::group::ConsumerGroup;
use crate::coordinator::group::{CONSUMER, State};
use crate::coordinator::share_group::group::ShareGroup;
use crate::security::acl::{CLUSTER_NAME, Operation, ResourceType};

const CLASSIC: &str = "classic";
/// The type of groups of the new protocol.
const CONSUMER_TYPE: &str = "consumer";
/// The type and the protocol type of share groups.
const SHARE: &str = "share";

impl Api for ListGroupsRequest {
    async fn handle(self, context: RequestContext) -> ListGroupsResponse {
        let may_see_all = context.may_see(Operation::Describe, ResourceType::Cluster, CLUSTER_NAME);
        let _turn = context.cluster().take_list_turn(context.connection.client_host()).await;
        let (mut groups, mut pace) = (Vec::new(), Pace::default());
        for group_id in names(context.cluster()) {
            pace.step().await;
            let may_see = may_see_all || context.may_see(Operation::Describe, ResourceType::Group, &group_id);
            if !may_see || check_coordinator(&context, &group_id).is_err() {
                continue;
            }
            let Some(listing) = listing(context.cluster(), &group_id) else { continue };
            if fits(&self.states_filter, listing.state) && fits(&self.types_filter, listing.group_type) {
                groups.push(ListedGroup {
                    group_id,
                    protocol_type: listing.protocol_type,
                    group_state: listing.state.into(),
                    group_type: listing.group_type.into(),
                });
            }
        }
        ListGroupsResponse { groups, ..Default::default() }
    }

    fn refuse(self, _context: &RequestContext, code: ErrorCode) -> ListGroupsResponse {
        ListGroupsResponse { error_code: code, ..Default::default() }
    }
}

fn fits(filter: &[String], value: &str) -> bool {
    filter.is_empty() || filter.iter().any(|wanted| wanted.eq_ignore_ascii_case(value))
}

/// The names of all groups, each once, in their order.
fn names(cluster: &Cluster) -> BTreeSet<String> {
    let mut names: BTreeSet<String> = cluster.groups.names().into_iter().collect();
    names.extend(cluster.offsets.groups());
    names.extend(cluster.consumer_groups.list());
    names.extend(cluster.share_groups.list());
    names
}

/// The state and the types of a group.
struct Listing {
    state: &'static str,
    protocol_type: String,
    group_type: &'static str,
}

/// A group by its members, or by the offsets it left. An empty group is there until it is deleted, or until the expiry of offsets
/// finds it.
fn listing(cluster: &Cluster, group: &str) -> Option<Listing> {
    if let Some(state) = cluster.share_groups.look(group, ShareGroup::state) {
        return Some(Listing { state, protocol_type: SHARE.into(), group_type: SHARE });
    }
    if let Some(state) = cluster.consumer_groups.look(group, ConsumerGroup::state) {
        return Some(Listing { state, protocol_type: CONSUMER.into(), group_type: CONSUMER_TYPE });
    }
    // A group that never had members has no type, as in Kafka.
    let of_offsets = || cluster.offsets.has_offsets(group).then(|| (State::Empty.name(), String::new()));
    let (state, protocol_type) = cluster.groups.state_and_type(group).or_else(of_offsets)?;
    Some(Listing { state, protocol_type, group_type: CLASSIC })
}
