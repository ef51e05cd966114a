//! Share groups (KIP-932) over the wire: heartbeats, start offsets, the share coordinator, and all of it after a kill.

#![allow(clippy::disallowed_methods, reason = "a test is a shell")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};

use ottla_broker::{Broker, BrokerConfig, BrokerThread, Clock, Durability};
use ottla_log::storage::mem::{Fault, MemStorage, OpKind};
use ottla_protocol::messages as m;
use ottla_protocol::messages::share_group_heartbeat::{
    ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse,
};
use ottla_protocol::{ErrorCode, Uuid};
use ottla_wire::Seal;

use crate::common;
use crate::common::{PATIENCE, Raw, batch};

pub(crate) const GROUP: &str = "workers";

pub(crate) fn start(storage: &MemStorage) -> (BrokerThread, Raw) {
    start_with(storage, |_| {})
}

fn start_with(storage: &MemStorage, tune: impl FnOnce(&mut BrokerConfig)) -> (BrokerThread, Raw) {
    let builder = Broker::builder().storage(Arc::new(storage.clone())).topic("orders", 4).topic("other", 2);
    let builder = builder.configure(|config| {
        tune(config);
        for (name, value) in [
            ("group.share.assignment.interval.ms", "0"),
            ("group.share.min.session.timeout.ms", "100"),
            ("group.share.min.heartbeat.interval.ms", "50"),
            ("share.coordinator.snapshot.update.records.per.snapshot", "3"),
        ] {
            config.set(name, value).expect("a property");
        }
    });
    let broker = builder.spawn().expect("a broker");
    let connection = Raw::connect(broker.addresses()[0]);
    (broker, connection)
}

pub(crate) fn beat(
    connection: &mut Raw,
    member: &str,
    epoch: i32,
    topics: &[&str],
) -> ShareGroupHeartbeatResponse {
    let names: Vec<String> = topics.iter().map(|topic| (*topic).to_owned()).collect();
    let request = ShareGroupHeartbeatRequest {
        group_id: GROUP.into(),
        member_id: member.into(),
        member_epoch: epoch,
        subscribed_topic_names: (!names.is_empty()).then_some(names),
        ..Default::default()
    };
    connection.ask(1, &request).expect("an answer")
}

pub(crate) fn partitions(response: &ShareGroupHeartbeatResponse) -> usize {
    assert_eq!(response.error_code, ErrorCode::None, "{:?}", response.error_message);
    let topics = &response.assignment.as_ref().expect("an assignment").topic_partitions;
    topics.iter().map(|topic| topic.partitions.len()).sum()
}

pub(crate) fn topic_id(connection: &mut Raw, name: &str) -> Uuid {
    let topic = m::metadata::MetadataRequestTopic { name: Some(name.into()), ..Default::default() };
    let request = m::metadata::MetadataRequest { topics: Some(vec![topic]), ..Default::default() };
    connection.ask(12, &request).expect("an answer").topics[0].topic_id
}

/// The start offset and the lag of each partition of a topic, or of all topics.
pub(crate) fn offsets(connection: &mut Raw, topic: Option<&str>) -> Vec<(String, i32, i64, i64)> {
    use m::describe_share_group_offsets as d;
    let topics = topic.map(|topic| {
        let partitions = vec![0];
        vec![d::DescribeShareGroupOffsetsRequestTopic { topic_name: topic.into(), partitions }]
    });
    let group = d::DescribeShareGroupOffsetsRequestGroup { group_id: GROUP.into(), topics };
    let request = d::DescribeShareGroupOffsetsRequest { groups: vec![group] };
    let answer = connection.ask(1, &request).expect("an answer");
    assert_eq!(answer.groups[0].error_code, ErrorCode::None);
    let topics = answer.groups[0].topics.iter();
    let rows = topics.flat_map(|topic| {
        topic.partitions.iter().map(|partition| {
            assert_eq!(partition.error_code, ErrorCode::None);
            let name = topic.topic_name.clone();
            (name, partition.partition_index, partition.start_offset, partition.lag)
        })
    });
    rows.collect()
}

