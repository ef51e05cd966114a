//! ConsumerGroupHeartbeat and ConsumerGroupDescribe: groups of the new protocol (KIP-848).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ottla_protocol::messages::consumer_group_describe::{
    Assignment as DescribedAssignment, ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse,
    DescribedGroup, Member as DescribedMember, TopicPartitions as DescribedPartitions,
};
use ottla_protocol::messages::consumer_group_heartbeat::{
    Assignment, ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, TopicPartitions,
};
use ottla_protocol::{ErrorCode, Uuid};

use super::authorized_operations::{OF_GROUP, if_requested};
use super::groups::{HAS_HIDDEN_TOPICS, check_coordinator_of_named, coordinate, why_not_described};
use super::repeats::without_repeats;
use super::{Api, RequestContext};
use crate::cluster::{Cluster, lock, random_uuid};
use crate::coordinator::consumer_group::assignor::Assignor;
use crate::coordinator::consumer_group::group::{Beat, ConsumerGroup, Refusal};
use crate::coordinator::consumer_group::member::{LEFT_FOR_NOW, Member, Place};
use crate::coordinator::consumer_group::patterns::{PatternVersions, ResolvedPattern, compile};
use crate::coordinator::consumer_group::records::by_topic;
use crate::security::acl::{Operation, ResourceType};

/// More names than this are matched with patterns on a background thread, this many in each step: a pattern of 100 bytes can take
/// milliseconds for each.
const QUICK_MATCHES_MAX: usize = 20;
/// From this version on, members create their own ids.
const OWN_ID_FROM: i16 = 1;
/// The types of members in ConsumerGroupDescribe.
const CLASSIC_MEMBER: i8 = 0;
const CONSUMER_MEMBER: i8 = 1;

impl Api for ConsumerGroupHeartbeatRequest {
    async fn handle(self, context: RequestContext) -> ConsumerGroupHeartbeatResponse {
        if !context.cluster().has_consumer_groups() {
            return self.refuse(&context, ErrorCode::UnsupportedVersion);
        }
        let group_id = self.group_id.clone();
        let answer = async {
            check(&self, &context)?;
            let refuse = |code| Refusal::new(code, format!("group `{group_id}`: {code}"));
            coordinate(&context, &group_id).await.map_err(refuse)?;
            let beat = beat_of(self, &context).await?;
            let cluster = context.cluster();
            let beat = || cluster.consumer_groups.heartbeat(cluster, &group_id, beat);
            let answer =
                cluster.share_groups.unless_share_group(cluster, &group_id, beat).unwrap_or_else(|| {
                    let message = format!("group `{group_id}` is not a consumer group");
                    Err(Refusal::new(ErrorCode::GroupIdNotFound, message))
                })?;
            cluster.consumer_groups.await_stored(cluster, &group_id).await.map_err(refuse)?;
            Ok::<_, Refusal>(answer)
        };
        match answer.await {
            Ok((answer, interval)) => ConsumerGroupHeartbeatResponse {
                member_id: Some(answer.member_id),
                member_epoch: answer.epoch,
                heartbeat_interval_ms: i32::try_from(interval.as_millis()).unwrap_or(i32::MAX),
                assignment: answer.assignment.map(|places| Assignment {
                    topic_partitions: by_topic(places.into_iter())
                        .into_iter()
                        .map(|(topic_id, partitions)| TopicPartitions { topic_id, partitions })
                        .collect(),
                }),
                ..Default::default()
            },
            Err(Refusal { code, message }) => ConsumerGroupHeartbeatResponse {
                error_code: code,
                error_message: Some(message),
                ..Default::default()
            },
        }
    }

    fn refuse(self, _context: &RequestContext, code: ErrorCode) -> ConsumerGroupHeartbeatResponse {
        ConsumerGroupHeartbeatResponse { error_code: code, ..Default::default() }
    }
}

