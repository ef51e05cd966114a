//! Requests that name the same thing again and again are answered once for each: a request of 800 bytes had a response of 800 MB.

use bytes::Bytes;
use ottla_broker::{Broker, BrokerThread};
use ottla_protocol::ErrorCode;
use ottla_protocol::messages as m;
use ottla_protocol::messages::create_partitions::{CreatePartitionsRequest, CreatePartitionsTopic};
use ottla_protocol::messages::delete_groups::DeleteGroupsRequest;
use ottla_protocol::messages::delete_records::{
    DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic,
};
use ottla_protocol::messages::delete_topics::{DeleteTopicState, DeleteTopicsRequest};
use ottla_protocol::messages::describe_groups::DescribeGroupsRequest;
use ottla_protocol::messages::describe_producers::{DescribeProducersRequest, TopicRequest};
use ottla_protocol::messages::join_group::{JoinGroupRequest, JoinGroupRequestProtocol};
use ottla_protocol::messages::list_offsets::{ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic};
use ottla_protocol::messages::metadata::{MetadataRequest, MetadataRequestTopic};
use ottla_protocol::messages::offset_fetch::{
    OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics,
};
use ottla_wire::Seal;

use crate::acls;
use crate::common::sound::TOPIC;
use crate::common::{Raw, batch, commit_request, metadata_of, produce_request};

const TIMES: usize = 50;

fn broker() -> BrokerThread {
    Broker::builder().memory().topic("orders", 1).spawn().expect("a broker in memory")
}

#[test]
fn a_topic_that_is_named_again_is_described_once() {
    let broker = broker();
    let topic = |name: &str| MetadataRequestTopic { name: Some(name.into()), ..Default::default() };
    let names = ["orders"; TIMES].into_iter().chain(["missing"; TIMES]);
    let request = MetadataRequest { topics: Some(names.map(topic).collect()), ..Default::default() };
    let answer = Raw::connect(broker.addresses()[0]).ask(9, &request).expect("an answer");
    let described: Vec<_> = answer.topics.iter().map(|topic| topic.name.as_deref()).collect();
    assert_eq!(described, [Some("orders"), Some("missing")]);
}

/// Each name beside the same id had the whole description of the topic.
#[test]
fn a_topic_that_is_named_again_by_its_id_is_described_once() {
    let broker = broker();
    let mut connection = Raw::connect(broker.addresses()[0]);
    let by_name = MetadataRequestTopic { name: Some("orders".into()), ..Default::default() };
    let request = MetadataRequest { topics: Some(vec![by_name]), ..Default::default() };
    let topic_id = connection.ask(12, &request).expect("an answer").topics[0].topic_id;
    let by_id = |number: usize| {
        let name = (number > 0).then(|| format!("name-{number}"));
        MetadataRequestTopic { name, topic_id }
    };
    let request = MetadataRequest { topics: Some((0..TIMES).map(by_id).collect()), ..Default::default() };
    let answer = connection.ask(12, &request).expect("an answer");
    let described: Vec<_> =
        answer.topics.iter().map(|topic| (topic.name.as_deref(), topic.topic_id)).collect();
    assert_eq!(described, [(Some("orders"), topic_id)]);
}

#[test]
fn a_group_that_is_named_again_is_described_once() {
    let broker = broker();
    let request = DescribeGroupsRequest { groups: vec!["billing".into(); TIMES], ..Default::default() };
    let answer = Raw::connect(broker.addresses()[0]).ask(5, &request).expect("an answer");
    assert_eq!(answer.groups.len(), 1);
}

/// The group was deleted, and then it was an error that there is no such group.
#[test]
fn a_group_that_is_named_again_is_deleted_once() {
    let broker = broker();
    let mut connection = Raw::connect(broker.addresses()[0]);
    let committed = connection.ask(8, &commit_request("billing", 5)).expect("an answer");
    assert_eq!(committed.topics[0].partitions[0].error_code, ErrorCode::None);
    let request = DeleteGroupsRequest { groups_names: vec!["billing".into(); TIMES] };
    let results = connection.ask(2, &request).expect("an answer").results;
    assert_eq!(results.iter().map(|result| result.error_code).collect::<Vec<_>>(), [ErrorCode::None]);
}

#[test]
fn the_offsets_of_a_group_that_is_named_again_are_an_error() {
    let broker = broker();
    let mut connection = Raw::connect(broker.addresses()[0]);
    connection.ask(8, &commit_request("billing", 5)).expect("an answer");
    let group = OffsetFetchRequestGroup {
        group_id: "billing".into(),
        topics: None,
        member_epoch: -1,
        ..Default::default()
    };
    let request = OffsetFetchRequest { groups: vec![group; TIMES], ..Default::default() };
    let answer = connection.ask(8, &request).expect("an answer");
    let (first, others) = answer.groups.split_first().expect("a group");
    assert_eq!(first.error_code, ErrorCode::None);
    assert_eq!(first.topics[0].partitions[0].committed_offset, 5);
    assert!(others.iter().all(|group| group.error_code == ErrorCode::InvalidRequest));
    assert!(others.iter().all(|group| group.topics.is_empty()));
}

