//! Groups of the new protocol (KIP-848) over the wire: they survive a kill, and they migrate between the two protocols.

#![allow(clippy::disallowed_methods, reason = "a test is a shell")]

#[allow(dead_code, reason = "each test file uses its own part")]
#[path = "../../client/tests/seats/mod.rs"]
mod seats;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use ottla_broker::{Broker, BrokerThread, Clock};
use ottla_client::Config;
use ottla_log::storage::mem::MemStorage;
use ottla_protocol::ErrorCode;
use ottla_protocol::messages::consumer_group_describe::{ConsumerGroupDescribeRequest, DescribedGroup};
use ottla_protocol::messages::consumer_group_heartbeat::{
    ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, TopicPartitions,
};
use ottla_protocol::messages::consumer_protocol::{
    ConsumerProtocolAssignment, ConsumerProtocolSubscription, TopicPartition,
};
use ottla_protocol::messages::delete_groups::DeleteGroupsRequest;
use ottla_protocol::messages::describe_groups::DescribeGroupsRequest;
use ottla_protocol::messages::find_coordinator::FindCoordinatorRequest;
use ottla_protocol::messages::heartbeat::HeartbeatRequest;
use ottla_protocol::messages::incremental_alter_configs::{
    AlterConfigsResource, AlterableConfig, IncrementalAlterConfigsRequest,
};
use ottla_protocol::messages::join_group::{JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse};
use ottla_protocol::messages::list_groups::ListGroupsRequest;
use ottla_protocol::messages::offset_commit::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use ottla_protocol::messages::sync_group::{SyncGroupRequest, SyncGroupRequestAssignment};
use ottla_protocol::messages::txn_offset_commit::{
    TxnOffsetCommitRequest, TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic,
};

use crate::common::{PATIENCE, Raw};

/// The type of a group's resource in requests for configurations.
const GROUP_RESOURCE: i8 = 32;

fn start(storage: &MemStorage) -> (BrokerThread, Raw) {
    start_with(storage, &[("group.consumer.assignment.interval.ms", "0")])
}

pub(crate) fn start_with(storage: &MemStorage, properties: &[(&str, &str)]) -> (BrokerThread, Raw) {
    let builder = Broker::builder().storage(Arc::new(storage.clone())).topic("orders", 4).topic("other", 2);
    let builder = builder.configure(|config| {
        for (name, value) in properties {
            config.set(name, value).expect("a property");
        }
    });
    let broker = builder.spawn().expect("a broker");
    let mut connection = Raw::connect(broker.addresses()[0]);
    let request = FindCoordinatorRequest { key: "billing".into(), ..Default::default() };
    assert_eq!(connection.ask(2, &request).expect("an answer").error_code, ErrorCode::None);
    (broker, connection)
}

pub(crate) fn join_request(member: &str) -> ConsumerGroupHeartbeatRequest {
    ConsumerGroupHeartbeatRequest {
        group_id: "billing".into(),
        member_id: member.into(),
        rebalance_timeout_ms: 60_000,
        subscribed_topic_names: Some(vec!["orders".into()]),
        topic_partitions: Some(Vec::new()),
        ..Default::default()
    }
}

pub(crate) fn beat(
    connection: &mut Raw,
    request: &ConsumerGroupHeartbeatRequest,
) -> ConsumerGroupHeartbeatResponse {
    connection.ask(1, request).expect("an answer")
}

pub(crate) fn stay(connection: &mut Raw, member: &str, epoch: i32) -> ConsumerGroupHeartbeatResponse {
    let request = ConsumerGroupHeartbeatRequest {
        group_id: "billing".into(),
        member_id: member.into(),
        member_epoch: epoch,
        ..Default::default()
    };
    beat(connection, &request)
}

pub(crate) fn partitions(response: &ConsumerGroupHeartbeatResponse) -> usize {
    assert_eq!(response.error_code, ErrorCode::None, "{:?}", response.error_message);
    let topics = &response.assignment.as_ref().expect("an assignment").topic_partitions;
    topics.iter().map(|topic| topic.partitions.len()).sum()
}

