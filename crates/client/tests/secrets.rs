//! The contents of the log, without secrets: the tests capture it at its most verbose level.

#![allow(clippy::disallowed_methods, reason = "a test is a shell: it may use threads")]
#![allow(clippy::format_push_string, reason = "what is written once need not save a copy")]

#[path = "support/log.rs"]
mod log;

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use log::Log;
use ottla_broker::{Broker, BrokerThread, Fault};
use ottla_client::properties::{self, Kind, Property};
use ottla_client::{Client, Config, Producer, Record};
use ottla_protocol::ApiKey;
use tokio::runtime::Runtime;

/// The time limit for a login.
const PATIENCE: Duration = Duration::from_secs(30);

/// A secret of the client that must not appear in the log.
const CANARY: &str = "canary-7f3b";

static LOG: LazyLock<Log> = LazyLock::new(Log::capture);

/// The number of log lines that contain all these parts.
fn count(log: &Log, parts: &[&str]) -> usize {
    log.text().lines().filter(|line| parts.iter().all(|part| line.contains(part))).count()
}

fn broker() -> BrokerThread {
    Broker::builder().memory().topic("orders", 1).spawn().expect("a broker in memory")
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    Runtime::new().expect("a runtime").block_on(work)
}

fn secrets() -> impl Iterator<Item = &'static Property> {
    properties::all().filter(|property| property.secret && property.kind != Kind::Pointer)
}

/// A configuration with the canary in every secret, and all messages from its creation.
fn config(servers: &str, said: &mut String) -> Config {
    let mut config = Config::new(servers);
    for property in secrets() {
        for name in std::iter::once(&property.name).chain(property.aliases) {
            if let Err(error) = config.set(name, CANARY) {
                said.push_str(&format!("{error} {error:?}"));
            }
            said.push_str(&config.get(name).expect("known"));
            for (neighbour, value) in [("linger.ms", "often"), (&format!("{name}s")[..], CANARY)] {
                if neighbour != "linger.ms" && properties::find(neighbour).is_some() {
                    continue;
                }
                let error = config.set_all([(*name, CANARY), (neighbour, value)]).expect_err("one is wrong");
                said.push_str(&format!("{error} {error:?}"));
            }
        }
    }
    config
}

#[test]
fn no_secret_is_ever_seen() {
    let log = LOG.clone();
    let broker = broker();
    let dead = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound");
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("nothing.p12");
    std::fs::write(&file, "not a keystore").expect("written");
    let file = file.to_str().expect("a path");
    let variants: &[&[(&str, &str)]] = &[
        &[("security.protocol", "ssl"), ("ssl.certificate.pem", "hello")],
        &[("security.protocol", "ssl"), ("ssl.keystore.location", file)],
        &[("security.protocol", "sasl_plaintext")],
        &[("security.protocol", "sasl_plaintext"), ("sasl.mechanism", "PLAIN")],
        &[("security.protocol", "sasl_plaintext"), ("sasl.mechanism", "PLAIN"), ("sasl.username", "me")],
        &[
            ("security.protocol", "sasl_plaintext"),
            ("sasl.mechanism", "SCRAM-SHA-256"),
            ("sasl.username", "me"),
        ],
        &[
            ("security.protocol", "sasl_plaintext"),
            ("sasl.mechanism", "OAUTHBEARER"),
            ("enable.sasl.oauthbearer.unsecure.jwt", "true"),
        ],
        &[
            ("security.protocol", "sasl_plaintext"),
            ("sasl.mechanism", "OAUTHBEARER"),
            ("sasl.oauthbearer.method", "oidc"),
            ("sasl.oauthbearer.client.id", "me"),
            ("sasl.oauthbearer.token.endpoint.url", "https://127.0.0.1:1/token"),
        ],
        &[],
    ];
    let mut said = String::new();
    let mut connected = 0;
    for servers in [dead.to_string(), broker.bootstrap_servers()] {
        for variant in variants {
            let mut config = config(&servers, &mut said);
            config.set_all(variant.iter().copied()).expect("valid properties");
            if variant.iter().all(|(name, _)| !name.starts_with("ssl.")) {
                config.security.tls.key_pem = None;
            }
            config.socket_connection_setup_timeout = Duration::from_secs(5);
            said.push_str(&format!("{config:?} {:#?} {:?}", config, config.dump()));
            match Client::new(config) {
                Ok(client) => {
                    connected += 1;
                    let outcome = block_on(async {
                        tokio::time::timeout(PATIENCE, client.admin().describe_cluster()).await
                    });
                    said.push_str(&format!("{client:?} {outcome:?}"));
                    if let Ok(Err(error)) = outcome {
                        said.push_str(&error.to_string());
                    }
                }
                Err(error) => said.push_str(&format!("{error} {error:?}")),
            }
        }
    }
    assert!(connected >= 8, "{connected} clients were made");
    assert!(said.contains("often") && said.contains("[secret]") && said.contains("[redacted]"));
    let log = log.text();
    assert!(log.contains("TRACE"), "everything is captured");
    for (what, text) in [("what was said", &said), ("the log", &log)] {
        if let Some(line) = text.lines().find(|line| line.contains(CANARY)) {
            panic!("a secret is seen in {what}: {line}");
        }
    }
}

#[test]
fn a_lost_connection_is_a_warning_unless_it_was_idle_or_asked_not_to_be() {
    let log = LOG.clone();
    let lost = ["WARN", "closed with requests under way"];
    for (value, warnings) in [("true", 1), ("false", 0)] {
        let broker = broker();
        let mut config = Config::new(broker.bootstrap_servers());
        config.set("log.connection.close", value).expect("known");
        let producer = Producer::new(config).expect("a client");
        let send = || {
            let record = Record::to("orders").partition(0).value("v");
            let delivery = producer.try_enqueue(record).expect("taken");
            delivery.wait(PATIENCE).expect("in time").expect("written");
        };
        send();
        broker.cluster().intercept(ApiKey::Produce, None, 1, Fault::Cut);
        send();
        let address = broker.bootstrap_servers();
        assert_eq!(count(&log, &[&lost[..], &[&address]].concat()), warnings, "log.connection.close={value}");
        // The connections are idle now: their loss causes no warning.
        let before = count(&log, &["connection closed", &address]);
        broker.stop();
        let deadline = Instant::now() + PATIENCE;
        while count(&log, &["connection closed", &address]) == before {
            assert!(Instant::now() < deadline, "no connection was closed");
            std::thread::sleep(Duration::from_millis(2));
        }
        assert_eq!(count(&log, &[&lost[..], &[&address]].concat()), warnings, "log.connection.close={value}");
    }
}
