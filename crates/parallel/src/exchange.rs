//! The state that the dispatcher and the workers share: the core under a lock, taken once per work item.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use ottla_client::TopicPartition;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::core::Core;
use crate::core::work::{AssignmentId, Outcome, PendingRecords, Work};
use crate::message::Pieces;
use crate::outputs::Outputs;

/// Work below this duration is not worth waking another worker: a wakeup costs up to a tenth of it.
const WORTH_WAKING: Duration = Duration::from_micros(200);

/// Target duration of a work item, so that workers report back often enough.
pub(crate) const PIECE: Duration = Duration::from_micros(200);

#[derive(Debug)]
pub(crate) struct Exchange {
    inner: Mutex<Inner>,
    /// Wakes idle workers.
    workers_wake: Notify,
    /// Wakes the dispatcher.
    pub(crate) dispatcher_wake: Notify,
    /// Wakes those that wait for a stop.
    stop_wake: Notify,
    workers: usize,
    /// Maximum number of records per work item.
    piece_max: usize,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) core: Core<Pieces>,
    pub(crate) partitions: BTreeMap<TopicPartition, PartitionStatus>,
    idle: usize,
    closed: bool,
    /// The text of a worker's panic outside of its handler. The work item is lost, so its partition makes no progress any more.
    pub(crate) worker_panic: Option<String>,
    /// `true` after a panic under the lock. The state may be wrong then: its offsets are not committed.
    pub(crate) is_poisoned: bool,
    /// The time of [`Processor::stop`](crate::Processor::stop), if it was called.
    pub(crate) stop_requested_at: Option<Instant>,
    /// The condition for waking the dispatcher.
    pub(crate) wake_condition: WakeCondition,
    refused: RefusedPartitions,
    /// `true` while no finished offset waits for its commit: the next one wakes the dispatcher, which plans the commit.
    pub(crate) awaits_finished: bool,
    /// `true` while the dispatcher has incomplete batches: an idle worker then wakes it to get one.
    pub(crate) has_open_batches: bool,
    /// Outputs to write, in the order in which their handlers finished.
    pub(crate) produced: Vec<Produced>,
    /// Work whose retries are used up.
    pub(crate) given_up: Vec<Work<Pieces>>,
    pub(crate) given_up_counts: GivenUpCounts,
    /// Those of the open transaction: if it is aborted, its records are handled, and given up, again.
    pub(crate) uncommitted_counts: GivenUpCounts,
    /// Present if the records come from a share group.
    pub(crate) share: Option<ShareProgress>,
}

/// The numbers of records that were given up.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GivenUpCounts {
    pub(crate) dead_letters: u64,
    pub(crate) skipped: u64,
}

/// The records of a share group that are done, and the counts of acknowledgements.
#[derive(Debug, Default)]
pub(crate) struct ShareProgress {
    /// Done records that are not acknowledged yet.
    pub(crate) done: Vec<PendingRecords>,
    pub(crate) counts: ShareMetrics,
}

/// The acknowledgements of a processor in a share group, counted when they are made. Those that the broker refuses later also count as
/// [`lost`](ShareMetrics::lost).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct ShareMetrics {
    /// Records that were accepted: their handlers succeeded, or their dead letters are written.
    pub accepted: u64,
    /// Records that were released for another delivery.
    pub released: u64,
    /// Records that were rejected: given up without a dead letter.
    pub rejected: u64,
    /// Renewals of acquisition locks.
    pub renewed: u64,
    /// Records that were done after their lock had ended, and acknowledgements that the broker refused. The group delivers these
    /// records again.
    pub lost: u64,
}

/// A partition's state for the metrics that the core does not have.
#[derive(Clone, Debug, Default)]
pub(crate) struct PartitionStatus {
    pub(crate) assignment: Option<AssignmentId>,
    pub(crate) committed: Option<i64>,
    pub(crate) paused: bool,
}

