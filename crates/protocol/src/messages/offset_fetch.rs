//! OffsetFetch: the committed offsets of groups.

use ottla_protocol_derive::Message;

use crate::error_code::ErrorCode;
use crate::uuid::Uuid;

#[derive(Clone, Debug, PartialEq, Message)]
#[message(api = OffsetFetch, versions = "1-10", flexible = "6+", response = OffsetFetchResponse)]
pub struct OffsetFetchRequest {
    #[field(versions = "0-7")]
    pub group_id: String,
    #[field(versions = "0-7", nullable = "2-7")]
    pub topics: Option<Vec<OffsetFetchRequestTopic>>,
    #[field(versions = "8+")]
    pub groups: Vec<OffsetFetchRequestGroup>,
    #[field(versions = "7+")]
    pub require_stable: bool,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct OffsetFetchRequestTopic {
    pub name: String,
    pub partition_indexes: Vec<i32>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct OffsetFetchRequestGroup {
    pub group_id: String,
    #[field(versions = "9+", default = null, ignorable)]
    pub member_id: Option<String>,
    #[field(versions = "9+", default = -1, ignorable)]
    pub member_epoch: i32,
    pub topics: Option<Vec<OffsetFetchRequestTopics>>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct OffsetFetchRequestTopics {
    #[field(versions = "8-9", ignorable)]
    pub name: String,
    #[field(versions = "10+", ignorable)]
    pub topic_id: Uuid,
    pub partition_indexes: Vec<i32>,
}

#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "1-10", flexible = "6+")]
pub struct OffsetFetchResponse {
    #[field(versions = "3+", ignorable)]
    pub throttle_time_ms: i32,
    #[field(versions = "0-7")]
    pub topics: Vec<OffsetFetchResponseTopic>,
    #[field(versions = "2-7", ignorable)]
    pub error_code: ErrorCode,
    #[field(versions = "8+")]
    pub groups: Vec<OffsetFetchResponseGroup>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct OffsetFetchResponseTopic {
    pub name: String,
    pub partitions: Vec<OffsetFetchResponsePartition>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct OffsetFetchResponsePartition {
    pub partition_index: i32,
    pub committed_offset: i64,
    #[field(versions = "5-7", default = -1, ignorable)]
    pub committed_leader_epoch: i32,
    pub metadata: Option<String>,
    pub error_code: ErrorCode,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct OffsetFetchResponseGroup {
    pub group_id: String,
    pub topics: Vec<OffsetFetchResponseTopics>,
    pub error_code: ErrorCode,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct OffsetFetchResponseTopics {
    #[field(versions = "8-9", ignorable)]
    pub name: String,
    #[field(versions = "10+", ignorable)]
    pub topic_id: Uuid,
    pub partitions: Vec<OffsetFetchResponsePartitions>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct OffsetFetchResponsePartitions {
    pub partition_index: i32,
    pub committed_offset: i64,
    #[field(default = -1, ignorable)]
    pub committed_leader_epoch: i32,
    pub metadata: Option<String>,
    pub error_code: ErrorCode,
}
