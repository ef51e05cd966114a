//! Fetch requests on the wire, and the handling of error responses: sessions, topic ids, leaders that move, logs that
//! are truncated.

#![allow(clippy::disallowed_methods, reason = "a test is a shell: it may use threads")]

use std::sync::Arc;
use std::time::Duration;

use ottla_broker::{Broker, BrokerThread, Fault, ReplicaSelector};
use ottla_client::{
    Admin, Client, Config, Consumer, ErrorCode, NewTopic, PolledRecord, Record, StartAt, TopicPartition,
};
use ottla_protocol::messages::fetch::FetchRequest;
use ottla_protocol::messages::offset_for_leader_epoch::OffsetForLeaderEpochRequest;
use ottla_protocol::{ApiKey, Request};

use crate::recorder::{PATIENCE, Recorder, wait_until};

fn broker(partitions: i32) -> BrokerThread {
    Broker::builder().memory().nodes(2).topic("orders", partitions).spawn().expect("a broker in memory")
}

fn recorded(broker: &BrokerThread) -> (Client, Recorder) {
    let recorder = Recorder::default();
    let mut config = Config::new(broker.bootstrap_servers());
    for (name, value) in [("fetch.wait.max.ms", "20"), ("retry.backoff.ms", "10")] {
        config.set(name, value).expect("a known property");
    }
    (Client::with_connector(config, Arc::new(recorder.clone())).expect("a client"), recorder)
}

fn at(partition: i32) -> TopicPartition {
    TopicPartition::new("orders", partition)
}

fn reader(client: &Client, partitions: i32) -> Consumer {
    let mut consumer = client.consumer();
    let all: Vec<_> = (0..partitions).map(|partition| (at(partition), StartAt::Beginning)).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(consumer.assign(&all)).expect("assigned");
    consumer
}

fn produce(client: &Client, partition: i32, count: i64) {
    let producer = client.producer();
    for _ in 0..count {
        drop(producer.enqueue_blocking(Record::to("orders").partition(partition).value("v")).expect("taken"));
    }
    producer.flush_blocking(PATIENCE).expect("written");
}

/// Reads `count` records and returns their offsets.
fn offsets(consumer: &mut Consumer, count: usize) -> Vec<i64> {
    let mut found = Vec::new();
    while found.len() < count {
        match consumer.next_record_blocking(PATIENCE).expect("no error") {
            Some(PolledRecord::Record(record)) => found.push(record.offset()),
            other => panic!("{other:?} after {found:?}"),
        }
    }
    found
}

/// The fetches that were written, from index `from` on.
fn fetches(recorder: &Recorder, from: usize) -> Vec<FetchRequest> {
    recorder.requests::<FetchRequest>().into_iter().skip(from).map(|(_, _, request)| request).collect()
}

#[test]
fn a_session_names_partitions_once_and_forgets_those_that_are_paused() {
    let broker = Broker::builder().memory().topic("orders", 3).spawn().expect("a broker in memory");
    let (client, recorder) = recorded(&broker);
    let consumer = reader(&client, 3);
    wait_until("a session with nothing to say", || {
        let fetches = fetches(&recorder, 0);
        let quiet = |fetch: &&FetchRequest| fetch.session_epoch > 0 && fetch.topics.is_empty();
        fetches.iter().rev().take_while(quiet).count() >= 3
    });
    let all = fetches(&recorder, 0);
    let in_session = all.iter().filter(|fetch| fetch.session_epoch >= 0);
    let named: usize = in_session.flat_map(|fetch| &fetch.topics).map(|t| t.partitions.len()).sum();
    assert!(named <= 6, "three partitions were named {named} times");
    assert!(!fetches(&recorder, 0)[0].topics[0].topic_id.is_zero(), "by their topic's id");

    let before = recorder.count(ApiKey::Fetch);
    consumer.pause(&[at(1)]);
    wait_until("it to be forgotten", || {
        fetches(&recorder, before)
            .iter()
            .any(|fetch| fetch.forgotten_topics_data.iter().any(|topic| topic.partitions == [1]))
    });
    let before = recorder.count(ApiKey::Fetch);
    consumer.resume(&[at(1)]);
    wait_until("it to be named again", || {
        let partitions = |fetch: &FetchRequest| {
            fetch.topics.iter().flat_map(|topic| &topic.partitions).any(|named| named.partition == 1)
        };
        fetches(&recorder, before).iter().any(partitions)
    });
}

