//! `__consumer_offsets` with Apache Kafka's own tools: they read the topic through the broker and from its files, and they
//! work on the groups in it, before and after a kill. Groups of the new protocol are decoded as well.

use std::path::PathBuf;
use std::time::Duration;

use ottla_interop::{
    Failure, OttlaBroker, Output, Peer, Process, console, java_command, java_tool, require, wait_until,
};

const TOPIC: &str = "orders";
const GROUP: &str = "billing";
const OFFSETS_TOPIC: &str = "__consumer_offsets";
const SOON: Duration = Duration::from_secs(30);

/// Prints the offsets of `__consumer_offsets` as JSON.
const FORMATTER: &str = "org.apache.kafka.tools.consumer.OffsetsMessageFormatter";

#[test]
fn kafkas_tools_read_the_offsets_and_the_groups() -> Result<(), Failure> {
    require!(Peer::Java);
    let data = tempfile::tempdir().map_err(|error| Failure::new(format!("a data directory: {error}")))?;
    let broker = OttlaBroker::start_on(data.path(), &["--topic", "orders:1"])?;
    tool(&broker, console::PRODUCER, &["--topic", TOPIC], b"a\nb\nc\n")?.succeeded()?;
    let bootstrap = broker.bootstrap();
    let consumer = ["--bootstrap-server", &bootstrap, "--topic", TOPIC, "--group", GROUP, "--from-beginning"];
    let mut consumer = Process::spawn("ConsoleConsumer", &mut java_command(console::CONSUMER, &consumer)?)?;
    consumer.wait_for_line("c", SOON)?;
    let dump = dumped(&broker)?;
    assert!(dump.contains("\"protocolType\":\"consumer\"") && dump.contains("console-consumer"), "{dump}");
    // The consumer commits and leaves.
    consumer.stop()?;
    assert_eq!(committed(&broker)?.as_deref(), Some("3"));
    let dump = dumped(&broker)?;
    assert!(
        dump.contains("\"group\":\"billing\"")
            && dump.contains("\"topic\":\"orders\"")
            && dump.contains("\"offset\":3"),
        "{dump}"
    );
    assert!(!dump.contains("isvalid: false"), "{dump}");
    let formatted =
        ["--topic", OFFSETS_TOPIC, "--from-beginning", "--formatter", FORMATTER, "--timeout-ms", "8000"];
    let read = tool(&broker, console::CONSUMER, &formatted, b"")?.succeeded()?.stdout_text();
    assert!(read.contains("\"group\":\"billing\"") && read.contains("\"offset\":3"), "{read}");

    let described = tool(&broker, console::TOPICS, &["--describe", "--topic", OFFSETS_TOPIC], b"")?;
    let described = described.succeeded()?.stdout_text();
    for part in ["PartitionCount: 50", "cleanup.policy=compact", "segment.bytes=104857600"] {
        assert!(described.contains(part), "{part} in {described}");
    }
    let list =
        |args: &[&str]| Ok::<_, Failure>(tool(&broker, console::TOPICS, args, b"")?.succeeded()?.lines());
    assert_eq!(list(&["--list", "--exclude-internal"])?, [TOPIC]);
    assert_eq!(list(&["--list"])?, [OFFSETS_TOPIC, TOPIC]);

    broker.kill()?;
    let broker = OttlaBroker::start_on(data.path(), &[])?;
    assert_eq!(committed(&broker)?.as_deref(), Some("3"));
    let state = groups(&broker, &["--describe", "--state", "--group", GROUP])?;
    assert!(state.lines().any(|line| line.contains(GROUP) && line.contains("Empty")), "{state}");
    let reset = ["--reset-offsets", "--to-offset", "1", "--topic", TOPIC, "--group", GROUP, "--execute"];
    groups(&broker, &reset)?;
    assert_eq!(committed(&broker)?.as_deref(), Some("1"));
    groups(&broker, &["--delete-offsets", "--group", GROUP, "--topic", TOPIC])?;
    assert_eq!(committed(&broker)?, None);
    groups(&broker, &["--delete", "--group", GROUP])?;
    broker.kill()?;
    let broker = OttlaBroker::start_on(data.path(), &[])?;
    assert!(!groups(&broker, &["--list"])?.lines().any(|line| line == GROUP));
    broker.stop()
}

