//! Undecodable records are treated like failed ones: dead letter, skip or stop.

#![allow(clippy::disallowed_methods, reason = "a test is a shell: it may use threads")]

mod support;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use ottla_broker::{Broker, BrokerThread};
use ottla_client::{Config, Producer, Record};
use ottla_parallel::{Builder, Error, GiveUp, Mode, Order, Processor};
use support::*;

/// 50 records, one that exceeds the decompression limit, and 50 more records.
fn filled() -> BrokerThread {
    let broker = broker("orders", 1);
    produce(broker.bootstrap_servers(), "orders", 10, 50);
    let mut config = Config::new(broker.bootstrap_servers());
    config.set("compression.type", "gzip").expect("a property");
    let producer = Producer::new(config).expect("a producer");
    let bomb = vec![0; 200_000];
    let delivery = producer.enqueue_blocking(Record::to("orders").key("k0").value(&bomb)).expect("taken");
    delivery.wait(PATIENCE).expect("in time").expect("written");
    produce_from(broker.bootstrap_servers(), "orders", 10, 50, 50);
    broker
}

fn cautious(broker: &BrokerThread, mode: Mode, order: Order) -> Builder {
    let mut config = member(broker.bootstrap_servers(), "workers");
    config.set("decompressed.max.bytes", "50000").expect("a property");
    let wait = std::time::Duration::from_millis(5);
    Processor::builder(config, mode).topics(["orders"]).order(order).batch_wait(wait)
}

#[test]
fn an_undecodable_batch_becomes_a_dead_letter_and_later_records_are_handled() {
    for mode in Mode::ALL {
        for order in [Order::Partition, Order::Key] {
            let (broker, seen) = (filled(), Seen::default());
            let noted = seen.clone();
            let builder = cautious(&broker, mode, order).give_up(GiveUp::DeadLetter("dead".into()));
            let processor = start(builder, mode, move |record| {
                noted.note(record.key(), record.partition(), record.offset(), record.value());
                Ok(())
            });
            await_that("all others handled", || seen.len() == 100 && processor.metrics().dead_letters == 1);
            processor.stop();
            processor.join().expect("stopped");
            seen.assert_key_order();
            let config = member(broker.bootstrap_servers(), "workers");
            assert_eq!(committed(config.clone(), "orders", 1), 101, "{mode:?} {order:?}");
            let letter = &read_all(config, "dead", 1)[0].1;
            let header = |name: &str| {
                let found = letter.headers.iter().find(|(its, _)| its == name);
                let value = found.and_then(|(_, value)| value.clone()).expect("a header");
                String::from_utf8(value.to_vec()).expect("text")
            };
            assert_eq!(header("ottla.error.topic"), "orders");
            assert_eq!(
                (header("ottla.error.offset"), header("ottla.error.next_offset")),
                ("50".into(), "51".into())
            );
            assert_eq!(header("ottla.error.kind"), "corrupt");
            assert!(header("ottla.error.reason").contains("50000"), "{}", header("ottla.error.reason"));
            let raw = letter.value.as_deref().expect("the batch as it was fetched");
            assert_eq!(
                (raw.len().to_string(), raw[16]),
                (header("ottla.error.bytes"), 2),
                "a batch of format 2"
            );
        }
    }
}

#[test]
fn an_undecodable_batch_is_skipped_or_stops_the_processor() {
    let (broker, seen) = (filled(), Seen::default());
    let noted = seen.clone();
    let processor =
        start(cautious(&broker, Mode::MultiAsync, Order::None), Mode::MultiAsync, move |record| {
            noted.note(record.key(), record.partition(), record.offset(), record.value());
            Ok(())
        });
    match processor.join() {
        Err(Error::Client(ottla_client::Error::Corrupt { offset, .. })) => assert_eq!(offset, 50),
        other => panic!("it stops with what is corrupt: {other:?}"),
    }
    let committed_now = || committed(member(broker.bootstrap_servers(), "workers"), "orders", 1);
    let before = committed_now();
    assert!(before <= 50, "{before} is behind what was not decoded");
    let builder = cautious(&broker, Mode::Sync, Order::Partition).give_up(GiveUp::Skip);
    let processor = builder.start_each(|_| Ok(())).expect("a processor");
    await_that("the rest handled", || processor.metrics().handled >= 100 - before as u64);
    assert_eq!(processor.metrics().skipped, 1);
    processor.stop();
    processor.join().expect("stopped");
    assert_eq!(committed_now(), 101);
}

