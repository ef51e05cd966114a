//! Serving: what waits in a queue is given to the application's functions, in the thread that polls.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::ffi::*;
use crate::handle::Handle;
use crate::lists::{self, OwnedList};
use crate::message::Owned;
use crate::op::{Committed, Op};
use crate::panic::{calls_back, guard, leaving, on_panic};
use crate::producer::{Delivery, Malloced, drop_report};
use crate::queue::{Queue, timeout_of};

/// One poll serves so many operations at most: it returns although more keeps coming.
const SERVED_MAX: usize = 10_000;

/// Gives an operation to whoever is to be called for it; says with how many calls. A record that nobody is called for is
/// lost. The functions may leave by an exception, so that callers give back what they hold by `Drop`.
pub(crate) fn serve(handle: &Arc<Handle>, op: Op) -> usize {
    let rk = handle.as_raw();
    let callbacks = &handle.callbacks;
    let opaque = callbacks.opaque;
    // SAFETY, of all calls here: the application's functions, with what they were promised, in the thread that polls.
    match op {
        Op::Delivered { report, done } => {
            if let Some(function) = callbacks.dr_msg {
                // SAFETY: as said above.
                let function = unsafe {
                    leaving!(function, fn(*mut rd_kafka_t, *const rd_kafka_message_t, *mut c_void))
                };
                // SAFETY: as said above.
                return Delivery::new(handle, report, done)
                    .each(|slot| unsafe { function(rk, slot.as_raw(), opaque) });
            }
            if let Some(function) = callbacks.dr {
                return Delivery::new(handle, report, done).each(|slot| {
                    // SAFETY: as said above; the message lives here.
                    unsafe {
                        let message = &*slot.as_raw();
                        let function = leaving!(
                            function,
                            fn(
                                *mut rd_kafka_t,
                                *mut c_void,
                                usize,
                                rd_kafka_resp_err_t,
                                *mut c_void,
                                *mut c_void,
                            )
                        );
                        function(rk, message.payload, message.len, message.err, opaque, message._private);
                    }
                });
            }
            if handle.hooking.get().is_some() {
                Delivery::new(handle, report, done).each(|_| {});
            } else {
                drop_report(&report, done);
            }
            0
        }
        Op::Rebalance { err, partitions, lost } => {
            if let Some(consuming) = handle.consuming() {
                consuming.lost.store(lost, std::sync::atomic::Ordering::Relaxed);
            }
            let list = OwnedList(lists::bare(&partitions));
            match callbacks.rebalance {
                // SAFETY: as said above.
                Some(function) => unsafe {
                    leaving!(
                        function,
                        fn(
                            *mut rd_kafka_t,
                            rd_kafka_resp_err_t,
                            *mut rd_kafka_topic_partition_list_t,
                            *mut c_void,
                        )
                    )(rk, err, list.0, opaque);
                },
                // Who reads events and did not read this one gives everything up.
                None => {
                    guard(|| (), || crate::kafka_consumer::assign_nothing(handle));
                }
            }
            1
        }
        Op::Committed(Committed { err, offsets, call }) => {
            let list = OwnedList(lists::with_offsets(&offsets, err));
            match (call, callbacks.offset_commit) {
                // SAFETY: as said above.
                (Some((function, opaque)), _) => unsafe {
                    leaving!(
                        function,
                        fn(
                            *mut rd_kafka_t,
                            rd_kafka_resp_err_t,
                            *mut rd_kafka_topic_partition_list_t,
                            *mut c_void,
                        )
                    )(rk, err, list.0, opaque.0);
                },
                // SAFETY: as said above.
                (None, Some(function)) => unsafe {
                    leaving!(
                        function,
                        fn(
                            *mut rd_kafka_t,
                            rd_kafka_resp_err_t,
                            *mut rd_kafka_topic_partition_list_t,
                            *mut c_void,
                        )
                    )(rk, err, list.0, opaque);
                },
                (None, None) => return 0,
            }
            1
        }
        Op::Error { code, text, .. } => {
            let Some(function) = callbacks.error else { return 0 };
            // SAFETY: as said above.
            unsafe {
                leaving!(function, fn(*mut rd_kafka_t, c_int, *const c_char, *mut c_void))(
                    rk,
                    code,
                    text.as_ptr(),
                    opaque,
                );
            }
            1
        }
        Op::Throttled(told) => {
            let Some(function) = callbacks.throttle else { return 0 };
            let broker = crate::text::c_string(&format!("{}/{}", told.broker, told.node));
            // SAFETY: as said above.
            unsafe {
                leaving!(function, fn(*mut rd_kafka_t, *const c_char, i32, c_int, *mut c_void))(
                    rk,
                    broker.as_ptr(),
                    told.node,
                    told.throttle_ms,
                    opaque,
                );
            }
            1
        }
        Op::Stats(json) => {
            let Some(function) = callbacks.stats else { return 0 };
            let len = json.as_bytes().len();
            // The function may keep the text by returning 1, and frees it then.
            let copy = Malloced(crate::text::malloced(&json).cast());
            // SAFETY: as said above.
            let keeps = unsafe {
                leaving!(function, fn(*mut rd_kafka_t, *mut c_char, usize, *mut c_void) -> c_int)(
                    rk,
                    copy.0.cast(),
                    len,
                    opaque,
                )
            };
            if keeps != 0 {
                std::mem::forget(copy);
            }
            1
        }
        Op::Log(line) => usize::from(handle.logs.call(handle, &line)),
        Op::TokenWanted(config) => {
            let Some(function) = callbacks.oauthbearer_token_refresh else { return 0 };
            // SAFETY: as said above.
            unsafe {
                leaving!(function, fn(*mut rd_kafka_t, *const c_char, *mut c_void))(
                    rk,
                    config.as_ptr(),
                    opaque,
                );
            };
            1
        }
        Op::Message(message) => {
            let Some(function) = callbacks.consume else { return 0 };
            // SAFETY: as said above; the message lives until the end of this.
            unsafe { leaving!(function, fn(*mut rd_kafka_message_t, *mut c_void))(message.as_raw(), opaque) };
            1
        }
        Op::Result(_) => 0,
        #[cfg(test)]
        Op::Nothing => 0,
    }
}

