//! Periodic work done now, and waits for what clients do.

#![allow(clippy::disallowed_methods, reason = "a test is a shell: it waits")]

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use bytes::Bytes;
use ottla_broker::{ApiKey, Broker, BrokerThread, Clock, ErrorCode, Fault, TopicConfig, WaitError};
use ottla_client::{Config, Consumer, Producer, Record, ShareConsumer};
use ottla_protocol::messages::ProduceResponse;
use ottla_protocol::messages::join_group::{JoinGroupRequest, JoinGroupRequestProtocol};
use ottla_protocol::messages::metadata::MetadataRequest;
use ottla_wire::Seal;

use crate::common::{Heard, Raw, batch, framed, produce_request};

const PATIENCE: Duration = Duration::from_secs(60);
/// 2026-01-01, the first time of the clock.
const BEGINNING_MS: i64 = 1_767_225_600_000;

/// A broker with a fixed clock, and a topic of one partition with this policy.
fn broker(policy: &str) -> (BrokerThread, Arc<AtomicI64>) {
    let clock = Arc::new(AtomicI64::new(BEGINNING_MS));
    let mut topic = TopicConfig::default();
    topic.set("cleanup.policy", policy).expect("a policy");
    let builder =
        Broker::builder().memory().clock(Clock::Fixed(clock.clone())).topic_with("orders", 1, topic);
    let broker = builder.spawn().expect("a broker in memory");
    (broker, clock)
}

