//! Transaction errors, with the remedy that the application has.

use std::sync::Arc;

use ottla_protocol::ErrorCode;

use super::{Error, ProduceError, ProduceErrorKind};

/// A transactional call or its transaction failed.
///
/// The remedy is one of the following:
///
/// - repeat the call ([`is_retriable`](Self::is_retriable));
/// - abort the transaction ([`requires_abort`](Self::requires_abort));
/// - initialize transactions again ([`requires_init`](Self::requires_init));
/// - create another producer ([`is_fatal`](Self::is_fatal));
/// - otherwise, change the calling code.
#[derive(Clone, Debug, thiserror::Error)]
#[error("transactional.id `{transactional_id}`: {kind}{}", if *outcome_unknown { UNKNOWN } else { "" })]
pub struct TransactionError {
    /// The producer's `transactional.id`.
    pub transactional_id: Arc<str>,
    /// The cause.
    pub kind: TransactionErrorKind,
    pub(crate) then: Recovery,
    pub(crate) outcome_unknown: bool,
}

const UNKNOWN: &str = "; whether the transaction was committed is not known";

/// The reason why a transactional call or its transaction failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransactionErrorKind {
    /// The producer has no `transactional.id`.
    #[error("the producer is not transactional: set transactional.id")]
    NotTransactional,
    /// The call is not allowed in the current state.
    #[error("{call} cannot be called {state}")]
    State {
        /// The call.
        call: &'static str,
        /// The producer's current state, or the event that it waits for.
        state: &'static str,
        /// The state's name in librdkafka, as in the statistics.
        name: &'static str,
    },
    /// The call exceeded its time limit.
    #[error("{call}: not done after {waited_ms} ms; last problem: {last}")]
    TimedOut {
        /// The call.
        call: &'static str,
        /// The time waited, in milliseconds.
        waited_ms: u128,
        /// The last error.
        last: String,
        /// The code of the last response, if the last attempt had one.
        code: Option<ErrorCode>,
    },
    /// A coordinator returned an error.
    #[error("{request}{}{what}: {code}", if what.is_empty() { "" } else { ": " })]
    Coordinator {
        /// The request.
        request: &'static str,
        /// The subject of the request, and the broker's message, if it has one.
        what: String,
        /// The error code from the coordinator.
        code: ErrorCode,
    },
    /// Another producer with this `transactional.id` has taken over, or the coordinator aborted the transaction because
    /// it was open for longer than `transaction.timeout.ms`.
    #[error(
        "fenced ({code}): another producer took the transactional.id over, or the transaction was open for longer \
         than transaction.timeout.ms"
    )]
    Fenced {
        /// The error code of the response.
        code: ErrorCode,
    },
    /// A record of the transaction failed.
    #[error("a record failed: {0}")]
    Record(Arc<ProduceError>),
    /// A request failed. A retry can only succeed if the login failed.
    #[error("{request}: {error}")]
    Request {
        /// The request.
        request: &'static str,
        /// The error.
        error: Box<Error>,
    },
    /// The record's transaction is being aborted.
    #[error("the transaction was aborted")]
    Aborted,
    /// The application ended the producer for this reason: [`Producer::end`](crate::Producer::end).
    #[error("the producer has ended: {0}")]
    Ended(Box<ProduceErrorKind>),
    /// The client was closed first.
    #[error("the client is closed")]
    Closed,
}

/// The remedy that the application has.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Recovery {
    /// The call was wrong and changed nothing.
    Mend,
    Retry,
    Abort,
    Init,
    Close,
}

impl TransactionError {
    /// Returns `true` if the same call may be repeated; it then continues from its last step.
    pub fn is_retriable(&self) -> bool {
        self.then == Recovery::Retry
    }

    /// Returns `true` if the transaction must be aborted. The producer is usable after that.
    pub fn requires_abort(&self) -> bool {
        self.then == Recovery::Abort
    }

    /// Returns `true` if the producer must initialize its transactions again before it continues.
    pub fn requires_init(&self) -> bool {
        self.then == Recovery::Init
    }

    /// Returns `true` if this producer cannot be used any more.
    pub fn is_fatal(&self) -> bool {
        self.then == Recovery::Close
    }

    /// Returns `true` if a commit was sent and its outcome is unknown: the transaction may or may not be committed.
    ///
    /// If [`is_retriable`](Self::is_retriable) also returns `true`, a repeated commit reveals the outcome.
    pub fn outcome_is_unknown(&self) -> bool {
        self.outcome_unknown
    }
}
