//! Transactions of a producer.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::ptr::null_mut;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ottla_client::{Error, OffsetAndMetadata, Producer, TopicPartition, TransactionError};

use crate::callbacks::trampoline::{CallbackLoop, Returns, Step, Task, start};
use crate::client::handle::Handle;
use crate::consume::group_metadata::rd_kafka_consumer_group_metadata_t;
use crate::errors::error_mapping;
use crate::errors::error_object::rd_kafka_error_t;
use crate::ffi::exported_from_c::{called_from_c, exported_from_c};
use crate::ffi::panic::on_panic;
use crate::ffi::*;
use crate::messages::list_conversion;
use crate::produce::flush::{Flush, FlushStep};
use crate::produce::transaction_calls::TransactionCall;
use crate::queue::op_queue::timeout_of;

/// Returns the client of a producer, or the error for a consumer.
fn producing(rk: *mut rd_kafka_t, function: &str) -> Result<Arc<Handle>, *mut rd_kafka_error_t> {
    let handle = Handle::shared(rk, function);
    handle.filter(|handle| handle.producer().is_some()).ok_or_else(|| {
        let reason = "The Transactional API can only be used on producer instances";
        rd_kafka_error_t::new(RD_KAFKA_RESP_ERR__INVALID_ARG, reason).into_raw()
    })
}

/// Returns the error of a call that has to be repeated: its time was over.
fn timed_out(text: &str) -> *mut rd_kafka_error_t {
    rd_kafka_error_t::new(RD_KAFKA_RESP_ERR__TIMED_OUT, text).retriable(true).into_raw()
}

/// Returns the error of a transactional call. A fatal error becomes the client's fatal error.
fn refused(handle: &Handle, error: TransactionError) -> *mut rd_kafka_error_t {
    if error_mapping::ends_transactions(&error) {
        handle.set_fatal(error_mapping::of_transaction(&error), &error.to_string());
    }
    error_mapping::object(&Error::Transaction(error)).into_raw()
}

/// Runs a call of a producer.
fn call(
    rk: *mut rd_kafka_t,
    function: &'static str,
    timeout_ms: c_int,
    call: impl FnOnce(&Producer, Duration) -> Result<(), TransactionError>,
) -> *mut rd_kafka_error_t {
    let handle = match producing(rk, function) {
        Ok(handle) => handle,
        Err(error) => return error,
    };
    let Some(producer) = handle.producer() else { return null_mut() };
    // As in the original, the transaction timeout limits the call: the coordinator then ends the transaction.
    let limit = handle.config.transaction_timeout;
    let timeout = timeout_of(timeout_ms).map_or(limit, |timeout| timeout.min(limit));
    let _running = match TransactionCall::begin(&handle, function) {
        Ok(running) => running,
        Err(error) => return error.into_raw(),
    };
    call(producer, timeout).map_or_else(|error| refused(&handle, error), |()| null_mut())
}

#[on_panic(crate::errors::error_object::panicked())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_init_transactions(
    rk: *mut rd_kafka_t,
    timeout_ms: c_int,
) -> *mut rd_kafka_error_t {
    let handle = match producing(rk, FUNCTION) {
        Ok(handle) => handle,
        Err(error) => return error,
    };
    let (Some(client), Some(producer)) = (handle.client(), handle.producer()) else { return null_mut() };
    let mut running = match TransactionCall::begin(&handle, FUNCTION) {
        Ok(running) => running,
        Err(error) => return error.into_raw(),
    };
    // The original's limit: the coordinator may have to end an earlier transaction first.
    let timeout = timeout_of(timeout_ms).unwrap_or(handle.config.transaction_timeout * 2);
    match handle.transaction_calls.init(client, producer, timeout) {
        Some(Ok(())) => null_mut(),
        Some(Err(error)) => {
            if error.is_retriable() {
                running.resumes();
            }
            refused(&handle, error)
        }
        None => {
            running.resumes();
            timed_out(error_mapping::CALL_TIMED_OUT)
        }
    }
}

