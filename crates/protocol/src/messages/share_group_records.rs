//! The records of share groups (KIP-932) in `__consumer_offsets`.
//!
//! The key types are Kafka's. Kafka's `kafka-dump-log --offsets-decoder` prints the records. The keys are those of
//! [consumer groups](super::consumer_group_records).

use bytes::Bytes;
use ottla_protocol_derive::Message;

use crate::error::{DecodeError, EncodeError};
use crate::messages::consumer_offsets::{from_bytes, to_bytes};
use crate::uuid::Uuid;

/// The type of the key of a member.
pub const SHARE_GROUP_MEMBER_METADATA: i16 = 10;
/// The type of the key of a group.
pub const SHARE_GROUP_METADATA: i16 = 11;
/// The type of the key of the epoch of a group's target assignment.
pub const SHARE_GROUP_TARGET_ASSIGNMENT_METADATA: i16 = 12;
/// The type of the key of a member's target assignment.
pub const SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER: i16 = 13;
/// The type of the key of a member's current assignment.
pub const SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT: i16 = 14;
/// The type of the key of the partitions whose state is being initialized, is initialized, or is being deleted.
pub const SHARE_GROUP_STATE_PARTITION_METADATA: i16 = 15;
/// The version of all values.
const VALUE_VERSION: i16 = 0;

/// The key of a record about a whole group: types 11, 12 and 15.
#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "11-15")]
pub struct ShareGroupKey {
    pub group_id: String,
}

/// The key of a record about a member: types 10, 13 and 14.
#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "10-14")]
pub struct ShareGroupMemberKey {
    pub group_id: String,
    pub member_id: String,
}

/// A member as it described itself.
#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "0", flexible = "0+")]
pub struct ShareGroupMemberMetadataValue {
    pub rack_id: Option<String>,
    pub client_id: String,
    pub client_host: String,
    pub subscribed_topic_names: Vec<String>,
}

/// A group's epoch.
#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "0", flexible = "0+")]
pub struct ShareGroupMetadataValue {
    pub epoch: i32,
    pub metadata_hash: i64,
}

/// The epoch of a group's target assignment.
#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "0", flexible = "0+")]
pub struct ShareGroupTargetAssignmentMetadataValue {
    pub assignment_epoch: i32,
    #[field(tag = 0, ignorable)]
    pub assignment_timestamp: i64,
}

/// A member's target assignment.
#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "0", flexible = "0+")]
pub struct ShareGroupTargetAssignmentMemberValue {
    pub topic_partitions: Vec<ShareTopicPartitions>,
}

/// Partitions of a topic.
#[derive(Clone, Debug, PartialEq, Message)]
pub struct ShareTopicPartitions {
    pub topic_id: Uuid,
    pub partitions: Vec<i32>,
}

/// The partitions that a member has.
#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "0", flexible = "0+")]
pub struct ShareGroupCurrentMemberAssignmentValue {
    pub member_epoch: i32,
    pub previous_member_epoch: i32,
    pub state: i8,
    pub assigned_partitions: Vec<ShareTopicPartitions>,
}

/// The partitions whose share-group state is being initialized, is initialized, or is being deleted.
#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "0", flexible = "0+")]
pub struct ShareGroupStatePartitionMetadataValue {
    pub initializing_topics: Vec<ShareTopicPartitionsInfo>,
    pub initialized_topics: Vec<ShareTopicPartitionsInfo>,
    pub deleting_topics: Vec<ShareTopicInfo>,
}

/// Partitions of a topic, with its name.
#[derive(Clone, Debug, PartialEq, Message)]
pub struct ShareTopicPartitionsInfo {
    pub topic_id: Uuid,
    pub topic_name: String,
    pub partitions: Vec<i32>,
}

/// A topic.
#[derive(Clone, Debug, PartialEq, Message)]
pub struct ShareTopicInfo {
    pub topic_id: Uuid,
    pub topic_name: String,
}

impl ShareGroupKey {
    /// Encodes this share-group key behind its type.
    pub fn to_bytes(&self, kind: i16) -> Result<Bytes, EncodeError> {
        to_bytes(self, kind)
    }
}

