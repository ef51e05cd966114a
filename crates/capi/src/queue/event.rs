//! `rd_kafka_event_t`: what waits in a queue, for applications that read it themselves.

use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::Arc;

use crate::client::handle::Handle;
use crate::ffi::panic::on_panic;
use crate::ffi::*;
use crate::messages::list_conversion::{self, OwnedList};
use crate::messages::message::{OwnedMessage, Slot};
use crate::produce::report_cursor::{ReportCursor, each_report};
use crate::queue::op::{Op, Outcome};

/// An event; the application destroys it.
pub struct rd_kafka_event_t {
    kind: rd_kafka_event_type_t,
    /// An event keeps its client.
    _handle: Arc<Handle>,
    content: Content,
    /// The list that C reads.
    list: Option<OwnedList>,
}

/// An operation for an application that reads events.
pub(crate) enum Eventual {
    Event(Box<rd_kafka_event_t>),
    /// There is no event for it: its function runs.
    Callback(Op),
}

enum Content {
    /// An error of a partition, or its end.
    ConsumerError(OwnedMessage),
    /// One fetched message, until it is taken.
    Message(Option<OwnedMessage>, *mut rd_kafka_message_t),
    Reports {
        slots: Vec<Slot>,
        next: usize,
        /// The memory that the messages point to.
        _memory: Box<ReportCursor>,
    },
    Rebalance(rd_kafka_resp_err_t),
    CommitResult(rd_kafka_resp_err_t, *mut c_void),
    Error {
        code: rd_kafka_resp_err_t,
        text: CString,
        fatal: bool,
    },
    Stats(CString),
    Log {
        level: c_int,
        facility: CString,
        text: CString,
        contexts: CString,
    },
    TokenRefresh(CString),
    Result(Outcome),
}

impl rd_kafka_event_t {
    /// The event of an operation.
    pub(crate) fn of(handle: &Arc<Handle>, op: Op) -> Eventual {
        let kind = match &op {
            // The end of a partition among them.
            Op::Message(message) if message_error(message).is_some() => RD_KAFKA_EVENT_ERROR,
            other => other.event_type(),
        };
        let mut list = None;
        let content = match op {
            Op::Message(message) if message_error(&message).is_some() => Content::ConsumerError(message),
            Op::Message(message) => {
                let raw = message.as_raw();
                Content::Message(Some(message), raw)
            }
            Op::DeliveryReport { report, done } => {
                let mut slots = Vec::with_capacity(report.len());
                let memory = each_report(handle, report, done, |slot| slots.push(slot.lasting()));
                Content::Reports { slots, next: 0, _memory: Box::new(memory) }
            }
            Op::Rebalance { err, partitions, lost } => {
                if let Some(consuming) = handle.consumer_state() {
                    consuming.lost.store(lost, std::sync::atomic::Ordering::Relaxed);
                }
                list = Some(OwnedList(list_conversion::bare(&partitions)));
                Content::Rebalance(err)
            }
            Op::CommitResult(committed) => {
                if committed.call.is_some() && handle.callbacks.events & RD_KAFKA_EVENT_OFFSET_COMMIT == 0 {
                    return Eventual::Callback(Op::CommitResult(committed));
                }
                list = Some(OwnedList(list_conversion::with_offsets(&committed.offsets, committed.err)));
                let opaque = committed.call.map_or(null_mut(), |(_, opaque)| opaque.0);
                Content::CommitResult(committed.err, opaque)
            }
            Op::Error { code, text, fatal } => Content::Error { code, text, fatal },
            Op::Stats(json) => Content::Stats(json),
            // There is no such event.
            Op::Throttled(_) => return Eventual::Callback(op),
            Op::Log(line) => Content::Log {
                level: line.level.into(),
                facility: c_strings::c_string(line.facility),
                text: c_strings::c_string(&line.text),
                contexts: c_strings::c_string(line.context.map_or("", ottla_client::Context::name)),
            },
            Op::TokenRefresh(config) => Content::TokenRefresh(config),
            Op::Result(outcome) => Content::Result(outcome),
            #[cfg(test)]
            Op::Nothing => return Eventual::Callback(op),
        };
        Eventual::Event(Box::new(Self { kind, _handle: handle.clone(), content, list }))
    }

    /// The result of an admin request, if this is one of that kind.
    #[allow(dead_code, reason = "for the admin interface")]
    pub(crate) fn outcome(&self) -> Option<&Outcome> {
        match &self.content {
            Content::Result(outcome) => Some(outcome),
            _ => None,
        }
    }