pub(crate) fn commit(connection: &mut Raw, version: i16, member: &str, epoch: i32) -> ErrorCode {
    let partition =
        OffsetCommitRequestPartition { partition_index: 0, committed_offset: 5, ..Default::default() };
    let topic =
        OffsetCommitRequestTopic { name: "orders".into(), partitions: vec![partition], ..Default::default() };
    let request = OffsetCommitRequest {
        group_id: "billing".into(),
        member_id: member.into(),
        generation_id_or_member_epoch: epoch,
        topics: vec![topic],
        ..Default::default()
    };
    connection.ask(version, &request).expect("an answer").topics[0].partitions[0].error_code
}

pub(crate) fn describe(connection: &mut Raw) -> DescribedGroup {
    let request = ConsumerGroupDescribeRequest { group_ids: vec!["billing".into()], ..Default::default() };
    connection.ask(1, &request).expect("an answer").groups.remove(0)
}

pub(crate) fn join_classic_request(member_id: &str, protocol_type: &str) -> JoinGroupRequest {
    let subscription = ConsumerProtocolSubscription { topics: vec!["orders".into()], ..Default::default() };
    let metadata = subscription.to_bytes(1).expect("a short name");
    JoinGroupRequest {
        group_id: "billing".into(),
        session_timeout_ms: 60_000,
        rebalance_timeout_ms: 60_000,
        member_id: member_id.into(),
        protocol_type: protocol_type.into(),
        protocols: vec![JoinGroupRequestProtocol { name: "range".into(), metadata }],
        ..Default::default()
    }
}

pub(crate) fn join_classic_as(
    connection: &mut Raw,
    member_id: &str,
    protocol_type: &str,
) -> JoinGroupResponse {
    connection.ask(3, &join_classic_request(member_id, protocol_type)).expect("an answer")
}

fn join_classic(connection: &mut Raw, member_id: &str) -> ErrorCode {
    join_classic_as(connection, member_id, "consumer").error_code
}

/// The number of partitions that a classic member receives; a leader assigns all to itself.
fn sync_classic(connection: &mut Raw, joined: &JoinGroupResponse) -> Result<usize, ErrorCode> {
    let mut request = SyncGroupRequest {
        group_id: "billing".into(),
        generation_id: joined.generation_id,
        member_id: joined.member_id.clone(),
        ..Default::default()
    };
    if joined.leader == joined.member_id {
        let all = TopicPartition { topic: "orders".into(), partitions: vec![0, 1, 2, 3] };
        let assignment = ConsumerProtocolAssignment { assigned_partitions: vec![all], user_data: None };
        let assignment = assignment.to_bytes(1).expect("short names");
        request.assignments =
            vec![SyncGroupRequestAssignment { member_id: joined.member_id.clone(), assignment }];
    }
    let answer = connection.ask(3, &request).expect("an answer");
    if answer.error_code != ErrorCode::None {
        return Err(answer.error_code);
    }
    let assignment = ConsumerProtocolAssignment::from_bytes(answer.assignment).expect("an assignment");
    Ok(assignment.assigned_partitions.iter().map(|topic| topic.partitions.len()).sum())
}

fn beat_classic(connection: &mut Raw, joined: &JoinGroupResponse) -> ErrorCode {
    let request = HeartbeatRequest {
        group_id: "billing".into(),
        generation_id: joined.generation_id,
        member_id: joined.member_id.clone(),
        ..Default::default()
    };
    connection.ask(3, &request).expect("an answer").error_code
}

fn group_type(connection: &mut Raw) -> String {
    let groups = connection.ask(5, &ListGroupsRequest::default()).expect("an answer").groups;
    groups.into_iter().find(|group| group.group_id == "billing").expect("the group is listed").group_type
}

#[test]
fn a_group_is_there_after_a_kill() {
    let storage = MemStorage::new();
    let (_broker, mut connection) = start(&storage);
    assert_eq!(partitions(&beat(&mut connection, &join_request("a"))), 4);
    assert_eq!(commit(&mut connection, 9, "a", 2), ErrorCode::None);
    let before = describe(&mut connection);
    assert_eq!((&*before.group_state, before.group_epoch, before.members.len()), ("Stable", 2, 1));
    let (_second, mut connection) = start(&storage.fork());
    assert_eq!(describe(&mut connection), before);
    let stayed = stay(&mut connection, "a", 2);
    assert_eq!((stayed.error_code, stayed.member_epoch), (ErrorCode::None, 2));
    assert_eq!(commit(&mut connection, 9, "a", 2), ErrorCode::None);
    assert_eq!(commit(&mut connection, 9, "a", 3), ErrorCode::StaleMemberEpoch);
    assert_eq!(commit(&mut connection, 9, "x", 2), ErrorCode::UnknownMemberId);
    assert_eq!(commit(&mut connection, 8, "a", 2), ErrorCode::UnsupportedVersion);
}

