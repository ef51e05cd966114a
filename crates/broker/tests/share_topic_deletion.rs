//! The deletion of a topic that share groups have states of.

#![allow(clippy::disallowed_methods, reason = "a test is a shell")]

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use ottla_broker::{Broker, BrokerThread, DiskCall, DiskEffect, DiskFiles, DiskRule, Durability};
use ottla_log::storage::mem::MemStorage;
use ottla_protocol::ErrorCode;
use ottla_protocol::messages::alter_share_group_offsets::{
    AlterShareGroupOffsetsRequest, AlterShareGroupOffsetsRequestPartition, AlterShareGroupOffsetsRequestTopic,
};
use ottla_protocol::messages::create_topics::{CreatableTopic, CreateTopicsRequest};
use ottla_protocol::messages::delete_groups::DeleteGroupsRequest;
use ottla_protocol::messages::delete_topics::DeleteTopicsRequest;
use ottla_protocol::messages::list_groups::ListGroupsRequest;
use ottla_protocol::messages::share_group_records::{
    SHARE_GROUP_STATE_PARTITION_METADATA, ShareGroupKey, ShareGroupStatePartitionMetadataValue,
};
use ottla_wire::{Batches, Records};

use crate::common::world::fetch;
use crate::common::{PATIENCE, Raw};

fn start(storage: &MemStorage) -> (BrokerThread, Raw) {
    let broker = Broker::builder()
        .storage(Arc::new(storage.clone()))
        .topic("orders", 1)
        .configure(|config| config.durability = Durability::Disk)
        .spawn()
        .expect("a broker");
    let connection = Raw::connect(broker.addresses()[0]);
    (broker, connection)
}

/// Creates a share group with the state of one partition.
fn create_group(connection: &mut Raw, group: &str) {
    let partition = AlterShareGroupOffsetsRequestPartition { partition_index: 0, start_offset: 0 };
    let topic =
        AlterShareGroupOffsetsRequestTopic { topic_name: "orders".into(), partitions: vec![partition] };
    let request = AlterShareGroupOffsetsRequest { group_id: group.into(), topics: vec![topic] };
    let answer = connection.ask(0, &request).expect("an answer");
    assert_eq!(answer.error_code, ErrorCode::None);
    assert_eq!(answer.responses[0].partitions[0].error_code, ErrorCode::None);
}

fn groups(connection: &mut Raw) -> Vec<String> {
    let request = ListGroupsRequest { types_filter: vec!["share".into()], ..Default::default() };
    let groups = connection.ask(5, &request).expect("an answer").groups.into_iter();
    groups.map(|group| group.group_id).collect()
}

/// The records of all groups were encoded before the first one was written. A group that was deleted meanwhile came back with the
/// next start, and newer records of others were overwritten.
#[test]
fn a_group_that_is_deleted_during_the_deletion_of_a_topic_stays_deleted() {
    let storage = MemStorage::new();
    let (broker, mut connection) = start(&storage);
    create_group(&mut connection, "a");
    create_group(&mut connection, "b");
    assert_eq!(groups(&mut connection), ["a", "b"]);

    // The deletion of the topic writes the records of one group after the other, and waits for this sync of the first.
    let slow = DiskRule::new(DiskCall::Sync, DiskEffect::Slow(2 * PATIENCE));
    let files = DiskFiles::Topic("__consumer_offsets".into());
    let fault = broker.cluster().add_disk_fault(DiskRule { files, count: 1, ..slow });
    let mut other = Raw::connect(broker.addresses()[0]);
    let deleting = thread::spawn(move || {
        let topic_names = vec!["orders".into()];
        let request = DeleteTopicsRequest { topic_names, timeout_ms: 60_000, ..Default::default() };
        other.ask(3, &request).expect("an answer").responses[0].error_code
    });
    let deadline = Instant::now() + PATIENCE;
    while !broker.cluster().disk_faults().is_empty() {
        assert!(Instant::now() < deadline, "no sync of __consumer_offsets");
        thread::sleep(Duration::from_millis(5));
    }
    let request = DeleteGroupsRequest { groups_names: vec!["b".into()] };
    assert_eq!(connection.ask(2, &request).expect("an answer").results[0].error_code, ErrorCode::None);
    broker.cluster().remove_disk_fault(fault);
    assert_eq!(deleting.join().expect("it does not panic"), ErrorCode::None);
    assert_eq!(groups(&mut connection), ["a"]);

    let (_next, mut connection) = start(&storage.fork());
    assert_eq!(groups(&mut connection), ["a"]);
}

