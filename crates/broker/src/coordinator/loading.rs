//! The state of the coordinators after a start, from the records of their topics.

use std::collections::BTreeMap;

use bytes::Bytes;
use ottla_log::Log;
use ottla_protocol::messages::consumer_offsets::{GroupMetadataValue, OffsetCommitValue, OffsetsKey};

use crate::cluster::Cluster;
use crate::coordinator::consumer_group::records::StoredConsumerGroup;
use crate::coordinator::offsets::{Committed, Offsets};
use crate::coordinator::share_group::records::StoredShareGroup;
use crate::internal_topics::{InternalTopic, ReplayError, Replayed, replay};
use crate::transactions;

/// The groups and offsets of one partition.
#[derive(Debug, Default)]
pub(crate) struct Loaded {
    pub(crate) offsets: Offsets,
    groups: BTreeMap<String, GroupMetadataValue>,
    consumer_groups: BTreeMap<String, StoredConsumerGroup>,
    share_groups: BTreeMap<String, StoredShareGroup>,
}

impl Cluster {
    /// Reads the state that a coordinator has in a partition of its topic. Blocks.
    ///
    /// # Errors
    /// The first record that cannot be read. Nothing of the partition is used then: a group without some of its offsets
    /// would start at `auto.offset.reset`.
    pub(crate) fn load_internal(&self, topic: &str, index: i32, log: &mut Log) -> Result<(), ReplayError> {
        match InternalTopic::of_name(topic) {
            None => Ok(()),
            Some(InternalTopic::TransactionState) => {
                let mut loaded = BTreeMap::new();
                replay(log, |entry| transactions::coordinator::load_entry(&mut loaded, entry))?;
                self.transactions.load(loaded);
                Ok(())
            }
            Some(InternalTopic::ShareGroupState) => {
                replay(log, |entry| self.share_states.load_entry(index, entry))?;
                log.close_idle_files(false);
                Ok(())
            }
            Some(InternalTopic::ConsumerOffsets) => {
                let mut loaded = Loaded::default();
                replay(log, |entry| loaded.apply(index, entry))?;
                // A topic of 50 partitions would keep 50 files open without a reader.
                log.close_idle_files(false);
                self.offsets.absorb(loaded.offsets);
                loaded.groups.into_iter().for_each(|(group, value)| self.groups.load(group, value));
                for (group, stored) in loaded.consumer_groups {
                    self.consumer_groups.load(group, stored);
                }
                for (group, stored) in loaded.share_groups {
                    self.share_groups.load(group, stored);
                }
                Ok(())
            }
        }
    }
}

impl Loaded {
    /// Applies one entry of a partition of `__consumer_offsets`.
    pub(crate) fn apply(&mut self, index: i32, entry: Replayed) -> Result<(), String> {
        let (offset, key, value, transaction) = match entry {
            Replayed::Record { offset, key, value, transaction } => (offset, key, value, transaction),
            Replayed::Marker { producer, committed } => {
                self.offsets.complete(index, producer.id, committed);
                return Ok(());
            }
        };
        match OffsetsKey::from_bytes(key).map_err(|error| error.to_string())? {
            OffsetsKey::OffsetCommit(key) => {
                let at = (key.topic, key.partition);
                match (value, transaction) {
                    (None, _) => self.offsets.remove(&key.group, &[at]),
                    (Some(value), None) => {
                        self.offsets.commit(&key.group, offset, vec![(at, committed_of(value)?)]);
                    }
                    (Some(value), Some(producer)) => {
                        let committed = vec![(at, committed_of(value)?)];
                        self.offsets.commit_pending(&key.group, (index, producer.id), offset, committed);
                    }
                }
            }
            OffsetsKey::GroupMetadata(key) => match value {
                None => drop(self.groups.remove(&key.group)),
                Some(value) => {
                    let value = GroupMetadataValue::from_bytes(value).map_err(|error| error.to_string())?;
                    self.groups.insert(key.group, value);
                }
            },
            OffsetsKey::ConsumerGroup(kind, key) => {
                let group = self.consumer_groups.entry(key.group_id).or_default();
                group.apply(kind, value).map_err(|error| error.to_string())?;
            }
            OffsetsKey::ConsumerGroupPart(kind, key) => {
                let group = self.consumer_groups.entry(key.group_id).or_default();
                group.apply_part(kind, key.part, value).map_err(|error| error.to_string())?;
            }
            OffsetsKey::ShareGroup(kind, key) => {
                let group = self.share_groups.entry(key.group_id).or_default();
                group.apply(kind, value).map_err(|error| error.to_string())?;
            }
            OffsetsKey::ShareGroupMember(kind, key) => {
                let group = self.share_groups.entry(key.group_id).or_default();
                group.apply_member(kind, key.member_id, value).map_err(|error| error.to_string())?;
            }
            // Groups of other protocols: a later version of this program, or Kafka, wrote them.
            OffsetsKey::Unknown(kind) => {
                tracing::debug!(kind, offset, "a record of an unknown type is ignored");
            }
            _ => {}
        }
        Ok(())
    }
}

fn committed_of(value: Bytes) -> Result<Committed, String> {
    let value = OffsetCommitValue::from_bytes(value).map_err(|error| error.to_string())?;
    Ok(Committed {
        offset: value.offset,
        leader_epoch: value.leader_epoch,
        metadata: value.metadata,
        at_ms: value.commit_timestamp,
        expires_at_ms: Some(value.expire_timestamp).filter(|at_ms| *at_ms >= 0),
    })
}

/// Takes a record of a member, or of another part of a group: without a value, it removes the part.
pub(super) fn put<V>(parts: &mut BTreeMap<String, V>, part: String, value: Option<V>) {
    match value {
        Some(value) => drop(parts.insert(part, value)),
        None => drop(parts.remove(&part)),
    }
}
