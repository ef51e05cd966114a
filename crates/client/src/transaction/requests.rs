//! The requests of transactional calls. Each call can be dropped at any await and repeated: the machine stores a
//! decision before the next request is sent.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use ottla_protocol::messages::add_offsets_to_txn::AddOffsetsToTxnRequest;
use ottla_protocol::messages::add_partitions_to_txn::{AddPartitionsToTxnRequest, AddPartitionsToTxnTopic};
use ottla_protocol::messages::end_txn::EndTxnRequest;
use ottla_protocol::messages::init_producer_id::InitProducerIdRequest;
use ottla_protocol::messages::txn_offset_commit::{
    TxnOffsetCommitRequest, TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic,
};

use super::Transactions;
use super::coordinator_calls::{Coordinates, CoordinatorCalls, of_group, of_transaction};
use super::error_table::{TransactionProtocol, TxnRequest};
use super::machine::Machine;
use crate::cluster::Cluster;
use crate::cluster::brokers::TRANSACTION_VERSION;
use crate::error::transaction::TransactionError;
use crate::timer::wire_ms;
use crate::types::producer_id::ProducerId;
use crate::types::{GroupMetadata, OffsetAndMetadata, TopicPartition};

/// Version 6 adds two-phase commit.
const INIT_PRODUCER_ID_VERSION_MAX: i16 = 5;
/// The first version of InitProducerId with the producer's own id and epoch (KIP-360).
const KNOWN_EPOCH_VERSION: i16 = 3;
/// Versions from 4 on are for brokers only.
const ADD_PARTITIONS_VERSION_MAX: i16 = 3;
const ADD_OFFSETS_VERSION_MAX: i16 = 4;
/// The first version of TxnOffsetCommit with the leader epoch.
const LEADER_EPOCH_VERSION: i16 = 2;

/// Prepares a transaction for batches to these partitions: requests an epoch and adds the partitions.
pub(crate) async fn prepare(
    cluster: &Rc<Cluster>,
    transactions: &Transactions,
    partitions: BTreeMap<Arc<str>, Vec<i32>>,
) -> Result<(), TransactionError> {
    let calls = CoordinatorCalls { cluster, transactions, goes_on: Machine::sends };
    ensure_epoch(&calls).await?;
    if !partitions.is_empty() {
        transactions.update(Machine::touch);
        add_partitions(&calls, &partitions).await?;
    }
    Ok(())
}

pub(crate) async fn ensure_epoch(calls: &CoordinatorCalls<'_>) -> Result<(), TransactionError> {
    let _one_asks = calls.transactions.epoch.lock().await;
    if calls.transactions.update(|machine| machine.needs_epoch()) {
        take_epoch(calls).await?;
    }
    Ok(())
}

/// Requests a higher epoch from the coordinator, which also aborts an open transaction of this id.
pub(crate) async fn take_epoch(calls: &CoordinatorCalls<'_>) -> Result<(), TransactionError> {
    let (id, whose) = names(calls);
    let timeout = calls.cluster.config.transaction_timeout;
    let make = |version: i16| {
        let mut request = InitProducerIdRequest {
            transactional_id: Some(id.clone()),
            transaction_timeout_ms: wire_ms(timeout),
            ..Default::default()
        };
        let known = calls.transactions.update(|machine| machine.epoch_of());
        // Brokers before 2.5 raise the epoch of the transactional id, whatever the producer's own is.
        if let Some(known) = known.filter(|_| version >= KNOWN_EPOCH_VERSION) {
            (request.producer_id, request.producer_epoch) = (known.id, known.epoch);
        }
        request
    };
    let call =
        calls.call(TxnRequest::InitProducerId, &whose, INIT_PRODUCER_ID_VERSION_MAX, make, |response| {
            vec![response.error_code]
        });
    let (response, connection) = call.await?;
    let producer = ProducerId { id: response.producer_id, epoch: response.producer_epoch };
    let level = connection.feature(TRANSACTION_VERSION).unwrap_or(0);
    let protocol = TransactionProtocol::at_level(level);
    tracing::debug!(id, ?producer, ?protocol, "producer epoch");
    calls.transactions.update(|machine| machine.initialized(producer, protocol));
    Ok(())
}

async fn add_partitions(
    calls: &CoordinatorCalls<'_>,
    partitions: &BTreeMap<Arc<str>, Vec<i32>>,
) -> Result<(), TransactionError> {
    let (id, whose) = names(calls);
    let make = |_version: i16| {
        let producer = calls.transactions.update(|machine| machine.producer());
        AddPartitionsToTxnRequest {
            v3_and_below_transactional_id: id.clone(),
            v3_and_below_producer_id: producer.id,
            v3_and_below_producer_epoch: producer.epoch,
            v3_and_below_topics: partitions
                .iter()
                .map(|(name, indexes)| AddPartitionsToTxnTopic {
                    name: name.to_string(),
                    partitions: indexes.clone(),
                })
                .collect(),
            ..Default::default()
        }
    };
    let call = calls.call(TxnRequest::AddPartitions, &whose, ADD_PARTITIONS_VERSION_MAX, make, |response| {
        let topics = response.results_by_topic_v3_and_below.iter();
        topics
            .flat_map(|topic| &topic.results_by_partition)
            .map(|result| result.partition_error_code)
            .collect()
    });
    call.await?;
    calls.transactions.update(Machine::added);
    Ok(())
}