/// The partitions whose fetched records did not fit in the last round of the dispatcher.
#[derive(Debug, Default)]
struct RefusedPartitions {
    /// `true` if the queue of all partitions was full.
    by_queue: bool,
    /// By slot, those that exceeded a limit of their own, with their records in flight at that time.
    slots: BTreeMap<u32, (AssignmentId, usize)>,
    /// `true` if one of these has fewer records in flight since then.
    have_progressed: bool,
}

/// The condition, besides fetched records, that wakes the dispatcher.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum WakeCondition {
    Never,
    /// A partition that was refused has room: few enough work items are queued, or few enough of its records are in flight. With
    /// `of_partition`, both are required, and only the work items of the partition count. An empty queue suffices if the partition has
    /// fewer records in flight than before, because the rest may be stuck.
    Room {
        queued: usize,
        records: usize,
        of_partition: bool,
    },
    AnyOutcome,
    /// At most this many records are queued.
    FewQueued {
        records: usize,
    },
}

#[derive(Debug)]
pub(crate) struct Produced {
    pub(crate) done: PendingRecords,
    pub(crate) outputs: Outputs,
}

impl Exchange {
    pub(crate) fn new(core: Core<Pieces>, workers: usize, piece_max: usize, share: bool) -> Self {
        let inner = Inner {
            core,
            partitions: BTreeMap::new(),
            idle: 0,
            closed: false,
            worker_panic: None,
            is_poisoned: false,
            stop_requested_at: None,
            wake_condition: WakeCondition::Never,
            refused: RefusedPartitions::default(),
            awaits_finished: false,
            has_open_batches: false,
            produced: Vec::new(),
            given_up: Vec::new(),
            given_up_counts: GivenUpCounts::default(),
            uncommitted_counts: GivenUpCounts::default(),
            share: share.then(ShareProgress::default),
        };
        let (workers_wake, dispatcher_wake, stop_wake) = (Notify::new(), Notify::new(), Notify::new());
        Self { inner: Mutex::new(inner), workers_wake, dispatcher_wake, stop_wake, workers, piece_max }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(|poisoned| {
            let mut inner = poisoned.into_inner();
            inner.is_poisoned = true;
            inner
        })
    }

    /// The current number of records per work item.
    pub(crate) fn piece(&self, inner: &Inner) -> usize {
        let each = inner.core.record_time().as_nanos().max(1);
        ((PIECE.as_nanos() / each) as usize).clamp(1, self.piece_max)
    }

    /// Reports the outcome of the previous work item and takes the next one. Returns `None` when the exchange is
    /// closed.
    pub(crate) async fn next(&self, mut completed: Option<CompletedWork>) -> Option<(Work<Pieces>, Instant)> {
        loop {
            let mut woken = pin!(self.workers_wake.notified());
            {
                let now = Instant::now();
                let mut inner = self.lock();
                if let Some(completed) = completed.take() {
                    self.finish(&mut inner, completed, now);
                }
                if inner.closed {
                    return None;
                }
                if let Some(mut work) = inner.core.take(now) {
                    work.payload.is_trial = !inner.core.breaker().is_closed();
                    // The rest of its lane does not count any more.
                    if inner.has_room(work.assignment) {
                        self.wake_dispatcher(&mut inner);
                    }
                    return Some((work, now));
                }
                // Registered under the lock, so that a wakeup for an idle worker is not lost.
                woken.as_mut().enable();
                inner.idle += 1;
                if std::mem::take(&mut inner.has_open_batches) {
                    self.dispatcher_wake.notify_one();
                }
            }
            woken.await;
        }
    }

    /// Reports the outcome of a work item. The worker takes the next one with [`Exchange::next`].
    pub(crate) fn report(&self, completed: CompletedWork) {
        self.finish(&mut self.lock(), completed, Instant::now());
    }

    /// Reports a worker's panic outside of its handler: the dispatcher ends the processor.
    pub(crate) fn report_panic(&self, text: String) {
        self.lock().worker_panic.get_or_insert(text);
        self.dispatcher_wake.notify_one();
    }

