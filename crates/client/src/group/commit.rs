//! Requests that commit and fetch committed offsets.

use std::collections::BTreeMap;

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::offset_commit::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic, OffsetCommitResponse,
};
use ottla_protocol::messages::offset_fetch::{
    OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
    OffsetFetchResponse,
};
use tokio::time::Instant;

use super::commands::{CommittedEach, RefusedOffsets};
use super::coordinator::{Coordinator, is_wrong_coordinator};
use super::next_gen::is_stale;
use crate::config::Isolation;
use crate::error::Error;
use crate::types::{OffsetAndMetadata, TopicPartition};

/// Version 10 identifies topics by id.
const OFFSET_COMMIT_VERSION_MAX: i16 = 9;
const OFFSET_FETCH_VERSION_MAX: i16 = 9;

/// Commits offsets under a generation and member id, or outside any membership.
///
/// Retriable errors (a coordinator that moves or loads) are retried within the request timeout. The refusal of a
/// member that is no longer in the group is final. A refused partition does not keep the others from being committed.
pub(crate) async fn commit_offsets(
    coordinator: &Coordinator,
    offsets: &BTreeMap<TopicPartition, OffsetAndMetadata>,
    generation: Option<(i32, String)>,
) -> Result<RefusedOffsets, Error> {
    let instance_id = generation.as_ref().and_then(|_| coordinator.identity().instance_id.clone());
    let (generation, member) = generation.unwrap_or((-1, String::new()));
    let make = |_version: i16| {
        let mut request = OffsetCommitRequest {
            group_id: coordinator.group().to_owned(),
            generation_id_or_member_epoch: generation,
            member_id: member.clone(),
            group_instance_id: instance_id.clone(),
            ..Default::default()
        };
        for (at, offset) in offsets {
            let partition = OffsetCommitRequestPartition {
                partition_index: at.partition,
                committed_offset: offset.offset,
                committed_leader_epoch: offset.leader_epoch.unwrap_or(-1),
                committed_metadata: Some(offset.metadata.clone()),
            };
            match request.topics.iter_mut().find(|topic| topic.name == *at.topic) {
                Some(topic) => topic.partitions.push(partition),
                None => request.topics.push(OffsetCommitRequestTopic {
                    name: at.topic.to_string(),
                    partitions: vec![partition],
                    ..Default::default()
                }),
            }
        }
        request
    };
    let of_group = |response: &OffsetCommitResponse| {
        refused_in(response).map(|(_, code)| code).find(|code| !is_of_partition(*code))
    };
    let response = coordinator.call("OffsetCommit", OFFSET_COMMIT_VERSION_MAX, make, of_group).await?;
    Ok(refused_in(&response).collect())
}

/// The partitions of a response that have an error.
fn refused_in(response: &OffsetCommitResponse) -> impl Iterator<Item = (TopicPartition, ErrorCode)> {
    let partitions = response.topics.iter().flat_map(|topic| {
        let name = topic.name.as_str();
        topic.partitions.iter().map(move |it| (TopicPartition::new(name, it.partition_index), it.error_code))
    });
    partitions.filter(|(_, code)| *code != ErrorCode::None)
}

/// Returns `true` for a final error that concerns its partition only. A topic that does not exist has no offsets, and waiting does
/// not create it.
fn is_of_partition(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::UnknownTopicOrPartition
            | ErrorCode::UnknownTopicId
            | ErrorCode::TopicAuthorizationFailed
            | ErrorCode::OffsetMetadataTooLarge
            | ErrorCode::InvalidCommitOffsetSize
    )
}

/// Fetches the committed offsets of these partitions, or of all (`None`); partitions without one are omitted. With
/// `read_committed`, the request waits for transactions that are being completed (KIP-447).
pub(crate) async fn fetch_committed(
    coordinator: &Coordinator,
    partitions: Option<&[TopicPartition]>,
    isolation: Isolation,
) -> Result<BTreeMap<TopicPartition, OffsetAndMetadata>, Error> {
    Ok(offsets_in(fetch(coordinator, partitions, isolation, first_error).await?))
}

