//! Committed offsets of groups: described, altered and deleted.

use std::collections::BTreeMap;
use std::rc::Rc;

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::offset_commit::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic, OffsetCommitResponse,
};
use ottla_protocol::messages::offset_delete::{
    OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic, OffsetDeleteResponse,
};
use ottla_protocol::messages::offset_fetch::{
    OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
    OffsetFetchResponse,
};

use super::groups::by_topic;
use super::operation::{Operation, Repeat, Target, wrong_coordinator};
use super::{Admin, KeyedResults, Timeouts, first_error, in_order, refused};
use crate::cluster::Cluster;
use crate::error::Error;
use crate::types::{OffsetAndMetadata, TopicPartition};

/// Version 10 identifies topics by id.
const OFFSET_COMMIT_VERSION_MAX: i16 = 9;
const OFFSET_FETCH_VERSION_MAX: i16 = 9;
/// The first version of OffsetFetch that waits for transactions (KIP-447).
const STABLE_SINCE: i16 = 7;
/// The first version of OffsetFetch with several groups.
const GROUPS_SINCE: i16 = 8;
/// The first version of OffsetFetch that can request all partitions.
const ALL_SINCE: i16 = 2;

type Answers<V> = BTreeMap<TopicPartition, Result<V, Error>>;

impl Admin {
    /// Returns a group's committed offsets of these partitions, or of all (`None`). Partitions without one are
    /// missing in the result.
    pub async fn group_offsets(
        &self,
        group: &str,
        partitions: Option<&[TopicPartition]>,
    ) -> Result<BTreeMap<TopicPartition, i64>, Error> {
        let (group, partitions) = (group.to_owned(), partitions.map(<[_]>::to_vec));
        let work = |cluster: Rc<Cluster>| async move {
            let operation = Operation::hasty(cluster, "group_offsets");
            // An open transaction must not delay the result.
            let answers = committed(&operation, &group, partitions.as_deref(), false).await?;
            let found = answers.into_iter().filter_map(|(at, answer)| match answer {
                Ok(Some(committed)) => Some(Ok((at, committed.offset))),
                Ok(None) => None,
                Err(error) => Some(Err(error)),
            });
            found.collect()
        };
        self.ask("group_offsets", work).await
    }

    /// Returns a group's committed offsets of these partitions, in the order of the request, or of all (`None`). A
    /// partition without one is `None`. With `stable`, the call waits for transactions that are being completed.
    ///
    /// # Errors
    /// The whole call fails if the coordinator does not respond in time, or refuses access to the group.
    pub async fn list_group_offsets(
        &self,
        group: &str,
        partitions: Option<&[TopicPartition]>,
        stable: bool,
        timeouts: Timeouts,
    ) -> Result<KeyedResults<TopicPartition, Option<OffsetAndMetadata>>, Error> {
        let (group, partitions) = (group.to_owned(), partitions.map(<[_]>::to_vec));
        let work = move |cluster: Rc<Cluster>| async move {
            let operation = Operation::new(cluster, "list_group_offsets", timeouts);
            let answers = committed(&operation, &group, partitions.as_deref(), stable).await?;
            Ok(match partitions {
                Some(asked) => in_order(asked, answers, "committed offset of partition"),
                None => answers.into_iter().collect(),
            })
        };
        self.ask("list_group_offsets", work).await
    }

    /// Sets a group's committed offsets.
    ///
    /// # Errors
    /// [`Error::Broker`] with [`ErrorCode::UnknownMemberId`] while the group has members, because they would
    /// overwrite the offsets.
    pub async fn alter_group_offsets(
        &self,
        group: &str,
        offsets: &BTreeMap<TopicPartition, i64>,
    ) -> Result<(), Error> {
        let group = group.to_owned();
        let offsets: Vec<_> = offsets.iter().map(|(at, offset)| (at.clone(), (*offset).into())).collect();
        let work = |cluster: Rc<Cluster>| async move {
            let operation = Operation::hasty(cluster, "alter_group_offsets");
            first_error(alter(&operation, &group, &offsets).await?)
        };
        self.ask("alter_group_offsets", work).await
    }

