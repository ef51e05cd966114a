//! Apache Kafka 4.1's command-line tools, which use the Java client, against the broker.

use std::fmt::Write;
use std::time::Duration;

use ottla_interop::{
    Cluster, Failure, Output, Process, against_ottla_and_kafka, console, java_command, java_tool,
};

against_ottla_and_kafka! { Java;
    topics_are_created_listed_described_grown_and_deleted
    console_producer_and_consumer_meet_with_every_codec
    a_console_group_goes_on_where_it_stopped
    groups_are_listed_described_reset_and_deleted
    a_running_group_shows_its_member
    perf_tests_reach_every_record
}

const SOON: Duration = Duration::from_secs(30);

fn topics_are_created_listed_described_grown_and_deleted(cluster: &dyn Cluster) -> Result<(), Failure> {
    let topic = "java-topic";
    let create = ["--create", "--topic", topic, "--partitions", "3", "--config", "retention.ms=86400000"];
    tool(cluster, console::TOPICS, &create, b"")?.succeeded()?;
    let again = tool(cluster, console::TOPICS, &create, b"")?.failed()?;
    assert!(again.stdout_text().contains("already exists"), "{}", again.failure("printed another error"));
    assert!(topics(cluster)?.contains(&topic.to_owned()));

    let describe = ["--describe", "--topic", topic];
    let described = tool(cluster, console::TOPICS, &describe, b"")?.succeeded()?.stdout_text();
    assert!(described.contains("PartitionCount: 3"), "{described}");
    assert!(described.contains("ReplicationFactor: 1"), "{described}");
    assert!(described.contains("retention.ms=86400000"), "{described}");

    let grow = ["--alter", "--topic", topic, "--partitions", "5"];
    tool(cluster, console::TOPICS, &grow, b"")?.succeeded()?;
    let described = tool(cluster, console::TOPICS, &describe, b"")?.succeeded()?.stdout_text();
    assert_eq!(described.matches("Leader: ").count(), 5, "{described}");
    assert!(!described.contains("Leader: none"), "{described}");

    tool(cluster, console::TOPICS, &["--delete", "--topic", topic], b"")?.succeeded()?;
    assert!(!topics(cluster)?.contains(&topic.to_owned()));
    Ok(())
}

fn console_producer_and_consumer_meet_with_every_codec(cluster: &dyn Cluster) -> Result<(), Failure> {
    const EACH: usize = 100;
    let topic = "java-console";
    let mut expected = Vec::new();
    for codec in ["none", "gzip", "snappy", "lz4", "zstd"] {
        let mut input = String::new();
        for n in 0..EACH {
            let (key, value) = (format!("key {n}"), format!("{codec} says {n} {}", "again ".repeat(n % 10)));
            let headers = format!("codec:{codec},n:{n}");
            let _ = writeln!(input, "{headers}\t{key}|{value}");
            expected.push(format!("Offset:{}\t{headers}\t{key}\t{value}", expected.len()));
        }
        let producer = [
            &["--topic", topic, "--compression-codec", codec][..],
            &["--property", "parse.headers=true", "--property", "parse.key=true"],
            &["--property", "key.separator=|"],
        ];
        tool(cluster, console::PRODUCER, &producer.concat(), input.as_bytes())?.succeeded()?;
    }
    let count = expected.len().to_string();
    let consumer = [
        &["--topic", topic, "--from-beginning", "--max-messages", &count, "--timeout-ms", "20000"][..],
        &["--property", "print.offset=true", "--property", "print.headers=true"],
        &["--property", "print.key=true"],
    ];
    let records = tool(cluster, console::CONSUMER, &consumer.concat(), b"")?.succeeded()?.lines();
    assert_eq!(records, expected);
    Ok(())
}

fn a_console_group_goes_on_where_it_stopped(cluster: &dyn Cluster) -> Result<(), Failure> {
    let topic = "java-console-group";
    produce(cluster, topic, "a\nb\nc\n")?;
    assert_eq!(consume_in_group(cluster, topic, "java-readers", 3)?, ["a", "b", "c"]);
    produce(cluster, topic, "d\ne\n")?;
    assert_eq!(consume_in_group(cluster, topic, "java-readers", 2)?, ["d", "e"]);
    Ok(())
}

fn groups_are_listed_described_reset_and_deleted(cluster: &dyn Cluster) -> Result<(), Failure> {
    let (topic, group) = ("java-groups", "java-described");
    produce(cluster, topic, "a\nb\nc\n")?;
    consume_in_group(cluster, topic, group, 3)?;
    produce(cluster, topic, "d\ne\n")?;

    assert!(groups(cluster, &["--list"])?.lines().any(|line| line == group));
    assert_eq!(offsets(cluster, topic, group)?, ["3", "5", "2"], "committed, end, lag");
    let state = groups(cluster, &["--describe", "--state", "--group", group])?;
    assert!(state.lines().any(|line| line.contains(group) && line.contains("Empty")), "{state}");

    let reset = ["--reset-offsets", "--to-earliest", "--topic", topic, "--group", group];
    let planned = groups(cluster, &[&reset[..], &["--dry-run"]].concat())?;
    assert!(planned.contains(topic), "{planned}");
    assert_eq!(offsets(cluster, topic, group)?, ["3", "5", "2"], "a dry run changes nothing");
    groups(cluster, &[&reset[..], &["--execute"]].concat())?;
    assert_eq!(offsets(cluster, topic, group)?, ["0", "5", "5"]);
    assert_eq!(consume_in_group(cluster, topic, group, 5)?, ["a", "b", "c", "d", "e"]);

    groups(cluster, &["--delete", "--group", group])?;
    assert!(!groups(cluster, &["--list"])?.lines().any(|line| line == group));
    Ok(())
}

