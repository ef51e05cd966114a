//! Offsets of subscribed topics are kept; all other offsets of a group can be deleted.

#![allow(clippy::disallowed_methods, reason = "a test is a shell: it measures time")]

use std::time::{Duration, Instant};

use bytes::Bytes;
use ottla_broker::Broker;
use ottla_protocol::ErrorCode;
use ottla_protocol::messages::consumer_protocol::ConsumerProtocolSubscription;
use ottla_protocol::messages::delete_groups::DeleteGroupsRequest;
use ottla_protocol::messages::describe_groups::DescribeGroupsRequest;
use ottla_protocol::messages::heartbeat::HeartbeatRequest;
use ottla_protocol::messages::join_group::{JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse};
use ottla_protocol::messages::leave_group::{LeaveGroupRequest, MemberIdentity};
use ottla_protocol::messages::list_groups::ListGroupsRequest;
use ottla_protocol::messages::offset_commit::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use ottla_protocol::messages::offset_delete::{
    OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic,
};
use ottla_protocol::messages::sync_group::{SyncGroupRequest, SyncGroupRequestAssignment};

use crate::common::{Raw, commit_request};

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
fn an_offset_of_a_partition_that_does_not_exist_cannot_be_deleted() {
    let broker = Broker::builder().memory().topic("orders", 1).spawn().expect("a broker");
    let mut connection = Raw::connect(broker.addresses()[0]);
    commit(&mut connection, "billing", "orders");
    let partitions = [0, 1].map(|partition_index| OffsetDeleteRequestPartition { partition_index }).to_vec();
    let topics = vec![OffsetDeleteRequestTopic { name: "orders".into(), partitions }];
    let request = OffsetDeleteRequest { group_id: "billing".into(), topics };
    let answer = connection.ask(0, &request).expect("an answer");
    let codes: Vec<_> = answer.topics[0].partitions.iter().map(|partition| partition.error_code).collect();
    assert_eq!(codes, [ErrorCode::None, ErrorCode::UnknownTopicOrPartition]);
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

/// A request to join as the instance `desk-1`.
fn request_of_instance(member_id: String) -> JoinGroupRequest {
    let protocol = JoinGroupRequestProtocol { name: "range".into(), metadata: Bytes::from_static(b"?") };
    JoinGroupRequest {
        group_id: "billing".into(),
        session_timeout_ms: 60_000,
        rebalance_timeout_ms: 60_000,
        member_id,
        group_instance_id: Some("desk-1".into()),
        protocol_type: "consumer".into(),
        protocols: vec![protocol],
        ..Default::default()
    }
}

/// Joins as the instance `desk-1`, which has no member id yet.
fn join_as_instance(connection: &mut Raw, version: i16) -> JoinGroupResponse {
    let joined = connection.ask(version, &request_of_instance(String::new())).expect("an answer");
    assert_eq!(joined.error_code, ErrorCode::None);
    joined
}

fn sync(connection: &mut Raw, joined: &JoinGroupResponse, assignment: Option<&'static [u8]>) -> Bytes {
    let assignments = assignment.into_iter().map(|assignment| SyncGroupRequestAssignment {
        member_id: joined.member_id.clone(),
        assignment: Bytes::from_static(assignment),
    });
    let request = SyncGroupRequest {
        group_id: "billing".into(),
        generation_id: joined.generation_id,
        member_id: joined.member_id.clone(),
        group_instance_id: Some("desk-1".into()),
        assignments: assignments.collect(),
        ..Default::default()
    };
    let answer = connection.ask(4, &request).expect("an answer");
    assert_eq!(answer.error_code, ErrorCode::None);
    answer.assignment
}

#[test]
fn a_static_member_that_returns_keeps_the_generation_and_its_assignment() {
    let broker = Broker::builder().memory().topic("orders", 1).spawn().expect("a broker");
    let mut connection = Raw::connect(broker.addresses()[0]);
    let first = join_as_instance(&mut connection, 9);
    sync(&mut connection, &first, Some(b"partition 0"));

    // Before version 9 the returning leader takes itself for a follower.
    let second = join_as_instance(&mut connection, 8);
    assert_ne!(second.member_id, first.member_id);
    assert_eq!((second.generation_id, &second.leader), (first.generation_id, &first.member_id));
    assert!(second.members.is_empty() && !second.skip_assignment);
    assert_eq!(sync(&mut connection, &second, None), "partition 0");

    // From version 9 on it leads without an assignment (KIP-814).
    let third = join_as_instance(&mut connection, 9);
    assert_eq!((third.generation_id, &third.leader), (first.generation_id, &third.member_id));
    assert!(third.members.len() == 1 && third.skip_assignment);
    assert_eq!(sync(&mut connection, &third, None), "partition 0");

    let heartbeat = HeartbeatRequest {
        group_id: "billing".into(),
        generation_id: first.generation_id,
        member_id: first.member_id.clone(),
        group_instance_id: Some("desk-1".into()),
    };
    let answer = connection.ask(4, &heartbeat).expect("an answer");
    assert_eq!(answer.error_code, ErrorCode::FencedInstanceId);
    // Not UNKNOWN_MEMBER_ID, after which both would take the instance from each other for ever.
    let again = request_of_instance(first.member_id);
    let answer = connection.ask(9, &again).expect("an answer");
    assert_eq!(answer.error_code, ErrorCode::FencedInstanceId);
}

/// The instance id was ignored: the requests were those of a dynamic member.
#[test]
fn the_instance_of_a_request_must_have_a_member() {
    let broker = Broker::builder().memory().topic("orders", 1).spawn().expect("a broker");
    let mut connection = Raw::connect(broker.addresses()[0]);
    let request = JoinGroupRequest { group_instance_id: None, ..request_of_instance(String::new()) };
    let joined = connection.ask(3, &request).expect("an answer");
    assign(&mut connection, &joined);
    let JoinGroupResponse { member_id, generation_id, .. } = joined;
    let unknown = Some("desk-1".to_owned());

    let again = connection.ask(5, &request_of_instance(member_id.clone())).expect("an answer");
    let group_id = "billing".to_owned();
    let heartbeat = HeartbeatRequest {
        group_id: group_id.clone(),
        generation_id,
        member_id: member_id.clone(),
        group_instance_id: unknown.clone(),
    };
    let beat = connection.ask(3, &heartbeat).expect("an answer");
    let sync = SyncGroupRequest {
        group_id: group_id.clone(),
        generation_id,
        member_id: member_id.clone(),
        group_instance_id: unknown.clone(),
        ..Default::default()
    };
    let synced = connection.ask(3, &sync).expect("an answer");
    let commit = OffsetCommitRequest {
        generation_id_or_member_epoch: generation_id,
        member_id,
        group_instance_id: unknown,
        ..commit_request("billing", 5)
    };
    let committed = connection.ask(7, &commit).expect("an answer").topics[0].partitions[0].error_code;
    let codes = [again.error_code, beat.error_code, synced.error_code, committed];
    assert_eq!(codes, [ErrorCode::UnknownMemberId; 4]);
    let known = HeartbeatRequest { group_instance_id: None, ..heartbeat };
    assert_eq!(connection.ask(3, &known).expect("an answer").error_code, ErrorCode::None);
}

/// Joins `billing` as the only member, whose session is two seconds. Returns the time until the group has formed.
fn time_to_join(connection: &mut Raw, member_id: &str) -> (JoinGroupResponse, Duration) {
    let request = JoinGroupRequest {
        session_timeout_ms: 2_000,
        group_instance_id: None,
        ..request_of_instance(member_id.to_owned())
    };
    let began = Instant::now();
    let joined = connection.ask(3, &request).expect("an answer");
    assert_eq!(joined.error_code, ErrorCode::None);
    (joined, began.elapsed())
}

/// Makes the group stable: only then the leader's next join is a rebalance.
fn assign(connection: &mut Raw, leader: &JoinGroupResponse) {
    let request = SyncGroupRequest {
        group_id: "billing".into(),
        generation_id: leader.generation_id,
        member_id: leader.member_id.clone(),
        ..Default::default()
    };
    assert_eq!(connection.ask(3, &request).expect("an answer").error_code, ErrorCode::None);
}

#[test]
fn with_full_waits_a_rebalance_takes_the_session_timeout_less_a_second() {
    let builder = Broker::builder().memory().configure(|config| config.session_timeout_min = Duration::ZERO);
    let broker = builder.spawn().expect("a broker");
    broker.cluster().set_group_full_waits(true);
    let mut connection = Raw::connect(broker.addresses()[0]);
    let second = Duration::from_secs(1);
    let (joined, took) = time_to_join(&mut connection, "");
    assert!(took < second, "an empty group without an initial delay waits for nothing: {took:?}");
    assign(&mut connection, &joined);
    let (again, took) = time_to_join(&mut connection, &joined.member_id);
    assert_eq!(again.generation_id, joined.generation_id + 1);
    assert!(took >= second, "{took:?}");

    broker.cluster().set_group_full_waits(false);
    assign(&mut connection, &again);
    let (_, took) = time_to_join(&mut connection, &joined.member_id);
    assert!(took < second, "the only member has joined: {took:?}");
}

#[test]
fn an_empty_group_waits_its_initial_delay_each_time() {
    let delay = Duration::from_millis(600);
    let builder = Broker::builder().memory().configure(|config| {
        config.session_timeout_min = Duration::ZERO;
        config.group_initial_delay = delay;
    });
    let broker = builder.spawn().expect("a broker");
    let mut connection = Raw::connect(broker.addresses()[0]);
    for _ in 0..2 {
        let (joined, took) = time_to_join(&mut connection, "");
        assert!(took >= delay, "{took:?}");
        let leave = LeaveGroupRequest {
            group_id: "billing".into(),
            member_id: joined.member_id,
            ..Default::default()
        };
        assert_eq!(connection.ask(2, &leave).expect("an answer").error_code, ErrorCode::None);
    }
}

/// Tools showed no such group, although DeleteGroups found it.
#[test]
fn an_empty_group_without_offsets_is_listed_until_it_is_deleted() {
    let broker = Broker::builder().memory().spawn().expect("a broker");
    let mut connection = Raw::connect(broker.addresses()[0]);
    let joined = join_as_instance(&mut connection, 9);
    sync(&mut connection, &joined, Some(b"partition 0"));
    let member = MemberIdentity { group_instance_id: Some("desk-1".into()), ..Default::default() };
    let leave = LeaveGroupRequest { group_id: "billing".into(), members: vec![member], ..Default::default() };
    assert_eq!(connection.ask(3, &leave).expect("an answer").members[0].error_code, ErrorCode::None);

    let describe = DescribeGroupsRequest { groups: vec!["billing".into()], ..Default::default() };
    let described = connection.ask(6, &describe).expect("an answer").groups.remove(0);
    assert_eq!((described.error_code, &*described.group_state), (ErrorCode::None, "Empty"));
    let list = ListGroupsRequest { states_filter: vec!["Empty".into()], ..Default::default() };
    let listed = connection.ask(5, &list).expect("an answer").groups;
    assert_eq!((&*listed[0].group_id, &*listed[0].protocol_type), ("billing", "consumer"));

    let delete = DeleteGroupsRequest { groups_names: vec!["billing".into()] };
    assert_eq!(connection.ask(2, &delete).expect("an answer").results[0].error_code, ErrorCode::None);
    let described = connection.ask(6, &describe).expect("an answer").groups.remove(0);
    assert_eq!(described.error_code, ErrorCode::GroupIdNotFound);
    assert!(connection.ask(5, &list).expect("an answer").groups.is_empty());
}

/// KIP-559: a member that was restarted with another assignor learns of it.
#[test]
fn a_sync_with_another_protocol_than_the_group_has_is_refused() {
    let broker = Broker::builder().memory().topic("orders", 1).spawn().expect("a broker");
    let mut connection = Raw::connect(broker.addresses()[0]);
    let request = JoinGroupRequest { group_instance_id: None, ..request_of_instance(String::new()) };
    let joined = connection.ask(3, &request).expect("an answer");
    assert_eq!(joined.error_code, ErrorCode::None);
    let mut code = |generation: i32, protocol_type: Option<&str>, protocol_name: Option<&str>| {
        let request = SyncGroupRequest {
            group_id: "billing".into(),
            generation_id: generation,
            member_id: joined.member_id.clone(),
            protocol_type: protocol_type.map(str::to_owned),
            protocol_name: protocol_name.map(str::to_owned),
            ..Default::default()
        };
        connection.ask(5, &request).expect("an answer").error_code
    };
    let generation = joined.generation_id;
    let inconsistent = ErrorCode::InconsistentGroupProtocol;
    assert_eq!(code(generation, None, Some("range")), inconsistent);
    assert_eq!(code(generation, Some("consumer"), None), inconsistent);
    assert_eq!(code(generation, Some("connect"), Some("range")), inconsistent);
    assert_eq!(code(generation, Some("consumer"), Some("sticky")), inconsistent);
    assert_eq!(code(generation + 1, Some("consumer"), Some("sticky")), ErrorCode::IllegalGeneration);
    assert_eq!(code(generation, Some("consumer"), Some("range")), ErrorCode::None);
}
