//! `rd_kafka_produce` and its variants pass the application's records to the client.
//!
//! A record is encoded in the calling thread, so the application can reuse its bytes when the call returns. The tag of
//! the record contains the data for the delivery report. Its lower half is the application's opaque. Its upper half is
//! the application's pointer, unless the application requested a copy; the report returns that pointer.

use std::ffi::{CStr, c_int, c_void};
use std::ptr::{null_mut, slice_from_raw_parts};
use std::sync::Arc;
use std::time::Duration;

use ottla_client::{Config, ProduceError, ProduceErrorKind, Purge, Record, TopicProducer};

use crate::client::client_interceptors::ClientInterceptors;
use crate::client::handle::Handle;
use crate::client::topic_handle::{TOPIC_NAME_BYTES_MAX, Topic, TopicState};
use crate::errors::error_mapping::{of as code_of, of_refused_record as code_of_refused, refusing_state};
use crate::errors::error_object::{description, rd_kafka_error_t, set_last_error_and_errno};
use crate::ffi::c_strings::text;
use crate::ffi::panic::on_panic;
use crate::ffi::*;
use crate::messages::headers::rd_kafka_headers_t;
use crate::messages::message::Slot;

/// Flag in the upper half of a tag: the pointer there is freed after the report.
pub(crate) const FREE: u128 = 1 << 127;
pub(crate) const POINTER: u128 = !FREE >> 64;

/// Time limit for the engine to fail the purged records.
const PURGED_WITHIN: Duration = Duration::from_secs(30);

/// A payload and the flags that determine its owner.
#[derive(Clone, Copy)]
struct Payload {
    pointer: *mut c_void,
    len: usize,
    flags: c_int,
}

/// As in the original, a copied payload is not freed.
const fn flags_of(msgflags: c_int) -> c_int {
    if msgflags & RD_KAFKA_MSG_F_COPY == 0 { msgflags } else { msgflags & !RD_KAFKA_MSG_F_FREE }
}

impl Payload {
    fn bytes<'a>(&self) -> Option<&'a [u8]> {
        // SAFETY: the application's bytes, for as long as the call takes (required by the C functions that call
        // this).
        (!self.pointer.is_null())
            .then(|| unsafe { &*slice_from_raw_parts(self.pointer.cast::<u8>(), self.len) })
    }

    /// Returns the tag of the record, which its report contains. A payload that is [freed at once](frees_at_once) is no part of it.
    fn tag(&self, opaque: *mut c_void, config: &Config) -> u128 {
        let mut tag = opaque.addr() as u128;
        let is_freed = self.flags & RD_KAFKA_MSG_F_FREE != 0;
        let stays = config.delivery_reports && !(is_freed && frees_at_once(config));
        if stays && self.flags & RD_KAFKA_MSG_F_COPY == 0 {
            tag |= (self.pointer.addr() as u128) << 64;
            if is_freed {
                tag |= FREE;
            }
        }
        tag
    }

    /// Frees the payload of a record that may have no report, after the client has copied it.
    fn taken_unreported(&self) {
        if self.flags & RD_KAFKA_MSG_F_FREE != 0 {
            // SAFETY: the application handed it over, allocated by malloc.
            unsafe { libc::free(self.pointer) };
        }
    }
}

/// Returns `true` if payloads with `RD_KAFKA_MSG_F_FREE` are freed before the outcome of their records is known: a successful record
/// may have no report. The report of a failed one has the client's copy.
const fn frees_at_once(config: &Config) -> bool {
    !config.delivery_reports || config.delivery_report_only_error
}

/// The reason why a record was rejected.
struct Refusal {
    code: rd_kafka_resp_err_t,
    /// librdkafka's name of the state in which the transaction takes no record, if that is the reason.
    state: Option<&'static str>,
}

impl Refusal {
    /// The refusal for another reason than a transaction's state.
    const fn of(code: rd_kafka_resp_err_t) -> Self {
        Self { code, state: None }
    }

