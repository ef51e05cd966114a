//! Tests of the choice of a broker, and of attempts to connect.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::join_all;
use ottla_protocol::frame;
use ottla_protocol::messages::metadata::MetadataRequest;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use super::*;
use crate::net::connector::{Connecting, Connector, Io};

/// A connector whose attempts never end.
struct Hanging;

impl Connector for Hanging {
    fn connect<'a>(&'a self, _host: &'a str, _port: u16) -> Connecting<'a> {
        Box::pin(std::future::pending())
    }
}

/// Only `live.test` accepts connections.
struct OneLiveHost;

impl Connector for OneLiveHost {
    fn connect<'a>(&'a self, host: &'a str, _port: u16) -> Connecting<'a> {
        if host != "live.test" {
            return Box::pin(std::future::pending());
        }
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        tokio::spawn(async move {
            std::future::pending::<()>().await;
            drop(theirs);
        });
        Box::pin(async move { Ok(Box::new(ours) as Box<dyn Io>) })
    }
}

/// The time for which `live.test` is silent.
const SILENCE: Duration = Duration::from_secs(3);

/// Only `live.test` accepts connections. After [`SILENCE`] it answers the first request on a connection, or closes the connection.
struct LateAnswers {
    closes: bool,
}

impl Connector for LateAnswers {
    fn connect<'a>(&'a self, host: &'a str, _port: u16) -> Connecting<'a> {
        if host != "live.test" {
            return Box::pin(std::future::pending());
        }
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        tokio::spawn(answer_late(theirs, self.closes));
        Box::pin(async move { Ok(Box::new(ours) as Box<dyn Io>) })
    }
}

/// Reads a Metadata request, and answers it late or not at all.
async fn answer_late(mut io: DuplexStream, closes: bool) -> io::Result<()> {
    let size = io.read_i32().await?;
    let mut request = vec![0; size as usize];
    io.read_exact(&mut request).await?;
    tokio::time::sleep(SILENCE).await;
    if closes {
        return Ok(());
    }
    let version = i16::from_be_bytes([request[2], request[3]]);
    let id = i32::from_be_bytes([request[4], request[5], request[6], request[7]]);
    let answer = frame::encode_response::<MetadataRequest>(id, version, &MetadataResponse::default());
    io.write_all(&answer.expect("encoded").to_bytes()?).await?;
    io.read_i32().await.map(drop)
}

/// `first.test` accepts one connection, and closes it before a head start is over. `slow.test` accepts connections after one.
#[derive(Default)]
struct FirstIsGone {
    has_connected: AtomicBool,
}

impl Connector for FirstIsGone {
    fn connect<'a>(&'a self, host: &'a str, _port: u16) -> Connecting<'a> {
        let is_slow = host == "slow.test";
        if !is_slow && self.has_connected.swap(true, Ordering::Relaxed) {
            return Box::pin(std::future::pending());
        }
        let (pause, life) =
            if is_slow { (2 * HEAD_START, SILENCE) } else { (Duration::ZERO, HEAD_START / 2) };
        Box::pin(async move {
            tokio::time::sleep(pause).await;
            let (ours, theirs) = tokio::io::duplex(1 << 16);
            tokio::spawn(async move {
                tokio::time::sleep(life).await;
                drop(theirs);
            });
            Ok(Box::new(ours) as Box<dyn Io>)
        })
    }
}

/// The call gave up the attempt to connect to the other node, and waited for the whole time of one to the node that was gone.
#[tokio::test(start_paused = true)]
async fn a_suspect_connection_that_closes_in_the_head_start_leaves_the_attempts_to_connect_to_others() {
    let mut config = Config::new("first.test");
    config.net.api_version_request = false;
    let config = Arc::new(config);
    let observer = Observer::new(&config, 1);
    let network = Network { connector: Arc::new(FirstIsGone::default()), authenticator: None, observer };
    let brokers = Brokers::new(config, network, fastrand::Rng::with_seed(1)).expect("an address");
    brokers.learn(1, "first.test", 9092);
    brokers.learn(2, "slow.test", 9092);
    let exchange = async {
        let open = brokers.connection(1, Lane::Control).await.expect("it accepts one");
        brokers.note_silence(open.address());
        let begun = Instant::now();
        let chosen = brokers.any().await.expect("a live host");
        let took = begun.elapsed();
        assert!(took >= 2 * HEAD_START && took < 4 * HEAD_START, "{took:?}");
        assert_eq!((chosen.address(), open.is_open()), ("slow.test:9092", false));
    };
    tokio::task::LocalSet::new().run_until(exchange).await;
}

