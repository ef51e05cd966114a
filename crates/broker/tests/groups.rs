//! Offsets of subscribed topics are kept; all other offsets of a group can be deleted.

mod common;

use bytes::Bytes;
use common::Raw;
use ottla_broker::Broker;
use ottla_protocol::ErrorCode;
use ottla_protocol::messages::consumer_protocol::ConsumerProtocolSubscription;
use ottla_protocol::messages::join_group::{JoinGroupRequest, JoinGroupRequestProtocol};
use ottla_protocol::messages::offset_commit::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use ottla_protocol::messages::offset_delete::{
    OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic,
};

/// Joins the only member. In this version the member need not rejoin with its id. The group has no assignment yet.
fn join(connection: &mut Raw, group: &str, protocol_type: &str, metadata: Bytes) {
    let request = JoinGroupRequest {
        group_id: group.into(),
        session_timeout_ms: 60_000,
        rebalance_timeout_ms: 60_000,
        protocol_type: protocol_type.into(),
        protocols: vec![JoinGroupRequestProtocol { name: "range".into(), metadata }],
        ..Default::default()
    };
    assert_eq!(connection.ask(3, &request).expect("an answer").error_code, ErrorCode::None);
}

fn commit(connection: &mut Raw, group: &str, topic: &str) {
    let partition =
        OffsetCommitRequestPartition { partition_index: 0, committed_offset: 5, ..Default::default() };
    let topic =
        OffsetCommitRequestTopic { name: topic.into(), partitions: vec![partition], ..Default::default() };
    let request = OffsetCommitRequest {
        group_id: group.into(),
        generation_id_or_member_epoch: -1,
        topics: vec![topic],
        ..Default::default()
    };
    let answer = connection.ask(8, &request).expect("an answer");
    assert_eq!(answer.topics[0].partitions[0].error_code, ErrorCode::None);
}

/// Deletes offsets. Returns the error codes of the group and of partition 0 of each topic.
fn forget(connection: &mut Raw, group: &str, topics: &[&str]) -> (ErrorCode, Vec<ErrorCode>) {
    let topics = topics.iter().map(|topic| OffsetDeleteRequestTopic {
        name: (*topic).into(),
        partitions: vec![OffsetDeleteRequestPartition { partition_index: 0 }],
    });
    let request = OffsetDeleteRequest { group_id: group.into(), topics: topics.collect() };
    let answer = connection.ask(0, &request).expect("an answer");
    let codes = answer.topics.iter().map(|topic| topic.partitions[0].error_code);
    (answer.error_code, codes.collect())
}

#[test]
fn offsets_of_a_topic_are_kept_while_members_subscribe_to_it() {
    let broker = Broker::builder().memory().topic("orders", 1).topic("returns", 1).spawn().expect("a broker");
    let mut connection = Raw::connect(broker.addresses()[0]);
    assert_eq!(forget(&mut connection, "billing", &["orders"]), (ErrorCode::GroupIdNotFound, Vec::new()));
    commit(&mut connection, "billing", "orders");
    commit(&mut connection, "billing", "returns");
    let subscription = ConsumerProtocolSubscription { topics: vec!["orders".into()], ..Default::default() };
    join(&mut connection, "billing", "consumer", subscription.to_bytes(1).expect("a subscription"));
    assert_eq!(
        forget(&mut connection, "billing", &["orders", "returns", "none"]),
        (
            ErrorCode::None,
            vec![ErrorCode::GroupSubscribedToTopic, ErrorCode::None, ErrorCode::UnknownTopicOrPartition]
        )
    );
}

#[test]
fn a_group_that_does_not_say_its_topics_keeps_all_offsets() {
    let broker = Broker::builder().memory().topic("orders", 1).spawn().expect("a broker");
    let mut connection = Raw::connect(broker.addresses()[0]);
    join(&mut connection, "odd", "consumer", Bytes::from_static(b"?"));
    let kept = vec![ErrorCode::GroupSubscribedToTopic];
    assert_eq!(forget(&mut connection, "odd", &["orders"]), (ErrorCode::None, kept));
    // The members of a group of another protocol type, for example Kafka Connect's workers, subscribe to no topics.
    join(&mut connection, "workers", "connect", Bytes::new());
    assert_eq!(forget(&mut connection, "workers", &["orders"]), (ErrorCode::NonEmptyGroup, Vec::new()));
}
