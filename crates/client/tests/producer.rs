//! Stories of the producer against the embedded broker.

#![allow(clippy::disallowed_methods, reason = "a test is a shell: it may use threads")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use ottla_broker::{Broker, BrokerThread, Fault};
use ottla_client::{
    Admin, Choice, Client, Clock, Config, Consumer, NewTopic, Partitioner, Persisted, Polled,
    ProduceErrorKind, Producer, Purge, Record, StartAt, TopicPartition,
};
use ottla_protocol::{ApiKey, ErrorCode};
use ottla_wire::Compression;

/// The time limit for deliveries and flushes.
const PATIENCE: Duration = Duration::from_secs(30);

fn broker(topic: &str, partitions: i32) -> BrokerThread {
    Broker::builder().memory().topic(topic, partitions).spawn().expect("a broker in memory")
}

fn nobody() -> Config {
    // A port that was free a moment ago, without a listener.
    let port =
        std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound").port();
    Config::new(format!("127.0.0.1:{port}"))
}

/// The values of one partition, in order.
fn read_back(broker: &BrokerThread, topic: &str, partition: i32, count: usize) -> Vec<Vec<u8>> {
    let mut consumer = Consumer::new(Config::new(broker.bootstrap_servers())).expect("a consumer");
    let all = [(TopicPartition::new(topic, partition), StartAt::Beginning)];
    tokio::runtime::Runtime::new().expect("a runtime").block_on(consumer.assign(&all)).expect("assigned");
    let mut values = Vec::new();
    while values.len() < count {
        match consumer.poll_blocking(PATIENCE).expect("a poll without error") {
            Some(Polled::Records(batch)) => {
                values.extend(batch.iter().map(|record| {
                    record.expect("a sound record").value.map(<[u8]>::to_vec).unwrap_or_default()
                }));
            }
            Some(_) => {}
            None => panic!("{} of {count} records after {PATIENCE:?}", values.len()),
        }
    }
    values
}

#[test]
fn a_buffer_that_fills_before_the_topic_is_known_drains_all_the_same() {
    let broker = broker("orders", 1);
    let mut config = Config::new(broker.bootstrap_servers());
    config.buffer_memory = 65_536;
    config.batch_size = 16_384;
    let producer = Producer::new(config).expect("a producer");
    let orders = producer.topic("orders");
    for i in 0..5000 {
        let value = format!("{i:0100}");
        orders
            .send_unobserved_blocking(Record::to("orders").value(&value))
            .expect("taken when there is room");
    }
    producer.flush_blocking(PATIENCE).expect("everything is acknowledged");
    assert_eq!(producer.buffered_bytes(), 0, "every byte was given back");
    let values = read_back(&broker, "orders", 0, 5000);
    assert!(values.iter().enumerate().all(|(i, value)| *value == format!("{i:0100}").into_bytes()));
}

#[test]
fn reports_tell_every_records_fate_with_its_tag_and_contents() {
    for codec in [Compression::None, Compression::Zstd] {
        let broker = broker("orders", 3);
        let mut config = Config::new(broker.bootstrap_servers());
        config.compression_codec = codec;
        config.delivery_reports = true;
        config.delivery_report_records = true;
        let producer = Producer::new(config).expect("a producer");
        let orders = producer.topic("orders");
        for i in 0..3000_u64 {
            let value = format!("value {i} {}", "x".repeat(100));
            let record = Record::to("orders").partition((i % 3) as i32).value(&value).tag(u128::from(i + 1));
            orders.send_unobserved_blocking(&record).expect("taken");
        }
        let reports = producer.reports().expect("they are on");
        let mut seen = [0; 3];
        while seen.iter().sum::<u64>() < 3000 {
            let report = reports.next_blocking(PATIENCE).expect("a report in time");
            let records = report.records().expect("they are kept");
            let partition = report.partition() as usize;
            for (reported, record) in report.iter().zip(records.iter()) {
                assert_eq!(reported.offset, seen[partition] as i64, "in the order of sending");
                let i = seen[partition] * 3 + partition as u64;
                assert_eq!(reported.tag.get(), u128::from(i + 1));
                let value = record.expect("a sound record").value.expect("not null");
                assert!(value.starts_with(format!("value {i} ").as_bytes()), "{codec:?}");
                seen[partition] += 1;
            }
        }
        producer.flush_blocking(PATIENCE).expect("everything is reported");
        assert_eq!(producer.buffered_bytes(), 0, "{codec:?}");
        // A report retains the whole buffer of its record, so its memory counts in full.
        orders.send_unobserved_blocking(Record::to("orders").value("x").tag(1)).expect("taken");
        let kept = reports.next_blocking(PATIENCE).expect("a report in time");
        producer.flush_blocking(PATIENCE).expect("acknowledged");
        assert!(producer.buffered_bytes() >= 1024, "{} bytes", producer.buffered_bytes());
        drop(kept);
        assert_eq!(producer.buffered_bytes(), 0, "{codec:?}");
    }
}

