//! The consumer of groups: subscriptions, assignments, and closing.

use std::ffi::c_int;
use std::ptr::null_mut;
use std::sync::Arc;
use std::time::Instant;

use ottla_client::{EngineReply, Error, Rebalance, StartAt, TopicPartition};

use crate::client::handle::Handle;
use crate::client::producer_pauses;
use crate::consume::consumer_state::{CALL_TIMEOUT_MAX, ConsumerState, ENGINE_TIMEOUT};
use crate::consume::rebalance_protocol::{AssignmentCall, AssignmentRefusal, check};
use crate::errors::error_mapping::of as code_of;
use crate::errors::error_object::rd_kafka_error_t;
use crate::ffi::c_strings::c_string;
use crate::ffi::panic::on_panic;
use crate::ffi::*;
use crate::messages::list_conversion;
use crate::messages::partition_list::rd_kafka_topic_partition_list_new;
use crate::queue::op_queue::timeout_of;

/// Runs `body` with a consumer that has `group.id`, or returns the error if there is none, or if it is closed.
pub(super) fn with_group(
    rk: *mut rd_kafka_t,
    function: &str,
    body: impl FnOnce(&Arc<Handle>, &ConsumerState) -> Result<(), rd_kafka_resp_err_t>,
) -> rd_kafka_resp_err_t {
    let Some(handle) = Handle::shared(rk, function) else { return RD_KAFKA_RESP_ERR__INVALID_ARG };
    let Some(consuming) = handle.group_consumer() else { return RD_KAFKA_RESP_ERR__UNKNOWN_GROUP };
    if consuming.is_closing() && consuming.is_closed() {
        return RD_KAFKA_RESP_ERR__DESTROY;
    }
    body(&handle, consuming).map_or_else(|code| code, |()| RD_KAFKA_RESP_ERR_NO_ERROR)
}

/// Runs a change of the assignment. A closing consumer ignores it without an error, because applications may handle
/// earlier rebalances until the end.
fn with_assignment(
    rk: *mut rd_kafka_t,
    function: &str,
    call: AssignmentCall,
    body: impl FnOnce(&Arc<Handle>, &ConsumerState) -> Result<(), AssignmentRefusal>,
) -> Result<(), AssignmentRefusal> {
    let Some(handle) = Handle::shared(rk, function) else {
        return Err(RD_KAFKA_RESP_ERR__INVALID_ARG.into());
    };
    let Some(consuming) = handle.group_consumer() else {
        let reason = "Requires a consumer with group.id configured".to_owned();
        return Err(AssignmentRefusal { code: RD_KAFKA_RESP_ERR__UNKNOWN_GROUP, reason });
    };
    if consuming.is_closing() && consuming.is_closed() {
        return Ok(());
    }
    // As in the original, a failed consumer gives its partitions up whatever the call names: another member may own them.
    if handle.fatal.get().is_some() {
        assign_nothing(&handle);
        consuming.note_assigned(Vec::new(), true);
        consuming.note_given_up();
        return Ok(());
    }
    let outcome = check(&handle, consuming, call).and_then(|()| body(&handle, consuming));
    if consuming.is_closing() { Ok(()) } else { outcome.inspect_err(|refusal| refusal.log(&handle)) }
}

/// Returns an error, without a `reason` with the text of its code.
fn object(code: rd_kafka_resp_err_t, reason: &str) -> *mut rd_kafka_error_t {
    match code {
        RD_KAFKA_RESP_ERR_NO_ERROR => null_mut(),
        code => rd_kafka_error_t::new(code, reason).into_raw(),
    }
}

/// Returns the error of an incremental change of the assignment.
fn incremental_object(outcome: Result<(), AssignmentRefusal>) -> *mut rd_kafka_error_t {
    outcome.map_or_else(|refusal| object(refusal.code, &refusal.reason), |()| null_mut())
}

pub(crate) fn code(error: Error) -> rd_kafka_resp_err_t {
    code_of(&error)
}

