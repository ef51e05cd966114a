//! The requests that Kafka 4.2 and 4.3 changed: topics named by their ids, and offsets of tiered storage.

use ottla_broker::Broker;
use ottla_protocol::messages::list_offsets::{ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic};
use ottla_protocol::messages::metadata::{MetadataRequest, MetadataRequestTopic};
use ottla_protocol::messages::offset_commit::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use ottla_protocol::messages::offset_fetch::{
    OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics,
};
use ottla_protocol::{ErrorCode, Uuid};

use crate::common::{Raw, metadata_of};

/// No topic has this id.
const STRANGER: Uuid = Uuid([7; 16]);

fn id_of(connection: &mut Raw, topic: &str) -> Uuid {
    connection.ask(13, &metadata_of(topic)).expect("an answer").topics[0].topic_id
}

#[test]
fn offsets_are_committed_and_fetched_by_topic_id() {
    let broker = Broker::builder().memory().topic("orders", 1).topic("returns", 1).spawn().expect("a broker");
    let mut connection = Raw::connect(broker.addresses()[0]);
    let id = id_of(&mut connection, "orders");
    let topic = |topic_id, committed_offset| OffsetCommitRequestTopic {
        topic_id,
        partitions: vec![OffsetCommitRequestPartition { committed_offset, ..Default::default() }],
        ..Default::default()
    };
    let commit = OffsetCommitRequest {
        group_id: "billing".into(),
        generation_id_or_member_epoch: -1,
        topics: vec![topic(id, 5), topic(STRANGER, 6)],
        ..Default::default()
    };
    let answer = connection.ask(10, &commit).expect("an answer");
    let codes: Vec<_> =
        answer.topics.iter().map(|topic| (topic.topic_id, topic.partitions[0].error_code)).collect();
    assert_eq!(codes, [(id, ErrorCode::None), (STRANGER, ErrorCode::UnknownTopicId)]);

    let ask = |topics: Option<Vec<Uuid>>| OffsetFetchRequest {
        groups: vec![OffsetFetchRequestGroup {
            group_id: "billing".into(),
            topics: topics.map(|ids| {
                let topic = |topic_id| OffsetFetchRequestTopics {
                    topic_id,
                    partition_indexes: vec![0],
                    ..Default::default()
                };
                ids.into_iter().map(topic).collect()
            }),
            member_epoch: -1,
            ..Default::default()
        }],
        ..Default::default()
    };
    let mut fetch = |topics, version| {
        let answer = connection.ask(version, &ask(topics)).expect("an answer");
        let topics = answer.groups[0].topics.iter();
        let flat = topics.map(|topic| {
            let partition = &topic.partitions[0];
            (topic.name.clone(), topic.topic_id, partition.committed_offset, partition.error_code)
        });
        flat.collect::<Vec<_>>()
    };
    let none = ErrorCode::None;
    assert_eq!(
        fetch(Some(vec![id, STRANGER]), 10),
        [(String::new(), id, 5, none), (String::new(), STRANGER, -1, ErrorCode::UnknownTopicId)]
    );
    assert_eq!(fetch(None, 10), [(String::new(), id, 5, none)]);
    assert_eq!(fetch(None, 9), [("orders".to_owned(), Uuid::ZERO, 5, none)]);
}

#[test]
fn offsets_of_tiered_storage_need_the_version_that_introduced_them() {
    let broker = Broker::builder().memory().topic("orders", 1).spawn().expect("a broker");
    let mut connection = Raw::connect(broker.addresses()[0]);
    let mut ask = |version: i16, timestamp: i64| {
        let partition = ListOffsetsPartition { timestamp, ..Default::default() };
        let topic = ListOffsetsTopic { name: "orders".into(), partitions: vec![partition] };
        let request = ListOffsetsRequest { replica_id: -1, topics: vec![topic], ..Default::default() };
        let answer = connection.ask(version, &request).expect("an answer");
        let partition = &answer.topics[0].partitions[0];
        (partition.error_code, partition.offset)
    };
    for (timestamp, since, offset) in [(-3, 7, -1), (-4, 8, 0), (-5, 9, -1), (-6, 11, -1)] {
        assert_eq!(ask(since - 1, timestamp), (ErrorCode::UnsupportedVersion, -1), "{timestamp}");
        assert_eq!(ask(since, timestamp), (ErrorCode::None, offset), "{timestamp}");
    }
    assert_eq!(ask(11, -7), (ErrorCode::UnsupportedVersion, -1));
}

