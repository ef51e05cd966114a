//! Share groups over the wire: what members acquire and acknowledge, and what is left after a kill.

#![allow(clippy::disallowed_methods, reason = "a test is a shell")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use ottla_broker::{Broker, BrokerThread};
use ottla_log::storage::mem::MemStorage;
use ottla_protocol::messages::delete_records::{
    DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic,
};
use ottla_protocol::messages::delete_topics::{DeleteTopicState, DeleteTopicsRequest};
use ottla_protocol::messages::incremental_alter_configs::{
    AlterConfigsResource, AlterableConfig, IncrementalAlterConfigsRequest,
};
use ottla_protocol::messages::initialize_share_group_state::{
    InitializeShareGroupStateRequest, InitializeStateData, PartitionData as StateToInitialize,
};
use ottla_protocol::messages::share_acknowledge::{
    AcknowledgePartition, AcknowledgeTopic, AcknowledgementBatch as AckOnly, ShareAcknowledgeRequest,
};
use ottla_protocol::messages::share_fetch::{
    AcknowledgementBatch, FetchPartition, FetchTopic, ForgottenTopic, PartitionData, ShareFetchRequest,
    ShareFetchResponse,
};
use ottla_protocol::messages::write_txn_markers::{
    WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest,
};
use ottla_protocol::{ErrorCode, Uuid};
use ottla_wire::{Batches, Seal};

use crate::common::{Raw, batch, metadata_of, produce_request};

pub(crate) const GROUP: &str = "billing";
const GROUP_RESOURCE: i8 = 32;
const GAP: i8 = 0;
pub(crate) const ACCEPT: i8 = 1;
pub(crate) const RELEASE: i8 = 2;
const REJECT: i8 = 3;
const RENEW: i8 = 4;
/// The longest wait for records that are there: only a defect exhausts it.
pub(crate) const WAIT_MS: i32 = 20_000;

/// A range of records and its delivery count.
pub(crate) type Acquired = (i64, i64, i16);

/// A member of the group with a connection of its own.
pub(crate) struct Member {
    connection: Raw,
    id: &'static str,
    pub(crate) topic: Uuid,
    epoch: i32,
    records_max: i32,
    mode: i8,
    pub(crate) wait_ms: i32,
}

fn start(storage: &MemStorage) -> BrokerThread {
    start_with(storage, &[])
}

pub(crate) fn start_with(storage: &MemStorage, properties: &[(&str, &str)]) -> BrokerThread {
    let builder = Broker::builder().storage(Arc::new(storage.clone())).topic("orders", 2);
    let builder = builder.configure(|config| {
        config.set("group.share.min.record.lock.duration.ms", "1000").expect("a property");
        for (name, value) in properties {
            config.set(name, value).expect("a property");
        }
    });
    builder.spawn().expect("a broker")
}

/// A broker whose group begins both partitions at the offset.
pub(crate) fn start_group(storage: &MemStorage, offset: i64) -> BrokerThread {
    let broker = start(storage);
    initialize(&broker, offset);
    broker
}

pub(crate) fn initialize(broker: &BrokerThread, start_offset: i64) {
    for partition in 0..2 {
        // The coordinator of each share partition is one of the nodes.
        let codes = broker.addresses().iter().map(|address| {
            let mut connection = Raw::connect(*address);
            let topic_id = topic_id(&mut connection);
            let partitions = vec![StateToInitialize { partition, state_epoch: 0, start_offset }];
            let topics = vec![InitializeStateData { topic_id, partitions }];
            let request = InitializeShareGroupStateRequest { group_id: GROUP.into(), topics };
            connection.ask(0, &request).expect("an answer").results[0].partitions[0].error_code
        });
        let codes: Vec<ErrorCode> = codes.collect();
        assert!(codes.contains(&ErrorCode::None), "{codes:?}");
    }
}

fn topic_id(connection: &mut Raw) -> Uuid {
    connection.ask(12, &metadata_of("orders")).expect("an answer").topics[0].topic_id
}

/// Appends a batch of so many records to partition 0.
pub(crate) fn produce(broker: &BrokerThread, count: usize) {
    let values = vec![&b"x"[..]; count];
    let mut connection = Raw::connect(broker.addresses()[0]);
    let answer = connection.produce("orders", -1, &batch(&values, &Seal::default()));
    assert_eq!(answer.error_code, ErrorCode::None);
}