impl Handle {
    /// The consumer, if it has a group. As in the original, the functions of groups are not for the simple consumer.
    pub(crate) fn group_consumer(&self) -> Option<&Arc<ConsumerState>> {
        self.consumer_state().filter(|_| self.config.group_id.is_some())
    }
}

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_subscription(
    rk: *mut rd_kafka_t,
    topics: *mut *mut rd_kafka_topic_partition_list_t,
) -> rd_kafka_resp_err_t {
    // SAFETY: `rk` is NULL or a handle from `rd_kafka_new`, not yet destroyed; `topics` is NULL or writable
    // (rdkafka.h, `rd_kafka_subscription`).
    unsafe {
        with_group(rk, FUNCTION, |_, consuming| {
            let place = topics.as_mut().ok_or(RD_KAFKA_RESP_ERR__INVALID_ARG)?;
            let names = consuming.subscription();
            let list = rd_kafka_topic_partition_list_new(c_int::try_from(names.len()).unwrap_or(0));
            if let Some(list) = list.as_mut() {
                for name in names {
                    list.add(&c_string(&name), RD_KAFKA_PARTITION_UA);
                }
            }
            *place = list;
            Ok(())
        })
    }
}

/// Returns the partitions of a list with their start positions. As in the original, each partition is in the list once, and one that
/// cannot exist waits as a missing one does.
unsafe fn starts(
    list: *const rd_kafka_topic_partition_list_t,
) -> Result<Vec<(TopicPartition, StartAt)>, AssignmentRefusal> {
    let invalid = |reason| AssignmentRefusal { code: RD_KAFKA_RESP_ERR__INVALID_ARG, reason };
    // SAFETY: `list` is NULL or a list of this library, not yet destroyed (required by the C functions that call
    // this).
    let entries = unsafe { list_conversion::entries(list) };
    let mut starts = Vec::with_capacity(entries.len());
    for entry in entries.iter() {
        let at = list_conversion::at(entry);
        let Some(start) = list_conversion::start_of(entry) else {
            let place = in_brackets(&at);
            return Err(invalid(format!("{place} has invalid start offset {}", entry.offset)));
        };
        starts.push((at, start));
    }
    let mut sorted: Vec<_> = starts.iter().map(|(at, _)| at).collect();
    sorted.sort_unstable();
    if let Some(pair) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(invalid(format!("Duplicate {} in input list", in_brackets(pair[0]))));
    }
    Ok(starts)
}

/// Makes the topics of an assignment known, as the original does: later calls about partitions that are not assigned any more do not
/// find them unknown.
fn note_topics(handle: &Arc<Handle>, starts: &[(TopicPartition, StartAt)]) {
    for (at, _) in starts {
        handle.topic(&at.topic);
    }
}

/// Returns a partition as librdkafka writes it.
fn in_brackets(at: &TopicPartition) -> String {
    format!("{} [{}]", at.topic, at.partition)
}

/// Returns the partitions of a list with the offsets as the application passed them.
unsafe fn passed(list: *const rd_kafka_topic_partition_list_t) -> Vec<(TopicPartition, i64)> {
    // SAFETY: `list` is NULL or a list of this library, not yet destroyed (required by the C functions that call
    // this).
    let entries = unsafe { list_conversion::entries(list) };
    entries.iter().map(|entry| (list_conversion::at(entry), entry.offset)).collect()
}

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_assign(
    rk: *mut rd_kafka_t,
    partitions: *const rd_kafka_topic_partition_list_t,
) -> rd_kafka_resp_err_t {
    // SAFETY: `rk` is NULL or a handle from `rd_kafka_new`, not yet destroyed; `partitions` is NULL or a list of this
    // library, not yet destroyed (rdkafka.h, `rd_kafka_assign`).
    unsafe {
        let outcome = with_assignment(rk, FUNCTION, AssignmentCall::Whole, |handle, consuming| {
            let starts = starts(partitions)?;
            note_topics(handle, &starts);
            consuming.control.assign(&starts).wait(ENGINE_TIMEOUT).map_err(code)?;
            consuming.note_assigned(passed(partitions), true);
            consuming.note_given_up();
            Ok(())
        });
        outcome.map_or_else(|refusal| refusal.code, |()| RD_KAFKA_RESP_ERR_NO_ERROR)
    }
}

