//! InitProducerId: an id for an idempotent producer (KIP-98).

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::init_producer_id::{InitProducerIdRequest, InitProducerIdResponse};

use super::{Api, Asked};

impl Api for InitProducerIdRequest {
    async fn handle(self, asked: Asked) -> InitProducerIdResponse {
        if self.transactional_id.is_some() {
            // There is no coordinator for transactions here: a client that asks is told so, and does not retry.
            return self.refuse(&asked, ErrorCode::TransactionalIdAuthorizationFailed);
        }
        match asked.cluster().next_producer_id() {
            Ok(producer_id) => {
                InitProducerIdResponse { producer_id, producer_epoch: 0, ..Default::default() }
            }
            Err(error) => {
                tracing::error!(%error, "producer id");
                self.refuse(&asked, ErrorCode::CoordinatorNotAvailable)
            }
        }
    }

    fn refuse(self, _asked: &Asked, code: ErrorCode) -> InitProducerIdResponse {
        InitProducerIdResponse { error_code: code, producer_epoch: -1, ..Default::default() }
    }
}
