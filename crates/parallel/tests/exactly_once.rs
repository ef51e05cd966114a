//! Exactly-once mode: transactions that take long, or whose coordinator is away.

#![allow(clippy::disallowed_methods, reason = "a test is a shell: it may use threads")]

mod support;

use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use ottla_broker::{ApiKey, ErrorCode, Fault, FaultRule};
use ottla_client::{Config, Producer, Record};
use ottla_parallel::{Failure, GiveUp, Mode, Order, Processor, Retry};
use support::*;

/// The offset that the processor has committed in its only partition.
fn committed_by(processor: &Processor) -> Option<i64> {
    processor.metrics().partitions.first().and_then(|partition| partition.committed)
}

/// The coordinator aborted the transaction and fenced its producer. The processor ended, although its retries had no limit.
#[test]
fn an_outage_longer_than_the_transaction_timeout_does_not_end_the_processor() {
    static OUTAGE: OnceLock<Instant> = OnceLock::new();
    let broker = broker("orders", 1);
    produce(broker.bootstrap_servers(), "orders", 0, 2);
    let mut config = member(broker.bootstrap_servers(), "workers");
    config.set("transaction.timeout.ms", "4500").expect("a property");
    let processor = Processor::builder(config.clone(), Mode::MultiAsync)
        .topics(["orders"])
        .order(Order::Partition)
        .exactly_once("billing")
        .retry(Retry::forever().delay(Duration::from_millis(50)).delay_max(Duration::from_millis(200)))
        .start_each(|message| {
            if message.offset() == 0 {
                message.send(&Record::to("invoices").value("0"));
            } else if OUTAGE.get_or_init(Instant::now).elapsed() < Duration::from_secs(8) {
                return Err(Failure::new("not yet"));
            }
            Ok(())
        })
        .expect("a processor");
    await_that("both are committed", || {
        assert!(!processor.is_stopped(), "{:?}", processor.outcome());
        committed_by(&processor) == Some(2)
    });
    processor.stop();
    processor.join().expect("stopped");
    assert_eq!(read_all(config, "invoices", 1).len(), 1, "of the transaction that was committed");
}

/// The processor waited for the initialization of its transactions for three minutes.
#[test]
fn a_processor_without_a_coordinator_stops_at_once() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let closed = listener.local_addr().expect("bound");
    drop(listener);
    let processor = Processor::builder(member(closed.to_string(), "workers"), Mode::MultiAsync)
        .topics(["orders"])
        .exactly_once("billing")
        .start_each(|_| Ok(()))
        .expect("a processor");
    assert!(processor.wait(Duration::from_millis(300)).is_none(), "it waits for the coordinator");
    processor.stop();
    processor.wait(Duration::from_secs(15)).expect("stopped in time").expect("without an error");
}

/// The commit of the last transaction was tried for six minutes.
#[test]
fn a_stop_does_not_wait_for_a_coordinator_that_does_not_respond() {
    let broker = broker("orders", 1);
    produce(broker.bootstrap_servers(), "orders", 0, 10);
    let hangs = FaultRule::new(ApiKey::EndTxn, Fault::Hang).times(1_000);
    broker.cluster().add_fault(hangs).expect("a fault");
    let config = member(broker.bootstrap_servers(), "workers");
    let processor = Processor::builder(config.clone(), Mode::MultiAsync)
        .topics(["orders"])
        .exactly_once("billing")
        .drain(Duration::from_millis(200))
        // The stop ends the first transaction.
        .transaction(Duration::from_secs(3_600))
        .start_each(|message| {
            message.send(&Record::to("invoices").value(message.value().unwrap_or_default()));
            Ok(())
        })
        .expect("a processor");
    await_that("all handled", || processor.metrics().handled == 10);
    processor.stop();
    let ended = processor.wait(PATIENCE).expect("stopped in time");
    assert!(ended.is_err(), "the last transaction is not committed");
    drop(processor);
    broker.cluster().clear_intercepts_of(ApiKey::EndTxn);
    // The next processor ends the transaction, and handles the records again.
    let processor = Processor::builder(config.clone(), Mode::MultiAsync)
        .topics(["orders"])
        .exactly_once("billing")
        .start_each(|message| {
            message.send(&Record::to("invoices").value(message.value().unwrap_or_default()));
            Ok(())
        })
        .expect("a processor");
    await_that("all are committed", || committed_by(&processor) == Some(10));
    processor.stop();
    processor.join().expect("stopped");
    assert_eq!(read_all(config, "invoices", 1).len(), 10);
}

