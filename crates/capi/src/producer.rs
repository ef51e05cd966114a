//! Producing: records in, reports out.
//!
//! A record is encoded in the calling thread, so its bytes are the application's again when the call returns. What the
//! report must say of it travels as the record's tag: the application's opaque in the lower half, and above it, where the
//! application did not ask for a copy, its own pointer, which comes back in the report.

use std::cell::Cell;
use std::ffi::{CStr, c_int, c_void};
use std::ptr::{null_mut, slice_from_raw_parts};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ottla_client::{HeadersRef, Persisted, Producer, Purge, Record, Report, Reports};

use crate::codes::of_produce as code_of_produce;
use crate::error::{rd_kafka_error_t, set_last_error_and_errno};
use crate::ffi::*;
use crate::handle::Handle;
use crate::headers::rd_kafka_headers_t;
use crate::hooks::Hooks;
use crate::message::{Delivered, Slot};
use crate::op::Op;
use crate::panic::{calls_back, guard, on_panic};
use crate::poll::{serve, serve_all};
use crate::queue::{Queue, Source, timeout_of};
use crate::topic::Topic;

/// Set in the upper half of a tag when the pointer there is to be freed after the report.
const FREE: u128 = 1 << 127;
const POINTER: u128 = !FREE >> 64;

/// Delivery reports, as a source of a queue.
pub(crate) struct Reporting {
    reports: Reports,
}

impl Reporting {
    pub(crate) fn new(reports: Reports, to: &Arc<Queue>) -> Arc<Self> {
        let queue = Arc::downgrade(to);
        reports.on_filled(move || {
            if let Some(queue) = queue.upgrade() {
                queue.ring();
            }
        });
        Arc::new(Self { reports })
    }

    /// Has reports that the application does not read told to its interceptors alone, as they come.
    pub(crate) fn to_hooks(reports: Reports, handle: &Arc<Handle>) -> Arc<Self> {
        let (reporting, handle) = (Arc::new(Self { reports }), Arc::downgrade(handle));
        let weak = Arc::downgrade(&reporting);
        reporting.reports.on_filled(move || {
            while let Some(report) = weak.upgrade().and_then(|reporting| reporting.reports.try_next()) {
                match handle.upgrade() {
                    Some(handle) => {
                        each_report(&handle, &report, &Cell::new(0), |_| {});
                    }
                    None => drop_report(&report, 0),
                }
            }
        });
        reporting
    }
}

impl Source for Reporting {
    fn draw(&self) -> Option<Op> {
        self.reports.try_next().map(|report| Op::Delivered { report, done: 0 })
    }

    fn len(&self) -> usize {
        self.reports.len()
    }
}

/// Who keeps the payload.
#[derive(Clone, Copy)]
struct Payload {
    pointer: *mut c_void,
    len: usize,
    flags: c_int,
}

impl Payload {
    fn bytes<'a>(&self) -> Option<&'a [u8]> {
        // SAFETY: the application's bytes, for as long as the call takes (required by the C functions that call
        // this).
        (!self.pointer.is_null())
            .then(|| unsafe { &*slice_from_raw_parts(self.pointer.cast::<u8>(), self.len) })
    }

    /// What comes back in the report.
    fn tag(&self, opaque: *mut c_void, reported: bool) -> u128 {
        let mut tag = opaque.addr() as u128;
        if reported && self.flags & RD_KAFKA_MSG_F_COPY == 0 {
            tag |= (self.pointer.addr() as u128) << 64;
            if self.flags & RD_KAFKA_MSG_F_FREE != 0 {
                tag |= FREE;
            }
        }
        tag
    }

    /// The record was taken: its bytes were copied, and nobody reports it.
    fn taken_unreported(&self) {
        if self.flags & RD_KAFKA_MSG_F_FREE != 0 {
            // SAFETY: the application handed it over, allocated by malloc.
            unsafe { libc::free(self.pointer) };
        }
    }
}

/// Why a record was not taken, and C's errno for it.
type Refusal = (rd_kafka_resp_err_t, c_int);

/// Hands a record over; says why not otherwise.
#[inline]
fn send(
    handle: &Handle,
    topic: &Topic,
    record: Record<'_>,
    payload: Payload,
    opaque: *mut c_void,
) -> Result<(), Refusal> {
    match handle.hooking.get() {
        None => hand_over(handle, topic, record, payload, opaque),
        Some(hooks) => send_through(hooks, handle, topic, record, payload, opaque),
    }
}