fn configure(broker: &BrokerThread, name: &str, value: &str) -> ErrorCode {
    let mut connection = Raw::connect(broker.addresses()[0]);
    let config = AlterableConfig { name: name.into(), value: Some(value.into()), ..Default::default() };
    let resource = AlterConfigsResource {
        resource_type: GROUP_RESOURCE,
        resource_name: GROUP.into(),
        configs: vec![config],
    };
    let request = IncrementalAlterConfigsRequest { resources: vec![resource], ..Default::default() };
    connection.ask(1, &request).expect("an answer").responses[0].error_code
}

impl Member {
    pub(crate) fn join(broker: &BrokerThread, id: &'static str) -> Self {
        let mut connection = Raw::connect(broker.addresses()[0]);
        let topic = topic_id(&mut connection);
        Self { connection, id, topic, epoch: 0, records_max: 500, mode: 0, wait_ms: 0 }
    }

    pub(crate) fn request(&self, acks: Vec<AcknowledgementBatch>) -> ShareFetchRequest {
        let has_topic = self.epoch == 0 || !acks.is_empty();
        let partition = FetchPartition { partition_index: 0, acknowledgement_batches: acks };
        let topic = FetchTopic { topic_id: self.topic, partitions: vec![partition] };
        ShareFetchRequest {
            group_id: Some(GROUP.into()),
            member_id: Some(self.id.into()),
            share_session_epoch: self.epoch,
            max_wait_ms: self.wait_ms,
            min_bytes: 1,
            max_bytes: 1 << 20,
            max_records: self.records_max,
            batch_size: 500,
            share_acquire_mode: self.mode,
            topics: if has_topic { vec![topic] } else { Vec::new() },
            ..Default::default()
        }
    }

    pub(crate) fn send(&mut self, request: &ShareFetchRequest) -> ShareFetchResponse {
        let response = self.connection.ask(2, request).expect("an answer");
        if response.error_code == ErrorCode::None {
            self.epoch += 1;
        }
        response
    }

    /// Fetches with acknowledgements. Returns what was acquired.
    fn fetch_with(&mut self, acks: Vec<AcknowledgementBatch>) -> Vec<Acquired> {
        let request = self.request(acks);
        let response = self.send(&request);
        assert_eq!(response.error_code, ErrorCode::None);
        let Some(data) = response.responses.first().map(|topic| &topic.partitions[0]) else {
            return Vec::new();
        };
        assert_eq!((data.error_code, data.acknowledge_error_code), (ErrorCode::None, ErrorCode::None));
        check_records(data);
        acquired(data)
    }

    pub(crate) fn fetch(&mut self) -> Vec<Acquired> {
        self.fetch_with(Vec::new())
    }

    pub(crate) fn acknowledge(&mut self, first: i64, last: i64, ack: i8) -> ErrorCode {
        self.acknowledge_as(first, last, vec![ack], self.epoch)
    }

    fn acknowledge_as(&mut self, first: i64, last: i64, types: Vec<i8>, epoch: i32) -> ErrorCode {
        let batch = AckOnly { first_offset: first, last_offset: last, acknowledge_types: types };
        let partition = AcknowledgePartition { partition_index: 0, acknowledgement_batches: vec![batch] };
        let request = ShareAcknowledgeRequest {
            group_id: Some(GROUP.into()),
            member_id: Some(self.id.into()),
            share_session_epoch: epoch,
            is_renew_ack: false,
            topics: vec![AcknowledgeTopic { topic_id: self.topic, partitions: vec![partition] }],
        };
        self.send_acknowledgement(&request)
    }

    fn send_acknowledgement(&mut self, request: &ShareAcknowledgeRequest) -> ErrorCode {
        let response = self.connection.ask(2, request).expect("an answer");
        if response.error_code != ErrorCode::None {
            return response.error_code;
        }
        self.epoch += 1;
        response.responses[0].partitions[0].error_code
    }
}

fn ack(first_offset: i64, last_offset: i64, ack: i8) -> AcknowledgementBatch {
    AcknowledgementBatch { first_offset, last_offset, acknowledge_types: vec![ack] }
}

