//! Sending a Fetch request and waiting for its response.

use std::rc::Rc;

use ottla_protocol::messages::fetch::{FetchRequest, FetchResponse};

use super::budget::Reservation;
use super::core::action::FetchSpec;
use super::offsets::isolation_code;
use crate::cluster::Cluster;
use crate::cluster::brokers::Lane;
use crate::error::Error;
use crate::timer::wire_ms;

/// Sends a fetch and returns its response, which is read into the reserved memory.
pub(super) async fn send_fetch(
    cluster: &Rc<Cluster>,
    spec: FetchSpec,
    reservation: Rc<Reservation>,
) -> Result<FetchResponse, Error> {
    let config = &cluster.config;
    let FetchSpec { node, outside_session, wait, records_bytes, unanswered, request, .. } = spec;
    // A broker answers a connection's requests in order, so the other fetch would wait for the long poll.
    let lane = if outside_session { Lane::FetchMore } else { Lane::Fetch };
    let connection = cluster.brokers.connection(node, lane).await?;
    let version_max = request.version_max;
    let make = |_| FetchRequest {
        max_wait_ms: wire_ms(wait),
        min_bytes: config.fetch_min_bytes as i32,
        max_bytes: records_bytes as i32,
        isolation_level: isolation_code(config.isolation_level),
        session_id: request.id,
        session_epoch: request.epoch,
        topics: request.topics,
        forgotten_topics_data: request.forgotten,
        rack_id: config.client_rack.clone(),
        ..Default::default()
    };
    let pending = connection.begin_in(version_max, make, Some(reservation.clone()))?;
    let response = pending.answer(config.socket_timeout + wait);
    tokio::pin!(response);
    if let Some(patience) = config.patience(unanswered) {
        let patience = patience + wait;
        match connection.answered_within(patience, response.as_mut()).await {
            Some(result) => return result,
            None if !reservation.is_begun() => {
                cluster.brokers.note_silence(connection.address());
                return Err(connection.give_up("Fetch", patience));
            }
            // The response is arriving; a large one takes its time.
            None => {}
        }
    }
    response.await
}
