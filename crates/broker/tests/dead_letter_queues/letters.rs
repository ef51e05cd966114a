//! A share group with a dead-letter queue: its broker, its members and its letters.

#![allow(clippy::disallowed_methods, reason = "a test is a shell")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use ottla_broker::{Broker, BrokerThread, TopicConfig};
use ottla_log::storage::mem::MemStorage;
use ottla_protocol::messages::describe_configs::{DescribeConfigsRequest, DescribeConfigsResource};
use ottla_protocol::messages::incremental_alter_configs::{
    AlterConfigsResource, AlterableConfig, IncrementalAlterConfigsRequest,
};
use ottla_protocol::messages::initialize_share_group_state::{
    InitializeShareGroupStateRequest, InitializeStateData, PartitionData as StateToInitialize,
};
use ottla_protocol::messages::produce::{PartitionProduceData, ProduceRequest, TopicProduceData};
use ottla_protocol::messages::read_share_group_state::{
    PartitionData as StateToRead, ReadShareGroupStateRequest, ReadStateData,
};
use ottla_protocol::messages::share_acknowledge::{
    AcknowledgePartition, AcknowledgeTopic, AcknowledgementBatch, ShareAcknowledgeRequest,
};
use ottla_protocol::messages::share_fetch::{FetchPartition, FetchTopic, ShareFetchRequest};
use ottla_protocol::messages::share_group_heartbeat::ShareGroupHeartbeatRequest;
use ottla_protocol::{ErrorCode, Uuid};
use ottla_wire::{BatchBuilder, Batches, Chain, Compression, Records, Seal};

use crate::common::world::fetch;
use crate::common::{PATIENCE, Raw, metadata_of};

pub(crate) const GROUP: &str = "billing";
pub(crate) const QUEUE: &str = "dlq.billing";
pub(crate) const TOPIC_RESOURCE: i8 = 2;
pub(crate) const BROKER_RESOURCE: i8 = 4;
pub(crate) const GROUP_RESOURCE: i8 = 32;
pub(crate) const ACCEPT: i8 = 1;
pub(crate) const RELEASE: i8 = 2;
pub(crate) const REJECT: i8 = 3;

pub(crate) const TOPIC_NAME: &str = "errors.deadletterqueue.topic.name";
pub(crate) const COPY: &str = "errors.deadletterqueue.copy.record.enable";
pub(crate) const ACCEPTS: &str = "errors.deadletterqueue.group.enable";
pub(crate) const AUTO_CREATE: (&str, &str) = ("errors.deadletterqueue.auto.create.topics.enable", "true");

pub(crate) const REJECTED: &str = "Offset rejected by client.";
pub(crate) const EXCEEDED: &str = "Offset delivery count exceeded the threshold.";

/// A record of a dead-letter topic.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Letter {
    pub(crate) key: Option<String>,
    pub(crate) value: Option<String>,
    pub(crate) headers: BTreeMap<String, String>,
}

impl Letter {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(&format!("__dlq.errors.{name}")).map_or("", String::as_str)
    }

    pub(crate) fn offset(&self) -> i64 {
        self.header("offset").parse().expect("a number")
    }
}

/// A broker with the topic `orders`, and with the dead-letter topic if it has partitions.
pub(crate) fn start(
    storage: &MemStorage,
    queue_partitions: i32,
    properties: &[(&str, &str)],
) -> BrokerThread {
    let mut builder = Broker::builder().storage(Arc::new(storage.clone())).topic("orders", 3);
    if queue_partitions > 0 {
        let mut config = TopicConfig::default();
        config.set(ACCEPTS, "true").expect("a setting");
        builder = builder.topic_with(QUEUE, queue_partitions, config);
    }
    let builder = builder.configure(|config| {
        config.set("group.share.min.record.lock.duration.ms", "1000").expect("a property");
        for (name, value) in properties {
            config.set(name, value).expect("a property");
        }
    });
    builder.spawn().expect("a broker")
}

/// A broker whose group begins at the first record, and has a dead-letter queue.
pub(crate) fn start_group(storage: &MemStorage) -> BrokerThread {
    let broker = start(storage, 2, &[]);
    initialize(&broker);
    configure(&broker, &[(TOPIC_NAME, QUEUE)]);
    broker
}

pub(crate) fn connect(broker: &BrokerThread) -> Raw {
    Raw::connect(broker.addresses()[0])
}

pub(crate) fn topic_id(connection: &mut Raw) -> Uuid {
    connection.ask(12, &metadata_of("orders")).expect("an answer").topics[0].topic_id
}

