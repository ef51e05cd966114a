//! Errors by operation; every message names the log's directory, which is its partition.

use std::io;
use std::path::{Path, PathBuf};

use ottla_wire::batch::BatchError;
use ottla_wire::reader::RecordError;

/// The reasons why a log cannot be opened, maintained or closed.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The storage failed.
    #[error("log {dir}: cannot {doing}: {source}")]
    Io {
        /// The directory of the log that failed.
        dir: String,
        /// The operation.
        doing: String,
        /// The error of the storage.
        source: io::Error,
    },
    /// An earlier failure left the files in an unknown state: no call reads or writes until the log is opened again.
    #[error("log {dir} is offline: {reason}")]
    Offline {
        /// The directory of the offline log.
        dir: String,
        /// The cause.
        reason: String,
    },
    /// An offset beyond the end.
    #[error("log {dir}: offset {offset} is outside of {start}..={end}")]
    OutOfRange {
        /// The directory of the log without that offset.
        dir: String,
        /// The offset that is out of range.
        offset: i64,
        /// The log start offset.
        start: i64,
        /// The log end offset.
        end: i64,
    },
    /// A file was written by a later version of this program.
    #[error("log {dir}: {file} has format version {version}; this program knows versions up to {known}")]
    NewerFormat {
        /// The directory of the log that has the file.
        dir: String,
        /// The file.
        file: String,
        /// Its version.
        version: i16,
        /// The newest version known here.
        known: i16,
    },
    /// Synced records, or the file that records the synced offset, are missing or damaged. Nothing was changed.
    #[error(
        "log {dir}: {}; nothing was changed; {}",
        list(losses), next_step(losses, dir, data_dir.as_deref())
    )]
    Lost {
        /// The directory of the damaged log.
        dir: String,
        /// The losses, at least one.
        losses: Vec<Loss>,
        /// The data directory, if the storage is a file system.
        data_dir: Option<PathBuf>,
    },
}

/// Durable data that is missing or damaged.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Loss {
    /// The directory of a log that is known to exist is missing.
    #[error("its directory is missing")]
    Directory,
    /// The log ends before the offset up to which it was synced.
    #[error(
        "{file} has no sound batch from position {position} on ({bytes} bytes), so the log ends at offset {end}; it was \
         synced up to offset {synced}: {} records are gone",
        synced - end
    )]
    End {
        /// The last segment's file.
        file: String,
        /// The position at which its sound batches end.
        position: u64,
        /// The number of bytes from that position to the end of the file.
        bytes: u64,
        /// The log end offset that is left.
        end: i64,
        /// All records below this offset were synced.
        synced: i64,
    },
    /// The `synced` file is missing, and the log ends below an offset that may have been used.
    #[error(
        "the file `synced` is missing or damaged, and the log ends at offset {end}; records may have had offsets up to {}",
        floor - 1
    )]
    BelowFloor {
        /// The log end offset that was found.
        end: i64,
        /// A bound: no record had this offset or a higher one.
        floor: i64,
    },
    /// A directory has the name of a file of the log.
    #[error("{file} is a directory, and the log needs a file of that name")]
    NotAFile {
        /// Its name.
        file: String,
    },
    /// The offsets between two segments are missing.
    #[error("{file} or what it held is missing from position {position} on: offsets {offset} to {} are gone", next - 1)]
    Gap {
        /// The segment's file that should hold them.
        file: String,
        /// The position in the file at which they should start.
        position: u64,
        /// The first offset that is gone.
        offset: i64,
        /// The first offset after them.
        next: i64,
    },
    /// A file is smaller than it was when the log was closed.
    #[error("{file} has {bytes} bytes; it had {was} when the log was closed")]
    Shrunk {
        /// The file.
        file: String,
        /// Its size.
        bytes: u64,
        /// The size it had.
        was: u64,
    },
    /// A batch is damaged in a log that needs all its batches.
    #[error("{file} is damaged at position {position} ({bytes} bytes), offsets {offset} to {}", next - 1)]
    Damaged {
        /// The segment's file.
        file: String,
        /// The position at which the damage starts.
        position: u64,
        /// The number of damaged bytes.
        bytes: u64,
        /// The first offset in it.
        offset: i64,
        /// The first offset after it.
        next: i64,
    },
    /// A salvage of a journal began and did not end.
    #[error("an earlier repair was interrupted")]
    Unfinished,
    /// The `synced` file is missing, so a damaged end cannot be distinguished from a write that a crash has torn.
    #[error(
        "the file `synced` is missing or damaged, and {file} has no sound batch from position {position} on ({bytes} \
         bytes, offset {offset} and up): a torn write or lost records"
    )]
    Unknown {
        /// The segment's file.
        file: String,
        /// The position at which its sound batches end.
        position: u64,
        /// The number of bytes from that position to the end of the file.
        bytes: u64,
        /// The first offset that cannot be read.
        offset: i64,
    },
}

