//! The operation of a broker: its metrics, and its orderly end, in which requests that have arrived are answered and nothing
//! else delays the end.

use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use ottla_broker::{Broker, BrokerBuilder, Fault, Listener};
use ottla_protocol::ApiKey;
use ottla_protocol::ErrorCode;
use ottla_protocol::messages::fetch::{FetchPartition, FetchRequest, FetchTopic};
use ottla_protocol::messages::join_group::{JoinGroupRequest, JoinGroupRequestProtocol};
use ottla_wire::Seal;
use tokio::runtime::Runtime;

use crate::common::{Heard, PATIENCE, Raw, batch, commit_request, framed, metadata_of};
use crate::security::{any_port, tls};
use crate::tls::{TlsClient, certificate};

/// A time limit that only a defect reaches.
const UNLIMITED: Duration = Duration::from_secs(600);

/// A broker whose threads serve while the test waits.
struct Served {
    broker: Broker,
    runtime: Runtime,
}

impl Served {
    fn start(builder: BrokerBuilder) -> Self {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(2).enable_all().build().expect("a runtime");
        let broker = runtime.block_on(builder.start()).expect("a broker");
        Self { broker, runtime }
    }

    fn connect(&self) -> Raw {
        Raw::connect(self.broker.addresses()[0])
    }

    /// Waits until requests of this API have arrived.
    fn await_requests(&self, api: ApiKey, count: usize) {
        let seen = || {
            let requests = self.broker.cluster().tracked_requests();
            requests.iter().filter(|request| request.api == api).count()
        };
        for _ in 0..PATIENCE.as_millis() {
            if seen() >= count {
                return;
            }
            std::thread::park_timeout(Duration::from_millis(1));
        }
        panic!("{} of {count} {api} requests within {PATIENCE:?}", seen());
    }

    /// The metrics, once a sample has a value.
    fn metrics_with(&self, name: &str, value: u64) -> String {
        for _ in 0..PATIENCE.as_millis() {
            let text = self.broker.cluster().metrics_text(100);
            if sample(&text, name) == Some(value) {
                return text;
            }
            std::thread::park_timeout(Duration::from_millis(1));
        }
        panic!("{name} is not {value} within {PATIENCE:?}");
    }

    fn drain(&mut self, limit: Duration) -> usize {
        self.runtime.block_on(self.broker.drain(limit))
    }

    fn stop(self) {
        self.runtime.block_on(self.broker.stop());
    }
}

fn one_topic() -> Served {
    let served = Served::start(Broker::builder().memory().topic("orders", 1));
    served.broker.cluster().track_requests(true);
    served
}

#[test]
fn a_request_that_has_arrived_is_answered_and_later_connections_are_refused() {
    let mut served = one_topic();
    let address = served.broker.addresses()[0];
    let mut idle = served.connect();
    assert!(idle.is_served());
    let slow = Fault::AnswerAfter(Duration::from_millis(300));
    served.broker.cluster().intercept(ApiKey::Metadata, None, 1, slow);
    let mut client = served.connect();
    client.send(&framed(12, &metadata_of("orders")));
    // The second one waits in the connection's buffer, behind the first.
    client.send(&framed(12, &metadata_of("orders")));
    served.await_requests(ApiKey::Metadata, 2);
    let client = std::thread::spawn(move || {
        let heard = [client.hear(), client.hear(), client.hear()];
        client.finish();
        heard
    });
    let idle = std::thread::spawn(move || idle.hear());
    assert_eq!(served.drain(UNLIMITED), 0);
    let heard = client.join().expect("no panic");
    assert!(matches!(heard, [Heard::Answer(_), Heard::Answer(_), Heard::Closed]), "{heard:?}");
    assert!(matches!(idle.join().expect("no panic"), Heard::Closed));
    TcpStream::connect(address).expect_err("nothing listens there");
    served.stop();
}

#[test]
fn a_fetch_that_waits_for_records_is_answered_at_once() {
    let mut served = one_topic();
    let partition =
        FetchPartition { current_leader_epoch: -1, partition_max_bytes: 1000, ..Default::default() };
    let topic = FetchTopic { topic: "orders".into(), partitions: vec![partition], ..Default::default() };
    let (max_wait_ms, topics) = (i32::MAX, vec![topic]);
    let request = FetchRequest { max_wait_ms, min_bytes: 1, max_bytes: 1000, topics, ..Default::default() };
    let mut client = served.connect();
    client.send(&framed(12, &request));
    served.await_requests(ApiKey::Fetch, 1);
    let client = std::thread::spawn(move || [client.hear(), client.hear()]);
    assert_eq!(served.drain(UNLIMITED), 0);
    let heard = client.join().expect("no panic");
    assert!(matches!(heard, [Heard::Answer(_), Heard::Closed]), "{heard:?}");
    served.stop();
}

