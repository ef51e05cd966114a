//! Offsets of many partitions, requested from their leaders: the first, the last, or by timestamp.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::rc::Rc;

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::list_offsets::{
    ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopic,
};

use super::leaders::{self, ByTopic, Question};
use super::operation::Operation;
use super::{Admin, KeyedResults, Timeouts, left_out};
use crate::cluster::Cluster;
use crate::config::Isolation;
use crate::error::Error;
use crate::fetch::offsets::{LIST_OFFSETS_VERSION_MAX, isolation_code};
use crate::types::TopicPartition;

const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
const MAX_TIMESTAMP: i64 = -3;
/// The first version of ListOffsets that finds the highest timestamp (KIP-734).
const MAX_TIMESTAMP_SINCE: i16 = 7;

/// The offset of a partition to look up.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum OffsetAt {
    /// The offset of the oldest record.
    Earliest,
    /// The offset after the last record that is visible under `isolation.level`.
    Latest,
    /// The offset of the record with the highest timestamp; -1 if there are no records. Supported by brokers from 3.0
    /// on.
    MaxTimestamp,
    /// The offset of the first record with this timestamp or a later one, in milliseconds since 1970.
    Timestamp(i64),
}

impl OffsetAt {
    const fn code(self) -> i64 {
        match self {
            Self::Earliest => EARLIEST,
            Self::Latest => LATEST,
            Self::MaxTimestamp => MAX_TIMESTAMP,
            Self::Timestamp(timestamp) => timestamp,
        }
    }
}

/// The result of an offset lookup.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct FoundOffset {
    /// The offset; -1 if there is none.
    pub offset: i64,
    /// The timestamp of the record at the offset, for a lookup by timestamp; otherwise -1.
    pub timestamp_ms: i64,
    /// The epoch of the leader that wrote the record, if the broker reports it.
    pub leader_epoch: Option<i32>,
}

impl Admin {
    /// Looks up offsets of many partitions at all their leaders at once, under the client's `isolation.level`. A
    /// timestamp after the last record returns the end offset.
    pub async fn list_offsets(
        &self,
        wanted: &[(TopicPartition, OffsetAt)],
    ) -> Result<BTreeMap<TopicPartition, i64>, Error> {
        let wanted = wanted.to_vec();
        self.ask("list_offsets", |cluster| async move { list_with_ends(cluster, &wanted).await }).await
    }

    /// [`Admin::list_offsets_with`] under the client's `isolation.level`. A partition that does not exist has its error at
    /// once: the call does not wait until it is created.
    ///
    /// # Errors
    /// The whole call fails if no broker responds in time.
    pub async fn list_offsets_each(
        &self,
        wanted: &[(TopicPartition, OffsetAt)],
    ) -> Result<KeyedResults<TopicPartition, FoundOffset>, Error> {
        let wanted = wanted.to_vec();
        let work = move |cluster: Rc<Cluster>| async move {
            let isolation = cluster.config.isolation_level;
            let operation = Operation::hasty(cluster, "list_offsets");
            list_each(&operation, wanted, isolation).await
        };
        self.ask("list_offsets", work).await
    }

    /// Looks up offsets of many partitions at all their leaders at once. Returns a result per partition, in the order
    /// of the request. A timestamp after the last record returns -1.
    ///
    /// # Errors
    /// The whole call fails if no broker responds in time.
    pub async fn list_offsets_with(
        &self,
        wanted: &[(TopicPartition, OffsetAt)],
        isolation: Isolation,
        timeouts: Timeouts,
    ) -> Result<KeyedResults<TopicPartition, FoundOffset>, Error> {
        let wanted = wanted.to_vec();
        let work = move |cluster: Rc<Cluster>| async move {
            let operation = Operation::new(cluster, "list_offsets", timeouts);
            list_each(&operation, wanted, isolation).await
        };
        self.ask("list_offsets", work).await
    }
}

async fn list_with_ends(
    cluster: Rc<Cluster>,
    wanted: &[(TopicPartition, OffsetAt)],
) -> Result<BTreeMap<TopicPartition, i64>, Error> {
    let isolation = cluster.config.isolation_level;
    let operation = Operation::hasty(cluster, "list_offsets");
    let mut found = BTreeMap::new();
    for (at, answer) in list(&operation, wanted, isolation).await? {
        found.insert(at, answer?.offset);
    }
    // A timestamp after the last record has no offset: the end offset replaces it.
    let is_time = |at: &TopicPartition| {
        wanted.iter().any(|(asked, offset)| asked == at && matches!(offset, OffsetAt::Timestamp(_)))
    };
    let past_end: Vec<_> = found
        .iter()
        .filter(|(at, offset)| **offset < 0 && is_time(at))
        .map(|(at, _)| (at.clone(), OffsetAt::Latest))
        .collect();
    for (at, answer) in list(&operation, &past_end, isolation).await? {
        found.insert(at, answer?.offset);
    }
    Ok(found)
}

