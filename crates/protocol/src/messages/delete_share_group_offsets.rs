//! DeleteShareGroupOffsets: deletes the offsets of topics of a share group.

use ottla_protocol_derive::Message;

use crate::error_code::ErrorCode;
use crate::uuid::Uuid;

#[derive(Clone, Debug, PartialEq, Message)]
#[message(api = DeleteShareGroupOffsets, versions = "0", flexible = "0+", response = DeleteShareGroupOffsetsResponse)]
pub struct DeleteShareGroupOffsetsRequest {
    pub group_id: String,
    pub topics: Vec<DeleteShareGroupOffsetsRequestTopic>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct DeleteShareGroupOffsetsRequestTopic {
    pub topic_name: String,
}

#[derive(Clone, Debug, PartialEq, Message)]
#[message(versions = "0", flexible = "0+")]
pub struct DeleteShareGroupOffsetsResponse {
    pub throttle_time_ms: i32,
    pub error_code: ErrorCode,
    #[field(default = null)]
    pub error_message: Option<String>,
    pub responses: Vec<DeleteShareGroupOffsetsResponseTopic>,
}

#[derive(Clone, Debug, PartialEq, Message)]
pub struct DeleteShareGroupOffsetsResponseTopic {
    pub topic_name: String,
    pub topic_id: Uuid,
    pub error_code: ErrorCode,
    #[field(default = null)]
    pub error_message: Option<String>,
}