fn acquired(data: &PartitionData) -> Vec<Acquired> {
    let batches = data.acquired_records.iter();
    batches.map(|batch| (batch.first_offset, batch.last_offset, batch.delivery_count)).collect()
}

/// The batches are whole and have the acquired records.
fn check_records(data: &PartitionData) {
    let bytes = data.records.to_bytes().expect("in memory");
    let batches: Vec<_> = Batches::new(&bytes).map(|batch| batch.expect("a batch").0).collect();
    let (Some(first), Some(last)) = (data.acquired_records.first(), data.acquired_records.last()) else {
        assert!(batches.is_empty(), "records without locks");
        return;
    };
    assert!(batches.first().is_some_and(|batch| batch.base_offset <= first.first_offset));
    assert_eq!(batches.last().map(|batch| batch.next_offset() > last.last_offset), Some(true));
}

#[test]
fn members_share_the_records_of_a_partition() {
    let broker = start_group(&MemStorage::new(), 0);
    (0..3).for_each(|_| produce(&broker, 10));
    let (mut a, mut b) = (Member::join(&broker, "a"), Member::join(&broker, "b"));
    a.records_max = 15;
    assert_eq!(a.fetch(), [(0, 19, 1)], "whole batches");
    assert_eq!(b.fetch(), [(20, 29, 1)]);
    assert_eq!(b.acknowledge(0, 9, ACCEPT), ErrorCode::InvalidRecordState);
    assert_eq!(b.acknowledge(20, 29, ACCEPT), ErrorCode::None);
    assert_eq!(a.acknowledge(0, 4, REJECT), ErrorCode::None);
    assert_eq!(a.fetch_with(vec![ack(5, 7, RELEASE)]), [(5, 7, 2)], "the members read what is released");
    assert_eq!(a.acknowledge_as(5, 8, vec![1, 1, 2, 1], a.epoch), ErrorCode::None);
    assert_eq!(b.fetch(), [(7, 7, 3)]);
}

#[test]
fn a_record_limit_is_exact() {
    let broker = start_group(&MemStorage::new(), 0);
    produce(&broker, 10);
    let mut a = Member::join(&broker, "a");
    (a.records_max, a.mode) = (3, 1);
    assert_eq!(a.fetch(), [(0, 2, 1)]);
    assert_eq!(a.fetch(), [(3, 5, 1)]);
    a.records_max = 100;
    assert_eq!(a.fetch(), [(6, 9, 1)]);
}

/// The time of a lock that has ended was never looked at, and the request took the serving thread's time until its own wait ended.
#[test]
fn a_fetch_without_room_for_bytes_does_not_wait() {
    let broker = start_group(&MemStorage::new(), 0);
    produce(&broker, 1);
    let mut member = Member::join(&broker, "a");
    member.wait_ms = 600_000;
    let first = member.request(Vec::new());
    assert!(!member.send(&first).responses.is_empty());
    let request = ShareFetchRequest { max_bytes: 0, ..member.request(Vec::new()) };
    let answer = member.send(&request);
    assert_eq!(answer.error_code, ErrorCode::None);
}

/// librdkafka's test 0180. One byte is room for a batch, none is not.
#[test]
fn a_fetch_without_room_for_bytes_has_no_records() {
    let broker = start_group(&MemStorage::new(), 0);
    produce(&broker, 3);
    let mut member = Member::join(&broker, "anna");
    for (max_bytes, partitions) in [(0, 0), (1, 1)] {
        let request = ShareFetchRequest { max_bytes, ..member.request(Vec::new()) };
        let response = member.send(&request);
        assert_eq!(response.error_code, ErrorCode::None);
        let acquired = response.responses.iter().flat_map(|topic| &topic.partitions);
        assert_eq!(
            acquired.filter(|data| !data.acquired_records.is_empty()).count(),
            partitions,
            "{max_bytes}"
        );
    }
}

