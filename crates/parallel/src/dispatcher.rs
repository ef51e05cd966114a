//! The polling thread: it fetches, dispatches work, writes the handlers' outputs and commits.

mod renewals;
mod share;
mod transaction;
mod writing;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ottla_client::{Client, Consumer, Event, OffsetAndMetadata, PendingCommit, Polled, TopicPartition};
use tokio::time::{Instant, timeout_at};

use crate::admission::{AssignedPartition, Fetched, InFlightLimits, LaneSorter, WorkSizing};
use crate::core::tracker::Committable;
use crate::deadline::after;
use crate::error::Error;
use crate::exchange::{Exchange, Inner, WakeCondition};
use crate::settings::Builder;

use share::ShareDispatcher;
use transaction::Transaction;
use writing::Writer;

/// Maximum duration of a poll.
const POLL_MAX: Duration = Duration::from_secs(1);

/// If a worker is idle for this long although work is ready, one more worker is woken.
const WORKER_IDLE_MAX: Duration = Duration::from_millis(2);

/// Number of finished records that are committed before the interval ends. They bound the repeats after a crash.
const COMMIT_EARLY_RECORDS: i64 = 1_000;

/// Minimum time between such commits: the broker writes each to a log.
const COMMIT_EARLY: Duration = Duration::from_millis(100);

/// Time limit for a partition's last commit and for leaving the group.
const LEAVE_WITHIN: Duration = Duration::from_secs(10);

pub(crate) type Offsets = Vec<(TopicPartition, OffsetAndMetadata)>;

/// The dispatcher of one kind of group.
pub(crate) enum GroupDispatcher {
    Consumer(Box<Dispatcher>),
    Share(Box<ShareDispatcher>),
}

impl GroupDispatcher {
    pub(crate) fn new(settings: Builder, exchange: Arc<Exchange>, client: &Client) -> Result<Self, Error> {
        Ok(if settings.share {
            Self::Share(Box::new(ShareDispatcher::new(settings, exchange, client)?))
        } else {
            Self::Consumer(Box::new(Dispatcher::new(settings, exchange, client)))
        })
    }

    /// Runs until it is stopped or fails.
    pub(crate) async fn run(self) -> Result<(), Error> {
        match self {
            Self::Consumer(dispatcher) => dispatcher.run().await,
            Self::Share(dispatcher) => dispatcher.run().await,
        }
    }
}

/// Owns the consumer and the fetched records that are not yet in flight.
pub(crate) struct Dispatcher {
    pub(crate) settings: Builder,
    pub(crate) sizing: WorkSizing,
    sorter: LaneSorter,
    pub(crate) exchange: Arc<Exchange>,
    pub(crate) consumer: Consumer,
    pub(crate) assigned: BTreeMap<TopicPartition, AssignedPartition>,
    /// The partitions that are given up because of an [`Event::Revoked`].
    revoking: Vec<TopicPartition>,
    pub(crate) writer: Writer,
    pub(crate) transaction: Option<Transaction>,
    committing: Option<(Offsets, PendingCommit)>,
    commit_at: Instant,
    /// The time from which [`COMMIT_EARLY_RECORDS`] finished records are committed.
    commit_early_at: Instant,
    /// The time of the next [`Dispatcher::pass_skipped`].
    pass_at: Instant,
}

impl Dispatcher {
    pub(crate) fn new(settings: Builder, exchange: Arc<Exchange>, client: &Client) -> Self {
        let consumer = client.consumer();
        let writer = Writer::new(&settings, exchange.clone(), client.producer());
        let transaction = settings.exactly_once.is_some().then(Transaction::default);
        let now = Instant::now();
        let (commit_at, commit_early_at) = (after(now, settings.commits_every()), now + COMMIT_EARLY);
        let sizing = WorkSizing::new(&settings);
        let (assigned, committing) = (BTreeMap::new(), None);
        Self {
            settings,
            sizing,
            sorter: LaneSorter::default(),
            exchange,
            consumer,
            assigned,
            revoking: Vec::new(),
            writer,
            transaction,
            committing,
            commit_at,
            commit_early_at,
            pass_at: now,
        }
    }

