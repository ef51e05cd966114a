//! Round trips of records: written, acknowledged, read back.

use std::time::Duration;

use ottla_protocol::messages::create_topics::{CreatableTopic, CreateTopicsRequest};
use ottla_protocol::messages::delete_topics::{DeleteTopicState, DeleteTopicsRequest};
use ottla_protocol::messages::fetch::{FetchPartition, FetchRequest, FetchTopic};
use ottla_protocol::messages::list_offsets::{ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic};
use ottla_protocol::messages::metadata::{MetadataRequest, MetadataRequestTopic};
use ottla_protocol::messages::produce::{PartitionProduceData, ProduceRequest, TopicProduceData};
use ottla_protocol::{ApiKey, ErrorCode};
use ottla_wire::{BatchBuilder, Records, Seal};

use super::brokers::Cluster;
use super::network::Reachable;
use super::pace::Pace;
use super::report::{Report, Status, Step, millis};
use super::wire::{Stopwatch, Terms, Trouble, Wire};
use super::{Args, Seen};
use crate::failure::Failure;
use crate::time::now_ms;

/// Records that are written, one at a time.
const WRITES: usize = 10;

/// The last versions of these requests that name topics by name.
const PRODUCE_BY_NAME: i16 = 12;
const FETCH_BY_NAME: i16 = 12;

/// An acknowledgement that takes so much longer than a small request is worth a word.
const SLOW: Duration = Duration::from_millis(20);

/// How long a new topic may take to have a leader.
const LEADER_WITHIN: Duration = Duration::from_secs(10);

const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(50);

/// How much of a partition is read: one batch comes however large it is.
const FETCH_BYTES: i32 = 1 << 16;

/// Something went wrong: on the way, or in the broker's answer.
enum Wrong {
    Wire(Trouble),
    Code(ErrorCode, String),
    NoLeader(i32),
}

impl From<Trouble> for Wrong {
    fn from(trouble: Trouble) -> Self {
        Self::Wire(trouble)
    }
}

impl Wrong {
    fn code(code: ErrorCode, detail: Option<String>) -> Result<(), Self> {
        match code {
            ErrorCode::None => Ok(()),
            code => Err(Self::Code(code, detail.unwrap_or_default())),
        }
    }

    fn onto(self, step: Step) -> Step {
        let step = step.status(Status::Fail);
        match self {
            Self::Wire(trouble) => step.fact(trouble.to_string()),
            Self::NoLeader(node) if node < 0 => step.fact("partition 0 has no leader"),
            Self::NoLeader(node) => step
                .fact(format!("node {node} leads partition 0 and cannot be reached where it says"))
                .advice("see the step `advertised` above"),
            Self::Code(code, detail) => {
                let fact =
                    format!("{} {}", code.name(), if detail.is_empty() { code.message() } else { &detail });
                step.fact(fact).advice(advice(code))
            }
        }
    }
}

fn advice(code: ErrorCode) -> &'static str {
    match code {
        ErrorCode::TopicAuthorizationFailed => {
            "this user may not: the cluster's administrator adds an ACL for the topic (kafka-acls --add --allow-principal ... --operation Read or Write)"
        }
        ErrorCode::ClusterAuthorizationFailed => {
            "this user may not create topics: name one that exists with --topic"
        }
        ErrorCode::UnknownTopicOrPartition => "there is no such topic: create it, or name another one",
        ErrorCode::NotEnoughReplicas | ErrorCode::NotEnoughReplicasAfterAppend => {
            "fewer copies than min.insync.replicas are in sync: take brokers up again"
        }
        ErrorCode::NotLeaderOrFollower | ErrorCode::LeaderNotAvailable => {
            "leaders are moving: clients try again by themselves; if it stays, look at the controller"
        }
        ErrorCode::PolicyViolation | ErrorCode::InvalidReplicationFactor => {
            "the broker has rules for new topics: name one that exists with --topic"
        }
        _ => "look at the broker's log",
    }
}

