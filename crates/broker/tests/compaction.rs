//! Compacted topics through requests: the cleaner, its points, and the requests that meet it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use ottla_broker::{Broker, BrokerBuilder, BrokerConfig, BrokerThread, Clock};
use ottla_log::storage::mem::MemStorage;
use ottla_protocol::ErrorCode;
use ottla_protocol::messages::create_topics::{CreatableTopic, CreatableTopicConfig, CreateTopicsRequest};
use ottla_protocol::messages::delete_records::{
    DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic,
};
use ottla_protocol::messages::delete_topics::{DeleteTopicState, DeleteTopicsRequest};
use ottla_protocol::messages::describe_configs::{DescribeConfigsRequest, DescribeConfigsResource};
use ottla_protocol::messages::fetch::{FetchPartition, FetchRequest, FetchTopic};
use ottla_protocol::messages::incremental_alter_configs::{
    AlterConfigsResource, AlterableConfig, IncrementalAlterConfigsRequest,
};
use ottla_protocol::messages::list_offsets::{ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic};
use ottla_protocol::messages::write_txn_markers::{
    WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest,
};
use ottla_wire::{BatchBuilder, Batches, Compression, Records, Seal};

use crate::common;
use crate::common::{PATIENCE, Raw};

const CHECKPOINT: &str = "cleaner-offset-checkpoint";
const NOW_MS: i64 = 1_700_000_000_000;
/// The topic resource of the configs API.
const TOPIC: i8 = 2;

fn start(disk: &MemStorage) -> BrokerThread {
    fast(Broker::builder().storage(Arc::new(disk.clone()))).spawn().expect("a broker")
}

fn fast(builder: BrokerBuilder) -> BrokerBuilder {
    builder.configure(|config| config.cleaner_backoff = Duration::from_millis(2))
}

fn create(connection: &mut Raw, name: &str, configs: &[(&str, &str)]) -> ErrorCode {
    let base =
        [("cleanup.policy", "compact"), ("segment.bytes", "2000"), ("min.cleanable.dirty.ratio", "0.01")];
    let configs = base
        .iter()
        .chain(configs)
        .map(|(name, value)| CreatableTopicConfig { name: (*name).into(), value: Some((*value).into()) });
    let topic = CreatableTopic {
        name: name.into(),
        num_partitions: 1,
        replication_factor: 1,
        configs: configs.collect(),
        ..Default::default()
    };
    let request = CreateTopicsRequest { topics: vec![topic], timeout_ms: 1000, validate_only: false };
    connection.ask(7, &request).expect("an answer").topics[0].error_code
}

fn delete(connection: &mut Raw, name: &str) -> ErrorCode {
    let topics = vec![DeleteTopicState { name: Some(name.into()), ..Default::default() }];
    let request = DeleteTopicsRequest { topics, timeout_ms: 1000, ..Default::default() };
    connection.ask(6, &request).expect("an answer").responses[0].error_code
}

fn batch(records: &[(Option<&str>, Option<&str>)], compression: Compression) -> Vec<u8> {
    let mut builder = BatchBuilder::new();
    for (key, value) in records {
        builder.push(NOW_MS, key.map(str::as_bytes), value.map(str::as_bytes), &[]);
    }
    builder.seal(&Seal { compression, ..Seal::default() }).expect("a batch").to_bytes().to_vec()
}

/// Produces `count` records of five keys, and returns the newest value of each.
fn produce(connection: &mut Raw, topic: &str, count: i64) -> BTreeMap<String, String> {
    let mut newest = BTreeMap::new();
    for n in 0..count {
        let (key, value) = (format!("key {}", n % 5), format!("value {n}"));
        let answer = connection.produce(topic, -1, &batch(&[(Some(&key), Some(&value))], Compression::None));
        assert_eq!(answer.error_code, ErrorCode::None);
        newest.insert(key, value);
    }
    newest
}