/// Gives up the assignment for an application that does not do so itself.
pub(crate) fn assign_nothing(handle: &Arc<Handle>) {
    if let Some(consuming) = handle.consumer_state() {
        let _ = consuming.control.assign(&[]).wait(ENGINE_TIMEOUT);
    }
}

#[on_panic(crate::errors::error_object::panicked())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_incremental_assign(
    rk: *mut rd_kafka_t,
    partitions: *const rd_kafka_topic_partition_list_t,
) -> *mut rd_kafka_error_t {
    // SAFETY: `rk` is NULL or a handle from `rd_kafka_new`, not yet destroyed; `partitions` is NULL or a list of this
    // library, not yet destroyed (rdkafka.h, `rd_kafka_incremental_assign`).
    unsafe {
        if partitions.is_null() {
            return object(RD_KAFKA_RESP_ERR__INVALID_ARG, "partitions must not be NULL");
        }
        incremental_object(with_assignment(rk, FUNCTION, AssignmentCall::Incremental, |handle, consuming| {
            let starts = starts(partitions)?;
            note_topics(handle, &starts);
            let assigned = consuming.control.assignment();
            if let Some((at, _)) = starts.iter().find(|(at, _)| assigned.contains(at)) {
                let reason = format!("{} is already part of the current assignment", in_brackets(at));
                return Err(AssignmentRefusal { code: RD_KAFKA_RESP_ERR__CONFLICT, reason });
            }
            consuming.control.incremental_assign(&starts).wait(ENGINE_TIMEOUT).map_err(code)?;
            consuming.note_assigned(passed(partitions), false);
            Ok(())
        }))
    }
}

#[on_panic(crate::errors::error_object::panicked())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_incremental_unassign(
    rk: *mut rd_kafka_t,
    partitions: *const rd_kafka_topic_partition_list_t,
) -> *mut rd_kafka_error_t {
    // SAFETY: `rk` is NULL or a handle from `rd_kafka_new`, not yet destroyed; `partitions` is NULL or a list of this
    // library, not yet destroyed (rdkafka.h, `rd_kafka_incremental_unassign`).
    unsafe {
        if partitions.is_null() {
            return object(RD_KAFKA_RESP_ERR__INVALID_ARG, "partitions must not be NULL");
        }
        incremental_object(with_assignment(rk, FUNCTION, AssignmentCall::Incremental, |_, consuming| {
            let invalid = |reason| AssignmentRefusal { code: RD_KAFKA_RESP_ERR__INVALID_ARG, reason };
            let partitions = list_conversion::partitions(partitions);
            let assigned = consuming.control.assignment();
            if assigned.is_empty() && !partitions.is_empty() {
                return Err(invalid("Can't subtract from empty assignment".to_owned()));
            }
            if let Some(at) = partitions.iter().find(|at| !assigned.contains(at)) {
                let reason = "can't be unassigned since it is not in the current assignment";
                return Err(invalid(format!("{} {reason}", in_brackets(at))));
            }
            consuming.control.incremental_unassign(&partitions).wait(ENGINE_TIMEOUT).map_err(code)?;
            consuming.note_given_up();
            Ok(())
        }))
    }
}

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_assignment(
    rk: *mut rd_kafka_t,
    partitions: *mut *mut rd_kafka_topic_partition_list_t,
) -> rd_kafka_resp_err_t {
    // SAFETY: `rk` is NULL or a handle from `rd_kafka_new`, not yet destroyed; `partitions` is NULL or writable
    // (rdkafka.h, `rd_kafka_assignment`).
    unsafe {
        let handle = Handle::of(rk, FUNCTION);
        if let Some(assignment) = handle.as_deref().and_then(|handle| handle.share_assignment.get()) {
            let Some(place) = partitions.as_mut() else { return RD_KAFKA_RESP_ERR__INVALID_ARG };
            let assigned = assignment();
            *place = list_conversion::list(assigned.iter().map(|at| (at, RD_KAFKA_OFFSET_INVALID)));
            return RD_KAFKA_RESP_ERR_NO_ERROR;
        }
        drop(handle);
        with_group(rk, FUNCTION, |_, consuming| {
            let place = partitions.as_mut().ok_or(RD_KAFKA_RESP_ERR__INVALID_ARG)?;
            let assigned = consuming.assigned_offsets();
            *place = list_conversion::list(assigned.iter().map(|(at, offset)| (at, *offset)));
            Ok(())
        })
    }
}

