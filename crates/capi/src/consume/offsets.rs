//! Offsets: functions that store, commit and query them.

mod commit_notices;
mod commit_queue;
mod patient_lookup;

use std::collections::BTreeMap;
use std::ffi::{c_char, c_int};
use std::ptr::null_mut;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ottla_client::{
    AutoCommitEvent, Client, EngineReply, Error, ErrorCode, OffsetAndMetadata, OffsetAt, TopicPartition,
    Watermarks,
};

use crate::client::handle::Handle;
use crate::client::topic_handle::{Topic, TopicState};
use crate::consume::consumer_state::{CALL_TIMEOUT_MAX, ConsumerState, ENGINE_TIMEOUT};
use crate::consume::group_consumer::{is_in_metadata, unassigned};
use crate::errors::error_mapping::{of as code_of, of_protocol as code_of_broker};
use crate::errors::error_object::{description, rd_kafka_error_t};
use crate::ffi::c_strings::text;
use crate::ffi::panic::on_panic;
use crate::ffi::*;
use crate::messages::list_conversion;
use crate::queue::op::{CommitReply, CommitResult, CommittedOffset, Op};
use crate::queue::op_queue::{OpQueue, timeout_of};

use commit_notices::{log_failure, notify_interceptors};
pub use commit_queue::rd_kafka_commit_queue;
use patient_lookup::wait_on_reachable;

/// The pause before a failed request for committed offsets is repeated.
const COMMITTED_PAUSE: Duration = Duration::from_millis(100);

/// Offsets to commit, and their source.
type Offsets = Vec<(TopicPartition, OffsetAndMetadata)>;

/// The partitions whose offsets the coordinator refused, with its errors.
type Refused = BTreeMap<TopicPartition, ErrorCode>;

type PendingCommit = EngineReply<Refused>;

fn consumer(
    rk: *mut rd_kafka_t,
    function: &str,
) -> Result<(Arc<Handle>, Arc<ConsumerState>), rd_kafka_resp_err_t> {
    let handle = Handle::shared(rk, function).ok_or(RD_KAFKA_RESP_ERR__INVALID_ARG)?;
    let consuming = handle.consumer_state().cloned().ok_or(RD_KAFKA_RESP_ERR__UNKNOWN_GROUP)?;
    Ok((handle, consuming))
}

fn group_consumer(
    rk: *mut rd_kafka_t,
    function: &str,
) -> Result<(Arc<Handle>, Arc<ConsumerState>), rd_kafka_resp_err_t> {
    let handle = Handle::shared(rk, function).ok_or(RD_KAFKA_RESP_ERR__INVALID_ARG)?;
    let consuming = handle.group_consumer().cloned().ok_or(RD_KAFKA_RESP_ERR__UNKNOWN_GROUP)?;
    Ok((handle, consuming))
}

/// A commit that the application requests.
struct Commit {
    /// The entries of the result: all that were given, or the whole assignment.
    entries: Offsets,
    /// The application names the offsets; otherwise they are those that the library stored.
    is_named: bool,
}

impl Commit {
    /// Starts the commit of the entries that have an offset.
    fn begin(&self, consuming: &ConsumerState) -> Result<PendingCommit, rd_kafka_resp_err_t> {
        let offsets: Offsets =
            self.entries.iter().filter(|(_, offset)| offset.offset >= 0).cloned().collect();
        if offsets.is_empty() {
            return Err(RD_KAFKA_RESP_ERR__NO_OFFSET);
        }
        Ok(if self.is_named {
            consuming.control.commit_named_offsets(&offsets)
        } else {
            consuming.control.commit_offsets_each(&offsets)
        })
    }
}

/// The whole assignment, and the partitions of `offsets`. As in the original, a partition without a new offset has
/// `RD_KAFKA_OFFSET_INVALID`.
fn with_assignment(
    consuming: &ConsumerState,
    offsets: impl IntoIterator<Item = (TopicPartition, OffsetAndMetadata)>,
) -> Offsets {
    let none = |at| (at, OffsetAndMetadata::from(RD_KAFKA_OFFSET_INVALID));
    let mut entries: BTreeMap<_, _> = consuming.control.assignment().into_iter().map(none).collect();
    entries.extend(offsets);
    entries.into_iter().collect()
}

