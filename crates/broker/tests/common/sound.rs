//! A sound request for every API, with something in each of its fields.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::net::SocketAddr;

use bytes::Bytes;
use ottla_protocol::messages as m;
use ottla_protocol::messages::api_versions::ApiVersionsRequest;
use ottla_protocol::{ApiKey, Request, decode_response};
use ottla_wire::Seal;

use super::{Raw, batch, framed, metadata_of, produce_request};

/// The topic of all these requests.
pub(crate) const TOPIC: &str = "orders";
const GROUP: &str = "g";
/// The broker has no group protocol above this version of JoinGroup and Produce that these requests do not fill.
const PRODUCE_MIN: i16 = 3;

/// The versions of each API that a broker lists.
pub(crate) type Listed = BTreeMap<i16, (i16, i16)>;

pub(crate) struct Sound {
    pub(crate) api: ApiKey,
    pub(crate) version: i16,
    pub(crate) frame: Vec<u8>,
    /// The fields of a response to it, as text.
    pub(crate) response_text: fn(Bytes, i16) -> String,
}

impl Sound {
    pub(crate) fn name(&self) -> String {
        format!("{} v{}", self.api, self.version)
    }
}

fn hello() -> ApiVersionsRequest {
    ApiVersionsRequest { client_software_name: "story".into(), client_software_version: "1".into() }
}

/// Returns what the broker lists in its ApiVersions response.
pub(crate) fn listed(address: SocketAddr) -> Listed {
    let versions = Raw::connect(address).ask(4, &hello()).expect("an answer");
    versions.api_keys.iter().map(|api| (api.api_key, (api.min_version, api.max_version))).collect()
}

/// The requests in the lowest and the highest listed version.
pub(crate) fn in_outer_versions(address: SocketAddr) -> Vec<Sound> {
    let mut all = in_every_version(address);
    let listed = listed(address);
    all.retain(|sound| {
        let (min, max) = listed[&sound.api.code()];
        sound.version == max
            || sound.version == min.max(if sound.api == ApiKey::Produce { PRODUCE_MIN } else { min })
    });
    all
}

/// The requests in every listed version.
pub(crate) fn in_every_version(address: SocketAddr) -> Vec<Sound> {
    let mut all = All { listed: listed(address), sound: Vec::new() };
    records(&mut all);
    topics(&mut all);
    configs(&mut all);
    groups(&mut all);
    offsets(&mut all);
    transactions(&mut all);
    administration(&mut all);
    cluster_metadata(&mut all);
    security(&mut all);
    for api in all.listed.keys() {
        assert!(all.sound.iter().any(|sound| sound.api.code() == *api), "no request for API {api}");
    }
    all.sound
}

struct All {
    listed: Listed,
    sound: Vec<Sound>,
}

fn response_text<R: Request<Response: Debug>>(frame: Bytes, version: i16) -> String {
    let (_, response) = decode_response::<R>(frame, version).expect("an answer that can be read");
    format!("{response:?}")
}

impl All {
    fn add<R: Request<Response: Debug>>(&mut self, request: impl Fn(i16) -> R) {
        let (mut min, max) = self.listed[&R::KEY.code()];
        if R::KEY == ApiKey::Produce {
            // The records are of a version that the older requests do not have.
            min = PRODUCE_MIN;
        }
        for version in min..=max {
            let (api, frame) = (R::KEY, framed(version, &request(version)));
            self.sound.push(Sound { api, version, frame, response_text: response_text::<R> });
        }
    }
}

