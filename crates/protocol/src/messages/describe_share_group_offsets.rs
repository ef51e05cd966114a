//! DescribeShareGroupOffsets: start offsets and lag of share groups.

use ottla_protocol_derive::Message;

use crate::error_code::ErrorCode;
use crate::uuid::Uuid;

#[derive(Clone, Debug, PartialEq, Message)]
#[message(api = DescribeShareGroupOffsets, versions = "0-1", flexible = "0+", response = DescribeShareGroupOffsetsResponse)]
pub struct DescribeShareGroupOffsetsRequest {
    pub groups: Vec<DescribeShareGroupOffsetsRequestGroup>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct DescribeShareGroupOffsetsRequestGroup {
    pub group_id: String,
    pub topics: Option<Vec<DescribeShareGroupOffsetsRequestTopic>>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct DescribeShareGroupOffsetsRequestTopic {
    pub topic_name: String,
    pub partitions: Vec<i32>,
}

#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "0-1", flexible = "0+")]
pub struct DescribeShareGroupOffsetsResponse {
    pub throttle_time_ms: i32,
    pub groups: Vec<DescribeShareGroupOffsetsResponseGroup>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct DescribeShareGroupOffsetsResponseGroup {
    pub group_id: String,
    pub topics: Vec<DescribeShareGroupOffsetsResponseTopic>,
    pub error_code: ErrorCode,
    #[field(default = null)]
    pub error_message: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct DescribeShareGroupOffsetsResponseTopic {
    pub topic_name: String,
    pub topic_id: Uuid,
    pub partitions: Vec<DescribeShareGroupOffsetsResponsePartition>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct DescribeShareGroupOffsetsResponsePartition {
    pub partition_index: i32,
    pub start_offset: i64,
    pub leader_epoch: i32,
    #[field(versions = "1+", default = -1, ignorable)]
    pub lag: i64,
    pub error_code: ErrorCode,
    #[field(default = null)]
    pub error_message: Option<String>,
}
