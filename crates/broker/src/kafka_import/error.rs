//! The reasons why a data directory of Apache Kafka cannot be imported.

use std::io;
use std::path::{Path, PathBuf};

use ottla_log::LogError;
use ottla_log::storage::fs::LockError;

use crate::cluster::OpenError;

/// The reasons why a data directory of Apache Kafka cannot be imported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// The directory is none of Apache Kafka's, or not one that can be imported.
    #[error("{}: {reason}", dir.display())]
    Source {
        /// The directory.
        dir: PathBuf,
        /// The problem, and the next step.
        reason: String,
    },
    /// A batch is damaged.
    #[error(
        "{} at byte {position}: {what}; nothing was imported: restore the file from another replica, or import the other \
         topics with --topic",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The position of the batch.
        position: u64,
        /// The problem.
        what: String,
    },
    /// A message of the formats before Kafka 0.11.
    #[error(
        "{} at byte {position}: a message in the format {magic}, from before Kafka 0.11; this program reads format 2. Apache \
         Kafka does not rewrite such segments: copy the topic with a mirroring tool, or import the others with --topic",
        path.display()
    )]
    OldFormat {
        /// The file.
        path: PathBuf,
        /// The position of the message.
        position: u64,
        /// The number of the format.
        magic: u8,
    },
    /// The metadata log has a record that cannot be read.
    #[error("the metadata log, offset {offset}: {what}")]
    Metadata {
        /// The offset of the record.
        offset: i64,
        /// The problem.
        what: String,
    },
    /// Topics cannot be imported; each has its reason.
    #[error("nothing was imported: {}", reasons.join("; "))]
    Topics {
        /// A sentence per topic or partition.
        reasons: Vec<String>,
    },
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A broker uses the directory of the import, or it is not safe to use.
    #[error(transparent)]
    Locked(#[from] LockError),
    /// The directory of the import cannot be opened.
    #[error("data directory {}: {source}", dir.display())]
    Open {
        /// The directory.
        dir: PathBuf,
        /// The problem.
        source: OpenError,
    },
    /// A log of the import cannot be written.
    #[error(transparent)]
    Log(#[from] LogError),
}

pub(super) fn io_failed(path: &Path, source: io::Error) -> ImportError {
    ImportError::Io { path: path.to_path_buf(), source }
}