/// Returns the commit of a list, or of the stored offsets if there is no list. The offsets of a lost assignment are those of
/// other members by now.
unsafe fn to_commit(
    consuming: &ConsumerState,
    offsets: *const rd_kafka_topic_partition_list_t,
) -> Result<Commit, rd_kafka_resp_err_t> {
    if offsets.is_null() {
        let entries = with_assignment(consuming, consuming.control.uncommitted());
        let is_lost = !entries.is_empty() && consuming.has_lost_assignment();
        let commit = Commit { entries, is_named: false };
        return if is_lost { Err(RD_KAFKA_RESP_ERR__ASSIGNMENT_LOST) } else { Ok(commit) };
    }
    // SAFETY: `offsets` is NULL or a list of this library, not yet destroyed (required by the C functions that call
    // this).
    let entries = unsafe { list_conversion::entries(offsets) };
    let entries = entries.iter().map(|it| (list_conversion::at(it), list_conversion::offset(it))).collect();
    Ok(Commit { entries, is_named: true })
}

/// Starts a commit. Returns it, or the error of a commit that is not sent, with the entries of its result.
fn begin_commit(
    handle: &Handle,
    consuming: &ConsumerState,
    commit: Result<Commit, rd_kafka_resp_err_t>,
) -> (Result<PendingCommit, rd_kafka_resp_err_t>, Offsets) {
    match commit {
        // As in the original: another member may own the partitions.
        Ok(commit) if handle.fatal.get().is_some() => (Err(RD_KAFKA_RESP_ERR__FATAL), commit.entries),
        Ok(commit) if consuming.is_closed() => (Err(RD_KAFKA_RESP_ERR__DESTROY), commit.entries),
        // It leaves its group as soon as it has no partition.
        Ok(commit) if consuming.is_ending() && consuming.control.assignment().is_empty() => {
            (Err(RD_KAFKA_RESP_ERR__DESTROY), commit.entries)
        }
        Ok(commit) => (commit.begin(consuming), commit.entries),
        Err(code) => (Err(code), Offsets::new()),
    }
}

/// The client gives a commit up after `socket.timeout.ms`; its answer comes soon after.
fn commit_timeout(handle: &Handle) -> Duration {
    handle.config.socket_timeout + ENGINE_TIMEOUT
}

/// The result of a commit, with the error of each entry. As in the original, the commit fails with the last error if an offset was
/// refused, and the entries of the other offsets have that error, although they are committed. Those without an offset have none: the
/// coordinator got none of them.
fn commit_result(
    handle: Option<&Handle>,
    result: Result<Refused, Error>,
    entries: Offsets,
) -> (rd_kafka_resp_err_t, Vec<CommittedOffset>) {
    let (err, refused) = match result {
        Ok(refused) => {
            let last = refused.values().next_back();
            (last.map_or(RD_KAFKA_RESP_ERR_NO_ERROR, |last| code_of_broker(*last)), refused)
        }
        Err(error) => {
            let err = commit_error(handle, error);
            return (err, with_error(entries, err));
        }
    };
    let entry = |(at, offset): (TopicPartition, OffsetAndMetadata)| {
        let of_others = if offset.offset >= 0 { err } else { RD_KAFKA_RESP_ERR_NO_ERROR };
        let err = refused.get(&at).map_or(of_others, |refused| code_of_broker(*refused));
        (at, offset, err)
    };
    (err, entries.into_iter().map(entry).collect())
}

/// The entries of a commit that fails as a whole.
fn with_error(entries: Offsets, err: rd_kafka_resp_err_t) -> Vec<CommittedOffset> {
    entries.into_iter().map(|(at, offset)| (at, offset, err)).collect()
}