/// All records of partition 0 by offset, read through fetches of at most `max_bytes`.
fn fetch_all(connection: &mut Raw, topic: &str, max_bytes: i32) -> Vec<(i64, String, String)> {
    let mut all = Vec::new();
    let mut next = 0;
    loop {
        let partition = FetchPartition {
            partition: 0,
            fetch_offset: next,
            partition_max_bytes: max_bytes,
            ..Default::default()
        };
        let topics =
            vec![FetchTopic { topic: topic.into(), partitions: vec![partition], ..Default::default() }];
        let request = FetchRequest {
            replica_id: -1,
            max_wait_ms: 0,
            max_bytes,
            session_epoch: -1,
            topics,
            ..Default::default()
        };
        let answer = connection.ask(12, &request).expect("an answer");
        let part = &answer.responses[0].partitions[0];
        assert_eq!(part.error_code, ErrorCode::None, "offset {next}");
        let bytes =
            part.records.as_ref().map(|records| records.to_bytes().expect("in memory")).unwrap_or_default();
        for found in Batches::new(&bytes) {
            let (header, range) = found.expect("a batch");
            for record in &Records::of_batch(&bytes.slice(range), 1 << 20).expect("records") {
                let record = record.expect("a record");
                let text =
                    |bytes: Option<&[u8]>| String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned();
                all.push((record.offset, text(record.key), text(record.value)));
            }
            next = header.next_offset();
        }
        if bytes.is_empty() {
            return all;
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a deadline for the cleaner, which works in the background")]
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::yield_now();
    }
}

/// The cleaner point of a partition in the file.
fn point(disk: &MemStorage, topic: &str) -> Option<i64> {
    let text = String::from_utf8(disk.contents(CHECKPOINT)?).expect("text");
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("{topic} 0 ")))?;
    line.parse().ok()
}

fn await_point(disk: &MemStorage, topic: &str, offset: i64) {
    wait_until("the cleaner reaches the offset", || point(disk, topic).is_some_and(|point| point >= offset));
}

#[test]
fn the_cleaner_keeps_the_newest_records_and_a_restart_continues() {
    let disk = MemStorage::forgetful();
    let broker = start(&disk);
    let mut connection = Raw::connect(broker.addresses()[0]);
    assert_eq!(create(&mut connection, "orders", &[]), ErrorCode::None);
    produce(&mut connection, "orders", 200);
    await_point(&disk, "orders", 150);
    let newest = produce(&mut connection, "orders", 200);
    await_point(&disk, "orders", 350);
    for max_bytes in [1 << 20, 300, 1] {
        let all = fetch_all(&mut connection, "orders", max_bytes);
        assert!(all.len() < 80, "{} records are left of 400", all.len());
        assert!(all.windows(2).all(|pair| pair[0].0 < pair[1].0));
        let read: BTreeMap<String, String> = all.into_iter().map(|(_, key, value)| (key, value)).collect();
        assert_eq!(read, newest);
    }
    assert_eq!(broker.cluster().offsets_of("orders", 0), Some((0, 400)));
    broker.stop();
    let after = point(&disk, "orders");
    let broker = start(&disk);
    let mut connection = Raw::connect(broker.addresses()[0]);
    assert_eq!(point(&disk, "orders"), after, "nothing is dirty enough");
    let read: BTreeMap<String, String> = fetch_all(&mut connection, "orders", 1 << 20)
        .into_iter()
        .map(|(_, key, value)| (key, value))
        .collect();
    assert_eq!(read, newest);
}

#[test]
fn a_batch_with_a_record_without_a_key_is_refused_as_a_whole() {
    let broker = fast(Broker::builder().memory()).spawn().expect("a broker");
    let mut connection = Raw::connect(broker.addresses()[0]);
    assert_eq!(create(&mut connection, "orders", &[]), ErrorCode::None);
    let long = "x".repeat(100_000);
    for value in ["short", &long] {
        for codec in Compression::ALL {
            let keyless = (None, Some(value));
            let records = [(Some("key"), Some(value)), keyless, (Some("other"), Some(value)), keyless];
            let answer = connection.produce("orders", -1, &batch(&records, codec));
            assert_eq!(answer.error_code, ErrorCode::InvalidRecord, "{codec:?}");
            let message = answer.error_message.unwrap_or_default();
            assert!(message.contains("record 1") && message.contains("has no key"), "{message}");
            // librdkafka's test 0011: its other records can be sent again.
            let indexes: Vec<i32> = answer.record_errors.iter().map(|error| error.batch_index).collect();
            assert_eq!(indexes, [1, 3]);
        }
    }
    assert_eq!(broker.cluster().offsets_of("orders", 0), Some((0, 0)));
    let answer = connection.produce("orders", -1, &batch(&[(Some(""), None)], Compression::None));
    assert_eq!(answer.error_code, ErrorCode::None, "an empty key is a key");
}

