//! InitProducerId: a producer id and epoch, for idempotence and transactions.

use ottla_protocol_derive::Message;

use crate::error_code::ErrorCode;

#[derive(Clone, Debug, PartialEq, Message)]
#[message(api = InitProducerId, versions = "0-6", flexible = "2+", latest_unstable, response = InitProducerIdResponse)]
pub struct InitProducerIdRequest {
    pub transactional_id: Option<String>,
    pub transaction_timeout_ms: i32,
    #[field(versions = "3+", default = -1)]
    pub producer_id: i64,
    #[field(versions = "3+", default = -1)]
    pub producer_epoch: i16,
    #[field(versions = "6+")]
    pub enable2_pc: bool,
    #[field(versions = "6+")]
    pub keep_prepared_txn: bool,
}

#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "0-6", flexible = "2+", latest_unstable)]
pub struct InitProducerIdResponse {
    #[field(ignorable)]
    pub throttle_time_ms: i32,
    pub error_code: ErrorCode,
    #[field(default = -1)]
    pub producer_id: i64,
    pub producer_epoch: i16,
    #[field(versions = "6+", default = -1)]
    pub ongoing_txn_producer_id: i64,
    #[field(versions = "6+", default = -1)]
    pub ongoing_txn_producer_epoch: i16,
}
