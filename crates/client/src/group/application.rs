//! The application's side of a membership: assigns and revokes partitions, and waits for polls.

use std::rc::Rc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

use super::control::{committed_to_start, start_each};
use super::member_commit::CommitClaim;
use super::membership_status::MembershipStep;
use super::poll_activity::LastPoll;
use super::subscription::Subscription;
use super::{Shared, commit_unasked, unavailable_topics};
use crate::config::{Config, GroupHabits, Rebalance};
use crate::error::Error;
use crate::fetch::inbox::Item;
use crate::log::WARNING;
use crate::types::{Event, TopicPartition};
use crate::watchdog::cause::StallReason;

/// The longest interval between two checks whether the application polls.
const LOOK_EVERY_MAX: Duration = Duration::from_secs(1);

/// A signal from the application to its membership.
#[derive(Debug)]
pub(crate) enum AppSignal {
    /// The application polled after a revocation, so it has processed the records; or it has applied the assignment
    /// itself.
    Answered,
    /// The application changed its subscription.
    Subscribed(Subscription),
}

/// The application did not poll for longer than `max.poll.interval.ms`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Late;

/// The reason for which partitions are given up.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Release {
    Revoked,
    /// Their topics do not exist.
    Deleted,
}

pub(super) struct Application {
    shared: Rc<Shared>,
    signals: mpsc::UnboundedReceiver<AppSignal>,
    subscription: Subscription,
    resubscribed: bool,
    last_poll: LastPoll,
}

impl Application {
    pub(super) fn new(
        shared: Rc<Shared>,
        signals: mpsc::UnboundedReceiver<AppSignal>,
        subscription: Subscription,
    ) -> Self {
        let last_poll = LastPoll::new(&shared.polls, Instant::now());
        Self { shared, signals, subscription, resubscribed: false, last_poll }
    }

    fn config(&self) -> &Config {
        &self.shared.cluster.config
    }

    /// Returns `true` if the application changed its subscription since it was last read.
    pub(super) fn has_subscribed(&mut self) -> bool {
        self.forget_answers();
        self.resubscribed
    }

    /// Returns the current subscription and clears the mark of its change.
    pub(super) fn subscription(&mut self) -> Subscription {
        self.resubscribed = false;
        self.subscription.clone()
    }

    /// Assigns partitions from their committed offsets, unless the member is lost meanwhile, or `is_over` completes before the
    /// offsets are found. With `always` the event comes even without partitions.
    pub(super) async fn take(
        &mut self,
        partitions: Vec<TopicPartition>,
        always: bool,
        is_lost: impl Fn() -> bool,
        is_over: impl Future<Output = ()>,
    ) -> Result<(), Error> {
        self.shared.note_assignment();
        if !partitions.is_empty() {
            unavailable_topics::report_before_records(&self.shared);
        }
        if self.config().rebalance == Rebalance::Application {
            if always || !partitions.is_empty() {
                self.shared.step(MembershipStep::Taking);
                self.shared.own(&partitions);
                self.forget_answers();
                self.shared.inbox.push(Item::Event(Event::Assigned(partitions)));
                // The next check detects a late application.
                let answered = self.await_answer().await;
                self.end_commits(answered).await;
            }
            return Ok(());
        }
        if !partitions.is_empty() {
            self.shared.step(MembershipStep::Taking);
            let committed = tokio::select! {
                biased;
                committed = committed_to_start(&self.shared, partitions.clone()) => committed?,
                () = is_over => return Ok(()),
            };
            if is_lost() {
                return Ok(());
            }
            self.shared.own(&partitions);
            start_each(&self.shared, &partitions, &committed);
        }
        if self.config().rebalance == Rebalance::Polled && (always || !partitions.is_empty()) {
            self.shared.inbox.push(Item::Event(Event::Assigned(partitions)));
        }
        Ok(())
    }