/// A batch of a hundred bytes had a response of 70,000.
#[test]
fn a_response_names_a_thousand_records_without_keys() {
    let broker = fast(Broker::builder().memory()).spawn().expect("a broker");
    let mut connection = Raw::connect(broker.addresses()[0]);
    let topics = ["orders", "returns", "stock"];
    for topic in topics {
        assert_eq!(create(&mut connection, topic, &[]), ErrorCode::None);
    }
    for codec in [Compression::None, Compression::Zstd] {
        let bytes = batch(&vec![(None, Some("x")); 700], codec);
        let mut request = common::produce_request("orders", -1, &bytes);
        request.topic_data = topics
            .map(|topic| common::produce_request(topic, -1, &bytes).topic_data.remove(0))
            .into_iter()
            .collect();
        let answer = connection.ask(12, &request).expect("an answer");
        let parts = answer.responses.iter().map(|topic| &topic.partition_responses[0]);
        let named: Vec<_> = parts.map(|part| (part.error_code, part.record_errors.len())).collect();
        assert_eq!(named, [700, 300, 0].map(|count| (ErrorCode::InvalidRecord, count)), "{codec:?}");
    }
}

#[test]
fn the_data_of_aborted_transactions_is_removed_and_that_of_open_ones_waits() {
    let disk = MemStorage::forgetful();
    let broker = start(&disk);
    broker.cluster().set_transactions_approved(true);
    let mut connection = Raw::connect(broker.addresses()[0]);
    assert_eq!(create(&mut connection, "orders", &[]), ErrorCode::None);
    let send = |connection: &mut Raw, producer_id, value: &str| {
        let mut builder = BatchBuilder::new();
        builder.push(NOW_MS, Some(b"key 0"), Some(value.as_bytes()), &[]);
        let seal =
            Seal { producer_id, producer_epoch: 0, base_sequence: 0, transactional: true, ..Seal::default() };
        let mut request =
            common::produce_request("orders", -1, &builder.seal(&seal).expect("a batch").to_bytes());
        request.transactional_id = Some("t".into());
        let answer = connection.ask(11, &request).expect("an answer");
        assert_eq!(answer.responses[0].partition_responses[0].error_code, ErrorCode::None);
    };
    let end = |connection: &mut Raw, producer_id| {
        let topics = vec![WritableTxnMarkerTopic { name: "orders".into(), partition_indexes: vec![0] }];
        let marker = WritableTxnMarker { producer_id, topics, ..Default::default() };
        let answer = connection.ask(1, &WriteTxnMarkersRequest { markers: vec![marker] }).expect("an answer");
        assert_eq!(answer.markers[0].topics[0].partitions[0].error_code, ErrorCode::None);
    };
    let newest = produce(&mut connection, "orders", 5);
    send(&mut connection, 7, "aborted");
    end(&mut connection, 7);
    let before_open = 7;
    produce(&mut connection, "orders", 30);
    let newest =
        [newest, produce(&mut connection, "orders", 40)].into_iter().flatten().collect::<BTreeMap<_, _>>();
    await_point(&disk, "orders", before_open + 20);
    let all = fetch_all(&mut connection, "orders", 1 << 20);
    assert!(all.iter().all(|(_, _, value)| value != "aborted"), "{all:?}");
    // An open transaction holds the cleaner back.
    send(&mut connection, 9, "open");
    let held = broker.cluster().offsets_of("orders", 0).expect("there").1;
    produce(&mut connection, "orders", 60);
    assert!(fetch_all(&mut connection, "orders", 1 << 20).iter().any(|(_, _, value)| value == "open"));
    end(&mut connection, 9);
    produce(&mut connection, "orders", 60);
    await_point(&disk, "orders", held + 20);
    let all = fetch_all(&mut connection, "orders", 1 << 20);
    assert!(all.iter().all(|(_, _, value)| value != "open" && value != "aborted"), "{all:?}");
    assert_eq!(newest.len(), 5);
}

