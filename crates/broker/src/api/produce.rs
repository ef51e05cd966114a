//! Produce: appends record batches to the logs.
//!
//! Versions 0 to 2 are advertised and refused: librdkafka before 2.11 gives up compression where the minimum is above 0
//! (KAFKA-18659), and no client of today sends them.

use std::sync::{Arc, MutexGuard};

use bytes::{Bytes, BytesMut};
use ottla_log::deliberate::{DeliberateFault, has_deliberate_fault};
use ottla_log::{
    AppendError, AppendOptions, Appended, Check, FirstBatch, GuardsFull, Log, SharedBuffer, Transactional,
    VerificationGuard,
};
use ottla_protocol::messages::produce::{
    LeaderIdAndEpoch, NodeEndpoint, PartitionProduceResponse, ProduceRequest, ProduceResponse,
    TopicProduceResponse,
};
use ottla_protocol::{ApiKey, ErrorCode};
use ottla_wire::{BatchHeader, TimestampType};
use tokio::time::Instant;

use super::fetch::CHARGED_WAIT_MAX;
use super::pace::Pace;
use super::produce_rules::{self, RefusedRecords};
use super::rejected_records::{RECORD_ERRORS_MAX, RejectedRecords, limit_records};
use super::{Api, RequestContext};
use crate::batch_checks::{CheckedAtOnce, check_at_once, check_in_steps};
use crate::cluster::Cluster;
use crate::config::Durability;
use crate::durable_append::{await_durable, log_with_offsets, offsets_of, refusal, reserve};
use crate::memory::Charge;
use crate::partition::Partition;
use crate::recompression::check_and_recompress;
use crate::request_memory::memory_of_produced;
use crate::transaction_approval::ApprovalRequest;

/// The value of `acks` for all in-sync replicas.
const ACKS_ALL: i16 = -1;

/// From this version on, the coordinator adds the partitions of the request to the transaction (KIP-890).
const ADDS_PARTITIONS_FROM: i16 = 12;
/// From this version on, producers know `TRANSACTION_ABORTABLE`.
const KNOWS_ABORTABLE_FROM: i16 = 11;
/// From this version on, topics have ids in place of names (KIP-516).
pub(super) const TOPIC_IDS_FROM: i16 = 13;
/// A first approval may come after the marker of the transaction before. After a second one, only the end of this transaction
/// can have ended the guard.
const APPROVALS_MAX: usize = 2;

/// A partition's part of the request.
struct Part {
    index: i32,
    partition: Result<Arc<Partition>, ErrorCode>,
    /// The position and length of its records in the frame; `None` for null.
    range: Option<(usize, usize)>,
    /// Its records, once they were taken from the frame.
    records: BytesMut,
    /// The frame, if other parts share it: caches that have a part keep it as a whole.
    buffer: Option<SharedBuffer>,
    /// The header of their first batch, if it can be read. The append reports one that cannot.
    header: Option<BatchHeader>,
    /// The checks that the append makes.
    check: Check,
    /// The result of the checks before the append.
    refused: Option<AppendError>,
    /// The treatment of transactional batches.
    transactional: Transactional,
    /// The error that a test has set for this request, or that of the transaction's coordinator.
    denied: Option<ErrorCode>,
}

/// An append whose response may have to wait.
struct Done {
    index: i32,
    partition: Option<Arc<Partition>>,
    result: Result<Appended, (ErrorCode, Option<String>)>,
    /// True if `flush.messages` asks for a sync before the response.
    needs_flush: bool,
    /// The records for which the batch was refused.
    rejected: RejectedRecords,
}

impl Api for ProduceRequest {
    const ADVERTISED: (i16, i16) = (0, 13);

