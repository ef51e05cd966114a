//! Processors that stop: the records that are handled before that, and the time that it takes.

#![allow(clippy::disallowed_methods, reason = "a test is a shell: it may use threads")]

mod support;

use std::time::Duration;

use ottla_broker::{ApiKey, ErrorCode, Fault, FaultRule};
use ottla_client::Record;
use ottla_parallel::{Error, Failure, GiveUp, Mode, Order, Processor, Retry};
use support::*;

/// The later records of the key were handled before the processor stopped, and once more by the next owner of the partition.
#[test]
fn no_record_of_a_key_is_handled_after_one_that_stops_the_processor() {
    for is_fatal in [false, true] {
        let broker = broker("orders", 1);
        produce(broker.bootstrap_servers(), "orders", 1, 3);
        let seen = Seen::default();
        let noted = seen.clone();
        let give_up = if is_fatal { GiveUp::Skip } else { GiveUp::Stop };
        let mut retry = Retry::never();
        if !is_fatal {
            retry = retry.holding();
        }
        let processor = builder(&broker, Mode::MultiAsync, Order::Key)
            .workers(1)
            .retry(retry)
            .give_up(give_up)
            .start_each(move |message| {
                noted.note(message.key(), message.partition(), message.offset(), message.value());
                let failure = if is_fatal { Failure::fatal("no program") } else { Failure::new("no") };
                if message.offset() == 0 { Err(failure) } else { Ok(()) }
            })
            .expect("a processor");
        match processor.join() {
            Err(Error::Record { offset: 0, .. } | Error::Handler { offset: 0, .. }) => {}
            other => panic!("it stops with the error of the first record: {other:?}"),
        }
        let offsets: Vec<i64> = seen.all().into_iter().map(|(_, _, offset, _)| offset).collect();
        assert_eq!(offsets, [0], "fatal: {is_fatal}");
        assert_eq!(committed_of(member(broker.bootstrap_servers(), "workers"), "orders", 0), 0);
    }
}

/// The processor did not poll until the send buffer had room, after `delivery.timeout.ms`.
#[test]
fn a_full_send_buffer_holds_up_neither_a_rebalance_nor_the_stop() {
    let broker = broker("orders", 2);
    produce(broker.bootstrap_servers(), "orders", 20, 40);
    let refuses = FaultRule::new(ApiKey::Produce, Fault::Fail(ErrorCode::NotEnoughReplicas)).times(1_000_000);
    broker.cluster().add_fault(refuses).expect("a fault");
    let mut config = member(broker.bootstrap_servers(), "workers");
    config.set("queue.buffering.max.messages", "1").expect("a property");
    let first = Processor::builder(config, Mode::MultiAsync)
        .topics(["orders"])
        .drain(Duration::from_millis(200))
        .start_each(|message| {
            message.send(&Record::to("invoices").value(message.value().unwrap_or_default()));
            Ok(())
        })
        .expect("a processor");
    await_that("there are more outputs than the buffer takes", || first.metrics().handled >= 4);
    let second = builder(&broker, Mode::MultiAsync, Order::None).start_each(|_| Ok(())).expect("a processor");
    await_that("the second has a partition", || second.metrics().handled >= 10);
    first.stop();
    first.wait(PATIENCE).expect("stopped in time").expect("without an error");
    // The records whose outputs were not written are not committed.
    await_that("the second has all partitions", || second.metrics().handled >= 40);
    second.stop();
    second.join().expect("stopped");
    assert_eq!(committed(member(broker.bootstrap_servers(), "workers"), "orders", 2), 40);
}
