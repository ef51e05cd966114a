//! Tests the core against a small model of Kafka: brokers with sessions, leaders that move, logs that grow and are
//! truncated, and lost responses. The application polls, pauses and seeks.

use std::collections::{BTreeMap, BTreeSet};

use ottla_protocol::messages::fetch::{FetchResponse, LeaderIdAndEpoch, PartitionData};

use super::action::EpochEnd;
use super::harness::*;
use super::*;
use crate::fetch::inbox::{Chunk, Item, QueueId};

/// Steps of one run of the test; `OTTLA_SOAK_STEPS` sets another number.
const STEPS: u64 = 500_000;
/// Random steps of one round, after which all faults end and everything must be read.
const ROUND_STEPS: u64 = 2_000;
/// Steps within which everything must be read when there are no more faults.
const CALM_STEPS: u64 = 20_000;

const PARTITIONS: usize = 4;
const NODES: i32 = 3;
/// The largest answer for one partition.
const ANSWER_RECORDS: i64 = 20;
/// Chunks that the application holds on to.
const HELD_MAX: usize = 4;

/// A partition's log and its leader, as the brokers have them.
#[derive(Debug)]
struct Log {
    start: i64,
    end: i64,
    leader: i32,
    epoch: i32,
    /// The offset that the application must get next; `None` while the start is being requested.
    expected: Option<i64>,
    paused: bool,
}

/// A session as its broker has it.
#[derive(Debug)]
struct BrokerSession {
    id: i32,
    epoch: i32,
    partitions: BTreeMap<i32, i64>,
}

struct Model {
    rng: fastrand::Rng,
    harness: Harness,
    logs: Vec<Log>,
    sessions: BTreeMap<i32, BrokerSession>,
    next_session: i32,
    fetches: Vec<FetchSpec>,
    others: Vec<Action>,
    held: Vec<Chunk>,
    /// `true` if brokers and connections fail, leaders move, and the application seeks and pauses.
    faults: bool,
    budget: usize,
    read: u64,
    outside: u64,
}

impl Model {
    fn new(seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let budget = [5_000, 50_000, BUDGET][rng.usize(..3)];
        let starts = [StartAt::Beginning; PARTITIONS];
        let mut harness = Harness::with(&starts, budget, |config| {
            config.fetch_wait_max = Duration::from_millis(100);
            config.max_partition_fetch_bytes = 4_000;
        });
        harness.facts.nodes = (1..=NODES).collect();
        let logs = (0..PARTITIONS)
            .map(|_| Log { start: 0, end: 0, leader: ONE, epoch: 5, expected: None, paused: false })
            .collect();
        Self {
            rng,
            harness,
            logs,
            sessions: BTreeMap::new(),
            next_session: 1,
            fetches: Vec::new(),
            others: Vec::new(),
            held: Vec::new(),
            faults: true,
            budget,
            read: 0,
            outside: 0,
        }
    }

    fn step(&mut self) {
        match self.rng.u8(..100) {
            0..15 => self.append(),
            15..45 => self.answer_fetch(),
            45..55 => self.answer_other(),
            55..75 => self.poll(),
            75..85 => self.harness.now += Duration::from_millis(self.rng.u64(..20)),
            85..88 => self.refresh_metadata(),
            88..90 => self.held.clear(),
            90..92 if self.faults => self.move_leader(),
            92..94 if self.faults => self.pause(),
            94..96 if self.faults => self.seek(),
            96 if self.faults => self.truncate_start(),
            97 if self.faults => self.lose_session(),
            98 if self.faults => self.begin_response(),
            _ => {}
        }
        self.round();
    }

