//! `ottla doctor`: tests produce every finding, and a healthy cluster produces none.

#![allow(clippy::disallowed_methods, reason = "proxies that delay do so in real time")]

#[path = "doctor/peers.rs"]
mod peers;

use std::net::TcpListener;
use std::time::Duration;

use ottla_broker::{Broker, BrokerThread, Fault};
use ottla_interop::{Failure, ottla};
use ottla_protocol::messages::metadata::MetadataResponsePartition;
use ottla_protocol::{ApiKey, ErrorCode};
use peers::{Answers, Proxy, says};
use serde_json::Value;

use crate::findings::doctor;

/// Findings about time, on a machine that may be busy: required once in a few runs.
fn expect_soon(brokers: &str, name: &str, status: &str, words: &[&str]) -> Result<(), Failure> {
    const RUNS: usize = 5;
    for _ in 1..RUNS {
        let found = doctor(brokers, &[])?;
        let steps = found.report["steps"].as_array().expect("steps");
        let seen = |step: &Value| {
            let text = format!("{} {}", step["facts"], step["advice"]);
            step["step"] == name && step["status"] == status && words.iter().all(|word| text.contains(word))
        };
        if steps.iter().any(seen) {
            return Ok(());
        }
    }
    doctor(brokers, &[])?.expect(name, status, words);
    Ok(())
}

/// Short timeouts: all peers are local.
const IMPATIENT: &[&str] = &["-X", "socket.timeout.ms=1000", "-X", "socket.connection.setup.timeout.ms=1000"];

fn broker() -> BrokerThread {
    Broker::builder().memory().topic("orders", 3).spawn().expect("a broker in memory")
}

#[test]
fn a_healthy_broker_passes_every_step_and_keeps_no_topic() -> Result<(), Failure> {
    let broker = broker();
    let found = doctor(&broker.bootstrap_servers(), &["--write"])?;
    for step in [
        "dns",
        "connect",
        "api-versions",
        "metadata",
        "advertised",
        "partitions",
        "create-topic",
        "topic",
        "delete-topic",
        "client",
    ] {
        found.expect(step, "ok", &[]);
    }
    found.expect("api-versions", "ok", &["Apache Kafka 4", "Produce"]);
    found.expect("partitions", "ok", &["3 partitions"]);
    assert!(found.step("produce")["facts"].to_string().contains("acks=all"));
    found.expect("fetch", "ok", &["10 records from offset 0"]);
    assert!(found.succeeded);
    let topics = ottla(&["topics", "list", "--brokers", &broker.bootstrap_servers()], b"")?;
    assert_eq!(topics.lines(), ["orders"], "the topic of the round trips is gone");
    Ok(())
}

#[test]
fn without_write_nothing_is_written() -> Result<(), Failure> {
    let broker = broker();
    doctor(&broker.bootstrap_servers(), &[])?.expect("records", "skip", &["--write"]);
    doctor(&broker.bootstrap_servers(), &["--topic", "orders"])?.expect(
        "fetch",
        "ok",
        &["no records to read"],
    );
    assert_eq!(broker.cluster().offsets_of("orders", 0), Some((0, 0)));
    let missing =
        doctor(&broker.bootstrap_servers(), &["--topic", "missing", "-X", "socket.timeout.ms=500"])?;
    missing.expect("topic", "fail", &["UNKNOWN_TOPIC_OR_PARTITION", "create it"]);
    Ok(())
}

#[test]
fn a_name_that_does_not_resolve_is_reported() -> Result<(), Failure> {
    doctor("no-such-host.invalid:9092", &[])?.expect("dns", "fail", &["resolves the name"]);
    Ok(())
}

#[test]
fn a_port_without_a_listener_is_reported() -> Result<(), Failure> {
    let port =
        TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port");
    doctor(&port.to_string(), IMPATIENT)?.expect("connect", "fail", &["refused", "no process listens"]);
    Ok(())
}

#[test]
fn a_web_server_and_a_tls_listener_are_recognised() -> Result<(), Failure> {
    let web = says(b"HTTP/1.1 400 Bad Request\r\n\r\n", 0);
    doctor(&web, IMPATIENT)?.expect("api-versions", "fail", &["HTTP", "web server"]);
    // A handshake failure, as a TLS alert: sent at once, or only to a TLS client.
    let alert = [0x15, 3, 3, 0, 2, 2, 40];
    doctor(&says(&alert, 0), IMPATIENT)?.expect(
        "api-versions",
        "fail",
        &["TLS listener", "security.protocol"],
    );
    doctor(&says(&alert, 0x16), IMPATIENT)?.expect("api-versions", "fail", &["closed", "TLS listener"]);
    doctor(&says(b"", 0), IMPATIENT)?.expect("api-versions", "fail", &["accepts connections"]);
    Ok(())
}

#[test]
fn an_unreachable_advertised_listener_is_reported() -> Result<(), Failure> {
    let nowhere =
        TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port");
    let advertising =
        |address: &str| Broker::builder().memory().advertise(address).spawn().expect("a broker");
    let broker = advertising(&nowhere.to_string());
    let found = doctor(&broker.addresses()[0].to_string(), IMPATIENT)?;
    found.expect("advertised", "fail", &["refused", "advertised.listeners"]);
    found.expect("connect", "ok", &[]);

    let broker = advertising("no-such-host.invalid:9092");
    let found = doctor(&broker.addresses()[0].to_string(), IMPATIENT)?;
    found.expect("advertised", "fail", &["does not resolve", "advertised.listeners"]);
    Ok(())
}