fn share_groups(all: &mut All) {
    const SHARE_GROUP: &str = "workers";
    let topic_id = ottla_protocol::Uuid([7; 16]);
    all.add(|_| m::share_group_heartbeat::ShareGroupHeartbeatRequest {
        group_id: SHARE_GROUP.into(),
        member_id: "member".into(),
        subscribed_topic_names: Some(vec!["orders".into()]),
        ..Default::default()
    });
    all.add(|_| m::share_group_describe::ShareGroupDescribeRequest {
        group_ids: vec![SHARE_GROUP.into()],
        ..Default::default()
    });
    all.add(|_| m::describe_share_group_offsets::DescribeShareGroupOffsetsRequest {
        groups: vec![m::describe_share_group_offsets::DescribeShareGroupOffsetsRequestGroup {
            group_id: SHARE_GROUP.into(),
            topics: Some(vec![m::describe_share_group_offsets::DescribeShareGroupOffsetsRequestTopic {
                topic_name: "orders".into(),
                partitions: vec![0],
            }]),
        }],
    });
    all.add(|_| m::alter_share_group_offsets::AlterShareGroupOffsetsRequest {
        group_id: SHARE_GROUP.into(),
        topics: vec![m::alter_share_group_offsets::AlterShareGroupOffsetsRequestTopic {
            topic_name: "orders".into(),
            partitions: vec![m::alter_share_group_offsets::AlterShareGroupOffsetsRequestPartition {
                partition_index: 0,
                start_offset: 1,
            }],
        }],
    });
    all.add(|_| m::delete_share_group_offsets::DeleteShareGroupOffsetsRequest {
        group_id: SHARE_GROUP.into(),
        topics: vec![m::delete_share_group_offsets::DeleteShareGroupOffsetsRequestTopic {
            topic_name: "orders".into(),
        }],
    });
    all.add(|_| m::initialize_share_group_state::InitializeShareGroupStateRequest {
        group_id: SHARE_GROUP.into(),
        topics: vec![m::initialize_share_group_state::InitializeStateData {
            topic_id,
            partitions: vec![m::initialize_share_group_state::PartitionData::default()],
        }],
    });
    all.add(|_| m::read_share_group_state::ReadShareGroupStateRequest {
        group_id: SHARE_GROUP.into(),
        topics: vec![m::read_share_group_state::ReadStateData {
            topic_id,
            partitions: vec![m::read_share_group_state::PartitionData::default()],
        }],
    });
    all.add(|_| m::write_share_group_state::WriteShareGroupStateRequest {
        group_id: SHARE_GROUP.into(),
        topics: vec![m::write_share_group_state::WriteStateData {
            topic_id,
            partitions: vec![m::write_share_group_state::PartitionData {
                state_batches: vec![m::write_share_group_state::StateBatch::default()],
                ..Default::default()
            }],
        }],
    });
    all.add(|_| m::delete_share_group_state::DeleteShareGroupStateRequest {
        group_id: SHARE_GROUP.into(),
        topics: vec![m::delete_share_group_state::DeleteStateData {
            topic_id,
            partitions: vec![m::delete_share_group_state::PartitionData::default()],
        }],
    });
    all.add(|_| m::read_share_group_state_summary::ReadShareGroupStateSummaryRequest {
        group_id: SHARE_GROUP.into(),
        topics: vec![m::read_share_group_state_summary::ReadStateSummaryData {
            topic_id,
            partitions: vec![m::read_share_group_state_summary::PartitionData::default()],
        }],
    });
}

fn records(all: &mut All) {
    let records = batch(&[b"one", b"two"], &Seal::default());
    all.add(|_| produce_request(TOPIC, 1, &records));
    all.add(|_| m::fetch::FetchRequest {
        max_wait_ms: 0,
        min_bytes: 0,
        max_bytes: 1 << 20,
        topics: vec![m::fetch::FetchTopic {
            topic: TOPIC.into(),
            partitions: vec![m::fetch::FetchPartition { partition_max_bytes: 1 << 20, ..Default::default() }],
            ..Default::default()
        }],
        ..Default::default()
    });
    all.add(|_| m::list_offsets::ListOffsetsRequest {
        replica_id: -1,
        topics: vec![m::list_offsets::ListOffsetsTopic {
            name: TOPIC.into(),
            partitions: vec![m::list_offsets::ListOffsetsPartition { timestamp: -1, ..Default::default() }],
        }],
        ..Default::default()
    });
    all.add(|_| m::offset_for_leader_epoch::OffsetForLeaderEpochRequest {
        replica_id: -1,
        topics: vec![m::offset_for_leader_epoch::OffsetForLeaderTopic {
            topic: TOPIC.into(),
            partitions: vec![m::offset_for_leader_epoch::OffsetForLeaderPartition {
                current_leader_epoch: -1,
                ..Default::default()
            }],
        }],
    });
    all.add(|_| m::delete_records::DeleteRecordsRequest {
        topics: vec![m::delete_records::DeleteRecordsTopic {
            name: TOPIC.into(),
            partitions: vec![m::delete_records::DeleteRecordsPartition { partition_index: 0, offset: 0 }],
        }],
        timeout_ms: 1000,
    });
    all.add(|_| m::elect_leaders::ElectLeadersRequest {
        topic_partitions: Some(vec![m::elect_leaders::TopicPartitions {
            topic: TOPIC.into(),
            partitions: vec![0],
        }]),
        timeout_ms: 1000,
        ..Default::default()
    });
    all.add(|_| m::describe_producers::DescribeProducersRequest {
        topics: vec![m::describe_producers::TopicRequest { name: TOPIC.into(), partition_indexes: vec![0] }],
    });
    all.add(|_| m::write_txn_markers::WriteTxnMarkersRequest {
        markers: vec![m::write_txn_markers::WritableTxnMarker {
            producer_id: 9999,
            topics: vec![m::write_txn_markers::WritableTxnMarkerTopic {
                name: "missing".into(),
                partition_indexes: vec![0],
            }],
            ..Default::default()
        }],
    });
    all.add(|_| m::init_producer_id::InitProducerIdRequest {
        transaction_timeout_ms: 1000,
        ..Default::default()
    });
}