fn commit_error(handle: Option<&Handle>, error: Error) -> rd_kafka_resp_err_t {
    let is_lost = || handle.and_then(Handle::consumer_state).is_some_and(|it| it.has_lost_assignment());
    match error {
        // The coordinator no longer knows the member that had the partition.
        Error::NotAssigned { .. } if is_lost() => RD_KAFKA_RESP_ERR_UNKNOWN_MEMBER_ID,
        // The group assigned the partition to another member.
        Error::NotAssigned { .. } => RD_KAFKA_RESP_ERR_ILLEGAL_GENERATION,
        Error::TimedOut { .. } => RD_KAFKA_RESP_ERR__TIMED_OUT,
        // As in the original, a commit without a broker waits for its coordinator.
        Error::Unreachable { .. } => RD_KAFKA_RESP_ERR__WAIT_COORD,
        error => code_of(&error),
    }
}

/// Adds the result of a commit to `queue` once it is known.
fn tell(
    handle: &Arc<Handle>,
    queue: Arc<OpQueue>,
    asked: PendingCommit,
    offsets: Offsets,
    reply: Option<CommitReply>,
) {
    let Some(client) = handle.client() else { return };
    let weak = Arc::downgrade(handle);
    let unreported = handle.consumer_state().map(|consumer| consumer.begin_report());
    client.spawn(async move {
        let result = asked.await;
        let handle = weak.upgrade();
        let (err, offsets) = commit_result(handle.as_deref(), result, offsets);
        if let Some(handle) = &handle {
            notify_interceptors(handle, &offsets, err);
            if reply.is_none() && handle.callbacks.offset_commit.is_none() {
                log_failure(handle, "manual", &offsets, err);
            }
        }
        push_result(handle.as_deref(), &queue, CommitResult { err, offsets, reply });
        drop(unreported);
    });
}

/// Adds the result of a commit to `queue`. As in the original, the configuration's function gets a result of its own, in the main
/// queue, if the caller of `rd_kafka_commit_queue` passed no function.
fn push_result(handle: Option<&Handle>, queue: &Arc<OpQueue>, result: CommitResult) {
    let has_function = |handle: &&Handle| handle.callbacks.offset_commit.is_some();
    if let Some(CommitReply { function: None, .. }) = result.reply
        && let Some(handle) = handle.filter(has_function)
    {
        let (err, offsets) = (result.err, result.offsets.clone());
        handle.main.push(Op::CommitResult(CommitResult { err, offsets, reply: None }));
    }
    queue.push(Op::CommitResult(result));
}

