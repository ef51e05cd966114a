//! Errors of handlers and of the processor.

use std::borrow::Cow;
use std::fmt::Display;

use ottla_client::{TopicPartition, TransactionError};

/// A failure of a record in a handler.
///
/// Any error converts with `?`. The record is then retried according to [`Retry`](crate::Retry).
///
/// ```
/// use ottla_parallel::Failure;
///
/// fn amount(value: &[u8]) -> Result<u32, Failure> {
///     let text = std::str::from_utf8(value).map_err(Failure::undecodable)?;
///     Ok(text.parse()?)
/// }
///
/// assert_eq!(amount(b"3").ok(), Some(3));
/// assert!(amount(b"three").is_err());
/// ```
#[derive(Clone, Debug)]
pub struct Failure {
    pub(crate) reason: Cow<'static, str>,
    pub(crate) kind: FailureKind,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum FailureKind {
    /// A retry may help.
    Failed,
    /// A retry does not help.
    Refused,
    /// The record cannot be decoded.
    Undecodable,
    /// The handler panicked.
    Panicked,
    /// The handler cannot work at all, with any record.
    Fatal,
}

impl FailureKind {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Refused => "refused",
            Self::Undecodable => "undecodable",
            Self::Panicked => "panicked",
            Self::Fatal => "fatal",
        }
    }
}

impl Failure {
    /// A failure that a retry may resolve.
    pub fn new(reason: impl Display) -> Self {
        Self::of(reason, FailureKind::Failed)
    }

    /// A failure that no retry resolves: the record is given up at once.
    pub fn refused(reason: impl Display) -> Self {
        Self::of(reason, FailureKind::Refused)
    }

    /// The record cannot be decoded. It is given up at once.
    pub fn undecodable(reason: impl Display) -> Self {
        Self::of(reason, FailureKind::Undecodable)
    }

    /// The handler cannot work, with any record: the processor stops with [`Error::Handler`]. The record is not
    /// retried, not given up and not committed, whatever [`GiveUp`](crate::GiveUp) is set.
    pub fn fatal(reason: impl Display) -> Self {
        Self::of(reason, FailureKind::Fatal)
    }

    pub(crate) fn panicked(panic: &(dyn std::any::Any + Send)) -> Self {
        Self::of(panic_text(panic).unwrap_or("the handler panicked"), FailureKind::Panicked)
    }

    fn of(reason: impl Display, kind: FailureKind) -> Self {
        Self { reason: reason.to_string().into(), kind }
    }

    /// `true` if the record must not be retried.
    pub(crate) const fn is_final(&self) -> bool {
        matches!(self.kind, FailureKind::Refused | FailureKind::Undecodable | FailureKind::Fatal)
    }
}

/// The text of a panic, if it has one.
pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> Option<&str> {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::new(error)
    }
}

/// A failure of a batch: of all its records, or of some.
#[derive(Clone, Debug)]
pub struct BatchFailure {
    pub(crate) whole: Option<Failure>,
    pub(crate) records: Vec<(usize, Failure)>,
}

impl BatchFailure {
    /// The whole batch has failed.
    pub fn whole(failure: Failure) -> Self {
        Self { whole: Some(failure), records: Vec::new() }
    }

    /// The records with these indexes in the batch, from 0, have failed. All others are done, and the outputs of the batch are
    /// written: send none for these records, which are handled again. If no record is done, no output is written.
    pub fn records(records: impl IntoIterator<Item = (usize, Failure)>) -> Self {
        let mut records: Vec<_> = records.into_iter().collect();
        records.sort_by_key(|(index, _)| *index);
        records.dedup_by_key(|(index, _)| *index);
        Self { whole: None, records }
    }
}

impl From<Failure> for BatchFailure {
    fn from(failure: Failure) -> Self {
        Self::whole(failure)
    }
}

impl<E: std::error::Error> From<E> for BatchFailure {
    fn from(error: E) -> Self {
        Self::whole(Failure::new(error))
    }
}

/// The reason why a processor has stopped, other than a call of [`Processor::stop`](crate::Processor::stop).
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The settings are invalid.
    #[error("processor: {0}")]
    Config(String),
    /// The client failed.
    #[error(transparent)]
    Client(#[from] ottla_client::Error),
    /// A record was given up and the processor stopped ([`GiveUp::Stop`](crate::GiveUp::Stop)). The record is not
    /// committed: the partition's next owner handles it again.
    #[error("{at} offset {offset} was given up after {attempts} attempt(s): {reason}")]
    Record {
        /// The partition.
        at: TopicPartition,
        /// The record's offset.
        offset: i64,
        /// The number of attempts.
        attempts: u32,
        /// The last failure that the handler reported.
        reason: String,
    },
    /// The handler cannot work ([`Failure::fatal`]). Its record is not committed.
    #[error("{at} offset {offset} was not handled: {reason}")]
    Handler {
        /// The partition.
        at: TopicPartition,
        /// The record's offset.
        offset: i64,
        /// The reason that the handler reported.
        reason: String,
    },
    /// A dead letter or an output could not be written.
    #[error("a record for `{topic}` could not be written, so its input record is not done: {reason}")]
    Output {
        /// The topic.
        topic: String,
        /// The reason.
        reason: String,
    },
    /// Exactly-once mode: the producer cannot continue its transactions.
    #[error(transparent)]
    Transaction(#[from] TransactionError),
    /// A thread of the processor panicked.
    #[error("the processor's thread panicked")]
    Panicked,
    /// A worker panicked outside of its handler, which is a defect of this crate. Its records are not committed: the partition's next
    /// owner handles them again.
    #[error("a worker of the processor panicked outside of its handler: {0}")]
    WorkerPanicked(String),
}