    async fn handle(self, mut context: RequestContext) -> ProduceResponse {
        let (acks, timeout_ms) = (self.acks, self.timeout_ms);
        let cluster = context.cluster().clone();
        if !matches!(acks, -1..=1) {
            return self.refuse(&context, ErrorCode::InvalidRequiredAcks);
        }
        let deadline = Instant::now() + std::time::Duration::from_millis(timeout_ms.max(0) as u64);
        let is_early = has_deliberate_fault(DeliberateFault::AcknowledgeBeforeSync)
            || has_deliberate_fault(DeliberateFault::AcknowledgeBeforeAppend);
        let wait = acks == ACKS_ALL && cluster.config.durability == Durability::Disk && !is_early;
        let items: usize = self.topic_data.iter().map(|topic| 1 + topic.partition_data.len()).sum();
        let connection = context.connection.clone();
        // The next produce requests of the connection append after this one, even if this one waits for memory.
        let turn = connection.appends.lock().await;
        let _charge = match charge_items(&context, items).await {
            Ok(charge) => charge,
            Err(code) => return self.refuse(&context, code),
        };
        let mut pace = Pace::default();
        let topics = append_all(self, &mut context, &mut pace).await;
        drop(turn);

        let throttle_time_ms = cluster.overrides.throttle_ms();
        let mut response = ProduceResponse { throttle_time_ms, ..Default::default() };
        for (mut topic, parts) in topics {
            topic.partition_responses.reserve_exact(parts.len());
            for Done { index, partition, mut result, needs_flush, rejected } in parts {
                if let (true, Ok(appended), Some(partition)) = (wait, &result, &partition) {
                    let end = appended.last_offset + 1;
                    result = match await_durable(&cluster, partition, end, deadline).await {
                        Ok(()) => result,
                        Err(code) => Err((code, None)),
                    };
                }
                if let (true, Ok(_), Some(partition)) = (needs_flush, &result, &partition) {
                    let flushed = cluster.flush(partition).await;
                    result = flushed.and(result.map_err(|(code, _)| code)).map_err(|code| (code, None));
                }
                let mut answer = answer(index, partition.as_deref(), result, context.version);
                answer.record_errors = rejected.into_errors();
                if answer.current_leader.leader_id >= 0 {
                    hint(&mut response, &context, answer.current_leader.leader_id);
                }
                topic.partition_responses.push(answer);
                pace.step().await;
            }
            response.responses.push(topic);
        }
        response
    }

    fn moved_records(response: &ProduceResponse) -> bool {
        let mut partitions = response.responses.iter().flat_map(|topic| &topic.partition_responses);
        partitions.any(|partition| partition.error_code == ErrorCode::None)
    }

    fn refuse(self, _context: &RequestContext, code: ErrorCode) -> ProduceResponse {
        let responses = self.topic_data.into_iter().map(|topic| TopicProduceResponse {
            name: topic.name,
            topic_id: topic.topic_id,
            partition_responses: topic
                .partition_data
                .into_iter()
                .map(|partition| PartitionProduceResponse {
                    index: partition.index,
                    error_code: code,
                    base_offset: -1,
                    ..Default::default()
                })
                .collect(),
        });
        ProduceResponse { responses: responses.collect(), ..Default::default() }
    }

    fn is_answered(&self) -> bool {
        self.acks != 0
    }

    fn closes(answered: bool, response: &ProduceResponse) -> Option<String> {
        // With acks=0 a closed connection is the only way to report an error to the producer.
        let mut parts = response.responses.iter().flat_map(|topic| &topic.partition_responses);
        let failed = parts.find(|part| part.error_code != ErrorCode::None).filter(|_| !answered)?;
        Some(format!("acks=0 and partition {}: {}", failed.index, failed.error_code))
    }
}

/// Waits for the memory of the topics and partitions of a request, if its frame is not charged for all of it.
async fn charge_items(context: &RequestContext, items: usize) -> Result<Option<Charge>, ErrorCode> {
    let Some(bytes) = memory_of_produced(items, context.frame.len()) else { return Ok(None) };
    let (memory, client) = (&context.cluster().memory, context.connection.client_host());
    // Boxed: other requests do not need its memory. The wait is short: others could wait for the memory of the frame.
    let charged = Box::pin(tokio::time::timeout(CHARGED_WAIT_MAX, memory.charge(client, bytes))).await;
    charged.map(Some).map_err(|_late| ErrorCode::RequestTimedOut)
}