#[on_panic(crate::errors::error_object::panicked())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_begin_transaction(rk: *mut rd_kafka_t) -> *mut rd_kafka_error_t {
    call(rk, FUNCTION, -1, |producer, _| producer.begin_transaction())
}

#[on_panic(crate::errors::error_object::panicked())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_send_offsets_to_transaction(
    rk: *mut rd_kafka_t,
    offsets: *const rd_kafka_topic_partition_list_t,
    cgmetadata: *const rd_kafka_consumer_group_metadata_t,
    timeout_ms: c_int,
) -> *mut rd_kafka_error_t {
    // SAFETY: `cgmetadata` is NULL or group metadata of this library, not yet destroyed (rdkafka.h,
    // `rd_kafka_send_offsets_to_transaction`).
    let group = unsafe { cgmetadata.as_ref() }.filter(|_| !offsets.is_null());
    let Some(group) = group else {
        let reason = "cgmetadata and offsets are required parameters";
        return rd_kafka_error_t::new(RD_KAFKA_RESP_ERR__INVALID_ARG, reason).into_raw();
    };
    let handle = match producing(rk, FUNCTION) {
        Ok(handle) => handle,
        Err(error) => return error,
    };
    // SAFETY: `offsets` is NULL or a list of this library, not yet destroyed (rdkafka.h,
    // `rd_kafka_send_offsets_to_transaction`).
    let offsets: BTreeMap<TopicPartition, OffsetAndMetadata> = unsafe { list_conversion::entries(offsets) }
        .iter()
        .filter(|entry| entry.offset >= 0)
        .map(|entry| (list_conversion::at(entry), list_conversion::offset(entry)))
        .collect();
    // As in the original, no offsets are no error in any state. Without `transactional.id` the call below is refused.
    if offsets.is_empty() && handle.config.transactional_id.is_some() {
        let running = TransactionCall::begin(&handle, FUNCTION);
        return running.map_or_else(rd_kafka_error_t::into_raw, |_| null_mut());
    }
    call(rk, FUNCTION, timeout_ms, |producer, timeout| {
        producer.send_offsets_to_transaction_blocking(&offsets, &group.metadata, timeout)
    })
}

exported_from_c! {
    fn rd_kafka_commit_transaction(rk: *mut rd_kafka_t, timeout_ms: c_int) -> *mut rd_kafka_error_t = ottla_commit_transaction;
    fn rd_kafka_abort_transaction(rk: *mut rd_kafka_t, timeout_ms: c_int) -> *mut rd_kafka_error_t = ottla_abort_transaction;
}

called_from_c! {
    "ottla_begin_commit_transaction" begin_commit_transaction,
    "ottla_begin_abort_transaction" begin_abort_transaction,
}

/// Ends a transaction. The application receives the delivery reports before the result of a commit.
struct EndTransaction {
    ending: Ending,
    timeout: Duration,
    begun: Instant,
    flush: Option<Flush>,
    running: TransactionCall,
}

/// The time for a commit or an abort without a timeout from the caller: the longest that a caller can set.
const NO_LIMIT: Duration = Duration::from_millis(c_int::MAX as u64);

#[derive(Clone, Copy)]
enum Ending {
    Commit,
    Abort,
}

impl Ending {
    /// The function that the application called.
    fn function(self) -> &'static str {
        match self {
            Self::Commit => "rd_kafka_commit_transaction",
            Self::Abort => "rd_kafka_abort_transaction",
        }
    }
}

