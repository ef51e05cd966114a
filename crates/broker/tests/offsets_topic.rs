//! `__consumer_offsets`: what coordinators store is there after a kill, in Kafka's bytes, and closed to everybody else.

#![allow(clippy::disallowed_methods, reason = "a test is a shell")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use ottla_broker::{Broker, BrokerBuilder, BrokerThread, Clock, Syncer};
use ottla_log::storage::Storage;
use ottla_log::storage::mem::{Fault, MemStorage, OpKind};
use ottla_protocol::ErrorCode;
use ottla_protocol::messages::consumer_offsets::{GroupMetadataValue, OffsetCommitValue, OffsetsKey};
use ottla_protocol::messages::create_partitions::{CreatePartitionsRequest, CreatePartitionsTopic};
use ottla_protocol::messages::create_topics::{CreatableTopic, CreateTopicsRequest};
use ottla_protocol::messages::delete_groups::DeleteGroupsRequest;
use ottla_protocol::messages::delete_records::{
    DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic,
};
use ottla_protocol::messages::delete_topics::DeleteTopicsRequest;
use ottla_protocol::messages::describe_groups::DescribeGroupsRequest;
use ottla_protocol::messages::fetch::{FetchPartition, FetchRequest, FetchTopic};
use ottla_protocol::messages::find_coordinator::FindCoordinatorRequest;
use ottla_protocol::messages::heartbeat::HeartbeatRequest;
use ottla_protocol::messages::join_group::{JoinGroupRequest, JoinGroupRequestProtocol};
use ottla_protocol::messages::leave_group::{LeaveGroupRequest, MemberIdentity};
use ottla_protocol::messages::metadata::MetadataRequest;
use ottla_protocol::messages::offset_commit::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use ottla_protocol::messages::offset_fetch::{
    OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics,
};
use ottla_protocol::messages::sync_group::{SyncGroupRequest, SyncGroupRequestAssignment};
use ottla_protocol::messages::txn_offset_commit::{
    TxnOffsetCommitRequest, TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic,
};
use ottla_protocol::messages::write_txn_markers::{
    WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest,
};
use ottla_wire::{Batches, Records, Seal};

use crate::common::{PATIENCE, Raw, batch, commit_request};

const TOPIC: &str = "__consumer_offsets";
/// The producer of the transactions.
const PRODUCER: (i64, i16) = (9, 0);

fn builder(storage: &MemStorage) -> BrokerBuilder {
    Broker::builder().storage(Arc::new(storage.clone())).topic("orders", 2).topic("returns", 1)
}

fn start(storage: &MemStorage) -> (BrokerThread, Raw) {
    let broker = builder(storage).spawn().expect("a broker");
    let connection = Raw::connect(broker.addresses()[0]);
    (broker, connection)
}

/// Starts a broker on the disk as a kill would leave it now.
fn after_kill(storage: &MemStorage) -> (BrokerThread, Raw) {
    start(&storage.fork())
}

fn commit_as(
    connection: &mut Raw,
    group: &str,
    (member_id, generation): (&str, i32),
    (topic, offset): (&str, i64),
) -> ErrorCode {
    let partition = OffsetCommitRequestPartition {
        partition_index: 0,
        committed_offset: offset,
        committed_leader_epoch: 3,
        committed_metadata: Some("note".into()),
    };
    let topic =
        OffsetCommitRequestTopic { name: topic.into(), partitions: vec![partition], ..Default::default() };
    let request = OffsetCommitRequest {
        group_id: group.into(),
        member_id: member_id.into(),
        generation_id_or_member_epoch: generation,
        topics: vec![topic],
        ..Default::default()
    };
    connection.ask(8, &request).expect("an answer").topics[0].partitions[0].error_code
}

fn commit(connection: &mut Raw, group: &str, topic: &str, offset: i64) {
    assert_eq!(commit_as(connection, group, ("", -1), (topic, offset)), ErrorCode::None);
}

