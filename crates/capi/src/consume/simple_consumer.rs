//! The simple consumer: partitions that are started and stopped one by one, without a group.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use ottla_client::{Error, TopicPartition};

use crate::callbacks::trampoline::{CallbackLoop, start};
use crate::client::handle::Handle;
use crate::client::topic_handle::{Topic, TopicState};
use crate::consume::consumer_state::{ConsumerState, ENGINE_TIMEOUT};
use crate::consume::group_consumer::is_in_metadata;
use crate::errors::error_mapping::of as code_of;
use crate::errors::error_object::{set_last_error, set_last_error_and_errno};
use crate::ffi::exported_from_c::{called_from_c, exported_from_c};
use crate::ffi::panic::on_panic;
use crate::ffi::*;
use crate::queue::op::Opaque;
use crate::queue::op_queue::{OpQueue, timeout_of};
use crate::queue::poll::{EachMessage, FillArray, NextMessage, found};

/// The partition that a function of the simple consumer names.
struct SimplePartition {
    handle: Arc<Handle>,
    consuming: Arc<ConsumerState>,
    at: TopicPartition,
}

impl SimplePartition {
    fn of(rkt: *mut rd_kafka_topic_t, partition: i32, function: &str) -> Option<Self> {
        let topic = Topic::of(rkt, function)?;
        let handle = topic.handle.clone().filter(|handle| handle.is_usable())?;
        let consuming = handle.consumer_state()?.clone();
        let at = TopicPartition { topic: topic.name.clone(), partition };
        (partition >= 0).then_some(Self { handle, consuming, at })
    }

    fn queue(&self) -> Arc<OpQueue> {
        self.consuming.queue_of(&self.at)
    }
}

/// Sets the thread's last error and returns -1, as this part of the interface does.
fn refuse(code: rd_kafka_resp_err_t) -> c_int {
    let errno = match code {
        RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION => libc::ESRCH,
        RD_KAFKA_RESP_ERR__TIMED_OUT => libc::ETIMEDOUT,
        _ => libc::EINVAL,
    };
    set_last_error_and_errno(code, errno);
    -1
}

fn start_partition(
    rkt: *mut rd_kafka_topic_t,
    partition: i32,
    offset: i64,
    function: &str,
    to: Option<&Arc<OpQueue>>,
) -> c_int {
    let Some(consumed) = SimplePartition::of(rkt, partition, function) else {
        return refuse(RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION);
    };
    let SimplePartition { handle, consuming, at } = &consumed;
    // Unlike an assignment, a start names its offset.
    let named = Some(offset).filter(|offset| *offset != RD_KAFKA_OFFSET_INVALID);
    let Some(start) = named.and_then(crate::messages::list_conversion::start) else {
        return refuse(RD_KAFKA_RESP_ERR__INVALID_ARG);
    };
    let topic = Topic::of(rkt, function);
    let settings = topic.as_deref().and_then(TopicState::settings).cloned().unwrap_or_default();
    if let Err(error) = consuming.control.start_with(at, start, &settings).wait(ENGINE_TIMEOUT) {
        return refuse(match error {
            // Committed offsets need `group.id` or files.
            Error::Config(_) if handle.config.group_id.is_none() => RD_KAFKA_RESP_ERR__INVALID_ARG,
            Error::Config(_) => RD_KAFKA_RESP_ERR__CONFLICT,
            other => code_of(&other),
        });
    }
    let queue = consumed.queue();
    queue.forward_to(to);
    consuming.forwarded(handle, &queue, to);
    set_last_error(RD_KAFKA_RESP_ERR_NO_ERROR);
    0
}

#[on_panic(0)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_consume_start(
    rkt: *mut rd_kafka_topic_t,
    partition: i32,
    offset: i64,
) -> c_int {
    start_partition(rkt, partition, offset, FUNCTION, None)
}

#[on_panic(-1)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_consume_start_queue(
    rkt: *mut rd_kafka_topic_t,
    partition: i32,
    offset: i64,
    rkqu: *mut rd_kafka_queue_t,
) -> c_int {
    match rd_kafka_queue_t::of(rkqu, FUNCTION) {
        Some(queue) => start_partition(rkt, partition, offset, FUNCTION, Some(&queue.queue)),
        None => refuse(RD_KAFKA_RESP_ERR__INVALID_ARG),
    }
}