pub(super) fn examine(
    args: &Args,
    cluster: &Cluster,
    terms: &Terms,
    report: &mut Report,
    seen: &mut Seen,
) -> Result<(), Failure> {
    let Some((_, any)) = cluster.reachable.first() else { return Ok(()) };
    let Some(topic) = &args.topic else {
        if !args.write {
            let step = Step::new("records", "").status(Status::Skipped);
            return report.add(step.fact(
                "--topic NAME reads, --write writes, too; into a topic that is deleted, unless one is named",
            ));
        }
        let topic = format!("ottla-doctor-{:x}", now_ms());
        if change(report, "create-topic", &topic, || create(any, terms, &topic))? {
            round_trips(&topic, true, cluster, terms, report, seen)?;
            change(report, "delete-topic", &topic, || delete(any, terms, &topic))?;
        }
        return Ok(());
    };
    round_trips(topic, args.write, cluster, terms, report, seen)
}

/// Runs a step that changes something; whether it went well.
fn change(
    report: &mut Report,
    name: &'static str,
    topic: &str,
    run: impl FnOnce() -> Result<(), Wrong>,
) -> Result<bool, Failure> {
    let watch = Stopwatch::start();
    let result = run();
    let step = Step::new(name, topic).took(watch.elapsed());
    let done = result.is_ok();
    report.add(match result {
        Ok(()) => step,
        Err(wrong) => wrong.onto(step),
    })?;
    Ok(done)
}

fn create(at: &Reachable, terms: &Terms, topic: &str) -> Result<(), Wrong> {
    let mut wire = Wire::greeted(at, terms)?;
    // -1 leaves it to the broker, from version 4 on; before that, one copy is better than none.
    let copies = if wire.knows(ApiKey::CreateTopics, 4) { -1 } else { 1 };
    let new = CreatableTopic {
        name: topic.into(),
        num_partitions: 1,
        replication_factor: copies,
        ..Default::default()
    };
    let request =
        CreateTopicsRequest { topics: vec![new], timeout_ms: terms.answer_ms(), validate_only: false };
    let (answer, _) = wire.ask(&request, i16::MAX)?;
    answer.topics.into_iter().try_for_each(|topic| Wrong::code(topic.error_code, topic.error_message))
}

fn delete(at: &Reachable, terms: &Terms, topic: &str) -> Result<(), Wrong> {
    let mut wire = Wire::greeted(at, terms)?;
    let request = if wire.knows(ApiKey::DeleteTopics, 6) {
        let state = DeleteTopicState { name: Some(topic.into()), ..Default::default() };
        DeleteTopicsRequest { topics: vec![state], timeout_ms: terms.answer_ms(), ..Default::default() }
    } else {
        DeleteTopicsRequest {
            topic_names: vec![topic.into()],
            timeout_ms: terms.answer_ms(),
            ..Default::default()
        }
    };
    let (answer, _) = wire.ask(&request, i16::MAX)?;
    answer.responses.into_iter().try_for_each(|topic| Wrong::code(topic.error_code, topic.error_message))
}

fn round_trips(
    topic: &str,
    write: bool,
    cluster: &Cluster,
    terms: &Terms,
    report: &mut Report,
    seen: &mut Seen,
) -> Result<(), Failure> {
    let watch = Stopwatch::start();
    let leader = leader(topic, cluster, terms);
    let step = Step::new("topic", topic).took(watch.elapsed());
    let at = match leader {
        Ok((node, at)) => {
            report.add(step.fact(format!("node {node} leads partition 0")))?;
            at
        }
        Err(wrong) => return report.add(wrong.onto(step)),
    };
    let mut from = None;
    if write {
        let step = Step::new("produce", topic);
        match produce(&at, topic, terms) {
            Ok(written) => {
                from = Some(written.first_offset);
                seen.acknowledgement = Some(written.pace.median());
                report.add(acknowledged(step, &written, seen.round_trip.unwrap_or_default()))?;
            }
            Err(wrong) => report.add(wrong.onto(step))?,
        }
    }
    let step = Step::new("fetch", topic);
    let step = match fetch(&at, topic, from, terms) {
        Ok(fetched) => read(step, &fetched, from),
        Err(wrong) => wrong.onto(step),
    };
    report.add(step)
}

