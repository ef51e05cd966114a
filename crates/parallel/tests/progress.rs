//! Handlers that block, wait or fail, beside records that must make progress.

#![allow(clippy::disallowed_methods, reason = "a test is a shell: it may use threads")]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use ottla_broker::BrokerThread;
use ottla_client::{Config, Consumer, Producer, Record, TopicPartition};
use ottla_parallel::{Failure, Mode, Order, Processor, Retry};
use support::*;

/// A broker with so many records in each of two partitions. Record `n` has the key `n % 10`.
fn filled(each: usize) -> BrokerThread {
    let broker = broker("orders", 2);
    let producer = Producer::new(Config::new(broker.bootstrap_servers())).expect("a producer");
    for number in 0..each {
        let (key, value) = (format!("k{}", number % 10), number.to_string());
        for partition in 0..2 {
            let record = Record::to("orders").partition(partition).key(&key).value(&value);
            let _unawaited = producer.enqueue_blocking(record).expect("taken");
        }
    }
    producer.flush_blocking(PATIENCE).expect("written");
    broker
}

/// A fetched batch, of up to a megabyte of records, was queued at once.
#[test]
fn the_queue_keeps_to_its_limit_in_the_order_of_keys() {
    let broker = broker("orders", 1);
    produce(broker.bootstrap_servers(), "orders", 5_000, 5_000);
    let release = Arc::new(AtomicBool::new(false));
    let released = release.clone();
    let processor = builder(&broker, Mode::MultiAsync, Order::Key)
        .workers(2)
        .queue(10)
        .start_each(move |_| {
            await_that("released", || released.load(Ordering::Relaxed));
            Ok(())
        })
        .expect("a processor");
    await_that("the queue is full", || {
        processor.metrics().partitions.iter().any(|partition| partition.paused)
    });
    // Those behind the two keys that are being handled do not count.
    let queued = processor.metrics().queued;
    assert!((5..100).contains(&queued), "{queued} records");
    release.store(true, Ordering::Relaxed);
    await_that("all are handled", || processor.metrics().handled == 5_000);
    processor.stop();
    processor.join().expect("stopped");
}

/// They were handled in the order of the numbers of their lanes, so that a commit waited for records that came first.
#[test]
fn incomplete_batches_of_keys_are_handled_in_the_order_of_their_first_records() {
    let broker = broker("orders", 1);
    produce(broker.bootstrap_servers(), "orders", 10, 100);
    let first_offsets = Arc::new(std::sync::Mutex::new(Vec::new()));
    let noted = first_offsets.clone();
    let processor = builder(&broker, Mode::MultiBatch, Order::Key)
        .workers(1)
        .batch_wait(Duration::from_secs(3_600))
        .start_batches(move |messages| {
            let first = messages.iter().next().map(|record| record.offset());
            noted.lock().expect("no panic").extend(first);
            Ok(())
        })
        .expect("a processor");
    await_that("all are handled", || processor.metrics().handled == 100);
    processor.stop();
    processor.join().expect("stopped");
    let first_offsets = first_offsets.lock().expect("no panic");
    assert!(first_offsets.len() > 1 && first_offsets.is_sorted(), "{first_offsets:?}");
}

/// With [`Order::Key`], only key and value counted against the limit of the memory in flight.
#[test]
fn headers_count_as_memory_in_flight_in_any_order() {
    for order in [Order::None, Order::Partition, Order::Key] {
        let broker = broker("orders", 1);
        let producer = Producer::new(Config::new(broker.bootstrap_servers())).expect("a producer");
        let trace = "x".repeat(50_000);
        let record = Record::to("orders").key("k").value("1").header("trace", &trace);
        let delivery = producer.enqueue_blocking(record).expect("taken");
        delivery.wait(PATIENCE).expect("in time").expect("written");
        let release = Arc::new(AtomicBool::new(false));
        let released = release.clone();
        let processor = builder(&broker, Mode::MultiAsync, order)
            .start_each(move |_| {
                await_that("released", || released.load(Ordering::Relaxed));
                Ok(())
            })
            .expect("a processor");
        await_that("it is in flight", || {
            processor.metrics().partitions.iter().any(|partition| partition.in_flight == 1)
        });
        let bytes = processor.metrics().partitions[0].in_flight_bytes;
        assert!(bytes >= trace.len(), "{order:?}: {bytes} bytes");
        release.store(true, Ordering::Relaxed);
        processor.stop();
        processor.join().expect("stopped");
    }
}

