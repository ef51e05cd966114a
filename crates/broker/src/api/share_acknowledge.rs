//! ShareAcknowledge: acknowledges records that a member has acquired.

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::share_acknowledge::{
    AcknowledgementBatch, LeaderIdAndEpoch, NodeEndpoint, PartitionData, ShareAcknowledgeRequest,
    ShareAcknowledgeResponse, ShareAcknowledgeTopicResponse,
};

use super::share_sessions::{
    AckResults, RawAcks, acknowledge, close_session, current_leader, is_of_whole_request, session_of,
};
use super::{Api, RequestContext};
use crate::coordinator::share_partition::sessions::{FINAL_EPOCH, INITIAL_EPOCH, Place, SessionKey};
use crate::coordinator::share_partition::settings::settings_of;

impl Api for ShareAcknowledgeRequest {
    async fn handle(self, context: RequestContext) -> ShareAcknowledgeResponse {
        if !context.cluster().has_share_groups() {
            return ShareAcknowledgeResponse {
                error_code: ErrorCode::UnsupportedVersion,
                ..Default::default()
            };
        }
        match answer(self, &context).await {
            Ok(response) => response,
            Err(error_code) => ShareAcknowledgeResponse { error_code, ..Default::default() },
        }
    }

    /// Every partition of the request has the error. The session continues.
    fn refuse(self, context: &RequestContext, code: ErrorCode) -> ShareAcknowledgeResponse {
        let whole = |error_code| ShareAcknowledgeResponse { error_code, ..Default::default() };
        if is_of_whole_request(code) {
            return whole(code);
        }
        if let Err(code) = continued_session(&self, context) {
            return whole(code);
        }
        // librdkafka's mock cluster has the error in both places.
        let is_mock = context.cluster().overrides.mock_fetches();
        let mut response = whole(if is_mock { code } else { ErrorCode::None });
        let places = self.topics.iter().flat_map(|topic| {
            topic.partitions.iter().map(|partition| (topic.topic_id, partition.partition_index))
        });
        add_results(&mut response, context, places.map(|place| (place, code)).collect());
        response
    }
}

/// Continues the session of a request, which exists already.
fn continued_session(
    request: &ShareAcknowledgeRequest,
    context: &RequestContext,
) -> Result<SessionKey, ErrorCode> {
    let epoch = request.share_session_epoch;
    let session = session_of(context, request.group_id.as_deref(), request.member_id.as_deref(), epoch)?;
    if epoch == INITIAL_EPOCH {
        // It acknowledges nothing that a new session could have.
        return Err(ErrorCode::InvalidShareSessionEpoch);
    }
    context.cluster().share_leader.with_sessions(|sessions| match epoch {
        FINAL_EPOCH if sessions.contains(&session) => Ok(()),
        FINAL_EPOCH => Err(ErrorCode::ShareSessionNotFound),
        epoch => sessions.advance(&session, epoch),
    })?;
    Ok(session)
}

async fn answer(
    request: ShareAcknowledgeRequest,
    context: &RequestContext,
) -> Result<ShareAcknowledgeResponse, ErrorCode> {
    let epoch = request.share_session_epoch;
    let session = continued_session(&request, context)?;
    let cluster = context.cluster();
    let settings = settings_of(cluster, &session.group);
    let acks = request.topics.into_iter().flat_map(|topic| {
        let of_topic = topic.partitions.into_iter();
        of_topic.map(move |partition| {
            let place = (topic.topic_id, partition.partition_index);
            (place, partition.acknowledgement_batches.into_iter().map(raw).collect())
        })
    });
    let acks: Vec<(Place, Vec<RawAcks>)> = acks.collect();
    let results = acknowledge(context, &session, &settings, acks, request.is_renew_ack).await;
    if epoch == FINAL_EPOCH {
        close_session(context, &session).await?;
    }
    let lock_ms = i32::try_from(settings.limits.lock_duration.as_millis()).unwrap_or(i32::MAX);
    let mut response =
        ShareAcknowledgeResponse { acquisition_lock_timeout_ms: lock_ms, ..Default::default() };
    add_results(&mut response, context, results);
    Ok(response)
}

fn raw(batch: AcknowledgementBatch) -> RawAcks {
    RawAcks { first: batch.first_offset, last: batch.last_offset, types: batch.acknowledge_types }
}

fn add_results(response: &mut ShareAcknowledgeResponse, context: &RequestContext, results: AckResults) {
    for (place, error_code) in results {
        let mut data = PartitionData { partition_index: place.1, error_code, ..Default::default() };
        if let Some((leader_id, leader_epoch)) = current_leader(context, place, error_code) {
            data.current_leader = LeaderIdAndEpoch { leader_id, leader_epoch };
            let known = response.node_endpoints.iter().any(|endpoint| endpoint.node_id == leader_id);
            if let Some(node) = context.cluster().node(leader_id).filter(|_| !known) {
                let (host, port) = context.address_of(node);
                let (port, rack) = (i32::from(port), context.cluster().rack(leader_id));
                response.node_endpoints.push(NodeEndpoint { node_id: leader_id, host, port, rack });
            }
        }
        match response.responses.last_mut().filter(|topic| topic.topic_id == place.0) {
            Some(topic) => topic.partitions.push(data),
            None => response
                .responses
                .push(ShareAcknowledgeTopicResponse { topic_id: place.0, partitions: vec![data] }),
        }
    }
}
