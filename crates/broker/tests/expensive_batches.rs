//! Batches that inflate to many times their size cost the thread that serves all clients nothing, and stay in their order.

#![allow(clippy::disallowed_methods, reason = "a test is a shell")]

mod common;

use std::fs;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use common::memory::alone;
use common::{Heard, PATIENCE, Raw, batch, bomb, framed, produce_request, set_crc};
use ottla_broker::{Broker, BrokerThread};
use ottla_protocol::ErrorCode;
use ottla_protocol::frame;
use ottla_protocol::messages::produce::{PartitionProduceData, ProduceRequest, TopicProduceData};
use ottla_wire::batch::HEADER_BYTES;
use ottla_wire::{Compression, Seal};

const CODECS: [Compression; 4] =
    [Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd];
/// Measurements of each codec.
const ROUNDS: usize = 3;
/// The thread of `Broker::spawn`, which serves all connections.
const SERVING_THREAD: &str = "ottla-broker";
/// The threads that decompress.
const BACKGROUND_THREAD: &str = "ottla-heavy";

fn broker() -> BrokerThread {
    Broker::builder().memory().topic("orders", 1).spawn().expect("a broker")
}

/// The processor time of the serving thread, and of all threads of this process but the test's, in ns.
fn processor_time() -> (u64, u64) {
    let (mut serving, mut all) = (0, 0);
    for task in fs::read_dir("/proc/self/task").expect("Linux lists threads").flatten() {
        let read = |name: &str| fs::read_to_string(task.path().join(name)).unwrap_or_default();
        let ns = read("schedstat").split_whitespace().next().and_then(|ns| ns.parse().ok()).unwrap_or(0);
        match read("comm").trim() {
            SERVING_THREAD => serving += ns,
            BACKGROUND_THREAD => all += ns,
            _ => {}
        }
    }
    (serving, all + serving)
}

fn seal(compression: Compression) -> Seal {
    Seal { compression, ..Seal::default() }
}

/// Many small records: 64 KB of gzip took 1.7 s, during which no client was served.
fn many_records(codec: Compression) -> Vec<u8> {
    let values = vec![&b"xxxxxxxxxxxxxxxx"[..]; 150_000];
    batch(&values, &seal(codec))
}

/// Produces the batch five times. Returns the processor time of the serving thread, and of all threads, in ns.
fn round(connection: &mut Raw, codec: Compression, expensive: &[u8]) -> (u64, u64) {
    let before = processor_time();
    for _ in 0..5 {
        let response = connection.produce("orders", 1, expensive);
        assert_eq!(response.error_code, ErrorCode::None, "{codec:?}: {:?}", response.error_message);
    }
    let after = processor_time();
    // The time of a background thread that has ended is missing in the second reading.
    (after.0.saturating_sub(before.0), after.1.saturating_sub(before.1))
}

#[test]
fn the_serving_thread_inflates_no_large_batch() {
    let _alone = alone();
    for codec in CODECS {
        let broker = broker();
        let mut connection = Raw::connect(broker.addresses()[0]);
        let expensive = many_records(codec);
        assert_eq!(connection.produce("orders", 1, &batch(&[b"first"], &Seal::default())).base_offset, 0);
        // A busy machine makes a round slower for one thread than for another. Inflating would show in every round.
        let rounds: Vec<(u64, u64)> =
            (0..ROUNDS).map(|_| round(&mut connection, codec, &expensive)).collect();
        assert!(
            rounds.iter().any(|(serving, all)| serving * 5 < *all),
            "{codec:?}: (serving, all) ns {rounds:?}"
        );
    }
}

#[test]
fn a_bomb_is_refused_and_the_connection_goes_on() {
    let _alone = alone();
    let broker = broker();
    let mut connection = Raw::connect(broker.addresses()[0]);
    for codec in CODECS {
        let response = connection.produce("orders", 1, &bomb(codec));
        assert_eq!(response.error_code, ErrorCode::InvalidRecord, "{codec:?}: {:?}", response.error_message);
    }
    assert_eq!(connection.produce("orders", 1, &batch(&[b"x"], &Seal::default())).base_offset, 0);
}

