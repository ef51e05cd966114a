//! The calls of one principal, and the errors of their responses.

use std::fmt::Debug;

use bytes::Bytes;
use ottla_protocol::messages as m;
use ottla_protocol::{Request, Uuid};
use ottla_wire::Seal;

use crate::common::{Raw, batch, metadata_of, produce_request};

/// Requests of these kinds with a number of a filter that selects everything.
const ANY: i8 = 1;
const TOPIC_RESOURCE: i8 = 2;
const BROKER_RESOURCE: i8 = 4;
const GROUP_RESOURCE: i8 = 32;
/// No producer has it.
const PRODUCER_ID: i64 = 4_000_000;
/// The keys of FindCoordinator.
const GROUP_KEY: i8 = 0;
const TRANSACTION_KEY: i8 = 1;

/// A connection of a principal, and the errors of its calls so far.
pub(crate) struct Caller {
    principal: &'static str,
    raw: Raw,
    /// The call with its resource, and the errors.
    pub(crate) errors: Vec<(String, String)>,
}

impl Caller {
    pub(crate) fn new(principal: &'static str, raw: Raw) -> Self {
        Self { principal, raw, errors: Vec::new() }
    }

    fn ask<R: Request<Response: Debug>>(&mut self, resource: &str, version: i16, request: &R) -> R::Response {
        let call = format!("{}: {:?} v{version} of {resource}", self.principal, R::KEY);
        let Some(response) = self.raw.ask(version, request) else {
            panic!("{call}: the connection was closed");
        };
        self.note(call, &values(&format!("{response:?}"), "error_code: "));
        response
    }

    fn note(&mut self, call: String, values: &[&str]) {
        self.errors.push((call, values.join(" ")));
    }

    /// A list, with the names that it has.
    fn ask_list<R: Request<Response: Debug>>(&mut self, field: &str, version: i16, request: &R) {
        let response = format!("{:?}", self.ask("all", version, request));
        let mut listed = values(&response, field);
        listed.sort_unstable();
        self.note(format!("{}: the list of {:?} v{version}", self.principal, R::KEY), &listed);
    }

    /// Every call that names a topic and does not change it.
    pub(crate) fn use_topic(&mut self, topic: &str, id: Uuid) {
        let mut metadata = metadata_of(topic);
        metadata.allow_auto_topic_creation = false;
        metadata.include_topic_authorized_operations = true;
        let described = self.ask(topic, 9, &metadata);
        let operations = described.topics[0].topic_authorized_operations;
        self.note(format!("{}: operations of {topic}", self.principal), &[&operations.to_string()]);
        metadata.include_topic_authorized_operations = false;
        if let Some(topics) = &mut metadata.topics
            && id != Uuid::ZERO
        {
            (topics[0].name, topics[0].topic_id) = (None, id);
            self.ask(&format!("the id of {topic}"), 12, &metadata);
        }
        let topics = vec![m::describe_topic_partitions::TopicRequest { name: topic.into() }];
        let described =
            m::describe_topic_partitions::DescribeTopicPartitionsRequest { topics, ..Default::default() };
        self.ask(topic, 0, &described);
        self.use_records(topic, id);
        self.administer_topic(topic);
    }

    fn use_records(&mut self, topic: &str, id: Uuid) {
        let records = batch(&[b"one"], &Seal::default());
        self.ask(topic, 12, &produce_request(topic, 1, &records));
        self.ask(topic, 12, &fetch_request(topic, Uuid::ZERO));
        if id != Uuid::ZERO {
            let mut produce = produce_request("", 1, &records);
            produce.topic_data[0].topic_id = id;
            self.ask(&format!("the id of {topic}"), 13, &produce);
            self.ask(&format!("the id of {topic}"), 13, &fetch_request("", id));
        }
        let partition = m::list_offsets::ListOffsetsPartition {
            timestamp: -1,
            current_leader_epoch: -1,
            ..Default::default()
        };
        let topics =
            vec![m::list_offsets::ListOffsetsTopic { name: topic.into(), partitions: vec![partition] }];
        self.ask(topic, 7, &m::ListOffsetsRequest { replica_id: -1, topics, ..Default::default() });
        let partitions = vec![m::offset_for_leader_epoch::OffsetForLeaderPartition {
            current_leader_epoch: -1,
            ..Default::default()
        }];
        let topics =
            vec![m::offset_for_leader_epoch::OffsetForLeaderTopic { topic: topic.into(), partitions }];
        self.ask(topic, 4, &m::OffsetForLeaderEpochRequest { replica_id: -1, topics });
        let partitions = vec![m::delete_records::DeleteRecordsPartition { partition_index: 0, offset: 0 }];
        let topics = vec![m::delete_records::DeleteRecordsTopic { name: topic.into(), partitions }];
        self.ask(topic, 2, &m::DeleteRecordsRequest { topics, timeout_ms: 10_000 });
        let topics =
            vec![m::describe_producers::TopicRequest { name: topic.into(), partition_indexes: vec![0] }];
        self.ask(topic, 0, &m::DescribeProducersRequest { topics });
    }