#[test]
fn only_errors_are_reported_when_asked() {
    let broker = broker("orders", 1);
    for (mut config, reported) in [(Config::new(broker.bootstrap_servers()), 0), (nobody(), 1)] {
        config.delivery_reports = true;
        config.delivery_report_only_error = true;
        let producer = Producer::new(config).expect("a producer");
        producer
            .topic("orders")
            .send_unobserved_blocking(Record::to("orders").value("x").tag(7))
            .expect("taken");
        if reported > 0 {
            producer.purge(Purge { queued: true, in_flight: true });
        }
        producer.flush_blocking(PATIENCE).expect("its fate is known");
        let reports = producer.reports().expect("they are on");
        let tags: Vec<u128> = std::iter::from_fn(|| reports.try_next())
            .flat_map(|report| {
                assert_eq!(report.result().expect_err("a failure").persisted, Persisted::NotWritten);
                report.iter().map(|record| record.tag.get()).collect::<Vec<_>>()
            })
            .collect();
        assert_eq!(tags, vec![7; reported]);
    }
}

/// Failures that moved to a queue of the application were not counted: a flush ended before they were read.
#[test]
fn successes_that_are_taken_leave_failures_in_the_queue() {
    let broker = broker("orders", 1);
    let mut config = Config::new(broker.bootstrap_servers());
    config.delivery_reports = true;
    let producer = Producer::new(config).expect("a producer");
    let (orders, reports) = (producer.topic("orders"), producer.reports().expect("they are on"));
    let taken = Arc::new(AtomicUsize::new(0));
    let into = taken.clone();
    reports.take_successes(move |report| {
        into.fetch_add(report.len(), Ordering::Relaxed);
    });
    orders.send_unobserved_blocking(Record::to("orders").value("x")).expect("taken");
    producer.flush_blocking(PATIENCE).expect("acknowledged");
    assert_eq!((taken.load(Ordering::Relaxed), producer.unsettled_records()), (1, 0));
    broker.cluster().intercept(ApiKey::Produce, None, 1, Fault::Fail(ErrorCode::MessageTooLarge));
    orders.send_unobserved_blocking(Record::to("orders").value("y")).expect("taken");
    producer.flush_blocking(PATIENCE).expect("it has failed");
    assert_eq!((taken.load(Ordering::Relaxed), producer.unsettled_records()), (1, 1), "it waits for a read");
    drop(reports.try_next().expect("the failure"));
    assert_eq!(producer.unsettled_records(), 0);
}

#[test]
fn the_queue_refuses_what_exceeds_its_message_count() {
    let mut config = nobody();
    config.queue_buffering_max_messages = 10;
    let producer = Producer::new(config).expect("a producer");
    for _ in 0..10 {
        drop(producer.try_enqueue(Record::to("orders").value("x")).expect("room for ten"));
    }
    let eleventh = Record::to("orders").key("k").value("eleventh");
    let refused = producer.try_enqueue(&eleventh).expect_err("full");
    assert!(matches!(refused.kind, ProduceErrorKind::QueueFull { records: 10, records_max: 10, .. }));
    let observed = producer.topic("orders").try_send_unobserved(&eleventh).expect_err("full");
    assert_eq!(observed.to_string(), refused.to_string(), "every call fails with the same error");
    producer.purge(Purge { queued: true, in_flight: true });
    producer.flush_blocking(PATIENCE).expect("nothing is left");
    drop(producer.try_enqueue(Record::to("orders").value("x")).expect("room again"));
}

