//! Deletion of records from the beginning of partitions.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::rc::Rc;

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::delete_records::{
    DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsResponse, DeleteRecordsTopic,
};

use super::leaders::{self, ByTopic, Question};
use super::operation::Operation;
use super::{Admin, KeyedResults, Timeouts, in_order};
use crate::cluster::Cluster;
use crate::error::Error;
use crate::types::TopicPartition;

/// The offset that means the high watermark.
const END: i64 = -1;
/// An offset that every broker refuses.
const NO_OFFSET: i64 = -2;

/// The position before which records are deleted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum DeleteBefore {
    /// Records with lower offsets than this one. A negative one is refused.
    Offset(i64),
    /// All records.
    End,
}

impl Admin {
    /// Deletes records from the beginning of partitions. Returns a result per partition, in the order of the request,
    /// with the first remaining offset.
    ///
    /// # Errors
    /// The whole call fails if no broker responds in time.
    pub async fn delete_records(
        &self,
        before: &[(TopicPartition, DeleteBefore)],
        timeouts: Timeouts,
    ) -> Result<KeyedResults<TopicPartition, i64>, Error> {
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
                // The application means an offset: `list_offsets` returns -1 if no record is that late.
                Some(DeleteBefore::Offset(END)) => NO_OFFSET,
                Some(DeleteBefore::Offset(offset)) => *offset,
                Some(DeleteBefore::End) => END,
                // A partition that was not named keeps its records.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The offset -1, which `list_offsets` returns when no record is that late, deleted all records of its partition.
    #[test]
    fn an_offset_below_zero_deletes_nothing() {
        let at = |partition| TopicPartition::new("orders", partition);
        let before = [DeleteBefore::Offset(-1), DeleteBefore::End, DeleteBefore::Offset(7)];
        let before: BTreeMap<_, _> = (0..).map(at).zip(before).collect();
        let partitions = ByTopic::from([("orders".to_owned(), before.keys().cloned().collect())]);
        let request = Deletion { before, timeout_ms: 0 }.request(&partitions);
        let offsets: Vec<i64> =
            request.topics[0].partitions.iter().map(|partition| partition.offset).collect();
        assert_eq!(offsets, [NO_OFFSET, END, 7]);
    }
}