    fn finish(&self, inner: &mut Inner, completed: CompletedWork, now: Instant) {
        let CompletedWork { mut outcome, outputs, begun } = completed;
        outcome.took = now - begun;
        let assignment = outcome.assignment;
        // The records of an assignment that has ended are handled again, and their outputs sent then.
        let deferred = !outputs.is_empty() && inner.core.is_known(assignment);
        outcome.deferred = deferred;
        let mut acknowledges = false;
        if deferred {
            inner.produced.push(Produced { done: done_records(&outcome), outputs });
        } else if let Some(share) = inner.share.as_mut().filter(|_| outcome.done.records > 0) {
            // The dispatcher wakes for the first records that are done. It acknowledges those that follow with them.
            acknowledges = share.done.is_empty();
            share.done.push(done_records(&outcome));
        }
        let breaker_state = |inner: &Inner| {
            let breaker = inner.core.breaker();
            (breaker.is_closed(), breaker.open_until())
        };
        let (before, due_before) = (breaker_state(inner), inner.core.next_due());
        let finished_before = inner.awaits_finished.then(|| inner.core.finished_offset(assignment));
        let given_up = inner.core.finish(outcome, now);
        inner.note_progress(assignment);
        // The dispatcher waits for the end of a pause, and wakes workers when the breaker has closed. That of a share group
        // releases records when it opens.
        let breaker_turns = breaker_state(inner) != before;
        // It waits no longer than for the first of the retries that it knows.
        let retries_sooner =
            inner.core.next_due().is_some_and(|due| due_before.is_none_or(|before| due < before));
        let has_finished =
            finished_before.is_some_and(|before| inner.core.finished_offset(assignment) != before);
        inner.awaits_finished &= !has_finished;
        let wakes = deferred
            || acknowledges
            || breaker_turns
            || retries_sooner
            || has_finished
            || !given_up.is_empty();
        inner.given_up.extend(given_up);
        let wakes = wakes
            || match inner.wake_condition {
                WakeCondition::Never => false,
                WakeCondition::Room { .. } => inner.has_room(assignment),
                WakeCondition::AnyOutcome => true,
                WakeCondition::FewQueued { records } => inner.core.lanes().queued_records() <= records,
            };
        if wakes {
            self.wake_dispatcher(inner);
        }
    }

    fn wake_dispatcher(&self, inner: &mut Inner) {
        inner.wake_condition = WakeCondition::Never;
        self.dispatcher_wake.notify_one();
    }

    /// Wakes as many workers as the ready work is worth.
    pub(crate) fn wake_workers(&self, inner: &mut Inner, now: Instant) {
        if !Self::has_idle(inner, now) {
            return;
        }
        let lanes = inner.core.lanes();
        let time = inner.core.record_time() * u32::try_from(lanes.queued_records()).unwrap_or(u32::MAX);
        let worth = (time.as_nanos() / WORTH_WAKING.as_nanos()) as usize + 1;
        let busy = self.workers - inner.idle;
        let wanted = worth.min(lanes.queued()).min(self.workers).saturating_sub(busy);
        self.wake(inner, wanted);
    }

    /// Wakes one more worker if work is ready: the busy ones take longer than expected.
    pub(crate) fn wake_one(&self, inner: &mut Inner, now: Instant) {
        if inner.core.can_start(now) {
            self.wake(inner, 1);
        }
    }

    fn wake(&self, inner: &mut Inner, wanted: usize) {
        for _ in 0..wanted.min(inner.idle) {
            inner.idle -= 1;
            self.workers_wake.notify_one();
        }
    }

    /// `true` if a worker is idle although work is ready and may be started.
    pub(crate) fn has_idle(inner: &Inner, now: Instant) -> bool {
        inner.idle > 0 && inner.core.can_start(now)
    }

