//! Fetch: returns record batches from an offset on, and waits if there are too few bytes.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use ottla_log::{ColdRead, CommittedRead, Grown, LeftOut, Log, ReadError, ReadPlan};
use ottla_protocol::messages::fetch::{
    AbortedTransaction, EpochEndOffset, FetchPartition, FetchRequest, FetchResponse, FetchableTopicResponse,
    LeaderIdAndEpoch, NodeEndpoint, PartitionData,
};
use ottla_protocol::{ApiKey, ErrorCode, Uuid};
use ottla_wire::Chain;
use tokio::time::Instant;

use super::reader::{Isolation, Reader};
use super::{Api, RequestContext};
use crate::cluster::Cluster;
use crate::fetch_sessions::{FetchSessions, Name, Said, Selected, TopicName, Wanted};
use crate::memory::Charge;
use crate::partition::{Partition, Syncer};
use crate::quotas::Throttled;
use crate::request_memory::{ABORTED_TRANSACTIONS_MAX, is_charged};
use crate::security::acl::{CLUSTER_NAME, Operation, ResourceType};
use crate::topics::Topic;

/// The longest wait of a request that holds memory of the budget.
pub(super) const CHARGED_WAIT_MAX: Duration = Duration::from_secs(1);

/// The longest wait of a fetch for the memory of its session. Clients wait 30 seconds for a response.
const SESSION_WAIT_MAX: Duration = Duration::from_secs(10);

/// The first version whose consumers may read from any replica, and may be redirected to one (KIP-392).
const REPLICAS_FROM: i16 = 11;

/// The first version with sessions, and with an error of the whole response.
const SESSIONS_FROM: i16 = 7;

/// The errors of a session, which no partition has.
const SESSION_ERRORS: [ErrorCode; 3] = [
    ErrorCode::FetchSessionIdNotFound,
    ErrorCode::FetchSessionTopicIdError,
    ErrorCode::InvalidFetchSessionEpoch,
];

/// The longest wait for records.
pub(super) fn wait_max(max_wait_ms: i32, is_charged: bool) -> Duration {
    let wanted = Duration::from_millis(max_wait_ms.max(0) as u64);
    if is_charged { wanted.min(CHARGED_WAIT_MAX) } else { wanted }
}

/// A partition of the request and its state on this broker.
struct Target {
    name: Arc<Name>,
    wanted: Wanted,
    partition: Result<Arc<Partition>, ErrorCode>,
    /// `true` for a fetch of a follower, which only the leader answers.
    is_of_replica: bool,
    /// The error that a test has set for this request.
    injected: Option<ErrorCode>,
}

