//! What became of a record: one completion per batch, one index per record.

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
    /// Written: offset of the first record (-1 when acks=0 or unknown), and the broker's time if it stamps records.
    Written {
        /// Offset of the batch's first record, or -1.
        base_offset: i64,
    },
    /// Failed as a whole.
    Failed(Arc<ProduceError>),
    /// The records had no partition yet; now each has one, and its fate is decided there.
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

/// Who waits for the outcome.
#[derive(Debug, Default)]
struct Waiting {
    wakers: Vec<Waker>,
    /// Threads at the condition variable: without any, waking costs no system call.
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

    /// Settles the batch; the first outcome stands.
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

/// The future outcome of one record: resolves when the broker has acknowledged it or it has failed for good.
///
/// Dropping it loses nothing: the record is sent all the same. Polling it needs no particular runtime.
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

    /// The outcome, if it is known by now. Costs one atomic load.
    #[inline]
    pub fn try_get(&self) -> Option<Result<RecordMetadata, ProduceError>> {
        match self.completion.outcome.get()? {
            Outcome::Written { base_offset } => Some(Ok(RecordMetadata {
                topic: self.completion.topic.clone(),
                partition: self.completion.partition,
                offset: if *base_offset < 0 { -1 } else { base_offset + i64::from(self.index) },
            })),
            Outcome::Failed(error) => Some(Err(ProduceError::clone(error))),
            Outcome::Forwarded(to) => to.get(self.index as usize)?.try_get(),
        }
    }

    /// The offset or the error, if it is known by now; -1 where [`RecordMetadata::offset`] is. For those who look at
    /// very many: nothing is cloned.
    #[inline]
    pub fn try_offset(&self) -> Option<Result<i64, &ProduceError>> {
        match self.completion.outcome.get()? {
            Outcome::Written { base_offset } if *base_offset < 0 => Some(Ok(-1)),
            Outcome::Written { base_offset } => Some(Ok(base_offset + i64::from(self.index))),
            Outcome::Failed(error) => Some(Err(error)),
            Outcome::Forwarded(to) => to.get(self.index as usize)?.try_offset(),
        }
    }

    /// Whether the outcome is known. Costs one atomic load.
    #[inline]
    pub fn is_done(&self) -> bool {
        match self.completion.outcome.get() {
            None => false,
            Some(Outcome::Forwarded(to)) => to.get(self.index as usize).is_some_and(Self::is_done),
            Some(_) => true,
        }
    }

    /// Where the fate is decided: here, or where the record was forwarded to.
    fn decided_by(&self) -> &Self {
        match self.completion.outcome.get() {
            Some(Outcome::Forwarded(to)) => to.get(self.index as usize).unwrap_or(self),
            _ => self,
        }
    }

    /// Blocks the calling thread until the outcome is known, at most for `timeout`; `None` when that has passed.
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
        // Settled between the look and the lock: `complete` sets the outcome under this lock.
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