/// A topic that does not exist had another code.
#[test]
fn an_unknown_timestamp_is_refused_before_its_topic_is_looked_up() {
    let broker = Broker::builder().memory().topic("orders", 1).spawn().expect("a broker");
    let mut connection = Raw::connect(broker.addresses()[0]);
    let (refused, missing) = (ErrorCode::UnsupportedVersion, ErrorCode::UnknownTopicOrPartition);
    for (timestamp, code) in [(-7, refused), (i64::MIN, refused), (-6, missing), (-1, missing), (0, missing)]
    {
        let partition = ListOffsetsPartition { timestamp, ..Default::default() };
        let topic = ListOffsetsTopic { name: "returns".into(), partitions: vec![partition] };
        let request = ListOffsetsRequest { replica_id: -1, topics: vec![topic], ..Default::default() };
        let answer = connection.ask(11, &request).expect("an answer");
        assert_eq!(answer.topics[0].partitions[0].error_code, code, "{timestamp}");
    }
}

#[test]
fn metadata_prefers_a_topic_id_over_a_name() {
    let broker = Broker::builder().memory().topic("orders", 1).topic("returns", 1).spawn().expect("a broker");
    let mut connection = Raw::connect(broker.addresses()[0]);
    let id = id_of(&mut connection, "orders");
    for name in [Some(String::new()), Some("returns".to_owned()), Some("new".to_owned()), None] {
        let topic = MetadataRequestTopic { topic_id: id, name };
        let request = MetadataRequest {
            topics: Some(vec![topic]),
            allow_auto_topic_creation: true,
            ..Default::default()
        };
        let answer = connection.ask(13, &request).expect("an answer");
        assert_eq!(answer.topics[0].error_code, ErrorCode::None);
        assert_eq!(answer.topics[0].name.as_deref(), Some("orders"));
    }
    let answer = connection.ask(13, &MetadataRequest::default()).expect("an answer");
    assert_eq!(answer.topics.len(), 0, "no topic was created");
    let all = MetadataRequest { topics: None, ..Default::default() };
    assert_eq!(connection.ask(13, &all).expect("an answer").topics.len(), 2);
}

/// They were described. The fields are in these versions, but Kafka accepts them from version 12 on only.
#[test]
fn metadata_by_topic_id_is_refused_before_version_12() {
    let broker = Broker::builder().memory().topic("orders", 1).spawn().expect("a broker");
    let mut connection = Raw::connect(broker.addresses()[0]);
    let id = id_of(&mut connection, "orders");
    for (version, code) in
        [(10, ErrorCode::InvalidRequest), (11, ErrorCode::InvalidRequest), (12, ErrorCode::None)]
    {
        for name in [Some("orders".to_owned()), None] {
            let topics = vec![MetadataRequestTopic { topic_id: id, name }];
            let request = MetadataRequest { topics: Some(topics), ..Default::default() };
            let answer = connection.ask(version, &request).expect("an answer");
            let topics: Vec<_> =
                answer.topics.iter().map(|topic| (topic.error_code, topic.topic_id)).collect();
            assert_eq!(topics, [(code, id)], "version {version}");
        }
    }
}

/// Only a topic that exists was internal.
#[test]
fn an_internal_topic_that_does_not_exist_is_internal() {
    let broker = Broker::builder().memory().spawn().expect("a broker");
    let mut connection = Raw::connect(broker.addresses()[0]);
    for (name, is_internal) in [("__consumer_offsets", true), ("orders", false)] {
        let topic = MetadataRequestTopic { name: Some(name.into()), ..Default::default() };
        let topics = Some(vec![topic]);
        let request = MetadataRequest { topics, allow_auto_topic_creation: false, ..Default::default() };
        let answer = connection.ask(12, &request).expect("an answer");
        let topic = &answer.topics[0];
        assert_eq!((topic.error_code, topic.is_internal), (ErrorCode::UnknownTopicOrPartition, is_internal));
    }
}

/// The name was empty in all versions. Kafka's is null where it can be, and clients take that for "unknown".
#[test]
fn a_topic_id_that_does_not_exist_has_no_name() {
    let broker = Broker::builder().memory().spawn().expect("a broker");
    let mut connection = Raw::connect(broker.addresses()[0]);
    let topics = Some(vec![MetadataRequestTopic { topic_id: STRANGER, name: None }]);
    let request = MetadataRequest { topics, ..Default::default() };
    let answer = connection.ask(12, &request).expect("an answer");
    let topic = &answer.topics[0];
    assert_eq!((topic.error_code, topic.topic_id), (ErrorCode::UnknownTopicId, STRANGER));
    assert_eq!(topic.name, None);
}