fn transactions(all: &mut All) {
    let id = || "till-1".to_owned();
    all.add(|version| {
        let topics = vec![m::add_partitions_to_txn::AddPartitionsToTxnTopic {
            name: TOPIC.into(),
            partitions: vec![0, 1],
        }];
        if version >= 4 {
            let transaction = m::add_partitions_to_txn::AddPartitionsToTxnTransaction {
                transactional_id: id(),
                producer_id: 7,
                verify_only: true,
                topics,
                ..Default::default()
            };
            return m::add_partitions_to_txn::AddPartitionsToTxnRequest {
                transactions: vec![transaction],
                ..Default::default()
            };
        }
        m::add_partitions_to_txn::AddPartitionsToTxnRequest {
            v3_and_below_transactional_id: id(),
            v3_and_below_producer_id: 7,
            v3_and_below_topics: topics,
            ..Default::default()
        }
    });
    all.add(|_| m::add_offsets_to_txn::AddOffsetsToTxnRequest {
        transactional_id: id(),
        group_id: "billing".into(),
        ..Default::default()
    });
    all.add(|_| m::end_txn::EndTxnRequest {
        transactional_id: id(),
        producer_id: 7,
        committed: true,
        ..Default::default()
    });
    all.add(|_| m::describe_transactions::DescribeTransactionsRequest {
        transactional_ids: vec![id(), id()],
    });
    all.add(|version| m::list_transactions::ListTransactionsRequest {
        state_filters: vec!["Ongoing".into(), "Empty".into()],
        producer_id_filters: vec![7, 8],
        transactional_id_pattern: (version >= 2).then(|| "till-.*".to_owned()),
        ..Default::default()
    });
}

fn administration(all: &mut All) {
    all.add(|_| m::describe_log_dirs::DescribeLogDirsRequest {
        topics: Some(vec![m::describe_log_dirs::DescribableLogDirTopic {
            topic: TOPIC.into(),
            partitions: vec![0],
        }]),
    });
    all.add(|_| m::alter_replica_log_dirs::AlterReplicaLogDirsRequest {
        dirs: vec![m::alter_replica_log_dirs::AlterReplicaLogDir {
            path: "/no/such/directory".into(),
            topics: vec![m::alter_replica_log_dirs::AlterReplicaLogDirTopic {
                name: TOPIC.into(),
                partitions: vec![0],
            }],
        }],
    });
    all.add(|_| m::alter_partition_reassignments::AlterPartitionReassignmentsRequest {
        timeout_ms: 1000,
        topics: vec![m::alter_partition_reassignments::ReassignableTopic {
            name: TOPIC.into(),
            partitions: vec![m::alter_partition_reassignments::ReassignablePartition {
                partition_index: 0,
                replicas: Some(vec![1]),
            }],
        }],
        ..Default::default()
    });
    all.add(|_| m::list_partition_reassignments::ListPartitionReassignmentsRequest {
        timeout_ms: 1000,
        topics: Some(vec![m::list_partition_reassignments::ListPartitionReassignmentsTopics {
            name: TOPIC.into(),
            partition_indexes: vec![0],
        }]),
    });
    all.add(|_| m::describe_client_quotas::DescribeClientQuotasRequest {
        components: vec![m::describe_client_quotas::ComponentData {
            entity_type: "user".into(),
            match_type: 0,
            r#match: Some("anna".into()),
        }],
        strict: true,
    });
    all.add(|_| m::alter_client_quotas::AlterClientQuotasRequest {
        entries: vec![m::alter_client_quotas::EntryData {
            entity: vec![m::alter_client_quotas::EntityData {
                entity_type: "user".into(),
                entity_name: Some("anna".into()),
            }],
            ops: vec![m::alter_client_quotas::OpData {
                key: "producer_byte_rate".into(),
                value: 1000.0,
                remove: false,
            }],
        }],
        validate_only: true,
    });
}