/// A group migrates while it has a member of each protocol: its records have the parts of both.
#[test]
fn kafkas_dump_decodes_a_group_with_members_of_both_protocols() -> Result<(), Failure> {
    require!(Peer::Java);
    let data = tempfile::tempdir().map_err(|error| Failure::new(format!("a data directory: {error}")))?;
    let broker = OttlaBroker::start_on(data.path(), &["--topic", "orders:2"])?;
    let bootstrap = broker.bootstrap();
    let member = |protocol: &str| -> Result<Process, Failure> {
        let property = format!("group.protocol={protocol}");
        let args = ["--bootstrap-server", &bootstrap, "--topic", TOPIC, "--group", GROUP];
        let args = [&args[..], &["--consumer-property", &property]].concat();
        Process::spawn("ConsoleConsumer", &mut java_command(console::CONSUMER, &args)?)
    };
    let (_classic, mut dump) = (member("classic")?, String::new());
    wait_until("the classic member has its partitions", SOON, || {
        dump = dumped(&broker).unwrap_or_default();
        dump.contains("\"protocol\":\"range\"").then_some(())
    })?;
    let _new = member("consumer")?;
    wait_until("both have one", SOON, || {
        dump = dumped(&broker).unwrap_or_default();
        // Members of both protocols have an assignment of their own.
        (dump.matches("\"assignedPartitions\":[{").count() >= 2).then_some(())
    })?;
    for part in [
        "\"classicMemberMetadata\":{\"sessionTimeoutMs\":45000,\"supportedProtocols\":[{\"name\":\"range\"",
        "\"subscribedTopicNames\":[\"orders\"]",
        "\"memberEpoch\":",
    ] {
        assert!(dump.contains(part), "{part} in {dump}");
    }
    assert!(!dump.contains("isvalid: false") && !dump.contains("<UNKNOWN>"), "{dump}");
    Ok(())
}

/// The files of the topic, as `kafka-dump-log.sh --offsets-decoder` prints them.
fn dumped(broker: &OttlaBroker) -> Result<String, Failure> {
    let segment =
        |index: i32| broker.data().join(format!("{OFFSETS_TOPIC}-{index}/00000000000000000000.log"));
    let written = |path: &PathBuf| path.metadata().is_ok_and(|metadata| metadata.len() > 0);
    let files: Vec<String> =
        (0..50).map(segment).filter(written).map(|path| path.display().to_string()).collect();
    let args = ["--offsets-decoder", "--files", &files.join(",")];
    Ok(java_tool(console::DUMP_LOG, &args, b"")?.succeeded()?.stdout_text())
}

/// The group's committed offset in partition 0; `None` if it has none.
fn committed(broker: &OttlaBroker) -> Result<Option<String>, Failure> {
    let described = groups(broker, &["--describe", "--group", GROUP])?;
    let row = described.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let row = row.into_iter().find(|row| row.starts_with(&[GROUP, TOPIC, "0"]));
    Ok(row.map(|row| row[3].to_owned()).filter(|offset| offset != "-"))
}

fn groups(broker: &OttlaBroker, args: &[&str]) -> Result<String, Failure> {
    Ok(tool(broker, console::GROUPS, args, b"")?.succeeded()?.stdout_text())
}

fn tool(broker: &OttlaBroker, class: &str, args: &[&str], stdin: &[u8]) -> Result<Output, Failure> {
    let bootstrap = broker.bootstrap();
    java_tool(class, &[&["--bootstrap-server", &bootstrap], args].concat(), stdin)
}
