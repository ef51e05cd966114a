//! `rd_kafka_queue_t` for C: handles on queues.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::{null_mut, slice_from_raw_parts};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ottla_client::TopicPartition;

use crate::ffi::*;
use crate::handle::Handle;
use crate::message::Owned;
use crate::op::Op;
use crate::panic::{calls_back, guard, leaving, on_panic};
use crate::poll::{next_message, serve_all};
use crate::queue::{Queue, timeout_of};
use crate::remains::Remains;
use crate::text::text;

/// A handle on a queue, or what is left of a destroyed one.
pub struct rd_kafka_queue_t(Option<OpenQueue>);

/// What a handle on a queue stands for. It keeps the client's memory, not the client.
pub(crate) struct OpenQueue {
    pub(crate) queue: Arc<Queue>,
    pub(crate) handle: Arc<Handle>,
}

static REMAINS: Remains<Box<rd_kafka_queue_t>> = Remains::new();

impl rd_kafka_queue_t {
    fn give(handle: &Arc<Handle>, queue: Arc<Queue>) -> *mut Self {
        Box::into_raw(Box::new(Self(Some(OpenQueue { queue, handle: handle.clone() }))))
    }

    /// # Safety
    /// `queue` is NULL or one of ours that lives, or one of the last that were destroyed.
    pub(crate) unsafe fn of<'a>(queue: *const Self) -> Option<&'a OpenQueue> {
        // SAFETY: `queue` is NULL or an object of this library, not yet destroyed (the contract of this function,
        // above).
        unsafe { queue.as_ref() }?.0.as_ref()
    }
}

/// A handle on a queue that the client has.
unsafe fn get(
    rk: *mut rd_kafka_t,
    which: impl FnOnce(&Arc<Handle>) -> Option<Arc<Queue>>,
) -> *mut rd_kafka_queue_t {
    // SAFETY: `rk` is NULL or a handle from `rd_kafka_new`, not yet destroyed (required by the C functions that call
    // this).
    let Some(handle) = (unsafe { Handle::shared(rk) }) else { return null_mut() };
    which(&handle).map_or(null_mut(), |queue| rd_kafka_queue_t::give(&handle, queue))
}

#[on_panic(null_mut())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_queue_new(rk: *mut rd_kafka_t) -> *mut rd_kafka_queue_t {
    // SAFETY: `rk` is NULL or a handle from `rd_kafka_new`, not yet destroyed (rdkafka.h, `rd_kafka_queue_new`).
    unsafe { get(rk, |_| Some(Queue::new())) }
}

#[on_panic(())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_queue_destroy(rkqu: *mut rd_kafka_queue_t) {
    // SAFETY: `rkqu` is NULL or a queue of this library, not yet destroyed (rdkafka.h, `rd_kafka_queue_destroy`).
    let Some(open) = (unsafe { rkqu.as_mut() }).and_then(|queue| queue.0.take()) else { return };
    drop(open);
    // SAFETY: from `give`, and open until now: it is given back once.
    REMAINS.keep(unsafe { Box::from_raw(rkqu) });
}

#[on_panic(null_mut())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_queue_get_main(rk: *mut rd_kafka_t) -> *mut rd_kafka_queue_t {
    // SAFETY: `rk` is NULL or a handle from `rd_kafka_new`, not yet destroyed (rdkafka.h, `rd_kafka_queue_get_main`).
    unsafe { get(rk, |handle| Some(handle.main.clone())) }
}

#[on_panic(null_mut())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_queue_get_consumer(rk: *mut rd_kafka_t) -> *mut rd_kafka_queue_t {
    // SAFETY: `rk` is NULL or a handle from `rd_kafka_new`, not yet destroyed (rdkafka.h,
    // `rd_kafka_queue_get_consumer`).
    unsafe { get(rk, |handle| Some(handle.consuming()?.queue.clone())) }
}

#[on_panic(null_mut())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_queue_get_background(rk: *mut rd_kafka_t) -> *mut rd_kafka_queue_t {
    // SAFETY: `rk` is NULL or a handle from `rd_kafka_new`, not yet destroyed (rdkafka.h,
    // `rd_kafka_queue_get_background`).
    unsafe { get(rk, |handle| handle.background()) }
}

#[on_panic(null_mut())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_queue_get_sasl(rk: *mut rd_kafka_t) -> *mut rd_kafka_queue_t {
    // SAFETY: `rk` is NULL or a handle from `rd_kafka_new`, not yet destroyed (rdkafka.h, `rd_kafka_queue_get_sasl`).
    unsafe { get(rk, |handle| handle.sasl_queue()) }
}

#[on_panic(null_mut())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_queue_get_partition(
    rk: *mut rd_kafka_t,
    topic: *const c_char,
    partition: i32,
) -> *mut rd_kafka_queue_t {
    // SAFETY: `topic` is NULL or a C string (rdkafka.h, `rd_kafka_queue_get_partition`).
    let Some(name) = (unsafe { text(topic) }) else { return null_mut() };
    // SAFETY: `rk` is NULL or a handle from `rd_kafka_new`, not yet destroyed (rdkafka.h,
    // `rd_kafka_queue_get_partition`).
    unsafe { get(rk, |handle| Some(handle.consuming()?.queue_of(&TopicPartition::new(&name, partition)))) }
}

