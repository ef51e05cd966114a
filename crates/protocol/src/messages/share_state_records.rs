//! The records of share-partitions (KIP-932) in `__share_group_state`: snapshots, and updates of them.
//!
//! Kafka's `kafka-dump-log --share-group-state-decoder` prints the records.

use bytes::Bytes;
use ottla_protocol_derive::Message;

use crate::decode::Decoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::Message;
use crate::messages::consumer_offsets::{from_bytes, to_bytes};
use crate::uuid::Uuid;

/// The type of the key of a snapshot.
pub const SHARE_SNAPSHOT: i16 = 0;
/// The type of the key of an update.
pub const SHARE_UPDATE: i16 = 1;
/// The version of all values.
const VALUE_VERSION: i16 = 0;

/// The key of a share-partition.
#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "0-1")]
pub struct ShareStateKey {
    pub group_id: String,
    pub topic_id: Uuid,
    pub partition: i32,
}

/// The whole state of a share-partition.
#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "0", flexible = "0+")]
pub struct ShareSnapshotValue {
    pub snapshot_epoch: i32,
    pub state_epoch: i32,
    pub leader_epoch: i32,
    pub start_offset: i64,
    #[field(tag = 0, default = -1)]
    pub delivery_complete_count: i32,
    pub create_timestamp: i64,
    pub write_timestamp: i64,
    pub state_batches: Vec<ShareStateBatch>,
}

/// A change of the state of a share-partition since its last snapshot.
#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "0", flexible = "0+")]
pub struct ShareUpdateValue {
    pub snapshot_epoch: i32,
    pub leader_epoch: i32,
    /// -1: the start offset does not change.
    pub start_offset: i64,
    #[field(tag = 0, default = -1)]
    pub delivery_complete_count: i32,
    pub state_batches: Vec<ShareStateBatch>,
}

/// Consecutive records with the same state.
#[derive(Clone, Debug, PartialEq, Message)]
pub struct ShareStateBatch {
    pub first_offset: i64,
    pub last_offset: i64,
    pub delivery_state: i8,
    pub delivery_count: i16,
}

/// The key of a record of `__share_group_state`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ShareStateRecordKey {
    /// A snapshot.
    Snapshot(ShareStateKey),
    /// An update.
    Update(ShareStateKey),
    /// A record of a type that is not known here.
    Unknown(i16),
}

impl ShareStateRecordKey {
    /// Decodes a key.
    pub fn from_bytes(bytes: Bytes) -> Result<Self, DecodeError> {
        let mut input = Decoder::new(bytes);
        let kind = input.i16()?;
        Ok(match kind {
            SHARE_SNAPSHOT => Self::Snapshot(ShareStateKey::decode(&mut input, kind)?),
            SHARE_UPDATE => Self::Update(ShareStateKey::decode(&mut input, kind)?),
            unknown => Self::Unknown(unknown),
        })
    }
}

impl ShareStateKey {
    /// Encodes this share-state key behind its type.
    pub fn to_bytes(&self, kind: i16) -> Result<Bytes, EncodeError> {
        to_bytes(self, kind)
    }
}

macro_rules! values {
    ($($value:ident),* $(,)?) => {$(
        impl $value {
            /// Encodes this share-state value behind its version.
            pub fn to_bytes(&self) -> Result<Bytes, EncodeError> {
                to_bytes(self, VALUE_VERSION)
            }

            /// Decodes a share-state value behind its version. An unknown version is an error.
            pub fn from_bytes(bytes: Bytes) -> Result<Self, DecodeError> {
                from_bytes(bytes)
            }
        }
    )*};
}

values! { ShareSnapshotValue, ShareUpdateValue }

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes are Kafka's: a change of one of them would make the state of a directory unreadable.
    #[test]
    fn the_state_of_a_share_partition_has_kafkas_bytes() {
        let key = ShareStateKey { group_id: "g".into(), topic_id: Uuid([7; 16]), partition: 3 };
        let wanted = [&b"\0\0\0\x01g"[..], &[7; 16], b"\0\0\0\x03"].concat();
        let bytes = key.to_bytes(SHARE_SNAPSHOT).unwrap();
        assert_eq!(bytes[..], wanted);
        assert_eq!(ShareStateRecordKey::from_bytes(bytes), Ok(ShareStateRecordKey::Snapshot(key.clone())));
        assert_eq!(key.to_bytes(SHARE_UPDATE).unwrap()[..2], *b"\0\x01");
        let batch = ShareStateBatch { first_offset: 5, last_offset: 9, delivery_state: 2, delivery_count: 1 };
        let batches = b"\x02\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\x09\x02\0\x01\0";
        let snapshot = ShareSnapshotValue {
            snapshot_epoch: 1,
            state_epoch: 2,
            leader_epoch: 3,
            start_offset: 4,
            delivery_complete_count: 5,
            create_timestamp: 6,
            write_timestamp: 7,
            state_batches: vec![batch.clone()],
        };
        let bytes = snapshot.to_bytes().unwrap();
        let wanted = [
            &b"\0\0\0\0\0\x01\0\0\0\x02\0\0\0\x03\0\0\0\0\0\0\0\x04\0\0\0\0\0\0\0\x06\0\0\0\0\0\0\0\x07"[..],
            batches,
            b"\x01\0\x04\0\0\0\x05",
        ];
        assert_eq!(bytes[..], wanted.concat());
        assert_eq!(ShareSnapshotValue::from_bytes(bytes), Ok(snapshot));
        let update = ShareUpdateValue {
            snapshot_epoch: 1,
            leader_epoch: 3,
            start_offset: -1,
            delivery_complete_count: -1,
            state_batches: vec![batch],
        };
        let bytes = update.to_bytes().unwrap();
        let wanted =
            [&b"\0\0\0\0\0\x01\0\0\0\x03\xff\xff\xff\xff\xff\xff\xff\xff"[..], batches, b"\0"].concat();
        assert_eq!(bytes[..], wanted);
        assert_eq!(ShareUpdateValue::from_bytes(bytes), Ok(update));
    }
}