impl Api for FetchRequest {
    async fn handle(self, context: RequestContext) -> FetchResponse {
        let cluster = context.cluster().clone();
        let Some(node) = cluster.node(context.node()) else {
            return self.refuse(&context, ErrorCode::UnknownServerError);
        };
        let (selected, charge) = match select(&self, &context, &node.sessions).await {
            Ok(selected) => selected,
            Err(code) => return FetchResponse { error_code: code, ..Default::default() },
        };
        let is_charged = charge.is_some() || is_charged(context.frame.len());
        let Selected { session_id, incremental, partitions } = selected;
        let mut last = None;
        let is_replica = self.replica_id >= 0 || self.replica_state.replica_id >= 0;
        let targets = partitions.into_iter();
        let targets = targets.map(|(name, wanted)| find(&context, is_replica, name, wanted, &mut last));
        let targets: Vec<Target> = targets.collect();
        let reader = Reader::of(&self, &context, is_replica);
        let deadline = Instant::now() + wait_max(self.max_wait_ms, is_charged);
        let (mut answers, bytes) = read_or_wait(&context, &self, &targets, &reader, deadline).await;
        let throttle_time_ms = cluster.overrides.throttle_ms();
        if let Some(throttle) = context.throttle_fetch(bytes) {
            // As in Kafka, nothing of the session has changed for the client. A new session begins with its next request.
            if !incremental {
                node.sessions.end(session_id);
            }
            let session_id = if incremental { session_id } else { 0 };
            let mut response = FetchResponse { session_id, throttle_time_ms, ..Default::default() };
            response.throttle(throttle);
            return response;
        }
        cluster.metrics.fetched(bytes);
        let mut response = FetchResponse { session_id, throttle_time_ms, ..Default::default() };
        let is_new = |target: &Target, data: &PartitionData| {
            data.high_watermark != target.wanted.high_watermark
                || data.log_start_offset != target.wanted.log_start_offset
        };
        let mut errors = cluster.overrides.fetch_errors();
        for (target, data) in targets.iter().zip(&mut answers) {
            let arranged = errors.iter().position(|error| is_about(error, target));
            if let Some((.., code)) = arranged.map(|at| errors.swap_remove(at)) {
                *data = failed(target.name.partition, code);
            }
        }
        let pairs = targets.iter().zip(&answers);
        let said = pairs.filter(|(target, data)| data.error_code != ErrorCode::None || is_new(target, data));
        node.sessions.note(session_id, said.map(|(target, data)| Said::of(&target.name, data)));
        for (target, data) in targets.iter().zip(answers) {
            let news = data.error_code != ErrorCode::None
                || data.records.as_ref().is_some_and(|records| !records.is_empty())
                || data.preferred_read_replica >= 0
                || data.diverging_epoch.end_offset >= 0
                || is_new(target, &data);
            if context.version >= 16 && data.current_leader.leader_id >= 0 {
                hint(&mut response, &context, data.current_leader.leader_id);
            }
            if news || !incremental {
                add(&mut response, &target.name, data);
            }
        }
        for (topic, index, code) in errors {
            let Some(topic) = cluster.topic(&topic) else { continue };
            let (topic, id) = (TopicName::new(&topic.name), topic.id.0);
            let name = Name { topic, id, partition: index, known_as: None };
            add(&mut response, &name, failed(index, code));
        }
        response
    }

    fn moved_records(response: &FetchResponse) -> bool {
        let mut partitions = response.responses.iter().flat_map(|topic| &topic.partitions);
        partitions.any(|partition| partition.records.as_ref().is_some_and(|records| !records.is_empty()))
    }

    /// Every partition of the request and of its session has the error, and the session continues. An error of sessions ends it:
    /// it is the error of the response.
    fn refuse(self, context: &RequestContext, code: ErrorCode) -> FetchResponse {
        let whole = |error_code| FetchResponse { error_code, ..Default::default() };
        let cluster = context.cluster();
        let is_of_session = context.version >= SESSIONS_FROM && SESSION_ERRORS.contains(&code);
        let Some(node) = cluster.node(context.node()).filter(|_| !is_of_session) else { return whole(code) };
        let remembered = node.sessions.remembered(&self);
        let name_of = |id| topic_name(context, id);
        match node.sessions.select(&self, remembered, context.version, Instant::now(), name_of) {
            Ok(Selected { session_id, partitions, .. }) => {
                // librdkafka's mock cluster has the error in both places.
                let error_code = if cluster.overrides.mock_fetches() { code } else { ErrorCode::None };
                let mut response = FetchResponse { session_id, error_code, ..Default::default() };
                node.sessions.note(session_id, partitions.iter().map(|(name, _)| Said::refused(name)));
                for (name, _) in &partitions {
                    add(&mut response, name, failed(name.partition, code));
                }
                response
            }
            Err(code) => whole(code),
        }
    }
}

/// Finds the partitions of a request and of its session, and takes memory for the latter if they are many.
async fn select(
    request: &FetchRequest,
    context: &RequestContext,
    sessions: &FetchSessions,
) -> Result<(Selected, Option<Charge>), ErrorCode> {
    let remembered = sessions.remembered(request);
    let charge = match remembered.charge() {
        // Boxed: other requests do not need its memory.
        Some(bytes) => {
            let charge = Box::pin(charge_session(context, bytes)).await;
            Some(charge.ok_or(ErrorCode::FetchSessionIdNotFound)?)
        }
        None => None,
    };
    let name_of = |id| topic_name(context, id);
    let selected = sessions.select(request, remembered, context.version, Instant::now(), name_of)?;
    Ok((selected, charge))
}