fn config(broker: &BrokerThread) -> Config {
    Config::new(broker.bootstrap_servers())
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

fn write(broker: &BrokerThread, key: &str, values: &[&str]) {
    let producer = Producer::new(config(broker)).expect("a producer");
    for value in values {
        let record = Record::to("orders").key(key).value(value).timestamp_ms(BEGINNING_MS);
        let delivery = producer.enqueue_blocking(record).expect("taken");
        delivery.wait(PATIENCE).expect("in time").expect("written");
    }
}

fn offsets(broker: &BrokerThread) -> (i64, i64) {
    broker.cluster().offsets_of("orders", 0).expect("a partition")
}

#[test]
fn retention_now_deletes_closed_segments_that_are_too_old() {
    let (broker, clock) = broker("delete");
    write(&broker, "k", &["a", "b"]);
    assert_eq!(broker.block_on(|cluster| async move { cluster.roll_now("orders").await }), Ok(1));
    write(&broker, "k", &["c"]);
    let apply = || broker.block_on(|cluster| async move { cluster.apply_retention_now().await });
    apply();
    assert_eq!(offsets(&broker), (0, 3), "nothing is a week old");
    clock.fetch_add(8 * 24 * 3_600_000, Ordering::Relaxed);
    apply();
    assert_eq!(
        offsets(&broker),
        (3, 3),
        "the active segment is closed when its records are too old, as in Kafka"
    );
}

#[test]
fn compaction_now_keeps_the_last_record_of_a_key() {
    let (broker, clock) = broker("compact");
    write(&broker, "k", &["a", "b", "c"]);
    broker.block_on(|cluster| async move { cluster.roll_now("orders").await }).expect("rolled");
    clock.fetch_add(1_000, Ordering::Relaxed);
    broker.block_on(|cluster| async move { cluster.compact_now("orders").await }).expect("compacted");
    let mut config = config(&broker);
    config.set_all([("group.id", "g"), ("auto.offset.reset", "earliest")]).expect("known properties");
    let mut consumer = Consumer::new(config).expect("a consumer");
    consumer.control().subscribe(&["orders"]).wait(PATIENCE).expect("subscribed");
    let mut read = Vec::new();
    while read.is_empty() {
        if let Some(ottla_client::Polled::Records(batch)) = consumer.poll_blocking(PATIENCE).expect("a poll")
        {
            read.extend(batch.iter().map(|record| record.expect("sound").offset));
        }
    }
    assert_eq!(read, [2]);
}

#[test]
fn work_on_topics_that_do_not_fit_is_refused() {
    let (broker, _clock) = broker("delete");
    let compacted = broker.block_on(|cluster| async move { cluster.compact_now("orders").await });
    assert_eq!(compacted, Err(ErrorCode::PolicyViolation));
    let rolled = broker.block_on(|cluster| async move { cluster.roll_now("bills").await });
    assert_eq!(rolled, Err(ErrorCode::UnknownTopicOrPartition));
}

#[test]
fn a_wait_ends_with_the_state_of_the_group_or_names_what_was_there() {
    let (broker, _clock) = broker("delete");
    let mut config = config(&broker);
    config.set("group.id", "billing").expect("a known property");
    let consumer = Consumer::new(config).expect("a consumer");
    let wait = |state, within| {
        broker.block_on(move |cluster| async move { cluster.wait_for_group("billing", state, within).await })
    };
    let missed = wait("Stable", Duration::from_millis(30)).expect_err("no one has joined");
    assert_eq!(missed.to_string(), "state Stable of group billing did not come about within 30 ms: Dead");
    consumer.control().subscribe(&["orders"]).wait(PATIENCE).expect("subscribed");
    wait("stable", PATIENCE).expect("it joins");
    runtime().block_on(consumer.close(PATIENCE)).expect("left");
    wait("Empty", PATIENCE).expect("it leaves");
}

/// The first request to join panicked, and its member got no answer.
#[test]
fn the_first_members_of_a_group_may_wait_without_a_limit() {
    let (broker, _clock) = broker("delete");
    broker.cluster().set_group_initial_delay(Duration::MAX);
    let protocol = JoinGroupRequestProtocol { name: "range".into(), metadata: Bytes::new() };
    let request = JoinGroupRequest {
        group_id: "billing".into(),
        session_timeout_ms: 60_000,
        rebalance_timeout_ms: 60_000,
        protocol_type: "consumer".into(),
        protocols: vec![protocol],
        ..Default::default()
    };
    let mut connection = Raw::connect(broker.addresses()[0]);
    connection.send(&framed(3, &request));
    let waits = broker.block_on(|cluster| async move {
        cluster.wait_for_group("billing", "PreparingRebalance", PATIENCE).await
    });
    assert_eq!(waits, Ok(()));
}

#[test]
fn offsets_that_are_too_old_expire_now() {
    let (broker, clock) = broker("delete");
    let mut config = config(&broker);
    config.set("group.id", "billing").expect("a known property");
    let consumer = Consumer::new(config).expect("a consumer");
    let at = ottla_client::TopicPartition::new("orders", 0);
    consumer.control().commit_offsets(&[(at, 0.into())]).wait(PATIENCE).expect("committed");
    drop(consumer);
    let committed = || broker.cluster().committed_offset("billing", "orders", 0);
    let expire = || broker.block_on(|cluster| async move { cluster.expire_offsets_now().await });
    expire();
    assert_eq!(committed(), Some(0));
    clock.fetch_add(8 * 24 * 3_600_000, Ordering::Relaxed);
    expire();
    assert_eq!(committed(), None);
    assert_eq!(broker.cluster().group_state("billing"), "Dead");
}

#[test]
fn requests_and_transactions_are_waited_for() {
    let (broker, _clock) = broker("delete");
    assert_eq!(broker.cluster().requests(ApiKey::Produce), 0);
    let mut config = config(&broker);
    config
        .set_all([("transactional.id", "till"), ("transaction.timeout.ms", "1000")])
        .expect("known properties");
    let producer = Producer::new(config).expect("a producer");
    let runtime = runtime();
    runtime.block_on(producer.init_transactions(PATIENCE)).expect("ready");
    producer.begin_transaction().expect("begun");
    let _unawaited = producer.enqueue_blocking(Record::to("orders").value("v")).expect("taken");
    let waited = broker.block_on(|cluster| async move {
        cluster.wait_for_requests(ApiKey::Produce, 1, PATIENCE).await?;
        cluster.wait_for_transaction("till", "Ongoing", PATIENCE).await
    });
    waited.expect("an open transaction");
    let deadline = Instant::now() + PATIENCE;
    loop {
        let ended = broker.block_on(|cluster| async move {
            cluster.abort_timed_out_transactions_now().await;
            cluster.wait_for_transaction("till", "CompleteAbort", Duration::from_millis(100)).await
        });
        match ended {
            Ok(()) => break,
            Err(open) => assert!(Instant::now() < deadline, "{open}"),
        }
    }
}

type Wait<'a> = Pin<Box<dyn Future<Output = Result<(), WaitError>> + 'a>>;

/// A wait that has begun, and has looked once.
fn begun<'a>(
    runtime: &tokio::runtime::Runtime,
    wait: impl Future<Output = Result<(), WaitError>> + 'a,
) -> Wait<'a> {
    let mut wait: Wait<'a> = Box::pin(wait);
    let is_pending = runtime.block_on(poll_fn(|cx| Poll::Ready(wait.as_mut().poll(cx).is_pending())));
    assert!(is_pending, "it is so already");
    wait
}

/// A wait looks every 2 ms, and missed the states that were over in between: those of a rebalance, and of a commit.
#[test]
fn a_wait_ends_although_the_state_has_come_and_gone_since_its_beginning() {
    let (broker, _clock) = broker("delete");
    let (cluster, runtime) = (broker.cluster(), runtime());
    let of_group = |state: &'static str| cluster.wait_for_group("billing", state, PATIENCE);
    let rebalance =
        ["PreparingRebalance", "completingRebalance"].map(|state| begun(&runtime, of_group(state)));
    let mut member = config(&broker);
    member.set("group.id", "billing").expect("a known property");
    let consumer = Consumer::new(member).expect("a consumer");
    consumer.control().subscribe(&["orders"]).wait(PATIENCE).expect("subscribed");
    runtime.block_on(of_group("Stable")).expect("it joins");
    for wait in rebalance {
        assert_eq!(runtime.block_on(wait), Ok(()));
    }

    let of_transaction = |state: &'static str| cluster.wait_for_transaction("till", state, PATIENCE);
    let mut till = config(&broker);
    till.set("transactional.id", "till").expect("a known property");
    let producer = Producer::new(till).expect("a producer");
    runtime.block_on(producer.init_transactions(PATIENCE)).expect("ready");
    let transaction = ["Ongoing", "prepareCommit"].map(|state| begun(&runtime, of_transaction(state)));
    producer.begin_transaction().expect("begun");
    let _delivery =
        producer.enqueue_blocking(Record::to("orders").value("v").timestamp_ms(BEGINNING_MS)).expect("taken");
    runtime.block_on(producer.commit_transaction(PATIENCE)).expect("committed");
    runtime.block_on(of_transaction("CompleteCommit")).expect("the markers follow");
    for wait in transaction {
        assert_eq!(runtime.block_on(wait), Ok(()));
    }
    // States from before a wait do not count.
    let short = cluster.wait_for_transaction("till", "Ongoing", Duration::from_millis(20));
    assert_eq!(runtime.block_on(short).expect_err("it is over").found, "CompleteCommit");
}

