//! DescribeProducers: the producers that a partition knows (KIP-664).

use ottla_protocol_derive::Message;

use crate::error_code::ErrorCode;

#[derive(Clone, Debug, PartialEq, Message)]
#[message(api = DescribeProducers, versions = "0", flexible = "0+", response = DescribeProducersResponse)]
pub struct DescribeProducersRequest {
    pub topics: Vec<TopicRequest>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct TopicRequest {
    pub name: String,
    pub partition_indexes: Vec<i32>,
}

#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "0", flexible = "0+")]
pub struct DescribeProducersResponse {
    pub throttle_time_ms: i32,
    pub topics: Vec<TopicResponse>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct TopicResponse {
    pub name: String,
    pub partitions: Vec<PartitionResponse>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct PartitionResponse {
    pub partition_index: i32,
    pub error_code: ErrorCode,
    #[field(default = null)]
    pub error_message: Option<String>,
    pub active_producers: Vec<ProducerState>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct ProducerState {
    pub producer_id: i64,
    pub producer_epoch: i32,
    #[field(default = -1)]
    pub last_sequence: i32,
    #[field(default = -1)]
    pub last_timestamp: i64,
    pub coordinator_epoch: i32,
    #[field(default = -1)]
    pub current_txn_start_offset: i64,
}
