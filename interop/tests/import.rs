//! Data of Apache Kafka 4.3 in Ottla, and data of Ottla in Apache Kafka 4.3.

#![allow(clippy::disallowed_methods, reason = "a test is a shell")]
#![allow(clippy::format_collect, reason = "a copy costs nothing in a test")]

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use ottla_interop::{
    Failure, KafkaCluster, KafkaOptions, OttlaBroker, Output, Peer, console, java_tool, ottla, require,
};

const TOPIC: &str = "orders";
const COMPACTED: &str = "prices";
/// It is written in transactions.
const PAID: &str = "payments";
const TRANSACTIONAL_ID: &str = "cashier";
const GROUP: &str = "billing";
const SOON: Duration = Duration::from_secs(60);

fn scratch() -> Result<tempfile::TempDir, Failure> {
    tempfile::tempdir().map_err(|error| Failure::new(format!("a directory: {error}")))
}

fn kafka() -> Result<KafkaCluster, Failure> {
    let properties = [
        ("log.cleaner.backoff.ms", "200"),
        // The cleaner must have passed the internal topics, too.
        ("log.cleaner.min.cleanable.ratio", "0.01"),
        ("controlled.shutdown.enable", "true"),
    ];
    KafkaCluster::start_with(
        1,
        &KafkaOptions { newest: true, properties: &properties, ..KafkaOptions::default() },
    )
}

#[test]
fn ottla_imports_the_topics_records_and_offsets_of_kafka() -> Result<(), Failure> {
    require!(Peer::Java);
    let mut kafka = kafka()?;
    let bootstrap = kafka.bootstrap();
    fill(&bootstrap)?;
    wait_for_cleaner(&kafka.log_dir(1).join(format!("{COMPACTED}-0")))?;
    let orders = consumed(&bootstrap, TOPIC, &[])?;
    let prices = consumed(&bootstrap, COMPACTED, &[])?;
    let paid = consumed(&bootstrap, PAID, &COMMITTED_ONLY)?;
    assert_eq!(paid.len(), 50);
    let source = kafka.log_dir(1).display().to_string();
    let data = scratch()?;
    let target = data.path().join("ottla").display().to_string();
    let import = |args: &[&str]| ottla(&[&["log", "import", &source, "--data", &target], args].concat(), b"");

    let running = import(&[])?.failed()?;
    assert!(running.stderr_text().contains("Apache Kafka is running on it"), "{}", running.stderr_text());
    kafka.stop_node(1)?;
    let before = listing(Path::new(&source));
    let planned = import(&["--dry-run"])?.succeeded()?.stdout_text();
    assert!(planned.contains("orders: 2 partitions") && planned.contains("nothing was written"), "{planned}");
    assert!(!Path::new(&target).exists());
    let done = import(&[])?.succeeded()?.stdout_text();
    assert!(done.contains("topics imported into"), "{done}");
    assert_eq!(listing(Path::new(&source)), before, "the import changes nothing of Apache Kafka's");
    let again = import(&[])?.failed()?.stderr_text();
    assert!(again.contains("topic `orders` already exists"), "{again}");

    let broker = OttlaBroker::start_on(Path::new(&target), &[])?;
    let bootstrap = broker.bootstrap();
    assert_eq!(consumed(&bootstrap, TOPIC, &[])?, orders);
    assert_eq!(consumed(&bootstrap, COMPACTED, &[])?, prices);
    assert_eq!(consumed(&bootstrap, PAID, &COMMITTED_ONLY)?, paid);
    // The coordinator knows the last transaction, and the producer continues under its id.
    let transactions = tool(&bootstrap, console::TRANSACTIONS, &["list"], b"")?.succeeded()?.stdout_text();
    let cashier = transactions.lines().find(|line| line.contains(TRANSACTIONAL_ID)).unwrap_or_default();
    assert!(cashier.contains("CompleteCommit"), "{transactions}");
    pay(&bootstrap)?;
    assert_eq!(consumed(&bootstrap, PAID, &COMMITTED_ONLY)?.len(), 100);
    let described = tool(&bootstrap, console::TOPICS, &["--describe", "--topic", TOPIC], b"")?.succeeded()?;
    let described = described.stdout_text();
    assert!(
        described.contains("PartitionCount: 2") && described.contains("retention.ms=123456789"),
        "{described}"
    );
    // The group continues where it stopped.
    let offsets = groups(&bootstrap, &["--describe", "--group", GROUP])?;
    let lags: i64 = rows(&offsets).map(|row| row[5].parse::<i64>().unwrap_or(-1)).sum();
    assert_eq!((rows(&offsets).count(), lags), (2, 20), "{offsets}");
    // New records follow the old ones, also from an idempotent producer with a new id.
    tool(&bootstrap, console::PRODUCER, &["--topic", TOPIC], b"new\n")?.succeeded()?;
    assert_eq!(consumed(&bootstrap, TOPIC, &[])?.len(), orders.len() + 1);
    broker.stop()?;
    let checked = ottla(&["log", "repair", &target], b"")?.succeeded()?.stdout_text();
    assert!(checked.contains(" 0 damaged"), "{checked}");
    Ok(())
}