    /// Runs until it is stopped or fails.
    pub(crate) async fn run(mut self) -> Result<(), Error> {
        let result = self.consume().await;
        if let Err(error) = &result {
            // The caller that joins the processor gets the error.
            tracing::info!(%error, "the processor stops");
        }
        let all: Vec<_> = self.assigned.keys().cloned().collect();
        // A transaction in which a record failed for good cannot be committed.
        let drained = match result {
            Err(_) if self.transaction.is_some() => self.abort_transaction(&all).await,
            _ => self.release_partitions(&all).await,
        };
        self.exchange.close();
        let left = self.consumer.close(LEAVE_WITHIN).await;
        result.and(drained).and(left.map_err(Error::from))
    }

    async fn consume(&mut self) -> Result<(), Error> {
        if self.transaction.is_some() && !self.init_transactions().await? {
            return Ok(());
        }
        let topics: Vec<&str> = self.settings.topics.iter().map(String::as_str).collect();
        self.consumer.subscribe(&topics).await?;
        loop {
            if let Err(error) = self.writer.write_out() {
                self.abort_if_required(error, &[]).await?;
            }
            if is_stopping(&self.exchange)? {
                return Ok(());
            }
            if self.transaction.is_some() {
                self.advance_transaction().await?;
            }
            let wait = self.dispatch();
            self.begin_commit();
            let polled = tokio::select! {
                biased;
                done = committed(&mut self.committing) => {
                    self.note_committed(done);
                    continue;
                }
                advanced = self.writer.advance() => {
                    if let Err(error) = advanced {
                        self.abort_if_required(error, &[]).await?;
                    }
                    continue;
                }
                () = self.exchange.dispatcher_wake.notified() => continue,
                polled = self.consumer.poll(wait) => polled,
            };
            match polled {
                Ok(Some(Polled::Records(batch))) => self.receive(Fetched::Records(batch)).await?,
                Ok(Some(Polled::Corrupt(corrupt))) => self.receive(Fetched::Corrupt(corrupt)).await?,
                Ok(Some(Polled::Event(event))) => self.on_event(event).await?,
                Ok(Some(_) | None) => self.wake_idle_worker(),
                Err(error) => log_if_transient(error)?,
            }
        }
    }

    async fn receive(&mut self, fetched: Fetched) -> Result<(), Error> {
        let at = fetched.at().clone();
        // The event of an assignment comes before its records. Those of another assignment would join the transaction of
        // this member, although another one owns the partition.
        if self.transaction.is_some() && !self.assigned.contains_key(&at) {
            tracing::warn!(topic = %at.topic, partition = at.partition, "records of a partition that is not assigned");
            return Ok(());
        }
        let partition = self.assigned.entry(at.clone()).or_insert_with(|| AssignedPartition::new(at));
        if partition.went_back(&fetched) {
            return self.start_again(fetched).await;
        }
        partition.receive(fetched);
        Ok(())
    }

    /// Starts a partition again at records that precede those fetched before. Its finished offsets are not committed,
    /// because they now belong to other records.
    async fn start_again(&mut self, fetched: Fetched) -> Result<(), Error> {
        let (at, (from, _)) = (fetched.at().clone(), fetched.offsets());
        warn_of_earlier_offset(&at, from);
        let Some(partition) = self.assigned.get_mut(&at) else { return Ok(()) };
        if let Some((assignment, _)) = partition.owned.take() {
            self.exchange.lock().core.remove(assignment);
        }
        partition.start_again(from);
        if self.transaction.as_ref().is_some_and(Transaction::is_open) {
            // It contains outputs of the earlier records. The abort seeks to `from`.
            return self.abort_transaction(&[]).await;
        }
        partition.receive(fetched);
        Ok(())
    }

    async fn on_event(&mut self, event: Event) -> Result<(), Error> {
        tracing::info!(?event, "assignment");
        match event {
            Event::Assigned(partitions) => {
                for at in partitions {
                    self.exchange.lock().partitions.entry(at.clone()).or_default();
                    // The first records may arrive before this event.
                    self.assigned.entry(at.clone()).or_insert_with(|| AssignedPartition::new(at));
                }
            }
            Event::Revoked(partitions) => {
                self.revoking.clone_from(&partitions);
                let released = self.release_partitions(&partitions).await;
                self.revoking.clear();
                released?;
            }
            Event::Lost(partitions) => {
                // The abort must not seek in them: they may be assigned again by now.
                self.remove_partitions(&partitions);
                if self.transaction.is_some() {
                    self.abort_transaction(&[]).await?;
                }
            }
            // The end of a partition needs no action, and neither do future events.
            _ => {}
        }
        Ok(())
    }

