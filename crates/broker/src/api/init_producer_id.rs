//! InitProducerId: an id for an idempotent producer (KIP-98).

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::init_producer_id::{InitProducerIdRequest, InitProducerIdResponse};

use super::{Api, RequestContext};

impl Api for InitProducerIdRequest {
    async fn handle(self, context: RequestContext) -> InitProducerIdResponse {
        if self.transactional_id.is_some() {
            // Final for every client: an error that passes would be retried, one about rights sends people to ACLs.
            context.connection.warn_missing("transactions");
            return self.refuse(&context, ErrorCode::UnsupportedVersion);
        }
        match context.cluster().next_producer_id().await {
            Ok(producer_id) => {
                InitProducerIdResponse { producer_id, producer_epoch: 0, ..Default::default() }
            }
            Err(error) => {
                tracing::error!(%error, "cannot reserve producer ids");
                self.refuse(&context, ErrorCode::CoordinatorNotAvailable)
            }
        }
    }

    fn refuse(self, _context: &RequestContext, code: ErrorCode) -> InitProducerIdResponse {
        InitProducerIdResponse { error_code: code, producer_epoch: -1, ..Default::default() }
    }
}