    fn administer_topic(&mut self, topic: &str) {
        let created = m::create_topics::CreatableTopic {
            name: topic.into(),
            num_partitions: 1,
            replication_factor: 1,
            ..Default::default()
        };
        let request =
            m::CreateTopicsRequest { topics: vec![created], timeout_ms: 10_000, validate_only: true };
        self.ask(topic, 7, &request);
        let grown = m::create_partitions::CreatePartitionsTopic {
            name: topic.into(),
            count: 3,
            ..Default::default()
        };
        let request =
            m::CreatePartitionsRequest { topics: vec![grown], timeout_ms: 10_000, validate_only: true };
        self.ask(topic, 3, &request);
        self.use_settings(TOPIC_RESOURCE, topic, "retention.ms");
    }

    fn use_settings(&mut self, resource_type: i8, name: &str, key: &str) {
        let resources = vec![m::describe_configs::DescribeConfigsResource {
            resource_type,
            resource_name: name.into(),
            configuration_keys: Some(vec![key.into()]),
        }];
        self.ask(name, 4, &m::DescribeConfigsRequest { resources, ..Default::default() });
        let resources = vec![m::incremental_alter_configs::AlterConfigsResource {
            resource_type,
            resource_name: name.into(),
            configs: vec![m::incremental_alter_configs::AlterableConfig {
                name: key.into(),
                config_operation: 0,
                value: Some("50000".into()),
            }],
        }];
        self.ask(name, 1, &m::IncrementalAlterConfigsRequest { resources, validate_only: true });
        let resources = vec![m::alter_configs::AlterConfigsResource {
            resource_type,
            resource_name: name.into(),
            configs: vec![m::alter_configs::AlterableConfig {
                name: key.into(),
                value: Some("50000".into()),
            }],
        }];
        self.ask(name, 2, &m::AlterConfigsRequest { resources, validate_only: true });
    }

    /// A topic that does not exist, in a broker that creates topics.
    pub(crate) fn create_by_metadata(&mut self, topic: &str) {
        self.ask(&format!("{topic}, created"), 9, &metadata_of(topic));
    }

    /// Deletes a topic by its id, or by its name.
    pub(crate) fn delete_topic(&mut self, topic: &str, id: Uuid) {
        let is_by_id = id != Uuid::ZERO;
        let name = (!is_by_id).then(|| topic.to_owned());
        let topics = vec![m::delete_topics::DeleteTopicState { name, topic_id: id }];
        let request = m::DeleteTopicsRequest { topics, timeout_ms: 10_000, ..Default::default() };
        let resource = if is_by_id { format!("the id of {topic}") } else { topic.to_owned() };
        let response = self.ask(&resource, 6, &request);
        let shown = response.responses[0].name.as_deref().unwrap_or("no name");
        self.note(format!("{}: name in DeleteTopics of {resource}", self.principal), &[shown]);
    }

    /// Every call that names a group, and those of its offsets that name a topic.
    pub(crate) fn use_group(&mut self, group: &str, topics: &[&str]) {
        self.find_coordinator(GROUP_KEY, group);
        let group_id = || group.to_owned();
        let protocols =
            vec![m::join_group::JoinGroupRequestProtocol { name: "range".into(), ..Default::default() }];
        let join = m::JoinGroupRequest {
            group_id: group_id(),
            session_timeout_ms: 10_000,
            rebalance_timeout_ms: 10_000,
            // A member that does not exist: the call changes nothing.
            member_id: "stranger".into(),
            protocol_type: "consumer".into(),
            protocols,
            ..Default::default()
        };
        self.ask(group, 7, &join);
        let member_id = || "stranger".to_owned();
        let sync = m::SyncGroupRequest { group_id: group_id(), member_id: member_id(), ..Default::default() };
        self.ask(group, 3, &sync);
        let heartbeat =
            m::HeartbeatRequest { group_id: group_id(), member_id: member_id(), ..Default::default() };
        self.ask(group, 4, &heartbeat);
        let members = vec![m::leave_group::MemberIdentity { member_id: member_id(), ..Default::default() }];
        self.ask(group, 4, &m::LeaveGroupRequest { group_id: group_id(), members, ..Default::default() });
        self.ask(group, 5, &m::DescribeGroupsRequest { groups: vec![group_id()], ..Default::default() });
        self.ask(group, 6, &m::DescribeGroupsRequest { groups: vec![group_id()], ..Default::default() });
        let describe = m::ConsumerGroupDescribeRequest { group_ids: vec![group_id()], ..Default::default() };
        self.ask(group, 1, &describe);
        let describe = m::ShareGroupDescribeRequest { group_ids: vec![group_id()], ..Default::default() };
        self.ask(group, 1, &describe);
        self.use_settings(GROUP_RESOURCE, group, "consumer.session.timeout.ms");
        self.ask(group, 2, &m::DeleteGroupsRequest { groups_names: vec![format!("{group}-gone")] });
        for topic in topics {
            self.use_offsets(group, topic);
        }
    }

