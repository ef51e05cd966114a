//! Requests of idempotent and transactional producers.

use std::collections::BTreeSet;

use ottla_protocol::ErrorCode;
use ottla_protocol::messages as m;
use ottla_protocol::messages::add_partitions_to_txn::{
    AddPartitionsToTxnRequest, AddPartitionsToTxnResponse,
};

use super::super::Api;
use super::super::add_partitions_to_txn::{BATCHED_FROM, results};
use super::{Access, Authorize, Verdict, items, open, take_denied, verdict, whole};
use crate::internal_topics::is_internal;
use crate::security::acl::{CLUSTER_NAME, Operation, ResourceType};

open! {
    // Filtered.
    m::list_transactions::ListTransactionsRequest,
}

whole!(m::init_producer_id::InitProducerIdRequest, |access, request| match &request.transactional_id {
    Some(id) => access.need_transactional_id(Operation::Write, id),
    // A client that may write to some topic may do so idempotently.
    None if access.authorizer.is_allowed_on_any(access.client(), Operation::Write, ResourceType::Topic) =>
        Ok(()),
    None => access.need_cluster(Operation::IdempotentWrite),
});
whole!(m::end_txn::EndTxnRequest, |access, request| {
    access.need_transactional_id(Operation::Write, &request.transactional_id)
});
whole!(m::add_offsets_to_txn::AddOffsetsToTxnRequest, |access, request| {
    let transaction = access.need_transactional_id(Operation::Write, &request.transactional_id);
    transaction.and_then(|()| access.need_group(Operation::Read, &request.group_id))
});
whole!(m::write_txn_markers::WriteTxnMarkersRequest, |access, _request| {
    let (client, alter) = (access.client(), Operation::Alter);
    let may_alter = access.authorizer.is_allowed(client, alter, ResourceType::Cluster, CLUSTER_NAME);
    if may_alter { Ok(()) } else { access.need_cluster(Operation::ClusterAction) }
});
items!(
    m::describe_transactions::DescribeTransactionsRequest,
    transactional_ids to transaction_states,
    |access, id| access.need_transactional_id(Operation::Describe, id).is_ok(),
    ErrorCode::TransactionalIdAuthorizationFailed
);

impl Authorize for AddPartitionsToTxnRequest {
    fn authorize(&mut self, access: &Access<'_>) -> Verdict<Self> {
        if access.context.version >= BATCHED_FROM {
            // Brokers send these versions.
            return verdict(access.need_cluster(Operation::ClusterAction));
        }
        if let Err(code) = access.need_transactional_id(Operation::Write, &self.v3_and_below_transactional_id)
        {
            return Verdict::Refused(code);
        }
        let may_write = |topic: &str| access.topic(Operation::Write, topic);
        let topics = &self.v3_and_below_topics;
        let denied: BTreeSet<&str> =
            topics.iter().map(|topic| topic.name.as_str()).filter(|topic| !may_write(topic)).collect();
        if denied.is_empty() {
            return Verdict::Granted;
        }
        // All or nothing: the transaction stays as it is.
        let results_by_topic_v3_and_below = results(topics, |topic, _| {
            if denied.contains(topic) || is_internal(topic) {
                ErrorCode::TopicAuthorizationFailed
            } else {
                ErrorCode::OperationNotAttempted
            }
        });
        Verdict::Answered(AddPartitionsToTxnResponse { results_by_topic_v3_and_below, ..Default::default() })
    }
}

items!(
    m::txn_offset_commit::TxnOffsetCommitRequest,
    |access, request| {
        let transaction = access.need_transactional_id(Operation::Write, &request.transactional_id);
        transaction.and_then(|()| access.need_group(Operation::Read, &request.group_id))
    },
    topics to topics,
    |access, topic| access.topic(Operation::Read, &topic.name),
    ErrorCode::TopicAuthorizationFailed
);