    /// Sets a group's committed offsets. Returns a result per partition, in the order of the request.
    ///
    /// A partition fails with [`ErrorCode::UnknownMemberId`] while the group has members.
    ///
    /// # Errors
    /// The whole call fails if the coordinator does not respond in time.
    pub async fn alter_group_offsets_with(
        &self,
        group: &str,
        offsets: &[(TopicPartition, OffsetAndMetadata)],
        timeouts: Timeouts,
    ) -> Result<KeyedResults<TopicPartition, ()>, Error> {
        let (group, offsets) = (group.to_owned(), offsets.to_vec());
        let work = move |cluster: Rc<Cluster>| async move {
            alter(&Operation::new(cluster, "alter_group_offsets", timeouts), &group, &offsets).await
        };
        self.ask("alter_group_offsets", work).await
    }

    /// Deletes a group's committed offsets of some partitions. Returns a result per partition, in the order of the
    /// request.
    ///
    /// A partition fails with [`ErrorCode::GroupSubscribedToTopic`] while members subscribe to its topic.
    ///
    /// # Errors
    /// The whole call fails if the group does not exist, or if the coordinator does not respond in time.
    pub async fn delete_group_offsets(
        &self,
        group: &str,
        partitions: &[TopicPartition],
        timeouts: Timeouts,
    ) -> Result<KeyedResults<TopicPartition, ()>, Error> {
        let (group, partitions) = (group.to_owned(), partitions.to_vec());
        let work = move |cluster: Rc<Cluster>| async move {
            delete(&Operation::new(cluster, "delete_group_offsets", timeouts), &group, partitions).await
        };
        self.ask("delete_group_offsets", work).await
    }
}

async fn committed(
    operation: &Operation,
    group: &str,
    partitions: Option<&[TopicPartition]>,
    stable: bool,
) -> Result<Answers<Option<OffsetAndMetadata>>, Error> {
    let topics = partitions.map(|partitions| by_topic(partitions.iter().map(|at| (at, ()))));
    let make = |version: i16| {
        let indexes = |partitions: &Vec<(i32, ())>| partitions.iter().map(|(index, ())| *index).collect();
        if version >= GROUPS_SINCE {
            let topic = |(name, partitions): (&String, &Vec<(i32, ())>)| OffsetFetchRequestTopics {
                name: name.clone(),
                partition_indexes: indexes(partitions),
                ..Default::default()
            };
            let group = OffsetFetchRequestGroup {
                group_id: group.to_owned(),
                topics: topics.as_ref().map(|topics| topics.iter().map(topic).collect()),
                ..Default::default()
            };
            OffsetFetchRequest { groups: vec![group], require_stable: stable, ..Default::default() }
        } else {
            let topic = |(name, partitions): (&String, &Vec<(i32, ())>)| OffsetFetchRequestTopic {
                name: name.clone(),
                partition_indexes: indexes(partitions),
            };
            OffsetFetchRequest {
                group_id: group.to_owned(),
                topics: topics.as_ref().map(|topics| topics.iter().map(topic).collect()),
                require_stable: stable,
                ..Default::default()
            }
        }
    };
    let needed = if stable {
        STABLE_SINCE
    } else if partitions.is_none() {
        ALL_SINCE
    } else {
        0
    };
    let response = operation
        .call(Target::Group(group), needed..=OFFSET_FETCH_VERSION_MAX, Repeat::Yes, make, |response| {
            wrong_coordinator(fetch_codes(response))
        })
        .await?;
    let of_group = response.groups.iter().map(|group| group.error_code).find(|code| !code.is_none());
    refused(&format!("offsets of group `{group}`"), of_group.unwrap_or(response.error_code), None)?;
    let mut answers = Answers::new();
    let mut take =
        |topic: &str, index: i32, offset: i64, epoch: i32, text: Option<String>, code: ErrorCode| {
            let at = TopicPartition::new(topic, index);
            let answer = refused(&format!("offset of group `{group}` at {at}"), code, None).map(|()| {
                (offset >= 0).then(|| OffsetAndMetadata {
                    offset,
                    leader_epoch: (epoch >= 0).then_some(epoch),
                    metadata: text.unwrap_or_default(),
                })
            });
            answers.insert(at, answer);
        };
    for topic in response.topics {
        for found in topic.partitions {
            let (index, epoch) = (found.partition_index, found.committed_leader_epoch);
            take(&topic.name, index, found.committed_offset, epoch, found.metadata, found.error_code);
        }
    }
    for topic in response.groups.into_iter().flat_map(|group| group.topics) {
        for found in topic.partitions {
            let (index, epoch) = (found.partition_index, found.committed_leader_epoch);
            take(&topic.name, index, found.committed_offset, epoch, found.metadata, found.error_code);
        }
    }
    Ok(answers)
}

