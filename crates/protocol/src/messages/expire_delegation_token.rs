//! ExpireDelegationToken: changes the expiry of a delegation token.

use bytes::Bytes;
use ottla_protocol_derive::Message;

use crate::error_code::ErrorCode;

#[derive(Clone, Debug, PartialEq, Message)]
#[message(api = ExpireDelegationToken, versions = "1-2", flexible = "2+", response = ExpireDelegationTokenResponse)]
pub struct ExpireDelegationTokenRequest {
    pub hmac: Bytes,
    pub expiry_time_period_ms: i64,
}

#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "1-2", flexible = "2+")]
pub struct ExpireDelegationTokenResponse {
    pub error_code: ErrorCode,
    pub expiry_timestamp_ms: i64,
    pub throttle_time_ms: i32,
}