    /// The number of incomplete batches that idle workers can take. It is 0 while complete work waits for a worker.
    pub(crate) fn free_workers(inner: &Inner) -> usize {
        if inner.core.lanes().has_ready() || !inner.core.breaker().is_closed() { 0 } else { inner.idle }
    }

    /// Requests a stop. In a share group, no record is started from now on.
    pub(crate) fn request_stop(&self) {
        let mut inner = self.lock();
        inner.stop_requested_at.get_or_insert_with(Instant::now);
        if inner.share.is_some() {
            inner.core.stop_all();
        }
        drop(inner);
        self.stop_wake.notify_waiters();
        self.dispatcher_wake.notify_one();
    }

    /// Waits until a stop is requested. Returns the time of the first request.
    pub(crate) async fn stop_requested(&self) -> Instant {
        let mut requested = pin!(self.stop_wake.notified());
        // Registered before the check, so that a stop between the two is not missed.
        requested.as_mut().enable();
        let earlier = self.lock().stop_requested_at;
        if let Some(requested_at) = earlier {
            return requested_at;
        }
        requested.await;
        self.lock().stop_requested_at.unwrap_or_else(Instant::now)
    }

    /// Closes the exchange: workers end after their current work item.
    pub(crate) fn close(&self) {
        let mut inner = self.lock();
        inner.closed = true;
        inner.idle = 0;
        self.workers_wake.notify_waiters();
    }
}

impl Inner {
    /// The work items that count against the limit of the queue: those in the partition's lane, or all that can be started.
    pub(crate) fn queued(&self, of_partition: bool, assignment: AssignmentId) -> usize {
        let lanes = self.core.lanes();
        if of_partition { lanes.queued_in(assignment.slot) } else { lanes.startable() }
    }

    /// Begins a round of the dispatcher, in which partitions are refused again.
    pub(crate) fn begin_round(&mut self) {
        self.refused = RefusedPartitions::default();
    }

    /// Notes that records of a partition must wait: `by_queue` for room in the queue of all partitions, otherwise for outcomes of its own.
    pub(crate) fn refuse(&mut self, assignment: AssignmentId, by_queue: bool) {
        if by_queue {
            self.refused.by_queue = true;
        } else {
            let in_flight = self.core.in_flight(assignment).records;
            self.refused.slots.insert(assignment.slot, (assignment, in_flight));
        }
    }

    /// Notes an outcome of a partition that may have been refused.
    fn note_progress(&mut self, assignment: AssignmentId) {
        if let Some((_, before)) = self.refused.slots.get(&assignment.slot) {
            self.refused.have_progressed |= self.core.in_flight(assignment).records < *before;
        }
    }

    /// `true` if the dispatcher waits for room, and an outcome or a start of this partition's work has made some. Other partitions may be
    /// full for long: their outcomes, not these, show that they have room.
    fn has_room(&self, assignment: AssignmentId) -> bool {
        let WakeCondition::Room { queued, records, of_partition } = self.wake_condition else { return false };
        let now_queued = self.queued(of_partition, assignment);
        let is_refused = self.refused.slots.contains_key(&assignment.slot);
        let has_few = self.core.in_flight(assignment).records <= records;
        let is_empty = self.refused.have_progressed && now_queued == 0;
        if of_partition {
            return is_refused && now_queued <= queued && (has_few || is_empty);
        }
        (self.refused.by_queue && now_queued <= queued) || (is_refused && has_few) || is_empty
    }

    /// `true` if a refused partition has room since the dispatcher refused it in this round.
    pub(crate) fn has_room_again(&self) -> bool {
        let WakeCondition::Room { queued, of_partition, .. } = self.wake_condition else { return false };
        if !of_partition && self.refused.by_queue && self.core.lanes().startable() <= queued {
            return true;
        }
        self.refused.slots.values().any(|(assignment, before)| {
            self.core.in_flight(*assignment).records < *before && self.has_room(*assignment)
        })
    }