/// Appends every part, in order, while no other request of the connection does. Waits only for expensive checks, and lets others have
/// their turn.
async fn append_all(
    mut request: ProduceRequest,
    context: &mut RequestContext,
    pace: &mut Pace,
) -> Vec<(TopicProduceResponse, Vec<Done>)> {
    let transactional_id = request.transactional_id.take();
    let mut topics = parts_of(request, context);
    let cluster = context.cluster();
    let now_ms = cluster.clock.now_ms();
    let lacks_id = transactional_id.is_none()
        && topics
            .iter()
            .flat_map(|(_, parts)| parts)
            .any(|part| part.header.is_some_and(|header| header.is_transactional()));
    let mut record_errors_left = RECORD_ERRORS_MAX;
    for part in topics.iter_mut().flat_map(|(_, parts)| parts) {
        pace.step().await;
        if transactional_id.is_some() {
            part.transactional = Transactional::Verified(None);
        }
        part.denied = take_error(cluster, context.node(), part);
        apply_rules(part, lacks_id, context.version);
        check(context, now_ms, part).await;
        if let Some(error) = &mut part.refused {
            limit_records(error, &mut record_errors_left);
        }
    }
    if let Some(transactional_id) = transactional_id {
        let parts = topics.iter_mut().flat_map(|(_, parts)| parts).collect();
        Box::pin(approve(context, now_ms, transactional_id, parts)).await;
    }
    // Those of batches that were refused above are in it, too.
    let mut record_errors_left = RECORD_ERRORS_MAX;
    let mut appended = Vec::with_capacity(topics.len());
    for (answer, parts) in topics {
        let mut of_topic = Vec::with_capacity(parts.len());
        for part in parts {
            let mut done = append_part(cluster, context.node(), now_ms, part);
            done.rejected.limit(&mut record_errors_left);
            of_topic.push(done);
            pace.step().await;
        }
        appended.push((answer, of_topic));
    }
    appended
}

/// Refuses what Kafka refuses whatever the log holds; with `lacks_id` all: a transaction needs the right to its id.
fn apply_rules(part: &mut Part, lacks_id: bool, version: i16) {
    if lacks_id {
        part.denied = Some(ErrorCode::TransactionalIdAuthorizationFailed);
        return;
    }
    let (Ok(partition), Some(header)) = (&part.partition, &part.header) else { return };
    let dir = || format!("{}-{}", partition.topic, part.index);
    match produce_rules::refusal_of(header, part.records.len(), version, dir) {
        Some(RefusedRecords::Error(error)) => part.refused = Some(error),
        Some(RefusedRecords::Code(code)) => part.denied = Some(code),
        None => {}
    }
}

/// Takes the next error that a test has set for produce requests of a part's partition, if this node leads it.
fn take_error(cluster: &Cluster, node: i32, part: &Part) -> Option<ErrorCode> {
    let partition = part.partition.as_ref().ok().filter(|_| cluster.overrides.has_partition_errors())?;
    partition.check_leader(node, -1).ok()?;
    cluster.overrides.take_partition_error(ApiKey::Produce, &partition.topic, partition.index)
}

/// Asks the coordinator for its approval of the parts that begin a transaction in their partitions.
#[cold]
async fn approve(context: &RequestContext, now_ms: i64, transactional_id: String, parts: Vec<&mut Part>) {
    let (cluster, version) = (context.cluster(), context.version);
    let (producer_id, producer_epoch) = match producer_of_all(&parts) {
        Ok(Some(producer)) => producer,
        Ok(None) => return,
        Err(code) => {
            for part in parts {
                part.denied = Some(code);
            }
            return;
        }
    };
    let mut begun = Vec::new();
    for part in parts {
        let Ok(partition) = &part.partition else { continue };
        // The append reports its partition's other leader.
        let is_refused = part.refused.is_some() || part.denied.is_some();
        let is_led = partition.check_leader(context.node(), -1).is_ok();
        let header = part.header.filter(|_| is_led && !is_refused && producer_of(part).is_some());
        let Some(header) = header else { continue };
        let first = FirstBatch {
            producer_id,
            producer_epoch,
            base_sequence: header.base_sequence,
            supports_epoch_bump: version >= ADDS_PARTITIONS_FROM,
        };
        match partition.transaction_guard(first, now_ms) {
            Ok(Some(guard)) => {
                part.transactional = Transactional::Verified(Some(guard));
                begun.push((part, first, guard));
            }
            Ok(None) => {}
            // The producer sends the batch again.
            Err(GuardsFull) => part.denied = Some(ErrorCode::NotEnoughReplicas),
        }
    }
    let request = ApprovalRequest {
        transactional_id,
        producer_id,
        producer_epoch,
        partitions: Vec::new(),
        adds_partitions: version >= ADDS_PARTITIONS_FROM,
        knows_abortable: version >= KNOWS_ABORTABLE_FROM,
    };
    for _ in 0..APPROVALS_MAX {
        if begun.is_empty() {
            return;
        }
        begun = ask_coordinator(cluster, now_ms, &request, begun).await;
    }
    for (part, ..) in begun {
        // The producer sends the batch again.
        part.denied = Some(ErrorCode::NotEnoughReplicas);
    }
}

