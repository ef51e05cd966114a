//! Each mechanism over TLS, with Java's tools, librdkafka and franz-go, at Apache Kafka and at the Ottla broker.

use std::fs;
use std::path::Path;
use std::process::Command;

use ottla_interop::{Failure, Peer, build_foreign_go, console, require, run};

use super::cluster::{Login, SecuredCluster, TOPICS_OF_ALICE};
use super::{WITHIN, failed, python};
use crate::both_brokers::{Kind, on_both};
use crate::peers::issuer::Issuer;
use crate::peers::{CLIENT_SECRET, PASSWORD, WRONG_PASSWORD, now_s};

on_both! {
    on_kafka: #[cfg(feature = "soaks")],
    each_mechanism_lets_javas_tools_in,
    each_mechanism_lets_librdkafka_in,
    each_mechanism_lets_franz_go_in_and_refuses_wrong_secrets,
    tokens_of_a_provider_let_java_and_librdkafka_in,
}

const WITH_PASSWORDS: [&str; 3] = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"];

/// A new topic of `alice`.
fn topic(cluster: &SecuredCluster, name: &str) -> String {
    let topic = format!("{TOPICS_OF_ALICE}{name}");
    cluster.create_topic(&topic, 1);
    topic
}

fn alice<'a>(mechanism: &'a str, secret: &'a str) -> Login<'a> {
    Login { user: "alice", mechanism, secret }
}

/// Java's console tools write and read a line, and the tool for groups shows the offset.
fn java_round_trip(cluster: &SecuredCluster, login: &Login, topic: &str) -> Result<(), Failure> {
    let (value, group) = (format!("java with {}", login.mechanism), format!("{topic}-{}", login.mechanism));
    let input = format!("{value}\n");
    cluster.tool(login, console::PRODUCER, &["--topic", topic], &input)?.succeeded()?;
    let args = ["--topic", topic, "--group", &group, "--from-beginning", "--timeout-ms", "10000"];
    let read = cluster.tool(login, console::CONSUMER, &args, "")?.lines();
    assert_eq!(read.last(), Some(&value), "{read:?}");
    let described = cluster.tool(login, console::GROUPS, &["--describe", "--group", &group], "")?;
    let described = described.succeeded()?.stdout_text();
    let (end, row) = (read.len().to_string(), described.lines().find(|line| line.contains(topic)));
    let columns: Vec<&str> = row.unwrap_or_default().split_whitespace().take(6).collect();
    assert_eq!(columns, [&group, topic, "0", &end, &end, "0"], "{described}");
    Ok(())
}

/// The refusal of a tool's login.
fn refusal(cluster: &SecuredCluster, login: &Login) -> Result<String, Failure> {
    let refused = cluster.tool(login, console::TOPICS, &["--list"], "")?.failed()?;
    let text = refused.stdout_text() + &refused.stderr_text();
    let line = text.lines().find_map(|line| Some(line.split_once("SaslAuthenticationException: ")?.1));
    line.map(str::to_owned).ok_or_else(|| refused.failure("has no SaslAuthenticationException"))
}

fn each_mechanism_lets_javas_tools_in(kind: Kind) -> Result<(), Failure> {
    require!(Peer::NewestJava);
    let cluster = SecuredCluster::shared(kind)?;
    let topic = topic(&cluster, "java");
    for mechanism in WITH_PASSWORDS {
        java_round_trip(&cluster, &alice(mechanism, PASSWORD), &topic)?;
        let reason = match mechanism {
            "PLAIN" => "Authentication failed: Invalid username or password".to_owned(),
            _ => format!(
                "Authentication failed during authentication due to invalid credentials with SASL mechanism {mechanism}"
            ),
        };
        assert_eq!(refusal(&cluster, &alice(mechanism, WRONG_PASSWORD))?, reason);
    }
    Ok(())
}

fn each_mechanism_lets_librdkafka_in(kind: Kind) -> Result<(), Failure> {
    if let Kind::Kafka = kind {
        require!(Peer::NewestJava);
    }
    require!(Peer::Librdkafka);
    let cluster = SecuredCluster::shared(kind)?;
    let topic = topic(&cluster, "librdkafka");
    for mechanism in WITH_PASSWORDS {
        let value = format!("librdkafka with {mechanism}");
        let config = cluster.librdkafka_properties(&alice(mechanism, PASSWORD))?;
        let read = python(&config, &topic, &value, &[&format!("group.id={topic}-{mechanism}")])?;
        assert_eq!(read.last(), Some(&format!("read: {value}")), "{read:?}");
        let refused = python(&config, &topic, "never", &[&format!("sasl.password={WRONG_PASSWORD}")])?;
        assert!(refused[0].starts_with("refused:"), "{mechanism}: {refused:?}");
    }
    Ok(())
}

