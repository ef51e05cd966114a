//! A small data directory with every kind of data, and functions that read what a broker serves from it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use ottla_broker::{Broker, BrokerThread, StartError};
use ottla_protocol::messages::create_topics::{CreatableTopic, CreatableTopicConfig, CreateTopicsRequest};
use ottla_protocol::messages::delete_records::{
    DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic,
};
use ottla_protocol::messages::fetch::{FetchPartition, FetchRequest, FetchTopic};
use ottla_protocol::messages::init_producer_id::InitProducerIdRequest;
use ottla_protocol::messages::list_offsets::{ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic};
use ottla_protocol::messages::metadata::MetadataRequest;
use ottla_protocol::messages::offset_commit::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use ottla_protocol::messages::offset_fetch::{OffsetFetchRequest, OffsetFetchRequestTopic};
use ottla_protocol::{ErrorCode, Uuid};
use ottla_wire::{Batches, Records};

use super::{Raw, batch, numbered};
use ottla_wire::Seal;

pub(crate) const TOPICS: [(&str, i32); 2] = [("orders", 3), ("stock", 2)];
pub(crate) const GROUP: &str = "billing";
/// The partition that an idempotent producer writes to.
pub(crate) const PRODUCED: (&str, i32) = ("orders", 0);
/// The partition whose first records were deleted.
const DELETED: (&str, i32) = ("stock", 1);
const DELETED_BEFORE: i64 = 5;
const ROUNDS: i32 = 8;

type Place = (String, i32);

/// The contents of one partition, as clients see them.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Served {
    /// Every record, in order, with the offsets that fetches step over.
    All { start: i64, end: i64, records: Vec<(i64, Vec<u8>)>, gaps: Vec<(i64, i64)> },
    /// `KAFKA_STORAGE_ERROR` on list, fetch and produce.
    Offline,
    /// `KAFKA_STORAGE_ERROR` on a fetch from that offset; the records before it are there.
    Damaged { at: i64, records: Vec<(i64, Vec<u8>)> },
    /// Bytes that are no batch, or whose checksum is wrong.
    Unsound { at: i64, records: Vec<(i64, Vec<u8>)> },
}

/// The contents of a broker, as clients see them.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct View {
    pub(crate) topics: BTreeMap<String, (Uuid, i32)>,
    pub(crate) partitions: BTreeMap<Place, Served>,
    /// Empty if the group's partition of `__consumer_offsets` is offline: the group is not served.
    pub(crate) committed: BTreeMap<Place, (i64, Option<String>)>,
}

pub(crate) fn start(dir: &Path) -> Result<BrokerThread, StartError> {
    let configure = |config: &mut ottla_broker::BrokerConfig| {
        config.auto_create_topics = false;
        // One of them has the offsets of the group.
        config.offsets_topic_partitions = 2;
    };
    Broker::builder().configure(configure).data_dir(dir).spawn()
}

pub(crate) fn connect(broker: &BrokerThread) -> Raw {
    Raw::connect(broker.addresses()[0])
}

pub(crate) fn create(connection: &mut Raw, name: &str, partitions: i32) -> (ErrorCode, String) {
    let configs = [("segment.bytes", "1024"), ("retention.ms", "-1")]
        .map(|(name, value)| CreatableTopicConfig { name: name.into(), value: Some(value.into()) });
    let topic = CreatableTopic {
        name: name.into(),
        num_partitions: partitions,
        replication_factor: 1,
        configs: configs.to_vec(),
        ..Default::default()
    };
    let request = CreateTopicsRequest { topics: vec![topic], timeout_ms: 10_000, ..Default::default() };
    let answer = connection.ask(5, &request).expect("an answer");
    let topic = &answer.topics[0];
    (topic.error_code, topic.error_message.clone().unwrap_or_default())
}