/// The records behind a stuck or held record filled the queue of all partitions and keys, and no other record was handled.
#[test]
fn a_stuck_or_held_record_stops_neither_other_partitions_nor_other_keys() {
    for (order, queue) in [(Order::Partition, 1_000), (Order::Key, 10)] {
        for holds in [false, true] {
            let broker = filled(10_000);
            let (seen, release) = (Seen::default(), Arc::new(AtomicBool::new(false)));
            let (noted, released) = (seen.clone(), release.clone());
            let processor = builder(&broker, Mode::MultiAsync, order)
                .queue(queue)
                .retry(Retry::forever().holding())
                .start_each(move |message| {
                    if message.partition() == 0 && message.offset() == 0 {
                        if holds && !released.load(Ordering::Relaxed) {
                            return Err(Failure::new("not yet"));
                        }
                        await_that("released", || released.load(Ordering::Relaxed));
                    }
                    noted.note(message.key(), message.partition(), message.offset(), message.value());
                    Ok(())
                })
                .expect("a processor");
            await_that("the others are handled", || {
                seen.all().iter().filter(|(_, partition, _, _)| *partition == 1).count() >= 5_000
            });
            if order == Order::Partition {
                let is_of_first = |(_, partition, _, _): &Handled| *partition == 0;
                assert!(!seen.all().iter().any(is_of_first), "the first record holds its partition");
            }
            release.store(true, Ordering::Relaxed);
            await_that("all are handled", || seen.distinct() == 20_000);
            processor.stop();
            processor.join().expect("stopped");
        }
    }
}

