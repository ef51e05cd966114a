//! OffsetDelete: deletes a group's offsets of some partitions.

use ottla_protocol_derive::Message;

use crate::error_code::ErrorCode;

#[derive(Clone, Debug, PartialEq, Message)]
#[message(api = OffsetDelete, versions = "0", response = OffsetDeleteResponse)]
pub struct OffsetDeleteRequest {
    pub group_id: String,
    pub topics: Vec<OffsetDeleteRequestTopic>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct OffsetDeleteRequestTopic {
    pub name: String,
    pub partitions: Vec<OffsetDeleteRequestPartition>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct OffsetDeleteRequestPartition {
    pub partition_index: i32,
}

#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "0")]
pub struct OffsetDeleteResponse {
    pub error_code: ErrorCode,
    #[field(ignorable)]
    pub throttle_time_ms: i32,
    pub topics: Vec<OffsetDeleteResponseTopic>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct OffsetDeleteResponseTopic {
    pub name: String,
    pub partitions: Vec<OffsetDeleteResponsePartition>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct OffsetDeleteResponsePartition {
    pub partition_index: i32,
    pub error_code: ErrorCode,
}