    fn error(&self) -> rd_kafka_resp_err_t {
        match &self.content {
            Content::Rebalance(err) | Content::CommitResult(err, _) => *err,
            Content::Error { code, .. } => *code,
            Content::Result(outcome) => outcome.err,
            Content::ConsumerError(message) => message_error(message).unwrap_or(RD_KAFKA_RESP_ERR_NO_ERROR),
            _ => RD_KAFKA_RESP_ERR_NO_ERROR,
        }
    }
}

fn message_error(message: &OwnedMessage) -> Option<rd_kafka_resp_err_t> {
    // SAFETY: it lives.
    let err = unsafe { (*message.as_raw()).err };
    (err != RD_KAFKA_RESP_ERR_NO_ERROR).then_some(err)
}

/// # Safety
/// NULL or an event that lives.
unsafe fn event<'a>(rkev: *const rd_kafka_event_t) -> Option<&'a rd_kafka_event_t> {
    // SAFETY: `rkev` is NULL or an event of this library, not yet destroyed (the contract of this function, above).
    unsafe { rkev.as_ref() }
}

#[on_panic(RD_KAFKA_EVENT_NONE)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_event_type(rkev: *const rd_kafka_event_t) -> rd_kafka_event_type_t {
    // SAFETY: `rkev` is NULL or an event of this library, not yet destroyed (rdkafka.h, `rd_kafka_event_type`).
    unsafe { event(rkev) }.map_or(RD_KAFKA_EVENT_NONE, |event| event.kind)
}

#[on_panic(null())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_event_name(rkev: *const rd_kafka_event_t) -> *const c_char {
    // SAFETY: `rkev` is NULL or an event of this library, not yet destroyed (rdkafka.h, `rd_kafka_event_name`).
    let kind = unsafe { event(rkev) }.map_or(RD_KAFKA_EVENT_NONE, |event| event.kind);
    name(kind).as_ptr()
}

/// The names that librdkafka gives the kinds of events.
fn name(kind: rd_kafka_event_type_t) -> &'static std::ffi::CStr {
    match kind {
        RD_KAFKA_EVENT_NONE => c"(NONE)",
        RD_KAFKA_EVENT_DR => c"DeliveryReport",
        RD_KAFKA_EVENT_FETCH => c"Fetch",
        RD_KAFKA_EVENT_LOG => c"Log",
        RD_KAFKA_EVENT_ERROR => c"Error",
        RD_KAFKA_EVENT_REBALANCE => c"Rebalance",
        RD_KAFKA_EVENT_OFFSET_COMMIT => c"OffsetCommit",
        RD_KAFKA_EVENT_STATS => c"Stats",
        RD_KAFKA_EVENT_CREATETOPICS_RESULT => c"CreateTopicsResult",
        RD_KAFKA_EVENT_DELETETOPICS_RESULT => c"DeleteTopicsResult",
        RD_KAFKA_EVENT_CREATEPARTITIONS_RESULT => c"CreatePartitionsResult",
        RD_KAFKA_EVENT_ALTERCONFIGS_RESULT => c"AlterConfigsResult",
        RD_KAFKA_EVENT_INCREMENTALALTERCONFIGS_RESULT => c"IncrementalAlterConfigsResult",
        RD_KAFKA_EVENT_DESCRIBECONFIGS_RESULT => c"DescribeConfigsResult",
        RD_KAFKA_EVENT_DELETERECORDS_RESULT => c"DeleteRecordsResult",
        RD_KAFKA_EVENT_LISTCONSUMERGROUPS_RESULT => c"ListConsumerGroupsResult",
        RD_KAFKA_EVENT_DESCRIBECONSUMERGROUPS_RESULT => c"DescribeConsumerGroupsResult",
        RD_KAFKA_EVENT_DELETEGROUPS_RESULT => c"DeleteGroupsResult",
        RD_KAFKA_EVENT_DELETECONSUMERGROUPOFFSETS_RESULT => c"DeleteConsumerGroupOffsetsResult",
        RD_KAFKA_EVENT_CREATEACLS_RESULT => c"CreateAclsResult",
        RD_KAFKA_EVENT_DESCRIBEACLS_RESULT => c"DescribeAclsResult",
        RD_KAFKA_EVENT_DELETEACLS_RESULT => c"DeleteAclsResult",
        RD_KAFKA_EVENT_ALTERCONSUMERGROUPOFFSETS_RESULT => c"AlterConsumerGroupOffsetsResult",
        RD_KAFKA_EVENT_LISTCONSUMERGROUPOFFSETS_RESULT => c"ListConsumerGroupOffsetsResult",
        RD_KAFKA_EVENT_OAUTHBEARER_TOKEN_REFRESH => c"SaslOAuthBearerTokenRefresh",
        RD_KAFKA_EVENT_DESCRIBEUSERSCRAMCREDENTIALS_RESULT => c"DescribeUserScramCredentials",
        RD_KAFKA_EVENT_ALTERUSERSCRAMCREDENTIALS_RESULT => c"AlterUserScramCredentials",
        RD_KAFKA_EVENT_DESCRIBETOPICS_RESULT => c"DescribeTopicsResult",
        RD_KAFKA_EVENT_DESCRIBECLUSTER_RESULT => c"DescribeClusterResult",
        RD_KAFKA_EVENT_LISTOFFSETS_RESULT => c"ListOffsetsResult",
        RD_KAFKA_EVENT_ELECTLEADERS_RESULT => c"ElectLeadersResult",
        _ => c"?unknown?",
    }
}

