//! Exactly once: what handlers produce, and the offsets of what they handled, in one transaction after the other.

use std::collections::BTreeMap;
use std::time::Duration;

use ottla_client::{StartAt, TransactionError};
use tokio::time::{Instant, timeout_at};

use crate::dispatcher::Dispatcher;
use crate::error::Error;
use crate::exchange::Watch;

/// Calls to the coordinators.
const CALL_WITHIN: Duration = Duration::from_secs(30);

/// So many transactions in a row may be aborted before the processor stops: what fails each time fails for good.
const ABORTS_MAX: u32 = 5;

/// The transaction that takes in what is handled.
#[derive(Debug, Default)]
pub(crate) struct Transaction {
    state: State,
    aborted_in_a_row: u32,
}

#[derive(Clone, Copy, Debug, Default)]
enum State {
    /// None is open.
    #[default]
    Idle,
    /// Records are taken in, since then.
    Open(Instant),
    /// No more records are taken in: it ends when those that it has are done.
    Closing,
}

impl Transaction {
    pub(crate) const fn takes_records(&self) -> bool {
        matches!(self.state, State::Open(_))
    }

    /// When it is to be looked after.
    pub(crate) fn next(&self, now: Instant, interval: Duration) -> Instant {
        match self.state {
            State::Idle => now + Duration::from_secs(1),
            State::Open(since) => since + interval,
            State::Closing => now + interval,
        }
    }
}

impl Dispatcher {
    pub(crate) async fn init_transactions(&mut self) -> Result<(), Error> {
        self.again(async |it| it.producer.init_transactions(CALL_WITHIN).await).await
    }

    /// Begins one when there is something to handle, closes it when its time is over, and commits it when everything in it
    /// is done.
    pub(crate) async fn advance_transaction(&mut self) -> Result<(), Error> {
        let Some(transaction) = &mut self.transaction else { return Ok(()) };
        match transaction.state {
            State::Idle => {
                if self.parts.values().any(|part| !part.waiting.is_empty()) {
                    self.producer.begin_transaction()?;
                    transaction.state = State::Open(Instant::now());
                }
            }
            State::Open(since) if since.elapsed() >= self.settings.transaction => {
                transaction.state = State::Closing;
            }
            State::Open(_) => {}
            State::Closing => {
                if self.is_through() {
                    self.commit_transaction().await?;
                }
            }
        }
        Ok(())
    }

    fn is_through(&self) -> bool {
        let inner = self.exchange.lock();
        let through = inner.produced.is_empty() && inner.given_up.is_empty();
        let mut owned = self.parts.values().filter_map(|part| Some(part.owned.as_ref()?.0));
        through && owned.all(|of| inner.core.is_through(of))
    }

    /// Ends the transaction before partitions are given back: commits it if everything in it is done in time.
    pub(crate) async fn end_transaction(&mut self, deadline: Instant) -> Result<(), Error> {
        let Some(transaction) = &mut self.transaction else { return Ok(()) };
        if matches!(transaction.state, State::Idle) {
            return Ok(());
        }
        transaction.state = State::Closing;
        let mut result = Ok(());
        loop {
            result = result.and(self.write_out().await);
            for part in self.parts.values_mut() {
                part.flush(&self.exchange, Instant::now());
            }
            let through = self.is_through();
            if through || result.is_err() {
                break;
            }
            let due = {
                let mut inner = self.exchange.lock();
                inner.watch = Watch::Everything;
                let due = inner.core.wake(Instant::now());
                self.exchange.wake_workers(&mut inner);
                due.unwrap_or(deadline).min(deadline)
            };
            let news = timeout_at(due, self.exchange.news.notified()).await;
            if news.is_err() && Instant::now() >= deadline {
                break;
            }
        }
        if result.is_ok() && self.is_through() {
            return self.commit_transaction().await;
        }
        result.and(self.abort_transaction().await)
    }

    async fn commit_transaction(&mut self) -> Result<(), Error> {
        let offsets: BTreeMap<_, _> =
            self.offsets(None).into_iter().map(|(at, offset)| (at, offset.offset)).collect();
        let committed = self.try_commit(&offsets).await;
        match committed {
            Ok(()) => {
                self.set_committed(offsets.iter().map(|(at, offset)| (at, *offset)));
                if let Some(transaction) = &mut self.transaction {
                    *transaction = Transaction::default();
                }
                Ok(())
            }
            Err(Error::Transaction(error)) if error.requires_abort() => {
                tracing::warn!(%error, "the transaction is aborted, and its records are handled again");
                self.abort_transaction().await?;
                let aborts = self.transaction.as_mut().map_or(0, |transaction| {
                    transaction.aborted_in_a_row += 1;
                    transaction.aborted_in_a_row
                });
                if aborts < ABORTS_MAX { Ok(()) } else { Err(error.into()) }
            }
            Err(error) => Err(error),
        }
    }

    async fn try_commit(
        &mut self,
        offsets: &BTreeMap<ottla_client::TopicPartition, i64>,
    ) -> Result<(), Error> {
        if !offsets.is_empty() {
            let group = self.consumer.group_metadata().await?;
            self.again(async |it| {
                it.producer.send_offsets_to_transaction(offsets, &group, CALL_WITHIN).await
            })
            .await?;
        }
        self.again(async |it| it.producer.commit_transaction(CALL_WITHIN).await).await
    }

    /// Nothing of it happened: every partition begins again where it was committed.
    pub(crate) async fn abort_transaction(&mut self) -> Result<(), Error> {
        let Some(transaction) = &mut self.transaction else { return Ok(()) };
        if matches!(transaction.state, State::Idle) {
            return Ok(());
        }
        transaction.state = State::Idle;
        {
            let mut inner = self.exchange.lock();
            inner.produced.clear();
            inner.given_up.clear();
            for part in self.parts.values_mut() {
                if let Some((of, _)) = part.owned.take() {
                    inner.core.remove(of);
                }
                part.reset();
            }
        }
        let starts: Vec<_> = self
            .parts
            .values()
            .filter_map(|part| Some((part.at.clone(), part.committed.or(part.start)?)))
            .collect();
        for (at, offset) in starts {
            // One that is being taken back is not sought in: its next owner begins where it was committed.
            let _ = self.consumer.seek(&at, StartAt::Offset(offset)).await;
        }
        self.again(async |it| it.producer.abort_transaction(CALL_WITHIN).await).await
    }

    /// Repeats a call for as long as its time was not enough.
    async fn again(
        &mut self,
        call: impl AsyncFn(&Self) -> Result<(), TransactionError>,
    ) -> Result<(), Error> {
        let mut tries = 0;
        loop {
            match call(self).await {
                Err(error) if error.is_retriable() && tries < ABORTS_MAX => tries += 1,
                done => return done.map_err(Error::from),
            }
        }
    }
}
