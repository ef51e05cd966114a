//! The outcome of records: one completion per batch, one index per record.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::error::ProduceError;
use crate::record::RecordMetadata;

/// The outcome of a batch.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The batch is in the log.
    Written {
        /// Offset of the batch's first record; -1 with `acks=0` or when it is unknown.
        base_offset: i64,
        /// The timestamp that the broker gave all records (`message.timestamp.type=LogAppendTime`); -1 if they keep theirs.
        append_time_ms: i64,
    },
    /// The whole batch failed.
    Failed(Arc<ProduceError>),
    /// The records had no partition and moved to these deliveries.
    Forwarded(Vec<Delivery>),
}

/// Shared by a batch and the futures of its records.
#[derive(Debug)]
pub(crate) struct Completion {
    topic: Arc<str>,
    partition: i32,
    outcome: OnceLock<Outcome>,
    waiting: Mutex<Waiting>,
    done: Condvar,
}

/// The tasks and threads that wait for the outcome.
#[derive(Debug, Default)]
struct Waiting {
    wakers: Vec<Waker>,
    /// Threads at the condition variable. Without any, waking costs no system call.
    threads: usize,
}

impl Completion {
    pub(crate) fn new(topic: Arc<str>, partition: i32) -> Arc<Self> {
        Arc::new(Self {
            topic,
            partition,
            outcome: OnceLock::new(),
            waiting: Mutex::default(),
            done: Condvar::new(),
        })
    }

    /// Sets the outcome; later calls have no effect.
    pub(crate) fn complete(&self, outcome: Outcome) {
        let waiting = {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            if self.outcome.set(outcome).is_err() {
                return;
            }
            std::mem::take(&mut *waiting)
        };
        if waiting.threads > 0 {
            self.done.notify_all();
        }
        for waker in waiting.wakers {
            waker.wake();
        }
    }
}

/// The future outcome of one record. It resolves when the broker has acknowledged the record, or when it has failed.
///
/// Dropping it does not cancel the record: the record is still sent. Polling it needs no particular runtime.
#[derive(Debug)]
#[must_use = "the record's fate is only known here"]
pub struct Delivery {
    completion: Arc<Completion>,
    index: u32,
}

impl Delivery {
    pub(crate) fn new(completion: Arc<Completion>, index: u32) -> Self {
        Self { completion, index }
    }

    /// The outcome, if it is known. Costs one atomic load.
    #[inline]
    pub fn try_get(&self) -> Option<Result<RecordMetadata, ProduceError>> {
        match self.completion.outcome.get()? {
            Outcome::Written { base_offset, .. } => Some(Ok(RecordMetadata {
                topic: self.completion.topic.clone(),
                partition: self.completion.partition,
                offset: (*base_offset >= 0).then(|| base_offset + i64::from(self.index)),
            })),
            Outcome::Failed(error) => Some(Err(error.of_record(self.index).clone())),
            Outcome::Forwarded(to) => to.get(self.index as usize)?.try_get(),
        }
    }

    /// The offset as in [`RecordMetadata::offset`], or the error, if it is known by now. Clones nothing, for callers that
    /// check many deliveries.
    #[inline]
    pub fn try_offset(&self) -> Option<Result<Option<i64>, &ProduceError>> {
        match self.completion.outcome.get()? {
            Outcome::Written { base_offset, .. } if *base_offset < 0 => Some(Ok(None)),
            Outcome::Written { base_offset, .. } => Some(Ok(Some(base_offset + i64::from(self.index)))),
            Outcome::Failed(error) => Some(Err(error.of_record(self.index))),
            Outcome::Forwarded(to) => to.get(self.index as usize)?.try_offset(),
        }
    }

    /// `true` if the outcome is known. Costs one atomic load.
    #[inline]
    pub fn is_done(&self) -> bool {
        match self.completion.outcome.get() {
            None => false,
            Some(Outcome::Forwarded(to)) => to.get(self.index as usize).is_some_and(Self::is_done),
            Some(_) => true,
        }
    }

    /// The delivery that decides: this one, or the one that the record moved to.
    fn decided_by(&self) -> &Self {
        match self.completion.outcome.get() {
            Some(Outcome::Forwarded(to)) => to.get(self.index as usize).unwrap_or(self),
            _ => self,
        }
    }

    /// Blocks the calling thread until the outcome is known, for at most `timeout`; `None` after that time.
    pub fn wait(&self, timeout: Duration) -> Option<Result<RecordMetadata, ProduceError>> {
        let completion = &self.completion;
        let mut waiting = completion.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.threads += 1;
        drop(completion.done.wait_timeout_while(waiting, timeout, |_| completion.outcome.get().is_none()));
        let decided_by = self.decided_by();
        if !std::ptr::eq(decided_by, self) && !decided_by.is_done() {
            return decided_by.wait(timeout);
        }
        self.try_get()
    }
}

impl Future for Delivery {
    type Output = Result<RecordMetadata, ProduceError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(result) = self.try_get() {
            return Poll::Ready(result);
        }
        let decided_by = self.decided_by();
        let mut waiting = decided_by.completion.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        // The outcome may have been set before the lock was taken: `complete` sets it under this lock.
        if decided_by.completion.outcome.get().is_some() {
            drop(waiting);
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if !waiting.wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
            waiting.wakers.push(cx.waker().clone());
        }
        Poll::Pending
    }
}