/// The error of the request, and those of the partitions.
pub(crate) fn alter(connection: &mut Raw, topic: &str, starts: &[(i32, i64)]) -> (ErrorCode, Vec<ErrorCode>) {
    use m::alter_share_group_offsets as a;
    let partitions =
        starts.iter().map(|(partition_index, start_offset)| a::AlterShareGroupOffsetsRequestPartition {
            partition_index: *partition_index,
            start_offset: *start_offset,
        });
    let topic =
        a::AlterShareGroupOffsetsRequestTopic { topic_name: topic.into(), partitions: partitions.collect() };
    let request = a::AlterShareGroupOffsetsRequest { group_id: GROUP.into(), topics: vec![topic] };
    let answer = connection.ask(0, &request).expect("an answer");
    let topics = answer.responses.iter();
    let codes = topics.flat_map(|topic| topic.partitions.iter().map(|partition| partition.error_code));
    (answer.error_code, codes.collect())
}

fn delete_offsets(connection: &mut Raw, topic: &str) -> (ErrorCode, Vec<ErrorCode>) {
    use m::delete_share_group_offsets as d;
    let topics = vec![d::DeleteShareGroupOffsetsRequestTopic { topic_name: topic.into() }];
    let request = d::DeleteShareGroupOffsetsRequest { group_id: GROUP.into(), topics };
    let answer = connection.ask(0, &request).expect("an answer");
    (answer.error_code, answer.responses.iter().map(|topic| topic.error_code).collect())
}

pub(crate) fn delete_group(connection: &mut Raw) -> ErrorCode {
    let request = m::delete_groups::DeleteGroupsRequest { groups_names: vec![GROUP.into()] };
    connection.ask(2, &request).expect("an answer").results[0].error_code
}

pub(crate) fn describe(connection: &mut Raw) -> m::share_group_describe::DescribedGroup {
    let request = m::share_group_describe::ShareGroupDescribeRequest {
        group_ids: vec![GROUP.into()],
        ..Default::default()
    };
    connection.ask(1, &request).expect("an answer").groups.remove(0)
}

/// The listed groups of a type: name, type, protocol type and state.
fn listed(connection: &mut Raw, of_type: &str) -> Vec<[String; 4]> {
    let request =
        m::list_groups::ListGroupsRequest { types_filter: vec![of_type.into()], ..Default::default() };
    let groups = connection.ask(5, &request).expect("an answer").groups.into_iter();
    groups.map(|it| [it.group_id, it.group_type, it.protocol_type, it.group_state]).collect()
}

pub(crate) fn read_state(
    connection: &mut Raw,
    topic_id: Uuid,
    leader_epoch: i32,
) -> m::read_share_group_state::PartitionResult {
    use m::read_share_group_state as r;
    let partitions = vec![r::PartitionData { partition: 0, leader_epoch }];
    let topics = vec![r::ReadStateData { topic_id, partitions }];
    let request = r::ReadShareGroupStateRequest { group_id: GROUP.into(), topics };
    connection.ask(0, &request).expect("an answer").results.remove(0).partitions.remove(0)
}

fn write_state(
    connection: &mut Raw,
    topic_id: Uuid,
    (state_epoch, leader_epoch): (i32, i32),
    (first, last, delivery_state): (i64, i64, i8),
) -> ErrorCode {
    use m::write_share_group_state as w;
    let batch = w::StateBatch { first_offset: first, last_offset: last, delivery_state, delivery_count: 1 };
    let partition = w::PartitionData {
        partition: 0,
        state_epoch,
        leader_epoch,
        start_offset: 0,
        delivery_complete_count: 0,
        state_batches: vec![batch],
    };
    let topics = vec![w::WriteStateData { topic_id, partitions: vec![partition] }];
    let request = w::WriteShareGroupStateRequest { group_id: GROUP.into(), topics };
    connection.ask(1, &request).expect("an answer").results[0].partitions[0].error_code
}

