//! AddOffsetsToTxn: announces the group whose offsets a transaction will commit.

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::add_offsets_to_txn::{AddOffsetsToTxnRequest, AddOffsetsToTxnResponse};

use super::transactional::{check_coordinator, known_code, producer};
use super::{Api, RequestContext};
use crate::internal_topics::InternalTopic;
use crate::transactions::metadata::{TopicPartition, TransactionVersion};

/// From this version on, clients know PRODUCER_FENCED.
const KNOWS_FENCED_FROM: i16 = 2;

impl Api for AddOffsetsToTxnRequest {
    async fn handle(self, context: RequestContext) -> AddOffsetsToTxnResponse {
        let code = add(&self, &context).await.err().unwrap_or(ErrorCode::None);
        let code = known_code(code, context.version, KNOWS_FENCED_FROM);
        self.refuse(&context, code)
    }

    fn refuse(self, _context: &RequestContext, code: ErrorCode) -> AddOffsetsToTxnResponse {
        AddOffsetsToTxnResponse { error_code: code, ..Default::default() }
    }
}

/// Adds the partition that has the group's offsets.
async fn add(request: &AddOffsetsToTxnRequest, context: &RequestContext) -> Result<(), ErrorCode> {
    let AddOffsetsToTxnRequest { transactional_id: id, group_id, .. } = request;
    if group_id.is_empty() {
        return Err(ErrorCode::InvalidGroupId);
    }
    check_coordinator(context, id)?;
    let cluster = context.cluster();
    let offsets = cluster.coordinator_partition(InternalTopic::ConsumerOffsets, group_id).await?;
    let partition = TopicPartition { topic: offsets.topic.clone(), index: offsets.index };
    let producer = producer(request.producer_id, request.producer_epoch);
    cluster.add_to_transaction(id, producer, &[partition], TransactionVersion::V0).await
}
