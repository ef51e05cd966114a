//! The simple consumer: partitions that are started and stopped one by one, without a group.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::Arc;

use ottla_client::{Error, TopicPartition};

use crate::codes::of as code_of;
use crate::consumer::{Consuming, ENGINE_TIMEOUT};
use crate::error::{set_last_error, set_last_error_and_errno};
use crate::ffi::*;
use crate::handle::Handle;
use crate::message::Owned;
use crate::panic::{calls_back, on_panic};
use crate::poll::next_message;
use crate::queue::{Queue, timeout_of};
use crate::queues::{each, fill};
use crate::topic::Topic;

/// What a function of the simple consumer is about.
struct Consumed {
    handle: Arc<Handle>,
    consuming: Arc<Consuming>,
    at: TopicPartition,
}

impl Consumed {
    unsafe fn of(rkt: *mut rd_kafka_topic_t, partition: i32) -> Option<Self> {
        // SAFETY: `rkt` is NULL or a topic from `rd_kafka_topic_new`, not yet destroyed (required by the C functions
        // that call this).
        let topic = unsafe { Topic::of(rkt) }?;
        let handle = topic.handle.clone().filter(|handle| handle.is_usable())?;
        let consuming = handle.consuming()?.clone();
        let at = TopicPartition { topic: topic.name.clone(), partition };
        (partition >= 0).then_some(Self { handle, consuming, at })
    }

    fn queue(&self) -> Arc<Queue> {
        self.consuming.queue_of(&self.at)
    }
}

/// Sets what the last error was, as this old part of the interface tells it.
fn refuse(code: rd_kafka_resp_err_t) -> c_int {
    let errno = match code {
        RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION => libc::ESRCH,
        RD_KAFKA_RESP_ERR__TIMED_OUT => libc::ETIMEDOUT,
        _ => libc::EINVAL,
    };
    set_last_error_and_errno(code, errno);
    -1
}

unsafe fn start(rkt: *mut rd_kafka_topic_t, partition: i32, offset: i64, to: Option<&Arc<Queue>>) -> c_int {
    // SAFETY: `rkt` is NULL or a topic from `rd_kafka_topic_new`, not yet destroyed (required by the C functions that
    // call this).
    let Some(consumed) = (unsafe { Consumed::of(rkt, partition) }) else {
        return refuse(RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION);
    };
    let Consumed { handle, consuming, at } = &consumed;
    let start = crate::lists::start(offset).or_else(|| crate::kafka_consumer::from_tail(handle, at, offset));
    let Some(start) = start else { return refuse(RD_KAFKA_RESP_ERR__INVALID_ARG) };
    // SAFETY: `rkt` is NULL or a topic from `rd_kafka_topic_new`, not yet destroyed (required by the C functions that
    // call this).
    let settings = unsafe { Topic::of(rkt) }.and_then(Topic::settings).cloned().unwrap_or_default();
    if let Err(error) = consuming.control.start_with(at, start, &settings).wait(ENGINE_TIMEOUT) {
        return refuse(match error {
            Error::Config(_) => RD_KAFKA_RESP_ERR__CONFLICT,
            other => code_of(&other),
        });
    }
    let queue = consumed.queue();
    queue.forward_to(to);
    consuming.forwarded(handle, &queue, to);
    0
}

#[on_panic(0)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_consume_start(
    rkt: *mut rd_kafka_topic_t,
    partition: i32,
    offset: i64,
) -> c_int {
    // SAFETY: `rkt` is NULL or a topic from `rd_kafka_topic_new`, not yet destroyed (rdkafka.h,
    // `rd_kafka_consume_start`).
    unsafe { start(rkt, partition, offset, None) }
}

#[on_panic(-1)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_consume_start_queue(
    rkt: *mut rd_kafka_topic_t,
    partition: i32,
    offset: i64,
    rkqu: *mut rd_kafka_queue_t,
) -> c_int {
    // SAFETY: `rkqu` is NULL or a queue of this library, not yet destroyed (rdkafka.h,
    // `rd_kafka_consume_start_queue`).
    match unsafe { rd_kafka_queue_t::of(rkqu) } {
        // SAFETY: `rkt` is NULL or a topic from `rd_kafka_topic_new`, not yet destroyed (rdkafka.h,
        // `rd_kafka_consume_start_queue`).
        Some(queue) => unsafe { start(rkt, partition, offset, Some(&queue.queue)) },
        None => refuse(RD_KAFKA_RESP_ERR__INVALID_ARG),
    }
}

