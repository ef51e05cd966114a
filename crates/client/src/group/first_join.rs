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
    let joining = complete(shared.clone(), timeout, request, answer);
    tokio::task::spawn_local(shared.cluster.observer.clone().watched("first join", joining));
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::time::Instant;

    use super::*;
    use crate::client::Client;
    use crate::config::{Config, GroupProtocol};
    use crate::error::ProduceErrorKind;
    use crate::fetch::inbox::{Inbox, PrefetchLimit};
    use crate::group::membership::keep_alive;
    use crate::group::poll_activity::PollActivity;
    use crate::record::Record;

    const PATIENCE: Duration = Duration::from_secs(30);

    /// Starts this work of a group's member, and waits until its panic has ended the client.
    fn ends_the_client<F>(protocol: GroupProtocol, work: impl FnOnce(Rc<Shared>) -> F + Send + 'static)
    where
        F: Future<Output = ()> + 'static,
    {
        let mut config = Config::new("127.0.0.1:1");
        config.group_id = Some("billing".into());
        config.group_protocol = protocol;
        let client = Client::new(config).expect("a client");
        let producer = client.producer();
        let delivery = producer.try_enqueue(Record::to("orders").value("x")).expect("taken");
        client.start(|cluster| async move {
            let inbox = Inbox::new(1 << 20, PrefetchLimit { records: 1, bytes: PrefetchLimit::BYTES });
            let polls = Arc::new(PollActivity::new(Instant::now()));
            work(Rc::new(Shared::new(cluster, inbox, polls))).await;
        });
        let error = delivery.wait(PATIENCE).expect("in time").expect_err("the client has ended");
        assert!(matches!(error.kind, ProduceErrorKind::Closed), "{error}");
    }

    /// The panic was dropped with the task: the member joined again and again, and the client did not say why.
    #[test]
    fn a_panic_while_a_member_joins_ends_the_client() {
        ends_the_client(GroupProtocol::Classic, |shared| async move {
            let coordinator = shared.coordinator.as_ref().expect("a group");
            coordinator.break_down();
            let joined = send(&shared, PATIENCE, JoinGroupRequest::default()).await;
            assert!(matches!(joined, Err(Error::Closed)));
        });
    }

    /// The heartbeats stopped, and the group gave the partitions to others while the application still gave them up.
    #[test]
    fn a_panic_in_the_heartbeats_of_a_member_that_leaves_ends_the_client() {
        ends_the_client(GroupProtocol::Consumer, |shared| async move {
            let coordinator = shared.coordinator.as_ref().expect("a group");
            coordinator.enters(1);
            let heartbeats = keep_alive(&shared);
            coordinator.break_down();
            std::future::pending::<()>().await;
            drop(heartbeats);
        });
    }
}
