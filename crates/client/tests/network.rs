//! Connections: the selection of brokers, the lifetime of connections, and throttling.

#![allow(clippy::disallowed_methods, reason = "a test is a shell: it may use threads")]

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use ottla_broker::{Broker, BrokerThread, Fault};
use ottla_client::{
    BrokerVersion, Cause, Client, Config, Connecting, Connector, Consumer, Error, ErrorCode, Io, Persisted,
    Polled, Producer, Record, Stall, StartAt, TcpConnector, TopicPartition,
};
use ottla_protocol::messages::api_versions::{ApiVersion, ApiVersionsRequest, ApiVersionsResponse};
use ottla_protocol::messages::metadata::{MetadataRequest, MetadataResponse};
use ottla_protocol::{ApiKey, frame};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use crate::counted::{Counted, Tally};

/// The time limit for a connection to change its state.
const PATIENCE: Duration = Duration::from_secs(30);
/// Longer than any of these tests waits.
const NEVER: u32 = 1_000_000;

fn broker(nodes: i32) -> BrokerThread {
    Broker::builder().memory().nodes(nodes).topic("orders", 1).spawn().expect("a broker in memory")
}

fn send(producer: &Producer, value: &str) -> i64 {
    let record = Record::to("orders").partition(0).value(value);
    let delivery = producer.try_enqueue(record).expect("taken");
    delivery.wait(PATIENCE).expect("in time").expect("written").offset.expect("known")
}

fn poll(consumer: &mut Consumer) -> Vec<String> {
    loop {
        match consumer.poll_blocking(PATIENCE).expect("a poll without error") {
            Some(Polled::Records(batch)) => {
                let values = batch.to_owned_records().expect("sound records").into_iter();
                return values
                    .map(|record| String::from_utf8_lossy(&record.value.unwrap_or_default()).into())
                    .collect();
            }
            Some(_) => {}
            None => panic!("nothing after {PATIENCE:?}"),
        }
    }
}

/// A connector whose first call panics, as Tokio does if the system has no thread for the lookup of a name.
#[derive(Default)]
struct PanicsOnce(AtomicBool);

impl Connector for PanicsOnce {
    fn connect<'a>(&'a self, host: &'a str, port: u16) -> Connecting<'a> {
        Box::pin(async move {
            assert!(self.0.swap(true, Ordering::Relaxed), "the system has no thread");
            TcpConnector::default().connect(host, port).await
        })
    }
}

/// The panic ended the task that needed the connection: nothing was sent or fetched any more.
#[test]
fn a_connector_that_panics_once_is_a_connection_that_failed() {
    let broker = broker(1);
    let client = || {
        let config = Config::new(broker.bootstrap_servers());
        Client::with_connector(config, Arc::new(PanicsOnce::default())).expect("a client")
    };
    assert_eq!(send(&client().producer(), "x"), 0);
    let mut consumer = client().consumer();
    let start = [(TopicPartition::new("orders", 0), StartAt::Beginning)];
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(consumer.assign(&start)).expect("assigned");
    assert_eq!(poll(&mut consumer), ["x"]);
}

/// A connector whose lookups hang until they are released.
#[derive(Default)]
struct Hanging {
    begun: AtomicBool,
    is_released: Arc<(Mutex<bool>, Condvar)>,
    /// The client has waited for the calls of the application.
    waited: AtomicBool,
}

impl Connector for Hanging {
    fn connect<'a>(&'a self, _host: &'a str, _port: u16) -> Connecting<'a> {
        let is_released = self.is_released.clone();
        Box::pin(async move {
            let looking_up = tokio::task::spawn_blocking(move || {
                let (lock, changed) = &*is_released;
                let released = lock.lock().expect("no panic while waiting");
                drop(changed.wait_timeout_while(released, 2 * PATIENCE, |released| !*released));
            });
            self.begun.store(true, Ordering::Release);
            looking_up.await.map_err(io::Error::other)?;
            Err(io::ErrorKind::NotFound.into())
        })
    }

    fn await_calls(&self) {
        self.waited.store(true, Ordering::Release);
    }
}