impl Task for EndTransaction {
    fn next(&mut self, handle: &Arc<Handle>) -> Step {
        let Some(producer) = handle.producer() else { return Step::Return(Returns::Pointer(null_mut())) };
        let flush = match (&mut self.flush, self.ending) {
            (Some(flush), _) => flush,
            (None, Ending::Commit) => {
                // As in the original, a wrong state is an error at once, and functions for reports add no records to the transaction.
                if let Err(error) = producer.close_transaction() {
                    return self.end(handle, Err(error));
                }
                self.flush.insert(Flush::new(handle, Some(self.timeout)))
            }
            (None, Ending::Abort) => {
                if let Err(error) = producer.abort_transaction_blocking(self.timeout) {
                    return self.end(handle, Err(error));
                }
                self.flush.insert(Flush::new(handle, Some(self.timeout)))
            }
        };
        let is_flushed = match flush.next(handle) {
            FlushStep::Op(op) => return Step::Op(op),
            FlushStep::Done(is_flushed) => is_flushed,
        };
        if !is_flushed && matches!(self.ending, Ending::Commit) {
            self.running.resumes();
            return Step::Return(Returns::Pointer(timed_out(&unflushed(handle)).cast()));
        }
        let ended = match self.ending {
            Ending::Commit => {
                producer.commit_transaction_blocking(self.timeout.saturating_sub(self.begun.elapsed()))
            }
            Ending::Abort => Ok(()),
        };
        self.end(handle, ended)
    }

    fn yields(&mut self) {
        if let Some(flush) = &mut self.flush {
            flush.yields();
        }
    }
}

impl EndTransaction {
    fn end(&mut self, handle: &Handle, ended: Result<(), TransactionError>) -> Step {
        Step::Return(Returns::Pointer(match ended {
            Ok(()) => null_mut(),
            Err(error) => {
                if error.is_retriable() {
                    self.running.resumes();
                }
                refused(handle, error).cast()
            }
        }))
    }
}

/// The text for a commit whose records were not reported in time.
fn unflushed(handle: &Handle) -> String {
    let left = handle.unreported();
    let reads_events = handle.callbacks.events & RD_KAFKA_EVENT_DR != 0;
    let advice = ": the event queue must be polled for delivery report events in a separate thread or prior to calling commit";
    let advice = if reads_events { advice } else { "" };
    format!(
        "Failed to flush all outstanding messages within the API timeout: {left} message(s) remaining{advice}"
    )
}

/// # Safety
/// `state` is the struct of the calling C function.
unsafe fn end_transaction(
    state: *mut CallbackLoop,
    rk: *mut rd_kafka_t,
    function: &str,
    timeout_ms: c_int,
    ending: Ending,
) {
    // SAFETY: C's own struct, for the time of this call (`trampoline.c`).
    let state = unsafe { &mut *state };
    let begun = producing(rk, function).and_then(|handle| {
        let running =
            TransactionCall::begin(&handle, ending.function()).map_err(rd_kafka_error_t::into_raw)?;
        Ok((handle, running))
    });
    match begun {
        Ok((handle, running)) => {
            let timeout = timeout_of(timeout_ms).unwrap_or(NO_LIMIT);
            let task = EndTransaction { ending, timeout, begun: Instant::now(), flush: None, running };
            start(state, handle, task);
        }
        Err(error) => state.returns(Returns::Pointer(error.cast())),
    }
}

#[on_panic(())]
unsafe extern "C" fn begin_commit_transaction(
    state: *mut CallbackLoop,
    rk: *mut rd_kafka_t,
    timeout_ms: c_int,
) {
    // SAFETY: C's own struct, for the time of this call (`trampoline.c`).
    unsafe { end_transaction(state, rk, FUNCTION, timeout_ms, Ending::Commit) };
}

#[on_panic(())]
unsafe extern "C" fn begin_abort_transaction(
    state: *mut CallbackLoop,
    rk: *mut rd_kafka_t,
    timeout_ms: c_int,
) {
    // SAFETY: C's own struct, for the time of this call (`trampoline.c`).
    unsafe { end_transaction(state, rk, FUNCTION, timeout_ms, Ending::Abort) };
}