/// The same for these partitions, each with its own error.
pub(crate) async fn fetch_committed_each(
    coordinator: &Coordinator,
    partitions: &[TopicPartition],
    isolation: Isolation,
) -> Result<CommittedEach, Error> {
    Ok(results_in(fetch(coordinator, Some(partitions), isolation, error_of_group).await?))
}

/// Fetches offsets until the response has no error by `error_of`.
///
/// In the KIP-848 protocol, the coordinator moves the member to its next epoch before the member receives the heartbeat response with
/// it. Offsets that it refuses in between are fetched again in the next epoch, until the request timeout has passed.
async fn fetch(
    coordinator: &Coordinator,
    partitions: Option<&[TopicPartition]>,
    isolation: Isolation,
    error_of: impl Fn(&OffsetFetchResponse) -> Option<ErrorCode>,
) -> Result<OffsetFetchResponse, Error> {
    let deadline = Instant::now() + coordinator.request_timeout();
    let group = coordinator.group().to_owned();
    let require_stable = isolation == Isolation::ReadCommitted;
    let by_topic = partitions.map(|partitions| {
        let mut by_topic: BTreeMap<String, Vec<i32>> = BTreeMap::new();
        for at in partitions {
            by_topic.entry(at.topic.to_string()).or_default().push(at.partition);
        }
        by_topic
    });
    loop {
        let member = coordinator.fenced_member();
        let make = |version: i16| {
            // From version 8 on, a request can name several groups.
            if version >= 8 {
                let topic = |(name, indexes): (&String, &Vec<i32>)| OffsetFetchRequestTopics {
                    name: name.clone(),
                    partition_indexes: indexes.clone(),
                    ..Default::default()
                };
                let group = OffsetFetchRequestGroup {
                    group_id: group.clone(),
                    member_id: member.as_ref().map(|(_, id)| id.clone()),
                    member_epoch: member.as_ref().map_or(-1, |(epoch, _)| *epoch),
                    topics: by_topic.as_ref().map(|by_topic| by_topic.iter().map(topic).collect()),
                };
                OffsetFetchRequest { groups: vec![group], require_stable, ..Default::default() }
            } else {
                let topic = |(name, indexes): (&String, &Vec<i32>)| OffsetFetchRequestTopic {
                    name: name.clone(),
                    partition_indexes: indexes.clone(),
                };
                OffsetFetchRequest {
                    group_id: group.clone(),
                    topics: by_topic.as_ref().map(|by_topic| by_topic.iter().map(topic).collect()),
                    require_stable: require_stable && version >= 7,
                    ..Default::default()
                }
            }
        };
        let fetched = coordinator.call("OffsetFetch", OFFSET_FETCH_VERSION_MAX, make, &error_of).await;
        match fetched {
            Err(error) if is_stale(&error) && Instant::now() < deadline => {
                tokio::time::sleep(coordinator.retry_backoff()).await;
            }
            fetched => return fetched,
        }
    }
}

/// The first error code of a response, of any of its levels.
fn first_error(response: &OffsetFetchResponse) -> Option<ErrorCode> {
    let of_partitions = errors_of_partitions(response).map(|(_, _, code)| code);
    errors_of_groups(response).chain(of_partitions).find(|code| *code != ErrorCode::None)
}

/// The first error code that concerns the whole group; brokers before Kafka 0.11 return it for each partition. Offsets of a
/// transaction that is being completed are stable soon.
fn error_of_group(response: &OffsetFetchResponse) -> Option<ErrorCode> {
    let of_partitions = errors_of_partitions(response).map(|(_, _, code)| code);
    let of_partitions = of_partitions.filter(|code| is_wrong_coordinator(*code));
    errors_of_groups(response).chain(of_partitions).find(|code| *code != ErrorCode::None)
}

