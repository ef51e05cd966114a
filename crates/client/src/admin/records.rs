//! Records, deleted from the beginning of their partitions.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::rc::Rc;

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::delete_records::{
    DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsResponse, DeleteRecordsTopic,
};

use super::leaders::{self, ByTopic, Question};
use super::operation::Operation;
use super::{Admin, Each, Timeouts, in_order};
use crate::cluster::Cluster;
use crate::consumer::TopicPartition;
use crate::error::Error;

/// Everything up to the high watermark.
const END: i64 = -1;

/// Up to where records are deleted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum DeleteBefore {
    /// Those with lower offsets than this one.
    Offset(i64),
    /// All that there are.
    End,
}

impl Admin {
    /// Deletes records from the beginning of partitions; answers per partition, in the order asked for, with the first
    /// offset that is left.
    ///
    /// # Errors
    /// When no partition has an answer of its own: no broker answered in time.
    pub async fn delete_records(
        &self,
        before: &[(TopicPartition, DeleteBefore)],
        timeouts: Timeouts,
    ) -> Result<Each<TopicPartition, i64>, Error> {
        let before = before.to_vec();
        let work = move |cluster: Rc<Cluster>| async move {
            let operation = Operation::new(cluster, "delete_records", timeouts);
            let timeout_ms = operation.at_broker_ms();
            let question = Deletion { before: before.iter().cloned().collect(), timeout_ms };
            let partitions: Vec<TopicPartition> = before.into_iter().map(|(at, _)| at).collect();
            let answers = leaders::ask(&operation, &question, partitions.clone()).await?;
            Ok(in_order(partitions, answers, "records of partition"))
        };
        self.ask("delete_records", work).await
    }
}

struct Deletion {
    before: BTreeMap<TopicPartition, DeleteBefore>,
    timeout_ms: i32,
}

impl Question for Deletion {
    type Request = DeleteRecordsRequest;
    type Answer = i64;

    const VERSIONS: RangeInclusive<i16> = 0..=2;

    fn request(&self, partitions: &ByTopic) -> DeleteRecordsRequest {
        let partition = |at: &TopicPartition| DeleteRecordsPartition {
            partition_index: at.partition,
            offset: match self.before.get(at) {
                Some(DeleteBefore::Offset(offset)) => *offset,
                Some(DeleteBefore::End) => END,
                // Nothing is deleted that was not named.
                None => 0,
            },
        };
        let topic = |(name, partitions): (&String, &Vec<TopicPartition>)| DeleteRecordsTopic {
            name: name.clone(),
            partitions: partitions.iter().map(partition).collect(),
        };
        DeleteRecordsRequest { topics: partitions.iter().map(topic).collect(), timeout_ms: self.timeout_ms }
    }

    fn answers(&self, response: DeleteRecordsResponse) -> Vec<(TopicPartition, Result<i64, ErrorCode>)> {
        let mut answers = Vec::new();
        for topic in response.topics {
            for answer in topic.partitions {
                let at = TopicPartition::new(&topic.name, answer.partition_index);
                answers.push((at, answer.error_code.into_result().map(|()| answer.low_watermark)));
            }
        }
        answers
    }

    fn what(&self, at: &TopicPartition) -> String {
        format!("deleting records of topic `{}` partition {}", at.topic, at.partition)
    }
}