fn topic_name(context: &RequestContext, id: Uuid) -> Option<Arc<str>> {
    Some(context.cluster().topic_by_id(id)?.name.clone())
}

/// Waits for the memory of a fetch of the partitions of a session, and for room for its response. Returns `None` if there is none in
/// time: the session counts as not found.
///
/// A request that has memory of its own does not wait for more, because others could wait for its part. The client then begins again
/// with a request that names all partitions.
pub(super) async fn charge_session(context: &RequestContext, bytes: usize) -> Option<Charge> {
    let (memory, client) = (&context.cluster().memory, context.connection.client_host());
    let charge = if is_charged(context.frame.len()) {
        memory.try_charge(client, bytes)
    } else {
        tokio::time::timeout(SESSION_WAIT_MAX, memory.charge(client, bytes)).await.ok()
    };
    let charge = charge?;
    drop(memory.room_for_response(client).await);
    Some(charge)
}

/// Reads until there are enough bytes, or until the time of the request is over.
async fn read_or_wait(
    context: &RequestContext,
    request: &FetchRequest,
    targets: &[Target],
    reader: &Reader,
    deadline: Instant,
) -> (Vec<PartitionData>, usize) {
    let cluster = context.cluster();
    let bytes_max = (request.max_bytes.max(0) as usize).min(cluster.config.fetch_bytes_max);
    let bytes_max = bytes_max.min(context.fetch_burst());
    // As in Kafka: more bytes than a response can have would never come. Unlike in Kafka, it waits for one batch, which has room in any:
    // an empty answer at once would be asked for again at once.
    let bytes_min = (request.min_bytes.max(0) as usize).min(bytes_max.max(1));
    // Batches that another process wrote are checked before they are served, which may read much from the disk.
    let mut unchecked = match cluster.syncer {
        Syncer::Thread => Unchecked::Found(Vec::new()),
        Syncer::Inline(_) => Unchecked::ReadHere,
    };
    loop {
        let (answers, bytes, is_enough) =
            read_all(context, targets, reader, (bytes_min, bytes_max), &mut unchecked);
        if let Unchecked::Found(reads) = std::mem::replace(&mut unchecked, Unchecked::ReadHere)
            && !reads.is_empty()
        {
            check_elsewhere(cluster, reads).await;
            continue;
        }
        if cluster.overrides.mock_fetches() {
            let is_redirected = answers.iter().any(|data| data.preferred_read_replica >= 0);
            if bytes == 0 && !is_redirected {
                tokio::time::sleep_until(deadline).await;
            }
            break (answers, bytes);
        }
        if is_enough
            || Instant::now() >= deadline
            || targets.is_empty()
            || !cluster.overrides.fetch_errors().is_empty()
            || cluster.is_draining()
        {
            break (answers, bytes);
        }
        if tokio::time::timeout_at(deadline, any_grown(targets, &answers)).await.is_err() {
            break (answers, bytes);
        }
    }
}

/// Returns `true` if a test has set this error for a requested partition.
fn is_about((topic, index, _): &(String, i32, ErrorCode), target: &Target) -> bool {
    target.partition.as_ref().is_ok_and(|partition| *partition.topic == **topic && partition.index == *index)
}

/// Adds the endpoint of the leader (KIP-951).
fn hint(response: &mut FetchResponse, context: &RequestContext, leader: i32) {
    let Some(node) = context.cluster().node(leader) else { return };
    if response.node_endpoints.iter().all(|endpoint| endpoint.node_id != leader) {
        let (host, port) = context.address_of(node);
        let (port, rack) = (i32::from(port), context.cluster().rack(leader));
        response.node_endpoints.push(NodeEndpoint { node_id: leader, host, port, rack });
    }
}

/// A topic, or why there is none, and a partition that names it.
type FoundTopic = (Arc<Name>, Result<Arc<Topic>, ErrorCode>);

