//! The handlers of the benchmark, and what they add up.

use std::fs::File;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hdrhistogram::Histogram;
use ottla_client::RecordView;
use ottla_parallel::{Builder, Failure as Failed, Mode, Processor};
use serde::Deserialize;

use super::{CHECK_INTERVAL, SILENCE_MAX};
use crate::bench::measure::histogram;
use crate::failure::Failure;

#[derive(Deserialize)]
struct Message {
    id: u64,
    /// The time at which it was to be sent, in nanoseconds since 1970.
    #[serde(default)]
    due: Option<u64>,
}

/// The time that a handler needs for each message, besides decoding it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HandlerCost {
    /// Without its worker: an async wait.
    pub(super) wait: Duration,
    /// With its worker.
    pub(super) block: Duration,
}

/// The time now, in nanoseconds since 1970.
pub(super) fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64
}

/// The totals of all workers.
#[derive(Default)]
pub(super) struct Totals {
    pub(super) sum: AtomicU64,
    /// Bytes of values.
    pub(super) bytes: AtomicU64,
    waits: AtomicU64,
    waited_ns: AtomicU64,
    /// Nanoseconds from the time at which a message was due to its handling.
    latencies: Mutex<Option<Histogram<u64>>>,
}

/// The totals of one worker, added to [`Totals`] when the worker is dropped.
pub(super) struct WorkerTotals {
    sum: u64,
    bytes: u64,
    waits: u64,
    waited: Duration,
    latencies: Option<Histogram<u64>>,
    handled: Option<Arc<File>>,
    /// Handled messages of this call, for the file.
    notes: Vec<u8>,
    all: Arc<Totals>,
}

impl Clone for WorkerTotals {
    fn clone(&self) -> Self {
        Self::new(&self.all, self.handled.clone())
    }
}

impl Drop for WorkerTotals {
    fn drop(&mut self) {
        self.all.sum.fetch_add(self.sum, Ordering::Relaxed);
        self.all.bytes.fetch_add(self.bytes, Ordering::Relaxed);
        self.all.waits.fetch_add(self.waits, Ordering::Relaxed);
        self.all.waited_ns.fetch_add(self.waited.as_nanos() as u64, Ordering::Relaxed);
        if let Some(latencies) = &self.latencies {
            let mut all = self.all.latencies.lock().unwrap_or_else(PoisonError::into_inner);
            // Both have the bounds of `histogram`.
            let _ = all.get_or_insert_with(histogram).add(latencies);
        }
    }
}

impl WorkerTotals {
    fn new(all: &Arc<Totals>, handled: Option<Arc<File>>) -> Self {
        let all = all.clone();
        let (waited, notes) = (Duration::ZERO, Vec::new());
        Self { sum: 0, bytes: 0, waits: 0, waited, latencies: None, handled, notes, all }
    }

    pub(super) fn of(all: &Arc<Totals>) -> Self {
        Self::new(all, None)
    }

    /// Notes each handled message in the file too.
    pub(super) fn noting(all: &Arc<Totals>, handled: File) -> Self {
        Self::new(all, Some(Arc::new(handled)))
    }

    #[inline]
    fn take(&mut self, record: &RecordView<'_>) -> Result<(), Failed> {
        let value = record.value().unwrap_or_default();
        let message: Message = serde_json::from_slice(value).map_err(Failed::undecodable)?;
        self.sum += message.id;
        self.bytes += value.len() as u64;
        if let Some(due) = message.due {
            self.latencies.get_or_insert_with(histogram).saturating_record(now_ns().saturating_sub(due));
        }
        if self.handled.is_some() {
            self.notes.extend(message.id.to_le_bytes());
        }
        Ok(())
    }

    /// Ends a call of the handler. One append notes all its messages: the notes of all processes are in the order of
    /// the writes.
    #[inline]
    fn end_call(&mut self) -> Result<(), Failed> {
        if let Some(mut file) = self.handled.as_deref() {
            let written = file.write_all(&self.notes);
            self.notes.clear();
            written?;
        }
        Ok(())
    }

    fn block(&mut self, time: Duration) {
        let began = Instant::now();
        std::thread::sleep(time);
        self.waited_since(began);
    }

    /// Records the actual wait: timers fire late.
    fn waited_since(&mut self, began: Instant) {
        self.waits += 1;
        self.waited += began.elapsed();
    }
}

impl Totals {
    /// Waits until every worker has been dropped and has added its totals.
    pub(super) fn await_all(self: &Arc<Self>) {
        let began = Instant::now();
        while Arc::strong_count(self) > 1 && began.elapsed() < SILENCE_MAX {
            std::thread::park_timeout(CHECK_INTERVAL);
        }
    }

    pub(super) fn mean_wait(&self) -> Duration {
        let waits = self.waits.load(Ordering::Relaxed).max(1);
        Duration::from_nanos(self.waited_ns.load(Ordering::Relaxed) / waits)
    }

    /// The latencies of messages with a due time; `None` if there were none.
    pub(super) fn latencies(&self) -> Option<Histogram<u64>> {
        self.latencies.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Starts a processor whose handlers add up ids, after the time that each message costs.
pub(super) fn start(
    mode: Mode,
    builder: Builder,
    mut tally: WorkerTotals,
    HandlerCost { wait, block }: HandlerCost,
) -> Result<Processor, Failure> {
    let started = match mode {
        Mode::Batch | Mode::MultiBatch => builder.start_batches(move |messages| {
            for record in messages.iter() {
                if !block.is_zero() {
                    tally.block(block);
                }
                tally.take(&record)?;
            }
            tally.end_call()?;
            Ok(())
        }),
        Mode::Sync | Mode::MultiAsync if !wait.is_zero() => builder.start_each_async(async move |message| {
            let began = Instant::now();
            // tokio's timers count in milliseconds: 1 ms would take 2.
            futures_timer::Delay::new(wait).await;
            tally.waited_since(began);
            tally.take(message)?;
            tally.end_call()
        }),
        Mode::Sync | Mode::MultiAsync if !block.is_zero() => builder.start_each(move |message| {
            tally.block(block);
            tally.take(message)?;
            tally.end_call()
        }),
        Mode::Sync | Mode::MultiAsync => builder.start_each(move |message| {
            tally.take(message)?;
            tally.end_call()
        }),
    };
    Ok(started?)
}