/// The end of a client waited for a resolver without an answer, for tens of seconds.
#[test]
fn a_lookup_that_hangs_does_not_hold_up_the_end_of_a_client() {
    let connector = Arc::new(Hanging::default());
    let client =
        Client::with_connector(Config::new("broker.invalid:9092"), connector.clone()).expect("a client");
    client.connect();
    let begun = Instant::now();
    while !connector.begun.load(Ordering::Acquire) {
        assert!(begun.elapsed() < PATIENCE, "no lookup");
        std::thread::sleep(Duration::from_millis(2));
    }
    let begun = Instant::now();
    client.stop();
    let took = begun.elapsed();
    *connector.is_released.0.lock().expect("no panic while waiting") = true;
    connector.is_released.1.notify_all();
    assert!(took < PATIENCE, "{took:?}");
    assert!(connector.waited.load(Ordering::Acquire));
}

/// KIP-951: the response that reports a new leader names it, so no metadata request is needed.
#[test]
fn a_leader_that_moves_is_followed_by_the_hint_in_the_answer() {
    let broker = broker(2);
    let cluster = broker.cluster();
    assert!(cluster.set_leader("orders", 0, 1));
    let client = Client::new(Config::new(broker.bootstrap_servers())).expect("a client");
    let producer = client.producer();
    send(&producer, "first");
    let mut consumer = client.consumer();
    let from = [(TopicPartition::new("orders", 0), StartAt::Beginning)];
    block_on(consumer.assign(&from)).expect("assigned");
    assert_eq!(poll(&mut consumer), ["first"]);
    for (node, value) in [(2, "second"), (1, "third")] {
        cluster.intercept(ApiKey::Metadata, None, NEVER, Fault::Cut);
        assert!(cluster.set_leader("orders", 0, node));
        send(&producer, value);
        assert_eq!(poll(&mut consumer), [value]);
        cluster.clear_intercepts();
    }
}

/// Metadata requests are repeated if the connection breaks, for example while brokers restart.
#[test]
fn metadata_is_asked_for_again_when_the_connection_breaks_under_the_question() {
    let broker = broker(2);
    let client = Client::new(Config::new(broker.bootstrap_servers())).expect("a client");
    broker.cluster().intercept(ApiKey::Metadata, None, 3, Fault::Cut);
    let told = client.metadata_blocking(Some(&["orders"]), PATIENCE).expect("an answer after three cuts");
    assert_eq!(told.topics[0].partitions.len(), 1);
    broker.cluster().intercept(ApiKey::Metadata, None, NEVER, Fault::Cut);
    let never = client.metadata_blocking(Some(&["orders"]), Duration::from_millis(300));
    assert!(matches!(never, Err(Error::TimedOut { waited_ms: 300, .. })), "{never:?}");
}

#[test]
fn a_broker_that_is_not_asked_for_its_versions_is_taken_at_our_word() {
    use BrokerVersion::{V0_11, V1_0, V1_1, V2_0, V2_1};
    let broker = broker(1);
    broker.cluster().requests(ApiKey::ApiVersions);
    for version in [V0_11, V1_0, V1_1, V2_0, V2_1] {
        let mut config = Config::new(broker.bootstrap_servers());
        config.net.api_version_request = false;
        config.net.version_fallback = version;
        let client = Client::new(config).expect("a client");
        let offset = send(&client.producer(), "plain");
        let mut consumer = client.consumer();
        let from = [(TopicPartition::new("orders", 0), StartAt::Offset(offset))];
        block_on(consumer.assign(&from)).expect("assigned");
        assert_eq!(poll(&mut consumer), ["plain"], "{version:?}");
    }
    assert_eq!(broker.cluster().requests(ApiKey::ApiVersions), 0);
}

#[test]
fn a_broker_that_hangs_up_when_asked_for_its_versions_is_taken_for_an_old_one() {
    let broker = broker(1);
    let cluster = broker.cluster();
    cluster.requests(ApiKey::ApiVersions);
    cluster.intercept(ApiKey::ApiVersions, None, NEVER, Fault::Cut);
    let mut config = Config::new(broker.bootstrap_servers());
    config.net.version_fallback_for = Duration::from_secs(600);
    send(&Producer::new(config).expect("a client"), "old style");
    // One connection as a bootstrap server, and one as a node.
    assert_eq!(cluster.requests(ApiKey::ApiVersions), 2);
}

