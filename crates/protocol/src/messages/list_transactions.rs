//! ListTransactions: the transactional ids that a broker coordinates.

use ottla_protocol_derive::Message;

use crate::error_code::ErrorCode;

#[derive(Clone, Debug, PartialEq, Message)]
#[message(api = ListTransactions, versions = "0-2", flexible = "0+", response = ListTransactionsResponse)]
pub struct ListTransactionsRequest {
    pub state_filters: Vec<String>,
    pub producer_id_filters: Vec<i64>,
    #[field(versions = "1+", default = -1)]
    pub duration_filter: i64,
    #[field(versions = "2+", nullable = "2+", default = null)]
    pub transactional_id_pattern: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "0-2", flexible = "0+")]
pub struct ListTransactionsResponse {
    pub throttle_time_ms: i32,
    pub error_code: ErrorCode,
    pub unknown_state_filters: Vec<String>,
    pub transaction_states: Vec<TransactionState>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct TransactionState {
    pub transactional_id: String,
    pub producer_id: i64,
    pub transaction_state: String,
}
