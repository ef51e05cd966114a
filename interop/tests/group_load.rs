//! Groups in every protocol and with each assignor, under load and with faults. Members leave, die and stall;
//! connections are cut at random bytes. A broker of Apache Kafka stops and restarts, which moves leaders and
//! coordinators. The load is transactions, some of them aborted, and members read committed records.
//!
//! Every committed record is handled by some member, and no aborted record. Each member receives a partition in order
//! and without gaps. No partition has two owners in one generation. Every long wait has a reported reason.

#![allow(clippy::disallowed_methods, reason = "a test is a shell: it may use threads and real time")]

#[path = "group_load/book.rs"]
mod book;
#[path = "group_load/load.rs"]
mod load;
#[path = "group_load/member.rs"]
mod member;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use book::Book;
use load::Load;
use member::{Does, Member, lock};
use ottla_client::{Admin, Client, Config, NewTopic};
use ottla_interop::{Failure, KafkaCluster, KafkaOptions, Peer, require};

use crate::cutting::Cutting;

/// Members of each group in CI, with all groups at once; `cargo xtask soak groups` sets more and runs the groups one
/// after another.
const MEMBERS: u64 = 4;
const SECONDS_PER_MEMBER: u64 = 6;
const PARTITIONS_PER_MEMBER: usize = 3;

/// Time limit for the handling of all committed records.
const PATIENCE: Duration = Duration::from_secs(120);

/// Maximum number of bytes of a connection before it is cut.
const CUT_BYTES_MAX: u64 = 128 << 10;
/// Longer than `max.poll.interval.ms`.
const STALL: Duration = Duration::from_secs(6);

/// Session timeouts of seconds, two replicas of every partition, and leaders that return to their preferred broker.
const CLUSTER: &[(&str, &str)] = &[
    ("group.min.session.timeout.ms", "500"),
    ("group.consumer.min.session.timeout.ms", "1000"),
    ("group.consumer.session.timeout.ms", "4000"),
    ("group.consumer.min.heartbeat.interval.ms", "100"),
    ("group.consumer.heartbeat.interval.ms", "300"),
    ("default.replication.factor", "2"),
    ("offsets.topic.replication.factor", "2"),
    ("transaction.state.log.replication.factor", "2"),
    // Time after which a killed node has lost its leaderships.
    ("broker.session.timeout.ms", "3000"),
    ("broker.heartbeat.interval.ms", "500"),
    ("auto.leader.rebalance.enable", "true"),
    ("leader.imbalance.check.interval.seconds", "2"),
];

const PROTOCOLS: &[(&str, &[(&str, &str)])] = &[
    ("range", &[("partition.assignment.strategy", "range")]),
    ("roundrobin", &[("partition.assignment.strategy", "roundrobin")]),
    ("sticky", &[("partition.assignment.strategy", "sticky")]),
    ("cooperative-sticky", &[("partition.assignment.strategy", "cooperative-sticky")]),
    ("kip-848", &[("group.protocol", "consumer")]),
];

#[test]
fn groups_of_kafka_lose_nothing_whatever_happens_to_them() -> Result<(), Failure> {
    require!(Peer::Java);
    let members = std::env::var("OTTLA_SOAK_GROUP_MEMBERS").ok().and_then(|members| members.parse().ok());
    let options = KafkaOptions { properties: CLUSTER, ..KafkaOptions::default() };
    let mut kafka = KafkaCluster::start_with(2, &options)?;
    let Some(members) = members else { return story(&mut kafka, "all", PROTOCOLS, MEMBERS) };
    PROTOCOLS.iter().try_for_each(|protocol| story(&mut kafka, protocol.0, &[*protocol], members))
}

struct Group {
    book: Arc<Mutex<Book>>,
    members: Vec<Member>,
    /// Members that do not poll, with the end of their stall.
    stalled: Vec<(Member, Instant)>,
    gone: Vec<Member>,
    joined: usize,
    properties: &'static [(&'static str, &'static str)],
}

struct Stage<'a> {
    bootstrap: &'a str,
    topic: &'a str,
    connector: Arc<Cutting>,
    random: fastrand::Rng,
}

