//! Every record of an internal topic's partition, in order: the state of a coordinator after a start.

use bytes::Bytes;
use ottla_log::{Log, ReadError};
use ottla_wire::batch::BatchError;
use ottla_wire::reader::RecordError;
use ottla_wire::{Batches, Records};

use super::Producer;

/// The number of bytes that are read at a time; a larger batch is read whole.
const READ_BYTES: usize = 1 << 20;
/// The decompressed size of a batch. The coordinators write uncompressed ones.
const BATCH_BYTES_MAX: usize = 64 << 20;
/// The types of markers.
const ABORT_MARKER: i16 = 0;
const COMMIT_MARKER: i16 = 1;

/// An entry of the log.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Replayed {
    /// A record.
    Record {
        offset: i64,
        key: Bytes,
        value: Option<Bytes>,
        /// The transaction that it belongs to. Its end, which says whether the record counts, follows later.
        transaction: Option<Producer>,
    },
    /// The end of a producer's transaction.
    Marker { producer: Producer, committed: bool },
}

/// The reason why a partition's records cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReplayError {
    /// The log.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The file.
    #[error("log {dir}: offset {offset}: {source}")]
    Io { dir: String, offset: i64, source: std::io::Error },
    /// A batch.
    #[error("log {dir}: {source}")]
    Batch { dir: String, source: BatchError },
    /// The records of a batch.
    #[error("log {dir}: {source}")]
    Record { dir: String, source: RecordError },
    /// A record that the coordinator does not understand.
    #[error("log {dir}: the record at offset {offset}: {reason}")]
    Content { dir: String, offset: i64, reason: String },
    /// The log has no readable batch at this offset.
    #[error("log {dir}: no batch at offset {offset}")]
    Stuck { dir: String, offset: i64 },
}

/// Calls `on_entry` for every record and marker. Blocks.
///
/// # Errors
/// The first damage, or the reason that `on_entry` returns: half a state would look like one from which entries were
/// removed.
pub(crate) fn replay(
    log: &mut Log,
    mut on_entry: impl FnMut(Replayed) -> Result<(), String>,
) -> Result<(), ReplayError> {
    let dir = log.dir().to_owned();
    let (mut from, end) = (log.start_offset(), log.end_offset());
    while from < end {
        let read = log.read(from, READ_BYTES, end, true)?;
        let bytes = read.chain.to_bytes();
        let bytes = bytes.map_err(|source| ReplayError::Io { dir: dir.clone(), offset: from, source })?;
        let mut next = read.next_offset;
        let mut at = 0;
        for (header, _) in Batches::new(&bytes).map_while(Result::ok) {
            let batch = bytes.slice(at..at + header.total_bytes());
            at += header.total_bytes();
            header.verify_crc(&batch).map_err(|source| ReplayError::Batch { dir: dir.clone(), source })?;
            next = Some(header.next_offset());
            let records = Records::of_batch(&batch, BATCH_BYTES_MAX)
                .map_err(|source| ReplayError::Record { dir: dir.clone(), source })?;
            let transaction = header
                .is_transactional()
                .then_some(Producer { id: header.producer_id, epoch: header.producer_epoch });
            for record in &records {
                let record = record.map_err(|source| ReplayError::Record { dir: dir.clone(), source })?;
                if record.offset < from {
                    continue;
                }
                let key = record.key.unwrap_or_default();
                let entry = match (header.is_control(), transaction) {
                    (false, transaction) => Replayed::Record {
                        offset: record.offset,
                        key: Bytes::copy_from_slice(key),
                        value: record.value.map(Bytes::copy_from_slice),
                        transaction,
                    },
                    (true, Some(producer)) => match marker_type(key) {
                        Some(COMMIT_MARKER) => Replayed::Marker { producer, committed: true },
                        Some(ABORT_MARKER) => Replayed::Marker { producer, committed: false },
                        _ => continue,
                    },
                    // Control batches without a producer are not about transactions.
                    (true, None) => continue,
                };
                on_entry(entry).map_err(|reason| ReplayError::Content {
                    dir: dir.clone(),
                    offset: record.offset,
                    reason,
                })?;
            }
        }
        from = next
            .filter(|next| *next > from)
            .ok_or_else(|| ReplayError::Stuck { dir: dir.clone(), offset: from })?;
    }
    Ok(())
}

/// The key of a marker is its version and its type.
fn marker_type(key: &[u8]) -> Option<i16> {
    Some(i16::from_be_bytes(*key.get(2..4)?.first_chunk::<2>()?))
}