/// Finds a partition. Adjacent partitions usually belong to the same topic, which is kept in `last`, found or not.
fn find(
    context: &RequestContext,
    is_replica: bool,
    name: Arc<Name>,
    wanted: Wanted,
    last: &mut Option<FoundTopic>,
) -> Target {
    let cluster = context.cluster();
    let allowed = |topic: Arc<Topic>| {
        if may_read(context, is_replica, &topic.name) {
            Ok(topic)
        } else {
            Err(ErrorCode::TopicAuthorizationFailed)
        }
    };
    let same = |other: &Name| other.id == name.id && other.topic == name.topic;
    let topic = match last {
        Some((other, topic)) if same(other) => topic.clone(),
        _ if context.version >= 13 => match (cluster.topic_by_id(name.topic_id()), &name.known_as) {
            (Some(topic), _) => allowed(topic),
            // As in Kafka, a session remembers the name of a topic that is deleted.
            (None, Some(known_as)) if !may_read(context, is_replica, known_as) => {
                Err(ErrorCode::TopicAuthorizationFailed)
            }
            (None, Some(known_as)) if cluster.topic(known_as).is_some() => {
                Err(ErrorCode::InconsistentTopicId)
            }
            (None, Some(_)) => Err(ErrorCode::UnknownTopicOrPartition),
            (None, None) => Err(ErrorCode::UnknownTopicId),
        },
        _ => match cluster.topic(&name.topic) {
            Some(topic) => allowed(topic),
            // A client without the right to read does not learn that the topic is missing.
            None if may_read(context, is_replica, &name.topic) => Err(ErrorCode::UnknownTopicOrPartition),
            None => Err(ErrorCode::TopicAuthorizationFailed),
        },
    };
    let exists = |topic: &Arc<str>| cluster.partition(topic, name.partition).is_some();
    let partition = match &topic {
        Ok(topic) => {
            let at = usize::try_from(name.partition).ok();
            let found = at.and_then(|at| topic.partitions.get(at)).cloned();
            found.ok_or(ErrorCode::UnknownTopicOrPartition)
        }
        // The new topic of that name has fewer partitions.
        Err(ErrorCode::InconsistentTopicId) if !name.known_as.as_ref().is_some_and(exists) => {
            Err(ErrorCode::UnknownTopicOrPartition)
        }
        Err(code) => Err(*code),
    };
    *last = Some((name.clone(), topic));
    let mut target = Target { name, wanted, partition, is_of_replica: is_replica, injected: None };
    target.injected = target.partition.as_ref().ok().and_then(|found| take_error(context, found, &target));
    target
}

/// Returns the error of a fetch at this node, if there is one. As in Kafka, any replica answers consumers: all are in sync, because they
/// share the log.
fn check_node(context: &RequestContext, partition: &Partition, target: &Target) -> Result<(), ErrorCode> {
    let (cluster, node) = (context.cluster(), context.node());
    let epoch = target.wanted.requested.current_leader_epoch;
    if target.is_of_replica || context.version < REPLICAS_FROM || cluster.overrides.mock_fetches() {
        cluster.check_leader(partition, node, epoch)
    } else {
        cluster.check_replica(partition, node, epoch)
    }
}

/// Takes the next error that a test has set for fetches of a partition, if this node serves it.
fn take_error(context: &RequestContext, partition: &Partition, target: &Target) -> Option<ErrorCode> {
    let (overrides, node) = (&context.cluster().overrides, context.node());
    if !overrides.has_partition_errors() {
        return None;
    }
    let is_served = check_node(context, partition, target).is_ok();
    let follower = overrides.follower(&partition.topic, partition.index);
    if !is_served && follower.is_none_or(|follower| follower.node != Some(node)) {
        return None;
    }
    overrides.take_partition_error(ApiKey::Fetch, &partition.topic, partition.index)
}

/// Replicas need CLUSTER_ACTION, consumers need READ.
fn may_read(context: &RequestContext, is_replica: bool, topic: &str) -> bool {
    if is_replica {
        context.may(Operation::ClusterAction, ResourceType::Cluster, CLUSTER_NAME)
    } else {
        context.may(Operation::Read, ResourceType::Topic, topic)
    }
}

/// The treatment of reads whose batches must be checked first.
enum Unchecked {
    /// The reads are collected and checked on a thread that may block.
    Found(Vec<ColdRead>),
    /// The read checks the batches.
    ReadHere,
}

