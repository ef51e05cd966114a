//! ShareFetch: acknowledges records, acquires the next ones, and waits if there are none.

use std::collections::{BTreeMap, BTreeSet};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use ottla_log::{ColdRead, Grown, LeftOut};
use ottla_protocol::messages::share_fetch::{
    AcknowledgementBatch, AcquiredRecords, LeaderIdAndEpoch, NodeEndpoint, PartitionData, ShareFetchRequest,
    ShareFetchResponse, ShareFetchableTopicResponse,
};
use ottla_protocol::{ApiKey, ErrorCode};
use ottla_wire::Chain;
use tokio::sync::futures::Notified;
use tokio::time::Instant;

use super::fetch::{charge_session, check_elsewhere, wait_max};
use super::pace::Pace;
use super::share_sessions::{
    AckResults, RawAcks, acknowledge, close_session, current_leader, find, is_of_whole_request, open_session,
    session_limits, session_of,
};
use super::{Api, RequestContext};
use crate::coordinator::share_partition::leader::LedPartition;
use crate::coordinator::share_partition::sessions::{FINAL_EPOCH, INITIAL_EPOCH, Place, SessionKey};
use crate::coordinator::share_partition::settings::{ShareSettings, settings_of};
use crate::coordinator::share_partition::{AcquireMode, Acquired, Acquirer, ShareFetched, ShareRead};
use crate::coordinator::share_state::SharePartitionKey;
use crate::fetch_sessions::Remembered;
use crate::partition::{Partition, Syncer};
use crate::quotas::Throttled;
use crate::request_memory::is_charged;

/// The number of the mode in which a member gets no record more than it wants.
const RECORD_LIMIT: i8 = 1;
/// A partition whose state is not available yet is looked at again after this time.
const LOAD_RETRY_AFTER: Duration = Duration::from_millis(100);
/// A look at a share partition takes as long as so many usual items of a request.
const ITEMS_PER_LOOK: usize = 4;

/// A partition of the session.
struct Target {
    place: Place,
    partition: Arc<Partition>,
    led: Arc<LedPartition>,
}

/// Records of a partition for the response.
struct Records {
    target: usize,
    chain: Chain,
    acquired: Vec<Acquired>,
}

/// The partitions that can be fetched, and the errors of the others.
#[derive(Default)]
struct Targets {
    ready: Vec<Target>,
    failed: Vec<(Place, ErrorCode)>,
    /// The state of a partition is not available yet.
    is_incomplete: bool,
}

impl Api for ShareFetchRequest {
    async fn handle(self, context: RequestContext) -> ShareFetchResponse {
        if !context.cluster().has_share_groups() {
            return ShareFetchResponse { error_code: ErrorCode::UnsupportedVersion, ..Default::default() };
        }
        match answer(self, &context).await {
            Ok(response) => response,
            Err(error_code) => ShareFetchResponse { error_code, ..Default::default() },
        }
    }

    fn moved_records(response: &ShareFetchResponse) -> bool {
        let mut partitions = response.responses.iter().flat_map(|topic| &topic.partitions);
        partitions.any(|partition| !partition.records.is_empty())
    }

    /// Every partition of the request and of its session has the error, and so have the acknowledgements. The session continues.
    fn refuse(mut self, context: &RequestContext, code: ErrorCode) -> ShareFetchResponse {
        let whole = |error_code| ShareFetchResponse { error_code, ..Default::default() };
        if is_of_whole_request(code) {
            return whole(code);
        }
        let acks = take_acks(&mut self).into_iter().map(|(place, _)| (place, code)).collect();
        let (group, member) = (self.group_id.as_deref(), self.member_id.as_deref());
        let session = session_of(context, group, member, self.share_session_epoch);
        let selected = session.and_then(|session| {
            let remembered = remembered(&self, context, &session);
            select(&self, context, &session, remembered)
        });
        match selected {
            Ok(Selected { places, refused }) => {
                // librdkafka's mock cluster has the error in both places.
                let is_mock = context.cluster().overrides.mock_fetches();
                let mut response = whole(if is_mock { code } else { ErrorCode::None });
                let places = places.into_iter().chain(refused.into_iter().map(|(place, _)| place));
                let failed = places.map(|place| (place, code)).collect();
                add_all(&mut response, context, &[], acks, Vec::new(), failed);
                response
            }
            Err(code) => whole(code),
        }
    }
}

