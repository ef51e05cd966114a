//! Requests about the cluster, its settings and its users.

use ottla_protocol::messages as m;
use ottla_protocol::{ErrorCode, Request};

use super::super::Api;
use super::super::configs::{BROKER_LOGGER, TOPIC, check_changes, check_replacement};
use super::super::repeats::repeated;
use super::{Access, Authorize, Verdict, open, take_denied, whole};
use crate::config::live::{BROKER, CLIENT_METRICS, GROUP};
use crate::security::acl::Operation;

open! {
    m::api_versions::ApiVersionsRequest,
    // Before it is known who asks.
    m::sasl_authenticate::SaslAuthenticateRequest,
    m::sasl_handshake::SaslHandshakeRequest,
    // A client pushes its own metrics.
    m::get_telemetry_subscriptions::GetTelemetrySubscriptionsRequest,
    m::push_telemetry::PushTelemetryRequest,
    // A list of authorized operations is empty for clients that may not describe the cluster.
    m::describe_cluster::DescribeClusterRequest,
    // The handlers refuse every client.
    m::create_delegation_token::CreateDelegationTokenRequest,
    m::describe_delegation_token::DescribeDelegationTokenRequest,
    m::expire_delegation_token::ExpireDelegationTokenRequest,
    m::renew_delegation_token::RenewDelegationTokenRequest,
}

/// Requests that need one operation of the cluster.
macro_rules! of_cluster {
    ($($request:ty => $operation:ident),* $(,)?) => {
        $(whole!($request, |access, _request| access.need_cluster(Operation::$operation));)*
    };
}

of_cluster! {
    m::add_raft_voter::AddRaftVoterRequest => Alter,
    m::alter_client_quotas::AlterClientQuotasRequest => AlterConfigs,
    m::alter_partition_reassignments::AlterPartitionReassignmentsRequest => Alter,
    m::alter_replica_log_dirs::AlterReplicaLogDirsRequest => Alter,
    m::alter_user_scram_credentials::AlterUserScramCredentialsRequest => Alter,
    m::create_acls::CreateAclsRequest => Alter,
    m::delete_acls::DeleteAclsRequest => Alter,
    m::delete_share_group_state::DeleteShareGroupStateRequest => ClusterAction,
    m::describe_acls::DescribeAclsRequest => Describe,
    m::describe_client_quotas::DescribeClientQuotasRequest => DescribeConfigs,
    m::describe_quorum::DescribeQuorumRequest => Describe,
    m::describe_user_scram_credentials::DescribeUserScramCredentialsRequest => Describe,
    m::elect_leaders::ElectLeadersRequest => Alter,
    m::initialize_share_group_state::InitializeShareGroupStateRequest => ClusterAction,
    m::list_config_resources::ListConfigResourcesRequest => DescribeConfigs,
    m::list_partition_reassignments::ListPartitionReassignmentsRequest => Describe,
    m::read_share_group_state::ReadShareGroupStateRequest => ClusterAction,
    m::read_share_group_state_summary::ReadShareGroupStateSummaryRequest => ClusterAction,
    m::remove_raft_voter::RemoveRaftVoterRequest => Alter,
    m::unregister_broker::UnregisterBrokerRequest => Alter,
    m::update_features::UpdateFeaturesRequest => Alter,
    m::write_share_group_state::WriteShareGroupStateRequest => ClusterAction,
}

impl Authorize for m::describe_log_dirs::DescribeLogDirsRequest {
    fn authorize(&mut self, access: &Access<'_>) -> Verdict<Self> {
        match access.need_cluster(Operation::Describe) {
            Ok(()) => Verdict::Granted,
            // Without the path of the directory.
            Err(error_code) => Verdict::Answered(m::describe_log_dirs::DescribeLogDirsResponse {
                error_code,
                ..Default::default()
            }),
        }
    }
}

/// Checks the settings of a resource.
fn need_settings(access: &Access<'_>, operation: Operation, kind: i8, name: &str) -> Result<(), ErrorCode> {
    match kind {
        TOPIC if access.topic(operation, name) => Ok(()),
        TOPIC => Err(ErrorCode::TopicAuthorizationFailed),
        GROUP => access.need_group(operation, name),
        BROKER | BROKER_LOGGER | CLIENT_METRICS => access.need_cluster(operation),
        // The handler knows no such resources.
        _ => Ok(()),
    }
}

/// Returns `true` for what the handler refuses whatever the resource is.
fn is_bad_replacement(resource: &m::alter_configs::AlterConfigsResource) -> bool {
    check_replacement(resource).is_err()
}

fn is_bad_change(resource: &m::incremental_alter_configs::AlterConfigsResource) -> bool {
    check_changes(resource).is_err()
}

const fn is_bad_question(_: &m::describe_configs::DescribeConfigsResource) -> bool {
    false
}

/// Requests for the settings of resources, whose error depends on the kind of the resource. A request that changes settings may have each
/// resource once, and each setting of it.
macro_rules! of_settings {
    ($request:ty, $operation:ident, $results:ident, $is_bad:ident) => {
        impl Authorize for $request {
            fn authorize(&mut self, access: &Access<'_>) -> Verdict<Self> {
                let changes = matches!(Operation::$operation, Operation::AlterConfigs);
                let keys = self.resources.iter().filter(|_| changes);
                let repeated = repeated(keys.map(|it| (it.resource_type, it.resource_name.clone())));
                let mut codes = Vec::new();
                let denied = take_denied(&mut self.resources, |resource| {
                    let (kind, name) = (resource.resource_type, &resource.resource_name);
                    if repeated.contains(&(kind, name.clone())) || $is_bad(resource) {
                        return true;
                    }
                    let needs = need_settings(access, Operation::$operation, kind, name);
                    codes.extend(needs.err());
                    needs.is_ok()
                });
                if denied.is_empty() {
                    return Verdict::Granted;
                }
                let mut answer = <Self as Request>::Response::default();
                for (resource, code) in denied.into_iter().zip(codes) {
                    let denied = Self { resources: vec![resource], ..Default::default() };
                    Self::merge(&mut answer, denied.refuse(access.context, code));
                }
                Verdict::Partly(answer)
            }

            fn merge(response: &mut Self::Response, denied: Self::Response) {
                response.$results.extend(denied.$results);
            }
        }
    };
}

of_settings!(m::alter_configs::AlterConfigsRequest, AlterConfigs, responses, is_bad_replacement);
of_settings!(
    m::incremental_alter_configs::IncrementalAlterConfigsRequest,
    AlterConfigs,
    responses,
    is_bad_change
);
of_settings!(m::describe_configs::DescribeConfigsRequest, DescribeConfigs, results, is_bad_question);