/// Requests of `size` bytes in one write, as a client with several in flight sends them.
fn produce_at_once(connection: &mut Raw, sizes: &[usize]) {
    let request = |size: &usize| {
        let records = batch(&[&vec![b'x'; *size]], &Seal::default());
        framed(12, &produce_request("orders", 1, &records))
    };
    connection.send(&sizes.iter().flat_map(request).collect::<Vec<_>>());
}

/// The later ones were appended at once, before the one that was delayed.
#[test]
fn produce_requests_behind_a_delayed_one_keep_their_order() {
    let (broker, _clock) = broker("delete");
    let fault = Fault::Delay(Duration::from_millis(200));
    broker.cluster().intercept(ApiKey::Produce, None, 1, fault);
    let mut connection = Raw::connect(broker.addresses()[0]);
    produce_at_once(&mut connection, &[1, 2, 3]);
    for offset in 0..3 {
        let Heard::Answer(answer) = connection.hear() else { panic!("an answer") };
        let response: ProduceResponse =
            ottla_protocol::frame::decode_response::<ottla_protocol::messages::ProduceRequest>(answer, 12)
                .expect("a response")
                .1;
        assert_eq!(response.responses[0].partition_responses[0].base_offset, offset);
    }
}

#[test]
fn requests_behind_one_that_is_cut_off_or_hangs_are_not_handled() {
    for fault in [Fault::Cut, Fault::CutAfter, Fault::Hang, Fault::HangAfter] {
        let (broker, _clock) = broker("delete");
        broker.cluster().intercept(ApiKey::Produce, None, 1, fault);
        let mut connection = Raw::connect(broker.addresses()[0]);
        produce_at_once(&mut connection, &[1, 2, 3]);
        let is_handled = matches!(fault, Fault::CutAfter | Fault::HangAfter);
        let deadline = Instant::now() + PATIENCE;
        while broker.cluster().intercepts_left(ApiKey::Produce, 1) > 0 {
            assert!(Instant::now() < deadline);
            std::thread::sleep(Duration::from_millis(1));
        }
        // The broker's thread has served the first connection before another one.
        assert!(Raw::connect(broker.addresses()[0]).is_served());
        assert_eq!(offsets(&broker), (0, i64::from(is_handled)), "{fault:?}");
    }
}

/// With a request behind the one that hangs, the connection was not read: it stayed until the broker ended.
#[cfg(target_os = "linux")]
#[test]
fn a_client_that_leaves_a_connection_that_hangs_is_noticed() {
    let (broker, _clock) = broker("delete");
    broker.cluster().intercept(ApiKey::Metadata, None, 1, Fault::Hang);
    let mut connection = Raw::connect(broker.addresses()[0]);
    let request = framed(9, &MetadataRequest::default());
    connection.send(&[request.clone(), request].concat());
    let open = || broker.cluster().metrics_text(10).contains("ottla_connections{node=\"1\"} 1\n");
    let until = |is_there: &dyn Fn() -> bool| {
        let deadline = Instant::now() + PATIENCE;
        while !is_there() {
            assert!(Instant::now() < deadline);
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    until(&|| open() && broker.cluster().intercepts_left(ApiKey::Metadata, 1) == 0);
    drop(connection);
    until(&|| !open());
}

/// A share group was `Dead`, however many members it had.
#[test]
fn a_wait_knows_share_groups() {
    let (broker, _clock) = broker("delete");
    let state = |state: &'static str| {
        let waited = broker
            .block_on(move |cluster| async move { cluster.wait_for_group("sharers", state, PATIENCE).await });
        assert_eq!(waited, Ok(()));
    };
    state("Dead");
    let mut with_group = config(&broker);
    with_group.group_id = Some("sharers".into());
    let mut member = ShareConsumer::new(with_group).expect("a share consumer");
    let runtime = runtime();
    runtime.block_on(member.subscribe(&["orders"])).expect("subscribed");
    state("Stable");
    runtime.block_on(member.close(PATIENCE)).expect("closed");
    state("Empty");
}
