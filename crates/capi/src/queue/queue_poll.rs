//! `rd_kafka_queue_poll` and `rd_kafka_consume_*_queue`: queues that the application polls by their handle.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::Arc;
use std::time::Instant;

use crate::callbacks::trampoline::{CallbackLoop, Returns, Step, Task, start};
use crate::client::handle::Handle;
use crate::ffi::exported_from_c::{called_from_c, exported_from_c};
use crate::ffi::panic::on_panic;
use crate::ffi::*;
use crate::queue::event::Eventual;
use crate::queue::op::Opaque;
use crate::queue::op_queue::{OpQueue, timeout_of};
use crate::queue::poll::{EachMessage, FillArray, NextMessage, ServeAll, no_message};

/// Takes the next event of a queue. Operations that are no events run their callbacks.
struct NextEvent {
    queue: Arc<OpQueue>,
    deadline: Option<Instant>,
    yielded: bool,
}

impl Task for NextEvent {
    fn next(&mut self, handle: &Arc<Handle>) -> Step {
        if self.yielded {
            return Step::Return(Returns::Pointer(null_mut()));
        }
        let left = self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let Some(op) = self.queue.poll(left) else { return Step::Return(Returns::Pointer(null_mut())) };
        match rd_kafka_event_t::of(handle, op) {
            Eventual::Event(event) => Step::Return(Returns::Pointer(event.into_raw().cast())),
            Eventual::Callback(op) => Step::Op(op),
        }
    }

    fn yields(&mut self) {
        self.yielded = true;
    }
}

exported_from_c! {
    fn rd_kafka_queue_poll(rkqu: *mut rd_kafka_queue_t, timeout_ms: c_int) -> *mut rd_kafka_event_t = ottla_queue_poll;
    fn rd_kafka_queue_poll_callback(rkqu: *mut rd_kafka_queue_t, timeout_ms: c_int) -> c_int = ottla_queue_poll_callback;
    fn rd_kafka_consume_queue(
        rkqu: *mut rd_kafka_queue_t,
        timeout_ms: c_int
    ) -> *mut rd_kafka_message_t = ottla_consume_queue;
    fn rd_kafka_consume_batch_queue(
        rkqu: *mut rd_kafka_queue_t,
        timeout_ms: c_int,
        rkmessages: *mut *mut rd_kafka_message_t,
        rkmessages_size: usize
    ) -> isize = ottla_consume_batch_queue;
    fn rd_kafka_consume_callback_queue(
        rkqu: *mut rd_kafka_queue_t,
        timeout_ms: c_int,
        consume_cb: rd_kafka_consume_cb_t,
        commit_opaque: *mut c_void
    ) -> c_int = ottla_consume_callback_queue;
}

called_from_c! {
    "ottla_begin_queue_poll" begin_queue_poll,
    "ottla_begin_queue_poll_callback" begin_queue_poll_callback,
    "ottla_begin_consume_queue" begin_consume_queue,
    "ottla_begin_consume_batch_queue" begin_consume_batch_queue,
    "ottla_begin_consume_callback_queue" begin_consume_callback_queue,
}

/// Starts a task on a queue. Returns `false` if the queue is destroyed: `state` keeps its return value.
///
/// # Safety
/// `state` is C's own struct.
unsafe fn start_on<T: Task + 'static>(
    state: *mut CallbackLoop,
    rkqu: *mut rd_kafka_queue_t,
    function: &str,
    task: impl FnOnce(&Handle, Arc<OpQueue>) -> T,
) -> bool {
    // The call may wait, and another thread may destroy the queue meanwhile.
    let open = rd_kafka_queue_t::of(rkqu, function).map(|open| (open.handle.clone(), open.queue.clone()));
    let Some((handle, queue)) = open else { return false };
    let task = task(&handle, queue);
    // SAFETY: the contract of this function, above.
    start(unsafe { &mut *state }, handle, task);
    true
}

#[on_panic(())]
unsafe extern "C" fn begin_queue_poll(
    state: *mut CallbackLoop,
    rkqu: *mut rd_kafka_queue_t,
    timeout_ms: c_int,
) {
    let deadline = timeout_of(timeout_ms).and_then(|timeout| Instant::now().checked_add(timeout));
    // SAFETY: C's own struct, for the time of this call (`trampoline.c`).
    unsafe { start_on(state, rkqu, FUNCTION, |_, queue| NextEvent { queue, deadline, yielded: false }) };
}

#[on_panic(())]
unsafe extern "C" fn begin_queue_poll_callback(
    state: *mut CallbackLoop,
    rkqu: *mut rd_kafka_queue_t,
    timeout_ms: c_int,
) {
    // SAFETY: C's own struct, for the time of this call (`trampoline.c`).
    unsafe { start_on(state, rkqu, FUNCTION, |_, queue| ServeAll::new(queue, timeout_of(timeout_ms))) };
}

#[on_panic(())]
unsafe extern "C" fn begin_consume_queue(
    state: *mut CallbackLoop,
    rkqu: *mut rd_kafka_queue_t,
    timeout_ms: c_int,
) {
    // SAFETY: C's own struct, for the time of this call (`trampoline.c`).
    let is_open = unsafe {
        start_on(state, rkqu, FUNCTION, |_, queue| NextMessage::new(queue, timeout_of(timeout_ms)))
    };
    if !is_open {
        no_message();
    }
}

#[on_panic(())]
unsafe extern "C" fn begin_consume_batch_queue(
    state: *mut CallbackLoop,
    rkqu: *mut rd_kafka_queue_t,
    timeout_ms: c_int,
    rkmessages: *mut *mut rd_kafka_message_t,
    rkmessages_size: usize,
) {
    // SAFETY: C's own struct, for the time of this call (`trampoline.c`). `rkmessages` points to `rkmessages_size`
    // pointers (rdkafka.h, `rd_kafka_consume_batch_queue`).
    unsafe {
        (*state).number_result = -1;
        start_on(state, rkqu, FUNCTION, |_, queue| {
            FillArray::new(queue, timeout_ms, rkmessages, rkmessages_size)
        });
    }
}

#[on_panic(())]
unsafe extern "C" fn begin_consume_callback_queue(
    state: *mut CallbackLoop,
    rkqu: *mut rd_kafka_queue_t,
    timeout_ms: c_int,
    consume_cb: rd_kafka_consume_cb_t,
    commit_opaque: *mut c_void,
) {
    // SAFETY: C's own struct, for the time of this call (`trampoline.c`).
    unsafe { (*state).number_result = -1 };
    let Some(function) = consume_cb else { return };
    let (wait, opaque) = (timeout_of(timeout_ms), Opaque(commit_opaque));
    // SAFETY: C's own struct, for the time of this call (`trampoline.c`).
    unsafe {
        start_on(state, rkqu, FUNCTION, |_, queue| {
            // As in the original, `consume.callback.max.messages` limits only the calls for a partition.
            EachMessage { queue, wait, function, opaque, max: 0, count: 0, yielded: false, source: None }
        });
    }
}