    fn set_last_error(&self) {
        set_last_error_and_errno(self.code, errno_of(self.code));
    }

    /// The error for the application. Programs show its text and search it: it is librdkafka's.
    #[expect(clippy::unnecessary_box_returns, reason = "C gets it")]
    fn to_error(&self, handle: &Handle) -> Box<rd_kafka_error_t> {
        if self.code == RD_KAFKA_RESP_ERR__FATAL
            && let Some((cause, reason)) = handle.fatal_cause()
        {
            let text = "Producing not allowed since a previous fatal error was raised";
            return rd_kafka_error_t::new(cause, &format!("{text}: {reason}")).fatal(true);
        }
        if let Some(state) = self.state {
            let text = format!("Producing not allowed in transactional state {state}");
            return rd_kafka_error_t::new(self.code, &text);
        }
        // In the original, a record has a size and a place in the queue before it has a partition.
        let step = match self.code {
            RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE | RD_KAFKA_RESP_ERR__QUEUE_FULL => "produce",
            _ => "enqueue",
        };
        let reason = description(self.code).to_string_lossy();
        rd_kafka_error_t::new(self.code, &format!("Failed to {step} message: {reason}"))
    }
}

/// Sends a record. Returns the reason if the client rejects it.
#[inline]
fn send(
    handle: &Handle,
    topic: &TopicState,
    record: Record<'_>,
    payload: Payload,
    opaque: *mut c_void,
) -> Result<(), Refusal> {
    match handle.client_interceptors.get() {
        None => hand_over(handle, topic, record, payload, opaque),
        Some(interceptors) => send_through(interceptors, handle, topic, record, payload, opaque),
    }
}

/// Sends with interceptors: they may change the headers, and are notified if the client refuses the record.
fn send_through(
    interceptors: &ClientInterceptors,
    handle: &Handle,
    topic: &TopicState,
    mut record: Record<'_>,
    payload: Payload,
    opaque: *mut c_void,
) -> Result<(), Refusal> {
    let mut slot = Slot::to_send(topic, &record, (payload.pointer, payload.len), opaque);
    interceptors.on_send(handle, &slot);
    let sent = {
        let own = slot.own_headers().into_iter().flat_map(rd_kafka_headers_t::iter);
        let headers = own.map(|(name, value)| (name.to_bytes(), value)).collect();
        let record = Record { headers, ..std::mem::replace(&mut record, Record::to("")) };
        hand_over(handle, topic, record, payload, opaque)
    };
    if let Err(refusal) = &sent {
        slot.set_error(refusal.code);
        let _known = Slot::known(std::slice::from_ref(&slot));
        interceptors.on_acknowledgement(handle, &slot);
    }
    sent
}

#[inline]
fn hand_over(
    handle: &Handle,
    topic: &TopicState,
    record: Record<'_>,
    payload: Payload,
    opaque: *mut c_void,
) -> Result<(), Refusal> {
    if handle.fatal.get().is_some() {
        return Err(Refusal::of(RD_KAFKA_RESP_ERR__FATAL));
    }
    let Some(producer) = topic.producer() else { return Err(Refusal::of(RD_KAFKA_RESP_ERR__INVALID_ARG)) };
    let record = record.tag(payload.tag(opaque, &handle.config));
    let sent = if payload.flags & RD_KAFKA_MSG_F_BLOCK != 0 {
        send_when_room(producer, &record)
    } else {
        producer.try_send_unobserved(&record)
    };
    match sent {
        Ok(()) => {
            if frees_at_once(&handle.config) {
                payload.taken_unreported();
            }
            Ok(())
        }
        Err(error) => Err(Refusal { code: code_of_refused(&error), state: refusing_state(&error) }),
    }
}