/// Fills a directory; returns the id and the epoch of the idempotent producer. `killed` gets a copy of the files as they
/// were while the broker ran.
pub(crate) fn fill(dir: &Path, killed: &Path) -> (i64, i16) {
    let broker = start(dir).expect("a broker");
    let mut connection = connect(&broker);
    for (name, partitions) in TOPICS {
        assert_eq!(create(&mut connection, name, partitions).0, ErrorCode::None);
    }
    let request =
        InitProducerIdRequest { transactional_id: None, transaction_timeout_ms: 1000, ..Default::default() };
    let producer = connection.ask(4, &request).expect("an answer");
    assert_eq!(producer.error_code, ErrorCode::None);
    let me = (producer.producer_id, producer.producer_epoch);
    produce_rounds(&mut connection, me, 0..ROUNDS / 2);
    broker.stop();
    // A second life: another leader epoch, snapshots of producers at a clean stop.
    let broker = start(dir).expect("a broker");
    let mut connection = connect(&broker);
    produce_rounds(&mut connection, me, ROUNDS / 2..ROUNDS);
    for (at, (name, partitions)) in TOPICS.into_iter().enumerate() {
        for round in 0..3 {
            let partitions = (0..partitions).map(|index| OffsetCommitRequestPartition {
                partition_index: index,
                committed_offset: i64::from(index) + round + at as i64,
                committed_leader_epoch: -1,
                committed_metadata: Some(format!("note {round}")),
            });
            let topic = OffsetCommitRequestTopic {
                name: name.into(),
                partitions: partitions.collect(),
                ..Default::default()
            };
            let request = OffsetCommitRequest {
                group_id: GROUP.into(),
                generation_id_or_member_epoch: -1,
                retention_time_ms: -1,
                topics: vec![topic],
                ..Default::default()
            };
            let answer = connection.ask(8, &request).expect("an answer");
            assert!(answer.topics[0].partitions.iter().all(|p| p.error_code == ErrorCode::None));
        }
    }
    let delete = DeleteRecordsPartition { partition_index: DELETED.1, offset: DELETED_BEFORE };
    let topics = vec![DeleteRecordsTopic { name: DELETED.0.into(), partitions: vec![delete] }];
    let request = DeleteRecordsRequest { topics, timeout_ms: 1000 };
    let answer = connection.ask(2, &request).expect("an answer");
    assert_eq!(answer.topics[0].partitions[0].low_watermark, DELETED_BEFORE);
    copy(dir, killed);
    broker.stop();
    me
}

fn produce_rounds(connection: &mut Raw, me: (i64, i16), rounds: std::ops::Range<i32>) {
    for round in rounds {
        for (name, partitions) in TOPICS {
            for index in 0..partitions {
                let value = |n: i32| format!("{name}-{index} round {round} record {n} {}", "x".repeat(60));
                let values: Vec<String> = (0..3).map(value).collect();
                let values: Vec<&[u8]> = values.iter().map(String::as_bytes).collect();
                let bytes = if (name, index) == PRODUCED {
                    numbered(me, round * 3, &values)
                } else {
                    batch(&values, &Seal::default())
                };
                let answer = produce(connection, name, index, &bytes);
                assert_eq!(answer, (ErrorCode::None, i64::from(round) * 3));
            }
        }
    }
}

/// The batch that the idempotent producer sent last; a broker that knows it answers with its first offset.
pub(crate) fn last_batch_of(producer: (i64, i16)) -> (Vec<u8>, i64) {
    let (name, index) = PRODUCED;
    let round = ROUNDS - 1;
    let values: Vec<String> =
        (0..3).map(|n| format!("{name}-{index} round {round} record {n} {}", "x".repeat(60))).collect();
    let values: Vec<&[u8]> = values.iter().map(String::as_bytes).collect();
    (numbered(producer, round * 3, &values), i64::from(round) * 3)
}

pub(crate) fn produce(connection: &mut Raw, topic: &str, index: i32, bytes: &[u8]) -> (ErrorCode, i64) {
    let mut request = super::produce_request(topic, -1, bytes);
    request.topic_data[0].partition_data[0].index = index;
    let answer = connection.ask(12, &request).expect("an answer");
    let part = &answer.responses[0].partition_responses[0];
    (part.error_code, part.base_offset)
}

pub(crate) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("created");
    for entry in fs::read_dir(from).expect("a directory") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        if entry.file_type().expect("a type").is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).expect("copied");
        }
    }
}

/// Every file below `dir`, by its path in it.
pub(crate) fn files(dir: &Path) -> Vec<String> {
    let mut all = Vec::new();
    for entry in fs::read_dir(dir).expect("a directory") {
        let entry = entry.expect("an entry");
        let name = entry.file_name().into_string().expect("plain names");
        if entry.file_type().expect("a type").is_dir() {
            all.extend(files(&entry.path()).into_iter().map(|file| format!("{name}/{file}")));
        } else {
            all.push(name);
        }
    }
    all.sort();
    all
}