    /// Counts the records that were given up in the transaction, which is committed.
    pub(crate) fn count_committed(&mut self) {
        let GivenUpCounts { dead_letters, skipped } = std::mem::take(&mut self.uncommitted_counts);
        self.given_up_counts.dead_letters += dead_letters;
        self.given_up_counts.skipped += skipped;
    }

    /// Finishes records: what they waited for was written.
    pub(crate) fn settle(&mut self, done: PendingRecords, now: Instant) {
        self.core.settle(&done, now);
        if let Some(share) = &mut self.share {
            share.done.push(done);
        }
    }
}

/// The records of a work item that are done.
fn done_records(outcome: &Outcome<Pieces>) -> PendingRecords {
    PendingRecords {
        assignment: outcome.assignment,
        offsets: outcome.offsets.clone(),
        until: outcome.until,
        except: outcome.open.clone(),
        size: outcome.done,
        rejected: false,
    }
}

/// A worker's report of a work item.
#[derive(Debug)]
pub(crate) struct CompletedWork {
    pub(crate) outcome: Outcome<Pieces>,
    pub(crate) outputs: Outputs,
    pub(crate) begun: Instant,
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use futures_util::FutureExt;
    use futures_util::future::join;

    use super::*;
    use crate::core::breaker::{BreakerSettings, FailureRuns};
    use crate::core::work::{Offsets, Size};
    use crate::retry::Retry;
    use crate::worker::{Handle, HandlerSettings, TURN_ITEMS, work};

    /// An exchange with so many work items, and a breaker that opens at the first failure.
    fn filled(pause: Duration, items: i64) -> Exchange {
        let settings = BreakerSettings { failures: 1, pause, pause_max: pause };
        with_items(Core::new(Retry::never(), Some(settings), fastrand::Rng::with_seed(1)), items)
    }

    fn with_items(mut core: Core<Pieces>, items: i64) -> Exchange {
        add_items(&mut core, items);
        Exchange::new(core, 1, 1, false)
    }

    /// Assigns one more partition, with so many work items of one record.
    fn add_items(core: &mut Core<Pieces>, items: i64) -> AssignmentId {
        let now = Instant::now();
        let (assignment, stopped) = core.assign(0, now);
        for offset in 0..items {
            let (offsets, size) = (Offsets::Range(offset, offset + 1), Size { records: 1, bytes: 1 });
            let stopped = stopped.clone();
            let payload = Pieces::new(Vec::new(), stopped);
            core.take_offsets(assignment, &offsets, size, now);
            core.admit(Work { assignment, age: 0, lane: None, offsets, size, failures: 0, payload });
        }
        assignment
    }

    fn completed((work, begun): (Work<Pieces>, Instant), runs: FailureRuns) -> CompletedWork {
        let outcome = Outcome { runs, ..Outcome::handled(work) };
        CompletedWork { outcome, outputs: Outputs::default(), begun }
    }

    const FAILED: FailureRuns = FailureRuns { first: 1, last: None };
    const SUCCEEDED: FailureRuns = FailureRuns { first: 0, last: Some(0) };

    /// The dispatcher and a worker woke each other 500 times a second for the whole pause.
    #[test]
    fn no_worker_is_woken_while_the_breaker_is_open() {
        let pause = Duration::from_secs(3_600);
        let exchange = filled(pause, 3);
        let work = exchange.next(None).now_or_never().flatten().expect("ready");
        let mut next = Box::pin(exchange.next(Some(completed(work, FAILED))));
        assert!(next.as_mut().now_or_never().is_none(), "the breaker is open");
        let (now, mut inner) = (Instant::now(), exchange.lock());
        assert!(inner.core.lanes().has_ready() && !Exchange::has_idle(&inner, now));
        exchange.wake_workers(&mut inner, now);
        exchange.wake_one(&mut inner, now);
        assert_eq!(inner.idle, 1);
        let resumes_at = inner.core.resumes_at(now).expect("the end of the pause");
        assert!(resumes_at <= now + pause && Exchange::has_idle(&inner, resumes_at));
        exchange.wake_one(&mut inner, resumes_at);
        assert_eq!(inner.idle, 0);
    }

