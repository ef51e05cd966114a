//! AddPartitionsToTxn: announces the partitions that a transaction will write to.

use ottla_protocol_derive::Message;

use crate::error_code::ErrorCode;

#[derive(Clone, Debug, PartialEq, Message)]
#[message(api = AddPartitionsToTxn, versions = "0-5", flexible = "3+", response = AddPartitionsToTxnResponse)]
pub struct AddPartitionsToTxnRequest {
    #[field(versions = "4+")]
    pub transactions: Vec<AddPartitionsToTxnTransaction>,
    #[field(versions = "0-3")]
    pub v3_and_below_transactional_id: String,
    #[field(versions = "0-3")]
    pub v3_and_below_producer_id: i64,
    #[field(versions = "0-3")]
    pub v3_and_below_producer_epoch: i16,
    #[field(versions = "0-3")]
    pub v3_and_below_topics: Vec<AddPartitionsToTxnTopic>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct AddPartitionsToTxnTransaction {
    pub transactional_id: String,
    pub producer_id: i64,
    pub producer_epoch: i16,
    pub verify_only: bool,
    pub topics: Vec<AddPartitionsToTxnTopic>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct AddPartitionsToTxnTopic {
    pub name: String,
    pub partitions: Vec<i32>,
}

#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "0-5", flexible = "3+")]
pub struct AddPartitionsToTxnResponse {
    pub throttle_time_ms: i32,
    #[field(versions = "4+", ignorable)]
    pub error_code: ErrorCode,
    #[field(versions = "4+")]
    pub results_by_transaction: Vec<AddPartitionsToTxnResult>,
    #[field(versions = "0-3")]
    pub results_by_topic_v3_and_below: Vec<AddPartitionsToTxnTopicResult>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct AddPartitionsToTxnResult {
    pub transactional_id: String,
    pub topic_results: Vec<AddPartitionsToTxnTopicResult>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct AddPartitionsToTxnTopicResult {
    pub name: String,
    pub results_by_partition: Vec<AddPartitionsToTxnPartitionResult>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct AddPartitionsToTxnPartitionResult {
    pub partition_index: i32,
    pub partition_error_code: ErrorCode,
}