#[on_panic(())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_event_destroy(rkev: *mut rd_kafka_event_t) {
    if !rkev.is_null() {
        // SAFETY: from a box, given back once (rdkafka.h, `rd_kafka_event_destroy`).
        drop(unsafe { Box::from_raw(rkev) });
    }
}

#[on_panic(null())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_event_message_next(
    rkev: *mut rd_kafka_event_t,
) -> *const rd_kafka_message_t {
    // SAFETY: no other thread uses the event meanwhile (rdkafka.h, `rd_kafka_event_message_next`).
    let Some(event) = (unsafe { rkev.as_mut() }) else { return null() };
    match &mut event.content {
        // The event keeps it; it goes when the event does.
        Content::Message(_, raw) => std::mem::replace(raw, null_mut()).cast_const(),
        Content::Reports { slots, next, .. } => {
            let slot = slots.get(*next);
            *next += 1;
            slot.map_or(null(), Slot::as_raw)
        }
        _ => null(),
    }
}

#[on_panic(0)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_event_message_array(
    rkev: *mut rd_kafka_event_t,
    rkmessages: *mut *const rd_kafka_message_t,
    size: usize,
) -> usize {
    let mut count = 0;
    while count < size {
        // SAFETY: `rkev` is NULL or an event of this library, not yet destroyed (rdkafka.h,
        // `rd_kafka_event_message_array`).
        let message = unsafe { rd_kafka_event_message_next(rkev) };
        if message.is_null() || rkmessages.is_null() {
            break;
        }
        // SAFETY: there is room (rdkafka.h, `rd_kafka_event_message_array`).
        unsafe { *rkmessages.add(count) = message };
        count += 1;
    }
    count
}

#[on_panic(0)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_event_message_count(rkev: *mut rd_kafka_event_t) -> usize {
    // SAFETY: `rkev` is NULL or an event of this library, not yet destroyed (rdkafka.h,
    // `rd_kafka_event_message_count`).
    unsafe { event(rkev) }.map_or(0, |event| match &event.content {
        Content::Message(..) => 1,
        Content::Reports { slots, .. } => slots.len(),
        _ => 0,
    })
}

#[on_panic(null())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_event_config_string(rkev: *mut rd_kafka_event_t) -> *const c_char {
    // SAFETY: `rkev` is NULL or an event of this library, not yet destroyed (rdkafka.h,
    // `rd_kafka_event_config_string`).
    unsafe { event(rkev) }.map_or(null(), |event| match &event.content {
        Content::TokenRefresh(config) if !config.is_empty() => config.as_ptr(),
        _ => null(),
    })
}

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_event_error(rkev: *mut rd_kafka_event_t) -> rd_kafka_resp_err_t {
    // SAFETY: `rkev` is NULL or an event of this library, not yet destroyed (rdkafka.h, `rd_kafka_event_error`).
    unsafe { event(rkev) }.map_or(RD_KAFKA_RESP_ERR_NO_ERROR, rd_kafka_event_t::error)
}

#[on_panic(null())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_event_error_string(rkev: *mut rd_kafka_event_t) -> *const c_char {
    // SAFETY: `rkev` is NULL or an event of this library, not yet destroyed (rdkafka.h,
    // `rd_kafka_event_error_string`).
    let Some(event) = (unsafe { event(rkev) }) else { return null() };
    match &event.content {
        Content::Error { text, .. } if !text.is_empty() => text.as_ptr(),
        // SAFETY: the message lives as long as the event.
        Content::ConsumerError(message) => unsafe {
            crate::messages::message::rd_kafka_message_errstr(message.as_raw())
        },
        Content::Result(outcome) if !outcome.text.is_empty() => outcome.text.as_ptr(),
        _ => crate::errors::error_object::rd_kafka_err2str(event.error()),
    }
}

