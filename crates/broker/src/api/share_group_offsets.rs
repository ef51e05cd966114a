//! DescribeShareGroupOffsets, AlterShareGroupOffsets, DeleteShareGroupOffsets: the start offsets of share groups.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ottla_protocol::messages::alter_share_group_offsets::{
    AlterShareGroupOffsetsRequest, AlterShareGroupOffsetsRequestTopic, AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition, AlterShareGroupOffsetsResponseTopic,
};
use ottla_protocol::messages::delete_share_group_offsets::{
    DeleteShareGroupOffsetsRequest, DeleteShareGroupOffsetsResponse, DeleteShareGroupOffsetsResponseTopic,
};
use ottla_protocol::messages::describe_share_group_offsets::{
    DescribeShareGroupOffsetsRequest, DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic, DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup, DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
};
use ottla_protocol::{ErrorCode, Uuid};

use super::groups::{check_coordinator, check_coordinator_of_named, coordinate};
use super::repeats::SeenPartitions;
use super::{Api, RequestContext};
use crate::coordinator::consumer_group::group::Refusal;
use crate::coordinator::share_group::Starts;
use crate::coordinator::share_group::group::ShareGroup;
use crate::coordinator::share_state::{SharePartitionKey, UNINITIALIZED};
use crate::security::acl::{Operation, ResourceType};

/// A number that is not known.
const UNKNOWN: i64 = -1;

impl Api for DescribeShareGroupOffsetsRequest {
    async fn handle(self, context: RequestContext) -> DescribeShareGroupOffsetsResponse {
        if !context.cluster().has_share_groups() {
            return self.refuse(&context, ErrorCode::UnsupportedVersion);
        }
        let mut groups = Vec::with_capacity(self.groups.len());
        // A group that is named again is an error, because it may have other topics there.
        let mut seen = BTreeSet::new();
        for DescribeShareGroupOffsetsRequestGroup { group_id, topics } in self.groups {
            if !seen.insert(group_id.clone()) {
                groups.push(refused_group(group_id, ErrorCode::InvalidRequest));
                continue;
            }
            groups.push(match check_coordinator(&context, &group_id) {
                Ok(()) => describe(&context, group_id, topics).await,
                Err(code) => refused_group(group_id, code),
            });
        }
        DescribeShareGroupOffsetsResponse { groups, ..Default::default() }
    }

    fn refuse(self, _context: &RequestContext, code: ErrorCode) -> DescribeShareGroupOffsetsResponse {
        let groups = self.groups.into_iter().map(|group| DescribeShareGroupOffsetsResponseGroup {
            group_id: group.group_id,
            error_code: code,
            error_message: None,
            ..Default::default()
        });
        DescribeShareGroupOffsetsResponse { groups: groups.collect(), ..Default::default() }
    }
}

fn refused_group(group_id: String, code: ErrorCode) -> DescribeShareGroupOffsetsResponseGroup {
    DescribeShareGroupOffsetsResponseGroup {
        group_id,
        error_code: code,
        error_message: Some(code.to_string()),
        ..Default::default()
    }
}

async fn describe(
    context: &RequestContext,
    group_id: String,
    requested: Option<Vec<DescribeShareGroupOffsetsRequestTopic>>,
) -> DescribeShareGroupOffsetsResponseGroup {
    let cluster = context.cluster();
    let (mut topics, mut seen) = (Vec::new(), SeenPartitions::default());
    let may = |name: &str| context.may(Operation::Describe, ResourceType::Topic, name);
    if let Some(requested) = requested {
        for DescribeShareGroupOffsetsRequestTopic { topic_name, partitions } in requested {
            let partitions = seen.new_ones(&topic_name, partitions);
            let denied = (!may(&topic_name)).then_some(ErrorCode::TopicAuthorizationFailed);
            // Kafka: a topic that does not exist has no start offset, and that is no error.
            let id = cluster.topic(&topic_name).filter(|_| denied.is_none()).map(|topic| topic.id);
            topics.push(match id {
                Some(id) => describe_topic(context, &group_id, (id, topic_name), partitions).await,
                None => DescribeShareGroupOffsetsResponseTopic {
                    topic_name,
                    topic_id: Uuid::ZERO,
                    partitions: partitions.into_iter().map(|index| unknown(index, denied)).collect(),
                },
            });
        }
    } else {
        let initialized = cluster.share_groups.look(&group_id, ShareGroup::initialized);
        for (id, partitions) in initialized.unwrap_or_default() {
            let Some(topic) = cluster.topic_by_id(id).filter(|topic| context.may_see_topic(&topic.name))
            else {
                continue;
            };
            let partitions = partitions.into_iter().collect();
            topics.push(describe_topic(context, &group_id, (id, topic.name.to_string()), partitions).await);
        }
    }
    DescribeShareGroupOffsetsResponseGroup { group_id, topics, ..Default::default() }
}