#[test]
fn nothing_acknowledged_is_delivered_after_a_kill_and_nothing_else_is_lost() {
    let storage = MemStorage::new();
    let broker = start_group(&storage, -1);
    configure(&broker, "share.auto.offset.reset", "latest");
    produce(&broker, 5);
    let mut a = Member::join(&broker, "a");
    assert_eq!(a.fetch(), [], "the group begins with the next record");
    (0..3).for_each(|_| produce(&broker, 10));
    // The group has begun, although it has acknowledged nothing.
    let second = start(&storage.fork());
    let mut other = Member::join(&second, "a");
    assert_eq!(other.fetch(), [(5, 34, 1)]);
    second.stop();
    assert_eq!(a.fetch(), [(5, 34, 1)]);
    assert_eq!(a.acknowledge(5, 9, ACCEPT), ErrorCode::None);
    assert_eq!(a.acknowledge(20, 24, ACCEPT), ErrorCode::None);
    assert_eq!(a.acknowledge(12, 12, RELEASE), ErrorCode::None);
    let third = start(&storage.fork());
    let mut other = Member::join(&third, "b");
    assert_eq!(other.fetch(), [(10, 11, 1), (12, 12, 2), (13, 19, 1), (25, 34, 1)]);
    assert_eq!(other.acknowledge(10, 24, ACCEPT), ErrorCode::InvalidRecordState, "20 is done");
    for (first, last) in [(10, 19), (25, 34)] {
        assert_eq!(other.acknowledge(first, last, ACCEPT), ErrorCode::None);
    }
    assert_eq!(other.fetch(), []);
}

#[test]
fn a_lock_ends_and_is_renewed() {
    let broker = start_with(&MemStorage::new(), &[("group.share.record.lock.duration.ms", "1000")]);
    initialize(&broker, 0);
    produce(&broker, 10);
    let (mut a, mut b) = (Member::join(&broker, "a"), Member::join(&broker, "b"));
    assert_eq!(a.fetch(), [(0, 9, 1)]);
    b.wait_ms = WAIT_MS;
    let began = Instant::now();
    let waiting = thread::spawn(move || (b.fetch(), b));
    // Renewed until well after the end of the first lock.
    for _ in 0..6 {
        thread::sleep(Duration::from_millis(300));
        let mut request = a.request(vec![ack(0, 4, RENEW)]);
        request.is_renew_ack = true;
        (request.min_bytes, request.max_bytes, request.max_records) = (0, 0, 0);
        let response = a.send(&request);
        assert_eq!(response.error_code, ErrorCode::None);
        let data = &response.responses[0].partitions[0];
        assert_eq!((data.acknowledge_error_code, data.acquired_records.len()), (ErrorCode::None, 0));
        assert_eq!(response.acquisition_lock_timeout_ms, 1000);
    }
    let (acquired, mut b) = waiting.join().expect("it does not panic");
    assert_eq!(acquired, [(5, 9, 2)], "the fetch waited for the end of the lock");
    assert!(began.elapsed() < Duration::from_secs(10));
    assert_eq!(a.acknowledge(0, 4, ACCEPT), ErrorCode::None);
    assert_eq!(a.acknowledge(5, 9, ACCEPT), ErrorCode::InvalidRecordState);
    assert_eq!(
        b.acknowledge(5, 9, RENEW),
        ErrorCode::InvalidRequest,
        "the request does not announce renewals"
    );
    assert_eq!(configure(&broker, "share.renew.acknowledge.enable", "false"), ErrorCode::None);
    let mut request = b.request(vec![ack(5, 9, RENEW)]);
    request.is_renew_ack = true;
    assert_eq!(b.send(&request).error_code, ErrorCode::InvalidRequest, "it wants records, too");
}

#[test]
fn a_fetch_waits_for_records_and_for_bytes() {
    let broker = start_group(&MemStorage::new(), 0);
    let (mut a, mut b) = (Member::join(&broker, "a"), Member::join(&broker, "b"));
    assert_eq!(a.fetch(), []);
    a.wait_ms = WAIT_MS;
    let waiting = thread::spawn(move || (a.fetch(), a));
    thread::sleep(Duration::from_millis(100));
    produce(&broker, 10);
    let (acquired, mut a) = waiting.join().expect("it does not panic");
    assert_eq!(acquired, [(0, 9, 1)]);
    // A fetch waits for what another member releases.
    b.wait_ms = WAIT_MS;
    let waiting = thread::spawn(move || (b.fetch(), b));
    thread::sleep(Duration::from_millis(100));
    assert_eq!(a.acknowledge(3, 4, RELEASE), ErrorCode::None);
    let (acquired, mut b) = waiting.join().expect("it does not panic");
    assert_eq!(acquired, [(3, 4, 2)]);
    // Too few bytes are not acquired before the end of the wait.
    produce(&broker, 1);
    b.wait_ms = 300;
    let mut request = b.request(Vec::new());
    request.min_bytes = 1 << 16;
    let began = Instant::now();
    let response = b.send(&request);
    assert!(began.elapsed() >= Duration::from_millis(300));
    assert_eq!(acquired_in(&response), [(10, 10, 1)]);
}