/// Checks batches before they are served, on a thread that may block. The read itself reports the damage again. The processor time counts
/// for the quota of the client.
pub(super) async fn check_elsewhere(cluster: &Arc<Cluster>, reads: Vec<ColdRead>) {
    let check = cluster.charged(move |_: &Cluster| {
        for read in reads {
            if let Err(error) = read.run() {
                tracing::debug!(%error, "checked before it is served");
            }
        }
    });
    #[expect(clippy::disallowed_methods, reason = "reads from a disk block; only production does this")]
    let done = tokio::task::spawn_blocking(check).await;
    if let Err(error) = done {
        tracing::error!(%error, "the check of batches did not end");
    }
}

/// Reads the available batches. Returns the answers, their bytes, and `true` if they do not wait for more.
///
/// As in Kafka, the available bytes have to reach `bytes_min`, not the bytes that were read: what has no room does not come later. A read
/// in an older segment than the newest record does not wait, either.
fn read_all(
    context: &RequestContext,
    targets: &[Target],
    reader: &Reader,
    (bytes_min, bytes_max): (usize, usize),
    unchecked: &mut Unchecked,
) -> (Vec<PartitionData>, usize, bool) {
    let (mut bytes, mut left, mut available) = (0, bytes_max, 0);
    let mut aborted_left = ABORTED_TRANSACTIONS_MAX;
    let mut urgent = false;
    let answers = targets
        .iter()
        .map(|target| {
            let want = &target.wanted.requested;
            let partition_max = (want.partition_max_bytes.max(0) as usize).min(left);
            let mut left_out = LeftOut::Nothing;
            let data = match &target.partition {
                Ok(partition) => {
                    let (is_first, aborted_transactions) = (bytes == 0, aborted_left);
                    let room = Room { bytes: left, bytes_min, is_first, aborted_transactions };
                    read_one(context, partition, target, reader, room, unchecked, &mut left_out)
                }
                Err(code) => failed(target.name.partition, *code),
            };
            let read = data.records.as_ref().map_or(0, Chain::len);
            bytes += read;
            available += if left_out == LeftOut::NoRoom { read.max(partition_max) } else { read };
            left = left.saturating_sub(read);
            let aborted = data.aborted_transactions.as_ref().map_or(0, Vec::len);
            aborted_left = aborted_left.saturating_sub(aborted);
            // The next batch is too large for what is left, and to look for a smaller one in each of the other
            // partitions would cost more than it brings.
            let stopped = bytes > 0
                && read == 0
                && data.error_code == ErrorCode::None
                && data.preferred_read_replica < 0
                && want.fetch_offset < reader.isolation.end(&data)
                && left < want.partition_max_bytes.max(0) as usize;
            if stopped {
                left = 0;
            }
            // A read that was cut for the list has no more bytes to wait for.
            urgent |= aborted_left == 0
                || left_out == LeftOut::LaterSegments
                || data.error_code != ErrorCode::None
                || data.diverging_epoch.end_offset >= 0
                || data.preferred_read_replica >= 0;
            data
        })
        .collect();
    (answers, bytes, urgent || available >= bytes_min)
}

/// The room in an answer.
#[derive(Clone, Copy, Debug)]
struct Room {
    bytes: usize,
    /// The bytes for which the request waits: with as many, it does not matter what is left out.
    bytes_min: usize,
    /// `true` if the answer has no records yet: one batch has room then, however large it is.
    is_first: bool,
    /// Entries in the lists of aborted transactions.
    aborted_transactions: usize,
}

