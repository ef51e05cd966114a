//! DeleteTopics: deletes topics by name, or from version 6 by id.

use ottla_protocol_derive::Message;

use crate::error_code::ErrorCode;
use crate::uuid::Uuid;

#[derive(Clone, Debug, PartialEq, Message)]
#[message(api = DeleteTopics, versions = "1-6", flexible = "4+", response = DeleteTopicsResponse)]
pub struct DeleteTopicsRequest {
    #[field(versions = "6+")]
    pub topics: Vec<DeleteTopicState>,
    #[field(versions = "0-5", ignorable)]
    pub topic_names: Vec<String>,
    pub timeout_ms: i32,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct DeleteTopicState {
    #[field(default = null)]
    pub name: Option<String>,
    pub topic_id: Uuid,
}

#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "1-6", flexible = "4+")]
pub struct DeleteTopicsResponse {
    #[field(ignorable)]
    pub throttle_time_ms: i32,
    pub responses: Vec<DeletableTopicResult>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct DeletableTopicResult {
    #[field(nullable = "6+")]
    pub name: Option<String>,
    #[field(versions = "6+", ignorable)]
    pub topic_id: Uuid,
    pub error_code: ErrorCode,
    #[field(versions = "5+", default = null, ignorable)]
    pub error_message: Option<String>,
}