/// The calls waited for the whole time of an attempt to connect to the other node, each until a response came.
#[tokio::test(start_paused = true)]
async fn a_suspect_connection_is_used_after_a_head_start_if_the_other_node_is_down() {
    let mut config = Config::new("live.test");
    config.net.api_version_request = false;
    let config = Arc::new(config);
    let observer = Observer::new(&config, 1);
    let network = Network { connector: Arc::new(OneLiveHost), authenticator: None, observer };
    let rng = fastrand::Rng::with_seed(1);
    let brokers = Brokers::new(config.clone(), network, rng).expect("an address");
    brokers.learn(1, "live.test", 9092);
    brokers.learn(2, "dead.test", 9092);
    let exchange = async {
        let open = brokers.connection(1, Lane::Control).await.expect("a live host");
        let time_of_choice = async || {
            let begun = Instant::now();
            assert!(Rc::ptr_eq(&open, &brokers.any().await.expect("an open connection")));
            begun.elapsed()
        };
        assert_eq!(time_of_choice().await, Duration::ZERO);
        brokers.note_silence(open.address());
        let took = time_of_choice().await;
        assert!(took >= HEAD_START && took < HEAD_START * 2, "{took:?}");
        tokio::time::sleep(config.socket_timeout).await;
        assert_eq!(time_of_choice().await, Duration::ZERO, "the mark has aged");
    };
    tokio::task::LocalSet::new().run_until(exchange).await;
}

/// The call waited until the attempt to connect to the other node had timed out.
#[tokio::test(start_paused = true)]
async fn a_broker_that_answers_again_is_used_before_the_attempts_to_connect_to_others_end() {
    for closes in [false, true] {
        let mut config = Config::new("live.test");
        config.net.api_version_request = false;
        let config = Arc::new(config);
        let observer = Observer::new(&config, 1);
        let network = Network { connector: Arc::new(LateAnswers { closes }), authenticator: None, observer };
        let brokers = Brokers::new(config, network, fastrand::Rng::with_seed(1)).expect("an address");
        brokers.learn(1, "live.test", 9092);
        brokers.learn(2, "dead.test", 9092);
        let exchange = async {
            let open = brokers.connection(1, Lane::Control).await.expect("a live host");
            let _unanswered = open.begin(i16::MAX, |_| MetadataRequest::default()).expect("sent");
            brokers.note_silence(open.address());
            let begun = Instant::now();
            let chosen = brokers.any().await.expect("a live host");
            let took = begun.elapsed();
            assert!(took >= SILENCE && took < SILENCE + 2 * HEAD_START, "{closes}: {took:?}");
            assert_eq!((Rc::ptr_eq(&open, &chosen), chosen.is_open()), (!closes, true));
        };
        tokio::task::LocalSet::new().run_until(exchange).await;
    }
}

/// Each of the callers made an attempt of its own, after those before it.
#[tokio::test(start_paused = true)]
async fn callers_that_wait_for_an_attempt_share_its_failure() {
    let config = Arc::new(Config::new("dead.test"));
    let setup = config.socket_connection_setup_timeout;
    let observer = Observer::new(&config, 1);
    let network = Network { connector: Arc::new(Hanging), authenticator: None, observer };
    let brokers = Brokers::new(config, network, fastrand::Rng::with_seed(1)).expect("an address");
    brokers.learn(1, "dead.test", 9092);
    let begun = Instant::now();
    let ended = join_all((0..5).map(|_| brokers.connection(1, Lane::Control))).await;
    assert!(ended.iter().all(Result::is_err), "{ended:?}");
    let took = begun.elapsed();
    assert!(took >= setup && took < setup + HEAD_START, "{took:?}");
}

#[test]
fn addresses_with_and_without_ports_of_both_families_are_understood() {
    for (text, host, port) in [
        ("localhost", "localhost", 9092),
        ("localhost:1", "localhost", 1),
        ("[::1]:9093", "::1", 9093),
        ("[::1]", "::1", 9092),
        ("fe80::1", "fe80::1", 9092),
        ("PLAINTEXT://localhost:1", "localhost", 1),
        ("sasl_ssl://[::1]", "::1", 9092),
    ] {
        assert_eq!(parse_address(text).expect("valid"), (host.to_owned(), port));
    }
    for text in ["", ":9092", "host:", "host:0", "host:70000", "[::1", "[::1]x", "http://a:1"] {
        assert!(parse_address(text).is_err(), "{text}");
    }
}
