//! OffsetCommit, OffsetFetch, OffsetDelete.

use std::collections::{BTreeMap, BTreeSet};

use ottla_protocol::messages::offset_commit::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitResponse, OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
};
use ottla_protocol::messages::offset_delete::{
    OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic, OffsetDeleteResponse,
    OffsetDeleteResponsePartition, OffsetDeleteResponseTopic,
};
use ottla_protocol::messages::offset_fetch::{
    OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
    OffsetFetchResponse, OffsetFetchResponseGroup, OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions, OffsetFetchResponseTopic, OffsetFetchResponseTopics,
};
use ottla_protocol::{ErrorCode, Uuid};

use super::groups::{check_coordinator, check_coordinator_of_named, coordinate};
use super::pace::{ITEMS_PER_TURN, Pace};
use super::repeats::SeenPartitions;
use super::{Api, RequestContext};
use crate::coordinator::consumer_group::group::ConsumerGroup;
use crate::coordinator::offsets::{At, Committed};
use crate::security::acl::{Operation, ResourceType};

/// The longest metadata of a commit, Kafka's `offset.metadata.max.bytes`. In spite of its name, Kafka counts UTF-16 units.
const METADATA_UNITS_MAX: usize = 4096;

/// The retention time of a commit that expires after `offsets.retention.minutes`. Versions 2 to 4 have others.
const BROKERS_RETENTION: i64 = -1;

/// From this version on, OffsetCommit and OffsetFetch name topics by their ids (KIP-848). TxnOffsetCommit has no such version.
pub(super) const TOPIC_IDS_FROM: i16 = 10;

/// From this version on, OffsetCommit and OffsetFetch have member epochs (KIP-848).
const MEMBER_EPOCHS_FROM: i16 = 9;

/// From this version on, OffsetFetch has an error code for the group. Earlier ones have it for each partition.
const CODE_FROM: i16 = 2;

/// The errors that OffsetFetch has for partitions and not for a group: clients do not expect them there.
const OF_PARTITIONS: [ErrorCode; 4] = [
    ErrorCode::TopicAuthorizationFailed,
    ErrorCode::UnknownTopicId,
    ErrorCode::UnknownTopicOrPartition,
    ErrorCode::UnstableOffsetCommit,
];

/// The name of the topic with that id.
fn name_of(context: &RequestContext, id: Uuid) -> Option<String> {
    context.cluster().topic_by_id(id).map(|topic| topic.name.to_string())
}
/// Fetches of offsets above this size take turns: others are served before they are answered. An index has four bytes.
const LONG_FETCH_BYTES: usize = 4 * ITEMS_PER_TURN;

impl Api for OffsetCommitRequest {
    async fn handle(mut self, context: RequestContext) -> OffsetCommitResponse {
        let cluster = context.cluster().clone();
        if context.version >= TOPIC_IDS_FROM {
            for topic in &mut self.topics {
                topic.name = name_of(&context, topic.topic_id).unwrap_or_default();
            }
        }
        let ids = topic_ids(&context, &self);
        let partition = match coordinate(&context, &self.group_id).await {
            Ok(partition) => partition,
            Err(code) => return self.refuse(&context, code),
        };
        // As in Kafka, the group decides about the partitions that exist.
        let codes = codes_of(&context, &self);
        if codes.iter().all(|code| is_unknown(*code)) {
            return respond(self, codes);
        }
        if cluster.share_groups.contains(&self.group_id) {
            return refuse_known(self, &codes, ErrorCode::GroupIdNotFound);
        }
        let (instance_id, generation) =
            (self.group_instance_id.as_deref(), self.generation_id_or_member_epoch);
        let allowed = check_new_commit(&context, &self, &codes).unwrap_or_else(|| {
            let absent = code_of_absent_group(&context, &self.group_id);
            cluster.groups.check_commit(&self.group_id, &self.member_id, instance_id, generation, absent)
        });
        if let Err(code) = allowed {
            return refuse_known(self, &codes, code);
        }
        let now_ms = cluster.clock.now_ms();
        let retention_ms = Some(self.retention_time_ms).filter(|ms| *ms != BROKERS_RETENTION);
        let expires_at_ms = retention_ms.map(|ms| now_ms.saturating_add(ms));
        let mut offsets = Vec::new();
        let requested =
            self.topics.iter().flat_map(|topic| topic.partitions.iter().map(move |offset| (topic, offset)));
        for ((topic, offset), _) in requested.zip(&codes).filter(|(_, code)| **code == ErrorCode::None) {
            let metadata = offset.committed_metadata.clone().unwrap_or_default();
            let committed =
                Committed::new(offset.committed_offset, offset.committed_leader_epoch, metadata, now_ms);
            let committed = Committed { expires_at_ms, ..committed };
            offsets.push(((topic.name.clone(), offset.partition_index), committed));
        }
        // Under the lock of the log: another thread may have deleted a topic, and its offsets, since.
        let is_current = || {
            let is_same = topic_ids(&context, &self) == ids;
            if is_same { Ok(()) } else { Err(ErrorCode::CoordinatorLoadInProgress) }
        };
        match cluster.commit_offsets(&partition, &self.group_id, offsets, is_current).await {
            // The decisions from before the commit: partitions may be created or deleted during it.
            Ok(()) => respond(self, codes),
            Err(code) => refuse_known(self, &codes, code),
        }
    }