    fn use_offsets(&mut self, group: &str, topic: &str) {
        let (group_id, resource) = (|| group.to_owned(), format!("{group} and {topic}"));
        let heartbeat = m::ConsumerGroupHeartbeatRequest {
            group_id: group_id(),
            member_id: "stranger".into(),
            member_epoch: 5,
            subscribed_topic_names: Some(vec![topic.into()]),
            ..Default::default()
        };
        self.ask(&resource, 1, &heartbeat);
        let heartbeat = m::ShareGroupHeartbeatRequest {
            group_id: format!("{group}-shared"),
            member_id: "stranger".into(),
            member_epoch: 5,
            subscribed_topic_names: Some(vec![topic.into()]),
            ..Default::default()
        };
        self.ask(&resource, 1, &heartbeat);
        let mut commit = crate::common::commit_request(group, 0);
        commit.topics[0].name = topic.into();
        self.ask(&resource, 8, &commit);
        for topics in [Some(topic), None] {
            let topics = topics.map(|topic| {
                let partition_indexes = vec![0];
                vec![m::offset_fetch::OffsetFetchRequestTopics {
                    name: topic.into(),
                    partition_indexes,
                    ..Default::default()
                }]
            });
            let group = m::offset_fetch::OffsetFetchRequestGroup {
                group_id: group_id(),
                topics,
                ..Default::default()
            };
            self.ask_list("name: ", 8, &m::OffsetFetchRequest { groups: vec![group], ..Default::default() });
        }
        let partitions = vec![m::offset_delete::OffsetDeleteRequestPartition { partition_index: 1 }];
        let topics = vec![m::offset_delete::OffsetDeleteRequestTopic { name: topic.into(), partitions }];
        self.ask(&resource, 0, &m::OffsetDeleteRequest { group_id: group_id(), topics });
    }

    fn find_coordinator(&mut self, key_type: i8, key: &str) {
        let old = m::FindCoordinatorRequest { key: key.into(), key_type, ..Default::default() };
        self.ask(key, 3, &old);
        let coordinator_keys = vec![key.to_owned()];
        self.ask(key, 4, &m::FindCoordinatorRequest { key_type, coordinator_keys, ..Default::default() });
    }

    /// Every call that names a transactional id, and those that also name a topic or a group.
    pub(crate) fn use_transactional_id(&mut self, id: &str, topics: &[&str], groups: &[&str]) {
        self.find_coordinator(TRANSACTION_KEY, id);
        let transactional_id = || id.to_owned();
        let init = m::InitProducerIdRequest {
            transactional_id: Some(transactional_id()),
            transaction_timeout_ms: 60_000,
            ..Default::default()
        };
        self.ask(id, 4, &init);
        self.ask(id, 0, &m::DescribeTransactionsRequest { transactional_ids: vec![transactional_id()] });
        let end = m::EndTxnRequest {
            transactional_id: transactional_id(),
            producer_id: PRODUCER_ID,
            committed: true,
            ..Default::default()
        };
        self.ask(id, 3, &end);
        for topic in topics {
            let name = (*topic).to_owned();
            let v3_and_below_topics =
                vec![m::add_partitions_to_txn::AddPartitionsToTxnTopic { name, partitions: vec![0] }];
            let add = m::AddPartitionsToTxnRequest {
                v3_and_below_transactional_id: transactional_id(),
                v3_and_below_producer_id: PRODUCER_ID,
                v3_and_below_topics,
                ..Default::default()
            };
            self.ask(&format!("{id} and {topic}"), 3, &add);
        }
        for group in groups {
            let add = m::AddOffsetsToTxnRequest {
                transactional_id: transactional_id(),
                producer_id: PRODUCER_ID,
                group_id: (*group).into(),
                ..Default::default()
            };
            self.ask(&format!("{id} and {group}"), 3, &add);
            let partitions = vec![m::txn_offset_commit::TxnOffsetCommitRequestPartition::default()];
            let topics = vec![m::txn_offset_commit::TxnOffsetCommitRequestTopic {
                name: topics[0].into(),
                partitions,
            }];
            let commit = m::TxnOffsetCommitRequest {
                transactional_id: transactional_id(),
                group_id: (*group).into(),
                producer_id: PRODUCER_ID,
                topics,
                ..Default::default()
            };
            self.ask(&format!("{id} and {group}"), 3, &commit);
        }
    }

