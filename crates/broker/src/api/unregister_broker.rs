//! UnregisterBroker: removes a node that is down.

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::unregister_broker::{UnregisterBrokerRequest, UnregisterBrokerResponse};

use super::{Api, RequestContext};

impl Api for UnregisterBrokerRequest {
    async fn handle(self, context: RequestContext) -> UnregisterBrokerResponse {
        let (cluster, id) = (context.cluster(), self.broker_id);
        let (error_code, error_message) = if cluster.node(id).is_none() {
            (ErrorCode::BrokerIdNotRegistered, Some(format!("there is no node {id}")))
        } else if cluster.is_node_up(id) {
            // Kafka would remove a registration that the running broker does not renew.
            (ErrorCode::InvalidRequest, Some(format!("node {id} runs: stop it first")))
        } else {
            cluster.decommission(id);
            (ErrorCode::None, None)
        };
        UnregisterBrokerResponse { error_code, error_message, ..Default::default() }
    }

    fn refuse(self, _context: &RequestContext, code: ErrorCode) -> UnregisterBrokerResponse {
        let error_message = Some(code.message().to_owned());
        UnregisterBrokerResponse { error_code: code, error_message, ..Default::default() }
    }
}
