//! SaslHandshake: selects a SASL mechanism.

use ottla_protocol_derive::Message;

use crate::error_code::ErrorCode;

#[derive(Clone, Debug, PartialEq, Message)]
#[message(api = SaslHandshake, versions = "0-1", response = SaslHandshakeResponse)]
pub struct SaslHandshakeRequest {
    pub mechanism: String,
}

#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "0-1")]
pub struct SaslHandshakeResponse {
    pub error_code: ErrorCode,
    pub mechanisms: Vec<String>,
}
