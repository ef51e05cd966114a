//! The parts that ShareFetch and ShareAcknowledge have in common.

use std::collections::BTreeMap;
use std::sync::Arc;

use ottla_protocol::{ApiKey, ErrorCode};
use tokio::time::Instant;

use super::{ConnectionContext, RequestContext};
use crate::coordinator::share_partition::leader::Acknowledging;
use crate::coordinator::share_partition::sessions::{FINAL_EPOCH, Place, Places, SessionKey, SessionLimits};
use crate::coordinator::share_partition::settings::ShareSettings;
use crate::coordinator::share_partition::{AckBatch, AckType};
use crate::coordinator::share_state::SharePartitionKey;
use crate::partition::Partition;
use crate::security::acl::{Operation, ResourceType};

/// The longest name of a group: each session keeps it.
const GROUP_BYTES_MAX: usize = 255;
/// The longest id of a member, in UTF-16 units as in Kafka's `KafkaApis`: a UUID with hyphens.
const MEMBER_UNITS_MAX: usize = 36;

/// The results of acknowledgements by partition.
pub(super) type AckResults = BTreeMap<Place, ErrorCode>;

/// A batch of acknowledgements as a request has it.
#[derive(Clone, Debug)]
pub(super) struct RawAcks {
    pub(super) first: i64,
    pub(super) last: i64,
    pub(super) types: Vec<i8>,
}

impl ConnectionContext {
    /// The number of this connection among those with share sessions.
    fn share_connection(&self) -> u64 {
        *self.share_connection.get_or_init(|| self.cluster.share_leader.next_connection())
    }

    /// Ends the share sessions of the connection, which is closed.
    pub(crate) fn end_share_sessions(&self) {
        if let Some(connection) = self.share_connection.get() {
            self.cluster.share_leader.end_connection(&self.cluster, *connection);
        }
    }
}

/// Returns `true` for an error of a request or of its session, which no partition has.
pub(super) const fn is_of_whole_request(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::GroupAuthorizationFailed
            | ErrorCode::InvalidShareSessionEpoch
            | ErrorCode::ShareSessionLimitReached
            | ErrorCode::ShareSessionNotFound
    )
}

/// The session that a request names.
///
/// # Errors
/// INVALID_REQUEST without a group or a member, or if their names are too long; INVALID_SHARE_SESSION_EPOCH for an epoch that no session
/// has.
pub(super) fn session_of(
    context: &RequestContext,
    group: Option<&str>,
    member: Option<&str>,
    epoch: i32,
) -> Result<SessionKey, ErrorCode> {
    let (Some(group), Some(member)) = (group, member) else { return Err(ErrorCode::InvalidRequest) };
    if group.is_empty() || group.len() > GROUP_BYTES_MAX || !is_member_id(member) {
        return Err(ErrorCode::InvalidRequest);
    }
    if epoch < FINAL_EPOCH {
        return Err(ErrorCode::InvalidShareSessionEpoch);
    }
    Ok(SessionKey { node: context.node(), group: group.into(), member: member.into() })
}

/// Returns whether a member of a share group can have this id.
pub(super) fn is_member_id(id: &str) -> bool {
    (1..=MEMBER_UNITS_MAX).contains(&id.encode_utf16().take(MEMBER_UNITS_MAX + 1).count())
}

/// Begins a session on the connection of the request.
pub(super) fn open_session(
    context: &RequestContext,
    session: SessionKey,
    places: Vec<Place>,
) -> Result<Places, ErrorCode> {
    let connection = context.connection.share_connection();
    let limits = session_limits(context);
    let leader = &context.cluster().share_leader;
    leader.with_sessions(|sessions| sessions.open(session, connection, places, limits))
}

/// The limits of sessions. A session has no more partitions than there are.
pub(super) fn session_limits(context: &RequestContext) -> SessionLimits {
    let cluster = context.cluster();
    SessionLimits {
        sessions: cluster.live.broker().share_partitions.sessions_max,
        partitions: cluster.config.partitions_total_max,
    }
}

/// The partition at a place, if this node leads it and the client may read its topic.
pub(super) fn find(context: &RequestContext, place: Place) -> Result<Arc<Partition>, ErrorCode> {
    let partition = find_on_any(context, place)?;
    partition.check_leader(context.node(), -1)?;
    Ok(partition)
}

/// The partition whose records are acknowledged. Any node of librdkafka's mock cluster takes acknowledgements.
fn find_acknowledged(context: &RequestContext, place: Place) -> Result<Arc<Partition>, ErrorCode> {
    let any = context.cluster().overrides.mock_fetches();
    if any { find_on_any(context, place) } else { find(context, place) }
}