async fn answer(
    mut request: ShareFetchRequest,
    context: &RequestContext,
) -> Result<ShareFetchResponse, ErrorCode> {
    let epoch = request.share_session_epoch;
    let session = session_of(context, request.group_id.as_deref(), request.member_id.as_deref(), epoch)?;
    let acks = take_acks(&mut request);
    check(&request, !acks.is_empty())?;
    // Before the acknowledgements: without memory, the request has no effect, and its client begins again.
    let remembered = remembered(&request, context, &session);
    let charge = match remembered.charge() {
        // Boxed: other requests do not need its memory.
        Some(bytes) => {
            let charge = Box::pin(charge_session(context, bytes)).await;
            Some(charge.ok_or(ErrorCode::ShareSessionNotFound)?)
        }
        None => None,
    };
    let Selected { places, refused } = select(&request, context, &session, remembered)?;
    let cluster = context.cluster();
    let number_now = || cluster.share_leader.with_sessions(|sessions| sessions.number_of(&session));
    let number = number_now();
    let settings = settings_of(cluster, &session.group);
    let results = acknowledge(context, &session, &settings, acks, request.is_renew_ack).await;
    let lock_ms = i32::try_from(settings.limits.lock_duration.as_millis()).unwrap_or(i32::MAX);
    let mut response = ShareFetchResponse {
        throttle_time_ms: cluster.overrides.throttle_ms(),
        acquisition_lock_timeout_ms: lock_ms,
        ..Default::default()
    };
    if epoch == FINAL_EPOCH {
        close_session(context, &session).await?;
        add_all(&mut response, context, &[], results, Vec::new(), Vec::new());
        return Ok(response);
    }
    if request.is_renew_ack {
        // Its member is busy: it wants no records.
        add_all(&mut response, context, &[], results, Vec::new(), refused);
        return Ok(response);
    }
    let fetch = Fetch {
        context,
        request: &request,
        session: &session,
        settings: &settings,
        places: &places,
        refused: &refused,
        is_charged: charge.is_some() || is_charged(context.frame.len()),
    };
    let (targets, mut records) = fetch.read_or_wait().await;
    // Another thread may have ended the session before its number was read.
    if number.is_none() || number_now() != number {
        // The end of its session has released the locks of before only.
        return_unsent(&targets, &session, std::mem::take(&mut records));
        for target in &targets.ready {
            cluster.share_leader.forget_unused(&target.led);
        }
    }
    let bytes = records.iter().map(|records| records.chain.len()).sum();
    match context.throttle_fetch(bytes) {
        Some(throttle) => {
            return_unsent(&targets, &session, std::mem::take(&mut records));
            response.throttle(throttle);
        }
        None => cluster.metrics.fetched(bytes),
    }
    for Records { target, acquired, .. } in &records {
        targets.ready[*target].led.observe_acquired(cluster, &session.member, acquired, &settings);
    }
    // The first response of a session has all partitions.
    let all = if epoch == INITIAL_EPOCH { &places[..] } else { &[] };
    let of_target = |records: Records| (targets.ready[records.target].place, records.chain, records.acquired);
    let records = records.into_iter().map(of_target).collect();
    add_all(&mut response, context, all, results, records, targets.failed);
    Ok(response)
}

/// Returns records that were acquired for a response without them.
fn return_unsent(targets: &Targets, session: &SessionKey, records: Vec<Records>) {
    for Records { target, acquired, .. } in records {
        targets.ready[target].led.return_unsent(&session.member, &acquired);
    }
}

