//! Whole requests to a broker in memory: it answers or closes the connection.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;

use fastrand::Rng;
use ottla_broker::{Broker, Clock, Durability, Syncer, serve};
use ottla_log::storage::mem::MemStorage;
use ottla_protocol::messages::fetch::{FetchPartition, FetchTopic};
use ottla_protocol::messages::metadata::MetadataRequestTopic;
use ottla_protocol::messages::produce::{PartitionProduceData, TopicProduceData};
use ottla_protocol::messages::{FetchRequest, MetadataRequest, ProduceRequest, REQUESTS};
use ottla_protocol::{Request, encode_request, frame_size};
use ottla_wire::{Chain, Compression};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::input::{Input, push_part};
use crate::messages::random_message;
use crate::wire::sealed;

const NOW_MS: i64 = 1_700_000_000_000;
/// Virtual time in which the broker answers all requests of an input. A JoinGroup may wait for half an hour.
const PATIENCE: Duration = Duration::from_secs(100 * 3600);
const PIPE_BYTES: usize = 1 << 20;
const RESPONSE_BYTES_MAX: usize = 16 << 20;
const REQUESTS_MAX: usize = 8;

/// Each request of an input, one after the other on one connection: key, version, and the message as a part.
pub(crate) fn requests(input: &[u8]) {
    let mut input = Input::new(input);
    let mut frames = Vec::new();
    let mut correlation_id = 0_i32;
    while !input.is_empty() && frames.len() < REQUESTS_MAX {
        let api = &REQUESTS[usize::from(input.byte()) % REQUESTS.len()];
        let count = api.versions.max - api.versions.min + 1;
        let version = api.versions.min + i16::from(input.byte()) % count;
        let mut frame = Vec::new();
        frame.extend(api.key.code().to_be_bytes());
        frame.extend(version.to_be_bytes());
        frame.extend(correlation_id.to_be_bytes());
        frame.extend((-1_i16).to_be_bytes());
        if version >= api.flexible_from {
            frame.push(0);
        }
        frame.extend(input.part());
        frames.push([&(frame.len() as i32).to_be_bytes()[..], &frame].concat());
        correlation_id += 1;
    }
    run(async move {
        let broker = broker().await;
        let cluster = broker.cluster();
        let answering = exchange(&broker, frames);
        assert!(
            timeout(PATIENCE, answering).await.is_ok(),
            "the broker neither answers nor closes the connection"
        );
        assert!(cluster.id().len() > 10);
    });
}

/// Sends frames and reads the responses, in the order of the requests.
async fn exchange(broker: &Broker, frames: Vec<Vec<u8>>) {
    let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
    let (mut read, mut write) = tokio::io::split(ours);
    let serving = serve(theirs, broker.cluster(), 1);
    let talking = async {
        for frame in frames {
            if write.write_all(&frame).await.is_err() {
                break;
            }
        }
        let _ = write.shutdown().await;
        let mut last = -1;
        let mut size = [0; 4];
        while read.read_exact(&mut size).await.is_ok() {
            let size = frame_size(size, RESPONSE_BYTES_MAX).expect("a sound response");
            let mut response = vec![0; size];
            if read.read_exact(&mut response).await.is_err() {
                break;
            }
            let id = response.first_chunk().map_or(-1, |bytes| i32::from_be_bytes(*bytes));
            assert!(id > last, "responses are in the order of the requests");
            last = id;
        }
    };
    tokio::join!(serving, talking);
}

async fn broker() -> Broker {
    let broker = Broker::builder()
        .storage(Arc::new(MemStorage::new()))
        .no_listener()
        .clock(Clock::Fixed(Arc::new(AtomicI64::new(NOW_MS))))
        .syncer(Syncer::Inline(Duration::ZERO))
        .seed(7)
        .configure(|config| {
            config.durability = Durability::Memory;
            config.topic_partitions_max = 4;
            config.partitions_total_max = 16;
            config.memory_bytes_max = 4 << 20;
            config.scrub_bytes_per_second = None;
        })
        .topic("orders", 2);
    broker.start().await.expect("a broker in memory")
}

/// Runs on a thread of its own: virtual time, and no other thread.
fn run(future: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(future);
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (number, api) in REQUESTS.iter().enumerate() {
        let version = api.versions.max;
        let mut rng = Rng::with_seed(number as u64);
        let message = random_message(&api.messages().request, version, &mut rng);
        if message.len() < 1000 && number % 2 == 0 {
            seeds.push(one(number, (version - api.versions.min) as u8, &message));
        }
    }
    let records = Chain::from(bytes::Bytes::from(sealed(Compression::None, 2)));
    let data = PartitionProduceData { index: 1, records: Some(records) };
    let produce = ProduceRequest {
        acks: -1,
        timeout_ms: 1000,
        topic_data: vec![TopicProduceData {
            name: "orders".into(),
            partition_data: vec![data],
            ..Default::default()
        }],
        ..Default::default()
    };
    let partition = FetchPartition { partition: 1, partition_max_bytes: 1 << 20, ..Default::default() };
    let fetch = FetchRequest {
        max_wait_ms: 100,
        min_bytes: 1,
        max_bytes: 1 << 20,
        topics: vec![FetchTopic {
            topic: "orders".into(),
            partitions: vec![partition],
            ..Default::default()
        }],
        ..Default::default()
    };
    let topic = MetadataRequestTopic { name: Some("orders".into()), ..Default::default() };
    let metadata = MetadataRequest { topics: Some(vec![topic]), ..Default::default() };
    let (produce, fetch, metadata) = (of(8, &produce), of(12, &fetch), of(12, &metadata));
    seeds.push([produce.clone(), fetch.clone()].concat());
    seeds.push([metadata, produce.clone(), produce, fetch].concat());
    seeds
}

fn of<R: Request>(version: i16, request: &R) -> Vec<u8> {
    let number = REQUESTS.iter().position(|api| api.key == R::KEY).unwrap_or_default();
    let header = 4 + 10 + usize::from(R::is_flexible(version));
    let frame = encode_request(0, None, version, request).expect("sound").to_bytes().expect("in memory");
    one(number, (version - R::VERSIONS.start()) as u8, &frame[header..])
}

fn one(number: usize, version: u8, message: &[u8]) -> Vec<u8> {
    let mut seed = vec![number as u8, version];
    push_part(&mut seed, message);
    seed
}

/// A file `cleaner-offset-checkpoint`: what was read is written again.
pub(crate) fn cleaner_points(input: &[u8]) {
    ottla_broker::fuzzing::cleaner_points(input);
}

pub(crate) fn cleaner_points_seeds() -> Vec<Vec<u8>> {
    ["0\n0\n", "0\n2\norders 0 1200\norders 1 900\n"].map(|text| text.as_bytes().to_vec()).into()
}
