//! The memory that hostile clients can make a broker use is limited by `memory.max.bytes`, and honest clients are served
//! meanwhile. Each attack runs alone: the tests of this file measure their own process.

#![allow(clippy::disallowed_methods, reason = "a test is a shell")]

mod common;

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use common::memory::{Growth, alone};
use common::{PATIENCE, Raw, batch, framed, produce_request};
use ottla_broker::{Broker, BrokerThread, Durability, Listener, SaslMechanism, SaslSettings};
use ottla_client::{Config, Producer, Record};
use ottla_protocol::messages::add_partitions_to_txn::{AddPartitionsToTxnRequest, AddPartitionsToTxnTopic};
use ottla_protocol::messages::consumer_group_heartbeat::{self, ConsumerGroupHeartbeatRequest};
use ottla_protocol::messages::describe_configs::{DescribeConfigsRequest, DescribeConfigsResource};
use ottla_protocol::messages::describe_producers::{DescribeProducersRequest, TopicRequest};
use ottla_protocol::messages::elect_leaders::{self, ElectLeadersRequest};
use ottla_protocol::messages::fetch::{FetchPartition, FetchRequest, FetchTopic};
use ottla_protocol::messages::join_group::{JoinGroupRequest, JoinGroupRequestProtocol};
use ottla_protocol::messages::leave_group::LeaveGroupRequest;
use ottla_protocol::messages::list_offsets::{ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic};
use ottla_protocol::messages::metadata::{MetadataRequest, MetadataRequestTopic};
use ottla_protocol::messages::offset_commit::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use ottla_protocol::messages::offset_delete::{
    OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic,
};
use ottla_protocol::messages::offset_fetch::{
    OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics,
};
use ottla_protocol::messages::produce::{PartitionProduceData, ProduceRequest, TopicProduceData};
use ottla_protocol::messages::sasl_authenticate::SaslAuthenticateRequest;
use ottla_protocol::messages::sasl_handshake::SaslHandshakeRequest;
use ottla_protocol::{ErrorCode, Uuid};
use ottla_wire::{Chain, Seal};

/// The budget of the brokers here.
const BUDGET_MIB: u64 = 16;
/// Memory above the budget, for buffers of connections, of the requests in progress and of this test.
const ABOVE_MIB: u64 = 32;

fn broker(dir: &Path) -> BrokerThread {
    broker_with(dir, BUDGET_MIB)
}

fn broker_with(dir: &Path, budget_mib: u64) -> BrokerThread {
    let broker = Broker::builder().data_dir(dir).topic("orders", 1);
    broker
        .configure(|config| {
            config.durability = Durability::Os;
            config.memory_bytes_max = (budget_mib << 20) as usize;
            config.frame_timeout = Duration::from_secs(2);
        })
        .spawn()
        .expect("a broker")
}

/// Sends as much as the peer and the kernel take within this time.
fn send_what_is_taken(address: SocketAddr, bytes: &[u8], within: Duration) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("the broker listens");
    stream.set_nonblocking(true).expect("a socket");
    let (mut at, until) = (0, Instant::now() + within);
    while at < bytes.len() && Instant::now() < until {
        match stream.write(&bytes[at..]) {
            Ok(sent) => at += sent,
            Err(_) => std::thread::park_timeout(Duration::from_millis(1)),
        }
    }
    stream
}

/// A produce request for partitions of the topics.
fn produced(parts: &[(&str, i32, &[u8])]) -> Vec<u8> {
    let topic_data = parts.iter().map(|(topic, index, records)| {
        let records = Some(Chain::from(bytes::Bytes::copy_from_slice(records)));
        let partition_data = vec![PartitionProduceData { index: *index, records }];
        TopicProduceData { name: (*topic).into(), partition_data, ..Default::default() }
    });
    let topic_data = topic_data.collect();
    framed(12, &ProduceRequest { acks: -1, timeout_ms: 10_000, topic_data, ..Default::default() })
}

