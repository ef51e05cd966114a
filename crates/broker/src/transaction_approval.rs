//! The coordinator's approval of the first batch of a transaction in a partition (KIP-890).

use std::sync::Arc;

use ottla_protocol::ErrorCode;

use crate::cluster::Cluster;
use crate::internal_topics::InternalTopic;
use crate::transactions::metadata::{ProducerIdentity, TopicPartition, TransactionVersion};

/// The partitions of a transactional Produce request whose logs have no open transaction of its producer.
#[derive(Clone, Debug)]
pub(crate) struct ApprovalRequest {
    pub(crate) transactional_id: String,
    pub(crate) producer_id: i64,
    pub(crate) producer_epoch: i16,
    /// Topics and partitions.
    pub(crate) partitions: Vec<(Arc<str>, i32)>,
    /// `true` if the coordinator adds the partitions to the transaction (Produce from version 12 on); otherwise they must be
    /// in it.
    pub(crate) adds_partitions: bool,
    /// `true` if the producer knows the error `TRANSACTION_ABORTABLE` (Produce from version 11 on).
    pub(crate) knows_abortable: bool,
}

impl Cluster {
    /// Asks the coordinator whether the partitions belong to the transaction. One result for each partition, in order.
    ///
    /// The caller has taken the guards of the partitions before: a marker that is appended meanwhile makes them invalid. It may
    /// be that of the transaction before, which the coordinator completes first: the caller then takes guards and asks again.
    pub(crate) async fn approve_transaction(
        self: &Arc<Self>,
        request: ApprovalRequest,
    ) -> Vec<Result<(), ErrorCode>> {
        let ApprovalRequest { transactional_id: id, producer_id, producer_epoch, partitions, .. } = &request;
        if self.overrides.approves_transactions() {
            return vec![Ok(()); partitions.len()];
        }
        let producer = ProducerIdentity { id: *producer_id, epoch: *producer_epoch };
        let partitions: Vec<TopicPartition> = partitions
            .iter()
            .map(|(topic, index)| TopicPartition { topic: topic.clone(), index: *index })
            .collect();
        let code = |code| denial(code, request.adds_partitions, request.knows_abortable);
        if request.adds_partitions {
            let added = self.add_to_transaction(id, producer, &partitions, TransactionVersion::V2).await;
            return vec![added.map_err(code); partitions.len()];
        }
        let verify = |partition| self.verify_in_transaction(id, producer, partition).map_err(code);
        partitions.iter().map(verify).collect()
    }
}

impl Cluster {
    /// Returns the retriable or final error of a partition that is not in the producer's open transaction.
    pub(crate) fn check_open(
        &self,
        id: &str,
        producer: ProducerIdentity,
        partition: &TopicPartition,
    ) -> Result<(), ErrorCode> {
        if self.overrides.approves_transactions() {
            return Ok(());
        }
        self.verify_in_transaction(id, producer, partition).map_err(|code| denial(code, true, true))
    }

    /// Returns `Ok` if the partition belongs to the producer's ongoing transaction.
    ///
    /// # Errors
    /// COORDINATOR_NOT_AVAILABLE if the id's partition of `__transaction_state` is offline: its transactions are not known.
    pub(crate) fn verify_in_transaction(
        &self,
        id: &str,
        producer: ProducerIdentity,
        partition: &TopicPartition,
    ) -> Result<(), ErrorCode> {
        let coordinated = self.internal_partition(InternalTopic::TransactionState, id);
        if coordinated.is_some_and(|partition| partition.unavailable().is_some()) {
            return Err(ErrorCode::CoordinatorNotAvailable);
        }
        self.transactions.verify(id, producer, partition)
    }
}

/// The error of a Produce response. Producers do not know the codes of coordinators there.
fn denial(code: ErrorCode, adds_partitions: bool, knows_abortable: bool) -> ErrorCode {
    match code {
        ErrorCode::ProducerFenced => ErrorCode::InvalidProducerEpoch,
        ErrorCode::TransactionAbortable if !knows_abortable => ErrorCode::InvalidTxnState,
        ErrorCode::ConcurrentTransactions if adds_partitions => code,
        // Kafka: an error that every producer retries, without a refresh of its metadata.
        ErrorCode::ConcurrentTransactions
        | ErrorCode::CoordinatorLoadInProgress
        | ErrorCode::CoordinatorNotAvailable
        | ErrorCode::NotCoordinator => ErrorCode::NotEnoughReplicas,
        code => code,
    }
}
