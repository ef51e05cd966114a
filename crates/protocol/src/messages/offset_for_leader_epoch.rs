//! OffsetForLeaderEpoch: the end offset of a leader epoch, to detect truncation.

use ottla_protocol_derive::Message;

use crate::error_code::ErrorCode;

#[derive(Clone, Debug, PartialEq, Message)]
#[message(api = OffsetForLeaderEpoch, versions = "2-4", flexible = "4+", response = OffsetForLeaderEpochResponse)]
pub struct OffsetForLeaderEpochRequest {
    #[field(versions = "3+", default = -2, ignorable)]
    pub replica_id: i32,
    pub topics: Vec<OffsetForLeaderTopic>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct OffsetForLeaderTopic {
    pub topic: String,
    pub partitions: Vec<OffsetForLeaderPartition>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct OffsetForLeaderPartition {
    pub partition: i32,
    #[field(default = -1, ignorable)]
    pub current_leader_epoch: i32,
    pub leader_epoch: i32,
}

#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "2-4", flexible = "4+")]
pub struct OffsetForLeaderEpochResponse {
    #[field(ignorable)]
    pub throttle_time_ms: i32,
    pub topics: Vec<OffsetForLeaderTopicResult>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct OffsetForLeaderTopicResult {
    pub topic: String,
    pub partitions: Vec<EpochEndOffset>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct EpochEndOffset {
    pub error_code: ErrorCode,
    pub partition: i32,
    #[field(default = -1, ignorable)]
    pub leader_epoch: i32,
    #[field(default = -1)]
    pub end_offset: i64,
}
