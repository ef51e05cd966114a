//! Leaves the group for an application that applies assignments itself: its polls still have to return the revocation,
//! and it has to remove the partitions.

use std::rc::Rc;
use std::time::Duration;

use super::application::Application;
use super::membership::LeavingFor;
use super::membership_status::MembershipStep;
use super::{Shared, membership};

/// Revokes all partitions, and leaves the group when the application has removed them or has not polled for
/// `max.poll.interval.ms`. Joins again if the application has subscribed in the meantime.
pub(super) async fn run(
    shared: Rc<Shared>,
    mut application: Application,
    leaving_for: LeavingFor,
    timeout: Duration,
) {
    let heartbeats = membership::keep_alive(&shared);
    if application.give_up_everything(timeout).await.is_err() {
        tracing::debug!("leaving the group: the application has not given its partitions up");
    }
    drop(heartbeats);
    membership::send_leave(&shared, leaving_for, timeout).await;
    if application.has_subscribed() {
        if let Some(coordinator) = &shared.coordinator {
            coordinator.set_member(true);
        }
        return membership::live(shared, application).await;
    }
    shared.step(MembershipStep::Out);
    if let Some(coordinator) = &shared.coordinator {
        coordinator.set_member(false);
    }
}
