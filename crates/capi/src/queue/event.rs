//! `rd_kafka_event_t`: what waits in a queue, for applications that read it themselves.

use std::cell::{Cell, UnsafeCell};
use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr::{NonNull, null, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::client::handle::Handle;
use crate::ffi::panic::on_panic;
use crate::ffi::*;
use crate::handles::misuse_report::report;
use crate::messages::known_messages::KnownMessages;
use crate::messages::list_conversion::{self, OwnedList};
use crate::messages::message::{OwnedMessage, Slot};
use crate::messages::slab_pool::SlabPool;
use crate::produce::report_cursor::{ReportCursor, each_report};
use crate::queue::op::{Op, Outcome};

/// An event in its piece of memory, which is reused and never freed: a second destruction finds no event.
pub struct rd_kafka_event_t {
    is_live: AtomicBool,
    event: UnsafeCell<Option<Event>>,
}

/// An event that C does not have yet: dropping it destroys it.
pub(crate) struct OwnedEvent(NonNull<rd_kafka_event_t>);

/// An event; the application destroys it.
pub(crate) struct Event {
    kind: rd_kafka_event_type_t,
    /// An event keeps its client.
    _handle: Arc<Handle>,
    content: Content,
    /// The list that C reads.
    list: Option<OwnedList>,
}

/// Pieces that stay unused, with 100 KB: the last 512 events are not reused.
const UNUSED_EVENTS: usize = 512;

static EVENTS: SlabPool<rd_kafka_event_t> = SlabPool::new(UNUSED_EVENTS);

/// An operation for an application that reads events.
pub(crate) enum Eventual {
    Event(OwnedEvent),
    /// There is no event for it: its function runs.
    Callback(Op),
}

enum Content {
    /// An error of a partition, or its end.
    ConsumerError(OwnedMessage),
    /// One fetched message, until it is taken.
    Message(OwnedMessage, Cell<*mut rd_kafka_message_t>),
    Reports {
        /// Dropped before the messages that it names.
        _known: Option<KnownMessages>,
        slots: Vec<Slot>,
        next: Cell<usize>,
        /// The memory that the messages point to.
        memory: Box<ReportCursor>,
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

// SAFETY: an event may be read and destroyed by any thread, one at a time (rdkafka.h, `rd_kafka_event_t`).
unsafe impl Send for OwnedEvent {}

impl OwnedEvent {
    fn new(event: Event) -> Self {
        let piece = EVENTS.take(|| {
            let empty = rd_kafka_event_t { is_live: AtomicBool::new(false), event: UnsafeCell::new(None) };
            NonNull::from(Box::leak(Box::new(empty)))
        });
        // SAFETY: the piece is free and its memory is never freed, so this is its only user.
        unsafe {
            *piece.as_ref().event.get() = Some(event);
            piece.as_ref().is_live.store(true, Ordering::Release);
        }
        Self(piece)
    }

    /// To C, which destroys it.
    pub(crate) fn into_raw(self) -> *mut rd_kafka_event_t {
        let raw = self.0.as_ptr();
        std::mem::forget(self);
        raw
    }
}

impl Drop for OwnedEvent {
    fn drop(&mut self) {
        destroy(self.0);
    }
}

/// Returns `false` if the event was destroyed before.
fn destroy(piece: NonNull<rd_kafka_event_t>) -> bool {
    // SAFETY: pieces are never freed.
    let own = unsafe { piece.as_ref() };
    if !own.is_live.swap(false, Ordering::AcqRel) {
        return false;
    }
    // SAFETY: the swap makes this the only thread that takes the event.
    drop(unsafe { (*own.event.get()).take() });
    EVENTS.give(piece);
    true
}

#[cold]
fn report_destroyed(rkev: *const rd_kafka_event_t, function: &str) {
    let problem = format!("the rd_kafka_event_t {rkev:p} is destroyed");
    report(function, &problem, "destroy an event once, and do not use it afterwards");
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
            Op::Message(message) if message_error(&message).is_some() => {
                match fatal_error(handle, &message) {
                    Some(cause) => cause,
                    None => Content::ConsumerError(message),
                }
            }
            Op::Message(message) => {
                let raw = message.as_raw();
                Content::Message(message, Cell::new(raw))
            }
            Op::DeliveryReport { report, done } => {
                let mut slots = Vec::with_capacity(report.len());
                let memory = each_report(handle, report, done, |slot| slots.push(slot.lasting()));
                let known = Slot::known(&slots);
                Content::Reports { _known: known, slots, next: Cell::new(0), memory: Box::new(memory) }
            }
            Op::Rebalance { err, partitions, lost } => {
                if let Some(consuming) = handle.consumer_state() {
                    consuming.lost.store(lost, Ordering::Relaxed);
                }
                list = Some(OwnedList(list_conversion::bare(&partitions)));
                Content::Rebalance(err)
            }
            Op::CommitResult(committed) => {
                list = Some(OwnedList(list_conversion::with_offsets(&committed.offsets)));
                let opaque = committed.reply.map_or(handle.callbacks.opaque, |reply| reply.opaque.0);
                Content::CommitResult(committed.err, opaque)
            }
            Op::Error { code, text, fatal } => {
                let fatal_cause = handle.fatal.get().filter(|_| fatal);
                let (code, text) =
                    fatal_cause.map_or((code, text), |(cause, reason)| (*cause, c_strings::c_string(reason)));
                Content::Error { code, text, fatal }
            }
            Op::Stats(json) => Content::Stats(json),
            // There is no such event.
            Op::Throttled(_) | Op::Acknowledged(_) => return Eventual::Callback(op),
            Op::Log(line) => Content::Log {
                level: line.level.into(),
                facility: c_strings::c_string(line.facility),
                text: c_strings::c_string(&line.text),
                contexts: c_strings::c_string(line.context.map_or("", ottla_client::Context::name)),
            },
            Op::TokenRefresh(config, _) => Content::TokenRefresh(config),
            Op::Result(outcome) => Content::Result(outcome),
            #[cfg(test)]
            Op::Nothing => return Eventual::Callback(op),
        };
        Eventual::Event(OwnedEvent::new(Event { kind, _handle: handle.clone(), content, list }))
    }

    /// The event; `None` if it was destroyed, which is reported.
    ///
    /// # Safety
    /// No other call changes or destroys the event meanwhile.
    unsafe fn get(&self, function: &str) -> Option<&Event> {
        if !self.is_live.load(Ordering::Acquire) {
            report_destroyed(self, function);
            return None;
        }
        // SAFETY: the contract of this function, above.
        unsafe { (*self.event.get()).as_ref() }
    }
}

impl Event {
    /// The result of an admin request, if this is one of that kind.
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
            Content::Reports { memory, .. } => memory.error(),
            Content::Result(outcome) => outcome.err,
            Content::ConsumerError(message) => message_error(message).unwrap_or(RD_KAFKA_RESP_ERR_NO_ERROR),
            _ => RD_KAFKA_RESP_ERR_NO_ERROR,
        }
    }
}