#[test]
fn the_offset_of_a_partition_that_is_named_again_is_in_the_response_once() {
    let broker = broker();
    let mut connection = Raw::connect(broker.addresses()[0]);
    connection.ask(8, &commit_request("billing", 5)).expect("an answer");
    let topic = OffsetFetchRequestTopics {
        name: "orders".into(),
        partition_indexes: vec![0; TIMES],
        ..Default::default()
    };
    let group = OffsetFetchRequestGroup {
        group_id: "billing".into(),
        topics: Some(vec![topic; TIMES]),
        member_epoch: -1,
        ..Default::default()
    };
    let request = OffsetFetchRequest { groups: vec![group], ..Default::default() };
    let answer = connection.ask(8, &request).expect("an answer");
    let topics = &answer.groups[0].topics;
    let offsets: Vec<i64> = topics
        .iter()
        .flat_map(|topic| &topic.partitions)
        .map(|partition| partition.committed_offset)
        .collect();
    assert_eq!(offsets, [5]);
}

#[test]
fn the_producers_of_a_partition_that_is_named_again_are_described_once() {
    let broker = broker();
    let topic = TopicRequest { name: "orders".into(), partition_indexes: vec![0; TIMES] };
    let request = DescribeProducersRequest { topics: vec![topic; TIMES] };
    let answer = Raw::connect(broker.addresses()[0]).ask(0, &request).expect("an answer");
    assert_eq!(answer.topics.iter().map(|topic| topic.partitions.len()).sum::<usize>(), 1);
}

/// Each lookup of a time takes a tenth of a second, and Kafka refuses such requests.
#[test]
fn offsets_of_a_partition_that_is_listed_again_are_an_error() {
    let broker = broker();
    let partition =
        |partition_index| ListOffsetsPartition { partition_index, current_leader_epoch: -1, timestamp: 0 };
    let topic = |indexes: &[i32]| ListOffsetsTopic {
        name: "orders".into(),
        partitions: indexes.iter().map(|index| partition(*index)).collect(),
    };
    let topics = vec![topic(&[0; TIMES]), topic(&[0, 1])];
    let request = ListOffsetsRequest { replica_id: -1, topics, ..Default::default() };
    let answer = Raw::connect(broker.addresses()[0]).ask(7, &request).expect("an answer");
    let listed: Vec<(i32, ErrorCode)> = answer
        .topics
        .iter()
        .flat_map(|topic| &topic.partitions)
        .map(|partition| (partition.partition_index, partition.error_code))
        .collect();
    assert_eq!(listed, [(0, ErrorCode::InvalidRequest), (1, ErrorCode::UnknownTopicOrPartition)]);
}

/// Each deletion waits for the disk.
#[test]
fn records_of_a_partition_that_is_named_again_are_deleted_once_before_the_last_offset() {
    let broker = broker();
    let mut connection = Raw::connect(broker.addresses()[0]);
    let bytes = batch(&[&b"a"[..], b"b", b"c"], &Seal::default());
    connection.ask(12, &produce_request("orders", -1, &bytes)).expect("an answer");
    let partition = |offset| DeleteRecordsPartition { partition_index: 0, offset };
    let topic = |offsets: &[i64]| DeleteRecordsTopic {
        name: "orders".into(),
        partitions: offsets.iter().map(|offset| partition(*offset)).collect(),
    };
    let topics = vec![topic(&[3; TIMES]), topic(&[2, 1])];
    let request = DeleteRecordsRequest { topics, timeout_ms: 1000 };
    let answer = connection.ask(2, &request).expect("an answer");
    let deleted: Vec<i64> = answer
        .topics
        .iter()
        .flat_map(|topic| &topic.partitions)
        .map(|partition| partition.low_watermark)
        .collect();
    assert_eq!(deleted, [1]);
}

fn join(connection: &mut Raw, client: &str, names: impl Iterator<Item = String>) -> ErrorCode {
    let protocols = names.map(|name| JoinGroupRequestProtocol { name, metadata: Bytes::new() });
    let request = JoinGroupRequest {
        group_id: client.into(),
        session_timeout_ms: 60_000,
        rebalance_timeout_ms: 60_000,
        protocol_type: "consumer".into(),
        protocols: protocols.collect(),
        ..Default::default()
    };
    connection.ask(3, &request).expect("an answer").error_code
}