pub(crate) fn initialize(broker: &BrokerThread) {
    let mut connection = connect(broker);
    let topic_id = topic_id(&mut connection);
    let partition = |partition| StateToInitialize { partition, state_epoch: 0, start_offset: 0 };
    let topics = vec![InitializeStateData { topic_id, partitions: (0..3).map(partition).collect() }];
    let request = InitializeShareGroupStateRequest { group_id: GROUP.into(), topics };
    let answer = connection.ask(0, &request).expect("an answer");
    assert!(answer.results[0].partitions.iter().all(|part| part.error_code == ErrorCode::None));
}

pub(crate) fn alter(
    broker: &BrokerThread,
    kind: i8,
    name: &str,
    values: &[(&str, &str)],
) -> (ErrorCode, String) {
    let config = |(name, value): &(&str, &str)| AlterableConfig {
        name: (*name).into(),
        value: Some((*value).into()),
        ..Default::default()
    };
    let resource = AlterConfigsResource {
        resource_type: kind,
        resource_name: name.into(),
        configs: values.iter().map(config).collect(),
    };
    let request = IncrementalAlterConfigsRequest { resources: vec![resource], ..Default::default() };
    let answer = connect(broker).ask(1, &request).expect("an answer").responses.remove(0);
    (answer.error_code, answer.error_message.unwrap_or_default())
}

/// Sets configurations of the group.
pub(crate) fn configure(broker: &BrokerThread, values: &[(&str, &str)]) {
    assert_eq!(alter(broker, GROUP_RESOURCE, GROUP, values), (ErrorCode::None, String::new()));
}

/// The configurations of a resource, or those with these names.
pub(crate) fn described(
    broker: &BrokerThread,
    kind: i8,
    name: &str,
    keys: &[&str],
) -> BTreeMap<String, String> {
    let keys = keys.iter().map(|key| (*key).to_owned()).collect();
    let resource = DescribeConfigsResource {
        resource_type: kind,
        resource_name: name.into(),
        configuration_keys: Some(keys),
    };
    let request = DescribeConfigsRequest { resources: vec![resource], ..Default::default() };
    let configs = connect(broker).ask(4, &request).expect("an answer").results.remove(0).configs;
    configs.into_iter().map(|config| (config.name, config.value.unwrap_or_default())).collect()
}

/// Appends a batch to a partition of `orders`: keys `k0`, `k1` and so on, values `v0`, `v1` and so on.
pub(crate) fn produce(broker: &BrokerThread, index: i32, count: usize, compression: Compression) {
    let mut builder = BatchBuilder::new();
    for number in 0..count {
        let (key, value) = (format!("k{number}"), format!("v{number}"));
        let headers = [(&b"trace"[..], Some(&b"1"[..]))];
        builder.push(1_700_000_000_000, Some(key.as_bytes()), Some(value.as_bytes()), &headers);
    }
    append(broker, index, builder, compression);
}

pub(crate) fn append(broker: &BrokerThread, index: i32, builder: BatchBuilder, compression: Compression) {
    let sealed = builder.seal(&Seal { compression, ..Seal::default() }).expect("a batch");
    let records = Some(Chain::from(Bytes::copy_from_slice(&sealed.to_bytes())));
    let partition_data = vec![PartitionProduceData { index, records }];
    let topic_data = vec![TopicProduceData { name: "orders".into(), partition_data, ..Default::default() }];
    let request = ProduceRequest { acks: -1, timeout_ms: 10_000, topic_data, ..Default::default() };
    let answer = connect(broker).ask(12, &request).expect("an answer");
    assert_eq!(answer.responses[0].partition_responses[0].error_code, ErrorCode::None);
}

/// The letters in a partition of a topic.
pub(crate) fn letters_now(broker: &BrokerThread, topic: &str, index: i32) -> Vec<Letter> {
    let mut connection = connect(broker);
    let mut letters = Vec::new();
    let mut from = 0;
    loop {
        let Ok(bytes) = fetch(&mut connection, topic, index, from) else { return letters };
        if bytes.is_empty() {
            return letters;
        }
        for found in Batches::new(&bytes) {
            let (header, range) = found.expect("a batch");
            from = header.next_offset();
            let records = Records::of_batch(&bytes.slice(range), 1 << 20).expect("records");
            for record in &records {
                let record = record.expect("a record");
                let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
                let header =
                    |(name, value): (&[u8], Option<&[u8]>)| (text(name), text(value.unwrap_or_default()));
                letters.push(Letter {
                    key: record.key.map(text),
                    value: record.value.map(text),
                    headers: record.headers.iter().map(header).collect(),
                });
            }
        }
    }
}