/// librdkafka's test 0011: a record was refused although the queue had room, because other queues had booked it.
#[test]
fn the_message_count_is_met_exactly_by_many_partitions_and_while_a_topic_becomes_known() {
    const MAX: usize = 100_000;
    let broker = Broker::builder().memory().topic("orders", 7).spawn().expect("a broker in memory");
    for round in 0..3 {
        let mut config = Config::new(broker.bootstrap_servers());
        config.queue_buffering_max_messages = MAX;
        config.set("linger.ms", "60000").expect("in range");
        let producer = Producer::new(config).expect("a producer");
        for number in 0..MAX {
            let record = Record::to("orders").key("k").value("v");
            let record = if round == 0 { record } else { record.partition((number % 7) as i32) };
            if let Err(error) = producer.topic("orders").try_send_unobserved(&record) {
                panic!("round {round}, record {number}: {error}");
            }
        }
        producer.purge(Purge { queued: true, in_flight: true });
        producer.flush_blocking(PATIENCE).expect("nothing is left");
    }
}

#[tokio::test]
async fn a_topic_producer_refuses_records_for_another_topic() {
    let producer = Producer::new(nobody()).expect("a producer");
    let orders = producer.topic("orders");
    let stray = Record::to("invoices").value("x");
    let errors = [
        orders.send(&stray).await.map(drop).expect_err("send"),
        orders.try_send(&stray).await.map(drop).expect_err("try_send"),
        orders.send_blocking(&stray).map(drop).expect_err("send_blocking"),
        orders.enqueue(&stray).await.map(drop).expect_err("enqueue"),
        orders.enqueue_blocking(&stray).map(drop).expect_err("enqueue_blocking"),
        orders.try_enqueue(&stray).map(drop).expect_err("try_enqueue"),
        orders.send_unobserved(&stray).await.expect_err("send_unobserved"),
        orders.send_unobserved_blocking(&stray).expect_err("send_unobserved_blocking"),
        orders.try_send_unobserved(&stray).expect_err("try_send_unobserved"),
    ];
    for error in errors {
        assert!(
            matches!(&error.kind, ProduceErrorKind::OtherTopic { producer } if **producer == *"orders"),
            "{error}"
        );
        assert_eq!(
            (&*error.topic, error.persisted, error.is_retriable()),
            ("invoices", Persisted::NotWritten, false)
        );
    }
    assert_eq!(producer.unsettled_records(), 0, "nothing was taken");
    let unnamed = Record { value: Some(b"x"), ..Record::default() };
    drop(orders.try_enqueue(&unnamed).expect("a record without a topic goes to this one"));
}

#[tokio::test]
async fn every_way_to_send_takes_a_record_by_value_and_by_reference() {
    let broker = broker("orders", 1);
    let producer = Producer::new(Config::new(broker.bootstrap_servers())).expect("a producer");
    let record = Record::to("orders").partition(0).value("x");
    let mut offsets = vec![producer.send(&record).await.expect("written").offset];
    offsets.push(producer.try_send(&record).await.expect("written").offset);
    offsets.push(producer.send_blocking(&record).expect("written").offset);
    offsets.push(producer.enqueue(&record).await.expect("taken").await.expect("written").offset);
    offsets.push(producer.enqueue_blocking(&record).expect("taken").await.expect("written").offset);
    offsets.push(producer.try_enqueue(&record).expect("taken").await.expect("written").offset);
    assert_eq!(offsets, (0..6).map(Some).collect::<Vec<_>>());
    producer.send_unobserved(&record).await.expect("taken");
    producer.send_unobserved_blocking(&record).expect("taken");
    producer.try_send_unobserved(record).expect("taken");
    producer.flush(PATIENCE).await.expect("all are written");
    assert_eq!(
        producer.topic("orders").send_blocking(Record::to("orders").value("y")).expect("written").offset,
        Some(9)
    );
}