/// Who leads partition 0, and where; waits for a topic that is new.
fn leader(topic: &str, cluster: &Cluster, terms: &Terms) -> Result<(i32, Reachable), Wrong> {
    let Some((_, any)) = cluster.reachable.first() else { return Err(Wrong::NoLeader(-1)) };
    let mut wire = Wire::greeted(any, terms)?;
    let wanted = MetadataRequestTopic { name: Some(topic.into()), ..Default::default() };
    let request = MetadataRequest {
        topics: Some(vec![wanted]),
        // Looking must not create a topic; brokers before 0.11 would.
        allow_auto_topic_creation: !wire.knows(ApiKey::Metadata, 4),
        ..Default::default()
    };
    let watch = Stopwatch::start();
    loop {
        let (answer, _) = wire.ask(&request, i16::MAX)?;
        let found = answer.topics.first();
        let code = found.map_or(ErrorCode::UnknownTopicOrPartition, |topic| topic.error_code);
        let first =
            found.and_then(|topic| topic.partitions.iter().find(|partition| partition.partition_index == 0));
        let node = first.map_or(-1, |partition| partition.leader_id);
        if code == ErrorCode::None && node >= 0 {
            let at = cluster.reachable.iter().find(|(id, _)| *id == node).map(|(_, at)| at.clone());
            return at.map(|at| (node, at)).ok_or(Wrong::NoLeader(node));
        }
        if watch.elapsed() >= LEADER_WITHIN.min(terms.answer)
            || !(code == ErrorCode::None || code.is_retriable())
        {
            Wrong::code(code, None)?;
            return Err(Wrong::NoLeader(node));
        }
        std::thread::sleep(LOOK_AGAIN_AFTER);
    }
}

struct Written {
    pace: Pace,
    first_offset: i64,
    throttled_ms: i32,
}

fn produce(at: &Reachable, topic: &str, terms: &Terms) -> Result<Written, Wrong> {
    let mut wire = Wire::greeted(at, terms)?;
    let (mut times, mut first_offset, mut throttled_ms) = (Vec::new(), -1, 0);
    for number in 0..WRITES {
        let mut batch = BatchBuilder::new();
        batch.push(now_ms(), Some(b"ottla-doctor"), Some(format!("record {number}").as_bytes()), &[]);
        let sealed = batch.seal(&Seal::default()).map_err(|error| Trouble::Nonsense(error.to_string()))?;
        let partition = PartitionProduceData { index: 0, records: Some(sealed.chain().clone()) };
        let data =
            TopicProduceData { name: topic.into(), partition_data: vec![partition], ..Default::default() };
        let request = ProduceRequest {
            acks: -1,
            timeout_ms: terms.answer_ms(),
            topic_data: vec![data],
            ..Default::default()
        };
        let (answer, took) = wire.ask(&request, PRODUCE_BY_NAME)?;
        times.push(took);
        throttled_ms = throttled_ms.max(answer.throttle_time_ms);
        let partition = answer.responses.into_iter().flat_map(|topic| topic.partition_responses).next();
        let partition =
            partition.ok_or_else(|| Trouble::Nonsense("the answer leaves the partition out".into()))?;
        Wrong::code(partition.error_code, partition.error_message)?;
        if number == 0 {
            first_offset = partition.base_offset;
        }
    }
    Ok(Written { pace: Pace::of(times), first_offset, throttled_ms })
}

fn acknowledged(step: Step, written: &Written, round_trip: Duration) -> Step {
    let median = written.pace.median();
    let extra = median.saturating_sub(round_trip);
    let step = step.took(median).fact(format!("{WRITES} records, one at a time, acks=all: {}", written.pace));
    let step = throttled(step, written.throttled_ms);
    if extra < SLOW {
        return step;
    }
    step.status(Status::Warn)
        .fact(format!("{} longer than a small request: that is the broker's own time", millis(extra)))
        .advice("the leader waits for its disk (an Ottla broker with --durability disk), or for replicas that are slow or far away")
        .advice("records in one batch share it: leave linger.ms unset, and do not wait for each record before the next")
}

