//! Attacks with frames, connections and batches.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ottla_protocol::messages::metadata::MetadataRequest;
use ottla_protocol::{ErrorCode, frame};
use ottla_wire::{Compression, Seal};

use crate::common::sound::{self, TOPIC};
use crate::common::{Heard, Raw, batch, bomb, framed, produce_request};
use crate::mutations::mutate;

/// Mutated frames for each API and version in a round; `OTTLA_HOSTILE_FRAMES` sets another number.
const FRAMES: u32 = 100;
/// The wait for an answer to a mutated frame: many have none.
const ANSWER_WITHIN: Duration = Duration::from_millis(20);
/// Mutated frames between two looks at whether the broker still answers.
const LOOK_EVERY: u64 = 500;

/// Sends mutated frames of every listed API and version.
pub(crate) fn send_mutated_frames(broker: SocketAddr, stop: &AtomicBool) {
    let frames = std::env::var("OTTLA_HOSTILE_FRAMES").map_or(FRAMES, |text| text.parse().expect("a count"));
    let seed = std::env::var("OTTLA_SEED").map_or(0x0771a, |text| text.parse().expect("a seed"));
    let mut random = fastrand::Rng::with_seed(seed);
    let sound = sound::in_every_version(broker);
    println!("{} APIs and versions, {frames} frames each, OTTLA_SEED={seed}", sound.len());
    let mut connection = None;
    let mut sent = 0_u64;
    for _ in 0..frames {
        for request in &sound {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            let other = &random.choice(&sound).expect("not empty").frame;
            let mutated = mutate(&request.frame, other, &mut random);
            connection = exchange(broker, connection, &mutated, random.bool());
            sent += 1;
            if sent.is_multiple_of(LOOK_EVERY) {
                assert!(Raw::connect(broker).is_served(), "after {sent} frames, {}", request.name());
            }
        }
    }
}

/// Sends one frame and reads for a moment. Returns the connection if the broker answered.
fn exchange(broker: SocketAddr, open: Option<TcpStream>, bytes: &[u8], is_last: bool) -> Option<TcpStream> {
    let mut stream = open.unwrap_or_else(|| {
        let stream = TcpStream::connect(broker).expect("the broker listens");
        stream.set_nodelay(true).expect("a socket");
        stream.set_read_timeout(Some(ANSWER_WITHIN)).expect("a socket");
        stream
    });
    stream.write_all(bytes).ok()?;
    if is_last {
        // The broker learns at once that the client does not wait for the answer.
        let _ = stream.shutdown(std::net::Shutdown::Write);
    }
    let mut size = [0; 4];
    stream.read_exact(&mut size).ok()?;
    let size = u64::try_from(i32::from_be_bytes(size)).expect("a size");
    let read = std::io::copy(&mut (&mut stream).take(size), &mut std::io::sink()).ok()?;
    (read == size && !is_last).then_some(stream)
}

/// Connections of slow clients, a quarter of each kind.
const LORISES: usize = 400;
/// The time that slow clients spend in a round.
const LORIS_TIME: Duration = Duration::from_secs(3);
const LORIS_PACE: Duration = Duration::from_millis(50);

/// Clients that send nothing, send one byte now and then, stop within a frame, or never read.
pub(crate) fn send_slowly(broker: SocketAddr, stop: &AtomicBool) {
    let count = std::env::var("OTTLA_HOSTILE_LORISES").map_or(LORISES, |text| text.parse().expect("a count"));
    let metadata = framed(9, &MetadataRequest::default());
    let mut unfinished = vec![0; 12 << 10];
    unfinished[..4].copy_from_slice(&(16_i32 << 10).to_be_bytes());
    // ApiVersions 0, whose rest is not looked at before the frame is complete.
    unfinished[5] = 18;
    let mut clients: Vec<(usize, TcpStream)> = (0..count)
        .map(|at| {
            let stream = TcpStream::connect(broker).expect("the broker listens");
            stream.set_nonblocking(true).expect("a socket");
            (at, stream)
        })
        .collect();
    let until = Instant::now() + LORIS_TIME;
    let mut turn = 0;
    while Instant::now() < until && !stop.load(Ordering::Relaxed) {
        clients.retain_mut(|(at, stream)| {
            let written = match *at % 4 {
                // The last byte of the request is never sent.
                1 => stream.write(&metadata[turn % (metadata.len() - 1)..][..1]),
                2 if turn == 0 => stream.write(&unfinished),
                3 => stream.write(&metadata.repeat(20)),
                _ => return true,
            };
            match written {
                Ok(_) => true,
                Err(error) => error.kind() == ErrorKind::WouldBlock,
            }
        });
        turn += 1;
        std::thread::park_timeout(LORIS_PACE);
    }
    println!("{} of {count} slow clients are still connected", clients.len());
}

/// With those of the honest client and of the looks, not more than the 10,000 of `max.connections`.
const CONNECTIONS: usize = 9_900;
/// Requests that are sent before their answers are read.
const CONNECTIONS_AT_A_TIME: usize = 100;

/// Opens very many connections, has one request answered on each, and holds them all.
pub(crate) fn hold_connections(broker: SocketAddr, stop: &AtomicBool) {
    let mut held = Vec::new();
    while held.len() < CONNECTIONS && !stop.load(Ordering::Relaxed) {
        let from = held.len();
        held.extend((0..CONNECTIONS_AT_A_TIME).map(|_| Raw::connect(broker)));
        for connection in &mut held[from..] {
            assert!(connection.is_served(), "connection {from} and those after it");
        }
    }
    // The first ones are still served, and a new one is, too.
    for connection in held.iter_mut().take(10) {
        assert!(connection.is_served());
    }
    assert!(stop.load(Ordering::Relaxed) || Raw::connect(broker).is_served());
}

/// Clients that send bombs at the same time.
const BOMBERS: usize = 8;
const BOMBS_EACH: usize = 5;

/// Sends batches that become too large, and batches of very many small records, with every codec.
pub(crate) fn send_bombs(broker: SocketAddr, stop: &AtomicBool) {
    let codecs = Compression::ALL.into_iter().filter(|codec| *codec != Compression::None);
    let values = vec![&b"xxxxxxxxxxxxxxxx"[..]; 150_000];
    let charges: Vec<(Vec<u8>, ErrorCode)> = codecs
        .flat_map(|codec| {
            let seal = Seal { compression: codec, ..Seal::default() };
            [(bomb(codec), ErrorCode::InvalidRecord), (batch(&values, &seal), ErrorCode::None)]
        })
        .map(|(batch, expected)| (framed(12, &produce_request(TOPIC, 1, &batch)), expected))
        .collect();
    std::thread::scope(|scope| {
        for _ in 0..BOMBERS {
            scope.spawn(|| {
                crate::be_nice();
                let mut connection = Raw::connect(broker);
                for (request, expected) in charges.iter().cycle().take(charges.len() * BOMBS_EACH) {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    connection.send(request);
                    let Heard::Answer(answer) = connection.hear() else { panic!("an answer") };
                    let response =
                        frame::decode_response::<ottla_protocol::messages::ProduceRequest>(answer, 12);
                    let response = response.expect("a response").1;
                    assert_eq!(response.responses[0].partition_responses[0].error_code, *expected);
                }
            });
        }
    });
}