fn cluster_metadata(all: &mut All) {
    all.add(|version| m::update_features::UpdateFeaturesRequest {
        feature_updates: vec![m::update_features::FeatureUpdateKey {
            feature: "transaction.version".into(),
            max_version_level: 2,
            ..Default::default()
        }],
        validate_only: version >= 1,
        ..Default::default()
    });
    all.add(|_| m::describe_quorum::DescribeQuorumRequest {
        topics: vec![m::describe_quorum::requested::TopicData {
            topic_name: "__cluster_metadata".into(),
            partitions: vec![m::describe_quorum::requested::PartitionData { partition_index: 0 }],
        }],
    });
    all.add(|_| m::unregister_broker::UnregisterBrokerRequest { broker_id: 99 });
    all.add(|_| m::add_raft_voter::AddRaftVoterRequest {
        cluster_id: Some("other".into()),
        voter_id: 2,
        listeners: vec![m::add_raft_voter::Listener {
            name: "CONTROLLER".into(),
            host: "localhost".into(),
            port: 9093,
        }],
        ..Default::default()
    });
    all.add(|_| m::remove_raft_voter::RemoveRaftVoterRequest {
        cluster_id: Some("other".into()),
        voter_id: 2,
        ..Default::default()
    });
}

fn security(all: &mut All) {
    all.add(|_| m::sasl_handshake::SaslHandshakeRequest { mechanism: "PLAIN".into() });
    all.add(|_| m::sasl_authenticate::SaslAuthenticateRequest {
        auth_bytes: Bytes::from_static(b"\0anna\0secret"),
    });
    all.add(|_| m::describe_user_scram_credentials::DescribeUserScramCredentialsRequest {
        users: Some(vec![m::describe_user_scram_credentials::UserName { name: "anna".into() }]),
    });
    all.add(|_| m::alter_user_scram_credentials::AlterUserScramCredentialsRequest {
        deletions: vec![m::alter_user_scram_credentials::ScramCredentialDeletion {
            name: "anna".into(),
            mechanism: 1,
        }],
        upsertions: vec![m::alter_user_scram_credentials::ScramCredentialUpsertion {
            name: "bo".into(),
            mechanism: 1,
            iterations: 4096,
            salt: Bytes::from_static(b"salt"),
            salted_password: Bytes::from_static(b"salted"),
        }],
    });
    acls(all);
    all.add(|_| m::create_delegation_token::CreateDelegationTokenRequest {
        renewers: vec![m::create_delegation_token::CreatableRenewers {
            principal_type: "User".into(),
            principal_name: "anna".into(),
        }],
        ..Default::default()
    });
    all.add(|_| m::renew_delegation_token::RenewDelegationTokenRequest {
        hmac: Bytes::from_static(b"hmac"),
        renew_period_ms: 1000,
    });
    all.add(|_| m::expire_delegation_token::ExpireDelegationTokenRequest {
        hmac: Bytes::from_static(b"hmac"),
        expiry_time_period_ms: 1000,
    });
    all.add(|_| m::describe_delegation_token::DescribeDelegationTokenRequest {
        owners: Some(vec![m::describe_delegation_token::DescribeDelegationTokenOwner::default()]),
    });
}

/// Each names one ACL: anna may read the topic.
fn acls(all: &mut All) {
    const TOPIC_RESOURCE: i8 = 2;
    const LITERAL: i8 = 3;
    const READ: i8 = 3;
    const ALLOW: i8 = 3;
    let user = || "User:anna".to_owned();
    all.add(|_| m::describe_acls::DescribeAclsRequest {
        resource_type_filter: TOPIC_RESOURCE,
        resource_name_filter: Some(TOPIC.into()),
        pattern_type_filter: LITERAL,
        principal_filter: Some(user()),
        host_filter: Some("*".into()),
        operation: READ,
        permission_type: ALLOW,
    });
    all.add(|_| m::create_acls::CreateAclsRequest {
        creations: vec![m::create_acls::AclCreation {
            resource_type: TOPIC_RESOURCE,
            resource_name: TOPIC.into(),
            resource_pattern_type: LITERAL,
            principal: user(),
            host: "*".into(),
            operation: READ,
            permission_type: ALLOW,
        }],
    });
    all.add(|_| m::delete_acls::DeleteAclsRequest {
        filters: vec![m::delete_acls::DeleteAclsFilter {
            resource_type_filter: TOPIC_RESOURCE,
            resource_name_filter: Some(TOPIC.into()),
            pattern_type_filter: LITERAL,
            principal_filter: Some(user()),
            host_filter: Some("*".into()),
            operation: READ,
            permission_type: ALLOW,
        }],
    });
}