fn read_one(
    context: &RequestContext,
    partition: &Partition,
    target: &Target,
    reader: &Reader,
    room: Room,
    unchecked: &mut Unchecked,
    left_out: &mut LeftOut,
) -> PartitionData {
    let want = &target.wanted.requested;
    let follower = context.cluster().overrides.follower(&partition.topic, partition.index);
    let follows = follower.as_ref().is_some_and(|follower| follower.node == Some(context.node()))
        && partition.leader() != context.node();
    if follows {
        // The replica has the leader's records, up to the limit that a test has set.
    } else if let Err(code) = check_node(context, partition, target) {
        return refused(context, partition, want.partition, code);
    }
    if let Some(code) = target.injected {
        return refused(context, partition, want.partition, code);
    }
    let bounds = follower.as_ref().filter(|_| follows);
    let high_watermark = partition.high_watermark();
    let high_watermark =
        bounds.and_then(|it| it.high).map_or(high_watermark, |high| high.min(high_watermark));
    // Only the leader redirects consumers to another replica.
    let is_redirecting = partition.leader() == context.node() && context.version >= REPLICAS_FROM;
    let set_by_test = follower.and_then(|follower| follower.node);
    let in_rack = match set_by_test {
        None if is_redirecting => reader.replica_in_rack(context.cluster(), partition),
        _ => None,
    };
    let mut log = context.cluster().log_with_files(partition);
    if partition.is_deleted() {
        // The log went offline with its topic.
        return failed(want.partition, ErrorCode::UnknownTopicOrPartition);
    }
    let low = log.start_offset();
    let low = bounds.and_then(|it| it.low).map_or(low, |it| it.max(low));
    let mut data = PartitionData {
        partition_index: want.partition,
        high_watermark,
        last_stable_offset: log.last_stable_offset(high_watermark),
        log_start_offset: low,
        aborted_transactions: (reader.isolation == Isolation::Committed).then(Vec::new),
        records: Some(Chain::new()),
        ..Default::default()
    };
    // As in Kafka, an offset that no replica has is for the leader to refuse.
    let in_rack = in_rack.filter(|_| (low..=log.end_offset()).contains(&want.fetch_offset));
    // A replica that is down has no client.
    let can_read = |node: &i32| *node != context.node() && context.cluster().is_node_up(*node);
    let elsewhere = set_by_test.filter(can_read).or(in_rack);
    if let Some(node) = elsewhere.filter(|_| is_redirecting) {
        data.preferred_read_replica = node;
        return data;
    }
    if follows && !(low..=high_watermark).contains(&want.fetch_offset) {
        return failed(want.partition, ErrorCode::OffsetOutOfRange);
    }
    if want.last_fetched_epoch >= 0 && want.fetch_offset >= low {
        match partition.epoch_end(&log, want.last_fetched_epoch) {
            // The client's last record is from an epoch that ended earlier in this log, so the client must truncate (KIP-595).
            Some((epoch, end_offset))
                if epoch < want.last_fetched_epoch || end_offset < want.fetch_offset =>
            {
                data.diverging_epoch = EpochEndOffset { epoch, end_offset };
                return data;
            }
            Some(_) => {}
            // As in Kafka: the record is of a log that this one does not know.
            None => return failed(want.partition, ErrorCode::OffsetOutOfRange),
        }
    }
    *left_out = read_records(&mut log, want, reader.isolation, room, unchecked, &mut data);
    data
}

/// The answer for a partition that is not read, with its leader if the client may have to find another one.
fn refused(context: &RequestContext, partition: &Partition, index: i32, code: ErrorCode) -> PartitionData {
    let overrides = &context.cluster().overrides;
    let mut data = failed(index, code);
    let names_leader = match code {
        ErrorCode::UnknownTopicOrPartition => false,
        ErrorCode::NotLeaderOrFollower => true,
        _ => !overrides.mock_fetches(),
    };
    if context.version >= 12 && names_leader {
        let set_by_test = overrides.leader_told(&partition.topic, partition.index);
        let (leader_id, leader_epoch) =
            set_by_test.unwrap_or_else(|| (partition.leader(), partition.leader_epoch()));
        data.current_leader = LeaderIdAndEpoch { leader_id, leader_epoch };
    }
    data
}

