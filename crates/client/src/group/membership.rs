//! A running membership of either protocol, as the consumer sees it.

use std::rc::Rc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::application::{AppSignal, Application};
use super::membership_status::MembershipStep;
use super::subscription::Subscription;
use super::{Shared, classic, next_gen};
use crate::config::GroupProtocol;

/// Dropping it acts as a crash: the session times out.
pub(crate) struct Membership {
    shared: Rc<Shared>,
    signals: mpsc::UnboundedSender<AppSignal>,
    tasks: JoinSet<()>,
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
        match shared.cluster.config.group_protocol {
            GroupProtocol::Classic => {
                tasks.spawn_local(classic::Member::new(shared.clone(), application).live());
            }
            GroupProtocol::Consumer => {
                tasks.spawn_local(next_gen::Member::new(shared.clone(), application).live());
            }
        }
        Self { shared, signals, tasks }
    }

    pub(crate) fn signal(&self, signal: AppSignal) {
        let _ = self.signals.send(signal);
    }

    /// Returns `true` while it runs. A static member that was fenced by another one stops.
    pub(crate) fn is_alive(&mut self) -> bool {
        while self.tasks.try_join_next().is_some() {}
        !self.tasks.is_empty()
    }

    /// Leaves the group with one attempt, within `timeout`, so that the other members need not wait for the session
    /// timeout.
    pub(crate) async fn leave(mut self, timeout: Duration) {
        self.tasks.abort_all();
        self.shared.step(MembershipStep::Out);
        self.shared.replace_assignment(&[]);
        let Some(coordinator) = &self.shared.coordinator else { return };
        let leaving = async {
            match self.shared.cluster.config.group_protocol {
                GroupProtocol::Classic => {
                    classic::leave(coordinator, "the consumer unsubscribed or was closed").await
                }
                GroupProtocol::Consumer => next_gen::leave(coordinator).await,
            }
        };
        match tokio::time::timeout(timeout, leaving).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "leaving the group"),
            Err(_) => tracing::debug!("leaving the group: no answer in time"),
        }
        coordinator.set_member(false);
    }
}