    fn refuse(self, _context: &RequestContext, code: ErrorCode) -> OffsetCommitResponse {
        respond(self, std::iter::repeat(code))
    }
}

/// The id of each topic, if it exists.
fn topic_ids(context: &RequestContext, request: &OffsetCommitRequest) -> Vec<Option<Uuid>> {
    let id = |name: &str| context.cluster().topic(name).map(|topic| topic.id);
    request.topics.iter().map(|topic| id(&topic.name)).collect()
}

/// The code for a commit of a member if no group has this name. A group that has offsets only has no members.
fn code_of_absent_group(context: &RequestContext, group: &str) -> ErrorCode {
    if context.cluster().offsets.has_offsets(group) {
        ErrorCode::UnknownMemberId
    } else if context.version >= MEMBER_EPOCHS_FROM {
        ErrorCode::GroupIdNotFound
    } else {
        ErrorCode::IllegalGeneration
    }
}

/// Checks the offsets without an error of a commit in a group of the new protocol; `None` if the group is no such one.
fn check_new_commit(
    context: &RequestContext,
    request: &OffsetCommitRequest,
    codes: &[ErrorCode],
) -> Option<Result<(), ErrorCode>> {
    let cluster = context.cluster();
    let epoch = request.generation_id_or_member_epoch;
    let places = request.topics.iter().zip(topic_ids(context, request)).flat_map(|(topic, id)| {
        topic.partitions.iter().map(move |partition| (id, partition.partition_index))
    });
    let places = places.zip(codes).filter(|(_, code)| **code == ErrorCode::None).map(|(place, _)| place);
    cluster.consumer_groups.look(&request.group_id, |group| {
        group.check_commit(&request.member_id, epoch, context.version >= MEMBER_EPOCHS_FROM, places)
    })
}

/// The error of each offset, in the order of the request.
fn codes_of(context: &RequestContext, request: &OffsetCommitRequest) -> Vec<ErrorCode> {
    let mut codes = Vec::new();
    for topic in &request.topics {
        codes.extend(topic.partitions.iter().map(|partition| check(context, &topic.name, partition)));
    }
    codes
}

/// Returns the error of one offset.
fn check(context: &RequestContext, topic: &str, partition: &OffsetCommitRequestPartition) -> ErrorCode {
    check_offset(context, topic, partition.partition_index, partition.committed_metadata.as_deref())
}

/// Returns whether this is the error of a partition that does not exist.
pub(super) fn is_unknown(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::UnknownTopicId | ErrorCode::UnknownTopicOrPartition)
}

/// Returns the error of an offset: its partition must exist, and its metadata be short.
pub(super) fn check_offset(
    context: &RequestContext,
    topic: &str,
    partition: i32,
    metadata: Option<&str>,
) -> ErrorCode {
    if topic.is_empty() && context.version >= TOPIC_IDS_FROM {
        ErrorCode::UnknownTopicId
    } else if context.cluster().partition(topic, partition).is_none() {
        ErrorCode::UnknownTopicOrPartition
    } else if metadata.is_some_and(is_too_long) {
        ErrorCode::OffsetMetadataTooLarge
    } else {
        ErrorCode::None
    }
}