#[on_panic(-1)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_consume_stop(rkt: *mut rd_kafka_topic_t, partition: i32) -> c_int {
    if partition == RD_KAFKA_PARTITION_UA {
        return refuse(RD_KAFKA_RESP_ERR__INVALID_ARG);
    }
    let Some(SimplePartition { handle, consuming, at }) = SimplePartition::of(rkt, partition, FUNCTION)
    else {
        return refuse(RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION);
    };
    match consuming.control.stop(&at).wait(ENGINE_TIMEOUT) {
        Ok(()) => {
            consuming.forget_queue(&at);
            consuming.note_stopped(at);
            set_last_error(RD_KAFKA_RESP_ERR_NO_ERROR);
            0
        }
        // A second stop has no effect, nor has that of an existing partition which was never started, as in the original.
        Err(Error::NotAssigned { .. })
            if consuming.was_stopped(&at) || is_in_metadata(&handle, &at) == Some(true) =>
        {
            set_last_error(RD_KAFKA_RESP_ERR_NO_ERROR);
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
    timeout_ms: c_int,
) -> rd_kafka_resp_err_t {
    if partition == RD_KAFKA_PARTITION_UA {
        return RD_KAFKA_RESP_ERR__INVALID_ARG;
    }
    match SimplePartition::of(rkt, partition, FUNCTION) {
        Some(SimplePartition { handle, consuming, at }) => {
            crate::consume::group_consumer::seek(&handle, &consuming, &at, offset, timeout_ms)
        }
        None => RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION,
    }
}

exported_from_c! {
    fn rd_kafka_consume(
        rkt: *mut rd_kafka_topic_t,
        partition: i32,
        timeout_ms: c_int
    ) -> *mut rd_kafka_message_t = ottla_consume;
    fn rd_kafka_consume_batch(
        rkt: *mut rd_kafka_topic_t,
        partition: i32,
        timeout_ms: c_int,
        rkmessages: *mut *mut rd_kafka_message_t,
        rkmessages_size: usize
    ) -> isize = ottla_consume_batch;
    fn rd_kafka_consume_callback(
        rkt: *mut rd_kafka_topic_t,
        partition: i32,
        timeout_ms: c_int,
        consume_cb: rd_kafka_consume_cb_t,
        commit_opaque: *mut c_void
    ) -> c_int = ottla_consume_callback;
}

called_from_c! {
    "ottla_begin_consume" begin_consume,
    "ottla_begin_consume_batch" begin_consume_batch,
    "ottla_begin_consume_callback" begin_consume_callback,
}

#[on_panic(())]
unsafe extern "C" fn begin_consume(
    state: *mut CallbackLoop,
    rkt: *mut rd_kafka_topic_t,
    partition: i32,
    timeout_ms: c_int,
) {
    let Some(consumed) = SimplePartition::of(rkt, partition, FUNCTION) else {
        refuse(RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION);
        return;
    };
    // SAFETY: C's own struct, for the time of this call (`trampoline.c`).
    let state = unsafe { &mut *state };
    let queue = consumed.queue();
    if let Some(message) = queue.message() {
        return state.returns(found(message));
    }
    start(state, consumed.handle, NextMessage::new(queue, timeout_of(timeout_ms)));
}

#[on_panic(())]
unsafe extern "C" fn begin_consume_batch(
    state: *mut CallbackLoop,
    rkt: *mut rd_kafka_topic_t,
    partition: i32,
    timeout_ms: c_int,
    rkmessages: *mut *mut rd_kafka_message_t,
    rkmessages_size: usize,
) {
    // SAFETY: C's own struct, for the time of this call (`trampoline.c`).
    let state = unsafe { &mut *state };
    state.number_result = -1;
    let Some(consumed) = SimplePartition::of(rkt, partition, FUNCTION) else {
        refuse(RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION);
        return;
    };
    set_last_error(RD_KAFKA_RESP_ERR_NO_ERROR);
    // SAFETY: `rkmessages` points to `rkmessages_size` pointers (rdkafka.h, `rd_kafka_consume_batch`).
    let fill = unsafe { FillArray::new(consumed.queue(), timeout_ms, rkmessages, rkmessages_size) };
    start(state, consumed.handle, fill);
}

#[on_panic(())]
unsafe extern "C" fn begin_consume_callback(
    state: *mut CallbackLoop,
    rkt: *mut rd_kafka_topic_t,
    partition: i32,
    timeout_ms: c_int,
    consume_cb: rd_kafka_consume_cb_t,
    commit_opaque: *mut c_void,
) {
    // SAFETY: C's own struct, for the time of this call (`trampoline.c`).
    let state = unsafe { &mut *state };
    state.number_result = -1;
    let (Some(consumed), Some(function)) = (SimplePartition::of(rkt, partition, FUNCTION), consume_cb) else {
        refuse(RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION);
        return;
    };
    let (queue, wait, opaque) = (consumed.queue(), timeout_of(timeout_ms), Opaque(commit_opaque));
    let max = {
        let topic = Topic::of(rkt, FUNCTION);
        match topic.as_deref().and_then(TopicState::settings) {
            Some(own) => own.consume_callback_max_messages.unwrap_or(0),
            None => consumed.handle.conf().consume_callback_max(),
        }
    };
    start(
        state,
        consumed.handle,
        EachMessage { queue, wait, function, opaque, max, count: 0, yielded: false, source: None },
    );
}