    /// Moves records into flight, pauses full partitions, and returns how long the next poll may wait.
    fn dispatch(&mut self) -> Duration {
        let now = Instant::now();
        let mut next = now + POLL_MAX;
        if let Some(due) = {
            let mut inner = self.exchange.lock();
            inner.begin_round();
            let due = inner.core.wake(now);
            self.exchange.wake_workers(&mut inner, now);
            due
        } {
            next = next.min(due);
        }
        let limits = self.limits();
        let takes = self.transaction.as_ref().is_none_or(Transaction::takes_records);
        let mut full = false;
        for partition in self.assigned.values_mut() {
            let flush = !takes || partition.flush_at(self.settings.batch_wait).is_some_and(|at| at <= now);
            if flush {
                let since = if takes { now - self.settings.batch_wait } else { now };
                partition.flush(&self.exchange, since);
            }
            let admitted = if takes {
                partition.admit(&self.exchange, &self.sizing, &mut self.sorter, limits, now)
            } else {
                partition.waiting.is_empty()
            };
            partition.flush_to_idle(&self.exchange);
            full |= !admitted;
            if admitted == partition.paused {
                partition.paused = !admitted;
                let at = std::slice::from_ref(&partition.at);
                if partition.paused {
                    self.consumer.pause(at);
                } else {
                    self.consumer.resume(at);
                }
                self.exchange.lock().partitions.entry(partition.at.clone()).or_default().paused =
                    partition.paused;
            }
            if let Some(at) = partition.flush_at(self.settings.batch_wait) {
                next = next.min(at);
            }
        }
        let mut inner = self.exchange.lock();
        inner.has_open_batches = self.assigned.values().any(AssignedPartition::has_open_batches);
        let of_partition = self.sizing.counts_partitions();
        let room =
            WakeCondition::Room { queued: limits.queue / 2, records: limits.records / 2, of_partition };
        let closing = self.transaction.as_ref().is_some_and(|transaction| !transaction.takes_records());
        inner.wake_condition = match (closing, full) {
            (true, _) => WakeCondition::AnyOutcome,
            (false, true) => room,
            (false, false) => WakeCondition::Never,
        };
        // Work that ended before the watch was set must not be missed.
        let missed = !inner.produced.is_empty()
            || (inner.has_open_batches && self.can_flush_to_idle(&inner))
            || !inner.given_up.is_empty()
            || (full && takes && (inner.has_room_again() || self.has_idle_partition(&inner)));
        if missed {
            return Duration::ZERO;
        }
        if Exchange::has_idle(&inner, now) {
            next = next.min(now + WORKER_IDLE_MAX);
        }
        next = inner.core.resumes_at(now).map_or(next, |resumes_at| next.min(resumes_at));
        if self.settings.tracked && self.transaction.is_none() && self.committing.is_none() {
            let planned = self.next_commit(&mut inner, now);
            inner.awaits_finished = planned.is_none();
            next = next.min(planned.unwrap_or(next));
        }
        drop(inner);
        if let Some(transaction) = &self.transaction {
            next = next.min(transaction.next(now, self.transaction_limits()));
        }
        next.saturating_duration_since(now)
    }

    /// `true` if a worker became idle after its chance for an incomplete batch.
    fn can_flush_to_idle(&self, inner: &Inner) -> bool {
        Exchange::free_workers(inner) > 0
            && self.assigned.values().any(|partition| partition.can_flush_to_idle(inner))
    }

    /// `true` if a partition waits for room, and has it.
    fn has_idle_partition(&self, inner: &Inner) -> bool {
        let of_partition = self.sizing.counts_partitions();
        let idle = |partition: &AssignedPartition| {
            partition.owned.as_ref().is_none_or(|(assignment, _)| {
                inner.core.is_finished(*assignment) && inner.queued(of_partition, *assignment) == 0
            })
        };
        self.assigned.values().any(|partition| !partition.waiting.is_empty() && idle(partition))
    }

