//! Tests of the choice of a broker, and of attempts to connect.

use futures_util::future::join_all;

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
    ] {
        assert_eq!(parse_address(text).expect("valid"), (host.to_owned(), port));
    }
    for text in ["", ":9092", "host:", "host:0", "host:70000", "[::1", "[::1]x"] {
        assert!(parse_address(text).is_err(), "{text}");
    }
}