pub(crate) fn acquired_in(response: &ShareFetchResponse) -> Vec<Acquired> {
    response.responses.iter().flat_map(|topic| topic.partitions.iter().flat_map(acquired)).collect()
}

#[test]
fn a_session_has_its_epochs_and_ends_with_its_connection() {
    let broker = start_group(&MemStorage::new(), 0);
    produce(&broker, 10);
    let (mut a, mut b) = (Member::join(&broker, "a"), Member::join(&broker, "b"));
    a.epoch = 3;
    let request = a.request(Vec::new());
    assert_eq!(a.send(&request).error_code, ErrorCode::ShareSessionNotFound);
    a.epoch = 0;
    let request = a.request(vec![ack(0, 1, ACCEPT)]);
    assert_eq!(a.send(&request).error_code, ErrorCode::InvalidRequest, "a new session has no locks");
    assert_eq!(a.fetch(), [(0, 9, 1)]);
    assert_eq!(a.acknowledge_as(0, 1, vec![ACCEPT], 7), ErrorCode::InvalidShareSessionEpoch);
    assert_eq!(a.acknowledge_as(0, 1, vec![ACCEPT], 0), ErrorCode::InvalidShareSessionEpoch);
    assert_eq!(a.acknowledge_as(0, 1, vec![ACCEPT], -1), ErrorCode::None, "the last request of the session");
    assert_eq!(a.acknowledge_as(2, 3, vec![ACCEPT], -1), ErrorCode::ShareSessionNotFound);
    assert_eq!(b.fetch(), [(2, 9, 2)], "the records of a session that ends are released");
    drop(b);
    let mut c = Member::join(&broker, "c");
    c.wait_ms = WAIT_MS;
    assert_eq!(c.fetch(), [(2, 9, 3)], "so are those of a connection");
    // A partition that the member forgets is not fetched.
    produce(&broker, 10);
    c.wait_ms = 0;
    let mut request = c.request(Vec::new());
    request.forgotten_topics_data = vec![ForgottenTopic { topic_id: c.topic, partitions: vec![0] }];
    assert_eq!(acquired_in(&c.send(&request)), []);
    let mut request = c.request(Vec::new());
    let partition = FetchPartition { partition_index: 0, ..Default::default() };
    request.topics = vec![FetchTopic { topic_id: c.topic, partitions: vec![partition] }];
    assert_eq!(acquired_in(&c.send(&request)), [(10, 19, 1)]);
}

#[test]
fn a_broker_has_a_limited_number_of_sessions() {
    let one = [("group.share.max.share.sessions", "1"), ("group.share.max.size", "1")];
    let broker = start_with(&MemStorage::new(), &one);
    initialize(&broker, 0);
    let (mut a, mut b) = (Member::join(&broker, "a"), Member::join(&broker, "b"));
    assert_eq!(a.fetch(), []);
    let request = b.request(Vec::new());
    assert_eq!(b.send(&request).error_code, ErrorCode::ShareSessionLimitReached);
}

/// A million made-up partitions were kept for as long as their connection was.
#[test]
fn a_partition_that_does_not_exist_is_answered_once() {
    let broker = start_group(&MemStorage::new(), 0);
    let mut a = Member::join(&broker, "a");
    let topic = |topic_id, indexes: &[i32]| FetchTopic {
        topic_id,
        partitions: indexes
            .iter()
            .map(|index| FetchPartition { partition_index: *index, ..Default::default() })
            .collect(),
    };
    let unknown = Uuid([7; 16]);
    let codes = |response: &ShareFetchResponse| {
        let partitions = response.responses.iter().flat_map(|topic| &topic.partitions);
        partitions.map(|data| (data.partition_index, data.error_code)).collect::<BTreeMap<_, _>>()
    };
    let mut request = a.request(Vec::new());
    request.topics = vec![topic(a.topic, &[0, -1, 0]), topic(unknown, &[5])];
    let missing = ErrorCode::UnknownTopicOrPartition;
    let expected = [(-1, missing), (0, ErrorCode::None), (5, ErrorCode::UnknownTopicId)];
    assert_eq!(codes(&a.send(&request)), BTreeMap::from(expected));
    produce(&broker, 10);
    assert_eq!(a.fetch(), [(0, 9, 1)], "only the partition that exists is in the session");
    let mut request = a.request(Vec::new());
    request.topics = vec![topic(unknown, &[6])];
    assert_eq!(codes(&a.send(&request)), BTreeMap::from([(6, ErrorCode::UnknownTopicId)]));
    let request = a.request(Vec::new());
    assert_eq!(codes(&a.send(&request)), BTreeMap::new());
}

