//! CreateDelegationToken: creates a delegation token.

use bytes::Bytes;
use ottla_protocol_derive::Message;

use crate::error_code::ErrorCode;

#[derive(Clone, Debug, PartialEq, Message)]
#[message(api = CreateDelegationToken, versions = "1-3", flexible = "2+", response = CreateDelegationTokenResponse)]
pub struct CreateDelegationTokenRequest {
    #[field(versions = "3+")]
    pub owner_principal_type: Option<String>,
    #[field(versions = "3+")]
    pub owner_principal_name: Option<String>,
    pub renewers: Vec<CreatableRenewers>,
    pub max_lifetime_ms: i64,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct CreatableRenewers {
    pub principal_type: String,
    pub principal_name: String,
}

#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "1-3", flexible = "2+")]
pub struct CreateDelegationTokenResponse {
    pub error_code: ErrorCode,
    pub principal_type: String,
    pub principal_name: String,
    #[field(versions = "3+")]
    pub token_requester_principal_type: String,
    #[field(versions = "3+")]
    pub token_requester_principal_name: String,
    pub issue_timestamp_ms: i64,
    pub expiry_timestamp_ms: i64,
    pub max_timestamp_ms: i64,
    pub token_id: String,
    pub hmac: Bytes,
    pub throttle_time_ms: i32,
}
