//! `rd_kafka_message_t`: fetched records, and what is reported of produced ones.
//!
//! A message that C gets is the first field of a `Slot`, which knows where it lives. Fetched ones come from slabs
//! (`message_slab`), which are reused and never freed: a second destruction of a message finds its mark cleared. Keys,
//! values and headers stay where the response has them.

use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr::{NonNull, null, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

use ottla_client::{HeadersRef, Record, RecordView, TopicPartition};

use crate::client::topic_handle::{Topic, TopicState};
use crate::errors::error_object::description;
use crate::ffi::panic::on_panic;
use crate::ffi::*;
use crate::handles::misuse_report::report;
use crate::messages::headers::rd_kafka_headers_t;
use crate::messages::known_messages::{self, KnownMessages};
use crate::messages::message_slab::{self, Slab};

/// The timestamp of a record that has none.
const NO_TIMESTAMP: i64 = -1;

/// A message with the fields that its accessors return.
#[repr(C)]
pub(crate) struct Slot {
    message: rd_kafka_message_t,
    pub(super) home: SlotOwner,
    /// The place in the slab.
    pub(super) index: u32,
    /// The deliveries to the share group; 0 for other messages.
    delivery_count: i16,
    /// The message belongs to a batch, which alone destroys it.
    in_batch: bool,
    /// The message reports a delivery.
    is_report: bool,
    timestamp: i64,
    timestamp_type: rd_kafka_timestamp_type_t,
    status: rd_kafka_msg_status_t,
    leader_epoch: i32,
    broker: i32,
    latency_us: i64,
    raw_headers: HeadersRef<'static>,
    /// Made when they are asked for; a message that goes away takes them along.
    headers: AtomicPtr<rd_kafka_headers_t>,
    /// Fields of few messages.
    rare: Option<Box<MessageExtras>>,
}

/// The error text of a message, and the topic that a message of its own points to.
struct MessageExtras {
    errstr: CString,
    _topic: Option<Arc<Topic>>,
}

/// The owner of a slot's memory.
#[derive(Clone, Copy)]
pub(super) enum SlotOwner {
    /// In a slab, which is reused when its last message is destroyed.
    Slab(NonNull<Slab>),
    /// Borrowed from its owner: a callback's caller or an event.
    Lent,
}

/// The address and length of a key or value; NULL if there is none.
fn part(part: Option<&[u8]>) -> (*mut c_void, usize) {
    part.map_or((null_mut(), 0), |part| (part.as_ptr().cast_mut().cast(), part.len()))
}

/// A message that C does not have yet: dropping it destroys it.
pub(crate) struct OwnedMessage(NonNull<Slot>);

// SAFETY: a message may be read and destroyed by any thread, one at a time.
unsafe impl Send for OwnedMessage {}

impl OwnedMessage {
    /// `slot` is in a slab and has its value.
    #[inline]
    pub(super) fn new(slot: NonNull<Slot>) -> Self {
        Self(slot)
    }

    /// # Safety
    /// A message from [`OwnedMessage::into_raw`] that no other code uses.
    #[inline]
    pub(crate) unsafe fn of(raw: *mut rd_kafka_message_t) -> Self {
        // SAFETY: `raw` is NULL or a message of this library, not yet destroyed (the contract of this function,
        // above).
        Self(unsafe { NonNull::new_unchecked(raw.cast()) })
    }

    /// Makes it a message of a share consumer's batch.
    #[inline]
    pub(crate) fn in_batch(self, delivery_count: i16) -> Self {
        // SAFETY: C does not have the message, so this is its only user.
        let slot = unsafe { &mut *self.0.as_ptr() };
        slot.delivery_count = delivery_count;
        slot.in_batch = true;
        self
    }

    /// Makes it a message of this broker.
    pub(crate) fn of_broker(self, node: i32) -> Self {
        // SAFETY: C does not have the message, so this is its only user.
        unsafe { (*self.0.as_ptr()).broker = node };
        self
    }

    /// To C, which destroys it.
    #[inline]
    pub(crate) fn into_raw(self) -> *mut rd_kafka_message_t {
        let raw = self.0.as_ptr().cast();
        std::mem::forget(self);
        raw
    }

    pub(crate) fn as_raw(&self) -> *mut rd_kafka_message_t {
        self.0.as_ptr().cast()
    }

    /// A message that carries an error, or the end of a partition, instead of a record.
    pub(crate) fn error(
        code: rd_kafka_resp_err_t,
        text: &str,
        topic: Option<Arc<Topic>>,
        partition: i32,
        offset: i64,
    ) -> Self {
        let mut slot = Slot::empty();
        slot.message.err = code;
        slot.message.rkt = topic.as_ref().map_or(null_mut(), |topic| topic.raw());
        slot.message.partition = partition;
        slot.message.offset = offset;
        let errstr = c_strings::c_string(text);
        slot.message.payload = errstr.as_ptr().cast_mut().cast();
        slot.message.len = errstr.as_bytes().len();
        slot.rare = Some(Box::new(MessageExtras { errstr, _topic: topic }));
        message_slab::own(slot)
    }
}

impl Drop for OwnedMessage {
    fn drop(&mut self) {
        // SAFETY: ours, and never given away.
        unsafe { destroy(self.0.as_ptr().cast()) };
    }
}

/// The fields of a delivery report.
pub(crate) struct ReportedRecord<'a> {
    pub(crate) topic: &'a Arc<Topic>,
    pub(crate) partition: i32,
    /// The broker that the record was sent to; -1 if it was never sent.
    pub(crate) broker: i32,
    pub(crate) offset: i64,
    pub(crate) err: rd_kafka_resp_err_t,
    pub(crate) errstr: Option<&'a CStr>,
    pub(crate) status: rd_kafka_msg_status_t,
    pub(crate) key: (*mut c_void, usize),
    pub(crate) payload: (*mut c_void, usize),
    pub(crate) opaque: *mut c_void,
    pub(crate) timestamp: i64,
    /// The timestamp that the broker gave the record in place of its own.
    pub(crate) append_time_ms: Option<i64>,
    pub(crate) raw_headers: HeadersRef<'static>,
    pub(crate) latency_us: i64,
}