fn unknown(partition_index: i32, code: Option<ErrorCode>) -> DescribeShareGroupOffsetsResponsePartition {
    DescribeShareGroupOffsetsResponsePartition {
        partition_index,
        start_offset: UNINITIALIZED,
        lag: UNKNOWN,
        error_code: code.unwrap_or(ErrorCode::None),
        error_message: code.map(|code| code.to_string()),
        ..Default::default()
    }
}

async fn describe_topic(
    context: &RequestContext,
    group_id: &str,
    (topic_id, topic_name): (Uuid, String),
    indexes: Vec<i32>,
) -> DescribeShareGroupOffsetsResponseTopic {
    let cluster = context.cluster();
    let group: Arc<str> = group_id.into();
    let mut partitions = Vec::with_capacity(indexes.len());
    for index in indexes {
        let key = SharePartitionKey { group: group.clone(), topic: topic_id, partition: index };
        let partition = match cluster.share_states.summary(cluster, &key).await {
            Ok(state) => {
                let is_known = state.start_offset != UNINITIALIZED && state.delivery_complete_count >= 0;
                let end = cluster.partition(&topic_name, index).map(|partition| partition.high_watermark());
                let lag = end.filter(|_| is_known).map_or(UNKNOWN, |end| {
                    let done = state.start_offset.saturating_add(state.delivery_complete_count.into());
                    end.saturating_sub(done).max(0)
                });
                DescribeShareGroupOffsetsResponsePartition {
                    partition_index: index,
                    start_offset: state.start_offset,
                    leader_epoch: state.leader_epoch,
                    lag,
                    ..Default::default()
                }
            }
            Err(code) => {
                // As in Kafka, the client gets no error.
                tracing::debug!(group_id, topic_name, index, %code, "reading the state of a share partition");
                unknown(index, None)
            }
        };
        partitions.push(partition);
    }
    DescribeShareGroupOffsetsResponseTopic { topic_name, topic_id, partitions }
}

impl Api for AlterShareGroupOffsetsRequest {
    async fn handle(self, context: RequestContext) -> AlterShareGroupOffsetsResponse {
        if !context.cluster().has_share_groups() {
            return self.refuse(&context, ErrorCode::UnsupportedVersion);
        }
        if let Err(code) = check_coordinator_of_named(&context, &self.group_id) {
            return self.refuse(&context, code);
        }
        if let Err(code) = coordinate(&context, &self.group_id).await {
            return self.refuse(&context, code);
        }
        let mut chosen = self.topics.iter().flat_map(|topic| &topic.partitions);
        if chosen.any(|partition| partition.start_offset < UNINITIALIZED) {
            return self.refuse(&context, ErrorCode::InvalidRequest);
        }
        let cluster = context.cluster();
        let mut starts = Starts::new();
        for topic in &self.topics {
            let Some(known) = cluster.topic(&topic.topic_name) else { continue };
            let exists = |index: i32| (0..known.partitions.len() as i32).contains(&index);
            let partitions = topic.partitions.iter().filter(|partition| exists(partition.partition_index));
            let starts = starts.entry((known.id, topic.topic_name.clone())).or_default();
            starts.extend(partitions.map(|partition| (partition.partition_index, partition.start_offset)));
        }
        let requested: BTreeSet<(Uuid, i32)> = starts
            .iter()
            .flat_map(|((id, _), partitions)| partitions.keys().map(move |index| (*id, *index)))
            .collect();
        let result = cluster.share_groups.alter_offsets(cluster, &self.group_id, starts).await;
        if result.is_ok() {
            cluster.share_leader.forget_group(cluster, &self.group_id);
        }
        let failed = match result {
            Ok(failed) => failed,
            Err(Refusal { code, message }) => {
                return AlterShareGroupOffsetsResponse {
                    error_code: code,
                    error_message: Some(message),
                    ..Default::default()
                };
            }
        };
        let responses = self.topics.into_iter().map(|topic| {
            let id = cluster.topic(&topic.topic_name).map_or(Uuid::ZERO, |topic| topic.id);
            altered(topic, id, |index| match failed.get(&(id, index)) {
                Some(code) => *code,
                None if requested.contains(&(id, index)) => ErrorCode::None,
                None => ErrorCode::UnknownTopicOrPartition,
            })
        });
        AlterShareGroupOffsetsResponse { responses: responses.collect(), ..Default::default() }
    }

