//! A broker with more partitions than file descriptors creates, serves and recovers all of them.

#![allow(clippy::disallowed_methods, reason = "a test is a shell")]

mod common;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use common::{Raw, batch};
use ottla_broker::{Broker, BrokerThread, Durability};
use ottla_log::storage::fs::FsStorage;
use ottla_protocol::ErrorCode;
use ottla_protocol::messages::fetch::{FetchPartition, FetchRequest, FetchTopic};
use ottla_protocol::messages::list_offsets::{ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic};
use ottla_protocol::messages::produce::{PartitionProduceData, ProduceRequest, TopicProduceData};
use ottla_wire::{Chain, Seal};

const PARTITIONS: i32 = 150;
/// Files that the broker may have open; a partition that is written to needs two to four.
const FILES_MAX: usize = 60;

fn broker(dir: &Path, durability: Durability) -> BrokerThread {
    let storage = FsStorage::new(dir).expect("a directory").with_files_max(FILES_MAX);
    Broker::builder()
        .storage(Arc::new(storage))
        .configure(|config| config.durability = durability)
        .topic("orders", PARTITIONS)
        .spawn()
        .expect("a broker")
}

fn produce(connection: &mut Raw, index: i32) -> (ErrorCode, i64) {
    let records = Some(Chain::from(bytes::Bytes::from(batch(&[b"value"], &Seal::default()))));
    let partition_data = vec![PartitionProduceData { index, records }];
    let topic_data = vec![TopicProduceData { name: "orders".into(), partition_data, ..Default::default() }];
    let request = ProduceRequest { acks: -1, timeout_ms: 10_000, topic_data, ..Default::default() };
    let response = connection.ask(12, &request).expect("an answer");
    let partition = &response.responses[0].partition_responses[0];
    (partition.error_code, partition.base_offset)
}

fn assert_records(connection: &mut Raw, end: i64) {
    for partition in 0..PARTITIONS {
        let wanted = FetchPartition { partition, partition_max_bytes: 1 << 20, ..Default::default() };
        let topic = FetchTopic { topic: "orders".into(), partitions: vec![wanted], ..Default::default() };
        let request =
            FetchRequest { max_bytes: 1 << 20, session_epoch: -1, topics: vec![topic], ..Default::default() };
        let response = connection.ask(11, &request).expect("an answer");
        let data = &response.responses[0].partitions[0];
        assert_eq!((data.error_code, data.high_watermark), (ErrorCode::None, end), "partition {partition}");
        let wanted = ListOffsetsPartition { partition_index: partition, timestamp: 0, ..Default::default() };
        let topics = vec![ListOffsetsTopic { name: "orders".into(), partitions: vec![wanted] }];
        let request = ListOffsetsRequest { replica_id: -1, topics, ..Default::default() };
        let found = &connection.ask(4, &request).expect("an answer").topics[0].partitions[0];
        assert_eq!((found.error_code, found.offset), (ErrorCode::None, 0), "partition {partition}");
    }
}

fn copy_dir(from: &Path, to: &Path) {
    fs::create_dir(to).expect("a directory");
    for entry in fs::read_dir(from).expect("a directory").flatten() {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_dir(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).expect("copied");
        }
    }
}

/// A broker with 450 partitions and `ulimit -n 1024` could not start again after a kill.
#[test]
fn partitions_share_a_few_file_descriptors() {
    for durability in [Durability::Os, Durability::Disk] {
        let tmp = tempfile::tempdir().expect("a directory");
        let broker_at = |name: &str| broker(&tmp.path().join(name), durability);
        let running = broker_at("first");
        let mut connection = Raw::connect(running.addresses()[0]);
        for round in 0..2 {
            for partition in 0..PARTITIONS {
                let produced = produce(&mut connection, partition);
                assert_eq!(produced, (ErrorCode::None, round), "{durability:?}, partition {partition}");
            }
        }
        assert_records(&mut connection, 2);
        // The files that a kill leaves.
        copy_dir(&tmp.path().join("first"), &tmp.path().join("second"));
        let recovered = broker_at("second");
        assert_records(&mut Raw::connect(recovered.addresses()[0]), 2);
        running.stop();
        recovered.stop();
        for name in ["first", "second"] {
            let broker = broker_at(name);
            let mut connection = Raw::connect(broker.addresses()[0]);
            assert_records(&mut connection, 2);
            assert_eq!(produce(&mut connection, PARTITIONS - 1), (ErrorCode::None, 2));
        }
    }
}

