//! The throttle time in responses.

use std::time::Duration;

use ottla_protocol::messages as m;

/// A response with a throttle time.
pub(crate) trait Throttled {
    /// Sets the throttle time, unless the response has a longer one. Some responses have none: their clients only wait.
    fn throttle(&mut self, time: Duration);
}

macro_rules! throttled {
    ($($module:ident::$response:ident),* $(,)?) => {
        $(impl Throttled for m::$module::$response {
            fn throttle(&mut self, time: Duration) {
                let ms = i32::try_from(time.as_millis()).unwrap_or(i32::MAX);
                self.throttle_time_ms = self.throttle_time_ms.max(ms);
            }
        })*
    };
}

macro_rules! never_throttled {
    ($($module:ident::$response:ident),* $(,)?) => {
        $(impl Throttled for m::$module::$response {
            fn throttle(&mut self, _time: Duration) {}
        })*
    };
}

never_throttled! {
    delete_share_group_state::DeleteShareGroupStateResponse,
    describe_quorum::DescribeQuorumResponse,
    initialize_share_group_state::InitializeShareGroupStateResponse,
    read_share_group_state::ReadShareGroupStateResponse,
    read_share_group_state_summary::ReadShareGroupStateSummaryResponse,
    sasl_authenticate::SaslAuthenticateResponse,
    sasl_handshake::SaslHandshakeResponse,
    write_share_group_state::WriteShareGroupStateResponse,
    write_txn_markers::WriteTxnMarkersResponse,
}

throttled! {
    add_offsets_to_txn::AddOffsetsToTxnResponse,
    add_partitions_to_txn::AddPartitionsToTxnResponse,
    add_raft_voter::AddRaftVoterResponse,
    alter_client_quotas::AlterClientQuotasResponse,
    alter_configs::AlterConfigsResponse,
    alter_partition_reassignments::AlterPartitionReassignmentsResponse,
    alter_replica_log_dirs::AlterReplicaLogDirsResponse,
    alter_share_group_offsets::AlterShareGroupOffsetsResponse,
    alter_user_scram_credentials::AlterUserScramCredentialsResponse,
    api_versions::ApiVersionsResponse,
    consumer_group_describe::ConsumerGroupDescribeResponse,
    consumer_group_heartbeat::ConsumerGroupHeartbeatResponse,
    create_acls::CreateAclsResponse,
    create_delegation_token::CreateDelegationTokenResponse,
    create_partitions::CreatePartitionsResponse,
    create_topics::CreateTopicsResponse,
    delete_acls::DeleteAclsResponse,
    delete_groups::DeleteGroupsResponse,
    delete_records::DeleteRecordsResponse,
    delete_share_group_offsets::DeleteShareGroupOffsetsResponse,
    delete_topics::DeleteTopicsResponse,
    describe_acls::DescribeAclsResponse,
    describe_client_quotas::DescribeClientQuotasResponse,
    describe_cluster::DescribeClusterResponse,
    describe_configs::DescribeConfigsResponse,
    describe_delegation_token::DescribeDelegationTokenResponse,
    describe_groups::DescribeGroupsResponse,
    describe_log_dirs::DescribeLogDirsResponse,
    describe_producers::DescribeProducersResponse,
    describe_share_group_offsets::DescribeShareGroupOffsetsResponse,
    describe_topic_partitions::DescribeTopicPartitionsResponse,
    describe_transactions::DescribeTransactionsResponse,
    describe_user_scram_credentials::DescribeUserScramCredentialsResponse,
    elect_leaders::ElectLeadersResponse,
    end_txn::EndTxnResponse,
    expire_delegation_token::ExpireDelegationTokenResponse,
    fetch::FetchResponse,
    find_coordinator::FindCoordinatorResponse,
    get_telemetry_subscriptions::GetTelemetrySubscriptionsResponse,
    heartbeat::HeartbeatResponse,
    incremental_alter_configs::IncrementalAlterConfigsResponse,
    init_producer_id::InitProducerIdResponse,
    join_group::JoinGroupResponse,
    leave_group::LeaveGroupResponse,
    list_config_resources::ListConfigResourcesResponse,
    list_groups::ListGroupsResponse,
    list_offsets::ListOffsetsResponse,
    list_partition_reassignments::ListPartitionReassignmentsResponse,
    list_transactions::ListTransactionsResponse,
    metadata::MetadataResponse,
    offset_commit::OffsetCommitResponse,
    offset_delete::OffsetDeleteResponse,
    offset_fetch::OffsetFetchResponse,
    offset_for_leader_epoch::OffsetForLeaderEpochResponse,
    produce::ProduceResponse,
    push_telemetry::PushTelemetryResponse,
    remove_raft_voter::RemoveRaftVoterResponse,
    renew_delegation_token::RenewDelegationTokenResponse,
    share_group_describe::ShareGroupDescribeResponse,
    share_group_heartbeat::ShareGroupHeartbeatResponse,
    share_acknowledge::ShareAcknowledgeResponse,
    share_fetch::ShareFetchResponse,
    sync_group::SyncGroupResponse,
    txn_offset_commit::TxnOffsetCommitResponse,
    unregister_broker::UnregisterBrokerResponse,
    update_features::UpdateFeaturesResponse,
}
