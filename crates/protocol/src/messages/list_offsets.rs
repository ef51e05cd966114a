//! ListOffsets: the first offset, the last offset, or the offset for a timestamp.

use ottla_protocol_derive::Message;

use crate::error_code::ErrorCode;

#[derive(Clone, Debug, PartialEq, Message)]
#[message(api = ListOffsets, versions = "1-11", flexible = "6+", response = ListOffsetsResponse)]
pub struct ListOffsetsRequest {
    pub replica_id: i32,
    #[field(versions = "2+")]
    pub isolation_level: i8,
    pub topics: Vec<ListOffsetsTopic>,
    #[field(versions = "10+", ignorable)]
    pub timeout_ms: i32,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct ListOffsetsTopic {
    pub name: String,
    pub partitions: Vec<ListOffsetsPartition>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct ListOffsetsPartition {
    pub partition_index: i32,
    #[field(versions = "4+", default = -1, ignorable)]
    pub current_leader_epoch: i32,
    pub timestamp: i64,
}

#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "1-11", flexible = "6+")]
pub struct ListOffsetsResponse {
    #[field(versions = "2+", ignorable)]
    pub throttle_time_ms: i32,
    pub topics: Vec<ListOffsetsTopicResponse>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct ListOffsetsTopicResponse {
    pub name: String,
    pub partitions: Vec<ListOffsetsPartitionResponse>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct ListOffsetsPartitionResponse {
    pub partition_index: i32,
    pub error_code: ErrorCode,
    #[field(default = -1)]
    pub timestamp: i64,
    #[field(default = -1)]
    pub offset: i64,
    #[field(versions = "4+", default = -1)]
    pub leader_epoch: i32,
}
