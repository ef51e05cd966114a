//! DescribeTransactions: the state and the partitions of transactional ids.

use ottla_protocol_derive::Message;

use crate::error_code::ErrorCode;

#[derive(Clone, Debug, PartialEq, Message)]
#[message(api = DescribeTransactions, versions = "0", flexible = "0+", response = DescribeTransactionsResponse)]
pub struct DescribeTransactionsRequest {
    pub transactional_ids: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "0", flexible = "0+")]
pub struct DescribeTransactionsResponse {
    pub throttle_time_ms: i32,
    pub transaction_states: Vec<TransactionState>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct TransactionState {
    pub error_code: ErrorCode,
    pub transactional_id: String,
    pub transaction_state: String,
    pub transaction_timeout_ms: i32,
    pub transaction_start_time_ms: i64,
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub topics: Vec<TopicData>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct TopicData {
    pub topic: String,
    pub partitions: Vec<i32>,
}
