//! Exactly-once processors against Apache Kafka 4.1: members join, leave and are killed.

#![allow(clippy::disallowed_methods, reason = "a test is a shell: it may use threads and processes")]

use std::collections::BTreeMap;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ottla_client::{
    Admin, Client, Config, NewTopic, OffsetAt, OwnedRecord, Polled, Producer, Record, StartAt, TopicPartition,
};
use ottla_interop::{Failure, KafkaCluster, Peer, require};
use ottla_parallel::{Mode, Order, Processor};

/// Timeout of each wait for records and commits.
const PATIENCE: Duration = Duration::from_secs(120);

const PARTITIONS: i32 = 4;
const KEYS: usize = 12;

/// Total number of kills; `OTTLA_SOAK_PROCESSOR_KILLS` overrides it.
const KILLS: usize = 8;

/// Environment variables of a child process: servers, mode, topic and transactional id.
const MEMBER: &str = "OTTLA_TEST_EXACTLY_ONCE";

fn config(servers: &str, group: &str) -> Config {
    let mut config = Config::new(servers);
    let quick = [
        ("group.id", group),
        ("auto.offset.reset", "earliest"),
        ("heartbeat.interval.ms", "500"),
        ("session.timeout.ms", "6000"),
        ("partition.assignment.strategy", "cooperative-sticky"),
        ("transaction.timeout.ms", "10000"),
    ];
    config.set_all(quick).expect("known properties");
    config
}

fn outputs_of(topic: &str) -> String {
    format!("{topic}-done")
}

fn start(servers: &str, mode: Mode, topic: &str, id: &str) -> Processor {
    let builder = Processor::builder(config(servers, topic), mode)
        .topics([topic])
        .order(Order::Key)
        .batch(10)
        .batch_wait(Duration::from_millis(5))
        .transaction(Duration::from_millis(30))
        .exactly_once(id);
    let outputs = outputs_of(topic);
    let pause = || std::thread::park_timeout(Duration::from_micros(200));
    match mode {
        Mode::Sync | Mode::MultiAsync => builder.start_each(move |message| {
            pause();
            let (key, value) = (message.key().unwrap_or_default(), message.value().unwrap_or_default());
            message.send(&Record::to(&outputs).key(key).value(value));
            Ok(())
        }),
        Mode::Batch | Mode::MultiBatch => builder.start_batches(move |messages| {
            for record in messages.iter() {
                pause();
                let (key, value) = (record.key().unwrap_or_default(), record.value().unwrap_or_default());
                messages.send(&Record::to(&outputs).key(key).value(value));
            }
            Ok(())
        }),
    }
    .expect("a processor")
}

/// Runs a member if the test below started this program as one; otherwise does nothing.
#[test]
fn member_process() {
    let Ok(args) = std::env::var(MEMBER) else { return };
    let args: Vec<&str> = args.split(' ').collect();
    let mode = *Mode::ALL.iter().find(|mode| mode.name() == args[1]).expect("a mode");
    let _already = tracing_subscriber::fmt().with_env_filter("ottla_parallel=info").try_init();
    let processor = start(args[0], mode, args[2], args[3]);
    // Until the parent closes the pipe.
    let _ = std::io::stdin().read(&mut [0]);
    processor.stop();
    processor.join().expect("stopped");
}

struct Member(Child);