    fn refuse(self, _context: &RequestContext, code: ErrorCode) -> AlterShareGroupOffsetsResponse {
        AlterShareGroupOffsetsResponse {
            error_code: code,
            error_message: Some(code.to_string()),
            ..Default::default()
        }
    }
}

/// The result of a topic.
pub(super) fn altered(
    topic: AlterShareGroupOffsetsRequestTopic,
    topic_id: Uuid,
    code_of: impl Fn(i32) -> ErrorCode,
) -> AlterShareGroupOffsetsResponseTopic {
    let partitions = topic.partitions.into_iter().map(|partition| {
        let error_code = code_of(partition.partition_index);
        AlterShareGroupOffsetsResponsePartition {
            partition_index: partition.partition_index,
            error_code,
            error_message: message_of(error_code),
        }
    });
    AlterShareGroupOffsetsResponseTopic {
        topic_name: topic.topic_name,
        topic_id,
        partitions: partitions.collect(),
    }
}

fn message_of(code: ErrorCode) -> Option<String> {
    (code != ErrorCode::None).then(|| code.to_string())
}

impl Api for DeleteShareGroupOffsetsRequest {
    async fn handle(self, context: RequestContext) -> DeleteShareGroupOffsetsResponse {
        if !context.cluster().has_share_groups() {
            return self.refuse(&context, ErrorCode::UnsupportedVersion);
        }
        if let Err(code) = check_coordinator_of_named(&context, &self.group_id) {
            return self.refuse(&context, code);
        }
        let cluster = context.cluster();
        let ids: BTreeMap<&str, Uuid> = self
            .topics
            .iter()
            .filter_map(|topic| Some((&*topic.topic_name, cluster.topic(&topic.topic_name)?.id)))
            .collect();
        let topics = ids.values().copied().collect();
        let outcome = cluster.share_groups.delete_offsets(cluster, &self.group_id, &topics).await;
        if outcome.is_ok() {
            cluster.share_leader.forget_group(cluster, &self.group_id);
        }
        let results = match outcome {
            Ok(results) => results,
            Err(Refusal { code, message }) => {
                return DeleteShareGroupOffsetsResponse {
                    error_code: code,
                    error_message: Some(message),
                    ..Default::default()
                };
            }
        };
        let response = |name: &str| {
            let id = ids.get(name).copied();
            let result = id.and_then(|id| results.get(&id).copied());
            deleted(name, id.unwrap_or(Uuid::ZERO), result.unwrap_or(ErrorCode::UnknownTopicOrPartition))
        };
        let responses = self.topics.iter().map(|topic| response(&topic.topic_name)).collect();
        DeleteShareGroupOffsetsResponse { responses, ..Default::default() }
    }

    fn refuse(self, _context: &RequestContext, code: ErrorCode) -> DeleteShareGroupOffsetsResponse {
        DeleteShareGroupOffsetsResponse {
            error_code: code,
            error_message: Some(code.to_string()),
            ..Default::default()
        }
    }
}

/// The result of a topic.
pub(super) fn deleted(
    topic_name: &str,
    topic_id: Uuid,
    error_code: ErrorCode,
) -> DeleteShareGroupOffsetsResponseTopic {
    DeleteShareGroupOffsetsResponseTopic {
        topic_name: topic_name.to_owned(),
        topic_id,
        error_code,
        error_message: message_of(error_code),
    }
}
