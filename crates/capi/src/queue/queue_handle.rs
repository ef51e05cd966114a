//! `rd_kafka_queue_t` for C: handles on queues.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::{null_mut, slice_from_raw_parts};
use std::sync::Arc;

use ottla_client::TopicPartition;

use crate::client::handle::Handle;
use crate::ffi::c_strings::text;
use crate::ffi::panic::on_panic;
use crate::ffi::*;
use crate::handles::handle_table::{HandleKind, HandleTable, as_pointer};
use crate::handles::slot_table::InUse;
use crate::queue::op_queue::OpQueue;

/// C's type of a handle on a queue.
#[repr(C)]
pub struct rd_kafka_queue_t {
    _private: [u8; 0],
}

/// An open handle: its queue and its client. It keeps the client's memory, not the client.
pub(crate) struct OpenQueue {
    pub(crate) queue: Arc<OpQueue>,
    pub(crate) handle: Arc<Handle>,
    /// The queue is the application's, and ends with this handle.
    is_owner: bool,
    /// [`Handle::forks`] of the process that made it.
    forks: u32,
}

impl Drop for OpenQueue {
    /// The queue of a handle that was never given to the application ends too.
    fn drop(&mut self) {
        if self.is_owner {
            self.queue.close();
        }
    }
}

static QUEUES: HandleTable<OpenQueue> = HandleTable::new(HandleKind::Queue);

impl rd_kafka_queue_t {
    fn give(handle: &Arc<Handle>, queue: Arc<OpQueue>, is_owner: bool) -> *mut Self {
        let open = Arc::new(OpenQueue { queue, handle: handle.clone(), is_owner, forks: Handle::forks() });
        QUEUES.insert(open).map_or(null_mut(), as_pointer)
    }

    /// Returns the open handle of C's pointer; `None` in the child of a fork, because a thread that only the parent has may hold the
    /// lock of the queue. `function` is the name for the report about a destroyed one.
    #[inline]
    pub(crate) fn of(queue: *const Self, function: &str) -> Option<InUse<OpenQueue>> {
        QUEUES.find(queue, function).filter(|open| open.forks == Handle::forks())
    }
}

/// A handle on a queue that the client has.
fn get(
    rk: *mut rd_kafka_t,
    function: &str,
    which: impl FnOnce(&Arc<Handle>) -> Option<Arc<OpQueue>>,
) -> *mut rd_kafka_queue_t {
    let Some(handle) = Handle::shared(rk, function) else { return null_mut() };
    which(&handle).map_or(null_mut(), |queue| rd_kafka_queue_t::give(&handle, queue, false))
}

#[on_panic(null_mut())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_queue_new(rk: *mut rd_kafka_t) -> *mut rd_kafka_queue_t {
    let Some(handle) = Handle::shared(rk, FUNCTION) else { return null_mut() };
    rd_kafka_queue_t::give(&handle, OpQueue::new(), true)
}

#[on_panic(())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_queue_destroy(rkqu: *mut rd_kafka_queue_t) {
    if rkqu.is_null() {
        return;
    }
    let Some(open) = rd_kafka_queue_t::of(rkqu, FUNCTION) else { return };
    if QUEUES.retire(rkqu.addr() as u64) {
        // The application may free what its callback and its descriptor belong to, although other threads use the queue or
        // other queues are forwarded to it.
        if open.is_owner {
            open.queue.close();
        }
    } else {
        // Another thread destroyed it meanwhile.
        QUEUES.report_stale(rkqu.addr() as u64, FUNCTION);
    }
}

#[on_panic(null_mut())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_queue_get_main(rk: *mut rd_kafka_t) -> *mut rd_kafka_queue_t {
    get(rk, FUNCTION, |handle| Some(handle.main.clone()))
}

#[on_panic(null_mut())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_queue_get_consumer(rk: *mut rd_kafka_t) -> *mut rd_kafka_queue_t {
    get(rk, FUNCTION, |handle| Some(handle.group_consumer()?.queue.clone()))
}

#[on_panic(null_mut())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_queue_get_background(rk: *mut rd_kafka_t) -> *mut rd_kafka_queue_t {
    // Its thread starts now if no function for events has started it.
    get(rk, FUNCTION, |handle| Some(handle.background_or_start()))
}

#[on_panic(null_mut())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_queue_get_sasl(rk: *mut rd_kafka_t) -> *mut rd_kafka_queue_t {
    get(rk, FUNCTION, |handle| handle.sasl_queue())
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
    get(rk, FUNCTION, |handle| {
        Some(handle.consumer_state()?.queue_of(&TopicPartition::new(&name, partition)))
    })
}

#[on_panic(())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_queue_forward(src: *mut rd_kafka_queue_t, dst: *mut rd_kafka_queue_t) {
    let Some(src) = rd_kafka_queue_t::of(src, FUNCTION) else { return };
    let dst = rd_kafka_queue_t::of(dst, FUNCTION);
    let dst = dst.as_deref().map(|dst| &dst.queue);
    src.queue.forward_to(dst);
    if let Some(consuming) = src.handle.consumer_state() {
        consuming.forwarded(&src.handle, &src.queue, dst);
    }
}

#[on_panic(0)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_queue_length(rkqu: *mut rd_kafka_queue_t) -> usize {
    rd_kafka_queue_t::of(rkqu, FUNCTION).map_or(0, |queue| queue.queue.len())
}

#[on_panic(())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_queue_yield(rkqu: *mut rd_kafka_queue_t) {
    if let Some(queue) = rd_kafka_queue_t::of(rkqu, FUNCTION) {
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
    let Some(queue) = rd_kafka_queue_t::of(rkqu, FUNCTION) else { return };
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
    if let Some(queue) = rd_kafka_queue_t::of(rkqu, FUNCTION) {
        queue.queue.enable_call(event_cb, queue.handle.raw(), qev_opaque);
    }
}

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_set_log_queue(
    rk: *mut rd_kafka_t,
    rkqu: *mut rd_kafka_queue_t,
) -> rd_kafka_resp_err_t {
    let Some(handle) = Handle::of(rk, FUNCTION) else { return RD_KAFKA_RESP_ERR__INVALID_ARG };
    if !handle.config.log_queue {
        return RD_KAFKA_RESP_ERR__NOT_CONFIGURED;
    }
    let queue =
        rd_kafka_queue_t::of(rkqu, FUNCTION).map_or_else(|| handle.main.clone(), |queue| queue.queue.clone());
    handle.logs.set_queue(Some(queue));
    RD_KAFKA_RESP_ERR_NO_ERROR
}