/// The offset of partition 0 and its error.
fn fetched(connection: &mut Raw, group: &str, topic: &str, require_stable: bool) -> (i64, ErrorCode) {
    let topics = vec![OffsetFetchRequestTopics {
        name: topic.into(),
        partition_indexes: vec![0],
        ..Default::default()
    }];
    let group =
        OffsetFetchRequestGroup { group_id: group.into(), topics: Some(topics), ..Default::default() };
    let request = OffsetFetchRequest { groups: vec![group], require_stable, ..Default::default() };
    let answer = connection.ask(8, &request).expect("an answer");
    let found = &answer.groups[0].topics[0].partitions[0];
    (found.committed_offset, found.error_code)
}

fn committed(connection: &mut Raw, group: &str, topic: &str) -> i64 {
    fetched(connection, group, topic, false).0
}

/// Joins the only member and assigns. Returns its id and generation.
fn join(connection: &mut Raw, group: &str) -> (String, i32) {
    let request = JoinGroupRequest {
        group_id: group.into(),
        session_timeout_ms: 60_000,
        rebalance_timeout_ms: 60_000,
        protocol_type: "consumer".into(),
        protocols: vec![JoinGroupRequestProtocol {
            name: "range".into(),
            metadata: Bytes::from_static(b"\0\0"),
        }],
        ..Default::default()
    };
    let joined = connection.ask(3, &request).expect("an answer");
    assert_eq!(joined.error_code, ErrorCode::None);
    let (member_id, generation_id) = (joined.member_id, joined.generation_id);
    let assignment = Bytes::from_static(b"assigned");
    let assignments = vec![SyncGroupRequestAssignment { member_id: member_id.clone(), assignment }];
    let request = SyncGroupRequest {
        group_id: group.into(),
        generation_id,
        member_id: member_id.clone(),
        assignments,
        ..Default::default()
    };
    assert_eq!(connection.ask(3, &request).expect("an answer").error_code, ErrorCode::None);
    (member_id, generation_id)
}

/// Every record of the topic, in the order of partitions and offsets.
fn records(connection: &mut Raw) -> Vec<(OffsetsKey, Option<Bytes>)> {
    let mut all = Vec::new();
    for partition in 0..50 {
        let partition = FetchPartition { partition, partition_max_bytes: 1 << 20, ..Default::default() };
        let topic = FetchTopic { topic: TOPIC.into(), partitions: vec![partition], ..Default::default() };
        let request =
            FetchRequest { max_bytes: 1 << 20, session_epoch: -1, topics: vec![topic], ..Default::default() };
        let answer = connection.ask(12, &request).expect("an answer");
        let part = &answer.responses[0].partitions[0];
        assert_eq!(part.error_code, ErrorCode::None);
        let Some(bytes) = part.records.as_ref().map(|chain| chain.to_bytes().expect("in memory")) else {
            continue;
        };
        let mut at = 0;
        for (header, _) in Batches::new(&bytes).map_while(Result::ok) {
            let batch = bytes.slice(at..at + header.total_bytes());
            at += header.total_bytes();
            if header.is_control() {
                continue;
            }
            for record in &Records::of_batch(&batch, 0).expect("uncompressed") {
                let record = record.expect("a record");
                let key = Bytes::copy_from_slice(record.key.expect("a key"));
                let key = OffsetsKey::from_bytes(key).expect("a known key");
                all.push((key, record.value.map(Bytes::copy_from_slice)));
            }
        }
    }
    all
}

#[test]
fn an_empty_broker_has_no_topic_of_the_coordinator_until_a_client_looks_for_it() {
    let storage = MemStorage::new();
    let (broker, mut connection) = start(&storage);
    let listed = |connection: &mut Raw| {
        let answer =
            connection.ask(9, &MetadataRequest { topics: None, ..Default::default() }).expect("an answer");
        let topics = answer.topics.into_iter();
        let topics =
            topics.map(|topic| (topic.name.unwrap_or_default(), (topic.is_internal, topic.partitions.len())));
        topics.collect::<BTreeMap<_, _>>()
    };
    assert_eq!(listed(&mut connection).keys().collect::<Vec<_>>(), ["orders", "returns"]);
    let request = FindCoordinatorRequest { key: "billing".into(), ..Default::default() };
    assert_eq!(connection.ask(2, &request).expect("an answer").error_code, ErrorCode::None);
    let topics = listed(&mut connection);
    assert_eq!((topics[TOPIC], topics["orders"]), ((true, 50), (false, 2)));
    broker.stop();
}