struct Fetched {
    took: Duration,
    offset: i64,
    records: usize,
    throttled_ms: i32,
}

fn fetch(at: &Reachable, topic: &str, from: Option<i64>, terms: &Terms) -> Result<Fetched, Wrong> {
    let mut wire = Wire::greeted(at, terms)?;
    let offset = match from {
        Some(offset) => offset,
        None => earliest(&mut wire, topic)?,
    };
    let partition =
        FetchPartition { fetch_offset: offset, partition_max_bytes: FETCH_BYTES, ..Default::default() };
    let topics = vec![FetchTopic { topic: topic.into(), partitions: vec![partition], ..Default::default() }];
    // Nothing to read is answered at once: an empty topic is no failure.
    let request =
        FetchRequest { max_wait_ms: 0, min_bytes: 0, max_bytes: FETCH_BYTES, topics, ..Default::default() };
    let (answer, took) = wire.ask(&request, FETCH_BY_NAME)?;
    Wrong::code(answer.error_code, None)?;
    let throttled_ms = answer.throttle_time_ms;
    let partition = answer.responses.into_iter().flat_map(|topic| topic.partitions).next();
    let partition =
        partition.ok_or_else(|| Trouble::Nonsense("the answer leaves the partition out".into()))?;
    Wrong::code(partition.error_code, None)?;
    let bytes = partition.records.map(|chain| chain.to_bytes().unwrap_or_default()).unwrap_or_default();
    Ok(Fetched { took, offset, records: count(bytes), throttled_ms })
}

fn earliest(wire: &mut Wire, topic: &str) -> Result<i64, Wrong> {
    const EARLIEST: i64 = -2;
    let partition = ListOffsetsPartition { timestamp: EARLIEST, ..Default::default() };
    let topics = vec![ListOffsetsTopic { name: topic.into(), partitions: vec![partition] }];
    let (answer, _) =
        wire.ask(&ListOffsetsRequest { replica_id: -1, topics, ..Default::default() }, i16::MAX)?;
    let partition = answer.topics.into_iter().flat_map(|topic| topic.partitions).next();
    let partition =
        partition.ok_or_else(|| Trouble::Nonsense("the answer leaves the partition out".into()))?;
    Wrong::code(partition.error_code, None)?;
    Ok(partition.offset)
}

/// Records in the whole batches of a response; the last one may be cut.
fn count(mut bytes: bytes::Bytes) -> usize {
    let mut records = 0;
    while let Ok(header) = ottla_wire::BatchHeader::parse(&bytes) {
        if header.total_bytes() > bytes.len() {
            break;
        }
        let batch = bytes.split_to(header.total_bytes());
        records += Records::of_batch(&batch, ottla_wire::compress::DECOMPRESSED_BYTES_MAX)
            .map_or(0, |records| records.iter().flatten().count());
    }
    records
}

fn read(step: Step, fetched: &Fetched, from: Option<i64>) -> Step {
    let step = throttled(step.took(fetched.took), fetched.throttled_ms);
    let seen = format!("{} records from offset {} on", fetched.records, fetched.offset);
    match (from, fetched.records) {
        (Some(_), 0) => step
            .status(Status::Fail)
            .fact(seen)
            .fact("what was acknowledged cannot be read")
            .advice("consumers see what all in-sync replicas have: look at the partition's high watermark and replicas"),
        (None, 0) => step.fact("partition 0 has nothing to read"),
        _ => step.fact(seen),
    }
}

fn throttled(step: Step, ms: i32) -> Step {
    if ms <= 0 {
        return step;
    }
    step.status(Status::Warn)
        .fact(format!("the broker throttles this client: {ms} ms"))
        .advice("a quota of this user or client.id is used up: the cluster's administrator can raise it (kafka-configs --describe --entity-type users)")
}
