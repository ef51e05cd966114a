//! A call of a handler: messages as C knows them, and what the handler says meanwhile.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ffi::{c_char, c_void};
use std::sync::Arc;

use ottla_client::{Record, RecordView};
use ottla_parallel::{BatchFailure, Failure, Message, Messages};

use crate::client::topic_handle::Topic;
use crate::ffi::c_strings::text;
use crate::ffi::panic::on_panic;
use crate::ffi::*;
use crate::messages::headers::bytes;
use crate::messages::message::Slot;
use crate::queue::op::Opaque;

/// The verdict on a record. C may return any number.
pub type ottla_processor_verdict_t = std::ffi::c_uint;
pub const OTTLA_PROCESSOR_DONE: ottla_processor_verdict_t = 0;
pub const OTTLA_PROCESSOR_FAILED: ottla_processor_verdict_t = 1;
pub const OTTLA_PROCESSOR_REFUSED: ottla_processor_verdict_t = 2;
pub const OTTLA_PROCESSOR_UNDECODABLE: ottla_processor_verdict_t = 3;

/// The application's function for single records.
pub type Each = unsafe extern "C" fn(
    call: *mut ottla_processor_call_t,
    message: *const rd_kafka_message_t,
    opaque: *mut c_void,
) -> ottla_processor_verdict_t;

/// The application's function for batches.
pub type Batch = unsafe extern "C" fn(
    call: *mut ottla_processor_call_t,
    messages: *const *const rd_kafka_message_t,
    count: usize,
    opaque: *mut c_void,
) -> ottla_processor_verdict_t;

pub type ottla_processor_handler_t = Option<Each>;
pub type ottla_processor_batch_handler_t = Option<Batch>;

/// Whichever the settings have.
#[derive(Clone, Copy)]
pub(super) enum Handler {
    Each(Each, Opaque),
    Batch(Batch, Opaque),
}

/// C's name for a call under way.
#[repr(C)]
pub struct ottla_processor_call_t {
    _private: [u8; 0],
}

/// A call under way; lives in the stack of the thread that calls.
struct Call<'a> {
    attempt: u32,
    /// Records of the batch; `None` if it is about a single one.
    count: Option<usize>,
    said: RefCell<Said>,
    /// Takes what the handler produces.
    outputs: &'a dyn Outputs,
}

#[derive(Default)]
struct Said {
    reason: Option<String>,
    failed: Vec<(usize, Failure)>,
}

trait Outputs {
    fn send(&self, record: &Record<'_>);
}

impl Outputs for Message<'_> {
    fn send(&self, record: &Record<'_>) {
        Message::send(self, record);
    }
}

impl Outputs for Messages<'_> {
    fn send(&self, record: &Record<'_>) {
        Messages::send(self, record);
    }
}

/// The topics of a worker, as messages point to them.
#[derive(Default)]
pub(super) struct Topics(BTreeMap<Box<str>, Arc<Topic>>);

impl Topics {
    fn get(&mut self, name: &str) -> &Arc<Topic> {
        if !self.0.contains_key(name) {
            self.0.insert(name.into(), Topic::named(name));
        }
        &self.0[name]
    }
}

thread_local! {
    /// The processor whose handler this thread is in; 0 is none.
    static WITHIN: Cell<usize> = const { Cell::new(0) };
}

/// Returns whether this thread runs a handler of that processor.
pub(super) fn is_of(processor: usize) -> bool {
    WITHIN.get() == processor
}

/// Has one record handled.
pub(super) fn each(
    processor: usize,
    function: Each,
    opaque: Opaque,
    topics: &mut Topics,
    message: &Message<'_>,
) -> Result<(), Failure> {
    let slot = Slot::lent(topics.get(message.topic()), message);
    let mut call = Call::new(message.attempt(), None, message);
    WITHIN.set(processor);
    // SAFETY: the application's function; what it is given lives until it returns.
    let verdict = unsafe { function(call.as_raw(), slot.as_raw(), opaque.0) };
    WITHIN.set(0);
    let reason = call.said.take().reason;
    failure(verdict, reason.as_deref()).map_or(Ok(()), Err)
}