    /// One round of the owner's loop, and the checks that hold after each.
    fn round(&mut self) {
        self.harness.update();
        for action in std::mem::take(&mut self.harness.sent) {
            match action {
                Action::Fetch(spec) => {
                    self.outside += u64::from(spec.outside_session);
                    self.check_budget(&spec);
                    self.fetches.push(spec);
                }
                Action::ListOffsets { .. } | Action::OffsetForLeaderEpoch(_) | Action::AwaitTopic { .. } => {
                    self.others.push(action);
                }
                _ => {}
            }
        }
        for node in 1..=NODES {
            let of = |outside: bool| {
                let is_it = |spec: &&FetchSpec| spec.node == node && spec.outside_session == outside;
                self.fetches.iter().filter(is_it).count()
            };
            assert!(of(false) <= 1 && of(true) <= 1, "a broker gets one fetch of each kind at a time");
        }
    }

    /// Only one fetch may exceed the budget, and only if nothing else can make progress.
    fn check_budget(&self, spec: &FetchSpec) {
        let budget = &self.harness.facts.inbox.budget;
        if budget.used() > self.budget {
            assert!(self.fetches.is_empty(), "{spec:?} exceeds the budget beside {:?}", self.fetches);
            assert!(budget.held() <= 1, "{spec:?} exceeds the budget while responses are held");
        }
    }

    fn append(&mut self) {
        let partition = self.rng.usize(..PARTITIONS);
        self.logs[partition].end += self.rng.i64(1..30);
    }

    fn answer_fetch(&mut self) {
        if self.fetches.is_empty() {
            return;
        }
        let spec = self.fetches.swap_remove(self.rng.usize(..self.fetches.len()));
        let lost = self.faults && self.rng.u8(..20) == 0;
        if lost && self.rng.bool() {
            return self.lose(&spec);
        }
        let Some(response) = self.respond(&spec) else {
            self.fetches.push(spec);
            return;
        };
        if lost {
            return self.lose(&spec);
        }
        self.harness.answer(&spec, Ok(response));
        self.check_positions();
    }

    fn lose(&mut self, spec: &FetchSpec) {
        self.harness.answer(spec, Err(Error::TimedOut { what: "answer to Fetch".into(), waited_ms: 1 }));
    }

    /// The broker's response, or `None` while it waits for records.
    fn respond(&mut self, spec: &FetchSpec) -> Option<FetchResponse> {
        let mut partitions: BTreeMap<i32, i64> = named(spec).into_iter().collect();
        let mut session_id = 0;
        let waits = self.rng.u8(..4) > 0;
        if !spec.outside_session {
            if let Err(error_code) = self.check_session(spec) {
                return Some(FetchResponse { error_code, ..Default::default() });
            }
            let session = &self.sessions[&spec.node];
            let mut all = session.partitions.clone();
            if spec.request.epoch == 0 {
                all.clear();
            }
            all.extend(partitions);
            for partition in forgotten(spec) {
                all.remove(&partition);
            }
            partitions = all;
            session_id = session.id;
        }
        let answers: Vec<_> = partitions
            .iter()
            .filter_map(|(partition, offset)| self.answer_partition(spec, *partition, *offset))
            .collect();
        if answers.is_empty() && waits {
            return None;
        }
        if let Some(session) = self.sessions.get_mut(&spec.node).filter(|_| !spec.outside_session) {
            session.epoch += 1;
            session.partitions = partitions;
        }
        Some(response(session_id, answers).expect("a response"))
    }

    /// Checks a request's session, as brokers do. The core must never be wrong about a session that was not lost.
    fn check_session(&mut self, spec: &FetchSpec) -> Result<(), ErrorCode> {
        let request = &spec.request;
        if request.epoch == 0 {
            assert!(request.forgotten.is_empty(), "a new session has nothing to forget");
            let id = self.next_session;
            self.next_session += 1;
            self.sessions.insert(spec.node, BrokerSession { id, epoch: 0, partitions: BTreeMap::new() });
            return Ok(());
        }
        let session = self.sessions.get(&spec.node).filter(|session| session.id == request.id);
        let session = session.ok_or(ErrorCode::FetchSessionIdNotFound)?;
        assert_eq!(session.epoch, request.epoch, "the epoch of session {}", session.id);
        Ok(())
    }