/// The records had failed fast, so one worker seemed to suffice for all of them. The transaction was aborted at the drain deadline.
#[test]
fn all_workers_handle_what_is_due_while_the_last_transaction_ends() {
    let broker = broker("orders", 1);
    produce(broker.bootstrap_servers(), "orders", 0, 4);
    let failed = Arc::new(AtomicUsize::new(0));
    let fails = failed.clone();
    let config = member(broker.bootstrap_servers(), "workers");
    let processor = Processor::builder(config.clone(), Mode::MultiAsync)
        .topics(["orders"])
        .workers(4)
        .exactly_once("billing")
        .drain(Duration::from_secs(10))
        .retry(Retry::times(3).delay(Duration::from_secs(1)))
        .start_each(move |message| {
            if message.attempt() == 1 {
                fails.fetch_add(1, Ordering::Relaxed);
                return Err(Failure::new("not yet"));
            }
            // Four in a row exceed the deadline.
            let end = Instant::now() + Duration::from_secs(3);
            while let Some(left) = end.checked_duration_since(Instant::now()) {
                std::thread::park_timeout(left);
            }
            Ok(())
        })
        .expect("a processor");
    await_that("all have failed once", || failed.load(Ordering::Relaxed) == 4);
    processor.stop();
    processor.join().expect("stopped");
    assert_eq!(committed(config, "orders", 1), 4);
}

/// The next output of the failed transaction was refused, and the processor ended with an error of that record.
#[test]
fn an_output_that_fails_within_a_transaction_aborts_it_and_the_records_are_handled_again() {
    let broker = broker("orders", 1);
    produce(broker.bootstrap_servers(), "orders", 0, 50);
    let refuses = FaultRule::new(ApiKey::Produce, Fault::Fail(ErrorCode::TransactionAbortable));
    broker.cluster().add_fault(refuses).expect("a fault");
    let refused = Arc::new(AtomicBool::new(false));
    let is_refused = refused.clone();
    let config = member(broker.bootstrap_servers(), "workers");
    let processor = Processor::builder(config.clone(), Mode::Sync)
        .topics(["orders"])
        .exactly_once("billing")
        .transaction(Duration::from_secs(3))
        .start_each(move |message| {
            if message.offset() > 0 {
                await_that("the first output is refused", || is_refused.load(Ordering::Relaxed));
                // One of the next outputs, not necessarily the first, follows the client's receipt of the error.
                std::thread::park_timeout(Duration::from_millis(20));
            }
            message.send(&Record::to("invoices").value(message.value().unwrap_or_default()));
            Ok(())
        })
        .expect("a processor");
    await_that("the fault has come", || broker.cluster().faults().is_empty());
    refused.store(true, Ordering::Relaxed);
    await_that("all are committed", || {
        assert!(!processor.is_stopped(), "{:?}", processor.outcome());
        committed_by(&processor) == Some(50)
    });
    processor.stop();
    processor.join().expect("stopped");
    assert_eq!(read_all(config, "invoices", 1).len(), 50);
}

/// The letter counted for each transaction, although one was aborted and its letter is not read.
#[test]
fn a_dead_letter_counts_once_its_transaction_is_committed() {
    let broker = broker("orders", 1);
    produce(broker.bootstrap_servers(), "orders", 0, 1);
    let refuses = FaultRule::new(ApiKey::Produce, Fault::Fail(ErrorCode::TransactionAbortable));
    broker.cluster().add_fault(refuses).expect("a fault");
    let config = member(broker.bootstrap_servers(), "workers");
    let handled = Arc::new(AtomicUsize::new(0));
    let counted = handled.clone();
    let processor = Processor::builder(config.clone(), Mode::Sync)
        .topics(["orders"])
        .exactly_once("billing")
        .give_up(GiveUp::DeadLetter("letters".into()))
        .start_each(move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
            Err(Failure::refused("no order"))
        })
        .expect("a processor");
    await_that("the record is committed", || {
        assert!(!processor.is_stopped(), "{:?}", processor.outcome());
        committed_by(&processor) == Some(1)
    });
    assert_eq!(processor.metrics().dead_letters, 1);
    processor.stop();
    processor.join().expect("stopped");
    assert_eq!(handled.load(Ordering::Relaxed), 2, "the first transaction was aborted");
    assert_eq!(read_all(config, "letters", 1).len(), 1);
}

/// The lag of the group stayed above 0 until the next record was handled: there was no transaction for them.
#[test]
fn offsets_without_records_at_the_end_of_a_partition_are_committed_in_a_transaction() {
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
    let config = member(broker.bootstrap_servers(), "workers");
    let processor = Processor::builder(config.clone(), Mode::MultiAsync)
        .topics(["orders"])
        .exactly_once("billing")
        .start_each(|_| Ok(()))
        .expect("a processor");
    await_that("the first ten are committed", || committed_by(&processor) == Some(11));
    write_ten();
    producer.abort_transaction_blocking(PATIENCE).expect("aborted");
    // Twenty records and two markers.
    await_that("the end is committed", || committed_by(&processor) == Some(22));
    processor.stop();
    processor.join().expect("stopped");
    assert_eq!(committed_of(config, "orders", 0), 22);
}