impl ShareGroupMemberKey {
    /// Encodes this share-group key behind its type.
    pub fn to_bytes(&self, kind: i16) -> Result<Bytes, EncodeError> {
        to_bytes(self, kind)
    }
}

macro_rules! values {
    ($($value:ident),* $(,)?) => {$(
        impl $value {
            /// Encodes this share-group value behind its version.
            pub fn to_bytes(&self) -> Result<Bytes, EncodeError> {
                to_bytes(self, VALUE_VERSION)
            }

            /// Decodes a share-group value behind its version. An unknown version is an error.
            pub fn from_bytes(bytes: Bytes) -> Result<Self, DecodeError> {
                from_bytes(bytes)
            }
        }
    )*};
}

values! {
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataValue,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes are Kafka's: a change of one of them would make the groups of a directory unreadable.
    #[test]
    fn the_records_of_a_share_group_have_kafkas_bytes() {
        let key = ShareGroupKey { group_id: "g".into() };
        assert_eq!(key.to_bytes(SHARE_GROUP_METADATA).unwrap()[..], *b"\0\x0b\0\x01g");
        assert_eq!(key.to_bytes(SHARE_GROUP_STATE_PARTITION_METADATA).unwrap()[..], *b"\0\x0f\0\x01g");
        let key = ShareGroupMemberKey { group_id: "g".into(), member_id: "m".into() };
        assert_eq!(key.to_bytes(SHARE_GROUP_MEMBER_METADATA).unwrap()[..], *b"\0\x0a\0\x01g\0\x01m");
        let value = ShareGroupMetadataValue { epoch: 2, metadata_hash: 1 };
        assert_eq!(value.to_bytes().unwrap()[..], *b"\0\0\0\0\0\x02\0\0\0\0\0\0\0\x01\0");
        let value = ShareGroupMemberMetadataValue {
            rack_id: None,
            client_id: "c".into(),
            client_host: "h".into(),
            subscribed_topic_names: vec!["t".into()],
        };
        assert_eq!(value.to_bytes().unwrap()[..], *b"\0\0\0\x02c\x02h\x02\x02t\0");
        let value = ShareGroupTargetAssignmentMetadataValue { assignment_epoch: 3, assignment_timestamp: 5 };
        assert_eq!(value.to_bytes().unwrap()[..], *b"\0\0\0\0\0\x03\x01\0\x08\0\0\0\0\0\0\0\x05");
        let assigned = vec![ShareTopicPartitions { topic_id: Uuid([7; 16]), partitions: vec![3] }];
        let value = ShareGroupTargetAssignmentMemberValue { topic_partitions: assigned.clone() };
        let partitions = [&[2][..], &[7; 16], b"\x02\0\0\0\x03\0\0"].concat();
        assert_eq!(value.to_bytes().unwrap()[..], [b"\0\0", &partitions[..]].concat());
        let value = ShareGroupCurrentMemberAssignmentValue {
            member_epoch: 2,
            previous_member_epoch: 1,
            state: 0,
            assigned_partitions: assigned,
        };
        let bytes = value.to_bytes().unwrap();
        assert_eq!(bytes[..], [b"\0\0\0\0\0\x02\0\0\0\x01\0", &partitions[..]].concat());
        assert_eq!(ShareGroupCurrentMemberAssignmentValue::from_bytes(bytes), Ok(value));
    }

    #[test]
    fn the_state_partitions_of_a_share_group_have_kafkas_bytes() {
        let value = ShareGroupStatePartitionMetadataValue {
            initializing_topics: Vec::new(),
            initialized_topics: vec![ShareTopicPartitionsInfo {
                topic_id: Uuid([7; 16]),
                topic_name: "t".into(),
                partitions: vec![0, 1],
            }],
            deleting_topics: vec![ShareTopicInfo { topic_id: Uuid([8; 16]), topic_name: "d".into() }],
        };
        let bytes = value.to_bytes().unwrap();
        let wanted =
            [&b"\0\0\x01\x02"[..], &[7; 16], b"\x02t\x03\0\0\0\0\0\0\0\x01\0\x02", &[8; 16], b"\x02d\0\0"];
        assert_eq!(bytes[..], wanted.concat());
        assert_eq!(ShareGroupStatePartitionMetadataValue::from_bytes(bytes), Ok(value));
    }
}
