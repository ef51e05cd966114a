//! Records of groups whose names or sizes are at the limits, and records that a client must find after a kill.

#![allow(clippy::disallowed_methods, reason = "a test is a shell")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use ottla_broker::{Broker, BrokerBuilder, BrokerThread, Clock, DiskCall, DiskEffect, DiskFiles, DiskRule};
use ottla_log::storage::mem::{MemStorage, OpKind};
use ottla_protocol::ErrorCode;
use ottla_protocol::messages::consumer_group_describe::ConsumerGroupDescribeRequest;
use ottla_protocol::messages::consumer_group_heartbeat::{
    ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse,
};
use ottla_protocol::messages::consumer_protocol::ConsumerProtocolSubscription;
use ottla_protocol::messages::delete_groups::DeleteGroupsRequest;
use ottla_protocol::messages::describe_groups::DescribeGroupsRequest;
use ottla_protocol::messages::heartbeat::HeartbeatRequest;
use ottla_protocol::messages::incremental_alter_configs::{
    AlterConfigsResource, AlterableConfig, IncrementalAlterConfigsRequest,
};
use ottla_protocol::messages::join_group::{JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse};
use ottla_protocol::messages::leave_group::{LeaveGroupRequest, MemberIdentity};
use ottla_protocol::messages::list_groups::ListGroupsRequest;
use ottla_protocol::messages::offset_commit::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use ottla_protocol::messages::offset_delete::{
    OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic,
};
use ottla_protocol::messages::offset_fetch::{OffsetFetchRequest, OffsetFetchRequestGroup};
use ottla_protocol::messages::sync_group::{SyncGroupRequest, SyncGroupRequestAssignment};

use crate::common::{PATIENCE, Raw};
use crate::panicking_disk::{HAS_WRITTEN, PanicsBehindAppends};

const GROUP: &str = "billing";

fn builder(partitions: i32) -> BrokerBuilder {
    let builder = Broker::builder().memory().topic("orders", partitions);
    builder.configure(|config| {
        config.set("group.consumer.assignment.interval.ms", "0").expect("a setting");
    })
}

fn start(partitions: i32) -> (BrokerThread, Raw) {
    let broker = builder(partitions).spawn().expect("a broker");
    let connection = Raw::connect(broker.addresses()[0]);
    (broker, connection)
}

fn commit(connection: &mut Raw, group: &str, partitions: std::ops::Range<i32>) {
    let offset = |partition_index| OffsetCommitRequestPartition {
        partition_index,
        committed_offset: 5,
        ..Default::default()
    };
    let partitions: Vec<_> = partitions.map(offset).collect();
    let request = OffsetCommitRequest {
        group_id: group.into(),
        generation_id_or_member_epoch: -1,
        topics: vec![OffsetCommitRequestTopic { name: "orders".into(), partitions, ..Default::default() }],
        ..Default::default()
    };
    let answer = connection.ask(8, &request).expect("an answer");
    assert_eq!(answer.topics[0].partitions[0].error_code, ErrorCode::None);
}

/// The number of partitions that have an offset of the group.
fn committed(connection: &mut Raw, group: &str) -> usize {
    let group = OffsetFetchRequestGroup { group_id: group.into(), topics: None, ..Default::default() };
    let request = OffsetFetchRequest { groups: vec![group], ..Default::default() };
    let answer = connection.ask(8, &request).expect("an answer");
    answer.groups[0].topics.iter().map(|topic| topic.partitions.len()).sum()
}

