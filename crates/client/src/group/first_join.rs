//! The JoinGroup request of a member without an id. Its response names the member, and the group waits for that member to join
//! until its session times out. So a request that was sent is completed also when its membership has ended, and the member
//! that its response names leaves.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use ottla_protocol::messages::join_group::{JoinGroupRequest, JoinGroupResponse};
use tokio::sync::oneshot;

use super::Shared;
use super::classic::{JOIN_GROUP_VERSION_MAX, leave_as};
use super::coordinator::Coordinator;
use crate::cluster::brokers::Lane;
use crate::error::Error;

/// Sends the request. Dropping the returned future before the request is sent cancels it.
pub(super) async fn send(
    shared: &Rc<Shared>,
    timeout: Duration,
    request: JoinGroupRequest,
) -> Result<JoinGroupResponse, Error> {
    let (answer, answered) = oneshot::channel();
    tokio::task::spawn_local(complete(shared.clone(), timeout, request, answer));
    answered.await.unwrap_or(Err(Error::Closed))
}

async fn complete(
    shared: Rc<Shared>,
    timeout: Duration,
    request: JoinGroupRequest,
    mut answer: oneshot::Sender<Result<JoinGroupResponse, Error>>,
) {
    let Some(coordinator) = &shared.coordinator else { return };
    let membership = coordinator.membership();
    let in_flight = RefCell::new(None);
    let joining = coordinator.call_on(Lane::Join, JOIN_GROUP_VERSION_MAX, timeout, |_version| {
        in_flight.borrow_mut().get_or_insert_with(|| coordinator.count_nameless());
        request.clone()
    });
    tokio::pin!(joining);
    let result = tokio::select! {
        biased;
        result = &mut joining => result,
        () = answer.closed() => {
            if in_flight.borrow().is_none() {
                return;
            }
            joining.await
        }
    };
    let named = result.as_ref().map_or("", |joined| &*joined.member_id).to_owned();
    if coordinator.membership() == membership {
        // Also if the member is about to leave: it leaves with this id.
        if !named.is_empty() {
            coordinator.is_known_as(&named);
        }
        let _ = answer.send(result);
    } else if !named.is_empty() {
        leave(coordinator, &named).await;
    }
}

async fn leave(coordinator: &Coordinator, member_id: &str) {
    let reason = "the consumer unsubscribed or was closed before it had a member id";
    if let Err(error) = leave_as(coordinator, member_id, None, reason).await {
        tracing::debug!(%error, "leaving the group");
    }
}