    /// Wakes a worker: the running ones are slower than expected if one is idle although work is ready.
    fn wake_idle_worker(&self) {
        self.exchange.wake_one(&mut self.exchange.lock(), Instant::now());
    }

    /// The limits of each partition; at least one batch.
    fn limits(&self) -> InFlightLimits {
        limits(&self.settings, &self.sizing, self.assigned.len())
    }

    /// The offsets to commit, of some partitions or of all. A state that may be wrong is an error: with no offsets, a transaction would
    /// commit its outputs alone.
    pub(crate) fn offsets(&mut self, only: Option<&[TopicPartition]>) -> Result<Offsets, Error> {
        if self.transaction.is_none() {
            self.restart_earlier();
        }
        self.pass_skipped();
        let mut inner = self.exchange.lock();
        if inner.is_poisoned {
            check_workers(&inner)?;
        }
        let wanted = |at: &TopicPartition| only.is_none_or(|only| only.contains(at));
        let assigned =
            self.assigned.values().filter(|partition| self.settings.tracked && wanted(&partition.at));
        let mut offsets = Vec::new();
        for partition in assigned {
            if let Some(Committable { offset, leader_epoch }) = uncommitted(&mut inner, partition) {
                let offset = OffsetAndMetadata { offset, leader_epoch, metadata: String::new() };
                offsets.push((partition.at.clone(), offset));
            }
        }
        Ok(offsets)
    }

    /// Starts partitions again whose positions went back: the topic was truncated or created again, and their finished offsets belong to
    /// other records. Returns `true` if some of these offsets are not committed.
    pub(crate) fn restart_earlier(&mut self) -> bool {
        let mut are_uncommitted = false;
        let mut inner = self.exchange.lock();
        for partition in self.assigned.values_mut() {
            let Some(assignment) = partition.owned.as_ref().map(|(assignment, _)| *assignment) else {
                continue;
            };
            let position = self.consumer.position(&partition.at);
            let Some(position) = position.filter(|position| partition.is_ahead_of(*position)) else {
                continue;
            };
            // The position of a revoked partition may be one before the records that were polled last.
            if self.revoking.contains(&partition.at)
                || self.consumer.control().unseen_revocations().contains(&partition.at)
            {
                continue;
            }
            warn_of_earlier_offset(&partition.at, position);
            are_uncommitted |= uncommitted(&mut inner, partition).is_some();
            inner.core.remove(assignment);
            partition.start_again(position);
        }
        are_uncommitted
    }

    /// Advances over the offsets behind the last record of each finished partition, or behind its start: no batch contains those of an
    /// aborted transaction, nor that of its marker.
    fn pass_skipped(&mut self) {
        let mut inner = self.exchange.lock();
        for partition in self.assigned.values_mut().filter(|partition| partition.has_no_unstarted()) {
            let Some(assignment) = partition.owned.as_ref().map(|(assignment, _)| *assignment) else {
                // All offsets from the start on had no records. A record that was received has set `start`.
                if self.settings.tracked
                    && partition.start.is_none()
                    && let Some(position) = self.consumer.control().consumed_position(&partition.at)
                {
                    let owned = inner.core.assign(position, Instant::now());
                    inner.partitions.entry(partition.at.clone()).or_default().assignment = Some(owned.0);
                    partition.owned = Some(owned);
                    partition.note_passed(position);
                }
                continue;
            };
            if inner.core.is_finished(assignment)
                && let Some(position) = self.consumer.position(&partition.at)
            {
                inner.core.pass(assignment, position);
                partition.note_passed(position);
            }
        }
    }

    /// The time of the next commit, or of the check whether an early one is due. `None` if nothing is finished.
    fn next_commit(&self, inner: &mut Inner, now: Instant) -> Option<Instant> {
        let finished = self.finished_uncommitted(inner)?;
        let checks_early = now < self.commit_early_at || finished >= COMMIT_EARLY_RECORDS;
        Some(if checks_early { self.commit_at.min(self.commit_early_at) } else { self.commit_at })
    }