impl Slot {
    fn empty() -> Self {
        Self {
            message: rd_kafka_message_t {
                err: RD_KAFKA_RESP_ERR_NO_ERROR,
                rkt: null_mut(),
                partition: -1,
                payload: null_mut(),
                len: 0,
                key: null_mut(),
                key_len: 0,
                offset: RD_KAFKA_OFFSET_INVALID,
                _private: null_mut(),
            },
            home: SlotOwner::Lent,
            index: 0,
            delivery_count: 0,
            in_batch: false,
            is_report: false,
            timestamp: -1,
            timestamp_type: RD_KAFKA_TIMESTAMP_NOT_AVAILABLE,
            status: RD_KAFKA_MSG_STATUS_NOT_PERSISTED,
            leader_epoch: -1,
            broker: -1,
            latency_us: -1,
            raw_headers: HeadersRef::default(),
            headers: AtomicPtr::default(),
            rare: None,
        }
    }

    /// The message of a record whose memory and topic the caller keeps.
    pub(crate) fn lent(topic: &Arc<Topic>, record: &RecordView<'_>) -> Self {
        Self::fetched(topic, record, SlotOwner::Lent, 0)
    }

    #[expect(clippy::inline_always, reason = "written into its place: a slot has 150 bytes")]
    #[inline(always)]
    pub(super) fn fetched(topic: &Arc<Topic>, record: &RecordView<'_>, home: SlotOwner, index: u32) -> Self {
        let (key, key_len) = part(record.key());
        let (payload, len) = part(record.value());
        let message = rd_kafka_message_t {
            err: RD_KAFKA_RESP_ERR_NO_ERROR,
            rkt: topic.raw(),
            partition: record.partition(),
            payload,
            len,
            key,
            key_len,
            offset: record.offset(),
            _private: null_mut(),
        };
        // SAFETY: the bytes stay where they are as long as their block is kept (required by the C functions that call
        // this).
        let raw_headers =
            unsafe { std::mem::transmute::<HeadersRef<'_>, HeadersRef<'static>>(record.raw_headers()) };
        let timestamp_type = match (record.timestamp_ms(), record.is_timestamp_of_append()) {
            (NO_TIMESTAMP, _) => RD_KAFKA_TIMESTAMP_NOT_AVAILABLE,
            (_, true) => RD_KAFKA_TIMESTAMP_LOG_APPEND_TIME,
            (_, false) => RD_KAFKA_TIMESTAMP_CREATE_TIME,
        };
        Self {
            message,
            home,
            index,
            delivery_count: 0,
            in_batch: false,
            is_report: false,
            timestamp: record.timestamp_ms(),
            timestamp_type,
            status: RD_KAFKA_MSG_STATUS_PERSISTED,
            leader_epoch: record.leader_epoch(),
            broker: record.node(),
            latency_us: -1,
            raw_headers,
            headers: AtomicPtr::default(),
            rare: None,
        }
    }

