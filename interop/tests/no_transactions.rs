//! A `transactional.id` at a broker without transactions: each client fails at once with a reason.

#![allow(clippy::disallowed_methods, reason = "a test is a shell")]

use std::process::Command;
use std::time::{Duration, Instant};

use ottla_client::{Config, Producer};
use ottla_interop::{
    Failure, Librdkafka, OttlaBroker, Peer, java_tool, python_package, require, run, target_dir, tell_story,
    workspace_root,
};

/// Clients that retry the request do so for at least 30 seconds.
const AT_ONCE: Duration = Duration::from_secs(10);
const GO_BUILD_WITHIN: Duration = Duration::from_secs(300);
const REASON: &str = "this broker has no transactions; remove transactional.id, or use Apache Kafka";

#[test]
fn ottla_gives_up_at_once() -> Result<(), Failure> {
    let broker = OttlaBroker::start(&[])?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let mut config = Config::new(broker.bootstrap());
        config.set("transactional.id", "refused").expect("a name");
        let producer = Producer::new(config).expect("a producer");
        let start = Instant::now();
        let error = producer.init_transactions(Duration::from_secs(60)).await.expect_err("no transactions");
        assert!(start.elapsed() < AT_ONCE, "after {:?}: {error}", start.elapsed());
        assert!(error.is_fatal() && error.to_string().contains(REASON), "{error}");
    });
    Ok(())
}

#[test]
fn librdkafka_gives_up_at_once() -> Result<(), Failure> {
    require!(Peer::Librdkafka);
    let library = Librdkafka::reference()?;
    let mut python = Command::new("python3");
    python.arg(workspace_root().join("interop/python/stories.py"));
    python.env("PYTHONPATH", python_package(&library)?).env("PYTHONDONTWRITEBYTECODE", "1");
    let mut broker = OttlaBroker::start(&[])?;
    tell_story(python, "transactions_are_refused", &library, &broker)?;
    one_warning(&mut broker, "confluent-kafka-python")
}

#[test]
fn franz_go_gives_up_at_once() -> Result<(), Failure> {
    require!(Peer::Go);
    let program = target_dir().join("interop/franz-go-transaction");
    let mut build = Command::new("go");
    build.args(["build", "-mod=readonly", "-o"]).arg(&program).arg(".");
    build.current_dir(workspace_root().join("interop/franzgo"));
    run("go", &mut build, b"", GO_BUILD_WITHIN)?.succeeded()?;
    let mut broker = OttlaBroker::start(&["--topic", "orders"])?;
    let mut franz_go = Command::new(program);
    // It prints the error's name with its own text, not the broker's.
    let output = run("franz-go", franz_go.args([&broker.bootstrap(), "orders"]), b"", AT_ONCE)?.failed()?;
    assert!(output.stdout_text().contains("UNSUPPORTED_VERSION"), "{}", output.failure("another error"));
    one_warning(&mut broker, "kgo")
}

#[test]
fn java_gives_up_at_once() -> Result<(), Failure> {
    require!(Peer::Java);
    let mut broker = OttlaBroker::start(&[])?;
    let program = workspace_root().join("interop/java/Transactional.java");
    let output = java_tool(&program.to_string_lossy(), &[&broker.bootstrap()], b"")?.succeeded()?;
    let text = output.stdout_text();
    let elapsed = text.split(' ').next().and_then(|ms| ms.parse().ok()).map(Duration::from_millis);
    assert!(elapsed.is_some_and(|elapsed| elapsed < AT_ONCE) && text.contains(REASON), "{text}");
    one_warning(&mut broker, "apache-kafka-java")
}

/// The broker logs the client, its software and the missing feature in one line.
fn one_warning(broker: &mut OttlaBroker, software: &str) -> Result<(), Failure> {
    broker.process().stop()?;
    let printed = String::from_utf8_lossy(&broker.process().stderr()).into_owned();
    let lines: Vec<_> = printed.lines().filter(|line| line.contains("requests transactions")).collect();
    assert_eq!(lines.len(), 1, "{printed}");
    assert!(lines[0].contains("127.0.0.1:") && lines[0].contains(&format!("({software} ")), "{printed}");
    Ok(())
}
