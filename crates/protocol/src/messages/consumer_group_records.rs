//! The records of groups of the new protocol (KIP-848) in `__consumer_offsets`.
//!
//! The key types are Kafka's. Kafka's `kafka-dump-log --offsets-decoder` prints the records.

use bytes::Bytes;
use ottla_protocol_derive::Message;

use crate::error::{DecodeError, EncodeError};
use crate::messages::consumer_offsets::{from_bytes, to_bytes};
use crate::uuid::Uuid;

/// The type of the key of a group.
pub const CONSUMER_GROUP_METADATA: i16 = 3;
/// The type of the key of the partitions of a group's topics, which Kafka replaced by a hash.
pub const CONSUMER_GROUP_PARTITION_METADATA: i16 = 4;
/// The type of the key of a member.
pub const CONSUMER_GROUP_MEMBER_METADATA: i16 = 5;
/// The type of the key of the epoch of a group's target assignment.
pub const CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA: i16 = 6;
/// The type of the key of a member's target assignment.
pub const CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER: i16 = 7;
/// The type of the key of a member's current assignment.
pub const CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT: i16 = 8;
/// The type of the key of a resolved pattern.
pub const CONSUMER_GROUP_REGULAR_EXPRESSION: i16 = 16;
/// The version of all values.
const VALUE_VERSION: i16 = 0;

/// The key of a record about a whole group: types 3, 4 and 6.
#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "3-6")]
pub struct ConsumerGroupKey {
    pub group_id: String,
}

/// The key of a record about a member, or about a pattern: types 5, 7, 8 and 16.
#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "5-16")]
pub struct ConsumerGroupPartKey {
    pub group_id: String,
    /// The member's id or the pattern.
    pub part: String,
}

/// A group's epoch.
#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "0", flexible = "0+")]
pub struct ConsumerGroupMetadataValue {
    pub epoch: i32,
    #[field(tag = 0)]
    pub metadata_hash: i64,
}

/// A member as it described itself.
#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "0", flexible = "0+")]
pub struct ConsumerGroupMemberMetadataValue {
    pub instance_id: Option<String>,
    pub rack_id: Option<String>,
    pub client_id: String,
    pub client_host: String,
    pub subscribed_topic_names: Vec<String>,
    pub subscribed_topic_regex: Option<String>,
    #[field(default = -1)]
    pub rebalance_timeout_ms: i32,
    pub server_assignor: Option<String>,
    /// Present while the member uses the classic protocol.
    #[field(tag = 0, default = null)]
    pub classic_member_metadata: Option<ClassicMemberMetadata>,
}

/// The part of a member that uses the classic protocol in a group of the new one.
#[derive(Clone, Debug, PartialEq, Message)]
pub struct ClassicMemberMetadata {
    pub session_timeout_ms: i32,
    pub supported_protocols: Vec<ClassicProtocol>,
}

/// A protocol of a classic member, with its subscription.
#[derive(Clone, Debug, PartialEq, Message)]
pub struct ClassicProtocol {
    pub name: String,
    pub metadata: Bytes,
}

/// The epoch of a group's target assignment.
#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "0", flexible = "0+")]
pub struct ConsumerGroupTargetAssignmentMetadataValue {
    pub assignment_epoch: i32,
    #[field(tag = 0, ignorable)]
    pub assignment_timestamp: i64,
}

/// A member's target assignment.
#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "0", flexible = "0+")]
pub struct ConsumerGroupTargetAssignmentMemberValue {
    pub topic_partitions: Vec<TargetTopicPartitions>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct TargetTopicPartitions {
    pub topic_id: Uuid,
    pub partitions: Vec<i32>,
}

/// The partitions that a member has and those that it gives up.
#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "0", flexible = "0+")]
pub struct ConsumerGroupCurrentMemberAssignmentValue {
    pub member_epoch: i32,
    pub previous_member_epoch: i32,
    pub state: i8,
    pub assigned_partitions: Vec<CurrentTopicPartitions>,
    pub partitions_pending_revocation: Vec<CurrentTopicPartitions>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct CurrentTopicPartitions {
    pub topic_id: Uuid,
    pub partitions: Vec<i32>,
    /// The epochs in which the member got the partitions, in the same order.
    #[field(tag = 0, default = null)]
    pub assignment_epochs: Option<Vec<i32>>,
}

/// The topics that a pattern matched.
#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "0", flexible = "0+")]
pub struct ConsumerGroupRegularExpressionValue {
    pub topics: Vec<String>,
    pub version: i64,
    pub timestamp: i64,
}

impl ConsumerGroupKey {
    /// Encodes the type and the key.
    pub fn to_bytes(&self, kind: i16) -> Result<Bytes, EncodeError> {
        to_bytes(self, kind)
    }
}

impl ConsumerGroupPartKey {
    /// Encodes the type and the key.
    pub fn to_bytes(&self, kind: i16) -> Result<Bytes, EncodeError> {
        to_bytes(self, kind)
    }
}

macro_rules! values {
    ($($value:ident),* $(,)?) => {$(
        impl $value {
            /// Encodes the version and the value.
            pub fn to_bytes(&self) -> Result<Bytes, EncodeError> {
                to_bytes(self, VALUE_VERSION)
            }

            /// Decodes a version and a value. An unknown version is an error.
            pub fn from_bytes(bytes: Bytes) -> Result<Self, DecodeError> {
                from_bytes(bytes)
            }
        }
    )*};
}

values! {
    ConsumerGroupMetadataValue,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupTargetAssignmentMetadataValue,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupRegularExpressionValue,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes are Kafka's: a change of one of them would make the groups of a directory unreadable.
    #[test]
    fn the_records_of_a_group_have_kafkas_bytes() {
        let key = ConsumerGroupKey { group_id: "g".into() }.to_bytes(CONSUMER_GROUP_METADATA).unwrap();
        assert_eq!(key[..], *b"\0\x03\0\x01g");
        let key = ConsumerGroupPartKey { group_id: "g".into(), part: "m".into() };
        assert_eq!(key.to_bytes(CONSUMER_GROUP_MEMBER_METADATA).unwrap()[..], *b"\0\x05\0\x01g\0\x01m");
        let value = ConsumerGroupMetadataValue { epoch: 2, metadata_hash: 1 };
        assert_eq!(value.to_bytes().unwrap()[..], *b"\0\0\0\0\0\x02\x01\0\x08\0\0\0\0\0\0\0\x01");
        let value = ConsumerGroupCurrentMemberAssignmentValue {
            member_epoch: 2,
            previous_member_epoch: 1,
            state: 0,
            assigned_partitions: vec![CurrentTopicPartitions {
                topic_id: Uuid([7; 16]),
                partitions: vec![3],
                assignment_epochs: Some(vec![2]),
            }],
            partitions_pending_revocation: Vec::new(),
        };
        let bytes = value.to_bytes().unwrap();
        let mut wanted = b"\0\0\0\0\0\x02\0\0\0\x01\0\x02".to_vec();
        wanted.extend([7; 16]);
        wanted.extend(b"\x02\0\0\0\x03\x01\0\x05\x02\0\0\0\x02\x01\0");
        assert_eq!(bytes[..], wanted[..]);
        assert_eq!(ConsumerGroupCurrentMemberAssignmentValue::from_bytes(bytes), Ok(value));
    }
}