/// A record's value, preceded by its length: 8, in zigzag encoding.
const PRECIOUS: &[u8] = b"\x10precious";

/// A change of the bytes around that value, whose position it gets.
type Damage = fn(&mut [u8], usize);

/// Makes the value's length negative.
fn negative_length(bytes: &mut [u8], at: usize) {
    bytes[at] ^= 1;
}

/// Turns the offset 18 of the record into 19. A key of one byte, its length and the value's are behind the offset.
fn next_offset(bytes: &mut [u8], at: usize) {
    bytes[at - 3] ^= 2;
}

/// Proxies connections to the broker and damages the record in every response.
fn damaging(listener: TcpListener, broker: SocketAddr, damage: Damage) {
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let Ok(server) = TcpStream::connect(broker) else { return };
            let (mut from, mut to) =
                (client.try_clone().expect("a socket"), server.try_clone().expect("a socket"));
            std::thread::spawn(move || std::io::copy(&mut from, &mut to));
            std::thread::spawn(move || carry_damaged(server, client, damage));
        }
    });
}

fn carry_damaged(mut from: TcpStream, mut to: TcpStream, damage: Damage) {
    let (mut buffer, mut held) = (vec![0; 1 << 16], Vec::new());
    while let Ok(count) = from.read(&mut buffer) {
        if count == 0 {
            return;
        }
        held.extend_from_slice(&buffer[..count]);
        // Whole frames only, so that the bytes to damage are contiguous.
        while let Some(size) = held.first_chunk::<4>().map(|size| 4 + u32::from_be_bytes(*size) as usize) {
            if held.len() < size {
                break;
            }
            let mut frame: Vec<u8> = held.drain(..size).collect();
            if let Some(at) = frame.windows(PRECIOUS.len()).position(|window| window == PRECIOUS) {
                damage(&mut frame, at);
            }
            if to.write_all(&frame).is_err() {
                return;
            }
        }
    }
}

/// A broker with two batches, of 20 and of 10 records; record 10 arrives damaged.
fn with_a_damaged_record() -> BrokerThread {
    with_damage(10, negative_length)
}

/// The same with another damaged record.
fn with_damage(damaged: usize, damage: Damage) -> BrokerThread {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let advertised = listener.local_addr().expect("an address").to_string();
    let broker = Broker::builder().memory().topic("orders", 1).advertise(advertised).spawn();
    let broker = broker.expect("a broker in memory");
    damaging(listener, broker.addresses()[0], damage);
    let mut config = Config::new(broker.bootstrap_servers());
    config.set("linger.ms", "100").expect("a property");
    let producer = Producer::new(config).expect("a producer");
    for number in 0..30 {
        let value = if number == damaged { "precious".to_owned() } else { number.to_string() };
        let record = Record::to("orders").key("k").value(&value);
        let _unawaited = producer.enqueue_blocking(record).expect("taken");
        if number % 20 == 19 {
            producer.flush_blocking(PATIENCE).expect("written");
        }
    }
    producer.flush_blocking(PATIENCE).expect("written");
    broker
}

