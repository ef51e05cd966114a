//! A batch's delivery reports as messages, a few at a time: the application's callback runs between them.

use std::ffi::{CString, c_void};
use std::mem;
use std::ptr::null_mut;
use std::sync::Arc;

use ottla_client::{HeadersRef, Persisted, Records, Report, Reported};

use crate::callbacks::prepared::ReportProgress;
use crate::callbacks::trampoline::CallbackLoop;
use crate::client::handle::Handle;
use crate::client::topic_handle::Topic;
use crate::errors::error_mapping::of_produce as code_of_produce;
use crate::ffi::c_strings::c_string;
use crate::ffi::memory::MallocedMemory;
use crate::ffi::*;
use crate::messages::message::{ReportedRecord, Slot};
use crate::produce::producer::{FREE, POINTER};
use crate::queue::op::Op;

/// Messages that are made together: enough that the step into Rust costs little per message.
const CHUNK: usize = 32;

/// The reports of one batch, from the first that has had no callback.
pub(crate) struct ReportCursor {
    handle: Arc<Handle>,
    /// The messages of the current chunk. They borrow from `source` and `topic`.
    slots: Vec<Slot>,
    /// Payloads with `RD_KAFKA_MSG_F_FREE`, by the index of their message in the chunk.
    payloads: Vec<(usize, MallocedMemory)>,
    progress: ReportProgress,
    source: ReportSource,
    topic: Arc<Topic>,
    err: rd_kafka_resp_err_t,
    status: rd_kafka_msg_status_t,
    errstr: Option<CString>,
    latency_us: i64,
    partition: i32,
    /// Records whose report was made before this cursor began.
    first: usize,
    /// Records whose report was made before the current chunk.
    before: usize,
}

/// A report with an iterator that borrows from it.
struct ReportSource {
    /// Dropped before what it borrows from.
    next: Option<Box<NextReported>>,
    report: Option<Box<Report>>,
    /// Boxed: the iterator has its address.
    _records: Option<Box<Records>>,
}

type NextReported = dyn FnMut() -> Option<(Reported, Option<ReportedFields>)>;

/// The fields of a record that its report has. They lie in the batch's memory.
struct ReportedFields {
    key: (*mut c_void, usize),
    value: (*mut c_void, usize),
    headers: HeadersRef<'static>,
    timestamp: i64,
}