/// Takes the acknowledgements out of a request.
fn take_acks(request: &mut ShareFetchRequest) -> Vec<(Place, Vec<RawAcks>)> {
    let raw = |batch: AcknowledgementBatch| RawAcks {
        first: batch.first_offset,
        last: batch.last_offset,
        types: batch.acknowledge_types,
    };
    let mut acks = Vec::new();
    for topic in &mut request.topics {
        for partition in &mut topic.partitions {
            let batches = std::mem::take(&mut partition.acknowledgement_batches);
            if !batches.is_empty() {
                let place = (topic.topic_id, partition.partition_index);
                acks.push((place, batches.into_iter().map(raw).collect()));
            }
        }
    }
    acks
}

/// Checks a request as Kafka does.
fn check(request: &ShareFetchRequest, has_acks: bool) -> Result<(), ErrorCode> {
    let wants_records = request.max_wait_ms != 0
        || request.min_bytes != 0
        || request.max_bytes != 0
        || request.max_records != 0;
    let acknowledges_nothing_yet = has_acks && request.share_session_epoch == INITIAL_EPOCH;
    if acknowledges_nothing_yet || request.is_renew_ack && wants_records {
        return Err(ErrorCode::InvalidRequest);
    }
    Ok(())
}

/// The partitions of a request.
#[derive(Default)]
struct Selected {
    /// Those of the session.
    places: Vec<Place>,
    /// Those that the request names and that do not exist. They are answered once, and are not in the session.
    refused: Vec<(Place, ErrorCode)>,
}

/// The partitions of the session that a request continues.
fn remembered(request: &ShareFetchRequest, context: &RequestContext, session: &SessionKey) -> Remembered {
    if matches!(request.share_session_epoch, FINAL_EPOCH | INITIAL_EPOCH) {
        return Remembered::new(0);
    }
    let leader = &context.cluster().share_leader;
    Remembered::new(leader.with_sessions(|sessions| sessions.partitions_of(session)))
}

/// Begins, continues or ends the session. The memory of `remembered` partitions is charged.
fn select(
    request: &ShareFetchRequest,
    context: &RequestContext,
    session: &SessionKey,
    remembered: Remembered,
) -> Result<Selected, ErrorCode> {
    let leader = &context.cluster().share_leader;
    let epoch = request.share_session_epoch;
    if epoch == FINAL_EPOCH {
        let exists = leader.with_sessions(|sessions| sessions.contains(session));
        return if exists { Ok(Selected::default()) } else { Err(ErrorCode::ShareSessionNotFound) };
    }
    let (named, refused) = existing(request, context);
    if epoch == INITIAL_EPOCH {
        let places = open_session(context, session.clone(), named)?.to_vec();
        return Ok(Selected { places, refused });
    }
    let forgotten = request.forgotten_topics_data.iter();
    let forgotten: BTreeSet<Place> =
        forgotten.flat_map(|topic| topic.partitions.iter().map(|index| (topic.topic_id, *index))).collect();
    let (limits, named_count) = (session_limits(context), named.len());
    let places =
        leader.with_sessions(|sessions| sessions.update(session, epoch, named, &forgotten, limits))?;
    if remembered.is_exceeded_by(places.len().saturating_sub(named_count)) {
        // Another request has added some while this one waited for memory. No client has two at a time: it begins again.
        return Err(ErrorCode::ShareSessionNotFound);
    }
    let mut places = places.to_vec();
    // As in Kafka, each request begins with another partition.
    if !places.is_empty() {
        let first = epoch as usize % places.len();
        places.rotate_left(first);
    }
    Ok(Selected { places, refused })
}

/// The partitions that a request names, and the errors of those that do not exist: a client could make up a million of them.
fn existing(request: &ShareFetchRequest, context: &RequestContext) -> (Vec<Place>, Vec<(Place, ErrorCode)>) {
    let (mut named, mut refused) = (Vec::new(), Vec::new());
    for topic in &request.topics {
        let known = context.cluster().topic_by_id(topic.topic_id);
        for partition in &topic.partitions {
            let index = partition.partition_index;
            let place = (topic.topic_id, index);
            match &known {
                None => refused.push((place, ErrorCode::UnknownTopicId)),
                Some(known) if usize::try_from(index).is_ok_and(|at| at < known.partitions.len()) => {
                    named.push(place);
                }
                Some(_) => refused.push((place, ErrorCode::UnknownTopicOrPartition)),
            }
        }
    }
    (named, refused)
}