#[test]
fn commits_and_groups_are_there_after_a_kill() {
    let storage = MemStorage::new();
    let (_broker, mut connection) = start(&storage);
    let member = join(&mut connection, "billing");
    assert_eq!(commit_as(&mut connection, "billing", (&member.0, member.1), ("orders", 5)), ErrorCode::None);
    commit(&mut connection, "other", "orders", 7);
    commit(&mut connection, "other", "returns", 8);
    let (_second, mut connection) = after_kill(&storage);
    assert_eq!(committed(&mut connection, "billing", "orders"), 5);
    assert_eq!(committed(&mut connection, "other", "returns"), 8);
    // The member continues: it need not join again.
    let heartbeat = |generation_id: i32| HeartbeatRequest {
        group_id: "billing".into(),
        generation_id,
        member_id: member.0.clone(),
        ..Default::default()
    };
    let answer = connection.ask(3, &heartbeat(member.1)).expect("an answer");
    assert_eq!(answer.error_code, ErrorCode::None);
    let answer = connection.ask(3, &heartbeat(member.1 - 1)).expect("an answer");
    assert_eq!(answer.error_code, ErrorCode::IllegalGeneration);
    assert_eq!(commit_as(&mut connection, "billing", (&member.0, member.1), ("orders", 6)), ErrorCode::None);
    let request = DescribeGroupsRequest { groups: vec!["billing".into()], ..Default::default() };
    let described = connection.ask(5, &request).expect("an answer");
    let group = &described.groups[0];
    assert_eq!((&*group.group_state, &*group.protocol_data), ("Stable", "range"));
    assert_eq!(group.members[0].member_assignment[..], *b"assigned");
}

#[test]
fn a_group_whose_members_have_left_keeps_its_generation_after_a_kill() {
    let storage = MemStorage::new();
    let (_broker, mut connection) = start(&storage);
    let (member_id, generation) = join(&mut connection, "billing");
    let members = vec![MemberIdentity { member_id, ..Default::default() }];
    let request = LeaveGroupRequest { group_id: "billing".into(), members, ..Default::default() };
    assert_eq!(connection.ask(3, &request).expect("an answer").error_code, ErrorCode::None);
    let (_second, mut connection) = after_kill(&storage);
    let (_, next) = join(&mut connection, "billing");
    assert!(next > generation, "{next} after {generation}");
}

#[test]
fn the_records_have_kafkas_keys_and_values() {
    let (_broker, mut connection) = start(&MemStorage::new());
    let member = join(&mut connection, "billing");
    commit_as(&mut connection, "billing", (&member.0, member.1), ("orders", 5));
    let all = records(&mut connection);
    let [
        (OffsetsKey::GroupMetadata(first), Some(empty)),
        (OffsetsKey::GroupMetadata(group), Some(members)),
        (OffsetsKey::OffsetCommit(key), Some(value)),
    ] = &all[..]
    else {
        panic!("{all:?}")
    };
    assert_eq!((&*group.group, &*key.group, &*key.topic, key.partition), ("billing", "billing", "orders", 0));
    // The group of the first record has no protocol type, because Kafka writes it before a member has joined.
    let empty = GroupMetadataValue::from_bytes(empty.clone()).expect("a group");
    assert_eq!((&*first.group, &*empty.protocol_type, empty.generation), ("billing", "", 0));
    assert_eq!((empty.protocol, empty.leader, empty.members.len()), (None, None, 0));
    let members = GroupMetadataValue::from_bytes(members.clone()).expect("a group");
    assert_eq!((members.generation, &*members.members[0].member_id), (member.1, &*member.0));
    let value = OffsetCommitValue::from_bytes(value.clone()).expect("an offset");
    assert_eq!((value.offset, value.leader_epoch, &*value.metadata), (5, 3, "note"));
}

/// Kafka knows such a group before its first member joins.
#[test]
fn a_group_with_committed_offsets_has_no_record_without_a_protocol_type() {
    let (_broker, mut connection) = start(&MemStorage::new());
    commit(&mut connection, "billing", "orders", 5);
    join(&mut connection, "billing");
    let all = records(&mut connection);
    assert_eq!(all.iter().filter(|(key, _)| matches!(key, OffsetsKey::GroupMetadata(_))).count(), 1);
}