/// Counts the open connections and the connections in total.
#[derive(Clone, Default)]
struct Counting {
    tally: Arc<Tally>,
    tcp: Arc<TcpConnector>,
}

impl Connector for Counting {
    fn connect<'a>(&'a self, host: &'a str, port: u16) -> Connecting<'a> {
        Box::pin(async move {
            let io = self.tcp.connect(host, port).await?;
            Ok(Box::new(Counted::new(io, &self.tally)) as Box<dyn Io>)
        })
    }
}

#[test]
fn idle_connections_are_closed_and_opened_again_when_needed() {
    let broker = broker(1);
    let counting = Counting::default();
    let mut config = Config::new(broker.bootstrap_servers());
    config.net.max_idle = Some(Duration::from_millis(200));
    let client = Client::with_connector(config, Arc::new(counting.clone())).expect("a client");
    let producer = client.producer();
    send(&producer, "before");
    let deadline = Instant::now() + PATIENCE;
    while counting.tally.open() > 0 {
        assert!(Instant::now() < deadline, "{} connections are open", counting.tally.open());
        std::thread::sleep(Duration::from_millis(5));
    }
    let before = counting.tally.opened();
    assert_eq!(send(&producer, "after"), 1);
    assert_eq!(counting.tally.opened(), before + 1);
}

#[test]
fn a_connection_survives_the_configured_number_of_unanswered_requests() {
    for (max_fails, reopened) in [(1, 1), (2, 0), (0, 0)] {
        let broker = broker(1);
        let counting = Counting::default();
        let mut config = Config::new(broker.bootstrap_servers());
        config.net.max_fails = max_fails;
        config.socket_timeout = Duration::from_millis(200);
        let client = Client::with_connector(config, Arc::new(counting.clone())).expect("a client");
        let admin = client.admin();
        block_on(admin.describe_cluster()).expect("described");
        let before = counting.tally.opened();
        broker.cluster().intercept(ApiKey::Metadata, None, 1, Fault::Delay(Duration::from_millis(600)));
        let error = block_on(admin.describe_cluster()).expect_err("no answer in time").to_string();
        assert!(error.contains("no answer to Metadata") && error.contains("within 200 ms"), "{error}");
        // Until the late response has arrived.
        std::thread::sleep(Duration::from_millis(600));
        block_on(admin.describe_cluster()).expect("described");
        assert_eq!(counting.tally.opened() - before, reopened, "socket.max.fails={max_fails}");
    }
}

/// The bootstrap name leads to the current cluster; the nodes' addresses are no longer valid.
#[test]
fn a_cluster_that_has_moved_is_found_through_the_bootstrap_servers_again() {
    #[derive(Clone)]
    struct Name(Arc<Mutex<String>>, Arc<TcpConnector>);
    impl Connector for Name {
        fn connect<'a>(&'a self, host: &'a str, port: u16) -> Connecting<'a> {
            let current = self.0.lock().expect("no panic").clone();
            let tcp = self.1.clone();
            Box::pin(async move {
                let (host, port) = match current.rsplit_once(':') {
                    Some((to, at)) if host == "bootstrap.test" => {
                        (to.to_owned(), at.parse().expect("a port"))
                    }
                    _ => (host.to_owned(), port),
                };
                tcp.connect(&host, port).await
            })
        }
    }
    for (rebootstrap, found) in [(true, true), (false, false)] {
        let old = broker(1);
        let name = Name(Arc::new(Mutex::new(old.bootstrap_servers())), Arc::default());
        let mut config = Config::new("bootstrap.test:9092");
        config.net.rebootstrap = rebootstrap;
        config.delivery_timeout = Duration::from_secs(if found { 30 } else { 1 });
        let client = Client::with_connector(config, Arc::new(name.clone())).expect("a client");
        let producer = client.producer();
        send(&producer, "old home");
        old.stop();
        let new = broker(1);
        name.0.lock().expect("no panic").clone_from(&new.bootstrap_servers());
        let record = Record::to("orders").partition(0).value("new home");
        let delivery = producer.try_enqueue(record).expect("taken");
        let written = delivery.wait(PATIENCE).expect("its fate is known in time");
        assert_eq!(written.is_ok(), found, "{written:?}");
    }
}