/// The same, past the interceptors: they may change the headers, and are told if the record is not taken after all.
fn send_through(
    hooks: &Hooks,
    handle: &Handle,
    topic: &Topic,
    mut record: Record<'_>,
    payload: Payload,
    opaque: *mut c_void,
) -> Result<(), Refusal> {
    let mut slot = Slot::to_send(topic, &record, (payload.pointer, payload.len), opaque);
    hooks.on_send(handle, &slot);
    let sent = {
        let own = slot.own_headers();
        let names: Vec<_> =
            own.into_iter().flat_map(|own| own.iter().map(|(name, _)| name.to_string_lossy())).collect();
        let values = own.into_iter().flat_map(|own| own.iter().map(|(_, value)| value));
        let mut record = Record { headers: Vec::new(), ..std::mem::replace(&mut record, Record::to("")) };
        record.headers.extend(names.iter().map(AsRef::as_ref).zip(values));
        hand_over(handle, topic, record, payload, opaque)
    };
    if let Err((code, _)) = sent {
        slot.set_error(code);
        hooks.on_acknowledgement(handle, &slot);
    }
    sent
}

#[inline]
fn hand_over(
    handle: &Handle,
    topic: &Topic,
    record: Record<'_>,
    payload: Payload,
    opaque: *mut c_void,
) -> Result<(), Refusal> {
    if handle.fatal.get().is_some() {
        return Err((RD_KAFKA_RESP_ERR__FATAL, libc::ECANCELED));
    }
    let Some(producer) = topic.producer() else { return Err((RD_KAFKA_RESP_ERR__INVALID_ARG, libc::EINVAL)) };
    let reported = handle.config.delivery_reports;
    let record = record.tag(payload.tag(opaque, reported));
    let sent = if payload.flags & RD_KAFKA_MSG_F_BLOCK != 0 {
        producer.post_blocking(&record)
    } else {
        producer.try_post(&record)
    };
    match sent {
        Ok(()) => {
            if !reported {
                payload.taken_unreported();
            }
            Ok(())
        }
        Err(error) => {
            let code = code_of_produce(&error);
            Err((code, errno_of(code)))
        }
    }
}

fn errno_of(code: rd_kafka_resp_err_t) -> c_int {
    match code {
        RD_KAFKA_RESP_ERR__QUEUE_FULL => libc::ENOBUFS,
        RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE => libc::EMSGSIZE,
        RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION => libc::ESRCH,
        RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC => libc::ENOENT,
        RD_KAFKA_RESP_ERR__FATAL => libc::ECANCELED,
        RD_KAFKA_RESP_ERR__STATE => libc::ENOEXEC,
        _ => libc::EINVAL,
    }
}

fn record_of<'a>(partition: i32, payload: &Payload, key: Option<&'a [u8]>) -> Record<'a> {
    let mut record = Record::to("");
    record.partition = (partition != RD_KAFKA_PARTITION_UA).then_some(partition);
    record.value = payload.bytes();
    record.key = key;
    record
}

/// # Safety
/// NULL, or `len` readable bytes that live as long as the caller uses the result.
unsafe fn bytes<'a>(pointer: *const c_void, len: usize) -> Option<&'a [u8]> {
    // SAFETY: `pointer` is NULL or points to `len` bytes (the contract of this function, above).
    (!pointer.is_null()).then(|| unsafe { &*slice_from_raw_parts(pointer.cast::<u8>(), len) })
}

