//! Offsets without records, such as those of transaction markers, beside records that fail.

#![allow(clippy::disallowed_methods, reason = "a test is a shell: it may use threads")]

mod support;

use std::time::Duration;

use ottla_broker::BrokerThread;
use ottla_client::{Config, Producer, Record};
use ottla_parallel::{Failure, Mode, Order, Retry};
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
