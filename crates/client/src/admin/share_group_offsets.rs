//! Start offsets of share groups: listed, altered and deleted.

use std::collections::BTreeMap;
use std::rc::Rc;

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::alter_share_group_offsets::{
    AlterShareGroupOffsetsRequest, AlterShareGroupOffsetsRequestPartition, AlterShareGroupOffsetsRequestTopic,
};
use ottla_protocol::messages::delete_share_group_offsets::{
    DeleteShareGroupOffsetsRequest, DeleteShareGroupOffsetsRequestTopic,
};
use ottla_protocol::messages::describe_share_group_offsets::{
    DescribeShareGroupOffsetsRequest, DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic, DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponsePartition,
};

use super::groups::by_topic;
use super::operation::{Operation, Repeat, Target, wrong_coordinator};
use super::{Admin, KeyedResults, Timeouts, in_order, owned, refused};
use crate::cluster::Cluster;
use crate::error::Error;
use crate::types::TopicPartition;

/// Version 1 has the lag (KIP-1226).
const DESCRIBE_VERSION_MAX: i16 = 1;

/// The place of a share group in a partition.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct ShareGroupOffset {
    /// The offset of the first record that the group has not completed.
    pub start_offset: i64,
    /// The epoch of the partition's leader when it stored the offset.
    pub leader_epoch: Option<i32>,
    /// The number of records that the group has not completed; `None` if the broker does not know it.
    pub lag: Option<i64>,
}

impl Admin {
    /// Returns a share group's start offsets of these partitions, in the order of the request, or of all that the group
    /// has read (`None`). A partition without one is `None`.
    ///
    /// # Errors
    /// The whole call fails if the coordinator does not respond in time, or refuses access to the group.
    pub async fn list_share_group_offsets(
        &self,
        group: &str,
        partitions: Option<&[TopicPartition]>,
        timeouts: Timeouts,
    ) -> Result<KeyedResults<TopicPartition, Option<ShareGroupOffset>>, Error> {
        let (group, partitions) = (group.to_owned(), partitions.map(<[_]>::to_vec));
        let work = move |cluster: Rc<Cluster>| async move {
            let operation = Operation::new(cluster, "list_share_group_offsets", timeouts);
            let answers = list(&operation, &group, partitions.as_deref()).await?;
            Ok(match partitions {
                Some(asked) => in_order(asked, answers, "start offset of partition"),
                None => answers.into_iter().collect(),
            })
        };
        self.ask("list_share_group_offsets", work).await
    }

    /// Sets the offsets at which a share group without members begins, and forgets the states of all records after them.
    /// Returns a result per partition, in the order of the request. A group that does not exist is created.
    ///
    /// # Errors
    /// [`ErrorCode::NonEmptyGroup`] while the group has members, and [`ErrorCode::GroupIdNotFound`] if it is not a share
    /// group. The whole call also fails if the coordinator does not respond in time.
    pub async fn alter_share_group_offsets(
        &self,
        group: &str,
        offsets: &[(TopicPartition, i64)],
        timeouts: Timeouts,
    ) -> Result<KeyedResults<TopicPartition, ()>, Error> {
        let (group, offsets) = (group.to_owned(), offsets.to_vec());
        let work = move |cluster: Rc<Cluster>| async move {
            alter(&Operation::new(cluster, "alter_share_group_offsets", timeouts), &group, &offsets).await
        };
        self.ask("alter_share_group_offsets", work).await
    }

    /// Deletes the start offsets and record states of topics from a share group without members. Returns a result per topic,
    /// in the order of the request.
    ///
    /// # Errors
    /// [`ErrorCode::NonEmptyGroup`] while the group has members, and [`ErrorCode::GroupIdNotFound`] if it does not exist
    /// or is not a share group. The whole call also fails if the coordinator does not respond in time.
    pub async fn delete_share_group_offsets(
        &self,
        group: &str,
        topics: &[&str],
        timeouts: Timeouts,
    ) -> Result<KeyedResults<String, ()>, Error> {
        let (group, topics) = (group.to_owned(), owned(topics));
        let work = move |cluster: Rc<Cluster>| async move {
            delete(&Operation::new(cluster, "delete_share_group_offsets", timeouts), &group, topics).await
        };
        self.ask("delete_share_group_offsets", work).await
    }
}

type Answers<V> = BTreeMap<TopicPartition, Result<V, Error>>;