#[test]
fn a_record_above_message_max_bytes_is_refused() {
    let broker = broker("orders", 1);
    let mut config = Config::new(broker.bootstrap_servers());
    config.message_max_bytes = 1000;
    let producer = Producer::new(config).expect("a producer");
    let large = vec![b'x'; 1001];
    let refused = producer.try_enqueue(Record::to("orders").value(&large)).expect_err("too large");
    assert!(refused.to_string().contains("message.max.bytes is 1000"), "{refused}");
    // The frame of a record takes up to 36 bytes.
    let [largest, larger] = [964, 965].map(|len| vec![b'x'; len]);
    drop(producer.try_enqueue(Record::to("orders").value(&larger)).expect_err("too large by a byte"));
    drop(producer.try_enqueue(Record::to("orders").value(&largest)).expect("small enough"));
    producer.flush_blocking(PATIENCE).expect("acknowledged");
}

#[test]
fn a_record_larger_than_a_batch_travels_alone() {
    let broker = broker("orders", 1);
    let mut config = Config::new(broker.bootstrap_servers());
    config.batch_size = 2048;
    let producer = Producer::new(config).expect("a producer");
    let large = vec![b'L'; 100_000];
    let orders = producer.topic("orders");
    for value in [&b"before"[..], &large, b"after"] {
        orders.send_unobserved_blocking(Record::to("orders").value(value)).expect("taken");
    }
    producer.flush_blocking(PATIENCE).expect("acknowledged");
    assert_eq!(read_back(&broker, "orders", 0, 3), [b"before".to_vec(), large, b"after".to_vec()]);
}

#[test]
fn a_batch_takes_no_more_records_than_batch_num_messages() {
    let broker = broker("orders", 1);
    let mut config = Config::new(broker.bootstrap_servers());
    config.batch_num_messages = 7;
    config.delivery_reports = true;
    config.linger = Some(Duration::from_secs(60));
    let producer = Producer::new(config).expect("a producer");
    let orders = producer.topic("orders");
    for _ in 0..70 {
        orders.send_unobserved_blocking(Record::to("orders").value("x")).expect("taken");
    }
    producer.flush_blocking(PATIENCE).expect("acknowledged");
    let reports = producer.reports().expect("they are on");
    let sizes: Vec<usize> = std::iter::from_fn(|| reports.try_next()).map(|report| report.len()).collect();
    assert_eq!(sizes.iter().sum::<usize>(), 70);
    assert!(sizes.iter().all(|size| *size <= 7), "{sizes:?}");
}

#[test]
fn payloads_above_message_copy_max_bytes_are_not_copied() {
    let broker = broker("orders", 1);
    let mut config = Config::new(broker.bootstrap_servers());
    config.message_copy_max_bytes = 1000;
    config.linger = Some(Duration::from_secs(60));
    let producer = Producer::new(config).expect("a producer");
    let payload = Bytes::from(vec![b'p'; 200_000]);
    let small = Bytes::from(vec![b's'; 1000]);
    let orders = producer.topic("orders");
    orders.send_unobserved_blocking(Record::to("orders").shared_value(&small)).expect("taken");
    assert!(small.is_unique(), "a small payload is copied");
    orders.send_unobserved_blocking(Record::to("orders").shared_value(&payload)).expect("taken");
    assert!(!payload.is_unique(), "a large one is held");
    assert!(producer.buffered_bytes() >= 200_000, "and counted");
    producer.flush_blocking(PATIENCE).expect("acknowledged");
    assert_eq!(read_back(&broker, "orders", 0, 2), [small.to_vec(), payload.to_vec()]);
}