#[on_panic(-1)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_produce(
    rkt: *mut rd_kafka_topic_t,
    partition: i32,
    msgflags: c_int,
    payload: *mut c_void,
    len: usize,
    key: *const c_void,
    keylen: usize,
    msg_opaque: *mut c_void,
) -> c_int {
    // SAFETY: `rkt` is NULL or a topic from `rd_kafka_topic_new`, not yet destroyed (rdkafka.h, `rd_kafka_produce`).
    let topic = unsafe { Topic::of(rkt) };
    let usable = topic.and_then(Topic::with_handle).filter(|(_, handle)| handle.is_usable());
    let Some((topic, handle)) = usable else {
        set_last_error_and_errno(RD_KAFKA_RESP_ERR__INVALID_ARG, libc::EINVAL);
        return -1;
    };
    if msgflags & RD_KAFKA_MSG_F_COPY != 0 && msgflags & RD_KAFKA_MSG_F_FREE != 0 {
        set_last_error_and_errno(RD_KAFKA_RESP_ERR__INVALID_ARG, libc::EINVAL);
        return -1;
    }
    let payload = Payload { pointer: payload, len, flags: msgflags };
    // SAFETY: `payload` is NULL or points to `len` bytes; `key` is NULL or points to `keylen` bytes (rdkafka.h,
    // `rd_kafka_produce`).
    let record = record_of(partition, &payload, unsafe { bytes(key, keylen) });
    match send(handle, topic, record, payload, msg_opaque) {
        Ok(()) => 0,
        Err((code, errno)) => {
            set_last_error_and_errno(code, errno);
            -1
        }
    }
}

#[on_panic(0)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_produce_batch(
    rkt: *mut rd_kafka_topic_t,
    partition: i32,
    msgflags: c_int,
    rkmessages: *mut rd_kafka_message_t,
    message_cnt: c_int,
) -> c_int {
    // SAFETY: `rkt` is NULL or a topic from `rd_kafka_topic_new`, not yet destroyed (rdkafka.h,
    // `rd_kafka_produce_batch`).
    let topic = unsafe { Topic::of(rkt) };
    let usable = topic.and_then(Topic::with_handle).filter(|(_, handle)| handle.is_usable());
    let Some((topic, handle)) = usable else {
        return 0;
    };
    let count = usize::try_from(message_cnt).unwrap_or(0);
    if rkmessages.is_null() || count == 0 {
        return 0;
    }
    // SAFETY: `rkmessages` points to `message_cnt` messages (rdkafka.h, `rd_kafka_produce_batch`).
    let messages = unsafe { std::slice::from_raw_parts_mut(rkmessages, count) };
    let mut taken = 0;
    for message in messages {
        let own = msgflags & RD_KAFKA_MSG_F_PARTITION != 0;
        let payload = Payload { pointer: message.payload, len: message.len, flags: msgflags };
        // SAFETY: `key` of each message is NULL or points to `key_len` bytes (rdkafka.h, `rd_kafka_produce_batch`).
        let key = unsafe { bytes(message.key, message.key_len) };
        let record = record_of(if own { message.partition } else { partition }, &payload, key);
        message.err = match send(handle, topic, record, payload, message._private) {
            Ok(()) => {
                taken += 1;
                RD_KAFKA_RESP_ERR_NO_ERROR
            }
            Err((code, _)) => code,
        };
    }
    taken
}

/// A record as `rd_kafka_producev` describes it.
struct Described {
    topic: Option<Arc<Topic>>,
    partition: i32,
    payload: Payload,
    key: (*const c_void, usize),
    opaque: *mut c_void,
    timestamp: i64,
    headers: Vec<rd_kafka_vu_header_t>,
    given: *mut rd_kafka_headers_t,
}

impl Described {
    fn of(handle: &Arc<Handle>, parts: &[rd_kafka_vu_t]) -> Result<Self, Box<rd_kafka_error_t>> {
        let mut record = Self {
            topic: None,
            partition: RD_KAFKA_PARTITION_UA,
            payload: Payload { pointer: null_mut(), len: 0, flags: 0 },
            key: (null_mut(), 0),
            opaque: null_mut(),
            timestamp: 0,
            headers: Vec::new(),
            given: null_mut(),
        };
        for part in parts {
            // SAFETY: the type says which of the fields is set.
            unsafe {
                match part.vtype {
                    RD_KAFKA_VTYPE_TOPIC => {
                        if part.u.cstr.is_null() {
                            return Err(invalid("RD_KAFKA_V_TOPIC: the topic is NULL"));
                        }
                        record.topic = Some(handle.topic(&CStr::from_ptr(part.u.cstr).to_string_lossy()));
                    }
                    RD_KAFKA_VTYPE_RKT => record.topic = Topic::shared(part.u.rkt),
                    RD_KAFKA_VTYPE_PARTITION => record.partition = part.u.i32,
                    RD_KAFKA_VTYPE_VALUE => {
                        record.payload.pointer = part.u.mem.ptr;
                        record.payload.len = part.u.mem.size;
                    }
                    RD_KAFKA_VTYPE_KEY => record.key = (part.u.mem.ptr, part.u.mem.size),
                    RD_KAFKA_VTYPE_OPAQUE => record.opaque = part.u.ptr,
                    RD_KAFKA_VTYPE_MSGFLAGS => record.payload.flags = part.u.i,
                    RD_KAFKA_VTYPE_TIMESTAMP => record.timestamp = part.u.i64,
                    RD_KAFKA_VTYPE_HEADER => record.headers.push(part.u.header),
                    RD_KAFKA_VTYPE_HEADERS => record.given = part.u.headers,
                    other => return Err(invalid(&format!("there is no rd_kafka_vtype_t {other}"))),
                }
            }
        }
        if !record.given.is_null() && !record.headers.is_empty() {
            let text = "RD_KAFKA_V_HEADER and RD_KAFKA_V_HEADERS are mutually exclusive";
            return Err(rd_kafka_error_t::new(RD_KAFKA_RESP_ERR__CONFLICT, text));
        }
        Ok(record)
    }
}

