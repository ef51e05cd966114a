//! Stories of the consumer against the embedded broker: single records, processed offsets, and ends of partitions.

#![allow(clippy::disallowed_methods, reason = "a test is a shell: it may use threads")]

use std::sync::Arc;
use std::time::Duration;

use ottla_broker::{Broker, BrokerThread};
use ottla_client::{
    Client, Config, Consumer, Event, Polled, PolledRecord, PolledRecords, Record, StartAt, Timeouts,
    TopicPartition,
};
use ottla_protocol::ApiKey;
use tokio::runtime::Runtime;

use crate::recorder::{PATIENCE, Recorder, wait_until};

/// Long enough for an unwanted event to occur.
const A_WHILE: Duration = Duration::from_millis(300);

fn broker(partitions: i32) -> BrokerThread {
    Broker::builder().memory().topic("orders", partitions).spawn().expect("a broker in memory")
}

fn client(broker: &BrokerThread, properties: &[(&str, &str)]) -> Client {
    let mut config = Config::new(broker.bootstrap_servers());
    for (name, value) in properties {
        config.set(name, value).expect("a known property");
    }
    Client::new(config).expect("a client")
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

fn first() -> TopicPartition {
    TopicPartition::new("orders", 0)
}

/// Produces each value in its own batch, in partition 0.
fn produce(client: &Client, values: impl IntoIterator<Item = String>) {
    let producer = client.producer();
    for value in values {
        drop(producer.enqueue_blocking(Record::to("orders").partition(0).value(&value)).expect("taken"));
        producer.flush_blocking(PATIENCE).expect("written");
    }
}

fn reader(client: &Client) -> Consumer {
    let mut consumer = client.consumer();
    runtime().block_on(consumer.assign(&[(first(), StartAt::Beginning)])).expect("assigned");
    consumer
}

/// Offset and value of the next record.
fn next(consumer: &mut Consumer) -> (i64, String) {
    match consumer.next_record_blocking(PATIENCE).expect("no error") {
        Some(PolledRecord::Record(record)) => {
            (record.offset(), String::from_utf8_lossy(record.value().expect("a value")).into_owned())
        }
        other => panic!("{other:?} where a record was due"),
    }
}

#[test]
fn records_come_one_at_a_time_and_in_batches_in_one_order() {
    for codec in ["none", "gzip"] {
        let broker = broker(1);
        let client = client(&broker, &[("compression.codec", codec)]);
        let producer = client.producer();
        for i in 0..1000 {
            let value = format!("value {i}");
            drop(producer.enqueue_blocking(Record::to("orders").partition(0).value(&value)).expect("taken"));
        }
        producer.flush_blocking(PATIENCE).expect("written");
        let mut consumer = reader(&client);
        let mut expected = 0;
        while expected < 1000 {
            for _ in 0..7.min(1000 - expected) {
                assert_eq!(next(&mut consumer), (expected, format!("value {expected}")), "{codec}");
                assert_eq!(consumer.position(&first()), Some(expected + 1));
                expected += 1;
            }
            if expected == 350 {
                let Some(Polled::Records(batch)) = consumer.poll_blocking(PATIENCE).expect("no error") else {
                    panic!("there is more");
                };
                for record in &batch {
                    assert_eq!(record.expect("sound").offset, expected);
                    expected += 1;
                }
                assert_eq!(batch.next_offset(), expected);
            }
        }
        assert!(consumer.next_record_blocking(Duration::from_millis(10)).expect("no error").is_none());
        assert_eq!(consumer.positions()[&first()], 1000);
    }
}

#[test]
fn several_at_a_time_are_those_that_come_one_by_one_and_are_done_together() {
    for codec in ["none", "gzip"] {
        let broker = broker(1);
        let client = client(&broker, &[("compression.codec", codec)]);
        let producer = client.producer();
        for i in 0..1000 {
            let value = format!("value {i}");
            drop(producer.enqueue_blocking(Record::to("orders").partition(0).value(&value)).expect("taken"));
        }
        producer.flush_blocking(PATIENCE).expect("written");
        let mut consumer = reader(&client);
        let mut expected = 0;
        while expected < 1000 {
            assert_eq!(next(&mut consumer), (expected, format!("value {expected}")), "{codec}");
            expected += 1;
            let first_of_call = expected;
            let taken = consumer.try_next_records(13, |record| {
                let value = format!("value {expected}");
                assert_eq!((record.offset(), record.value()), (expected, Some(value.as_bytes())), "{codec}");
                expected += 1;
            });
            match taken.expect("no error") {
                None => assert_eq!(expected, first_of_call),
                Some(PolledRecords::Records(count)) => {
                    assert!((1..=13).contains(&count));
                    assert_eq!(expected, first_of_call + count as i64);
                    assert_eq!(consumer.control().uncommitted()[&first()].offset, first_of_call, "{codec}");
                }
                other => panic!("{other:?} where records were due"),
            }
            assert_eq!(consumer.position(&first()), Some(expected));
        }
        assert!(consumer.try_next_records(13, |_| {}).expect("no error").is_none());
        assert_eq!(consumer.control().uncommitted()[&first()].offset, 1000);
    }
}

#[test]
fn pausing_in_the_middle_of_a_batch_loses_nothing_and_repeats_nothing() {
    let broker = broker(1);
    let client = client(&broker, &[("compression.codec", "gzip")]);
    let producer = client.producer();
    for i in 0..100 {
        let value = i.to_string();
        drop(producer.enqueue_blocking(Record::to("orders").partition(0).value(&value)).expect("taken"));
    }
    producer.flush_blocking(PATIENCE).expect("written");
    let mut consumer = reader(&client);
    for expected in 0..100 {
        assert_eq!(next(&mut consumer), (expected, expected.to_string()));
        if expected % 10 == 5 {
            consumer.pause(&[first()]);
            assert!(consumer.next_record_blocking(Duration::from_millis(5)).expect("no error").is_none());
            consumer.resume(&[first()]);
        }
    }
}

#[test]
fn seeking_drops_what_was_fetched() {
    let broker = broker(1);
    let client = client(&broker, &[]);
    produce(&client, (0..10).map(|i| i.to_string()));
    let mut consumer = reader(&client);
    assert_eq!(next(&mut consumer).0, 0);
    runtime().block_on(consumer.seek(&first(), StartAt::Offset(7))).expect("assigned");
    assert_eq!(next(&mut consumer).0, 7);
    runtime().block_on(consumer.seek(&first(), StartAt::Beginning)).expect("assigned");
    assert_eq!(next(&mut consumer).0, 0);
}

#[test]
fn the_end_of_a_partition_is_reported_once_per_arrival() {
    let broker = broker(1);
    for (told, times) in [("true", 2), ("false", 0)] {
        let client = client(&broker, &[("enable.partition.eof", told), ("fetch.wait.max.ms", "10")]);
        let mut consumer = client.consumer();
        runtime().block_on(consumer.assign(&[(first(), StartAt::End)])).expect("assigned");
        let mut ends = Vec::new();
        let mut records = 0;
        let mut poll = |consumer: &mut Consumer, within| {
            while let Some(polled) = consumer.poll_blocking(within).expect("no error") {
                match polled {
                    Polled::Event(Event::EndOfPartition { at, offset, .. }) => {
                        assert_eq!(at, first());
                        ends.push(offset);
                    }
                    Polled::Records(batch) => records += batch.to_owned_records().expect("sound").len(),
                    other => panic!("{other:?}"),
                }
                if times == 0 || ends.len() > records {
                    return;
                }
            }
        };
        let end = if times > 0 { PATIENCE } else { A_WHILE };
        poll(&mut consumer, end);
        produce(&client, ["more".to_owned()]);
        poll(&mut consumer, PATIENCE);
        poll(&mut consumer, A_WHILE);
        assert_eq!(records, 1);
        assert_eq!(ends.len(), times, "{ends:?}");
        assert!(ends.windows(2).all(|pair| pair[0] + 1 == pair[1]), "{ends:?}");
    }
}

#[test]
fn a_partition_with_enough_fetched_ahead_is_not_fetched() {
    let broker = broker(1);
    produce(&client(&broker, &[]), (0..100).map(|_| "v".repeat(10_000)));
    for (enough, all) in [("3", false), ("100000", true)] {
        let recorder = Recorder::default();
        let mut config = Config::new(broker.bootstrap_servers());
        config.set("queued.min.messages", enough).expect("a known property");
        config.set("max.partition.fetch.bytes", "10500").expect("a known property");
        let client = Client::with_connector(config, Arc::new(recorder.clone())).expect("a client");
        let mut consumer = reader(&client);
        let read = || recorder.look(|seen| seen.read_bytes);
        if all {
            wait_until("everything fetched ahead", || read() >= 1_000_000);
        } else {
            wait_until("enough fetched ahead", || read() >= 30_000);
            std::thread::sleep(A_WHILE);
            assert!(read() < 60_000, "{} bytes where 3 records are enough", read());
            for expected in 0..100 {
                assert_eq!(next(&mut consumer).0, expected, "and it goes on when there are fewer");
            }
        }
    }
}

#[test]
fn only_stored_offsets_are_committed_without_auto_offset_store() {
    let broker = broker(1);
    produce(&client(&broker, &[]), (0..10).map(|i| i.to_string()));
    for (auto, committed) in [("true", 6), ("false", 3)] {
        let client = client(
            &broker,
            &[("group.id", auto), ("enable.auto.offset.store", auto), ("auto.offset.reset", "earliest")],
        );
        let mut consumer = reader(&client);
        for expected in 0..6 {
            assert_eq!(next(&mut consumer).0, expected);
            if expected == 2 {
                consumer.done_until(&first(), 3);
            }
        }
        runtime().block_on(consumer.commit()).expect("committed");
        let found = runtime().block_on(consumer.committed(&[first()])).expect("an answer");
        assert_eq!(found[&first()], committed, "enable.auto.offset.store={auto}");
    }
}

#[test]
fn fetches_wait_at_the_broker_while_there_is_room() {
    let broker = broker(1);
    let recorder = Recorder::default();
    let config = Config::new(broker.bootstrap_servers());
    let client = Client::with_connector(config, Arc::new(recorder.clone())).expect("a client");
    let mut consumer = reader(&client);
    recorder.wait_for(ApiKey::Fetch, 1);
    for i in 0..3 {
        produce(&client, [i.to_string()]);
        assert_eq!(next(&mut consumer).0, i);
    }
    recorder.wait_for(ApiKey::Fetch, 4);
}

/// The deadline was computed with an addition, which panicked.
#[test]
fn a_blocking_call_without_a_limit_is_no_panic() {
    let broker = broker(1);
    let client = client(&broker, &[("transactional.id", "billing")]);
    let producer = client.producer();
    producer.init_transactions_blocking(Duration::MAX).expect("initialized");
    producer.begin_transaction().expect("initialized");
    let record = Record::to("orders").partition(0).value("paid");
    drop(producer.enqueue_blocking(record).expect("taken"));
    producer.flush_blocking(Duration::MAX).expect("written");
    producer.commit_transaction_blocking(Duration::MAX).expect("committed");
    let mut consumer = client.consumer();
    let start = [(first(), StartAt::Beginning)];
    consumer.control().assign(&start).wait(Duration::MAX).expect("assigned");
    assert!(matches!(consumer.poll_blocking(Duration::MAX), Ok(Some(Polled::Records(_)))));
    consumer.close_blocking(Duration::MAX).expect("closed");
}

/// Such a duration of `Config` was added to the time, which panicked in the engine, and its lowest bits were sent as milliseconds.
#[test]
fn durations_without_a_limit_are_no_panic() {
    let broker = broker(1);
    let mut config = Config::new(broker.bootstrap_servers());
    config.set_all([("group.id", "billing"), ("auto.offset.reset", "earliest")]).expect("known properties");
    for duration in [
        &mut config.delivery_timeout,
        &mut config.socket_timeout,
        &mut config.max_poll_interval,
        &mut config.metadata_max_age,
        &mut config.auto_commit_interval,
        &mut config.stall_after,
    ] {
        *duration = Duration::MAX;
    }
    config.request_timeout = Some(Duration::MAX);
    let client = Client::new(config).expect("a client");
    produce(&client, ["paid".to_owned()]);
    let mut consumer = client.consumer();
    runtime().block_on(consumer.subscribe(&["orders"])).expect("subscribed");
    while !matches!(consumer.poll_blocking(PATIENCE).expect("no error"), Some(Polled::Records(_))) {}
    consumer.close_blocking(PATIENCE).expect("closed");
    let admin = client.admin();
    let timeouts = Timeouts::within(Duration::MAX);
    runtime().block_on(admin.describe_features(timeouts)).expect("described");
}