/// KIP-1102: a broker that reports that it belongs to another cluster makes the client use the bootstrap servers
/// again.
#[test]
fn a_broker_that_demands_it_sends_us_back_to_the_bootstrap_servers() {
    #[derive(Clone)]
    struct Name(Arc<Mutex<String>>, Arc<TcpConnector>);
    impl Connector for Name {
        fn connect<'a>(&'a self, host: &'a str, port: u16) -> Connecting<'a> {
            let current = self.0.lock().expect("no panic").clone();
            let tcp = self.1.clone();
            Box::pin(async move {
                let bootstrap = host == "bootstrap.test";
                match current.rsplit_once(':').filter(|_| bootstrap) {
                    Some((to, at)) => tcp.connect(to, at.parse().expect("a port")).await,
                    None => tcp.connect(host, port).await,
                }
            })
        }
    }
    let (old, new) = (broker(1), broker(1));
    let name = Name(Arc::new(Mutex::new(old.bootstrap_servers())), Arc::default());
    let mut config = Config::new("bootstrap.test:9092");
    config.metadata_max_age = Duration::from_millis(50);
    let client = Client::with_connector(config, Arc::new(name.clone())).expect("a client");
    let producer = client.producer();
    assert_eq!(send(&producer, "old home"), 0);
    name.0.lock().expect("no panic").clone_from(&new.bootstrap_servers());
    let demand = Fault::Fail(ErrorCode::RebootstrapRequired);
    old.cluster().intercept(ApiKey::Metadata, None, NEVER, demand);
    let deadline = Instant::now() + PATIENCE;
    while new.cluster().offsets_of("orders", 0) == Some((0, 0)) {
        assert!(Instant::now() < deadline, "the old broker is believed in");
        send(&producer, "wherever home is");
        std::thread::sleep(Duration::from_millis(5));
    }
    // No more records go to the old cluster, although it would accept them.
    let at_old = old.cluster().offsets_of("orders", 0);
    send(&producer, "new home");
    assert_eq!(old.cluster().offsets_of("orders", 0), at_old);
}

#[test]
fn bootstrap_servers_are_asked_again_after_the_trigger() {
    #[derive(Clone)]
    struct Hosts(u16, Arc<Mutex<Vec<String>>>, Arc<TcpConnector>);
    impl Hosts {
        fn count(&self, host: &str) -> usize {
            self.1.lock().expect("no panic").iter().filter(|seen| *seen == host).count()
        }
        fn wait_for(&self, count: usize) {
            let deadline = Instant::now() + PATIENCE;
            while self.count("bootstrap.test") < count {
                assert!(Instant::now() < deadline, "the bootstrap server is left alone");
                std::thread::sleep(Duration::from_millis(2));
            }
        }
    }
    impl Connector for Hosts {
        fn connect<'a>(&'a self, host: &'a str, _: u16) -> Connecting<'a> {
            self.1.lock().expect("no panic").push(host.to_owned());
            self.2.connect("127.0.0.1", self.0)
        }
    }
    for (trigger, forgotten) in [("1", true), ("300000", false)] {
        let broker = broker(1);
        let address: std::net::SocketAddr = broker.bootstrap_servers().parse().expect("one address");
        let hosts = Hosts(address.port(), Arc::default(), Arc::default());
        let mut config = Config::new("bootstrap.test");
        config
            .set_all([
                ("metadata.recovery.rebootstrap.trigger.ms", trigger),
                ("metadata.max.age.ms", "20"),
                ("retry.backoff.ms", "10"),
                ("retry.backoff.max.ms", "20"),
                ("reconnect.backoff.ms", "10"),
                ("reconnect.backoff.max.ms", "20"),
            ])
            .expect("valid properties");
        let client = Client::with_connector(config, Arc::new(hosts.clone())).expect("a client");
        send(&client.producer(), "known");
        broker.stop();
        hosts.wait_for(hosts.count("bootstrap.test") + 3);
        // From now on, further attempts go to the nodes that the client knows.
        hosts.1.lock().expect("no panic").clear();
        hosts.wait_for(5);
        assert_eq!(hosts.count("127.0.0.1") == 0, forgotten, "trigger {trigger}: {:?}", hosts.1);
    }
}