pub(crate) async fn add_offsets(
    calls: &CoordinatorCalls<'_>,
    group: &GroupMetadata,
) -> Result<(), TransactionError> {
    let (id, whose) = names(calls);
    let make = |_version: i16| {
        let producer = calls.transactions.update(|machine| machine.producer());
        AddOffsetsToTxnRequest {
            transactional_id: id.clone(),
            producer_id: producer.id,
            producer_epoch: producer.epoch,
            group_id: group.group_id.clone(),
        }
    };
    let call = calls.call(TxnRequest::AddOffsets, &whose, ADD_OFFSETS_VERSION_MAX, make, |response| {
        vec![response.error_code]
    });
    call.await?;
    calls.transactions.update(Machine::added);
    Ok(())
}

pub(crate) async fn commit_offsets(
    calls: &CoordinatorCalls<'_>,
    offsets: &BTreeMap<TopicPartition, OffsetAndMetadata>,
    group: &GroupMetadata,
) -> Result<(), TransactionError> {
    let (id, _) = names(calls);
    // From version 5 on, the group's coordinator adds itself to the transaction.
    let version_max = match calls.transactions.view().protocol {
        TransactionProtocol::V1 => 4,
        TransactionProtocol::V2 => 5,
    };
    let make = |version: i16| {
        let producer = calls.transactions.update(|machine| machine.producer());
        let mut request = TxnOffsetCommitRequest {
            transactional_id: id.clone(),
            group_id: group.group_id.clone(),
            producer_id: producer.id,
            producer_epoch: producer.epoch,
            topics: by_topic(offsets, version),
            ..Default::default()
        };
        // Brokers before 2.5 do not check the member.
        if version >= 3 {
            request.generation_id = group.generation;
            request.member_id.clone_from(&group.member_id);
            request.group_instance_id.clone_from(&group.instance_id);
        }
        request
    };
    let whose = of_group(&group.group_id);
    let call = calls.call(TxnRequest::CommitOffsets, &whose, version_max, make, |response| {
        let topics = response.topics.iter();
        topics.flat_map(|topic| &topic.partitions).map(|partition| partition.error_code).collect()
    });
    call.await?;
    calls.transactions.update(Machine::added);
    Ok(())
}

fn by_topic(
    offsets: &BTreeMap<TopicPartition, OffsetAndMetadata>,
    version: i16,
) -> Vec<TxnOffsetCommitRequestTopic> {
    let mut topics: Vec<TxnOffsetCommitRequestTopic> = Vec::new();
    for (at, offset) in offsets {
        let partition = TxnOffsetCommitRequestPartition {
            partition_index: at.partition,
            committed_offset: offset.offset,
            committed_leader_epoch: offset
                .leader_epoch
                .filter(|_| version >= LEADER_EPOCH_VERSION)
                .unwrap_or(-1),
            committed_metadata: Some(offset.metadata.clone()),
        };
        // The map is sorted, so a topic's partitions are adjacent.
        match topics.last_mut().filter(|topic| topic.name == *at.topic) {
            Some(topic) => topic.partitions.push(partition),
            None => topics.push(TxnOffsetCommitRequestTopic {
                name: at.topic.to_string(),
                partitions: vec![partition],
            }),
        }
    }
    topics
}

/// Ends the transaction. Returns what [`Machine::ended`] needs: the next producer id and epoch, if the response has them.
pub(crate) async fn end(
    calls: &CoordinatorCalls<'_>,
    how: TxnRequest,
) -> Result<Option<ProducerId>, TransactionError> {
    let (id, whose) = names(calls);
    // From version 5 on, the response contains the next epoch.
    let version_max = match calls.transactions.view().protocol {
        TransactionProtocol::V1 => 4,
        TransactionProtocol::V2 => 5,
    };
    let make = |_version: i16| {
        let producer = calls.transactions.update(|machine| machine.producer());
        EndTxnRequest {
            transactional_id: id.clone(),
            producer_id: producer.id,
            producer_epoch: producer.epoch,
            committed: how == TxnRequest::Commit,
        }
    };
    let call = calls.call(how, &whose, version_max, make, |response| vec![response.error_code]);
    let (response, _) = call.await?;
    let next = ProducerId { id: response.producer_id, epoch: response.producer_epoch };
    Ok((next.id >= 0).then_some(next))
}

fn names(calls: &CoordinatorCalls<'_>) -> (String, Coordinates) {
    let id = calls.transactions.id.as_deref().unwrap_or_default();
    (id.to_owned(), of_transaction(id))
}