fn story(
    kafka: &mut KafkaCluster,
    topic: &str,
    protocols: &[(&'static str, &'static [(&'static str, &'static str)])],
    members: u64,
) -> Result<(), Failure> {
    let bootstrap = kafka.bootstrap();
    let failed = |error: ottla_client::Error| Failure::new(error.to_string());
    let admin = Admin::new(Config::new(&*bootstrap)).map_err(failed)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let partitions = members as usize * PARTITIONS_PER_MEMBER;
    let new = NewTopic::new(topic).partitions(partitions as i32).replication(2);
    runtime.block_on(admin.create_topics(&[new])).map_err(failed)?;
    let seed = 31;
    let connector = Arc::new(Cutting::new(seed, CUT_BYTES_MAX));
    let random = fastrand::Rng::with_seed(seed);
    let mut stage = Stage { bootstrap: &bootstrap, topic, connector, random };
    let mut groups: Vec<Group> = protocols.iter().map(|protocol| Group::new(protocol, partitions)).collect();

    let load = Load::start(&bootstrap, topic, partitions, seed);
    let time = Duration::from_secs(members * SECONDS_PER_MEMBER);
    let (began, mut step) = (Instant::now(), 0);
    // In steps of a second: first all members join, then each group gets an event, while a node is down.
    while began.elapsed() < time {
        let second = Duration::from_secs(step);
        std::thread::sleep((began + second).saturating_duration_since(Instant::now()));
        let passed = second.as_secs_f64() / time.as_secs_f64();
        for (at, group) in groups.iter_mut().enumerate() {
            if (group.members.len() + group.stalled.len()) < members as usize {
                group.join(&mut stage);
            } else if (step as usize + at).is_multiple_of(3) {
                group.suffers(&mut stage);
            }
            group.wakes();
        }
        let runs = kafka.process_id(2).is_some();
        if runs && (0.4..0.6).contains(&passed) {
            println!("node 2 is killed");
            kafka.kill_node(2)?;
        } else if !runs && passed >= 0.6 {
            kafka.start_node(2)?;
            println!("node 2 is back");
        }
        step += 1;
    }
    let written = load.stop();
    let count: usize = written.committed.iter().map(Vec::len).sum();
    for group in &mut groups {
        group.settle(count);
    }
    let (all, aborted, cuts) = (written.transactions, written.aborted, stage.connector.cuts());
    println!("{topic}: {count} records in {all} transactions, {aborted} of them aborted, {cuts} cuts");
    assert!(aborted > 0 && cuts > 0);
    let mut broken = Vec::new();
    for group in groups {
        let joined = group.joined;
        let book = group.end();
        let mut book = lock(&book);
        let figures = book.check(&written);
        println!("{}: {joined} members in all, {figures}", book.name);
        let name = book.name.clone();
        broken.extend(book.broken.drain(..).map(|what| format!("{name}: {what}")));
    }
    assert!(
        broken.is_empty(),
        "seed {seed}: {} in all: {:#?}",
        broken.len(),
        &broken[..broken.len().min(20)]
    );
    Ok(())
}

impl Group {
    fn new((name, properties): &(&str, &'static [(&'static str, &'static str)]), partitions: usize) -> Self {
        let book = Arc::new(Mutex::new(Book::new(name, partitions)));
        let (members, stalled, gone) = Default::default();
        Self { book, members, stalled, gone, joined: 0, properties }
    }

    fn join(&mut self, stage: &mut Stage<'_>) {
        let name = lock(&self.book).name.clone();
        let group = format!("{}-{name}", stage.topic);
        let mut config = Config::new(stage.bootstrap);
        let common = [
            ("group.id", &*group),
            ("auto.offset.reset", "earliest"),
            ("isolation.level", "read_committed"),
            ("max.poll.interval.ms", "4000"),
            ("auto.commit.interval.ms", "500"),
            ("metadata.max.age.ms", "2000"),
            // Larger fetches than a single transaction, but below the size at which a connection is cut.
            ("fetch.min.bytes", "16000"),
            ("fetch.max.bytes", "32000"),
            ("message.max.bytes", "32000"),
            ("fetch.wait.max.ms", "100"),
            ("reconnect.backoff.ms", "10"),
            ("reconnect.backoff.max.ms", "300"),
        ];
        config.set_all(common).expect("known properties");
        config.set_all(self.properties.iter().copied()).expect("known properties");
        if !self.properties.contains(&("group.protocol", "consumer")) {
            config.set("session.timeout.ms", "4000").expect("known");
            config.set("heartbeat.interval.ms", "300").expect("known");
        }
        config.stall_after = Duration::from_secs(2);
        let client = Client::with_connector(config, stage.connector.clone()).expect("a client");
        self.members.push(Member::join(self.joined, client, stage.topic, &self.book));
        self.joined += 1;
    }

    /// Applies an event to one of the members.
    fn suffers(&mut self, stage: &mut Stage<'_>) {
        if self.members.is_empty() {
            return;
        }
        let member = self.members.swap_remove(stage.random.usize(..self.members.len()));
        let does = [Does::Leaves, Does::Dies, Does::Stalls][stage.random.usize(..3)];
        member.tell(does);
        if does == Does::Stalls {
            self.stalled.push((member, Instant::now() + STALL));
        } else {
            self.gone.push(member);
        }
    }

    /// Resumes polling for members whose stall is over.
    fn wakes(&mut self) {
        let now = Instant::now();
        for (member, _) in self.stalled.extract_if(.., |(_, until)| *until <= now) {
            member.tell(Does::Polls);
            self.members.push(member);
        }
    }

    /// Waits until every committed record is handled.
    fn settle(&mut self, count: usize) {
        let deadline = Instant::now() + PATIENCE;
        while lock(&self.book).count() < count && Instant::now() < deadline {
            self.wakes();
            std::thread::sleep(Duration::from_millis(50));
        }
        let book = lock(&self.book);
        if book.count() < count {
            println!("{}: the last events of its members: {:#?}", book.name, book.last_notes(40));
        }
    }

    /// All members leave.
    fn end(self) -> Arc<Mutex<Book>> {
        let stalled = self.stalled.into_iter().map(|(member, _)| member);
        let there: Vec<Member> = self.members.into_iter().chain(stalled).collect();
        for member in &there {
            member.tell(Does::Leaves);
        }
        there.into_iter().chain(self.gone).for_each(Member::gone);
        self.book
    }
}
