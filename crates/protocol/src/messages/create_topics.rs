//! CreateTopics: creates topics.

use ottla_protocol_derive::Message;

use crate::error_code::ErrorCode;
use crate::uuid::Uuid;

#[derive(Clone, Debug, PartialEq, Message)]
#[message(api = CreateTopics, versions = "2-7", flexible = "5+", response = CreateTopicsResponse)]
pub struct CreateTopicsRequest {
    pub topics: Vec<CreatableTopic>,
    #[field(default = 60000)]
    pub timeout_ms: i32,
    pub validate_only: bool,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct CreatableTopic {
    pub name: String,
    pub num_partitions: i32,
    pub replication_factor: i16,
    pub assignments: Vec<CreatableReplicaAssignment>,
    pub configs: Vec<CreatableTopicConfig>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct CreatableReplicaAssignment {
    pub partition_index: i32,
    pub broker_ids: Vec<i32>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct CreatableTopicConfig {
    pub name: String,
    pub value: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "2-7", flexible = "5+")]
pub struct CreateTopicsResponse {
    #[field(ignorable)]
    pub throttle_time_ms: i32,
    pub topics: Vec<CreatableTopicResult>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct CreatableTopicResult {
    pub name: String,
    #[field(versions = "7+", ignorable)]
    pub topic_id: Uuid,
    pub error_code: ErrorCode,
    #[field(ignorable)]
    pub error_message: Option<String>,
    #[field(versions = "5+", tag = 0, ignorable)]
    pub topic_config_error_code: ErrorCode,
    #[field(versions = "5+", default = -1, ignorable)]
    pub num_partitions: i32,
    #[field(versions = "5+", default = -1, ignorable)]
    pub replication_factor: i16,
    #[field(versions = "5+", ignorable)]
    pub configs: Option<Vec<CreatableTopicConfigs>>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct CreatableTopicConfigs {
    pub name: String,
    pub value: Option<String>,
    pub read_only: bool,
    #[field(default = -1, ignorable)]
    pub config_source: i8,
    pub is_sensitive: bool,
}
