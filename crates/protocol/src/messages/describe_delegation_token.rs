//! DescribeDelegationToken: the delegation tokens of their owners.

use bytes::Bytes;
use ottla_protocol_derive::Message;

use crate::error_code::ErrorCode;

#[derive(Clone, Debug, PartialEq, Message)]
#[message(api = DescribeDelegationToken, versions = "1-3", flexible = "2+", response = DescribeDelegationTokenResponse)]
pub struct DescribeDelegationTokenRequest {
    pub owners: Option<Vec<DescribeDelegationTokenOwner>>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct DescribeDelegationTokenOwner {
    pub principal_type: String,
    pub principal_name: String,
}

#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "1-3", flexible = "2+")]
pub struct DescribeDelegationTokenResponse {
    pub error_code: ErrorCode,
    pub tokens: Vec<DescribedDelegationToken>,
    pub throttle_time_ms: i32,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct DescribedDelegationToken {
    pub principal_type: String,
    pub principal_name: String,
    #[field(versions = "3+")]
    pub token_requester_principal_type: String,
    #[field(versions = "3+")]
    pub token_requester_principal_name: String,
    pub issue_timestamp: i64,
    pub expiry_timestamp: i64,
    pub max_timestamp: i64,
    pub token_id: String,
    pub hmac: Bytes,
    pub renewers: Vec<DescribedDelegationTokenRenewer>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct DescribedDelegationTokenRenewer {
    pub principal_type: String,
    pub principal_name: String,
}
