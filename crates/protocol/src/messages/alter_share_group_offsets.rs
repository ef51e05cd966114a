//! AlterShareGroupOffsets: sets the start offsets of an empty share group.

use ottla_protocol_derive::Message;

use crate::error_code::ErrorCode;
use crate::uuid::Uuid;

#[derive(Clone, Debug, PartialEq, Message)]
#[message(api = AlterShareGroupOffsets, versions = "0", flexible = "0+", response = AlterShareGroupOffsetsResponse)]
pub struct AlterShareGroupOffsetsRequest {
    pub group_id: String,
    pub topics: Vec<AlterShareGroupOffsetsRequestTopic>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct AlterShareGroupOffsetsRequestTopic {
    pub topic_name: String,
    pub partitions: Vec<AlterShareGroupOffsetsRequestPartition>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct AlterShareGroupOffsetsRequestPartition {
    pub partition_index: i32,
    pub start_offset: i64,
}

#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "0", flexible = "0+")]
pub struct AlterShareGroupOffsetsResponse {
    pub throttle_time_ms: i32,
    pub error_code: ErrorCode,
    #[field(default = null)]
    pub error_message: Option<String>,
    pub responses: Vec<AlterShareGroupOffsetsResponseTopic>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct AlterShareGroupOffsetsResponseTopic {
    pub topic_name: String,
    pub topic_id: Uuid,
    pub partitions: Vec<AlterShareGroupOffsetsResponsePartition>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct AlterShareGroupOffsetsResponsePartition {
    pub partition_index: i32,
    pub error_code: ErrorCode,
    #[field(default = null)]
    pub error_message: Option<String>,
}