/// Each join compared all names of the member with all names of each other one.
#[test]
fn a_member_with_very_many_protocols_is_refused() {
    let broker = broker();
    let mut connection = Raw::connect(broker.addresses()[0]);
    let names = |count: usize| (0..count).map(|number| format!("assignor-{number}"));
    assert_eq!(join(&mut connection, "usual", names(100)), ErrorCode::None);
    assert_eq!(join(&mut connection, "odd", names(101)), ErrorCode::InvalidRequest);
}

#[test]
fn a_topic_that_is_deleted_or_grown_twice_in_a_request_stays_as_it_is() {
    let broker = broker();
    let mut connection = Raw::connect(broker.addresses()[0]);
    let id = connection.ask(12, &metadata_of("orders")).expect("an answer").topics[0].topic_id;
    let named = DeleteTopicState { name: Some("orders".into()), ..Default::default() };
    let with_id = DeleteTopicState { topic_id: id, ..Default::default() };
    for twice in [[named.clone(), named.clone()], [with_id.clone(), with_id.clone()], [named, with_id]] {
        let request =
            DeleteTopicsRequest { topics: twice.to_vec(), timeout_ms: 10_000, ..Default::default() };
        let answer = connection.ask(6, &request).expect("an answer");
        let codes: Vec<ErrorCode> = answer.responses.iter().map(|topic| topic.error_code).collect();
        assert_eq!(codes, [ErrorCode::InvalidRequest]);
    }
    let grown = [2, 3].map(|count| CreatePartitionsTopic { name: "orders".into(), count, assignments: None });
    let request =
        CreatePartitionsRequest { topics: grown.to_vec(), timeout_ms: 10_000, validate_only: false };
    let answer = connection.ask(3, &request).expect("an answer");
    let codes: Vec<ErrorCode> = answer.results.iter().map(|topic| topic.error_code).collect();
    assert_eq!(codes, [ErrorCode::InvalidRequest]);
    assert!(broker.cluster().offsets_of("orders", 0).is_some());
    assert!(broker.cluster().offsets_of("orders", 1).is_none());
}

/// As in Kafka, a topic that is named twice is an error of the request. It was denied, twice.
#[test]
fn a_topic_that_is_named_again_is_invalid_whatever_the_rights_are() {
    let (_broker, mut connection) = acls::start(&acls::world(Vec::new()), &[]);
    let expected = [("secret", ErrorCode::InvalidRequest), (TOPIC, ErrorCode::TopicAuthorizationFailed)];
    let expected = expected.map(|(name, code)| (name.to_owned(), code));
    let names = ["secret", TOPIC, "secret"];

    let new = |name: &str| m::create_topics::CreatableTopic { name: name.into(), ..Default::default() };
    let topics = names.map(new).into();
    let request = m::CreateTopicsRequest { topics, timeout_ms: 10_000, ..Default::default() };
    let created = connection.ask(7, &request).expect("an answer").topics.into_iter();
    assert_eq!(created.map(|topic| (topic.name, topic.error_code)).collect::<Vec<_>>(), expected);

    let grown = |name: &str| CreatePartitionsTopic { name: name.into(), count: 2, ..Default::default() };
    let topics = names.map(grown).into();
    let request = CreatePartitionsRequest { topics, ..Default::default() };
    let grown = connection.ask(3, &request).expect("an answer").results.into_iter();
    assert_eq!(grown.map(|topic| (topic.name, topic.error_code)).collect::<Vec<_>>(), expected);

    let gone = |name: &str| DeleteTopicState { name: Some(name.into()), ..Default::default() };
    let topics = names.map(gone).into();
    let request = DeleteTopicsRequest { topics, timeout_ms: 10_000, ..Default::default() };
    let deleted = connection.ask(6, &request).expect("an answer").responses.into_iter();
    let deleted = deleted.map(|topic| (topic.name.unwrap_or_default(), topic.error_code));
    assert_eq!(deleted.collect::<Vec<_>>(), expected);

    let changed = |name: &str| m::incremental_alter_configs::AlterConfigsResource {
        resource_type: 2,
        resource_name: name.into(),
        ..Default::default()
    };
    let resources = names.map(changed).into();
    let request =
        m::incremental_alter_configs::IncrementalAlterConfigsRequest { resources, ..Default::default() };
    let changed = connection.ask(1, &request).expect("an answer").responses.into_iter();
    let (invalid, denied) = (ErrorCode::InvalidRequest, ErrorCode::TopicAuthorizationFailed);
    let codes = changed.map(|resource| resource.error_code).collect::<Vec<_>>();
    assert_eq!(codes, [invalid, invalid, denied], "as in Kafka, each has a result");
}
