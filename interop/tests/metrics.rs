//! `--metrics-listen`: Prometheus can scrape a running command.

#![allow(clippy::disallowed_methods, reason = "a test is a shell")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use std::process::Command;

use ottla_interop::{
    Failure, Librdkafka, OttlaBroker, Peer, Process, build_foreign_go, console, newest_jars, ottla,
    ottla_command, require, run, wait_until, workspace_root,
};

/// Timeout of each wait for a process or its metrics.
const PATIENCE: Duration = Duration::from_secs(30);
/// Timeout of one of Kafka's tools.
const SOON: Duration = Duration::from_secs(90);

#[test]
fn a_producer_and_a_consumer_are_scraped_while_they_run() -> Result<(), Failure> {
    let broker = OttlaBroker::start(&["--topic", "orders:1"])?;
    let bootstrap = broker.bootstrap();
    let serving = ["--brokers", &bootstrap, "--metrics-listen", "127.0.0.1:0"];

    let mut command = ottla_command(&[&["produce", "orders"], &serving[..]].concat())?;
    let (mut producer, mut lines) = Process::spawn_piped("ottla produce", &mut command)?;
    let mut feed = || writeln!(lines, "paid").and_then(|()| lines.flush()).expect("the producer reads");
    let address = listening(&mut producer)?;
    // Lines are sent when the input pauses or ends; the metrics show how many.
    let sent = wait_until("records sent", PATIENCE, || {
        feed();
        metric(&address, "ottla_partition_sent_records_total").filter(|sent| *sent >= 1.0)
    });
    sent.map_err(|failure| producer.quoted(&failure))?;

    let mut command = ottla_command(&[&["consume", "orders", "--from", "beginning"], &serving[..]].concat())?;
    let mut consumer = Process::spawn("ottla consume", &mut command)?;
    let address = listening(&mut consumer)?;
    let read = wait_until("records read", PATIENCE, || {
        metric(&address, "ottla_partition_received_records_total").filter(|read| *read >= 1.0)
    });
    read.map_err(|failure| consumer.quoted(&failure))?;

    assert!(get(&address, "/metrics").starts_with("HTTP/1.1 200 OK\r\n"));
    assert!(get(&address, "/metrics").contains("content-type: text/plain; version=0.0.4"));
    assert!(get(&address, "/").starts_with("HTTP/1.1 404 "));
    Ok(())
}

#[test]
fn a_stuck_worker_is_reported_as_the_blocking_offset() -> Result<(), Failure> {
    let broker = OttlaBroker::start(&["--topic", "orders:1"])?;
    let bootstrap = broker.bootstrap();
    ottla(&["produce", "orders", "--brokers", &bootstrap], b"good\ngood\nstuck\ngood\n")?.succeeded()?;
    let args = ["run", "--topic", "orders", "--group", "workers", "--workers", "2", "--brokers", &bootstrap];
    let script = "while read line; do case $line in stuck) cat > /dev/null;; *) echo done;; esac; done";
    let tail = ["--metrics-listen", "127.0.0.1:0", "--", "sh", "-c", script];
    let mut workers = Process::spawn("ottla run", &mut ottla_command(&[&args[..], &tail].concat())?)?;
    let address = listening(&mut workers)?;
    let stuck = wait_until("the offset that blocks, and its age", PATIENCE, || {
        let text = get(&address, "/metrics");
        let says = |line: &str| text.lines().any(|said| said == line);
        let blocks = says("ottla_processor_blocking_offset{topic=\"orders\",partition=\"0\"} 2");
        let age = metric(&address, "ottla_processor_blocking_seconds")?;
        // The client's metrics are served next to the processor's.
        let received = metric(&address, "ottla_partition_received_records_total")?;
        (says("ottla_processor_handled_total 3") && blocks && age > 0.1 && received > 3.5).then_some(())
    });
    stuck.map_err(|failure| workers.quoted(&failure))?;
    Ok(())
}

fn control_in(dir: &Path) -> String {
    format!("unix:{}", dir.join("control").display())
}

/// A broker that asks all clients for metrics by Kafka's tool, and the address of its own metrics.
fn broker_that_asks(dir: &Path, metrics: &str) -> Result<(OttlaBroker, String), Failure> {
    let control = control_in(dir);
    let serving = ["--topic", "orders:1", "--metrics-listen", "127.0.0.1:0", "--control", &control];
    let mut broker = OttlaBroker::start(&serving)?;
    let bootstrap = broker.bootstrap();
    let mut tool = newest_jars()?.java(256);
    tool.args(["org.apache.kafka.tools.ClientMetricsCommand", "--bootstrap-server", &bootstrap]);
    tool.args(["--alter", "--name", "all", "--metrics", metrics, "--interval", "200"]);
    run("kafka-client-metrics", &mut tool, b"", SOON)?.succeeded()?;
    let address = listening(broker.process())?;
    Ok((broker, address))
}

/// Waits until a client of this software has pushed a metric whose name has this part.
fn await_pushed(client: &mut Process, address: &str, software: &str, part: &str) -> Result<(), Failure> {
    let pushed = wait_until("a client's metric", PATIENCE, || {
        let text = get(address, "/metrics");
        let is_it =
            |line: &str| line.starts_with("kafka_client_") && line.contains(part) && line.contains(software);
        text.lines().any(is_it).then_some(())
    });
    pushed.map_err(|failure| client.quoted(&failure))
}

