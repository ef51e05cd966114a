//! The thread that polls: fetches, hands out, writes what handlers produced, commits.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ottla_client::{
    Client, Committing, Consumer, Event, OffsetAndMetadata, Polled, Producer, TopicPartition,
};
use tokio::time::{Instant, timeout_at};

use crate::admission::{Cutting, Fetched, Part, Share};
use crate::core::tracker::Committable;
use crate::error::Error;
use crate::exchange::{Exchange, Inner, Watch};
use crate::settings::Builder;
use crate::transaction::Transaction;
use crate::writing::Writing;

/// How long a poll waits when there is nothing else to wait for.
const POLL_MAX: Duration = Duration::from_secs(1);

/// If workers are idle for so long although there is work, one more is woken.
const NUDGE: Duration = Duration::from_millis(2);

/// How long the last commit of a partition, or leaving the group, may take.
const LEAVE_WITHIN: Duration = Duration::from_secs(10);

pub(crate) type Offsets = Vec<(TopicPartition, OffsetAndMetadata)>;

/// Owns the consumer, and what is fetched and not under way yet.
pub(crate) struct Dispatcher {
    pub(crate) settings: Builder,
    pub(crate) cutting: Cutting,
    pub(crate) exchange: Arc<Exchange>,
    pub(crate) consumer: Consumer,
    pub(crate) producer: Producer,
    pub(crate) parts: BTreeMap<TopicPartition, Part>,
    pub(crate) writing: Writing,
    pub(crate) transaction: Option<Transaction>,
    committing: Option<(Offsets, Committing)>,
    commit_at: Instant,
}

impl Dispatcher {
    pub(crate) fn new(settings: Builder, exchange: Arc<Exchange>, client: &Client) -> Self {
        let (consumer, producer) = (Consumer::of(client), Producer::of(client));
        let transaction = settings.exactly_once.is_some().then(Transaction::default);
        let commit_at = Instant::now() + settings.config.auto_commit_interval;
        let cutting = Cutting::new(&settings);
        let (parts, committing) = (BTreeMap::new(), None);
        let writing = Writing::default();
        Self {
            settings,
            cutting,
            exchange,
            consumer,
            producer,
            parts,
            writing,
            transaction,
            committing,
            commit_at,
        }
    }

    /// Until it is told to stop, or cannot go on.
    pub(crate) async fn run(mut self) -> Result<(), Error> {
        let result = self.consume().await;
        if let Err(error) = &result {
            // Whoever joins the processor gets the error.
            tracing::info!(%error, "the processor stops");
        }
        let all: Vec<_> = self.parts.keys().cloned().collect();
        // A transaction in which a record was given up cannot be committed any more.
        let drained = match result {
            Err(_) if self.transaction.is_some() => self.abort_transaction().await,
            _ => self.give_back(&all).await,
        };
        self.exchange.close();
        let left = self.consumer.close(LEAVE_WITHIN).await;
        result.and(drained).and(left.map_err(Error::from))
    }

    async fn consume(&mut self) -> Result<(), Error> {
        if self.transaction.is_some() {
            self.init_transactions().await?;
        }
        let topics: Vec<&str> = self.settings.topics.iter().map(String::as_str).collect();
        self.consumer.subscribe(&topics).await?;
        loop {
            self.write_out().await?;
            if self.exchange.lock().stopping {
                return Ok(());
            }
            if self.transaction.is_some() {
                self.advance_transaction().await?;
            }
            let wait = self.hand_out();
            self.begin_commit();
            let polled = tokio::select! {
                biased;
                done = committed(&mut self.committing) => {
                    self.note_committed(done);
                    continue;
                }
                Some(written) = self.writing.next() => {
                    self.settle(written)?;
                    continue;
                }
                () = self.exchange.news.notified() => continue,
                polled = self.consumer.poll(wait) => polled,
            };
            match polled {
                Ok(Some(Polled::Records(batch))) => self.receive(Fetched::Records(batch)),
                Ok(Some(Polled::Corrupt(corrupt))) => self.receive(Fetched::Corrupt(corrupt)),
                Ok(Some(Polled::Event(event))) => self.on_event(event).await?,
                Ok(Some(_) | None) => self.nudge(),
                Err(error) => pass(error)?,
            }
        }
    }

    fn receive(&mut self, fetched: Fetched) {
        let at = fetched.at().clone();
        let part = self.parts.entry(at.clone()).or_insert_with(|| Part::new(at));
        part.waiting.push_back(fetched);
    }