/// A dropped flush counted as one that still waits: no record lingered again.
#[tokio::test]
async fn records_linger_again_after_a_flush_whose_future_is_dropped() {
    let broker = broker("orders", 1);
    let produced = || broker.cluster().requests(ApiKey::Produce);
    let mut config = Config::new(broker.bootstrap_servers());
    config.linger = Some(Duration::from_secs(60));
    let producer = Producer::new(config).expect("a producer");
    broker.cluster().intercept(ApiKey::Produce, None, 1, Fault::AnswerAfter(Duration::from_secs(2)));
    let first = producer.enqueue(Record::to("orders").value("first")).await.expect("taken");
    let sent = async {
        while produced() == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        flushed = producer.flush(PATIENCE) => panic!("{flushed:?} before the response"),
        () = sent => {}
    }
    first.await.expect("acknowledged");

    let second = producer.enqueue(Record::to("orders").value("second")).await.expect("taken");
    tokio::time::sleep(Duration::from_millis(300)).await;
    let third = producer.enqueue(Record::to("orders").value("third")).await.expect("taken");
    producer.flush(PATIENCE).await.expect("acknowledged");
    second.await.expect("acknowledged");
    third.await.expect("acknowledged");
    assert_eq!(produced(), 2, "the second record waited for the third");
}

#[test]
fn what_is_purged_is_reported_and_not_sent() {
    let mut config = nobody();
    config.delivery_reports = true;
    let producer = Producer::new(config).expect("a producer");
    let future = producer.try_enqueue(Record::to("orders").value("x").tag(1)).expect("taken");
    producer.purge(Purge { queued: true, in_flight: false });
    let error = future.wait(PATIENCE).expect("in time").expect_err("purged");
    assert!(matches!(error.kind, ProduceErrorKind::Purged { in_flight: false }), "{error}");
    assert_eq!(error.persisted, Persisted::NotWritten);
    let report = producer.reports().expect("they are on").next_blocking(PATIENCE).expect("a report");
    assert_eq!(report.iter().next().map(|record| (record.tag.get(), record.offset)), Some((1, -1)));
}

#[test]
fn records_expire_no_earlier_than_their_timeout_and_not_much_later() {
    let mut config = nobody();
    config.delivery_timeout = Duration::from_millis(1600);
    let producer = Producer::new(config).expect("a producer");
    let started = std::time::Instant::now();
    let first = producer.try_enqueue(Record::to("orders").value("first")).expect("taken");
    std::thread::sleep(Duration::from_millis(800));
    let second_at = std::time::Instant::now();
    let second = producer.try_enqueue(Record::to("orders").value("second")).expect("taken");
    let error = first.wait(PATIENCE).expect("in time").expect_err("nobody answers");
    assert!(matches!(error.kind, ProduceErrorKind::TimedOut { timeout_ms: 1600, .. }), "{error}");
    assert!(started.elapsed() >= Duration::from_millis(1600));
    second.wait(PATIENCE).expect("in time").expect_err("nobody answers");
    // A batch accepts records for a sixteenth of the timeout: the second record is in another one.
    assert!(second_at.elapsed() >= Duration::from_millis(1500), "{:?}", second_at.elapsed());
}

#[test]
fn a_client_that_ends_tells_the_fate_of_what_it_had() {
    let producer = Producer::new(nobody()).expect("a producer");
    let delivery = producer.try_enqueue(Record::to("orders").value("x")).expect("taken");
    drop(producer);
    let error = delivery.wait(PATIENCE).expect("in time").expect_err("the client is gone");
    assert!(matches!(error.kind, ProduceErrorKind::Closed), "{error}");
}

