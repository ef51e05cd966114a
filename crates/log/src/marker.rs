//! The markers that end transactions: control batches with one record.
//!
//! ```text
//! key     version i16 = 0 | type i16   0 is an abort, 1 a commit
//! value   version i16 = 0 | coordinator_epoch i32
//! ```

use bytes::BytesMut;
use ottla_wire::batch::{self, BatchHeader, HEADER_BYTES};
use ottla_wire::reader::{RecordError, RecordIter};
use ottla_wire::{BatchBuilder, Seal};

/// The version of the key and of the value of a marker.
const MARKER_VERSION: i16 = 0;
const ABORT: i16 = 0;
const COMMIT: i16 = 1;
/// The decision that ends a transaction.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum TransactionOutcome {
    /// Its records are valid.
    Commit,
    /// Its records are skipped by consumers with `isolation.level=read_committed`.
    Abort,
}

/// The marker that ends a producer's transaction in a partition.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct EndMarker {
    /// The producer.
    pub producer_id: i64,
    /// The epoch of the marker. With transaction version 2 it is above that of the data.
    pub producer_epoch: i16,
    /// The leader epoch of the coordinator's partition. A marker of an older coordinator is refused.
    pub coordinator_epoch: i32,
    /// The outcome of the transaction.
    pub outcome: TransactionOutcome,
    /// The transaction version of the coordinator: from 2 on, each end has a new epoch.
    pub transaction_version: i16,
}

/// The content of a control batch.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Control {
    /// The end of a transaction.
    Marker { outcome: TransactionOutcome, coordinator_epoch: i32 },
    /// Another kind.
    Other,
    /// A marker that compaction has emptied.
    Emptied,
}

impl Control {
    /// Reads the first record of a control batch, which is never compressed.
    pub(crate) fn of_batch(header: &BatchHeader, batch: &[u8]) -> Result<Self, RecordError> {
        let block = batch.get(HEADER_BYTES..).unwrap_or_default();
        let Some(record) = RecordIter::new(header, block).next().transpose()? else {
            return Ok(Self::Emptied);
        };
        let outcome = match record.key.and_then(|key| key.get(2..4)) {
            Some(&[high, low]) => match i16::from_be_bytes([high, low]) {
                ABORT => TransactionOutcome::Abort,
                COMMIT => TransactionOutcome::Commit,
                _ => return Ok(Self::Other),
            },
            _ => return Ok(Self::Other),
        };
        let epoch = record.value.and_then(|value| value.get(2..6)?.try_into().ok());
        Ok(Self::Marker { outcome, coordinator_epoch: epoch.map_or(-1, i32::from_be_bytes) })
    }
}

/// A transaction whose marker is in the log.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Completed {
    pub(crate) first_offset: i64,
    /// The offset of its marker.
    pub(crate) last_offset: i64,
}

/// The batch of a marker.
pub(crate) fn marker_batch(marker: &EndMarker, now_ms: i64) -> BytesMut {
    let kind = match marker.outcome {
        TransactionOutcome::Abort => ABORT,
        TransactionOutcome::Commit => COMMIT,
    };
    let key = [MARKER_VERSION.to_be_bytes(), kind.to_be_bytes()].concat();
    let mut value = MARKER_VERSION.to_be_bytes().to_vec();
    value.extend(marker.coordinator_epoch.to_be_bytes());
    let mut builder = BatchBuilder::new();
    builder.push(now_ms, Some(&key), Some(&value), &[]);
    let seal = Seal {
        producer_id: marker.producer_id,
        producer_epoch: marker.producer_epoch,
        transactional: true,
        ..Seal::default()
    };
    let sealed = builder.seal(&seal).expect("a batch that is not compressed has no level to be wrong");
    let mut bytes = BytesMut::from(&sealed.to_bytes()[..]);
    batch::set_control(&mut bytes);
    bytes
}