    /// A report for a callback or an event, which sees to it that everything it points to lives long enough.
    #[expect(clippy::inline_always, reason = "written into its place: a slot has 150 bytes")]
    #[inline(always)]
    pub(crate) fn delivered(of: &ReportedRecord<'_>) -> Self {
        let message = rd_kafka_message_t {
            err: of.err,
            rkt: of.topic.raw(),
            partition: of.partition,
            payload: of.payload.0,
            len: of.payload.1,
            key: of.key.0,
            key_len: of.key.1,
            offset: of.offset,
            _private: of.opaque,
        };
        let (timestamp, timestamp_type) = match of.append_time_ms {
            Some(append_time_ms) => (append_time_ms, RD_KAFKA_TIMESTAMP_LOG_APPEND_TIME),
            None if of.timestamp == NO_TIMESTAMP => (of.timestamp, RD_KAFKA_TIMESTAMP_NOT_AVAILABLE),
            None => (of.timestamp, RD_KAFKA_TIMESTAMP_CREATE_TIME),
        };
        Self {
            message,
            home: SlotOwner::Lent,
            index: 0,
            delivery_count: 0,
            in_batch: false,
            is_report: true,
            timestamp,
            timestamp_type,
            status: of.status,
            leader_epoch: -1,
            broker: of.broker,
            latency_us: of.latency_us,
            raw_headers: of.raw_headers,
            headers: AtomicPtr::default(),
            rare: of.errstr.map(|text| Box::new(MessageExtras { errstr: text.to_owned(), _topic: None })),
        }
    }

    /// A record on its way into the producer, for interceptors.
    pub(crate) fn to_send(
        topic: &TopicState,
        record: &Record<'_>,
        payload: (*mut c_void, usize),
        opaque: *mut c_void,
    ) -> Self {
        let mut slot = Self::empty();
        let key = part(record.key);
        slot.message.rkt = topic.raw();
        slot.message.partition = record.partition.unwrap_or(RD_KAFKA_PARTITION_UA);
        (slot.message.payload, slot.message.len) = payload;
        (slot.message.key, slot.message.key_len) = key;
        slot.message._private = opaque;
        if let Some(timestamp) = record.timestamp_ms {
            (slot.timestamp, slot.timestamp_type) = (timestamp, RD_KAFKA_TIMESTAMP_CREATE_TIME);
        }
        if !record.headers.is_empty() {
            let mut headers = rd_kafka_headers_t::with_capacity(record.headers.len());
            for (name, value) in &record.headers {
                headers.add(name, *value);
            }
            slot.headers = AtomicPtr::new(headers.into_raw());
        }
        slot
    }

    /// The headers that were set or decoded.
    pub(crate) fn own_headers(&self) -> Option<&rd_kafka_headers_t> {
        // SAFETY: NULL or headers that the slot owns.
        unsafe { self.headers.load(Ordering::Acquire).as_ref() }
    }

    pub(crate) fn set_error(&mut self, err: rd_kafka_resp_err_t) {
        self.message.err = err;
    }

    /// Lets C ask for the error texts of one batch's messages while the result lives. Messages without an error have none.
    pub(crate) fn known(slots: &[Self]) -> Option<KnownMessages> {
        slots
            .first()
            .filter(|slot| slot.message.err != RD_KAFKA_RESP_ERR_NO_ERROR)
            .map(|_| KnownMessages::of(slots))
    }

    /// The same for an event, which keeps what it points to.
    pub(crate) fn lasting(&self) -> Self {
        let mut copy = Self::empty();
        copy.message = rd_kafka_message_t { ..self.message };
        copy.timestamp = self.timestamp;
        copy.timestamp_type = self.timestamp_type;
        copy.status = self.status;
        copy.raw_headers = self.raw_headers;
        copy.is_report = self.is_report;
        copy.latency_us = self.latency_us;
        (copy.broker, copy.leader_epoch) = (self.broker, self.leader_epoch);
        copy.rare = self
            .rare
            .as_ref()
            .map(|rare| Box::new(MessageExtras { errstr: rare.errstr.clone(), _topic: None }));
        copy
    }