/// Texts have at least as many bytes as UTF-16 units: those of short ones are not counted.
fn is_too_long(metadata: &str) -> bool {
    metadata.len() > METADATA_UNITS_MAX && metadata.encode_utf16().count() > METADATA_UNITS_MAX
}

/// Refuses a commit. Partitions that do not exist have their own error.
fn refuse_known(
    request: OffsetCommitRequest,
    codes: &[ErrorCode],
    refusal: ErrorCode,
) -> OffsetCommitResponse {
    respond(request, codes.iter().map(|code| if is_unknown(*code) { *code } else { refusal }))
}

/// The answer with the code of each partition, in the order of the request.
fn respond(request: OffsetCommitRequest, codes: impl IntoIterator<Item = ErrorCode>) -> OffsetCommitResponse {
    let mut codes = codes.into_iter();
    let topics = request.topics.into_iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|partition| OffsetCommitResponsePartition {
            partition_index: partition.partition_index,
            error_code: codes.next().unwrap_or(ErrorCode::UnknownServerError),
        });
        OffsetCommitResponseTopic {
            partitions: partitions.collect(),
            name: topic.name,
            topic_id: topic.topic_id,
        }
    });
    OffsetCommitResponse { topics: topics.collect(), ..Default::default() }
}

impl Api for OffsetFetchRequest {
    async fn handle(self, context: RequestContext) -> OffsetFetchResponse {
        let stable = self.require_stable;
        let mut pace = Pace::default();
        let is_long = self.groups.iter().any(|group| group.topics.is_none())
            || (self.topics.is_none() && !self.group_id.is_empty())
            || context.frame.len() > LONG_FETCH_BYTES;
        let _turn = if is_long {
            // Boxed: other requests do not need its memory.
            Some(Box::pin(context.cluster().take_list_turn(context.connection.client_host())).await)
        } else {
            None
        };
        if context.version >= 8 {
            // A group that is named again is an error, because it may have other topics there.
            let mut seen = BTreeSet::new();
            let mut groups = Vec::with_capacity(self.groups.len());
            for group in self.groups {
                pace.step().await;
                groups.push(if seen.insert(group.group_id.clone()) {
                    fetch_group(&context, group, stable, &mut pace).await
                } else {
                    refused_group(group.group_id, ErrorCode::InvalidRequest)
                });
            }
            return OffsetFetchResponse { groups, ..Default::default() };
        }
        // One group, in the older form.
        let named = if context.version < CODE_FROM { self.topics.clone() } else { None };
        let topics = self.topics.map(|topics| {
            let topics = topics.into_iter().map(|topic| OffsetFetchRequestTopics {
                name: topic.name,
                partition_indexes: topic.partition_indexes,
                ..Default::default()
            });
            topics.collect()
        });
        let group = OffsetFetchRequestGroup { group_id: self.group_id, topics, ..Default::default() };
        let answer = fetch_group(&context, group, stable, &mut pace).await;
        if context.version < CODE_FROM && answer.error_code != ErrorCode::None {
            return by_partition(named, answer.error_code);
        }
        let topics = answer.topics.into_iter().map(|topic| OffsetFetchResponseTopic {
            name: topic.name,
            partitions: topic
                .partitions
                .into_iter()
                .map(|partition| OffsetFetchResponsePartition {
                    partition_index: partition.partition_index,
                    committed_offset: partition.committed_offset,
                    committed_leader_epoch: partition.committed_leader_epoch,
                    metadata: partition.metadata,
                    error_code: partition.error_code,
                })
                .collect(),
        });
        OffsetFetchResponse { topics: topics.collect(), error_code: answer.error_code, ..Default::default() }
    }

    fn refuse(self, context: &RequestContext, code: ErrorCode) -> OffsetFetchResponse {
        // A request for all offsets of a group names no partition.
        let is_of_partitions = OF_PARTITIONS.contains(&code);
        if context.version < CODE_FROM || (context.version < 8 && is_of_partitions && self.topics.is_some()) {
            return by_partition(self.topics, code);
        }
        if context.version < 8 {
            return OffsetFetchResponse { error_code: code, ..Default::default() };
        }
        let groups = self.groups.into_iter().map(|group| match group.topics {
            Some(topics) if is_of_partitions => refused_partitions(group.group_id, topics, code),
            Some(_) | None => refused_group(group.group_id, code),
        });
        OffsetFetchResponse { groups: groups.collect(), ..Default::default() }
    }
}