/// The content of the event for a fatal error of a consumer: it has the cause in place of `RD_KAFKA_RESP_ERR__FATAL`.
fn fatal_error(handle: &Handle, message: &OwnedMessage) -> Option<Content> {
    message_error(message).filter(|code| *code == RD_KAFKA_RESP_ERR__FATAL)?;
    let (cause, reason) = handle.fatal.get()?;
    Some(Content::Error { code: *cause, text: c_strings::c_string(reason), fatal: true })
}

fn message_error(message: &OwnedMessage) -> Option<rd_kafka_resp_err_t> {
    // SAFETY: it lives.
    let err = unsafe { (*message.as_raw()).err };
    (err != RD_KAFKA_RESP_ERR_NO_ERROR).then_some(err)
}

/// # Safety
/// NULL or an event that lives.
pub(crate) unsafe fn event<'a>(rkev: *const rd_kafka_event_t, function: &str) -> Option<&'a Event> {
    // SAFETY: `rkev` is NULL or an event of this library, used by one call at a time (the contract of this function,
    // above).
    unsafe { rkev.as_ref()?.get(function) }
}

#[on_panic(RD_KAFKA_EVENT_NONE)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_event_type(rkev: *const rd_kafka_event_t) -> rd_kafka_event_type_t {
    // SAFETY: `rkev` is NULL or an event of this library, not yet destroyed (rdkafka.h, `rd_kafka_event_type`).
    unsafe { event(rkev, FUNCTION) }.map_or(RD_KAFKA_EVENT_NONE, |event| event.kind)
}

#[on_panic(null())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_event_name(rkev: *const rd_kafka_event_t) -> *const c_char {
    // SAFETY: `rkev` is NULL or an event of this library, not yet destroyed (rdkafka.h, `rd_kafka_event_name`).
    let kind = unsafe { event(rkev, FUNCTION) }.map_or(RD_KAFKA_EVENT_NONE, |event| event.kind);
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
    if let Some(piece) = NonNull::new(rkev)
        && !destroy(piece)
    {
        report_destroyed(rkev, FUNCTION);
    }
}

