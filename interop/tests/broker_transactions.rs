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
    Failure, OttlaBroker, Peer, Process, console, jars, java_client, java_tool, newest_jars, require, run,
    workspace_root,
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

/// The number of kills, and random numbers for their moments.
fn kills() -> (u32, fastrand::Rng) {
    let kills = std::env::var("OTTLA_SOAK_KILLS").map_or(KILLS, |count| count.parse().expect("a number"));
    let seed =
        std::env::var("OTTLA_SEED").map_or_else(|_| fastrand::u64(..), |seed| seed.parse().expect("a seed"));
    println!("{kills} kills, OTTLA_SEED={seed}");
    (kills, fastrand::Rng::with_seed(seed))
}

/// A program reads a topic, writes another and commits both in transactions, while the broker is killed again and again.
#[test]
fn kills_of_the_broker_leave_each_record_exactly_once() -> Result<(), Failure> {
    let (kills, mut rng) = kills();
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
        assert_each_once(&found, sent);
        println!("{sent} records through {kills} kills");
        broker.stop()
    })
}

/// Each partition of the sink has the numbers of the source's partition, in order.
fn assert_each_once(found: &BTreeMap<i32, Vec<String>>, sent: usize) {
    for (partition, values) in found {
        let expected: Vec<String> =
            (0..sent).filter(|n| (*n as i32) % PARTITIONS == *partition).map(|n| n.to_string()).collect();
        let wrong = values.iter().zip(&expected).position(|(found, expected)| found != expected);
        assert_eq!(wrong, None, "partition {partition}: the first value that is not the one sent");
        assert_eq!(values.len(), expected.len(), "partition {partition}");
    }
}

/// `TransactionalMessageCopier` of Kafka's system tests. It ends at the offset that was the partition's end when it
/// started, or when its producer fails for good: it is started again then, as the system tests do.
const COPIER: &str = "org.apache.kafka.tools.TransactionalMessageCopier";
/// Records that each start of a copier finds more.
const BATCH: usize = 400;

/// A running copier of one partition.
struct Copier {
    process: Process,
    partition: i32,
    /// Transactions of the processes before this one.
    before: usize,
}

impl Copier {
    fn start(bootstrap: &str, partition: i32, before: usize) -> Result<Self, Failure> {
        let mut java = newest_jars()?.java(128);
        let (number, id) = (partition.to_string(), format!("copier-{partition}"));
        java.args([
            COPIER,
            "--broker-list",
            bootstrap,
            "--input-topic",
            SOURCE,
            "--input-partition",
            &number,
        ]);
        java.args(["--output-topic", SINK, "--transactional-id", &id, "--consumer-group", "copiers"]);
        java.args(["--transaction-size", "5", "--transaction-timeout", "10000"]);
        if partition == 1 {
            java.arg("--enable-random-aborts");
        }
        Ok(Self { process: Process::spawn("message copier", &mut java)?, partition, before })
    }

    /// Transactions so far, the aborted ones included.
    fn transactions(&self) -> usize {
        let text = String::from_utf8_lossy(&self.process.stdout()).into_owned();
        self.before + text.lines().filter(|line| line.contains("\"stage\":\"ProcessLoop\"")).count()
    }

    /// `Some` when it has ended: `true` if it has copied everything.
    fn ended(&mut self) -> Option<bool> {
        self.process.try_exit()?;
        let text = String::from_utf8_lossy(&self.process.stdout()).into_owned();
        Some(text.lines().any(|line| line.contains("ShutdownComplete") && line.contains("\"remaining\":0}")))
    }
}

/// Two copiers and their source, to which records are added while the broker is killed.
struct Copying {
    bootstrap: String,
    copiers: Vec<Copier>,
    sent: AtomicUsize,
}

impl Copying {
    fn start(bootstrap: &str) -> Result<Self, Failure> {
        let mut copying =
            Self { bootstrap: bootstrap.to_owned(), copiers: Vec::new(), sent: AtomicUsize::new(0) };
        copying.add()?;
        for partition in 0..PARTITIONS {
            copying.copiers.push(Copier::start(bootstrap, partition, 0)?);
        }
        Ok(copying)
    }

    fn add(&self) -> Result<(), Failure> {
        in_runtime(async {
            let mut config = Config::new(&self.bootstrap);
            config.set("delivery.timeout.ms", "120000").expect("within its range");
            let producer = Producer::new(config).expect("a producer");
            for _ in 0..BATCH {
                let n = self.sent.fetch_add(1, Ordering::Relaxed);
                let record = Record::to(SOURCE).partition(n as i32 % PARTITIONS);
                producer.send_unobserved(record.value(&n.to_string())).await.expect("taken");
            }
            let flushed = producer.flush(2 * PATIENCE).await;
            flushed.map_err(|error| Failure::new(format!("the source: {error}")))
        })
    }

    /// Starts the copiers that have ended again.
    fn restart(&mut self) -> Result<(), Failure> {
        for at in 0..self.copiers.len() {
            if let Some(is_complete) = self.copiers[at].ended() {
                if is_complete {
                    self.add()?;
                }
                let (partition, before) = (self.copiers[at].partition, self.copiers[at].transactions());
                self.copiers[at] = Copier::start(&self.bootstrap, partition, before)?;
            }
        }
        Ok(())
    }

    /// Waits until there were more transactions than before.
    fn progress(&mut self) -> Result<(), Failure> {
        let transactions = |copiers: &[Copier]| copiers.iter().map(Copier::transactions).sum::<usize>();
        let (before, deadline) = (transactions(&self.copiers), Instant::now() + 2 * PATIENCE);
        while transactions(&self.copiers) <= before {
            assert!(Instant::now() < deadline, "no transaction in time");
            self.restart()?;
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Lets each copier reach the end of its source. Returns the number of records.
    fn finish(mut self) -> Result<usize, Failure> {
        for mut copier in std::mem::take(&mut self.copiers) {
            let deadline = Instant::now() + 4 * PATIENCE;
            // One that ran before the last records were added ends before them: the last start has to find nothing.
            let mut complete_runs = 0;
            while complete_runs < 2 {
                assert!(
                    Instant::now() < deadline,
                    "the copier of partition {} does not end",
                    copier.partition
                );
                if let Some(is_complete) = copier.ended() {
                    complete_runs += usize::from(is_complete);
                    copier = Copier::start(&self.bootstrap, copier.partition, 0)?;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            copier.process.stop()?;
        }
        Ok(self.sent.into_inner())
    }
}

#[test]
fn kafkas_message_copier_copies_each_record_once_through_kills() -> Result<(), Failure> {
    require!(Peer::NewestJava);
    let (kills, mut rng) = kills();
    let data = tempfile::tempdir().map_err(|error| Failure::new(format!("a data directory: {error}")))?;
    let topics = [SOURCE, SINK].map(|topic| format!("{topic}:{PARTITIONS}"));
    let first = ["--listen", "127.0.0.1:0", "--topic", &topics[0], "--topic", &topics[1]];
    let mut broker = OttlaBroker::start_on(data.path(), &first)?;
    let (bootstrap, address) = (broker.bootstrap(), broker.addresses()[0].to_string());
    let mut copying = Copying::start(&bootstrap)?;
    for _ in 0..kills {
        copying.progress()?;
        std::thread::sleep(Duration::from_millis(rng.u64(0..150)));
        broker.kill()?;
        broker = OttlaBroker::start_on(data.path(), &["--listen", &address])?;
    }
    let sent = copying.finish()?;
    assert_each_once(&in_runtime(read_sink(&bootstrap, sent)), sent);
    println!("{sent} records through {kills} kills");
    broker.stop()
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
