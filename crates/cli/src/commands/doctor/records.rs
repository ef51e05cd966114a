//! Round trips of records: produced, acknowledged, fetched.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
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
use super::connection::{Connection, ProbeError, ProbeSettings, Stopwatch};
use super::network::Reachable;
use super::pace::Pace;
use super::report::{Report, Status, Step, millis};
use super::{Args, Measurements};
use crate::failure::Failure;
use crate::output::counted;
use crate::signals::Interrupt;
use crate::time::now_ms;

/// Number of records to write, one at a time.
const WRITES: usize = 10;

/// The last versions of these requests that identify topics by name.
const PRODUCE_BY_NAME: i16 = 12;
const FETCH_BY_NAME: i16 = 12;

/// An acknowledgement that takes longer than a small request by this much is reported.
const SLOW: Duration = Duration::from_millis(20);

/// Time limit for a new topic to get a leader.
const LEADER_WITHIN: Duration = Duration::from_secs(10);

/// The time limit for a change that the controller has begun, as a multiple of an answer's.
const CHANGED_WITHIN_ANSWERS: u32 = 3;

const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(50);

/// Maximum bytes of a fetch; one batch is returned even if it is larger.
const FETCH_BYTES: i32 = 1 << 16;

/// A failure of the transport, or an error in the broker's answer.
enum RecordsError {
    Connection(ProbeError),
    Code(ErrorCode, String),
    NoLeader(i32),
}

impl From<ProbeError> for RecordsError {
    fn from(probe_error: ProbeError) -> Self {
        Self::Connection(probe_error)
    }
}

impl RecordsError {
    fn code(code: ErrorCode, detail: Option<String>) -> Result<(), Self> {
        match code {
            ErrorCode::None => Ok(()),
            code => Err(Self::Code(code, detail.unwrap_or_default())),
        }
    }

    fn add_to(self, step: Step) -> Step {
        let step = step.status(Status::Fail);
        match self {
            Self::Connection(probe_error) => step.fact(probe_error.to_string()),
            Self::NoLeader(node) if node < 0 => step.fact("partition 0 has no leader"),
            Self::NoLeader(node) => step
                .fact(format!("node {node} leads partition 0, but its advertised address cannot be reached"))
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
            "this user is not authorised: the cluster's administrator can add an ACL for the topic (kafka-acls --add --allow-principal ... --operation Read or Write)"
        }
        ErrorCode::ClusterAuthorizationFailed => {
            "this user may not create topics: name an existing one with --topic"
        }
        ErrorCode::UnknownTopicOrPartition => "the topic does not exist: create it, or name another one",
        ErrorCode::NotEnoughReplicas | ErrorCode::NotEnoughReplicasAfterAppend => {
            "fewer replicas than min.insync.replicas are in sync: restart the failed brokers"
        }
        ErrorCode::NotLeaderOrFollower | ErrorCode::LeaderNotAvailable => {
            "leadership is moving and clients retry; if it persists, check the controller"
        }
        ErrorCode::RequestTimedOut => {
            "the controller has begun the change and continues it: look later, and check its load and its log"
        }
        ErrorCode::PolicyViolation | ErrorCode::InvalidReplicationFactor => {
            "a policy of the broker rejects new topics: name an existing one with --topic"
        }
        _ => "check the broker's log",
    }
}

pub(super) fn examine(
    args: &Args,
    cluster: &Cluster,
    settings: &ProbeSettings,
    report: &mut Report,
    measurements: &mut Measurements,
) -> Result<(), Failure> {
    let Some((_, any)) = cluster.reachable.first() else { return Ok(()) };
    let Some(topic) = &args.topic else {
        if !args.write {
            let step = Step::new("records", "").status(Status::Skipped);
            return report.add(step.fact(
                "--topic NAME reads records; --write also writes them, without --topic into a temporary topic",
            ));
        }
        let topic = format!("ottla-doctor-{:x}", now_ms());
        let done = Arc::new(AtomicBool::new(false));
        let interrupt = Interrupt::watch_until(done.clone())?;
        let (created, mut seen) = change(report, "create-topic", &topic, || create(any, settings, &topic));
        if created {
            seen = seen
                .and_then(|()| interrupt.check())
                .and_then(|()| round_trips(&topic, true, true, cluster, settings, report, measurements));
            // The topic is temporary also if standard output fails, or a signal ends the command.
            let (_, deleted) = change(report, "delete-topic", &topic, || delete(any, settings, &topic));
            seen = seen.and(deleted);
        }
        done.store(true, Ordering::SeqCst);
        interrupt.check()?;
        return seen;
    };
    round_trips(topic, false, args.write, cluster, settings, report, measurements)
}