/// When the records of a stuck key were more than half of those in flight, the other keys of its partition got one round a second.
#[test]
fn a_stuck_key_with_most_of_the_records_in_flight_does_not_slow_other_keys() {
    let broker = broker("orders", 2);
    let mut config = Config::new(broker.bootstrap_servers());
    // A round of the dispatcher may take a whole batch, so these are small.
    config.set("batch.num.messages", "10").expect("a property");
    let producer = Producer::new(config).expect("a producer");
    for number in 0..10_000 {
        let key = if number % 3 == 0 { "k0".to_owned() } else { format!("k{number}") };
        for partition in 0..2 {
            let record = Record::to("orders").partition(partition).key(&key).value("1");
            let _unawaited = producer.enqueue_blocking(record).expect("taken");
        }
    }
    producer.flush_blocking(PATIENCE).expect("written");
    let (handled, release) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let (others, released) = (handled.clone(), release.clone());
    let processor = builder(&broker, Mode::MultiAsync, Order::Key)
        .workers(4)
        .queue(10)
        .records_in_flight(4_000)
        .start_each(move |message| {
            if message.key() == Some(b"k0".as_slice()) {
                await_that("released", || released.load(Ordering::Relaxed));
            } else {
                others.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        })
        .expect("a processor");
    // Half of the limit is reached after about 4,000, and all of it after about 7,600.
    await_that("the others are handled", || handled.load(Ordering::Relaxed) >= 5_500);
    release.store(true, Ordering::Relaxed);
    await_that("all are handled", || processor.metrics().handled >= 20_000);
    processor.stop();
    processor.join().expect("stopped");
}

/// A worker's thread has a budget of 128 such calls until it waits for work. The next call timed out, although its reply was there.
#[test]
fn a_blocking_call_in_a_handler_gets_its_reply_after_any_number_of_calls() {
    let broker = filled(150);
    let consumer = Consumer::new(member(broker.bootstrap_servers(), "other")).expect("a consumer");
    let other = consumer.control().clone();
    let at = TopicPartition::new("orders", 0);
    let processor = builder(&broker, Mode::Sync, Order::Partition)
        .retry(Retry::never())
        .start_each(move |_| {
            other.committed_offsets(std::slice::from_ref(&at)).wait(PATIENCE)?;
            Ok(())
        })
        .expect("a processor");
    await_that("all are handled", || {
        assert!(!processor.is_stopped(), "{:?}", processor.outcome());
        processor.metrics().handled == 300
    });
    processor.stop();
    processor.join().expect("stopped");
}

/// The record was not tried again, and the next owner of the partition handled all records after it once more.
#[test]
fn a_stop_repeats_no_record_although_one_before_it_waits_for_its_retry() {
    let broker = filled(50);
    let hour = Duration::from_secs(3_600);
    let processor = builder(&broker, Mode::MultiAsync, Order::None)
        .retry(Retry::times(3).delay(hour).delay_max(hour))
        .start_each(|message| {
            let fails = message.partition() == 0 && message.offset() == 5 && message.attempt() == 1;
            if fails { Err(Failure::new("not yet")) } else { Ok(()) }
        })
        .expect("a processor");
    await_that("the others are handled", || processor.metrics().handled == 99);
    processor.stop();
    processor.join().expect("stopped");
    assert_eq!(committed(member(broker.bootstrap_servers(), "workers"), "orders", 2), 100);
}

/// The lag of the group stayed above 0 until the next record was handled, later only after a restart.
#[test]
fn offsets_without_records_at_the_end_of_a_partition_are_committed() {
    let broker = broker("orders", 1);
    let mut config = Config::new(broker.bootstrap_servers());
    config.set("transactional.id", "shop").expect("a property");
    let producer = Producer::new(config).expect("a producer");
    producer.init_transactions_blocking(PATIENCE).expect("initialized");
    let write_ten = || {
        producer.begin_transaction().expect("begun");
        for _ in 0..10 {
            let delivery = producer.enqueue_blocking(Record::to("orders").value("1")).expect("taken");
            delivery.wait(PATIENCE).expect("in time").expect("written");
        }
    };
    write_ten();
    producer.commit_transaction_blocking(PATIENCE).expect("committed");
    let mut config = member(broker.bootstrap_servers(), "workers");
    config.set("isolation.level", "read_committed").expect("a property");
    let processor = Processor::builder(config.clone(), Mode::MultiAsync)
        .topics(["orders"])
        .start_each(|_| Ok(()))
        .expect("a processor");
    await_that("the first ten are handled", || processor.metrics().handled == 10);
    write_ten();
    producer.abort_transaction_blocking(PATIENCE).expect("aborted");
    // Twenty records and two markers.
    await_that("the end is committed", || committed_of(config.clone(), "orders", 0) == 22);
    processor.stop();
    processor.join().expect("stopped");
    assert_eq!(committed_of(config.clone(), "orders", 0), 22);
    write_ten();
    producer.abort_transaction_blocking(PATIENCE).expect("aborted");
    let processor = Processor::builder(config.clone(), Mode::MultiAsync)
        .topics(["orders"])
        .start_each(|_| Ok(()))
        .expect("a processor");
    await_that("the end is committed without a record", || committed_of(config.clone(), "orders", 0) == 33);
    processor.stop();
    processor.join().expect("stopped");
}

/// A trial was a whole work item, and the handler failed as often as before the pause.
#[test]
fn a_trial_of_the_circuit_breaker_ends_at_the_first_failure() {
    let broker = broker("orders", 1);
    produce(broker.bootstrap_servers(), "orders", 0, 20_000);
    let outage = Arc::new(AtomicBool::new(true));
    let is_out = outage.clone();
    let (pause, hour) = (Duration::from_millis(1), Duration::from_secs(3_600));
    // One worker, whose work items have many records once it knows that they are quick. Failed records do not come again.
    let processor = builder(&broker, Mode::Sync, Order::Partition)
        .retry(Retry::times(1).delay(hour).delay_max(hour))
        .circuit_breaker(10, pause)
        .circuit_breaker_pause_max(pause)
        .start_each(move |message| {
            let fails = message.offset() >= 10_000 && is_out.load(Ordering::Relaxed);
            if fails { Err(Failure::new("database away")) } else { Ok(()) }
        })
        .expect("a processor");
    await_that("it has opened many times", || processor.metrics().breaker_opened >= 30);
    let metrics = processor.metrics();
    // Up to 19 failures opened it: the last of one work item, and as many as are allowed in the next.
    assert!(metrics.failures <= metrics.breaker_opened + 19, "{metrics:?}");
    outage.store(false, Ordering::Relaxed);
    await_that("the rest is handled", || {
        let metrics = processor.metrics();
        metrics.handled + metrics.failures >= 20_000
    });
    processor.stop();
    processor.join().expect("stopped");
}