#[on_panic(0)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_event_error_is_fatal(rkev: *mut rd_kafka_event_t) -> c_int {
    // SAFETY: `rkev` is NULL or an event of this library, not yet destroyed (rdkafka.h,
    // `rd_kafka_event_error_is_fatal`).
    unsafe { event(rkev) }
        .is_some_and(|event| matches!(event.content, Content::Error { fatal: true, .. }))
        .into()
}

#[on_panic(null_mut())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_event_opaque(rkev: *mut rd_kafka_event_t) -> *mut c_void {
    // SAFETY: `rkev` is NULL or an event of this library, not yet destroyed (rdkafka.h, `rd_kafka_event_opaque`).
    unsafe { event(rkev) }.map_or(null_mut(), |event| match &event.content {
        Content::CommitResult(_, opaque) => *opaque,
        Content::Result(outcome) => outcome.opaque.0,
        _ => null_mut(),
    })
}

#[on_panic(-1)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_event_log(
    rkev: *mut rd_kafka_event_t,
    fac: *mut *const c_char,
    str: *mut *const c_char,
    level: *mut c_int,
) -> c_int {
    // SAFETY: `rkev` is NULL or an event of this library, not yet destroyed; `level` is NULL or writable (rdkafka.h,
    // `rd_kafka_event_log`).
    let Some(Content::Log { level: known, facility, text, .. }) =
        (unsafe { event(rkev) }).map(|event| &event.content)
    else {
        return -1;
    };
    // SAFETY: `fac`, `str` and `level` are each NULL or writable (rdkafka.h, `rd_kafka_event_log`).
    unsafe {
        if let Some(place) = fac.as_mut() {
            *place = facility.as_ptr();
        }
        if let Some(place) = str.as_mut() {
            *place = text.as_ptr();
        }
        if let Some(place) = level.as_mut() {
            *place = *known;
        }
    }
    0
}

#[on_panic(-1)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_event_debug_contexts(
    rkev: *mut rd_kafka_event_t,
    dst: *mut c_char,
    dstsize: usize,
) -> c_int {
    // SAFETY: `rkev` is NULL or an event of this library, not yet destroyed (rdkafka.h,
    // `rd_kafka_event_debug_contexts`).
    let Some(Content::Log { contexts, .. }) = (unsafe { event(rkev) }).map(|event| &event.content) else {
        return -1;
    };
    // SAFETY: `dst` is NULL or a buffer of `dstsize` bytes (rdkafka.h, `rd_kafka_event_debug_contexts`).
    unsafe { c_strings::write_errstr(dst, dstsize, &contexts.to_string_lossy()) };
    0
}

#[on_panic(null())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_event_stats(rkev: *mut rd_kafka_event_t) -> *const c_char {
    // SAFETY: `rkev` is NULL or an event of this library, not yet destroyed (rdkafka.h, `rd_kafka_event_stats`).
    unsafe { event(rkev) }.map_or(null(), |event| match &event.content {
        Content::Stats(json) => json.as_ptr(),
        _ => null(),
    })
}

#[on_panic(null_mut())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_event_topic_partition_list(
    rkev: *mut rd_kafka_event_t,
) -> *mut rd_kafka_topic_partition_list_t {
    // SAFETY: `rkev` is NULL or an event of this library, not yet destroyed (rdkafka.h,
    // `rd_kafka_event_topic_partition_list`).
    unsafe { event(rkev) }.and_then(|event| event.list.as_ref()).map_or(null_mut(), |list| list.0)
}

#[on_panic(null_mut())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_event_topic_partition(
    rkev: *mut rd_kafka_event_t,
) -> *mut rd_kafka_topic_partition_t {
    // SAFETY: `rkev` is NULL or an event of this library, not yet destroyed (rdkafka.h,
    // `rd_kafka_event_topic_partition`).
    let message = unsafe { event(rkev) }.and_then(|event| match &event.content {
        Content::Message(message, _) => message.as_ref().map(OwnedMessage::as_raw),
        Content::ConsumerError(message) => Some(message.as_raw()),
        _ => None,
    });
    let Some(message) = message else { return null_mut() };
    // SAFETY: the message lives; its topic does, too.
    unsafe {
        let name = crate::client::topic_handle::rd_kafka_topic_name((*message).rkt);
        if name.is_null() {
            return null_mut();
        }
        crate::messages::partition_list::lone(
            std::ffi::CStr::from_ptr(name),
            (*message).partition,
            (*message).offset,
        )
    }
}