    pub(crate) fn as_raw(&self) -> *const rd_kafka_message_t {
        &raw const self.message
    }
}

impl Slot {
    /// Drops the contents and leaves a message without any.
    #[inline]
    fn clear(&mut self) {
        self.drop_headers();
        self.rare = None;
        self.raw_headers = HeadersRef::default();
        self.message.err = RD_KAFKA_RESP_ERR_NO_ERROR;
        (self.message.payload, self.message.key) = (null_mut(), null_mut());
        (self.message.len, self.message.key_len) = (0, 0);
    }

    #[inline]
    fn drop_headers(&self) {
        if self.headers.load(Ordering::Relaxed).is_null() {
            return;
        }
        // Of two threads that destroy a message at the same time, one gets the headers.
        let headers = self.headers.swap(null_mut(), Ordering::AcqRel);
        if !headers.is_null() {
            // SAFETY: made by `headers_of`, and detached ones are not here any more.
            drop(unsafe { Box::from_raw(headers) });
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.drop_headers();
    }
}

/// The slot of a message that came from here; `None` for NULL, for a bare error, and for a destroyed message, which is reported.
///
/// # Safety
/// `message` is NULL, a bare error, or came from this library. A message of a callback or an event is not yet destroyed.
#[inline]
unsafe fn slot<'a>(message: *const rd_kafka_message_t, function: &str) -> Option<&'a Slot> {
    // SAFETY: the contract of this function.
    if unsafe { is_bare_error(message) } {
        return None;
    }
    // SAFETY: each message of ours is the first field of its slot.
    let slot = unsafe { message.cast::<Slot>().as_ref() }?;
    match slot.home {
        SlotOwner::Slab(slab) if !Slab::is_live(slab, slot.index) => {
            report_destroyed(message, function);
            None
        }
        SlotOwner::Slab(_) | SlotOwner::Lent => Some(slot),
    }
}

/// Returns `true` for an error without a record. The original's C++ library makes such messages itself, which have no slot.
///
/// # Safety
/// `message` is NULL or points to a message.
#[inline]
unsafe fn is_bare_error(message: *const rd_kafka_message_t) -> bool {
    // SAFETY: the contract of this function.
    unsafe { message.as_ref() }.is_some_and(|message| {
        message.err != RD_KAFKA_RESP_ERR_NO_ERROR && message.rkt.is_null() && message.payload.is_null()
    })
}

#[cold]
fn report_destroyed(message: *const rd_kafka_message_t, function: &str) {
    let problem = format!("the rd_kafka_message_t {message:p} is destroyed");
    report(function, &problem, "destroy a message once, and do not use it afterwards");
}

#[cold]
fn report_in_batch(message: *const rd_kafka_message_t, function: &str) {
    let problem = format!("the rd_kafka_message_t {message:p} belongs to an rd_kafka_messages_t");
    report(function, &problem, "destroy the batch with rd_kafka_messages_destroy()");
}

/// The topic, partition and offset of a message that is a record.
///
/// # Safety
/// The contract of [`slot`] applies.
pub(crate) unsafe fn place_of(
    message: *const rd_kafka_message_t,
    function: &str,
) -> Option<(TopicPartition, i64)> {
    // SAFETY: the contract of this function, above.
    let message = &unsafe { slot(message, function) }?.message;
    let topic = Topic::of(message.rkt, function)?.name.clone();
    Some((TopicPartition { topic, partition: message.partition }, message.offset))
}

/// Destroys a message. Returns `false` if it was destroyed before.
///
/// # Safety
/// The contract of [`slot`] applies, and `message` is not NULL.
#[inline]
unsafe fn destroy(message: *mut rd_kafka_message_t) -> bool {
    let slot: *mut Slot = message.cast();
    // SAFETY: the slot's memory is never freed, or its owner keeps it (the contract of this function, above).
    let (home, index) = unsafe { ((*slot).home, (*slot).index) };
    match home {
        SlotOwner::Slab(slab) if Slab::is_live(slab, index) => {
            // SAFETY: the message exists until its bit is cleared below. Its contents are dropped, and the fields that later
            // calls read are empty.
            unsafe { (*slot).clear() };
            Slab::release(slab, 1 << index)
        }
        SlotOwner::Slab(_) => false,
        SlotOwner::Lent => true,
    }
}

#[on_panic(())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_message_destroy(rkmessage: *mut rd_kafka_message_t) {
    if rkmessage.is_null() {
        return;
    }
    // SAFETY: a message of this library, whose memory is never freed (rdkafka.h, `rd_kafka_message_destroy`).
    unsafe {
        if (*rkmessage.cast::<Slot>()).in_batch {
            report_in_batch(rkmessage, FUNCTION);
        } else if !destroy(rkmessage) {
            report_destroyed(rkmessage, FUNCTION);
        }
    }
}

