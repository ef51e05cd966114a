//! A disk that fails, is full or is slow by a test's wish: what clients see, and what is there afterwards.

#![allow(clippy::disallowed_methods, reason = "a test is a shell: it measures how long an answer takes")]

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ottla_broker::{Broker, BrokerThread, DiskCall, DiskEffect, DiskFiles, DiskRule, Durability};
use ottla_log::storage::mem::{Fault, MemStorage, OpKind};
use ottla_protocol::ErrorCode;
use ottla_protocol::messages::delete_records::{
    DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic,
};
use ottla_protocol::messages::describe_topic_partitions::{DescribeTopicPartitionsRequest, TopicRequest};
use ottla_protocol::messages::list_offsets::{ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic};
use ottla_protocol::messages::offset_for_leader_epoch::{
    OffsetForLeaderEpochRequest, OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use ottla_wire::{Batches, Records, Seal};

use crate::common::world::fetch;
use crate::common::{Raw, batch, metadata_of};

fn broker(dir: &Path) -> (BrokerThread, Raw) {
    let builder = Broker::builder()
        .data_dir(dir)
        .configure(|config| config.durability = Durability::Disk)
        .topic("orders", 1)
        .topic("bills", 1);
    let broker = builder.spawn().expect("a broker");
    let connection = Raw::connect(broker.addresses()[0]);
    (broker, connection)
}

fn produce(connection: &mut Raw, topic: &str, value: &str) -> ErrorCode {
    connection.produce(topic, -1, &batch(&[value.as_bytes()], &Seal::default())).error_code
}

fn of_orders(rule: DiskRule) -> DiskRule {
    DiskRule { files: DiskFiles::Topic("orders".to_owned()), ..rule }
}

/// The values of a topic, or the error of a fetch.
fn values(connection: &mut Raw, topic: &str) -> Result<Vec<String>, ErrorCode> {
    let bytes = fetch(connection, topic, 0, 0)?;
    let mut values = Vec::new();
    for found in Batches::new(&bytes) {
        let (_, range) = found.expect("a batch");
        let records = Records::of_batch(&bytes.slice(range), 0).expect("records");
        for record in &records {
            let value = record.expect("a record").value.unwrap_or_default().to_vec();
            values.push(String::from_utf8(value).expect("text"));
        }
    }
    Ok(values)
}

#[test]
fn a_full_disk_refuses_records_and_takes_them_again_when_there_is_room() {
    let dir = tempfile::tempdir().expect("a directory");
    let (broker, mut connection) = broker(dir.path());
    assert_eq!(produce(&mut connection, "orders", "a"), ErrorCode::None);
    let id = broker.cluster().add_disk_fault(of_orders(DiskRule::new(DiskCall::Write, DiskEffect::Full)));
    assert_eq!(produce(&mut connection, "orders", "b"), ErrorCode::KafkaStorageError);
    assert_eq!(produce(&mut connection, "bills", "c"), ErrorCode::None, "another topic's files");
    assert!(broker.cluster().remove_disk_fault(id));
    assert_eq!(produce(&mut connection, "orders", "d"), ErrorCode::None);
    assert_eq!(values(&mut connection, "orders"), Ok(vec!["a".to_owned(), "d".to_owned()]));
}

#[test]
fn a_failed_write_that_cannot_be_taken_back_takes_its_partition_offline() {
    let dir = tempfile::tempdir().expect("a directory");
    let (broker, mut connection) = broker(dir.path());
    let rule = DiskRule { count: 2, ..DiskRule::new(DiskCall::Write, DiskEffect::Fail) };
    broker.cluster().add_disk_fault(of_orders(rule));
    assert_eq!(produce(&mut connection, "orders", "a"), ErrorCode::KafkaStorageError);
    assert_eq!(broker.cluster().disk_faults(), [], "the write and its truncation");
    assert_eq!(produce(&mut connection, "orders", "b"), ErrorCode::KafkaStorageError, "it is offline");
}

/// Clients were sent to a leader that refused everything, and waited for ever.
#[test]
fn a_partition_that_a_failed_disk_took_offline_has_no_leader_in_metadata() {
    let dir = tempfile::tempdir().expect("a directory");
    let (broker, mut connection) = broker(dir.path());
    let mut described = |topic: &str| {
        let metadata = connection.ask(8, &metadata_of(topic)).expect("an answer");
        let found = &metadata.topics[0].partitions[0];
        let of_metadata = (found.error_code, found.leader_id, found.offline_replicas.clone());
        let topics = vec![TopicRequest { name: topic.into() }];
        let request =
            DescribeTopicPartitionsRequest { topics, response_partition_limit: 10, ..Default::default() };
        let described = connection.ask(0, &request).expect("an answer");
        let found = &described.topics[0].partitions[0];
        assert_eq!(of_metadata, (found.error_code, found.leader_id, found.offline_replicas.clone()));
        of_metadata
    };
    assert_eq!(described("orders"), (ErrorCode::None, 1, vec![]));
    let rule = DiskRule { count: 1, ..DiskRule::new(DiskCall::Sync, DiskEffect::Fail) };
    broker.cluster().add_disk_fault(of_orders(rule));
    let mut producer = Raw::connect(broker.addresses()[0]);
    assert_eq!(produce(&mut producer, "orders", "a"), ErrorCode::KafkaStorageError);
    assert_eq!(described("orders"), (ErrorCode::LeaderNotAvailable, -1, vec![1]));
    assert_eq!(described("bills"), (ErrorCode::None, 1, vec![]));
}

/// The offset of ListOffsets for partition 0 of a topic.
fn looked_up(
    connection: &mut Raw,
    topic: &str,
    timestamp: i64,
    current_leader_epoch: i32,
) -> Result<i64, ErrorCode> {
    let partition = ListOffsetsPartition { partition_index: 0, current_leader_epoch, timestamp };
    let topics = vec![ListOffsetsTopic { name: topic.into(), partitions: vec![partition] }];
    let request = ListOffsetsRequest { replica_id: -1, topics, ..Default::default() };
    let found = &connection.ask(7, &request).expect("an answer").topics[0].partitions[0];
    if found.error_code == ErrorCode::None { Ok(found.offset) } else { Err(found.error_code) }
}

/// The end of epoch 0 in partition 0 of a topic.
fn epoch_ended(connection: &mut Raw, topic: &str, current_leader_epoch: i32) -> Result<i64, ErrorCode> {
    let partition = OffsetForLeaderPartition { partition: 0, current_leader_epoch, leader_epoch: 0 };
    let topics = vec![OffsetForLeaderTopic { topic: topic.into(), partitions: vec![partition] }];
    let request = OffsetForLeaderEpochRequest { replica_id: -1, topics };
    let found = &connection.ask(4, &request).expect("an answer").topics[0].partitions[0];
    if found.error_code == ErrorCode::None { Ok(found.end_offset) } else { Err(found.error_code) }
}

/// The first offset that is left after a deletion below `offset` in partition 0 of a topic.
fn deleted(connection: &mut Raw, topic: &str, offset: i64) -> Result<i64, ErrorCode> {
    let partitions = vec![DeleteRecordsPartition { partition_index: 0, offset }];
    let topics = vec![DeleteRecordsTopic { name: topic.into(), partitions }];
    let request = DeleteRecordsRequest { topics, timeout_ms: 10_000 };
    let found = &connection.ask(2, &request).expect("an answer").topics[0].partitions[0];
    if found.error_code == ErrorCode::None { Ok(found.low_watermark) } else { Err(found.error_code) }
}

/// An offset above the end of the log was answered with OFFSET_OUT_OF_RANGE, after which a client does not look for a leader.
#[test]
fn records_of_a_partition_that_a_failed_disk_took_offline_are_not_deleted() {
    let dir = tempfile::tempdir().expect("a directory");
    let (broker, mut connection) = broker(dir.path());
    let rule = DiskRule { count: 1, ..DiskRule::new(DiskCall::Sync, DiskEffect::Fail) };
    broker.cluster().add_disk_fault(of_orders(rule));
    assert_eq!(produce(&mut connection, "orders", "a"), ErrorCode::KafkaStorageError);
    for offset in [-1, 0, 1000] {
        let found = deleted(&mut connection, "orders", offset);
        assert_eq!(found, Err(ErrorCode::KafkaStorageError), "{offset}");
    }
    let found = [-1, 0, 1000].map(|offset| deleted(&mut connection, "bills", offset));
    assert_eq!(found, [Ok(0), Ok(0), Err(ErrorCode::OffsetOutOfRange)]);
}

/// They were answered with the offsets of a log that no request could read.
#[test]
fn lookups_in_a_partition_that_a_failed_disk_took_offline_are_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let (broker, mut connection) = broker(dir.path());
    let rule = DiskRule { count: 1, ..DiskRule::new(DiskCall::Sync, DiskEffect::Fail) };
    broker.cluster().add_disk_fault(of_orders(rule));
    assert_eq!(produce(&mut connection, "orders", "a"), ErrorCode::KafkaStorageError);
    for timestamp in [-1, -2, -3, 0] {
        let found = looked_up(&mut connection, "orders", timestamp, -1);
        assert_eq!(found, Err(ErrorCode::KafkaStorageError), "{timestamp}");
        assert!(looked_up(&mut connection, "bills", timestamp, -1).is_ok(), "{timestamp}");
    }
    let found = ["orders", "bills"].map(|topic| epoch_ended(&mut connection, topic, -1));
    assert_eq!(found, [Err(ErrorCode::KafkaStorageError), Ok(0)]);
    // It comes before the errors of the epoch.
    assert_eq!(looked_up(&mut connection, "orders", -1, 1000), Err(ErrorCode::KafkaStorageError));
    assert_eq!(epoch_ended(&mut connection, "orders", 1000), Err(ErrorCode::KafkaStorageError));
    assert_eq!(epoch_ended(&mut connection, "bills", 1000), Err(ErrorCode::UnknownLeaderEpoch));
    assert_eq!(values(&mut connection, "orders"), Err(ErrorCode::KafkaStorageError));
}

