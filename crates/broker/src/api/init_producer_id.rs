//! InitProducerId: an id for an idempotent producer (KIP-98).

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::init_producer_id::{InitProducerIdRequest, InitProducerIdResponse};

use super::{Api, Asked};

impl Api for InitProducerIdRequest {
    async fn handle(self, asked: Asked) -> InitProducerIdResponse {
        if self.transactional_id.is_some() {
            // Final for every client: an error that passes would be retried, one about rights sends people to ACLs.
            asked.context.warn_missing("transactions");
            return self.refuse(&asked, ErrorCode::UnsupportedVersion);
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