/// Runs a step that changes the cluster, and reports it. Returns `true` if it succeeded.
fn change(
    report: &mut Report,
    name: &'static str,
    topic: &str,
    run: impl FnOnce() -> Result<(), RecordsError>,
) -> (bool, Result<(), Failure>) {
    let watch = Stopwatch::start();
    let result = run();
    let step = Step::new(name, topic).took(watch.elapsed());
    let done = result.is_ok();
    let reported = report.add(match result {
        Ok(()) => step,
        Err(wrong) => wrong.add_to(step),
    });
    (done, reported)
}

fn create(at: &Reachable, settings: &ProbeSettings, topic: &str) -> Result<(), RecordsError> {
    let mut connection = Connection::open_authenticated(at, settings)?;
    // -1 selects the broker's default from version 4; older versions need a number.
    let copies = if connection.supports(ApiKey::CreateTopics, 4) { -1 } else { 1 };
    let new = CreatableTopic {
        name: topic.into(),
        num_partitions: 1,
        replication_factor: copies,
        ..Default::default()
    };
    let request =
        CreateTopicsRequest { topics: vec![new], timeout_ms: settings.broker_ms(), validate_only: false };
    until_carried_out(settings, ErrorCode::TopicAlreadyExists, || {
        let (answer, _) = connection.request(&request, i16::MAX)?;
        Ok(answer.topics.into_iter().map(|topic| (topic.error_code, topic.error_message)).next())
    })
}

fn delete(at: &Reachable, settings: &ProbeSettings, topic: &str) -> Result<(), RecordsError> {
    let mut connection = Connection::open_authenticated(at, settings)?;
    let timeout_ms = settings.broker_ms();
    let request = if connection.supports(ApiKey::DeleteTopics, 6) {
        let state = DeleteTopicState { name: Some(topic.into()), ..Default::default() };
        DeleteTopicsRequest { topics: vec![state], timeout_ms, ..Default::default() }
    } else {
        DeleteTopicsRequest { topic_names: vec![topic.into()], timeout_ms, ..Default::default() }
    };
    until_carried_out(settings, ErrorCode::UnknownTopicOrPartition, || {
        let (answer, _) = connection.request(&request, i16::MAX)?;
        Ok(answer.responses.into_iter().map(|topic| (topic.error_code, topic.error_message)).next())
    })
}

/// Sends a change again while its answer is `REQUEST_TIMED_OUT`: the controller continues it, and the same request
/// waits for its end. `already` is the error of a change that has been carried out meanwhile.
fn until_carried_out(
    settings: &ProbeSettings,
    already: ErrorCode,
    mut send: impl FnMut() -> Result<Option<(ErrorCode, Option<String>)>, RecordsError>,
) -> Result<(), RecordsError> {
    let watch = Stopwatch::start();
    let mut again = false;
    loop {
        let (code, detail) = send()?
            .ok_or_else(|| ProbeError::InvalidResponse("the response does not contain the topic".into()))?;
        match code {
            code if again && code == already => return Ok(()),
            ErrorCode::RequestTimedOut if watch.elapsed() < CHANGED_WITHIN_ANSWERS * settings.answer => {
                again = true;
                std::thread::sleep(LOOK_AGAIN_AFTER);
            }
            code => return RecordsError::code(code, detail),
        }
    }
}