fn refused_group(group_id: String, error_code: ErrorCode) -> OffsetFetchResponseGroup {
    OffsetFetchResponseGroup { group_id, error_code, ..Default::default() }
}

fn refused_partitions(
    group_id: String,
    topics: Vec<OffsetFetchRequestTopics>,
    code: ErrorCode,
) -> OffsetFetchResponseGroup {
    let topics = topics.into_iter().map(|topic| {
        let OffsetFetchRequestTopics { name, topic_id, partition_indexes } = topic;
        failed(name, topic_id, partition_indexes, code)
    });
    OffsetFetchResponseGroup { group_id, topics: topics.collect(), ..Default::default() }
}

/// The error of a group, for each partition.
fn by_partition(topics: Option<Vec<OffsetFetchRequestTopic>>, error_code: ErrorCode) -> OffsetFetchResponse {
    let topics = topics.into_iter().flatten().map(|topic| {
        let partitions = topic.partition_indexes.into_iter();
        let partitions = partitions.map(|partition_index| OffsetFetchResponsePartition {
            partition_index,
            committed_offset: -1,
            error_code,
            metadata: Some(String::new()),
            ..Default::default()
        });
        OffsetFetchResponseTopic { name: topic.name, partitions: partitions.collect() }
    });
    OffsetFetchResponse { topics: topics.collect(), ..Default::default() }
}

fn check_may_describe(context: &RequestContext, group: &str) -> Result<(), ErrorCode> {
    let may_describe = context.may(Operation::Describe, ResourceType::Group, group);
    if may_describe { Ok(()) } else { Err(ErrorCode::GroupAuthorizationFailed) }
}

/// The offsets of one group. With `stable`, those that an open transaction will change are an error.
async fn fetch_group(
    context: &RequestContext,
    group: OffsetFetchRequestGroup,
    stable: bool,
    pace: &mut Pace,
) -> OffsetFetchResponseGroup {
    let OffsetFetchRequestGroup { group_id, topics, member_id, member_epoch } = group;
    let allowed = check_may_describe(context, &group_id).and_then(|()| check_coordinator(context, &group_id));
    let allowed = allowed.and_then(|()| {
        let groups = &context.cluster().consumer_groups;
        let check = |group: &ConsumerGroup| group.check_fetch(member_id.as_deref(), member_epoch);
        groups.look(&group_id, check).unwrap_or(Ok(()))
    });
    // A share group has no offsets, like a group that does not exist: neither is an error in Kafka.
    if let Err(error_code) = allowed {
        return refused_group(group_id, error_code);
    }
    let by_id = context.version >= TOPIC_IDS_FROM;
    let cluster = context.cluster();
    let offsets = &cluster.offsets;
    let has_leader_epoch = cluster.overrides.commits_have_leader_epoch();
    let described = |topic: &str, partition: i32, mut found: Option<Committed>| {
        if has_leader_epoch
            && let (Some(found), Some(partition)) = (&mut found, cluster.partition(topic, partition))
        {
            found.leader_epoch = partition.leader_epoch();
        }
        if stable && offsets.is_unstable(&group_id, topic, partition) {
            let error_code = ErrorCode::UnstableOffsetCommit;
            return OffsetFetchResponsePartitions { error_code, ..committed(partition, None) };
        }
        committed(partition, found)
    };
    let mut answer: BTreeMap<String, Vec<OffsetFetchResponsePartitions>> = BTreeMap::new();
    let (mut unknown, mut seen) = (Vec::new(), SeenPartitions::default());
    if let Some(topics) = topics {
        for OffsetFetchRequestTopics { name, topic_id, partition_indexes } in topics {
            let name = if by_id { name_of(context, topic_id) } else { Some(name) };
            let Some(name) = name else {
                unknown.push(failed(String::new(), topic_id, partition_indexes, ErrorCode::UnknownTopicId));
                continue;
            };
            if !context.may(Operation::Describe, ResourceType::Topic, &name) {
                let code = ErrorCode::TopicAuthorizationFailed;
                unknown.push(failed(name, topic_id, partition_indexes, code));
                continue;
            }
            let mut found = Vec::new();
            for at in seen.new_ones(&name, partition_indexes) {
                pace.step().await;
                found.push(described(&name, at, offsets.get(&group_id, &name, at)));
            }
            answer.entry(name).or_default().extend(found);
        }
    } else {
        for ((topic, partition), found) in offsets.of_group(&group_id) {
            pace.step().await;
            if !context.may_see_topic(&topic) {
                continue;
            }
            let found = described(&topic, partition, Some(found));
            answer.entry(topic).or_default().push(found);
        }
    }
    let topics = answer.into_iter().filter_map(|(name, partitions)| {
        let topic_id = if by_id { context.cluster().topic(&name)?.id } else { Uuid::ZERO };
        // Like Kafka, version 10 leaves out the offsets of topics that do not exist any more: they have no id.
        Some(OffsetFetchResponseTopics { name, topic_id, partitions })
    });
    OffsetFetchResponseGroup { group_id, topics: topics.chain(unknown).collect(), ..Default::default() }
}