#[test]
fn no_error_of_a_fetch_loses_or_repeats_a_record() {
    let broker = broker(2);
    let (client, _) = recorded(&broker);
    let mut consumer = reader(&client, 1);
    let mut next = 0;
    for fault in [
        Fault::Fail(ErrorCode::FetchSessionIdNotFound),
        Fault::Fail(ErrorCode::InvalidFetchSessionEpoch),
        Fault::Fail(ErrorCode::FetchSessionTopicIdError),
        Fault::Fail(ErrorCode::UnknownTopicId),
        Fault::Fail(ErrorCode::InconsistentTopicId),
        Fault::Fail(ErrorCode::NotLeaderOrFollower),
        Fault::Fail(ErrorCode::UnknownLeaderEpoch),
        Fault::Fail(ErrorCode::FencedLeaderEpoch),
        Fault::Fail(ErrorCode::UnknownTopicOrPartition),
        Fault::Cut,
        Fault::CutAfter,
    ] {
        broker.cluster().intercept(ApiKey::Fetch, None, 2, fault);
        produce(&client, 0, 10);
        assert_eq!(offsets(&mut consumer, 10), (next..next + 10).collect::<Vec<_>>(), "{fault:?}");
        next += 10;
    }
}

#[test]
fn a_failed_fetch_is_repeated_after_its_own_backoff() {
    let broker = broker(1);
    let mut config = Config::new(broker.bootstrap_servers());
    for (name, value) in
        [("fetch.error.backoff.ms", "300"), ("retry.backoff.ms", "1"), ("fetch.wait.max.ms", "10")]
    {
        config.set(name, value).expect("a known property");
    }
    let recorder = Recorder::default();
    let client = Client::with_connector(config, Arc::new(recorder.clone())).expect("a client");
    let mut consumer = reader(&client, 1);
    wait_until("a fetch", || recorder.count(ApiKey::Fetch) > 0);
    broker.cluster().intercept(ApiKey::Fetch, Some(1), 3, Fault::Fail(ErrorCode::NotLeaderOrFollower));
    wait_until("three failures", || broker.cluster().intercepts_left(ApiKey::Fetch, 1) == 0);
    produce(&client, 0, 1);
    assert_eq!(offsets(&mut consumer, 1), [0]);
    let times: Vec<_> = recorder.requests::<FetchRequest>().iter().map(|(at, ..)| *at).collect();
    let own = Duration::from_millis(300);
    let waited = times.windows(2).filter(|pair| pair[1] - pair[0] >= own).count();
    assert!(waited >= 3, "{waited} waits of {own:?} for 3 failures");
}

#[test]
fn a_new_leader_is_asked_whether_its_log_is_the_one_that_was_read() {
    let broker = broker(1);
    let (client, recorder) = recorded(&broker);
    let mut consumer = reader(&client, 1);
    produce(&client, 0, 5);
    assert_eq!(offsets(&mut consumer, 5), [0, 1, 2, 3, 4]);
    for node in [2, 1, 2] {
        assert!(broker.cluster().set_leader("orders", 0, node));
        produce(&client, 0, 1);
    }
    assert_eq!(offsets(&mut consumer, 3), [5, 6, 7]);
    wait_until("the question", || recorder.count(OffsetForLeaderEpochRequest::KEY) > 0);
    let epochs: Vec<i32> = fetches(&recorder, 0)
        .iter()
        .flat_map(|fetch| &fetch.topics)
        .flat_map(|topic| &topic.partitions)
        .map(|partition| partition.current_leader_epoch)
        .collect();
    assert!(epochs.last() > epochs.first(), "fetches say which leader they mean: {epochs:?}");
    assert!(consumer.next_record_blocking(Duration::from_millis(50)).expect("no error").is_none());
}

