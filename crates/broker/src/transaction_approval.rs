//! The coordinator's approval of the first batch of a transaction in a partition (KIP-890).

use std::sync::Arc;

use ottla_protocol::ErrorCode;

use crate::cluster::Cluster;

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
    /// Returns `true` if a coordinator can approve transactions: without one, transactional requests are refused.
    pub(crate) fn approves_transactions(&self) -> bool {
        self.overrides.approves_transactions()
    }

    /// Asks the coordinator whether the partitions belong to the transaction. One result for each partition, in order.
    ///
    /// The caller has taken the guards of the partitions before: a marker that is appended meanwhile makes them invalid.
    #[expect(clippy::unused_async, reason = "the coordinator waits for its log")]
    pub(crate) async fn approve_transaction(&self, request: ApprovalRequest) -> Vec<Result<(), ErrorCode>> {
        let ApprovalRequest { transactional_id, producer_id, producer_epoch, partitions, .. } = request;
        tracing::debug!(transactional_id, producer_id, producer_epoch, "a test approves a transaction");
        vec![Ok(()); partitions.len()]
    }
}
