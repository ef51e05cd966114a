//! A batch's delivery reports as messages, a few at a time: the application's callback runs between them.

use std::ffi::{CStr, CString, c_void};
use std::mem;
use std::ptr::null_mut;
use std::sync::Arc;

use ottla_client::{Acks, HeadersRef, Persisted, ProduceErrorKind, RecordRef, Records, Report, Reported};

use crate::callbacks::prepared::ReportProgress;
use crate::callbacks::trampoline::CallbackLoop;
use crate::client::handle::Handle;
use crate::client::topic_handle::Topic;
use crate::errors::error_mapping::of_report as code_of_report;
use crate::ffi::c_strings::c_string;
use crate::ffi::memory::MallocedMemory;
use crate::ffi::*;
use crate::messages::known_messages::KnownMessages;
use crate::messages::message::{ReportedRecord, Slot};
use crate::produce::producer::{FREE, POINTER};
use crate::queue::op::Op;

/// Messages that are made together: enough that the step into Rust costs little per message.
const CHUNK: usize = 32;

/// The reports of one batch, from the first that has had no callback.
pub(crate) struct ReportCursor {
    handle: Arc<Handle>,
    chunk: Chunk,
    progress: ReportProgress,
    source: ReportSource,
    outcome: Outcome,
    /// Records whose report was made before this cursor began.
    first: usize,
    /// Records whose report was made before the current chunk.
    before: usize,
}

/// The fields that all records of a batch have in common.
struct Outcome {
    topic: Arc<Topic>,
    partition: i32,
    broker: i32,
    err: rd_kafka_resp_err_t,
    status: rd_kafka_msg_status_t,
    errstr: Option<CString>,
    /// The errors of the records, if they differ.
    own_errors: Vec<(rd_kafka_resp_err_t, CString)>,
    latency_us: i64,
    /// The timestamp that the broker gave all records.
    append_time_ms: Option<i64>,
}

impl Outcome {
    /// The error of the record with this index in the batch.
    #[inline]
    fn error_of(&self, index: usize) -> (rd_kafka_resp_err_t, Option<&CStr>) {
        self.own_errors
            .get(index)
            .map_or((self.err, self.errstr.as_deref()), |(err, errstr)| (*err, Some(errstr)))
    }
}

/// The messages that are made together. They borrow from the source and the outcome.
#[derive(Default)]
struct Chunk {
    /// Dropped before the messages that it names.
    known: Option<KnownMessages>,
    slots: Vec<Slot>,
    /// Payloads with `RD_KAFKA_MSG_F_FREE`, by the index of their message in the chunk.
    payloads: Vec<(usize, MallocedMemory)>,
}

/// A report with an iterator that borrows from it.
struct ReportSource {
    /// Dropped before what it borrows from.
    next: Option<Box<NextReported>>,
    report: Option<Box<Report>>,
    /// Boxed: the iterator has its address.
    _records: Option<Box<Records>>,
}