#[on_panic(-1)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_consume_stop(rkt: *mut rd_kafka_topic_t, partition: i32) -> c_int {
    // SAFETY: `rkt` is NULL or a topic from `rd_kafka_topic_new`, not yet destroyed (rdkafka.h,
    // `rd_kafka_consume_stop`).
    let Some(Consumed { consuming, at, .. }) = (unsafe { Consumed::of(rkt, partition) }) else {
        return refuse(RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION);
    };
    match consuming.control.stop(&at).wait(ENGINE_TIMEOUT) {
        Ok(()) => {
            consuming.forget_queue(&at);
            0
        }
        Err(Error::NotAssigned { .. }) => refuse(RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION),
        Err(error) => refuse(code_of(&error)),
    }
}

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_seek(
    rkt: *mut rd_kafka_topic_t,
    partition: i32,
    offset: i64,
    _timeout_ms: c_int,
) -> rd_kafka_resp_err_t {
    // SAFETY: `rkt` is NULL or a topic from `rd_kafka_topic_new`, not yet destroyed (rdkafka.h, `rd_kafka_seek`).
    match unsafe { Consumed::of(rkt, partition) } {
        Some(consumed) => crate::kafka_consumer::seek(&consumed.consuming, &consumed.at, offset),
        None => RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION,
    }
}

#[calls_back]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn rd_kafka_consume(
    rkt: *mut rd_kafka_topic_t,
    partition: i32,
    timeout_ms: c_int,
) -> *mut rd_kafka_message_t {
    // SAFETY: `rkt` is NULL or a topic from `rd_kafka_topic_new`, not yet destroyed (rdkafka.h, `rd_kafka_consume`).
    let Some(consumed) = (unsafe { Consumed::of(rkt, partition) }) else {
        refuse(RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION);
        return null_mut();
    };
    if let Some(message) = next_message(&consumed.handle, &consumed.queue(), timeout_of(timeout_ms)) {
        Owned::into_raw(message)
    } else {
        set_last_error_and_errno(RD_KAFKA_RESP_ERR__TIMED_OUT, libc::ETIMEDOUT);
        null_mut()
    }
}

#[calls_back]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn rd_kafka_consume_batch(
    rkt: *mut rd_kafka_topic_t,
    partition: i32,
    timeout_ms: c_int,
    rkmessages: *mut *mut rd_kafka_message_t,
    rkmessages_size: usize,
) -> isize {
    // SAFETY: `rkt` is NULL or a topic from `rd_kafka_topic_new`, not yet destroyed (rdkafka.h,
    // `rd_kafka_consume_batch`).
    let Some(consumed) = (unsafe { Consumed::of(rkt, partition) }) else {
        refuse(RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION);
        return -1;
    };
    set_last_error(RD_KAFKA_RESP_ERR_NO_ERROR);
    // SAFETY: `rkmessages` points to `rkmessages_size` pointers to objects of its type (rdkafka.h,
    // `rd_kafka_consume_batch`).
    unsafe { fill(&consumed.handle, &consumed.queue(), timeout_ms, rkmessages, rkmessages_size) }
}

#[calls_back]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn rd_kafka_consume_callback(
    rkt: *mut rd_kafka_topic_t,
    partition: i32,
    timeout_ms: c_int,
    consume_cb: rd_kafka_consume_cb_t,
    commit_opaque: *mut c_void,
) -> c_int {
    // SAFETY: `rkt` is NULL or a topic from `rd_kafka_topic_new`, not yet destroyed (rdkafka.h,
    // `rd_kafka_consume_callback`).
    let (Some(consumed), Some(function)) = (unsafe { Consumed::of(rkt, partition) }, consume_cb) else {
        return refuse(RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION);
    };
    each(&consumed.handle, &consumed.queue(), timeout_ms, function, commit_opaque)
}
