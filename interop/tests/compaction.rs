//! A compacted topic as clients read it: ours, Java's and librdkafka's, and Kafka's own tool on the files.

#![allow(clippy::disallowed_methods, reason = "a test is a shell")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ottla_client::{
    Admin, Config, Consumer, NewTopic, OffsetAt, Polled, Producer, Record, StartAt, TopicPartition,
};
use ottla_interop::{Failure, OttlaBroker, Peer, console, java_tool, kcat, require};

const PATIENCE: Duration = Duration::from_secs(60);
const TOPIC: &str = "profiles";
const RECORDS: usize = 4000;
const KEYS: usize = 50;

/// Offset, key and value of a record; a tombstone has no value.
type Read = (i64, String, Option<String>);

/// A broker whose cleaner looks all the time.
fn start() -> Result<OttlaBroker, Failure> {
    OttlaBroker::start(&["-X", "log.cleaner.backoff.ms=50"])
}

/// Creates the topic, produces updates and deletions of keys, and waits for the cleaner. Returns the newest values.
async fn produce(broker: &OttlaBroker) -> BTreeMap<String, String> {
    let admin = Admin::new(Config::new(broker.bootstrap())).expect("an admin");
    let topic = NewTopic::new(TOPIC)
        .partitions(1)
        .config("cleanup.policy", "compact")
        .config("segment.bytes", "20000")
        .config("min.cleanable.dirty.ratio", "0.01");
    admin.create_topics(&[topic]).await.expect("created");
    let mut newest = BTreeMap::new();
    let rounds = ["none", "gzip", "snappy", "lz4", "zstd"];
    for (round, codec) in rounds.into_iter().enumerate() {
        let mut config = Config::new(broker.bootstrap());
        config.set("compression.type", codec).expect("a codec");
        config.set("batch.size", "4000").expect("a size");
        let producer = Producer::new(config).expect("a producer");
        for n in 0..RECORDS / rounds.len() {
            let (key, value) =
                (format!("key {}", n % KEYS), format!("{codec} {n} {}", "text ".repeat(n % 20)));
            if (n + round) % 7 == 6 {
                newest.remove(&key);
                producer.send_unobserved(Record::to(TOPIC).key(&key)).await.expect("taken");
            } else {
                producer.send_unobserved(Record::to(TOPIC).key(&key).value(&value)).await.expect("taken");
                newest.insert(key, value);
            }
        }
        producer.flush(PATIENCE).await.expect("flushed");
    }
    await_cleaner(broker.data()).await;
    newest
}

/// Waits until the cleaner has nothing to do: its point is where the active segment begins.
async fn await_cleaner(data: &Path) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let text = fs::read_to_string(data.join("cleaner-offset-checkpoint")).unwrap_or_default();
        let point =
            text.lines().find_map(|line| line.strip_prefix(&format!("{TOPIC} 0 ")).map(str::to_owned));
        let active = segments(data).pop().expect("a segment");
        let begin = active.file_stem().and_then(|stem| stem.to_str()?.parse::<i64>().ok());
        if point.and_then(|point| point.parse().ok()) == begin && begin > Some(0) {
            return;
        }
        assert!(Instant::now() < deadline, "the cleaner is not done: {text}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn segments(data: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(data.join(format!("{TOPIC}-0"))).expect("a directory");
    let mut logs: Vec<PathBuf> = files.map(|entry| entry.expect("an entry").path()).collect();
    logs.retain(|path| path.extension().is_some_and(|extension| extension == "log"));
    logs.sort();
    logs
}

/// All records, read by our client.
async fn read(broker: &OttlaBroker) -> Vec<Read> {
    let config = Config::new(broker.bootstrap());
    let at = TopicPartition::new(TOPIC, 0);
    let admin = Admin::new(config.clone()).expect("an admin");
    let ends = admin.list_offsets(&[(at.clone(), OffsetAt::Latest)]).await.expect("the end");
    let mut consumer = Consumer::new(config).expect("a consumer");
    consumer.assign(&[(at.clone(), StartAt::Beginning)]).await.expect("assigned");
    let mut all = Vec::new();
    let reading = async {
        while consumer.positions().get(&at).is_none_or(|position| *position < ends[&at]) {
            let polled = consumer.poll(Duration::from_millis(100)).await.expect("a poll without error");
            let Some(Polled::Records(batch)) = polled else { continue };
            all.extend(batch.iter().map(|record| {
                let record = record.expect("a sound record");
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                (record.offset, text(record.key.expect("a key")), record.value.map(text))
            }));
        }
    };
    tokio::time::timeout(PATIENCE, reading).await.expect("read in time");
    all
}