#[test]
fn kafka_reads_a_partition_directory_of_ottla() -> Result<(), Failure> {
    require!(Peer::Java);
    let mut kafka = kafka()?;
    let create = ["--create", "--topic", TOPIC, "--partitions", "1"];
    tool(&kafka.bootstrap(), console::TOPICS, &create, b"")?.succeeded()?;
    kafka.stop_node(1)?;
    let broker = OttlaBroker::start(&["--topic", "orders:1"])?;
    for (codec, lines) in [("none", "a\nb\n"), ("gzip", "c\n"), ("zstd", "d\ne\nf\n")] {
        let producer = ["--topic", TOPIC, "--compression-codec", codec];
        tool(&broker.bootstrap(), console::PRODUCER, &producer, lines.as_bytes())?.succeeded()?;
    }
    let written = consumed(&broker.bootstrap(), TOPIC, &[])?;
    assert_eq!(written.len(), 6);
    let ours = broker.data().join("orders-0");
    let theirs = kafka.log_dir(1).join("orders-0");
    let failed = |error| Failure::new(format!("copy {} to {}: {error}", ours.display(), theirs.display()));
    // The topic keeps the id that Apache Kafka has given to it.
    let id = fs::read(theirs.join("partition.metadata")).map_err(failed)?;
    fs::remove_dir_all(&theirs).and_then(|()| fs::create_dir(&theirs)).map_err(failed)?;
    for (path, bytes) in listing(&ours) {
        let name = Path::new(&path).file_name().unwrap_or_default().to_owned();
        fs::write(theirs.join(name), bytes).map_err(failed)?;
    }
    fs::write(theirs.join("partition.metadata"), id).map_err(failed)?;
    kafka.start_node(1)?;
    assert_eq!(consumed(&kafka.bootstrap(), TOPIC, &[])?, written);
    broker.stop()
}

const COMMITTED_ONLY: [&str; 2] = ["--isolation-level", "read_committed"];

/// Writes 50 records in transactions that are committed.
fn pay(bootstrap: &str) -> Result<(), Failure> {
    let records = ["--num-records", "50", "--record-size", "20", "--throughput", "1000"];
    let transactions = ["--transactional-id", TRANSACTIONAL_ID, "--transaction-duration-ms", "10"];
    let bootstrap = format!("bootstrap.servers={bootstrap}");
    let args = [&["--topic", PAID, "--producer-props", &bootstrap][..], &records, &transactions].concat();
    java_tool(console::PRODUCER_PERF, &args, b"")?.succeeded().map(|_| ())
}

