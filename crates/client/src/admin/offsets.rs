//! Offsets of many partitions: one request per leader, asked again where the leader has moved.

use std::collections::BTreeMap;
use std::rc::Rc;

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::list_offsets::{
    ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopic,
};
use tokio::time::Instant;

use super::OffsetAt;
use crate::cluster::Cluster;
use crate::cluster::brokers::Lane;
use crate::consumer::TopicPartition;
use crate::error::Error;
use crate::fetch::cursor::StartAt;
use crate::fetch::offsets::{LIST_OFFSETS_VERSION_MAX, isolation_code, timestamp_of};

type Offsets = BTreeMap<TopicPartition, i64>;

pub(super) async fn list(
    cluster: &Rc<Cluster>,
    wanted: &[(TopicPartition, OffsetAt)],
) -> Result<Offsets, Error> {
    let deadline = Instant::now() + cluster.config.request_timeout;
    let mut found = ask_until(cluster, wanted, deadline).await?;
    // A time past the last record has no offset: the end stands for it.
    let past_end: Vec<_> = found
        .iter()
        .filter(|(_, offset)| **offset < 0)
        .map(|(at, _)| (at.clone(), OffsetAt::Latest))
        .collect();
    if !past_end.is_empty() {
        found.extend(ask_until(cluster, &past_end, deadline).await?);
    }
    Ok(found)
}

async fn ask_until(
    cluster: &Rc<Cluster>,
    wanted: &[(TopicPartition, OffsetAt)],
    deadline: Instant,
) -> Result<Offsets, Error> {
    let mut found = Offsets::new();
    let mut left: BTreeMap<TopicPartition, i64> =
        wanted.iter().map(|(at, offset)| (at.clone(), timestamp(*offset))).collect();
    while !left.is_empty() {
        let (problem, unknown) = match ask_once(cluster, &left, &mut found).await {
            Ok(None) => return Ok(found),
            Ok(Some(problem)) => (problem, false),
            Err(error) => {
                let unknown = matches!(error, Error::Broker { .. });
                (error, unknown)
            }
        };
        left.retain(|at, _| !found.contains_key(at));
        let pause = cluster.config.retry_backoff;
        // A topic that no broker knows was misspelt; waiting for it would only hide that.
        let passes = problem.is_retriable() && !matches!(problem, Error::Unreachable { .. }) && !unknown;
        if !passes || Instant::now() + pause >= deadline {
            return Err(problem);
        }
        tokio::time::sleep(pause).await;
    }
    Ok(found)
}

/// Asks every leader once, all at the same time; returns one of the problems that partitions had.
async fn ask_once(
    cluster: &Rc<Cluster>,
    left: &BTreeMap<TopicPartition, i64>,
    found: &mut Offsets,
) -> Result<Option<Error>, Error> {
    let mut topics: Vec<&str> = left.keys().map(|at| &*at.topic).collect();
    topics.dedup();
    let metadata = cluster.describe(Some(&topics)).await?;
    let mut problem = None;
    let mut by_leader: BTreeMap<i32, Vec<ListOffsetsTopic>> = BTreeMap::new();
    for (at, timestamp) in left {
        let topic = metadata.topics.iter().find(|topic| topic.name.as_deref() == Some(&*at.topic));
        let code = topic.map_or(ErrorCode::UnknownTopicOrPartition, |topic| topic.error_code);
        if code == ErrorCode::UnknownTopicOrPartition {
            return Err(Error::Broker { what: format!("topic `{}`", at.topic), code });
        }
        let partition = topic
            .and_then(|topic| topic.partitions.iter().find(|found| found.partition_index == at.partition));
        match partition {
            Some(partition) if partition.leader_id >= 0 => {
                push(by_leader.entry(partition.leader_id).or_default(), at, *timestamp);
            }
            Some(_) => problem = Some(Error::Broker { what: what(at), code: ErrorCode::LeaderNotAvailable }),
            None => return Err(no_such_partition(at, topic.map_or(0, |topic| topic.partitions.len()))),
        }
    }
    cluster.merge(metadata);
    let mut pending = Vec::new();
    for (leader, topics) in by_leader {
        let connection = cluster.brokers.connection(leader, Lane::Control).await?;
        let request = |_version: i16| ListOffsetsRequest {
            replica_id: -1,
            isolation_level: isolation_code(cluster.config.isolation),
            topics,
            ..Default::default()
        };
        pending.push(connection.begin(LIST_OFFSETS_VERSION_MAX, request)?);
    }
    for answer in pending {
        let response = answer.answer(cluster.config.request_timeout).await?;
        take(&response, found, &mut problem);
    }
    Ok(problem)
}

fn take(response: &ListOffsetsResponse, found: &mut Offsets, problem: &mut Option<Error>) {
    for topic in &response.topics {
        for answer in &topic.partitions {
            let at = TopicPartition::new(&topic.name, answer.partition_index);
            if answer.error_code == ErrorCode::None {
                found.insert(at, answer.offset);
            } else {
                *problem = Some(Error::Broker { what: what(&at), code: answer.error_code });
            }
        }
    }
}

fn push(topics: &mut Vec<ListOffsetsTopic>, at: &TopicPartition, timestamp: i64) {
    let partition =
        ListOffsetsPartition { partition_index: at.partition, current_leader_epoch: -1, timestamp };
    // Sorted by topic: the same topic is always the last one.
    match topics.last_mut().filter(|topic| topic.name == *at.topic) {
        Some(topic) => topic.partitions.push(partition),
        None => {
            topics.push(ListOffsetsTopic { name: at.topic.to_string(), partitions: vec![partition] });
        }
    }
}

fn timestamp(at: OffsetAt) -> i64 {
    timestamp_of(match at {
        OffsetAt::Earliest => StartAt::Beginning,
        OffsetAt::Latest => StartAt::End,
        OffsetAt::Timestamp(timestamp) => StartAt::Timestamp(timestamp),
    })
}

fn what(at: &TopicPartition) -> String {
    format!("offsets of topic `{}` partition {}", at.topic, at.partition)
}

fn no_such_partition(at: &TopicPartition, count: usize) -> Error {
    let what = format!("topic `{}` partition {}, of {count}", at.topic, at.partition);
    Error::Broker { what, code: ErrorCode::UnknownTopicOrPartition }
}
