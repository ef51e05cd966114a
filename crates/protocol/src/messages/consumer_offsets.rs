//! The records of `__consumer_offsets`: committed offsets, the members of classic groups, and the keys of all records.
//!
//! A key is its type in two bytes and then the message; a value is its version in two bytes and then the message. Kafka's
//! `kafka-dump-log --offsets-decoder` prints them.

use bytes::Bytes;
use ottla_protocol_derive::Message;

use crate::decode::Decoder;
use crate::encode::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::Message;
use crate::messages::consumer_group_records::{
    CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT, CONSUMER_GROUP_MEMBER_METADATA, CONSUMER_GROUP_METADATA,
    CONSUMER_GROUP_PARTITION_METADATA, CONSUMER_GROUP_REGULAR_EXPRESSION,
    CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER, CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA, ConsumerGroupKey,
    ConsumerGroupPartKey,
};
use crate::messages::share_group_records::{
    SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT, SHARE_GROUP_MEMBER_METADATA, SHARE_GROUP_METADATA,
    SHARE_GROUP_STATE_PARTITION_METADATA, SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER,
    SHARE_GROUP_TARGET_ASSIGNMENT_METADATA, ShareGroupKey, ShareGroupMemberKey,
};
use crate::uuid::Uuid;

/// The key of a committed offset: types 0 and 1.
#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "0-1")]
pub struct OffsetCommitKey {
    pub group: String,
    pub topic: String,
    pub partition: i32,
}

/// A committed offset.
#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "0-4", flexible = "4+")]
pub struct OffsetCommitValue {
    pub offset: i64,
    #[field(versions = "3+", default = -1, ignorable)]
    pub leader_epoch: i32,
    pub metadata: String,
    pub commit_timestamp: i64,
    #[field(versions = "1", default = -1, ignorable)]
    pub expire_timestamp: i64,
    #[field(versions = "4+", tag = 0, ignorable)]
    pub topic_id: Uuid,
}

/// The key of a classic group: type 2.
#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "2")]
pub struct GroupMetadataKey {
    pub group: String,
}

/// A classic group: its generation and members.
#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "0-4", flexible = "4+")]
pub struct GroupMetadataValue {
    pub protocol_type: String,
    pub generation: i32,
    pub protocol: Option<String>,
    pub leader: Option<String>,
    #[field(versions = "2+", default = -1, ignorable)]
    pub current_state_timestamp: i64,
    pub members: Vec<GroupMetadataValueMember>,
}

/// A member of a classic group.
#[derive(Clone, Debug, PartialEq, Message)]
pub struct GroupMetadataValueMember {
    pub member_id: String,
    #[field(versions = "3+", default = null, ignorable)]
    pub group_instance_id: Option<String>,
    pub client_id: String,
    pub client_host: String,
    #[field(versions = "1+", ignorable)]
    pub rebalance_timeout: i32,
    pub session_timeout: i32,
    pub subscription: Bytes,
    pub assignment: Bytes,
}

/// The type of the key of a committed offset, as it is written.
pub const OFFSET_COMMIT: i16 = 1;
/// The type of the key of a committed offset before Kafka 0.9.
pub const OFFSET_COMMIT_LEGACY: i16 = 0;
/// The type of the key of a classic group.
pub const GROUP_METADATA: i16 = 2;
/// The version of values that is written: what Kafka writes without topic ids.
const VALUE_VERSION: i16 = 3;
/// The version of an offset that expires at a time of its own: the only one with this time, which has no leader epoch.
const EXPIRING_VALUE_VERSION: i16 = 1;

/// The key of a record of `__consumer_offsets`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum OffsetsKey {
    /// A committed offset.
    OffsetCommit(OffsetCommitKey),
    /// A classic group.
    GroupMetadata(GroupMetadataKey),
    /// A group of the new protocol, by the type of its key.
    ConsumerGroup(i16, ConsumerGroupKey),
    /// A member or a pattern of such a group, by the type of its key.
    ConsumerGroupPart(i16, ConsumerGroupPartKey),
    /// A share group, by the type of its key.
    ShareGroup(i16, ShareGroupKey),
    /// A member of a share group, by the type of its key.
    ShareGroupMember(i16, ShareGroupMemberKey),
    /// A record of a type that is not known here.
    Unknown(i16),
}

impl OffsetsKey {
    /// Decodes a key.
    pub fn from_bytes(bytes: Bytes) -> Result<Self, DecodeError> {
        let mut input = Decoder::new(bytes);
        let kind = input.i16()?;
        Ok(match kind {
            OFFSET_COMMIT_LEGACY | OFFSET_COMMIT => {
                Self::OffsetCommit(OffsetCommitKey::decode(&mut input, kind)?)
            }
            GROUP_METADATA => Self::GroupMetadata(GroupMetadataKey::decode(&mut input, kind)?),
            CONSUMER_GROUP_METADATA
            | CONSUMER_GROUP_PARTITION_METADATA
            | CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA => {
                Self::ConsumerGroup(kind, ConsumerGroupKey::decode(&mut input, kind)?)
            }
            CONSUMER_GROUP_MEMBER_METADATA
            | CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER
            | CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT
            | CONSUMER_GROUP_REGULAR_EXPRESSION => {
                Self::ConsumerGroupPart(kind, ConsumerGroupPartKey::decode(&mut input, kind)?)
            }
            SHARE_GROUP_METADATA
            | SHARE_GROUP_TARGET_ASSIGNMENT_METADATA
            | SHARE_GROUP_STATE_PARTITION_METADATA => {
                Self::ShareGroup(kind, ShareGroupKey::decode(&mut input, kind)?)
            }
            SHARE_GROUP_MEMBER_METADATA
            | SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER
            | SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT => {
                Self::ShareGroupMember(kind, ShareGroupMemberKey::decode(&mut input, kind)?)
            }
            unknown => Self::Unknown(unknown),
        })
    }
}