/// All tombstones in one batch were too large, at each check.
#[test]
fn the_offsets_of_a_group_expire_also_if_their_tombstones_exceed_a_batch() {
    let now = Arc::new(AtomicI64::new(1_700_000_000_000));
    let broker = builder(400).clock(Clock::Fixed(now.clone())).configure(|config| {
        config.set("offsets.retention.check.interval.ms", "10").expect("a setting");
        config.set("offsets.retention.minutes", "1").expect("a setting");
    });
    let broker = broker.spawn().expect("a broker");
    let mut connection = Raw::connect(broker.addresses()[0]);
    let group = "g".repeat(30_000);
    commit(&mut connection, &group, 0..200);
    commit(&mut connection, &group, 200..400);
    assert_eq!(committed(&mut connection, &group), 400);
    now.fetch_add(61_000, Ordering::SeqCst);
    let deadline = std::time::Instant::now() + PATIENCE;
    while committed(&mut connection, &group) > 0 {
        assert!(std::time::Instant::now() < deadline, "the offsets do not expire");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Each repetition was a record with the name of the group: 150 MB for a request of 20 KB.
#[test]
fn offset_delete_writes_one_record_for_each_offset_that_exists() {
    let (broker, mut connection) = start(2);
    let group = "g".repeat(30_000);
    commit(&mut connection, &group, 0..1);
    let index = broker.cluster().group_partition(&group);
    let end = || broker.cluster().offsets_of("__consumer_offsets", index).expect("a partition").1;
    let before = end();
    let partition = |partition_index| OffsetDeleteRequestPartition { partition_index };
    let partitions = std::iter::repeat_n(0, 5000).chain([1]).map(partition).collect();
    let topics = vec![OffsetDeleteRequestTopic { name: "orders".into(), partitions }];
    let request = OffsetDeleteRequest { group_id: group.clone(), topics };
    let answer = connection.ask(0, &request).expect("an answer");
    assert_eq!(answer.error_code, ErrorCode::None);
    let codes = answer.topics[0].partitions.iter().map(|partition| partition.error_code);
    assert!(codes.eq(std::iter::repeat_n(ErrorCode::None, 5001)));
    assert_eq!(end() - before, 1);
    assert_eq!(committed(&mut connection, &group), 0);
}

fn beat(
    connection: &mut Raw,
    member: &str,
    member_epoch: i32,
    names: Option<Vec<String>>,
) -> ConsumerGroupHeartbeatResponse {
    let is_first = member_epoch == 0;
    let request = ConsumerGroupHeartbeatRequest {
        group_id: GROUP.into(),
        member_id: member.into(),
        member_epoch,
        rebalance_timeout_ms: if is_first { 60_000 } else { -1 },
        subscribed_topic_names: names,
        topic_partitions: is_first.then(Vec::new),
        ..Default::default()
    };
    connection.ask(1, &request).expect("an answer")
}

fn orders() -> Vec<String> {
    vec!["orders".to_owned()]
}

/// JoinGroup, again with the id that the broker gives.
fn join(connection: &mut Raw, instance: Option<&str>) -> JoinGroupResponse {
    let subscription = ConsumerProtocolSubscription { topics: vec!["orders".into()], ..Default::default() };
    let metadata = subscription.to_bytes(1).expect("a short name");
    let mut request = JoinGroupRequest {
        group_id: GROUP.into(),
        session_timeout_ms: 60_000,
        rebalance_timeout_ms: 60_000,
        group_instance_id: instance.map(str::to_owned),
        protocol_type: "consumer".into(),
        protocols: vec![JoinGroupRequestProtocol { name: "range".into(), metadata }],
        ..Default::default()
    };
    let answer = connection.ask(5, &request).expect("an answer");
    if answer.error_code != ErrorCode::MemberIdRequired {
        return answer;
    }
    request.member_id = answer.member_id;
    connection.ask(5, &request).expect("an answer")
}

fn sync(connection: &mut Raw, joined: &JoinGroupResponse, instance: Option<&str>) -> ErrorCode {
    let member_id = joined.member_id.clone();
    let is_leader = joined.leader == member_id;
    let assignment = Bytes::from_static(b"\0\x01\0\0\0\0\0\0\0\0");
    let assignments =
        is_leader.then(|| SyncGroupRequestAssignment { member_id: member_id.clone(), assignment });
    let request = SyncGroupRequest {
        group_id: GROUP.into(),
        generation_id: joined.generation_id,
        member_id,
        group_instance_id: instance.map(str::to_owned),
        assignments: assignments.into_iter().collect(),
        ..Default::default()
    };
    connection.ask(3, &request).expect("an answer").error_code
}

fn beat_classic(connection: &mut Raw, joined: &JoinGroupResponse, instance: Option<&str>) -> ErrorCode {
    let request = HeartbeatRequest {
        group_id: GROUP.into(),
        generation_id: joined.generation_id,
        member_id: joined.member_id.clone(),
        group_instance_id: instance.map(str::to_owned),
    };
    connection.ask(3, &request).expect("an answer").error_code
}

/// The id of the member had its instance's name. No record of the group could have a key with it, until the broker's end.
#[test]
fn a_group_survives_a_member_with_a_long_instance_id() {
    let (_broker, mut connection) = start(2);
    let joined = beat(&mut connection, "a", 0, Some(orders()));
    assert_eq!(joined.error_code, ErrorCode::None);
    let long = "i".repeat(32_750);
    let classic = join(&mut connection, Some(&long));
    assert_eq!(classic.error_code, ErrorCode::None);
    assert!(classic.member_id.len() < 1100, "{} bytes", classic.member_id.len());
    let stayed = beat(&mut connection, "a", joined.member_epoch, None);
    assert_eq!(stayed.error_code, ErrorCode::None, "{:?}", stayed.error_message);
}

/// Its record exceeded `max.message.bytes`, and all members got that error.
#[test]
fn a_member_whose_record_is_too_large_is_refused_alone() {
    let (_broker, mut connection) = start(2);
    let joined = beat(&mut connection, "a", 0, Some(orders()));
    let large = (0..400).map(|number| format!("{number}{}", "n".repeat(30_000))).collect();
    let refused = beat(&mut connection, "b", 0, Some(large));
    assert_eq!(refused.error_code, ErrorCode::GroupMaxSizeReached);
    assert!(refused.error_message.unwrap_or_default().contains("5242880"));
    let stayed = beat(&mut connection, "a", joined.member_epoch, None);
    assert_eq!(stayed.error_code, ErrorCode::None, "{:?}", stayed.error_message);
    assert_eq!(beat(&mut connection, "a", -1, None).error_code, ErrorCode::None);
    let request = DeleteGroupsRequest { groups_names: vec![GROUP.into()] };
    let deleted = connection.ask(2, &request).expect("an answer");
    assert_eq!(deleted.results[0].error_code, ErrorCode::None);
}

/// Only batches of more than a megabyte were divided: with a lower limit, or Apache Kafka's default, the members of a group with more
/// records got an error for ever.
#[test]
fn the_records_of_a_group_are_in_batches_that_keep_to_the_limit() {
    let (_broker, mut connection) = start(2);
    // Creates the topic.
    assert_eq!(beat(&mut connection, "a", 0, Some(orders())).error_code, ErrorCode::None);
    let value = Some("40000".into());
    let configs = vec![AlterableConfig { name: "max.message.bytes".into(), value, ..Default::default() }];
    let resource =
        AlterConfigsResource { resource_type: 2, resource_name: "__consumer_offsets".into(), configs };
    let alter = IncrementalAlterConfigsRequest { resources: vec![resource], validate_only: false };
    assert_eq!(connection.ask(1, &alter).expect("an answer").responses[0].error_code, ErrorCode::None);
    // The key of each record has the name: two of them fit into a batch.
    let mut member = ConsumerGroupHeartbeatRequest {
        group_id: "g".repeat(16_000),
        member_id: "a".into(),
        rebalance_timeout_ms: 60_000,
        subscribed_topic_names: Some(orders()),
        topic_partitions: Some(Vec::new()),
        ..Default::default()
    };
    let joined = connection.ask(1, &member).expect("an answer");
    assert_eq!(joined.error_code, ErrorCode::None, "{:?}", joined.error_message);
    assert_eq!(joined.assignment.expect("an assignment").topic_partitions[0].partitions, [0, 1]);
    (member.member_epoch, member.rebalance_timeout_ms) = (-1, -1);
    (member.subscribed_topic_names, member.topic_partitions) = (None, None);
    assert_eq!(connection.ask(1, &member).expect("an answer").error_code, ErrorCode::None);
    let request = DeleteGroupsRequest { groups_names: vec![member.group_id] };
    let deleted = connection.ask(2, &request).expect("an answer");
    assert_eq!(deleted.results[0].error_code, ErrorCode::None);
}

/// The classic group had what its members owned, and no member received the partition that was free.
#[test]
fn a_member_that_waits_for_a_partition_joins_again_when_its_group_becomes_classic() {
    let (broker, mut connection) = start(2);
    let request = ConsumerGroupHeartbeatRequest {
        group_id: GROUP.into(),
        member_id: "s".into(),
        instance_id: Some("i".into()),
        rebalance_timeout_ms: 60_000,
        subscribed_topic_names: Some(orders()),
        topic_partitions: Some(Vec::new()),
        ..Default::default()
    };
    let owner = connection.ask(1, &request).expect("an answer");
    assert_eq!(owner.assignment.expect("an assignment").topic_partitions[0].partitions, [0, 1]);
    let waits = join(&mut connection, None);
    assert_eq!((waits.error_code, sync(&mut connection, &waits, None)), (ErrorCode::None, ErrorCode::None));
    assert_eq!(beat_classic(&mut connection, &waits, None), ErrorCode::None);
    // The process of the static member starts again with the classic protocol.
    let later = std::thread::spawn({
        let address = broker.addresses()[0];
        move || join(&mut Raw::connect(address), Some("i"))
    });
    let deadline = std::time::Instant::now() + PATIENCE;
    while beat_classic(&mut connection, &waits, None) != ErrorCode::RebalanceInProgress {
        assert!(std::time::Instant::now() < deadline, "the member is not asked to join again");
        std::thread::sleep(Duration::from_millis(5));
    }
    // The group forms when it has joined again, or left.
    drop(broker);
    drop(later);
}

/// The answer came before the record. After a kill the old process was the member, and the new one was fenced.
#[test]
fn a_static_member_that_returns_is_the_member_after_a_kill() {
    let storage = MemStorage::new();
    let on = |storage: &MemStorage| {
        let broker = builder(2).storage(Arc::new(storage.clone())).spawn().expect("a broker");
        let connection = Raw::connect(broker.addresses()[0]);
        (broker, connection)
    };
    let (_broker, mut connection) = on(&storage);
    let instance = Some("i");
    let first = join(&mut connection, instance);
    assert_eq!(sync(&mut connection, &first, instance), ErrorCode::None);
    let again = join(&mut connection, instance);
    assert_eq!(again.error_code, ErrorCode::None);
    assert_ne!(again.member_id, first.member_id);
    let (_second, mut restarted) = on(&storage.fork());
    assert_eq!(beat_classic(&mut restarted, &again, instance), ErrorCode::None);
    assert_eq!(beat_classic(&mut restarted, &first, instance), ErrorCode::FencedInstanceId);
    let request = DescribeGroupsRequest { groups: vec![GROUP.into()], ..Default::default() };
    let described = restarted.ask(4, &request).expect("an answer");
    assert_eq!(described.groups[0].members.len(), 1);
}

/// Fills the disk of `__consumer_offsets`, which exists then. Returns the id of the fault.
fn fill_offsets_disk(broker: &BrokerThread, connection: &mut Raw) -> u64 {
    commit(connection, "other", 0..1);
    let files = DiskFiles::Topic("__consumer_offsets".into());
    broker.cluster().add_disk_fault(DiskRule { files, ..DiskRule::new(DiskCall::Write, DiskEffect::Full) })
}

/// The failure stayed the answer of every SyncGroup and of every static member's JoinGroup, and the record was never written.
#[test]
fn a_group_record_that_could_not_be_written_is_written_again() {
    let storage = MemStorage::new();
    let broker = builder(2).storage(Arc::new(storage.clone())).spawn().expect("a broker");
    let mut connection = Raw::connect(broker.addresses()[0]);
    let instance = Some("i");
    let joined = join(&mut connection, instance);
    let id = fill_offsets_disk(&broker, &mut connection);
    assert_eq!(sync(&mut connection, &joined, instance), ErrorCode::CoordinatorNotAvailable);
    assert_eq!(sync(&mut connection, &joined, instance), ErrorCode::CoordinatorNotAvailable);
    assert!(broker.cluster().remove_disk_fault(id));
    assert_eq!(sync(&mut connection, &joined, instance), ErrorCode::None);
    let restarted = builder(2).storage(Arc::new(storage.fork())).spawn().expect("a broker");
    let mut connection = Raw::connect(restarted.addresses()[0]);
    assert_eq!(beat_classic(&mut connection, &joined, instance), ErrorCode::None);
}

/// The member had joined again after the failure: the group never stored its next generation, and refused the member.
#[test]
fn a_static_member_that_joins_again_is_served_when_the_disk_has_recovered() {
    let (broker, mut connection) = start(2);
    let instance = Some("i");
    let joined = join(&mut connection, instance);
    let id = fill_offsets_disk(&broker, &mut connection);
    assert_eq!(sync(&mut connection, &joined, instance), ErrorCode::CoordinatorNotAvailable);
    let again = join(&mut connection, instance);
    assert_eq!(again.error_code, ErrorCode::CoordinatorNotAvailable);
    assert!(broker.cluster().remove_disk_fault(id));
    let again = join(&mut connection, instance);
    assert_eq!(again.error_code, ErrorCode::None);
    assert_eq!(sync(&mut connection, &again, instance), ErrorCode::None);
}

/// A group whose members do not ask again has its record, too: without it they would join again after a restart.
#[test]
fn a_group_record_is_written_again_also_if_members_only_send_heartbeats() {
    let (broker, mut connection) = start(2);
    let joined = join(&mut connection, None);
    let id = fill_offsets_disk(&broker, &mut connection);
    let index = broker.cluster().group_partition(GROUP);
    let end = || broker.cluster().offsets_of("__consumer_offsets", index).expect("a partition").1;
    let before = end();
    assert_eq!(sync(&mut connection, &joined, None), ErrorCode::CoordinatorNotAvailable);
    assert!(broker.cluster().remove_disk_fault(id));
    let deadline = std::time::Instant::now() + PATIENCE;
    while end() == before {
        assert!(std::time::Instant::now() < deadline, "the record is not written again");
        assert_eq!(beat_classic(&mut connection, &joined, None), ErrorCode::None);
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The record of the classic group was removed before the member was refused: the next generation was one of an earlier group.
#[test]
fn a_member_that_is_refused_leaves_an_empty_classic_group() {
    let storage = MemStorage::new();
    let broker = builder(2).storage(Arc::new(storage.clone())).spawn().expect("a broker");
    let mut connection = Raw::connect(broker.addresses()[0]);
    let joined = join(&mut connection, None);
    assert_eq!(sync(&mut connection, &joined, None), ErrorCode::None);
    let member = MemberIdentity { member_id: joined.member_id, ..Default::default() };
    let left = LeaveGroupRequest { group_id: GROUP.into(), members: vec![member], ..Default::default() };
    assert_eq!(connection.ask(3, &left).expect("an answer").error_code, ErrorCode::None);
    let large = (0..400).map(|number| format!("{number}{}", "n".repeat(30_000))).collect();
    let refused = beat(&mut connection, "a", 0, Some(large));
    assert_eq!(refused.error_code, ErrorCode::GroupMaxSizeReached);
    let restarted = builder(2).storage(Arc::new(storage.fork())).spawn().expect("a broker");
    let after_kill = Raw::connect(restarted.addresses()[0]);
    for mut connection in [connection, after_kill] {
        let request = DescribeGroupsRequest { groups: vec![GROUP.into()], ..Default::default() };
        let described = connection.ask(4, &request).expect("an answer").groups.remove(0);
        assert_eq!((&*described.group_state, &*described.protocol_type), ("Empty", "consumer"));
        // A member that is accepted replaces it.
        let accepted = beat(&mut connection, "a", 0, Some(orders()));
        assert_eq!(accepted.error_code, ErrorCode::None, "{:?}", accepted.error_message);
        let described = connection.ask(4, &request).expect("an answer").groups.remove(0);
        assert_ne!(described.group_state, "Empty");
    }
    // The record of the classic group is gone.
    let again = builder(2).storage(Arc::new(storage.fork())).spawn().expect("a broker");
    let mut connection = Raw::connect(again.addresses()[0]);
    let groups = connection.ask(5, &ListGroupsRequest::default()).expect("an answer").groups;
    let types: Vec<&str> = groups.iter().map(|group| group.group_type.as_str()).collect();
    assert_eq!(types, ["consumer"]);
}

/// The first records of the conversion removed parts of the members. They stayed in memory only, until the next start.
#[test]
fn a_group_whose_classic_record_is_too_large_keeps_the_records_of_its_members() {
    let storage = MemStorage::new();
    let broker = builder(2).storage(Arc::new(storage.clone())).spawn().expect("a broker");
    let mut connection = Raw::connect(broker.addresses()[0]);
    // The key of each record has the name: the records of the conversion need several batches.
    let group_id = "g".repeat(16_000);
    let mut member = ConsumerGroupHeartbeatRequest {
        group_id: group_id.clone(),
        member_id: "a".into(),
        rebalance_timeout_ms: 60_000,
        subscribed_topic_names: Some(orders()),
        topic_partitions: Some(Vec::new()),
        ..Default::default()
    };
    assert_eq!(connection.ask(1, &member).expect("an answer").error_code, ErrorCode::None);
    let value = Some("1200000".into());
    let configs = vec![AlterableConfig { name: "max.message.bytes".into(), value, ..Default::default() }];
    let resource =
        AlterConfigsResource { resource_type: 2, resource_name: "__consumer_offsets".into(), configs };
    let alter = IncrementalAlterConfigsRequest { resources: vec![resource], validate_only: false };
    assert_eq!(connection.ask(1, &alter).expect("an answer").responses[0].error_code, ErrorCode::None);
    let subscription = ConsumerProtocolSubscription {
        topics: orders(),
        user_data: Some(vec![7_u8; 50_000].into()),
        ..Default::default()
    };
    let metadata = subscription.to_bytes(1).expect("a short name");
    let classic = JoinGroupRequest {
        group_id: group_id.clone(),
        session_timeout_ms: 60_000,
        rebalance_timeout_ms: 60_000,
        protocol_type: "consumer".into(),
        protocols: vec![JoinGroupRequestProtocol { name: "range".into(), metadata }],
        ..Default::default()
    };
    for _ in 0..30 {
        assert_eq!(connection.ask(3, &classic).expect("an answer").error_code, ErrorCode::None);
    }
    (member.member_epoch, member.rebalance_timeout_ms) = (-1, -1);
    (member.subscribed_topic_names, member.topic_partitions) = (None, None);
    assert_eq!(connection.ask(1, &member).expect("an answer").error_code, ErrorCode::None);
    let restarted = builder(2).storage(Arc::new(storage.fork())).spawn().expect("a broker");
    let mut after_kill = Raw::connect(restarted.addresses()[0]);
    let [before, after] = [&mut connection, &mut after_kill].map(|connection| {
        let request =
            ConsumerGroupDescribeRequest { group_ids: vec![group_id.clone()], ..Default::default() };
        connection.ask(1, &request).expect("an answer").groups.remove(0)
    });
    assert_eq!((before.error_code, before.members.len()), (ErrorCode::None, 30));
    assert!(after.members == before.members && after.group_epoch == before.group_epoch, "{after:?}");
}

/// The connection was closed, and the record was appended again at each attempt.
#[test]
fn a_panic_behind_the_append_of_a_groups_record_does_not_repeat_it() {
    let disk = MemStorage::forgetful();
    let broker = Broker::builder().storage(Arc::new(PanicsBehindAppends(disk.clone()))).topic("orders", 1);
    let broker = broker.spawn().expect("a broker");
    let mut connection = Raw::connect(broker.addresses()[0]);
    let joined = join(&mut connection, None);
    assert_eq!(joined.error_code, ErrorCode::None);
    let mut has_panicked = false;
    disk.inject(move |op| {
        let is_segment = Path::new(op.path).extension().is_some_and(|extension| extension == "log");
        let is_record = op.kind == OpKind::Write && is_segment && op.path.starts_with("__consumer_offsets-");
        if is_record && !std::mem::replace(&mut has_panicked, true) {
            HAS_WRITTEN.set(true);
        }
        None
    });
    assert_eq!(sync(&mut connection, &joined, None), ErrorCode::CoordinatorNotAvailable);
    let index = broker.cluster().group_partition(GROUP);
    let end = || broker.cluster().offsets_of("__consumer_offsets", index).expect("a partition").1;
    let after_panic = end();
    assert!(after_panic > 0, "the record is in the log");
    assert_eq!(sync(&mut connection, &joined, None), ErrorCode::None);
    assert_eq!(end(), after_panic);
    assert_eq!(beat_classic(&mut connection, &joined, None), ErrorCode::None);
    disk.heal();
    broker.stop();
}