/// The producer of the transactional batches of a request, if it has any. As in Kafka, nothing of a request of several is appended.
fn producer_of_all(parts: &[&mut Part]) -> Result<Option<(i64, i16)>, ErrorCode> {
    let mut producers = parts.iter().filter_map(|part| producer_of(part));
    let first = producers.next();
    let is_one = producers.all(|other| Some(other) == first);
    if is_one { Ok(first) } else { Err(ErrorCode::InvalidProducerIdMapping) }
}

/// The producer id and epoch of a part with a transactional batch.
fn producer_of(part: &Part) -> Option<(i64, i16)> {
    let is_transactional = |header: &BatchHeader| header.is_transactional() && header.has_producer_id();
    let header = part.header.filter(|header| part.partition.is_ok() && is_transactional(header))?;
    Some((header.producer_id, header.producer_epoch))
}

/// The first batch of a transaction in a partition, and the guard that was taken for it.
type Begun<'a> = (&'a mut Part, FirstBatch, VerificationGuard);

/// Asks the coordinator for its approval once. Returns the approved parts whose guards a marker has ended meanwhile, with new
/// guards.
async fn ask_coordinator<'a>(
    cluster: &Arc<Cluster>,
    now_ms: i64,
    request: &ApprovalRequest,
    begun: Vec<Begun<'a>>,
) -> Vec<Begun<'a>> {
    let named = begun.iter().filter_map(|(part, ..)| {
        let partition = part.partition.as_ref().ok()?;
        Some((partition.topic.clone(), part.index))
    });
    let partitions: Vec<_> = named.collect();
    let approved = cluster.approve_transaction(ApprovalRequest { partitions, ..request.clone() }).await;
    // A part without a result is denied.
    let results = approved.into_iter().chain(std::iter::repeat(Err(ErrorCode::UnknownServerError)));
    let mut again = Vec::new();
    for ((part, first, guard), result) in begun.into_iter().zip(results) {
        part.denied = result.err();
        let Ok(partition) = &part.partition else { continue };
        match part.denied {
            // A batch that is sent again keeps its guard, which knows that later ones have to wait for it.
            Some(code) if is_sent_again(code) => {}
            Some(_) => partition.discard_transaction_guard(first, guard),
            None if partition.is_transaction_guard_current(first, guard) => {}
            None => match partition.transaction_guard(first, now_ms) {
                Ok(Some(next)) => {
                    part.transactional = Transactional::Verified(Some(next));
                    again.push((part, first, next));
                }
                // Another batch has opened the transaction.
                Ok(None) => {}
                Err(GuardsFull) => part.denied = Some(ErrorCode::NotEnoughReplicas),
            },
        }
    }
    again
}

/// Returns `true` for denials after which producers send the same batch again.
fn is_sent_again(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::NotEnoughReplicas | ErrorCode::ConcurrentTransactions)
}