/// The record had no part in the failure, and was committed.
#[test]
fn a_damaged_record_is_given_up_if_the_handler_fails_before_it_reads_the_batch() {
    let broker = with_a_damaged_record();
    let mut config = member(broker.bootstrap_servers(), "workers");
    config.set("check.crcs", "false").expect("a property");
    let builder = Processor::builder(config.clone(), Mode::Batch)
        .topics(["orders"])
        .batch_wait(std::time::Duration::from_millis(5))
        .give_up(GiveUp::DeadLetter("dead".into()));
    let fails = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(true));
    let handler = move |messages: &ottla_parallel::Messages<'_>| {
        if fails.swap(false, std::sync::atomic::Ordering::SeqCst) {
            return Err(ottla_parallel::Failure::new("not yet").into());
        }
        messages.iter().for_each(drop);
        Ok(())
    };
    let processor = builder.start_batches(handler).expect("a processor");
    await_that("all handled or given up", || {
        processor.metrics().partitions.iter().any(|it| it.finished == Some(30)) || processor.is_stopped()
    });
    processor.stop();
    processor.join().expect("stopped");
    let letters = read_all(config, "dead", 1);
    assert!(!letters.is_empty(), "the rest of the damaged batch");
}

/// The next batch began at the offset of the damaged one's rest, and the processor panicked, as did each next owner of the partition.
#[test]
fn a_record_with_the_offset_of_the_last_one_of_its_batch_does_not_end_the_processor() {
    for order in [Order::None, Order::Key] {
        let broker = with_damage(18, next_offset);
        let mut config = member(broker.bootstrap_servers(), "workers");
        config.set("check.crcs", "false").expect("a property");
        let handled = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let counted = handled.clone();
        let processor = Processor::builder(config.clone(), Mode::MultiAsync)
            .topics(["orders"])
            .order(order)
            .start_each(move |_| {
                counted.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                Ok(())
            })
            .expect("a processor");
        await_that("the next batch is handled", || {
            assert!(!processor.is_stopped(), "{order:?}: {:?}", processor.outcome());
            processor.metrics().partitions.iter().any(|it| it.finished == Some(30))
        });
        // The last record of the damaged batch has no offset.
        assert_eq!(handled.load(std::sync::atomic::Ordering::SeqCst), 29, "{order:?}");
        processor.stop();
        processor.join().expect("stopped");
        assert_eq!(committed(config, "orders", 1), 30, "{order:?}");
    }
}

#[test]
fn a_damaged_record_loses_only_the_rest_of_its_batch() {
    for mode in Mode::ALL {
        for order in [Order::None, Order::Key] {
            let broker = with_a_damaged_record();
            let (mut config, seen) = (member(broker.bootstrap_servers(), "workers"), Seen::default());
            config.set("check.crcs", "false").expect("a property");
            let noted = seen.clone();
            let builder = Processor::builder(config.clone(), mode)
                .topics(["orders"])
                .order(order)
                .batch_wait(std::time::Duration::from_millis(5))
                .give_up(GiveUp::DeadLetter("dead".into()));
            let processor = start(builder, mode, move |record| {
                noted.note(record.key(), record.partition(), record.offset(), record.value());
                Ok(())
            });
            await_that("what can be read is handled, and the rest given up", || {
                let metrics = processor.metrics();
                let is_through = metrics.partitions.iter().any(|it| it.finished == Some(30));
                (metrics.handled == 20 && is_through) || processor.is_stopped()
            });
            processor.stop();
            processor.join().expect("stopped");
            assert_eq!(seen.distinct(), 20, "{mode:?} {order:?}");
            assert_eq!(committed(config.clone(), "orders", 1), 30, "{mode:?} {order:?}");
            let offset_of = |letter: &ottla_client::OwnedRecord, name: &str| {
                let found = letter.headers.iter().find(|(its, _)| its == name);
                let value = found.and_then(|(_, value)| value.clone()).expect("a header");
                String::from_utf8_lossy(&value).parse::<i64>().expect("a number")
            };
            // Several letters, if the batch was split before the damage was found. Together they cover its rest.
            let mut ranges: Vec<_> = read_all(config, "dead", 1)
                .iter()
                .map(|(_, letter)| {
                    ["ottla.error.offset", "ottla.error.next_offset"].map(|name| offset_of(letter, name))
                })
                .collect();
            ranges.sort_unstable();
            let joined =
                ranges.iter().fold(10, |reached, [from, next]| if *from == reached { *next } else { -1 });
            assert_eq!(joined, 20, "{mode:?} {order:?}: {ranges:?}");
        }
    }
}