    #[test]
    fn the_dispatcher_is_woken_when_the_breaker_opens_and_when_it_closes() {
        let exchange = filled(Duration::ZERO, 3);
        let is_woken = || exchange.dispatcher_wake.notified().now_or_never().is_some();
        let work = exchange.next(None).now_or_never().flatten().expect("ready");
        assert!(!is_woken());
        let trial = exchange.next(Some(completed(work, FAILED))).now_or_never().flatten().expect("ready");
        assert!(is_woken() && trial.0.payload.is_trial);
        let last = exchange.next(Some(completed(trial, SUCCEEDED))).now_or_never().flatten().expect("ready");
        assert!(is_woken() && exchange.lock().core.breaker().is_closed());
        assert!(exchange.next(Some(completed(last, SUCCEEDED))).now_or_never().is_none());
        assert!(!is_woken());
    }

    #[test]
    fn a_panic_under_the_lock_is_noted() {
        let exchange = filled(Duration::ZERO, 1);
        let panics = std::panic::AssertUnwindSafe(|| {
            let inner = exchange.lock();
            assert!(inner.is_poisoned, "a defect of the core");
        });
        assert!(std::panic::catch_unwind(panics).is_err());
        assert!(exchange.lock().is_poisoned);
    }

    /// The report of a work item whose record has failed.
    fn failed((work, begun): (Work<Pieces>, Instant)) -> CompletedWork {
        let (assignment, age, lane) = (work.assignment, work.age, work.lane);
        let failed = vec![Work { failures: 1, ..work }];
        let outcome = Outcome {
            assignment,
            age,
            lane,
            offsets: failed[0].offsets.clone(),
            until: i64::MAX,
            open: vec![failed[0].offsets.first()],
            done: Size::default(),
            runs: FAILED,
            deferred: false,
            failed,
            held: None,
            rest: None,
            took: Duration::ZERO,
        };
        CompletedWork { outcome, outputs: Outputs::default(), begun }
    }

    /// The dispatcher slept for up to a second, until the next record arrived, and the retry was late.
    #[test]
    fn the_dispatcher_is_woken_for_a_retry_that_is_due_before_all_others() {
        let retry = Retry::times(1).delay(Duration::from_millis(20));
        let exchange = with_items(Core::new(retry, None, fastrand::Rng::with_seed(1)), 1);
        let work = exchange.next(None).now_or_never().flatten().expect("ready");
        exchange.report(failed(work));
        assert!(exchange.lock().core.next_due().is_some());
        assert!(exchange.dispatcher_wake.notified().now_or_never().is_some());
    }

    /// It slept in the same way while finished records waited for their commit.
    #[test]
    fn the_dispatcher_is_woken_for_the_first_offset_to_commit_and_not_for_the_next() {
        let exchange = with_items(Core::new(Retry::never(), None, fastrand::Rng::with_seed(1)), 3);
        let is_woken = || exchange.dispatcher_wake.notified().now_or_never().is_some();
        let next = || exchange.next(None).now_or_never().flatten().expect("ready");
        let [first, second, third] = [next(), next(), next()];
        exchange.lock().awaits_finished = true;
        exchange.report(completed(second, SUCCEEDED));
        assert!(!is_woken(), "the first one is not done");
        exchange.report(completed(first, SUCCEEDED));
        assert!(is_woken());
        exchange.report(completed(third, SUCCEEDED));
        assert!(!is_woken(), "the commit is planned");
    }

