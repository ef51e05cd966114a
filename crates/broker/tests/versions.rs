//! A promise: what ApiVersions lists is answered, in every version, empty or not.

use std::collections::BTreeSet;

use ottla_broker::{Broker, KafkaLevel};
use ottla_protocol::messages as m;
use ottla_protocol::messages::ApiVersionsRequest;
use ottla_protocol::{ApiKey, Request};

use crate::common::sound::{self, Listed};
use crate::common::{CORRELATION_ID, Heard, Raw};

/// Asks `R` with nothing in it, in every version between these; answers that cannot be read are a failure.
fn ask_empty<R: Request>(connection: &mut Raw, listed: &Listed, asked: &mut BTreeSet<i16>) {
    let (min, max) = listed.get(&R::KEY.code()).copied().expect("listed");
    for version in min.max(*R::VERSIONS.start())..=max {
        assert!(connection.ask(version, &R::default()).is_some(), "{} v{version} closes", R::KEY);
    }
    asked.insert(R::KEY.code());
}

fn ask_new_groups(connection: &mut Raw, listed: &Listed, asked: &mut BTreeSet<i16>) {
    macro_rules! ask {
        ($($module:ident::$request:ident),* $(,)?) => {
            $(ask_empty::<m::$module::$request>(connection, listed, asked);)*
        };
    }
    ask!(
        consumer_group_describe::ConsumerGroupDescribeRequest,
        consumer_group_heartbeat::ConsumerGroupHeartbeatRequest,
        alter_share_group_offsets::AlterShareGroupOffsetsRequest,
        delete_share_group_offsets::DeleteShareGroupOffsetsRequest,
        delete_share_group_state::DeleteShareGroupStateRequest,
        describe_share_group_offsets::DescribeShareGroupOffsetsRequest,
        initialize_share_group_state::InitializeShareGroupStateRequest,
        read_share_group_state::ReadShareGroupStateRequest,
        read_share_group_state_summary::ReadShareGroupStateSummaryRequest,
        share_acknowledge::ShareAcknowledgeRequest,
        share_fetch::ShareFetchRequest,
        share_group_describe::ShareGroupDescribeRequest,
        share_group_heartbeat::ShareGroupHeartbeatRequest,
        write_share_group_state::WriteShareGroupStateRequest,
    );
}