/// A broker whose disk has not synced yet the one record of `orders`, which is acknowledged.
fn with_a_record_that_a_slow_disk_syncs(dir: &Path) -> (BrokerThread, Raw) {
    let (broker, mut connection) = broker(dir);
    let slow = DiskRule::new(DiskCall::Sync, DiskEffect::Slow(Duration::from_millis(500)));
    broker.cluster().add_disk_fault(of_orders(slow));
    let produced = connection.produce("orders", 1, &batch(&[b"a"], &Seal::default()));
    assert_eq!((produced.error_code, produced.base_offset), (ErrorCode::None, 0));
    (broker, connection)
}

/// They were answered as if the record was not there, which its producer knew to be.
#[test]
fn lookups_find_an_acknowledged_record_that_a_slow_disk_syncs() {
    for (timestamp, offset) in [(-1, 1), (-3, 0), (0, 0)] {
        let dir = tempfile::tempdir().expect("a directory");
        let (_broker, mut connection) = with_a_record_that_a_slow_disk_syncs(dir.path());
        assert_eq!(looked_up(&mut connection, "orders", timestamp, -1), Ok(offset), "{timestamp}");
    }
}

/// A deletion up to the end left the record, and one up to the offset after it was refused with OFFSET_OUT_OF_RANGE.
#[test]
fn a_deletion_reaches_an_acknowledged_record_that_a_slow_disk_syncs() {
    for offset in [-1, 1] {
        let dir = tempfile::tempdir().expect("a directory");
        let (_broker, mut connection) = with_a_record_that_a_slow_disk_syncs(dir.path());
        assert_eq!(deleted(&mut connection, "orders", offset), Ok(1), "{offset}");
    }
}

