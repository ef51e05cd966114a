//! `rd_kafka_poll` and `rd_kafka_consumer_poll`: the operations of a queue run the application's functions, in the thread
//! that polls.

use std::ffi::c_int;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::callbacks::running_calls;
use crate::callbacks::trampoline::{CallbackLoop, ConsumeFunction, Returns, Step, Task, start};
use crate::client::handle::Handle;
use crate::errors::error_object::{description, set_last_error, set_last_error_and_errno};
use crate::ffi::exported_from_c::{called_from_c, exported_from_c};
use crate::ffi::panic::on_panic;
use crate::ffi::*;
use crate::messages::message::OwnedMessage;
use crate::queue::message_array::MessageArray;
use crate::queue::op::{Op, Opaque};
use crate::queue::op_queue::{Filled, OpQueue, OpSource, timeout_of};

/// One poll serves at most this many operations, so that it returns while more keep arriving.
pub(crate) const OPS_PER_POLL_MAX: usize = 10_000;

/// Serves all operations of a queue; waits for the first. Returns the number of callbacks.
pub(crate) struct ServeAll {
    queue: Arc<OpQueue>,
    wait: Option<Duration>,
    ops_left: usize,
    callbacks: usize,
}

impl ServeAll {
    pub(crate) fn new(queue: Arc<OpQueue>, timeout: Option<Duration>) -> Self {
        Self { queue, wait: timeout, ops_left: OPS_PER_POLL_MAX, callbacks: 0 }
    }
}

impl Task for ServeAll {
    fn next(&mut self, _handle: &Arc<Handle>) -> Step {
        if self.ops_left > 0 {
            self.ops_left -= 1;
            let op = self.queue.poll(self.wait);
            self.wait = Some(Duration::ZERO);
            if let Some(op) = op {
                return Step::Op(op);
            }
        }
        Step::Return(Returns::Number(c_int::try_from(self.callbacks).unwrap_or(c_int::MAX) as isize))
    }

    fn count(&mut self, callbacks: usize) {
        self.callbacks += callbacks;
    }

    fn yields(&mut self) {
        self.ops_left = 0;
    }
}

/// Takes the next message of a queue and serves the operations before it.
pub(crate) struct NextMessage {
    queue: Arc<OpQueue>,
    timeout: Option<Duration>,
    /// Set by the first operation that is no message.
    deadline: Option<Instant>,
    looked: bool,
    yielded: bool,
}

pub(crate) enum MessageStep {
    Op(Op),
    Message(OwnedMessage),
    TimedOut,
}

impl NextMessage {
    pub(crate) fn new(queue: Arc<OpQueue>, timeout: Option<Duration>) -> Self {
        Self { queue, timeout, deadline: None, looked: false, yielded: false }
    }

    pub(crate) fn next(&mut self) -> MessageStep {
        if self.yielded {
            return MessageStep::TimedOut;
        }
        if !self.looked {
            self.looked = true;
            if let Some(message) = self.queue.message() {
                return MessageStep::Message(message);
            }
        }
        let wait = match self.deadline {
            Some(deadline) => Some(deadline.saturating_duration_since(Instant::now())),
            None => self.timeout,
        };
        match self.queue.poll(wait) {
            Some(Op::Message(message)) => MessageStep::Message(message),
            Some(op) => {
                if let Some(timeout) = self.timeout.filter(|timeout| !timeout.is_zero()) {
                    self.deadline.get_or_insert_with(|| Instant::now() + timeout);
                }
                MessageStep::Op(op)
            }
            None => MessageStep::TimedOut,
        }
    }
}

/// Returns a message, and resets the thread's last error.
pub(crate) fn found(message: OwnedMessage) -> Returns {
    set_last_error(RD_KAFKA_RESP_ERR_NO_ERROR);
    Returns::message(Some(message))
}

/// Sets the thread's last error for a call that has no message within its timeout.
pub(crate) fn no_message() {
    set_last_error_and_errno(RD_KAFKA_RESP_ERR__TIMED_OUT, libc::ETIMEDOUT);
}

/// Without a message, the thread's last error says why.
impl Task for NextMessage {
    fn next(&mut self, _handle: &Arc<Handle>) -> Step {
        match Self::next(self) {
            MessageStep::Op(op) => Step::Op(op),
            MessageStep::Message(message) => Step::Return(found(message)),
            MessageStep::TimedOut => {
                if self.yielded {
                    set_last_error_and_errno(RD_KAFKA_RESP_ERR__INTR, libc::EINTR);
                } else {
                    no_message();
                }
                Step::Return(Returns::message(None))
            }
        }
    }

    fn yields(&mut self) {
        self.yielded = true;
    }
}

/// Fills an array of the application with messages, until it is full or the timeout expires.
pub(crate) struct FillArray {
    queue: Arc<OpQueue>,
    deadline: Option<Instant>,
    array: MessageArray,
}

impl FillArray {
    /// # Safety
    /// `messages` is NULL or points to `size` pointers for the time of the task.
    pub(crate) unsafe fn new(
        queue: Arc<OpQueue>,
        timeout_ms: c_int,
        messages: *mut *mut rd_kafka_message_t,
        size: usize,
    ) -> Self {
        let deadline = timeout_of(timeout_ms).and_then(|timeout| Instant::now().checked_add(timeout));
        // SAFETY: the contract of this function, above.
        let array = unsafe { MessageArray::new(messages, size) };
        Self { queue, deadline, array }
    }
}