#[on_panic(())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_queue_forward(src: *mut rd_kafka_queue_t, dst: *mut rd_kafka_queue_t) {
    // SAFETY: `src` is NULL or a queue of this library, not yet destroyed (rdkafka.h, `rd_kafka_queue_forward`).
    let Some(src) = (unsafe { rd_kafka_queue_t::of(src) }) else { return };
    // SAFETY: `dst` is NULL or a queue of this library, not yet destroyed (rdkafka.h, `rd_kafka_queue_forward`).
    let dst = unsafe { rd_kafka_queue_t::of(dst) }.map(|dst| &dst.queue);
    src.queue.forward_to(dst);
    if let Some(consuming) = src.handle.consuming() {
        consuming.forwarded(&src.handle, &src.queue, dst);
    }
}

#[on_panic(0)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_queue_length(rkqu: *mut rd_kafka_queue_t) -> usize {
    // SAFETY: `rkqu` is NULL or a queue of this library, not yet destroyed (rdkafka.h, `rd_kafka_queue_length`).
    unsafe { rd_kafka_queue_t::of(rkqu) }.map_or(0, |queue| queue.queue.len())
}

#[on_panic(())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_queue_yield(rkqu: *mut rd_kafka_queue_t) {
    // SAFETY: `rkqu` is NULL or a queue of this library, not yet destroyed (rdkafka.h, `rd_kafka_queue_yield`).
    if let Some(queue) = unsafe { rd_kafka_queue_t::of(rkqu) } {
        queue.queue.yield_once();
    }
}

#[on_panic(())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_queue_io_event_enable(
    rkqu: *mut rd_kafka_queue_t,
    fd: c_int,
    payload: *const c_void,
    size: usize,
) {
    // SAFETY: `rkqu` is NULL or a queue of this library, not yet destroyed (rdkafka.h,
    // `rd_kafka_queue_io_event_enable`).
    let Some(queue) = (unsafe { rd_kafka_queue_t::of(rkqu) }) else { return };
    let io = (fd >= 0).then(|| {
        let bytes = if payload.is_null() {
            Vec::new()
        } else {
            // SAFETY: `payload` is NULL or points to `size` bytes (rdkafka.h, `rd_kafka_queue_io_event_enable`).
            unsafe { &*slice_from_raw_parts(payload.cast::<u8>(), size) }.to_vec()
        };
        (fd, bytes)
    });
    queue.queue.enable_io(io);
}

#[on_panic(())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_queue_cb_event_enable(
    rkqu: *mut rd_kafka_queue_t,
    event_cb: rd_kafka_queue_event_cb_t,
    qev_opaque: *mut c_void,
) {
    // SAFETY: `rkqu` is NULL or a queue of this library, not yet destroyed (rdkafka.h,
    // `rd_kafka_queue_cb_event_enable`).
    if let Some(queue) = unsafe { rd_kafka_queue_t::of(rkqu) } {
        queue.queue.enable_call(event_cb, queue.handle.as_raw(), qev_opaque);
    }
}

#[on_panic(null_mut())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_queue_poll(
    rkqu: *mut rd_kafka_queue_t,
    timeout_ms: c_int,
) -> *mut rd_kafka_event_t {
    // SAFETY: `rkqu` is NULL or a queue of this library, not yet destroyed (rdkafka.h, `rd_kafka_queue_poll`).
    let Some(queue) = (unsafe { rd_kafka_queue_t::of(rkqu) }) else { return null_mut() };
    let timeout = timeout_of(timeout_ms);
    let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let Some(op) = queue.queue.poll(left) else { return null_mut() };
        if let Some(event) = rd_kafka_event_t::of(&queue.handle, op) {
            return Box::into_raw(event);
        }
    }
}

#[calls_back]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn rd_kafka_queue_poll_callback(
    rkqu: *mut rd_kafka_queue_t,
    timeout_ms: c_int,
) -> c_int {
    // SAFETY: `rkqu` is NULL or a queue of this library, not yet destroyed (rdkafka.h,
    // `rd_kafka_queue_poll_callback`).
    let Some(queue) = (unsafe { rd_kafka_queue_t::of(rkqu) }) else { return 0 };
    let served = serve_all(&queue.handle, &queue.queue, timeout_of(timeout_ms));
    c_int::try_from(served).unwrap_or(c_int::MAX)
}

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_set_log_queue(
    rk: *mut rd_kafka_t,
    rkqu: *mut rd_kafka_queue_t,
) -> rd_kafka_resp_err_t {
    // SAFETY: `rk` is NULL or a handle from `rd_kafka_new`, not yet destroyed (rdkafka.h, `rd_kafka_set_log_queue`).
    let Some(handle) = (unsafe { Handle::of(rk) }) else { return RD_KAFKA_RESP_ERR__INVALID_ARG };
    if !handle.config.log_queue {
        return RD_KAFKA_RESP_ERR__NOT_CONFIGURED;
    }
    // SAFETY: `rkqu` is NULL or a queue of this library, not yet destroyed (rdkafka.h, `rd_kafka_set_log_queue`);
    // without a queue lines go to the main one.
    let queue = unsafe { rd_kafka_queue_t::of(rkqu) }
        .map_or_else(|| handle.main.clone(), |queue| queue.queue.clone());
    handle.logs.set_queue(Some(queue));
    RD_KAFKA_RESP_ERR_NO_ERROR
}

