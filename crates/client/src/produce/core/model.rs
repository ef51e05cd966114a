//! The core against a model of a cluster: random records, errors, lost responses, restarts and leader changes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::produce::LeaderIdAndEpoch;

use super::harness::{Id, Producer, SentBatch, SentRequest, broken, response};
use super::*;
use crate::error::Persisted;

/// Random runs in CI; `OTTLA_SOAK_STEPS` sets another number of steps in all.
const STEPS: u64 = 150_000;
/// Steps of a run before the cluster heals.
const STEPS_PER_RUN: u64 = 300;
const PARTITIONS: usize = 3;
const NODES: i32 = 3;
/// A broker recognises a producer's latest batches: so many.
const BATCHES_REMEMBERED: usize = 5;

/// A batch in a log, as the broker remembers it of its producer.
#[derive(Clone, Debug)]
struct Remembered {
    sequence: i32,
    count: i32,
    offset: i64,
}

/// One partition's log with the state of its producer.
#[derive(Debug, Default)]
struct Log {
    records: Vec<Id>,
    epoch: i16,
    latest: VecDeque<Remembered>,
}

impl Log {
    /// Appends a batch as Apache Kafka's ProducerStateManager does.
    fn append(&mut self, batch: &SentBatch) -> Result<i64, ErrorCode> {
        let (epoch, sequence) = (batch.header.producer_epoch, batch.header.base_sequence);
        let known = !self.latest.is_empty();
        if known && epoch < self.epoch {
            return Err(ErrorCode::InvalidProducerEpoch);
        }
        if known && epoch == self.epoch {
            if let Some(same) = self.latest.iter().find(|it| it.sequence == sequence) {
                assert_eq!(same.count, batch.header.record_count, "a retried batch keeps its records");
                return Ok(same.offset);
            }
            let next = self.latest.back().map_or(0, |last| last.sequence + last.count);
            if sequence != next {
                return Err(ErrorCode::OutOfOrderSequenceNumber);
            }
        } else if known && sequence != 0 {
            return Err(ErrorCode::OutOfOrderSequenceNumber);
        } else if known {
            self.latest.clear();
        }
        self.epoch = epoch;
        let offset = self.records.len() as i64;
        self.records.extend(&batch.ids);
        self.latest.push_back(Remembered { sequence, count: batch.header.record_count, offset });
        while self.latest.len() > BATCHES_REMEMBERED {
            self.latest.pop_front();
        }
        Ok(offset)
    }

    /// A restart leaves the latest batch of each producer (Apache Kafka's producer snapshots).
    fn restart(&mut self) {
        let excess = self.latest.len().saturating_sub(1);
        self.latest.drain(..excess);
    }
}

struct Model {
    rng: fastrand::Rng,
    producer: Producer,
    logs: Vec<Log>,
    leaders: Vec<i32>,
    next_id: Id,
    /// Records in the order in which they were produced, by partition.
    produced: Vec<Vec<Id>>,
}

impl Model {
    fn new(seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let in_flight = rng.usize(1..=5).to_string();
        let linger = rng.u8(0..3).to_string();
        let mut properties = vec![
            ("delivery.timeout.ms", "20000"),
            ("retry.backoff.ms", "20"),
            ("max.in.flight.requests.per.connection", in_flight.as_str()),
        ];
        if rng.bool() {
            properties.push(("linger.ms", linger.as_str()));
        }
        let mut producer = Producer::with_id(PARTITIONS, &properties);
        producer.rng = rng.fork();
        Self {
            rng,
            producer,
            logs: (0..PARTITIONS).map(|_| Log::default()).collect(),
            leaders: vec![1; PARTITIONS],
            next_id: 1,
            produced: vec![Vec::new(); PARTITIONS],
        }
    }

    fn step(&mut self) {
        match self.rng.u8(0..100) {
            0..30 => self.produce(),
            30..60 => self.producer.poll(),
            60..80 => self.answer_one(),
            80..84 => self.break_connection(),
            84..87 => self.move_leader(),
            87..89 => self.logs[self.rng.usize(0..PARTITIONS)].restart(),
            89..92 => {
                let partition = self.rng.usize(0..PARTITIONS);
                self.producer.world.leaders.insert(partition, self.leaders[partition]);
            }
            92..99 => self.producer.advance(self.rng.u64(1..50)),
            _ => self.producer.advance(self.rng.u64(1000..8000)),
        }
    }

    fn produce(&mut self) {
        let partition = self.rng.usize(0..PARTITIONS);
        let count = self.rng.u128(1..=3);
        let ids: Vec<Id> = (self.next_id..self.next_id + count).collect();
        self.next_id += count;
        self.produced[partition].extend(&ids);
        if count > 1 {
            self.producer.produce_full(partition, &ids, self.rng.usize(10..50_000));
        } else {
            self.producer.produce(partition, ids[0]);
        }
    }