#[test]
fn members_share_a_topic_and_the_group_survives_a_kill() {
    let storage = MemStorage::new();
    let (_broker, mut connection) = start(&storage);
    let first = beat(&mut connection, "m1", 0, &["orders"]);
    assert_eq!((partitions(&first), first.heartbeat_interval_ms), (4, 5000));
    let second = beat(&mut connection, "m2", 0, &["orders"]);
    assert_eq!(partitions(&second), 2);
    let first = beat(&mut connection, "m1", first.member_epoch, &[]);
    assert_eq!(partitions(&first), 2);
    let described = describe(&mut connection);
    assert_eq!((&*described.group_state, &*described.assignor_name), ("Stable", "simple"));
    assert_eq!(described.members.len(), 2);
    assert_eq!(described.members[0].assignment.topic_partitions[0].topic_name, "orders");
    assert_eq!(listed(&mut connection, "share"), [[GROUP, "share", "share", "Stable"].map(str::to_owned)]);
    assert!(listed(&mut connection, "consumer").is_empty() && listed(&mut connection, "classic").is_empty());

    let (_next, mut connection) = start(&storage.fork());
    let again = beat(&mut connection, "m1", first.member_epoch, &[]);
    assert_eq!((again.error_code, again.member_epoch), (ErrorCode::None, first.member_epoch));
    assert_eq!(again.assignment, None, "nothing has changed for the member");
    assert_eq!(describe(&mut connection).members, described.members);
    assert_eq!(delete_group(&mut connection), ErrorCode::NonEmptyGroup);
    for member in ["m1", "m2"] {
        assert_eq!(beat(&mut connection, member, -1, &[]).member_epoch, -1);
    }
    assert_eq!(describe(&mut connection).group_state, "Empty");
    assert_eq!(delete_group(&mut connection), ErrorCode::None);
    assert_eq!(describe(&mut connection).error_code, ErrorCode::GroupIdNotFound);
    assert_eq!(delete_group(&mut connection), ErrorCode::GroupIdNotFound);
}

#[test]
fn requests_are_checked() {
    let (_broker, mut connection) = start(&MemStorage::new());
    let code = |connection: &mut Raw, member: &str, epoch: i32, topics: &[&str]| {
        beat(connection, member, epoch, topics).error_code
    };
    assert_eq!(code(&mut connection, "", 0, &["orders"]), ErrorCode::InvalidRequest);
    assert_eq!(code(&mut connection, "m1", 0, &[]), ErrorCode::InvalidRequest);
    assert_eq!(code(&mut connection, "m1", -2, &["orders"]), ErrorCode::InvalidRequest);
    assert_eq!(code(&mut connection, "m1", 1, &["orders"]), ErrorCode::GroupIdNotFound);
    let epoch = beat(&mut connection, "m1", 0, &["orders"]).member_epoch;
    assert_eq!(code(&mut connection, "m2", 1, &[]), ErrorCode::UnknownMemberId);
    assert_eq!(code(&mut connection, "m1", epoch + 9, &[]), ErrorCode::FencedMemberEpoch);
    assert_eq!(code(&mut connection, "m1", epoch, &[]), ErrorCode::None);
}

