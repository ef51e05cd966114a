//! SaslAuthenticate: carries the messages of a SASL mechanism.

use bytes::Bytes;
use ottla_protocol_derive::Message;

use crate::error_code::ErrorCode;

#[derive(Clone, Debug, PartialEq, Message)]
#[message(api = SaslAuthenticate, versions = "0-2", flexible = "2+", response = SaslAuthenticateResponse)]
pub struct SaslAuthenticateRequest {
    pub auth_bytes: Bytes,
}

#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "0-2", flexible = "2+")]
pub struct SaslAuthenticateResponse {
    pub error_code: ErrorCode,
    pub error_message: Option<String>,
    pub auth_bytes: Bytes,
    #[field(versions = "1+", ignorable)]
    pub session_lifetime_ms: i64,
}
