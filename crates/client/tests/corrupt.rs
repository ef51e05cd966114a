//! Batches that cannot be decoded, returned as items in place of an error.

#![allow(clippy::disallowed_methods, reason = "a test is a shell: it may use threads and clocks")]

use std::sync::Arc;

use ottla_broker::Broker;
use ottla_client::{Client, Config, Error, Event, Polled, Producer, Record, StartAt, TopicPartition};

use crate::recorder::{PATIENCE, Recorder, wait_until};

#[test]
fn a_damaged_batch_is_handed_out_as_it_is_and_passed_by_who_asks_for_that() {
    let broker = Broker::builder().memory().topic("orders", 1).spawn().expect("a broker in memory");
    let producer = Producer::new(Config::new(broker.bootstrap_servers())).expect("a producer");
    for value in ["sound", "precious cargo", "sound again"] {
        let delivery = producer.try_enqueue(Record::to("orders").value(value)).expect("taken");
        delivery.wait(PATIENCE).expect("in time").expect("written");
    }
    let mut config = Config::new(broker.bootstrap_servers());
    config.corrupt_returned = true;
    let recorder = Recorder { damaged: Some(b"precious"), ..Recorder::default() };
    let client = Client::with_connector(config, Arc::new(recorder)).expect("a client");
    let (mut consumer, mut seen) = (client.consumer(), Vec::new());
    let start = [(TopicPartition::new("orders", 0), StartAt::Beginning)];
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(consumer.assign(&start)).expect("assigned");
    while seen.len() < 3 {
        match consumer.poll_blocking(PATIENCE).expect("no error") {
            Some(Polled::Records(batch)) => {
                seen.extend(batch.iter().map(|record| (record.expect("sound").offset, None)));
            }
            Some(Polled::Corrupt(corrupt)) => {
                assert!(corrupt.bytes().windows(8).any(|window| window == b"qrecious"));
                assert!(matches!(corrupt.error(), Error::Corrupt { offset: 1, .. }), "{:?}", corrupt.error());
                seen.push((corrupt.first_offset(), Some(corrupt.next_offset())));
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(seen, [(0, None), (1, Some(2)), (2, None)]);
}

/// The producer's id stayed in the filter, because the marker that ends its aborted transaction was not read.
#[test]
fn a_committed_transaction_behind_the_corrupt_marker_of_an_aborted_one_is_returned() {
    assert_eq!(read_past_a_corrupt_marker("false", 2), [(1, Some(2)), (2, None)]);
}

/// The end came before the records that were fetched again.
#[test]
fn the_end_of_a_partition_comes_behind_the_records_that_are_fetched_again() {
    assert_eq!(read_past_a_corrupt_marker("true", 3), [(1, Some(2)), (2, None), (4, None)]);
}

/// Reads an aborted transaction, whose marker is corrupt, and a committed one. Returns the offsets of the first items: of records, of the
/// end of the partition, and the range of a corrupt batch.
fn read_past_a_corrupt_marker(reports_end: &str, items: usize) -> Vec<(i64, Option<i64>)> {
    let broker = Broker::builder().memory().topic("orders", 1).spawn().expect("a broker in memory");
    let mut config = Config::new(broker.bootstrap_servers());
    config.set("transactional.id", "payments").expect("a known property");
    let producer = Producer::new(config).expect("a producer");
    producer.init_transactions_blocking(PATIENCE).expect("initialized");
    producer.begin_transaction().expect("begun");
    producer.send_blocking(Record::to("orders").value("aborted")).expect("acknowledged");
    producer.abort_transaction_blocking(PATIENCE).expect("aborted");
    producer.begin_transaction().expect("begun");
    producer.send_blocking(Record::to("orders").value("committed")).expect("acknowledged");
    producer.commit_transaction_blocking(PATIENCE).expect("committed");

    let mut config = Config::new(broker.bootstrap_servers());
    config.corrupt_returned = true;
    config
        .set_all([("isolation.level", "read_committed"), ("enable.partition.eof", reports_end)])
        .expect("known properties");
    // The key of the marker that aborts, between its length and the length of its value.
    let recorder = Recorder { damaged: Some(b"\x08\0\0\0\0\x0c"), ..Recorder::default() };
    let client = Client::with_connector(config, Arc::new(recorder)).expect("a client");
    let (mut consumer, mut seen) = (client.consumer(), Vec::new());
    let start = [(TopicPartition::new("orders", 0), StartAt::Beginning)];
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(consumer.assign(&start)).expect("assigned");
    while seen.len() < items {
        match consumer.poll_blocking(PATIENCE).expect("no error") {
            Some(Polled::Records(batch)) => {
                seen.extend(batch.iter().map(|record| (record.expect("sound").offset, None)));
            }
            Some(Polled::Corrupt(corrupt)) => {
                seen.push((corrupt.first_offset(), Some(corrupt.next_offset())));
            }
            Some(Polled::Event(Event::EndOfPartition { offset, .. })) => seen.push((offset, None)),
            other => panic!("{other:?}"),
        }
    }
    seen
}

#[test]
fn records_before_an_unreadable_one_are_given_first() {
    let broker = Broker::builder().memory().topic("orders", 1).spawn().expect("a broker in memory");
    let mut config = Config::new(broker.bootstrap_servers());
    config.set("linger.ms", "100").expect("a known property");
    let producer = Producer::new(config).expect("a producer");
    for i in 0..20 {
        let value = if i == 10 { "precious".to_owned() } else { format!("value {i}") };
        drop(producer.enqueue_blocking(Record::to("orders").partition(0).value(&value)).expect("taken"));
    }
    producer.flush_blocking(PATIENCE).expect("written");
    // The length before the value becomes negative.
    let recorder = Recorder { damaged: Some(b"\x10precious"), ..Recorder::default() };
    let mut config = Config::new(broker.bootstrap_servers());
    config.set("check.crcs", "false").expect("a known property");
    let mut consumer = Client::with_connector(config, Arc::new(recorder)).expect("a client").consumer();
    let start = [(TopicPartition::new("orders", 0), StartAt::Beginning)];
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(consumer.assign(&start)).expect("assigned");
    let (mut offsets, mut refused) = (Vec::new(), None);
    wait_until("the damaged record", || {
        refused = consumer.try_next_records(100, |record| offsets.push(record.offset())).err();
        refused.is_some()
    });
    assert_eq!(offsets, (0..10).collect::<Vec<_>>());
    assert!(matches!(refused, Some(Error::Corrupt { .. })), "{refused:?}");
}
