//! The topics that a request names, for the faults of tests.

use std::any::Any;

use ottla_protocol::Uuid;
use ottla_protocol::messages::add_partitions_to_txn::AddPartitionsToTxnRequest;
use ottla_protocol::messages::create_partitions::CreatePartitionsRequest;
use ottla_protocol::messages::create_topics::CreateTopicsRequest;
use ottla_protocol::messages::delete_records::DeleteRecordsRequest;
use ottla_protocol::messages::delete_topics::DeleteTopicsRequest;
use ottla_protocol::messages::fetch::FetchRequest;
use ottla_protocol::messages::list_offsets::ListOffsetsRequest;
use ottla_protocol::messages::metadata::MetadataRequest;
use ottla_protocol::messages::offset_commit::OffsetCommitRequest;
use ottla_protocol::messages::offset_delete::OffsetDeleteRequest;
use ottla_protocol::messages::offset_fetch::OffsetFetchRequest;
use ottla_protocol::messages::offset_for_leader_epoch::OffsetForLeaderEpochRequest;
use ottla_protocol::messages::produce::ProduceRequest;
use ottla_protocol::messages::txn_offset_commit::TxnOffsetCommitRequest;

use crate::cluster::Cluster;

/// Returns `true` if a request names this topic, by name or by id. A request for all topics names each.
pub(crate) fn names_topic(
    request: &dyn Any,
    version: i16,
    cluster: &Cluster,
    node: i32,
    topic: &str,
) -> bool {
    let id = cluster.topic(topic).map_or(Uuid::ZERO, |topic| topic.id);
    let is = |name: &str, of: Uuid| name == topic || (of == id && id != Uuid::ZERO);
    let by_name = |name: &String| name == topic;
    if let Some(request) = request.downcast_ref::<ProduceRequest>() {
        return request.topic_data.iter().any(|data| is(&data.name, data.topic_id));
    }
    if let Some(request) = request.downcast_ref::<FetchRequest>() {
        return request.topics.iter().any(|fetched| is(&fetched.topic, fetched.topic_id))
            || cluster.node(node).is_some_and(|node| node.sessions.names(request.session_id, topic, id));
    }
    if let Some(request) = request.downcast_ref::<MetadataRequest>() {
        let mut topics = request.topics.iter().flatten();
        // Before version 1 there was no null: an empty list is all topics.
        let is_all = request.topics.as_ref().is_none_or(|topics| version == 0 && topics.is_empty());
        return is_all || topics.any(|asked| is(asked.name.as_deref().unwrap_or_default(), asked.topic_id));
    }
    if let Some(request) = request.downcast_ref::<OffsetCommitRequest>() {
        return request.topics.iter().any(|committed| is(&committed.name, committed.topic_id));
    }
    if let Some(request) = request.downcast_ref::<OffsetFetchRequest>() {
        let mut groups = request.groups.iter();
        return match (&request.topics, request.groups.is_empty()) {
            (Some(topics), true) => topics.iter().any(|asked| by_name(&asked.name)),
            (None, true) => true,
            (_, false) => groups.any(|group| match &group.topics {
                Some(topics) => topics.iter().any(|asked| is(&asked.name, asked.topic_id)),
                None => true,
            }),
        };
    }
    if let Some(request) = request.downcast_ref::<DeleteTopicsRequest>() {
        let mut states = request.topics.iter();
        return request.topic_names.iter().any(by_name)
            || states.any(|state| is(state.name.as_deref().unwrap_or_default(), state.topic_id));
    }
    if let Some(request) = request.downcast_ref::<AddPartitionsToTxnRequest>() {
        let batched = request.transactions.iter().flat_map(|transaction| &transaction.topics);
        return request.v3_and_below_topics.iter().chain(batched).any(|added| by_name(&added.name));
    }
    if let Some(request) = request.downcast_ref::<ListOffsetsRequest>() {
        return request.topics.iter().any(|asked| by_name(&asked.name));
    }
    if let Some(request) = request.downcast_ref::<OffsetForLeaderEpochRequest>() {
        return request.topics.iter().any(|asked| by_name(&asked.topic));
    }
    if let Some(request) = request.downcast_ref::<TxnOffsetCommitRequest>() {
        return request.topics.iter().any(|committed| by_name(&committed.name));
    }
    if let Some(request) = request.downcast_ref::<OffsetDeleteRequest>() {
        return request.topics.iter().any(|deleted| by_name(&deleted.name));
    }
    if let Some(request) = request.downcast_ref::<DeleteRecordsRequest>() {
        return request.topics.iter().any(|deleted| by_name(&deleted.name));
    }
    if let Some(request) = request.downcast_ref::<CreateTopicsRequest>() {
        return request.topics.iter().any(|created| by_name(&created.name));
    }
    request
        .downcast_ref::<CreatePartitionsRequest>()
        .is_some_and(|request| request.topics.iter().any(|grown| by_name(&grown.name)))
}
