//! `ottla doctor`: every finding is made to appear, and what is healthy gives none.

#![allow(clippy::disallowed_methods, reason = "proxies that delay do so in real time")]

#[path = "doctor/findings.rs"]
mod findings;
#[path = "doctor/peers.rs"]
mod peers;

use std::net::TcpListener;
use std::time::Duration;

use findings::doctor;
use ottla_broker::{Broker, BrokerThread, Fault};
use ottla_interop::{Failure, ottla};
use ottla_protocol::messages::metadata::MetadataResponsePartition;
use ottla_protocol::{ApiKey, ErrorCode};
use peers::{Answers, Proxy, says};
use serde_json::Value;

/// Findings about time, on a machine that may be busy with something else: seen at least once in a few runs.
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

/// Fails faster than users want: nothing here is far away.
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
fn without_consent_nothing_is_written() -> Result<(), Failure> {
    let broker = broker();
    doctor(&broker.bootstrap_servers(), &[])?.expect("records", "skip", &["--write"]);
    doctor(&broker.bootstrap_servers(), &["--topic", "orders"])?.expect("fetch", "ok", &["nothing to read"]);
    assert_eq!(broker.cluster().offsets_of("orders", 0), Some((0, 0)));
    let missing =
        doctor(&broker.bootstrap_servers(), &["--topic", "missing", "-X", "socket.timeout.ms=500"])?;
    missing.expect("topic", "fail", &["UNKNOWN_TOPIC_OR_PARTITION", "create it"]);
    Ok(())
}

#[test]
fn a_name_that_does_not_resolve_is_named() -> Result<(), Failure> {
    doctor("no-such-host.invalid:9092", &[])?.expect("dns", "fail", &["resolver"]);
    Ok(())
}

#[test]
fn a_port_without_a_listener_is_named() -> Result<(), Failure> {
    let port =
        TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port");
    doctor(&port.to_string(), IMPATIENT)?.expect("connect", "fail", &["refused", "nothing listens"]);
    Ok(())
}

#[test]
fn a_web_server_and_a_tls_listener_are_told_from_a_broker() -> Result<(), Failure> {
    let web = says(b"HTTP/1.1 400 Bad Request\r\n\r\n", 0);
    doctor(&web, IMPATIENT)?.expect("api-versions", "fail", &["HTTP", "web server"]);
    // A handshake's failure, as TLS says it: at once, or only to those who greet as TLS does.
    let alert = [0x15, 3, 3, 0, 2, 2, 40];
    doctor(&says(&alert, 0), IMPATIENT)?.expect(
        "api-versions",
        "fail",
        &["TLS listener", "security.protocol"],
    );
    doctor(&says(&alert, 0x16), IMPATIENT)?.expect("api-versions", "fail", &["closed", "TLS listener"]);
    doctor(&says(b"", 0), IMPATIENT)?.expect("api-versions", "fail", &["takes connections"]);
    Ok(())
}

#[test]
fn an_advertised_listener_that_leads_nowhere_is_named() -> Result<(), Failure> {
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
fn an_advertised_listener_of_another_cluster_is_named() -> Result<(), Failure> {
    let other = broker();
    let broker =
        Broker::builder().memory().advertise(other.addresses()[0].to_string()).spawn().expect("a broker");
    let found = doctor(&broker.addresses()[0].to_string(), IMPATIENT)?;
    found.expect("advertised", "fail", &["another cluster", "advertised.listeners"]);
    Ok(())
}

#[test]
fn partitions_without_leaders_or_copies_are_named() -> Result<(), Failure> {
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
fn a_listener_that_wants_sasl_is_named_with_its_mechanisms() -> Result<(), Failure> {
    let broker = Answers::only_after_sasl(&["SCRAM-SHA-512", "PLAIN"]);
    let found = doctor(&broker.address, IMPATIENT)?;
    found.expect("api-versions", "ok", &[]);
    found.expect("metadata", "fail", &["SCRAM-SHA-512, PLAIN", "sasl.mechanism"]);
    Ok(())
}

#[test]
fn a_user_who_may_not_write_is_told_so() -> Result<(), Failure> {
    let broker = broker();
    broker.cluster().intercept(ApiKey::Produce, None, 1, Fault::Fail(ErrorCode::TopicAuthorizationFailed));
    let found = doctor(&broker.bootstrap_servers(), &["--topic", "orders", "--write"])?;
    found.expect("produce", "fail", &["TOPIC_AUTHORIZATION_FAILED", "ACL"]);
    Ok(())
}

#[test]
fn a_broker_that_takes_long_to_acknowledge_is_named() -> Result<(), Failure> {
    let broker = broker();
    broker.cluster().intercept(ApiKey::Produce, None, 10, Fault::Delay(Duration::from_millis(80)));
    let found = doctor(&broker.bootstrap_servers(), &["--topic", "orders", "--write"])?;
    found.expect("produce", "warn", &["longer than a small request", "disk"]);
    assert!(found.succeeded, "slow is no failure");
    Ok(())
}

#[test]
fn a_proxy_with_nagles_algorithm_is_told_from_one_that_waits_and_from_a_slow_broker() -> Result<(), Failure> {
    let broker = broker();
    let to = broker.addresses()[0];
    // Answers in two pieces, the second of which waits for an acknowledgement that is delayed here.
    let stalling = Proxy::in_pieces(to);
    expect_soon(&stalling.address, "round-trip", "warn", &["pieces with Nagle's algorithm", "TCP_NODELAY"])?;
    // The same stall further behind: no acknowledgement of ours can end it.
    let behind = Proxy::delaying(to, Duration::from_millis(40));
    let words = ["delayed acknowledgement", "socket.nagle.disable=true"];
    expect_soon(&behind.address, "round-trip", "warn", &words)?;
    let slow = Proxy::delaying(to, Duration::from_millis(120));
    expect_soon(&slow.address, "round-trip", "warn", &["the broker takes long"])?;
    // And what a client with Nagle's algorithm would lose, at a broker without any of this.
    expect_soon(&broker.bootstrap_servers(), "nagle", "ok", &["loses", "librdkafka"])?;
    Ok(())
}

#[test]
fn settings_for_a_goal_are_those_that_the_client_takes() -> Result<(), Failure> {
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
fn lines_for_people_say_the_same() -> Result<(), Failure> {
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