/// Checks a request as Kafka's `GroupCoordinatorService` does.
fn check(request: &ConsumerGroupHeartbeatRequest, context: &RequestContext) -> Result<(), Refusal> {
    let epoch = request.member_epoch;
    let is_empty = |text: &Option<String>| text.as_ref().is_some_and(|text| text.trim().is_empty());
    let needs_id = context.version >= OWN_ID_FROM || epoch != 0;
    let has_subscription =
        request.subscribed_topic_names.is_some() || request.subscribed_topic_regex.is_some();
    let reason = if request.group_id.trim().is_empty() {
        "the group has no name"
    } else if needs_id && request.member_id.trim().is_empty() {
        "the member has no id"
    } else if is_empty(&request.instance_id) {
        "the instance id is empty"
    } else if is_empty(&request.rack_id) {
        "the rack is empty"
    } else if epoch < LEFT_FOR_NOW {
        "the member epoch is below -2"
    } else if epoch == LEFT_FOR_NOW && request.instance_id.is_none() {
        "epoch -2 is for members with an instance id"
    } else if epoch == 0 && request.rebalance_timeout_ms == -1 {
        "a member that joins needs a rebalance timeout"
    } else if epoch == 0 && request.topic_partitions.as_ref().is_none_or(|owned| !owned.is_empty()) {
        "a member that joins must report an empty list of partitions"
    } else if epoch == 0 && !has_subscription {
        "a member that joins needs a subscription"
    } else {
        let Some(assignor) = &request.server_assignor else { return Ok(()) };
        let broker = context.cluster().live.broker();
        let known = &broker.consumer_groups.assignors;
        if Assignor::of_name(assignor).is_some() && known.contains(assignor) {
            return Ok(());
        }
        let message = format!("no assignor is called `{assignor}`: use {}", known.join(", "));
        return Err(Refusal::new(ErrorCode::UnsupportedAssignor, message));
    };
    Err(Refusal::new(ErrorCode::InvalidRequest, reason.to_owned()))
}

async fn beat_of(request: ConsumerGroupHeartbeatRequest, context: &RequestContext) -> Result<Beat, Refusal> {
    let cluster = context.cluster();
    let pattern = request.subscribed_topic_regex;
    if let Some(pattern) = pattern.as_deref().filter(|pattern| !pattern.is_empty()) {
        compile(pattern).map_err(|reason| Refusal::new(ErrorCode::InvalidRegularExpression, reason))?;
    }
    // Before the names are filtered: a change of the ACLs meanwhile is noticed at the next heartbeat.
    let (versions, at_ms) = (cluster.pattern_versions(), cluster.clock.now_ms());
    let unresolved =
        cluster.consumer_groups.unresolved(&request.group_id, pattern.as_deref(), versions, at_ms);
    let resolved = if unresolved.is_empty() {
        BTreeMap::new()
    } else {
        // Others may be matched before: the member is heard of now, as in Kafka, which matches them later.
        let (member_id, epoch) = (&request.member_id, request.member_epoch);
        cluster.consumer_groups.renew_session(&request.group_id, member_id, epoch);
        // Boxed: few heartbeats need its memory.
        Box::pin(resolve(context, unresolved, versions, at_ms)).await
    };
    let member_id = if request.member_id.is_empty() {
        random_uuid(&mut lock(&cluster.rng)).to_string()
    } else {
        request.member_id
    };
    let owned = request.topic_partitions.map(|topics| {
        let places = topics
            .into_iter()
            .flat_map(|topic| topic.partitions.into_iter().map(move |partition| (topic.topic_id, partition)));
        places.collect::<BTreeSet<Place>>()
    });
    Ok(Beat {
        member_id,
        epoch: request.member_epoch,
        instance_id: request.instance_id,
        rack_id: request.rack_id,
        client_id: context.client_id.to_string(),
        client_host: context.connection.peer.host().to_string(),
        rebalance_timeout_ms: Some(request.rebalance_timeout_ms).filter(|ms| *ms >= 0),
        names: request.subscribed_topic_names.map(|names| names.into_iter().collect()),
        pattern,
        assignor: request.server_assignor,
        owned,
        resolved,
        classic: None,
    })
}

