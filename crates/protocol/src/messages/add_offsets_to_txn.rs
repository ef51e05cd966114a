//! AddOffsetsToTxn: announces the group whose offsets a transaction will commit.

use ottla_protocol_derive::Message;

use crate::error_code::ErrorCode;

#[derive(Clone, Debug, PartialEq, Message)]
#[message(api = AddOffsetsToTxn, versions = "0-4", flexible = "3+", response = AddOffsetsToTxnResponse)]
pub struct AddOffsetsToTxnRequest {
    pub transactional_id: String,
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub group_id: String,
}

#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "0-4", flexible = "3+")]
pub struct AddOffsetsToTxnResponse {
    pub throttle_time_ms: i32,
    pub error_code: ErrorCode,
}