/// Serves all that waits; waits for the first for `timeout` at most.
pub(crate) fn serve_all(handle: &Arc<Handle>, queue: &Arc<Queue>, timeout: Option<Duration>) -> usize {
    let mut served = 0;
    let mut wait = timeout;
    for _ in 0..SERVED_MAX {
        let Some(op) = guard(|| None, || queue.poll(wait)) else { break };
        served += serve(handle, op);
        wait = Some(Duration::ZERO);
    }
    served
}

/// The next message of a queue; everything else is served on the way.
pub(crate) fn next_message(
    handle: &Arc<Handle>,
    queue: &Arc<Queue>,
    timeout: Option<Duration>,
) -> Option<Owned> {
    if let Some(message) = guard(|| None, || queue.message()) {
        return Some(message);
    }
    let mut wait = timeout;
    let mut deadline = None;
    loop {
        match guard(|| None, || queue.poll(wait))? {
            Op::Message(message) => return Some(message),
            op => {
                serve(handle, op);
            }
        }
        if let Some(timeout) = timeout.filter(|timeout| !timeout.is_zero()) {
            let end = *deadline.get_or_insert_with(|| Instant::now() + timeout);
            wait = Some(end.saturating_duration_since(Instant::now()));
        }
    }
}

#[calls_back]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn rd_kafka_poll(rk: *mut rd_kafka_t, timeout_ms: c_int) -> c_int {
    // SAFETY: `rk` is NULL or a handle from `rd_kafka_new`, not yet destroyed (rdkafka.h, `rd_kafka_poll`).
    let Some(handle) = guard(|| None, || unsafe { Handle::shared(rk) }) else { return 0 };
    let served = serve_all(&handle, &handle.main, timeout_of(timeout_ms));
    c_int::try_from(served).unwrap_or(c_int::MAX)
}

#[on_panic(())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_yield(rk: *mut rd_kafka_t) {
    // SAFETY: `rk` is NULL or a handle from `rd_kafka_new`, not yet destroyed (rdkafka.h, `rd_kafka_yield`).
    if let Some(handle) = unsafe { Handle::of(rk) } {
        handle.main.yield_once();
    }
}

#[calls_back]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn rd_kafka_consumer_poll(
    rk: *mut rd_kafka_t,
    timeout_ms: c_int,
) -> *mut rd_kafka_message_t {
    // SAFETY: `rk` is NULL or a handle from `rd_kafka_new`, not yet destroyed (rdkafka.h, `rd_kafka_consumer_poll`).
    match guard(|| Fetched::Message(null_mut()), || unsafe { fetched(rk) }) {
        Fetched::Message(message) => message,
        Fetched::Nothing(handle, queue) => {
            next_message(&handle, &queue, timeout_of(timeout_ms)).map_or(null_mut(), Owned::into_raw)
        }
    }
}

/// What a consumer has without waiting.
enum Fetched {
    /// A message, or NULL where the poll ends.
    Message(*mut rd_kafka_message_t),
    /// Nothing yet: the poll waits at this queue.
    Nothing(Arc<Handle>, Arc<Queue>),
}

/// # Safety
/// As of [`Handle::of`].
#[inline]
unsafe fn fetched(rk: *mut rd_kafka_t) -> Fetched {
    // SAFETY: passed on.
    let Some(consuming) = (unsafe { Handle::of(rk) }).and_then(Handle::consuming) else {
        crate::error::set_last_error(RD_KAFKA_RESP_ERR__UNKNOWN_GROUP);
        return Fetched::Message(null_mut());
    };
    if let Some(message) = consuming.queue.message() {
        return Fetched::Message(message.into_raw());
    }
    // SAFETY: passed on.
    let Some(handle) = (unsafe { Handle::shared(rk) }) else { return Fetched::Message(null_mut()) };
    if consuming.is_closed() {
        return Fetched::Message(null_mut());
    }
    Fetched::Nothing(handle, consuming.queue.clone())
}

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_poll_set_consumer(rk: *mut rd_kafka_t) -> rd_kafka_resp_err_t {
    // SAFETY: `rk` is NULL or a handle from `rd_kafka_new`, not yet destroyed (rdkafka.h,
    // `rd_kafka_poll_set_consumer`).
    let Some(handle) = (unsafe { Handle::of(rk) }) else { return RD_KAFKA_RESP_ERR__INVALID_ARG };
    let Some(consuming) = handle.consuming() else { return RD_KAFKA_RESP_ERR__UNKNOWN_GROUP };
    handle.main.forward_to(Some(&consuming.queue));
    RD_KAFKA_RESP_ERR_NO_ERROR
}