/// Reports the result of an automatic commit.
pub(crate) fn tell_unasked(handle: &Arc<Handle>, told: AutoCommitEvent) {
    let Some(consuming) = handle.consumer_state() else { return };
    let offsets = with_assignment(consuming, told.offsets);
    // The error of refused offsets is in their entries.
    let result =
        if told.refused.is_empty() { told.result.map(|()| Refused::new()) } else { Ok(told.refused) };
    let (err, offsets) = commit_result(Some(handle), result, offsets);
    notify_interceptors(handle, &offsets, err);
    if handle.tells_automatic_commits() {
        handle.main.push(Op::CommitResult(CommitResult { err, offsets, reply: None }));
    } else {
        log_failure(handle, "auto commit", &offsets, err);
    }
}

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_commit(
    rk: *mut rd_kafka_t,
    offsets: *const rd_kafka_topic_partition_list_t,
    async_: c_int,
) -> rd_kafka_resp_err_t {
    let (handle, consuming) = match consumer(rk, FUNCTION) {
        Ok(found) => found,
        Err(code) => return code,
    };
    if handle.config.group_id.is_none() && !handle.config.offset_store_file {
        return RD_KAFKA_RESP_ERR__UNKNOWN_GROUP;
    }
    // SAFETY: `offsets` is NULL or a list of this library, not yet destroyed (rdkafka.h, `rd_kafka_commit`).
    let (asked, wanted) = begin_commit(&handle, &consuming, unsafe { to_commit(&consuming, offsets) });
    let asked = match asked {
        Ok(asked) => asked,
        Err(err) => {
            let offsets = with_error(wanted, err);
            if handle.callbacks.offset_commit.is_none() && async_ != 0 {
                log_failure(&handle, "manual", &offsets, err);
            // As in the original, a closed consumer answers no commit.
            } else if handle.callbacks.offset_commit.is_some() && !consuming.is_closed() {
                handle.main.push(Op::CommitResult(CommitResult { err, offsets, reply: None }));
            }
            return if async_ == 0 { err } else { RD_KAFKA_RESP_ERR_NO_ERROR };
        }
    };
    // As in the original: the mask of events decides about the results of automatic commits only.
    let has_function = handle.callbacks.offset_commit.is_some();
    if async_ != 0 {
        // Without a function, the result is for interceptors and the log: no application reads the other queue.
        let queue = if has_function { handle.main.clone() } else { OpQueue::new() };
        tell(&handle, queue, asked, wanted, None);
        return RD_KAFKA_RESP_ERR_NO_ERROR;
    }
    let timeout = commit_timeout(&handle);
    let (code, offsets) = commit_result(Some(&handle), asked.wait(timeout), wanted);
    notify_interceptors(&handle, &offsets, code);
    if has_function {
        // The application's function gets the result of each commit, of synchronous ones too.
        let result = CommitResult { err: code, offsets, reply: None };
        handle.main.push(Op::CommitResult(result));
    }
    code
}

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_commit_message(
    rk: *mut rd_kafka_t,
    rkmessage: *const rd_kafka_message_t,
    async_: c_int,
) -> rd_kafka_resp_err_t {
    // SAFETY: `rkmessage` is NULL or a message of this library, not yet destroyed (rdkafka.h,
    // `rd_kafka_commit_message`).
    let Some(message) = (unsafe { rkmessage.as_ref() }) else { return RD_KAFKA_RESP_ERR__INVALID_ARG };
    let topic = Topic::of(message.rkt, FUNCTION);
    let (Some(topic), RD_KAFKA_RESP_ERR_NO_ERROR) = (topic, message.err) else {
        return RD_KAFKA_RESP_ERR__INVALID_ARG;
    };
    let at = TopicPartition::new(&topic.name, message.partition);
    let list = list_conversion::OwnedList(list_conversion::list(std::iter::once((&at, message.offset + 1))));
    // SAFETY: `rk` is NULL or a handle from `rd_kafka_new`, not yet destroyed; `rkmessage` is NULL or a message of
    // this library, not yet destroyed (rdkafka.h, `rd_kafka_commit_message`).
    unsafe {
        let epoch = crate::messages::message::rd_kafka_message_leader_epoch(rkmessage);
        if let [entry] = list_conversion::entries(list.0) {
            entry.private_mut().leader_epoch = epoch;
        }
        rd_kafka_commit(rk, list.0, async_)
    }
}

