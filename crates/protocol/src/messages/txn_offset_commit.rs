//! TxnOffsetCommit: commits a group's offsets as part of a transaction.

use ottla_protocol_derive::Message;

use crate::error_code::ErrorCode;

#[derive(Clone, Debug, PartialEq, Message)]
#[message(api = TxnOffsetCommit, versions = "0-5", flexible = "3+", response = TxnOffsetCommitResponse)]
pub struct TxnOffsetCommitRequest {
    pub transactional_id: String,
    pub group_id: String,
    pub producer_id: i64,
    pub producer_epoch: i16,
    #[field(versions = "3+", default = -1)]
    pub generation_id: i32,
    #[field(versions = "3+")]
    pub member_id: String,
    #[field(versions = "3+", default = null)]
    pub group_instance_id: Option<String>,
    pub topics: Vec<TxnOffsetCommitRequestTopic>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct TxnOffsetCommitRequestTopic {
    pub name: String,
    pub partitions: Vec<TxnOffsetCommitRequestPartition>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct TxnOffsetCommitRequestPartition {
    pub partition_index: i32,
    pub committed_offset: i64,
    #[field(versions = "2+", default = -1, ignorable)]
    pub committed_leader_epoch: i32,
    pub committed_metadata: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "0-5", flexible = "3+")]
pub struct TxnOffsetCommitResponse {
    pub throttle_time_ms: i32,
    pub topics: Vec<TxnOffsetCommitResponseTopic>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct TxnOffsetCommitResponseTopic {
    pub name: String,
    pub partitions: Vec<TxnOffsetCommitResponsePartition>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct TxnOffsetCommitResponsePartition {
    pub partition_index: i32,
    pub error_code: ErrorCode,
}