    /// The number of finished offsets that are not committed. `None` if there is no offset to commit.
    fn finished_uncommitted(&self, inner: &mut Inner) -> Option<i64> {
        let mut finished = None;
        for partition in self.assigned.values() {
            if let Some(committable) = uncommitted(inner, partition) {
                let from = partition.committed.or(partition.start).unwrap_or(committable.offset);
                finished = Some(finished.unwrap_or(0) + (committable.offset - from).max(0));
            }
        }
        finished
    }

    fn begin_commit(&mut self) {
        let now = Instant::now();
        if self.transaction.is_some()
            || self.committing.is_some()
            || now < self.commit_at.min(self.commit_early_at)
        {
            return;
        }
        // Not in each round: there may be thousands of quiet partitions.
        if now >= self.pass_at {
            self.pass_at = after(now, self.settings.commits_every());
            self.restart_earlier();
            self.pass_skipped();
        }
        let finished = self.finished_uncommitted(&mut self.exchange.lock()).unwrap_or(0);
        if now < self.commit_at && finished < COMMIT_EARLY_RECORDS {
            return;
        }
        // The next round returns an error.
        let Ok(offsets) = self.offsets(None) else { return };
        if !offsets.is_empty() {
            self.commit_at = after(now, self.settings.commits_every());
            self.commit_early_at = now + COMMIT_EARLY;
            self.committing = Some((offsets.clone(), self.consumer.begin_commit(Some(&offsets))));
        }
    }

    fn note_committed(&mut self, done: Result<(), ottla_client::Error>) {
        let Some((offsets, _)) = self.committing.take() else { return };
        match done {
            Ok(()) => self.set_committed(offsets.iter().map(|(at, offset)| (at, offset.offset))),
            // The next commit has the same offsets or later ones. Revoked partitions are not ours to commit.
            Err(error) => tracing::warn!(%error, "commit"),
        }
    }

    pub(crate) fn set_committed<'a>(&mut self, offsets: impl Iterator<Item = (&'a TopicPartition, i64)>) {
        let mut inner = self.exchange.lock();
        for (at, offset) in offsets {
            if let Some(partition) = self.assigned.get_mut(at) {
                partition.committed = Some(offset);
            }
            if let Some(known) = inner.partitions.get_mut(at) {
                known.committed = Some(offset);
            }
        }
    }

    /// Gives up partitions: waits for their running handlers, up to the deadline, and commits what is done. Later
    /// results are dropped.
    async fn release_partitions(&mut self, partitions: &[TopicPartition]) -> Result<(), Error> {
        // A stop may have been requested while partitions of a rebalance were given up.
        let since = self.exchange.lock().stop_requested_at.unwrap_or_else(Instant::now);
        let deadline = after(since, self.settings.drain);
        let result = if self.transaction.is_some() {
            self.end_transaction(deadline, partitions).await
        } else {
            self.drain(partitions, deadline).await
        };
        self.remove_partitions(partitions);
        result
    }

    async fn drain(&mut self, partitions: &[TopicPartition], deadline: Instant) -> Result<(), Error> {
        for at in partitions {
            if let Some(partition) = self.assigned.get_mut(at) {
                partition.flush(&self.exchange, Instant::now());
            }
        }
        let owned = |partition: &AssignedPartition| Some(partition.owned.as_ref()?.0);
        let assignments: Vec<_> =
            partitions.iter().filter_map(|at| self.assigned.get(at).and_then(owned)).collect();
        {
            let mut inner = self.exchange.lock();
            for assignment in &assignments {
                inner.core.drain(*assignment);
            }
        }
        let mut result = Ok(());
        loop {
            result = result.and(self.writer.write_out());
            let (quiet, due) = {
                let mut inner = self.exchange.lock();
                result = result.and(check_workers(&inner));
                inner.wake_condition = WakeCondition::AnyOutcome;
                let (mut quiet, now) = (true, Instant::now());
                for assignment in &assignments {
                    quiet &= inner.core.finish_gaps(*assignment, now);
                }
                // Gaps may wait behind another partition's retry in their lane, or for the end of the breaker's pause.
                let due = inner.core.wake(now).unwrap_or(deadline).min(deadline);
                self.exchange.wake_workers(&mut inner, now);
                let idle = Exchange::has_idle(&inner, now).then(|| now + WORKER_IDLE_MAX);
                (quiet, idle.map_or(due, |idle| due.min(idle)))
            };
            if quiet || result.is_err() {
                break;
            }
            tokio::select! {
                biased;
                advanced = self.writer.advance() => result = advanced,
                () = self.exchange.dispatcher_wake.notified() => {}
                () = tokio::time::sleep_until(due) => {
                    if due < deadline {
                        self.wake_idle_worker();
                        continue;
                    }
                    tracing::warn!("handlers did not finish within the drain deadline; their later results are not committed");
                    break;
                }
            }
        }
        let until = Instant::now() + LEAVE_WITHIN;
        if self.committing.is_some()
            && let Ok(done) = timeout_at(until, committed(&mut self.committing)).await
        {
            self.note_committed(done);
        }
        let offsets = match self.offsets(Some(partitions)) {
            Ok(offsets) => offsets,
            Err(error) => return result.and(Err(error)),
        };
        if !offsets.is_empty() {
            match timeout_at(until, self.consumer.commit_offsets(&offsets)).await {
                Ok(Ok(())) => self.set_committed(offsets.iter().map(|(at, offset)| (at, offset.offset))),
                Ok(Err(error)) => tracing::warn!(%error, "the last commit of revoked partitions failed"),
                Err(_) => tracing::warn!("the last commit of revoked partitions timed out"),
            }
        }
        result
    }

    /// Removes partitions that are not assigned any more.
    fn remove_partitions(&mut self, partitions: &[TopicPartition]) {
        let mut inner = self.exchange.lock();
        for at in partitions {
            inner.partitions.remove(at);
            if let Some((assignment, _)) = self.assigned.remove(at).and_then(|partition| partition.owned) {
                inner.core.remove(assignment);
            }
        }
    }
}