#[on_panic(0)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_assignment_lost(rk: *mut rd_kafka_t) -> c_int {
    let handle = Handle::of(rk, FUNCTION);
    let consuming = handle.as_deref().and_then(Handle::consumer_state);
    consuming.is_some_and(|consuming| consuming.has_lost_assignment()).into()
}

/// Pauses or resumes partitions of a consumer or of a producer. As in the original, the entry of an unknown partition receives an
/// error. One that is known to a consumer and not assigned is paused when it is assigned, and a pause lasts until it is resumed.
unsafe fn set_paused(
    rk: *mut rd_kafka_t,
    function: &str,
    partitions: *mut rd_kafka_topic_partition_list_t,
    paused: bool,
) -> rd_kafka_resp_err_t {
    let Some(handle) = Handle::shared(rk, function) else { return RD_KAFKA_RESP_ERR__INVALID_ARG };
    if handle.producer().is_some() {
        // SAFETY: `partitions` is NULL or a list of this library, not yet destroyed (required by the C functions that call this).
        return unsafe { producer_pauses::set_paused(&handle, partitions, paused) };
    }
    let Some(consuming) = handle.consumer_state() else { return RD_KAFKA_RESP_ERR__UNKNOWN_GROUP };
    if partitions.is_null() {
        return RD_KAFKA_RESP_ERR__INVALID_ARG;
    }
    let assigned = consuming.control.assignment();
    let mut known = Vec::new();
    // SAFETY: `partitions` is a list of this library, not yet destroyed (required by the C functions that call this).
    for entry in unsafe { list_conversion::entries(partitions) } {
        let at = list_conversion::at(entry);
        entry.err = RD_KAFKA_RESP_ERR_NO_ERROR;
        if assigned.binary_search(&at).is_ok() || handle.topics().has(&at.topic) {
            known.push(at);
        } else {
            entry.err = RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION;
        }
    }
    if paused {
        consuming.control.pause(&known);
    } else {
        consuming.control.resume(&known);
    }
    RD_KAFKA_RESP_ERR_NO_ERROR
}

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_pause_partitions(
    rk: *mut rd_kafka_t,
    partitions: *mut rd_kafka_topic_partition_list_t,
) -> rd_kafka_resp_err_t {
    // SAFETY: `rk` is NULL or a handle from `rd_kafka_new`, not yet destroyed; `partitions` is NULL or a list of this
    // library, not yet destroyed (rdkafka.h, `rd_kafka_pause_partitions`).
    unsafe { set_paused(rk, FUNCTION, partitions, true) }
}

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_resume_partitions(
    rk: *mut rd_kafka_t,
    partitions: *mut rd_kafka_topic_partition_list_t,
) -> rd_kafka_resp_err_t {
    // SAFETY: `rk` is NULL or a handle from `rd_kafka_new`, not yet destroyed; `partitions` is NULL or a list of this
    // library, not yet destroyed (rdkafka.h, `rd_kafka_resume_partitions`).
    unsafe { set_paused(rk, FUNCTION, partitions, false) }
}