#[test]
fn clients_read_the_topic_and_cannot_change_it() {
    let (broker, mut connection) = start(&MemStorage::new());
    commit(&mut connection, "billing", "orders", 5);
    let forged = connection.produce(TOPIC, -1, &batch(&[b"x"], &Seal::default()));
    assert_eq!(forged.error_code, ErrorCode::InvalidTopicException);
    let request = DeleteTopicsRequest { topic_names: vec![TOPIC.into()], ..Default::default() };
    let deleted = connection.ask(5, &request).expect("an answer");
    assert_eq!(deleted.responses[0].error_code, ErrorCode::InvalidTopicException);
    let topic = CreatePartitionsTopic { name: TOPIC.into(), count: 60, assignments: None };
    let request = CreatePartitionsRequest { topics: vec![topic], ..Default::default() };
    let grown = connection.ask(3, &request).expect("an answer");
    assert_eq!(grown.results[0].error_code, ErrorCode::InvalidTopicException);
    let partitions = vec![DeleteRecordsPartition { partition_index: 0, offset: 0 }];
    let request = DeleteRecordsRequest {
        topics: vec![DeleteRecordsTopic { name: TOPIC.into(), partitions }],
        timeout_ms: 1000,
    };
    let deleted = connection.ask(2, &request).expect("an answer");
    assert_eq!(deleted.topics[0].partitions[0].error_code, ErrorCode::InvalidTopicException);
    assert_eq!(records(&mut connection).len(), 1);
    broker.stop();
}

#[test]
fn a_deleted_group_and_a_deleted_topic_stay_deleted_after_a_kill() {
    let storage = MemStorage::new();
    let (_broker, mut connection) = start(&storage);
    commit(&mut connection, "billing", "orders", 5);
    commit(&mut connection, "shipping", "orders", 6);
    commit(&mut connection, "shipping", "returns", 7);
    let request = DeleteGroupsRequest { groups_names: vec!["billing".into()] };
    assert_eq!(connection.ask(2, &request).expect("an answer").results[0].error_code, ErrorCode::None);
    let request = DeleteTopicsRequest { topic_names: vec!["orders".into()], ..Default::default() };
    assert_eq!(connection.ask(5, &request).expect("an answer").responses[0].error_code, ErrorCode::None);
    let (_second, mut connection) = after_kill(&storage);
    assert_eq!(committed(&mut connection, "billing", "orders"), -1);
    assert_eq!(committed(&mut connection, "shipping", "orders"), -1);
    assert_eq!(committed(&mut connection, "shipping", "returns"), 7);
}

#[test]
fn many_commits_share_the_syncs_of_their_partition() {
    const COMMITS: u64 = 400;
    let storage = MemStorage::new();
    // A sync takes as long as on a disk of today: the commits of all connections come meanwhile.
    let slow = Syncer::Inline(Duration::from_millis(2));
    let broker = builder(&storage).syncer(slow).spawn().expect("a broker");
    let mut connection = Raw::connect(broker.addresses()[0]);
    commit(&mut connection, "billing", "orders", 0);
    let syncs = Arc::new(AtomicU64::new(0));
    let counted = syncs.clone();
    storage.inject(move |op| {
        if op.kind == OpKind::SyncData {
            counted.fetch_add(1, Ordering::Relaxed);
        }
        None
    });
    let address = broker.addresses()[0];
    std::thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(move || {
                let mut connection = Raw::connect(address);
                for offset in 0..COMMITS / 20 {
                    commit(&mut connection, "billing", "orders", offset as i64);
                }
            });
        }
    });
    let syncs = syncs.load(Ordering::Relaxed);
    assert!(syncs * 4 < COMMITS, "{syncs} syncs for {COMMITS} commits");
    broker.stop();
}

