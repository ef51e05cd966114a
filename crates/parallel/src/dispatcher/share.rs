//! The polling thread in a share group: it takes delivered records, dispatches work, and acknowledges each record.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use ottla_client::{
    AcknowledgeType, AcknowledgementResult, Client, NotificationQueue, ShareBatch, ShareConsumer,
    TopicPartition, Uuid,
};
use tokio::time::{Instant, sleep_until};

use crate::admission::{AssignedPartition, Fetched, InFlightLimits, LaneSorter, WorkSizing};
use crate::core::work::{AssignmentId, PendingRecords};
use crate::deadline::after;
use crate::error::Error;
use crate::exchange::{Exchange, Inner, ShareMetrics, WakeCondition};
use crate::held::{Delivered, Done, HeldRecords, push_range};
use crate::settings::Builder;

use super::renewals::Renewals;
use super::writing::Writer;
use super::{LEAVE_WITHIN, POLL_MAX, WORKER_IDLE_MAX, check_workers, is_stopping, log_if_transient};

/// Time for which done records wait for others, so that a request acknowledges more than one.
const ACKNOWLEDGE_WITHIN: Duration = Duration::from_millis(5);

/// The lock duration before a broker has reported it: Kafka's minimum.
const LOCK_UNKNOWN: Duration = Duration::from_secs(15);

/// Work items per worker that are queued before the dispatcher stops polling: one round in reserve while a fetch lasts.
const QUEUED_PER_WORKER: usize = 2;

/// Owns the share consumer and the delivered records that are not acknowledged.
pub(crate) struct ShareDispatcher {
    settings: Builder,
    sizing: WorkSizing,
    exchange: Arc<Exchange>,
    consumer: ShareConsumer,
    writer: Writer,
    partitions: BTreeMap<TopicPartition, SharePartition>,
    /// The partition of each assignment of the core.
    names: BTreeMap<(u32, u32), TopicPartition>,
    refusals: NotificationQueue<AcknowledgementResult>,
    counts: ShareMetrics,
    /// `true` while the engine fetches for this dispatcher.
    polls: bool,
    /// `true` if acknowledgements are not sent.
    has_unsent: bool,
    renewals: Renewals,
    acknowledge_at: Option<Instant>,
    renew_at: Option<Instant>,
}

/// A partition of which records were delivered.
struct SharePartition {
    topic_id: Uuid,
    assignment: AssignmentId,
    work: AssignedPartition,
    held: HeldRecords,
}

impl ShareDispatcher {
    pub(super) fn new(settings: Builder, exchange: Arc<Exchange>, client: &Client) -> Result<Self, Error> {
        let consumer = client.share_consumer()?;
        consumer.fetch_for_polls_only();
        let woken = exchange.clone();
        consumer.on_filled(move || woken.dispatcher_wake.notify_one());
        Ok(Self {
            sizing: WorkSizing::new(&settings),
            writer: Writer::new(&settings, exchange.clone(), client.producer()),
            settings,
            exchange,
            refusals: consumer.refused_acknowledgements(),
            consumer,
            partitions: BTreeMap::new(),
            names: BTreeMap::new(),
            counts: ShareMetrics::default(),
            polls: false,
            has_unsent: false,
            renewals: Renewals::default(),
            acknowledge_at: None,
            renew_at: None,
        })
    }

    /// Runs until it is stopped or fails.
    pub(super) async fn run(mut self) -> Result<(), Error> {
        let result = self.consume().await;
        if let Err(error) = &result {
            // The caller that joins the processor gets the error.
            tracing::info!(%error, "the processor stops");
        }
        let drained = self.drain().await;
        self.exchange.close();
        let left = self.consumer.close(LEAVE_WITHIN).await;
        result.and(drained).and(left.map_err(Error::from))
    }

