//! Stories of queues: a queue per thread, forwarding, an external event loop, and the simple consumer.

#![allow(clippy::disallowed_methods, reason = "a test is a shell: it may use threads")]

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use ottla_broker::{Broker, BrokerThread};
use ottla_client::{Client, Config, Error, PartitionQueue, Record, StartAt, TopicConfig, TopicPartition};
use tokio::runtime::Runtime;

/// The time limit for records to reach a queue.
const PATIENCE: Duration = Duration::from_secs(30);

fn broker() -> BrokerThread {
    Broker::builder().memory().topic("orders", 2).spawn().expect("a broker in memory")
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

fn at(partition: i32) -> TopicPartition {
    TopicPartition::new("orders", partition)
}

fn produce(client: &Client, partition: i32, values: std::ops::Range<i32>) {
    let producer = client.producer();
    for value in values {
        let value = value.to_string();
        drop(
            producer
                .enqueue_blocking(Record::to("orders").partition(partition).value(&value))
                .expect("taken"),
        );
    }
    producer.flush_blocking(PATIENCE).expect("written");
}

/// The values of the next `count` records.
fn values(queue: &mut PartitionQueue, count: usize) -> Vec<i32> {
    let mut records = Vec::new();
    while records.len() < count {
        assert!(queue.consume_batch(PATIENCE, count - records.len(), &mut records).expect("no error") > 0);
    }
    let value = |bytes: &[u8]| std::str::from_utf8(bytes).expect("text").parse().expect("a number");
    records.iter().map(|record| value(record.value.as_deref().expect("a value"))).collect()
}

#[test]
fn each_partition_is_read_by_a_thread_of_its_own() {
    let broker = broker();
    let client = Client::new(Config::new(broker.bootstrap_servers())).expect("a client");
    let mut consumer = client.consumer();
    let starts = [0, 1].map(|partition| (at(partition), StartAt::Beginning));
    runtime().block_on(consumer.assign(&starts)).expect("assigned");
    let readers = [0, 1].map(|partition| {
        let mut queue = consumer.split(&at(partition)).expect("assigned");
        std::thread::spawn(move || values(&mut queue, 500))
    });
    produce(&client, 0, 0..500);
    produce(&client, 1, 1000..1500);
    let [first, second] = readers.map(|reader| reader.join().expect("no panic"));
    assert_eq!((first, second), ((0..500).collect(), (1000..1500).collect()));
    assert!(consumer.poll_blocking(Duration::from_millis(50)).expect("no error").is_none());
    assert_eq!((consumer.position(&at(0)), consumer.position(&at(1))), (Some(500), Some(500)));
    assert!(matches!(consumer.split(&at(7)), Err(Error::NotAssigned { partition: 7, .. })));
}

/// The rest of its open chunk was gone, and the next commit passed it.
#[test]
fn the_unread_records_of_a_queue_that_is_dropped_go_back_to_the_consumer() {
    let broker = broker();
    let client = Client::new(Config::new(broker.bootstrap_servers())).expect("a client");
    produce(&client, 0, 0..100);
    let mut consumer = client.consumer();
    runtime().block_on(consumer.assign(&[(at(0), StartAt::Beginning)])).expect("assigned");
    let mut first = consumer.split(&at(0)).expect("assigned");
    assert_eq!(values(&mut first, 1), [0]);
    drop(first);
    let mut second = consumer.split(&at(0)).expect("assigned");
    assert_eq!(values(&mut second, 99), (1..100).collect::<Vec<_>>());
}

#[test]
fn a_queue_is_forwarded_neither_to_itself_nor_in_a_circle_behind_it() {
    let broker = broker();
    let client = Client::new(Config::new(broker.bootstrap_servers())).expect("a client");
    let mut consumer = client.consumer();
    let starts = [0, 1].map(|partition| (at(partition), StartAt::Beginning));
    runtime().block_on(consumer.assign(&starts)).expect("assigned");
    let [mut first, mut second] = [0, 1].map(|partition| consumer.split(&at(partition)).expect("assigned"));
    second.forward_to(Some(&first)).expect("no circle");
    first.forward_to(None).expect("no circle");
    assert!(first.forward_to(Some(&second)).is_err(), "that would be a circle");
    produce(&client, 1, 0..3);
    assert_eq!(values(&mut first, 3), [0, 1, 2]);
}

/// The records of the other partition were in the dropped queue, and no queue listed the partition again.
#[test]
fn a_queue_that_is_dropped_gives_back_what_was_forwarded_to_it() {
    let broker = broker();
    let client = Client::new(Config::new(broker.bootstrap_servers())).expect("a client");
    let mut consumer = client.consumer();
    let starts = [0, 1].map(|partition| (at(partition), StartAt::Beginning));
    runtime().block_on(consumer.assign(&starts)).expect("assigned");
    let [mut first, second] = [0, 1].map(|partition| consumer.split(&at(partition)).expect("assigned"));
    let (woken, wake) = std::sync::mpsc::channel();
    second.on_filled(move || {
        let _ = woken.send(());
    });
    first.forward_to(Some(&second)).expect("no circle");
    produce(&client, 0, 0..3);
    wake.recv_timeout(PATIENCE).expect("the other queue gets the records");
    drop(second);
    assert_eq!(values(&mut first, 3), [0, 1, 2]);
    produce(&client, 0, 3..6);
    assert_eq!(values(&mut first, 3), [3, 4, 5]);
}

/// The partition stayed in the list of the queue that it was forwarded to before.
#[test]
fn records_come_to_the_own_queue_after_the_end_of_a_forwarding() {
    let broker = broker();
    let client = Client::new(Config::new(broker.bootstrap_servers())).expect("a client");
    let mut consumer = client.consumer();
    let starts = [0, 1].map(|partition| (at(partition), StartAt::Beginning));
    runtime().block_on(consumer.assign(&starts)).expect("assigned");
    let [mut first, second] = [0, 1].map(|partition| consumer.split(&at(partition)).expect("assigned"));
    let (woken, wake) = std::sync::mpsc::channel();
    second.on_filled(move || {
        let _ = woken.send(());
    });
    first.forward_to(Some(&second)).expect("no circle");
    produce(&client, 0, 0..3);
    wake.recv_timeout(PATIENCE).expect("the other queue gets the records");
    first.forward_to(None).expect("no circle");
    assert_eq!(values(&mut first, 3), [0, 1, 2]);
}

#[test]
fn a_foreign_event_loop_is_woken_by_bytes_on_a_descriptor() {
    let broker = broker();
    let client = Client::new(Config::new(broker.bootstrap_servers())).expect("a client");
    let mut consumer = client.consumer();
    runtime().block_on(consumer.assign(&[(at(0), StartAt::Beginning)])).expect("assigned");
    let mut queue = consumer.split(&at(0)).expect("assigned");
    let (ours, mut theirs) = UnixStream::pair().expect("a pair");
    ours.set_nonblocking(true).expect("a socket can");
    theirs.set_read_timeout(Some(PATIENCE)).expect("a socket can");
    queue.write_when_filled(File::from(OwnedFd::from(ours)), b"go");
    for round in 0..3 {
        produce(&client, 0, round..round + 1);
        let mut woken = [0; 2];
        theirs.read_exact(&mut woken).expect("woken in time");
        assert_eq!(&woken, b"go");
        let mut seen = 0;
        seen += queue
            .consume_each(PATIENCE, 0, |record| assert_eq!(record.offset(), i64::from(round)))
            .expect("no error");
        assert_eq!(seen, 1);
    }
}

#[test]
fn the_simple_consumer_starts_stops_and_forwards() {
    let broker = broker();
    let client = Client::new(Config::new(broker.bootstrap_servers())).expect("a client");
    produce(&client, 0, 0..10);
    produce(&client, 1, 10..20);
    let runtime = runtime();
    let mut consumer = client.consumer();
    runtime.block_on(consumer.start(&at(0), StartAt::Offset(5))).expect("started");
    let mut first = consumer.split(&at(0)).expect("started");
    assert_eq!(values(&mut first, 5), [5, 6, 7, 8, 9]);

    runtime.block_on(consumer.start(&at(1), StartAt::Beginning)).expect("started");
    let mut second = consumer.split(&at(1)).expect("started");
    second.forward_to(Some(&first)).expect("no circle");
    assert_eq!(values(&mut first, 10), (10..20).collect::<Vec<_>>(), "the other partition's records");
    assert!(first.forward_to(Some(&second)).is_err(), "that would be a circle");

    produce(&client, 0, 20..30);
    runtime.block_on(consumer.stop(&at(0))).expect("it was started");
    assert_eq!(first.consume_batch(Duration::from_millis(50), 10, &mut Vec::new()).expect("no error"), 0);
    assert!(matches!(runtime.block_on(consumer.stop(&at(0))), Err(Error::NotAssigned { .. })));
}

/// The client's commit properties concern groups; a topic's concern partitions that are started one by one.
#[test]
fn partitions_that_are_started_commit_as_their_topic_says() {
    let broker = broker();
    produce(&Client::new(Config::new(broker.bootstrap_servers())).expect("a client"), 0, 0..10);
    let (fast, slow, off) = (Some("20"), None, None);
    for (group, enabled, interval, while_open, at_the_end) in [
        ("fast", "true", fast, true, true),
        ("slow", "true", slow, false, true),
        ("off", "false", off, false, false),
    ] {
        let mut config = Config::librdkafka();
        for (name, value) in [
            ("bootstrap.servers", &*broker.bootstrap_servers()),
            ("group.id", group),
            ("enable.auto.commit", "false"),
        ] {
            config.set(name, value).expect("a known property");
        }
        let mut topic = TopicConfig::default();
        topic.set("auto.commit.enable", enabled).expect("of topics");
        if let Some(interval) = interval {
            topic.set("auto.commit.interval.ms", interval).expect("of topics");
        }
        let client = Client::new(config).expect("a client");
        let mut consumer = client.consumer();
        runtime().block_on(consumer.start_with(&at(0), StartAt::Beginning, &topic)).expect("started");
        let mut queue = consumer.split(&at(0)).expect("started");
        values(&mut queue, 10);
        assert!(queue.poll_blocking(Duration::from_millis(1)).expect("no error").is_none());
        let committed = || {
            let found = runtime().block_on(consumer.committed(&[at(0)])).expect("an answer");
            found.get(&at(0)).is_some_and(|offset| *offset >= 10)
        };
        let deadline = Instant::now() + PATIENCE;
        while while_open && !committed() {
            assert!(Instant::now() < deadline, "{group}: nothing is committed");
        }
        std::thread::sleep(Duration::from_millis(200));
        assert_eq!(committed(), while_open, "{group}");
        runtime().block_on(consumer.stop(&at(0))).expect("it was started");
        let found = runtime().block_on(consumer.committed(&[at(0)])).expect("an answer");
        assert_eq!(!found.is_empty(), at_the_end, "{group}");
    }
}

#[test]
fn a_call_passes_at_most_the_configured_number_of_records() {
    let broker = broker();
    let mut config = Config::new(broker.bootstrap_servers());
    config.set("consume.callback.max.messages", "3").expect("a known property");
    let client = Client::new(config).expect("a client");
    produce(&client, 0, 0..10);
    let consumer = client.consumer();
    runtime().block_on(consumer.start(&at(0), StartAt::Beginning)).expect("started");
    let mut queue = consumer.split(&at(0)).expect("started");
    let each = |queue: &mut PartitionQueue, max| queue.consume_each(PATIENCE, max, |_| {}).expect("no error");
    assert_eq!([0; 2].map(|max| each(&mut queue, max)), [3, 3]);
    assert_eq!(each(&mut queue, 4), 4, "the call's own limit");
}

#[test]
fn offsets_in_files_outlive_the_consumer() {
    let broker = broker();
    let directory = tempfile::tempdir().expect("a directory");
    let mut config = Config::new(broker.bootstrap_servers());
    for (name, value) in [
        ("offset.store.method", "file"),
        ("offset.store.path", directory.path().to_str().expect("text")),
        ("offset.store.sync.interval.ms", "0"),
        ("auto.commit.interval.ms", "20"),
        ("auto.offset.reset", "earliest"),
    ] {
        config.set(name, value).expect("a known property");
    }
    let file = directory.path().join("orders-0.offset");
    for life in 0..3 {
        let client = Client::new(config.clone()).expect("a client");
        produce(&client, 0, life * 10..life * 10 + 10);
        let consumer = client.consumer();
        runtime().block_on(consumer.start(&at(0), StartAt::Committed)).expect("started");
        let mut queue = consumer.split(&at(0)).expect("started");
        assert_eq!(values(&mut queue, 10), (life * 10..life * 10 + 10).collect::<Vec<_>>());
        // The next poll marks these records as processed.
        assert!(queue.poll_blocking(Duration::from_millis(1)).expect("no error").is_none());
        consumer.close_blocking(PATIENCE).expect("closed");
        let stored = std::fs::read_to_string(&file).expect("it is there");
        assert_eq!(stored, format!("{}\n", life * 10 + 10));
    }
}

/// It stopped all partitions of the assignment, each time with its error.
#[test]
fn an_offset_file_without_a_number_is_reported_once_and_stops_no_partition() {
    let broker = broker();
    let directory = tempfile::tempdir().expect("a directory");
    for (partition, text) in [(0, "seven"), (1, "3\n")] {
        std::fs::write(directory.path().join(format!("orders-{partition}.offset")), text).expect("written");
    }
    let mut config = Config::new(broker.bootstrap_servers());
    for (name, value) in [
        ("offset.store.method", "file"),
        ("offset.store.path", directory.path().to_str().expect("text")),
        ("enable.auto.commit", "false"),
        ("auto.offset.reset", "earliest"),
    ] {
        config.set(name, value).expect("a known property");
    }
    let client = Client::new(config).expect("a client");
    for partition in [0, 1] {
        produce(&client, partition, 0..5);
    }
    for is_incremental in [false, true] {
        let mut consumer = client.consumer();
        let starts = [0, 1].map(|partition| (at(partition), StartAt::Committed));
        if is_incremental {
            runtime().block_on(consumer.incremental_assign(&starts)).expect("assigned");
        } else {
            runtime().block_on(consumer.assign(&starts)).expect("assigned");
        }
        let [mut first, mut second] =
            [0, 1].map(|partition| consumer.split(&at(partition)).expect("assigned"));
        assert_eq!(values(&mut second, 2), [3, 4]);
        assert_eq!(values(&mut first, 5), [0, 1, 2, 3, 4], "from the reset");
        let error = consumer.poll_blocking(PATIENCE).expect_err("the file has no number").to_string();
        assert!(error.contains("orders-0.offset"), "{error}");
        assert!(consumer.poll_blocking(Duration::from_millis(1)).expect("reported once").is_none());
        consumer.close_blocking(PATIENCE).expect("closed");
    }
}
