//! The Ottla client, through the `ottla` command, against Apache Kafka 4.1 with one and two brokers.

use std::time::Duration;

use ottla_client::{Config, Producer, Record};
use ottla_interop::{Cluster, Failure, KafkaCluster, Peer, console, java_tool, ottla, require, wait_until};
use serde_json::Value;

/// Usually milliseconds; longer on a loaded machine.
const KNOWN_WITHIN: Duration = Duration::from_secs(60);
const CODECS: [&str; 5] = ["none", "gzip", "snappy", "lz4", "zstd"];
const RECORDS: usize = 2_000;

#[test]
fn kafka_with_one_broker() -> Result<(), Failure> {
    require!(Peer::Java);
    all_stories(&KafkaCluster::start(1)?, 1)
}

#[test]
fn kafka_with_two_brokers() -> Result<(), Failure> {
    require!(Peer::Java);
    all_stories(&KafkaCluster::start(2)?, 2)
}

fn all_stories(cluster: &KafkaCluster, brokers: usize) -> Result<(), Failure> {
    topics_are_created_listed_described_and_deleted(cluster)?;
    for codec in CODECS {
        codec_comes_back(cluster, codec)?;
    }
    kafka_stored_each_codec(cluster, brokers)?;
    keys_headers_and_json(cluster)?;
    java_reads_what_ottla_wrote(cluster)?;
    a_group_resumes_where_it_stopped(cluster)?;
    groups_are_listed_described_reset_and_deleted(cluster)?;
    the_cluster_is_administered(cluster, brokers)
}

fn topics_are_created_listed_described_and_deleted(cluster: &KafkaCluster) -> Result<(), Failure> {
    let topic = "ottla-topic";
    command(cluster, &["topics", "create", topic, "--partitions", "4"], b"")?;
    // The controller answers before every broker has the topic, and any broker may be contacted.
    let known = || topics(cluster).ok()?.contains(topic).then_some(());
    wait_until("the new topic in the list", KNOWN_WITHIN, known)?;
    let described = || command(cluster, &["topics", "describe", topic], b"").ok();
    let described = wait_until("the new topic's description", KNOWN_WITHIN, described)?;
    assert!(described.contains(topic), "{described}");
    command(cluster, &["topics", "delete", topic], b"")?;
    let gone = || (!topics(cluster).ok()?.contains(topic)).then_some(());
    wait_until("the deleted topic out of the list", KNOWN_WITHIN, gone)
}

/// Two partitions, each led by a different broker if there are two. Every record arrives once, in order per
/// partition.
fn codec_comes_back(cluster: &KafkaCluster, codec: &str) -> Result<(), Failure> {
    let topic = codec_topic(codec);
    cluster.create_topic(&topic, 2)?;
    let mut sent: Vec<String> =
        (0..RECORDS).map(|n| format!("{n:05} {codec} {}", "of the log ".repeat(n % 9))).collect();
    let input = sent.iter().fold(String::new(), |text, line| text + line + "\n");
    for partition in ["0", "1"] {
        let produce = ["produce", &topic, "--codec", codec, "--partition", partition];
        command(cluster, &produce, input.as_bytes())?;
    }
    let mut read = consume(cluster, &topic, &["--format", "%p %o %s\n"])?;
    // A stable sort keeps the order of arrival within a partition.
    read.sort_by_key(|line| line.split(' ').next().map(str::to_owned));
    let (first, second) = (numbered(0, &sent), numbered(1, &sent));
    sent = [first, second].concat();
    assert_eq!(read, sent, "{codec}");
    Ok(())
}

/// Checks the codec of each batch on disk with Kafka's dump tool.
fn kafka_stored_each_codec(cluster: &KafkaCluster, brokers: usize) -> Result<(), Failure> {
    for codec in CODECS {
        let segments: Vec<String> = (1..=brokers)
            .flat_map(|node| [0, 1].map(|partition| (node, partition)))
            .map(|(node, partition)| {
                cluster.log_dir(node).join(format!("{}-{partition}", codec_topic(codec)))
            })
            .map(|dir| dir.join("00000000000000000000.log"))
            .filter(|segment| segment.exists())
            .map(|segment| segment.to_string_lossy().into_owned())
            .collect();
        assert_eq!(segments.len(), 2, "one segment for each partition of {codec}");
        let dump =
            java_tool(console::DUMP_LOG, &["--files", &segments.join(",")], b"")?.succeeded()?.stdout_text();
        // A batch of a few records may stay uncompressed if the codec would enlarge it.
        let marked: usize = dump
            .lines()
            .filter(|batch| batch.contains(&format!("compresscodec: {codec} ")))
            .filter_map(|batch| batch.split("count: ").nth(1)?.split(' ').next()?.parse::<usize>().ok())
            .sum();
        assert!(marked >= 2 * RECORDS * 9 / 10, "{codec}: {marked} records in batches marked so\n{dump}");
    }
    Ok(())
}