    async fn consume(&mut self) -> Result<(), Error> {
        let topics: Vec<&str> = self.settings.topics.iter().map(String::as_str).collect();
        self.consumer.subscribe(&topics).await?;
        // One poll that lasts: its records are acknowledged one by one.
        self.consumer.begin_poll()?;
        loop {
            self.writer.write_out()?;
            if is_stopping(&self.exchange)? {
                return Ok(());
            }
            let now = Instant::now();
            self.read_refusals();
            // A fetch carries the acknowledgements, and can bring as many records as they make room for in the group.
            let fetches = self.wants_records(now);
            self.acknowledge_done(now, fetches);
            self.poll(now)?;
            self.renew(now);
            let next = self.dispatch(now);
            self.send();
            tokio::select! {
                biased;
                advanced = self.writer.advance() => advanced?,
                () = self.exchange.dispatcher_wake.notified() => {}
                () = sleep_until(next) => self.exchange.wake_one(&mut self.exchange.lock(), Instant::now()),
            }
        }
    }

    /// Takes the records that have arrived. Lets the engine fetch while the workers are short of records.
    fn poll(&mut self, now: Instant) -> Result<(), Error> {
        loop {
            self.polls = self.wants_records(now);
            // Those of any leader: their locks are renewed from now on. Records in the consumer's queue would lose theirs.
            let taken = if self.polls { self.consumer.take_ready() } else { self.consumer.take_arrived() };
            self.has_unsent &= !self.polls;
            match taken {
                Ok(Some(batch)) => self.receive(&batch, now),
                Ok(None) => break,
                Err(error) => {
                    log_if_transient(error)?;
                    break;
                }
            }
        }
        if !self.polls {
            self.consumer.end_poll();
        }
        Ok(())
    }

    /// `true` if the workers are short of records, and the circuit breaker lets records through. After the pause, a record is fetched
    /// for the trial only if none waits for a retry.
    fn wants_records(&self, now: Instant) -> bool {
        let inner = self.exchange.lock();
        let unstarted = self.unstarted(&inner);
        let breaker = inner.core.breaker();
        match breaker.open_until() {
            None => breaker.is_closed() && unstarted <= self.queued_min(&inner),
            Some(until) => until <= now && unstarted == 0 && !inner.core.has_delayed(),
        }
    }

    /// The number of records that no worker has taken.
    fn unstarted(&self, inner: &Inner) -> usize {
        let waiting: usize = self.partitions.values().map(|partition| partition.work.unstarted()).sum();
        waiting + inner.core.lanes().queued_records()
    }

    /// The number of queued records at which more are fetched. It is at most one fetch, so that other members get their part.
    fn queued_min(&self, inner: &Inner) -> usize {
        let each = self.sizing.batch.unwrap_or_else(|| self.exchange.piece(inner));
        let records = each.saturating_mul(self.settings.workers_count() * QUEUED_PER_WORKER);
        records.min(self.settings.config.max_poll_records)
    }

    fn receive(&mut self, batch: &ShareBatch, now: Instant) {
        let at = batch.at();
        let is_other_topic = |known: &SharePartition| known.topic_id != batch.topic_id();
        if self.partitions.get(at).is_some_and(is_other_topic) {
            self.forget(at);
        }
        if !self.partitions.contains_key(at) {
            self.add(at, batch.topic_id(), now);
        }
        let Some(partition) = self.partitions.get_mut(at) else { return };
        let mut delivered = Delivered::default();
        for (offsets, _) in batch.ranges() {
            partition.held.deliver(offsets, now, &mut delivered);
            // One range at a time: those of neighbours are joined, and records with different delivery counts are no batch.
            for records in delivered.new.drain(..).filter_map(|offsets| batch.records_at(offsets)) {
                partition.work.receive(Fetched::Records(records));
            }
        }
        if delivered.has_renewed {
            self.renewals.succeeded();
        }
        for (offset, outcome) in delivered.done {
            self.acknowledge(at, offset..=offset, outcome);
        }
        let renew_at = now + self.renewal_age();
        self.renew_at = Some(self.renew_at.map_or(renew_at, |at| at.min(renew_at)));
    }

    fn add(&mut self, at: &TopicPartition, topic_id: Uuid, now: Instant) {
        let mut inner = self.exchange.lock();
        let owned = inner.core.assign(0, now);
        inner.partitions.entry(at.clone()).or_default().assignment = Some(owned.0);
        drop(inner);
        let (assignment, held) = (owned.0, HeldRecords::default());
        self.names.insert((assignment.slot, assignment.generation), at.clone());
        let mut work = AssignedPartition::new(at.clone());
        work.owned = Some(owned);
        self.partitions.insert(at.clone(), SharePartition { topic_id, assignment, work, held });
    }