fn commit_in_transaction(connection: &mut Raw, group: &str, offset: i64) -> ErrorCode {
    let partition = TxnOffsetCommitRequestPartition {
        partition_index: 0,
        committed_offset: offset,
        committed_leader_epoch: -1,
        committed_metadata: None,
    };
    let topics = vec![TxnOffsetCommitRequestTopic { name: "orders".into(), partitions: vec![partition] }];
    let request = TxnOffsetCommitRequest {
        transactional_id: "t".into(),
        group_id: group.into(),
        producer_id: PRODUCER.0,
        producer_epoch: PRODUCER.1,
        topics,
        ..Default::default()
    };
    connection.ask(3, &request).expect("an answer").topics[0].partitions[0].error_code
}

/// Appends the marker of the transaction to the partition of the group `billing`.
fn end(broker: &BrokerThread, is_commit: bool) {
    let partition_indexes = vec![broker.cluster().group_partition("billing")];
    let topics = vec![WritableTxnMarkerTopic { name: TOPIC.into(), partition_indexes }];
    let marker = WritableTxnMarker {
        producer_id: PRODUCER.0,
        producer_epoch: PRODUCER.1,
        transaction_result: is_commit,
        topics,
        ..Default::default()
    };
    let request = WriteTxnMarkersRequest { markers: vec![marker] };
    let answer = Raw::connect(broker.addresses()[0]).ask(1, &request).expect("an answer");
    assert_eq!(answer.markers[0].topics[0].partitions[0].error_code, ErrorCode::None);
}

#[test]
fn offsets_of_a_transaction_count_from_its_commit_on() {
    for (outcome, expected) in [(true, 9), (false, 5)] {
        let storage = MemStorage::new();
        let (broker, mut connection) = start(&storage);
        broker.cluster().set_transactions_approved(true);
        commit(&mut connection, "billing", "orders", 5);
        assert_eq!(commit_in_transaction(&mut connection, "billing", 9), ErrorCode::None);
        // Open transactions are open after a kill, too.
        let (second, mut after) = after_kill(&storage);
        for connection in [&mut connection, &mut after] {
            assert_eq!(fetched(connection, "billing", "orders", false), (5, ErrorCode::None));
            assert_eq!(fetched(connection, "billing", "orders", true), (-1, ErrorCode::UnstableOffsetCommit));
            assert_eq!(fetched(connection, "billing", "returns", true), (-1, ErrorCode::None));
        }
        end(&broker, outcome);
        end(&second, outcome);
        let (_third, mut replayed) = after_kill(&storage);
        for connection in [&mut connection, &mut after, &mut replayed] {
            assert_eq!(fetched(connection, "billing", "orders", true), (expected, ErrorCode::None));
        }
    }
}

/// KIP-447: the member may have lost the partitions whose offsets it commits.
#[test]
fn a_transaction_of_an_old_generation_is_refused() {
    let (broker, mut connection) = start(&MemStorage::new());
    broker.cluster().set_transactions_approved(true);
    let (member_id, generation_id) = join(&mut connection, "billing");
    let code = |connection: &mut Raw, member_id: &str, generation_id: i32| {
        let partition = TxnOffsetCommitRequestPartition::default();
        let topics = vec![TxnOffsetCommitRequestTopic { name: "orders".into(), partitions: vec![partition] }];
        let request = TxnOffsetCommitRequest {
            group_id: "billing".into(),
            producer_id: PRODUCER.0,
            member_id: member_id.into(),
            generation_id,
            topics,
            ..Default::default()
        };
        connection.ask(3, &request).expect("an answer").topics[0].partitions[0].error_code
    };
    assert_eq!(code(&mut connection, &member_id, generation_id - 1), ErrorCode::IllegalGeneration);
    assert_eq!(code(&mut connection, "stranger", generation_id), ErrorCode::UnknownMemberId);
    assert_eq!(code(&mut connection, &member_id, generation_id), ErrorCode::None);
    // A producer from before KIP-447 names no member.
    assert_eq!(code(&mut connection, "", -1), ErrorCode::None);
}