/// A consumer with a position behind the record took the answer for a loss.
#[test]
fn the_epoch_of_a_leader_ends_behind_a_record_that_a_slow_disk_syncs() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_broker, mut connection) = with_a_record_that_a_slow_disk_syncs(dir.path());
    assert_eq!(epoch_ended(&mut connection, "orders", -1), Ok(1));
}

#[test]
fn a_failed_sync_takes_its_partition_offline_until_the_broker_restarts() {
    let dir = tempfile::tempdir().expect("a directory");
    {
        let (broker, mut connection) = broker(dir.path());
        assert_eq!(produce(&mut connection, "orders", "a"), ErrorCode::None);
        let rule = DiskRule { count: 1, ..DiskRule::new(DiskCall::Sync, DiskEffect::Fail) };
        broker.cluster().add_disk_fault(of_orders(rule));
        assert_eq!(produce(&mut connection, "orders", "b"), ErrorCode::KafkaStorageError);
        assert_eq!(broker.cluster().disk_faults(), [], "its only call has come");
        assert_eq!(produce(&mut connection, "orders", "c"), ErrorCode::KafkaStorageError, "it is offline");
        assert_eq!(produce(&mut connection, "bills", "d"), ErrorCode::None);
        broker.stop();
    }
    let (_broker, mut connection) = broker(dir.path());
    assert_eq!(produce(&mut connection, "orders", "e"), ErrorCode::None);
    let values = values(&mut connection, "orders").expect("it is online");
    assert_eq!(
        (values.first().map(String::as_str), values.last().map(String::as_str)),
        (Some("a"), Some("e"))
    );
    assert!(!values.contains(&"c".to_owned()), "{values:?}: a refused record");
}