    /// Forgets a partition whose topic was created again: the records in progress are gone.
    fn forget(&mut self, at: &TopicPartition) {
        if let Some(SharePartition { assignment, .. }) = self.partitions.remove(at) {
            self.exchange.lock().core.remove(assignment);
            self.names.remove(&(assignment.slot, assignment.generation));
        }
    }

    /// Acknowledges the records that are done, once the first has waited long enough, or `all` at once.
    fn acknowledge_done(&mut self, now: Instant, all: bool) {
        let done: Vec<PendingRecords> = {
            let mut inner = self.exchange.lock();
            let Some(share) = inner.share.as_mut().filter(|share| !share.done.is_empty()) else { return };
            let due = *self.acknowledge_at.get_or_insert(now + ACKNOWLEDGE_WITHIN);
            if due > now && !all {
                return;
            }
            std::mem::take(&mut share.done)
        };
        self.acknowledge_at = None;
        let mut ranges: BTreeMap<(u32, u32, bool), Vec<RangeInclusive<i64>>> = BTreeMap::new();
        for done in &done {
            let AssignmentId { slot, generation } = done.assignment;
            let ranges = ranges.entry((slot, generation, done.rejected)).or_default();
            for range in done.ranges() {
                push_range(ranges, *range.start(), *range.end());
            }
        }
        for ((slot, generation, rejected), ranges) in ranges {
            let Some(at) = self.names.get(&(slot, generation)).cloned() else {
                self.counts.lost += ranges.into_iter().map(len).sum::<u64>();
                continue;
            };
            let outcome = if rejected { AcknowledgeType::Reject } else { AcknowledgeType::Accept };
            for offsets in ranges {
                self.acknowledge(&at, offsets, outcome);
            }
        }
    }

    fn acknowledge(&mut self, at: &TopicPartition, offsets: RangeInclusive<i64>, outcome: AcknowledgeType) {
        let Some(partition) = self.partitions.get_mut(at) else { return };
        let mut decided = Done::default();
        partition.held.done(offsets, outcome, &mut decided);
        self.counts.lost += decided.lost;
        for offsets in decided.acknowledge {
            let records = len(offsets.clone());
            let refused = acknowledge_offsets(&mut self.consumer, at, offsets, outcome);
            self.counts.lost += refused.iter().cloned().map(len).sum::<u64>();
            let acknowledged = records - refused.into_iter().map(len).sum::<u64>();
            self.has_unsent |= acknowledged > 0;
            match outcome {
                AcknowledgeType::Accept => self.counts.accepted += acknowledged,
                AcknowledgeType::Release => self.counts.released += acknowledged,
                AcknowledgeType::Reject => self.counts.rejected += acknowledged,
                AcknowledgeType::Renew => {}
            }
        }
    }

    /// Shows the counts to readers of the metrics.
    fn publish_counts(&self, inner: &mut Inner) {
        if let Some(share) = &mut inner.share {
            share.counts = self.counts;
        }
    }

    /// The age at which a lock is renewed.
    fn renewal_age(&self) -> Duration {
        self.consumer.acquisition_lock_timeout().unwrap_or(LOCK_UNKNOWN) / 2
    }

    /// Renews the locks that have lasted for half of their time.
    fn renew(&mut self, now: Instant) {
        if !self.renewals.are_on(now) || self.renew_at.is_none_or(|at| at > now) {
            return;
        }
        let age = self.renewal_age();
        self.renew_at = None;
        for (at, partition) in &mut self.partitions {
            for offsets in partition.held.renew(now, age) {
                self.counts.renewed += len(offsets.clone());
                self.has_unsent = true;
                for refused in acknowledge_offsets(&mut self.consumer, at, offsets, AcknowledgeType::Renew) {
                    self.counts.renewed -= len(refused.clone());
                    partition.held.refuse(refused);
                }
            }
            self.renew_at = self.renew_at.into_iter().chain(partition.held.renew_at(age)).min();
        }
    }