/// The answer for a topic that does not exist, or that the client may not see.
fn failed(
    name: String,
    topic_id: Uuid,
    partitions: Vec<i32>,
    error_code: ErrorCode,
) -> OffsetFetchResponseTopics {
    let partitions = partitions
        .into_iter()
        .map(|index| OffsetFetchResponsePartitions { error_code, ..committed(index, None) });
    OffsetFetchResponseTopics { name, topic_id, partitions: partitions.collect() }
}

fn committed(partition_index: i32, found: Option<Committed>) -> OffsetFetchResponsePartitions {
    let (offset, epoch, metadata) = match found {
        Some(found) => (found.offset, found.leader_epoch, found.metadata),
        None => (-1, -1, String::new()),
    };
    OffsetFetchResponsePartitions {
        partition_index,
        committed_offset: offset,
        committed_leader_epoch: epoch,
        metadata: Some(metadata),
        ..Default::default()
    }
}

impl Api for OffsetDeleteRequest {
    async fn handle(self, context: RequestContext) -> OffsetDeleteResponse {
        let cluster = context.cluster();
        let subscribed = match check_coordinator_of_named(&context, &self.group_id).and_then(|()| {
            match cluster.consumer_groups.subscribed(&self.group_id) {
                Some(subscribed) => Ok(Some(subscribed)),
                None => cluster.groups.subscribed(&self.group_id).transpose(),
            }
        }) {
            Ok(subscribed) => subscribed,
            Err(code) => return self.refuse(&context, code),
        };
        if subscribed.is_none() && !cluster.offsets.has_offsets(&self.group_id) {
            return self.refuse(&context, ErrorCode::GroupIdNotFound);
        }
        let check = |topic: &str, partition: i32| {
            if cluster.partition(topic, partition).is_none() {
                ErrorCode::UnknownTopicOrPartition
            } else if subscribed.as_ref().is_some_and(|subscribed| subscribed.includes(topic)) {
                ErrorCode::GroupSubscribedToTopic
            } else {
                ErrorCode::None
            }
        };
        let (mut gone, mut seen): (Vec<At>, _) = (Vec::new(), SeenPartitions::default());
        let mut topics = Vec::new();
        for OffsetDeleteRequestTopic { name, partitions } in self.topics {
            let partitions =
                partitions.into_iter().map(|OffsetDeleteRequestPartition { partition_index }| {
                    let error_code = check(&name, partition_index);
                    if error_code == ErrorCode::None && seen.insert(&name, partition_index) {
                        gone.push((name.clone(), partition_index));
                    }
                    OffsetDeleteResponsePartition { partition_index, error_code }
                });
            let partitions = partitions.collect();
            topics.push(OffsetDeleteResponseTopic { name, partitions });
        }
        if let Err(error_code) = cluster.remove_offsets(&self.group_id, &gone).await {
            return OffsetDeleteResponse { error_code, ..Default::default() };
        }
        OffsetDeleteResponse { topics, ..Default::default() }
    }

    fn refuse(self, _context: &RequestContext, code: ErrorCode) -> OffsetDeleteResponse {
        OffsetDeleteResponse { error_code: code, ..Default::default() }
    }
}
