//! `rd_kafka_queue_t` for C: handles on queues.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::{null_mut, slice_from_raw_parts};
use std::sync::Arc;

use ottla_client::TopicPartition;

use crate::client::destroyed_handles::DestroyedHandles;
use crate::client::handle::Handle;
use crate::ffi::c_strings::text;
use crate::ffi::panic::on_panic;
use crate::ffi::*;
use crate::queue::op_queue::OpQueue;

/// A handle on a queue, or what is left of a destroyed one.
pub struct rd_kafka_queue_t(Option<OpenQueue>);

/// An open handle: its queue and its client. It keeps the client's memory, not the client.
pub(crate) struct OpenQueue {
    pub(crate) queue: Arc<OpQueue>,
    pub(crate) handle: Arc<Handle>,
}

static DESTROYED_HANDLES: DestroyedHandles<Box<rd_kafka_queue_t>> = DestroyedHandles::new();

impl rd_kafka_queue_t {
    fn give(handle: &Arc<Handle>, queue: Arc<OpQueue>) -> *mut Self {
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
    which: impl FnOnce(&Arc<Handle>) -> Option<Arc<OpQueue>>,
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
    unsafe { get(rk, |_| Some(OpQueue::new())) }
}

#[on_panic(())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_queue_destroy(rkqu: *mut rd_kafka_queue_t) {
    // SAFETY: `rkqu` is NULL or a queue of this library, not yet destroyed (rdkafka.h, `rd_kafka_queue_destroy`).
    let Some(open) = (unsafe { rkqu.as_mut() }).and_then(|queue| queue.0.take()) else { return };
    drop(open);
    // SAFETY: from `give`, and open until now: it is given back once.
    DESTROYED_HANDLES.keep(unsafe { Box::from_raw(rkqu) });
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
    unsafe { get(rk, |handle| Some(handle.consumer_state()?.queue.clone())) }
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
    unsafe {
        get(rk, |handle| Some(handle.consumer_state()?.queue_of(&TopicPartition::new(&name, partition))))
    }
}

#[on_panic(())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_queue_forward(src: *mut rd_kafka_queue_t, dst: *mut rd_kafka_queue_t) {
    // SAFETY: `src` is NULL or a queue of this library, not yet destroyed (rdkafka.h, `rd_kafka_queue_forward`).
    let Some(src) = (unsafe { rd_kafka_queue_t::of(src) }) else { return };
    // SAFETY: `dst` is NULL or a queue of this library, not yet destroyed (rdkafka.h, `rd_kafka_queue_forward`).
    let dst = unsafe { rd_kafka_queue_t::of(dst) }.map(|dst| &dst.queue);
    src.queue.forward_to(dst);
    if let Some(consuming) = src.handle.consumer_state() {
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
