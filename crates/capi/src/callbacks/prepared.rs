//! Operations as callbacks: the function, its arguments, and the memory that these point to.

use std::any::Any;
use std::ffi::{CString, c_void};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ottla_client::Report;

use crate::callbacks::trampoline::{CallbackKind, CallbackLoop, ConsumeFunction, Step};
use crate::client::handle::Handle;
use crate::consume::group_consumer::assign_nothing;
use crate::ffi::c_strings::{c_string, malloced};
use crate::ffi::memory::MallocedMemory;
use crate::ffi::*;
use crate::messages::list_conversion::{self, OwnedList};
use crate::messages::message::OwnedMessage;
use crate::produce::delivery_reports::free_payloads;
use crate::produce::report_cursor::{ReportCursor, each_report};
use crate::queue::op::{CommitReply, CommitResult, Op, Opaque};

/// An operation after a look at the application's functions.
pub(crate) enum Prepared {
    /// C calls the function next.
    Callback(Held),
    /// The operation is done; it counts as so many callbacks.
    Served(usize),
}

/// The memory that a callback's arguments point to.
pub(crate) enum Held {
    Reports(Box<ReportCursor>),
    List {
        _list: OwnedList,
        of_rebalance: bool,
    },
    Text {
        _text: CString,
    },
    Log {
        _facility: CString,
        _text: CString,
    },
    /// The function keeps the text if it returns another value than 0.
    Stats(MallocedMemory),
    Message {
        _message: OwnedMessage,
    },
    /// Arguments of a kind that [`CallbackArguments`] knows.
    Arguments {
        _arguments: Box<dyn Any>,
    },
    /// An event belongs to the function that gets it.
    Nothing,
}

/// The arguments of a callback whose function is not part of the configuration.
pub(crate) trait CallbackArguments: Send {
    /// Fills `state`, and returns the memory of the arguments; `None` without a function.
    fn fill(self: Box<Self>, state: &mut CallbackLoop) -> Option<Box<dyn Any>>;
}

/// The reports of one batch that C makes without a look back; `trampoline.c` has the same struct.
#[repr(C)]
#[derive(Default)]
pub(crate) struct ReportProgress {
    /// C counts a message before its callback.
    pub(crate) next: usize,
    pub(crate) end: usize,
}

impl Held {
    /// The callback has returned. Prepares the next callback of the same operation; without one the result is the number of
    /// callbacks that the operation made.
    #[inline]
    pub(crate) fn after_callback(&mut self, state: &mut CallbackLoop) -> Option<usize> {
        match self {
            Self::Reports(cursor) => {
                if cursor.next_chunk(state) {
                    return None;
                }
                return Some(cursor.reported());
            }
            Self::Stats(json) if state.answer != 0 => json.forget(),
            _ => {}
        }
        *self = Self::Nothing;
        Some(1)
    }

    /// Returns `true` for the arguments of a rebalance callback.
    pub(crate) fn is_of_rebalance(&self) -> bool {
        matches!(self, Self::List { of_rebalance: true, .. })
    }

    /// Takes the delivery reports that have no callback yet.
    pub(crate) fn take_rest(&mut self) -> Option<Op> {
        match self {
            Self::Reports(cursor) => cursor.take_rest(),
            _ => None,
        }
    }
}

/// Fills `state` with the callback of a step. An operation without a function is dropped; so is a record.
pub(crate) fn prepare(state: &mut CallbackLoop, handle: &Arc<Handle>, step: Step) -> Prepared {
    state.rk = handle.raw();
    state.opaque = handle.callbacks.opaque;
    match step {
        Step::Op(op) => prepare_op(state, handle, op),
        Step::Consume(message, function, opaque) => {
            Prepared::Callback(prepare_message(state, handle, message, function, opaque))
        }
        Step::Event(event) => {
            let Some(function) = handle.callbacks.background_event else { return Prepared::Served(0) };
            state.pointer = event.into_raw().cast();
            callback(state, CallbackKind::Event, function as *const c_void, Held::Nothing)
        }
        Step::Return(value) => {
            state.returns(value);
            Prepared::Served(0)
        }
    }
}

/// Fills `state` with the callback of a message.
#[inline]
pub(crate) fn prepare_message(
    state: &mut CallbackLoop,
    handle: &Arc<Handle>,
    message: OwnedMessage,
    function: ConsumeFunction,
    opaque: Opaque,
) -> Held {
    (state.rk, state.opaque) = (handle.raw(), opaque.0);
    consume(state, message, function as *const c_void)
}