#[on_panic(null())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_message_errstr(rkmessage: *const rd_kafka_message_t) -> *const c_char {
    // SAFETY: `rkmessage` is NULL or a message, not yet destroyed (rdkafka.h, `rd_kafka_message_errstr`).
    let Some(message) = (unsafe { rkmessage.as_ref() }) else { return null() };
    if !known_messages::contains(rkmessage.addr()) {
        // A message of the application, or one without an error. As in the original, a payload is its text.
        return match message.err {
            RD_KAFKA_RESP_ERR_NO_ERROR => null(),
            _ if !message.payload.is_null() => message.payload.cast_const().cast(),
            err => description(err).as_ptr(),
        };
    }
    // SAFETY: a message in memory of this library, which has a slot.
    match unsafe { slot(rkmessage, FUNCTION) } {
        Some(slot) if slot.message.err != RD_KAFKA_RESP_ERR_NO_ERROR => {
            slot.rare.as_ref().map_or_else(|| description(slot.message.err), |rare| &rare.errstr).as_ptr()
        }
        _ => null(),
    }
}

#[on_panic(null())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_message_produce_errstr(
    rkmessage: *const rd_kafka_message_t,
) -> *const c_char {
    // SAFETY: `rkmessage` is NULL or a message of this library, not yet destroyed (rdkafka.h,
    // `rd_kafka_message_produce_errstr`).
    unsafe { rd_kafka_message_errstr(rkmessage) }
}

#[on_panic(-1)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_message_timestamp(
    rkmessage: *const rd_kafka_message_t,
    tstype: *mut rd_kafka_timestamp_type_t,
) -> i64 {
    // SAFETY: `rkmessage` is NULL or a message, not yet destroyed; `tstype` is NULL or writable (rdkafka.h,
    // `rd_kafka_message_timestamp`).
    let (message, tstype) = unsafe { (rkmessage.as_ref(), tstype.as_mut()) };
    // An error has none, as in the original. It may be a message of the application, which has no slot.
    let known = message
        .filter(|message| message.err == RD_KAFKA_RESP_ERR_NO_ERROR)
        // SAFETY: as above.
        .and_then(|_| unsafe { slot(rkmessage, FUNCTION) })
        .map_or((-1, RD_KAFKA_TIMESTAMP_NOT_AVAILABLE), |slot| (slot.timestamp, slot.timestamp_type));
    if let Some(tstype) = tstype {
        *tstype = known.1;
    }
    known.0
}

#[on_panic(-1)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_message_latency(rkmessage: *const rd_kafka_message_t) -> i64 {
    // SAFETY: `rkmessage` is NULL or a message of this library, not yet destroyed (rdkafka.h,
    // `rd_kafka_message_latency`).
    unsafe { slot(rkmessage, FUNCTION) }.map_or(-1, |slot| slot.latency_us)
}

#[on_panic(-1)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_message_broker_id(rkmessage: *const rd_kafka_message_t) -> i32 {
    // SAFETY: `rkmessage` is NULL or a message of this library, not yet destroyed (rdkafka.h,
    // `rd_kafka_message_broker_id`).
    unsafe { slot(rkmessage, FUNCTION) }.map_or(-1, |slot| slot.broker)
}

#[on_panic(-1)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_message_leader_epoch(rkmessage: *const rd_kafka_message_t) -> i32 {
    // SAFETY: `rkmessage` is NULL or a message of this library, not yet destroyed (rdkafka.h,
    // `rd_kafka_message_leader_epoch`).
    unsafe { slot(rkmessage, FUNCTION) }.map_or(-1, |slot| slot.leader_epoch)
}

#[on_panic(0)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_message_delivery_count(rkmessage: *const rd_kafka_message_t) -> i16 {
    // SAFETY: `rkmessage` is NULL or a message of this library, not yet destroyed (rdkafka.h,
    // `rd_kafka_message_delivery_count`).
    unsafe { slot(rkmessage, FUNCTION) }.map_or(0, |slot| slot.delivery_count)
}