#[test]
fn offsets_of_a_group_without_members_expire() {
    let storage = MemStorage::new();
    let now = Arc::new(AtomicI64::new(1_700_000_000_000));
    let broker = builder(&storage)
        .clock(Clock::Fixed(now.clone()))
        .configure(|config| {
            config.set("offsets.retention.check.interval.ms", "10").expect("a setting");
            config.clock_jump_wait = Duration::ZERO;
        })
        .spawn()
        .expect("a broker");
    let mut connection = Raw::connect(broker.addresses()[0]);
    commit(&mut connection, "old", "orders", 5);
    let member = join(&mut connection, "used");
    commit_as(&mut connection, "used", (&member.0, member.1), ("orders", 6));
    now.fetch_add(8 * 24 * 3_600_000, Ordering::SeqCst);
    commit(&mut connection, "new", "orders", 7);
    let deadline = std::time::Instant::now() + PATIENCE;
    while committed(&mut connection, "old", "orders") != -1 {
        assert!(std::time::Instant::now() < deadline, "the offset does not expire");
        std::thread::sleep(Duration::from_millis(5));
    }
    // It is not known what the member has subscribed to.
    assert_eq!(committed(&mut connection, "used", "orders"), 6);
    assert_eq!(committed(&mut connection, "new", "orders"), 7);
    let (_second, mut connection) = after_kill(&storage);
    assert_eq!(committed(&mut connection, "old", "orders"), -1);
    assert_eq!(committed(&mut connection, "new", "orders"), 7);
}

