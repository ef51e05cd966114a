//! Dead letters of share groups (KIP-1191, Apache Kafka 4.4): records in the group's dead-letter topic, in place of records that no
//! member has processed.
//!
//! ```text
//! leader of a share partition --offsets--> write_dead_letters --batch--> partition of the dead-letter topic --sync--> written
//!                                               ^
//!                     log of the source --------+ (with errors.deadletterqueue.copy.record.enable)
//! ```
//!
//! - `topic`: the topic of a group: its name, the rules for it, its creation.
//! - `batch`: letters as a batch, with copies of the source's records.
//! - `write`: one batch, from the checks of the topic until it is durable.
//!
//! The states of the source's records, and retries, are those of the leader: see `share_partition::dead_letters`.

mod batch;
mod topic;
mod write;

use std::sync::Arc;

use crate::partition::Partition;

/// The reason of a dead letter.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum DeadLetterCause {
    /// A member has rejected the record.
    ClientReject,
    /// It was delivered as often as allowed.
    DeliveryCountExceeded,
}

impl DeadLetterCause {
    /// Kafka's text in the header `__dlq.errors.message`.
    const fn message(self) -> &'static str {
        match self {
            Self::ClientReject => "Offset rejected by client.",
            Self::DeliveryCountExceeded => "Offset delivery count exceeded the threshold.",
        }
    }
}

/// Adjacent records that need dead letters.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct DeadLetters {
    pub(crate) first: i64,
    pub(crate) last: i64,
    pub(crate) delivery_count: i16,
    pub(crate) cause: DeadLetterCause,
}

impl DeadLetters {
    /// Returns `true` if nothing but the offsets distinguishes the letters of `next`, which follow directly.
    pub(crate) fn is_continued_by(&self, next: &Self) -> bool {
        self.last + 1 == next.first && (self.delivery_count, self.cause) == (next.delivery_count, next.cause)
    }
}

/// The records that are dead letters: of which group, and of which partition.
#[derive(Clone, Debug)]
pub(crate) struct LetterSource {
    pub(crate) group: Arc<str>,
    pub(crate) topic: Arc<str>,
    /// The number of the partition, which a deleted topic had.
    pub(crate) index: i32,
    /// `None` if the topic was deleted.
    pub(crate) partition: Option<Arc<Partition>>,
}

/// The limit of the letters of one batch.
#[derive(Clone, Copy, Debug)]
pub(crate) enum BatchLimit {
    /// As many as fit.
    Bytes,
    /// One: a batch of several was refused, and the others are sound.
    OneRecord,
}

/// Dead letters that are durable.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WrittenLetters {
    /// The last offset of the source that they cover.
    pub(crate) last: i64,
    /// Their number: control records of the source have none.
    pub(crate) letters: u64,
}

/// The reason why dead letters were not written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DeadLetterError {
    /// The group's topic cannot be used.
    #[error("{0}")]
    Unusable(String),
    /// The dead-letter topic refuses the batch.
    #[error("{reason}")]
    Refused {
        /// The error of the log.
        reason: String,
        /// The first and the last record of the source in the batch.
        offsets: (i64, i64),
    },
    /// The dead-letter topic cannot be written now.
    #[error("{0}")]
    Unavailable(String),
}
