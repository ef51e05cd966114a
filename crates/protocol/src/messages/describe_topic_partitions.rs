//! DescribeTopicPartitions: topics and partitions, page by page.

use ottla_protocol_derive::Message;

use crate::error_code::ErrorCode;
use crate::uuid::Uuid;

#[derive(Clone, Debug, PartialEq, Message)]
#[message(api = DescribeTopicPartitions, versions = "0", flexible = "0+", response = DescribeTopicPartitionsResponse)]
pub struct DescribeTopicPartitionsRequest {
    pub topics: Vec<TopicRequest>,
    #[field(default = 2000)]
    pub response_partition_limit: i32,
    #[field(default = null)]
    pub cursor: Option<Cursor>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct TopicRequest {
    pub name: String,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct Cursor {
    pub topic_name: String,
    pub partition_index: i32,
}

#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "0", flexible = "0+")]
pub struct DescribeTopicPartitionsResponse {
    #[field(ignorable)]
    pub throttle_time_ms: i32,
    pub topics: Vec<DescribeTopicPartitionsResponseTopic>,
    #[field(default = null)]
    pub next_cursor: Option<Cursor>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct DescribeTopicPartitionsResponseTopic {
    pub error_code: ErrorCode,
    pub name: Option<String>,
    #[field(ignorable)]
    pub topic_id: Uuid,
    #[field(ignorable)]
    pub is_internal: bool,
    pub partitions: Vec<DescribeTopicPartitionsResponsePartition>,
    #[field(default = i32::MIN)]
    pub topic_authorized_operations: i32,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct DescribeTopicPartitionsResponsePartition {
    pub error_code: ErrorCode,
    pub partition_index: i32,
    pub leader_id: i32,
    #[field(default = -1, ignorable)]
    pub leader_epoch: i32,
    pub replica_nodes: Vec<i32>,
    pub isr_nodes: Vec<i32>,
    #[field(default = null)]
    pub eligible_leader_replicas: Option<Vec<i32>>,
    #[field(default = null)]
    pub last_known_elr: Option<Vec<i32>>,
    #[field(ignorable)]
    pub offline_replicas: Vec<i32>,
}
