//! Offsets of many partitions, asked of their leaders: the first, the last, or those of a time.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::rc::Rc;

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::list_offsets::{
    ListOffsetsPartition, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopic,
};

use super::leaders::{self, ByTopic, Question};
use super::operation::Operation;
use super::{Admin, Each, Timeouts, in_order};
use crate::cluster::Cluster;
use crate::config::Isolation;
use crate::consumer::TopicPartition;
use crate::error::Error;
use crate::fetch::offsets::{LIST_OFFSETS_VERSION_MAX, isolation_code};

const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
const MAX_TIMESTAMP: i64 = -3;
/// From this version of ListOffsets on brokers find the record with the highest timestamp (KIP-734).
const MAX_TIMESTAMP_SINCE: i16 = 7;

/// Which offset of a partition is asked for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum OffsetAt {
    /// The oldest record's.
    Earliest,
    /// The next record's, as far as `isolation.level` lets a consumer see.
    Latest,
    /// The record's with the highest timestamp; -1 if there are no records. Brokers find it from 3.0 on.
    MaxTimestamp,
    /// The first record's with this timestamp or a later one, milliseconds since 1970.
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

/// An offset that was found.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct FoundOffset {
    /// The offset; -1 if there is none.
    pub offset: i64,
    /// The timestamp of the record there, if a time was asked for; -1 if none was.
    pub timestamp_ms: i64,
    /// The epoch of the leader that wrote it, if the broker tells.
    pub leader_epoch: Option<i32>,
}

impl Admin {
    /// Offsets of many partitions, asked of all their leaders at once, under the client's `isolation.level`. A time past
    /// the last record gives the end.
    pub async fn list_offsets(
        &self,
        wanted: &[(TopicPartition, OffsetAt)],
    ) -> Result<BTreeMap<TopicPartition, i64>, Error> {
        let wanted = wanted.to_vec();
        self.ask("list_offsets", |cluster| async move { list_with_ends(cluster, &wanted).await }).await
    }

    /// Offsets of many partitions, asked of all their leaders at once; answers per partition, in the order asked for. A
    /// time past the last record gives -1.
    ///
    /// # Errors
    /// When no partition has an answer of its own: no broker answered in time.
    pub async fn list_offsets_with(
        &self,
        wanted: &[(TopicPartition, OffsetAt)],
        isolation: Isolation,
        timeouts: Timeouts,
    ) -> Result<Each<TopicPartition, FoundOffset>, Error> {
        let wanted = wanted.to_vec();
        let work = move |cluster: Rc<Cluster>| async move {
            let operation = Operation::new(cluster, "list_offsets", timeouts);
            let answers = list(&operation, &wanted, isolation).await?;
            Ok(in_order(wanted.into_iter().map(|(at, _)| at), answers, "offsets of partition"))
        };
        self.ask("list_offsets", work).await
    }
}

async fn list_with_ends(
    cluster: Rc<Cluster>,
    wanted: &[(TopicPartition, OffsetAt)],
) -> Result<BTreeMap<TopicPartition, i64>, Error> {
    let isolation = cluster.config.isolation;
    let operation = Operation::hasty(cluster, "list_offsets");
    let mut found = BTreeMap::new();
    for (at, answer) in list(&operation, wanted, isolation).await? {
        found.insert(at, answer?.offset);
    }
    // A time past the last record has no offset: the end stands for it.
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