fn topics(all: &mut All) {
    all.add(|_| hello());
    all.add(|_| m::describe_cluster::DescribeClusterRequest::default());
    all.add(|_| m::metadata::MetadataRequest { topics: metadata_of(TOPIC).topics, ..Default::default() });
    all.add(|_| m::describe_topic_partitions::DescribeTopicPartitionsRequest {
        topics: vec![m::describe_topic_partitions::TopicRequest { name: TOPIC.into() }],
        response_partition_limit: 10,
        cursor: Some(m::describe_topic_partitions::Cursor { topic_name: TOPIC.into(), partition_index: 0 }),
    });
    all.add(|_| m::create_topics::CreateTopicsRequest {
        topics: vec![m::create_topics::CreatableTopic {
            name: TOPIC.into(),
            num_partitions: 1,
            replication_factor: 1,
            configs: vec![m::create_topics::CreatableTopicConfig {
                name: "retention.ms".into(),
                value: Some("1000000".into()),
            }],
            ..Default::default()
        }],
        timeout_ms: 1000,
        validate_only: true,
    });
    all.add(|_| m::create_partitions::CreatePartitionsRequest {
        topics: vec![m::create_partitions::CreatePartitionsTopic {
            name: TOPIC.into(),
            count: 3,
            ..Default::default()
        }],
        timeout_ms: 1000,
        validate_only: true,
    });
    all.add(|version| {
        let name: String = "gone".into();
        let state = m::delete_topics::DeleteTopicState { name: Some(name.clone()), ..Default::default() };
        m::delete_topics::DeleteTopicsRequest {
            topics: if version >= 6 { vec![state] } else { Vec::new() },
            topic_names: if version >= 6 { Vec::new() } else { vec![name] },
            timeout_ms: 1000,
        }
    });
}

fn configs(all: &mut All) {
    const TOPIC_RESOURCE: i8 = 2;
    all.add(|_| m::describe_configs::DescribeConfigsRequest {
        resources: vec![m::describe_configs::DescribeConfigsResource {
            resource_type: TOPIC_RESOURCE,
            resource_name: TOPIC.into(),
            configuration_keys: Some(vec!["retention.ms".into()]),
        }],
        include_synonyms: true,
        ..Default::default()
    });
    all.add(|_| m::alter_configs::AlterConfigsRequest {
        resources: vec![m::alter_configs::AlterConfigsResource {
            resource_type: TOPIC_RESOURCE,
            resource_name: TOPIC.into(),
            configs: vec![m::alter_configs::AlterableConfig {
                name: "retention.ms".into(),
                value: Some("1000000".into()),
            }],
        }],
        validate_only: true,
    });
    all.add(|_| m::incremental_alter_configs::IncrementalAlterConfigsRequest {
        resources: vec![m::incremental_alter_configs::AlterConfigsResource {
            resource_type: TOPIC_RESOURCE,
            resource_name: TOPIC.into(),
            configs: vec![m::incremental_alter_configs::AlterableConfig {
                name: "retention.ms".into(),
                config_operation: 0,
                value: Some("1000000".into()),
            }],
        }],
        validate_only: true,
    });
    all.add(|version| m::list_config_resources::ListConfigResourcesRequest {
        // Version 0 has no kinds.
        resource_types: if version >= 1 { vec![TOPIC_RESOURCE] } else { Vec::new() },
    });
}

