//! Stories of the client against the embedded broker, over real sockets.

#![allow(clippy::disallowed_methods, reason = "a test is a shell: it may use threads")]

use std::time::Duration;

use ottla_broker::{Broker, BrokerThread};
use ottla_client::{
    Client, Config, Consumer, Delivery, Event, Polled, Producer, Record, StartAt, TopicPartition,
};
use ottla_wire::Compression;

/// The time limit of a client call.
const PATIENCE: Duration = Duration::from_secs(30);

fn broker(topic: &str, partitions: i32) -> BrokerThread {
    Broker::builder().memory().nodes(2).topic(topic, partitions).spawn().expect("a broker in memory")
}

/// Polls until `count` records have arrived; returns partition, offset and value of each.
fn consume(consumer: &mut Consumer, count: usize) -> Vec<(i32, i64, String)> {
    let mut seen = Vec::new();
    while seen.len() < count {
        match consumer.poll_blocking(PATIENCE).expect("a poll without error") {
            Some(Polled::Records(batch)) => {
                for record in &batch {
                    let record = record.expect("a sound record");
                    let value = String::from_utf8_lossy(record.value.unwrap_or_default()).into_owned();
                    seen.push((batch.partition(), record.offset, value));
                }
            }
            Some(_) => {}
            None => panic!("{} of {count} records after {PATIENCE:?}", seen.len()),
        }
    }
    seen
}

#[tokio::test]
async fn what_is_sent_comes_back_with_every_codec_in_order() {
    for codec in Compression::ALL {
        let broker = broker("orders", 2);
        let mut config = Config::new(broker.bootstrap_servers());
        config.compression_codec = codec;
        let client = Client::new(config).expect("a client");
        let producer = client.producer();
        let mut deliveries = Vec::new();
        for i in 0..20_000 {
            let value = format!("value {i}");
            let record = Record::to("orders").partition(i % 2).value(&value);
            deliveries.push(producer.enqueue(record).await.expect("taken"));
        }
        for (i, delivery) in deliveries.into_iter().enumerate() {
            let written = delivery.await.expect("written");
            assert_eq!((written.partition, written.offset), (i as i32 % 2, Some(i as i64 / 2)), "{codec:?}");
        }
        let mut consumer = client.consumer();
        let both = [0, 1].map(|partition| (TopicPartition::new("orders", partition), StartAt::Beginning));
        consumer.assign(&both).await.expect("assigned");
        let seen =
            tokio::task::spawn_blocking(move || consume(&mut consumer, 20_000)).await.expect("no panic");
        let mut next = [0, 0];
        for (partition, offset, value) in seen {
            assert_eq!(offset, next[partition as usize]);
            assert_eq!(value, format!("value {}", offset * 2 + i64::from(partition)));
            next[partition as usize] += 1;
        }
    }
}

#[test]
fn records_sent_before_the_topic_is_known_find_their_partitions() {
    let broker = broker("orders", 3);
    let producer = Producer::new(Config::new(broker.bootstrap_servers())).expect("a producer");
    let wanted = producer.try_enqueue(Record::to("orders").partition(2).value("x")).expect("taken");
    let nowhere = producer.try_enqueue(Record::to("orders").partition(7).value("x")).expect("taken");
    assert_eq!(wanted.wait(PATIENCE).expect("in time").expect("written").partition, 2);
    let error = nowhere.wait(PATIENCE).expect("in time").expect_err("there is no partition 7");
    assert!(error.to_string().contains("the topic has 3"), "{error}");
}

#[test]
fn keys_keep_their_partition_and_keyless_records_use_them_all() {
    let broker = broker("orders", 4);
    let producer = Producer::new(Config::new(broker.bootstrap_servers())).expect("a producer");
    let settle = |delivery: Delivery| delivery.wait(PATIENCE).expect("in time").expect("written");
    let of_key: Vec<i32> = (0..10)
        .map(|_| {
            settle(producer.try_enqueue(Record::to("orders").key("abc").value("v")).expect("taken")).partition
        })
        .collect();
    // murmur2("abc") & 0x7fffffff = 479470107, as in Java; modulo 4.
    assert_eq!(of_key, [479_470_107 % 4; 10]);
    let mut used: Vec<i32> = (0..40)
        .map(|_| settle(producer.try_enqueue(Record::to("orders").value("v")).expect("taken")).partition)
        .collect();
    used.sort_unstable();
    used.dedup();
    assert_eq!(used, [0, 1, 2, 3]);
}

