//! A consumer group in `__consumer_offsets`, in Kafka's records.
//!
//! The parts of a group are records of their own, so that a heartbeat writes only what it changed. A part without a value is
//! gone. The reader accepts parts in any order and without the others: compaction may have removed earlier records
//! (KAFKA-19862).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ottla_protocol::messages::consumer_group_records::{
    CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT, CONSUMER_GROUP_MEMBER_METADATA, CONSUMER_GROUP_METADATA,
    CONSUMER_GROUP_REGULAR_EXPRESSION, CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER,
    CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA, ClassicMemberMetadata, ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentValue, ConsumerGroupKey, ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataValue, ConsumerGroupPartKey, ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberValue, ConsumerGroupTargetAssignmentMetadataValue,
    CurrentTopicPartitions, TargetTopicPartitions,
};
use ottla_protocol::{DecodeError, EncodeError, Uuid};
use tokio::time::Instant;

use super::group::{Change, ConsumerGroup};
use super::member::{Assigned, ClassicProfile, Member, MemberState, Place, Profile};
use super::patterns::ResolvedPattern;
use crate::coordinator::loading::put;
use crate::internal_topics::InternalRecord;
use crate::memory::KeptMemory;

/// The records of a group that were read.
#[derive(Debug, Default)]
pub(crate) struct StoredConsumerGroup {
    group: Option<ConsumerGroupMetadataValue>,
    target: Option<ConsumerGroupTargetAssignmentMetadataValue>,
    members: BTreeMap<String, ConsumerGroupMemberMetadataValue>,
    targets: BTreeMap<String, ConsumerGroupTargetAssignmentMemberValue>,
    current: BTreeMap<String, ConsumerGroupCurrentMemberAssignmentValue>,
    patterns: BTreeMap<String, ConsumerGroupRegularExpressionValue>,
}

impl StoredConsumerGroup {
    /// Applies a record about the whole group.
    pub(crate) fn apply(&mut self, kind: i16, value: Option<Bytes>) -> Result<(), DecodeError> {
        match kind {
            CONSUMER_GROUP_METADATA => {
                self.group = value.map(ConsumerGroupMetadataValue::from_bytes).transpose()?;
            }
            CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA => {
                self.target =
                    value.map(ConsumerGroupTargetAssignmentMetadataValue::from_bytes).transpose()?;
            }
            // The partitions of topics: a hash has replaced them.
            _ => {}
        }
        Ok(())
    }

    /// Applies a record about a member or a pattern.
    pub(crate) fn apply_part(
        &mut self,
        kind: i16,
        part: String,
        value: Option<Bytes>,
    ) -> Result<(), DecodeError> {
        match kind {
            CONSUMER_GROUP_MEMBER_METADATA => {
                let value = value.map(ConsumerGroupMemberMetadataValue::from_bytes).transpose()?;
                put(&mut self.members, part, value);
            }
            CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER => {
                let value = value.map(ConsumerGroupTargetAssignmentMemberValue::from_bytes).transpose()?;
                put(&mut self.targets, part, value);
            }
            CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT => {
                let value = value.map(ConsumerGroupCurrentMemberAssignmentValue::from_bytes).transpose()?;
                put(&mut self.current, part, value);
            }
            CONSUMER_GROUP_REGULAR_EXPRESSION => {
                let value = value.map(ConsumerGroupRegularExpressionValue::from_bytes).transpose()?;
                put(&mut self.patterns, part, value);
            }
            _ => {}
        }
        Ok(())
    }

    /// Returns whether nothing is left of the group.
    pub(crate) fn is_gone(&self) -> bool {
        self.group.is_none() && self.members.is_empty()
    }
}