/// Takes the parts of a request from its frame.
fn parts_of(request: ProduceRequest, context: &mut RequestContext) -> Vec<(TopicProduceResponse, Vec<Part>)> {
    let frame = std::mem::take(&mut context.frame);
    let (cluster, node, waits_for_all) = (context.cluster(), context.node(), request.acks == ACKS_ALL);
    let frame_at = frame.as_ptr() as usize;
    let mut topics = Vec::with_capacity(request.topic_data.len());
    for topic in request.topic_data {
        let known = if context.version >= TOPIC_IDS_FROM {
            cluster.topic_by_id(topic.topic_id).ok_or(ErrorCode::UnknownTopicId)
        } else {
            cluster.topic(&topic.name).ok_or(ErrorCode::UnknownTopicOrPartition)
        };
        let parts = topic.partition_data.into_iter().map(|data| {
            let partition = known.as_ref().map_err(|code| *code).and_then(|topic| {
                let found = usize::try_from(data.index).ok().and_then(|at| topic.partitions.get(at));
                let found = found.ok_or(ErrorCode::UnknownTopicOrPartition)?;
                // Only a replicated topic can have too few replicas.
                let may_lack = waits_for_all && topic.is_replicated() && found.check_leader(node, -1).is_ok();
                if may_lack && !cluster.has_enough_replicas(topic, found) {
                    return Err(ErrorCode::NotEnoughReplicas);
                }
                Ok(found.clone())
            });
            // Only the positions of the records are kept: without slices of it, the frame can be changed in place.
            let range = data.records.as_ref().map(|records| match records.as_single() {
                Some(bytes) => (bytes.as_ptr() as usize - frame_at, bytes.len()),
                None => (0, 0),
            });
            let (records, buffer, header, check) = (BytesMut::new(), None, None, Check::Records);
            let (refused, denied, transactional) = (None, None, Transactional::Refused);
            Part {
                index: data.index,
                partition,
                range,
                records,
                buffer,
                header,
                check,
                refused,
                transactional,
                denied,
            }
        });
        let parts: Vec<Part> = parts.collect();
        let answer =
            TopicProduceResponse { name: topic.name, topic_id: topic.topic_id, ..Default::default() };
        topics.push((answer, parts));
    }
    // If other frames share the read buffer, the small batches of this one are copied.
    let mut rest = Rest { at: 0, frame: Frame::new(frame) };
    let whole = rest.owned_bytes();
    let mut buffer = None;
    for part in topics.iter_mut().flat_map(|(_, parts)| parts) {
        if let Some((at, len)) = part.range {
            part.records = rest.cut(at, len);
            part.header = BatchHeader::parse(&part.records).ok();
            if part.records.len() < whole / 2 && SharedBuffer::is_kept_for(part.records.len()) {
                part.buffer = Some(buffer.get_or_insert_with(|| cluster.cache_total.buffer(whole)).clone());
            }
        }
    }
    topics
}

/// Checks the batches of a part if they are compressed or large, and recompresses those of another codec than the topic's.
async fn check(context: &RequestContext, now_ms: i64, part: &mut Part) {
    let (cluster, client) = (context.cluster(), context.connection.client_host());
    let Ok(partition) = &part.partition else { return };
    let is_refused = part.refused.is_some() || part.denied.is_some();
    if is_refused || part.records.is_empty() || partition.check_leader(context.node(), -1).is_err() {
        return;
    }
    if partition.stored_codec.differs_from(&part.records) {
        let records = std::mem::take(&mut part.records);
        // Boxed, as are other rare steps: each request has the memory of all that are not.
        let stored =
            Box::pin(check_and_recompress(cluster, partition, client, now_ms, records, part.transactional))
                .await;
        part.check = Check::Trusted;
        part.refused = stored.map(|records| part.records = records).err();
        return;
    }
    let sound = match check_at_once(partition, now_ms, &mut part.records, part.transactional) {
        Ok(CheckedAtOnce::Unchecked) => return,
        Ok(CheckedAtOnce::Sound) => Ok(()),
        Ok(CheckedAtOnce::Expensive) => {
            let records = std::mem::take(&mut part.records);
            let in_steps = check_in_steps(cluster, partition, client, now_ms, records, part.transactional);
            let checked = Box::pin(in_steps).await;
            checked.map(|checked| part.records = checked.batches)
        }
        Err(error) => Err(error),
    };
    part.check = Check::Trusted;
    part.refused = sound.err();
}