/// Fetches committed offsets. The client gives a request up after `socket.timeout.ms`: as in the original, it is repeated as long as
/// the caller has time.
fn committed_until(
    consuming: &ConsumerState,
    partitions: &[TopicPartition],
    deadline: Instant,
) -> Result<BTreeMap<TopicPartition, Result<OffsetAndMetadata, ErrorCode>>, Error> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match consuming.control.committed_offsets_each(partitions).wait(left) {
            Err(error) if error.is_retriable() && Instant::now() + COMMITTED_PAUSE < deadline => {
                std::thread::sleep(COMMITTED_PAUSE);
            }
            result => return result,
        }
    }
}

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_committed(
    rk: *mut rd_kafka_t,
    partitions: *mut rd_kafka_topic_partition_list_t,
    timeout_ms: c_int,
) -> rd_kafka_resp_err_t {
    if partitions.is_null() {
        return RD_KAFKA_RESP_ERR__INVALID_ARG;
    }
    let (_handle, consuming) = match group_consumer(rk, FUNCTION) {
        Ok(found) => found,
        Err(code) => return code,
    };
    // SAFETY: `partitions` is NULL or a list of this library, not yet destroyed (rdkafka.h, `rd_kafka_committed`).
    let wanted = unsafe { list_conversion::partitions(partitions) };
    // As in the original, the list has no offsets of the caller if the call fails.
    // SAFETY: `partitions` is NULL or a list of this library, not yet destroyed (rdkafka.h, `rd_kafka_committed`).
    for entry in unsafe { list_conversion::entries(partitions) } {
        entry.offset = RD_KAFKA_OFFSET_INVALID;
    }
    if consuming.is_closed() {
        return RD_KAFKA_RESP_ERR__DESTROY;
    }
    let deadline = Instant::now() + timeout_of(timeout_ms).unwrap_or(CALL_TIMEOUT_MAX);
    match committed_until(&consuming, &wanted, deadline) {
        Ok(found) => {
            // SAFETY: `partitions` is NULL or a list of this library, not yet destroyed (rdkafka.h,
            // `rd_kafka_committed`).
            for entry in unsafe { list_conversion::entries(partitions) } {
                let result = found.get(&list_conversion::at(entry));
                let error = result.and_then(|result| result.as_ref().err());
                entry.err = error.map_or(RD_KAFKA_RESP_ERR_NO_ERROR, |error| code_of_broker(*error));
                let known = result.and_then(|result| result.as_ref().ok());
                entry.offset = known.map_or(RD_KAFKA_OFFSET_INVALID, |known| known.offset);
                entry.set_metadata(known.map_or(&[], |known| known.metadata.as_bytes()));
                entry.set_leader_epoch(known.and_then(|known| known.leader_epoch));
            }
            RD_KAFKA_RESP_ERR_NO_ERROR
        }
        // As in the original, which repeats the request without a broker until then.
        Err(Error::TimedOut { .. } | Error::Unreachable { .. } | Error::Transport { .. }) => {
            RD_KAFKA_RESP_ERR__TIMED_OUT
        }
        Err(error) => code_of(&error),
    }
}

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_position(
    rk: *mut rd_kafka_t,
    partitions: *mut rd_kafka_topic_partition_list_t,
) -> rd_kafka_resp_err_t {
    let Ok((handle, consuming)) = consumer(rk, FUNCTION) else {
        return RD_KAFKA_RESP_ERR__INVALID_ARG;
    };
    if partitions.is_null() {
        return RD_KAFKA_RESP_ERR__INVALID_ARG;
    }
    // SAFETY: `partitions` is NULL or a list of this library, not yet destroyed (rdkafka.h, `rd_kafka_position`).
    for entry in unsafe { list_conversion::entries(partitions) } {
        let at = list_conversion::at(entry);
        // As in the original, the question makes the topic known, and a partition without a position is no error.
        handle.topic(&at.topic);
        entry.err = RD_KAFKA_RESP_ERR_NO_ERROR;
        let consumed = consuming.control.consumed_offset(&at);
        entry.offset = consumed.as_ref().map_or(RD_KAFKA_OFFSET_INVALID, |consumed| consumed.offset);
        // The entry may have the epoch of an earlier answer, which does not belong to this offset.
        entry.set_leader_epoch(consumed.and_then(|consumed| consumed.leader_epoch));
    }
    RD_KAFKA_RESP_ERR_NO_ERROR
}

