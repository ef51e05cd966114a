//! A running membership of either protocol, as the consumer sees it.

use std::rc::Rc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::application::{AppSignal, Application};
use super::coordinator::Coordinator;
use super::heartbeat::HeartbeatTask;
use super::membership_status::MembershipStep;
use super::subscription::Subscription;
use super::{Shared, classic, leaving, next_gen};
use crate::config::{GroupHabits, GroupProtocol};

/// Dropping it acts as a crash: the session times out.
pub(crate) struct Membership {
    shared: Rc<Shared>,
    signals: mpsc::UnboundedSender<AppSignal>,
    tasks: JoinSet<()>,
    /// The application unsubscribed, and its partitions are not given up yet.
    leaves: bool,
}

impl Membership {
    pub(crate) fn start(shared: Rc<Shared>, subscription: Subscription) -> Self {
        if let Some(coordinator) = &shared.coordinator {
            coordinator.set_member(true);
        }
        shared.step(MembershipStep::Joining);
        let (signals, receiver) = mpsc::unbounded_channel();
        let application = Application::new(shared.clone(), receiver, subscription);
        let mut tasks = JoinSet::new();
        let observer = shared.cluster.observer.clone();
        tasks.spawn_local(observer.watched("membership", live(shared.clone(), application)));
        Self { shared, signals, tasks, leaves: false }
    }

    /// Passes a signal of the application. A new subscription ends the leaving.
    pub(crate) fn signal(&mut self, signal: AppSignal) {
        self.leaves &= !matches!(signal, AppSignal::Subscribed(_));
        let _ = self.signals.send(signal);
    }

    /// Returns `true` while it runs. A static member that was fenced by another one stops.
    pub(crate) fn is_alive(&mut self) -> bool {
        while self.tasks.try_join_next().is_some() {}
        !self.tasks.is_empty()
    }

    /// Returns `true` after the end of [`Membership::leave_when_given_up`].
    pub(crate) fn has_left(&mut self) -> bool {
        self.leaves && !self.is_alive()
    }

    /// Revokes all partitions, and leaves the group when the application has removed them. Does not wait for that.
    pub(crate) fn leave_when_given_up(&mut self, leaving_for: LeavingFor, timeout: Duration) {
        if self.leaves {
            return;
        }
        let (signals, receiver) = mpsc::unbounded_channel();
        let application = Application::new(self.shared.clone(), receiver, Subscription::default());
        self.tasks.abort_all();
        let observer = self.shared.cluster.observer.clone();
        let leaving = leaving::run(self.shared.clone(), application, leaving_for, timeout);
        self.tasks.spawn_local(observer.watched("leaving", leaving));
        self.signals = signals;
        self.leaves = true;
    }

    /// Leaves the group with one attempt, within `timeout`, so that the other members need not wait for the session
    /// timeout.
    pub(crate) async fn leave(mut self, leaving_for: LeavingFor, timeout: Duration) {
        self.tasks.abort_all();
        self.shared.step(MembershipStep::Out);
        self.shared.replace_assignment(&[]);
        self.shared.disown_all();
        send_leave(&self.shared, leaving_for, timeout).await;
        if let Some(coordinator) = &self.shared.coordinator {
            coordinator.set_member(false);
        }
    }
}

/// Runs a member of the configured protocol.
pub(super) async fn live(shared: Rc<Shared>, application: Application) {
    match shared.cluster.config.group_protocol {
        GroupProtocol::Classic => classic::Member::new(shared, application).live().await,
        GroupProtocol::Consumer => next_gen::Member::new(shared, application).live().await,
    }
}

/// Sends the heartbeats of a member that is about to leave, until the result is dropped.
pub(super) fn keep_alive(shared: &Rc<Shared>) -> JoinSet<()> {
    let mut task = JoinSet::new();
    let observer = &shared.cluster.observer;
    let is_member = |coordinator: &Coordinator| coordinator.identity().epoch.is_some();
    if shared.coordinator.as_ref().is_some_and(is_member) {
        match shared.cluster.config.group_protocol {
            GroupProtocol::Classic => {
                let heartbeats = HeartbeatTask::start(shared.clone());
                let waiting = async move {
                    heartbeats.wait_for_end().await;
                    // A rebalance ends the generation, and heartbeats continue until the member is gone.
                    std::future::pending::<()>().await;
                };
                task.spawn_local(observer.clone().watched("heartbeats", waiting));
            }
            GroupProtocol::Consumer => {
                let heartbeats = next_gen::keep_alive(shared.clone());
                task.spawn_local(observer.clone().watched("heartbeats", heartbeats));
            }
        }
    }
    task
}

/// The end of a membership.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum LeavingFor {
    /// The application unsubscribed.
    Unsubscribe,
    /// The consumer closes, or another assignment replaces the group's.
    Close,
}

/// Sends the request to leave the group, once.
pub(super) async fn send_leave(shared: &Shared, leaving_for: LeavingFor, timeout: Duration) {
    let Some(coordinator) = &shared.coordinator else { return };
    let habits = shared.cluster.config.group_habits;
    let returns = habits == GroupHabits::Java || leaving_for == LeavingFor::Close;
    let leaving = async {
        match shared.cluster.config.group_protocol {
            GroupProtocol::Classic => {
                if leaving_for == LeavingFor::Close {
                    // Nothing answers after the close.
                    coordinator.wait_for_names().await;
                }
                classic::leave(coordinator, returns, "the consumer unsubscribed or was closed").await
            }
            GroupProtocol::Consumer => next_gen::leave(coordinator).await,
        }
    };
    match tokio::time::timeout(timeout, leaving).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "leaving the group"),
        Err(_) => tracing::debug!("leaving the group: no answer in time"),
    }
}