    fn answer_partition(&mut self, spec: &FetchSpec, partition: i32, offset: i64) -> Option<PartitionData> {
        let log = &self.logs[partition as usize];
        let with_bounds = |answer: PartitionData| PartitionData {
            log_start_offset: log.start,
            high_watermark: log.end,
            last_stable_offset: log.end,
            ..answer
        };
        if log.leader != spec.node {
            let current_leader = if self.rng.bool() {
                LeaderIdAndEpoch { leader_id: log.leader, leader_epoch: log.epoch }
            } else {
                LeaderIdAndEpoch::default()
            };
            let answer = failed(partition, ErrorCode::NotLeaderOrFollower);
            return Some(PartitionData { current_leader, ..answer });
        }
        if offset < log.start || offset > log.end {
            return Some(failed(partition, ErrorCode::OffsetOutOfRange));
        }
        if self.faults && self.rng.u8(..30) == 0 {
            return Some(failed(partition, ErrorCode::KafkaStorageError));
        }
        if offset == log.end {
            return None;
        }
        let count = self.rng.i64(1..=ANSWER_RECORDS).min(log.end - offset);
        // The batch may begin before the offset.
        let from = self.rng.i64(0..3).min(offset - log.start);
        let bytes = batch(offset - from, from + count, log.epoch);
        let reservation = &self.harness.reservations[&(spec.node, spec.outside_session)];
        let bytes = in_reserved(reservation, &bytes);
        Some(with_bounds(PartitionData { records: Some(bytes.into()), ..empty(partition) }))
    }

    /// A reset leaves the position open until the leader has answered.
    fn check_positions(&mut self) {
        for partition in 0..PARTITIONS {
            let cursor = self.harness.cursor(partition);
            if matches!(cursor.position, Position::Unresolved(_) | Position::Resolving(_)) {
                self.logs[partition].expected = None;
            }
            assert_ne!(cursor.position, Position::Failed, "partition {partition}");
        }
    }

    fn answer_other(&mut self) {
        if self.others.is_empty() {
            return;
        }
        let action = self.others.swap_remove(self.rng.usize(..self.others.len()));
        let fails = self.faults && self.rng.u8(..5) == 0;
        let lagging = || Error::Broker { what: "offsets".into(), code: ErrorCode::NotLeaderOrFollower };
        match action {
            Action::ListOffsets { questions, .. } => {
                let answers = questions.into_iter().map(|(cursor, start)| {
                    let log = &mut self.logs[cursor.progress.at.partition as usize];
                    let offset = if start == StartAt::End { log.end } else { log.start };
                    let is_current =
                        self.harness.table.get_mut(cursor.slot).is_some_and(|now| cursor.is(now));
                    if is_current && !fails {
                        log.expected = Some(offset);
                    }
                    (cursor, start, if fails { Err(lagging()) } else { Ok(offset) })
                });
                let answers = answers.collect();
                self.harness.answer_offsets(answers);
            }
            Action::OffsetForLeaderEpoch(question) => {
                let end = self.logs[question.cursor.progress.at.partition as usize].end;
                let result = if fails { Err(lagging()) } else { Ok(EpochEnd::At(end)) };
                self.harness.answer_epoch_end(&question, result);
            }
            Action::AwaitTopic { cursors, .. } => {
                let Harness { core, table, now, .. } = &mut self.harness;
                core.on_topic_awaited(&cursors, Ok(()), *now, table);
                self.harness.perform();
            }
            other => panic!("{other:?} is not answered here"),
        }
    }

    /// The application polls: it gets each record once, in order.
    fn poll(&mut self) {
        let Some(item) = self.harness.facts.inbox.pop(QueueId::MAIN, false) else { return };
        let Item::Chunk(chunk) = item else { panic!("{item:?}") };
        let log = &mut self.logs[chunk.progress.at.partition as usize];
        assert!(!log.paused, "{} is paused", chunk.progress.at);
        assert_eq!(Some(chunk.from), log.expected, "the next offset of {}", chunk.progress.at);
        assert!(chunk.next > chunk.from && chunk.next <= log.end, "{} of {}", chunk.next, log.end);
        self.read += (chunk.next - chunk.from) as u64;
        log.expected = Some(chunk.next);
        chunk.progress.set_position(chunk.next);
        if self.faults && self.held.len() < HELD_MAX && self.rng.bool() {
            self.held.push(chunk);
        }
    }