fn list(losses: &[Loss]) -> String {
    losses.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// The step that makes the partition available again.
fn next_step(losses: &[Loss], dir: &str, data_dir: Option<&Path>) -> String {
    let not_a_file = losses.iter().find_map(|loss| match loss {
        Loss::NotAFile { file } => Some(file),
        _ => None,
    });
    match not_a_file {
        Some(file) => {
            let path = data_dir.map_or_else(PathBuf::new, Path::to_path_buf).join(dir).join(file);
            format!("move {} to another place and start the broker again", path.display())
        }
        None => repair_step(data_dir),
    }
}

/// The command that examines a damaged data directory.
pub fn repair_step(data_dir: Option<&Path>) -> String {
    match data_dir {
        Some(data_dir) => format!("stop the broker and run `ottla log repair {}`", data_dir.display()),
        None => "stop the broker and run `ottla log repair` on its data directory".to_owned(),
    }
}

impl LogError {
    /// Returns `true` if synced records are missing. The log stays closed until `ottla log repair` accepts the loss.
    pub fn is_loss(&self) -> bool {
        matches!(self, Self::Lost { .. })
    }

    /// Returns `true` if the disk is full. The same call can succeed when there is space.
    pub fn is_no_space(&self) -> bool {
        matches!(self, Self::Io { source, .. } if is_no_space(source))
    }
}

/// The reasons why batches were not appended. The log contains none of them.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// The bytes are not whole v2 batches, or their checksum is wrong.
    #[error("log {dir}: {source}")]
    Corrupt {
        /// The directory of the log that rejected the bytes.
        dir: String,
        /// The problem.
        source: BatchError,
    },
    /// The checksum is right, and the header contradicts itself or names an unknown codec; or the batch has an old format.
    #[error("log {dir}: {source}")]
    InvalidBatch {
        /// The directory of the log that rejected the batch.
        dir: String,
        /// The problem.
        source: BatchError,
    },
    /// The records contradict their batch's header.
    #[error("log {dir}: {source}")]
    InvalidRecords {
        /// The directory of the log that rejected the records.
        dir: String,
        /// The problem.
        source: RecordError,
    },
    /// A client sent a batch that only a coordinator may append, or no batch.
    #[error("log {dir}: {what}")]
    NotAllowed {
        /// The directory of the log that rejected the batches.
        dir: String,
        /// The batches that were sent.
        what: &'static str,
    },
    /// Records have no key, and the log is compacted.
    #[error("log {dir}: record {} of a batch has no key, and `cleanup.policy` has `compact`", records.first().unwrap_or(&0))]
    MissingKey {
        /// The directory of the compacted log.
        dir: String,
        /// The numbers of the records in their batch, from 0; at most the first thousand.
        records: Vec<u32>,
    },
    /// A batch is larger than `max.message.bytes`, or all batches together are larger than any segment can be.
    #[error("log {dir}: {what} of {bytes} bytes, at most {max}")]
    TooLarge {
        /// The directory of the log that has the limit.
        dir: String,
        /// The name of the limit.
        what: &'static str,
        /// The size.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// The batches of a client are together larger than `segment.bytes`.
    #[error("log {dir}: batches of {bytes} bytes, at most {max} by the topic setting `segment.bytes`")]
    ListTooLarge {
        /// The directory of the log that has the limit.
        dir: String,
        /// The size of all batches.
        bytes: usize,
        /// The limit.
        max: u32,
    },
    /// A timestamp is too far from the broker's clock.
    #[error("log {dir}: timestamp {timestamp} is outside of {earliest}..={latest}")]
    InvalidTimestamp {
        /// The directory of the log that rejected the timestamp.
        dir: String,
        /// The timestamp found.
        timestamp: i64,
        /// The earliest allowed.
        earliest: i64,
        /// The latest allowed.
        latest: i64,
        /// The numbers of the records in their batch, from 0, and their timestamps; at most the first thousand, and none if only the
        /// header was read.
        records: Vec<(u32, i64)>,
        /// The numbers of the records that are refused for their missing keys, as in [`AppendError::MissingKey`].
        keyless: Vec<u32>,
    },
    /// A batch does not follow its producer's last one.
    #[error(
        "log {dir}: sequence {found} after {} from producer {producer_id}/{producer_epoch}",
        last.map_or_else(|| "none".to_owned(), |last| last.to_string())
    )]
    OutOfOrderSequence {
        /// The directory of the log that has the last sequence.
        dir: String,
        /// The producer.
        producer_id: i64,
        /// The epoch of the batch.
        producer_epoch: i16,
        /// The last sequence in the log under that epoch.
        last: Option<i32>,
        /// The sequence of the batch's first record.
        found: i32,
    },
    /// The producer was fenced: a later epoch has written.
    #[error("log {dir}: epoch {found} of producer {producer_id} after epoch {current}")]
    InvalidProducerEpoch {
        /// The directory of the log that has the later epoch.
        dir: String,
        /// The producer.
        producer_id: i64,
        /// The epoch in the log.
        current: i16,
        /// The epoch of the batch.
        found: i16,
    },
    /// The marker's coordinator was replaced: a later one has written a marker of this producer.
    #[error(
        "log {dir}: a marker of producer {producer_id} from coordinator epoch {found} after one from epoch {current}"
    )]
    CoordinatorFenced {
        /// The directory of the log that has the later marker.
        dir: String,
        /// The producer.
        producer_id: i64,
        /// The coordinator epoch of the producer's last marker.
        current: i32,
        /// The coordinator epoch of the refused marker.
        found: i32,
    },
    /// A batch does not belong to the producer's transaction.
    #[error("log {dir}: producer {producer_id}/{producer_epoch} sent {what}")]
    InvalidTransaction {
        /// The directory of the log that refused the batch.
        dir: String,
        /// The producer.
        producer_id: i64,
        /// The epoch of the batch.
        producer_epoch: i16,
        /// The batch that was sent.
        what: &'static str,
    },
    /// The storage failed. The bytes already written were removed, and later appends may succeed.
    #[error("log {dir}: cannot append at offset {offset}: {source}")]
    Storage {
        /// The directory of the log that could not be written.
        dir: String,
        /// The offset the batches would have had.
        offset: i64,
        /// The error of the storage.
        source: io::Error,
    },
    /// See [`LogError::Offline`].
    #[error("log {dir} is offline: {reason}")]
    Offline {
        /// The directory of the offline log.
        dir: String,
        /// The cause.
        reason: String,
    },
}

