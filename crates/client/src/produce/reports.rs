//! Delivery reports: the outcome of records, for applications that read a queue instead of holding a future per record.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use ottla_wire::Records;
use tokio::sync::Notify;

use super::Produce;
use super::memory::Memory;
use crate::blocking;
use crate::error::ProduceError;
use crate::panics::{contained, guarded};
use crate::record::Tag;
use crate::wake_callback::WakeCallback;

/// Reports that the application has not read.
#[derive(Debug, Default)]
pub(crate) struct ReportQueue {
    reports: Mutex<VecDeque<Report>>,
    filled: Notify,
    wake_callback: WakeCallback,
    successes: SuccessCallback,
}

/// The function that gets the reports of successes, if the application has one for them: they are not queued then.
#[derive(Default)]
struct SuccessCallback(OnceLock<Box<dyn Fn(Report) + Send + Sync>>);

impl fmt::Debug for SuccessCallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SuccessCallback")
    }
}

impl ReportQueue {
    pub(super) fn push(&self, report: Report) {
        if report.result.is_ok()
            && let Some(take) = self.successes.0.get()
        {
            // A panic ends only the call.
            let _ = contained(|| take(report));
            return;
        }
        self.lock().push_back(report);
        self.filled.notify_waiters();
        self.wake_callback.notify();
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    /// The number of records in unread reports.
    pub(crate) fn records(&self) -> usize {
        self.lock().iter().map(Report::len).sum()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Report>> {
        self.reports.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The outcome of one batch's records, in the order in which they were sent.
///
/// Reported records count against `queue.buffering.max.messages` until their report is dropped.
#[derive(Debug)]
pub struct Report {
    pub(super) topic: Arc<str>,
    pub(super) partition: i32,
    pub(super) node: Option<i32>,
    pub(super) result: Result<i64, Arc<ProduceError>>,
    pub(super) append_time_ms: i64,
    pub(super) latency: Option<Duration>,
    pub(super) count: u32,
    pub(super) tags: Vec<u128>,
    pub(super) records: Option<Bytes>,
    pub(super) _held: BookedMemory,
}

/// The memory and records that a report keeps booked while it lives.
#[derive(Debug)]
pub(super) struct BookedMemory {
    pub(super) memory: Arc<Memory>,
    pub(super) bytes: usize,
    pub(super) records: u32,
}

impl Drop for BookedMemory {
    fn drop(&mut self) {
        self.memory.release(self.bytes, self.records as usize);
    }
}

/// The outcome of one record.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Reported {
    /// The record's offset; -1 if it failed, with `acks=0`, or if the broker did not return one.
    pub offset: i64,
    /// The record's tag.
    pub tag: Tag,
}

impl Report {
    /// The topic of the records.
    pub fn topic(&self) -> &Arc<str> {
        &self.topic
    }

    /// The partition of the records; -1 if none was chosen.
    pub fn partition(&self) -> i32 {
        self.partition
    }

    /// The id of the node that the records were sent to last; `None` if they were never sent.
    pub fn node(&self) -> Option<i32> {
        self.node
    }

    /// The number of records.
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Always `false`: a batch has records.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The error of one record, by its index in the report.
    pub fn error_of(&self, index: u32) -> Option<&ProduceError> {
        self.result.as_ref().err().map(|error| error.of_record(index))
    }

    /// The first record's offset (-1 if the broker did not return one), or the error of the batch:
    /// [`ProduceErrorKind::InvalidRecords`](crate::ProduceErrorKind::InvalidRecords) if its records have different ones.
    pub fn result(&self) -> Result<i64, &ProduceError> {
        self.result.as_ref().map(|offset| *offset).map_err(|error| &**error)
    }

    /// The timestamp in milliseconds that the broker gave all records, if the topic's `message.timestamp.type` is
    /// LogAppendTime; otherwise the records keep theirs.
    pub fn append_time_ms(&self) -> Option<i64> {
        (self.append_time_ms >= 0).then_some(self.append_time_ms)
    }

    /// The time from sending the oldest record to its outcome; `None` if it was refused at once.
    pub fn latency(&self) -> Option<Duration> {
        self.latency
    }

    /// The offset and tag of each record.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Reported> + '_ {
        let first = *self.result.as_ref().unwrap_or(&-1);
        (0..self.count as usize).map(move |at| Reported {
            offset: if first < 0 { -1 } else { first + at as i64 },
            tag: self.tags.get(at).copied().unwrap_or(0).into(),
        })
    }

    /// The records themselves, if `Config::delivery_report_records` is on.
    pub fn records(&self) -> Option<Records> {
        Records::of_batch(self.records.as_ref()?, usize::MAX).ok()
    }
}

/// The queue of delivery reports; see [`Producer::reports`](crate::Producer::reports).
#[derive(Clone, Debug)]
pub struct Reports {
    pub(crate) produce: Arc<Produce>,
}

impl Reports {
    /// The number of unread reports.
    pub fn len(&self) -> usize {
        self.produce.reports.len()
    }

    /// `true` if there are no unread reports.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The next report, if there is one.
    pub fn try_next(&self) -> Option<Report> {
        self.produce.reports.lock().pop_front()
    }

    /// Calls `wake` for every new report, on the thread that reports it. The callback must not block.
    pub fn on_filled(&self, wake: impl Fn() + Send + Sync + 'static) {
        self.produce.reports.wake_callback.set(Some(Arc::new(guarded(wake))));
    }

    /// Passes the reports of records that were written to `take`, on the thread that reports them. The queue gets those of failures only.
    /// The callback must not block. Only the first call has an effect, on later reports.
    ///
    /// ```
    /// use std::sync::mpsc;
    /// use std::time::Duration;
    ///
    /// use ottla_client::{Config, Producer, Record};
    ///
    /// # let broker = ottla_broker::Broker::builder().memory().spawn()?;
    /// let mut config = Config::new(broker.bootstrap_servers());
    /// config.delivery_reports = true;
    /// let producer = Producer::new(config)?;
    /// let (written, offsets) = mpsc::channel();
    /// producer.reports()?.take_successes(move |report| {
    ///     report.iter().for_each(|record| _ = written.send(record.offset));
    /// });
    /// producer.send_unobserved_blocking(Record::to("orders").value("paid"))?;
    /// assert_eq!(offsets.recv_timeout(Duration::from_secs(30))?, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn take_successes(&self, take: impl Fn(Report) + Send + Sync + 'static) {
        let _ = self.produce.reports.successes.0.set(Box::new(take));
    }

    /// Waits for the next report. Cancel safe: a report is returned or stays in the queue.
    pub async fn next(&self) -> Report {
        loop {
            let mut filled = std::pin::pin!(self.produce.reports.filled.notified());
            filled.as_mut().enable();
            if let Some(report) = self.try_next() {
                return report;
            }
            filled.await;
        }
    }

    /// Blocks the calling thread until there is a report, for at most `timeout`.
    pub fn next_blocking(&self, timeout: Duration) -> Option<Report> {
        let mut next = None;
        blocking::wait_until(timeout, &self.produce.reports.filled, || {
            next = self.try_next();
            next.is_some()
        });
        next
    }
}