impl ConsumerGroup {
    /// The group as its records describe it. Every member has its whole session timeout from `now` on.
    pub(super) fn from_stored(
        group_id: &str,
        stored: StoredConsumerGroup,
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
            group.set_epoch_seen();
        }
        for (pattern, value) in stored.patterns {
            let topics = value.topics.into_iter().map(Arc::<str>::from).collect();
            // The topics are matched again at the next heartbeat.
            let resolved = ResolvedPattern { topics, version: -1, acls_version: 0, at_ms: value.timestamp };
            group.kept.add(resolved.bytes(&pattern));
            group.patterns.insert(pattern, resolved);
        }
        let mut current = stored.current;
        for (id, value) in stored.members {
            let profile = Profile {
                instance_id: value.instance_id,
                rack_id: value.rack_id,
                client_id: value.client_id,
                client_host: value.client_host,
                names: value.subscribed_topic_names.into_iter().collect(),
                pattern: value.subscribed_topic_regex.filter(|pattern| !pattern.is_empty()),
                rebalance_timeout_ms: value.rebalance_timeout_ms,
                assignor: value.server_assignor,
                classic: value.classic_member_metadata.map(classic_profile),
            };
            let kept = memory.keep_known(Member::bytes(&id, &profile));
            let mut member = Member::new(&id, profile, now, kept);
            member.previous_epoch = 0;
            if let Some(current) = current.remove(&id) {
                member.epoch = current.member_epoch;
                member.previous_epoch = current.previous_member_epoch;
                member.state = MemberState::of_code(current.state);
                member.assigned = assigned_of(current.assigned_partitions, current.member_epoch);
                member.revoking = assigned_of(current.partitions_pending_revocation, current.member_epoch);
            }
            group.adopt(id, member, now);
        }
        for (id, target) in stored.targets {
            if group.members.contains_key(&id) {
                let places = target.topic_partitions.into_iter().flat_map(|topic| {
                    topic.partitions.into_iter().map(move |partition| (topic.topic_id, partition))
                });
                group.targets.insert(id, places.collect());
            }
        }
        group.count_targets(0);
        let epochs = group.members.values().map(|member| member.epoch);
        group.epoch = epochs.chain([group.epoch, group.assignment_epoch]).max().unwrap_or(1);
        group
    }

    /// Begins the sessions of all members again, and the times in which they have to give up partitions.
    pub(super) fn begin_sessions(&mut self, now: Instant) {
        for member in self.members.values_mut() {
            member.heard_at = now;
            member.revoke_by = member.revoke_by.map(|_| member.revocation_end(now));
        }
    }

    /// Adds a member that was read. Of two owners of one partition the first keeps it.
    pub(super) fn adopt(&mut self, id: String, mut member: Member, now: Instant) {
        let owners = &mut self.owners;
        let mut claim = |places: &mut Assigned| {
            places.retain(|place, _| {
                let owner = owners.entry(*place).or_insert_with(|| member.id.clone());
                *owner == member.id
            });
        };
        claim(&mut member.assigned);
        claim(&mut member.revoking);
        if member.state == MemberState::UnrevokedPartitions && !member.is_classic() {
            member.revoke_by = Some(member.revocation_end(now));
        }
        if let Some(instance) = &member.profile.instance_id {
            self.instances.insert(instance.clone(), id.clone());
        }
        self.members.insert(id, member);
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

    /// The records that remove the group with its members and patterns.
    pub(super) fn tombstones(&self, group_id: &str) -> Result<Vec<InternalRecord>, EncodeError> {
        let part = |kind, part: &str| {
            let key = ConsumerGroupPartKey { group_id: group_id.to_owned(), part: part.to_owned() };
            Ok(InternalRecord { key: key.to_bytes(kind)?, value: None })
        };
        let of_members = [
            CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT,
            CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER,
            CONSUMER_GROUP_MEMBER_METADATA,
        ];
        let members = of_members.into_iter().flat_map(|kind| self.members.keys().map(move |id| (kind, id)));
        let patterns = self.patterns.keys().map(|pattern| (CONSUMER_GROUP_REGULAR_EXPRESSION, pattern));
        let parts: Result<Vec<InternalRecord>, EncodeError> =
            members.chain(patterns).map(|(kind, name)| part(kind, name)).collect();
        let mut kinds = vec![CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA, CONSUMER_GROUP_METADATA];
        if self.assignment_epoch == 0 {
            kinds.remove(0);
        }
        let key = |kind| ConsumerGroupKey { group_id: group_id.to_owned() }.to_bytes(kind);
        let whole = kinds.into_iter().map(|kind| Ok(InternalRecord { key: key(kind)?, value: None }));
        let whole: Result<Vec<InternalRecord>, EncodeError> = whole.collect();
        Ok([parts?, whole?].concat())
    }

    fn record(&self, group_id: &str, change: &Change) -> Result<InternalRecord, EncodeError> {
        let whole = |kind| ConsumerGroupKey { group_id: group_id.to_owned() }.to_bytes(kind);
        let part = |kind, part: &str| {
            ConsumerGroupPartKey { group_id: group_id.to_owned(), part: part.to_owned() }.to_bytes(kind)
        };
        let (key, value) = match change {
            Change::Group => {
                let value =
                    ConsumerGroupMetadataValue { epoch: self.epoch, metadata_hash: self.metadata_hash };
                (whole(CONSUMER_GROUP_METADATA)?, Some(value.to_bytes()?))
            }
            Change::TargetEpoch => {
                let value = ConsumerGroupTargetAssignmentMetadataValue {
                    assignment_epoch: self.assignment_epoch,
                    assignment_timestamp: self.assigned_at_ms,
                };
                (whole(CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA)?, Some(value.to_bytes()?))
            }
            Change::Member(id) => {
                let value = self.members.get(id).map(|member| member_value(member).to_bytes());
                (part(CONSUMER_GROUP_MEMBER_METADATA, id)?, value.transpose()?)
            }
            Change::Target(id) => {
                let value = self.targets.get(id).map(|target| target_value(target).to_bytes());
                (part(CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER, id)?, value.transpose()?)
            }
            Change::Current(id) => {
                let value = self.members.get(id).map(|member| current_value(member).to_bytes());
                (part(CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT, id)?, value.transpose()?)
            }
            Change::Pattern(pattern) => {
                let value = self.patterns.get(pattern).map(|resolved| {
                    let value = ConsumerGroupRegularExpressionValue {
                        topics: resolved.topics.iter().map(ToString::to_string).collect(),
                        version: resolved.version,
                        timestamp: resolved.at_ms,
                    };
                    value.to_bytes()
                });
                (part(CONSUMER_GROUP_REGULAR_EXPRESSION, pattern)?, value.transpose()?)
            }
        };
        Ok(InternalRecord { key, value })
    }
}