fn append_part(cluster: &Arc<Cluster>, node: i32, now_ms: i64, part: Part) -> Done {
    let Part { index, partition, range, records, buffer, check, refused, transactional, denied, .. } = part;
    // A partition that another broker leads is kept: the response names its leader.
    let led = denied.map_or(Ok(()), Err).and_then(|()| {
        partition
            .as_ref()
            .map_err(|code| *code)
            .and_then(|partition| partition.check_leader(node, -1).map(|()| partition))
            .and_then(|partition| {
                if partition.is_internal { Err(ErrorCode::InvalidTopicException) } else { Ok(partition) }
            })
    });
    let mut rejected = refused.as_ref().map(RejectedRecords::of).unwrap_or_default();
    let (result, pending) = match (led, range, refused) {
        (Err(code), ..) => (Err((code, None)), Pending::default()),
        (Ok(_), None, _) => {
            (Err((ErrorCode::InvalidRecord, Some("no records".to_owned()))), Pending::default())
        }
        (Ok(_), Some(_), Some(error)) => (Err(refusal(&error)), Pending::default()),
        (Ok(partition), Some(_), None) if has_deliberate_fault(DeliberateFault::AcknowledgeBeforeAppend) => {
            (Ok(append_later(cluster, partition, now_ms, records, check)), Pending::default())
        }
        (Ok(partition), Some(_), None) => match log_with_offsets(cluster, partition, offsets_of(&records)) {
            Err(refused) => (Err(refused), Pending::default()),
            Ok(log) => {
                let now_ms = time_of_append(cluster, &log, now_ms);
                let (result, pending) =
                    append_one(cluster, partition, log, now_ms, (records, buffer), check, transactional);
                rejected = result.as_ref().err().map(RejectedRecords::of).unwrap_or_default();
                (result.map_err(|error| refusal_of(partition, &error)), pending)
            }
        },
    };
    let partition = partition.ok();
    let result = match (result, &partition) {
        // Nearly always reserved already: only the first batch was counted above.
        (Ok(appended), Some(partition)) => {
            reserve(cluster, partition, appended.last_offset + 1).map(|()| appended)
        }
        (result, _) => result,
    };
    if let (Ok(_), Some(partition)) = (&result, &partition) {
        cluster.start_sync(partition, pending.has_closed);
    }
    let needs_flush = pending.is_flush_due && cluster.config.durability == Durability::Os;
    Done { index, partition, result, needs_flush, rejected }
}

/// The time of an append. As in Kafka, a log with `LogAppendTime` gets it under its lock, so that its times do not go back: checks of
/// batches and approvals of transactions take time.
fn time_of_append(cluster: &Cluster, log: &Log, begun_ms: i64) -> i64 {
    match log.config().timestamp_type {
        TimestampType::CreateTime => begun_ms,
        TimestampType::LogAppendTime => cluster.clock.now_ms(),
    }
}

/// The error of a response. A log goes offline when its topic is deleted.
fn refusal_of(partition: &Partition, error: &AppendError) -> (ErrorCode, Option<String>) {
    match error {
        AppendError::Offline { .. } if partition.is_deleted() => (ErrorCode::UnknownTopicOrPartition, None),
        error => refusal(error),
    }
}

/// The parts of a log that are not durable after an append.
#[derive(Clone, Copy, Debug, Default)]
struct Pending {
    /// Closed segments.
    has_closed: bool,
    /// As many records as `flush.messages` allows, or more.
    is_flush_due: bool,
}

/// Appends, and returns also what is not durable.
fn append_one(
    cluster: &Cluster,
    partition: &Partition,
    mut log: MutexGuard<'_, Log>,
    now_ms: i64,
    (records, buffer): (BytesMut, Option<SharedBuffer>),
    check: Check,
    transactional: Transactional,
) -> (Result<Appended, AppendError>, Pending) {
    let leader_epoch = partition.leader_epoch();
    let options = AppendOptions { leader_epoch, check, transactional, ..AppendOptions::default() };
    let appended = log.append_part(now_ms, records, options, buffer);
    if let Ok(Appended { records, bytes, duplicate: false, .. }) = &appended {
        cluster.metrics.appended(*records, *bytes);
    }
    (appended, Pending { has_closed: log.has_unsynced_segments(), is_flush_due: log.is_flush_due() })
}