/// The batches that the compression thread had were dropped: their deliveries waited for ever, and so did a flush.
#[test]
fn records_that_are_being_compressed_at_the_end_of_the_client_have_an_outcome() {
    let broker = broker("orders", 1);
    let mut config = Config::new(broker.bootstrap_servers());
    config.compression_codec = Compression::Gzip;
    let client = Client::new(config).expect("a client");
    let producer = client.producer();
    // Full batches of a partition that is known go to the thread at once.
    producer.send_blocking(Record::to("orders").value("first")).expect("written");
    let value: Vec<u8> = (0..100_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let take = |_| producer.try_enqueue(Record::to("orders").value(&value)).expect("room");
    let deliveries: Vec<_> = (0..100).map(take).collect();
    client.stop();
    for delivery in deliveries {
        assert!(delivery.wait(PATIENCE).is_some(), "an outcome");
    }
    producer.flush_blocking(PATIENCE).expect("nothing is left");
}

/// Only the topics that the producer had used were closed: a record for another one waited for ever, and so did a flush.
#[test]
fn a_record_for_a_new_topic_is_refused_after_the_end_of_the_client() {
    let client = Client::new(nobody()).expect("a client");
    let producer = client.producer();
    client.stop();
    let error = producer.try_enqueue(Record::to("orders").value("x")).expect_err("the client has ended");
    assert!(matches!(error.kind, ProduceErrorKind::Closed), "{error}");
    producer.flush_blocking(PATIENCE).expect("nothing waits");
}

/// The sender's task calls the partitioner for records that waited for their topic's metadata: its panic ended the task.
#[test]
fn a_partitioner_that_panics_fails_its_record_alone() {
    let broker = broker("orders", 2);
    let mut config = Config::new(broker.bootstrap_servers());
    config.partitioner = Partitioner::Custom(Arc::new(|choice: &Choice<'_>| {
        assert_ne!(choice.key, Some(&b"bad"[..]), "the application's panic");
        Some(1)
    }));
    let producer = Producer::new(config).expect("a producer");
    for round in ["before the metadata", "with metadata"] {
        let send = |key: &str| producer.try_enqueue(Record::to("orders").key(key).value("x"));
        let (first, bad, last) = (send("good"), send("bad"), send("good"));
        // A record that is refused at once has no delivery.
        let refused = bad.and_then(|delivery| delivery.wait(PATIENCE).expect("in time"));
        let error = refused.expect_err("it has no partition");
        assert!(matches!(error.kind, ProduceErrorKind::NoSuchPartition { count: 2 }), "{round}: {error}");
        for delivery in [first, last] {
            let written = delivery.expect("taken").wait(PATIENCE).expect("in time").expect("written");
            assert_eq!(written.partition, 1, "{round}");
        }
    }
}

#[test]
fn the_sticky_partition_stays_for_its_linger() {
    const PARTITIONS: i32 = 8;
    let broker = broker("orders", PARTITIONS);
    // The partitions of `count` records, each written before the next is sent.
    let partitions = |linger: &str, advance_ms: i64, count: usize| -> Vec<i32> {
        let now_ms = Arc::new(AtomicI64::new(1_700_000_000_000));
        let mut config = Config::new(broker.bootstrap_servers());
        config.set("sticky.partitioning.linger.ms", linger).expect("known");
        config.clock = Clock::Fixed(now_ms.clone());
        let producer = Producer::new(config).expect("a client");
        let send = |record: Record<'_>| {
            let delivery = producer.try_enqueue(record).expect("taken");
            delivery.wait(PATIENCE).expect("in time").expect("written").partition
        };
        // From now on, the topic's partitions are known.
        send(Record::to("orders").partition(0).value("v"));
        let mut chosen = Vec::new();
        for _ in 0..count {
            chosen.push(send(Record::to("orders").value("v")));
            now_ms.fetch_add(advance_ms, Ordering::Relaxed);
        }
        chosen
    };
    let changes = |chosen: &[i32]| chosen.windows(2).filter(|pair| pair[0] != pair[1]).count();

    let while_it_lasts = partitions("10", 0, 40);
    assert_eq!(changes(&while_it_lasts), 0, "{while_it_lasts:?}");
    // Groups of four records: the partition may change only after the linger time.
    let in_fours = partitions("12", 3, 160);
    assert!(in_fours.chunks(4).all(|four| changes(four) == 0), "{in_fours:?}");
    assert!(changes(&in_fours) > 10, "{in_fours:?}");
    // Without a linger, every record selects a partition; by default every batch does, and each record is one.
    for linger in ["0", "batch"] {
        let chosen = partitions(linger, 0, 80);
        assert!(changes(&chosen) > 20, "{linger}: {chosen:?}");
    }
}