/// A fetch of the partitions of a session.
struct Fetch<'a> {
    context: &'a RequestContext,
    request: &'a ShareFetchRequest,
    session: &'a SessionKey,
    settings: &'a ShareSettings,
    places: &'a [Place],
    refused: &'a [(Place, ErrorCode)],
    /// The request holds memory that others may wait for.
    is_charged: bool,
}

/// The result of a look at all partitions.
#[derive(Default)]
struct Looked {
    records: Vec<Records>,
    failed: Vec<(Place, ErrorCode)>,
    /// Batches that must be checked before they are read.
    unchecked: Vec<ColdRead>,
    /// A share partition must be loaded again.
    has_closed: bool,
    /// The bytes that partitions could have had besides those that were read, if batches of them had no room.
    left_out_bytes: usize,
    /// A read has left out records of later segments.
    has_later_segments: bool,
}

impl Looked {
    /// Returns `true` if the available bytes are enough for an answer. As in Kafka, what had no room counts, and records in later segments
    /// are enough.
    fn has_bytes(&self, min: usize) -> bool {
        let read: usize = self.records.iter().map(|records| records.chain.len()).sum();
        self.has_later_segments || read + self.left_out_bytes >= min
    }

    /// Returns `true` if there is something to answer.
    fn has_news(&self) -> bool {
        !self.records.is_empty() || !self.failed.is_empty()
    }
}

/// The manner of a look.
#[derive(Clone, Copy)]
struct Manner {
    reads_unchecked: bool,
    only_looks: bool,
}