/// Builds the program on franz-go.
fn franz_go_program(scratch: &Path) -> Result<std::path::PathBuf, Failure> {
    let (source, program) = (scratch.join("main.go"), scratch.join("program"));
    let code = concat!(include_str!("mechanisms.go"), include_str!("main.go"));
    fs::write(&source, code).map_err(failed(&source))?;
    build_foreign_go(&source, &program)?;
    Ok(program)
}

fn each_mechanism_lets_franz_go_in_and_refuses_wrong_secrets(kind: Kind) -> Result<(), Failure> {
    if let Kind::Kafka = kind {
        require!(Peer::NewestJava);
    }
    require!(Peer::Go);
    let cluster = SecuredCluster::shared(kind)?;
    let scratch = tempfile::tempdir().map_err(|error| Failure::new(error.to_string()))?;
    let (topic, program) = (topic(&cluster, "franz-go"), franz_go_program(scratch.path())?);
    let franz_go = |mechanism: &str, secret: &str| -> Result<String, Failure> {
        let mut go = Command::new(&program);
        go.args([&topic, &format!("franz-go with {mechanism}")]);
        let go = cluster.franz_go(&mut go, &alice(mechanism, secret));
        Ok(run("franz-go", go, b"", WITHIN)?.succeeded()?.stdout_text())
    };
    let (right, wrong) = (cluster.issuer.token(now_s() + 600), Issuer::new().token(now_s() + 600));
    for (mechanism, right, wrong) in [
        ("PLAIN", PASSWORD, WRONG_PASSWORD),
        ("SCRAM-SHA-256", PASSWORD, WRONG_PASSWORD),
        ("SCRAM-SHA-512", PASSWORD, WRONG_PASSWORD),
        ("OAUTHBEARER", &right, &wrong),
    ] {
        let printed = franz_go(mechanism, right)?;
        assert!(printed.contains(&format!("read: franz-go with {mechanism}")), "{mechanism}: {printed}");
        let printed = franz_go(mechanism, wrong)?;
        assert!(printed.starts_with("refused:"), "{mechanism}: {printed}");
    }
    Ok(())
}

fn tokens_of_a_provider_let_java_and_librdkafka_in(kind: Kind) -> Result<(), Failure> {
    require!(Peer::NewestJava);
    require!(Peer::Librdkafka);
    let cluster = SecuredCluster::shared(kind)?;
    let topic = topic(&cluster, "tokens");
    let stranger = Issuer::new();
    let (provider, strangers) = (cluster.provider(&cluster.issuer), cluster.provider(&stranger));

    java_round_trip(&cluster, &alice("OAUTHBEARER", &provider), &topic)?;
    let reason = refusal(&cluster, &alice("OAUTHBEARER", &strangers))?;
    assert_eq!(reason, r#"{"status":"invalid_token"}"#);

    let config = cluster.librdkafka_properties(&alice("OAUTHBEARER", ""))?;
    let login = |value: &str, more: &[&str]| {
        let group = format!("group.id={topic}-{value}");
        python(&config, &topic, value, &[&[group.as_str()], more].concat())
    };
    let ca = format!("https.ca.location={}", cluster.ca());
    let secret = format!("sasl.oauthbearer.client.secret={CLIENT_SECRET}");
    let of_provider = |url: &str, value: &str| {
        let url = format!("sasl.oauthbearer.token.endpoint.url={url}");
        let properties = [
            "sasl.oauthbearer.method=oidc",
            "sasl.oauthbearer.client.id=alice",
            "sasl.oauthbearer.scope=kafka write",
            &ca,
            &secret,
            &url,
        ];
        login(value, &properties)
    };
    let value = "librdkafka with a token of a provider";
    assert_eq!(of_provider(&provider, value)?.last(), Some(&format!("read: {value}")));
    let refused = of_provider(&strangers, "never")?;
    assert!(refused[0].starts_with("refused:"), "{refused:?}");

    let of_callback = |token: &str, value: &str| login(value, &[&format!("oauth.token={token}")]);
    let value = "librdkafka with a token of a callback";
    let read = of_callback(&cluster.issuer.token(now_s() + 600), value)?;
    assert_eq!(read.last(), Some(&format!("read: {value}")));
    let expired = of_callback(&cluster.issuer.token(now_s() - 300), "never")?;
    assert!(expired[0].starts_with("refused:"), "{expired:?}");
    Ok(())
}
