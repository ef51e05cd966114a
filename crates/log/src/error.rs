//! What can go wrong, by operation; every message names the log's directory, which is its partition.

use std::io;

use ottla_wire::batch::BatchError;
use ottla_wire::reader::RecordError;

/// Why a log cannot be opened, kept or closed.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The storage failed.
    #[error("log {dir}: cannot {doing}: {source}")]
    Io {
        /// The log's directory.
        dir: String,
        /// What was being done.
        doing: String,
        /// What the storage said.
        source: io::Error,
    },
    /// An earlier failure left the files in an unknown state: nothing is read or written until the log is opened anew.
    #[error("log {dir} is offline: {reason}")]
    Offline {
        /// The log's directory.
        dir: String,
        /// What happened.
        reason: String,
    },
    /// An offset beyond the end.
    #[error("log {dir}: offset {offset} is outside of {start}..={end}")]
    OutOfRange {
        /// The log's directory.
        dir: String,
        /// The offset asked for.
        offset: i64,
        /// The first offset there is.
        start: i64,
        /// The offset of the next record.
        end: i64,
    },
    /// A file was written by a later version of this program.
    #[error("log {dir}: {file} has format version {version}; this program knows versions up to {known}")]
    NewerFormat {
        /// The log's directory.
        dir: String,
        /// The file.
        file: String,
        /// Its version.
        version: i16,
        /// The newest version known here.
        known: i16,
    },
    /// Records that were synced, or the file that says what was, are gone or damaged. Nothing was changed.
    #[error(
        "log {dir}: {}; nothing was changed; stop the broker and run `ottla log repair DIR` on its data directory",
        list(losses)
    )]
    Lost {
        /// The log's directory.
        dir: String,
        /// What is gone, at least one.
        losses: Vec<Loss>,
    },
}

/// Data that a log had promised to keep and that is not there.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Loss {
    /// The directory of a log that is known to exist.
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
        /// Where its sound batches end.
        position: u64,
        /// Bytes from there on.
        bytes: u64,
        /// The offset of the next record.
        end: i64,
        /// All records below were synced.
        synced: i64,
    },
    /// Offsets between two segments.
    #[error("{file} or what it held is missing from position {position} on: offsets {offset} to {} are gone", next - 1)]
    Gap {
        /// The segment's file that should hold them.
        file: String,
        /// Where in the file they should start.
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
    /// A batch is damaged, in a log that cannot do without any of them.
    #[error("{file} is damaged at position {position} ({bytes} bytes), offsets {offset} to {}", next - 1)]
    Damaged {
        /// The segment's file.
        file: String,
        /// Where the damage starts.
        position: u64,
        /// How many bytes it spans.
        bytes: u64,
        /// The first offset in it.
        offset: i64,
        /// The first offset after it.
        next: i64,
    },
    /// The `synced` file is gone, so a damaged end cannot be told from a write that a crash has torn.
    #[error(
        "the file `synced` is missing or damaged, and {file} has no sound batch from position {position} on ({bytes} \
         bytes, offset {offset} and up): a torn write or lost records"
    )]
    Unknown {
        /// The segment's file.
        file: String,
        /// Where its sound batches end.
        position: u64,
        /// Bytes from there on.
        bytes: u64,
        /// The offset of the next record.
        offset: i64,
    },
}

