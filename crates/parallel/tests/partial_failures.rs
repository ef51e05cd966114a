//! Work items of which some records fail: the offsets without records beside them, and the outputs of the others.

#![allow(clippy::disallowed_methods, reason = "a test is a shell: it may use threads")]

mod support;

use std::time::Duration;

use ottla_broker::BrokerThread;
use ottla_client::{Config, Producer, Record};
use ottla_parallel::{BatchFailure, Failure, Mode, Order, Retry};
use support::*;

const TRANSACTIONS: i64 = 40;
/// Records of a transaction. Its marker takes one offset more.
const RECORDS: i64 = 3;

fn filled() -> BrokerThread {
    let broker = broker("orders", 1);
    let mut config = Config::new(broker.bootstrap_servers());
    config.set("transactional.id", "shop").expect("a property");
    let producer = Producer::new(config).expect("a producer");
    producer.init_transactions_blocking(PATIENCE).expect("initialized");
    for number in 0..TRANSACTIONS {
        producer.begin_transaction().expect("begun");
        for value in number * RECORDS..(number + 1) * RECORDS {
            let value = value.to_string();
            let _unawaited = producer.enqueue_blocking(Record::to("orders").value(&value)).expect("taken");
        }
        producer.commit_transaction_blocking(PATIENCE).expect("committed");
    }
    broker
}

/// The marker behind a record that was held, or that the circuit breaker kept back, stayed in flight for good, and so did the
/// remainders of estimates of memory: the group's offset did not move past the marker, and the partition was paused in the end.
#[test]
fn commits_pass_offsets_without_records_behind_a_failed_one() {
    for (retry, failures_max) in [
        (Retry::times(3).delay(Duration::from_millis(1)).holding(), None),
        (Retry::times(3).delay(Duration::from_millis(1)), Some(1)),
    ] {
        let (broker, seen) = (filled(), Seen::default());
        let noted = seen.clone();
        let mut builder = builder(&broker, Mode::MultiAsync, Order::Partition).retry(retry);
        if let Some(failures_max) = failures_max {
            builder = builder.circuit_breaker(failures_max, Duration::from_millis(1));
        }
        let processor = builder
            .start_each(move |message| {
                if message.offset() % 5 == 0 && message.attempt() == 1 {
                    return Err(Failure::new("not yet"));
                }
                noted.note(message.key(), message.partition(), message.offset(), message.value());
                Ok(())
            })
            .expect("a processor");
        await_that("all handled", || seen.distinct() as i64 == TRANSACTIONS * RECORDS);
        let metrics = || processor.metrics();
        await_that("nothing is in flight", || {
            metrics().partitions.iter().all(|it| (it.in_flight, it.in_flight_bytes) == (0, 0))
        });
        processor.stop();
        processor.join().expect("stopped");
        let end = TRANSACTIONS * (RECORDS + 1);
        assert_eq!(committed(member(broker.bootstrap_servers(), "workers"), "orders", 1), end);
    }
}

/// A batch in which one record failed lost the outputs of the others, whose offsets were committed.
#[test]
fn the_outputs_of_a_batch_are_written_although_one_of_its_records_fails() {
    for exactly_once in [false, true] {
        let broker = broker("orders", 1);
        produce(broker.bootstrap_servers(), "orders", 0, 100);
        let mut builder = builder(&broker, Mode::MultiBatch, Order::Partition)
            .batch(10)
            .retry(Retry::times(3).delay(Duration::from_millis(1)));
        if exactly_once {
            builder = builder.exactly_once("billing");
        }
        let processor = builder
            .start_batches(move |messages| {
                let mut failed = Vec::new();
                for (index, message) in messages.iter().enumerate() {
                    if message.offset() % 7 == 3 && messages.attempt() == 1 {
                        failed.push((index, Failure::new("not yet")));
                        continue;
                    }
                    messages.send(&Record::to("invoices").value(message.value().unwrap_or_default()));
                }
                if failed.is_empty() { Ok(()) } else { Err(BatchFailure::records(failed)) }
            })
            .expect("a processor");
        await_that("all handled", || processor.metrics().handled == 100);
        processor.stop();
        processor.join().expect("stopped");
        let config = member(broker.bootstrap_servers(), "workers");
        let mut values: Vec<i64> = read_all(config, "invoices", 1)
            .into_iter()
            .filter_map(|(_, record)| String::from_utf8(record.value?.to_vec()).ok()?.parse().ok())
            .collect();
        values.sort_unstable();
        assert_eq!(values, (0..100).collect::<Vec<_>>(), "exactly once: {exactly_once}");
    }
}