impl OffsetCommitKey {
    /// Encodes the type and the key.
    pub fn to_bytes(&self) -> Result<Bytes, EncodeError> {
        to_bytes(self, OFFSET_COMMIT)
    }
}

impl GroupMetadataKey {
    /// Encodes the type and the key.
    pub fn to_bytes(&self) -> Result<Bytes, EncodeError> {
        to_bytes(self, GROUP_METADATA)
    }
}

impl OffsetCommitValue {
    /// Encodes the version and the value. Kafka's consumers of the topic know these versions: 3, or 1 with an expiry time.
    pub fn to_bytes(&self) -> Result<Bytes, EncodeError> {
        to_bytes(self, if self.expire_timestamp == -1 { VALUE_VERSION } else { EXPIRING_VALUE_VERSION })
    }

    /// Decodes a version and a value. An unknown version is an error.
    pub fn from_bytes(bytes: Bytes) -> Result<Self, DecodeError> {
        from_bytes(bytes)
    }
}

impl GroupMetadataValue {
    /// Encodes the version and the value.
    pub fn to_bytes(&self) -> Result<Bytes, EncodeError> {
        to_bytes(self, VALUE_VERSION)
    }

    /// Decodes a version and a value. An unknown version is an error.
    pub fn from_bytes(bytes: Bytes) -> Result<Self, DecodeError> {
        from_bytes(bytes)
    }
}

pub(super) fn to_bytes<M: Message>(message: &M, version: i16) -> Result<Bytes, EncodeError> {
    let mut out = Encoder::new();
    out.put_i16(version);
    message.encode(&mut out, version)?;
    Ok(out.finish().to_bytes().expect("none of it is in a file"))
}

pub(super) fn from_bytes<M: Message>(bytes: Bytes) -> Result<M, DecodeError> {
    let mut input = Decoder::new(bytes);
    let version = input.i16().map_err(|error| error.within("version").within_message(M::NAME, 0))?;
    M::decode(&mut input, version)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commit() -> OffsetCommitValue {
        OffsetCommitValue {
            offset: 5,
            leader_epoch: 2,
            metadata: "m".into(),
            commit_timestamp: 9,
            ..Default::default()
        }
    }

    /// The bytes are Kafka's: a change of one of them would make the offsets of a directory unreadable.
    #[test]
    fn an_offset_commit_has_kafkas_bytes() {
        let key = OffsetCommitKey { group: "g".into(), topic: "t".into(), partition: 3 };
        assert_eq!(key.to_bytes().unwrap()[..], *b"\0\x01\0\x01g\0\x01t\0\0\0\x03");
        let value = commit().to_bytes().unwrap();
        assert_eq!(value[..], *b"\0\x03\0\0\0\0\0\0\0\x05\0\0\0\x02\0\x01m\0\0\0\0\0\0\0\x09");
        assert_eq!(OffsetCommitValue::from_bytes(value), Ok(commit()));
        let expiring = OffsetCommitValue { expire_timestamp: 12, ..commit() };
        let value = expiring.to_bytes().unwrap();
        assert_eq!(value[..], *b"\0\x01\0\0\0\0\0\0\0\x05\0\x01m\0\0\0\0\0\0\0\x09\0\0\0\0\0\0\0\x0c");
        let read = OffsetCommitValue::from_bytes(value);
        assert_eq!(read, Ok(OffsetCommitValue { leader_epoch: -1, ..expiring }));
    }

    #[test]
    fn every_version_of_a_value_is_read() {
        for version in 0..=4 {
            let read = OffsetCommitValue::from_bytes(to_bytes(&commit(), version).unwrap()).unwrap();
            let epoch = if version >= 3 { 2 } else { -1 };
            assert_eq!((read.offset, read.leader_epoch, &*read.metadata), (5, epoch, "m"), "v{version}");
            let group = GroupMetadataValue {
                protocol_type: "consumer".into(),
                generation: 7,
                leader: Some("a".into()),
                members: vec![GroupMetadataValueMember { member_id: "a".into(), ..Default::default() }],
                ..Default::default()
            };
            let read = GroupMetadataValue::from_bytes(to_bytes(&group, version).unwrap()).unwrap();
            assert_eq!((read.generation, read.members.len()), (7, 1), "v{version}");
        }
        assert!(OffsetCommitValue::from_bytes(Bytes::from_static(b"\0\x09")).is_err());
    }

    #[test]
    fn a_key_of_an_unknown_type_is_no_error() {
        assert_eq!(OffsetsKey::from_bytes(Bytes::from_static(b"\0\x63x")), Ok(OffsetsKey::Unknown(99)));
        assert!(OffsetsKey::from_bytes(Bytes::from_static(b"\0")).is_err());
    }
}