#[test]
fn a_silent_member_is_removed() {
    let (_broker, mut connection) = start(&MemStorage::new());
    let set = |(name, value): (&str, &str)| m::incremental_alter_configs::AlterableConfig {
        name: name.into(),
        config_operation: 0,
        value: Some(value.into()),
    };
    let short = [("share.session.timeout.ms", "300"), ("share.heartbeat.interval.ms", "100")];
    let resource = m::incremental_alter_configs::AlterConfigsResource {
        resource_type: 32,
        resource_name: GROUP.into(),
        configs: short.map(set).to_vec(),
    };
    let request = m::incremental_alter_configs::IncrementalAlterConfigsRequest {
        resources: vec![resource],
        ..Default::default()
    };
    let answer = connection.ask(1, &request).expect("an answer");
    assert_eq!(answer.responses[0].error_code, ErrorCode::None);
    beat(&mut connection, "m1", 0, &["orders"]);
    let deadline = Instant::now() + PATIENCE;
    while describe(&mut connection).group_state != "Empty" {
        assert!(Instant::now() < deadline, "the member is still there");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn groups_of_other_types_keep_their_names() {
    let (_broker, mut connection) = start(&MemStorage::new());
    beat(&mut connection, "m1", 0, &["orders"]);
    let consumer = m::consumer_group_heartbeat::ConsumerGroupHeartbeatRequest {
        group_id: GROUP.into(),
        member_id: "c1".into(),
        rebalance_timeout_ms: 1000,
        subscribed_topic_names: Some(vec!["orders".into()]),
        topic_partitions: Some(Vec::new()),
        ..Default::default()
    };
    let answer = connection.ask(1, &consumer).expect("an answer");
    assert_eq!(answer.error_code, ErrorCode::GroupIdNotFound);
    let classic = m::join_group::JoinGroupRequest {
        group_id: GROUP.into(),
        session_timeout_ms: 10_000,
        protocol_type: "consumer".into(),
        protocols: vec![m::join_group::JoinGroupRequestProtocol {
            name: "range".into(),
            ..Default::default()
        }],
        ..Default::default()
    };
    let answer = connection.ask(3, &classic).expect("an answer");
    assert_eq!(answer.error_code, ErrorCode::InconsistentGroupProtocol);
    let commit = common::commit_request(GROUP, 7);
    let answer = connection.ask(8, &commit).expect("an answer");
    assert_eq!(answer.topics[0].partitions[0].error_code, ErrorCode::GroupIdNotFound);
    // And the other way round: the group exists because of an offset.
    let commit = common::commit_request("committed", 7);
    let answer = connection.ask(8, &commit).expect("an answer");
    assert_eq!(answer.topics[0].partitions[0].error_code, ErrorCode::None);
    let share = ShareGroupHeartbeatRequest {
        group_id: "committed".into(),
        member_id: "m1".into(),
        subscribed_topic_names: Some(vec!["orders".into()]),
        ..Default::default()
    };
    assert_eq!(connection.ask(1, &share).expect("an answer").error_code, ErrorCode::GroupIdNotFound);
    // OffsetFetch finds no offsets, without an error.
    use m::offset_fetch as f;
    let topic = f::OffsetFetchRequestTopics {
        name: "orders".into(),
        partition_indexes: vec![0],
        ..Default::default()
    };
    for (topics, expected) in [(Some(vec![topic]), vec![(-1, ErrorCode::None)]), (None, Vec::new())] {
        let group = f::OffsetFetchRequestGroup { group_id: GROUP.into(), topics, ..Default::default() };
        let request = f::OffsetFetchRequest { groups: vec![group], ..Default::default() };
        let group = connection.ask(8, &request).expect("an answer").groups.remove(0);
        let partitions = group.topics.iter().flat_map(|topic| &topic.partitions);
        let found: Vec<_> = partitions.map(|it| (it.committed_offset, it.error_code)).collect();
        assert_eq!((group.error_code, found), (ErrorCode::None, expected));
    }
    // Requests for groups of other types do not see it.
    let request =
        m::describe_groups::DescribeGroupsRequest { groups: vec![GROUP.into()], ..Default::default() };
    let group = connection.ask(6, &request).expect("an answer").groups.remove(0);
    assert_eq!((group.error_code, &*group.group_state), (ErrorCode::GroupIdNotFound, "Dead"));
    let request = m::consumer_group_describe::ConsumerGroupDescribeRequest {
        group_ids: vec![GROUP.into()],
        ..Default::default()
    };
    let group = connection.ask(1, &request).expect("an answer").groups.remove(0);
    assert_eq!(group.error_code, ErrorCode::GroupIdNotFound);
    assert_eq!(group.error_message.as_deref(), Some("group `workers` is not a consumer group"));
}

#[test]
fn a_share_group_that_does_not_exist_is_described_as_not_found() {
    let (_broker, mut connection) = start(&MemStorage::new());
    let missing = describe(&mut connection);
    assert_eq!(missing.error_code, ErrorCode::GroupIdNotFound);
    assert_eq!(missing.error_message.as_deref(), Some("Group workers not found."));
}

#[test]
fn start_offsets_are_set_described_and_deleted_and_survive_a_kill() {
    let storage = MemStorage::new();
    let (_broker, mut connection) = start(&storage);
    for _ in 0..3 {
        let records = batch(&[b"one", b"two"], &Seal::default());
        assert_eq!(connection.produce("orders", -1, &records).error_code, ErrorCode::None);
    }
    assert_eq!(offsets(&mut connection, None), []);
    assert_eq!(offsets(&mut connection, Some("orders")), [("orders".into(), 0, -1, -1)]);
    assert_eq!(offsets(&mut connection, Some("missing")), [("missing".into(), 0, -1, -1)]);
    assert_eq!(delete_offsets(&mut connection, "orders").0, ErrorCode::GroupIdNotFound);
    // The group need not exist.
    let unknown = ErrorCode::UnknownTopicOrPartition;
    assert_eq!(alter(&mut connection, "missing", &[(0, 1)]), (ErrorCode::None, vec![unknown]));
    assert_eq!(describe(&mut connection).error_code, ErrorCode::GroupIdNotFound);
    let altered = alter(&mut connection, "orders", &[(0, 2), (9, 2)]);
    assert_eq!(altered, (ErrorCode::None, vec![ErrorCode::None, unknown]));
    assert_eq!(offsets(&mut connection, None), [("orders".into(), 0, 2, 4)]);
    assert_eq!(describe(&mut connection).group_state, "Empty");

    let (_next, mut connection) = start(&storage.fork());
    assert_eq!(offsets(&mut connection, None), [("orders".into(), 0, 2, 4)]);
    assert_eq!(alter(&mut connection, "orders", &[(0, 6)]).0, ErrorCode::None);
    assert_eq!(offsets(&mut connection, Some("orders")), [("orders".into(), 0, 6, 0)]);
    // Not while members read.
    let epoch = beat(&mut connection, "m1", 0, &["orders"]).member_epoch;
    assert!(epoch > 0);
    assert_eq!(alter(&mut connection, "orders", &[(0, 0)]).0, ErrorCode::NonEmptyGroup);
    assert_eq!(delete_offsets(&mut connection, "orders").0, ErrorCode::NonEmptyGroup);
    assert_eq!(offsets(&mut connection, None).len(), 4, "the other partitions are initialized, too");
    beat(&mut connection, "m1", -1, &[]);
    assert_eq!(delete_offsets(&mut connection, "orders"), (ErrorCode::None, vec![ErrorCode::None]));
    assert_eq!(delete_offsets(&mut connection, "other"), (ErrorCode::None, vec![unknown]));
    assert_eq!(offsets(&mut connection, None), []);
    assert_eq!(delete_group(&mut connection), ErrorCode::None);
    assert!(listed(&mut connection, "share").is_empty());
}

#[test]
fn the_state_of_a_share_partition_survives_a_kill() {
    let storage = MemStorage::new();
    let (_broker, mut connection) = start(&storage);
    let id = topic_id(&mut connection, "orders");
    assert_eq!(read_state(&mut connection, id, 0).error_code, ErrorCode::InvalidRequest);
    let epoch = beat(&mut connection, "m1", 0, &["orders"]).member_epoch;
    let state = read_state(&mut connection, id, 0);
    assert_eq!((state.error_code, state.start_offset), (ErrorCode::None, -1));
    let mut storage = storage;
    let mut brokers = Vec::new();
    for at in 0..8 {
        let epochs = (state.state_epoch, at / 2);
        let written = write_state(&mut connection, id, epochs, (2 * i64::from(at), 2 * i64::from(at), 2));
        assert_eq!(written, ErrorCode::None, "change {at}");
        if at % 3 == 2 {
            storage = storage.fork();
            let (broker, next) = start(&storage);
            connection = next;
            brokers.push(broker);
        }
    }
    let (_last, mut connection) = start(&storage.fork());
    let read = read_state(&mut connection, id, 3);
    assert_eq!(read.error_code, ErrorCode::None);
    let firsts: Vec<i64> = read.state_batches.iter().map(|batch| batch.first_offset).collect();
    assert_eq!(firsts, [0, 2, 4, 6, 8, 10, 12, 14]);
    assert_eq!(
        write_state(&mut connection, id, (state.state_epoch, 2), (0, 0, 2)),
        ErrorCode::FencedLeaderEpoch
    );
    assert_eq!(read_state(&mut connection, id, 2).error_code, ErrorCode::FencedLeaderEpoch);
    beat(&mut connection, "m1", epoch, &[]);
    beat(&mut connection, "m1", -1, &[]);
    assert_eq!(alter(&mut connection, "orders", &[(0, 5)]).0, ErrorCode::None);
    assert_eq!(
        write_state(&mut connection, id, (state.state_epoch, 3), (6, 6, 2)),
        ErrorCode::FencedStateEpoch,
        "the offset was reset"
    );
    let read = read_state(&mut connection, id, 3);
    assert_eq!((read.start_offset, read.state_batches.len()), (5, 0));
}

#[test]
fn a_deleted_topic_leaves_the_groups() {
    let storage = MemStorage::new();
    let (_broker, mut connection) = start(&storage);
    let epoch = beat(&mut connection, "m1", 0, &["orders", "other"]).member_epoch;
    let id = topic_id(&mut connection, "other");
    let request = m::delete_topics::DeleteTopicsRequest {
        topic_names: vec!["other".into()],
        timeout_ms: 10_000,
        ..Default::default()
    };
    assert_eq!(connection.ask(3, &request).expect("an answer").responses[0].error_code, ErrorCode::None);
    let answer = beat(&mut connection, "m1", epoch, &[]);
    assert_eq!(partitions(&answer), 4);
    assert_eq!(offsets(&mut connection, None).len(), 4);
    assert_eq!(read_state(&mut connection, id, 0).error_code, ErrorCode::InvalidRequest);
    let (_next, mut connection) = start(&storage.fork());
    assert_eq!(offsets(&mut connection, None).len(), 4);
    assert_eq!(read_state(&mut connection, id, 0).error_code, ErrorCode::InvalidRequest);
}

#[test]
fn the_coordinator_of_a_share_partition_is_found_by_its_key() {
    let (_broker, mut connection) = start(&MemStorage::new());
    let find = |connection: &mut Raw, version: i16, key: &str| {
        let request = m::find_coordinator::FindCoordinatorRequest {
            key_type: 2,
            coordinator_keys: vec![key.into()],
            ..Default::default()
        };
        let coordinator = connection.ask(version, &request).expect("an answer").coordinators.remove(0);
        (coordinator.error_code, coordinator.node_id)
    };
    let id = topic_id(&mut connection, "orders");
    assert_eq!(find(&mut connection, 6, &format!("{GROUP}:{id}:0")), (ErrorCode::None, 1));
    assert_eq!(find(&mut connection, 6, GROUP).0, ErrorCode::InvalidRequest);
    assert_eq!(find(&mut connection, 5, &format!("{GROUP}:{id}:0")).0, ErrorCode::InvalidRequest);
    let topic =
        m::metadata::MetadataRequestTopic { name: Some("__share_group_state".into()), ..Default::default() };
    let request = m::metadata::MetadataRequest { topics: Some(vec![topic]), ..Default::default() };
    let topic = connection.ask(12, &request).expect("an answer").topics.remove(0);
    assert!(topic.is_internal && topic.partitions.len() == 50);
}

/// The first offset that a new session of a member acquires.
fn first_acquired(broker: &BrokerThread, topic_id: Uuid, member: &str) -> Option<i64> {
    use m::share_fetch as f;
    let partition = f::FetchPartition { partition_index: 0, acknowledgement_batches: Vec::new() };
    let request = f::ShareFetchRequest {
        group_id: Some(GROUP.into()),
        member_id: Some(member.into()),
        max_wait_ms: 0,
        min_bytes: 1,
        max_bytes: 1 << 20,
        max_records: 1,
        batch_size: 1,
        topics: vec![f::FetchTopic { topic_id, partitions: vec![partition] }],
        ..Default::default()
    };
    let mut connection = Raw::connect(broker.addresses()[0]);
    let answer = connection.ask(2, &request).expect("an answer");
    assert_eq!(answer.error_code, ErrorCode::None);
    let partition = &answer.responses.first()?.partitions[0];
    assert_eq!(partition.error_code, ErrorCode::None);
    partition.acquired_records.first().map(|batch| batch.first_offset)
}

#[test]
fn members_read_from_an_offset_that_was_reset() {
    let storage = MemStorage::new();
    let (broker, mut connection) = start(&storage);
    let id = topic_id(&mut connection, "orders");
    for _ in 0..6 {
        let records = batch(&[b"one"], &Seal::default());
        assert_eq!(connection.produce("orders", -1, &records).error_code, ErrorCode::None);
    }
    for start in [4, 2] {
        assert_eq!(alter(&mut connection, "orders", &[(0, start)]).0, ErrorCode::None);
        beat(&mut connection, "m1", 0, &["orders"]);
        assert_eq!(
            first_acquired(&broker, id, "m1"),
            Some(start),
            "the leader has forgotten the state before"
        );
        beat(&mut connection, "m1", -1, &[]);
    }
    // A group of the same name is another group.
    assert_eq!(delete_group(&mut connection), ErrorCode::None);
    assert_eq!(alter(&mut connection, "orders", &[(0, 5)]).0, ErrorCode::None);
    beat(&mut connection, "m1", 0, &["orders"]);
    assert_eq!(first_acquired(&broker, id, "m1"), Some(5));
}

/// The group's lag counts records on whose delivery is complete, and the broker counts the group with its state and members.
#[test]
fn share_groups_their_members_and_their_lag_are_in_the_metrics() {
    let (broker, mut connection) = start(&MemStorage::new());
    for _ in 0..6 {
        let records = batch(&[b"one"], &Seal::default());
        assert_eq!(connection.produce("orders", -1, &records).error_code, ErrorCode::None);
    }
    let value = |series: &str| {
        let text = broker.cluster().metrics_text(10);
        text.lines().find_map(|line| line.strip_prefix(series)).map(|value| value.trim().to_owned())
    };
    assert_eq!(value("ottla_group_members{protocol=\"share\"}").as_deref(), Some("0"));
    assert_eq!(alter(&mut connection, "orders", &[(0, 2), (1, 0)]).0, ErrorCode::None);
    assert_eq!(value("ottla_groups{protocol=\"share\",state=\"Empty\"}").as_deref(), Some("1"));
    let lag = "ottla_group_lag_records{group=\"workers\",topic=\"orders\",partition=\"0\"}";
    assert_eq!(value(lag).as_deref(), Some("4"));
    assert_eq!(value("ottla_group_lag_sum_records{group=\"workers\"}").as_deref(), Some("4"));
    beat(&mut connection, "m1", 0, &["orders"]);
    assert_eq!(value("ottla_groups{protocol=\"share\",state=\"Stable\"}").as_deref(), Some("1"));
    assert_eq!(value("ottla_group_members{protocol=\"share\"}").as_deref(), Some("1"));
}

/// librdkafka's test 0172: the first member had all partitions and had read all records before the second one was known.
#[test]
fn the_first_member_of_a_share_group_waits_for_others() {
    let delay = Duration::from_secs(2);
    let tune = |config: &mut BrokerConfig| {
        config.set("group.initial.rebalance.delay.ms", &delay.as_millis().to_string()).expect("a property");
    };
    let (broker, mut first) = start_with(&MemStorage::new(), tune);
    let address = broker.addresses()[0];
    let began = Instant::now();
    let joins = std::thread::spawn(move || beat(&mut first, "m1", 0, &["orders"]));
    let mut second = Raw::connect(address);
    while listed(&mut second, "share").is_empty() {
        assert!(began.elapsed() < PATIENCE);
    }
    beat(&mut second, "m2", 0, &["orders"]);
    assert_eq!(partitions(&joins.join().expect("an answer")), 2);
    assert!(began.elapsed() >= delay);
    assert_eq!(partitions(&beat(&mut second, "m2", 0, &["orders"])), 2);
}

/// A member got no partitions until the wall clock had caught up. Seed 29 of the simulation found it.
#[test]
fn a_clock_that_goes_back_does_not_delay_the_assignment_of_a_share_group() {
    let clock = Arc::new(AtomicI64::new(1_700_000_000_000));
    let builder = Broker::builder().memory().topic("orders", 4).clock(Clock::Fixed(clock.clone()));
    let broker = builder.spawn().expect("a broker");
    let mut connection = Raw::connect(broker.addresses()[0]);
    assert_eq!(partitions(&beat(&mut connection, "m1", 0, &["orders"])), 4);
    clock.fetch_sub(86_400_000, Ordering::Relaxed);
    assert!(partitions(&beat(&mut connection, "m2", 0, &["orders"])) > 0);
}

const STATES: &str = "__share_group_state";

/// A broker that prunes the states every few milliseconds, with all of them in one partition.
fn start_pruning(storage: &MemStorage, cold_after: Duration) -> (BrokerThread, Raw) {
    start_with(storage, |config| {
        config.share_coordinator.state_topic_partitions = 1;
        config.share_coordinator.prune_interval = Duration::from_millis(20);
        config.share_coordinator.cold_snapshot_interval = cold_after;
    })
}

/// Waits until the log of the states begins at an offset that is late enough.
fn await_start(broker: &BrokerThread, is_late: impl Fn(i64) -> bool) -> i64 {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let (start, end) = broker.cluster().offsets_of(STATES, 0).expect("the topic");
        if is_late(start) {
            return start;
        }
        assert!(Instant::now() < deadline, "the states are not pruned: they are at {start} to {end}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The start offset of each partition.
const STARTS: [(i32, i64); 4] = [(0, 0), (1, 11), (2, 12), (3, 13)];

fn starts(connection: &mut Raw) -> Vec<(i32, i64)> {
    let described = offsets(connection, None);
    described.into_iter().map(|(_, partition, start, _)| (partition, start)).collect()
}

/// Each state has a snapshot that replaces its earlier records. Records before all of these snapshots are deleted, and a broker that
/// starts later has each state.
#[test]
fn records_that_newer_snapshots_replace_are_deleted_and_the_states_survive_a_kill() {
    let storage = MemStorage::new();
    let (broker, mut connection) = start_pruning(&storage, Duration::from_millis(50));
    let id = topic_id(&mut connection, "orders");
    // Four states, of which only one changes: the others get new snapshots when they are cold.
    assert_eq!(alter(&mut connection, "orders", &STARTS).0, ErrorCode::None);
    let state = read_state(&mut connection, id, 0);
    let mut written = 0;
    for round in 1..=3 {
        let (_, end) = broker.cluster().offsets_of(STATES, 0).expect("the topic");
        for _ in 0..10 {
            let at = 2 * written;
            let code = write_state(&mut connection, id, (state.state_epoch, 0), (at, at, 2));
            assert_eq!(code, ErrorCode::None);
            written += 1;
        }
        let start = await_start(&broker, |start| start >= end);
        assert!(start >= end, "round {round}: all records of earlier rounds are deleted");
    }
    let (_later, mut connection) = start_pruning(&storage.fork(), Duration::from_millis(50));
    let read = read_state(&mut connection, id, 0);
    assert_eq!(read.error_code, ErrorCode::None);
    let firsts: Vec<i64> = read.state_batches.iter().map(|batch| batch.first_offset).collect();
    assert_eq!(firsts, (0..written).map(|at| 2 * at).collect::<Vec<_>>());
    assert_eq!(starts(&mut connection), STARTS, "the states that did not change are there");
    drop(broker);
}

/// With durability `os` a power cut could lose a state: its old records were deleted durably, the new snapshot was not durable.
#[test]
fn records_of_states_are_not_deleted_before_their_snapshots_are_on_disk() {
    let storage = MemStorage::new();
    let (broker, mut connection) = start_with(&storage, |config| {
        config.durability = Durability::Os;
        config.share_coordinator.state_topic_partitions = 1;
        config.share_coordinator.prune_interval = Duration::from_millis(20);
    });
    let id = topic_id(&mut connection, "orders");
    assert_eq!(alter(&mut connection, "orders", &STARTS[..1]).0, ErrorCode::None);
    let state = read_state(&mut connection, id, 0);
    let tried = Arc::new(AtomicBool::new(false));
    let syncs = tried.clone();
    storage.inject(move |op| {
        let is_sync = op.kind == OpKind::SyncData && op.path.starts_with("__share_group_state-0/");
        (is_sync && op.path.rsplit('.').next() == Some("log")).then(|| {
            syncs.store(true, Ordering::Relaxed);
            Fault::Io
        })
    });
    for at in 0..20 {
        // Refused once the failed sync has taken the partition offline.
        write_state(&mut connection, id, (state.state_epoch, 0), (2 * at, 2 * at, 2));
    }
    let deadline = Instant::now() + PATIENCE;
    while !tried.load(Ordering::Relaxed) {
        assert!(Instant::now() < deadline, "the snapshots are not synced");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(broker.cluster().offsets_of(STATES, 0).map(|(start, _)| start), Some(0));
    storage.heal();
}

/// A state that is not cold yet keeps its snapshot, and all records after it.
#[test]
fn records_after_the_oldest_snapshot_that_a_state_needs_are_kept() {
    let storage = MemStorage::new();
    let (broker, mut connection) = start_pruning(&storage, Duration::from_secs(3600));
    let id = topic_id(&mut connection, "orders");
    assert_eq!(alter(&mut connection, "orders", &STARTS).0, ErrorCode::None);
    let state = read_state(&mut connection, id, 0);
    for at in 0..20 {
        let code = write_state(&mut connection, id, (state.state_epoch, 0), (at, at, 2));
        assert_eq!(code, ErrorCode::None);
    }
    // Several rounds of pruning.
    std::thread::sleep(Duration::from_millis(200));
    let (start, end) = broker.cluster().offsets_of(STATES, 0).expect("the topic");
    assert!(
        start < 4 && end > 20,
        "the snapshots of four states are among the first records: {start} to {end}"
    );
    let (_later, mut connection) = start_pruning(&storage.fork(), Duration::from_secs(3600));
    assert_eq!(starts(&mut connection), STARTS);
}