/// The number of topics in the last record of a group's state partitions.
fn stored_topics(broker: &BrokerThread, connection: &mut Raw, group: &str) -> usize {
    let key = ShareGroupKey { group_id: group.into() };
    let key = key.to_bytes(SHARE_GROUP_STATE_PARTITION_METADATA).expect("a key");
    let index = broker.cluster().group_partition(group);
    let bytes = fetch(connection, "__consumer_offsets", index, 0).expect("it is readable");
    let mut topics = 0;
    for found in Batches::new(&bytes) {
        let (_, range) = found.expect("a batch");
        let records = Records::of_batch(&bytes.slice(range), 0).expect("records");
        for record in &records {
            let record = record.expect("a record");
            if record.key == Some(&key[..]) {
                topics = record.value.map_or(0, |value| {
                    let value = Bytes::copy_from_slice(value);
                    let value = ShareGroupStatePartitionMetadataValue::from_bytes(value).expect("a value");
                    value.initializing_topics.len() + value.initialized_topics.len()
                });
            }
        }
    }
    topics
}

/// The end of the log that has a group's records.
fn end_of(broker: &BrokerThread, group: &str) -> i64 {
    let index = broker.cluster().group_partition(group);
    broker.cluster().offsets_of("__consumer_offsets", index).expect("it exists").1
}

/// The next attempt found nothing to remove in memory, and ended the deletion: after a restart the groups had states of the topic.
#[test]
fn a_removal_of_share_states_that_could_not_be_written_is_written_by_the_next_attempt() {
    let storage = MemStorage::new();
    let (broker, mut connection) = start(&storage);
    for group in ["a", "b"] {
        create_group(&mut connection, group);
        assert_eq!(stored_topics(&broker, &mut connection, group), 1);
    }
    let files = DiskFiles::Topic("__consumer_offsets".into());
    let full = DiskRule { files, ..DiskRule::new(DiskCall::Write, DiskEffect::Full) };
    broker.cluster().add_disk_fault(full);
    let topic_names = vec!["orders".into()];
    let request = DeleteTopicsRequest { topic_names, timeout_ms: 60_000, ..Default::default() };
    // The topic is deleted; its records in other topics are removed later.
    connection.ask(3, &request).expect("an answer");
    assert_eq!(stored_topics(&broker, &mut connection, "b"), 1, "it could not be written");
    broker.cluster().clear_disk_faults();

    // The next creation of a topic tries again.
    let topic = CreatableTopic {
        name: "bills".into(),
        num_partitions: 1,
        replication_factor: 1,
        ..Default::default()
    };
    let request = CreateTopicsRequest { topics: vec![topic], ..Default::default() };
    let answer = connection.ask(7, &request).expect("an answer");
    assert_eq!(answer.topics[0].error_code, ErrorCode::None);
    let ends = ["a", "b"].map(|group| end_of(&broker, group));
    let request = DeleteTopicsRequest { topic_names: vec!["bills".into()], ..Default::default() };
    assert_eq!(connection.ask(3, &request).expect("an answer").responses[0].error_code, ErrorCode::None);
    assert_eq!(["a", "b"].map(|group| end_of(&broker, group)), ends, "once");
    let (next, mut other) = start(&storage.fork());
    for group in ["a", "b"] {
        assert_eq!(stored_topics(&broker, &mut connection, group), 0);
        assert_eq!(stored_topics(&next, &mut other, group), 0, "after a restart");
    }
}