fn a_running_group_shows_its_member(cluster: &dyn Cluster) -> Result<(), Failure> {
    let (topic, group) = ("java-member", "java-running");
    produce(cluster, topic, "the-first-record\n")?;
    let bootstrap = cluster.bootstrap();
    let consumer = ["--bootstrap-server", &bootstrap, "--topic", topic, "--group", group, "--from-beginning"];
    let mut consumer = Process::spawn("ConsoleConsumer", &mut java_command(console::CONSUMER, &consumer)?)?;
    consumer.wait_for_line("the-first-record", SOON)?;

    let members = groups(cluster, &["--describe", "--members", "--verbose", "--group", group])?;
    let member = members.lines().find(|line| line.starts_with(group)).unwrap_or_default();
    assert!(member.contains("console-consumer") && member.contains(topic), "{members}");
    let state = groups(cluster, &["--describe", "--state", "--group", group])?;
    assert!(state.lines().any(|line| line.contains("range") && line.contains("Stable")), "{state}");

    consumer.stop()?;
    let left = groups(cluster, &["--describe", "--state", "--group", group])?;
    assert!(left.lines().any(|line| line.contains(group) && line.contains("Empty")), "{left}");
    Ok(())
}

fn perf_tests_reach_every_record(cluster: &dyn Cluster) -> Result<(), Failure> {
    let topic = "java-perf";
    cluster.create_topic(topic, 2)?;
    let producer =
        ["--topic", topic, "--num-records", "200000", "--record-size", "100", "--throughput", "-1"];
    let bootstrap = cluster.bootstrap();
    let properties = ["--producer-props", &format!("bootstrap.servers={bootstrap}"), "acks=all"];
    let sent = java_tool(console::PRODUCER_PERF, &[&producer[..], &properties].concat(), b"")?
        .succeeded()?
        .stdout_text();
    assert!(sent.contains("200000 records sent"), "{sent}");

    let consumer = ["--topic", topic, "--messages", "200000", "--timeout", "20000"];
    let read = tool(cluster, console::CONSUMER_PERF, &consumer, b"")?.succeeded()?;
    // start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, ..
    let figures = read.lines().into_iter().rfind(|line| line.matches(',').count() >= 8).unwrap_or_default();
    assert_eq!(
        figures.split(',').nth(4).map(str::trim),
        Some("200000"),
        "{}",
        read.failure("counted otherwise")
    );
    Ok(())
}

fn produce(cluster: &dyn Cluster, topic: &str, lines: &str) -> Result<(), Failure> {
    tool(cluster, console::PRODUCER, &["--topic", topic], lines.as_bytes())?.succeeded().map(|_| ())
}

fn consume_in_group(
    cluster: &dyn Cluster,
    topic: &str,
    group: &str,
    count: usize,
) -> Result<Vec<String>, Failure> {
    let count = count.to_string();
    let range = ["--topic", topic, "--group", group, "--from-beginning"];
    let end = ["--max-messages", &count, "--timeout-ms", "20000"];
    Ok(tool(cluster, console::CONSUMER, &[&range[..], &end].concat(), b"")?.succeeded()?.lines())
}

fn topics(cluster: &dyn Cluster) -> Result<Vec<String>, Failure> {
    Ok(tool(cluster, console::TOPICS, &["--list"], b"")?.succeeded()?.lines())
}

fn groups(cluster: &dyn Cluster, args: &[&str]) -> Result<String, Failure> {
    Ok(tool(cluster, console::GROUPS, args, b"")?.succeeded()?.stdout_text())
}

/// The group's committed offset, log end offset and lag in partition 0 of the topic.
fn offsets(cluster: &dyn Cluster, topic: &str, group: &str) -> Result<Vec<String>, Failure> {
    let described = groups(cluster, &["--describe", "--group", group])?;
    let row = described.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let row = row.into_iter().find(|row| row.starts_with(&[group, topic, "0"]));
    let row = row.ok_or_else(|| Failure::new(format!("no row for {group} {topic} 0 in\n{described}")))?;
    Ok(row[3..6].iter().map(|&column| column.to_owned()).collect())
}

fn tool(cluster: &dyn Cluster, class: &str, args: &[&str], stdin: &[u8]) -> Result<Output, Failure> {
    let bootstrap = cluster.bootstrap();
    java_tool(class, &[&["--bootstrap-server", &bootstrap], args].concat(), stdin)
}
