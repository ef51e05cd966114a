//! Clients that do not read their responses, or stop within a TLS record or a handshake: the memory that they hold is counted, and
//! they lose their connections while others wait for it.

#![allow(clippy::disallowed_methods, reason = "a test is a shell")]

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ottla_broker::{AnsweredRequest, Broker, BrokerThread, Fault, Listener, RequestObserver};
use ottla_protocol::messages::describe_configs::{DescribeConfigsRequest, DescribeConfigsResource};
use ottla_protocol::messages::describe_groups::DescribeGroupsRequest;
use ottla_protocol::messages::fetch::{FetchPartition, FetchRequest, FetchTopic};
use ottla_protocol::messages::list_offsets::{ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic};
use ottla_protocol::messages::metadata::MetadataRequest;
use ottla_protocol::messages::produce::{PartitionProduceData, ProduceRequest, TopicProduceData};
use ottla_protocol::{ApiKey, ErrorCode};
use ottla_wire::Seal;

use crate::common::{Heard, PATIENCE, Raw, batch, commit_request, framed, produce_request};
use crate::security::{address, any_port, tls};
use crate::tls::{Pushed, TlsClient, certificate, connect};

/// Room for unread bytes at a client: the kernel gives its least.
const RECEIVE_BYTES: usize = 2 << 10;
/// Connections with which a share of the uncharged memory is 8 KiB.
const MANY: usize = 512;
/// A budget of which three eighths are for requests: 384 KiB.
const BUDGET: &str = "1048576";
/// Partitions of which a session of this budget has room for some more.
const WIDE: i32 = 40;

fn broker() -> BrokerThread {
    broker_with(&[])
}

/// A broker with topics beside `orders`.
fn broker_with(topics: &[(&str, i32)]) -> BrokerThread {
    broker_of(BUDGET, topics)
}

fn broker_of(budget: &str, topics: &[(&str, i32)]) -> BrokerThread {
    let builder = Broker::builder().memory().topic("orders", 1);
    let builder = topics.iter().fold(builder, |builder, (name, count)| builder.topic(*name, *count));
    let builder = builder.configure(|config| config.set("memory.max.bytes", budget).expect("a property"));
    let builder = builder.listener(Listener::new("PLAIN", any_port()));
    let secure = Listener::new("SECURE", any_port()).tls(tls(certificate()));
    builder.listener(secure).spawn().expect("a broker in memory")
}

/// [`MANY`] connections that the broker has accepted: the share of each in the uncharged memory depends on their number.
fn idle_connections(broker: &BrokerThread) -> Vec<TcpStream> {
    let to = address(broker, "PLAIN");
    let idle = (0..MANY).map(|_| connect(to, RECEIVE_BYTES)).collect();
    until("the connections", || {
        let text = broker.cluster().metrics_text(10);
        let line = text.lines().find_map(|line| line.strip_prefix("ottla_connections_accepted_total "));
        line.and_then(|count| count.parse().ok()) >= Some(MANY)
    });
    idle
}

/// The bytes of a part of `memory.max.bytes` that are in use.
fn used(broker: &BrokerThread, part: &str) -> u64 {
    let text = broker.cluster().metrics_text(10);
    let name = format!("ottla_memory_used_bytes{{part=\"{part}\"}} ");
    let line = text.lines().find_map(|line| line.strip_prefix(&name)).expect("a line for it");
    line.parse().expect("a number")
}

/// A request for 8 MiB of the first partition.
fn fetch_of_all() -> Vec<u8> {
    let partition =
        FetchPartition { partition_max_bytes: 8 << 20, current_leader_epoch: -1, ..Default::default() };
    let topic = FetchTopic { topic: "orders".into(), partitions: vec![partition], ..Default::default() };
    let request =
        FetchRequest { max_bytes: 8 << 20, min_bytes: 1, topics: vec![topic], ..Default::default() };
    framed(12, &request)
}

