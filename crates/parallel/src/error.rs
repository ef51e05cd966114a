//! What goes wrong: in a handler, and in the processor.

use std::borrow::Cow;
use std::fmt::Display;

use ottla_client::{TopicPartition, TransactionError};

/// A handler's record has failed.
///
/// Any error becomes one with `?`, and the record is tried again as [`Retry`](crate::Retry) says.
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
    /// Trying again may help.
    Failed,
    /// Trying again does not help.
    Refused,
    /// The bytes make no sense.
    Undecodable,
    /// The handler panicked.
    Panicked,
    /// The handler cannot work at all: no record is to blame.
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
    /// Trying again may help.
    pub fn new(reason: impl Display) -> Self {
        Self::of(reason, FailureKind::Failed)
    }

    /// Trying again does not help: the record is given up at once.
    pub fn refused(reason: impl Display) -> Self {
        Self::of(reason, FailureKind::Refused)
    }

    /// The record cannot be decoded: it is given up at once.
    pub fn undecodable(reason: impl Display) -> Self {
        Self::of(reason, FailureKind::Undecodable)
    }

    /// The handler itself cannot work, whatever the record: the processor stops with [`Error::Handler`]. The record is neither
    /// tried again nor given up, whatever [`GiveUp`](crate::GiveUp) says, and is not committed.
    pub fn fatal(reason: impl Display) -> Self {
        Self::of(reason, FailureKind::Fatal)
    }

    pub(crate) fn panicked(panic: &(dyn std::any::Any + Send)) -> Self {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        Self::of(text.unwrap_or("the handler panicked"), FailureKind::Panicked)
    }

    fn of(reason: impl Display, kind: FailureKind) -> Self {
        Self { reason: reason.to_string().into(), kind }
    }

    /// Whether the record is not to be tried again.
    pub(crate) const fn is_final(&self) -> bool {
        matches!(self.kind, FailureKind::Refused | FailureKind::Undecodable | FailureKind::Fatal)
    }
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::new(error)
    }
}

/// A batch handler's batch has failed: all of it, or some of its records.
#[derive(Clone, Debug)]
pub struct BatchFailure {
    pub(crate) whole: Option<Failure>,
    pub(crate) records: Vec<(usize, Failure)>,
}

impl BatchFailure {
    /// Nothing of it counts as done.
    pub fn whole(failure: Failure) -> Self {
        Self { whole: Some(failure), records: Vec::new() }
    }

    /// These records failed, numbered as they stand in the batch, from 0; all others are done.
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

/// The processor has stopped, not because it was told to.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// What it was built with contradicts itself.
    #[error("processor: {0}")]
    Config(String),
    /// The client failed.
    #[error(transparent)]
    Client(#[from] ottla_client::Error),
    /// A record was given up, and the processor stops then ([`GiveUp::Stop`](crate::GiveUp::Stop)). It is not committed:
    /// whoever goes on meets it again.
    #[error("{at} offset {offset} was given up after {attempts} attempt(s): {reason}")]
    Record {
        /// Of which partition.
        at: TopicPartition,
        /// Which one.
        offset: i64,
        /// How often it was tried.
        attempts: u32,
        /// What the handler said last.
        reason: String,
    },
    /// The handler cannot work ([`Failure::fatal`]). The record that it had is not committed.
    #[error("{at} offset {offset} is not handled: {reason}")]
    Handler {
        /// Of which partition.
        at: TopicPartition,
        /// Which record.
        offset: i64,
        /// What the handler reported.
        reason: String,
    },
    /// A dead letter or an output could not be written.
    #[error("a record for `{topic}` could not be written, and what it belongs to is not done: {reason}")]
    Output {
        /// For which topic.
        topic: String,
        /// Why.
        reason: String,
    },
    /// Exactly-once: the transactions cannot go on.
    #[error(transparent)]
    Transaction(#[from] TransactionError),
    /// A thread of the processor's died.
    #[error("the processor's thread panicked")]
    Panicked,
}