async fn list(
    operation: &Operation,
    group: &str,
    partitions: Option<&[TopicPartition]>,
) -> Result<Answers<Option<ShareGroupOffset>>, Error> {
    let topics = partitions.map(|partitions| by_topic(partitions.iter().map(|at| (at, ()))));
    let topic = |(name, partitions): (&String, &Vec<(i32, ())>)| DescribeShareGroupOffsetsRequestTopic {
        topic_name: name.clone(),
        partitions: partitions.iter().map(|(index, ())| *index).collect(),
    };
    let make = |_version: i16| DescribeShareGroupOffsetsRequest {
        groups: vec![DescribeShareGroupOffsetsRequestGroup {
            group_id: group.to_owned(),
            topics: topics.as_ref().map(|topics| topics.iter().map(topic).collect()),
        }],
    };
    let codes = |response: &DescribeShareGroupOffsetsResponse| {
        wrong_coordinator(response.groups.iter().map(|group| group.error_code))
    };
    let versions = 0..=DESCRIBE_VERSION_MAX;
    let response = operation.call(Target::Group(group), versions, Repeat::Yes, make, codes).await?;
    let mut answers = Answers::new();
    for found in response.groups {
        let what = format!("offsets of share group `{group}`");
        refused(&what, found.error_code, found.error_message.as_deref())?;
        for topic in found.topics {
            for found in topic.partitions {
                let at = TopicPartition::new(&topic.topic_name, found.partition_index);
                let what = format!("start offset of share group `{group}` at {at}");
                let answer = refused(&what, found.error_code, found.error_message.as_deref());
                answers.insert(at, answer.map(|()| offset(&found)));
            }
        }
    }
    Ok(answers)
}

fn offset(found: &DescribeShareGroupOffsetsResponsePartition) -> Option<ShareGroupOffset> {
    (found.start_offset >= 0).then(|| ShareGroupOffset {
        start_offset: found.start_offset,
        leader_epoch: (found.leader_epoch >= 0).then_some(found.leader_epoch),
        lag: (found.lag >= 0).then_some(found.lag),
    })
}

async fn alter(
    operation: &Operation,
    group: &str,
    offsets: &[(TopicPartition, i64)],
) -> Result<KeyedResults<TopicPartition, ()>, Error> {
    let topics = by_topic(offsets.iter().map(|(at, offset)| (at, *offset)));
    let partition = |(index, offset): &(i32, i64)| AlterShareGroupOffsetsRequestPartition {
        partition_index: *index,
        start_offset: *offset,
    };
    let topic = |(name, partitions): (&String, &Vec<(i32, i64)>)| AlterShareGroupOffsetsRequestTopic {
        topic_name: name.clone(),
        partitions: partitions.iter().map(partition).collect(),
    };
    let make = |_version: i16| AlterShareGroupOffsetsRequest {
        group_id: group.to_owned(),
        topics: topics.iter().map(topic).collect(),
    };
    let response = operation
        .call(Target::Group(group), 0..=0, Repeat::Yes, make, |response| {
            wrong_coordinator([response.error_code])
        })
        .await?;
    let what = format!("offsets of share group `{group}`");
    refused(&what, response.error_code, response.error_message.as_deref())?;
    let mut answers = Answers::new();
    for topic in response.responses {
        for answer in topic.partitions {
            let at = TopicPartition::new(&topic.topic_name, answer.partition_index);
            let what = format!("offset of share group `{group}` at {at}");
            answers.insert(at, refused(&what, answer.error_code, answer.error_message.as_deref()));
        }
    }
    Ok(in_order(offsets.iter().map(|(at, _)| at.clone()), answers, "offset of partition"))
}

async fn delete(
    operation: &Operation,
    group: &str,
    topics: Vec<String>,
) -> Result<KeyedResults<String, ()>, Error> {
    let topic = |name: &String| DeleteShareGroupOffsetsRequestTopic { topic_name: name.clone() };
    let make = |_version: i16| DeleteShareGroupOffsetsRequest {
        group_id: group.to_owned(),
        topics: topics.iter().map(topic).collect(),
    };
    let response = operation
        .call(Target::Group(group), 0..=0, Repeat::Yes, make, |response| {
            wrong_coordinator([response.error_code])
        })
        .await?;
    let what = format!("deleting offsets of share group `{group}`");
    refused(&what, response.error_code, response.error_message.as_deref())?;
    let answer = |name: String, code: ErrorCode, message: Option<String>| {
        let what = format!("deleting the offsets of share group `{group}` in topic `{name}`");
        (name, refused(&what, code, message.as_deref()))
    };
    let answers = response.responses.into_iter();
    let answers = answers.map(|topic| answer(topic.topic_name, topic.error_code, topic.error_message));
    Ok(in_order(topics, answers.collect(), "offsets of topic"))
}