#[test]
fn a_slow_disk_delays_what_waits_for_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let (broker, mut connection) = broker(dir.path());
    let slow = Duration::from_millis(300);
    broker.cluster().add_disk_fault(of_orders(DiskRule::new(DiskCall::Sync, DiskEffect::Slow(slow))));
    let began = Instant::now();
    assert_eq!(produce(&mut connection, "orders", "a"), ErrorCode::None);
    assert!(began.elapsed() >= slow, "{:?}", began.elapsed());
    broker.cluster().clear_disk_faults();
    assert_eq!(values(&mut connection, "orders"), Ok(vec!["a".to_owned()]));
}

#[test]
fn a_disk_that_cannot_be_read_fails_fetches_of_old_records() {
    let dir = tempfile::tempdir().expect("a directory");
    {
        let (broker, mut connection) = broker(dir.path());
        assert_eq!(produce(&mut connection, "orders", "a"), ErrorCode::None);
        broker.stop();
    }
    // After a restart, records are in files only.
    let (broker, mut connection) = broker(dir.path());
    let id = broker.cluster().add_disk_fault(of_orders(DiskRule::new(DiskCall::Read, DiskEffect::Fail)));
    assert_eq!(values(&mut connection, "orders"), Err(ErrorCode::KafkaStorageError));
    assert_eq!(values(&mut connection, "bills"), Ok(Vec::new()));
    broker.cluster().remove_disk_fault(id);
    assert_eq!(values(&mut connection, "orders"), Ok(vec!["a".to_owned()]));
}

/// The batch was appended before its offset was reserved: the error invited a retry, which appended it a second time.
#[test]
fn a_batch_whose_offset_cannot_be_reserved_is_not_in_the_log() {
    let disk = MemStorage::new();
    let on = |disk: &MemStorage| {
        let builder = Broker::builder().storage(Arc::new(disk.clone())).topic("orders", 1);
        builder.configure(|config| config.durability = Durability::Disk).spawn().expect("a broker")
    };
    {
        let broker = on(&disk);
        let mut connection = Raw::connect(broker.addresses()[0]);
        assert_eq!(produce(&mut connection, "orders", "a"), ErrorCode::None);
        // After a clean stop no offset above the end of the log is reserved.
        broker.stop();
    }
    let broker = on(&disk);
    let mut connection = Raw::connect(broker.addresses()[0]);
    disk.inject(|op| {
        (op.kind == OpKind::Write && op.path.starts_with("__ottla-meta")).then_some(Fault::NoSpace)
    });
    assert_eq!(produce(&mut connection, "orders", "b"), ErrorCode::KafkaStorageError);
    assert_eq!(broker.cluster().offsets_of("orders", 0), Some((0, 1)), "it is not in the log");
    disk.heal();
    assert_eq!(produce(&mut connection, "orders", "b"), ErrorCode::None);
    assert_eq!(values(&mut connection, "orders"), Ok(vec!["a".to_owned(), "b".to_owned()]));
}