fn keys_headers_and_json(cluster: &KafkaCluster) -> Result<(), Failure> {
    let topic = "ottla-json";
    let produce = ["produce", topic, "--key-delimiter", ":", "--header", "origin=ottla", "--header", "n=1"];
    command(cluster, &produce, b"k1:v1\nk2:v: 2\n")?;
    let mut records = Vec::new();
    for line in consume(cluster, topic, &["--json"])? {
        let record: Value =
            serde_json::from_str(&line).map_err(|error| Failure::new(format!("{line}: {error}")))?;
        assert_eq!(record["topic"], topic, "{line}");
        assert_eq!(record["partition"], 0, "{line}");
        assert!(record["timestamp"].as_i64().is_some_and(|timestamp| timestamp > 0), "{line}");
        assert!(line.contains("origin") && line.contains("ottla"), "the header in {line}");
        records.push((record["offset"].as_i64(), record["key"].clone(), record["value"].clone()));
    }
    let expected = [(Some(0), "k1".into(), "v1".into()), (Some(1), "k2".into(), "v: 2".into())];
    assert_eq!(records, expected);
    Ok(())
}

fn java_reads_what_ottla_wrote(cluster: &KafkaCluster) -> Result<(), Failure> {
    let bootstrap = cluster.bootstrap();
    let consumer = ["--bootstrap-server", &bootstrap, "--topic", "ottla-json", "--from-beginning"];
    let printed = ["--property", "print.key=true", "--property", "print.headers=true"];
    let end = ["--max-messages", "2", "--timeout-ms", "20000"];
    let read = java_tool(console::CONSUMER, &[&consumer[..], &printed, &end].concat(), b"")?.succeeded()?;
    assert_eq!(read.lines(), ["origin:ottla,n:1\tk1\tv1", "origin:ottla,n:1\tk2\tv: 2"]);
    Ok(())
}

fn a_group_resumes_where_it_stopped(cluster: &KafkaCluster) -> Result<(), Failure> {
    let topic = "ottla-group";
    cluster.create_topic(topic, 4)?;
    let group = || {
        let mut values = consume(cluster, topic, &["--group", "ottla-readers", "--format", "%s\n"])?;
        values.sort_unstable();
        Ok::<_, Failure>(values)
    };
    command(cluster, &["produce", topic, "-K", ":"], b"a:1\nb:2\nc:3\nd:4\ne:5\nf:6\n")?;
    assert_eq!(group()?, ["1", "2", "3", "4", "5", "6"]);
    command(cluster, &["produce", topic, "-K", ":"], b"a:7\nb:8\n")?;
    assert_eq!(group()?, ["7", "8"], "only what came after the committed offsets");
    Ok(())
}

/// Uses the group of the previous test: all 8 records are committed.
fn groups_are_listed_described_reset_and_deleted(cluster: &KafkaCluster) -> Result<(), Failure> {
    let (topic, group) = ("ottla-group", "ottla-readers");
    assert!(command(cluster, &["groups", "list"], b"")?.contains(group));
    let described = command(cluster, &["groups", "describe", group], b"")?;
    assert!(described.contains(topic), "{described}");
    let reset = ["groups", "reset-offsets", group, "--topic", topic, "--to", "beginning", "--execute"];
    command(cluster, &reset, b"")?;
    assert_eq!(consume(cluster, topic, &["--group", group, "--format", "%s\n"])?.len(), 8);
    command(cluster, &["groups", "delete", group], b"")?;
    assert!(!command(cluster, &["groups", "list"], b"")?.contains(group));
    Ok(())
}