/// Stores an offset for the application. One below 0 removes the stored one, and there is none without an assignment: as in the original,
/// that is no error.
fn store(
    handle: &Handle,
    consuming: &ConsumerState,
    at: &TopicPartition,
    offset: OffsetAndMetadata,
) -> rd_kafka_resp_err_t {
    let removes = offset.offset < 0;
    let not_assigned = || match unassigned(handle, &at.topic) {
        RD_KAFKA_RESP_ERR__STATE if removes => RD_KAFKA_RESP_ERR_NO_ERROR,
        code => code,
    };
    if consuming.is_closed() {
        return not_assigned();
    }
    match consuming.control.store_offset(at, offset) {
        Ok(()) => RD_KAFKA_RESP_ERR_NO_ERROR,
        Err(Error::NotAssigned { .. }) => not_assigned(),
        Err(error) => code_of(&error),
    }
}

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_offsets_store(
    rk: *mut rd_kafka_t,
    offsets: *mut rd_kafka_topic_partition_list_t,
) -> rd_kafka_resp_err_t {
    let (handle, consuming) = match consumer(rk, FUNCTION) {
        Ok(found) => found,
        Err(code) => return code,
    };
    // As in the original, whose functions for one offset do not ask.
    if handle.config.enable_auto_offset_store {
        return RD_KAFKA_RESP_ERR__INVALID_ARG;
    }
    let (mut last, mut stored, mut count) = (RD_KAFKA_RESP_ERR_NO_ERROR, 0, 0);
    // SAFETY: `offsets` is NULL or a list of this library, not yet destroyed (rdkafka.h, `rd_kafka_offsets_store`).
    for entry in unsafe { list_conversion::entries(offsets) }.iter_mut() {
        count += 1;
        entry.err = store(&handle, &consuming, &list_conversion::at(entry), list_conversion::offset(entry));
        if entry.err == RD_KAFKA_RESP_ERR_NO_ERROR {
            stored += 1;
        } else {
            last = entry.err;
        }
    }
    // The call fails only if no offset could be stored.
    if count > 0 && stored == 0 { last } else { RD_KAFKA_RESP_ERR_NO_ERROR }
}

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_offset_store(
    rkt: *mut rd_kafka_topic_t,
    partition: i32,
    offset: i64,
) -> rd_kafka_resp_err_t {
    let topic = Topic::of(rkt, FUNCTION);
    let Some((topic, handle)) = topic.as_deref().and_then(TopicState::with_handle) else {
        return RD_KAFKA_RESP_ERR__INVALID_ARG;
    };
    let Some(consuming) = handle.consumer_state() else { return RD_KAFKA_RESP_ERR__INVALID_ARG };
    // -1 stores 0: nothing is processed.
    let (at, next) = (TopicPartition::new(&topic.name, partition), offset.wrapping_add(1));
    let code = store(handle, consuming, &at, next.into());
    // As in the original, which knows single partitions here. -1 is none.
    let may_be_missing = next < 0 || code == RD_KAFKA_RESP_ERR__STATE;
    if may_be_missing && partition != RD_KAFKA_PARTITION_UA && is_in_metadata(handle, &at) == Some(false) {
        return RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION;
    }
    code
}

#[on_panic(crate::errors::error_object::panicked())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_offset_store_message(
    rkmessage: *mut rd_kafka_message_t,
) -> *mut rd_kafka_error_t {
    /// librdkafka's text, which programs show and search, as the others here.
    const NOT_CONSUMED: &str = "Invalid message object, not a consumed message";
    let refused = |code, text: &str| rd_kafka_error_t::new(code, text).into_raw();
    // SAFETY: `rkmessage` is NULL or a message of this library, not yet destroyed (rdkafka.h,
    // `rd_kafka_offset_store_message`).
    let Some(message) = (unsafe { rkmessage.as_ref() }) else {
        return refused(RD_KAFKA_RESP_ERR__INVALID_ARG, NOT_CONSUMED);
    };
    if message.err != RD_KAFKA_RESP_ERR_NO_ERROR {
        return refused(RD_KAFKA_RESP_ERR__INVALID_ARG, "Message object must not have an error set");
    }
    let topic = Topic::of(message.rkt, FUNCTION);
    let Some((topic, handle)) = topic.as_deref().and_then(TopicState::with_handle) else {
        return refused(RD_KAFKA_RESP_ERR__INVALID_ARG, NOT_CONSUMED);
    };
    let Some(consuming) = handle.consumer_state() else {
        return refused(RD_KAFKA_RESP_ERR__INVALID_ARG, NOT_CONSUMED);
    };
    let at = TopicPartition::new(&topic.name, message.partition);
    // SAFETY: `rkmessage` is NULL or a message of this library, not yet destroyed (rdkafka.h,
    // `rd_kafka_offset_store_message`).
    let epoch = unsafe { crate::messages::message::rd_kafka_message_leader_epoch(rkmessage) };
    let mut offset = OffsetAndMetadata::from(message.offset + 1);
    offset.leader_epoch = (epoch >= 0).then_some(epoch);
    match store(handle, consuming, &at, offset) {
        RD_KAFKA_RESP_ERR_NO_ERROR => null_mut(),
        code @ RD_KAFKA_RESP_ERR__STATE => refused(code, "Partition is not assigned"),
        code => refused(code, &format!("Failed to store offset: {}", description(code).to_string_lossy())),
    }
}

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_query_watermark_offsets(
    rk: *mut rd_kafka_t,
    topic: *const c_char,
    partition: i32,
    low: *mut i64,
    high: *mut i64,
    timeout_ms: c_int,
) -> rd_kafka_resp_err_t {
    // SAFETY: `rk` is NULL or a handle from `rd_kafka_new`, not yet destroyed; `topic` is NULL or a C string
    // (rdkafka.h, `rd_kafka_query_watermark_offsets`).
    let (Some(handle), Some(name)) = (Handle::shared(rk, FUNCTION), unsafe { text(topic) }) else {
        return RD_KAFKA_RESP_ERR__INVALID_ARG;
    };
    let timeout = timeout_of(timeout_ms).unwrap_or(CALL_TIMEOUT_MAX);
    let at = TopicPartition::new(&name, partition);
    let Some(client) = handle.client() else { return RD_KAFKA_RESP_ERR__DESTROY };
    match watermarks(client, &at, timeout) {
        Ok(marks) => {
            // SAFETY: `low` and `high` are each NULL or writable (rdkafka.h, `rd_kafka_query_watermark_offsets`).
            unsafe {
                if let Some(low) = low.as_mut() {
                    *low = marks.low;
                }
                if let Some(high) = high.as_mut() {
                    *high = marks.high;
                }
            }
            RD_KAFKA_RESP_ERR_NO_ERROR
        }
        Err(Error::TimedOut { .. }) => RD_KAFKA_RESP_ERR__TIMED_OUT,
        Err(error) => partition_code(&error),
    }
}