    fn refresh_metadata(&mut self) {
        for (partition, log) in self.logs.iter().enumerate() {
            let info = LeaderInfo { leader: log.leader, leader_epoch: log.epoch, topic_id: TOPIC_ID };
            self.harness.facts.leaders.insert(partition as i32, info);
        }
        self.harness.table.touch_all();
    }

    fn move_leader(&mut self) {
        let partition = self.rng.usize(..PARTITIONS);
        let log = &mut self.logs[partition];
        log.leader = self.rng.i32(1..=NODES);
        log.epoch += 1;
    }

    fn pause(&mut self) {
        let partition = self.rng.usize(..PARTITIONS);
        let paused = !self.logs[partition].paused;
        self.logs[partition].paused = paused;
        self.harness.pause(partition, paused);
    }

    fn seek(&mut self) {
        let partition = self.rng.usize(..PARTITIONS);
        let log = &mut self.logs[partition];
        let to = self.rng.i64(log.start..=log.end);
        let start = if self.rng.u8(..4) == 0 { StartAt::Beginning } else { StartAt::Offset(to) };
        log.expected = (start != StartAt::Beginning).then_some(to);
        self.harness.seek(partition, start);
    }

    /// Retention removes the oldest records.
    fn truncate_start(&mut self) {
        let partition = self.rng.usize(..PARTITIONS);
        let log = &mut self.logs[partition];
        log.start = self.rng.i64(log.start..=log.end);
    }

    fn lose_session(&mut self) {
        self.sessions.remove(&self.rng.i32(1..=NODES));
    }

    /// The first bytes of a response arrive.
    fn begin_response(&mut self) {
        let waiting: BTreeSet<i32> =
            self.fetches.iter().filter(|spec| !spec.outside_session).map(|spec| spec.node).collect();
        let node = self.rng.i32(1..=NODES);
        if waiting.contains(&node) {
            self.harness.facts.arriving.insert(node);
        }
    }

    /// Without faults everything is read.
    fn finish(&mut self) -> u64 {
        self.faults = false;
        self.held.clear();
        self.harness.facts.arriving.clear();
        for partition in 0..PARTITIONS {
            if std::mem::take(&mut self.logs[partition].paused) {
                self.harness.pause(partition, false);
            }
        }
        let is_read = |log: &Log| log.expected == Some(log.end);
        let mut steps = 0;
        while !self.logs.iter().all(is_read) {
            if self.rng.u8(..10) > 0 {
                self.step_without_append();
            } else {
                self.refresh_metadata();
                self.round();
            }
            steps += 1;
            assert!(steps < CALM_STEPS, "stuck: {:?} {:?} {:?}", self.logs, self.fetches, self.harness.core);
        }
        steps
    }

    fn step_without_append(&mut self) {
        let ends: Vec<i64> = self.logs.iter().map(|log| log.end).collect();
        self.step();
        for (log, end) in self.logs.iter_mut().zip(ends) {
            log.end = end;
        }
    }
}

#[test]
fn every_record_is_read_once_and_in_order_whatever_happens() {
    let wanted = std::env::var("OTTLA_SOAK_STEPS").ok().and_then(|steps| steps.parse().ok()).unwrap_or(STEPS);
    let (mut steps, mut seed) = (0, 0);
    let (mut read, mut outside, mut rewound) = (0, 0, 0);
    while steps < wanted {
        seed += 1;
        let mut model = Model::new(seed);
        for _ in 0..ROUND_STEPS {
            model.step();
        }
        steps += ROUND_STEPS + model.finish();
        read += model.read;
        outside += model.outside;
        rewound += model.harness.rewound;
    }
    assert!(read > 1_000, "{read} records");
    assert!(outside > 100, "{outside} fetches outside the session");
    assert!(rewound > 10, "{rewound} times records of paused partitions were dropped");
}
