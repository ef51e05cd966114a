//! The records of `__transaction_state`, in Kafka's bytes: `kafka-dump-log --transaction-log-decoder` prints them.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use ottla_protocol::messages::transaction_log::{
    TransactionLogKey, TransactionLogPartitions, TransactionLogValue,
};
use ottla_protocol::{DecodeError, EncodeError};

use super::metadata::{NO_PRODUCER_EPOCH, TopicPartition, TransactionMetadata, TransactionVersion};
use super::state::TransactionState;

/// The version of values: with `transaction.version` 1 and above, tagged fields.
const VALUE_VERSION: i16 = 1;

/// The reasons why a record of `__transaction_state` cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RecordError {
    /// The bytes are not a record.
    #[error("its bytes: {0}")]
    Bytes(#[from] DecodeError),
    /// The state is none of Kafka's stored ones.
    #[error("transactional.id `{id}`: state {code} is none of 0 to 5")]
    State {
        /// The transactional id.
        id: String,
        /// The number.
        code: i8,
    },
    /// The version of the client is unknown.
    #[error("transactional.id `{id}`: client transaction version {level} is none of 0 to 2")]
    ClientVersion {
        /// The transactional id.
        id: String,
        /// The number.
        level: i16,
    },
}

/// A record that was read.
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum StateRecord {
    /// The id has this state.
    State(Arc<str>, TransactionMetadata),
    /// The id was removed.
    Removed(Arc<str>),
    /// A record of a kind or a version that does not exist in this release. Kafka skips them, too.
    Unknown,
}

/// Returns the key of an id's records.
pub(crate) fn key(id: &str) -> Result<Bytes, EncodeError> {
    TransactionLogKey { transactional_id: id.to_owned() }.to_bytes()
}

/// Returns the value that stores this state.
pub(crate) fn value(metadata: &TransactionMetadata) -> Result<Bytes, EncodeError> {
    // Kafka: null, not empty, where there cannot be a transaction.
    let partitions = (metadata.state != TransactionState::Empty).then(|| by_topic(&metadata.partitions));
    let value = TransactionLogValue {
        producer_id: metadata.producer_id,
        previous_producer_id: metadata.previous_producer_id,
        next_producer_id: metadata.next_producer_id,
        producer_epoch: metadata.producer_epoch,
        transaction_timeout_ms: metadata.timeout_ms,
        transaction_status: metadata.state.code(),
        transaction_partitions: partitions,
        transaction_last_update_timestamp_ms: metadata.updated_ms,
        transaction_start_timestamp_ms: metadata.started_ms,
        client_transaction_version: metadata.client_version.level(),
    };
    value.to_bytes(VALUE_VERSION)
}

/// Partitions by topic, both in ascending order.
fn by_topic(partitions: &BTreeSet<TopicPartition>) -> Vec<TransactionLogPartitions> {
    let mut topics: Vec<TransactionLogPartitions> = Vec::new();
    for partition in partitions {
        match topics.last_mut() {
            Some(last) if *last.topic == *partition.topic => last.partition_ids.push(partition.index),
            _ => topics.push(TransactionLogPartitions {
                topic: partition.topic.as_ref().to_owned(),
                partition_ids: vec![partition.index],
            }),
        }
    }
    topics
}

/// Reads a record.
pub(crate) fn read(key: Bytes, value: Option<Bytes>) -> Result<StateRecord, RecordError> {
    let Some(TransactionLogKey { transactional_id: id }) = TransactionLogKey::from_bytes(key)? else {
        return Ok(StateRecord::Unknown);
    };
    let Some(value) = value else { return Ok(StateRecord::Removed(id.into())) };
    let Some(value) = TransactionLogValue::from_bytes(value)? else { return Ok(StateRecord::Unknown) };
    let code = value.transaction_status;
    let Some(state) = TransactionState::of_code(code) else { return Err(RecordError::State { id, code }) };
    let level = value.client_transaction_version;
    let Some(client_version) = TransactionVersion::of_level(level) else {
        return Err(RecordError::ClientVersion { id, level });
    };
    let mut partitions = BTreeSet::new();
    for TransactionLogPartitions { topic, partition_ids } in value.transaction_partitions.unwrap_or_default()
    {
        let topic: Arc<str> = topic.into();
        partitions
            .extend(partition_ids.into_iter().map(|index| TopicPartition { topic: topic.clone(), index }));
    }
    let metadata = TransactionMetadata {
        producer_id: value.producer_id,
        previous_producer_id: value.previous_producer_id,
        next_producer_id: value.next_producer_id,
        producer_epoch: value.producer_epoch,
        last_producer_epoch: NO_PRODUCER_EPOCH,
        timeout_ms: value.transaction_timeout_ms,
        state,
        partitions,
        started_ms: value.transaction_start_timestamp_ms,
        updated_ms: value.transaction_last_update_timestamp_ms,
        client_version,
    };
    Ok(StateRecord::State(id.into(), metadata))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ongoing() -> TransactionMetadata {
        let partitions = [("orders", 2), ("orders", 0), ("bills", 1)];
        let partitions = partitions.map(|(topic, index)| TopicPartition { topic: topic.into(), index });
        let identity = TransactionMetadata::new(7, 60_000, 10).initialized(60_000, None, 10).expect("new");
        TransactionMetadata { previous_producer_id: 6, ..identity }.with_partitions(
            partitions,
            TransactionVersion::V2,
            20,
        )
    }

    #[test]
    fn a_state_is_read_as_it_was_written() {
        let prepared = ongoing().prepared(true, TransactionVersion::V2, 9, 30);
        let read = read(key("till-1").expect("short"), Some(value(&prepared).expect("short")));
        // Kafka does not store the last epoch, either.
        let expected = TransactionMetadata { last_producer_epoch: NO_PRODUCER_EPOCH, ..prepared };
        assert_eq!(read.expect("ours"), StateRecord::State("till-1".into(), expected));
    }

    #[test]
    fn an_empty_state_has_null_partitions_and_the_others_an_array() {
        let raw = |metadata: &TransactionMetadata| {
            TransactionLogValue::from_bytes(value(metadata).expect("short")).expect("ours").expect("known")
        };
        let empty = TransactionMetadata::new(7, 60_000, 10);
        assert_eq!(raw(&empty).transaction_partitions, None);
        let topics = raw(&ongoing()).transaction_partitions.expect("an array");
        let topics: Vec<(&str, &[i32])> =
            topics.iter().map(|topic| (topic.topic.as_str(), &topic.partition_ids[..])).collect();
        assert_eq!(topics, [("bills", &[1][..]), ("orders", &[0, 2][..])]);
        let complete = ongoing().prepared(true, TransactionVersion::V2, -1, 30).completed(40);
        assert_eq!(raw(&complete).transaction_partitions, Some(Vec::new()));
    }

    #[test]
    fn a_tombstone_removes_the_id() {
        let read = read(key("till-1").expect("short"), None).expect("ours");
        assert_eq!(read, StateRecord::Removed("till-1".into()));
    }

    #[test]
    fn a_state_that_kafka_never_stores_is_an_error() {
        let mut bytes = value(&ongoing()).expect("short").to_vec();
        // version 2, producer id 8, epoch 2, timeout 4: the next is the state.
        bytes[2 + 8 + 2 + 4] = 7;
        let error = read(key("till-1").expect("short"), Some(bytes.into())).expect_err("PrepareEpochFence");
        assert_eq!(error.to_string(), "transactional.id `till-1`: state 7 is none of 0 to 5");
    }
}