/// The commands of administrators, in JSON.
fn the_cluster_is_administered(cluster: &KafkaCluster, brokers: usize) -> Result<(), Failure> {
    let topic = "ottla-administered";
    command(cluster, &["topics", "create", topic, "--partitions", "1"], b"")?;
    let partitions = |count| {
        let objects = || objects(cluster, &["topics", "partitions", topic]).ok();
        wait_until("the partitions", KNOWN_WITHIN, || objects().filter(|found| found.len() == count))
            .map(drop)
    };
    partitions(1)?;
    command(cluster, &["topics", "alter", topic, "--partitions", "2"], b"")?;
    partitions(2)?;
    command(cluster, &["produce", topic, "--partition", "0"], b"1\n2\n3\n")?;

    let configs = ["--set", "cleanup.policy=delete", "--append", "retention.ms=5"];
    let refused = ottla(
        &[&["topics", "configs", topic, "--brokers", &cluster.bootstrap()], &configs[..]].concat(),
        b"",
    )?;
    assert!(!refused.status.success(), "retention.ms is no list");
    command(cluster, &["topics", "configs", topic, "--set", "retention.ms=86400000"], b"")?;
    let is_set = || {
        let configs = objects(cluster, &["topics", "configs", topic]).ok()?;
        configs.into_iter().find(|config| config["config"] == "retention.ms")
    };
    let set = wait_until("the config", KNOWN_WITHIN, is_set)?;
    assert_eq!((&set["value"], &set["source"]), (&"86400000".into(), &"DYNAMIC_TOPIC_CONFIG".into()));

    let deleted = objects(cluster, &["topics", "delete-records", &format!("{topic}:0"), "--before", "2"])?;
    assert_eq!((&deleted[0]["first_before"], &deleted[0]["first"]), (&0.into(), &2.into()));
    assert_eq!(consume(cluster, topic, &["--group", "ottla-administered", "--format", "%s\n"])?, ["3"]);
    let groups = objects(cluster, &["groups", "list", "--type", "classic"])?;
    let group = groups.iter().find(|group| group["group"] == "ottla-administered").expect("the group");
    assert_eq!((&group["lag"], &group["state"]), (&0.into(), &"Empty".into()));
    command(cluster, &["groups", "delete-offsets", "ottla-administered", "--topic", topic], b"")?;

    let described = objects(cluster, &["cluster"])?.remove(0);
    assert_eq!(described["nodes"].as_array().map(Vec::len), Some(brokers), "{described}");
    let features = described["features"].as_array().expect("a list");
    assert!(features.iter().any(|feature| feature["feature"] == "metadata.version"), "{features:?}");
    assert!(described["quorum"]["leader"].is_number(), "{described}");
    let dirs = objects(cluster, &["logdirs"])?;
    assert_eq!(dirs.len(), brokers, "{dirs:?}");
    assert!(dirs.iter().all(|dir| dir["volume_bytes"].is_number() && dir["error"].is_null()), "{dirs:?}");
    let replicas = objects(cluster, &["logdirs", "--replicas", "--topic", topic])?;
    assert_eq!(replicas.len(), 2, "{replicas:?}");
    an_open_transaction_is_aborted(cluster, topic)
}

fn an_open_transaction_is_aborted(cluster: &KafkaCluster, topic: &str) -> Result<(), Failure> {
    let mut config = Config::new(cluster.bootstrap());
    config.set("transactional.id", "ottla-billing").expect("valid");
    let producer = Producer::new(config).expect("a producer");
    producer.init_transactions_blocking(KNOWN_WITHIN).expect("initialized");
    producer.begin_transaction().expect("begun");
    producer.send_unobserved_blocking(Record::to(topic).partition(0).value("open")).expect("taken");
    producer.flush_blocking(KNOWN_WITHIN).expect("written");
    let listed = objects(cluster, &["transactions", "list", "--state", "Ongoing"])?;
    assert_eq!((listed.len(), &listed[0]["transactional_id"]), (1, &"ottla-billing".into()), "{listed:?}");
    let described = objects(cluster, &["transactions", "describe", "ottla-billing"])?.remove(0);
    assert_eq!(described["partitions"][0], format!("{topic}:0"), "{described}");
    command(cluster, &["transactions", "abort", "ottla-billing"], b"")?;
    producer.commit_transaction_blocking(KNOWN_WITHIN).expect_err("the producer is fenced");
    Ok(())
}

/// The objects that a command prints as JSON.
fn objects(cluster: &KafkaCluster, args: &[&str]) -> Result<Vec<Value>, Failure> {
    let text = command(cluster, &[args, &["--output", "json"]].concat(), b"")?;
    let parsed: Result<Vec<Value>, _> = text.lines().map(serde_json::from_str).collect();
    parsed.map_err(|error| Failure::new(format!("{error}: {text}")))
}

fn codec_topic(codec: &str) -> String {
    format!("ottla-{codec}")
}

fn numbered(partition: usize, records: &[String]) -> Vec<String> {
    records.iter().enumerate().map(|(offset, record)| format!("{partition} {offset} {record}")).collect()
}

fn topics(cluster: &KafkaCluster) -> Result<String, Failure> {
    command(cluster, &["topics", "list"], b"")
}

fn consume(cluster: &KafkaCluster, topic: &str, args: &[&str]) -> Result<Vec<String>, Failure> {
    let all = [&["consume", topic, "--from", "beginning", "--exit-at-end"], args].concat();
    Ok(command(cluster, &all, b"")?.lines().map(str::to_owned).collect())
}

/// Runs an `ottla` command against the cluster and returns its standard output.
fn command(cluster: &KafkaCluster, args: &[&str], stdin: &[u8]) -> Result<String, Failure> {
    let bootstrap = cluster.bootstrap();
    let output = ottla(&[args, &["--brokers", &bootstrap]].concat(), stdin)?.succeeded()?;
    Ok(output.stdout_text())
}