    /// Calls that name the cluster, and lists that have what the principal may see.
    pub(crate) fn use_cluster(&mut self) {
        let all = m::MetadataRequest { topics: None, ..Default::default() };
        self.ask_list("topic_authorized_operations: ", 9, &all);
        self.ask_list("name: Some(", 9, &all);
        self.ask_list("group_id: ", 4, &m::ListGroupsRequest::default());
        self.ask_list("transactional_id: ", 0, &m::ListTransactionsRequest::default());
        let describe =
            m::DescribeClusterRequest { include_cluster_authorized_operations: true, ..Default::default() };
        self.ask_list("cluster_authorized_operations: ", 1, &describe);
        let idempotent = m::InitProducerIdRequest { transaction_timeout_ms: 60_000, ..Default::default() };
        self.ask("no id", 4, &idempotent);
        self.ask("all", 3, &all_acls());
        self.ask("all", 0, &m::DescribeClientQuotasRequest::default());
        self.ask("all", 1, &m::ListConfigResourcesRequest::default());
        self.ask("all", 0, &m::DescribeUserScramCredentialsRequest::default());
        self.ask(
            "all",
            0,
            &m::ListPartitionReassignmentsRequest { timeout_ms: 10_000, ..Default::default() },
        );
        self.ask("all", 4, &m::DescribeLogDirsRequest { topics: Some(Vec::new()) });
        self.use_settings(BROKER_RESOURCE, "1", "log.retention.ms");
    }
}

fn fetch_request(topic: &str, topic_id: Uuid) -> m::FetchRequest {
    let partition = m::fetch::FetchPartition {
        partition_max_bytes: 1 << 20,
        current_leader_epoch: -1,
        ..Default::default()
    };
    m::FetchRequest {
        max_bytes: 1 << 20,
        topics: vec![m::fetch::FetchTopic { topic: topic.into(), topic_id, partitions: vec![partition] }],
        ..Default::default()
    }
}

/// The values of the fields of this name in a printed response.
fn values<'a>(response: &'a str, field: &str) -> Vec<&'a str> {
    response
        .match_indices(field)
        .map(|(at, _)| {
            let value = &response[at + field.len()..];
            value.split([',', ' ', '}', ')']).next().unwrap_or_default()
        })
        .collect()
}

/// Creates ACLs as a super user.
pub(crate) fn create_acls(raw: &mut Raw, creations: Vec<m::create_acls::AclCreation>) {
    let created = raw.ask(3, &m::CreateAclsRequest { creations }).expect("an answer");
    for result in created.results {
        assert_eq!(result.error_code, ottla_protocol::ErrorCode::None, "{:?}", result.error_message);
    }
}

/// The number of ACLs that a super user sees.
pub(crate) fn acl_count(raw: &mut Raw) -> usize {
    let described = raw.ask(3, &all_acls()).expect("an answer");
    described.resources.iter().map(|resource| resource.acls.len()).sum()
}

fn all_acls() -> m::DescribeAclsRequest {
    m::DescribeAclsRequest {
        resource_type_filter: ANY,
        resource_name_filter: None,
        pattern_type_filter: ANY,
        principal_filter: None,
        host_filter: None,
        operation: ANY,
        permission_type: ANY,
    }
}

/// Logs in with PLAIN.
pub(crate) fn login(raw: &mut Raw, user: &str, password: &str) {
    let handshake = m::SaslHandshakeRequest { mechanism: "PLAIN".into() };
    assert!(raw.ask(1, &handshake).is_some());
    let auth_bytes = Bytes::from(format!("\0{user}\0{password}"));
    let done = raw.ask(2, &m::SaslAuthenticateRequest { auth_bytes }).expect("an answer");
    assert_eq!(done.error_code, ottla_protocol::ErrorCode::None, "{:?}", done.error_message);
}
