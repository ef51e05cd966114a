//! Brokers that accept connections and do not answer, or do not accept them: others are used in their place.

#![allow(clippy::disallowed_methods, reason = "a test is a shell: it measures real time")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use ottla_broker::{ApiKey, Broker, Fault};
use ottla_client::{
    Client, Config, Connecting, Connector, Consumer, DescribeOptions, Polled, Producer, Record, StartAt,
    TopicPartition,
};

use crate::network::Throttling;

/// The time limit of a test.
const PATIENCE: Duration = Duration::from_secs(60);
/// More requests than a test sends.
const NEVER: u32 = 1_000_000;

fn send(producer: &Producer, value: &str) {
    let delivery = producer.try_enqueue(Record::to("orders").partition(0).value(value)).expect("taken");
    delivery.wait(PATIENCE).expect("in time").expect("written");
}

/// Runs a future in this thread.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(future)
}

/// The values of the next records; errors of requests that are repeated are skipped.
fn poll(consumer: &mut Consumer) -> Vec<String> {
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        if let Ok(Some(Polled::Records(batch))) = consumer.poll_blocking(Duration::from_millis(100)) {
            let records = batch.to_owned_records().expect("sound records").into_iter();
            let text = |value: Option<bytes::Bytes>| {
                String::from_utf8_lossy(&value.unwrap_or_default()).into_owned()
            };
            return records.map(|record| text(record.value)).collect();
        }
    }
    panic!("no record in time");
}

/// Requests for metadata had no patience: the new leader was found after the request timeout of 30 seconds.
#[test]
fn a_new_leader_is_found_soon_although_the_broker_that_is_asked_is_silent() {
    let broker = Broker::builder().memory().nodes(3).topic("orders", 1).spawn().expect("a broker in memory");
    let cluster = broker.cluster();
    assert!(cluster.set_leader("orders", 0, 1));
    let servers = broker.bootstrap_servers();
    let server = |index: usize| servers.split(',').nth(index).expect("three nodes");
    send(&Producer::new(Config::new(server(0))).expect("a producer"), "first");
    let mut config = Config::new(server(0));
    config.stall_after = Duration::from_millis(100);
    config.fetch_wait_max = Duration::from_millis(50);
    config.enable_metrics_push = false;
    let client = Client::new(config).expect("a client");
    let mut consumer = client.consumer();
    let from = [(TopicPartition::new("orders", 0), StartAt::Beginning)];
    block_on(consumer.assign(&from)).expect("assigned");
    assert_eq!(poll(&mut consumer), ["first"]);

    for api in [ApiKey::Metadata, ApiKey::Fetch] {
        cluster.intercept(api, Some(1), NEVER, Fault::Hang);
    }
    // The fetch in progress would bring the new leader.
    let deadline = Instant::now() + PATIENCE;
    while cluster.intercepts_left(ApiKey::Fetch, 1) == NEVER as usize {
        assert!(Instant::now() < deadline, "no fetch hangs");
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!(cluster.set_leader("orders", 0, 2));
    send(&Producer::new(Config::new(server(1))).expect("a producer"), "second");
    let begun = Instant::now();
    assert_eq!(poll(&mut consumer), ["second"]);
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(15), "{took:?}");
}

#[test]
fn another_broker_describes_the_cluster_if_one_is_silent() {
    let broker = Broker::builder().memory().nodes(3).spawn().expect("a broker in memory");
    let servers = broker.bootstrap_servers();
    let mut config = Config::new(servers.split(',').next().expect("three nodes"));
    config.stall_after = Duration::from_millis(100);
    config.enable_metrics_push = false;
    let admin = Client::new(config).expect("a client").admin();
    assert_eq!(block_on(admin.describe_cluster()).expect("described").brokers.len(), 3);
    broker.cluster().intercept(ApiKey::Metadata, Some(1), NEVER, Fault::Hang);
    let begun = Instant::now();
    for _ in 0..2 {
        assert_eq!(block_on(admin.describe_cluster()).expect("another node answers").brokers.len(), 3);
    }
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(15), "{took:?}");
}

/// The request was given up after half of its time, and so was its repetition: the response was never awaited.
#[test]
fn the_only_broker_has_the_whole_time_for_a_description() {
    let broker = Broker::builder().memory().nodes(1).spawn().expect("a broker in memory");
    let mut config = Config::new(broker.bootstrap_servers());
    config.socket_timeout = Duration::from_secs(2);
    config.enable_metrics_push = false;
    let admin = Client::new(config).expect("a client").admin();
    block_on(admin.describe_cluster()).expect("described");
    let slow = Fault::Delay(Duration::from_millis(1200));
    broker.cluster().intercept(ApiKey::DescribeCluster, Some(1), NEVER, slow);
    block_on(admin.describe_cluster_with(DescribeOptions::default())).expect("a response within its time");
}

/// The call failed when the request timeout had elapsed, although its own time had not.
#[test]
fn metadata_is_requested_until_its_own_time_is_over() {
    let broker = Broker::builder().memory().nodes(1).spawn().expect("a broker in memory");
    let mut config = Config::new(broker.bootstrap_servers());
    config.socket_timeout = Duration::from_secs(1);
    // The broker is abandoned after twice this time, and the backoff has no end before the request timeout.
    config.stall_after = Duration::from_millis(495);
    config.enable_metrics_push = false;
    let client = Client::new(config).expect("a client");
    broker.cluster().intercept(ApiKey::Metadata, Some(1), 1, Fault::Hang);
    let begun = Instant::now();
    let described = block_on(client.metadata(None, PATIENCE)).expect("a response to another request");
    assert_eq!(described.brokers.len(), 1);
    let took = begun.elapsed();
    assert!(took >= Duration::from_millis(900) && took < Duration::from_secs(15), "{took:?}");
}

/// Only `live.test` accepts connections. The other hosts drop the packets.
#[derive(Default)]
struct OneLiveHost(Throttling);

impl Connector for OneLiveHost {
    fn connect<'a>(&'a self, host: &'a str, port: u16) -> Connecting<'a> {
        if host == "live.test" { self.0.connect(host, port) } else { Box::pin(std::future::pending()) }
    }
}

/// The hosts were tried one after the other, each for the whole time of an attempt.
#[test]
fn bootstrap_servers_that_drop_packets_delay_the_client_by_a_second_each() {
    for seed in 0..8 {
        let builder = &mut tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_time().start_paused(true).build().expect("a runtime");
        let took = tokio::task::LocalSet::new().block_on(&runtime, async {
            let mut config = Config::new("dead-1.test,dead-2.test,live.test");
            config.enable_metrics_push = false;
            let connector = Arc::new(OneLiveHost::default());
            let (client, engine) = Client::with_engine(config, connector, seed).expect("a client");
            tokio::task::spawn_local(engine.run());
            let begun = tokio::time::Instant::now();
            client.admin().describe_cluster().await.expect("a broker is live");
            begun.elapsed()
        });
        assert!(took < Duration::from_millis(2500), "seed {seed}: {took:?}");
    }
}
