//! EndTxn: commits or aborts a transaction.

use ottla_protocol_derive::Message;

use crate::error_code::ErrorCode;

#[derive(Clone, Debug, PartialEq, Message)]
#[message(api = EndTxn, versions = "0-5", flexible = "3+", response = EndTxnResponse)]
pub struct EndTxnRequest {
    pub transactional_id: String,
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub committed: bool,
}

#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "0-5", flexible = "3+")]
pub struct EndTxnResponse {
    pub throttle_time_ms: i32,
    pub error_code: ErrorCode,
    #[field(versions = "5+", default = -1, ignorable)]
    pub producer_id: i64,
    #[field(versions = "5+", default = -1, ignorable)]
    pub producer_epoch: i16,
}