/// After a restart, a refused heartbeat removed the group from memory, and the next one began with lower epochs.
#[test]
fn a_refused_heartbeat_leaves_an_empty_group() {
    let storage = MemStorage::new();
    let (_broker, mut connection) = start(&storage);
    beat(&mut connection, &join_request("a"));
    assert_eq!(stay(&mut connection, "a", -1).member_epoch, -1);
    let before = describe(&mut connection);
    assert_eq!((before.error_code, &*before.group_state), (ErrorCode::None, "Empty"));
    let (_second, mut connection) = start(&storage.fork());
    assert_eq!(stay(&mut connection, "a", 2).error_code, ErrorCode::UnknownMemberId);
    assert_eq!(describe(&mut connection), before);
    let joined = beat(&mut connection, &join_request("b"));
    assert_eq!((joined.error_code, joined.member_epoch), (ErrorCode::None, before.group_epoch + 1));
}

/// The classic members had to be assigned by the broker from then on.
#[test]
fn a_refused_member_does_not_convert_a_classic_group() {
    let (_broker, mut connection) =
        start_with(&MemStorage::new(), &[("group.consumer.max.size", "1"), ("group.max.size", "10")]);
    let first = join_classic_as(&mut connection, "", "consumer");
    assert_eq!(sync_classic(&mut connection, &first), Ok(4));
    assert_eq!(beat(&mut connection, &join_request("a")).error_code, ErrorCode::GroupMaxSizeReached);
    assert_eq!(
        (beat_classic(&mut connection, &first), &*group_type(&mut connection)),
        (ErrorCode::None, "classic")
    );
}

/// The epoch and the partitions of each member.
type Held = BTreeMap<String, (i32, Vec<TopicPartitions>)>;

/// Sends a heartbeat, and notes what the member has then.
fn advance(connection: &mut Raw, held: &mut Held, request: &ConsumerGroupHeartbeatRequest) {
    let answer = beat(connection, request);
    assert_eq!(answer.error_code, ErrorCode::None, "{:?}", answer.error_message);
    let (_, owned) = held.remove(&request.member_id).unwrap_or_default();
    let owned = answer.assignment.map_or(owned, |assignment| assignment.topic_partitions);
    held.insert(request.member_id.clone(), (answer.member_epoch, owned));
}

/// Sends heartbeats until the members have what they are to have. Returns their numbers of partitions.
fn settle(connection: &mut Raw, held: &mut Held, instance: &str) -> Vec<usize> {
    for _ in 0..6 {
        for (member, (epoch, owned)) in held.clone() {
            let request = ConsumerGroupHeartbeatRequest {
                member_epoch: epoch,
                topic_partitions: Some(owned),
                ..join_as(&member, instance)
            };
            advance(connection, held, &request);
        }
    }
    held.values().map(|(_, owned)| owned.iter().map(|topic| topic.partitions.len()).sum()).collect()
}

/// The member `instance` is static.
fn join_as(member: &str, instance: &str) -> ConsumerGroupHeartbeatRequest {
    let instance_id = (member == instance).then(|| "till".into());
    ConsumerGroupHeartbeatRequest { instance_id, ..join_request(member) }
}

/// The partitions that the member had under its id stayed without a consumer, until the broker was restarted.
#[test]
fn a_member_that_takes_over_an_instance_gives_up_its_partitions() {
    let (_broker, mut connection) = start(&MemStorage::new());
    let mut held = Held::new();
    advance(&mut connection, &mut held, &join_as("b", "b"));
    advance(&mut connection, &mut held, &join_as("a", "b"));
    assert_eq!(settle(&mut connection, &mut held, "b"), [2, 2]);
    let left = ConsumerGroupHeartbeatRequest { member_epoch: -2, ..join_as("b", "b") };
    assert_eq!(beat(&mut connection, &left).error_code, ErrorCode::None);
    held.remove("b");
    advance(&mut connection, &mut held, &join_as("a", "a"));
    advance(&mut connection, &mut held, &join_as("c", "a"));
    assert_eq!(settle(&mut connection, &mut held, "a"), [2, 2], "each partition has an owner");
}

