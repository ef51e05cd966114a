//! The transactional call of a producer that has not ended. Until it has, it can be repeated, and other calls are refused.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ottla_client::{Client, Producer, TransactionError};

use crate::client::handle::Handle;
use crate::errors::error_object::rd_kafka_error_t;
use crate::ffi::*;

/// The current transactional call of a producer.
#[derive(Debug, Default)]
pub(crate) struct TransactionCalls {
    current: Mutex<CurrentCall>,
    /// An initialization that continues after its call timed out.
    init: Mutex<Option<Receiver<Initialized>>>,
}

type Initialized = Result<(), TransactionError>;

/// An initialization has at least this time, however short the timeouts of the calls that wait for it.
const INIT_TIMEOUT_MIN: Duration = Duration::from_secs(5);
/// The engine reports its own timeout within this time.
const INIT_GRACE: Duration = Duration::from_millis(200);

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
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Initializes the producer's transactions, or waits for an initialization that an earlier call began. One that has run
    /// out of its own time begins again in the time that is left. Returns `None` if it is not done within `timeout` and
    /// continues.
    pub(crate) fn init(
        &self,
        client: &Client,
        producer: &Producer,
        timeout: Duration,
    ) -> Option<Initialized> {
        let mut init = self.init.lock().unwrap_or_else(PoisonError::into_inner);
        let (begun, mut timeout) = (Instant::now(), timeout);
        if let Some(earlier) = init.take() {
            match earlier.recv_timeout(timeout) {
                Ok(Err(error)) if error.is_retriable() => timeout = timeout.saturating_sub(begun.elapsed()),
                Ok(result) => return Some(result),
                Err(RecvTimeoutError::Timeout) => {
                    *init = Some(earlier);
                    return None;
                }
                // The next one reports that the engine has stopped.
                Err(RecvTimeoutError::Disconnected) => {}
            }
        }
        let pending = begin_init(client, producer, timeout.max(INIT_TIMEOUT_MIN));
        let grace = if timeout < INIT_TIMEOUT_MIN { Duration::ZERO } else { INIT_GRACE };
        match pending.recv_timeout(timeout.saturating_add(grace)) {
            Ok(result) => Some(result),
            Err(RecvTimeoutError::Timeout) => {
                *init = Some(pending);
                None
            }
            // The engine has stopped: the call returns that error.
            Err(RecvTimeoutError::Disconnected) => Some(producer.init_transactions_blocking(Duration::ZERO)),
        }
    }
}

fn begin_init(client: &Client, producer: &Producer, timeout: Duration) -> Receiver<Initialized> {
    let (done, pending) = std::sync::mpsc::channel();
    let initializing = producer.clone();
    client.spawn(async move {
        // Without a receiver, no call waits for it any more.
        let _ = done.send(initializing.init_transactions(timeout).await);
    });
    pending
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
                format!("Conflicting {} API call is already in progress", short(other)),
            )),
            Some(_) if current.is_running => Some((
                RD_KAFKA_RESP_ERR__PREV_IN_PROGRESS,
                format!("Simultaneous {} API calls not allowed", short(name)),
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

/// The name in librdkafka's texts, which programs compare: without the prefix of C functions.
fn short(name: &str) -> &str {
    name.strip_prefix("rd_kafka_").unwrap_or(name)
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