fn round_trips(
    topic: &str,
    is_new: bool,
    write: bool,
    cluster: &Cluster,
    settings: &ProbeSettings,
    report: &mut Report,
    measurements: &mut Measurements,
) -> Result<(), Failure> {
    let watch = Stopwatch::start();
    let leader = leader(topic, is_new, cluster, settings);
    let step = Step::new("topic", topic).took(watch.elapsed());
    let at = match leader {
        Ok((node, at)) => {
            report.add(step.fact(format!("node {node} leads partition 0")))?;
            at
        }
        Err(wrong) => return report.add(wrong.add_to(step)),
    };
    let mut from = None;
    if write {
        let step = Step::new("produce", topic);
        match produce(&at, topic, settings) {
            Ok(written) => {
                from = Some(written.first_offset);
                measurements.acknowledgement = Some(written.pace.median());
                report.add(acknowledged(step, &written, measurements.round_trip.unwrap_or_default()))?;
            }
            Err(wrong) => report.add(wrong.add_to(step))?,
        }
    }
    let step = Step::new("fetch", topic);
    let step = match fetch(&at, topic, from, settings) {
        Ok(fetched) => read(step, &fetched, from),
        Err(wrong) => wrong.add_to(step),
    };
    report.add(step)
}

/// The leader of partition 0 and its address. Waits for the leader, and for a new topic, which spreads slowly.
fn leader(
    topic: &str,
    is_new: bool,
    cluster: &Cluster,
    settings: &ProbeSettings,
) -> Result<(i32, Reachable), RecordsError> {
    let Some((_, any)) = cluster.reachable.first() else { return Err(RecordsError::NoLeader(-1)) };
    let mut connection = Connection::open_authenticated(any, settings)?;
    let wanted = MetadataRequestTopic { name: Some(topic.into()), ..Default::default() };
    let request = MetadataRequest {
        topics: Some(vec![wanted]),
        // The lookup must not create a topic, as brokers before 0.11 would.
        allow_auto_topic_creation: !connection.supports(ApiKey::Metadata, 4),
        ..Default::default()
    };
    let watch = Stopwatch::start();
    loop {
        let (answer, _) = connection.request(&request, i16::MAX)?;
        let found = answer.topics.first();
        let code = found.map_or(ErrorCode::UnknownTopicOrPartition, |topic| topic.error_code);
        let first =
            found.and_then(|topic| topic.partitions.iter().find(|partition| partition.partition_index == 0));
        let node = first.map_or(-1, |partition| partition.leader_id);
        if code == ErrorCode::None && node >= 0 {
            let at = cluster.reachable.iter().find(|(id, _)| *id == node).map(|(_, at)| at.clone());
            return at.map(|at| (node, at)).ok_or(RecordsError::NoLeader(node));
        }
        let may_change = match code {
            ErrorCode::None => true,
            ErrorCode::UnknownTopicOrPartition => is_new,
            code => code.is_retriable(),
        };
        if !may_change || watch.elapsed() >= LEADER_WITHIN.min(settings.answer) {
            RecordsError::code(code, None)?;
            return Err(RecordsError::NoLeader(node));
        }
        std::thread::sleep(LOOK_AGAIN_AFTER);
    }
}

struct Written {
    pace: Pace,
    first_offset: i64,
    throttled_ms: i32,
}