/// Queries the first and last offset of a partition from its leader.
pub(crate) fn watermarks(
    client: &Client,
    at: &TopicPartition,
    timeout: Duration,
) -> Result<Watermarks, Error> {
    let (admin, at) = (client.admin(), at.clone());
    wait_on_reachable(client, timeout, move || {
        let (admin, at) = (admin.clone(), at.clone());
        async move {
            let low = admin.list_offsets(&[(at.clone(), OffsetAt::Earliest)]).await?;
            let high = admin.list_offsets(&[(at.clone(), OffsetAt::Latest)]).await?;
            let of = |found: &BTreeMap<TopicPartition, i64>| found.get(&at).copied().unwrap_or(-1);
            Ok(Watermarks { low: of(&low), high: of(&high) })
        }
    })
}

/// Waits for an operation of the engine, at most `timeout`.
pub(crate) fn wait_on<T: Send + 'static>(
    client: &Client,
    timeout: Duration,
    work: impl Future<Output = Result<T, Error>> + Send + 'static,
) -> Result<T, Error> {
    let (answer, received) = std::sync::mpsc::sync_channel(1);
    client.spawn(async move {
        let _ = answer.send(work.await);
    });
    received.recv_timeout(timeout).unwrap_or_else(|error| match error {
        std::sync::mpsc::RecvTimeoutError::Timeout => {
            Err(Error::TimedOut { what: "the broker's answer".into(), waited_ms: timeout.as_millis() })
        }
        std::sync::mpsc::RecvTimeoutError::Disconnected => Err(Error::Closed),
    })
}

/// Returns the error code of a call. A missing partition has a local code, as has one of a topic that is missing, forbidden or has an
/// invalid name, and so has the lack of a broker that can be reached.
fn partition_code(error: &Error) -> rd_kafka_resp_err_t {
    match entry_code(error) {
        RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART
        | RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED
        | RD_KAFKA_RESP_ERR_TOPIC_EXCEPTION => RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION,
        code => code,
    }
}