impl Fetch<'_> {
    /// Reads until there are records, or until the time of the request is over.
    async fn read_or_wait(&self) -> (Targets, Vec<Records>) {
        let (request, cluster) = (self.request, self.context.cluster());
        let deadline = Instant::now() + wait_max(request.max_wait_ms, self.is_charged);
        let checks_first = matches!(cluster.syncer, Syncer::Thread);
        let mut reads_unchecked = !checks_first;
        loop {
            let mut targets = self.targets().await;
            let is_late = Instant::now() >= deadline || cluster.is_draining();
            let (looked, wait) = {
                // Before the look: a change after it ends the wait.
                let changes = targets.ready.iter().map(|target| Box::pin(target.led.changed())).collect();
                let ends = targets.ready.iter().map(end_of).collect();
                let looked = self.look(&targets, reads_unchecked, is_late).await;
                reads_unchecked = !checks_first;
                let is_over =
                    looked.has_news() || !targets.failed.is_empty() || is_late || self.wants_nothing();
                let is_over = is_over || targets.ready.is_empty() && !targets.is_incomplete;
                if !is_over && looked.unchecked.is_empty() && !looked.has_closed {
                    let lock_ends = targets.ready.iter().filter_map(|target| target.led.next_lock_end());
                    let retry = targets.is_incomplete.then(|| Instant::now() + LOAD_RETRY_AFTER);
                    let until = lock_ends.chain(retry).min().map_or(deadline, |end| end.min(deadline));
                    // The loop looks at the time again.
                    drop(tokio::time::timeout_at(until, any_changed(changes, ends)).await);
                }
                (looked, is_over)
            };
            if wait {
                targets.failed.extend(looked.failed);
                return (targets, looked.records);
            }
            if !looked.unchecked.is_empty() {
                check_elsewhere(cluster, looked.unchecked).await;
                reads_unchecked = true;
            }
        }
    }

    /// Finds and loads the partitions.
    async fn targets(&self) -> Targets {
        let cluster = self.context.cluster();
        let mut targets = Targets { failed: self.refused.to_vec(), ..Default::default() };
        let mut pace = Pace::default();
        for place in self.places {
            pace.step_by(ITEMS_PER_LOOK).await;
            let partition = match find(self.context, *place) {
                Ok(partition) => partition,
                Err(code) => {
                    targets.failed.push((*place, code));
                    continue;
                }
            };
            let arranged =
                cluster.overrides.take_partition_error(ApiKey::ShareFetch, &partition.topic, place.1);
            if let Some(code) = arranged {
                targets.failed.push((*place, code));
                continue;
            }
            let key =
                SharePartitionKey { group: self.session.group.clone(), topic: place.0, partition: place.1 };
            match cluster.share_leader.load(cluster, &key, &partition, self.settings).await {
                Ok(led) => targets.ready.push(Target { place: *place, partition, led }),
                Err(ErrorCode::CoordinatorNotAvailable | ErrorCode::CoordinatorLoadInProgress) => {
                    targets.is_incomplete = true;
                }
                Err(ErrorCode::FencedLeaderEpoch) => {
                    targets.failed.push((*place, ErrorCode::NotLeaderOrFollower));
                }
                // Kafka's answer to a state that the group coordinator has not initialized.
                Err(ErrorCode::InvalidRequest) => {
                    targets.failed.push((*place, ErrorCode::UnknownServerError));
                }
                Err(code) => targets.failed.push((*place, code)),
            }
        }
        targets
    }

    fn wants_nothing(&self) -> bool {
        self.request.max_records <= 0 || self.request.max_bytes <= 0
    }

    /// Reads and acquires what there is, if it has enough bytes or the request does not wait longer.
    async fn look(&self, targets: &Targets, reads_unchecked: bool, is_late: bool) -> Looked {
        if self.wants_nothing() {
            return Looked::default();
        }
        // As in Kafka: more bytes than a response can have would never come.
        let bytes_max = self.bytes_max(targets) * targets.ready.len();
        let min_bytes = (self.request.min_bytes.max(0) as usize).min(bytes_max);
        if min_bytes > 1 && !is_late {
            let found = self.look_at_all(targets, Manner { reads_unchecked, only_looks: true }).await;
            if !found.failed.is_empty() || !found.unchecked.is_empty() || found.has_closed {
                return Looked { records: Vec::new(), ..found };
            }
            if !found.has_bytes(min_bytes) {
                return Looked::default();
            }
        }
        self.look_at_all(targets, Manner { reads_unchecked, only_looks: false }).await
    }

    /// The bytes that each partition may return. As in Kafka, all have the same part.
    fn bytes_max(&self, targets: &Targets) -> usize {
        let bytes_max =
            (self.request.max_bytes.max(0) as usize).min(self.context.cluster().config.fetch_bytes_max);
        bytes_max.min(self.context.fetch_burst()) / targets.ready.len().max(1)
    }

    /// Looks at the partitions in their order. Other connections have their turn meanwhile.
    async fn look_at_all(&self, targets: &Targets, manner: Manner) -> Looked {
        let (request, cluster) = (self.request, self.context.cluster());
        let bytes_max = self.bytes_max(targets);
        let mode = match request.share_acquire_mode {
            RECORD_LIMIT => AcquireMode::RecordLimit,
            _ => AcquireMode::BatchOptimized,
        };
        let mut acquirer = Acquirer {
            member: self.session.member.clone(),
            mode,
            records_max: i64::from(request.max_records),
            batch_size: i64::from(request.batch_size),
        };
        let (mut looked, mut pace) = (Looked::default(), Pace::default());
        let now = Instant::now();
        for (at, target) in targets.ready.iter().enumerate() {
            // Without room for bytes there is no first batch, either, as in Kafka.
            if acquirer.records_max <= 0 || request.max_bytes <= 0 {
                break;
            }
            let read = ShareRead {
                acquirer: &acquirer,
                settings: self.settings,
                bytes_max,
                is_first: looked.records.is_empty(),
                reads_unchecked: manner.reads_unchecked,
                only_looks: manner.only_looks,
            };
            match target.led.fetch(cluster, &target.partition, now, read) {
                Ok(ShareFetched::Records { chain, acquired, left_out }) => {
                    match left_out {
                        LeftOut::Nothing => {}
                        LeftOut::NoRoom => looked.left_out_bytes += bytes_max.saturating_sub(chain.len()),
                        LeftOut::LaterSegments => looked.has_later_segments = true,
                    }
                    let records: i64 = acquired.iter().map(|batch| batch.last - batch.first + 1).sum();
                    acquirer.records_max -= records;
                    looked.records.push(Records { target: at, chain, acquired });
                }
                Ok(ShareFetched::Nothing) => {}
                Ok(ShareFetched::NoRoom) => looked.left_out_bytes += bytes_max,
                Ok(ShareFetched::Unchecked(read)) => looked.unchecked.push(read),
                Ok(ShareFetched::Closed) => looked.has_closed = true,
                Err(code) => looked.failed.push((target.place, code)),
            }
            pace.step_by(ITEMS_PER_LOOK).await;
        }
        looked
    }
}