fn find_on_any(context: &RequestContext, place: Place) -> Result<Arc<Partition>, ErrorCode> {
    let (topic, index) = place;
    let topic = context.cluster().topic_by_id(topic).ok_or(ErrorCode::UnknownTopicId)?;
    if !context.may(Operation::Read, ResourceType::Topic, &topic.name) {
        return Err(ErrorCode::TopicAuthorizationFailed);
    }
    let partition = usize::try_from(index).ok().and_then(|index| topic.partitions.get(index));
    partition.cloned().ok_or(ErrorCode::UnknownTopicOrPartition)
}

/// The leader of a partition that this node does not lead, with its epoch, for the response.
pub(super) fn current_leader(context: &RequestContext, place: Place, code: ErrorCode) -> Option<(i32, i32)> {
    let names_leader = matches!(code, ErrorCode::NotLeaderOrFollower | ErrorCode::FencedLeaderEpoch);
    if !names_leader {
        return None;
    }
    let topic = context.cluster().topic_by_id(place.0)?;
    let partition = topic.partitions.get(usize::try_from(place.1).ok()?)?;
    Some((partition.leader(), partition.leader_epoch()))
}

/// Starts the acknowledgements of a request, and waits until they are stored or refused.
pub(super) async fn acknowledge(
    context: &RequestContext,
    session: &SessionKey,
    settings: &ShareSettings,
    acks: Vec<(Place, Vec<RawAcks>)>,
    has_renewals: bool,
) -> AckResults {
    let mut started = Vec::new();
    for (place, batches) in acks {
        started.push((place, start(context, session, settings, place, batches, has_renewals)));
    }
    let mut results = AckResults::new();
    for (place, acknowledging) in started {
        let result = match acknowledging {
            Ok(acknowledging) => acknowledging.result().await,
            Err(code) => Err(code),
        };
        results.insert(place, result.err().unwrap_or_default());
    }
    results
}

fn start(
    context: &RequestContext,
    session: &SessionKey,
    settings: &ShareSettings,
    place: Place,
    batches: Vec<RawAcks>,
    has_renewals: bool,
) -> Result<Acknowledging, ErrorCode> {
    let batches = checked(batches, has_renewals)?;
    let partition = find_acknowledged(context, place)?;
    let cluster = context.cluster();
    let arranged =
        cluster.overrides.take_partition_error(ApiKey::ShareAcknowledge, &partition.topic, place.1);
    if let Some(code) = arranged {
        return Err(code);
    }
    let key = SharePartitionKey { group: session.group.clone(), topic: place.0, partition: place.1 };
    let led = cluster.share_leader.loaded(cluster, &key, &partition);
    // A share partition that is not loaded has no locks.
    let led = led.ok_or(ErrorCode::InvalidRecordState)?;
    led.acknowledge(cluster, Instant::now(), &session.member, &batches, settings)
}

/// Checks acknowledgements as Kafka does: ascending, and with one type for all records or one for each.
fn checked(batches: Vec<RawAcks>, has_renewals: bool) -> Result<Vec<AckBatch>, ErrorCode> {
    let mut next = 0;
    let mut acks = Vec::with_capacity(batches.len());
    for RawAcks { first, last, types } in batches {
        if first < next || last < first || last == i64::MAX {
            return Err(ErrorCode::InvalidRequest);
        }
        next = last + 1;
        let count = u64::try_from(types.len()).unwrap_or(u64::MAX);
        if count != 1 && count != first.abs_diff(last) + 1 {
            return Err(ErrorCode::InvalidRequest);
        }
        let types: Option<Vec<AckType>> = types.into_iter().map(AckType::of_number).collect();
        let types = types.ok_or(ErrorCode::InvalidRequest)?;
        if types.contains(&AckType::Renew) && !has_renewals {
            return Err(ErrorCode::InvalidRequest);
        }
        acks.push(AckBatch { first, last, types });
    }
    Ok(acks)
}

/// Ends a session, and waits until its records are released. The error is that of the session.
pub(super) async fn close_session(context: &RequestContext, session: &SessionKey) -> Result<(), ErrorCode> {
    let leader = &context.cluster().share_leader;
    let places = leader.with_sessions(|sessions| sessions.close(session))?;
    for (place, released) in leader.release_session(context.cluster(), session, &places) {
        if let Err(code) = released.result().await {
            // The locks end with their time.
            tracing::debug!(%code, group = %session.group, topic = %place.0, partition = place.1,
                "the records of a session that ends are not released");
        }
    }
    Ok(())
}
