//! The transactional call of a producer that has not ended. Until it has, it can be repeated, and other calls are refused.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::client::handle::Handle;
use crate::errors::error_object::rd_kafka_error_t;
use crate::ffi::*;

/// The current transactional call of a producer.
#[derive(Debug, Default)]
pub(crate) struct TransactionCalls(Mutex<CurrentCall>);

#[derive(Debug, Default)]
struct CurrentCall {
    /// `None` if there is no call that has not ended.
    name: Option<&'static str>,
    /// `false` after the call timed out, until it is repeated.
    is_running: bool,
}

/// A call in progress. Dropping it ends the call, unless it [may be resumed](Self::resumes).
pub(crate) struct TransactionCall {
    handle: Arc<Handle>,
    resumes: bool,
}

impl TransactionCalls {
    fn lock(&self) -> MutexGuard<'_, CurrentCall> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TransactionCall {
    /// Begins a call, or resumes one that timed out.
    ///
    /// # Errors
    /// Both are retriable: `_CONFLICT` if another call timed out and was not repeated, and `_PREV_IN_PROGRESS` if another
    /// thread is in the same call.
    pub(crate) fn begin(handle: &Arc<Handle>, name: &'static str) -> Result<Self, Box<rd_kafka_error_t>> {
        let mut current = handle.transaction_calls.lock();
        let refusal = match current.name {
            Some(other) if other != name => Some((
                RD_KAFKA_RESP_ERR__CONFLICT,
                format!("{name} cannot be called before {other} has ended: repeat {other}"),
            )),
            Some(_) if current.is_running => Some((
                RD_KAFKA_RESP_ERR__PREV_IN_PROGRESS,
                format!("{name} was called by another thread and has not returned"),
            )),
            _ => None,
        };
        if let Some((code, reason)) = refusal {
            return Err(rd_kafka_error_t::new(code, &reason).retriable(true));
        }
        *current = CurrentCall { name: Some(name), is_running: true };
        drop(current);
        Ok(Self { handle: handle.clone(), resumes: false })
    }

    /// The call returns a retriable error: only the same call is allowed next.
    pub(crate) fn resumes(&mut self) {
        self.resumes = true;
    }
}

impl Drop for TransactionCall {
    fn drop(&mut self) {
        let mut current = self.handle.transaction_calls.lock();
        current.is_running = false;
        if !self.resumes {
            current.name = None;
        }
    }
}