#[test]
fn a_record_that_always_fails_is_given_up_and_its_neighbours_are_not() {
    let broker = start_group(&MemStorage::new(), 0);
    assert_eq!(configure(&broker, "share.delivery.count.limit", "4"), ErrorCode::None);
    produce(&broker, 8);
    let mut a = Member::join(&broker, "a");
    let mut done = Vec::new();
    let mut deliveries = [0; 8];
    for _ in 0..100 {
        let acquired = a.fetch();
        if acquired.is_empty() {
            break;
        }
        // The consumer fails at record 5, and with it all that it has received.
        let fails = acquired.iter().any(|(first, last, _)| (*first..=*last).contains(&5));
        for (first, last, count) in acquired {
            for offset in first..=last {
                deliveries[offset as usize] = count;
            }
            let ack = if fails { RELEASE } else { ACCEPT };
            assert_eq!(a.acknowledge(first, last, ack), ErrorCode::None);
            done.extend((first..=last).filter(|_| !fails));
        }
    }
    done.sort_unstable();
    assert_eq!(done, [0, 1, 2, 3, 4, 6, 7], "each but the poisoned record was processed");
    assert_eq!(deliveries[5], 4);
}

#[test]
fn committed_isolation_skips_aborted_records() {
    let broker = start_group(&MemStorage::new(), 0);
    broker.cluster().set_transactions_approved(true);
    let mut connection = Raw::connect(broker.addresses()[0]);
    let mut send = |producer_id: i64, sequence: i32, marker: Option<bool>| {
        let seal = Seal {
            producer_id,
            producer_epoch: 0,
            base_sequence: sequence,
            transactional: true,
            ..Seal::default()
        };
        let mut request = produce_request("orders", -1, &batch(&[b"x", b"y"], &seal));
        request.transactional_id = Some("t".into());
        let answer = connection.ask(11, &request).expect("an answer");
        assert_eq!(answer.responses[0].partition_responses[0].error_code, ErrorCode::None);
        if let Some(transaction_result) = marker {
            let topics = vec![WritableTxnMarkerTopic { name: "orders".into(), partition_indexes: vec![0] }];
            let marker = WritableTxnMarker { producer_id, transaction_result, topics, ..Default::default() };
            let request = WriteTxnMarkersRequest { markers: vec![marker] };
            connection.ask(1, &request).expect("an answer");
        }
    };
    // Records 0 and 1 are aborted at 2, and 3 and 4 committed at 5; 6 and 7 are open.
    send(1, 0, Some(false));
    send(2, 0, Some(true));
    send(3, 0, None);
    let mut a = Member::join(&broker, "a");
    assert_eq!(configure(&broker, "share.isolation.level", "read_committed"), ErrorCode::None);
    assert_eq!(a.fetch(), [(2, 5, 1)], "with the markers, as in Apache Kafka");
    assert_eq!(a.acknowledge_as(2, 5, vec![GAP, RELEASE, RELEASE, GAP], a.epoch), ErrorCode::None);
    assert_eq!(configure(&broker, "share.isolation.level", "read_uncommitted"), ErrorCode::None);
    assert_eq!(a.fetch(), [(3, 4, 2), (6, 7, 1)]);
}