/// Kafka 2.1 and 2.2 answer the question only if the client has a right on the cluster: without it, reading stopped when a leader changed.
#[test]
fn a_leader_that_wants_rights_on_the_cluster_is_fetched_from_without_the_question() {
    let broker = broker(1);
    assert!(broker.cluster().set_versions(ApiKey::OffsetForLeaderEpoch, Some((0, 2))));
    let (client, recorder) = recorded(&broker);
    let mut consumer = reader(&client, 1);
    produce(&client, 0, 5);
    assert_eq!(offsets(&mut consumer, 5), [0, 1, 2, 3, 4]);
    for (node, next) in [(2, 5), (1, 6)] {
        assert!(broker.cluster().set_leader("orders", 0, node));
        produce(&client, 0, 1);
        assert_eq!(offsets(&mut consumer, 1), [next]);
    }
    assert_eq!(recorder.count(OffsetForLeaderEpochRequest::KEY), 0);
}

/// Fetches wait for records for longer than the time limit, so requests must not queue behind them.
#[test]
fn nobody_waits_for_a_fetch_that_waits_for_records() {
    let broker = Broker::builder().memory().topic("orders", 3).spawn().expect("a broker in memory");
    let mut config = Config::new(broker.bootstrap_servers());
    let long = (PATIENCE * 4).as_millis().to_string();
    for (name, value) in
        [("fetch.wait.max.ms", &*long), ("queued.min.messages", "5"), ("max.partition.fetch.bytes", "2000")]
    {
        config.set(name, value).expect("a known property");
    }
    let recorder = Recorder::default();
    let client = Client::with_connector(config, Arc::new(recorder.clone())).expect("a client");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    produce(&client, 1, 10);
    produce(&client, 2, 1000);
    let mut consumer = client.consumer();
    runtime.block_on(consumer.start(&at(0), StartAt::Beginning)).expect("started");
    wait_until("a fetch that waits", || recorder.count(ApiKey::Fetch) > 0);

    // A partition that is added, one that was full, and one that starts again at another offset.
    runtime.block_on(consumer.start(&at(1), StartAt::Beginning)).expect("started");
    assert_eq!(offsets(&mut consumer, 10), (0..10).collect::<Vec<_>>());
    runtime.block_on(consumer.start(&at(2), StartAt::Beginning)).expect("started");
    assert_eq!(offsets(&mut consumer, 1000), (0..1000).collect::<Vec<_>>());
    runtime.block_on(consumer.seek(&at(1), StartAt::Offset(5))).expect("assigned");
    assert_eq!(offsets(&mut consumer, 5), [5, 6, 7, 8, 9]);
    // Records that arrive in the meantime.
    produce(&client, 0, 3);
    assert_eq!(offsets(&mut consumer, 3), [0, 1, 2]);
    produce(&client, 2, 3);
    assert_eq!(offsets(&mut consumer, 3), [1000, 1001, 1002]);
}

/// The broker has the rules of Kafka's RackAwareReplicaSelector (KIP-392).
#[test]
fn a_consumer_reads_from_the_replica_in_its_rack_until_that_one_is_gone() {
    let builder = Broker::builder().memory().nodes(3).racks(["a", "b", "c"]);
    let builder = builder.configure(|config| config.replica_selector = ReplicaSelector::RackAware);
    let broker = builder.spawn().expect("a broker in memory");
    let mut config = Config::new(broker.bootstrap_servers());
    for (name, value) in [("fetch.wait.max.ms", "20"), ("retry.backoff.ms", "10"), ("client.rack", "b")] {
        config.set(name, value).expect("a known property");
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let admin = Admin::new(config.clone()).expect("an admin");
    // Node 1 leads; node 2 is a replica, too.
    let topic = NewTopic::new("orders").partitions(1).replication(2);
    runtime.block_on(admin.create_topics(&[topic])).expect("created");
    let client = Client::new(config).expect("a client");
    produce(&client, 0, 3);
    broker.cluster().track_requests(true);
    let mut consumer = reader(&client, 1);
    assert_eq!(offsets(&mut consumer, 3), [0, 1, 2]);
    produce(&client, 0, 2);
    assert_eq!(offsets(&mut consumer, 2), [3, 4]);
    let tracked = broker.cluster().tracked_requests();
    let nodes: Vec<i32> =
        tracked.iter().filter(|request| request.api == ApiKey::Fetch).map(|request| request.node).collect();
    assert!(nodes.starts_with(&[1, 2]) && nodes.ends_with(&[2]), "the leader, then node 2: {nodes:?}");
    // The leader answers while the replica is down.
    assert!(broker.cluster().take_down(2));
    produce(&client, 0, 1);
    assert_eq!(offsets(&mut consumer, 1), [5]);
}
