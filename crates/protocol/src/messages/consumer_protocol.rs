//! The messages between members of a classic consumer group, which JoinGroup and SyncGroup carry.
//!
//! The group protocol carries these as opaque bytes: a version of two bytes, then the message. They have no flexible
//! versions.

use bytes::Bytes;
use ottla_protocol_derive::Message;

use crate::decode::Decoder;
use crate::encode::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::Message;

/// A member's subscription: the metadata of a protocol in its JoinGroup request.
#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "0-3")]
pub struct ConsumerProtocolSubscription {
    pub topics: Vec<String>,
    #[field(default = null)]
    pub user_data: Option<Bytes>,
    #[field(versions = "1+", ignorable)]
    pub owned_partitions: Vec<TopicPartition>,
    #[field(versions = "2+", default = -1, ignorable)]
    pub generation_id: i32,
    #[field(versions = "3+", default = null, ignorable)]
    pub rack_id: Option<String>,
}

/// A member's assignment: in its SyncGroup response.
#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "0-3")]
pub struct ConsumerProtocolAssignment {
    pub assigned_partitions: Vec<TopicPartition>,
    #[field(default = null)]
    pub user_data: Option<Bytes>,
}

/// Partitions of one topic.
#[derive(Clone, Debug, PartialEq, Message)]
pub struct TopicPartition {
    pub topic: String,
    pub partitions: Vec<i32>,
}

impl ConsumerProtocolSubscription {
    /// Encodes the version and the subscription.
    pub fn to_bytes(&self, version: i16) -> Result<Bytes, EncodeError> {
        to_bytes(self, version)
    }

    /// Decodes a version and a subscription.
    pub fn from_bytes(bytes: Bytes) -> Result<Self, DecodeError> {
        from_bytes(bytes)
    }
}

impl ConsumerProtocolAssignment {
    /// Encodes the version and the assignment.
    pub fn to_bytes(&self, version: i16) -> Result<Bytes, EncodeError> {
        to_bytes(self, version)
    }

    /// Decodes a version and an assignment.
    pub fn from_bytes(bytes: Bytes) -> Result<Self, DecodeError> {
        from_bytes(bytes)
    }
}

fn to_bytes<M: Message>(message: &M, version: i16) -> Result<Bytes, EncodeError> {
    let mut out = Encoder::new();
    out.put_i16(version);
    message.encode(&mut out, version)?;
    Ok(out.finish().to_bytes().expect("none of it is in a file"))
}

/// A version newer than ours only adds fields at the end: the known fields are read, the others ignored.
fn from_bytes<M: Message>(bytes: Bytes) -> Result<M, DecodeError> {
    let mut input = Decoder::new(bytes);
    let version = input.i16().map_err(|error| error.within("version").within_message(M::NAME, 0))?;
    M::decode(&mut input, version.min(*M::VERSIONS.end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newer_version_is_read_as_far_as_it_is_known() {
        let subscription = ConsumerProtocolSubscription {
            topics: vec!["orders".into()],
            owned_partitions: vec![TopicPartition { topic: "orders".into(), partitions: vec![0, 2] }],
            generation_id: 7,
            ..Default::default()
        };
        let mut bytes = subscription.to_bytes(3).unwrap().to_vec();
        assert_eq!(
            ConsumerProtocolSubscription::from_bytes(bytes.clone().into()).as_ref(),
            Ok(&subscription)
        );
        bytes[1] = 9;
        bytes.extend(b"fields of the future");
        assert_eq!(ConsumerProtocolSubscription::from_bytes(bytes.into()), Ok(subscription));
    }

    #[test]
    fn an_old_version_drops_what_it_cannot_say() {
        let subscription = ConsumerProtocolSubscription { generation_id: 7, ..Default::default() };
        let bytes = subscription.to_bytes(0).unwrap();
        assert_eq!(bytes[..], [0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]);
        assert_eq!(
            ConsumerProtocolSubscription::from_bytes(bytes),
            Ok(ConsumerProtocolSubscription::default())
        );
    }
}
