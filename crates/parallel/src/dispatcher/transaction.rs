//! Exactly-once mode: each transaction commits the outputs of handlers together with the offsets of their input
//! records.

use std::collections::BTreeMap;
use std::time::Duration;

use ottla_client::{OffsetAndMetadata, StartAt, TopicPartition, TransactionError};
use tokio::time::{Instant, sleep_until};

use crate::deadline::after;
use crate::error::Error;
use crate::exchange::{Exchange, GivenUpCounts, WakeCondition};

use super::{Dispatcher, LEAVE_WITHIN, WORKER_IDLE_MAX, check_workers};

/// Time limit of a call to a coordinator.
const CALL_WITHIN: Duration = Duration::from_secs(30);

/// Number of consecutive aborted transactions after which the processor stops.
const ABORTS_MAX: u32 = 5;

/// The current transaction of the processor.
#[derive(Debug, Default)]
pub(crate) struct Transaction {
    state: State,
    aborted_in_a_row: u32,
}

#[derive(Clone, Copy, Debug, Default)]
enum State {
    /// No transaction is open.
    #[default]
    Idle,
    /// The transaction accepts records, since this time.
    Open(Instant),
    /// The transaction accepts no more records and ends when its records are done. It has been open since this time.
    Closing(Instant),
}

impl Transaction {
    pub(crate) const fn takes_records(&self) -> bool {
        matches!(self.state, State::Open(_))
    }

    /// `true` between begin and commit or abort.
    pub(crate) const fn is_open(&self) -> bool {
        !matches!(self.state, State::Idle)
    }

    /// The next time at which the state may change.
    pub(crate) fn next(&self, now: Instant, limits: TransactionLimits) -> Instant {
        match self.state {
            State::Idle => now + Duration::from_secs(1),
            State::Open(since) => after(since, limits.interval),
            State::Closing(since) => after(since, limits.age_max),
        }
    }
}

/// The time limits of a transaction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TransactionLimits {
    /// The time in which it accepts records.
    interval: Duration,
    /// The age at which it is aborted. The coordinator aborts it at `transaction.timeout.ms`, and fences the producer.
    age_max: Duration,
}

impl TransactionLimits {
    pub(crate) fn new(interval: Duration, timeout: Duration) -> Self {
        let third = timeout / 3;
        Self { interval: interval.min(third), age_max: third * 2 }
    }
}

impl Dispatcher {
    /// Returns `false` if a stop was requested first.
    pub(crate) async fn init_transactions(&mut self) -> Result<bool, Error> {
        let exchange = self.exchange.clone();
        let init = self.retry_call(async |it| it.writer.producer().init_transactions(CALL_WITHIN).await);
        tokio::select! {
            biased;
            _ = exchange.stop_requested() => Ok(false),
            done = init => done.map(|()| true),
        }
    }

    /// Begins a transaction when records or offsets are waiting, closes it after its interval, and commits it when its records
    /// are done.
    pub(crate) async fn advance_transaction(&mut self) -> Result<(), Error> {
        let limits = self.transaction_limits();
        let Some(transaction) = &mut self.transaction else { return Ok(()) };
        match transaction.state {
            State::Idle => self.begin_transaction_if_needed()?,
            State::Open(since) if since.elapsed() >= limits.interval => {
                transaction.state = State::Closing(since);
            }
            State::Open(_) => {}
            State::Closing(since) => {
                if self.is_finished() {
                    self.commit_transaction(&[]).await?;
                    // At once: if all partitions are paused, no poll has records.
                    self.begin_transaction_if_needed()?;
                } else if since.elapsed() >= limits.age_max {
                    tracing::warn!(
                        age_max = ?limits.age_max,
                        "the transaction is aborted before transaction.timeout.ms; its records are handled again"
                    );
                    self.abort_transaction(&[]).await?;
                }
            }
        }
        Ok(())
    }

    pub(crate) fn transaction_limits(&self) -> TransactionLimits {
        TransactionLimits::new(self.settings.transaction, self.settings.config.transaction_timeout)
    }