/// They did not expire if the broker was restarted more often than once in the retention time.
#[test]
fn offsets_of_an_empty_group_expire_although_the_broker_restarts() {
    const DAY_MS: i64 = 86_400_000;
    let (storage, now) = (MemStorage::new(), Arc::new(AtomicI64::new(1_700_000_000_000)));
    let started = |storage: &MemStorage| {
        let builder = Broker::builder().storage(Arc::new(storage.clone())).topic("orders", 1);
        let builder = builder.clock(Clock::Fixed(now.clone())).configure(|config| {
            config.set("offsets.retention.check.interval.ms", "10").expect("a property");
            config.clock_jump_wait = Duration::ZERO;
        });
        builder.spawn().expect("a broker")
    };
    let broker = started(&storage);
    let mut connection = Raw::connect(broker.addresses()[0]);
    let request = FindCoordinatorRequest { key: "billing".into(), ..Default::default() };
    assert_eq!(connection.ask(2, &request).expect("an answer").error_code, ErrorCode::None);
    let epoch = beat(&mut connection, &join_request("a")).member_epoch;
    assert_eq!(commit(&mut connection, 9, "a", epoch), ErrorCode::None);
    assert_eq!(stay(&mut connection, "a", -1).member_epoch, -1);
    now.fetch_add(5 * DAY_MS, Ordering::SeqCst);
    let second = started(&storage.fork());
    let committed = || second.cluster().committed_offset("billing", "orders", 0);
    assert_eq!(committed(), Some(5));
    now.fetch_add(3 * DAY_MS, Ordering::SeqCst);
    let deadline = std::time::Instant::now() + PATIENCE;
    while committed().is_some() {
        assert!(std::time::Instant::now() < deadline, "the offset does not expire");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_group_is_listed_with_its_type_and_deleted_when_it_is_empty() {
    let storage = MemStorage::new();
    let (_broker, mut connection) = start(&storage);
    beat(&mut connection, &join_request("a"));
    let delete = DeleteGroupsRequest { groups_names: vec!["billing".into()] };
    let code = |connection: &mut Raw| connection.ask(2, &delete).expect("an answer").results[0].error_code;
    assert_eq!(code(&mut connection), ErrorCode::NonEmptyGroup);
    let request = ListGroupsRequest { types_filter: vec!["consumer".into()], ..Default::default() };
    let listed = connection.ask(5, &request).expect("an answer").groups;
    assert_eq!((listed.len(), &*listed[0].group_type, &*listed[0].group_state), (1, "consumer", "Stable"));
    let request = DescribeGroupsRequest { groups: vec!["billing".into()], ..Default::default() };
    let described = connection.ask(6, &request).expect("an answer");
    assert_eq!(described.groups[0].error_code, ErrorCode::GroupIdNotFound);
    assert_eq!(stay(&mut connection, "a", -1).member_epoch, -1);
    assert_eq!(describe(&mut connection).group_state, "Empty");
    assert_eq!(code(&mut connection), ErrorCode::None);
    let (_second, mut connection) = start(&storage.fork());
    assert_eq!(describe(&mut connection).error_code, ErrorCode::GroupIdNotFound);
    assert_eq!(stay(&mut connection, "a", 2).error_code, ErrorCode::GroupIdNotFound);
}

#[test]
fn a_classic_group_is_converted_for_its_first_new_member_and_back_after_its_last_one() {
    let storage = MemStorage::new();
    let (_broker, mut connection) = start(&storage);
    let first = join_classic_as(&mut connection, "", "consumer");
    assert_eq!(sync_classic(&mut connection, &first), Ok(4));
    assert_eq!(
        (beat_classic(&mut connection, &first), &*group_type(&mut connection)),
        (ErrorCode::None, "classic")
    );
    // The new member waits for the partitions of the classic one, which joins again.
    let joined = beat(&mut connection, &join_request("a"));
    assert_eq!((partitions(&joined), &*group_type(&mut connection)), (0, "consumer"));
    assert_eq!(beat_classic(&mut connection, &first), ErrorCode::RebalanceInProgress);
    let second = join_classic_as(&mut connection, &first.member_id, "consumer");
    assert_eq!(
        (second.error_code, &*second.leader),
        (ErrorCode::None, ""),
        "nobody assigns but the coordinator"
    );
    assert_eq!(sync_classic(&mut connection, &second), Ok(2));
    assert_eq!(beat_classic(&mut connection, &second), ErrorCode::None);
    assert_eq!(beat_classic(&mut connection, &first), ErrorCode::IllegalGeneration);
    assert_eq!(partitions(&stay(&mut connection, "a", joined.member_epoch)), 2);
    // A classic member commits with its generation, in the older versions of the request, too.
    assert_eq!(commit(&mut connection, 8, &second.member_id, second.generation_id), ErrorCode::None);
    assert_eq!(
        commit(&mut connection, 8, &second.member_id, second.generation_id + 1),
        ErrorCode::IllegalGeneration
    );
    let described = describe(&mut connection);
    let mut types: Vec<i8> = described.members.iter().map(|member| member.member_type).collect();
    types.sort_unstable();
    assert_eq!((&*described.group_state, types), ("Stable", vec![0, 1]));
    // The records have all of it.
    let (_second, mut restarted) = start(&storage.fork());
    assert_eq!(describe(&mut restarted), described);
    assert_eq!(beat_classic(&mut restarted, &second), ErrorCode::None);

    assert_eq!(stay(&mut connection, "a", -1).member_epoch, -1);
    assert_eq!(group_type(&mut connection), "classic");
    assert_eq!(describe(&mut connection).error_code, ErrorCode::GroupIdNotFound);
    assert_eq!(commit(&mut connection, 8, &second.member_id, second.generation_id), ErrorCode::None);
    assert_eq!(beat_classic(&mut connection, &second), ErrorCode::RebalanceInProgress);
    let third = join_classic_as(&mut connection, &second.member_id, "consumer");
    assert_eq!(third.leader, third.member_id, "it assigns again");
    assert_eq!(sync_classic(&mut connection, &third), Ok(4));
    let (_third, mut restarted) = start(&storage.fork());
    assert_eq!(group_type(&mut restarted), "classic");
    assert_eq!(beat_classic(&mut restarted, &third), ErrorCode::None);
}

#[test]
fn groups_that_cannot_be_converted_are_refused() {
    let storage = MemStorage::new();
    let (_broker, mut connection) = start(&storage);
    let connector = join_classic_as(&mut connection, "", "connect");
    assert_eq!(sync_classic(&mut connection, &connector), Ok(4));
    assert_eq!(beat(&mut connection, &join_request("a")).error_code, ErrorCode::GroupIdNotFound);
    assert_eq!(beat_classic(&mut connection, &connector), ErrorCode::None);

    let (_disabled, mut connection) =
        start_with(&MemStorage::new(), &[("group.consumer.migration.policy", "Disabled")]);
    let member = join_classic_as(&mut connection, "", "consumer");
    assert_eq!(sync_classic(&mut connection, &member), Ok(4));
    assert_eq!(beat(&mut connection, &join_request("a")).error_code, ErrorCode::GroupIdNotFound);
}

#[test]
fn an_empty_group_is_replaced_by_a_join_that_succeeds() {
    let storage = MemStorage::new();
    let (_broker, mut connection) = start(&storage);
    beat(&mut connection, &join_request("a"));
    let refused = join_classic_as(&mut connection, "", "connect").error_code;
    assert_eq!(refused, ErrorCode::InconsistentGroupProtocol);
    stay(&mut connection, "a", -1);
    let refused = join_classic_as(&mut connection, "", "").error_code;
    assert_eq!(refused, ErrorCode::InconsistentGroupProtocol);
    assert_eq!(join_classic(&mut connection, "unknown"), ErrorCode::UnknownMemberId);
    assert_eq!(describe(&mut connection).group_state, "Empty", "a refused join leaves the group");
    assert_eq!(join_classic(&mut connection, ""), ErrorCode::None);
    assert_eq!(group_type(&mut connection), "classic");
}

#[test]
fn a_commit_in_an_unknown_group_has_the_code_of_its_version() {
    let (_broker, mut connection) = start(&MemStorage::new());
    assert_eq!(commit(&mut connection, 9, "a", 2), ErrorCode::GroupIdNotFound);
    assert_eq!(commit(&mut connection, 8, "a", 2), ErrorCode::IllegalGeneration);
    assert_eq!(commit(&mut connection, 8, "", -1), ErrorCode::None);
    // The group has offsets now, but no members and no protocol type.
    assert_eq!(commit(&mut connection, 9, "a", 2), ErrorCode::UnknownMemberId);
    let groups = connection.ask(5, &ListGroupsRequest::default()).expect("an answer").groups;
    assert_eq!((&*groups[0].protocol_type, &*groups[0].group_type), ("", "classic"));
}

/// A producer takes a code that it does not know for fatal.
#[test]
fn a_commit_in_a_transaction_has_the_code_of_classic_groups_for_another_epoch() {
    let (broker, mut connection) = start(&MemStorage::new());
    broker.cluster().set_transactions_approved(true);
    beat(&mut connection, &join_request("a"));
    let code = |connection: &mut Raw, member: &str, epoch: i32| {
        let partition = TxnOffsetCommitRequestPartition::default();
        let topics = vec![TxnOffsetCommitRequestTopic { name: "orders".into(), partitions: vec![partition] }];
        let request = TxnOffsetCommitRequest {
            group_id: "billing".into(),
            producer_id: 9,
            member_id: member.into(),
            generation_id: epoch,
            topics,
            ..Default::default()
        };
        connection.ask(3, &request).expect("an answer").topics[0].partitions[0].error_code
    };
    for epoch in [1, 3] {
        assert_eq!(code(&mut connection, "a", epoch), ErrorCode::IllegalGeneration, "epoch {epoch}");
    }
    assert_eq!(code(&mut connection, "stranger", 2), ErrorCode::UnknownMemberId);
    assert_eq!(code(&mut connection, "a", 2), ErrorCode::None);
    assert_eq!(commit(&mut connection, 9, "a", 3), ErrorCode::StaleMemberEpoch, "outside a transaction");
}

#[test]
fn authorized_operations_are_described_on_request() {
    let (_broker, mut connection) = start(&MemStorage::new());
    beat(&mut connection, &join_request("a"));
    assert_eq!(describe(&mut connection).authorized_operations, i32::MIN);
    let request = ConsumerGroupDescribeRequest {
        group_ids: vec!["billing".into()],
        include_authorized_operations: true,
    };
    let described = connection.ask(1, &request).expect("an answer");
    // READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS and ALTER_CONFIGS.
    let bits: i32 = [3, 6, 8, 10, 11].iter().map(|bit| 1 << bit).sum();
    assert_eq!(described.groups[0].authorized_operations, bits);
}

/// The text was that of a group of another type.
#[test]
fn a_group_that_does_not_exist_is_described_as_not_found() {
    let (_broker, mut connection) = start(&MemStorage::new());
    let missing = describe(&mut connection);
    assert_eq!(missing.error_code, ErrorCode::GroupIdNotFound);
    assert_eq!(missing.error_message.as_deref(), Some("Group billing not found."));
    assert_eq!(join_classic_as(&mut connection, "", "consumer").error_code, ErrorCode::None);
    let classic = describe(&mut connection);
    assert_eq!(classic.error_code, ErrorCode::GroupIdNotFound);
    assert_eq!(classic.error_message.as_deref(), Some("group `billing` is not a consumer group"));
}

#[test]
fn malformed_heartbeats_and_patterns_are_refused() {
    let storage = MemStorage::new();
    let (_broker, mut connection) = start(&storage);
    let cases = [
        (
            ErrorCode::InvalidRequest,
            ConsumerGroupHeartbeatRequest { member_id: String::new(), ..join_request("a") },
        ),
        (
            ErrorCode::InvalidRequest,
            ConsumerGroupHeartbeatRequest { instance_id: Some(String::new()), ..join_request("a") },
        ),
        (
            ErrorCode::InvalidRequest,
            ConsumerGroupHeartbeatRequest { rebalance_timeout_ms: -1, ..join_request("a") },
        ),
        (
            ErrorCode::InvalidRequest,
            ConsumerGroupHeartbeatRequest { topic_partitions: None, ..join_request("a") },
        ),
        (ErrorCode::InvalidRequest, ConsumerGroupHeartbeatRequest { member_epoch: -2, ..join_request("a") }),
        (ErrorCode::InvalidRequest, ConsumerGroupHeartbeatRequest { member_epoch: -3, ..join_request("a") }),
        (
            ErrorCode::UnsupportedAssignor,
            ConsumerGroupHeartbeatRequest { server_assignor: Some("best".into()), ..join_request("a") },
        ),
        (
            ErrorCode::InvalidRegularExpression,
            ConsumerGroupHeartbeatRequest { subscribed_topic_regex: Some("(".into()), ..join_request("a") },
        ),
    ];
    for (code, request) in cases {
        assert_eq!(beat(&mut connection, &request).error_code, code, "{request:?}");
    }
    assert_eq!(describe(&mut connection).error_code, ErrorCode::GroupIdNotFound);
    let pattern = ConsumerGroupHeartbeatRequest {
        subscribed_topic_names: None,
        subscribed_topic_regex: Some("o(rders|ther)".into()),
        ..join_request("a")
    };
    assert_eq!(partitions(&beat(&mut connection, &pattern)), 6);
}

fn configure_group(connection: &mut Raw, group: &str, configs: &[(&str, &str)]) {
    let change = |(name, value): &(&str, &str)| AlterableConfig {
        name: (*name).into(),
        config_operation: 0,
        value: Some((*value).into()),
    };
    let resource = AlterConfigsResource {
        resource_type: GROUP_RESOURCE,
        resource_name: group.into(),
        configs: configs.iter().map(change).collect(),
    };
    let request = IncrementalAlterConfigsRequest { resources: vec![resource], validate_only: false };
    let response = connection.ask(1, &request).expect("an answer").responses.remove(0);
    assert_eq!(response.error_code, ErrorCode::None, "{:?}", response.error_message);
}

fn of_group(group: &str, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatRequest {
    ConsumerGroupHeartbeatRequest { group_id: group.into(), ..request }
}

#[test]
fn the_heartbeat_interval_of_a_group_is_told_to_its_members() {
    let properties = [("group.consumer.rebalance.heartbeat.interval.ms", "7500")];
    let (_broker, mut connection) = start_with(&MemStorage::new(), &properties);
    configure_group(&mut connection, "billing", &[("consumer.heartbeat.interval.ms", "7000")]);
    let first = beat(&mut connection, &join_request("a"));
    assert_eq!((first.error_code, first.heartbeat_interval_ms), (ErrorCode::None, 7000));
    let other = beat(&mut connection, &of_group("other", join_request("a")));
    assert_eq!((other.error_code, other.heartbeat_interval_ms), (ErrorCode::None, 5000));
    configure_group(&mut connection, "billing", &[("consumer.heartbeat.interval.ms", "8000")]);
    let later = stay(&mut connection, "a", first.member_epoch);
    assert_eq!((later.error_code, later.heartbeat_interval_ms), (ErrorCode::None, 7500), "the group changes");
    configure_group(&mut connection, "billing", &[("consumer.heartbeat.interval.ms", "6000")]);
    let later = stay(&mut connection, "a", first.member_epoch);
    assert_eq!((later.error_code, later.heartbeat_interval_ms), (ErrorCode::None, 6000), "a change applies");
}

#[test]
fn the_session_timeout_of_a_group_ends_its_members_only() {
    let least = [
        ("group.consumer.min.session.timeout.ms", "100"),
        ("group.consumer.min.heartbeat.interval.ms", "50"),
    ];
    let (broker, mut connection) = start_with(&MemStorage::new(), &least);
    let short = [("consumer.session.timeout.ms", "100"), ("consumer.heartbeat.interval.ms", "50")];
    configure_group(&mut connection, "billing", &short);
    for group in ["billing", "other"] {
        partitions(&beat(&mut connection, &of_group(group, join_request("a"))));
    }
    let waited = broker.block_on(|cluster| async move {
        cluster.wait_for_group("billing", "Empty", Duration::from_secs(30)).await
    });
    waited.expect("its member is late");
    assert_eq!(broker.cluster().group_state("other"), "Stable");
}

/// The second member waits for the next assignment. Without the interval it gets its part at once.
#[test]
fn the_assignment_interval_of_a_group_delays_its_next_assignment() {
    let (_broker, mut connection) = start(&MemStorage::new());
    configure_group(&mut connection, "billing", &[("consumer.assignment.interval.ms", "15000")]);
    for (group, is_asked) in [("billing", false), ("other", true)] {
        let first = beat(&mut connection, &of_group(group, join_request("a")));
        assert_eq!(partitions(&first), 4, "{group}");
        let second = beat(&mut connection, &of_group(group, join_request("b")));
        assert_eq!(second.error_code, ErrorCode::None);
        let request = ConsumerGroupHeartbeatRequest {
            member_id: "a".into(),
            member_epoch: first.member_epoch,
            ..Default::default()
        };
        let told = beat(&mut connection, &of_group(group, request)).assignment;
        assert_eq!(told.is_some(), is_asked, "{group}: asked to give up partitions");
    }
}

#[test]
fn groups_of_the_new_protocol_and_their_members_are_in_the_metrics() {
    let (broker, mut connection) = start(&MemStorage::new());
    for (group, member) in [("billing", "a"), ("other", "a"), ("third", "a"), ("third", "b")] {
        let response = beat(&mut connection, &of_group(group, join_request(member)));
        assert_eq!(response.error_code, ErrorCode::None);
    }
    let text = broker.cluster().metrics_text(10);
    let value = |series: &str| text.lines().find_map(|line| line.strip_prefix(series)).map(str::trim);
    assert_eq!(value("ottla_groups{protocol=\"consumer\",state=\"Stable\"}"), Some("2"), "{text}");
    assert_eq!(value("ottla_groups{protocol=\"consumer\",state=\"Reconciling\"}"), Some("1"), "{text}");
    assert_eq!(value("ottla_group_members{protocol=\"consumer\"}"), Some("4"), "{text}");
}

/// A group made no assignment until the wall clock had caught up, as share groups did.
#[test]
fn a_clock_that_goes_back_does_not_delay_an_assignment() {
    let clock = Arc::new(AtomicI64::new(1_700_000_000_000));
    let builder = Broker::builder().memory().topic("orders", 4).clock(Clock::Fixed(clock.clone()));
    let broker = builder.spawn().expect("a broker");
    let mut connection = Raw::connect(broker.addresses()[0]);
    let request = FindCoordinatorRequest { key: "billing".into(), ..Default::default() };
    assert_eq!(connection.ask(2, &request).expect("an answer").error_code, ErrorCode::None);
    let first = beat(&mut connection, &join_request("a"));
    assert_eq!(first.error_code, ErrorCode::None);
    clock.fetch_sub(86_400_000, Ordering::Relaxed);
    let second = beat(&mut connection, &join_request("b"));
    assert_eq!((second.error_code, second.member_epoch), (ErrorCode::None, first.member_epoch + 1));
}

/// Members of our client: one leaves, one is gone without a word, and others take over.
#[test]
fn clients_of_the_new_protocol_share_a_topic() {
    let properties = [
        ("group.consumer.min.heartbeat.interval.ms", "50"),
        ("group.consumer.heartbeat.interval.ms", "50"),
        ("group.consumer.min.session.timeout.ms", "1000"),
        ("group.consumer.session.timeout.ms", "1000"),
        ("group.consumer.assignment.interval.ms", "0"),
    ];
    let builder = Broker::builder().memory().topic("orders", 4).topic("orders-eu", 2);
    let builder = builder.configure(|config| {
        for (name, value) in properties {
            config.set(name, value).expect("a property");
        }
    });
    let broker = builder.spawn().expect("a broker");
    let config = |group: &str| {
        let mut config = Config::new(broker.bootstrap_servers());
        let properties =
            [("group.id", group), ("group.protocol", "consumer"), ("metadata.max.age.ms", "300")];
        config.set_all(properties).expect("known properties");
        config
    };
    let mut seats = seats::Seats::default();
    seats.join("a", config("billing"), &["orders"]);
    seats.settle("one has all", 4);
    seats.join("b", config("billing"), &["orders"]);
    seats.settle("two share", 4);
    assert_eq!((seats.owned_by("a").len(), seats.owned_by("b").len()), (2, 2));
    seats.leave("a");
    seats.settle("the other takes over", 4);
    seats.join("c", config("billing"), &["orders"]);
    seats.settle("two share again", 4);
    seats.kill("b");
    seats.drive_for(Duration::from_millis(100));
    seats.settle("a session is over", 4);
    let mut other = seats::Seats::default();
    other.join("p", config("patterns"), &["^orders.*"]);
    other.settle("a pattern", 6);
}