/// Matches the patterns of a group that were not matched with the topics and ACLs as they are now, or long ago, as far as the
/// client may see the topics.
async fn resolve(
    context: &RequestContext,
    patterns: Vec<String>,
    versions: PatternVersions,
    at_ms: i64,
) -> BTreeMap<String, ResolvedPattern> {
    let cluster = context.cluster();
    let names = cluster.topics().into_iter().map(|topic| topic.name.clone());
    let names: Vec<_> = names.filter(|name| context.may_see_topic(name)).collect();
    let is_quick = names.len().saturating_mul(patterns.len()) <= QUICK_MATCHES_MAX;
    let names: Arc<[_]> = names.into();
    let mut resolved = BTreeMap::new();
    for pattern in patterns {
        // Patterns were compiled when their member joined.
        let Ok(compiled) = compile(&pattern) else { continue };
        let compiled = Arc::new(compiled);
        let mut topics = BTreeSet::new();
        for first in (0..names.len()).step_by(QUICK_MATCHES_MAX) {
            let (names, compiled) = (names.clone(), compiled.clone());
            let matching = move |_: &Cluster| -> Vec<Arc<str>> {
                let part = names.iter().skip(first).take(QUICK_MATCHES_MAX);
                part.filter(|name| compiled.is_match(name)).cloned().collect()
            };
            topics.extend(if is_quick {
                matching(cluster)
            } else {
                cluster.run_matching(context.connection.client_host(), matching).await
            });
        }
        let version = versions.topics as i64;
        let found = ResolvedPattern { topics, version, acls_version: versions.acls, at_ms };
        resolved.insert(pattern, found);
    }
    resolved
}

impl Api for ConsumerGroupDescribeRequest {
    async fn handle(self, context: RequestContext) -> ConsumerGroupDescribeResponse {
        if !context.cluster().has_consumer_groups() {
            return self.refuse(&context, ErrorCode::UnsupportedVersion);
        }
        let is_requested = self.include_authorized_operations;
        let groups = without_repeats(self.group_ids, String::clone).into_iter().map(|group_id| {
            if let Err(code) = check_coordinator_of_named(&context, &group_id) {
                return refused(group_id, code, None);
            }
            let cluster = context.cluster();
            let describe = |group: &ConsumerGroup| DescribedGroup {
                authorized_operations: if_requested(
                    is_requested,
                    &context,
                    (ResourceType::Group, &group_id),
                    OF_GROUP,
                ),
                ..described(cluster, &group_id, group)
            };
            let found = cluster.consumer_groups.look(&group_id, describe);
            if found.as_ref().is_some_and(|group| !may_see_topics(&context, group)) {
                let message = Some(HAS_HIDDEN_TOPICS.to_owned());
                return refused(group_id, ErrorCode::TopicAuthorizationFailed, message);
            }
            found.unwrap_or_else(|| {
                let message = why_not_described(cluster, &group_id, "consumer");
                refused(group_id, ErrorCode::GroupIdNotFound, Some(message))
            })
        });
        ConsumerGroupDescribeResponse { groups: groups.collect(), ..Default::default() }
    }

    fn refuse(self, _context: &RequestContext, code: ErrorCode) -> ConsumerGroupDescribeResponse {
        let groups = self.group_ids.into_iter().map(|group_id| refused(group_id, code, None));
        ConsumerGroupDescribeResponse { groups: groups.collect(), ..Default::default() }
    }
}

/// Returns `true` if the client may see each topic that is assigned to a member. As in Kafka, the names of subscriptions are no secret.
fn may_see_topics(context: &RequestContext, group: &DescribedGroup) -> bool {
    if context.cluster().authorizer.is_none() {
        return true;
    }
    let assignments = group.members.iter().flat_map(|member| [&member.assignment, &member.target_assignment]);
    let assigned = assignments.flat_map(|assignment| &assignment.topic_partitions);
    let names: BTreeSet<&str> = assigned.map(|topic| &*topic.topic_name).collect();
    names.iter().all(|name| context.may(Operation::Describe, ResourceType::Topic, name))
}

fn refused(group_id: String, error_code: ErrorCode, error_message: Option<String>) -> DescribedGroup {
    DescribedGroup { error_code, error_message, group_id, ..Default::default() }
}

fn described(cluster: &Cluster, group_id: &str, group: &ConsumerGroup) -> DescribedGroup {
    let broker = cluster.live.broker();
    let default = broker.consumer_groups.assignors.first().cloned();
    let member = |(id, member): (&String, &Member)| DescribedMember {
        member_id: id.clone(),
        instance_id: member.profile.instance_id.clone(),
        rack_id: member.profile.rack_id.clone(),
        member_epoch: member.epoch,
        client_id: member.profile.client_id.clone(),
        client_host: member.profile.client_host.clone(),
        subscribed_topic_names: member.profile.names.iter().cloned().collect(),
        // As in Kafka, a member without a pattern has an empty one.
        subscribed_topic_regex: Some(member.profile.pattern.clone().unwrap_or_default()),
        // With the partitions that it still has and must give up.
        assignment: named(cluster, by_topic(member.assigned.keys().chain(member.revoking.keys()).copied())),
        target_assignment: named(cluster, by_topic(group.target(id).copied())),
        member_type: if member.is_classic() { CLASSIC_MEMBER } else { CONSUMER_MEMBER },
    };
    DescribedGroup {
        group_id: group_id.to_owned(),
        group_state: group.state().to_owned(),
        group_epoch: group.epoch,
        assignment_epoch: group.assignment_epoch,
        assignor_name: group.preferred_assignor().map(str::to_owned).or(default).unwrap_or_default(),
        members: group.members.iter().map(member).collect(),
        ..Default::default()
    }
}

