//! EndTxn: commits or aborts a transaction. The answer comes when the decision is durable; the markers follow.

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::end_txn::{EndTxnRequest, EndTxnResponse};

use super::transactional::{check_coordinator, client_version, known_code, producer};
use super::{Api, RequestContext};
use crate::transactions::metadata::ProducerIdentity;

/// From this version on, each end has a new epoch (KIP-890).
const BUMPS_EPOCH_FROM: i16 = 5;
/// From this version on, clients know PRODUCER_FENCED.
const KNOWS_FENCED_FROM: i16 = 2;

impl Api for EndTxnRequest {
    async fn handle(self, context: RequestContext) -> EndTxnResponse {
        match end(&self, &context).await {
            Ok(producer) if context.version >= BUMPS_EPOCH_FROM => EndTxnResponse {
                producer_id: producer.id,
                producer_epoch: producer.epoch,
                ..Default::default()
            },
            Ok(_) => EndTxnResponse::default(),
            Err(code) => {
                let code = known_code(code, context.version, KNOWS_FENCED_FROM);
                self.refuse(&context, code)
            }
        }
    }

    fn refuse(self, _context: &RequestContext, code: ErrorCode) -> EndTxnResponse {
        EndTxnResponse { error_code: code, ..Default::default() }
    }
}

async fn end(request: &EndTxnRequest, context: &RequestContext) -> Result<ProducerIdentity, ErrorCode> {
    let EndTxnRequest { transactional_id: id, producer_id, producer_epoch, committed } = request;
    check_coordinator(context, id)?;
    let version = client_version(context.version, BUMPS_EPOCH_FROM);
    let producer = producer(*producer_id, *producer_epoch);
    context.cluster().end_transaction_of(id, producer, *committed, version).await
}