/// Sends a record as soon as the queue has room. As in the original, the wait has no limit, and it ends with the client.
#[inline]
fn send_when_room(producer: &TopicProducer, record: &Record<'_>) -> Result<(), ProduceError> {
    loop {
        match producer.send_unobserved_blocking(record) {
            Err(error) if matches!(error.kind, ProduceErrorKind::QueueFull { .. }) => {}
            sent => return sent,
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
    let topic = Topic::of(rkt, FUNCTION);
    let usable = topic.as_deref().and_then(TopicState::with_handle).filter(|(_, handle)| handle.is_usable());
    let Some((topic, handle)) = usable else {
        set_last_error_and_errno(RD_KAFKA_RESP_ERR__INVALID_ARG, libc::EINVAL);
        return -1;
    };
    let payload = Payload { pointer: payload, len, flags: flags_of(msgflags) };
    // SAFETY: `payload` is NULL or points to `len` bytes; `key` is NULL or points to `keylen` bytes (rdkafka.h,
    // `rd_kafka_produce`).
    let record = record_of(partition, &payload, unsafe { bytes(key, keylen) });
    match send(handle, topic, record, payload, msg_opaque) {
        Ok(()) => 0,
        Err(refusal) => {
            refusal.set_last_error();
            -1
        }
    }
}

/// As in the original, a message that finds the queue full, or a producer that takes none, fails the messages behind it too: an
/// application that sends the failed ones again keeps their order.
#[on_panic(0)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_produce_batch(
    rkt: *mut rd_kafka_topic_t,
    partition: i32,
    msgflags: c_int,
    rkmessages: *mut rd_kafka_message_t,
    message_cnt: c_int,
) -> c_int {
    let topic = Topic::of(rkt, FUNCTION);
    let usable = topic.as_deref().and_then(TopicState::with_handle).filter(|(_, handle)| handle.is_usable());
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
    let mut refused = None;
    for message in messages {
        if let Some(code) = refused {
            message.err = code;
            continue;
        }
        let own = msgflags & RD_KAFKA_MSG_F_PARTITION != 0;
        let payload = Payload { pointer: message.payload, len: message.len, flags: flags_of(msgflags) };
        // SAFETY: `key` of each message is NULL or points to `key_len` bytes (rdkafka.h, `rd_kafka_produce_batch`).
        let key = unsafe { bytes(message.key, message.key_len) };
        let record = record_of(if own { message.partition } else { partition }, &payload, key);
        message.err = match send(handle, topic, record, payload, message._private) {
            Ok(()) => {
                taken += 1;
                RD_KAFKA_RESP_ERR_NO_ERROR
            }
            Err(refusal) => {
                let code = refusal.code;
                if concerns_producer(code) {
                    refusal.set_last_error();
                    refused = Some(code);
                } else if code == RD_KAFKA_RESP_ERR__QUEUE_FULL {
                    refused = Some(code);
                }
                code
            }
        };
    }
    taken
}

/// Returns `true` for the errors of a producer that takes no message at all.
const fn concerns_producer(code: rd_kafka_resp_err_t) -> bool {
    matches!(code, RD_KAFKA_RESP_ERR__FATAL | RD_KAFKA_RESP_ERR__STATE | RD_KAFKA_RESP_ERR__DESTROY)
}

/// A record from the arguments of `rd_kafka_producev`.
struct ProducevRecord {
    topic: Option<Arc<Topic>>,
    partition: i32,
    payload: Payload,
    key: (*const c_void, usize),
    opaque: *mut c_void,
    timestamp: i64,
    headers: Vec<rd_kafka_vu_header_t>,
    given: *mut rd_kafka_headers_t,
}

impl ProducevRecord {
    fn of(
        handle: &Arc<Handle>,
        parts: &[rd_kafka_vu_t],
        function: &str,
    ) -> Result<Self, Box<rd_kafka_error_t>> {
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
                        let name = text(part.u.cstr).filter(|name| name.len() <= TOPIC_NAME_BYTES_MAX);
                        record.topic = name.map(|name| handle.topic(&name));
                    }
                    RD_KAFKA_VTYPE_RKT => record.topic = Topic::shared(part.u.rkt, function),
                    RD_KAFKA_VTYPE_PARTITION => record.partition = part.u.i32,
                    RD_KAFKA_VTYPE_VALUE => {
                        record.payload.pointer = part.u.mem.ptr;
                        record.payload.len = part.u.mem.size;
                    }
                    RD_KAFKA_VTYPE_KEY => record.key = (part.u.mem.ptr, part.u.mem.size),
                    RD_KAFKA_VTYPE_OPAQUE => record.opaque = part.u.ptr,
                    RD_KAFKA_VTYPE_MSGFLAGS => record.payload.flags = flags_of(part.u.i),
                    RD_KAFKA_VTYPE_TIMESTAMP => record.timestamp = part.u.i64,
                    RD_KAFKA_VTYPE_HEADER if !record.given.is_null() => {
                        return Err(exclusive("VTYPE_HEADER", "VTYPE_HEADERS"));
                    }
                    RD_KAFKA_VTYPE_HEADER => record.headers.push(part.u.header),
                    RD_KAFKA_VTYPE_HEADERS if !record.headers.is_empty() => {
                        return Err(exclusive("VTYPE_HEADERS", "VTYPE_HEADER"));
                    }
                    RD_KAFKA_VTYPE_HEADERS => record.given = part.u.headers,
                    other => return Err(invalid(&format!("Unsupported VTYPE {other}"))),
                }
            }
        }
        Ok(record)
    }
}