fn prepare_op(state: &mut CallbackLoop, handle: &Arc<Handle>, op: Op) -> Prepared {
    let callbacks = &handle.callbacks;
    match op {
        Op::DeliveryReport { report, done } => prepare_reports(state, handle, report, done),
        Op::Rebalance { err, partitions, lost } => {
            if let Some(consumer) = handle.consumer_state() {
                consumer.lost.store(lost, Ordering::Relaxed);
            }
            if let Some(function) = callbacks.rebalance {
                let list = OwnedList(list_conversion::bare(&partitions));
                partitions_callback(state, err, list, function as *const c_void, true)
            } else {
                // An application that reads events and did not read this one loses its assignment.
                assign_nothing(handle);
                Prepared::Served(1)
            }
        }
        Op::CommitResult(CommitResult { err, offsets, reply }) => {
            let function = match (reply, callbacks.offset_commit) {
                (Some(CommitReply { function: Some(function), opaque }), _) => {
                    state.opaque = opaque.0;
                    function as *const c_void
                }
                (None, Some(function)) => function as *const c_void,
                // The configuration's function gets a result of its own.
                (Some(CommitReply { function: None, .. }), _) | (None, None) => return Prepared::Served(0),
            };
            let list = OwnedList(list_conversion::with_offsets(&offsets));
            partitions_callback(state, err, list, function, false)
        }
        Op::Error { code, text, .. } => {
            let Some(function) = callbacks.error else { return Prepared::Served(0) };
            state.number = code;
            text_callback(state, CallbackKind::Error, text, function as *const c_void)
        }
        Op::Throttled(throttled) => {
            let Some(function) = callbacks.throttle else { return Prepared::Served(0) };
            let broker = c_string(&throttled.broker);
            (state.broker, state.number) = (throttled.node, throttled.throttle_ms);
            text_callback(state, CallbackKind::Throttle, broker, function as *const c_void)
        }
        Op::Acknowledged(arguments) => match arguments.fill(state) {
            Some(held) => Prepared::Callback(Held::Arguments { _arguments: held }),
            None => Prepared::Served(0),
        },
        Op::Stats(json) => {
            let Some(function) = callbacks.stats else { return Prepared::Served(0) };
            let copy = MallocedMemory::new(malloced(&json).cast());
            (state.pointer, state.size, state.answer) = (copy.as_ptr(), json.as_bytes().len(), 0);
            callback(state, CallbackKind::Stats, function as *const c_void, Held::Stats(copy))
        }
        Op::Log(line) => {
            let Some(function) = handle.logs.function() else { return Prepared::Served(0) };
            let (facility, text) = (c_string(line.facility), c_string(&line.text));
            state.number = line.level.into();
            state.pointer = facility.as_ptr().cast_mut().cast();
            state.text = text.as_ptr().cast();
            let held = Held::Log { _facility: facility, _text: text };
            callback(state, CallbackKind::Log, function as *const c_void, held)
        }
        Op::TokenRefresh(config, _) => {
            let Some(function) = callbacks.oauthbearer_token_refresh else { return Prepared::Served(0) };
            text_callback(state, CallbackKind::TokenRefresh, config, function as *const c_void)
        }
        Op::Message(message) => match callbacks.consume {
            Some(function) => Prepared::Callback(consume(state, message, function as *const c_void)),
            None => Prepared::Served(0),
        },
        Op::Result(_) => Prepared::Served(0),
        #[cfg(test)]
        Op::Nothing => Prepared::Served(0),
    }
}

fn prepare_reports(state: &mut CallbackLoop, handle: &Arc<Handle>, report: Report, done: usize) -> Prepared {
    let callbacks = &handle.callbacks;
    let (kind, function) = match (callbacks.dr_msg, callbacks.dr) {
        (Some(function), _) => (CallbackKind::DrMsg, function as *const c_void),
        (None, Some(function)) => (CallbackKind::Dr, function as *const c_void),
        (None, None) => {
            if handle.client_interceptors.get().is_some() {
                each_report(handle, report, done, |_| {});
            } else {
                free_payloads(&report, done);
            }
            return Prepared::Served(0);
        }
    };
    let mut cursor = Box::new(ReportCursor::new(handle, report, done));
    if cursor.next_chunk(state) {
        callback(state, kind, function, Held::Reports(cursor))
    } else {
        Prepared::Served(0)
    }
}

fn partitions_callback(
    state: &mut CallbackLoop,
    err: rd_kafka_resp_err_t,
    list: OwnedList,
    function: *const c_void,
    of_rebalance: bool,
) -> Prepared {
    state.number = err;
    state.pointer = list.0.cast();
    callback(state, CallbackKind::Partitions, function, Held::List { _list: list, of_rebalance })
}

fn text_callback(
    state: &mut CallbackLoop,
    kind: CallbackKind,
    text: CString,
    function: *const c_void,
) -> Prepared {
    state.text = text.as_ptr().cast();
    callback(state, kind, function, Held::Text { _text: text })
}

#[inline]
fn consume(state: &mut CallbackLoop, message: OwnedMessage, function: *const c_void) -> Held {
    state.pointer = message.as_raw().cast();
    set_function(state, CallbackKind::Consume, function);
    Held::Message { _message: message }
}

fn callback(state: &mut CallbackLoop, kind: CallbackKind, function: *const c_void, held: Held) -> Prepared {
    set_function(state, kind, function);
    Prepared::Callback(held)
}

/// Sets the function of the next callback.
#[inline]
pub(crate) fn set_function(state: &mut CallbackLoop, kind: CallbackKind, function: *const c_void) {
    state.kind = kind;
    // SAFETY: the address of a function. C casts it back to its type, which belongs to the kind.
    state.function = Some(unsafe { std::mem::transmute::<*const c_void, unsafe extern "C" fn()>(function) });
}