#[test]
fn deleted_records_and_topics_are_forgotten() {
    let broker = start_group(&MemStorage::new(), 0);
    (0..2).for_each(|_| produce(&broker, 10));
    let mut a = Member::join(&broker, "a");
    a.records_max = 1;
    assert_eq!(a.fetch(), [(0, 9, 1)]);
    let partition = DeleteRecordsPartition { partition_index: 0, offset: 15 };
    let topic = DeleteRecordsTopic { name: "orders".into(), partitions: vec![partition] };
    let request = DeleteRecordsRequest { topics: vec![topic], timeout_ms: 10_000 };
    let answer = a.connection.ask(2, &request).expect("an answer");
    assert_eq!(answer.topics[0].partitions[0].error_code, ErrorCode::None);
    assert_eq!(a.fetch(), [(15, 19, 1)]);
    assert_eq!(a.acknowledge(0, 9, ACCEPT), ErrorCode::None, "nothing is left to do");
    let state = DeleteTopicState { name: Some("orders".into()), ..Default::default() };
    let request = DeleteTopicsRequest { topics: vec![state], timeout_ms: 10_000, ..Default::default() };
    let answer = a.connection.ask(6, &request).expect("an answer");
    assert_eq!(answer.responses[0].error_code, ErrorCode::None);
    a.wait_ms = WAIT_MS;
    let request = a.request(Vec::new());
    let response = a.send(&request);
    assert_eq!(response.responses[0].partitions[0].error_code, ErrorCode::UnknownTopicId);
}

#[test]
fn a_new_leader_reads_the_state_again() {
    let storage = MemStorage::new();
    let builder = Broker::builder().storage(Arc::new(storage)).topic("orders", 2).nodes(2);
    let broker = builder.spawn().expect("a broker");
    initialize(&broker, 0);
    produce(&broker, 10);
    let mut a = Member::join(&broker, "a");
    assert_eq!(a.fetch(), [(0, 9, 1)]);
    assert_eq!(a.acknowledge(0, 4, ACCEPT), ErrorCode::None);
    assert!(broker.cluster().set_leader("orders", 0, 2));
    assert_eq!(a.acknowledge(5, 9, ACCEPT), ErrorCode::NotLeaderOrFollower);
    let request = a.request(Vec::new());
    let response = a.send(&request);
    let data = &response.responses[0].partitions[0];
    assert_eq!((data.error_code, data.current_leader.leader_id), (ErrorCode::NotLeaderOrFollower, 2));
    assert_eq!(i32::from(broker.addresses()[1].port()), response.node_endpoints[0].port);
    let mut b = Member::join(&broker, "b");
    b.connection = Raw::connect(broker.addresses()[1]);
    assert_eq!(b.fetch(), [(5, 9, 1)], "locks do not survive their leader");
}

#[test]
fn malformed_acknowledgements_are_refused() {
    let broker = start_group(&MemStorage::new(), 0);
    produce(&broker, 10);
    let mut a = Member::join(&broker, "a");
    assert_eq!(a.fetch(), [(0, 9, 1)]);
    for (first, last, types) in [
        (0, 3, vec![]),
        (0, 3, vec![1, 1]),
        (3, 0, vec![1]),
        (0, 3, vec![5]),
        (0, 3, vec![-1]),
        (-1, 3, vec![1]),
        (0, i64::MAX, vec![1]),
        (5, 10, vec![1]),
    ] {
        assert_eq!(
            a.acknowledge_as(first, last, types.clone(), a.epoch),
            ErrorCode::InvalidRequest,
            "{types:?}"
        );
    }
    let batch = |first, last| AckOnly { first_offset: first, last_offset: last, acknowledge_types: vec![1] };
    let partition =
        AcknowledgePartition { partition_index: 0, acknowledgement_batches: vec![batch(0, 3), batch(3, 5)] };
    let request = ShareAcknowledgeRequest {
        group_id: Some(GROUP.into()),
        member_id: Some("a".into()),
        share_session_epoch: a.epoch,
        is_renew_ack: false,
        topics: vec![AcknowledgeTopic { topic_id: a.topic, partitions: vec![partition] }],
    };
    assert_eq!(a.send_acknowledgement(&request), ErrorCode::InvalidRequest, "they overlap");
    assert_eq!(a.acknowledge(0, 9, ACCEPT), ErrorCode::None, "nothing was acknowledged before");
    for (name, value) in [
        ("share.auto.offset.reset", "never"),
        ("share.isolation.level", "some"),
        ("share.record.lock.duration.ms", "0"),
        ("share.delivery.count.limit", "1"),
        ("share.partition.max.record.locks", "9"),
        ("share.renew.acknowledge.enable", "perhaps"),
    ] {
        assert_eq!(configure(&broker, name, value), ErrorCode::InvalidConfig, "{name}");
    }
}