impl ReportSource {
    fn new(report: Report, done: usize) -> Self {
        let report = Box::new(report);
        let records = report.records().map(Box::new);
        // SAFETY: both are boxed and are dropped after the iterator.
        let (known, batch) = unsafe {
            let known = mem::transmute::<&Report, &'static Report>(&*report);
            (known, records.as_deref().map(|records| mem::transmute::<&Records, &'static Records>(records)))
        };
        let mut reported = known.iter();
        let mut fields = batch.map(Records::iter);
        if let Some(fields) = &mut fields {
            fields.take(done).for_each(drop);
        }
        reported.by_ref().take(done).for_each(drop);
        let next = move || {
            let reported = reported.next()?;
            let record = fields.as_mut().and_then(Iterator::next).and_then(Result::ok);
            let fields = record.map(|record| ReportedFields {
                key: part(record.key),
                value: part(record.value),
                headers: record.headers,
                timestamp: record.timestamp,
            });
            Some((reported, fields))
        };
        Self { next: Some(Box::new(next)), report: Some(report), _records: records }
    }

    fn next(&mut self) -> Option<(Reported, Option<ReportedFields>)> {
        self.next.as_mut()?()
    }

    /// The number of records in the report.
    fn len(&self) -> usize {
        self.report.as_ref().map_or(0, |report| report.len())
    }

    /// The report; nothing is read of it after this. The records stay.
    fn take_report(&mut self) -> Option<Report> {
        self.next = None;
        self.report.take().map(|report| *report)
    }
}

fn part(part: Option<&[u8]>) -> (*mut c_void, usize) {
    part.map_or((null_mut(), 0), |part| (part.as_ptr().cast_mut().cast(), part.len()))
}

impl ReportCursor {
    pub(crate) fn new(handle: &Arc<Handle>, report: Report, done: usize) -> Self {
        let (err, status, errstr) = match report.result() {
            Ok(_) => (RD_KAFKA_RESP_ERR_NO_ERROR, RD_KAFKA_MSG_STATUS_PERSISTED, None),
            Err(error) => {
                let status = match error.persisted {
                    Persisted::NotWritten => RD_KAFKA_MSG_STATUS_NOT_PERSISTED,
                    Persisted::PossiblyWritten => RD_KAFKA_MSG_STATUS_POSSIBLY_PERSISTED,
                };
                (code_of_produce(error), status, Some(c_string(&error.kind.to_string())))
            }
        };
        let topic = handle.topic(report.topic());
        let latency_us = report.latency().map_or(-1, |latency| latency.as_micros() as i64);
        let partition = report.partition();
        Self {
            handle: handle.clone(),
            slots: Vec::new(),
            payloads: Vec::new(),
            progress: ReportProgress::default(),
            source: ReportSource::new(report, done),
            topic,
            err,
            status,
            errstr,
            latency_us,
            partition,
            first: done,
            before: done,
        }
    }

    /// Makes the messages of the next chunk and has C report them; `false` at the end.
    pub(crate) fn next_chunk(&mut self, state: &mut CallbackLoop) -> bool {
        self.end_chunk();
        // An interceptor runs right before the callback of its message.
        let chunk = if self.handle.client_interceptors.get().is_some() { 1 } else { CHUNK };
        self.slots.reserve(chunk.min(self.source.len().saturating_sub(self.before)));
        while self.slots.len() < chunk {
            let Some(slot) = self.next_slot() else { break };
            self.slots.push(slot);
        }
        self.progress = ReportProgress { next: 0, end: self.slots.len() };
        state.progress = &raw mut self.progress;
        state.pointer = self.slots.as_ptr().cast_mut().cast();
        state.size = size_of::<Slot>();
        !self.slots.is_empty()
    }

    /// The number of callbacks that this cursor made.
    pub(crate) fn reported(&self) -> usize {
        self.before + self.progress.next - self.first
    }

    /// Ends the cursor; the reports that are left are an operation of their own.
    pub(crate) fn take_rest(&mut self) -> Option<Op> {
        let report = self.source.take_report()?;
        // C makes no further calls for the current chunk.
        self.progress.end = self.progress.next;
        let called = self.progress.next;
        for (_, payload) in self.payloads.extract_if(.., |(index, _)| *index >= called) {
            // It belongs to a record that is reported later.
            payload.leak();
        }
        let done = self.before + called;
        (done < report.len()).then_some(Op::DeliveryReport { report, done })
    }

    fn end_chunk(&mut self) {
        self.before += self.progress.next;
        self.progress = ReportProgress::default();
        self.slots.clear();
        self.payloads.clear();
    }

    fn next_slot(&mut self) -> Option<Slot> {
        let (reported, fields) = self.source.next()?;
        let (key, mut payload) =
            fields.as_ref().map_or(((null_mut(), 0), (null_mut(), 0)), |it| (it.key, it.value));
        let own = ((reported.tag.get() >> 64) & POINTER) as usize as *mut c_void;
        if !own.is_null() {
            payload.0 = own;
        }
        if reported.tag.get() & FREE != 0 {
            self.payloads.push((self.slots.len(), MallocedMemory::new(own)));
        }
        let slot = Slot::delivered(&ReportedRecord {
            topic: &self.topic,
            partition: self.partition,
            offset: if reported.offset < 0 { RD_KAFKA_OFFSET_INVALID } else { reported.offset },
            err: self.err,
            errstr: self.errstr.as_deref(),
            status: self.status,
            key,
            payload,
            opaque: reported.tag.get() as u64 as usize as *mut c_void,
            timestamp: fields.as_ref().map_or(-1, |fields| fields.timestamp),
            raw_headers: fields.map_or_else(HeadersRef::default, |fields| fields.headers),
            latency_us: self.latency_us,
        });
        if let Some(interceptors) = self.handle.client_interceptors.get() {
            interceptors.on_acknowledgement(&self.handle, &slot);
        }
        Some(slot)
    }
}

/// Calls `each` with the message of every report after the first `done`; the application's function is not called. Messages
/// point into the memory of the cursor, which is returned.
pub(crate) fn each_report(
    handle: &Arc<Handle>,
    report: Report,
    done: usize,
    mut each: impl FnMut(&Slot),
) -> ReportCursor {
    let mut cursor = ReportCursor::new(handle, report, done);
    while let Some(slot) = cursor.next_slot() {
        each(&slot);
    }
    cursor
}