/// Each partition kept its last 8 MiB, which nothing but its own next records took away: a thousand partitions had 8 GiB.
#[test]
fn partitions_share_the_memory_for_their_last_records() {
    const PARTITIONS: i32 = 40;
    const REQUESTS: usize = 64;
    let _alone = alone();
    let dir = tempfile::tempdir().expect("a directory");
    let builder = Broker::builder().data_dir(dir.path()).topic("orders", PARTITIONS);
    let configured = builder.configure(|config| {
        config.durability = Durability::Os;
        config.memory_bytes_max = (BUDGET_MIB << 20) as usize;
    });
    let broker = configured.spawn().expect("a broker");
    let mut connection = Raw::connect(broker.addresses()[0]);
    let records = batch(&[&vec![b'x'; 64 << 10]], &Seal::default());
    let growth = Growth::start();
    for partition in 0..PARTITIONS {
        let request = produced(&[("orders", partition, &records)]);
        for _ in 0..REQUESTS {
            connection.send(&request);
            assert!(connection.answer_to::<ProduceRequest>(12).is_some());
        }
    }
    growth.assert_at_most(BUDGET_MIB + ABOVE_MIB, "the last records of many partitions");
}

/// A small batch of a large request kept the request in memory, and counted its own bytes only.
#[test]
fn small_parts_of_large_requests_keep_no_more_than_the_budget() {
    let _alone = alone();
    let dir = tempfile::tempdir().expect("a directory");
    let broker = broker(dir.path());
    let mut connection = Raw::connect(broker.addresses()[0]);
    let small = batch(&[&vec![b'x'; 5000]], &Seal::default());
    let large = batch(&[&vec![b'x'; 1 << 20]], &Seal::default());
    let request = produced(&[("orders", 0, &small), ("no-such-topic", 0, &large)]);
    let growth = Growth::start();
    for _ in 0..150 {
        connection.send(&request);
        let answer = connection.answer_to::<ProduceRequest>(12).expect("an answer");
        assert_eq!(answer.responses[0].partition_responses[0].error_code, ErrorCode::None);
    }
    growth.assert_at_most(BUDGET_MIB + ABOVE_MIB, "small parts of large requests");
}

/// 200 connections with unfinished frames of 5 MB held 929 MB.
#[test]
fn unfinished_frames_wait_for_memory_and_lose_it_at_their_deadline() {
    let _alone = alone();
    let dir = tempfile::tempdir().expect("a directory");
    let broker = broker(dir.path());
    let address = broker.addresses()[0];
    let mut unfinished = vec![0; 4 << 20];
    unfinished[..4].copy_from_slice(&(5_i32 << 20).to_be_bytes());
    // ApiVersions 0: whatever follows is not looked at before the frame is complete.
    unfinished[5] = 18;
    let mut bystander = Raw::connect(address);
    let growth = Growth::start();
    let held: Vec<TcpStream> =
        (0..40).map(|_| send_what_is_taken(address, &unfinished, Duration::from_millis(20))).collect();
    assert!(bystander.is_served(), "small requests are not charged");
    growth.assert_at_most(BUDGET_MIB + ABOVE_MIB, "40 unfinished frames");
    // A large request waits for the deadlines of those that hold the memory, and no longer.
    let producer = Producer::new(Config::new(broker.bootstrap_servers())).expect("a producer");
    let value = vec![b'x'; 500_000];
    let delivery = producer.enqueue_blocking(Record::to("orders").value(&value)).expect("taken");
    producer.flush_blocking(PATIENCE * 4).expect("written");
    assert!(matches!(delivery.try_offset(), Some(Ok(_))));
    drop(held);
}

/// A request of which the first bytes have arrived. It has the part of the six MiB for requests that large ones may have.
fn hold_memory(address: SocketAddr) -> TcpStream {
    let mut holder = TcpStream::connect(address).expect("the broker listens");
    holder.write_all(&[&(5_i32 << 20).to_be_bytes()[..], &[0, 0]].concat()).expect("sent");
    holder.set_nonblocking(true).expect("a socket");
    holder
}