#[test]
fn a_group_shares_partitions_commits_and_goes_on_where_it_was() {
    let broker = broker("orders", 4);
    let mut config = Config::new(broker.bootstrap_servers());
    config
        .set_all([
            ("group.id", "billing"),
            ("auto.offset.reset", "earliest"),
            ("heartbeat.interval.ms", "50"),
        ])
        .expect("known properties");
    let producer = Producer::new(config.clone()).expect("a producer");
    let send = |from: i32, to: i32| {
        for i in from..to {
            let record = Record::to("orders").partition(i % 4).value("v");
            producer
                .enqueue_blocking(record)
                .expect("taken")
                .wait(PATIENCE)
                .expect("in time")
                .expect("written");
        }
    };
    send(0, 40);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let mut first = Consumer::new(config.clone()).expect("a consumer");
    runtime.block_on(first.subscribe(&["orders"])).expect("subscribed");
    assert_eq!(consume(&mut first, 40).len(), 40);

    // A second member takes half of the partitions.
    let mut second = Consumer::new(config.clone()).expect("a consumer");
    runtime.block_on(second.subscribe(&["orders"])).expect("subscribed");
    let mut assigned = [0, 0];
    while assigned != [2, 2] {
        for (at, consumer) in [&mut first, &mut second].into_iter().enumerate() {
            match consumer.poll_blocking(Duration::from_millis(50)).expect("a poll without error") {
                Some(Polled::Event(Event::Assigned(partitions))) => assigned[at] = partitions.len(),
                Some(Polled::Records(batch)) => panic!("{}-{} again", batch.partition(), batch.next_offset()),
                _ => {}
            }
        }
    }
    first.close_blocking(PATIENCE).expect("closed");
    second.close_blocking(PATIENCE).expect("closed");

    // Committed records are not read again.
    send(40, 44);
    let mut third = Consumer::new(config).expect("a consumer");
    runtime.block_on(third.subscribe(&["orders"])).expect("subscribed");
    let mut seen = consume(&mut third, 4);
    seen.sort_unstable();
    assert_eq!(
        seen.iter().map(|(at, offset, _)| (*at, *offset)).collect::<Vec<_>>(),
        [(0, 10), (1, 10), (2, 10), (3, 10)]
    );
}

#[test]
fn a_paused_partition_keeps_what_was_fetched_and_the_others_go_on() {
    let broker = broker("orders", 2);
    let client = Client::new(Config::new(broker.bootstrap_servers())).expect("a client");
    let producer = client.producer();
    for partition in [0, 1] {
        let record = Record::to("orders").partition(partition).value("first");
        drop(producer.try_enqueue(record).expect("taken"));
    }
    producer.flush_blocking(PATIENCE).expect("written");
    let mut consumer = client.consumer();
    let both = [0, 1].map(|partition| TopicPartition::new("orders", partition));
    let starts = both.clone().map(|at| (at, StartAt::Beginning));
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(consumer.assign(&starts)).expect("assigned");
    consumer.pause(&both[..1]);
    assert_eq!(consume(&mut consumer, 1), [(1, 0, "first".to_owned())]);
    assert!(consumer.poll_blocking(Duration::from_millis(200)).expect("no error").is_none());
    consumer.resume(&both[..1]);
    assert_eq!(consume(&mut consumer, 1), [(0, 0, "first".to_owned())]);
    assert_eq!((consumer.position(&both[0]), consumer.lag(&both[0])), (Some(1), Some(0)));
    let watermarks = consumer.watermarks(&both[0]).expect("it was fetched");
    assert_eq!((watermarks.low, watermarks.high), (0, 1));
}

#[test]
fn a_sync_that_ends_at_the_wrong_moment_is_noticed_all_the_same() {
    let dir = tempfile::tempdir().expect("a directory");
    let broker =
        Broker::builder().data_dir(dir.path()).topic("orders", 48).spawn().expect("a broker on disk");
    let producer = Producer::new(Config::new(broker.bootstrap_servers())).expect("a producer");
    for _ in 0..200 {
        for partition in 0..48 {
            let record = Record::to("orders").partition(partition).value("paid");
            drop(producer.enqueue_blocking(record).expect("taken"));
        }
        // One request waits for the syncs of all partitions in sequence: most are complete when it checks.
        producer.flush_blocking(Duration::from_secs(20)).expect("each partition's sync is noticed");
    }
}
