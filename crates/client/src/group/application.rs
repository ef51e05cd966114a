//! A membership's dealings with the application: partitions are given to it and taken back, and it is waited for.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

use super::polls::LastPoll;
use super::standing::Step;
use super::subscription::Subscription;
use super::{Shared, commit_unasked};
use crate::config::{Config, Rebalance};
use crate::consumer::{Event, TopicPartition};
use crate::error::Error;
use crate::fetch::inbox::Item;
use crate::watchdog::cause::Trouble;

/// How often it is looked whether the application polls, at least.
const LOOK_EVERY_MAX: Duration = Duration::from_secs(1);

/// What the consumer tells its membership.
#[derive(Debug)]
pub(crate) enum Told {
    /// The application came back after it had seen a revocation: what it had in hand is done. Or, where it brings the
    /// assignment in line itself, it has done so.
    Answered,
    /// It wants other topics.
    Subscribed(Subscription),
}

/// The application did not poll for longer than `max.poll.interval.ms`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Late;

pub(super) struct Application {
    shared: Rc<Shared>,
    told: mpsc::UnboundedReceiver<Told>,
    subscription: Subscription,
    resubscribed: bool,
    last_poll: LastPoll,
}

impl Application {
    pub(super) fn new(
        shared: Rc<Shared>,
        told: mpsc::UnboundedReceiver<Told>,
        subscription: Subscription,
    ) -> Self {
        let last_poll = LastPoll::new(&shared.polls, Instant::now());
        Self { shared, told, subscription, resubscribed: false, last_poll }
    }

    fn config(&self) -> &Config {
        &self.shared.cluster.config
    }

    /// What it wants now. That it changed before is known from here on.
    pub(super) fn subscription(&mut self) -> Subscription {
        self.resubscribed = false;
        self.subscription.clone()
    }

    /// Gives it partitions, each from where the group left off. `always` says so even if there are none.
    pub(super) async fn take(&mut self, partitions: Vec<TopicPartition>, always: bool) -> Result<(), Error> {
        if self.config().rebalance == Rebalance::Application {
            if always || !partitions.is_empty() {
                self.shared.step(Step::Taking);
                self.shared.own(&partitions);
                self.forget_answers();
                self.shared.inbox.push(Item::Event(Event::Assigned(partitions)));
                // Who is late is found out by whoever looks next.
                let _ = self.await_answer().await;
            }
            return Ok(());
        }
        if !partitions.is_empty() {
            self.shared.step(Step::Taking);
            let starts = self.shared.start_at_committed(partitions.clone()).await?;
            self.shared.add_partitions(&starts);
        }
        if self.config().rebalance == Rebalance::Polled && (always || !partitions.is_empty()) {
            self.shared.inbox.push(Item::Event(Event::Assigned(partitions)));
        }
        Ok(())
    }

    /// Takes partitions back: it gets no more of them at once, and they are removed when it has finished what it had in
    /// hand and that is committed.
    pub(super) async fn give_up(&mut self, partitions: Vec<TopicPartition>) -> Result<(), Late> {
        if partitions.is_empty() {
            return Ok(());
        }
        self.forget_answers();
        self.shared.step(Step::GivingUp);
        self.shared.stop_partitions(&partitions);
        let seen = if self.config().rebalance == Rebalance::Silent {
            Ok(())
        } else {
            self.shared.inbox.push(Item::Event(Event::Revoked(partitions.clone())));
            self.await_answer().await
        };
        if self.config().auto_commit
            && let Err(error) = self.commit(&partitions).await
        {
            tracing::debug!(%error, "commit before giving partitions up");
        }
        self.shared.remove_partitions(&partitions);
        self.shared.disown(&partitions);
        self.shared.step(Step::Joining);
        seen
    }

    /// What it said before it is asked is no answer.
    fn forget_answers(&mut self) {
        while let Ok(told) = self.told.try_recv() {
            self.hear(told);
        }
    }

    /// All its partitions are somebody else's already.
    pub(super) fn lose(&self) {
        let partitions = self.shared.owned();
        self.shared.replace_assignment(&[]);
        self.shared.disown(&partitions);
        if self.config().rebalance != Rebalance::Silent && !partitions.is_empty() {
            self.shared.inbox.push(Item::Event(Event::Lost(partitions)));
        }
    }

    /// Tells it of an error, at its next poll.
    pub(super) fn report(&self, error: Error) {
        let late = matches!(error, Error::PollIntervalExceeded { .. });
        self.shared.step(if late { Step::Late } else { Step::Refused(Trouble::of(&error)) });
        self.shared.inbox.push(Item::Error(error));
    }

    /// Waits until it polls again.
    pub(super) async fn comes_back(&mut self) {
        let count = self.shared.polls.count();
        let pause = self.config().retry_backoff;
        while self.shared.polls.count() == count {
            tokio::time::sleep(pause).await;
        }
        self.last_poll = LastPoll::new(&self.shared.polls, Instant::now());
        self.shared.step(Step::Joining);
    }

    /// Waits until it wants other topics or has not polled for too long.
    pub(super) async fn wants_or_is_late(&mut self) -> Result<(), Late> {
        while !self.resubscribed {
            let wake_at = self.look()?;
            if let Ok(told) = tokio::time::timeout_at(wake_at, self.told.recv()).await {
                match told {
                    Some(told) => self.hear(told),
                    // The consumer is going; whoever awaits this is dropped with it.
                    None => std::future::pending().await,
                }
            }
        }
        Ok(())
    }

    async fn await_answer(&mut self) -> Result<(), Late> {
        loop {
            let wake_at = self.look()?;
            match tokio::time::timeout_at(wake_at, self.told.recv()).await {
                Ok(Some(Told::Answered)) => return Ok(()),
                Ok(Some(told)) => self.hear(told),
                Ok(None) => std::future::pending().await,
                Err(_) => {}
            }
        }
    }

    /// Looks whether it polled, and says when to look again.
    fn look(&mut self) -> Result<Instant, Late> {
        let now = Instant::now();
        let max = self.shared.cluster.config.poll_interval_max;
        let age = self.last_poll.age(&self.shared.polls, now);
        if age >= max {
            return Err(Late);
        }
        // A poll is noticed at the next look: what is seen too rarely looks younger than it is.
        Ok(now + max.saturating_sub(age).min(max / 8).min(LOOK_EVERY_MAX))
    }

    fn hear(&mut self, told: Told) {
        match told {
            Told::Answered => {}
            Told::Subscribed(subscription) => {
                self.subscription = subscription;
                self.resubscribed = true;
            }
        }
    }

    async fn commit(&self, partitions: &[TopicPartition]) -> Result<(), Error> {
        let mut offsets = self.shared.uncommitted();
        offsets.retain(|at, _| partitions.contains(at));
        commit_unasked(&self.shared, &offsets).await
    }

    /// The topics it wants: by name, and by pattern those that exist.
    pub(super) fn topics(&self, subscription: &Subscription) -> Vec<Arc<str>> {
        let known = self.shared.cluster.visible_topics();
        subscription.topics(&known)
    }
}
