//! What can go wrong with a transaction, and what the application can still do.

use std::sync::Arc;

use ottla_protocol::ErrorCode;

use crate::error::{Error, ProduceError};

/// A transactional call failed, or its transaction did.
///
/// What to do next is one of: the same call again ([`is_retriable`](Self::is_retriable)), aborting
/// ([`requires_abort`](Self::requires_abort)), initializing anew ([`requires_init`](Self::requires_init)), another
/// producer ([`is_fatal`](Self::is_fatal)), or mending the calling code when it is none of them.
#[derive(Clone, Debug, thiserror::Error)]
#[error("transactional.id `{transactional_id}`: {kind}{}", if *outcome_unknown { UNKNOWN } else { "" })]
pub struct TransactionError {
    /// The producer's `transactional.id`.
    pub transactional_id: Arc<str>,
    /// What went wrong.
    pub kind: TransactionErrorKind,
    pub(crate) then: Then,
    pub(crate) outcome_unknown: bool,
}

const UNKNOWN: &str = "; whether the transaction was committed is not known";

/// Why a transactional call or its transaction failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransactionErrorKind {
    /// The producer has no `transactional.id`.
    #[error("the producer is not transactional: set transactional.id")]
    NotTransactional,
    /// The call does not belong here.
    #[error("{call} cannot be called {state}")]
    State {
        /// The call.
        call: &'static str,
        /// What the producer is doing, or waits for.
        state: &'static str,
    },
    /// The call did not finish in its time.
    #[error("{call}: not done after {waited_ms} ms; last problem: {last}")]
    TimedOut {
        /// The call.
        call: &'static str,
        /// The time it had.
        waited_ms: u128,
        /// The last thing that went wrong.
        last: String,
    },
    /// A coordinator refused.
    #[error("{request}{}{what}: {code}", if what.is_empty() { "" } else { ": " })]
    Coordinator {
        /// The request.
        request: &'static str,
        /// What was asked for, and what the broker says of it, where it says more than the code.
        what: String,
        /// The code in the answer.
        code: ErrorCode,
    },
    /// Another producer with this `transactional.id` has taken over, or the coordinator aborted the transaction because
    /// it was open for longer than `transaction.timeout.ms`.
    #[error(
        "fenced ({code}): another producer took the transactional.id over, or the transaction was open for longer \
         than transaction.timeout.ms"
    )]
    Fenced {
        /// The code in the answer.
        code: ErrorCode,
    },
    /// A record of the transaction failed.
    #[error("a record failed: {0}")]
    Record(Arc<ProduceError>),
    /// A request failed in a way that repeating it does not mend.
    #[error("{request}: {error}")]
    Request {
        /// The request.
        request: &'static str,
        /// What happened.
        error: Box<Error>,
    },
    /// The record's transaction is being aborted.
    #[error("the transaction was aborted")]
    Aborted,
    /// The client was closed first.
    #[error("the client is closed")]
    Closed,
}

/// What the application can do.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Then {
    /// Nothing has changed: the call was wrong.
    Mend,
    Retry,
    Abort,
    Init,
    Close,
}

impl TransactionError {
    /// Whether the same call may be made again, and goes on where it was.
    pub fn is_retriable(&self) -> bool {
        self.then == Then::Retry
    }

    /// Whether the transaction can only be aborted; the producer is well after that.
    pub fn requires_abort(&self) -> bool {
        self.then == Then::Abort
    }

    /// Whether the producer must initialize its transactions anew before it goes on.
    pub fn requires_init(&self) -> bool {
        self.then == Then::Init
    }

    /// Whether this producer is of no more use.
    pub fn is_fatal(&self) -> bool {
        self.then == Then::Close
    }

    /// Whether a commit was sent and nothing says what became of it: it may or may not have happened.
    ///
    /// Together with [`is_retriable`](Self::is_retriable), committing again tells.
    pub fn outcome_is_unknown(&self) -> bool {
        self.outcome_unknown
    }
}