#[calls_back]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn rd_kafka_consume_queue(
    rkqu: *mut rd_kafka_queue_t,
    timeout_ms: c_int,
) -> *mut rd_kafka_message_t {
    // SAFETY: `rkqu` is NULL or a queue of this library, not yet destroyed (rdkafka.h, `rd_kafka_consume_queue`).
    let Some(queue) = (unsafe { rd_kafka_queue_t::of(rkqu) }) else { return null_mut() };
    next_message(&queue.handle, &queue.queue, timeout_of(timeout_ms)).map_or(null_mut(), Owned::into_raw)
}

#[calls_back]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn rd_kafka_consume_batch_queue(
    rkqu: *mut rd_kafka_queue_t,
    timeout_ms: c_int,
    rkmessages: *mut *mut rd_kafka_message_t,
    rkmessages_size: usize,
) -> isize {
    // SAFETY: `rkqu` is NULL or a queue of this library, not yet destroyed (rdkafka.h,
    // `rd_kafka_consume_batch_queue`).
    let Some(queue) = (unsafe { rd_kafka_queue_t::of(rkqu) }) else { return -1 };
    // SAFETY: `rkmessages` points to `rkmessages_size` pointers to objects of its type (rdkafka.h,
    // `rd_kafka_consume_batch_queue`).
    unsafe { fill(&queue.handle, &queue.queue, timeout_ms, rkmessages, rkmessages_size) }
}

/// Fills an array with messages, until it is full or the time is over.
///
/// # Safety
/// `messages` has room for `size` pointers.
pub(crate) unsafe fn fill(
    handle: &Arc<Handle>,
    queue: &Arc<Queue>,
    timeout_ms: c_int,
    messages: *mut *mut rd_kafka_message_t,
    size: usize,
) -> isize {
    let deadline = timeout_of(timeout_ms).and_then(|timeout| Instant::now().checked_add(timeout));
    if messages.is_null() || size == 0 {
        return 0;
    }
    // SAFETY: `messages` points to `size` pointers to objects of its type (the contract of this function, above).
    let out = unsafe { std::slice::from_raw_parts_mut(messages, size) };
    let mut count = 0;
    loop {
        count += guard(|| 0, || queue.fill(&mut out[count..]));
        if count == size {
            break;
        }
        // What there is comes without a look at the clock.
        let message = next_message(handle, queue, Some(Duration::ZERO)).or_else(|| {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            next_message(handle, queue, left)
        });
        let Some(message) = message else { break };
        out[count] = message.into_raw();
        count += 1;
        if count == size {
            break;
        }
    }
    isize::try_from(count).unwrap_or(isize::MAX)
}

#[calls_back]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn rd_kafka_consume_callback_queue(
    rkqu: *mut rd_kafka_queue_t,
    timeout_ms: c_int,
    consume_cb: rd_kafka_consume_cb_t,
    commit_opaque: *mut c_void,
) -> c_int {
    // SAFETY: `rkqu` is NULL or a queue of this library, not yet destroyed (rdkafka.h,
    // `rd_kafka_consume_callback_queue`).
    let (Some(queue), Some(function)) = (unsafe { rd_kafka_queue_t::of(rkqu) }, consume_cb) else {
        return -1;
    };
    each(&queue.handle, &queue.queue, timeout_ms, function, commit_opaque)
}

/// Calls `function` with each message there is; waits for the first.
pub(crate) fn each(
    handle: &Arc<Handle>,
    queue: &Arc<Queue>,
    timeout_ms: c_int,
    function: unsafe extern "C" fn(*mut rd_kafka_message_t, *mut c_void),
    opaque: *mut c_void,
) -> c_int {
    let max = handle.conf().consume_callback_max();
    let mut wait = timeout_of(timeout_ms);
    let mut count = 0;
    while max == 0 || count < max {
        let drawn = || queue.message().map(Op::Message).or_else(|| queue.poll(wait));
        let Some(op) = guard(|| None, drawn) else { break };
        match op {
            Op::Message(message) => {
                // SAFETY: the application's function, with what it was promised; the message lives meanwhile.
                unsafe {
                    leaving!(function, fn(*mut rd_kafka_message_t, *mut c_void))(message.as_raw(), opaque);
                };
                count += 1;
            }
            op => {
                crate::poll::serve(handle, op);
            }
        }
        wait = Some(Duration::ZERO);
    }
    c_int::try_from(count).unwrap_or(c_int::MAX)
}