    /// Reads which acknowledgements were refused.
    fn read_refusals(&mut self) {
        while let Some(AcknowledgementResult { at, ranges, result, .. }) = self.refusals.try_next() {
            let Err(error) = result else { continue };
            tracing::warn!(%at, %error, "acknowledgements refused; the group delivers the records again");
            self.counts.lost += ranges.iter().cloned().map(len).sum::<u64>();
            let Some(partition) = self.partitions.get_mut(&at) else { continue };
            if ranges.iter().any(|range| partition.held.is_renewing(range)) {
                // Without renewals, a handler that is slower than the lock loses its record.
                let lock = self.consumer.acquisition_lock_timeout().unwrap_or(LOCK_UNKNOWN);
                self.renewals.refused(&error, Instant::now(), lock);
            }
            for range in ranges {
                partition.held.refuse(range);
            }
        }
    }

    fn send(&mut self) {
        if std::mem::take(&mut self.has_unsent) {
            self.consumer.commit_unobserved();
        }
    }

    /// Moves records into flight, or releases them while the circuit breaker is open. Returns the time of the next round.
    fn dispatch(&mut self, now: Instant) -> Instant {
        let mut next = now + POLL_MAX;
        let open_until = {
            let mut inner = self.exchange.lock();
            inner.begin_round();
            let due = inner.core.wake(now);
            self.exchange.wake_workers(&mut inner, now);
            next = due.map_or(next, |due| next.min(due));
            inner.core.breaker().open_until()
        };
        if open_until.is_some_and(|until| until > now) {
            self.release_unstarted(now);
        }
        let limits = self.limits();
        // Records of a share group have no order.
        let (mut full, mut no_lanes) = (false, LaneSorter::default());
        for partition in self.partitions.values_mut().map(|partition| &mut partition.work) {
            if partition.flush_at(self.settings.batch_wait).is_some_and(|at| at <= now) {
                partition.flush(&self.exchange, now - self.settings.batch_wait);
            }
            full |= !partition.admit(&self.exchange, &self.sizing, &mut no_lanes, limits, now);
            partition.flush_to_idle(&self.exchange);
            next = partition.flush_at(self.settings.batch_wait).map_or(next, |at| next.min(at));
        }
        let wants_records = self.wants_records(now);
        let mut inner = self.exchange.lock();
        self.publish_counts(&mut inner);
        inner.has_open_batches = self.partitions.values().any(|partition| partition.work.has_open_batches());
        let queued_min = self.queued_min(&inner);
        inner.wake_condition = match (inner.core.breaker().is_closed(), full) {
            (false, _) => WakeCondition::AnyOutcome,
            (true, true) => WakeCondition::Room {
                queued: limits.queue / 2,
                records: limits.records / 2,
                of_partition: self.sizing.counts_partitions(),
            },
            (true, false) => WakeCondition::FewQueued { records: queued_min },
        };
        // Work that ended before the watch was set must not be missed.
        let missed = !inner.produced.is_empty()
            || !inner.given_up.is_empty()
            || (inner.has_open_batches && Exchange::free_workers(&inner) > 0)
            || (wants_records && !self.polls)
            || (full && inner.has_room_again())
            || (full && inner.core.lanes().startable() == 0 && self.has_idle_partition(&inner));
        if missed {
            return now;
        }
        if Exchange::has_idle(&inner, now) {
            next = next.min(now + WORKER_IDLE_MAX);
        }
        if inner.share.as_ref().is_some_and(|share| !share.done.is_empty()) {
            next = next.min(self.acknowledge_at.unwrap_or(now));
        }
        let renew_at = self.renew_at.filter(|_| self.renewals.are_on(now));
        let trial_at = open_until.filter(|until| *until > now);
        renew_at.into_iter().chain(trial_at).fold(next, Instant::min)
    }

    fn has_idle_partition(&self, inner: &Inner) -> bool {
        let is_idle = |partition: &SharePartition| {
            partition.work.unstarted() > 0 && inner.core.in_flight(partition.assignment).records == 0
        };
        self.partitions.values().any(is_idle)
    }

    /// The limits of each partition; at least one batch.
    fn limits(&self) -> InFlightLimits {
        super::limits(&self.settings, &self.sizing, self.partitions.len())
    }