/// The deliberate fault: appends after some time, and returns at once what an append would have returned.
#[cold]
fn append_later(
    cluster: &Arc<Cluster>,
    partition: &Arc<Partition>,
    now_ms: i64,
    records: BytesMut,
    check: Check,
) -> Appended {
    let (base_offset, log_start_offset) = {
        let log = partition.log();
        (log.end_offset(), log.start_offset())
    };
    let count = BatchHeader::parse(&records).map_or(1, |header| i64::from(header.record_count));
    let bytes = records.len();
    let (cluster_then, partition) = (cluster.clone(), partition.clone());
    let later = async move {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        let log = cluster_then.log_with_files(&partition);
        let (_, pending) = append_one(
            &cluster_then,
            &partition,
            log,
            now_ms,
            (records, None),
            check,
            Transactional::Refused,
        );
        cluster_then.start_sync(&partition, pending.has_closed);
    };
    cluster.syncs.lock().unwrap_or_else(std::sync::PoisonError::into_inner).spawn(later);
    Appended {
        base_offset,
        last_offset: base_offset + count - 1,
        log_append_time: None,
        log_start_offset,
        records: count as u64,
        bytes,
        duplicate: false,
    }
}

fn answer(
    index: i32,
    partition: Option<&Partition>,
    result: Result<Appended, (ErrorCode, Option<String>)>,
    version: i16,
) -> PartitionProduceResponse {
    match result {
        Ok(appended) => PartitionProduceResponse {
            index,
            base_offset: appended.base_offset,
            log_append_time_ms: appended.log_append_time.unwrap_or(-1),
            log_start_offset: appended.log_start_offset,
            ..Default::default()
        },
        Err((error_code, error_message)) => {
            let mut answer = PartitionProduceResponse {
                index,
                error_code,
                base_offset: -1,
                error_message,
                ..Default::default()
            };
            if let (ErrorCode::NotLeaderOrFollower, Some(partition), true) =
                (error_code, partition, version >= 10)
            {
                answer.current_leader = LeaderIdAndEpoch {
                    leader_id: partition.leader(),
                    leader_epoch: partition.leader_epoch(),
                };
            }
            answer
        }
    }
}

/// Adds the endpoint of the leader (KIP-951).
fn hint(response: &mut ProduceResponse, context: &RequestContext, leader: i32) {
    let Some(node) = context.cluster().node(leader) else { return };
    if response.node_endpoints.iter().all(|endpoint| endpoint.node_id != leader) {
        let (host, port) = context.address_of(node);
        let (port, rack) = (i32::from(port), context.cluster().rack(leader));
        response.node_endpoints.push(NodeEndpoint { node_id: leader, host, port, rack });
    }
}

/// The request's bytes.
enum Frame {
    Ours(BytesMut),
    Shared(Bytes),
}

impl Frame {
    fn new(frame: Bytes) -> Self {
        match frame.try_into_mut() {
            Ok(frame) => Self::Ours(frame),
            Err(frame) => Self::Shared(frame),
        }
    }
}

/// The rest of the frame after the parts that were taken from it.
struct Rest {
    at: usize,
    frame: Frame,
}

impl Rest {
    /// The memory that each part keeps, if parts are not copied.
    fn owned_bytes(&self) -> usize {
        match &self.frame {
            Frame::Ours(frame) => frame.capacity(),
            Frame::Shared(_) => 0,
        }
    }

    /// Returns the bytes at `at` for changes. Parts must be taken in the order of the frame.
    fn cut(&mut self, at: usize, len: usize) -> BytesMut {
        match &mut self.frame {
            Frame::Ours(rest) if at >= self.at && at - self.at + len <= rest.len() => {
                let _ = rest.split_to(at - self.at);
                self.at = at + len;
                rest.split_to(len)
            }
            Frame::Ours(_) => BytesMut::new(),
            Frame::Shared(frame) => frame.get(at..at + len).map(BytesMut::from).unwrap_or_default(),
        }
    }
}