    /// Each work item of the other partitions woke it while one was full. Behind a stuck record that one was looked at once a second.
    #[test]
    fn the_dispatcher_is_woken_when_a_partition_that_it_refused_has_room() {
        let mut core = Core::new(Retry::never(), None, fastrand::Rng::with_seed(1));
        let (full, _other) = (add_items(&mut core, 3), add_items(&mut core, 4));
        let exchange = Exchange::new(core, 1, 1, false);
        let is_woken = || exchange.dispatcher_wake.notified().now_or_never().is_some();
        let next = || exchange.next(None).now_or_never().flatten().expect("ready");
        let waits = |records: usize| {
            let mut inner = exchange.lock();
            inner.begin_round();
            inner.refuse(full, false);
            inner.wake_condition = WakeCondition::Room { queued: 1, records, of_partition: false };
            assert!(!inner.has_room_again());
        };
        let [stuck, second, third] = [next(), next(), next()];
        waits(2);
        let [first_of_other, second_of_other] = [next(), next()];
        exchange.report(completed(first_of_other, SUCCEEDED));
        assert!(!is_woken(), "an outcome of another partition");
        exchange.report(completed(second, SUCCEEDED));
        assert!(is_woken(), "few enough are in flight");
        waits(0);
        exchange.report(completed(third, SUCCEEDED));
        assert!(!is_woken() && !exchange.lock().has_room_again(), "work is queued");
        let third_of_other = next();
        assert!(!is_woken());
        let fourth_of_other = next();
        assert!(is_woken(), "the rest may be stuck, and nothing is queued");
        waits(0);
        exchange.report(completed(second_of_other, SUCCEEDED));
        exchange.report(completed(third_of_other, SUCCEEDED));
        assert!(!is_woken(), "the full partition has made no progress");
        exchange.lock().refuse(full, true);
        assert!(exchange.lock().has_room_again());
        exchange.report(completed(fourth_of_other, SUCCEEDED));
        assert!(is_woken(), "the queue has room");
        drop(stuck);
    }

    /// The first record is handled when the second one has begun. No other record waits.
    struct WaitsForSecond<'a> {
        exchange: &'a Exchange,
        second: &'a Notify,
        /// The offsets of the handled records.
        handled: &'a RefCell<Vec<i64>>,
    }

    impl Handle for WaitsForSecond<'_> {
        async fn handle(
            &mut self,
            work: Work<Pieces>,
            _settings: &HandlerSettings,
            begun: Instant,
        ) -> CompletedWork {
            match work.offsets.first() {
                0 => self.second.notified().await,
                1 => self.second.notify_one(),
                999 => self.exchange.close(),
                _ => {}
            }
            self.handled.borrow_mut().push(work.offsets.first());
            completed((work, begun), SUCCEEDED)
        }
    }

    /// A blocking handler, which is alone on its thread, yielded to no other, and reported each eighth work item under another lock.
    #[test]
    fn a_worker_without_turns_does_not_yield() {
        let exchange = filled(Duration::ZERO, 1_000);
        let (second, handled) = (Notify::new(), RefCell::default());
        second.notify_one();
        let settings = HandlerSettings { holds: false, failures_max: 1 };
        let mut handler = WaitsForSecond { exchange: &exchange, second: &second, handled: &handled };
        assert_eq!(work(&exchange, &settings, &mut handler, usize::MAX).now_or_never(), Some(()));
    }

    /// The other handlers of its thread did not continue, nor did their timers and connections, until no record was left.
    #[test]
    fn a_handler_that_never_waits_leaves_the_others_of_its_thread_their_turn() {
        let exchange = filled(Duration::ZERO, 1_000);
        let (second, handled) = (Notify::new(), RefCell::default());
        let handler = || WaitsForSecond { exchange: &exchange, second: &second, handled: &handled };
        let settings = HandlerSettings { holds: false, failures_max: 1 };
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let (mut waiting, mut ready) = (handler(), handler());
        let workers = join(
            work(&exchange, &settings, &mut waiting, TURN_ITEMS),
            work(&exchange, &settings, &mut ready, TURN_ITEMS),
        );
        runtime.block_on(workers);
        let first = handled.borrow().iter().position(|offset| *offset == 0).expect("handled");
        assert!(first <= TURN_ITEMS, "{first} records were handled before it");
    }
}