impl Task for FillArray {
    fn next(&mut self, handle: &Arc<Handle>) -> Step {
        while self.array.has_room() {
            // Messages that are there need no look at the clock.
            let filled = self.queue.poll_array(Some(Duration::ZERO), &mut self.array).or_else(|| {
                let left = self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
                self.queue.poll_array(left, &mut self.array)
            });
            match filled {
                Some(Filled::Op(op)) => return Step::Op(op),
                // Messages that a seek or a revocation has made void leave their places to the ones after it.
                Some(Filled::Messages) => self.array.drop_outdated(),
                None => break,
            }
        }
        let count = self.array.settle(handle.consumer_state().map(|consumer| &consumer.control));
        Step::Return(Returns::Number(isize::try_from(count).unwrap_or(isize::MAX)))
    }

    fn yields(&mut self) {
        self.array.stop();
    }
}

/// Calls a function with each message of a queue; waits for the first. Returns the number of messages.
pub(crate) struct EachMessage {
    pub(crate) queue: Arc<OpQueue>,
    pub(crate) wait: Option<Duration>,
    pub(crate) function: ConsumeFunction,
    pub(crate) opaque: Opaque,
    /// `consume.callback.max.messages`; 0 is no limit.
    pub(crate) max: usize,
    pub(crate) count: usize,
    pub(crate) yielded: bool,
    /// The source of the last message.
    pub(crate) source: Option<Arc<dyn OpSource>>,
}

impl Task for EachMessage {
    fn next(&mut self, _handle: &Arc<Handle>) -> Step {
        if !self.yielded && (self.max == 0 || self.count < self.max) {
            let wait = self.wait.replace(Duration::ZERO);
            if let Some(message) = self.queue.message_of(&mut self.source) {
                self.count += 1;
                return Step::Consume(message, self.function, self.opaque);
            }
            match self.queue.poll(wait) {
                Some(Op::Message(message)) => {
                    self.count += 1;
                    return Step::Consume(message, self.function, self.opaque);
                }
                Some(op) => return Step::Op(op),
                None => {}
            }
        }
        Step::Return(Returns::Number(c_int::try_from(self.count).unwrap_or(c_int::MAX) as isize))
    }

    fn yields(&mut self) {
        self.yielded = true;
    }
}

exported_from_c! {
    fn rd_kafka_poll(rk: *mut rd_kafka_t, timeout_ms: c_int) -> c_int = ottla_poll;
    fn rd_kafka_consumer_poll(rk: *mut rd_kafka_t, timeout_ms: c_int) -> *mut rd_kafka_message_t = ottla_consumer_poll;
}

called_from_c! {
    "ottla_begin_poll" begin_poll,
    "ottla_begin_consumer_poll" begin_consumer_poll,
}

#[on_panic(())]
unsafe extern "C" fn begin_poll(state: *mut CallbackLoop, rk: *mut rd_kafka_t, timeout_ms: c_int) {
    let Some(handle) = Handle::shared(rk, FUNCTION) else { return };
    let poll = ServeAll::new(handle.main.clone(), timeout_of(timeout_ms));
    // SAFETY: C's own struct, for the time of this call (`trampoline.c`).
    start(unsafe { &mut *state }, handle, poll);
}

#[on_panic(())]
unsafe extern "C" fn begin_consumer_poll(state: *mut CallbackLoop, rk: *mut rd_kafka_t, timeout_ms: c_int) {
    // SAFETY: C's own struct, for the time of this call (`trampoline.c`).
    let state = unsafe { &mut *state };
    let code = RD_KAFKA_RESP_ERR__UNKNOWN_GROUP;
    let Some(used) = Handle::of(rk, FUNCTION) else { return set_last_error(code) };
    let Some(consumer) = used.group_consumer() else {
        // As in the original.
        let text = description(code).to_string_lossy();
        let error = OwnedMessage::error(code, &text, None, RD_KAFKA_PARTITION_UA, RD_KAFKA_OFFSET_INVALID);
        return state.returns(Returns::message(Some(error)));
    };
    if let Some(message) = consumer.queue.message() {
        return state.returns(found(message));
    }
    if consumer.is_closed() {
        return no_message();
    }
    let poll = NextMessage::new(consumer.queue.clone(), timeout_of(timeout_ms));
    // The call may wait, and another thread may destroy the client meanwhile.
    start(state, used.shared(), poll);
}

#[on_panic(())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_yield(rk: *mut rd_kafka_t) {
    // A callback need not name its client. Programs pass NULL.
    if running_calls::yield_innermost() {
        return;
    }
    if let Some(handle) = Handle::of(rk, FUNCTION) {
        handle.main.yield_once();
    }
}

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_poll_set_consumer(rk: *mut rd_kafka_t) -> rd_kafka_resp_err_t {
    let Some(handle) = Handle::of(rk, FUNCTION) else { return RD_KAFKA_RESP_ERR__INVALID_ARG };
    let Some(consuming) = handle.group_consumer() else { return RD_KAFKA_RESP_ERR__UNKNOWN_GROUP };
    handle.main.forward_to(Some(&consuming.queue));
    RD_KAFKA_RESP_ERR_NO_ERROR
}