/// An expensive batch that is sent before others is before them in the log, although they are checked faster.
#[test]
fn pipelined_batches_keep_their_order() {
    let _alone = alone();
    for codec in CODECS {
        let broker = broker();
        let mut connection = Raw::connect(broker.addresses()[0]);
        let expensive = many_records(codec);
        let mut requests = Vec::new();
        for n in 0..6 {
            let bytes = if n % 3 == 0 { expensive.clone() } else { batch(&[b"small"], &Seal::default()) };
            requests.extend(framed(12, &produce_request("orders", 1, &bytes)));
        }
        connection.send(&requests);
        let mut expected = 0;
        for n in 0..6 {
            let Heard::Answer(answer) = connection.hear() else { panic!("{codec:?}: closed") };
            let (_, response) = frame::decode_response::<ProduceRequest>(answer, 12).expect("an answer");
            let partition = &response.responses[0].partition_responses[0];
            assert_eq!(
                (partition.error_code, partition.base_offset),
                (ErrorCode::None, expected),
                "{codec:?} {n}"
            );
            expected += if n % 3 == 0 { 150_000 } else { 1 };
        }
    }
}

/// A check in steps refuses the same damage as a check at once: a wrong count, and bytes after the last record.
#[test]
fn damaged_large_batches_are_refused() {
    let _alone = alone();
    let broker = broker();
    let mut connection = Raw::connect(broker.addresses()[0]);
    for codec in CODECS {
        let sound = many_records(codec);
        for change in [-1, 1] {
            let mut damaged = sound.clone();
            let count = i32::from_be_bytes(damaged[57..61].try_into().expect("four bytes")) + change;
            damaged[57..61].copy_from_slice(&count.to_be_bytes());
            damaged[23..27].copy_from_slice(&(count - 1).to_be_bytes());
            set_crc(&mut damaged);
            let response = connection.produce("orders", 1, &damaged);
            assert_eq!(response.error_code, ErrorCode::InvalidRecord, "{codec:?} {change}");
        }
        let mut torn = sound.clone();
        torn.truncate(HEADER_BYTES + (sound.len() - HEADER_BYTES) / 2);
        let length = torn.len() as i32 - 12;
        torn[8..12].copy_from_slice(&length.to_be_bytes());
        set_crc(&mut torn);
        let response = connection.produce("orders", 1, &torn);
        assert_eq!(response.error_code, ErrorCode::InvalidRecord, "{codec:?} torn");
    }
    assert_eq!(connection.produce("orders", 1, &batch(&[b"x"], &Seal::default())).base_offset, 0);
}

/// A client that read no responses kept the only turn for checks: the request that had it was not continued while the response before
/// it was written, and no client's large batch was checked for a minute.
#[test]
fn a_client_that_reads_nothing_keeps_no_turn_for_checks() {
    const UNKNOWN_PARTITIONS: i32 = 20_000;
    let _alone = alone();
    let builder = Broker::builder().memory().topic("orders", 3);
    // Only this test ends the connection that reads nothing.
    let broker = builder.configure(|config| config.write_timeout = PATIENCE * 100).spawn().expect("a broker");
    let address = broker.addresses()[0];
    let expensive = many_records(Compression::Gzip);
    let large = framed(12, &produce_request("orders", 1, &expensive));
    let records = Some(bytes::Bytes::from_static(&[0; 40]).into());
    let partition_data = (0..UNKNOWN_PARTITIONS)
        .map(|index| PartitionProduceData { index, records: records.clone() })
        .collect();
    let topic = TopicProduceData { name: "missing".into(), partition_data, ..Default::default() };
    let refused = framed(
        12,
        &ProduceRequest { acks: 1, timeout_ms: 1_000, topic_data: vec![topic], ..Default::default() },
    );
    // While the first batches are checked, all requests arrive. Then the responses fill the buffers of the kernel, and the last batches
    // wait for their turn.
    let pipeline = [large.repeat(4), refused.repeat(6), large.repeat(5)].concat();
    let is_over = Arc::new(AtomicBool::new(false));
    let busy = {
        let (is_over, expensive) = (is_over.clone(), expensive.clone());
        std::thread::spawn(move || {
            let mut connection = Raw::connect(address);
            while !is_over.load(Ordering::Relaxed) {
                assert_eq!(connection.produce("orders", 1, &expensive).error_code, ErrorCode::None);
            }
        })
    };
    // Its send buffer may be full: it is written until the end of the test.
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
    socket.set_recv_buffer_size(2 << 10).expect("a socket");
    socket.connect(&address.into()).expect("the broker listens");
    let mut unread = std::net::TcpStream::from(socket);
    let other = unread.try_clone().expect("a socket");
    let sender = std::thread::spawn(move || drop(unread.write_all(&pipeline)));
    let mut connection = Raw::connect(address);
    for _ in 0..40 {
        assert_eq!(connection.produce("orders", 1, &expensive).error_code, ErrorCode::None);
    }
    is_over.store(true, Ordering::Relaxed);
    // The broker may have closed it, if others need the memory.
    let _ = other.shutdown(std::net::Shutdown::Both);
    sender.join().expect("the sender ends");
    busy.join().expect("each batch is answered");
}
