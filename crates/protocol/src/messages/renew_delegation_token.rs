//! RenewDelegationToken: extends the life of a delegation token.

use bytes::Bytes;
use ottla_protocol_derive::Message;

use crate::error_code::ErrorCode;

#[derive(Clone, Debug, PartialEq, Message)]
#[message(api = RenewDelegationToken, versions = "1-2", flexible = "2+", response = RenewDelegationTokenResponse)]
pub struct RenewDelegationTokenRequest {
    pub hmac: Bytes,
    pub renew_period_ms: i64,
}

#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "1-2", flexible = "2+")]
pub struct RenewDelegationTokenResponse {
    pub error_code: ErrorCode,
    pub expiry_timestamp_ms: i64,
    pub throttle_time_ms: i32,
}