/// Versions 2 to 4 of OffsetCommit have a retention time of their own.
#[test]
fn an_offset_with_a_retention_time_expires_after_it() {
    let storage = MemStorage::new();
    let now = Arc::new(AtomicI64::new(1_700_000_000_000));
    let started = |storage: &MemStorage| {
        let builder = builder(storage).clock(Clock::Fixed(now.clone())).configure(|config| {
            config.set("offsets.retention.check.interval.ms", "10").expect("a setting");
        });
        builder.spawn().expect("a broker")
    };
    let broker = started(&storage);
    let mut connection = Raw::connect(broker.addresses()[0]);
    for (topic, retention_time_ms) in [("orders", 60_000), ("returns", -1)] {
        let partitions = vec![OffsetCommitRequestPartition { committed_offset: 5, ..Default::default() }];
        let request = OffsetCommitRequest {
            group_id: "billing".into(),
            generation_id_or_member_epoch: -1,
            retention_time_ms,
            topics: vec![OffsetCommitRequestTopic { name: topic.into(), partitions, ..Default::default() }],
            ..Default::default()
        };
        let answer = connection.ask(4, &request).expect("an answer");
        assert_eq!(answer.topics[0].partitions[0].error_code, ErrorCode::None);
    }
    let times: Vec<i64> = records(&mut connection)
        .into_iter()
        .map(|(_, value)| OffsetCommitValue::from_bytes(value.expect("an offset")).expect("an offset"))
        .map(|value| value.expire_timestamp)
        .collect();
    assert_eq!(times, [1_700_000_060_000, -1]);
    let forked = storage.fork();
    now.fetch_add(60_000, Ordering::SeqCst);
    // The time is there after a kill, too.
    for broker in [broker, started(&forked)] {
        let mut connection = Raw::connect(broker.addresses()[0]);
        let deadline = std::time::Instant::now() + PATIENCE;
        while committed(&mut connection, "billing", "orders") != -1 {
            assert!(std::time::Instant::now() < deadline, "the offset does not expire");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(committed(&mut connection, "billing", "returns"), 5);
    }
}

#[test]
fn a_commit_that_does_not_fit_is_refused_whole() {
    let (_broker, mut connection) = start(&MemStorage::new());
    let group = "g".repeat(30_000);
    let offset = |index| OffsetCommitRequestPartition { partition_index: index % 2, ..Default::default() };
    let topic = |partitions: i32| OffsetCommitRequestTopic {
        name: "orders".into(),
        partitions: (0..partitions).map(offset).collect(),
        ..Default::default()
    };
    let mut code = |partitions: i32| {
        let request = OffsetCommitRequest {
            group_id: group.clone(),
            generation_id_or_member_epoch: -1,
            topics: vec![topic(partitions)],
            ..Default::default()
        };
        connection.ask(8, &request).expect("an answer").topics[0].partitions[0].error_code
    };
    // Each record has the name of the group: 30 MB of records from a request of 10 KB.
    assert_eq!(code(1000), ErrorCode::InvalidCommitOffsetSize);
    assert_eq!(code(2), ErrorCode::None);
}

/// Its bytes were counted: notes in other scripts than Latin had half the room, or a third of it.
#[test]
fn the_metadata_of_a_commit_is_measured_in_utf16_units() {
    let (_broker, mut connection) = start(&MemStorage::new());
    let mut code = |metadata: String| {
        let mut request = commit_request("billing", 5);
        request.topics[0].partitions[0].committed_metadata = Some(metadata);
        connection.ask(8, &request).expect("an answer").topics[0].partitions[0].error_code
    };
    // The last one has two units.
    for (character, count) in [("a", 4096), ("ü", 4096), ("語", 4096), ("😀", 2048)] {
        assert_eq!(code(character.repeat(count)), ErrorCode::None, "{character}");
        assert_eq!(code(character.repeat(count) + "a"), ErrorCode::OffsetMetadataTooLarge, "{character}");
    }
}

/// A byte that changes in the records of one partition stops the groups of that partition, and no others.
#[test]
fn a_damaged_partition_stops_its_own_groups_only() {
    let storage = MemStorage::new();
    let (broker, mut connection) = start(&storage);
    commit(&mut connection, "billing", "orders", 5);
    commit(&mut connection, "shipping", "orders", 6);
    let index = broker.cluster().group_partition("billing");
    assert_ne!(index, broker.cluster().group_partition("shipping"));
    broker.stop();
    let path = format!("{TOPIC}-{index}/00000000000000000000.log");
    let mut bytes = storage.contents(&path).expect("there");
    let last = bytes.len() - 3;
    bytes[last] ^= 1;
    storage.set_contents(&path, &bytes);
    let (_broker, mut connection) = start(&storage);
    assert_eq!(committed(&mut connection, "shipping", "orders"), 6);
    // Not -1: that would send the consumer to auto.offset.reset.
    let group = OffsetFetchRequestGroup { group_id: "billing".into(), topics: None, ..Default::default() };
    let request = OffsetFetchRequest { groups: vec![group], ..Default::default() };
    let answer = connection.ask(8, &request).expect("an answer");
    assert_ne!(answer.groups[0].error_code, ErrorCode::None);
    assert_ne!(commit_as(&mut connection, "billing", ("", -1), ("orders", 7)), ErrorCode::None);
}

/// A start reads every record: the compaction of the topic bounds it.
#[test]
fn a_million_commits_leave_a_small_directory() {
    const PARTITIONS: i32 = 1000;
    const BYTES_MAX: usize = 8 << 20;
    let storage = MemStorage::new();
    let open = |storage: &MemStorage| {
        builder(storage).topic("wide", PARTITIONS).configure(|config| {
            for (name, value) in
                [("offsets.topic.segment.bytes", "1048576"), ("log.cleaner.backoff.ms", "20")]
            {
                config.set(name, value).expect("a setting");
            }
        })
    };
    let broker = open(&storage).spawn().expect("a broker");
    let mut connection = Raw::connect(broker.addresses()[0]);
    for offset in 1..=1_000_000 / i64::from(PARTITIONS) {
        let partitions = (0..PARTITIONS).map(|partition_index| OffsetCommitRequestPartition {
            partition_index,
            committed_offset: offset,
            ..Default::default()
        });
        let topic = OffsetCommitRequestTopic {
            name: "wide".into(),
            partitions: partitions.collect(),
            ..Default::default()
        };
        let request = OffsetCommitRequest {
            group_id: "billing".into(),
            generation_id_or_member_epoch: -1,
            topics: vec![topic],
            ..Default::default()
        };
        let answer = connection.ask(8, &request).expect("an answer");
        assert_eq!(answer.topics[0].partitions[0].error_code, ErrorCode::None);
    }
    let bytes = || {
        let is_log = |path: &String| path.starts_with(TOPIC) && path.rsplit('.').next() == Some("log");
        let paths = storage.paths().into_iter().filter(is_log);
        paths.filter_map(|path| storage.contents(&path)).map(|bytes| bytes.len()).sum::<usize>()
    };
    let deadline = std::time::Instant::now() + PATIENCE;
    while bytes() > BYTES_MAX {
        assert!(std::time::Instant::now() < deadline, "{} bytes are left", bytes());
        std::thread::sleep(Duration::from_millis(20));
    }
    broker.stop();
    let broker = open(&storage).spawn().expect("a broker");
    for partition in [0, PARTITIONS - 1] {
        assert_eq!(broker.cluster().committed_offset("billing", "wide", partition), Some(1000));
    }
    broker.stop();
}

/// One group that could not be written kept the offsets of the groups behind it, and the next topic of that name began with them.
#[test]
fn offsets_of_a_deleted_topic_do_not_return_if_those_of_one_group_cannot_be_written() {
    let storage = MemStorage::new();
    let (broker, mut connection) = start(&storage);
    let groups: Vec<String> = (0..20).map(|number| format!("group-{number}")).collect();
    for group in &groups {
        assert_eq!(commit_as(&mut connection, group, ("", -1), ("returns", 7)), ErrorCode::None);
    }
    let broken = broker.cluster().group_partition(&groups[0]);
    let dir = format!("{TOPIC}-{broken}/");
    storage.inject(move |op| (op.kind == OpKind::Write && op.path.starts_with(&dir)).then_some(Fault::Io));
    let request = DeleteTopicsRequest { topic_names: vec!["returns".into()], ..Default::default() };
    assert_eq!(connection.ask(5, &request).expect("an answer").responses[0].error_code, ErrorCode::None);
    let of_group =
        |broker: &BrokerThread, group: &str| broker.cluster().committed_offset(group, "returns", 0);
    for group in groups.iter().filter(|group| broker.cluster().group_partition(group) != broken) {
        assert_eq!(of_group(&broker, group), None, "{group}");
    }
    assert_eq!(of_group(&broker, &groups[0]), Some(7));
    let topic = CreatableTopic {
        name: "returns".into(),
        num_partitions: 1,
        replication_factor: 1,
        ..Default::default()
    };
    let request = CreateTopicsRequest { topics: vec![topic], ..Default::default() };
    let created = connection.ask(7, &request).expect("an answer").topics[0].error_code;
    assert_eq!(created, ErrorCode::KafkaStorageError);
    storage.heal();
    broker.stop();
    let (broker, _) = start(&storage);
    assert!(groups.iter().all(|group| of_group(&broker, group).is_none()), "the topic is there again");
}

/// The deletion was taken for complete while a partition of the offsets was offline, and the next topic of that name began with them.
#[test]
fn offsets_of_a_deleted_topic_do_not_return_if_their_partition_was_offline() {
    let storage = MemStorage::new();
    let (broker, mut connection) = start(&storage);
    for group in ["billing", "shipping"] {
        commit(&mut connection, group, "returns", 7);
    }
    let broken = broker.cluster().group_partition("billing");
    assert_ne!(broken, broker.cluster().group_partition("shipping"));
    broker.stop();
    let path = format!("{TOPIC}-{broken}/00000000000000000000.log");
    let sound = storage.contents(&path).expect("there");
    let mut damaged = sound.clone();
    let last = damaged.len() - 3;
    damaged[last] ^= 1;
    storage.set_contents(&path, &damaged);
    let (broker, mut connection) = start(&storage);
    let request = DeleteTopicsRequest { topic_names: vec!["returns".into()], ..Default::default() };
    assert_eq!(connection.ask(5, &request).expect("an answer").responses[0].error_code, ErrorCode::None);
    assert_eq!(broker.cluster().committed_offset("shipping", "returns", 0), None);
    let topic = CreatableTopic {
        name: "returns".into(),
        num_partitions: 1,
        replication_factor: 1,
        ..Default::default()
    };
    let request = CreateTopicsRequest { topics: vec![topic], ..Default::default() };
    let created = connection.ask(7, &request).expect("an answer").topics[0].error_code;
    assert_eq!(created, ErrorCode::KafkaStorageError);
    broker.stop();
    storage.set_contents(&path, &sound);
    // The range that the broker has found damaged.
    drop(storage.remove(&format!("{TOPIC}-{broken}/quarantine")));
    let (broker, mut connection) = start(&storage);
    assert_eq!(committed(&mut connection, "billing", "returns"), -1, "the topic is there again");
    commit(&mut connection, "billing", "returns", 1);
    broker.stop();
}