#[test]
fn a_member_that_waits_for_others_does_not_delay_the_end() {
    let long = |config: &mut ottla_broker::BrokerConfig| config.group_initial_delay = UNLIMITED;
    let mut served = Served::start(Broker::builder().memory().topic("orders", 1).configure(long));
    served.broker.cluster().track_requests(true);
    let request = JoinGroupRequest {
        group_id: "readers".into(),
        session_timeout_ms: 600_000,
        rebalance_timeout_ms: 600_000,
        protocol_type: "consumer".into(),
        protocols: vec![JoinGroupRequestProtocol { name: "range".into(), ..Default::default() }],
        ..Default::default()
    };
    let mut client = served.connect();
    client.send(&framed(3, &request));
    served.await_requests(ApiKey::JoinGroup, 1);
    let client = std::thread::spawn(move || client.hear());
    assert_eq!(served.drain(UNLIMITED), 0);
    assert!(matches!(client.join().expect("no panic"), Heard::Closed));
    served.stop();
}

/// A connection to a listener with TLS that sent nothing delayed the end by the ten seconds that a handshake may take.
#[test]
fn a_client_that_does_not_shake_hands_does_not_delay_the_end() {
    let secure = Listener::new("SECURE", any_port()).tls(tls(certificate()));
    let mut served = Served::start(Broker::builder().memory().listener(secure));
    let address = served.broker.addresses()[0];
    let silent = TcpStream::connect(address).expect("the broker listens");
    // The broker accepts one after another: it has accepted the silent one, too.
    drop(TlsClient::connect(address, 1 << 16).expect("a handshake"));
    let Served { broker, runtime } = &mut served;
    let drained = runtime
        .block_on(async { tokio::time::timeout(Duration::from_secs(6), broker.drain(UNLIMITED)).await });
    assert!(drained.is_ok(), "it waits for the handshake");
    drop(silent);
    served.stop();
}

/// The end took its whole time if another program had the address of a node that was cut off: its listener tried to get it.
#[test]
fn a_node_whose_address_is_taken_while_it_is_cut_off_does_not_delay_the_end() {
    for is_reachable in [false, true] {
        let mut served = one_topic();
        let (address, cluster) = (served.broker.addresses()[0], served.broker.cluster());
        assert!(cluster.set_reachable(1, false));
        let deadline = Instant::now() + PATIENCE;
        let taken = loop {
            match TcpListener::bind(address) {
                Ok(taken) => break taken,
                Err(error) => assert!(Instant::now() < deadline, "the node listens: {error}"),
            }
            std::thread::park_timeout(Duration::from_millis(1));
        };
        assert!(!is_reachable || cluster.set_reachable(1, true));
        let Served { broker, runtime } = &mut served;
        let drained =
            runtime.block_on(async { tokio::time::timeout(PATIENCE, broker.drain(UNLIMITED)).await });
        assert_eq!(drained, Ok(0), "reachable: {is_reachable}");
        drop(taken);
        served.stop();
    }
}

/// The end took its whole time: five seconds for each broker of a test, as the command has it.
#[test]
fn a_request_without_a_response_by_a_fault_does_not_delay_the_end() {
    for fault in [Fault::Hang, Fault::HangAfter] {
        let mut served = one_topic();
        served.broker.cluster().intercept(ApiKey::Metadata, None, 1, fault);
        let mut client = served.connect();
        // The second one is never started.
        client.send(&framed(12, &metadata_of("orders")));
        client.send(&framed(12, &metadata_of("orders")));
        served.await_requests(ApiKey::Metadata, 1);
        let client = std::thread::spawn(move || client.hear());
        let Served { broker, runtime } = &mut served;
        let drained =
            runtime.block_on(async { tokio::time::timeout(PATIENCE, broker.drain(UNLIMITED)).await });
        assert_eq!(drained, Ok(0), "{fault:?}");
        assert!(matches!(client.join().expect("no panic"), Heard::Closed));
        served.stop();
    }
}

/// They are cut, as those of a process that is killed while it is stopped.
#[test]
fn the_connections_of_a_paused_node_do_not_delay_the_end() {
    let mut served = one_topic();
    let mut client = served.connect();
    assert!(client.is_served());
    assert!(served.broker.cluster().pause(1));
    let mut new = served.connect();
    for client in [&mut client, &mut new] {
        client.send(&framed(12, &metadata_of("orders")));
    }
    let Served { broker, runtime } = &mut served;
    let drained = runtime.block_on(async { tokio::time::timeout(PATIENCE, broker.drain(UNLIMITED)).await });
    assert_eq!(drained, Ok(0));
    for mut client in [client, new] {
        assert!(matches!(client.hear(), Heard::Closed), "without a response");
    }
    served.stop();
}

#[test]
fn connections_that_do_not_end_in_time_are_counted_and_cut() {
    let mut served = one_topic();
    served.broker.cluster().intercept(ApiKey::Metadata, None, 1, Fault::AnswerAfter(UNLIMITED));
    let mut client = served.connect();
    client.send(&framed(12, &metadata_of("orders")));
    served.await_requests(ApiKey::Metadata, 1);
    assert_eq!(served.drain(Duration::from_millis(50)), 1);
    served.stop();
    assert!(matches!(client.hear(), Heard::Closed));
}