#[test]
fn every_listed_version_of_every_request_is_answered() {
    let broker = Broker::builder().memory().topic("orders", 1).spawn().expect("a broker in memory");
    let mut connection = Raw::connect(broker.addresses()[0]);
    let listed = sound::listed(broker.addresses()[0]);
    let mut asked = BTreeSet::new();
    macro_rules! ask {
        ($($module:ident::$request:ident),* $(,)?) => {
            $(ask_empty::<m::$module::$request>(&mut connection, &listed, &mut asked);)*
        };
    }
    ask!(
        add_offsets_to_txn::AddOffsetsToTxnRequest,
        add_partitions_to_txn::AddPartitionsToTxnRequest,
        add_raft_voter::AddRaftVoterRequest,
        alter_client_quotas::AlterClientQuotasRequest,
        alter_configs::AlterConfigsRequest,
        alter_partition_reassignments::AlterPartitionReassignmentsRequest,
        alter_replica_log_dirs::AlterReplicaLogDirsRequest,
        alter_user_scram_credentials::AlterUserScramCredentialsRequest,
        api_versions::ApiVersionsRequest,
        create_acls::CreateAclsRequest,
        create_delegation_token::CreateDelegationTokenRequest,
        create_partitions::CreatePartitionsRequest,
        create_topics::CreateTopicsRequest,
        delete_acls::DeleteAclsRequest,
        delete_groups::DeleteGroupsRequest,
        delete_records::DeleteRecordsRequest,
        delete_topics::DeleteTopicsRequest,
        describe_acls::DescribeAclsRequest,
        describe_client_quotas::DescribeClientQuotasRequest,
        describe_cluster::DescribeClusterRequest,
        describe_configs::DescribeConfigsRequest,
        describe_delegation_token::DescribeDelegationTokenRequest,
        describe_groups::DescribeGroupsRequest,
        describe_log_dirs::DescribeLogDirsRequest,
        describe_producers::DescribeProducersRequest,
        describe_quorum::DescribeQuorumRequest,
        describe_topic_partitions::DescribeTopicPartitionsRequest,
        describe_transactions::DescribeTransactionsRequest,
        describe_user_scram_credentials::DescribeUserScramCredentialsRequest,
        elect_leaders::ElectLeadersRequest,
        end_txn::EndTxnRequest,
        expire_delegation_token::ExpireDelegationTokenRequest,
        fetch::FetchRequest,
        find_coordinator::FindCoordinatorRequest,
        heartbeat::HeartbeatRequest,
        incremental_alter_configs::IncrementalAlterConfigsRequest,
        init_producer_id::InitProducerIdRequest,
        join_group::JoinGroupRequest,
        leave_group::LeaveGroupRequest,
        list_config_resources::ListConfigResourcesRequest,
        list_groups::ListGroupsRequest,
        list_offsets::ListOffsetsRequest,
        list_partition_reassignments::ListPartitionReassignmentsRequest,
        list_transactions::ListTransactionsRequest,
        metadata::MetadataRequest,
        offset_commit::OffsetCommitRequest,
        offset_delete::OffsetDeleteRequest,
        offset_fetch::OffsetFetchRequest,
        offset_for_leader_epoch::OffsetForLeaderEpochRequest,
        remove_raft_voter::RemoveRaftVoterRequest,
        renew_delegation_token::RenewDelegationTokenRequest,
        sasl_authenticate::SaslAuthenticateRequest,
        sasl_handshake::SaslHandshakeRequest,
        sync_group::SyncGroupRequest,
        txn_offset_commit::TxnOffsetCommitRequest,
        unregister_broker::UnregisterBrokerRequest,
        update_features::UpdateFeaturesRequest,
        write_txn_markers::WriteTxnMarkersRequest,
    );
    ask_new_groups(&mut connection, &listed, &mut asked);
    // acks=0 is the default of an empty produce request, and has no answer.
    for version in 3..=listed[&ApiKey::Produce.code()].1 {
        let request = m::produce::ProduceRequest { acks: 1, ..Default::default() };
        assert!(connection.ask(version, &request).is_some(), "Produce v{version} closes");
    }
    asked.insert(ApiKey::Produce.code());
    assert_eq!(asked, listed.keys().copied().collect(), "every request that is listed was asked");
}

#[test]
fn requests_with_something_in_them_are_answered_in_every_version() {
    let broker = Broker::builder().memory().topic("orders", 1).spawn().expect("a broker in memory");
    let mut connection = Raw::connect(broker.addresses()[0]);
    for sound in sound::in_every_version(broker.addresses()[0]) {
        connection.send(&sound.frame);
        match connection.hear() {
            Heard::Answer(answer) => {
                assert_eq!(answer[..4], CORRELATION_ID.to_be_bytes(), "{}", sound.name());
            }
            Heard::Closed => panic!("{} closes", sound.name()),
        }
    }
}

#[test]
fn a_broker_of_an_older_level_announces_and_answers_no_later_versions() {
    for (level, fetch_max, feature) in [
        (KafkaLevel::V0_11, 5, None),
        (KafkaLevel::V2_8, 12, None),
        (KafkaLevel::V3_9, 17, None),
        (KafkaLevel::V4_1, 18, Some(2)),
        (KafkaLevel::V4_3, 18, Some(2)),
    ] {
        let builder = Broker::builder().memory().configure(|config| config.as_version = level);
        let broker = builder.spawn().expect("a broker");
        let mut connection = Raw::connect(broker.addresses()[0]);
        let request =
            ApiVersionsRequest { client_software_name: "test".into(), client_software_version: "1".into() };
        let newest = if level == KafkaLevel::V0_11 { 1 } else { 3 };
        let answer = connection.ask(newest, &request).expect("an answer");
        let fetch = answer.api_keys.iter().find(|api| api.api_key == ApiKey::Fetch.code());
        assert_eq!(fetch.map(|api| api.max_version), Some(fetch_max), "{level:?}");
        let features = answer.finalized_features.iter();
        assert_eq!(features.map(|one| one.max_version_level).next(), feature, "{level:?}");
        let incremental =
            answer.api_keys.iter().any(|api| api.api_key == ApiKey::IncrementalAlterConfigs.code());
        assert_eq!(incremental, level >= KafkaLevel::V2_8, "{level:?}");
    }
}