#[expect(clippy::unnecessary_box_returns, reason = "C gets it")]
fn invalid(text: &str) -> Box<rd_kafka_error_t> {
    rd_kafka_error_t::new(RD_KAFKA_RESP_ERR__INVALID_ARG, text)
}

/// The error of a field that may not follow the other one.
#[expect(clippy::unnecessary_box_returns, reason = "C gets it")]
fn exclusive(field: &str, other: &str) -> Box<rd_kafka_error_t> {
    let text = format!("{field} and {other} are mutually exclusive");
    rd_kafka_error_t::new(RD_KAFKA_RESP_ERR__CONFLICT, &text)
}

fn produce_described(
    handle: &Arc<Handle>,
    parts: &[rd_kafka_vu_t],
    function: &str,
) -> Result<(), Box<rd_kafka_error_t>> {
    if handle.kind != RD_KAFKA_PRODUCER {
        return Err(invalid("only a producer produces"));
    }
    let described = ProducevRecord::of(handle, parts, function)?;
    let Some(topic) = &described.topic else { return Err(invalid("Topic name or object required")) };
    // SAFETY: the field is NULL or points to its `size` bytes (rdkafka.h, `RD_KAFKA_V_KEY`).
    let mut record = record_of(described.partition, &described.payload, unsafe {
        bytes(described.key.0, described.key.1)
    });
    // As in the original, 0 is the current time, and a negative number a time before 1970.
    record.timestamp_ms = (described.timestamp != 0).then_some(described.timestamp);
    // SAFETY: NULL or headers of ours (required by the C functions that call this).
    let given = unsafe { described.given.as_ref() };
    if let Some(given) = given {
        record.headers.extend(given.iter().map(|(name, value)| (name.to_bytes(), value)));
    } else {
        record.headers.reserve_exact(described.headers.len());
        for header in &described.headers {
            if header.name.is_null() {
                return Err(invalid("RD_KAFKA_V_HEADER: the name is NULL"));
            }
            // SAFETY: `name` is a C string; `val` points to `size` bytes, or is a C string if `size` is negative (rdkafka.h,
            // `RD_KAFKA_V_HEADER`).
            unsafe {
                let value = match (header.val.is_null(), usize::try_from(header.size)) {
                    (true, _) => None,
                    (false, Ok(size)) => bytes(header.val, size),
                    (false, Err(_)) => Some(CStr::from_ptr(header.val.cast()).to_bytes()),
                };
                record.headers.push((CStr::from_ptr(header.name).to_bytes(), value));
            }
        }
    }
    match send(handle, topic, record, described.payload, described.opaque) {
        Ok(()) => {
            if !described.given.is_null() {
                // SAFETY: with success they are ours.
                drop(unsafe { Box::from_raw(described.given) });
            }
            Ok(())
        }
        Err(refusal) => {
            refusal.set_last_error();
            Err(refusal.to_error(handle))
        }
    }
}