#[test]
fn an_advertised_listener_of_another_cluster_is_reported() -> Result<(), Failure> {
    let other = broker();
    let broker =
        Broker::builder().memory().advertise(other.addresses()[0].to_string()).spawn().expect("a broker");
    let found = doctor(&broker.addresses()[0].to_string(), IMPATIENT)?;
    found.expect("advertised", "fail", &["another cluster", "advertised.listeners"]);
    Ok(())
}

#[test]
fn partitions_without_leaders_or_replicas_are_reported() -> Result<(), Failure> {
    let partition = |partition_index, leader_id, isr_nodes: &[i32]| MetadataResponsePartition {
        partition_index,
        leader_id,
        replica_nodes: vec![1, 2],
        isr_nodes: isr_nodes.to_vec(),
        ..Default::default()
    };
    let broker = Answers::with(vec![partition(0, -1, &[]), partition(1, 1, &[1]), partition(2, 1, &[1, 2])]);
    let found = doctor(&broker.address, IMPATIENT)?;
    found.expect("partitions", "fail", &["1 without a leader: orders-0", "1 under-replicated: orders-1"]);
    found.expect("partitions", "fail", &["delivery.timeout.ms", "NOT_ENOUGH_REPLICAS"]);
    let found = doctor(&broker.address, &[IMPATIENT, &["--topic", "orders"]].concat())?;
    found.expect("topic", "fail", &["no leader"]);
    Ok(())
}

#[test]
fn a_listener_that_requires_sasl_is_reported_with_its_mechanisms() -> Result<(), Failure> {
    let broker = Answers::only_after_sasl(&["SCRAM-SHA-512", "PLAIN"]);
    let found = doctor(&broker.address, IMPATIENT)?;
    found.expect("api-versions", "ok", &[]);
    found.expect("metadata", "fail", &["SCRAM-SHA-512, PLAIN", "sasl.mechanism"]);
    Ok(())
}

#[test]
fn an_unauthorised_user_gets_advice() -> Result<(), Failure> {
    let broker = broker();
    broker.cluster().intercept(ApiKey::Produce, None, 1, Fault::Fail(ErrorCode::TopicAuthorizationFailed));
    let found = doctor(&broker.bootstrap_servers(), &["--topic", "orders", "--write"])?;
    found.expect("produce", "fail", &["TOPIC_AUTHORIZATION_FAILED", "ACL"]);
    Ok(())
}

#[test]
fn slow_acknowledgements_are_reported() -> Result<(), Failure> {
    let broker = broker();
    broker.cluster().intercept(ApiKey::Produce, None, 10, Fault::Delay(Duration::from_millis(80)));
    let found = doctor(&broker.bootstrap_servers(), &["--topic", "orders", "--write"])?;
    found.expect("produce", "warn", &["longer than a small request", "disk"]);
    assert!(found.succeeded, "slow is no failure");
    Ok(())
}

#[test]
fn a_proxy_with_nagles_algorithm_is_distinguished_from_a_distant_one_and_from_a_slow_broker()
-> Result<(), Failure> {
    let broker = broker();
    let to = broker.addresses()[0];
    // Answers come in two pieces; the second waits for our delayed acknowledgement.
    let stalling = Proxy::in_pieces(to);
    expect_soon(&stalling.address, "round-trip", "warn", &["pieces with Nagle's algorithm", "TCP_NODELAY"])?;
    // The same delay behind a proxy: our acknowledgements do not end it.
    let behind = Proxy::delaying(to, Duration::from_millis(40));
    let words = ["delayed acknowledgement", "socket.nagle.disable=true"];
    expect_soon(&behind.address, "round-trip", "warn", &words)?;
    let slow = Proxy::delaying(to, Duration::from_millis(120));
    expect_soon(&slow.address, "round-trip", "warn", &["the broker is slow"])?;
    // The loss of a client with Nagle's algorithm at a broker without these delays.
    expect_soon(&broker.bootstrap_servers(), "nagle", "ok", &["loses", "librdkafka"])?;
    Ok(())
}

#[test]
fn suggested_settings_are_accepted_by_the_client() -> Result<(), Failure> {
    let broker = broker();
    for goal in ["latency", "throughput"] {
        let found = doctor(&broker.bootstrap_servers(), &["--write", "--goal", goal])?;
        let suggestions = found.report["suggestions"].as_array().expect("suggestions");
        let words = |suggestion: &Value| {
            let part = |name: &str| suggestion[name].as_str().expect("text").to_owned();
            format!("{}={}", part("property"), part("value"))
        };
        let settings: Vec<String> = suggestions.iter().map(words).collect();
        assert!(settings.len() >= 4, "{settings:?}");
        let args: Vec<&str> = settings.iter().flat_map(|setting| ["-X", setting.as_str()]).collect();
        let again = doctor(&broker.bootstrap_servers(), &args)?;
        assert!(again.succeeded, "{:#}", again.report);
    }
    Ok(())
}

#[test]
fn text_output_has_the_same_findings() -> Result<(), Failure> {
    let broker = broker();
    let output = ottla(&["doctor", "--brokers", &broker.bootstrap_servers(), "--goal", "latency"], b"")?
        .succeeded()?;
    let text = output.stdout_text();
    assert!(text.lines().any(|line| line.starts_with("ok    metadata") && line.contains(" ms  ")), "{text}");
    assert!(text.contains("  -X acks=all "), "{text}");
    let refused = ottla(&["doctor", "--brokers", "no-such-host.invalid:1"], b"")?;
    assert!(refused.stdout_text().starts_with("FAIL  dns"), "{}", refused.stdout_text());
    assert_eq!(refused.status.code(), Some(1));
    Ok(())
}
