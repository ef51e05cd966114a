//! AddPartitionsToTxn: announces the partitions that a transaction will write to, or verifies that it has announced them.
//!
//! Versions up to 3 are those of producers. From 4 on, brokers ask for several transactions at once (KIP-890).

use std::collections::BTreeMap;

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::add_partitions_to_txn::{
    AddPartitionsToTxnPartitionResult, AddPartitionsToTxnRequest, AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult, AddPartitionsToTxnTopic, AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
};

use super::transactional::{check_coordinator, client_version, known_code, producer};
use super::{Api, RequestContext};
use crate::internal_topics::is_internal;
use crate::transactions::metadata::TopicPartition;

/// The first version for several transactions.
pub(super) const BATCHED_FROM: i16 = 4;
/// From this version on, clients know TRANSACTION_ABORTABLE.
const KNOWS_ABORTABLE_FROM: i16 = 5;
/// From this version on, clients know PRODUCER_FENCED.
const KNOWS_FENCED_FROM: i16 = 2;

impl Api for AddPartitionsToTxnRequest {
    async fn handle(self, context: RequestContext) -> AddPartitionsToTxnResponse {
        if context.version >= BATCHED_FROM {
            let mut results = Vec::with_capacity(self.transactions.len());
            for transaction in self.transactions {
                let topic_results = add(&context, &transaction).await;
                let transactional_id = transaction.transactional_id;
                results.push(AddPartitionsToTxnResult { transactional_id, topic_results });
            }
            return AddPartitionsToTxnResponse { results_by_transaction: results, ..Default::default() };
        }
        let transaction = AddPartitionsToTxnTransaction {
            transactional_id: self.v3_and_below_transactional_id,
            producer_id: self.v3_and_below_producer_id,
            producer_epoch: self.v3_and_below_producer_epoch,
            verify_only: false,
            topics: self.v3_and_below_topics,
        };
        let topics = add(&context, &transaction).await;
        AddPartitionsToTxnResponse { results_by_topic_v3_and_below: topics, ..Default::default() }
    }

    fn refuse(self, context: &RequestContext, code: ErrorCode) -> AddPartitionsToTxnResponse {
        if context.version >= BATCHED_FROM {
            return AddPartitionsToTxnResponse { error_code: code, ..Default::default() };
        }
        let topics = results(&self.v3_and_below_topics, |_, _| code);
        AddPartitionsToTxnResponse { results_by_topic_v3_and_below: topics, ..Default::default() }
    }
}

async fn add(
    context: &RequestContext,
    transaction: &AddPartitionsToTxnTransaction,
) -> Vec<AddPartitionsToTxnTopicResult> {
    let AddPartitionsToTxnTransaction { transactional_id: id, topics, .. } = transaction;
    let all = |code: ErrorCode| {
        let code = known_code(code, context.version, KNOWS_FENCED_FROM);
        results(topics, |_, _| code)
    };
    if let Err(code) = check_coordinator(context, id) {
        return all(code);
    }
    let cluster = context.cluster();
    let mut partitions = Vec::new();
    let mut missing: BTreeMap<(&str, i32), ErrorCode> = BTreeMap::new();
    for topic in topics {
        let known = cluster.topic(&topic.name);
        let error = cluster.overrides.topic_error(&topic.name);
        // As in Kafka, producers cannot write to the topics of the coordinators. The versions of brokers are trusted.
        let is_forbidden = context.version < BATCHED_FROM && is_internal(&topic.name);
        for index in &topic.partitions {
            let exists = known.as_ref().filter(|known| (0..known.partitions.len() as i32).contains(index));
            match exists {
                _ if is_forbidden => {
                    missing.insert((&topic.name, *index), ErrorCode::TopicAuthorizationFailed);
                }
                Some(_) if error != ErrorCode::None => {
                    missing.insert((&topic.name, *index), error);
                }
                Some(known) => {
                    partitions.push(TopicPartition { topic: known.name.clone(), index: *index });
                }
                None => {
                    missing.insert((&topic.name, *index), ErrorCode::UnknownTopicOrPartition);
                }
            }
        }
    }
    if !missing.is_empty() {
        // All or nothing: the transaction stays as it is.
        let code = |topic: &str, index| {
            missing.get(&(topic, index)).copied().unwrap_or(ErrorCode::OperationNotAttempted)
        };
        return results(topics, code);
    }
    let producer = producer(transaction.producer_id, transaction.producer_epoch);
    if transaction.verify_only {
        return results(topics, |topic, index| {
            let partition = TopicPartition { topic: topic.into(), index };
            let code =
                cluster.verify_in_transaction(id, producer, &partition).err().unwrap_or(ErrorCode::None);
            match code {
                ErrorCode::TransactionAbortable if context.version < KNOWS_ABORTABLE_FROM => {
                    ErrorCode::InvalidTxnState
                }
                code => code,
            }
        });
    }
    let version = client_version(context.version, BATCHED_FROM);
    match cluster.add_to_transaction(id, producer, &partitions, version).await {
        Ok(()) => all(ErrorCode::None),
        Err(code) => all(code),
    }
}

pub(super) fn results(
    topics: &[AddPartitionsToTxnTopic],
    code: impl Fn(&str, i32) -> ErrorCode,
) -> Vec<AddPartitionsToTxnTopicResult> {
    let of_topic = |topic: &AddPartitionsToTxnTopic| {
        let of_partition = |index: &i32| AddPartitionsToTxnPartitionResult {
            partition_index: *index,
            partition_error_code: code(&topic.name, *index),
        };
        let results_by_partition = topic.partitions.iter().map(of_partition).collect();
        AddPartitionsToTxnTopicResult { name: topic.name.clone(), results_by_partition }
    };
    topics.iter().map(of_topic).collect()
}