#[on_panic(null())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_event_message_next(
    rkev: *mut rd_kafka_event_t,
) -> *const rd_kafka_message_t {
    // SAFETY: `rkev` is NULL or an event of this library; no other thread uses it meanwhile (rdkafka.h,
    // `rd_kafka_event_message_next`).
    unsafe { next_message(rkev, FUNCTION) }
}

/// # Safety
/// The contract of [`event`] applies.
unsafe fn next_message(rkev: *mut rd_kafka_event_t, function: &str) -> *const rd_kafka_message_t {
    // SAFETY: the contract of this function, above.
    let Some(event) = (unsafe { event(rkev, function) }) else { return null() };
    match &event.content {
        // The event keeps it; it goes when the event does.
        Content::Message(_, raw) => raw.replace(null_mut()).cast_const(),
        Content::Reports { slots, next, .. } => {
            let slot = slots.get(next.get());
            next.set(next.get() + 1);
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
        let message = unsafe { next_message(rkev, FUNCTION) };
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
    unsafe { event(rkev, FUNCTION) }.map_or(0, |event| match &event.content {
        Content::Message(..) => 1,
        // As in the original, those that were not taken.
        Content::Reports { slots, next, .. } => slots.len().saturating_sub(next.get()),
        _ => 0,
    })
}

#[on_panic(null())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_event_config_string(rkev: *mut rd_kafka_event_t) -> *const c_char {
    // SAFETY: `rkev` is NULL or an event of this library, not yet destroyed (rdkafka.h,
    // `rd_kafka_event_config_string`).
    unsafe { event(rkev, FUNCTION) }.map_or(null(), |event| match &event.content {
        Content::TokenRefresh(config) if !config.is_empty() => config.as_ptr(),
        _ => null(),
    })
}

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_event_error(rkev: *mut rd_kafka_event_t) -> rd_kafka_resp_err_t {
    // SAFETY: `rkev` is NULL or an event of this library, not yet destroyed (rdkafka.h, `rd_kafka_event_error`).
    unsafe { event(rkev, FUNCTION) }.map_or(RD_KAFKA_RESP_ERR_NO_ERROR, Event::error)
}

#[on_panic(null())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_event_error_string(rkev: *mut rd_kafka_event_t) -> *const c_char {
    // SAFETY: `rkev` is NULL or an event of this library, not yet destroyed (rdkafka.h,
    // `rd_kafka_event_error_string`).
    let Some(event) = (unsafe { event(rkev, FUNCTION) }) else { return null() };
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
    unsafe { event(rkev, FUNCTION) }
        .is_some_and(|event| matches!(event.content, Content::Error { fatal: true, .. }))
        .into()
}

#[on_panic(null_mut())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_event_opaque(rkev: *mut rd_kafka_event_t) -> *mut c_void {
    // SAFETY: `rkev` is NULL or an event of this library, not yet destroyed (rdkafka.h, `rd_kafka_event_opaque`).
    unsafe { event(rkev, FUNCTION) }.map_or(null_mut(), |event| match &event.content {
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
        (unsafe { event(rkev, FUNCTION) }).map(|event| &event.content)
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
    let Some(Content::Log { contexts, .. }) = (unsafe { event(rkev, FUNCTION) }).map(|event| &event.content)
    else {
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
    unsafe { event(rkev, FUNCTION) }.map_or(null(), |event| match &event.content {
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
    unsafe { event(rkev, FUNCTION) }.and_then(|event| event.list.as_ref()).map_or(null_mut(), |list| list.0)
}

#[on_panic(null_mut())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_event_topic_partition(
    rkev: *mut rd_kafka_event_t,
) -> *mut rd_kafka_topic_partition_t {
    // SAFETY: `rkev` is NULL or an event of this library, not yet destroyed (rdkafka.h,
    // `rd_kafka_event_topic_partition`).
    let message = unsafe { event(rkev, FUNCTION) }.and_then(|event| match &event.content {
        Content::Message(message, _) | Content::ConsumerError(message) => Some(message.as_raw()),
        _ => None,
    });
    let Some(message) = message else { return null_mut() };
    // SAFETY: the message lives; its topic does, too.
    unsafe {
        let name = crate::client::topic_handle::rd_kafka_topic_name((*message).rkt);
        if name.is_null() {
            return null_mut();
        }
        let made = crate::messages::partition_list::lone(
            std::ffi::CStr::from_ptr(name),
            (*message).partition,
            (*message).offset,
        );
        if let Some(made) = made.as_mut() {
            made.err = (*message).err;
        }
        made
    }
}