/// The first offset of each partition.
fn starts(connection: &mut Raw) -> Vec<i64> {
    let asked =
        |partition_index| ListOffsetsPartition { partition_index, timestamp: -2, ..Default::default() };
    let partitions = (0..PARTITIONS).map(asked).collect();
    let topics = vec![ListOffsetsTopic { name: "orders".into(), partitions }];
    let request = ListOffsetsRequest { replica_id: -1, topics, ..Default::default() };
    let response = connection.ask(4, &request).expect("an answer");
    response.topics[0].partitions.iter().map(|partition| partition.offset).collect()
}

/// Retention opened files without closing others: with more partitions than files, it failed for most of them, and requests that
/// read old segments failed beside it.
#[test]
fn retention_of_more_partitions_than_files_deletes_the_records_of_all() {
    let tmp = tempfile::tempdir().expect("a directory");
    let storage = FsStorage::new(tmp.path()).expect("a directory").with_files_max(FILES_MAX);
    let builder = Broker::builder().storage(Arc::new(storage)).topic("orders", PARTITIONS);
    let configured = builder.configure(|config| {
        config.durability = Durability::Os;
        config.topic_defaults.set("retention.ms", "1").expect("a setting");
    });
    let broker = configured.spawn().expect("a broker");
    let mut connection = Raw::connect(broker.addresses()[0]);
    for partition in 0..PARTITIONS {
        assert_eq!(produce(&mut connection, partition), (ErrorCode::None, 0), "partition {partition}");
    }
    broker.block_on(|cluster| async move { cluster.apply_retention_now().await });
    assert_eq!(starts(&mut connection), vec![1; PARTITIONS as usize]);
}

/// Files were closed only for a partition without an open file, and a read of an older segment opens one as well.
#[test]
fn reads_of_old_segments_close_files_of_others() {
    const SEGMENTS: i64 = 6;
    let tmp = tempfile::tempdir().expect("a directory");
    let storage = FsStorage::new(tmp.path()).expect("a directory").with_files_max(FILES_MAX);
    let builder = Broker::builder().storage(Arc::new(storage)).topic("orders", PARTITIONS);
    let broker = builder.configure(|config| config.durability = Durability::Os).spawn().expect("a broker");
    let mut connection = Raw::connect(broker.addresses()[0]);
    for round in 0..SEGMENTS {
        for partition in 0..PARTITIONS {
            assert_eq!(produce(&mut connection, partition), (ErrorCode::None, round));
        }
        let rolled = broker.block_on(|cluster| async move { cluster.roll_now("orders").await });
        assert_eq!(rolled, Ok(PARTITIONS as usize));
    }
    for offset in 0..SEGMENTS {
        for partition in 0..PARTITIONS {
            let wanted = FetchPartition {
                partition,
                fetch_offset: offset,
                partition_max_bytes: 1,
                ..Default::default()
            };
            let topic = FetchTopic { topic: "orders".into(), partitions: vec![wanted], ..Default::default() };
            let request =
                FetchRequest { max_bytes: 1, session_epoch: -1, topics: vec![topic], ..Default::default() };
            let response = connection.ask(11, &request).expect("an answer");
            let data = &response.responses[0].partitions[0];
            let records = data.records.as_ref().map_or(0, Chain::len);
            assert!(
                data.error_code == ErrorCode::None && records > 0,
                "partition {partition}, offset {offset}"
            );
        }
    }
}