#[test]
fn javas_consumer_pushes_its_metrics() -> Result<(), Failure> {
    require!(Peer::NewestJava);
    let dir = tempfile::tempdir().map_err(|error| Failure::new(format!("a directory: {error}")))?;
    let (broker, address) = broker_that_asks(dir.path(), "*")?;
    let bootstrap = broker.bootstrap();
    let mut java = newest_jars()?.java(256);
    java.args([console::CONSUMER, "--bootstrap-server", &bootstrap, "--topic", "orders"]);
    let mut consumer = Process::spawn("kafka-console-consumer", &mut java)?;
    await_pushed(&mut consumer, &address, "apache-kafka-java", "consumer_poll_idle_ratio_avg")?;
    let control = control_in(dir.path());
    let keys_of = |command: &str| -> Result<Vec<String>, Failure> {
        let args = ["clients", command, "--output", "json", "--control", &control];
        let printed = ottla(&args, b"")?.succeeded()?;
        let row = printed.lines().into_iter().next().unwrap_or_default();
        let row: serde_json::Map<_, _> =
            serde_json::from_str(&row).map_err(|error| Failure::new(format!("{error}: `{row}`")))?;
        Ok(row.keys().map(|key| format!("`{key}`")).collect())
    };
    let document = std::fs::read_to_string(workspace_root().join("docs/COMMANDS.md")).expect("readable");
    for (command, of) in [("list", "client"), ("metrics", "value")] {
        let row = format!("| `ottla clients {command}` | {of} | {} |", keys_of(command)?.join(" "));
        assert!(document.contains(&row), "not in docs/COMMANDS.md: {row}");
    }
    Ok(())
}

#[test]
fn librdkafkas_consumer_pushes_its_metrics() -> Result<(), Failure> {
    require!(Peer::NewestJava);
    require!(Peer::Librdkafka);
    require!(Peer::Kcat);
    let dir = tempfile::tempdir().map_err(|error| Failure::new(format!("a directory: {error}")))?;
    let (broker, address) = broker_that_asks(dir.path(), "*")?;
    let bootstrap = broker.bootstrap();
    let original = Librdkafka::reference()?;
    let mut kcat = Command::new("kcat");
    kcat.args(["-C", "-b", &bootstrap, "-t", "orders", "-X", "client.id=till"]);
    let mut kcat = Process::spawn("kcat", original.load(&mut kcat))?;
    await_pushed(&mut kcat, &address, "client_id=\"till\"", "consumer_node_request_latency_avg")
}

#[test]
fn franz_gos_consumer_pushes_its_metrics() -> Result<(), Failure> {
    require!(Peer::NewestJava);
    require!(Peer::Go);
    let dir = tempfile::tempdir().map_err(|error| Failure::new(format!("a directory: {error}")))?;
    // franz-go takes `*` for a prefix, and has no such metrics.
    let (broker, address) = broker_that_asks(dir.path(), "org.apache.kafka.")?;
    let (source, program) = (dir.path().join("main.go"), dir.path().join("program"));
    let written = std::fs::write(&source, include_str!("metrics/main.go"));
    written.map_err(|error| Failure::new(format!("{}: {error}", source.display())))?;
    build_foreign_go(&source, &program)?;
    let mut command = Command::new(&program);
    let mut consumer = Process::spawn("franz-go", command.args([&broker.bootstrap(), "orders"]))?;
    await_pushed(&mut consumer, &address, "\"kgo\"", "consumer_node_request_latency")
}

#[test]
fn an_address_in_use_is_reported() -> Result<(), Failure> {
    let broker = OttlaBroker::start(&["--topic", "orders:1"])?;
    let taken = broker.addresses()[0].to_string();
    let args = ["consume", "orders", "--brokers", &taken, "--metrics-listen", &taken];
    let mut consumer = Process::spawn("ottla consume", &mut ottla_command(&args)?)?;
    let status = consumer.wait(PATIENCE)?;
    assert_eq!(status.code(), Some(1));
    let said = String::from_utf8_lossy(&consumer.stderr()).into_owned();
    assert!(said.contains(&format!("--metrics-listen {taken}: address already in use")), "{said}");
    Ok(())
}

/// The address at which a command serves its metrics.
fn listening(process: &mut Process) -> Result<String, Failure> {
    let line = process.wait_for_line("metrics at http://", PATIENCE)?;
    let address = line.strip_prefix("metrics at http://").and_then(|rest| rest.strip_suffix("/metrics"));
    address.map(str::to_owned).ok_or_else(|| Failure::new(line))
}

/// The sum of a metric over its labels, if it exists.
fn metric(address: &str, name: &str) -> Option<f64> {
    let text = get(address, "/metrics");
    let values = text.lines().filter(|line| line.starts_with(&format!("{name}{{")));
    let values: Vec<f64> = values.filter_map(|line| line.rsplit(' ').next()?.parse().ok()).collect();
    (!values.is_empty()).then(|| values.iter().sum())
}

fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").expect("asked");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}