/// Has a batch handled.
pub(super) fn batch(
    processor: usize,
    function: Batch,
    opaque: Opaque,
    topics: &mut Topics,
    messages: &Messages<'_>,
) -> Result<(), BatchFailure> {
    let topic = topics.get(&messages.at().topic);
    let slots: Vec<Slot> = messages.iter().map(|record: RecordView<'_>| Slot::lent(topic, &record)).collect();
    if messages.has_undecodable() {
        // The batch is not done, whatever is returned.
        return Ok(());
    }
    let pointers: Vec<*const rd_kafka_message_t> = slots.iter().map(Slot::as_raw).collect();
    let mut call = Call::new(messages.attempt(), Some(slots.len()), messages);
    WITHIN.set(processor);
    // SAFETY: the application's function; what it is given lives until it returns.
    let verdict = unsafe { function(call.as_raw(), pointers.as_ptr(), pointers.len(), opaque.0) };
    WITHIN.set(0);
    let Said { reason, failed } = call.said.take();
    match failure(verdict, reason.as_deref()) {
        Some(failure) => Err(failure.into()),
        None if failed.is_empty() => Ok(()),
        None => Err(BatchFailure::records(failed)),
    }
}

/// The error of a verdict; `None` for success.
fn failure(verdict: ottla_processor_verdict_t, reason: Option<&str>) -> Option<Failure> {
    let without = || format!("the handler returned {verdict} and no reason");
    let reason = || reason.map_or_else(without, str::to_owned);
    match verdict {
        OTTLA_PROCESSOR_DONE => None,
        OTTLA_PROCESSOR_REFUSED => Some(Failure::refused(reason())),
        OTTLA_PROCESSOR_UNDECODABLE => Some(Failure::undecodable(reason())),
        _ => Some(Failure::new(reason())),
    }
}

impl<'a> Call<'a> {
    fn new(attempt: u32, count: Option<usize>, outputs: &'a dyn Outputs) -> Self {
        Self { attempt, count, said: RefCell::default(), outputs }
    }

    /// # Safety
    /// NULL, or a call that is under way as long as the caller uses the result.
    unsafe fn of(call: *const ottla_processor_call_t) -> Option<&'a Self> {
        // SAFETY: `call` is NULL or the call of a handler that has not returned (the contract of this function,
        // above).
        unsafe { call.cast::<Self>().as_ref() }
    }

    fn as_raw(&mut self) -> *mut ottla_processor_call_t {
        std::ptr::from_mut(self).cast()
    }
}

#[on_panic(0)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ottla_processor_attempt(call: *const ottla_processor_call_t) -> u32 {
    // SAFETY: `call` is NULL or the call of a handler that has not returned (ottla.h, `ottla_processor_attempt`).
    unsafe { Call::of(call) }.map_or(0, |call| call.attempt)
}

#[on_panic(())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ottla_processor_set_reason(
    call: *mut ottla_processor_call_t,
    reason: *const c_char,
) {
    // SAFETY: `call` is NULL or the call of a handler that has not returned; `reason` is NULL or a C string (ottla.h,
    // `ottla_processor_set_reason`).
    let (call, reason) = unsafe { (Call::of(call), text(reason)) };
    if let Some(call) = call {
        call.said.borrow_mut().reason = reason.map(String::from);
    }
}

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ottla_processor_fail(
    call: *mut ottla_processor_call_t,
    index: usize,
    verdict: ottla_processor_verdict_t,
    reason: *const c_char,
) -> rd_kafka_resp_err_t {
    // SAFETY: `call` is NULL or the call of a handler that has not returned; `reason` is NULL or a C string (ottla.h,
    // `ottla_processor_fail`).
    let (call, reason) = unsafe { (Call::of(call), text(reason)) };
    let Some(call) = call.filter(|call| call.count.is_some_and(|count| index < count)) else {
        return RD_KAFKA_RESP_ERR__INVALID_ARG;
    };
    let Some(failure) = failure(verdict, reason.as_deref()) else {
        return RD_KAFKA_RESP_ERR__INVALID_ARG;
    };
    call.said.borrow_mut().failed.push((index, failure));
    RD_KAFKA_RESP_ERR_NO_ERROR
}

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ottla_processor_send(
    call: *mut ottla_processor_call_t,
    topic: *const c_char,
    partition: i32,
    key: *const c_void,
    key_len: usize,
    value: *const c_void,
    len: usize,
    headers: *const rd_kafka_headers_t,
) -> rd_kafka_resp_err_t {
    // SAFETY: `call` is NULL or the call of a handler that has not returned; `topic` is NULL or a C string; `headers`
    // is NULL or headers of this library, not yet destroyed (ottla.h, `ottla_processor_send`).
    let (call, topic, headers) = unsafe { (Call::of(call), text(topic), headers.as_ref()) };
    let (Some(call), Some(topic)) = (call, topic) else { return RD_KAFKA_RESP_ERR__INVALID_ARG };
    let (Ok(key_len), Ok(len)) = (isize::try_from(key_len), isize::try_from(len)) else {
        return RD_KAFKA_RESP_ERR__INVALID_ARG;
    };
    if topic.is_empty() || partition < RD_KAFKA_PARTITION_UA {
        return RD_KAFKA_RESP_ERR__INVALID_ARG;
    }
    let mut record = Record::to(&topic);
    // SAFETY: `key` is NULL or points to `key_len` bytes; `value` is NULL or points to `len` bytes (ottla.h,
    // `ottla_processor_send`).
    (record.key, record.value) = unsafe { (bytes(key, key_len), bytes(value, len)) };
    record.partition = (partition >= 0).then_some(partition);
    for (name, value) in headers.iter().flat_map(|headers| headers.iter()) {
        record.headers.push((name.to_bytes(), value));
    }
    call.outputs.send(&record);
    RD_KAFKA_RESP_ERR_NO_ERROR
}
