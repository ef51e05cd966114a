//! The half of the callback loop that runs in Rust: it starts a call, prepares its callbacks, and ends it.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::Arc;

use crate::callbacks::prepared::{Held, Prepared, ReportProgress, prepare, prepare_message};
use crate::callbacks::running_calls::{self, RunningCall};
use crate::client::handle::Handle;
use crate::ffi::exported_from_c::called_from_c;
use crate::ffi::panic::on_panic;
use crate::ffi::*;
use crate::messages::message::OwnedMessage;
use crate::queue::event::OwnedEvent;
use crate::queue::op::{Op, Opaque};

/// The callbacks that C can make; `trampoline.c` has the same numbers.
#[derive(Clone, Copy)]
#[repr(i32)]
pub(crate) enum CallbackKind {
    None = 0,
    DrMsg = 1,
    Dr = 2,
    /// A rebalance or the result of a commit.
    Partitions = 3,
    Error = 4,
    Throttle = 5,
    Stats = 6,
    Log = 7,
    TokenRefresh = 8,
    Consume = 9,
    /// An event for the background thread's function.
    Event = 10,
    /// The result of a share consumer's acknowledgements.
    Acknowledged = 11,
}

/// One call of an exported function, on C's stack; `trampoline.c` has the same struct.
#[repr(C)]
pub(crate) struct CallbackLoop {
    /// The number of the [`RunningCall`]; 0 before the first callback and after the last.
    pub(crate) call: u64,
    /// The address of C's frame: addresses are lower in calls that are made from a callback.
    pub(crate) frame: *const c_void,
    pub(crate) progress: *mut ReportProgress,
    pub(crate) function: Option<unsafe extern "C" fn()>,
    pub(crate) rk: *mut rd_kafka_t,
    pub(crate) opaque: *mut c_void,
    pub(crate) pointer: *mut c_void,
    pub(crate) text: *const c_void,
    pub(crate) size: usize,
    pub(crate) kind: CallbackKind,
    pub(crate) number: c_int,
    /// The return value of a statistics callback.
    pub(crate) answer: c_int,
    pub(crate) broker: i32,
    pub(crate) number_result: isize,
    pub(crate) pointer_result: *mut c_void,
}

/// The return value of an exported function.
pub(crate) enum Returns {
    Number(isize),
    Pointer(*mut c_void),
}

impl Returns {
    pub(crate) fn code(code: rd_kafka_resp_err_t) -> Self {
        Self::Number(code as isize)
    }

    pub(crate) fn message(message: Option<OwnedMessage>) -> Self {
        Self::Pointer(message.map_or(null_mut(), OwnedMessage::into_raw).cast())
    }
}

/// The next step of a call.
pub(crate) enum Step {
    /// The application's function for this operation runs, if it has one.
    Op(Op),
    /// The function that the caller passed gets a message.
    Consume(OwnedMessage, ConsumeFunction, Opaque),
    /// The background thread's function gets an event.
    Event(OwnedEvent),
    Return(Returns),
}

pub(crate) type ConsumeFunction = unsafe extern "C" fn(*mut rd_kafka_message_t, *mut c_void);

/// The work of an exported function between its callbacks. It holds no lock while a callback runs.
pub(crate) trait Task {
    fn next(&mut self, handle: &Arc<Handle>) -> Step;

    /// The last step made `callbacks` calls.
    fn count(&mut self, _callbacks: usize) {}

    /// A callback called `rd_kafka_yield`: the function makes no further callbacks.
    fn yields(&mut self) {}

    /// A callback did not return: the function does not either.
    fn abandon(&mut self, _handle: &Arc<Handle>) {}
}

impl CallbackLoop {
    pub(crate) fn returns(&mut self, value: Returns) {
        self.kind = CallbackKind::None;
        match value {
            Returns::Number(number) => self.number_result = number,
            Returns::Pointer(pointer) => self.pointer_result = pointer,
        }
    }
}

/// Runs a task up to its first callback, or to its end.
pub(crate) fn start(state: &mut CallbackLoop, handle: Arc<Handle>, mut task: impl Task + 'static) {
    running_calls::abandon_deeper(state.frame);
    if let Some(held) = advance(state, &handle, &mut task) {
        running_calls::push(state, Box::new(RunningCall::new(state.frame, handle, Box::new(task), held)));
    }
}

/// Takes steps until one needs a callback.
fn advance(state: &mut CallbackLoop, handle: &Arc<Handle>, task: &mut (impl Task + ?Sized)) -> Option<Held> {
    loop {
        let prepared = match task.next(handle) {
            Step::Return(value) => {
                state.returns(value);
                return None;
            }
            Step::Consume(message, function, opaque) => {
                return Some(prepare_message(state, handle, message, function, opaque));
            }
            step => prepare(state, handle, step),
        };
        match prepared {
            Prepared::Callback(held) => return Some(held),
            Prepared::Served(count) => task.count(count),
        }
    }
}

called_from_c! {
    "ottla_next_callback" next_callback,
    "ottla_callback_left" callback_left,
}

/// The callback has returned: releases its arguments and prepares the next one.
#[on_panic(())]
unsafe extern "C" fn next_callback(state: *mut CallbackLoop) {
    // SAFETY: C's own struct, for the time of this call (`trampoline.c`, `run`).
    let state = unsafe { &mut *state };
    let kind = std::mem::replace(&mut state.kind, CallbackKind::None);
    let number = std::mem::take(&mut state.call);
    running_calls::resume(state, number, |call, state| {
        let Some(running) = &mut call.running else { return false };
        let Some(count) = call.held.after_callback(state) else {
            state.kind = kind;
            return true;
        };
        running.task.count(count);
        if std::mem::take(&mut call.yields) {
            running.task.yields();
        }
        match advance(state, &running.handle, &mut *running.task) {
            Some(held) => call.held = held,
            None => call.running = None,
        }
        call.running.is_some()
    });
}

/// An exception or `pthread_exit` leaves the loop.
#[on_panic(())]
unsafe extern "C" fn callback_left(state: *mut CallbackLoop) {
    // SAFETY: C's own struct, for the time of this call (`trampoline.c`, `leave`).
    let state = unsafe { &mut *state };
    drop(running_calls::take(std::mem::take(&mut state.call)));
}
