//! Produce: appends record batches.

use ottla_protocol_derive::Message;
use ottla_wire::Chain;

use crate::error_code::ErrorCode;
use crate::uuid::Uuid;

#[derive(Clone, Debug, PartialEq, Message)]
#[message(api = Produce, versions = "3-13", flexible = "9+", response = ProduceResponse)]
pub struct ProduceRequest {
    #[field(default = null)]
    pub transactional_id: Option<String>,
    pub acks: i16,
    pub timeout_ms: i32,
    pub topic_data: Vec<TopicProduceData>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct TopicProduceData {
    #[field(versions = "0-12", ignorable)]
    pub name: String,
    #[field(versions = "13+", ignorable)]
    pub topic_id: Uuid,
    pub partition_data: Vec<PartitionProduceData>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct PartitionProduceData {
    pub index: i32,
    pub records: Option<Chain>,
}

#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "3-13", flexible = "9+")]
pub struct ProduceResponse {
    pub responses: Vec<TopicProduceResponse>,
    #[field(ignorable)]
    pub throttle_time_ms: i32,
    #[field(versions = "10+", tag = 0)]
    pub node_endpoints: Vec<NodeEndpoint>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct TopicProduceResponse {
    #[field(versions = "0-12", ignorable)]
    pub name: String,
    #[field(versions = "13+", ignorable)]
    pub topic_id: Uuid,
    pub partition_responses: Vec<PartitionProduceResponse>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct PartitionProduceResponse {
    pub index: i32,
    pub error_code: ErrorCode,
    pub base_offset: i64,
    #[field(default = -1, ignorable)]
    pub log_append_time_ms: i64,
    #[field(versions = "5+", default = -1, ignorable)]
    pub log_start_offset: i64,
    #[field(versions = "8+", ignorable)]
    pub record_errors: Vec<BatchIndexAndErrorMessage>,
    #[field(versions = "8+", default = null, ignorable)]
    pub error_message: Option<String>,
    #[field(versions = "10+", tag = 0)]
    pub current_leader: LeaderIdAndEpoch,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct BatchIndexAndErrorMessage {
    pub batch_index: i32,
    #[field(default = null)]
    pub batch_index_error_message: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct LeaderIdAndEpoch {
    #[field(default = -1)]
    pub leader_id: i32,
    #[field(default = -1)]
    pub leader_epoch: i32,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct NodeEndpoint {
    pub node_id: i32,
    pub host: String,
    pub port: i32,
    #[field(default = null)]
    pub rack: Option<String>,
}
