//! Exactly-once mode: transactions that take long, or whose coordinator is away.

#![allow(clippy::disallowed_methods, reason = "a test is a shell: it may use threads")]

mod support;

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use ottla_client::Record;
use ottla_parallel::{Failure, Mode, Order, Processor, Retry};
use support::*;

/// The coordinator aborted the transaction and fenced its producer. The processor ended, although its retries had no limit.
#[test]
fn an_outage_longer_than_the_transaction_timeout_does_not_end_the_processor() {
    let broker = broker("orders", 1);
    produce(broker.bootstrap_servers(), "orders", 0, 2);
    let mut config = member(broker.bootstrap_servers(), "workers");
    config.set("transaction.timeout.ms", "4500").expect("a property");
    static OUTAGE: OnceLock<Instant> = OnceLock::new();
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
        committed(config.clone(), "orders", 1) >= 2
    });
    processor.stop();
    processor.join().expect("stopped");
    assert_eq!(read_all(config, "invoices", 1).len(), 1, "of the transaction that was committed");
}