#[test]
fn records_without_keys_from_before_the_policy_are_removed() {
    let disk = MemStorage::new();
    let broker = start(&disk);
    let mut connection = Raw::connect(broker.addresses()[0]);
    assert_eq!(create(&mut connection, "orders", &[("cleanup.policy", "delete")]), ErrorCode::None);
    for _ in 0..50 {
        connection.produce("orders", -1, &batch(&[(None, Some("keyless"))], Compression::None));
    }
    assert_eq!(fetch_all(&mut connection, "orders", 1 << 20).len(), 50);
    assert_eq!(point(&disk, "orders"), None, "the topic is not compacted");
    // `kafka-configs --add-config` sets a list, clients append to it.
    assert_eq!(alter(&mut connection, 2, "compact"), ErrorCode::None);
    assert_eq!(policy(&mut connection), "delete,compact");
    let newest = produce(&mut connection, "orders", 50);
    await_point(&disk, "orders", 60);
    let all = fetch_all(&mut connection, "orders", 1 << 20);
    assert!(all.iter().all(|(offset, _, value)| *offset >= 50 && value != "keyless"), "{all:?}");
    assert_eq!(all.into_iter().map(|(_, key, value)| (key, value)).collect::<BTreeMap<_, _>>(), newest);
    assert_eq!(alter(&mut connection, 3, "delete"), ErrorCode::None);
    assert_eq!(policy(&mut connection), "compact");
    assert_eq!(alter(&mut connection, 2, "shred"), ErrorCode::InvalidConfig);
}

/// Changes the policy with an operation: 2 appends, 3 subtracts.
fn alter(connection: &mut Raw, operation: i8, value: &str) -> ErrorCode {
    let change = AlterableConfig {
        name: "cleanup.policy".into(),
        config_operation: operation,
        value: Some(value.into()),
    };
    let resource =
        AlterConfigsResource { resource_type: TOPIC, resource_name: "orders".into(), configs: vec![change] };
    let request = IncrementalAlterConfigsRequest { resources: vec![resource], validate_only: false };
    connection.ask(1, &request).expect("an answer").responses[0].error_code
}

fn policy(connection: &mut Raw) -> String {
    let resource = DescribeConfigsResource {
        resource_type: TOPIC,
        resource_name: "orders".into(),
        configuration_keys: Some(vec!["cleanup.policy".into()]),
    };
    let request = DescribeConfigsRequest { resources: vec![resource], ..Default::default() };
    let answer = connection.ask(4, &request).expect("an answer");
    answer.results[0].configs[0].value.clone().unwrap_or_default()
}

#[test]
fn a_deletion_of_records_and_lookups_by_time_meet_a_compacted_log() {
    let disk = MemStorage::new();
    let broker = start(&disk);
    let mut connection = Raw::connect(broker.addresses()[0]);
    assert_eq!(create(&mut connection, "orders", &[]), ErrorCode::None);
    produce(&mut connection, "orders", 200);
    await_point(&disk, "orders", 150);
    let offset_at = |connection: &mut Raw, timestamp: i64| {
        let partitions =
            vec![ListOffsetsPartition { partition_index: 0, current_leader_epoch: -1, timestamp }];
        let topics = vec![ListOffsetsTopic { name: "orders".into(), partitions }];
        let request = ListOffsetsRequest { replica_id: -1, topics, ..Default::default() };
        connection.ask(7, &request).expect("an answer").topics[0].partitions[0].offset
    };
    // A compaction between the two requests moves the first record: they are compared when none ran.
    let (mut first, mut found) = (0, 0);
    wait_until("the cleaner comes to an end", || {
        first = fetch_all(&mut connection, "orders", 1 << 20)[0].0;
        found = offset_at(&mut connection, NOW_MS);
        fetch_all(&mut connection, "orders", 1 << 20)[0].0 == first
    });
    assert!(first > 100, "the first offsets are gone: {first}");
    assert_eq!(found, first, "the first record with this time");
    assert_eq!((offset_at(&mut connection, -2), offset_at(&mut connection, -1)), (0, 200));
    let partitions = vec![DeleteRecordsPartition { partition_index: 0, offset: 60 }];
    let topics = vec![DeleteRecordsTopic { name: "orders".into(), partitions }];
    let request = DeleteRecordsRequest { topics, timeout_ms: 1000 };
    let answer = connection.ask(2, &request).expect("an answer");
    assert_eq!(answer.topics[0].partitions[0].error_code, ErrorCode::PolicyViolation, "it is only compacted");
    assert_eq!(alter(&mut connection, 2, "delete"), ErrorCode::None);
    let answer = connection.ask(2, &request).expect("an answer");
    assert_eq!(answer.topics[0].partitions[0].low_watermark, 60);
    assert_eq!(offset_at(&mut connection, -2), 60);
    produce(&mut connection, "orders", 100);
    await_point(&disk, "orders", 280);
}