    async fn on_event(&mut self, event: Event) -> Result<(), Error> {
        tracing::info!(?event, "assignment");
        match event {
            Event::Assigned(partitions) => {
                for at in partitions {
                    self.exchange.lock().partitions.entry(at.clone()).or_default();
                    // Its first records may have been quicker than the news.
                    self.parts.entry(at.clone()).or_insert_with(|| Part::new(at));
                }
            }
            Event::Revoked(partitions) => self.give_back(&partitions).await?,
            Event::Lost(partitions) => {
                if self.transaction.is_some() {
                    self.abort_transaction().await?;
                }
                self.forget(&partitions);
            }
            // Nothing is to be done at the end of a partition, and future events concern others.
            _ => {}
        }
        Ok(())
    }

    /// Puts under way what there is room for, pauses what is full, and says how long nothing else is to be done.
    fn hand_out(&mut self) -> Duration {
        let now = Instant::now();
        let mut next = now + POLL_MAX;
        if let Some(due) = {
            let mut inner = self.exchange.lock();
            let due = inner.core.wake(now);
            self.exchange.wake_workers(&mut inner);
            due
        } {
            next = next.min(due);
        }
        let share = self.share();
        let takes = self.transaction.as_ref().is_none_or(Transaction::takes_records);
        let mut full = false;
        for part in self.parts.values_mut() {
            let flush = !takes || part.flush_at(self.settings.batch_wait).is_some_and(|at| at <= now);
            if flush {
                let since = if takes { now - self.settings.batch_wait } else { now };
                part.flush(&self.exchange, since);
            }
            let admitted = if takes {
                part.admit(&self.exchange, &self.cutting, share, now)
            } else {
                part.waiting.is_empty()
            };
            full |= !admitted;
            if admitted == part.paused {
                part.paused = !admitted;
                let at = std::slice::from_ref(&part.at);
                if part.paused {
                    self.consumer.pause(at);
                } else {
                    self.consumer.resume(at);
                }
                self.exchange.lock().partitions.entry(part.at.clone()).or_default().paused = part.paused;
            }
            if let Some(at) = part.flush_at(self.settings.batch_wait) {
                next = next.min(at);
            }
        }
        let mut inner = self.exchange.lock();
        let room = Watch::Room { queued: self.cutting.queue / 2, records: share.records / 2 };
        let closing = self.transaction.as_ref().is_some_and(|transaction| !transaction.takes_records());
        inner.watch = match (closing, full) {
            (true, _) => Watch::Everything,
            (false, true) => room,
            (false, false) => Watch::Nothing,
        };
        // What ended before the watch was set is seen now.
        let missed = !inner.produced.is_empty()
            || !inner.given_up.is_empty()
            || (full && takes && inner.core.lanes().queued() == 0 && self.parts_idle(&inner));
        if missed {
            return Duration::ZERO;
        }
        if Exchange::has_idle(&inner) {
            next = next.min(now + NUDGE);
        }
        let commits = self.settings.tracked && self.transaction.is_none() && self.commit_at < next;
        if commits && self.parts.values().any(|part| uncommitted(&mut inner, part).is_some()) {
            next = next.min(self.commit_at);
        }
        drop(inner);
        if let Some(transaction) = &self.transaction {
            next = next.min(transaction.next(now, self.settings.transaction));
        }
        next.saturating_duration_since(now)
    }

    fn parts_idle(&self, inner: &Inner) -> bool {
        let idle = |part: &Part| part.owned.as_ref().is_none_or(|(of, _)| inner.core.is_through(*of));
        self.parts.values().any(|part| !part.waiting.is_empty() && idle(part))
    }

    /// Workers are slower than was to be expected if one is idle although there is work.
    fn nudge(&self) {
        self.exchange.wake_one(&mut self.exchange.lock());
    }

    /// What each partition may have under way; a batch at least.
    fn share(&self) -> Share {
        let parts = self.parts.len().max(1);
        let Builder { records_in_flight, bytes_in_flight, .. } = self.settings;
        let records_min = self.cutting.batch.unwrap_or(1).min(records_in_flight);
        Share {
            records: (records_in_flight / parts).max(records_min),
            bytes: (bytes_in_flight / parts).max(1),
        }
    }

    /// Where commits are to go that are not there yet, of these partitions or of all.
    pub(crate) fn offsets(&self, of: Option<&[TopicPartition]>) -> Offsets {
        let mut inner = self.exchange.lock();
        let wanted = |at: &TopicPartition| of.is_none_or(|of| of.contains(at));
        let parts = self.parts.values().filter(|part| self.settings.tracked && wanted(&part.at));
        let mut offsets = Vec::new();
        for part in parts {
            if let Some(Committable { offset, leader_epoch }) = uncommitted(&mut inner, part) {
                let offset = OffsetAndMetadata { offset, leader_epoch, metadata: String::new() };
                offsets.push((part.at.clone(), offset));
            }
        }
        offsets
    }

