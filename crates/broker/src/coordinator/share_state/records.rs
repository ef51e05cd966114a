//! The states of share-partitions in `__share_group_state`.

use bytes::Bytes;
use ottla_protocol::messages::share_state_records::{
    SHARE_SNAPSHOT, SHARE_UPDATE, ShareSnapshotValue, ShareStateBatch, ShareStateKey, ShareStateRecordKey,
    ShareUpdateValue,
};
use ottla_protocol::{DecodeError, EncodeError};

use super::{SharePartitionKey, StateBatch};
use crate::internal_topics::InternalRecord;

/// A record of a share-partition.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ShareRecord {
    /// The whole state.
    Snapshot(ShareSnapshotValue),
    /// A change since the last snapshot.
    Update(ShareUpdateValue),
    /// The state was deleted.
    Tombstone,
}

impl ShareRecord {
    pub(super) fn encode(&self, key: &SharePartitionKey) -> Result<InternalRecord, EncodeError> {
        let key =
            ShareStateKey { group_id: key.group.to_string(), topic_id: key.topic, partition: key.partition };
        let (kind, value) = match self {
            Self::Snapshot(value) => (SHARE_SNAPSHOT, Some(value.to_bytes()?)),
            Self::Update(value) => (SHARE_UPDATE, Some(value.to_bytes()?)),
            Self::Tombstone => (SHARE_SNAPSHOT, None),
        };
        Ok(InternalRecord { key: key.to_bytes(kind)?, value })
    }

    /// Decodes a record; `None` if its type is unknown.
    pub(super) fn decode(
        key: Bytes,
        value: Option<Bytes>,
    ) -> Result<Option<(SharePartitionKey, Self)>, DecodeError> {
        let (key, record) = match (ShareStateRecordKey::from_bytes(key)?, value) {
            (ShareStateRecordKey::Snapshot(key), Some(value)) => {
                (key, Self::Snapshot(ShareSnapshotValue::from_bytes(value)?))
            }
            (ShareStateRecordKey::Update(key), Some(value)) => {
                (key, Self::Update(ShareUpdateValue::from_bytes(value)?))
            }
            (ShareStateRecordKey::Snapshot(key) | ShareStateRecordKey::Update(key), None) => {
                (key, Self::Tombstone)
            }
            // A later version of this program, or Kafka, wrote it.
            _ => return Ok(None),
        };
        let ShareStateKey { group_id, topic_id, partition } = key;
        Ok(Some((SharePartitionKey { group: group_id.into(), topic: topic_id, partition }, record)))
    }
}

pub(super) fn stored(batches: &[StateBatch]) -> Vec<ShareStateBatch> {
    let batch = |batch: &StateBatch| ShareStateBatch {
        first_offset: batch.first,
        last_offset: batch.last,
        delivery_state: batch.state,
        delivery_count: batch.delivery_count,
    };
    batches.iter().map(batch).collect()
}

pub(super) fn read(batches: &[ShareStateBatch]) -> Vec<StateBatch> {
    let batch = |batch: &ShareStateBatch| StateBatch {
        first: batch.first_offset,
        last: batch.last_offset,
        state: batch.delivery_state,
        delivery_count: batch.delivery_count,
    };
    batches.iter().map(batch).collect()
}