/// It was removed at the next pass, before consumers that had not read it yet.
#[test]
fn a_jump_of_the_wall_clock_ahead_removes_no_tombstone() {
    let (disk, now) = (MemStorage::new(), Arc::new(AtomicI64::new(NOW_MS)));
    let builder = Broker::builder().storage(Arc::new(disk.clone())).clock(Clock::Fixed(now.clone()));
    let broker = fast(builder).spawn().expect("a broker");
    let mut connection = Raw::connect(broker.addresses()[0]);
    assert_eq!(create(&mut connection, "orders", &[("delete.retention.ms", "3600000")]), ErrorCode::None);
    let answer = connection.produce("orders", -1, &batch(&[(Some("gone"), None)], Compression::None));
    assert_eq!(answer.error_code, ErrorCode::None);
    produce(&mut connection, "orders", 60);
    // The first pass that keeps it sets its delete horizon.
    await_point(&disk, "orders", 40);
    now.fetch_add(24 * 3_600_000, Ordering::Relaxed);
    produce(&mut connection, "orders", 60);
    await_point(&disk, "orders", 100);
    let all = fetch_all(&mut connection, "orders", 1 << 20);
    assert!(all.iter().any(|(_, key, _)| key == "gone"), "{all:?}");
}

#[test]
fn a_topic_that_is_created_again_has_no_cleaner_point() {
    let disk = MemStorage::forgetful();
    let broker = start(&disk);
    let mut connection = Raw::connect(broker.addresses()[0]);
    for round in 0..5 {
        assert_eq!(create(&mut connection, "orders", &[]), ErrorCode::None);
        produce(&mut connection, "orders", 60);
        if round % 2 == 0 {
            await_point(&disk, "orders", 30);
        }
        // The cleaner may be at work: the deletion stops it.
        assert_eq!(delete(&mut connection, "orders"), ErrorCode::None);
        assert_eq!(point(&disk, "orders"), None);
        assert!(!disk.paths().iter().any(|path| path.starts_with("orders-0/")), "{:?}", disk.paths());
    }
}

#[test]
fn the_properties_of_the_cleaner_have_kafkas_names() {
    let mut config = BrokerConfig::default();
    for (name, value) in [
        ("log.cleaner.enable", "false"),
        ("log.cleaner.backoff.ms", "250"),
        ("log.cleaner.dedupe.buffer.size", "134217728"),
        ("log.cleanup.policy", "compact,delete"),
        ("log.cleaner.min.cleanable.ratio", "0.2"),
        ("log.cleaner.min.compaction.lag.ms", "5"),
        ("log.cleaner.max.compaction.lag.ms", "6"),
        ("log.cleaner.delete.retention.ms", "7"),
    ] {
        config.set(name, value).unwrap_or_else(|error| panic!("{error}"));
    }
    assert!(!config.cleaner_enabled);
    assert_eq!(
        (config.cleaner_backoff, config.cleaner_map_bytes_max),
        (Duration::from_millis(250), 128 << 20)
    );
    let defaults = config.topic_defaults.values();
    let of = |name: &str| defaults.get(name).map(String::as_str);
    assert_eq!((of("cleanup.policy"), of("delete.retention.ms")), (Some("compact,delete"), Some("7")));
    assert_eq!((of("min.compaction.lag.ms"), of("max.compaction.lag.ms")), (Some("5"), Some("6")));
    let refused = config.set("log.cleaner.min.cleanable.ratio", "2").expect_err("above 1");
    assert!(
        refused.contains("log.cleaner.min.cleanable.ratio") && refused.contains("from 0 to 1"),
        "{refused}"
    );
}

#[test]
fn a_cleaner_that_is_off_does_nothing_and_a_bad_setting_is_refused() {
    let disk = MemStorage::new();
    let builder = fast(Broker::builder().storage(Arc::new(disk.clone())));
    let broker = builder.configure(|config| config.cleaner_enabled = false).spawn().expect("a broker");
    let mut connection = Raw::connect(broker.addresses()[0]);
    assert_eq!(create(&mut connection, "orders", &[]), ErrorCode::None);
    for (name, value) in [
        ("cleanup.policy", "shred"),
        ("cleanup.policy", "compact,shred"),
        ("min.cleanable.dirty.ratio", "1.5"),
        ("min.compaction.lag.ms", "-1"),
        ("max.compaction.lag.ms", "0"),
        ("delete.retention.ms", "soon"),
    ] {
        assert_eq!(
            create(&mut connection, "other", &[(name, value)]),
            ErrorCode::InvalidConfig,
            "{name}={value}"
        );
    }
    produce(&mut connection, "orders", 100);
    broker.stop();
    assert_eq!(disk.contents(CHECKPOINT), None);
}