#[on_panic(RD_KAFKA_MSG_STATUS_NOT_PERSISTED)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_message_status(
    rkmessage: *const rd_kafka_message_t,
) -> rd_kafka_msg_status_t {
    // SAFETY: `rkmessage` is NULL or a message of this library, not yet destroyed (rdkafka.h,
    // `rd_kafka_message_status`).
    unsafe { slot(rkmessage, FUNCTION) }.map_or(RD_KAFKA_MSG_STATUS_NOT_PERSISTED, |slot| slot.status)
}

fn of_raw(raw: HeadersRef<'_>) -> rd_kafka_headers_t {
    let mut headers = rd_kafka_headers_t::with_capacity(raw.len());
    for (name, value) in raw.iter() {
        headers.add(name, value);
    }
    headers
}

/// The headers, made now if they were not asked for before.
fn headers_of(slot: &Slot) -> *mut rd_kafka_headers_t {
    let known = slot.headers.load(Ordering::Acquire);
    if !known.is_null() || slot.raw_headers.is_empty() {
        return known;
    }
    let made = Box::into_raw(Box::new(of_raw(slot.raw_headers)));
    match slot.headers.compare_exchange(null_mut(), made, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => made,
        Err(other) => {
            // SAFETY: made here; no other code has the pointer.
            drop(unsafe { Box::from_raw(made) });
            other
        }
    }
}

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_message_headers(
    rkmessage: *const rd_kafka_message_t,
    hdrsp: *mut *mut rd_kafka_headers_t,
) -> rd_kafka_resp_err_t {
    // SAFETY: `rkmessage` is NULL or a message of this library; `hdrsp` is NULL or writable (rdkafka.h,
    // `rd_kafka_message_headers`).
    unsafe { headers(rkmessage, hdrsp, FUNCTION) }
}

/// # Safety
/// The contract of [`slot`] applies; `hdrsp` is NULL or writable.
unsafe fn headers(
    rkmessage: *const rd_kafka_message_t,
    hdrsp: *mut *mut rd_kafka_headers_t,
    function: &str,
) -> rd_kafka_resp_err_t {
    // SAFETY: the contract of this function, above.
    let (Some(slot), Some(out)) = (unsafe { slot(rkmessage, function) }, unsafe { hdrsp.as_mut() }) else {
        return RD_KAFKA_RESP_ERR__INVALID_ARG;
    };
    *out = headers_of(slot);
    if out.is_null() { RD_KAFKA_RESP_ERR__NOENT } else { RD_KAFKA_RESP_ERR_NO_ERROR }
}

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_message_detach_headers(
    rkmessage: *mut rd_kafka_message_t,
    hdrsp: *mut *mut rd_kafka_headers_t,
) -> rd_kafka_resp_err_t {
    // SAFETY: `rkmessage` is NULL or a message of this library, not yet destroyed; `hdrsp` is NULL or writable
    // (rdkafka.h, `rd_kafka_message_detach_headers`).
    let err = unsafe { headers(rkmessage, hdrsp, FUNCTION) };
    if err == RD_KAFKA_RESP_ERR_NO_ERROR {
        let slot: *mut Slot = rkmessage.cast();
        // SAFETY: it is a message of ours, or there would have been no headers.
        unsafe {
            (*slot).headers = AtomicPtr::default();
            // As in the original, only a fetched message makes them again.
            if (*slot).is_report {
                (*slot).raw_headers = HeadersRef::default();
            }
        }
    }
    err
}

#[on_panic(())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_message_set_headers(
    rkmessage: *mut rd_kafka_message_t,
    hdrs: *mut rd_kafka_headers_t,
) {
    // SAFETY: `rkmessage` is NULL or a message of this library (rdkafka.h, `rd_kafka_message_set_headers`).
    if unsafe { slot(rkmessage, FUNCTION) }.is_none() {
        return;
    }
    let slot: *mut Slot = rkmessage.cast();
    // SAFETY: `hdrs` is NULL or headers of this library, not yet destroyed (rdkafka.h,
    // `rd_kafka_message_set_headers`); what it had is replaced.
    unsafe {
        (*slot).raw_headers = HeadersRef::default();
        let old = std::mem::replace(&mut (*slot).headers, AtomicPtr::new(hdrs));
        let old = old.into_inner();
        if !old.is_null() {
            drop(Box::from_raw(old));
        }
    }
}
