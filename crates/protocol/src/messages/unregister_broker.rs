//! UnregisterBroker: removes the registration of a broker.

use ottla_protocol_derive::Message;

use crate::error_code::ErrorCode;

#[derive(Clone, Debug, PartialEq, Message)]
#[message(api = UnregisterBroker, versions = "0", flexible = "0+", response = UnregisterBrokerResponse)]
pub struct UnregisterBrokerRequest {
    pub broker_id: i32,
}

#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "0", flexible = "0+")]
pub struct UnregisterBrokerResponse {
    pub throttle_time_ms: i32,
    pub error_code: ErrorCode,
    pub error_message: Option<String>,
}