#[expect(clippy::unnecessary_box_returns, reason = "C gets it")]
fn invalid(text: &str) -> Box<rd_kafka_error_t> {
    rd_kafka_error_t::new(RD_KAFKA_RESP_ERR__INVALID_ARG, text)
}

fn produce_described(handle: &Arc<Handle>, parts: &[rd_kafka_vu_t]) -> Result<(), Box<rd_kafka_error_t>> {
    if handle.kind != RD_KAFKA_PRODUCER {
        return Err(invalid("only a producer produces"));
    }
    let described = Described::of(handle, parts)?;
    let Some(topic) = &described.topic else { return Err(invalid("Topic name or object required")) };
    // SAFETY: the field is NULL or points to its `size` bytes (rdkafka.h, `RD_KAFKA_V_KEY`).
    let mut record = record_of(described.partition, &described.payload, unsafe {
        bytes(described.key.0, described.key.1)
    });
    record.timestamp_ms = (described.timestamp > 0).then_some(described.timestamp);
    // SAFETY: NULL or headers of ours (required by the C functions that call this).
    let given = unsafe { described.given.as_ref() };
    let names: Vec<std::borrow::Cow<'_, str>>;
    let mut values = Vec::new();
    if let Some(given) = given {
        names = given.iter().map(|(name, _)| name.to_string_lossy()).collect();
        values.extend(given.iter().map(|(_, value)| value));
    } else {
        let mut seen = Vec::with_capacity(described.headers.len());
        for header in &described.headers {
            if header.name.is_null() {
                return Err(invalid("RD_KAFKA_V_HEADER: the name is NULL"));
            }
            // SAFETY: `name` is a C string; `val` points to `size` bytes, or is a C string if `size` is negative (rdkafka.h,
            // `RD_KAFKA_V_HEADER`).
            unsafe {
                seen.push(CStr::from_ptr(header.name).to_string_lossy());
                values.push(match (header.val.is_null(), usize::try_from(header.size)) {
                    (true, _) => None,
                    (false, Ok(size)) => bytes(header.val, size),
                    (false, Err(_)) => Some(CStr::from_ptr(header.val.cast()).to_bytes()),
                });
            }
        }
        names = seen;
    }
    for (name, value) in names.iter().zip(values) {
        record.headers.push((name, value));
    }
    match send(handle, topic, record, described.payload, described.opaque) {
        Ok(()) => {
            if !described.given.is_null() {
                // SAFETY: with success they are ours.
                drop(unsafe { Box::from_raw(described.given) });
            }
            Ok(())
        }
        Err((code, errno)) => {
            set_last_error_and_errno(code, errno);
            Err(rd_kafka_error_t::new(code, ""))
        }
    }
}

#[on_panic(crate::error::panicked())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_produceva(
    rk: *mut rd_kafka_t,
    vus: *const rd_kafka_vu_t,
    cnt: usize,
) -> *mut rd_kafka_error_t {
    // SAFETY: `rk` is NULL or a handle from `rd_kafka_new`, not yet destroyed (rdkafka.h, `rd_kafka_produceva`).
    let handle = unsafe { Handle::shared(rk) };
    let Some(handle) = handle.filter(|_| !vus.is_null() || cnt == 0) else {
        return invalid("NULL handle or arguments").into_raw();
    };
    // SAFETY: `vus` points to `cnt` fields (rdkafka.h, `rd_kafka_produceva`).
    let parts = if cnt == 0 { &[] } else { unsafe { std::slice::from_raw_parts(vus, cnt) } };
    produce_described(&handle, parts).map_or_else(rd_kafka_error_t::into_raw, |()| null_mut())
}