/// Reads the records of a partition into its answer, unless their batches must be checked first. Returns what was left out.
fn read_records(
    log: &mut Log,
    want: &FetchPartition,
    isolation: Isolation,
    room: Room,
    unchecked: &mut Unchecked,
    data: &mut PartitionData,
) -> LeftOut {
    let bytes_max = (want.partition_max_bytes.max(0) as usize).min(room.bytes);
    let (first, end) = (room.is_first, isolation.end(data));
    let plan = match unchecked {
        Unchecked::Found(_) => log.plan_read(want.fetch_offset, bytes_max, end, first).map(Some),
        Unchecked::ReadHere => Ok(None),
    };
    let read = match (plan, unchecked) {
        (Ok(Some(ReadPlan::Ready(read))), _) => Ok(read),
        (Ok(Some(ReadPlan::Cold(read))), Unchecked::Found(reads)) if read.is_unchecked() => {
            reads.push(read);
            return LeftOut::Nothing;
        }
        (Ok(Some(ReadPlan::Cold(_)) | None), _) => log.read(want.fetch_offset, bytes_max, end, first),
        (Err(error), _) => Err(error),
    };
    let read = read.and_then(|read| {
        if isolation == Isolation::Uncommitted {
            return Ok(read);
        }
        let CommittedRead { read, aborted } =
            log.aborted_in(want.fetch_offset, read, end, room.aborted_transactions, first)?;
        data.aborted_transactions = Some(aborted.iter().map(aborted_transaction).collect());
        Ok(read)
    });
    match read {
        Ok(read) => {
            let is_enough = read.chain.len() >= room.bytes_min;
            let left_out =
                if is_enough { LeftOut::Nothing } else { log.left_out(want.fetch_offset, &read, end, first) };
            data.records = Some(read.chain);
            left_out
        }
        Err(error) => {
            // As in Kafka, without the offsets of the partition.
            *data = failed(want.partition, code_of_failed_read(&error));
            LeftOut::Nothing
        }
    }
}

/// The consumer skips the records of this producer from this offset to the next abort marker.
fn aborted_transaction(aborted: &ottla_log::AbortedTransaction) -> AbortedTransaction {
    AbortedTransaction { producer_id: aborted.producer_id, first_offset: aborted.first_offset }
}

/// Logs why a read failed and returns its error code. The code that finds damage logs it, once.
fn code_of_failed_read(error: &ReadError) -> ErrorCode {
    match error {
        ReadError::OutOfRange { .. } | ReadError::Corrupt { .. } => tracing::debug!(%error, "cannot read"),
        ReadError::Io { .. } | ReadError::Offline { .. } => tracing::error!(%error, "cannot read"),
    }
    code_of(error)
}

/// Waits until one of the partitions has more records than the answers contain.
async fn any_grown(targets: &[Target], answers: &[PartitionData]) {
    let mut waits: Vec<Grown> = targets
        .iter()
        .zip(answers)
        .filter_map(|(target, data)| Some(target.partition.as_ref().ok()?.tail().grown(data.high_watermark)))
        .collect();
    // The caller checks again, because a wake-up can have other causes than new records, for example a new leader.
    let mut looked = false;
    poll_fn(move |cx| {
        let grown = waits.iter_mut().any(|wait| Pin::new(wait).poll(cx).is_ready());
        if grown || looked {
            return Poll::Ready(());
        }
        looked = true;
        Poll::Pending
    })
    .await;
}

fn add(response: &mut FetchResponse, name: &Name, data: PartitionData) {
    // The partitions of a topic are usually adjacent. A topic that is repeated later is no error.
    match response
        .responses
        .last_mut()
        .filter(|topic| topic.topic_id == name.topic_id() && topic.topic == *name.topic)
    {
        Some(topic) => topic.partitions.push(data),
        None => response.responses.push(FetchableTopicResponse {
            topic: name.topic.to_string(),
            topic_id: name.topic_id(),
            partitions: vec![data],
        }),
    }
}

fn failed(partition_index: i32, error_code: ErrorCode) -> PartitionData {
    PartitionData {
        partition_index,
        error_code,
        high_watermark: -1,
        records: Some(Chain::new()),
        ..Default::default()
    }
}

fn code_of(error: &ReadError) -> ErrorCode {
    match error {
        ReadError::OutOfRange { .. } => ErrorCode::OffsetOutOfRange,
        ReadError::Corrupt { .. } | ReadError::Io { .. } | ReadError::Offline { .. } => {
            ErrorCode::KafkaStorageError
        }
    }
}