/// A topic is deleted and recreated under a live producer: its leader epochs, partitions and producer state start
/// again. Records sent after that are in the new topic, once and in order.
#[test]
fn a_topic_that_is_created_anew_gets_what_is_sent_after_that() {
    for seen_gone in [false, true] {
        let broker =
            Broker::builder().memory().nodes(2).topic("orders", 4).spawn().expect("a broker in memory");
        let cluster = broker.cluster();
        for node in [2, 1, 2, 1, 2] {
            assert!((0..4).all(|partition| cluster.set_leader("orders", partition, node)), "epochs rise");
        }
        let mut config = Config::new(broker.bootstrap_servers());
        config.allow_auto_create_topics = false;
        config.retry_backoff = Duration::from_millis(5);
        config.retry_backoff_max = Duration::from_millis(20);
        config.batch_num_messages = 10;
        let admin = Admin::new(config.clone()).expect("an admin");
        let producer = Producer::new(config).expect("a producer");
        let (sent, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
        let wait_for = |what: &str, holds: &dyn Fn() -> bool| {
            let deadline = std::time::Instant::now() + PATIENCE;
            while !holds() {
                assert!(std::time::Instant::now() < deadline, "no {what} within {PATIENCE:?}");
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let mut after = 0;
        let deliveries = std::thread::scope(|scope| {
            let sending = scope.spawn(|| {
                let orders = producer.topic("orders");
                let mut deliveries = Vec::new();
                while !stop.load(Ordering::SeqCst) {
                    let i = deliveries.len();
                    let value = format!("{i}");
                    let record = Record::to("orders").partition((i % 2) as i32).value(&value);
                    deliveries.push(orders.enqueue_blocking(&record).expect("taken"));
                    sent.store(i + 1, Ordering::SeqCst);
                    if i % 100 == 0 {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                }
                deliveries
            });
            wait_for("records", &|| sent.load(Ordering::SeqCst) > 2_000);
            runtime.block_on(admin.delete_topics(&["orders"])).expect("deleted");
            if seen_gone {
                let before = cluster.requests(ApiKey::Metadata);
                wait_for("metadata", &|| cluster.requests(ApiKey::Metadata) > before + 3);
            }
            let new = NewTopic::new("orders").partitions(2);
            runtime.block_on(admin.create_topics(&[new])).expect("created");
            after = sent.load(Ordering::SeqCst);
            wait_for("more records", &|| sent.load(Ordering::SeqCst) > after + 5_000);
            stop.store(true, Ordering::SeqCst);
            sending.join().expect("no panic while sending")
        });
        for (i, delivery) in deliveries.iter().enumerate() {
            let fate = delivery.wait(PATIENCE).unwrap_or_else(|| panic!("record {i} has no fate"));
            fate.unwrap_or_else(|error| panic!("record {i}: {error}"));
        }
        for partition in 0..2 {
            let (_, end) = cluster.offsets_of("orders", partition).expect("it is there");
            let values: Vec<usize> = read_back(&broker, "orders", partition, end as usize)
                .iter()
                .map(|value| String::from_utf8_lossy(value).parse().expect("a number"))
                .collect();
            let unique: BTreeSet<usize> = values.iter().copied().collect();
            assert_eq!(unique.len(), values.len(), "none is there twice");
            // Batches that were in flight when the topic returned may be reordered.
            let later = values.iter().copied().filter(|i| *i >= after);
            let expected = (after..deliveries.len()).filter(|i| i % 2 == partition as usize);
            assert!(later.eq(expected), "all that were sent after that, in order");
        }
        // No key selects a partition that the topic no longer has.
        for key in 0..20 {
            let key = format!("{key}");
            let delivery = producer.try_enqueue(Record::to("orders").key(&key).value("x")).expect("taken");
            assert!(delivery.wait(PATIENCE).expect("in time").expect("written").partition < 2);
        }
    }
}