fn groups(all: &mut All) {
    all.add(|_| m::join_group::JoinGroupRequest {
        group_id: GROUP.into(),
        session_timeout_ms: 10_000,
        member_id: "nobody".into(),
        protocol_type: "consumer".into(),
        protocols: vec![m::join_group::JoinGroupRequestProtocol {
            name: "range".into(),
            metadata: Bytes::from_static(b"meta"),
        }],
        ..Default::default()
    });
    all.add(|_| m::sync_group::SyncGroupRequest {
        group_id: GROUP.into(),
        generation_id: 1,
        member_id: "nobody".into(),
        protocol_type: Some("consumer".into()),
        protocol_name: Some("range".into()),
        assignments: vec![m::sync_group::SyncGroupRequestAssignment {
            member_id: "nobody".into(),
            assignment: Bytes::from_static(b"assigned"),
        }],
        ..Default::default()
    });
    all.add(|_| m::consumer_group_heartbeat::ConsumerGroupHeartbeatRequest {
        group_id: "shares".into(),
        member_id: "member".into(),
        rebalance_timeout_ms: 60_000,
        subscribed_topic_names: Some(vec!["orders".into()]),
        topic_partitions: Some(Vec::new()),
        ..Default::default()
    });
    all.add(|_| m::consumer_group_describe::ConsumerGroupDescribeRequest {
        group_ids: vec!["shares".into()],
        ..Default::default()
    });
    share_groups(all);
    all.add(|_| m::share_fetch::ShareFetchRequest {
        group_id: Some("shares".into()),
        member_id: Some("member".into()),
        ..Default::default()
    });
    all.add(|_| m::share_acknowledge::ShareAcknowledgeRequest {
        group_id: Some("shares".into()),
        member_id: Some("member".into()),
        share_session_epoch: 1,
        ..Default::default()
    });
    all.add(|_| m::heartbeat::HeartbeatRequest {
        group_id: GROUP.into(),
        generation_id: 1,
        member_id: "nobody".into(),
        ..Default::default()
    });
    all.add(|version| {
        let member = m::leave_group::MemberIdentity { member_id: "nobody".into(), ..Default::default() };
        m::leave_group::LeaveGroupRequest {
            group_id: GROUP.into(),
            member_id: if version >= 3 { String::new() } else { "nobody".into() },
            members: if version >= 3 { vec![member] } else { Vec::new() },
        }
    });
    all.add(|version| m::find_coordinator::FindCoordinatorRequest {
        key: if version >= 4 { String::new() } else { GROUP.into() },
        coordinator_keys: if version >= 4 { vec![GROUP.into()] } else { Vec::new() },
        ..Default::default()
    });
    all.add(|_| m::describe_groups::DescribeGroupsRequest {
        groups: vec![GROUP.into()],
        ..Default::default()
    });
    all.add(|version| m::list_groups::ListGroupsRequest {
        states_filter: if version >= 4 { vec!["Stable".into()] } else { Vec::new() },
        types_filter: if version >= 5 { vec!["classic".into()] } else { Vec::new() },
    });
    all.add(|_| m::delete_groups::DeleteGroupsRequest { groups_names: vec!["gone".into()] });
}

fn offsets(all: &mut All) {
    all.add(|_| m::offset_commit::OffsetCommitRequest {
        group_id: GROUP.into(),
        generation_id_or_member_epoch: -1,
        topics: vec![m::offset_commit::OffsetCommitRequestTopic {
            name: TOPIC.into(),
            partitions: vec![m::offset_commit::OffsetCommitRequestPartition {
                committed_metadata: Some("note".into()),
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    });
    all.add(|version| {
        let in_group = m::offset_fetch::OffsetFetchRequestTopics {
            name: TOPIC.into(),
            partition_indexes: vec![0],
            ..Default::default()
        };
        let group = m::offset_fetch::OffsetFetchRequestGroup {
            group_id: GROUP.into(),
            topics: Some(vec![in_group]),
            ..Default::default()
        };
        let single =
            m::offset_fetch::OffsetFetchRequestTopic { name: TOPIC.into(), partition_indexes: vec![0] };
        m::offset_fetch::OffsetFetchRequest {
            group_id: if version >= 8 { String::new() } else { GROUP.into() },
            topics: if version >= 8 { Some(Vec::new()) } else { Some(vec![single]) },
            groups: if version >= 8 { vec![group] } else { Vec::new() },
            ..Default::default()
        }
    });
    all.add(|version| m::txn_offset_commit::TxnOffsetCommitRequest {
        transactional_id: "transfers".into(),
        group_id: GROUP.into(),
        generation_id: if version >= 3 { 1 } else { -1 },
        topics: vec![m::txn_offset_commit::TxnOffsetCommitRequestTopic {
            name: TOPIC.into(),
            partitions: vec![m::txn_offset_commit::TxnOffsetCommitRequestPartition {
                committed_metadata: Some("note".into()),
                ..Default::default()
            }],
        }],
        ..Default::default()
    });
    all.add(|_| m::offset_delete::OffsetDeleteRequest {
        group_id: GROUP.into(),
        topics: vec![m::offset_delete::OffsetDeleteRequestTopic {
            name: TOPIC.into(),
            partitions: vec![m::offset_delete::OffsetDeleteRequestPartition { partition_index: 0 }],
        }],
    });
}