/// The end of a partition as it is now: what is appended later ends a wait.
fn end_of(target: &Target) -> Grown {
    let tail = target.partition.tail();
    tail.grown(tail.visible())
}

/// Waits until a share partition has changed or a log has grown.
async fn any_changed(mut changes: Vec<Pin<Box<Notified<'_>>>>, mut ends: Vec<Grown>) {
    // The caller looks again, because a log also wakes its readers for other causes, for example a new leader.
    let mut looked = false;
    poll_fn(move |cx| {
        let changed = changes.iter_mut().any(|change| change.as_mut().poll(cx).is_ready());
        let grown = ends.iter_mut().any(|end| Pin::new(end).poll(cx).is_ready());
        if changed || grown || looked {
            return Poll::Ready(());
        }
        looked = true;
        Poll::Pending
    })
    .await;
}

/// Adds the partitions of a response: those with news, and those of `all`.
fn add_all(
    response: &mut ShareFetchResponse,
    context: &RequestContext,
    all: &[Place],
    acks: AckResults,
    records: Vec<(Place, Chain, Vec<Acquired>)>,
    failed: Vec<(Place, ErrorCode)>,
) {
    let mut partitions: BTreeMap<Place, PartitionData> = BTreeMap::new();
    for place in all {
        partitions.entry(*place).or_insert_with(|| empty(*place));
    }
    for (place, code) in acks {
        let data = partitions.entry(place).or_insert_with(|| empty(place));
        data.acknowledge_error_code = code;
        add_leader(response, data, context, place, code);
    }
    for (place, code) in failed {
        let data = partitions.entry(place).or_insert_with(|| empty(place));
        data.error_code = code;
        add_leader(response, data, context, place, code);
    }
    for (place, chain, acquired) in records {
        let data = partitions.entry(place).or_insert_with(|| empty(place));
        data.records = chain;
        let acquired = acquired.into_iter().map(|batch| AcquiredRecords {
            first_offset: batch.first,
            last_offset: batch.last,
            delivery_count: batch.delivery_count,
        });
        data.acquired_records = acquired.collect();
    }
    for (place, data) in partitions {
        match response.responses.last_mut().filter(|topic| topic.topic_id == place.0) {
            Some(topic) => topic.partitions.push(data),
            None => response
                .responses
                .push(ShareFetchableTopicResponse { topic_id: place.0, partitions: vec![data] }),
        }
    }
}

fn empty(place: Place) -> PartitionData {
    PartitionData { partition_index: place.1, ..Default::default() }
}

fn add_leader(
    response: &mut ShareFetchResponse,
    data: &mut PartitionData,
    context: &RequestContext,
    place: Place,
    code: ErrorCode,
) {
    let Some((leader_id, leader_epoch)) = current_leader(context, place, code) else { return };
    data.current_leader = LeaderIdAndEpoch { leader_id, leader_epoch };
    let known = response.node_endpoints.iter().any(|endpoint| endpoint.node_id == leader_id);
    if let Some(node) = context.cluster().node(leader_id).filter(|_| !known) {
        let (host, port) = context.address_of(node);
        let (port, rack) = (i32::from(port), context.cluster().rack(leader_id));
        response.node_endpoints.push(NodeEndpoint { node_id: leader_id, host, port, rack });
    }
}