/// The idle time since the last metadata counted for the trigger: after one failed request, the known nodes were discarded. If the
/// bootstrap servers were gone, the client was never connected again.
#[test]
fn one_failed_metadata_request_after_an_idle_time_keeps_the_known_nodes() {
    struct Hosts {
        port: u16,
        is_gone: Arc<AtomicBool>,
        tcp: TcpConnector,
    }
    impl Connector for Hosts {
        fn connect<'a>(&'a self, host: &'a str, _: u16) -> Connecting<'a> {
            if host == "bootstrap.test" && self.is_gone.load(Ordering::SeqCst) {
                return Box::pin(async { Err(io::Error::from(io::ErrorKind::ConnectionRefused)) });
            }
            self.tcp.connect("127.0.0.1", self.port)
        }
    }
    let broker = broker(1);
    let address: std::net::SocketAddr = broker.bootstrap_servers().parse().expect("one address");
    let is_gone = Arc::new(AtomicBool::new(false));
    let hosts = Hosts { port: address.port(), is_gone: is_gone.clone(), tcp: TcpConnector::default() };
    let mut config = Config::new("bootstrap.test");
    config
        .set_all([
            ("metadata.recovery.rebootstrap.trigger.ms", "2000"),
            ("metadata.max.age.ms", "3000"),
            ("retry.backoff.ms", "10"),
            ("retry.backoff.max.ms", "20"),
            ("reconnect.backoff.ms", "10"),
            ("reconnect.backoff.max.ms", "20"),
        ])
        .expect("valid properties");
    let client = Client::with_connector(config, Arc::new(hosts)).expect("a client");
    let producer = client.producer();
    send(&producer, "known");
    is_gone.store(true, Ordering::SeqCst);
    let cluster = broker.cluster();
    cluster.intercept(ApiKey::Metadata, Some(1), 1, Fault::Cut);
    let wait_until = |what: &str, is_met: &dyn Fn() -> bool| {
        let deadline = Instant::now() + PATIENCE;
        while !is_met() {
            assert!(Instant::now() < deadline, "{what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    wait_until("no request fails", &|| cluster.intercepts_left(ApiKey::Metadata, 1) == 0);
    let failed = cluster.requests(ApiKey::Metadata);
    wait_until("the known node is not asked again", &|| cluster.requests(ApiKey::Metadata) > failed);
    send(&producer, "still known");
}

#[test]
fn a_broker_that_does_not_say_its_versions_in_time_is_given_up() {
    let broker = broker(1);
    broker.cluster().intercept(ApiKey::ApiVersions, None, NEVER, Fault::Delay(PATIENCE));
    let mut config = Config::new(broker.bootstrap_servers());
    config.set("api.version.request.timeout.ms", "150").expect("known");
    let admin = Client::new(config).expect("a client").admin();
    let error = block_on(admin.describe_cluster()).expect_err("no answer").to_string();
    assert!(error.contains("no answer to ApiVersions within 150 ms"), "{error}");
}

/// A broker that throttles the client after each response.
#[derive(Default)]
pub(crate) struct Throttling {
    ms: i32,
    /// Only the broker of the first connection throttles.
    only_first: bool,
    connections: AtomicUsize,
    asked: Arc<Mutex<Vec<Instant>>>,
}

impl Throttling {
    fn new(ms: i32, only_first: bool) -> Self {
        Self { ms, only_first, ..Self::default() }
    }

    async fn serve(mut io: DuplexStream, ms: i32, asked: Arc<Mutex<Vec<Instant>>>) -> io::Result<()> {
        loop {
            let size = io.read_i32().await?;
            let mut request = vec![0; size as usize];
            io.read_exact(&mut request).await?;
            let field = |at: usize| i16::from_be_bytes([request[at], request[at + 1]]);
            let (key, version) = (ApiKey::from_i16(field(0)), field(2));
            let correlation_id = i32::from_be_bytes([request[4], request[5], request[6], request[7]]);
            let answer = if key == ApiKey::ApiVersions {
                let version_of = |key: &ApiKey| {
                    let versions = key.api()?.stable_versions;
                    let (min_version, max_version) = (versions.min, versions.max);
                    Some(ApiVersion { api_key: key.code(), min_version, max_version })
                };
                let api_keys = ApiKey::KNOWN.iter().filter_map(version_of).collect();
                let response = ApiVersionsResponse { api_keys, ..Default::default() };
                frame::encode_response::<ApiVersionsRequest>(correlation_id, version, &response)
            } else {
                asked.lock().expect("no panic").push(Instant::now());
                let response = MetadataResponse { throttle_time_ms: ms, ..Default::default() };
                frame::encode_response::<MetadataRequest>(correlation_id, version, &response)
            };
            let bytes: Bytes = answer.expect("encoded").to_bytes()?;
            io.write_all(&bytes).await?;
        }
    }
}

impl Connector for Throttling {
    fn connect<'a>(&'a self, _: &'a str, _: u16) -> Connecting<'a> {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let is_first = self.connections.fetch_add(1, Ordering::Relaxed) == 0;
        let ms = if is_first || !self.only_first { self.ms } else { 0 };
        tokio::spawn(Self::serve(theirs, ms, self.asked.clone()));
        Box::pin(async move { Ok(Box::new(ours) as Box<dyn Io>) })
    }
}

/// KIP-219: the broker responds at once and the client waits. The wait does not count towards a request's timeout.
#[test]
fn a_broker_that_throttles_hears_nothing_for_that_time() {
    const THROTTLE_MS: i32 = 400;
    let connector = Throttling::new(THROTTLE_MS, false);
    let asked = connector.asked.clone();
    let mut config = Config::new("broker.test");
    config.socket_timeout = Duration::from_millis(THROTTLE_MS as u64 / 2);
    // Its first request would leave with another one, before the broker can throttle.
    config.enable_metrics_push = false;
    let admin = Client::with_connector(config, Arc::new(connector)).expect("a client").admin();
    for _ in 0..3 {
        block_on(admin.describe_cluster()).expect("answered");
    }
    let asked = asked.lock().expect("no panic");
    for pair in asked.windows(2) {
        let pause = pair[1] - pair[0];
        assert!(pause >= Duration::from_millis(THROTTLE_MS as u64 - 5), "asked again after {pause:?}");
    }
}

/// One throttled answer held back all metadata requests, lookups of coordinators and admin calls of a client.
#[test]
fn a_broker_that_does_not_throttle_is_asked_in_place_of_one_that_does() {
    const THROTTLE_MS: i32 = 10_000;
    let connector = Throttling::new(THROTTLE_MS, true);
    let asked = connector.asked.clone();
    let mut config = Config::new("one.test,two.test");
    config.enable_metrics_push = false;
    let admin = Client::with_connector(config, Arc::new(connector)).expect("a client").admin();
    let begun = Instant::now();
    for _ in 0..3 {
        block_on(admin.describe_cluster()).expect("answered");
    }
    let took = begun.elapsed();
    assert!(took < Duration::from_millis(THROTTLE_MS as u64 / 2), "{took:?}");
    assert!(asked.lock().expect("no panic").len() >= 3);
}

/// The patience for a response began at once, although the fetch waited for the end of the throttle. The connection was closed, and the
/// next one had no throttle.
#[test]
fn a_throttle_longer_than_the_patience_for_a_response_holds_fetches_back() {
    const THROTTLE: Duration = Duration::from_secs(1);
    let broker = broker(1);
    let counting = Counting::default();
    let mut config = Config::new(broker.bootstrap_servers());
    config.stall_after = Duration::from_millis(200);
    config.fetch_wait_max = Duration::from_millis(50);
    // A response has one batch.
    config.max_partition_fetch_bytes = 1;
    config.enable_metrics_push = false;
    let client = Client::with_connector(config, Arc::new(counting.clone())).expect("a client");
    let (producer, values) = (client.producer(), ["first", "second", "third"]);
    for value in values {
        send(&producer, value);
    }
    broker.cluster().set_throttle(THROTTLE);
    let mut consumer = client.consumer();
    let (begun, from) = (Instant::now(), [(TopicPartition::new("orders", 0), StartAt::Beginning)]);
    block_on(consumer.assign(&from)).expect("assigned");
    assert_eq!(poll(&mut consumer), ["first"]);
    let opened = counting.tally.opened();
    for value in &values[1..] {
        assert_eq!(poll(&mut consumer), [*value]);
    }
    let took = begun.elapsed();
    assert!(took >= THROTTLE * 2, "three responses within {took:?}");
    assert_eq!(counting.tally.opened(), opened, "the connection was closed");
    let stalls: Vec<_> = std::iter::from_fn(|| client.stalls().try_next()).collect();
    let is_unanswered = |stall: &Stall| matches!(stall, Stall::Consuming { cause: Cause::NoAnswer, .. });
    assert!(!stalls.iter().any(|report| is_unanswered(&report.stall)), "{stalls:?}");
}

/// A broker of Apache Kafka 0.10.2, up to its ApiVersions response.
#[derive(Clone, Default)]
struct Ancient {
    /// The highest version of ApiVersions; from 3 on, the broker names it to clients whose version it refuses.
    versions_max: u8,
    /// The versions that clients asked in, and those in which they named their software.
    asked: Arc<Mutex<Vec<(u8, bool)>>>,
}

impl Ancient {
    async fn serve(self, mut io: DuplexStream) -> io::Result<()> {
        let versions_max = i16::from(self.versions_max);
        // Produce, Fetch, Metadata, ApiVersions.
        let known = [(0, 2), (1, 3), (3, 2), (18, versions_max)];
        let listed = |(api_key, max_version)| ApiVersion { api_key, min_version: 0, max_version };
        loop {
            let size = io.read_i32().await?;
            let mut request = vec![0; size as usize];
            io.read_exact(&mut request).await?;
            let (version, correlation_id) =
                (request[3], i32::from_be_bytes([request[4], request[5], request[6], request[7]]));
            let names_software = request.windows(5).filter(|bytes| bytes == b"ottla").count() > 0;
            self.asked.lock().expect("no panic").push((version, names_software));
            let is_known = version <= self.versions_max;
            let response = if is_known {
                ApiVersionsResponse { api_keys: known.map(listed).into(), ..Default::default() }
            } else {
                let own = known.into_iter().filter(|(key, max)| *key == 18 && *max >= 3);
                let api_keys = own.map(listed).collect();
                ApiVersionsResponse {
                    error_code: ErrorCode::UnsupportedVersion,
                    api_keys,
                    ..Default::default()
                }
            };
            let answered_in = if is_known { i16::from(version) } else { 0 };
            let answer = frame::encode_response::<ApiVersionsRequest>(correlation_id, answered_in, &response);
            io.write_all(&answer.expect("encoded").to_bytes()?).await?;
        }
    }
}

impl Connector for Ancient {
    fn connect<'a>(&'a self, _: &'a str, _: u16) -> Connecting<'a> {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        tokio::spawn(self.clone().serve(theirs));
        Box::pin(async move { Ok(Box::new(ours) as Box<dyn Io>) })
    }
}

/// The client asked again in version 0, and the broker never had the name of its software (KIP-511).
#[test]
fn a_broker_of_an_earlier_version_of_api_versions_is_asked_in_that_one() {
    for (versions_max, expected) in [(0, (0, false)), (3, (3, true))] {
        let broker = Ancient { versions_max, ..Ancient::default() };
        let mut config = Config::new("ancient.test");
        config.client_id = "client".to_owned();
        config.delivery_timeout = Duration::from_millis(300);
        let client = Client::with_connector(config, Arc::new(broker.clone())).expect("a client");
        let error = block_on(client.admin().describe_cluster()).expect_err("too old for all else");
        assert!(matches!(error, Error::Unsupported { .. }), "{error:?}");
        assert_eq!(broker.asked.lock().expect("no panic")[..2], [(4, true), expected]);
    }
}

#[test]
fn a_broker_before_0_11_is_refused_with_the_reason() {
    let mut config = Config::new("ancient.test");
    config.delivery_timeout = Duration::from_millis(300);
    let client = Client::with_connector(config, Arc::new(Ancient::default())).expect("a client");
    let error = block_on(client.admin().describe_cluster()).expect_err("too old");
    assert!(matches!(error, Error::Unsupported { .. }), "{error:?}");
    let error = error.to_string();
    assert!(error.contains("ancient.test") && error.contains("older than Apache Kafka 0.11"), "{error}");
    assert!(error.contains("Produce up to version 2"), "{error}");
    let error = block_on(client.producer().send(Record::to("orders").value("v"))).expect_err("too old");
    assert!(error.to_string().contains("older than Apache Kafka 0.11"), "{error}");
    assert_eq!(error.persisted, Persisted::NotWritten);
}

/// Runs a future in this thread.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(future)
}
