//! The function that can replace the outcome of Produce requests.

use std::fmt;
use std::sync::Arc;

use ottla_protocol::ErrorCode;

use crate::error::Error;

/// A function that sees the end of each Produce request and can replace it, so that tests can check a producer's retries:
/// [`Config::produce_hook`](crate::Config::produce_hook).
///
/// The engine's thread calls it, so a slow function delays all work of the client.
#[derive(Clone)]
pub struct ProduceHook(Arc<Replace>);

type Replace = dyn Fn(&ProduceEnd<'_>) -> Option<ReplacedEnd> + Send + Sync;

/// The end of a Produce request, before its batches get their outcomes.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ProduceEnd<'a> {
    /// The id of the node that the request was for.
    pub node: i32,
    /// The sequence number of the first record of the request; -1 without idempotence.
    pub first_sequence: i32,
    /// The reason why there is no response; `None` with a response, whatever it contains.
    pub error: Option<&'a Error>,
}

/// The end that takes the place of the actual one.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ReplacedEnd {
    /// The broker answers every batch with this error code.
    Code(ErrorCode),
    /// There is no response, for this reason: the batches may be in the log.
    Lost(Error),
}

impl ProduceHook {
    /// Wraps the function. It returns `None` for an end that stays as it is.
    pub fn new(call: impl Fn(&ProduceEnd<'_>) -> Option<ReplacedEnd> + Send + Sync + 'static) -> Self {
        Self(Arc::new(call))
    }

    pub(crate) fn call(&self, end: &ProduceEnd<'_>) -> Option<ReplacedEnd> {
        (self.0)(end)
    }
}

impl fmt::Debug for ProduceHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProduceHook")
    }
}