#[calls_back]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn rd_kafka_flush(
    rk: *mut rd_kafka_t,
    timeout_ms: c_int,
) -> rd_kafka_resp_err_t {
    // SAFETY: `rk` is NULL or a handle from `rd_kafka_new`, not yet destroyed (rdkafka.h, `rd_kafka_flush`).
    let Some(handle) = guard(|| None, || unsafe { Handle::shared(rk) }) else {
        return RD_KAFKA_RESP_ERR__INVALID_ARG;
    };
    let Some(producer) = handle.producer() else { return RD_KAFKA_RESP_ERR__NOT_IMPLEMENTED };
    if settle(&handle, producer, timeout_of(timeout_ms)) {
        RD_KAFKA_RESP_ERR_NO_ERROR
    } else {
        RD_KAFKA_RESP_ERR__TIMED_OUT
    }
}

/// Waits until every record has its outcome and the application has been told, at most for `timeout`.
pub(crate) fn settle(handle: &Arc<Handle>, producer: &Producer, timeout: Option<Duration>) -> bool {
    let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let left = || deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
    let _flushing = producer.flushing();
    // Who reads events reads reports too; otherwise they are told from here.
    let tells = handle.callbacks.events & RD_KAFKA_EVENT_DR == 0;
    loop {
        if tells {
            serve_all(handle, &handle.main, Some(Duration::ZERO));
        }
        if producer.unsettled_records() == 0 {
            return true;
        }
        if left() == Some(Duration::ZERO) {
            return false;
        }
        let wait = left().map_or(WAIT_MAX, |left| left.min(WAIT_MAX));
        if tells && handle.reports {
            let settled = || producer.unsettled_records() == 0;
            if let Some(op) = guard(|| None, || handle.main.poll_until(Some(wait), settled)) {
                serve(handle, op);
            }
        } else {
            let _ = guard(|| None, || Some(producer.flush_blocking(wait)));
            if producer.unsettled_records() > 0 && !tells {
                // What is left is reports that another thread is to read.
                std::thread::sleep(wait.min(READ_ELSEWHERE));
            }
        }
    }
}

/// How often a flush looks whether another thread has read the reports.
const READ_ELSEWHERE: Duration = Duration::from_millis(5);

/// A flush looks at the clock at least so often.
const WAIT_MAX: Duration = Duration::from_millis(100);

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_purge(rk: *mut rd_kafka_t, purge_flags: c_int) -> rd_kafka_resp_err_t {
    const KNOWN: c_int = RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT | RD_KAFKA_PURGE_F_NON_BLOCKING;
    // SAFETY: `rk` is NULL or a handle from `rd_kafka_new`, not yet destroyed (rdkafka.h, `rd_kafka_purge`).
    let Some(handle) = (unsafe { Handle::of(rk) }) else { return RD_KAFKA_RESP_ERR__INVALID_ARG };
    let Some(producer) = handle.producer() else { return RD_KAFKA_RESP_ERR__NOT_IMPLEMENTED };
    if purge_flags & !KNOWN != 0 {
        return RD_KAFKA_RESP_ERR__INVALID_ARG;
    }
    let (queue, in_flight) =
        (purge_flags & RD_KAFKA_PURGE_F_QUEUE != 0, purge_flags & RD_KAFKA_PURGE_F_INFLIGHT != 0);
    if queue || in_flight {
        producer.purge(Purge { queued: queue, in_flight });
    }
    RD_KAFKA_RESP_ERR_NO_ERROR
}