    /// The broker of a random node answers its oldest request.
    fn answer_one(&mut self) {
        let node = self.rng.i32(1..=NODES);
        let Some(at) = self.producer.sent.iter().position(|request| request.node == node) else { return };
        let Some(request) = self.producer.sent.remove(at) else { return };
        self.answer(&request);
    }

    fn answer(&mut self, request: &SentRequest) {
        let mut codes: BTreeMap<usize, (ErrorCode, i64, LeaderIdAndEpoch)> = BTreeMap::new();
        for batch in &request.batches {
            codes.insert(batch.partition, self.append(request.node, batch));
        }
        let response = response(request, |batch| codes[&batch.partition].clone());
        self.producer.finish(request, RequestOutcome::Answered(response));
    }

    fn append(&mut self, node: i32, batch: &SentBatch) -> (ErrorCode, i64, LeaderIdAndEpoch) {
        let nobody = LeaderIdAndEpoch { leader_id: -1, leader_epoch: -1 };
        let leader = self.leaders[batch.partition];
        if node != leader {
            let hint = LeaderIdAndEpoch { leader_id: leader, leader_epoch: 1 };
            return (ErrorCode::NotLeaderOrFollower, -1, if self.rng.bool() { hint } else { nobody });
        }
        match self.rng.u8(0..20) {
            0 => return (ErrorCode::NotEnoughReplicas, -1, nobody),
            1 => return (ErrorCode::KafkaStorageError, -1, nobody),
            _ => {}
        }
        match self.logs[batch.partition].append(batch) {
            Err(code) => (code, -1, nobody),
            Ok(_) if self.rng.u8(0..20) == 0 => (ErrorCode::NotEnoughReplicasAfterAppend, -1, nobody),
            Ok(_) if self.rng.u8(0..20) == 0 => (ErrorCode::RequestTimedOut, -1, nobody),
            Ok(offset) => (ErrorCode::None, offset, nobody),
        }
    }

    /// A connection breaks: the broker has appended the first few of its requests, and no response arrives.
    fn break_connection(&mut self) {
        let node = self.rng.i32(1..=NODES);
        let (lost, kept): (VecDeque<_>, VecDeque<_>) =
            self.producer.sent.drain(..).partition(|request| request.node == node);
        self.producer.sent = kept;
        let arrived = self.rng.usize(0..=lost.len());
        for request in lost.iter().take(arrived) {
            for batch in &request.batches {
                let _ = self.append(node, batch);
            }
        }
        for request in &lost {
            self.producer.finish(request, RequestOutcome::Lost(broken()));
        }
    }

    /// A partition moves; metadata follows later.
    fn move_leader(&mut self) {
        let partition = self.rng.usize(0..PARTITIONS);
        self.leaders[partition] = self.rng.i32(1..=NODES);
    }

    /// No more faults: everything must have an outcome after a while.
    fn heal(&mut self) {
        for round in 0.. {
            assert!(round < 2000, "records without an outcome: {:?}", self.open_records());
            for partition in 0..PARTITIONS {
                self.producer.world.leaders.insert(partition, self.leaders[partition]);
            }
            self.producer.poll();
            while let Some(request) = self.producer.sent.pop_front() {
                self.answer(&request);
            }
            if self.open_records().is_empty() {
                break;
            }
            self.producer.advance(50);
        }
        assert!(self.producer.core.is_quiet());
    }

    fn open_records(&self) -> Vec<Id> {
        let all = self.produced.iter().flatten();
        all.filter(|id| !self.producer.outcomes.contains_key(id)).copied().collect()
    }

    /// Outcomes and logs agree; no log has a record twice or out of order.
    fn check(&self, seed: u64) {
        for (partition, log) in self.logs.iter().enumerate() {
            let written: BTreeSet<Id> = log.records.iter().copied().collect();
            let in_order: Vec<Id> =
                self.produced[partition].iter().copied().filter(|id| written.contains(id)).collect();
            assert_eq!(
                log.records, in_order,
                "seed {seed}: duplicates or a wrong order in partition {partition}"
            );
            for id in &self.produced[partition] {
                match &self.producer.outcomes[id] {
                    Ok(_) => {
                        assert!(
                            written.contains(id),
                            "seed {seed}: record {id} was acknowledged and is lost"
                        );
                    }
                    Err(error) if error.persisted == Persisted::NotWritten => {
                        assert!(!written.contains(id), "seed {seed}: record {id} is written: {error}");
                    }
                    Err(_) => {}
                }
            }
        }
    }
}

#[test]
fn records_are_written_once_and_in_order_whatever_fails() {
    let steps = std::env::var("OTTLA_SOAK_STEPS").ok().and_then(|text| text.parse().ok()).unwrap_or(STEPS);
    let only = std::env::var("OTTLA_SEED").ok().and_then(|text| text.parse().ok());
    for seed in only.map_or(0..steps / STEPS_PER_RUN, |seed: u64| seed..seed + 1) {
        let mut model = Model::new(seed);
        for _ in 0..STEPS_PER_RUN {
            model.step();
        }
        model.heal();
        model.check(seed);
    }
}
