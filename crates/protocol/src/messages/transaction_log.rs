//! The records of `__transaction_state`: the state of a transactional id.
//!
//! Key and value start with two bytes: the record's type in the key, the value's version in the value.

use bytes::Bytes;
use ottla_protocol_derive::Message;

use crate::decode::Decoder;
use crate::encode::Encoder;
use crate::error::{DecodeError, EncodeError};
use crate::message::Message;

/// The type of these records in their keys.
const TRANSACTION_LOG: i16 = 0;

/// The key of a record.
#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "0")]
pub struct TransactionLogKey {
    pub transactional_id: String,
}

/// The value of a record.
#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "0-1", flexible = "1+")]
pub struct TransactionLogValue {
    pub producer_id: i64,
    #[field(versions = "1+", tag = 0, default = -1, ignorable)]
    pub previous_producer_id: i64,
    #[field(versions = "1+", tag = 1, default = -1, ignorable)]
    pub next_producer_id: i64,
    pub producer_epoch: i16,
    pub transaction_timeout_ms: i32,
    pub transaction_status: i8,
    #[field(nullable = "0+")]
    pub transaction_partitions: Option<Vec<TransactionLogPartitions>>,
    pub transaction_last_update_timestamp_ms: i64,
    pub transaction_start_timestamp_ms: i64,
    #[field(versions = "1+", tag = 2, ignorable)]
    pub client_transaction_version: i16,
}

/// Partitions of one topic.
#[derive(Clone, Debug, PartialEq, Message)]
pub struct TransactionLogPartitions {
    pub topic: String,
    pub partition_ids: Vec<i32>,
}

impl TransactionLogKey {
    /// Encodes the record's type and the key.
    pub fn to_bytes(&self) -> Result<Bytes, EncodeError> {
        prefixed(TRANSACTION_LOG, self, 0)
    }

    /// Decodes a key; `None` for records of another type.
    pub fn from_bytes(bytes: Bytes) -> Result<Option<Self>, DecodeError> {
        let mut input = Decoder::new(bytes);
        let kind = input.i16().map_err(|error| error.within("type").within_message(Self::NAME, 0))?;
        if kind == TRANSACTION_LOG { Self::decode(&mut input, 0).map(Some) } else { Ok(None) }
    }
}

impl TransactionLogValue {
    /// Encodes the version and the value.
    pub fn to_bytes(&self, version: i16) -> Result<Bytes, EncodeError> {
        prefixed(version, self, version)
    }

    /// Decodes a version and a value; `None` for a newer version.
    pub fn from_bytes(bytes: Bytes) -> Result<Option<Self>, DecodeError> {
        let mut input = Decoder::new(bytes);
        let version = input.i16().map_err(|error| error.within("version").within_message(Self::NAME, 0))?;
        if Self::VERSIONS.contains(&version) { Self::decode(&mut input, version).map(Some) } else { Ok(None) }
    }
}

fn prefixed<M: Message>(prefix: i16, message: &M, version: i16) -> Result<Bytes, EncodeError> {
    let mut out = Encoder::new();
    out.put_i16(prefix);
    message.encode(&mut out, version)?;
    Ok(out.finish().to_bytes().expect("none of it is in a file"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value() -> TransactionLogValue {
        TransactionLogValue {
            producer_id: 7,
            producer_epoch: 2,
            transaction_timeout_ms: 60_000,
            transaction_status: 1,
            transaction_partitions: Some(vec![TransactionLogPartitions {
                topic: "orders".into(),
                partition_ids: vec![0, 2],
            }]),
            transaction_last_update_timestamp_ms: 11,
            transaction_start_timestamp_ms: 10,
            ..Default::default()
        }
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let key = TransactionLogKey { transactional_id: "till-1".into() };
        assert_eq!(TransactionLogKey::from_bytes(key.to_bytes().unwrap()), Ok(Some(key)));
        let full = TransactionLogValue {
            previous_producer_id: 6,
            next_producer_id: 8,
            client_transaction_version: 2,
            ..value()
        };
        assert_eq!(TransactionLogValue::from_bytes(full.to_bytes(1).unwrap()), Ok(Some(full)));
    }

    #[test]
    fn version_0_has_no_tagged_fields() {
        let full = TransactionLogValue {
            previous_producer_id: 6,
            next_producer_id: 8,
            client_transaction_version: 2,
            ..value()
        };
        assert_eq!(TransactionLogValue::from_bytes(full.to_bytes(0).unwrap()), Ok(Some(value())));
    }

    #[test]
    fn records_of_the_future_are_not_guessed() {
        assert_eq!(TransactionLogKey::from_bytes(Bytes::from_static(&[0, 1, 0, 0])), Ok(None));
        assert_eq!(TransactionLogValue::from_bytes(Bytes::from_static(&[0, 2, 0, 0])), Ok(None));
    }
}
