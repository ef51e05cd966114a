//! InitProducerId: an id for an idempotent producer (KIP-98), or the epoch of a transactional one.

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::init_producer_id::{InitProducerIdRequest, InitProducerIdResponse};

use super::transactional::{check_coordinator, known_code, producer};
use super::{Api, RequestContext};
use crate::transactions::metadata::ProducerIdentity;

/// From this version on, clients know PRODUCER_FENCED.
const KNOWS_FENCED_FROM: i16 = 4;

impl Api for InitProducerIdRequest {
    async fn handle(self, context: RequestContext) -> InitProducerIdResponse {
        let result = match (expected(&self), &self.transactional_id) {
            (Err(code), _) => Err(code),
            (Ok(expected), Some(id)) => init(&self, &context, id, expected).await,
            (Ok(_), None) => idempotent(&context).await,
        };
        match result {
            Ok(ProducerIdentity { id, epoch }) => {
                InitProducerIdResponse { producer_id: id, producer_epoch: epoch, ..Default::default() }
            }
            Err(code) => {
                let code = known_code(code, context.version, KNOWS_FENCED_FROM);
                self.refuse(&context, code)
            }
        }
    }

    fn refuse(self, _context: &RequestContext, code: ErrorCode) -> InitProducerIdResponse {
        InitProducerIdResponse { error_code: code, producer_epoch: -1, ..Default::default() }
    }
}

/// The id and epoch that the producer has; `None` for a new one.
fn expected(request: &InitProducerIdRequest) -> Result<Option<ProducerIdentity>, ErrorCode> {
    match (request.producer_id, request.producer_epoch) {
        (-1, -1) => Ok(None),
        (-1, _) | (_, -1) => Err(ErrorCode::InvalidRequest),
        (id, epoch) => Ok(Some(producer(id, epoch))),
    }
}

async fn idempotent(context: &RequestContext) -> Result<ProducerIdentity, ErrorCode> {
    match context.cluster().next_producer_id().await {
        Ok(id) => Ok(producer(id, 0)),
        Err(error) => {
            tracing::error!(%error, "cannot reserve producer ids");
            Err(ErrorCode::CoordinatorNotAvailable)
        }
    }
}

async fn init(
    request: &InitProducerIdRequest,
    context: &RequestContext,
    id: &str,
    expected: Option<ProducerIdentity>,
) -> Result<ProducerIdentity, ErrorCode> {
    check_coordinator(context, id)?;
    let timeout_ms = request.transaction_timeout_ms;
    context.cluster().init_transactional_producer(id, timeout_ms, expected).await
}