/// All error codes in a response.
fn fetch_codes(response: &OffsetFetchResponse) -> impl Iterator<Item = ErrorCode> {
    let partitions = response.topics.iter().flat_map(|topic| &topic.partitions);
    let of_groups = response.groups.iter().map(|group| group.error_code);
    let topics = response.groups.iter().flat_map(|group| &group.topics);
    std::iter::once(response.error_code)
        .chain(partitions.map(|found| found.error_code))
        .chain(of_groups)
        .chain(topics.flat_map(|topic| &topic.partitions).map(|found| found.error_code))
}

async fn alter(
    operation: &Operation,
    group: &str,
    offsets: &[(TopicPartition, OffsetAndMetadata)],
) -> Result<KeyedResults<TopicPartition, ()>, Error> {
    let topics = by_topic(offsets.iter().map(|(at, offset)| (at, offset)));
    let partition = |(index, offset): &(i32, &OffsetAndMetadata)| OffsetCommitRequestPartition {
        partition_index: *index,
        committed_offset: offset.offset,
        committed_leader_epoch: offset.leader_epoch.unwrap_or(-1),
        committed_metadata: Some(offset.metadata.clone()),
    };
    let topic = |(name, partitions): (&String, &Vec<(i32, &OffsetAndMetadata)>)| OffsetCommitRequestTopic {
        name: name.clone(),
        partitions: partitions.iter().map(partition).collect(),
        ..Default::default()
    };
    let make = |_version: i16| OffsetCommitRequest {
        group_id: group.to_owned(),
        generation_id_or_member_epoch: -1,
        topics: topics.iter().map(topic).collect(),
        ..Default::default()
    };
    let codes = |response: &OffsetCommitResponse| {
        let partitions = response.topics.iter().flat_map(|topic| &topic.partitions);
        let code = wrong_coordinator(partitions.map(|partition| partition.error_code));
        code.filter(|_| operation.cluster.config.retry_admin_codes)
    };
    let versions = 0..=OFFSET_COMMIT_VERSION_MAX;
    let response = operation.call(Target::Group(group), versions, Repeat::Yes, make, codes).await?;
    let mut answers = Answers::new();
    for topic in response.topics {
        for answer in topic.partitions {
            let at = TopicPartition::new(&topic.name, answer.partition_index);
            let altered = refused(&format!("offset of group `{group}` at {at}"), answer.error_code, None);
            answers.insert(at, altered);
        }
    }
    Ok(in_order(offsets.iter().map(|(at, _)| at.clone()), answers, "offset of partition"))
}

async fn delete(
    operation: &Operation,
    group: &str,
    partitions: Vec<TopicPartition>,
) -> Result<KeyedResults<TopicPartition, ()>, Error> {
    let topics = by_topic(partitions.iter().map(|at| (at, ())));
    let topic = |(name, partitions): (&String, &Vec<(i32, ())>)| OffsetDeleteRequestTopic {
        name: name.clone(),
        partitions: partitions
            .iter()
            .map(|(index, ())| OffsetDeleteRequestPartition { partition_index: *index })
            .collect(),
    };
    let make = |_version: i16| OffsetDeleteRequest {
        group_id: group.to_owned(),
        topics: topics.iter().map(topic).collect(),
    };
    let codes = |response: &OffsetDeleteResponse| wrong_coordinator([response.error_code]);
    let response = operation.call(Target::Group(group), 0..=0, Repeat::Yes, make, codes).await?;
    refused(&format!("deleting offsets of group `{group}`"), response.error_code, None)?;
    let mut answers = Answers::new();
    for topic in response.topics {
        for answer in topic.partitions {
            let at = TopicPartition::new(&topic.name, answer.partition_index);
            let what = format!("deleting the offset of group `{group}` at {at}");
            answers.insert(at, refused(&what, answer.error_code, None));
        }
    }
    Ok(in_order(partitions, answers, "offset of partition"))
}