/// The value of a metric.
pub(crate) fn metric(broker: &BrokerThread, series: &str) -> Option<u64> {
    let text = broker.cluster().metrics_text(100);
    text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
}

#[test]
fn share_groups_and_what_their_members_do_are_in_the_metrics() {
    let broker = start_with(
        &MemStorage::new(),
        &[("group.share.record.lock.duration.ms", "1000"), ("group.share.delivery.count.limit", "2")],
    );
    initialize(&broker, 0);
    produce(&broker, 10);
    let mut a = Member::join(&broker, "a");
    assert_eq!(a.fetch(), [(0, 9, 1)]);
    let in_flight = "ottla_share_in_flight_records{group=\"billing\",topic=\"orders\",partition=\"0\"}";
    assert_eq!(metric(&broker, in_flight), Some(10));
    for (first, last, ack) in [(0, 3, ACCEPT), (4, 5, REJECT), (6, 6, RELEASE)] {
        assert_eq!(a.acknowledge(first, last, ack), ErrorCode::None);
    }
    let acknowledged =
        |kind: &str| metric(&broker, &format!("ottla_share_acknowledged_records_total{{type=\"{kind}\"}}"));
    assert_eq!(metric(&broker, in_flight), Some(4), "the window begins at 6");
    assert_eq!(a.fetch(), [(6, 6, 2)]);
    assert_eq!(a.acknowledge(6, 6, ACCEPT), ErrorCode::None);
    let kinds = ["accept", "release", "reject", "renew", "gap"];
    assert_eq!(kinds.map(acknowledged), [Some(5), Some(1), Some(2), Some(0), Some(0)]);
    // The locks of 7 to 9 end together, and their second delivery is the last.
    a.wait_ms = WAIT_MS;
    let mut again = a.fetch();
    while again.is_empty() {
        again = a.fetch();
    }
    assert_eq!(again, [(7, 9, 2)]);
    assert_eq!(metric(&broker, "ottla_share_lock_timeouts_total"), Some(3));
    assert_eq!(metric(&broker, "ottla_share_out_of_deliveries_total"), Some(0));
    assert_eq!(a.acknowledge(7, 9, RELEASE), ErrorCode::None);
    assert_eq!(metric(&broker, "ottla_share_out_of_deliveries_total"), Some(3));
    assert_eq!(metric(&broker, in_flight), Some(0));
}

/// Acknowledgements below the stored start were not stored, and the next load skipped records.
#[test]
fn a_share_group_ahead_of_the_log_stores_what_is_acknowledged() {
    let storage = MemStorage::new();
    let broker = start_group(&storage, 1_000);
    let mut a = Member::join(&broker, "a");
    assert_eq!(a.fetch(), [], "the log is empty");
    produce(&broker, 3);
    assert_eq!(a.fetch(), [(0, 2, 1)]);
    assert_eq!(a.acknowledge(0, 0, ACCEPT), ErrorCode::None);
    let second = start(&storage.fork());
    let mut other = Member::join(&second, "b");
    assert_eq!(other.fetch(), [(1, 2, 1)]);
}

/// 2,000 sessions with names of 32 KB kept 65 MB. Kafka counts the UTF-16 units of member ids.
#[test]
fn groups_and_members_with_very_long_names_have_no_share_sessions() {
    let broker = start(&MemStorage::new());
    let mut member = Member::join(&broker, "a");
    let mut code_of = |group: usize, id: &str| {
        let (group_id, member_id) = (Some("g".repeat(group)), Some(id.to_owned()));
        let request = ShareFetchRequest { group_id, member_id, ..member.request(Vec::new()) };
        member.connection.ask(2, &request).expect("an answer").error_code
    };
    assert_eq!(code_of(256, "m"), ErrorCode::InvalidRequest);
    for too_long in ["m".repeat(37), "\u{1f980}".repeat(19)] {
        assert_eq!(code_of(1, &too_long), ErrorCode::InvalidRequest, "{too_long}");
    }
    for long in ["m".repeat(36), "\u{1f980}".repeat(18)] {
        assert_eq!(code_of(255, &long), ErrorCode::None, "{long}");
    }
}