impl Member {
    fn start(servers: &str, mode: Mode, topic: &str, id: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command
            .args(["--exact", "member_process", "--nocapture"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null());
        command.env(MEMBER, format!("{servers} {} {topic} {id}", mode.name()));
        Self(command.spawn().expect("a member"))
    }

    fn kill(mut self) {
        self.0.kill().expect("killed");
        self.0.wait().expect("dead");
    }

    fn stop(mut self) {
        drop(self.0.stdin.take());
        assert!(self.0.wait().expect("ended").success());
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Record `n` has the key `n % KEYS` and the value `n / KEYS`.
fn produce(servers: &str, topic: &str, from: usize, count: usize) {
    let producer = Producer::new(Config::new(servers)).expect("a producer");
    for number in from..from + count {
        let (key, value) = (format!("k{}", number % KEYS), (number / KEYS).to_string());
        let _unawaited = producer.enqueue_blocking(Record::to(topic).key(&key).value(&value)).expect("taken");
    }
    producer.flush_blocking(PATIENCE).expect("written");
}

struct Look {
    runtime: tokio::runtime::Runtime,
    client: Client,
    topic: String,
}

impl Look {
    fn committed(&self) -> i64 {
        let partitions: Vec<_> =
            (0..PARTITIONS).map(|index| TopicPartition::new(&self.topic, index)).collect();
        let consumer = self.client.consumer();
        self.runtime.block_on(consumer.committed(&partitions)).expect("an answer").values().sum()
    }

    fn await_committed(&self, count: usize) {
        let deadline = Instant::now() + PATIENCE;
        while self.committed() < count as i64 {
            assert!(
                Instant::now() < deadline,
                "{} of {count} committed after {PATIENCE:?}",
                self.committed()
            );
            std::thread::park_timeout(Duration::from_millis(20));
        }
    }

    /// The records of a topic with one partition that read_committed consumers see.
    fn read_committed(&self, topic: &str) -> Vec<OwnedRecord> {
        let at = TopicPartition::new(topic, 0);
        let mut consumer = self.client.consumer();
        let mut records = Vec::new();
        self.runtime.block_on(consumer.assign(&[(at.clone(), StartAt::Beginning)])).expect("assigned");
        // The high watermark: the last stable offset does not move while a killed member's transaction is open.
        let mut all = Config::clone(self.client.config());
        all.set("isolation.level", "read_uncommitted").expect("a property");
        let all = Admin::new(all).expect("a client");
        let end = self.runtime.block_on(all.list_offsets(&[(at.clone(), OffsetAt::Latest)]));
        let end = end.expect("an answer")[&at];
        let deadline = Instant::now() + PATIENCE;
        // A transaction marker follows the last record.
        while consumer.position(&at).is_none_or(|position| position < end - 1) {
            assert!(
                Instant::now() < deadline,
                "{} records up to {:?} of {end}",
                records.len(),
                consumer.position(&at)
            );
            if let Some(Polled::Records(batch)) =
                consumer.poll_blocking(Duration::from_millis(50)).expect("polled")
            {
                records.extend(batch.to_owned_records().expect("sound"));
            }
        }
        records
    }
}

#[test]
fn every_record_is_handled_exactly_once_when_members_are_killed() -> Result<(), Failure> {
    require!(Peer::Java);
    let kills = std::env::var("OTTLA_SOAK_PROCESSOR_KILLS").ok().and_then(|kills| kills.parse().ok());
    let kills: usize = kills.unwrap_or(KILLS);
    let cluster = KafkaCluster::shared()?;
    let servers = cluster.bootstrap();
    let mut rng = fastrand::Rng::with_seed(4);
    for (index, mode) in Mode::ALL.into_iter().enumerate() {
        let kills = (kills + index) / Mode::ALL.len();
        let topic = format!("exactly-once-{}", mode.name());
        let mut reading = config(&servers, &topic);
        reading.set("isolation.level", "read_committed").expect("a property");
        let look = Look {
            runtime: tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime"),
            client: Client::new(reading).expect("a client"),
            topic: topic.clone(),
        };
        let new =
            [NewTopic::new(&topic).partitions(PARTITIONS), NewTopic::new(outputs_of(&topic)).partitions(1)];
        look.runtime.block_on(look.client.admin().create_topics(&new)).expect("created");
        let mut born = 0;
        let mut bear = || {
            born += 1;
            Member::start(&servers, mode, &topic, &format!("{topic}-{born}"))
        };
        let mut members: Vec<_> = (0..3).map(|_| bear()).collect();
        let mut written = 0;
        for _ in 0..kills {
            let before = look.committed();
            produce(&servers, &topic, written, 600);
            written += 600;
            look.await_committed((before as usize + 100).min(written));
            members.swap_remove(rng.usize(..members.len())).kill();
            members.push(bear());
        }
        look.await_committed(written);
        members.into_iter().for_each(Member::stop);
        let outputs = look.read_committed(&outputs_of(&topic));
        assert_eq!(outputs.len(), written, "{mode:?}: each exactly once");
        let mut next: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
        for record in outputs {
            let (key, value) = (record.key.expect("a key").to_vec(), record.value.expect("a value"));
            let next = next.entry(key).or_default();
            assert_eq!(String::from_utf8_lossy(&value).parse(), Ok(*next), "each key in order");
            *next += 1;
        }
        println!("{mode:?}: {kills} kills, {written} records");
    }
    Ok(())
}