#[on_panic(crate::errors::error_object::panicked())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_seek_partitions(
    rk: *mut rd_kafka_t,
    partitions: *mut rd_kafka_topic_partition_list_t,
    timeout_ms: c_int,
) -> *mut rd_kafka_error_t {
    let refused = |reason| object(RD_KAFKA_RESP_ERR__INVALID_ARG, reason);
    let Some(handle) = Handle::shared(rk, FUNCTION) else { return refused("") };
    let Some(consuming) = handle.consumer_state() else {
        return refused("Must only be used on consumer instance");
    };
    // SAFETY: `partitions` is NULL or a list of this library, not yet destroyed (rdkafka.h, `rd_kafka_seek_partitions`).
    let entries = unsafe { list_conversion::entries(partitions) };
    if entries.is_empty() {
        return refused("partitions must be specified");
    }
    let deadline = Instant::now() + timeout_of(timeout_ms).unwrap_or(CALL_TIMEOUT_MAX);
    let mut pending = Vec::new();
    for entry in entries {
        let at = list_conversion::at(entry);
        match begin_seek(&handle, consuming, &at, entry.offset, list_conversion::start_of(entry)) {
            Ok(reply) => {
                entry.err = RD_KAFKA_RESP_ERR__IN_PROGRESS;
                pending.push((entry, at, reply));
            }
            // Without a timeout the application gets no result of a partition that the client knows.
            Err(code) if timeout_ms != 0 || code == RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION => {
                entry.err = code;
            }
            Err(_) => entry.err = RD_KAFKA_RESP_ERR__IN_PROGRESS,
        }
    }
    if timeout_ms == 0 {
        return null_mut();
    }
    let mut left = pending.len();
    for (entry, at, reply) in pending {
        match finish_seek(&handle, &at, reply, deadline) {
            code @ RD_KAFKA_RESP_ERR__TIMED_OUT => {
                let reason = format!("Timed out waiting for {left} remaining partition seek(s) to finish");
                return object(code, &reason);
            }
            code => entry.err = code,
        }
        left -= 1;
    }
    null_mut()
}

/// Moves the position of a partition. Without a timeout the call does not wait for the result.
pub(super) fn seek(
    handle: &Handle,
    consuming: &ConsumerState,
    at: &TopicPartition,
    offset: i64,
    timeout_ms: c_int,
) -> rd_kafka_resp_err_t {
    let deadline = Instant::now() + timeout_of(timeout_ms).unwrap_or(CALL_TIMEOUT_MAX);
    match begin_seek(handle, consuming, at, offset, list_conversion::start(offset)) {
        // As in the original, which knows single partitions here, but only topics in the function for a list.
        Err(RD_KAFKA_RESP_ERR__STATE) if is_in_metadata(handle, at) == Some(false) => {
            RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION
        }
        Err(code) if timeout_ms != 0 || code == RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION => code,
        Ok(reply) if timeout_ms != 0 => finish_seek(handle, at, reply, deadline),
        Ok(_) | Err(_) => RD_KAFKA_RESP_ERR_NO_ERROR,
    }
}

/// Starts to move the position of a partition; the engine does so at once.
fn begin_seek(
    handle: &Handle,
    consuming: &ConsumerState,
    at: &TopicPartition,
    offset: i64,
    to: Option<StartAt>,
) -> Result<EngineReply<()>, rd_kafka_resp_err_t> {
    if consuming.control.assignment().binary_search(at).is_err() {
        return Err(unassigned(handle, &at.topic));
    }
    // The partitions that it had when it closed are not fetched any more.
    if consuming.is_closed() {
        return Err(RD_KAFKA_RESP_ERR__STATE);
    }
    match (offset, to) {
        // As in the original, a seek does not look up the committed offset.
        (RD_KAFKA_OFFSET_STORED, _) => Err(RD_KAFKA_RESP_ERR__INVALID_ARG),
        (RD_KAFKA_OFFSET_INVALID, _) => Ok(consuming.control.seek_by_reset(at)),
        (_, Some(start)) => Ok(consuming.control.seek(at, start)),
        // As in the original, the leader is asked for any other logical offset. It knows -3, the newest timestamp, for instance.
        (logical, None) => Ok(consuming.control.seek(at, StartAt::Timestamp(logical))),
    }
}

