//! Sending the requests of share sessions.

use std::rc::Rc;
use std::time::Duration;

use ottla_protocol::messages::share_acknowledge::{ShareAcknowledgeRequest, ShareAcknowledgeResponse};
use ottla_protocol::messages::share_fetch::{ShareFetchRequest, ShareFetchResponse};

use tokio::time::Instant;

use super::core::{AcknowledgeRequest, FetchRequest};
use crate::cluster::Cluster;
use crate::cluster::brokers::Lane;
use crate::config::ShareAcquireMode;
use crate::error::Error;
use crate::fetch::budget::Reservation;
use crate::timer::wire_ms;

const FETCH_VERSION_MAX: i16 = 2;
const ACKNOWLEDGE_VERSION_MAX: i16 = 2;
/// The first version with renewals (KIP-1222).
const RENEW_VERSION: i16 = 2;

/// The identity in each request of a share session.
#[derive(Clone, Debug)]
pub(super) struct ShareIdentity {
    pub(super) group: String,
    pub(super) member_id: String,
}

/// Sends a ShareFetch and returns its response, which is read into the reserved memory.
pub(super) async fn send_fetch(
    cluster: &Cluster,
    identity: ShareIdentity,
    request: FetchRequest,
    reservation: Rc<Reservation>,
) -> Result<ShareFetchResponse, Error> {
    let config = &cluster.config;
    let FetchRequest { node, session, wait, bytes, max_records, unanswered } = request;
    let connection = cluster.brokers.connection(node, Lane::Share).await?;
    let max_records = i32::try_from(max_records).unwrap_or(i32::MAX);
    let make = |_| ShareFetchRequest {
        group_id: Some(identity.group),
        member_id: Some(identity.member_id),
        share_session_epoch: session.epoch,
        max_wait_ms: wire_ms(wait),
        min_bytes: config.fetch_min_bytes as i32,
        max_bytes: bytes as i32,
        max_records,
        batch_size: max_records,
        share_acquire_mode: match config.share_acquire_mode {
            ShareAcquireMode::BatchOptimized => 0,
            ShareAcquireMode::RecordLimit => 1,
        },
        is_renew_ack: false,
        topics: session.topics,
        forgotten_topics_data: session.forgotten,
    };
    let pending = connection.begin_in(FETCH_VERSION_MAX, make, Some(reservation.clone()))?;
    let (timeout, sent_at) = (config.socket_timeout + wait, Instant::now());
    let response = pending.answer(timeout);
    tokio::pin!(response);
    if let Some(patience) = config.patience(unanswered) {
        let patience = patience + wait;
        match connection.answered_within(patience, response.as_mut()).await {
            Some(result) => return result,
            None if !reservation.is_begun() => return Err(connection.give_up("ShareFetch", patience)),
            // The response is arriving; a large one takes its time.
            None => {}
        }
    }
    response.await.map_err(|error| timed_out(error, "ShareFetch", node, sent_at, timeout))
}

/// Sends a ShareAcknowledge and returns its response.
pub(super) async fn send_acknowledge(
    cluster: &Cluster,
    identity: ShareIdentity,
    request: AcknowledgeRequest,
) -> Result<ShareAcknowledgeResponse, Error> {
    let AcknowledgeRequest { node, session, renews } = request;
    let connection = cluster.brokers.connection(node, Lane::Share).await?;
    let version = connection.version_of::<ShareAcknowledgeRequest>(ACKNOWLEDGE_VERSION_MAX)?;
    if renews && version < RENEW_VERSION {
        return Err(Error::Unsupported {
            address: connection.address().to_owned(),
            reason: "the broker does not renew acquisition locks, which needs Apache Kafka 4.2 (KIP-1222)"
                .into(),
        });
    }
    let make = |_| ShareAcknowledgeRequest {
        group_id: Some(identity.group),
        member_id: Some(identity.member_id),
        share_session_epoch: session.epoch,
        is_renew_ack: renews,
        topics: session.topics,
    };
    let (timeout, sent_at) = (cluster.config.socket_timeout, Instant::now());
    let result = connection.call(ACKNOWLEDGE_VERSION_MAX, timeout, make).await;
    result.map_err(|error| timed_out(error, "ShareAcknowledge", node, sent_at, timeout))
}

/// The answer of a broker, unless it leaves the cluster before: then no answer may ever come.
pub(super) async fn while_listed<T>(
    cluster: &Cluster,
    node: i32,
    answer: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let mut changes = cluster.changes();
    let removed = async {
        while cluster.brokers.knows(node) {
            changes.changed().await;
        }
    };
    tokio::select! {
        biased;
        answer = answer => answer,
        () = removed => {
            let reason = "the broker has left the cluster".into();
            Err(Error::Transport { address: format!("node {node}"), reason })
        }
    }
}

/// The error of a request: the end of its time is another one than the loss of the connection.
fn timed_out(error: Error, request: &str, node: i32, sent_at: Instant, timeout: Duration) -> Error {
    let is_lost = matches!(error, Error::Transport { .. } | Error::UnknownHost { .. });
    if is_lost && sent_at.elapsed() >= timeout {
        let what = format!("{request} at node {node}");
        return Error::TimedOut { what, waited_ms: timeout.as_millis() };
    }
    error
}