fn newest_of(records: &[Read]) -> BTreeMap<String, String> {
    let mut newest = BTreeMap::new();
    for (_, key, value) in records {
        match value {
            Some(value) => drop(newest.insert(key.clone(), value.clone())),
            None => drop(newest.remove(key)),
        }
    }
    newest
}

fn compacted() -> Result<(OttlaBroker, Vec<Read>), Failure> {
    let broker = start()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let records = runtime.block_on(async {
        let newest = produce(&broker).await;
        let records = read(&broker).await;
        assert_eq!(newest_of(&records), newest);
        records
    });
    assert!(records.len() < RECORDS / 4, "{} of {RECORDS} records are left", records.len());
    Ok((broker, records))
}

#[test]
fn our_consumer_reads_the_newest_records_before_and_after_a_restart() -> Result<(), Failure> {
    let (broker, records) = compacted()?;
    let copy = tempfile::tempdir().expect("a directory");
    let data = copy.path().join("data");
    let source = broker.data().to_owned();
    // The broker that is killed has no time to close its logs.
    let kept = fs::rename(&source, &data).is_ok();
    assert!(kept, "the data directory can be moved");
    broker.kill()?;
    let broker = OttlaBroker::start_on(&data, &["-X", "log.cleaner.enable=false"])?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    assert_eq!(runtime.block_on(read(&broker)), records);
    broker.stop()
}

#[test]
fn a_java_consumer_reads_the_same_records() -> Result<(), Failure> {
    require!(Peer::Java);
    let (broker, records) = compacted()?;
    let (bootstrap, count) = (broker.bootstrap(), records.len().to_string());
    let args = [
        &["--bootstrap-server", &bootstrap, "--topic", TOPIC, "--from-beginning"][..],
        &["--max-messages", &count, "--timeout-ms", "20000"],
        &["--property", "print.offset=true", "--property", "print.key=true"],
    ];
    let lines = java_tool(console::CONSUMER, &args.concat(), b"")?.succeeded()?.lines();
    let expected: Vec<String> = records
        .iter()
        .map(|(offset, key, value)| format!("Offset:{offset}\t{key}\t{}", value.as_deref().unwrap_or("null")))
        .collect();
    // The text of some values ends with a space, which the harness may have removed.
    let trimmed =
        |lines: Vec<String>| lines.iter().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>();
    assert_eq!(trimmed(lines), trimmed(expected));

    // Kafka's own tool reads the files.
    let files: Vec<String> = segments(broker.data()).iter().map(|path| path.display().to_string()).collect();
    let args = ["--deep-iteration", "--files", &files.join(",")];
    let dump = java_tool(console::DUMP_LOG, &args, b"")?.succeeded()?.stdout_text();
    assert!(dump.contains("isvalid: true") && !dump.contains("isvalid: false"), "{dump}");
    assert!(dump.contains("deleteHorizonMs: OptionalLong[") && dump.contains(" count: 0 "), "{dump}");

    // Java's producer is refused without a key.
    let producer = ["--bootstrap-server", &bootstrap, "--topic", TOPIC, "--sync"];
    let refused = java_tool(console::PRODUCER, &producer, b"no key\n")?;
    let text = format!("{}{}", refused.stdout_text(), refused.stderr_text());
    assert!(text.contains("InvalidRecordException") && text.contains("has no key"), "{text}");
    broker.stop()
}

#[test]
fn kcat_reads_the_same_records() -> Result<(), Failure> {
    require!(Peer::Kcat);
    let (broker, records) = compacted()?;
    let args =
        ["-b", &broker.bootstrap(), "-C", "-t", TOPIC, "-o", "beginning", "-e", "-q", "-f", "%o|%k|%S\n"];
    let lines = kcat(&args, b"")?.succeeded()?.lines();
    let length = |value: &Option<String>| value.as_ref().map_or(-1, |value| value.len() as i64);
    let expected: Vec<String> =
        records.iter().map(|(offset, key, value)| format!("{offset}|{key}|{}", length(value))).collect();
    assert_eq!(lines, expected);
    broker.stop()
}
