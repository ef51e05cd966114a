//! The ListOffsets request: offsets by timestamp, and the beginning and end of partitions.

use std::collections::BTreeMap;
use std::rc::Rc;

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::list_offsets::{ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic};

use crate::cluster::Cluster;
use crate::cluster::brokers::Lane;
use crate::config::Isolation;
use crate::error::Error;
use crate::types::StartAt;
use crate::types::TopicPartition;

const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
pub(crate) const LIST_OFFSETS_VERSION_MAX: i16 = 7;

/// The timestamp of `start` in a ListOffsets request.
pub(crate) fn timestamp_of(start: StartAt) -> i64 {
    match start {
        StartAt::Beginning => EARLIEST,
        StartAt::End
        | StartAt::BeforeEnd(_)
        | StartAt::Committed
        | StartAt::Offset(_)
        | StartAt::OffsetInEpoch { .. } => LATEST,
        StartAt::Timestamp(timestamp) => timestamp,
    }
}

/// Requests the offsets of these partitions from their leader, once. The answers are in the order of the questions.
///
/// A timestamp after the last record returns the end offset.
pub(crate) async fn resolve(
    cluster: &Rc<Cluster>,
    leader: i32,
    questions: &[(TopicPartition, StartAt)],
) -> Vec<Result<i64, Error>> {
    let wanted: Vec<_> = questions.iter().map(|(at, start)| (at, timestamp_of(*start))).collect();
    let mut answers = ask(cluster, leader, &wanted).await;
    let is_past_the_end =
        |index: &usize| matches!((&answers[*index], questions[*index].1), (Ok(-1), StartAt::Timestamp(_)));
    let late: Vec<usize> = (0..questions.len()).filter(is_past_the_end).collect();
    if !late.is_empty() {
        let ends: Vec<_> = late.iter().map(|index| (&questions[*index].0, LATEST)).collect();
        for (index, end) in late.into_iter().zip(ask(cluster, leader, &ends).await) {
            answers[index] = end;
        }
    }
    go_back_from_ends(cluster, leader, questions, &mut answers).await;
    answers
}

/// Subtracts the offsets of [`StartAt::BeforeEnd`] from the ends, down to the oldest record.
async fn go_back_from_ends(
    cluster: &Rc<Cluster>,
    leader: i32,
    questions: &[(TopicPartition, StartAt)],
    answers: &mut [Result<i64, Error>],
) {
    let back = questions.iter().enumerate().filter_map(|(index, (_, start))| match start {
        StartAt::BeforeEnd(count) => Some((index, i64::from(*count))),
        _ => None,
    });
    let back: Vec<(usize, i64)> = back.filter(|(index, _)| answers[*index].is_ok()).collect();
    if back.is_empty() {
        return;
    }
    let oldest: Vec<_> = back.iter().map(|(index, _)| (&questions[*index].0, EARLIEST)).collect();
    for ((index, count), oldest) in back.into_iter().zip(ask(cluster, leader, &oldest).await) {
        if let Ok(end) = &answers[index] {
            answers[index] = oldest.map(|oldest| (end - count).max(oldest));
        }
    }
}

async fn ask(
    cluster: &Rc<Cluster>,
    leader: i32,
    wanted: &[(&TopicPartition, i64)],
) -> Vec<Result<i64, Error>> {
    let mut topics: BTreeMap<&str, Vec<ListOffsetsPartition>> = BTreeMap::new();
    for (at, timestamp) in wanted {
        let (partition_index, timestamp) = (at.partition, *timestamp);
        let partition = ListOffsetsPartition { partition_index, current_leader_epoch: -1, timestamp };
        topics.entry(&at.topic).or_default().push(partition);
    }
    let request = |_| ListOffsetsRequest {
        replica_id: -1,
        isolation_level: isolation_code(cluster.config.isolation_level),
        topics: topics
            .iter()
            .map(|(name, partitions)| ListOffsetsTopic {
                name: (*name).to_owned(),
                partitions: partitions.clone(),
            })
            .collect(),
        ..Default::default()
    };
    let asking = async {
        let connection = cluster.brokers.connection(leader, Lane::Control).await?;
        let response = cluster.call_soon(&connection, LIST_OFFSETS_VERSION_MAX, request).await?;
        Ok((connection.address().to_owned(), response))
    };
    let (address, response) = match asking.await {
        Ok(answered) => answered,
        Err(error) => return wanted.iter().map(|_| Err(Error::clone(&error))).collect(),
    };
    let mut found: BTreeMap<(&str, i32), (ErrorCode, i64)> = BTreeMap::new();
    for topic in &response.topics {
        for answer in &topic.partitions {
            found.insert((&topic.name, answer.partition_index), (answer.error_code, answer.offset));
        }
    }
    let answer_of = |(at, _): &(&TopicPartition, i64)| {
        let what = format!("offsets of topic `{}` partition {}", at.topic, at.partition);
        match found.get(&(&*at.topic, at.partition)) {
            Some((ErrorCode::None, offset)) => Ok(*offset),
            Some((code, _)) => {
                if code.needs_metadata_refresh() {
                    cluster.forget_leader(&at.topic, at.partition);
                }
                Err(Error::Broker { what, code: *code })
            }
            None => Err(Error::Protocol {
                address: address.clone(),
                reason: format!("answer without the {what}"),
            }),
        }
    };
    wanted.iter().map(answer_of).collect()
}

/// The number of an isolation level on the wire.
pub(crate) fn isolation_code(isolation: Isolation) -> i8 {
    match isolation {
        Isolation::ReadUncommitted => 0,
        Isolation::ReadCommitted => 1,
    }
}
