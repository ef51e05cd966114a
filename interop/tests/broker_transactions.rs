//! Transactions at the Ottla broker, with software that others wrote: Java's clients of three versions, Kafka's own tools, and
//! kills of the broker.

#![allow(clippy::disallowed_methods, reason = "real time: the moments of the kills are chosen")]

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ottla_client::{
    Config, Consumer, Isolation, OffsetReset, Polled, Producer, Record, StartAt, TopicPartition,
};
use ottla_interop::{
    Failure, OttlaBroker, Peer, console, jars, java_client, java_tool, require, run, workspace_root,
};

const PATIENCE: Duration = Duration::from_secs(60);
/// The timer of transaction timeouts, which is 10 seconds in production.
const CHECKS_OFTEN: [&str; 2] = ["-X", "transaction.abort.timed.out.transaction.cleanup.interval.ms=100"];

#[test]
fn java_4_1_tells_its_stories() -> Result<(), Failure> {
    require!(Peer::Java);
    java_stories(&jars()?.class_path())
}

#[test]
fn java_4_3_tells_its_stories() -> Result<(), Failure> {
    require!(Peer::Java);
    java_stories(&java_client("4.3.1")?)
}

/// The client from before KIP-890: it adds partitions itself, and keeps its epoch.
#[test]
fn java_3_6_tells_its_stories() -> Result<(), Failure> {
    require!(Peer::Java);
    java_stories(&java_client("3.6.2")?)
}

fn java_stories(class_path: &std::ffi::OsStr) -> Result<(), Failure> {
    let broker = OttlaBroker::start(&CHECKS_OFTEN)?;
    let mut java = Command::new("java");
    java.args(["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp"]).arg(class_path);
    java.arg(workspace_root().join("interop/java/Transactions.java")).arg(broker.bootstrap());
    let output = run("java", &mut java, b"", Duration::from_secs(120))?.succeeded()?;
    assert!(output.stdout_text().contains("all stories told"), "{}", output.stdout_text());
    broker.stop()
}