#[on_panic(crate::errors::error_object::panicked())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_produceva(
    rk: *mut rd_kafka_t,
    vus: *const rd_kafka_vu_t,
    cnt: usize,
) -> *mut rd_kafka_error_t {
    let handle = Handle::shared(rk, FUNCTION);
    let Some(handle) = handle.filter(|_| !vus.is_null() || cnt == 0) else {
        return invalid("NULL handle or arguments").into_raw();
    };
    // SAFETY: `vus` points to `cnt` fields (rdkafka.h, `rd_kafka_produceva`).
    let parts = if cnt == 0 { &[] } else { unsafe { std::slice::from_raw_parts(vus, cnt) } };
    produce_described(&handle, parts, FUNCTION).map_or_else(rd_kafka_error_t::into_raw, |()| null_mut())
}

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_purge(rk: *mut rd_kafka_t, purge_flags: c_int) -> rd_kafka_resp_err_t {
    const KNOWN: c_int = RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT | RD_KAFKA_PURGE_F_NON_BLOCKING;
    let Some(handle) = Handle::of(rk, FUNCTION) else { return RD_KAFKA_RESP_ERR__INVALID_ARG };
    let Some(producer) = handle.producer() else { return RD_KAFKA_RESP_ERR__NOT_IMPLEMENTED };
    if purge_flags & !KNOWN != 0 {
        return RD_KAFKA_RESP_ERR__INVALID_ARG;
    }
    let (queue, in_flight) =
        (purge_flags & RD_KAFKA_PURGE_F_QUEUE != 0, purge_flags & RD_KAFKA_PURGE_F_INFLIGHT != 0);
    let purge = Purge { queued: queue, in_flight };
    if !queue && !in_flight {
        return RD_KAFKA_RESP_ERR_NO_ERROR;
    }
    if purge_flags & RD_KAFKA_PURGE_F_NON_BLOCKING != 0 {
        producer.purge(purge);
        return RD_KAFKA_RESP_ERR_NO_ERROR;
    }
    // The reports are in the queue when the call returns.
    producer
        .purge_blocking(purge, PURGED_WITHIN)
        .map_or_else(|error| code_of(&error), |()| RD_KAFKA_RESP_ERR_NO_ERROR)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If only errors are reported, the payloads of successful records were never freed.
    #[test]
    fn a_payload_waits_for_a_report_that_is_certain() {
        let mut config = Config::new("127.0.0.1:9092");
        let payload =
            |flags| Payload { pointer: std::ptr::without_provenance_mut(8), len: 1, flags: flags_of(flags) };
        let tag = |config: &Config, flags| payload(flags).tag(null_mut(), config) >> 64;
        for (reports, only_error, is_freed_at_once) in
            [(true, false, false), (true, true, true), (false, false, true), (false, true, true)]
        {
            (config.delivery_reports, config.delivery_report_only_error) = (reports, only_error);
            assert_eq!(frees_at_once(&config), is_freed_at_once, "{reports} {only_error}");
            let freed = if is_freed_at_once { 0 } else { 8 | (FREE >> 64) };
            assert_eq!(tag(&config, RD_KAFKA_MSG_F_FREE), freed, "{reports} {only_error}");
            assert_eq!(tag(&config, 0), if reports { 8 } else { 0 }, "the application keeps its payload");
            assert_eq!(tag(&config, RD_KAFKA_MSG_F_COPY), 0);
        }
    }
}