/// Repeats a step until it has an effect.
fn until(what: &str, mut is_there: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_there() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

/// A produce request of most of the budget is answered: it waits for those that hold memory.
fn assert_others_get_memory(broker: &BrokerThread) {
    let value = vec![b'x'; 370_000];
    let produced =
        Raw::connect(address(broker, "PLAIN")).produce("orders", 1, &batch(&[&value], &Seal::default()));
    assert_eq!(produced.error_code, ErrorCode::None);
}

/// A response of up to 16 KiB was not counted, however many connections held one.
#[test]
fn a_small_response_that_is_not_read_counts_if_there_are_many_connections() {
    let broker = broker();
    let address = address(&broker, "PLAIN");
    let idle = idle_connections(&broker);
    let resource = DescribeConfigsResource {
        resource_type: 2,
        resource_name: "orders".into(),
        ..DescribeConfigsResource::default()
    };
    let request = DescribeConfigsRequest {
        resources: vec![resource; 2],
        include_synonyms: true,
        include_documentation: true,
    };
    let request = framed(4, &request);
    let mut reader = Raw::connect(address);
    reader.send(&request);
    let Heard::Answer(answer) = reader.hear() else { panic!("an answer") };
    assert!((8 << 10..16 << 10).contains(&answer.len()), "{} bytes", answer.len());
    let mut stream = connect(address, RECEIVE_BYTES);
    stream.set_nonblocking(true).expect("a socket");
    until("a response that counts", || {
        let _ = stream.write(&request);
        used(&broker, "responses") > 8 << 10
    });
    drop(stream);
    until("its end", || used(&broker, "responses") == 0);
    drop(idle);
}

/// Clients that do not read responses, of more than their part of the memory.
fn unread_descriptions(broker: &BrokerThread) -> Vec<TcpStream> {
    let resource = DescribeConfigsResource {
        resource_type: 2,
        resource_name: "orders".into(),
        ..DescribeConfigsResource::default()
    };
    let request = DescribeConfigsRequest {
        resources: vec![resource; 20],
        include_synonyms: true,
        include_documentation: true,
    };
    let request = framed(4, &request);
    let mut unread = Vec::new();
    while used(broker, "responses") <= 128 << 10 {
        let mut stream = connect(address(broker, "PLAIN"), RECEIVE_BYTES);
        stream.set_nonblocking(true).expect("a socket");
        let before = used(broker, "responses");
        until("a response that the kernel does not take", || {
            let _ = stream.write(&request);
            std::thread::park_timeout(Duration::from_millis(20));
            used(broker, "responses") > before
        });
        unread.push(stream);
    }
    unread
}

/// They waited until the response was read, for as long as its client read 1 MiB per second.
#[test]
fn groups_and_commits_do_not_wait_for_a_client_that_does_not_read() {
    let broker = broker();
    let address = address(&broker, "PLAIN");
    let unread = unread_descriptions(&broker);
    let mut connection = Raw::connect(address);
    let committed = connection.ask(8, &commit_request("billing", 5)).expect("an answer");
    assert_eq!(committed.topics[0].partitions[0].error_code, ErrorCode::None);
    assert!(used(&broker, "responses") > 128 << 10, "the commit waited until the responses were given up");
    drop(unread);
}

/// A fetch of partitions of the topic `wide`, in a session.
fn fetch_of_session(session: (i32, i32), partitions: i32, max_wait_ms: i32) -> FetchRequest {
    let partition = |partition| FetchPartition {
        partition,
        partition_max_bytes: 1 << 20,
        current_leader_epoch: -1,
        ..Default::default()
    };
    let topic = FetchTopic {
        topic: "wide".into(),
        partitions: (0..partitions).map(partition).collect(),
        ..Default::default()
    };
    let (session_id, session_epoch) = session;
    let topics = if partitions > 0 { vec![topic] } else { Vec::new() };
    FetchRequest {
        session_id,
        session_epoch,
        max_wait_ms,
        min_bytes: 1,
        max_bytes: 1 << 20,
        topics,
        ..Default::default()
    }
}

/// It was not charged, and held the memory of all partitions of its session for as long as its client liked.
#[test]
fn a_fetch_of_many_partitions_of_a_session_is_charged_and_waits_no_longer_than_a_second() {
    let broker = broker_with(&[("wide", WIDE)]);
    let mut connection = Raw::connect(address(&broker, "PLAIN"));
    let begun = connection.ask(12, &fetch_of_session((0, 0), WIDE, 0)).expect("an answer");
    assert_ne!(begun.session_id, 0);
    let request = framed(12, &fetch_of_session((begun.session_id, 1), 0, i32::MAX));
    assert!(request.len() < 100, "{} bytes", request.len());
    let began = Instant::now();
    connection.send(&request);
    until("a charge", || used(&broker, "requests") >= WIDE as u64 * 400 / 1024 * 1024);
    let answer = connection.answer_to::<FetchRequest>(12).expect("an answer");
    assert_eq!((answer.error_code, answer.responses.len()), (ErrorCode::None, 0));
    assert!(began.elapsed() >= Duration::from_millis(900), "it waits for records");
    until("its memory", || used(&broker, "requests") == 0);
}

/// Each of 1,000 connections that read nothing held the errors of 22,000 partitions, of which its request named none.
#[test]
fn a_fetch_of_many_partitions_of_a_session_waits_until_other_responses_are_sent() {
    let broker = broker_with(&[("wide", WIDE)]);
    let mut connection = Raw::connect(address(&broker, "PLAIN"));
    // The last ones do not exist: each answer has their errors.
    let begun = connection.ask(12, &fetch_of_session((0, 0), WIDE + 10, 0)).expect("an answer");
    assert_ne!(begun.session_id, 0);
    let unread = unread_descriptions(&broker);
    let answer = connection.ask(12, &fetch_of_session((begun.session_id, 1), 0, 0)).expect("an answer");
    assert_eq!(answer.responses[0].partitions.len(), 10);
    assert!(used(&broker, "responses") <= 128 << 10, "the fetch did not wait for room");
    drop(unread);
}

/// An observer that blocks the thread which answers a DescribeGroups request, until the test ends.
#[derive(Debug, Default)]
struct Blocker {
    until: Mutex<()>,
    is_blocked: AtomicBool,
}

impl RequestObserver for Blocker {
    fn on_answered(&self, request: AnsweredRequest<'_>) {
        if request.api == ApiKey::DescribeGroups {
            self.is_blocked.store(true, Ordering::SeqCst);
            drop(self.until.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }
}

/// It was counted when the thread for long work began to write it, however many waited for that.
#[test]
fn a_wide_response_counts_while_it_waits_for_the_other_thread() {
    let broker = broker_with(&[("wide", 1_000), ("widest", 10_000)]);
    let address = address(&broker, "PLAIN");
    let blocker = Arc::new(Blocker::default());
    broker.cluster().observe_requests(blocker.clone());
    let blocked = blocker.until.lock().expect("no panic");
    // More than 32 KiB: the thread for long work answers it.
    let groups = (0..10).map(|number| format!("{number}-{}", "x".repeat(4_000))).collect();
    let request = DescribeGroupsRequest { groups, ..Default::default() };
    let mut busy = Raw::connect(address);
    busy.send(&framed(5, &request));
    until("a blocked thread", || blocker.is_blocked.load(Ordering::SeqCst));
    let mut connection = Raw::connect(address);
    connection.send(&framed(9, &MetadataRequest { topics: None, ..Default::default() }));
    until("a response that counts", || used(&broker, "responses") > 256 << 10);
    drop(blocked);
    let Heard::Answer(answer) = connection.hear() else { panic!("an answer") };
    assert!(answer.len() > 256 << 10, "{} bytes", answer.len());
    assert!(matches!(busy.hear(), Heard::Answer(_)));
    until("the end of both", || used(&broker, "responses") == 0);
}

/// Responses that wait for an earlier one were not counted, up to 15 of each connection.
#[test]
fn responses_behind_one_that_is_not_done_count_beyond_the_share_of_their_connection() {
    let broker = broker();
    let mut connection = Raw::connect(address(&broker, "PLAIN"));
    let partition_data = (0..400).map(|index| PartitionProduceData { index, records: None }).collect();
    let topic = TopicProduceData { name: "x".into(), partition_data, ..Default::default() };
    let request =
        ProduceRequest { acks: 1, timeout_ms: 1_000, topic_data: vec![topic], ..Default::default() };
    let late = Fault::AnswerAfter(Duration::from_secs(3_600));
    broker.cluster().intercept(ApiKey::Produce, None, 1, late);
    connection.send(&framed(9, &request));
    until("the request whose answer is late", || broker.cluster().intercepts_left(ApiKey::Produce, 1) == 0);
    for _ in 0..10 {
        connection.send(&framed(9, &request));
    }
    until("responses that count", || used(&broker, "responses") > 64 << 10);
    drop(connection);
    until("their end", || used(&broker, "responses") == 0);
}

/// The bytes that the kernel holds for the peer of a connection: it has not acknowledged them.
#[cfg(target_os = "linux")]
fn bytes_in_kernel(client: &TcpStream) -> usize {
    let (to, from) = (client.local_addr().expect("connected"), client.peer_addr().expect("connected"));
    let ports = [from, to].map(|address| format!(":{:04X}", address.port()));
    let sockets = std::fs::read_to_string("/proc/net/tcp").expect("the sockets");
    let mut lines = sockets.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let line = lines.find(|line| line[1].ends_with(&ports[0]) && line[2].ends_with(&ports[1]));
    let queues = line.expect("the broker's socket")[4];
    queues.split_once(':').and_then(|(sent, _)| usize::from_str_radix(sent, 16).ok()).expect("a number")
}

/// It held 2.6 MB for each client, and a thousand of them took all the memory that a machine of 24 GiB has for sockets.
#[cfg(target_os = "linux")]
#[test]
fn the_kernel_holds_little_of_a_response_that_is_not_read() {
    let broker = broker();
    let value = vec![b'x'; 100_000];
    for _ in 0..80 {
        let batch = batch(&[&value], &Seal::default());
        let produced = Raw::connect(address(&broker, "PLAIN")).produce("orders", 1, &batch);
        assert_eq!(produced.error_code, ErrorCode::None);
    }
    let mut client = connect(address(&broker, "PLAIN"), RECEIVE_BYTES);
    client.write_all(&fetch_of_all()).expect("sent");
    until("a part of the response", || bytes_in_kernel(&client) > 200 << 10);
    // Until the broker takes no more of its turns for it.
    let mut before = 0;
    until("a response that is not sent", || {
        let now = bytes_in_kernel(&client);
        std::mem::replace(&mut before, now) == now
    });
    assert!(before < 600 << 10, "{before} bytes");
}

/// The copied part of a file, and what TLS had encrypted of it, were not counted.
#[test]
fn records_that_are_not_read_over_tls_are_charged_and_returned_to_others() {
    let broker = broker();
    let value = vec![b'x'; 100_000];
    for _ in 0..120 {
        let batch = batch(&[&value], &Seal::default());
        let produced = Raw::connect(address(&broker, "PLAIN")).produce("orders", 1, &batch);
        assert_eq!(produced.error_code, ErrorCode::None);
    }
    let request = fetch_of_all();
    let mut client = TlsClient::connect(address(&broker, "SECURE"), RECEIVE_BYTES).expect("a handshake");
    until("a charge", || {
        assert_ne!(client.push(&request), Pushed::Closed, "others do not need the memory yet");
        used(&broker, "requests") >= 16 << 10
    });
    assert_others_get_memory(&broker);
    until("the end of the slow connection", || client.push(&request) == Pushed::Closed);
}

/// Each connection could hold 16 KiB of a record that never ended.
#[test]
fn an_unfinished_record_of_tls_is_charged_if_there_are_many_connections() {
    let broker = broker();
    let idle = idle_connections(&broker);
    let mut client = TlsClient::connect(address(&broker, "SECURE"), RECEIVE_BYTES).expect("a handshake");
    client.push_unfinished(&[0; 16 << 10]);
    until("a charge", || used(&broker, "requests") >= 16 << 10);
    assert_others_get_memory(&broker);
    until("the end of its connection", || client.push(b"x") == Pushed::Closed);
    until("the memory that it held", || used(&broker, "requests") == 0);
    drop(idle);
}

/// The bytes that came with the end of the handshake did not count.
#[test]
fn a_record_that_begins_with_the_end_of_the_handshake_is_charged() {
    let broker = broker();
    let idle = idle_connections(&broker);
    let record = [0; 16 << 10];
    let client = TlsClient::connect_with_unfinished(address(&broker, "SECURE"), RECEIVE_BYTES, &record);
    until("a charge", || used(&broker, "requests") >= 16 << 10);
    drop((client, idle));
}

/// The part of a record that had come with the end of another one did not count: the broker took the request for one whose rest would
/// not come.
#[test]
fn a_whole_request_over_tls_of_a_client_that_has_left_is_served_when_there_is_memory() {
    let broker = broker_of("16777216", &[]);
    let hold = |bytes: i32| {
        let mut holder = connect(address(&broker, "PLAIN"), RECEIVE_BYTES);
        holder.write_all(&[&bytes.to_be_bytes()[..], &[0, 0]].concat()).expect("sent");
        holder
    };
    let small = 384 << 10;
    let holders = [5 << 20, small, small, small, small].map(hold);
    until("all memory for requests is used", || used(&broker, "requests") == 6 << 20);
    let records = batch(&[&vec![b'x'; 40_000]], &Seal::default());
    let request = framed(9, &produce_request("orders", 0, &records));
    let mut client = TlsClient::connect(address(&broker, "SECURE"), RECEIVE_BYTES).expect("a handshake");
    assert_eq!(client.push(&request), Pushed::Some);
    let waits = "ottla_memory_waiting{part=\"requests\"} 1";
    until("it waits", || broker.cluster().metrics_text(10).lines().any(|line| line == waits));
    drop((client, holders));
    let listed = ListOffsetsPartition { timestamp: -1, ..Default::default() };
    let listed = ListOffsetsTopic { name: "orders".into(), partitions: vec![listed] };
    let request = ListOffsetsRequest { replica_id: -1, topics: vec![listed], ..Default::default() };
    let mut bystander = Raw::connect(address(&broker, "PLAIN"));
    until("its record", || {
        bystander.ask(7, &request).expect("an answer").topics[0].partitions[0].offset == 1
    });
}

/// A thousand handshakes could hold 64 KiB each.
#[test]
fn the_bytes_of_unfinished_handshakes_are_limited() {
    const CLIENTS: usize = 300;
    let broker = broker();
    // The ClientHello has 65,000 bytes, in records of 16,000.
    let hello = [vec![1, 0, 0xfd, 0xe8], vec![0; 60_000]].concat();
    let mut records = Vec::new();
    for part in hello.chunks(16_000) {
        records.extend([22, 3, 1]);
        records.extend((part.len() as u16).to_be_bytes());
        records.extend(part);
    }
    let mut clients: Vec<TcpStream> = (0..CLIENTS)
        .map(|_| {
            let mut stream = TcpStream::connect(address(&broker, "SECURE")).expect("the broker listens");
            let _ = stream.write_all(&records);
            stream.set_nonblocking(true).expect("a socket");
            stream
        })
        .collect();
    let is_closed = |stream: &mut TcpStream| {
        !stream.read(&mut [0; 100]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    };
    // 16 MiB are those of 279 clients.
    until("the end of some", || clients.iter_mut().any(is_closed));
}

/// Each had memory for its next request, of which a few bytes had come, and waited for more to send its response: for good, and with it
/// all others that needed memory.
#[test]
fn responses_do_not_wait_for_the_next_requests_of_each_other() {
    let broker = broker_of("4194304", &[]);
    let mut producer = Raw::connect(address(&broker, "PLAIN"));
    let records = batch(&[&vec![b'x'; 50_000]], &Seal::default());
    assert_eq!(producer.produce("orders", 1, &records).error_code, ErrorCode::None);
    let partition =
        FetchPartition { partition_max_bytes: 8 << 20, current_leader_epoch: -1, ..Default::default() };
    let topic = FetchTopic { topic: "orders".into(), partitions: vec![partition], ..Default::default() };
    let (max_bytes, min_bytes) = (8 << 20, 1 << 20);
    let request =
        FetchRequest { max_bytes, min_bytes, max_wait_ms: 3_000, topics: vec![topic], ..Default::default() };
    let fetch = framed(12, &request);
    // All of the part for large requests, and nearly all of the rest: a sixteenth each, with the memory of a record.
    let claims: [i32; 5] = [100 << 20, 71 << 10, 71 << 10, 71 << 10, 71 << 10];
    let connect = |_| TlsClient::connect(address(&broker, "SECURE"), RECEIVE_BYTES).expect("a connection");
    let mut clients: Vec<_> = claims.iter().map(connect).collect();
    for (client, claim) in clients.iter_mut().zip(claims) {
        let claim = [&claim.to_be_bytes()[..], &[0, 0]].concat();
        assert_eq!(client.push(&[&fetch[..], &claim].concat()), Pushed::Some);
    }
    until("no memory is left", || used(&broker, "requests") > (1_536 - 16) << 10);
    for client in &mut clients {
        client.exchange(&[]);
    }
}