/// Three topics, one of them compacted and one written in transactions, and a group that has not read all.
fn fill(bootstrap: &str) -> Result<(), Failure> {
    let create = |topic: &str, rest: &[&str]| {
        let create = [&["--create", "--topic", topic][..], rest].concat();
        tool(bootstrap, console::TOPICS, &create, b"")?.succeeded().map(|_| ())
    };
    create(TOPIC, &["--partitions", "2", "--config", "retention.ms=123456789"])?;
    let compacted = [
        "cleanup.policy=compact",
        "segment.bytes=1048576",
        "segment.ms=300",
        "min.cleanable.dirty.ratio=0.01",
        "max.compaction.lag.ms=300",
    ];
    create(COMPACTED, &compacted.map(|config| ["--config", config]).concat())?;
    create(PAID, &["--partitions", "1"])?;
    pay(bootstrap)?;
    let lines = |from: usize, to: usize| (from..to).map(|n| format!("{n}:value {n}\n")).collect::<String>();
    let keyed = ["--property", "parse.key=true", "--property", "key.separator=:"];
    let produce = |topic: &str, codec: &str, lines: &str| {
        let args = [&["--topic", topic, "--compression-codec", codec][..], &keyed].concat();
        tool(bootstrap, console::PRODUCER, &args, lines.as_bytes())?.succeeded().map(|_| ())
    };
    produce(TOPIC, "zstd", &lines(0, 100))?;
    let read = ["--topic", TOPIC, "--group", GROUP, "--from-beginning", "--max-messages", "100"];
    tool(bootstrap, console::CONSUMER, &[&read[..], &["--timeout-ms", "20000"]].concat(), b"")?
        .succeeded()?;
    produce(TOPIC, "lz4", &lines(100, 120))?;
    // The last batch of an idempotent producer would stay, and leave no gap.
    let produce = |topic: &str, lines: &str| {
        let plain = ["--producer-property", "enable.idempotence=false"];
        let args = [&["--topic", topic][..], &plain, &keyed].concat();
        tool(bootstrap, console::PRODUCER, &args, lines.as_bytes())?.succeeded().map(|_| ())
    };
    for round in 0..3 {
        let text: String = (0..50).map(|key| format!("{key}:round {round}\n")).collect();
        produce(COMPACTED, &text)?;
    }
    // A record starts the next segment, so that the cleaner can pass those before it.
    produce(COMPACTED, "last:1\n")
}

/// Waits until the cleaner has left a gap between two batches, or before the first.
fn wait_for_cleaner(partition: &Path) -> Result<(), Failure> {
    let deadline = Instant::now() + SOON;
    while !has_gap(&fs::read(partition.join("00000000000000000000.log")).unwrap_or_default()) {
        if Instant::now() > deadline {
            return Err(Failure::new(format!("Apache Kafka compacts nothing in {}", partition.display())));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

fn has_gap(segment: &[u8]) -> bool {
    let number = |at: usize, bytes: usize| {
        let bytes = segment.get(at..at + bytes)?;
        Some(bytes.iter().fold(0, |number: u64, byte| number << 8 | u64::from(*byte)))
    };
    let (mut at, mut next) = (0, 0);
    // A batch begins with its offset and its length; the delta of its last offset is at 23.
    while let (Some(base), Some(length), Some(delta)) = (number(at, 8), number(at + 8, 4), number(at + 23, 4))
    {
        if base > next {
            return true;
        }
        next = base + delta + 1;
        at += 12 + length as usize;
    }
    false
}

/// Keys, values, offsets and timestamps, sorted.
fn consumed(bootstrap: &str, topic: &str, rest: &[&str]) -> Result<Vec<String>, Failure> {
    let show = ["key", "offset", "partition", "timestamp"].map(|what| format!("print.{what}=true"));
    let show: Vec<&str> = show.iter().flat_map(|property| ["--property", property]).collect();
    let read = ["--topic", topic, "--from-beginning", "--timeout-ms", "8000"];
    let mut lines =
        tool(bootstrap, console::CONSUMER, &[&read[..], &show, rest].concat(), b"")?.succeeded()?.lines();
    lines.sort();
    Ok(lines)
}

/// All files below a directory, with their bytes.
fn listing(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let mut all = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            all.extend(listing(&path));
        } else {
            all.push((path.display().to_string(), fs::read(&path).unwrap_or_default()));
        }
    }
    all.sort();
    all
}

fn groups(bootstrap: &str, args: &[&str]) -> Result<String, Failure> {
    Ok(tool(bootstrap, console::GROUPS, args, b"")?.succeeded()?.stdout_text())
}

/// The rows of the topic in the description of a group: group, topic, partition, committed, end, lag.
fn rows(described: &str) -> impl Iterator<Item = Vec<&str>> {
    let rows = described.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    rows.filter(|row| row.starts_with(&[GROUP, TOPIC]) && row.len() > 5)
}

fn tool(bootstrap: &str, class: &str, args: &[&str], stdin: &[u8]) -> Result<Output, Failure> {
    java_tool(class, &[&["--bootstrap-server", bootstrap], args].concat(), stdin)
}
