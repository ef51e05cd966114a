//! Offsets: stored, committed, looked up.

use std::collections::BTreeMap;
use std::ffi::{c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::Arc;
use std::time::Duration;

use ottla_client::{
    Admin, AutoCommitted, Client, Committing, Error, OffsetAndMetadata, OffsetAt, TopicPartition, Watermarks,
};

use crate::codes::of as code_of;
use crate::consumer::{Consuming, ENGINE_TIMEOUT};
use crate::error::rd_kafka_error_t;
use crate::ffi::*;
use crate::handle::Handle;
use crate::lists;
use crate::op::{CommitCall, Committed, Op, Opaque};
use crate::panic::on_panic;
use crate::queue::{Queue, timeout_of};
use crate::text::text;
use crate::topic::Topic;

/// Offsets to commit, and where they come from.
type Offsets = Vec<(TopicPartition, OffsetAndMetadata)>;

unsafe fn consumer(rk: *mut rd_kafka_t) -> Result<(Arc<Handle>, Arc<Consuming>), rd_kafka_resp_err_t> {
    // SAFETY: `rk` is NULL or a handle from `rd_kafka_new`, not yet destroyed (required by the C functions that call
    // this).
    let handle = unsafe { Handle::shared(rk) }.ok_or(RD_KAFKA_RESP_ERR__INVALID_ARG)?;
    let consuming = handle.consuming().cloned().ok_or(RD_KAFKA_RESP_ERR__UNKNOWN_GROUP)?;
    Ok((handle, consuming))
}

/// What a list says is to be committed, or what is stored.
unsafe fn to_commit(consuming: &Consuming, offsets: *const rd_kafka_topic_partition_list_t) -> Offsets {
    if offsets.is_null() {
        return consuming.control.uncommitted().into_iter().collect();
    }
    // SAFETY: `offsets` is NULL or a list of this library, not yet destroyed (required by the C functions that call
    // this).
    let entries = unsafe { lists::entries(offsets) };
    entries
        .iter()
        .filter(|entry| entry.offset >= 0)
        .map(|entry| (lists::at(entry), lists::offset(entry)))
        .collect()
}

fn commit_code(error: &Error) -> rd_kafka_resp_err_t {
    match error {
        // The group gave them to somebody else.
        Error::NotAssigned { .. } => RD_KAFKA_RESP_ERR_ILLEGAL_GENERATION,
        Error::TimedOut { .. } => RD_KAFKA_RESP_ERR__TIMED_OUT,
        error => code_of(error),
    }
}

/// Tells `queue` what became of a commit, when it has.
fn tell(
    handle: &Arc<Handle>,
    queue: Arc<Queue>,
    asked: Committing,
    offsets: Offsets,
    call: Option<(CommitCall, Opaque)>,
) {
    let Some(client) = handle.client() else { return };
    let weak = Arc::downgrade(handle);
    client.spawn(async move {
        let err = asked.await.map_or_else(|error| commit_code(&error), |()| RD_KAFKA_RESP_ERR_NO_ERROR);
        if let Some(handle) = weak.upgrade() {
            tell_hooks(&handle, &offsets, err);
        }
        queue.push(Op::Committed(Committed { err, offsets, call }));
    });
}

fn tell_hooks(handle: &Handle, offsets: &Offsets, err: rd_kafka_resp_err_t) {
    if let Some(hooks) = handle.hooking.get() {
        hooks.on_commit(handle, offsets, err);
    }
}

/// Tells what became of a commit that nobody called for.
pub(crate) fn tell_unasked(handle: &Handle, told: AutoCommitted) {
    let err = told.result.map_or_else(|error| commit_code(&error), |()| RD_KAFKA_RESP_ERR_NO_ERROR);
    tell_hooks(handle, &told.offsets, err);
    if handle.tells_commits()
        && let Some(consuming) = handle.consuming()
    {
        consuming.queue.push(Op::Committed(Committed { err, offsets: told.offsets, call: None }));
    }
}

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_commit(
    rk: *mut rd_kafka_t,
    offsets: *const rd_kafka_topic_partition_list_t,
    async_: c_int,
) -> rd_kafka_resp_err_t {
    // SAFETY: `rk` is NULL or a handle from `rd_kafka_new`, not yet destroyed (rdkafka.h, `rd_kafka_commit`).
    let (handle, consuming) = match unsafe { consumer(rk) } {
        Ok(found) => found,
        Err(code) => return code,
    };
    if handle.config.group_id.is_none() && !handle.config.offset_files {
        return RD_KAFKA_RESP_ERR__UNKNOWN_GROUP;
    }
    // SAFETY: `offsets` is NULL or a list of this library, not yet destroyed (rdkafka.h, `rd_kafka_commit`).
    let wanted = unsafe { to_commit(&consuming, offsets) };
    if wanted.is_empty() {
        return RD_KAFKA_RESP_ERR__NO_OFFSET;
    }
    let asked = consuming.control.commit_offsets(&wanted);
    if async_ != 0 {
        if handle.tells_commits() {
            tell(&handle, consuming.queue.clone(), asked, wanted, None);
        } else if handle.hooking.get().is_some_and(|hooks| hooks.wants_commits()) {
            // Into a queue that nobody reads.
            tell(&handle, Queue::new(), asked, wanted, None);
        }
        return RD_KAFKA_RESP_ERR_NO_ERROR;
    }
    let code =
        asked.wait(ENGINE_TIMEOUT).map_or_else(|error| commit_code(&error), |()| RD_KAFKA_RESP_ERR_NO_ERROR);
    tell_hooks(&handle, &wanted, code);
    if code != RD_KAFKA_RESP_ERR_NO_ERROR {
        // SAFETY: `offsets` is NULL or a list of this library, not yet destroyed (rdkafka.h, `rd_kafka_commit`).
        unsafe { lists::entries(offsets) }.iter_mut().for_each(|entry| entry.err = code);
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
    // SAFETY: the `rkt` of a message of this library is NULL or lives as long as the message (rdkafka.h,
    // `rd_kafka_message_t`).
    let topic = unsafe { Topic::of(message.rkt) };
    let (Some(topic), RD_KAFKA_RESP_ERR_NO_ERROR) = (topic, message.err) else {
        return RD_KAFKA_RESP_ERR__INVALID_ARG;
    };
    let at = TopicPartition::new(&topic.name, message.partition);
    let list = lists::OwnedList(lists::list(std::iter::once((&at, message.offset + 1))));
    // SAFETY: `rk` is NULL or a handle from `rd_kafka_new`, not yet destroyed; `rkmessage` is NULL or a message of
    // this library, not yet destroyed (rdkafka.h, `rd_kafka_commit_message`).
    unsafe {
        let epoch = crate::message::rd_kafka_message_leader_epoch(rkmessage);
        if let [entry] = lists::entries(list.0) {
            entry.private_mut().leader_epoch = epoch;
        }
        rd_kafka_commit(rk, list.0, async_)
    }
}

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_commit_queue(
    rk: *mut rd_kafka_t,
    offsets: *const rd_kafka_topic_partition_list_t,
    rkqu: *mut rd_kafka_queue_t,
    cb: rd_kafka_offset_commit_cb_t,
    commit_opaque: *mut c_void,
) -> rd_kafka_resp_err_t {
    // SAFETY: `rk` is NULL or a handle from `rd_kafka_new`, not yet destroyed (rdkafka.h, `rd_kafka_commit_queue`).
    let (handle, consuming) = match unsafe { consumer(rk) } {
        Ok(found) => found,
        Err(code) => return code,
    };
    // SAFETY: `offsets` is NULL or a list of this library, not yet destroyed (rdkafka.h, `rd_kafka_commit_queue`).
    let wanted = unsafe { to_commit(&consuming, offsets) };
    // SAFETY: `rkqu` is NULL or a queue of this library, not yet destroyed (rdkafka.h, `rd_kafka_commit_queue`).
    let given = unsafe { rd_kafka_queue_t::of(rkqu) }.map(|queue| queue.queue.clone());
    let waits = given.is_none();
    let queue = given.unwrap_or_else(Queue::new);
    let call = cb.map(|function| (function as CommitCall, Opaque(commit_opaque)));
    if wanted.is_empty() {
        let committed = Committed { err: RD_KAFKA_RESP_ERR__NO_OFFSET, offsets: wanted, call };
        if waits {
            crate::poll::serve(&handle, Op::Committed(committed));
            return RD_KAFKA_RESP_ERR__NO_OFFSET;
        }
        queue.push(Op::Committed(committed));
        return RD_KAFKA_RESP_ERR_NO_ERROR;
    }
    let asked = consuming.control.commit_offsets(&wanted);
    tell(&handle, queue.clone(), asked, wanted, call);
    // Without a queue the answer is waited for here.
    if waits && let Some(Op::Committed(committed)) = queue.poll(Some(ENGINE_TIMEOUT)) {
        let err = committed.err;
        crate::poll::serve(&handle, Op::Committed(committed));
        return err;
    }
    RD_KAFKA_RESP_ERR_NO_ERROR
}

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_committed(
    rk: *mut rd_kafka_t,
    partitions: *mut rd_kafka_topic_partition_list_t,
    timeout_ms: c_int,
) -> rd_kafka_resp_err_t {
    // SAFETY: `rk` is NULL or a handle from `rd_kafka_new`, not yet destroyed (rdkafka.h, `rd_kafka_committed`).
    let (_handle, consuming) = match unsafe { consumer(rk) } {
        Ok(found) => found,
        Err(code) => return code,
    };
    if partitions.is_null() {
        return RD_KAFKA_RESP_ERR__INVALID_ARG;
    }
    // SAFETY: `partitions` is NULL or a list of this library, not yet destroyed (rdkafka.h, `rd_kafka_committed`).
    let wanted = unsafe { lists::partitions(partitions) };
    let timeout = timeout_of(timeout_ms).unwrap_or(ENGINE_TIMEOUT);
    match consuming.control.committed_offsets(&wanted).wait(timeout) {
        Ok(found) => {
            // SAFETY: `partitions` is NULL or a list of this library, not yet destroyed (rdkafka.h,
            // `rd_kafka_committed`).
            for entry in unsafe { lists::entries(partitions) } {
                entry.err = RD_KAFKA_RESP_ERR_NO_ERROR;
                let known = found.get(&lists::at(entry));
                entry.offset = known.map_or(RD_KAFKA_OFFSET_INVALID, |known| known.offset);
                entry.set_metadata(known.map_or(&[], |known| known.metadata.as_bytes()));
                entry.private_mut().leader_epoch = known.and_then(|known| known.leader_epoch).unwrap_or(-1);
            }
            RD_KAFKA_RESP_ERR_NO_ERROR
        }
        Err(Error::TimedOut { .. }) => RD_KAFKA_RESP_ERR__TIMED_OUT,
        Err(error) => code_of(&error),
    }
}

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_position(
    rk: *mut rd_kafka_t,
    partitions: *mut rd_kafka_topic_partition_list_t,
) -> rd_kafka_resp_err_t {
    // SAFETY: `rk` is NULL or a handle from `rd_kafka_new`, not yet destroyed (rdkafka.h, `rd_kafka_position`).
    let Ok((_handle, consuming)) = (unsafe { consumer(rk) }) else {
        return RD_KAFKA_RESP_ERR__INVALID_ARG;
    };
    if partitions.is_null() {
        return RD_KAFKA_RESP_ERR__INVALID_ARG;
    }
    let assigned = consuming.control.assignment();
    let done = consuming.control.positions();
    // SAFETY: `partitions` is NULL or a list of this library, not yet destroyed (rdkafka.h, `rd_kafka_position`).
    for entry in unsafe { lists::entries(partitions) } {
        let at = lists::at(entry);
        entry.offset = RD_KAFKA_OFFSET_INVALID;
        if assigned.binary_search(&at).is_err() {
            entry.err = RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION;
            continue;
        }
        entry.err = RD_KAFKA_RESP_ERR_NO_ERROR;
        if let Some(next) = done.get(&at) {
            entry.offset = *next;
        }
    }
    RD_KAFKA_RESP_ERR_NO_ERROR
}

/// Stores an offset that the application says is done; only where it says so itself.
fn store(
    handle: &Handle,
    consuming: &Consuming,
    at: &TopicPartition,
    offset: OffsetAndMetadata,
) -> rd_kafka_resp_err_t {
    if handle.config.auto_offset_store && handle.config.group_id.is_some() && handle.config.auto_commit {
        return RD_KAFKA_RESP_ERR__INVALID_ARG;
    }
    match consuming.control.store_offset(at, offset) {
        Ok(()) => RD_KAFKA_RESP_ERR_NO_ERROR,
        Err(Error::NotAssigned { .. }) => RD_KAFKA_RESP_ERR__STATE,
        Err(error) => code_of(&error),
    }
}

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_offsets_store(
    rk: *mut rd_kafka_t,
    offsets: *mut rd_kafka_topic_partition_list_t,
) -> rd_kafka_resp_err_t {
    // SAFETY: `rk` is NULL or a handle from `rd_kafka_new`, not yet destroyed (rdkafka.h, `rd_kafka_offsets_store`).
    let (handle, consuming) = match unsafe { consumer(rk) } {
        Ok(found) => found,
        Err(code) => return code,
    };
    let (mut last, mut stored, mut count) = (RD_KAFKA_RESP_ERR_NO_ERROR, 0, 0);
    // SAFETY: `offsets` is NULL or a list of this library, not yet destroyed (rdkafka.h, `rd_kafka_offsets_store`).
    for entry in unsafe { lists::entries(offsets) }.iter_mut() {
        count += 1;
        entry.err = store(&handle, &consuming, &lists::at(entry), lists::offset(entry));
        if entry.err == RD_KAFKA_RESP_ERR_NO_ERROR {
            stored += 1;
        } else {
            last = entry.err;
        }
    }
    // Only if none could be stored is it an error as a whole.
    if count > 0 && stored == 0 { last } else { RD_KAFKA_RESP_ERR_NO_ERROR }
}

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_offset_store(
    rkt: *mut rd_kafka_topic_t,
    partition: i32,
    offset: i64,
) -> rd_kafka_resp_err_t {
    // SAFETY: `rkt` is NULL or a topic from `rd_kafka_topic_new`, not yet destroyed (rdkafka.h,
    // `rd_kafka_offset_store`).
    let topic = unsafe { Topic::of(rkt) };
    let Some((topic, handle)) = topic.and_then(Topic::with_handle) else {
        return RD_KAFKA_RESP_ERR__INVALID_ARG;
    };
    let Some(consuming) = handle.consuming() else { return RD_KAFKA_RESP_ERR__INVALID_ARG };
    if offset < 0 {
        return RD_KAFKA_RESP_ERR__INVALID_ARG;
    }
    store(handle, consuming, &TopicPartition::new(&topic.name, partition), (offset + 1).into())
}

#[on_panic(crate::error::panicked())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_offset_store_message(
    rkmessage: *mut rd_kafka_message_t,
) -> *mut rd_kafka_error_t {
    let refused = |code, text| rd_kafka_error_t::new(code, text).into_raw();
    // SAFETY: `rkmessage` is NULL or a message of this library, not yet destroyed (rdkafka.h,
    // `rd_kafka_offset_store_message`).
    let Some(message) = (unsafe { rkmessage.as_ref() }) else {
        return refused(RD_KAFKA_RESP_ERR__INVALID_ARG, "no message");
    };
    if message.err != RD_KAFKA_RESP_ERR_NO_ERROR {
        return refused(RD_KAFKA_RESP_ERR__INVALID_ARG, "Message object must not have an error set");
    }
    // SAFETY: the `rkt` of a message of this library is NULL or lives as long as the message (rdkafka.h,
    // `rd_kafka_message_t`).
    let topic = unsafe { Topic::of(message.rkt) };
    let Some((topic, handle)) = topic.and_then(Topic::with_handle) else {
        return refused(RD_KAFKA_RESP_ERR__INVALID_ARG, "the message has no topic");
    };
    let Some(consuming) = handle.consuming() else {
        return refused(RD_KAFKA_RESP_ERR__INVALID_ARG, "the message is no consumer's");
    };
    let at = TopicPartition::new(&topic.name, message.partition);
    // SAFETY: `rkmessage` is NULL or a message of this library, not yet destroyed (rdkafka.h,
    // `rd_kafka_offset_store_message`).
    let epoch = unsafe { crate::message::rd_kafka_message_leader_epoch(rkmessage) };
    let mut offset = OffsetAndMetadata::from(message.offset + 1);
    offset.leader_epoch = (epoch >= 0).then_some(epoch);
    match store(handle, consuming, &at, offset) {
        RD_KAFKA_RESP_ERR_NO_ERROR => null_mut(),
        code => refused(code, ""),
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
    let (Some(handle), Some(name)) = (unsafe { Handle::shared(rk) }, unsafe { text(topic) }) else {
        return RD_KAFKA_RESP_ERR__INVALID_ARG;
    };
    let timeout = timeout_of(timeout_ms).unwrap_or(Duration::from_secs(3600));
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

/// Where a partition begins and ends, asked of its leader.
pub(crate) fn watermarks(
    client: &Client,
    at: &TopicPartition,
    timeout: Duration,
) -> Result<Watermarks, Error> {
    let (admin, at) = (Admin::of(client), at.clone());
    wait_on(client, timeout, async move {
        let low = admin.list_offsets(&[(at.clone(), OffsetAt::Earliest)]).await?;
        let high = admin.list_offsets(&[(at.clone(), OffsetAt::Latest)]).await?;
        let of = |found: &BTreeMap<TopicPartition, i64>| found.get(&at).copied().unwrap_or(-1);
        Ok(Watermarks { low: of(&low), high: of(&high) })
    })
}

/// Waits for what the engine does, `timeout` at most.
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

/// A topic or partition that is not there has codes of its own here.
fn partition_code(error: &Error) -> rd_kafka_resp_err_t {
    match code_of(error) {
        RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART => RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION,
        code => code,
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
    let (Ok((_handle, consuming)), Some(name)) = (unsafe { consumer(rk) }, unsafe { text(topic) }) else {
        return RD_KAFKA_RESP_ERR__INVALID_ARG;
    };
    let at = TopicPartition::new(&name, partition);
    if consuming.control.assignment().binary_search(&at).is_err() {
        return RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION;
    }
    let marks = consuming.control.watermarks(&at);
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
    // SAFETY: `rk` is NULL or a handle from `rd_kafka_new`, not yet destroyed (rdkafka.h,
    // `rd_kafka_offsets_for_times`).
    let Some(handle) = (unsafe { Handle::shared(rk) }) else { return RD_KAFKA_RESP_ERR__INVALID_ARG };
    if offsets.is_null() {
        return RD_KAFKA_RESP_ERR__INVALID_ARG;
    }
    let Some(client) = handle.client() else { return RD_KAFKA_RESP_ERR__DESTROY };
    // SAFETY: `offsets` is NULL or a list of this library, not yet destroyed (rdkafka.h,
    // `rd_kafka_offsets_for_times`).
    let entries = unsafe { lists::entries(offsets) };
    let wanted: Vec<_> = entries.iter().map(|entry| (lists::at(entry), entry.offset)).collect();
    let timeout = timeout_of(timeout_ms).unwrap_or(Duration::from_secs(3600));
    let admin = Admin::of(client);
    let asked = async move {
        let wanted: Vec<_> =
            wanted.into_iter().map(|(at, timestamp)| (at, OffsetAt::Timestamp(timestamp))).collect();
        admin.list_offsets(&wanted).await
    };
    let found = match wait_on(client, timeout, asked) {
        Ok(found) => found,
        Err(Error::TimedOut { .. }) => return RD_KAFKA_RESP_ERR__TIMED_OUT,
        Err(error) => return partition_code(&error),
    };
    for entry in entries {
        let known = found.get(&lists::at(entry)).copied();
        entry.err =
            if known.is_some() { RD_KAFKA_RESP_ERR_NO_ERROR } else { RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION };
        // Past the last record it is the end.
        entry.offset = known.filter(|offset| *offset >= 0).unwrap_or(RD_KAFKA_OFFSET_END);
    }
    RD_KAFKA_RESP_ERR_NO_ERROR
}
