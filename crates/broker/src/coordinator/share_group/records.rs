//! A share group in `__consumer_offsets`, in Kafka's records.
//!
//! The parts of a group are records of their own. The reader accepts them in any order and without the others: compaction may
//! have removed earlier ones.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use ottla_protocol::messages::share_group_records::{
    SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT, SHARE_GROUP_MEMBER_METADATA, SHARE_GROUP_METADATA,
    SHARE_GROUP_STATE_PARTITION_METADATA, SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER,
    SHARE_GROUP_TARGET_ASSIGNMENT_METADATA, ShareGroupCurrentMemberAssignmentValue, ShareGroupKey,
    ShareGroupMemberKey, ShareGroupMemberMetadataValue, ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataValue, ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataValue, ShareTopicInfo, ShareTopicPartitions, ShareTopicPartitionsInfo,
};
use ottla_protocol::{DecodeError, EncodeError, Uuid};
use tokio::time::Instant;

use super::group::{Change, ShareGroup, ShareMember, ShareProfile};
use super::state_partitions::TopicPartitions;
use crate::coordinator::consumer_group::member::Place;
use crate::coordinator::consumer_group::records::by_topic;
use crate::coordinator::loading::put;
use crate::internal_topics::InternalRecord;
use crate::memory::KeptMemory;

/// Members have one state: they give nothing up.
const STABLE: i8 = 0;

/// The records of a group that were read.
#[derive(Debug, Default)]
pub(crate) struct StoredShareGroup {
    group: Option<ShareGroupMetadataValue>,
    target: Option<ShareGroupTargetAssignmentMetadataValue>,
    state_partitions: Option<ShareGroupStatePartitionMetadataValue>,
    members: BTreeMap<String, ShareGroupMemberMetadataValue>,
    targets: BTreeMap<String, ShareGroupTargetAssignmentMemberValue>,
    current: BTreeMap<String, ShareGroupCurrentMemberAssignmentValue>,
}