/// The place of records with a value, behind those that remove parts.
const PLACE_OF_VALUES: u8 = 4;

impl Change {
    /// The place of the record that removes the part. Kafka's `GroupMetadataManager` does not load a partition in which a member is
    /// removed before its assignments, and forgets an instance if the member that it has replaced is removed behind its own record.
    const fn place_of_removal(&self) -> u8 {
        match self {
            Self::Current(_) => 0,
            Self::Target(_) => 1,
            Self::Member(_) => 2,
            Self::Pattern(_) | Self::Group | Self::TargetEpoch => 3,
        }
    }
}

fn member_value(member: &Member) -> ConsumerGroupMemberMetadataValue {
    let profile = member.profile.clone();
    ConsumerGroupMemberMetadataValue {
        instance_id: profile.instance_id,
        rack_id: profile.rack_id,
        client_id: profile.client_id,
        client_host: profile.client_host,
        subscribed_topic_names: profile.names.into_iter().collect(),
        subscribed_topic_regex: Some(profile.pattern.unwrap_or_default()),
        rebalance_timeout_ms: profile.rebalance_timeout_ms,
        server_assignor: profile.assignor,
        classic_member_metadata: profile.classic.map(|classic| ClassicMemberMetadata {
            session_timeout_ms: i32::try_from(classic.session_timeout.as_millis()).unwrap_or(i32::MAX),
            supported_protocols: classic
                .protocols
                .into_iter()
                .map(|(name, metadata)| ClassicProtocol { name, metadata })
                .collect(),
        }),
    }
}

fn classic_profile(metadata: ClassicMemberMetadata) -> ClassicProfile {
    let protocols = metadata.supported_protocols.into_iter();
    ClassicProfile {
        session_timeout: Duration::from_millis(metadata.session_timeout_ms.max(0) as u64),
        protocols: protocols.map(|protocol| (protocol.name, protocol.metadata)).collect(),
    }
}

fn target_value(target: &BTreeSet<Place>) -> ConsumerGroupTargetAssignmentMemberValue {
    let topics = by_topic(target.iter().copied());
    let topics =
        topics.into_iter().map(|(topic_id, partitions)| TargetTopicPartitions { topic_id, partitions });
    ConsumerGroupTargetAssignmentMemberValue { topic_partitions: topics.collect() }
}

fn current_value(member: &Member) -> ConsumerGroupCurrentMemberAssignmentValue {
    let stored = |places: &Assigned| {
        let topics = by_topic(places.keys().copied()).into_iter();
        topics
            .map(|(topic_id, partitions)| {
                let epochs = partitions.iter().filter_map(|at| places.get(&(topic_id, *at)).copied());
                let assignment_epochs = Some(epochs.collect());
                CurrentTopicPartitions { topic_id, partitions, assignment_epochs }
            })
            .collect()
    };
    ConsumerGroupCurrentMemberAssignmentValue {
        member_epoch: member.epoch,
        previous_member_epoch: member.previous_epoch,
        state: member.state.code(),
        assigned_partitions: stored(&member.assigned),
        partitions_pending_revocation: stored(&member.revoking),
    }
}

/// Partitions by topic.
pub(crate) fn by_topic(places: impl Iterator<Item = Place>) -> BTreeMap<Uuid, Vec<i32>> {
    let mut topics: BTreeMap<Uuid, Vec<i32>> = BTreeMap::new();
    for (topic, partition) in places {
        topics.entry(topic).or_default().push(partition);
    }
    topics
}

/// Before Kafka stored the epochs of partitions, the member's epoch stood for all of them.
fn assigned_of(topics: Vec<CurrentTopicPartitions>, member_epoch: i32) -> Assigned {
    let mut assigned = Assigned::new();
    for CurrentTopicPartitions { topic_id, partitions, assignment_epochs } in topics {
        let epochs = assignment_epochs.unwrap_or_default();
        for (at, partition) in partitions.into_iter().enumerate() {
            let since = epochs.get(at).copied().unwrap_or(member_epoch);
            assigned.insert((topic_id, partition), since);
        }
    }
    assigned
}