/// The value of a sample, which is named with its labels.
fn sample(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.map(|value| value.parse().expect("a number"))
}

#[test]
fn requests_bytes_errors_and_latencies_are_counted_by_api() {
    let served = one_topic();
    let mut client = served.connect();
    client.ask(12, &metadata_of("orders")).expect("an answer");
    let unknown = client.ask(12, &metadata_of("a b")).expect("an answer");
    assert_eq!(unknown.topics[0].error_code, ErrorCode::InvalidTopicException);
    // A response is counted after it was written.
    let text = served.metrics_with("ottla_request_seconds_count{api=\"Metadata\"}", 2);
    let of = |name: &str| sample(&text, name).unwrap_or_else(|| panic!("no {name} in {text}"));
    assert_eq!(of("ottla_requests_total{api=\"Metadata\"}"), 2);
    assert_eq!(of("ottla_request_errors_total{api=\"Metadata\",error=\"INVALID_TOPIC_EXCEPTION\"}"), 1);
    assert_eq!(of("ottla_request_seconds_count{api=\"Metadata\"}"), 2);
    assert_eq!(of("ottla_request_seconds_bucket{api=\"Metadata\",le=\"+Inf\"}"), 2);
    let bytes = framed(12, &metadata_of("orders")).len() + framed(12, &metadata_of("a b")).len() - 8;
    assert_eq!(of("ottla_request_bytes_total{api=\"Metadata\"}"), bytes as u64);
    assert!(of("ottla_response_bytes_total{api=\"Metadata\"}") > 50);
    assert_eq!(of("ottla_connections{node=\"1\"}"), 1);
    assert_eq!(sample(&text, "ottla_requests_total{api=\"Produce\"}"), None);
    served.stop();
}

#[test]
fn records_logs_and_lags_are_measured() {
    let served = one_topic();
    let mut client = served.connect();
    for _ in 0..2 {
        client.produce("orders", -1, &batch(&[b"a", b"b", b"c"], &Seal::default()));
    }
    commit(&mut client, "readers", 4);
    let text = served.broker.cluster().metrics_text(100);
    let of = |name: &str| sample(&text, name).unwrap_or_else(|| panic!("no {name} in {text}"));
    assert_eq!(of("ottla_appended_records_total"), 6);
    assert_eq!(of("ottla_partition_high_watermark{topic=\"orders\",partition=\"0\"}"), 6);
    let bytes = of("ottla_partition_log_bytes{topic=\"orders\",partition=\"0\"}");
    assert_eq!(bytes, of("ottla_appended_bytes_total"));
    assert_eq!(of("ottla_group_lag_records{group=\"readers\",topic=\"orders\",partition=\"0\"}"), 2);
    assert_eq!(of("ottla_group_lag_sum_records{group=\"readers\"}"), 2);
    assert_eq!(of("ottla_groups{protocol=\"classic\",state=\"Empty\"}"), 1);
    let syncs = of("ottla_syncs_total{files=\"logs\"}");
    assert_eq!((syncs, of("ottla_offline_partitions")), (0, 0), "nothing is synced in memory");
    served.stop();
}

fn commit(client: &mut Raw, group: &str, offset: i64) {
    let request = commit_request(group, offset);
    for _ in 0..PATIENCE.as_millis() {
        let response = client.ask(8, &request).expect("an answer");
        match response.topics[0].partitions[0].error_code {
            ErrorCode::None => return,
            // The coordinator's topic is created by the first commit.
            code => assert!(code.is_retriable(), "{code}"),
        }
        std::thread::park_timeout(Duration::from_millis(1));
    }
    panic!("no commit within {PATIENCE:?}");
}

/// More groups than are read under one lock.
#[test]
fn series_by_group_are_limited_and_the_others_are_counted() {
    const GROUPS: usize = 1200;
    let served = one_topic();
    let mut client = served.connect();
    for group in 0..GROUPS {
        commit(&mut client, &format!("group-{group:04}"), 0);
    }
    let cluster = served.broker.cluster();
    let count = |text: &str| text.lines().filter(|line| line.starts_with("ottla_group_lag_records{")).count();
    let left_out = |text: &str| sample(text, "ottla_series_left_out{metric=\"ottla_group_lag_records\"}");
    let all = cluster.metrics_text(5000);
    assert_eq!((count(&all), left_out(&all)), (GROUPS, Some(0)));
    assert_eq!(sample(&all, "ottla_groups{protocol=\"classic\",state=\"Empty\"}"), Some(GROUPS as u64));
    let some = cluster.metrics_text(100);
    assert_eq!((count(&some), left_out(&some)), (100, Some((GROUPS - 100) as u64)));
    assert!(some.contains("group=\"group-0099\"") && !some.contains("group=\"group-0100\""));
    let none = cluster.metrics_text(0);
    assert_eq!((count(&none), left_out(&none)), (0, Some(GROUPS as u64)));
    assert_eq!(sample(&none, "ottla_groups{protocol=\"classic\",state=\"Empty\"}"), Some(GROUPS as u64));
    served.stop();
}
