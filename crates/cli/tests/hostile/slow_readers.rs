//! Clients that send requests and never read the responses, and clients over TLS that stop within a record.

use std::io::{ErrorKind, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ottla_protocol::messages as m;
use ottla_wire::Seal;

use crate::common::sound::TOPIC;
use crate::common::{batch, framed, produce_request};
use crate::tls::{Pushed, TlsClient, connect};

/// Room for unread bytes at a client: the kernel gives its least.
const RECEIVE_BYTES: usize = 2 << 10;
/// Bytes of requests that are sent at a time: the broker reads as many at a time.
const PUSHED_BYTES: usize = 16 << 10;
/// The time that clients spend in a round at most. It ends when the broker takes nothing for a while.
const ROUND_MAX: Duration = Duration::from_secs(20);
const QUIET: Duration = Duration::from_secs(2);
const PACE: Duration = Duration::from_millis(5);

const PLAIN_CLIENTS: usize = 6_500;
/// Clients that send many requests beside each other, of which the broker starts several.
const PRODUCERS: usize = 2_000;
const TLS_CLIENTS: usize = 1_500;
/// The batches of which the first ones are fetched over TLS. The log has the last 8 MiB in memory, and the others in the page cache.
const BATCHES: usize = 20;
const BATCH_BYTES: usize = 900_000;

/// Clients without TLS that ask for small responses.
pub(crate) fn ask_for_small_responses(broker: SocketAddr, stop: &AtomicBool) {
    press_plain(broker, stop, PLAIN_CLIENTS, &small_requests());
}

/// Clients without TLS whose produce requests name a topic that does not exist.
pub(crate) fn ask_to_produce_nothing(broker: SocketAddr, stop: &AtomicBool) {
    let request = framed(9, &produce_request("absent", 1, &[]));
    press_plain(broker, stop, PRODUCERS, &request.repeat(PUSHED_BYTES / request.len()));
}

fn press_plain(broker: SocketAddr, stop: &AtomicBool, clients: usize, requests: &[u8]) {
    press(
        clients,
        stop,
        || {
            let stream = connect(broker, RECEIVE_BYTES);
            stream.set_nonblocking(true).expect("a socket");
            Some(PlainClient { stream, sent: 0 })
        },
        |_, client| client.push(requests),
    );
}

/// A connection without TLS, which has sent a part of its requests.
struct PlainClient {
    stream: TcpStream,
    sent: usize,
}

impl PlainClient {
    /// Continues with the requests.
    fn push(&mut self, requests: &[u8]) -> Pushed {
        match self.stream.write(&requests[self.sent..]) {
            Ok(sent) => {
                self.sent = (self.sent + sent) % requests.len();
                Pushed::Some
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Pushed::Nothing,
            Err(_) => Pushed::Closed,
        }
    }
}

/// Clients over TLS: half of them ask for records, and the others for small responses.
pub(crate) fn ask_over_tls(broker: SocketAddr, stop: &AtomicBool) {
    let value = vec![b'x'; BATCH_BYTES];
    let produce = framed(12, &produce_request(TOPIC, 1, &batch(&[&value], &Seal::default())));
    let mut producer = TlsClient::connect(broker, 64 << 10).expect("a handshake");
    for _ in 0..BATCHES {
        producer.exchange(&produce);
    }
    let small = small_requests();
    let fetches = fetch().repeat(4);
    press(
        TLS_CLIENTS,
        stop,
        || TlsClient::connect(broker, RECEIVE_BYTES),
        |at, client| client.push(if at % 2 == 0 { &fetches } else { &small }),
    );
}

/// With those of the honest client, not more than the 10,000 of `max.connections`.
const UNFINISHED: usize = 9_000;
/// Clients whose requests wait.
const WAITING: usize = 5_000;
/// The bytes of a record at most.
const TLS_RECORD_BYTES: usize = 16 << 10;

/// Clients over TLS that send no last byte of a record.
pub(crate) fn send_unfinished_records(broker: SocketAddr, stop: &AtomicBool) {
    let mut held = Vec::new();
    while held.len() < UNFINISHED && !stop.load(Ordering::Relaxed) {
        let Some(mut client) = TlsClient::connect(broker, RECEIVE_BYTES) else { continue };
        client.push_unfinished(&[0; TLS_RECORD_BYTES]);
        held.push(client);
    }
    println!("{} records are unfinished", held.len());
}

/// Clients over TLS whose first request waits for records that never come, with other requests behind it in the same records.
pub(crate) fn wait_over_tls(broker: SocketAddr, stop: &AtomicBool) {
    let waits = m::FetchRequest { max_wait_ms: i32::MAX, min_bytes: i32::MAX, ..fetch_request() };
    let waits = framed(12, &waits);
    let behind = framed(2, &m::ApiVersionsRequest::default());
    let requests = [waits, behind.repeat(2 * TLS_RECORD_BYTES / behind.len())].concat();
    let mut held = Vec::new();
    let mut lost = 0;
    while held.len() + lost < WAITING && !stop.load(Ordering::Relaxed) {
        let Some(mut client) = TlsClient::connect(broker, RECEIVE_BYTES) else { continue };
        match client.push(&requests) {
            Pushed::Some => held.push(client),
            Pushed::Nothing | Pushed::Closed => lost += 1,
        }
    }
    println!("{} clients wait, {lost} were lost", held.len());
}

/// Keeps so many clients connected that push what the broker takes. A client that has lost its connection comes again.
fn press<C>(
    count: usize,
    stop: &AtomicBool,
    connect: impl Fn() -> Option<C>,
    push: impl Fn(usize, &mut C) -> Pushed,
) {
    let mut clients: Vec<Option<C>> = (0..count).map(|_| None).collect();
    let (mut connected, mut lost) = (0, 0);
    let began = Instant::now();
    let mut last_taken = began;
    // Each client connects at least once, and pushes until the broker has filled its buffers.
    while (connected < count || (began.elapsed() < ROUND_MAX && last_taken.elapsed() < QUIET))
        && !stop.load(Ordering::Relaxed)
    {
        for (at, client) in clients.iter_mut().enumerate() {
            if client.is_none() {
                *client = connect();
                connected += 1;
            }
            match client.as_mut().map(|client| push(at, client)) {
                Some(Pushed::Some) => last_taken = Instant::now(),
                Some(Pushed::Nothing) => {}
                Some(Pushed::Closed) | None => {
                    *client = None;
                    lost += 1;
                }
            }
        }
        std::thread::park_timeout(PACE);
    }
    println!("{connected} connections of {count} clients, of which {lost} were lost");
}

/// Requests of less than 512 bytes, whose responses have up to 16 KiB.
fn small_requests() -> Vec<u8> {
    let resource = m::describe_configs::DescribeConfigsResource {
        resource_type: 2,
        resource_name: TOPIC.into(),
        ..Default::default()
    };
    let configs = m::DescribeConfigsRequest {
        resources: vec![resource; 2],
        include_synonyms: true,
        include_documentation: true,
    };
    let listed = m::list_offsets::ListOffsetsPartition { timestamp: -1, ..Default::default() };
    let listed = m::list_offsets::ListOffsetsTopic { name: TOPIC.into(), partitions: vec![listed] };
    let one = [
        framed(4, &configs).repeat(10),
        framed(9, &m::MetadataRequest::default()),
        framed(7, &m::ListOffsetsRequest { replica_id: -1, topics: vec![listed], ..Default::default() }),
        framed(2, &m::ApiVersionsRequest::default()),
    ]
    .concat();
    one.repeat(PUSHED_BYTES / one.len())
}

fn fetch() -> Vec<u8> {
    framed(12, &fetch_request())
}

fn fetch_request() -> m::FetchRequest {
    let partition = m::fetch::FetchPartition {
        partition_max_bytes: 8 << 20,
        current_leader_epoch: -1,
        ..Default::default()
    };
    let topics =
        vec![m::fetch::FetchTopic { topic: TOPIC.into(), partitions: vec![partition], ..Default::default() }];
    m::FetchRequest { max_bytes: 8 << 20, min_bytes: 1, topics, ..Default::default() }
}