/// Waits until so many connections wait for memory.
fn await_waiting(broker: &BrokerThread, count: usize) {
    await_metric(broker, &format!("ottla_memory_waiting{{part=\"requests\"}} {count}"));
}

/// Waits until requests have so many bytes of memory.
fn await_used(broker: &BrokerThread, bytes: usize) {
    await_metric(broker, &format!("ottla_memory_used_bytes{{part=\"requests\"}} {bytes}"));
}

fn await_metric(broker: &BrokerThread, line: &str) {
    let began = Instant::now();
    while !broker.cluster().metrics_text(10).lines().any(|text| text == line) {
        assert!(began.elapsed() < PATIENCE, "{line}");
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

/// It kept its place in the queue, and what it had received.
#[cfg(target_os = "linux")]
#[test]
fn a_client_that_has_left_does_not_wait_for_memory() {
    let _alone = alone();
    let dir = tempfile::tempdir().expect("a directory");
    let broker = broker(dir.path());
    let mut holder = hold_memory(broker.addresses()[0]);
    let mut other = TcpStream::connect(broker.addresses()[0]).expect("the broker listens");
    other.write_all(&[&(3_i32 << 20).to_be_bytes()[..], &[0, 0]].concat()).expect("sent");
    await_waiting(&broker, 1);
    drop(other);
    await_waiting(&broker, 0);
    let read = holder.read(&mut [0]);
    assert_eq!(read.expect_err("it has not lost its memory").kind(), ErrorKind::WouldBlock);
}

/// A producer with `acks=0` may close when it has sent its records.
#[test]
fn a_whole_request_of_a_client_that_has_left_is_served_when_there_is_memory() {
    let _alone = alone();
    let dir = tempfile::tempdir().expect("a directory");
    let broker = broker(dir.path());
    let holder = hold_memory(broker.addresses()[0]);
    // The quarter of small requests is held as well.
    let small = [&(384_i32 << 10).to_be_bytes()[..], &[0, 0]].concat();
    let others: Vec<_> =
        (0..4).map(|_| send_what_is_taken(broker.addresses()[0], &small, PATIENCE)).collect();
    await_used(&broker, 6 << 20);
    let records = batch(&[&vec![b'x'; 40_000]], &Seal::default());
    let mut other = TcpStream::connect(broker.addresses()[0]).expect("the broker listens");
    other.write_all(&framed(9, &produce_request("orders", 0, &records))).expect("sent");
    await_waiting(&broker, 1);
    drop(other);
    drop((holder, others));
    let listed = ListOffsetsPartition { timestamp: -1, ..Default::default() };
    let listed = ListOffsetsTopic { name: "orders".into(), partitions: vec![listed] };
    let request = ListOffsetsRequest { replica_id: -1, topics: vec![listed], ..Default::default() };
    let mut bystander = Raw::connect(broker.addresses()[0]);
    let began = Instant::now();
    while bystander.ask(7, &request).expect("an answer").topics[0].partitions[0].offset == 0 {
        assert!(began.elapsed() < PATIENCE, "the record is lost");
    }
}

/// A response has five times the size of its request, and a connection starts no more than its share of requests.
///
/// Each client has about 40 KiB, and the allocator as much again in the gaps between them. With all requests of its pipeline, it would
/// have 200 KiB of responses.
#[test]
fn finished_produce_responses_that_are_not_read_are_limited() {
    const CLIENTS: usize = 300;
    let _alone = alone();
    let dir = tempfile::tempdir().expect("a directory");
    let broker = broker(dir.path());
    let partition_data = (0..400).map(|index| PartitionProduceData { index, records: None }).collect();
    let topic = TopicProduceData { name: "x".into(), partition_data, ..Default::default() };
    let request =
        ProduceRequest { acks: 1, timeout_ms: 1_000, topic_data: vec![topic], ..Default::default() };
    let request = framed(9, &request);
    let growth = Growth::start();
    let connect = |_| send_what_is_taken(broker.addresses()[0], &[], Duration::ZERO);
    let mut held: Vec<(TcpStream, usize)> = (0..CLIENTS).map(connect).map(|stream| (stream, 0)).collect();
    let mut last_taken = Instant::now();
    while last_taken.elapsed() < Duration::from_millis(500) {
        for (stream, at) in &mut held {
            if let Ok(sent) = stream.write(&request[*at..]) {
                *at = (*at + sent) % request.len();
                last_taken = Instant::now();
            }
        }
    }
    growth.assert_at_most(BUDGET_MIB + ABOVE_MIB, "300 clients that do not read their responses");
}

/// A request of 1.4 MB used 1.9 GB, which stayed in its fetch session.
#[test]
fn a_long_name_with_many_partitions_costs_its_size_once() {
    let _alone = alone();
    let dir = tempfile::tempdir().expect("a directory");
    // Of 16 MiB, a request may use 4 MiB: too little for so many partitions.
    let broker = broker_with(dir.path(), 256);
    let partition = |partition| FetchPartition { partition, ..Default::default() };
    let topic = FetchTopic {
        topic: "x".repeat(32_000),
        partitions: (0..60_000).map(partition).collect(),
        ..Default::default()
    };
    let request = framed(12, &FetchRequest { topics: vec![topic], ..Default::default() });
    let growth = Growth::start();
    let mut held = Vec::new();
    for _ in 0..10 {
        let mut connection = Raw::connect(broker.addresses()[0]);
        connection.send(&request);
        let common::Heard::Answer(answer) = connection.hear() else { panic!("an answer") };
        assert!(answer.len() < 6 << 20, "{} bytes", answer.len());
        held.push(connection);
    }
    growth.assert_at_most(BUDGET_MIB + ABOVE_MIB, "10 requests with 60,000 partitions");
}

/// Eight clients that do not read their sockets reached 3.6 GB: whole segments were read from the disk at once.
#[test]
fn cold_records_are_read_in_parts_for_clients_that_do_not_read() {
    let _alone = alone();
    let dir = tempfile::tempdir().expect("a directory");
    let broker = broker(dir.path());
    let producer = Producer::new(Config::new(broker.bootstrap_servers())).expect("a producer");
    let value = vec![b'x'; 100_000];
    for _ in 0..600 {
        producer.send_unobserved_blocking(Record::to("orders").value(&value)).expect("taken");
    }
    producer.flush_blocking(PATIENCE).expect("written");
    drop(producer);
    forget_cached(&dir.path().join("orders-0"));
    let growth = Growth::start();
    let partition =
        FetchPartition { partition_max_bytes: i32::MAX, current_leader_epoch: -1, ..Default::default() };
    let topic = FetchTopic { topic: "orders".into(), partitions: vec![partition], ..Default::default() };
    let request = FetchRequest { max_bytes: i32::MAX, topics: vec![topic], ..Default::default() };
    let held: Vec<Raw> = (0..8)
        .map(|_| {
            let mut connection = Raw::connect(broker.addresses()[0]);
            connection.send(&framed(12, &request));
            connection
        })
        .collect();
    let mut bystander = Raw::connect(broker.addresses()[0]);
    let until = Instant::now() + Duration::from_secs(2);
    while Instant::now() < until {
        assert!(bystander.is_served());
        std::thread::park_timeout(Duration::from_millis(10));
    }
    growth.assert_at_most(BUDGET_MIB + ABOVE_MIB, "8 clients that do not read");
    // One of them reads at last, and gets what fits into a response.
    let mut last = held.into_iter().next().expect("one of eight");
    let common::Heard::Answer(answer) = last.hear() else { panic!("an answer") };
    let response = ottla_protocol::frame::decode_response::<FetchRequest>(answer, 12).expect("a response").1;
    let data = &response.responses[0].partitions[0];
    assert_eq!(data.error_code, ErrorCode::None);
    let bytes = data.records.as_ref().map_or(0, Chain::len);
    assert!((50 << 20..=55 << 20).contains(&bytes), "{bytes} bytes of fetch.max.bytes");
}

/// Removes a partition's files from the page cache.
fn forget_cached(dir: &Path) {
    for entry in std::fs::read_dir(dir).expect("a partition") {
        let file = File::open(entry.expect("an entry").path()).expect("a file");
        file.sync_all().expect("on disk");
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("forgotten");
    }
}

/// Two requests at once took half of the budget: a description has thousands of times the size of its resource.
#[test]
fn descriptions_of_configurations_wait_for_memory() {
    let _alone = alone();
    let dir = tempfile::tempdir().expect("a directory");
    let builder = Broker::builder().data_dir(dir.path()).topic("orders", 1);
    let broker = builder.configure(|config| config.memory_bytes_max = (BUDGET_MIB << 20) as usize);
    let broker = broker.spawn().expect("a broker");
    // An unfinished request that has four of the four and a half MiB that large requests share.
    let mut unfinished = vec![0; 64];
    unfinished[..4].copy_from_slice(&((4_i32 << 20) / 30).to_be_bytes());
    unfinished[5] = 18;
    let mut holder = TcpStream::connect(broker.addresses()[0]).expect("the broker listens");
    holder.write_all(&unfinished).expect("sent");
    let used = || {
        let text = broker.cluster().metrics_text(10);
        let name = "ottla_memory_used_bytes{part=\"requests\"} ";
        let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("a line for it");
        line.parse::<u64>().expect("a number")
    };
    let began = Instant::now();
    while used() < 4 << 20 {
        assert!(began.elapsed() < PATIENCE, "no memory is held");
        std::thread::park_timeout(Duration::from_millis(1));
    }
    let resource = DescribeConfigsResource {
        resource_type: 2,
        resource_name: "orders".into(),
        ..DescribeConfigsResource::default()
    };
    let request = DescribeConfigsRequest {
        resources: vec![resource; 100],
        include_synonyms: true,
        include_documentation: true,
    };
    let described = Raw::connect(broker.addresses()[0]).ask(4, &request).expect("an answer");
    assert!(described.results.iter().all(|result| result.error_code == ErrorCode::None));
    // The request was answered because the other one had lost its memory.
    holder.set_read_timeout(Some(Duration::from_millis(500))).expect("a socket");
    let ended = holder.read(&mut [0; 1]);
    let is_open =
        ended.is_err_and(|error| matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut));
    assert!(!is_open, "the description did not wait");
}

/// 20 members with 8 MB of metadata each held 170 MB, also after they had left.
#[test]
fn the_metadata_of_group_members_is_limited_and_freed_when_they_leave() {
    let _alone = alone();
    let dir = tempfile::tempdir().expect("a directory");
    let broker = broker(dir.path());
    // An eighth of the budget is for groups: 2 MiB. The groups themselves need some of it.
    let nearly_all = (2 << 20) - 10_000;
    let join = |group: &str, bytes: usize| {
        let protocol = JoinGroupRequestProtocol { name: "range".into(), metadata: vec![1; bytes].into() };
        let request = JoinGroupRequest {
            group_id: group.into(),
            session_timeout_ms: 60_000,
            protocol_type: "other".into(),
            protocols: vec![protocol],
            ..Default::default()
        };
        Raw::connect(broker.addresses()[0]).ask(2, &request).expect("an answer")
    };
    let first = join("first", 1 << 20);
    assert_eq!(first.error_code, ErrorCode::None);
    assert_eq!(join("second", nearly_all).error_code, ErrorCode::GroupMaxSizeReached);
    let request =
        LeaveGroupRequest { group_id: "first".into(), member_id: first.member_id, ..Default::default() };
    let left = Raw::connect(broker.addresses()[0]).ask(1, &request).expect("an answer");
    assert_eq!(left.error_code, ErrorCode::None);
    assert_eq!(join("second", nearly_all).error_code, ErrorCode::None, "the first member's memory is free");
}

/// Commits with 4 KB of metadata, each in a group of its own, were kept for 7 days without a limit.
#[test]
fn committed_offsets_are_limited_and_freed_when_they_are_deleted() {
    let _alone = alone();
    let dir = tempfile::tempdir().expect("a directory");
    let broker = broker(dir.path());
    let mut connection = Raw::connect(broker.addresses()[0]);
    let mut commit = |group: &str| {
        let partition = OffsetCommitRequestPartition {
            committed_offset: 1,
            committed_metadata: Some("x".repeat(4096)),
            ..Default::default()
        };
        let topic = OffsetCommitRequestTopic {
            name: "orders".into(),
            partitions: vec![partition],
            ..Default::default()
        };
        let request =
            OffsetCommitRequest { group_id: group.into(), topics: vec![topic], ..Default::default() };
        let until = Instant::now() + PATIENCE;
        loop {
            let answer = connection.ask(7, &request).expect("an answer");
            match answer.topics[0].partitions[0].error_code {
                // The topic of the offsets is being created.
                ErrorCode::CoordinatorNotAvailable | ErrorCode::NotCoordinator if Instant::now() < until => {}
                code => return code,
            }
        }
    };
    // An eighth of the budget is 2 MiB: 4 KB of metadata for each of about 300 groups.
    let growth = Growth::start();
    let codes: Vec<_> = (0..1_000).map(|group| commit(&format!("group-{group}"))).collect();
    let accepted = codes.iter().filter(|code| **code == ErrorCode::None).count();
    let refused = codes.iter().filter(|code| **code == ErrorCode::PolicyViolation).count();
    assert!((200..510).contains(&accepted), "{accepted} groups");
    assert_eq!(accepted + refused, 1_000, "{:?}", codes.last());
    growth.assert_at_most(BUDGET_MIB + ABOVE_MIB, "offsets of 1,000 groups");
    // A group that is known may still commit.
    assert_eq!(commit("group-0"), ErrorCode::None);
    let partition = OffsetDeleteRequestPartition::default();
    let topic = OffsetDeleteRequestTopic { name: "orders".into(), partitions: vec![partition] };
    let request = OffsetDeleteRequest { group_id: "group-0".into(), topics: vec![topic] };
    let deleted = Raw::connect(broker.addresses()[0]).ask(0, &request).expect("an answer");
    assert_eq!((deleted.error_code, deleted.topics[0].partitions[0].error_code), Default::default());
    assert_eq!(commit("group-new"), ErrorCode::None, "the memory of the deleted offset is free");
}

/// Each request without a member id left a group and an id for up to the session timeout.
#[test]
fn groups_and_ids_of_members_that_do_not_come_back_are_limited() {
    let _alone = alone();
    let dir = tempfile::tempdir().expect("a directory");
    let broker = broker(dir.path());
    let mut connection = Raw::connect(broker.addresses()[0]);
    let mut join = |group: String| {
        let protocol = JoinGroupRequestProtocol { name: "range".into(), ..Default::default() };
        let request = JoinGroupRequest {
            group_id: group,
            session_timeout_ms: 60_000,
            protocol_type: "consumer".into(),
            protocols: vec![protocol],
            ..Default::default()
        };
        connection.ask(5, &request).expect("an answer").error_code
    };
    let name = "x".repeat(30_000);
    let codes: Vec<_> = (0..200).map(|group| join(format!("{group}-{name}"))).collect();
    let expected = codes.iter().filter(|code| **code == ErrorCode::MemberIdRequired).count();
    let refused = codes.iter().filter(|code| **code == ErrorCode::GroupMaxSizeReached).count();
    assert!((30..70).contains(&expected), "{expected} groups of 30 KB within 2 MiB");
    assert_eq!(expected + refused, 200, "{:?}", codes.last());
}

/// A topic name, or a group, with this many indexes of partitions in several requests. All of them are distinct.
fn requests_of_indexes(count: i32) -> Vec<(&'static str, Vec<u8>)> {
    let (topic, indexes) = (String::from("orders"), || (1..=count).collect::<Vec<i32>>());
    let described = TopicRequest { name: topic.clone(), partition_indexes: indexes() };
    let elected = elect_leaders::TopicPartitions { topic: topic.clone(), partitions: indexes() };
    let fetched =
        OffsetFetchRequestTopics { name: topic.clone(), partition_indexes: indexes(), ..Default::default() };
    let group = OffsetFetchRequestGroup {
        group_id: "billing".into(),
        topics: Some(vec![fetched]),
        member_epoch: -1,
        ..Default::default()
    };
    let added = AddPartitionsToTxnTopic { name: topic.clone(), partitions: indexes() };
    let owned = consumer_group_heartbeat::TopicPartitions { topic_id: Uuid([7; 16]), partitions: indexes() };
    let deleted = indexes().into_iter();
    let deleted = deleted.map(|partition_index| OffsetDeleteRequestPartition { partition_index });
    let deleted = OffsetDeleteRequestTopic { name: topic, partitions: deleted.collect() };
    vec![
        ("DescribeProducers", framed(0, &DescribeProducersRequest { topics: vec![described] })),
        (
            "ElectLeaders",
            framed(2, &ElectLeadersRequest { topic_partitions: Some(vec![elected]), ..Default::default() }),
        ),
        ("OffsetFetch", framed(8, &OffsetFetchRequest { groups: vec![group], ..Default::default() })),
        (
            "AddPartitionsToTxn",
            framed(3, &AddPartitionsToTxnRequest { v3_and_below_topics: vec![added], ..Default::default() }),
        ),
        (
            "ConsumerGroupHeartbeat",
            framed(
                1,
                &ConsumerGroupHeartbeatRequest {
                    group_id: "billing".into(),
                    member_id: "member".into(),
                    topic_partitions: Some(vec![owned]),
                    ..Default::default()
                },
            ),
        ),
        (
            "OffsetDelete",
            framed(0, &OffsetDeleteRequest { group_id: "billing".into(), topics: vec![deleted] }),
        ),
    ]
}

/// An index has 4 bytes in a request, and its result 140: 16 million of them made 2.2 GB, of a budget of 256 MiB.
#[test]
fn requests_of_very_many_indexes_are_refused_and_those_of_8_000_are_answered() {
    let _alone = alone();
    let dir = tempfile::tempdir().expect("a directory");
    let broker = broker(dir.path());
    let few = requests_of_indexes(8_000);
    let many = requests_of_indexes(2_500_000);
    let mut bystander = Raw::connect(broker.addresses()[0]);
    let growth = Growth::start();
    for (what, request) in &many {
        let mut connection = Raw::connect(broker.addresses()[0]);
        connection.send(request);
        assert!(matches!(connection.hear(), common::Heard::Closed), "{what}");
        assert!(bystander.is_served(), "after {what}");
    }
    growth.assert_at_most(BUDGET_MIB + ABOVE_MIB, "requests of 10 MB of indexes");
    for (what, request) in &few {
        let mut connection = Raw::connect(broker.addresses()[0]);
        connection.send(request);
        assert!(matches!(connection.hear(), common::Heard::Answer(_)), "{what}");
    }
    // The default budget has room for the partitions of all topics in one request.
    let dir = tempfile::tempdir().expect("a directory");
    let broker = broker_with(dir.path(), 256);
    for (what, request) in requests_of_indexes(100_000) {
        let mut connection = Raw::connect(broker.addresses()[0]);
        connection.send(&request);
        assert!(matches!(connection.hear(), common::Heard::Answer(_)), "{what}");
    }
}

/// Each name was copied to the decoded request, to its response and to maps, beside the frame.
#[test]
fn a_request_of_very_many_bytes_of_names_is_refused() {
    let _alone = alone();
    let dir = tempfile::tempdir().expect("a directory");
    let broker = broker(dir.path());
    let topic = |number| MetadataRequestTopic {
        name: Some(format!("{number}-{}", "x".repeat(30_000))),
        ..Default::default()
    };
    let request = |count| {
        framed(9, &MetadataRequest { topics: Some((0..count).map(topic).collect()), ..Default::default() })
    };
    let (few, many) = (request(30), request(400));
    let growth = Growth::start();
    let mut connection = Raw::connect(broker.addresses()[0]);
    connection.send(&few);
    assert!(matches!(connection.hear(), common::Heard::Answer(_)));
    connection.send(&many);
    assert!(matches!(connection.hear(), common::Heard::Closed));
    growth.assert_at_most(BUDGET_MIB + ABOVE_MIB, "a request with 12 MB of names");
}

/// 300 requests of 45 bytes held the memory of 1,000 partitions each, for as long as their clients liked.
#[test]
fn fetches_of_many_partitions_of_a_session_wait_for_memory() {
    const PARTITIONS: i32 = 1_000;
    let _alone = alone();
    let builder = Broker::builder().memory().topic("orders", PARTITIONS);
    let builder = builder.configure(|config| config.memory_bytes_max = (BUDGET_MIB << 20) as usize);
    let broker = builder.spawn().expect("a broker");
    let partition = |partition| FetchPartition {
        partition,
        partition_max_bytes: 1 << 20,
        current_leader_epoch: -1,
        ..Default::default()
    };
    let request = |session_id, session_epoch, partitions| {
        let topic = FetchTopic {
            topic: "orders".into(),
            partitions: (0..partitions).map(partition).collect(),
            ..Default::default()
        };
        let topics = if partitions > 0 { vec![topic] } else { Vec::new() };
        let max_wait_ms = if partitions > 0 { 0 } else { i32::MAX };
        FetchRequest {
            session_id,
            session_epoch,
            max_wait_ms,
            min_bytes: 1,
            max_bytes: 1 << 20,
            topics,
            ..Default::default()
        }
    };
    let mut first = Raw::connect(broker.addresses()[0]);
    let begun = first.ask(12, &request(0, 0, PARTITIONS)).expect("an answer");
    assert_ne!(begun.session_id, 0);
    broker.cluster().requests(ottla_protocol::ApiKey::Fetch);
    let growth = Growth::start();
    let mut held = Vec::new();
    for epoch in 1..=300 {
        let mut connection = Raw::connect(broker.addresses()[0]);
        connection.send(&framed(12, &request(begun.session_id, epoch, 0)));
        let began = Instant::now();
        while broker.cluster().requests(ottla_protocol::ApiKey::Fetch) < epoch as u64 {
            assert!(began.elapsed() < PATIENCE, "the request has not arrived");
            std::thread::park_timeout(Duration::from_millis(1));
        }
        held.push(connection);
    }
    growth.assert_at_most(BUDGET_MIB + ABOVE_MIB, "300 fetches of a session");
    let mut last = held.pop().expect("one of them");
    assert!(matches!(last.hear(), common::Heard::Answer(_)), "it is served when the earlier ones are");
}

/// The broker kept three copies of each nonce until the proof came: 200 strangers held 300 MB.
#[test]
fn nonces_of_strangers_are_limited() {
    let _alone = alone();
    let mut sasl = SaslSettings::new([SaslMechanism::ScramSha256]);
    sasl.failure_delay = Duration::ZERO;
    let listener = Listener::new("SECURE", SocketAddr::from(([127, 0, 0, 1], 0))).sasl(sasl);
    let broker = Broker::builder().memory().listener(listener).spawn().expect("a broker");
    let handshake = SaslHandshakeRequest { mechanism: "SCRAM-SHA-256".to_owned() };
    let token = format!("n,,n=alice,r={}", "x".repeat(500_000));
    let first = SaslAuthenticateRequest { auth_bytes: token.into() };
    let growth = Growth::start();
    let mut held = Vec::new();
    for _ in 0..200 {
        let mut connection = Raw::connect(broker.addresses()[0]);
        connection.ask(1, &handshake).expect("an answer");
        let answer = connection.ask(2, &first).expect("an answer");
        assert_eq!(answer.error_code, ErrorCode::SaslAuthenticationFailed);
        held.push(connection);
    }
    growth.assert_at_most(ABOVE_MIB, "200 nonces of 500 kB");
}