/// Waits for a seek, at most until the deadline.
fn finish_seek(
    handle: &Handle,
    at: &TopicPartition,
    reply: EngineReply<()>,
    deadline: Instant,
) -> rd_kafka_resp_err_t {
    match reply.wait(deadline.saturating_duration_since(Instant::now())) {
        Ok(()) => RD_KAFKA_RESP_ERR_NO_ERROR,
        Err(Error::NotAssigned { .. }) => unassigned(handle, &at.topic),
        Err(Error::TimedOut { .. }) => RD_KAFKA_RESP_ERR__TIMED_OUT,
        Err(error) => code(error),
    }
}

/// Returns `true` if the client's metadata has the partition, and `None` if it does not have the topic. Does not wait for the engine: a
/// callback in its thread may call the functions that need this.
pub(super) fn is_in_metadata(handle: &Handle, at: &TopicPartition) -> Option<bool> {
    let count = handle.client()?.known_partitions(&at.topic)?;
    Some(usize::try_from(at.partition).is_ok_and(|partition| partition < count))
}

/// Returns the error of a partition that is not assigned: as the original, the client knows the topics that it has had to do
/// with.
pub(super) fn unassigned(handle: &Handle, topic: &str) -> rd_kafka_resp_err_t {
    if handle.topics().has(topic) { RD_KAFKA_RESP_ERR__STATE } else { RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION }
}

#[on_panic(crate::errors::error_object::panicked())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_consumer_close_queue(
    rk: *mut rd_kafka_t,
    rkqu: *mut rd_kafka_queue_t,
) -> *mut rd_kafka_error_t {
    let refused = |code, text| rd_kafka_error_t::new(code, text).into_raw();
    let (Some(handle), Some(queue)) = (Handle::shared(rk, FUNCTION), rd_kafka_queue_t::of(rkqu, FUNCTION))
    else {
        return refused(RD_KAFKA_RESP_ERR__INVALID_ARG, "Queue must be specified");
    };
    let Some(consuming) = handle.group_consumer().cloned() else {
        let text = "Consume close called on non-group consumer";
        return refused(RD_KAFKA_RESP_ERR__UNKNOWN_GROUP, text);
    };
    if consuming.is_closed() {
        return refused(RD_KAFKA_RESP_ERR__DESTROY, "Consumer already closed");
    }
    if let Some((cause, reason)) = handle.fatal.get() {
        return rd_kafka_error_t::new(*cause, reason).fatal(true).into_raw();
    }
    consuming.note_ending();
    consuming.queue.forward_to(Some(&queue.queue));
    // The application gives up its partitions when it polls the rebalance event. A separate thread then closes, because
    // the application continues to poll.
    let told = handle.config.rebalance == Rebalance::Application && consuming.has_protocol();
    let max_poll_interval = handle.config.max_poll_interval;
    consuming.unsubscribe_to_close(&handle);
    let weak = Arc::downgrade(&handle);
    let closing = std::thread::Builder::new().name("rdk:close".into()).spawn(move || {
        if told {
            consuming.await_given_up_within(max_poll_interval);
        }
        if weak.upgrade().is_some() && consuming.begin_close() {
            consuming.finish_close(&weak);
        }
    });
    match closing {
        Ok(_) => null_mut(),
        Err(_) => refused(RD_KAFKA_RESP_ERR__CRIT_SYS_RESOURCE, "no thread to close the consumer"),
    }
}

#[on_panic(0)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_consumer_closed(rk: *mut rd_kafka_t) -> c_int {
    let handle = Handle::of(rk, FUNCTION);
    let consuming = handle.as_deref().and_then(Handle::consumer_state);
    consuming.is_some_and(|consuming| consuming.is_closed()).into()
}