/// Adds the messages of at most so many records to a chunk.
type NextReported = dyn FnMut(&Outcome, usize, &mut Chunk);

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
        let mut index = done;
        let next = move |outcome: &Outcome, max: usize, chunk: &mut Chunk| {
            chunk.slots.reserve(max.min(reported.len()));
            for reported in reported.by_ref().take(max) {
                let record = fields.as_mut().and_then(Iterator::next).and_then(Result::ok);
                chunk.push(outcome, index, &reported, record.as_ref());
                index += 1;
            }
        };
        Self { next: Some(Box::new(next)), report: Some(report), _records: records }
    }

    fn fill(&mut self, outcome: &Outcome, max: usize, chunk: &mut Chunk) {
        if let Some(next) = &mut self.next {
            next(outcome, max, chunk);
        }
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

/// The errors of a batch's records, if they differ.
fn own_errors(report: &Report) -> Vec<(rd_kafka_resp_err_t, CString)> {
    let differ =
        matches!(report.result(), Err(error) if matches!(error.kind, ProduceErrorKind::InvalidRecords(_)));
    let records = if differ { report.len() } else { 0 };
    (0..records)
        .filter_map(|index| report.error_of(u32::try_from(index).ok()?))
        .map(|error| (code_of_report(error), c_string(&error.kind.to_string())))
        .collect()
}

impl ReportCursor {
    pub(crate) fn new(handle: &Arc<Handle>, report: Report, done: usize) -> Self {
        let topic = handle.topic(report.topic());
        let acks = topic.settings().and_then(|settings| settings.acks).unwrap_or(handle.config.acks);
        let (err, status, errstr) = match report.result() {
            // Without a response it is not known whether the broker has written the records.
            Ok(_) if acks == Acks::None => {
                (RD_KAFKA_RESP_ERR_NO_ERROR, RD_KAFKA_MSG_STATUS_POSSIBLY_PERSISTED, None)
            }
            Ok(_) => (RD_KAFKA_RESP_ERR_NO_ERROR, RD_KAFKA_MSG_STATUS_PERSISTED, None),
            Err(error) => {
                let code = code_of_report(error);
                let status = match error.persisted {
                    // The original takes the broker at its word.
                    _ if code == RD_KAFKA_RESP_ERR_KAFKA_STORAGE_ERROR => RD_KAFKA_MSG_STATUS_NOT_PERSISTED,
                    Persisted::NotWritten => RD_KAFKA_MSG_STATUS_NOT_PERSISTED,
                    Persisted::PossiblyWritten => RD_KAFKA_MSG_STATUS_POSSIBLY_PERSISTED,
                };
                // As in the original, the code says what happened: the application may have purged nothing.
                let is_purged = matches!(error.kind, ProduceErrorKind::Purged { .. });
                (code, status, (!is_purged).then(|| c_string(&error.kind.to_string())))
            }
        };
        let outcome = Outcome {
            topic,
            partition: report.partition(),
            broker: report.node().unwrap_or(-1),
            err,
            status,
            errstr,
            own_errors: own_errors(&report),
            append_time_ms: report.append_time_ms(),
            latency_us: report.latency().map_or(-1, |latency| latency.as_micros() as i64),
        };
        Self {
            handle: handle.clone(),
            chunk: Chunk::default(),
            progress: ReportProgress::default(),
            source: ReportSource::new(report, done),
            outcome,
            first: done,
            before: done,
        }
    }

    /// Makes the messages of the next chunk and has C report them; `false` at the end, and after the client was destroyed.
    pub(crate) fn next_chunk(&mut self, state: &mut CallbackLoop) -> bool {
        if !self.handle.is_usable()
            && let Some(rest) = self.take_rest()
        {
            rest.discard();
        }
        self.end_chunk();
        // An interceptor runs right before the callback of its message.
        let max = if self.handle.client_interceptors.get().is_some() { 1 } else { CHUNK };
        self.fill(max);
        let slots = &self.chunk.slots;
        self.progress = ReportProgress { next: 0, end: slots.len() };
        state.progress = &raw mut self.progress;
        state.pointer = slots.as_ptr().cast_mut().cast();
        state.size = size_of::<Slot>();
        !slots.is_empty()
    }

    /// The error of the batch.
    pub(crate) fn error(&self) -> rd_kafka_resp_err_t {
        self.outcome.err
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
        for (_, payload) in self.chunk.payloads.extract_if(.., |(index, _)| *index >= called) {
            // It belongs to a record that is reported later.
            payload.leak();
        }
        let done = self.before + called;
        (done < report.len()).then_some(Op::DeliveryReport { report, done })
    }

    fn end_chunk(&mut self) {
        self.before += self.progress.next;
        self.progress = ReportProgress::default();
        self.chunk.slots.clear();
        self.chunk.payloads.clear();
    }

    /// Makes the messages of the next records, at most `max`. Interceptors see each.
    fn fill(&mut self, max: usize) {
        drop(self.chunk.known.take());
        self.source.fill(&self.outcome, max, &mut self.chunk);
        self.chunk.known = Slot::known(&self.chunk.slots);
        if let Some(interceptors) = self.handle.client_interceptors.get() {
            for slot in &self.chunk.slots {
                interceptors.on_acknowledgement(&self.handle, slot);
            }
        }
    }
}

impl Chunk {
    #[inline]
    fn push(&mut self, outcome: &Outcome, index: usize, reported: &Reported, fields: Option<&RecordRef<'_>>) {
        let (err, errstr) = outcome.error_of(index);
        let (key, mut payload) =
            fields.map_or(((null_mut(), 0), (null_mut(), 0)), |it| (part(it.key), part(it.value)));
        let tag = reported.tag.get();
        let own = ((tag >> 64) & POINTER) as usize as *mut c_void;
        if !own.is_null() {
            payload.0 = own;
        }
        if tag & FREE != 0 {
            self.payloads.push((self.slots.len(), MallocedMemory::new(own)));
        }
        // SAFETY: the bytes are in the batch's memory, which the cursor keeps.
        let raw_headers = fields.map_or_else(HeadersRef::default, |it| unsafe {
            mem::transmute::<HeadersRef<'_>, HeadersRef<'static>>(it.headers)
        });
        self.slots.push(Slot::delivered(&ReportedRecord {
            topic: &outcome.topic,
            partition: outcome.partition,
            broker: outcome.broker,
            offset: if reported.offset < 0 { RD_KAFKA_OFFSET_INVALID } else { reported.offset },
            err,
            errstr,
            status: outcome.status,
            key,
            payload,
            opaque: tag as u64 as usize as *mut c_void,
            timestamp: fields.map_or(-1, |it| it.timestamp),
            append_time_ms: outcome.append_time_ms,
            raw_headers,
            latency_us: outcome.latency_us,
        }));
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
    loop {
        cursor.chunk.slots.clear();
        cursor.fill(CHUNK);
        if cursor.chunk.slots.is_empty() {
            return cursor;
        }
        cursor.chunk.slots.iter().for_each(&mut each);
    }
}