    /// Releases the records that have not been started, for other members. Records that wait for a retry stay.
    fn release_unstarted(&mut self, now: Instant) {
        let mut released = Vec::new();
        for (at, partition) in &mut self.partitions {
            partition.work.flush(&self.exchange, now);
            let mut offsets = partition.work.take_waiting();
            let withdrawn = self.exchange.lock().core.withdraw(partition.assignment);
            offsets.extend(withdrawn.iter().flat_map(|work| work.offsets.each()));
            let mut ranges = Vec::new();
            for offset in offsets {
                push_range(&mut ranges, offset, offset);
            }
            released.extend(ranges.into_iter().map(|offsets| (at.clone(), offsets)));
        }
        for (at, offsets) in released {
            self.acknowledge(&at, offsets, AcknowledgeType::Release);
        }
    }

    /// Starts no more records, waits for running handlers up to the deadline, and acknowledges all records: those that were not
    /// handled are released.
    async fn drain(&mut self) -> Result<(), Error> {
        let deadline = after(Instant::now(), self.settings.drain);
        self.consumer.end_poll();
        {
            let mut inner = self.exchange.lock();
            for partition in self.partitions.values() {
                inner.core.stop(partition.assignment);
            }
        }
        let mut result = Ok(());
        loop {
            result = result.and(self.writer.write_out()).and(check_workers(&self.exchange.lock()));
            let now = Instant::now();
            self.read_refusals();
            self.take_late(now);
            self.acknowledge_done(now, true);
            self.renew(now);
            self.send();
            if result.is_err() || self.is_quiet() {
                break;
            }
            if now >= deadline {
                tracing::warn!(
                    "handlers did not finish within the drain deadline; their records are released"
                );
                break;
            }
            let next =
                self.renew_at.filter(|_| self.renewals.are_on(now)).map_or(deadline, |at| at.min(deadline));
            tokio::select! {
                biased;
                advanced = self.writer.advance() => result = advanced,
                () = self.exchange.dispatcher_wake.notified() => {}
                () = sleep_until(next) => {}
            }
        }
        self.release_all();
        self.send();
        self.publish_counts(&mut self.exchange.lock());
        result
    }

    /// Takes renewed records, and those that arrive late. They may be behind errors: a group may have refused the member.
    fn take_late(&mut self, now: Instant) {
        loop {
            match self.consumer.take_arrived() {
                Ok(Some(batch)) => self.receive(&batch, now),
                Ok(None) => break,
                Err(error) => tracing::warn!(%error, "consumer, while the processor stops"),
            }
        }
    }

    /// `true` if no handler runs, no write is pending and no record waits for its renewal. Otherwise the next outcome wakes the
    /// dispatcher.
    fn is_quiet(&self) -> bool {
        let mut inner = self.exchange.lock();
        self.publish_counts(&mut inner);
        inner.wake_condition = WakeCondition::AnyOutcome;
        let is_done = inner.share.as_ref().is_none_or(|share| share.done.is_empty());
        is_done
            && self
                .partitions
                .values()
                .all(|partition| inner.core.is_idle(partition.assignment) && !partition.held.has_waiting())
    }

    fn release_all(&mut self) {
        for (at, partition) in &mut self.partitions {
            for offsets in partition.held.take_locked() {
                self.has_unsent = true;
                self.counts.released += len(offsets.clone());
                // A record that cannot be acknowledged is released by the end of the session.
                let refused = acknowledge_offsets(&mut self.consumer, at, offsets, AcknowledgeType::Release);
                self.counts.released -= refused.into_iter().map(len).sum::<u64>();
            }
        }
    }
}

/// Acknowledges records. Returns those that the consumer refuses: it does not hold them any more.
fn acknowledge_offsets(
    consumer: &mut ShareConsumer,
    at: &TopicPartition,
    offsets: RangeInclusive<i64>,
    outcome: AcknowledgeType,
) -> Vec<RangeInclusive<i64>> {
    let mut refused = Vec::new();
    if consumer.acknowledge_offsets(at, offsets.clone(), outcome).is_ok() {
        return refused;
    }
    for offset in offsets {
        if let Err(error) = consumer.acknowledge_offset(at, offset, outcome) {
            tracing::warn!(%at, offset, %error, "record not acknowledged");
            push_range(&mut refused, offset, offset);
        }
    }
    refused
}

/// The number of offsets.
const fn len(offsets: RangeInclusive<i64>) -> u64 {
    (*offsets.end() - *offsets.start() + 1) as u64
}