pub(crate) fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < PATIENCE, "{what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Waits for so many letters.
pub(crate) fn letters(broker: &BrokerThread, index: i32, count: usize) -> Vec<Letter> {
    wait_for("the letters", || {
        let letters = letters_now(broker, QUEUE, index);
        (letters.len() >= count).then_some(letters)
    })
}

pub(crate) fn offsets(letters: &[Letter]) -> Vec<i64> {
    letters.iter().map(Letter::offset).collect()
}

/// The stored start offset of a share partition, and its batches.
pub(crate) fn stored(broker: &BrokerThread, index: i32) -> (i64, Vec<(i64, i64, i8)>) {
    let mut connection = connect(broker);
    let topic_id = topic_id(&mut connection);
    let partitions = vec![StateToRead { partition: index, leader_epoch: -1 }];
    let request = ReadShareGroupStateRequest {
        group_id: GROUP.into(),
        topics: vec![ReadStateData { topic_id, partitions }],
    };
    let read = connection.ask(0, &request).expect("an answer").results.remove(0).partitions.remove(0);
    assert_eq!(read.error_code, ErrorCode::None);
    let batches = read.state_batches.iter();
    let batches = batches.map(|batch| (batch.first_offset, batch.last_offset, batch.delivery_state));
    (read.start_offset, batches.collect())
}

/// Waits until the group is done with all records below the offset.
pub(crate) fn wait_for_start(broker: &BrokerThread, index: i32, start: i64) {
    wait_for("the start offset", || (stored(broker, index).0 == start).then_some(()));
}

/// A member of the group that reads one partition.
pub(crate) struct Member {
    pub(crate) connection: Raw,
    pub(crate) id: &'static str,
    pub(crate) topic: Uuid,
    pub(crate) index: i32,
    pub(crate) epoch: i32,
}

impl Member {
    pub(crate) fn join(broker: &BrokerThread, id: &'static str, index: i32) -> Self {
        let mut connection = connect(broker);
        let topic = topic_id(&mut connection);
        Self { connection, id, topic, index, epoch: 0 }
    }

    /// Fetches once. Returns what was acquired, with the delivery counts.
    pub(crate) fn fetch(&mut self) -> Vec<(i64, i64, i16)> {
        let partition = FetchPartition { partition_index: self.index, ..Default::default() };
        let topic = FetchTopic { topic_id: self.topic, partitions: vec![partition] };
        let request = ShareFetchRequest {
            group_id: Some(GROUP.into()),
            member_id: Some(self.id.into()),
            share_session_epoch: self.epoch,
            min_bytes: 1,
            max_bytes: 1 << 20,
            max_records: 500,
            batch_size: 500,
            topics: if self.epoch == 0 { vec![topic] } else { Vec::new() },
            ..Default::default()
        };
        let response = self.connection.ask(2, &request).expect("an answer");
        assert_eq!(response.error_code, ErrorCode::None);
        self.epoch += 1;
        let parts = response.responses.iter().flat_map(|topic| &topic.partitions);
        let acquired = parts.flat_map(|part| {
            assert_eq!(part.error_code, ErrorCode::None);
            &part.acquired_records
        });
        acquired.map(|batch| (batch.first_offset, batch.last_offset, batch.delivery_count)).collect()
    }

    /// Joins the group.
    pub(crate) fn beat(&mut self) {
        let request = ShareGroupHeartbeatRequest {
            group_id: GROUP.into(),
            member_id: self.id.into(),
            subscribed_topic_names: Some(vec!["orders".to_owned()]),
            ..Default::default()
        };
        let answer = self.connection.ask(1, &request).expect("an answer");
        assert_eq!(answer.error_code, ErrorCode::None, "{:?}", answer.error_message);
    }

    pub(crate) fn acknowledge(&mut self, first_offset: i64, last_offset: i64, ack: i8) {
        self.acknowledge_in(first_offset, last_offset, ack, self.epoch);
        self.epoch += 1;
    }

    pub(crate) fn acknowledge_in(&mut self, first_offset: i64, last_offset: i64, ack: i8, epoch: i32) {
        let batch = AcknowledgementBatch { first_offset, last_offset, acknowledge_types: vec![ack] };
        let partition =
            AcknowledgePartition { partition_index: self.index, acknowledgement_batches: vec![batch] };
        let request = ShareAcknowledgeRequest {
            group_id: Some(GROUP.into()),
            member_id: Some(self.id.into()),
            share_session_epoch: epoch,
            is_renew_ack: false,
            topics: vec![AcknowledgeTopic { topic_id: self.topic, partitions: vec![partition] }],
        };
        let response = self.connection.ask(2, &request).expect("an answer");
        assert_eq!(response.error_code, ErrorCode::None);
        assert_eq!(response.responses[0].partitions[0].error_code, ErrorCode::None);
    }
}