    /// Revokes partitions: stops them at once, and removes them when the application has processed their records and the
    /// offsets are committed.
    pub(super) async fn give_up(&mut self, partitions: Vec<TopicPartition>) -> Result<(), Late> {
        self.release(partitions, Release::Revoked).await
    }

    /// Gives up partitions whose topics were deleted, as lost ones: nothing can be committed for them. Only an application
    /// that applies assignments itself has to answer.
    pub(super) async fn give_up_deleted(&mut self, partitions: Vec<TopicPartition>) -> Result<(), Late> {
        self.release(partitions, Release::Deleted).await
    }

    async fn release(&mut self, partitions: Vec<TopicPartition>, release: Release) -> Result<(), Late> {
        if partitions.is_empty() {
            return Ok(());
        }
        self.forget_answers();
        self.shared.step(MembershipStep::GivingUp);
        self.shared.stop_partitions(&partitions);
        let seen = if self.config().rebalance == Rebalance::Silent {
            Ok(())
        } else {
            self.shared.revoking.borrow_mut().clone_from(&partitions);
            self.shared.inbox.push(Item::Event(match release {
                Release::Revoked => Event::Revoked(partitions.clone()),
                Release::Deleted => {
                    self.shared.note_loss();
                    Event::Lost(partitions.clone())
                }
            }));
            let waits = release == Release::Revoked || self.config().rebalance == Rebalance::Application;
            let answered = if waits { self.await_answer().await } else { Ok(()) };
            self.shared.revoking.borrow_mut().clear();
            answered
        };
        self.end_commits(seen).await;
        if self.config().enable_auto_commit
            && release == Release::Revoked
            && let Err(error) = self.commit(&partitions).await
        {
            tracing::debug!(%error, "commit before giving partitions up");
        }
        if seen.is_err() && self.config().rebalance == Rebalance::Application {
            self.shared.mark_lost(&partitions);
        } else {
            self.shared.remove_partitions(&partitions);
        }
        self.shared.disown(&partitions);
        self.shared.step(MembershipStep::Joining);
        seen
    }

    /// Gives up all partitions of the group for an application that applies assignments itself: waits until it has
    /// removed them, and for their commits within `timeout`. A revocation that it has not answered yet is not repeated.
    pub(super) async fn give_up_everything(&mut self, timeout: Duration) -> Result<(), Late> {
        let owned = self.shared.owned();
        let asked = self.shared.revoking.take();
        self.shared.step(MembershipStep::GivingUp);
        self.shared.stop_partitions(&owned);
        let rest: Vec<_> = owned.iter().filter(|at| !asked.contains(at)).cloned().collect();
        if !rest.is_empty() {
            self.shared.inbox.push(Item::Event(Event::Revoked(rest)));
        }
        let mut seen = Ok(());
        while seen.is_ok() && self.shared.assigned().iter().any(|at| owned.contains(at)) {
            seen = self.await_answer().await;
        }
        // The coordinator refuses the commits of a member that has left, and a refused commit is repeated only while the partitions
        // are the member's.
        let _ = tokio::time::timeout(timeout, self.shared.awaited_commits.wait_for_end()).await;
        self.shared.remove_partitions(&owned);
        self.shared.disown(&owned);
        seen
    }

    /// Drops signals from before the event, which do not acknowledge it.
    fn forget_answers(&mut self) {
        while let Ok(signal) = self.signals.try_recv() {
            self.apply(signal);
        }
    }

    /// Drops all partitions, which other members may own already. An application that applies assignments itself still
    /// has to remove them; until then nothing is fetched from them or committed for them.
    pub(super) fn lose(&self) {
        self.shared.note_loss();
        let partitions = self.shared.owned();
        if self.config().rebalance == Rebalance::Application {
            self.shared.stop_partitions(&partitions);
            self.shared.mark_lost(&partitions);
        } else {
            self.shared.replace_assignment(&[]);
        }
        self.shared.disown(&partitions);
        if self.config().rebalance != Rebalance::Silent && !partitions.is_empty() {
            self.shared.inbox.push(Item::Event(Event::Lost(partitions)));
        }
    }