/// Returns the error code of an entry. As in the original, a topic's error has the code of the broker.
fn entry_code(error: &Error) -> rd_kafka_resp_err_t {
    if matches!(error, Error::Unreachable { .. }) {
        RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN
    } else {
        code_of(error)
    }
}

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_get_watermark_offsets(
    rk: *mut rd_kafka_t,
    topic: *const c_char,
    partition: i32,
    low: *mut i64,
    high: *mut i64,
) -> rd_kafka_resp_err_t {
    // SAFETY: `rk` is NULL or a handle from `rd_kafka_new`, not yet destroyed; `topic` is NULL or a C string
    // (rdkafka.h, `rd_kafka_get_watermark_offsets`).
    let (Some(handle), Some(name)) = (Handle::shared(rk, FUNCTION), unsafe { text(topic) }) else {
        return RD_KAFKA_RESP_ERR__INVALID_ARG;
    };
    let at = TopicPartition::new(&name, partition);
    // As in the original, the call makes the topic known, and a partition without watermarks is no error, nor is a producer.
    handle.topic(&name);
    let marks = handle.consumer_state().and_then(|consuming| consuming.control.watermarks(&at));
    // SAFETY: `low` and `high` are each NULL or writable (rdkafka.h, `rd_kafka_get_watermark_offsets`).
    unsafe {
        if let Some(low) = low.as_mut() {
            *low = marks.map_or(RD_KAFKA_OFFSET_INVALID, |marks| marks.low);
        }
        if let Some(high) = high.as_mut() {
            *high = marks.map_or(RD_KAFKA_OFFSET_INVALID, |marks| marks.high);
        }
    }
    RD_KAFKA_RESP_ERR_NO_ERROR
}

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_offsets_for_times(
    rk: *mut rd_kafka_t,
    offsets: *mut rd_kafka_topic_partition_list_t,
    timeout_ms: c_int,
) -> rd_kafka_resp_err_t {
    let Some(handle) = Handle::shared(rk, FUNCTION) else { return RD_KAFKA_RESP_ERR__INVALID_ARG };
    // SAFETY: `offsets` is NULL or a list of this library, not yet destroyed (rdkafka.h,
    // `rd_kafka_offsets_for_times`).
    let entries = unsafe { list_conversion::entries(offsets) };
    if entries.is_empty() {
        return RD_KAFKA_RESP_ERR__INVALID_ARG;
    }
    let Some(client) = handle.client() else { return RD_KAFKA_RESP_ERR__DESTROY };
    let wanted: Vec<_> =
        entries.iter().map(|entry| (list_conversion::at(entry), OffsetAt::Timestamp(entry.offset))).collect();
    let timeout = timeout_of(timeout_ms).unwrap_or(CALL_TIMEOUT_MAX);
    let admin = client.admin();
    let ask = move || {
        let (admin, wanted) = (admin.clone(), wanted.clone());
        async move { admin.list_offsets_each(&wanted).await }
    };
    let found = match wait_on_reachable(client, timeout, ask) {
        Ok(found) => found,
        Err(Error::TimedOut { .. }) => return RD_KAFKA_RESP_ERR__TIMED_OUT,
        Err(error) => {
            // As in the original: the leaders of the partitions are still looked for.
            if matches!(error, Error::Unreachable { .. }) {
                for entry in entries {
                    entry.err = RD_KAFKA_RESP_ERR__IN_PROGRESS;
                }
            }
            return partition_code(&error);
        }
    };
    // The results are in the order of the entries. The call fails if each of them failed.
    let (mut first_error, mut succeeds) = (RD_KAFKA_RESP_ERR_NO_ERROR, false);
    for (entry, (_, result)) in entries.iter_mut().zip(found) {
        match result {
            Ok(found) => {
                succeeds = true;
                entry.err = RD_KAFKA_RESP_ERR_NO_ERROR;
                // No record has this timestamp or a later one.
                entry.offset = if found.offset >= 0 { found.offset } else { RD_KAFKA_OFFSET_END };
                entry.set_leader_epoch(found.leader_epoch.filter(|_| found.offset >= 0));
            }
            Err(error) => {
                entry.set_leader_epoch(None);
                entry.err = entry_code(&error);
                if first_error == RD_KAFKA_RESP_ERR_NO_ERROR {
                    first_error = partition_code(&error);
                }
            }
        }
    }
    if succeeds { RD_KAFKA_RESP_ERR_NO_ERROR } else { first_error }
}