    fn begin_transaction_if_needed(&mut self) -> Result<(), Error> {
        if self.transaction.as_ref().is_none_or(Transaction::is_open) {
            return Ok(());
        }
        let is_waiting = self.assigned.values().any(|partition| !partition.waiting.is_empty());
        if is_waiting || self.has_skipped() {
            self.writer.producer().begin_transaction()?;
            if let Some(transaction) = &mut self.transaction {
                transaction.state = State::Open(Instant::now());
            }
        }
        Ok(())
    }

    /// `true` if there are offsets to commit although no record is to be handled: those behind the last records of partitions, which have
    /// no records. They are looked up at the interval of commits.
    fn has_skipped(&mut self) -> bool {
        let now = Instant::now();
        if now < self.pass_at {
            return false;
        }
        self.pass_at = after(now, self.settings.commits_every());
        self.pass_skipped();
        self.finished_uncommitted(&mut self.exchange.lock()).is_some()
    }

    fn is_finished(&self) -> bool {
        let inner = self.exchange.lock();
        let through = inner.produced.is_empty() && inner.given_up.is_empty() && !self.writer.has_unwritten();
        let mut owned = self.assigned.values().filter_map(|partition| Some(partition.owned.as_ref()?.0));
        through && owned.all(|assignment| inner.core.is_finished(assignment))
    }

    /// Ends the transaction before partitions are released. Commits it if all its records are done before the
    /// deadline, and before the transaction is too old.
    pub(crate) async fn end_transaction(
        &mut self,
        deadline: Instant,
        released: &[TopicPartition],
    ) -> Result<(), Error> {
        let limits = self.transaction_limits();
        let Some(transaction) = &mut self.transaction else { return Ok(()) };
        let since = match transaction.state {
            State::Idle => return Ok(()),
            State::Open(since) | State::Closing(since) => since,
        };
        transaction.state = State::Closing(since);
        let deadline = deadline.min(after(since, limits.age_max));
        let mut result = Ok(());
        loop {
            result = result.and(self.writer.write_out()).and(check_workers(&self.exchange.lock()));
            for partition in self.assigned.values_mut() {
                partition.flush(&self.exchange, Instant::now());
            }
            let through = self.is_finished();
            if through || result.is_err() {
                break;
            }
            let due = {
                let mut inner = self.exchange.lock();
                inner.wake_condition = WakeCondition::AnyOutcome;
                let now = Instant::now();
                let due = inner.core.wake(now).unwrap_or(deadline).min(deadline);
                self.exchange.wake_workers(&mut inner, now);
                let idle = Exchange::has_idle(&inner, now).then(|| now + WORKER_IDLE_MAX);
                idle.map_or(due, |idle| due.min(idle))
            };
            tokio::select! {
                biased;
                advanced = self.writer.advance() => result = advanced,
                () = self.exchange.dispatcher_wake.notified() => {}
                () = sleep_until(due) => {
                    if due >= deadline {
                        break;
                    }
                    self.wake_idle_worker();
                }
            }
        }
        match result {
            Ok(()) if self.is_finished() => self.commit_transaction(released).await,
            Ok(()) => self.abort_transaction(released).await,
            Err(Error::Transaction(error)) if error.requires_abort() => {
                self.abort_after(error, released).await
            }
            Err(error) => {
                let _ = self.abort_transaction(released).await;
                Err(error)
            }
        }
    }

    async fn commit_transaction(&mut self, released: &[TopicPartition]) -> Result<(), Error> {
        check_workers(&self.exchange.lock())?;
        // Outputs are not committed without the offsets of their records, and these belong to other records by now.
        if self.restart_earlier() {
            return self.abort_transaction(released).await;
        }
        let offsets: BTreeMap<_, _> = self.offsets(None)?.into_iter().collect();
        let committed = self.try_commit(&offsets).await;
        match committed {
            Ok(()) => {
                self.exchange.lock().count_committed();
                self.set_committed(offsets.iter().map(|(at, offset)| (at, offset.offset)));
                if let Some(transaction) = &mut self.transaction {
                    *transaction = Transaction::default();
                }
                Ok(())
            }
            Err(error) => self.abort_if_required(error, released).await,
        }
    }

