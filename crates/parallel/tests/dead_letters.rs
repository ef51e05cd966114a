//! Dead letters that are larger than a record may be.

#![allow(clippy::disallowed_methods, reason = "a test is a shell: it may use threads")]

mod support;

use std::collections::BTreeMap;

use ottla_broker::BrokerThread;
use ottla_client::{Client, Config, NewTopic, OwnedRecord, Producer, Record};
use ottla_parallel::{Failure, GiveUp, Mode, Order, Retry};
use support::*;

const LARGE: usize = 2_000_000;

/// A broker with a topic of large records: this one and a small one.
fn filled(large: Record<'_>) -> BrokerThread {
    let broker = broker("dead", 1);
    let mut config = Config::new(broker.bootstrap_servers());
    config.set("message.max.bytes", "3000000").expect("a property");
    let client = Client::new(config).expect("a client");
    let topic = NewTopic::new("orders").partitions(1).config("max.message.bytes", "3000000");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(client.admin().create_topics(&[topic])).expect("created");
    let producer: Producer = client.producer();
    for record in [large, Record::to("orders").key("small").value("1")] {
        producer.enqueue_blocking(record).expect("taken").wait(PATIENCE).expect("in time").expect("written");
    }
    broker
}

/// Refuses the first record. Returns its dead letter.
fn letter_of(broker: &BrokerThread, failure: &'static (dyn Fn() -> Failure + Sync)) -> OwnedRecord {
    let processor = builder(broker, Mode::MultiAsync, Order::Key)
        .retry(Retry::never())
        .give_up(GiveUp::DeadLetter("dead".into()))
        .start_each(move |message| if message.offset() == 0 { Err(failure()) } else { Ok(()) })
        .expect("a processor");
    await_that("one dead letter, one handled", || {
        assert!(!processor.is_stopped(), "{:?}", processor.outcome());
        let metrics = processor.metrics();
        let is_done = metrics.partitions.iter().all(|it| it.in_flight == 0);
        is_done && (metrics.handled, metrics.dead_letters) == (1, 1)
    });
    processor.stop();
    processor.join().expect("stopped");
    let config = member(broker.bootstrap_servers(), "workers");
    assert_eq!(committed(config.clone(), "orders", 1), 2);
    let mut letters = read_all(config, "dead", 1);
    assert_eq!(letters.len(), 1);
    letters.remove(0).1
}

fn headers(letter: &OwnedRecord) -> BTreeMap<String, String> {
    let text = |value: Option<&[u8]>| String::from_utf8(value.unwrap_or_default().to_vec()).expect("text");
    letter.headers.iter().map(|(name, value)| (name.clone(), text(value.as_deref()))).collect()
}

/// The processor stopped, and so did each next owner of the partition: the record was larger than `message.max.bytes`.
#[test]
fn a_dead_letter_that_is_too_large_loses_its_value() {
    let value = vec![b'x'; LARGE];
    let broker = filled(Record::to("orders").key("large").value(&value).header("trace", "7"));
    let letter = letter_of(&broker, &|| Failure::refused("not ours"));
    assert_eq!((letter.key.as_deref(), letter.value.as_deref()), (Some(&b"large"[..]), None));
    let headers = headers(&letter);
    assert_eq!((&*headers["trace"], &*headers["ottla.error.reason"]), ("7", "not ours"));
    assert_eq!(headers["ottla.error.bytes"], (LARGE + "large".len() + "trace7".len()).to_string());
}

/// The same, with the size in the record's key and headers.
#[test]
fn a_dead_letter_that_is_too_large_without_its_value_loses_its_headers_and_its_key() {
    let large = "x".repeat(LARGE);
    let broker = filled(Record::to("orders").key("small").value("1").header("trace", &large));
    let letter = letter_of(&broker, &|| Failure::refused("not ours"));
    assert_eq!((letter.key.as_deref(), letter.value.as_deref()), (Some(&b"small"[..]), None));
    assert!(!headers(&letter).contains_key("trace"));
    let broker = filled(Record::to("orders").key(&large).value("1"));
    let letter = letter_of(&broker, &|| Failure::refused("not ours"));
    assert_eq!((letter.key.as_deref(), letter.value.as_deref()), (None, None));
    assert_eq!(headers(&letter)["ottla.error.offset"], "0");
}

/// The reason of a failure was written whole, and the dead letter was larger than a record may be.
#[test]
fn the_reason_in_a_dead_letter_is_shortened() {
    let broker = filled(Record::to("orders").key("large").value("1"));
    let letter = letter_of(&broker, &|| Failure::new("é".repeat(LARGE / 2)));
    assert_eq!(letter.value.as_deref(), Some(&b"1"[..]));
    assert_eq!(headers(&letter)["ottla.error.reason"], "é".repeat(2048));
}