impl StoredShareGroup {
    /// Applies a record about the whole group.
    pub(crate) fn apply(&mut self, kind: i16, value: Option<Bytes>) -> Result<(), DecodeError> {
        match kind {
            SHARE_GROUP_METADATA => {
                self.group = value.map(ShareGroupMetadataValue::from_bytes).transpose()?;
            }
            SHARE_GROUP_TARGET_ASSIGNMENT_METADATA => {
                self.target = value.map(ShareGroupTargetAssignmentMetadataValue::from_bytes).transpose()?;
            }
            SHARE_GROUP_STATE_PARTITION_METADATA => {
                self.state_partitions =
                    value.map(ShareGroupStatePartitionMetadataValue::from_bytes).transpose()?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Applies a record about a member.
    pub(crate) fn apply_member(
        &mut self,
        kind: i16,
        member: String,
        value: Option<Bytes>,
    ) -> Result<(), DecodeError> {
        match kind {
            SHARE_GROUP_MEMBER_METADATA => {
                let value = value.map(ShareGroupMemberMetadataValue::from_bytes).transpose()?;
                put(&mut self.members, member, value);
            }
            SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER => {
                let value = value.map(ShareGroupTargetAssignmentMemberValue::from_bytes).transpose()?;
                put(&mut self.targets, member, value);
            }
            SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT => {
                let value = value.map(ShareGroupCurrentMemberAssignmentValue::from_bytes).transpose()?;
                put(&mut self.current, member, value);
            }
            _ => {}
        }
        Ok(())
    }

    /// Returns whether nothing is left of the group.
    pub(crate) fn is_gone(&self) -> bool {
        self.group.is_none() && self.members.is_empty() && self.state_partitions.is_none()
    }
}

impl ShareGroup {
    /// The group as its records describe it. Every member has its whole session timeout from `now` on.
    pub(super) fn from_stored(
        group_id: &str,
        stored: StoredShareGroup,
        now: Instant,
        memory: &KeptMemory,
    ) -> Self {
        let mut group = Self::new(memory.clone(), memory.keep_known(Self::bytes(group_id)));
        if let Some(target) = stored.target {
            group.assignment_epoch = target.assignment_epoch;
            group.assigned_at_ms = target.assignment_timestamp;
        }
        if let Some(value) = stored.group {
            group.epoch = value.epoch;
            group.metadata_hash = value.metadata_hash;
        }
        if let Some(value) = stored.state_partitions {
            group.state_partitions.initializing = read_topics(value.initializing_topics);
            group.state_partitions.initialized = read_topics(value.initialized_topics);
            let deleting = value.deleting_topics.into_iter();
            group.state_partitions.deleting =
                deleting.map(|topic| (topic.topic_id, topic.topic_name)).collect();
            group.count_states();
        }
        let mut current = stored.current;
        for (id, value) in stored.members {
            let profile = ShareProfile {
                rack_id: value.rack_id,
                client_id: value.client_id,
                client_host: value.client_host,
                names: value.subscribed_topic_names.into_iter().collect(),
            };
            let current = current.remove(&id);
            let member = group.adopt(id, profile, now);
            if let Some(current) = current {
                member.epoch = current.member_epoch;
                member.previous_epoch = current.previous_member_epoch;
                member.assigned = places_of(current.assigned_partitions);
            }
        }
        for (id, target) in stored.targets {
            if group.members.contains_key(&id) {
                group.targets.insert(id, places_of(target.topic_partitions));
            }
        }
        let epochs = group.members.values().map(|member| member.epoch);
        group.epoch = epochs.chain([group.epoch, group.assignment_epoch]).max().unwrap_or(0);
        // A crash may have come between an initialization and the next assignment.
        let assigned: BTreeSet<Place> = group.targets.values().flatten().copied().collect();
        let initialized = group.initialized();
        let initialized = initialized.iter().flat_map(|(id, all)| all.iter().map(|index| (*id, *index)));
        group.state_partitions.has_news =
            !group.members.is_empty() && initialized.into_iter().any(|place| !assigned.contains(&place));
        group
    }

    /// The records of everything that changed since the last successful write. Those that remove parts come first.
    pub(super) fn records(&self, group_id: &str) -> Result<Vec<InternalRecord>, EncodeError> {
        let mut records = Vec::with_capacity(self.changed.len());
        for change in &self.changed {
            let record = self.record(group_id, change)?;
            let place = if record.value.is_none() { change.place_of_removal() } else { PLACE_OF_VALUES };
            records.push((place, record));
        }
        records.sort_by_key(|(place, _)| *place);
        Ok(records.into_iter().map(|(_, record)| record).collect())
    }

    /// The records that remove a group without members.
    pub(super) fn tombstones(group_id: &str) -> Result<Vec<InternalRecord>, EncodeError> {
        let kinds = [
            SHARE_GROUP_STATE_PARTITION_METADATA,
            SHARE_GROUP_TARGET_ASSIGNMENT_METADATA,
            SHARE_GROUP_METADATA,
        ];
        let key = |kind| ShareGroupKey { group_id: group_id.to_owned() }.to_bytes(kind);
        kinds.into_iter().map(|kind| Ok(InternalRecord { key: key(kind)?, value: None })).collect()
    }

    fn record(&self, group_id: &str, change: &Change) -> Result<InternalRecord, EncodeError> {
        let whole = |kind| ShareGroupKey { group_id: group_id.to_owned() }.to_bytes(kind);
        let part = |kind, member: &str| {
            ShareGroupMemberKey { group_id: group_id.to_owned(), member_id: member.to_owned() }.to_bytes(kind)
        };
        let (key, value) = match change {
            Change::Group => {
                let value = ShareGroupMetadataValue { epoch: self.epoch, metadata_hash: self.metadata_hash };
                (whole(SHARE_GROUP_METADATA)?, Some(value.to_bytes()?))
            }
            Change::TargetEpoch => {
                let value = ShareGroupTargetAssignmentMetadataValue {
                    assignment_epoch: self.assignment_epoch,
                    assignment_timestamp: self.assigned_at_ms,
                };
                (whole(SHARE_GROUP_TARGET_ASSIGNMENT_METADATA)?, Some(value.to_bytes()?))
            }
            Change::StatePartitions => {
                (whole(SHARE_GROUP_STATE_PARTITION_METADATA)?, Some(self.state_value().to_bytes()?))
            }
            Change::Member(id) => {
                let value = self.members.get(id).map(|member| member_value(member).to_bytes());
                (part(SHARE_GROUP_MEMBER_METADATA, id)?, value.transpose()?)
            }
            Change::Target(id) => {
                let value = self.targets.get(id).map(|target| {
                    let topic_partitions = stored_places(target);
                    ShareGroupTargetAssignmentMemberValue { topic_partitions }.to_bytes()
                });
                (part(SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER, id)?, value.transpose()?)
            }
            Change::Current(id) => {
                let value = self.members.get(id).map(|member| {
                    let value = ShareGroupCurrentMemberAssignmentValue {
                        member_epoch: member.epoch,
                        previous_member_epoch: member.previous_epoch,
                        state: STABLE,
                        assigned_partitions: stored_places(&member.assigned),
                    };
                    value.to_bytes()
                });
                (part(SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT, id)?, value.transpose()?)
            }
        };
        Ok(InternalRecord { key, value })
    }

    fn state_value(&self) -> ShareGroupStatePartitionMetadataValue {
        let topics = |topics: &BTreeMap<Uuid, TopicPartitions>| {
            let topic = |(id, topic): (&Uuid, &TopicPartitions)| ShareTopicPartitionsInfo {
                topic_id: *id,
                topic_name: topic.name.clone(),
                partitions: topic.partitions.iter().copied().collect(),
            };
            topics.iter().map(topic).collect()
        };
        let deleting = self.state_partitions.deleting.iter();
        let deleting = deleting.map(|(id, name)| ShareTopicInfo { topic_id: *id, topic_name: name.clone() });
        ShareGroupStatePartitionMetadataValue {
            initializing_topics: topics(&self.state_partitions.initializing),
            initialized_topics: topics(&self.state_partitions.initialized),
            deleting_topics: deleting.collect(),
        }
    }
}

/// The place of records with a value, behind those that remove parts.
const PLACE_OF_VALUES: u8 = 4;

impl Change {
    /// The place of the record that removes the part. Kafka's `GroupMetadataManager` does not load a partition in which a member is
    /// removed before its assignments.
    const fn place_of_removal(&self) -> u8 {
        match self {
            Self::Current(_) => 0,
            Self::Target(_) => 1,
            Self::Member(_) => 2,
            Self::Group | Self::TargetEpoch | Self::StatePartitions => 3,
        }
    }
}

fn member_value(member: &ShareMember) -> ShareGroupMemberMetadataValue {
    let profile = member.profile.clone();
    ShareGroupMemberMetadataValue {
        rack_id: profile.rack_id,
        client_id: profile.client_id,
        client_host: profile.client_host,
        subscribed_topic_names: profile.names.into_iter().collect(),
    }
}

fn stored_places(places: &BTreeSet<Place>) -> Vec<ShareTopicPartitions> {
    let topics = by_topic(places.iter().copied()).into_iter();
    topics.map(|(topic_id, partitions)| ShareTopicPartitions { topic_id, partitions }).collect()
}

fn places_of(topics: Vec<ShareTopicPartitions>) -> BTreeSet<Place> {
    let places = |topic: ShareTopicPartitions| {
        topic.partitions.into_iter().map(move |partition| (topic.topic_id, partition))
    };
    topics.into_iter().flat_map(places).collect()
}

fn read_topics(topics: Vec<ShareTopicPartitionsInfo>) -> BTreeMap<Uuid, TopicPartitions> {
    let topic = |topic: ShareTopicPartitionsInfo| {
        let partitions = topic.partitions.into_iter().collect();
        (topic.topic_id, TopicPartitions { name: topic.topic_name, partitions })
    };
    topics.into_iter().map(topic).collect()
}