/// Returns `true` if a stop was requested, and an error if a worker has panicked.
fn is_stopping(exchange: &Exchange) -> Result<bool, Error> {
    let inner = exchange.lock();
    check_workers(&inner)?;
    Ok(inner.stop_requested_at.is_some())
}

/// Returns an error if a worker has panicked: the processor would wait for its records for ever.
fn check_workers(inner: &Inner) -> Result<(), Error> {
    match &inner.worker_panic {
        Some(text) => Err(Error::WorkerPanicked(text.clone())),
        None if inner.is_poisoned => {
            Err(Error::WorkerPanicked("it changed the state of the processor".into()))
        }
        None => Ok(()),
    }
}

/// The limits of each of several partitions; at least one batch.
fn limits(settings: &Builder, sizing: &WorkSizing, partitions: usize) -> InFlightLimits {
    let count = partitions.max(1);
    let Builder { records_in_flight, bytes_in_flight, .. } = *settings;
    let records_min = sizing.batch.unwrap_or(1).min(records_in_flight);
    InFlightLimits {
        records: (records_in_flight / count).max(records_min),
        bytes: (bytes_in_flight / count).max(1),
        queue: sizing.queue_limit(count),
    }
}

/// The offset to commit, if it differs from the committed one.
fn uncommitted(inner: &mut Inner, partition: &AssignedPartition) -> Option<Committable> {
    let (assignment, _) = partition.owned.as_ref()?;
    let committable = inner.core.progress(*assignment)?.committable;
    (Some(committable.offset) != partition.committed.or(partition.start)).then_some(committable)
}

/// Warns that a partition is read again from an offset.
fn warn_of_earlier_offset(at: &TopicPartition, offset: i64) {
    tracing::warn!(
        topic = %at.topic,
        partition = at.partition,
        offset,
        "the partition's offsets went back (it was truncated, or its topic created again); \
         its records are handled from there, and offsets finished before are not committed"
    );
}

/// Waits for the commit in progress; pending if there is none.
async fn committed(committing: &mut Option<(Offsets, PendingCommit)>) -> Result<(), ottla_client::Error> {
    match committing {
        Some((_, committing)) => committing.await,
        None => std::future::pending().await,
    }
}

/// Logs transient errors and returns the others.
fn log_if_transient(error: ottla_client::Error) -> Result<(), Error> {
    let passes = error.is_retriable() || matches!(error, ottla_client::Error::PollIntervalExceeded { .. });
    if passes {
        tracing::warn!(%error, "consumer");
        return Ok(());
    }
    Err(error.into())
}
