//! A topic that is deleted and created again while a processor consumes it.

#![allow(clippy::disallowed_methods, reason = "a test is a shell: it may use threads")]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ottla_broker::BrokerThread;
use ottla_client::{Client, Config, NewTopic};
use ottla_parallel::{Mode, Order};
use support::*;

fn create_again(broker: &BrokerThread, topic: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let client = Client::new(Config::new(broker.bootstrap_servers())).expect("a client");
        let admin = client.admin();
        admin.delete_topics(&[topic]).await.expect("deleted");
        admin.create_topics(&[NewTopic::new(topic).partitions(1)]).await.expect("created");
    });
}

#[test]
fn records_of_a_topic_created_again_are_handled_from_its_start() {
    for mode in Mode::ALL {
        for order in [Order::Partition, Order::Key] {
            assert_handled_from_the_start(mode, order, 50);
        }
    }
}

/// The first 100 records of the new topic were skipped: the position existed in it.
#[test]
fn records_of_a_longer_topic_created_again_are_handled_from_its_start() {
    for mode in Mode::ALL {
        assert_handled_from_the_start(mode, Order::Key, 150);
    }
}

/// A topic with 100 records is replaced by one with `count` records while its record 90 is handled.
fn assert_handled_from_the_start(mode: Mode, order: Order, count: usize) {
    let broker = broker("orders", 1);
    produce(broker.bootstrap_servers(), "orders", 10, 100);
    let (seen, released) = (Seen::default(), Arc::new(AtomicBool::new(false)));
    let (noted, waits) = (seen.clone(), released.clone());
    let builder = builder(&broker, mode, order).drain(Duration::from_millis(200));
    let processor = start(builder, mode, move |record| {
        noted.note(record.key(), record.partition(), record.offset(), record.value());
        // Offset 90 of the first topic is being handled while the topic is replaced.
        while record.offset() == 90 && !waits.load(Ordering::Relaxed) {
            std::thread::park_timeout(Duration::from_millis(1));
        }
        Ok(())
    });
    await_that("at the record that waits", || seen.all().iter().any(|(_, _, offset, _)| *offset == 90));
    let before = seen.len();
    create_again(&broker, "orders");
    // Values of 1,000 and more tell the new records from the old.
    produce_from(broker.bootstrap_servers(), "orders", 10, 10_000, count);
    released.store(true, Ordering::Relaxed);
    let new = || seen.all().iter().skip(before).filter(|(_, _, _, value)| *value >= 1_000).count();
    await_that("the new records are handled", || new() >= count);
    let config = member(broker.bootstrap_servers(), "workers");
    await_that("the new offset is committed", || committed(config.clone(), "orders", 1) == count as i64);
    processor.stop();
    processor.join().unwrap_or_else(|error| panic!("{mode:?} {order:?}: {error}"));
}

/// The offset behind the old records was committed in the new topic, whose first records were skipped after a restart.
#[test]
fn the_end_of_a_record_of_the_deleted_topic_commits_nothing_in_the_new_one() {
    let broker = broker("orders", 1);
    produce(broker.bootstrap_servers(), "orders", 10, 100);
    let (seen, released) = (Seen::default(), Arc::new(AtomicBool::new(false)));
    let (noted, waits) = (seen.clone(), released.clone());
    let processor = start(builder(&broker, Mode::MultiAsync, Order::None), Mode::MultiAsync, move |record| {
        noted.note(record.key(), record.partition(), record.offset(), record.value());
        while record.offset() == 90 && !waits.load(Ordering::Relaxed) {
            std::thread::park_timeout(Duration::from_millis(1));
        }
        Ok(())
    });
    await_that("all others are handled", || processor.metrics().handled == 99);
    create_again(&broker, "orders");
    await_that("the processor has noticed it", || {
        processor.metrics().partitions.iter().all(|partition| partition.finished.is_none())
    });
    released.store(true, Ordering::Relaxed);
    await_that("the last one is handled", || processor.metrics().handled == 100);
    processor.stop();
    processor.join().expect("stopped");
    let committed = committed_of(member(broker.bootstrap_servers(), "workers"), "orders", 0);
    assert!(committed < 100, "{committed} of a topic without records");
}

/// An incomplete batch kept the partition from starting again: offsets of records before it were committed in the new topic.
#[test]
fn an_incomplete_batch_of_the_deleted_topic_keeps_no_offsets_of_it() {
    let broker = broker("orders", 1);
    produce(broker.bootstrap_servers(), "orders", 1, 1);
    let (begun, released) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (begins, waits) = (begun.clone(), released.clone());
    let builder = builder(&broker, Mode::MultiBatch, Order::Key).batch_wait(Duration::from_secs(3_600));
    let processor = start(builder, Mode::MultiBatch, move |_| {
        begins.store(true, Ordering::Relaxed);
        while !waits.load(Ordering::Relaxed) {
            std::thread::park_timeout(Duration::from_millis(1));
        }
        Ok(())
    });
    await_that("the first record is being handled", || begun.load(Ordering::Relaxed));
    // Their batch waits for more records, as their key is being handled.
    produce_from(broker.bootstrap_servers(), "orders", 1, 1, 4);
    await_that("all are in flight", || {
        processor.metrics().partitions.iter().any(|partition| partition.in_flight == 5)
    });
    create_again(&broker, "orders");
    await_that("the processor has noticed it", || {
        processor.metrics().partitions.iter().all(|partition| partition.finished.is_none())
    });
    released.store(true, Ordering::Relaxed);
    await_that("the first one is handled", || processor.metrics().handled == 1);
    processor.stop();
    processor.join().expect("stopped");
    assert_eq!(committed_of(member(broker.bootstrap_servers(), "workers"), "orders", 0), 0);
}