/// Returns all data that a client can see, but for the records of the coordinators: the committed offsets are in them.
pub(crate) fn view(connection: &mut Raw) -> View {
    let metadata = connection.ask(10, &MetadataRequest { topics: None, ..Default::default() });
    let metadata = metadata.expect("an answer");
    let mut topics = BTreeMap::new();
    let mut partitions = BTreeMap::new();
    for topic in metadata.topics.into_iter().filter(|topic| !topic.is_internal) {
        let name = topic.name.expect("a name");
        for partition in &topic.partitions {
            let index = partition.partition_index;
            let served = served(connection, &name, index);
            assert_eq!(
                served == Served::Offline,
                partition.leader_id == -1,
                "{name}-{index}: metadata and answers differ"
            );
            partitions.insert((name.clone(), index), served);
        }
        topics.insert(name, (topic.topic_id, topic.partitions.len() as i32));
    }
    let wanted = TOPICS.map(|(name, count)| OffsetFetchRequestTopic {
        name: name.into(),
        partition_indexes: (0..count).collect(),
    });
    let request =
        OffsetFetchRequest { group_id: GROUP.into(), topics: Some(wanted.to_vec()), ..Default::default() };
    let answer = connection.ask(7, &request).expect("an answer");
    if answer.error_code == ErrorCode::NotCoordinator {
        return View { topics, partitions, committed: BTreeMap::new() };
    }
    assert_eq!(answer.error_code, ErrorCode::None);
    let committed = answer.topics.iter().flat_map(|topic| {
        topic
            .partitions
            .iter()
            .map(|p| ((topic.name.clone(), p.partition_index), (p.committed_offset, p.metadata.clone())))
    });
    View { topics, partitions, committed: committed.collect() }
}

fn served(connection: &mut Raw, topic: &str, index: i32) -> Served {
    let (first, last) = (listed(connection, topic, index, -2), listed(connection, topic, index, -1));
    let (start, end) = match (first, last) {
        (Ok(start), Ok(end)) => (start, end),
        (Err(ErrorCode::KafkaStorageError), Err(ErrorCode::KafkaStorageError)) => {
            let fetched = fetch(connection, topic, index, 0).expect_err("offline");
            let produced = produce(connection, topic, index, &batch(&[b"x"], &Seal::default())).0;
            assert_eq!((fetched, produced), (ErrorCode::KafkaStorageError, ErrorCode::KafkaStorageError));
            return Served::Offline;
        }
        other => panic!("{topic}-{index}: {other:?}"),
    };
    let mut records = Vec::new();
    let mut gaps = Vec::new();
    let mut from = start;
    while from < end {
        let bytes = match fetch(connection, topic, index, from) {
            Ok(bytes) => bytes,
            Err(ErrorCode::KafkaStorageError) => return Served::Damaged { at: from, records },
            Err(code) => panic!("{topic}-{index} at {from}: {code}"),
        };
        let before = from;
        for found in Batches::new(&bytes) {
            // A fetch may cut off its last batch.
            let Ok((header, range)) = found else { break };
            let continues = header.base_offset >= from || from == start;
            let sound = header.verify_crc(&bytes[range.clone()]).is_ok();
            if !continues || !sound {
                return Served::Unsound { at: from, records };
            }
            if header.base_offset > from {
                gaps.push((from, header.base_offset));
            }
            let block = Records::of_batch(&bytes.slice(range), 0).expect("records");
            for record in &block {
                let record = record.expect("a record");
                if record.offset >= from {
                    records.push((record.offset, record.value.unwrap_or_default().to_vec()));
                }
            }
            from = header.next_offset();
        }
        if from == before {
            if !bytes.is_empty() {
                return Served::Unsound { at: from, records };
            }
            gaps.push((from, end));
            break;
        }
    }
    Served::All { start, end, records, gaps }
}

fn listed(connection: &mut Raw, topic: &str, index: i32, timestamp: i64) -> Result<i64, ErrorCode> {
    let partition = ListOffsetsPartition { partition_index: index, current_leader_epoch: -1, timestamp };
    let topics = vec![ListOffsetsTopic { name: topic.into(), partitions: vec![partition] }];
    let request = ListOffsetsRequest { replica_id: -1, topics, ..Default::default() };
    let answer = connection.ask(5, &request).expect("an answer");
    let part = &answer.topics[0].partitions[0];
    if part.error_code == ErrorCode::None { Ok(part.offset) } else { Err(part.error_code) }
}

pub(crate) fn fetch(
    connection: &mut Raw,
    topic: &str,
    index: i32,
    from: i64,
) -> Result<bytes::Bytes, ErrorCode> {
    let partition = FetchPartition {
        partition: index,
        current_leader_epoch: -1,
        fetch_offset: from,
        last_fetched_epoch: -1,
        partition_max_bytes: 1 << 20,
        ..Default::default()
    };
    let request = FetchRequest {
        replica_id: -1,
        max_bytes: 1 << 20,
        session_epoch: -1,
        topics: vec![FetchTopic { topic: topic.into(), partitions: vec![partition], ..Default::default() }],
        ..Default::default()
    };
    let answer = connection.ask(12, &request).expect("an answer");
    assert_eq!(answer.error_code, ErrorCode::None);
    let part = &answer.responses[0].partitions[0];
    match part.error_code {
        ErrorCode::None => {
            Ok(part.records.as_ref().map(|chain| chain.to_bytes().expect("in memory")).unwrap_or_default())
        }
        code => Err(code),
    }
}
