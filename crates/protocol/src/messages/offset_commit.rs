//! OffsetCommit: commits a group's offsets.

use ottla_protocol_derive::Message;

use crate::error_code::ErrorCode;
use crate::uuid::Uuid;

#[derive(Clone, Debug, PartialEq, Message)]
#[message(api = OffsetCommit, versions = "2-10", flexible = "8+", response = OffsetCommitResponse)]
pub struct OffsetCommitRequest {
    pub group_id: String,
    #[field(default = -1, ignorable)]
    pub generation_id_or_member_epoch: i32,
    #[field(ignorable)]
    pub member_id: String,
    #[field(versions = "7+", default = null)]
    pub group_instance_id: Option<String>,
    #[field(versions = "2-4", default = -1, ignorable)]
    pub retention_time_ms: i64,
    pub topics: Vec<OffsetCommitRequestTopic>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct OffsetCommitRequestTopic {
    #[field(versions = "0-9", ignorable)]
    pub name: String,
    #[field(versions = "10+", ignorable)]
    pub topic_id: Uuid,
    pub partitions: Vec<OffsetCommitRequestPartition>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct OffsetCommitRequestPartition {
    pub partition_index: i32,
    pub committed_offset: i64,
    #[field(versions = "6+", default = -1, ignorable)]
    pub committed_leader_epoch: i32,
    pub committed_metadata: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "2-10", flexible = "8+")]
pub struct OffsetCommitResponse {
    #[field(versions = "3+", ignorable)]
    pub throttle_time_ms: i32,
    pub topics: Vec<OffsetCommitResponseTopic>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct OffsetCommitResponseTopic {
    #[field(versions = "0-9", ignorable)]
    pub name: String,
    #[field(versions = "10+", ignorable)]
    pub topic_id: Uuid,
    pub partitions: Vec<OffsetCommitResponsePartition>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct OffsetCommitResponsePartition {
    pub partition_index: i32,
    pub error_code: ErrorCode,
}
