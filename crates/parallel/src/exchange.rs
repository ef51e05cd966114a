//! Where the dispatcher and the workers meet: the core under a lock, taken once per piece of work.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ottla_client::TopicPartition;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::core::Core;
use crate::core::work::{Origin, Outcome, Unsettled, Work};
use crate::message::Pieces;
use crate::outputs::Outputs;

/// Work that is done sooner than this is not worth waking another worker for: waking one costs up to a tenth of it.
const WORTH_WAKING: Duration = Duration::from_micros(200);

/// Records are handed over in pieces of about this length, so that workers come back often enough.
const PIECE: Duration = Duration::from_micros(200);

#[derive(Debug)]
pub(crate) struct Exchange {
    inner: Mutex<Inner>,
    /// Idle workers wait for it.
    work: Notify,
    /// The dispatcher waits for it.
    pub(crate) news: Notify,
    workers: usize,
    /// How many records a piece of work has at most.
    piece_max: usize,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) core: Core<Pieces>,
    pub(crate) partitions: BTreeMap<TopicPartition, Known>,
    idle: usize,
    closed: bool,
    /// The application wants it to end.
    pub(crate) stopping: bool,
    /// When the dispatcher is to be woken.
    pub(crate) watch: Watch,
    /// Outputs to be written, in the order in which their handlers were through.
    pub(crate) produced: Vec<Produced>,
    /// What has failed too often.
    pub(crate) given_up: Vec<Work<Pieces>>,
    pub(crate) dead_letters: u64,
    pub(crate) skipped: u64,
}

/// What metrics say of a partition beside what the core knows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    pub(crate) of: Option<Origin>,
    pub(crate) committed: Option<i64>,
    pub(crate) paused: bool,
}

/// What the dispatcher waits for while it waits for records, too.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Watch {
    Nothing,
    /// Less is under way: this many pieces of work in the queue, and as many records of the partition that finishes.
    Room {
        queued: usize,
        records: usize,
    },
    Everything,
}

#[derive(Debug)]
pub(crate) struct Produced {
    pub(crate) done: Unsettled,
    pub(crate) outputs: Outputs,
}

impl Exchange {
    pub(crate) fn new(core: Core<Pieces>, workers: usize, piece_max: usize) -> Self {
        let inner = Inner {
            core,
            partitions: BTreeMap::new(),
            idle: 0,
            closed: false,
            stopping: false,
            watch: Watch::Nothing,
            produced: Vec::new(),
            given_up: Vec::new(),
            dead_letters: 0,
            skipped: 0,
        };
        let (work, news) = (Notify::new(), Notify::new());
        Self { inner: Mutex::new(inner), work, news, workers, piece_max }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many records make a piece of work at the moment.
    pub(crate) fn piece(&self, inner: &Inner) -> usize {
        let each = inner.core.record_time().as_nanos().max(1);
        ((PIECE.as_nanos() / each) as usize).clamp(1, self.piece_max)
    }

    /// The next piece of work, after the outcome of the one before; `None` when there will be none.
    pub(crate) async fn next(&self, mut ended: Option<Ended>) -> Option<(Work<Pieces>, Instant)> {
        loop {
            let mut woken = pin!(self.work.notified());
            {
                let now = Instant::now();
                let mut inner = self.lock();
                if let Some(ended) = ended.take() {
                    self.finish(&mut inner, ended, now);
                }
                if inner.closed {
                    return None;
                }
                if let Some(work) = inner.core.take(now) {
                    return Some((work, now));
                }
                // Registered under the lock: whoever counts on an idle worker wakes one.
                woken.as_mut().enable();
                inner.idle += 1;
            }
            woken.await;
        }
    }

    fn finish(&self, inner: &mut Inner, ended: Ended, now: Instant) {
        let Ended { mut outcome, outputs, begun } = ended;
        outcome.took = now - begun;
        let (of, deferred) = (outcome.of, !outputs.is_empty());
        outcome.deferred = deferred;
        if deferred {
            let (offsets, until) = (outcome.offsets.clone(), outcome.until);
            let done = Unsettled { of, offsets, until, except: outcome.open.clone(), size: outcome.done };
            inner.produced.push(Produced { done, outputs });
        }
        let given_up = inner.core.finish(outcome, now);
        let wakes = deferred || !given_up.is_empty();
        inner.given_up.extend(given_up);
        let wakes = wakes
            || match inner.watch {
                Watch::Nothing => false,
                Watch::Room { queued, records } => {
                    inner.core.lanes().queued() <= queued && inner.core.in_flight(of).records <= records
                }
                Watch::Everything => true,
            };
        if wakes {
            inner.watch = Watch::Nothing;
            self.news.notify_one();
        }
    }

    /// Wakes as many workers as there is work for.
    pub(crate) fn wake_workers(&self, inner: &mut Inner) {
        let lanes = inner.core.lanes();
        if inner.idle == 0 || !lanes.has_ready() {
            return;
        }
        let time = inner.core.record_time() * u32::try_from(lanes.queued_records()).unwrap_or(u32::MAX);
        let worth = (time.as_nanos() / WORTH_WAKING.as_nanos()) as usize + 1;
        let busy = self.workers - inner.idle;
        let wanted = worth.min(lanes.queued()).min(self.workers).saturating_sub(busy);
        self.wake(inner, wanted);
    }

    /// Wakes one more, if there is work that nobody has taken: whoever is at work takes longer than was to be expected.
    pub(crate) fn wake_one(&self, inner: &mut Inner) {
        if inner.core.lanes().has_ready() {
            self.wake(inner, 1);
        }
    }

    fn wake(&self, inner: &mut Inner, wanted: usize) {
        for _ in 0..wanted.min(inner.idle) {
            inner.idle -= 1;
            self.work.notify_one();
        }
    }

    /// Whether somebody could be woken for what is ready.
    pub(crate) fn has_idle(inner: &Inner) -> bool {
        inner.idle > 0 && inner.core.lanes().has_ready()
    }

    /// No more work: workers end when they have ended what they have.
    pub(crate) fn close(&self) {
        let mut inner = self.lock();
        inner.closed = true;
        inner.idle = 0;
        self.work.notify_waiters();
    }
}

/// What a worker says of a piece of work.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) outcome: Outcome<Pieces>,
    pub(crate) outputs: Outputs,
    pub(crate) begun: Instant,
}