#[test]
fn kafkas_tools_list_describe_and_dump_transactions() -> Result<(), Failure> {
    require!(Peer::Java);
    let data = tempfile::tempdir().map_err(|error| Failure::new(format!("a data directory: {error}")))?;
    let broker = OttlaBroker::start_on(data.path(), &["--topic", "orders"])?;
    let bootstrap = broker.bootstrap();
    let tool = |args: &[&str]| {
        let base = ["--bootstrap-server", &bootstrap];
        let output = java_tool(console::TRANSACTIONS, &[&base[..], args].concat(), b"")?.succeeded()?;
        Ok::<String, Failure>(output.stdout_text().clone())
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let producer = runtime.block_on(async {
        let producer = transactional(&bootstrap, "till-1").await.expect("initialized");
        producer.begin_transaction().expect("ready");
        producer.send(Record::to("orders").value("1")).await.expect("written");
        producer
    });
    let listed = tool(&["list"])?;
    assert!(listed.lines().any(|line| line.contains("till-1") && line.contains("Ongoing")), "{listed}");
    let listed = tool(&["list", "--transactional-id-pattern", "other.*"])?;
    assert!(!listed.contains("till-1"), "{listed}");
    let described = tool(&["describe", "--transactional-id", "till-1"])?;
    assert!(described.contains("Ongoing") && described.contains("orders-0"), "{described}");
    let producers = tool(&["describe-producers", "--topic", "orders", "--partition", "0"])?;
    let fields: Vec<&str> = producers.lines().nth(1).unwrap_or_default().split_whitespace().collect();
    assert_eq!(fields.len(), 6, "{producers}");

    // The administrator ends the transaction in the partition.
    tool(&["abort", "--topic", "orders", "--partition", "0", "--start-offset", "0"])?;
    let producers = tool(&["describe-producers", "--topic", "orders", "--partition", "0"])?;
    assert!(producers.contains("None"), "no open transaction: {producers}");
    drop(producer);

    broker.stop()?;
    let dirs = fs::read_dir(data.path()).map_err(|error| Failure::new(error.to_string()))?.flatten();
    let states = dirs.filter(|dir| dir.file_name().to_string_lossy().starts_with("__transaction_state-"));
    let mut dumped = String::new();
    for dir in states {
        let file = dir.path().join("00000000000000000000.log");
        if fs::metadata(&file).is_ok_and(|found| found.len() > 0) {
            let args = ["--transaction-log-decoder", "--files", &file.to_string_lossy()];
            dumped += &java_tool(console::DUMP_LOG, &args, b"")?.succeeded()?.stdout_text();
        }
    }
    let lines: Vec<&str> =
        dumped.lines().filter(|line| line.contains("\"transactionalId\":\"till-1\"")).collect();
    assert!(lines[0].contains("\"transactionStatus\":0,\"transactionPartitions\":null"), "{dumped}");
    assert!(lines[1].contains("\"transactionStatus\":1"), "{dumped}");
    assert!(lines[1].contains("\"topic\":\"orders\",\"partitionIds\":[0]"), "{dumped}");
    assert!(lines[1].contains("\"clientTransactionVersion\":2"), "{dumped}");
    Ok(())
}

/// Kills in CI; `OTTLA_SOAK_KILLS` sets another number.
const KILLS: u32 = 20;
const SOURCE: &str = "source";
const SINK: &str = "sink";
const PARTITIONS: i32 = 2;

/// A program reads a topic, writes another and commits both in transactions, while the broker is killed again and again.
#[test]
fn kills_of_the_broker_leave_each_record_exactly_once() -> Result<(), Failure> {
    let kills = std::env::var("OTTLA_SOAK_KILLS").map_or(KILLS, |count| count.parse().expect("a number"));
    let seed =
        std::env::var("OTTLA_SEED").map_or_else(|_| fastrand::u64(..), |seed| seed.parse().expect("a seed"));
    println!("{kills} kills, OTTLA_SEED={seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let data = tempfile::tempdir().map_err(|error| Failure::new(format!("a data directory: {error}")))?;
    let topics = [SOURCE, SINK].map(|topic| format!("{topic}:{PARTITIONS}"));
    let first = ["--listen", "127.0.0.1:0", "--topic", &topics[0], "--topic", &topics[1]];
    let mut broker = OttlaBroker::start_on(data.path(), &first)?;
    let (bootstrap, address) = (broker.bootstrap(), broker.addresses()[0].to_string());
    let (filling, working) = (AtomicBool::new(true), AtomicBool::new(true));
    let (sent, moved) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        // The threads end when an assertion fails, too.
        let _stops = [Stop(&filling), Stop(&working)];
        let filler = scope.spawn(|| in_runtime(fill(&bootstrap, &filling, &sent)));
        let worker = scope.spawn(|| in_runtime(work(&bootstrap, &working, &moved)));
        for _ in 0..kills {
            // The program must make progress between two kills, or the test would be meaningless.
            let before = moved.load(Ordering::Relaxed);
            await_count(&moved, before + 1);
            std::thread::sleep(Duration::from_millis(rng.u64(0..150)));
            broker.kill()?;
            broker = OttlaBroker::start_on(data.path(), &["--listen", &address])?;
        }
        filling.store(false, Ordering::Relaxed);
        filler.join().expect("every record was acknowledged");
        let sent = sent.load(Ordering::Relaxed);
        let found = in_runtime(read_sink(&bootstrap, sent));
        working.store(false, Ordering::Relaxed);
        worker.join().expect("the program went on after each kill");
        for (partition, values) in found {
            let expected: Vec<String> =
                (0..sent).filter(|n| (*n as i32) % PARTITIONS == partition).map(|n| n.to_string()).collect();
            let wrong = values.iter().zip(&expected).position(|(found, expected)| found != expected);
            assert_eq!(wrong, None, "partition {partition}: the first value that is not the one sent");
            assert_eq!(values.len(), expected.len(), "partition {partition}");
        }
        println!("{sent} records through {kills} kills");
        broker.stop()
    })
}

/// Ends a thread's loop when it is dropped.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

fn in_runtime<T>(story: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(story)
}