/// Looks up offsets and returns them in the order of the request. A request has one offset for each partition, so more of them take
/// further rounds.
async fn list_each(
    operation: &Operation,
    wanted: Vec<(TopicPartition, OffsetAt)>,
    isolation: Isolation,
) -> Result<KeyedResults<TopicPartition, FoundOffset>, Error> {
    let mut found: BTreeMap<(TopicPartition, i64), Result<FoundOffset, Error>> = BTreeMap::new();
    let mut left = wanted.clone();
    while !left.is_empty() {
        let mut round: BTreeMap<TopicPartition, OffsetAt> = BTreeMap::new();
        left.retain(|(at, offset)| {
            let asked = *round.entry(at.clone()).or_insert(*offset);
            asked.code() != offset.code()
        });
        let asked: Vec<_> = round.into_iter().collect();
        match list(operation, &asked, isolation).await {
            Ok(mut answers) => {
                found.extend(asked.into_iter().filter_map(|(at, offset)| {
                    answers.remove(&at).map(|answer| ((at, offset.code()), answer))
                }));
            }
            Err(error) if found.is_empty() => return Err(error),
            // The offsets of earlier rounds are reported.
            Err(error) => {
                found.extend(asked.into_iter().map(|(at, offset)| ((at, offset.code()), Err(error.clone()))));
            }
        }
    }
    let answer = |(at, offset): (TopicPartition, OffsetAt)| {
        let key = (at, offset.code());
        let answer =
            found.get(&key).cloned().unwrap_or_else(|| Err(left_out("offsets of partition", &key.0)));
        (key.0, answer)
    };
    Ok(wanted.into_iter().map(answer).collect())
}

async fn list(
    operation: &Operation,
    wanted: &[(TopicPartition, OffsetAt)],
    isolation: Isolation,
) -> Result<leaders::Answers<FoundOffset>, Error> {
    let wanted: BTreeMap<TopicPartition, OffsetAt> = wanted.iter().cloned().collect();
    let partitions: Vec<TopicPartition> = wanted.keys().cloned().collect();
    leaders::ask(operation, &Offsets { wanted, isolation }, partitions).await
}

struct Offsets {
    wanted: BTreeMap<TopicPartition, OffsetAt>,
    isolation: Isolation,
}

impl Question for Offsets {
    type Request = ListOffsetsRequest;
    type Answer = FoundOffset;

    const VERSIONS: RangeInclusive<i16> = 0..=LIST_OFFSETS_VERSION_MAX;
    const RETURNS_CODES: bool = true;

    fn versions(&self) -> RangeInclusive<i16> {
        let highest = self.wanted.values().any(|at| *at == OffsetAt::MaxTimestamp);
        if highest { MAX_TIMESTAMP_SINCE..=LIST_OFFSETS_VERSION_MAX } else { Self::VERSIONS }
    }

    fn request(&self, partitions: &ByTopic) -> ListOffsetsRequest {
        let partition = |at: &TopicPartition| ListOffsetsPartition {
            partition_index: at.partition,
            current_leader_epoch: -1,
            timestamp: self.wanted.get(at).map_or(LATEST, |at| at.code()),
        };
        let topic = |(name, partitions): (&String, &Vec<TopicPartition>)| ListOffsetsTopic {
            name: name.clone(),
            partitions: partitions.iter().map(partition).collect(),
        };
        ListOffsetsRequest {
            replica_id: -1,
            isolation_level: isolation_code(self.isolation),
            topics: partitions.iter().map(topic).collect(),
            ..Default::default()
        }
    }

    fn answers(
        &self,
        response: ListOffsetsResponse,
    ) -> Vec<(TopicPartition, Result<FoundOffset, ErrorCode>)> {
        let mut answers = Vec::new();
        for topic in response.topics {
            for answer in topic.partitions {
                let at = TopicPartition::new(&topic.name, answer.partition_index);
                let found = answer.error_code.into_result().map(|()| FoundOffset {
                    offset: answer.offset,
                    timestamp_ms: answer.timestamp,
                    leader_epoch: (answer.leader_epoch >= 0).then_some(answer.leader_epoch),
                });
                answers.push((at, found));
            }
        }
        answers
    }

    fn what(&self, at: &TopicPartition) -> String {
        format!("offsets of topic `{}` partition {}", at.topic, at.partition)
    }
}
