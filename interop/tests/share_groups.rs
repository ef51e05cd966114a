//! Kafka 4.3's share consumers against the broker, which is killed in between: no line is lost, and none that was acknowledged is
//! delivered again.

#![allow(clippy::disallowed_methods, reason = "real time: consumers and kills are paced")]

use std::collections::BTreeSet;
use std::fmt::Write;
use std::time::Duration;

use ottla_interop::{
    Failure, OttlaBroker, Output, Peer, Process, console, newest_jars, ottla, require, run, wait_until,
};

const TOPIC: &str = "shared";
const GROUP: &str = "workers";
/// `kafka-console-share-consumer.sh`
const SHARE_CONSUMER: &str = "org.apache.kafka.tools.consumer.ConsoleShareConsumer";
/// `kafka-verifiable-share-consumer.sh`
const VERIFIABLE: &str = "org.apache.kafka.tools.VerifiableShareConsumer";
const SOON: Duration = Duration::from_secs(90);
/// Lines of each round.
const LINES: usize = 300;
const KILLS: usize = 3;

#[test]
fn a_console_share_consumer_reads_what_is_produced() -> Result<(), Failure> {
    require!(Peer::NewestJava);
    let broker = OttlaBroker::start(&["--topic", "shared:2"])?;
    earliest(&broker.bootstrap())?;
    produce(&broker.bootstrap(), 0..LINES)?;
    let count = LINES.to_string();
    let args = ["--topic", TOPIC, "--group", GROUP, "--max-messages", &count, "--timeout-ms", "60000"];
    let read = tool(SHARE_CONSUMER, &broker.bootstrap(), &args)?.succeeded()?.lines();
    assert_eq!(read.iter().collect::<BTreeSet<_>>().len(), LINES, "each line once");
    assert_eq!(read.len(), LINES);
    Ok(())
}

#[test]
fn share_consumers_survive_kills_of_the_broker() -> Result<(), Failure> {
    require!(Peer::NewestJava);
    let data = tempfile::tempdir().map_err(|error| Failure::new(format!("a data directory: {error}")))?;
    let mut broker = OttlaBroker::start_on(data.path(), &["--listen", "127.0.0.1:0", "--topic", "shared:2"])?;
    let (bootstrap, address) = (broker.bootstrap(), broker.addresses()[0].to_string());
    earliest(&bootstrap)?;
    produce(&bootstrap, 0..LINES)?;
    let mut consumers = Vec::new();
    for _ in 0..2 {
        let mut java = newest_jars()?.java(256);
        java.args([VERIFIABLE, "--bootstrap-server", &bootstrap, "--topic", TOPIC, "--group-id", GROUP]);
        java.args(["--acknowledgement-mode", "sync", "--verbose"]);
        consumers.push(Process::spawn("verifiable share consumer", &mut java)?);
    }
    for round in 1..=KILLS {
        all_acknowledged(&consumers, round * LINES)?;
        broker.kill()?;
        broker = OttlaBroker::start_on(data.path(), &["--listen", &address])?;
        produce(&bootstrap, round * LINES..(round + 1) * LINES)?;
    }
    all_acknowledged(&consumers, (KILLS + 1) * LINES)?;
    // Another consumer of the group finds nothing.
    let args = ["--topic", TOPIC, "--group", GROUP, "--timeout-ms", "10000"];
    let read = tool(SHARE_CONSUMER, &bootstrap, &args)?.lines();
    assert_eq!(read, Vec::<String>::new(), "everything is acknowledged");
    for mut consumer in consumers {
        consumer.stop()?;
    }
    broker.stop()
}

/// Waits until the consumers have acknowledged so many records.
fn all_acknowledged(consumers: &[Process], count: usize) -> Result<(), Failure> {
    wait_until(&format!("{count} acknowledged lines"), SOON, || {
        let total: usize = consumers.iter().map(acknowledged).sum();
        (total >= count).then_some(())
    })
}

/// The records in the `offsets_acknowledged` events of a consumer, which succeeded.
fn acknowledged(consumer: &Process) -> usize {
    let text = String::from_utf8_lossy(&consumer.stdout()).into_owned();
    let events = text.lines().filter(|line| line.contains("\"offsets_acknowledged\""));
    let counts = events.filter_map(|line| {
        let number = line.split("\"count\":").nth(1)?;
        number.split(|c: char| !c.is_ascii_digit()).next()?.parse::<usize>().ok()
    });
    counts.sum()
}

fn earliest(bootstrap: &str) -> Result<(), Failure> {
    let args = [
        "--alter",
        "--entity-type",
        "groups",
        "--entity-name",
        GROUP,
        "--add-config",
        "share.auto.offset.reset=earliest",
    ];
    tool(console::CONFIGS, bootstrap, &args)?.succeeded().map(|_| ())
}

fn produce(bootstrap: &str, numbers: std::ops::Range<usize>) -> Result<(), Failure> {
    let mut lines = String::new();
    for number in numbers {
        let _ = writeln!(lines, "line {number}");
    }
    ottla(&["produce", TOPIC, "--brokers", bootstrap], lines.as_bytes())?.succeeded().map(|_| ())
}

fn tool(class: &str, bootstrap: &str, args: &[&str]) -> Result<Output, Failure> {
    let mut java = newest_jars()?.java(256);
    java.arg(class).args(["--bootstrap-server", bootstrap]).args(args);
    run(class.rsplit('.').next().unwrap_or(class), &mut java, b"", SOON)
}