fn errors_of_groups(response: &OffsetFetchResponse) -> impl Iterator<Item = ErrorCode> + '_ {
    std::iter::once(response.error_code).chain(response.groups.iter().map(|group| group.error_code))
}

/// Topic, partition and error code of all partitions in a response.
fn errors_of_partitions(response: &OffsetFetchResponse) -> impl Iterator<Item = (&str, i32, ErrorCode)> {
    let of_topics = response.topics.iter().flat_map(|topic| {
        topic.partitions.iter().map(|it| (topic.name.as_str(), it.partition_index, it.error_code))
    });
    let of_groups = response.groups.iter().flat_map(|group| &group.topics).flat_map(|topic| {
        topic.partitions.iter().map(|it| (topic.name.as_str(), it.partition_index, it.error_code))
    });
    of_topics.chain(of_groups)
}

/// The committed offsets in a response, and the errors of partitions.
fn results_in(response: OffsetFetchResponse) -> CommittedEach {
    let failed: Vec<_> = errors_of_partitions(&response)
        .filter(|(_, _, code)| *code != ErrorCode::None)
        .map(|(topic, index, code)| (TopicPartition::new(topic, index), Err(code)))
        .collect();
    let mut results: BTreeMap<_, _> =
        offsets_in(response).into_iter().map(|(at, offset)| (at, Ok(offset))).collect();
    results.extend(failed);
    results
}

/// The committed offsets in a response of any version.
fn offsets_in(response: OffsetFetchResponse) -> BTreeMap<TopicPartition, OffsetAndMetadata> {
    let mut committed = BTreeMap::new();
    let mut take = |topic: &str, index: i32, offset: i64, epoch: i32, metadata: Option<String>| {
        if offset >= 0 {
            let leader_epoch = Some(epoch).filter(|epoch| *epoch >= 0);
            let found = OffsetAndMetadata { offset, leader_epoch, metadata: metadata.unwrap_or_default() };
            committed.insert(TopicPartition::new(topic, index), found);
        }
    };
    for topic in response.topics {
        for found in topic.partitions {
            let (index, epoch) = (found.partition_index, found.committed_leader_epoch);
            take(&topic.name, index, found.committed_offset, epoch, found.metadata);
        }
    }
    for topic in response.groups.into_iter().flat_map(|group| group.topics) {
        for found in topic.partitions {
            let (index, epoch) = (found.partition_index, found.committed_leader_epoch);
            take(&topic.name, index, found.committed_offset, epoch, found.metadata);
        }
    }
    committed
}

#[cfg(test)]
mod tests {
    use ottla_protocol::messages::offset_fetch::{
        OffsetFetchResponseGroup, OffsetFetchResponsePartitions, OffsetFetchResponseTopics,
    };

    use super::*;

    #[test]
    fn a_partition_with_an_error_does_not_hide_the_offsets_of_the_others() {
        let partition = |partition_index, committed_offset, error_code| OffsetFetchResponsePartitions {
            partition_index,
            committed_offset,
            error_code,
            ..Default::default()
        };
        let refused = ErrorCode::TopicAuthorizationFailed;
        let response = |second| {
            let partitions = vec![partition(0, 7, ErrorCode::None), partition(1, -1, second)];
            let topics =
                vec![OffsetFetchResponseTopics { name: "orders".into(), partitions, ..Default::default() }];
            let group = OffsetFetchResponseGroup { topics, ..Default::default() };
            OffsetFetchResponse { groups: vec![group], ..Default::default() }
        };
        assert_eq!(first_error(&response(refused)), Some(refused));
        assert_eq!(error_of_group(&response(refused)), None);
        let unstable = ErrorCode::UnstableOffsetCommit;
        assert_eq!(error_of_group(&response(unstable)), Some(unstable), "it is tried again");
        let results = results_in(response(refused));
        let result = |index| results.get(&TopicPartition::new("orders", index)).cloned();
        assert_eq!(result(0).map(|found| found.map(|found| found.offset)), Some(Ok(7)));
        assert_eq!(result(1), Some(Err(refused)));
    }
}