    fn begin_commit(&mut self) {
        if self.transaction.is_some() || self.committing.is_some() || Instant::now() < self.commit_at {
            return;
        }
        let offsets = self.offsets(None);
        if !offsets.is_empty() {
            self.commit_at = Instant::now() + self.settings.config.auto_commit_interval;
            self.committing = Some((offsets.clone(), self.consumer.begin_commit(Some(&offsets))));
        }
    }

    fn note_committed(&mut self, done: Result<(), ottla_client::Error>) {
        let Some((offsets, _)) = self.committing.take() else { return };
        match done {
            Ok(()) => self.set_committed(offsets.iter().map(|(at, offset)| (at, offset.offset))),
            // The next one has the same offsets or later ones; if the partitions are gone, they are not ours to commit.
            Err(error) => tracing::warn!(%error, "commit"),
        }
    }

    pub(crate) fn set_committed<'a>(&mut self, offsets: impl Iterator<Item = (&'a TopicPartition, i64)>) {
        let mut inner = self.exchange.lock();
        for (at, offset) in offsets {
            if let Some(part) = self.parts.get_mut(at) {
                part.committed = Some(offset);
            }
            if let Some(known) = inner.partitions.get_mut(at) {
                known.committed = Some(offset);
            }
        }
    }

    /// Lets these partitions go: what is being handled of them has its time, what is done is committed, and what comes
    /// later is dropped.
    async fn give_back(&mut self, partitions: &[TopicPartition]) -> Result<(), Error> {
        let deadline = Instant::now() + self.settings.drain;
        let result = if self.transaction.is_some() {
            self.end_transaction(deadline).await
        } else {
            self.drain(partitions, deadline).await
        };
        self.forget(partitions);
        result
    }

    async fn drain(&mut self, partitions: &[TopicPartition], deadline: Instant) -> Result<(), Error> {
        let owned = |part: &Part| Some(part.owned.as_ref()?.0);
        let of: Vec<_> = partitions.iter().filter_map(|at| self.parts.get(at).and_then(owned)).collect();
        {
            let mut inner = self.exchange.lock();
            for of in &of {
                inner.core.stop(*of);
            }
        }
        let mut result = Ok(());
        loop {
            result = result.and(self.write_out().await);
            let quiet = {
                let mut inner = self.exchange.lock();
                inner.watch = Watch::Everything;
                of.iter().all(|of| inner.core.is_quiet(*of))
            };
            if quiet || result.is_err() {
                break;
            }
            tokio::select! {
                biased;
                Some(written) = self.writing.next() => result = self.settle(written),
                () = self.exchange.news.notified() => {}
                () = tokio::time::sleep_until(deadline) => {
                    tracing::warn!("handlers did not end within the deadline: what they do from now on is not theirs to commit");
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
        let offsets = self.offsets(Some(partitions));
        if !offsets.is_empty() {
            match timeout_at(until, self.consumer.commit_offsets(&offsets)).await {
                Ok(Ok(())) => self.set_committed(offsets.iter().map(|(at, offset)| (at, offset.offset))),
                Ok(Err(error)) => tracing::warn!(%error, "the last commit of partitions that are given back"),
                Err(_) => tracing::warn!("the last commit of partitions that are given back got no answer"),
            }
        }
        result
    }

    /// These are not ours any more.
    fn forget(&mut self, partitions: &[TopicPartition]) {
        let mut inner = self.exchange.lock();
        for at in partitions {
            inner.partitions.remove(at);
            if let Some((of, _)) = self.parts.remove(at).and_then(|part| part.owned) {
                inner.core.remove(of);
            }
        }
    }
}

/// Where a partition's commit is to go, if it is not there.
fn uncommitted(inner: &mut Inner, part: &Part) -> Option<Committable> {
    let (of, _) = part.owned.as_ref()?;
    let committable = inner.core.standing(*of)?.committable;
    (Some(committable.offset) != part.committed.or(part.start)).then_some(committable)
}

/// Waits for the commit that is under way, or forever.
async fn committed(committing: &mut Option<(Offsets, Committing)>) -> Result<(), ottla_client::Error> {
    match committing {
        Some((_, committing)) => committing.await,
        None => std::future::pending().await,
    }
}

/// What passes by itself is only noted.
fn pass(error: ottla_client::Error) -> Result<(), Error> {
    let passes = error.is_retriable() || matches!(error, ottla_client::Error::PollIntervalExceeded { .. });
    if passes {
        tracing::warn!(%error, "consumer");
        return Ok(());
    }
    Err(error.into())
}