    /// Reports an error at the next poll. With librdkafka's habits the log has a late poll at once, because the next one may never come.
    pub(super) fn report(&self, error: Error) {
        let late = matches!(error, Error::PollIntervalExceeded { .. });
        if let Error::PollIntervalExceeded { max_ms } = &error
            && self.config().group_habits == GroupHabits::Librdkafka
        {
            // Programs search for the beginning, which is librdkafka's.
            let text = format!(
                "Application maximum poll interval ({max_ms}ms) exceeded: the consumer leaves its group until the next poll; \
                 raise max.poll.interval.ms if records take longer"
            );
            self.shared.cluster.observer.log.say(WARNING, "MAXPOLL", text);
        }
        self.shared.step(if late {
            MembershipStep::Late
        } else {
            MembershipStep::Refused(StallReason::of(&error))
        });
        self.shared.inbox.push(Item::Error(error));
    }

    /// Waits until it polls again, or has begun a poll that waits.
    pub(super) async fn comes_back(&mut self) {
        let count = self.shared.polls.count();
        let pause = self.config().retry_backoff;
        while !self.shared.polls.has_polled_since(count) {
            tokio::time::sleep(pause).await;
        }
        self.last_poll = LastPoll::new(&self.shared.polls, Instant::now());
        self.shared.step(MembershipStep::Joining);
    }

    /// Waits for a changed subscription, or until the application has not polled for too long.
    pub(super) async fn wants_or_is_late(&mut self) -> Result<(), Late> {
        while !self.resubscribed {
            let wake_at = self.look()?;
            if let Ok(signal) = tokio::time::timeout_at(wake_at, self.signals.recv()).await {
                match signal {
                    Some(signal) => self.apply(signal),
                    // The consumer closes, and drops this future.
                    None => std::future::pending().await,
                }
            }
        }
        Ok(())
    }

    async fn await_answer(&mut self) -> Result<(), Late> {
        loop {
            let wake_at = self.look()?;
            match tokio::time::timeout_at(wake_at, self.signals.recv()).await {
                Ok(Some(AppSignal::Answered)) => return Ok(()),
                Ok(Some(signal)) => self.apply(signal),
                Ok(None) => std::future::pending().await,
                Err(_) => {}
            }
        }
    }

    /// Checks the last poll, and returns the time of the next check.
    fn look(&mut self) -> Result<Instant, Late> {
        let now = Instant::now();
        let max = self.shared.cluster.config.max_poll_interval;
        let age = self.last_poll.age(&self.shared.polls, now);
        if age >= max {
            return Err(Late);
        }
        // A check dates a poll to its own time, so rare checks would let a late application look alive.
        Ok(now + max.saturating_sub(age).min(max / 8).min(LOOK_EVERY_MAX))
    }

    fn apply(&mut self, signal: AppSignal) {
        match signal {
            AppSignal::Answered => {}
            AppSignal::Subscribed(subscription) => {
                self.subscription = subscription;
                self.resubscribed = true;
            }
        }
    }

    /// Waits for the commits of an application that has given partitions up in time. The coordinator refuses them after the next
    /// generation has begun.
    async fn end_commits(&self, seen: Result<(), Late>) {
        if seen.is_ok() {
            self.shared.awaited_commits.wait_for_end().await;
        }
    }

    async fn commit(&self, partitions: &[TopicPartition]) -> Result<(), Error> {
        // The coordinator refuses them after the next generation has begun.
        self.shared.awaited_commits.wait_for_end().await;
        let mut offsets = self.shared.uncommitted();
        offsets.retain(|at, _| partitions.contains(at));
        commit_unasked(&self.shared, &offsets, CommitClaim::assigned(&self.shared, &offsets)).await
    }
}