    /// Aborts the transaction if the error requires that. Returns all other errors.
    pub(crate) async fn abort_if_required(
        &mut self,
        error: Error,
        released: &[TopicPartition],
    ) -> Result<(), Error> {
        match error {
            Error::Transaction(error) if error.requires_abort() => self.abort_after(error, released).await,
            error => Err(error),
        }
    }

    /// Aborts the transaction, whose records are handled again. Returns the error after too many in a row.
    async fn abort_after(
        &mut self,
        error: TransactionError,
        released: &[TopicPartition],
    ) -> Result<(), Error> {
        tracing::warn!(%error, "the transaction was aborted; its records will be handled again");
        self.abort_transaction(released).await?;
        let aborts = self.transaction.as_mut().map_or(0, |transaction| {
            transaction.aborted_in_a_row += 1;
            transaction.aborted_in_a_row
        });
        if aborts < ABORTS_MAX { Ok(()) } else { Err(error.into()) }
    }

    async fn try_commit(
        &mut self,
        offsets: &BTreeMap<TopicPartition, OffsetAndMetadata>,
    ) -> Result<(), Error> {
        if !offsets.is_empty() {
            let group = self.consumer.group_metadata().await?;
            self.retry_call(async |it| {
                it.writer.producer().send_offsets_to_transaction(offsets, &group, CALL_WITHIN).await
            })
            .await?;
        }
        self.retry_call(async |it| it.writer.producer().commit_transaction(CALL_WITHIN).await).await
    }

    /// Aborts the transaction and restarts every partition at its committed offset, except those that are being released:
    /// their next owner starts there, and they may be assigned to this member again by now.
    pub(crate) async fn abort_transaction(&mut self, released: &[TopicPartition]) -> Result<(), Error> {
        let Some(transaction) = &mut self.transaction else { return Ok(()) };
        if matches!(transaction.state, State::Idle) {
            return Ok(());
        }
        transaction.state = State::Idle;
        {
            let mut inner = self.exchange.lock();
            inner.produced.clear();
            inner.given_up.clear();
            inner.uncommitted_counts = GivenUpCounts::default();
            inner.core.resume();
            self.writer.clear();
            for partition in self.assigned.values_mut() {
                if let Some((assignment, _)) = partition.owned.take() {
                    inner.core.remove(assignment);
                }
                partition.reset();
            }
        }
        let starts: Vec<_> = self
            .assigned
            .values()
            .filter(|partition| !released.contains(&partition.at))
            .filter_map(|partition| Some((partition.at.clone(), partition.committed.or(partition.start)?)))
            .collect();
        for (at, offset) in starts {
            // Seeking fails for a partition whose loss was not polled yet. Its next owner starts at the committed offset.
            let _ = self.consumer.seek(&at, StartAt::Offset(offset)).await;
        }
        self.retry_call(async |it| it.writer.producer().abort_transaction(CALL_WITHIN).await).await
    }

    /// Repeats a call that failed with a retriable error. After a stop was requested, the call ends [`LEAVE_WITHIN`] after the drain
    /// deadline: the coordinator then decides about the transaction, which includes the offsets of its records.
    async fn retry_call(
        &self,
        call: impl AsyncFn(&Self) -> Result<(), TransactionError>,
    ) -> Result<(), Error> {
        let (exchange, drain, begun) = (self.exchange.clone(), self.settings.drain, Instant::now());
        let stopped = async {
            let deadline = after(exchange.stop_requested().await, drain);
            sleep_until(after(deadline, LEAVE_WITHIN)).await;
        };
        let called = async {
            let mut tries = 0;
            loop {
                match call(self).await {
                    Err(error) if error.is_retriable() && tries < ABORTS_MAX => tries += 1,
                    done => return done.map_err(Error::from),
                }
            }
        };
        tokio::select! {
            biased;
            done = called => done,
            () = stopped => {
                let what = "a call to the transaction coordinator, before the end of the stop".into();
                Err(ottla_client::Error::TimedOut { what, waited_ms: begun.elapsed().as_millis() }.into())
            }
        }
    }
}