fn produce(at: &Reachable, topic: &str, settings: &ProbeSettings) -> Result<Written, RecordsError> {
    let mut connection = Connection::open_authenticated(at, settings)?;
    let (mut times, mut first_offset, mut throttled_ms) = (Vec::new(), -1, 0);
    for number in 0..WRITES {
        let mut batch = BatchBuilder::new();
        batch.push(now_ms(), Some(b"ottla-doctor"), Some(format!("record {number}").as_bytes()), &[]);
        let sealed =
            batch.seal(&Seal::default()).map_err(|error| ProbeError::InvalidResponse(error.to_string()))?;
        let partition = PartitionProduceData { index: 0, records: Some(sealed.chain().clone()) };
        let data =
            TopicProduceData { name: topic.into(), partition_data: vec![partition], ..Default::default() };
        let request = ProduceRequest {
            acks: -1,
            timeout_ms: settings.broker_ms(),
            topic_data: vec![data],
            ..Default::default()
        };
        let (answer, took) = connection.request(&request, PRODUCE_BY_NAME)?;
        times.push(took);
        throttled_ms = throttled_ms.max(answer.throttle_time_ms);
        let partition = answer.responses.into_iter().flat_map(|topic| topic.partition_responses).next();
        let partition = partition.ok_or_else(|| {
            ProbeError::InvalidResponse("the response does not contain the partition".into())
        })?;
        RecordsError::code(partition.error_code, partition.error_message)?;
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
        .fact(format!("{} longer than a small request: the broker needs this time", millis(extra)))
        .advice("the leader waits for its disk (an Ottla broker with --durability disk), or for slow or distant replicas")
        .advice("records in one batch share this time: leave linger.ms unset, and do not wait for each record before sending the next")
}

struct Fetched {
    took: Duration,
    offset: i64,
    records: usize,
    throttled_ms: i32,
}

fn fetch(
    at: &Reachable,
    topic: &str,
    from: Option<i64>,
    settings: &ProbeSettings,
) -> Result<Fetched, RecordsError> {
    let mut connection = Connection::open_authenticated(at, settings)?;
    let offset = match from {
        Some(offset) => offset,
        None => earliest(&mut connection, topic)?,
    };
    let partition =
        FetchPartition { fetch_offset: offset, partition_max_bytes: FETCH_BYTES, ..Default::default() };
    let topics = vec![FetchTopic { topic: topic.into(), partitions: vec![partition], ..Default::default() }];
    // With nothing to read the broker answers at once: an empty topic is not a failure.
    let request =
        FetchRequest { max_wait_ms: 0, min_bytes: 0, max_bytes: FETCH_BYTES, topics, ..Default::default() };
    let (answer, took) = connection.request(&request, FETCH_BY_NAME)?;
    RecordsError::code(answer.error_code, None)?;
    let throttled_ms = answer.throttle_time_ms;
    let partition = answer.responses.into_iter().flat_map(|topic| topic.partitions).next();
    let partition = partition
        .ok_or_else(|| ProbeError::InvalidResponse("the response does not contain the partition".into()))?;
    RecordsError::code(partition.error_code, None)?;
    let bytes = partition.records.map(|chain| chain.to_bytes().unwrap_or_default()).unwrap_or_default();
    Ok(Fetched { took, offset, records: count(bytes), throttled_ms })
}

fn earliest(connection: &mut Connection, topic: &str) -> Result<i64, RecordsError> {
    const EARLIEST: i64 = -2;
    let partition = ListOffsetsPartition { timestamp: EARLIEST, ..Default::default() };
    let topics = vec![ListOffsetsTopic { name: topic.into(), partitions: vec![partition] }];
    let (answer, _) =
        connection.request(&ListOffsetsRequest { replica_id: -1, topics, ..Default::default() }, i16::MAX)?;
    let partition = answer.topics.into_iter().flat_map(|topic| topic.partitions).next();
    let partition = partition
        .ok_or_else(|| ProbeError::InvalidResponse("the response does not contain the partition".into()))?;
    RecordsError::code(partition.error_code, None)?;
    Ok(partition.offset)
}

/// Number of records in the complete batches of a response; the last batch may be truncated.
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
    let seen = format!("{} from offset {}", counted(fetched.records as u64, "record"), fetched.offset);
    match (from, fetched.records) {
        (Some(_), 0) => step
            .status(Status::Fail)
            .fact(seen)
            .fact("acknowledged records cannot be read")
            .advice("consumers see records that all in-sync replicas have: check the partition's high watermark and replicas"),
        (None, 0) => step.fact("partition 0 has no records to read"),
        _ => step.fact(seen),
    }
}

fn throttled(step: Step, ms: i32) -> Step {
    if ms <= 0 {
        return step;
    }
    step.status(Status::Warn)
        .fact(format!("the broker throttles this client: {ms} ms"))
        .advice("a quota of this user or client.id is exhausted: the cluster's administrator can raise it (kafka-configs --describe --entity-type users)")
}