/// Topics that were deleted have no name: they are left out, as in Kafka.
fn named(cluster: &Cluster, topics: BTreeMap<Uuid, Vec<i32>>) -> DescribedAssignment {
    let topics = topics.into_iter().filter_map(|(topic_id, partitions)| {
        let topic_name = cluster.topic_by_id(topic_id)?.name.to_string();
        Some(DescribedPartitions { topic_id, topic_name, partitions })
    });
    DescribedAssignment { topic_partitions: topics.collect() }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use ottla_protocol::frame;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
    use tokio::time::timeout;

    use super::*;
    use crate::broker::Broker;
    use crate::memory::ClientHost;
    use crate::topics::NewTopic;

    /// Only a defect exhausts it.
    const PATIENCE: Duration = Duration::from_secs(30);

    async fn send(connection: &mut DuplexStream, request: &ConsumerGroupHeartbeatRequest) {
        let request = frame::encode_request(1, None, 1, request).expect("a request");
        connection.write_all(&request.to_bytes().expect("in memory")).await.expect("sent");
    }

    async fn answer(connection: &mut DuplexStream) -> ConsumerGroupHeartbeatResponse {
        let mut size = [0; 4];
        timeout(PATIENCE, connection.read_exact(&mut size)).await.expect("in time").expect("an answer");
        let mut answer = vec![0; i32::from_be_bytes(size) as usize];
        timeout(PATIENCE, connection.read_exact(&mut answer)).await.expect("in time").expect("an answer");
        let decoded = frame::decode_response::<ConsumerGroupHeartbeatRequest>(answer.into(), 1);
        decoded.expect("an answer that can be read").1
    }

    /// The session of a member ended while the patterns of other groups were matched before those of its own.
    #[tokio::test]
    async fn a_heartbeat_that_waits_for_the_matches_of_patterns_renews_the_session() {
        // So many are matched on a background thread.
        let topics = 2 * QUICK_MATCHES_MAX;
        let builder = (0..topics).fold(Broker::builder().memory(), |all, at| all.topic(format!("t{at}"), 1));
        let mut broker = builder.start().await.expect("a broker in memory");
        let (cluster, mut connection) = (broker.cluster(), broker.connect(1));
        let stays = |member_epoch| ConsumerGroupHeartbeatRequest {
            group_id: "billing".into(),
            member_id: "a".into(),
            member_epoch,
            ..Default::default()
        };
        let joins = ConsumerGroupHeartbeatRequest {
            rebalance_timeout_ms: 60_000,
            subscribed_topic_regex: Some("t.*".into()),
            topic_partitions: Some(Vec::new()),
            ..stays(0)
        };
        send(&mut connection, &joins).await;
        let joined = answer(&mut connection).await;
        assert_eq!(joined.error_code, ErrorCode::None, "{:?}", joined.error_message);

        let (hold, held) = mpsc::channel::<()>();
        let (started, start) = tokio::sync::oneshot::channel();
        let occupy = move |_: &Cluster| {
            started.send(()).expect("awaited");
            held.recv().unwrap_or_default();
        };
        let of_task = cluster.clone();
        let occupied = tokio::spawn(async move { of_task.run_matching(ClientHost::LOCAL, occupy).await });
        timeout(PATIENCE, start).await.expect("in time").expect("another pattern is matched");
        cluster.create_topic(NewTopic::new("t-new", 1), false).expect("a topic");
        let heard_at = || cluster.consumer_groups.look("billing", |group| group.members["a"].heard_at());
        let joined_at = heard_at();
        send(&mut connection, &stays(joined.member_epoch)).await;
        let renewed = async {
            while heard_at() == joined_at {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(PATIENCE, renewed).await.expect("the session is renewed");
        drop(hold);
        timeout(PATIENCE, occupied).await.expect("in time").expect("matched");
        assert_eq!(answer(&mut connection).await.error_code, ErrorCode::None);
        broker.stop().await;
    }
}