fn await_count(count: &AtomicUsize, at_least: usize) {
    let deadline = Instant::now() + 2 * PATIENCE;
    while count.load(Ordering::Relaxed) < at_least {
        assert!(Instant::now() < deadline, "no progress in time");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Writes numbers to the source, in order of each partition.
async fn fill(bootstrap: &str, filling: &AtomicBool, sent: &AtomicUsize) {
    let mut config = Config::new(bootstrap);
    config.set("delivery.timeout.ms", "120000").expect("within its range");
    let producer = Producer::new(config).expect("a producer");
    while filling.load(Ordering::Relaxed) {
        for _ in 0..20 {
            let n = sent.load(Ordering::Relaxed);
            let record = Record::to(SOURCE).partition(n as i32 % PARTITIONS);
            producer.send_unobserved(record.value(&n.to_string())).await.expect("taken");
            sent.store(n + 1, Ordering::Relaxed);
        }
        producer.flush(2 * PATIENCE).await.expect("acknowledged");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Moves records until it is stopped. After an error it begins again, as a program that was restarted does.
async fn work(bootstrap: &str, working: &AtomicBool, moved: &AtomicUsize) {
    while working.load(Ordering::Relaxed) {
        if let Err(error) = session(bootstrap, working, moved).await {
            println!("begins again: {error}");
        }
    }
}

async fn session(
    bootstrap: &str,
    working: &AtomicBool,
    moved: &AtomicUsize,
) -> Result<(), Box<dyn std::error::Error>> {
    let producer = transactional(bootstrap, "mover").await?;
    let mut config = Config::new(bootstrap);
    config.group_id = Some("movers".into());
    config.enable_auto_commit = false;
    config.auto_offset_reset = OffsetReset::Earliest;
    config.isolation_level = Isolation::ReadCommitted;
    config.set("session.timeout.ms", "6000")?;
    let mut consumer = Consumer::new(config)?;
    consumer.subscribe(&[SOURCE]).await?;
    while working.load(Ordering::Relaxed) {
        let Some(Polled::Records(batch)) = consumer.poll(Duration::from_millis(200)).await? else { continue };
        producer.begin_transaction()?;
        for record in &batch {
            let value = record?.value.unwrap_or_default();
            let record = Record::to(SINK).partition(batch.at().partition);
            producer.send_unobserved(record.value(value)).await?;
        }
        let offsets = BTreeMap::from([(batch.at().clone(), batch.next_offset())]);
        let member = consumer.group_metadata().await?;
        producer.send_offsets_to_transaction(&offsets, &member, PATIENCE).await?;
        producer.commit_transaction(PATIENCE).await?;
        moved.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

async fn transactional(bootstrap: &str, id: &str) -> Result<Producer, Box<dyn std::error::Error>> {
    let mut config = Config::new(bootstrap);
    config.set("transactional.id", id)?;
    let producer = Producer::new(config)?;
    producer.init_transactions(PATIENCE).await?;
    Ok(producer)
}

/// The committed values of the sink, by partition, until there are `count`; then what else comes within a second.
async fn read_sink(bootstrap: &str, count: usize) -> BTreeMap<i32, Vec<String>> {
    let mut config = Config::new(bootstrap);
    config.isolation_level = Isolation::ReadCommitted;
    let mut consumer = Consumer::new(config).expect("a consumer");
    let all: Vec<_> =
        (0..PARTITIONS).map(|index| (TopicPartition::new(SINK, index), StartAt::Beginning)).collect();
    consumer.assign(&all).await.expect("assigned");
    let mut values: BTreeMap<i32, Vec<String>> = BTreeMap::new();
    let mut deadline = Instant::now() + 2 * PATIENCE;
    let mut is_complete = false;
    while Instant::now() < deadline {
        if let Some(Polled::Records(batch)) = consumer.poll(Duration::from_millis(100)).await.expect("a poll")
        {
            let found = values.entry(batch.at().partition).or_default();
            found.extend(batch.iter().map(|record| {
                let value = record.expect("a sound record").value.expect("a value");
                String::from_utf8_lossy(value).into_owned()
            }));
        }
        if !is_complete && values.values().map(Vec::len).sum::<usize>() >= count {
            is_complete = true;
            deadline = Instant::now() + Duration::from_secs(1);
        }
    }
    values
}