fn list(losses: &[Loss]) -> String {
    losses.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

impl LogError {
    /// Whether records are gone that had been synced: the log stays closed until `ottla log repair` accepts the loss.
    pub fn is_loss(&self) -> bool {
        matches!(self, Self::Lost { .. })
    }

    /// Whether the disk is full: the same call can succeed when there is space.
    pub fn is_no_space(&self) -> bool {
        matches!(self, Self::Io { source, .. } if is_no_space(source))
    }
}

/// Why batches were not appended. Nothing of them is in the log.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// The bytes are not whole v2 batches, or their checksum is wrong.
    #[error("log {dir}: {source}")]
    Corrupt {
        /// The log's directory.
        dir: String,
        /// What is wrong with them.
        source: BatchError,
    },
    /// The records contradict their batch's header.
    #[error("log {dir}: {source}")]
    InvalidRecords {
        /// The log's directory.
        dir: String,
        /// What is wrong with them.
        source: RecordError,
    },
    /// A client sent what only a coordinator may append, or no batch at all.
    #[error("log {dir}: {what}")]
    NotAllowed {
        /// The log's directory.
        dir: String,
        /// What was sent.
        what: &'static str,
    },
    /// A batch is larger than `max.message.bytes`, or all of them together than a segment.
    #[error("log {dir}: {what} of {bytes} bytes, at most {max}")]
    TooLarge {
        /// The log's directory.
        dir: String,
        /// Which limit.
        what: &'static str,
        /// The size.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// A timestamp is too far from the broker's clock.
    #[error("log {dir}: timestamp {timestamp} is outside of {earliest}..={latest}")]
    InvalidTimestamp {
        /// The log's directory.
        dir: String,
        /// The timestamp found.
        timestamp: i64,
        /// The earliest allowed.
        earliest: i64,
        /// The latest allowed.
        latest: i64,
    },
    /// A batch does not follow its producer's last one.
    #[error(
        "log {dir}: sequence {found} after {} from producer {producer_id}/{producer_epoch}",
        last.map_or_else(|| "none".to_owned(), |last| last.to_string())
    )]
    OutOfOrderSequence {
        /// The log's directory.
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
        /// The log's directory.
        dir: String,
        /// The producer.
        producer_id: i64,
        /// The epoch in the log.
        current: i16,
        /// The epoch of the batch.
        found: i16,
    },
    /// The storage failed; what had been written was taken back, and later appends may succeed.
    #[error("log {dir}: cannot append at offset {offset}: {source}")]
    Storage {
        /// The log's directory.
        dir: String,
        /// The offset the batches would have had.
        offset: i64,
        /// What the storage said.
        source: io::Error,
    },
    /// See [`LogError::Offline`].
    #[error("log {dir} is offline: {reason}")]
    Offline {
        /// The log's directory.
        dir: String,
        /// What happened.
        reason: String,
    },
}

impl AppendError {
    /// Whether the same batches can succeed later: the disk was full or failed, the batches are not at fault.
    pub fn is_retriable(&self) -> bool {
        matches!(self, Self::Storage { .. } | Self::Offline { .. })
    }

    /// Whether the disk is full.
    pub fn is_no_space(&self) -> bool {
        matches!(self, Self::Storage { source, .. } if is_no_space(source))
    }
}

/// Why nothing can be read at an offset.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The offset was deleted, or does not exist yet.
    #[error("log {dir}: offset {offset} is outside of {start}..={end}")]
    OutOfRange {
        /// The log's directory.
        dir: String,
        /// The offset asked for.
        offset: i64,
        /// The first offset there is.
        start: i64,
        /// The offset of the next record.
        end: i64,
    },
    /// The bytes are damaged; what follows them can still be read.
    #[error(
        "log {dir}: offset {offset} is damaged at position {position} of {file}; the next good one is {next}"
    )]
    Corrupt {
        /// The log's directory.
        dir: String,
        /// The segment's file.
        file: String,
        /// The offset asked for.
        offset: i64,
        /// Where in the file the damage starts.
        position: u64,
        /// The first offset after the damage.
        next: i64,
    },
    /// The storage failed.
    #[error("log {dir}: cannot read offset {offset}: {source}")]
    Io {
        /// The log's directory.
        dir: String,
        /// The offset asked for.
        offset: i64,
        /// What the storage said.
        source: io::Error,
    },
    /// See [`LogError::Offline`].
    #[error("log {dir} is offline: {reason}")]
    Offline {
        /// The log's directory.
        dir: String,
        /// What happened.
        reason: String,
    },
}

fn is_no_space(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