/// Calls `each` with the report of every record after the first `done`, one after the other, and says with how many. `done`
/// counts on before each call: a callback that does not return has had its record.
pub(crate) fn each_report(
    handle: &Arc<Handle>,
    report: &Report,
    done: &Cell<usize>,
    mut each: impl FnMut(&Slot),
) -> usize {
    let first = done.get();
    let topic = handle.topic(report.topic());
    let records = report.records();
    let mut lying = records.as_ref().map(|records| records.iter());
    let (err, status, text) = match report.result() {
        Ok(_) => (RD_KAFKA_RESP_ERR_NO_ERROR, RD_KAFKA_MSG_STATUS_PERSISTED, None),
        Err(error) => {
            let status = match error.persisted {
                Persisted::NotWritten => RD_KAFKA_MSG_STATUS_NOT_PERSISTED,
                Persisted::PossiblyWritten => RD_KAFKA_MSG_STATUS_POSSIBLY_PERSISTED,
            };
            (code_of_produce(error), status, Some(crate::text::c_string(&error.kind.to_string())))
        }
    };
    let latency_us = report.latency().map_or(-1, |latency| latency.as_micros() as i64);
    if let Some(lying) = lying.as_mut() {
        lying.take(first).for_each(drop);
    }
    for reported in report.iter().skip(first) {
        done.set(done.get() + 1);
        let record = lying.as_mut().and_then(Iterator::next).and_then(Result::ok);
        let part = |part: Option<&[u8]>| {
            part.map_or((null_mut(), 0), |part| (part.as_ptr().cast_mut().cast::<c_void>(), part.len()))
        };
        let (key, mut payload) = record
            .as_ref()
            .map_or(((null_mut(), 0), (null_mut(), 0)), |record| (part(record.key), part(record.value)));
        let own = ((reported.tag >> 64) & POINTER) as usize;
        if own != 0 {
            payload.0 = own as *mut c_void;
        }
        // What waited for its topic carries the partition that was asked for in a header of its own, before the others.
        let headers = record.as_ref().map_or_else(HeadersRef::default, |record| {
            if report.partition() < 0 { record.headers.after_first() } else { record.headers }
        });
        // SAFETY: the records live until the end of this function, and the slot is not used after `each`.
        let raw_headers = unsafe { std::mem::transmute::<HeadersRef<'_>, HeadersRef<'static>>(headers) };
        let slot = Slot::delivered(&Delivered {
            topic: &topic,
            partition: report.partition(),
            offset: if reported.offset < 0 { RD_KAFKA_OFFSET_INVALID } else { reported.offset },
            err,
            errstr: text.as_deref(),
            status,
            key,
            payload,
            opaque: reported.tag as u64 as usize as *mut c_void,
            timestamp: record.as_ref().map_or(-1, |record| record.timestamp),
            raw_headers,
            latency_us,
        });
        let _payload = Malloced(if reported.tag & FREE != 0 { own as *mut c_void } else { null_mut() });
        if let Some(hooks) = handle.hooking.get() {
            hooks.on_acknowledgement(handle, &slot);
        }
        each(&slot);
    }
    report.len() - first
}

/// Memory of malloc, or NULL, that is freed after a callback, also if that leaves by an exception.
pub(crate) struct Malloced(pub(crate) *mut c_void);

impl Drop for Malloced {
    fn drop(&mut self) {
        // SAFETY: NULL or allocated by malloc: a payload with `RD_KAFKA_MSG_F_FREE` whose report was seen, or a text of
        // ours.
        unsafe { libc::free(self.0) };
    }
}

/// A report whose records are being reported. If a callback leaves by an exception, the next poll reports the others.
pub(crate) struct Delivery<'a> {
    handle: &'a Arc<Handle>,
    report: Option<Report>,
    done: Cell<usize>,
}

impl<'a> Delivery<'a> {
    pub(crate) fn new(handle: &'a Arc<Handle>, report: Report, done: usize) -> Self {
        Self { handle, report: Some(report), done: Cell::new(done) }
    }

    pub(crate) fn each(&self, each: impl FnMut(&Slot)) -> usize {
        self.report.as_ref().map_or(0, |report| each_report(self.handle, report, &self.done, each))
    }
}

impl Drop for Delivery<'_> {
    fn drop(&mut self) {
        let (report, done) = (self.report.take(), self.done.get());
        if let Some(report) = report.filter(|report| done < report.len()) {
            self.handle.main.push(Op::Delivered { report, done });
        }
    }
}

/// Frees what was handed over of records whose reports nobody will read.
pub(crate) fn drop_report(report: &Report, done: usize) {
    for reported in report.iter().skip(done).filter(|reported| reported.tag & FREE != 0) {
        // SAFETY: the application handed it over, allocated by malloc.
        unsafe { libc::free(((reported.tag >> 64) & POINTER) as usize as *mut c_void) };
    }
}