impl AppendError {
    /// Returns `true` if an append of the same batches can succeed later: the disk was full or failed.
    pub fn is_retriable(&self) -> bool {
        matches!(self, Self::Storage { .. } | Self::Offline { .. })
    }

    /// Returns `true` if the disk is full.
    pub fn is_no_space(&self) -> bool {
        matches!(self, Self::Storage { source, .. } if is_no_space(source))
    }
}

/// The reasons why nothing can be read at an offset.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The offset was deleted, or does not exist yet.
    #[error("log {dir}: offset {offset} is outside of {start}..={end}")]
    OutOfRange {
        /// The directory of the log without that offset.
        dir: String,
        /// The offset that is out of range.
        offset: i64,
        /// The log start offset.
        start: i64,
        /// The log end offset.
        end: i64,
    },
    /// The bytes are damaged; the records after them can still be read.
    #[error(
        "log {dir}: offset {offset} is damaged at position {position} of {file}; the next good one is {next}"
    )]
    Corrupt {
        /// The directory of the log that has the damage.
        dir: String,
        /// The segment's file.
        file: String,
        /// The requested offset.
        offset: i64,
        /// The position in the file at which the damage starts.
        position: u64,
        /// The first offset after the damage.
        next: i64,
    },
    /// The storage failed.
    #[error("log {dir}: cannot read offset {offset}: {source}")]
    Io {
        /// The directory of the log that could not be read.
        dir: String,
        /// The requested offset.
        offset: i64,
        /// The error of the storage.
        source: io::Error,
    },
    /// See [`LogError::Offline`].
    #[error("log {dir} is offline: {reason}")]
    Offline {
        /// The directory of the offline log.
        dir: String,
        /// The cause.
        reason: String,
    },
}

pub(crate) fn is_no_space(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
