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
}

impl LogError {
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
