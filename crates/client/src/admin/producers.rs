//! The producers that partitions know, and transactions that hang: open in a partition, unknown to their coordinator.

use std::ops::RangeInclusive;
use std::rc::Rc;

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::describe_producers::{
    DescribeProducersRequest, DescribeProducersResponse, TopicRequest,
};
use ottla_protocol::messages::write_txn_markers::{
    WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest, WriteTxnMarkersResponse,
};

use super::leaders::{self, ByTopic, Question};
use super::operation::Operation;
use super::{Admin, KeyedResults, Timeouts, in_order};
use crate::cluster::Cluster;
use crate::error::Error;
use crate::types::TopicPartition;

/// An idempotent or transactional producer that a partition knows.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct ActiveProducer {
    /// The producer id.
    pub producer_id: i64,
    /// The producer epoch.
    pub producer_epoch: i32,
    /// The sequence of its last record; `None` if it is unknown.
    pub last_sequence: Option<i32>,
    /// The timestamp of its last batch, in milliseconds since 1970; `None` if it is unknown.
    pub last_timestamp_ms: Option<i64>,
    /// The epoch of the coordinator that wrote its last marker; `None` without one.
    pub coordinator_epoch: Option<i32>,
    /// The first offset of its open transaction; `None` without one.
    pub transaction_start_offset: Option<i64>,
}

/// A transaction of a partition that is to be aborted, whatever its coordinator knows.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HangingTransaction {
    /// The partition.
    pub partition: TopicPartition,
    /// The producer id.
    pub producer_id: i64,
    /// The producer epoch.
    pub producer_epoch: i16,
    /// The coordinator's epoch. Take [`ActiveProducer::coordinator_epoch`], or 0 without one.
    pub coordinator_epoch: i32,
}

impl Admin {
    /// Describes the producers that partitions know. Returns a result per partition, in the order of the request.
    ///
    /// # Errors
    /// The whole call fails if no broker responds in time, or does not support the request (from 2.8 on).
    pub async fn describe_producers(
        &self,
        partitions: &[TopicPartition],
        timeouts: Timeouts,
    ) -> Result<KeyedResults<TopicPartition, Vec<ActiveProducer>>, Error> {
        let partitions = partitions.to_vec();
        let work = move |cluster: Rc<Cluster>| async move {
            let operation = Operation::new(cluster, "describe_producers", timeouts);
            let answers = leaders::ask(&operation, &Producers, partitions.clone()).await?;
            Ok(in_order(partitions, answers, "producers of partition"))
        };
        self.ask("describe_producers", work).await
    }

    /// Aborts a transaction in one partition, without its coordinator. Only for transactions that hang: the coordinator of
    /// any other one would write a second marker.
    ///
    /// # Errors
    /// The error of the partition's leader, for example [`ErrorCode::InvalidProducerEpoch`] if the producer has a newer epoch.
    pub async fn abort_hanging_transaction(
        &self,
        hanging: HangingTransaction,
        timeouts: Timeouts,
    ) -> Result<(), Error> {
        let work = move |cluster: Rc<Cluster>| async move {
            let operation = Operation::new(cluster, "abort_hanging_transaction", timeouts);
            let at = hanging.partition.clone();
            let answers = leaders::ask(&operation, &AbortMarker(hanging), [at.clone()]).await?;
            let answer = in_order([at], answers, "marker of partition").pop();
            answer.map_or(Ok(()), |(_, answer)| answer)
        };
        self.ask("abort_hanging_transaction", work).await
    }
}

struct Producers;

impl Question for Producers {
    type Request = DescribeProducersRequest;
    type Answer = Vec<ActiveProducer>;

    const VERSIONS: RangeInclusive<i16> = 0..=0;

    fn request(&self, partitions: &ByTopic) -> DescribeProducersRequest {
        let topic = |(name, partitions): (&String, &Vec<TopicPartition>)| TopicRequest {
            name: name.clone(),
            partition_indexes: partitions.iter().map(|at| at.partition).collect(),
        };
        DescribeProducersRequest { topics: partitions.iter().map(topic).collect() }
    }

    fn answers(
        &self,
        response: DescribeProducersResponse,
    ) -> Vec<(TopicPartition, Result<Vec<ActiveProducer>, ErrorCode>)> {
        let mut answers = Vec::new();
        for topic in response.topics {
            for answer in topic.partitions {
                let at = TopicPartition::new(&topic.name, answer.partition_index);
                let producers = answer.active_producers.iter().map(|found| ActiveProducer {
                    producer_id: found.producer_id,
                    producer_epoch: found.producer_epoch,
                    last_sequence: Some(found.last_sequence).filter(|sequence| *sequence >= 0),
                    last_timestamp_ms: Some(found.last_timestamp).filter(|ms| *ms >= 0),
                    coordinator_epoch: Some(found.coordinator_epoch).filter(|epoch| *epoch >= 0),
                    transaction_start_offset: Some(found.current_txn_start_offset)
                        .filter(|offset| *offset >= 0),
                });
                answers.push((at, answer.error_code.into_result().map(|()| producers.collect())));
            }
        }
        answers
    }

    fn what(&self, at: &TopicPartition) -> String {
        format!("producers of topic `{}` partition {}", at.topic, at.partition)
    }
}

struct AbortMarker(HangingTransaction);

impl Question for AbortMarker {
    type Request = WriteTxnMarkersRequest;
    type Answer = ();

    const VERSIONS: RangeInclusive<i16> = 1..=2;

    fn request(&self, partitions: &ByTopic) -> WriteTxnMarkersRequest {
        let topic = |(name, partitions): (&String, &Vec<TopicPartition>)| WritableTxnMarkerTopic {
            name: name.clone(),
            partition_indexes: partitions.iter().map(|at| at.partition).collect(),
        };
        let marker = WritableTxnMarker {
            producer_id: self.0.producer_id,
            producer_epoch: self.0.producer_epoch,
            transaction_result: false,
            topics: partitions.iter().map(topic).collect(),
            coordinator_epoch: self.0.coordinator_epoch,
            ..Default::default()
        };
        WriteTxnMarkersRequest { markers: vec![marker] }
    }

    fn answers(&self, response: WriteTxnMarkersResponse) -> Vec<(TopicPartition, Result<(), ErrorCode>)> {
        let mut answers = Vec::new();
        for topic in response.markers.into_iter().flat_map(|marker| marker.topics) {
            for answer in topic.partitions {
                let at = TopicPartition::new(&topic.name, answer.partition_index);
                answers.push((at, answer.error_code.into_result()));
            }
        }
        answers
    }

    fn what(&self, at: &TopicPartition) -> String {
        let id = self.0.producer_id;
        format!(
            "aborting the transaction of producer {id} in topic `{}` partition {}",
            at.topic, at.partition
        )
    }
}
